//! Trouble on the network: packets dropped by reason, peers, full sockets (`bpf/net.bpf.c`).

use std::io;
use std::net::Ipv6Addr;

use aya::maps::MapData;

use super::sys::{MapReader, Plain};

/// Reasons have smaller numbers; those of subsystems are counted under the last one.
pub const DROP_REASONS: usize = 256;
/// As many entries as the kernel's map holds.
const PEERS_MAX: usize = 256;

/// Dropped packets by the number of the reason.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct DropCounts {
    packets: [u64; DROP_REASONS],
}
const _: () = assert!(size_of::<DropCounts>() == 8 * DROP_REASONS, "twin: struct drop_counts in bpf/net.h");
// SAFETY: only u64 fields.
unsafe impl Plain for DropCounts {}

/// A remote end. Without a port it stands for the many ports from which clients connect.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PeerKey {
    address: [u8; 16],
    /// The port, 0 for any.
    pub port: u32,
    pad: u32,
}
const _: () = assert!(size_of::<PeerKey>() == 24, "twin: struct peer in bpf/net.h");
// SAFETY: repr(C), bytes and u32 fields, no hole.
unsafe impl Plain for PeerKey {}

impl PeerKey {
    /// Its address; version 4 ones are written within version 6 ones.
    pub fn address(&self) -> Ipv6Addr {
        Ipv6Addr::from(self.address)
    }
}

/// What happened with a peer, since it is in the table.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct PeerSum {
    /// Segments sent to it again.
    pub retransmits: u64,
    /// Resets that it sent.
    pub resets_received: u64,
    /// Resets sent to it.
    pub resets_sent: u64,
}
const _: () = assert!(size_of::<PeerSum>() == 24, "twin: struct peer_sum in bpf/net.h");
// SAFETY: only u64 fields.
unsafe impl Plain for PeerSum {}

/// Counts of the whole machine since the start.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetTotals {
    /// Grows with each change of a peer.
    pub peer_events: u64,
    /// Changes of peers that found no room.
    pub peers_lost: u64,
    /// `sock_rcvqueue_full`.
    pub rcvqueue_full: u64,
    /// `sock_exceed_buf_limit`.
    pub exceed_buf_limit: u64,
    /// `udp_fail_queue_rcv_skb`.
    pub udp_fail_queue_rcv: u64,
}
const _: () = assert!(size_of::<NetTotals>() == 40, "twin: globals of bpf/net.bpf.c");
// SAFETY: only u64 fields.
unsafe impl Plain for NetTotals {}

/// Which of its programs are attached: what is not counted is not zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct NetAttached {
    /// `kfree_skb` with a reason.
    pub drops: bool,
    /// Any of those that count by peer.
    pub peers: bool,
    /// `sock_rcvqueue_full`.
    pub rcvqueue_full: bool,
    /// `sock_exceed_buf_limit`.
    pub exceed_buf_limit: bool,
    /// `udp_fail_queue_rcv_skb`.
    pub udp_fail_queue_rcv: bool,
}

/// What the programs of the network count.
pub struct NetTrouble {
    drops: MapReader<u32, DropCounts>,
    peers: MapReader<PeerKey, PeerSum>,
    totals: MapReader<u32, NetTotals>,
    /// What is counted at all.
    pub attached: NetAttached,
}

impl NetTrouble {
    pub(super) fn new(
        [drops, peers, globals]: [&MapData; 3],
        cpus: usize,
        attached: NetAttached,
    ) -> io::Result<Self> {
        Ok(Self {
            drops: MapReader::new(drops, cpus)?,
            peers: MapReader::new(peers, 1)?,
            totals: MapReader::new(globals, 1)?,
            attached,
        })
    }

    /// Calls `f` with each reason that has dropped a packet since the start, and how many. Does not allocate.
    pub fn drops(&mut self, mut f: impl FnMut(usize, u64)) -> io::Result<()> {
        let counts = self.drops.lookup(&0)?.unwrap_or_default();
        for reason in 0..DROP_REASONS {
            let of = |one: &DropCounts| one.packets.get(reason).copied().unwrap_or(0);
            let sum = counts.iter().map(of).fold(0, u64::saturating_add);
            if sum > 0 {
                f(reason, sum);
            }
        }
        Ok(())
    }

    /// The counts of the whole machine.
    pub fn totals(&mut self) -> io::Result<Option<NetTotals>> {
        Ok(self.totals.lookup(&0)?.and_then(<[_]>::first).copied())
    }

    /// Calls `f` with each peer: worth it only when [`NetTotals::peer_events`] has moved.
    pub fn peers(&mut self, mut f: impl FnMut(&PeerKey, &PeerSum)) -> io::Result<()> {
        self.peers.each(PEERS_MAX, |key, sums| sums.iter().for_each(|sum| f(key, sum)))
    }
}
