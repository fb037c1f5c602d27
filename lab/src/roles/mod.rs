//! Small programs with one behaviour each: victims, and some of the culprits.
//!
//! A role is this program started again with [`ROLE`] set, under its own process name. Victims
//! measure each of their operations with a [`Meter`]. One file per topic, each with a list of its
//! roles.

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

/// Environment variable with the role, if this program is started as one.
pub const ROLE: &str = "MITRA_LAB_ROLE";
/// The process name to take.
pub const NAME: &str = "MITRA_LAB_NAME";
/// The one argument of a role.
pub const ARGUMENT: &str = "MITRA_LAB_ARGUMENT";
/// The path of the role's measurements.
pub const LOG: &str = "MITRA_LAB_LOG";
/// The seed of a role's [`XorShift`].
pub const SEED: &str = "MITRA_LAB_SEED";
const PAGE: usize = 4096;

/// A page-aligned buffer for direct I/O.
#[repr(align(4096))]
struct AlignedPage([u8; PAGE]);

/// CPU work of this many turns. Uses no memory.
fn compute(turns: u64) -> u64 {
    (0..turns).fold(1_u64, |a, i| black_box(a.wrapping_mul(i | 1)))
}

/// A name and its function, which runs until the parent ends it.
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
