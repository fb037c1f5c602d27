//! A busy service answers nothing any more while requests wait, and its processes sleep.
//!
//! Its threads wait for something and take no notice of what arrives: a lock, somebody else's answer, a file system that does
//! not come back. No resource is short. The accept queue begins to grow long before it overflows (`listen-overflow`).
//!
//! What its threads wait for is looked up while it keeps clients waiting: where only one process can end that, and this one waits for
//! nobody, it is the culprit.
//!
//! One that sends without being asked (a feed, a stream) has stopped where nothing more goes to the connections that there are, though
//! something went there in each second before. That alone says nothing: who has nothing to send is well. It has to be seen that one of its
//! threads cannot go on.
//!
//! A service that nobody asks is quiet and well: nothing waits. One that computes, or moves data, works on an answer that takes
//! long.

use crate::network;
use crate::prelude::*;
use crate::services::{self, Address, SERVICE, Servers, Traffic, Usual};
use crate::{sessions, waits};

pub const CONDITION: Condition = Condition {
    id: "service-silent",
    title: "a service answers nothing while its processes sleep",
    area: "service",
    stands_alone: true,
    needs: &[
        "service.requests",
        "service.wait_time",
        "service.open",
        "listener.queue",
        "listener.backlog",
        SENT,
        CONNECTIONS,
        "task.cpu_time",
        "task.read_bytes",
        "task.write_bytes",
    ],
    needs_of: &[services::NEEDS, waits::NEEDS, sessions::NEEDS],
    triggers: &[
        Trigger::Signals(Signals {
            metrics: &["service.requests", "service.wait_time", "listener.queue"],
            find: are_silent,
            need_s: services::NEED_S,
            can_be_steady: true,
        }),
        Trigger::Signals(Signals {
            metrics: &[SENT, CONNECTIONS],
            find: have_dried_up,
            need_s: services::NEED_S,
            can_be_steady: false,
        }),
    ],
    observe,
    causes: &[
        explains("service-slow", "unanswered requests are late"),
        within("service-failing", "clients give up what is not answered"),
        asked("listen-overflow", "a server that stands still accepts nothing"),
    ],
    remedies_of: remedies,
    next_of: next,
    source: include_str!("service_silent.rs"),
    ..Condition::SYMPTOM
};

const SENT: &str = "service.sent_bytes";
const CONNECTIONS: &str = "service.established";
/// In so many samples one after the other something was sent; what has been still for so long is how it is.
const STREAM: usize = 10;
const STILL: usize = 60;
/// Who answers now and then sends without being asked all the same.
const ANSWERS: f64 = 0.1;
/// Answers that were to be expected in the time: by chance none comes in one case of twenty thousand.
const EXPECTED: f64 = 10.0;
/// A client waits for nearly all of a second.
const WAITS: f64 = 0.8;
/// Connections that nobody takes: a server that runs takes each within a millisecond.
const QUEUED: f64 = 3.0;
/// The same where nothing else is known of the service: a burst of clients may fill as many places for a moment.
const QUEUED_ALONE: f64 = 8.0;
/// Of a CPU: a process that works takes more.
const ASLEEP: f64 = 0.1;
/// Of a task's time: one of its threads that hangs in the kernel does so all the time.
const BLOCKED: f64 = 0.5;
/// Of a second: who reads or writes as much works.
const MOVES_BYTES_S: f64 = 1e5;

/// A task that has no CPU for half of the time answers nothing in seconds, or hardly.
const STARVED: f64 = 0.5;

const STOPPED: &str = "were stopped";

/// A service that is silent.
struct Silent<'a> {
    row: &'a str,
    run: Run,
    waited_s: f64,
    queue: f64,
    used: f64,
}

