//! What the kernel's log says of devices.

use std::collections::BTreeMap;

use mitra_model::{Event, EventKind};

use crate::view::View;

/// Whether the log of the kernel is known at all: a recording has it, a case only where a line of it is there.
pub fn is_known(view: &View<'_>) -> bool {
    let is_kernel = |kind: &EventKind| {
        matches!(
            kind,
            EventKind::KernelLog { .. }
                | EventKind::OomKill { .. }
                | EventKind::Crash { .. }
                | EventKind::Stuck { .. }
                | EventKind::DeviceError { .. }
                | EventKind::TcpPressure { .. }
                | EventKind::AllocationFailure { .. }
        )
    };
    !view.is_case || view.set.events.iter().any(|e| is_kernel(&e.kind))
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
