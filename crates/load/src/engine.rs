//! A run: hands requests to connections and keeps account of what becomes of them.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http_body_util::BodyExt;
use hyper::client::conn::http2;
use hyper::header::{CONNECTION, CONTENT_LENGTH, HOST, HeaderValue};
use hyper::{HeaderMap, Method, Request, Uri, Version};
use mitra_http::rustls::ClientConfig;
use tokio::sync::{Mutex, Notify};
use tokio::task::{LocalSet, spawn_local};
use tokio::time::{Instant, timeout_at};

use crate::body::Body;
use crate::outcome::{SCHEMA, Times};
use crate::wire::{Failure, Host, Wire};
use crate::{
    Alarm, BodySource, Error, Outcome, Protocol, Replay, Schedule, Source, Target, Targets, Ticket, pace,
};

/// Requests that wait for a connection in memory. Beyond, they wait in the schedule, and keep their times.
const QUEUE_MAX: usize = 1_000_000;
/// How long the clock of the wall is not looked at before a common start: it may be set meanwhile.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// When requests are due.
#[derive(Debug, Clone)]
pub enum Work {
    /// By a schedule.
    Timed(Schedule),
    /// As a log has them.
    Logged {
        /// The log.
        log: std::path::PathBuf,
        /// 2 replays it in half of its time.
        speed: f64,
        /// For how long, if not to its end.
        length: Option<Duration>,
    },
}

/// What is asked, how and when.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The load in words, for the result.
    pub load: String,
    /// Who is asked. A replayed log has its own paths, and wants one.
    pub targets: Targets,
    /// When.
    pub work: Work,
    /// How, where a target says nothing else.
    pub method: Method,
    /// Headers of each request.
    pub headers: HeaderMap,
    /// The body of each request.
    pub body: BodySource,
    /// Which HTTP.
    pub protocol: Protocol,
    /// Connections at most.
    pub connections: usize,
    /// Requests at a time on each of them, with HTTP/2.
    pub streams: usize,
    /// Whether a connection is used again.
    pub keeps_alive: bool,
    /// How long an answer may take, from when the request was sent.
    pub timeout: Duration,
    /// The certificates that are trusted; `https` wants them.
    pub tls: Option<Arc<ClientConfig>>,
    /// When it begins; at once if that has passed.
    pub at: Option<SystemTime>,
}

impl Plan {
    /// Whether it makes sense.
    ///
    /// # Errors
    /// If it does not.
    pub fn check(&self) -> Result<(), Error> {
        let hosts = self.targets.origins.len();
        match &self.work {
            _ if self.targets.all.is_empty() => Err(Error::wanted("nothing to ask for")),
            _ if self.connections < hosts => {
                let wanted = self.connections;
                Err(Error::wanted(format!("{wanted} connections are too few for {hosts} hosts")))
            }
            Work::Logged { .. } if self.targets.all.len() != 1 => {
                Err(Error::wanted("a log is replayed to one host"))
            }
            _ if self.targets.is_secure() && self.tls.is_none() => {
                Err(Error::wanted("https wants certificates to trust"))
            }
            _ => Ok(()),
        }
    }

    fn source(&self) -> Result<Source, Error> {
        Ok(match &self.work {
            Work::Timed(schedule) => {
                Source::Timed { schedule: *schedule, targets: self.targets.all.clone(), next: 0 }
            }
            Work::Logged { log, speed, length } => {
                Source::Logged(Box::new(Replay::open(log, *speed)?), *length)
            }
        })
    }
}

/// Runs a plan in this thread, until its end or until `stop` returns. `begun` is called when the first request is due.
///
/// # Errors
/// If it cannot begin, or the log cannot be read.
pub fn run(plan: &Plan, stop: impl Future<Output = ()>, begun: impl FnOnce()) -> Result<Outcome, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // Dropping the set ends what is still under way.
    let outcome = LocalSet::new().block_on(&runtime, offer(plan, stop, begun));
    // A thread may hang in a read of a body's file.
    runtime.shutdown_background();
    outcome
}

