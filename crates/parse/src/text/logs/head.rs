//! What stands before the text of a line of a log: the time, and who wrote it.
//!
//! ```text
//! [13097.596333] Memory cgroup out of memory: …                       dmesg
//! kern  :err   : [13097.596333] Memory cgroup out of memory: …        dmesg -x
//! <3>[13097.596333] Memory cgroup out of memory: …                    dmesg -r
//! Nov 21 13:08:00 web-17 kernel: [13097.596333] Memory cgroup …       syslog
//! 2026-11-21T13:08:00+0000 web-17 sshd[812]: Accepted publickey …     journalctl -o short-iso
//! 08:35:42.981474+01:00 lb-101 bird: BGP1: State changed to stop
//! 2026-11-21 13:31:48.722 <TRACE> bfd1: Session to 10.99.0.2 expired  BIRD's own file
//! 10.0.0.7 - - [21/Nov/2026:13:08:00 +0000] "GET / HTTP/1.1" 200 17   an access log
//! ```

use std::borrow::Cow;

use super::json;
use super::stamp::{Layout, Stamp, Stamped, bracketed, stamped};
use crate::text::number::{integer, number, words};

/// How far from the start of a line a time is looked for.
const NEAR: usize = 160;
/// Words that may stand before a time that is not marked by a bracket or an equals sign.
const WORDS_BEFORE_MAX: usize = 3;
/// The name of a program; longer words are none.
const PROGRAM_BYTES_MAX: usize = 48;

/// The front of a line, and its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head<'a> {
    pub stamp: Stamp,
    pub layout: Layout,
    pub decimals: usize,
    /// Who wrote it; `None` where only the file is known.
    pub program: Option<Cow<'a, [u8]>>,
    /// Whether the kernel did.
    pub is_kernel: bool,
    /// 0 emergency … 7 debug, where the line says.
    pub priority: Option<u8>,
    pub text: Cow<'a, [u8]>,
}

/// Takes a line apart; `None` where it has no time at or near its start.
pub fn head(line: &[u8]) -> Option<Head<'_>> {
    if line.first() == Some(&b'{') {
        return json::head(line);
    }
    let (mut priority, mut facility, mut body) = (None, None, line);
    if let Some((number, rest)) = raw_priority(line) {
        (priority, facility, body) = (Some(number & 7), Some(number >> 3), rest);
    } else if let Some((is_kern, level, rest)) = decoded_priority(line) {
        (priority, facility, body) = (Some(level), Some(u8::from(!is_kern)), rest);
    }
    // RFC 5424 has its version there.
    let versioned = body.strip_prefix(b"1 ").filter(|_| priority.is_some()).unwrap_or(body);
    let mut head = if let Some(found) = bracketed(versioned) {
        of_bracket(found, facility)
    } else if let Some(found) = stamped(versioned) {
        of_line(found, versioned.len() < body.len())?
    } else {
        inside(body)?
    };
    head.priority = priority;
    (!head.text.is_empty()).then_some(head)
}

/// `<30>`.
fn raw_priority(line: &[u8]) -> Option<(u8, &[u8])> {
    let rest = line.strip_prefix(b"<")?;
    let end = rest.get(..rest.len().min(4))?.iter().position(|b| *b == b'>')?;
    let number = u8::try_from(integer(rest.get(..end)?)?).ok().filter(|n| *n < 192)?;
    Some((number, rest.get(end + 1..)?))
}

/// `kern  :err   : `; whether it is the kernel's, and the level.
fn decoded_priority(line: &[u8]) -> Option<(bool, u8, &[u8])> {
    const LEVELS: [&[u8]; 8] = [b"emerg", b"alert", b"crit", b"err", b"warn", b"notice", b"info", b"debug"];
    let (facility, rest) = line.split_at_checked(6)?;
    let facility = facility.trim_ascii_end();
    if facility.is_empty() || !facility.iter().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit()) {
        return None;
    }
    let rest = rest.strip_prefix(b":")?;
    let colon = rest.get(..rest.len().min(8))?.iter().position(|b| *b == b':')?;
    let level = LEVELS.iter().position(|name| rest.get(..colon).is_some_and(|l| l.trim_ascii() == *name))?;
    Some((facility == b"kern", level as u8, rest.get(colon + 1..)?.trim_ascii_start()))
}

