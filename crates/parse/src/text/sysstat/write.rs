//! What `sar` and `sadf -j` print, written from a recording. [`columns`] says which metric a column is and what its
//! unit is worth; what sysstat works out of several counters is worked out here.
//!
//! A cell that was not measured is `nan` in a table and has no key in JSON. A row of which nothing was measured is left
//! out.

use std::fmt::Write;

use mitra_model::{HostInfo, Metric};
use serde_json::{Map, Value, json};

use super::columns::{self, CPU_TIMES, Kind};
use crate::text::export::{Sample, date_and_time, is_partition, metrics, word};
use crate::text::list::list;

/// One table of sar, and its object in JSON.
pub struct Section {
    key: &'static str,
    kind: Kind,
    columns: &'static [&'static [u8]],
    /// The metrics of what is worked out.
    more: &'static [&'static str],
}

const fn section(
    key: &'static str,
    kind: Kind,
    columns: &'static [&'static [u8]],
    more: &'static [&'static str],
) -> Section {
    Section { key, kind, columns, more }
}

const DISK_BYTES: &[&str] = &["disk.read_bytes", "disk.write_bytes", "disk.discard_bytes"];
/// What is neither free nor easily freed is used: since 11.7, page cache and slab are not in it.
const NOT_USED: &[&str] = &["mem.free", "mem.buffers", "mem.cached", "mem.slab"];
const KIB: f64 = 1024.0;
const SECTOR: f64 = columns::SECTOR;

/// The tables of `sar -u -P ALL -w -W -B -b -r ALL -S -q -d -n DEV -n EDEV`.
pub static SECTIONS: &[Section] = &[
    section("cpu-load", Kind::Cpu, list!("%user %nice %system %iowait %steal %idle"), &[]),
    section("process-and-context-switch", Kind::System, list!("proc/s cswch/s"), &[]),
    section("swap-pages", Kind::System, list!("pswpin/s pswpout/s"), &[]),
    section(
        "paging",
        Kind::System,
        list!("pgpgin/s pgpgout/s fault/s majflt/s pgfree/s pgscank/s pgscand/s pgsteal/s %vmeff"),
        &["vm.pgscan"],
    ),
    section(
        "io",
        Kind::System,
        list!("tps rtps wtps dtps bread/s bwrtn/s bdscd/s"),
        &["disk.transfers", "disk.io_time", "disk.read_bytes", "disk.write_bytes", "disk.discard_bytes"],
    ),
    section(
        "memory",
        Kind::System,
        list!(
            "kbmemfree kbavail kbmemused %memused kbbuffers kbcached kbcommit %commit kbactive kbinact kbdirty kbanonpg
             kbslab kbkstack kbpgtbl kbvmused"
        ),
        &["mem.total", "mem.swap_total"],
    ),
    section("memory", Kind::System, list!("kbswpfree kbswpused %swpused kbswpcad %swpcad"), &["mem.swap_total"]),
    section("queue", Kind::System, list!("runq-sz plist-sz ldavg-1 ldavg-5 ldavg-15 blocked"), &[]),
    section(
        "disk",
        Kind::Disk,
        list!("tps rkB/s wkB/s dkB/s areq-sz aqu-sz await %util"),
        &["disk.transfers", "disk.transfer_time"],
    ),
    section(
        "net-dev",
        Kind::Nic,
        list!("rxpck/s txpck/s rxkB/s txkB/s rxcmp/s txcmp/s rxmcst/s %ifutil"),
        &[],
    ),
    section(
        "net-edev",
        Kind::Nic,
        list!("rxerr/s txerr/s coll/s rxdrop/s txdrop/s txcarr/s rxfram/s rxfifo/s txfifo/s"),
        // Says which interfaces there are.
        &["nic.rx_bytes"],
    ),
];

/// The line above the tables of a day: `Linux 6.18.44 (web-17)  2026-11-28  (2 CPU)`. The machine's architecture,
/// which sar puts before the CPUs, is not recorded.
#[must_use]
pub fn title(host: &HostInfo, t: i64) -> String {
    format!(
        "Linux {} ({}) \t{} \t({} CPU)\n",
        word(&host.kernel),
        word(&host.hostname),
        date_and_time(t).0,
        host.cpus
    )
}

