//! How long recordings are kept.
//!
//! What goes by size goes because there has to be room. What goes by age goes because a clock says so, and clocks lie: a
//! dead battery, a wrong `date`, a time server gone mad, and one frame with a date months ahead would make all that was
//! recorded old. So age counts only while the wall clock has agreed with the clock that nobody sets ([`Clocks`]), a file is
//! as old as it can be shown to be ([`Shelf::trim_old`]), and however sure all that is, no more goes in an hour than a
//! few times what an hour brings ([`Hour`]).

use std::collections::VecDeque;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use crate::open::Times;

const HOUR_US: i64 = 3_600_000_000;
/// The wall clock has to agree with boot time for so long before anything is old. A time server that was wrong for longer
/// has been noticed, and a day of recording more or less is cheap.
const PROVEN_US: i64 = 6 * HOUR_US;
/// The kernel slews the clock by no more than this many millionths; what moves it faster sets it.
const SLEW_PPM: i64 = 500;
/// A leap second, and the time between the reading of one clock and of the next.
const SLACK_US: i64 = 1_100_000;
/// For how long the machine slept is told by the same hardware clock that may be wrong, and real time and boot time are
/// both moved by what it says: after a suspend they agree, and prove nothing.
const SUSPEND_US: i64 = 1_000_000;
/// No recording is older than this, whatever its clock said: 2020-01-01, before the first version.
const EPOCH_US: i64 = 1_577_836_800_000_000;
/// An hour of recording makes as much old as it adds. More than that is old after a stop, or where less is to be kept than
/// before; this many times as much catches up, and a clock that lies for good takes weeks for what it takes.
const CATCH_UP: f64 = 4.0;

/// Whether the wall clock has been of one mind with boot time.
#[derive(Debug, Default)]
pub(crate) struct Clocks {
    /// Since when, and the last frame.
    agreed: Option<(Times, Times)>,
}

impl Clocks {
    /// Takes in the times of a frame.
    pub(crate) fn observe(&mut self, now: Times) {
        let since = match self.agreed {
            Some((since, last)) if agrees(since, last, now) => since,
            _ => now,
        };
        self.agreed = Some((since, now));
    }

    /// The times of the last frame, if its wall clock can be believed.
    pub(crate) fn proven(&self) -> Option<Times> {
        let (since, last) = self.agreed?;
        (last.mono_us().saturating_sub(since.mono_us()) >= PROVEN_US).then_some(last)
    }
}

fn agrees(since: Times, last: Times, now: Times) -> bool {
    let is_slewed = |from: Times| {
        let slewed_us = now.mono_us().saturating_sub(from.mono_us()) / 1_000_000 * SLEW_PPM;
        let moved_us = now.real_off_us.saturating_sub(from.real_off_us).saturating_abs();
        moved_us <= slewed_us.saturating_add(SLACK_US)
    };
    let slept_us = last.mono_off_us.saturating_sub(now.mono_off_us).saturating_abs();
    // Against the last frame, so that no step hides among hours of slewing; against the first, so that many small ones do not.
    now.follows(last) && slept_us < SUSPEND_US && is_slewed(last) && is_slewed(since)
}

/// What may go by age in an hour of recording.
#[derive(Debug, Default)]
pub(crate) struct Hour {
    began_us: Option<i64>,
    left: usize,
}

impl Hour {
    /// How many of so many files may go now: of files that are kept for `max_age` an hour makes this share old.
    pub(crate) fn left(&mut self, now: Times, files: usize, max_age: Duration) -> usize {
        let mono_us = now.mono_us();
        let goes_on =
            self.began_us.is_some_and(|began| (began..began.saturating_add(HOUR_US)).contains(&mono_us));
        if !goes_on {
            self.began_us = Some(mono_us);
            let share = CATCH_UP * 3600.0 / max_age.as_secs_f64().max(1.0);
            self.left = (files as f64 * share).ceil() as usize;
        }
        self.left
    }

