//! What leads on where nobody knows why a service is late: what it asks again and again meanwhile, and who came when it began.

use mitra_model::time::SECOND;
use mitra_model::{SeriesSet, Span};

use crate::condition::Finding;
use crate::services::{self, ASLEEP, Address, Servers, mean, pinned};
use crate::signal::Signal;
use crate::stats::correlation;
use crate::view::View;
use crate::words;

/// A fifth of a task's time that is waited for an address is felt: then that is what it waits for.
const WAITS: f64 = 0.2;
/// Times as many calls as its own answers usually take are not made for these.
const NOT_FOR_ANSWERS: f64 = 10.0;
/// Times as many calls as before: what it asks besides goes on as it was.
const MORE: f64 = 1.5;
/// Of so many pairs of samples the correlation is so high by chance once in 400 times (the t test of Pearson's r: t = 5.06 with 6
/// degrees of freedom).
const PAIRS: usize = 8;
const TOGETHER: f64 = 0.9;
/// What goes down to a quarter of its most comes and goes; less is noise that everything on the machine shares.
const GONE: f64 = 0.25;
/// A client waits for nearly all of the time.
const ALL_THE_TIME: f64 = 0.8;
/// An answer took half of the time or longer.
pub(super) const HALF: f64 = 0.5;
/// A caller is seen by its first connection, and an onset is known to a sample or two.
const NEAR_NS: i64 = 3 * SECOND;
const NEWCOMERS: &str = "for the first time when it began";
/// More names in a sentence nobody reads.
const NAMES_MAX: usize = 3;
/// It fits, and nobody has seen what is asked.
pub const LIKELY: f64 = 0.7;

/// Says in a finding about a service what it asks again and again, whether it still writes an answer, and who called one of some
/// services for the first time when it began.
pub fn lead_on<'a>(
    view: &View<'a>,
    finding: &mut Finding,
    servers: &Servers<'_, '_>,
    row: &str,
    passed: &[&'a str],
    span: Span,
) {
    let mut called = passed.to_vec();
    let fetches_nobody = services::consumers::lead_on(view, finding, row, span);
    if let Some(pinned) = pinned(view, servers, row, span).filter(|_| !fetches_nobody) {
        pinned.blame(view, finding);
        finding.waits_for = Some(pinned.words);
        finding.confidence = finding.confidence.min(LIKELY);
    } else if let Some((address, words)) = polled(view, servers, row, span).filter(|_| !fetches_nobody) {
        finding.waits_for = Some(words);
        finding.confidence = finding.confidence.min(LIKELY);
        called.extend(services::local_service(view.set, &address));
    }
    finding.remarks.extend(still_writes(view, row, span));
    finding.remarks.extend(services::stopped_meanwhile(view, span).map(services::says_stopped));
    finding.remarks.extend(newcomers(view, &called, finding.onset));
    finding.remarks.extend(services::sends_more(view, row, span));
}

/// The address that a service asks again and again while its own clients wait, and that in words. It is answered at once.
fn polled<'a>(
    view: &View<'a>,
    servers: &Servers<'_, '_>,
    row: &str,
    span: Span,
) -> Option<(Address<'a>, String)> {
    let baseline = view.baseline?;
    let set: &'a SeriesSet = view.set;
    let answered_before = mean(view.base_set, "service.requests", row, baseline);
    if answered_before <= 0.0 {
        return None;
    }
    let answered = mean(set, "service.requests", row, span);
    // Each request that waits asks once a second or more, and sleeps between.
    let least = mean(set, "service.open", row, span).max(1.0);
    servers.used(view, span).filter(|used| *used < ASLEEP * least)?;
    let own = services::called_by(view, set, servers);
    let earlier = services::called_by(view, view.base_set, servers);
    let (caller, calls, before) = own
        .into_iter()
        .filter(|caller| mean(set, "dependency.wait_time", caller, span) < WAITS)
        .map(|caller| {
            let address = Address::called(caller);
            let same = earlier.iter().filter(|row| Address::called(row) == address);
            let same = same.filter_map(|row| view.base_set.get("dependency.requests", row));
            // A process that is young stands under its name first, and then under its id.
            let before = Signal::sum(same, baseline).and_then(|calls| calls.mean()).unwrap_or(0.0);
            (caller, mean(set, "dependency.requests", caller, span), before)
        })
        .filter(|(_, calls, before)| {
            let for_answers = answered * before / answered_before;
            *calls >= least.max(MORE * before) && *calls >= NOT_FOR_ANSWERS * for_answers
        })
        .max_by(|a, b| a.1.total_cmp(&b.1))?;
    let address = Address::called(caller);
    let whom = services::whom(view, &address);
    let words = format!(
        "{} asks {whom} again and again, {} times a second ({} before), and is answered at once: it seems to wait until \
         something changes there, such as a lock key that its holder has not given back",
        services::name(servers, row),
        words::count(calls),
        words::count(before)
    );
    Some((address, words))
}

