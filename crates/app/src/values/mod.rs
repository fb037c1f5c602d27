//! Values as people type them: moments, lengths of time, sizes, shares.

pub mod size;
pub mod time;
