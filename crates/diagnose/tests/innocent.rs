//! Who is not to blame: programs that do the same as a culprit and hurt nobody, and culprits beside somebody louder.

#[path = "support/mod.rs"]
#[expect(dead_code, reason = "the other test files use the rest")]
mod support;

use std::sync::Arc;

use mitra_diagnose::view::View;
use mitra_diagnose::{Observation, conditions};
use mitra_model::{EventKind, Span, TextSeries, lookup};
use support::{AFTER, HEALTHY, INCIDENT, Machine, START, each, is_on, row};

const N: usize = HEALTHY + INCIDENT + AFTER;

/// What one condition says of the incident, compared with the half minute before.
fn observe(m: &Machine, id: &str) -> Observation {
    let at = |second: usize| START + second as i64 * 1_000_000_000;
    let window = Span { since: at(HEALTHY - 5), until: at(HEALTHY + INCIDENT + 5) };
    let good = Span { since: at(HEALTHY - 40), until: at(HEALTHY - 5) };
    let view = View::new(&m.set, window, &m.set, Some(good));
    let condition = conditions().iter().find(|c| c.id == id).unwrap();
    (condition.observe)(&view)
}

fn is_active(m: &Machine, id: &str) -> bool {
    matches!(observe(m, id), Observation::Active(_))
}

fn statement(m: &Machine, id: &str) -> String {
    match observe(m, id) {
        Observation::Active(finding) => finding.statement,
        other => panic!("{id}: {other:?}"),
    }
}

#[test]
fn a_program_that_touches_its_memory_once_and_keeps_it_is_no_storm() {
    let faults = |kept: f64| {
        let mut m = Machine::idle();
        m.sys("vm.pgfault", 500.0, 300_000.0).sys("vm.pgmajfault", 0.0, 0.0);
        m.task(50, "java", 0).task_rate(50, "task.minflt", 0.0, 300_000.0);
        let held = each(|i| 1e4 + kept * 300_000.0 * i.saturating_sub(HEALTHY).min(INCIDENT) as f64);
        m.values("task.rss_anon", &row(50), 0, held);
        is_active(&m, "minor-fault-storm")
    };
    assert!(!faults(1.0));
    assert!(faults(0.0));
}

/// A stream that evicts, and a program that reads beside it.
fn stream(back: f64) -> Machine {
    let mut m = Machine::idle();
    m.task(50, "tar", HEALTHY).task_during(50, "task.read_bytes", 3e8);
    m.row("disk.read_bytes", "vda", 1e4, 3.2e8).row("disk.reads", "vda", 2.0, 1_300.0);
    m.sys("vm.pgsteal_file", 0.0, 75_000.0).sys("vm.workingset_refault_file", 0.0, back);
    m.sys("psi.io_some", 0.0, 0.5).sys("tasks.d_io", 0.0, 0.9);
    m.task(51, "cc1", 0).task_rate(51, "task.read_bytes", 0.0, 1.6e7);
    m
}

#[test]
fn who_reads_something_for_the_first_time_fetches_nothing_again() {
    assert!(!is_active(&stream(3.0), "streaming-read-flood"));
    assert!(is_active(&stream(3_900.0), "streaming-read-flood"));
}

#[test]
fn who_fetches_its_pages_from_swap_is_no_victim_of_a_stream() {
    let mut m = stream(3_900.0);
    m.task_rate(51, "task.read_bytes", 0.0, 0.0).task_rate(51, "task.majflt", 0.0, 3_000.0);
    assert!(is_active(&m, "streaming-read-flood"));
    m.sys("vm.pswpin", 0.0, 2_950.0);
    assert!(!is_active(&m, "streaming-read-flood"));
}

