//! `lvs` and `dmsetup status`: how full thin pools and snapshots are, and which volumes are not well.
//!
//! ```text
//!   LV    VG   Attr       LSize   Pool  Origin Data%  Meta%  Move Log Cpy%Sync Convert
//!   pool0 data twi-aotzD- 100.00g              100.00 37.01
//!   root  data -wi-ao----  50.00g
//! ```
//! ```text
//! data-root: 0 104857600 linear
//! data-pool0-tpool: 0 209715200 thin-pool 1 1234/4096 1638400/1638400 - out_of_data_space discard_passdown queue_if_no_space - 1024
//! data-snap: 0 16384000 snapshot 1560768/5120000 6088
//! ```
//!
//! Empty cells of `lvs` are blank: a word belongs to the column in which it ends.

use mitra_model::EventKind;

use crate::text::prelude::*;

/// `lvs`.
pub const LVS: Format = Format::new(
    "lvs",
    "volumes that lack a disk; how full thin pools and snapshots are as notes",
    |lines, _| lines.peek().and_then(header).is_some(),
    lvs,
);
/// `dmsetup status`.
pub const DMSETUP: Format = Format::new(
    "dmsetup status",
    "thin pools and snapshots that are nearly full, paths and disks that failed, as notes",
    |lines, _| lines.at(is_device),
    dmsetup,
);

/// From here on `dmeventd` warns too.
const FULL: f64 = 80.0;
/// Columns of `lvs -o all` are some hundred.
const COLUMNS_MAX: usize = 256;

/// What the ninth letter of the attributes says of a volume.
const HEALTH: &[(u8, &str)] = &[
    (b'F', "has failed"),
    (b'D', "has no room for data: writes wait or fail"),
    (b'M', "has metadata that cannot be written"),
    (b'p', "lacks a disk"),
    (b'r', "had write errors on a disk and needs a refresh"),
    (b'm', "has copies that differ"),
];

/// The words of a line with the places where they begin.
fn spans(line: &[u8]) -> Vec<(usize, &[u8])> {
    let mut at = 0;
    let mut out = Vec::new();
    for word in line.split(|b| *b == b' ') {
        if !word.is_empty() && out.len() < COLUMNS_MAX {
            out.push((at, word));
        }
        at += word.len() + 1;
    }
    out
}

/// The columns of a heading and where they begin.
fn header(line: &[u8]) -> Option<Vec<(usize, Vec<u8>)>> {
    let mut list = words(line);
    if list.next() != Some(b"LV") || !list.any(|word| word == b"Attr") {
        return None;
    }
    Some(spans(line).into_iter().map(|(at, name)| (at, name.to_vec())).collect())
}

/// A row of `lvs`.
struct Volume<'a> {
    cells: Vec<Option<&'a [u8]>>,
    columns: &'a [(usize, Vec<u8>)],
}

