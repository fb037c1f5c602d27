//! Holders of locks that others wait for.

use std::fs::OpenOptions;
use std::io;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use rustix::fs::{FlockOperation, fcntl_lock, flock};

use super::Role;
use super::words::number;

/// The roles of this file.
pub const ROLES: &[Role] = &[("hold-lock", hold_lock)];

/// `flock|fcntl PATH GO HOLD_MS EVERY_MS`: once the file GO exists, locks a file for HOLD_MS in
/// each period.
fn hold_lock(argument: &str) -> io::Result<()> {
    let words: Vec<&str> = argument.split(' ').collect();
    let [kind, path, go, ..] = words[..] else { return Err(io::ErrorKind::InvalidInput.into()) };
    let hold = Duration::from_millis(number(&words, 3, 1_000));
    let every = Duration::from_millis(number(&words, 4, 1_000));
    let file = OpenOptions::new().create(true).append(true).open(path)?;
    let set = |operation| match kind {
        "flock" => flock(&file, operation),
        _ => fcntl_lock(&file, operation),
    };
    while !Path::new(go).exists() {
        sleep(Duration::from_millis(5));
    }
    loop {
        set(FlockOperation::LockExclusive)?;
        sleep(hold);
        set(FlockOperation::Unlock)?;
        sleep(every.saturating_sub(hold));
    }
}
