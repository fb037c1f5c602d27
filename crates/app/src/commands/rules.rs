//! `mitra rules`: what they are, whether the file makes sense, and when they would have held.

use std::path::Path;

use anyhow::{Context, Result, anyhow};
use mitra_model::series::seconds_between;
use mitra_model::time::SECOND;
use mitra_model::{Era, SeriesSet, Span};
use mitra_rules::{Config, Details, News, Policy, Rule, Verdict, Watcher, in_words};
use serde_json::{Value, json};

use crate::cli::{RulesArgs, RulesCheckArgs, RulesCommand, RulesListArgs, RulesTestArgs};
use crate::commands::{print, print_json};
use crate::errors::usage;
use crate::escalation::settings;
use crate::evidence;
use crate::place;
use crate::progress::Progress;
use crate::render::style::{Ink, Style, rfc3339};
use crate::render::table::{Align, Table};
use crate::render::units;
use crate::when::Here;

/// Stretches that are kept; a rule that holds more often is no rule.
const STRETCHES_MAX: usize = 100_000;

/// Does what was asked for.
pub fn run(args: &RulesArgs, style: &Style) -> Result<()> {
    match &args.command {
        RulesCommand::Check(args) => check(args),
        RulesCommand::List(args) => list(args, style),
        RulesCommand::Test(args) => test(args, style),
    }
}

fn check(args: &RulesCheckArgs) -> Result<()> {
    let path = args.file.as_deref().unwrap_or(Path::new(settings::FILE));
    let config = settings::load(Some(path))?;
    let own = config.rules.iter().filter(|rule| !rule.is_builtin).count();
    print(&format!("{}: {own} rules of its own, {} built-in\n", path.display(), config.rules.len() - own))
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
    let mut table = Table::new(&[
        ("RULE", Align::Left),
        ("FROM", Align::Left),
        ("DOES", Align::Left),
        ("WHEN", Align::Left),
    ]);
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
            Err(usage(format!("no rule is called '{name}'; see: mitra rules list")))
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
    let mut out = format!("{}\n", style.paint(Ink::Strong, &rule.name));
    let mut line = |head: &str, text: String| out.push_str(&format!("  {head:<9} {text}\n"));
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
    out
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
        "timeout_s": rule.timeout_s,
        "output_bytes": rule.output_bytes,
        "per_hour": rule.per_hour,
        "cool_down_s": rule.cool_down_s,
    })
}

/// A stretch in which a rule held, and when it would have acted.
struct Stretch {
    rule: usize,
    fired: i64,
    until: i64,
    details: Details,
    acts: Vec<i64>,
    command: Option<Result<Vec<String>, String>>,
}

