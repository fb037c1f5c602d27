//! What the readers of this folder share.

use crate::text::prelude::*;

/// Bytes in a page, for tools that print KiB where the metric is in pages: files do not say how large a page is, and
/// nearly all machines have 4 KiB.
pub const PAGE: f64 = 4096.0;

/// The time of the n-th sample of a run that has no times of its own: so many intervals after the stamp above it, or a
/// position in the file's sequence that began at `base`.
pub fn when(import: &Import, base: u32, n: u32) -> When {
    let step = import.context.interval_s.unwrap_or(1.0) * SECOND as f64;
    let offset = (f64::from(n) * step) as i64;
    match import.context.stamp {
        Some(When::At(t)) => When::At(t.saturating_add(offset)),
        Some(When::Clock(t)) => When::Clock(t.saturating_add(offset).rem_euclid(DAY)),
        Some(When::Boot(t)) => When::Boot(t.saturating_add(offset)),
        _ => When::Step(base.saturating_add(n)),
    }
}

/// A time as ps, top and atop print it, in seconds: `1-02:03:04`, `02:03:04`, `3:04.56`, `61.86s`, `3h37m38s`, `4.5h`,
/// `75`.
pub fn duration(word: &[u8]) -> Option<f64> {
    if !word.first()?.is_ascii_digit() {
        return None;
    }
    if word.contains(&b':') {
        let (days, clock) = match memchr::memchr(b'-', word) {
            Some(at) => (integer(word.get(..at)?)? as f64, word.get(at + 1..)?),
            None => (0.0, word),
        };
        let mut seconds = 0.0;
        for part in clock.split(|b| *b == b':') {
            seconds = seconds * 60.0 + number(part).filter(|n| *n >= 0.0)?;
        }
        return Some(days * 86_400.0 + seconds);
    }
    let mut rest = word;
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let (value, after) = leading(rest)?;
        let unit = match after.first() {
            None | Some(b's') => 1.0,
            Some(b'm') => 60.0,
            Some(b'h') => 3600.0,
            Some(b'd') => 86_400.0,
            Some(b'w') => 604_800.0,
            Some(b'y') => 31_536_000.0,
            Some(_) => return None,
        };
        seconds += value * unit;
        rest = after.get(1..).unwrap_or(&[]);
    }
    Some(seconds)
}

/// The three load averages of a line of uptime, w or top; decimal commas and points.
pub fn loads(line: &[u8]) -> Option<[f64; 3]> {
    let at = memchr::memmem::find(line, b"load average")?;
    let rest = line.get(at..)?;
    let colon = memchr::memchr(b':', rest)?;
    let mut out = [0.0; 3];
    let mut list = words(rest.get(colon + 1..)?);
    for slot in &mut out {
        let word = list.next()?;
        *slot = number(word.strip_suffix(b",").unwrap_or(word))?;
    }
    Some(out)
}

/// Whether all words of a line are names, not numbers: a header.
pub fn is_header(line: &[u8]) -> bool {
    words(line).all(|w| !w.first().is_some_and(u8::is_ascii_digit))
}

#[cfg(test)]
mod tests {
    use super::{duration, loads};

    #[test]
    fn times_of_processes() {
        for (word, seconds) in [
            ("1-02:03:04", 93_784.0),
            ("00:01:13", 73.0),
            ("1:13.95", 73.95),
            ("1:13,95", 73.95),
            ("61.86s", 61.86),
            ("3h37m38s", 13_058.0),
            ("1m02s", 62.0),
            ("75", 75.0),
        ] {
            let got = duration(word.as_bytes());
            assert!(got.is_some_and(|g| (g - seconds).abs() < 1e-9), "{word} {got:?}");
        }
        for bad in ["", "-", "12x", "1:-2", "1::", "a:b", "09:5x"] {
            assert_eq!(duration(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn load_averages() {
        assert_eq!(loads(b"up 3:37,  load average: 0,17, 12,11, 0,27"), Some([0.17, 12.11, 0.27]));
        assert_eq!(loads(b"load average: 0.17, 0.11"), None);
    }
}
