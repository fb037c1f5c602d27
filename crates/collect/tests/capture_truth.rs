//! Armed probes against what is known to be true: loads whose time off CPU, faults and CPU time follow from physics, and
//! bpftrace watching the same load at the same time. Needs root; without it the tests say so and pass.

mod armed;

use std::thread::sleep;
use std::time::{Duration, Instant};

use mitra_collect::capture::{Armed, Capture, Request};
use mitra_model::capture::{Ended, Raw};

use armed::judge::{Judge, agree, has};
use armed::{arm, thread};

/// Polls as a recorder would, until the capture ends by itself.
fn run_to_its_end(mut armed: Armed) -> Raw {
    while armed.poll().is_none() {
        sleep(Duration::from_millis(50));
    }
    armed.finish()
}

fn own(kind: &str, comm: &str, seconds: f64) -> Request {
    Request {
        pid: Some(std::process::id()),
        comm: Some(comm.to_owned()),
        ..Request::new(kind, seconds, "test")
    }
}

#[test]
#[ignore = "needs root: make test-kernel"]
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
#[ignore = "needs root: make test-kernel"]
fn a_thread_that_spins_is_on_cpu() {
    let Some(armed) = arm(&own("oncpu", "mitra-spins", 2.0)) else { return };
    let (sender, receiver) = std::sync::mpsc::channel();
    let spinner = thread("mitra-spins", move || {
        let began = Instant::now();
        let time = || rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime).tv_sec;
        while time() < 1 {
            std::hint::spin_loop();
        }
        sender.send(began.elapsed().as_secs_f64()).unwrap();
    });
    let raw = run_to_its_end(armed);
    spinner.join().unwrap();
    let took = receiver.recv().unwrap();
    let seconds: f64 = raw.stacks.iter().map(|s| s.weight).sum();
    // It may not have got its second of CPU in two seconds on a machine with other work. Time in interrupts, or that a
    // hypervisor took, is the thread's for the clock of the samples but not for its own: the wall time is the bound.
    assert!(seconds >= 0.3 && seconds <= took * 1.05, "{seconds} s of {took} s");
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
#[ignore = "needs root: make test-kernel"]
fn every_page_that_is_touched_first_is_a_fault() {
    let Some(armed) = arm(&own("faults", "mitra-touches", 1.0)) else { return };
    thread("mitra-touches", || touch(5000)).join().unwrap();
    let raw = run_to_its_end(armed);
    // Whose mappings are being changed by another thread just then is not asked which one it is.
    let is_meant = |tag: &str| tag.starts_with("minor, memory") || tag.starts_with("minor, not known");
    let faults: u64 = raw.stacks.iter().filter(|s| is_meant(&s.tag)).map(|s| s.count).sum();
    assert!((5000..5200).contains(&faults), "{faults} faults: {:?}", raw.captured.tables);
    assert_eq!(raw.captured.lost, 0);
    let mut some = own("faults", "mitra-touches", 1.0);
    some.options.insert("every".into(), "50".into());
    let armed = arm(&some).unwrap();
    thread("mitra-touches", || touch(5000)).join().unwrap();
    let sampled: u64 = run_to_its_end(armed).stacks.iter().map(|s| s.count).sum();
    // Of each CPU the last period may not be over.
    assert!((4500..5500).contains(&sampled), "{sampled} faults by samples");
    let heaviest = raw.stacks.iter().max_by(|a, b| a.weight.total_cmp(&b.weight)).unwrap();
    assert!(!heaviest.user.is_empty(), "{heaviest:?}");
}

#[test]
#[ignore = "needs root: make test-kernel"]
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

/// Without CAP_SYS_ADMIN the kernel does not say what programs cost; what ends it then is the cost all the same.
#[test]
#[ignore = "needs root: make test-kernel"]
fn a_capture_whose_cost_is_not_measured_ends_by_its_cost() {
    let frugal = || {
        use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
        let mut sets = capabilities(None).unwrap();
        sets.effective.remove(CapabilitySet::SYS_ADMIN);
        // They are those of this thread alone.
        set_capabilities(None, sets).unwrap();
        let armed = arm(&Request { cost_budget: 1e-6, ..own("offcpu", "mitra-frugal", 30.0) })?;
        let end = Instant::now() + Duration::from_secs(1);
        let work = move || {
            while Instant::now() < end {
                sleep(Duration::from_micros(50));
            }
        };
        let load = thread("mitra-frugal", work);
        let raw = run_to_its_end(armed);
        load.join().unwrap();
        Some(raw)
    };
    let Some(raw) = std::thread::spawn(frugal).join().unwrap() else { return };
    let captured = &raw.captured;
    assert!(captured.notes.iter().any(|note| note.contains("cost is not measured")), "{:?}", captured.notes);
    // As many as may be paid for are fewer than were asked for.
    assert!(captured.events > 0 && captured.seconds < 5.0, "{} in {} s", captured.events, captured.seconds);
    assert_eq!(captured.ended, Ended::Cost);
}

