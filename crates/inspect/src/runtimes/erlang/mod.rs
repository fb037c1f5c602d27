//! Erlang's virtual machine: which of its allocators does not fit its load, and better start flags.
//!
//! Without involving the VM: the carriers and counters of its allocators ([`carriers`],
//! [`counters`]), its command line ([`command`]), and its minor faults. By asking the VM:
//! `erl_call` ([`erl_call`]). The conclusion: [`advice`].

pub mod advice;
mod carriers;
mod command;
mod counters;
mod erl_call;
mod instances;
mod term;

use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::{Options, ProcUsage};
use crate::memory::Memory;
use crate::memory::budget::STEPS;
use crate::target::Target;
use advice::AllocatorActivity;
pub use advice::{Advice, Misfit};
use carriers::{CarrierSample, Vm};
use command::CommandLine;
use counters::Counters;
use erl_call::ErlCall;

/// Minimum size of a mapping that may be a single-block carrier: the default of `sbct`.
const LARGE: u64 = 512 << 10;
/// The shortest interval between samples.
const APART: Duration = Duration::from_millis(20);
/// The largest share of the time that sampling takes.
const SHARE: u32 = 20;
/// Sampling ends after this long.
const SECONDS_MAX: f64 = 600.0;
/// Block sizes that are kept.
const BLOCKS_MAX: usize = 1 << 18;
/// Attempts to find the instances: lists change while they are walked.
const TRIES: usize = 3;

/// The heap of an Erlang VM.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ErlangHeap {
    /// The version of the runtime system: `13.1.5`.
    pub version: Option<String>,
    /// `25`; only known if the VM was asked.
    pub release: Option<String>,
    /// Allocator flags on its command line: `+MHsbct 4096`.
    pub allocator_flags: Vec<String>,
    /// Its page faults.
    pub faults: Option<Faults>,
    /// Anonymous mappings of 512 KiB or more: each may be a carrier of a single block, or several
    /// of them side by side.
    pub large_mappings: u64,
    /// Their address space; not all need be resident.
    pub large_mappings_bytes: u64,
    /// Its memory by purpose; `None` unless the VM was asked.
    pub memory: Option<ErlangMemory>,
    /// The allocators, each with an instance for each scheduler and one more.
    pub allocators: Vec<Allocator>,
    /// The source of the allocators' numbers.
    pub source: Option<Source>,
    /// The cache of freed segments; `None` unless the VM was asked.
    pub cache: Option<SegmentCache>,
    /// How the carriers were sampled.
    pub looks: SampleCounts,
    /// The advised flags.
    pub advice: Option<Advice>,
    /// Why there is no advice.
    pub no_advice: Option<String>,
    /// Unknown data and the reasons, in words.
    pub notes: Vec<String>,
}

/// Page faults of a process, measured for a while.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Faults {
    /// Minor faults.
    pub minor_per_s: f64,
    /// CPUs that it kept busy, in the kernel and in user space.
    pub cpus: f64,
    /// CPUs that it kept busy in the kernel.
    pub system_cpus: f64,
    /// Length of the measurement.
    pub seconds: f64,
}

/// The result of `erlang:memory()`, in bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ErlangMemory {
    /// The total.
    pub total_bytes: Option<u64>,
    /// Processes: heaps, stacks, mailboxes.
    pub processes_bytes: Option<u64>,
    /// Shared binaries.
    pub binary_bytes: Option<u64>,
    /// ETS tables.
    pub ets_bytes: Option<u64>,
    /// Code.
    pub code_bytes: Option<u64>,
    /// Atoms.
    pub atom_bytes: Option<u64>,
}

/// The source of numbers of allocators.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// Read from the memory of the VM.
    Memory,
    /// The VM's own answer.
    Asked,
}

