//! The kinds, one file each.

mod cache;
mod errors;
mod faults;
mod fork;
mod growth;
mod interrupts;
mod locks;
mod lookups;
mod offcpu;
mod oncpu;
mod runqlat;
mod sockets;
mod syscalls;
mod trace;

use super::Kind;

/// All of them, in the order in which they are shown. Statics, because each use of a constant would be a copy of its program.
pub(super) static ALL: &[&Kind] = &[
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
    &interrupts::KIND,
    &fork::KIND,
    &sockets::KIND,
    &trace::KIND,
];
