//! Answers beside those about incidents and numbers: what probes captured, what differs between two ranges, and what the
//! archive holds.

pub mod captures;
pub mod compare;
pub mod segments;
pub mod status;