/// An instance of an allocator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Allocator {
    /// `eheap_alloc`.
    pub name: String,
    /// The index of its scheduler; zero serves all other threads, including the dirty schedulers,
    /// which collect large heaps.
    pub instance: u32,
    /// Multi-block carriers.
    pub mbcs: Pool,
    /// Single-block carriers.
    pub sbcs: Pool,
    /// Its calls since the VM started.
    pub calls: Option<Calls>,
    /// Blocks of this size or more get their own carrier; `None` if none does.
    pub sbct_bytes: Option<u64>,
    /// The smallest shared carrier.
    pub smbcs_bytes: Option<u64>,
    /// The largest shared carrier.
    pub lmbcs_bytes: Option<u64>,
}

/// Carriers of one kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pool {
    /// How many.
    pub carriers: Option<u64>,
    /// Bytes of the carriers.
    pub carriers_bytes: Option<u64>,
    /// Blocks in use in them.
    pub blocks: Option<u64>,
    /// Bytes of the blocks.
    pub blocks_bytes: Option<u64>,
}

/// Calls that allocate and free carriers since the VM started, through mmap and malloc together.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Calls {
    /// Carriers that were made.
    pub carriers_made: u64,
    /// Carriers that were freed.
    pub carriers_freed: u64,
    /// Carriers that were resized.
    pub carriers_resized: u64,
}

/// The cache of freed segments, for later requests of about the same size.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentCache {
    /// Requests that the cache served.
    pub hits: u64,
    /// All requests.
    pub calls: u64,
    /// Limit of the segments per scheduler (`+MMmcs`).
    pub segments_max: Option<u64>,
}

/// How the carriers were sampled.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SampleCounts {
    /// Passes along all lists.
    pub looks: u64,
    /// Carriers in them, counted in every pass.
    pub carriers: u64,
    /// Lists that changed during the walk, so that their end was not reached.
    pub torn: u64,
}

/// For [`crate::fuzzing`]: an answer of `erl_call`, or the command line of a VM.
pub(crate) fn fuzz(is_answer: bool, bytes: &[u8]) {
    if is_answer {
        erl_call::fuzz(&String::from_utf8_lossy(bytes));
    } else {
        let line = CommandLine::parse(bytes);
        std::hint::black_box((line.version(), line.allocator_flags.len()));
    }
}

fn is_emulator(module: &str) -> bool {
    module == "beam" || module.starts_with("beam.")
}

/// Whether a process is an Erlang VM, by its mappings: `beam.smp`, or another flavour of the
/// emulator.
pub fn is_erlang(memory: &(impl Memory + ?Sized)) -> bool {
    memory
        .mappings()
        .iter()
        .any(|mapping| mapping.is_file() && mapping.access.execute && is_emulator(mapping.module()))
}

/// Inspects an Erlang VM.
pub fn read_heap(target: &Target, options: &Options) -> ErlangHeap {
    let line = CommandLine::read(target.pid());
    let large = target.mappings().iter().filter(|m| m.is_memory() && !m.access.shared && m.bytes() >= LARGE);
    let (large_mappings, large_mappings_bytes) =
        large.fold((0, 0), |(n, bytes), m| (n + 1, bytes + m.bytes()));
    let mut heap = ErlangHeap {
        version: line.version(),
        allocator_flags: line.allocator_flags.clone(),
        large_mappings,
        large_mappings_bytes,
        ..ErlangHeap::default()
    };
    let vm = (0..TRIES).find_map(|_| Vm::find(target));
    if vm.is_none() {
        heap.notes
            .push("its carriers were not found in its memory: they have a form that is not known".to_owned());
    }
    let erl_call = options.ask_runtime.then(|| ErlCall::new(target, &line, options.tool_seconds_max));
    let erl_call = erl_call.and_then(|erl_call| erl_call.map_err(|why| heap.notes.push(why)).ok());
    // Needed a second time only if the VM's memory does not tell.
    let before = erl_call.as_ref().filter(|_| vm.is_none()).and_then(|erl_call| erl_call.allocators().ok());
    let mut sampler = CarrierSampler::new(vm);
    let used = sampler.run(target, options.seconds.clamp(0.0, SECONDS_MAX));
    heap.faults = used.and_then(|(before, after)| faults(before, after));
    heap.looks = sampler.looks.clone();
    if let Some(vm) = &sampler.vm {
        heap.allocators = sampler.allocators(vm);
        heap.source = Some(Source::Memory);
    }
    let mut activity = sampler.activity();
    if let Some(erl_call) = erl_call {
        answers(&erl_call, &mut heap);
        if let (Some(before), Some(faults)) = (before, &heap.faults) {
            activity = activity_by_asking(&before, &heap.allocators, faults.seconds);
        }
    }
    let page = rustix::param::page_size() as f64;
    let advice = match &heap.faults {
        Some(faults) => advice::advise(faults, page, &activity, advice::free_bytes()),
        None => Err("its minor faults could not be counted".to_owned()),
    };
    match advice {
        Ok(advice) => heap.advice = Some(advice),
        Err(why) => heap.no_advice = Some(why),
    }
    heap
}

