use super::*;
use crate::diff::tests::at;
use crate::snapshot::Work;

const MIB: u64 = 1 << 20;

/// Snapshots a minute apart of a process that works half of the time, with the given MiB of
/// anonymous memory.
fn series(mibs: &[u64]) -> Vec<Snapshot> {
    let snapshot = |(i, mib): (usize, &u64)| {
        let seconds = i as f64 * 60.0;
        Snapshot {
            age_s: Some(60.0 + seconds),
            work: Work { cpu_s: Some(10.0 + seconds / 2.0), ..Work::default() },
            ..at(seconds, mib * MIB, 20 * MIB)
        }
    };
    mibs.iter().enumerate().map(snapshot).collect()
}

#[test]
fn one_look_claims_nothing() {
    let verdict = of(&series(&[4000]), &[]);
    assert_eq!(verdict.kind, VerdictKind::CannotTell);
    assert!(verdict.statement.contains("4.2 GB") && verdict.statement.contains("second look"), "{verdict:?}");
    assert_eq!(of(&[], &[]).kind, VerdictKind::CannotTell);
}

#[test]
fn what_moves_by_a_step_of_an_allocator_does_not_grow() {
    assert_eq!(of(&series(&[100, 103]), &[]).kind, VerdictKind::NoGrowth);
    assert_eq!(of(&series(&[4000, 4050, 4060]), &[]).kind, VerdictKind::NoGrowth);
    assert_eq!(of(&series(&[400, 300]), &[]).kind, VerdictKind::NoGrowth);
}

#[test]
fn a_program_without_a_run_time_that_grows_steadily_leaks() {
    let verdict = of(&series(&[100, 200, 300, 400]), &[]);
    assert_eq!(verdict.kind, VerdictKind::NativeLeak, "{verdict:?}");
    assert_eq!(verdict.bytes_per_hour.map(f64::round), Some((6000 * MIB) as f64));
    assert!(verdict.statement.contains("does not level off"), "{verdict:?}");
    assert_eq!(verdict.evidence[0].what, RowKind::Total);
}

#[test]
fn two_looks_at_a_young_process_do_not_tell_a_leak_from_a_start() {
    let verdict = of(&series(&[100, 400]), &[]);
    assert_eq!(verdict.kind, VerdictKind::NativeGrowth);
    assert!(!verdict.kind.is_leak() && verdict.statement.contains("later look"), "{verdict:?}");
}

#[test]
fn a_warm_up_levels_off() {
    let verdict = of(&series(&[50, 300, 380, 395, 399, 400]), &[]);
    assert_eq!(verdict.kind, VerdictKind::WarmUp, "{verdict:?}");
}

#[test]
fn a_leak_after_a_warm_up_is_seen_by_the_later_half() {
    let verdict = of(&series(&[50, 900, 1000, 1010, 1030, 1050, 1070, 1090]), &[]);
    assert_eq!(verdict.kind, VerdictKind::NativeLeak, "{verdict:?}");
}

#[test]
fn a_process_that_stopped_to_work_is_not_said_to_level_off() {
    let mut snapshots = series(&[100, 200, 300, 301, 301]);
    for snapshot in &mut snapshots[3..] {
        snapshot.work.cpu_s = Some(70.1);
    }
    let verdict = of(&snapshots, &[]);
    assert_eq!(verdict.kind, VerdictKind::NativeGrowth, "{verdict:?}");
    assert!(verdict.statement.contains("hardly worked"), "{verdict:?}");
}

#[test]
fn different_processes_are_no_growth() {
    let mut snapshots = series(&[100, 900]);
    snapshots[1].pid = 9;
    let verdict = of(&snapshots, &[]);
    assert_eq!(verdict.kind, VerdictKind::CannotTell);
    assert!(!verdict.evidence.is_empty() && verdict.statement.contains("different processes"), "{verdict:?}");
}

/// A C heap with the given MiB in use and free; chunks of 48 bytes make up the former.
fn c_heap(in_use: u64, free: u64) -> crate::malloc::CHeap {
    use crate::malloc::{Arena, CHeap, Count, Free, SizeClass};
    let count = |mib: u64| Count { chunks: mib * MIB / 48, bytes: mib * MIB };
    let arena = Arena {
        is_main: true,
        in_use: count(in_use),
        free: Free { large: count(free), ..Free::default() },
        resident_bytes: (in_use + free) * MIB,
        free_resident_bytes: free * MIB,
        ..Arena::default()
    };
    let class = SizeClass {
        chunk_bytes: 48,
        in_use_chunks: in_use * MIB / 48,
        in_use_bytes: in_use * MIB,
        ..SizeClass::default()
    };
    CHeap { arenas: vec![arena], sizes: vec![class], ..CHeap::default() }
}

