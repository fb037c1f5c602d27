//! Names for addresses.
//!
//! A name is looked up where it is really said: in the kernel's own table, in the file that is mapped at the address (its
//! symbol table, its debug information, or the debug file that its build id or debug link names), or in what a JIT
//! compiler wrote. An address that nobody names stays `[module+0xoffset]`.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use blazesym::MaybeDefault;
use blazesym::symbolize::source::{Elf, Kernel, Source};
use blazesym::symbolize::{Input, Symbolized, Symbolizer};
use mitra_model::capture::{Image, RawStack};

use crate::maps;
use crate::process::Process;

/// Programs whose mappings are kept.
const PROCESSES_MAX: usize = 8192;
/// Of those in other mount namespaces, so many hold a directory open.
const ROOTS_MAX: usize = 128;
/// Mappings are read again so often after a program was seen first: it loads its libraries.
const REFRESHES: u8 = 3;
/// Of a longer name the rest is left out.
const NAME_CHARS_MAX: usize = 240;
/// As far as kallsyms is read to see whether it shows addresses at all.
const KALLSYMS_LINES: usize = 1000;
/// A user stack that ends in none of these was cut off on the way to its root.
const ROOTS: &[&str] =
    &["_start", "__libc_start_main", "__libc_start_call_main", "start_thread", "clone", "thread_start"];

/// Names the addresses of stacks. Knows the programs that were shown to it, also after they ended.
pub struct Symbols {
    symbolizer: Symbolizer,
    kernel: HashMap<u64, String>,
    has_kernel: bool,
    processes: HashMap<(u32, u32), Known>,
    roots: usize,
    /// Runtimes that hide the names of their functions, by what would show them.
    hidden: HashSet<(&'static str, u32)>,
    stacks: u64,
    cut_off: u64,
}

struct Known {
    process: Process,
    names: HashMap<u64, String>,
    refreshes: u8,
    is_final: bool,
}

impl Default for Symbols {
    fn default() -> Self {
        Self::new()
    }
}

impl Symbols {
    /// Knows the kernel only.
    #[must_use]
    pub fn new() -> Self {
        let builder = Symbolizer::builder().enable_code_info(false).enable_inlined_fns(false);
        Symbols {
            symbolizer: builder.enable_auto_reload(false).build(),
            kernel: HashMap::new(),
            has_kernel: kernel_shows_addresses(Path::new("/proc/kallsyms")),
            processes: HashMap::new(),
            roots: 0,
            hidden: HashSet::new(),
            stacks: 0,
            cut_off: 0,
        }
    }

    /// Reads the mappings of programs that were seen just now, and again those of programs that were seen not long ago.
    /// To be called about every second; the work is bounded by the number of new programs.
    pub fn remember(&mut self, images: &[Image]) {
        for known in self.processes.values_mut().filter(|known| known.refreshes < REFRESHES) {
            known.refreshes += 1;
            known.process.refresh();
        }
        for image in images {
            self.add(image.pid, image.id);
        }
    }

    fn add(&mut self, pid: u32, image: u32) {
        if self.processes.len() >= PROCESSES_MAX || self.processes.contains_key(&(pid, image)) {
            return;
        }
        let process = Process::read(pid, self.roots < ROOTS_MAX);
        self.roots += usize::from(process.holds_root());
        let known = Known { process, names: HashMap::new(), refreshes: 0, is_final: false };
        self.processes.insert((pid, image), known);
    }

