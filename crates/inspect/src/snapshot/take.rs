//! Takes a snapshot: reads all requested parts of a process, one after the other.
//!
//! Parts that are missing or cannot be read add a doubt, and the others are still read.

use serde::{Deserialize, Serialize};

use super::{Meter, Snapshot};
use crate::composition::{self, MappingKind};
use crate::error::Error;
use crate::memory::Memory;
use crate::python::holders::{self, Wanted};
use crate::target::Target;
use crate::{census, malloc, python, runtimes};

/// Which parts to read. Without contents a snapshot has lengths and counts of strings, not their
/// texts.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// The arenas of malloc.
    pub c_heap: bool,
    /// The strings.
    pub strings: bool,
    /// Python's objects.
    pub python: bool,
    /// The heaps of Java and Erlang.
    pub runtime: bool,
    /// Keep the texts of strings.
    pub texts: bool,
    /// Keep the first bytes of some chunks.
    pub samples: bool,
    /// Python types whose holders are searched.
    pub holders: Vec<String>,
    /// Ask the runtime to count its objects.
    pub ask_runtime: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            c_heap: true,
            strings: true,
            python: true,
            runtime: true,
            texts: false,
            samples: false,
            holders: Vec::new(),
            ask_runtime: false,
        }
    }
}

/// A library whose name contains a word of a string. The string itself need not be kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hint {
    /// The id of the string.
    pub id: String,
    /// The library.
    pub library: String,
}

/// Samples of chunks of one size.
const SAMPLES: usize = 3;
/// A piece of 128 KiB of the census, in steps of the budget.
const PIECE_STEPS: u64 = 1024;
/// Strings whose words are searched in names of libraries, the largest first.
const HINTED_MAX: usize = 200;

/// Takes a snapshot. `progress` gets the current part, and how much of it is done if that is known.
/// When the target's budget is exhausted, the current part is marked as partial and the rest is
/// missing.
///
/// # Errors
///
/// The process ended.
pub fn take(
    target: &mut Target,
    options: &Options,
    progress: &mut dyn FnMut(&str, Option<f64>),
) -> Result<Snapshot, Error> {
    let meter = Meter::start();
    target.refresh()?;
    let mut snapshot = Snapshot::new(target);
    snapshot.run_time = runtimes::detect::name(target).map(str::to_owned);
    progress("counting pages", None);
    let composition = composition::measure(target, &composition::Options::default())?;
    if composition.uncounted > 0 {
        snapshot.doubts.push(format!("the pages of {} mappings were not counted", composition.uncounted));
    }
    snapshot.composition = Some(composition);
    snapshot.looked_at.push("memory".to_owned());
    if options.c_heap && begins(target, "C heap", &mut snapshot) {
        progress("walking the C heap", None);
        c_heap(target, options, &mut snapshot);
    }
    if options.python && python::is_likely(target.mappings()) && begins(target, "Python", &mut snapshot) {
        progress("walking Python's objects", None);
        target.refresh()?;
        python_heap(target, options, &mut snapshot);
    }
    if options.runtime && runtimes::is_any(target) && begins(target, "runtime", &mut snapshot) {
        progress("looking at the runtime", None);
        let options = runtimes::Options { ask_runtime: options.ask_runtime, ..runtimes::Options::default() };
        let runtime = runtimes::read_heap(target, &options)?;
        // A partial list would look like a complete one.
        snapshot.runtime = runtime.filter(|_| begins(target, "runtime", &mut snapshot));
        if snapshot.runtime.is_some() {
            snapshot.looked_at.push("runtime".to_owned());
        }
    }
    if options.strings && begins(target, "strings", &mut snapshot) {
        target.refresh()?;
        strings(target, options, &mut snapshot, progress);
    }
    target.check()?;
    snapshot.has_contents = options.texts || options.samples;
    snapshot.cost = meter.cost();
    Ok(snapshot)
}

/// Whether the budget allows another part; adds a doubt if not.
fn begins(target: &Target, part: &str, snapshot: &mut Snapshot) -> bool {
    let begins = !target.is_exhausted();
    if !begins {
        snapshot.doubts.push(format!("{part}: not examined, because the snapshot was ended early"));
    }
    begins
}

/// Attempts if most objects seem to be held natively, or the arenas are not found: a growing table
/// is moved now and then, and its former content is out of reach for a moment.
const TRIES: usize = 3;

/// Finds the holders of some Python types, right after a snapshot was taken.
///
/// # Errors
///
/// The process ended, the interpreter cannot be read, or the budget did not suffice for all types.
pub fn find_holders(target: &mut Target, types: &[String], snapshot: &mut Snapshot) -> Result<(), Error> {
    for _ in 0..TRIES {
        target.refresh()?;
        let held = who_holds(target, types);
        if target.is_exhausted() && snapshot.holders.is_some() {
            // The result of an earlier attempt is complete.
            break;
        }
        let held = held?;
        let is_stopped = held.is_stopped;
        let is_found = held.types.iter().all(|held| held.objects_held_natively * 2 < held.objects);
        snapshot.holders = Some(held).filter(|held| !held.types.is_empty());
        if is_stopped {
            return Err(Error::Stopped);
        }
        if is_found {
            break;
        }
    }
    Ok(())
}

fn who_holds(target: &Target, types: &[String]) -> Result<holders::HoldersReport, Error> {
    let mut heap = python::open(target)?;
    heap.walk();
    Ok(holders::holders(&heap, &Wanted::Types(types.to_vec()), holders::OBJECTS_MAX))
}

