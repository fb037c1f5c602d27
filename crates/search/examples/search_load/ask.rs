//! The same queries in process and through a cluster's HTTP: how long each takes, and whether both find as many.

use std::path::Path;
use std::time::Instant;

use mitra_search::embedded::Index;
use mitra_search::opensearch::Cluster;
use mitra_search::query::Settings;
use mitra_search::{Day, Error, Query, Scope};
use serde_json::{Value, json};

use crate::FIRST_DAY;
use crate::hosts::DAYS;

/// Measured rounds over all queries, and those before, in which the cluster's machine compiles what is asked often.
const ROUNDS: usize = 20;
const WARM_UP: usize = 10;
/// Hits that are listed.
const LIMIT: usize = 10;

/// Of every construct of the language, more of what people ask most.
pub const QUERIES: &[&str] = &[
    "maxtime",
    "cachesize",
    "serverlog",
    "proxyssl",
    "netlogkey",
    "nowhere",
    "content:userpath",
    "TimeOut",
    "10.17.4.211",
    "time.log",
    "con log",
    "maxtime netkey",
    "maxtime AND netkey",
    "timeout AND NOT cachemax",
    "+serverkey -memfile userval",
    "(maxtime OR netkey) AND (sslkey OR cachelog)",
    "maxtime OR netkey AND sslkey",
    "NOT con",
    "con AND time AND log AND xy",
    "(userlog OR userdir OR userkey OR userval) AND NOT (pathkey OR pathval)",
    "\"con log\"",
    "\"time log\" AND maxtime",
    "\"user con time\"",
    "\"etc con\"",
    "\"maxtime on\"",
    "\"con xy\"~3",
    "\"time maxtime\"~10",
    "netk*",
    "cachel*",
    "user*",
    "content:serverm*",
    "m?xtime",
    "max*key",
    "*sizekey",
    "*keyval*",
    "maxtine~1",
    "cachesise~",
    "servrlog~2",
    "/max(file|dir)/",
    "/net(log|key)(con|ser)/",
    "/cache[a-m]+/",
    "content:[maxa TO maxd]",
    "content:{userk TO userl}",
    "host:host017",
    "host:host01*",
    "host:host01* AND maxtime",
    "filename:\"/etc/app7.conf\"",
    "filename:\"/etc/app7.conf\" AND content:maxtime",
    "filename:\\/etc\\/app1*",
    "filename:/.*app[12]3.conf/",
    "size:>2100",
    "size:[2050 TO 2060] AND netkey",
    "mtime:[2025-01-01 TO 2025-06-30]",
    "mtime:>2026-01-01 AND cachesize",
    "kind:file AND mode:0644 AND netlogkey",
    "user:root AND NOT group:wheel AND sslcache",
    "sysctl.vm.swappiness:[20 TO 50]",
    "package.zsh:5.9",
    "NOT package.zsh:*",
    "*:*",
];

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or_default()
}

struct Asked<'a> {
    text: &'a str,
    found: (u64, u64),
    same: bool,
    embedded_us: Vec<f64>,
    cluster_us: Vec<f64>,
}

/// Asks both sides in turns, or one alone.
pub fn each(dir: &Path, cluster: Option<&Cluster>, all_days: bool) -> Result<Value, Error> {
    let mut opening = Vec::new();
    for _ in 0..ROUNDS {
        let at = Instant::now();
        Index::open(dir)?;
        opening.push(at.elapsed().as_secs_f64() * 1e6);
    }
    let index = Index::open(dir)?;
    let last = Day(FIRST_DAY.0 + DAYS - 1);
    let scope = if all_days { Scope::Days { first: FIRST_DAY, last } } else { Scope::day(FIRST_DAY) };
    let settings = Settings { now_ns: last.end_ns(), ..Settings::default() };
    let asked =
        |text| Asked { text, found: (0, 0), same: true, embedded_us: Vec::new(), cluster_us: Vec::new() };
    let mut all: Vec<Asked<'_>> = QUERIES.iter().map(|text| asked(*text)).collect();
    for round in 0..WARM_UP + ROUNDS {
        for one in &mut all {
            let at = Instant::now();
            let found = index.search(&Query::parse(one.text, settings)?, scope, LIMIT)?;
            let embedded = at.elapsed();
            one.found.0 = found.total;
            if round >= WARM_UP {
                one.embedded_us.push(embedded.as_secs_f64() * 1e6);
            }
            let Some(cluster) = cluster else { continue };
            let at = Instant::now();
            let also = cluster.search(&Query::parse(one.text, settings)?, scope, LIMIT)?;
            let other = at.elapsed();
            one.same &= found == also;
            one.found.1 = also.total;
            if round >= WARM_UP {
                one.cluster_us.push(other.as_secs_f64() * 1e6);
            }
        }
    }
    let rows: Vec<Value> = all
        .iter_mut()
        .map(|one| {
            json!({"query": one.text, "embedded": one.found.0, "cluster": one.found.1, "same": one.same,
                   "embedded_us": median(&mut one.embedded_us), "cluster_us": median(&mut one.cluster_us)})
        })
        .collect();
    Ok(json!({"rounds": ROUNDS, "opening_us": median(&mut opening), "queries": rows}))
}
