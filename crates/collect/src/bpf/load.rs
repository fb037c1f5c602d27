//! Loads and attaches the programs, each on its own: one that fails costs only itself.

use std::error::Error;
use std::io;
use std::os::fd::AsFd as _;

use aya::maps::{Map, MapData, RingBuf};
use aya::programs::cgroup_sock::CgroupSockLink;
use aya::programs::cgroup_sock_addr::CgroupSockAddrLink;
use aya::programs::tp_btf::BtfTracePointLink;
use aya::programs::{BtfTracePoint, Iter};
use aya::{Btf, Ebpf, EbpfLoader, include_bytes_aligned};

use super::block::BlockHists;
use super::dns::Resolvers;
use super::events::{Events, Stalls};
use super::exit::Exits;
use super::locks::LockWaits;
use super::net::NetTrouble;
use super::services::Services;
use super::task::TaskIter;

static TASKS: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/tasks.bpf.o"));
static BLOCK: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/block.bpf.o"));
static EVENTS: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/events.bpf.o"));

/// Disks that may appear after the start; each needs up to three entries (read, write, flush).
const SPARE_DISKS: usize = 8;
const ENTRIES_PER_DISK: usize = 3;
/// A percpu entry is 296 bytes on every CPU.
const BLOCK_ENTRIES_MAX: usize = 4096;

pub(super) type AnyError = Box<dyn Error + Send + Sync>;

/// A program at the root of the control groups; it is detached when this is dropped.
#[expect(dead_code, reason = "held for what dropping them does")]
pub(super) enum CgroupLink {
    Release(CgroupSockLink),
    Address(CgroupSockAddrLink),
}

/// All that is attached. Dropping it detaches everything.
pub struct Probes {
    /// Every living task, in one pass.
    pub tasks: Option<TaskIter>,
    /// Tasks that ended.
    pub exits: Option<Exits>,
    /// Block I/O latency and size.
    pub block: Option<BlockHists>,
    /// OOM kills and fatal signals.
    pub events: Option<Events>,
    /// Time lost in reclaim, in compaction and for locks.
    pub stalls: Option<Stalls>,
    /// Who waited for locks.
    pub locks: Option<LockWaits>,
    /// Trouble on the network.
    pub net: Option<NetTrouble>,
    /// The names of the reasons for which packets are dropped, by number.
    pub drop_names: Vec<Option<String>>,
    /// How long programs wait for name servers.
    pub resolvers: Option<Resolvers>,
    /// What services answer and what processes ask of others.
    pub services: Option<Services>,
    pub(super) cgroup_links: Vec<CgroupLink>,
    links: Vec<BtfTracePointLink>,
    is_trial: bool,
    /// Whether it is read how answers of services begin.
    pub(super) reads_answers: bool,
    unavailable: Vec<(&'static str, String)>,
}

impl Probes {
    /// Loads what this kernel and this privilege allow.
    ///
    /// The kernel's type information is large (tens of megabytes as aya parses it) and only
    /// needed here, so the heap is handed back at the end.
    ///
    /// The program that reads how answers of services begin is loaded only if `reads_answers`.
    pub fn load(reads_answers: bool) -> Self {
        Self::load_as(false, reads_answers)
    }

    /// The same without attaching programs to tracepoints: nothing is counted. The verifier has said by then what the
    /// kernel takes. Attaching and detaching wait for grace periods of RCU, one after another, and a grace period takes
    /// up to many seconds on a machine with a fork storm.
    pub fn try_load() -> Self {
        Self::load_as(true, true)
    }

