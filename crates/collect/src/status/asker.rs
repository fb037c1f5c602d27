//! Who is asked when: the thread's own part.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use mitra_model::NA;

use super::mysql::MySql;
use super::postgres::Postgres;
use super::redis::Redis;
use super::server::{self, Server};
use super::wire::Failure;
use super::{CommandSaid, PoolSaid, Program, SessionSaid, clients, fpm, haproxy};
use crate::file::Root;

/// A server has this long for an answer. The servers that can end their own work by then.
const LIMIT: Duration = Duration::from_millis(500);
/// The one thread of Redis may be what is suspected: it answers between two commands.
const LIMIT_OF_REDIS: Duration = Duration::from_secs(3);
/// A server is asked once in this time.
const EVERY: Duration = Duration::from_secs(1);
/// One that has had nothing to say of note so often is asked ever less often, down to once in this time: it is busy, and no
/// more.
const QUIET_MAX: u32 = 20;
const EVERY_MAX: Duration = Duration::from_secs(8);
/// A lock that is held again and again for a part of each second is seen at some of these moments: in each part of the time one,
/// until somebody waits, and each time at another one of it, as the golden ratio spreads them evenly. Four see with a
/// likelihood of 94 % what is so half of the time.
const LOOKS: u32 = 4;
const SPREAD: Duration = Duration::from_millis(900);
const GOLDEN: f64 = 0.618_034;
/// After a failure it is left alone: twice as long after each.
const REST: Duration = Duration::from_secs(10);
const REST_MAX: Duration = Duration::from_secs(600);
/// What was refused stays so until somebody changes something; each try is a line in the log of the server.
const REFUSED: Duration = Duration::from_secs(3600);
/// A connection without a question is closed.
const IDLE: Duration = Duration::from_secs(5);
/// As many servers are known.
const KNOWN_MAX: usize = 64;
/// A server of which nothing was asked for so long is forgotten.
const FORGOTTEN: Duration = Duration::from_secs(7200);

/// Servers that keep clients waiting, for certain or perhaps, and processes that may be their clients.
#[derive(Debug, Default)]
pub struct Question {
    pub servers: Vec<(Server, bool)>,
    pub clients: Vec<u32>,
}

/// What a server said, or why not.
#[derive(Debug)]
pub struct Look {
    pub server: Server,
    pub said: Result<Said, Failure>,
    clients: Vec<(SocketAddr, u32)>,
}

#[derive(Debug)]
pub enum Said {
    Sessions(Vec<SessionSaid>),
    Commands(Vec<CommandSaid>),
    Pools(Vec<PoolSaid>),
}

impl Said {
    /// Somebody waits for somebody else; what commands take is only seen by two answers in succession.
    fn is_of_note(&self) -> bool {
        match self {
            Said::Sessions(sessions) => sessions.iter().any(|session| session.waits_for.is_some()),
            Said::Commands(_) => true,
            Said::Pools(pools) => pools.iter().any(|pool| {
                pool.queue.is_some_and(|queue| queue > 0) || pool.max.is_some_and(|max| pool.used >= max)
            }),
        }
    }

    fn clients(&self) -> Vec<SocketAddr> {
        match self {
            Said::Sessions(sessions) => sessions.iter().filter_map(|session| session.client).collect(),
            Said::Commands(commands) => commands.iter().filter_map(|command| command.client).collect(),
            Said::Pools(_) => Vec::new(),
        }
    }
}

impl Look {
    /// The process of this machine that has this end of a connection, as a cell.
    pub fn client_pid(&self, client: Option<SocketAddr>) -> i64 {
        let known = client.and_then(|client| self.clients.iter().find(|(other, _)| *other == client));
        known.map_or(NA, |(_, pid)| i64::from(*pid))
    }
}

#[derive(Debug)]
enum Connection {
    Postgres(Postgres),
    MySql(MySql),
    Redis(Redis),
}

/// What is known of a server.
#[derive(Debug)]
struct Known {
    connection: Option<Connection>,
    asked: Instant,
    next: Instant,
    /// Answers of nothing of note in succession.
    quiet: u32,
    /// How long it is left alone after an answer, and after a failure.
    every: Duration,
    rest: Duration,
}

/// The thread's state.
#[derive(Debug, Default)]
pub struct Asker {
    known: HashMap<Server, Known>,
    clients: clients::Clients,
    /// How often somebody was asked.
    looks: u32,
}

