//! Armed probes against what is known to be true: loads whose time off CPU, faults and CPU time follow from physics, and
//! bpftrace watching the same load at the same time. Needs root; without it the tests say so and pass.
#![cfg(feature = "bpf")]

use std::thread::sleep;
use std::time::{Duration, Instant};

use mitra_collect::capture::{Armed, Capture, Refused, Request};
use mitra_model::capture::{Ended, Raw};

/// Polls as a recorder would, until the capture ends by itself.
fn run_to_its_end(mut armed: Armed) -> Raw {
    while armed.poll().is_none() {
        sleep(Duration::from_millis(50));
    }
    armed.finish()
}

/// Arms, or says why this test cannot run here.
fn arm(request: &Request) -> Option<Armed> {
    match Capture::arm(request) {
        Ok(armed) => Some(armed),
        Err(error @ (Refused::Privilege(_) | Refused::Kernel { .. }))
            if !rustix::process::geteuid().is_root() =>
        {
            println!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Runs a thread of this name, which the captures can ask for.
fn thread(name: &str, work: impl FnOnce() + Send + 'static) -> std::thread::JoinHandle<()> {
    std::thread::Builder::new().name(name.to_owned()).spawn(work).unwrap()
}

fn own(kind: &str, comm: &str, seconds: f64) -> Request {
    Request {
        pid: Some(std::process::id()),
        comm: Some(comm.to_owned()),
        ..Request::new(kind, seconds, "test")
    }
}

#[test]
fn a_thread_that_sleeps_is_off_cpu_for_as_long_as_it_slept() {
    let Some(armed) = arm(&own("offcpu", "mitra-sleeps", 2.0)) else { return };
    let sleeper = thread("mitra-sleeps", || (0..50).for_each(|_| sleep(Duration::from_millis(20))));
    let began = Instant::now();
    sleeper.join().unwrap();
    let took = began.elapsed().as_secs_f64();
    let raw = run_to_its_end(armed);
    assert_eq!(raw.captured.ended, Ended::Time);
    let slept: f64 = raw.stacks.iter().filter(|s| s.tag == "sleeping").map(|s| s.weight).sum();
    let count: u64 = raw.stacks.iter().filter(|s| s.tag == "sleeping").map(|s| s.count).sum();
    // What was asked for, or as much of it as was not lost on the way; at most the wall time.
    assert!(slept >= 0.95 && slept <= took, "slept {slept} s of {took} s");
    assert!((48..=55).contains(&count), "{count} sleeps");
    let stack = raw.stacks.iter().max_by(|a, b| a.weight.total_cmp(&b.weight)).unwrap();
    assert!(stack.kernel.len() > 3 && !stack.user.is_empty(), "{stack:?}");
    assert!(raw.captured.cost_ns.is_some_and(|ns| ns > 0), "no cost");
    assert_eq!(raw.captured.lost, 0);
}

#[test]
fn a_thread_that_spins_is_on_cpu() {
    let Some(armed) = arm(&own("oncpu", "mitra-spins", 2.0)) else { return };
    let spinner = thread("mitra-spins", || {
        let time = || rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime).tv_sec;
        while time() < 1 {
            std::hint::spin_loop();
        }
    });
    let raw = run_to_its_end(armed);
    spinner.join().unwrap();
    let seconds: f64 = raw.stacks.iter().map(|s| s.weight).sum();
    // It may not have got its second of CPU in two seconds on a machine with other work; and time in interrupts is the
    // thread's for the clock of the samples, but not for its own.
    assert!((0.3..=1.1).contains(&seconds), "{seconds} s");
}

/// Maps memory without a file, touches each page once, and unmaps it.
fn touch(pages: usize) {
    let bytes = pages * 4096;
    let flags = rustix::mm::MapFlags::PRIVATE;
    let prot = rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE;
    // SAFETY: a new mapping that nobody else knows; it is used within its length and before it is unmapped.
    unsafe {
        let memory = rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, prot, flags).unwrap();
        // Huge pages would take one fault for 512.
        _ = rustix::mm::madvise(memory, bytes, rustix::mm::Advice::LinuxNoHugepage);
        for page in 0..pages {
            memory.cast::<u8>().add(page * 4096).write_volatile(1);
        }
        rustix::mm::munmap(memory, bytes).unwrap();
    }
}

#[test]
fn every_page_that_is_touched_first_is_a_fault() {
    let Some(armed) = arm(&own("faults", "mitra-touches", 1.0)) else { return };
    thread("mitra-touches", || touch(5000)).join().unwrap();
    let raw = run_to_its_end(armed);
    let faults: u64 = raw.stacks.iter().filter(|s| s.tag.starts_with("minor, memory")).map(|s| s.count).sum();
    assert!((5000..5200).contains(&faults), "{faults} faults: {:?}", raw.captured.tables);
    assert_eq!(raw.captured.lost, 0);
    let heaviest = raw.stacks.iter().max_by(|a, b| a.weight.total_cmp(&b.weight)).unwrap();
    assert!(!heaviest.user.is_empty(), "{heaviest:?}");
}

#[test]
fn a_capture_ends_by_its_events_and_by_its_cost() {
    let busy = || {
        thread("mitra-busy", || {
            let end = Instant::now() + Duration::from_secs(3);
            while Instant::now() < end {
                sleep(Duration::from_micros(50));
            }
        })
    };
    let Some(armed) = arm(&Request { max_events: 100, ..own("offcpu", "mitra-busy", 30.0) }) else { return };
    let load = busy();
    let raw = run_to_its_end(armed);
    assert_eq!(raw.captured.ended, Ended::Events);
    // Each CPU stops by itself.
    assert!(raw.captured.events >= 100 && raw.captured.events <= 100 * 512, "{}", raw.captured.events);
    load.join().unwrap();
    let armed = arm(&Request { cost_budget: 1e-6, ..own("offcpu", "mitra-busy", 30.0) }).unwrap();
    let load = busy();
    let raw = run_to_its_end(armed);
    load.join().unwrap();
    assert_eq!(raw.captured.ended, Ended::Cost);
    assert!(raw.captured.seconds < 5.0);
}

#[test]
fn what_makes_no_sense_is_refused_with_the_reason() {
    let refused = |request: &Request| Capture::arm(request).err().unwrap().to_string();
    assert!(refused(&Request::new("tachyons", 1.0, "")).contains("offcpu"));
    assert!(refused(&Request::new("offcpu", -1.0, "")).contains("lasts up to"));
    assert!(
        refused(&Request { pid: Some(4_194_303), ..Request::new("offcpu", 1.0, "") }).contains("no process")
    );
    let mut odd = Request::new("offcpu", 1.0, "");
    odd.options.insert("hue".into(), "blue".into());
    assert!(refused(&odd).contains("no option"));
}
