//! The files of one control group that count its I/O by device: `io.stat`, and `blkio.throttle.*` of version 1.

use mitra_model::NA;

use crate::Outcome;
use crate::column::{Column, sum};
use crate::scan::{Lines, device_number, digits, number, only_number, skip_blanks, word};

/// Devices of a group that are remembered, to detect duplicates.
const DEVICES_MAX: usize = 64;

/// `io.stat`: `254:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=5 dios=6` for each device.
///
/// A device that is made of others counts beside them, so on stacked devices the sum counts some I/O twice. The columns are those of
/// bytes read and written, and of reads and writes.
pub(crate) fn io_stat(input: &[u8], columns: [Column; 4], row: &mut [i64]) -> Outcome {
    let mut outcome = Outcome::default();
    let mut lines = Lines::new(input);
    let mut sums = [0; 4];
    let mut seen = [(u32::MAX, 0); DEVICES_MAX];
    let mut devices = 0;
    while let Some(line) = lines.next(&mut outcome) {
        match io_line(line) {
            Some((device, values)) if !seen.iter().take(devices).any(|d| *d == device) => {
                if let Some(slot) = seen.get_mut(devices) {
                    *slot = device;
                    devices += 1;
                }
                for (total, value) in sums.iter_mut().zip(values) {
                    *total = sum(*total, value);
                }
            }
            _ => outcome.bad(lines.number()),
        }
    }
    if sums.contains(&NA) && outcome.is_clean() {
        outcome.bad(lines.number());
    }
    for (column, value) in columns.into_iter().zip(sums) {
        // A device whose line was damaged is missing in the sum.
        column.set(row, if outcome.is_clean() { value } else { NA });
    }
    outcome
}

/// Device and numbers of a line of `io.stat`: bytes read and written, reads and writes. A device that was never used
/// may have no numbers; one that has some has all four.
fn io_line(line: &[u8]) -> Option<((u32, u32), [i64; 4])> {
    let (name, mut rest) = word(line)?;
    let device = device_number(name)?;
    let mut values = [None; 4];
    let mut is_used = false;
    while let Some((pair, tail)) = word(rest) {
        let equals = pair.iter().position(|b| *b == b'=')?;
        let (key, value) = pair.split_at_checked(equals)?;
        is_used = true;
        if !pair.iter().all(u8::is_ascii_graphic) {
            return None;
        }
        let keys: [&[u8]; 4] = [b"rbytes", b"wbytes", b"rios", b"wios"];
        let position = keys.iter().position(|known| *known == key);
        if let Some(slot) = position.and_then(|position| values.get_mut(position)) {
            let (value, []) = digits(value.strip_prefix(b"=")?)? else { return None };
            if slot.replace(value).is_some() {
                return None;
            }
        }
        rest = tail;
    }
    match values {
        [Some(a), Some(b), Some(c), Some(d)] => Some((device, [a, b, c, d])),
        _ if is_used => None,
        _ => Some((device, [0; 4])),
    }
}

/// A file of version 1 with lines `254:0 Read 123` for each device, and a last line `Total 456`.
pub(crate) fn blkio(input: &[u8], columns: [Column; 2], row: &mut [i64]) -> Outcome {
    let mut outcome = Outcome::default();
    let mut lines = Lines::new(input);
    let mut sums = [0; 2];
    let mut ended = false;
    while let Some(line) = lines.next(&mut outcome) {
        let Some((name, rest)) = word(line) else {
            outcome.bad(lines.number());
            continue;
        };
        if name == b"Total" && !ended {
            ended = only_number(rest).is_some_and(|total| total != NA);
            continue;
        }
        let operation = word(rest).and_then(|(name, rest)| Some((name, number(rest)?)));
        match operation {
            Some((operation, (value, rest)))
                if device_number(name).is_some() && skip_blanks(rest).is_empty() && !ended =>
            {
                let [read, written] = &mut sums;
                match operation {
                    b"Read" => *read = sum(*read, value),
                    b"Write" => *written = sum(*written, value),
                    b"Sync" | b"Async" | b"Discard" | b"Total" => {}
                    _ => outcome.bad(lines.number()),
                }
            }
            _ => outcome.bad(lines.number()),
        }
    }
    // Without the last line the file was cut off, perhaps between two devices.
    if outcome.is_clean() && (!ended || sums.contains(&NA)) {
        outcome.bad(lines.number().max(1));
    }
    for (column, value) in columns.into_iter().zip(sums) {
        column.set(row, if outcome.is_clean() { value } else { NA });
    }
    outcome
}
