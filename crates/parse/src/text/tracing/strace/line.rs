//! One line of strace, cut into its parts.
//!
//! ```text
//! 12:41:21.913140 read(932, "\0\0"..., 26) = 26 <0.000011>
//! [pid  4242] access("/home/me/.pki/.1_dOeSnotExist_.db", F_OK) = -1 ENOENT (No such file or directory)
//! 4242  1474363244.913124 futex(0x7f1, FUTEX_WAIT, 1, NULL <unfinished ...>
//! 4242<curl> 12:41:21 (+     0.000031) <... futex resumed>) = 0
//!      0.000031 --- SIGCHLD {si_signo=SIGCHLD, si_code=CLD_EXITED, si_pid=4243} ---
//! +++ exited with 0 +++
//! ```

use crate::text::prelude::*;

/// What a time stamp counts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stamp {
    /// Midnight: `-t`, `-tt`.
    Clock,
    /// 1970: `-ttt`.
    Epoch,
    /// The line before: `-r`.
    Since,
}

/// What stands before the call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head<'a> {
    /// The thread; 0 where the line names none.
    pub pid: u32,
    /// Its name, with `-Y`.
    pub comm: &'a [u8],
    /// The time and what it counts from.
    pub time: Option<(Stamp, i64)>,
    /// Whether the time has a fraction of a second.
    pub fine: bool,
}

/// What the line says happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Body<'a> {
    /// A call, or its beginning: the name and what follows the parenthesis.
    Call(&'a [u8], &'a [u8]),
    /// The end of a call that began on another line.
    Resumed(&'a [u8], &'a [u8]),
    /// A signal arrived.
    Signal,
    /// The thread is stopped, or is gone.
    Gone,
    /// The tracer's own word.
    Tracer,
}

/// How a call went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// It returned.
    Done,
    /// Its end is on another line.
    Unfinished,
    /// The line was cut before the result.
    Cut,
}

/// The result of a call.
#[derive(Debug, Clone, Copy)]
pub(super) struct Outcome<'a> {
    /// How it went.
    pub end: End,
    /// The name of the error; empty for none.
    pub error: &'a [u8],
    /// What it returned, up to the end of the line.
    pub value: &'a [u8],
    /// Its arguments, with the closing parenthesis where there is one.
    pub args: &'a [u8],
    /// How long it took, in nanoseconds, with `-T`.
    pub took: Option<i64>,
}

/// Cuts a line in two. `None` when it is none of strace's.
#[inline]
pub(super) fn split(line: &[u8]) -> Option<(Head<'_>, Body<'_>)> {
    let (head, rest) = head(line)?;
    Some((head, body(rest)?))
}

fn head(line: &[u8]) -> Option<(Head<'_>, &[u8])> {
    let mut head = Head { pid: 0, comm: b"", time: None, fine: false };
    let mut rest = line;
    if let Some(inner) = line.strip_prefix(b"[pid ") {
        let (pid, tail) = digits(blanks(inner));
        (head.pid, head.comm, rest) = (u32::try_from(pid).ok()?, b"", tail);
        (head.comm, rest) = angle(rest)?;
        rest = blanks(rest.strip_prefix(b"]")?);
    } else if line.first().is_some_and(|b| b.is_ascii_digit() || *b == b' ') {
        let (n, tail) = digits(blanks(line));
        // Process ids have seven digits at most; what is longer counts seconds.
        if matches!(tail.first(), Some(b' ' | b'<')) && n > 0 && n < 10_000_000 {
            head.pid = n as u32;
            (head.comm, rest) = angle(tail)?;
            rest = rest.strip_prefix(b" ")?;
        }
        rest = blanks(rest);
    }
    if rest.first().is_some_and(u8::is_ascii_digit) {
        rest = time(rest, &mut head)?;
    }
    // `-r` after another stamp, then `-n` and `-i`.
    if let Some(inner) = rest.strip_prefix(b"(+") {
        rest = blanks(inner.get(inner.iter().position(|b| *b == b')')? + 1..)?);
    }
    for _ in 0..2 {
        if let Some(inner) = rest.strip_prefix(b"[") {
            rest = blanks(inner.get(inner.iter().take(32).position(|b| *b == b']')? + 1..)?);
        }
    }
    Some((head, rest))
}

