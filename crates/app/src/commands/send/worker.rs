//! One output: from where it is to the end of the archive, whatever its store does.

mod incidents;

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use mitra_archive::Reader;
use mitra_diagnose::changes;
use mitra_model::Span;
use mitra_model::time::SECOND;
use mitra_send::{
    BATCH_SAMPLES, Backoff, Batch, Channel, Failure, Kind, Output, Position, Sent, Series, Taken, Tally,
    batches,
};

use super::hours::{self, HOUR_NS};
use super::latest::Latest;
use super::records::WINDOW_NS_MAX;
use super::stretch::Wanted;
use crate::log::log;
use crate::signals::STOP;

const LOOK_EVERY: Duration = Duration::from_millis(100);
/// What an output that catches up sends in a second: a day of ten seconds and a thousand series in seven minutes.
const SAMPLES_PER_S: f64 = 20_000.0;
/// It pauses so many times as long as it read: a quarter of a CPU.
const PAUSE_FACTOR: u32 = 3;
/// Samples that are read at once.
const SAMPLES_AT_ONCE: usize = 100_000;
/// Intervals that are read at once, and how much of the recording.
const INTERVALS_MAX: i64 = 60;
const READ_NS: i64 = 600 * SECOND;
/// The same where each task is read.
const READ_TASKS_NS: i64 = 60 * SECOND;
/// `--once` gives a store up that has taken nothing for so long.
const ONCE_WITHIN: Duration = Duration::from_secs(120);
/// A request that a store refuses is halved down to so many series.
const SERIES_LEAST: usize = 100;
/// What is not sent is said as often.
const SAID_EVERY: Duration = Duration::from_secs(3600);

/// One output.
pub struct Worker {
    pub output: Output,
    wanted: Wanted,
    position: Position,
    /// Of incidents and findings; empty for samples.
    sent: Sent,
    /// `None` for Parquet.
    channel: Option<Channel>,
    backoff: Backoff,
    is_once: bool,
    /// How many intervals are read at once: grows while they have few samples.
    intervals: i64,
    /// Since when nothing is taken.
    failing: Option<Instant>,
    refused_said: Option<Instant>,
    dropped_said: Option<Instant>,
    deleted_said: Option<Instant>,
    skipped_said: Option<Instant>,
    /// What was said last of why nothing is taken.
    said: Option<String>,
    unsaved: Option<String>,
}

/// What became of a stretch.
enum Delivered {
    Taken,
    /// It lies further back than `keep` now.
    TooOld,
    /// The program ends.
    Stopped,
}

impl Worker {
    pub fn new(output: Output, position: Position, sent: Sent, is_once: bool) -> Result<Self, String> {
        let channel = (output.kind != Kind::Parquet).then(|| Channel::open(&output)).transpose()?;
        Ok(Worker {
            wanted: Wanted::of(&output),
            output,
            position,
            sent,
            channel,
            backoff: Backoff::default(),
            is_once,
            intervals: 1,
            failing: None,
            refused_said: None,
            dropped_said: None,
            deleted_said: None,
            skipped_said: None,
            said: None,
            unsaved: None,
        })
    }

    pub fn tally(&self) -> Tally {
        self.position.tally
    }

    /// How much of the recording it may want, or has to count.
    pub fn back(&self) -> Duration {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let position = u64::try_from(self.position.until_ns.unwrap_or(i64::MAX)).unwrap_or(0);
        let missed = self.output.keep.max(now.saturating_sub(Duration::from_nanos(position)));
        // An explanation reads what came before, and what was changed in the day before that.
        let before_ns = if self.output.kind.is_of_incidents() { WINDOW_NS_MAX + changes::BACK_NS } else { 0 };
        missed + Duration::from_nanos(before_ns.unsigned_abs())
    }

    /// Sends what is recorded, until the program ends.
    pub fn follow(mut self, latest: &Latest) {
        let mut seen = 0;
        while let Some(reader) = latest.newer_than(&mut seen) {
            // A bug in one stretch must not end the output.
            let sent = catch_unwind(AssertUnwindSafe(|| self.send(&reader, latest)));
            if let Err(error) =
                sent.unwrap_or_else(|_| bail!("a bug: this stretch of time could not be sent"))
            {
                let why = format!("{error:#}");
                self.fails(&why, "");
                let pause = self.backoff.next(None);
                self.pause(pause);
            }
        }
    }

