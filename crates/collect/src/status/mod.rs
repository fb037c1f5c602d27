//! What services say of themselves, asked only while a client of theirs waits for nearly all of the time.
//!
//! PostgreSQL and MariaDB name the sessions that wait for locks and those that hold them; Redis names the commands that take its
//! time; HAProxy and PHP-FPM count the sessions and workers that are taken, and who waits for one. They are asked over their own Unix
//! socket and without any secret: what wants a password is not asked. Nothing of a statement is kept but its first word, if that is one
//! of SQL, and of a command its name.
//!
//! A server in trouble answers late or never: a thread of its own asks, so that the recorder never waits.

mod asker;
mod clients;
mod fpm;
mod haproxy;
mod mysql;
mod postgres;
mod redis;
mod server;
mod wire;

use std::net::SocketAddr;

use mitra_model::{Entity, Frame, Key, NA, Strings};

use crate::aside::Aside;
use crate::cells::{cell, col, row, set};
use crate::file::Root;
use crate::io::Io;
use crate::trouble::Past;
use asker::{Asker, Look, Question, Said};
use server::Server;

/// As many servers are asked for in a frame.
const SERVERS_MAX: usize = 4;
/// As many of the sessions that block one are named.
const BLOCKERS_MAX: usize = 16;
/// As many processes that call a server are looked at for the one that a session belongs to.
const CLIENTS_MAX: usize = 64;
/// An answer stands for so long: until the next one, which may come late.
const HOLD_NS: i64 = 2_100_000_000;

/// What can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Program {
    Postgres,
    MariaDb,
    MySql,
    Redis,
    HaProxy,
    PhpFpm,
}

impl Program {
    /// By the name of its process.
    fn of(comm: &str) -> Option<Program> {
        match comm {
            "postgres" => Some(Program::Postgres),
            "mariadbd" => Some(Program::MariaDb),
            // MariaDB before 10.5 as well.
            "mysqld" => Some(Program::MySql),
            "redis-server" => Some(Program::Redis),
            "haproxy" => Some(Program::HaProxy),
            _ if comm.starts_with("php-fpm") => Some(Program::PhpFpm),
            _ => None,
        }
    }

    /// Whether its file is called so. Debian's Redis is one file of three names, and PHP-FPM has its version in the name.
    fn is_file(self, name: &str) -> bool {
        match self {
            Program::MySql => ["mysqld", "mariadbd"].contains(&name),
            Program::Redis => ["redis-server", "redis-check-rdb", "redis-check-aof"].contains(&name),
            Program::PhpFpm => name.starts_with("php-fpm"),
            _ => name == self.name(),
        }
    }

    /// Whether what is asked for is the parent: sessions and workers are children of the server.
    fn is_parent(self) -> bool {
        matches!(self, Program::Postgres | Program::PhpFpm)
    }

    fn name(self) -> &'static str {
        match self {
            Program::Postgres => "postgres",
            Program::MariaDb => "mariadbd",
            Program::MySql => "mysqld",
            Program::Redis => "redis-server",
            Program::HaProxy => "haproxy",
            Program::PhpFpm => "php-fpm",
        }
    }
}

/// A session, as its server describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SessionSaid {
    /// The number by which the server knows it.
    id: u64,
    pid: u64,
    activity: String,
    waits_for: Option<String>,
    blocked_by: Vec<u64>,
    state_ms: Option<u64>,
    client: Option<SocketAddr>,
    snapshot_age: Option<u64>,
}

/// A command of Redis.
#[derive(Debug, Clone, PartialEq, Eq)]
struct CommandSaid {
    name: String,
    calls: u64,
    time_us: u64,
    longest_us: Option<u64>,
    client: Option<SocketAddr>,
}

/// What takes connections or requests up to a limit: the process, a frontend, a backend or a server of HAProxy; a pool of
/// PHP-FPM.
#[derive(Debug, Clone, PartialEq, Eq)]
struct PoolSaid {
    name: String,
    used: u64,
    max: Option<u64>,
    queue: Option<u64>,
    /// How often the limit was reached.
    reached: Option<u64>,
}

