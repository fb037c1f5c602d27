//! Loads and attaches the programs of a kind.

use std::os::fd::{AsFd as _, OwnedFd};

use aya::maps::{Map, MapData, RingBuf};
use aya::programs::perf_event::{PerfEventConfig, PerfEventLink, PerfEventScope, SamplePolicy};
use aya::programs::tp_btf::BtfTracePointLink;
use aya::programs::{BtfTracePoint, PerfEvent, ProgramError};
use aya::util::online_cpus;
use aya::{Btf, Ebpf, EbpfLoader};

use super::{AnyError, Request};
use crate::bpf::sys::{MapReader, Plain, now_mono_ns};
use crate::bpf::{chain, cpus};

/// What the programs are told before they are loaded (`struct capture_config` of bpf/capture.h).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Config {
    tgid: u32,
    own: u32,
    /// Of the kind.
    pub(super) flags: u32,
    /// Of the kind.
    pub(super) number: u32,
    min_ns: u64,
    pub(super) max_events: u64,
    cgroup: u64,
    comm: [u8; 16],
    /// Of the kind.
    pub(super) arg: u64,
    /// When the programs stop by themselves, on the monotonic clock.
    pub(super) until_ns: u64,
}
const _: () = assert!(size_of::<Config>() == 72, "twin: struct capture_config in bpf/capture.h");
// SAFETY: repr(C), integers and bytes; no hole, by the sum of the field sizes.
unsafe impl aya::Pod for Config {}

/// The programs go on for so long after the time that was asked for, so that loading them, on a machine in trouble, does
/// not shorten it. They see the end only if nobody detaches them: a capture can be stopped by Ctrl-Z.
const LOADING_NS_MAX: u64 = 30_000_000_000;
/// Of no process.
const NOBODY: u32 = u32::MAX;

impl Config {
    /// What all kinds have in common. An error says what is not there.
    pub(super) fn of(request: &Request) -> Result<Self, String> {
        let mut comm = [0; 16];
        for (to, from) in comm.iter_mut().zip(request.comm().unwrap_or_default()) {
            *to = *from;
        }
        Ok(Self {
            tgid: request.pid.unwrap_or(0),
            // Of a namespace of its own the kernel's programs do not know the numbers.
            own: if in_first_pid_namespace() { std::process::id() } else { NOBODY },
            min_ns: u64::try_from(request.min.as_nanos()).unwrap_or(u64::MAX),
            max_events: request.max_events,
            cgroup: request.cgroup.as_deref().map(cgroup_id).transpose()?.unwrap_or(0),
            comm,
            until_ns: now_mono_ns()
                .saturating_add((request.seconds * 1e9) as u64)
                .saturating_add(LOADING_NS_MAX),
            ..Self::default()
        })
    }
}

/// `PROC_PID_INIT_INO` of include/uapi/linux/nsfs.h: the namespace in which the numbers of processes are the kernel's own.
const FIRST_PID_NAMESPACE: u64 = 0xefff_fffc;

/// Whether processes have the numbers here by which the programs know them.
pub(super) fn in_first_pid_namespace() -> bool {
    use std::os::unix::fs::MetadataExt as _;
    // A kernel without such namespaces has no such file.
    let here = std::fs::metadata("/proc/self/ns/pid").ok();
    here.is_none_or(|meta| meta.ino() == FIRST_PID_NAMESPACE)
}

/// The id of a group is the number of its directory's inode.
fn cgroup_id(path: &str) -> Result<u64, String> {
    use std::os::unix::fs::MetadataExt as _;
    let mounts =
        std::fs::read_to_string("/proc/self/mounts").map_err(|e| format!("/proc/self/mounts: {e}"))?;
    let mut mounts = mounts.lines().map(|line| line.split(' '));
    let mount = mounts.find_map(|mut words| {
        let (_, place, kind) = (words.next()?, words.next()?, words.next()?);
        (kind == "cgroup2").then_some(place)
    });
    let mount = mount.ok_or("no cgroup2 is mounted, so no group can be told from another")?;
    let whole = format!("{mount}/{}", path.trim_start_matches('/'));
    std::fs::metadata(&whole).map(|meta| meta.ino()).map_err(|error| format!("no group {whole}: {error}"))
}

