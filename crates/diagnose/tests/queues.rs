//! Queues that are full: of a network device, of a CPU, of a socket, and their look-alikes.

#[path = "support/mod.rs"]
#[expect(dead_code, reason = "the other test files use the rest")]
mod support;

use support::network::{culprit, is_silent, qdisc, serving, text};
use support::{HEALTHY, INCIDENT, each, is_on, root};

#[test]
fn a_queue_that_drops_is_named_by_its_device_and_what_is_sent_again_follows() {
    let mut m = serving();
    qdisc(&mut m);
    m.row("netns.tcp_RetransSegs", "web", 0.0, 60.0);
    let report = m.explain();
    assert_eq!(root(&report).0, "qdisc-drops");
    assert_eq!(culprit(&report).nic.as_deref(), Some("eth0@web"));
    let incident = &report.incidents[0];
    assert!(incident.chain.iter().any(|l| l.condition == "retransmit-storm"));
    let remarks = incident.root_cause.remarks.join(" ");
    assert!(remarks.contains("datagrams") && remarks.contains("delayed by 20.0 ms"), "{remarks}");
}

#[test]
fn tcp_that_finds_the_limit_of_a_link_drops_a_little() {
    let mut m = serving();
    m.row("nic.qdisc_dropped", "eth0", 0.0, 30.0).row("nic.tx_packets", "eth0", 500.0, 8000.0);
    is_silent(&m);
}

#[test]
fn a_queue_that_stands_is_felt_by_who_waits_for_answers() {
    let with = |backlog: f64, back: f64| {
        let mut m = serving();
        m.row("nic.qdisc_backlog_bytes", "eth0@web", 0.0, backlog).row(
            "nic.tx_bytes",
            "eth0@web",
            14e3,
            2.5e6,
        );
        m.row("nic.rx_packets", "eth0@web", 195.0, back);
        m
    };
    let report = with(50e3, 41.0).explain();
    assert_eq!((root(&report).0, culprit(&report).nic.as_deref()), ("qdisc-drops", Some("eth0@web")));
    let statement = &report.incidents[0].root_cause.statement;
    assert!(statement.contains("delayed by 20.0 ms") && statement.contains("41 packets/s"), "{statement}");
    // A long transfer that is alone on its link, and a queue that is gone before a round trip is over.
    is_silent(&with(50e3, 900.0));
    is_silent(&with(5e3, 41.0));
}