/// JSON up to the first moment.
#[must_use]
pub fn json_begin(host: &HostInfo, t: i64) -> String {
    let (date, time) = date_and_time(t);
    let (node, release) = (json!(host.hostname), json!(host.kernel));
    format!(
        "{{\"sysstat\": {{\n\t\"hosts\": [\n\t\t{{\n\t\t\t\"nodename\": {node},\n\t\t\t\"sysname\": \"Linux\",\n\t\t\t\
         \"release\": {release},\n\t\t\t\"number-of-cpus\": {},\n\t\t\t\"file-date\": \"{date}\",\n\t\t\t\
         \"file-utc-time\": \"{time}\",\n\t\t\t\"timezone\": \"UTC\",\n\t\t\t\"statistics\": [\n",
        host.cpus
    )
}

/// Between two moments of JSON.
pub const JSON_BETWEEN: &str = ",\n";

/// JSON behind the last moment, with the times at which the machine had booted again.
#[must_use]
pub fn json_end(host: &HostInfo, boots: &[i64]) -> String {
    let boot = |t: &i64| {
        let (date, time) = date_and_time(*t);
        json!({"boot": {"date": date, "time": time, "utc": 1, "cpu_count": host.cpus}}).to_string()
    };
    let boots: Vec<String> = boots.iter().map(boot).collect();
    format!("\n\t\t\t],\n\t\t\t\"restarts\": [{}]\n\t\t}}\n\t]\n}}}}\n", boots.join(", "))
}

/// The line between tables of two boots. Behind it, the time of a header is the beginning of the first interval.
#[must_use]
pub fn restart(host: &HostInfo, t: i64) -> String {
    format!("\n{}       LINUX RESTART\t({} CPU)\n", date_and_time(t).1, host.cpus)
}

/// The sections of one moment as an object, on one line.
#[must_use]
pub fn json_moment(sample: &Sample<'_>) -> String {
    let (date, time) = date_and_time(sample.t);
    let mut moment = Map::new();
    let interval = json_number(sample.interval_s);
    moment.insert("timestamp".into(), json!({"date": date, "time": time, "utc": 1, "interval": interval}));
    for section in SECTIONS {
        let rows = section.measured(sample);
        if rows.is_empty() {
            continue;
        }
        let objects = rows.iter().map(|(name, cells)| section.object(name, cells));
        match section.kind {
            Kind::System => {
                let known = moment.entry(section.key).or_insert_with(|| json!({}));
                if let Value::Object(known) = known {
                    objects.for_each(|object| known.extend(object));
                }
            }
            Kind::Nic => {
                let network = moment.entry("network").or_insert_with(|| json!({}));
                network[section.key] = objects.map(Value::Object).collect();
            }
            _ => _ = moment.insert(section.key.into(), objects.map(Value::Object).collect()),
        }
    }
    format!("\t\t\t\t{}", Value::Object(moment))
}

/// A number with two decimals at most, as an integer where it is one.
fn json_number(value: f64) -> Value {
    let rounded = (value * 100.0).round() / 100.0;
    // Above 2^53 not every integer is a number of its own.
    if rounded.fract() == 0.0 && rounded.abs() < 9e15 { json!(rounded as i64) } else { json!(rounded) }
}

