//! Sizes that grow, faults, limits of TCP and crashes, each with the look-alike that must stay silent.

#[path = "support/mod.rs"]
#[expect(dead_code, reason = "the other test file uses the rest")]
mod support;

use mitra_diagnose::explain_files;
use mitra_model::report::{Incident, Report};
use mitra_model::{EventKind, TextSeries, lookup};
use support::{AFTER, HEALTHY, INCIDENT, Machine};

const GIB: f64 = 1_073_741_824.0;
const SECONDS: usize = HEALTHY + INCIDENT + AFTER;

/// All that is known of the machine as one case.
fn case(m: &Machine) -> Report {
    explain_files(&m.set, None, Vec::new())
}

fn root(report: &Report) -> Option<&str> {
    report.incidents.first().map(|i| i.root_cause.condition.as_str())
}

fn ruled_out<'a>(incident: &'a Incident, id: &str) -> Option<&'a str> {
    incident.ruled_out.iter().find(|r| r.condition == id).map(|r| r.because.as_str())
}

/// A machine with 16 GiB.
fn machine() -> Machine {
    let mut m = Machine::idle();
    m.set.host.memory_bytes = (16.0 * GIB) as u64;
    m.sys("mem.total", 16.0 * GIB, 16.0 * GIB);
    m
}

/// A level second by second.
fn level(m: &mut Machine, metric: &str, row: &str, at: impl Fn(f64) -> f64) {
    m.values(metric, row, 0, (0..SECONDS).map(|i| at(i as f64)).collect());
}

fn grows(from: f64, per_s: f64) -> impl Fn(f64) -> f64 {
    move |i| from + per_s * (i - HEALTHY as f64).max(0.0)
}

#[test]
fn memory_that_a_process_takes_until_none_is_left() {
    let mut m = machine();
    level(&mut m, "mem.anon", "", grows(2.0 * GIB, 0.22 * GIB));
    level(&mut m, "mem.available", "", |i| {
        (13.5 * GIB - 0.22 * GIB * (i - HEALTHY as f64).max(0.0)).max(0.1 * GIB)
    });
    m.task(70, "hoarder", 0);
    level(&mut m, "task.rss_anon", "70@70000000", grows(0.1 * GIB / 4096.0, 0.22 * GIB / 4096.0));
    m.sys("vm.pgscan_direct", 0.0, 5_000.0);
    let report = case(&m);
    assert_eq!(root(&report), Some("anonymous-growth"));
    assert_eq!(report.incidents[0].root_cause.culprit.process.as_deref(), Some("hoarder"));
}

/// A small machine with room, in which a process grows by a tenth of memory until it is killed for the limit of its group.
#[test]
fn what_is_killed_for_the_limit_of_its_group_leaves_the_machine_room() {
    let mut m = Machine::idle();
    m.set.host.memory_bytes = (1.5 * GIB) as u64;
    m.sys("mem.total", 1.5 * GIB, 1.5 * GIB);
    let at = HEALTHY + 10;
    let grown = |i: f64| if i > at as f64 { 0.0 } else { 0.03 * GIB * (i - HEALTHY as f64).max(0.0) };
    level(&mut m, "mem.anon", "", |i| 0.02 * GIB + grown(i));
    level(&mut m, "mem.available", "", |i| 1.3 * GIB - grown(i));
    m.task(70, "hoarder", 0).cgroup(70, "/small");
    level(&mut m, "task.rss_anon", "70@70000000", |i| grown(i) / 4096.0);
    level(&mut m, "vm.oom_kill", "", |i| f64::from(u8::from(i as usize == at)));
    let anon_bytes = Some((0.3 * GIB) as u64);
    m.event(
        at,
        EventKind::OomKill { pid: 70, comm: "hoarder".into(), cgroup: Some("/small".into()), anon_bytes },
    );
    let report = case(&m);
    assert_eq!(root(&report), Some("oom-kill"));
    assert_eq!(report.incidents[0].root_cause.culprit.cgroup.as_deref(), Some("/small"));
}

