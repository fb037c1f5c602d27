//! Recorders, exporters and consoles of other projects. They differ in how they lay out what they print and in what
//! they call it: the layouts are read by [`wide`], the names stand in tables.

mod access;
mod below;
mod collectl;
mod consoles;
mod crictl;
mod csv;
mod exposition;
mod innodb;
mod iotop;
mod kube_node;
mod locks;
mod netdata;
mod nmon;
mod node_names;
mod nvme;
mod pcp_names;
mod pmrep;
mod postgres;
mod pprof;
mod prometheus;
mod smartctl;
mod turbostat;
mod wide;

use super::Format;
pub use access::{LoggedRequest, logged_request};

/// The formats, the most particular first.
pub static FORMATS: &[Format] = &[
    csv::DSTAT,
    csv::PMREP,
    pmrep::FORMAT,
    below::CSV,
    below::JSON,
    nmon::FORMAT,
    collectl::PARSEABLE,
    collectl::PLAIN,
    prometheus::FORMAT,
    exposition::FORMAT,
    netdata::FORMAT,
    consoles::DOCKER,
    consoles::KUBECTL,
    crictl::FORMAT,
    kube_node::FORMAT,
    consoles::NUMACTL,
    iotop::FORMAT,
    postgres::FORMAT,
    locks::FORMAT,
    innodb::FORMAT,
    pprof::FORMAT,
    turbostat::FORMAT,
    smartctl::TEXT,
    smartctl::JSON,
    nvme::TEXT,
    nvme::JSON,
    access::FORMAT,
];
