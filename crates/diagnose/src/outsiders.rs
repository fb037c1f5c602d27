//! Locks of the kernel that no thread of those that wait for them holds: another program does, while it works in the kernel.

use mitra_model::Span;
use mitra_model::kstack::{WaitKind, wait_kind, waits_for_directory};

use crate::faults;
use crate::process::{self, Process};
use crate::view::View;
use crate::words;

/// What is read of those that may hold the lock of another process.
pub const NEEDS: &[&str] =
    &["tasks.d_lock", "task.kstack", "task.state", "task.cpu_time", "task.system_time"];
/// A tenth of a task's time: who waits less for the lock is late for another reason.
const WAITED: f64 = 0.1;
/// Who runs for less than a tenth of the time that is waited does not hold the lock for all of it.
const HARDLY: f64 = 0.1;
/// More than half of the time.
const MOST: f64 = 0.5;

/// What is locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Locked {
    /// The address space of the processes that wait: who reads `/proc/PID/smaps` holds the lock while it walks over the pages.
    AddressSpace,
    /// A directory: who lists it holds the lock while it goes over its entries, and names are made, removed and looked up under it.
    Directory,
}

/// Who holds a lock that others wait for.
#[derive(Debug)]
pub struct Outsider<'v, 'a> {
    /// The program.
    pub process: &'v Process<'a>,
    locked: Locked,
    /// The share of the time for which it works in the kernel.
    share: f64,
}

impl Locked {
    fn is_waited_for(self, view: &View<'_>, row: &str) -> bool {
        let Some(stacks) = view.set.text("task.kstack", row) else { return false };
        match self {
            Locked::AddressSpace => faults::mm_waits_of(view, stacks).next().is_some(),
            Locked::Directory => {
                let inside = stacks.changes.iter().filter(|(t, _)| view.window.contains(*t));
                inside
                    .filter_map(|(_, stack)| stack.as_deref())
                    .any(|stack| wait_kind(stack) == WaitKind::Lock && waits_for_directory(stack))
            }
        }
    }
}

impl<'v, 'a> Outsider<'v, 'a> {
    /// The program that holds such a lock, where none of the threads that wait for it does: they hardly run, and meanwhile one other
    /// program works in the kernel more than all others.
    #[must_use]
    pub fn of(view: &'v View<'a>, own: &[&Process<'a>], span: Span) -> Option<Outsider<'v, 'a>> {
        [Locked::AddressSpace, Locked::Directory].into_iter().find_map(|locked| {
            let (process, share) = holder(view, own, locked, span)?;
            Some(Outsider { process, locked, share })
        })
    }

    /// Who waits for what that it holds. `pid` is of those who wait.
    #[must_use]
    pub fn words(&self, pid: Option<u32>) -> String {
        let (what, who) = match self.locked {
            Locked::AddressSpace => {
                let pid = pid.map_or_else(|| "PID".to_owned(), |pid| pid.to_string());
                ("its address space", format!("a reader of /proc/{pid}/smaps"))
            }
            Locked::Directory => ("a directory", "one that lists a directory of many entries".to_owned()),
        };
        format!(
            "its threads wait for the lock of {what}, which none of them holds for long, and {} ({}) works in the kernel for {} of the time, \
             as {who} does, which holds that lock",
            self.process.comm,
            self.process.pid,
            words::percent(self.share)
        )
    }
}

fn holder<'v, 'a>(
    view: &'v View<'a>,
    own: &[&Process<'a>],
    locked: Locked,
    span: Span,
) -> Option<(&'v Process<'a>, f64)> {
    let waits = |p: &&&Process<'_>| p.rows.iter().any(|row| locked.is_waited_for(view, row));
    let waited_s: f64 =
        own.iter().filter(waits).map(|p| p.waiting_for_s(view.set, span, &[WaitKind::Lock])).sum();
    let all_s = span.seconds().max(1e-9);
    let ran_s: f64 = own.iter().map(|p| p.total(view.set, "task.cpu_time", span)).sum();
    // Whoever waits for a device may hold the lock meanwhile.
    const DEVICE: &[WaitKind] = &[WaitKind::Io, WaitKind::Throttle, WaitKind::Memory];
    let slept_s: f64 = own.iter().map(|p| p.waiting_for_s(view.set, span, DEVICE)).sum();
    if waited_s < WAITED * all_s || ran_s.max(slept_s) > HARDLY * waited_s {
        return None;
    }
    let others = || view.processes().iter().filter(|p| own.iter().all(|own| own.pid != p.pid));
    let works = |p: &Process<'_>| process::in_kernel_s(p, view.set, span);
    let sum: f64 = others().map(works).sum();
    let most = others().max_by(|a, b| works(a).total_cmp(&works(b)))?;
    let worked_s = works(most);
    let is_it = !most.kthread && worked_s >= waited_s.min(all_s) * MOST && worked_s >= MOST * sum;
    is_it.then_some((most, worked_s / all_s))
}
