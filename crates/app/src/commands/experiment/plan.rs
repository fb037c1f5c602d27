//! The file of an experiment.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use mitra_model::experiment::MetricInfo;
use mitra_model::{Entity, Metric, lookup};
use mitra_rules::ConfigError;
use regex::{Regex, RegexBuilder};
use serde::Deserialize;
use toml::Spanned;

use crate::errors::usage;
use crate::values::time::duration;

const VARIANTS_MAX: usize = 20;
const STEPS_MAX: usize = 20;
const METRICS_MAX: usize = 20;
const FILES_MAX: usize = 50;
const NAME_MAX: usize = 60;
const REPETITIONS: u32 = 7;
const REPETITIONS_MAX: u32 = 1000;
const TIMEOUT: Duration = Duration::from_secs(300);
const TIMEOUT_MIN: Duration = Duration::from_millis(100);
const SETTLE: Duration = Duration::from_millis(500);
const TIME_MAX: Duration = Duration::from_secs(3600);
/// Memory of a compiled pattern.
const PATTERN_BYTES_MAX: usize = 1 << 20;

/// An experiment as it stands in its file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Plan {
    pub title: Spanned<String>,
    #[serde(default)]
    pub question: String,
    pub repetitions: Option<Spanned<u32>>,
    #[serde(default)]
    pub warm_up: Option<Spanned<u32>>,
    pub seed: Option<u64>,
    pub workload: Workload,
    #[serde(default)]
    pub reset: Reset,
    pub variant: Vec<Spanned<Variant>>,
    pub metric: Vec<Spanned<MetricTable>>,
}

/// A program that is run, and what it gets.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Workload {
    pub command: Spanned<Vec<String>>,
    #[serde(default)]
    pub steps: Option<Spanned<Vec<Step>>>,
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    pub timeout: Option<Spanned<String>>,
}

/// A value of the parameter that stands for `{step}`.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged, expecting = "wanted a whole number or a text")]
pub enum Step {
    Number(i64),
    Text(String),
}

/// What is done before each run.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Reset {
    pub drop_caches: bool,
    pub settle: Option<Spanned<String>>,
    pub command: Option<Spanned<Vec<String>>>,
}

/// What makes a variant different.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Variant {
    pub name: Spanned<String>,
    #[serde(default)]
    pub set: BTreeMap<String, String>,
    #[serde(default)]
    pub sysctl: BTreeMap<Spanned<String>, Setting>,
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    pub setup: Option<Spanned<Vec<String>>>,
    pub teardown: Option<Spanned<Vec<String>>>,
    pub service: Option<Spanned<Vec<String>>>,
    pub ready: Option<Spanned<String>>,
    #[serde(default)]
    pub file: Vec<Spanned<FileContent>>,
}

/// The value of a kernel setting.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged, expecting = "wanted a whole number or a text")]
pub enum Setting {
    Number(i64),
    Text(String),
}

/// The whole content of a file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct FileContent {
    pub path: String,
    pub content: String,
}

/// What is read of the output of the workload.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct MetricTable {
    pub name: String,
    pub json: Option<String>,
    pub regex: Option<Spanned<String>>,
    pub output: Option<Spanned<String>>,
    pub unit: Option<String>,
    pub factor: Option<Spanned<f64>>,
    pub better: Better,
    #[serde(default)]
    pub primary: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    Higher,
    Lower,
}

/// How a metric is found in an output.
#[derive(Debug)]
pub enum Reader {
    /// An address in a JSON document (RFC 6901).
    Json(String),
    /// The only group of the last match.
    Regex(Regex),
    /// A metric of a benchmark whose output Mitra reads.
    Output(&'static Metric),
}

/// A metric, ready to be read.
#[derive(Debug)]
pub struct MetricReader {
    pub info: MetricInfo,
    pub reader: Reader,
    /// Turns what the output says into the base unit.
    pub factor: f64,
}

/// An experiment that was checked.
#[derive(Debug)]
pub struct Experiment {
    pub plan: Plan,
    /// The primary one first.
    pub metrics: Vec<MetricReader>,
    pub steps: Vec<Option<String>>,
    pub timeout: Duration,
    pub settle: Duration,
}

impl Experiment {
    /// Reads the text of a file.
    pub fn read(file: &str, text: &str) -> Result<Experiment> {
        let wrong =
            |at: Range<usize>, message: &str| usage(ConfigError::at(file, text, at, message).to_string());
        let plan: Plan = toml::from_str(text).map_err(|error| {
            let message = error.message().lines().collect::<Vec<_>>().join(" ");
            wrong(error.span().unwrap_or_default(), &message)
        })?;
        checked(plan).map_err(|(at, message)| wrong(at, &message))
    }