fn of_bracket<'a>(found: Stamped<'a>, facility: Option<u8>) -> Head<'a> {
    const APACHE: [&[u8]; 8] =
        [b"[error]", b"[warn]", b"[notice]", b"[info]", b"[debug]", b"[crit]", b"[alert]", b"[emerg]"];
    let mut text = found.rest.trim_ascii_start();
    let is_ctime = matches!(found.stamp, Stamp::At(_)) && found.decimals == 0 && found.rest.starts_with(b" ");
    // Of times in brackets, `dmesg -T` has the weekday; a web server's error log has its level behind it.
    let is_kernel = found.layout == Layout::Boot
        || (is_ctime && found.weekday && !APACHE.iter().any(|level| text.starts_with(level)));
    let is_kernel = is_kernel && facility.is_none_or(|f| f == 0);
    if is_kernel {
        text = without_caller(text);
    }
    // `journalctl -o short-monotonic` has the host and the program.
    if let Some(Tagged { program, message, has_pid }) = host_and_program(text).filter(|_| is_kernel)
        && found.layout == Layout::Boot
        && (has_pid || program == b"kernel")
    {
        return head_of(found, Some(program.into()), program == b"kernel", message);
    }
    let program = is_kernel.then_some(Cow::Borrowed(&b"kernel"[..]));
    head_of(found, program, is_kernel, text)
}

/// Kernels built with `CONFIG_PRINTK_CALLER` name the thread or the CPU: `[   T1] `, `[    C0] `.
fn without_caller(text: &[u8]) -> &[u8] {
    let caller = || {
        let rest = text.strip_prefix(b"[")?;
        let end = rest.get(..rest.len().min(12))?.iter().position(|b| *b == b']')?;
        let word = rest.get(..end)?.trim_ascii();
        let digits = word.strip_prefix(b"T").or_else(|| word.strip_prefix(b"C"))?;
        integer(digits)?;
        rest.get(end + 1..)
    };
    caller().map_or(text, <[u8]>::trim_ascii_start)
}

fn head_of<'a>(
    found: Stamped<'a>,
    program: Option<Cow<'a, [u8]>>,
    is_kernel: bool,
    text: &'a [u8],
) -> Head<'a> {
    let text = text.trim_ascii_end().into();
    let Stamped { stamp, layout, decimals, .. } = found;
    Head { stamp, layout, decimals, program, is_kernel, priority: None, text }
}

fn of_line<'a>(found: Stamped<'a>, rfc5424: bool) -> Option<Head<'a>> {
    let text = found.rest.trim_ascii_start();
    let bare = matches!(found.layout, Layout::Clock | Layout::Epoch);
    if text.is_empty() || (bare && is_table(text)) || is_list_of_numbers(text) {
        return None;
    }
    if rfc5424 {
        // Host, program, process id, kind of message, structured data.
        let mut w = words(text);
        let program = w.nth(1)?;
        let (_, _) = (w.next()?, w.next()?);
        let message = without_data(w.rest());
        return Some(head_of(found, Some(program.into()), program == b"kernel", message));
    }
    // `dmesg --time-format iso`: six digits behind a comma.
    if found.layout == Layout::IsoT && found.decimals == 6 && found.zone && found.comma {
        return Some(head_of(found, Some(b"kernel"[..].into()), true, without_caller(text)));
    }
    if let Some(message) = bird_level(text) {
        return Some(head_of(found, Some(b"bird"[..].into()), false, message));
    }
    let may_have_host = match found.layout {
        Layout::Syslog | Layout::IsoT | Layout::Weekday => true,
        Layout::Clock | Layout::Epoch => found.zone,
        _ => false,
    };
    if may_have_host && let Some(Tagged { program, message, .. }) = host_and_program(text) {
        let is_kernel = program == b"kernel";
        let message = if is_kernel { without_boot(message) } else { message };
        return Some(head_of(found, Some(program.into()), is_kernel, message));
    }
    let alone = program_word(text).filter(|tag| tag.has_pid || found.layout == Layout::Syslog);
    if let Some(Tagged { program, message, .. }) = alone {
        let is_kernel = program == b"kernel" && found.layout == Layout::Syslog;
        let message = if is_kernel { without_boot(message) } else { message };
        return Some(head_of(found, Some(program.into()), is_kernel, message));
    }
    Some(head_of(found, None, false, text))
}

/// The text behind the structured data of RFC 5424.
fn without_data(text: &[u8]) -> &[u8] {
    let message = match text {
        [b'-', message @ ..] => Some(message),
        [b'[', ..] => memchr::memmem::find(text, b"] ").and_then(|at| text.get(at + 2..)),
        _ => None,
    };
    message.unwrap_or(text).trim_ascii_start()
}

/// Rows of numbers below a time of day belong to some tool's table, not to a log.
fn is_table(text: &[u8]) -> bool {
    let (mut numbers, mut others) = (0, 0);
    for word in words(text).take(16) {
        if number(word).is_some() { numbers += 1 } else { others += 1 }
    }
    let has_word = text.windows(3).any(|w| w.iter().all(u8::is_ascii_alphabetic));
    !has_word || numbers > others
}