/// Asks the VM.
fn answers(erl_call: &ErlCall<'_>, heap: &mut ErlangHeap) {
    match erl_call.memory() {
        Ok(memory) => heap.memory = Some(memory),
        Err(why) => {
            heap.notes.push(why);
            return;
        }
    }
    heap.release = erl_call.release().ok();
    heap.cache = erl_call.cache().ok();
    match erl_call.allocators() {
        Ok(allocators) => {
            heap.allocators = allocators;
            heap.source = Some(Source::Asked);
        }
        Err(why) => heap.notes.push(why),
    }
}

fn faults(before: ProcUsage, after: ProcUsage) -> Option<Faults> {
    let seconds = after.at.duration_since(before.at).as_secs_f64();
    let ticks = rustix::param::clock_ticks_per_second() as f64;
    let cpus = |before: u64, after: u64| after.saturating_sub(before) as f64 / ticks / seconds;
    (seconds > 0.0).then(|| Faults {
        minor_per_s: after.minor_faults.saturating_sub(before.minor_faults) as f64 / seconds,
        cpus: cpus(before.user_ticks + before.system_ticks, after.user_ticks + after.system_ticks),
        system_cpus: cpus(before.system_ticks, after.system_ticks),
        seconds,
    })
}

/// Samples of the carriers.
#[derive(Default)]
struct CarrierSampler {
    vm: Option<Vm>,
    looks: SampleCounts,
    last: CarrierSample,
    /// The counters of the instances at the beginning and at the end.
    counters: Option<(Vec<Counters>, Vec<Counters>)>,
    /// Per instance: sizes of blocks that appeared between two samples.
    came: BTreeMap<usize, Vec<u64>>,
    /// Occurrences of single-block carriers in all samples but the first.
    present: BTreeMap<usize, u64>,
    seconds: f64,
}

impl CarrierSampler {
    fn new(vm: Option<Vm>) -> CarrierSampler {
        CarrierSampler { vm, ..CarrierSampler::default() }
    }

    /// Samples for the given time, and returns the process' usage before and after.
    fn run(&mut self, target: &Target, seconds: f64) -> Option<(ProcUsage, ProcUsage)> {
        let time = Duration::from_secs_f64(seconds);
        let before = ProcUsage::read(target.pid());
        let started = Instant::now();
        let Some(vm) = self.vm.take() else {
            while started.elapsed() < time && target.should_continue(STEPS) {
                std::thread::sleep(APART.min(time));
            }
            return before.zip(ProcUsage::read(target.pid()));
        };
        let counted = vm.counters(target);
        loop {
            let sample_started = Instant::now();
            let sample = vm.sample(target);
            let took = sample_started.elapsed();
            self.add(sample);
            let left = time.saturating_sub(started.elapsed());
            if left.is_zero() || !target.should_continue(STEPS) {
                break;
            }
            std::thread::sleep(left.min(APART.max(took * SHARE)));
        }
        self.seconds = started.elapsed().as_secs_f64();
        self.counters = counted.zip(vm.counters(target));
        self.vm = Some(vm);
        before.zip(ProcUsage::read(target.pid()))
    }