impl<'a> Volume<'a> {
    fn new(line: &'a [u8], columns: &'a [(usize, Vec<u8>)]) -> Volume<'a> {
        let mut cells = vec![None; columns.len()];
        // How many columns begin before the end of the word: both go from left to right.
        let mut begun = 0;
        for (at, word) in spans(line) {
            let end = at + word.len();
            while columns.get(begun).is_some_and(|(begins, _)| *begins < end) {
                begun += 1;
            }
            if let Some(cell) = begun.checked_sub(1).and_then(|column| cells.get_mut(column)) {
                *cell = Some(word);
            }
        }
        Volume { cells, columns }
    }

    fn cell(&self, name: &[u8]) -> Option<&'a [u8]> {
        let at = self.columns.iter().position(|(_, column)| column == name)?;
        self.cells.get(at).copied().flatten()
    }

    /// Old versions have six attributes, later ones nine and ten.
    fn attributes(&self) -> Option<&'a [u8]> {
        let is_one = |b: &u8| b.is_ascii_alphabetic() || *b == b'-';
        self.cell(b"Attr").filter(|word| {
            matches!(word.len(), 6 | 9 | 10) && word.contains(&b'-') && word.iter().all(is_one)
        })
    }

    fn name(&self) -> String {
        let lv = text(self.cell(b"LV").unwrap_or_default());
        self.cell(b"VG").map_or(lv.clone(), |vg| format!("{}/{lv}", text(vg)))
    }

    /// What there is to say of it, and whether a disk of it is gone.
    fn tell(&self, attributes: &[u8], import: &mut Import) -> bool {
        let name = self.name();
        let kind = match attributes.first() {
            Some(b't') => "thin pool",
            Some(b's' | b'S') => "snapshot",
            _ => "volume",
        };
        let share = |column: &[u8]| self.cell(column).and_then(number);
        let data = share(b"Data%").or_else(|| share(b"Snap%"));
        if kind != "volume" {
            tell_full("lvs", kind, &name, data, share(b"Meta%"), import);
        }
        let letter = attributes.get(8);
        if let Some((_, what)) = HEALTH.iter().find(|(known, _)| Some(known) == letter) {
            import.note(format!("lvs: the {kind} {name} {what}"));
        }
        if matches!(attributes.get(4), Some(b'I' | b'S')) && kind == "snapshot" {
            import.note(format!("lvs: the snapshot {name} is no longer valid"));
        }
        letter == Some(&b'p')
    }
}

/// Notes a pool or a snapshot that is nearly full. Percentages; `None` where they are not known.
fn tell_full(
    tool: &str,
    kind: &str,
    name: &str,
    data: Option<f64>,
    metadata: Option<f64>,
    import: &mut Import,
) {
    let is_full = |share: Option<f64>| share.is_some_and(|share| share >= FULL);
    if !is_full(data) && !is_full(metadata) {
        return;
    }
    let mut parts = Vec::new();
    parts.extend(data.map(|share| format!("is {share:.1} % full")));
    parts.extend(metadata.map(|share| format!("its metadata {share:.1} %")));
    import.note(format!("{tool}: the {kind} {name} {}", parts.join(", ")));
}

fn lvs(lines: &mut Lines<'_>, import: &mut Import) {
    let when = import.now();
    let mut columns = Vec::new();
    lines.each(import, |lines, at, import| {
        let line = lines.line();
        if let Some(found) = header(line) {
            columns = found;
            return Took::Yes;
        }
        let volume = Volume::new(line, &columns);
        let Some(attributes) = volume.attributes() else {
            let is_row = |line: &[u8]| Volume::new(line, &columns).attributes().is_some();
            return Took::unread_if(lines.soon(1, is_row));
        };
        import.has_read();
        // Only the device of the mapper can be found again among others.
        let minor = volume.cell(b"KMin").and_then(integer);
        if volume.tell(attributes, import)
            && let Some(minor) = minor
        {
            let (what, device) = ("device-lost".to_owned(), format!("dm-{minor}"));
            import.event(when, at, EventKind::DeviceError { what, device, text: text(line.trim_ascii()) });
        }
        Took::Yes
    });
}

/// What `dmsetup` can name.
const TARGETS: &[&[u8]] = list!(
    "linear striped thin thin-pool snapshot snapshot-origin snapshot-merge multipath raid mirror crypt cache writecache
     integrity verity error zero delay flakey era vdo dust clone"
);

/// Those of them that a listing begins with; others are words of many texts.
const USUAL: &[&[u8]] =
    list!("linear striped thin thin-pool snapshot snapshot-origin multipath raid crypt cache");

/// The first part of a device, which begins at its sector 0.
fn is_device(line: &[u8]) -> bool {
    (line.starts_with(b"0 ") || has(line, b": 0 "))
        && target(line).is_some_and(|(_, target, _)| USUAL.contains(&target))
}

type Target<'a> = (&'a [u8], &'a [u8], Vec<&'a [u8]>);

