//! The sysstat tools: sar, sadf, iostat, mpstat, pidstat.

mod binary;
mod columns;
mod iostat;
mod iostat_json;
mod iostat_others;
mod iostat_reports;
mod json;
mod mpstat;
mod mpstat_json;
mod pidstat;
mod pidstat_columns;
mod pidstat_tasks;
mod pidstat_time;
mod plan;
mod sadf;
mod sadf_json;
mod sadf_wide;
mod sar;
pub mod write;

use super::Format;

pub use binary::is_binary_sa;

/// The formats, the most particular first.
pub static FORMATS: &[Format] = &[
    iostat::FORMAT,
    iostat_json::FORMAT,
    mpstat_json::FORMAT,
    iostat_others::FORMAT,
    pidstat::FORMAT,
    mpstat::FORMAT,
    sadf::SEMICOLONS,
    sadf::TABS,
    sadf_json::FORMAT,
    sar::FORMAT,
];
