use super::*;
use crate::diff::tests::at;
use crate::look::Work;

const MIB: u64 = 1 << 20;

/// Looks a minute apart, of a process that works half of the time; each has so many MiB of its own.
fn series(mibs: &[u64]) -> Vec<Look> {
    let look = |(i, mib): (usize, &u64)| {
        let seconds = i as f64 * 60.0;
        Look {
            age_s: Some(60.0 + seconds),
            work: Work { cpu_s: Some(10.0 + seconds / 2.0), ..Work::default() },
            ..at(seconds, mib * MIB, 20 * MIB)
        }
    };
    mibs.iter().enumerate().map(look).collect()
}

#[test]
fn one_look_claims_nothing() {
    let verdict = of(&series(&[4000]), &[]);
    assert_eq!(verdict.kind, Kind::CannotTell);
    assert!(verdict.statement.contains("4.2 GB") && verdict.statement.contains("second look"), "{verdict:?}");
    assert_eq!(of(&[], &[]).kind, Kind::CannotTell);
}

#[test]
fn what_moves_by_a_step_of_an_allocator_does_not_grow() {
    assert_eq!(of(&series(&[100, 103]), &[]).kind, Kind::NoGrowth);
    assert_eq!(of(&series(&[4000, 4050, 4060]), &[]).kind, Kind::NoGrowth);
    assert_eq!(of(&series(&[400, 300]), &[]).kind, Kind::NoGrowth);
}

#[test]
fn a_program_without_a_run_time_that_grows_steadily_leaks() {
    let verdict = of(&series(&[100, 200, 300, 400]), &[]);
    assert_eq!(verdict.kind, Kind::NativeLeak, "{verdict:?}");
    assert_eq!(verdict.bytes_per_hour.map(f64::round), Some((6000 * MIB) as f64));
    assert!(verdict.statement.contains("does not level off"), "{verdict:?}");
    assert_eq!(verdict.evidence[0].what, What::Total);
}

#[test]
fn two_looks_at_a_young_process_do_not_tell_a_leak_from_a_start() {
    let verdict = of(&series(&[100, 400]), &[]);
    assert_eq!(verdict.kind, Kind::NativeGrowth);
    assert!(!verdict.kind.is_leak() && verdict.statement.contains("later look"), "{verdict:?}");
}

#[test]
fn a_warm_up_levels_off() {
    let verdict = of(&series(&[50, 300, 380, 395, 399, 400]), &[]);
    assert_eq!(verdict.kind, Kind::WarmUp, "{verdict:?}");
}

#[test]
fn a_leak_after_a_warm_up_is_seen_by_the_later_half() {
    let verdict = of(&series(&[50, 900, 1000, 1010, 1030, 1050, 1070, 1090]), &[]);
    assert_eq!(verdict.kind, Kind::NativeLeak, "{verdict:?}");
}

#[test]
fn a_process_that_stopped_to_work_is_not_said_to_level_off() {
    let mut looks = series(&[100, 200, 300, 301, 301]);
    for look in &mut looks[3..] {
        look.work.cpu_s = Some(70.1);
    }
    let verdict = of(&looks, &[]);
    assert_eq!(verdict.kind, Kind::NativeGrowth, "{verdict:?}");
    assert!(verdict.statement.contains("hardly worked"), "{verdict:?}");
}

#[test]
fn different_processes_are_no_growth() {
    let mut looks = series(&[100, 900]);
    looks[1].pid = 9;
    let verdict = of(&looks, &[]);
    assert_eq!(verdict.kind, Kind::CannotTell);
    assert!(!verdict.evidence.is_empty() && verdict.statement.contains("different processes"), "{verdict:?}");
}
