//! Names for addresses.
//!
//! A name comes from the kernel's symbol table; from the file that is mapped at the address (its
//! symbol table, its debug information, or the debug file that its build id or debug link names);
//! or from a JIT compiler's perf map. An address without a name stays `[module+0xoffset]`.

use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{Input, Symbolizer};
use mitra_model::capture::{Image, KERNEL_MARK, RawStack};
use mitra_parse::maps::{Mapping, find_mapping};

use crate::demangled::demangled;
use crate::elf::ElfFile;
use crate::files::{self, Kind, RemoteFile, TakeResult};
use crate::kernel;
use crate::mapped_file::{FileId, MappedFile};
use crate::names::NameTable;
use crate::process::{MapsBudget, Process};
use crate::python::{Functions, functions};

/// Programs whose mappings are kept.
const PROCESSES_MAX: usize = 8192;
/// Mappings are read again this long after a program was first seen, because it is loading its
/// libraries.
const REFRESH_AFTER: [Duration; 3] =
    [Duration::from_millis(40), Duration::from_millis(200), Duration::from_secs(1)];
/// Longer names are cut off.
const NAME_CHARS_MAX: usize = 240;
/// Root functions of complete user stacks. A stack with another root was cut off.
const ROOTS: &[&str] = &[
    "_start",
    "__libc_start_main",
    "__libc_start_call_main",
    "start_thread",
    "clone",
    "__clone",
    "__GI___clone",
    "thread_start",
    // Go and Erlang have stacks of their own.
    "runtime.goexit",
    "runtime.mstart",
    "$erts_beamasm:",
];

/// Stands for frames that could not be followed.
const CUT_OFF: &str = "[cut off]";

/// Names the addresses of stacks. Remembers programs after they ended.
pub struct Symbols {
    files: HashMap<FileId, Option<FileSymbols>>,
    /// Read at the first lookup: a watcher never needs it.
    kernel: OnceCell<NameTable>,
    hides_kernel: bool,
    processes: HashMap<(u32, u32), TrackedProcess>,
    budget: MapsBudget,
    /// Runtimes that hide the names of their functions, by the hint that shows them.
    hidden: HashSet<(&'static str, u32)>,
    stacks: u64,
    cut_off: u64,
    /// Functions of an interpreter, by process and by the address of their code.
    interpreted: Option<(u32, Option<Functions>)>,
    functions: HashMap<u64, String>,
}

struct TrackedProcess {
    process: Process,
    names: HashMap<u64, String>,
    /// Files by device, inode and path.
    files: HashMap<(u64, u64, String), Option<FileId>>,
    seen: Instant,
    refreshes: usize,
    is_final: bool,
}

impl Default for Symbols {
    fn default() -> Self {
        Self::new()
    }
}

impl Symbols {
    /// Without any process yet.
    #[must_use]
    pub fn new() -> Self {
        Symbols {
            files: HashMap::new(),
            kernel: OnceCell::new(),
            hides_kernel: false,
            processes: HashMap::new(),
            budget: MapsBudget::default(),
            hidden: HashSet::new(),
            stacks: 0,
            cut_off: 0,
            interpreted: None,
            functions: HashMap::new(),
        }
    }

    /// Reads the mappings of new programs, and again those of recent ones. Must be called at least
    /// every second; the work is bounded by the number of new programs.
    pub fn remember(&mut self, images: &[Image]) {
        for known in self.processes.values_mut() {
            if REFRESH_AFTER.get(known.refreshes).is_some_and(|after| known.seen.elapsed() >= *after) {
                known.refreshes += 1;
                known.process.refresh(&mut self.budget);
            }
        }
        for image in images {
            self.add(image.pid, image.id);
        }
    }

    fn add(&mut self, pid: u32, image: u32) {
        if self.processes.len() >= PROCESSES_MAX || self.processes.contains_key(&(pid, image)) {
            return;
        }
        let process = Process::read(pid, &mut self.budget);
        let known = TrackedProcess {
            process,
            names: HashMap::new(),
            files: HashMap::new(),
            seen: Instant::now(),
            refreshes: 0,
            is_final: false,
        };
        self.processes.insert((pid, image), known);
    }