impl Section {
    /// The metrics that it needs.
    #[must_use]
    pub fn metrics(&self) -> Vec<&'static Metric> {
        let plain = self.columns.iter().filter_map(|name| Some(columns::find(self.kind, name)?.0));
        let times = CPU_TIMES.iter().filter(|_| self.kind == Kind::Cpu);
        let times: Vec<String> =
            times.flat_map(|(_, time)| [format!("sys.cpu_{time}"), format!("cpu.{time}")]).collect();
        metrics(plain.chain(self.more.iter().copied()).chain(times.iter().map(String::as_str)))
    }

    /// The line above the rows, without its time.
    #[must_use]
    pub fn header(&self) -> String {
        let head: &[&[u8]] = match self.kind {
            Kind::Cpu => &[b"CPU"],
            Kind::Disk => &[b"DEV"],
            Kind::Nic => &[b"IFACE"],
            _ => &[],
        };
        let names = head.iter().chain(self.columns).map(|name| String::from_utf8_lossy(name));
        names.map(|name| format!(" {name:>9}")).collect()
    }

    /// Adds the rows of a moment.
    pub fn rows(&self, sample: &Sample<'_>, out: &mut String) {
        let (_, time) = date_and_time(sample.t);
        for (name, cells) in self.measured(sample) {
            out.push_str(&time);
            out.push_str("   ");
            if !name.is_empty() {
                _ = write!(out, " {:>9}", word(name));
            }
            for (column, cell) in self.columns.iter().zip(cells) {
                _ = match (cell.is_finite(), is_whole(column)) {
                    (false, _) => write!(out, " {:>9}", "nan"),
                    (true, true) => write!(out, " {cell:>9.0}"),
                    (true, false) => write!(out, " {cell:>9.2}"),
                };
            }
            out.push('\n');
        }
    }

    /// The rows of which something was measured, with their cells.
    fn measured<'a>(&self, sample: &Sample<'a>) -> Vec<(&'a str, Vec<f64>)> {
        let names = match self.kind {
            Kind::Cpu => [vec!["all"], sample.rows("cpu.idle")].concat(),
            Kind::Disk => {
                sample.rows("disk.io_time").into_iter().filter(|name| !is_partition(name)).collect()
            }
            Kind::Nic => sample.rows("nic.rx_bytes"),
            _ => vec![""],
        };
        let cells = |name: &'a str| -> (&'a str, Vec<f64>) {
            (name, self.columns.iter().map(|column| cell(sample, self.kind, column, name)).collect())
        };
        let is_measured = |(_, cells): &(&str, Vec<f64>)| cells.iter().any(|cell| cell.is_finite());
        names.into_iter().map(cells).filter(is_measured).collect()
    }

    fn object(&self, name: &str, cells: &[f64]) -> Map<String, Value> {
        let mut object = Map::new();
        let key = match self.kind {
            Kind::Cpu => Some("cpu"),
            Kind::Disk => Some("disk-device"),
            Kind::Nic => Some("iface"),
            _ => None,
        };
        if let Some(key) = key {
            object.insert(key.into(), json!(name));
        }
        for (column, cell) in self.columns.iter().zip(cells).filter(|(_, cell)| cell.is_finite()) {
            let (group, key) = self.json_key(column);
            let number = json_number(*cell);
            match group {
                Some(group) => object.entry(group).or_insert_with(|| json!({}))[key] = number,
                None => _ = object.insert(key, number),
            }
        }
        object
    }

    /// What JSON calls a column, and the object that it is in. Names lack what the table puts around them.
    fn json_key(&self, column: &[u8]) -> (Option<&'static str>, String) {
        let name = String::from_utf8_lossy(column);
        let bare = name.strip_suffix("/s").unwrap_or(&name);
        if self.key == "io" {
            let group = match bare {
                "rtps" | "bread" => Some("io-reads"),
                "wtps" | "bwrtn" => Some("io-writes"),
                "dtps" | "bdscd" => Some("io-discard"),
                _ => None,
            };
            return (group, bare.to_owned());
        }
        let key = match bare.strip_prefix('%') {
            Some(share) if self.kind == Kind::Cpu => share.to_owned(),
            Some(share) => format!("{share}-percent"),
            None if bare == "kbinact" => "inactive".to_owned(),
            None => bare.strip_prefix("kb").unwrap_or(bare).to_owned(),
        };
        (None, key)
    }
}

/// Whether a column has no decimals.
fn is_whole(column: &[u8]) -> bool {
    column.starts_with(b"kb") || matches!(column, b"runq-sz" | b"plist-sz" | b"blocked")
}

