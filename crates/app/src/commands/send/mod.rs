//! `mitra send`: follows an archive, and sends what it records to the stores of the configuration. The archive is the queue.

mod hours;
mod latest;
mod records;
mod stretch;
mod top;
mod worker;

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use mitra_archive::Reader;
use mitra_collect::Clock;
use mitra_model::Span;
use mitra_model::time::SECOND;
use mitra_rules::ConfigError;
use mitra_send::{
    CLICKHOUSE_SCHEMA, Channel, Config, Failure, Kind, LogRecord, Output, Position, Sent, Series, SeriesKind,
    Severity,
};

use self::latest::Latest;
use self::records::Look;
use self::stretch::Wanted;
use self::worker::Worker;
use crate::cli::SendArgs;
use crate::commands::{notify, print};
use crate::errors::usage;
use crate::escalation::settings;
use crate::log::log;
use crate::recording::{self, status::SEND_FOLDER};
use crate::render::style::{clean, clean_lines};
use crate::signals::{self, Hangup, STOP};

/// Of the recording whose incidents `--dry-run` prints.
const RECORDS_NS: i64 = 3600 * SECOND;
/// The longest time between two looks at the archive.
const LOOK_EVERY_MAX: Duration = Duration::from_secs(10);

pub fn run(args: &SendArgs) -> Result<()> {
    if args.schema.is_some() {
        return print(CLICKHOUSE_SCHEMA);
    }
    signals::catch_stop(Hangup::Stop).context("cannot set signal handlers")?;
    let path = args.config.as_deref().unwrap_or(Path::new(settings::FILE));
    let outputs = read(path)?;
    if outputs.is_empty() {
        return Err(usage(format!("{}: no table [[output]] says where samples go", path.display())));
    }
    if args.test {
        return test(&outputs);
    }
    let dir = recording::readable_dir(&args.archive.chosen())?;
    if args.dry_run {
        return dry_run(&dir, &outputs);
    }
    let folder = notify::state_dir(args.state.as_deref(), SEND_FOLDER)?;
    let workers = outputs
        .into_iter()
        .map(|output| {
            let (mut position, trouble) =
                Position::open(&folder, &output.name).map_err(anyhow::Error::msg)?;
            trouble.iter().for_each(|why| log(why));
            position.archive = dir.display().to_string();
            position.is_of_records = output.kind.is_of_incidents();
            let (sent, trouble) = if output.kind.is_of_incidents() {
                Sent::open(&folder, &output.name).map_err(anyhow::Error::msg)?
            } else {
                (Sent::default(), None)
            };
            trouble.iter().for_each(|why| log(why));
            Worker::new(output, position, sent, args.once).map_err(usage)
        })
        .collect::<Result<Vec<Worker>>>()?;
    let names: Vec<&str> = workers.iter().map(|worker| worker.output.name.as_str()).collect();
    print(&format!("sending {} to {}\n", dir.display(), names.join(", ")))?;
    if args.once { once(&dir, workers) } else { follow(&dir, workers) }
}

/// The tables `[[output]]` of a file.
pub fn read(path: &Path) -> Result<Vec<Output>> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let config = Config::read(&text, &stretch::check).map_err(|mistake| {
        let file = path.display().to_string();
        usage(ConfigError::at(&file, &text, mistake.at, mistake.message).to_string())
    })?;
    Ok(config.outputs)
}

/// What of outputs would not work here and now: files that they name, and folders.
pub fn doubts(outputs: &[Output]) -> Vec<String> {
    let doubt = |output: &Output| match &output.folder {
        Some(folder) if !folder.is_dir() => {
            Some(format!("output {}: {} is no folder", output.name, folder.display()))
        }
        Some(_) => None,
        None => Channel::open(output).err(),
    };
    outputs.iter().filter_map(doubt).collect()
}

/// Sends until a signal comes. Each output has a thread.
fn follow(dir: &Path, workers: Vec<Worker>) -> Result<()> {
    let latest = Arc::new(Latest::default());
    let every = workers.iter().map(|worker| worker.output.every).min().unwrap_or(LOOK_EVERY_MAX);
    let back = workers.iter().map(Worker::back).max().unwrap_or_default();
    let threads = workers
        .into_iter()
        .map(|worker| {
            let latest = Arc::clone(&latest);
            let name = format!("send {}", worker.output.name);
            std::thread::Builder::new().name(name).spawn(move || worker.follow(&latest))
        })
        .collect::<Result<Vec<_>, _>>()
        .context("cannot start a thread")?;
    latest.watch(dir, every.min(LOOK_EVERY_MAX), back);
    threads.into_iter().for_each(|thread| _ = thread.join());
    Ok(())
}

