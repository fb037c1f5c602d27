//! `mitra index`: reads this machine into the index.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use mitra_search::backend::{Batch, Deleted, Sink};
use mitra_search::indexer::config::Level;
use mitra_search::indexer::{Clock, Config, Indexer, PassReport};
use mitra_search::opensearch::{Cluster, Writer as ClusterWriter};
use mitra_search::{Day, Error, embedded};
use serde_json::json;

use super::incidents::Explained;
use super::location::{self, Location};
use crate::cli::{ArchiveArgs, IndexArgs};
use crate::commands::{print as out, print_json};
use crate::progress::Progress;
use crate::render::style::{Style, clean};
use crate::render::table::Table;
use crate::render::units;
use crate::signals::{self, Hangup, STOP};

/// The configuration that is shipped, where there is none.
const SHIPPED: &str = include_str!("../../../../../packaging/mitra.toml");
/// How long one pass by hand waits for a cluster. What it did not take stays on disk.
const PATIENCE: Duration = Duration::from_secs(30);
/// Names that are listed one by one.
const NAMED_MAX: usize = 20;

pub fn run(args: &IndexArgs, style: &Style) -> Result<()> {
    let (config, location) = location::find(&args.location)?;
    location::say_if_two_configs(&args.location);
    let mut config = config.map_or_else(shipped, Ok)?;
    config.host = args.host.clone().or(config.host);
    if args.dry_run {
        return dry_run(config, args.json, style);
    }
    match location {
        Location::Embedded(dir) => {
            make_dir(&dir)?;
            let sink = embedded::Writer::open(&dir)?;
            config.store = Some(dir);
            config.opensearch = None;
            go(args, config, Box::new(sink), style)
        }
        Location::OpenSearch(mut settings) => {
            // One by hand is not one of many.
            if !args.service {
                settings.spread = Duration::ZERO;
            }
            let spool = match &args.spool {
                Some(dir) => dir.clone(),
                None => config.store.clone().map_or_else(location::usual_dir, Ok)?.join("spool"),
            };
            make_dir(&spool)?;
            let cluster = Cluster::connect(*settings)?;
            let sink = ClusterWriter::open(cluster, &spool)?;
            if args.service {
                return go(args, config, Box::new(sink), style);
            }
            let shared = Shared(Arc::new(Mutex::new(sink)));
            go(args, config, Box::new(Shared(Arc::clone(&shared.0))), style)?;
            let mut sink = shared.0.lock().unwrap_or_else(PoisonError::into_inner);
            sink.flush(PATIENCE).context("what the cluster has not taken waits on disk for the next time")?;
            sink.messages().iter().for_each(|line| eprintln!("mitra: {}", clean(line)));
            // Whoever indexes by hand searches next.
            Ok(sink.cluster().refresh()?)
        }
    }
}

fn shipped() -> Result<Config> {
    let config = Config::parse_toml(Path::new("packaging/mitra.toml"), SHIPPED)?;
    config.context("packaging/mitra.toml has no table [index]")
}

fn make_dir(dir: &Path) -> Result<()> {
    std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))
}

fn go(args: &IndexArgs, mut config: Config, sink: Box<dyn Sink>, style: &Style) -> Result<()> {
    // Files that were read once are reported; a log would repeat them.
    if !args.service && config.log.file.is_none() {
        config.log.level = config.log.level.min(Level::Warning);
    }
    let archive = crate::recording::readable_dir(&ArchiveArgs { archive: None })?;
    let mut indexer = Indexer::new(config, sink, Clock::Real)?;
    if args.service {
        let mut explained = Explained::new(archive, indexer.host().to_owned(), Clock::Real.now_ns());
        indexer.ask_too(Box::new(move |now_ns| explained.ask(now_ns)));
        signals::catch_stop(Hangup::Stop).context("cannot catch signals")?;
        indexer.run(&STOP);
        return Ok(());
    }
    let report = {
        let _progress = Progress::new("indexing");
        indexer.pass()?
    };
    let host = indexer.host().to_owned();
    if args.json { print_json(&as_json(&host, &report)) } else { out(&in_words(&host, &report, style)) }
}

/// A sink that is still used when the indexer is done with it.
struct Shared(Arc<Mutex<ClusterWriter>>);