/// `struct capture_counts` of bpf/capture.h, over all CPUs.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) events: u64,
    pub(super) lost: u64,
    pub(super) stacks_lost: u64,
    pub(super) other: u64,
    pub(super) runs: u64,
    pub(super) stacks: u64,
    /// The programs' own.
    pub(super) clock: [u64; 2],
}
const _: () = assert!(size_of::<Counts>() == 64, "twin: struct capture_counts in bpf/capture.h");
// SAFETY: only u64 fields.
unsafe impl Plain for Counts {}

/// An attachment; it ends when this is dropped.
pub(super) enum Link {
    /// To a tracepoint.
    TracePoint(#[expect(dead_code, reason = "attached as long as it lives")] BtfTracePointLink),
    /// To an event of perf, on one CPU.
    Perf(#[expect(dead_code, reason = "attached as long as it lives")] PerfEventLink),
}

/// Programs in the kernel that are being attached.
pub(super) struct Loader<'a> {
    /// None of a kind without programs.
    object: Option<(Ebpf, &'a Btf)>,
    links: Vec<Link>,
    programs: Vec<OwnedFd>,
    notes: Vec<String>,
    is_trial: bool,
}

/// What remains of a loader once everything is attached.
pub(super) struct Loaded {
    links: Vec<Link>,
    pub(super) programs: Vec<OwnedFd>,
    pub(super) notes: Vec<String>,
    counts: Option<MapReader<u32, Counts>>,
    /// What the programs ask first (bpf/capture.h).
    gate: Option<MapReader<u32, u64>>,
}

impl<'a> Loader<'a> {
    pub(super) fn load(object: &[u8], config: &Config, btf: &'a Btf) -> Result<Self, AnyError> {
        // The library makes task storage, but does not know how to read it; nor does anybody here want to.
        let object = EbpfLoader::new()
            .btf(Some(btf))
            .allow_unsupported_maps()
            .override_global("config", config, true)
            .load(object)?;
        Ok(Self { object: Some((object, btf)), ..Self::without_programs() })
    }

    /// Of a kind that asks the kernel by other means.
    pub(super) fn without_programs() -> Self {
        Self { object: None, links: Vec::new(), programs: Vec::new(), notes: Vec::new(), is_trial: false }
    }

    /// From now on programs are loaded and not attached to tracepoints ([`crate::bpf::Probes::try_load`] says why).
    pub(super) fn for_trial(self) -> Self {
        Self { is_trial: true, ..self }
    }

    /// Attaches the first of `programs` that the kernel takes to a BTF tracepoint, and returns its name. Later ones are
    /// for older kernels, where the tracepoint has other arguments or a helper is missing.
    pub(super) fn tracepoint(
        &mut self,
        tracepoint: &str,
        programs: &[&'static str],
    ) -> Result<&'static str, AnyError> {
        let mut first_error = None;
        for name in programs {
            match self.attach_tracepoint(tracepoint, name) {
                Ok(()) => return Ok(name),
                Err(error) => _ = first_error.get_or_insert(error),
            }
        }
        let error = first_error.unwrap_or_else(|| "no program".into());
        Err(format!("tracepoint {tracepoint}: {}", chain(&*error)).into())
    }

    /// As [`Loader::tracepoint`], but the capture goes on without it and says so.
    pub(super) fn optional_tracepoint(&mut self, tracepoint: &str, programs: &[&'static str]) -> bool {
        match self.tracepoint(tracepoint, programs) {
            Ok(_) => true,
            Err(error) => {
                self.note(format!("not seen: {error}"));
                false
            }
        }
    }

    /// A sentence that a reader of the capture has to know.
    pub(super) fn note(&mut self, note: String) {
        self.notes.push(note);
    }

    /// What was noted so far.
    pub(super) fn take_notes(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notes)
    }

    fn attach_tracepoint(&mut self, tracepoint: &str, name: &str) -> Result<(), AnyError> {
        let (object, btf) = self.object.as_mut().ok_or("this kind has no programs")?;
        let program: &mut BtfTracePoint =
            object.program_mut(name).ok_or("the program is not in its object")?.try_into()?;
        program.load(tracepoint, btf)?;
        self.programs.push(program.fd()?.as_fd().try_clone_to_owned()?);
        if !self.is_trial {
            let link = program.attach()?;
            self.links.push(Link::TracePoint(program.take_link(link)?));
        }
        Ok(())
    }

    /// Attaches a program to an event of perf, on every CPU that is online.
    pub(super) fn perf(
        &mut self,
        name: &str,
        event: PerfEventConfig,
        every: SamplePolicy,
    ) -> Result<(), AnyError> {
        let (object, _) = self.object.as_mut().ok_or("this kind has no programs")?;
        let program: &mut PerfEvent =
            object.program_mut(name).ok_or("the program is not in its object")?.try_into()?;
        program.load()?;
        let fd = program.fd()?.as_fd().try_clone_to_owned()?;
        // What an error leaves behind is detached again: another program may take its place.
        let mut links = Vec::new();
        for cpu in online_cpus().map_err(|(path, error)| format!("{path}: {error}"))? {
            match program.attach(event, PerfEventScope::AllProcessesOneCpu { cpu }, every, false) {
                Ok(link) => links.push(Link::Perf(program.take_link(link)?)),
                // It was taken offline just now.
                Err(ProgramError::SyscallError(error))
                    if error.io_error.raw_os_error() == Some(libc::ENODEV) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if links.is_empty() {
            return Err("no CPU has events of perf".into());
        }
        self.programs.push(fd);
        self.links.append(&mut links);
        Ok(())
    }

    /// A map with one value under each key. It may be asked for at any time.
    pub(super) fn map<K: Plain, V: Plain>(&self, name: &str) -> Result<MapReader<K, V>, AnyError> {
        Ok(MapReader::new(self.of_name(name)?, 1)?)
    }

    /// A map with one value for each CPU under each key.
    pub(super) fn percpu_map<K: Plain, V: Plain>(&self, name: &str) -> Result<MapReader<K, V>, AnyError> {
        Ok(MapReader::new(self.of_name(name)?, cpus()?)?)
    }

    /// A ring. Only once its programs are attached: what is taken from the object before is closed when they load.
    pub(super) fn ring(&mut self, name: &str) -> Result<RingBuf<MapData>, AnyError> {
        let (object, _) = self.object.as_mut().ok_or("this kind has no programs")?;
        let map = object.take_map(name).ok_or_else(|| format!("no map {name} in the object"))?;
        Ok(RingBuf::try_from(map)?)
    }

    /// The map stays with the object: the programs that are still to be loaded know it by its descriptor.
    fn of_name(&self, name: &str) -> Result<&MapData, AnyError> {
        match self.object.as_ref().and_then(|(object, _)| object.map(name)) {
            Some(
                Map::Array(map)
                | Map::HashMap(map)
                | Map::LruHashMap(map)
                | Map::PerCpuArray(map)
                | Map::PerCpuHashMap(map)
                | Map::PerCpuLruHashMap(map)
                | Map::StackTraceMap(map),
            ) => Ok(map),
            Some(_) => Err(format!("map {name} is of another type").into()),
            None => Err(format!("no map {name} in the object").into()),
        }
    }

    pub(super) fn into_loaded(self) -> Result<Loaded, AnyError> {
        let (counts, gate) = match self.object {
            Some(_) => (Some(self.percpu_map("counts")?), Some(self.map("gate")?)),
            None => (None, None),
        };
        Ok(Loaded { links: self.links, programs: self.programs, notes: self.notes, counts, gate })
    }
}

impl Loaded {
    /// All programs begin at once.
    pub(super) fn begin(&self) -> std::io::Result<()> {
        self.gate.as_ref().map_or(Ok(()), |gate| gate.store(&0, &1))
    }

    /// All programs end at once, and are detached then.
    pub(super) fn end(&mut self) {
        if let Some(gate) = &self.gate {
            // A value of an array can always be written. Were it not, they would end one after the other.
            _ = gate.store(&0, &0);
        }
        self.links.clear();
    }

    /// What the programs counted so far.
    pub(super) fn counts(&mut self) -> Result<Counts, AnyError> {
        let mut sum = Counts::default();
        let Some(counts) = &mut self.counts else { return Ok(sum) };
        for one in counts.lookup(&0)?.unwrap_or_default() {
            sum.events += one.events;
            sum.lost += one.lost;
            sum.stacks_lost += one.stacks_lost;
            sum.other += one.other;
            sum.runs += one.runs;
            sum.stacks += one.stacks;
        }
        Ok(sum)
    }
}
