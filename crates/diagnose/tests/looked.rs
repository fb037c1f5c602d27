//! What a look into a growing process tells: a leak in native code, objects of the runtime, or no leak at all.

#[path = "support/mod.rs"]
#[expect(dead_code, reason = "each test program uses its own part of the support")]
mod support;

use mitra_model::capture::heap::{self, HeapRow};
use mitra_model::capture::{Captured, Ended};
use mitra_model::report::Report;
use mitra_model::time::SECOND;
use support::{HEALTHY, INCIDENT, Machine, START, ids, row};

const N: usize = HEALTHY + INCIDENT + 20;
const MB: f64 = 1e6;

/// A process that grows by two gigabytes until little is left.
fn growing() -> Machine {
    let ramp = |from: f64, to: f64| -> Vec<f64> {
        (0..N)
            .map(|i| from + (to - from) * i.saturating_sub(HEALTHY).min(INCIDENT) as f64 / INCIDENT as f64)
            .collect()
    };
    let mut m = Machine::idle();
    m.set.host.memory_bytes = 24_000_000_000;
    m.values("mem.available", "", 0, ramp(3000.0 * MB, 900.0 * MB));
    m.values("mem.anon", "", 0, ramp(400.0 * MB, 2_400.0 * MB));
    m.task(70, "python3", 0).values("task.rss_anon", &row(70), 0, ramp(20e6 / 4096.0, 2_020e6 / 4096.0));
    m
}

/// A look at it in some second.
fn look(m: &mut Machine, second: usize, rows: &[(HeapRow<'_>, u64, f64)]) {
    let mut captured = Captured {
        kind: heap::KIND.to_owned(),
        since_real: START + second as i64 * SECOND,
        seconds: 2.0,
        ended: Ended::Time,
        ..Captured::default()
    };
    for (what, count, mb) in rows {
        heap::add(&mut captured, 70, "python3", *what, *count, (mb * MB) as u64);
    }
    m.event(second, captured.event(None).kind);
}

/// Why a condition was ruled out.
fn refuted<'a>(report: &'a Report, id: &str) -> &'a str {
    let incident = &report.incidents[0];
    incident.ruled_out.iter().find(|r| r.condition == id).map_or("", |r| r.because.as_str())
}

#[test]
fn what_the_interpreter_does_not_know_of_leaks_in_native_code() {
    let mut m = growing();
    look(
        &mut m,
        HEALTHY + INCIDENT - 2,
        &[
            (HeapRow::Resident, 0, 1_900.0),
            (HeapRow::InUse, 4_000_000, 1_850.0),
            (HeapRow::Free, 100, 5.0),
            (HeapRow::Managed("CPython 3.11"), 500_000, 58.0),
            (HeapRow::Text("couchbase.context_info"), 2_000_000, 44.0),
            (HeapRow::Type("dict"), 900, 2.0),
        ],
    );
    let report = m.explain();
    assert_eq!(ids(&report), ["memory-leak-native"]);
    let root = &report.incidents[0].root_cause;
    assert_eq!((root.culprit.pid, root.culprit.library.as_deref()), (Some(70), Some("couchbase")));
    assert_eq!(root.culprit.object.as_deref(), Some("string couchbase.context_info"));
    assert!(
        refuted(&report, "memory-leak-managed").contains("accounts for 3.1 %"),
        "{:?}",
        report.incidents[0].ruled_out
    );
}

#[test]
fn what_it_knows_of_is_told_with_its_type_and_holder() {
    let mut m = growing();
    let then = [
        (HeapRow::Resident, 0, 300.0),
        (HeapRow::Managed("CPython 3.11"), 400_000, 200.0),
        (HeapRow::Type("str"), 300_000, 100.0),
        (HeapRow::Type("app.Session"), 10_000, 20.0),
    ];
    let now = [
        (HeapRow::Resident, 0, 1_900.0),
        (HeapRow::Managed("CPython 3.11"), 9_000_000, 1_700.0),
        (HeapRow::Type("app.Session"), 900_000, 1_500.0),
        (HeapRow::Holder("values of app.CACHE"), 0, 0.0),
        (HeapRow::Type("str"), 300_000, 100.0),
    ];
    look(&mut m, HEALTHY + 8, &then);
    look(&mut m, HEALTHY + INCIDENT - 2, &now);
    let report = m.explain();
    assert_eq!(ids(&report), ["memory-leak-managed"]);
    let root = &report.incidents[0].root_cause;
    assert_eq!(root.culprit.object.as_deref(), Some("type app.Session"));
    let all = format!("{:?}", report.incidents[0]);
    assert!(all.contains("held by values of app.CACHE") && all.contains("after 10,000"), "{all}");
}

