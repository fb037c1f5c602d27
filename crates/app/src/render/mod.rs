//! How things look on standard output.

pub mod page;
pub mod style;
pub mod table;
pub mod text;
pub mod units;
