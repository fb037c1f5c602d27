//! Network namespaces of a stage and the veth pairs between them.

use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::Command;

use super::Stage;
use crate::incident::{Stop, WithPath};
use crate::journal::Undo;
use crate::machine;

/// A network namespace with its loopback up. Its name in `/run/netns` is known to `ip netns`.
#[derive(Clone, Debug)]
pub struct Netns {
    name: String,
}

impl Netns {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn path(&self) -> PathBuf {
        PathBuf::from("/run/netns").join(&self.name)
    }

    pub(super) fn open(&self) -> Result<File, Stop> {
        File::open(self.path()).at(self.path())
    }

    /// Runs `work` inside the namespace, in a thread of its own.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, Stop> {
        let file = self.open()?;
        std::thread::scope(|scope| {
            let entered = scope.spawn(move || {
                // SAFETY: a plain system call on an open file; it moves this thread only.
                if unsafe { libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET) } != 0 {
                    return Err(io::Error::last_os_error());
                }
                Ok(work())
            });
            entered.join().unwrap_or_else(|_| Err(io::Error::other("panicked in a network namespace")))
        })
        .at(self.path())
    }

    /// A command that runs in the namespace: `ip netns exec NAME PROGRAM`.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name, program]);
        command
    }
}

fn ip(words: &[&str]) -> Result<String, Stop> {
    if !machine::have("ip") {
        return Err(Stop::Skipped("ip is not installed".into()));
    }
    machine::run(Command::new("ip").args(words))
}

impl Stage {
    /// A new network namespace under a drawn name.
    pub fn netns(&mut self) -> Result<Netns, Stop> {
        // An existing namespace belongs to somebody else and would be removed at the end.
        let name = loop {
            let name = format!("{}-{}", self.draw.name(), self.draw.uniform(100, 999));
            if !PathBuf::from("/run/netns").join(&name).exists() {
                break name;
            }
        };
        let words = ["ip", "netns", "del", &name].map(str::to_owned);
        let exists = PathBuf::from("/run/netns").join(&name);
        // Deleting a namespace that was never made would be an error.
        let line = format!("[ ! -e {} ] || {}", exists.display(), words.join(" "));
        self.journal.note(Undo::Command(vec!["sh".into(), "-c".into(), line]))?;
        ip(&["netns", "add", &name])?;
        ip(&["-n", &name, "link", "set", "lo", "up"])?;
        Ok(Netns { name })
    }

    /// A veth pair between two namespaces. Returns the devices and addresses of both ends, which
    /// share a /24.
    pub fn veth(&mut self, a: &Netns, b: &Netns) -> Result<(String, String, Ipv4Addr, Ipv4Addr), Stop> {
        let number = self.draw.between(0, 9_999);
        let (dev_a, dev_b) = (format!("v{number}a"), format!("v{number}b"));
        let (x, y) = (self.draw.between(64, 127) as u8, self.draw.between(1, 254) as u8);
        let (addr_a, addr_b) = (Ipv4Addr::new(10, x, y, 1), Ipv4Addr::new(10, x, y, 2));
        ip(&[
            "link", "add", &dev_a, "netns", &a.name, "type", "veth", "peer", "name", &dev_b, "netns", &b.name,
        ])?;
        for (netns, device, address) in [(a, &dev_a, addr_a), (b, &dev_b, addr_b)] {
            ip(&["-n", &netns.name, "addr", "add", &format!("{address}/24"), "dev", device])?;
            ip(&["-n", &netns.name, "link", "set", device, "up"])?;
        }
        Ok((dev_a, dev_b, addr_a, addr_b))
    }
}
