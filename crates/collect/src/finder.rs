//! Where tasks come from: the kernel's task iterator, or `/proc` where that is not to be had.

use mitra_model::{Entity, EventKind, Frame, NA};

use crate::bpf::{Probes, Seen};
use crate::cgroup::Cgroups;
use crate::io::Io;
use crate::missing::reason;
use crate::probes::{self, ProbeCells};
use crate::tasks::PassContext;
use crate::tasks::Tasks;
use crate::tasks::proc::ProcTasks;
use crate::tasks::reading::Reading;

/// The probes that work, and what stands in for the iterator if it does not.
pub struct TaskFinder {
    probes: Option<(Box<Probes>, ProbeCells)>,
    reclaim: Reclaim,
    proc_tasks: Option<ProcTasks>,
}

/// Whether the kernel takes pages from tasks that sleep, or gives them some: reclaim, swap, huge pages that are put together.
struct Reclaim {
    columns: Vec<usize>,
    sum: i64,
}

impl Reclaim {
    const COUNTERS: [&str; 5] =
        ["vm.pgscan", "vm.pgsteal", "vm.pswp", "vm.thp_collapse_alloc", "vm.oom_kill"];

    fn new() -> Self {
        let columns = mitra_model::columns(Entity::System).iter().enumerate();
        let is_counter = |name: &str| Self::COUNTERS.iter().any(|prefix| name.starts_with(prefix));
        let columns = columns.filter(|(_, m)| is_counter(m.name)).map(|(column, _)| column).collect();
        Reclaim { columns, sum: 0 }
    }

    /// Whether a counter has moved since the sample before.
    fn has_moved(&mut self, system: &[i64]) -> bool {
        let known = self.columns.iter().filter_map(|column| system.get(*column)).filter(|cell| **cell != NA);
        let sum = known.fold(0, |sum: i64, cell| sum.wrapping_add(*cell));
        std::mem::replace(&mut self.sum, sum) != sum
    }
}

impl TaskFinder {
    /// Loads what the kernel and the privilege allow.
    pub fn open(use_bpf: bool, io: &mut Io) -> Self {
        if !io.root.is_host() {
            io.missing.add("bpf", "the root is not this machine's");
            return Self::without_bpf();
        }
        if !use_bpf {
            io.missing.add("bpf", "turned off by the user");
            return Self::without_bpf();
        }
        Self::with_bpf(io)
    }

    fn without_bpf() -> Self {
        TaskFinder { probes: None, reclaim: Reclaim::new(), proc_tasks: Some(ProcTasks::new()) }
    }

    fn with_bpf(io: &mut Io) -> Self {
        let probes = Box::new(Probes::load(io.reads_answers));
        for (name, why) in probes.unavailable() {
            io.missing.add(&format!("probe.{name}"), why);
        }
        let proc_tasks = if probes.tasks.is_some() {
            None
        } else {
            let why = probes.unavailable().iter().find(|(name, _)| *name == "task_iter");
            let why = why.map_or("no task iterator", |(_, why)| why.as_str());
            io.missing.add("bpf", &format!("{why}; tasks are read from /proc instead, at a higher cost"));
            Some(ProcTasks::new())
        };
        TaskFinder { probes: Some((probes, ProbeCells::new())), reclaim: Reclaim::new(), proc_tasks }
    }

    /// Whether ended tasks are reported.
    #[must_use]
    pub fn sees_ends(&self) -> bool {
        self.probes.as_ref().is_some_and(|(probes, _)| probes.exits.is_some())
    }

    /// Whether waits for locks in the kernel are reported.
    #[must_use]
    pub fn sees_locks(&self) -> bool {
        self.probes.as_ref().is_some_and(|(probes, _)| probes.locks.is_some())
    }

    /// Whether the kernel has counted delays ever since it started.
    pub fn set_delays_since_boot(&mut self, on: bool) {
        if let Some(proc_tasks) = &mut self.proc_tasks {
            proc_tasks.set_delays_since_boot(on);
        }
    }

    /// Visits every task; with `whole` also those that have not run since the pass before in all detail.
    pub fn pass(
        &mut self,
        whole: bool,
        tasks: &mut Tasks,
        cgroups: &Cgroups,
        io: &mut Io,
        frame: &mut Frame,
    ) {
        if let Some((probes, cells)) = &mut self.probes {
            cells.lock_waits(probes, tasks, io);
        }
        if let Some((probes, _)) = &mut self.probes
            && let Some(iter) = &mut probes.tasks
        {
            if whole {
                iter.want_whole();
            }
            let others = self.reclaim.has_moved(frame.system_mut());
            let table = frame.table_mut(Entity::Task);
            let mut context = PassContext { table, strings: &mut io.strings, paths: cgroups.paths() };
            let pass = iter.pass_changes(others, |seen| match seen {
                Seen::Whole(rec, stack) => tasks.add(&Reading::from(rec), stack, &mut context),
                Seen::Still(rec) => tasks.add_still(rec.tid, rec.tid == rec.tgid, &mut context),
            });
            tasks.end(pass.is_ok());
            match pass {
                Ok(_) => io.missing.remove("probe.task_iter"),
                Err(error) => io.missing.add("probe.task_iter", &reason(&error)),
            }
            return;
        }
        if let Some(proc_tasks) = &mut self.proc_tasks {
            let complete = proc_tasks.pass(tasks, cgroups, io, frame);
            tasks.end(complete.is_ok());
            match complete {
                Ok(()) => io.missing.remove("/proc"),
                Err(error) => io.missing.add("/proc", &reason(&error)),
            }
        }
    }

    /// Takes in tasks that ended. `f` gets those that are worth an event, and when since boot.
    pub fn ends(&mut self, tasks: &mut Tasks, io: &mut Io, f: impl FnMut(i64, EventKind)) {
        if let Some((probes, _)) = &mut self.probes {
            probes::drain_exits(probes, tasks, io, f);
        }
    }

    /// Takes in OOM kills and fatal signals.
    pub fn events(&mut self, cgroups: &Cgroups, io: &Io, f: impl FnMut(i64, EventKind)) {
        if let Some((probes, cells)) = &mut self.probes {
            cells.events(probes, cgroups.paths(), io, f);
        }
    }

    /// Fills what the probes have counted.
    pub fn counts(&mut self, io: &mut Io, frame: &mut Frame) {
        if let Some((probes, cells)) = &mut self.probes {
            cells.fill(probes, io, frame);
        }
    }

    /// Fills what services and their clients did, once it is known which ports are listened on.
    pub fn services(&mut self, io: &mut Io, frame: &mut Frame) {
        if let Some((probes, cells)) = &mut self.probes {
            cells.fill_services(probes, io, frame);
        }
    }
}
