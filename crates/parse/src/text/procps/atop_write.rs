//! What `atop -P` prints, written from a recording. The positions of the fields are those of [`super::atop_parseable`].
//!
//! A field that was not measured is -1, as atop itself prints what a kernel does not have. Command lines, users and the
//! times at which processes began are not recorded; a line of a process is the sum of its threads.

use std::collections::BTreeMap;
use std::fmt::Write;

use mitra_model::{HostInfo, Metric, lookup};

use super::atop_parseable::{
    CPL, CPU, DISK, DISK_BYTES, DISK_TIME, Field, How, LOADS, MEM, NIC, PAG, PAG_BYTES, PRD, PRM, PSI, SWP,
    UPPER, fields, prc,
};
use crate::text::export::{Sample, date_and_time, is_partition, metrics, word};

/// The ticks that are written: hundredths of a second, as the kernel shows them.
const TICKS: f64 = 100.0;
/// What is written of a process beside what the reader reads.
const TASK_METRICS: &[&str] =
    &["task.tgid", "task.ppid", "task.state", "task.threads", "task.swap", "task.comm", "task.cgroup"];
/// Parts of the resident memory, in pages.
const RSS: &[&str] = &["task.rss_anon", "task.rss_file", "task.rss_shmem"];

/// Every metric that is needed.
#[must_use]
pub fn needs() -> Vec<&'static Metric> {
    let of_table = [LOADS, CPL, MEM, SWP, PAG, PAG_BYTES, PSI, DISK, DISK_TIME, DISK_BYTES, UPPER, NIC];
    let of_table = of_table.into_iter().flatten().map(|(_, metric)| *metric);
    let times: Vec<String> =
        CPU.iter().flat_map(|(_, time)| [format!("sys.cpu_{time}"), format!("cpu.{time}")]).collect();
    let of_tasks = prc(TICKS);
    let of_tasks = of_tasks.iter().chain(PRM).chain(PRD).map(|(_, metric, ..)| *metric);
    let others = TASK_METRICS.iter().chain(RSS).copied();
    metrics(of_table.chain(times.iter().map(String::as_str)).chain(of_tasks).chain(others))
}

/// Adds the lines of one moment, with `SEP` behind them.
pub fn moment(sample: &Sample<'_>, host: &HostInfo, out: &mut String) {
    let mut page = Writer::new(sample, host, out);
    page.machine();
    page.processes();
    out.push_str("SEP\n");
}

struct Writer<'a, 'b> {
    sample: &'a Sample<'b>,
    host: &'a HostInfo,
    out: &'a mut String,
    /// Host, time and length of the interval, which are the same in all lines.
    head: String,
    /// In whole seconds, as atop has it; counts are of so long, so that the rates are right.
    interval_s: f64,
}

/// The cells of a line, of which nothing is known yet.
struct Cells(Vec<String>);

impl Cells {
    fn new(width: usize, known: &[(usize, &str)]) -> Cells {
        let mut cells = Cells(vec!["-1".to_owned(); width]);
        known.iter().for_each(|(at, text)| cells.set(*at, (*text).to_owned()));
        cells
    }

    fn set(&mut self, at: usize, text: String) {
        if let Some(cell) = self.0.get_mut(at) {
            *cell = text;
        }
    }
}

impl<'a, 'b> Writer<'a, 'b> {
    fn new(sample: &'a Sample<'b>, host: &'a HostInfo, out: &'a mut String) -> Self {
        let interval_s = sample.interval_s.round().max(1.0);
        let (date, time) = date_and_time(sample.t);
        let seconds = sample.t.div_euclid(1_000_000_000);
        let head =
            format!("{} {seconds} {} {time} {interval_s:.0}", word(&host.hostname), date.replace('-', "/"));
        Writer { sample, host, out, head, interval_s }
    }

    fn line(&mut self, label: &str, cells: &Cells) {
        _ = writeln!(self.out, "{label} {} {}", self.head, cells.0.join(" "));
    }

    /// Fills in fields with the numbers that `value` knows; whether it knows any.
    fn fill(
        &self,
        cells: &mut Cells,
        list: impl Iterator<Item = Field>,
        value: impl Fn(&str) -> f64,
    ) -> bool {
        let mut any = false;
        for (at, metric, how, factor) in list {
            let number = value(metric) / factor * if how == How::Count { self.interval_s } else { 1.0 };
            if number.is_finite() {
                let decimals = if metric.starts_with("sys.load") { 2 } else { 0 };
                cells.set(at, format!("{number:.decimals$}"));
                any = true;
            }
        }
        any
    }

    /// A line, if anything of it was measured.
    fn of_row(&mut self, label: &str, mut cells: Cells, list: impl Iterator<Item = Field>, row: &str) {
        if self.fill(&mut cells, list, |metric| self.sample.value(metric, row)) {
            self.line(label, &cells);
        }
    }

