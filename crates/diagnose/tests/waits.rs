//! Services whose threads wait for other processes of the machine, and their look-alikes.

#[path = "support/services.rs"]
#[expect(dead_code, reason = "the other test files use the rest")]
mod services;
#[path = "support/mod.rs"]
#[expect(dead_code, reason = "the other test files use the rest")]
mod support;

use mitra_model::report::Incident;
use mitra_model::{TextSeries, lookup};
use services::{Asked, attempts, dependency, during, one, queue, service};
use support::{HEALTHY, INCIDENT, Machine, START, root};

const APP: &str = "127.0.0.1:8080";

fn text(m: &mut Machine, metric: &str, row: &str, text: &str) {
    let text = TextSeries { changes: vec![(START, Some(text.into()))], place: None };
    m.set.insert_text(lookup(metric).unwrap(), row.into(), text);
}

/// Threads of a process that wait in the incident, and who can end it.
fn wait(m: &mut Machine, row: &str, other: Option<(u32, &str)>, threads: f64) {
    m.values("wait.threads", row, HEALTHY, vec![threads; INCIDENT]);
    if let Some((pid, comm)) = other {
        m.values("wait.stuck", row, HEALTHY, vec![threads; INCIDENT]);
        m.values("wait.pid", row, HEALTHY, vec![f64::from(pid); INCIDENT]);
        text(m, "wait.comm", row, comm);
    }
}

/// A broker that answers nobody, whose consumers were fed by it all the time and wait for the lock of a file now, or go on.
fn broker(consumed: f64) -> Machine {
    let mut m = silent(8.0);
    for pid in [80, 81] {
        let fetches = |rate| Asked { rate, p50: 0.09, p90: 0.1, waiting: 0.09 * rate };
        dependency(&mut m, (pid, "worker"), APP, during(fetches(10.0), fetches(consumed)));
        m.row("dependency.established", &format!("{pid}>{APP}"), 1.0, 1.0).task(pid, "worker", 0);
        m.task_rate(pid, "task.cpu_time", 0.01, 0.0);
        wait(&mut m, &format!("{pid}>lock:90"), Some((90, "media-backup")), 1.0);
        text(&mut m, "wait.file", &format!("{pid}>lock:90"), "/srv/media/.index.lock");
    }
    wait(&mut m, "90>timer", None, 1.0);
    m.values("lock.waiters", "fe:00:7", HEALTHY, vec![2.0; INCIDENT]);
    // Who took it has ended, and left it to somebody else.
    m.values("lock.pid", "fe:00:7", HEALTHY, vec![89.0; INCIDENT]);
    text(&mut m, "lock.kind", "fe:00:7", "flock");
    text(&mut m, "lock.waiter_pids", "fe:00:7", "80,81");
    m
}

#[test]
fn a_broker_whose_consumers_wait_for_a_lock_is_silent_because_of_its_holder() {
    let report = broker(0.0).explain();
    assert_eq!(root(&report), ("lock-queue", Some("media-backup"), Some(90)));
    let incident = one(&report);
    let statement = &incident.root_cause.statement;
    assert!(
        statement.contains("the flock lock of /srv/media/.index.lock, which media-backup (90) holds"),
        "{statement}"
    );
    assert!(incident.chain.iter().any(|link| link.condition == "service-silent"), "{:?}", incident.chain);
    // Those that go on to fetch do not keep it waiting.
    let report = broker(10.0).explain();
    let is_linked = |incident: &Incident| {
        let has = |id: &str| incident.chain.iter().any(|link| link.condition == id);
        has("lock-queue") && has("service-silent")
    };
    assert!(!report.incidents.iter().any(is_linked), "{:#?}", report.incidents);
}

