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

use super::super::context::Context;
use super::super::import::Import;
use super::super::lines::Lines;
use super::super::number::{integer, text, words};
use super::run::{Took, each_line};

/// `/dev/md0:` and its version.
pub fn starts(lines: &mut Lines<'_>, _: &Context) -> bool {
    lines.peek().is_some_and(|l| device(l).is_some())
        && lines.ahead(1).is_some_and(|l| pair(l).is_some_and(|(key, _)| key == b"Version"))
}

fn device(line: &[u8]) -> Option<&[u8]> {
    line.trim_ascii().strip_suffix(b":").filter(|d| d.starts_with(b"/dev/") && !d.contains(&b' '))
}

/// `Raid Level : raid10`.
fn pair(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = memchr::memmem::find(line, b" : ")?;
    Some((line.get(..at)?.trim_ascii(), line.get(at + 3..)?.trim_ascii()))
}

/// Reads one array.
pub fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let name = lines.peek().and_then(device).map(text).unwrap_or_default();
    lines.advance();
    let (mut level, mut disks, mut chunk) = (None, None, None);
    each_line(
        lines,
        import,
        |l| pair(l).is_some(),
        |line, _, _| {
            let Some((key, value)) = pair(line) else {
                // The table of the disks.
                let mut w = words(line);
                let row = w.next().is_some_and(|f| f == b"Number" || f == b"-" || integer(f).is_some());
                return if row && w.count() >= 4 { Took::Yes } else { Took::No };
            };
            match key {
                b"Raid Level" => level = Some(text(value)),
                b"Raid Devices" => disks = integer(value),
                b"Chunk Size" => chunk = Some(text(value)),
                _ => {}
            }
            Took::Yes
        },
    );
    if let (Some(level), Some(disks)) = (level, disks) {
        let (of, unit) = chunk.map_or_else(Default::default, |c| {
            (format!(", chunk {c}"), format!(" --stripe-unit {}", c.to_lowercase()))
        });
        let see = format!("mitra xfs-geometry --level {level} --disks {disks}{unit}");
        import.note(format!("{name} is {level} of {disks} disks{of}: see {see}"));
    }
}
