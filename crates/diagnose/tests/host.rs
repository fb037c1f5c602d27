//! Trouble of one process, one device or one setting, as a recording has it, and what looks like it.

#[path = "support/mod.rs"]
#[expect(dead_code, reason = "the other test files use the rest")]
mod support;

use mitra_diagnose::History;
use mitra_model::time::SECOND;
use mitra_model::{EventKind, ScheduledJob};
use support::{HEALTHY, INCIDENT, Machine, START, each, ids, is_on, root, row};

fn descriptors(limit: f64, fds: impl Fn(usize) -> f64) -> Machine {
    let mut m = Machine::idle();
    m.task(90, "gatewayd", 0);
    m.values("task.fd_limit", &row(90), 0, each(|_| limit)).values("task.fds", &row(90), 0, each(&fds));
    m.values("tasks.fds_fullest", "", 0, each(|i| fds(i) / limit));
    m
}

#[test]
fn a_process_at_its_limit_of_descriptors() {
    let report = descriptors(256.0, |i| if is_on(i) { 255.0 } else { 31.0 }).explain();
    assert_eq!(root(&report), ("fd-exhaustion", Some("gatewayd"), Some(90)));
    let incident = &report.incidents[0];
    assert!(incident.root_cause.statement.contains("may have 256"), "{}", incident.root_cause.statement);
    assert!(incident.remedies.iter().any(|r| r.command.contains("prlimit --pid 90")));
}

#[test]
fn many_descriptors_below_the_limit_or_always_at_it_are_no_incident() {
    assert!(descriptors(1024.0, |i| if is_on(i) { 900.0 } else { 31.0 }).explain().incidents.is_empty());
    assert!(descriptors(256.0, |_| 255.0).explain().incidents.is_empty());
}

/// A program of process 70 that ends `every` seconds.
fn deaths(m: &mut Machine, child: &str, every: usize, failed: f64, from: usize) {
    let name = format!("70:{child}");
    let is_death = |i: usize| i >= from && i < HEALTHY + INCIDENT && i.is_multiple_of(every);
    let rate = |n: f64| each(move |i| if is_death(i) { n } else { 0.0 });
    m.values("exited.count", &name, 0, rate(1.0)).values("exited.failed", &name, 0, rate(failed));
    m.values("exited.lifetime", &name, 0, rate(0.4)).values("exited.cpu_time", &name, 0, rate(0.002));
    m.text("exited.parent_comm", &name, 0, "runsv");
}

#[test]
fn a_program_that_dies_again_and_again_is_a_loop() {
    let mut m = Machine::idle();
    m.task(70, "runsv", 0);
    m.task(71, "ledgerd", 0);
    m.values("task.ppid", &row(71), 0, vec![70.0; HEALTHY]).values(
        "task.tgid",
        &row(71),
        0,
        vec![71.0; HEALTHY],
    );
    deaths(&mut m, "ledgerd", 4, 1.0, HEALTHY);
    let report = m.explain();
    assert_eq!(ids(&report), ["crash-loop"]);
    let culprit = &report.incidents[0].root_cause;
    assert_eq!(culprit.culprit.process.as_deref(), Some("ledgerd"));
    assert!(culprit.statement.contains("runsv (70) started it again"), "{}", culprit.statement);
}

#[test]
fn commands_that_fail_are_no_crash_loop() {
    // As it always was.
    let mut m = Machine::idle();
    deaths(&mut m, "grep", 4, 1.0, 0);
    assert!(m.explain().incidents.is_empty());
    // A script that waits for a lock or a port.
    let mut m = Machine::idle();
    deaths(&mut m, "flock", 4, 1.0, HEALTHY);
    assert!(m.explain().incidents.is_empty());
    // One of many programs of a script.
    let mut m = Machine::idle();
    deaths(&mut m, "test", 4, 1.0, HEALTHY);
    for child in ["sed", "cat", "cc1", "ld"] {
        deaths(&mut m, child, 4, 0.0, HEALTHY);
    }
    assert!(m.explain().incidents.is_empty());
    // A test that ends its own helpers.
    let mut m = Machine::idle();
    deaths(&mut m, "helper", 4, 1.0, HEALTHY);
    for second in (HEALTHY..HEALTHY + INCIDENT).step_by(4) {
        let (comm, sender_comm) = ("helper".into(), "runsv".into());
        m.event(second, EventKind::FatalSignal { pid: 99, comm, signal: 9, sender_pid: 70, sender_comm });
    }
    assert!(m.explain().incidents.is_empty());
    // Ends that are no failures.
    let mut m = Machine::idle();
    deaths(&mut m, "backup", 4, 0.0, HEALTHY);
    assert!(m.explain().incidents.is_empty());
}

