//! A service answers at once what it used to work on, and closes the connection after each answer: it fails, and says so quickly.
//!
//! A file or a secret that is gone, a limit of the kernel, a backend that refuses connections: the service sends an error, and its
//! response time has never been better. A balancer that prefers whoever is free (least connections) gives it most of the
//! requests. What the answers say is not seen from outside. This is: nearly all of them come in a part of the usual time, the
//! connections that stayed open before end with each answer, the answers have another size, and other servers that the same
//! program asks go on as ever.
//!
//! Or it asked another server for each request before, can no longer connect to it, learns that at once, and answers as many as ever.
//!
//! A cache that got warm answers as fast, with what it always answered, over the connections that there are. Somebody who asks for
//! something cheap asks besides: here no more is asked than before. A service that was started again a moment ago is not yet as it will
//! be. Requests without any answer are `service-failing`.

use std::collections::BTreeMap;

use crate::prelude::*;
use crate::services::{
    self, Address, CLOSES, KEPT_OPEN, LIKELY, QUICK, SERVICE, Servers, Traffic, Usual, mean, rows_by_address,
    usual_of_address,
};

pub const CONDITION: Condition = Condition {
    id: "failing-fast",
    title: "a service answers at once, most likely with errors",
    area: "service",
    stands_alone: true,
    needs: &[
        "service.requests",
        "service.latency_p50",
        "service.latency_p90",
        "service.connections",
        "service.sent_bytes",
        "dependency.requests",
        "dependency.latency_p50",
        FAILED,
        "task.fds",
        INSTANCES,
    ],
    needs_of: &[services::NEEDS],
    triggers: &[Trigger::Signals(Signals {
        metrics: services::SERVICE_SCAN,
        find: are_quick,
        need_s: NEED_S,
        can_be_steady: false,
    })],
    observe,
    remedies_of: remedies,
    next_of: next,
    source: include_str!("failing_fast.rs"),
    ..Condition::SYMPTOM
};

const FAILED: &str = "dependency.connect_failed";
/// For half of what it answers it asked the other one, and half of its answers come with an attempt in vain.
const NEEDED: f64 = 0.5;
/// Next to nothing of what it asked before.
const HARDLY: f64 = 0.05;
/// As much is asked as before: rates stray by less.
const AS_OFTEN: f64 = 0.2;
/// Times as many bytes in an answer, or as few.
const OTHER_SIZE: f64 = 1.5;
/// Servers that do the same take the same time within this factor.
const ALIKE: f64 = 2.0;
/// Shorter is a hiccup.
const NEED_S: f64 = 5.0;
/// A service that came less than this ago is not yet as it will be.
const WARM_UP_S: f64 = 30.0;

const INSTANCES: &str = "sysctl.fs.inotify.max_user_instances";
/// Half of what all programs of a user may have together.
const MOST: f64 = 0.5;
/// Files are opened for some seconds until a limit is reached.
const NEAR_NS: i64 = 5 * SECOND;

/// A service that answers at once.
struct Quick<'a> {
    row: &'a str,
    run: Run,
    usual: Usual,
    p90: f64,
    /// Bytes of an answer, now and before.
    bytes: Option<(f64, f64)>,
    peers: Option<Peers<'a>>,
}

/// Servers that the same program asks, and that are as ever.
struct Peers<'a> {
    caller: &'a str,
    count: usize,
    /// What part of its requests the one in question gets, now and before.
    share: (f64, f64),
    /// What it asks of all of them, now and before.
    asked: (f64, f64),
}

fn observe(view: &View<'_>) -> Observation {
    if !view.has("service.latency_p90") {
        return Observation::needs_as("response times of services (service.*)", &["service.latency_p90"]);
    }
    let mut because =
        "no service answered in a quarter of the usual time and closed its connections".to_owned();
    let mut best: Option<Quick<'_>> = None;
    for (row, _) in view.each("service.latency_p90") {
        match quick(view, row) {
            Ok(Some(one)) if best.as_ref().is_none_or(|b| one.usual.rate > b.usual.rate) => best = Some(one),
            Ok(_) => {}
            Err(reason) => because = reason,
        }
    }
    if let Some(quick) = best {
        return finding(view, &quick).active();
    }
    let cut_off = view.each("service.requests").filter_map(|(row, _)| cut_off(view, row));
    match cut_off.max_by(|a, b| a.0.total_cmp(&b.0)) {
        Some((_, finding)) => finding.active(),
        None => Observation::Inactive(because),
    }
}

