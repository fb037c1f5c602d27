//! Recordings of many minutes: nothing in them is left out, and what a machine does all day hides nothing.

#[path = "support/mod.rs"]
#[expect(dead_code, reason = "each test program uses its own part of the support")]
mod support;

use mitra_model::EventKind;
use mitra_model::report::Report;
use mitra_model::time::SECOND;
use support::{Machine, START, ids};

fn onset_s(report: &Report) -> i64 {
    (report.incidents[0].onset.0 - START) / SECOND
}

/// A value for each second, with a little noise.
fn each(m: &mut Machine, metric: &str, row: &str, seconds: usize, value: impl Fn(usize) -> f64) {
    let noisy = |i: usize| value(i) * (1.0 + 0.01 * ((i * 7919) % 5) as f64);
    m.values(metric, row, 0, (0..seconds).map(noisy).collect());
}

/// Connections that find no room in a listener's queue from one second to another.
fn overflow(m: &mut Machine, seconds: usize, from: usize, until: usize) {
    let rate = move |i| if (from..until).contains(&i) { 40.0 } else { 0.0 };
    each(m, "tcpext.ListenOverflows", "", seconds, rate);
}

#[test]
fn what_begins_late_on_a_host_that_is_busy_all_day_is_seen() {
    let mut m = Machine::lasting(900);
    each(&mut m, "sys.ctxt", "", 900, |_| 60_000.0);
    each(&mut m, "disk.io_time", "vda", 900, |_| 0.93);
    assert_eq!(ids(&m.explain()), Vec::<&str>::new());
    overflow(&mut m, 900, 720, 900);
    let report = m.explain();
    assert_eq!(ids(&report), ["listen-overflow"]);
    assert!((719..=721).contains(&onset_s(&report)), "{}", onset_s(&report));
    assert!(report.baseline.is_some(), "the busy time before is what it is compared with");
}

#[test]
fn the_end_of_a_long_episode_is_looked_at() {
    let mut m = Machine::lasting(2400);
    each(&mut m, "disk.io_time", "vda", 2400, |i| if i < 400 { 0.1 } else { 0.95 });
    overflow(&mut m, 2400, 2300, 2400);
    let report = m.explain();
    assert_eq!(ids(&report), ["listen-overflow"]);
    assert!((2299..=2301).contains(&onset_s(&report)), "{}", onset_s(&report));
}

#[test]
fn what_goes_on_from_part_to_part_is_one_incident() {
    for (until, ends) in [(2400, false), (2200, true)] {
        let mut m = Machine::lasting(2400);
        overflow(&mut m, 2400, 400, until);
        let report = m.explain();
        assert_eq!(ids(&report), ["listen-overflow"], "until {until}");
        assert!((399..=401).contains(&onset_s(&report)), "{}", onset_s(&report));
        let end = report.incidents[0].end.map(|end| (end.0 - START) / SECOND);
        assert_eq!(end.is_some(), ends, "{end:?}");
        assert!(end.is_none_or(|end| (2198..=2202).contains(&end)), "{end:?}");
    }
}

#[test]
fn what_happens_twice_in_one_busy_stretch_is_told_twice() {
    // The clients' connections are turned away for half a minute, twice, on a machine that is above some floor all the time between.
    let seconds = 600;
    let mut m = Machine::lasting(seconds);
    each(&mut m, "disk.io_time", "vda", seconds, |i| if i < 100 { 0.1 } else { 0.95 });
    let on = |i: usize| (200..230).contains(&i) || (400..430).contains(&i);
    each(&mut m, "tcpext.ListenOverflows", "", seconds, |i| if on(i) { 40.0 } else { 0.0 });
    each(&mut m, "tasks.run_delay", "", seconds, |i| if on(i) { 3.0 } else { 0.01 });
    let told: Vec<i64> = m.explain().incidents.iter().map(|i| (i.onset.0 - START) / SECOND).collect();
    assert_eq!(told, [200, 400]);
}

#[test]
fn a_trouble_as_old_as_the_recording_is_still_looked_at() {
    let mut m = Machine::lasting(900);
    overflow(&mut m, 900, 0, 900);
    assert_eq!(ids(&m.explain()), ["listen-overflow"]);
}

#[test]
fn of_a_day_that_is_one_episode_the_kill_is_found() {
    let seconds = 20_000;
    let mut m = Machine::lasting(seconds);
    each(&mut m, "disk.io_time", "vda", seconds, |_| 0.95);
    let kill = EventKind::Crash {
        pid: 90,
        comm: "orderd".into(),
        address: 0x10,
        ip: 0x514a,
        error: 4,
        object: None,
        base: None,
        file_offset: None,
    };
    m.event(9_000, kill);
    assert_eq!(ids(&m.explain()), ["process-crash"]);
}

#[test]
fn a_log_that_fills_a_large_disk_slowly_is_seen_and_named() {
    let (total, seconds) = (1e11, 400);
    let mut m = Machine::lasting(seconds);
    m.task(95, "logwriter", 0);
    let left = |i: usize| (64e6 + 5e6 * (300.0 - i as f64)).max(0.0);
    for metric in ["fs.avail_bytes", "fs.free_bytes"] {
        m.values(metric, "/srv", 0, (0..seconds).map(left).collect());
    }
    m.values("fs.total_bytes", "/srv", 0, vec![total; seconds]);
    let written = (0..seconds).map(|i| if i <= 300 { 5e6 } else { 0.0 }).collect();
    m.values("task.write_bytes", "95@95000000", 0, written);
    let report = m.explain();
    assert_eq!(ids(&report), ["filesystem-full"]);
    assert!((298..=301).contains(&onset_s(&report)), "{}", onset_s(&report));
    let culprit = &report.incidents[0].root_cause.culprit;
    assert_eq!((culprit.process.as_deref(), culprit.path.as_deref()), (Some("logwriter"), Some("/srv")));
    // One that is full most of the time, and now and then has a little.
    let mut m = Machine::lasting(seconds);
    m.values("fs.total_bytes", "/srv", 0, vec![total; seconds]);
    let flaps = |i: usize| if i % 60 < 10 { 2e8 } else { 0.0 };
    m.values("fs.avail_bytes", "/srv", 0, (0..seconds).map(flaps).collect());
    assert!(m.explain().incidents.len() <= 1, "it is as it was");
}
