//! `mdadm --detail`: what the array is made of, as a note beside the layout of its file system.
//!
//! ```text
//! /dev/md0:
//!            Version : 1.2
//!         Raid Level : raid10
//!       Raid Devices : 12
//!             Layout : near=2
//!         Chunk Size : 256K
//!
//!     Number   Major   Minor   RaidDevice State
//!        0       8        0        0      active sync set-A   /dev/sda
//! ```

use super::run::DAMAGE_MAX;
use crate::text::prelude::*;

/// See the module.
pub const FORMAT: Format = Format::new("mdadm --detail", "what an array is made of, as a note", starts, read);

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

/// A row of the table of disks, or its header.
fn is_disk(line: &[u8]) -> bool {
    let mut w = words(line);
    w.next().is_some_and(|f| f == b"Number" || f == b"-" || integer(f).is_some()) && w.count() >= 4
}

fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let name = lines.peek().and_then(device).map(text).unwrap_or_default();
    lines.advance();
    let (mut level, mut disks, mut chunk) = (None, None, None);
    lines.each(import, |lines, _, _| {
        let line = lines.line();
        match pair(line) {
            Some((b"Raid Level", value)) => level = Some(text(value)),
            Some((b"Raid Devices", value)) => disks = integer(value),
            Some((b"Chunk Size", value)) => chunk = Some(text(value)),
            Some(_) => {}
            None if line.trim_ascii().is_empty() || is_disk(line) => {}
            None => return Took::unread_if(lines.soon(DAMAGE_MAX, |line| pair(line).is_some())),
        }
        Took::Yes
    });
    if let (Some(level), Some(disks)) = (level, disks) {
        let (of, unit) = chunk.map_or_else(Default::default, |chunk| {
            (format!(", chunk {chunk}"), format!(" --stripe-unit {}", chunk.to_lowercase()))
        });
        let see = format!("mitra xfs-geometry --level {level} --disks {disks}{unit}");
        import.note(format!("{name} is {level} of {disks} disks{of}: see {see}"));
    }
}