/// A service that answers as many requests as ever, for each of which it asked another server before, to which it cannot connect any more.
fn cut_off<'a>(view: &View<'a>, row: &'a str) -> Option<(f64, Finding)> {
    let (usual, baseline) = (services::usual(view, row)?, view.baseline?);
    let requests = view.of("service.requests", row)?;
    let servers = Servers::of(view, row);
    let mut by_address: BTreeMap<Address<'_>, Vec<&str>> = BTreeMap::new();
    for caller in services::called_by(view, view.set, &servers) {
        by_address.entry(Address::called(caller)).or_default().push(caller);
    }
    let others = |address: &Address<'_>, span: Span| {
        let all =
            services::calls_of(view, &servers, span).into_iter().filter(|calls| calls.address != *address);
        all.map(|calls| calls.rate.0 - calls.rate.1).filter(|more| *more > 0.0).fold(0.0, |a, b| a + b)
    };
    by_address.into_iter().find_map(|(address, callers)| {
        let mean = |set: &SeriesSet, rows: &[&str], metric: &str, span: Span| {
            let mean = Signal::sum(rows.iter().filter_map(|row| set.get(metric, row)), span)?.mean();
            mean.filter(|mean| *mean > 0.0)
        };
        let of = |set: &SeriesSet, metric: &str, span: Span| mean(set, &callers, metric, span);
        // Workers that ended before are known by their name only.
        let is_own = |row: &str| {
            let comm = view.base_set.text("dependency.comm", row).and_then(|text| text.last());
            callers.contains(&row) || comm.is_some_and(|comm| servers.comm.as_deref() == Some(comm) && !services::is_interpreter(comm))
        };
        let earlier = view.base_set.each("dependency.requests").map(|(row, _)| row);
        let earlier: Vec<&str> = earlier.filter(|row| Address::called(row) == address && is_own(row)).collect();
        let asked = mean(view.base_set, &earlier, "dependency.requests", baseline)?;
        if asked < NEEDED * usual.rate {
            return None;
        }
        let failed = callers.iter().filter_map(|row| view.set.get(FAILED, row));
        let is_in_vain = Signal::sum(failed, view.window)?.zip(&requests, |failed, answered| {
            step(answered >= (1.0 - AS_OFTEN) * usual.rate && failed >= NEEDED * answered)
        });
        let run = is_in_vain.run(1.0, NEED_S)?;
        let span = run.span();
        let failed = of(view.set, FAILED, span)?;
        let failed_before = of(view.base_set, FAILED, baseline).unwrap_or(0.0);
        let still = of(view.set, "dependency.requests", span).unwrap_or(0.0);
        // Who asks another one instead answers as ever.
        if still > HARDLY * asked || failed_before > HARDLY * failed || others(&address, span) >= NEEDED * asked {
            return None;
        }
        let whom = services::whom(view, &address);
        let mut finding = view.finding(&run);
        servers.blame(&mut finding, row);
        finding.statement = format!(
            "{} answers {} requests a second as ever, but cannot connect to {whom} any more, which it asked {} times a second before: {} \
             attempts a second fail at once, and most likely it answers with errors",
            services::name(&servers, row),
            words::count(requests.within(span).mean().unwrap_or(0.0)),
            words::count(asked),
            words::count(failed)
        );
        finding.prove(view, &["service.requests", "service.latency_p50"], row, span);
        for caller in &callers {
            finding.prove_nonzero(view, &[FAILED, "dependency.requests"], caller, span);
        }
        finding.confidence = LIKELY;
        Some((asked, finding))
    })
}