/// Four pages of a victim come back for each request of the stream: on average of all requests they are small.
#[test]
fn who_streams_does_not_thrash_because_a_victim_reads_small() {
    let mut m = stream(7_000.0);
    m.row("disk.read_bytes", "vda", 1e4, 1.29e8).row("disk.reads", "vda", 2.0, 7_800.0);
    m.sys("vm.pgsteal_file", 0.0, 25_000.0);
    m.task_during(50, "task.read_bytes", 1e8).task_rate(51, "task.read_bytes", 0.0, 2.87e7);
    assert!(is_active(&m, "streaming-read-flood") && !is_active(&m, "page-cache-thrash"));
    // All of them its own.
    m.task_rate(51, "task.read_bytes", 0.0, 0.0);
    assert!(!is_active(&m, "streaming-read-flood") && is_active(&m, "page-cache-thrash"));
}

#[test]
fn a_full_disk_is_not_the_doing_of_who_reads_another_one() {
    let mut m = Machine::idle();
    m.task(70, "tar", HEALTHY).task_during(70, "task.read_bytes", 5e8);
    m.row("disk.read_bytes", "vda", 1e4, 5e8).row("disk.reads", "vda", 2.0, 1000.0);
    m.row("disk.read_time", "vda", 0.0, 0.4).row("disk.io_time", "vda", 0.0, 0.4);
    m.row("disk.weighted_time", "vda", 0.0, 0.4);
    for (metric, before, during) in [
        ("disk.io_time", 0.01, 1.0),
        ("disk.weighted_time", 0.01, 12.0),
        ("disk.writes", 20.0, 1_200.0),
        ("disk.write_time", 0.01, 12.0),
        ("disk.write_bytes", 1e5, 5e6),
        ("disk.reads", 5.0, 5.0),
        ("disk.read_time", 0.001, 0.05),
        ("disk.read_bytes", 2e4, 2e4),
    ] {
        m.row(metric, "sda", before, during);
    }
    m.task(71, "fio", HEALTHY).task_during(71, "task.write_bytes", 5e6);
    m.task(72, "postgres", 0);
    m.values("task.state", &row(72), 0, each(|i| f64::from(if is_on(i) { b'D' } else { b'S' })));
    m.sys("psi.io_some", 0.01, 0.95).sys("tasks.d_io", 0.0, 1.0);
    let Observation::Active(found) = observe(&m, "disk-hog") else { panic!("{:?}", observe(&m, "disk-hog")) };
    assert_eq!(
        (found.culprit.process.as_deref(), found.culprit.device.as_deref()),
        (Some("fio"), Some("sda"))
    );
}

#[test]
fn a_page_cache_that_is_held_at_memory_high_hurts_nobody() {
    let mut m = Machine::idle();
    m.row("cgroup.memory_high", "/backup", 2e8, 2e8).row("cgroup.memory_current", "/backup", 2e8, 2e8);
    m.row("cgroup.memory_high_events", "/backup", 0.0, 60_000.0);
    m.row("cgroup.psi_memory_some", "/backup", 0.0, 0.02).sys("psi.memory_some", 0.0, 0.02);
    assert!(!is_active(&m, "cgroup-memory-high"));
    // Its tasks wait as much as they always did.
    m.row("cgroup.psi_memory_some", "/backup", 0.3, 0.3);
    assert!(!is_active(&m, "cgroup-memory-high"));
    m.row("cgroup.psi_memory_some", "/backup", 0.3, 0.6);
    assert!(is_active(&m, "cgroup-memory-high"));
}

#[test]
fn a_group_at_its_limit_that_hardly_waits_hides_no_other() {
    let mut m = Machine::idle();
    for (group, fails, waits) in [("/backup", 64_000.0, 0.01), ("/app", 500.0, 0.6)] {
        m.row("cgroup.memory_failcnt", group, 0.0, fails).row("cgroup.psi_memory_some", group, 0.0, waits);
        m.row("cgroup.memory_max", group, 2e8, 2e8).row("cgroup.memory_current", group, 2e8, 2e8);
    }
    m.sys("psi.memory_some", 0.0, 0.6);
    assert!(statement(&m, "cgroup-memory-limit").starts_with("/app"));
}