    fn load_as(is_trial: bool, reads_answers: bool) -> Self {
        bound_heap();
        let mut probes = Self {
            tasks: None,
            exits: None,
            block: None,
            events: None,
            stalls: None,
            locks: None,
            net: None,
            drop_names: Vec::new(),
            resolvers: None,
            services: None,
            cgroup_links: Vec::new(),
            links: Vec::new(),
            is_trial,
            reads_answers,
            unavailable: Vec::new(),
        };
        // A new loader parses the type information for itself; drop that before ours is
        // parsed, which the programs need as well, so that there is never more than one.
        let mut loader = EbpfLoader::new();
        loader.btf(None);
        match Btf::from_sys_fs() {
            Ok(btf) => probes.load_all(&btf, loader),
            Err(error) => {
                drop(loader);
                let why = format!("no kernel type information: {}", chain(&error));
                for name in ["task_iter", "exits", "block_io", "events", "stalls"].into_iter().chain([
                    "packet_drops",
                    "tcp_peers",
                    "full_sockets",
                    "resolvers",
                    "services",
                ]) {
                    probes.unavailable.push((name, why.clone()));
                }
            }
        }
        trim_heap();
        probes
    }

    /// Probes that are not there, and why.
    pub fn unavailable(&self) -> &[(&'static str, String)] {
        &self.unavailable
    }

    fn load_all<'a>(&mut self, btf: &'a Btf, mut loader: EbpfLoader<'a>) {
        loader.btf(Some(btf));
        match loader.load(TASKS) {
            Ok(mut object) => self.load_tasks(&mut object, btf),
            Err(error) => self.miss_all(&["task_iter", "exits"], &error),
        }
        let entries = block_entries();
        loader.map_max_entries("block_hists", entries);
        match loader.load(BLOCK) {
            Ok(mut object) => self.load_block(&mut object, btf, entries),
            Err(error) => self.miss_all(&["block_io"], &error),
        }
        match loader.load(EVENTS) {
            Ok(mut object) => self.load_events(&mut object, btf),
            Err(error) => self.miss_all(&["events", "stalls"], &error),
        }
        self.load_network(&mut loader, btf);
    }

    fn load_tasks(&mut self, object: &mut Ebpf, btf: &Btf) {
        match open_task_iter(object, btf) {
            Ok(tasks) => self.tasks = Some(tasks),
            Err(error) => self.miss("task_iter", &*error),
        }
        let attached = self.attach_first(
            object,
            btf,
            "exits",
            "sched_process_exit",
            &["process_exit", "process_exit_old"],
        );
        if let Some(program) = attached {
            match open_exits(object, program == "process_exit_old") {
                Ok(exits) => self.exits = Some(exits),
                Err(error) => self.miss("exits", &*error),
            }
        }
    }

    fn load_block(&mut self, object: &mut Ebpf, btf: &Btf, entries: u32) {
        if self.attach_first(object, btf, "block_io", "block_rq_complete", &["block_complete"]).is_none() {
            return;
        }
        let opened = (|| {
            let (hists, globals) = (take_map(object, "block_hists")?, take_map(object, ".bss")?);
            Ok::<_, AnyError>(BlockHists::new(&hists, &globals, cpus()?, entries)?)
        })();
        match opened {
            Ok(block) => self.block = Some(block),
            Err(error) => self.miss("block_io", &*error),
        }
    }

    fn load_events(&mut self, object: &mut Ebpf, btf: &Btf) {
        let oom = self.attach_first(object, btf, "oom", "mark_victim", &["oom_victim", "oom_victim_old"]);
        let signals = self.attach_first(object, btf, "signals", "signal_generate", &["signal_generated"]);
        if oom.is_some() || signals.is_some() {
            match open_events(object) {
                Ok(events) => self.events = Some(events),
                Err(error) => self.miss("events", &*error),
            }
        }
        let stalls = [
            (
                "direct_reclaim",
                ["mm_vmscan_direct_reclaim_begin", "mm_vmscan_direct_reclaim_end"],
                ["direct_begin", "direct_end"],
            ),
            (
                "memcg_reclaim",
                ["mm_vmscan_memcg_reclaim_begin", "mm_vmscan_memcg_reclaim_end"],
                ["memcg_begin", "memcg_end"],
            ),
            (
                "compaction",
                ["mm_compaction_begin", "mm_compaction_end"],
                ["compaction_begin", "compaction_end"],
            ),
        ];
        let mut any = self
            .attach_first(object, btf, "throttled", "mm_vmscan_throttled", &["reclaim_throttled"])
            .is_some();
        for (name, [begin_point, end_point], [begin, end]) in stalls {
            // The end first: a beginning without an end would only fill the table.
            let ended = self.attach_first(object, btf, name, end_point, &[end]).is_some();
            any |= ended && self.attach_first(object, btf, name, begin_point, &[begin]).is_some();
        }
        let locks = self.attach_first(object, btf, "locks", "contention_end", &["lock_end"]).is_some()
            && self.attach_first(object, btf, "locks", "contention_begin", &["lock_begin"]).is_some();
        if locks {
            match take_map(object, "lock_owners").and_then(|owners| Ok(LockWaits::new(&owners)?)) {
                Ok(locks) => self.locks = Some(locks),
                Err(error) => self.miss("locks", &*error),
            }
        }
        if any || locks {
            match open_stalls(object) {
                Ok(stalls) => self.stalls = Some(stalls),
                Err(error) => self.miss("stalls", &*error),
            }
        }
    }

