//! Waits for locks inside the kernel: a writer that has to wait for another one's lock of the file.

use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use mitra_collect::bpf::{Probes, StallKind};

use super::probes;

/// Long enough for the copy to take some ten milliseconds, under one hold of the lock.
const LONG_WRITE_BYTES: usize = 64 << 20;

/// Both writers on one CPU: a writer spins without an event while the owner of the lock runs on another one.
fn stay_on_this_cpu() {
    let mut here = rustix::thread::CpuSet::new();
    here.set(rustix::thread::sched_getcpu());
    rustix::thread::sched_setaffinity(None, &here).expect("one CPU for this thread and those that it starts");
}

fn waits(probes: &mut Probes) -> (u64, u64) {
    let mut found = None;
    let stalls = probes.stalls.as_mut().expect("the stall probes");
    stalls
        .read(|kind, hist| found = if kind == StallKind::Lock { Some(*hist) } else { found })
        .expect("the stalls");
    found.map(|hist| (hist.count, hist.total_ns)).expect("the kind")
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn a_sleep_for_a_lock_of_a_file_is_counted_and_owned() {
    let Some((_guard, mut probes)) = probes() else { return };
    if probes.locks.is_none() {
        eprintln!("skipped: no lock tracepoints before 5.19");
        return;
    }
    let (count_before, total_before) = waits(&mut probes);
    let file = tempfile::tempfile().expect("a file");
    let long = vec![1_u8; LONG_WRITE_BYTES];
    let done = AtomicBool::new(false);
    stay_on_this_cpu();
    let mut waited = Duration::ZERO;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..4 {
                file.write_all_at(&long, 0).expect("a long write");
            }
            done.store(true, Ordering::Relaxed);
        });
        while !done.load(Ordering::Relaxed) {
            let begun = Instant::now();
            file.write_all_at(b"x", 0).expect("a short write");
            waited += begun.elapsed();
        }
    });
    let (count, total) = waits(&mut probes);
    let (count, total) = (count - count_before, total - total_before);
    eprintln!("{count} waits of {} ms, the short writes took {} ms", total / 1_000_000, waited.as_millis());
    assert!(count > 0 && total >= count * 1_000_000);
    let mut owned = 0;
    let me = u64::from(std::process::id());
    probes
        .locks
        .as_mut()
        .expect("the lock probes")
        .owners(|owner, ns| owned += if owner.tgid == me { ns } else { 0 })
        .expect("the owners");
    // The long writes wait for the short ones too, but not for long.
    assert!(
        owned >= 1_000_000 && owned as u128 <= 2 * waited.as_nanos(),
        "{owned} ns of {} ms",
        waited.as_millis()
    );
}
