//! Snapshots of real processes that end early: by their CPU budget, or by cancellation.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use mitra_inspect::python::holders::{OBJECTS_MAX, Wanted, holders};
use mitra_inspect::snapshot::{self, Options};
use mitra_inspect::{CpuBudget, Error, Snapshot, Target, python};

/// The CPU budget of a snapshot in these tests.
const CPU_S: f64 = 0.2;
/// Allowance for ending and reporting, without optimisation and beside other tests.
const MORE_S: f64 = 0.25;
/// Objects that come and go until the process sleeps.
const FEW: u64 = 20;

/// A process with a given number of objects of a class.
struct Service(Child);

impl Service {
    fn start(objects: usize) -> Option<Self> {
        let script = format!(
            "import sys
class Session:
    def __init__(self, n): self.name = 'session %d' % n; self.parts = [n, (n, str(n))]
STORE = {{n: Session(n) for n in range({objects})}}
print(flush=True); sys.stdin.read()"
        );
        let spawned = Command::new("/usr/bin/python3")
            .args(["-I", "-c", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let Ok(mut child) = spawned else {
            println!("skipped: there is no /usr/bin/python3");
            return None;
        };
        let out = child.stdout.take().unwrap();
        let service = Self(child);
        BufReader::new(out).read_line(&mut String::new()).unwrap();
        Some(service)
    }

    fn target(&self) -> Target {
        Target::open(self.0.id()).unwrap()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// Seconds of CPU time of this thread.
fn cpu_s() -> f64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 * 1e-9
}

/// Whether a part is complete, missing with a doubt, or marked as partial.
fn is_honest(snapshot: &Snapshot, part: &str, is_stopped: Option<bool>) -> bool {
    let has_word =
        snapshot.doubts.iter().any(|doubt| doubt.starts_with(part) && doubt.contains("ended early"));
    is_stopped == Some(false) || has_word
}

#[test]
#[ignore = "needs a quiet machine: make test-kernel"]
fn cpu_time_bounds_every_part_of_a_look_and_the_search_for_holders() {
    let Some(service) = Service::start(400_000) else { return };
    let only = |c_heap, strings, python| Options { c_heap, strings, python, ..Options::default() };
    let parts =
        [only(true, false, false), only(false, true, false), only(false, false, true), Options::default()];
    for allowed in [0.0, 0.001, 0.02, CPU_S] {
        for options in &parts {
            let mut target = service.target();
            let began = cpu_s();
            target.allow(CpuBudget::of_seconds(allowed));
            let snapshot = snapshot::take(&mut target, options, &mut |_, _| {}).unwrap();
            let took = cpu_s() - began;
            println!("{took:.4} s of {allowed}: {:?}", snapshot.doubts);
            assert!(took < allowed + MORE_S, "{took} of {allowed} for {options:?}");
            if options.c_heap {
                assert!(
                    is_honest(&snapshot, "C heap", snapshot.c_heap.as_ref().map(|it| it.is_stopped)),
                    "{:?}",
                    snapshot.doubts
                );
            }
            if options.python {
                assert!(
                    is_honest(&snapshot, "Python", snapshot.python.as_ref().map(|it| it.is_stopped)),
                    "{:?}",
                    snapshot.doubts
                );
            }
            if options.strings {
                assert!(
                    is_honest(&snapshot, "strings", snapshot.strings.as_ref().map(|it| it.is_stopped)),
                    "{:?}",
                    snapshot.doubts
                );
            }
            let is_early = snapshot.doubts.iter().any(|doubt| doubt.contains("ended early"));
            assert_eq!(is_early, target.is_exhausted(), "{:?}", snapshot.doubts);
        }
    }
    let mut target = service.target();
    let nothing = Options { runtime: false, ..only(false, false, false) };
    let mut snapshot = snapshot::take(&mut target, &nothing, &mut |_, _| {}).unwrap();
    let began = cpu_s();
    target.allow(CpuBudget::of_seconds(CPU_S));
    let error =
        snapshot::find_holders(&mut target, &["__main__.Session".to_owned()], &mut snapshot).unwrap_err();
    assert!(matches!(error, Error::Stopped) && snapshot.holders.is_none(), "{error} {:?}", snapshot.holders);
    let took = cpu_s() - began;
    assert!(took < CPU_S + MORE_S, "{took}");
}

#[test]
#[ignore = "needs a quiet machine: make test-kernel"]
fn a_part_of_a_walk_is_no_more_than_the_whole() {
    let Some(service) = Service::start(20_000) else { return };
    let mut target = service.target();
    let whole = python::open(&target).unwrap().walk();
    assert!(whole.is_complete && !whole.is_stopped);
    let (mut parts, mut ended) = (0, false);
    // Increases the budget until it suffices.
    for i in 0..40 {
        target.allow(CpuBudget::of_seconds(1e-4 * f64::from(1 << (i / 2))));
        let mut heap = match python::open(&target) {
            Ok(heap) => heap,
            Err(error) => {
                assert!(matches!(error, Error::Stopped), "{error}");
                continue;
            }
        };
        let found = heap.walk();
        assert!(found.objects <= whole.objects + FEW, "{} of {}", found.objects, whole.objects);
        if found.is_stopped {
            parts += 1;
            assert!(
                !found.is_complete && found.doubts.torn == 0 && found.doubts.cut_off == 0,
                "{:?}",
                found.doubts
            );
            let held = holders(&heap, &Wanted::Largest(2), OBJECTS_MAX);
            assert!(held.is_stopped && held.types.is_empty());
        } else {
            assert!(found.objects.abs_diff(whole.objects) <= FEW);
            ended = true;
            break;
        }
    }
    assert!(ended && parts > 0, "{parts}");
}

#[test]
#[ignore = "needs a quiet machine: make test-kernel"]
fn whoever_wants_an_end_gets_it_soon() {
    static STOP: AtomicBool = AtomicBool::new(false);
    let Some(service) = Service::start(400_000) else { return };
    let mut target = service.target();
    target.allow(CpuBudget::default().until(&STOP));
    let mut asked = None;
    let mut ask = |what: &str, _| {
        if what == "walking Python's objects" && asked.is_none() {
            asked = Some(std::thread::spawn(|| {
                std::thread::sleep(Duration::from_millis(50));
                STOP.store(true, Ordering::Relaxed);
                Instant::now()
            }));
        }
    };
    let snapshot = snapshot::take(&mut target, &Options::default(), &mut ask).unwrap();
    let ended = Instant::now();
    let late = ended.saturating_duration_since(asked.unwrap().join().unwrap());
    println!("it ended after {late:?}");
    assert!(late < Duration::from_secs(5), "{late:?}");
    assert!(
        target.is_exhausted() && snapshot.python.is_some_and(|heap| heap.is_stopped),
        "{:?}",
        snapshot.doubts
    );
    assert!(snapshot.strings.is_none() && snapshot.c_heap.is_some_and(|heap| !heap.is_stopped));
}
