//! How many lines each program wrote when, in bounded memory: buckets of one second that become wider by doubling
//! when the log is long.

use std::collections::HashMap;

use mitra_model::time::SECOND;

use super::rhythm::{self, Gaps};
use crate::text::import::{Column, Form, Import, When};

/// Programs that are counted; the lines of others are left out.
const PROGRAMS_MAX: usize = 64;
/// Buckets of a log; with more, two become one. Half of it is the least that a long log has.
const BUCKETS_MAX: usize = 2_048;
/// Times farther from the others than this are damaged.
const SPAN_MAX_NS: i64 = 20 * 365 * 86_400 * SECOND;

/// Some lines next to each other.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bucket {
    /// How many.
    pub lines: u32,
    /// The number of the first of them.
    pub first: u32,
}

impl Bucket {
    fn add(&mut self, other: Bucket) {
        if self.lines == 0 || (other.lines > 0 && other.first < self.first) {
            self.first = other.first;
        }
        self.lines = self.lines.saturating_add(other.lines);
    }
}

/// What one program wrote.
#[derive(Debug)]
struct Program {
    name: Box<[u8]>,
    buckets: Vec<Bucket>,
    gaps: Gaps,
}

/// See the module.
#[derive(Debug)]
pub struct Grid {
    origin: i64,
    width: i64,
    /// Buckets that are in use.
    len: usize,
    programs: Vec<Program>,
    index: HashMap<Box<[u8]>, usize>,
    last: usize,
    left_out: u64,
}

impl Default for Grid {
    fn default() -> Self {
        Grid {
            origin: 0,
            width: SECOND,
            len: 0,
            programs: Vec::new(),
            index: HashMap::new(),
            last: 0,
            left_out: 0,
        }
    }
}

impl Grid {
    /// Counts a line.
    pub fn add(&mut self, program: &[u8], t: i64, line: u32, decimals: usize) {
        let Some(bucket) = self.bucket(t) else {
            self.left_out += 1;
            return;
        };
        let Some(i) = self.program(program) else {
            self.left_out += 1;
            return;
        };
        let Some(program) = self.programs.get_mut(i) else { return };
        if program.buckets.len() <= bucket {
            program.buckets.resize(bucket + 1, Bucket::default());
        }
        if let Some(slot) = program.buckets.get_mut(bucket) {
            slot.add(Bucket { lines: 1, first: line });
        }
        program.gaps.add(t, line, decimals > 0);
    }

    fn program(&mut self, name: &[u8]) -> Option<usize> {
        if self.programs.get(self.last).is_some_and(|p| *p.name == *name) {
            return Some(self.last);
        }
        let i = match self.index.get(name) {
            Some(i) => *i,
            None if self.programs.len() >= PROGRAMS_MAX => return None,
            None => {
                self.programs.push(Program { name: name.into(), buckets: Vec::new(), gaps: Gaps::default() });
                self.index.insert(name.into(), self.programs.len() - 1);
                self.programs.len() - 1
            }
        };
        self.last = i;
        Some(i)
    }

    /// The bucket of a moment. The grid grows to both sides: some print the newest line first.
    fn bucket(&mut self, t: i64) -> Option<usize> {
        if self.len == 0 {
            self.origin = t - t.rem_euclid(SECOND);
            self.len = 1;
        }
        if t.saturating_sub(self.origin).saturating_abs() > SPAN_MAX_NS {
            return None;
        }
        loop {
            let i = (t - self.origin).div_euclid(self.width);
            let before = usize::try_from(-i.min(0)).ok()?;
            let needed = before + self.len.max(usize::try_from(i.max(0)).ok()? + 1);
            if needed > BUCKETS_MAX {
                self.double();
                continue;
            }
            if before > 0 {
                for program in &mut self.programs {
                    program.buckets.splice(0..0, std::iter::repeat_n(Bucket::default(), before));
                }
                self.origin -= i64::try_from(before).ok()? * self.width;
            }
            self.len = needed;
            return usize::try_from((t - self.origin).div_euclid(self.width)).ok();
        }
    }

    fn double(&mut self) {
        for program in &mut self.programs {
            program.buckets = program
                .buckets
                .chunks(2)
                .map(|pair| {
                    let mut sum = Bucket::default();
                    pair.iter().for_each(|b| sum.add(*b));
                    sum
                })
                .collect();
        }
        self.width = self.width.saturating_mul(2);
        self.len = self.len.div_ceil(2);
    }

    /// At the end of the log: its rows, its bursts and its gaps.
    pub fn finish(&self, import: &mut Import) {
        if self.left_out > 0 {
            import.note(format!(
                "{} lines are not counted in the rates: of more than {PROGRAMS_MAX} programs, or of a time far from the others",
                self.left_out
            ));
        }
        let Some(column) = Column::new("log.lines", Form::Rate, 1.0) else { return };
        let width_s = self.width as f64 / SECOND as f64;
        for program in &self.programs {
            // The rate of a log that is shorter than a bucket is not known.
            if self.len >= 2 {
                let group = import.group(vec![column]);
                import.since(group, When::At(self.origin));
                for (i, bucket) in self.whole(program).enumerate() {
                    let row = import.row(group, &program.name, When::At(self.end_of(i)), bucket.first);
                    if let Some(slot) = row.first_mut() {
                        *slot = f64::from(bucket.lines) / width_s;
                    }
                }
            }
            // All that the kernel says is an event already, and what it says comes in reports.
            if *program.name != *b"kernel" {
                self.rhythm(program, import);
            }
        }
    }

    /// The buckets of a program over all of the log.
    fn whole<'a>(&self, program: &'a Program) -> impl Iterator<Item = Bucket> + use<'a> {
        let rest = self.len.saturating_sub(program.buckets.len());
        program.buckets.iter().copied().chain(std::iter::repeat_n(Bucket::default(), rest))
    }

    fn end_of(&self, bucket: usize) -> i64 {
        let n = i64::try_from(bucket).unwrap_or(0).saturating_add(1);
        self.origin.saturating_add(n.saturating_mul(self.width))
    }

    fn rhythm(&self, program: &Program, import: &mut Import) {
        let name = String::from_utf8_lossy(&program.name);
        let buckets: Vec<Bucket> = self.whole(program).collect();
        for (first, event) in rhythm::bursts(&name, &buckets, self.width) {
            let line = buckets.get(first).map_or(0, |b| b.first);
            import.event(When::At(self.end_of(first) - self.width), line, event);
        }
        for (t, line, event) in program.gaps.found(&name) {
            import.event(When::At(t), line, event);
        }
    }
}
