//! Small programs with one habit each: those that suffer, and some of those that make trouble.
//!
//! They are this program started again with [`ROLE`] set, under a process name of their own. A role that suffers
//! measures each of its operations with a [`Meter`]. One file per topic; each has a list of its roles.

mod cpu;
mod files;
mod hoard;
mod http;
mod locks;
mod masses;
mod memory;
mod meter;
mod mysql;
mod postgres;
mod random;
mod redis;
mod serve;
mod slow_disk;
mod sql;
mod storage;
mod storm;
mod tcp;
mod udp;
mod words;

use std::hint::black_box;
use std::io;

pub use memory::HOLDS;
pub use meter::{Latency, Meter, latency};
pub use random::XorShift;
pub use slow_disk::IMAGE;

/// Names the role, when this program is started as one of its own victims.
pub const ROLE: &str = "MITRA_LAB_ROLE";
/// The process name to take.
pub const NAME: &str = "MITRA_LAB_NAME";
/// The one argument of a role.
pub const ARGUMENT: &str = "MITRA_LAB_ARGUMENT";
/// Where a role writes what it measures.
pub const LOG: &str = "MITRA_LAB_LOG";
/// The number that a role's [`XorShift`] begin with.
pub const SEED: &str = "MITRA_LAB_SEED";
const PAGE: usize = 4096;

/// Where a page of a device is read to past the page cache.
#[repr(align(4096))]
struct AlignedPage([u8; PAGE]);

/// So many turns of work for the CPU, and none for memory.
fn compute(turns: u64) -> u64 {
    (0..turns).fold(1_u64, |a, i| black_box(a.wrapping_mul(i | 1)))
}

/// A name and the function that plays it, for ever: the parent ends it.
pub type Role = (&'static str, fn(&str) -> io::Result<()>);

/// All roles, by file.
const ROLES: &[&[Role]] = &[
    cpu::ROLES,
    files::ROLES,
    hoard::ROLES,
    http::ROLES,
    locks::ROLES,
    masses::ROLES,
    memory::ROLES,
    mysql::ROLES,
    postgres::ROLES,
    redis::ROLES,
    serve::ROLES,
    slow_disk::ROLES,
    storage::ROLES,
    storm::ROLES,
    tcp::ROLES,
    udp::ROLES,
];

/// Plays the role that the environment names.
pub fn play(role: &str) -> io::Result<()> {
    if let Ok(name) = std::env::var(NAME) {
        rustix::thread::set_name(&std::ffi::CString::new(name)?)?;
    }
    let argument = std::env::var(ARGUMENT).unwrap_or_default();
    let found = ROLES.iter().copied().flatten().find(|(name, _)| *name == role);
    let (_, play) = found.ok_or_else(|| io::Error::other(format!("no such role: {role}")))?;
    play(&argument)
}

#[cfg(test)]
mod tests {
    use super::ROLES;

    #[test]
    fn each_role_has_a_name_of_its_own() {
        let mut names: Vec<&str> = ROLES.iter().copied().flatten().map(|(name, _)| *name).collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