/// Sends what there is, to all outputs at the same time.
fn once(dir: &Path, workers: Vec<Worker>) -> Result<()> {
    let reader =
        Arc::new(Reader::open(dir).with_context(|| format!("cannot open the archive {}", dir.display()))?);
    let latest = Latest::default();
    let done: Vec<(Worker, Result<()>)> = std::thread::scope(|scope| {
        let started: Vec<_> = workers
            .into_iter()
            .map(|mut worker| {
                let (reader, latest) = (&reader, &latest);
                scope.spawn(move || {
                    let done = worker.send(reader, latest);
                    (worker, done)
                })
            })
            .collect();
        let ended = started.into_iter().map(std::thread::ScopedJoinHandle::join);
        ended.map(|ended| ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    let mut failed = 0;
    for (worker, done) in &done {
        let (name, tally) = (&worker.output.name, worker.tally());
        failed += usize::from(done.is_err());
        let said = match done {
            Ok(()) => "all of it".to_owned(),
            Err(error) => format!("not all of it: {error:#}"),
        };
        let what = worker.what();
        let line = format!("{name}  {said}; {} {what} sent so far, {} refused", tally.sent, tally.refused);
        print(&format!("{}\n", clean(&line)))?;
    }
    if failed > 0 {
        bail!("{failed} of them did not take all; the archive still has it");
    }
    if STOP.load(Ordering::Relaxed) {
        bail!("stopped before all was sent; the archive still has it");
    }
    Ok(())
}

/// Sends one sample or record to each output, and says what it answered.
fn test(outputs: &[Output]) -> Result<()> {
    let now = Clock::Real.now().real;
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let mut failed = 0;
    for output in outputs {
        let sent = if let Some(folder) = &output.folder {
            // A file that is gone again.
            match tempfile::tempfile_in(folder) {
                Ok(_) => Ok("files can be made".to_owned()),
                Err(error) => Err(format!("{}: {error}", folder.display())),
            }
        } else if output.kind.is_of_incidents() {
            let labels = Wanted::of(output).labels(&host, &[]);
            let (host, attributes) = records::about(&labels);
            let record = LogRecord {
                time_ns: now,
                observed_ns: now,
                severity: Severity::Info,
                event: "mitra.test",
                body: "This is what mitra send --test sends; nothing is wrong.".to_owned(),
                host,
                attributes,
            };
            Channel::open(output).and_then(|channel| answer(channel.send_records(&[record])))
        } else {
            let series = Series {
                name: "mitra_send_test".into(),
                kind: SeriesKind::Gauge,
                unit: "",
                help: "What mitra send --test sends.",
                labels: Wanted::of(output).labels(&host, &[]),
                samples: vec![(now, 1.0)],
            };
            Channel::open(output).and_then(|channel| answer(channel.send(&[series])))
        };
        failed += usize::from(sent.is_err());
        let said = match sent {
            Ok(answer) => format!("taken: {answer}"),
            Err(why) => why,
        };
        print(&format!("{}  {}\n", output.name, clean(&said)))?;
    }
    if failed > 0 {
        bail!("{failed} of them did not take it");
    }
    Ok(())
}

fn answer(sent: Result<mitra_send::Taken, Failure>) -> Result<String, String> {
    match sent {
        Ok(taken) => match taken.refused {
            None => Ok(taken.answer),
            Some((_, why)) => Err(format!("refused: {why}")),
        },
        Err(Failure::Later(why, _)) => Err(format!("not taken, would be tried again: {why}")),
        Err(Failure::Never(why)) => Err(format!("refused: {why}")),
    }
}

/// Prints the samples of the last interval of each output, or the records of the last hour.
fn dry_run(dir: &Path, outputs: &[Output]) -> Result<()> {
    let reader = Reader::open(dir).with_context(|| format!("cannot open the archive {}", dir.display()))?;
    let span = reader.span().context("nothing was recorded")?;
    for output in outputs {
        let wanted = Wanted::of(output);
        if output.kind == Kind::Parquet {
            let count = wanted.metrics.len();
            print(&format!("# {}: files of {count} metrics, as mitra export writes them\n", output.name))?;
            continue;
        }
        if output.kind.is_of_incidents() {
            let since = span.until.saturating_sub(RECORDS_NS).max(span.since);
            let settled_ns = records::settled_ns(&reader);
            let look = Look { from: since, until: span.until, is_last: true, settled_ns };
            let found = records::read(&reader, look, &wanted, output.findings, &mut Sent::default())?;
            let text: String =
                found.iter().map(|(record, _)| format!("{}\n", clean(&record.to_string()))).collect();
            print(&format!("# {}: {} records\n{text}", output.name, found.len()))?;
            continue;
        }
        let last = wanted.interval(span.until - 1).saturating_mul(wanted.every_ns);
        let series = wanted.read(&reader, Span { since: last.max(span.since), until: span.until })?;
        let samples: usize = series.iter().map(|series| series.samples.len()).sum();
        let text = clean_lines(&Channel::shown(output, &series));
        print(&format!("# {}: {} series, {samples} samples\n{text}", output.name, series.len()))?;
    }
    Ok(())
}