/// Each life of the program has a parent of its own, as under a supervisor of containers; one of them had it up before.
fn under_shims(m: &mut Machine, was_up: bool) {
    if was_up {
        m.task(60, "shim", 0).task(71, "ledgerd", 0);
        let of_parent = [("task.ppid", 60.0), ("task.tgid", 71.0)];
        for (metric, value) in of_parent {
            m.values(metric, &row(71), 0, vec![value; HEALTHY]);
        }
    }
    for (i, second) in (HEALTHY..HEALTHY + INCIDENT).step_by(4).enumerate() {
        let name = format!("{}:ledgerd", 700 + i);
        let once = |n: f64| each(move |i| if i == second { n } else { 0.0 });
        m.values("exited.count", &name, 0, once(1.0)).values("exited.failed", &name, 0, once(1.0));
        m.values("exited.lifetime", &name, 0, once(0.4)).values("exited.cpu_time", &name, 0, once(0.002));
        m.text("exited.parent_comm", &name, 0, "shim");
    }
}

#[test]
fn a_loop_under_a_new_parent_each_time_is_one() {
    let mut m = Machine::idle();
    under_shims(&mut m, true);
    let report = m.explain();
    assert_eq!(ids(&report), ["crash-loop"]);
    let root = &report.incidents[0].root_cause;
    assert_eq!(root.culprit.process.as_deref(), Some("ledgerd"));
    assert!(root.statement.contains("died 10 times"), "{}", root.statement);
    // A command that had not run before, of shells that come and go.
    let mut m = Machine::idle();
    under_shims(&mut m, false);
    assert!(m.explain().incidents.is_empty());
}

#[test]
fn a_slow_loop_is_told_by_its_rhythm() {
    let slow = |seconds: [usize; 3]| {
        let mut m = Machine::idle();
        let name = "70:ledgerd";
        let at = |n: f64| each(move |i| if seconds.contains(&i) { n } else { 0.0 });
        m.values("exited.count", name, 0, at(1.0)).values("exited.failed", name, 0, at(1.0));
        m.values("exited.lifetime", name, 0, at(0.4)).values("exited.cpu_time", name, 0, at(0.05));
        m.text("exited.parent_comm", name, 0, "runsv");
        let (comm, sender_comm) = ("ledgerd".into(), String::new());
        m.event(seconds[2], EventKind::FatalSignal { pid: 99, comm, signal: 11, sender_pid: 0, sender_comm });
        m.explain()
    };
    let report = slow([20, 62, 110]);
    assert_eq!(ids(&report), ["crash-loop"], "{:#?}", report.incidents);
    assert!(!ids(&slow([20, 30, 110])).contains(&"crash-loop"), "no rhythm");
}

fn threads(f: impl Fn(usize) -> f64) -> Machine {
    let mut m = Machine::idle();
    m.task(80, "poold", 0).values("task.threads", &row(80), 0, each(&f));
    m.values("tasks.total", "", 0, each(|i| 150.0 + f(i)));
    m
}

#[test]
fn threads_that_become_ever_more_are_an_explosion_and_a_pool_is_not() {
    let report =
        threads(|i| if i < HEALTHY { 12.0 } else { 12.0 + 30.0 * (i - HEALTHY).min(INCIDENT) as f64 })
            .explain();
    assert_eq!(ids(&report), ["thread-explosion"]);
    assert_eq!(report.incidents[0].root_cause.culprit.pid, Some(80));
    assert!(threads(|i| if i < HEALTHY { 12.0 } else { 800.0 }).explain().incidents.is_empty());
    assert!(threads(|i| 12.0 + i as f64).explain().incidents.is_empty());
}

