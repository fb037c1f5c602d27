//! The sysstat tools: sar, sadf, iostat, mpstat, pidstat.

mod binary;
mod plan;
mod sadf;
mod sadf_json;
mod sadf_wide;
mod sar;
mod sar_columns;

use super::Format;

pub use binary::is_binary_sa;

/// The formats, the most particular first.
pub static FORMATS: &[Format] = &[sadf::SEMICOLONS, sadf::TABS, sadf_json::FORMAT, sar::FORMAT];
