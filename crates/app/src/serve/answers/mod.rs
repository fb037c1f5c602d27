//! Answers beside those about incidents and numbers: what probes captured, what was changed, what differs between two ranges, and
//! what the archive holds.

pub mod captures;
pub mod changes;
pub mod compare;
pub mod segments;
pub mod status;
