//! Tells people and programs of incidents.
//!
//! ```text
//! explained incidents ── told.rs: what is new, revised, over ──┬── queue.rs ── channels/slack.rs
//!                                                              ├── queue.rs ── channels/pagerduty.rs
//!                                                              └── …: one thread and one file each
//! ```
//!
//! There is one message for an incident, which is revised when the verdict changes and ended when the incident is. What cannot be
//! delivered waits on the disk, bounded; a later message of the same incident takes the place of one that still waits.

mod channels;
mod config;
mod message;
mod queue;
mod told;

pub use channels::{Channel, Deliver, Failure, Programs};
pub use config::{Config, Devices, Kind, Mistake, Receiver};
pub use message::{Event, Facts, Message, SCHEMA, incident_id};
pub use queue::{Queue, Tally, replace};
pub use told::{Now, Told};
