//! The laboratory: makes real incidents on this machine, has Mitra explain them, and scores the
//! answers.
//!
//! An incident is a straight-line function over a [`stage::Stage`]; `README.md` says how to add
//! one. Every change to the machine is first noted in a journal, see [`journal`].

pub mod baselines;
pub mod bench;
pub mod calibrate;
pub mod conductor;
pub mod controls;
pub mod counters;
pub mod disguise;
pub mod draw;
pub mod incident;
pub mod incidents;
pub mod journal;
pub mod long;
pub mod machine;
pub mod ordeals;
pub mod plan;
pub mod record;
pub mod recorder;
pub mod report;
pub mod roles;
pub mod run;
pub mod score;
pub mod ship;
pub mod stage;
pub mod stitch;
pub mod stored;
pub mod weaken;
pub mod witness;

pub use draw::Draw;
pub use incident::{Control, Form, Incident, Need, Stop, Truth};
pub use journal::Undo;
pub use stage::Stage;
