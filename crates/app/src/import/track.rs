//! One series on its way into frames.

use mitra_model::time::SECOND;
use mitra_model::{Era, Metric, NA, Series};

use super::{RESOLUTION, is_rate};

/// A part of a series: for a rate the interval that the value covers, for a gauge the moment twice.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Piece {
    since: i64,
    until: i64,
    /// Stored units: what the counter grows by over the piece, or the level.
    value: f64,
    /// What the counter has come to at the beginning of the piece.
    before: f64,
}

/// One metric of one thing.
#[derive(Debug, Clone, Default)]
pub struct Track {
    /// The thing's row in the plan.
    pub row: usize,
    /// The metric's column in its table.
    pub column: usize,
    pieces: Vec<Piece>,
    is_rate: bool,
    /// The piece that the last moment asked for lies in, or the next one.
    at: usize,
}

impl Track {
    /// The dated part of a series; `None` where there is none.
    pub fn of(metric: &Metric, series: &Series, row: usize, column: usize) -> Option<Track> {
        let is_rate = is_rate(metric.kind);
        let whole = |t: i64| t - t.rem_euclid(RESOLUTION);
        let mut pieces: Vec<Piece> = Vec::new();
        for (t, dt, value) in series.samples(mitra_model::Span::ALL) {
            if Era::of(t) != Era::Dated {
                continue;
            }
            let until = whole(t);
            let stored = value / metric.unit.scale();
            if !is_rate {
                pieces.push(Piece { since: until, until, value: stored, before: 0.0 });
                continue;
            }
            // A rate whose interval is not known says nothing of how much there was.
            if !dt.is_finite() || dt <= 0.0 || value < 0.0 {
                continue;
            }
            let length = (dt * SECOND as f64) as i64;
            let mut since = whole(t.saturating_sub(length));
            let last = pieces.last().copied();
            if let Some(last) = last {
                // Clocks of tools are a little late now and then: what is nearly the end of the one before is.
                let near = (length / 20).min(SECOND);
                if since < last.until || since - last.until <= near {
                    since = last.until;
                }
            }
            if since >= until {
                continue;
            }
            let before = match last {
                Some(last) if last.until == since => last.before + last.value,
                _ => 0.0,
            };
            let seconds = (until - since) as f64 / SECOND as f64;
            pieces.push(Piece { since, until, value: stored * seconds, before });
        }
        (!pieces.is_empty()).then_some(Track { row, column, pieces, is_rate, at: 0 })
    }

    /// The first moment.
    pub fn first(&self) -> i64 {
        self.pieces.first().map_or(i64::MAX, |piece| piece.since)
    }

    /// Every moment at which a frame is needed.
    pub fn moments(&self) -> impl Iterator<Item = i64> {
        self.pieces.iter().flat_map(|piece| [piece.since, piece.until])
    }

    /// The stretches in which a counter was not measured, between those in which it was.
    pub fn holes(&self) -> impl Iterator<Item = (i64, i64)> {
        let pairs = self.pieces.iter().zip(self.pieces.iter().skip(1));
        pairs.filter(|(a, b)| self.is_rate && a.until < b.since).map(|(a, b)| (a.until, b.since))
    }

    /// The cell at a moment; moments only go on. `None` where it is not measured.
    pub fn cell(&mut self, t: i64) -> Option<i64> {
        while self.pieces.get(self.at).is_some_and(|piece| piece.until < t) {
            self.at += 1;
        }
        let piece = self.pieces.get(self.at).filter(|piece| piece.since <= t)?;
        let share = if self.is_rate && piece.until > piece.since {
            (t - piece.since) as f64 / (piece.until - piece.since) as f64
        } else {
            1.0
        };
        let value = if self.is_rate { piece.before + share * piece.value } else { piece.value };
        let cell = value.round() as i64;
        (value.is_finite() && cell != NA).then_some(cell)
    }

    /// Whether the time right after this moment is covered by a value.
    pub fn covers_beyond(&self, t: i64) -> bool {
        let mut ahead = self.pieces.iter().skip(self.at).take(2);
        self.is_rate && ahead.any(|piece| piece.since <= t && t < piece.until)
    }

    /// Whether nothing comes after this moment.
    pub fn is_over(&self, t: i64) -> bool {
        self.pieces.last().is_none_or(|piece| piece.until <= t)
    }
}
