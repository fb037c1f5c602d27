//! The root cause of machines whose network loses something, and of their look-alikes. The numbers are of the size that
//! the real incidents have.

#[path = "support/mod.rs"]
#[expect(dead_code, reason = "the other test file uses the rest")]
mod support;

use mitra_diagnose::Role;
use mitra_model::{CaptureRow, EventKind};
use support::network::{culprit, is_silent, serving, text};
use support::{HEALTHY, INCIDENT, Machine, each, root};

#[test]
fn serving_is_no_incident() {
    is_silent(&serving());
}

#[test]
fn every_condition_of_the_network_has_a_remedy_with_a_check() {
    let of_network = |c: &&mitra_diagnose::Condition| c.area == "network" && c.role == Role::Root;
    let list: Vec<_> = mitra_diagnose::conditions().iter().filter(of_network).collect();
    assert!(list.len() >= 10);
    for condition in list {
        let remedies = condition.remedies(&mitra_diagnose::Finding::default());
        assert!(!remedies.is_empty(), "{}", condition.id);
        for remedy in remedies {
            assert!(!remedy.command.is_empty() && !remedy.verify.is_empty(), "{}: {remedy:?}", condition.id);
        }
    }
}

/// A server that stopped to accept.
fn overflow(m: &mut Machine) {
    m.task(50, "orderd", 0).task_rate(50, "task.cpu_time", 0.2, 0.0);
    m.row("netns.tcpext_ListenOverflows", "web", 0.0, 205.0);
    m.row("netns.tcpext_ListenDrops", "web", 0.0, 205.0);
    m.row("netns.tcpext_TCPSynRetrans", "web", 0.0, 161.0);
    m.row("netns.tcp_RetransSegs", "web", 0.0, 190.0);
    let full: Vec<f64> = (0..INCIDENT).map(|_| 17.0).collect();
    m.values("listener.queue", "10.9.0.2:8080@web", HEALTHY, full);
    m.values("listener.backlog", "10.9.0.2:8080@web", HEALTHY, vec![16.0; INCIDENT]);
    m.values("listener.pid", "10.9.0.2:8080@web", HEALTHY, vec![50.0; INCIDENT]);
    text(m, "listener.comm", "10.9.0.2:8080@web", "orderd");
}

#[test]
fn a_server_that_does_not_accept_is_named_with_its_address() {
    let mut m = serving();
    overflow(&mut m);
    // Another namespace has a listener of the same address that is well.
    m.row("listener.queue", "10.9.0.2:8080@other", 0.0, 12.0);
    m.row("listener.backlog", "10.9.0.2:8080@other", 16.0, 16.0);
    let report = m.explain();
    assert_eq!(root(&report), ("listen-overflow", Some("orderd"), Some(50)));
    assert_eq!(culprit(&report).address.as_deref(), Some("10.9.0.2:8080"));
    let incident = &report.incidents[0];
    let statement = &incident.root_cause.statement;
    assert!(statement.contains("17") && statement.contains("16") && statement.contains("web"), "{statement}");
    assert!(
        incident.other_roots.is_empty(),
        "what is sent again follows from it: {:?}",
        incident.other_roots
    );
    assert!(incident.chain.iter().any(|l| l.condition == "retransmit-storm"));
}

#[test]
fn a_busy_thread_of_the_server_is_upstream_of_its_overflow_and_one_of_another_program_is_not() {
    for (busy, expected) in [(50, "single-thread-bottleneck"), (51, "listen-overflow")] {
        let mut m = serving();
        overflow(&mut m);
        m.task(51, "encoder", 0).task_rate(busy, "task.cpu_time", 0.1, 1.0).task_rate(
            busy,
            "task.rchar",
            1e6,
            5e6,
        );
        m.sys("tasks.busiest", 0.2, 1.0);
        let report = m.explain();
        let roots: Vec<&str> = report.incidents.iter().map(|i| i.root_cause.condition.as_str()).collect();
        let others: Vec<&str> =
            report.incidents.iter().flat_map(|i| &i.other_roots).map(|r| r.condition.as_str()).collect();
        assert!(roots.contains(&expected) || others.contains(&expected), "{roots:?} {others:?}");
        let is_root = roots.contains(&"listen-overflow") || others.contains(&"listen-overflow");
        assert_eq!(is_root, busy == 51, "{roots:?} {others:?}");
    }
}