/// What is asked of a service by how it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Suspect {
    pid: u64,
    comm: i64,
    /// Whether more wait than were answered.
    is_certain: bool,
}

/// What a service did by the frame before.
#[derive(Debug, Clone, Copy)]
struct Before {
    requests: i64,
    wait_ns: i64,
    /// When a client last waited for nearly all of the time, on the monotonic clock.
    seen_ns: i64,
}

/// The columns, and the thread once it was needed.
#[derive(Debug)]
pub struct Status {
    is_wanted: bool,
    asker: Option<Aside<Question, Vec<Look>>>,
    /// Whether the thread may still have connections.
    is_asked: bool,
    past: Past<Before>,
    /// What was said last, and when.
    looks: Vec<Look>,
    heard_ns: i64,
    columns: Columns,
}

#[derive(Debug)]
struct Columns {
    requests: usize,
    wait_time: usize,
    open: usize,
    service_pid: usize,
    service_comm: usize,
    comm: usize,
    ppid: usize,
    dependency_pid: usize,
    session_activity: usize,
    session_pid: usize,
    session_server: usize,
    session_server_pid: usize,
    session_waits_for: usize,
    session_blocked_by: usize,
    session_state_time: usize,
    session_client: usize,
    session_client_pid: usize,
    session_snapshot_age: usize,
    command_calls: usize,
    command_time: usize,
    command_longest: usize,
    command_server: usize,
    command_pid: usize,
    command_client: usize,
    command_client_pid: usize,
    pool_used: usize,
    pool_max: usize,
    pool_queue: usize,
    pool_reached: usize,
    pool_server: usize,
    pool_pid: usize,
}

impl Status {
    /// Nobody is asked unless it is wanted.
    pub fn new(is_wanted: bool) -> Self {
        Status {
            is_wanted,
            asker: None,
            is_asked: false,
            past: Past::new(),
            looks: Vec::new(),
            heard_ns: i64::MIN,
            columns: Columns {
                requests: col("service.requests"),
                wait_time: col("service.wait_time"),
                open: col("service.open"),
                service_pid: col("service.pid"),
                service_comm: col("service.comm"),
                comm: col("task.comm"),
                ppid: col("task.ppid"),
                dependency_pid: col("dependency.pid"),
                session_activity: col("session.activity"),
                session_pid: col("session.pid"),
                session_server: col("session.server"),
                session_server_pid: col("session.server_pid"),
                session_waits_for: col("session.waits_for"),
                session_blocked_by: col("session.blocked_by"),
                session_state_time: col("session.state_time"),
                session_client: col("session.client"),
                session_client_pid: col("session.client_pid"),
                session_snapshot_age: col("session.snapshot_age"),
                command_calls: col("command.calls"),
                command_time: col("command.time"),
                command_longest: col("command.longest"),
                command_server: col("command.server"),
                command_pid: col("command.pid"),
                command_client: col("command.client"),
                command_client_pid: col("command.client_pid"),
                pool_used: col("pool.used"),
                pool_max: col("pool.max"),
                pool_queue: col("pool.queue"),
                pool_reached: col("pool.reached"),
                pool_server: col("pool.server"),
                pool_pid: col("pool.pid"),
            },
        }
    }

    /// Fills rows with what was said to what was asked at the frame before. Tasks, services and titles of sessions have to be in
    /// the frame already.
    pub fn fill(&mut self, io: &mut Io, frame: &mut Frame) {
        if !self.is_wanted || !io.root.is_host() {
            return;
        }
        self.hear(io, frame.time.mono);
        for look in &self.looks {
            match look.said.as_ref() {
                Ok(Said::Sessions(said)) => {
                    said.iter().for_each(|one| self.fill_session(look, one, io, frame))
                }
                Ok(Said::Commands(said)) => {
                    said.iter().for_each(|one| self.fill_command(look, one, io, frame))
                }
                Ok(Said::Pools(said)) => said.iter().for_each(|one| self.fill_pool(look, one, io, frame)),
                Err(_) => {}
            }
        }
        let suspects = self.suspects(frame, &io.strings);
        let question = self.question(&suspects, io, frame);
        // Without suspects it closes its connections.
        if question.servers.is_empty() && !self.is_asked {
            return;
        }
        if self.asker.is_none() {
            match start() {
                Ok(asker) => self.asker = Some(asker),
                Err(error) => return io.missing.add("status of services", &crate::missing::reason(&error)),
            }
        }
        if let Some(asker) = &self.asker {
            let is_for_nobody = question.servers.is_empty();
            if asker.ask(question) {
                self.is_asked = !is_for_nobody;
            }
        }
    }

