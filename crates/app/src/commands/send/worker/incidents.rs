//! An output of incidents and findings: stretches of the archive are explained, and what is new in them is sent.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use anyhow::{Context, Result};
use mitra_archive::Reader;
use mitra_model::Span;
use mitra_model::time::SECOND;
use mitra_send::{Failure, LogRecord, Noted, RECORDS_MAX};

use super::{Delivered, PAUSE_FACTOR, Worker, is_due};
use crate::commands::send::latest::Latest;
use crate::commands::send::records::{self, Look};
use crate::log::log;
use crate::signals::STOP;

/// A longer stretch is looked at in steps of this length. What is explained of each is longer: see `records.rs`.
const STEP_NS: i64 = 300 * SECOND;
/// It pauses so many times as long as it explained: a twentieth of a CPU.
const EXPLAIN_PAUSE_FACTOR: u32 = 20;

impl Worker {
    /// Sends the incidents that are over, and findings, up to the end of what a reader has.
    pub(super) fn send_incidents(&mut self, reader: &Arc<Reader>, latest: &Latest) -> Result<()> {
        let Some(span) = reader.span() else { return Ok(()) };
        let mut from = self.begin(reader, span);
        if !self.is_once && span.until.saturating_sub(from) < self.wanted.every_ns {
            return Ok(());
        }
        let factor = if self.is_once { PAUSE_FACTOR } else { EXPLAIN_PAUSE_FACTOR };
        let settled_ns = records::settled_ns(reader);
        // Only a gap after a sample is known.
        let gaps = reader.gaps_in(Span { since: from.saturating_sub(STEP_NS), until: span.until });
        let gaps = gaps.context("cannot read the archive")?;
        let gaps: Vec<Span> = gaps.iter().map(|gap| gap.span).collect();
        while from < span.until && !STOP.load(Ordering::Relaxed) {
            if let Some(until) = self.too_old(from, span, reader, latest)? {
                from = until;
                continue;
            }
            let (mut look, next) = next(from, span.until, &gaps, settled_ns);
            if look.until <= from && self.sent.open_ns.is_none() {
                from = next;
                continue;
            }
            look.is_last |= self.is_once && look.until == span.until && !reader.is_live();
            let begun = Instant::now();
            let mut sent = self.sent.clone();
            let found = catch_unwind(AssertUnwindSafe(|| {
                records::read(reader, look, &self.wanted, self.output.findings, &mut sent)
            }));
            let took = begun.elapsed();
            let found = found.unwrap_or_else(|_| {
                // The next time it would be the same.
                sent = self.sent.clone();
                self.skips(look);
                Ok(Vec::new())
            });
            let (found, notes): (Vec<LogRecord>, Vec<Noted>) =
                found.context("cannot explain the archive")?.into_iter().unzip();
            match self.deliver_records(&found, &notes, look.until, reader, latest)? {
                Delivered::Taken => {
                    self.sent = sent;
                    // Of a store that nothing was sent to nobody knows whether it takes anything again.
                    if self.failing.is_none() {
                        self.works();
                    }
                    self.advance(reader, look.until);
                    from = next;
                    self.pause(took * factor);
                }
                Delivered::TooOld => {}
                Delivered::Stopped => return Ok(()),
            }
        }
        Ok(())
    }

    /// Counts a stretch that cannot be explained.
    fn skips(&mut self, look: Look) {
        self.position.tally.dropped_s += (look.until.saturating_sub(look.from) / SECOND).unsigned_abs();
        if is_due(&mut self.skipped_said) {
            let (name, all_s) = (&self.output.name, self.position.tally.dropped_s);
            log(&format!(
                "output {name}: a bug: a stretch of time could not be explained and is given up: {all_s} s so far"
            ));
        }
    }

    /// What was taken or refused for good is not sent again, whatever becomes of the rest.
    fn note(&mut self, notes: &[Noted]) {
        notes.iter().for_each(|noted| self.sent.note(noted.clone()));
        self.save();
    }

    fn deliver_records(
        &mut self,
        records: &[LogRecord],
        notes: &[Noted],
        until: i64,
        reader: &Reader,
        latest: &Latest,
    ) -> Result<Delivered> {
        let mut waiting: VecDeque<(&[LogRecord], &[Noted])> =
            records.chunks(RECORDS_MAX).zip(notes.chunks(RECORDS_MAX)).collect();
        while let Some((batch, notes)) = waiting.pop_front() {
            if STOP.load(Ordering::Relaxed) {
                return Ok(Delivered::Stopped);
            }
            let sent = self.channel.as_ref().map(|channel| channel.send_records(batch));
            match sent.context("there is no way to it")? {
                Ok(taken) => {
                    self.takes(batch.len() as u64, taken);
                    self.note(notes);
                }
                // One that a store does not like must not cost the others.
                Err(Failure::Never(_)) if batch.len() > 1 => {
                    batch.chunks(1).zip(notes.chunks(1)).rev().for_each(|one| waiting.push_front(one));
                }
                Err(Failure::Never(why)) => {
                    self.refuses(1, &why);
                    self.backoff.reset();
                    self.note(notes);
                }
                Err(Failure::Later(why, asked)) => {
                    self.waits(&why, asked)?;
                    if self.is_given_up(until, reader, latest) {
                        return Ok(Delivered::TooOld);
                    }
                    waiting.push_front((batch, notes));
                }
            }
        }
        Ok(Delivered::Taken)
    }
}

/// The stretch that is looked at next, and where the one after it begins. Nothing that went on before a long gap is waited for; from
/// inside one it is looked at once more.
fn next(from: i64, end: i64, gaps: &[Span], settled_ns: i64) -> (Look, i64) {
    let until = from.saturating_add(STEP_NS).min(end);
    let is_met = |gap: &&Span| gap.until > from && gap.since < until && gap.until - gap.since > settled_ns;
    match gaps.iter().find(is_met) {
        Some(gap) => {
            let look = Look { from: from.min(gap.since), until: gap.since + 1, is_last: true, settled_ns };
            (look, gap.until)
        }
        None => (Look { from, until, is_last: false, settled_ns }, until),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_ends_where_a_long_gap_begins() {
        let span = |since: i64, until: i64| Span { since: since * SECOND, until: until * SECOND };
        let gaps = [span(1_000, 1_060), span(2_000, 5_000)];
        let next = |from: i64| {
            let (look, next) = next(from, 6_000 * SECOND, &gaps, 60 * SECOND);
            (look.from / SECOND, look.until, look.is_last, next / SECOND)
        };
        assert_eq!(next(900 * SECOND), (900, 1_200 * SECOND, false, 1_200), "a short one");
        assert_eq!(next(1_700 * SECOND), (1_700, 2_000 * SECOND, false, 2_000));
        assert_eq!(next(1_900 * SECOND), (1_900, 2_000 * SECOND + 1, true, 5_000));
        assert_eq!(next(2_000 * SECOND), (2_000, 2_000 * SECOND + 1, true, 5_000));
        assert_eq!(next(2_000 * SECOND + 1), (2_000, 2_000 * SECOND + 1, true, 5_000), "nothing is new");
        assert_eq!(next(4_000 * SECOND), (2_000, 2_000 * SECOND + 1, true, 5_000));
        assert_eq!(next(5_000 * SECOND), (5_000, 5_300 * SECOND, false, 5_300));
        assert_eq!(next(5_900 * SECOND), (5_900, 6_000 * SECOND, false, 6_000), "the end");
    }
}