    pub fn repetitions(&self) -> u32 {
        self.plan.repetitions.as_ref().map_or(REPETITIONS, |n| *n.get_ref())
    }

    pub fn warm_up(&self) -> u32 {
        self.plan.warm_up.as_ref().map_or(1, |n| *n.get_ref())
    }

    pub fn variant(&self, at: usize) -> Result<&Variant> {
        self.plan.variant.get(at).map(Spanned::get_ref).context("the experiment has no such variant")
    }

    /// What needs the rights of root, by name.
    pub fn needs_root(&self) -> Vec<String> {
        let variants = self.plan.variant.iter().map(Spanned::get_ref);
        let mut needs: Vec<String> = variants
            .flat_map(|variant| variant.sysctl.keys().map(|key| format!("the setting {}", key.get_ref())))
            .collect();
        needs.sort_unstable();
        needs.dedup();
        if self.plan.reset.drop_caches {
            needs.push("drop-caches".to_owned());
        }
        needs
    }
}

/// The byte range of a mistake, and what is wrong.
type Wrong = (Range<usize>, String);

fn checked(plan: Plan) -> Result<Experiment, Wrong> {
    let title_at = plan.title.span();
    let few = |at: Range<usize>, n: usize, most: usize, what: &str| {
        if n <= most { Ok(()) } else { Err((at, format!("more than {most} {what}"))) }
    };
    few(title_at.clone(), plan.variant.len(), VARIANTS_MAX, "tables [[variant]]")?;
    few(title_at.clone(), plan.metric.len(), METRICS_MAX, "tables [[metric]]")?;
    in_range(plan.repetitions.as_ref(), 1..=REPETITIONS_MAX)?;
    in_range(plan.warm_up.as_ref(), 0..=REPETITIONS_MAX)?;
    let steps = steps(plan.workload.steps.as_ref())?;
    program(Some(&plan.workload.command))?;
    program(plan.reset.command.as_ref())?;
    if plan.variant.len() < 2 && steps.len() < 2 {
        return Err((
            title_at,
            "one variant at one step is nothing to compare; want two [[variant]]".to_owned(),
        ));
    }
    let mut names: Vec<&str> = Vec::new();
    for variant in plan.variant.iter().map(Spanned::get_ref) {
        check_variant(variant)?;
        if names.contains(&variant.name.get_ref().as_str()) {
            return Err((variant.name.span(), "there is another variant of that name".to_owned()));
        }
        names.push(variant.name.get_ref());
        few(variant.name.span(), variant.file.len(), FILES_MAX, "files")?;
        check_placeholders(&plan, variant, plan.workload.steps.is_some())?;
    }
    let timeout = time(plan.workload.timeout.as_ref(), TIMEOUT, TIMEOUT_MIN)?;
    let settle = time(plan.reset.settle.as_ref(), SETTLE, Duration::ZERO)?;
    let metrics = metrics(&plan.metric)?;
    Ok(Experiment { metrics, steps, timeout, settle, plan })
}

fn in_range(number: Option<&Spanned<u32>>, wanted: std::ops::RangeInclusive<u32>) -> Result<(), Wrong> {
    match number {
        Some(n) if !wanted.contains(n.get_ref()) => {
            Err((n.span(), format!("wanted {} to {}", wanted.start(), wanted.end())))
        }
        _ => Ok(()),
    }
}

fn time(text: Option<&Spanned<String>>, usual: Duration, least: Duration) -> Result<Duration, Wrong> {
    let Some(text) = text else { return Ok(usual) };
    let time = duration(text.get_ref()).map_err(|why| (text.span(), why))?;
    let is_meant = (least..=TIME_MAX).contains(&time);
    if is_meant { Ok(time) } else { Err((text.span(), format!("wanted {least:?} to an hour"))) }
}

fn program(argv: Option<&Spanned<Vec<String>>>) -> Result<(), Wrong> {
    match argv {
        Some(argv) if argv.get_ref().first().is_none_or(String::is_empty) => {
            Err((argv.span(), "wanted a program and its arguments: [\"fio\", \"job.fio\"]".to_owned()))
        }
        _ => Ok(()),
    }
}

/// A name is part of names of files and of reports.
fn is_name(name: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || " ._+=:%,()-".contains(c);
    !name.is_empty() && name.chars().count() <= NAME_MAX && name.chars().all(is_part)
}

fn steps(given: Option<&Spanned<Vec<Step>>>) -> Result<Vec<Option<String>>, Wrong> {
    let Some(given) = given else { return Ok(vec![None]) };
    let names: Vec<String> = given
        .get_ref()
        .iter()
        .map(|step| match step {
            Step::Number(number) => number.to_string(),
            Step::Text(text) => text.clone(),
        })
        .collect();
    let mut apart = names.clone();
    apart.sort_unstable();
    apart.dedup();
    if names.is_empty() || names.len() > STEPS_MAX || !names.iter().all(|name| is_name(name)) {
        return Err((given.span(), format!("wanted 1 to {STEPS_MAX} short steps")));
    }
    if apart.len() < names.len() {
        return Err((given.span(), "a step stands there twice".to_owned()));
    }
    Ok(names.into_iter().map(Some).collect())
}

fn check_variant(variant: &Variant) -> Result<(), Wrong> {
    if !is_name(variant.name.get_ref()) {
        let message = format!("wanted a name of up to {NAME_MAX} letters, digits, spaces and ._+=:%,()-");
        return Err((variant.name.span(), message));
    }
    for argv in [&variant.setup, &variant.teardown, &variant.service] {
        program(argv.as_ref())?;
    }
    if let Some(key) = variant.sysctl.keys().find(|key| sysctl_path(key.get_ref()).is_none()) {
        return Err((key.span(), "not the name of a setting; want vm.swappiness".to_owned()));
    }
    if let Some(file) = variant.file.iter().find(|file| !is_whole_path(&file.get_ref().path)) {
        return Err((
            file.span(),
            "path: wanted a whole path, or one that begins with {dir}, without ..".to_owned(),
        ));
    }
    if let Some(ready) = &variant.ready {
        let is_address = ready.get_ref().parse::<std::net::SocketAddr>().is_ok();
        if !is_address || variant.service.is_none() {
            let message = "wanted the address at which the service answers, as 127.0.0.1:8080".to_owned();
            return Err((ready.span(), message));
        }
    }
    Ok(())
}

/// Each `{name}` in a list of arguments has a value.
fn check_placeholders(plan: &Plan, variant: &Variant, has_steps: bool) -> Result<(), Wrong> {
    let given = ["dir", "here"].into_iter().chain(has_steps.then_some("step"));
    let mut values = variant.set.clone();
    values.extend(given.map(|name| (name.to_owned(), String::new())));
    let own = [&variant.setup, &variant.teardown, &variant.service, &plan.reset.command];
    for argv in own.into_iter().flatten().chain([&plan.workload.command]) {
        if let Some(name) = argv.get_ref().iter().find_map(|argument| fill(argument, &values).1) {
            let known: Vec<&str> = values.keys().map(String::as_str).collect();
            let message = format!(
                "of {} nothing is called {{{name}}}; there are {}",
                variant.name.get_ref(),
                known.join(", ")
            );
            return Err((argv.span(), message));
        }
    }
    Ok(())
}

fn is_whole_path(path: &str) -> bool {
    let is_whole = path.starts_with('/') || path.starts_with("{dir}/");
    is_whole
        && Path::new(path).components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)))
}