    /// Attaches the first of `programs` that the kernel takes, and returns its name. Later
    /// ones are for older kernels, where the tracepoint has other arguments.
    pub(super) fn attach_first(
        &mut self,
        object: &mut Ebpf,
        btf: &Btf,
        name: &'static str,
        tracepoint: &str,
        programs: &[&'static str],
    ) -> Option<&'static str> {
        let mut first_error: Option<AnyError> = None;
        for program in programs {
            match attach(object, btf, tracepoint, program, self.is_trial) {
                Ok(link) => {
                    self.links.extend(link);
                    return Some(program);
                }
                Err(error) => _ = first_error.get_or_insert(error),
            }
        }
        if let Some(error) = first_error {
            self.miss(name, &*error);
        }
        None
    }

    pub(super) fn miss(&mut self, name: &'static str, error: &(dyn Error + 'static)) {
        self.unavailable.push((name, chain(error)));
    }

    pub(super) fn miss_all(&mut self, names: &[&'static str], error: &(dyn Error + 'static)) {
        for name in names {
            self.miss(name, error);
        }
    }
}

fn attach(
    object: &mut Ebpf,
    btf: &Btf,
    tracepoint: &str,
    program: &str,
    is_trial: bool,
) -> Result<Option<BtfTracePointLink>, AnyError> {
    let program: &mut BtfTracePoint =
        object.program_mut(program).ok_or("the program is not in its object")?.try_into()?;
    program.load(tracepoint, btf)?;
    if is_trial {
        return Ok(None);
    }
    let link = program.attach()?;
    Ok(Some(program.take_link(link)?))
}

fn open_task_iter(object: &mut Ebpf, btf: &Btf) -> Result<TaskIter, AnyError> {
    let program: &mut Iter =
        object.program_mut("task_pass").ok_or("the program is not in its object")?.try_into()?;
    program.load("task", btf)?;
    let program = program.fd()?.try_clone()?;
    let send_whole = take_map(object, "send_whole")?;
    Ok(TaskIter::open(program.as_fd(), &send_whole)?)
}

fn open_exits(object: &mut Ebpf, may_repeat: bool) -> Result<Exits, AnyError> {
    let ring = take_ring(object, "exit_ring")?;
    let (sums, globals) = (take_map(object, "exit_sums")?, take_map(object, ".bss")?);
    Ok(Exits::new(ring, &sums, &globals, may_repeat)?)
}

fn open_events(object: &mut Ebpf) -> Result<Events, AnyError> {
    let ring = take_ring(object, "event_ring")?;
    Ok(Events::new(ring, &take_map(object, ".bss")?)?)
}

fn open_stalls(object: &mut Ebpf) -> Result<Stalls, AnyError> {
    let (hists, owners) = (take_map(object, "stall_hists")?, take_map(object, "stall_owners")?);
    Ok(Stalls::new(&hists, &owners, cpus()?)?)
}

fn take_ring(object: &mut Ebpf, name: &str) -> Result<RingBuf<MapData>, AnyError> {
    let map = object.take_map(name).ok_or_else(|| format!("no map {name} in the object"))?;
    Ok(RingBuf::try_from(map)?)
}

