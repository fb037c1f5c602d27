//! The cells of one row to the values of one series.

use std::sync::Arc;

use mitra_model::{NA, Values};

use crate::clock::Timeline;
use crate::log::decode::ns;

/// No position.
pub(crate) const NEVER: u32 = u32::MAX;

/// One metric of one row while it is being read.
#[derive(Clone)]
pub(crate) struct SeriesBuilder {
    /// The index on the axis of the first value that is known, or [`NEVER`].
    pub(crate) start: u32,
    /// No value is stored yet: those since `start` are 0, see [`Query::moving_only`].
    pub(crate) still: bool,
    pub(crate) last_position: u32,
    pub(crate) last_raw: i64,
    pub(crate) values: Values,
    pub(crate) changes: Vec<(i64, Option<Arc<str>>)>,
}

pub(crate) const NEW: SeriesBuilder = SeriesBuilder {
    start: NEVER,
    still: true,
    last_position: NEVER,
    last_raw: NA,
    values: Values::new(),
    changes: Vec::new(),
};

/// How the stored values of a metric become what is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reading {
    /// As stored, unscaled.
    Raw,
    Level,
    /// Unknown where it was not there before.
    Rate,
    /// From zero where the row is younger than the frame before.
    RateFromBirth,
    /// From zero where the row is new.
    RateFromNothing,
    Text,
}

/// The cells of a row in one stretch of its presence.
#[derive(Clone, Copy)]
pub(crate) enum Cells<'a> {
    Same(i64, usize),
    Each(&'a [i64]),
}

impl Cells<'_> {
    pub(crate) fn len(self) -> usize {
        match self {
            Cells::Same(_, len) => len,
            Cells::Each(values) => values.len(),
        }
    }

    pub(crate) fn at(self, sample: usize) -> i64 {
        match self {
            Cells::Same(value, _) => value,
            Cells::Each(values) => values[sample],
        }
    }

    pub(crate) fn part(self, from: usize, until: usize) -> Self {
        match self {
            Cells::Same(value, _) => Cells::Same(value, until - from),
            Cells::Each(values) => Cells::Each(&values[from..until]),
        }
    }
}

/// How one cell becomes a value.
pub(crate) struct Cell<'a> {
    pub(crate) reading: Reading,
    pub(crate) scale: f64,
    pub(crate) moving_only: bool,
    pub(crate) born_ns: i64,
    pub(crate) timeline: &'a Timeline,
    /// The first position of the segment.
    pub(crate) first: usize,
    pub(crate) words: &'a [Arc<str>],
}

