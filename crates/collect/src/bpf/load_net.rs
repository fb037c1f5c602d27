//! Loads and attaches the programs of the network.

use std::fs::File;
use std::os::fd::{AsFd as _, OwnedFd};

use aya::maps::Map;
use aya::programs::{BtfTracePoint, CgroupAttachMode, CgroupSock, CgroupSockAddr, Iter};
use aya::{Btf, Ebpf, EbpfLoader, include_bytes_aligned};
use rustix::thread::{CapabilitySet, capabilities};

use super::dns::Resolvers;
use super::enums::each_value;
use super::load::{AnyError, CgroupLink, Probes, cpus, take_map};
use super::net::{DROP_REASONS, NetAttached, NetTrouble};
use super::services::{Passes, Services};
use super::sys::iter_link;
use crate::file::{Buffer, Root};
use crate::mounts::{hierarchies, read_mounts};

static NET: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/net.bpf.o"));
static SERVICES: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/services.bpf.o"));
static DNS: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/dns.bpf.o"));

/// The hooks attach as links, which always stand beside others and take no flag that says so; the kernel that has the
/// last of them (5.9) has links (5.7).
const MODE: CgroupAttachMode = CgroupAttachMode::Single;
/// What every name of a reason begins with.
const REASON: &str = "SKB_DROP_REASON_";
/// The hooks on addresses, the answers first: a question without its answer would count as unanswered.
const ADDRESS_HOOKS: [&str; 6] =
    ["dns_recvmsg4", "dns_recvmsg6", "dns_connect4", "dns_connect6", "dns_sendmsg4", "dns_sendmsg6"];

impl Probes {
    pub(super) fn load_network<'a>(&mut self, loader: &mut EbpfLoader<'a>, btf: &Btf) {
        match loader.load(NET) {
            Ok(mut object) => self.load_trouble(&mut object, btf),
            Err(error) => self.miss_all(&["packet_drops", "tcp_peers", "full_sockets"], &error),
        }
        match loader.load(DNS).map_err(AnyError::from).and_then(|mut object| load_resolvers(&mut object)) {
            Ok((resolvers, links)) => {
                self.resolvers = Some(resolvers);
                self.cgroup_links = links;
            }
            Err(error) => self.miss("resolvers", &*error),
        }
        match loader.load(SERVICES) {
            Ok(mut object) => self.load_services(&mut object, btf),
            Err(error) => self.miss("services", &error),
        }
    }

    /// Those that older kernels lack come first: none of the others is attached then. What sees each request is attached later.
    fn load_services(&mut self, object: &mut Ebpf, btf: &Btf) {
        let mut load = |point, name| load_tracing(object, btf, point, name);
        let reading = self.reads_answers.then(|| load("sock_send_length", "socket_sent_reading")).transpose();
        let reading = reading.unwrap_or_else(|error| {
            self.miss("answers", &*error);
            None
        });
        let reads_answers = reading.is_some();
        let programs = load("sk_data_ready", "data_ready").and_then(|first| {
            let sent = reading.map_or_else(|| load("sock_send_length", "socket_sent"), Ok)?;
            Ok([first, sent])
        });
        let programs = match programs {
            Ok(programs) => programs,
            Err(error) => return self.miss("services", &*error),
        };
        let changes = self.attach_first(object, btf, "services", "inet_sock_set_state", &["state_changed"]);
        if changes.is_none() {
            return;
        }
        // Without it a reset is an end like others.
        let _ = self.attach_first(object, btf, "services", "tcp_receive_reset", &["reset_received"]);
        let opened = (|| {
            let mut map = |name| take_map(object, name);
            let maps = [
                map("slot_of")?,
                map("slots")?,
                map("free_slots")?,
                map("listening")?,
                map("settings")?,
                map("calls")?,
                map(".bss")?,
            ];
            // Linux as some build it refuses iterators over the elements of a map.
            let mut by_connection = || {
                Ok::<_, AnyError>([
                    connection_pass(object, btf, "open_pass")?,
                    connection_pass(object, btf, "window_pass")?,
                ])
            };
            let (passes, unaccepted) = match by_connection() {
                Ok(passes) => (passes, None),
                Err(_) => (
                    [
                        file_pass(object, btf, "open_pass_files")?,
                        file_pass(object, btf, "window_pass_files")?,
                    ],
                    Some(take_map(object, "unaccepted")?),
                ),
            };
            let passes = Passes { links: passes, unaccepted: unaccepted.as_ref() };
            let mut services = Services::new(maps.each_ref(), programs, passes, cpus()?)?;
            services.reads_answers = reads_answers;
            Ok::<_, AnyError>(services)
        })();
        match opened {
            Ok(services) => self.services = Some(services),
            Err(error) => self.miss("services", &*error),
        }
    }

    fn load_trouble(&mut self, object: &mut Ebpf, btf: &Btf) {
        let mut on = |name, tracepoint, program| {
            self.attach_first(object, btf, name, tracepoint, &[program]).is_some()
        };
        let attached = NetAttached {
            drops: on("packet_drops", "kfree_skb", "packet_dropped"),
            peers: [
                on("tcp_peers", "tcp_retransmit_skb", "segment_sent_again"),
                on("tcp_peers", "tcp_retransmit_synack", "synack_sent_again"),
                on("tcp_peers", "tcp_receive_reset", "reset_received"),
                on("tcp_peers", "tcp_send_reset", "reset_sent"),
            ]
            .contains(&true),
            rcvqueue_full: on("full_sockets", "sock_rcvqueue_full", "rcvqueue_full"),
            exceed_buf_limit: on("full_sockets", "sock_exceed_buf_limit", "exceed_buf_limit"),
            udp_fail_queue_rcv: on("full_sockets", "udp_fail_queue_rcv_skb", "udp_fail_queue_rcv"),
        };
        if attached == NetAttached::default() {
            return;
        }
        let opened = (|| {
            let maps = [take_map(object, "drops")?, take_map(object, "peers")?, take_map(object, ".bss")?];
            Ok::<_, AnyError>(NetTrouble::new([&maps[0], &maps[1], &maps[2]], cpus()?, attached)?)
        })();
        match opened {
            Ok(net) => {
                self.net = Some(net);
                self.drop_names = if attached.drops { drop_names() } else { Vec::new() };
            }
            Err(error) => self.miss("packet_drops", &*error),
        }
    }
}

