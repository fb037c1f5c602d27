//! Jobs of cron and systemd timers.

/// A line of a crontab or a timer of systemd, and when it was due.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ScheduledJob {
    /// The unit that a timer starts, or the command of a line of a crontab, without secrets.
    pub what: String,
    /// File and line: `/etc/crontab:17`, `/etc/systemd/system/backup.timer:4`.
    pub place: String,
    /// The calendar expression of the file: `25 6 * * *`.
    pub calendar: String,
    /// The randomized delay, at most, in seconds.
    pub delay_max_s: f64,
    /// When it was due inside the window, in nanoseconds since 1970, sorted.
    pub due: Vec<i64>,
}

impl ScheduledJob {
    /// Whether it was due at a moment, within `jitter_s` and the randomized delay.
    #[must_use]
    pub fn is_due(&self, at: i64, jitter_s: f64) -> bool {
        let early = at.saturating_sub(((self.delay_max_s + jitter_s) * 1e9) as i64);
        let late = at.saturating_add((jitter_s * 1e9) as i64);
        let first = self.due.partition_point(|due| *due < early);
        self.due.get(first).is_some_and(|due| *due <= late)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_due_at_its_time_and_a_moment_later() {
        let second = 1_000_000_000;
        let job = ScheduledJob {
            due: vec![60 * second, 120 * second],
            delay_max_s: 5.0,
            ..ScheduledJob::default()
        };
        for (at, due) in
            [(58, false), (59, true), (60, true), (66, true), (67, false), (126, true), (127, false)]
        {
            assert_eq!(job.is_due(at * second, 1.0), due, "{at}");
        }
    }
}
