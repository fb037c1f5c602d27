//! Terms about logs: which ones can be followed, and the regular expressions of their patterns.

use regex::bytes::{Regex, RegexBuilder};

use crate::ast::{LogPattern, LogSource};
use crate::compile::Program;

/// The counter of lines that match, of the row that has the term as its name.
pub const MATCHES: &str = "pattern.matches";
/// Different terms about logs in one file of rules.
pub const PATTERNS_MAX: usize = 64;
/// Bytes of a regular expression, and of the name of a log.
const REGEX_BYTES_MAX: usize = 512;
const NAME_BYTES_MAX: usize = 1024;
/// Memory of a compiled regular expression, and of the cache that makes it fast.
const COMPILED_BYTES_MAX: usize = 1 << 20;
const CACHE_BYTES_MAX: usize = 256 << 10;
/// Brackets inside of each other.
const NEST_MAX: u32 = 50;
/// What the names of units end with that say something to journald.
const UNITS: [&str; 5] = [".service", ".scope", ".socket", ".mount", ".slice"];

/// Why a log cannot be followed, or a pattern not be looked for.
pub(crate) fn check(log: &LogPattern) -> Result<(), String> {
    let (LogSource::File(name) | LogSource::Unit(name)) = &log.log;
    if name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
        return Err(format!("wanted a name of up to {NAME_BYTES_MAX} bytes without control characters"));
    }
    match &log.log {
        LogSource::File(path) if path.contains(['*', '?']) => {
            return Err("wanted one file; `*` and `?` stand for nothing here".to_owned());
        }
        LogSource::File(path) if !is_path(path) => {
            return Err("wanted the whole path of a file, without `..`".to_owned());
        }
        LogSource::Unit(unit) if unit.contains(['*', '?', '/']) => {
            return Err("wanted one unit; `*` and `?` stand for nothing here".to_owned());
        }
        LogSource::Unit(unit) if !UNITS.iter().any(|ending| unit.ends_with(ending)) => {
            return Err("wanted the whole name of a unit, such as nginx.service".to_owned());
        }
        _ => {}
    }
    regex(&log.pattern).map(drop)
}

fn is_path(path: &str) -> bool {
    let has_name = path.rsplit('/').next().is_some_and(|name| !name.is_empty() && name != ".");
    path.starts_with('/') && has_name && path.split('/').all(|part| part != "..")
}

/// Compiles the regular expression of a pattern. It needs time in proportion to the line, whatever it is.
pub fn regex(pattern: &str) -> Result<Regex, String> {
    if pattern.len() > REGEX_BYTES_MAX || pattern.chars().any(char::is_control) {
        return Err(format!(
            "wanted a regular expression of up to {REGEX_BYTES_MAX} bytes without control characters"
        ));
    }
    let mut builder = RegexBuilder::new(pattern);
    builder.size_limit(COMPILED_BYTES_MAX).dfa_size_limit(CACHE_BYTES_MAX).nest_limit(NEST_MAX);
    builder.build().map_err(|error| {
        // The last line says what is wrong; those before show where.
        let text = error.to_string();
        let last = text.lines().last().unwrap_or_default();
        format!("no regular expression: {}", last.trim_start_matches("error: "))
    })
}

/// The patterns of some programs, each once.
pub fn of<'a>(programs: impl Iterator<Item = &'a Program>) -> Vec<&'a LogPattern> {
    let mut all: Vec<&LogPattern> = Vec::new();
    for log in programs.flat_map(|program| &program.logs) {
        if !all.contains(&log) {
            all.push(log);
        }
    }
    all
}
