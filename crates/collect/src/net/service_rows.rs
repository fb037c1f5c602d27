//! A row of services or of what processes ask of others: what it holds between two frames, and its cells.

use mitra_model::{Entity, Frame, Key, NA, StrId};

use super::latency::Latency;
use crate::cells::{cell, col, set};
use crate::io::Io;

/// The counters of a row, in the order of [`SERVICE_COUNTERS`] and [`DEPENDENCY_COUNTERS`].
pub const COUNTERS: usize = 11;
pub const SERVICE_COUNTERS: [&str; COUNTERS] = [
    "service.requests",
    "service.response_time",
    "service.wait_time",
    "service.unanswered",
    "service.abandoned",
    "service.connections",
    "service.resets",
    "service.sent_bytes",
    "service.received_bytes",
    "",
    "",
];
pub const DEPENDENCY_COUNTERS: [&str; COUNTERS] = [
    "dependency.requests",
    "dependency.response_time",
    "dependency.wait_time",
    "dependency.unanswered",
    "dependency.abandoned",
    "dependency.connects",
    "dependency.resets",
    "dependency.sent_bytes",
    "dependency.received_bytes",
    "dependency.connect_time",
    "dependency.connect_failed",
];
/// Those that are not known of Unix sockets: connections, and what arrived.
const NOT_OF_UNIX: [usize; 2] = [5, 8];

/// The columns of one of both entities.
#[derive(Debug)]
pub struct Columns {
    pub entity: Entity,
    pub counters: [usize; COUNTERS],
    pub latency: [usize; 4],
    pub oncpu_max: usize,
    pub open: usize,
    pub connecting: usize,
    pub watched: usize,
    pub established: usize,
    pub pid: usize,
    pub comm: usize,
    pub rows_max: usize,
}

impl Columns {
    pub fn new(entity: Entity, counters: [&str; COUNTERS], rows_max: usize) -> Self {
        let of = |name: &str| match entity {
            Entity::Service => col(&format!("service.{name}")),
            _ => col(&format!("dependency.{name}")),
        };
        Columns {
            entity,
            counters: counters.map(col),
            latency: ["latency_p50", "latency_p90", "latency_p99", "latency_max"].map(of),
            oncpu_max: of("oncpu_max"),
            open: of("open"),
            connecting: of("connecting"),
            watched: of("watched"),
            established: of("established"),
            pid: of("pid"),
            comm: of("comm"),
            rows_max,
        }
    }
}

/// A row: one slot of the kernel's, or several that share a name.
#[derive(Debug)]
pub struct Row {
    pub is_service: bool,
    pub is_unix: bool,
    pub name: String,
    pub id: StrId,
    pub totals: [u64; COUNTERS],
    pub latency: Latency,
    pub oncpu_max_ns: u64,
    pub open: u64,
    pub connecting: u64,
    pub connections: u64,
    pub pid: u32,
    pub comm: String,
    /// Whether a slot counts in it.
    pub is_used: bool,
    pub touched_ns: i64,
}

impl Row {
    /// Into the frame. Of all time so much was seen.
    pub fn write(&self, columns: &Columns, share: f64, io: &mut Io, frame: &mut Frame) {
        let cells = frame.table_mut(columns.entity).push(Key::named(self.id));
        for (number, (column, total)) in columns.counters.iter().zip(self.totals).enumerate() {
            let is_known = !(self.is_unix && NOT_OF_UNIX.contains(&number));
            set(cells, *column, if is_known { cell(total) } else { NA });
        }
        let quantiles = self.latency.quantiles_ns();
        for (column, value) in columns.latency.iter().zip(quantiles) {
            set(cells, *column, value.map_or(NA, cell));
        }
        set(cells, columns.oncpu_max, quantiles[0].map_or(NA, |_| cell(self.oncpu_max_ns)));
        // Of who has never answered it is not known what is open: see `take_in`.
        // What was open before is not known of a Unix socket that is seen for a part of the time.
        let is_asked =
            (self.totals[0] > 0 || !(self.is_service || self.is_unix)) && (share >= 1.0 || !self.is_unix);
        set(cells, columns.open, if is_asked { cell(self.open) } else { NA });
        set(cells, columns.connecting, cell(self.connecting));
        set(cells, columns.watched, (share * 1e6) as i64);
        set(cells, columns.established, cell(self.connections.saturating_sub(self.connecting)));
        if self.pid > 0 {
            set(cells, columns.pid, i64::from(self.pid));
            set(cells, columns.comm, i64::from(io.strings.intern(&self.comm)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_the_columns() {
        let services = Columns::new(Entity::Service, SERVICE_COUNTERS, 1);
        for columns in [services, Columns::new(Entity::Dependency, DEPENDENCY_COUNTERS, 1)] {
            let is_service = columns.entity == Entity::Service;
            let counters = &columns.counters[..if is_service { 9 } else { COUNTERS }];
            let gauges = [columns.open, columns.watched, columns.established, columns.pid, columns.comm];
            let mut all = counters.iter().chain(&columns.latency).chain(&gauges);
            assert!(all.all(|column| *column != usize::MAX));
            assert_eq!(columns.connecting == usize::MAX, is_service);
            assert_eq!(columns.oncpu_max != usize::MAX, is_service);
        }
    }
}
