//! Looks at all parts of a process that were asked for, one after the other.
//!
//! Parts that are not there, or that cannot be read, leave a word among the doubts and do not keep the others from being looked at.

use serde::{Deserialize, Serialize};

use super::{Look, Meter};
use crate::composition::{self, Kind};
use crate::error::Error;
use crate::memory::Memory;
use crate::python::holders::{self, Wanted};
use crate::target::Target;
use crate::{census, malloc, python, runtimes};

/// What to look at. Without contents a look says how long strings are and how often they are there, not what they say.
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
    /// Keep the beginning of some chunks.
    pub samples: bool,
    /// Python types of which it is said who holds them.
    pub holders: Vec<String>,
    /// Let the run time count its own objects.
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

/// A library in whose name a word of a string is found. The string itself need not be kept for that.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hint {
    /// What the string is known by.
    pub id: String,
    /// The library.
    pub library: String,
}

/// Samples of chunks of each of some sizes.
const SAMPLES: usize = 3;
/// What is counted of the strings at once, 128 KiB, in steps of a walk.
const PIECE_STEPS: u64 = 1024;
/// Strings whose words are looked for in the names of libraries, those first that hold most.
const HINTED_MAX: usize = 200;

/// Takes a look. `progress` hears which part is looked at, and how far it is in parts of its size where that is known. Where the
/// target's allowance ends, so does the look: what it found is said to be a part, and what it did not come to is not there.
///
/// # Errors
///
/// The process ended.
pub fn take(
    target: &mut Target,
    options: &Options,
    progress: &mut dyn FnMut(&str, Option<f64>),
) -> Result<Look, Error> {
    let meter = Meter::start();
    target.refresh()?;
    let mut look = Look::new(target);
    look.run_time = runtimes::recognise::name(target).map(str::to_owned);
    progress("counting pages", None);
    let composition = composition::look(target, &composition::Options::default())?;
    if composition.uncounted > 0 {
        look.doubts.push(format!("the pages of {} mappings were not counted", composition.uncounted));
    }
    look.composition = Some(composition);
    look.looked_at.push("memory".to_owned());
    if options.c_heap && begins(target, "C heap", &mut look) {
        progress("walking the C heap", None);
        c_heap(target, options, &mut look);
    }
    if options.python && python::is_likely(target.mappings()) && begins(target, "Python", &mut look) {
        progress("walking Python's objects", None);
        target.refresh()?;
        python_heap(target, options, &mut look);
    }
    if options.runtime && runtimes::is_any(target) && begins(target, "run time", &mut look) {
        progress("looking at the run time", None);
        let options = runtimes::Options { ask_runtime: options.ask_runtime, ..runtimes::Options::default() };
        let runtime = runtimes::look(target, &options)?;
        // A part of its lists would be taken for all of them.
        look.runtime = runtime.filter(|_| begins(target, "run time", &mut look));
        if look.runtime.is_some() {
            look.looked_at.push("runtime".to_owned());
        }
    }
    if options.strings && begins(target, "strings", &mut look) {
        target.refresh()?;
        strings(target, options, &mut look, progress);
    }
    target.check()?;
    look.has_contents = options.texts || options.samples;
    look.cost = meter.cost();
    Ok(look)
}

/// Whether there is something left of the allowance for a part, and a word where there is not.
fn begins(target: &Target, part: &str, look: &mut Look) -> bool {
    let begins = !target.is_over();
    if !begins {
        look.doubts.push(format!("{part}: not looked at, because the look was ended early"));
    }
    begins
}

/// So often it is tried in all when most objects seem to be held by something outside, or the arenas are not found: a table that
/// grows is moved now and then, and what it held a moment before is out of reach.
const TRIES: usize = 3;

/// Says who holds the objects of some Python types, in a look that was taken just before.
///
/// # Errors
///
/// The process ended, the interpreter cannot be read, or the target's allowance did not suffice for all of the types.
pub fn hold(target: &mut Target, types: &[String], look: &mut Look) -> Result<(), Error> {
    for _ in 0..TRIES {
        target.refresh()?;
        let held = who_holds(target, types);
        if target.is_over() && look.holders.is_some() {
            // What an earlier try found is whole.
            break;
        }
        let held = held?;
        let is_stopped = held.is_stopped;
        let is_found = held.types.iter().all(|held| held.objects_held_natively * 2 < held.objects);
        look.holders = Some(held).filter(|held| !held.types.is_empty());
        if is_stopped {
            return Err(Error::Stopped);
        }
        if is_found {
            break;
        }
    }
    Ok(())
}