#[test]
fn a_busy_machine_is_not_why_an_idle_server_does_not_accept() {
    let mut m = serving();
    overflow(&mut m);
    m.task(90, "crunch", HEALTHY);
    for tid in 90..94 {
        if tid != 90 {
            m.thread(90, tid, "crunch", HEALTHY);
        }
        for (metric, value) in [("task.cpu_time", 0.45), ("task.run_delay", 0.4)] {
            m.values(metric, &format!("{tid}@{}", tid * 1_000_000), HEALTHY, vec![value; INCIDENT]);
        }
    }
    m.task(95, "web", 0).task_rate(95, "task.run_delay", 0.01, 0.6).task_rate(95, "task.cpu_time", 0.3, 0.2);
    m.sys("sys.cpu_idle", 1.6, 0.0).sys("tasks.run_delay", 0.02, 2.2).sys("tasks.cpu_time", 0.34, 2.0);
    m.sys("psi.cpu_some", 0.0, 0.95);
    let report = m.explain();
    let all = report.incidents.iter().flat_map(|i| std::iter::once(&i.root_cause).chain(&i.other_roots));
    let roots: Vec<&str> = all.map(|r| r.condition.as_str()).collect();
    assert!(roots.contains(&"cpu-hog") && roots.contains(&"listen-overflow"), "{roots:?}");
}

#[test]
fn clients_that_all_come_back_at_once_overflow_a_queue_once() {
    let mut m = serving();
    let mut burst = vec![0.0; HEALTHY + INCIDENT + 20];
    burst[HEALTHY] = 30.0;
    m.values("tcpext.ListenOverflows", "", 0, burst);
    is_silent(&m);
}

#[test]
fn losses_on_the_way_are_a_storm_to_the_peer() {
    for net in [None, Some("web")] {
        let mut m = serving();
        for (metric, value) in [("tcp.RetransSegs", 12.0), ("tcpext.TCPTimeouts", 5.0)] {
            let name = net.and_then(|_| mitra_diagnose::network::elsewhere(metric)).unwrap_or(metric);
            m.row(name, net.unwrap_or_default(), 0.0, value);
        }
        m.row("peer.retransmits", "10.7.0.9:5432", 0.0, 11.0).row(
            "peer.retransmits",
            "10.7.0.8:443",
            0.0,
            0.5,
        );
        let report = m.explain();
        assert_eq!(root(&report), ("retransmit-storm", None, None));
        assert_eq!(culprit(&report).address.as_deref(), Some("10.7.0.9:5432"));
        let remarks = report.incidents[0].root_cause.remarks.join(" ");
        assert!(remarks.contains("timeout"), "{remarks}");
    }
}

#[test]
fn what_is_lost_each_time_while_answers_pass_is_of_one_size() {
    let told = |again: f64, answers: f64| {
        let mut m = serving();
        m.sys("tcp.RetransSegs", 0.0, 12.0).sys("tcpext.TCPTimeouts", 0.0, 5.0);
        m.sys("tcpext.TCPLostRetransmit", 0.0, again);
        m.row("peer.retransmits", "10.7.0.9:5432", 0.0, 11.0);
        m.row("dependency.requests", "50>10.7.0.9:5432", 80.0, answers);
        let report = m.explain();
        assert_eq!(root(&report).0, "retransmit-storm");
        report.incidents[0].root_cause.statement.contains("packets of one size or kind do not pass")
    };
    assert!(told(9.0, 3.0));
    assert!(!told(2.0, 3.0), "by chance");
    assert!(!told(9.0, 0.0), "to who is gone everything is lost");
}

#[test]
fn what_is_always_lost_and_what_is_hardly_lost_is_no_storm() {
    // A third of a per cent; a little more than as ever; and connections that nobody answers.
    for (before, again, syn) in [(0.0, 1.3, 0.0), (3.6, 5.0, 0.0), (0.0, 20.0, 20.0)] {
        let mut m = serving();
        m.sys("tcp.RetransSegs", before, again).sys("tcpext.TCPSynRetrans", 0.0, syn);
        is_silent(&m);
    }
}

/// Losses of small requests to a server; the server's own namespace sends its answers again because their
/// confirmations are lost.
fn small_losses(sent: f64) -> Machine {
    let mut m = serving();
    m.row("netns.tcp_OutSegs", "web", sent, sent).row("netns.tcp_RetransSegs", "web", 0.0, 1.2);
    m.row("netns.tcpext_TCPLossProbeRecovery", "web", 0.0, 1.1);
    m.row("netns.tcp_OutSegs", "db", 1.5 * sent, 1.5 * sent).row("netns.tcp_RetransSegs", "db", 0.0, 2.1);
    m.row("netns.tcpext_TCPDSACKRecvSegs", "db", 0.0, 2.0);
    m.row("peer.retransmits", "10.9.0.1:*", 0.0, 2.1).row("peer.retransmits", "10.9.0.2:5432", 0.0, 1.2);
    m
}

