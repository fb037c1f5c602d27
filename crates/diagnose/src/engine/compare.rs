//! Two or more sides against each other: times of a recording, folders of other tools' output, runs of benchmarks.

mod ranks;
mod repeated;
mod runs;
mod sides;

pub use crate::stats::median;
pub use repeated::{RUNS_MIN, against, mark_sure, measured};
pub use runs::comparison;
pub use sides::{Input, compare, reads};
