//! `sadf -dh`: all sections of a moment on one line.
//!
//! ```text
//! # hostname;interval;timestamp;CPU;%user;%idle[...];proc/s;cswch/s;IFACE;rxpck/s;txpck/s[...]
//! vm;1;2026-11-21 13:30:15 UTC;-1;49.50;50.00;0;42.00;58.00;33.00;183460.00;lo;0.00;0.00;eth0;1.00;2.00
//! ```
//!
//! `[...]` says that what stands before it is there several times, once for each CPU or device; how often is not
//! said. A further one is there as long as a name of the right shape follows that was not there before. A line that
//! does not come out even is not read.

use super::columns::{self, Kind};
use super::plan::{COLUMNS_MAX, Cells, Plan, Plans};
use super::sadf::{Stamp, fill};
use crate::text::prelude::*;

/// Sections of one line that are looked at.
const PARTS_MAX: usize = 128;
/// Things of one line.
const THINGS_MAX: usize = 8192;

/// The sections of a header.
pub struct Wide {
    parts: Vec<Part>,
}

struct Part {
    plan: Plan,
    repeated: bool,
}

impl Wide {
    /// The sections of the header; `None` when there is only one, which stands on lines of its own.
    pub fn new(list: &[u8], import: &mut Import, plans: &mut Plans) -> Option<Wide> {
        let groups = sections(list);
        if groups.len() < 2 && !groups.iter().any(|(_, repeated)| *repeated) {
            return None;
        }
        let mut parts = Vec::new();
        for (names, repeated) in groups.into_iter().take(PARTS_MAX) {
            let kind = names.first().and_then(|n| columns::kind(n));
            let numbers = names.get(usize::from(kind.is_some())..).unwrap_or_default();
            let plan = Plan::of(kind.unwrap_or(Kind::System), numbers, import);
            let option = columns::option(names.iter().copied());
            match option {
                Some(option) if plan.is_read() => import.format(&option),
                option => plans.skip(option.as_deref().unwrap_or("columns of no section")),
            }
            parts.push(Part { plan, repeated });
        }
        Some(Wide { parts })
    }

    /// Reads one line. Whether it came out even; if not, nothing of it is kept.
    pub fn take(
        &mut self,
        stamp: &Stamp<'_>,
        rest: &[u8],
        at: u32,
        import: &mut Import,
        cells: &mut Cells,
    ) -> bool {
        let fields: Vec<&[u8]> = rest.split(|b| *b == b';').collect();
        let Some(things) = self.places(&fields) else { return false };
        for (part, start) in things {
            let Some(plan) = self.parts.get(part).map(|p| &p.plan).filter(|p| p.is_read()) else { continue };
            let mut list = fields.iter().copied().skip(start);
            let name = if plan.kind == Kind::System { Some(&b""[..]) } else { list.next() };
            let Some(name) = name.filter(|_| fill(plan, &mut list, cells)) else { continue };
            plan.since(import, stamp.since());
            plan.put(import, name, When::At(stamp.time), at, cells);
        }
        true
    }

    /// Where each thing begins, with the section that it belongs to.
    fn places(&self, fields: &[&[u8]]) -> Option<Vec<(usize, usize)>> {
        let mut out: Vec<(usize, usize)> = Vec::new();
        let mut at = 0;
        for (i, part) in self.parts.iter().enumerate() {
            let first = out.len();
            let width = usize::from(part.plan.kind != Kind::System) + part.width(fields, at);
            loop {
                let before = out.get(first..).unwrap_or_default();
                let before = before.iter().filter_map(|(_, start)| fields.get(*start).copied());
                let is_first = out.len() == first;
                if !part.begins(fields.get(at..).unwrap_or_default(), before) {
                    if is_first {
                        return None;
                    }
                    break;
                }
                fields.get(at..at + width)?;
                out.push((i, at));
                at += width;
                if !part.repeated || out.len() >= THINGS_MAX {
                    break;
                }
            }
        }
        (at == fields.len()).then_some(out)
    }
}

impl Part {
    /// How many numbers a thing has. Interrupts have one of all CPUs, and maybe one of each: as many as stand between
    /// the first two names.
    fn width(&self, fields: &[&[u8]], at: usize) -> usize {
        if self.plan.kind != Kind::Irq {
            return self.plan.width;
        }
        let numbers = fields.iter().skip(at + 1).take_while(|f| memchr::memchr2(b'.', b',', f).is_some());
        numbers.take(COLUMNS_MAX).count().max(1)
    }

    /// Whether these fields begin with another thing of the section. Disks and interfaces may have as many columns:
    /// `lo` is the first interface and never a disk.
    fn begins<'a>(&self, fields: &[&[u8]], before: impl Iterator<Item = &'a [u8]> + Clone) -> bool {
        let Some(name) = fields.first() else { return false };
        let shape = match self.plan.kind {
            Kind::Cpu => {
                // CPUs are in order.
                let first = before.clone().next().is_none() && *name == b"-1";
                let last = before.clone().last().and_then(integer).map_or(-1, |n| n as i64);
                first || integer(name).is_some_and(|n| n as i64 > last)
            }
            Kind::System => return true,
            Kind::Disk => *name != b"lo" && number(name).is_none(),
            Kind::Filesystem => number(name).is_none(),
            Kind::Irq => memchr::memchr(b'.', name).is_none(),
            Kind::Other | Kind::Task => integer(name).is_some(),
            Kind::Nic => number(name).is_none() && !name.starts_with(b"/"),
        };
        let numbers = fields.iter().skip(1).take(self.plan.width.max(1));
        shape
            && !before.clone().any(|known| known == *name)
            && numbers.clone().count() == self.plan.width.max(1)
            && numbers.copied().all(|f| number(f).is_some())
    }
}

/// The names of the columns by section. Only sections of several things say where they end.
fn sections(list: &[u8]) -> Vec<(Vec<&[u8]>, bool)> {
    let mut out: Vec<(Vec<&[u8]>, bool)> = Vec::new();
    let mut names: Vec<&[u8]> = Vec::new();
    for field in list.split(|b| *b == b';') {
        let (name, repeated) = match field.strip_suffix(b"[...]") {
            Some(name) => (name, true),
            None => (field, false),
        };
        let kind = names.first().and_then(|n| columns::kind(n));
        let ended = kind.is_some_and(|k| !columns::belongs(k, name));
        if !names.is_empty() && (columns::kind(name).is_some() || ended) {
            out.push((std::mem::take(&mut names), false));
        }
        names.push(name);
        if repeated {
            out.push((std::mem::take(&mut names), true));
        }
    }
    if !names.is_empty() {
        out.push((names, false));
    }
    out
}
