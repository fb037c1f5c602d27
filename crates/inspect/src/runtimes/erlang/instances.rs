//! The instances of Erlang's allocators, found in the VM's memory: `Allctr_t`, with the layout
//! described in [`super::carriers`].
//!
//! Instances with a carrier in its own mapping are found through it. The others are found by the
//! pointers to their names, which are in the VM's own data or at the start of the malloc heap.

use std::collections::BTreeMap;

use super::carriers::{self, CARRIERS_MAX};
use crate::memory::{Memory, PAGE};

/// Alignment of shared carriers: `ERTS_MMAP_SUPERALIGNED_BITS`.
const ALIGNMENT: u64 = 256 << 10;
/// Limit of the addresses that are checked for a carrier: for 256 GiB every 256 KiB.
const PLACES_MAX: u64 = 1 << 20;
/// Limit of the instances: ten allocators for each of a thousand schedulers.
const INSTANCES_MAX: usize = 10 << 10;
/// Limit of the resident ranges of a mapping.
const STRETCHES_MAX: usize = 1 << 16;
/// Limit of the name's offset, which is 120 in known versions.
const NAME_WITHIN: usize = 512;
/// Maximum distance between the allocators' names, which are constants of one file.
const NEAR: u64 = 4096;
/// Limit of the searched data of the VM and of the malloc heap: the instances are created when the
/// VM starts, before large allocations.
const DATA_MAX: u64 = 64 << 20;
/// Bytes that are read at once.
const STEP: u64 = 256 << 10;

const NAMES: [&str; 11] =
    ["temp_", "sl_", "std_", "ll_", "eheap_", "ets_", "fix_", "literal_", "binary_", "driver_", "exec_"];

/// An instance of an allocator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Instance {
    pub(super) address: u64,
    /// `eheap_alloc`.
    pub(super) name: String,
    /// The index of its scheduler; zero is for all other threads, including the dirty schedulers.
    pub(super) index: u32,
    /// All ones if there is no threshold.
    pub(super) sbct: u64,
    pub(super) smbcs: u64,
    pub(super) lmbcs: u64,
}

/// Offsets in an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Layout {
    name: usize,
    index: usize,
    version: usize,
    options: usize,
}

/// Searches for the instances.
pub(super) struct Finder<'a, M: Memory + ?Sized> {
    memory: &'a M,
    layout: Option<Layout>,
    /// By address; `None` for addresses that turned out to be no instance.
    instances: BTreeMap<u64, Option<Instance>>,
    /// Addresses of shared carriers.
    pub(super) shared: Vec<u64>,
    places: u64,
}

impl<'a, M: Memory + ?Sized> Finder<'a, M> {
    /// Finds all instances.
    pub(super) fn find(memory: &'a M) -> Self {
        let mut finder =
            Finder { memory, layout: None, instances: BTreeMap::new(), shared: Vec::new(), places: 0 };
        finder.scan();
        finder.complete();
        finder
    }

    /// The instances that were found.
    pub(super) fn instances(self) -> Vec<Instance> {
        self.instances.into_values().flatten().collect()
    }

    fn scan(&mut self) {
        for mapping in self.memory.mappings() {
            let is_private = mapping.access.read && mapping.access.write && !mapping.access.shared;
            if !is_private || !mapping.is_memory() || mapping.bytes() < ALIGNMENT {
                continue;
            }
            let mut stretches = Vec::new();
            self.memory.resident(mapping.start, mapping.end, &mut |from, to| {
                stretches.push((from, to));
                stretches.len() < STRETCHES_MAX
            });
            self.scan_mapping(mapping.start, mapping.end, &stretches);
        }
    }

    fn scan_mapping(&mut self, start: u64, end: u64, stretches: &[(u64, u64)]) {
        let mut address = start;
        while address < end && self.places < PLACES_MAX && self.instances.len() < INSTANCES_MAX {
            if !self.memory.should_continue(1) {
                return;
            }
            self.places += 1;
            let stretch = stretches.partition_point(|(_, to)| *to <= address);
            let is_there = stretches.get(stretch).is_some_and(|(from, _)| *from <= address);
            let found = if is_there { carriers::carrier(self.memory, address) } else { None };
            let found =
                found.filter(|found| found.bytes.is_multiple_of(PAGE) && found.bytes <= end - address);
            match found.filter(|found| self.knows(found.allctr)) {
                Some(found) => {
                    if !found.is_single && found.is_owned && self.shared.len() < CARRIERS_MAX {
                        self.shared.push(address);
                    }
                    address += found.bytes;
                }
                None => address = (address / ALIGNMENT + 1) * ALIGNMENT,
            }
        }
    }