#[test]
fn a_queue_that_stands_is_felt_by_a_caller_of_which_the_service_is_as_fast_as_ever() {
    let told_at = |device: &str, caller_s: f64, service_s: f64, sender: f64| {
        let mut m = serving();
        let (dependency, service) = ("50>10.9.0.7:80@branch", "10.9.0.7:80@web");
        m.row("nic.qdisc_backlog_bytes", device, 0.0, 250e3).row("nic.tx_bytes", device, 30e3, 2.4e6);
        m.row("nic.rx_packets", device, 20.0, 400.0).row("dependency.requests", dependency, 10.0, 8.0);
        m.row("dependency.latency_p50", dependency, 1.2e-3, caller_s).row(
            "dependency.wait_time",
            dependency,
            0.01,
            0.6,
        );
        m.row("service.latency_p50", service, 1.1e-3, service_s).row("service.requests", service, 10.0, 8.0);
        m.row("service.sent_bytes", "10.9.0.7:81@web", 0.0, sender);
        m.values("service.pid", "10.9.0.7:81@web", 0, each(|_| 60.0));
        text(&mut m, "dependency.comm", dependency, "desk-app");
        text(&mut m, "service.comm", "10.9.0.7:81@web", "imaged");
        m
    };
    let told = |caller_s: f64, service_s: f64, sender: f64| told_at("hq0@web", caller_s, service_s, sender);
    let report = told(0.1, 1.1e-3, 2.3e6).explain();
    assert_eq!(root(&report), ("qdisc-drops", Some("imaged"), Some(60)));
    assert_eq!(culprit(&report).nic.as_deref(), Some("hq0@web"));
    // A router between the two.
    let routed = told_at("wan0@edge", 0.1, 1.1e-3, 2.3e6).explain();
    assert_eq!(root(&routed), ("qdisc-drops", Some("imaged"), Some(60)));
    assert_eq!(culprit(&routed).nic.as_deref(), Some("wan0@edge"));
    let statement = &report.incidents[0].root_cause.statement;
    assert!(
        statement.contains("desk-app (50) has answers of 10.9.0.7:80 in 100 ms instead of 1.2 ms"),
        "{statement}"
    );
    assert_eq!(root(&told(0.1, 1.1e-3, 0.0).explain()), ("qdisc-drops", None, None));
    // It dropped what did not fit until the senders slowed down, and stands for longer than that.
    let mut dropped = told(0.1, 1.1e-3, 2.3e6);
    dropped.row("nic.tx_packets", "hq0@web", 300.0, 1800.0);
    let drops = each(|i| if (HEALTHY..HEALTHY + 4).contains(&i) { 300.0 } else { 0.0 });
    dropped.values("nic.qdisc_dropped", "hq0@web", 0, drops);
    let report = dropped.explain();
    assert_eq!(root(&report), ("qdisc-drops", Some("imaged"), Some(60)));
    let statement = &report.incidents[0].root_cause.statement;
    assert!(statement.contains("delayed by") && statement.contains("packets were dropped"), "{statement}");
    // The service takes as long; and nobody waits longer.
    let all = |m: support::Machine| {
        m.explain().incidents.iter().map(|i| i.root_cause.condition.clone()).collect::<Vec<_>>()
    };
    assert!(!all(told(0.1, 0.1, 2.3e6)).contains(&"qdisc-drops".to_owned()));
    is_silent(&told(1.2e-3, 1.1e-3, 2.3e6));
    // How fast the service of another machine is, nobody knows.
    let mut remote = told(0.1, 1.1e-3, 2.3e6);
    for (metric, during) in [("requests", 8.0), ("wait_time", 0.6), ("latency_p50", 0.1)] {
        remote.row(&format!("dependency.{metric}"), "50>10.9.0.7:80@branch", 0.0, 0.0);
        let before = if metric == "requests" { 10.0 } else { during / 60.0 };
        remote.row(&format!("dependency.{metric}"), "50>192.0.2.9:80@web", before, during);
    }
    assert!(!all(remote).contains(&"qdisc-drops".to_owned()));
    // It waits for far longer than the queue takes.
    assert!(!all(told(2.0, 1.1e-3, 2.3e6)).contains(&"qdisc-drops".to_owned()));
}

#[test]
fn datagrams_that_nobody_reads_overflow_a_socket() {
    let mut m = serving();
    m.row("netns.udp_RcvbufErrors", "web", 0.0, 5351.0).row("netns.udp_InDatagrams", "web", 100.0, 2000.0);
    m.row("listener.drops", "10.9.0.2:5000/udp@web", 0.0, 5300.0);
    m.row("listener.drops", "10.9.0.2:5000/udp@other", 0.0, 9000.0);
    m.values("listener.pid", "10.9.0.2:5000/udp@web", HEALTHY, vec![61.0; INCIDENT]);
    text(&mut m, "listener.comm", "10.9.0.2:5000/udp@web", "statsd");
    let report = m.explain();
    assert_eq!(root(&report), ("socket-buffer-overflow", Some("statsd"), Some(61)));
    assert_eq!(culprit(&report).address.as_deref(), Some("10.9.0.2:5000"));
    assert!(report.incidents[0].root_cause.statement.contains("UDP"));
    assert!(report.incidents[0].other_roots.is_empty());
}