    fn machine(&mut self) {
        let times = |of: &str| {
            let named = fields(How::Count, 1.0 / TICKS, CPU);
            let metric =
                |(at, time, how, by): Field| Some((at, lookup(&format!("{of}{time}"))?.name, how, by));
            named.filter_map(metric).collect::<Vec<Field>>()
        };
        let cpus = self.host.cpus.to_string();
        self.of_row("CPU", Cells::new(15, &[(0, "100"), (1, &cpus)]), times("sys.cpu_").into_iter(), "");
        for cpu in self.sample.rows("cpu.idle") {
            let cells = Cells::new(15, &[(0, "100"), (1, &word(cpu))]);
            self.of_row("cpu", cells, times("cpu.").into_iter(), cpu);
        }
        let loads = fields(How::Level, 1.0, LOADS).chain(fields(How::Count, 1.0, CPL));
        self.of_row("CPL", Cells::new(6, &[(0, &cpus)]), loads, "");
        let page = self.page();
        if page > 0.0 {
            let size = format!("{page:.0}");
            self.of_row("MEM", Cells::new(21, &[(0, &size)]), fields(How::Level, page, MEM), "");
            self.of_row("SWP", Cells::new(9, &[(0, &size)]), fields(How::Level, page, SWP), "");
            let paging = fields(How::Count, 1.0, PAG).chain(fields(How::Count, page, PAG_BYTES));
            self.of_row("PAG", Cells::new(12, &[(0, &size)]), paging, "");
        }
        self.of_row("PSI", Cells::new(21, &[(0, "y")]), fields(How::Count, 1e-6, PSI), "");
        for disk in self.sample.rows("disk.io_time").into_iter().filter(|name| !is_partition(name)) {
            let label = match disk {
                _ if disk.starts_with("dm-") => "LVM",
                _ if disk.starts_with("md") => "MDD",
                _ => "DSK",
            };
            let list = fields(How::Count, 1.0, DISK)
                .chain(fields(How::Count, 1e-3, DISK_TIME))
                .chain(fields(How::Count, 512.0, DISK_BYTES));
            self.of_row(label, Cells::new(10, &[(0, &word(disk))]), list, disk);
        }
        self.of_row("NET", Cells::new(17, &[(0, "upper")]), fields(How::Count, 1.0, UPPER), "");
        for nic in self.sample.rows("nic.rx_bytes") {
            self.of_row("NET", Cells::new(7, &[(0, &word(nic))]), fields(How::Count, 1.0, NIC), nic);
        }
    }

    fn page(&self) -> f64 {
        self.host.page_bytes as f64
    }

    fn processes(&mut self) {
        let mut threads: BTreeMap<u64, Vec<&str>> = BTreeMap::new();
        for row in self.sample.rows("task.state") {
            let process = self.sample.constant("task.tgid", row).filter(|pid| *pid > 0.0);
            if let Some(process) = process {
                threads.entry(process as u64).or_default().push(row);
            }
        }
        for (pid, rows) in &threads {
            let id = format!("{pid}@");
            let leader = rows.iter().copied().find(|row| row.starts_with(&id));
            if let Some(leader) = leader {
                self.process(*pid, leader, rows);
            }
        }
    }

    fn process(&mut self, pid: u64, leader: &str, rows: &[&str]) {
        let of = |metric: &str| self.sample.value(metric, leader);
        let text = |value: f64| if value.is_finite() { format!("{value:.0}") } else { "-1".to_owned() };
        let state = of("task.state");
        let state = Some(state as u8 as char).filter(char::is_ascii_alphabetic).unwrap_or('-');
        let name: String = self.sample.text("task.comm", leader).unwrap_or_default().to_owned();
        let name: String = name.chars().map(|c| if mitra_model::must_escape(c) { '_' } else { c }).collect();
        let (state, pid, page) = (state.to_string(), pid.to_string(), self.page());
        let pages = |pages: f64| if page > 0.0 { pages * page } else { f64::NAN };
        // Counts are of all threads, levels of the process.
        let value = |metric: &str| match metric {
            "task.rss" => pages(self.sample.sum(RSS, leader)),
            "task.nice" | "task.cpu" | "task.vsize" => of(metric),
            _ => {
                let counts = rows.iter().map(|row| self.sample.mean_of_step(metric, row));
                counts.filter(|v| v.is_finite()).reduce(|a, b| a + b).unwrap_or(f64::NAN)
            }
        };
        let swap = text(pages(of("task.swap")) / 1024.0);
        let (threads, parent) = (text(of("task.threads")), text(of("task.ppid")));
        let known: [(usize, &str); 5] = [(0, &state), (3, &pid), (4, &threads), (7, "()"), (8, &parent)];
        let mut general = Cells::new(25, &known);
        let cgroup = word(self.sample.text("task.cgroup", leader).unwrap_or_default());
        for (at, known) in [(19, "y"), (22, "-"), (23, "-"), (24, &*format!("({cgroup})"))] {
            general.set(at, known.to_owned());
        }
        let mut cpu = Cells::new(17, &[(0, &state), (1, "100"), (10, &pid), (11, "y"), (13, "()")]);
        self.fill(&mut cpu, prc(TICKS).into_iter(), value);
        let size = format!("{page:.0}");
        let known: [(usize, &str); 5] = [(0, &state), (1, &size), (12, &swap), (13, &pid), (14, "y")];
        let mut memory = Cells::new(21, &known);
        self.fill(&mut memory, PRM.iter().copied(), value);
        let mut disk = Cells::new(11, &[(0, &state), (1, "n"), (2, "y"), (8, &pid), (9, "n"), (10, "y")]);
        self.fill(&mut disk, PRD.iter().copied(), value);
        for (label, cells) in [("PRG", general), ("PRC", cpu), ("PRM", memory), ("PRD", disk)] {
            _ = writeln!(self.out, "{label} {} {pid} ({name}) {}", self.head, cells.0.join(" "));
        }
    }
}
