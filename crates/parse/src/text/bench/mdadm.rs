//! `mdadm --detail`: what the array is made of, as a note beside the layout of its file system; disks of it that failed.
//!
//! ```text
//! /dev/md0:
//!            Version : 1.2
//!         Raid Level : raid10
//!       Raid Devices : 12
//!             Layout : near=2
//!         Chunk Size : 256K
//!              State : clean, degraded
//!
//!     Number   Major   Minor   RaidDevice State
//!        0       8        0        0      active sync set-A   /dev/sda
//!        1       8       16        -      faulty   /dev/sdb
//! ```

use mitra_model::EventKind;

use super::run::DAMAGE_MAX;
use crate::text::prelude::*;

/// See the module.
pub const FORMAT: Format = Format::new(
    "mdadm --detail",
    "disks of an array that failed; what it is made of as a note",
    starts,
    read,
);

/// `/dev/md0:` and its version.
fn starts(lines: &mut Lines<'_>, _: &Context) -> bool {
    lines.at(|line| device(line).is_some())
        && lines.soon(1, |line| pair(line).is_some_and(|(key, _)| key == b"Version"))
}

fn device(line: &[u8]) -> Option<&[u8]> {
    line.trim_ascii().strip_suffix(b":").filter(|d| d.starts_with(b"/dev/") && !d.contains(&b' '))
}

/// `Raid Level : raid10`.
fn pair(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = memchr::memmem::find(line, b" : ")?;
    Some((line.get(..at)?.trim_ascii(), line.get(at + 3..)?.trim_ascii()))
}

/// The disk of a row of the table of disks that failed.
fn faulty(line: &[u8]) -> Option<&[u8]> {
    let mut list = words(line);
    let is_row = list.next().and_then(integer).is_some() && list.any(|word| word == b"faulty");
    list.last().filter(|_| is_row)?.strip_prefix(b"/dev/")
}

/// A row of the table of disks, or its header.
fn is_disk(line: &[u8]) -> bool {
    let mut w = words(line);
    w.next().is_some_and(|f| f == b"Number" || f == b"-" || integer(f).is_some()) && w.count() >= 4
}

fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let name = lines.peek().and_then(device).map(text).unwrap_or_default();
    lines.advance();
    let when = import.now();
    let (mut level, mut disks, mut chunk) = (None, None, None);
    lines.each(import, |lines, at, import| {
        let line = lines.line();
        if let Some(disk) = faulty(line) {
            let (what, device) = ("device-lost".to_owned(), text(disk));
            let told = text(line.trim_ascii());
            import.event(when, at, EventKind::DeviceError { what, device, text: told });
        }
        match pair(line) {
            // `clean, degraded, recovering`; `active` and `clean` alone are well.
            Some((b"State", value)) if has(value, b"degraded") || has(value, b"FAILED") => {
                import.note(format!("{name} is {}", text(value)));
            }
            Some((b"Raid Level", value)) => level = Some(text(value)),
            Some((b"Raid Devices", value)) => disks = integer(value),
            Some((b"Chunk Size", value)) => chunk = Some(text(value)),
            Some(_) => {}
            None if line.trim_ascii().is_empty() || is_disk(line) => {}
            // The next array.
            None if device(line).is_some() => return Took::No,
            None => return Took::unread_if(lines.soon(DAMAGE_MAX, |line| pair(line).is_some())),
        }
        Took::Yes
    });
    if let (Some(level), Some(disks)) = (level, disks) {
        import.has_read();
        let (of, unit) = chunk.map_or_else(Default::default, |chunk| {
            (format!(", chunk {chunk}"), format!(" --stripe-unit {}", chunk.to_lowercase()))
        });
        let see = format!("mitra xfs-geometry --level {level} --disks {disks}{unit}");
        import.note(format!("{name} is {level} of {disks} disks{of}: see {see}"));
    }
}
