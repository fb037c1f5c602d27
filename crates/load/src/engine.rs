//! A run: hands requests to connections and keeps account of what becomes of them.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http_body_util::BodyExt;
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::Notify;
use tokio::task::{LocalSet, spawn_local};
use tokio::time::{Instant, timeout_at};

use crate::outcome::Times;
use crate::pool::Pool;
use crate::wire::Failure;
use crate::{Alarm, Error, Outcome, Plan, Source, Target, Ticket, pace};

/// Requests that wait for a connection in memory. Beyond, they wait in the schedule, and keep their times.
const QUEUE_MAX: usize = 1_000_000;
/// How long the clock of the wall is not looked at before a common start: it may be set meanwhile.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The last requests whose times are remembered, to know their rate when the schedule ends.
const RECENT_MAX: usize = 1_000;
const UNSENT: &str = "all connections were taken until the run was over";

/// Runs a plan in this thread, until its end or until `stop` returns. `begun` is called when the first request is due.
///
/// # Errors
/// If it cannot begin. A log that cannot be read to its end is no such error: see [`Outcome::broken`].
pub fn run(plan: &Plan, stop: impl Future<Output = ()>, begun: impl FnOnce()) -> Result<Outcome, Error> {
    plan.check()?;
    run_from(plan, plan.source()?, QUEUE_MAX, stop, begun)
}

fn run_from(
    plan: &Plan,
    source: Source,
    queue_max: usize,
    stop: impl Future<Output = ()>,
    begun: impl FnOnce(),
) -> Result<Outcome, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // Dropping the set ends what is still under way.
    let outcome = LocalSet::new().block_on(&runtime, offer(plan, source, queue_max, stop, begun));
    // A thread may hang in a read of a body's file, or in the look-up of a name.
    runtime.shutdown_background();
    outcome
}