#[test]
fn of_a_machine_whose_cpus_nobody_counted_no_queue_is_known() {
    let mut m = Machine::idle();
    m.sys("sys.procs_running", 1.0, 16.0).sys("sys.cpu_idle", 15.0, 0.0).sys("tasks.run_delay", 0.0, 14.0);
    m.sys("sys.load1", 1.0, 16.0);
    m.set.host.cpus = 0;
    for id in ["runqueue-saturation", "load-high"] {
        assert!(matches!(observe(&m, id), Observation::CannotTell(_)), "{id}");
    }
    m.set.host.cpus = 1;
    assert!(is_active(&m, "runqueue-saturation") && is_active(&m, "load-high"));
}

#[test]
fn a_device_without_moving_parts_needs_no_past_to_be_slow() {
    let device = |rotational: f64, seconds: f64| {
        let mut m = Machine::idle();
        let busy = |x: f64| each(move |i| if is_on(i) { x } else { 0.0 });
        for (metric, value) in [
            ("disk.reads", 30.0),
            ("disk.read_time", 30.0 * seconds),
            ("disk.read_bytes", 30.0 * 4096.0),
            ("disk.weighted_time", 30.0 * seconds),
            ("disk.io_time", (30.0 * seconds).min(1.0)),
            ("disk.writes", 0.0),
            ("disk.write_time", 0.0),
            ("disk.write_bytes", 0.0),
        ] {
            m.values(metric, "nvme0n1", 0, busy(value));
        }
        m.row("disk.rotational", "nvme0n1", rotational, rotational);
        m.sys("psi.io_some", 0.0, 0.9).sys("tasks.d_io", 0.0, 0.9);
        is_active(&m, "slow-device")
    };
    assert!(device(0.0, 0.03));
    assert!(!device(1.0, 0.03), "a disk may take so long");
    assert!(!device(0.0, 0.008));
}

#[test]
fn tasks_that_always_waited_where_they_are_pinned_are_as_they_were() {
    let pinned = |before: f64| {
        let mut m = Machine::idle();
        m.task(60, "nginx", 0).task_rate(60, "task.run_delay", before, 0.5);
        m.values("task.cpus_allowed", &row(60), 0, vec![1.0; N]);
        m.values("task.cpus_allowed_count", &row(60), 0, vec![1.0; N]);
        m.row("cpu.idle", "0", 0.02, 0.02).row("cpu.idle", "1", 0.97, 0.97);
        is_active(&m, "cpu-affinity-misplaced")
    };
    assert!(pinned(0.0));
    assert!(!pinned(0.5));
}

#[test]
fn a_server_that_gets_no_cpu_is_the_victim_of_who_takes_it() {
    let busy = |waits: f64| {
        let mut m = Machine::idle();
        m.task(80, "stress-ng", HEALTHY).task_during(80, "task.cpu_time", 1.6);
        m.task_during(80, "task.run_delay", 1.0);
        m.task(61, "shop", 0).task_rate(61, "task.run_delay", 0.0, waits).task_rate(
            61,
            "task.cpu_time",
            0.1,
            0.3,
        );
        m.sys("tasks.run_delay", 0.01, 1.0 + waits).sys("psi.cpu_some", 0.0, 0.9).sys(
            "sys.cpu_idle",
            1.9,
            0.0,
        );
        m.sys("tasks.cpu_time", 0.1, 1.98);
        m.sys("tcpext.ListenOverflows", 0.0, 5.0).sys("tcpext.TCPSynRetrans", 0.0, 5.0);
        m.row("listener.queue", "0.0.0.0:80", 0.0, 17.0).row("listener.backlog", "0.0.0.0:80", 16.0, 16.0);
        m.values("listener.pid", "0.0.0.0:80", 0, vec![61.0; N]);
        let text = TextSeries { changes: vec![(START, Some(Arc::from("shop")))], place: None };
        m.set.insert_text(lookup("listener.comm").unwrap(), "0.0.0.0:80".into(), text);
        m.explain()
    };
    let roots = |waits: f64| -> Vec<String> {
        let report = busy(waits);
        let of = |i: &mitra_model::report::Incident| {
            let others = i.other_roots.iter().map(|r| r.condition.clone());
            std::iter::once(i.root_cause.condition.clone()).chain(others).collect::<Vec<_>>()
        };
        report.incidents.iter().flat_map(of).collect()
    };
    assert!(roots(0.0).iter().any(|id| id == "listen-overflow"), "it had a CPU: {:?}", roots(0.0));
    assert!(roots(0.8).iter().all(|id| id != "listen-overflow"), "{:?}", roots(0.8));
}