#[test]
fn a_broker_pushes_work_to_a_consumer_that_waits_for_somebody_else() {
    const MAIL: &str = "10.0.0.9:25";
    let pushed = |connecting: f64| {
        let mut m = silent(8.0);
        let fetches = Asked { rate: 10.0, p50: 0.09, p90: 0.1, waiting: 0.9 };
        m.task(80, "mailer", 0).row("dependency.established", &format!("80>{APP}"), 1.0, 1.0);
        // What is pushed looks as if it still waited for work.
        dependency(&mut m, (80, "mailer"), APP, during(fetches, Asked::nothing(0.9)));
        dependency(&mut m, (80, "mailer"), MAIL, during(Asked::each(10.0, 0.001), Asked::nothing(0.0)));
        attempts(&mut m, &format!("80>{MAIL}"), connecting, 0.0, (10.0, 0.0));
        m.explain()
    };
    let report = pushed(1.0);
    let incident = one(&report);
    assert_eq!(incident.root_cause.condition, "dependency-unreachable");
    assert_eq!(incident.root_cause.culprit.address.as_deref(), Some(MAIL));
    assert!(incident.chain.iter().any(|link| link.condition == "service-silent"), "{:?}", incident.chain);
    // Nothing is asked of anybody: there is no work.
    assert_eq!(root(&pushed(0.0)).0, "service-silent");
}

/// A service that answers fifty requests a second, and then none of so many that wait.
fn silent(waiting: f64) -> Machine {
    let mut m = Machine::idle();
    service(&mut m, APP, (50, "appd"), during(Asked::each(50.0, 0.002), Asked::nothing(waiting)));
    m
}

fn says(incident: &Incident, words: &str) -> bool {
    incident.chain.iter().flat_map(|link| &link.remarks).any(|remark| remark.contains(words))
}

#[test]
fn the_process_that_a_silent_service_waits_for_in_the_end_is_the_culprit() {
    let mut m = silent(4.0);
    wait(&mut m, "50>pipe:60", Some((60, "worker")), 3.0);
    wait(&mut m, "50>accept", None, 1.0);
    wait(&mut m, "60>timer", None, 1.0);
    let report = m.explain();
    assert_eq!(root(&report), ("service-silent", Some("worker"), Some(60)));
    let incident = one(&report);
    assert!(incident.root_cause.statement.contains("appd (port 8080) answered nothing"), "{incident:#?}");
    let words = "of its 4 threads 3 wait for a pipe of worker (60), which sleeps on a timer";
    assert!(says(incident, words), "{incident:#?}");
    let root = &incident.root_cause;
    assert!(root.statement.ends_with(words), "{}", root.statement);
    assert!(root.remarks.iter().all(|remark| !remark.contains("not found")), "{root:#?}");
}

#[test]
fn a_process_that_is_stopped_is_let_go_on() {
    let mut m = silent(4.0);
    wait(&mut m, "50>pipe:60", Some((60, "logger")), 4.0);
    wait(&mut m, "60>stopped", None, 1.0);
    let report = m.explain();
    let incident = one(&report);
    assert_eq!(root(&report), ("service-silent", Some("logger"), Some(60)));
    assert!(
        incident.root_cause.statement.ends_with("logger (60), which is stopped by a signal or a debugger")
    );
    assert_eq!(incident.remedies[0].command, "kill -CONT 60");
}

#[test]
fn a_service_that_is_traced_waits_for_whoever_the_tracer_waits_for() {
    let mut m = silent(4.0);
    wait(&mut m, "50>traced:60", Some((60, "strace")), 4.0);
    wait(&mut m, "60>pipe:61", Some((61, "less")), 1.0);
    wait(&mut m, "61>other", None, 1.0);
    let report = m.explain();
    let incident = one(&report);
    assert_eq!(root(&report), ("service-silent", Some("less"), Some(61)));
    let words = "of its 4 threads 4 wait for strace (60), which traces it (ptrace), to let it go on";
    assert!(incident.root_cause.statement.contains(words), "{}", incident.root_cause.statement);
    assert!(incident.remedies[0].command.contains("TracerPid"));
}

#[test]
fn a_pool_of_threads_for_which_requests_queue_is_followed() {
    let told = |pool: f64| {
        let mut m = silent(8.0);
        wait(&mut m, "50>poll", None, 1.0);
        wait(&mut m, "50>futex", None, 5.0);
        wait(&mut m, "50>fuse:60", Some((60, "share")), pool);
        wait(&mut m, "60>tcp:61", Some((61, "box")), 1.0);
        wait(&mut m, "61>kernel", None, 1.0);
        m.explain()
    };
    let report = told(4.0);
    assert_eq!(root(&report), ("service-silent", Some("box"), Some(61)));
    let words = "4 wait for an answer of a FUSE file system whose daemon is share (60)";
    assert!(one(&report).root_cause.statement.contains(words), "{}", one(&report).root_cause.statement);
    // A thread of its own that reads something there.
    assert_eq!(root(&told(1.0)), ("service-silent", Some("appd"), Some(50)));
}