#[test]
fn a_flood_of_datagrams_is_named_by_who_sends_it() {
    let told = |came_before: f64, read: f64| {
        let mut m = serving();
        m.row("netns.udp_RcvbufErrors", "web", 0.0, 700e3).row(
            "netns.udp_InDatagrams",
            "web",
            came_before,
            read,
        );
        m.row("netns.udp_OutDatagrams", "sens", 0.0, 710e3);
        m.values("netns.pid", "sens", 0, each(|_| 80.0));
        m.row("listener.drops", "10.9.0.2:5000/udp@web", 0.0, 700e3);
        m.values("listener.pid", "10.9.0.2:5000/udp@web", HEALTHY, vec![61.0; INCIDENT]);
        text(&mut m, "listener.comm", "10.9.0.2:5000/udp@web", "statsd");
        text(&mut m, "netns.comm", "sens", "metrics-push");
        let report = m.explain();
        let (id, comm, pid) = root(&report);
        let action = report.incidents[0].remedies[0].action.clone();
        let statement = report.incidents[0].root_cause.statement.clone();
        (id.to_owned(), comm.map(str::to_owned), pid, format!("{statement}; {action}"))
    };
    let (id, comm, pid, statement) = told(450.0, 470.0);
    assert_eq!(
        (id.as_str(), comm.as_deref(), pid),
        ("socket-buffer-overflow", Some("metrics-push"), Some(80))
    );
    assert!(
        statement.contains("sends 710,000 datagrams/s, and statsd reads as much as before")
            && statement.ends_with("let metrics-push send less, or stop it"),
        "{statement}"
    );
    // As many came before; it reads next to nothing any more; and it never read anything.
    assert_eq!(told(690e3, 470.0).1.as_deref(), Some("statsd"));
    assert_eq!(told(450.0, 5.0).1.as_deref(), Some("statsd"));
    assert_eq!(told(0.0, 0.0).1.as_deref(), Some("statsd"));
}

#[test]
fn one_datagram_in_a_thousand_is_nothing() {
    let mut m = serving();
    m.sys("udp.RcvbufErrors", 0.0, 2.0).sys("udp.InDatagrams", 100.0, 2000.0);
    is_silent(&m);
}

#[test]
fn a_backlog_that_drops_is_named_by_the_device_that_it_came_from() {
    let mut m = serving();
    m.row("softnet.dropped", "1", 0.0, 4000.0).row("softnet.processed", "1", 500.0, 90_000.0);
    m.row("cpu.softirq", "1", 0.01, 0.4).row("nic.rx_drop", "eth0@web", 0.0, 4000.0);
    m.row("drop.packets", "cpu_backlog", 0.0, 4000.0);
    let report = m.explain();
    assert_eq!(root(&report).0, "nic-drops");
    assert_eq!(culprit(&report).nic.as_deref(), Some("eth0@web"));
    let remarks = report.incidents[0].root_cause.remarks.join(" ");
    assert!(remarks.contains("CPU 1"), "{remarks}");
}

#[test]
fn a_cpu_that_takes_all_packets_is_upstream_of_what_its_backlog_drops() {
    let mut m = serving();
    m.row("softnet.dropped", "1", 0.0, 4000.0).row("softnet.processed", "1", 500.0, 90_000.0);
    m.row("cpu.softirq", "1", 0.01, 0.95).row("cpu.idle", "1", 0.98, 0.0);
    let report = m.explain();
    assert_eq!(root(&report).0, "interrupt-imbalance");
    assert!(report.incidents[0].chain.iter().any(|l| l.condition == "nic-drops"));
}

#[test]
fn packets_of_a_protocol_that_nobody_speaks_are_harmless() {
    let mut m = serving();
    m.row("nic.rx_drop", "eth0", 0.0, 1751.0).row("drop.packets", "unhandled_proto", 0.0, 1751.0);
    is_silent(&m);
    // The column alone, without the kernel's reasons, does not tell.
    let mut m = serving();
    m.row("nic.rx_drop", "eth0", 0.0, 1751.0);
    is_silent(&m);
}

#[test]
fn drops_with_no_harmless_reason_are_the_ring() {
    let mut m = serving();
    m.row("nic.rx_drop", "eth0", 0.0, 900.0).row("nic.rx_packets", "eth0", 500.0, 60_000.0);
    m.row("drop.packets", "unhandled_proto", 1.0, 1.0);
    let report = m.explain();
    assert_eq!(root(&report).0, "nic-drops");
    assert_eq!(culprit(&report).nic.as_deref(), Some("eth0"));
    let remarks = report.incidents[0].root_cause.remarks.join(" ");
    assert!(!remarks.contains("loses packets from") && !remarks.contains("the rate does not"), "{remarks}");
}