/// The path of a kernel setting below the root. As sysctl(8) has it, a slash in the name stands for a dot.
pub fn sysctl_path(key: &str) -> Option<PathBuf> {
    let is_part = |part: &str| {
        !part.is_empty()
            && !matches!(part, "/" | "//")
            && part.chars().all(|c| c.is_ascii_alphanumeric() || "_-/:@".contains(c))
    };
    let parts: Vec<&str> = key.split('.').collect();
    if parts.len() < 2 || !parts.iter().all(|part| is_part(part)) {
        return None;
    }
    Some(
        std::iter::once("proc/sys".to_owned())
            .chain(parts.iter().map(|part| part.replace('/', ".")))
            .collect(),
    )
}

fn metrics(tables: &[Spanned<MetricTable>]) -> Result<Vec<MetricReader>, Wrong> {
    let mut metrics: Vec<MetricReader> = Vec::new();
    let mut primary = None;
    for table in tables {
        let (at, table) = (table.span(), table.get_ref());
        if !is_name(&table.name.replace('/', " ")) {
            return Err((at, "a metric wants a short name".to_owned()));
        }
        if metrics.iter().any(|other| other.info.name == table.name) {
            return Err((at, format!("there is another metric called {}", table.name)));
        }
        if table.primary && primary.replace(metrics.len()).is_some() {
            return Err((at, "there is another primary metric".to_owned()));
        }
        metrics.push(metric(table, at)?);
    }
    if metrics.is_empty() {
        return Err((0..0, "wanted a table [[metric]]: what is read of the output".to_owned()));
    }
    if let Some(primary) = primary {
        let first = metrics.remove(primary);
        metrics.insert(0, first);
    }
    Ok(metrics)
}

