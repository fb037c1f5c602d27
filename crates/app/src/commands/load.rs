//! `mitra load`: HTTP load at a constant rate, and what became of it.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use mitra_load::{
    BodySource, Distribution, HeaderMap, HeaderName, HeaderValue, Knee, Outcome, Plan, Protocol, QUANTILES,
    Schedule, Search, Shape, Targets, Work,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::Serialize;

use crate::cli::{HeaderContent, LoadArgs, LoadCommand, LoadMergeArgs};
use crate::commands::{print, print_json};
use crate::errors::{DONE, FAILED, INTERRUPTED, NOT_MADE, in_words, usage};
use crate::progress::Progress;
use crate::render::page::Page;
use crate::render::style::{Ink, Style, clean_lines};
use crate::render::table::Table;
use crate::render::units;
use crate::signals::{self, Hangup, STOP};

/// Of a run whose length is not given.
const LENGTH_DEFAULT: Duration = Duration::from_secs(30);
/// How often it is looked whether somebody asked to stop.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Descriptors for everything but connections.
const OTHER_FILES: u64 = 64;
/// A result is some kilobytes.
const RESULT_BYTES_MAX: u64 = 16_000_000;
/// Where the recorder reads what others have to say.
const KERNEL_LOG: &str = "/dev/kmsg";

/// Returns the exit code. Scripts tell wrong usage (2) from a load that could not be made (1).
pub fn run(args: &LoadArgs, style: &Style) -> Result<u8> {
    let done = match &args.command {
        Some(LoadCommand::Merge(args)) => merge(args, style),
        None => offer(args, style),
    };
    done.or_else(|error| match crate::errors::exit_code(&error) {
        FAILED if !is_usage(&error) => {
            eprintln!("mitra: {}", clean_lines(&in_words(&error)));
            Ok(NOT_MADE)
        }
        _ => Err(error),
    })
}

fn is_usage(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.is::<crate::errors::Usage>()
            || matches!(cause.downcast_ref(), Some(mitra_load::Error::Wanted(_)))
    })
}

fn offer(args: &LoadArgs, style: &Style) -> Result<u8> {
    signals::catch_stop(Hangup::Stop).context("cannot set signal handlers")?;
    let plan = plan(args)?;
    plan.check()?;
    make_room(u64::from(args.connections))?;
    let mut mark = Mark::new(args, &plan);
    let progress = Progress::new("making load");
    // A connection that the server has closed is an error of a request.
    signals::outlive_closed_pipe();
    if !args.find_knee {
        let outcome = mitra_load::run(&plan, stopped(), || mark.begin());
        signals::die_on_closed_pipe();
        drop(progress);
        mark.end();
        let outcome = outcome?;
        print_outcome(args.json, &outcome, style)?;
        return Ok(code(outcome.answered > 0, outcome.is_interrupted));
    }
    let Some(Shape::Ramp(from, to)) = args.rate else {
        return Err(usage("--find-knee wants a range of rates: --rate 100..2000/s"));
    };
    let search = Search { from, to, step: args.step };
    let knee = mitra_load::find_knee(&plan, &search, async || stopped().await, || mark.begin());
    signals::die_on_closed_pipe();
    drop(progress);
    mark.end();
    let knee = knee?;
    print_knee(args, &knee, style)?;
    let is_answered = knee.steps.iter().any(|step| step.outcome.answered > 0);
    Ok(code(is_answered, knee.steps.iter().any(|step| step.outcome.is_interrupted)))
}

fn code(is_answered: bool, is_interrupted: bool) -> u8 {
    match (is_answered, is_interrupted) {
        (_, true) => INTERRUPTED,
        (true, _) => DONE,
        (false, _) => NOT_MADE,
    }
}