pub(super) fn take_map(object: &mut Ebpf, name: &str) -> Result<MapData, AnyError> {
    match object.take_map(name) {
        Some(
            Map::Array(map)
            | Map::HashMap(map)
            | Map::LruHashMap(map)
            | Map::PerCpuArray(map)
            | Map::PerCpuHashMap(map)
            | Map::Stack(map),
        ) => Ok(map),
        Some(_) => Err(format!("map {name} is of another type").into()),
        None => Err(format!("no map {name} in the object").into()),
    }
}

pub(crate) fn cpus() -> io::Result<usize> {
    aya::util::nr_cpus().map_err(|(path, error)| io::Error::new(error.kind(), format!("{path}: {error}")))
}

/// Room for the disks there are and some more; the kernel allocates it all at once.
fn block_entries() -> u32 {
    let disks = std::fs::read_dir("/sys/block").map_or(0, Iterator::count);
    let entries = ((disks + SPARE_DISKS) * ENTRIES_PER_DISK).min(BLOCK_ENTRIES_MAX);
    u32::try_from(entries).unwrap_or(u32::MAX)
}

/// The error with its causes, and of the verifier's log the line that says why.
pub(crate) fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = String::new();
    let mut next = Some(error);
    while let Some(error) = next {
        let message = without_log(&error.to_string());
        if !text.contains(&message) {
            if !text.is_empty() {
                text.push_str(": ");
            }
            text.push_str(&message);
        }
        next = error.source();
    }
    text
}

/// The verifier ends with its statistics; the line before them is the verdict.
fn without_log(message: &str) -> String {
    let Some((head, log)) = message.split_once("Verifier output:") else {
        return message.trim().to_owned();
    };
    // From 7.3 on advice follows.
    let statistics = ["processed ", "verification time", "stack depth", "subprog ", "Suggestion:"];
    let verdict = log
        .lines()
        .map(str::trim)
        .rfind(|line| !line.is_empty() && !statistics.iter().any(|start| line.starts_with(start)));
    match verdict {
        Some(verdict) => format!("{} {verdict}", head.trim()),
        None => head.trim().trim_end_matches('.').to_owned(),
    }
}

/// From this size on a block of the heap goes straight back to the kernel when it is freed.
#[cfg(target_env = "gnu")]
const TRIM_BYTES: libc::c_int = 128 * 1024;

/// glibc raises its thresholds by itself once a large block was freed, and its trim leaves
/// the top of a thread's arena alone: both would pin what parsing took, 14 MB. Setting one
/// threshold stops the raising, for the whole process.
fn bound_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt only sets a parameter of the allocator.
    unsafe {
        libc::mallopt(libc::M_TRIM_THRESHOLD, TRIM_BYTES);
    }
}

/// Runs something that parses the kernel's type information, and gives the memory back.
pub(crate) fn with_bounded_heap<T>(work: impl FnOnce() -> T) -> T {
    bound_heap();
    let result = work();
    trim_heap();
    result
}

fn trim_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim only returns free pages of the heap to the kernel.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_verifier_log_the_verdict_is_kept() {
        let message = "the BPF_PROG_LOAD syscall returned Permission denied (os error 13). Verifier output: \
                       0: R1=ctx() R10=fp0\n1: (61) r0 = *(u32 *)(r1 +0)\nR1 invalid mem access 'scalar'\n\
                       verification time 12 usec\nstack depth 8\nprocessed 2 insns (limit 1000000)\n\
                       subprog 0 (signal_generated) main insns_self 153 insns_total 153 stack 32\n\n";
        assert_eq!(
            without_log(message),
            "the BPF_PROG_LOAD syscall returned Permission denied (os error 13). R1 invalid mem access 'scalar'"
        );
        assert_eq!(
            without_log("returned EPERM (os error 1). Verifier output: "),
            "returned EPERM (os error 1)"
        );
        assert_eq!(without_log(" plain\n"), "plain");
    }
}
