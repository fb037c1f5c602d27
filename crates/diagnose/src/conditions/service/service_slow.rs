//! A service answers late: its requests take much longer than they usually do, or have waited for long and are not answered.
//!
//! It is what its clients notice, whatever the machine does. Requests are compared with those of the same service before:
//! a query that always took a minute and a client that polls for half a minute are as they were. A service that is asked more
//! and answers as fast is well, and so is one whose connections stay open while nobody asks. Of a service that was hardly ever
//! asked nobody can say what is usual, and one that was started again a moment ago is not yet as it will be.
//!
//! The share of the time that the service's own processes waited for a CPU or in the kernel, and the addresses that they wait
//! for, decide which causes can be meant: the processes of the service that is asked, and those of the services of this
//! machine that a request passes. The one at the end of that way is the culprit, until a cause is found, or the process for which
//! most of its threads wait in the end. Who looks at the memory of a process from outside holds the lock of its address space meanwhile, and
//! who lists a large directory the lock of that: it is the culprit where threads of the service wait for such a lock.

use crate::network;
use crate::outsiders::{self, Outsider};
use crate::prelude::*;
use crate::services::{self, Address, Late, SERVICE, Servers, Service, Slow, Traffic, Walk};
use crate::{locks, sessions, waits};

pub const CONDITION: Condition = Condition {
    id: "service-slow",
    title: "a service is slow",
    area: "service",
    stands_alone: true,
    needs: &[
        "service.requests",
        "service.wait_time",
        "service.latency_p50",
        "service.latency_p90",
        "service.latency_p99",
        "service.open",
        "task.cpu_time",
        "task.run_delay",
        "task.majflt",
        "task.state",
        "resolver.comm",
    ],
    needs_of: &[services::NEEDS, waits::NEEDS, sessions::NEEDS, outsiders::NEEDS],
    triggers: &[Trigger::Signals(Signals {
        metrics: services::SERVICE_SCAN,
        find: are_late,
        need_s: services::NEED_S,
        can_be_steady: true,
    })],
    observe,
    causes: &[explains("service-failing", "clients give up what is late")],
    suspicions: &[Suspicion {
        rank: 200,
        name: "clients-wait-beside-idle-cpus",
        when: "any(service.wait_time > 300% and service.latency_p50 > 100ms) and sys.cpu_idle > 50% * sys.cpus_online for 3s",
        arm: &["offcpu min=100ms"],
        seconds: 3.0,
        cool_down_s: 600.0,
        why: "Three clients wait for a service at any moment, half of its answers take a tenth of a second, and the \
              CPUs idle: its threads sleep, and their stacks show what for. Long polls look alike, so it runs every \
              ten minutes at most.",
        ..Suspicion::NONE
    }],
    remedies_of: remedies,
    next_of: next,
    source: include_str!("service_slow.rs"),
    ..Condition::SYMPTOM
};

/// A tenth of a task's time: a server that waits less for it has its requests late for another reason.
const WAITED: f64 = 0.1;
/// And half as much again as before.
const MORE: f64 = 1.5;
/// Pages a second that a server fetches back: each is a read, or a page of a device in memory.
const FAULTS_S: f64 = 10.0;
/// Compilers of a runtime, empty caches and pools: what came less than this ago is not yet as it will be.
const WARM_UP_S: f64 = 30.0;

/// What makes a server slow only if it waits for a CPU.
const CPU: &[&str] = &["runqueue-wait", "cpu-quota-throttled"];
/// Only if it waits in the kernel.
const KERNEL: &[&str] = &[
    "slow-device",
    "disk-saturated",
    "dirty-writeback-stall",
    "io-throttled",
    "hung-task",
    "mmap-lock-contention",
];
/// Only if it waits for memory.
const MEMORY: &[&str] = &["major-faults", "direct-reclaim", "compaction-stall"];
/// A service that is slow.
struct Found<'a> {
    row: &'a str,
    slow: Slow,
    walk: Walk<'a>,
}

