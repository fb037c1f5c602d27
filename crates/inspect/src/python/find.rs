//! Finds CPython in a process: its version, and its runtime structure.
//!
//! ```text
//! since 3.7 the exported symbol _PyRuntime; since 3.11 also the section .PyRuntime; since 3.13 it
//!           begins with "xdebugpy"
//! 3.6       no such structure: the exported _PyGC_generation0 points to the lists, and
//!           PyInterpreterState_Head() returns interp_head, a private variable whose address is in
//!           its first instruction (mov rax, [rip + n])
//! version   since 3.13 in the structure; since 3.11 the exported Py_Version; before, the text of
//!           Py_GetVersion() in zeroed data, or the name of the library
//! ```

use mitra_parse::maps::Mapping;

use super::debug_offsets;
use super::elf::Module;
use super::layout::Layout;
use crate::error::Error;
use crate::files::RemoteFile;
use crate::memory::{Memory, Word};

/// Files whose symbols are searched: an interpreter may be linked into any.
const MODULES_MAX: usize = 512;
/// Limit of the searched data of a module: the largest known, with frozen modules, has 20 MB.
const DATA_BYTES_MAX: u64 = 64 << 20;
/// Bytes that are searched at once, and the longest search pattern.
const CHUNK: usize = 64 << 10;
const OVERLAP: usize = 256;
/// The supported versions.
const MINOR_MIN: u32 = 6;
const MINOR_MAX: u32 = 14;

/// An interpreter in a process.
#[derive(Debug, Clone, PartialEq)]
pub struct RuntimeInfo {
    /// `3.11.7`, or only `3.11` if the process does not tell more.
    pub version: String,
    /// Its layout.
    pub layout: Layout,
    /// The address of the pointer to its first interpreter state.
    pub interpreters: u64,
    /// The address of the collector's state, if it is one for the whole process (up to 3.8).
    pub collector: Option<u64>,
    /// The path of its file.
    pub path: String,
}

/// Whether a file name is that of an interpreter.
pub(super) fn is_python_name(name: &str) -> bool {
    let name = name.strip_prefix("lib").unwrap_or(name);
    let Some(rest) = name.strip_prefix("python") else { return false };
    rest.is_empty() || rest.starts_with(|c: char| c.is_ascii_digit())
}

/// The version in a name, as (major, minor, rest).
fn version_in(name: &str) -> Option<(u32, u32, &str)> {
    let rest = &name[name.find("python")? + "python".len()..];
    let (major, rest) = rest.split_once('.')?;
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    Some((major.parse().ok()?, rest[..end].parse().ok()?, &rest[end..]))
}

struct PythonModule {
    elf: Module,
    sections: Option<RemoteFile>,
    path: String,
    name: String,
    runtime: Option<u64>,
    generations: Option<u64>,
}

pub(super) fn find<M: Memory + ?Sized>(
    memory: &M,
    file_of: &dyn Fn(&Mapping) -> Option<RemoteFile>,
) -> Result<RuntimeInfo, Error> {
    if memory.word() != Word::Eight {
        return Err(unusable("it is a 32-bit program: only 64-bit interpreters can be looked into"));
    }
    let python = find_module(memory, file_of)?;
    refuse(memory, &python)?;
    let (minor, version) = version(memory, &python)?;
    let table = Layout::of(minor).ok_or_else(|| unknown(&version))?;
    let Some(runtime) = python.runtime else {
        return old(memory, &python, table, version);
    };
    let layout = match debug_offsets::version(memory, runtime) {
        Some((_, true)) => return Err(free_threaded(&version)),
        Some(_) => debug_offsets::apply(memory, runtime, table)?,
        None => table.clone(),
    };
    let head =
        layout.runtime_interpreters.ok_or_else(|| unusable("its layout has no list of interpreters"))?;
    Ok(RuntimeInfo {
        version,
        interpreters: runtime.wrapping_add(head),
        collector: layout.runtime_gc.map(|gc| runtime.wrapping_add(gc)),
        layout,
        path: python.path,
    })
}