impl Shared {
    fn with<T>(&self, f: impl FnOnce(&mut ClusterWriter) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Sink for Shared {
    fn put(&mut self, batch: &Batch<'_>) -> Result<(), Error> {
        self.with(|sink| sink.put(batch))
    }

    fn put_part(&mut self, batch: &Batch<'_>) -> Result<(), Error> {
        self.with(|sink| sink.put_part(batch))
    }

    fn names(&mut self, host: &str) -> Result<BTreeSet<String>, Error> {
        self.with(|sink| sink.names(host))
    }

    fn needs_all(&mut self, host: &str, at_ns: i64) -> bool {
        self.with(|sink| sink.needs_all(host, at_ns))
    }

    fn delete_before(&mut self, day: Day, today: Day, most: usize) -> Result<Deleted, Error> {
        self.with(|sink| sink.delete_before(day, today, most))
    }

    fn messages(&mut self) -> Vec<String> {
        self.with(ClusterWriter::messages)
    }
}

/// A document that would be stored.
struct Would {
    name: String,
    kind: &'static str,
    bytes: Option<usize>,
    flags: Vec<&'static str>,
    withheld: u32,
    keys: Vec<String>,
}

/// Stores nothing and keeps what there is to report.
#[derive(Default)]
struct Dry(Arc<Mutex<Vec<Would>>>);

impl Sink for Dry {
    fn put(&mut self, batch: &Batch<'_>) -> Result<(), Error> {
        let would = batch.documents.iter().map(|d| Would {
            name: d.filename.clone(),
            kind: d.kind.name(),
            bytes: d.content.as_ref().map(String::len),
            flags: d.flags.iter().map(|f| f.name()).collect(),
            withheld: d.withheld.count,
            keys: d.withheld.reasons.iter().chain(&d.withheld.keys).cloned().collect(),
        });
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(would);
        Ok(())
    }

    fn names(&mut self, _host: &str) -> Result<BTreeSet<String>, Error> {
        Ok(BTreeSet::new())
    }

    fn delete_before(&mut self, _day: Day, _today: Day, _most: usize) -> Result<Deleted, Error> {
        Ok(Deleted::All)
    }
}

fn dry_run(mut config: Config, json: bool, style: &Style) -> Result<()> {
    // Nothing is written, not even a log.
    config.log.file = None;
    config.log.level = Level::Error;
    config.retention_days = None;
    let dry = Dry::default();
    let seen = Arc::clone(&dry.0);
    let mut indexer = Indexer::new(config, Box::new(dry), Clock::Real)?;
    let report = {
        let _progress = Progress::new("looking");
        indexer.pass()?
    };
    let would = seen.lock().unwrap_or_else(PoisonError::into_inner);
    if json {
        let documents: Vec<_> = would
            .iter()
            .map(|w| json!({ "filename": w.name, "kind": w.kind, "bytes": w.bytes, "flags": w.flags, "withheld": w.withheld, "keys": w.keys }))
            .collect();
        return print_json(
            &json!({ "host": indexer.host(), "documents": documents, "errors": report.errors, "refused": report.refused }),
        );
    }
    let mut table = Table::of(">BYTES|WITHHELD|WHAT");
    for one in would.iter() {
        let withheld = if one.withheld == 0 {
            String::new()
        } else {
            format!("{} ({})", one.withheld, one.keys.join(", "))
        };
        let flags =
            if one.flags.is_empty() { String::new() } else { format!("  [{}]", one.flags.join(", ")) };
        let bytes = one.bytes.map_or_else(|| "-".to_owned(), |bytes| units::value(bytes as f64, "bytes"));
        table.row([bytes, withheld, format!("{}{flags}", one.name)]);
    }
    out(&format!("{}\n{}", table.render(style), in_words(indexer.host(), &report, style)))
}

fn as_json(host: &str, report: &PassReport) -> serde_json::Value {
    json!({
        "host": host,
        "files": report.files,
        "read": report.read,
        "collected": report.collected,
        "changed": report.changed,
        "gone": report.gone,
        "withheld": report.withheld,
        "errors": report.errors,
        "refused": report.refused,
    })
}

fn in_words(host: &str, report: &PassReport, style: &Style) -> String {
    let mut text = format!(
        "{host}: {} files and {} documents of collectors, {} changed, {} gone\n",
        report.files, report.collected, report.changed, report.gone
    );
    let withheld: BTreeSet<&String> = report.withheld.values().flatten().collect();
    if !withheld.is_empty() {
        let reasons: Vec<&str> = report.withheld.keys().map(String::as_str).collect();
        text.push_str(&format!("withheld in {} of them: {}\n", withheld.len(), reasons.join(", ")));
    }
    for (what, list) in [("not read", &report.errors), ("no answer", &report.refused)] {
        let mut table = Table::of("NAME|WHY");
        list.iter().take(NAMED_MAX).for_each(|(name, why)| table.row([name.clone(), why.clone()]));
        if !list.is_empty() {
            text.push_str(&format!("\n{what}: {}\n{}", list.len(), table.render(style)));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_configuration_is_one() {
        let config = shipped().unwrap();
        assert!(config.files.iter().any(|f| f == "/etc") && config.opensearch.is_none());
    }

    #[test]
    fn what_a_look_found_is_said() {
        let mut report = PassReport { files: 3, collected: 2, changed: 1, ..PassReport::default() };
        report.withheld.insert("password".to_owned(), vec!["/etc/a".to_owned(), "/etc/b".to_owned()]);
        report.errors.insert("/etc/c".to_owned(), "larger than 10 MB".to_owned());
        let text = in_words("web1", &report, &Style::plain(80));
        assert!(
            text.starts_with("web1: 3 files and 2 documents of collectors, 1 changed, 0 gone\n"),
            "{text}"
        );
        assert!(
            text.contains("withheld in 2 of them: password") && text.contains("larger than 10 MB"),
            "{text}"
        );
    }
}