/// Python's objects: one type with the given MiB in objects of 64 bytes.
fn python(mib: u64) -> crate::python::PythonHeap {
    use crate::python::{Doubts, PythonHeap, TypeRow};
    PythonHeap {
        version: "3.11.7".to_owned(),
        implementation: "CPython".to_owned(),
        tested: true,
        interpreters: Vec::new(),
        objects: mib * MIB / 64,
        bytes: mib * MIB,
        beside_bytes: 0,
        types: vec![TypeRow {
            name: "app.Session".to_owned(),
            type_address: 0x1000,
            count: mib * MIB / 64,
            bytes: mib * MIB,
            tracked_count: mib * MIB / 64,
            is_guessed: false,
        }],
        doubts: Doubts::default(),
        is_stopped: false,
        is_complete: true,
        took: 0.0,
    }
}

/// Snapshots of a Python process: its anonymous memory, in use and free in the C heap, its objects,
/// in MiB.
fn service(values: &[(u64, u64, u64, u64)]) -> Vec<Snapshot> {
    let mut snapshots = series(&values.iter().map(|(own, ..)| *own).collect::<Vec<_>>());
    for (snapshot, (_, in_use, free, objects)) in snapshots.iter_mut().zip(values) {
        snapshot.c_heap = Some(c_heap(*in_use, *free));
        snapshot.python = Some(python(*objects));
    }
    snapshots
}

#[test]
fn a_leak_beside_the_interpreter_is_native() {
    let verdict = of(&service(&[(100, 30, 1, 50), (200, 130, 1, 50), (300, 230, 1, 51)]), &[]);
    assert_eq!(verdict.kind, VerdictKind::NativeLeak, "{verdict:?}");
    let culprit = verdict.culprit.unwrap();
    assert_eq!((culprit.what, culprit.key.as_str()), (RowKind::Chunk, "48"));
    assert!(verdict.statement.contains("CPython 3.11.7 knows"), "{}", verdict.statement);
    assert!(verdict.evidence.iter().any(|row| row.what == RowKind::Chunk) && verdict.confidence > 0.9);
}

#[test]
fn a_leak_of_objects_is_managed_and_names_the_type() {
    let verdict = of(&service(&[(100, 30, 1, 50), (200, 31, 1, 140), (300, 32, 1, 230)]), &[]);
    assert_eq!(verdict.kind, VerdictKind::ManagedLeak, "{verdict:?}");
    assert_eq!(verdict.culprit.unwrap().name, "app.Session");
}

#[test]
fn native_memory_that_objects_own_is_theirs() {
    let mut snapshots = service(&[(100, 30, 1, 10), (300, 230, 1, 10), (500, 430, 1, 10)]);
    for (snapshot, mib) in snapshots.iter_mut().zip([30, 230, 430]) {
        // One small object per chunk.
        let python = snapshot.python.as_mut().unwrap();
        python.types[0].count = mib * MIB / 48;
    }
    let verdict = of(&snapshots, &[]);
    assert_eq!(verdict.kind, VerdictKind::ManagedLeak, "{verdict:?}");
    let culprit = verdict.culprit.unwrap();
    assert_eq!(culprit.owner.as_deref(), Some("app.Session"));
    assert!(verdict.statement.contains("they hold them"), "{}", verdict.statement);
}

#[test]
fn what_is_left_after_a_burst_is_fragmentation() {
    let grew = of(&service(&[(100, 30, 1, 50), (900, 40, 780, 51)]), &[]);
    assert_eq!(grew.kind, VerdictKind::Fragmentation, "{grew:?}");
    let stays = of(&service(&[(900, 800, 10, 50), (900, 100, 710, 51), (901, 100, 710, 51)]), &[]);
    assert_eq!(stays.kind, VerdictKind::Fragmentation, "{stays:?}");
    assert!(stays.statement.contains("in use were"), "{}", stays.statement);
}

#[test]
fn a_cache_that_is_full_is_no_leak() {
    let values: Vec<(u64, u64, u64, u64)> =
        [50, 250, 450, 450, 450, 450].iter().map(|mib| (mib + 60, 30, 1, *mib)).collect();
    let verdict = of(&service(&values), &[]);
    assert_eq!(verdict.kind, VerdictKind::BoundedCache, "{verdict:?}");
    assert!(verdict.statement.contains("app.Session"), "{}", verdict.statement);
}

#[test]
fn verdicts_are_saved_and_read() {
    let verdict = of(&service(&[(100, 30, 1, 50), (200, 130, 1, 50), (300, 230, 1, 51)]), &[]);
    let text = serde_json::to_string(&verdict).unwrap();
    assert_eq!(serde_json::from_str::<Verdict>(&text).unwrap(), verdict);
}

#[test]
fn what_grows_in_a_heap_that_nobody_can_read_is_not_said_to_be_native() {
    let steady = [100, 200, 300, 400];
    let with = |name: &str, heap: bool| {
        let mut snapshots = series(&steady);
        for (snapshot, mib) in snapshots.iter_mut().zip(steady) {
            snapshot.run_time = Some(name.to_owned());
            snapshot.c_heap = Some(if heap { c_heap(mib - 50, 1) } else { c_heap(20, 1) });
        }
        of(&snapshots, &[])
    };
    assert_eq!(with("Go", false).kind, VerdictKind::CannotTell);
    // Python's large objects are in the C heap.
    assert_eq!(with("CPython", true).kind, VerdictKind::CannotTell);
    let verdict = with("Node.js", true);
    assert_eq!(verdict.kind, VerdictKind::NativeLeak, "{verdict:?}");
    assert!(verdict.statement.contains("keeps no objects"), "{verdict:?}");
}

