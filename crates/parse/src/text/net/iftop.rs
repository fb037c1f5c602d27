//! `iftop -t`: what an interface sent and received, on average over the last seconds.
//!
//! ```text
//! Listening on eth0
//!    # Host name (port/service if enabled)            last 2s   last 10s   last 40s cumulative
//! --------------------------------------------------------------------------------------------
//!    1 10.0.0.5                                 =>     1.12Mb     1.08Mb      980Kb      310KB
//!      10.0.0.7                                 <=      136Kb      120Kb      110Kb     34.0KB
//! --------------------------------------------------------------------------------------------
//! Total send rate:                                     1.12Mb     1.08Mb      980Kb
//! Total receive rate:                                   136Kb      120Kb      110Kb
//! ```
//!
//! Rates are bits a second in powers of 1024, or bytes with `-B`. The average over ten seconds is read. Without
//! the name of the interface there is a note.

use crate::text::prelude::*;
use crate::text::snapshots::sink::Sink;

/// See the module.
pub const FORMAT: Format = Format::new(
    "iftop",
    "what an interface sent and received, of `iftop -t`",
    |lines, _| {
        lines.at(is_header) || (lines.at(|line| name_of(line).is_some()) && lines.soon(HEAD_LINES, is_header))
    },
    read,
);

/// Lines before the table: addresses of the interface, and that it listens.
const HEAD_LINES: usize = 5;
const TOTALS: Pairs = pairs!("send nic.tx_bytes  receive nic.rx_bytes");

/// The interface, from what goes to standard output or to standard error.
fn name_of(line: &[u8]) -> Option<&[u8]> {
    let name = [&b"Listening on "[..], b"interface: "].iter().find_map(|head| line.strip_prefix(*head))?;
    (words(name).count() == 1).then(|| name.trim_ascii())
}

fn is_header(line: &[u8]) -> bool {
    line.trim_ascii_start().starts_with(b"# Host name") && has(line, b"last 2s   last 10s   last 40s")
}

/// `Total send rate: 1.12Mb 1.08Mb 980Kb`: the metric, and the second of the averages in bytes a second.
fn total(line: &[u8]) -> Option<(&'static str, f64)> {
    let mut list = words(line.strip_prefix(b"Total ")?);
    let metric = find_pair(TOTALS, list.next()?)?;
    list.next().filter(|word| *word == b"rate:")?;
    let (value, unit) = leading(list.nth(1)?)?;
    let (size, per_unit) = match unit.split_last()? {
        (b'b', size) => (size, 0.125),
        (b'B', size) => (size, 1.0),
        _ => return None,
    };
    let power = match size {
        [] => 0,
        b"K" => 1,
        b"M" => 2,
        b"G" => 3,
        _ => return None,
    };
    Some((metric, value * per_unit * 1024_f64.powi(power)))
}

fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let mut sink = Sink::default();
    let when = import.now();
    let (mut name, mut table, mut without) = (None, false, false);
    lines.each(import, |lines, at, import| {
        let line = lines.line();
        if let Some(found) = name_of(line) {
            if table {
                return Took::No;
            }
            name = Some(text(found));
        } else if is_header(line) {
            table = true;
        } else if let Some((metric, rate)) = total(line) {
            match (&name, mitra_model::lookup(metric)) {
                (Some(name), Some(metric)) => {
                    sink.put_as(import, metric, Form::Rate, 1.0, name.as_bytes(), when, at, rate);
                }
                _ => without = true,
            }
        } else if line.len() > 20 && line.iter().all(|b| *b == b'=') {
            // Without `-s` another table of the same interface follows.
            return if lines.soon(2, is_header) { Took::Yes } else { Took::Last };
        } else {
            let is_own = begins(
                line,
                &[
                    b"IP address is:",
                    b"IPv6 address is:",
                    b"MAC address is:",
                    b"Total ",
                    b"Peak ",
                    b"Cumulative ",
                ],
            ) || line.trim_ascii().is_empty()
                || line.iter().all(|b| *b == b'-')
                || (table && (has(line, b"=>") || has(line, b"<=")));
            return if is_own { Took::Yes } else { Took::No };
        }
        Took::Yes
    });
    if without {
        import.note("iftop does not say which interface it is: its rates were left out");
    }
}
