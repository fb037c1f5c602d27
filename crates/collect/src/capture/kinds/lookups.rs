//! `lookups`: names that were looked up and are not there, by process and directory.
//!
//! What it answers: who keeps asking for files that do not exist, where, and by which names. Each such name may leave
//! an entry in the kernel's cache of names (a negative dentry), so that a program that probes unique names fills
//! memory; one that searches long lists of directories merely takes time.
//!
//! A relative path is counted under the directory that it started from, whether that was the working directory then or
//! one that was open, as in a walk through a tree.
//!
//! Only the exit of calls is probed. A call that did not fail with ENOENT costs one comparison, one that did the
//! reading of its path and a table entry. Lookups by io_uring, and by programs of 32 bits, are not seen.
//!
//! Measured on Linux 6.18 (x86-64, a virtual machine): a call that does not fail so takes 190 ns longer (`getppid`:
//! 187 to 375 ns of CPU), a missing name 520 ns (`access`: 717 to 1,240 ns), one that is looked up from the working
//! directory 620 ns and from one that is open 670 ns. Without the measuring of the cost itself the first is 90 ns.

use aya::include_bytes_aligned;
use mitra_model::capture::{Cell, Raw};

use crate::bpf::sys::{MapReader, Plain};
use crate::capture::calls::{
    COMM, Column, Names, PID, Rows, call_name, path_class, set_classes, table, text,
};
use crate::capture::loader::Loader;
use crate::capture::{AnyError, BY_TASK, CaptureReader, Kind, Request, as_all};

pub(super) static KIND: Kind = Kind {
    name: "lookups",
    help: "names that were looked up and are not there, by process and directory",
    cost: "190 ns for each system call of the machine and 520 to 670 ns for each name that is missing: much only where a million calls a second are made",
    since: "5.12",
    attaches: &["sys_exit"],
    columns: COLUMNS,
    options: &[],
    filters: BY_TASK,
    one_process: false,
    object: include_bytes_aligned!(concat!(env!("OUT_DIR"), "/capture_lookups.bpf.o")),
    source: include_str!("lookups.rs"),
    configure: as_all,
    arm,
};

const COLUMNS: &[Column] = &[
    PID,
    COMM,
    ("directory", "", "where the names were looked up"),
    ("count", "1", "how often a name was not there"),
    ("call", "", "the call that was the first to fail"),
    ("examples", "", "some of the names"),
];

/// As many entries as the kernel's map holds.
const DIRS_MAX: usize = 4096;
const DIR_BYTES: usize = 108;
const EXAMPLES: usize = 4;
const EXAMPLE_BYTES: usize = 48;
const DIR_CUT: u32 = 1;

fn arm(_: &Request, loader: &mut Loader<'_>) -> Result<Box<dyn CaptureReader>, AnyError> {
    set_classes(loader, path_class)?;
    let lookups = loader.map("lookups")?;
    loader.tracepoint("sys_exit", &["lookup_failed"])?;
    Ok(Box::new(Lookups { lookups }))
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Key {
    base: u64,
    tgid: u32,
    flags: u32,
    bytes: u32,
    dir: [u8; DIR_BYTES],
}
const _: () = assert!(size_of::<Key>() == 128, "twin: struct lookup_key in bpf/capture_lookups.bpf.c");
// SAFETY: repr(C), integers and bytes without a hole.
unsafe impl Plain for Key {}

#[repr(C)]
#[derive(Clone, Copy)]
struct Sum {
    count: u64,
    comm: [u8; 16],
    call: u32,
    pad: u32,
    examples: [[u8; EXAMPLE_BYTES]; EXAMPLES],
    base: Names,
}
const _: () = assert!(size_of::<Sum>() == 552, "twin: struct lookup_sum in bpf/capture_lookups.bpf.c");
// SAFETY: repr(C), integers and bytes without a hole.
unsafe impl Plain for Sum {}

struct Lookups {
    lookups: MapReader<Key, Sum>,
}

struct Row {
    count: u64,
    call: u32,
    examples: Vec<String>,
}

impl CaptureReader for Lookups {
    fn other(&self) -> Option<&'static str> {
        Some("lookups whose path could not be read")
    }

    fn finish(mut self: Box<Self>, raw: &mut Raw) -> Result<(), AnyError> {
        let mut rows = Rows::new();
        for (key, sum) in self.lookups.entries(DIRS_MAX)? {
            let row = Row { count: sum.count, call: sum.call, examples: examples(&sum) };
            rows.add(key.tgid, &sum.comm, directory(&key, &sum.base), row, |to, from| {
                to.count += from.count;
                let other = from.examples.into_iter().filter(|name| !to.examples.contains(name));
                let other: Vec<String> = other.collect();
                to.examples.extend(other);
                to.examples.truncate(EXAMPLES);
            });
        }
        let mut cells = Vec::new();
        for (who, directory, row) in rows.sorted(|row| row.count as f64) {
            cells.push(who.row([
                Cell::text(directory.as_str()),
                Cell::number(row.count as f64),
                Cell::text(call_name(row.call)),
                Cell::text(row.examples.join(", ")),
            ]));
            raw.captured.tops.push(who.top(directory, row.count as f64, 0.0));
        }
        raw.captured.tables.push(table("lookups", COLUMNS, cells));
        Ok(())
    }
}

fn examples(sum: &Sum) -> Vec<String> {
    let mut examples: Vec<String> = Vec::new();
    for name in sum.examples.iter().map(|name| text(name)) {
        if !name.is_empty() && !examples.contains(&name) {
            examples.push(name);
        }
    }
    examples
}

/// The directory as a path of the machine; where that is not known the relative one as it was given, after a `./`.
fn directory(key: &Key, base: &Names) -> String {
    let bytes = usize::try_from(key.bytes).unwrap_or(0).min(DIR_BYTES);
    let given = text(key.dir.get(..bytes).unwrap_or_default());
    let mut path = if given.starts_with('/') {
        given
    } else {
        match base.path() {
            Some(base) => format!("{}/{given}", base.trim_end_matches('/')),
            None => format!("./{given}"),
        }
    };
    while path.len() > 1 && path.ends_with('/') {
        path.pop();
    }
    if key.flags & DIR_CUT != 0 {
        path.push('…');
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpf::sys::zeroed;

    fn key(dir: &str, flags: u32) -> Key {
        let mut key = Key { flags, bytes: dir.len() as u32, ..zeroed() };
        key.dir[..dir.len()].copy_from_slice(dir.as_bytes());
        key
    }

    #[test]
    fn a_directory_is_shown_whole() {
        // All zeroes: no names up to the root, which is the root itself.
        let root: Names = zeroed();
        assert_eq!(directory(&key("/usr/lib/", 0), &root), "/usr/lib");
        assert_eq!(directory(&key("/", 0), &root), "/");
        assert_eq!(directory(&key("", 0), &root), "/");
        assert_eq!(directory(&key("sub/", 0), &root), "/sub");
        assert_eq!(directory(&key("/a/b", DIR_CUT), &root), "/a/b…");
    }
}
