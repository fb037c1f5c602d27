//! Logs: of the kernel in dmesg, syslog and journal form, of BIRD, and any log whose lines begin with a time.
//!
//! All are read by one reader, because they come mixed: a syslog holds the lines of the kernel, of routing daemons
//! and of everybody else. A line of the kernel becomes what it means ([`crate::kernel_message`]) or a
//! [`EventKind::KernelLog`]; a session that changes its state becomes a [`EventKind::Session`]; all lines with a time
//! are counted by program, and bursts and silences among them are told at the end.

mod export;
mod grid;
mod head;
mod json;
mod oom;
mod rhythm;
mod sessions;
mod smartd;
mod stamp;
mod times;

use mitra_model::EventKind;

use super::import::{Import, When};
use super::lines::{Lines, Took};
use super::{Context, Format, context};
use crate::find::find;
use crate::kernel_message::{kept, meaning};

use grid::Grid;
use head::{Head, head};
use stamp::{Layout, Stamp};
use times::Times;

/// The formats, the most particular first.
pub static FORMATS: &[Format] = &[
    Format::new(
        "kernel log",
        "dmesg, syslog and journal: crashes, kills for lack of memory, stuck tasks, faults of devices",
        starts_kernel,
        read,
    ),
    export::FORMAT,
    Format::new("BIRD log", "sessions of routing protocols that came and went", starts_bird, read),
    Format::new(
        "log",
        "any log whose lines begin with a time, or are JSON: rates by program, bursts, silences, sessions",
        starts_log,
        read,
    ),
];

/// Lines without a time that belong to the line before them, such as a stack trace. What is longer is something else.
const CONTINUATION_MAX: u32 = 1_000;
/// What a line of the kernel is taken for where its priority is not printed: information.
const PRIORITY_UNKNOWN: u8 = 6;

fn starts_kernel(lines: &mut Lines<'_>, _: &Context) -> bool {
    lines.peek().is_some_and(|line| match head(line) {
        Some(head) => head.is_kernel,
        None => bare(line).is_some(),
    })
}

fn starts_bird(lines: &mut Lines<'_>, _: &Context) -> bool {
    // BIRD names itself, or the level, or writes JSON in which any letter may be written otherwise.
    let may_be = |line: &&[u8]| {
        matches!(line.first(), Some(b'{'))
            || memchr::memchr(b'<', line).is_some()
            || find!(line, b"bird").is_some()
    };
    let head = lines.peek().filter(may_be).and_then(head);
    head.is_some_and(|h| h.program.is_some_and(|p| p.starts_with(b"bird")))
}

fn starts_log(lines: &mut Lines<'_>, _: &Context) -> bool {
    lines.at(|line| head(line).is_some() || is_journal_note(line))
}

/// `-- Journal begins at …; ends at …. --`, `-- Boot 2f1c… --`, `-- Reboot --`.
fn is_journal_note(line: &[u8]) -> bool {
    let begins =
        [&b"-- Journal begins"[..], b"-- Logs begin", b"-- Boot ", b"-- Reboot --", b"-- No entries --"];
    begins.iter().any(|words| line.starts_with(words))
}

/// What a line of the kernel log means that was saved without its time.
fn bare(line: &[u8]) -> Option<EventKind> {
    let text = std::str::from_utf8(line).ok()?;
    // A file system's or a link's state may stand in any text; what names no device is left to others.
    meaning(text).filter(|kind| !matches!(kind, EventKind::DeviceError { device, .. } if device.is_empty()))
}

/// Whether another reader's output begins at the cursor.
fn is_other(lines: &mut Lines<'_>, import: &Import) -> bool {
    super::FAMILIES
        .iter()
        .map(|family| family.formats)
        .filter(|list| !std::ptr::eq(list.as_ptr(), FORMATS.as_ptr()))
        .flatten()
        .any(|format| (format.starts)(lines, &import.context))
}

/// One log, from its first line to the last that is its own.
#[derive(Default)]
struct Log {
    times: Times,
    grid: Grid,
    oom: oom::Reports,
    layout: Option<Layout>,
    is_kernel: bool,
    continued: u32,
}

fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let mut log = Log::default();
    let first = lines.number();
    lines.each(import, |lines, number, import| {
        let line = lines.line();
        if line.trim_ascii().is_empty() || is_journal_note(line) {
            return Took::Yes;
        }
        let Some(found) = head(line) else {
            return if log.takes_without_time(lines, number, import) { Took::Yes } else { Took::No };
        };
        let layout = found.layout;
        if number == first || log.layout.is_none_or(|known| known == layout) {
            log.layout = Some(layout);
            log.take(found, number, import);
            return Took::Yes;
        }
        // Another kind of line: it may be a row of some tool's table.
        if is_other(lines, import) {
            return Took::No;
        }
        log.layout = Some(layout);
        if let Some(found) = head(lines.line()) {
            log.take(found, number, import);
        }
        Took::Yes
    });
    log.finish(import);
}

impl Log {
    /// A line that begins with a time.
    fn take(&mut self, head: Head<'_>, line: u32, import: &mut Import) {
        self.continued = 0;
        self.is_kernel = head.is_kernel;
        let t = self.times.moment(head.stamp, import);
        let when = t.map_or(When::Fact, When::At);
        if t.is_none() {
            import
                .note("some times are not shown: they have no year and lie too far apart to be put in order, or are steps from a time that is not there");
        }
        if head.layout == Layout::Boot && matches!(head.stamp, Stamp::Day { .. }) {
            import.note("dmesg -H gives whole minutes and steps from them: times are up to a minute early");
        }
        let text = String::from_utf8_lossy(&head.text);
        if head.is_kernel {
            self.kernel(&text, head.priority, when, line, import);
        } else {
            let program = head.program.as_deref().map(String::from_utf8_lossy).unwrap_or_default();
            if let Some(session) = sessions::session(&program, &text) {
                import.event(when, line, session);
            }
            if let Some(failing) = smartd::failing(&program, &text) {
                import.event(when, line, failing);
            }
            if program.starts_with("bird") {
                import.format("BIRD log");
            }
        }
        // Of a ring buffer nobody knows what was overwritten: its rate says little.
        if let Some(t) = t.filter(|_| head.layout != Layout::Boot) {
            match head.program.as_deref() {
                Some(program) => self.grid.add(program, t, line, head.decimals),
                None => self.grid.add(import.context.file_name.as_bytes(), t, line, head.decimals),
            }
        }
    }

    fn kernel(&mut self, text: &str, priority: Option<u8>, when: When, line: u32, import: &mut Import) {
        import.format("kernel log");
        match meaning(text) {
            Some(kind @ EventKind::OomKill { .. }) => {
                let is_done = text.contains("Killed process ");
                self.oom.kill(import, when, line, kind, is_done);
            }
            Some(kind) => import.event(when, line, kind),
            None if self.oom.part(text) => {}
            None => {
                let priority = priority.unwrap_or(PRIORITY_UNKNOWN);
                import.event(when, line, EventKind::KernelLog { priority, text: kept(text) });
            }
        }
    }

    /// A line without a time: one of the kernel that was saved so, or more of the line before it.
    fn takes_without_time(&mut self, lines: &mut Lines<'_>, number: u32, import: &mut Import) -> bool {
        let Some(line) = lines.peek() else { return false };
        let is_indented = line.first().is_some_and(u8::is_ascii_whitespace);
        if (self.is_kernel || self.layout.is_none())
            && !is_indented
            && let Some(kind) = bare(line)
        {
            import.format("kernel log");
            self.is_kernel = true;
            let is_done = memchr::memmem::find(line, b"Killed process ").is_some();
            match kind {
                EventKind::OomKill { .. } => self.oom.kill(import, When::Fact, number, kind, is_done),
                kind => import.event(When::Fact, number, kind),
            }
            return true;
        }
        if self.layout.is_none() || self.continued >= CONTINUATION_MAX || context::take(line, import) {
            return false;
        }
        self.continued += 1;
        !is_other(lines, import)
    }

    fn finish(mut self, import: &mut Import) {
        self.oom.finish(import);
        self.grid.finish(import);
    }
}
