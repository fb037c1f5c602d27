//! `mitra fleet`: incidents of all hosts, which are documents in a cluster.

mod print;
pub mod send;
mod why;

use anyhow::{Result, bail};
use mitra_model::report::Moment;
use mitra_search::opensearch::{
    Cluster, PolicyState, RecordKind, RootGroup, Settings, Wanted, incidents_template, policy,
};
use serde_json::json;

use super::state::location::{self, Location};
use crate::cli::{
    FleetArgs, FleetCommand, FleetIncidentsArgs, FleetListArgs, FleetSetupArgs, FleetTimeArgs,
    IndexLocationArgs,
};
use crate::commands::{print as out, print_json};
use crate::errors::usage;
use crate::render::style::Style;
use crate::values::time::LocalClock;

pub fn run(args: &FleetArgs, style: &Style) -> Result<()> {
    match &args.command {
        FleetCommand::Setup(args) => setup(args),
        FleetCommand::Incidents(args) => incidents(args, style),
        FleetCommand::Findings(args) => groups(args, RecordKind::Finding, style),
        FleetCommand::Roots(args) => groups(args, RecordKind::Incident, style),
        FleetCommand::Why(args) => why::run(args, style),
    }
}

fn cluster(args: &IndexLocationArgs) -> Result<Cluster> {
    match location::find(args)?.1 {
        Location::OpenSearch(settings) => Ok(Cluster::connect(*settings)?),
        Location::Embedded(_) => Err(usage(
            "the incidents of a fleet are in a cluster: name one with --opensearch URL, or in the table [index.opensearch] of \
             /etc/mitra/mitra.toml",
        )),
    }
}

/// The beginning and the end, in nanoseconds.
fn span(args: &FleetTimeArgs) -> Result<(i64, i64)> {
    let here = LocalClock::system();
    let (since, until) = (args.since.resolve(&here), args.until.resolve(&here));
    if since >= until {
        return Err(usage("the time ends before it begins"));
    }
    Ok((since, until))
}

/// RFC 3339 in UTC.
fn time(ns: i64) -> String {
    Moment(ns).to_string()
}

fn setup(args: &FleetSetupArgs) -> Result<()> {
    if args.dry_run {
        // The names do not depend on the cluster, only on the prefix.
        let settings = match location::find(&args.location)?.1 {
            Location::OpenSearch(settings) => *settings,
            Location::Embedded(_) => {
                Settings { nodes: vec!["http://localhost:9200".to_owned()], ..Settings::default() }
            }
        };
        let cluster = Cluster::connect(settings)?;
        let (name, pattern) = (cluster.incidents_name(), cluster.incidents_pattern());
        return print_json(&json!([
            {"method": "PUT", "path": format!("/_index_template/{name}"), "body": incidents_template(&pattern)},
            {"method": "PUT", "path": format!("/_plugins/_ism/policies/{name}"), "body": policy(&pattern, args.keep_days)},
        ]));
    }
    let cluster = cluster(&args.location)?;
    let name = cluster.incidents_name();
    let template = if cluster.install_incidents()? { "installed" } else { "is there" };
    out(&format!("index template {name}: {template}\n"))?;
    match cluster.install_policy(args.keep_days)? {
        PolicyState::Installed => {
            out(&format!("policy {name}: installed, deletes indices after {} days\n", args.keep_days))
        }
        PolicyState::Unchanged => {
            out(&format!("policy {name}: is there, deletes indices after {} days\n", args.keep_days))
        }
        PolicyState::Unsupported => bail!(
            "this cluster has no Index State Management, so nothing deletes old indices {}: in Elasticsearch, attach a \
             lifecycle policy (ILM) to them",
            cluster.incidents_pattern()
        ),
    }
}

fn incidents(args: &FleetIncidentsArgs, style: &Style) -> Result<()> {
    let (root, list_args) = (args.root.as_deref(), &args.list);
    let (since_ns, until_ns) = span(&list_args.time)?;
    let host = list_args.host.as_deref();
    let wanted = Wanted { kind: RecordKind::Incident, since_ns, until_ns, root, host };
    let (total, list) = cluster(&list_args.location)?.records(&wanted, list_args.limit)?;
    if list_args.json {
        let incidents: Vec<_> = list.iter().map(|record| record.to_json()).collect();
        return print_json(&json!({
            "schema": "mitra.fleet.incidents/1", "since": time(since_ns), "until": time(until_ns), "total": total,
            "incidents": incidents,
        }));
    }
    if list.is_empty() {
        eprintln!("mitra: no incident since {}", style.date_clock(since_ns));
        return Ok(());
    }
    out(&print::incidents(&list, total, style))
}

fn groups(args: &FleetListArgs, kind: RecordKind, style: &Style) -> Result<()> {
    let (since_ns, until_ns) = span(&args.time)?;
    let wanted = Wanted { kind, since_ns, until_ns, root: None, host: args.host.as_deref() };
    let found = cluster(&args.location)?.roots(&wanted)?;
    let shown = found.groups.get(..args.limit).unwrap_or(&found.groups);
    let name = if kind == RecordKind::Finding { "findings" } else { "roots" };
    if args.json {
        let list: Vec<_> = shown.iter().map(group_json).collect();
        return print_json(&json!({
            "schema": format!("mitra.fleet.{name}/1"), "since": time(since_ns), "until": time(until_ns),
            "total": found.groups.len(), "partial": found.is_partial, name: list,
        }));
    }
    if found.is_partial {
        eprintln!("mitra: more different ones than are read: ask for a shorter time");
    }
    if shown.is_empty() {
        let what = if kind == RecordKind::Finding { "finding" } else { "incident" };
        eprintln!("mitra: no {what} since {}", style.date_clock(since_ns));
        return Ok(());
    }
    out(&print::groups(shown, found.groups.len(), kind, style))
}

fn group_json(group: &RootGroup) -> serde_json::Value {
    json!({
        "root": group.root,
        "culprit": {"kind": group.culprit.kind, "name": group.culprit.name},
        "hosts": group.hosts,
        "times": group.times,
        "open": group.open,
        "first": time(group.first_ns),
        "last": time(group.last_ns),
        "cost": group.cost,
    })
}
