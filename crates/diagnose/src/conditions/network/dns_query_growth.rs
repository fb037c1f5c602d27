//! A program asks a name server many more questions for the same work, and waits for each.
//!
//! A name with few dots is tried below each domain of the search list first (`resolv.conf`: `search`, `options ndots`): a list of four
//! domains makes five questions of one, of which four have the answer that there is no such name. A cache of names that was there
//! and is gone does the same, and so does a program that no longer keeps what it was told. The server answers as fast as ever, or has to ask
//! others for names that it was not asked for before; it is not to blame (`resolver-slow`), and nothing fails.
//!
//! Who does more work asks for more names, and is `load-increase` or nothing at all: what the same program asks of others, and is asked
//! itself, has to be known and as much as before.

use crate::network;
use crate::prelude::*;
use crate::services::best_tenth;

pub const CONDITION: Condition = Condition {
    id: "dns-query-growth",
    title: "a program asks many more DNS questions for the same work",
    area: "network",
    needs: METRICS,
    needs_of: &[WORK],
    triggers: &[Trigger::Signals(Signals {
        metrics: METRICS,
        find: are_more,
        need_s: NEED_S,
        can_be_steady: false,
    })],
    observe,
    causes: &[explains("service-slow", "each answer waits for several questions to a name server")],
    remedies: &[
        Advice {
            action: "see which names are asked: several that differ only in the domain at their end come from the search list",
            command: "tcpdump -ni any port 53",
            verify: "one question for each name, or two where addresses of both kinds are asked for",
            risk: "",
        },
        Advice {
            action: "put back what made one question of it: a shorter search list, a smaller ndots, a dot at the end of the name, or \
                     a cache of names (nscd, systemd-resolved)",
            command: "/etc/resolv.conf of the program: cat /proc/{pid}/root/etc/resolv.conf",
            verify: "as many questions as before: mitra explain --since -2m",
            risk: "programs read the file when they start; without a search domain short names do not resolve",
        },
    ],
    source: include_str!("dns_query_growth.rs"),
    ..Condition::ROOT
};

const QUERIES: &str = "resolver.queries";
const WAITS: &str = "resolver.wait_time";
const METRICS: &[&str] = &[QUERIES, WAITS, "resolver.unanswered", "resolver.pid", "resolver.comm"];
/// What a program does that asks for names.
const WORK: &[&str] =
    &["dependency.requests", "dependency.connects", "dependency.comm", "service.requests", "service.comm"];
/// One more domain makes two questions of one.
const MORE: f64 = 1.8;
/// Of a task's time, more than before: a program that does one thing at a time is slower by as much.
const FELT: f64 = 0.25;
/// As much work as before: what differs by less is the same.
const AS_MUCH: f64 = 1.25;
/// Answers that take as long as before.
const AS_QUICK: f64 = 1.5;
/// The most impatient resolver asks again after a second (`resolv.conf`: `timeout`): at this mean at most one in ten takes as long.
const PATIENT_S: f64 = 0.1;
/// One question in a hundred that is lost.
const LOST: f64 = 0.01;
/// Of the samples.
const NEARLY_ALL: f64 = 0.9;
/// Of fewer calls and questions a rate says little.
const MANY: f64 = 20.0;
const NEED_S: f64 = 3.0;

/// One where more is asked than usual, and waited for.
fn more(queries: &Signal, waits: &Signal, usual: f64, waited: f64) -> Signal {
    queries.zip(waits, |queries, waits| step(queries >= MORE * usual && waits >= waited + FELT))
}

