//! What is written in the form of a tool is read back by the reader of that tool with the same values.

use std::sync::Arc;

use mitra_model::{Axis, HostInfo, Series, SeriesSet, Span, lookup};
use mitra_parse::text::export::{Sample, date_and_time, samples};
use mitra_parse::text::procps::atop_write;
use mitra_parse::text::sysstat::write::{JSON_BETWEEN, SECTIONS, json_begin, json_end, json_moment, title};

use crate::support::{import, is_clean, moment, output, series, whole};

const SECOND: i64 = 1_000_000_000;

fn taken(set: &SeriesSet) -> Vec<Sample<'_>> {
    samples(set, set.span().unwrap(), SECOND)
}

fn sar(set: &SeriesSet) -> String {
    let samples = taken(set);
    let mut text = title(&set.host, samples[0].t);
    for section in SECTIONS {
        let mut rows = String::new();
        samples.iter().for_each(|sample| section.rows(sample, &mut rows));
        if !rows.is_empty() {
            let time = date_and_time(samples[0].t - SECOND).1;
            text.push_str(&format!("\n{time}   {}\n{rows}", section.header()));
        }
    }
    text
}

fn json(set: &SeriesSet) -> String {
    let samples = taken(set);
    let moments: Vec<String> = samples.iter().map(json_moment).collect();
    let (begin, end) = (json_begin(&set.host, samples[0].t), json_end(&set.host, &[]));
    format!("{begin}{}{end}", moments.join(JSON_BETWEEN))
}

/// Asserts that each value of the second is in the first, within what the form rounds to. Returns how many there are.
fn same(first: &SeriesSet, second: &SeriesSet, rounding: impl Fn(&str) -> f64) -> usize {
    let mut compared = 0;
    for (metric, rows) in second.metrics() {
        for (row, read) in rows {
            // The kind of a metric that the writer takes from its parts.
            let Some(written) = first.get(metric, row) else { continue };
            for (t, _, value) in read.samples(Span::ALL) {
                let wanted = written.samples(Span { since: t, until: t + SECOND }).next();
                let Some((_, _, wanted)) = wanted else { continue };
                let unit = lookup(metric).unwrap().unit.label();
                let by = rounding(metric) * if unit == "bytes" { 1024.0 } else { 1.0 };
                assert!(
                    (wanted - value).abs() <= by + 0.001 * wanted.abs(),
                    "{metric} of {row:?} at {t}: {value}, not {wanted}"
                );
                compared += 1;
            }
        }
    }
    compared
}

/// `%system` of `sar -u` has the interrupts in it, which other forms have apart.
fn system_with_interrupts(set: &SeriesSet, at: usize) -> f64 {
    let of = |metric: &str| series(set, metric, "").values[at];
    of("sys.cpu_system") + of("sys.cpu_irq") + of("sys.cpu_softirq")
}

#[test]
fn sar_and_sadf() {
    let recorded = whole(output("sar/sadf-j.json")).set;
    for (name, text) in [("sar.txt", sar(&recorded)), ("sadf.json", json(&recorded))] {
        let read = import(name, &text);
        is_clean(&read);
        let set = &read.set;
        assert_eq!(set.host.hostname, recorded.host.hostname, "{name}");
        let system = series(set, "sys.cpu_system", "");
        assert_eq!(system.axis.t[0], series(&recorded, "sys.cpu_user", "").axis.t[0]);
        assert!((system.values[0] - system_with_interrupts(&recorded, 0)).abs() < 0.001, "{name}");
        // Hundredths of a percent of two CPUs, and hundredths of anything else.
        let compared = same(&recorded, set, |metric| {
            if metric.ends_with("cpu_system") || metric == "cpu.system" { 2.0 } else { 0.006 }
        });
        assert!(compared > 500, "{name}: {compared}");
        for (metric, row) in [
            ("sys.cpu_user", ""),
            ("sys.ctxt", ""),
            ("vm.pgpgout", ""),
            ("mem.free", ""),
            ("mem.available", ""),
            ("mem.slab", ""),
            ("sys.load1", ""),
            ("disk.io_time", "vda"),
            ("disk.write_bytes", "vda"),
            ("disk.transfers", "vda"),
            ("disk.transfer_time", "vda"),
            ("nic.rx_bytes", "lo"),
            ("nic.rx_drop", "lo"),
            ("sys.procs_running", ""),
        ] {
            assert!(set.get(metric, row).is_some(), "{name}: {metric}");
        }
    }
}

