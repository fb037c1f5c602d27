//! The embedded index of one machine: a SQLite database, `DIR/index.sqlite`.
//!
//! The tables are documented in `embedded/schema.sql`, which creates them. People can read them
//! with `sqlite3`.
//!
//! | part | what it does |
//! |---|---|
//! | `database.rs` | opens the file, checks it, sets its limits, maps its errors |
//! | `content.rs` | encodes a document's content as columns, compressed, and decodes it |
//! | `writer.rs` | stores what the indexer saw, one transaction per batch |
//! | `retention.rs` | deletes old days, and all but the last state per day of volatile documents |
//! | `states.rs` | all states in memory, and sets of states |
//! | `condition.rs` | evaluates a query to a set of states |
//! | `vocabulary.rs` | reads the posting lists of tokens from the pages of FTS5 |
//! | `index.rs`, `values.rs` | queries |
//! | `phrase.rs` | matches phrases against texts, because the token index has no positions |

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