fn observe(view: &View<'_>) -> Observation {
    // What sends nothing and is asked nothing may be known from before only.
    let stuck = || view.around.each(SENT).find_map(|(row, _)| stuck_stream(view, row));
    if !view.has("service.requests") && !view.has("listener.queue") {
        let needs = || Observation::needs_as("answers of services (service.requests)", &["service.requests"]);
        return stuck().map_or_else(needs, Finding::active);
    }
    let mut because = "every service that was asked answered".to_owned();
    let mut best: Option<Silent<'_>> = None;
    // Some programs hold a Unix socket that nobody shall answer at: its name is a lock.
    let is_alone =
        |row: &str| services::port(row).is_some() && view.set.get("service.requests", row).is_none();
    let alone = view.each("listener.queue").filter(|(row, _)| is_alone(row));
    for (row, _) in view.each("service.requests").chain(alone) {
        let Some((run, waited_s)) = stretch(view, row) else { continue };
        let queue = view.set.get("listener.queue", row).and_then(|s| s.max(run.span())).unwrap_or(0.0);
        match sleeps(view, row, &run) {
            Ok(used) if best.as_ref().is_none_or(|b| waited_s > b.waited_s) => {
                match waits_for(view, row, &run, waited_s) {
                    None => best = Some(Silent { row, run, waited_s, queue, used }),
                    Some(inner) => because = inner,
                }
            }
            Ok(_) => {}
            Err(reason) => because = reason,
        }
    }
    if let Some(silent) = best {
        return finding(view, &silent).active();
    }
    match stuck() {
        Some(finding) => finding.active(),
        None => Observation::Inactive(because),
    }
}

/// Something was sent all the time, and nothing since, though as many connections are there.
fn dried_up(set: &SeriesSet, row: &str, window: Span) -> Option<Signal> {
    let sent = Signal::of(set.get(SENT, row)?, window);
    let connections = set.get(CONNECTIONS, row)?;
    let requests = set.get("service.requests", row);
    let is_asked =
        |at: Span| requests.and_then(|requests| requests.last(at)).is_some_and(|many| many > ANSWERS);
    let (mut flowed, mut still) = (0, 0);
    let mut v = Vec::with_capacity(sent.v.len());
    for (i, bytes) in sent.v.iter().enumerate() {
        let at = Span { since: sent.t[i], until: sent.t[i] + 1 };
        // A stream that begins again has to flow again before it can dry up; answers are none.
        (flowed, still) = match (*bytes > 0.0, still > 0) {
            (true, _) if is_asked(at) => (0, 0),
            (true, true) => (1, 0),
            (true, false) => (flowed + 1, 0),
            (false, _) => (flowed, still + 1),
        };
        let are_there = || connections.last(at).is_some_and(|many| many >= 1.0);
        v.push(step((1..=STILL).contains(&still) && flowed >= STREAM && are_there()));
    }
    Some(Signal { v, ..sent })
}

/// A service that sends to whoever is connected, of which a thread cannot go on since nothing more comes.
fn stuck_stream<'a>(view: &View<'a>, row: &'a str) -> Option<Finding> {
    // It flowed before anybody had a reason to look.
    let dry = dried_up(view.around, row, Span { since: i64::MIN, ..view.window })?;
    let run = dry.within(view.window).run(1.0, services::NEED_S)?;
    let span = run.span();
    let before = Span { since: i64::MIN, until: run.onset };
    let asked =
        view.around.get("service.requests", row).and_then(|requests| requests.mean(before)).unwrap_or(0.0);
    let servers = Servers::of(view, row);
    // Of a process that did not run at all nothing is known.
    if asked > ANSWERS || servers.used(view, span).is_some_and(|used| used >= ASLEEP) {
        return None;
    }
    let mut finding = view.finding(&run);
    servers.blame(&mut finding, row);
    let many = view.around.get(CONNECTIONS, row).and_then(|many| many.last(span)).unwrap_or(0.0);
    let flow = view.around.get(SENT, row).and_then(|sent| sent.mean(before)).unwrap_or(0.0);
    finding.statement = format!(
        "{} sends nothing more to its {} connections ({}/s before), and its processes sleep",
        services::name(&servers, row),
        words::count(many.round()),
        words::bytes(flow)
    );
    finding.prove(view, &[SENT, CONNECTIONS], row, span);
    if !waits::cannot_go_on(view, &servers, row, span)
        || !waits::follow(view, &mut finding, &servers, row, span)
    {
        return None;
    }
    // Each of them waits for what does not come.
    finding.client_wait_s = Some(many * run.seconds());
    finding.despite = services::despite(view, &services::walk(view, row, span, many), span);
    finding.confidence = 0.85;
    Some(finding)
}

/// Of each service that sends: one where it has stopped.
fn have_dried_up(set: &SeriesSet, window: Span) -> Vec<Signal> {
    set.each(SENT).filter_map(|(row, _)| dried_up(set, row, window)).collect()
}

/// The service of this machine that a silent one waits for: that one is silent itself, or late (`service-slow`).
fn waits_for<'a>(view: &View<'a>, row: &'a str, run: &Run, waited_s: f64) -> Option<String> {
    let walk = services::walk(view, row, run.span(), waited_s / run.seconds().max(1.0));
    let inner = walk.services.get(1)?;
    let name = |row: &str| services::name(&Servers::of(view, row), row);
    Some(format!("{} waits for {}", name(row), name(inner)))
}