#[test]
fn what_was_not_measured_is_not_written() {
    let read = import("sadf.json", json(&whole(output("sar/sadf-j.json")).set));
    assert!(read.set.get("nic.tx_colls", "lo").is_some());
    let vmstat = whole(output("vmstat-w-t.C.txt")).set;
    let text = sar(&vmstat);
    assert!(text.contains("cswch/s") && !text.contains("rxpck/s"), "{text}");
    assert!(text.contains("nan"), "forks are not in vmstat");
    let back = import("sar.txt", &text);
    assert!(back.set.get("sys.forks", "").is_none_or(|s| s.values.iter().all(|v| v.is_nan())));
    let object: serde_json::Value = serde_json::from_str(&json(&vmstat)).unwrap();
    let moment = &object["sysstat"]["hosts"][0]["statistics"][0];
    assert!(moment["process-and-context-switch"].get("cswch").is_some());
    assert!(moment["process-and-context-switch"].get("proc").is_none());
}

#[test]
fn lines_of_atop() {
    let recorded = whole(output("atop-P.txt")).set;
    let mut host = recorded.host.clone();
    host.page_bytes = 4096;
    let mut text = String::new();
    taken(&recorded).iter().for_each(|sample| atop_write::moment(sample, &host, &mut text));
    let read = import("atop.txt", &text);
    is_clean(&read);
    // Whole ticks, pages, sectors and milliseconds.
    let compared =
        same(
            &recorded,
            &read.set,
            |metric| if lookup(metric).unwrap().unit.label() == "bytes" { 4.0 } else { 0.51 },
        );
    assert!(compared > 100, "{compared}");
    let user = |set: &SeriesSet| series(set, "sys.cpu_user", "").values.iter().next_back().copied().unwrap();
    assert!((user(&recorded) - user(&read.set)).abs() < 0.011);
    assert!(read.set.each("task.user_time").count() > 1 && read.set.each("cpu.user").count() == 2);
    assert!(text.ends_with("SEP\n"));
}

#[test]
fn a_host_with_a_hostile_name_writes_one_line() {
    let mut set = whole(output("sar/sadf-j.json")).set;
    set.host.hostname = "a b\nLinux\u{1b}[2J".to_owned();
    let text = sar(&set);
    assert!(text.starts_with("Linux ") && !text.contains('\u{1b}'), "{}", &text[..80]);
    assert_eq!(text.lines().nth(1), Some(""));
    assert!(serde_json::from_str::<serde_json::Value>(&json(&set)).is_ok());
}

#[test]
fn steps_take_samples_together() {
    let text = "{\"sysstat\": {\"hosts\": [{\"nodename\": \"a\", \"number-of-cpus\": 1, \"statistics\": [\n\
        {\"timestamp\": {\"date\": \"2026-11-21\", \"time\": \"13:30:15\", \"utc\": 1, \"interval\": 1}, \"process-and-context-switch\": {\"proc\": 1.00, \"cswch\": 100.00}, \"queue\": {\"ldavg-1\": 1.00}},\n\
        {\"timestamp\": {\"date\": \"2026-11-21\", \"time\": \"13:30:16\", \"utc\": 1, \"interval\": 1}, \"process-and-context-switch\": {\"proc\": 3.00, \"cswch\": 300.00}, \"queue\": {\"ldavg-1\": 2.00}}\n\
        ]}]}}\n";
    let set = import("sadf.json", text).set;
    let together = samples(&set, set.span().unwrap(), 60 * SECOND);
    assert_eq!(together.len(), 1);
    assert_eq!(together[0].t, moment(2026, 11, 21, 13 * 3600 + 30 * 60 + 16));
    assert_eq!((together[0].interval_s, together[0].value("sys.ctxt", "")), (2.0, 200.0));
    assert_eq!(together[0].value("sys.load1", ""), 2.0);
    assert!(together[0].value("sys.load5", "").is_nan());
}

#[test]
fn a_process_that_ended_used_nothing_afterwards() {
    let axis = Axis { t: (1..=10).map(|s| s * SECOND).collect(), dt: vec![1.0; 10], places: Vec::new() };
    let axis = Arc::new(axis);
    let mut set = SeriesSet::default();
    let mut add = |metric: &str, values: &[f64]| {
        let series = Series { axis: Arc::clone(&axis), start: 3, values: values.to_vec().into() };
        set.insert(lookup(metric).unwrap(), "7@1".into(), series);
    };
    add("task.tgid", &[7.0, 7.0]);
    add("task.state", &[f64::from(b'R'), f64::from(b'R')]);
    // A CPU for two seconds of ten.
    add("task.user_time", &[1.0, 1.0]);
    let host = HostInfo { hostname: "a".to_owned(), page_bytes: 4096, ..HostInfo::default() };
    let together = samples(&set, Span { since: SECOND, until: 11 * SECOND }, 60 * SECOND);
    assert_eq!((together.len(), together[0].interval_s), (1, 10.0));
    let mut text = String::new();
    atop_write::moment(&together[0], &host, &mut text);
    let line = text.lines().find(|line| line.starts_with("PRC ")).unwrap();
    let ticks = line.split_once(") ").unwrap().1.split(' ').nth(2).unwrap();
    assert_eq!(ticks, "200", "{line}");
}
