//! What the probes of the network count, into the frame: dropped packets, peers, name servers, full sockets.

use mitra_model::{Entity, Frame, Key, StrId, columns};

use super::names::mapped_endpoint;
use crate::bpf::{Open, PeerKey, PeerSum, Probes, ServerKey, ServerSum};
use crate::cells::{cell, col, set};
use crate::io::Io;

/// As many peers and servers have rows.
const PEERS_MAX: usize = 512;
const SERVERS_MAX: usize = 128;
/// A row of which nothing was heard for so long leaves. Long, because who reads only a part of a recording takes what a
/// row that comes back shows for new.
const IDLE_NS_MAX: i64 = 600_000_000_000;

/// What is added up under one key. The kernel's tables forget, and begin a key anew.
#[derive(Debug)]
struct Entry<K, V> {
    key: K,
    last: V,
    total: V,
    touched_ns: i64,
    name: String,
    id: StrId,
}

/// A name server, and for how long programs waited for it.
#[derive(Debug)]
struct Server {
    entry: Entry<ServerKey, ServerSum>,
    /// Of the questions that have no answer yet.
    open_ns: u64,
    /// What was waited in all, with those.
    known_ns: u64,
    /// What `known_ns` has grown by. A question that nobody waits for any more takes its time with it: that was no wait, and
    /// takes nothing from here.
    waited_ns: u64,
}

impl Server {
    fn add_wait(&mut self) {
        let known_ns = self.entry.total.wait_ns.saturating_add(self.open_ns);
        self.waited_ns = self.waited_ns.saturating_add(known_ns.saturating_sub(self.known_ns));
        self.known_ns = known_ns;
    }
}

/// Adds what a counter has grown by; one that is smaller than before began anew.
fn grow(total: &mut u64, last: u64, now: u64) {
    *total = total.saturating_add(if now >= last { now - last } else { now });
}

#[derive(Debug, Clone, Copy)]
struct ResolverColumns {
    counts: [usize; 4],
    pid: usize,
    comm: usize,
}

/// The columns, and what they hold.
#[derive(Debug)]
pub struct TroubleCells {
    packets: usize,
    peer: [usize; 3],
    resolver: ResolverColumns,
    latency: Vec<usize>,
    full: [usize; 3],
    lost: usize,
    drop_names: Vec<Option<StrId>>,
    peers: Vec<Entry<PeerKey, PeerSum>>,
    servers: Vec<Server>,
    peer_events: u64,
    generation: Option<u32>,
    /// Keys that found no row.
    left_out: u64,
}

impl TroubleCells {
    pub fn new() -> Self {
        let latency = columns(Entity::Resolver).iter().enumerate();
        TroubleCells {
            packets: col("drop.packets"),
            peer: ["peer.retransmits", "peer.resets_received", "peer.resets_sent"].map(col),
            resolver: ResolverColumns {
                counts: ["resolver.queries", "resolver.answers", "resolver.unanswered", "resolver.wait_time"]
                    .map(col),
                pid: col("resolver.pid"),
                comm: col("resolver.comm"),
            },
            latency: latency
                .filter(|(_, m)| m.name.starts_with("resolver.latency_"))
                .map(|(column, _)| column)
                .collect(),
            full: ["probe.sock_rcvqueue_full", "probe.sock_exceed_buf_limit", "probe.udp_fail_queue_rcv"]
                .map(col),
            lost: col("probe.net_lost"),
            drop_names: Vec::new(),
            peers: Vec::new(),
            servers: Vec::new(),
            peer_events: 0,
            generation: None,
            left_out: 0,
        }
    }

