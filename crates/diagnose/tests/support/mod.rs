//! A machine made of numbers: a healthy time and then an incident, at one sample a second.

pub mod network;

use std::sync::Arc;

use mitra_diagnose::{History, Request, explain};
use mitra_model::report::Report;
use mitra_model::time::SECOND;
use mitra_model::{Axis, Event, EventKind, HostInfo, Series, SeriesSet, Span, TextSeries, lookup};

/// When the recording begins.
pub const START: i64 = 1_795_000_000 * SECOND;
/// Seconds of healthy time.
pub const HEALTHY: usize = 60;
/// Seconds of the incident after it.
pub const INCIDENT: usize = 40;
/// Healthy seconds at the end.
pub const AFTER: usize = 20;

pub struct Machine {
    pub set: SeriesSet,
    axis: Arc<Axis>,
}

impl Machine {
    /// Two CPUs, all idle, nothing going on.
    pub fn idle() -> Machine {
        Machine::lasting(HEALTHY + INCIDENT + AFTER)
    }

    /// The same for so many seconds.
    pub fn lasting(n: usize) -> Machine {
        Machine::sampled(vec![1.0; n])
    }

    /// The same with samples of so many seconds.
    pub fn sampled(dt: Vec<f64>) -> Machine {
        let ends = dt.iter().scan(START, |end, dt| {
            *end += (*dt * SECOND as f64) as i64;
            Some(*end)
        });
        let axis = Arc::new(Axis { t: ends.collect(), dt, places: Vec::new() });
        let mut set = SeriesSet::default();
        set.source = "archive".to_owned();
        set.host = HostInfo { hostname: "test".into(), cpus: 2, page_bytes: 4096, ..HostInfo::default() };
        let mut machine = Machine { set, axis };
        for metric in [
            "tasks.run_delay",
            "tasks.d_io",
            "tasks.d_lock",
            "tasks.d_memory",
            "tasks.d_throttle",
            "psi.cpu_some",
            "psi.io_some",
            "psi.memory_some",
            "vm.pgscan_kswapd",
            "vm.pgscan_direct",
            "vm.pgsteal_file",
            "vm.pgsteal_anon",
            "vm.workingset_refault_file",
            "vm.workingset_activate_file",
            "vm.workingset_refault_anon",
            "vm.pgmajfault",
            "vm.pswpin",
            "vm.pswpout",
            "vm.oom_kill",
            "tasks.oom_kills",
            "sys.cpu_iowait",
            "tasks.exited",
            "tasks.exited_cpu_time",
            "sys.load1",
            "tasks.busiest",
        ] {
            machine.sys(metric, 0.0, 0.0);
        }
        machine.sys("sys.cpu_idle", 1.96, 1.96);
        machine.sys("tasks.cpu_time", 0.04, 0.04);
        machine.sys("sys.forks", 1.0, 1.0);
        for cpu in ["0", "1"] {
            machine.row("cpu.idle", cpu, 0.98, 0.98);
            machine.row("cpu.iowait", cpu, 0.0, 0.0);
        }
        for metric in [
            "io_time",
            "weighted_time",
            "reads",
            "writes",
            "read_time",
            "write_time",
            "read_bytes",
            "write_bytes",
        ] {
            machine.row(&format!("disk.{metric}"), "vda", 0.0, 0.0);
        }
        machine.row("cgroup.throttled_time", "/app", 0.0, 0.0);
        machine.row("cgroup.memory_failcnt", "/app", 0.0, 0.0);
        machine.task(1, "init", 0);
        machine
    }

    /// A metric of the whole machine: its value in the healthy time and in the incident, with a little noise.
    pub fn sys(&mut self, metric: &str, before: f64, during: f64) -> &mut Self {
        self.row(metric, "", before, during)
    }

    pub fn row(&mut self, metric: &str, row: &str, before: f64, during: f64) -> &mut Self {
        let values = (0..self.axis.len())
            .map(|i| {
                let value = if (HEALTHY..HEALTHY + INCIDENT).contains(&i) { during } else { before };
                // Plus and minus two per cent, in a fixed pattern.
                value * (1.0 + 0.02 * f64::from((i as u32 * 7919) % 5) - 0.04)
            })
            .collect();
        self.values(metric, row, 0, values)
    }

    pub fn values(&mut self, metric: &str, row: &str, start: usize, values: Vec<f64>) -> &mut Self {
        let metric = lookup(metric).unwrap_or_else(|| panic!("{metric} is not in the table"));
        let values = values.into();
        self.set.insert(metric, row.into(), Series { axis: Arc::clone(&self.axis), start, values });
        self
    }

    /// A process, born at `start` seconds; its rates are set with [`Machine::task_rate`].
    /// A text that stands from a second on.
    pub fn text(&mut self, metric: &str, row: &str, second: usize, text: &str) -> &mut Self {
        let changes = vec![(START + second as i64 * SECOND, Some(Arc::from(text)))];
        self.set.insert_text(lookup(metric).unwrap(), row.into(), TextSeries { changes, place: None });
        self
    }

    /// Texts that follow one another each two seconds from the beginning of the incident on.
    pub fn texts(&mut self, metric: &str, row: &str, texts: &[&str]) -> &mut Self {
        let at = |i: usize| START + (HEALTHY + 2 * i) as i64 * SECOND;
        let changes = texts.iter().enumerate().map(|(i, text)| (at(i), Some(Arc::from(*text)))).collect();
        self.set.insert_text(lookup(metric).unwrap(), row.into(), TextSeries { changes, place: None });
        self
    }

