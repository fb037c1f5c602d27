//! Secrets stay out of what is kept of captures and commands, and of what reports quote.
//!
//! What processes and logs say is theirs: paths, arguments of calls and lines of foreign logs hold passwords and tokens as
//! files do, and are looked at by the same policy as files that are indexed. Names of functions and the kernel's own words are none of
//! it. It happens when a capture has ended or a report is made, never while something is sampled.

use mitra_model::capture::{Captured, Cell};
use mitra_model::{Event, EventKind};
use mitra_search::secrets::Policy;

/// Columns whose words are the kernel's, a compiler's or Mitra's own.
const PUBLIC: &[&str] = &["where", "state", "protocol", "error", "lock", "local", "remote", "device", "what"];

/// A text without secrets.
pub fn text(text: &str) -> String {
    Policy::default().clean_text(text).0
}

/// Takes the secrets out of what other tools' logs say happened.
pub fn in_events(events: &mut [Event]) {
    let policy = Policy::default();
    for event in events {
        let text = match &mut event.kind {
            EventKind::KernelLog { text, .. }
            | EventKind::DeviceError { text, .. }
            | EventKind::TcpPressure { text, .. }
            | EventKind::Session { text, .. } => text,
            _ => continue,
        };
        let (cleaned, withheld) = policy.clean_text(text);
        if withheld.count > 0 {
            *text = cleaned;
        }
    }
}

/// Takes the secrets out of a capture.
pub fn in_capture(captured: &mut Captured) {
    let policy = Policy::default();
    let clean = |text: &mut String| {
        let (cleaned, withheld) = policy.clean_text(text);
        if withheld.count > 0 {
            *text = cleaned;
        }
        withheld.count
    };
    let mut count = 0;
    for text in captured.filter.values_mut().chain(&mut captured.notes) {
        count += clean(text);
    }
    for row in &mut captured.tops {
        count += clean(&mut row.what);
    }
    for table in &mut captured.tables {
        for (at, column) in table.columns.iter().enumerate() {
            if PUBLIC.contains(&column.name.as_ref()) {
                continue;
            }
            for row in &mut table.rows {
                if let Some(Cell::Text(text)) = row.get_mut(at) {
                    count += clean(text);
                }
            }
        }
    }
    if count > 0 {
        captured.notes.push(format!("{count} values that look like secrets are withheld"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_logs_say_happened_has_none() {
        let text = "app[7]: started with DB_PASSWORD=correct-horse-7 on sda".to_owned();
        let device = "sda".to_owned();
        let what = "reset".to_owned();
        let mut events = [
            Event::at(0, EventKind::KernelLog { priority: 3, text: text.clone() }),
            Event::at(1, EventKind::DeviceError { what, device, text }),
        ];
        in_events(&mut events);
        for event in &events {
            let said = format!("{event:?}");
            assert!(!said.contains("correct-horse") && said.contains("app[7]: started with"), "{said}");
        }
    }
}
