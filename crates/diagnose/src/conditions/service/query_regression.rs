//! Each request to a service costs several times as much as before: of CPU time, of bytes that are read from a device, or of calls to another
//! service.
//!
//! An index that is gone, a plan that changed, a release that computes more. What is asked is not more than before
//! (`load-increase`), in datagrams too; what it takes is divided by how much is answered. Of a service that is asked far more
//! often nearly all requests are others than those of before, and cost what they cost. The requests that wait are at work, or in the run queue
//! before the CPU that others of them use: a service whose requests sleep waits for somebody else, however little is answered. Who asks that
//! one many more times for each request, one after the other (a query for each row of another query, a cache that is gone), waits for as many
//! answers, each of which is as quick as ever. So does who asks a server for most requests that it did not ask before: what it was spared by a
//! cache, which somebody else fills meanwhile, or by the release before.
//!
//! A few requests that keep an event loop (`event-loop-blocked`) and a collector of garbage (`gc-pressure`) make the mean rise
//! as well, and are told apart by what they do.

use crate::prelude::*;
use crate::services::{self, Address, Calls, Datagrams, SERVED, SERVICE, Servers, Service, Slow, Traffic};

mod because;
use because::{CALLS_OF, CPU, Dearer, FILLS, FOR_MOST, HARDLY, MORE};

pub const CONDITION: Condition = Condition {
    id: "query-regression",
    title: "each request costs several times as much as before",
    area: "service",
    needs: &[
        "service.requests",
        "service.wait_time",
        "service.latency_p50",
        CPU,
        READ,
        "task.run_delay",
        "task.blkio_delay",
        "task.majflt",
        "task.state",
        "service.connections",
        "dependency.connects",
        "dependency.pid",
    ],
    needs_of: &[services::NEEDS, services::DATAGRAMS, crate::sessions::NEEDS],
    triggers: &[Trigger::Signals(Signals {
        metrics: services::SERVICE_SCAN,
        find: are_dearer,
        need_s: services::NEED_S,
        can_be_steady: false,
    })],
    observe,
    causes: &[
        explains("timeout-cascade", "what takes so long times out"),
        explains("retry-storm", "what fails or times out is retried"),
        explains("service-slow", "each request takes longer"),
        explains("service-silent", "each request takes longer than clients wait"),
        explains("service-failing", "clients give up what takes so long"),
        within("single-thread-bottleneck", "the thread is busy with the requests"),
        within("cpu-hog", "the CPU goes into the requests"),
        within("runqueue-saturation", "the tasks are those that work on the requests"),
        within("disk-hog", "the bytes are read for the requests"),
        within("page-cache-thrash", "the requests read more than before, again and again"),
        explains("cpu-saturated", "the requests take the CPUs"),
        effect("disk-saturated", "the requests read from the disk"),
        asked("listen-overflow", "the thread that accepts is busy with the requests"),
    ],
    remedies_of: because::remedies,
    next_of: next,
    source: include_str!("query_regression.rs"),
    ..Condition::ROOT
};

const READ: &str = "task.read_bytes";
/// Answers that take as long as before: who is late is asked again, which is no other request.
const AS_QUICK: f64 = 1.5;
/// Times as many requests: of these at most one in ten is one of those of before.
const OTHERS: f64 = 10.0;
/// A tenth of a CPU more than before: less delays nobody.
const CPU_MORE: f64 = 0.1;
/// A megabyte a second more than before: a slow disk is busy for a hundredth of its time with it.
const READ_MORE: f64 = 1e6;
/// CPU time that a major fault takes at most, with the request to a device and two switches; and what it brings at least.
const FAULT_S: f64 = 50e-6;
const PAGE_BYTES: f64 = 4096.0;
/// Most of what a request costs more.
const FETCHED: f64 = 0.5;
/// The share of the requests that wait, or of the CPUs, which is worked on, or has its turn at a CPU or a device next. With
/// less they wait for somebody else.
const AT_WORK: f64 = 0.5;

/// A service whose requests cost more.
struct Grown<'a> {
    row: &'a str,
    slow: Slow,
    usual_rate: f64,
    cost: Cost<'a>,
}

/// What each request costs, now and before.
enum Cost<'a> {
    Cpu(f64, f64),
    Read(f64, f64),
    /// How long one took before is not known of what was not asked.
    Calls {
        of: Address<'a>,
        many: (f64, f64),
        each_s: (f64, Option<f64>),
        filled: Option<&'a str>,
    },
}

