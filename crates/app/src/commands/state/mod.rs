//! The state of machines as documents: `mitra index`, `search`, `show`, `diff` and `outliers`.

pub mod diff;
pub mod hosts;
pub mod incidents;
pub mod index;
pub mod location;
pub mod outliers;
mod print;
pub mod search;
pub mod show;
