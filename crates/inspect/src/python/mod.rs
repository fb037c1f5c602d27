//! The heap of a CPython process, from outside: versions 3.6 to 3.14, 64-bit, release builds.
//!
//! Nothing is asked of the interpreter. Its runtime structure is found in the memory of the process ([`find`](self)), from there its
//! interpreters, and from each of them the collector's lists, which name every container that takes part in collection. What the
//! collector does not know (strings, bytes, numbers, tuples and dictionaries of such) is reached onward through references.
//!
//! ```text
//! _PyRuntime ─► interpreter ─► gc.generations[0..3]  ⇄ header ⇄ header ⇄ …     every tracked object, in a ring
//!                   │                                    └► object: refcount, type, …  ─► references ─► untracked objects
//!                   ├► modules: dict                      roots by name
//!                   └► threads ─► frames ─► locals         roots by name
//! ```
//!
//! The process runs on meanwhile. What is read may be torn; every pointer is doubted, every loop bounded, and what made no sense is
//! counted in [`Doubts`].

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

use serde::{Deserialize, Serialize};

pub use find::RuntimeInfo;
pub use functions::Functions;
pub use heap::Heap;
pub use layout::Layout;

use crate::error::Error;
use crate::files::{self, Kind, TakeResult};
use crate::maps::Mapping;
use crate::memory::Memory;
use crate::target::Target;

/// What a look into the heap of a Python process found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PythonHeap {
    /// The version as the process says it, at least `3.11`.
    pub version: String,
    /// `CPython`.
    pub implementation: String,
    /// Whether the layouts of this version were tested against a process of it.
    pub tested: bool,
    /// The interpreters, the main one first.
    pub interpreters: Vec<Interpreter>,
    /// All objects that were reached.
    pub objects: u64,
    /// Their shallow sizes in bytes, as `sys.getsizeof` says them, the collector's header included.
    pub bytes: u64,
    /// Bytes of attribute values that objects hold beside themselves and that `sys.getsizeof` leaves out (3.11 and 3.12).
    pub beside_bytes: u64,
    /// The types, by bytes, the largest first.
    pub types: Vec<TypeRow>,
    /// What made no sense.
    pub doubts: Doubts,
    /// The walk was ended early: what is here is of a part only.
    #[serde(default)]
    pub is_stopped: bool,
    /// Whether every list was followed to its end. What changed meanwhile may be missing even so.
    pub is_complete: bool,
    /// How long it took, in seconds.
    pub took: f64,
}

/// An interpreter in the process. There is mostly one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Interpreter {
    /// Its id; `None` in 3.6, which gives them none.
    pub id: Option<i64>,
    /// Objects in the collector's lists: the youngest first, the permanent one (`gc.freeze`) last.
    pub generations: Vec<u64>,
    /// Modules that are loaded.
    pub modules: u64,
    /// Its threads.
    pub threads: Vec<Thread>,
}

/// A thread that an interpreter knows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Thread {
    /// What `threading.get_ident` says.
    pub ident: u64,
    /// The kernel's id in the namespace of the process; `None` before 3.11, which does not keep it.
    pub native_id: Option<u64>,
    /// Its frames, the innermost first.
    pub frames: Vec<Frame>,
}

/// A call that has not returned.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Frame {
    /// The function, with its class where the version keeps it (3.11).
    pub function: String,
    /// The file that it is from.
    pub file: String,
    /// The line where the function begins.
    pub first_line: u32,
}

/// The objects of one type.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TypeRow {
    /// The name, with the module where it is known.
    pub name: String,
    /// Where the type itself lies; tells types of the same name apart.
    pub type_address: u64,
    /// How many objects.
    pub count: u64,
    /// Their shallow sizes in bytes.
    pub bytes: u64,
    /// How many of them the collector tracks.
    pub tracked_count: u64,
    /// Whether what they refer to was partly guessed: types of extensions are not described anywhere, so each word of them that is
    /// the address of an object counts as a reference.
    pub is_guessed: bool,
}

/// What made no sense while the process ran on. Each is a count of objects or references that were left out.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Doubts {
    /// Lists or tables that changed under the reader, and could be followed only in part.
    pub torn: u64,
    /// Objects in a list that were freed by the time they were read.
    pub freed: u64,
    /// Objects that could not be read, because their memory is not resident (swapped out) or is not there any more.
    pub not_resident: u64,
    /// References that do not lead to an object.
    pub unknown: u64,
    /// Tracked objects that were reached by reference only: their list had changed.
    pub off_list: u64,
    /// References that were not followed because the bound was reached: there were more than the memory has words.
    pub cut_off: u64,
}

/// A type, by its place among those that were met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct TypeId(u32);

/// How an object refers to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Edge {
    /// As a key of a dictionary.
    Key,
    /// As the value under a key of a dictionary. The key is an object.
    Value {
        /// Where the key lies.
        key: u64,
    },
    /// As an attribute whose name is the string object at `name`.
    Attribute {
        /// Where the name lies.
        name: u64,
    },
    /// As its `__dict__`.
    Dict,
    /// As an item of a list, a tuple or a deque.
    Item {
        /// The how manieth.
        index: u64,
    },
    /// As a member of a set.
    Member,
    /// As a local variable of a frame, a generator or a coroutine.
    Local {
        /// Where the code object lies, which has the name.
        code: u64,
        /// The how manieth of it.
        index: u32,
    },
    /// As a temporary of an evaluation that goes on.
    Temporary,
    /// By a field of its structure at so many bytes; [`Heap::describe`] knows the names of many.
    Field {
        /// The bytes.
        offset: u32,
    },
    /// As its type.
    Type,
}

/// Whether there is a Python interpreter in a process at all, by the names of what is mapped: cheap, and no promise.
#[must_use]
pub fn is_likely(mappings: &[Mapping]) -> bool {
    mappings.iter().any(|mapping| mapping.access.execute && find::is_python_name(mapping.module()))
}

/// Looks into the heap of a Python process.
///
/// # Errors
///
/// It is none, or of a build that is not known, or its structures are not where they should be.
pub fn open(target: &Target) -> Result<Heap<'_, Target>, Error> {
    Heap::open(target, &|mapping| match files::take(Kind::Sections, &target.file(mapping)?) {
        TakeResult::Taken(file) => Some(file),
        TakeResult::Nothing | TakeResult::NoRoom => None,
    })
}

/// The same for any memory; there are no files, so that the symbols must be in it.
///
/// # Errors
///
/// As of [`open`].
pub fn open_memory<M: Memory + ?Sized>(memory: &M) -> Result<Heap<'_, M>, Error> {
    Heap::open(memory, &|_| None)
}

/// For [`crate::fuzzing`]: a program as it is mapped.
pub(crate) fn fuzz_elf(image: &crate::memory::Image) {
    for mapping in image.mappings() {
        let module = elf::Module::read(image, mapping);
        std::hint::black_box(module.and_then(|module| module.symbol(image, "_PyRuntime")));
    }
}
