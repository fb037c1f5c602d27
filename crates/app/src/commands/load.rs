//! `mitra load`: HTTP load at a constant rate, and what became of it.

mod told;

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use mitra_load::{
    BodySource, HeaderMap, HeaderName, HeaderValue, Outcome, Plan, Protocol, Schedule, Search, Shape,
    Targets, Work,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::cli::{HeaderContent, LoadArgs, LoadCommand, LoadMergeArgs};
use crate::commands::load::told::{print_knee, print_outcome};
use crate::errors::{DONE, FAILED, INTERRUPTED, NOT_MADE, in_words, usage};
use crate::progress::Progress;
use crate::render::style::{Style, clean_lines};
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
            || matches!(
                cause.downcast_ref(),
                Some(mitra_load::Error::Wanted(_) | mitra_load::Error::Merge(_))
            )
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
        if outcome.broken.is_some() {
            return Ok(NOT_MADE);
        }
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
    print_knee(args.json, &knee, style)?;
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
    let is_secret = args.headers.iter().any(|header| matches!(header.value, HeaderContent::Secret(_)));
    if is_secret && targets.is_exposed() && !args.insecure {
        return Err(usage("a secret would go over the network in clear: want https://, or --insecure"));
    }
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
    use super::*;

    #[test]
    fn codes() {
        assert_eq!([code(true, false), code(false, false), code(true, true)], [DONE, NOT_MADE, INTERRUPTED]);
    }
}
