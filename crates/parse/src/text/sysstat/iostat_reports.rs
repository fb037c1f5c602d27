//! The reports of one run of `iostat`: when each was, and what becomes of the first, which is of the time since boot.

use super::plan::{Cells, Plan};
use crate::text::prelude::*;

/// Rows of the first report that wait for a second one.
const ROWS_MAX: usize = 8192;

/// A row of the first report, which is of the time since boot.
struct RowSinceBoot {
    group: GroupId,
    row: Vec<u8>,
    line: u32,
    values: Vec<f64>,
}

/// See the module.
#[derive(Default)]
pub(super) struct Reports {
    /// How many began.
    pub count: u32,
    since_boot: bool,
    rows_since_boot: Vec<RowSinceBoot>,
    now: Option<When>,
    before: Option<When>,
    /// The last time that stood on a line of its own, and how many reports came since.
    stamp: Option<(When, u32)>,
}

impl Reports {
    /// A time was printed: the next report is of that time, those after it without one follow at the interval.
    pub fn stamp(&mut self, when: When) {
        self.stamp = Some((when, 0));
    }

    /// A report begins.
    pub fn begin(&mut self, import: &mut Import) {
        // Only the first report of a run is of the time since boot, and `-y` leaves it out.
        let skips_boot =
            import.context.ran("iostat", Some('y')) || import.context.blank_lines.is_some_and(|n| n > 1);
        self.since_boot = !import.context.underway && !skips_boot;
        self.before = self.now;
        let step_s = import.context.interval_s.unwrap_or(1.0);
        let later = |n: u32| (f64::from(n) * step_s * SECOND as f64) as i64;
        self.now = Some(match &mut self.stamp {
            Some((When::At(t), n)) => {
                *n = n.saturating_add(1);
                When::At(t.saturating_add(later(*n - 1)))
            }
            Some((stamp, _)) => *stamp,
            None => {
                let step = &mut import.context.step;
                if !import.context.underway && skips_boot {
                    self.before = Some(When::Step(*step));
                    *step = step.saturating_add(1);
                }
                let now = When::Step(*step);
                *step = step.saturating_add(1);
                now
            }
        });
        import.context.underway = true;
        self.count = self.count.saturating_add(1);
    }

    /// A table of the report begins. A device that `-z` leaves out did nothing, but no number of it was printed: it has
    /// no row, which is not the same as zeros.
    pub fn table(&self, import: &mut Import, plan: &Plan) {
        if let Some(now) = self.now.filter(|_| !self.since_boot) {
            if let Some(before) = self.before {
                plan.since(import, before);
            }
            plan.sampled(import, now);
        }
    }

    /// A row of the report.
    pub fn row(&mut self, import: &mut Import, plan: &Plan, name: &[u8], line: u32, cells: &Cells) {
        if !self.since_boot {
            plan.put(import, name, self.now.unwrap_or(When::Fact), line, cells);
        } else if let Some((target, row)) =
            plan.target(name).filter(|_| self.rows_since_boot.len() < ROWS_MAX)
        {
            let mut values = vec![f64::NAN; target.width()];
            target.fill(cells, &mut values);
            self.rows_since_boot.push(RowSinceBoot { group: target.group, row: row.to_vec(), line, values });
        }
    }

    /// The run is over. What is since boot is a fact where there is nothing else, and no sample.
    pub fn end(self, import: &mut Import) {
        if self.rows_since_boot.is_empty() {
            return;
        }
        if self.count > 1 {
            import.note("the first report of iostat is the average since boot: not counted as a sample");
            return;
        }
        import.note("a single report of iostat: average since boot");
        for RowSinceBoot { group, row, line, values } in self.rows_since_boot {
            import.put(group, &row, When::Fact, line, &values);
        }
    }
}