#[test]
fn those_that_wait_for_a_lock_of_their_own_program_wait_for_the_one_that_does_something() {
    let silent = |row: &str, futex: f64| {
        let mut m = silent(3.0);
        wait(&mut m, row, Some((90, "rsyslogd")), 0.9);
        wait(&mut m, "50>futex", None, futex);
        wait(&mut m, "50>client:60", Some((60, "shop")), 6.0);
        wait(&mut m, "90>disk", None, 0.9);
        m.task(90, "rsyslogd", 0);
        let report = m.explain();
        one(&report).root_cause.culprit.process.clone()
    };
    assert_eq!(silent("50>sends:90", 2.0).as_deref(), Some("rsyslogd"));
    // Requests that are nowhere; and what may be for lack of anything to do.
    assert_ne!(silent("50>sends:90", 0.5).as_deref(), Some("rsyslogd"));
    assert_ne!(silent("50>pipe:90", 2.0).as_deref(), Some("rsyslogd"));
}

#[test]
fn a_service_is_slow_by_what_holds_up_the_one_that_it_waits_for() {
    let told = |state: u8| {
        let mut m = Machine::idle();
        service(&mut m, APP, (50, "auth"), during(Asked::each(25.0, 0.0015), Asked::each(25.0, 0.07)));
        wait(&mut m, "50>sends:90", Some((90, "rsyslogd")), 0.9);
        wait(&mut m, "50>futex", None, 1.0);
        wait(&mut m, "90>disk", None, 0.9);
        m.task(90, "rsyslogd", 0).cgroup(90, "/logs");
        m.values("task.state", &support::row(90), HEALTHY, vec![f64::from(state); INCIDENT]);
        m.row("cgroup.io_limit_wiops", "/logs", 120.0, 120.0).row("cgroup.io_writes", "/logs", 20.0, 120.0);
        m.row("cgroup.psi_io_some", "/logs", 0.001, 0.6).text("cgroup.io_limit_device", "/logs", 0, "loop0");
        m.sys("tasks.d_io", 0.0, 0.9).sys("psi.io_some", 0.0, 0.6);
        m.explain()
    };
    let report = told(b'D');
    assert_eq!(root(&report), ("io-throttled", Some("rsyslogd"), Some(90)));
    assert!(services::links(one(&report)).contains(&"service-slow"));
    // It sleeps for something else.
    let other = told(b'S');
    assert!(
        other.incidents.iter().any(|i| i.root_cause.condition == "service-slow"),
        "{:#?}",
        other.incidents
    );
}

#[test]
fn one_of_several_workers_that_is_frozen_is_thawed() {
    let held = |kind: &str| {
        let mut m = silent(4.0);
        m.task(51, "appd", 0);
        wait(&mut m, "50>accept", None, 1.0);
        wait(&mut m, &format!("51>{kind}"), None, 1.0);
        m.values("service.pid", APP, 0, vec![50.0; HEALTHY]).values(
            "service.pid",
            APP,
            HEALTHY,
            vec![51.0; INCIDENT],
        );
        m.explain()
    };
    let report = held("frozen");
    assert_eq!(root(&report), ("service-silent", Some("appd"), Some(51)));
    let statement = &one(&report).root_cause.statement;
    assert!(statement.ends_with("of its 2 processes appd (51) is frozen by its cgroup"), "{statement}");
    assert!(one(&report).remedies[0].command.contains("cgroup.freeze"));
    assert!(!one(&held("timer")).root_cause.statement.contains("of its 2 processes"));
}

#[test]
fn of_a_service_that_is_slow_too() {
    let mut m = Machine::idle();
    service(&mut m, APP, (50, "appd"), during(Asked::each(200.0, 0.002), Asked::each(15.0, 1.6)));
    wait(&mut m, "50>unix:60", Some((60, "worker")), 3.0);
    wait(&mut m, "60>disk", None, 1.0);
    let report = m.explain();
    assert_eq!(root(&report), ("service-slow", Some("worker"), Some(60)));
    assert!(says(
        one(&report),
        "its 3 threads 3 wait for a Unix socket of worker (60), which waits for a disk"
    ));
}