/// Behind a time nothing but numbers between commas or semicolons: a row of a table that somebody exported.
fn is_list_of_numbers(text: &[u8]) -> bool {
    let mark = if text.contains(&b';') { b';' } else { b',' };
    let (mut numbers, mut others) = (0, 0);
    let text = text.strip_prefix(&[mark]).unwrap_or(text);
    for cell in text.split(|b| *b == mark).take(64).map(<[u8]>::trim_ascii).filter(|cell| !cell.is_empty()) {
        if number(cell).is_some() { numbers += 1 } else { others += 1 }
    }
    numbers >= 2 && numbers > 2 * others
}

/// `<TRACE> BGP1: …`, as BIRD writes into its own file.
fn bird_level(text: &[u8]) -> Option<&[u8]> {
    const LEVELS: [&[u8]; 9] =
        [b"TRACE", b"INFO", b"WARN", b"ERR", b"FATAL", b"AUTH", b"RMT", b"BUG", b"DBG"];
    let rest = text.strip_prefix(b"<")?;
    let end = rest.get(..rest.len().min(8))?.iter().position(|b| *b == b'>')?;
    let (level, rest) = rest.split_at_checked(end)?;
    LEVELS.contains(&level).then(|| rest.get(1..).map(<[u8]>::trim_ascii_start))?
}

/// Who wrote a line, and what.
struct Tagged<'a> {
    program: &'a [u8],
    message: &'a [u8],
    has_pid: bool,
}

/// `host program[pid]: text`.
fn host_and_program(text: &[u8]) -> Option<Tagged<'_>> {
    let mut w = words(text);
    let host = w.next()?;
    let is_host = host.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b':'))
        && host.last() != Some(&b':');
    program_word(w.rest()).filter(|_| is_host)
}

/// `program[pid]: ` or `program: `; the program, what follows, and whether there was a process id. Some programs have
/// a blank in their tag: none is known here.
fn program_word(text: &[u8]) -> Option<Tagged<'_>> {
    let colon = text.get(..text.len().min(PROGRAM_BYTES_MAX + 12))?.windows(2).position(|w| w == b": ");
    let colon = match colon {
        Some(at) => at,
        None if text.last() == Some(&b':') => text.len() - 1,
        None => return None,
    };
    let (tag, message) = text.split_at_checked(colon)?;
    let message = message.get(1..)?.trim_ascii_start();
    let (name, has_pid) = match tag.strip_suffix(b"]") {
        Some(tag) => {
            let at = tag.iter().rposition(|b| *b == b'[')?;
            integer(tag.get(at + 1..)?)?;
            (tag.get(..at)?, true)
        }
        None => (tag, false),
    };
    let is_name = (1..=PROGRAM_BYTES_MAX).contains(&name.len())
        && name.iter().any(u8::is_ascii_alphabetic)
        && name.iter().all(|b| {
            b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'/' | b'@' | b'(' | b')' | b'+')
        });
    is_name.then_some(Tagged { program: name, message, has_pid })
}

/// A kernel's line in syslog often keeps its own time.
fn without_boot(text: &[u8]) -> &[u8] {
    let found = bracketed(text).filter(|s| matches!(s.stamp, Stamp::Boot(_)));
    without_caller(found.map_or(text, |s| s.rest).trim_ascii_start())
}

/// A time after a bracket or an equals sign, or behind a few words.
fn inside(line: &[u8]) -> Option<Head<'_>> {
    let near = line.get(..line.len().min(NEAR))?;
    // Asked for every line: a time of day has a colon between digits, at most a date behind where it begins.
    let is_digit = |at: usize| line.get(at).is_some_and(u8::is_ascii_digit);
    let far = line.get(..line.len().min(NEAR + 64))?;
    if !memchr::memchr_iter(b':', far).any(|at| is_digit(at + 1) && at.checked_sub(1).is_some_and(is_digit)) {
        return None;
    }
    let mut before = 0;
    for (i, pair) in near.windows(2).enumerate() {
        let [mark, next] = pair else { continue };
        let marked = matches!(mark, b'[' | b'=' | b'"' | b'(');
        if *mark == b' ' {
            before += 1;
        }
        let is_candidate = match next {
            b'0'..=b'9' => marked || (*mark == b' ' && before <= WORDS_BEFORE_MAX),
            b'A'..=b'Z' => *mark == b'[',
            _ => false,
        };
        // `Modify: 2026-…` of stat is a fact, not a line of a log.
        if !is_candidate || (*mark == b' ' && i > 0 && near.get(i - 1) == Some(&b':')) {
            continue;
        }
        let Some(found) = stamped(line.get(i + 1..)?) else { continue };
        let dated = matches!(found.layout, Layout::Iso | Layout::IsoT | Layout::DayMonth | Layout::Weekday);
        if !dated || !matches!(found.stamp, Stamp::At(_)) {
            continue;
        }
        let found = Stamped { layout: Layout::Inside, ..found };
        return Some(head_of(found, None, false, line));
    }
    None
}