    /// The names of a stack's frames, from the root to the leaf. Those of the kernel end in `_[k]`.
    pub fn names(&mut self, stack: &RawStack) -> Vec<String> {
        let mut names = Vec::with_capacity(stack.user.len() + stack.kernel.len());
        if !stack.user.is_empty() {
            self.add(stack.pid, stack.image);
            // What was loaded or compiled meanwhile counts as well.
            if let Some(known) = self.processes.get_mut(&(stack.pid, stack.image))
                && !known.is_final
            {
                known.is_final = true;
                known.process.refresh();
            }
        }
        for (i, address) in stack.user.iter().enumerate().rev() {
            names.push(self.user(stack, *address, i == 0));
        }
        if let Some(root) = names.first() {
            self.stacks += 1;
            let reaches_back = root == "main" || ROOTS.iter().any(|name| root.starts_with(name));
            self.cut_off += u64::from(!reaches_back);
        }
        let from = names.len();
        for (i, address) in stack.kernel.iter().enumerate().rev() {
            names.push(self.in_kernel(*address, i == 0));
        }
        // The probe itself is not what the task was doing.
        while names.len() > from && names.last().is_some_and(|name| is_probe(name)) {
            names.pop();
        }
        names
    }

    fn in_kernel(&mut self, address: u64, is_leaf: bool) -> String {
        let called = at_call(address, is_leaf);
        if let Some(name) = self.kernel.get(&called) {
            return name.clone();
        }
        let mut name = None;
        if self.has_kernel {
            let source =
                Kernel { kallsyms: MaybeDefault::Default, vmlinux: MaybeDefault::None, ..Kernel::default() };
            let found = self.symbolizer.symbolize_single(&Source::Kernel(source), Input::AbsAddr(called));
            name = plain(found);
        }
        let name = name.map_or_else(|| format!("{address:#x}_[k]"), |name| format!("{name}_[k]"));
        self.kernel.insert(called, name.clone());
        name
    }

    fn user(&mut self, stack: &RawStack, address: u64, is_leaf: bool) -> String {
        let called = at_call(address, is_leaf);
        let Some(known) = self.processes.get_mut(&(stack.pid, stack.image)) else {
            return format!("[unknown {address:#x}]");
        };
        if let Some(name) = known.names.get(&called) {
            return name.clone();
        }
        let name = match maps::find(&known.process.mappings, called).cloned() {
            None => known.process.compiled(called).map_or_else(|| format!("[unknown {address:#x}]"), bounded),
            Some(mapping) => {
                let offset = called - mapping.start + mapping.offset;
                let file = known.process.file(&mapping);
                let found = file.and_then(|file| in_file(&self.symbolizer, file, offset));
                let is_file = mapping.is_file();
                let found = found.or_else(|| known.process.compiled(called).map(bounded));
                if found.as_deref().is_some_and(|name| name.starts_with("_PyEval_EvalFrame")) {
                    // It is replaced by names where the interpreter writes them.
                    self.hidden.insert((PYTHON, stack.pid));
                } else if found.is_none() && !is_file && mapping.path.is_empty() {
                    self.hidden.insert((runtime(&known.process.mappings), stack.pid));
                }
                found.unwrap_or_else(|| {
                    format!("[{}+{:#x}]", mapping.module(), address - mapping.start + mapping.offset)
                })
            }
        };
        known.names.insert(called, name.clone());
        name
    }

