//! Network devices, softnet queues and socket memory.

use crate::metric::{Entity, Kernel, Metric, Unit, counter, gauge};

const fn byte_count(name: &'static str, since: Kernel, help: &'static str) -> Metric {
    counter(Entity::Nic, name, Unit::Bytes, "/proc/net/dev", since, help)
}

const fn nic_count(name: &'static str, since: Kernel, help: &'static str) -> Metric {
    counter(Entity::Nic, name, Unit::Count, "/proc/net/dev", since, help)
}

const fn cpu_count(name: &'static str, since: Kernel, help: &'static str) -> Metric {
    counter(Entity::Cpu, name, Unit::Count, "/proc/net/softnet_stat", since, help)
}

const fn cpu_level(name: &'static str, since: Kernel, help: &'static str) -> Metric {
    gauge(Entity::Cpu, name, Unit::Count, "/proc/net/softnet_stat", since, help)
}

const fn system_level(name: &'static str, since: Kernel, help: &'static str) -> Metric {
    gauge(Entity::System, name, Unit::Count, "/proc/net/sockstat", since, help)
}

const fn pages(name: &'static str, since: Kernel, help: &'static str) -> Metric {
    gauge(Entity::System, name, Unit::Pages, "/proc/net/sockstat", since, help)
}

const fn bytes(name: &'static str, since: Kernel, help: &'static str) -> Metric {
    gauge(Entity::System, name, Unit::Bytes, "/proc/net/sockstat", since, help)
}

/// Of each device in `/proc/net/dev`. The columns of that file merge several kernel counters.
pub const NIC: &[Metric] = &[
    byte_count("nic.rx_bytes", Kernel(2, 6), "Bytes received."),
    nic_count(
        "nic.rx_packets",
        Kernel(2, 6),
        "Packets received. With receive offload one packet may stand for many frames.",
    ),
    nic_count("nic.rx_errs", Kernel(2, 6), "Frames that arrived damaged, of all kinds."),
    nic_count(
        "nic.rx_drop",
        Kernel(2, 6),
        "Packets thrown away on receive: no buffer, but also frames of a protocol that nobody handles. The column alone does not tell which; rx_missed is added to it.",
    ),
    nic_count("nic.rx_fifo", Kernel(2, 6), "Overruns of the receive queue of the device."),
    nic_count("nic.rx_frame", Kernel(2, 6), "Frames with wrong length, checksum, alignment or an overrun."),
    nic_count("nic.rx_compressed", Kernel(2, 6), "Compressed packets received; SLIP and PPP only."),
    nic_count("nic.rx_multicast", Kernel(2, 6), "Multicast packets received."),
    byte_count("nic.tx_bytes", Kernel(2, 6), "Bytes sent."),
    nic_count(
        "nic.tx_packets",
        Kernel(2, 6),
        "Packets sent. With segmentation offload one packet may stand for many frames.",
    ),
    nic_count("nic.tx_errs", Kernel(2, 6), "Packets that could not be sent because of an error."),
    nic_count(
        "nic.tx_drop",
        Kernel(2, 6),
        "Packets thrown away by the driver. Drops of a queueing discipline are not in it.",
    ),
    nic_count("nic.tx_fifo", Kernel(2, 6), "Underruns of the send queue of the device."),
    nic_count("nic.tx_colls", Kernel(2, 6), "Collisions."),
    nic_count(
        "nic.tx_carrier",
        Kernel(2, 6),
        "Carrier losses, aborts, window and heartbeat errors together.",
    ),
    nic_count("nic.tx_compressed", Kernel(2, 6), "Compressed packets sent; SLIP and PPP only."),
];

/// Of each CPU: the queue between the device drivers and the network stack.
pub const SOFTNET: &[Metric] = &[
    cpu_count(
        "softnet.processed",
        Kernel(2, 6),
        "Packets processed on this CPU. A packet may pass more than once.",
    ),
    cpu_count(
        "softnet.dropped",
        Kernel(2, 6),
        "Packets dropped because the backlog of this CPU was longer than net.core.netdev_max_backlog.",
    ),
    cpu_count(
        "softnet.time_squeeze",
        Kernel(2, 6),
        "Times that polling stopped with work left because its budget of packets or time was used up.",
    ),
    cpu_count(
        "softnet.received_rps",
        Kernel(2, 6),
        "Times that this CPU was woken by another to process packets.",
    ),
    cpu_count(
        "softnet.flow_limit",
        Kernel(3, 11),
        "Packets dropped because one flow held too much of the backlog.",
    ),
    cpu_level(
        "softnet.backlog",
        Kernel(5, 10),
        "Packets in the backlog of this CPU at the moment of the sample.",
    ),
];

/// Sockets. The protocol's memory and orphans are of the machine, the rest of the network namespace.
pub const SOCKSTAT: &[Metric] = &[
    system_level("sock.used", Kernel(2, 6), "Sockets of all families."),
    system_level(
        "sock.tcp_inuse",
        Kernel(2, 6),
        "TCP sockets, listening ones included and those in TIME-WAIT not.",
    ),
    system_level(
        "sock.tcp_orphan",
        Kernel(2, 6),
        "TCP sockets that no process holds any more, still sending or waiting for the end. Of the whole machine. At net.ipv4.tcp_max_orphans connections are reset.",
    ),
    system_level("sock.tcp_tw", Kernel(2, 6), "Connections in TIME-WAIT."),
    system_level(
        "sock.tcp_alloc",
        Kernel(2, 6),
        "TCP sockets allocated, in whatever state. Of the whole machine.",
    ),
    pages(
        "sock.tcp_mem",
        Kernel(2, 6),
        "Pages that TCP buffers of the whole machine take; compare with net.ipv4.tcp_mem.",
    ),
    system_level("sock.udp_inuse", Kernel(2, 6), "UDP sockets."),
    pages("sock.udp_mem", Kernel(2, 6), "Pages that UDP buffers of the whole machine take."),
    system_level("sock.udplite_inuse", Kernel(2, 6), "UDP-Lite sockets."),
    system_level("sock.raw_inuse", Kernel(2, 6), "Raw sockets."),
    system_level("sock.frag_inuse", Kernel(2, 6), "IP packets whose fragments are being collected."),
    bytes("sock.frag_memory", Kernel(2, 6), "Memory of the fragments being collected."),
];
