//! The load side of `tools/bench/search.py`, which compares the embedded index with OpenSearch: makes documents by a seed,
//! writes them, asks for them, and indexes a machine on which nothing changes.
//!
//! ```text
//! search_load template PATTERN                    the index template, for a cluster
//! search_load bulk INDEX FIRST COUNT              distinct documents, as the body of bulk requests
//! search_load index DIR FIRST COUNT               the same into an embedded index: CPU and clock
//! search_load fill own|like DIR                   two weeks of hosts into an embedded index
//! search_load fill own|like SPOOL URL PREFIX      the same into a cluster
//! search_load ask distinct|hosts DIR URL PREFIX   each query on both sides
//! search_load ask distinct|hosts DIR              each query of the embedded index alone
//! search_load queries                             the queries, one in a line
//! search_load idle DIR FILES HOST SECONDS         an indexer at 300 s that finds nothing new
//! ```
//!
//! Each prints one JSON object, but for `bulk` and `queries`, which print lines.

mod ask;
mod hosts;
mod idle;
mod texts;

use std::io::Write;
use std::path::Path;
use std::time::Instant;

use mitra_search::backend::{Batch, Sink};
use mitra_search::embedded::Writer;
use mitra_search::opensearch::{self, Cluster, Settings};
use mitra_search::{Day, Document, Error, document_id};
use serde_json::{Value, json};

/// 2026-11-01.
const FIRST_DAY: Day = Day(20_758);
const NS_PER_S: i64 = 1_000_000_000;
/// Of distinct documents.
const FILES_PER_HOST: u64 = 500;

/// CPU time of this process with all its threads, in seconds.
fn cpu_s() -> f64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    t.tv_sec as f64 + t.tv_nsec as f64 / 1e9
}

fn connect(url: &str, prefix: &str) -> Result<Cluster, Error> {
    Cluster::connect(Settings {
        nodes: vec![url.to_owned()],
        prefix: prefix.to_owned(),
        ..Settings::default()
    })
}

/// One of the distinct documents: nobody else has its text.
fn distinct(number: u64) -> Document {
    let host = format!("host{:03}", number / FILES_PER_HOST);
    let filename = format!("/etc/app{}.conf", number % FILES_PER_HOST);
    texts::document(&host, &filename, texts::Random::new(number).text(), number)
}

/// Lines for bulk requests, without what only Mitra needs but for the time to the nanosecond, which a hit shows.
fn bulk(index: &str, first: u64, count: u64) -> std::io::Result<()> {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    for number in first..first + count {
        let document = distinct(number);
        let mut source = document.to_json();
        if let Some(source) = source.as_object_mut() {
            source.remove("id");
            source.insert("day".to_owned(), json!(FIRST_DAY.to_string()));
            source.insert("mitra".to_owned(), json!({"since": document.since_ns}));
        }
        let id = document_id(&document.host, &document.filename);
        writeln!(out, "{}\n{source}", json!({"index": {"_index": index, "_id": id}}))?;
    }
    out.flush()
}

fn index(dir: &Path, first: u64, count: u64) -> Result<Value, Error> {
    let documents: Vec<Document> = (first..first + count).map(distinct).collect();
    let (cpu, clock) = (cpu_s(), Instant::now());
    let mut writer = Writer::open(dir)?;
    for of_host in documents.chunk_by(|a, b| a.host == b.host) {
        let Some(one) = of_host.first() else { continue };
        let at_ns = FIRST_DAY.start_ns() + NS_PER_S;
        writer.put(&Batch { host: &one.host, at_ns, documents: of_host, gone: &[] })?;
    }
    let acknowledged_s = clock.elapsed().as_secs_f64();
    drop(writer);
    Ok(json!({"documents": count, "cpu_s": cpu_s() - cpu, "acknowledged_s": acknowledged_s,
              "clock_s": clock.elapsed().as_secs_f64()}))
}

fn fill(kind: &str, dir: &Path, cluster: Option<(&str, &str)>) -> Result<Value, Error> {
    let fleet = hosts::Fleet::new(kind == "like");
    let cpu = cpu_s();
    let documents = match cluster {
        None => {
            let mut writer = Writer::open(dir)?;
            let documents = hosts::live(fleet, &mut writer)?;
            writer.tidy()?;
            documents
        }
        Some((url, prefix)) => {
            let mut writer = opensearch::Writer::open(connect(url, prefix)?, dir)?;
            let documents = hosts::live(fleet, &mut writer)?;
            writer.messages().iter().for_each(|line| eprintln!("{line}"));
            if writer.waiting() > 0 {
                return Err(Error::Cannot("the cluster did not take everything".to_owned()));
            }
            documents
        }
    };
    Ok(json!({"documents_days": documents, "cpu_s": cpu_s() - cpu}))
}

fn number(text: &str) -> Result<u64, Error> {
    text.parse().map_err(|_| Error::Cannot(format!("wanted a number, not '{text}'")))
}

fn run(args: &[&str]) -> Result<Option<Value>, Error> {
    Ok(Some(match args {
        ["template", pattern] => opensearch::template(pattern, 1),
        ["bulk", to, first, count] => {
            bulk(to, number(first)?, number(count)?).map_err(|e| Error::Cannot(e.to_string()))?;
            return Ok(None);
        }
        ["queries"] => {
            ask::QUERIES.iter().for_each(|query| println!("{query}"));
            return Ok(None);
        }
        ["index", dir, first, count] => index(Path::new(dir), number(first)?, number(count)?)?,
        ["fill", kind, dir] => fill(kind, Path::new(dir), None)?,
        ["fill", kind, dir, url, prefix] => fill(kind, Path::new(dir), Some((url, prefix)))?,
        ["ask", what, dir] => ask::each(Path::new(dir), None, *what == "hosts")?,
        ["ask", what, dir, url, prefix] => {
            ask::each(Path::new(dir), Some(&connect(url, prefix)?), *what == "hosts")?
        }
        ["idle", dir, files, host, seconds] => idle::watch(Path::new(dir), files, host, number(seconds)?)?,
        _ => return Err(Error::Cannot("see the beginning of its source for what it takes".to_owned())),
    }))
}

fn main() -> std::process::ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match run(&args) {
        Ok(said) => {
            said.iter().for_each(|said| println!("{said}"));
            std::process::ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("search_load: {error}");
            std::process::ExitCode::FAILURE
        }
    }
}
