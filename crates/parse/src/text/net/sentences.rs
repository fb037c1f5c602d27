//! What `netstat -s` of the net-tools says instead of the kernel's names of counters, in all its versions.

/// The full name of the metric of a sentence without its number.
pub(super) fn metric(area: &str, direction: &str, said: &str) -> Option<String> {
    let area = area.to_ascii_lowercase();
    let kind = ICMP.iter().find(|(sentence, _)| *sentence == said).filter(|_| area == "icmp");
    if let Some((_, kind)) = kind {
        return (!direction.is_empty()).then(|| format!("icmp.{direction}{kind}"));
    }
    let of_area = match area.as_str() {
        "ip" => IP,
        "icmp" => ICMP_SUMS,
        "tcp" => TCP,
        "udp" | "udplite" => UDP,
        "tcpext" => TCPEXT,
        _ => return None,
    };
    let name = of_area.iter().find(|(sentence, _)| *sentence == said)?.1;
    Some(format!("{area}.{name}"))
}

type Sentences = &'static [(&'static str, &'static str)];

const IP: Sentences = &[
    ("Default TTL is", "DefaultTTL"),
    ("total packets received", "InReceives"),
    ("with invalid headers", "InHdrErrors"),
    ("with invalid addresses", "InAddrErrors"),
    ("forwarded", "ForwDatagrams"),
    ("with unknown protocol", "InUnknownProtos"),
    ("incoming packets discarded", "InDiscards"),
    ("incoming packets delivered", "InDelivers"),
    ("requests sent out", "OutRequests"),
    ("outgoing packets dropped", "OutDiscards"),
    ("dropped because of missing route", "OutNoRoutes"),
    ("fragments dropped after timeout", "ReasmTimeout"),
    ("reassemblies required", "ReasmReqds"),
    ("packets reassembled ok", "ReasmOKs"),
    ("packet reassembles failed", "ReasmFails"),
    ("packet reassemblies failed", "ReasmFails"),
    ("fragments received ok", "FragOKs"),
    ("fragments failed", "FragFails"),
    ("fragments created", "FragCreates"),
];

const ICMP_SUMS: Sentences = &[
    ("ICMP messages received", "InMsgs"),
    ("input ICMP message failed", "InErrors"),
    ("ICMP messages sent", "OutMsgs"),
    ("ICMP messages failed", "OutErrors"),
];

const ICMP: Sentences = &[
    ("destination unreachable", "DestUnreachs"),
    ("timeout in transit", "TimeExcds"),
    ("time exceeded", "TimeExcds"),
    ("wrong parameters", "ParmProbs"),
    ("source quenches", "SrcQuenchs"),
    ("source quench", "SrcQuenchs"),
    ("redirects", "Redirects"),
    ("redirect", "Redirects"),
    ("echo requests", "Echos"),
    ("echo request", "Echos"),
    ("echo replies", "EchoReps"),
];

const TCP: Sentences = &[
    ("active connection openings", "ActiveOpens"),
    ("active connections openings", "ActiveOpens"),
    ("passive connection openings", "PassiveOpens"),
    ("failed connection attempts", "AttemptFails"),
    ("connection resets received", "EstabResets"),
    ("connections established", "CurrEstab"),
    ("segments received", "InSegs"),
    ("segments sent out", "OutSegs"),
    ("segments send out", "OutSegs"),
    ("segments retransmitted", "RetransSegs"),
    ("segments retransmited", "RetransSegs"),
    ("bad segments received", "InErrs"),
    ("resets sent", "OutRsts"),
];

const UDP: Sentences = &[
    ("packets received", "InDatagrams"),
    ("packets to unknown port received", "NoPorts"),
    ("packet receive errors", "InErrors"),
    ("packets sent", "OutDatagrams"),
    ("receive buffer errors", "RcvbufErrors"),
    ("send buffer errors", "SndbufErrors"),
];

