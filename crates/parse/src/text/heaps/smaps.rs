//! `/proc/PID/smaps` and `smaps_rollup`, of one process or of several glued together, as they are or with their columns
//! squeezed.
//!
//! ```text
//! ==> /proc/4242/smaps <==
//! 016c7000-e488f000 rw-p 00000000 00:00 0                          [heap]
//! Size:            3720992 kB
//! Rss:             3720864 kB
//! Pss:             3720864 kB
//! Anonymous:       3720864 kB
//! VmFlags: rd wr mr mw me ac sd
//! ```
//!
//! A row is called `016c7000-e488f000 [heap]`, with `4242:` before it where the process is known, from a line of `tail`,
//! the prompt or the path of the file. Addresses that begin anew without that are of another process, `#2:`.

use crate::text::prelude::*;

/// See the module.
pub const FORMAT: Format =
    Format::new("smaps", "mappings of processes: `/proc/PID/smaps` and `smaps_rollup`", starts, read);

/// The fields that are kept.
pub(super) const FIELDS: Pairs = pairs!(
    "Size mapping.size  Rss mapping.rss  Pss mapping.pss  Anonymous mapping.anonymous  Swap mapping.swap
     Private_Dirty mapping.private_dirty  Private_Clean mapping.private_clean  Shared_Dirty mapping.shared_dirty
     Shared_Clean mapping.shared_clean  Referenced mapping.referenced"
);

/// The header of a mapping with its fields below, or the line of `tail` before it.
fn starts(lines: &mut Lines<'_>, _: &Context) -> bool {
    let Some(line) = lines.peek() else { return false };
    if file_line(line).is_some() {
        return lines.soon(2, |l| header(l).is_some());
    }
    header(line).is_some() && lines.soon(1, |l| field(l).is_some())
}

/// A mapping: its addresses and its name.
pub(super) struct Header<'a> {
    pub start: u64,
    range: &'a [u8],
    pub name: &'a [u8],
}

/// `016c7000-e488f000 rw-p 00000000 00:00 0 [heap]`.
pub(super) fn header(line: &[u8]) -> Option<Header<'_>> {
    let mut w = words(line);
    let range = w.next()?;
    let dash = range.iter().position(|b| *b == b'-')?;
    let start = hexadecimal(range.get(..dash)?)?;
    let end = hexadecimal(range.get(dash + 1..)?)?;
    let modes = w.next()?;
    let fits = end > start
        && modes.len() == 4
        && modes.iter().all(|b| matches!(b, b'r' | b'w' | b'x' | b'p' | b's' | b'-'));
    hexadecimal(w.next()?)?;
    w.next().filter(|device| device.contains(&b':'))?;
    integer(w.next()?)?;
    fits.then(|| Header { start, range, name: w.rest().trim_ascii() })
}

/// `Rss:  12 kB`: its name and its KiB. Other lines of smaps have none.
fn field(line: &[u8]) -> Option<(&[u8], Option<u64>)> {
    let mut w = words(line);
    let key = w.next()?.strip_suffix(b":")?;
    if key.is_empty() || !key.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-')) {
        return None;
    }
    if matches!(key, b"VmFlags" | b"THPeligible" | b"ProtectionKey") {
        return Some((key, None));
    }
    let value = w.next()?;
    (w.next() == Some(b"kB") && w.next().is_none()).then(|| (key, integer(value)))
}

/// The process in `==> /proc/4242/smaps <==`; `None` inside where it is not a number.
fn file_line(line: &[u8]) -> Option<Option<u32>> {
    let path = line.trim_ascii().strip_prefix(b"==> ")?.strip_suffix(b" <==")?;
    let path = text(path);
    (path.ends_with("/smaps") || path.ends_with("/smaps_rollup")).then(|| pid_of_path(&path))
}

/// The process of `…/proc/4242/smaps`.
pub(super) fn pid_of_path(path: &str) -> Option<u32> {
    let mut parts = path.split('/');
    parts.find(|p| *p == "proc")?;
    parts.next()?.parse().ok()
}

/// The process that the prompt or the name of the file tells.
pub(super) fn pid_of_context(context: &Context) -> Option<u32> {
    let of_command = context.command.iter().skip(1).find_map(|w| pid_of_path(w));
    of_command.or_else(|| pid_of_path(&context.file_name))
}

/// The columns of a mapping, each in a group of its own, so that every number has its own line.
struct Fields {
    groups: Vec<(&'static [u8], GroupId)>,
    when: When,
}

impl Fields {
    fn new(import: &mut Import) -> Fields {
        let mut groups = Vec::new();
        for (key, metric) in FIELDS {
            if let Some(column) = Column::new(metric, Form::Level, 1024.0) {
                groups.push((*key, import.group(vec![column])));
            }
        }
        Fields { groups, when: import.now() }
    }

    fn put(&self, import: &mut Import, row: &str, key: &[u8], kib: u64, line: u32) {
        if let Some((_, group)) = self.groups.iter().find(|(k, _)| *k == key)
            && let Some(slot) = import.row(*group, row.as_bytes(), self.when, line).first_mut()
        {
            *slot = kib as f64;
        }
    }
}

/// Reads mappings up to the first line that is of none.
fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let fields = Fields::new(import);
    let mut pid = pid_of_context(&import.context);
    let mut processes = 1_u32;
    let mut last_start = 0;
    let mut row = String::new();
    lines.each(import, |lines, n, import| {
        let line = lines.line();
        if let Some(next) = file_line(line) {
            processes += u32::from(!row.is_empty());
            (pid, last_start) = (next, 0);
        } else if let Some(header) = header(line) {
            if header.start < last_start {
                processes = processes.saturating_add(1);
                pid = None;
            }
            last_start = header.start;
            row = row_name(pid, processes, header.range, header.name);
            if !header.name.is_empty() {
                let name = text(header.name);
                import.text("mapping.name", &row, fields.when, &name);
            }
        } else if let Some((key, value)) = field(line) {
            if let Some(value) = value {
                fields.put(import, &row, key, value, n);
            }
        } else if !line.trim_ascii().is_empty() {
            let more = lines.soon(3, |l| field(l).is_some());
            if !more || row.is_empty() {
                return Took::No;
            }
            return Took::Unread;
        }
        Took::Yes
    });
}

/// `4242:016c7000-e488f000 [heap]`.
pub(super) fn row_name(pid: Option<u32>, process: u32, range: &[u8], name: &[u8]) -> String {
    let mut row = match (pid, process) {
        (Some(pid), _) => format!("{pid}:"),
        (None, 0 | 1) => String::new(),
        (None, n) => format!("#{n}:"),
    };
    row.push_str(&text(range));
    if !name.is_empty() {
        row.push(' ');
        row.push_str(&text(name));
    }
    row
}
