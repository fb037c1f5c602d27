//! Where the index is, and which state of it is meant.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use jiff::tz::TimeZone;
use mitra_search::embedded::Index;
use mitra_search::indexer::Config;
use mitra_search::indexer::config::{OpenSearchConfig, SPREAD_S};
use mitra_search::opensearch::{Cluster, Settings};
use mitra_search::query::{Query, Settings as Reading};
use mitra_search::{Backend, Day, Scope};

use crate::cli::{IndexLocationArgs, ScopeArgs};
use crate::errors::usage;
use crate::escalation::settings;
use crate::recording;
use crate::render::style::clean;
use crate::values::time::{LocalClock, TimeExpr};

/// Where the first Mitra had it. Where there is one, it is the configuration of the indexer.
const FIRST_CONFIG: &str = "/etc/mitra/index.yaml";

#[derive(Debug)]
pub enum Location {
    /// The folder of an embedded index.
    Embedded(PathBuf),
    OpenSearch(Box<Settings>),
}

/// The configuration, and where the index is: by a flag, by the configuration, or the default.
pub fn find(args: &IndexLocationArgs) -> Result<(Option<Config>, Location)> {
    let config = match &args.config {
        Some(file) => match Config::load(file)? {
            Some(config) => Some(config),
            None => return Err(usage(format!("{}: it has no table [index]", file.display()))),
        },
        None => usual_config()?,
    };
    let location = if let Some(dir) = &args.store {
        Location::Embedded(
            std::path::absolute(dir).with_context(|| format!("cannot tell where {} is", dir.display()))?,
        )
    } else if !args.opensearch.is_empty() {
        Location::OpenSearch(Box::new(of_flags(args)))
    } else {
        match &config {
            Some(Config { opensearch: Some(cluster), prefix, .. }) => {
                Location::OpenSearch(Box::new(of_config(cluster, prefix)))
            }
            Some(Config { store: Some(dir), .. }) => Location::Embedded(dir.clone()),
            _ => Location::Embedded(usual_dir()?),
        }
    };
    Ok((config, location))
}

fn usual_config() -> Result<Option<Config>> {
    let there = [FIRST_CONFIG, settings::FILE].map(Path::new).into_iter().find(|path| path.exists());
    Ok(there.map(Config::load).transpose()?.flatten())
}

/// The cluster that a configuration names, and the host's name in its index. `file` is the usual one
/// if it is not given or says nothing of an index.
pub fn cluster(file: Option<&Path>) -> Result<Option<(Settings, Option<String>)>> {
    let given = file.filter(|file| file.exists()).map(Config::load).transpose()?.flatten();
    let config = given.map_or_else(usual_config, |config| Ok(Some(config)))?;
    Ok(config.and_then(|config| {
        let cluster = config.opensearch.as_ref()?;
        Some((of_config(cluster, &config.prefix), config.host))
    }))
}

/// Says which configuration is not read, where there are two.
pub fn say_if_two_configs(args: &IndexLocationArgs) {
    let two =
        || Path::new(FIRST_CONFIG).exists() && matches!(Config::load(Path::new(settings::FILE)), Ok(Some(_)));
    if args.config.is_none() && two() {
        eprintln!("mitra: {FIRST_CONFIG} is read, so the table [index] of {} is not", settings::FILE);
    }
}

fn of_flags(args: &IndexLocationArgs) -> Settings {
    // What other hosts do is not known here; most have the default.
    let spread = Duration::from_secs(SPREAD_S);
    let mut settings = Settings { nodes: args.opensearch.clone(), spread, ..Settings::default() };
    if let Some(prefix) = &args.prefix {
        settings.prefix.clone_from(prefix);
    }
    settings.user.clone_from(&args.user);
    settings.password_file.clone_from(&args.password_file);
    settings.api_key_file.clone_from(&args.api_key_file);
    settings.ca_file.clone_from(&args.ca_file);
    settings.insecure = args.insecure;
    settings
}

fn of_config(cluster: &OpenSearchConfig, prefix: &str) -> Settings {
    Settings {
        nodes: cluster.nodes.clone(),
        prefix: prefix.to_owned(),
        user: cluster.user.clone(),
        password_file: cluster.password_file.clone(),
        api_key_file: cluster.api_key_file.clone(),
        ca_file: cluster.ca_file.clone(),
        insecure: cluster.insecure,
        spread: Duration::from_secs(cluster.spread_s),
        shards: cluster.shards,
        ..Settings::default()
    }
}

/// Beside the usual archive, whichever recording is looked at.
pub fn usual_dir() -> Result<PathBuf> {
    Ok(recording::usual_readable_dir()?.join("index"))
}

pub fn open(args: &IndexLocationArgs) -> Result<Backend> {
    match find(args)?.1 {
        Location::Embedded(dir) => {
            if !dir.is_dir() {
                anyhow::bail!("{}: no index here; make one with: mitra index --store {0}", dir.display());
            }
            Ok(Backend::Embedded(Index::open(&dir)?))
        }
        Location::OpenSearch(settings) => Ok(Backend::OpenSearch(Cluster::connect(*settings)?)),
    }
}