/// The stretch without an answer in which requests or connections waited, and how long they did.
fn stretch<'a>(view: &View<'a>, row: &'a str) -> Option<(Run, f64)> {
    let queue = view.of("listener.queue", row).unwrap_or_default();
    let queued = |t: &i64| queue.t.binary_search(t).map_or(0.0, |i| queue.v[i]);
    let Some(traffic) = Traffic::of(view.set, &SERVICE, &[row], view.window) else {
        let high = view.high("listener.queue", row, QUEUED_ALONE, services::NEED_S)?;
        let is_rising = high.peak >= 2.0 * high.before.unwrap_or(0.0);
        return is_rising.then(|| (high.run, queue.within(high.run.span()).total()));
    };
    let usual = services::usual(view, row)?;
    let silent = silence(&traffic, &usual, queued);
    let is_long = |run: &Run| run.lasted(services::NEED_S) && run.high_s * usual.rate >= EXPECTED;
    let run = silent.runs(1.0).into_iter().filter(is_long).max_by(|a, b| a.high_s.total_cmp(&b.high_s))?;
    // A stretch that is bridged over an answer is none.
    let inside = |t: &i64| *t > run.onset && *t <= run.end;
    let samples: Vec<usize> = (0..traffic.t.len()).filter(|i| inside(&traffic.t[*i])).collect();
    let answered: f64 = samples.iter().map(|i| traffic.requests[*i] * traffic.dt[*i]).sum();
    if answered > 0.1 * usual.rate * run.seconds() {
        return None;
    }
    let waits =
        |i: &usize| (traffic.waiting[*i] - usual.waiting).max(queued(&traffic.t[*i])) * traffic.dt[*i];
    Some((run, samples.iter().map(waits).sum()))
}

/// One where nothing is answered and somebody waits.
fn silence(traffic: &Traffic, usual: &Usual, queued: impl Fn(&i64) -> f64) -> Signal {
    let is_silent = |i: usize| {
        let waits = traffic.waiting[i] >= usual.crowd(WAITS) || queued(&traffic.t[i]) >= QUEUED;
        step(traffic.requests[i] <= 0.0 && waits)
    };
    Signal { t: traffic.t.clone(), dt: traffic.dt.clone(), v: (0..traffic.t.len()).map(is_silent).collect() }
}

/// How much of a CPU its processes took while it was silent; an error says that they worked, or that it is not known.
fn sleeps(view: &View<'_>, row: &str, run: &Run) -> Result<f64, String> {
    let servers = Servers::of(view, row);
    let name = services::name(&servers, row);
    let span = run.span();
    let Some(used) = servers.used(view, span) else {
        return Err(format!("{name} answered nothing, and what its processes did is not known"));
    };
    let moved = ["task.read_bytes", "task.write_bytes"];
    let moved: f64 = moved.iter().filter_map(|metric| servers.rate(view.set, metric, span)).sum();
    if used >= ASLEEP || moved >= MOVES_BYTES_S {
        return Err(format!(
            "{name} answered nothing and worked: {} of a CPU, {}/s read and written",
            words::percent(used),
            words::bytes(moved)
        ));
    }
    Ok(used)
}

