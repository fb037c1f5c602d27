//! The index of one machine, without a server: versions of documents in a log, contents stored once, the words of each.

mod batch;
mod bits;
mod block;
mod codec;
mod content;
mod contents;
mod dictionary;
mod exec;
mod files;
mod frame;
mod fresh;
pub mod fuzzing;
mod index;
mod leaves;
mod order;
mod phrase;
mod seal;
mod sealed;
pub mod store;
pub mod table;
mod terms;
mod text;
mod values;
mod words;
mod writer;

pub use index::Index;
pub use text::each_term;
pub use writer::Writer;