    /// What a reader has to know of the names that are missing.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if !self.has_kernel && !self.kernel.is_empty() {
            notes.push("functions of the kernel have no names: kernel.kptr_restrict hides them".to_owned());
        }
        let mut by_runtime: HashMap<&str, Vec<u32>> = HashMap::new();
        for (runtime, pid) in &self.hidden {
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

const PYTHON: &str = "of CPython the interpreter is shown, not the functions of the program; from 3.12 on \
                      `python -X perf`, or PYTHONPERFSUPPORT=1, names them";
const OTHER: &str =
    "code that was compiled while the program ran has no names: it writes no /tmp/perf-PID.map";

/// What hides the names of code that was compiled at run time, by the libraries that are mapped.
fn runtime(mappings: &[maps::Mapping]) -> &'static str {
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

/// A frame that is no leaf holds where the call returns to, which may be the next function already.
fn at_call(address: u64, is_leaf: bool) -> u64 {
    if is_leaf { address } else { address.saturating_sub(1) }
}

fn in_file(symbolizer: &Symbolizer, path: PathBuf, offset: u64) -> Option<String> {
    plain(symbolizer.symbolize_single(&Source::Elf(Elf::new(path)), Input::FileOffset(offset)))
}

fn plain(found: blazesym::Result<Symbolized<'_>>) -> Option<String> {
    let symbol = found.ok()?.into_sym()?;
    Some(bounded(&symbol.name))
}

fn bounded(name: &str) -> String {
    match name.char_indices().nth(NAME_CHARS_MAX) {
        Some((end, _)) => format!("{}…", name.get(..end).unwrap_or_default()),
        None => name.to_owned(),
    }
}

/// Frames between the traced place and the program that took the stack.
fn is_probe(name: &str) -> bool {
    ["bpf_", "__bpf_", "__traceiter_", "trace_call_bpf", "perf_trace_", "__perf_event_overflow", "perf_"]
        .iter()
        .any(|start| name.starts_with(start))
}

/// With `kernel.kptr_restrict` all addresses are zero, and every name would be wrong.
fn kernel_shows_addresses(path: &Path) -> bool {
    let Ok(file) = File::open(path) else { return false };
    let lines = BufReader::new(file).lines().take(KALLSYMS_LINES).map_while(Result::ok);
    let zero = |line: &str| line.split(' ').next().is_none_or(|address| address.bytes().all(|b| b == b'0'));
    lines.into_iter().any(|line| !zero(&line))
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
        assert_eq!(symbols.names(&of_this_process(vec![8])), ["[unknown 0x8]"]);
        let gone = RawStack { pid: 4_194_303, user: vec![0x1234], ..RawStack::default() };
        assert_eq!(symbols.names(&gone), ["[unknown 0x1234]"]);
    }

    #[test]
    fn a_program_is_known_after_it_ended() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id();
        let mut symbols = Symbols::new();
        let image = Image { id: 5, pid, comm: "sleep".into() };
        // It may still be this test's copy at first, before it becomes `sleep`.
        for _ in 0..100 {
            std::thread::sleep(std::time::Duration::from_millis(10));
            if std::fs::read_to_string(format!("/proc/{pid}/maps")).is_ok_and(|maps| maps.contains("libc")) {
                break;
            }
        }
        symbols.remember(std::slice::from_ref(&image));
        child.kill().unwrap();
        child.wait().unwrap();
        let known = &symbols.processes[&(pid, 5)];
        let libc = known.process.mappings.iter().find(|m| m.module().starts_with("libc")).cloned().unwrap();
        let file = known.process.file(&libc).unwrap();
        assert!(file.exists(), "{}", file.display());
        let stack = RawStack { pid, image: 5, user: vec![libc.start + 0x5000], ..RawStack::default() };
        let name = symbols.names(&stack).remove(0);
        assert!(!name.contains("unknown"), "{name}");
    }

    #[test]
    fn the_kernel_has_names_where_it_shows_addresses() {
        let dir = tempfile::tempdir().unwrap();
        let hidden = dir.path().join("kallsyms");
        std::fs::write(&hidden, "0000000000000000 T _text\n0000000000000000 T _stext\n").unwrap();
        assert!(!kernel_shows_addresses(&hidden));
        std::fs::write(&hidden, "0000000000000000 A fixed\nffffffff81000000 T _text\n").unwrap();
        assert!(kernel_shows_addresses(&hidden));
        let text = std::fs::read_to_string("/proc/kallsyms").unwrap_or_default();
        let line = text.lines().find(|line| line.ends_with(" T vfs_read")).unwrap_or_default();
        let address = u64::from_str_radix(line.split(' ').next().unwrap_or_default(), 16).unwrap_or(0);
        if address == 0 {
            println!("skipped: this kernel hides its addresses");
            return;
        }
        let mut symbols = Symbols::new();
        let stack = RawStack { kernel: vec![address + 4], ..RawStack::default() };
        assert_eq!(symbols.names(&stack), ["vfs_read_[k]"]);
    }
}
