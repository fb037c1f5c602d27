//! What the kernel's log says of devices.

use std::collections::BTreeMap;

use mitra_model::time::Era;
use mitra_model::{Event, EventKind};

use crate::view::View;

/// Whether the log of the kernel is known at all: a recording has it, a case only where a line of it is there. Errors of devices
/// are in listings too, which have no time, and disks that fail in the log of smartd.
pub fn is_known(view: &View<'_>) -> bool {
    let is_kernel = |event: &Event| match &event.kind {
        EventKind::DeviceError { what, .. } => Era::of(event.real) != Era::Fact && what != "disk-failing",
        kind => matches!(
            kind,
            EventKind::KernelLog { .. }
                | EventKind::OomKill { .. }
                | EventKind::Crash { .. }
                | EventKind::Stuck { .. }
                | EventKind::TcpPressure { .. }
                | EventKind::AllocationFailure { .. }
        ),
    };
    !view.is_case || view.set.events.iter().any(is_kernel)
}

/// What the kernel said of devices in the window, by kind and device.
pub fn reports<'a>(
    view: &'a View<'_>,
    kinds: &[&str],
) -> BTreeMap<(&'a str, &'a str), Vec<(&'a Event, &'a str)>> {
    let mut by_device: BTreeMap<(&str, &str), Vec<(&Event, &str)>> = BTreeMap::new();
    for event in view.set.events.iter().filter(|e| view.window.contains(e.real)) {
        if let EventKind::DeviceError { what, device, text } = &event.kind
            && kinds.contains(&what.as_str())
        {
            by_device.entry((what, device)).or_default().push((event, text));
        }
    }
    by_device
}

#[cfg(test)]
mod tests {
    use mitra_model::SeriesSet;
    use mitra_model::time::SECOND;

    use super::*;

    #[test]
    fn a_listing_and_a_disk_that_warns_are_not_the_kernels_log() {
        let is_known = |what: &str, real: i64| {
            let (what, device, text) = (what.to_owned(), "dm-4".to_owned(), String::new());
            let mut set = SeriesSet::default();
            set.events.push(Event::at(real, EventKind::DeviceError { what, device, text }));
            is_known(&View::of_case(&set, None))
        };
        let dated = 1_795_000_000 * SECOND;
        assert!(is_known("io-error", dated) && is_known("path-failed", Era::Boot.zero() + SECOND));
        assert!(!is_known("path-failed", Era::Fact.zero()));
        assert!(!is_known("disk-failing", dated));
    }
}