/// The probe knows the process, and a line of the kernel's log in another sample the group. A compiler outside grows meanwhile.
#[test]
fn who_grows_outside_of_a_group_has_no_part_in_its_kill() {
    let at = HEALTHY + 10;
    let told = |line: &str| {
        let mut m = Machine::idle();
        m.sys("mem.total", 16.0 * GIB, 16.0 * GIB);
        m.task(70, "hoarder", 0).cgroup(70, "/small").task(90, "rustc", 0).cgroup(90, "/build");
        level(&mut m, "task.rss_anon", "90@90000000", |i| {
            0.01 * GIB * (i - HEALTHY as f64).max(0.0) / 4096.0
        });
        level(&mut m, "vm.oom_kill", "", |i| f64::from(u8::from(i as usize == at)));
        let (comm, anon_bytes) = ("hoarder".to_owned(), Some(32 << 20));
        m.event(at, EventKind::OomKill { pid: 70, comm, cgroup: None, anon_bytes });
        m.event(at + 2, EventKind::KernelLog { priority: 6, text: line.to_owned() });
        let cause = case(&m).incidents.remove(0).root_cause;
        assert_eq!(cause.condition, "oom-kill");
        (cause.culprit.process.unwrap_or_default(), cause.culprit.cgroup)
    };
    let limit = "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/small,\
                 task_memcg=/small,task=hoarder,pid=70,uid=0";
    assert_eq!(told(limit), ("hoarder".to_owned(), Some("/small".to_owned())));
    let killed =
        "Memory cgroup out of memory: Killed process 70 (hoarder) total-vm:40000kB, anon-rss:32768kB";
    assert_eq!(told(killed).0, "hoarder");
    let of_all = "Out of memory: Killed process 70 (hoarder) total-vm:40000kB, anon-rss:32768kB";
    assert_eq!(told(of_all).0, "rustc");
}

#[test]
fn a_warm_up_and_growth_with_room_are_no_incident() {
    let mut m = machine();
    level(&mut m, "mem.anon", "", |i| {
        2.0 * GIB + 8.0 * GIB * (1.0 - (-(i - HEALTHY as f64).max(0.0) / 6.0).exp())
    });
    level(&mut m, "mem.available", "", |_| 0.5 * GIB);
    assert_eq!(root(&case(&m)), None);
    let mut m = machine();
    level(&mut m, "mem.anon", "", grows(2.0 * GIB, 0.05 * GIB));
    level(&mut m, "mem.available", "", grows(13.0 * GIB, -0.05 * GIB));
    assert_eq!(root(&case(&m)), None);
}

#[test]
fn names_that_do_not_exist_and_a_walk_over_those_that_do() {
    let bloat = |inodes: f64| {
        let mut m = machine();
        level(&mut m, "dentry.negative", "", grows(20_000.0, 250_000.0));
        level(&mut m, "dentry.nr", "", grows(90_000.0, 250_000.0));
        level(&mut m, "inode.nr", "", grows(60_000.0, inodes));
        case(&m)
    };
    let report = bloat(0.0);
    assert_eq!(root(&report), Some("slab-dentry-bloat"));
    assert_eq!(report.incidents[0].root_cause.culprit.slab.as_deref(), Some("dentry"));
    assert_eq!(root(&bloat(240_000.0)), None);
}

#[test]
fn kernel_memory_and_shared_memory_that_grow() {
    let mut m = machine();
    level(&mut m, "mem.sunreclaim", "", grows(0.3 * GIB, 0.05 * GIB));
    level(&mut m, "slab.num_objs", "kmalloc-1k", grows(10_000.0, 0.05 * GIB / 1024.0));
    level(&mut m, "slab.active_objs", "kmalloc-1k", grows(10_000.0, 0.05 * GIB / 1024.0));
    level(&mut m, "slab.objsize", "kmalloc-1k", |_| 1024.0);
    let report = case(&m);
    assert_eq!(root(&report), Some("slab-leak"));
    assert_eq!(report.incidents[0].root_cause.culprit.slab.as_deref(), Some("kmalloc-1k"));

    let mut m = machine();
    level(&mut m, "mem.shmem", "", grows(0.1 * GIB, 0.2 * GIB));
    level(&mut m, "mem.available", "", |i| {
        (12.0 * GIB - 0.25 * GIB * (i - HEALTHY as f64).max(0.0)).max(0.1 * GIB)
    });
    assert_eq!(root(&case(&m)), Some("shmem-growth"));
}

#[test]
fn faults_without_io_and_those_of_new_processes() {
    let mut m = machine();
    m.task(80, "beam.smp", 0).task_rate(80, "task.minflt", 30.0, 270_000.0);
    m.sys("vm.pgfault", 50.0, 271_000.0).sys("vm.pgpgin", 0.0, 0.0);
    let report = case(&m);
    assert_eq!(root(&report), Some("minor-fault-storm"));
    assert_eq!(report.incidents[0].root_cause.culprit.process.as_deref(), Some("beam.smp"));

    let mut m = machine();
    m.sys("vm.pgfault", 50.0, 252_000.0).sys("sys.forks", 1.0, 60.0);
    assert_eq!(root(&case(&m)), None, "a build starts large programs");
}