#[test]
fn threads_that_come_to_the_limit_of_a_group_above_theirs_are_too_many_however_few() {
    let grows = |i: usize| 12.0 + 2.2 * i.saturating_sub(HEALTHY).min(INCIDENT) as f64;
    let limited = |max: f64| {
        let mut m = threads(grows);
        m.set.host.cpus = 8;
        m.cgroup(80, "/shop/worker");
        m.values("cgroup.pids_current", "/shop", 0, each(|i| grows(i) + 3.0));
        m.values("cgroup.pids_max", "/shop", 0, each(|_| max));
        m.explain()
    };
    let report = limited(102.0);
    assert_eq!(ids(&report), ["thread-explosion"]);
    let statement = &report.incidents[0].root_cause.statement;
    assert!(statement.contains("pids.max 102 of /shop"), "{statement}");
    assert!(limited(400.0).incidents.is_empty(), "there is room");
}

#[test]
fn children_that_nobody_reaps_take_the_room_of_a_group() {
    let left_by = |parent: f64, group: &str| {
        let mut m = Machine::idle();
        m.task(80, "jobrunner", 0).values("task.threads", &row(80), 0, each(|_| 1.0));
        for pid in 200..260 {
            m.task(pid, "job", 0).values("task.ppid", &row(pid), 0, each(|_| parent));
            m.values("task.state", &row(pid), 0, each(|_| f64::from(b'Z'))).cgroup(pid, group);
        }
        let full = |i: usize| if is_on(i) { 90.0 } else { 5.0 };
        m.values("cgroup.pids_current", "/pod3", 0, each(full));
        m.values("cgroup.pids_max", "/pod3", 0, each(|_| 90.0));
        m.values("cgroup.pids_current", "/other", 0, each(|_| 60.0));
        m.explain()
    };
    assert_eq!(ids(&left_by(80.0, "/of-another-hierarchy")), ["thread-explosion"]);
    let report = left_by(80.0, "/pod3");
    assert_eq!(ids(&report), ["thread-explosion"]);
    let root = &report.incidents[0].root_cause;
    assert_eq!(root.culprit.pid, Some(80));
    assert!(root.statement.contains("60 children that have ended"), "{}", root.statement);
    assert!(report.incidents[0].remedies[0].action.starts_with("restart jobrunner"));
    assert!(left_by(1.0, "/pod3").incidents.is_empty(), "of nobody in particular");
    assert!(left_by(80.0, "/other").incidents.is_empty(), "they take no room there");
}

/// A task that sleeps in D for the length of the incident, with a stack, and switches so often a second.
fn sleeper(stack: &str, switches: f64) -> Machine {
    let mut m = Machine::idle();
    m.task(60, "orderd", 0);
    m.values("task.state", &row(60), 0, each(|i| f64::from(if is_on(i) { b'D' } else { b'S' })));
    m.task_rate(60, "task.nvcsw", 40.0, switches).sys("tasks.d_lock", 0.0, 1.1);
    m.text("task.kstack", &row(60), HEALTHY, stack);
    m
}

const FROZEN: &str = "percpu_rwsem_wait;__percpu_down_read;ext4_file_write_iter;vfs_write;ksys_write";

#[test]
fn a_task_that_never_wakes_hangs_and_its_stack_says_why() {
    let report = sleeper(FROZEN, 0.0).explain();
    assert_eq!(root(&report), ("hung-task", Some("orderd"), Some(60)));
    let statement = &report.incidents[0].root_cause.statement;
    assert!(statement.contains("frozen"), "{statement}");
    assert!(report.incidents[0].remedies.iter().any(|r| r.command.contains("--unfreeze")));
}

#[test]
fn a_hang_is_looked_at_as_soon_as_it_is_one() {
    let is_asleep = |i: usize| (HEALTHY..HEALTHY + 7).contains(&i);
    let mut m = sleeper(FROZEN, 0.0);
    m.values("task.state", &row(60), 0, each(|i| f64::from(if is_asleep(i) { b'D' } else { b'S' })));
    m.values("task.nvcsw", &row(60), 0, each(|i| if is_asleep(i) { 0.0 } else { 40.0 }));
    m.values("tasks.d_lock", "", 0, each(|i| if is_asleep(i) { 1.0 } else { 0.0 }));
    assert_eq!(ids(&m.explain()), ["hung-task"]);
}

