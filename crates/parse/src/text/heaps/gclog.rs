//! Logs of the garbage collectors of the JVM: the unified log of JDK 9 and later, and that of JDK 8.
//!
//! ```text
//! [2026-11-21T13:35:35.235+0000][0.371s][info][gc       ] GC(1) Pause Young (Normal) (G1 Evacuation Pause) 17M->2M(128M) 109.152ms
//! [0.372s][info][safepoint] Safepoint "G1CollectForAllocation", Time since last: 1 ns, …, Total: 109230864 ns
//! [1.2s][info][safepoint] Total time for which application threads were stopped: 0.1092 seconds, Stopping threads took: 0.0001 seconds
//! 2016-09-20T10:53:32.123+0200: 12.345: [GC (GCLocker Initiated GC) [PSYoungGen: 3K->1K(9K)] 9K->7K(99K), 0.1234567 secs] [Times: user=0.1 sys=0.0, real=0.12 secs]
//! 12.345: [GC pause (G1 Evacuation Pause) (young), 0.2123456 secs]
//! ```
//!
//! Pauses of at least a tenth of a second become events. A line that says how long all threads stood is told only as far
//! as the collection before it does not account for it.

use mitra_model::EventKind;

use super::jvm::in_sequence;
use crate::text::prelude::*;

/// See the module.
pub const FORMAT: Format = Format::new(
    "JVM garbage collection log",
    "pauses and heap sizes, of JDK 8 and of the unified log",
    starts,
    read,
);

/// Shorter pauses are what a collector is for.
const PAUSE_MIN_S: f64 = 0.1;
/// The words of a pause that are kept.
const CALL_MAX: usize = 120;

/// One line of a log.
struct Entry<'a> {
    when: Option<When>,
    /// Seconds since the JVM began.
    uptime: Option<f64>,
    /// What it says.
    text: &'a [u8],
}

/// A line of one of the two logs.
fn starts(lines: &mut Lines<'_>, _: &Context) -> bool {
    // JDK 8 says first who it is.
    let banner = |l: &[u8]| l.starts_with(b"OpenJDK ") || l.starts_with(b"Java HotSpot");
    lines.at(is_log) || (lines.at(banner) && lines.soon(4, is_log))
}

fn is_log(line: &[u8]) -> bool {
    unified(line).is_some() || classic(line).is_some()
}

/// `[time][uptime][level][tags] text`: at least one bracket with a time, one with a tag of the collector.
fn unified(line: &[u8]) -> Option<Entry<'_>> {
    const TAGS: [&[u8]; 2] = [b"gc", b"safepoint"];
    let mut rest = line;
    let (mut when, mut uptime, mut tagged) = (None, None, false);
    for _ in 0..8 {
        let Some(inside) = rest.strip_prefix(b"[") else { break };
        let end = memchr::memchr(b']', inside)?;
        let word = inside.get(..end)?.trim_ascii();
        if let Some(t) = clock::iso(word) {
            when = Some(When::At(t));
        } else if let Some((value, unit)) = leading(word) {
            match unit {
                b"s" => uptime = Some(value),
                b"ms" => uptime = Some(value / 1e3),
                b"ns" => uptime = Some(value / 1e9),
                _ => {}
            }
        } else {
            tagged |= word.split(|b| *b == b',').any(|tag| TAGS.contains(&tag));
        }
        rest = inside.get(end + 1..)?;
    }
    (tagged && rest.first() == Some(&b' ')).then(|| Entry { when, uptime, text: rest.trim_ascii() })
}