#[test]
fn what_makes_no_sense_is_refused_with_the_reason() {
    let refused = |request: &Request| Capture::arm(request).err().unwrap().to_string();
    assert!(refused(&Request::new("tachyons", 1.0, "")).contains("offcpu"));
    assert!(refused(&Request::new("offcpu", -1.0, "")).contains("lasts up to"));
    assert!(
        refused(&Request { pid: Some(4_194_303), ..Request::new("offcpu", 1.0, "") }).contains("no process")
    );
    let another = Request { pid_began: Some(1), ..own("offcpu", "mitra", 1.0) };
    assert!(refused(&another).contains("another one has its number"));
    let mut odd = Request::new("offcpu", 1.0, "");
    odd.options.insert("hue".into(), "blue".into());
    assert!(refused(&odd).contains("no option"));
    let own_tid = || rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
    let of_thread = move || refused(&Request { pid: Some(own_tid()), ..Request::new("offcpu", 1.0, "") });
    let refused_thread = std::thread::spawn(of_thread).join().unwrap();
    assert!(
        refused_thread.contains(&format!("a thread of process {}", std::process::id())),
        "{refused_thread}"
    );
}

/// A capture must not say that it was of what nobody looked at.
#[test]
fn what_a_kind_does_not_look_at_is_refused() {
    let refused = |request: &Request| Capture::arm(request).err().unwrap().to_string();
    let min = Duration::from_millis(10);
    for kind in ["errors", "lookups", "oncpu", "faults", "cache", "sockets"] {
        let why = refused(&Request { min, ..Request::new(kind, 1.0, "") });
        assert!(why.starts_with(&format!("{kind} has no use for --min; these have: offcpu, ")), "{why}");
    }
    let why = refused(&Request { d_only: true, ..Request::new("locks", 1.0, "") });
    assert_eq!(why, "locks has no use for --d-only; these have: offcpu");
    let why = refused(&Request { cgroup: Some("/".to_owned()), ..Request::new("sockets", 1.0, "") });
    assert!(why.contains("no use for --cgroup") && !why.contains("sockets,"), "{why}");
}

/// Waits of three kinds: asleep, for a pipe, and for the CPU while another thread has it.
fn blocks_in_several_ways() {
    (0..1000).for_each(|i| sleep(Duration::from_micros(200 + i)));
    let (mut read, mut write) = std::io::pipe().unwrap();
    let writer = std::thread::spawn(move || {
        for _ in 0..200 {
            sleep(Duration::from_millis(2));
            std::io::Write::write_all(&mut write, b"x").unwrap();
        }
    });
    let mut byte = [0];
    while std::io::Read::read(&mut read, &mut byte).unwrap() > 0 {}
    writer.join().unwrap();
    let end = Instant::now() + Duration::from_millis(300);
    let rival = std::thread::spawn(move || spins_on_first_cpu(end));
    spins_on_first_cpu(end);
    rival.join().unwrap();
}

fn spins_on_first_cpu(end: Instant) {
    let mut first = rustix::thread::CpuSet::new();
    first.set(0);
    rustix::thread::sched_setaffinity(None, &first).unwrap();
    while Instant::now() < end {
        std::hint::spin_loop();
    }
}

