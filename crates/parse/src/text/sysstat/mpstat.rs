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

use super::super::import::When;
use super::super::number::{integer, leading, words};
use super::super::{Context, Format, Import, Lines};
use super::mpstat_columns::{COLUMNS_MAX, Cells, Kind, kind};
use super::pidstat_time::{Lead, lead};

/// The format.
pub const FORMAT: Format = Format {
    name: "mpstat",
    what: "CPU time of each CPU, interrupts and softirqs: `-P ALL`, `-I`, `-A`",
    starts,
    read,
};

/// Headers that are kept; options make at most six.
const SECTIONS_MAX: usize = 16;

fn starts(lines: &mut Lines<'_>, _: &Context) -> bool {
    lines.peek().is_some_and(|line| header(line).is_some())
}

/// The beginning of a header, what it is of, and the names.
fn header(line: &[u8]) -> Option<(Lead, Kind, &[u8])> {
    let (lead, taken) = lead(line)?;
    let rest = line.get(taken..)?;
    if !matches!(rest, [b'C', b'P', b'U', ..] | [b'N', b'O', b'D', b'E', ..]) {
        return None;
    }
    let names: Vec<&[u8]> = words(rest).take(COLUMNS_MAX).collect();
    Some((lead, kind(&names)?, rest))
}

struct Section {
    header: Vec<u8>,
    kind: Kind,
    /// How many words a row has, the CPU among them.
    words: usize,
    all: Option<Cells>,
    one: Option<Cells>,
}

#[derive(Default)]
struct Reader {
    sections: Vec<Section>,
    /// The section whose rows follow, and whether they are averages of those before.
    open: Option<(usize, bool)>,
    header_ns: Option<i64>,
}

fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let mut reader = Reader::default();
    loop {
        let number = lines.number();
        let Some(line) = lines.peek() else { break };
        let blank = line.trim_ascii();
        if blank.is_empty() {
            reader.open = None;
        } else if blank != b"^C"
            && !reader.row(line, number, import)
            && !reader.header(line, import)
            && !reader.damaged(line, number, import)
        {
            break;
        }
        lines.advance();
    }
}

impl Reader {
    fn header(&mut self, line: &[u8], import: &mut Import) -> bool {
        let Some((lead, kind, rest)) = header(line) else { return false };
        let i = self.sections.iter().position(|s| s.header == rest).unwrap_or_else(|| {
            if self.sections.len() >= SECTIONS_MAX {
                self.sections.clear();
            }
            let names: Vec<&[u8]> = words(rest).skip(1).take(COLUMNS_MAX - 1).collect();
            if let Kind::PassedOver(why) = kind {
                import.note(why);
            }
            self.sections.push(Section {
                header: rest.to_vec(),
                kind,
                words: words(rest).count(),
                all: Cells::new(import, kind, &names, true),
                one: Cells::new(import, kind, &names, false),
            });
            self.sections.len() - 1
        });
        self.open = Some((i, lead == Lead::Average));
        self.header_ns = match lead {
            Lead::Clock(ns) => Some(ns),
            Lead::Average => None,
        };
        true
    }

    fn row(&mut self, line: &[u8], number: u32, import: &mut Import) -> bool {
        let Some((i, average)) = self.open else { return false };
        let Some(section) = self.sections.get(i) else { return false };
        let Some((lead, taken)) = lead(line) else { return false };
        let rest = line.get(taken..).unwrap_or_default();
        let mut all: [&[u8]; COLUMNS_MAX] = [b""; COLUMNS_MAX];
        let mut n = 0;
        for word in words(rest) {
            if let Some(slot) = all.get_mut(n) {
                *slot = word;
            }
            n += 1;
        }
        let Some((cpu, cells)) = all.split_first() else { return false };
        let is_all = *cpu == b"all";
        if n != section.words || !(is_all || integer(cpu).is_some_and(|n| n < 65_536)) {
            return false;
        }
        let cells = cells.get(..(n - 1).min(COLUMNS_MAX - 1)).unwrap_or_default();
        if !cells.iter().all(|cell| leading(cell).is_some() || cell.ends_with(b"nan")) {
            return false;
        }
        let ns = match lead {
            // The same word as in the header, or where there was none the averages of a single section.
            Lead::Average => return true,
            Lead::Clock(_) if average || matches!(section.kind, Kind::PassedOver(_)) => return true,
            Lead::Clock(ns) => ns,
        };
        let since_boot = self.header_ns == Some(ns);
        let Some(places) = (if is_all { &section.all } else { &section.one }) else { return true };
        let when = if since_boot {
            import.note("mpstat without an interval: averages since boot");
            When::Fact
        } else {
            if let Some(before) = self.header_ns {
                import.since(places.group, When::Clock(before));
            }
            When::Clock(ns)
        };
        let name: &[u8] = if is_all { b"" } else { cpu };
        places.fill(cells, import.row(places.group, name, when, number));
        true
    }

    /// A line that begins with a time like the rows, with more numbers than words, was one of them.
    fn damaged(&mut self, line: &[u8], number: u32, import: &mut Import) -> bool {
        let Some((_, taken)) = lead(line).filter(|_| self.open.is_some()) else { return false };
        let (mut numbers, mut others) = (0, 0);
        for word in words(line.get(taken..).unwrap_or_default()) {
            if leading(word).is_some() { numbers += 1 } else { others += 1 }
        }
        if numbers < 2 || numbers < others {
            return false;
        }
        import.unread(number, line);
        true
    }
}
