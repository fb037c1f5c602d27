//! `mitra services`.

use clap::Args;

use super::shared::since_default;
use super::{ArchiveArgs, RangeArgs, examples};

#[derive(Debug, Args)]
#[command(after_help = examples::below(
    "services",
    "A service is a TCP port or named Unix socket that serves; it is seen from outside, by the turns of its \
                        connections. REQ/S are answers; P50, P99 and MAX are response times; ERR/S are requests without an \
                        answer, resets, and, where the configuration says read-answers = true in the table [services], answers that are errors of the server; OPEN are requests without an answer at the end; WAITING is how many requests \
                        waited at a time, on average.\n\n\
                        Keys of --json are in base units, rates per second: address, name, pid, pids, cgroup, cgroup_name (unit, container or pod), requests, \
                        latency_mean, latency_p50, latency_p99, latency_max, waiting, open, unanswered, abandoned, resets, \
                        sent_bytes, received_bytes, watched (the part of the time in which requests were looked at, which stand for all); of services also connections, slower (since, and the medians before and now), where it was read how answers begin \
                        status_ok, client_errors, server_errors, status_unknown and protocol, and \
                        calls (keys of dependencies); of dependencies also key, service (whom it calls), of (whose process \
                        it is), connects, connect_time, connect_failed and connecting. map has who calls whom: from \
                        (service, process or elsewhere), to (service or address). What was not measured is left out."
))]
#[command(mut_arg("since", |arg| since_default(arg, "a minute before the end")))]
pub struct ServicesArgs {
    /// Only this service and what it calls: a process, systemd unit, socket or port
    #[arg(value_name = "NAME|PORT")]
    pub service: Option<String>,
    #[command(flatten)]
    pub archive: ArchiveArgs,
    #[command(flatten)]
    pub range: RangeArgs,
    /// Show who calls whom as a tree
    #[arg(long)]
    pub map: bool,
    /// Print so many rows of each table [default: 20, with --json all]
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    /// Print JSON, schema mitra.services/1
    #[arg(long)]
    pub json: bool,
}
