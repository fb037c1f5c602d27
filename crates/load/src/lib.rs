//! HTTP load at a rate that does not depend on the answers (an open loop).
//!
//! A [`Schedule`] says when each request is due, computed from the start and not from the one before, so that nothing
//! drifts. One task waits for these times and hands the requests to connections; a request that finds all of them taken
//! waits in a queue. Its latency counts from when it was due, its service time from when it was sent. A server that
//! stalls therefore shows in the latency of all requests that were due meanwhile, and not only in those that were
//! under way (no coordinated omission).
//!
//! Everything runs in one thread. What the thread is late itself is measured: see [`Outcome::is_trusted`].

mod alarm;
mod body;
mod distribution;
mod engine;
mod error;
mod knee;
mod outcome;
mod pace;
mod replay;
mod schedule;
mod targets;
mod wire;

pub use alarm::Alarm;
pub use body::BodySource;
pub use distribution::{Distribution, QUANTILES};
pub use engine::{Plan, Work, run};
pub use error::Error;
pub use hyper::header::{HeaderName, HeaderValue};
pub use hyper::{HeaderMap, Method};
pub use knee::{KNEE_REQUESTS_MIN, Knee, Search, Step, find_knee};
pub use outcome::{ERROR_KINDS, Failed, KEPT, Outcome, SCHEMA, Times};
pub use pace::{Source, Ticket, pace};
pub use replay::Replay;
pub use schedule::{RATE_MAX, Rate, Schedule, Shape};
pub use targets::{Target, Targets};
pub use wire::Protocol;