fn observe(view: &View<'_>) -> Observation {
    if !view.has("service.requests") {
        return Observation::needs_as("response times of services (service.*)", &["service.requests"]);
    }
    let mut because = "no service got enough requests to tell what is usual".to_owned();
    let (mut found, mut busiest): (Vec<Found<'_>>, f64) = (Vec::new(), 0.0);
    for service in view.services() {
        let Some((slow, usual)) = service.slow().zip(service.usual) else { continue };
        let row = service.row;
        let name = || services::name(&Servers::of(view, row), row);
        match slow {
            Ok(slow) if Servers::of(view, row).are_restarted(view, row, slow.run.onset, WARM_UP_S) => {
                because = format!("{} had just been started again", name());
            }
            Ok(slow) if is_left_with_long_ones(view, service, &slow) => {
                because = format!(
                    "{} is only asked for what always took long: its caller turns the rest away",
                    name()
                );
            }
            Ok(slow) if is_slow_for_newcomers(view, service, &slow) => {
                because = format!(
                    "{} is slow only for callers that it did not have before: it answers the others as it did",
                    name()
                );
            }
            Ok(slow) => {
                let beyond = slow.beyond_s / slow.run.seconds().max(1.0);
                let walk = services::walk(view, row, slow.run.span(), beyond);
                found.push(Found { row, slow, walk });
            }
            // The one that is asked most says most.
            Err(reason) if usual.rate > busiest => {
                busiest = usual.rate;
                because = format!("{} {reason}", name());
            }
            Err(_) => {}
        }
    }
    found.sort_by(|a, b| b.slow.beyond_s.total_cmp(&a.slow.beyond_s));
    match front(&found) {
        Some(front) => finding(view, front, &found).active(),
        None => Observation::Inactive(because),
    }
}

fn is_slow_for_newcomers<'a>(view: &View<'a>, service: &Service<'a>, slow: &Slow) -> bool {
    let beyond = slow.beyond_s / slow.run.seconds().max(1.0);
    services::only_newcomers_wait(view, service, slow.run.span(), beyond)
}

/// A service that gets less than this of what it was asked before is asked less; a caller that gets as much is as busy as ever.
const LEFT: f64 = 0.8;

/// Whether half of its answers take as long as some always did, because a service that calls it is asked as much as ever and turns
/// much of that away by itself.
fn is_left_with_long_ones<'a>(view: &View<'a>, service: &Service<'a>, slow: &Slow) -> bool {
    let span = slow.run.span();
    let is_asked_less = service.usual.is_some_and(|usual| slow.rate < LEFT * usual.rate);
    if slow.late != Late::Half || !is_asked_less || !service.answers_as_some_did(view, span) {
        return false;
    }
    let reaches = |row: &str| service.rows.iter().any(|own| Address::called(row).reaches(&Address::of(own)));
    let turns_away = |caller: &Service<'_>| {
        let is_busy = || {
            let rate = |span| caller.mean(view.set, "service.requests", span);
            let earlier = || rate(Span { since: i64::MIN, until: span.since });
            let usual = caller.usual.map(|usual| usual.rate).or_else(earlier);
            rate(span).zip(usual).is_some_and(|(rate, usual)| usual > 0.0 && rate >= LEFT * usual)
        };
        let calls =
            || services::called_by(view, view.set, &Servers::of(view, caller.row)).into_iter().any(reaches);
        caller.row != service.row && is_busy() && calls()
    };
    view.services().iter().any(turns_away)
}

/// The one whose clients waited longest, or who asks it and is slow for that reason.
fn front<'f, 'a>(found: &'f [Found<'a>]) -> Option<&'f Found<'a>> {
    let worst = found.first()?;
    let asks = |one: &&Found<'_>| {
        one.row != worst.row
            && one.walk.services.contains(&worst.row)
            && one.slow.beyond_s >= 0.5 * worst.slow.beyond_s
    };
    Some(found.iter().find(asks).unwrap_or(worst))
}