    /// Sends everything that a reader has.
    pub fn send(&mut self, reader: &Arc<Reader>, latest: &Latest) -> Result<()> {
        match self.output.folder.clone() {
            Some(folder) => self.send_hours(&folder, reader),
            None if self.output.kind.is_of_incidents() => self.send_incidents(reader, latest),
            None => self.send_samples(reader, latest),
        }
    }

    fn keep_ns(&self) -> i64 {
        i64::try_from(self.output.keep.as_nanos()).unwrap_or(i64::MAX)
    }

    /// Where it goes on. The first time that is the end of the recording, and `keep` before it if it is sent once.
    fn start(&self, reader: &Reader, span: Span) -> i64 {
        match self.position.at(|boot| reader.offset_of(boot)) {
            Some(known) if self.output.folder.is_some() => hours::begin(known),
            Some(known) => known,
            None if self.is_once => self.begin_of(span.until.saturating_sub(self.keep_ns()).max(span.since)),
            None => self.begin_of(span.until),
        }
    }

    /// Where what has this moment in it begins: files are of whole hours.
    fn begin_of(&self, t: i64) -> i64 {
        if self.output.folder.is_some() { hours::of(t) } else { t }
    }

    /// Where it goes on within the recording, which is kept the first time.
    fn begin(&mut self, reader: &Reader, span: Span) -> i64 {
        let boot = self.sent.boot_id().to_owned();
        if let Some(offset) = reader.offset_of(&boot) {
            self.sent.on_clock(&boot, offset);
        }
        let from = self.start(reader, span);
        if self.position.until_ns.is_none() && !self.is_once {
            self.advance(reader, from);
        }
        let (first, last) = (self.begin_of(span.since), self.begin_of(span.until));
        if (first..=span.until).contains(&from) {
            return from;
        }
        if from < first {
            self.misses(Span { since: from, until: span.since });
            self.advance(reader, first);
            return first;
        }
        let name = &self.output.name;
        log(&format!("output {name}: its position lies after the end of the recording; it goes on there"));
        self.advance(reader, last);
        last
    }

    /// Counts what the archive deleted before it was sent. Nobody knows any more how much of it was recorded.
    fn misses(&mut self, deleted: Span) {
        let lost_s = deleted.seconds();
        self.position.tally.dropped_s += lost_s.round() as u64;
        if lost_s >= 1.0 && is_due(&mut self.deleted_said) {
            let (name, all_s) = (&self.output.name, self.position.tally.dropped_s);
            log(&format!(
                "output {name}: the archive deleted {lost_s:.0} s before they were sent: {all_s} s are given up so far"
            ));
        }
    }

    fn advance(&mut self, reader: &Reader, until: i64) {
        // The beginning of the recording is on the clock of the first boot in it.
        let first = reader.span().map_or(until, |span| span.since.saturating_add(1));
        let clock = reader.clock_at(until.max(first));
        let (boot, offset) = clock.unwrap_or(("", 0));
        self.position.advance(until, boot, offset);
        if clock.is_some() {
            self.sent.on_clock(boot, offset);
        }
        self.save();
    }

    fn send_samples(&mut self, reader: &Arc<Reader>, latest: &Latest) -> Result<()> {
        let Some(span) = reader.span() else { return Ok(()) };
        let every = self.wanted.every_ns;
        // An interval is over when there is a sample after it.
        let end = if self.is_once { span.until } else { (span.until - 1).div_euclid(every) * every };
        let mut from = self.begin(reader, span);
        while from < end && !STOP.load(Ordering::Relaxed) {
            if let Some(until) = self.too_old(from, span, reader, latest)? {
                from = until;
                continue;
            }
            let until = self.until(from, end);
            let begun = Instant::now();
            let part = Span { since: from, until };
            let series = self.wanted.read(reader, part).context("cannot read the archive")?;
            let took = begun.elapsed();
            self.adapt(&series, part);
            match self.deliver(&series, until, reader, latest)? {
                Delivered::Taken => {
                    self.advance(reader, until);
                    from = until;
                    self.pause(took * PAUSE_FACTOR);
                }
                Delivered::TooOld => {}
                Delivered::Stopped => return Ok(()),
            }
        }
        Ok(())
    }

    /// The end of what is read at once.
    fn until(&self, from: i64, end: i64) -> i64 {
        let every = self.wanted.every_ns;
        let most_ns = if self.wanted.is_of_tasks() { READ_TASKS_NS } else { READ_NS };
        let intervals = self.intervals.min(most_ns / every).max(1);
        self.wanted.interval(from).saturating_add(intervals).saturating_mul(every).min(end)
    }

