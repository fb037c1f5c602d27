//! Trouble on the network by whom it concerns: full accept queues, dropped packets, peers, name servers.

use crate::metric::{Entity, Kernel, Metric, Unit, bucket, counter, gauge, text};

/// Where name servers are watched: BPF programs at the root of the version 2 control groups.
const HOOKS: &str = "cgroup/connect, sendmsg, recvmsg, sock_release";
/// `cgroup/recvmsg` came with 5.2 and `cgroup/sock_release` with 5.9.
const HOOKS_SINCE: Kernel = Kernel(5, 9);

const fn peer(name: &'static str, source: &'static str, help: &'static str) -> Metric {
    counter(Entity::Peer, name, Unit::Count, source, Kernel(4, 16), help)
}

const fn asked(name: &'static str, help: &'static str) -> Metric {
    counter(Entity::Resolver, name, Unit::Count, HOOKS, HOOKS_SINCE, help)
}

const fn wait(name: &'static str, help: &'static str) -> Metric {
    bucket(Entity::Resolver, name, HOOKS, HOOKS_SINCE, help)
}

const fn full(name: &'static str, source: &'static str, help: &'static str) -> Metric {
    counter(Entity::System, name, Unit::Count, source, Kernel(5, 5), help)
}

/// Of each listening TCP socket whose queue is not empty, or was not within the last minute; and of each UDP socket that
/// drops, or did within the last minute, under `ADDR:PORT/udp`.
pub const LISTENER: &[Metric] = &[
    gauge(
        Entity::Listener,
        "listener.queue",
        Unit::Count,
        "sock_diag:idiag_rqueue",
        Kernel(3, 3),
        "Connections that wait to be accepted. Sockets that share address and port are added up.",
    ),
    gauge(
        Entity::Listener,
        "listener.backlog",
        Unit::Count,
        "sock_diag:idiag_wqueue",
        Kernel(3, 3),
        "How many may wait. One more than that is let in; further ones are dropped.",
    ),
    gauge(
        Entity::Listener,
        "listener.pid",
        Unit::None,
        "sock_diag:idiag_inode; /proc/PID/fd",
        Kernel(3, 3),
        "Process id of a process that holds the socket. Looked for only when more than half of the queue is used, or the socket drops.",
    ),
    text(
        Entity::Listener,
        "listener.comm",
        "sock_diag:idiag_inode; /proc/PID/fd",
        Kernel(3, 3),
        "Name of that process.",
    ),
    counter(
        Entity::Listener,
        "listener.drops",
        Unit::Count,
        "sock_diag:SK_MEMINFO_DROPS",
        Kernel(4, 6),
        "Datagrams that UDP sockets dropped, mostly because their receive buffer was full. Asked for only while udp.RcvbufErrors of the namespace grows.",
    ),
];

/// Of each reason for which packets were dropped since the recorder started, in all network namespaces.
pub const DROP: &[Metric] = &[counter(
    Entity::Drop,
    "drop.packets",
    Unit::Count,
    "tp_btf/kfree_skb; names from enum skb_drop_reason",
    Kernel(5, 17),
    "Packets thrown away for this reason. `not_specified` holds much that is harmless; `other` is what subsystems with numbers of their own have.",
)];

/// Of each remote end that had trouble, in all network namespaces. Of many only the latest are kept.
pub const PEER: &[Metric] = &[
    peer(
        "peer.retransmits",
        "tp_btf/tcp_retransmit_skb, tcp_retransmit_synack",
        "Segments sent to it again, first packets of connections and the answers to them included.",
    ),
    peer("peer.resets_received", "tp_btf/tcp_receive_reset", "Connections that it reset."),
    peer(
        "peer.resets_sent",
        "tp_btf/tcp_send_reset",
        "Resets sent to it, also in answer to packets for a port on which nobody listens.",
    ),
];

/// Of each name server, by what programs do with their sockets: UDP to port 53. TCP, TLS and HTTPS are not seen.
pub const RESOLVER: &[Metric] = &[
    asked(
        "resolver.queries",
        "Times that a program turned to it. A socket that is connected to it counts once for each time it is connected, as its packets are not seen: the two questions that glibc asks at once are one.",
    ),
    asked(
        "resolver.answers",
        "Answers that programs read. Of a program that reads without asking for the sender, as Go does, one when it closes the socket on which something came.",
    ),
    asked(
        "resolver.unanswered",
        "Times that a program gave up: it closed its socket, or turned to the next server, without an answer; or after an answer it waited between one second and thirty, as glibc does when the second of two answers is lost.",
    ),
    counter(
        Entity::Resolver,
        "resolver.wait_time",
        Unit::Nanos,
        HOOKS,
        HOOKS_SINCE,
        "Time that programs waited, from the question to the answer or to giving up, or until now, added up. Who has no answer after thirty seconds is taken to wait no longer.",
    ),
    wait("resolver.latency_le_1ms", "Answers that came within 1024 us."),
    wait("resolver.latency_le_2ms", "Answers that came after more than 1024 us and at most 2048 us."),
    wait("resolver.latency_le_4ms", "Answers that came after more than 2048 us and at most 4096 us."),
    wait("resolver.latency_le_8ms", "Answers that came after more than 4096 us and at most 8192 us."),
    wait("resolver.latency_le_16ms", "Answers that came after more than 8192 us and at most 16384 us."),
    wait("resolver.latency_le_32ms", "Answers that came after more than 16384 us and at most 32768 us."),
    wait("resolver.latency_le_64ms", "Answers that came after more than 32768 us and at most 65536 us."),
    wait("resolver.latency_le_128ms", "Answers that came after more than 65536 us and at most 131072 us."),
    wait("resolver.latency_le_256ms", "Answers that came after more than 131072 us and at most 262144 us."),
    wait("resolver.latency_le_512ms", "Answers that came after more than 262144 us and at most 524288 us."),
    wait("resolver.latency_le_1s", "Answers that came after more than 524288 us and at most 1048576 us."),
    wait("resolver.latency_le_2s", "Answers that came after more than 1048576 us and at most 2097152 us."),
    wait("resolver.latency_le_4s", "Answers that came after more than 2097152 us and at most 4194304 us."),
    wait("resolver.latency_le_8s", "Answers that came after more than 4194304 us and at most 8388608 us."),
    wait("resolver.latency_inf", "Answers that came after more than 8388608 us."),
    gauge(
        Entity::Resolver,
        "resolver.pid",
        Unit::None,
        HOOKS,
        HOOKS_SINCE,
        "Process id of the program that waited longest since the frame before, or last.",
    ),
    text(Entity::Resolver, "resolver.comm", HOOKS, HOOKS_SINCE, "Name of that program."),
];

/// Sockets that were full, in all network namespaces.
pub const FULL_SOCKETS: &[Metric] = &[
    full(
        "probe.sock_rcvqueue_full",
        "tp_btf/sock_rcvqueue_full",
        "Packets dropped because a socket's receive buffer was full: its program reads too slowly.",
    ),
    full(
        "probe.sock_exceed_buf_limit",
        "tp_btf/sock_exceed_buf_limit",
        "Times that a socket could not get memory for its buffers, because of its protocol's limit or its group's.",
    ),
    full(
        "probe.udp_fail_queue_rcv",
        "tp_btf/udp_fail_queue_rcv_skb",
        "Packets that could not be put into the queue of a UDP socket, in all network namespaces.",
    ),
    full(
        "probe.net_lost",
        "BPF maps",
        "Peers and name servers that found no room in the tables of the probes.",
    ),
];
