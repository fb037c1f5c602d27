//! The service manager's notification socket, spoken by hand: see sd_notify(3).

use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

/// The service manager, if there is one.
pub struct Notify {
    socket: Option<(UnixDatagram, SocketAddr)>,
    watchdog: Option<Duration>,
    last_ping: Instant,
}

impl Notify {
    /// Looks at `NOTIFY_SOCKET` and `WATCHDOG_USEC`.
    #[must_use]
    pub fn from_env() -> Self {
        let socket = std::env::var_os("NOTIFY_SOCKET").and_then(|name| connect(&name));
        let watchdog =
            std::env::var("WATCHDOG_USEC").ok().and_then(|us| us.parse().ok()).map(Duration::from_micros);
        // The variable may be meant for a parent.
        let mine = std::env::var("WATCHDOG_PID").map_or(true, |pid| pid == std::process::id().to_string());
        Notify { socket, watchdog: watchdog.filter(|_| mine), last_ping: Instant::now() }
    }

    fn send(&self, message: &str) {
        if let Some((socket, address)) = &self.socket {
            // A service manager that does not listen is no reason to stop recording.
            _ = socket.send_to_addr(message.as_bytes(), address);
        }
    }

    /// The recorder is at work. A watchdog that expects a sign sooner than a sample can come is asked for patience.
    pub fn ready(&mut self, status: &str, interval: Duration) {
        let patience = interval.saturating_mul(3);
        let longer = match self.watchdog {
            Some(watchdog) if watchdog < patience => {
                self.watchdog = Some(patience);
                format!("\nWATCHDOG_USEC={}", patience.as_micros())
            }
            _ => String::new(),
        };
        self.send(&format!("READY=1\nSTATUS={status}{longer}"));
    }

    /// A sample was taken.
    pub fn alive(&mut self) {
        if let Some(watchdog) = self.watchdog
            && self.last_ping.elapsed() >= watchdog / 4
        {
            self.last_ping = Instant::now();
            self.send("WATCHDOG=1");
        }
    }

    /// The recorder is about to end.
    pub fn stopping(&self) {
        self.send("STOPPING=1");
    }
}

fn connect(name: &OsStr) -> Option<(UnixDatagram, SocketAddr)> {
    let address = match name.as_bytes().strip_prefix(b"@") {
        Some(abstract_name) => SocketAddr::from_abstract_name(abstract_name),
        None => SocketAddr::from_pathname(name),
    };
    Some((UnixDatagram::unbound().ok()?, address.ok()?))
}
