//! The flight recorder of the JVM: `jfr summary` and `jfr print --events jdk.GarbageCollection`.
//!
//! ```text
//!  Version: 2.1
//!  Chunks: 1
//!  Start: 2026-11-28 23:52:36 (UTC)
//!  Duration: 1 s
//!
//!  Event Type                                   Count  Size (bytes)
//! ==================================================================
//!  jdk.GarbageCollection                           36           693
//! ```
//! ```text
//! jdk.GarbageCollection {
//!   startTime = 23:52:37.157 (2026-11-28)
//!   duration = 7.96 ms
//!   gcId = 2
//!   name = "DefNew"
//!   cause = "Allocation Failure"
//!   sumOfPauses = 7.96 ms
//!   longestPause = 7.96 ms
//! }
//! ```
//!
//! Before JDK 19 the time has no date. A collection that works beside the program lasts longer than its pauses.

use super::gclog::pause;
use crate::text::bench::run::seconds;
use crate::text::prelude::*;

/// `jfr summary`.
pub const SUMMARY: Format = Format::new(
    "jfr summary",
    "how often what was recorded, as a note",
    |lines, _| {
        lines.at(|line| line.starts_with(b" Version: "))
            && lines.soon(4, |line| line.starts_with(b" Start: "))
    },
    summary,
);
/// `jfr print`.
pub const PRINT: Format = Format::new(
    "jfr print",
    "pauses of collections, of `--events jdk.GarbageCollection`",
    |lines, _| {
        lines.peek().and_then(block).is_some() && lines.soon(1, |line| line.starts_with(b"  startTime = "))
    },
    print,
);

/// Events that tell what a program waited for or did, and that events were lost.
const TOLD: &[&[u8]] = list!(
    "jdk.GarbageCollection jdk.JavaMonitorEnter jdk.JavaMonitorWait jdk.ThreadPark jdk.ThreadSleep jdk.SocketRead
     jdk.SocketWrite jdk.FileRead jdk.FileWrite jdk.JavaErrorThrow jdk.ExecutionSample jdk.DataLoss"
);
/// Kinds of events of one recording.
const KINDS_MAX: u32 = 10_000;

fn summary(lines: &mut Lines<'_>, import: &mut Import) {
    let (mut start, mut duration) = (String::new(), String::new());
    let mut counts: Vec<(String, u64)> = Vec::new();
    let last = lines.number().saturating_add(KINDS_MAX);
    lines.each(import, |lines, at, _| {
        let line = lines.line();
        if let Some(value) = line.strip_prefix(b" Start: ") {
            start = text(value.trim_ascii());
        } else if let Some(value) = line.strip_prefix(b" Duration: ") {
            duration = text(value.trim_ascii());
        } else if let Some((kind, count)) = counted(line) {
            if TOLD.contains(&kind) && count > 0 {
                counts.push((text(kind), count));
            }
        } else if !begins(line, &[b" Version: ", b" Chunks: ", b" Size: ", b" Event Type ", b"====="]) {
            let is_blank = line.trim_ascii().is_empty();
            let goes_on = is_blank && lines.soon(1, |next| next.starts_with(b" Event Type "));
            return if goes_on { Took::Yes } else { Took::No };
        }
        if at < last { Took::Yes } else { Took::Last }
    });
    if start.is_empty() || duration.is_empty() {
        return;
    }
    import.has_read();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let told: Vec<String> = counts.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    let told = if told.is_empty() { String::new() } else { format!(": {}", told.join(", ")) };
    import.note(format!("a recording of JFR of {duration} from {start}{told}"));
}

/// ` jdk.GarbageCollection    36   693`: the kind of events, and how many.
fn counted(line: &[u8]) -> Option<(&[u8], u64)> {
    let mut list = words(line.strip_prefix(b" ")?);
    let kind = list.next().filter(|kind| kind.contains(&b'.'))?;
    let count = integer(list.next()?)?;
    integer(list.next()?)?;
    list.next().is_none().then_some((kind, count))
}