#[test]
fn nobody_else_is_the_culprit_where_few_threads_wait_or_it_is_not_certain_for_whom() {
    let mut few = silent(4.0);
    wait(&mut few, "50>pipe:60", Some((60, "logger")), 1.0);
    wait(&mut few, "50>accept", None, 3.0);
    wait(&mut few, "60>timer", None, 1.0);
    assert_eq!(root(&few.explain()), ("service-silent", Some("appd"), Some(50)));
    let mut several = silent(4.0);
    wait(&mut several, "50>pipe", None, 4.0);
    let report = several.explain();
    assert_eq!(root(&report), ("service-silent", Some("appd"), Some(50)));
    assert!(says(one(&report), "who is at its other end is not certain"));
}

#[test]
fn two_processes_that_read_from_each_other_are_a_deadlock_if_nothing_moves() {
    let circle = |stuck: f64| {
        let mut m = silent(4.0);
        wait(&mut m, "50>unix:60", Some((60, "worker")), 1.0);
        wait(&mut m, "60>pipe:50", Some((50, "appd")), 1.0);
        m.values("wait.stuck", "60>pipe:50", HEALTHY, vec![stuck; INCIDENT]);
        m.explain()
    };
    let report = circle(1.0);
    assert_eq!(root(&report), ("deadlock", Some("appd"), Some(50)));
    let statement = &one(&report).root_cause.statement;
    assert!(
        statement.contains("nothing moves any more in appd (50): its only thread waits for"),
        "{statement}"
    );
    assert_eq!(root(&circle(0.5)), ("service-silent", Some("appd"), Some(50)), "they talk to each other");
}

#[test]
fn whoever_holds_a_lock_and_waits_for_another_process_leads_to_that_one() {
    let mut m = silent(4.0);
    m.values("lock.waiters", "fe:00:7", HEALTHY, vec![2.0; INCIDENT]);
    m.values("lock.pid", "fe:00:7", HEALTHY, vec![60.0; INCIDENT]);
    text(&mut m, "lock.kind", "fe:00:7", "flock");
    text(&mut m, "lock.waiter_pids", "fe:00:7", "50,51");
    wait(&mut m, "50>lock:60", Some((60, "cron")), 1.0);
    wait(&mut m, "60>child:70", Some((70, "backup")), 1.0);
    wait(&mut m, "70>stopped", None, 1.0);
    let report = m.explain();
    assert_eq!(root(&report), ("lock-queue", Some("backup"), Some(70)));
    let words = ", and waits itself: its only thread waits for its child backup (70) to end, which is stopped by a signal or a debugger";
    let statement = &one(&report).root_cause.statement;
    assert!(statement.ends_with(words), "{statement}");
}

/// Who holds the lock is in a group of low weight, and a program of another group takes the CPUs.
#[test]
fn a_lock_whose_holder_gets_no_cpu_is_waited_for_because_of_who_takes_that() {
    let mut m = silent(4.0);
    m.values("lock.waiters", "fe:00:7", HEALTHY, vec![2.0; INCIDENT]);
    m.values("lock.pid", "fe:00:7", HEALTHY, vec![60.0; INCIDENT]);
    text(&mut m, "lock.kind", "fe:00:7", "flock");
    text(&mut m, "lock.waiter_pids", "fe:00:7", "50,51");
    m.task(60, "housekeep", 0).cgroup(60, "/maint").task_rate(60, "task.run_delay", 0.0, 0.93);
    m.task(90, "crunch", HEALTHY).cgroup(90, "/batch");
    for tid in 90..94 {
        if tid != 90 {
            m.thread(90, tid, "crunch", HEALTHY);
        }
        m.task_during(tid, "task.cpu_time", 0.45).task_during(tid, "task.run_delay", 0.4);
    }
    for (group, shares) in [("/maint", 2.0), ("/batch", 2048.0)] {
        m.values("cgroup.cpu_shares", group, 0, vec![shares; HEALTHY + INCIDENT]);
    }
    m.sys("sys.cpu_idle", 1.8, 0.0).sys("tasks.run_delay", 0.02, 2.5).sys("tasks.cpu_time", 0.1, 2.0);
    m.sys("psi.cpu_some", 0.0, 0.95);
    let report = m.explain();
    let incident = one(&report);
    assert_eq!(incident.root_cause.condition, "cpu-hog");
    assert_eq!(incident.root_cause.culprit.pid, Some(90));
    let ids: Vec<&str> = incident.chain.iter().map(|link| link.condition.as_str()).collect();
    assert!(ids.contains(&"lock-queue") && ids.contains(&"service-silent"), "{ids:?}");
    assert!(says(incident, "which holds it, waited for a CPU for"), "{incident:#?}");
    assert!(says(incident, "cpu.shares of /maint is 2 and that of /batch 2048"), "{incident:#?}");
}

