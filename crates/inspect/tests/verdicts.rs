//! Verdicts on real Python services at work, measured repeatedly as `mitra inspect heap --watch`
//! does.
//!
//! `MITRA_PYTHONS=all` runs each service on every interpreter of the machine.

#[path = "services/pythons.rs"]
mod pythons;
#[path = "services/service.rs"]
#[expect(dead_code, reason = "each test program uses its own part of it")]
mod service;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use mitra_inspect::diff::RowKind;
use mitra_inspect::verdict::{self, Verdict, VerdictKind};
use mitra_inspect::{Diff, Snapshot, Target, snapshot};
use pythons::pythons;
use service::Service;

/// Debian's version, the default.
const MINORS: &[u32] = &[11];
/// One more than the minimum that shows levelling off.
const SNAPSHOTS: usize = 4;
/// Requests between two snapshots: the amount of work counts, not the speed of this machine.
const REQUESTS: u64 = 30;
/// Between two requests.
const PAUSE: Duration = Duration::from_millis(5);
/// Units of a request: for leaks of native strings, for leaks of objects, which are larger, and for
/// services without a leak.
const STRINGS: u64 = 600;
const OBJECTS: u64 = 200;
const INNOCENT: u64 = 400;

/// The verdict on a service at work.
struct Seen {
    verdict: Verdict,
    diff: Diff,
    truth: serde_json::Value,
}

/// Runs a kind of work on each interpreter and checks the verdict.
fn each(kind: &str, units: u64, check: impl Fn(&Seen)) {
    let all = std::env::var("MITRA_PYTHONS").is_ok_and(|which| which == "all");
    let pythons = pythons(if all { &[] } else { MINORS });
    let count = if all { pythons.len() } else { 1 };
    for (version, python) in pythons.into_iter().take(count) {
        let mut service = Service::start(&python, &["--work", kind]);
        let (verdict, diff) = watched(&mut service, units);
        let seen = Seen { verdict, diff, truth: service.truth() };
        println!("{kind} on {version}: {}: {}", seen.verdict.kind, seen.verdict.statement);
        check(&seen);
    }
}

/// Ends the work when dropped.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Takes snapshots of the service while it works.
fn watched(service: &mut Service, units: u64) -> (Verdict, Diff) {
    let mut target = Target::open(service.pid()).unwrap();
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    // Held while the service works on a request.
    let busy = Mutex::new(());
    let mut client = service.client();
    let options = snapshot::Options { texts: true, ..snapshot::Options::default() };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut ask = || {
                let _busy = busy.lock().unwrap();
                client.get(&format!("/work/{units}")).is_ok()
            };
            while !stop.load(Ordering::Relaxed) && ask() {
                done.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(PAUSE);
            }
            stop.store(true, Ordering::Relaxed);
        });
        // Also if a snapshot fails, or both threads would wait for each other.
        let _stop = Stop(&stop);
        let mut snapshots: Vec<Snapshot> = Vec::new();
        for i in 0..SNAPSHOTS {
            let from = done.load(Ordering::Relaxed);
            while i > 0 && done.load(Ordering::Relaxed) < from + REQUESTS {
                assert!(!stop.load(Ordering::Relaxed), "the service does not answer");
                std::thread::sleep(PAUSE);
            }
            snapshots.push(snapshot::take(&mut target, &options, &mut |_, _| {}).unwrap());
        }
        let culprit = verdict::of(&snapshots, &[]).culprit;
        if let Some(name) = culprit.as_ref().and_then(verdict::Culprit::held_type) {
            // A dict, a set or a list that grows is moved now and then, and on a busy machine each search may meet that.
            let _idle = busy.lock().unwrap();
            snapshot::find_holders(&mut target, &[name.to_owned()], &mut snapshots[SNAPSHOTS - 1]).unwrap();
        }
        (verdict::of(&snapshots, &[]), Diff::between(&snapshots[0], &snapshots[SNAPSHOTS - 1]))
    })
}

/// Asserts a leak of native memory with this text, which comes first among the rows of strings.
fn is_native(seen: &Seen, text: &str) {
    let statement = &seen.verdict.statement;
    assert_eq!(seen.verdict.kind, VerdictKind::NativeLeak, "{statement}");
    let culprit = seen.verdict.culprit.as_ref().unwrap_or_else(|| panic!("nobody's: {statement}"));
    assert!(culprit.name.contains(text), "{}: {statement}", culprit.name);
    let is_text = |what: RowKind| matches!(what, RowKind::String | RowKind::Pattern);
    let first = seen.diff.rows.iter().find(|row| is_text(row.what)).unwrap();
    assert!(first.name.contains(text), "first of the strings: {}", first.name);
}