#[test]
fn processes_that_are_started_and_stay_are_no_threads() {
    let started = |stay: f64| {
        let mut m = Machine::idle();
        m.sys("sys.forks", 1.0, 300.0).sys("tasks.exited", 1.0, 1.0).sys("tasks.run_delay", 0.0, 0.5);
        m.values(
            "tasks.total",
            "",
            0,
            each(|i| 100.0 + stay * i.saturating_sub(HEALTHY).min(INCIDENT) as f64),
        );
        m.task(90, "spawnd", 0);
        for pid in 1_000..1_020 {
            m.task(pid, "sleep", HEALTHY + 5).values(
                "task.ppid",
                &row(pid),
                HEALTHY + 5,
                vec![90.0; INCIDENT],
            );
        }
        m
    };
    let Observation::Active(found) = observe(&started(299.0), "fork-storm") else { panic!("a runaway loop") };
    assert_eq!(found.culprit.process.as_deref(), Some("spawnd"), "{}", found.statement);
    assert!(!is_active(&started(0.0), "fork-storm"), "three hundred threads that came and went");
}

/// A database that holds a gigabyte is killed, since it is the largest.
fn kill(grows: &str, held: u64) -> Machine {
    let mut m = Machine::idle();
    let at = HEALTHY + 20;
    m.values("vm.oom_kill", "", 0, each(|i| f64::from(u8::from(i == at))));
    for (pid, comm, from) in [(130, "redis-server", 250_000.0), (131, "worker", 1_000.0)] {
        m.task(pid, comm, 0).cgroup(pid, "/app");
        let grown =
            |i: usize| if comm == grows { 7_000.0 * i.saturating_sub(HEALTHY).min(20) as f64 } else { 0.0 };
        m.values("task.rss_anon", &row(pid), 0, each(|i| from + grown(i)));
    }
    let (comm, cgroup) = ("redis-server".to_owned(), Some("/app".to_owned()));
    m.event(at, EventKind::OomKill { pid: 130, comm, cgroup, anon_bytes: Some(held) });
    m
}

#[test]
fn the_largest_is_killed_and_who_grew_is_the_culprit() {
    let report = kill("worker", 250_000 * 4096).explain();
    let found = &report.incidents[0].root_cause;
    assert_eq!((found.condition.as_str(), found.culprit.process.as_deref()), ("oom-kill", Some("worker")));
    assert!(found.statement.contains("killed redis-server (130)"), "{}", found.statement);
    // It grew itself, in samples or in the last moment that is in none.
    for machine in [kill("redis-server", 390_000 * 4096), kill("worker", 900_000 * 4096)] {
        let report = machine.explain();
        assert_eq!(report.incidents[0].root_cause.culprit.process.as_deref(), Some("redis-server"));
    }
}