fn observe(view: &View<'_>) -> Observation {
    if !view.has("service.requests") {
        return Observation::needs_as("requests of services (service.requests)", &["service.requests"]);
    }
    let mut because = "no service answered late whose requests cost more than before".to_owned();
    let mut best: Option<Grown<'_>> = None;
    for service in view.services() {
        match grown(view, service) {
            Ok(Some(one)) if best.as_ref().is_none_or(|b| one.slow.beyond_s > b.slow.beyond_s) => {
                best = Some(one)
            }
            Ok(_) => {}
            Err(reason) => because = reason,
        }
    }
    match best {
        Some(grown) => finding(view, &grown).active(),
        None => Observation::Inactive(because),
    }
}

/// Whether the requests of a service cost more; an error is the reason why not.
fn grown<'a>(view: &View<'a>, service: &Service<'a>) -> Result<Option<Grown<'a>>, String> {
    let (row, rows) = (service.row, &service.rows);
    let Some(usual) = service.usual else { return Ok(None) };
    let slow = service.slow().and_then(Result::ok).or_else(|| service.traffic.dearer(&usual));
    let Some(slow) = slow else { return Ok(None) };
    let servers = Servers::of(view, row);
    let name = services::name(&servers, row);
    let span = slow.run.span();
    let Some(cpu) = servers.per_request(view, rows, CPU, span) else {
        return Err(format!("what a request to {name} costs is not known"));
    };
    let is_more =
        |(now, before): (f64, f64), least: f64| now >= MORE * before && (now - before) * slow.rate >= least;
    let read = servers.per_request(view, rows, READ, span);
    let is_cpu = is_more(cpu, CPU_MORE);
    let is_read = read.is_some_and(|read| is_more(read, READ_MORE));
    if !is_cpu && !is_read {
        if let Some(cost) = more_calls(view, &servers, &slow, usual.rate) {
            return Ok(Some(Grown { row, slow, usual_rate: usual.rate, cost }));
        }
        return Err(format!(
            "each request to {name} cost {} of CPU ({} before)",
            words::seconds(cpu.0),
            words::seconds(cpu.1)
        ));
    }
    if let Some(threads) =
        because::computes_beside(view, &servers, slow.rate / usual.rate, span).filter(|_| !is_read)
    {
        return Err(format!(
            "{threads} came to compute beside the threads that answer, and these take what they took"
        ));
    }
    if let Some(datagrams) = Datagrams::of(view, &servers, row, &slow, &usual).filter(|_| !is_read) {
        return Err(format!("{name} {} beside its requests", datagrams.words()));
    }
    // Their number has to have risen by more than what each costs: it is most of what the service does more.
    let of_number = slow.rate / usual.rate;
    let costs = [Some(cpu).filter(|_| is_cpu), read.filter(|_| is_read)];
    let is_number = |(now, before): (f64, f64)| now <= of_number * before;
    if of_number >= OTHERS && costs.into_iter().flatten().all(is_number) {
        return Err(format!(
            "{name} answered {} requests/s ({} before): they are others, and rose by more than what each costs",
            words::count(slow.rate),
            words::count(usual.rate)
        ));
    }
    // What was in memory before and has to be fetched again is no other request.
    if let Some(faults) = servers.per_request(view, rows, "task.majflt", span) {
        let more = (faults.0 - faults.1).max(0.0);
        let is_fetched = |more_of: f64, each: f64| more * each >= FETCHED * more_of;
        let is_cpu_fetched = !is_cpu || is_fetched(cpu.0 - cpu.1, FAULT_S);
        let is_read_fetched = !is_read || read.is_some_and(|read| is_fetched(read.0 - read.1, PAGE_BYTES));
        if is_cpu_fetched && is_read_fetched {
            return Err(format!(
                "each request to {name} waited for {} pages that were no longer in memory ({} before): that is what it costs",
                words::count(faults.0.round()),
                words::count(faults.1.round())
            ));
        }
    }
    let of = |metric: &str| servers.rate(view.set, metric, span).unwrap_or(0.0);
    let read_s = if is_read { servers.blocked(view.set, span).unwrap_or(0.0) } else { 0.0 };
    let at_work = of(CPU) + of("task.run_delay") + read_s;
    let beyond = slow.beyond_s / slow.run.seconds().max(1.0);
    let could = if is_read { beyond } else { beyond.min(view.cpus()) };
    if at_work < AT_WORK * could {
        return Err(format!(
            "the processes of {name} worked for {at_work:.1} of the {beyond:.1} clients that waited; the others wait \
             for something else"
        ));
    }
    let cost = match read {
        Some((now, before)) if is_read && !is_cpu => Cost::Read(now, before),
        _ => Cost::Cpu(cpu.0, cpu.1),
    };
    Ok(Some(Grown { row, slow, usual_rate: usual.rate, cost }))
}