const TCPEXT: Sentences = &[
    ("SYN cookies sent", "SyncookiesSent"),
    ("SYN cookies received", "SyncookiesRecv"),
    ("invalid SYN cookies received", "SyncookiesFailed"),
    ("resets received for embryonic SYN_RECV sockets", "EmbryonicRsts"),
    ("packets pruned from receive queue because of socket buffer overrun", "PruneCalled"),
    ("packets pruned from receive queue", "RcvPruned"),
    ("packets dropped from out-of-order queue because of socket buffer overrun", "OfoPruned"),
    ("ICMP packets dropped because they were out-of-window", "OutOfWindowIcmps"),
    ("ICMP packets dropped because socket was locked", "LockDroppedIcmps"),
    ("TCP sockets finished time wait in fast timer", "TW"),
    ("time wait sockets recycled by time stamp", "TWRecycled"),
    ("TCP sockets finished time wait in slow timer", "TWKilled"),
    ("passive connections rejected because of time stamp", "PAWSPassive"),
    ("active connections rejected because of time stamp", "PAWSActive"),
    ("packets rejected in established connections because of timestamp", "PAWSEstab"),
    ("packets rejects in established connections because of timestamp", "PAWSEstab"),
    ("delayed acks sent", "DelayedACKs"),
    ("delayed acks further delayed because of locked socket", "DelayedACKLocked"),
    ("Quick ack mode was activated times", "DelayedACKLost"),
    ("times the listen queue of a socket overflowed", "ListenOverflows"),
    ("SYNs to LISTEN sockets dropped", "ListenDrops"),
    ("SYNs to LISTEN sockets ignored", "ListenDrops"),
    ("packets directly queued to recvmsg prequeue", "TCPPrequeued"),
    ("bytes directly in process context from backlog", "TCPDirectCopyFromBacklog"),
    ("of bytes directly received in process context from backlog", "TCPDirectCopyFromBacklog"),
    ("bytes directly received in process context from prequeue", "TCPDirectCopyFromPrequeue"),
    ("packets dropped from prequeue", "TCPPrequeueDropped"),
    ("packet headers predicted", "TCPHPHits"),
    ("packets header predicted and directly queued to user", "TCPHPHitsToUser"),
    ("acknowledgments not containing data received", "TCPPureAcks"),
    ("acknowledgments not containing data payload received", "TCPPureAcks"),
    ("predicted acknowledgments", "TCPHPAcks"),
    ("times recovered from packet loss due to fast retransmit", "TCPRenoRecovery"),
    ("times recovered from packet loss due to SACK data", "TCPSackRecovery"),
    ("times recovered from packet loss by selective acknowledgements", "TCPSackRecovery"),
    ("bad SACKs received", "TCPSACKReneging"),
    ("bad SACK blocks received", "TCPSACKReneging"),
    ("Detected reordering times using FACK", "TCPFACKReorder"),
    ("Detected reordering times using SACK", "TCPSACKReorder"),
    ("Detected reordering times using time stamp", "TCPTSReorder"),
    ("Detected reordering times using reno fast retransmit", "TCPRenoReorder"),
    ("congestion windows fully recovered without slow start", "TCPFullUndo"),
    ("congestion windows fully recovered", "TCPFullUndo"),
    ("congestion windows partially recovered using Hoe heuristic", "TCPPartialUndo"),
    ("congestion window recovered without slow start using DSACK", "TCPDSACKUndo"),
    ("congestion windows recovered without slow start by DSACK", "TCPDSACKUndo"),
    ("congestion windows recovered without slow start after partial ack", "TCPLossUndo"),
    ("congestion windows recovered after partial ack", "TCPLossUndo"),
    ("retransmits lost", "TCPLostRetransmit"),
    ("timeouts after reno fast retransmit", "TCPRenoFailures"),
    ("timeouts after SACK recovery", "TCPSackFailures"),
    ("timeouts in loss state", "TCPLossFailures"),
    ("fast retransmits", "TCPFastRetrans"),
    ("forward retransmits", "TCPForwardRetrans"),
    ("retransmits in slow start", "TCPSlowStartRetrans"),
    ("other TCP timeouts", "TCPTimeouts"),
    ("classic Reno fast retransmits failed", "TCPRenoRecoveryFail"),
    ("reno fast retransmits failed", "TCPRenoRecoveryFail"),
    ("SACK retransmits failed", "TCPSackRecoveryFail"),
    ("sack retransmits failed", "TCPSackRecoveryFail"),
    ("times receiver scheduled too late for direct processing", "TCPSchedulerFailed"),
    ("packets collapsed in receive queue due to low socket buffer", "TCPRcvCollapsed"),
    ("DSACKs sent for old packets", "TCPDSACKOldSent"),
    ("DSACKs sent for out of order packets", "TCPDSACKOfoSent"),
    ("DSACKs received", "TCPDSACKRecv"),
    ("DSACKs for out of order packets received", "TCPDSACKOfoRecv"),
    ("connections reset due to unexpected data", "TCPAbortOnData"),
    ("connections reset due to early user close", "TCPAbortOnClose"),
    ("connections aborted due to memory pressure", "TCPAbortOnMemory"),
    ("connections aborted due to timeout", "TCPAbortOnTimeout"),
    ("connections aborted after user close in linger timeout", "TCPAbortOnLinger"),
    ("times unable to send RST due to no memory", "TCPAbortFailed"),
    ("TCP ran low on memory times", "TCPMemoryPressures"),
];