#[test]
fn a_task_that_waits_for_each_of_many_requests_does_not_hang() {
    assert!(sleeper(FROZEN, 50.0).explain().incidents.is_empty());
    // A device's queue has causes of its own.
    let io = "folio_wait_bit_common;filemap_get_pages;filemap_read;vfs_read";
    assert!(sleeper(io, 0.0).explain().incidents.is_empty());
    let vfork = "kernel_clone;__x64_sys_vfork;do_syscall_64";
    assert!(sleeper(vfork, 0.0).explain().incidents.is_empty());
}

#[test]
fn stolen_time_counts_when_it_was_wanted() {
    let steal = |stolen: f64, idle: f64| {
        let mut m = Machine::idle();
        m.sys("sys.cpu_steal", 0.0, stolen).sys("sys.cpu_idle", 1.96, idle);
        m.explain()
    };
    assert_eq!(ids(&steal(0.8, 0.1)), ["cpu-steal"]);
    assert!(steal(0.05, 0.1).incidents.is_empty());
}

#[test]
fn a_step_of_the_clock_is_told_and_a_correction_is_not() {
    let step = |by_ns: i64| {
        let mut m = Machine::idle();
        m.event(70, EventKind::ClockStep { by_ns });
        m.explain()
    };
    assert_eq!(ids(&step(-3_600 * SECOND)), ["clock-step"]);
    assert!(step(200_000_000).incidents.is_empty());
}

/// A setting that changes when the incident begins.
fn setting(metric: &str, from: f64, to: f64) -> Machine {
    let mut m = Machine::idle();
    m.values(metric, "", 0, each(|i| if i < HEALTHY { from } else { to }));
    m
}

#[test]
fn a_setting_that_was_changed_before_the_state_it_feeds() {
    let eviction = |m: &mut Machine| {
        m.sys("vm.pgscan_kswapd", 0.0, 60_000.0).sys("vm.pgsteal_file", 0.0, 50_000.0);
        m.sys("mem.free", 2e9, 2e9).sys("psi.memory_some", 0.0, 0.1);
    };
    let mut m = setting("sysctl.vm.min_free_kbytes", 67_584.0 * 1024.0, 4_000_000.0 * 1024.0);
    eviction(&mut m);
    let report = m.explain();
    assert_eq!(ids(&report), ["config-drift"]);
    let found = &report.incidents[0].root_cause;
    assert_eq!(found.culprit.sysctl.as_deref(), Some("vm.min_free_kbytes"));
    assert!(found.statement.contains("from 67584 to 4000000"), "{}", found.statement);
    // The same state without a change, a change the other way, a change of something else.
    let mut m = Machine::idle();
    eviction(&mut m);
    assert!(m.explain().incidents.is_empty());
    let mut m = setting("sysctl.vm.min_free_kbytes", 4_000_000.0 * 1024.0, 67_584.0 * 1024.0);
    eviction(&mut m);
    assert!(m.explain().incidents.is_empty());
    assert!(
        setting("sysctl.vm.min_free_kbytes", 67_584.0 * 1024.0, 4_000_000.0 * 1024.0)
            .explain()
            .incidents
            .is_empty()
    );
}

#[test]
fn the_share_that_the_kernel_sets_to_nothing_was_not_changed_by_anybody() {
    let mut m = setting("sysctl.vm.dirty_bytes", 0.0, 16_384.0);
    m.values("sysctl.vm.dirty_ratio", "", 0, each(|i| if i < HEALTHY { 20.0 } else { 0.0 }));
    m.sys("tasks.d_throttle", 0.0, 2.5).sys("psi.io_some", 0.0, 0.9);
    let report = m.explain();
    assert_eq!(ids(&report), ["config-drift"]);
    assert_eq!(report.incidents[0].root_cause.culprit.sysctl.as_deref(), Some("vm.dirty_bytes"));
}

#[test]
fn a_setting_explains_what_it_governs_and_nothing_else() {
    let mut m = setting("sysctl.vm.dirty_bytes", 0.0, 16_384.0);
    m.sys("tasks.d_throttle", 0.0, 2.5).sys("psi.io_some", 0.0, 0.9);
    m.row("conntrack.drop", "", 0.0, 50.0).sys("conntrack.count", 1_000.0, 65_536.0);
    m.sys("sysctl.net.netfilter.nf_conntrack_max", 65_536.0, 65_536.0);
    let report = m.explain();
    let roots: Vec<&str> = report
        .incidents
        .iter()
        .flat_map(|i| std::iter::once(&i.root_cause).chain(&i.other_roots).map(|r| r.condition.as_str()))
        .collect();
    assert!(roots.contains(&"config-drift") && roots.contains(&"conntrack-full"), "{roots:?}");
}

