//! What runs by itself at set times: lines of crontabs and timers of systemd.

/// Something that runs by itself, and when it was due.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Timetable {
    /// The unit that a timer starts, or the command of a line of a crontab, without secrets.
    pub what: String,
    /// Where it stands: `/etc/crontab:17`, `/etc/systemd/system/backup.timer:4`.
    pub place: String,
    /// When, in the words of the file: `25 6 * * *`.
    pub calendar: String,
    /// By how much it may be late on purpose, in seconds.
    pub delay_max_s: f64,
    /// When it was due in the time that is looked at, in nanoseconds since 1970, in order.
    pub due: Vec<i64>,
}

impl Timetable {
    /// Whether it was due at a moment, give or take `jitter_s`, the delay that it may have on purpose included.
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
        let table =
            Timetable { due: vec![60 * second, 120 * second], delay_max_s: 5.0, ..Timetable::default() };
        for (at, due) in
            [(58, false), (59, true), (60, true), (66, true), (67, false), (126, true), (127, false)]
        {
            assert_eq!(table.is_due(at * second, 1.0), due, "{at}");
        }
    }
}