async fn offer(plan: &Plan, stop: impl Future<Output = ()>, begun: impl FnOnce()) -> Result<Outcome, Error> {
    plan.check()?;
    let mut source = plan.source()?;
    let shared = Rc::new(Shared::new(plan).await?);
    let alarm = Alarm::of_kernel()?;
    let mut stop = std::pin::pin!(stop);
    tokio::select! {
        begins = begin(plan.at, &alarm) => begins?,
        () = &mut stop => return Ok(shared.finish(true, &source)),
    }
    begun();
    let (start, real) = (Instant::now(), SystemTime::now());
    shared.start.set((start, real.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()));

    let hand_out = async |ticket: Ticket, late| shared.hand_out(ticket, late).await;
    let is_stopped = tokio::select! {
        paced = pace(&mut source, start, &alarm, hand_out) => { paced?; false }
        () = &mut stop => true,
    };
    let is_stopped = is_stopped
        || tokio::select! {
            () = shared.drain() => false,
            () = &mut stop => true,
        };
    Ok(shared.finish(is_stopped, &source))
}

/// Waits until the clock on the wall shows the common start.
async fn begin(at: Option<SystemTime>, alarm: &Alarm) -> io::Result<()> {
    while let Some(left) =
        at.and_then(|at| at.duration_since(SystemTime::now()).ok()).filter(|d| !d.is_zero())
    {
        alarm.until(Instant::now() + left.min(LOOK_EVERY)).await?;
    }
    Ok(())
}

/// One connection of HTTP/2, opened when it is first wanted.
type Many = Mutex<Option<http2::SendRequest<Body>>>;

/// What all requests share. One thread: no borrow is held while something is awaited.
struct Shared {
    plan: Plan,
    hosts: Vec<Host>,
    /// Requests under way at most.
    active_max: usize,
    state: RefCell<State>,
    /// The start, and when that was in seconds since 1970.
    start: Cell<(Instant, f64)>,
    sent_bytes: Rc<Cell<u64>>,
    /// There is room in the queue.
    room: Notify,
    /// Nothing is under way any more.
    idle: Notify,
    /// With HTTP/2: those of each host.
    many: Vec<Vec<Many>>,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Ticket>,
    /// Requests under way.
    active: usize,
    /// Numbers the requests, to deal them out to connections of HTTP/2.
    dealt: usize,
    /// Connections that are open and without work, by host.
    idle: HashMap<usize, Vec<Wire>>,
    idle_connections: usize,
    outcome: Outcome,
    /// Tickets are not taken any more.
    is_over: bool,
}

impl Shared {
    async fn new(plan: &Plan) -> Result<Shared, Error> {
        let tls = match &plan.tls {
            Some(config) => {
                let mut config = ClientConfig::clone(config);
                config.alpn_protocols = vec![plan.protocol.alpn().to_vec()];
                Some(Arc::new(config))
            }
            None => None,
        };
        let mut hosts = Vec::new();
        for origin in &plan.targets.origins {
            hosts.push(Host::resolve(origin, tls.as_ref()).await?);
        }
        let is_many = plan.protocol == Protocol::Http2 && plan.keeps_alive;
        let of_each = if is_many { plan.connections / hosts.len().max(1) } else { 0 };
        let many = hosts.iter().map(|_| (0..of_each).map(|_| Mutex::default()).collect()).collect();
        let streams = if is_many { plan.streams } else { 1 };
        let outcome = Outcome {
            schema: SCHEMA.to_owned(),
            target: plan.targets.names(),
            load: plan.load.clone(),
            protocol: plan.protocol.name().to_owned(),
            runs: 1,
            ..Outcome::default()
        };
        Ok(Shared {
            plan: plan.clone(),
            hosts,
            active_max: plan.connections.saturating_mul(streams),
            state: RefCell::new(State { outcome, ..State::default() }),
            start: Cell::new((Instant::now(), 0.0)),
            sent_bytes: Rc::default(),
            room: Notify::new(),
            idle: Notify::new(),
            many,
        })
    }

    /// Seconds since 1970, on the clock that is not set while it runs.
    fn real(&self, at: Instant) -> f64 {
        let (start, real) = self.start.get();
        real + at.saturating_duration_since(start).as_secs_f64()
    }

    /// Starts a request that is due, or queues it. Returns whether it had to wait for room.
    async fn hand_out(self: &Rc<Self>, ticket: Ticket, late: Duration) -> bool {
        let is_full = self.start_or_queue(ticket, late);
        if is_full {
            self.room.notified().await;
        }
        is_full
    }

