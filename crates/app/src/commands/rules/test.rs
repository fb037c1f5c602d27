//! `mitra rules test`: when rules would have held, and what a recorder would have done.

use anyhow::{Context, Result};
use mitra_model::Era;
use mitra_model::series::seconds_between;
use mitra_rules::ast::LogPattern;
use mitra_rules::logs::MATCHES;
use mitra_rules::{Config, Rule, in_words};
use serde_json::{Value, json};

use super::named;
use super::replay::{Act, Replay, Stretch, Tested, on_series};
use crate::cli::RulesTestArgs;
use crate::commands::recognised::GivenPaths;
use crate::commands::{print, print_json};
use crate::errors::usage;
use crate::escalation::{Plan, settings};
use crate::progress::Progress;
use crate::recording::{Recording, Wanted};
use crate::render::page::Page;
use crate::render::style::{Ink, Style, rfc3339};
use crate::render::units;
use crate::{confined, evidence};

pub fn run(args: &RulesTestArgs, style: &Style) -> Result<()> {
    let config = config(args)?;
    let tested = if args.paths.is_empty() {
        on_archive(args, &config)?
    } else {
        let opened = evidence::open(&args.paths, None)?;
        let given = GivenPaths::new(confined::all(&args.paths, None));
        confined::before_reading(&[&opened], &confined::all(&args.paths, None), &[]);
        let loaded = {
            let _progress = Progress::new("reading");
            opened.read(None)
        };
        given.check_any(&loaded.files)?;
        on_series(&config, &loaded.set)
    };
    let rules = &config.rules;
    if args.json { print_json(&as_json(rules, &tested)) } else { print(&as_text(rules, &tested, style)) }
}

/// The configuration, with the selected rules only.
fn config(args: &RulesTestArgs) -> Result<Config> {
    let Some(when) = &args.when else {
        let config = settings::load(args.config.config.as_deref())?;
        let rules = named(&config, args.rule.as_deref())?.into_iter().cloned().collect();
        return Ok(Config { rules, ..config });
    };
    let rule = Rule::new("condition", when)
        .map_err(|m| usage(format!("{m}\n  {}", m.caret(when).replace('\n', "\n  "))))?;
    Ok(Config { rules: vec![rule], ..Config::default() })
}

/// Frame by frame, as the recorder would have evaluated it.
fn on_archive(args: &RulesTestArgs, config: &Config) -> Result<Tested> {
    let recording = Recording::open_for(&args.archive, &Wanted::new(&args.range, i64::MAX))?;
    let span = recording.range(&args.range, i64::MAX)?;
    let reader = &recording.reader;
    let page_bytes = if reader.host().page_bytes == 0 { 4096.0 } else { reader.host().page_bytes as f64 };
    let mut replay = Replay::new(config, page_bytes);
    let _progress = Progress::new("reading");
    let walked = reader.frames(span, &mut |frame, strings| replay.look(frame, strings));
    walked.with_context(|| format!("cannot read the archive {}", recording.dir.display()))?;
    Ok(replay.finish())
}

fn as_json(rules: &[Rule], tested: &Tested) -> Value {
    let name = |rule: usize| rules.get(rule).map(|rule| rule.name.as_str());
    let when = |t: i64| (Era::of(t) == Era::Dated).then(|| rfc3339(t));
    let acts = |stretch: &Stretch, is_meant: &dyn Fn(&Act) -> bool| {
        let meant = stretch.acts.iter().filter(|act| is_meant(act));
        meant.map(|act| when(act.at)).collect::<Vec<_>>()
    };
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
            "has_more_rows": stretch.details.has_more,
            "pid": stretch.details.pid,
            "comm": stretch.details.comm,
            "cgroup": stretch.details.cgroup,
            "values": values,
            "acts": acts(stretch, &|_| true),
            "arms": acts(stretch, &|act| act.arms),
            "runs": acts(stretch, &|act| act.runs),
            "arm": tested.plans.get(stretch.rule).map(|plan| &plan.probes),
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
    let mut page = Page::new(style);
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
        // Names of processes are in both.
        let text = in_words(&stretch.details);
        let did = tested.plans.get(stretch.rule).map_or_else(String::new, |plan| action(rule, plan, stretch));
        page.paragraph(0, 4, Some(Ink::Strong), format!("{time} {}", rule.name).trim_start());
        page.paragraph(4, 4, None, &format!("{text}{went_on}"));
        page.paragraph(4, 4, None, &did);
    }
    if tested.stretches.is_empty() {
        let which = if rules.len() == 1 { "the rule" } else { "no rule" };
        let held = if rules.len() == 1 { "never held" } else { "ever held" };
        page.paragraph(0, 0, None, &format!("{which} {held}"));
    }
    if tested.left_out > 0 {
        page.paragraph(0, 0, None, &format!("and {} more times", tested.left_out));
    }
    if tested.stretches.iter().flat_map(|stretch| &stretch.acts).any(|act| act.runs) {
        page.paragraph(
            0,
            0,
            None,
            "how long a command takes is not known here: each is taken to end at once",
        );
    }
    for (rule, missing) in &tested.cannot_tell {
        let (name, logs) =
            rules.get(*rule).map_or(("?", &[][..]), |rule| (&*rule.name, &rule.program.logs[..]));
        page.paragraph(0, 2, None, &format!("{name} cannot be told: {}", not_there(missing, logs)));
    }
    page.finish()
}

/// What is missing, in words. A log is followed only where a rule named it when the recording was made.
fn not_there(missing: &[&str], logs: &[LogPattern]) -> String {
    let (of_logs, others): (Vec<&str>, Vec<&str>) = missing.iter().partition(|name| **name == MATCHES);
    let others = (!others.is_empty()).then(|| format!("{} is not there", others.join(", ")));
    let logs: Vec<String> = logs.iter().map(ToString::to_string).collect();
    let logs = (!of_logs.is_empty()).then(|| format!("no rule followed {} then", logs.join(" and ")));
    others.into_iter().chain(logs).collect::<Vec<_>>().join("; ")
}

/// What the rule would have done in a stretch.
fn action(rule: &Rule, plan: &Plan, stretch: &Stretch) -> String {
    if stretch.acts.is_empty() {
        return "would have started nothing: it had acted not long before, other probes were running, or their time for \
                this hour was used up"
            .to_owned();
    }
    let times = |is_meant: fn(&Act) -> bool| match stretch.acts.iter().filter(|act| is_meant(act)).count() {
        0 => None,
        1 => Some(String::new()),
        n => Some(format!(" {n} times")),
    };
    let mut parts = Vec::new();
    if let Some(times) = times(|act| act.arms) {
        let whose = match stretch.details.pid.filter(|_| rule.is_of_pid) {
            Some(pid) => format!(" of {} ({pid})", stretch.details.comm.as_deref().unwrap_or("?")),
            None => String::new(),
        };
        let what = plan.probes.join(" and ");
        parts.push(format!("armed {what}{whose} for {}{times}", units::length(plan.seconds)));
    }
    if let Some(times) = times(|act| act.runs) {
        match &stretch.command {
            Some(Ok(argv)) => parts.push(format!("run {}{times}", argv.join(" "))),
            Some(Err(why)) => parts.push(format!("run nothing: {why}")),
            None => {}
        }
    }
    if parts.is_empty() {
        let is_kept_from_it = !rule.arm.is_empty() || !rule.command.is_empty();
        let why =
            if is_kept_from_it { ", and nothing started: that is switched off, or not there" } else { "" };
        parts.push(format!("been recorded{}{why}", times(|_| true).unwrap_or_default()));
    }
    format!("would have {}", parts.join(", and "))
}