    /// The names of a stack's frames, from the root to the leaf. Kernel functions end in `_[k]`.
    pub fn names(&mut self, stack: &RawStack) -> Vec<String> {
        let mut names = Vec::with_capacity(stack.user.len() + stack.kernel.len());
        if !stack.user.is_empty() {
            self.add(stack.pid, stack.image);
            // Includes what was loaded or compiled meanwhile.
            if let Some(known) = self.processes.get_mut(&(stack.pid, stack.image))
                && !known.is_final
            {
                known.is_final = true;
                known.process.refresh(&mut self.budget);
            }
        }
        // The kernel follows frame pointers. In code without them, it follows any value in the
        // register, and the addresses from there on are not code.
        let mut whole = 0;
        while let Some(address) = stack.user.get(whole)
            && self.is_code(stack, at_call(*address, whole == 0))
        {
            whole += 1;
        }
        if whole < stack.user.len() {
            names.push(CUT_OFF.to_owned());
        }
        for (i, address) in stack.user.iter().enumerate().take(whole).rev() {
            names.push(self.user(stack, *address, i == 0));
        }
        let functions = self.functions(stack);
        let mut names = functions::merge(names, &functions);
        self.note_python(stack, &names);
        if let Some(root) = names.first() {
            self.stacks += 1;
            let reaches_back =
                !functions.is_empty() || root == "main" || ROOTS.iter().any(|name| root.starts_with(name));
            self.cut_off += u64::from(!reaches_back);
        }
        let from = names.len();
        for (i, address) in stack.kernel.iter().enumerate().rev() {
            names.push(self.in_kernel(*address, i == 0));
        }
        // Cuts the frames of the probe itself, whose programs may be unloaded already.
        let in_kernel = names.get(from..).unwrap_or_default();
        if let Some(probe) = in_kernel.iter().position(|name| is_probe(name)) {
            names.truncate(from + probe);
        }
        names
    }

    /// Functions of the interpreter, the innermost first.
    fn functions(&mut self, stack: &RawStack) -> Vec<String> {
        if stack.functions.is_empty() {
            return Vec::new();
        }
        if self.interpreted.as_ref().is_none_or(|(pid, _)| *pid != stack.pid) {
            self.interpreted = Some((stack.pid, Functions::of(stack.pid)));
            self.functions.clear();
        }
        let unknown: Vec<u64> =
            stack.functions.iter().filter(|code| !self.functions.contains_key(code)).copied().collect();
        if !unknown.is_empty() {
            let of_process = self.interpreted.as_mut().and_then(|(_, functions)| functions.as_mut());
            let names = of_process.and_then(|functions| functions.names(&unknown)).unwrap_or_default();
            let names = names.into_iter().map(|name| bounded(&name));
            // A process that ended has no names.
            self.functions.extend(unknown.into_iter().zip(names.chain(std::iter::repeat(String::new()))));
        }
        stack.functions.iter().map(|code| self.functions.get(code).cloned().unwrap_or_default()).collect()
    }

    /// With trampolines (`-X perf`), functions have frames of their own between those of the
    /// interpreter.
    fn note_python(&mut self, stack: &RawStack, names: &[String]) {
        let interprets = names.iter().any(|name| functions::interprets(name));
        if interprets && !names.iter().any(|name| name.starts_with("py::")) {
            let known = self.processes.get_mut(&(stack.pid, stack.image));
            let writes = known.is_some_and(|known| known.process.writes_perf_map(&mut self.budget));
            self.hidden.insert((if writes { PYTHON_CUT_OFF } else { PYTHON }, stack.pid));
        }
    }

    /// Whether code is at an address, as far as is known.
    fn is_code(&mut self, stack: &RawStack, address: u64) -> bool {
        let Some(known) = self.processes.get_mut(&(stack.pid, stack.image)) else { return true };
        known.process.mappings.is_empty()
            || find_mapping(&known.process.mappings, address).is_some()
            || known.process.compiled(address, &mut self.budget).is_some()
    }

    fn in_kernel(&mut self, address: u64, is_leaf: bool) -> String {
        let kernel = self.kernel.get_or_init(kallsyms);
        self.hides_kernel |= kernel.is_empty();
        match kernel.name(at_call(address, is_leaf)) {
            Some(name) => format!("{name}{KERNEL_MARK}"),
            None => format!("{address:#x}{KERNEL_MARK}"),
        }
    }

