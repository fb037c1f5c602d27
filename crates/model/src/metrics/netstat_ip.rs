//! The IP and Multipath TCP counters beyond the standard ones.

use crate::metric::{Entity, Kernel, Metric, Unit, counter, gauge};

const fn ipext_count(name: &'static str, since: Kernel, help: &'static str) -> Metric {
    counter(Entity::System, name, Unit::Count, "/proc/net/netstat:IpExt", since, help)
}

const fn byte_count(name: &'static str, since: Kernel, help: &'static str) -> Metric {
    counter(Entity::System, name, Unit::Bytes, "/proc/net/netstat:IpExt", since, help)
}

const fn mptcpext_count(name: &'static str, since: Kernel, help: &'static str) -> Metric {
    counter(Entity::System, name, Unit::Count, "/proc/net/netstat:MPTcpExt", since, help)
}

const fn level(name: &'static str, since: Kernel, help: &'static str) -> Metric {
    gauge(Entity::System, name, Unit::Count, "/proc/net/netstat:MPTcpExt", since, help)
}

/// The `IpExt` columns of `/proc/net/netstat`.
pub const IPEXT: &[Metric] = &[
    ipext_count("ipext.InNoRoutes", Kernel(2, 6), "Packets received and dropped because no route led on."),
    ipext_count("ipext.InTruncatedPkts", Kernel(2, 6), "Packets shorter than their header says."),
    ipext_count("ipext.InMcastPkts", Kernel(2, 6), "Multicast packets received."),
    ipext_count("ipext.OutMcastPkts", Kernel(2, 6), "Multicast packets sent."),
    ipext_count("ipext.InBcastPkts", Kernel(2, 6), "Broadcast packets received."),
    ipext_count("ipext.OutBcastPkts", Kernel(2, 6), "Broadcast packets sent."),
    byte_count("ipext.InOctets", Kernel(2, 6), "Bytes received in IP packets."),
    byte_count(
        "ipext.OutOctets",
        Kernel(2, 6),
        "Bytes sent in IP packets. Counted twice for forwarded and some sent packets before 6.6.",
    ),
    byte_count("ipext.InMcastOctets", Kernel(2, 6), "Bytes received in multicast packets."),
    byte_count("ipext.OutMcastOctets", Kernel(2, 6), "Bytes sent in multicast packets."),
    byte_count("ipext.InBcastOctets", Kernel(2, 6), "Bytes received in broadcast packets."),
    byte_count("ipext.OutBcastOctets", Kernel(2, 6), "Bytes sent in broadcast packets."),
    ipext_count("ipext.InCsumErrors", Kernel(3, 10), "Packets with a bad header checksum."),
    ipext_count("ipext.InNoECTPkts", Kernel(3, 10), "Packets from senders without congestion notification."),
    ipext_count("ipext.InECT1Pkts", Kernel(3, 10), "Packets marked ECT(1)."),
    ipext_count("ipext.InECT0Pkts", Kernel(3, 10), "Packets marked ECT(0)."),
    ipext_count("ipext.InCEPkts", Kernel(3, 10), "Packets that a router marked as congested."),
    ipext_count("ipext.ReasmOverlaps", Kernel(4, 17), "Packets dropped because their fragments overlapped."),
];

