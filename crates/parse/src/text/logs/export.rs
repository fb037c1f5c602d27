//! `journalctl -o export`: entries of fields, one on a line, with a blank line between entries.
//!
//! ```text
//! __CURSOR=s=6c0f…
//! __REALTIME_TIMESTAMP=1795266480123456
//! PRIORITY=4
//! SYSLOG_IDENTIFIER=kernel
//! MESSAGE=Memory cgroup out of memory: …
//! ```
//!
//! A field whose value is no text has its length in binary behind its name; its lines are passed over.

use super::Log;
use super::head::Head;
use super::stamp::{Layout, Stamp};
use crate::kernel_message::TEXT_BYTES_MAX;
use crate::text::import::Import;
use crate::text::lines::{Lines, Took};
use crate::text::number::integer;
use crate::text::{Context, Format};

/// See the module.
pub const FORMAT: Format = Format::new("journal export", "entries of `journalctl -o export`", starts, read);

/// The name and the value of a field: capital letters, digits and `_`.
fn field(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = memchr::memchr(b'=', line.get(..line.len().min(70))?)?;
    let (name, value) = line.split_at_checked(at)?;
    let fits = |b: &u8| b.is_ascii_uppercase() || b.is_ascii_digit() || *b == b'_';
    (!name.is_empty() && name.iter().all(fits)).then(|| (name, value.get(1..).unwrap_or_default()))
}

fn is_first(line: &[u8]) -> bool {
    line.starts_with(b"__CURSOR=") || line.starts_with(b"__REALTIME_TIMESTAMP=")
}

fn starts(lines: &mut Lines<'_>, _: &Context) -> bool {
    lines.at(is_first) && lines.soon(4, |line| line.starts_with(b"__MONOTONIC_TIMESTAMP="))
}

#[derive(Default)]
struct Entry {
    line: u32,
    t: Option<i64>,
    program: Option<Vec<u8>>,
    is_kernel: bool,
    priority: Option<u8>,
    text: Option<Vec<u8>>,
}

fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let mut log = Log::default();
    let mut entry = Entry::default();
    lines.each(import, |lines, at, import| {
        let line = lines.line();
        if line.is_empty() {
            put(std::mem::take(&mut entry), &mut log, import);
            return if lines.soon(1, |line| field(line).is_some()) { Took::Yes } else { Took::Last };
        }
        // Binary values are none of these.
        let Some((name, value)) = field(line) else { return Took::Yes };
        match name {
            b"__REALTIME_TIMESTAMP" => {
                let us = integer(value).and_then(|us| i64::try_from(us).ok());
                entry.t = us.and_then(|us| us.checked_mul(1000));
            }
            b"SYSLOG_IDENTIFIER" => entry.program = Some(value.to_vec()),
            b"_COMM" if entry.program.is_none() => entry.program = Some(value.to_vec()),
            b"_TRANSPORT" => entry.is_kernel = value == b"kernel",
            b"PRIORITY" => entry.priority = integer(value).and_then(|p| u8::try_from(p & 7).ok()),
            b"MESSAGE" => {
                entry.text = Some(value.get(..TEXT_BYTES_MAX).unwrap_or(value).to_vec());
                entry.line = at;
            }
            _ => {}
        }
        Took::Yes
    });
    put(entry, &mut log, import);
    log.finish(import);
}

fn put(entry: Entry, log: &mut Log, import: &mut Import) {
    let (Some(t), Some(text)) = (entry.t, entry.text) else { return };
    let is_kernel = entry.is_kernel || entry.program.as_deref() == Some(b"kernel");
    let head = Head {
        stamp: Stamp::At(t),
        layout: Layout::Json,
        decimals: 6,
        program: entry.program.map(Into::into),
        is_kernel,
        priority: entry.priority,
        text: text.into(),
    };
    log.take(head, entry.line, import);
}
