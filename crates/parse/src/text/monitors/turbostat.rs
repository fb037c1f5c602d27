//! `turbostat`: at what clock CPUs ran while they were busy, as a note.
//!
//! ```text
//! Core    CPU     Avg_MHz Busy%   Bzy_MHz TSC_MHz IRQ     SMI     CoreTmp PkgTmp
//! -       -       1133    37.78   2873    2900    520     0       61      63
//! 0       0       250     10.00   2500    2900    100     0       58      63
//! ```
//!
//! The first row below a header is of all CPUs. `Busy%` is the time outside of idle states of the hardware, which is not
//! the kernel's idle time: it has no metric here. With `Time_Of_Day_Seconds` interrupts are rates.

use mitra_model::lookup;

use crate::text::prelude::*;
use crate::text::snapshots::sink::Sink;

/// See the module.
pub const FORMAT: Format = Format::new(
    "turbostat",
    "at what clock CPUs ran while they were busy, as a note; with times interrupts",
    |lines, _| lines.peek().and_then(header).is_some() && lines.soon(2, is_row),
    read,
);

/// Columns of one table.
const COLUMNS_MAX: usize = 256;

/// The names of the columns, of which `--show` chooses some; old versions say `%Busy`.
fn header(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    find!(line, b"Bzy_MHz")?;
    let list: Vec<Vec<u8>> = words(line).take(COLUMNS_MAX).map(<[u8]>::to_vec).collect();
    let has = |name: &[u8]| list.iter().any(|column| column == name);
    (has(b"Bzy_MHz") && (has(b"Busy%") || has(b"%Busy"))).then_some(list)
}

fn is_row(line: &[u8]) -> bool {
    words(line).next().is_some() && words(line).all(is_cell)
}

fn is_cell(word: &[u8]) -> bool {
    word == b"-" || number(word).is_some()
}

/// The least, the most and the mean of a number.
#[derive(Default)]
struct Range {
    least: Option<f64>,
    most: f64,
    sum: f64,
    n: f64,
}

impl Range {
    fn add(&mut self, value: Option<f64>) {
        let Some(value) = value else { return };
        self.least = Some(self.least.map_or(value, |least| least.min(value)));
        self.most = self.most.max(value);
        self.sum += value;
        self.n += 1.0;
    }

    fn mean(&self) -> Option<f64> {
        (self.n > 0.0).then(|| self.sum / self.n)
    }
}

fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let mut columns: Vec<Vec<u8>> = Vec::new();
    let mut sink = Sink::default();
    let (mut clock_mhz, mut tsc_mhz, mut hottest, mut smi) =
        (Range::default(), Range::default(), Range::default(), Range::default());
    let mut before: Option<f64> = None;
    lines.each(import, |lines, at, import| {
        let line = lines.line();
        if let Some(found) = header(line) {
            columns = found;
            return Took::Yes;
        }
        // `5.002 sec`, of a command that was run.
        if line.ends_with(b" sec") && first(line).is_some() {
            return Took::Yes;
        }
        let list: Vec<&[u8]> = words(line).take(COLUMNS_MAX).collect();
        let fits = !list.is_empty() && list.len() <= columns.len() && list.iter().all(|word| is_cell(word));
        if !fits {
            return Took::unread_if(lines.soon(1, |next| header(next).is_some()));
        }
        let text_of = |name: &[u8]| {
            let at = columns.iter().position(|column| column == name)?;
            list.get(at).copied()
        };
        let value = |name: &[u8]| text_of(name).and_then(number);
        // Rows of single CPUs lack what their core and package have already.
        let of_all = text_of(b"CPU").is_none_or(|cpu| cpu == b"-");
        hottest.add(value(b"PkgTmp").or_else(|| value(b"CoreTmp")));
        if !of_all {
            return Took::Yes;
        }
        clock_mhz.add(value(b"Bzy_MHz").filter(|mhz| *mhz > 0.0));
        tsc_mhz.add(value(b"TSC_MHz").filter(|mhz| *mhz > 0.0));
        smi.add(value(b"SMI"));
        let now = value(b"Time_Of_Day_Seconds").filter(|s| (1e9..4e9).contains(s));
        if let (Some(now), Some(since), Some(interrupts), Some(metric)) =
            (now, before, value(b"IRQ"), lookup("sys.intr"))
            && now > since
        {
            let when = When::At((now * SECOND as f64) as i64);
            sink.put_as(import, metric, Form::Rate, 1.0, b"", when, at, interrupts / (now - since));
        }
        before = now;
        Took::Yes
    });
    let (Some(clock), Some(least)) = (clock_mhz.mean(), clock_mhz.least) else { return };
    import.has_read();
    let tsc =
        tsc_mhz.mean().map_or_else(String::new, |mhz| format!("; their base clock (TSC) is {mhz:.0} MHz"));
    let heat =
        hottest.mean().map_or_else(String::new, |_| format!("; the hottest was {:.0} °C", hottest.most));
    let smi =
        if smi.sum > 0.0 { format!("; {:.0} system management interrupts", smi.sum) } else { String::new() };
    import.note(format!(
        "turbostat: CPUs ran at {clock:.0} MHz while they were busy ({least:.0} to {:.0}){tsc}{heat}{smi}",
        clock_mhz.most
    ));
}