/// Jobs of process 50 that take both CPUs for two seconds of each `period`, and what others wait then.
fn bursts(period: usize, waits: f64) -> Machine {
    bursts_of(period, waits, 1.9)
}

fn bursts_of(period: usize, waits: f64, lifetime: f64) -> Machine {
    let mut m = Machine::idle();
    m.task(50, "jobd", 0);
    let is_burst = move |i: usize| is_on(i) && (i - HEALTHY) % period < 2;
    let ends = move |i: usize| is_on(i) && (i - HEALTHY) % period == 1;
    m.values("exited.count", "50:report", 0, each(|i| f64::from(u8::from(ends(i)))));
    m.values("exited.lifetime", "50:report", 0, each(|i| if ends(i) { lifetime } else { 0.0 }));
    m.values("exited.cpu_time", "50:report", 0, each(|i| if ends(i) { 3.6 } else { 0.0 }));
    m.text("exited.parent_comm", "50:report", 0, "jobd");
    m.values("tasks.cpu_time", "", 0, each(|i| if is_burst(i) { 1.95 } else { 0.1 }));
    m.values("tasks.run_delay", "", 0, each(|i| if is_burst(i) { waits } else { 0.01 }));
    m.values("psi.cpu_some", "", 0, each(|i| if is_burst(i) { waits.min(0.9) } else { 0.0 }));
    m
}

#[test]
fn one_burst_is_enough_where_a_crontab_says_that_it_was_due() {
    let mut m = bursts(1_000, 1.5);
    m.task(50, "cron", 0);
    m.text("exited.parent_comm", "50:report", 0, "cron");
    let due = |place: &str, what: &str, late: i64| ScheduledJob {
        what: what.to_owned(),
        place: place.to_owned(),
        calendar: "*/5 * * * *".to_owned(),
        delay_max_s: 0.0,
        due: vec![START + (HEALTHY as i64 + late) * SECOND],
    };
    let explain =
        |scheduled_jobs: &[ScheduledJob]| m.explain_with(History { scheduled_jobs, ..History::default() });
    let report =
        explain(&[due("/etc/crontab:17", "/usr/bin/report --all", 0), due("/etc/crontab:18", "true", 0)]);
    assert_eq!(ids(&report), ["scheduled-burst"], "{:#?}", report.incidents);
    let root = &report.incidents[0].root_cause;
    assert_eq!(root.culprit.path.as_deref(), Some("/etc/crontab:17"));
    assert!(
        root.remarks.iter().any(|r| r.contains("*/5 * * * * /usr/bin/report --all")),
        "{:?}",
        root.remarks
    );
    let other = explain(&[due("/etc/crontab:17", "report", 20)]);
    assert!(!ids(&other).contains(&"scheduled-burst"), "it was due at another time");
}

#[test]
fn jobs_that_come_by_the_clock_and_hurt_are_a_scheduled_burst() {
    let report = bursts(8, 1.5).explain();
    assert_eq!(ids(&report), ["scheduled-burst"], "{:#?}", report.incidents);
    let found = &report.incidents[0].root_cause;
    assert_eq!(found.culprit.process.as_deref(), Some("report"));
    assert!(found.statement.contains("every 8.0 s"), "{}", found.statement);
    assert!(bursts(8, 0.05).explain().incidents.is_empty(), "nobody waits");
    let mut always = bursts(8, 1.5);
    always.values("tasks.run_delay", "", 0, each(|i| if is_on(i) { 1.5 } else { 0.01 }));
    assert!(!ids(&always.explain()).contains(&"scheduled-burst"), "others wait between the bursts as well");
    let mut probes = bursts(8, 1.5);
    probes.values("mitra.pid", "", 0, each(|_| 50.0));
    assert!(!ids(&probes.explain()).contains(&"scheduled-burst"), "the recorder looks at trouble");
    // A job that begins a moment after a sample leaves that one alone: between the bursts there is a pause.
    assert_eq!(ids(&bursts_of(4, 1.5, 2.000_01).explain()), ["scheduled-burst"]);
}

