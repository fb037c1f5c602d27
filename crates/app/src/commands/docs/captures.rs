//! `docs/captures.md`, from the kinds and the comments at the top of their files.

use std::fmt::Write;

use mitra_collect::capture::{COST_BUDGET, EVENTS_MAX, Kind, SECONDS_MAX, kinds};
use mitra_model::capture::Ended;

use super::cell;
use crate::render::units;

/// The page.
#[must_use]
pub fn page() -> String {
    let mut out = String::from(
        "# Captures\n\n\
         Probes that cost too much to run always. `mitra capture KIND` arms one by hand, a rule of\n\
         [the recorder](rules.md) on suspicion; always for a bounded time, a bounded number of events and a bounded cost.\n\
         This page is written by `make docs` from the comments at the top of the files in\n\
         `crates/collect/src/capture/kinds`. `mitra doctor` says which of them a machine allows.\n\n\
         | kind | what it shows | cost | Linux |\n|---|---|---|---|\n",
    );
    for kind in kinds() {
        _ = writeln!(
            out,
            "| [`{0}`](#{0}) | {1} | {2} | {3} |",
            kind.name,
            cell(kind.help),
            cell(kind.cost),
            cell(kind.since)
        );
    }
    _ = write!(
        out,
        "\nCosts were measured on Linux 6.18 in a virtual machine; every capture says its own. The versions are those of the\n\
         tracepoints and helpers that a kind uses; what a kernel lacks of a kind is left out and named in the notes.\n\n\
         ## How a capture ends\n\n"
    );
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
    for (ended, bound) in bounds {
        _ = writeln!(out, "- {}: {bound}", ended.words());
    }
    out.push_str(
        "\nWhat it saw until then is whole. Nothing stays in the kernel. Events for which there was no room are counted as lost.\n\
         Each kind says by what it can be narrowed: `--pid`, `--comm`, `--cgroup` (version 2; with the groups below it), `--min`.\n\
         It is kept in the folder `captures` of the archive and printed with `--show`; `--json` is schema `mitra.capture/1`,\n\
         `--folded` and `--flame` draw the stacks.\n",
    );
    kinds().iter().for_each(|kind| section(&mut out, kind));
    out
}

fn section(out: &mut String, kind: &Kind) {
    let attaches: Vec<String> = kind.attaches.iter().map(|one| format!("`{one}`")).collect();
    _ = write!(out, "\n## {}\n\n{}\n", kind.name, kind.manual().trim_end());
    _ = write!(out, "\nIt attaches to {}. ", attaches.join(", "));
    _ = writeln!(out, "Cost: {}. Linux {}.", kind.cost, kind.since);
    let filters: Vec<String> = kind.filters.iter().map(|name| format!("`--{name}`")).collect();
    _ = writeln!(out, "Narrowed by {}.\n", filters.join(", "));
    _ = writeln!(out, "| column | unit | meaning |\n|---|---|---|");
    for (name, unit, help) in kind.columns {
        _ = writeln!(out, "| {} | {} | {} |", cell(name), unit_name(unit), cell(help));
    }
    if !kind.options.is_empty() {
        out.push('\n');
    }
    for (name, help) in kind.options {
        _ = writeln!(out, "- `--option {name}=…`: {help}");
    }
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