    fn user(&mut self, stack: &RawStack, address: u64, is_leaf: bool) -> String {
        let called = at_call(address, is_leaf);
        let Some(known) = self.processes.get_mut(&(stack.pid, stack.image)) else {
            return format!("[unknown {address:#x}]");
        };
        if let Some(name) = known.names.get(&called) {
            return name.clone();
        }
        let name = match find_mapping(&known.process.mappings, called).cloned() {
            None => {
                let name = known.process.compiled(called, &mut self.budget);
                name.map_or_else(|| format!("[unknown {address:#x}]"), |name| bounded(&name))
            }
            Some(mapping) => {
                let offset = (called - mapping.start).wrapping_add(mapping.offset);
                let file = (mapping.device, mapping.inode, mapping.path.clone());
                let key = *known.files.entry(file).or_insert_with(|| {
                    let mapped_file = known.process.open(&mapping)?;
                    let names = || {
                        let names = FileSymbols::of(&mapped_file, &mapping.path);
                        self.budget.is_spent |= names.is_err();
                        names.unwrap_or_default()
                    };
                    self.files.entry(mapped_file.key).or_insert_with(names);
                    Some(mapped_file.key)
                });
                let names = key.and_then(|key| self.files.get(&key)?.as_ref());
                let found = names.and_then(|names| names.at(offset));
                let found = found
                    .or_else(|| known.process.compiled(called, &mut self.budget).map(|name| bounded(&name)));
                if found.is_none() && mapping.is_memory() {
                    self.hidden.insert((runtime(&known.process.mappings), stack.pid));
                }
                found.unwrap_or_else(|| {
                    let offset = (address - mapping.start).wrapping_add(mapping.offset);
                    format!("[{}+{offset:#x}]", bounded(mapping.module()))
                })
            }
        };
        known.names.insert(called, name.clone());
        name
    }

    /// Notes for the reader about missing names.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.budget.is_spent {
            notes.push(
                "some functions have no names: the mappings of all processes, or what they say of code that was compiled \
                 while they ran (/tmp/perf-PID.map), took more memory than there is for it"
                    .to_owned(),
            );
        }
        notes.extend(files::errors());
        if self.hides_kernel {
            notes.push("functions of the kernel have no names: kernel.kptr_restrict hides them".to_owned());
        }
        let mut by_runtime: HashMap<&str, Vec<u32>> = HashMap::new();
        // With functions read from the interpreter's frames, only the first stacks lack them.
        let is_read =
            |pid: &u32| self.interpreted.as_ref().is_some_and(|(read, how)| read == pid && how.is_some());
        for (runtime, pid) in self.hidden.iter().filter(|(_, pid)| !is_read(pid)) {
            by_runtime.entry(runtime).or_default().push(*pid);
        }
        let mut hidden: Vec<_> = by_runtime.into_iter().collect();
        hidden.sort();
        for (runtime, mut pids) in hidden {
            pids.sort_unstable();
            let list: Vec<String> = pids.iter().take(5).map(u32::to_string).collect();
            let more = if pids.len() > list.len() { ", …" } else { "" };
            notes.push(format!("{runtime} (process {}{more})", list.join(", ")));
        }
        if self.stacks > 0 && self.cut_off * 5 > self.stacks {
            notes.push(format!(
                "{} of {} user stacks do not reach back to where the thread began: code that was compiled without frame \
                 pointers cuts them off",
                self.cut_off, self.stacks
            ));
        }
        notes
    }
}

fn kallsyms() -> NameTable {
    kernel::read(Path::new("/proc/kallsyms"))
}

const PYTHON: &str = "of CPython the interpreter is shown, not the functions of the program; from 3.12 on \
                      `python -X perf`, or PYTHONPERFSUPPORT=1, names them";
const PYTHON_CUT_OFF: &str = "this CPython writes the names of the program's functions, but was compiled without frame \
                              pointers, so that stacks do not reach them; one built with -fno-omit-frame-pointer does";
const OTHER: &str =
    "code that was compiled while the program ran has no names: it writes no /tmp/perf-PID.map";

/// A hint how a runtime exposes names of compiled code, by the mapped libraries.
fn runtime(mappings: &[Mapping]) -> &'static str {
    let has = |part: &str| mappings.iter().any(|mapping| mapping.module().starts_with(part));
    if has("libjvm.so") {
        "compiled Java has no names; `jcmd PID Compiler.perfmap` (JDK 17 and later) or -XX:+DumpPerfMapAtExit writes them"
    } else if has("beam") {
        "compiled Erlang has no names; `+JPperf true` (OTP 24 and later) writes them"
    } else if has("node") {
        "compiled JavaScript has no names; `--perf-basic-prof` writes them"
    } else if has("python") || has("libpython") {
        PYTHON
    } else {
        OTHER
    }
}

/// The return address of a call may already be in the next function.
fn at_call(address: u64, is_leaf: bool) -> u64 {
    if is_leaf { address } else { address.saturating_sub(1) }
}