/// `NAME: START LENGTH TARGET …`: the name, which stands only where several are listed, the target, and its status.
fn target(line: &[u8]) -> Option<Target<'_>> {
    let mut list = words(line);
    let first = list.next()?;
    let name = match first.strip_suffix(b":") {
        Some(name) => {
            integer(list.next()?)?;
            name
        }
        None => integer(first).map(|_| &b""[..])?,
    };
    integer(list.next()?)?;
    let target = list.next().filter(|target| TARGETS.contains(target))?;
    Some((name, target, list.take(COLUMNS_MAX).collect()))
}

/// `1234/4096` in percent.
fn share(word: &[u8]) -> Option<f64> {
    let slash = memchr::memchr(b'/', word)?;
    let (used, all) = (integer(word.get(..slash)?)?, integer(word.get(slash + 1..)?)?);
    (all > 0).then(|| 100.0 * used as f64 / all as f64)
}

fn dmsetup(lines: &mut Lines<'_>, import: &mut Import) {
    lines.each(import, |lines, _, import| {
        let line = lines.line();
        let Some((name, target_type, status)) = target(line) else {
            return Took::unread_if(lines.soon(1, |next| target(next).is_some()));
        };
        // Of a single device the command has the name.
        let asked = import.context.command.get(2).filter(|_| import.context.ran("dmsetup", None));
        let name = match (name, asked) {
            (b"", Some(asked)) => asked.clone(),
            (b"", None) => "without a name".to_owned(),
            _ => text(name),
        };
        if device(&name, target_type, &status, import) {
            import.has_read();
        }
        Took::Yes
    });
}

/// Whether the status of a device says how it is; the same words may be of its table.
fn device(name: &str, target: &[u8], status: &[&[u8]], import: &mut Import) -> bool {
    let says = |word: &[u8]| status.contains(&word);
    match (target, status) {
        (b"thin-pool", [_, metadata, data, ..]) => {
            let (metadata, data) = (share(metadata), share(data));
            if metadata.is_none() || data.is_none() {
                return false;
            }
            tell_full("dmsetup", "thin pool", name, data, metadata, import);
            if says(b"out_of_data_space") {
                let then = if says(b"error_if_no_space") { "fail" } else { "wait for a time and then fail" };
                import.note(format!("dmsetup: the thin pool {name} has no room for data: writes {then}"));
            }
            if says(b"ro") || says(b"needs_check") {
                import.note(format!("dmsetup: the metadata of the thin pool {name} cannot be written"));
            }
            true
        }
        (b"thin-pool" | b"thin", [b"Fail" | b"Error"]) => {
            let kind = if target == b"thin" { "thin volume" } else { "thin pool" };
            import.note(format!("dmsetup: the {kind} {name} has failed"));
            true
        }
        (b"snapshot" | b"snapshot-merge", [b"Invalid" | b"Overflow"]) => {
            import.note(format!("dmsetup: the snapshot {name} is no longer valid"));
            true
        }
        (b"snapshot" | b"snapshot-merge", [used, ..]) => {
            let used = share(used);
            tell_full("dmsetup", "snapshot", name, used, None, import);
            used.is_some()
        }
        (b"multipath", _) => {
            // `8:16 F 1`: a path, its state, and how often it failed.
            let paths = status.windows(2).filter_map(|pair| match pair {
                [path, state @ (b"A" | b"F")] if path.contains(&b':') => Some(*state == b"F"),
                _ => None,
            });
            let paths: Vec<bool> = paths.collect();
            let failed = paths.iter().filter(|failed| **failed).count();
            if failed > 0 {
                let all = paths.len();
                import.note(format!("dmsetup: {failed} of {all} paths to {name} failed"));
            }
            !paths.is_empty()
        }
        (b"raid", [_, _, health, ratio, ..]) if share(ratio).is_some() => {
            let failed = health.iter().filter(|disk| **disk == b'D').count();
            if failed > 0 {
                import.note(format!("dmsetup: {failed} of {} disks of {name} failed", health.len()));
            }
            true
        }
        // A table has more words.
        (b"linear" | b"snapshot-origin" | b"crypt", []) => true,
        _ => false,
    }
}
