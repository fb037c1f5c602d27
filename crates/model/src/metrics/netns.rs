//! Network namespaces other than the recorder's own. Their rows carry the names of the machine's, so that whoever looks
//! at the one finds the other: `netns.tcpext_ListenOverflows` is `tcpext.ListenOverflows` of that namespace.

use crate::metric::{Entity, Kernel, Metric, Unit, counter, gauge, text};

const fn snmp(name: &'static str, since: Kernel, help: &'static str) -> Metric {
    counter(Entity::Netns, name, Unit::Count, "/proc/PID/net/snmp", since, help)
}

const fn netstat(name: &'static str, since: Kernel, help: &'static str) -> Metric {
    counter(Entity::Netns, name, Unit::Count, "/proc/PID/net/netstat", since, help)
}

const fn sockets(name: &'static str, unit: Unit, help: &'static str) -> Metric {
    gauge(Entity::Netns, name, unit, "/proc/PID/net/sockstat", Kernel(2, 6), help)
}

const fn tracking(name: &'static str, help: &'static str) -> Metric {
    counter(Entity::Netns, name, Unit::Count, "/proc/PID/net/stat/nf_conntrack", Kernel(2, 6), help)
}

/// Of each network namespace but the recorder's own, whose numbers are those of the machine.
pub const NETNS: &[Metric] = &[
    snmp("netns.tcp_ActiveOpens", Kernel(2, 6), "Connections that this host began."),
    snmp("netns.tcp_PassiveOpens", Kernel(2, 6), "Connections that a peer began."),
    snmp("netns.tcp_AttemptFails", Kernel(2, 6), "Connections that failed before they were established."),
    snmp(
        "netns.tcp_EstabResets",
        Kernel(2, 6),
        "Established connections that ended with a reset, from either side.",
    ),
    snmp("netns.tcp_InSegs", Kernel(2, 6), "Segments received, damaged ones included."),
    snmp("netns.tcp_OutSegs", Kernel(2, 6), "Segments sent, without those that only repeat."),
    snmp("netns.tcp_RetransSegs", Kernel(2, 6), "Segments sent again."),
    snmp("netns.tcp_OutRsts", Kernel(2, 6), "Resets sent."),
    gauge(
        Entity::Netns,
        "netns.tcp_CurrEstab",
        Unit::Count,
        "/proc/PID/net/snmp",
        Kernel(2, 6),
        "Connections in ESTABLISHED or CLOSE-WAIT.",
    ),
    netstat(
        "netns.tcpext_ListenOverflows",
        Kernel(2, 6),
        "Connections refused because the accept queue of a listening socket was full: the program accepts too slowly.",
    ),
    netstat(
        "netns.tcpext_ListenDrops",
        Kernel(2, 6),
        "Connections refused by a listening socket for any reason, ListenOverflows included.",
    ),
    netstat("netns.tcpext_TCPSynRetrans", Kernel(3, 15), "SYNs and replies to SYNs sent again."),
    netstat("netns.tcpext_TCPTimeouts", Kernel(2, 6), "Retransmission timers that ran out."),
    netstat("netns.tcpext_TCPLossProbes", Kernel(3, 10), "Tail loss probes sent."),
    netstat("netns.tcpext_TCPLossProbeRecovery", Kernel(3, 10), "Losses repaired by a tail loss probe."),
    netstat("netns.tcpext_TCPFastRetrans", Kernel(2, 6), "Segments repeated in fast recovery."),
    netstat(
        "netns.tcpext_TCPSlowStartRetrans",
        Kernel(2, 6),
        "Segments repeated in slow start after a timeout.",
    ),
    netstat(
        "netns.tcpext_TCPDSACKRecv",
        Kernel(2, 6),
        "Duplicates that a peer reported: we repeated for nothing.",
    ),
    netstat("netns.tcpext_TCPDSACKRecvSegs", Kernel(5, 9), "Segments that a peer reported as duplicates."),
    netstat(
        "netns.tcpext_TCPAbortOnMemory",
        Kernel(2, 6),
        "Connections reset because there were too many orphans or TCP was out of memory.",
    ),
    netstat(
        "netns.tcpext_TCPBacklogDrop",
        Kernel(2, 6),
        "Segments dropped because the backlog of a socket was full.",
    ),
    netstat(
        "netns.tcpext_TCPRcvQDrop",
        Kernel(4, 18),
        "Segments dropped because the receive queue was full.",
    ),
    netstat(
        "netns.tcpext_PruneCalled",
        Kernel(2, 6),
        "Times that a receive queue was shrunk because the socket was out of buffer.",
    ),
    netstat("netns.tcpext_TCPLostRetransmit", Kernel(2, 6), "Repeated segments that were lost again."),
    netstat(
        "netns.tcpext_TCPReqQFullDrop",
        Kernel(2, 6),
        "Times that the queue of half-open connections was full and the SYN was dropped.",
    ),
    netstat(
        "netns.tcpext_TCPReqQFullDoCookies",
        Kernel(2, 6),
        "Times that the queue of half-open connections was full and a cookie was sent.",
    ),
    netstat("netns.tcpext_EmbryonicRsts", Kernel(2, 6), "Resets received for half-open connections."),
    snmp("netns.udp_InDatagrams", Kernel(2, 6), "Packets handed to a program."),
    snmp("netns.udp_OutDatagrams", Kernel(2, 6), "Packets sent."),
    snmp(
        "netns.udp_InErrors",
        Kernel(2, 6),
        "Packets that could not be handed over; full receive buffers are counted here too.",
    ),
    snmp("netns.udp_NoPorts", Kernel(2, 6), "Packets for a port on which nobody listens."),
    snmp(
        "netns.udp_RcvbufErrors",
        Kernel(2, 6),
        "Packets dropped because the receive buffer of the socket was full: the program reads too slowly.",
    ),
    snmp(
        "netns.udp_SndbufErrors",
        Kernel(2, 6),
        "Packets not sent for lack of buffer, or dropped by the queue of the device.",
    ),
    snmp(
        "netns.udp_MemErrors",
        Kernel(5, 11),
        "Packets dropped because all UDP sockets together were at net.ipv4.udp_mem.",
    ),
    snmp(
        "netns.ip_InDiscards",
        Kernel(2, 6),
        "Good packets dropped on receive, for lack of memory for instance.",
    ),
    snmp(
        "netns.ip_OutDiscards",
        Kernel(2, 6),
        "Good packets dropped on sending, by a full queue of the device for instance.",
    ),
    snmp("netns.ip_OutNoRoutes", Kernel(2, 6), "Packets dropped for want of a route."),
    sockets(
        "netns.sock_tcp_inuse",
        Unit::Count,
        "TCP sockets, listening ones included and those in TIME-WAIT not.",
    ),
    sockets(
        "netns.sock_tcp_orphan",
        Unit::Count,
        "TCP sockets that no process holds any more. Of the whole machine.",
    ),
    sockets("netns.sock_tcp_tw", Unit::Count, "Connections in TIME-WAIT."),
    sockets("netns.sock_tcp_mem", Unit::Pages, "Pages that TCP buffers of the whole machine take."),
    sockets("netns.sock_udp_inuse", Unit::Count, "UDP sockets."),
    gauge(
        Entity::Netns,
        "netns.sock_listen_queue_max",
        Unit::Count,
        "sock_diag:idiag_rqueue",
        Kernel(3, 3),
        "Connections that wait to be accepted, of the listening socket that has the most.",
    ),
    gauge(
        Entity::Netns,
        "netns.conntrack_count",
        Unit::Count,
        "/proc/PID/net/stat/nf_conntrack:entries",
        Kernel(2, 6),
        "Connections tracked.",
    ),
    gauge(
        Entity::Netns,
        "netns.conntrack_max",
        Unit::Count,
        "/proc/sys/net/netfilter/nf_conntrack_max, read inside",
        Kernel(2, 6),
        "Connections that may be tracked. Read every few seconds.",
    ),
    tracking(
        "netns.conntrack_drop",
        "Packets dropped because the connection could not be tracked: the table is full, or no memory.",
    ),
    tracking(
        "netns.conntrack_early_drop",
        "Tracked connections given up to make room for new ones: the table is full.",
    ),
    tracking(
        "netns.conntrack_insert_failed",
        "Connections that could not be entered, mostly because another packet was faster.",
    ),
    text(
        Entity::Netns,
        "netns.sysctl_net_ipv4_ip_local_port_range",
        "/proc/sys/net/ipv4/ip_local_port_range, read inside",
        Kernel(3, 16),
        "Ports from which connections begin. Read every few seconds.",
    ),
    gauge(
        Entity::Netns,
        "netns.pid",
        Unit::None,
        "nsproxy.net_ns; /proc/PID/ns/net",
        Kernel(3, 8),
        "Process id of a process in it, the oldest that was found.",
    ),
    text(
        Entity::Netns,
        "netns.comm",
        "nsproxy.net_ns; /proc/PID/comm",
        Kernel(3, 8),
        "Name of that process.",
    ),
];

/// How many there are.
pub const NETNS_TOTALS: &[Metric] = &[
    gauge(
        Entity::System,
        "sys.netns_count",
        Unit::Count,
        "nsproxy.net_ns; /proc/PID/ns/net",
        Kernel(3, 8),
        "Network namespaces in which a process runs or that have a name in /run/netns, the recorder's own included.",
    ),
    gauge(
        Entity::System,
        "sys.netns_left_out",
        Unit::Count,
        "nsproxy.net_ns; /proc/PID/ns/net",
        Kernel(3, 8),
        "Of those, the ones that have no row because there are too many.",
    ),
];
