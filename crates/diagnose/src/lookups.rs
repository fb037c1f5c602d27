//! Names that programs look up in vain, and who is known to do so.

use mitra_model::Span;
use mitra_model::report::Evidence;

use crate::view::View;

/// A directory in which names are looked up in vain.
pub struct Lookups {
    /// The directory.
    pub directory: String,
    /// The names, with their digits as N.
    pub pattern: Option<String>,
    /// The program, where the trace names it.
    pub program: Option<String>,
    /// How many.
    pub failed: f64,
    /// How many different ones.
    pub unique: Option<f64>,
    /// The numbers that say so.
    pub evidence: Vec<Evidence>,
}

/// Calls that look a name up.
const CALLS: &[&str] = &[
    "access",
    "faccessat",
    "faccessat2",
    "open",
    "openat",
    "openat2",
    "stat",
    "lstat",
    "newfstatat",
    "fstatat64",
    "statx",
    "stat64",
    "lstat64",
    "readlink",
    "readlinkat",
];
/// Most of the calls fail: a search path fails a few times for each success.
const FAIL_SHARE: f64 = 0.9;
/// As many in one trace are no search path any more.
const FAILED_MANY: f64 = 1000.0;

/// A call that fails nearly always.
pub struct Failing {
    /// `access`, or `program/access`.
    pub call: String,
    /// How often it was made.
    pub calls: f64,
    /// How often in vain.
    pub errors: f64,
    /// The numbers that say so.
    pub evidence: Vec<Evidence>,
}

/// The lookup call that fails most, if it fails nearly always and often.
pub fn failing_call(view: &View<'_>) -> Option<Failing> {
    let rows = view.set.each_total("call.calls").chain(view.set.each("call.calls"));
    rows.filter(|(row, _)| CALLS.contains(&row.rsplit('/').next().unwrap_or(row)))
        .filter_map(|(row, _)| {
            let (calls, errors) = (view.reading("call.calls", row)?, view.reading("call.errors", row)?);
            (errors >= FAILED_MANY && errors >= FAIL_SHARE * calls).then(|| (row.to_owned(), calls, errors))
        })
        .max_by(|a, b| a.2.total_cmp(&b.2))
        .map(|(call, calls, errors)| Failing {
            evidence: ["call.calls", "call.errors"]
                .iter()
                .filter_map(|m| view.reading_evidence(m, &call))
                .collect(),
            call,
            calls,
            errors,
        })
}

/// The directories in which most is looked up in vain, the worst first.
pub fn directories(view: &View<'_>) -> Vec<Lookups> {
    let text = |metric: &str, row: &str| view.set.text(metric, row).and_then(|t| t.last()).map(str::to_owned);
    let mut list: Vec<Lookups> = view
        .set
        .each_total("lookup.failed")
        .map(|(directory, readings)| Lookups {
            directory: directory.to_owned(),
            pattern: text("lookup.pattern", directory),
            program: text("lookup.program", directory),
            failed: readings.last(Span::ALL).unwrap_or(0.0),
            unique: view.reading("lookup.unique", directory),
            evidence: ["lookup.failed", "lookup.unique"]
                .iter()
                .filter_map(|m| view.reading_evidence(m, directory))
                .collect(),
        })
        .collect();
    list.sort_by(|a, b| b.failed.total_cmp(&a.failed));
    list
}

/// Software that is known for looking up names that cannot exist.
pub struct KnownPattern {
    /// What the names contain.
    mark: &'static str,
    /// The program that people meet it in, when the trace does not say.
    pub program: &'static str,
    /// What it does and why.
    pub why: &'static str,
    /// What to do.
    pub remedy: &'static str,
    /// As a command.
    pub command: &'static str,
}

/// The known ones. A line here needs a public description of the behaviour.
const KNOWN: &[KnownPattern] = &[KnownPattern {
    // Mozilla bugs 956082 and 1603801; curl 7.x of Red Hat's and CentOS' builds links NSS.
    mark: "_dOeSnotExist_.db",
    program: "curl",
    why: "NSS measures how fast the directory of its database is by looking up thousands of names that do not exist; \
          each leaves a negative dentry behind; curl built with NSS does it at each start",
    remedy: "set NSS_SDB_USE_CACHE=YES in the environment of what runs it, so that NSS does not measure",
    command: "export NSS_SDB_USE_CACHE=YES",
}];

/// What is known of a pattern of names.
pub fn known(pattern: &str) -> Option<&'static KnownPattern> {
    KNOWN.iter().find(|k| pattern.contains(k.mark))
}
