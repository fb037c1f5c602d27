//! A service answers from one thread, and a few requests keep that thread for long at a stretch: all others wait meanwhile.
//!
//! Node.js, Redis and whatever serves from one event loop answer nobody while they compute. The thread need not be busy all
//! the time, as a bottleneck is (`single-thread-bottleneck`): half a second of each second is enough that others wait.
//!
//! Where every request costs that much it is the requests (`query-regression`) or their number (`load-increase`); where nobody
//! else waited, a long request is a job; a server of many threads or processes answers others beside it.

use std::collections::BTreeMap;

use crate::network;
use crate::prelude::*;
use crate::services::{self, Address, Servers, Service};

pub const CONDITION: Condition = Condition {
    id: "event-loop-blocked",
    title: "a few slow requests block the event loop of a service",
    area: "service",
    needs: &[
        ONCPU,
        "service.requests",
        "service.wait_time",
        "service.pid",
        "service.latency_p50",
        "service.latency_p99",
        "service.latency_max",
        "task.cpu_time",
    ],
    needs_of: &[services::NEEDS, services::COMMANDS],
    triggers: &[Trigger::Signals(Signals {
        metrics: &[ONCPU, "service.wait_time"],
        find: are_kept,
        need_s: NEED_S,
        can_be_steady: false,
    })],
    observe,
    causes: &[
        explains("timeout-cascade", "what waits for the thread times out"),
        explains("retry-storm", "what fails or times out is retried"),
        explains("service-slow", "requests wait until the thread is free"),
        explains("service-failing", "clients give up before the thread is free"),
        within("single-thread-bottleneck", "the thread is busy with a few of the requests"),
        within("cpu-hog", "the thread is busy with a few of the requests"),
        within("query-regression", "few requests cost much, and the mean rises with them"),
    ],
    remedies: &[Advice {
        action: "move long computations out of the event loop of {process:the service} (to a worker thread or \
                 process), or split them into small steps; in a store, replace commands that go over everything (KEYS, \
                 SMEMBERS, large Lua scripts) by steps (SCAN)",
        command: "",
        verify: "service.oncpu_max is as small as before: mitra dump --metric service.oncpu_max",
        risk: "",
    }],
    next_of: next,
    may_be_harmless: true,
    source: include_str!("event_loop_blocked.rs"),
    ..Condition::ROOT
};

const ONCPU: &str = "service.oncpu_max";
/// As of a late answer: whoever asks several times, one after the other, feels a tenth of a second.
const KEPT_S: f64 = services::LATE_S;
/// Seconds of samples with such a stretch: less is a hiccup.
const NEED_S: f64 = 3.0;
/// A twentieth of a client waits who did not ask for it: a second of each twenty is lost.
const OTHERS: f64 = 0.05;
/// A hundredth of one: the 99th percentile shows it, and nobody suffers.
const NOTICED: f64 = 0.01;
/// The share of the process's CPU time that its thread takes which answers; the rest are compilers, collectors, I/O threads.
const ONE_THREAD: f64 = 0.8;
/// The share of the samples in which one process answered last.
const ONE_PROCESS: f64 = 0.9;
/// Times what a request takes on average: where all take as long, one takes twice that at the most by chance.
const FEW: f64 = 3.0;

/// From there on what queues waits for ten times as long as an answer takes.
const AT_LIMIT: f64 = 0.9;

/// A service that was kept from answering.
struct Kept<'a> {
    row: &'a str,
    high: High,
    others: f64,
    beyond_s: f64,
    used: f64,
}

fn observe(view: &View<'_>) -> Observation {
    if !view.has(ONCPU) {
        return Observation::needs_as(
            "how long threads that answer run at a stretch (service.oncpu_max)",
            &[ONCPU],
        );
    }
    let mut because = format!("no thread that answered ran for {} at a stretch", words::seconds(KEPT_S));
    let mut best: Option<Kept<'_>> = None;
    for service in view.services() {
        let Some(high) = stretches(view, service) else { continue };
        match kept(view, service, high) {
            Ok(one) if best.as_ref().is_none_or(|b| one.others > b.others) => best = Some(one),
            Ok(_) => {}
            Err(reason) => because = reason,
        }
    }
    match best {
        Some(kept) => finding(view, &kept).active(),
        None => Observation::Inactive(because),
    }
}

/// The stretches of the thread. What it does for one address counts at the others as time without an answer, so that of several
/// addresses the shortest is true.
fn stretches(view: &View<'_>, service: &Service<'_>) -> Option<High> {
    let of = |set: &SeriesSet, span: Span| {
        let mut all: BTreeMap<i64, (f64, f64)> = BTreeMap::new();
        for row in &service.rows {
            for (t, dt, stretch) in set.get(ONCPU, row).into_iter().flat_map(|series| series.samples(span)) {
                let least = all.entry(t).or_insert((dt, f64::INFINITY));
                least.1 = least.1.min(stretch);
            }
        }
        let mut signal = Signal::default();
        for (t, (dt, stretch)) in all {
            signal.t.push(t);
            signal.dt.push(dt);
            signal.v.push(stretch);
        }
        signal
    };
    let before = view.baseline.map(|baseline| of(view.base_set, baseline)).unwrap_or_default();
    view.high_signal(&of(view.set, view.window), view.threshold(KEPT_S, &before.v), NEED_S, before.mean())
}

