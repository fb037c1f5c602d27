//! Every BPF value against the file it replaces, on the running kernel. Needs root and
//! kernel type information; each test says so and passes where they are missing.

#[path = "bpf_truth/block.rs"]
mod block;
#[path = "bpf_truth/cost.rs"]
mod cost;
#[path = "bpf_truth/files.rs"]
mod files;
#[path = "armed/judge.rs"]
mod judge;
#[path = "bpf_truth/locks.rs"]
mod locks;
#[path = "bpf_truth/memory.rs"]
mod memory;
#[path = "bpf_truth/proc.rs"]
mod proc;
#[path = "bpf_truth/spawn.rs"]
mod spawn;

use std::collections::{HashMap, HashSet};
use std::os::unix::fs::MetadataExt as _;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{fs, thread};

use mitra_collect::bpf::{EventKind, ExitRec, Probes, Seen, StallKind, TaskRec};
use spawn::{busy, idle};

/// The tests count what the whole machine does: one at a time.
static ONE: Mutex<()> = Mutex::new(());

const TICKS_PER_SECOND: u64 = 100;
const NS_PER_TICK: u64 = 1_000_000_000 / TICKS_PER_SECOND;

fn probes() -> Option<(MutexGuard<'static, ()>, Probes)> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: needs root");
        return None;
    }
    if !fs::exists("/sys/kernel/btf/vmlinux").unwrap_or(false) {
        eprintln!("skipped: this kernel has no type information (/sys/kernel/btf/vmlinux)");
        return None;
    }
    let guard = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    Some((guard, Probes::load(false)))
}

