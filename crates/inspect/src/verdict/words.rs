//! Numbers as people read them.

/// `3.8 GB`: decimal, as the rest of Mitra counts.
pub(super) fn bytes(bytes: u64) -> String {
    let (mut value, mut unit) = (bytes as f64, 0);
    let units = ["B", "kB", "MB", "GB", "TB"];
    while value >= 1000.0 && unit + 1 < units.len() {
        value /= 1000.0;
        unit += 1;
    }
    if unit == 0 || value >= 100.0 {
        format!("{value:.0} {}", units[unit])
    } else {
        format!("{value:.1} {}", units[unit])
    }
}

/// `12 %`.
pub(super) fn percent(share: f64) -> String {
    let percent = share * 100.0;
    if percent >= 10.0 || percent == 0.0 { format!("{percent:.0} %") } else { format!("{percent:.1} %") }
}
