//! `/proc/PID/status`.
//!
//! ```text
//! Name:   java
//! Umask:  0022
//! State:  S (sleeping)
//! Pid:    4242
//! VmRSS:      1944 kB
//! RssAnon:     108 kB
//! Threads:        1
//! voluntary_ctxt_switches:        1
//! ```

use crate::text::prelude::*;

/// See the module.
pub const FORMAT: Format =
    Format::new("/proc/PID/status", "memory, threads and switches of a process", starts, read);

/// Lines of one file.
const LINES_MAX: usize = 200;
/// KiB of a page. The file counts KiB, the metrics pages; 4 KiB is the page of x86, and of most others.
const PAGE_KIB: f64 = 4.0;

/// `Name:`, with `State:` close below.
fn starts(lines: &mut Lines<'_>, _: &Context) -> bool {
    let starts = |l: Option<&[u8]>, key: &[u8]| l.is_some_and(|l| l.trim_ascii_start().starts_with(key));
    let named =
        |l: Option<&[u8]>| l.is_some_and(|l| pair(l).is_some_and(|(k, v)| k == b"Name" && !v.is_empty()));
    named(lines.peek()) && (1..=2).any(|n| starts(lines.ahead(n), b"State:"))
}

/// `Key: value`.
fn pair(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = line.iter().position(|b| *b == b':')?;
    let (key, value) = (line.get(..at)?.trim_ascii(), line.get(at + 1..)?.trim_ascii());
    let fits = |b: &u8| b.is_ascii_alphanumeric() || *b == b'_';
    (!key.is_empty() && key.iter().all(fits)).then_some((key, value))
}

/// Fields that have a metric, and what one is worth.
const FIELDS: &[(Form, f64, Pairs)] = &[
    (Form::Level, 1.0, pairs!("PPid task.ppid  Threads task.threads")),
    (Form::Level, 1024.0, pairs!("VmRSS task.rss  VmSize task.vsize")),
    (
        Form::Level,
        1.0 / PAGE_KIB,
        pairs!("RssAnon task.rss_anon  RssFile task.rss_file  RssShmem task.rss_shmem  VmSwap task.swap"),
    ),
    (Form::Total, 1.0, pairs!("voluntary_ctxt_switches task.nvcsw  nonvoluntary_ctxt_switches task.nivcsw")),
];

fn metric(key: &[u8]) -> Option<(&'static str, Form, f64)> {
    FIELDS.iter().find_map(|(form, factor, names)| Some((find_pair(names, key)?, *form, *factor)))
}

/// Reads one process.
fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let when = import.now();
    let mut name = String::new();
    let mut pid = None;
    let mut kept: Vec<(&'static str, Form, f64, u32)> = Vec::new();
    for read in 0..LINES_MAX {
        let n = lines.number();
        let own = lines.peek().filter(|line| !line.starts_with(MEMINFO));
        let Some((key, value)) = own.and_then(pair) else { break };
        let number = words(value).next().and_then(integer);
        match key {
            // The next process.
            b"Name" if read > 0 => break,
            b"Name" => name = text(value),
            b"Pid" => pid = number.and_then(|p| u32::try_from(p).ok()),
            key => {
                if let (Some((metric, form, factor)), Some(number)) = (metric(key), number) {
                    kept.push((metric, form, number as f64 * factor, n));
                }
            }
        }
        lines.advance();
    }
    let Some(pid) = pid else { return };
    let row = import.task(pid, &name);
    for (metric, form, value, line) in kept {
        import.value(metric, &row, form, when, line, value);
    }
}