    pub fn task(&mut self, pid: u32, comm: &str, start: usize) -> &mut Self {
        self.thread(pid, pid, comm, start)
    }

    pub fn thread(&mut self, pid: u32, tid: u32, comm: &str, start: usize) -> &mut Self {
        let row = row(tid);
        let n = if start == 0 { self.axis.len() } else { INCIDENT };
        for (metric, value) in [
            ("task.tgid", f64::from(pid)),
            ("task.ppid", 1.0),
            ("task.kthread", 0.0),
            ("task.state", f64::from(b'S')),
            ("task.cpus_allowed", 3.0),
            ("task.cpus_allowed_count", 2.0),
            ("task.cpu_time", 0.0),
            ("task.run_delay", 0.0),
            ("task.read_bytes", 0.0),
            ("task.write_bytes", 0.0),
            ("task.majflt", 0.0),
            ("task.minflt", 0.0),
            ("task.rchar", 0.0),
            ("task.wchar", 0.0),
        ] {
            self.values(metric, &row, start, vec![value; n]);
        }
        let text = |text: &str| TextSeries { changes: vec![(START, Some(Arc::from(text)))], place: None };
        self.set.insert_text(lookup("task.comm").unwrap(), row.as_str().into(), text(comm));
        self.set.insert_text(lookup("task.cgroup").unwrap(), row.as_str().into(), text("/"));
        self
    }

    /// A metric of a task that was there before.
    pub fn task_rate(&mut self, tid: u32, metric: &str, before: f64, during: f64) -> &mut Self {
        self.row(metric, &row(tid), before, during)
    }

    /// A metric of a task that lives as long as the incident.
    pub fn task_during(&mut self, tid: u32, metric: &str, value: f64) -> &mut Self {
        self.values(metric, &row(tid), HEALTHY, vec![value; INCIDENT])
    }

    pub fn cgroup(&mut self, tid: u32, path: &str) -> &mut Self {
        let series = TextSeries { changes: vec![(START, Some(Arc::from(path)))], place: None };
        self.set.insert_text(lookup("task.cgroup").unwrap(), row(tid).as_str().into(), series);
        self
    }

    pub fn event(&mut self, second: usize, kind: EventKind) -> &mut Self {
        self.set.events.push(Event::at(START + second as i64 * SECOND, kind));
        self
    }

    pub fn explain(&self) -> Report {
        self.explain_with(History::default())
    }

    /// The same where it is known what was changed.
    pub fn explain_with(&self, history: History<'_>) -> Report {
        let report = self.explain_since(START, history);
        self.is_over_afterwards(&report, history);
        report
    }

    /// Compared with the healthy time before, whatever stands out in it.
    pub fn explain_against_before(&self) -> Report {
        let at = |second: usize| START + second as i64 * SECOND;
        let window = Span { since: START, until: at(self.axis.len()) };
        let baseline = Some(Span { since: START, until: at(HEALTHY) });
        let history = History::default();
        explain(&Request { window, baseline, history }, &self.set, &|_| Ok(self.set.clone()))
    }

    fn explain_since(&self, since: i64, history: History<'_>) -> Report {
        let seconds = self.axis.len().max(1_000) as i64 + 1;
        let window = Span { since, until: START + seconds * SECOND };
        explain(&Request { window, baseline: None, history }, &self.set, &|_| Ok(self.set.clone()))
    }

    /// Who asks about the time after an incident is not told that it goes on.
    fn is_over_afterwards(&self, report: &Report, history: History<'_>) {
        let ends: Option<Vec<i64>> = report.incidents.iter().map(|i| Some(i.end?.0)).collect();
        let Some(last) = ends.and_then(|ends| ends.into_iter().max()) else { return };
        let later = self.explain_since(last + 2 * SECOND, history);
        let told = later.incidents.iter().find(|i| i.onset.0 < last);
        assert!(told.is_none(), "told as going on after its end: {told:#?}");
    }
}

/// The one incident's root, after checking that its onset is right to a sample or two.
pub fn root(report: &Report) -> (&str, Option<&str>, Option<u32>) {
    assert_eq!(report.incidents.len(), 1, "{:#?}", report.incidents);
    let incident = &report.incidents[0];
    let late = (incident.onset.0 - (START + HEALTHY as i64 * SECOND)) as f64 / SECOND as f64;
    assert!(late.abs() <= 2.0, "onset is {late} s off");
    let end = incident.end.expect("it is over").0;
    let late = (end - (START + (HEALTHY + INCIDENT) as i64 * SECOND)) as f64 / SECOND as f64;
    assert!(late.abs() <= 2.0, "end is {late} s off");
    let root = &incident.root_cause;
    assert!((0.0..=1.0).contains(&root.confidence));
    (&root.condition, root.culprit.process.as_deref(), root.culprit.pid)
}

/// A value for each second of the recording.
pub fn each(f: impl Fn(usize) -> f64) -> Vec<f64> {
    (0..HEALTHY + INCIDENT + AFTER).map(f).collect()
}

/// Whether a second of the recording is one of the incident.
#[must_use]
pub fn is_on(i: usize) -> bool {
    (HEALTHY..HEALTHY + INCIDENT).contains(&i)
}

/// The name of the row of a task.
#[must_use]
pub fn row(tid: u32) -> String {
    format!("{tid}@{}", u64::from(tid) * 1_000_000)
}

/// The root of each incident.
#[must_use]
pub fn ids(report: &Report) -> Vec<&str> {
    report.incidents.iter().map(|i| i.root_cause.condition.as_str()).collect()
}