/// That a service sends while it begins no answer, in words: an answer counts when it begins to be sent.
fn still_writes(view: &View<'_>, row: &str, span: Span) -> Option<String> {
    let total = |metric: &str| view.set.get(metric, row).and_then(|series| series.total(span)).unwrap_or(0.0);
    let sent = total("service.sent_bytes");
    (total("service.requests") <= 0.0 && sent > 0.0).then(|| {
        format!(
            "it sent {} meanwhile and began no answer: it still writes an earlier one to a client that reads slowly (ss -tnp: Send-Q), \
             and others may wait for what it holds as long",
            words::bytes(sent)
        )
    })
}

/// Whether a service answers nothing, or next to nothing, while somebody waits for it all the time, and nobody knows how long it
/// usually takes because it is hardly ever asked.
#[must_use]
pub fn is_stuck(view: &View<'_>, row: &str, span: Span) -> bool {
    let is_judged = view.service(row).is_some_and(|service| service.usual.is_some());
    let waits = mean(view.set, "service.wait_time", row, span);
    let answers = mean(view.set, "service.requests", row, span) * span.seconds();
    !is_judged && waits >= ALL_THE_TIME && waits >= HALF * answers.max(1.0)
}

/// Whether the clients of two services, of which one asks the other, wait longer than usual in the same seconds: all threads of the one
/// may wait for that which asks. Compared is how their waiting changes from one sample to the next: both may only have grown.
#[must_use]
pub fn wait_together(view: &View<'_>, outer: &str, inner: &str, span: Span) -> bool {
    let beyond = |row: &str| {
        let service = view.service(row)?;
        let v = service.traffic.beyond_all(&service.usual?);
        let all = Signal { t: service.traffic.t.clone(), dt: service.traffic.dt.clone(), v };
        Some(all.within(span))
    };
    let Some((outer, inner)) = beyond(outer).zip(beyond(inner)) else { return false };
    let both: Vec<(f64, f64)> = outer
        .t
        .iter()
        .zip(&outer.v)
        .filter_map(|(t, v)| Some((*v, inner.v[inner.t.binary_search(t).ok()?])))
        .collect();
    let (outer, inner): (Vec<f64>, Vec<f64>) = both.into_iter().unzip();
    let waits = inner.iter().sum::<f64>() / inner.len().max(1) as f64;
    let (least, most) = inner.iter().fold((f64::INFINITY, 0.0_f64), |(a, b), v| (a.min(*v), b.max(*v)));
    let comes_and_goes = least <= GONE * most;
    let changes = |values: &[f64]| values.windows(2).map(|pair| pair[1] - pair[0]).collect::<Vec<f64>>();
    let (mut outer, mut inner) = (changes(&outer), changes(&inner));
    // That both began at once is one coincidence and no more.
    let largest = (0..outer.len()).max_by(|a, b| outer[*a].abs().total_cmp(&outer[*b].abs()));
    if let Some(largest) = largest {
        outer.swap_remove(largest);
        inner.swap_remove(largest);
    }
    inner.len() >= PAIRS
        && waits >= WAITS
        && comes_and_goes
        && correlation(&outer, &inner).is_some_and(|r| r >= TOGETHER)
}

