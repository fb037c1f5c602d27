//! The runtime of a process, supported or not. Growth in a heap that cannot be read is not native
//! for that reason.

use mitra_parse::maps::Mapping;

use crate::memory::Memory;
use crate::python;

/// Files by which a runtime is detected, by prefix of their names.
const FILES: &[(&str, &str)] = &[
    ("libjvm.so", "the Java VM"),
    ("libj9vm", "OpenJ9"),
    ("beam.", "the Erlang VM"),
    ("libpypy", "PyPy"),
    ("node", "Node.js"),
    ("libnode.so", "Node.js"),
    ("libcoreclr.so", ".NET"),
    ("libmonosgen", "Mono"),
    ("libruby", "Ruby"),
    ("ruby", "Ruby"),
    ("php", "PHP"),
    ("libphp", "PHP"),
    ("libperl.so", "Perl"),
    ("perl", "Perl"),
];
/// The note with a Go program's build id, near its start: a name of four bytes, of type 4
/// (cmd/internal/buildid).
const GO_NOTE: &[u8] = b"\x04\0\0\0Go\0\0";
const GO_NOTE_WITHIN: usize = 4096;

/// The name of the runtime.
pub fn name(memory: &(impl Memory + ?Sized)) -> Option<&'static str> {
    let code = || memory.mappings().iter().filter(|mapping| mapping.is_file() && mapping.access.execute);
    let by_file = |mapping: &Mapping| {
        let module = mapping.module();
        FILES.iter().find(|(file, _)| begins(module, file)).map(|(_, name)| *name)
    };
    code()
        .find_map(by_file)
        .or_else(|| python::is_likely(memory.mappings()).then_some("CPython"))
        .or_else(|| is_go(memory).then_some("Go"))
}

/// `node` and `node18`, `php-fpm8.2` and `libruby-3.1.so`, not `nodeinfo` or `phpadmin`.
fn begins(module: &str, file: &str) -> bool {
    let rest = module.strip_prefix(file);
    rest.is_some_and(|rest| file.contains('.') || !rest.starts_with(|c: char| c.is_ascii_alphabetic()))
}

fn is_go(memory: &(impl Memory + ?Sized)) -> bool {
    let Some(program) = memory.mappings().iter().find(|mapping| mapping.is_file()) else { return false };
    let mut bytes = [0; GO_NOTE_WITHIN];
    let read = memory.read(program.start, &mut bytes).min(bytes.len());
    let bytes = bytes.get(..read).unwrap_or_default();
    program.offset == 0 && bytes.windows(GO_NOTE.len()).any(|window| window == GO_NOTE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_are_told_from_what_begins_alike() {
        let name = |module| FILES.iter().find(|(file, _)| begins(module, file)).map(|(_, name)| *name);
        for (module, expected) in [
            ("node", Some("Node.js")),
            ("node20", Some("Node.js")),
            ("php-fpm8.2", Some("PHP")),
            ("libruby-3.1.so.3.1.2", Some("Ruby")),
            ("beam.smp", Some("the Erlang VM")),
            ("nodeinfo", None),
            ("phpadmin", None),
            ("libc.so.6", None),
        ] {
            assert_eq!(name(module), expected, "{module}");
        }
    }
}