/// `2016-09-20T10:53:32.123+0200: 12.345: [GC …`, and what JDK 8 prints beside.
fn classic(line: &[u8]) -> Option<Entry<'_>> {
    let mut rest = line.trim_ascii_start();
    let mut when = None;
    let mut uptime = None;
    if rest.first().is_some_and(u8::is_ascii_digit)
        && let Some(at) = find!(rest, b": ").filter(|at| (19..=32).contains(at))
        && let Some(t) = rest.get(..at).and_then(clock::iso)
    {
        when = Some(When::At(t));
        rest = rest.get(at + 2..)?;
    }
    if let Some((value, after)) = leading(rest)
        && let Some(after) = after.strip_prefix(b": ")
    {
        uptime = Some(value);
        rest = after;
    }
    // With PrintGCID.
    if let Some(id) = rest.strip_prefix(b"#")
        && let Some(at) = find!(id, b": ").filter(|at| id.get(..*at).and_then(integer).is_some())
    {
        rest = id.get(at + 2..)?;
    }
    let known = begins(rest, &[b"[GC", b"[Full GC", b"[CMS"]) && (has(rest, b" secs]") || is_open(rest));
    let stopped = rest.starts_with(STOPPED);
    (known || stopped).then_some(Entry { when, uptime, text: rest })
}

/// `[GC (Allocation Failure)`, whose end stands on a later line: the ages of objects come between.
fn is_open(rest: &[u8]) -> bool {
    let rest = rest.trim_ascii_end();
    memchr::memchr_iter(b'[', rest).count() > memchr::memchr_iter(b']', rest).count()
        && (rest.ends_with(b")") || rest.ends_with(b"[ParNew") || rest.ends_with(b"[DefNew"))
}

/// The end of such a collection: `: 3K->1K(9K), 0.0123 secs] 9K->7K(99K), 0.0124 secs] [Times: …`.
fn closing(line: &[u8]) -> Option<f64> {
    let line = line.trim_ascii();
    if !begins(line, &[b": ", b", ", b"[PSYoungGen"]) && !line.first()?.is_ascii_digit() {
        return None;
    }
    let own = line.get(..memchr::memmem::find(line, b" [Times:").unwrap_or(line.len()))?;
    let head = own.get(..memchr::memmem::rfind(own, b" secs]")?)?;
    let (seconds, rest) = leading(head.get(memchr::memmem::rfind(head, b", ")? + 2..)?)?;
    rest.is_empty().then_some(seconds)
}

const STOPPED: &[u8] = b"Total time for which application threads were stopped: ";

/// Reads a log.
fn read(lines: &mut Lines<'_>, import: &mut Import) {
    // What the collection before accounts for, until all threads are said to have stood.
    let mut collected = 0.0;
    let mut open: Option<(When, String, u32)> = None;
    lines.each(import, |lines, n, import| {
        let line = lines.line();
        if let Some((when, call, at)) = open.clone() {
            if let Some(seconds) = closing(line) {
                collected += seconds;
                pause(import, when, at, seconds, &call);
                open = None;
                return Took::Yes;
            }
            if is_log(line) {
                open = None;
            } else if line.starts_with(b"Desired survivor size") || line.starts_with(b"- age") {
                return Took::Yes;
            }
        }
        let Some(entry) = unified(line).or_else(|| classic(line)) else {
            return if is_detail(line) { Took::Yes } else { Took::unread_if(lines.soon(4, is_log)) };
        };
        let when = entry.when.or_else(|| entry.uptime.map(|s| in_sequence(import, s)));
        let when = when.unwrap_or_else(|| import.now());
        let said = entry.text;
        if stopped(said).is_some() || collection(said).is_some() {
            // That all pauses are short is something to know.
            import.has_read();
        }
        if let Some(seconds) = stopped(said) {
            pause(import, when, n, seconds - collected, "stopped at a safepoint beside the collection");
            collected = 0.0;
        } else if let Some((call, seconds)) = collection(said) {
            collected += seconds;
            pause(import, when, n, seconds, &call);
        } else if is_open(said) && said.starts_with(b"[") {
            open = Some((when, called(said.get(1..).unwrap_or_default()), n));
        } else if has(said, b"GCLocker") || has(said, b"GC locker") {
            import.note(format!("line {n}: {}", text(said.get(..CALL_MAX).unwrap_or(said))));
        }
        Took::Yes
    });
}