/// The name between angle brackets, if there is one here.
fn angle(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let Some(inner) = text.strip_prefix(b"<") else { return Some((b"", text)) };
    let end = inner.iter().take(64).position(|b| *b == b'>')?;
    Some((inner.get(..end)?, inner.get(end + 1..)?))
}

#[inline]
fn blanks(text: &[u8]) -> &[u8] {
    let mut rest = text;
    while let [b' ', tail @ ..] = rest {
        rest = tail;
    }
    rest
}

/// The whole number at the start and what follows; 0 where there is none.
#[inline]
fn digits(text: &[u8]) -> (u64, &[u8]) {
    let mut rest = text;
    let mut n = 0_u64;
    while let [byte @ b'0'..=b'9', tail @ ..] = rest {
        n = n.wrapping_mul(10).wrapping_add(u64::from(byte - b'0'));
        rest = tail;
        if text.len() - rest.len() > 18 {
            break;
        }
    }
    (n, rest)
}

/// Takes a time stamp and the blanks after it.
#[inline]
fn time<'a>(text: &'a [u8], head: &mut Head<'a>) -> Option<&'a [u8]> {
    let (first, rest) = digits(text);
    let (stamp, mut ns, rest) = match rest {
        [b':', m1, m2, b':', s1, s2, tail @ ..] => {
            let two = |a: &u8, b: &u8| i64::from(a.wrapping_sub(b'0')) * 10 + i64::from(b.wrapping_sub(b'0'));
            let (m, s) = (two(m1, m2), two(s1, s2));
            if first > 23 || m > 59 || s > 60 {
                return None;
            }
            (Stamp::Clock, (first as i64 * 3600 + m * 60 + s) * SECOND, tail)
        }
        _ if (100_000_000..9_000_000_000).contains(&first) => (Stamp::Epoch, first as i64 * SECOND, rest),
        [b'.', ..] if first < 100_000_000 => (Stamp::Since, first as i64 * SECOND, rest),
        _ => return None,
    };
    let mut rest = rest;
    if let [b'.', tail @ ..] = rest {
        let (fraction, after) = digits(tail);
        const UNITS: [i64; 10] = [0, 100_000_000, 10_000_000, 1_000_000, 100_000, 10_000, 1_000, 100, 10, 1];
        let unit = *UNITS.get(tail.len() - after.len()).filter(|u| **u > 0)?;
        ns += fraction as i64 * unit;
        head.fine = true;
        rest = after;
    }
    head.time = Some((stamp, ns));
    // A line whose end is at the stamp tells nothing.
    rest.strip_prefix(b" ").map(blanks)
}

#[inline]
fn body(text: &[u8]) -> Option<Body<'_>> {
    match text.first()? {
        b'a'..=b'z' | b'_' => {
            let end = text.iter().take(40).position(|b| !matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_'))?;
            let (name, rest) = text.split_at_checked(end)?;
            match rest {
                [b'(', args @ ..] => Some(Body::Call(name, args)),
                _ => (name == b"strace" && rest.starts_with(b": ")).then_some(Body::Tracer),
            }
        }
        b'<' => {
            let rest = text.strip_prefix(b"<... ")?;
            let end = rest.iter().take(40).position(|b| *b == b' ')?;
            let (name, rest) = rest.split_at_checked(end)?;
            Some(Body::Resumed(name, rest.strip_prefix(b" resumed>")?))
        }
        b'-' => {
            let rest = text.strip_prefix(b"--- ")?;
            match rest {
                _ if !text.ends_with(b" ---") => None,
                [b'S', b'I', b'G', ..] => Some(Body::Signal),
                _ => rest.starts_with(b"stopped by ").then_some(Body::Gone),
            }
        }
        b'+' => (text.starts_with(b"+++ ") && text.ends_with(b" +++")).then_some(Body::Gone),
        b'P' => {
            let (pid, rest) = digits(text.strip_prefix(b"Process ")?);
            let said = [&b" attached"[..], b" detached", b" suspended", b" resumed"];
            (pid > 0 && said.iter().any(|s| rest.starts_with(s))).then_some(Body::Tracer)
        }
        _ => None,
    }
}