enum FileSymbols {
    /// The file and its debug files belong to root. Each file has its own symbolizer, because a
    /// symbolizer caches by path.
    OfRoot(Box<Symbolizer>, Source<'static>),
    OfOthers(RemoteFile),
}

impl FileSymbols {
    /// `path` is where we see the file, if it is root's. An error means that the store is full.
    fn of(mapped_file: &MappedFile, path: &str) -> Result<Option<FileSymbols>, ()> {
        if mapped_file.is_roots && ElfFile::read(&mapped_file.file).is_none_or(|elf| !elf.inflates()) {
            let builder = Symbolizer::builder().enable_code_info(false).enable_inlined_fns(false);
            let source = Source::Elf(Elf::new(PathBuf::from(path)));
            return Ok(Some(FileSymbols::OfRoot(
                Box::new(builder.enable_auto_reload(false).build()),
                source,
            )));
        }
        match files::take(Kind::Names, &mapped_file.file) {
            TakeResult::Taken(file) => Ok(Some(FileSymbols::OfOthers(file))),
            TakeResult::Nothing => Ok(None),
            TakeResult::NoRoom => Err(()),
        }
    }

    fn at(&self, offset: u64) -> Option<String> {
        match self {
            FileSymbols::OfRoot(symbolizer, source) => {
                let found = symbolizer.symbolize_single(source, Input::FileOffset(offset));
                Some(printable(&found.ok()?.into_sym()?.name))
            }
            // A hostile file may have taken the helper over.
            FileSymbols::OfOthers(file) => file.name(offset).map(|name| bounded(&name)),
        }
    }
}

/// A demangled name in one line, bounded.
pub(crate) fn printable(name: &str) -> String {
    bounded(&demangled(name))
}

/// Replaces control characters and limits the length.
pub(crate) fn bounded(name: &str) -> String {
    let mut chars = name.chars().map(|c| if c.is_control() { '?' } else { c });
    let mut short: String = chars.by_ref().take(NAME_CHARS_MAX).collect();
    if chars.next().is_some() {
        short.push('…');
    }
    short
}

/// Frames between the tracepoint and the BPF program: `bpf_trace_run4`, `__traceiter_sched_switch`.
fn is_probe(name: &str) -> bool {
    ["__traceiter_", "__bpf_trace_", "bpf_trace_run", "trace_event_raw_event_"]
        .iter()
        .any(|start| name.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_this_process(user: Vec<u64>) -> RawStack {
        RawStack { pid: std::process::id(), image: 1, user, ..RawStack::default() }
    }

    #[inline(never)]
    fn a_function_of_this_test() -> u64 {
        a_function_of_this_test as fn() -> u64 as usize as u64
    }

    #[test]
    fn functions_of_this_program_have_their_names() {
        let mut symbols = Symbols::new();
        let stack = of_this_process(vec![a_function_of_this_test()]);
        let names = symbols.names(&stack);
        assert!(names[0].ends_with("a_function_of_this_test"), "{names:?}");
    }

    #[test]
    fn an_address_that_nobody_names_is_not_given_a_name() {
        let mut symbols = Symbols::new();
        assert_eq!(symbols.names(&of_this_process(vec![8])), ["[cut off]"]);
        let gone = RawStack { pid: 4_194_303, user: vec![0x1234], ..RawStack::default() };
        assert_eq!(symbols.names(&gone), ["[unknown 0x1234]"]);
    }

    #[test]
    fn a_program_is_known_after_it_ended() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id();
        let mut symbols = Symbols::new();
        let image = Image { id: 5, pid, comm: "sleep".into() };
        // At first it may still be this test's own image, before it becomes `sleep`, and libc's
        // code is mapped a moment later.
        let has = |file: &str, words: [&str; 2]| {
            let text = std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
            text.lines().any(|line| words.iter().all(|word| line.contains(word)))
        };
        for _ in 0..1000 {
            if has("comm", ["sleep", ""]) && has("maps", ["libc", " r-xp "]) {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        symbols.remember(std::slice::from_ref(&image));
        child.kill().unwrap();
        child.wait().unwrap();
        let known = &symbols.processes[&(pid, 5)];
        let libc = known.process.mappings.iter().find(|m| m.module().starts_with("libc")).cloned().unwrap();
        assert!(known.process.open(&libc).unwrap().is_roots);
        let stack = RawStack { pid, image: 5, user: vec![libc.start + 0x5000], ..RawStack::default() };
        let name = symbols.names(&stack).remove(0);
        assert!(!name.contains("unknown"), "{name}");
    }

    #[test]
    fn the_probe_is_left_out() {
        let mut symbols = Symbols::new();
        let kernel = symbols.kernel.get_or_init(kallsyms);
        let (Some(schedule), Some(run)) = (kernel.address("__schedule"), kernel.address("bpf_trace_run4"))
        else {
            println!("skipped: this kernel hides its addresses");
            return;
        };
        // An unloaded program, the path to it, the function itself.
        let kernel = vec![0xffff_ffff_ffff_0000, run + 9, schedule + 9];
        assert_eq!(symbols.names(&RawStack { kernel, ..RawStack::default() }), ["__schedule_[k]"]);
    }
}
