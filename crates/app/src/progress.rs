//! A progress line on standard error.

use std::io::{IsTerminal, Write};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The line appears after this long.
const PATIENCE: Duration = Duration::from_secs(1);

/// Shows the line if standard error is a terminal, and removes it when dropped.
pub struct Progress {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Progress {
    pub fn new(what: &'static str) -> Self {
        if !std::io::stderr().is_terminal() {
            return Progress { stop: None, thread: None };
        }
        let (stop, stopped) = channel();
        let start = Instant::now();
        let thread = std::thread::Builder::new().name("progress".into()).spawn(move || {
            let mut shown = false;
            while stopped.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
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
