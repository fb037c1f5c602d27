//! One process in depth, from outside: the names of the addresses in its stacks, and what its memory is made of.

pub mod census;
pub mod composition;
mod demangled;
pub mod diff;
mod error;
pub mod files;
pub mod fuzzing;
mod identity;
mod kernel;
pub mod look;
pub mod malloc;
mod maps;
pub mod memory;
mod opened;
mod perfmap;
mod process;
pub mod python;
pub mod runtimes;
mod symbols;
mod tables;
mod target;
mod trusted;
mod unwind;
pub mod verdict;

pub use composition::Composition;
pub use diff::Diff;
pub use error::Error;
pub use look::Look;
pub use maps::{Access, Mapping};
pub use memory::{Allowance, Image, Memory, Word};
pub use symbols::Symbols;
pub use target::Target;
pub use unwind::Unwinder;
pub use verdict::Verdict;
