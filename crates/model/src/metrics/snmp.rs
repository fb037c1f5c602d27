//! Counters of the IP, ICMP, TCP and UDP protocols.

use crate::metric::{Entity, Kernel, Metric, Unit, counter, gauge};

const fn state(name: &'static str, since: Kernel, help: &'static str) -> Metric {
    gauge(Entity::System, name, Unit::None, "/proc/net/snmp", since, help)
}

const fn count(name: &'static str, since: Kernel, help: &'static str) -> Metric {
    counter(Entity::System, name, Unit::Count, "/proc/net/snmp", since, help)
}

const fn millis_level(name: &'static str, since: Kernel, help: &'static str) -> Metric {
    gauge(Entity::System, name, Unit::Millis, "/proc/net/snmp", since, help)
}

const fn level(name: &'static str, since: Kernel, help: &'static str) -> Metric {
    gauge(Entity::System, name, Unit::Count, "/proc/net/snmp", since, help)
}

/// The columns of `/proc/net/snmp`, of the network namespace that the recorder is in. IPv4; TCP and UDP count version 6 too, except UDP, which has a file of its own for it.
pub const SNMP: &[Metric] = &[
    state("ip.Forwarding", Kernel(2, 6), "1 if the host forwards packets, 2 if not."),
    state("ip.DefaultTTL", Kernel(2, 6), "Time to live of packets sent."),
    count("ip.InReceives", Kernel(2, 6), "Packets received, damaged ones included."),
    count(
        "ip.InHdrErrors",
        Kernel(2, 6),
        "Packets dropped for a bad header: version, length, checksum or time to live.",
    ),
    count("ip.InAddrErrors", Kernel(2, 6), "Packets dropped because the address was not valid here."),
    count("ip.ForwDatagrams", Kernel(2, 6), "Packets forwarded."),
    count("ip.InUnknownProtos", Kernel(2, 6), "Packets dropped because nobody handles their protocol."),
    count("ip.InDiscards", Kernel(2, 6), "Good packets dropped on receive, for lack of memory for instance."),
    count("ip.InDelivers", Kernel(2, 6), "Packets handed to a protocol above."),
    count("ip.OutRequests", Kernel(2, 6), "Packets that protocols above asked to send."),
    count(
        "ip.OutDiscards",
        Kernel(2, 6),
        "Good packets dropped on sending, by a full queue of the device for instance.",
    ),
    count("ip.OutNoRoutes", Kernel(2, 6), "Packets dropped for want of a route."),
    count("ip.ReasmTimeout", Kernel(2, 6), "Packets given up because fragments did not come in time."),
    count("ip.ReasmReqds", Kernel(2, 6), "Fragments that had to be put together."),
    count("ip.ReasmOKs", Kernel(2, 6), "Packets put together."),
    count("ip.ReasmFails", Kernel(2, 6), "Packets that could not be put together."),
    count("ip.FragOKs", Kernel(2, 6), "Packets split into fragments."),
    count("ip.FragFails", Kernel(2, 6), "Packets that could not be split, for instance because they say so."),
    count("ip.FragCreates", Kernel(2, 6), "Fragments made."),
    count("ip.OutTransmits", Kernel(6, 6), "Packets given to the layer below, forwarded ones included."),
    count("icmp.InMsgs", Kernel(2, 6), "Messages received."),
    count("icmp.InErrors", Kernel(2, 6), "Damaged messages received."),
    count("icmp.InCsumErrors", Kernel(3, 10), "Messages received with a bad checksum."),
    count("icmp.InDestUnreachs", Kernel(2, 6), "Destination unreachable received."),
    count("icmp.InTimeExcds", Kernel(2, 6), "Time exceeded received."),
    count("icmp.InParmProbs", Kernel(2, 6), "Parameter problem received."),
    count("icmp.InSrcQuenchs", Kernel(2, 6), "Source quench received."),
    count("icmp.InRedirects", Kernel(2, 6), "Redirects received."),
    count("icmp.InEchos", Kernel(2, 6), "Echo requests received."),
    count("icmp.InEchoReps", Kernel(2, 6), "Echo replies received."),
    count("icmp.InTimestamps", Kernel(2, 6), "Timestamp requests received."),
    count("icmp.InTimestampReps", Kernel(2, 6), "Timestamp replies received."),
    count("icmp.InAddrMasks", Kernel(2, 6), "Address mask requests received."),
    count("icmp.InAddrMaskReps", Kernel(2, 6), "Address mask replies received."),
    count("icmp.OutMsgs", Kernel(2, 6), "Messages sent."),
    count("icmp.OutErrors", Kernel(2, 6), "Messages that could not be sent."),
    count("icmp.OutRateLimitGlobal", Kernel(6, 2), "Messages not sent because of the limit of the host."),
    count("icmp.OutRateLimitHost", Kernel(6, 2), "Messages not sent because of the limit for one peer."),
    count("icmp.OutDestUnreachs", Kernel(2, 6), "Destination unreachable sent."),
    count("icmp.OutTimeExcds", Kernel(2, 6), "Time exceeded sent."),
    count("icmp.OutParmProbs", Kernel(2, 6), "Parameter problem sent."),
    count("icmp.OutSrcQuenchs", Kernel(2, 6), "Source quench sent."),
    count("icmp.OutRedirects", Kernel(2, 6), "Redirects sent."),
    count("icmp.OutEchos", Kernel(2, 6), "Echo requests sent."),
    count("icmp.OutEchoReps", Kernel(2, 6), "Echo replies sent."),
    count("icmp.OutTimestamps", Kernel(2, 6), "Timestamp requests sent."),
    count("icmp.OutTimestampReps", Kernel(2, 6), "Timestamp replies sent."),
    count("icmp.OutAddrMasks", Kernel(2, 6), "Address mask requests sent."),
    count("icmp.OutAddrMaskReps", Kernel(2, 6), "Address mask replies sent."),
    state("tcp.RtoAlgorithm", Kernel(2, 6), "How the retransmission time is found; a constant."),
    millis_level("tcp.RtoMin", Kernel(2, 6), "Least retransmission time; a constant."),
    millis_level("tcp.RtoMax", Kernel(2, 6), "Largest retransmission time; a constant."),
    state("tcp.MaxConn", Kernel(2, 6), "Limit of connections; -1 is none."),
    count("tcp.ActiveOpens", Kernel(2, 6), "Connections that this host began."),
    count("tcp.PassiveOpens", Kernel(2, 6), "Connections that a peer began."),
    count("tcp.AttemptFails", Kernel(2, 6), "Connections that failed before they were established."),
    count(
        "tcp.EstabResets",
        Kernel(2, 6),
        "Established connections that ended with a reset, from either side.",
    ),
    level("tcp.CurrEstab", Kernel(2, 6), "Connections in ESTABLISHED or CLOSE-WAIT."),
    count("tcp.InSegs", Kernel(2, 6), "Segments received, damaged ones included."),
    count("tcp.OutSegs", Kernel(2, 6), "Segments sent, without those that only repeat."),
    count("tcp.RetransSegs", Kernel(2, 6), "Segments sent again."),
    count("tcp.InErrs", Kernel(2, 6), "Damaged segments received."),
    count("tcp.OutRsts", Kernel(2, 6), "Resets sent."),
    count("tcp.InCsumErrors", Kernel(3, 10), "Segments received with a bad checksum."),
    count("udp.InDatagrams", Kernel(2, 6), "Packets handed to a program."),
    count("udp.NoPorts", Kernel(2, 6), "Packets for a port on which nobody listens."),
    count(
        "udp.InErrors",
        Kernel(2, 6),
        "Packets that could not be handed over; full receive buffers are counted here too.",
    ),
    count("udp.OutDatagrams", Kernel(2, 6), "Packets sent."),
    count(
        "udp.RcvbufErrors",
        Kernel(2, 6),
        "Packets dropped because the receive buffer of the socket was full: the program reads too slowly.",
    ),
    count(
        "udp.SndbufErrors",
        Kernel(2, 6),
        "Packets not sent for lack of buffer, or dropped by the queue of the device.",
    ),
    count("udp.InCsumErrors", Kernel(3, 10), "Packets received with a bad checksum."),
    count("udp.IgnoredMulti", Kernel(3, 19), "Multicast packets that no socket wanted."),
    count(
        "udp.MemErrors",
        Kernel(5, 11),
        "Packets dropped because all UDP sockets together were at net.ipv4.udp_mem.",
    ),
    count("udplite.InDatagrams", Kernel(2, 6), "As udp.InDatagrams, for UDP-Lite."),
    count("udplite.NoPorts", Kernel(2, 6), "As udp.NoPorts, for UDP-Lite."),
    count("udplite.InErrors", Kernel(2, 6), "As udp.InErrors, for UDP-Lite."),
    count("udplite.OutDatagrams", Kernel(2, 6), "As udp.OutDatagrams, for UDP-Lite."),
    count("udplite.RcvbufErrors", Kernel(2, 6), "As udp.RcvbufErrors, for UDP-Lite."),
    count("udplite.SndbufErrors", Kernel(2, 6), "As udp.SndbufErrors, for UDP-Lite."),
    count("udplite.InCsumErrors", Kernel(3, 10), "As udp.InCsumErrors, for UDP-Lite."),
    count("udplite.IgnoredMulti", Kernel(3, 19), "As udp.IgnoredMulti, for UDP-Lite."),
    count("udplite.MemErrors", Kernel(5, 11), "As udp.MemErrors, for UDP-Lite."),
];
