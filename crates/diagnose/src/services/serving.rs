//! Which processes serve what: interpreters have one name for all programs, and each process serves its own service.

use std::collections::{BTreeMap, BTreeSet};

use mitra_model::Span;

use crate::process::Process;
use crate::services::service;
use crate::view::View;

/// Generations of processes of one name: a supervisor, a master, its workers and what they fork.
const GENERATIONS_MAX: usize = 8;

/// The services of each process. One that is asked at several addresses goes by the first of them.
#[derive(Debug)]
pub struct Serving<'a> {
    first: BTreeMap<&'a str, &'a str>,
    by_head: BTreeMap<u32, BTreeSet<&'a str>>,
}

impl<'a> Serving<'a> {
    /// Of all processes. Use [`View::serving`], which keeps it.
    #[must_use]
    pub fn all(view: &View<'a>) -> Serving<'a> {
        let mut first = BTreeMap::new();
        for rows in service::by_server(view) {
            first.extend(rows.iter().zip(std::iter::repeat(rows[0])).map(|(row, first)| (*row, first)));
        }
        let mut serving = Serving { first, by_head: BTreeMap::new() };
        for metric in ["service.pid", "listener.pid"] {
            for (row, answered) in view.each(metric) {
                let service = serving.first.get(row).copied().unwrap_or(row);
                let mut pids: Vec<u32> = answered.values(Span::ALL).iter().map(|pid| *pid as u32).collect();
                pids.dedup();
                for process in pids.iter().filter_map(|pid| view.process(*pid)) {
                    serving.by_head.entry(head(view, process)).or_default().insert(service);
                }
            }
        }
        serving
    }

    /// The service at an address: a row.
    #[must_use]
    pub fn service_of<'r>(&self, row: &'r str) -> &'r str
    where
        'a: 'r,
    {
        self.first.get(row).copied().unwrap_or(row)
    }

    /// The services of a process, and of those of its name whose child it is or that are its children. `None` where it is not
    /// known to serve.
    #[must_use]
    pub fn of(&self, view: &View<'_>, process: &Process<'_>) -> Option<&BTreeSet<&'a str>> {
        self.by_head.get(&head(view, process))
    }
}

/// The oldest of the parents of a process that have its name and group, or itself.
fn head(view: &View<'_>, process: &Process<'_>) -> u32 {
    let mut head = process;
    for _ in 0..GENERATIONS_MAX {
        let parent = head.ppid.and_then(|ppid| view.process(ppid));
        match parent.filter(|p| p.comm == process.comm && p.cgroup == process.cgroup && p.pid != head.pid) {
            Some(parent) => head = parent,
            None => break,
        }
    }
    head.pid
}
