//! What runs by itself and when, of timers and crontabs: whoever looks for the cause of a burst wants to know what was due.

use super::calendar::Calendar;
use super::{Source, cron, timers};

/// Something that runs again and again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    /// The timer, or the crontab with the line: `/etc/crontab:17`.
    pub name: String,
    /// What a timer starts, or what a line of a crontab runs. A command may hold secrets.
    pub unit_or_command: String,
    /// The file that says so.
    pub file: String,
    /// The line in it, from 1.
    pub line: u32,
    /// When, in the words of the file: `*-*-* 06:00` or `25 6 * * *`.
    pub calendar: String,
    /// By how much it may be late on purpose (`RandomizedDelaySec=`), in seconds.
    pub delay_max_s: u64,
}

impl Schedule {
    /// When it is next due after a moment, in nanoseconds since 1970. `offset_s` is how far the clock on the wall is ahead of
    /// UTC. Nothing where it is not due any more, or where the calendar is not understood.
    #[must_use]
    pub fn next_after(&self, ns: i64, offset_s: i32) -> Option<i64> {
        Calendar::parse(&self.calendar).ok()?.next_after(ns, offset_s)
    }
}

/// All that runs by itself at set times: timers that are enabled, and crontabs.
#[must_use]
pub fn schedules(source: &Source<'_>) -> Vec<Schedule> {
    let mut found = timers::schedules(source);
    found.extend(cron::schedules(source));
    found
}
