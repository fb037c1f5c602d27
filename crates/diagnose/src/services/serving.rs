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
    /// Processes of interpreters that are the masters of their children.
    masters: BTreeSet<u32>,
    /// Of those that answer themselves.
    by_pid: BTreeMap<u32, BTreeSet<&'a str>>,
    /// Of the oldest of the elders, those of all whose elder it is.
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
        let masters = service::masters(view).into_iter().map(|(pid, _)| pid).collect();
        let mut serving = Serving { first, masters, by_pid: BTreeMap::new(), by_head: BTreeMap::new() };
        for metric in ["service.pid", "listener.pid"] {
            for (row, answered) in view.each(metric) {
                let service = serving.first.get(row).copied().unwrap_or(row);
                let mut pids: Vec<u32> = answered.values(Span::ALL).iter().map(|pid| *pid as u32).collect();
                pids.dedup();
                for process in pids.iter().filter_map(|pid| view.process(*pid)) {
                    serving.by_pid.entry(process.pid).or_default().insert(service);
                    serving
                        .by_head
                        .entry(serving.elders(view, process).last().map_or(process.pid, |p| p.pid))
                        .or_default()
                        .insert(service);
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

    /// The services of a process: its own, or those of the parent of its name that serves, or that of all children of that
    /// parent. `None` where it is not known to serve.
    #[must_use]
    pub fn of(&self, view: &View<'a>, process: &Process<'a>) -> Option<&BTreeSet<&'a str>> {
        let elders = self.elders(view, process);
        elders.iter().find_map(|p| self.by_pid.get(&p.pid)).or_else(|| self.by_head.get(&elders.last()?.pid))
    }

    /// Whether a process may be one of those that serve it. What has started several services is none of them.
    #[must_use]
    pub fn may_be_of(&self, view: &View<'a>, process: &Process<'a>, service: &str) -> bool {
        let elders = self.elders(view, process);
        match elders.iter().find_map(|p| self.by_pid.get(&p.pid)) {
            Some(own) => own.contains(service),
            None => match elders.last().and_then(|p| self.by_head.get(&p.pid)) {
                Some(all) => all.len() == 1 && all.contains(service),
                // One of a name that only one program has may sleep since before it was recorded.
                None => {
                    !service::is_interpreter(process.comm)
                        || process.ppid.is_some_and(|ppid| self.masters.contains(&ppid))
                }
            },
        }
    }

    /// A process and its parents that have its name and group, the oldest one last. A parent that has the name of an interpreter may
    /// run another program, unless its children answer in turns.
    fn elders<'v>(&self, view: &'v View<'a>, process: &'v Process<'a>) -> Vec<&'v Process<'a>> {
        let parent = |p: &&'v Process<'a>| {
            let parent = view.process(p.ppid?)?;
            let is_alike = parent.comm == process.comm && parent.cgroup == process.cgroup;
            let is_known = !service::is_interpreter(parent.comm) || self.masters.contains(&parent.pid);
            (is_alike && is_known).then_some(parent)
        };
        std::iter::successors(Some(process), parent).take(GENERATIONS_MAX).collect()
    }
}