    /// Returns whether the queue is full.
    fn start_or_queue(self: &Rc<Self>, ticket: Ticket, late: Duration) -> bool {
        let mut state = self.state.borrow_mut();
        state.outcome.requests += 1;
        state.outcome.lateness.record(late);
        Times::add(&mut state.outcome.due, self.real(ticket.due));
        if state.active < self.active_max {
            state.active += 1;
            spawn_local(Rc::clone(self).work(ticket));
            return false;
        }
        state.outcome.queued += 1;
        state.queue.push_back(ticket);
        let length = state.queue.len();
        state.outcome.queued_max = state.outcome.queued_max.max(length as u64);
        length >= QUEUE_MAX
    }

    /// Asks for one thing after the other, as long as some wait.
    async fn work(self: Rc<Self>, mut ticket: Ticket) {
        loop {
            let sent = Instant::now();
            let answer = timeout_at(sent + self.plan.timeout, self.ask(&ticket.target)).await;
            let done = Instant::now();
            let mut state = self.state.borrow_mut();
            if state.is_over {
                return;
            }
            self.count(&mut state.outcome, &ticket, sent, done, answer.ok());
            match state.queue.pop_front() {
                Some(next) => {
                    if state.queue.len() + 1 == QUEUE_MAX {
                        self.room.notify_one();
                    }
                    ticket = next;
                }
                None => {
                    state.active -= 1;
                    if state.active == 0 {
                        self.idle.notify_one();
                    }
                    return;
                }
            }
        }
    }

    fn count(
        &self,
        outcome: &mut Outcome,
        ticket: &Ticket,
        sent: Instant,
        done: Instant,
        answer: Option<Result<(u16, u64), Failure>>,
    ) {
        match answer {
            Some(Ok((status, bytes))) => {
                outcome.answered += 1;
                Times::add(&mut outcome.done, self.real(done));
                *outcome.statuses.entry(status).or_default() += 1;
                outcome.received_bytes = outcome.received_bytes.saturating_add(bytes);
            }
            Some(Err(failure)) => {
                // A refusal says nothing of how long an answer takes.
                return outcome.fail(failure.kind, &failure.text, 1);
            }
            None => outcome.fail("timeout", &format!("no answer within {:?}", self.plan.timeout), 1),
        }
        outcome.latency.record(done.saturating_duration_since(ticket.due));
        outcome.service.record(done.saturating_duration_since(sent));
    }