/// The kind of the event in `jdk.GarbageCollection {`.
fn block(line: &[u8]) -> Option<&[u8]> {
    let kind = line.strip_suffix(b" {")?;
    let is_name = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'$');
    (kind.contains(&b'.') && kind.iter().all(is_name)).then_some(kind)
}

/// A field of an event, two blanks in; deeper ones are of what it holds.
fn field(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let rest = line.strip_prefix(b"  ").filter(|rest| !rest.starts_with(b" "))?;
    let at = memchr::memmem::find(rest, b" = ")?;
    Some((rest.get(..at)?, rest.get(at + 3..)?.trim_ascii()))
}

/// `23:52:37.157`, `23:52:37.157 (2026-11-28)`.
fn start_time(value: &[u8]) -> Option<When> {
    let mut list = words(value);
    let clock = clock::time_of_day(list.next()?)?;
    let Some(date) = list.next() else { return Some(When::Clock(clock)) };
    let day = clock::date(date.strip_prefix(b"(")?.strip_suffix(b")")?)?;
    Some(When::At(day * DAY + clock))
}

/// A text without its quotation marks.
fn unquoted(value: &[u8]) -> String {
    text(value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value))
}

#[derive(Default)]
struct Collection {
    line: u32,
    when: Option<When>,
    name: String,
    cause: String,
    sum_s: Option<f64>,
    longest_s: Option<f64>,
}

/// What all collections were.
#[derive(Default)]
struct Sums {
    count: u32,
    sum_s: f64,
    longest_s: f64,
}

impl Collection {
    fn take(&mut self, key: &[u8], value: &[u8]) {
        match key {
            b"startTime" => self.when = start_time(value),
            b"name" => self.name = unquoted(value),
            b"cause" => self.cause = unquoted(value),
            b"sumOfPauses" => self.sum_s = seconds(value).filter(|s| s.is_finite()),
            b"longestPause" => self.longest_s = seconds(value).filter(|s| s.is_finite()),
            _ => {}
        }
    }

    fn put(self, sums: &mut Sums, import: &mut Import) {
        let Some(longest_s) = self.longest_s else { return };
        import.has_read();
        sums.count = sums.count.saturating_add(1);
        sums.sum_s += self.sum_s.unwrap_or(longest_s);
        sums.longest_s = sums.longest_s.max(longest_s);
        let call = format!("GC {} ({})", self.name, self.cause);
        let when = self.when.unwrap_or_else(|| import.now());
        pause(import, when, self.line, longest_s, &call);
    }
}

fn print(lines: &mut Lines<'_>, import: &mut Import) {
    let mut sums = Sums::default();
    let mut open: Option<Collection> = None;
    let mut others = 0_u64;
    lines.each(import, |lines, at, import| {
        let line = lines.line();
        if let Some(kind) = block(line) {
            // One without an end is damaged.
            open = None;
            if kind == b"jdk.GarbageCollection" {
                open = Some(Collection { line: at, ..Collection::default() });
            } else {
                others += 1;
            }
        } else if line == b"}" {
            if let Some(collection) = open.take() {
                collection.put(&mut sums, import);
            }
        } else if let Some((key, value)) = field(line) {
            if let Some(collection) = &mut open {
                collection.take(key, value);
            }
        } else if line.trim_ascii().is_empty() {
            return if lines.soon(1, |next| block(next).is_some()) { Took::Yes } else { Took::No };
        } else if !line.starts_with(b"  ") {
            return Took::unread_if(lines.soon(1, |next| field(next).is_some() || next == b"}"));
        }
        Took::Yes
    });
    if sums.count > 0 {
        import.note(format!(
            "jfr print: {} collections stopped the program for {:.3} s in all, {:.3} s at most",
            sums.count, sums.sum_s, sums.longest_s
        ));
    }
    if others > 0 {
        import.note(format!("jfr print: {others} events of other kinds were passed over"));
    }
}