/// Whether a service answers at once and otherwise than before; an error is the reason why that says nothing.
fn quick<'a>(view: &View<'a>, row: &'a str) -> Result<Option<Quick<'a>>, String> {
    let (Some(usual), Some(baseline)) = (services::usual(view, row), view.baseline) else { return Ok(None) };
    let of = |metric: &str| view.of(metric, row).unwrap_or_default();
    let (p90, requests) = (of("service.latency_p90"), of("service.requests"));
    let is_quick = p90.clone().map(|p90| step(p90 <= QUICK * usual.p50));
    let is_asked = requests.clone().map(|rate| step(rate >= (1.0 - AS_OFTEN) * usual.rate));
    let closes = closes(&of("service.connections"), &requests);
    let Some(run) = is_quick.zip(&is_asked, f64::min).zip(&closes, f64::min).run(1.0, NEED_S) else {
        return Ok(None);
    };
    if mean(view.base_set, "service.connections", row, baseline) >= KEPT_OPEN * usual.rate {
        return Ok(None);
    }
    let span = run.span();
    let servers = Servers::of(view, row);
    let name = services::name(&servers, row);
    if servers.are_restarted(view, row, run.onset, WARM_UP_S) {
        return Err(format!("{name} had just been started again"));
    }
    let size = |set: &SeriesSet, span: Span| {
        let answers = mean(set, "service.requests", row, span);
        (answers > 0.0).then(|| mean(set, "service.sent_bytes", row, span) / answers)
    };
    let bytes = size(view.set, span).zip(size(view.base_set, baseline));
    let bytes = bytes.filter(|(now, before)| now.max(*before) >= OTHER_SIZE * now.min(*before));
    let peers = peers(view, row, &usual, span, baseline);
    let (asked, asked_before) =
        peers.as_ref().map_or((requests.within(span).mean().unwrap_or(0.0), usual.rate), |peers| peers.asked);
    if asked > (1.0 + AS_OFTEN) * asked_before {
        return Err(format!(
            "{name} answered at once, and {} requests a second were made ({} before)",
            words::count(asked),
            words::count(asked_before)
        ));
    }
    if bytes.is_none() && peers.is_none() {
        return Err(format!("{name} answered at once, with answers of the same size"));
    }
    let p90 = p90.within(span).mean().unwrap_or(0.0);
    Ok(Some(Quick { row, run, usual, p90, bytes, peers }))
}

/// One where a connection is opened for half of the answers or more: as many end.
fn closes(connections: &Signal, requests: &Signal) -> Signal {
    connections.zip(requests, |opened, answers| step(answers > 0.0 && opened >= CLOSES * answers))
}

/// The servers that a program asks beside one, in the same time as that one usually takes, and that are as ever.
fn peers<'a>(view: &View<'a>, row: &str, usual: &Usual, span: Span, baseline: Span) -> Option<Peers<'a>> {
    let set: &'a SeriesSet = view.set;
    let own = Address::of(row);
    let is_alike = |a: f64, b: f64| a <= ALIKE * b && b <= ALIKE * a;
    // A process that is young stands under its name first, and then under its id.
    let asked_before = |address: &Address<'_>| {
        let rows = rows_by_address(view.base_set, "dependency.requests").remove(address).unwrap_or_default();
        let calls = rows.into_iter().filter_map(|row| view.base_set.get("dependency.requests", row));
        Signal::sum(calls, baseline).and_then(|calls| calls.mean()).unwrap_or(0.0)
    };
    let asks = |(caller, _): &(&'a str, &'a Series)| {
        Address::called(caller).reaches(&own) && mean(set, "dependency.requests", caller, span) > 0.0
    };
    let (caller, _) = view.each("dependency.requests").find(asks)?;
    let (who, _) = caller.split_once('>')?;
    let others: Vec<&str> = view
        .each("dependency.requests")
        .map(|(other, _)| other)
        .filter(|other| other.split_once('>').is_some_and(|(same, _)| same == who) && *other != caller)
        .filter(|other| {
            let theirs = usual_of_address(view, &Address::called(other));
            theirs.is_some_and(|theirs| {
                let now = mean(set, "dependency.latency_p50", other, span);
                is_alike(theirs.p50, usual.p50) && is_alike(now, theirs.p50)
            })
        })
        .collect();
    if others.is_empty() {
        return None;
    }
    let rate = |row: &str| mean(set, "dependency.requests", row, span);
    let now: f64 = rate(caller) + others.iter().map(|other| rate(other)).sum::<f64>();
    let of_own = asked_before(&Address::called(caller));
    let before: f64 = of_own + others.iter().map(|other| asked_before(&Address::called(other))).sum::<f64>();
    let share = (rate(caller) / now, of_own / before.max(1e-9));
    Some(Peers { caller, count: others.len(), share, asked: (now, before) })
}

fn finding(view: &View<'_>, quick: &Quick<'_>) -> Finding {
    let (row, span) = (quick.row, quick.run.span());
    let servers = Servers::of(view, row);
    let mut finding = view.finding(&quick.run);
    servers.blame(&mut finding, row);
    let mut signs = vec!["closes the connection after each answer, which it did not do before".to_owned()];
    signs.extend(quick.bytes.map(|(now, before)| {
        format!("its answers have {} instead of {}", words::bytes(now), words::bytes(before))
    }));
    finding.statement = format!(
        "{} answers nine of ten requests in {} or less, half of which took {} before, and {}: most likely these are errors",
        services::name(&servers, row),
        words::seconds(quick.p90),
        words::seconds(quick.usual.p50),
        signs.join("; ")
    );
    if let Some(peers) = &quick.peers {
        finding.remarks.push(format!(
            "{} gives it {} of what it asks of it and {} like it ({} before), which answer as ever",
            services::callers(view, [peers.caller]),
            words::percent(peers.share.0),
            match peers.count {
                1 => "another server".to_owned(),
                count => format!("{count} other servers"),
            },
            words::percent(peers.share.1)
        ));
    }
    finding.remarks.extend(who_opened_many(view, &servers, quick.run.onset));
    finding.prove(view, &["service.latency_p50", "service.latency_p90", "service.requests"], row, span);
    finding.prove(view, &["service.connections", "service.sent_bytes"], row, span);
    finding.confidence = LIKELY;
    finding
}

