//! Samples the host: kept-open files, BPF iterators and BPF probes.
//!
//! [`Sampler`] fills a frame on each tick of a [`Ticker`]. Everything is read below one root directory and timed by
//! one [`Clock`], so that a test can put a tree and a clock of its own in their place.

pub mod bpf;
pub mod capture;

mod aside;
mod budget;
mod cells;
mod cgroup;
mod clock;
mod containers;
mod devices;
mod disks;
mod doctor;
mod error;
mod file;
mod filesystems;
mod finder;
mod follow;
mod fuse;
mod host;
mod inotify;
mod io;
mod journal;
mod jvm;
mod kmsg;
mod limits;
mod log_tail;
mod memory;
mod missing;
mod mounts;
mod net;
mod nodes;
mod probes;
mod rate;
mod sampler;
mod self_metrics;
mod sessions;
mod settings;
mod sources;
mod status;
mod tasks;
mod ticker;
mod trouble;
mod waits;
mod xfs;

pub use budget::{Budget, Shed};
pub use clock::{Clock, FakeClock};
pub use doctor::{Ability, Fix, State, doctor};
pub use error::Error;
pub use follow::{LogSource, Pattern};
pub use sampler::{Config, Sampler};
pub use self_metrics::ArchiveState;
pub use ticker::{INTERVAL_MAX, INTERVAL_MIN, Tick, Ticker, check_interval};