    /// Takes the answers that have come. Where frames are closer together than questions the last ones hold on.
    fn hear(&mut self, io: &mut Io, now_ns: i64) {
        let new: Vec<Look> = self.asker.iter().flat_map(Aside::answers).flatten().collect();
        if new.is_empty() && now_ns.saturating_sub(self.heard_ns) < HOLD_NS {
            return;
        }
        self.looks = new;
        self.heard_ns = now_ns;
        for look in &self.looks {
            let source = format!("status of {}", look.server.program.name());
            match &look.said {
                Ok(_) => io.missing.remove(&source),
                Err(failure) => io.missing.add(&source, failure.why()),
            }
        }
    }

    /// Services of which a client waits for nearly all of the time.
    fn suspects(&mut self, frame: &Frame, strings: &Strings) -> Vec<Suspect> {
        let mut suspects = Vec::new();
        let columns = &self.columns;
        self.past.each(frame, strings, |row, before, since| {
            let get = |column: usize| row.get(column).copied().filter(|value| *value != NA);
            let (requests, wait_ns) = (get(columns.requests)?, get(columns.wait_time)?);
            let Some(before) = before else { return Some(Before { requests, wait_ns, seen_ns: i64::MIN }) };
            let waits = since.is_filled_by(wait_ns.saturating_sub(before.wait_ns));
            let seen_ns = if waits { since.now_ns } else { before.seen_ns };
            let pid = get(columns.service_pid).and_then(|pid| u64::try_from(pid).ok());
            if let Some(pid) = pid.filter(|_| since.is_soon_after(seen_ns)) {
                let (open, comm) = (get(columns.open).unwrap_or(0), get(columns.service_comm).unwrap_or(NA));
                let is_certain = open > requests.saturating_sub(before.requests).max(1);
                suspects.push(Suspect { pid, comm, is_certain });
            }
            Some(Before { requests, wait_ns, seen_ns })
        });
        suspects
    }

    /// Those of them that can be asked, and the processes of this machine that may be their clients.
    fn question(&self, suspects: &[Suspect], io: &Io, frame: &Frame) -> Question {
        let tasks = frame.table(Entity::Task);
        let of = |pid: u64| tasks.rows().find(|(key, _)| key.id == pid).map(|(_, row)| row);
        let get = |row: &[i64], column: usize| row.get(column).copied().filter(|value| *value != NA);
        let program = |comm: i64| io.strings.cell(comm).and_then(Program::of);
        let mut question = Question::default();
        for suspect in suspects {
            let own = of(suspect.pid);
            // A thread has a name of its own.
            let comm = own.and_then(|row| get(row, self.columns.comm)).unwrap_or(suspect.comm);
            let Some(program) = program(comm) else { continue };
            let parent =
                own.and_then(|row| get(row, self.columns.ppid)).and_then(|pid| u64::try_from(pid).ok());
            let is_server = |pid: &u64| of(*pid).and_then(|row| get(row, self.columns.comm)) == Some(comm);
            let pid = parent.filter(|_| program.is_parent()).filter(is_server).unwrap_or(suspect.pid);
            let Ok(pid) = u32::try_from(pid) else { continue };
            let server = Server { pid, program };
            if let Some((_, known)) = question.servers.iter_mut().find(|(known, _)| *known == server) {
                *known |= suspect.is_certain;
            } else if question.servers.len() < SERVERS_MAX {
                question.servers.push((server, suspect.is_certain));
            }
        }
        if !question.servers.is_empty() {
            let pids = frame.table(Entity::Dependency).rows();
            let pids = pids.filter_map(|(_, row)| u32::try_from(get(row, self.columns.dependency_pid)?).ok());
            question.clients = pids.collect();
            question.clients.sort_unstable();
            question.clients.dedup();
            question.clients.truncate(CLIENTS_MAX);
        }
        question
    }