#[test]
fn few_losses_hurt_who_waits_for_each_answer() {
    let report = small_losses(240.0).explain();
    assert_eq!(root(&report), ("retransmit-storm", None, None));
    assert_eq!(culprit(&report).address.as_deref(), Some("10.9.0.2:5432"));
    // A server that sends two hundred times as much is no slower for it.
    is_silent(&small_losses(50_000.0));
}

#[test]
fn a_full_link_loses_to_find_its_limit_and_what_was_late_is_not_lost() {
    let bulk = |sent: f64, again: f64, in_vain: f64| {
        let mut m = serving();
        m.sys("tcp.OutSegs", 400.0, sent).sys("tcp.RetransSegs", 0.0, again);
        m.sys("tcpext.TCPDSACKRecvSegs", 0.0, in_vain).sys("tcp.CurrEstab", 1.0, 1.0);
        m
    };
    is_silent(&bulk(1_800_000.0, 25_000.0, 0.0));
    is_silent(&bulk(40_000.0, 600.0, 500.0));
    // Chance losses of the same share, of a connection that they hold up.
    assert_eq!(root(&bulk(4_000.0, 60.0, 2.0).explain()).0, "retransmit-storm");
    let mut m = bulk(1_800_000.0, 25_000.0, 0.0);
    m.sys("tcp.CurrEstab", 500.0, 500.0);
    assert_eq!(root(&m.explain()).0, "retransmit-storm", "each of many connections sends little");
}

#[test]
fn a_full_table_of_connections_is_named_with_its_setting() {
    let mut m = serving();
    m.row("netns.conntrack_drop", "web", 0.0, 40.0).row("netns.conntrack_count", "web", 900.0, 2000.0);
    m.row("netns.conntrack_max", "web", 2000.0, 2000.0).row("netns.tcpext_TCPSynRetrans", "web", 0.0, 38.0);
    m.row("netns.tcp_RetransSegs", "web", 0.0, 38.0);
    let report = m.explain();
    assert_eq!(root(&report).0, "conntrack-full");
    assert_eq!(culprit(&report).sysctl.as_deref(), Some("net.netfilter.nf_conntrack_max"));
    assert_eq!(report.incidents[0].chain.len(), 1, "SYNs that are lost are no storm");
}

#[test]
fn packets_that_race_into_the_table_do_not_fill_it() {
    let mut m = serving();
    m.sys("conntrack.insert_failed", 0.0, 30.0).sys("conntrack.drop", 0.0, 3.0);
    is_silent(&m);
}

#[test]
fn the_kernel_says_that_the_table_is_full() {
    let mut m = serving();
    m.sys("conntrack.drop", 0.0, 40.0).sys("conntrack.count", 900.0, 262_144.0);
    let text = "nf_conntrack: nf_conntrack: table full, dropping packet".to_owned();
    m.event(HEALTHY + 1, EventKind::KernelLog { priority: 4, text });
    let report = m.explain();
    assert_eq!(root(&report).0, "conntrack-full");
    let evidence = &report.incidents[0].chain[0].evidence;
    assert!(evidence.iter().any(|e| e.metric == "event.kernel-log"), "{evidence:?}");
}

/// All 28,232 ports of a namespace in TIME-WAIT, and hardly a new connection.
fn no_ports(m: &mut Machine) {
    m.row("netns.sock_tcp_tw", "web", 300.0, 28_200.0).row("netns.tcp_ActiveOpens", "web", 900.0, 440.0);
    let tw: Vec<f64> = (0..HEALTHY + INCIDENT + 20)
        .map(|i| if (HEALTHY..HEALTHY + INCIDENT).contains(&i) { 28_190.0 } else { 300.0 })
        .collect();
    m.values("netns.sock_tcp_tw", "web", 0, tw);
}

#[test]
fn ports_that_are_used_up_are_seen_by_the_connections_that_stay_away() {
    let mut m = serving();
    no_ports(&mut m);
    let report = m.explain();
    assert_eq!(root(&report).0, "port-exhaustion");
    assert_eq!(culprit(&report).sysctl.as_deref(), Some("net.ipv4.ip_local_port_range"));
}

