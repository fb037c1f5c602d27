//! Two or more sides against each other: times of a recording, folders of other tools' output, runs of benchmarks.

mod runs;

pub use runs::comparison;