fn who_holds(target: &Target, types: &[String]) -> Result<holders::Held, Error> {
    let mut heap = python::open(target)?;
    heap.walk();
    Ok(holders::holders(&heap, &Wanted::Types(types.to_vec()), holders::OBJECTS_MAX))
}

/// Where the allocator of a process keeps its state. A thread that begins just now makes an arena that is not among the mappings
/// which were read before, and no list of arenas is believed that leads out of them.
fn places(target: &mut Target) -> Result<malloc::Places, Error> {
    let mut places = malloc::find(target);
    for _ in 1..TRIES {
        let is_missing =
            |places: &malloc::Places| places.allocator == malloc::Allocator::Glibc && places.glibc.is_none();
        if !places.as_ref().is_ok_and(is_missing) {
            break;
        }
        target.refresh()?;
        places = malloc::find(target);
    }
    places
}

fn c_heap(target: &mut Target, options: &Options, look: &mut Look) {
    let samples = if options.samples { SAMPLES } else { 0 };
    match places(target) {
        Ok(places) => {
            let options = malloc::Options { samples, ..malloc::Options::default() };
            let heap = malloc::look(target, &places, &options);
            if heap.is_stopped {
                look.doubts.push("C heap: the walk was ended early, and what is listed is a part".to_owned());
            }
            look.doubts.extend(heap.why_not.iter().map(|why| format!("C heap: {why}")));
            look.c_heap = Some(heap);
            look.looked_at.push("c-heap".to_owned());
        }
        Err(error) => look.doubts.push(format!("C heap: {error}")),
    }
}

fn python_heap(target: &Target, options: &Options, look: &mut Look) {
    let mut heap = match python::open(target) {
        Ok(heap) => heap,
        Err(error) => {
            look.doubts.push(format!("Python: {error}"));
            return;
        }
    };
    let found = heap.walk();
    if found.is_stopped {
        look.doubts.push("Python: the walk was ended early, and what is listed is a part".to_owned());
    } else if !found.is_complete {
        look.doubts.push("Python: not all lists of the collector were followed to their end".to_owned());
    }
    let is_stopped = found.is_stopped;
    look.python = Some(found);
    look.pymalloc = python::pymalloc::Pymalloc::look(target);
    if target.is_over() && !is_stopped {
        look.doubts
            .push("Python: small objects were not counted, because the look was ended early".to_owned());
    }
    if !options.holders.is_empty() {
        let wanted = Wanted::Types(options.holders.clone());
        let held = holders::holders(&heap, &wanted, holders::OBJECTS_MAX);
        if held.is_stopped {
            look.doubts.push("Python: the search for who holds the objects was ended early".to_owned());
        }
        look.holders = Some(held).filter(|held| !held.types.is_empty());
    }
    look.looked_at.push("python".to_owned());
}

fn strings(target: &Target, options: &Options, look: &mut Look, progress: &mut dyn FnMut(&str, Option<f64>)) {
    let regions = census::Census::default_regions(target);
    let mut census = census::take(target, &regions, &census::Options::default(), &mut |done, all| {
        progress("counting strings", (all > 0).then(|| done as f64 / all as f64));
        target.goes_on(PIECE_STEPS)
    });
    if census.is_stopped {
        look.doubts.push("strings: the census was ended early".to_owned());
    }
    look.hints = hints(&census, look);
    if !options.texts {
        hide(&mut census);
    }
    look.strings = Some(census);
    look.looked_at.push("strings".to_owned());
}

/// Drops all texts. What is counted is known by its hash.
fn hide(census: &mut census::Census) {
    census.entries.iter_mut().for_each(|entry| entry.text.clear());
    census.patterns.iter_mut().for_each(|pattern| pattern.text.clear());
    census.groups.iter_mut().flat_map(|group| &mut group.members).for_each(|member| member.text.clear());
}

/// Shorter words are part of too many names.
const WORD_MIN: usize = 5;
/// Words of which every system has a library, or a folder.
const COMMON: &[&str] = &[
    "linux", "python", "unknown", "object", "string", "default", "system", "error", "local", "share",
    "packages", "dist", "site", "threads", "lib64", "x86_64",
];

/// The mapped libraries of which a word of a string is a part of the name.
fn hints(census: &census::Census, look: &Look) -> Vec<Hint> {
    let Some(composition) = &look.composition else { return Vec::new() };
    let program = look.exe.as_deref().unwrap_or_default();
    let files: Vec<(&str, String)> = composition
        .parts
        .iter()
        .filter(|part| part.kind == Kind::Code)
        .filter_map(|part| part.name.as_deref())
        .filter(|path| *path != program)
        .map(|path| {
            // A module of Python is called `_core.so`, and its folder says whose it is.
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