    fn add(&mut self, sample: CarrierSample) {
        self.looks.looks += 1;
        self.looks.torn += sample.torn;
        for (i, lists) in sample.lists.iter().enumerate() {
            self.looks.carriers += lists.mbcs + lists.sbcs;
            let Some(before) = self.last.lists.get(i) else { continue };
            *self.present.entry(i).or_default() += lists.blocks.len() as u64;
            let before: HashSet<(u64, u64)> = before.blocks.iter().copied().collect();
            let came = self.came.entry(i).or_default();
            let new = lists.blocks.iter().filter(|block| !before.contains(*block)).map(|(_, bytes)| *bytes);
            came.extend(new.take(BLOCKS_MAX.saturating_sub(came.len())));
        }
        self.last = sample;
    }

    fn allocators(&self, vm: &Vm) -> Vec<Allocator> {
        let counters = self.counters.as_ref().map(|(_, after)| after);
        let one = |(i, instance): (usize, &instances::Instance)| {
            let lists = self.last.lists.get(i).cloned().unwrap_or_default();
            let counted = counters.and_then(|all| all.get(i)).copied();
            let single: u64 = lists.blocks.iter().map(|(_, bytes)| *bytes).sum();
            Allocator {
                name: instance.name.clone(),
                instance: instance.index,
                mbcs: Pool {
                    carriers: Some(lists.mbcs),
                    carriers_bytes: Some(lists.mbcs_bytes),
                    blocks: counted.map(|c| c.mbcs.blocks),
                    blocks_bytes: counted.map(|c| c.mbcs.blocks_bytes),
                },
                sbcs: Pool {
                    carriers: Some(lists.sbcs),
                    carriers_bytes: Some(lists.sbcs_bytes),
                    blocks: Some(lists.blocks.len() as u64),
                    blocks_bytes: Some(single),
                },
                calls: counted.map(|c| Calls {
                    carriers_made: c.made,
                    carriers_freed: c.freed,
                    carriers_resized: c.resized,
                }),
                sbct_bytes: Some(instance.sbct).filter(|sbct| *sbct != u64::MAX),
                smbcs_bytes: Some(instance.smbcs),
                lmbcs_bytes: Some(instance.lmbcs),
            }
        };
        let mut all: Vec<Allocator> = vm.instances.iter().enumerate().map(one).collect();
        all.sort_by(|a, b| (&a.name, a.instance).cmp(&(&b.name, b.instance)));
        all
    }

    /// The carriers by allocator.
    fn activity(&self) -> Vec<AllocatorActivity> {
        let Some(vm) = &self.vm else { return Vec::new() };
        let mut all: BTreeMap<&str, (AllocatorActivity, u64, u64)> = BTreeMap::new();
        for (i, instance) in vm.instances.iter().enumerate() {
            let (activity, made, present) = all.entry(&instance.name).or_default();
            activity.name.clone_from(&instance.name);
            activity.instances += 1;
            activity.sbct = activity.sbct.max(instance.sbct);
            activity.blocks.extend(self.came.get(&i).into_iter().flatten());
            *present += self.present.get(&i).copied().unwrap_or(0);
            if let Some((before, after)) = &self.counters {
                let of = |all: &[Counters]| all.get(i).map_or(0, |counters| counters.made);
                *made += of(after).saturating_sub(of(before));
            }
        }
        let seconds = self.seconds.max(f64::MIN_POSITIVE);
        let finish = |(mut activity, made, present): (AllocatorActivity, u64, u64)| {
            let came = activity.blocks.len() as u64;
            let bytes: u64 = activity.blocks.iter().sum();
            activity.turns_over = self.counters.is_none() && came > 0 && 2 * came >= present;
            // More appeared and disappeared than were seen.
            let more = (made as f64 / came.max(1) as f64).max(1.0);
            activity.carriers_per_s = more * came as f64 / seconds;
            activity.bytes_per_s = more * bytes as f64 / seconds;
            activity
        };
        all.into_values().map(finish).collect()
    }
}

