//! The kinds, one file each.

mod cache;
mod errors;
mod faults;
mod fork;
mod growth;
mod locks;
mod lookups;
mod offcpu;
mod oncpu;
mod runqlat;
mod sockets;
mod syscalls;
mod trace;

use super::Kind;

/// All of them, in the order in which they are shown.
pub(super) const ALL: &[&Kind] = &[
    &offcpu::KIND,
    &faults::KIND,
    &growth::KIND,
    &oncpu::KIND,
    &cache::KIND,
    &lookups::KIND,
    &errors::KIND,
    &syscalls::KIND,
    &runqlat::KIND,
    &locks::KIND,
    &fork::KIND,
    &sockets::KIND,
    &trace::KIND,
];