/// The number of a column.
fn cell(sample: &Sample<'_>, kind: Kind, column: &[u8], row: &str) -> f64 {
    let of = |metric: &str| sample.value(metric, row);
    // A share or a mean of nothing is zero for sysstat; what was not measured is no number.
    let percent = |part: f64, whole: f64| if whole == 0.0 { 0.0 * part } else { 100.0 * part / whole };
    let each = |sum: f64, requests: f64| if requests == 0.0 { 0.0 * sum } else { sum / requests };
    let swap_used = || of("mem.swap_total") - of("mem.swap_free");
    match (kind, column) {
        (Kind::Cpu, _) => cpu_share(sample, column, row),
        (Kind::Disk, b"tps") => of("disk.transfers"),
        (Kind::Disk, b"areq-sz") => each(sample.sum(DISK_BYTES, row) / KIB, of("disk.transfers")),
        (Kind::Disk, b"await") => each(of("disk.transfer_time") * 1e3, of("disk.transfers")),
        (Kind::System, b"tps") => of_disks(sample, "disk.transfers"),
        (Kind::System, b"rtps") => of_disks(sample, "disk.reads"),
        (Kind::System, b"wtps") => of_disks(sample, "disk.writes"),
        (Kind::System, b"dtps") => of_disks(sample, "disk.discards"),
        (Kind::System, b"bread/s") => of_disks(sample, "disk.read_bytes") / SECTOR,
        (Kind::System, b"bwrtn/s") => of_disks(sample, "disk.write_bytes") / SECTOR,
        (Kind::System, b"bdscd/s") => of_disks(sample, "disk.discard_bytes") / SECTOR,
        (Kind::System, b"%vmeff") => percent(of("vm.pgsteal"), of("vm.pgscan")),
        (Kind::System, b"kbmemused") => memory_used(sample) / KIB,
        (Kind::System, b"%memused") => percent(memory_used(sample), of("mem.total")),
        (Kind::System, b"%commit") => percent(of("mem.committed_as"), of("mem.total") + of("mem.swap_total")),
        (Kind::System, b"kbswpused") => swap_used() / KIB,
        (Kind::System, b"%swpused") => percent(swap_used(), of("mem.swap_total")),
        (Kind::System, b"%swpcad") => percent(of("mem.swap_cached"), swap_used()),
        _ => columns::find(kind, column).map_or(f64::NAN, |(metric, like)| of(metric) / like.factor),
    }
}

fn memory_used(sample: &Sample<'_>) -> f64 {
    NOT_USED.iter().fold(sample.value("mem.total", ""), |rest, part| rest - sample.value(part, ""))
}

/// The share of a CPU's time, or of all together. `%system` of `sar -u` has the interrupts in it.
fn cpu_share(sample: &Sample<'_>, column: &[u8], row: &str) -> f64 {
    const INTERRUPTS: &[&str] = &["irq", "softirq"];
    const ALL: &[&str] = &["user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal"];
    let of = |times: &[&str]| {
        let name = |time: &&str| if row == "all" { format!("sys.cpu_{time}") } else { format!("cpu.{time}") };
        let names: Vec<String> = times.iter().map(name).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        sample.sum(&names, if row == "all" { "" } else { row })
    };
    let Some(time) = columns::cpu_time(column) else { return f64::NAN };
    let own = of(&[time]);
    let interrupts = if time == "system" { of(INTERRUPTS) } else { f64::NAN };
    100.0 * (own + if interrupts.is_finite() { interrupts } else { 0.0 }) / of(ALL)
}

/// The sum over the disks of the machine. What lies on other devices would count twice.
fn of_disks(sample: &Sample<'_>, metric: &str) -> f64 {
    let disks =
        sample.rows("disk.io_time").into_iter().filter(|name| !is_partition(name) && !is_virtual(name));
    let values = disks.map(|name| sample.value(metric, name)).filter(|value| value.is_finite());
    values.reduce(|a, b| a + b).unwrap_or(f64::NAN)
}

fn is_virtual(name: &str) -> bool {
    ["dm-", "md", "loop", "ram", "zram", "drbd", "bcache"].iter().any(|kind| name.starts_with(kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_column_has_a_source() {
        for section in SECTIONS {
            assert!(!section.metrics().is_empty(), "{}", section.key);
            let own = ["%vmeff", "%ifutil", "kbswpused", "%swpused", "%swpcad", "%memused", "%commit"];
            for column in section.columns {
                let name = String::from_utf8_lossy(column);
                let known = columns::find(section.kind, column).is_some() || section.kind == Kind::Cpu;
                let worked_out = own.contains(&&*name)
                    || section.key == "io"
                    || matches!(&*name, "tps" | "areq-sz" | "await");
                assert!(known || worked_out, "{name}");
            }
        }
    }
}