/// Asserts a leak of objects of this type, held by this holder.
fn is_managed(seen: &Seen, type_name: &str, holder: &str) {
    let statement = &seen.verdict.statement;
    assert_eq!(seen.verdict.kind, VerdictKind::ManagedLeak, "{statement}");
    let culprit = seen.verdict.culprit.as_ref().unwrap_or_else(|| panic!("nobody's: {statement}"));
    let is_of = culprit.name == type_name || culprit.alike.iter().any(|member| member.name == type_name);
    assert!(is_of, "{}: {statement}", culprit.name);
    let held = culprit.holder.as_ref().unwrap_or_else(|| panic!("held by nobody: {statement}"));
    assert!(held.contains(holder), "{held}: {statement}");
    let leaked = &seen.truth["leaked"];
    assert!(leaked.as_object().is_some_and(|types| !types.is_empty()), "it did not leak: {leaked}");
}

fn is_no_leak(seen: &Seen, kinds: &[VerdictKind]) {
    let verdict = &seen.verdict;
    assert!(kinds.contains(&verdict.kind), "{}: {}", verdict.kind, verdict.statement);
}

#[test]
#[ignore = "needs a quiet machine: make test-kernel"]
fn strings_that_a_library_keeps() {
    each("native", STRINGS, |seen| is_native(seen, "GET /api/v#/orders/"));
    each("native-client", STRINGS, |seen| {
        let culprit = seen.verdict.culprit.as_ref().unwrap();
        is_native(seen, "orders");
        assert!(culprit.library.as_ref().is_some_and(|library| library.contains("liborders_client")));
    });
}

#[test]
#[ignore = "needs a quiet machine: make test-kernel"]
fn a_dict_that_is_never_cleaned() {
    each("dict", OBJECTS, |seen| is_managed(seen, "leaks.Session", "leaks.SESSIONS"));
}

#[test]
#[ignore = "needs a quiet machine: make test-kernel"]
fn cycles_with_finalizers() {
    each("cycle", OBJECTS, |seen| is_managed(seen, "leaks.Connection", "nothing but each other"));
}

#[test]
#[ignore = "needs a quiet machine: make test-kernel"]
fn caches_without_a_bound() {
    each("cache", OBJECTS, |seen| is_managed(seen, "leaks.Quote", "leaks.quote"));
    each("cache-object", OBJECTS, |seen| is_managed(seen, "leaks.Quote", "leaks.STORE.items"));
}

#[test]
#[ignore = "needs a quiet machine: make test-kernel"]
fn tasks_that_nobody_waits_for() {
    each("tasks", OBJECTS, |seen| is_managed(seen, "_asyncio.Task", "leaks.BACKGROUND"));
    each("timers", OBJECTS, |seen| is_managed(seen, "_asyncio.Task", "_scheduled"));
}

#[test]
#[ignore = "needs a quiet machine: make test-kernel"]
fn closures_that_are_registered_for_ever() {
    each("closures", OBJECTS, |seen| is_managed(seen, "function", "leaks.HANDLERS"));
}

#[test]
#[ignore = "needs a quiet machine: make test-kernel"]
fn references_that_are_never_given_back() {
    each("reference", OBJECTS, |seen| {
        is_managed(seen, "leaks.Order", "something outside of the interpreter")
    });
}

#[test]
#[ignore = "needs a quiet machine: make test-kernel"]
fn what_only_looks_like_a_leak() {
    each("idle", INNOCENT, |seen| is_no_leak(seen, &[VerdictKind::NoGrowth, VerdictKind::WarmUp]));
    each("lru", INNOCENT, |seen| {
        is_no_leak(seen, &[VerdictKind::NoGrowth, VerdictKind::WarmUp, VerdictKind::BoundedCache])
    });
    each("warmup", INNOCENT, |seen| {
        is_no_leak(seen, &[VerdictKind::NoGrowth, VerdictKind::WarmUp, VerdictKind::BoundedCache])
    });
    each("burst", INNOCENT, |seen| is_no_leak(seen, &[VerdictKind::Fragmentation]));
}
