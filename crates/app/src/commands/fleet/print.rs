//! Incidents of a fleet as tables.

use mitra_search::answers::association::HOSTS_MIN;
use mitra_search::opensearch::{
    FleetCulprit, FleetGroup, FleetGroups, GroupBy, GroupKey, Record, RecordKind,
};

use crate::render::style::{Style, clean};
use crate::render::table::Table;
use crate::render::units;

pub fn incidents(list: &[Record], total: u64, style: &Style) -> String {
    let mut table = Table::of("BEGAN|>LENGTH|HOST|>COST|ROOT CAUSE|CULPRIT");
    for one in list {
        let seconds = |end: i64| end.saturating_sub(one.begin_ns) as f64 / 1e9;
        table.row([
            style.date_clock(one.begin_ns),
            one.end_ns.map_or_else(|| "goes on".to_owned(), |end| units::length(seconds(end))),
            one.host.clone(),
            cost(one.cost),
            one.root.clone(),
            culprit(&one.culprit),
        ]);
    }
    let mut text = table.render(style);
    if (list.len() as u64) < total {
        text.push_str(&format!("{} of {total} incidents; more with --limit\n", list.len()));
    }
    text
}

/// What is said where there is no group.
pub fn none(hosts: Option<u64>, kind: RecordKind, since: &str) -> String {
    let what = if kind == RecordKind::Finding { "finding" } else { "incident" };
    match hosts {
        Some(hosts @ 1..) => {
            format!("nothing changed within a day before the first {what} on {}", hosts_of(hosts))
        }
        _ => format!("no {what} since {since}"),
    }
}

fn hosts_of(count: u64) -> String {
    if count == 1 { "1 host".to_owned() } else { format!("{count} hosts") }
}

pub fn groups(
    list: &[FleetGroup],
    found: &FleetGroups,
    kind: RecordKind,
    by: &GroupBy,
    style: &Style,
) -> String {
    let is_incident = kind == RecordKind::Incident;
    // Nobody suffers from a finding yet, and it has no end.
    let (numbers, who, root, roots) = if is_incident {
        (">HOSTS|>TIMES|>GO ON|FIRST|LAST|>COST", "CULPRIT", "ROOT CAUSE", "ROOT CAUSES")
    } else {
        (">HOSTS|>DAYS|FIRST|LAST", "WHAT", "FINDING", "FINDINGS")
    };
    let [first, second] = match by {
        GroupBy::Root => [root, who],
        GroupBy::Culprit => [who, roots],
        GroupBy::Kernel => ["KERNEL", roots],
        GroupBy::Package(_) => ["VERSION", roots],
        GroupBy::Change => ["CHANGED", roots],
    };
    let mut table = Table::of(&format!("{numbers}|{first}|{second}"));
    for group in list {
        let mut row = vec![group.hosts.to_string(), group.times.to_string()];
        if is_incident {
            row.push(group.open.to_string());
        }
        row.extend([style.date_clock(group.first_ns), style.date_clock(group.last_ns)]);
        if is_incident {
            row.push(cost(group.cost));
        }
        row.extend(match &group.key {
            GroupKey::Root(root, of) => [root.clone(), culprit(of)],
            key => [shared(key), roots_of(&group.roots)],
        });
        table.row(row);
    }
    let mut text = match list.first() {
        Some(first) if is_incident => headline(first, style),
        _ => String::new(),
    };
    text.push_str(&table.render(style));
    let total = found.groups.len();
    if list.len() < total {
        text.push_str(&format!("{} of {total}; more with --limit\n", list.len()));
    }
    let hosts = hosts_of(found.hosts.unwrap_or_default());
    let note = match (by, list.first()) {
        (GroupBy::Root, Some(FleetGroup { key: GroupKey::Root(root, _), hosts: HOSTS_MIN.., .. }))
            if is_incident =>
        {
            format!("what these hosts have in common: mitra fleet why {root}")
        }
        (GroupBy::Package(name), _) => format!("{hosts} in all; the version of {name} that each had then"),
        (GroupBy::Change, _) => format!(
            "{hosts} in all; changes of the day before the first time on each; what well hosts lack: mitra fleet why ROOT"
        ),
        _ => return text,
    };
    text.push_str(&clean(&note));
    text.push('\n');
    text
}

/// The root that is on most hosts, if it is on several.
fn headline(first: &FleetGroup, style: &Style) -> String {
    let GroupKey::Root(root, of) = &first.key else { return String::new() };
    if first.hosts < 2 {
        return String::new();
    }
    let who = culprit(of);
    let who = if who.is_empty() { String::new() } else { format!(", {who}") };
    let since = style.date_clock(first.first_ns);
    format!("{}\n\n", clean(&format!("{root}{who}: on {} hosts since {since}", first.hosts)))
}