/// What came of a call, from what follows its parenthesis.
#[inline]
pub(super) fn outcome(text: &[u8]) -> Outcome<'_> {
    let mut out = Outcome { end: End::Cut, error: b"", value: b"", args: text, took: None };
    let mut rest = text.trim_ascii_end();
    if rest.last() == Some(&b'>') {
        if let Some(args) = rest.strip_suffix(b"<unfinished ...>") {
            return Outcome { end: End::Unfinished, args, ..out };
        }
        if let Some((before, took)) = duration(rest) {
            out.took = Some(took);
            rest = before;
        }
    }
    let mut until = rest;
    while let Some(at) = memchr::memrchr(b'=', until) {
        until = until.get(..at).unwrap_or_default();
        let Some(value) = rest.get(at + 1..).and_then(|v| v.strip_prefix(b" ")) else { continue };
        let Some(before) = until.strip_suffix(b" ") else { continue };
        let args = before.trim_ascii_end();
        if args.last() == Some(&b')') {
            return Outcome { end: End::Done, error: error(value), value, args, took: out.took };
        }
    }
    Outcome { took: None, ..out }
}

/// `<0.000012>` at the end, and what is before it.
#[inline]
fn duration(text: &[u8]) -> Option<(&[u8], i64)> {
    let inner = text.strip_suffix(b">")?;
    let at = inner.len() - 1 - inner.iter().rev().take(24).position(|b| *b == b'<')?;
    let (seconds, fraction) = digits(inner.get(at + 1..)?);
    let (ns, after) = match fraction {
        [b'.', tail @ ..] => {
            let (n, after) = digits(tail);
            let places = tail.len() - after.len();
            (n as i64 * 10_i64.pow(9_usize.checked_sub(places)? as u32), after)
        }
        [] => (0, fraction),
        _ => return None,
    };
    let took = (seconds < 1_000_000_000 && after.is_empty()).then(|| seconds as i64 * SECOND + ns)?;
    Some((text.get(..at)?.trim_ascii_end(), took))
}

/// The name of the error in `-1 ENOENT (No such file or directory)`.
fn error(value: &[u8]) -> &[u8] {
    let Some(rest) = value.strip_prefix(b"-1") else { return b"" };
    let Some(rest) = rest.strip_prefix(b" ") else { return b"" };
    let end = rest.iter().position(|b| *b == b' ').unwrap_or(rest.len());
    rest.get(..end).filter(|e| e.first() == Some(&b'E') || *e == b"(errno").unwrap_or_default()
}

/// The first string among the arguments, without its quotes: the path of a call. `None` when it was cut.
pub(super) fn path(args: &[u8]) -> Option<&[u8]> {
    let start = memchr::memchr(b'"', args)? + 1;
    let rest = args.get(start..)?;
    let mut from = 0;
    loop {
        let end = from + memchr::memchr(b'"', rest.get(from..)?)?;
        let path = rest.get(..end)?;
        let escapes = path.iter().rev().take_while(|b| **b == b'\\').count();
        if escapes % 2 == 0 {
            let cut = rest.get(end + 1..).is_some_and(|r| r.starts_with(b"..."));
            return (!cut).then_some(path);
        }
        from = end + 1;
    }
}

