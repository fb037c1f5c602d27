//! Recorders, exporters and consoles of other projects. They differ in how they lay out what they print and in what
//! they call it: the layouts are read by [`wide`], the names stand in tables.

mod access;
mod collectl;
mod consoles;
mod csv;
mod exposition;
mod innodb;
mod iotop;
mod netdata;
mod nmon;
mod node_names;
mod pcp_names;
mod postgres;
mod pprof;
mod prometheus;
mod wide;

use super::Format;
pub use access::{LoggedRequest, logged_request};

/// The formats, the most particular first.
pub static FORMATS: &[Format] = &[
    csv::DSTAT,
    csv::PMREP,
    nmon::FORMAT,
    collectl::PARSEABLE,
    collectl::PLAIN,
    prometheus::FORMAT,
    exposition::FORMAT,
    netdata::FORMAT,
    consoles::DOCKER,
    consoles::KUBECTL,
    consoles::NUMACTL,
    iotop::FORMAT,
    postgres::FORMAT,
    innodb::FORMAT,
    pprof::FORMAT,
    access::FORMAT,
];