fn observe(view: &View<'_>) -> Observation {
    if !view.has(QUERIES) {
        return Observation::cannot_tell("DNS questions: tcpdump -ni any port 53");
    }
    let Some(baseline) = view.baseline else {
        return Observation::inactive("how many questions were usual is not known");
    };
    let mut because = "no program asked many more questions than before".to_owned();
    for (row, series) in view.each(QUERIES) {
        let before = |metric: &str| view.base_set.get(metric, row);
        let total = before(QUERIES).and_then(|queries| queries.total(baseline)).unwrap_or(0.0);
        let means = [QUERIES, WAITS].map(|metric| before(metric).and_then(|s| s.mean(baseline)));
        let ([Some(usual), Some(waited)], Some(waits)) = (means, view.set.get(WAITS, row)) else { continue };
        let [queries, waits] = [series, waits].map(|series| Signal::of(series, view.window));
        let Some(run) = more(&queries, &waits, usual, waited).run(1.0, NEED_S).filter(|_| total >= MANY)
        else {
            continue;
        };
        let span = run.span();
        let asked_before = asker(view.base_set, row, baseline);
        let Some(pid) = asker(view.set, row, span).filter(|pid| Some(*pid) == asked_before) else {
            because = format!("others ask {} than before, or several do", network::device(row).0);
            continue;
        };
        // Who gets no answer, or a late one, asks again.
        let unanswered = |set: &SeriesSet, span: Span| {
            let of = |metric: &str| set.get(metric, row).and_then(|series| series.total(span)).unwrap_or(0.0);
            of("resolver.unanswered") / of(QUERIES).max(1.0)
        };
        let mean = |signal: &Signal| signal.within(span).mean().unwrap_or(0.0);
        let each_s = mean(&waits) / mean(&queries).max(f64::MIN_POSITIVE);
        let is_as_quick = each_s * usual <= AS_QUICK * waited;
        if !is_as_quick && each_s > PATIENT_S
            || unanswered(view.set, span) > unanswered(view.base_set, baseline) + LOST
        {
            because = format!(
                "{} answers later than before, or not: questions are asked again",
                network::device(row).0
            );
            continue;
        }
        let comm = view.set.text("resolver.comm", row).and_then(|text| text.last()).unwrap_or_default();
        let (now, then) = (work(view.set, comm, span), work(view.base_set, comm, baseline));
        if then * baseline.seconds() < MANY {
            because = format!("what {comm} does with the names is not known");
            continue;
        }
        if now > AS_MUCH * then {
            because = format!("{comm} asks for more names because it does more");
            continue;
        }
        let (address, net) = network::device(row);
        let mut finding = view.finding(&run);
        finding.netns = Some(net.id());
        finding.blame_pid(comm, pid as u32);
        finding.culprit.address = Some(address.to_owned());
        finding.statement = format!(
            "{comm} ({pid:.0}) asks the name server {address}{} {} questions a second instead of {}, for as many calls as before ({}/s): \
             each name takes {} times as many, and its threads wait {} of a task's time for the answers instead of {}",
            net.place(),
            words::count(mean(&queries)),
            words::count(usual),
            words::count(now),
            words::count(mean(&queries) / usual),
            words::percent(mean(&waits)),
            words::percent(waited)
        );
        if !is_as_quick {
            finding.remarks.push(format!(
                "an answer takes {} instead of {}: what is asked in addition is not known there and asked elsewhere",
                words::seconds(each_s),
                words::seconds(waited / usual)
            ));
        }
        finding.prove(view, &[QUERIES, WAITS], row, span);
        finding.loss_s = Some((mean(&waits) - waited).max(0.0) * run.high_s);
        finding.confidence = 0.85;
        return finding.active();
    }
    Observation::Inactive(because)
}

/// The program that waits longest for a name server in nearly all samples: the kernel's counts are of all that ask it.
fn asker(set: &SeriesSet, row: &str, span: Span) -> Option<f64> {
    let pids = set.get("resolver.pid", row)?.values(span);
    let last = *pids.last()?;
    let own = pids.iter().filter(|pid| **pid == last).count();
    (own as f64 >= NEARLY_ALL * pids.len() as f64).then_some(last)
}

/// How often a second the processes of a name call others and are called.
fn work(set: &SeriesSet, comm: &str, span: Span) -> f64 {
    let is_own = |row: &str| {
        let who = row.split_once('>').map_or(row, |(who, _)| who);
        who == comm || set.text("dependency.comm", row).is_some_and(|text| text.last() == Some(comm))
    };
    let calls = WORK[..2].iter().flat_map(|metric| set.each(metric)).filter(|(row, _)| is_own(row));
    let is_served = |row: &str| set.text("service.comm", row).is_some_and(|text| text.last() == Some(comm));
    let served = set.each("service.requests").filter(|(row, _)| is_served(row));
    // Rows come and go: no mean of theirs can be added.
    let totals = calls.chain(served).filter_map(|(_, series)| series.total(span));
    totals.fold(0.0, |a, b| a + b) / span.seconds().max(1.0)
}

fn are_more(set: &SeriesSet, window: Span) -> Vec<Signal> {
    let of = |(row, series): (&str, &Series)| {
        let [queries, waits] = [series, set.get(WAITS, row)?].map(|series| Signal::of(series, window));
        Some(more(&queries, &waits, best_tenth(&queries.v)?, best_tenth(&waits.v)?))
    };
    set.each(QUERIES).filter_map(of).collect()
}
