//! The index of one machine: a SQLite database, `DIR/index.sqlite`.
//!
//! The tables are documented where they are created, in `embedded/schema.sql`; a person can read them with `sqlite3`.
//!
//! | part | what it does |
//! |---|---|
//! | `database.rs` | opens the file, checks it, sets its limits, turns its errors into ours |
//! | `content.rs` | a document's content as columns, compressed, and back |
//! | `writer.rs` | stores what the indexer saw; one transaction for each batch |
//! | `retention.rs` | deletes what is too old, and all but the last state of a day of what changes all the time |
//! | `states.rs` | all states in memory, and sets of them |
//! | `condition.rs` | a query as a set of states |
//! | `vocabulary.rs` | which contents have which words, from the pages of FTS5 |
//! | `index.rs`, `values.rs` | questions |
//! | `phrase.rs` | whether the words of a phrase stand beside each other; the index of words has no positions |

mod condition;
mod content;
mod database;
mod index;
mod phrase;
mod retention;
mod states;
mod values;
mod vocabulary;
mod writer;

pub use database::each_term;
pub use index::Index;
pub use writer::Writer;
