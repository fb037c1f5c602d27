//! Values with units, short enough to read at a glance.

use mitra_diagnose::words;
pub use mitra_diagnose::words::grouped;
use mitra_model::report::Incident;

/// A value in base units: `710 MB/s`, `85,327/s`, `3.2 ms`; seconds per second as `31 %`, which is `250 %` of two and a half CPUs.
pub fn value(value: f64, unit: &str) -> String {
    if !value.is_finite() {
        return "-".to_owned();
    }
    match unit {
        "bytes" => words::bytes(value),
        "bytes/s" => format!("{}/s", words::bytes(value)),
        "s" => words::seconds(value),
        "1/s" => format!("{}/s", words::count(value)),
        "share" | "s/s" => words::percent(value),
        "pages" => format!("{} pages", words::count(value)),
        "" => number(value),
        other => format!("{} {other}", number(value)),
    }
}

/// A number without a unit: `0.25`, `12`, `85,327`.
pub fn number(value: f64) -> String {
    if value.fract() != 0.0 && value.abs() < 10.0 { ratio(value) } else { words::count(value) }
}

/// Two significant digits below ten: the accounting is no more precise.
fn ratio(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        v if v < 0.01 => format!("{value:.4}"),
        v if v < 10.0 => format!("{value:.2}"),
        _ => words::count(value),
    }
}

/// Task-seconds are not seconds on the clock, so the word is written out.
pub fn task_seconds(seconds: f64) -> String {
    match seconds {
        s if s < 0.05 => "less than 0.1 task-seconds".to_owned(),
        s if s < 10.0 => format!("{s:.1} task-seconds"),
        s => format!("{} task-seconds", grouped(s)),
    }
}

/// What an incident cost: `3.4 task-seconds`, or `51 s of its clients' time` where those waited for longer.
pub fn cost(incident: &Incident) -> Option<String> {
    let (lost, waited) = (incident.lost_task_seconds, incident.client_wait_seconds);
    match waited.filter(|waited| lost.is_none_or(|lost| *waited > lost)) {
        Some(waited) => Some(format!("{} of its clients' time", words::seconds(waited))),
        None => lost.map(task_seconds),
    }
}

/// The same for a table: `3,010 task-s`, `51 s`.
pub fn short_cost(incident: &Incident) -> Option<String> {
    let (lost, waited) = (incident.lost_task_seconds, incident.client_wait_seconds);
    match waited.filter(|waited| lost.is_none_or(|lost| *waited > lost)) {
        Some(waited) => Some(format!("{} of clients", words::seconds(waited))),
        None => lost.map(|lost| task_seconds(lost).replace("task-seconds", "task-s")),
    }
}

/// `4,907.53`, `1,700`: with two decimals where there are any.
pub fn exact(value: f64) -> String {
    let hundredths = (value.abs() * 100.0).round();
    let (whole, decimals) = ((hundredths / 100.0).trunc(), hundredths % 100.0);
    let sign = if value < 0.0 { "-" } else { "" };
    if decimals == 0.0 {
        format!("{sign}{}", grouped(whole))
    } else {
        format!("{sign}{}.{decimals:02.0}", grouped(whole))
    }
}

/// A length of time on the clock: `47 s`, `7 min 53 s`, `2 h 5 min`, `3 d 4 h`.
pub fn length(seconds: f64) -> String {
    let s = seconds.max(0.0).round() as u64;
    let two = |a: u64, unit_a: &str, b: u64, unit_b: &str| {
        if b == 0 { format!("{a} {unit_a}") } else { format!("{a} {unit_a} {b} {unit_b}") }
    };
    match s {
        0..60 => format!("{s} s"),
        60..3600 => two(s / 60, "min", s % 60, "s"),
        3600..86_400 => two(s / 3600, "h", s % 3600 / 60, "min"),
        _ => two(s / 86_400, "d", s % 86_400 / 3600, "h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_short_and_keep_their_unit() {
        assert_eq!(value(7.1e8, "bytes/s"), "710 MB/s");
        assert_eq!(value(85_327.0, "1/s"), "85,327/s");
        assert_eq!(value(0.0032, "s"), "3.2 ms");
        assert_eq!(value(0.312, "s/s"), "31 %");
        assert_eq!(value(34.0, "s/s"), "3,400 %");
        assert_eq!(value(0.0, "s/s"), "0 %");
        assert_eq!(value(2.5, ""), "2.50");
        assert_eq!(value(12.0, "pages"), "12 pages");
        assert_eq!(value(f64::NAN, "s"), "-");
    }

    #[test]
    fn lengths_and_lost_time() {
        assert_eq!(length(47.4), "47 s");
        assert_eq!(length(473.0), "7 min 53 s");
        assert_eq!(length(7500.0), "2 h 5 min");
        assert_eq!(length(3.0 * 86_400.0), "3 d");
        assert_eq!(task_seconds(3010.2), "3,010 task-seconds");
        assert_eq!(task_seconds(0.31), "0.3 task-seconds");
        assert_eq!(task_seconds(0.0), "less than 0.1 task-seconds");
        assert_eq!(grouped(1_234_567.0), "1,234,567");
        assert_eq!(grouped(-1234.0), "-1,234");
        assert_eq!(exact(4907.53), "4,907.53");
        assert_eq!(
            (exact(1700.0).as_str(), exact(-0.5).as_str(), exact(9.999).as_str()),
            ("1,700", "-0.50", "10")
        );
        assert_eq!(grouped(999.0), "999");
    }
}
