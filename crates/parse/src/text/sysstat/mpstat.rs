//! `mpstat`: CPU time of each CPU, and interrupts.
//!
//! ```text
//! 13:30:36     CPU    %usr   %nice    %sys %iowait    %irq   %soft  %steal  %guest  %gnice   %idle
//! 13:30:37     all   66.83    0.00   32.67    0.00    0.00    0.00    0.50    0.00    0.00    0.00
//! 13:30:37       0   85.15    0.00   13.86    0.00    0.00    0.00    0.99    0.00    0.00    0.00
//!
//! 13:30:36     CPU    intr/s
//! 13:30:37     all   1154.00
//! ```
//!
//! The time of a header is that of the sample before. Where both are the same, the numbers are since boot.

use super::columns::Kind;
use super::iostat::mostly_numbers;
use super::pidstat_time::{Lead, lead};
use super::plan::{COLUMNS_MAX, Cells, Names, Plan, Plans};
use super::sar::cells;
use crate::text::prelude::*;

/// See the module.
pub const FORMAT: Format = Format::new(
    "mpstat",
    "CPU time of each CPU, interrupts and softirqs: `-P ALL`, `-I`, `-A`",
    starts,
    read,
);

fn starts(lines: &mut Lines<'_>, _: &Context) -> bool {
    lines.at(|line| header(line).is_some())
}

/// What follows the time of a header.
#[derive(Clone, Copy, PartialEq)]
enum Header {
    /// A section that is read.
    Read,
    /// One that is not, and why.
    PassedOver(&'static str),
}

/// The beginning of a header, what it is of, and the names.
fn header(line: &[u8]) -> Option<(Lead, Header, &[u8])> {
    let (lead, taken) = lead(line)?;
    let rest = line.get(taken..)?;
    if !matches!(rest, [b'C', b'P', b'U', ..] | [b'N', b'O', b'D', b'E', ..]) {
        return None;
    }
    Some((lead, kind(&words(rest).collect::<Vec<_>>())?, rest))
}

/// What the names after the time are the header of, if it is one of `mpstat`. `sar` prints almost the same: it has
/// `%steal` after `%iowait`.
fn kind(names: &[&[u8]]) -> Option<Header> {
    const NODES: Header =
        Header::PassedOver("mpstat -N: CPU time of nodes is passed over; that of the CPUs says the same");
    const SINGLE: Header = Header::PassedOver("mpstat -I CPU: interrupts by number are passed over");
    let (what, rest) = names.split_first()?;
    // With `-T` the place of the CPU stands behind it.
    let places = rest.iter().take_while(|n| matches!(**n, b"CORE" | b"SOCK" | b"NODE" | b"CLUS")).count();
    let rest = rest.get(places..)?;
    let (first, last) = (*rest.first()?, *rest.last()?);
    match *what {
        b"NODE" if first == b"%usr" => Some(NODES),
        b"CPU" if rest.windows(2).any(|w| matches!(w, [b"%iowait", b"%irq"])) => Some(Header::Read),
        b"CPU" if first.starts_with(b"%") => (last == b"intr/s").then_some(Header::Read),
        b"CPU" if rest == [b"intr/s"] || first == b"HI/s" => Some(Header::Read),
        b"CPU" => {
            let single = |w: &&[u8]| {
                w.ends_with(b"/s")
                    && w.iter().all(|b| matches!(b, b'A'..=b'Z' | b'0'..=b'9' | b'i' | b'/' | b's'))
            };
            rest.iter().all(single).then_some(SINGLE)
        }
        _ => None,
    }
}

struct Reader {
    plans: Plans,
    cells: Cells,
    /// The section whose rows follow, and whether they are averages of those before.
    open: Option<(usize, bool)>,
    header_ns: Option<i64>,
}

fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let (plans, cells) = (Plans::default(), [f64::NAN; COLUMNS_MAX]);
    let mut reader = Reader { plans, cells, open: None, header_ns: None };
    lines.each(import, |lines, number, import| {
        let line = lines.line();
        let trimmed = line.trim_ascii();
        if trimmed.is_empty() {
            reader.open = None;
        } else if trimmed != b"^C" && !reader.row(line, number, import) && !reader.header(line, import) {
            // A line that begins with a time like the rows, with more numbers than words, was one of them.
            let rest = lead(line).filter(|_| reader.open.is_some()).and_then(|(_, taken)| line.get(taken..));
            return Took::unread_if(rest.is_some_and(|rest| mostly_numbers(rest, 2)));
        }
        Took::Yes
    });
}

impl Reader {
    fn header(&mut self, line: &[u8], import: &mut Import) -> bool {
        let Some((lead, kind, rest)) = header(line) else { return false };
        let plan = self.plans.known(rest).or_else(|| {
            let names: Vec<&[u8]> = words(rest).skip(1).collect();
            let rows = match kind {
                Header::Read => Kind::Cpu,
                Header::PassedOver(why) => {
                    import.note(why);
                    Kind::Other
                }
            };
            self.plans.add(rest, Plan { names: Names::First, ..Plan::of(rows, &names, import) })
        });
        let Some(plan) = plan else { return false };
        self.open = Some((plan, lead == Lead::Average));
        self.header_ns = match lead {
            Lead::Clock(ns) => Some(ns),
            Lead::Average => None,
        };
        true
    }

    fn row(&mut self, line: &[u8], number: u32, import: &mut Import) -> bool {
        let Some((plan, average)) = self.open else { return false };
        let (Some(plan), Some((lead, taken))) = (self.plans.get(plan), lead(line)) else { return false };
        let rest = line.get(taken..).unwrap_or_default();
        let is_number = |cell: &[u8]| leading(cell).is_some() || cell.ends_with(b"nan");
        let Some(cpu) = cells(plan, rest, &mut self.cells) else { return false };
        if !(cpu == b"all" || integer(cpu).is_some_and(|n| n < 65_536)) || !words(rest).skip(1).all(is_number)
        {
            return false;
        }
        let ns = match lead {
            // The same word as in the header, or where there was none the averages of a single section.
            Lead::Average => return true,
            Lead::Clock(_) if average => return true,
            Lead::Clock(ns) => ns,
        };
        let Some((target, name)) = plan.target(cpu) else { return true };
        let mut when = When::Clock(ns);
        if self.header_ns == Some(ns) {
            import.note("mpstat without an interval: averages since boot");
            when = When::Fact;
        } else if let Some(before) = self.header_ns {
            import.since(target.group, When::Clock(before));
        }
        target.fill(&self.cells, import.row(target.group, name, when, number));
        true
    }
}
