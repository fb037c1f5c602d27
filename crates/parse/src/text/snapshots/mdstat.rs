//! `/proc/mdstat`: which disks are members of which mirror, and which of them failed. That an array is rebuilt or checked is
//! a note.
//!
//! ```text
//! Personalities : [raid1]
//! md0 : active raid1 sdb1[1](F) sda1[0]
//!       1046528 blocks super 1.2 [2/1] [U_]
//!       [==>..................]  recovery = 12.6% (132096/1046528) finish=0.4min speed=33440K/sec
//!
//! unused devices: <none>
//! ```

use mitra_model::EventKind;

use crate::text::prelude::*;

/// See the module.
pub const FORMAT: Format = Format::new(
    "/proc/mdstat",
    "members of mirrors, and disks of arrays that failed; that an array is rebuilt or checked as a note",
    |lines, _| {
        lines.at(|line| line.starts_with(b"Personalities : ")) || lines.peek().and_then(array).is_some()
    },
    read,
);

/// The name and the level of an array, and the words of its members.
type Array<'a> = (&'a [u8], &'a [u8], Vec<&'a [u8]>);

fn array(line: &[u8]) -> Option<Array<'_>> {
    let mut list = words(line);
    let name = list.next().filter(|name| name.starts_with(b"md"))?;
    if list.next() != Some(b":") || !matches!(list.next(), Some(b"active" | b"inactive")) {
        return None;
    }
    let rest: Vec<&[u8]> =
        list.filter(|word| !matches!(*word, b"(read-only)" | b"(auto-read-only)")).collect();
    let (level, members) = match rest.split_first() {
        Some((level, members)) if !level.contains(&b'[') => (*level, members),
        _ => (&b""[..], rest.as_slice()),
    };
    let is_member = |word: &&[u8]| member(word).is_some();
    (!members.is_empty() && members.iter().all(is_member)).then(|| (name, level, members.to_vec()))
}

/// `sdb1[1](F)`: the device, and whether it failed.
fn member(word: &[u8]) -> Option<(&[u8], bool)> {
    let open = memchr::memchr(b'[', word)?;
    let (device, rest) = word.split_at_checked(open)?;
    let close = memchr::memchr(b']', rest)?;
    integer(rest.get(1..close)?)?;
    (!device.is_empty()).then(|| (device, has(rest, b"(F)")))
}

/// `recovery = 12.6% (…) finish=0.4min speed=33440K/sec`: what goes on, its percentage and its speed in KiB a second. A
/// `resync=DELAYED` waits.
fn progress(line: &[u8]) -> Option<(&[u8], f64, f64)> {
    const KINDS: &[&[u8]] = list!("recovery resync reshape check");
    let speed = first(behind(line, b" speed=")?)?;
    let mut list = words(line).skip_while(|word| !KINDS.contains(word));
    let (kind, is) = (list.next()?, list.next()?);
    let percent = list.next().and_then(number).filter(|_| is == b"=")?;
    Some((kind, percent, speed))
}

fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let when = import.now();
    let mut name_of_array = String::new();
    lines.each(import, |lines, at, import| {
        let line = lines.line();
        if let Some((kind, percent, speed)) = progress(line) {
            let kind = text(kind);
            import.has_read();
            import.note(format!(
                "{name_of_array}: {kind} is at {percent:.1} %, with {:.1} MiB/s",
                speed / 1024.0
            ));
            return Took::Yes;
        }
        if let Some((name, level, members)) = array(line) {
            name_of_array = text(name);
            for (device, failed) in members.iter().filter_map(|word| member(word)) {
                if level == b"raid1" {
                    import.text_at("disk.mirror", &text(device), when, at, &text(name));
                }
                if failed {
                    let (what, device) = ("device-lost".to_owned(), text(device));
                    import.event(when, at, EventKind::DeviceError { what, device, text: text(line) });
                }
            }
            return Took::Yes;
        }
        let is_ours = line.trim_ascii().is_empty()
            || line.starts_with(b"Personalities : ")
            || line.starts_with(b"unused devices:")
            || (line.starts_with(b" ")
                && (has(line, b" blocks")
                    || has(line, b"bitmap:")
                    || has(line, b"speed=")
                    || has(line, b"resync=")));
        if is_ours { Took::Yes } else { Took::No }
    });
}
