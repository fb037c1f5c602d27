//! The state of machines as documents: reading it in, and asking for it.

pub mod diff;
pub mod hosts;
pub mod incidents;
pub mod index;
pub mod outliers;
pub mod place;
mod print;
pub mod search;
pub mod show;