/// Whether others waited for the thread; an error says why not.
fn kept<'a>(view: &View<'a>, service: &Service<'a>, high: High) -> Result<Kept<'a>, String> {
    let row = service.row;
    let span = high.run.span();
    let servers = Servers::of(view, row);
    let name = services::name(&servers, row);
    let Some(usual) = service.usual else { return Err(format!("{name} got hardly any requests before")) };
    let traffic = &service.traffic;
    let (used, before) = one_thread(view, row, &servers, span)
        .ok_or_else(|| format!("several threads or processes answer as {name}"))?;
    let beyond = Signal { t: traffic.t.clone(), dt: traffic.dt.clone(), v: traffic.beyond_all(&usual) };
    let beyond = beyond.within(span).mean().unwrap_or(0.0);
    // Who asks for what takes long waits for it as well.
    let others = beyond - (used - before).max(0.0);
    let waits = Signal { t: traffic.t.clone(), dt: traffic.dt.clone(), v: traffic.waiting.clone() };
    // As many clients as usual, or hardly more than there sometimes are, wait as ever.
    let is_usual = waits.within(span).mean().is_none_or(|waiting| waiting < usual.crowd(NOTICED));
    if others < NOTICED || is_usual {
        return Err(format!(
            "while a thread of {name} ran for {}, no other client waited for it",
            words::seconds(high.peak)
        ));
    }
    let each_s = service.mean(view.set, "service.requests", span).map(|rate| used / rate.max(1e-9));
    if each_s.is_some_and(|each_s| high.peak < FEW * each_s) {
        return Err(format!(
            "each request to {name} takes {} of CPU on average, not just a few of them",
            words::seconds(each_s.unwrap_or(0.0))
        ));
    }
    Ok(Kept { row, beyond_s: beyond * high.run.seconds(), high, others, used })
}

/// The CPU of the process that answers, in the span and before, where it is one and one of its threads takes nearly all.
fn one_thread(view: &View<'_>, row: &str, servers: &Servers<'_, '_>, span: Span) -> Option<(f64, f64)> {
    let pid = view.set.get("service.pid", row)?.last(span)?;
    let answered: Vec<f64> = view.set.get("service.pid", row)?.samples(span).map(|(_, _, pid)| pid).collect();
    let same = answered.iter().filter(|other| **other == pid).count() as f64;
    if same < ONE_PROCESS * answered.len() as f64 {
        return None;
    }
    let process = servers.processes.iter().find(|p| f64::from(p.pid) == pid)?;
    let seconds = span.seconds().max(1e-9);
    let of_thread =
        |row: &&str| view.set.get("task.cpu_time", row).and_then(|s| s.total(span)).unwrap_or(0.0);
    let most = process.rows.iter().map(of_thread).fold(0.0, f64::max);
    let all = process.total(view.set, "task.cpu_time", span);
    let before = view.baseline.map_or(0.0, |baseline| {
        process.total(view.base_set, "task.cpu_time", baseline) / baseline.seconds().max(1e-9)
    });
    (all > 0.0 && most >= ONE_THREAD * all).then_some((all / seconds, before))
}

fn finding(view: &View<'_>, kept: &Kept<'_>) -> Finding {
    let (row, span) = (kept.row, kept.high.run.span());
    let servers = Servers::of(view, row);
    let mut finding = view.finding(&kept.high.run);
    finding.netns = Some(network::device(row).1.id());
    let pid = view.set.get("service.pid", row).and_then(|s| s.last(span)).map(|pid| pid as u32);
    if let Some(process) = servers.processes.iter().find(|p| Some(p.pid) == pid) {
        finding.blame(process);
    }
    finding.culprit.address = Some(Address::of(row).text.to_owned());
    finding.statement = format!(
        "the only thread of {} that answers ran for up to {} at a stretch, and others waited {} for it",
        services::name(&servers, row),
        words::seconds(kept.high.peak),
        words::seconds(kept.others * kept.high.run.seconds())
    );
    finding.client_wait_s = Some(kept.beyond_s);
    finding.is_harmless = kept.others < OTHERS;
    let limit = if kept.used < AT_LIMIT { "it is not at its limit" } else { "it is at its limit too" };
    finding.remarks.push(format!("it took {} of a CPU: {limit}", words::percent(kept.used)));
    if let Some(sender) = services::sends_more(view, row, span) {
        finding.statement.push_str(&format!("; {sender}"));
    }
    if let Some((command, text)) = services::costly(view, pid, span) {
        finding.statement.push_str(&format!("; {text}"));
        finding.prove(view, &[services::COMMAND_TIME], command, span);
    }
    finding.prove(
        view,
        &[ONCPU, "service.latency_p99", "service.latency_max", "service.requests", "service.wait_time"],
        row,
        span,
    );
    finding.confidence = 0.9;
    finding
}

fn next(finding: &Finding) -> Vec<Next> {
    let pid = finding.pid();
    let own = services::ask(finding.culprit.process.as_deref(), &pid);
    let runs = to_measure("what the thread runs meanwhile", format!("mitra capture oncpu --pid {pid}"));
    own.into_iter().chain([runs]).collect()
}

/// Of each service: one where a thread ran for long and somebody waited.
fn are_kept(set: &SeriesSet, window: Span) -> Vec<Signal> {
    let kept = |(row, series): (&str, &Series)| {
        if series.max(window).is_none_or(|most| most < KEPT_S) {
            return None;
        }
        let waiting = Signal::of(set.get("service.wait_time", row)?, window);
        let stretch = Signal::of(series, window);
        Some(stretch.zip(&waiting, |stretch, waiting| step(stretch >= KEPT_S && waiting >= OTHERS)))
    };
    set.each(ONCPU).filter_map(kept).collect()
}