impl Cell<'_> {
    /// The cell of the frame before the range.
    pub(crate) fn lead(&self, builder: &mut SeriesBuilder, raw: i64) {
        builder.last_position = 0;
        builder.last_raw = raw;
    }

    /// Takes a stretch of cells: one by one until there is nothing special about them, the rest in one go.
    pub(crate) fn run(&self, builder: &mut SeriesBuilder, position: usize, values: Cells<'_>) {
        let len = values.len();
        let is_text = self.reading == Reading::Text;
        let mut next = 0;
        while next < len {
            if let Cells::Same(raw, _) = values {
                let stands = next > 0 && (is_text || raw == NA && builder.start == NEVER);
                if stands || next > 1 && builder.still && builder.start != NEVER && self.moving_only {
                    // What does not change has been taken.
                    builder.last_position = (position + len - 1) as u32;
                    return;
                }
            }
            let is_stored = !is_text && builder.start != NEVER && !builder.still;
            if is_stored && next > 0 && builder.start as usize + builder.values.len() == position + next - 1 {
                break;
            }
            self.take(builder, position + next, values.at(next));
            next += 1;
        }
        if next == len {
            return;
        }
        let per_second = self.timeline.per_seconds(position + next..position + len);
        match (values, self.reading) {
            (_, Reading::Text) => return,
            (Cells::Same(raw, _), Reading::Raw | Reading::Level) => {
                let value = self.level(raw);
                builder.values.push_same(value, len - next);
            }
            (Cells::Same(raw, _), _) => {
                let still = if raw == NA { f64::NAN } else { 0.0 };
                builder.values.extend(per_second.iter().map(|per_second| still * per_second));
            }
            (Cells::Each(cells), Reading::Raw | Reading::Level) => {
                builder.values.extend(cells[next..].iter().map(|raw| self.level(*raw)));
            }
            (Cells::Each(cells), _) => {
                let pairs = cells[next - 1..].windows(2).zip(per_second);
                builder.values.extend(pairs.map(|(pair, per_second)| {
                    let (before, now) = (pair[0], pair[1]);
                    if before == NA || now == NA || now < before {
                        return f64::NAN;
                    }
                    now.wrapping_sub(before) as u64 as f64 * (per_second * self.scale)
                }));
            }
        }
        builder.last_position = (position + len - 1) as u32;
        builder.last_raw = values.at(len - 1);
    }

    fn level(&self, raw: i64) -> f64 {
        match self.reading {
            _ if raw == NA => f64::NAN,
            Reading::Raw => raw as f64,
            _ => raw as f64 * self.scale,
        }
    }

    fn take(&self, builder: &mut SeriesBuilder, position: usize, raw: i64) {
        if self.reading == Reading::Text {
            return self.text(builder, position, raw);
        }
        let value = match self.reading {
            Reading::Raw | Reading::Level => self.level(raw),
            _ if raw == NA => f64::NAN,
            _ => self.rate(builder, position, raw),
        };
        let is_next = builder.last_position != NEVER && builder.last_position as usize + 1 == position;
        let last = builder.last_position as usize;
        builder.last_position = position as u32;
        builder.last_raw = raw;
        let index = position - 1;
        if builder.start == NEVER {
            if value.is_nan() {
                return;
            }
            builder.start = index as u32;
        }
        let start = builder.start as usize;
        if builder.still {
            // The rates of a counter that stands still are not stored until it moves, or is lost from sight.
            let is_known = self.timeline.per_second(position).is_finite();
            let stands = value == 0.0 || value.is_nan() && !is_known;
            if self.moving_only && stands && (is_next || start == index) {
                return;
            }
            builder.still = false;
            if self.moving_only && start < index {
                // It stood at every position from the first to the last; after that it may have been away.
                let known = (start + 1..=last).map(|before| self.timeline.per_second(before).is_finite());
                builder.values.extend(known.map(|known| if known { 0.0 } else { f64::NAN }));
            }
        }
        let missing = (index - start).saturating_sub(builder.values.len());
        builder.values.push_same(f64::NAN, missing);
        builder.values.push(value);
    }

    /// The rate over the interval that ends here. `NaN` where the length of the interval is not known.
    fn rate(&self, builder: &SeriesBuilder, position: usize, raw: i64) -> f64 {
        let per_second = self.timeline.per_second(position) * self.scale;
        let since = |before: i64| {
            if raw >= before { raw.wrapping_sub(before) as u64 as f64 * per_second } else { f64::NAN }
        };
        if builder.last_position != NEVER && builder.last_position as usize + 1 == position {
            return if builder.last_raw == NA { f64::NAN } else { since(builder.last_raw) };
        }
        let is_new = match self.reading {
            Reading::RateFromBirth => {
                self.timeline.before(position).is_some_and(|before| self.born_ns > ns(before.times.boot_us))
            }
            Reading::RateFromNothing => self.timeline.before(position).is_some(),
            _ => false,
        };
        match (is_new, self.reading) {
            // A group that was away goes on counting, unless it was forgotten.
            (true, Reading::RateFromNothing)
                if builder.last_position != NEVER && builder.last_raw != NA && raw >= builder.last_raw =>
            {
                since(builder.last_raw)
            }
            (true, _) => since(0),
            (false, _) => f64::NAN,
        }
    }

    fn text(&self, builder: &mut SeriesBuilder, position: usize, raw: i64) {
        let is_next = builder.last_position != NEVER && builder.last_position as usize + 1 == position;
        // Another segment numbers its texts anew.
        if is_next && builder.last_raw == raw && position > self.first {
            builder.last_position = position as u32;
            return;
        }
        builder.last_position = position as u32;
        builder.last_raw = raw;
        let text = usize::try_from(raw).ok().and_then(|number| self.words.get(number)).cloned();
        let Some(moment) = self.timeline.moments.get(position - 1) else { return };
        if builder.changes.last().is_none_or(|(_, last)| *last != text) {
            builder.changes.push((moment.t, text));
        }
    }
}
