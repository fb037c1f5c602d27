//! The notification socket of the service manager: see sd_notify(3).

use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

use crate::recorder::Health;

/// The connection to the service manager, if there is one.
pub struct ServiceManager {
    socket: Option<(UnixDatagram, SocketAddr)>,
    watchdog: Option<Duration>,
    last_ping: Instant,
    /// The status while all is well.
    status: String,
    trouble: Option<String>,
}

impl ServiceManager {
    /// Reads `NOTIFY_SOCKET` and `WATCHDOG_USEC`.
    pub fn from_env() -> Self {
        let socket = std::env::var_os("NOTIFY_SOCKET").and_then(|name| connect(&name));
        let watchdog =
            std::env::var("WATCHDOG_USEC").ok().and_then(|us| us.parse().ok()).map(Duration::from_micros);
        // The variable may be meant for a parent process.
        let mine = std::env::var("WATCHDOG_PID").map_or(true, |pid| pid == std::process::id().to_string());
        ServiceManager {
            socket,
            watchdog: watchdog.filter(|_| mine),
            last_ping: Instant::now(),
            status: String::new(),
            trouble: None,
        }
    }

    fn send(&self, message: &str) {
        if let Some((socket, address)) = &self.socket {
            // A service manager that does not listen does not stop the recording.
            _ = socket.send_to_addr(message.as_bytes(), address);
        }
    }

    /// Reports readiness. A watchdog interval that is shorter than three samples is extended.
    pub fn ready(&mut self, status: &str, interval: Duration) {
        let patience = interval.saturating_mul(3);
        let longer = match self.watchdog {
            Some(watchdog) if watchdog < patience => {
                self.watchdog = Some(patience);
                format!("\nWATCHDOG_USEC={}", patience.as_micros())
            }
            _ => String::new(),
        };
        self.status = one_line(status);
        self.send(&format!("READY=1\nSTATUS={}{longer}", self.status));
    }

    /// Reports the state after a sample.
    ///
    /// Without samples the watchdog gets no ping, and the service manager restarts the recorder. A
    /// disk that takes nothing is only reported: a new recorder would find the same disk and lose
    /// the frames that wait in memory.
    pub fn note(&mut self, health: &Health) {
        let trouble = match health {
            Health::Well => None,
            Health::DiskBehind(why) | Health::Broken(why) => Some(one_line(why)),
        };
        if trouble != self.trouble {
            match &trouble {
                Some(trouble) => self.send(&format!("STATUS={trouble}")),
                None => self.send(&format!("STATUS={}", self.status)),
            }
            self.trouble = trouble;
        }
        if matches!(health, Health::Broken(_)) {
            return;
        }
        if let Some(watchdog) = self.watchdog
            && self.last_ping.elapsed() >= watchdog / 4
        {
            self.last_ping = Instant::now();
            self.send("WATCHDOG=1");
        }
    }

    pub fn stopping(&self) {
        self.send("STOPPING=1");
    }
}

/// A line break would end the message.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn connect(name: &OsStr) -> Option<(UnixDatagram, SocketAddr)> {
    let address = match name.as_bytes().strip_prefix(b"@") {
        Some(abstract_name) => SocketAddr::from_abstract_name(abstract_name),
        None => SocketAddr::from_pathname(name),
    };
    Some((UnixDatagram::unbound().ok()?, address.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recorder_that_takes_no_samples_is_not_alive_and_one_whose_disk_is_full_is() {
        let dir = tempfile::tempdir().unwrap();
        let manager = UnixDatagram::bind(dir.path().join("notify")).unwrap();
        manager.set_nonblocking(true).unwrap();
        let mut manager_side = ServiceManager {
            socket: connect(dir.path().join("notify").as_os_str()),
            watchdog: Some(Duration::ZERO),
            last_ping: Instant::now(),
            status: "recording".into(),
            trouble: None,
        };
        let mut said = |health: Health| {
            manager_side.note(&health);
            let (mut all, mut buffer) = (Vec::new(), [0; 256]);
            while let Ok(n) = manager.recv(&mut buffer) {
                all.push(String::from_utf8_lossy(&buffer[..n]).into_owned());
            }
            all
        };
        assert_eq!(said(Health::Well), ["WATCHDOG=1"]);
        let full = || Health::DiskBehind("no space\nREADY=1".into());
        assert_eq!(said(full()), ["STATUS=no space READY=1", "WATCHDOG=1"]);
        assert_eq!(said(full()), ["WATCHDOG=1"]);
        assert_eq!(said(Health::Broken("no sample".into())), ["STATUS=no sample"]);
        assert!(said(Health::Broken("no sample".into())).is_empty());
        assert_eq!(said(Health::Well), ["STATUS=recording", "WATCHDOG=1"]);
    }
}
