//! Flat keyed files, as `Documentation/admin-guide/cgroup-v2.rst` calls them: a key, one space and a number in each line.
//!
//! ```text
//! nr_periods 88123
//! nr_throttled 4120
//! ```

use mitra_model::NA;

use crate::Outcome;
use crate::column::Column;
use crate::keyed::{Keyed, until};
use crate::scan::{digits, split_line};

/// The metric of a key in [`FlatKeyed`] that is known and has no metric.
pub(crate) const NO_METRIC: &str = "";

/// The parser of a flat keyed file of a control group.
#[derive(Debug)]
pub(crate) struct FlatKeyed {
    keys: Keyed<Option<Column>>,
    metrics: &'static [(&'static str, &'static str)],
    /// Keys that are not in the list are no news.
    has_many_more: bool,
}

impl FlatKeyed {
    /// A file whose keys fill these metrics; others count as unknown.
    pub(crate) fn new(metrics: &'static [(&'static str, &'static str)]) -> Self {
        FlatKeyed { keys: Keyed::default(), metrics, has_many_more: false }
    }

    /// A file of which only these keys are wanted.
    pub(crate) fn only(metrics: &'static [(&'static str, &'static str)]) -> Self {
        FlatKeyed { has_many_more: true, ..Self::new(metrics) }
    }

    /// Fills the row of the group.
    pub(crate) fn parse(&mut self, input: &[u8], row: &mut [i64], convert: impl Fn(i64) -> i64) -> Outcome {
        let (metrics, has_many_more) = (self.metrics, self.has_many_more);
        let classify = |key: &[u8]| {
            let key = key.strip_suffix(b" ")?;
            match metrics.iter().find(|(name, _)| name.as_bytes() == key) {
                Some((_, NO_METRIC)) => Some(Column::NONE),
                Some((_, metric)) => Some(Column::of(metric)),
                None => has_many_more.then_some(Column::NONE),
            }
        };
        lines_of_numbers(&mut self.keys, input, classify, row, convert)
    }
}

/// Reads the lines, each into the column of its key. A key without a column counts as unknown.
pub(crate) fn lines_of_numbers(
    keys: &mut Keyed<Option<Column>>,
    input: &[u8],
    classify: impl Fn(&[u8]) -> Option<Column>,
    row: &mut [i64],
    convert: impl Fn(i64) -> i64,
) -> Outcome {
    let mut outcome = Outcome::default();
    let mut rest = input;
    let mut line = 0;
    keys.begin();
    while !rest.is_empty() {
        line += 1;
        if let Some(found) = keys.find(rest, until(b' '), &classify)
            && let Some((value, [b'\n', tail @ ..])) = digits(found.rest)
        {
            rest = tail;
            match found.slot {
                Some(_) if found.again => outcome.bad(line),
                Some(column) => {
                    column.set(row, convert(value));
                    if value == NA {
                        outcome.bad(line);
                    }
                }
                None => outcome.unknown_keys += 1,
            }
        } else {
            outcome.bad(line);
            rest = split_line(rest).map_or(&[], |(_, tail)| tail);
        }
    }
    outcome
}