/// A server that forks twice, with children that live for three seconds, and faults all the time in between.
#[test]
fn what_a_fork_leaves_behind_is_no_sign_that_it_was_always_so() {
    let snapshots = |before: f64| {
        let mut m = Machine::idle();
        m.task(80, "redis-server", 0);
        m.values("task.rss_anon", &row(80), 0, vec![2e5; N]);
        let faults = each(|i| if is_on(i) { 24_000.0 } else { before });
        m.values("task.minflt", &row(80), 0, faults);
        for (pid, at) in [(81, HEALTHY + 1), (82, HEALTHY + 10)] {
            m.task(pid, "redis-server", HEALTHY).values("task.ppid", &row(pid), at, vec![80.0; 3]);
            m.values("task.rss_anon", &row(pid), at, vec![2e5; 3]);
        }
        is_active(&m, "fork-stall")
    };
    assert!(snapshots(1_400.0));
    assert!(!snapshots(20_000.0), "it always touched as many pages");
}

/// A service that forks for each document, and whose children call exec at once.
#[test]
fn a_large_process_that_forks_all_the_time_stands_still_for_a_part_of_it() {
    let forks = |pages: f64, rate: f64, others: u32| {
        let mut m = Machine::idle();
        m.task(80, "score-api", 0).task_rate(80, "task.system_time", 0.01, 0.5);
        m.values("task.rss_anon", &row(80), 0, vec![pages; N]);
        m.values("task.minflt", &row(80), 0, each(|i| if is_on(i) { 4_000.0 } else { 10.0 }));
        m.sys("sys.forks", 1.0, rate);
        let at = HEALTHY as u32 + 2;
        for pid in 0..8 {
            m.task(100 + pid, "score-api", (at + pid) as usize);
            m.values("task.ppid", &row(100 + pid), (at + pid) as usize, vec![80.0]);
        }
        for pid in 0..others {
            m.task(200 + pid, "cc1", (at + pid % 8) as usize);
            m.values("task.ppid", &row(200 + pid), (at + pid % 8) as usize, vec![1.0]);
        }
        m
    };
    let m = forks(3.4e5, 30.0, 0);
    assert!(
        statement(&m, "fork-stall").starts_with("score-api (80) forks some 30 times a second with 1.4 GB")
    );
    assert!(!is_active(&forks(3.4e5, 5.0, 0), "fork-stall"), "it forks seldom");
    assert!(!is_active(&forks(7e4, 30.0, 0), "fork-stall"), "it is small");
    assert!(!is_active(&forks(3.4e5, 30.0, 40), "fork-stall"), "others fork");
}

/// A group at its limit in which nobody waits for memory, and one reads the pages of its file again that another one pushes out.
#[test]
fn who_waits_for_pages_that_its_group_had_to_give_up_waits_for_memory() {
    let group = |faults: f64, came_back: f64, read: f64| {
        let mut m = Machine::idle();
        m.row("cgroup.memory_failcnt", "/map", 0.0, 450.0).row("cgroup.memory_max", "/map", 3e8, 3e8);
        m.row("cgroup.memory_current", "/map", 2e8, 3e8).row("cgroup.refault_file", "/map", 0.0, came_back);
        m.sys("psi.memory_some", 0.0, 0.003);
        m.task(80, "tiles", 0).cgroup(80, "/map").task_rate(80, "task.majflt", 0.0, faults);
        m.task_rate(80, "task.read_bytes", 0.0, read).task_rate(80, "task.blkio_delay", 0.0, 0.9);
        m.task(81, "mirror", HEALTHY).cgroup(81, "/map").task_rate(81, "task.read_bytes", 0.0, 4e7);
        m.task_rate(81, "task.write_bytes", 0.0, 4e7);
        m
    };
    let said = statement(&group(500.0, 550.0, 2e6), "cgroup-memory-limit");
    assert!(
        said.contains("pages that it had to give up for 90 % of the time: mirror (81) in it read and wrote"),
        "{said}"
    );
    let mut m = group(500.0, 550.0, 2e6);
    m.task_rate(80, "task.blkio_delay", 0.88, 0.9);
    assert!(!is_active(&m, "cgroup-memory-limit"), "it waited for as long before");
    let mut m = group(500.0, 550.0, 2e6);
    m.row("cgroup.refault_anon", "/map", 0.0, 450.0);
    assert!(!is_active(&m, "cgroup-memory-limit"), "it is swapped in");
    assert!(!is_active(&group(500.0, 20.0, 2e6), "cgroup-memory-limit"), "they are new to it");
    assert!(!is_active(&group(50.0, 550.0, 5e7), "cgroup-memory-limit"), "it reads a file");
}