    /// Finds the instances without a carrier in its own mapping: by adjacent pointers to names, in
    /// the VM's own data and at the start of the malloc heap.
    fn complete(&mut self) {
        let Some(layout) = self.layout else { return };
        let names: Vec<u64> = self
            .instances
            .iter()
            .filter(|(_, instance)| instance.is_some())
            .filter_map(|(address, _)| self.memory.u64(address.wrapping_add(layout.name as u64)))
            .collect();
        let (Some(low), Some(high)) = (names.iter().min(), names.iter().max()) else { return };
        let near = low.saturating_sub(NEAR)..high.saturating_add(NEAR);
        let mappings = self.memory.mappings();
        let program = mappings.iter().position(|mapping| super::is_emulator(mapping.module()));
        for (i, mapping) in mappings.iter().enumerate() {
            // The `.bss` is behind the file's data, in a mapping without a name.
            let is_own =
                program.is_some_and(|first| (first..first + 8).contains(&i)) || mapping.path == "[heap]";
            if is_own && mapping.access.write {
                self.search(
                    mapping.start,
                    mapping.end.min(mapping.start.saturating_add(DATA_MAX)),
                    &near,
                    layout,
                );
            }
        }
    }

    fn search(&mut self, start: u64, end: u64, near: &std::ops::Range<u64>, layout: Layout) {
        let memory = self.memory;
        let mut found = Vec::new();
        memory.resident(start, end, &mut |from, to| {
            let mut bytes = vec![0; STEP as usize];
            let mut at = from;
            while at < to {
                let count = memory.read(at, &mut bytes[..(to - at).min(STEP) as usize]);
                for (i, eight) in bytes[..count].as_chunks::<8>().0.iter().enumerate() {
                    if near.contains(&u64::from_le_bytes(*eight)) && found.len() < INSTANCES_MAX {
                        found.push(at + 8 * i as u64);
                    }
                }
                if count == 0 {
                    break;
                }
                at += count as u64;
            }
            found.len() < INSTANCES_MAX
        });
        for address in found {
            self.knows(address.wrapping_sub(layout.name as u64));
        }
    }

    /// Whether an instance is at this address.
    fn knows(&mut self, address: u64) -> bool {
        if let Some(known) = self.instances.get(&address) {
            return known.is_some();
        }
        let mut bytes = vec![0; NAME_WITHIN + 256];
        let read = self.memory.read(address, &mut bytes);
        bytes.truncate(read);
        let layout = self.layout.or_else(|| layout(self.memory, &bytes));
        let instance = layout.and_then(|layout| instance(self.memory, address, &bytes, layout));
        if instance.is_some() {
            self.layout = layout;
        }
        let is_one = instance.is_some();
        self.instances.insert(address, instance);
        is_one
    }
}

pub(super) fn word_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk::<8>().map(|eight| u64::from_le_bytes(*eight))
}

fn int_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk::<4>().map(|four| u32::from_le_bytes(*four))
}

/// The name that a pointer leads to, if it is an allocator's.
fn name(memory: &(impl Memory + ?Sized), pointer: u64) -> Option<String> {
    let text = memory.text(pointer, 16)?;
    NAMES.contains(&text.as_str()).then(|| format!("{text}alloc"))
}

/// Whether a pointer leads to a version: `3.0`.
fn is_version(memory: &(impl Memory + ?Sized), pointer: u64) -> bool {
    let text = memory.text(pointer, 8).unwrap_or_default();
    text.contains('.') && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
}

/// The offsets, by the two texts that an instance points to.
fn layout(memory: &(impl Memory + ?Sized), bytes: &[u8]) -> Option<Layout> {
    let at =
        (0..NAME_WITHIN).step_by(8).find(|at| word_at(bytes, *at).and_then(|p| name(memory, p)).is_some())?;
    let is_version = |at: usize| word_at(bytes, at).is_some_and(|pointer| is_version(memory, pointer));
    let version = [at + 40, at + 48].into_iter().find(|at| is_version(*at))?;
    // Atags, if there are any, come first, as a boolean. The threshold is at least a page, or all
    // ones if there is none.
    let options = [version + 16, version + 24]
        .into_iter()
        .find(|at| word_at(bytes, *at).is_some_and(|sbct| sbct >= PAGE))?;
    Some(Layout { name: at, index: if version == at + 40 { at + 12 } else { at + 16 }, version, options })
}

fn instance(memory: &(impl Memory + ?Sized), address: u64, bytes: &[u8], layout: Layout) -> Option<Instance> {
    let option = |number: usize| word_at(bytes, layout.options + 8 * number);
    let instance = Instance {
        address,
        name: name(memory, word_at(bytes, layout.name)?)?,
        index: int_at(bytes, layout.index)?,
        sbct: option(0)?,
        lmbcs: option(6)?,
        smbcs: option(7)?,
    };
    let is_plausible = is_version(memory, word_at(bytes, layout.version)?)
        && instance.index < 1 << 16
        && instance.smbcs <= instance.lmbcs
        && instance.lmbcs < 1 << 47;
    is_plausible.then_some(instance)
}
