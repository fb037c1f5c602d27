//! Incidents of a fleet as tables.

use mitra_search::answers::association::HOSTS_MIN;
use mitra_search::opensearch::{FleetCulprit, Record, RecordKind, RootGroup};

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

pub fn groups(list: &[RootGroup], total: usize, kind: RecordKind, style: &Style) -> String {
    let mut text = String::new();
    if let Some(first) = list.first().filter(|g| g.hosts > 1 && kind == RecordKind::Incident) {
        let who = culprit(&first.culprit);
        let who = if who.is_empty() { String::new() } else { format!(", {who}") };
        let since = style.date_clock(first.first_ns);
        text = clean(&format!("{}{who}: on {} hosts since {since}", first.root, first.hosts)).into_owned();
        text.push_str("\n\n");
    }
    let is_incident = kind == RecordKind::Incident;
    // Nobody suffers from a finding yet, and it has no end.
    let mut table = Table::of(if is_incident {
        ">HOSTS|>TIMES|>GO ON|FIRST|LAST|>COST|ROOT CAUSE|CULPRIT"
    } else {
        ">HOSTS|>DAYS|FIRST|LAST|FINDING|WHAT"
    });
    for group in list {
        let mut row = vec![group.hosts.to_string(), group.times.to_string()];
        if is_incident {
            row.push(group.open.to_string());
        }
        row.extend([style.date_clock(group.first_ns), style.date_clock(group.last_ns)]);
        if is_incident {
            row.push(cost(group.cost));
        }
        row.extend([group.root.clone(), culprit(&group.culprit)]);
        table.row(row);
    }
    text.push_str(&table.render(style));
    if list.len() < total {
        text.push_str(&format!("{} of {total}; more with --limit\n", list.len()));
    }
    if let Some(first) = list.first().filter(|g| is_incident && g.hosts >= HOSTS_MIN) {
        text.push_str(&clean(&format!("what these hosts have in common: mitra fleet why {}", first.root)));
        text.push('\n');
    }
    text
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
        let group = RootGroup {
            root: "disk-hog".to_owned(),
            culprit: record().culprit,
            hosts: 40,
            times: 41,
            open: 2,
            first_ns: BEGAN,
            last_ns: BEGAN + 3_600_000_000_000,
            cost: Some(12_345.0),
        };
        insta::assert_snapshot!("roots", groups(&[group], 1, RecordKind::Incident, &Style::plain(120)));
    }
}
