//! Collects what the machine reports beside its files. There is one source file per collector, and
//! one list of them.
//!
//! A collector only reads. It returns documents whose text people can read and compare
//! (`vm.swappiness = 60`) and whose fields are those of [`crate::fields`]. A document stays the
//! same until something is changed: it has no counters, no free space, no current time. What comes
//! and goes by itself (ports chosen by the kernel, cgroups of containers) is in separate documents
//! with the flag `volatile`.

pub mod cache;
pub mod calendar;
pub mod cgroups;
pub mod cmdline;
mod containers;
pub mod cpu;
pub mod cron;
pub mod disks;
mod ioctl;
pub mod kernel;
pub mod mounts;
pub mod nics;
pub mod numa;
pub mod packages;
mod read;
mod run;
pub mod schedule;
pub mod sockets;
pub mod sysctl;
pub mod timers;
pub mod units;
pub mod users;

use std::path::Path;

use crate::document::{Document, Facts, Kind, Value};

pub use cache::Cache;
pub use schedule::Schedule;

/// A read-only source of documents.
#[derive(Debug, Clone, Copy)]
pub struct Collector {
    /// Its name in the configuration.
    pub name: &'static str,
    /// One line for help and documentation.
    pub help: &'static str,
    /// Collects the documents below a root (`/`), with an empty host. `Err` gives the reason in one
    /// line.
    pub collect: fn(&Source<'_>) -> Result<Vec<Document>, String>,
}

/// Where a collector reads.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// The root directory instead of `/`. Symbolic links do not lead out of it.
    pub root: &'a Path,
    /// The time, in nanoseconds since 1970.
    pub now_ns: i64,
    /// The cache between runs, so that unchanged sources are not read again.
    pub cache: &'a Cache,
}

const fn row(
    name: &'static str,
    help: &'static str,
    collect: fn(&Source<'_>) -> Result<Vec<Document>, String>,
) -> Collector {
    Collector { name, help, collect }
}

/// All collectors.
pub const COLLECTORS: &[Collector] = &[
    row("packages", "installed packages of dpkg and rpm", packages::collect),
    row("kernel", "release, modules and distribution", kernel::collect),
    row("cmdline", "command line of the kernel", cmdline::collect),
    row("sysctl", "settings of the kernel", sysctl::collect),
    row("users", "users and groups, without anything secret", users::collect),
    row("cpu", "model, flags, mitigations and frequency of the processor", cpu::collect),
    row("numa", "memory nodes", numa::collect),
    row("cgroups", "limits of cgroups, names of containers and pods", cgroups::collect),
    row("mounts", "mounted file systems with their geometry", mounts::collect),
    row("disks", "block devices with scheduler and queue", disks::collect),
    row("nics", "network interfaces with driver, offloads and rings", nics::collect),
    row("sockets", "sockets that listen, with their owners", sockets::collect),
    row("units", "units of systemd: enabled, masked, overridden, active", units::collect),
    row("timers", "timers of systemd", timers::collect),
    row("cron", "lines of crontabs", cron::collect),
];

impl Source<'_> {
    /// A document with an empty host.
    fn document(&self, filename: impl Into<String>, kind: Kind, content: String, facts: Facts) -> Document {
        Document { content: Some(content), facts, since_ns: self.now_ns, ..Document::new("", filename, kind) }
    }
}

/// Adds a text value to a field.
fn word(facts: &mut Facts, name: &str, value: impl Into<String>) {
    facts.entry(name.to_owned()).or_default().push(Value::Text(value.into()));
}

/// Adds an integer to a field. Above 2^53 the field loses the last digits; the content keeps them.
fn number(facts: &mut Facts, name: &str, value: u64) {
    facts.entry(name.to_owned()).or_default().push(Value::Number(value as f64));
}

/// Appends a line `key = value`.
fn line(content: &mut String, key: &str, value: &str) {
    content.push_str(key);
    content.push_str(" = ");
    content.push_str(value);
    content.push('\n');
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_words_and_each_is_there_once() {
        let names: BTreeSet<&str> = COLLECTORS.iter().map(|c| c.name).collect();
        assert_eq!(names.len(), COLLECTORS.len());
        assert!(names.iter().all(|n| n.bytes().all(|b| b.is_ascii_lowercase())));
    }

    #[test]
    fn an_empty_root_gives_reasons_and_no_documents() {
        let root = tempfile::tempdir().unwrap();
        let cache = Cache::default();
        let source = Source { root: root.path(), now_ns: 0, cache: &cache };
        for collector in COLLECTORS {
            let Err(reason) = (collector.collect)(&source) else {
                panic!("{} found something in an empty folder", collector.name)
            };
            assert!(reason.contains('/') && !reason.contains('\n'), "{}: {reason}", collector.name);
        }
    }

    fn read_all(text: &str) {
        _ = packages::parse_dpkg(text);
        _ = packages::parse_rpm(text);
        _ = kernel::parse_modules(text);
        _ = kernel::parse_os_release(text);
        _ = kernel::chosen(text);
        _ = cmdline::parse(text);
        _ = users::parse_passwd(text);
        _ = users::parse_group(text);
        _ = numa::parse_meminfo(text);
        _ = cpu::parse_cpuinfo(text);
        _ = cpu::count(text);
        _ = mounts::parse(text);
        _ = ["tcp", "udp6"].map(|name| sockets::parse_line(name, text).is_ok());
        _ = sockets::parse_range(text);
        _ = units::parse(text);
        _ = timers::parse_span(text);
        _ = cron::parse("/etc/crontab", text, None);
        sysctl::add_values(&mut Facts::new(), "vm.swappiness", text);
    }

    proptest! {
        #[test]
        fn whatever_is_read_does_not_panic(text in "(?s).{0,200}") {
            read_all(&text);
        }

        #[test]
        fn what_looks_like_a_file_of_the_kernel_does_not_panic(
            text in "([-0-9a-fA-F:/,=@*\\[\\]#\"' \t]{0,12}(Package: |Status: |rw - | 0A |=\\\\|\\[Timer\\]|é|\n)){0,12}",
        ) {
            read_all(&text);
        }
    }
}