/// Another program that opened as many files when it began as half of the instances of inotify that the programs of a user may have
/// together. No counter has these: who gets none gets the error of a limit of files, with few files open.
fn who_opened_many(view: &View<'_>, servers: &Servers<'_, '_>, onset: i64) -> Option<String> {
    let limit = view.reading(INSTANCES, "").filter(|limit| *limit > 0.0)?;
    let near = Span { since: onset.saturating_sub(NEAR_NS), until: onset.saturating_add(NEAR_NS) };
    let earlier = Span { since: i64::MIN, until: near.since };
    view.set.span().filter(|span| span.since < near.since)?;
    let opened = |process: &Process<'_>| {
        let fds = view.set.get("task.fds", process.rows.first()?)?;
        // One that was started then had none.
        Some(fds.max(near)? - fds.last(earlier).unwrap_or(0.0))
    };
    let is_other = |process: &&Process<'_>| !servers.processes.iter().any(|own| own.pid == process.pid);
    let others = view.processes().iter().filter(is_other);
    let (process, opened) = others
        .filter_map(|process| Some((process, opened(process)?)))
        .filter(|(_, opened)| *opened >= MOST * limit)
        .max_by(|a, b| a.1.total_cmp(&b.1))?;
    Some(format!(
        "{} ({pid}) opened {} files when it began: where these are instances of inotify, of which the programs of a user may have {} \
         together, others of that user get EMFILE (ls -l /proc/{pid}/fd)",
        process.comm,
        words::count(opened),
        words::count(limit),
        pid = process.pid
    ))
}

/// Of each service to which connections are opened: one where it is as quick as whoever fails.
fn are_quick(set: &SeriesSet, window: Span) -> Vec<Signal> {
    let of_row = |row| {
        // Whoever ends connections after an answer is connected to anew.
        set.get("service.connections", row)?.max(window).filter(|opened| *opened > 0.0)?;
        Some(Traffic::of(set, &SERVICE, &[row], window)?.is_as_quick_as_failures())
    };
    set.each("service.latency_p90").filter_map(|(row, _)| of_row(row)).collect()
}

fn remedies(finding: &Finding) -> Vec<Remedy> {
    let who = finding.culprit.process.as_deref().unwrap_or("the service");
    vec![
        Remedy {
            action: format!("take {who} out of the balancer until it is mended, where others can do its work"),
            command: "echo 'disable server BACKEND/SERVER' | socat - HAPROXY_SOCKET; or remove it from the upstream".to_owned(),
            verify: "the other servers get its requests, and clients no errors".to_owned(),
            risk: "the others have to take its load".to_owned(),
        },
        Remedy {
            action: format!("read what {who} says of these requests: the error names what is missing"),
            command: format!("journalctl -n 100 -t {}; tail its error log", words::shell(who)),
            verify: "answers take as long and have the size that they had".to_owned(),
            risk: String::new(),
        },
        Remedy {
            action: "let the balancer check what clients ask for, and not only whether a connection comes about".to_owned(),
            command: "option httpchk with http-check expect status 200, or observe layer7 (HAProxy)".to_owned(),
            verify: "a server that answers errors is taken out".to_owned(),
            risk: "a check that asks for too much takes all of them out at once".to_owned(),
        },
    ]
}

fn next(finding: &Finding) -> Vec<Next> {
    let pid = finding.pid();
    let address = finding.culprit.address.as_deref().unwrap_or("ADDRESS");
    vec![
        to_measure("what it answers", format!("curl -si http://{} | head", words::shell(address))),
        to_measure(
            "its calls that fail, with the error",
            format!("mitra capture errors --pid {pid} --seconds 5"),
        ),
        to_measure(
            "names that it looks for and does not find",
            format!("mitra capture lookups --pid {pid} --seconds 5"),
        ),
    ]
}
