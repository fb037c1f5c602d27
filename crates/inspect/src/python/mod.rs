//! The heap of a CPython process, from outside: versions 3.6 to 3.14, 64-bit, release builds.
//!
//! The interpreter is not involved. Its runtime structure is found in the memory of the process
//! ([`find`](self)), from there its interpreters, and from each of them the collector's lists,
//! which name every container that takes part in collection. Objects that the collector does not
//! track (strings, bytes, numbers, tuples and dictionaries of such) are reached through references.
//!
//! ```text
//! _PyRuntime ─► interpreter ─► gc.generations[0..3] ⇄ header ⇄ header ⇄ …   all tracked, in a ring
//!                   │                                   └► object: refcount, type, …
//!                   │                                       └► references ─► untracked objects
//!                   ├► modules: dict                  roots by name
//!                   └► threads ─► frames ─► locals    roots by name
//! ```
//!
//! The process keeps running, so reads may be torn. Every pointer is checked, every loop is
//! bounded, and inconsistencies are counted in [`Doubts`].

mod debug_offsets;
mod elf;
mod find;
pub(crate) mod functions;
mod heap;
pub mod holders;
mod layout;
mod objects;
pub mod pymalloc;
mod resident;
mod size;
mod text;
mod threads;
mod types;
mod visited;
mod walk;

use mitra_parse::maps::Mapping;
use serde::{Deserialize, Serialize};

pub use find::RuntimeInfo;
pub use functions::Functions;
pub use heap::Heap;
pub use layout::Layout;

use crate::error::Error;
use crate::files::{self, Kind, TakeResult};
use crate::memory::Memory;
use crate::target::Target;

/// The findings in the heap of a Python process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PythonHeap {
    /// The version as reported by the process, at least `3.11`.
    pub version: String,
    /// `CPython`.
    pub implementation: String,
    /// Whether the layouts of this version were tested against a process of it.
    pub tested: bool,
    /// The interpreters, the main one first.
    pub interpreters: Vec<Interpreter>,
    /// All objects that were reached.
    pub objects: u64,
    /// Their shallow sizes in bytes, as in `sys.getsizeof`, including the collector's header.
    pub bytes: u64,
    /// Bytes of attribute values that objects hold beside themselves and that `sys.getsizeof`
    /// leaves out (3.11 and 3.12).
    pub beside_bytes: u64,
    /// The types, by bytes, the largest first.
    pub types: Vec<TypeRow>,
    /// Inconsistencies.
    pub doubts: Doubts,
    /// The walk ended early; the result is partial.
    #[serde(default)]
    pub is_stopped: bool,
    /// Whether every list was followed to its end. Objects may still be missing if they changed
    /// meanwhile.
    pub is_complete: bool,
    /// Duration of the walk in seconds.
    pub took: f64,
}

/// An interpreter in the process. Most processes have one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Interpreter {
    /// Its id; `None` in 3.6, which has no ids.
    pub id: Option<i64>,
    /// Objects in the collector's lists: the youngest first, the permanent one (`gc.freeze`) last.
    pub generations: Vec<u64>,
    /// Number of loaded modules.
    pub modules: u64,
    /// Its threads.
    pub threads: Vec<Thread>,
}

/// A thread of an interpreter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Thread {
    /// The value of `threading.get_ident`.
    pub ident: u64,
    /// The kernel's id in the PID namespace of the process; `None` before 3.11, which does not
    /// store it.
    pub native_id: Option<u64>,
    /// Its frames, the innermost first.
    pub frames: Vec<Frame>,
}

/// A call that has not returned.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Frame {
    /// The function, with its class if the version stores it (3.11).
    pub function: String,
    /// Its file.
    pub file: String,
    /// The line where the function begins.
    pub first_line: u32,
}

/// The objects of one type.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TypeRow {
    /// The name, with the module where it is known.
    pub name: String,
    /// The address of the type, which tells types of the same name apart.
    pub type_address: u64,
    /// Number of objects.
    pub count: u64,
    /// Their shallow sizes in bytes.
    pub bytes: u64,
    /// How many of them the collector tracks.
    pub tracked_count: u64,
    /// Whether its references are partly guessed: the structures of extension types are not
    /// described anywhere, so each of their words that is the address of an object counts as a
    /// reference.
    pub is_guessed: bool,
}

/// Inconsistencies, because the process keeps running. Each is a count of objects or references
/// that were left out.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Doubts {
    /// Lists or tables that changed while they were read, and could be followed only in part.
    pub torn: u64,
    /// Objects in a list that were freed by the time they were read.
    pub freed: u64,
    /// Objects that could not be read, because their memory is not resident (swapped out) or is
    /// gone.
    pub not_resident: u64,
    /// References that do not lead to an object.
    pub unknown: u64,
    /// Tracked objects that were reached by reference only: their list had changed.
    pub off_list: u64,
    /// References that were not followed because the limit was reached: there were more than the
    /// memory has words.
    pub cut_off: u64,
}

/// A type, by its index among those that were found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct TypeId(u32);

/// How an object refers to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Edge {
    /// As a key of a dictionary.
    Key,
    /// As the value under a key of a dictionary. The key is an object.
    Value {
        /// The address of the key.
        key: u64,
    },
    /// As an attribute whose name is the string object at `name`.
    Attribute {
        /// The address of the name.
        name: u64,
    },
    /// As its `__dict__`.
    Dict,
    /// As an item of a list, a tuple or a deque.
    Item {
        /// The index.
        index: u64,
    },
    /// As a member of a set.
    Member,
    /// As a local variable of a frame, a generator or a coroutine.
    Local {
        /// The address of the code object, which has the name.
        code: u64,
        /// The index of the variable.
        index: u32,
    },
    /// As a temporary of a running evaluation.
    Temporary,
    /// As a field of its structure at this offset; [`Heap::describe`] knows the names of many.
    Field {
        /// The offset in bytes.
        offset: u32,
    },
    /// As its type.
    Type,
}

/// Whether a process probably contains a Python interpreter, by the names of its mappings. Cheap,
/// but not certain.
#[must_use]
pub fn is_likely(mappings: &[Mapping]) -> bool {
    mappings.iter().any(|mapping| mapping.access.execute && find::is_python_name(mapping.module()))
}

/// Opens the heap of a Python process.
///
/// # Errors
///
/// There is no interpreter, its build is unknown, or its structures are not where they should be.
pub fn open(target: &Target) -> Result<Heap<'_, Target>, Error> {
    Heap::open(target, &|mapping| match files::take(Kind::Sections, &target.file(mapping)?) {
        TakeResult::Taken(file) => Some(file),
        TakeResult::Nothing | TakeResult::NoRoom => None,
    })
}

/// The same for any memory. It has no files, so the symbols must be in memory.
///
/// # Errors
///
/// As for [`open`].
pub fn open_memory<M: Memory + ?Sized>(memory: &M) -> Result<Heap<'_, M>, Error> {
    Heap::open(memory, &|_| None)
}

/// For [`crate::fuzzing`]: a mapped program.
pub(crate) fn fuzz_elf(image: &crate::memory::Image) {
    for mapping in image.mappings() {
        let module = elf::Module::read(image, mapping);
        std::hint::black_box(module.and_then(|module| module.symbol(image, "_PyRuntime")));
    }
}