#[test]
fn orphans_and_memory_of_tcp() {
    let tcp = |pages: f64| {
        let mut m = machine();
        m.sys("tcpext.TCPAbortOnMemory", 0.0, 200.0).sys("sock.tcp_orphan", 10.0, 268.0);
        m.sys("sysctl.net.ipv4.tcp_max_orphans", 256.0, 256.0).sys("sock.tcp_mem", 10.0, pages);
        level(&mut m, "sysctl.net.ipv4.tcp_max_orphans", "", |_| 256.0);
        let limits =
            TextSeries { changes: vec![(support::START, Some("100000 200000 300000".into()))], place: None };
        m.set.insert_text(lookup("sysctl.net.ipv4.tcp_mem").unwrap(), "".into(), limits);
        case(&m)
    };
    let report = tcp(20_000.0);
    assert_eq!(root(&report), Some("tcp-orphan-pressure"));
    assert!(ruled_out(&report.incidents[0], "tcp-memory-pressure").is_some());
    assert_eq!(root(&tcp(330_000.0)), Some("tcp-memory-pressure"));
}

#[test]
fn a_limit_that_was_put_back_since_is_told_as_it_was() {
    let mut m = machine();
    m.sys("tcpext.TCPAbortOnMemory", 0.0, 200.0).sys("sock.tcp_orphan", 10.0, 268.0);
    let end = (HEALTHY + INCIDENT) as f64;
    level(&mut m, "sysctl.net.ipv4.tcp_max_orphans", "", |i| if i < end { 256.0 } else { 131_072.0 });
    let report = case(&m);
    assert_eq!(root(&report), Some("tcp-orphan-pressure"));
    let statement = &report.incidents[0].root_cause.statement;
    assert!(statement.contains(" orphaned sockets of 256 allowed: "), "{statement}");
}

#[test]
fn a_full_node_beside_an_empty_one() {
    let numa = |free: [f64; 2]| {
        let mut m = machine();
        for (node, foreign, miss, free) in [("0", 40_000.0, 0.0, free[0]), ("1", 0.0, 40_000.0, free[1])] {
            m.row("node.numa_foreign", node, 0.0, foreign).row("node.numa_miss", node, 0.0, miss);
            m.row("node.numa_hit", node, 50_000.0, 50_000.0).row("node.mem_free", node, free, free);
        }
        case(&m)
    };
    let report = numa([0.05 * GIB, 6.0 * GIB]);
    assert_eq!(root(&report), Some("numa-imbalance"));
    assert!(report.incidents[0].root_cause.remarks.iter().any(|r| r.contains("preferred")));
    assert_eq!(root(&numa([2.0 * GIB, 2.0 * GIB])), None);
}

#[test]
fn crashes_at_one_place_and_an_allocation_that_failed() {
    let crash = |pid: u32, ip: u64| EventKind::Crash {
        pid,
        comm: "orderd".into(),
        address: 0x10,
        ip,
        error: 6,
        object: Some("orderd".into()),
        base: Some(0x5000),
        file_offset: None,
    };
    let mut m = machine();
    m.event(70, crash(90, 0x514a)).event(75, crash(91, 0x514a)).event(80, crash(92, 0x9999));
    let report = case(&m);
    assert_eq!(root(&report), Some("process-crash"));
    let culprit = &report.incidents[0].root_cause.culprit;
    assert_eq!(culprit.address.as_deref(), Some("0x14a"));
    assert!(report.incidents[0].root_cause.statement.contains("write to the unmapped"));

    let mut m = machine();
    m.sys("mem.free", 4.0 * GIB, 4.0 * GIB);
    m.event(70, EventKind::AllocationFailure { order: 4, comm: "kworker/0:1".into() });
    assert_eq!(root(&case(&m)), Some("memory-fragmentation"));
}

#[test]
fn a_recording_shows_crashes_and_fault_storms_too() {
    let mut m = machine();
    m.event(
        70,
        EventKind::Crash {
            pid: 90,
            comm: "orderd".into(),
            address: 0x10,
            ip: 0x514a,
            error: 4,
            object: None,
            base: None,
            file_offset: None,
        },
    );
    let report = m.explain();
    assert_eq!(root(&report), Some("process-crash"));
    assert!(report.incidents[0].lost_task_seconds.is_some(), "a moment lies in a sample");
    let mut m = machine();
    m.task(80, "beam.smp", 0).task_rate(80, "task.minflt", 30.0, 270_000.0);
    m.sys("vm.pgfault", 50.0, 271_000.0);
    assert_eq!(root(&m.explain()), Some("minor-fault-storm"));
}
