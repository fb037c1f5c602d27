//! From observations to a report: where to look, what follows from what, and what it cost.

pub mod ahead;
pub mod areas;
pub mod case;
pub mod check;
mod clients;
pub mod compare;
pub mod episodes;
pub mod explain;
pub mod graph;
pub mod ledger;
pub mod looks;
pub mod parts;
mod steady;
mod verdict;