/// Finds the allocator. A thread that just starts creates an arena that is not in the mappings yet,
/// and a list of arenas that leads out of the mappings is rejected.
fn places(target: &mut Target) -> Result<malloc::Detection, Error> {
    let mut places = malloc::find(target);
    for _ in 1..TRIES {
        let is_missing = |places: &malloc::Detection| {
            places.allocator == malloc::Allocator::Glibc && places.glibc.is_none()
        };
        if !places.as_ref().is_ok_and(is_missing) {
            break;
        }
        target.refresh()?;
        places = malloc::find(target);
    }
    places
}

fn c_heap(target: &mut Target, options: &Options, snapshot: &mut Snapshot) {
    let samples = if options.samples { SAMPLES } else { 0 };
    match places(target) {
        Ok(places) => {
            let options = malloc::Options { samples, ..malloc::Options::default() };
            let heap = malloc::walk_heap(target, &places, &options);
            if heap.is_stopped {
                snapshot
                    .doubts
                    .push("C heap: the walk was ended early, and what is listed is a part".to_owned());
            }
            snapshot.doubts.extend(heap.why_not.iter().map(|why| format!("C heap: {why}")));
            snapshot.c_heap = Some(heap);
            snapshot.looked_at.push("c-heap".to_owned());
        }
        Err(error) => snapshot.doubts.push(format!("C heap: {error}")),
    }
}

fn python_heap(target: &Target, options: &Options, snapshot: &mut Snapshot) {
    let mut heap = match python::open(target) {
        Ok(heap) => heap,
        Err(error) => {
            snapshot.doubts.push(format!("Python: {error}"));
            return;
        }
    };
    let found = heap.walk();
    if found.is_stopped {
        snapshot.doubts.push("Python: the walk was ended early, and what is listed is a part".to_owned());
    } else if !found.is_complete {
        snapshot.doubts.push("Python: not all lists of the collector were followed to their end".to_owned());
    }
    let is_stopped = found.is_stopped;
    snapshot.python = Some(found);
    snapshot.pymalloc = python::pymalloc::Pymalloc::read(target);
    if target.is_exhausted() && !is_stopped {
        snapshot
            .doubts
            .push("Python: small objects were not counted, because the snapshot was ended early".to_owned());
    }
    if !options.holders.is_empty() {
        let wanted = Wanted::Types(options.holders.clone());
        let held = holders::holders(&heap, &wanted, holders::OBJECTS_MAX);
        if held.is_stopped {
            snapshot
                .doubts
                .push("Python: the search for the holders of the objects was ended early".to_owned());
        }
        snapshot.holders = Some(held).filter(|held| !held.types.is_empty());
    }
    snapshot.looked_at.push("python".to_owned());
}

fn strings(
    target: &Target,
    options: &Options,
    snapshot: &mut Snapshot,
    progress: &mut dyn FnMut(&str, Option<f64>),
) {
    let regions = census::Census::default_regions(target);
    let mut census = census::take(target, &regions, &census::Options::default(), &mut |done, all| {
        progress("counting strings", (all > 0).then(|| done as f64 / all as f64));
        target.should_continue(PIECE_STEPS)
    });
    if census.is_stopped {
        snapshot.doubts.push("strings: the census was ended early".to_owned());
    }
    snapshot.hints = hints(&census, snapshot);
    if !options.texts {
        hide(&mut census);
    }
    snapshot.strings = Some(census);
    snapshot.looked_at.push("strings".to_owned());
}

/// Drops all texts. Strings keep their ids.
fn hide(census: &mut census::Census) {
    census.entries.iter_mut().for_each(|entry| entry.text.clear());
    census.patterns.iter_mut().for_each(|pattern| pattern.text.clear());
    census.groups.iter_mut().flat_map(|group| &mut group.members).for_each(|member| member.text.clear());
}

const WORD_MIN: usize = 5;
/// Words that are in names of libraries or directories of any system.
const COMMON: &[&str] = &[
    "linux", "python", "unknown", "object", "string", "default", "system", "error", "local", "share",
    "packages", "dist", "site", "threads", "lib64", "x86_64",
];

/// The mapped libraries whose names contain a word of a string.
fn hints(census: &census::Census, snapshot: &Snapshot) -> Vec<Hint> {
    let Some(composition) = &snapshot.composition else { return Vec::new() };
    let program = snapshot.exe.as_deref().unwrap_or_default();
    let files: Vec<(&str, String)> = composition
        .parts
        .iter()
        .filter(|part| part.kind == MappingKind::Code)
        .filter_map(|part| part.name.as_deref())
        .filter(|path| *path != program)
        .map(|path| {
            // A Python module may be called `_core.so`, so its directory counts too.
            let start = path.rmatch_indices('/').nth(1).map_or(0, |(at, _)| at);
            (path, path[start..].to_ascii_lowercase())
        })
        .collect();
    let library = |text: &str| {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| word.len() >= WORD_MIN);
        let mut words = words.map(str::to_ascii_lowercase).filter(|word| !COMMON.contains(&word.as_str()));
        words.find_map(|word| files.iter().find(|(_, name)| name.contains(&word)))
    };
    let entries = census.entries.iter().take(HINTED_MAX).map(|entry| (&entry.id, &entry.text));
    let patterns = census.patterns.iter().take(HINTED_MAX).map(|pattern| (&pattern.id, &pattern.text));
    let hint = |(id, text): (&String, &String)| {
        let (path, _) = library(text)?;
        Some(Hint { id: id.clone(), library: (*path).to_owned() })
    };
    entries.chain(patterns).filter_map(hint).collect()
}
