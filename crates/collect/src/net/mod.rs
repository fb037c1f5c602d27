//! The network beyond the files of the machine: other namespaces, queues, and whom trouble concerns.

pub(crate) mod ask;
mod latency;
pub mod names;
mod netns;
mod netns_thread;
pub(crate) mod owner;
mod queues;
mod receivers;
mod rings;
mod seen_part;
mod service_names;
mod service_rows;
pub mod services;
pub mod trouble;

use mitra_model::{Entity, Frame, Key, NA};

use crate::cells::{col, row, set};
use crate::file::inode_in_link;
use crate::io::{Io, Listening};
use crate::missing::reason;
use netns::NetNamespaces;
use netns_thread::{Findings, NetNsThread};
use owner::Owner;
use queues::Queues;
use receivers::Receivers;

/// What a namespace that cannot be entered lacks.
const INSIDE: &str = "netns.inside";
const HELPER: &str = "netlink";

/// Whether the kernel answers this process over netlink.
pub fn can_ask() -> std::io::Result<()> {
    let sockets = ask::Sockets::open()?;
    let mut asker = ask::Asker::new();
    asker.qdiscs(&sockets, |_, _| {})?;
    asker.listeners(&sockets, |_| {})
}

/// Everything of the network that is not one file of the machine.
pub struct Network {
    /// `None` where the root is not this machine, or there can be no thread.
    thread: Option<NetNsThread>,
    namespaces: NetNamespaces,
    queues: Queues,
    receivers: Receivers,
    conntrack_max: [usize; 2],
    rx_ring: [usize; 2],
    netns_conntrack_max: usize,
    netns_port_range: usize,
    bad_lines: u32,
}

impl Network {
    /// Starts the thread that asks.
    pub fn open(io: &mut Io) -> Self {
        let thread = if io.root.is_host() {
            match NetNsThread::start() {
                Ok(thread) => Some(thread),
                Err(error) => {
                    io.missing.add(HELPER, &reason(&error));
                    None
                }
            }
        } else {
            io.missing.add(HELPER, "the root is not this machine's");
            None
        };
        if thread.is_some()
            && let Ok(proc) = io.root.open_file("proc/thread-self")
            && let Some(inum) = inode_in_link(&proc, "ns/net", b"net")
        {
            io.netns.set_own(inum);
        }
        let network = Network {
            thread,
            namespaces: NetNamespaces::new(),
            queues: Queues::new(),
            receivers: Receivers::new(),
            conntrack_max: ["sysctl.net.netfilter.nf_conntrack_max", "conntrack.max"].map(col),
            rx_ring: ["nic.rx_ring", "nic.rx_ring_max"].map(col),
            netns_conntrack_max: col("netns.conntrack_max"),
            netns_port_range: col("netns.sysctl_net_ipv4_ip_local_port_range"),
            bad_lines: 0,
        };
        if let Some(thread) = &network.thread {
            thread.set_targets(network.namespaces.targets());
        }
        network
    }

    /// Lets the thread begin, so that it is done by the time of [`Network::read`].
    pub fn ask(&self) {
        if let Some(thread) = &self.thread {
            thread.ask();
        }
    }

    /// Fills the rows. The tasks of the frame have to be there already: they say which namespaces there are.
    pub fn read(&mut self, io: &mut Io, frame: &mut Frame, is_slow: bool) {
        let [sysctl, own] = self.conntrack_max;
        let system = frame.system_mut();
        let most = system.get(sysctl).copied().unwrap_or(NA);
        set(system, own, most);
        let Some(thread) = self.thread.take() else { return };
        if is_slow || self.namespaces.is_stale(frame) {
            self.namespaces.discover(io, frame, is_slow);
            thread.set_targets(self.namespaces.targets());
        }
        self.bad_lines += self.namespaces.read(io, frame, is_slow);
        thread.want_receivers(&self.receivers.watch(&self.namespaces.followed, frame));
        let wanted = thread.answer(|findings, owners| self.fill(findings, owners, io, frame));
        match wanted {
            Some(wanted) if !wanted.is_empty() => thread.want_owners(&wanted),
            Some(_) => io.missing.remove(HELPER),
            None => io.missing.add(HELPER, "the kernel did not answer in time"),
        }
        self.thread = Some(thread);
    }

    /// Lines that could not be read, since the start.
    #[must_use]
    pub fn bad_lines(&self) -> i64 {
        i64::from(self.bad_lines)
    }

    fn fill(&mut self, all: &[Findings], owners: &[Owner], io: &mut Io, frame: &mut Frame) -> Vec<u32> {
        let mut refused = None;
        for findings in all {
            let is_own = findings.inum == 0;
            if let Some(error) = &findings.failed {
                if is_own {
                    io.missing.add("netlink.own", &reason(error));
                } else if error.raw_os_error() == Some(libc::EPERM) {
                    refused = Some(
                        "queues, listening sockets and settings of other network namespaces: entering them needs cap_sys_admin",
                    );
                }
                continue;
            }
            if is_own {
                io.missing.remove("netlink.own");
                for (name, qdisc) in &findings.qdiscs {
                    let key = Key::named(io.strings.intern(name));
                    self.queues.fill_qdisc(key, qdisc, frame);
                }
                for (name, ring) in findings.rings.iter() {
                    let cells = row(frame.table_mut(Entity::Nic), Key::named(io.strings.intern(name)));
                    for (column, packets) in self.rx_ring.iter().zip(ring) {
                        set(cells, *column, i64::from(*packets));
                    }
                }
                self.queues.fill_own(&findings.listeners, frame);
            } else {
                self.fill_other(findings, io, frame);
            }
        }
        match refused {
            Some(why) => io.missing.add(INSIDE, why),
            None => io.missing.remove(INSIDE),
        }
        io.listening.clear();
        for findings in all {
            let netns = if findings.inum == 0 { io.netns.own() } else { findings.inum };
            let sockets = findings.listeners.iter();
            io.listening.extend(sockets.map(|l| Listening { netns, address: l.address, port: l.port }));
        }
        let mut wanted = self.queues.fill(all, owners, io, frame);
        wanted.extend(self.receivers.fill(all, owners, io, frame));
        wanted
    }

    fn fill_other(&mut self, findings: &Findings, io: &mut Io, frame: &mut Frame) {
        if let Some(files) = &findings.files {
            self.bad_lines += self.namespaces.fill(findings.inum, files, io, frame);
        }
        let Some(space) = self.namespaces.followed.iter_mut().find(|space| space.inum == findings.inum)
        else {
            return;
        };
        for (name, qdisc) in &findings.qdiscs {
            let key = space.device(name, &mut io.strings);
            self.queues.fill_qdisc(key, qdisc, frame);
        }
        self.queues.fill_longest(&findings.listeners, space.id, frame);
        let cells = row(frame.table_mut(Entity::Netns), Key::named(space.id));
        if let Some(most) = findings.conntrack_max {
            set(cells, self.netns_conntrack_max, most);
        }
        if let Some(range) = &findings.port_range {
            set(cells, self.netns_port_range, i64::from(io.strings.intern(range)));
        }
    }
}
