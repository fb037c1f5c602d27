//! `docs/captures.md`, from the kinds and the comments at the top of their files.

use std::fmt::Write;

use mitra_collect::capture::{COST_BUDGET, EVENTS_MAX, Kind, SECONDS_MAX, kinds};
use mitra_model::capture::Ended;

use super::{cell, filled, rows};
use crate::render::units;

pub fn page() -> String {
    let row = |kind: &&Kind| {
        let texts = [kind.help, kind.cost, kind.since].map(cell).join(" | ");
        format!("| [`{0}`](#{0}) | {texts} |", kind.name)
    };
    let bounds = [
        (Ended::Time, format!("`--seconds`, {} at most", units::length(SECONDS_MAX))),
        (Ended::Events, format!("`--events`, {} unless said", units::grouped(EVENTS_MAX as f64))),
        (
            Ended::Cost,
            format!(
                "`--budget`, {:.0} % of one CPU over the whole time unless said; where the kernel does not measure it \
                 (CAP_SYS_ADMIN), by how often its programs ran, at the most that they took elsewhere",
                COST_BUDGET * 100.0
            ),
        ),
        (Ended::Stopped, "Ctrl-C, or the recorder ends".to_owned()),
        (Ended::Gone, "of `--pid`".to_owned()),
        (Ended::Failed("…".to_owned()), "what it saw until then is kept".to_owned()),
    ];
    let sections: String = kinds().iter().map(|kind| section(kind)).collect();
    filled(
        include_str!("captures.md"),
        &[
            ("kinds", &rows(kinds(), row)),
            ("ends", &rows(&bounds, |(ended, bound)| format!("- {}: {bound}", ended.words()))),
            ("sections", &sections),
        ],
    )
}

fn section(kind: &Kind) -> String {
    let attaches: Vec<String> = kind.attaches.iter().map(|one| format!("`{one}`")).collect();
    let mut out = format!("\n## {}\n\n{}\n", kind.name, kind.manual().trim_end());
    _ = write!(out, "\nIt attaches to {}. ", attaches.join(", "));
    _ = writeln!(out, "Cost: {}. Linux {}.", kind.cost, kind.since);
    let filters: Vec<String> = kind.filters.iter().map(|name| format!("`--{name}`")).collect();
    let narrowed = match filters.as_slice() {
        [] => "It is always of the whole machine".to_owned(),
        filters => format!("Narrowed by {}", filters.join(", ")),
    };
    _ = writeln!(out, "{narrowed}.\n");
    _ = writeln!(out, "| column | unit | meaning |\n|---|---|---|");
    let column = |(name, unit, help): &(&str, &str, &str)| {
        format!("| {} | {} | {} |", cell(name), unit_name(unit), cell(help))
    };
    out.push_str(&rows(kind.columns, column));
    if !kind.options.is_empty() {
        out.push('\n');
    }
    out.push_str(&rows(kind.options, |(name, help)| format!("- `--option {name}=…`: {help}")));
    out
}

fn unit_name(unit: &str) -> &str {
    match unit {
        "" => "text",
        "1" => "number",
        "B" => "bytes",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_section_with_its_columns() {
        let page = page();
        for kind in kinds() {
            let (_, section) = page.split_once(&format!("\n## {}\n", kind.name)).expect(kind.name);
            let section = section.split("\n## ").next().unwrap_or_default();
            assert!(section.contains("What it answers: "), "{}", kind.name);
            for (name, ..) in kind.columns {
                assert!(section.contains(&format!("| {name} | ")), "{}: {name}", kind.name);
            }
        }
    }
}