async fn offer(
    plan: &Plan,
    mut source: Source,
    queue_max: usize,
    stop: impl Future<Output = ()>,
    begun: impl FnOnce(),
) -> Result<Outcome, Error> {
    let mut stop = std::pin::pin!(stop);
    let pool = tokio::select! {
        pool = Pool::new(plan) => pool?,
        () = &mut stop => return Ok(Outcome { is_interrupted: true, ..plan.outcome() }),
    };
    let shared = Rc::new(Shared::new(plan, pool, queue_max));
    let alarm = Alarm::of_kernel()?;
    tokio::select! {
        begins = begin(plan.at, &alarm) => begins?,
        () = &mut stop => return Ok(shared.finish(true, &source)),
    }
    begun();
    let (start, real, cpu_s) = (Instant::now(), SystemTime::now(), thread_cpu_s());
    shared.start.set((start, real.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()));

    let hand_out = async |ticket: Ticket, late| shared.hand_out(ticket, late).await;
    let (mut is_stopped, broken) = tokio::select! {
        paced = pace(&mut source, start, &alarm, hand_out) => (false, paced.err()),
        () = &mut stop => (true, None),
    };
    shared.note_end(start, cpu_s);
    if !is_stopped {
        is_stopped = tokio::select! {
            () = shared.drain() => false,
            () = &mut stop => true,
        };
    }
    let mut outcome = shared.finish(is_stopped || broken.is_some(), &source);
    outcome.broken = broken.map(|error| error.to_string());
    Ok(outcome)
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

/// How long this thread has had a CPU.
fn thread_cpu_s() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// What all requests share. One thread: no borrow is held while something is awaited.
struct Shared {
    plan: Plan,
    pool: Pool,
    queue_max: usize,
    state: RefCell<State>,
    /// The start, and when that was in seconds since 1970.
    start: Cell<(Instant, f64)>,
    sent_bytes: Rc<Cell<u64>>,
    /// There is room in the queue.
    room: Notify,
    /// Nothing is under way any more.
    idle: Notify,
}

/// Requests that want the same connections.
struct Lane {
    queue: VecDeque<Ticket>,
    /// Requests under way, and how many of them there may be.
    active: usize,
    active_max: usize,
}

#[derive(Default)]
struct State {
    lanes: Vec<Lane>,
    /// Requests in the queues of all lanes.
    waiting: usize,
    /// When requests under way were due, by their numbers.
    under_way: BTreeMap<u64, Instant>,
    /// Numbers the requests that were sent.
    sent: u64,
    /// When the last requests were due.
    recent: VecDeque<Instant>,
    outcome: Outcome,
    /// Tickets are not taken any more.
    is_over: bool,
}

impl State {
    /// Returns the number of a request that is under way now.
    fn begin(&mut self, ticket: &Ticket) -> u64 {
        self.sent += 1;
        self.under_way.insert(self.sent, ticket.due);
        self.sent
    }

    /// The next request of a lane, one of whose requests has ended.
    fn next(&mut self, lane: usize) -> Option<Ticket> {
        let lane = self.lanes.get_mut(lane)?;
        let next = lane.queue.pop_front();
        match next {
            Some(_) => self.waiting -= 1,
            None => lane.active -= 1,
        }
        next
    }

    /// Requests that are under way at a time if they take so long: those that were due since then.
    fn usual_under_way(&self, now: Instant, latency_s: f64) -> u64 {
        let age_s = |due: &Instant| now.saturating_duration_since(*due).as_secs_f64();
        let n = self.recent.iter().rev().take_while(|&due| age_s(due) < latency_s).count();
        match self.recent.front() {
            // Before those that are remembered, the rate was the same.
            Some(first) if n == RECENT_MAX => (n as f64 * latency_s / age_s(first).max(1e-9)) as u64,
            _ => n as u64,
        }
    }
}

impl Shared {
    fn new(plan: &Plan, pool: Pool, queue_max: usize) -> Shared {
        let lanes = pool.lanes().into_iter();
        let lanes = lanes.map(|active_max| Lane { queue: VecDeque::new(), active: 0, active_max }).collect();
        Shared {
            plan: plan.clone(),
            pool,
            queue_max,
            state: RefCell::new(State { lanes, outcome: plan.outcome(), ..State::default() }),
            start: Cell::new((Instant::now(), 0.0)),
            sent_bytes: Rc::default(),
            room: Notify::new(),
            idle: Notify::new(),
        }
    }

    /// Seconds since 1970, on the clock that is not set while it runs.
    fn real(&self, at: Instant) -> f64 {
        let (start, real) = self.start.get();
        real + at.saturating_duration_since(start).as_secs_f64()
    }

    /// Starts a request that is due, or queues it. Returns whether it had to wait for room. It is given up after the
    /// time that an answer may take, so that a run ends.
    async fn hand_out(self: &Rc<Self>, ticket: Ticket, late: Duration) -> bool {
        self.count_due(&ticket, late);
        let mut has_waited = false;
        while self.state.borrow().waiting >= self.queue_max {
            has_waited = true;
            if timeout_at(ticket.due + self.plan.timeout, self.room.notified()).await.is_err() {
                let after = ticket.due.elapsed();
                self.state.borrow_mut().outcome.give_up("unsent", UNSENT, after);
                return true;
            }
        }
        self.start_or_queue(ticket);
        has_waited
    }

    fn count_due(&self, ticket: &Ticket, late: Duration) {
        let mut state = self.state.borrow_mut();
        state.outcome.requests += 1;
        state.outcome.lateness.record(late);
        Times::add(&mut state.outcome.due, self.real(ticket.due));
        if state.recent.len() == RECENT_MAX {
            state.recent.pop_front();
        }
        state.recent.push_back(ticket.due);
    }

    fn start_or_queue(self: &Rc<Self>, ticket: Ticket) {
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        let Some(lane) = state.lanes.get_mut(self.pool.lane(ticket.target.origin)) else { return };
        if lane.active < lane.active_max {
            lane.active += 1;
            let number = state.begin(&ticket);
            spawn_local(Rc::clone(self).work(ticket, number));
            return;
        }
        lane.queue.push_back(ticket);
        state.waiting += 1;
        state.outcome.queued += 1;
        state.outcome.queued_max = state.outcome.queued_max.max(state.waiting as u64);
    }

    /// Asks for one thing after the other, as long as some wait.
    async fn work(self: Rc<Self>, mut ticket: Ticket, mut number: u64) {
        let lane = self.pool.lane(ticket.target.origin);
        loop {
            let sent = Instant::now();
            let answer = timeout_at(sent + self.plan.timeout, self.ask(&ticket.target)).await;
            let done = Instant::now();
            let mut state = self.state.borrow_mut();
            if state.is_over {
                return;
            }
            state.under_way.remove(&number);
            self.count(&mut state.outcome, &ticket, sent, done, answer.ok());
            let Some(next) = state.next(lane) else {
                if state.under_way.is_empty() {
                    self.idle.notify_one();
                }
                return;
            };
            if state.waiting + 1 == self.queue_max {
                self.room.notify_one();
            }
            number = state.begin(&next);
            ticket = next;
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
        let latency = done.saturating_duration_since(ticket.due);
        match answer {
            Some(Ok((status, bytes))) => {
                outcome.answered += 1;
                Times::add(&mut outcome.done, self.real(done));
                *outcome.statuses.entry(status).or_default() += 1;
                outcome.received_bytes = outcome.received_bytes.saturating_add(bytes);
                outcome.latency.record(latency);
            }
            Some(Err(failure)) => {
                // A refusal says nothing of how long an answer takes.
                return outcome.fail(failure.kind, &failure.text, 1);
            }
            None => {
                let text = format!("no answer within {:?}", self.plan.timeout);
                outcome.give_up("timeout", &text, latency);
            }
        }
        outcome.service.record(done.saturating_duration_since(sent));
    }

    /// Sends a request and reads the answer: its status, and the bytes of its body.
    async fn ask(&self, target: &Target) -> Result<(u16, u64), Failure> {
        let origin = self.pool.origin(target.origin)?;
        let mut lease = self.pool.take(target.origin).await?;
        let answer = loop {
            match lease.wire.send(self.plan.request(origin, target, &self.sent_bytes)?).await {
                Ok(answer) => break answer,
                // The server has closed a connection that was idle.
                Err(unsent) if lease.is_used && unsent.is_unsent => {}
                Err(failed) => return Err(failed.why),
            }
            drop(lease);
            lease = self.pool.take_again(target.origin).await?;
        };
        let status = answer.status().as_u16();
        let (mut body, mut bytes) = (answer.into_body(), 0_u64);
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| Failure::of_hyper(&error))?;
            bytes = bytes.saturating_add(frame.data_ref().map_or(0, |data| data.len() as u64));
        }
        if self.plan.keeps_alive {
            self.pool.give_back(target.origin, lease);
        }
        Ok((status, bytes))
    }

    /// Notes what there is when the last request was due.
    fn note_end(&self, start: Instant, cpu_s: f64) {
        let mut state = self.state.borrow_mut();
        let (now, cpu_s) = (Instant::now(), thread_cpu_s() - cpu_s);
        let took_s = now.saturating_duration_since(start).as_secs_f64();
        let latency_s = state.outcome.latency.mean().unwrap_or_default();
        state.outcome.usual_at_end = state.usual_under_way(now, latency_s);
        state.outcome.answered_at_end = state.outcome.answered;
        state.outcome.cpu_share = if took_s > 0.0 { cpu_s / took_s } else { 0.0 };
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
        while !self.state.borrow().under_way.is_empty() {
            self.idle.notified().await;
        }
    }

    fn give_up_queue(&self) {
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        for lane in &mut state.lanes {
            for ticket in std::mem::take(&mut lane.queue) {
                state.outcome.give_up("unsent", UNSENT, ticket.due.elapsed());
            }
        }
        state.waiting = 0;
    }

    fn finish(&self, is_interrupted: bool, source: &Source) -> Outcome {
        let mut state = self.state.borrow_mut();
        state.is_over = true;
        let now = Instant::now();
        let waiting = state.lanes.iter().flat_map(|lane| &lane.queue).map(|ticket| ticket.due);
        let unfinished = state.under_way.values().copied().chain(waiting);
        let waits: Vec<Duration> = unfinished.map(|due| now.saturating_duration_since(due)).collect();
        let mut outcome = std::mem::take(&mut state.outcome);
        outcome.leave(&waits);
        outcome.is_interrupted = is_interrupted;
        outcome.connections = self.pool.opened();
        outcome.sent_bytes = self.sent_bytes.get();
        if let Source::Logged(replay, _) = source {
            (outcome.unread_lines, outcome.left_out) = (replay.unread, replay.left_out);
        }
        outcome
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Cursor, Read, Write};
    use std::net::{SocketAddr, TcpListener};
    use std::path::Path;
    use std::sync::mpsc;

    use super::*;
    use crate::{BodySource, HeaderMap, Method, Protocol, Replay, Schedule, Targets, Work};

    /// 100 requests in a second, through one connection.
    fn plan(address: SocketAddr) -> Plan {
        let mut targets = Targets::new();
        targets.add(&format!("http://{address}/")).unwrap();
        let length = Duration::from_secs(1);
        Plan {
            load: String::new(),
            targets,
            work: Work::Timed(Schedule { shape: "100/s".parse().unwrap(), length }),
            method: Method::GET,
            headers: HeaderMap::new(),
            body: BodySource::default(),
            protocol: Protocol::Http1,
            connections: 1,
            streams: 1,
            keeps_alive: true,
            timeout: Duration::from_secs(30),
            tls: None,
            at: None,
        }
    }

    /// Answers one request on each of two connections, and says when it has closed one.
    fn closing_server() -> (SocketAddr, mpsc::Receiver<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (told, closed) = mpsc::channel();
        std::thread::spawn(move || {
            for stream in listener.incoming().take(2).flatten() {
                for line in BufReader::new(&stream).lines().map_while(Result::ok) {
                    if line.is_empty() {
                        break;
                    }
                }
                (&stream).write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
                drop(stream);
                told.send(()).unwrap();
            }
        });
        (address, closed)
    }

    #[test]
    fn a_request_that_was_not_read_is_sent_again() {
        let (address, closed) = closing_server();
        let plan = plan(address);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        LocalSet::new().block_on(&runtime, async {
            let shared = Shared::new(&plan, Pool::new(&plan).await.unwrap(), QUEUE_MAX);
            let target = Rc::clone(&plan.targets.all[0]);
            assert_eq!(shared.ask(&target).await.unwrap(), (200, 2));
            closed.recv().unwrap();
            // The runtime hears of the end, and the connection's task has not run yet.
            tokio::task::yield_now().await;
            assert_eq!(shared.ask(&target).await.unwrap(), (200, 2));
            assert_eq!(shared.pool.opened(), 2);
        });
    }

    /// Nobody answers, and five requests have room in the queue.
    #[test]
    fn a_run_ends_although_its_queue_is_full() {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut plan = plan(silent.local_addr().unwrap());
        plan.timeout = Duration::from_millis(200);
        let outcome = run_from(&plan, plan.source().unwrap(), 5, std::future::pending(), || ()).unwrap();
        let count = |kind: &str| outcome.errors.get(kind).map_or(0, |failed| failed.count);
        assert_eq!((outcome.requests, count("timeout") + count("unsent")), (100, 100), "{outcome:?}");
        assert!(count("unsent") > 50 && outcome.queued_max == 5, "{outcome:?}");
        assert_eq!((outcome.latency.count(), outcome.unfinished), (100, 0), "{outcome:?}");
        // Those that waited in the schedule have their times, too.
        assert!(outcome.latency.quantile(0.5).unwrap() >= 0.19, "{outcome:?}");
    }

    struct Failing;

    impl Read for Failing {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("the disk is gone"))
        }
    }

    #[test]
    fn a_log_that_breaks_off_leaves_what_was_measured() {
        let (address, _closed) = closing_server();
        let line = |s: u32| format!("a - - [27/Nov/2026:10:00:{s:02} +0000] \"GET / HTTP/1.1\" 200 1\n");
        let log = BufReader::new(Cursor::new(line(0) + &line(20)).chain(Failing));
        let replay = Replay::of(Path::new("access.log"), log, 100.0);
        let source = Source::Logged(Box::new(replay), None);
        let plan = Plan { keeps_alive: false, ..plan(address) };
        let outcome = run_from(&plan, source, QUEUE_MAX, std::future::pending(), || ()).unwrap();
        assert_eq!((outcome.requests, outcome.answered), (2, 2), "{outcome:?}");
        assert!(outcome.is_interrupted);
        assert_eq!(outcome.broken.as_deref(), Some("access.log: the disk is gone"));
    }

    #[test]
    fn a_name_that_is_looked_up_does_not_hold_a_stop_up() {
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut plan = plan(silent.local_addr().unwrap());
        plan.targets = Targets::new();
        plan.targets.add("http://name-that-takes-its-time.invalid/").unwrap();
        let outcome = run(&plan, std::future::ready(()), || ()).unwrap();
        assert!(outcome.is_interrupted && outcome.requests == 0);
    }
}