    fn fill_session(&self, look: &Look, said: &SessionSaid, io: &mut Io, frame: &mut Frame) {
        let columns = &self.columns;
        // A session of PostgreSQL is a process; elsewhere a server has numbers of its own.
        let name = match look.server.program {
            Program::Postgres => said.id.to_string(),
            _ => format!("{}:{}", look.server.pid, said.id),
        };
        let blockers: Vec<String> = said.blocked_by.iter().map(u64::to_string).collect();
        let mut text = |text: &str| i64::from(io.strings.intern(text));
        let key = Key::named(u32::try_from(text(&name)).unwrap_or_default());
        let (server, activity) = (text(look.server.program.name()), text(&said.activity));
        let waits_for = said.waits_for.as_deref().map_or(NA, &mut text);
        let blocked_by = if blockers.is_empty() { NA } else { text(&blockers.join(",")) };
        let client = said.client.map_or(NA, |client| text(&client.to_string()));
        let row = row(frame.table_mut(Entity::Session), key);
        set(row, columns.session_pid, cell(said.pid));
        set(row, columns.session_activity, activity);
        set(row, columns.session_server, server);
        set(row, columns.session_server_pid, i64::from(look.server.pid));
        set(row, columns.session_waits_for, waits_for);
        set(row, columns.session_blocked_by, blocked_by);
        set(row, columns.session_state_time, said.state_ms.map_or(NA, cell));
        set(row, columns.session_client, client);
        set(row, columns.session_client_pid, look.client_pid(said.client));
        set(row, columns.session_snapshot_age, said.snapshot_age.map_or(NA, cell));
    }

    fn fill_command(&self, look: &Look, said: &CommandSaid, io: &mut Io, frame: &mut Frame) {
        let columns = &self.columns;
        let key = Key::named(io.strings.intern(&format!("{}:{}", look.server.pid, said.name)));
        let server = i64::from(io.strings.intern(look.server.program.name()));
        let client = said.client.map_or(NA, |client| i64::from(io.strings.intern(&client.to_string())));
        let row = row(frame.table_mut(Entity::Command), key);
        set(row, columns.command_calls, cell(said.calls));
        set(row, columns.command_time, cell(said.time_us));
        set(row, columns.command_longest, said.longest_us.map_or(NA, cell));
        set(row, columns.command_server, server);
        set(row, columns.command_pid, i64::from(look.server.pid));
        set(row, columns.command_client, client);
        set(row, columns.command_client_pid, look.client_pid(said.client));
    }

    fn fill_pool(&self, look: &Look, said: &PoolSaid, io: &mut Io, frame: &mut Frame) {
        let columns = &self.columns;
        let key = Key::named(io.strings.intern(&format!("{}:{}", look.server.pid, said.name)));
        let server = i64::from(io.strings.intern(look.server.program.name()));
        let row = row(frame.table_mut(Entity::Pool), key);
        set(row, columns.pool_used, cell(said.used));
        set(row, columns.pool_max, said.max.map_or(NA, cell));
        set(row, columns.pool_queue, said.queue.map_or(NA, cell));
        set(row, columns.pool_reached, said.reached.map_or(NA, cell));
        set(row, columns.pool_server, server);
        set(row, columns.pool_pid, i64::from(look.server.pid));
    }
}

/// The thread that asks.
fn start() -> std::io::Result<Aside<Question, Vec<Look>>> {
    let root = Root::open("/".as_ref()).map_err(std::io::Error::other)?;
    let mut asker = Asker::default();
    Aside::start("mitra-status", move |question| asker.look(&root, &question))
}

#[cfg(test)]
mod tests;