async fn stopped() {
    while !STOP.load(Ordering::Relaxed) {
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn plan(args: &LoadArgs) -> Result<Plan> {
    let mut targets = Targets::new();
    for url in &args.urls {
        targets.add(url)?;
    }
    if let Some(list) = &args.targets {
        targets.add_list(list)?;
    }
    let work = match (&args.replay, args.rate) {
        (Some(log), _) => Work::Logged { log: log.clone(), speed: args.speed, length: args.duration },
        (None, Some(shape)) => {
            Work::Timed(Schedule { shape, length: args.duration.unwrap_or(LENGTH_DEFAULT) })
        }
        (None, None) => return Err(usage("--rate or --replay is wanted")),
    };
    let load = match &work {
        Work::Timed(schedule) if args.find_knee => format!("{} in steps of {:?}", schedule.shape, args.step),
        Work::Timed(schedule) => format!("{} for {:?}", schedule.shape, schedule.length),
        Work::Logged { speed, .. } => format!("a log at {speed} times its speed"),
    };
    let mut headers = HeaderMap::new();
    for header in &args.headers {
        headers.append(header.name.clone(), value(&header.value)?);
    }
    let agent = HeaderValue::from_static(concat!("mitra/", env!("CARGO_PKG_VERSION")));
    headers.entry(HeaderName::from_static("user-agent")).or_insert(agent);
    let body = args.body.as_deref().map(BodySource::of_file).transpose()?.unwrap_or_default();
    let tls = match targets.is_secure() {
        true => Some(Arc::new(mitra_http::client_tls(args.ca_file.as_deref())?)),
        false => None,
    };
    Ok(Plan {
        load,
        targets,
        work,
        method: args.method.clone(),
        headers,
        body,
        protocol: if args.http2 { Protocol::Http2 } else { Protocol::Http1 },
        connections: args.connections as usize,
        streams: args.streams as usize,
        keeps_alive: !args.no_keep_alive,
        timeout: args.timeout,
        tls,
        at: args.at,
    })
}

fn value(content: &HeaderContent) -> Result<HeaderValue> {
    match content {
        HeaderContent::Text(value) => Ok(value.clone()),
        HeaderContent::Secret(file) => {
            let mut value = HeaderValue::from_str(&mitra_http::secret(file)?)
                .map_err(|_| usage(format!("{}: no value of a header", file.display())))?;
            value.set_sensitive(true);
            Ok(value)
        }
    }
}

/// Each connection is a descriptor, and the limit of a shell is lower than what the process may ask for.
fn make_room(connections: u64) -> Result<()> {
    let wanted = connections + OTHER_FILES;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= wanted) {
        return Ok(());
    }
    if let Some(maximum) = limit.maximum.filter(|maximum| *maximum < wanted) {
        let most = maximum.saturating_sub(OTHER_FILES);
        return Err(usage(format!(
            "this process may open {maximum} files: want --connections {most} at most"
        )));
    }
    setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: limit.maximum })
        .context("cannot raise the limit of open files")
}

/// Two lines of the kernel log, which a recorder on this machine keeps: a run has begun, and has ended.
struct Mark {
    what: String,
    is_wanted: bool,
    since: Option<f64>,
}

impl Mark {
    fn new(args: &LoadArgs, plan: &Plan) -> Mark {
        let what = format!("{} to {}", plan.load, plan.targets.names());
        Mark { what, is_wanted: !args.no_mark, since: None }
    }

    /// Only the first of several steps is noted.
    fn begin(&mut self) {
        let now = now_s();
        if self.is_wanted && note(&format!("offers {} from @{now:.3}", self.what)) {
            (self.is_wanted, self.since) = (false, Some(now));
        }
    }

    fn end(&self) {
        if let Some(since) = self.since {
            note(&format!("offered {} from @{since:.3} to @{:.3}", self.what, now_s()));
        }
    }
}

fn now_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// Whether it could be written: only root may, and a container has no such file.
fn note(text: &str) -> bool {
    let line = format!("<6>{}{text}\n", mitra_model::report::LOAD_MARK);
    let open = std::fs::OpenOptions::new().write(true).open(KERNEL_LOG);
    open.and_then(|mut log| log.write_all(line.as_bytes())).is_ok()
}

/// A result as JSON: the verdict and what is derived from counts, before the counts.
#[derive(Serialize)]
struct Told<'a> {
    verdict: String,
    is_kept: bool,
    is_trusted: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    offered_rate: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    achieved_rate: Option<f64>,
    #[serde(flatten)]
    outcome: &'a Outcome,
}

fn print_outcome(as_json: bool, outcome: &Outcome, style: &Style) -> Result<()> {
    if as_json {
        return print_json(&Told {
            verdict: verdict(outcome),
            is_kept: outcome.is_kept(),
            is_trusted: outcome.is_trusted(),
            offered_rate: outcome.offered_rate(),
            achieved_rate: outcome.achieved_rate(),
            outcome,
        });
    }
    print(&text(outcome, style))
}