fn finding<'a>(view: &View<'a>, front: &Found<'a>, all: &[Found<'a>]) -> Finding {
    let (row, slow) = (front.row, &front.slow);
    let span = slow.run.span();
    let servers = Servers::of(view, row);
    let mut finding = view.finding(&slow.run);
    finding.netns = Some(network::device(row).1.id());
    finding.statement = format!("{} {}", services::name(&servers, row), slow.words());
    finding.client_wait_s = Some(slow.beyond_s);
    finding.confidence = 0.95;
    finding.prove(
        view,
        &["service.latency_p50", "service.latency_p90", "service.latency_p99", "service.requests"],
        row,
        span,
    );
    finding.prove(view, &["service.wait_time", "service.open"], row, span);
    finding.remarks.push(slow.waits());
    // Who is asked more for what always took long keeps nobody waiting who was not before.
    let always_did =
        |row: &str| view.service(row).is_some_and(|service| service.answers_as_some_did(view, span));
    let is_slow = |row: &str| {
        all.iter().any(|other| other.row == row && (other.slow.late != Late::Half || !always_did(row)))
    };
    let is_as_late = |inner: &str| services::wait_together(view, row, inner, span);
    let is_meant = |row: &&&str| is_slow(row) || services::is_stuck(view, row, span) || is_as_late(row);
    let inner = front.walk.services.iter().rev().find(is_meant).copied().unwrap_or(row);
    let inner_servers = Servers::of(view, inner);
    finding.culprit.address = Some(Address::of(inner).text.to_owned());
    finding.culprit.process.clone_from(&inner_servers.comm);
    finding.culprit.pid = inner_servers.pid;
    let group = inner_servers.processes.first().and_then(|p| p.cgroup).filter(|group| *group != "/");
    finding.culprit.cgroup = group.map(str::to_owned);
    if inner != row {
        let name = services::name(&inner_servers, inner);
        finding.remarks.push(format!("it waits for {name}"));
        if !is_slow(inner) {
            finding.remarks.push(if is_as_late(inner) {
                format!("the clients of {name} wait longer than usual in the same seconds")
            } else {
                format!("{name} is asked too seldom to tell how long it usually takes")
            });
            finding.confidence = services::LIKELY;
        }
    }
    let is_known = waits::follow(view, &mut finding, &inner_servers, inner, span);
    if !is_known && front.walk.elsewhere.is_empty() {
        finding.remarks.extend(services::overlapping(view, &inner_servers, inner, span));
    }
    if finding.waits_for.is_none() {
        follow_outsider(view, &mut finding, &inner_servers, span);
    }
    sessions::follow_standby(view, &mut finding, inner_servers.comm.as_deref(), span);
    if !is_known {
        services::lead_on(view, &mut finding, &inner_servers, inner, &front.walk.services, span);
    }
    if inner != row && !is_known {
        let name = services::name(&inner_servers, inner);
        finding.waits_for = Some(match finding.waits_for.take() {
            Some(why) if why.contains(&name) => why,
            Some(why) => format!("it waits for {name}: {why}"),
            None => format!("it waits for {name}, and why that one is slow was not found"),
        });
    }
    let passed: Vec<Servers<'_, '_>> = front.walk.services.iter().map(|row| Servers::of(view, row)).collect();
    judge(view, &mut finding, &passed, &front.walk, span);
    say_others(view, &mut finding, front, all);
    finding
}

/// Who holds a lock of the kernel that its threads wait for, from outside.
fn follow_outsider<'a>(view: &View<'a>, finding: &mut Finding, servers: &Servers<'_, 'a>, span: Span) {
    let Some(holder) = Outsider::of(view, &servers.processes, span) else { return };
    finding.waits_for = Some(holder.words(servers.pid));
    finding.waits_for_lock = true;
    finding.blame(holder.process);
    finding.infer_culprit();
    finding.evidence.extend(view.evidence(locks::OF_KERNEL, "", span));
}

/// What the processes waited for, and which causes that leaves.
fn judge<'a>(
    view: &View<'a>,
    finding: &mut Finding,
    passed: &[Servers<'_, '_>],
    walk: &Walk<'a>,
    span: Span,
) {
    finding.despite.extend(services::despite(view, walk, span));
    if finding.waits_for_lock {
        finding.despite.retain(|cause| *cause != "lock-queue");
    }
    if !walk.elsewhere.is_empty() {
        finding.remarks.push(format!("its processes wait for {}", services::addresses(&walk.elsewhere)));
    }
    // Who waited most for name servers is known, and nobody else.
    let asks_names = |servers: &Servers<'_, '_>| {
        view.set.each_text("resolver.comm").any(|(_, text)| text.last() == servers.comm.as_deref())
    };
    if !passed.iter().any(asks_names) {
        finding.despite.push("resolver-slow");
    }
    let sum =
        |of: &dyn Fn(&Servers<'_, '_>) -> Option<f64>| passed.iter().filter_map(of).reduce(|a, b| a + b);
    for servers in passed.iter().filter(|servers| servers.are_often_stopped(view.set, span)) {
        finding.remarks.push(format!(
            "the processes of {} were stopped (state T) in {} of the samples: a signal or a debugger stops them again and again",
            servers.comm.as_deref().unwrap_or("a service"),
            words::percent(servers.stopped_share(view.set, span))
        ));
    }
    let rate = |metric: &str| sum(&|servers| servers.rate(view.set, metric, span));
    let before = |metric: &str| {
        let rate = |servers: &Servers<'_, '_>| servers.rate(view.base_set, metric, view.baseline?);
        sum(&rate).unwrap_or(0.0)
    };
    let Some(used) = sum(&|servers| servers.used(view, span)) else { return };
    let delayed = rate("task.run_delay").unwrap_or(0.0);
    let blocked = sum(&|servers| servers.blocked(view.set, span)).unwrap_or(0.0);
    // What keeps the one at the end waiting keeps all.
    let end = finding.culprit.pid.and_then(|pid| view.process(pid));
    let end =
        end.filter(|end| !passed.iter().any(|servers| servers.processes.iter().any(|p| p.pid == end.pid)));
    let end_s = |seconds: f64| seconds / span.seconds().max(1.0);
    let end_delayed = end.map_or(0.0, |end| end_s(end.total(view.set, "task.run_delay", span)));
    let end_blocked = end.map_or(0.0, |end| end_s(end.blocked_s(view.set, span)));
    let blocked_before = sum(&|servers| servers.blocked(view.base_set, view.baseline?)).unwrap_or(0.0);
    if delayed + end_delayed < WAITED.max(MORE * before("task.run_delay")) {
        finding.despite.extend(CPU);
    }
    if blocked + end_blocked < WAITED.max(MORE * blocked_before) {
        finding.despite.extend(KERNEL);
        if rate("task.majflt").unwrap_or(0.0) < FAULTS_S.max(MORE * before("task.majflt")) {
            finding.despite.extend(MEMORY);
        }
    }
    let earlier = view.baseline.map(|_| format!(" ({} before)", words::percent(before("task.cpu_time"))));
    finding.remarks.push(format!(
        "its processes took {} of a CPU{}, and of a task's time they waited {} for a CPU and {} in \
         uninterruptible sleep",
        words::percent(used),
        earlier.unwrap_or_default(),
        words::percent(delayed),
        words::percent(blocked)
    ));
}