#[test]
fn who_opened_most_connections_has_the_ports() {
    let mut m = serving();
    no_ports(&mut m);
    let row = "60>10.0.0.7:80@web";
    m.task(60, "gateway", 0).values("dependency.pid", row, 0, vec![60.0; HEALTHY + INCIDENT + 20]);
    m.row("dependency.requests", row, 900.0, 900.0).row("dependency.connects", row, 20.0, 900.0);
    let report = m.explain();
    assert_eq!(root(&report), ("port-exhaustion", Some("gateway"), Some(60)));
    let remarks = report.incidents[0].root_cause.remarks.join("; ");
    assert!(remarks.contains("times for each request (0.0 before)"), "{remarks}");
    // Who came only now never kept any.
    m.row("dependency.requests", "61>10.0.0.7:80@web", 900.0, 900.0);
    m.text("dependency.comm", "61>10.0.0.7:80@web", 0, "app");
    m.row("dependency.requests", row, 0.0, 900.0).row("dependency.connects", row, 0.0, 900.0);
    m.text("dependency.comm", row, HEALTHY, "gateway");
    let remarks = m.explain().incidents[0].root_cause.remarks.join("; ");
    assert!(!remarks.contains("no longer keeps"), "{remarks}");
}

#[test]
fn calls_that_failed_name_the_program_that_has_no_ports() {
    let mut m = serving();
    no_ports(&mut m);
    let row = CaptureRow {
        pid: Some(77),
        comm: "poolless".to_owned(),
        what: "connect EADDRNOTAVAIL".to_owned(),
        count: 5_000.0,
        ..CaptureRow::default()
    };
    m.event(
        HEALTHY + 10,
        EventKind::Capture {
            capture: "errors".to_owned(),
            why: "test".to_owned(),
            seconds: 5.0,
            events: 5_000,
            lost: 0,
            ended: "time".to_owned(),
            cost_ns: None,
            file: None,
            tops: vec![row],
        },
    );
    assert_eq!(root(&m.explain()), ("port-exhaustion", Some("poolless"), Some(77)));
}

#[test]
fn attempts_that_fail_and_are_not_begun_have_no_port() {
    let calls = |opens: f64| {
        let mut m = serving();
        no_ports(&mut m);
        m.row("netns.sock_tcp_tw", "web", 300.0, 40_000.0).row("netns.tcp_ActiveOpens", "web", 500.0, opens);
        let row = "60>10.0.0.7:80@web";
        m.task(60, "gateway", 0).row("dependency.connect_failed", row, 0.0, 237.0);
        m.row("dependency.requests", row, 237.0, 0.0).values(
            "dependency.pid",
            row,
            0,
            vec![60.0; HEALTHY + INCIDENT + 20],
        );
        text(&mut m, "dependency.comm", row, "gateway");
        m.explain()
    };
    let report = calls(0.0);
    assert_eq!(root(&report), ("port-exhaustion", Some("gateway"), Some(60)));
    let statement = &report.incidents[0].root_cause.statement;
    assert!(
        statement.contains("237 attempts a second to connect fail before anything is sent"),
        "{statement}"
    );
    // Somebody refuses them.
    assert!(calls(240.0).incidents.iter().all(|i| i.root_cause.condition != "port-exhaustion"));
}

#[test]
fn a_busy_server_has_many_connections_in_time_wait() {
    // As many as there are ports, but no connection less is begun: they go to several places or come from outside.
    for (tw, opens) in [(28_000.0, 900.0), (60_000.0, 100.0)] {
        let mut m = serving();
        m.sys("sock.tcp_tw", 300.0, tw).sys("tcp.ActiveOpens", 900.0, opens);
        is_silent(&m);
    }
}

#[test]
fn ports_of_connections_that_came_in_and_one_fast_second_are_no_exhaustion() {
    // As many TIME-WAITs as ports, of which few were begun here.
    let mut m = serving();
    no_ports(&mut m);
    m.row("netns.tcp_ActiveOpens", "web", 40.0, 20.0);
    is_silent(&m);
    // A server that is steady but for one second.
    let mut m = serving();
    no_ports(&mut m);
    let opens = (0..HEALTHY + INCIDENT + 20).map(|i| if i == HEALTHY - 2 { 900.0 } else { 500.0 }).collect();
    m.values("netns.tcp_ActiveOpens", "web", 0, opens);
    is_silent(&m);
}

