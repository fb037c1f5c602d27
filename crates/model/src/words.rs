//! Sizes and shares as people read them.

/// `1.2 GB`, `640 kB`: decimal, as device vendors and `iostat` count.
#[must_use]
pub fn bytes(value: f64) -> String {
    scaled(value, &["B", "kB", "MB", "GB", "TB", "PB"])
}

/// `12.3 k`, `250`.
#[must_use]
pub fn count(value: f64) -> String {
    scaled(value, &["", "k", "M", "G", "T"]).trim_end().to_owned()
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

/// `63 %`, `0.4 %` of a share from 0 to 1.
#[must_use]
pub fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent.abs() >= 10.0 || percent == 0.0 {
        format!("{percent:.0} %")
    } else {
        format!("{percent:.1} %")
    }
}