    /// Sends a request and reads the answer: its status, and the bytes of its body.
    async fn ask(self: &Rc<Self>, target: &Target) -> Result<(u16, u64), Failure> {
        let (mut wire, mut is_used) = self.take(target.origin).await?;
        let answer = loop {
            match wire.send(self.request(target)?).await {
                Ok(answer) => break answer,
                // The server has closed a connection that was idle.
                Err(unsent) if is_used && unsent.is_unsent => {}
                Err(failed) => return Err(failed.why),
            }
            drop(wire);
            (wire, is_used) = (self.open(target.origin).await?, false);
        };
        let status = answer.status().as_u16();
        let (mut body, mut bytes) = (answer.into_body(), 0_u64);
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| Failure::of_hyper(&error))?;
            bytes = bytes.saturating_add(frame.data_ref().map_or(0, |data| data.len() as u64));
        }
        if self.plan.keeps_alive && matches!(wire, Wire::Http1(_)) && !wire.is_closed() {
            let mut state = self.state.borrow_mut();
            state.idle.entry(target.origin).or_default().push(wire);
            state.idle_connections += 1;
        }
        Ok((status, bytes))
    }

    /// A connection for a request, and whether it was used before.
    async fn take(self: &Rc<Self>, origin: usize) -> Result<(Wire, bool), Failure> {
        if let Some(many) = self.many.get(origin).filter(|many| !many.is_empty()) {
            let dealt = {
                let mut state = self.state.borrow_mut();
                state.dealt = state.dealt.wrapping_add(1);
                state.dealt
            };
            let Some(one) = many.get(dealt % many.len()) else {
                return Ok((self.open(origin).await?, false));
            };
            let mut one = one.lock().await;
            if let Some(sender) = one.as_ref().filter(|sender| !sender.is_closed()) {
                return Ok((Wire::Http2(sender.clone()), true));
            }
            let wire = self.open(origin).await?;
            if let Wire::Http2(sender) = &wire {
                *one = Some(sender.clone());
            }
            return Ok((wire, false));
        }
        loop {
            let known = {
                let mut state = self.state.borrow_mut();
                let known = state.idle.get_mut(&origin).and_then(Vec::pop);
                state.idle_connections -= usize::from(known.is_some());
                known
            };
            let Some(mut wire) = known else { break };
            // The end of the answer before may not have been processed yet.
            if let Wire::Http1(sender) = &mut wire
                && sender.ready().await.is_ok()
            {
                return Ok((wire, true));
            }
        }
        Ok((self.open(origin).await?, false))
    }

    /// Opens a connection. One that is idle, to another host, is closed if there would be too many.
    async fn open(self: &Rc<Self>, origin: usize) -> Result<Wire, Failure> {
        {
            let mut state = self.state.borrow_mut();
            if state.idle_connections + state.active > self.plan.connections
                && let Some(idle) = state.idle.values_mut().find(|idle| !idle.is_empty())
            {
                idle.pop();
                state.idle_connections -= 1;
            }
        }
        let Some(host) = self.hosts.get(origin) else { return Err(Failure::new("protocol", "no such host")) };
        let wire = host.connect(self.plan.protocol).await?;
        self.state.borrow_mut().outcome.connections += 1;
        Ok(wire)
    }

    fn request(&self, target: &Target) -> Result<Request<Body>, Failure> {
        let plan = &self.plan;
        let bad = |error: hyper::http::Error| Failure::new("protocol", error);
        let Some(host) = self.hosts.get(target.origin) else {
            return Err(Failure::new("protocol", "no such host"));
        };
        let mut request = Request::new(plan.body.start(&self.sent_bytes));
        *request.method_mut() = target.method.clone().unwrap_or_else(|| plan.method.clone());
        *request.headers_mut() = plan.headers.clone();
        match plan.protocol {
            Protocol::Http1 => {
                *request.uri_mut() = Uri::from(target.path.clone());
                if !plan.headers.contains_key(HOST) {
                    let value = HeaderValue::from_str(&host.origin.authority).map_err(|e| bad(e.into()))?;
                    request.headers_mut().insert(HOST, value);
                }
                if !plan.keeps_alive {
                    request.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                }
            }
            Protocol::Http2 => {
                *request.version_mut() = Version::HTTP_2;
                *request.uri_mut() = Uri::builder()
                    .scheme(if host.origin.is_secure { "https" } else { "http" })
                    .authority(host.origin.authority.as_str())
                    .path_and_query(target.path.clone())
                    .build()
                    .map_err(bad)?;
            }
        }
        if let Some(bytes) = plan.body.bytes() {
            request.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(bytes));
        }
        Ok(request)
    }

    /// Waits for what is under way. What still waits for a connection when a last request could have been given up is
    /// not sent any more.
    async fn drain(&self) {
        let end = Instant::now() + self.plan.timeout;
        if timeout_at(end, self.ended()).await.is_ok() {
            return;
        }
        self.give_up_queue();
        // Each of those under way ends by its own limit.
        self.ended().await;
    }

    async fn ended(&self) {
        while self.state.borrow().active > 0 {
            self.idle.notified().await;
        }
    }

    fn give_up_queue(&self) {
        let mut state = self.state.borrow_mut();
        let now = Instant::now();
        for ticket in std::mem::take(&mut state.queue) {
            state.outcome.fail("unsent", "all connections were taken until the run was over", 1);
            // It took so long at the least.
            state.outcome.latency.record(now.saturating_duration_since(ticket.due));
        }
    }

    fn finish(&self, is_interrupted: bool, source: &Source) -> Outcome {
        let mut state = self.state.borrow_mut();
        state.is_over = true;
        let mut outcome = std::mem::take(&mut state.outcome);
        outcome.is_interrupted = is_interrupted;
        outcome.unfinished = (state.active + state.queue.len()) as u64;
        outcome.sent_bytes = self.sent_bytes.get();
        if let Source::Logged(replay, _) = source {
            (outcome.unread_lines, outcome.left_out) = (replay.unread, replay.left_out);
        }
        outcome
    }
}