/// From the beginning of the incident, for so many seconds.
fn lasting(seconds: usize, before: f64, during: f64) -> Vec<f64> {
    each(|i| if (HEALTHY..HEALTHY + seconds).contains(&i) { during } else { before })
}

#[test]
fn a_step_of_a_job_that_is_over_in_seconds_is_no_hog() {
    let hog = |seconds: usize| {
        let mut m = Machine::idle();
        m.task(90, "cc1plus", HEALTHY).thread(90, 91, "cc1plus", HEALTHY);
        for tid in [90, 91] {
            m.values("task.cpu_time", &row(tid), HEALTHY, vec![0.9; seconds]);
            m.values("task.run_delay", &row(tid), HEALTHY, vec![0.1; seconds]);
        }
        m.task(95, "web", 0).values("task.run_delay", &row(95), 0, lasting(seconds, 0.01, 0.6));
        m.values("task.cpu_time", &row(95), 0, lasting(seconds, 0.3, 0.2));
        m.values("sys.cpu_idle", "", 0, lasting(seconds, 1.6, 0.0));
        is_active(&m, "cpu-hog")
    };
    assert!(!hog(5));
    assert!(hog(7));
}

#[test]
fn a_task_that_waits_for_no_longer_than_a_commit_of_a_journal_may_take_does_not_hang() {
    let hangs = |seconds: usize| {
        let mut m = Machine::idle();
        m.task(60, "orderd", 0);
        m.values("task.state", &row(60), 0, lasting(seconds, f64::from(b'S'), f64::from(b'D')));
        m.values("task.nvcsw", &row(60), 0, lasting(seconds, 40.0, 0.0));
        m.values("tasks.d_lock", "", 0, lasting(seconds, 0.0, 1.0));
        let stack = "percpu_rwsem_wait;__percpu_down_read;ext4_file_write_iter;vfs_write";
        let changes = vec![(START + HEALTHY as i64 * 1_000_000_000, Some(Arc::from(stack)))];
        let series = TextSeries { changes, place: None };
        m.set.insert_text(lookup("task.kstack").unwrap(), row(60).into(), series);
        is_active(&m, "hung-task")
    };
    assert!(!hangs(6));
    assert!(hangs(8));
}