/// Tells whoever asks about hosts that this index has one.
pub fn say_if_one_host(backend: &Backend) -> Result<()> {
    let all = Scope::Days { first: Day(i32::MIN), last: Day(i32::MAX) };
    if let Backend::Embedded(index) = backend
        && let [one] = &*index.hosts(&Query::all(), all)?.into_iter().collect::<Vec<_>>()
    {
        eprintln!(
            "mitra: this index knows one host, {}; many are asked in a cluster: --opensearch URL",
            clean(one)
        );
    }
    Ok(())
}

/// The day of a time. Days are of UTC, whatever the local zone is.
fn day(time: &TimeExpr, here: &LocalClock) -> Day {
    match time {
        TimeExpr::Day(day) => Day::of(day.resolve(&LocalClock { now: here.now, zone: TimeZone::UTC })),
        other => Day::of(other.resolve(here)),
    }
}

/// The state that is meant. By default today's, or that of the last day with documents, which is
/// reported.
pub fn scope(args: &ScopeArgs, changed: bool, backend: &Backend, here: &LocalClock) -> Result<Scope> {
    let moment = |time: &TimeExpr| time.resolve(here);
    if let Some(at) = &args.at {
        return Ok(Scope::At { ns: moment(at) });
    }
    let until = args.until.as_ref().map_or(here.now, moment);
    let since = args.since.as_ref().map(moment);
    if let Some(on) = args.on {
        let day = day(&TimeExpr::Day(on), here);
        return Ok(match changed {
            true => Scope::Changed { since_ns: day.start_ns(), until_ns: day.end_ns() },
            false => Scope::day(day),
        });
    }
    if changed {
        let since_ns = since.unwrap_or_else(|| Day::of(until).start_ns());
        if since.is_some_and(|since| since >= until) {
            return Err(usage("the time ends before it begins"));
        }
        return Ok(Scope::Changed { since_ns, until_ns: until });
    }
    let last = args.until.as_ref().map_or(Day::of(here.now), |until| day(until, here));
    if let Some(since) = &args.since {
        let first = day(since, here);
        // The last day is included.
        if first > last {
            return Err(usage("the time ends before it begins"));
        }
        return Ok(Scope::Days { first, last });
    }
    if args.until.is_some() {
        return Ok(Scope::day(last));
    }
    let today = Day::of(here.now);
    match backend.days()? {
        Some((_, last)) if last < today => {
            eprintln!("mitra: nothing is indexed of today; this is {last}");
            Ok(Scope::day(last))
        }
        _ => {
            if let Backend::OpenSearch(cluster) = backend
                && let Some(until) = filling(cluster.spread(), here.now)
            {
                eprintln!("mitra: hosts report of {today} until {until} UTC; --at now has all of them");
            }
            Ok(Scope::day(today))
        }
    }
}

/// The time of day until which hosts fill the index of the day; `None` when it is over.
fn filling(spread: Duration, now_ns: i64) -> Option<String> {
    let into_day = Duration::from_nanos(u64::try_from(now_ns - Day::of(now_ns).start_ns()).ok()?);
    let minutes = spread.as_secs().div_ceil(60);
    (into_day < spread).then(|| format!("{:02}:{:02}", minutes / 60, minutes % 60))
}

/// The query, or all documents. Warnings go to standard error.
pub fn query(text: Option<&str>, all_words: bool, here: &LocalClock) -> Result<Query> {
    let Some(text) = text else { return Ok(Query::all()) };
    let query = match Query::parse(text, Reading { now_ns: here.now, all_words }) {
        Ok(query) => query,
        Err(mistake) => return Err(usage(mistake.shown(text))),
    };
    for warning in &query.warnings {
        eprintln!("mitra: {}", warning.shown(text));
    }
    Ok(query)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cluster_of_a_configuration_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("mitra.toml");
        let text = "[index]\nfiles = [\"/etc\"]\nhost = \"web1\"\n[index.opensearch]\nnodes = [\"http://127.0.0.1:9200\"]\n";
        std::fs::write(&file, text).unwrap();
        let (settings, host) = cluster(Some(&file)).unwrap().unwrap();
        assert_eq!((settings.nodes[0].as_str(), host.as_deref()), ("http://127.0.0.1:9200", Some("web1")));
        std::fs::write(&file, "[index]\nfiles = [\"/etc\"]\n").unwrap();
        assert!(cluster(Some(&file)).unwrap().is_none());
    }

    #[test]
    fn a_day_is_filled_until_the_hosts_moments_are_over() {
        let (midnight, hour) = (Day(20_700).start_ns(), Duration::from_secs(3_600));
        assert_eq!(filling(hour, midnight + 59 * 60_000_000_000).as_deref(), Some("01:00"));
        assert_eq!(filling(hour, midnight + 3_600_000_000_000), None);
        assert_eq!(filling(Duration::ZERO, midnight), None);
    }

    #[test]
    fn a_day_is_one_of_utc_whatever_the_local_zone_is() {
        // 2026-11-21 23:30 UTC, when it is the 22nd in Berlin.
        let now = 1_795_303_800_000_000_000;
        let berlin = LocalClock { now, zone: TimeZone::fixed(jiff::tz::offset(1)) };
        for (text, wanted) in [
            ("today", "2026-11-21"),
            ("yesterday", "2026-11-20"),
            ("2026-11-19", "2026-11-19"),
            ("24h", "2026-11-20"),
            ("2026-11-20 00:30", "2026-11-19"),
        ] {
            assert_eq!(day(&text.parse().unwrap(), &berlin), wanted.parse().unwrap(), "{text}");
        }
    }
}
