//! Parses numbers as a cluster does, which means as Java does, and sizes such as `4k`, which only
//! Mitra understands.

/// The smallest double above the range of `i64`.
const TWO_TO_63: f64 = 9_223_372_036_854_775_808.0;

/// Parses a number like `Double.parseDouble`, including `NaN` and `Infinity`, but without
/// hexadecimal numbers.
#[must_use]
pub fn double(text: &str) -> Option<f64> {
    let text = text.trim_matches(|c: char| c <= ' ');
    match text.strip_prefix(['+', '-']).unwrap_or(text) {
        "NaN" => return Some(f64::NAN),
        "Infinity" if text.starts_with('-') => return Some(f64::NEG_INFINITY),
        "Infinity" => return Some(f64::INFINITY),
        _ => {}
    }
    decimal(text.strip_suffix(|c: char| matches!(c, 'f' | 'F' | 'd' | 'D')).unwrap_or(text))
}

/// Parses a number for an integer field. It may have decimals, and has to be in the range of
/// `long`.
#[must_use]
pub fn long(text: &str) -> Option<f64> {
    // `i64::MAX` becomes the double 2^63 and is still in range.
    let fits = |n: &f64| (-TWO_TO_63..TWO_TO_63).contains(n) || text.parse::<i64>().is_ok();
    decimal(text).filter(fits)
}

fn decimal(text: &str) -> Option<f64> {
    let plain = text.bytes().all(|b| b.is_ascii_digit() || b"+-.eE".contains(&b));
    if plain { text.parse().ok() } else { None }
}

/// Converts `4k`, `1.5M` or `2GiB` to bytes, as digits. `None` if there is no unit.
#[must_use]
pub fn bytes(text: &str) -> Option<String> {
    let short = text.strip_suffix("iB").or_else(|| text.strip_suffix(['b', 'B'])).unwrap_or(text);
    let (number, unit) = short.split_at_checked(short.len().checked_sub(1)?)?;
    let factor: u64 = match unit {
        "k" | "K" => 1 << 10,
        "m" | "M" => 1 << 20,
        "g" | "G" => 1 << 30,
        "t" | "T" => 1 << 40,
        _ => return None,
    };
    let plain = number.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let value = if plain { number.parse::<f64>().ok()? * factor as f64 } else { return None };
    (value < TWO_TO_63).then(|| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_java() {
        for (text, wanted) in [
            ("1", Some(1.0)),
            ("+1.5", Some(1.5)),
            ("-.5e1", Some(-5.0)),
            (" 7. ", Some(7.0)),
            ("1d", Some(1.0)),
            ("2.5F", Some(2.5)),
            ("1e400", Some(f64::INFINITY)),
            ("-Infinity", Some(f64::NEG_INFINITY)),
            ("inf", None),
            ("nan", None),
            ("1_000", None),
            ("0x10", None),
            ("", None),
            ("d", None),
            (".", None),
            ("1 2", None),
        ] {
            assert_eq!(double(text), wanted, "{text}");
        }
        assert!(double("NaN").is_some_and(f64::is_nan));
    }

    #[test]
    fn whole_numbers_have_limits() {
        for (text, wanted) in [
            ("4096", Some(4096.0)),
            ("-1.5", Some(-1.5)),
            ("1e3", Some(1000.0)),
            ("9223372036854775807", Some(TWO_TO_63)),
            ("-9223372036854775808", Some(-TWO_TO_63)),
            ("9223372036854775808", None),
            ("1e30", None),
            ("1d", None),
            (" 1", None),
            ("NaN", None),
        ] {
            assert_eq!(long(text), wanted, "{text}");
        }
    }

    #[test]
    fn sizes_have_units() {
        for (text, wanted) in [
            ("4k", Some("4096")),
            ("4K", Some("4096")),
            ("1M", Some("1048576")),
            ("1.5m", Some("1572864")),
            ("2GiB", Some("2147483648")),
            ("1TB", Some("1099511627776")),
            ("0.3k", Some("307.2")),
            ("4096", None),
            ("4b", None),
            ("k", None),
            ("-4k", None),
            ("4kk", None),
            ("1e3k", None),
            ("é", None),
            ("", None),
            ("99999999999T", None),
        ] {
            assert_eq!(bytes(text).as_deref(), wanted, "{text}");
        }
    }
}