/// Both measure from the switch away to the switch back, each by a program of its own.
#[test]
#[ignore = "needs root: make test-kernel"]
fn bpftrace_sees_the_same_time_off_cpu_and_as_many_switches() {
    let script = "tracepoint:sched:sched_switch { \
        if (args->prev_comm == \"mitra-peer\") { @off[args->prev_pid] = nsecs; } \
        if (@off[args->next_pid]) { \
            @total = sum(nsecs - @off[args->next_pid]); @count = count(); delete(@off[args->next_pid]); \
        } } END { clear(@off); }";
    let Some(judge) = Judge::start(script) else { return };
    let armed = arm(&own("offcpu", "mitra-peer", 10.0)).unwrap();
    // Both watch now, and both go on when the load has ended.
    thread("mitra-peer", blocks_in_several_ways).join().unwrap();
    let raw = armed.finish();
    let [total, count] = judge.values(["total", "count"]);
    assert_eq!(raw.captured.lost, 0, "{:?}", raw.captured.notes);
    agree("seconds off CPU", raw.stacks.iter().map(|s| s.weight).sum(), total * 1e-9);
    agree("switches", raw.stacks.iter().map(|s| s.count as f64).sum(), count);
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn time_off_cpu_is_the_wall_time_less_the_cpu_time() {
    let Some(armed) = arm(&own("offcpu", "mitra-mixes", 4.0)) else { return };
    let cpu = || {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
    };
    let (sender, receiver) = std::sync::mpsc::channel();
    thread("mitra-mixes", move || {
        let (began, before) = (Instant::now(), cpu());
        for i in 0..400u64 {
            (0..50_000u64).for_each(|i| _ = std::hint::black_box(i * i));
            sleep(Duration::from_micros(i * 10));
        }
        sender.send(began.elapsed().as_secs_f64() - (cpu() - before)).unwrap();
    })
    .join()
    .unwrap();
    let theirs = receiver.recv().unwrap();
    let raw = run_to_its_end(armed);
    let ours: f64 = raw.stacks.iter().map(|s| s.weight).sum();
    println!("off CPU: {ours} s by the probe, {theirs} s by the clocks");
    assert!((ours - theirs).abs() <= 0.05 * theirs, "{ours} s by the probe, {theirs} s by the clocks");
}

/// Otherwise a slip of the pen would end a comparison for ever, and nobody would know.
#[test]
#[ignore = "needs root: make test-kernel"]
fn a_comparison_is_left_out_only_for_what_the_kernel_lacks() {
    if !rustix::process::geteuid().is_root() || !has("bpftrace") {
        println!("skipped: needs root and bpftrace");
        return;
    }
    let runs = |optional: &'static [&'static str], script: &'static str| {
        std::panic::catch_unwind(|| Judge::start_where_known(optional, script).is_some()).ok()
    };
    let point = "tracepoint:sched:no_such_point { @n = count(); }";
    assert_eq!(runs(&["sched:no_such_point"], point), Some(false));
    assert_eq!(runs(&["sched:sched_switch", "no_such_point"], point), None);
    let field = "tracepoint:sched:sched_switch { @n = sum(args->no_such_field); }";
    assert_eq!(runs(&["no_such_field"], field), Some(false));
    assert_eq!(runs(&["sched:sched_switch", "prev_pid"], field), None);
    let slip = "tracepoint:sched:sched_switch { @n = cuont(); }";
    assert_eq!(runs(&["sched:sched_switch"], slip), None);
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn bpftrace_sees_as_many_faults() {
    let script = "software:page-faults:1 { if (comm == \"mitra-peer-f\") { @count = count(); } }";
    let Some(judge) = Judge::start(script) else { return };
    let armed = arm(&own("faults", "mitra-peer-f", 10.0)).unwrap();
    thread("mitra-peer-f", || touch(20_000)).join().unwrap();
    let raw = armed.finish();
    let [theirs] = judge.values(["count"]);
    agree("faults", raw.stacks.iter().map(|s| s.count as f64).sum(), theirs);
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn a_wait_that_has_not_ended_counts_up_to_the_end() {
    let Some(armed) = arm(&own("offcpu", "mitra-waits", 1.5)) else { return };
    let (sender, receiver) = std::sync::mpsc::channel::<()>();
    let waiter = thread("mitra-waits", move || _ = receiver.recv());
    let raw = run_to_its_end(armed);
    drop(sender);
    waiter.join().unwrap();
    let waits: Vec<f64> = raw.stacks.iter().filter(|s| s.tag.contains("still")).map(|s| s.weight).collect();
    assert!(waits.len() == 1 && (1.0..=1.6).contains(&waits[0]), "{:?}", raw.stacks);
    assert!(raw.captured.notes.iter().any(|note| note.contains("had not ended")), "{:?}", raw.captured.notes);
}