/// Lines of a log of JDK 8 that go with the one above, the header of the log, details of G1.
fn is_detail(line: &[u8]) -> bool {
    const HEADS: &[&[u8]] = list!(
        "[|Heap|{Heap before|}|OpenJDK |Java HotSpot|Memory: |CommandLine flags:|Application time:|PSYoungGen|\
         ParOldGen|Desired survivor size|- age ",
        b'|'
    );
    let line = line.trim_ascii();
    line.is_empty() || begins(line, HEADS)
}

/// How long all threads stood.
fn stopped(text: &[u8]) -> Option<f64> {
    if let Some(rest) = text.strip_prefix(STOPPED) {
        return leading(rest).map(|(v, _)| v);
    }
    text.strip_prefix(b"Safepoint ")?;
    let at = memchr::memmem::rfind(text, b", Total: ")?;
    let (value, unit) = leading(text.get(at + 9..)?)?;
    unit.starts_with(b" ns").then_some(value / 1e9)
}

/// A collection that stops all threads: its words and its seconds.
fn collection(text: &[u8]) -> Option<(String, f64)> {
    // `GC(1) Pause Young (Normal) (G1 Evacuation Pause) 17M->2M(128M) 109.152ms`.
    if let Some(rest) = text.strip_prefix(b"GC(") {
        let at = memchr::memchr(b')', rest)?;
        let rest = rest.get(at + 1..)?.trim_ascii();
        if !rest.starts_with(b"Pause") {
            return None;
        }
        let at = memchr::memrchr(b' ', rest)?;
        let (value, unit) = leading(rest.get(at + 1..)?)?;
        if unit != b"ms" {
            return None;
        }
        return Some((called(rest.get(..at)?), value / 1e3));
    }
    // `[GC (Allocation Failure) … 9K->7K(99K), 0.1234567 secs] [Times: …`.
    let times = memchr::memmem::find(text, b" [Times:").unwrap_or(text.len());
    let own = text.get(..times)?;
    let inside = own.strip_prefix(b"[")?;
    if inside.starts_with(b"GC concurrent") || inside.starts_with(b"CMS-concurrent") {
        return None;
    }
    let end = memchr::memmem::rfind(own, b" secs]")?;
    let head = own.get(..end)?;
    let from = memchr::memmem::rfind(head, b", ")?;
    let (seconds, rest) = leading(head.get(from + 2..)?)?;
    if !rest.is_empty() {
        return None;
    }
    Some((called(inside), seconds))
}

/// The words up to the sizes: `GC Pause Young (Normal) (G1 Evacuation Pause)`.
fn called(text_of: &[u8]) -> String {
    let end = memchr::memmem::find(text_of, b"->").unwrap_or(text_of.len());
    let words = text_of.get(..end).unwrap_or(text_of);
    // The size before the arrow, the generation in brackets, a comma before the time.
    let end = [memchr::memchr(b'[', words), memchr::memchr(b',', words)].into_iter().flatten().min();
    let words = words.get(..end.unwrap_or(words.len())).unwrap_or(words).trim_ascii_end();
    let cut = match memchr::memrchr(b' ', words) {
        Some(at) if words.get(at + 1).is_some_and(u8::is_ascii_digit) => words.get(..at).unwrap_or(words),
        _ => words,
    };
    let cut = text(cut.trim_ascii());
    let cut: String = cut.chars().take(CALL_MAX).collect();
    if cut.starts_with("GC") || cut.starts_with("Full GC") { cut } else { format!("GC {cut}") }
}

/// Makes an event of a pause that is not short.
pub(super) fn pause(import: &mut Import, when: When, line: u32, seconds: f64, call: &str) {
    if seconds >= PAUSE_MIN_S {
        let (comm, call) = ("java".to_owned(), call.to_owned());
        import.event(when, line, EventKind::Pause { pid: 0, comm, seconds, call, inside: true });
    }
}