/// Calls of one address that each request makes several times as many of, or of one that it did not ask before, and that most of the clients
/// wait for.
fn more_calls<'a>(
    view: &View<'a>,
    servers: &Servers<'_, '_>,
    slow: &Slow,
    usual_rate: f64,
) -> Option<Cost<'a>> {
    let span = slow.run.span();
    let beyond = slow.beyond_s / slow.run.seconds().max(1.0);
    let baseline = view.baseline.filter(|_| slow.rate > 0.0)?;
    let all = services::calls_of(view, servers, span);
    // Of processes that asked nobody before nothing is known.
    let asked_before = all.iter().any(|calls| calls.rate.1 * baseline.seconds() >= SERVED);
    // Workers that have ended since are known by their name only; and what it asks here it may have asked elsewhere.
    let others_asked = |calls: &Calls<'a>| {
        let comm = |row: &str| view.base_set.text("dependency.comm", row).and_then(|text| text.last());
        let is_alike =
            |row: &str| Address::called(row) == calls.address && comm(row) == servers.comm.as_deref();
        let rate = |(row, asked): (&str, &Series)| is_alike(row).then(|| asked.mean(baseline))?;
        let asked: f64 = view.base_set.each("dependency.requests").filter_map(rate).sum();
        asked > HARDLY * calls.rate.0
    };
    let moved = |calls: &Calls<'a>| {
        let fewer = all.iter().filter(|other| other.address != calls.address);
        // For each request: it may be asked less.
        let mut fewer = fewer.map(|other| other.rate.1 / usual_rate - other.rate.0 / slow.rate);
        let now = calls.rate.0 / slow.rate;
        fewer.any(|fewer| fewer >= FOR_MOST * now)
    };
    let is_late_itself = |calls: &Calls<'a>| {
        let service = services::local_service(view.set, &calls.address).and_then(|row| view.service(row));
        service.is_some_and(|service| matches!(service.slow(), Some(Ok(_))))
    };
    let is_more = |calls: &&Calls<'a>| {
        let (now, before) = (calls.rate.0 / slow.rate, calls.rate.1 / usual_rate);
        let is_known = calls.rate.1 * baseline.seconds() >= SERVED;
        let is_as_quick = calls.waits.0 * calls.rate.1 <= AS_QUICK * calls.waits.1 * calls.rate.0;
        let is_new = asked_before
            && before <= HARDLY * now
            && now >= FOR_MOST
            && !is_late_itself(calls)
            && !others_asked(calls)
            && !moved(calls);
        let is_more = is_known && now >= MORE * before && is_as_quick;
        (is_more || is_new) && calls.waits.0 - calls.waits.1 >= FETCHED * beyond
    };
    let most = all.iter().filter(is_more).max_by(|a, b| a.waits.0.total_cmp(&b.waits.0))?;
    // What it asks for each request as before, and what others fill: a cache.
    let is_as_ever = |calls: &&Calls<'a>| {
        calls.address != most.address
            && calls.rate.1 > 0.0
            && calls.rate.0 * usual_rate >= FOR_MOST * calls.rate.1 * slow.rate
    };
    let filled = all.iter().filter(is_as_ever).find_map(|calls| {
        let cache = services::local_service(view.set, &calls.address)?;
        Servers::of(view, cache).comm.filter(|comm| CACHES.contains(&comm.as_str()))?;
        let (sender, ..) = services::who_sends_most(view, cache, span)?;
        let is_own = services::called_by(view, view.set, servers).contains(&sender);
        (!is_own).then_some(cache)
    });
    Some(Cost::Calls {
        of: most.address,
        many: (most.rate.0 / slow.rate, most.rate.1 / usual_rate),
        each_s: (
            most.waits.0 / most.rate.0,
            Some(most.waits.1 / most.rate.1).filter(|each| each.is_finite()),
        ),
        filled,
    })
}

/// What makes room for something new by dropping something else.
const CACHES: &[&str] = &["memcached", "redis-server", "valkey-server", "keydb-server", "dragonfly"];

/// More calls than by chance.
const CALLS_S: f64 = 10.0;

/// The address of which each request makes most more calls than before, in words: they are some of what it costs.
fn calls_more(view: &View<'_>, servers: &Servers<'_, '_>, grown: &Grown<'_>) -> Option<String> {
    let baseline = view.baseline?;
    let of = |rate: f64, requests: f64| rate / requests.max(1e-9);
    let all = services::calls_of(view, servers, grown.slow.run.span()).into_iter();
    let each =
        all.map(|calls| (of(calls.rate.0, grown.slow.rate), of(calls.rate.1, grown.usual_rate), calls));
    let more = each.filter(|(now, before, calls)| {
        // Of a process that was started since nothing is known of before.
        let is_known = calls.rate.1 * baseline.seconds() >= SERVED;
        is_known && *now >= MORE * before && *now >= 1.0 && calls.rate.0 - calls.rate.1 >= CALLS_S
    });
    let (now, before, calls) = more.max_by(|a, b| (a.0 - a.1).total_cmp(&(b.0 - b.1)))?;
    let whom = services::whom(view, &calls.address);
    Some(format!(", and makes {} {CALLS_OF} {whom} instead of {}", words::count(now), words::count(before)))
}

