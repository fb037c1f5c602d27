//! The numbers of the moment: where time is being lost, what the machine does, who does it.

use anyhow::Result;
use mitra_archive::{Query, Reader};
use mitra_diagnose::{ledger, process};
use mitra_model::time::SECOND;
use mitra_model::{Metric, SeriesSet, Span, lookup};

/// Seconds of history on the screen.
pub const HISTORY: usize = 60;
/// Numbers that should not flicker are means over this many seconds.
const RECENT_NS: i64 = 5 * SECOND;
/// Samples may be this far apart and still be the moment's.
const STEP_S_MAX: f64 = 60.0;

/// What the machine line needs.
const MACHINE: &[&str] = &[
    "sys.cpu_user",
    "sys.cpu_nice",
    "sys.cpu_system",
    "sys.cpu_idle",
    "sys.cpu_iowait",
    "sys.cpu_irq",
    "sys.cpu_softirq",
    "sys.cpu_steal",
    "sys.load1",
    "mem.total",
    "mem.available",
    "mem.cached",
    "tasks.total",
    "tasks.running",
    "tasks.uninterruptible",
    "vm.pgpgin",
    "vm.pgpgout",
    "mitra.cpu_time",
    "mitra.rss",
    "mitra.written_bytes",
];
/// What the table of processes needs.
const PROCESSES: &[&str] = &[
    "task.comm",
    "task.tgid",
    "task.ppid",
    "task.kthread",
    "task.state",
    "task.cpu_time",
    "task.run_delay",
    "task.read_bytes",
    "task.write_bytes",
    "task.rss_anon",
    "task.rss_file",
    "task.rss_shmem",
];

/// The machine at one moment.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// When, in nanoseconds since 1970.
    pub at: i64,
    /// Task-seconds lost per second, oldest first; `NaN` where unknown.
    pub lost: Vec<f64>,
    /// The same by cause, most first.
    pub causes: Vec<CauseLine>,
    /// The machine as a whole.
    pub machine: Machine,
    /// Who loses or uses most.
    pub processes: Vec<ProcessLine>,
}

/// One cause of waiting.
#[derive(Debug, Clone)]
pub struct CauseLine {
    /// Its name in the ledger.
    pub cause: String,
    /// Task-seconds per second, oldest first.
    pub history: Vec<f64>,
}

/// The machine as a whole; what could not be measured is absent.
#[derive(Debug, Clone, Default)]
pub struct Machine {
    /// CPUs.
    pub cpus: u32,
    /// Share of CPU time in user mode.
    pub user: Option<f64>,
    /// … in the kernel, interrupts included.
    pub system: Option<f64>,
    /// … idle while a task waited for a device.
    pub iowait: Option<f64>,
    /// … taken by the hypervisor.
    pub steal: Option<f64>,
    /// Load average of a minute.
    pub load: Option<f64>,
    /// Bytes of memory.
    pub memory: Option<f64>,
    /// Bytes that could be had without swapping.
    pub available: Option<f64>,
    /// Bytes of page cache.
    pub cached: Option<f64>,
    /// Bytes read from devices per second.
    pub read: Option<f64>,
    /// Bytes written to devices per second.
    pub written: Option<f64>,
    /// Share of time in which some task waited for a CPU, a device, memory.
    pub pressure: [Option<f64>; 3],
    /// Tasks.
    pub tasks: Option<f64>,
    /// Tasks that run or want to.
    pub running: Option<f64>,
    /// Tasks in D state.
    pub blocked: Option<f64>,
    /// CPU seconds per second of the recorder.
    pub own_cpu: Option<f64>,
    /// Its resident bytes.
    pub own_rss: Option<f64>,
    /// Bytes it writes per second.
    pub own_written: Option<f64>,
}

/// One process.
#[derive(Debug, Clone)]
pub struct ProcessLine {
    /// Its id.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// Task-seconds lost per second.
    pub lost: f64,
    /// CPUs used.
    pub cpu: f64,
    /// Bytes read from devices per second.
    pub read: f64,
    /// Bytes written per second.
    pub written: f64,
    /// Resident bytes.
    pub rss: Option<f64>,
}

fn metrics(names: &[&str]) -> Vec<&'static Metric> {
    names.iter().filter_map(|name| lookup(name)).collect()
}

/// Reads the moment; `None` while there is nothing to read.
pub fn snapshot(reader: &Reader) -> Result<Option<Snapshot>> {
    let Some(known) = reader.span() else { return Ok(None) };
    let until = known.until;
    let names: Vec<&str> = MACHINE.iter().chain(ledger::METRICS).copied().collect();
    let minute = Span { since: until - HISTORY as i64 * SECOND, until };
    let set = reader.read(&Query::new(minute, metrics(&names)))?;
    let step_s = set.system("sys.cpu_idle").map_or(1.0, |s| s.axis.step_s());
    let step_s = if step_s.is_finite() { step_s.clamp(1.0, STEP_S_MAX) } else { 1.0 };
    let recent = Span { since: until - RECENT_NS.max((2.0 * step_s * SECOND as f64) as i64), until };
    let tasks = reader.read(&Query::new(recent, metrics(PROCESSES)))?;
    let (lost, causes) = losses(&set, minute);
    Ok(Some(Snapshot {
        at: until,
        lost,
        causes,
        machine: machine(&set, recent),
        processes: processes(&tasks, recent, set.host.page_bytes as f64),
    }))
}