    pub(crate) fn took(&mut self, files: usize) {
        self.left = self.left.saturating_sub(files);
    }
}

/// When the last frame of a file was recorded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Recorded {
    pub(crate) times: Times,
    /// Whether that was since the machine was started last, so that the clock that nobody sets tells how long ago it was.
    pub(crate) this_boot: bool,
}

impl Recorded {
    /// By the wall clock as it is now known.
    fn at(self, now: Times) -> i64 {
        if self.this_boot && self.times.boot_us <= now.boot_us {
            self.times.boot_us.saturating_add(now.real_off_us)
        } else {
            self.times.real_us()
        }
    }
}

/// A file that will not change any more.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) number: u64,
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
    /// `None` where the file does not say: it is no older than those around it.
    pub(crate) last: Option<Recorded>,
}

/// The closed files, oldest first.
#[derive(Debug)]
pub(crate) struct Shelf {
    files: VecDeque<Kept>,
    bytes: u64,
    /// Nothing that is there was recorded before this.
    floor_us: i64,
}

impl Default for Shelf {
    fn default() -> Self {
        Shelf { files: VecDeque::new(), bytes: 0, floor_us: EPOCH_US }
    }
}

impl Shelf {
    pub(crate) fn add(&mut self, kept: Kept) {
        self.bytes += kept.bytes;
        let at = self.files.partition_point(|file| file.number < kept.number);
        self.files.insert(at, kept);
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn len(&self) -> usize {
        self.files.len()
    }

    /// Removes the oldest files until what is left, with `beside_bytes` for the open log and captures, is no more than
    /// `max_bytes`.
    pub(crate) fn trim(&mut self, beside_bytes: u64, max_bytes: u64) {
        while self.bytes.saturating_add(beside_bytes) > max_bytes && self.remove_first() {}
    }

    /// Removes files whose last frame is older than `max_age`, at most `allowed`, and says how many.
    ///
    /// Their order is the order of recording, whatever the clocks said. So a file whose date lies ahead of now, or before
    /// that of a file recorded earlier, has no date; it is no older than the next one that has.
    pub(crate) fn trim_old(&mut self, now: Times, max_age: Duration, allowed: usize) -> usize {
        let max_age_us = i64::try_from(max_age.as_micros()).unwrap_or(i64::MAX);
        let now_us = now.real_us();
        let mut removed = 0;
        while removed < allowed {
            let credible = |at: &i64| (self.floor_us..=now_us).contains(at);
            let date = |file: &Kept| file.last.map(|last| last.at(now)).filter(credible);
            let first = self.files.iter().enumerate().find_map(|(i, file)| Some((i, date(file)?)));
            let Some((i, at)) = first.filter(|(_, at)| now_us.saturating_sub(*at) > max_age_us) else {
                break;
            };
            if i == 0 {
                self.floor_us = at;
            }
            self.remove_first();
            removed += 1;
        }
        removed
    }

    /// A file that cannot be removed is forgotten: trying again every second helps nobody, and the next start finds it.
    fn remove_first(&mut self) -> bool {
        let Some(file) = self.files.pop_front() else { return false };
        let _ = fs::remove_file(&file.path);
        self.bytes -= file.bytes;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_US: i64 = 24 * HOUR_US;
    /// A real time of day: 2026-09-21.
    const REAL_US: i64 = 1_790_000_000_000_000;

    fn at(boot_us: i64, real_us: i64) -> Times {
        Times { boot_us, real_off_us: real_us - boot_us, interval_us: 1_000_000, ..Times::default() }
    }

    #[test]
    fn a_clock_is_believed_after_hours_in_which_nobody_set_it() {
        let mut clocks = Clocks::default();
        // Slewed as fast as can be, and a leap second.
        let slewed = |s: i64| at(s * 1_000_000, REAL_US + s * 1_000_400 + i64::from(s > 3600) * 1_000_000);
        for second in 0..=6 * 3600 {
            assert_eq!(clocks.proven().is_some(), second > 6 * 3600, "{second}");
            clocks.observe(slewed(second));
        }
        assert!(clocks.proven().is_some());
        // What is set counts from then on, be it by little or by months, ahead or back.
        for (i, step_us) in [10_000_000, -10_000_000, 180 * DAY_US, -180 * DAY_US].into_iter().enumerate() {
            let mut clocks = Clocks { agreed: clocks.agreed };
            let begin = 6 * 3600 + 1;
            for second in 0..=6 * 3600 {
                let times = slewed(begin + second);
                clocks.observe(Times { real_off_us: times.real_off_us + step_us, ..times });
                assert_eq!(clocks.proven().is_some(), second == 6 * 3600, "{i}: {second}");
            }
        }
        // So it does after a suspend, of which only the clock that is in doubt tells.
        let slept = slewed(6 * 3600 + 1);
        let mut clocks = Clocks { agreed: clocks.agreed };
        clocks.observe(Times { boot_us: slept.boot_us + DAY_US, mono_off_us: -DAY_US, ..slept });
        assert!(clocks.proven().is_none());
    }

    fn shelf(dir: &std::path::Path, files: &[Option<Recorded>]) -> Shelf {
        let mut shelf = Shelf::default();
        for (i, last) in files.iter().enumerate() {
            let path = dir.join(i.to_string());
            fs::write(&path, b"x").unwrap();
            shelf.add(Kept { number: i as u64, path, bytes: 1, last: *last });
        }
        shelf
    }

    #[test]
    fn a_file_is_as_old_as_can_be_shown() {
        let dir = tempfile::tempdir().unwrap();
        let now = at(10 * DAY_US, REAL_US);
        let before = |days: i64| Some(Recorded { times: at(0, REAL_US - days * DAY_US), this_boot: false });
        let this_boot = |ago_us: i64, real_us: i64| {
            Some(Recorded { times: at(now.boot_us - ago_us, real_us), this_boot: true })
        };
        let left = |files: &[Option<Recorded>]| {
            let mut shelf = shelf(dir.path(), files);
            shelf.trim_old(now, Duration::from_secs(5 * 86_400), usize::MAX);
            shelf.len()
        };
        assert_eq!(left(&[before(9), before(8), before(4), before(1)]), 2);
        // Its clock stood at 1970; it is no older than what follows.
        assert_eq!(left(&[before(9), Some(Recorded { times: at(0, 5), this_boot: false }), before(4)]), 2);
        assert_eq!(left(&[before(9), before(7000), before(8), before(4)]), 1);
        assert_eq!(left(&[before(9), before(7000)]), 1, "nothing says when");
        assert_eq!(left(&[None, before(4)]), 2);
        assert_eq!(left(&[None, before(9)]), 0);
        assert_eq!(left(&[None]), 1);
        // Its clock was half a year ahead; what follows is not kept for its sake.
        assert_eq!(left(&[before(-180), before(8), before(4)]), 1);
        // Recorded since the machine was started, while its clock was wrong: the other clock knows when.
        assert_eq!(left(&[this_boot(DAY_US, REAL_US - 900 * DAY_US)]), 1);
        assert_eq!(left(&[this_boot(6 * DAY_US, REAL_US + 900 * DAY_US)]), 0);
    }

    #[test]
    fn a_clock_that_lies_for_good_takes_little_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let old = Some(Recorded { times: at(0, REAL_US - 90 * DAY_US), this_boot: false });
        let mut shelf = shelf(dir.path(), &vec![old; 720]);
        let (mut hour, month) = (Hour::default(), Duration::from_secs(30 * 86_400));
        for minute in 0..120 {
            let now = at(minute * 60_000_000, REAL_US);
            let allowed = hour.left(now, shelf.len(), month);
            hour.took(shelf.trim_old(now, month, allowed));
            let gone = 720 - shelf.len();
            assert_eq!(gone, if minute < 60 { 4 } else { 8 }, "one in an hour is what is recorded");
        }
    }
}
