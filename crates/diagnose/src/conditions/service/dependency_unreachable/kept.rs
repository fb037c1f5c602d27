//! Connections that are kept open at a limit on the way, while others come about no more.

use crate::prelude::*;
use crate::services::{self, Address};
use crate::stats;

/// Times as many as before.
const GREW: f64 = 3.0;
/// Of fewer connections the same number is chance.
const MANY: f64 = 16.0;
/// Connections at a limit come and go within this part.
const SAME: f64 = 0.05;
const NEARLY_ALL: f64 = 0.8;
/// Who keeps more of them than all others together.
const MOST: f64 = 0.5;

/// Connections to an address that are kept open while no new one comes about.
pub(super) struct Kept<'a> {
    /// As many, and before.
    count: f64,
    before: f64,
    /// Who has most of them, and how many.
    pub(super) row: &'a str,
    own: f64,
}

impl<'a> Kept<'a> {
    /// `new connections to 10.0.0.7:8443 are not answered, though python3 (812) keeps 512 of the 512 that are open (0 before)`.
    pub(super) fn words(&self, view: &View<'_>, address: &Address<'_>) -> String {
        format!(
            "new connections to {}{} are not answered, though {} keeps {} of the {} that are open ({} before)",
            address.text,
            address.net.place(),
            services::callers(view, [self.row]),
            words::count(self.own),
            words::count(self.count),
            words::count(self.before)
        )
    }

    pub(super) fn of(set: &'a SeriesSet, rows: &[&'a str], span: Span, before: f64) -> Option<Kept<'a>> {
        let of = |row: &&'a str| set.get("dependency.established", row);
        let all = Signal::sum(rows.iter().filter_map(of), span)?;
        let count = stats::median(&mut all.v.clone())?;
        let same = all.v.iter().filter(|v| (*v - count).abs() <= SAME * count).count() as f64;
        let last = |row: &&'a str| Some((*row, of(row)?.last(span)?));
        let (own_row, own) = rows.iter().filter_map(last).max_by(|a, b| a.1.total_cmp(&b.1))?;
        // In the sample in which a process gets a row of its own it may have two.
        let is_limit = count >= MANY && same >= NEARLY_ALL * all.v.len() as f64 && count >= GREW * before;
        // Who waits for new ones itself, and nobody else, may have opened them because nothing answers.
        let is_failing = |row: &&&str| {
            let pid = |row: &str| row.split_once('>').and_then(|(who, _)| who.parse::<u32>().ok());
            let of = |metric: &str| set.get(metric, row).and_then(|series| series.total(span)).unwrap_or(0.0);
            pid(row).is_some_and(|other| pid(own_row) != Some(other))
                && of("dependency.connect_time") + of("dependency.connect_failed") > 0.0
        };
        let is_other_kept_out = rows.iter().any(|row| is_failing(&row));
        (is_limit && is_other_kept_out && own >= MOST * count).then_some(Kept {
            count,
            before,
            row: own_row,
            own,
        })
    }
}
