//! `mitra rules`: checks, lists and tests the rules.

mod replay;
mod test;

use std::path::Path;

use anyhow::Result;
use mitra_rules::{Config, Rule};
use serde_json::{Value, json};

use crate::cli::{RulesArgs, RulesCheckArgs, RulesCommand, RulesListArgs};
use crate::commands::{notify, print, print_json, send, similar};
use crate::errors::usage;
use crate::escalation::settings;
use crate::log::log;
use crate::render::page::Page;
use crate::render::style::{Ink, Style};
use crate::render::table::Table;
use crate::render::units;

pub fn run(args: &RulesArgs, style: &Style) -> Result<()> {
    match &args.command {
        RulesCommand::Check(args) => check(args),
        RulesCommand::List(args) => list(args, style),
        RulesCommand::Test(args) => test::run(args, style),
    }
}

fn check(args: &RulesCheckArgs) -> Result<()> {
    let path = args.file.as_deref().unwrap_or(Path::new(settings::FILE));
    if args.file.is_none() && matches!(path.try_exists(), Ok(false)) {
        return print(&format!("{} is not there: the built-in rules hold\n", path.display()));
    }
    let (config, untrusted) = settings::read(Some(path))?;
    if let Some(why) = untrusted {
        log(&format!("{why}: a recorder of root refuses it as it is"));
    }
    if let Some(names) = beyond_budget(&config) {
        log(&format!("seconds-per-hour is less than these take: {names} can never arm their probes"));
    }
    let receivers = notify::read(path)?;
    notify::doubts(path, &receivers)?.iter().for_each(|why| log(why));
    let outputs = send::read(path)?;
    send::doubts(&outputs).iter().for_each(|why| log(why));
    let own = config.rules.iter().filter(|rule| !rule.is_builtin).count();
    let built_in = config.rules.len() - own;
    let told = match receivers.len() {
        0 => String::new(),
        1 => "; 1 receiver of messages".to_owned(),
        n => format!("; {n} receivers of messages"),
    };
    let outputs_of = |what: &str, is_of_incidents: bool| {
        let count = outputs.iter().filter(|output| output.kind.is_of_incidents() == is_of_incidents).count();
        match count {
            0 => String::new(),
            1 => format!("; 1 output of {what}"),
            n => format!("; {n} outputs of {what}"),
        }
    };
    let sent = outputs_of("samples", false) + &outputs_of("incidents", true);
    print(&format!("{}: {own} rules of its own, {built_in} built-in{told}{sent}\n", path.display()))
}

/// Built-in rules that the budget of the file never allows. Own rules would be errors; 0 is meant.
fn beyond_budget(config: &Config) -> Option<String> {
    let is_meant = config.arm && config.budget_s > 0.0;
    let is_beyond = |rule: &&Rule| is_meant && !rule.arm.is_empty() && rule.seconds > config.budget_s;
    let names: Vec<&str> = config.rules.iter().filter(is_beyond).map(|rule| rule.name.as_str()).collect();
    (!names.is_empty()).then(|| names.join(", "))
}

fn list(args: &RulesListArgs, style: &Style) -> Result<()> {
    let config = settings::load(args.config.config.as_deref())?;
    let rules = named(&config, args.name.as_deref())?;
    if args.json {
        return print_json(&rules.iter().map(|rule| rule_json(rule)).collect::<Vec<_>>());
    }
    if let (Some(_), [rule]) = (&args.name, rules.as_slice()) {
        return print(&page(rule, style));
    }
    let mut table = Table::of("RULE|FROM|DOES|WHEN");
    for rule in rules {
        let from = if rule.is_builtin { "Mitra" } else { "file" };
        table.row([rule.name.clone(), from.to_owned(), does(rule), rule.expression.to_string()]);
    }
    print(&table.render(style))
}

fn named<'a>(config: &'a Config, name: Option<&str>) -> Result<Vec<&'a Rule>> {
    let rules: Vec<&Rule> = config.rules.iter().filter(|rule| name.is_none_or(|n| rule.name == n)).collect();
    match name {
        Some(name) if rules.is_empty() => {
            let names = config.rules.iter().map(|rule| rule.name.as_str());
            let hint = similar::hint(name, names, "mitra rules list");
            Err(usage(format!("no rule is called '{name}'{hint}")))
        }
        _ => Ok(rules),
    }
}

/// What a rule starts, in words.
fn does(rule: &Rule) -> String {
    let actions = rule.actions();
    if actions.is_empty() { "is recorded".to_owned() } else { actions.join(", ") }
}

fn page(rule: &Rule, style: &Style) -> String {
    let mut page = Page::new(style);
    page.paragraph(0, 0, Some(Ink::Strong), &rule.name);
    let mut line = |head: &str, text: String| page.labelled(2, head, 8, Some(Ink::Faint), &text);
    line("when", rule.expression.to_string());
    if let Some(id) = &rule.suspects {
        line("suspects", id.clone());
    }
    if !rule.arm.is_empty() {
        let probes: Vec<String> = rule.arm.iter().map(ToString::to_string).collect();
        let whose = match &rule.choice {
            _ if !rule.is_of_pid => "of everybody".to_owned(),
            Some((expression, _)) => format!("of the process with most {expression}"),
            None => "of the process that it is about".to_owned(),
        };
        line("arms", format!("{} for {}, {whose}", probes.join(", "), units::length(rule.seconds)));
    }
    if !rule.command.is_empty() {
        line("runs", rule.command.join(" "));
    }
    let rest = units::length(rule.cool_down_s);
    line("rests", format!("{rest}, longer while it goes on; at most {} times in an hour", rule.per_hour));
    if !rule.why.is_empty() {
        line("because", rule.why.clone());
    }
    page.finish()
}

fn rule_json(rule: &Rule) -> Value {
    json!({
        "name": rule.name,
        "builtin": rule.is_builtin,
        "when": rule.expression.to_string(),
        "hold_s": rule.program.hold_s,
        "suspects": rule.suspects,
        "why": rule.why,
        "arm": rule.arm.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "pid_of": match (&rule.choice, rule.is_of_pid) {
            (Some((expression, _)), _) => Some(expression.to_string()),
            (None, true) => Some("culprit".to_owned()),
            (None, false) => None,
        },
        "seconds": rule.seconds,
        "command": rule.command,
        "privileged": rule.is_privileged,
        "timeout_s": rule.timeout_s,
        "output_bytes": rule.output_bytes,
        "per_hour": rule.per_hour,
        "cool_down_s": rule.cool_down_s,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_rules_without_time_are_named() {
        let with = |budget_s, arm| beyond_budget(&Config { budget_s, arm, ..settings::builtin() });
        let names = with(4.0, true).unwrap();
        assert!(names.contains("failing-lookups") && !names.contains("fork-rate"), "{names}");
        assert_eq!((with(5.0, true), with(0.0, true), with(4.0, false)), (None, None, None));
    }
}