#[test]
fn memory_of_tcp_is_seen_whosever_connections_they_are() {
    let mut m = serving();
    text(&mut m, "sysctl.net.ipv4.tcp_mem", "", "1000\t1500\t2000");
    m.sys("sock.tcp_mem", 50.0, 1995.0);
    m.row("netns.tcpext_TCPRcvQDrop", "web", 0.0, 40.0);
    let report = m.explain();
    assert_eq!(root(&report).0, "tcp-memory-pressure");
    let evidence = &report.incidents[0].chain[0].evidence;
    assert!(evidence.iter().any(|e| e.metric == "netns.tcpext_TCPRcvQDrop"), "{evidence:?}");
    assert!(report.incidents[0].other_roots.is_empty());
}

#[test]
fn orphans_of_the_machine_reset_connections_of_a_namespace() {
    let mut m = serving();
    m.sys("sysctl.net.ipv4.tcp_max_orphans", 256.0, 256.0).sys("sock.tcp_orphan", 0.0, 268.0);
    m.row("netns.tcpext_TCPAbortOnMemory", "web", 0.0, 200.0);
    let report = m.explain();
    assert_eq!(root(&report).0, "tcp-orphan-pressure");
    assert!(report.incidents[0].root_cause.remarks.join(" ").contains("web"));
}

#[test]
fn what_one_namespace_drops_is_not_lost_in_another() {
    let roots = |nic: &str| {
        let mut m = serving();
        m.row("nic.tx_packets", nic, 500.0, 500.0).row("nic.tx_bytes", nic, 2e5, 2e5);
        m.row("nic.qdisc_dropped", nic, 0.0, 60.0);
        m.row("netns.tcp_RetransSegs", "web", 0.0, 30.0);
        let report = m.explain();
        let all = report.incidents.iter().flat_map(|i| std::iter::once(&i.root_cause).chain(&i.other_roots));
        let mut ids: Vec<String> = all.map(|root| root.condition.clone()).collect();
        ids.sort_unstable();
        ids
    };
    assert_eq!(roots("eth0@web"), ["qdisc-drops"]);
    assert_eq!(roots("eth0"), ["qdisc-drops"], "what the namespaces send goes through the machine's own");
    assert_eq!(roots("eth0@blue"), ["qdisc-drops", "retransmit-storm"]);
}

#[test]
fn packets_of_which_each_takes_far_longer_are_the_root_and_who_loaded_the_rules_is_named() {
    let machine = |busy: f64, packets: f64, blocks: f64| {
        let mut m = Machine::idle();
        m.sys("sys.cpu_softirq", 0.02, busy).row("softnet.processed", "0", 2_500.0, packets);
        m.row("softirq.block", "0", 3.0, blocks).row("exited.count", "60:nft", 0.0, 0.0);
        m.values("exited.count", "60:nft", HEALTHY - 1, vec![1.0]).task(60, "banlist", 0);
        m
    };
    let report = machine(0.45, 2_000.0, 3.0).explain();
    assert_eq!(root(&report), ("packet-cost", Some("banlist"), Some(60)));
    let statement = &report.incidents[0].root_cause.statement;
    assert!(
        statement.starts_with("each packet takes 225 µs in soft interrupts instead of 8 µs"),
        "{statement}"
    );
    // More packets; and soft interrupts that are those of a device.
    is_silent(&machine(0.45, 50_000.0, 3.0));
    is_silent(&machine(0.45, 2_000.0, 20_000.0));
    // Few packets, beside as many timers as ever, each of which waits for most of a millisecond.
    let few = |timers: f64, busy: f64| {
        let mut m = Machine::idle();
        m.sys("sys.cpu_softirq", 0.005, busy).row("softnet.processed", "0", 180.0, 190.0);
        m.row("softirq.timer", "0", 300.0, timers);
        m
    };
    assert_eq!(root(&few(310.0, 0.17).explain()).0, "packet-cost");
    is_silent(&few(900.0, 0.17));
    is_silent(&few(310.0, 0.03));
}

#[test]
fn a_full_neighbour_table_is_named_with_the_namespace_that_fills_it() {
    let told = |refused: f64| {
        let mut m = serving();
        m.row("drop.packets", "neigh_createfail", 0.0, refused).row(
            "netns.ip_OutDiscards",
            "lab",
            0.0,
            refused,
        );
        m.values("netns.pid", "lab", 0, each(|_| 70.0));
        text(&mut m, "netns.comm", "lab", "inventory");
        m
    };
    let report = told(9_000.0).explain();
    assert_eq!(root(&report), ("neighbour-table-full", Some("inventory"), Some(70)));
    assert_eq!(culprit(&report).sysctl.as_deref(), Some("net.ipv4.neigh.default.gc_thresh3"));
    is_silent(&told(0.0));
}