fn metric(table: &MetricTable, at: Range<usize>) -> Result<MetricReader, Wrong> {
    let mut unit = table.unit.clone().unwrap_or_default();
    let reader = match (&table.json, &table.regex, &table.output) {
        (Some(pointer), None, None) if pointer.is_empty() || pointer.starts_with('/') => {
            Reader::Json(pointer.clone())
        }
        (Some(_), None, None) => return Err((at, "json: wanted an address as /jobs/0/read/iops".to_owned())),
        (None, Some(pattern), None) => Reader::Regex(pattern_of(pattern)?),
        (None, None, Some(name)) => {
            let known = lookup(name.get_ref())
                .filter(|known| known.entity == Entity::Run && known.kind == mitra_model::Kind::Gauge)
                .ok_or_else(|| {
                    (name.span(), "no such metric of a benchmark; see: mitra metrics 'run.*'".to_owned())
                })?;
            if table.unit.is_none() {
                unit = unit_of(known);
            }
            Reader::Output(known)
        }
        _ => return Err((at, "a metric wants one of json, regex and output".to_owned())),
    };
    let factor = match &table.factor {
        Some(factor) if !factor.get_ref().is_finite() || *factor.get_ref() == 0.0 => {
            return Err((factor.span(), "wanted a number other than 0".to_owned()));
        }
        Some(factor) => *factor.get_ref(),
        None => 1.0,
    };
    let info =
        MetricInfo { name: table.name.clone(), unit, higher_is_better: table.better == Better::Higher };
    Ok(MetricReader { info, reader, factor })
}

/// What the table of metrics says, but for rates that it keeps as numbers.
pub fn unit_of(metric: &Metric) -> String {
    match metric.unit_label() {
        label if metric.name.ends_with("_per_s") && label == "bytes" => "bytes/s".to_owned(),
        _ if metric.name.ends_with("_per_s") || metric.name.ends_with("_iops") => "1/s".to_owned(),
        label => label,
    }
}

fn pattern_of(pattern: &Spanned<String>) -> Result<Regex, Wrong> {
    let built = RegexBuilder::new(pattern.get_ref()).multi_line(true).size_limit(PATTERN_BYTES_MAX).build();
    let regex = built.map_err(|why| {
        let why = why.to_string();
        (pattern.span(), why.lines().last().unwrap_or_default().to_owned())
    })?;
    // The whole match counts as one.
    if regex.captures_len() == 2 {
        Ok(regex)
    } else {
        Err((
            pattern.span(),
            "wanted one group, ( ), around the number; (?: ) groups without counting".to_owned(),
        ))
    }
}

/// An argument list with values in place of `{name}`.
pub fn filled(argv: &[String], values: &BTreeMap<String, String>) -> Result<Vec<String>> {
    argv.iter().map(|argument| filled_text(argument, values)).collect()
}

/// A text with values in place of `{name}`. Other braces stay, as in JSON.
pub fn filled_text(text: &str, values: &BTreeMap<String, String>) -> Result<String> {
    let (filled, unknown) = fill(text, values);
    match unknown {
        None => Ok(filled),
        Some(name) => {
            let known: Vec<&str> = values.keys().map(String::as_str).collect();
            Err(usage(format!("{text}: nothing is called {{{name}}}; there are {}", known.join(", "))))
        }
    }
}

/// The same for the content of a file, which may have braces of its own.
pub fn filled_content(text: &str, values: &BTreeMap<String, String>) -> String {
    fill(text, values).0
}

/// The text, and the first name that has no value, which stays.
fn fill<'a>(text: &'a str, values: &BTreeMap<String, String>) -> (String, Option<&'a str>) {
    let (mut out, mut rest, mut unknown) = (String::new(), text, None);
    while let Some((before, after)) = rest.split_once('{') {
        out.push_str(before);
        let name = after.split_once('}').filter(|(name, _)| is_placeholder(name));
        match name.and_then(|(name, tail)| Some((values.get(name)?, tail))) {
            Some((value, tail)) => {
                out.push_str(value);
                rest = tail;
            }
            None => {
                unknown = unknown.or(name.map(|(name, _)| name));
                out.push('{');
                rest = after;
            }
        }
    }
    out.push_str(rest);
    (out, unknown)
}

fn is_placeholder(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

#[cfg(test)]
mod tests;