/// A JVM whose collector and whose program take so much of a CPU in each second.
fn collects(of: impl Fn(usize) -> (f64, f64)) -> String {
    let mut m = Machine::idle();
    m.task(50, "java", 0).thread(50, 51, "VM Thread", 0).thread(50, 52, "C2 CompilerThre", 0);
    m.values("task.cpu_time", &row(51), 0, each(|i| of(i).0));
    m.values("task.cpu_time", &row(52), 0, each(|i| of(i).1));
    match observe(&m, "gc-pressure") {
        Observation::Inactive(because) => because,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_program_that_makes_much_garbage_and_gets_on_is_at_work() {
    let busy = collects(|i| if is_on(i) { (0.3, 1.6) } else { (0.02, 0.1) });
    assert!(busy.contains("java (50) spent 1"), "{busy}");
    // Nobody asks it for anything.
    let alone = collects(|i| if is_on(i) { (0.3, 0.1) } else { (0.02, 0.1) });
    assert!(alone.contains("no client"), "{alone}");
    // As much as it always did.
    let always = collects(|i| if is_on(i) { (0.9, 0.2) } else { (0.7, 0.2) });
    assert!(always.contains("before"), "{always}");
}

#[test]
fn a_single_full_collection_is_no_pressure_however_long() {
    let collection = HEALTHY + 5..HEALTHY + 17;
    let one = collects(|i| if collection.contains(&i) { (1.0, 0.0) } else { (0.05, 0.5) });
    assert!(one.contains("one collection of"), "{one}");
    // Many, one after the other, hardly let the program run, and wake the thread that leads them.
    let mut m = Machine::idle();
    m.task(50, "java", 0).thread(50, 51, "VM Thread", 0).thread(50, 52, "GC Thread#0", 0);
    m.task_rate(51, "task.nvcsw", 3.0, 60.0).task_rate(51, "task.cpu_time", 0.001, 0.03);
    m.task_rate(52, "task.cpu_time", 0.001, 0.95).task_rate(50, "task.cpu_time", 0.2, 0.001);
    assert!(is_active(&m, "gc-pressure"));
    // And one of a heap of several gigabytes is over after some seconds.
    let short = HEALTHY + 5..HEALTHY + 10;
    let short = collects(|i| if short.contains(&i) { (1.0, 0.01) } else { (0.05, 0.5) });
    assert!(short.contains("of its CPU time on collections"), "{short}");
}

#[test]
fn a_runtime_that_has_just_started_fills_its_heap() {
    let mut m = Machine::idle();
    m.task(50, "java", HEALTHY).thread(50, 51, "VM Thread", HEALTHY).thread(50, 52, "main", HEALTHY);
    let first = |gc: f64| (0..INCIDENT).map(|i| if i < 12 { gc } else { 0.02 }).collect();
    m.values("task.cpu_time", &row(51), HEALTHY, first(0.9));
    m.values("task.cpu_time", &row(52), HEALTHY, first(0.5));
    match observe(&m, "gc-pressure") {
        Observation::Inactive(because) => assert!(because.contains("had just started"), "{because}"),
        other => panic!("{other:?}"),
    }
}

/// A FUSE file system with as many requests that wait in each second, whose daemon wakes so often.
fn fuse(waiting: impl Fn(usize) -> f64, wakes: f64) -> Machine {
    let mut m = Machine::idle();
    m.task(80, "rclone", 0).task_rate(80, "task.nvcsw", wakes, wakes);
    m.values("fuse.waiting", "0:45", 0, each(waiting)).values("fuse.pid", "0:45", 0, vec![80.0; N]);
    m
}

#[test]
fn a_file_system_that_is_busy_does_not_hang() {
    // Somebody copies from it: a request waits at every sample, and each is answered soon.
    let busy = fuse(|i| if is_on(i) { 1.0 + (i % 3) as f64 } else { 0.0 }, 25.0);
    assert!(!is_active(&busy, "filesystem-hung"));
    // Short waits, and none at all in between.
    let short = fuse(|i| if is_on(i) && i % 3 > 0 { 2.0 } else { 0.0 }, 0.0);
    assert!(!is_active(&short, "filesystem-hung"));
    // Two seconds are within what a lost segment costs.
    assert!(!is_active(
        &fuse(|i| if (HEALTHY..HEALTHY + 2).contains(&i) { 4.0 } else { 0.0 }, 0.0),
        "filesystem-hung"
    ));
}

#[test]
fn who_waits_for_an_event_of_a_file_system_waits_on_purpose() {
    let mut m = fuse(|i| if is_on(i) { 1.0 } else { 0.0 }, 0.0);
    assert!(!is_active(&m, "filesystem-hung"));
    // Its daemon is stopped: nobody will tell it.
    m.values("task.state", &row(80), 0, each(|i| f64::from(if is_on(i) { b'T' } else { b'S' })));
    assert!(is_active(&m, "filesystem-hung"));
}
