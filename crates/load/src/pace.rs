//! Hands each request out when it is due.

use std::rc::Rc;
use std::time::Duration;

use tokio::time::Instant;

use crate::{Alarm, Error, Replay, Schedule, Target};

/// Requests that are overdue are handed out so many at a time, so that answers are read in between.
const BATCH: u32 = 64;

/// A request that is due.
#[derive(Debug, Clone)]
pub struct Ticket {
    /// When; its latency counts from here.
    pub due: Instant,
    /// What to ask for.
    pub target: Rc<Target>,
}

/// Where the times and targets come from.
pub enum Source {
    /// A schedule, and targets in turns.
    Timed {
        /// When.
        schedule: Schedule,
        /// What; one at least.
        targets: Vec<Rc<Target>>,
        /// The number of the next one.
        next: u64,
    },
    /// A log, up to this time.
    Logged(Box<Replay>, Option<Duration>),
}

impl Source {
    fn next(&mut self) -> Result<Option<(Duration, Rc<Target>)>, Error> {
        match self {
            Source::Timed { schedule, targets, next } => {
                let Some(due) = schedule.due(*next) else { return Ok(None) };
                let place = (*next % targets.len().max(1) as u64) as usize;
                *next += 1;
                Ok(targets.get(place).map(|target| (due, Rc::clone(target))))
            }
            Source::Logged(replay, length) => {
                Ok(replay.next_request()?.filter(|(due, _)| length.is_none_or(|length| *due < length)))
            }
        }
    }
}

/// Waits for each request's time and hands it out, with how late that was. `hand_out` returns whether it had to wait
/// for room; the time that took is not counted as late.
///
/// # Errors
/// If the timer or the log fails.
pub async fn pace(
    source: &mut Source,
    start: Instant,
    alarm: &Alarm,
    mut hand_out: impl AsyncFnMut(Ticket, Duration) -> bool,
) -> Result<(), Error> {
    let (mut free_since, mut overdue) = (start, 0);
    while let Some((since_start, target)) = source.next()? {
        let Some(due) = start.checked_add(since_start) else { return Ok(()) };
        let mut now = Instant::now();
        if now < due {
            alarm.until(due).await?;
            (now, overdue) = (Instant::now(), 0);
        } else {
            overdue += 1;
            if overdue % BATCH == 0 {
                tokio::task::yield_now().await;
                now = Instant::now();
            }
        }
        let late = now.saturating_duration_since(due.max(free_since));
        if hand_out(Ticket { due, target }, late).await {
            free_since = Instant::now();
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::Targets;

    /// The schedule is computed from the start, so that a day later nothing has drifted.
    #[tokio::test(start_paused = true)]
    async fn a_day_at_a_hundred_a_second_does_not_drift() {
        let mut targets = Targets::new();
        targets.add("http://127.0.0.1:1/").unwrap();
        let day = Duration::from_secs(86_400);
        let schedule = Schedule { shape: "100/s".parse().unwrap(), length: day };
        let mut source = Source::Timed { schedule, targets: targets.all, next: 0 };
        let start = Instant::now();
        let (mut n, mut latest) = (0_u64, Duration::ZERO);
        pace(&mut source, start, &Alarm::of_tokio(), async |ticket: Ticket, late| {
            assert_eq!(ticket.due, start + Duration::from_millis(10 * n));
            n += 1;
            latest = latest.max(late);
            false
        })
        .await
        .unwrap();
        assert_eq!(n, 8_640_000);
        assert!(latest <= Duration::from_millis(1), "{latest:?}");
        assert_eq!(start.elapsed().as_secs(), day.as_secs() - 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_log_is_replayed_with_its_own_timing() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        for second in [0, 1, 4, 59] {
            writeln!(file, "a - - [27/Nov/2026:10:00:{second:02} +0000] \"GET /{second} HTTP/1.1\" 200 1")
                .unwrap();
        }
        for (speed, length, wanted) in [
            (1.0, None, vec![0, 1000, 4000, 59_000]),
            (4.0, None, vec![0, 250, 1000, 14_750]),
            (1.0, Some(4), vec![0, 1000]),
        ] {
            let replay = Replay::open(file.path(), speed).unwrap();
            let mut source = Source::Logged(Box::new(replay), length.map(Duration::from_secs));
            let (start, mut times) = (Instant::now(), Vec::new());
            pace(&mut source, start, &Alarm::of_tokio(), async |_, _| {
                times.push(start.elapsed().as_millis());
                false
            })
            .await
            .unwrap();
            assert_eq!(times, wanted);
        }
    }

    /// Who waits for room in the queue makes the others overdue, and not the generator late.
    #[tokio::test(start_paused = true)]
    async fn a_full_queue_is_not_counted_as_late() {
        let mut targets = Targets::new();
        targets.add("http://127.0.0.1:1/").unwrap();
        let schedule = Schedule { shape: "10/s".parse().unwrap(), length: Duration::from_secs(2) };
        let mut source = Source::Timed { schedule, targets: targets.all, next: 0 };
        let (start, mut n) = (Instant::now(), 0);
        pace(&mut source, start, &Alarm::of_tokio(), async |ticket: Ticket, late| {
            n += 1;
            assert_eq!(ticket.due, start + Duration::from_millis(100 * (n - 1)));
            assert!(late <= Duration::from_millis(1), "{n}: {late:?}");
            if n == 3 {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            n == 3
        })
        .await
        .unwrap();
        assert_eq!(n, 20);
    }
}
