//! A row of services or of what processes ask of others: what it holds between two frames, and its cells.

use mitra_model::{Entity, Frame, Key, NA, StrId};

use super::latency::Latency;
use crate::bpf::STATUSES;
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
/// Answers by how they went, as `enum status` has it.
const ANSWERS: [&str; STATUSES] = ["status_unknown", "status_ok", "client_errors", "server_errors"];
/// As `enum protocol` has them; of the first one nothing is known.
const PROTOCOLS: [&str; 6] = ["", "HTTP", "Redis", "PostgreSQL", "MySQL", "Memcached"];
/// Those that are not known of Unix sockets: connections, and what arrived.
const NOT_OF_UNIX: [usize; 2] = [5, 8];

/// The columns of one of both entities.
#[derive(Debug)]
pub struct Columns {
    pub entity: Entity,
    pub counters: [usize; COUNTERS],
    pub latency: [usize; 4],
    pub oncpu_max: usize,
    pub answers: [usize; STATUSES],
    pub protocol: usize,
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
            answers: ANSWERS.map(of),
            protocol: of("protocol"),
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
    /// By how they went; `None`: that is not read.
    pub answers: Option<[u64; STATUSES]>,
    pub protocol: u32,
    pub open: u64,
    pub connecting: u64,
    pub connections: u64,
    /// Those that are not among them, because nobody has accepted them.
    pub unaccepted: u64,
    pub pid: u32,
    pub comm: String,
    /// Whether a slot counts in it.
    pub is_used: bool,
    pub touched_ns: i64,
}

impl Row {
    /// One of which nothing is known yet.
    pub fn new(is_service: bool, is_unix: bool, name: String, id: StrId, now: i64) -> Self {
        Row {
            is_service,
            is_unix,
            name,
            id,
            totals: [0; COUNTERS],
            latency: Latency::default(),
            oncpu_max_ns: 0,
            answers: None,
            protocol: 0,
            open: 0,
            connecting: 0,
            connections: 0,
            unaccepted: 0,
            pid: 0,
            comm: String::new(),
            is_used: true,
            touched_ns: now,
        }
    }

    /// Adds answers by how they went. Each of those that were seen stands for so many.
    pub fn add_answers(&mut self, seen: [u64; STATUSES], each: f64) {
        let answers = self.answers.get_or_insert_default();
        for (total, seen) in answers.iter_mut().zip(seen) {
            *total = total.saturating_add((seen as f64 * each).round() as u64);
        }
    }

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
        for (column, total) in columns.answers.iter().zip(self.answers.into_iter().flatten()) {
            set(cells, *column, cell(total));
        }
        if let Some(name) = PROTOCOLS.get(self.protocol as usize).filter(|name| !name.is_empty()) {
            set(cells, columns.protocol, i64::from(io.strings.intern(name)));
        }
        // Of who has never answered it is not known what is open: see `take_in`.
        // What was open before is not known of a Unix socket that is seen for a part of the time.
        let is_asked =
            (self.totals[0] > 0 || !(self.is_service || self.is_unix)) && (share >= 1.0 || !self.is_unix);
        // Which of those have asked that wait to be accepted is not known, so that 0 would be no count.
        let is_known = is_asked && (self.open > 0 || self.unaccepted == 0);
        set(cells, columns.open, if is_known { cell(self.open) } else { NA });
        set(cells, columns.connecting, cell(self.connecting));
        set(cells, columns.watched, (share * 1e6) as i64);
        let connections = self.connections.saturating_add(self.unaccepted);
        set(cells, columns.established, cell(connections.saturating_sub(self.connecting)));
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
            assert_eq!(columns.answers.map(|column| column != usize::MAX), [is_service; STATUSES]);
            assert_eq!(columns.protocol != usize::MAX, is_service);
        }
    }

    #[test]
    fn answers_that_were_not_read_are_not_zero() {
        let columns = Columns::new(Entity::Service, SERVICE_COUNTERS, 1);
        let root = crate::file::Root::open("/".as_ref()).expect("a root");
        let (mut io, mut frame) = (Io::new(root), Frame::new());
        let mut row = Row::new(true, false, "0.0.0.0:80".to_owned(), io.strings.intern("0.0.0.0:80"), 0);
        let mut cells = |row: &Row| {
            frame.table_mut(Entity::Service).clear();
            row.write(&columns, 1.0, &mut io, &mut frame);
            let cells = frame.table(Entity::Service).rows().next().expect("a row").1;
            let protocol = io.strings.cell(cells[columns.protocol]).map(str::to_owned);
            (columns.answers.map(|column| cells[column]), protocol)
        };
        assert_eq!(cells(&row), ([NA; STATUSES], None));
        row.add_answers([0; STATUSES], 1.0);
        assert_eq!(cells(&row), ([0; STATUSES], None));
        row.add_answers([1, 90, 4, 5], 1.0);
        row.add_answers([0, 9, 0, 1], 2.5);
        row.protocol = 1;
        assert_eq!(cells(&row), ([1, 113, 4, 8], Some("HTTP".to_owned())));
    }

    #[test]
    fn who_waits_to_be_accepted_has_a_connection_and_may_have_asked() {
        let columns = Columns::new(Entity::Service, SERVICE_COUNTERS, 1);
        let root = crate::file::Root::open("/".as_ref()).expect("a root");
        let (mut io, mut frame) = (Io::new(root), Frame::new());
        let mut row = Row::new(true, true, "unix:/a".to_owned(), io.strings.intern("unix:/a"), 0);
        row.totals[0] = 1;
        row.connections = 2;
        let mut cells = |row: &Row| {
            frame.table_mut(Entity::Service).clear();
            row.write(&columns, 1.0, &mut io, &mut frame);
            let cells = frame.table(Entity::Service).rows().next().expect("a row").1;
            [cells[columns.established], cells[columns.open]]
        };
        assert_eq!(cells(&row), [2, 0]);
        row.unaccepted = 3;
        assert_eq!(cells(&row), [5, NA]);
        row.open = 1;
        assert_eq!(cells(&row), [5, 1]);
    }
}