/// The machine has room; the group of the process has none, from two thirds of the growth on.
fn contained(anonymous: f64, limit: f64) -> Machine {
    let mut m = Machine::idle();
    m.set.host.memory_bytes = 240_000_000_000;
    let ramp = |to: f64| -> Vec<f64> {
        let share = |i: usize| (i.saturating_sub(HEALTHY) as f64 / INCIDENT as f64 * 1.5).min(1.0);
        (0..N).map(|i| 20e6 + (to - 20e6) * share(i)).collect()
    };
    let full = |i: usize| (HEALTHY + 2 * INCIDENT / 3..HEALTHY + INCIDENT).contains(&i);
    m.sys("mem.available", 200e9, 198e9);
    m.values("cgroup.memory_current", "/app", 0, ramp(limit));
    m.values("cgroup.memory_max", "/app", 0, vec![limit; N]);
    let fails = (0..N).map(|i| if full(i) { 500.0 } else { 0.0 }).collect();
    m.values("cgroup.memory_failcnt", "/app", 0, fails);
    let waits: Vec<f64> = (0..N).map(|i| if full(i) { 0.6 } else { 0.0 }).collect();
    m.values("cgroup.psi_memory_some", "/app", 0, waits.clone()).values("psi.memory_some", "", 0, waits);
    let pages = ramp(anonymous).into_iter().map(|bytes| bytes / 4096.0).collect();
    m.task(70, "python3", 0).cgroup(70, "/app/worker").values("task.rss_anon", &row(70), 0, pages);
    look(
        &mut m,
        HEALTHY + INCIDENT - 4,
        &[
            (HeapRow::Resident, 0, 1_000.0),
            (HeapRow::InUse, 4_000_000, 950.0),
            (HeapRow::Managed("CPython 3.11"), 500_000, 40.0),
            (HeapRow::Chunk("96 bytes"), 3_000_000, 288.0),
        ],
    );
    m
}

#[test]
fn a_leak_fills_the_control_group_that_it_is_in() {
    let report = contained(1_020e6, 1_073e6).explain();
    assert_eq!(ids(&report), ["memory-leak-native"]);
    let root = &report.incidents[0].root_cause;
    assert_eq!((root.culprit.pid, root.culprit.cgroup.as_deref()), (Some(70), Some("/app/worker")));
    assert_eq!(root.culprit.object.as_deref(), Some("chunks of 96 bytes"));
    assert!(report.incidents[0].chain.iter().any(|link| link.condition == "cgroup-memory-limit"));
}

#[test]
fn a_heap_that_levels_off_below_the_limit_does_not_fill_the_group() {
    // The rest of it are file pages.
    let report = contained(650e6, 1_073e6).explain();
    assert_eq!(ids(&report), ["cgroup-memory-limit"]);
}

#[test]
fn what_the_allocator_holds_without_use_is_no_leak() {
    let mut m = growing();
    let rows = [
        (HeapRow::Resident, 0, 1_900.0),
        (HeapRow::InUse, 40_000, 200.0),
        (HeapRow::Free, 4_000_000, 1_600.0),
        (HeapRow::Managed("CPython 3.11"), 500_000, 58.0),
    ];
    look(&mut m, HEALTHY + INCIDENT - 2, &rows);
    let report = m.explain();
    // Memory ran short all the same, and this process took it.
    assert_eq!(ids(&report), ["anonymous-growth"]);
    assert!(refuted(&report, "memory-leak-native").contains("fragmentation"));
}

#[test]
fn a_warm_up_is_no_leak_whatever_was_found() {
    let mut m = Machine::idle();
    m.set.host.memory_bytes = 24_000_000_000;
    let level: Vec<f64> = (0..N).map(|i| if i < HEALTHY { 5e3 } else { 5e5 }).collect();
    m.task(70, "python3", 0).values("task.rss_anon", &row(70), 0, level);
    look(&mut m, HEALTHY + 8, &[(HeapRow::Resident, 0, 1_900.0), (HeapRow::Text("a.b"), 1_000_000, 900.0)]);
    assert_eq!(ids(&m.explain()), Vec::<&str>::new());
}