fn finding<'a>(view: &View<'a>, silent: &Silent<'a>) -> Finding {
    let (row, span) = (silent.row, silent.run.span());
    let servers = Servers::of(view, row);
    let mut finding = view.finding(&silent.run);
    finding.netns = Some(network::device(row).1.id());
    finding.culprit.address = Some(Address::of(row).text.to_owned());
    finding.culprit.process.clone_from(&servers.comm);
    // Of several one stands for all.
    finding.culprit.pid = servers.pid.or_else(|| servers.processes.first().map(|p| p.pid));
    let open = view.set.get("service.open", row).and_then(|s| s.max(span)).filter(|open| *open >= 1.0);
    let waits: Vec<String> =
        [(open, "requests"), (Some(silent.queue), "connections that it had not accepted")]
            .into_iter()
            .filter_map(|(n, what)| Some(format!("{} {what}", words::count(n.filter(|n| *n >= 1.0)?))))
            .collect();
    let waits =
        if waits.is_empty() { String::new() } else { format!(", with {} waiting", waits.join(" and ")) };
    let is_stopped = servers.are_stopped(view.set, span);
    // Of a task's time: somebody else had the CPU that one of its threads wanted.
    let wanted = servers.rate(view.set, "task.run_delay", span);
    let starved = wanted.filter(|share| !is_stopped && *share >= STARVED);
    finding.statement = format!(
        "{} answered nothing for {} while its processes {}{waits}",
        services::name(&servers, row),
        words::seconds(silent.run.seconds()),
        match (is_stopped, starved) {
            (true, _) => STOPPED,
            (false, Some(_)) => "waited for a CPU",
            (false, None) => "slept",
        }
    );
    if let Some(share) = starved {
        let share = words::percent(share);
        finding.remarks.push(format!(
            "its processes took {} of a CPU, and {share} of a task's time they wanted one and did not get it",
            words::percent(silent.used)
        ));
        finding.owed_to.extend(["cpu-quota-throttled", "runqueue-wait"]);
    } else if !is_stopped {
        finding.remarks.push(format!(
            "its processes took {} of a CPU: they wait for something",
            words::percent(silent.used)
        ));
    }
    finding.confidence = 0.95;
    let is_known = waits::follow(view, &mut finding, &servers, row, span);
    if !is_known && is_stopped {
        finding.waits_for =
            Some("they are in state T, a signal (SIGSTOP, SIGTSTP) or a debugger stopped them".to_owned());
    }
    sessions::follow_standby(view, &mut finding, servers.comm.as_deref(), span);
    finding.client_wait_s = Some(silent.waited_s);
    let walk = services::walk(view, row, span, silent.waited_s / silent.run.seconds().max(1.0));
    finding.despite = services::despite(view, &walk, span);
    if !is_known && !is_stopped {
        services::lead_on(view, &mut finding, &servers, row, &walk.services, span);
    }
    if servers.blocked(view.set, span).unwrap_or(0.0) < BLOCKED {
        finding.despite.push("hung-task");
    }
    finding.prove(view, &["service.requests", "service.wait_time", "service.open"], row, span);
    finding.prove(view, &["listener.queue", "listener.backlog"], row, span);
    finding
}

/// Of each service: one where nothing is answered and somebody waits; of each listening socket: one where connections do.
fn are_silent(set: &SeriesSet, window: Span) -> Vec<Signal> {
    let of_service = |row: &str| {
        let traffic = Traffic::of(set, &SERVICE, &[row], window)?;
        // Where an answer takes longer than a sample, one without an answer says nothing.
        let usual = traffic.at_best().filter(|usual| usual.p50 < 1.0)?;
        Some(silence(&traffic, &usual, |_| 0.0))
    };
    let services = set.each("service.requests").filter_map(|(row, _)| of_service(row));
    let is_meant = |row: &str| services::port(row).is_some() || set.get("service.requests", row).is_some();
    let queues = set.each("listener.queue").filter(|(row, _)| is_meant(row));
    let queues = queues.map(|(_, series)| Signal::of(series, window));
    services.chain(queues.map(|queue| queue.map(|n| step(n >= QUEUED_ALONE)))).collect()
}

fn remedies(finding: &Finding) -> Vec<Remedy> {
    let (pid, who) = (finding.pid(), finding.culprit.process.as_deref().unwrap_or("the service"));
    if let Some(remedy) = waits::go_on(finding) {
        return vec![remedy];
    }
    if finding.statement.contains(STOPPED) {
        return vec![waits::let_go_on(who, &pid)];
    }
    if let Some(remedies) = sessions::standby_remedies(finding) {
        return remedies;
    }
    vec![Remedy {
        action: format!(
            "find what {who} waits for before it is restarted: a restart hides the cause, and it comes back"
        ),
        command: format!(
            "mitra capture offcpu --pid {pid}; cat /proc/{pid}/task/*/wchan; ss -tnp | grep 'pid={pid},'"
        ),
        verify: "it answers again, and its accept queue is empty: ss -ltn".to_owned(),
        risk: String::new(),
    }]
}

fn next(finding: &Finding) -> Vec<Next> {
    let pid = finding.pid();
    let own = services::ask(finding.culprit.process.as_deref(), &pid);
    own.into_iter()
        .chain([
            to_measure("where its threads stand still", format!("mitra capture offcpu --pid {pid}")),
            to_measure(
                "which locks and files it holds and waits for",
                format!("cat /proc/locks; ls -l /proc/{pid}/fd"),
            ),
        ])
        .collect()
}