#[test]
fn objects_that_were_not_seen_make_no_native_leak() {
    let mut snapshots = service(&[(100, 30, 1, 50), (200, 130, 1, 50), (300, 230, 1, 51)]);
    snapshots[2].python.as_mut().unwrap().doubts.not_resident = 400_000;
    let verdict = of(&snapshots, &[]);
    assert_eq!(verdict.kind, VerdictKind::CannotTell);
    assert!(verdict.statement.contains("not all objects"), "{verdict:?}");
}

#[test]
fn half_a_census_is_not_compared() {
    use crate::census::{Census, Entry};
    let census = |count: u64, is_stopped: bool| Census {
        is_stopped,
        entries: vec![Entry {
            id: "abc".to_owned(),
            text: "session".to_owned(),
            is_cut: false,
            encoding: crate::census::Encoding::Ascii,
            length_bytes: 7,
            count,
            error: 0,
            bytes: 7 * count,
            addresses: Vec::new(),
        }],
        ..Census::default()
    };
    let mut snapshots = service(&[(100, 30, 1, 50), (200, 130, 1, 50)]);
    snapshots[0].strings = Some(census(100, true));
    snapshots[1].strings = Some(census(900_000, false));
    let rows =
        |snapshots: &[Snapshot]| Diff::between(&snapshots[0], &snapshots[1]).of(RowKind::String).count();
    assert_eq!(rows(&snapshots), 0);
    snapshots[0].strings = Some(census(100, false));
    assert_eq!(rows(&snapshots), 1);
}

#[test]
fn half_a_walk_is_not_compared() {
    let leak = &[(100, 30, 1, 50), (200, 130, 1, 50), (300, 230, 1, 51)];
    let whole = service(leak);
    assert_eq!(of(&whole, &[]).kind, VerdictKind::NativeLeak);
    for stopped in [0, 2] {
        let mut snapshots = whole.clone();
        snapshots[stopped].c_heap.as_mut().unwrap().is_stopped = true;
        let diff = Diff::between(&snapshots[0], &snapshots[2]);
        assert_eq!(diff.of(RowKind::Chunk).count() + diff.of(RowKind::CHeap).count(), 0);
        assert!(diff.of(RowKind::Type).count() > 0);
        let mut snapshots = whole.clone();
        snapshots[stopped].python.as_mut().unwrap().is_stopped = true;
        assert_eq!(Diff::between(&snapshots[0], &snapshots[2]).of(RowKind::Type).count(), 0);
        let verdict = of(&snapshots, &[]);
        assert_eq!(verdict.kind, VerdictKind::CannotTell, "{verdict:?}");
    }
    // Free memory of a partial walk is a lower bound of all free memory.
    let mut snapshots = service(&[(100, 30, 1, 50), (200, 30, 100, 50)]);
    assert_eq!(of(&snapshots, &[]).kind, VerdictKind::Fragmentation);
    snapshots[0].c_heap.as_mut().unwrap().is_stopped = true;
    assert_ne!(of(&snapshots, &[]).kind, VerdictKind::Fragmentation);
}

/// Snapshots of a JVM: its anonymous memory, the heap's capacity, and the used part, in MiB.
fn jvm(values: &[(u64, u64, u64)]) -> Vec<Snapshot> {
    use crate::runtimes::jvm::{Counters, JvmHeap};
    let mut snapshots = series(&values.iter().map(|(own, ..)| *own).collect::<Vec<_>>());
    for (snapshot, (_, room, used)) in snapshots.iter_mut().zip(values) {
        let counters = Counters { used_bytes: used * MIB, capacity_bytes: room * MIB, ..Counters::default() };
        snapshot.runtime =
            Some(crate::runtimes::Runtime::Jvm(JvmHeap { counters: Some(counters), ..JvmHeap::default() }));
    }
    snapshots
}

#[test]
fn a_virtual_machine_that_touches_its_heap_does_not_leak_natively() {
    let verdict = of(&jvm(&[(500, 8000, 200), (900, 8000, 300), (1300, 8000, 200)]), &[]);
    assert_eq!(verdict.kind, VerdictKind::CannotTell, "{verdict:?}");
    // The accumulated objects may be garbage.
    let verdict = of(&jvm(&[(500, 8000, 200), (900, 8000, 600), (1300, 8000, 1000)]), &[]);
    assert_eq!(verdict.kind, VerdictKind::ManagedGrowth, "{verdict:?}");
    // Far more than its heap.
    let verdict = of(&jvm(&[(500, 512, 200), (1500, 512, 200), (2500, 512, 200)]), &[]);
    assert_eq!(verdict.kind, VerdictKind::NativeLeak, "{verdict:?}");
}
