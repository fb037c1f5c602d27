//! The text of ftrace and `trace-cmd report`: how often each event came.
//!
//! ```text
//! # tracer: nop
//! #           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION
//!             curl-4242    [001] d..2.  1234.567890: sched_switch: prev_comm=curl prev_pid=4242 …
//!           <idle>-0       [000] 1234567.890123: irq_handler_entry: irq=24 name=virtio
//! ```

use crate::text::prelude::*;

use super::tally::{Clock, Tally};

/// See the module.
pub(super) const FORMAT: Format =
    Format::new("ftrace", "how often each trace event came, also from `trace-cmd report`", starts, read);

fn starts(lines: &mut Lines<'_>, _: &Context) -> bool {
    lines.at(|line| line.starts_with(b"# tracer: ") || event(line).is_some())
}

/// The time in nanoseconds and the name of the event.
fn event(line: &[u8]) -> Option<(i64, &[u8])> {
    // The name of a task may hold anything; the CPU in brackets comes after its id.
    let near = line.get(..line.len().min(82))?;
    let is_cpu = |at: &usize| {
        matches!(at.checked_sub(1).and_then(|before| near.get(before..at + 2)), Some([b' ', _, b'0'..=b'9']))
    };
    let open = memchr::memchr_iter(b'[', near).find(is_cpu)? - 1;
    let task = line.get(..open)?.trim_ascii();
    // `comm-pid`, and with `-t` of trace-cmd or `record-tgid` the process in parentheses.
    let task = match task.strip_suffix(b")") {
        Some(inner) => inner.get(..memchr::memrchr(b'(', inner)?)?.trim_ascii_end(),
        None => task,
    };
    let (_, pid) = task.split_at_checked(memchr::memrchr(b'-', task)? + 1)?;
    integer(pid)?;
    let mut list = words(line.get(open + 2..)?);
    integer(list.next()?.strip_suffix(b"]")?)?;
    let mut time = list.next()?;
    if seconds(time).is_none() {
        // Flags of interrupts and preemption.
        time = Some(time).filter(|w| w.len() <= 8).and_then(|_| list.next())?;
    }
    let t = seconds(time)?;
    let word = list.next()?;
    // The function tracer prints `vfs_read <-ksys_read`.
    let name = match word.strip_suffix(b":") {
        Some(name) => name,
        None => list.next().filter(|caller| caller.starts_with(b"<-")).map(|_| word)?,
    };
    let good = name.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b':' | b'.' | b'-'));
    (good && !name.is_empty() && name.len() <= 100).then_some((t, name))
}

/// `1234.567890:` in nanoseconds.
pub(super) fn seconds(word: &[u8]) -> Option<i64> {
    let word = word.strip_suffix(b":")?;
    let dot = memchr::memchr(b'.', word)?;
    let fraction = word.get(dot + 1..)?;
    let whole = i64::try_from(integer(word.get(..dot)?)?).ok().filter(|s| *s < 4_000_000_000)?;
    let unit = 10_i64.checked_pow(u32::try_from(9_usize.checked_sub(fraction.len())?).ok()?)?;
    Some(whole * SECOND + integer(fraction)? as i64 * unit)
}

fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let mut tally = Tally::new(&["call.calls"]);
    let mut key = Vec::new();
    lines.each(import, |lines, number, import| {
        let line = lines.line();
        if let Some((t, name)) = event(line) {
            tally.tick(Clock::Boot, t, number, import);
            key.clear();
            key.extend_from_slice(b"trace:");
            key.extend_from_slice(name.rsplit(|b| *b == b':').next().unwrap_or(name));
            let at = tally.find(&key);
            tally.count(at, number).n += 1;
        } else if !line.starts_with(b"#") && !line.trim_ascii().is_empty() && !is_extra(line) {
            return Took::unread_if(
                (1..AHEAD_MAX).any(|n| lines.ahead(n).is_some_and(|l| event(l).is_some())),
            );
        } else if line.is_empty() && !(1..4).any(|n| lines.ahead(n).is_some_and(|l| event(l).is_some())) {
            return Took::No;
        }
        Took::Yes
    });
    tally.finish(import);
}

/// Stacks, lost events and the head of `trace-cmd report`.
fn is_extra(line: &[u8]) -> bool {
    line.trim_ascii_start().starts_with(b"=>")
        || line.ends_with(b"<stack trace>")
        || line.starts_with(b"CPU:")
        || line.starts_with(b"cpus=")
        || line.starts_with(b"CPU ")
}