/// The same from two answers of the VM, which have only the mean block size.
fn activity_by_asking(before: &[Allocator], after: &[Allocator], seconds: f64) -> Vec<AllocatorActivity> {
    let mut all: BTreeMap<&str, (AllocatorActivity, u64)> = BTreeMap::new();
    let made: BTreeMap<(&str, u32), u64> = before
        .iter()
        .filter_map(|one| Some(((one.name.as_str(), one.instance), one.calls.as_ref()?.carriers_made)))
        .collect();
    for one in after {
        let (activity, more) = all.entry(&one.name).or_default();
        activity.name.clone_from(&one.name);
        activity.instances += 1;
        activity.sbct = activity.sbct.max(one.sbct_bytes.unwrap_or(LARGE));
        if let (Some(bytes), Some(blocks)) =
            (one.sbcs.blocks_bytes, one.sbcs.blocks.filter(|blocks| *blocks > 0))
        {
            activity.blocks.push(bytes / blocks);
        }
        let calls = one.calls.as_ref().map_or(0, |calls| calls.carriers_made);
        *more += calls.saturating_sub(made.get(&(one.name.as_str(), one.instance)).copied().unwrap_or(calls));
    }
    let seconds = seconds.max(f64::MIN_POSITIVE);
    let finish = |(mut activity, made): (AllocatorActivity, u64)| {
        let mean = activity.blocks.iter().sum::<u64>() / activity.blocks.len().max(1) as u64;
        activity.carriers_per_s = made as f64 / seconds;
        activity.bytes_per_s = activity.carriers_per_s * mean as f64;
        activity
    };
    all.into_values().map(finish).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn eheap(instance: u32, single: (u64, u64), made: u64) -> Allocator {
        Allocator {
            name: "eheap_alloc".to_owned(),
            instance,
            mbcs: Pool::default(),
            sbcs: Pool { blocks: Some(single.0), blocks_bytes: Some(single.1), ..Pool::default() },
            calls: Some(Calls { carriers_made: made, ..Calls::default() }),
            sbct_bytes: None,
            smbcs_bytes: None,
            lmbcs_bytes: None,
        }
    }

    #[test]
    fn two_answers_are_enough_for_advice() {
        // The case `content-page-faults`; the other instances are still.
        let before = [eheap(0, (80, 300_000_000), 28_000_000), eheap(1, (0, 0), 100)];
        let after = [eheap(0, (93, 359_408_608), 28_000_800), eheap(1, (0, 0), 101)];
        let activity = activity_by_asking(&before, &after, 2.0);
        assert_eq!((activity.len(), activity[0].instances, activity[0].carriers_per_s), (1, 2, 400.5));
        let faults = Faults { minor_per_s: 300_000.0, cpus: 9.0, system_cpus: 1.0, seconds: 2.0 };
        let advice = advice::advise(&faults, 4096.0, &activity, Some(16 << 30)).unwrap();
        assert_eq!(advice.flags, ["+MHsbct", "4096", "+MHsmbcs", "2048", "+MHlmbcs", "40960"]);
        // Nothing appeared or disappeared.
        let activity = activity_by_asking(&after, &after, 2.0);
        assert!(advice::advise(&faults, 4096.0, &activity, Some(16 << 30)).is_err());
    }

    #[test]
    fn blocks_that_stay_do_not_count_as_coming() {
        let mut sampler = CarrierSampler::new(None);
        let sample = |blocks: &[(u64, u64)]| CarrierSample {
            lists: vec![carriers::InstanceCarriers {
                blocks: blocks.to_vec(),
                sbcs: blocks.len() as u64,
                ..Default::default()
            }],
            torn: 0,
        };
        sampler.add(sample(&[(1, 600_000), (2, 700_000)]));
        assert!(sampler.came.is_empty(), "the first look knows nothing of before");
        sampler.add(sample(&[(1, 600_000), (3, 800_000)]));
        // At the same address, but larger.
        sampler.add(sample(&[(1, 900_000), (3, 800_000)]));
        assert_eq!(sampler.came[&0], [800_000, 900_000]);
        assert_eq!((sampler.present[&0], sampler.looks.looks), (4, 3));
    }
}