fn unknown(version: &str) -> Error {
    unusable(&format!(
        "it runs CPython {version}, whose layout is not known; known are 3.{MINOR_MIN} to 3.{MINOR_MAX}"
    ))
}

fn unusable(text: &str) -> Error {
    Error::Unusable(text.to_owned())
}

fn free_threaded(version: &str) -> Error {
    unusable(&format!(
        "it runs a free-threaded build of CPython {version}: its collector keeps no lists, so that its heap cannot be walked"
    ))
}

/// The module with the runtime.
fn find_module<M: Memory + ?Sized>(
    memory: &M,
    file_of: &dyn Fn(&Mapping) -> Option<RemoteFile>,
) -> Result<PythonModule, Error> {
    let mut candidates: Vec<&Mapping> = memory
        .mappings()
        .iter()
        .filter(|mapping| mapping.offset == 0 && mapping.path.starts_with('/'))
        .collect();
    // A library with the name before a program with the name, before all others; otherwise the
    // order stays.
    candidates.sort_by_key(|mapping| match mapping.module() {
        name if !is_python_name(name) => 2,
        name => u8::from(!name.starts_with("lib")),
    });
    candidates.dedup_by(|one, other| one.path == other.path);
    candidates.truncate(MODULES_MAX);
    let read = |mapping: &Mapping| {
        Some(PythonModule {
            elf: Module::read(memory, mapping)?,
            sections: None,
            path: mapping.path.clone(),
            name: mapping.module().to_owned(),
            runtime: None,
            generations: None,
        })
    };
    for mapping in &candidates {
        let Some(mut python) = read(mapping) else { continue };
        python.runtime = python.elf.symbol(memory, "_PyRuntime");
        python.generations = python.elf.symbol(memory, "_PyGC_generation0");
        if python.runtime.is_some() || python.generations.is_some() {
            python.sections = file_of(mapping);
            return Ok(python);
        }
    }
    // No exported symbol: try the file's sections, or the cookie in its data.
    for mapping in &candidates {
        let Some(mut python) = read(mapping) else { continue };
        if let Some(sections) = file_of(mapping) {
            let at = |address: u64| python.elf.bias.wrapping_add(address);
            python.runtime = sections.section(".PyRuntime").or_else(|| sections.symbol("_PyRuntime")).map(at);
            python.generations = sections.symbol("_PyGC_generation0").map(at);
            python.sections = Some(sections);
        }
        if python.runtime.is_none() && python.generations.is_none() && is_python_name(&python.name) {
            python.runtime =
                in_data(memory, &python.elf, |bytes| bytes.starts_with(debug_offsets::COOKIE).then_some(()))
                    .map(|(at, ())| at);
        }
        if python.runtime.is_some() || python.generations.is_some() {
            return Ok(python);
        }
    }
    let named = |part: &str| memory.mappings().iter().any(|mapping| mapping.module().contains(part));
    Err(if named("libpypy") {
        unusable("it runs PyPy, whose heap is laid out differently; only CPython can be looked into")
    } else if candidates.iter().any(|mapping| is_python_name(mapping.module())) {
        match candidates.iter().find_map(|mapping| version_in(mapping.module())) {
            Some((major, minor, _)) if major < 3 || minor < MINOR_MIN => unknown(&format!("{major}.{minor}")),
            _ => unusable(
                "it runs Python, but its runtime structure (_PyRuntime) could not be found: neither exported, nor in a section",
            ),
        }
    } else {
        unusable("there is no CPython in it")
    })
}