/// A profiler reads what the memory of a server consists of, again and again; or a job lists the directory in which it makes files.
#[test]
fn who_holds_a_lock_of_the_kernel_from_outside_is_the_culprit() {
    let with = |stack: &str, of_profiler: f64, of_server: f64| {
        let mut m = Machine::idle();
        service(&mut m, APP, (50, "appd"), during(Asked::each(200.0, 0.002), Asked::each(15.0, 1.6)));
        let states = support::each(|i| f64::from(if support::is_on(i) { b'D' } else { b'S' }));
        m.values("task.state", &support::row(50), 0, states);
        m.text("task.kstack", &support::row(50), HEALTHY, stack);
        m.task_rate(50, "task.cpu_time", 0.02, of_server);
        m.sys("tasks.d_lock", 0.0, 1.0);
        m.task(70, "profiler", HEALTHY).task_during(70, "task.cpu_time", 0.85);
        m.task_during(70, "task.system_time", of_profiler);
        m.explain()
    };
    const MAPS: &str = "vm_mmap_pgoff;do_syscall_64";
    for (stack, what) in [
        (MAPS, "the lock of its address space"),
        ("rwsem_down_write_slowpath;down_write;do_unlinkat;do_syscall_64", "the lock of a directory"),
    ] {
        let report = with(stack, 0.8, 0.02);
        assert_eq!(root(&report), ("lock-queue", Some("profiler"), Some(70)), "{stack}");
        let statement = &one(&report).root_cause.statement;
        assert!(statement.contains(what), "{statement}");
    }
    let is_told = |report: &mitra_model::report::Report| {
        report.incidents.iter().any(|i| i.root_cause.culprit.pid == Some(70))
    };
    assert!(!is_told(&with(MAPS, 0.1, 0.02)), "it computes and holds no lock of the kernel");
    assert!(!is_told(&with(MAPS, 0.8, 0.5)), "a thread of the server may hold it");
}

/// It is free at most samples of the kernel's list.
#[test]
fn a_lock_that_is_held_again_and_again_is_seen_by_those_that_wait() {
    let mut m = Machine::idle();
    service(&mut m, APP, (50, "appd"), during(Asked::each(200.0, 0.002), Asked::each(15.0, 1.6)));
    wait(&mut m, "50>lock:60", Some((60, "sync")), 3.0);
    wait(&mut m, "60>timer", None, 1.0);
    let report = m.explain();
    assert_eq!(root(&report), ("lock-queue", Some("sync"), Some(60)));
    let statement = &one(&report).root_cause.statement;
    assert!(
        statement.contains("appd (port 8080) answered in")
            && statement.contains("a lock of a file that sync (60) holds"),
        "{statement}"
    );
}