/// Programs that called a service of the culprit for the first time when that began, in words. `None` also where that is said.
#[must_use]
pub fn newcomers_of(view: &View<'_>, finding: &Finding) -> Option<String> {
    if finding.remarks.iter().any(|remark| remark.starts_with(NEWCOMERS)) {
        return None;
    }
    let culprit = view.process(finding.culprit.pid?)?;
    let called: Vec<&str> = view.serving().of(view, culprit)?.iter().copied().collect();
    newcomers(view, &called, finding.onset)
}

/// Programs that called one of some services for the first time when it began, in words.
#[must_use]
pub fn newcomers(view: &View<'_>, called: &[&str], onset: i64) -> Option<String> {
    let near = Span { since: onset.saturating_sub(NEAR_NS), until: onset.saturating_add(NEAR_NS) };
    // Of what there was before the recording nobody knows when it came.
    view.set.span().filter(|span| span.since < near.since)?;
    // It asks services in trouble how they are.
    let recorders = view.recorders();
    let is_recorder = |pid: u32| {
        let parent = view.process(pid).and_then(|process| process.ppid);
        recorders.contains(&pid) || parent.is_some_and(|parent| recorders.contains(&parent))
    };
    let mut came: Vec<String> = Vec::new();
    for (row, first) in first_calls(view.set) {
        let Some(service) = called.iter().find(|service| reaches(row, service)) else { continue };
        let comm = name(view.set, row);
        let is_known = |set: &SeriesSet| {
            let mut earlier = first_calls(set).filter(|(_, first)| *first < near.since);
            earlier.any(|(other, _)| name(set, other) == comm && reaches(other, service))
        };
        if !near.contains(first) || is_known(view.set) || is_known(view.base_set) {
            continue;
        }
        let pid = view.set.get("dependency.pid", row).and_then(|pid| pid.last(Span::ALL));
        if pid.is_some_and(|pid| is_recorder(pid as u32)) {
            continue;
        }
        let pid = pid.map_or_else(String::new, |pid| format!(" ({pid:.0})"));
        let whom = services::name(&Servers::of(view, service), service);
        let words = format!("{comm}{pid} called {whom}");
        if !came.contains(&words) && came.len() < NAMES_MAX {
            came.push(words);
        }
    }
    (!came.is_empty()).then(|| format!("{NEWCOMERS}: {}", came.join(", ")))
}

/// Who calls, with the end of the first sample in which that is seen.
fn first_calls(set: &SeriesSet) -> impl Iterator<Item = (&str, i64)> {
    let calls = set.each("dependency.requests");
    calls.filter_map(|(row, series)| Some((row, series.samples(Span::ALL).next()?.0)))
}

pub(super) fn reaches(caller: &str, service: &str) -> bool {
    Address::called(caller).reaches(&Address::of(service))
}

/// The name of who calls: a process that is young stands under its name first.
fn name<'a>(set: &'a SeriesSet, caller: &'a str) -> &'a str {
    let comm = set.text("dependency.comm", caller).and_then(|text| text.last());
    comm.or_else(|| caller.split_once('>').map(|(who, _)| who)).unwrap_or(caller)
}

/// Who sends no more than that many times as much as before does so every day.
const SENDS_MORE: f64 = 2.0;

/// Names who sent a service most of its bytes in a span, and more than before: true.
pub fn blame_sender(view: &View<'_>, finding: &mut Finding, service: &str, span: Span) -> bool {
    let Some((row, bytes, all)) = services::who_sends_most(view, service, span) else { return false };
    let comm = Some(services::caller_name(view, row));
    let before = services::callers_before(view, service, comm, services::SENT, span);
    if bytes <= SENDS_MORE * before * span.seconds() {
        return false;
    }
    finding.remarks.insert(
        0,
        format!(
            "{} sent {} {} of the {} that it got within {}",
            services::callers(view, [row]),
            services::name(&Servers::of(view, service), service),
            words::bytes(bytes),
            words::bytes(all),
            words::seconds(span.seconds())
        ),
    );
    finding.prove(view, &[services::SENT], row, span);
    let pid = view.set.get("dependency.pid", row).and_then(|pid| pid.last(span)).filter(|pid| *pid >= 1.0);
    if let Some(process) = pid.and_then(|pid| view.process(pid as u32)) {
        finding.blame_for_work(process);
        finding.infer_culprit();
    }
    true
}
