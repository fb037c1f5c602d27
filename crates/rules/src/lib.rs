//! Rules over the metric table: the language, its evaluation, built-in suspicions, and when they may act.
//!
//! A rule is an expression over metrics, `task.system_time{comm=haproxy} > 30% for 2s`, and what to do when it holds.
//! [`parser`] reads it, [`compile`] looks its names up once, [`watch`] evaluates it on the frames of a recorder as they
//! come, [`series`] on a recording or other tools' output. [`policy`] bounds how often it acts. Nothing here does any I/O,
//! arms a probe or starts a program: that is the recorder's part.

pub mod ast;
pub mod compile;
pub mod config;
pub mod dimension;
pub mod error;
pub mod eval;
pub mod frames;
mod glob;
pub mod keys;
pub mod logs;
pub mod parser;
mod past;
pub mod policy;
pub mod rule;
pub mod series;
mod suggest;
pub mod watch;

pub use config::{Config, ConfigError, Known};
pub use error::Mistake;
pub use parser::parse;
pub use policy::{Busy, Decision, Policy, Verdict, Wish};
pub use rule::{Probe, Rule, in_words};
pub use watch::{Details, News, Watcher};
