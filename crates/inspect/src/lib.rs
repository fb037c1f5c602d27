//! One process in depth. So far: the names of the addresses in its stacks.

mod kernel;
mod maps;
mod perfmap;
mod process;
mod symbols;

pub use symbols::Symbols;
