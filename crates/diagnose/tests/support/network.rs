//! A machine that serves over the network and is well.

use mitra_model::report::{Culprit, Report};
use mitra_model::{TextSeries, lookup};

use super::{Machine, START};

/// A server that answers two hundred requests a second, and a namespace beside it that does the same.
pub fn serving() -> Machine {
    let mut m = Machine::idle();
    for (metric, value) in [
        ("tcp.OutSegs", 400.0),
        ("tcp.InSegs", 400.0),
        ("tcp.RetransSegs", 0.0),
        ("tcp.ActiveOpens", 50.0),
        ("tcpext.TCPSynRetrans", 0.0),
        ("tcpext.TCPTimeouts", 0.0),
        ("tcpext.ListenOverflows", 0.0),
        ("tcpext.ListenDrops", 0.0),
        ("tcpext.TCPAbortOnMemory", 0.0),
        ("tcpext.TCPBacklogDrop", 0.0),
        ("tcpext.TCPRcvQDrop", 0.0),
        ("udp.InDatagrams", 100.0),
        ("udp.RcvbufErrors", 0.0),
        ("udp.SndbufErrors", 0.0),
        ("conntrack.drop", 0.0),
        ("conntrack.early_drop", 0.0),
        ("conntrack.insert_failed", 0.0),
        ("conntrack.count", 900.0),
        ("conntrack.max", 262_144.0),
        ("sock.tcp_tw", 300.0),
        ("sock.tcp_inuse", 40.0),
        ("sock.tcp_mem", 50.0),
        ("sock.tcp_orphan", 0.0),
    ] {
        m.sys(metric, value, value);
        if let Some(elsewhere) = mitra_diagnose::network::elsewhere(metric) {
            m.row(elsewhere, "web", value, value);
        }
    }
    text(&mut m, "sysctl.net.ipv4.ip_local_port_range", "", "32768\t60999");
    text(&mut m, "netns.sysctl_net_ipv4_ip_local_port_range", "web", "32768\t60999");
    text(&mut m, "sysctl.net.ipv4.tcp_mem", "", "280000\t370000\t560000");
    for nic in ["eth0", "eth0@web"] {
        m.row("nic.tx_packets", nic, 500.0, 500.0).row("nic.rx_packets", nic, 500.0, 500.0);
        m.row("nic.rx_drop", nic, 0.0, 0.0).row("nic.qdisc_dropped", nic, 0.0, 0.0);
        m.row("nic.tx_bytes", nic, 2e5, 2e5);
    }
    for cpu in ["0", "1"] {
        m.row("softnet.dropped", cpu, 0.0, 0.0).row("softnet.processed", cpu, 500.0, 500.0);
        m.row("cpu.softirq", cpu, 0.01, 0.01);
    }
    m
}

pub fn text(m: &mut Machine, metric: &str, row: &str, value: &str) {
    let series = TextSeries { changes: vec![(START, Some(value.into()))], place: None };
    m.set.insert_text(lookup(metric).unwrap(), row.into(), series);
}

pub fn culprit(report: &Report) -> &Culprit {
    &report.incidents[0].root_cause.culprit
}

pub fn is_silent(m: &Machine) {
    let report = m.explain();
    assert!(report.incidents.is_empty(), "{:#?}", report.incidents);
}

/// A queue that drops a fifth of what is to be sent.
pub fn qdisc(m: &mut Machine) {
    m.row("nic.qdisc_dropped", "eth0@web", 0.0, 1200.0).row("nic.tx_packets", "eth0@web", 500.0, 4800.0);
    m.row("nic.qdisc_overlimits", "eth0@web", 0.0, 9000.0).row(
        "nic.qdisc_backlog_bytes",
        "eth0@web",
        0.0,
        50e3,
    );
    m.row("nic.tx_bytes", "eth0@web", 2e5, 2.5e6).row("netns.udp_SndbufErrors", "web", 0.0, 1180.0);
}
