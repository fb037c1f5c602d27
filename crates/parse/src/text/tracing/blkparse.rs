//! `blkparse`: what happens to each request to a disk. The time from its issue to the driver (`D`) until its completion
//! (`C`) is what the device took.
//!
//! ```text
//!   8,0    1       11     0.009507758   697  D   W 223490 + 8 [kjournald]
//!   8,0    1       12     0.009999999     0  C   W 223490 + 8 [0]
//! ```

use std::collections::HashMap;

use crate::text::prelude::*;

use super::snoop::{Disks, Request};
use super::tally::Clock;

/// See the module.
pub(super) const FORMAT: Format = Format::new(
    "blkparse",
    "requests to disks second by second, with the time that the device took",
    |l, _| l.at(|line| event(line).is_some()) && l.soon(3, |line| event(line).is_some()),
    read,
);

/// Requests in the device that are remembered.
const OPEN_MAX: usize = 1 << 20;
/// Bytes of a sector.
const SECTOR: f64 = 512.0;

struct Event<'a> {
    device: &'a [u8],
    ns: i64,
    action: u8,
    is_read: bool,
    /// The first sector, and how many.
    sectors: Option<(u64, u64)>,
}

/// A line of one event: device, CPU, sequence, time, process, action, kind.
fn event(line: &[u8]) -> Option<Event<'_>> {
    let first = line.trim_ascii_start();
    if !first.first()?.is_ascii_digit() {
        return None;
    }
    let mut list = words(first);
    let device = list.next()?;
    let comma = memchr::memchr(b',', device)?;
    integer(device.get(..comma)?)?;
    integer(device.get(comma + 1..)?)?;
    integer(list.next()?)?;
    integer(list.next()?)?;
    let time = list.next()?;
    let dot = memchr::memchr(b'.', time)?;
    let fraction = time.get(dot + 1..).filter(|f| f.len() == 9)?;
    let whole = i64::try_from(integer(time.get(..dot)?)?).ok().filter(|s| *s < 1_000_000_000)?;
    let ns = whole * SECOND + integer(fraction)? as i64;
    integer(list.next()?)?;
    let action = list.next().filter(|a| a.len() <= 2 && a.iter().all(u8::is_ascii_alphabetic))?;
    let kind = list.next().unwrap_or_default();
    let sector = list.next().and_then(integer);
    let count = (list.next() == Some(b"+")).then(|| list.next().and_then(integer)).flatten();
    Some(Event {
        device,
        ns,
        action: if action.len() == 1 { *action.first()? } else { b' ' },
        is_read: kind.contains(&b'R') && !kind.contains(&b'W'),
        sectors: sector.zip(count),
    })
}

/// What stands below the events.
fn is_summary(line: &[u8]) -> bool {
    begins(
        line.trim_ascii_start(),
        &[
            b"CPU",
            b"Total (",
            b"Reads Queued",
            b"Read Dispatches",
            b"Reads Requeued",
            b"Reads Completed",
            b"Read Merges",
            b"PC Reads",
            b"PC Read",
            b"Read depth",
            b"IO unplugs",
            b"Throughput (R/W)",
            b"Events (",
            b"Skips:",
        ],
    )
}

fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let interval = import.context.interval_s;
    let mut disks = Disks::default();
    let mut open: HashMap<(Vec<u8>, u64), i64> = HashMap::new();
    lines.each(import, |lines, at, import| {
        let line = lines.line();
        let Some(found) = event(line) else {
            if line.trim_ascii().is_empty() || is_summary(line) {
                return Took::Yes;
            }
            return Took::unread_if(lines.soon(3, |line| event(line).is_some()));
        };
        let Some((sector, count)) = found.sectors else { return Took::Yes };
        match found.action {
            b'D' if open.len() < OPEN_MAX => _ = open.insert((found.device.to_vec(), sector), found.ns),
            b'C' => {
                let issued = open.remove(&(found.device.to_vec(), sector));
                let Some(took) = issued.map(|issued| found.ns - issued).filter(|ns| *ns >= 0) else {
                    return Took::Yes;
                };
                let request = Request {
                    is_read: found.is_read,
                    bytes: count as f64 * SECTOR,
                    seconds: took as f64 / SECOND as f64,
                    line: at,
                };
                disks.request(found.device, Some((Clock::Begin, found.ns)), &request, import);
            }
            _ => {}
        }
        Took::Yes
    });
    disks.finish(Some(Clock::Begin), import);
    import.context.interval_s = interval;
}
