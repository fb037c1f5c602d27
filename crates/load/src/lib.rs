//! HTTP load at a rate that does not depend on the answers (an open loop).
//!
//! A [`Schedule`] says when each request is due, computed from the start and not from the one before, so that nothing
//! drifts. One task waits for these times and hands the requests to connections; a request that finds all of them taken
//! waits in a queue. Its latency counts from when it was due, its service time from when it was sent. A server that
//! stalls therefore shows in the latency of all requests that were due meanwhile, and not only in those that were
//! under way (no coordinated omission).
//!
//! Everything runs in one thread. How late the thread is itself and how much of a CPU it takes are measured: see
//! [`Outcome::is_trusted`].

mod alarm;
mod body;
mod distribution;
mod engine;
mod error;
mod knee;
mod outcome;
mod pace;
mod plan;
mod pool;
mod replay;
mod schedule;
mod targets;
mod wire;

pub use body::BodySource;
pub use distribution::{Distribution, QUANTILES};
pub use engine::run;
pub use error::Error;
pub use hyper::header::{HeaderName, HeaderValue};
pub use hyper::{HeaderMap, Method};
pub use knee::{Knee, Search, Step, find_knee};
pub use outcome::{ERROR_KINDS, Failed, KEPT, Outcome, SCHEMA, Times};
pub use plan::{Plan, Work};
pub use schedule::{Rate, Schedule, Shape};
pub use targets::Targets;
pub use wire::Protocol;

pub(crate) use alarm::Alarm;
pub(crate) use pace::{Source, Ticket, pace};
pub(crate) use replay::Replay;
pub(crate) use targets::Target;