#[test]
fn a_ring_is_told_with_its_size_and_the_rate_at_which_it_begins_to_lose() {
    let full = |size: f64, most: f64| {
        let mut m = serving();
        m.row("nic.rx_fifo", "eth0", 0.0, 900.0).row("nic.rx_packets", "eth0", 500.0, 60_000.0);
        for (metric, value) in [("nic.rx_ring", size), ("nic.rx_ring_max", most)] {
            m.values(metric, "eth0", 0, each(|_| value));
        }
        let report = m.explain();
        assert_eq!(root(&report).0, "nic-drops");
        let incident = &report.incidents[0];
        let commands: Vec<String> = incident.remedies.iter().map(|r| r.command.clone()).collect();
        (incident.root_cause.remarks.join(" "), commands.join(" "))
    };
    let (remarks, commands) = full(256.0, 4096.0);
    assert!(remarks.contains("a ring of 256 packets holds what comes in 4.3 ms"), "{remarks}");
    assert!(remarks.contains("the largest, of 4,096, what comes in 68.3 ms"), "{remarks}");
    assert!(remarks.contains("it loses packets from about 5"), "{remarks}");
    assert!(commands.contains("ethtool -G eth0 rx 1024"), "{commands}");
    let (remarks, commands) = full(4096.0, 4096.0);
    assert!(remarks.contains("the driver makes no larger one"), "{remarks}");
    assert!(!commands.contains("-G eth0"), "{commands}");
}

#[test]
fn drops_at_a_rate_that_was_no_trouble_before_are_bursts() {
    let mut m = serving();
    m.row("nic.rx_fifo", "eth0", 0.0, 900.0);
    m.values("nic.rx_packets", "eth0", 0, each(|i| if is_on(i) { 20_000.0 } else { 60_000.0 }));
    let report = m.explain();
    assert_eq!(root(&report).0, "nic-drops");
    let remarks = report.incidents[0].root_cause.remarks.join(" ");
    assert!(remarks.contains("the rate does not tell") && remarks.contains("none at 60,000/s"), "{remarks}");
}

#[test]
fn each_device_and_each_cpu_is_judged_by_what_came_for_it() {
    // A tenth of what comes for one device, beside another one that takes a thousand times as much; and a backlog that lost
    // next to nothing of what it took.
    let mut m = serving();
    m.row("nic.rx_fifo", "eth0", 0.0, 50.0).row("nic.rx_packets", "eth1", 500.0, 300_000.0);
    m.row("softnet.dropped", "1", 0.0, 20.0).row("softnet.processed", "1", 500.0, 300_000.0);
    let report = m.explain();
    assert_eq!(root(&report).0, "nic-drops");
    assert_eq!(culprit(&report).nic.as_deref(), Some("eth0"));
    // What is in no column of a device excuses nothing.
    let mut m = serving();
    m.row("nic.rx_drop", "eth0", 0.0, 900.0).row("nic.rx_packets", "eth0", 500.0, 60_000.0);
    m.row("drop.packets", "otherhost", 0.0, 5_000.0);
    assert_eq!(root(&m.explain()).0, "nic-drops");
}

#[test]
fn a_queue_that_drops_more_and_harms_nobody_hides_none_that_does() {
    let mut m = serving();
    qdisc(&mut m);
    m.row("nic.qdisc_dropped", "eth1", 0.0, 3_000.0).row("nic.tx_packets", "eth1", 500.0, 900_000.0);
    assert_eq!(culprit(&m.explain()).nic.as_deref(), Some("eth0@web"));
}

#[test]
fn sockets_without_memory_are_the_limit_of_all_of_them() {
    let mut m = serving();
    m.sys("udp.MemErrors", 0.0, 900.0).sys("udp.InDatagrams", 100.0, 2_000.0);
    m.row("listener.drops", "10.9.0.2:5000/udp", 0.0, 900.0);
    let report = m.explain();
    assert_eq!(root(&report), ("socket-buffer-overflow", None, None));
    assert_eq!(culprit(&report).sysctl.as_deref(), Some("net.ipv4.udp_mem"));
    // A few of them beside a reader that is slow are not.
    let mut m = serving();
    m.sys("udp.MemErrors", 0.0, 9.0).sys("udp.RcvbufErrors", 0.0, 900.0);
    assert_eq!(culprit(&m.explain()).sysctl, None);
}
