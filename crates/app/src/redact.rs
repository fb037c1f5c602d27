//! Removes secrets from captures, command output, and what reports quote.
//!
//! Paths, syscall arguments and foreign logs contain passwords and tokens as files do, and go
//! through the same policy as indexed files. Function names and the kernel's own words do not. It
//! runs when a capture has ended or a report is made, never while sampling.

use mitra_inspect::Snapshot;
use mitra_model::capture::{Captured, Cell};
use mitra_model::{Event, EventKind};
use mitra_search::secrets::Policy;
use serde_json::Value;

/// Columns whose words come from the kernel, a compiler or Mitra.
const PUBLIC: &[&str] = &["where", "state", "protocol", "error", "lock", "local", "remote", "device", "what"];

pub fn text(text: &str) -> String {
    Policy::default().clean_text(text).0
}

/// Cleans all texts of a value. Returns how many secrets are withheld.
pub fn json(value: &mut Value) -> usize {
    fn each(value: &mut Value, policy: &Policy) -> usize {
        match value {
            Value::String(text) => {
                let (cleaned, withheld) = policy.clean_text(text);
                if withheld.count > 0 {
                    *text = cleaned;
                }
                withheld.count as usize
            }
            Value::Array(list) => list.iter_mut().map(|value| each(value, policy)).sum(),
            Value::Object(fields) => fields.values_mut().map(|value| each(value, policy)).sum(),
            _ => 0,
        }
    }
    each(value, &Policy::default())
}

/// Cleans the events of other tools' logs.
pub fn events(list: &mut [Event]) {
    let policy = Policy::default();
    for event in list {
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

/// Cleans a capture, and notes how much was withheld.
pub fn capture(captured: &mut Captured) {
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

/// Cleans the texts of a snapshot of a process.
pub fn snapshot(snapshot: &mut Snapshot) {
    let policy = Policy::default();
    snapshot.map_texts(&mut |text, is_cut| policy.clean_memory(text, is_cut));
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
        self::events(&mut events);
        for event in &events {
            let said = format!("{event:?}");
            assert!(!said.contains("correct-horse") && said.contains("app[7]: started with"), "{said}");
        }
    }
}
