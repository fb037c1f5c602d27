//! `go tool pprof -top` of a CPU profile.
//!
//! ```text
//! File: shop
//! Type: cpu
//! Duration: 30.10s, Total samples = 12.34s (41.00%)
//! Showing nodes accounting for 12.00s, 97.24% of 12.34s total
//!       flat  flat%   sum%        cum   cum%
//!      4.20s 34.04% 34.04%      5.10s 41.33%  runtime.mallocgc
//! ```
//!
//! A sample stands for 10 ms: Go's profiler takes 100 in a second.

use crate::text::prelude::*;

/// See the module.
pub const FORMAT: Format =
    Format::new("pprof", "`go tool pprof -top` of a CPU profile", |lines, _| starts(lines), read);

/// Samples in a second.
const SAMPLES: f64 = 100.0;
/// Lines before the table.
const HEAD_LINES: usize = 10;

fn is_header(line: &[u8]) -> bool {
    words(line).eq([&b"flat"[..], b"flat%", b"sum%", b"cum", b"cum%"])
}

fn starts(lines: &mut Lines<'_>) -> bool {
    (lines.at(|line| line.starts_with(b"File: ")) || lines.at(|line| line == b"Type: cpu"))
        && (lines.at(|line| line == b"Type: cpu") || lines.soon(3, |line| line == b"Type: cpu"))
        && lines.soon(HEAD_LINES, is_header)
}

/// `4.20s`, `10ms`, `1.5mins`: seconds.
fn seconds(word: &[u8]) -> Option<f64> {
    let (value, unit) = leading(word)?;
    let factor = match unit {
        b"" if value == 0.0 => 0.0,
        b"ns" => 1e-9,
        b"us" => 1e-6,
        b"ms" => 1e-3,
        b"s" => 1.0,
        b"mins" => 60.0,
        b"hrs" => 3600.0,
        _ => return None,
    };
    Some(value * factor)
}

fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let samples = import.columns(&["path.samples"], Form::Total);
    let (mut in_table, mut head) = (false, 0);
    lines.each(import, |lines, at, import| {
        let line = lines.line();
        if is_header(line) {
            in_table = true;
            return Took::Yes;
        }
        if !in_table {
            head += 1;
            return if head <= HEAD_LINES { Took::Yes } else { Took::No };
        }
        let mut list = words(line);
        let flat = list.next().and_then(seconds);
        let shares = (list.next(), list.next(), list.next(), list.next());
        let function = list.rest().trim_ascii_end();
        let fits = shares.0.is_some_and(|w| w.ends_with(b"%")) && shares.3.is_some_and(|w| w.ends_with(b"%"));
        let Some(flat) = flat.filter(|_| fits && !function.is_empty()) else { return Took::No };
        if flat > 0.0 {
            import.put(samples, function, When::Fact, at, &[(flat * SAMPLES).round()]);
        }
        Took::Yes
    });
}
