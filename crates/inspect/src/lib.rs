//! One process in depth, from outside: names of the addresses in its stacks, and what its memory is
//! made of. And one name in depth: what the resolvers of this host do with it.

pub mod census;
pub mod composition;
mod demangled;
pub mod diff;
mod elf;
mod error;
pub mod files;
pub mod fuzzing;
mod identity;
mod kernel;
pub mod malloc;
mod mapped_file;
pub mod memory;
mod names;
mod perfmap;
mod process;
pub mod python;
pub mod resolver;
pub mod runtimes;
pub mod snapshot;
mod symbols;
mod target;
mod trusted;
mod unwind;
pub mod verdict;

pub use composition::Composition;
pub use diff::Diff;
pub use error::Error;
pub use memory::{CpuBudget, Image, Memory, Word};
pub use mitra_parse::maps::{Access, Mapping};
pub use snapshot::Snapshot;
pub use symbols::Symbols;
pub use target::Target;
pub use trusted::{is_trusted_program, untrusted};
pub use unwind::Unwinder;
pub use verdict::Verdict;