    /// Fills what is counted since the start. A map that cannot be read leaves its cells unavailable.
    pub fn fill(&mut self, probes: &mut Probes, io: &mut Io, frame: &mut Frame) {
        self.renew_names(probes, io);
        let now = frame.time.mono;
        let mut lost = self.left_out;
        if probes.net.is_some() {
            let read = self.fill_drops(probes, frame);
            io.missing_if("probe.packet_drops", read);
            match self.read_peers(probes, io, now, frame) {
                Ok(peers_lost) => {
                    lost += peers_lost;
                    io.missing_if("probe.tcp_peers", Ok(()));
                }
                Err(error) => io.missing_if("probe.tcp_peers", Err(error)),
            }
        }
        if let Some(resolvers) = &mut probes.resolvers {
            let (servers, left_out) = (&mut self.servers, &mut self.left_out);
            let read = resolvers.read(|key, sum| note_server(servers, left_out, key, sum, io, now));
            servers.iter_mut().for_each(|server| server.open_ns = 0);
            let now_ns = u64::try_from(now).unwrap_or(0);
            let open = resolvers.open(now_ns, |key, open| note_open(servers, key, open, now));
            match read.and_then(|lost| open.map(|()| lost)) {
                Ok(servers_lost) => {
                    lost += servers_lost;
                    io.missing_if("probe.resolvers", Ok(()));
                }
                Err(error) => io.missing_if("probe.resolvers", Err(error)),
            }
        }
        if probes.net.is_some() || probes.resolvers.is_some() {
            set(frame.system_mut(), self.lost, cell(lost));
        }
        self.fill_peers(now, frame);
        self.fill_servers(now, io, frame);
    }

    /// Ids of texts change when the texts are forgotten.
    fn renew_names(&mut self, probes: &Probes, io: &mut Io) {
        let generation = Some(io.strings.generation());
        if self.generation == generation {
            return;
        }
        self.generation = generation;
        let names = probes.drop_names.iter().enumerate();
        self.drop_names = names
            .map(|(number, name)| match name {
                Some(name) => Some(io.strings.intern(name)),
                None if number > 0 => Some(io.strings.intern(&format!("reason_{number}"))),
                None => None,
            })
            .collect();
        for entry in &mut self.peers {
            entry.id = io.strings.intern(&entry.name);
        }
        for server in &mut self.servers {
            server.entry.id = io.strings.intern(&server.entry.name);
        }
    }

    fn fill_drops(&self, probes: &mut Probes, frame: &mut Frame) -> std::io::Result<()> {
        let Some(net) = probes.net.as_mut().filter(|net| net.attached.drops) else { return Ok(()) };
        let table = frame.table_mut(Entity::Drop);
        net.drops(|reason, packets| {
            if let Some(Some(name)) = self.drop_names.get(reason) {
                set(table.push(Key::named(*name)), self.packets, cell(packets));
            }
        })
    }

    /// Takes in what changed of peers, and fills the cells of the whole machine. Returns what the kernel lost.
    fn read_peers(
        &mut self,
        probes: &mut Probes,
        io: &mut Io,
        now: i64,
        frame: &mut Frame,
    ) -> std::io::Result<u64> {
        let Some(net) = probes.net.as_mut() else { return Ok(0) };
        let Some(totals) = net.totals()? else { return Ok(0) };
        let full = [
            (net.attached.rcvqueue_full, totals.rcvqueue_full),
            (net.attached.exceed_buf_limit, totals.exceed_buf_limit),
            (net.attached.udp_fail_queue_rcv, totals.udp_fail_queue_rcv),
        ];
        let row = frame.system_mut();
        for (column, (is_counted, count)) in self.full.iter().zip(full) {
            if is_counted {
                set(row, *column, cell(count));
            }
        }
        if totals.peer_events != self.peer_events {
            let (peers, left_out) = (&mut self.peers, &mut self.left_out);
            net.peers(|key, sum| note_peer(peers, left_out, key, sum, io, now))?;
            self.peer_events = totals.peer_events;
        }
        Ok(totals.peers_lost)
    }

    fn fill_peers(&mut self, now: i64, frame: &mut Frame) {
        self.peers.retain(|entry| now - entry.touched_ns < IDLE_NS_MAX);
        let table = frame.table_mut(Entity::Peer);
        for entry in &self.peers {
            let row = table.push(Key::named(entry.id));
            let total = &entry.total;
            let values = [total.retransmits, total.resets_received, total.resets_sent];
            for (column, value) in self.peer.iter().zip(values) {
                set(row, *column, cell(value));
            }
        }
    }

    fn fill_servers(&mut self, now: i64, io: &mut Io, frame: &mut Frame) {
        self.servers.retain(|server| now - server.entry.touched_ns < IDLE_NS_MAX);
        let table = frame.table_mut(Entity::Resolver);
        for server in &mut self.servers {
            server.add_wait();
            let row = table.push(Key::named(server.entry.id));
            let total = &server.entry.total;
            let values = [total.queries, total.answers, total.unanswered, server.waited_ns];
            for (column, value) in self.resolver.counts.iter().zip(values) {
                set(row, *column, cell(value));
            }
            for (column, value) in self.latency.iter().zip(total.latency) {
                set(row, *column, cell(value));
            }
            if total.worst_tgid > 0 {
                set(row, self.resolver.pid, i64::from(total.worst_tgid));
                set(row, self.resolver.comm, i64::from(io.strings.intern(total.worst_comm())));
            }
        }
    }
}