/// The ledger, one sample after the other: the newest [`HISTORY`] samples of the last minute.
fn losses(set: &SeriesSet, minute: Span) -> (Vec<f64>, Vec<CauseLine>) {
    let Some(clock) = set.system("sys.cpu_idle").or_else(|| set.system("mem.total")) else {
        return (Vec::new(), Vec::new());
    };
    let axis = &clock.axis;
    let range = axis.range(minute);
    let samples: Vec<usize> = range.filter(|i| axis.dt[*i].is_finite()).collect();
    let samples = &samples[samples.len().saturating_sub(HISTORY)..];
    let mut lost = vec![f64::NAN; samples.len()];
    let mut causes: Vec<CauseLine> = Vec::new();
    for (slot, (&i, lost)) in samples.iter().zip(&mut lost).enumerate() {
        let (t, dt) = (axis.t[i], axis.dt[i]);
        let ledger = ledger::ledger(set, Span { since: t, until: t + 1 }, &[]);
        *lost = ledger.lost_task_seconds.map_or(f64::NAN, |s| s / dt);
        for share in ledger.by_cause {
            let known = causes.iter().position(|c| c.cause == share.cause).unwrap_or_else(|| {
                causes.push(CauseLine { cause: share.cause.clone(), history: vec![0.0; samples.len()] });
                causes.len() - 1
            });
            causes[known].history[slot] = share.seconds / dt;
        }
    }
    let total = |line: &CauseLine| line.history.iter().sum::<f64>();
    causes.sort_by(|a, b| total(b).total_cmp(&total(a)));
    (lost, causes)
}

fn machine(set: &SeriesSet, recent: Span) -> Machine {
    let mean = |metric: &str| set.system(metric).and_then(|s| s.mean(recent));
    let last = |metric: &str| set.system(metric).and_then(|s| s.last(recent));
    let cpus = f64::from(set.host.cpus.max(1));
    let share = |metrics: &[&str]| -> Option<f64> {
        let parts: Vec<f64> = metrics.iter().filter_map(|m| mean(m)).collect();
        (!parts.is_empty()).then(|| parts.iter().sum::<f64>() / cpus)
    };
    Machine {
        cpus: set.host.cpus,
        user: share(&["sys.cpu_user", "sys.cpu_nice"]),
        system: share(&["sys.cpu_system", "sys.cpu_irq", "sys.cpu_softirq"]),
        iowait: share(&["sys.cpu_iowait"]),
        steal: share(&["sys.cpu_steal"]),
        load: last("sys.load1"),
        memory: last("mem.total"),
        available: last("mem.available"),
        cached: last("mem.cached"),
        read: mean("vm.pgpgin"),
        written: mean("vm.pgpgout"),
        pressure: ["psi.cpu_some", "psi.io_some", "psi.memory_some"].map(mean),
        tasks: last("tasks.total"),
        running: last("tasks.running"),
        blocked: last("tasks.uninterruptible"),
        own_cpu: mean("mitra.cpu_time"),
        own_rss: last("mitra.rss"),
        own_written: set.system("mitra.written_bytes").and_then(|s| s.mean(Span::ALL)),
    }
}

/// Everybody who loses or uses something; the screen shows as many as fit.
fn processes(set: &SeriesSet, recent: Span, page_bytes: f64) -> Vec<ProcessLine> {
    let seconds = set
        .each("task.tgid")
        .next()
        .map(|(_, s)| s.axis.dt[s.axis.range(recent)].iter().filter(|dt| dt.is_finite()).sum::<f64>())
        .filter(|s| *s > 0.0)
        .unwrap_or(1.0);
    let mut lines: Vec<ProcessLine> = process::collect(set)
        .iter()
        .map(|p| {
            let rate = |metric: &str| p.total(set, metric, recent) / seconds;
            let pages = |metric: &str| p.series(set, metric).filter_map(|s| s.last(recent)).reduce(f64::max);
            let rss = ["task.rss_anon", "task.rss_file", "task.rss_shmem"].map(pages);
            ProcessLine {
                pid: p.pid,
                name: p.comm.to_owned(),
                lost: ledger::lost_by(p, set, recent) / seconds,
                cpu: rate("task.cpu_time"),
                read: rate("task.read_bytes"),
                written: rate("task.write_bytes"),
                rss: rss.into_iter().flatten().reduce(|a, b| a + b).map(|pages| pages * page_bytes),
            }
        })
        .filter(|p| p.lost + p.cpu + p.read + p.written > 0.0)
        .collect();
    lines.sort_by(|a, b| (b.lost + b.cpu).total_cmp(&(a.lost + a.cpu)));
    lines
}
