//! `uptime`, and `w`, whose first line is the same.
//!
//! ```text
//!  13:30:09 up  3:37,  1 user,  load average: 0.17, 0.11, 0.27
//! USER     TTY      FROM             LOGIN@   IDLE   JCPU   PCPU WHAT
//! me       pts/0    10.0.0.7         13:02    4.00s  0.05s  0.00s w
//! ```

use super::common::loads;
use crate::text::prelude::*;

/// See the module.
pub const FORMAT: Format = Format::new("uptime", "load averages of `uptime` and `w`", starts, read);

/// The time of day and the load averages of the line.
fn line_of(line: &[u8]) -> Option<(i64, [f64; 3])> {
    let mut list = words(line);
    let mut at = clock::time_of_day(list.next()?)?;
    let mut word = list.next()?;
    if let Some(half) = clock::with_half(at, word) {
        (at, word) = (half, list.next()?);
    }
    (word == b"up").then_some(())?;
    Some((at, loads(line)?))
}

fn starts(lines: &mut Lines<'_>, _: &Context) -> bool {
    lines.at(|line| line_of(line).is_some())
}

/// Puts the load averages where they belong.
pub(super) fn put_loads(import: &mut Import, at: When, line: u32, values: [f64; 3]) {
    for (metric, value) in ["sys.load1", "sys.load5", "sys.load15"].iter().zip(values) {
        import.value(metric, "", Form::Level, at, line, value);
    }
}

fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let Some((clock, values)) = lines.peek().and_then(line_of) else { return };
    let at = import.context.stamp.unwrap_or(When::Clock(clock));
    put_loads(import, at, lines.number(), values);
    lines.advance();
    if lines.at(|line| words(line).nth(1) == Some(b"TTY") && words(line).any(|w| w.ends_with(b"@"))) {
        import.format("w");
        // Who is logged in.
        while lines.at(is_login) {
            lines.advance();
        }
    }
}

/// The header, or a row with a terminal in it.
fn is_login(line: &[u8]) -> bool {
    let terminals: &[&[u8]] = list!("pts/ tty : console hvc - ?");
    let mut list = words(line).skip(1);
    list.next().is_some_and(|word| word == b"TTY" || begins(word, terminals) && list.count() >= 4)
}