fn note_peer(
    peers: &mut Vec<Entry<PeerKey, PeerSum>>,
    left_out: &mut u64,
    key: &PeerKey,
    sum: &PeerSum,
    io: &mut Io,
    now: i64,
) {
    let at = match peers.iter().position(|entry| entry.key == *key) {
        Some(at) => at,
        None if peers.len() >= PEERS_MAX => {
            *left_out += 1;
            return;
        }
        None => {
            let port = u16::try_from(key.port).ok().filter(|port| *port > 0);
            let name = mapped_endpoint(key.address(), port);
            let (last, total) = (PeerSum::default(), PeerSum::default());
            peers.push(Entry { key: *key, last, total, touched_ns: now, id: io.strings.intern(&name), name });
            peers.len() - 1
        }
    };
    let Some(entry) = peers.get_mut(at) else { return };
    if entry.last == *sum {
        return;
    }
    let (total, last) = (&mut entry.total, &entry.last);
    grow(&mut total.retransmits, last.retransmits, sum.retransmits);
    grow(&mut total.resets_received, last.resets_received, sum.resets_received);
    grow(&mut total.resets_sent, last.resets_sent, sum.resets_sent);
    entry.last = *sum;
    entry.touched_ns = now;
}

fn note_open(servers: &mut [Server], key: &ServerKey, open: &Open, now: i64) {
    if let Some(server) = servers.iter_mut().find(|server| server.entry.key == *key) {
        server.open_ns = server.open_ns.saturating_add(open.wait_ns);
        server.entry.total.set_worst_open(open);
        server.entry.touched_ns = now;
    }
}

fn note_server(
    servers: &mut Vec<Server>,
    left_out: &mut u64,
    key: &ServerKey,
    sum: &ServerSum,
    io: &mut Io,
    now: i64,
) {
    const DNS_PORT: u16 = 53;
    let at = match servers.iter().position(|server| server.entry.key == *key) {
        Some(at) => at,
        None if servers.len() >= SERVERS_MAX => {
            *left_out += 1;
            return;
        }
        None => {
            let name = io.netns.within(&mapped_endpoint(key.address(), Some(DNS_PORT)), key.netns);
            let (last, total) = (ServerSum::default(), ServerSum::default());
            let id = io.strings.intern(&name);
            let entry = Entry { key: *key, last, total, touched_ns: now, name, id };
            servers.push(Server { entry, open_ns: 0, known_ns: 0, waited_ns: 0 });
            servers.len() - 1
        }
    };
    let Some(Server { entry, .. }) = servers.get_mut(at) else { return };
    if entry.last == *sum {
        return;
    }
    let (total, last) = (&mut entry.total, &entry.last);
    grow(&mut total.queries, last.queries, sum.queries);
    grow(&mut total.answers, last.answers, sum.answers);
    grow(&mut total.unanswered, last.unanswered, sum.unanswered);
    grow(&mut total.wait_ns, last.wait_ns, sum.wait_ns);
    for (total, (last, now)) in total.latency.iter_mut().zip(last.latency.iter().zip(sum.latency)) {
        grow(total, *last, now);
    }
    total.set_worst(sum);
    entry.last = *sum;
    entry.touched_ns = now;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpf::DNS_BUCKETS;

    #[test]
    fn the_table_has_the_columns_of_the_probes() {
        let cells = TroubleCells::new();
        assert_eq!(cells.latency.len(), DNS_BUCKETS);
        let all = cells.peer.iter().chain(&cells.full).chain(&cells.resolver.counts);
        let others = [&cells.packets, &cells.lost, &cells.resolver.pid, &cells.resolver.comm];
        assert!(all.chain(others).all(|column| *column != usize::MAX));
    }

    #[test]
    fn a_counter_that_began_anew_goes_on() {
        let mut total = 0;
        for (last, now) in [(0, 5), (5, 7), (7, 2), (2, 2)] {
            grow(&mut total, last, now);
        }
        assert_eq!(total, 9);
    }
}
