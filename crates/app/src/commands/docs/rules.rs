//! `docs/rules.md`, from the language, the keys of the file and the table of suspicions.

use std::fmt::Write;

use mitra_rules::ast::{Function, GroupBy, Measures, UNITS};
use mitra_rules::keys::keys;
use mitra_rules::parser;
use mitra_rules::rule::PLACEHOLDERS;

use super::cell;
use crate::render::units;

/// The example of the configuration file, as it is installed.
const EXAMPLE: &str = include_str!("../../../../../packaging/mitra.toml");
/// Conditions that show the language. A test reads them.
const EXAMPLES: &[(&str, &str)] = &[
    ("sys.forks > 500/s for 3s", "more than 500 processes are made each second, for three seconds"),
    (
        "fs.avail_bytes{type!=tmpfs} / fs.total_bytes < 5%",
        "of any file system but tmpfs less than a twentieth is free",
    ),
    (
        "sum(task.system_time{comm=haproxy}) by pid > 30% for 2s",
        "a process of this name is in the kernel for 30 % of the time",
    ),
    (
        "disk.io_time{vd*} > 95% and psi.io_full > 20% for 5s",
        "a disk is busy all the time and everybody waits",
    ),
    ("rate(mem.sunreclaim) > 10MiB/s for 30s", "a level grows; counters mean their rate anyway"),
    ("count(task.minflt > 10000/s) >= 3", "three threads at least fault that often"),
    ("bytes(vm.pgsteal_file) > 500MB/s", "pages, as bytes"),
];

/// The page.
#[must_use]
pub fn page() -> String {
    let mut out = String::from(
        "# Rules\n\n\
         With each sample the recorder asks rules: conditions over what it measures. One that holds is recorded, and may arm\n\
         [probes](captures.md) or run a command, for a bounded time. This page is written by `make docs` from the tables in\n\
         `crates/rules/src`.\n\n\
         `mitra rules check FILE` says where a mistake is, `mitra rules list` what holds on this machine, `mitra rules test` when\n\
         rules would have held in a recording or in other tools' output, and what they would have done.\n",
    );
    language(&mut out);
    configuration(&mut out);
    suspicions(&mut out);
    out
}

fn language(out: &mut String) {
    out.push_str(
        "\n## The language\n\n\
         Metrics are those of [metrics.md](metrics.md). Counters mean their rate per second, times of tasks and devices the share\n\
         of the time. A metric of many things is asked for each row of it; `{…}` selects rows, by name or by a text or number of\n\
         the row. What was not measured is neither true nor false, and the rule is then said to be untellable. Bytes are not\n\
         compared with seconds: that is a mistake, and it is shown where.\n\n\
         | condition | meaning |\n|---|---|\n",
    );
    for (condition, meaning) in EXAMPLES {
        _ = writeln!(out, "| `{condition}` | {meaning} |");
    }
    _ = write!(out, "\n```text\n{}```\n", parser::grammar());
    let measures = [Measures::Share, Measures::Bytes, Measures::Time, Measures::Pages];
    let units: Vec<String> = measures
        .into_iter()
        .map(|measures| {
            let names: Vec<&str> = UNITS.iter().filter(|u| u.measures == measures).map(|u| u.name).collect();
            names.join(" ")
        })
        .collect();
    _ = writeln!(out, "\nUnits: {}; any of them `/s`.\n", units.join(", "));
    out.push_str("| function | what it is |\n|---|---|\n");
    for (name, function) in Function::ALL {
        _ = writeln!(out, "| `{name}` | {} |", function.help());
    }
    let groups: Vec<String> = GroupBy::ALL.iter().map(|(name, _)| format!("`by {name}`")).collect();
    _ = writeln!(out, "\nFunctions over rows put tasks together {}.", groups.join(", "));
}

