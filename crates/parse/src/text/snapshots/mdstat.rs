//! `/proc/mdstat`: which disks are members of which array, which of them failed, and what an array is checked or rebuilt at,
//! which is a note too.
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
    "members of arrays and of mirrors, disks that failed; that an array is rebuilt or checked, how fast and how far, also as a note",
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

/// What goes on beside the work of an array.
struct Progress<'a> {
    kind: &'a [u8],
    percent: f64,
    /// KiB a second.
    speed: f64,
    /// KiB that are left.
    left: Option<f64>,
}

/// `recovery = 12.6% (132096/1046528) finish=0.4min speed=33440K/sec`. A `resync=DELAYED` waits.
fn progress(line: &[u8]) -> Option<Progress<'_>> {
    const KINDS: &[&[u8]] = list!("recovery resync reshape check");
    let speed = first(behind(line, b" speed=")?)?;
    let mut list = words(line).skip_while(|word| !KINDS.contains(word));
    let (kind, is) = (list.next()?, list.next()?);
    let percent = list.next().and_then(number).filter(|_| is == b"=")?;
    Some(Progress { kind, percent, speed, left: list.next().and_then(left) })
}

/// `(132096/1046528)`: done, and all.
fn left(word: &[u8]) -> Option<f64> {
    let inside = word.strip_prefix(b"(")?.strip_suffix(b")")?;
    let slash = memchr::memchr(b'/', inside)?;
    let (done, all) = (integer(inside.get(..slash)?)?, integer(inside.get(slash + 1..)?)?);
    Some(all.checked_sub(done)? as f64)
}

/// The array whose lines are read.
#[derive(Default)]
struct Stanza {
    name: String,
    line: u32,
    /// Whether it has anything to check: a copy or a parity.
    is_redundant: bool,
    /// Whether a line says what goes on beside its work, or what waits to.
    is_told: bool,
}

impl Stanza {
    fn end(&self, when: When, import: &mut Import) {
        if self.is_redundant && !self.is_told {
            import.text_at("disk.sync_action", &self.name, when, self.line, "idle");
        }
    }
}

fn read(lines: &mut Lines<'_>, import: &mut Import) {
    const REDUNDANT: &[&[u8]] = list!("raid1 raid4 raid5 raid6 raid10");
    let when = import.now();
    let mut stanza = Stanza::default();
    lines.each(import, |lines, at, import| {
        let line = lines.line();
        if let Some(Progress { kind, percent, speed, left }) = progress(line) {
            let kind = text(kind);
            let name = &stanza.name;
            stanza.is_told = true;
            import.has_read();
            import.note(format!("{name}: {kind} is at {percent:.1} %, with {:.1} MiB/s", speed / 1024.0));
            // As sysfs calls it.
            let action = if kind == "recovery" { "recover" } else { kind.as_str() };
            import.text_at("disk.sync_action", name, when, at, action);
            for (metric, kib) in [("disk.sync_speed", Some(speed)), ("disk.sync_left", left)] {
                if let Some(kib) = kib {
                    import.value(metric, name, Form::Level, when, at, kib * 1024.0);
                }
            }
            return Took::Yes;
        }
        if let Some((name, level, members)) = array(line) {
            let is_redundant = REDUNDANT.contains(&level);
            let next = Stanza { name: text(name), line: at, is_redundant, is_told: false };
            std::mem::replace(&mut stanza, next).end(when, import);
            for (device, failed) in members.iter().filter_map(|word| member(word)) {
                import.text_at("disk.array", &text(device), when, at, &text(name));
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
        // `resync=DELAYED`, `resync=PENDING`.
        stanza.is_told |= line.starts_with(b" ") && (has(line, b"speed=") || has(line, b"resync="));
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
    stanza.end(when, import);
}
