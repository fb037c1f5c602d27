//! A sign of life on standard error while a command takes its time.

use std::io::{IsTerminal, Write};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Nobody wonders before this.
const PATIENCE: Duration = Duration::from_secs(1);

/// Shows what goes on, after a second, when standard error is a terminal. Dropping it removes the line.
pub struct Progress {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Progress {
    /// Starts to wait.
    #[must_use]
    pub fn new(what: &'static str) -> Self {
        if !std::io::stderr().is_terminal() {
            return Progress { stop: None, thread: None };
        }
        let (stop, stopped) = channel();
        let start = Instant::now();
        let thread = std::thread::Builder::new().name("progress".into()).spawn(move || {
            let mut shown = false;
            while stopped.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                // A terminal that went away is no reason to stop working.
                _ = write!(std::io::stderr(), "\r\x1b[K{what} … {} s", start.elapsed().as_secs());
                shown = true;
            }
            if shown {
                _ = write!(std::io::stderr(), "\r\x1b[K");
            }
        });
        Progress { stop: Some(stop), thread: thread.ok() }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}