    /// So that memory does not grow with how many series there are.
    fn adapt(&mut self, series: &[Series], part: Span) {
        let samples: usize = series.iter().map(|series| series.samples.len()).sum();
        let intervals = self.wanted.interval(part.until - 1) - self.wanted.interval(part.since) + 1;
        let room = SAMPLES_AT_ONCE as i64 / (samples as i64 / intervals.max(1)).max(1);
        self.intervals = room.min(self.intervals * 2).clamp(1, INTERVALS_MAX);
    }

    /// Gives up what lies further back than `keep`. Returns its end; `None` if nothing does.
    fn too_old(&mut self, from: i64, span: Span, reader: &Reader, latest: &Latest) -> Result<Option<i64>> {
        let limit = latest.until_on(reader).unwrap_or(span.until).saturating_sub(self.keep_ns());
        if from >= limit {
            return Ok(None);
        }
        self.give_up(reader, Span { since: from, until: limit }).map(Some)
    }

    /// Whether all of what ends here lies further back than `keep` by now.
    fn is_given_up(&self, until: i64, reader: &Reader, latest: &Latest) -> bool {
        until < latest.until_on(reader).unwrap_or(i64::MIN).saturating_sub(self.keep_ns())
    }

    /// Counts a stretch that is not sent any more, without the time in which nothing was recorded. Returns its end.
    fn give_up(&mut self, reader: &Reader, span: Span) -> Result<i64> {
        let recorded = reader.span().and_then(|all| all.intersect(span));
        let gaps = recorded.map_or(Ok(Vec::new()), |span| reader.gaps_in(span));
        let gaps = gaps.context("cannot read the archive")?;
        let missing =
            gaps.iter().filter_map(|gap| gap.span.intersect(recorded?)).map(Span::seconds).sum::<f64>();
        let lost_s = recorded.map_or(0.0, Span::seconds) - missing;
        self.position.tally.dropped_s += lost_s.max(0.0).round() as u64;
        if lost_s >= 1.0 && is_due(&mut self.dropped_said) {
            let (name, keep) = (&self.output.name, self.output.keep.as_secs());
            let all_s = self.position.tally.dropped_s;
            log(&format!("output {name}: what lies more than {keep} s back is given up: {all_s} s so far"));
        }
        let until = span.until.min(reader.span().map_or(span.until, |all| all.until));
        self.advance(reader, until);
        Ok(until)
    }

    fn deliver(
        &mut self,
        series: &[Series],
        until: i64,
        reader: &Reader,
        latest: &Latest,
    ) -> Result<Delivered> {
        let every = self.wanted.every_ns;
        let mut waiting: VecDeque<Batch> = batches(series, every, BATCH_SAMPLES).into();
        while let Some((end, batch)) = waiting.pop_front() {
            if STOP.load(Ordering::Relaxed) {
                return Ok(Delivered::Stopped);
            }
            let count: u64 = batch.iter().map(|series| series.samples.len() as u64).sum();
            let sent = self.channel.as_ref().map(|channel| channel.send(&batch));
            match sent.context("there is no way to it")? {
                Ok(taken) => self.takes(count, taken),
                Err(Failure::Never(why)) => {
                    // Prometheus takes nothing of a request with a sample that it has already, after a restart: each interval
                    // by itself was taken or was not.
                    let intervals = batches(&batch, every, 1);
                    if intervals.len() > 1 {
                        for (own_end, interval) in intervals.into_iter().rev() {
                            waiting.push_front((own_end.min(end), interval));
                        }
                        continue;
                    }
                    // What a store does not like of some series, or that they are too many, must not cost the others.
                    if batch.len() > SERIES_LEAST {
                        let mut first = batch;
                        let second = first.split_off(first.len() / 2);
                        waiting.push_front((end, second));
                        // No position lies between them.
                        waiting.push_front((i64::MAX, first));
                        continue;
                    }
                    self.refuses(count, &why);
                    self.backoff.reset();
                }
                Err(Failure::Later(why, asked)) => {
                    self.waits(&why, asked)?;
                    if self.is_given_up(until, reader, latest) {
                        return Ok(Delivered::TooOld);
                    }
                    waiting.push_front((end, batch));
                    continue;
                }
            }
            if end < until {
                self.advance(reader, end);
            }
            self.pause(Duration::from_secs_f64(count as f64 / SAMPLES_PER_S));
        }
        Ok(Delivered::Taken)
    }

