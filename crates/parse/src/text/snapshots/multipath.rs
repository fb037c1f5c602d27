//! `multipath -ll`: how many paths to a disk failed.
//!
//! ```text
//! mpatha (3600508b4000156d700012000000b0000) dm-3 HP,HSV300
//! size=50G features='1 queue_if_no_path' hwhandler='0' wp=rw
//! |-+- policy='service-time 0' prio=50 status=active
//! | `- 2:0:0:1 sda 8:0  active ready running
//! `-+- policy='service-time 0' prio=10 status=enabled
//!   `- 3:0:0:1 sdb 8:16 failed faulty offline
//! ```
//! ```text
//! mpath1 (3600d0230003228bc000339414edb8101) dm-2 WINSYS,SF2372
//! [size=10 GB][features=0][hwhandler=0][rw]
//! \_ round-robin 0 [prio=1][active]
//!  \_ 2:0:0:6 sdb 8:16 [failed][faulty]
//! ```
//!
//! A path has up to three states: what the device mapper does with it, what its checker found, what the kernel says of the
//! device. One that waits for others to fail is `ghost`, and well. What `multipath` could not find out (`undef`, `unknown`)
//! is no state. Paths of native NVMe end in the state of their controller.
//!
//! A listing does not say since when a path is dead, and a map with another path works without it. So only a map without any
//! is an event.

use mitra_model::EventKind;

use crate::text::prelude::*;

/// See the module.
pub const FORMAT: Format = Format::new(
    "multipath -ll",
    "disks that no path leads to any more; how many paths failed and are left as a note",
    |lines, _| lines.at(|line| map_name(line).is_some()) && lines.soon(1, is_features),
    read,
);

/// States of a path that takes no requests, of SCSI and of NVMe.
const FAILED: &[&[u8]] = list!("failed faulty offline transport-offline connecting dead");
/// States of one that does.
const WORKS: &[&[u8]] = list!("active ready ghost live");
/// States of one that has not failed and takes none.
const RESTS: &[&[u8]] = list!("shaky inaccessible persistent-loss");

/// The name in `mpatha (WWID) dm-3 VENDOR,PRODUCT`, `WWID dm-3 …`, `WWID [nvme]:nvme4n9 …`, and the device.
fn map_name<'a>(line: &'a [u8]) -> Option<(&'a [u8], Option<&'a [u8]>)> {
    let mut list = words(line);
    let name = list.next().filter(|name| line.starts_with(name))?;
    let second = list.next()?;
    let has_wwid = second.starts_with(b"(") && second.ends_with(b")");
    let device = if has_wwid { list.next() } else { Some(second) };
    let device_of = |word: &'a [u8]| {
        let dm = || word.strip_prefix(b"dm-").and_then(integer).map(|_| word);
        word.strip_prefix(b"[nvme]:").or_else(dm)
    };
    match device {
        Some(word) => Some((name, Some(device_of(word)?))),
        // Old versions name no device where they do not know it.
        None => has_wwid.then_some((name, None)),
    }
}

/// `size=50G features='0' …`, `[size=10 GB][features=0]…`.
fn is_features(line: &[u8]) -> bool {
    begins(line, &[b"size=", b"[size="]) && has(line, b"features=")
}

/// What is drawn before a group or a path.
fn behind_tree(line: &[u8]) -> Option<&[u8]> {
    let is_tree = |b: &u8| matches!(b, b' ' | b'|' | b'`' | b'\\' | b'_' | b'-' | b'+');
    let at = line.iter().position(|b| !is_tree(b)).filter(|at| *at > 0)?;
    line.get(at..)
}

fn is_group(line: &[u8]) -> bool {
    behind_tree(line).is_some_and(|rest| rest.starts_with(b"policy=") || has(rest, b" [prio="))
}

/// The states of a path, which stand behind its address `host:channel:id:lun` and its device.
fn path(line: &[u8]) -> Option<Vec<&[u8]>> {
    let mut list = words(behind_tree(line)?);
    let address = list.next()?;
    let is_number = |part: &[u8]| part == b"#" || integer(part).is_some();
    let parts = address.split(|b| *b == b':');
    if !(3..=4).contains(&parts.clone().count()) || !parts.clone().all(is_number) {
        return None;
    }
    list.next()?;
    list.next().filter(|number| number.contains(&b':'))?;
    let states = list.rest().split(|b| matches!(b, b' ' | b'\t' | b'[' | b']'));
    Some(states.filter(|state| !state.is_empty()).collect())
}

/// What is known of the map whose paths are read.
#[derive(Default)]
struct Map {
    name: String,
    /// As the kernel calls it, where that is known.
    device: Option<String>,
    line: u32,
    paths: u32,
    works: u32,
    failed: u32,
    /// Whether requests wait where no path works; `None` if it does not say.
    waits: Option<bool>,
}

impl Map {
    fn tell(&self, when: When, import: &mut Import) {
        let (name, paths, failed) = (&self.name, self.paths, self.failed);
        if failed == 0 {
            return;
        }
        if failed < paths {
            let works = self.works;
            import.note(format!("multipath: {failed} of {paths} paths to {name} failed, {works} work"));
            return;
        }
        let then = match self.waits {
            Some(true) => ": requests wait until one comes back",
            Some(false) => ": requests fail",
            None => "",
        };
        let text = format!("no path to {name} works{then}");
        import.note(format!("multipath: {text}"));
        let device = self.device.clone().unwrap_or_else(|| format!("mapper/{name}"));
        let what = "device-lost".to_owned();
        import.event(when, self.line, EventKind::DeviceError { what, device, text });
    }
}

fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let when = import.now();
    let mut map = Map::default();
    lines.each(import, |lines, at, import| {
        let line = lines.line();
        if let Some(states) = path(line) {
            let is_any = |list: &[&[u8]]| states.iter().any(|state| list.contains(state));
            import.has_read();
            map.paths = map.paths.saturating_add(1);
            if is_any(FAILED) {
                map.failed = map.failed.saturating_add(1);
            } else if is_any(WORKS) && !is_any(RESTS) {
                map.works = map.works.saturating_add(1);
            }
        } else if is_features(line) {
            // Of native NVMe the kernel decides.
            map.waits = (!has(line, b"'n/a'")).then(|| has(line, b"queue_if_no_path"));
        } else if let Some((name, device)) =
            map_name(line).map(|(name, device)| (text(name), device.map(text)))
        {
            if !lines.soon(1, is_features) {
                return Took::No;
            }
            let next = Map { name, device, line: at, ..Map::default() };
            std::mem::replace(&mut map, next).tell(when, import);
        } else if !is_group(line) {
            return Took::unread_if(lines.soon(1, |next| path(next).is_some()));
        }
        Took::Yes
    });
    map.tell(when, import);
}
