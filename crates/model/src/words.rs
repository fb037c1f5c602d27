//! Sizes and shares as people read them.

/// `1.2 GB`, `640 kB`: decimal, as device vendors and `iostat` count.
#[must_use]
pub fn bytes(value: f64) -> String {
    scaled(value, &["B", "kB", "MB", "GB", "TB", "PB"])
}

/// `2.5`, `250`, `12,345`, `1.2 M`: whole below a million.
#[must_use]
pub fn count(value: f64) -> String {
    /// From here on a number is rounded to a million.
    const WHOLE: f64 = 999_999.5;
    match value.abs() {
        size if size < 100.0 => scaled(value, &[""]).trim_end().to_owned(),
        size if size < WHOLE => grouped(value),
        _ => scaled(value / 1e6, &["M", "G", "T"]),
    }
}

/// `12,345`: whole, with a comma for each thousand.
#[must_use]
pub fn grouped(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    if value <= -0.5 { format!("-{out}") } else { out }
}

fn scaled(value: f64, units: &[&str]) -> String {
    let mut value = value;
    let mut unit = 0;
    while value.abs() >= 1000.0 && unit + 1 < units.len() {
        value /= 1000.0;
        unit += 1;
    }
    if unit == 0 {
        return if value.fract() == 0.0 || value.abs() >= 100.0 {
            format!("{value:.0} {}", units[0])
        } else {
            format!("{value:.1} {}", units[0])
        };
    }
    if value.abs() >= 100.0 {
        format!("{value:.0} {}", units[unit])
    } else {
        format!("{value:.1} {}", units[unit])
    }
}

/// `63 %`, `0.4 %`, `0.03 %`, `3,400 %` of a share from 0 to 1, or of one CPU.
#[must_use]
pub fn percent(share: f64) -> String {
    let percent = share * 100.0;
    match percent.abs() {
        0.0 => "0 %".to_owned(),
        size if size >= 10.0 => format!("{} %", grouped(percent)),
        size if size >= 0.095 => format!("{percent:.1} %"),
        size if size >= 0.005 => format!("{percent:.2} %"),
        _ => "<0.01 %".to_owned(),
    }
}