/// The other services that are slow.
fn say_others(view: &View<'_>, finding: &mut Finding, front: &Found<'_>, all: &[Found<'_>]) {
    for other in all.iter().filter(|other| other.row != front.row).take(3) {
        let name = services::name(&Servers::of(view, other.row), other.row);
        finding.remarks.push(format!("beside it: {name} {}", other.slow.words()));
    }
}

/// Of each address: one where its requests are late, or a page of them is while several clients more than at best wait for any
/// service: it may be one whose other addresses are asked more.
fn are_late(set: &SeriesSet, window: Span) -> Vec<Signal> {
    let rows = set.each("service.requests").map(|(row, _)| row);
    let waiting =
        Signal::sum(set.each("service.wait_time").map(|(_, waits)| waits), window).unwrap_or_default();
    let best = services::best_tenth(&waiting.v).unwrap_or(0.0);
    let is_crowded =
        |t: &i64| waiting.t.binary_search(t).is_ok_and(|i| waiting.v[i] >= best + services::CROWD);
    let late = |row| {
        if !SERVICE.may_be_late(set, &[row], window) {
            return None;
        }
        let traffic = Traffic::of(set, &SERVICE, &[row], window)?;
        let usual = traffic.at_best()?;
        let mut late = traffic.may_be_late(&usual);
        let kept = traffic.is_page_later_at(&usual);
        for ((late, kept), t) in late.v.iter_mut().zip(&kept.v).zip(&kept.t) {
            *late = late.max(step(*kept >= 1.0 && is_crowded(t)));
        }
        Some(late)
    };
    rows.filter_map(late).collect()
}

fn remedies(finding: &Finding) -> Vec<Remedy> {
    // Its process may wait for the one that is named.
    let address = finding.culprit.address.as_deref();
    let who = address.map_or_else(|| "the service".to_owned(), |address| format!("the service at {address}"));
    if let Some(remedy) = waits::go_on(finding) {
        return vec![remedy];
    }
    if let Some(remedies) = sessions::standby_remedies(finding) {
        return remedies;
    }
    vec![Remedy {
        action: format!(
            "until the cause is known: limit how long clients wait for {who}, and send it no more than it can answer"
        ),
        command: "a timeout and a limit of concurrent requests in its clients or in the proxy in front of it"
            .to_owned(),
        verify: "its response time is as before: mitra explain --since -2m".to_owned(),
        risk: "requests beyond the limit fail at once instead of late".to_owned(),
    }]
}

fn next(finding: &Finding) -> Vec<Next> {
    let pid = finding.pid();
    let address = finding.culprit.address.as_deref().unwrap_or("ADDRESS");
    let sockets = match services::port(address) {
        Some(port) => format!("ss -tnp state established '( sport = :{port} )'; ss -ltn 'sport = :{port}'"),
        None => format!("ss -xp | grep -F {}", words::shell(address.trim_start_matches("unix:"))),
    };
    let own = services::ask(finding.culprit.process.as_deref(), &pid);
    own.into_iter()
        .chain([
            to_measure("what its threads wait for, with stacks", format!("mitra capture offcpu --pid {pid}")),
            to_measure(
                "the requests that are open (Recv-Q) and the connections that are not accepted",
                sockets,
            ),
            to_measure("what it waits for itself", format!("ss -tnp | grep 'pid={pid},'")),
        ])
        .collect()
}