/// Clients wait in the accept queue of a program with one thread, which takes no more connections.
#[test]
fn a_program_whose_threads_all_wait_for_others_is_at_no_limit_of_connections() {
    let full = |waits: &[(&str, Option<(u32, &str)>)]| {
        let mut m = Machine::idle();
        let queued = Asked { waiting: 135.0, ..Asked::each(12.0, 9.0) };
        service(&mut m, APP, (50, "proxyd"), during(Asked::each(46.0, 0.002), queued));
        queue(&mut m, APP, (50, "proxyd"), |_| 100.0);
        for (row, other) in waits {
            wait(&mut m, row, *other, 1.0);
        }
        m.explain()
    };
    let (pipe, logger) = ("50>pipe:60", Some((60, "logger")));
    let held = full(&[(pipe, logger), ("60>stopped", None)]);
    assert_eq!(root(&held), ("service-slow", Some("logger"), Some(60)));
    assert!(says(one(&held), "waits for a pipe of logger (60)"), "{held:#?}");
    let at_its_limit = ("connection-limit", Some("proxyd"), Some(50));
    let idle = full(&[("50>poll", None)]);
    assert_eq!(root(&idle), at_its_limit);
    let statement = &one(&idle).root_cause.statement;
    assert!(statement.contains("has taken 35 connections and takes no more"), "{statement}");
    // Another thread is free.
    assert_eq!(root(&full(&[(pipe, logger), ("50>poll", None)])), at_its_limit);
    // A thread that waits for an answer may be woken by others of its process.
    assert_eq!(root(&full(&[("50>answer:70", Some((70, "shop")))])), at_its_limit);
}

/// Candidates of a leader election wait for an advisory lock for as long as they live.
#[test]
fn sessions_that_wait_their_turn_by_design_are_no_incident() {
    // What each candidate does in turn. The server says that session 33 blocks all of them.
    let candidates = |candidates: &[&str], does: &[&str]| {
        let mut m = Machine::idle();
        m.values("session.pid", "33", HEALTHY, vec![33.0; INCIDENT]);
        m.texts("session.activity", "33", &["idle"]);
        for pid in candidates {
            m.values("session.pid", pid, HEALTHY, vec![pid.parse().unwrap(); INCIDENT]);
            m.texts("session.activity", pid, does);
            text(&mut m, "session.blocked_by", pid, "33");
            text(&mut m, "session.waits_for", pid, "advisory");
        }
        m
    };
    let election = |list: &[&str], does: &[&str]| candidates(list, does).explain();
    let report = election(&["31", "32"], &["SELECT waiting"]);
    assert!(report.incidents.is_empty(), "{:#?}", report.incidents);
    let found = report.findings.iter().find(|finding| finding.condition == "lock-queue").unwrap();
    assert!(
        found.remarks.iter().any(|remark| remark.ends_with("they may wait their turn (an advisory lock)")),
        "{found:#?}"
    );
    let is_queue = |candidates: &[&str], does: &[&str]| {
        root(&election(candidates, does)) == ("lock-queue", Some("postgres"), Some(33))
    };
    assert!(is_queue(&["31", "32"], &["idle", "SELECT waiting"]), "they did something before");
    assert!(is_queue(&["31", "32"], &["UPDATE waiting"]), "an election changes no row");
    let four = ["31", "32", "34", "35"];
    assert!(is_queue(&four, &["SELECT waiting"]), "an election has fewer candidates");
    // But where all are known, and none of them serves anybody.
    let known = |serves: bool| {
        let mut m = candidates(&four, &["SELECT waiting"]);
        for (pid, client) in four.iter().zip(60..) {
            m.values("session.client_pid", pid, HEALTHY, vec![f64::from(client); INCIDENT]);
        }
        if serves {
            service(&mut m, APP, (60, "orders"), during(Asked::each(50.0, 0.002), Asked::each(50.0, 0.002)));
        }
        m.explain()
    };
    assert!(known(false).incidents.is_empty());
    assert_eq!(root(&known(true)), ("lock-queue", Some("postgres"), Some(33)));
}

#[test]
fn clients_that_send_nothing_keep_all_places() {
    let told = |waits: &[(&str, Option<(u32, &str)>)], queued: f64| {
        let mut m = silent(6.0);
        queue(&mut m, APP, (50, "appd"), |_| queued);
        waits.iter().for_each(|(row, other)| wait(&mut m, row, *other, 1.0));
        m.explain()
    };
    let only = ("50>client:60", Some((60, "asset-sync")));
    let report = told(&[only], 6.0);
    assert_eq!(root(&report), ("worker-pool-exhausted", Some("asset-sync"), Some(60)));
    let incident = one(&report);
    let statement = &incident.root_cause.statement;
    let words = "its only thread that works reads from a connection of asset-sync (60), which has not sent a whole request";
    assert!(statement.contains(words) && statement.contains("up to 6 queue"), "{statement}");
    assert!(incident.remedies[0].action.contains("time limit"), "{:#?}", incident.remedies);
    assert!(incident.chain.iter().any(|link| link.condition == "service-silent"));
    // Nothing queues: it waits for something else. It accepts others; and who it is is not known.
    assert_eq!(root(&told(&[only], 0.0)).0, "service-silent");
    assert_eq!(root(&told(&[only, ("50>accept", None)], 6.0)).0, "service-silent");
    assert_eq!(root(&told(&[("50>client", None)], 6.0)).0, "service-silent");
}