struct Tested {
    stretches: Vec<Stretch>,
    cannot_tell: Vec<(usize, Vec<&'static str>)>,
    left_out: usize,
}

fn test(args: &RulesTestArgs, style: &Style) -> Result<()> {
    let rules = match &args.when {
        Some(when) => vec![
            Rule::new("condition", when)
                .map_err(|m| usage(format!("{m}\n  {}", m.caret(when).replace('\n', "\n  "))))?,
        ],
        None => {
            let config = settings::load(args.config.config.as_deref())?;
            named(&config, args.rule.as_deref())?.into_iter().cloned().collect()
        }
    };
    let tested = if args.paths.is_empty() {
        on_archive(args, &rules)?
    } else {
        let loaded = {
            let _progress = Progress::new("reading");
            evidence::load(&args.paths, None, None)?
        };
        on_series(&rules, &loaded.set)
    };
    if args.json { print_json(&as_json(&rules, &tested)) } else { print(&as_text(&rules, &tested, style)) }
}

/// As the recorder would have seen it, frame by frame, with its cool-downs.
fn on_archive(args: &RulesTestArgs, rules: &[Rule]) -> Result<Tested> {
    let (dir, reader) = place::open(&args.archive)?;
    let known = reader.span().ok_or_else(|| anyhow!("{}: the archive is empty", dir.display()))?;
    let whole = known.until.saturating_sub(known.since);
    let span = place::span(&args.range, known, whole, &Here::system())?;
    let programs = rules
        .iter()
        .map(|rule| (rule.program.clone(), rule.choice.as_ref().map(|(_, program)| program.clone())));
    let page_bytes = if reader.host().page_bytes == 0 { 4096.0 } else { reader.host().page_bytes as f64 };
    let mut watcher = Watcher::new(programs.collect(), page_bytes);
    let limits = rules.iter().map(|rule| (rule.cool_down_s, rule.per_hour));
    let mut policy = Policy::new(limits, mitra_rules::policy::BUDGET_S);
    let mut tested = Tested { stretches: Vec::new(), cannot_tell: Vec::new(), left_out: 0 };
    let mut going_on: Vec<Option<usize>> = vec![None; rules.len()];
    let mut armed_until_s = f64::NEG_INFINITY;
    let _progress = Progress::new("reading");
    let walked = reader.frames(span, &mut |frame, strings| {
        let (t, now_s) = (frame.time.real, frame.time.real as f64 * 1e-9);
        let mut held = vec![false; rules.len()];
        let mut news = Vec::new();
        let mut wants = |rule: usize| {
            if let Some(held) = held.get_mut(rule) {
                *held = true;
            }
            policy.wants(rule, now_s) | going_on.get(rule).is_some_and(Option::is_none)
        };
        watcher.observe(frame, strings, &mut wants, &mut |rule, one| news.push((rule, one)));
        for (number, one) in news {
            let Some(rule) = rules.get(number) else { continue };
            let details = match one {
                News::CannotTell { missing } => {
                    tested.cannot_tell.push((number, missing));
                    continue;
                }
                News::Holds(details) => details,
            };
            let seconds = if rule.arm.is_empty() { 0.0 } else { rule.seconds };
            let acts = policy.wants(number, now_s)
                && policy.decide(number, now_s, seconds, now_s < armed_until_s) == Verdict::Go;
            if acts {
                armed_until_s = now_s + seconds;
            }
            let Some(stretch) = going_on.get_mut(number) else { continue };
            if stretch.is_none() {
                if tested.stretches.len() >= STRETCHES_MAX {
                    tested.left_out += 1;
                    continue;
                }
                *stretch = Some(tested.stretches.len());
                let command = (!rule.command.is_empty()).then(|| rule.argv(&details, t / SECOND));
                tested.stretches.push(Stretch {
                    rule: number,
                    fired: t,
                    until: t,
                    details,
                    acts: Vec::new(),
                    command,
                });
            }
            if let Some(stretch) = stretch.and_then(|i| tested.stretches.get_mut(i)).filter(|_| acts) {
                stretch.acts.push(t);
            }
        }
        for (stretch, held) in going_on.iter_mut().zip(held) {
            *stretch = stretch.filter(|_| held);
            if let Some(stretch) = stretch.and_then(|i| tested.stretches.get_mut(i)) {
                stretch.until = t;
            }
        }
    });
    walked.with_context(|| format!("cannot read the archive {}", dir.display()))?;
    Ok(tested)
}

fn on_series(rules: &[Rule], set: &SeriesSet) -> Tested {
    let mut tested = Tested { stretches: Vec::new(), cannot_tell: Vec::new(), left_out: 0 };
    for (number, rule) in rules.iter().enumerate() {
        let found = mitra_rules::series::replay(&rule.program, set, Span::ALL);
        // What is not there matters only where nothing was found without it.
        if found.stretches.is_empty() && !found.missing.is_empty() {
            tested.cannot_tell.push((number, found.missing));
        }
        tested.left_out += found.stretches.len().saturating_sub(STRETCHES_MAX);
        for found in found.stretches.into_iter().take(STRETCHES_MAX) {
            let command = (!rule.command.is_empty()).then(|| rule.argv(&found.details, found.fired / SECOND));
            let mitra_rules::series::Stretch { fired, until, details } = found;
            tested.stretches.push(Stretch {
                rule: number,
                fired,
                until,
                details,
                acts: vec![fired],
                command,
            });
        }
    }
    tested.stretches.sort_by_key(|stretch| stretch.fired);
    tested
}

fn as_json(rules: &[Rule], tested: &Tested) -> Value {
    let name = |rule: usize| rules.get(rule).map(|rule| rule.name.as_str());
    let when = |t: i64| (Era::of(t) == Era::Dated).then(|| rfc3339(t));
    let stretches = tested.stretches.iter().map(|stretch| {
        let values: serde_json::Map<String, Value> =
            stretch.details.values.iter().map(|(text, value, _)| (text.clone(), json!(value))).collect();
        let rule = rules.get(stretch.rule);
        json!({
            "rule": name(stretch.rule),
            "since": when(stretch.fired),
            "until": when(stretch.until),
            "seconds": seconds_between(stretch.fired, stretch.until),
            "held_s": stretch.details.seconds,
            "row": stretch.details.row,
            "rows": stretch.details.rows,
            "pid": stretch.details.pid,
            "comm": stretch.details.comm,
            "cgroup": stretch.details.cgroup,
            "values": values,
            "acts": stretch.acts.iter().map(|t| when(*t)).collect::<Vec<_>>(),
            "arm": rule.map(|rule| rule.arm.iter().map(ToString::to_string).collect::<Vec<_>>()),
            "suspects": rule.and_then(|rule| rule.suspects.clone()),
            "command": stretch.command.as_ref().and_then(|c| c.as_ref().ok()),
            "command_refused": stretch.command.as_ref().and_then(|c| c.as_ref().err()),
        })
    });
    json!({
        "schema": "mitra.rules-test/1",
        "rules": rules.iter().map(|rule| &rule.name).collect::<Vec<_>>(),
        "fired": stretches.collect::<Vec<_>>(),
        "left_out": tested.left_out,
        "cannot_tell": tested.cannot_tell.iter().map(|(rule, missing)| {
            json!({ "rule": name(*rule), "missing": missing })
        }).collect::<Vec<_>>(),
    })
}

fn as_text(rules: &[Rule], tested: &Tested, style: &Style) -> String {
    let mut out = String::new();
    for stretch in &tested.stretches {
        let Some(rule) = rules.get(stretch.rule) else { continue };
        let time = if Era::of(stretch.fired) == Era::Dated {
            style.date_clock(stretch.fired)
        } else {
            String::new()
        };
        let length = seconds_between(stretch.fired, stretch.until);
        let went_on =
            if length > 0.0 { format!("; went on for {}", units::length(length)) } else { String::new() };
        let text = in_words(&stretch.details);
        out.push_str(&format!("{time} {}  {text}{went_on}\n", style.paint(Ink::Strong, &rule.name)));
        out.push_str(&format!("    {}\n", action(rule, stretch)));
    }
    if tested.stretches.is_empty() {
        let which = if rules.len() == 1 { "the rule" } else { "no rule" };
        let held = if rules.len() == 1 { "never held" } else { "ever held" };
        out.push_str(&format!("{which} {held}\n"));
    }
    if tested.left_out > 0 {
        out.push_str(&format!("and {} more times\n", tested.left_out));
    }
    for (rule, missing) in &tested.cannot_tell {
        let name = rules.get(*rule).map_or("?", |rule| rule.name.as_str());
        out.push_str(&format!("{name} cannot be told: {} is not there\n", missing.join(", ")));
    }
    out
}

/// What a rule would have done in a stretch.
fn action(rule: &Rule, stretch: &Stretch) -> String {
    let times = match stretch.acts.len() {
        0 => {
            return "would have done nothing: it had acted not long before, or something else was armed"
                .to_owned();
        }
        1 => String::new(),
        n => format!(", {n} times"),
    };
    let mut parts = Vec::new();
    if !rule.arm.is_empty() {
        let probes: Vec<String> = rule.arm.iter().map(ToString::to_string).collect();
        let whose = match stretch.details.pid.filter(|_| rule.is_of_pid) {
            Some(pid) => format!(" of {} ({pid})", stretch.details.comm.as_deref().unwrap_or("?")),
            None => String::new(),
        };
        parts.push(format!("armed {}{whose} for {}", probes.join(" and "), units::length(rule.seconds)));
    }
    match &stretch.command {
        Some(Ok(argv)) => parts.push(format!("run {}", argv.join(" "))),
        Some(Err(why)) => parts.push(format!("run nothing: {why}")),
        None => {}
    }
    if parts.is_empty() {
        parts.push("been recorded".to_owned());
    }
    format!("would have {}{times}", parts.join(", and "))
}
