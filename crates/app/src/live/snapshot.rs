//! The current state of the machine: where time is lost, what it does, which processes do it.

use anyhow::Result;
use mitra_archive::{Query, Reader};
use mitra_diagnose::{ledger, process};
use mitra_model::time::SECOND;
use mitra_model::{Entity, Metric, SeriesSet, Span, columns, lookup};

use crate::services;

/// Samples of history on the screen.
pub const HISTORY: usize = 60;
/// Numbers that should not flicker are means over this long.
const RECENT_NS: i64 = 5 * SECOND;
/// A recording with a longer interval is averaged over this many seconds.
const STEP_S_MAX: f64 = 60.0;

/// For the line about the machine.
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
/// For the table of processes.
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

#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// Nanoseconds since 1970.
    pub at: i64,
    /// Task-seconds lost per second, oldest first; `NaN` where unknown.
    pub lost: Vec<f64>,
    /// The same by cause, largest first.
    pub causes: Vec<CauseLine>,
    pub machine: Machine,
    /// By lost time and CPU.
    pub processes: Vec<ProcessLine>,
    /// By the number of clients that wait.
    pub services: Vec<ServiceLine>,
}

/// What a service does; `None` where it was not measured.
#[derive(Debug, Clone)]
pub struct ServiceLine {
    pub name: String,
    pub address: String,
    /// Answers per second.
    pub requests: Option<f64>,
    /// Seconds of an answer.
    pub p50: Option<f64>,
    pub p99: Option<f64>,
    /// How many wait at a time.
    pub waiting: Option<f64>,
}

#[derive(Debug, Clone)]
pub struct CauseLine {
    /// As in the ledger.
    pub cause: String,
    /// Task-seconds per second, oldest first.
    pub history: Vec<f64>,
}

/// The machine as a whole; `None` where it was not measured.
#[derive(Debug, Clone, Default)]
pub struct Machine {
    pub cpus: u32,
    /// Shares of all CPU time. `system` includes interrupts.
    pub user: Option<f64>,
    pub system: Option<f64>,
    pub iowait: Option<f64>,
    pub steal: Option<f64>,
    /// Of one minute.
    pub load: Option<f64>,
    /// Bytes of memory.
    pub memory: Option<f64>,
    pub available: Option<f64>,
    pub cached: Option<f64>,
    /// Bytes per second of all block devices.
    pub read: Option<f64>,
    pub written: Option<f64>,
    /// PSI "some" of cpu, io and memory.
    pub pressure: [Option<f64>; 3],
    pub tasks: Option<f64>,
    pub running: Option<f64>,
    /// Tasks in D state.
    pub blocked: Option<f64>,
    /// The recorder's own CPU seconds per second, resident bytes and written bytes per second.
    pub own_cpu: Option<f64>,
    pub own_rss: Option<f64>,
    pub own_written: Option<f64>,
}

#[derive(Debug, Clone)]
pub struct ProcessLine {
    pub pid: u32,
    pub name: String,
    /// Task-seconds lost per second.
    pub lost: f64,
    /// CPUs used.
    pub cpu: f64,
    /// Bytes per second of block devices.
    pub read: f64,
    pub written: f64,
    /// Resident bytes.
    pub rss: Option<f64>,
}

fn metrics(names: &[&str]) -> Vec<&'static Metric> {
    names.iter().filter_map(|name| lookup(name)).collect()
}

/// Reads the current state; `None` while the archive is empty.
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
    let asked = reader.read(&Query::new(recent, columns(Entity::Service).to_vec()))?;
    let (lost, causes) = losses(&set, minute);
    Ok(Some(Snapshot {
        at: until,
        lost,
        causes,
        machine: machine(&set, recent),
        processes: processes(&tasks, recent, set.host.page_bytes as f64),
        services: service_lines(&asked, &tasks, recent),
    }))
}

/// Those that were asked something, or have somebody waiting.
fn service_lines(set: &SeriesSet, tasks: &SeriesSet, recent: Span) -> Vec<ServiceLine> {
    let is_busy = |t: &services::Traffic| [t.requests, t.waiting, t.open].into_iter().any(services::is_some);
    let all = services::of(set, tasks, recent).services.into_iter();
    all.filter(|service| is_busy(&service.traffic))
        .map(|service| ServiceLine {
            name: service.name,
            address: service.key,
            requests: service.traffic.requests,
            p50: service.traffic.latency.quantile(0.5),
            p99: service.traffic.latency.quantile(0.99),
            waiting: service.traffic.waiting,
        })
        .collect()
}

/// The ledger of each of the newest [`HISTORY`] samples of the last minute.
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
        let ledger = ledger::ledger(set, Span { since: t, until: t + 1 }, ledger::Waited::default());
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

/// All processes that lose or use something; the screen shows as many as fit.
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

/// Made up: services of a machine.
#[cfg(test)]
pub fn example_services() -> Vec<ServiceLine> {
    let line = |name: &str, address: &str, requests: f64, p50: Option<f64>, waiting: f64| ServiceLine {
        name: name.to_owned(),
        address: address.to_owned(),
        requests: Some(requests),
        p50,
        p99: p50.map(|p50| p50 * 3.5),
        waiting: Some(waiting),
    };
    vec![
        line("gunicorn", "127.0.0.1:8080", 0.0, None, 412.0),
        line("nginx\x1b[2J", "0.0.0.0:443@net:[4026532201]", 1_240.0, Some(0.0031), 6.2),
        line("redis-server", "unix:/run/redis/redis-server.sock", 85_300.0, Some(0.000_08), 5.1),
        line("postgres", "127.0.0.1:5432", 12.0, Some(0.011), 0.04),
    ]
}

/// Made up: a machine in trouble.
#[cfg(test)]
pub fn example() -> Snapshot {
    let wave = |scale: f64| (0..60).map(|i| scale * f64::from(i % 12) / 12.0).collect::<Vec<f64>>();
    let cause = |name: &str, scale: f64| CauseLine { cause: name.to_owned(), history: wave(scale) };
    let process = |pid: u32, name: &str, lost: f64, cpu: f64| ProcessLine {
        pid,
        name: name.to_owned(),
        lost,
        cpu,
        read: cpu * 1e8,
        written: 0.0,
        rss: Some(4.2e8),
    };
    Snapshot {
        at: 1_795_232_587 * SECOND,
        lost: wave(6.5),
        causes: vec![
            cause("refault", 5.0),
            cause("block-io", 1.5),
            cause("run-queue", 0.2),
            cause("lock", 0.01),
        ],
        machine: Machine {
            cpus: 2,
            user: Some(0.12),
            system: Some(0.31),
            iowait: Some(0.44),
            steal: Some(0.0),
            load: Some(14.2),
            memory: Some(25.3e9),
            available: Some(3.1e9),
            cached: Some(21.0e9),
            read: Some(7.1e8),
            written: Some(1.2e5),
            pressure: [Some(0.05), Some(0.64), None],
            tasks: Some(1_204.0),
            running: Some(2.0),
            blocked: Some(14.0),
            own_cpu: Some(0.0031),
            own_rss: Some(15.1e6),
            own_written: Some(412.0),
        },
        processes: vec![
            process(4242, "java", 5.2, 0.31),
            process(991, "nginx\x1b[2J", 0.9, 0.02),
            process(8123, "dd", 0.1, 0.55),
        ],
        services: Vec::new(),
    }
}
