//! `docs/rules.md`, from the language, the keys of the file and the table of suspicions.

use std::fmt::Write;

use mitra_model::Suspicion;
use mitra_rules::ast::{Function, GroupBy, Measures, UNITS};
use mitra_rules::keys::keys;
use mitra_rules::parser;
use mitra_rules::rule::PLACEHOLDERS;

use super::{cell, filled, rows};
use crate::render::units;

/// The configuration file as it is installed.
const EXAMPLE: &str = include_str!("../../../../../packaging/mitra.toml");
/// A test parses these conditions.
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
    (
        "log{file=\"/var/log/app.log\"} =~ \"timeout\" > 5/s for 10s",
        "more than five lines with this word come into the log each second",
    ),
    (
        "log{unit=nginx.service} =~ \"(?i)worker.*exited\" > 0",
        "a unit says something to journald that matches",
    ),
];

pub fn page() -> String {
    let measures = [Measures::Share, Measures::Bytes, Measures::Time, Measures::Pages];
    let units = measures.map(|measures| {
        let names: Vec<&str> = UNITS.iter().filter(|u| u.measures == measures).map(|u| u.name).collect();
        names.join(" ")
    });
    let groups: Vec<String> = GroupBy::ALL.iter().map(|(name, _)| format!("`by {name}`")).collect();
    let why = |one: &Suspicion| format!("\n### {}\n\n```text\n{}\n```\n\n{}", one.name, one.when, one.why);
    filled(
        include_str!("rules.md"),
        &[
            ("examples", &rows(EXAMPLES, |(condition, meaning)| format!("| `{condition}` | {meaning} |"))),
            ("grammar", &parser::grammar()),
            ("units", &units.join(", ")),
            ("functions", &rows(Function::ALL, |(name, one)| format!("| `{name}` | {} |", one.help()))),
            ("groups", &groups.join(", ")),
            ("keys", &configuration()),
            ("placeholders", &rows(PLACEHOLDERS, |(name, help)| format!("| `{name}` | {help} |"))),
            ("file", EXAMPLE),
            ("suspicions", &rows(mitra_diagnose::suspicions(), suspicion)),
            ("whys", &rows(mitra_diagnose::suspicions(), why)),
        ],
    )
}

/// The keys of the file, one table after the other.
fn configuration() -> String {
    let mut out = String::new();
    let mut table = "";
    for key in keys() {
        if key.table != table {
            table = key.table;
            let head = if table == "rule" { "[[rule]]".to_owned() } else { format!("[{table}]") };
            _ = write!(out, "\n| `{head}` | what it says | without it |\n|---|---|---|\n");
        }
        _ = writeln!(out, "| `{}` | {} | {} |", key.name, cell(&key.help), cell(&key.usual));
    }
    out
}

fn suspicion(one: &Suspicion) -> String {
    let probe = |probe: &&str| {
        let kind = probe.split(' ').next().unwrap_or(probe);
        format!("[`{probe}`](captures.md#{kind})")
    };
    let probes: Vec<String> = one.arm.iter().map(probe).collect();
    let whose = if one.is_of_culprit { ", of the culprit" } else { "" };
    format!(
        "| [`{0}`](#{0}) | [`{1}`](conditions.md#{1}) | {2}{whose} | {3} | {4} |",
        one.name,
        one.suspects,
        probes.join(", "),
        units::length(one.seconds),
        units::length(one.cool_down_s)
    )
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
        // The rule in the comments has to be valid too.
        let whole: String = EXAMPLE
            .lines()
            .skip_while(|line| !line.starts_with("# [[rule]]"))
            .map(|line| format!("{}\n", line.strip_prefix("# ").unwrap_or("")))
            .collect();
        let config = crate::escalation::settings::parse("packaging/mitra.toml", &whole).unwrap();
        assert_eq!(config.rules.iter().filter(|rule| !rule.is_builtin).count(), 3);
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
                assert!(probes.iter().any(|(name, _)| *name == kind), "{probe}");
            }
        }
    }
}