/// A program that is attached and detached by the recorder.
fn load_tracing(object: &mut Ebpf, btf: &Btf, point: &str, name: &str) -> Result<OwnedFd, AnyError> {
    let program: &mut BtfTracePoint =
        object.program_mut(name).ok_or("the program is not in its object")?.try_into()?;
    program.load(point, btf)?;
    Ok(program.fd()?.as_fd().try_clone_to_owned()?)
}

/// What goes over all connections that are known.
fn connection_pass(object: &mut Ebpf, btf: &Btf, name: &str) -> Result<OwnedFd, AnyError> {
    let program: &mut Iter =
        object.program_mut(name).ok_or("the program is not in its object")?.try_into()?;
    program.load("bpf_sk_storage_map", btf)?;
    let program = program.fd()?.try_clone()?;
    let Some(Map::SkStorage(connections)) = object.map("conns") else {
        return Err("no map of connections".into());
    };
    Ok(iter_link(program.as_fd(), Some(connections.fd().as_fd()))?)
}

/// What goes over the files of all processes.
fn file_pass(object: &mut Ebpf, btf: &Btf, name: &str) -> Result<OwnedFd, AnyError> {
    let program: &mut Iter =
        object.program_mut(name).ok_or("the program is not in its object")?.try_into()?;
    program.load("task_file", btf)?;
    Ok(iter_link(program.fd()?.try_clone()?.as_fd(), None)?)
}

/// The names of the reasons, by number, in small letters. A reason that the kernel has no name for has none here.
fn drop_names() -> Vec<Option<String>> {
    let mut names = vec![None; DROP_REASONS];
    let Ok(btf) = std::fs::read("/sys/kernel/btf/vmlinux") else { return names };
    each_value(&btf, "skb_drop_reason", |value, name| {
        let slot = usize::try_from(value).ok().and_then(|at| names.get_mut(at));
        if let (Some(slot), Some(name)) = (slot, name.strip_prefix(REASON)) {
            *slot = Some(name.to_ascii_lowercase());
        }
    });
    if let Some(last) = names.last_mut() {
        *last = Some("other".to_owned());
    }
    names
}

/// The root of the version 2 control groups, where sockets of all groups pass.
fn unified_root() -> Result<File, AnyError> {
    let root = Root::open("/".as_ref())?;
    let found = hierarchies(&read_mounts(&root, &mut Buffer::default()));
    let unified = found.iter().find(|hierarchy| hierarchy.is_unified());
    let unified = unified.ok_or("cgroup version 2 is not mounted")?;
    Ok(File::open(root.path(&unified.mount))?)
}

fn load_resolvers(object: &mut Ebpf) -> Result<(Resolvers, Vec<CgroupLink>), AnyError> {
    // The kernel only says that it is not permitted.
    let enough = CapabilitySet::NET_ADMIN | CapabilitySet::SYS_ADMIN;
    if capabilities(None).is_ok_and(|sets| !sets.effective.intersects(enough)) {
        return Err("needs cap_net_admin, for cgroup hooks".into());
    }
    let root = unified_root()?;
    let mut links = Vec::new();
    let program: &mut CgroupSock =
        object.program_mut("dns_release").ok_or("the program is not in its object")?.try_into()?;
    program.load()?;
    let link = program.attach(&root, MODE)?;
    links.push(CgroupLink::Release(program.take_link(link)?));
    for name in ADDRESS_HOOKS {
        let program: &mut CgroupSockAddr =
            object.program_mut(name).ok_or("the program is not in its object")?.try_into()?;
        program.load()?;
        let link = program.attach(&root, MODE)?;
        links.push(CgroupLink::Address(program.take_link(link)?));
    }
    let mut map = |name| take_map(object, name);
    let (servers, rounds, globals, waiting) =
        (map("servers")?, map("rounds")?, map(".bss")?, map("waiting_sockets")?);
    Ok((Resolvers::new([&servers, &rounds, &globals, &waiting])?, links))
}
