//! Two or more sides against each other: times of a recording, folders of other tools' output, runs of benchmarks.

mod ranks;
mod runs;
mod sides;

pub use runs::comparison;
pub use sides::{Input, compare, reads};
