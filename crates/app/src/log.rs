//! Lines on standard error.

use std::io::Write;

use crate::render::style::clean_lines;

/// Writes a line of log. A closed standard error stops nothing.
pub fn log(line: &str) {
    _ = writeln!(std::io::stderr(), "mitra: {}", clean_lines(line));
}
