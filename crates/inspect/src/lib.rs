//! One process in depth, from outside: the names of the addresses in its stacks, and what its memory is made of.

pub mod census;
mod error;
mod kernel;
mod maps;
pub mod memory;
mod perfmap;
mod process;
pub mod python;
mod symbols;
mod target;

pub use error::Error;
pub use maps::{Access, Mapping};
pub use memory::{Image, Memory, Window, Word};
pub use symbols::Symbols;
pub use target::Target;