fn configuration(out: &mut String) {
    out.push_str(
        "\n## The file\n\n\
         `/etc/mitra/mitra.toml`, or `--config FILE`. It is optional, and read when the recorder starts. A file whose commands would\n\
         run as root has to belong to root and be writable by nobody else.\n",
    );
    let mut table = "";
    for key in keys() {
        if key.table != table {
            table = key.table;
            let head = if table == "rule" { "[[rule]]" } else { "[escalation]" };
            _ = write!(out, "\n| `{head}` | what it says | without it |\n|---|---|---|\n");
        }
        _ = writeln!(out, "| `{}` | {} | {} |", key.name, cell(&key.help), cell(&key.usual));
    }
    out.push_str(
        "\nProbes of one rule are armed at a time, and one command is run at a time; neither waits for the other.\n",
    );
    out.push_str(
        "\nIn a command these are arguments by themselves. What the machine says and what could be taken for a flag is handed to no\n\
         program.\n\n| placeholder | what it stands for |\n|---|---|\n",
    );
    for (name, help) in PLACEHOLDERS {
        _ = writeln!(out, "| `{name}` | {help} |");
    }
    _ = write!(out, "\n```toml\n{EXAMPLE}```\n");
}

fn suspicions(out: &mut String) {
    out.push_str(
        "\n## Built-in suspicions\n\n\
         A suspicion is not a verdict: it may be wrong, and then it has cost a few seconds of a probe. Its thresholds are lower than\n\
         those of the [diagnosis](conditions.md), and above what healthy machines do under load. At most one is armed at a time, the\n\
         first of this list wins.\n\n\
         | suspicion | suspects | arms | for | rests |\n|---|---|---|---|---|\n",
    );
    for one in mitra_diagnose::suspicions() {
        let probes: Vec<String> = one
            .arm
            .iter()
            .map(|probe| {
                let kind = probe.split(' ').next().unwrap_or(probe);
                format!("[`{probe}`](captures.md#{kind})")
            })
            .collect();
        let whose = if one.is_of_culprit { ", of the culprit" } else { "" };
        _ = writeln!(
            out,
            "| [`{0}`](#{0}) | [`{1}`](conditions.md#{1}) | {2}{whose} | {3} | {4} |",
            one.name,
            one.suspects,
            probes.join(", "),
            units::length(one.seconds),
            units::length(one.cool_down_s)
        );
    }
    for one in mitra_diagnose::suspicions() {
        _ = write!(out, "\n### {}\n\n```text\n{}\n```\n\n{}\n", one.name, one.when, one.why);
    }
}

#[cfg(test)]
mod tests {
    use mitra_rules::Rule;

    use super::*;

    #[test]
    fn the_examples_are_conditions() {
        for (condition, _) in EXAMPLES {
            if let Err(mistake) = Rule::new("x", condition) {
                panic!("{mistake}\n{}", mistake.caret(condition));
            }
        }
        crate::escalation::settings::parse("packaging/mitra.toml", EXAMPLE).unwrap();
        // What stands in comments is shown too: it has to be right as well.
        let whole: String = EXAMPLE
            .lines()
            .skip_while(|line| !line.starts_with("# [[rule]]"))
            .map(|line| format!("{}\n", line.strip_prefix("# ").unwrap_or("")))
            .collect();
        let config = crate::escalation::settings::parse("packaging/mitra.toml", &whole).unwrap();
        assert_eq!(config.rules.iter().filter(|rule| !rule.is_builtin).count(), 2);
    }

    #[test]
    fn every_suspicion_is_a_rule() {
        for suspicion in mitra_diagnose::suspicions() {
            let rule = Rule::builtin(suspicion).unwrap_or_else(|m| {
                panic!("{}: {m}\n{}", suspicion.name, m.caret(suspicion.when));
            });
            assert_eq!(rule.arm.len(), suspicion.arm.len(), "{}", suspicion.name);
            assert!(!rule.arm.is_empty() && !rule.why.is_empty(), "{}", suspicion.name);
        }
    }

    #[test]
    fn every_suspicion_names_a_condition_and_probes_that_there_are() {
        let page = page();
        let probes = crate::escalation::probes::all();
        for one in mitra_diagnose::suspicions() {
            assert!(page.contains(&format!("\n### {}\n", one.name)), "{}", one.name);
            assert!(mitra_diagnose::conditions().iter().any(|c| c.id == one.suspects), "{}", one.suspects);
            for probe in one.arm {
                let kind = probe.split(' ').next().unwrap_or(probe);
                assert!(probes.is_empty() || probes.iter().any(|(name, _)| *name == kind), "{probe}");
            }
        }
    }
}
