//! `mitra fleet why`: what hosts with a root cause share, and others lack.

use anyhow::Result;
use mitra_search::answers::association::{Group, LEVEL, Named};
use mitra_search::opensearch::{Shared, shown};
use serde_json::{Value, json};

use super::{cluster, span, time};
use crate::cli::FleetWhyArgs;
use crate::commands::{print as out, print_json};
use crate::progress::Progress;
use crate::render::style::{Style, clean};
use crate::render::table::Table;
use crate::render::units;

/// Members of a group that are named; `--json` has all.
const MEMBERS_MAX: usize = 20;

pub fn run(args: &FleetWhyArgs, style: &Style) -> Result<()> {
    let (since_ns, until_ns) = span(&args.time)?;
    let cluster = cluster(&args.location)?;
    let found = {
        let _progress = Progress::new("comparing hosts");
        cluster.why(&args.root, since_ns, until_ns)?
    };
    if args.json {
        return print_json(&as_json(&args.root, (since_ns, until_ns), &found));
    }
    out(&text(&args.root, &found, style))
}

fn as_json(root: &str, span: (i64, i64), found: &Shared) -> Value {
    let groups: Vec<Value> = found
        .groups
        .iter()
        .map(|group| {
            let mut one = json!(group);
            one["changed"] = json!(changed(group));
            one
        })
        .collect();
    json!({
        "schema": "mitra.fleet.why/1",
        "root": root,
        "since": time(span.0),
        "until": time(span.1),
        "first_onset": time(found.onsets.0),
        "last_onset": time(found.onsets.1),
        "ill": found.ill,
        "ill_known": found.ill_known,
        "well": found.well,
        "compared": found.compared,
        "tests": found.tests,
        "level": LEVEL,
        "left_out": found.left_out,
        "more": found.more,
        "shared": groups,
    })
}

/// `before`, `after` or `no`, seen from the onset.
fn changed(group: &Group) -> &'static str {
    match (group.is_change_before(), group.is_after()) {
        (true, _) => "before",
        (_, true) => "after",
        _ => "no",
    }
}

fn text(root: &str, found: &Shared, style: &Style) -> String {
    let (first, last) = (style.date_clock(found.onsets.0), style.date_clock(found.onsets.1));
    let mut text = format!(
        "{}: {} hosts fell ill between {first} and {last}, {} others did not.\n",
        clean(root),
        found.ill,
        found.well
    );
    match (found.ill as u64).saturating_sub(found.ill_known) {
        0 => {}
        1 => text.push_str("Of 1 ill host there are no documents of its state.\n"),
        unknown => {
            text.push_str(&format!("Of {unknown} ill hosts there are no documents of their state.\n"));
        }
    }
    text.push_str(&format!(
        "{} values of packages, settings and files were compared; {} of them could tell the hosts apart.\n\n",
        units::grouped(found.compared as f64),
        units::grouped(found.tests as f64)
    ));
    if found.groups.is_empty() {
        text.push_str(
            "Nothing sets the ill hosts apart: no value is significantly more frequent among them.\n",
        );
        return text;
    }
    let mut table = Table::of(">ILL|>WELL|>ODDS RATIO|>P|CHANGED|WHAT");
    for group in &found.groups {
        let Some(one) = group.members.first() else { continue };
        let Named { table: counts, odds_ratio, p_corrected, .. } = one;
        table.row([
            format!("{} of {}", counts.ill_with, counts.ill),
            format!("{} of {}", counts.well_with, counts.well),
            units::value(*odds_ratio, ""),
            chance(*p_corrected),
            when(group),
            members(&group.members),
        ]);
    }
    text.push_str(&table.render(style));
    text.push_str(&format!(
        "\nP: Fisher's exact test, one-sided, times {} tests (Bonferroni); below {LEVEL} is significant.\n",
        units::grouped(found.tests as f64)
    ));
    match found.more {
        0 => {}
        1 => text.push_str("1 less significant value is not shown.\n"),
        more => text.push_str(&format!("{more} less significant values are not shown.\n")),
    }
    text
}

/// `1.2e-33`; what a double cannot hold is not zero.
fn chance(p: f64) -> String {
    match p {
        p if p < 1e-300 => "<1e-300".to_owned(),
        p => format!("{p:.1e}"),
    }
}

fn when(group: &Group) -> String {
    let of = |hosts: usize| format!("{hosts} of {}", group.known);
    match (changed(group), group.lead_seconds) {
        ("before", Some(lead)) => {
            format!("{} before it, on {}", units::length(lead), of(group.changed_before))
        }
        ("after", _) => format!("after it, on {}", of(group.changed_after)),
        _ if group.changed_before > 0 => format!("before it, on {}", of(group.changed_before)),
        _ => "no".to_owned(),
    }
}

fn members(all: &[Named]) -> String {
    let one = |named: &Named| format!("{} {}", named.item, shown(&named.item, &named.value));
    let few: Vec<String> = all.iter().take(MEMBERS_MAX).map(one).collect();
    let together = if all.len() > 1 { format!("{} together: ", all.len()) } else { String::new() };
    let more = match all.len().saturating_sub(MEMBERS_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{together}{}{more}", few.join(", "))
}

#[cfg(test)]
mod tests {
    use mitra_search::answers::association::Table as Counts;

    use super::*;

    fn named(item: &str) -> Named {
        Named {
            item: item.to_owned(),
            value: "1.2-3".to_owned(),
            table: Counts { ill_with: 30, ill: 30, well_with: 0, well: 170 },
            odds_ratio: 20_801.0,
            p: 2.6e-36,
            p_corrected: 1.2e-33,
        }
    }

    #[test]
    fn what_is_shared_is_said_with_its_numbers() {
        let deployed = Group {
            members: vec![named("package.libfoo"), named("package.libbar")],
            known: 30,
            changed_before: 30,
            changed_after: 0,
            lead_seconds: Some(720.0),
        };
        let always = Group {
            members: vec![named("kernel.release")],
            changed_before: 0,
            lead_seconds: None,
            ..deployed.clone()
        };
        let mut found = Shared {
            ill: 31,
            ill_known: 30,
            well: 170,
            onsets: (1_795_232_227_000_000_000, 1_795_235_827_000_000_000),
            compared: 2_431,
            tests: 462,
            groups: vec![deployed, always],
            ..Shared::default()
        };
        insta::assert_snapshot!("why", text("disk-hog", &found, &Style::plain(120)));
        let json = as_json("disk-hog", (0, 1), &found);
        assert_eq!(json["shared"][0]["changed"], "before");
        assert_eq!(json["shared"][0]["members"][1]["ill_with"], 30);
        found.groups.clear();
        assert!(text("disk-hog", &found, &Style::plain(120)).contains("Nothing sets the ill hosts apart"));
        assert_eq!(chance(0.0), "<1e-300");
    }
}