/// Of each service: one where half of its answers take ten times as long.
fn are_dearer(set: &SeriesSet, window: Span) -> Vec<Signal> {
    let dearer = |(row, _): (&str, &Series)| {
        let traffic = Traffic::of(set, &SERVICE, &[row], window)?;
        Some(traffic.is_dearer_at(&traffic.at_best()?))
    };
    set.each("service.requests").filter_map(dearer).collect()
}

fn finding(view: &View<'_>, grown: &Grown<'_>) -> Finding {
    let (row, span) = (grown.row, grown.slow.run.span());
    let servers = Servers::of(view, row);
    let mut finding = view.finding(&grown.slow.run);
    servers.blame(&mut finding, row);
    let group = servers.processes.first().and_then(|p| p.cgroup).filter(|group| *group != "/");
    finding.culprit.cgroup = group.map(str::to_owned);
    let costs = match grown.cost {
        Cost::Cpu(now, before) => {
            format!("costs {} of CPU instead of {}", words::seconds(now), words::seconds(before))
        }
        Cost::Read(now, before) => {
            format!("costs {} read from a device instead of {}", words::bytes(now), words::bytes(before))
        }
        Cost::Calls { of, many, each_s, filled } => {
            let whom = services::whom(view, &of);
            let before =
                each_s.1.map_or_else(String::new, |before| format!(" ({} before)", words::seconds(before)));
            finding.remarks.push(format!("an answer of {whom} takes {}{before}", words::seconds(each_s.0)));
            if let Some(called) = services::local_service(view.set, &of) {
                let mut worker = Finding::default();
                Servers::of(view, called).blame(&mut worker, called);
                finding.workers.push(worker.culprit);
            }
            let filled = filled.filter(|cache| services::blame_sender(view, &mut finding, cache, span));
            let filled = filled.map_or_else(String::new, |cache| {
                let who = finding.culprit.process.as_deref().unwrap_or("another program");
                format!(
                    "; {} has most likely lost what spared it these, since {who} ({}) {FILLS} it",
                    services::name(&Servers::of(view, cache), cache),
                    finding.pid()
                )
            });
            match many.1 > 0.0 {
                true => format!(
                    "makes {} {CALLS_OF} {whom} instead of {}{filled}",
                    words::count(many.0),
                    words::count(many.1)
                ),
                false => {
                    format!(
                        "makes {} {CALLS_OF} {whom}, which it did not ask before{filled}",
                        words::count(many.0)
                    )
                }
            }
        }
    };
    let calls = match grown.cost {
        Cost::Calls { .. } => None,
        _ => calls_more(view, &servers, grown),
    };
    let large = services::sends_more(view, row, span).map(|who| format!(", and {who}")).unwrap_or_default();
    finding.statement = format!(
        "each request to {} {costs}{}{large}",
        services::name(&servers, row),
        calls.unwrap_or_default()
    );
    let cpu_s = match grown.cost {
        Cost::Cpu(now, before) => Some((now, before)),
        Cost::Read(..) | Cost::Calls { .. } => None,
    };
    let dearer = Dearer { row, span, rate: (grown.slow.rate, grown.usual_rate), cpu_s };
    if !matches!(grown.cost, Cost::Calls { .. }) && !because::reconnects(view, &dearer, &mut finding) {
        because::snapshot(view, &servers, &dearer, &mut finding);
    }
    finding.remarks.push(format!(
        "it answered {} requests a second ({} before): it is what they cost, and not their number",
        words::count(grown.slow.rate),
        words::count(grown.usual_rate)
    ));
    finding.client_wait_s = Some(grown.slow.beyond_s);
    finding.prove(view, &["service.requests", "service.latency_p50", "service.wait_time"], row, span);
    let metric = match grown.cost {
        Cost::Cpu(..) => Some(CPU),
        Cost::Read(..) => Some(READ),
        Cost::Calls { .. } => None,
    };
    if let ([process], Some(metric)) = (&servers.processes[..], metric) {
        let used = |set: &SeriesSet, span: Span| process.total(set, metric, span) / span.seconds().max(1e-9);
        let earlier = view.baseline.map(|baseline| used(view.base_set, baseline));
        finding.evidence.push(view.task_evidence(metric, process, earlier, used(view.set, span), span));
    }
    finding.confidence = 0.85;
    finding
}

fn next(finding: &Finding) -> Vec<Next> {
    vec![to_measure("which code the time goes into", format!("mitra capture oncpu --pid {}", finding.pid()))]
}
