//! The kinds, one file each.

mod faults;
mod offcpu;
mod oncpu;

use super::Kind;

/// All of them, in the order in which they are shown.
pub(super) const ALL: &[&Kind] = &[&offcpu::KIND, &faults::KIND, &oncpu::KIND];