fn pass(probes: &mut Probes) -> HashMap<u32, (TaskRec, String)> {
    let mut seen = HashMap::new();
    let stats = probes
        .tasks
        .as_mut()
        .expect("the task iterator")
        .pass(|record, stack| {
            assert!(seen.insert(record.tid, (*record, stack.to_owned())).is_none(), "a thread came twice");
        })
        .expect("a pass");
    assert_eq!(stats.tasks, seen.len() as u64);
    seen
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn every_probe_loads() {
    let Some((_guard, probes)) = probes() else { return };
    assert_eq!(probes.unavailable(), []);
}

fn counter(record: &TaskRec, name: &str) -> u64 {
    match name {
        "minflt" => record.min_flt,
        "majflt" => record.maj_flt,
        "runtime" => record.sum_exec_runtime_ns,
        "run_delay" => record.run_delay_ns,
        "rchar" => record.io.rchar,
        "wchar" => record.io.wchar,
        "syscr" => record.io.syscr,
        "syscw" => record.io.syscw,
        "read_bytes" => record.io.read_bytes,
        "write_bytes" => record.io.write_bytes,
        "cancelled_write_bytes" => record.io.cancelled_write_bytes,
        "voluntary_ctxt_switches" => record.nvcsw,
        "nonvoluntary_ctxt_switches" => record.nivcsw,
        other => panic!("no counter {other}"),
    }
}

/// `percpu_counter_batch` (lib/percpu_counter.c) pages may wait on each CPU; up to 6.1 64
/// events of each thread (`TASK_RSS_EVENTS_THRESH`).
fn rss_slack_pages(threads: u64) -> u64 {
    let cpus = thread::available_parallelism().map_or(1, |n| n.get() as u64);
    ((2 * cpus).max(32) * cpus).max(64 * threads)
}

fn check_thread(record: &TaskRec, before: &proc::Thread, after: &proc::Thread) {
    let who = format!("{} ({})", record.tid, record.comm());
    assert_eq!(record.tgid, before.tgid, "{who}");
    assert_eq!(record.start_boottime_ns / NS_PER_TICK, before.start_ticks, "{who}: start");
    for name in proc::COUNTERS {
        let (low, value, high) = (before.counters[name], counter(record, name), after.counters[name]);
        assert!(low <= value && value <= high, "{who}: {name}: {low} <= {value} <= {high}");
    }
    // Both halves are cut to whole ticks, so their sum may be up to two ticks short.
    let ticks = record.sum_exec_runtime_ns / NS_PER_TICK;
    assert!(before.utime_ticks + before.stime_ticks <= ticks, "{who}: ticks {ticks} before {before:?}");
    assert!(ticks <= after.utime_ticks + after.stime_ticks + 2, "{who}: ticks {ticks} after {after:?}");
    let (user, system) = record.cpu_split_ns();
    assert_eq!(user + system, record.sum_exec_runtime_ns, "{who}");
    for (name, old, value, new) in [
        ("ppid", u64::from(before.ppid), u64::from(record.ppid), u64::from(after.ppid)),
        ("policy", before.policy, u64::from(record.policy), after.policy),
        ("rt_priority", before.rt_priority, u64::from(record.rt_priority), after.rt_priority),
        ("allowed CPUs", before.cpus_allowed, record.cpus_allowed, after.cpus_allowed),
    ] {
        assert!(value == old || value == new, "{who}: {name}: {old}, {value}, {new}");
    }
    assert_eq!(i64::from(record.nice), before.nice, "{who}: nice");
    assert_eq!(record.cpus_allowed_count, record.cpus_allowed.count_ones(), "{who}: fewer than 64 CPUs");
    // One that slept all the while cannot have changed these; one that is ready to run may be
    // moved to another CPU.
    let switches = |thread: &proc::Thread| thread.counters["voluntary_ctxt_switches"];
    if before.state == 'S' && after.state == 'S' && switches(before) == switches(after) {
        assert_eq!(record.state_char(), 'S', "{who}: state {:x}", record.state);
        assert_eq!(u64::from(record.cpu), after.cpu, "{who}: cpu");
    }
    // Workers rename themselves by what they do; /proc then shows more than 15 letters.
    if !record.is_kthread() {
        assert!([&before.comm, &after.comm].contains(&&record.comm().to_owned()), "{who}: {}", before.comm);
    }
    if record.is_leader() {
        assert!(
            (before.num_threads..=after.num_threads).contains(&u64::from(record.num_threads))
                || (after.num_threads..=before.num_threads).contains(&u64::from(record.num_threads)),
            "{who}: threads"
        );
        check_rss(record, before, after, &who);
    }
}

fn check_rss(record: &TaskRec, before: &proc::Thread, after: &proc::Thread, who: &str) {
    let pages = [record.rss_anon_pages, record.rss_file_pages, record.rss_shmem_pages, record.swap_pages];
    let slack = rss_slack_pages(u64::from(record.num_threads));
    let kb_per_page = rustix::param::page_size() as u64 / 1024;
    for (name, value) in proc::RSS.iter().zip(pages) {
        let (Some(old), Some(new)) = (before.rss_kb.get(name), after.rss_kb.get(name)) else {
            assert_eq!(value, 0, "{who}: {name} without an address space");
            continue;
        };
        let (low, high) = (old.min(new) / kb_per_page, old.max(new) / kb_per_page);
        let value = u64::from(value);
        // What grows and shrinks all the time may have been outside of both reads at the pass; what two reads differ
        // by says how fast it moves. A process at rest gets nothing on top.
        // Nor can it have grown meanwhile by more pages than it touched first, if it is its first thread that does so.
        let faults = after.counters["minflt"] - before.counters["minflt"];
        let slack = slack + 10 * (high - low) + faults;
        assert!(value + slack >= low && value <= high + slack, "{who}: {name}: {low} <= {value} <= {high}");
    }
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn values_of_all_tasks_fall_between_two_reads_of_proc() {
    let Some((_guard, mut probes)) = probes() else { return };
    let _running = [
        busy("while :; do :; done"),
        busy("exec dd if=/dev/zero of=/dev/null bs=64k"),
        busy("while :; do /bin/true; done"),
    ];
    thread::sleep(Duration::from_millis(300));
    let mut checked = 0;
    for _ in 0..5 {
        let before = proc::read_all();
        let seen = pass(&mut probes);
        let after = proc::read_all();
        for (tid, old) in &before {
            let Some(new) = after.get(tid).filter(|new| new.start_ticks == old.start_ticks) else { continue };
            let (record, _) = seen.get(tid).unwrap_or_else(|| panic!("the pass has missed {tid} {old:?}"));
            check_thread(record, old, new);
            checked += 1;
        }
        thread::sleep(Duration::from_millis(100));
    }
    eprintln!("{checked} threads checked");
    assert!(checked > 100, "{checked}");
}

/// A second iterator, which sends everything, is the judge of what the first leaves out.
#[test]
#[ignore = "needs root: make test-kernel"]
fn a_task_that_is_called_still_has_not_run() {
    let Some((_guard, mut probes)) = probes() else { return };
    let mut judge = Probes::load(false);
    let _running = [
        spawn::bursts(),
        busy("while :; do /bin/true; sleep 0.02; done"),
        busy("while :; do sleep 0.3; done"),
        spawn::many_threads(),
    ];
    let mut known: HashMap<u32, TaskRec> = HashMap::new();
    let (mut still_count, mut whole_count) = (0_u32, 0_u32);
    for round in 0..40 {
        let before = pass(&mut judge);
        let mut now = HashMap::new();
        let tasks = probes.tasks.as_mut().expect("the task iterator");
        tasks
            .pass_changes(round % 3 == 0, |seen| match seen {
                Seen::Whole(record, _) => {
                    whole_count += 1;
                    now.insert(record.tid, *record);
                }
                Seen::Still(still) => {
                    still_count += 1;
                    let old = known.get(&still.tid).unwrap_or_else(|| panic!("{still:?} was never sent"));
                    now.insert(still.tid, *old);
                    // The judge came by before: what it saw can only be as old or older.
                    let Some((then, _)) = before.get(&still.tid) else { return };
                    for name in proc::COUNTERS {
                        assert!(counter(then, name) <= counter(old, name), "{}: {name}", then.comm());
                    }
                    assert_eq!(then.start_boottime_ns, old.start_boottime_ns, "{}", then.comm());
                    assert_eq!((then.state, then.tgid), (still.state, still.tgid), "{}", then.comm());
                    assert_eq!(then.num_threads, old.num_threads, "{}", then.comm());
                }
            })
            .expect("a pass");
        known = now;
        thread::sleep(Duration::from_millis(if round % 2 == 0 { 30 } else { 130 }));
    }
    eprintln!("{still_count} still, {whole_count} whole");
    assert!(still_count > whole_count, "{still_count} still, {whole_count} whole");
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn what_others_change_of_a_task_that_sleeps_is_seen() {
    let Some((_guard, mut probes)) = probes() else { return };
    let sleeper = idle();
    let tasks = probes.tasks.as_mut().expect("the task iterator");
    let mut pass = |others: bool| {
        let mut nice = None;
        tasks
            .pass_changes(others, |seen| {
                if let Seen::Whole(record, _) = seen
                    && record.tid == sleeper.pid()
                {
                    nice = Some(record.nice);
                }
            })
            .expect("a pass");
        nice
    };
    let renice = |nice: i32| {
        // SAFETY: it sets the nice value of a process that this test started.
        assert_eq!(unsafe { libc::setpriority(libc::PRIO_PROCESS, sleeper.pid(), nice) }, 0);
    };
    thread::sleep(Duration::from_millis(200));
    for _ in 0..3 {
        pass(false);
        thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(pass(true), None, "it has not run");
    renice(5);
    assert_eq!(pass(true), Some(5));
    assert_eq!(pass(true), None);
    renice(6);
    let seen: Vec<_> = (0..8).filter_map(|_| pass(false)).collect();
    assert_eq!(seen, [6]);
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn tick_times_are_in_proportion_and_cgroups_are_inode_numbers() {
    let Some((_guard, mut probes)) = probes() else { return };
    let spinner = busy("while :; do :; done");
    thread::sleep(Duration::from_secs(2));
    let seen = pass(&mut probes);
    let (record, _) = &seen[&spinner.pid()];
    // The tick finds a task that always runs running: a sample of some hundred.
    let (ticks, exact) = ((record.utime_ns + record.stime_ns) as f64, record.sum_exec_runtime_ns as f64);
    assert!(exact > 1e8 && (ticks / exact - 1.0).abs() < 0.25, "{ticks} ns by ticks, {exact} ns exact");
    for (controller, id) in [
        (None, record.cgroups.unified),
        (Some("cpu"), record.cgroups.cpu),
        (Some("memory"), record.cgroups.memory),
    ] {
        let Some(path) = proc::cgroup_path(spinner.pid(), controller) else {
            eprintln!("not checked: no hierarchy for {controller:?}");
            continue;
        };
        assert_eq!(fs::metadata(&path).expect("the cgroup's directory").ino(), id, "{path}");
    }
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn a_thousand_short_processes_are_all_counted_with_their_parent() {
    let Some((_guard, mut probes)) = probes() else { return };
    let exits = probes.exits.as_mut().expect("the exit probe");
    let name = fs::read_to_string("/proc/self/comm").expect("own name").trim().to_owned();
    let me = std::process::id();
    let cpu_before_us = spawn::children_cpu_us();
    let mut ended: Vec<ExitRec> = Vec::new();
    let mut pids = HashSet::new();
    for round in 0..1_000 {
        let mut child = Command::new("/bin/true").spawn().expect("/bin/true");
        pids.insert(child.id());
        child.wait().expect("its end");
        if round % 400 == 0 {
            exits.drain(|record| ended.push(*record));
        }
    }
    exits.drain(|record| ended.push(*record));
    let mine: Vec<&ExitRec> =
        ended.iter().filter(|r| r.is_process() && r.ppid == me && pids.contains(&r.tgid)).collect();
    assert_eq!(mine.len(), 1_000);
    assert_eq!(mine.iter().map(|r| r.tgid).collect::<HashSet<_>>(), pids);
    for record in &mine {
        assert_eq!((record.leader_comm(), record.parent_comm()), ("true", name.as_str()));
        assert!(
            record.end_boottime_ns > record.start_boottime_ns && record.exit_code == 0 && record.min_flt > 0
        );
    }
    assert_eq!(exits.lost().expect("the lost counter"), 0);
    let exact_us = (spawn::children_cpu_us() - cpu_before_us) as f64;
    let told_us = mine.iter().map(|r| r.cpu_ns).sum::<u64>() as f64 / 1e3;
    let ticks_us = mine.iter().map(|r| r.utime_ns + r.stime_ns).sum::<u64>() as f64 / 1e3;
    eprintln!(
        "cpu of 1,000 processes: {told_us:.0} us told, {ticks_us:.0} us by ticks, {exact_us:.0} us by wait4"
    );
    // wait4 also has what comes after the tracepoint: tearing down the address space.
    assert!(told_us > 0.5 * exact_us && told_us < 1.1 * exact_us, "{told_us} of {exact_us}");
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn exits_beyond_the_ring_are_summed_by_parent() {
    let Some((_guard, mut probes)) = probes() else { return };
    let exits = probes.exits.as_mut().expect("the exit probe");
    let mut shell = Command::new("/bin/sh")
        .args(["-c", "i=0; while [ $i -lt 2600 ]; do /bin/true; i=$((i+1)); done"])
        .spawn()
        .expect("/bin/sh");
    let pid = shell.id();
    shell.wait().expect("its end");
    let (mut single, mut summed) = (0, 0);
    exits.drain(|record| single += u64::from(record.ppid == pid && record.is_process()));
    exits
        .drain_sums(|key, sum| {
            if key.ppid == pid {
                assert_eq!(mitra_collect::bpf::comm_str(&key.parent_comm), "sh");
                summed += sum.processes;
            }
        })
        .expect("the sums");
    eprintln!("{single} single, {summed} in sums");
    assert!(single > 1_000 && summed > 100);
    assert_eq!(single + summed, 2_600);
    let mut left = 0;
    exits.drain_sums(|key, _| left += u64::from(key.ppid == pid)).expect("the sums");
    assert_eq!(left, 0, "taken once");
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn exit_codes_and_threads_are_told_apart() {
    let Some((_guard, mut probes)) = probes() else { return };
    let exits = probes.exits.as_mut().expect("the exit probe");
    let mut seven = Command::new("/bin/sh").args(["-c", "exit 7"]).spawn().expect("/bin/sh");
    let seven_pid = seven.id();
    seven.wait().expect("its end");
    let killed = idle();
    let killed_pid = killed.pid();
    drop(killed);
    thread::Builder::new()
        .name("short-lived".into())
        .spawn(|| ())
        .expect("a thread")
        .join()
        .expect("its end");
    // Joining needs no more than the thread's last write; its exit may still be under way.
    thread::sleep(Duration::from_millis(50));
    let mut ended = Vec::new();
    exits.drain(|record| ended.push(*record));
    let of = |pid| ended.iter().find(|r| r.tgid == pid && r.is_process()).expect("its record");
    assert_eq!(of(seven_pid).exit_code, 7 << 8);
    assert_eq!(of(killed_pid).exit_code & 0x7f, libc::SIGKILL);
    let thread = ended.iter().find(|r| r.comm() == "short-lived").expect("the thread's record");
    assert!(!thread.is_process() && !thread.is_leader() && thread.tgid == std::process::id());
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn a_task_in_d_comes_with_its_kernel_stack() {
    let Some((_guard, mut probes)) = probes() else { return };
    let waiting = spawn::vfork_parent();
    thread::sleep(Duration::from_millis(200));
    let seen = pass(&mut probes);
    let (record, stack) = &seen[&waiting.pid()];
    assert_eq!(record.state_char(), 'D', "{:x}", record.state);
    eprintln!("{stack}");
    assert!(stack.contains("kernel_clone"), "{stack}");
    match proc::kernel_stack(waiting.pid()) {
        Some(all) => assert!(all.starts_with(stack.as_str()), "{stack}, but in /proc {all}"),
        None => eprintln!("not compared: /proc/PID/stack needs CAP_SYS_ADMIN"),
    }
    assert!(seen.values().all(|(r, s)| s.is_empty() || r.state_char() == 'D'));
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn a_reused_pid_has_another_start() {
    let Some((_guard, mut probes)) = probes() else { return };
    let first = idle();
    let pid = first.pid();
    let first_start = pass(&mut probes)[&pid].0.start_boottime_ns;
    drop(first);
    let Some(second) = spawn::with_pid(pid) else {
        eprintln!("skipped: this kernel lets nobody choose a pid");
        return;
    };
    assert_eq!(second.pid(), pid);
    let (record, _) = &pass(&mut probes)[&pid];
    assert!(record.start_boottime_ns > first_start);
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn signals_that_kill_name_sender_and_victim() {
    let Some((_guard, mut probes)) = probes() else { return };
    let victim = idle();
    let victim_pid = victim.pid();
    // A vfork parent goes on before exec gives the child its new name.
    thread::sleep(Duration::from_millis(50));
    drop(victim);
    let mut crash =
        Command::new("/bin/sh").args(["-c", "kill -SEGV $$"]).stderr(Stdio::null()).spawn().expect("/bin/sh");
    crash.wait().expect("its end");
    let mut caught =
        Command::new("/bin/sh").args(["-c", "trap : SEGV; kill -SEGV $$"]).spawn().expect("/bin/sh");
    caught.wait().expect("its end");
    let mut seen = Vec::new();
    let events = probes.events.as_mut().expect("the event probe");
    events.drain(|event| seen.push(*event));
    let of = |pid: u32| seen.iter().find(|e| e.kind() == EventKind::Signal && e.tgid == pid);
    let kill = of(victim_pid).expect("the kill");
    assert_eq!((kill.signal, kill.by_tgid, kill.comm()), (libc::SIGKILL as u32, std::process::id(), "sleep"));
    let segv = of(crash.id()).expect("the crash");
    assert_eq!((segv.signal, segv.by_tgid, segv.code), (libc::SIGSEGV as u32, crash.id(), 0));
    assert!(of(caught.id()).is_none(), "a signal with a handler kills nobody");
    assert_eq!(events.lost().expect("the lost counter"), 0);
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn a_cgroup_at_its_limit_shows_reclaim_and_the_kill() {
    let Some((_guard, mut probes)) = probes() else { return };
    let Some(cgroup) = spawn::MemoryCgroup::with_limit(16 << 20) else {
        eprintln!("skipped: no memory controller of cgroup v1");
        return;
    };
    let mut hog = Command::new("/bin/sh")
        .args(["-c", &format!("echo $$ > {}/cgroup.procs; exec timeout 20 tail /dev/zero", cgroup.path())])
        .stderr(Stdio::null())
        .spawn()
        .expect("/bin/sh");
    hog.wait().expect("its end");
    let mut kills = Vec::new();
    probes.events.as_mut().expect("the event probe").drain(|event| {
        if event.kind() == EventKind::Oom {
            kills.push(*event);
        }
    });
    let inode = fs::metadata(cgroup.path()).expect("the cgroup").ino();
    let kill = kills.iter().find(|event| event.cgroups.memory == inode).expect("the kill");
    assert_eq!(kill.comm(), "tail");
    assert!(kill.rss_anon_pages * rustix::param::page_size() as u64 > 8 << 20 && kill.uid == 0, "{kill:?}");
    let stalls = probes.stalls.as_mut().expect("the stall probes");
    let mut memcg = None;
    stalls
        .read(|kind, hist| {
            if kind == StallKind::MemcgReclaim {
                memcg = Some(*hist)
            }
        })
        .expect("the stalls");
    let memcg = memcg.expect("the kind");
    assert!(memcg.count > 0 && memcg.total_ns > 0);
    assert_eq!(memcg.latency.iter().sum::<u64>(), memcg.count);
    let mut owned_ns = 0;
    stalls
        .owners(|tgid, kind, sum| {
            if tgid == kill.tgid && kind == StallKind::MemcgReclaim {
                owned_ns += sum.total_ns;
            }
        })
        .expect("the owners");
    assert!(owned_ns > 0 && owned_ns <= memcg.total_ns, "{owned_ns} of {}", memcg.total_ns);
}