/// Jobs that run for three of four seconds: each sample has one that runs for a part of it. One of them is born late.
fn tight(late_ms: u64) -> Machine {
    let mut m = Machine::idle();
    m.task(50, "jobd", 0);
    let is_burst = |i: usize| is_on(i) && (i - HEALTHY) % 4 < 3;
    let ends = |i: usize| is_on(i) && (i - HEALTHY) % 4 == 3;
    m.values("exited.count", "50:report", 0, each(|i| f64::from(u8::from(ends(i)))));
    m.values("exited.lifetime", "50:report", 0, each(|i| if ends(i) { 2.9 } else { 0.0 }));
    m.text("exited.parent_comm", "50:report", 0, "jobd");
    for n in 0..INCIDENT / 4 {
        let pid = 91 + n as u32;
        let late = if n == 3 { late_ms * 1_000_000 } else { 0 };
        let row = format!("{pid}@{}", 1_000_000_000 * (100 + 4 * n as u64) + late);
        for (metric, value) in [
            ("task.tgid", f64::from(pid)),
            ("task.ppid", 50.0),
            ("task.kthread", 0.0),
            ("task.cpu_time", 1.9),
        ] {
            m.values(metric, &row, HEALTHY + 4 * n, vec![value; 3]);
        }
        m.text("task.comm", &row, HEALTHY + 4 * n, "report");
    }
    m.values("tasks.cpu_time", "", 0, each(|i| if is_burst(i) { 1.95 } else { 0.1 }));
    m.values("tasks.run_delay", "", 0, each(|i| if is_burst(i) { 2.0 } else { 0.01 }));
    m.values("psi.cpu_some", "", 0, each(|i| if is_burst(i) { 0.9 } else { 0.0 }));
    m
}

#[test]
fn jobs_between_which_no_sample_lies_come_by_the_clock_if_they_were_born_by_it() {
    let report = tight(0).explain();
    assert_eq!(ids(&report), ["scheduled-burst"], "{:#?}", report.incidents);
    assert_eq!(report.incidents[0].root_cause.culprit.process.as_deref(), Some("report"));
    let late = tight(300).explain();
    assert!(!ids(&late).contains(&"scheduled-burst"), "one after the other: {:#?}", late.incidents);
}

/// A database that forks itself for two seconds of eight, and holds so many pages, of which it writes to some.
fn snapshots(pages: f64) -> Machine {
    let mut m = Machine::idle();
    let is_burst = |i: usize| is_on(i) && (i - HEALTHY) % 8 < 2;
    m.task(90, "redis-server", 0).values("task.rss_anon", &row(90), 0, each(|_| pages));
    m.values("task.minflt", &row(90), 0, each(|i| if is_burst(i) { 20_000.0 } else { 50.0 }));
    for i in (0..INCIDENT).step_by(8) {
        let (pid, at) = (91 + i as u32, HEALTHY + i);
        m.task(pid, "redis-server", HEALTHY);
        let id = f64::from(pid);
        for (metric, value) in
            [("task.tgid", id), ("task.ppid", 90.0), ("task.rss_anon", pages), ("task.cpu_time", 0.95)]
        {
            m.values(metric, &row(pid), at, vec![value; 2]);
        }
    }
    for metric in ["tasks.cpu_time", "tasks.run_delay"] {
        m.values(metric, "", 0, each(|i| if is_burst(i) { 1.0 } else { 0.01 }));
    }
    m
}

#[test]
fn what_a_program_does_in_copies_of_itself_begins_with_the_fork() {
    let roots = |pages: f64| {
        let report = snapshots(pages).explain();
        let found = &report.incidents[0].root_cause;
        assert!(ids(&report).iter().all(|id| *id == found.condition), "{:?}", ids(&report));
        (found.condition.clone(), found.culprit.process.clone(), found.culprit.pid)
    };
    let by = |condition: &str| (condition.to_owned(), Some("redis-server".to_owned()), Some(90));
    assert_eq!(roots(180_000.0), by("fork-stall"));
    assert_eq!(roots(5_000.0), by("scheduled-burst"), "a small program that works by the clock");
}