/// Detects builds whose layout differs from the tables.
fn refuse<M: Memory + ?Sized>(memory: &M, python: &PythonModule) -> Result<(), Error> {
    let suffix = version_in(&python.name).map_or("", |(_, _, suffix)| suffix);
    let suffix = suffix.split('.').next().unwrap_or("");
    let of_debug = ["_Py_NegativeRefcount", "_Py_RefTotal"];
    if suffix.contains('d') || of_debug.iter().any(|name| python.elf.symbol(memory, name).is_some()) {
        return Err(unusable("it runs a debug build of CPython (Py_DEBUG), whose layout is not known"));
    }
    if suffix.contains('t') {
        return Err(free_threaded("3.13 or later"));
    }
    Ok(())
}

/// The minor version, and the complete version as text.
fn version<M: Memory + ?Sized>(memory: &M, python: &PythonModule) -> Result<(u32, String), Error> {
    // PY_VERSION_HEX: major, minor, micro, level with serial.
    let of_hex = |hex: u64| {
        (hex >> 24 == 3)
            .then(|| ((hex >> 16 & 0xff) as u32, format!("3.{}.{}", hex >> 16 & 0xff, hex >> 8 & 0xff)))
    };
    let said = python
        .runtime
        .and_then(|runtime| debug_offsets::version(memory, runtime))
        .and_then(|(hex, _)| of_hex(hex));
    let exported = || {
        let at = python.elf.symbol(memory, "Py_Version").or_else(|| {
            let address = python.sections.as_ref()?.symbol("Py_Version")?;
            Some(python.elf.bias.wrapping_add(address))
        })?;
        of_hex(memory.u64(at)?)
    };
    let printed = || in_data(memory, &python.elf, printed_version).map(|(_, version)| version);
    let named = || match version_in(&python.name) {
        Some((3, minor, _)) => Some((minor, format!("3.{minor}"))),
        _ => None,
    };
    if let Some((major, minor, _)) = version_in(&python.name).filter(|(major, _, _)| *major < 3) {
        return Err(unknown(&format!("{major}.{minor}")));
    }
    said.or_else(exported)
        .or_else(printed)
        .or_else(named)
        .ok_or_else(|| unusable("it runs CPython, but of which version cannot be told"))
}

/// `3.8.18 (default, May  9 2026, 10:00:00) \n[GCC 12.2.0]`, as Py_GetVersion() makes it.
fn printed_version(bytes: &[u8]) -> Option<(u32, String)> {
    let rest = bytes.strip_prefix(b"3.")?;
    let end = bytes.iter().position(|byte| *byte == 0)?;
    let text = std::str::from_utf8(bytes.get(..end)?).ok()?;
    let (version, rest_of) = text.split_once(" (")?;
    let is_one = rest_of.contains("[GCC") || rest_of.contains("[Clang") || rest_of.contains("[clang");
    if !is_one || version.len() > 20 || rest.is_empty() {
        return None;
    }
    let minor = version.split('.').nth(1)?.parse().ok()?;
    Some((minor, version.trim_end_matches('+').to_owned()))
}

/// The first address in the data of a module that satisfies `is`.
fn in_data<M: Memory + ?Sized, T>(
    memory: &M,
    module: &Module,
    is: impl Fn(&[u8]) -> Option<T>,
) -> Option<(u64, T)> {
    let mut bytes = vec![0; CHUNK + OVERLAP];
    for (from, to) in &module.writable {
        let to = (*to).min(from.saturating_add(DATA_BYTES_MAX));
        let mut at = *from;
        while at < to && memory.should_continue(CHUNK as u64 / 8) {
            let wanted = usize::try_from(to - at).unwrap_or(usize::MAX).min(bytes.len());
            let read = memory.read(at, &mut bytes[..wanted]);
            let known = &bytes[..read];
            // Both addresses are multiples of eight.
            for i in (0..read.min(CHUNK)).step_by(8) {
                if let Some(found) = is(&known[i..read.min(i + OVERLAP)]) {
                    return Some((at + i as u64, found));
                }
            }
            at = at.saturating_add(CHUNK as u64);
        }
    }
    None
}