/// The answer in one line.
fn verdict(outcome: &Outcome) -> String {
    let number = |n: u64| units::grouped(n as f64);
    let interrupted = if outcome.is_interrupted { "stopped before its end; " } else { "" };
    if outcome.answered == 0 {
        let why: Vec<String> =
            outcome.errors.iter().map(|(kind, f)| format!("{kind} {}", number(f.count))).collect();
        let why = if why.is_empty() { String::new() } else { format!(": {}", why.join(", ")) };
        return format!("{interrupted}no request was answered{why}");
    }
    let doubt = match outcome.is_trusted() {
        true => "",
        false => "not to be trusted, the generator itself was late; ",
    };
    let kept = match (outcome.is_kept(), outcome.achieved_rate(), outcome.offered_rate()) {
        (true, ..) => format!("kept {}", outcome.load),
        (false, Some(achieved), Some(offered)) => {
            let (achieved, offered) = (units::value(achieved, "1/s"), units::value(offered, "1/s"));
            format!("did not keep {}: {achieved} of {offered} were answered", outcome.load)
        }
        _ => format!("did not keep {}", outcome.load),
    };
    let bad = outcome.bad();
    let failed = if bad > 0 { format!(", {} failed", number(bad)) } else { String::new() };
    let slow = match (outcome.latency.quantile(0.5), outcome.latency.quantile(0.99), outcome.latency.max()) {
        (Some(p50), Some(p99), _) => {
            format!(
                "; p50 {}, p99 {} from when they were due",
                units::value(p50, "s"),
                units::value(p99, "s")
            )
        }
        (_, _, Some(max)) => format!("; {} at most from when they were due", units::value(max, "s")),
        _ => String::new(),
    };
    format!("{interrupted}{doubt}{kept}{failed}{slow}")
}

fn text(outcome: &Outcome, style: &Style) -> String {
    let mut page = Page::new(style);
    let ink = if outcome.is_kept() && outcome.is_trusted() { Ink::Strong } else { Ink::Bad };
    page.paragraph(0, 2, Some(ink), &verdict(outcome));
    page.gap();
    let mut table = Table::of("TIME|>P50|>P90|>P95|>P99|>P99.9|>P99.99|>MAX");
    for (name, times) in [
        ("latency, from due", &outcome.latency),
        ("service, from sent", &outcome.service),
        ("generator late by", &outcome.lateness),
    ] {
        table.row(std::iter::once(name.to_owned()).chain(cells(times)));
    }
    page.lines(0, &table.render(style));
    page.gap();
    let number = |n: u64| units::grouped(n as f64);
    let rate = |rate: Option<f64>| rate.map_or_else(|| "-".to_owned(), |rate| units::value(rate, "1/s"));
    let mut line = |label: &str, text: String| page.labelled(0, label, 8, None, &text);
    line(
        "Rate",
        format!("{} offered, {} answered", rate(outcome.offered_rate()), rate(outcome.achieved_rate())),
    );
    let mut requests = format!("{} due, {} answered", number(outcome.requests), number(outcome.answered));
    if outcome.queued > 0 {
        let (queued, most) = (number(outcome.queued), number(outcome.queued_max));
        requests += &format!(", {queued} had to wait for a connection ({most} at a time)");
    }
    if outcome.unfinished > 0 {
        requests += &format!(", {} were under way when it was stopped", number(outcome.unfinished));
    }
    line("Requests", requests);
    if !outcome.statuses.is_empty() {
        let all: Vec<String> = outcome.statuses.iter().map(|(s, n)| format!("{s}: {}", number(*n))).collect();
        line("Status", all.join(", "));
    }
    for (kind, failed) in &outcome.errors {
        line("Error", format!("{kind}: {} ({})", number(failed.count), failed.first));
    }
    if outcome.unread_lines > 0 || outcome.left_out > 0 {
        let (unread, left_out) = (number(outcome.unread_lines), number(outcome.left_out));
        line(
            "Log",
            format!("{unread} lines are no requests, {left_out} requests have a body and are left out"),
        );
    }
    let bytes = |n: u64| units::value(n as f64, "bytes");
    line(
        "Bytes",
        format!(
            "{} sent and {} received in bodies, {} connections of {}",
            bytes(outcome.sent_bytes),
            bytes(outcome.received_bytes),
            number(outcome.connections),
            outcome.protocol
        ),
    );
    page.finish()
}

/// The quantiles of a distribution, and its maximum.
fn cells(times: &Distribution) -> Vec<String> {
    let all = QUANTILES.iter().map(|(_, q)| times.quantile(*q)).chain([times.max()]);
    all.map(|value| value.map_or_else(|| "-".to_owned(), |value| units::value(value, "s"))).collect()
}