/// The `MPTcpExt` columns of `/proc/net/netstat`.
pub const MPTCPEXT: &[Metric] = &[
    mptcpext_count("mptcpext.MPCapableSYNRX", Kernel(5, 6), "SYNs with MP_CAPABLE received."),
    mptcpext_count("mptcpext.MPCapableSYNTX", Kernel(5, 14), "SYNs with MP_CAPABLE sent."),
    mptcpext_count("mptcpext.MPCapableSYNACKRX", Kernel(5, 14), "Replies with MP_CAPABLE received."),
    mptcpext_count(
        "mptcpext.MPCapableACKRX",
        Kernel(5, 6),
        "Last ACKs of the handshake with MP_CAPABLE received.",
    ),
    mptcpext_count(
        "mptcpext.MPCapableFallbackACK",
        Kernel(5, 6),
        "Servers that fell back to TCP at the last ACK.",
    ),
    mptcpext_count(
        "mptcpext.MPCapableFallbackSYNACK",
        Kernel(5, 6),
        "Clients that fell back to TCP at the reply.",
    ),
    mptcpext_count(
        "mptcpext.MPCapableSYNTXDrop",
        Kernel(6, 12),
        "Clients that fell back because the SYN seemed to be dropped.",
    ),
    mptcpext_count(
        "mptcpext.MPCapableSYNTXDisabled",
        Kernel(6, 12),
        "Clients that began with TCP because MP_CAPABLE was being dropped.",
    ),
    mptcpext_count(
        "mptcpext.MPCapableEndpAttempt",
        Kernel(6, 12),
        "Connections begun over an endpoint of the laminar kind.",
    ),
    mptcpext_count(
        "mptcpext.MPFallbackTokenInit",
        Kernel(5, 14),
        "Fallbacks because no token could be made.",
    ),
    mptcpext_count("mptcpext.MPTCPRetrans", Kernel(5, 6), "Segments sent again at the Multipath level."),
    mptcpext_count("mptcpext.MPJoinNoTokenFound", Kernel(5, 6), "Joins for a connection that is not known."),
    mptcpext_count("mptcpext.MPJoinSynRx", Kernel(5, 6), "SYNs with MP_JOIN received."),
    mptcpext_count("mptcpext.MPJoinSynBackupRx", Kernel(6, 11), "Such SYNs with the backup flag."),
    mptcpext_count("mptcpext.MPJoinSynAckRx", Kernel(5, 6), "Replies with MP_JOIN received."),
    mptcpext_count("mptcpext.MPJoinSynAckBackupRx", Kernel(6, 11), "Such replies with the backup flag."),
    mptcpext_count(
        "mptcpext.MPJoinSynAckHMacFailure",
        Kernel(5, 6),
        "Such replies with a wrong authentication.",
    ),
    mptcpext_count("mptcpext.MPJoinAckRx", Kernel(5, 6), "Last ACKs with MP_JOIN received."),
    mptcpext_count("mptcpext.MPJoinAckHMacFailure", Kernel(5, 6), "Such ACKs with a wrong authentication."),
    mptcpext_count("mptcpext.MPJoinRejected", Kernel(6, 15), "Joins that the path manager refused."),
    mptcpext_count("mptcpext.MPJoinSynTx", Kernel(6, 12), "SYNs with MP_JOIN to be sent."),
    mptcpext_count(
        "mptcpext.MPJoinSynTxCreatSkErr",
        Kernel(6, 12),
        "Joins that failed because no socket could be made.",
    ),
    mptcpext_count("mptcpext.MPJoinSynTxBindErr", Kernel(6, 12), "Joins that failed at bind."),
    mptcpext_count("mptcpext.MPJoinSynTxConnectErr", Kernel(6, 12), "Joins that failed at connect."),
    mptcpext_count("mptcpext.DSSNotMatching", Kernel(5, 6), "Mappings that contradict the one before."),
    mptcpext_count(
        "mptcpext.DSSCorruptionFallback",
        Kernel(6, 10),
        "Broken mappings that led to a fallback.",
    ),
    mptcpext_count("mptcpext.DSSCorruptionReset", Kernel(6, 10), "Broken mappings that led to a reset."),
    mptcpext_count("mptcpext.InfiniteMapTx", Kernel(5, 19), "Infinite mappings sent."),
    mptcpext_count("mptcpext.InfiniteMapRx", Kernel(5, 6), "Infinite mappings received."),
    mptcpext_count(
        "mptcpext.DSSNoMatchTCP",
        Kernel(5, 15),
        "Mappings that do not match the TCP sequence numbers.",
    ),
    mptcpext_count("mptcpext.DataCsumErr", Kernel(5, 14), "Data with a bad checksum."),
    mptcpext_count(
        "mptcpext.OFOQueueTail",
        Kernel(5, 10),
        "Segments put at the end of the queue of those out of order.",
    ),
    mptcpext_count("mptcpext.OFOQueue", Kernel(5, 10), "Segments put into the queue of those out of order."),
    mptcpext_count("mptcpext.OFOMerge", Kernel(5, 10), "Segments merged in the queue of those out of order."),
    mptcpext_count("mptcpext.NoDSSInWindow", Kernel(5, 10), "Data without a mapping inside the window."),
    mptcpext_count("mptcpext.DuplicateData", Kernel(5, 10), "Data received twice."),
    mptcpext_count("mptcpext.AddAddr", Kernel(5, 10), "Addresses that a peer announced."),
    mptcpext_count("mptcpext.AddAddrTx", Kernel(6, 4), "Addresses announced."),
    mptcpext_count("mptcpext.AddAddrTxDrop", Kernel(6, 4), "Addresses that could not be announced."),
    mptcpext_count("mptcpext.EchoAdd", Kernel(5, 10), "Announcements that a peer confirmed."),
    mptcpext_count("mptcpext.EchoAddTx", Kernel(6, 4), "Announcements confirmed."),
    mptcpext_count("mptcpext.EchoAddTxDrop", Kernel(6, 4), "Announcements that could not be confirmed."),
    mptcpext_count("mptcpext.PortAdd", Kernel(5, 12), "Addresses announced with a port by a peer."),
    mptcpext_count("mptcpext.AddAddrDrop", Kernel(5, 14), "Announcements of a peer that were dropped."),
    mptcpext_count("mptcpext.MPJoinPortSynRx", Kernel(5, 12), "SYNs with MP_JOIN for another port received."),
    mptcpext_count(
        "mptcpext.MPJoinPortSynAckRx",
        Kernel(5, 12),
        "Replies with MP_JOIN for another port received.",
    ),
    mptcpext_count(
        "mptcpext.MPJoinPortAckRx",
        Kernel(5, 12),
        "Last ACKs with MP_JOIN for another port received.",
    ),
    mptcpext_count(
        "mptcpext.MismatchPortSynRx",
        Kernel(5, 12),
        "SYNs with MP_JOIN for a port that does not match.",
    ),
    mptcpext_count(
        "mptcpext.MismatchPortAckRx",
        Kernel(5, 12),
        "ACKs with MP_JOIN for a port that does not match.",
    ),
    mptcpext_count("mptcpext.RmAddr", Kernel(5, 10), "Addresses that a peer took back."),
    mptcpext_count("mptcpext.RmAddrDrop", Kernel(5, 14), "Such messages that were dropped."),
    mptcpext_count("mptcpext.RmAddrTx", Kernel(6, 4), "Addresses taken back."),
    mptcpext_count("mptcpext.RmAddrTxDrop", Kernel(6, 4), "Addresses that could not be taken back."),
    mptcpext_count("mptcpext.RmSubflow", Kernel(5, 10), "Paths that were closed."),
    mptcpext_count("mptcpext.MPPrioTx", Kernel(5, 13), "Changes of priority sent."),
    mptcpext_count("mptcpext.MPPrioRx", Kernel(5, 13), "Changes of priority received."),
    mptcpext_count("mptcpext.MPFailTx", Kernel(5, 18), "Failures reported to the peer."),
    mptcpext_count("mptcpext.MPFailRx", Kernel(5, 18), "Failures that the peer reported."),
    mptcpext_count("mptcpext.MPFastcloseTx", Kernel(5, 18), "Fast closes sent."),
    mptcpext_count("mptcpext.MPFastcloseRx", Kernel(5, 18), "Fast closes received."),
    mptcpext_count("mptcpext.MPRstTx", Kernel(5, 18), "Resets of a path sent."),
    mptcpext_count("mptcpext.MPRstRx", Kernel(5, 18), "Resets of a path received."),
    mptcpext_count(
        "mptcpext.RcvPruned",
        Kernel(5, 13),
        "Segments dropped because the receive queue was full; gone in 6.x.",
    ),
    mptcpext_count("mptcpext.SubflowStale", Kernel(5, 15), "Paths that stopped answering."),
    mptcpext_count("mptcpext.SubflowRecover", Kernel(5, 15), "Paths that answered again."),
    mptcpext_count(
        "mptcpext.SndWndShared",
        Kernel(5, 19),
        "Times that the window was taken over from another path on sending.",
    ),
    mptcpext_count(
        "mptcpext.RcvWndShared",
        Kernel(5, 19),
        "Times that the window was raised to that of another path.",
    ),
    mptcpext_count(
        "mptcpext.RcvWndConflictUpdate",
        Kernel(5, 19),
        "Conflicts over the window that were settled.",
    ),
    mptcpext_count("mptcpext.RcvWndConflict", Kernel(5, 19), "Conflicts over the window between paths."),
    level("mptcpext.MPCurrEstab", Kernel(6, 8), "Multipath connections that are established."),
    mptcpext_count(
        "mptcpext.Blackhole",
        Kernel(6, 12),
        "Times that Multipath was switched off because it seemed to be blocked.",
    ),
    mptcpext_count("mptcpext.MPCapableDataFallback", Kernel(6, 17), "Fallbacks because of the first data."),
    mptcpext_count("mptcpext.MD5SigFallback", Kernel(6, 17), "Fallbacks because of MD5 signatures."),
    mptcpext_count("mptcpext.DssFallback", Kernel(6, 17), "Fallbacks because of a mapping."),
    mptcpext_count(
        "mptcpext.SimultConnectFallback",
        Kernel(6, 17),
        "Fallbacks because both sides connected at once.",
    ),
    mptcpext_count("mptcpext.FallbackFailed", Kernel(6, 17), "Fallbacks that were no longer possible."),
    mptcpext_count("mptcpext.WinProbe", Kernel(6, 18), "Probes sent because the peer's window was 0."),
];