/// What the members of a group share, in words.
fn shared(key: &GroupKey) -> String {
    match key {
        GroupKey::Root(root, _) => root.clone(),
        GroupKey::Culprit(of) => culprit(of),
        GroupKey::Kernel(release) => release.clone(),
        GroupKey::Version(version) => version.clone().unwrap_or_else(|| "not installed".to_owned()),
        GroupKey::Change(item, Some(value)) => format!("{item} {value}"),
        GroupKey::Change(item, None) => item.clone(),
        GroupKey::Unknown => "unknown".to_owned(),
    }
}

fn roots_of(roots: &[(String, u64)]) -> String {
    let one = |(root, times): &(String, u64)| format!("{root} {times}");
    roots.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// What was not measured is a dash, and not zero.
fn cost(seconds: Option<f64>) -> String {
    seconds.map_or_else(|| "-".to_owned(), |s| units::task_seconds(s).replace("task-seconds", "task-s"))
}

fn culprit(culprit: &FleetCulprit) -> String {
    let name = match (culprit.kind.as_deref(), &culprit.name) {
        (Some("process") | None, Some(name)) => name.clone(),
        (Some(kind), Some(name)) => format!("{kind} {name}"),
        (_, None) => String::new(),
    };
    match &culprit.group {
        Some(group) if *group != name && culprit.kind.as_deref() != Some("cgroup") => {
            format!("{name} in {group}")
        }
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGAN: i64 = 1_795_232_227_000_000_000;

    fn record() -> Record {
        Record {
            kind: RecordKind::Incident,
            key: String::new(),
            host: "web1".to_owned(),
            begin_ns: BEGAN,
            end_ns: Some(BEGAN + 64_000_000_000),
            root: "disk-hog".to_owned(),
            unexplained: false,
            culprit: FleetCulprit {
                kind: Some("process".to_owned()),
                name: Some("dd".to_owned()),
                group: Some("backup.service".to_owned()),
            },
            confidence: 0.9,
            strength: None,
            cost: Some(3_010.0),
            line: String::new(),
            kernel: None,
            mitra: "0.2.0".to_owned(),
            tags: Vec::new(),
        }
    }

    #[test]
    fn incidents_and_roots_are_tables() {
        let open = Record {
            host: "db2".to_owned(),
            end_ns: None,
            cost: None,
            culprit: FleetCulprit::default(),
            ..record()
        };
        insta::assert_snapshot!("incidents", incidents(&[record(), open], 40, &Style::plain(100)));
        let group = FleetGroup {
            key: GroupKey::Root("disk-hog".to_owned(), record().culprit),
            hosts: 40,
            times: 41,
            open: 2,
            first_ns: BEGAN,
            last_ns: BEGAN + 3_600_000_000_000,
            cost: Some(12_345.0),
            roots: Vec::new(),
        };
        let shown = |group: &FleetGroup, hosts: Option<u64>, by: &GroupBy| {
            let found = FleetGroups { groups: vec![group.clone()], hosts, is_partial: false };
            groups(&found.groups, &found, RecordKind::Incident, by, &Style::plain(160))
        };
        insta::assert_snapshot!("roots", shown(&group, None, &GroupBy::Root));
        let version = GroupKey::Version(Some("3.0.15-1".to_owned()));
        let roots = vec![("disk-hog".to_owned(), 40), ("oom-kill".to_owned(), 1)];
        let group = FleetGroup { key: version, roots, ..group };
        let by = GroupBy::Package("openssl".to_owned());
        insta::assert_snapshot!("versions", shown(&group, Some(41), &by));
        let change = |item: &str, value: Option<&str>| FleetGroup {
            key: GroupKey::Change(item.to_owned(), value.map(str::to_owned)),
            ..group.clone()
        };
        let text = shown(&change("package.openssl", Some("3.0.15-1")), Some(1), &GroupBy::Change);
        assert!(
            text.contains("package.openssl 3.0.15-1  disk-hog 40, oom-kill 1\n1 host in all; "),
            "{text}"
        );
        let text = shown(&change("/etc/fstab", None), Some(41), &GroupBy::Change);
        assert!(text.contains("/etc/fstab  disk-hog 40") && text.contains("\n41 hosts in all; "), "{text}");
        assert_eq!(none(Some(0), RecordKind::Finding, "x"), "no finding since x");
        assert!(none(Some(1), RecordKind::Incident, "x").ends_with("before the first incident on 1 host"));
    }
}