/// The directory that a path is relative to, from the first argument with `-y`: `3</etc>`, `AT_FDCWD</root>`.
pub(super) fn base(args: &[u8]) -> &[u8] {
    let head = args.get(..memchr::memchr(b',', args).unwrap_or(0)).unwrap_or_default();
    let inner = memchr::memchr(b'<', head).and_then(|at| head.get(at + 1..)?.strip_suffix(b">"));
    inner.filter(|p| p.first() == Some(&b'/')).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(line: &str) -> (Head<'_>, &str, Outcome<'_>) {
        let Some((head, Body::Call(name, rest))) = split(line.as_bytes()) else { panic!("{line}") };
        (head, std::str::from_utf8(name).unwrap(), outcome(rest))
    }

    #[test]
    fn every_kind_of_head() {
        let ns = 45_681 * SECOND + 913_140_000;
        for (line, pid, time) in [
            ("read(3, \"\", 5) = 0", 0, None),
            ("[pid  4242] read(3, \"\", 5) = 0", 4242, None),
            ("[pid 4242] 12:41:21.913140 read(3, \"\", 5) = 0", 4242, Some((Stamp::Clock, ns))),
            ("4242  12:41:21 read(3, \"\", 5) = 0", 4242, Some((Stamp::Clock, 45_681 * SECOND))),
            ("4242 1474363244.000001 read(3) = 0", 4242, Some((Stamp::Epoch, 1_474_363_244 * SECOND + 1000))),
            ("     0.000031 read(3, \"\", 5) = 0", 0, Some((Stamp::Since, 31_000))),
            ("4242       0.000031 read(3, \"\", 5) = 0", 4242, Some((Stamp::Since, 31_000))),
            (
                "4242<cu rl> 12:41:21 (+     0.000000) [   0] [00007f26cabd608b] read(3) = 0",
                4242,
                Some((Stamp::Clock, 45_681 * SECOND)),
            ),
        ] {
            let (head, name, _) = call(line);
            assert_eq!((head.pid, head.time, name), (pid, time, "read"), "{line}");
        }
        assert_eq!(call("[pid 7<cu rl>] close(3) = 0").0.comm, b"cu rl");
        for no in [
            "",
            " ",
            "12:41:21",
            "12:61:00 read(3) = 0",
            "12345",
            "[pid x] ",
            " > /lib/libc.so(x+0x1)",
            "4242",
        ] {
            assert!(split(no.as_bytes()).is_none(), "{no}");
        }
    }

    #[test]
    fn results() {
        let (_, _, o) =
            call("openat(AT_FDCWD, \"/a = b) = c\", 0) = -1 ENOENT (No such file or directory) <0.000012>");
        assert_eq!((o.end, o.error, o.took), (End::Done, &b"ENOENT"[..], Some(12_000)));
        assert_eq!(path(o.args), Some(&b"/a = b) = c"[..]));
        let (_, _, o) = call("read(3</etc/x>, \"\", 5)              = 5</etc/passwd>");
        assert_eq!((o.end, o.error, o.took, o.value), (End::Done, &b""[..], None, &b"5</etc/passwd>"[..]));
        assert_eq!(call("futex(0x1, 128 <unfinished ...>").2.end, End::Unfinished);
        assert_eq!(call("exit_group(0) = ?").2.end, End::Done);
        assert_eq!(call("sendto(55, \"; form.append( input = 3").2.end, End::Cut);
        assert_eq!(
            call("read(3, 0x1, 5) = ? ERESTARTSYS (To be restarted if SA_RESTART is set)").2.error,
            b""
        );
        assert_eq!(path(b"\"/a\\\"b\", 0)"), Some(&b"/a\\\"b"[..]));
        assert_eq!(path(b"\"/long\"..., 0)"), None);
        assert_eq!(path(b"\"/cut"), None);
        assert_eq!((base(b"3</etc>, \"x\""), base(b"AT_FDCWD, \"x\"")), (&b"/etc"[..], &b""[..]));
    }

    #[test]
    fn other_lines() {
        let body = |l: &'static str| split(l.as_bytes()).map(|s| s.1);
        assert_eq!(body("--- SIGCHLD {si_signo=SIGCHLD} ---"), Some(Body::Signal));
        assert_eq!(body("--- stopped by SIGSTOP ---"), Some(Body::Gone));
        assert_eq!(body("[pid 4] +++ exited with 0 +++"), Some(Body::Gone));
        assert_eq!(body("strace: Process 77 attached"), Some(Body::Tracer));
        assert_eq!(body("Process 77 attached - interrupt to quit"), Some(Body::Tracer));
        assert_eq!(body("7 <... read resumed>\"\", 5) = 0"), Some(Body::Resumed(b"read", b"\"\", 5) = 0")));
        assert_eq!(body("--- a diff"), None);
        assert_eq!(body("Process name"), None);
    }
}