    /// Counts what a store has taken of so many.
    fn takes(&mut self, count: u64, taken: Taken) {
        let refused = taken.refused.map_or(0, |(refused, why)| {
            let refused = refused.min(count);
            self.refuses(refused, &why);
            refused
        });
        self.position.tally.sent += count - refused;
        self.works();
    }

    /// Waits until a store may be tried again. `--once` gives it up some time.
    fn waits(&mut self, why: &str, asked: Option<Duration>) -> Result<()> {
        let since = *self.failing.get_or_insert_with(Instant::now);
        if self.is_once && since.elapsed() > ONCE_WITHIN {
            bail!("{why}");
        }
        self.position.tally.failed += 1;
        let pause = self.backoff.next(asked);
        self.fails(why, &format!("; tried again in {:.1} s", pause.as_secs_f64()));
        self.pause(pause);
        Ok(())
    }

    fn send_hours(&mut self, folder: &Path, reader: &Arc<Reader>) -> Result<()> {
        let Some(span) = reader.span() else { return Ok(()) };
        let mut hour = self.begin(reader, span);
        // An hour of which a part may be kept is kept.
        let first = hours::of(span.until.saturating_sub(self.keep_ns()));
        if hour < first {
            hour = self.give_up(reader, Span { since: hour, until: first })?;
        }
        while hour < span.until && !STOP.load(Ordering::Relaxed) {
            let is_over = hour.saturating_add(HOUR_NS) < span.until;
            if !is_over && !self.is_once {
                break;
            }
            let begun = Instant::now();
            self.position.tally.sent += hours::write(folder, reader, &self.wanted.metrics, hour)?;
            self.works();
            if !is_over {
                // It is written anew when it is whole.
                break;
            }
            hour = hour.saturating_add(HOUR_NS);
            self.advance(reader, hour);
            self.pause(begun.elapsed() * PAUSE_FACTOR);
        }
        Ok(())
    }

    /// What is sent, in words.
    pub fn what(&self) -> &'static str {
        if self.output.kind.is_of_incidents() { "records" } else { "samples" }
    }

    fn works(&mut self) {
        self.backoff.reset();
        let was_failing = self.failing.take().is_some();
        self.position.last_error = None;
        self.said = None;
        if was_failing {
            let Tally { sent, refused, dropped_s, .. } = self.position.tally;
            let (name, what) = (&self.output.name, self.what());
            log(&format!(
                "output {name}: takes {what} again; {sent} sent so far, {refused} refused, {dropped_s} s given up"
            ));
        }
    }

    /// Says why nothing is taken, where it did not say so already.
    fn fails(&mut self, why: &str, then: &str) {
        self.failing.get_or_insert_with(Instant::now);
        if self.said.as_deref() == Some(why) {
            return;
        }
        self.said = Some(why.to_owned());
        self.position.last_error = Some(why.to_owned());
        log(&format!("output {}: {why}{then}; {} wait in the archive", self.output.name, self.what()));
        self.save();
    }

    fn refuses(&mut self, count: u64, why: &str) {
        self.position.tally.refused += count;
        if is_due(&mut self.refused_said) {
            let (name, what, all) = (&self.output.name, self.what(), self.position.tally.refused);
            log(&format!("output {name}: {what} are refused and not sent again, {all} so far: {why}"));
        }
    }

    /// A full disk is no reason to send nothing; after a restart some is sent twice. What was sent is noted first, or after a crash
    /// between the two it would be sent twice, too.
    fn save(&mut self) {
        let saved = self.sent.save().and_then(|()| self.position.save());
        let error = saved.err().map(|error| error.to_string());
        if error != self.unsaved {
            if let Some(why) = &error {
                log(&format!("output {}: its position cannot be written: {why}", self.output.name));
            }
            self.unsaved = error;
        }
    }

    fn pause(&self, pause: Duration) {
        let end = Instant::now() + pause;
        while Instant::now() < end && !STOP.load(Ordering::Relaxed) {
            std::thread::sleep(LOOK_EVERY.min(end.saturating_duration_since(Instant::now())));
        }
    }
}

/// Whether it is to be said again.
fn is_due(said: &mut Option<Instant>) -> bool {
    let is_due = said.is_none_or(|said| said.elapsed() > SAID_EVERY);
    if is_due {
        *said = Some(Instant::now());
    }
    is_due
}