#[test]
fn threads_of_a_java_program_that_wait_for_nothing_outside_wait_for_each_other() {
    let told = |of_java: bool, more: Option<&str>| {
        let mut m = silent(12.0);
        if of_java {
            m.row("jvm.old_max", "50", 1e8, 1e8);
        }
        wait(&mut m, "50>futex", None, 22.0);
        wait(&mut m, "50>accept", None, 1.0);
        more.iter().for_each(|row| wait(&mut m, row, None, 1.0));
        m.explain()
    };
    let report = told(true, None);
    assert_eq!(root(&report), ("worker-pool-exhausted", Some("appd"), Some(50)));
    let incident = one(&report);
    assert!(incident.root_cause.statement.contains("none of its 22 threads runs"), "{incident:#?}");
    assert_eq!(incident.next[0].command, "jstack 50");
    // An event loop, a thread that sleeps with a lock, and one that waits for many connections.
    assert_eq!(root(&told(false, None)).0, "service-silent");
    assert_eq!(root(&told(true, Some("50>timer"))).0, "service-silent");
    assert_eq!(root(&told(true, Some("50>poll"))).0, "service-silent");
}

#[test]
fn who_sends_to_an_address_that_does_not_read_ends_there() {
    let silent = |kind: &str, last: &str| {
        let mut m = silent(8.0);
        wait(&mut m, &format!("50>{kind}:60"), Some((60, "rsyslogd")), 1.0);
        wait(&mut m, "50>futex", None, 13.0);
        wait(&mut m, "50>accept", None, 1.0);
        m.task(60, "rsyslogd", 0);
        let last = format!("60>{last}");
        m.values("wait.stuck", &last, HEALTHY, vec![1.0; INCIDENT]);
        wait(&mut m, &last, None, 1.0);
        wait(&mut m, "60>timer", None, 1.0);
        m.explain()
    };
    let report = silent("sends", "sends:10.0.0.9:6514");
    assert_eq!(root(&report), ("service-silent", Some("rsyslogd"), Some(60)));
    let cause = &one(&report).root_cause;
    assert_eq!(cause.culprit.address.as_deref(), Some("10.0.0.9:6514"));
    assert!(
        cause.statement.contains("a full socket that 10.0.0.9:6514 does not read from"),
        "{}",
        cause.statement
    );
    // A thread that reads may have nothing to do, whatever the others wait for.
    assert_ne!(root(&silent("unix", "poll")).2, Some(60));
}

/// A feed that nobody asks anything, to four connections.
fn feed(waits: impl Fn(&mut Machine)) -> Machine {
    let mut m = Machine::idle();
    service(&mut m, APP, (50, "feed"), |_| Asked::each(0.0, 0.001));
    m.row("service.sent_bytes", APP, 6e6, 0.0).row("service.established", APP, 4.0, 4.0);
    waits(&mut m);
    m
}

#[test]
fn a_feed_that_cannot_go_on_to_send_has_stopped() {
    let sends = |m: &mut Machine| {
        wait(m, "50>sends:10.0.0.9:4242", None, 1.0);
        m.values("wait.stuck", "50>sends:10.0.0.9:4242", HEALTHY, vec![1.0; INCIDENT]);
    };
    let report = feed(sends).explain();
    let cause = &one(&report).root_cause;
    assert_eq!(cause.condition, "service-silent");
    assert_eq!(cause.culprit.address.as_deref(), Some("10.0.0.9:4242"));
    assert!(
        cause.statement.contains("sends nothing more to its 4 connections (6.0 MB/s before)"),
        "{}",
        cause.statement
    );
    // It has nothing to send.
    let report = feed(|m| wait(m, "50>client", None, 1.0)).explain();
    assert!(report.incidents.is_empty(), "{:#?}", report.incidents);
}