impl Asker {
    /// Asks those whose turn it is, until they have something to say of note.
    pub fn look(&mut self, root: &Root, question: &Question) -> Vec<Look> {
        let began = Instant::now();
        let servers = question.servers.iter();
        let due: Vec<Server> = servers
            .filter(|(server, is_certain)| self.is_due(*server, *is_certain))
            .map(|(s, _)| *s)
            .collect();
        let phase = (f64::from(self.looks) * GOLDEN).fract();
        self.looks = self.looks.wrapping_add(u32::from(!due.is_empty()));
        let mut said: Vec<(Server, Result<Said, Failure>)> = Vec::new();
        for nth in 0..LOOKS {
            let is_done = |server: &Server| {
                said.iter()
                    .any(|(other, said)| other == server && said.as_ref().map_or(true, Said::is_of_note))
            };
            let open: Vec<Server> = due.iter().copied().filter(|server| !is_done(server)).collect();
            // What Redis has done it says later as well.
            if open.iter().any(|server| server.program != Program::Redis) {
                let moment = SPREAD.mul_f64((f64::from(nth) + phase) / f64::from(LOOKS));
                std::thread::sleep(moment.saturating_sub(began.elapsed()));
            }
            for server in open {
                let Some(known) = self.known.get_mut(&server) else { continue };
                let answer = known.ask(root, server);
                said.retain(|(other, _)| *other != server);
                said.push((server, answer));
            }
        }
        let mut looks = Vec::new();
        for (server, said) in said {
            if let Some(known) = self.known.get_mut(&server) {
                known.next = known.asked + known.pause(&said);
            }
            let clients = match &said {
                Ok(said) => self.clients.find(root, server.pid, &said.clients(), &question.clients),
                Err(_) => Vec::new(),
            };
            looks.push(Look { server, said, clients });
        }
        for known in self.known.values_mut().filter(|known| known.asked.elapsed() > IDLE.max(known.every * 2))
        {
            known.connection = None;
        }
        if question.servers.is_empty() {
            self.known.values_mut().for_each(|known| known.connection = None);
        }
        self.known.retain(|_, known| known.asked.elapsed() < FORGOTTEN);
        if self.known.len() > KNOWN_MAX {
            self.known.clear();
        }
        looks
    }

    /// Whether it is the turn of a server.
    fn is_due(&mut self, server: Server, is_certain: bool) -> bool {
        let now = Instant::now();
        let new = || Known { connection: None, asked: now, next: now, quiet: 0, every: EVERY, rest: REST };
        let known = self.known.entry(server).or_insert_with(new);
        if known.every > EVERY && (is_certain || known.asked.elapsed() > EVERY_MAX * 2) {
            (known.quiet, known.every, known.next) = (0, EVERY, known.next.min(known.asked + EVERY));
        }
        let is_due = now >= known.next;
        if is_due {
            known.asked = now;
        }
        is_due
    }
}

impl Known {
    fn ask(&mut self, root: &Root, server: Server) -> Result<Said, Failure> {
        // These close the connection behind each answer.
        match server.program {
            Program::HaProxy => return Ok(Said::Pools(haproxy::pools(root, server, LIMIT)?)),
            Program::PhpFpm => return Ok(Said::Pools(fpm::pools(root, server, LIMIT)?)),
            _ => {}
        }
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => connect(root, server)?,
        };
        let said = match &mut connection {
            Connection::Postgres(session) => Said::Sessions(session.sessions(LIMIT)?),
            Connection::MySql(session) => Said::Sessions(session.sessions(server.pid, LIMIT)?),
            Connection::Redis(session) => Said::Commands(session.commands(LIMIT_OF_REDIS)?),
        };
        // After a failure what comes next may belong to the question before.
        self.connection = Some(connection);
        Ok(said)
    }

    /// How long it is left alone now.
    fn pause(&mut self, said: &Result<Said, Failure>) -> Duration {
        match said {
            Ok(said) => {
                self.rest = REST;
                self.quiet = if said.is_of_note() { 0 } else { self.quiet + 1 };
                self.every = if self.quiet < QUIET_MAX { EVERY } else { (self.every * 2).min(EVERY_MAX) };
                // A frame comes a little early or late.
                self.every.mul_f64(0.9)
            }
            Err(Failure::Passing(_)) => {
                let rest = self.rest;
                self.rest = (rest * 2).min(REST_MAX);
                rest
            }
            Err(Failure::Lasting(_)) => REFUSED,
        }
    }
}

fn connect(root: &Root, server: Server) -> Result<Connection, Failure> {
    let us = rustix::process::geteuid();
    Ok(match server.program {
        Program::Postgres => {
            // It knows who connects by the user alone: of root it mostly knows nothing, of its own user all.
            let own = server::user_of(root, server.pid).filter(|uid| us.is_root() && *uid != 0);
            let user = server::name_of(root, server.pid, own.unwrap_or(us.as_raw()))?;
            Connection::Postgres(Postgres::begin(server::open_any(root, server, own)?, &user, LIMIT)?)
        }
        Program::MariaDb | Program::MySql => {
            let user = server::name_of(root, server.pid, us.as_raw())?;
            Connection::MySql(MySql::begin(server::open(root, server, None)?, &user, LIMIT)?)
        }
        Program::Redis => {
            Connection::Redis(Redis::begin(server::open_any(root, server, None)?, LIMIT_OF_REDIS)?)
        }
        Program::HaProxy | Program::PhpFpm => {
            return Err(Failure::Lasting("it keeps no connection".to_owned()));
        }
    })
}
