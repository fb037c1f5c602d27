//! The recurring jobs of timers and crontabs: when something is due, for those who look for the
//! cause of a burst.

use super::calendar::Calendar;
use super::{Source, cron, timers};

/// A recurring job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    /// The timer, or the crontab and the line: `/etc/crontab:17`.
    pub name: String,
    /// The unit that a timer starts, or the command of a crontab line. A command may contain
    /// secrets.
    pub unit_or_command: String,
    /// The file that defines the job.
    pub file: String,
    /// The line in that file, from 1.
    pub line: u32,
    /// The calendar expression as in the file: `*-*-* 06:00` or `25 6 * * *`.
    pub calendar: String,
    /// The largest random delay (`RandomizedDelaySec=`) in seconds.
    pub delay_max_s: u64,
}

impl Schedule {
    /// When the job is next due after `ns`, in nanoseconds since 1970. `offset_s` is how far local
    /// time is ahead of UTC. `None` if it is never due again, or if the calendar expression is not
    /// supported.
    #[must_use]
    pub fn next_after(&self, ns: i64, offset_s: i32) -> Option<i64> {
        Calendar::parse(&self.calendar).ok()?.next_after(ns, offset_s)
    }
}

/// All recurring jobs with a calendar: those of enabled timers and of crontabs.
#[must_use]
pub fn schedules(source: &Source<'_>) -> Vec<Schedule> {
    let mut found = timers::schedules(source);
    found.extend(cron::schedules(source));
    found
}
