//! Waits for a moment more exactly than tokio's timer, which counts milliseconds.

use std::io;
use std::os::fd::OwnedFd;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::io::unix::AsyncFd;
use tokio::time::{Instant, sleep_until};

/// What wakes the task that hands requests out.
#[derive(Debug)]
pub struct Alarm(Option<AsyncFd<OwnedFd>>);

impl Alarm {
    /// The kernel's timer, which is exact to microseconds.
    ///
    /// # Errors
    /// If the process has no descriptor left.
    pub fn of_kernel() -> io::Result<Alarm> {
        let fd = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        // SAFETY: an OwnedFd is one descriptor, open as long as it lives, and it lives in the AsyncFd.
        let fd = unsafe { AsyncFd::register(fd) }?;
        Ok(Alarm(Some(fd)))
    }

    /// The clock of tokio, which tests may set.
    #[cfg(test)]
    pub fn of_tokio() -> Alarm {
        Alarm(None)
    }

    /// Returns at the moment, at once if it has passed.
    ///
    /// # Errors
    /// If the kernel refuses the timer.
    pub async fn until(&self, at: Instant) -> io::Result<()> {
        let Some(fd) = &self.0 else {
            sleep_until(at).await;
            return Ok(());
        };
        loop {
            let left = at.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            let once = Itimerspec {
                it_interval: Timespec { tv_sec: 0, tv_nsec: 0 },
                it_value: Timespec::try_from(left).map_err(|_| io::ErrorKind::InvalidInput)?,
            };
            timerfd_settime(fd, TimerfdTimerFlags::empty(), &once)?;
            loop {
                let mut guard = fd.readable().await?;
                let read = guard.try_io(|fd| Ok(rustix::io::read(fd, &mut [0_u8; 8])?));
                match read {
                    Ok(read) => {
                        read?;
                        break;
                    }
                    // An expiry of before.
                    Err(_) => continue,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn it_never_rings_early() {
        let alarm = Alarm::of_kernel().unwrap();
        for us in [0, 1, 150, 1_000, 2_500] {
            let at = Instant::now() + Duration::from_micros(us);
            alarm.until(at).await.unwrap();
            assert!(Instant::now() >= at, "{us}");
        }
    }
}