/// The variant for 3.6.
fn old<M: Memory + ?Sized>(
    memory: &M,
    python: &PythonModule,
    table: &Layout,
    version: String,
) -> Result<RuntimeInfo, Error> {
    if table.minor != MINOR_MIN {
        return Err(unusable(&format!(
            "it runs CPython {version}, but its runtime structure (_PyRuntime) could not be found"
        )));
    }
    let by_code = || interp_head(memory, python.elf.symbol(memory, "PyInterpreterState_Head")?);
    let by_name = || Some(python.elf.bias.wrapping_add(python.sections.as_ref()?.symbol("interp_head")?));
    let interpreters = by_code().or_else(by_name).ok_or_else(|| {
        unusable("it runs CPython 3.6, but where it keeps its interpreters could not be found")
    })?;
    let collector = python.generations.and_then(|at| memory.u64(at));
    Ok(RuntimeInfo { version, layout: table.clone(), interpreters, collector, path: python.path.clone() })
}

/// The address in the first instructions of PyInterpreterState_Head(), compiled for x86-64: an
/// optional `endbr64` and frame, then `mov rax, [rip + n]`.
fn interp_head<M: Memory + ?Sized>(memory: &M, code: u64) -> Option<u64> {
    let mut bytes = [0; 32];
    memory.exact(code, &mut bytes)?;
    let mut at = 0;
    for optional in [&[0xf3, 0x0f, 0x1e, 0xfa][..], &[0x55], &[0x48, 0x89, 0xe5]] {
        if bytes[at..].starts_with(optional) {
            at += optional.len();
        }
    }
    let distance = bytes[at..].strip_prefix(&[0x48, 0x8b, 0x05])?.first_chunk::<4>()?;
    let next = code.checked_add(at as u64 + 7)?;
    next.checked_add_signed(i64::from(i32::from_le_bytes(*distance)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Image;

    #[test]
    fn versions_are_read_where_they_stand() {
        assert_eq!(version_in("libpython3.8.so.1.0"), Some((3, 8, ".so.1.0")));
        assert_eq!(version_in("python3.11"), Some((3, 11, "")));
        assert_eq!(version_in("libpython3.13t.so.1.0"), Some((3, 13, "t.so.1.0")));
        assert_eq!(version_in("libpython2.7.so.1.0"), Some((2, 7, ".so.1.0")));
        assert_eq!(version_in("libpython3.so"), None);
        assert!(
            is_python_name("python3.6m")
                && is_python_name("python")
                && is_python_name("libpython3.7m.so.1.0")
        );
        assert!(!is_python_name("pythonista") && !is_python_name("libc.so.6"));
        let text = b"3.8.18 (default, May  9 2026, 10:00:00) \n[GCC 12.2.0]\0rest";
        assert_eq!(printed_version(text), Some((8, "3.8.18".to_owned())));
        assert_eq!(printed_version(b"3.5 (what) else\0"), None);
    }

    #[test]
    fn the_variable_of_3_6_stands_in_the_code() {
        let mut image = Image::new(Word::Eight);
        image.add(0x1000, &[0xf3, 0x0f, 0x1e, 0xfa, 0x48, 0x8b, 0x05, 0x10, 0, 0, 0, 0xc3, 0, 0, 0, 0], "");
        image.add(0x1010, &[0; 32], "");
        assert_eq!(interp_head(&image, 0x1000), Some(0x100b + 0x10));
        assert_eq!(interp_head(&image, 0x1008), None);
    }

    #[test]
    fn there_are_words_for_what_is_none() {
        let mut image = Image::new(Word::Eight);
        image.add(0x1000, &[0; 64], "/usr/bin/cat");
        assert!(find(&image, &|_| None).unwrap_err().to_string().contains("no CPython"));
        image.add(0x2000, &[0; 64], "/usr/lib/libpython2.7.so.1.0");
        assert!(find(&image, &|_| None).unwrap_err().to_string().contains("2.7"));
        assert!(find(&Image::new(Word::Four), &|_| None).unwrap_err().to_string().contains("32-bit"));
    }
}
