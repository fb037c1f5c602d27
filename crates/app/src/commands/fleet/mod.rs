//! `mitra fleet`: incidents of all hosts, which are documents in a cluster.

mod print;
pub mod send;
mod why;

use anyhow::{Result, bail};
use mitra_model::report::Moment;
use mitra_search::opensearch::{
    Cluster, FleetCulprit, FleetGroup, GroupBy, GroupKey, PolicyState, RecordKind, Settings, Wanted,
    incidents_template, policy,
};
use serde_json::json;

use super::state::location::{self, Location};
use crate::cli::{FleetArgs, FleetCommand, FleetListArgs, FleetSetupArgs, FleetTimeArgs, IndexLocationArgs};
use crate::commands::{print as out, print_json};
use crate::errors::usage;
use crate::render::style::Style;
use crate::values::time::LocalClock;

pub fn run(args: &FleetArgs, style: &Style) -> Result<()> {
    match &args.command {
        FleetCommand::Setup(args) => setup(args),
        FleetCommand::Incidents(args) if args.by.is_none() => incidents(args, style),
        FleetCommand::Incidents(args) => groups(args, RecordKind::Incident, style),
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

fn incidents(args: &FleetListArgs, style: &Style) -> Result<()> {
    let (since_ns, until_ns) = span(&args.time)?;
    let (root, host) = (args.root.as_deref(), args.host.as_deref());
    let wanted = Wanted { kind: RecordKind::Incident, since_ns, until_ns, root, host };
    let (total, list) = cluster(&args.location)?.records(&wanted, args.limit)?;
    if args.json {
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
    let (root, host) = (args.root.as_deref(), args.host.as_deref());
    let wanted = Wanted { kind, since_ns, until_ns, root, host };
    let by = args.by.as_ref().unwrap_or(&GroupBy::Root);
    let found = cluster(&args.location)?.groups(&wanted, by)?;
    let shown = found.groups.get(..args.limit).unwrap_or(&found.groups);
    if args.json {
        let list: Vec<_> = shown.iter().map(group_json).collect();
        let name = match (by, kind) {
            (GroupBy::Root, RecordKind::Incident) => "roots",
            (GroupBy::Root, RecordKind::Finding) => "findings",
            _ => "groups",
        };
        let mut all = json!({
            "schema": format!("mitra.fleet.{name}/1"), "since": time(since_ns), "until": time(until_ns),
            "total": found.groups.len(), "partial": found.is_partial, name: list,
        });
        if *by != GroupBy::Root {
            all["kind"] = json!(kind.name());
            all["by"] = json!(by.name());
            if let GroupBy::Package(name) = by {
                all["package"] = json!(name);
            }
            if let Some(hosts) = found.hosts {
                all["hosts"] = json!(hosts);
            }
        }
        return print_json(&all);
    }
    if found.is_partial {
        eprintln!("mitra: more different ones than are read: ask for a shorter time");
    }
    if shown.is_empty() {
        eprintln!("mitra: {}", print::none(found.hosts, kind, &style.date_clock(since_ns)));
        return Ok(());
    }
    out(&print::groups(shown, &found, kind, by, style))
}

fn group_json(group: &FleetGroup) -> serde_json::Value {
    let culprit = |of: &FleetCulprit| json!({"kind": of.kind, "name": of.name});
    let mut one = match &group.key {
        GroupKey::Root(root, of) => json!({"root": root, "culprit": culprit(of)}),
        GroupKey::Culprit(of) => json!({"culprit": culprit(of)}),
        GroupKey::Kernel(release) => json!({"kernel": release}),
        GroupKey::Version(version) => json!({"version": version, "installed": version.is_some()}),
        GroupKey::Change(item, value) => json!({"item": item, "value": value}),
        GroupKey::Unknown => json!({"unknown": true}),
    };
    one["hosts"] = json!(group.hosts);
    one["times"] = json!(group.times);
    one["open"] = json!(group.open);
    one["first"] = json!(time(group.first_ns));
    one["last"] = json!(time(group.last_ns));
    one["cost"] = json!(group.cost);
    if !matches!(group.key, GroupKey::Root(..)) {
        let roots = group.roots.iter().map(|(root, times)| json!({"root": root, "times": times}));
        one["roots"] = roots.collect();
    }
    one
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_group_says_what_it_is_and_its_numbers() {
        let group = |key: GroupKey| {
            let (first_ns, last_ns) = (1_795_232_227_000_000_000, 1_795_232_228_000_000_000);
            let roots = vec![("oom-kill".to_owned(), 3)];
            group_json(&FleetGroup { key, hosts: 2, times: 3, open: 1, first_ns, last_ns, cost: None, roots })
        };
        let dd = FleetCulprit { name: Some("dd".to_owned()), ..FleetCulprit::default() };
        let root = group(GroupKey::Root("oom-kill".to_owned(), dd.clone()));
        assert_eq!((&root["root"], &root["culprit"]["name"]), (&json!("oom-kill"), &json!("dd")));
        assert_eq!(root.get("roots"), None, "as it was before there were other groups");
        assert_eq!(group(GroupKey::Culprit(dd))["culprit"]["name"], "dd");
        assert_eq!(group(GroupKey::Kernel("6.1".to_owned()))["kernel"], "6.1");
        let missing = group(GroupKey::Version(None));
        assert_eq!((&missing["version"], &missing["installed"]), (&json!(null), &json!(false)));
        let change = group(GroupKey::Change("package.a".to_owned(), Some("2".to_owned())));
        assert_eq!((&change["item"], &change["value"]), (&json!("package.a"), &json!("2")));
        assert_eq!(change["roots"], json!([{"root": "oom-kill", "times": 3}]));
        let unknown = group(GroupKey::Unknown);
        assert_eq!(
            (&unknown["unknown"], &unknown["hosts"], &unknown["cost"]),
            (&json!(true), &json!(2), &json!(null))
        );
        assert!(unknown["last"].as_str().unwrap().starts_with("2026-11-21T03:37:08"), "{unknown}");
    }
}
