//! What network tools print and the recorder in part asks the kernel for: sockets by state, accept queues, queueing
//! disciplines, connection tracking.

use crate::metric::{Entity, Kernel, Metric, Unit, counter, gauge};

/// Tools print these for any kernel that they run on.
const ANY: Kernel = Kernel(2, 6);

const fn state(name: &'static str, help: &'static str) -> Metric {
    gauge(Entity::System, name, Unit::Count, "ss -tan, netstat -tan, ss -s", ANY, help)
}

const fn tracking(name: &'static str, help: &'static str) -> Metric {
    counter(Entity::System, name, Unit::Count, "/proc/net/stat/nf_conntrack; conntrack -S", ANY, help)
}

const fn qdisc_count(name: &'static str, help: &'static str) -> Metric {
    counter(Entity::Nic, name, Unit::Count, "rtnetlink:RTM_GETQDISC; tc -s qdisc", ANY, help)
}

/// Of the whole machine.
pub const TEXT_NET: &[Metric] = &[
    state("sock.tcp_established", "TCP connections that both sides have open."),
    state("sock.tcp_syn_sent", "TCP connections that wait for the answer to their first packet."),
    state("sock.tcp_syn_recv", "TCP connections that were asked for and are not confirmed yet."),
    state(
        "sock.tcp_fin_wait1",
        "TCP connections that were closed here and wait for the other side to confirm it.",
    ),
    state(
        "sock.tcp_fin_wait2",
        "TCP connections that were closed here and wait for the other side to close too.",
    ),
    state(
        "sock.tcp_close_wait",
        "TCP connections that the other side has closed and the program here has not: many mean that it forgets to.",
    ),
    state("sock.tcp_last_ack", "TCP connections that wait for the confirmation of the last packet."),
    state("sock.tcp_closing", "TCP connections that both sides closed at the same time."),
    state("sock.tcp_close", "TCP sockets that are bound or left over and not connected."),
    state("sock.tcp_listen", "TCP sockets that accept connections."),
    gauge(
        Entity::System,
        "sock.listen_queue_max",
        Unit::Count,
        "sock_diag:idiag_rqueue; ss -tl, netstat -tl: Recv-Q of LISTEN",
        ANY,
        "Connections that wait to be accepted, of the listening socket that has the most.",
    ),
    gauge(
        Entity::System,
        "sock.listen_backlog",
        Unit::Count,
        "sock_diag:idiag_wqueue; ss -tl: Send-Q of LISTEN",
        ANY,
        "How many connections may wait at the listening socket whose queue is the longest.",
    ),
    gauge(
        Entity::System,
        "sock.listen_overfull",
        Unit::Count,
        "sock_diag; ss -tl: Recv-Q above Send-Q",
        ANY,
        "Listening sockets with more connections waiting than they may have: further ones are dropped.",
    ),
    gauge(
        Entity::System,
        "sock.recv_queue_bytes",
        Unit::Bytes,
        "ss -tan, netstat -tan: Recv-Q",
        ANY,
        "Bytes that arrived on TCP connections and the programs have not read, added up.",
    ),
    gauge(
        Entity::System,
        "sock.send_queue_bytes",
        Unit::Bytes,
        "ss -tan, netstat -tan: Send-Q",
        ANY,
        "Bytes that were sent on TCP connections and are not confirmed, added up.",
    ),
    gauge(
        Entity::System,
        "sock.open_retrans",
        Unit::Count,
        "ss -ti: retrans",
        ANY,
        "Segments that the connections that are open have sent again since they began.",
    ),
    gauge(
        Entity::System,
        "conntrack.count",
        Unit::Count,
        "/proc/net/stat/nf_conntrack:entries",
        ANY,
        "Connections tracked in the network namespace of the recorder. In each sample, unlike sysctl.net.netfilter.nf_conntrack_count.",
    ),
    gauge(
        Entity::System,
        "conntrack.max",
        Unit::Count,
        "/proc/sys/net/netfilter/nf_conntrack_max",
        ANY,
        "Connections that may be tracked.",
    ),
    tracking("conntrack.found", "Packets of connections that were known."),
    tracking("conntrack.invalid", "Packets that fit no connection."),
    tracking(
        "conntrack.insert_failed",
        "Connections that could not be entered, mostly because another packet was faster.",
    ),
    tracking(
        "conntrack.drop",
        "Packets dropped because the connection could not be tracked: the table is full, or no memory.",
    ),
    tracking(
        "conntrack.early_drop",
        "Tracked connections given up to make room for new ones: the table is full.",
    ),
    tracking(
        "conntrack.search_restart",
        "Searches that began again because the table was being resized or changed.",
    ),
];

/// Of network devices.
pub const TEXT_NIC: &[Metric] = &[
    counter(
        Entity::Nic,
        "nic.rx_ring_drops",
        Unit::Count,
        "ip -s link: missed; ethtool -S",
        ANY,
        "Packets that the device dropped because its ring was full: the host was too slow to take them. Drivers name it differently; of several such counters the largest.",
    ),
    qdisc_count(
        "nic.qdisc_dropped",
        "Packets that the queueing discipline of the device dropped before they were sent.",
    ),
    qdisc_count(
        "nic.qdisc_overlimits",
        "Times that the queueing discipline held a packet back because of a rate.",
    ),
    qdisc_count(
        "nic.qdisc_requeues",
        "Packets that the device did not take and that went back into the queue.",
    ),
    gauge(
        Entity::Nic,
        "nic.qdisc_backlog_bytes",
        Unit::Bytes,
        "rtnetlink:RTM_GETQDISC; tc -s qdisc: backlog",
        ANY,
        "Bytes that wait in the queueing discipline.",
    ),
    gauge(
        Entity::Nic,
        "nic.qdisc_backlog_packets",
        Unit::Count,
        "rtnetlink:RTM_GETQDISC; tc -s qdisc: backlog",
        ANY,
        "Packets that wait in the queueing discipline.",
    ),
];