fn print_knee(args: &LoadArgs, knee: &Knee, style: &Style) -> Result<()> {
    if args.json {
        return print_json(knee);
    }
    let mut page = Page::new(style);
    let verdict = match knee.rate {
        Some(rate) if knee.is_open => format!("no knee up to {}: {}", units::value(rate, "1/s"), knee.why),
        Some(rate) => format!("knee at {}: {}", units::value(rate, "1/s"), knee.why),
        None => format!("no knee: {}", knee.why),
    };
    page.paragraph(0, 2, Some(Ink::Strong), &verdict);
    page.gap();
    let mut table = Table::of(">OFFERED|>ANSWERED|>FAILED|>P50|>P90|>P95|>P99|>P99.9|>P99.99|>MAX");
    for step in &knee.steps {
        let outcome = &step.outcome;
        let achieved =
            outcome.achieved_rate().map_or_else(|| "-".to_owned(), |rate| units::value(rate, "1/s"));
        let bad = units::grouped(outcome.bad() as f64);
        table.row([units::value(step.rate, "1/s"), achieved, bad].into_iter().chain(cells(&outcome.latency)));
    }
    page.lines(0, &table.render(style));
    if let Some(bound) = knee.bound {
        page.gap();
        page.labelled(0, "Bound", 8, None, &format!("{}, p99.9 of the first step", units::value(bound, "s")));
    }
    print(&page.finish())
}

fn merge(args: &LoadMergeArgs, style: &Style) -> Result<u8> {
    let mut sum: Option<Outcome> = None;
    for path in &args.files {
        let one = read(path)?;
        let bad = || format!("cannot add up {}", path.display());
        match &mut sum {
            Some(sum) => sum.merge(&one).with_context(bad)?,
            None if one.schema != mitra_load::SCHEMA => {
                return Err(usage(format!("{}: not a result of mitra load --json", path.display())));
            }
            None => sum = Some(one),
        }
    }
    let Some(sum) = sum else { return Err(usage("no file to add up")) };
    print_outcome(args.json, &sum, style)?;
    Ok(code(sum.answered > 0, false))
}

fn read(path: &Path) -> Result<Outcome> {
    let cannot = || format!("cannot read {}", path.display());
    let file = File::open(path).with_context(cannot)?;
    let mut text = Vec::new();
    file.take(RESULT_BYTES_MAX).read_to_end(&mut text).with_context(cannot)?;
    serde_json::from_slice(&text)
        .map_err(|error| usage(format!("{}: not a result of mitra load --json: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use mitra_load::Times;

    use super::*;

    fn outcome(late_ms: u64) -> Outcome {
        let mut outcome = Outcome {
            load: "100/s for 10s".to_owned(),
            requests: 1000,
            answered: 1000,
            due: Some(Times { first: 0.0, last: 9.99 }),
            done: Some(Times { first: 0.001, last: 9.991 }),
            statuses: BTreeMap::from([(200, 1000)]),
            protocol: "HTTP/1.1".to_owned(),
            ..Outcome::default()
        };
        for _ in 0..1000 {
            outcome.latency.record(Duration::from_millis(2));
            outcome.service.record(Duration::from_millis(1));
            outcome.lateness.record(Duration::from_millis(late_ms));
        }
        outcome
    }

    #[test]
    fn the_first_line_is_the_verdict() {
        let said = |outcome: &Outcome| {
            text(outcome, &Style::plain(120)).lines().next().unwrap_or_default().to_owned()
        };
        assert!(said(&outcome(0)).starts_with("kept 100/s for 10s; p50 2"), "{}", said(&outcome(0)));
        assert!(said(&outcome(2)).starts_with("not to be trusted"), "{}", said(&outcome(2)));
        let mut bad = outcome(0);
        bad.statuses = BTreeMap::from([(200, 500), (503, 500)]);
        assert!(
            said(&bad).starts_with("did not keep") && said(&bad).contains("500 failed"),
            "{}",
            said(&bad)
        );
        assert_eq!(said(&Outcome::default()), "no request was answered");
    }

    #[test]
    fn no_percentile_is_printed_of_too_few_requests() {
        let text = text(&outcome(0), &Style::plain(120));
        let row = text.lines().find(|line| line.starts_with("latency")).unwrap();
        // Of a thousand requests none lies beyond p99.99.
        assert!(row.split("  ").filter(|cell| cell.trim() == "-").count() == 1, "{row}");
    }

    #[test]
    fn codes() {
        assert_eq!([code(true, false), code(false, false), code(true, true)], [DONE, NOT_MADE, INTERRUPTED]);
    }
}
