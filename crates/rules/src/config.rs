//! The configuration file: `/etc/mitra/mitra.toml`.

use std::fmt;
use std::ops::Range;

use mitra_model::Suspicion;
use serde::Deserialize;
use serde::de::IgnoredAny;
use toml::Spanned;

use crate::ast::{Literal, Measures};
use crate::error::Mistake;
use crate::logs;
use crate::parser::{literal, parse};
use crate::policy;
use crate::rule::{PLACEHOLDERS, Probe, Rule};

/// Rules of one file.
const RULES_MAX: usize = 200;
/// Longest time that probes are armed by a rule.
pub(crate) const SECONDS_MAX: f64 = 60.0;
/// Longest time that a command may take.
pub(crate) const TIMEOUT_MAX_S: f64 = 300.0;
/// Most output that is kept of a command.
pub(crate) const OUTPUT_MAX_BYTES: f64 = 16.0 * 1_048_576.0;
/// Shortest rest of a rule that does something.
pub(crate) const COOL_DOWN_MIN_S: f64 = 5.0;
/// How often a rule may act in an hour at most.
pub(crate) const PER_HOUR_MAX: u32 = 120;
/// Words of a command, and bytes of each.
const WORDS_MAX: usize = 64;
const WORD_BYTES_MAX: usize = 4096;
/// Bytes of a rule's name.
const NAME_MAX: usize = 48;

/// What the file may name that lies outside of this crate.
pub struct Known<'a> {
    /// Kinds of probes with their options; none where it is not to be checked.
    pub probes: &'a [(&'a str, &'a [&'a str])],
    /// Why a probe cannot be armed although there is one of that name: a value that makes no sense, or no process where
    /// one has to be meant (the second argument tells whether one is).
    pub check: fn(&Probe, bool) -> Result<(), String>,
    /// Ids of conditions; none where it is not to be checked.
    pub conditions: &'a [&'a str],
    /// What the built-in rules are made of, in their order.
    pub suspicions: &'a [Suspicion],
}

/// What the file says, with the built-in rules.
#[derive(Debug, Clone)]
pub struct Config {
    /// The rules, those of the user first.
    pub rules: Vec<Rule>,
    /// Seconds of armed probes in an hour.
    pub budget_s: f64,
    /// Whether anything is armed or run at all.
    pub arm: bool,
    /// Whether databases that keep clients waiting are asked about themselves.
    pub ask_databases: bool,
    /// Whether it is read how answers of services begin, to count how they went.
    pub read_answers: bool,
    /// Whether `mitra serve`, started by the recorder, may ask for probes.
    pub ask_captures: bool,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            rules: Vec::new(),
            budget_s: policy::BUDGET_S,
            arm: true,
            ask_databases: true,
            read_answers: false,
            ask_captures: false,
        }
    }
}

impl Config {
    /// The built-in rules alone.
    #[must_use]
    pub fn builtin(suspicions: &[Suspicion]) -> Config {
        Config { rules: builtin(suspicions), ..Config::default() }
    }
}

fn builtin(suspicions: &[Suspicion]) -> Vec<Rule> {
    suspicions.iter().filter_map(|suspicion| Rule::builtin(suspicion).ok()).collect()
}

/// A mistake in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigError {
    /// The file's name.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1.
    pub column: usize,
    /// What is wrong.
    pub message: String,
    /// The line itself, with carets under what is wrong.
    pub excerpt: String,
}

impl ConfigError {
    /// A mistake at these bytes of a file's text.
    #[must_use]
    pub fn at(file: &str, text: &str, at: Range<usize>, message: impl Into<String>) -> Self {
        let start = at.start.min(text.len());
        let mistake = Mistake::new(at, message);
        let head = text.get(..start).unwrap_or(text);
        let line_start = head.rfind('\n').map_or(0, |i| i + 1);
        ConfigError {
            file: file.to_owned(),
            line: head.matches('\n').count() + 1,
            column: head.get(line_start..).map_or(0, |part| part.chars().count()) + 1,
            excerpt: mistake.caret(text),
            message: mistake.message,
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}: {}", self.file, self.line, self.column, self.message)?;
        for line in self.excerpt.lines() {
            write!(f, "\n  {line}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigError {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct File {
    #[serde(default)]
    escalation: Escalation,
    #[serde(default)]
    databases: Databases,
    #[serde(default)]
    services: Services,
    #[serde(default)]
    captures: Captures,
    #[serde(default)]
    rule: Vec<Spanned<Table>>,
    /// What `mitra notify` reads of the same file.
    #[serde(default, rename = "notify")]
    _notify: IgnoredAny,
    /// What is read of the same file to ask hosts and object stores.
    #[serde(default, rename = "remote")]
    _remote: IgnoredAny,
    /// What `mitra send` reads of the same file.
    #[serde(default, rename = "output")]
    _output: IgnoredAny,
    /// What the indexer reads of the same file.
    #[serde(default, rename = "index")]
    _index: IgnoredAny,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
struct Databases {
    ask: Option<bool>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
struct Services {
    read_answers: bool,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
struct Captures {
    ask: bool,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
struct Escalation {
    arm: Option<bool>,
    builtin: Option<bool>,
    off: Vec<Spanned<String>>,
    seconds_per_hour: Option<Spanned<f64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Table {
    name: Spanned<String>,
    when: Spanned<String>,
    r#for: Option<Spanned<String>>,
    suspects: Option<Spanned<String>>,
    #[serde(default)]
    why: String,
    #[serde(default)]
    arm: Vec<Spanned<String>>,
    pid_of: Option<Spanned<String>>,
    seconds: Option<Spanned<Amount>>,
    #[serde(default)]
    command: Vec<Spanned<String>>,
    privileged: Option<Spanned<bool>>,
    timeout: Option<Spanned<Amount>>,
    output: Option<Spanned<Amount>>,
    per_hour: Option<Spanned<u32>>,
    cool_down: Option<Spanned<Amount>>,
}

/// A number of base units, or a text with a unit.
#[derive(Deserialize)]
#[serde(untagged)]
enum Amount {
    Whole(i64),
    Number(f64),
    Text(String),
}

/// Reads a configuration file.
pub fn read(file: &str, text: &str, known: &Known<'_>) -> Result<Config, ConfigError> {
    Reader { file, text, known }.config()
}

struct Reader<'a> {
    file: &'a str,
    text: &'a str,
    known: &'a Known<'a>,
}

impl Reader<'_> {
    fn error(&self, at: Range<usize>, message: impl Into<String>) -> ConfigError {
        ConfigError::at(self.file, self.text, at, message)
    }

    /// A mistake inside a string of the file. Where the string stands there as it is, its place is exact.
    fn inside(&self, of: &Spanned<String>, mistake: &Mistake) -> ConfigError {
        let span = of.span();
        let inner = self.text.get(span.clone()).and_then(|raw| raw.find(of.get_ref().as_str()));
        match inner {
            Some(offset) => {
                let at = |byte: usize| span.start + offset + byte;
                self.error(at(mistake.at.start)..at(mistake.at.end), mistake.message.clone())
            }
            None => {
                let mut error = self.error(span, mistake.message.clone());
                error.excerpt = mistake.caret(of.get_ref());
                error
            }
        }
    }

    fn config(&self) -> Result<Config, ConfigError> {
        let file: File = toml::from_str(self.text).map_err(|e| {
            self.error(e.span().unwrap_or(0..0), e.message().lines().collect::<Vec<_>>().join(" "))
        })?;
        if let Some(one) = file.rule.get(RULES_MAX) {
            return Err(self.error(one.span(), format!("more than {RULES_MAX} rules")));
        }
        let mut builtin = builtin(self.known.suspicions);
        for name in &file.escalation.off {
            let before = builtin.len();
            builtin.retain(|rule| rule.name != *name.get_ref());
            if builtin.len() == before {
                let message = "no built-in rule is called so; see: mitra rules list";
                return Err(self.error(name.span(), message));
            }
        }
        if file.escalation.builtin == Some(false) {
            builtin.clear();
        }
        let budget_s = self.budget(&file.escalation)?;
        let mut rules: Vec<Rule> = Vec::new();
        for table in &file.rule {
            let rule = self.rule(table.get_ref())?;
            self.fits(&rule, table.get_ref(), budget_s)?;
            let is_named_so = |other: &Rule| other.name == rule.name;
            let taken = if rules.iter().any(is_named_so) {
                Some(format!("there is another rule called {}", rule.name))
            } else if self.known.suspicions.iter().any(|suspicion| suspicion.name == rule.name) {
                Some("a built-in rule is called so, even where it is off; take another name".to_owned())
            } else {
                None
            };
            if let Some(message) = taken {
                return Err(self.error(table.get_ref().name.span(), message));
            }
            rules.push(rule);
        }
        self.few_logs(&file, &rules)?;
        rules.extend(builtin);
        let arm = file.escalation.arm.unwrap_or(true);
        let ask_databases = file.databases.ask.unwrap_or(true);
        let (read_answers, ask_captures) = (file.services.read_answers, file.captures.ask);
        Ok(Config { rules, budget_s, arm, ask_databases, read_answers, ask_captures })
    }

    /// Each pattern takes memory and is looked for in each line.
    fn few_logs(&self, file: &File, rules: &[Rule]) -> Result<(), ConfigError> {
        for (number, table) in file.rule.iter().enumerate() {
            let so_far = rules.iter().take(number + 1).flat_map(Rule::programs);
            if logs::of(so_far).len() > logs::PATTERNS_MAX {
                let message = format!("more than {} patterns of logs", logs::PATTERNS_MAX);
                return Err(self.error(table.get_ref().when.span(), message));
            }
        }
        Ok(())
    }

    fn budget(&self, escalation: &Escalation) -> Result<f64, ConfigError> {
        match &escalation.seconds_per_hour {
            None => Ok(policy::BUDGET_S),
            Some(budget) if (0.0..=3600.0).contains(budget.get_ref()) => Ok(*budget.get_ref()),
            Some(budget) => Err(self.error(budget.span(), "wanted 0 to 3600 seconds")),
        }
    }

    /// A rule whose probes take more than there is for all of them never arms any. Who allows no second at all means it.
    fn fits(&self, rule: &Rule, table: &Table, budget_s: f64) -> Result<(), ConfigError> {
        let Some(first) = table.arm.first().filter(|_| budget_s > 0.0 && rule.seconds > budget_s) else {
            return Ok(());
        };
        let place = table.seconds.as_ref().map_or_else(|| first.span(), Spanned::span);
        let message = format!(
            "its probes are armed for {} s, and all together may be for {budget_s} s in an hour (seconds-per-hour)",
            rule.seconds
        );
        Err(self.error(place, message))
    }

    fn rule(&self, table: &Table) -> Result<Rule, ConfigError> {
        let name = table.name.get_ref();
        let is_name = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
        if name.is_empty() || name.len() > NAME_MAX || !name.bytes().all(is_name) || name.starts_with('-') {
            let message = format!("wanted a name of up to {NAME_MAX} letters a to z, digits and dashes");
            return Err(self.error(table.name.span(), message));
        }
        let mut rule =
            Rule::new(name, table.when.get_ref()).map_err(|mistake| self.inside(&table.when, &mistake))?;
        if let Some(hold) = &table.r#for {
            self.set_hold(&mut rule, hold)?;
        }
        if let Some(pid_of) = &table.pid_of {
            rule.set_pid_of(pid_of.get_ref()).map_err(|mistake| self.inside(pid_of, &mistake))?;
        }
        rule.why.clone_from(&table.why);
        rule.suspects = self.suspects(table)?;
        rule.arm =
            table.arm.iter().map(|probe| self.probe(probe, rule.is_of_pid)).collect::<Result<_, _>>()?;
        rule.command = self.command(table)?;
        if let Some(privileged) = &table.privileged {
            if rule.command.is_empty() {
                return Err(self.error(privileged.span(), "there is no command that it could be of"));
            }
            rule.is_privileged = *privileged.get_ref();
        }
        let amount = |given: &Option<Spanned<Amount>>, usual, least, most, measures| {
            given.as_ref().map_or(Ok(usual), |given| self.amount(given, least, most, measures))
        };
        rule.seconds = amount(&table.seconds, rule.seconds, 0.1, SECONDS_MAX, Measures::Time)?;
        rule.timeout_s = amount(&table.timeout, rule.timeout_s, 0.1, TIMEOUT_MAX_S, Measures::Time)?;
        rule.cool_down_s = amount(&table.cool_down, rule.cool_down_s, COOL_DOWN_MIN_S, 1e7, Measures::Time)?;
        let bytes = rule.output_bytes as f64;
        rule.output_bytes = amount(&table.output, bytes, 0.0, OUTPUT_MAX_BYTES, Measures::Bytes)? as u64;
        if let Some(per_hour) = &table.per_hour {
            if !(1..=PER_HOUR_MAX).contains(per_hour.get_ref()) {
                return Err(self.error(per_hour.span(), format!("wanted 1 to {PER_HOUR_MAX}")));
            }
            rule.per_hour = *per_hour.get_ref();
        }
        Ok(rule)
    }

    fn set_hold(&self, rule: &mut Rule, hold: &Spanned<String>) -> Result<(), ConfigError> {
        if rule.expression.hold.is_some() {
            return Err(self.error(hold.span(), "the condition says already for how long"));
        }
        // The same words as inside a condition.
        let text = format!("{} for {}", rule.expression, hold.get_ref());
        let expression = parse(&text).map_err(|mistake| self.error(hold.span(), mistake.message))?;
        rule.program.hold_s = expression.hold.as_ref().map_or(0.0, Literal::value);
        rule.expression = expression;
        Ok(())
    }

    fn suspects(&self, table: &Table) -> Result<Option<String>, ConfigError> {
        let Some(id) = &table.suspects else { return Ok(None) };
        let is_known =
            self.known.conditions.is_empty() || self.known.conditions.contains(&id.get_ref().as_str());
        if !is_known {
            return Err(self.error(id.span(), "no condition is called so; see: mitra conditions"));
        }
        Ok(Some(id.get_ref().clone()))
    }

    fn probe(&self, text: &Spanned<String>, is_of_pid: bool) -> Result<Probe, ConfigError> {
        let Some(probe) = Probe::parse(text.get_ref()) else {
            return Err(self.error(text.span(), "wanted the name of a probe"));
        };
        self.name_is_known(&probe)
            .and_then(|()| (self.known.check)(&probe, is_of_pid))
            .map_err(|message| self.error(text.span(), message))?;
        Ok(probe)
    }

    fn name_is_known(&self, probe: &Probe) -> Result<(), String> {
        if self.known.probes.is_empty() {
            return Ok(());
        }
        let Some((_, options)) = self.known.probes.iter().find(|(kind, _)| *kind == probe.kind) else {
            let known: Vec<&str> = self.known.probes.iter().map(|(kind, _)| *kind).collect();
            return Err(format!("no probe is called {}; there are {}", probe.kind, known.join(", ")));
        };
        match probe.options.iter().find(|(name, _)| !options.contains(&name.as_str())) {
            Some((name, _)) => {
                Err(format!("{} has no option {name}; it has {}", probe.kind, options.join(", ")))
            }
            None => Ok(()),
        }
    }

    fn command(&self, table: &Table) -> Result<Vec<String>, ConfigError> {
        if let Some(word) = table.command.get(WORDS_MAX) {
            return Err(self.error(word.span(), format!("more than {WORDS_MAX} words")));
        }
        for (i, word) in table.command.iter().enumerate() {
            let text = word.get_ref();
            let is_placeholder = PLACEHOLDERS.iter().any(|(name, _)| name == text);
            let message = if i == 0 && !text.starts_with('/') {
                "wanted the whole path of a program; nothing is searched for in PATH".to_owned()
            } else if text.len() > WORD_BYTES_MAX || text.contains('\0') {
                "wanted a text of up to 4096 bytes without a zero byte".to_owned()
            } else if let Some((name, _)) =
                PLACEHOLDERS.iter().find(|(name, _)| text.contains(name) && !is_placeholder)
            {
                format!("{name} has to be an argument by itself")
            } else if text.starts_with('{') && text.ends_with('}') && !is_placeholder {
                let known: Vec<&str> = PLACEHOLDERS.iter().map(|(name, _)| *name).collect();
                format!("no such placeholder; there are {}", known.join(", "))
            } else {
                continue;
            };
            return Err(self.error(word.span(), message));
        }
        Ok(table.command.iter().map(|word| word.get_ref().clone()).collect())
    }

    fn amount(
        &self,
        given: &Spanned<Amount>,
        least: f64,
        most: f64,
        measures: Measures,
    ) -> Result<f64, ConfigError> {
        let value = match given.get_ref() {
            Amount::Whole(n) => *n as f64,
            Amount::Number(n) => *n,
            Amount::Text(text) => {
                let literal = literal(text).map_err(|mistake| self.error(given.span(), mistake.message))?;
                if literal.per_second || literal.unit.is_some_and(|unit| unit.measures != measures) {
                    let wanted =
                        if measures == Measures::Time { "a time such as 3s" } else { "a size such as 64KiB" };
                    return Err(self.error(given.span(), format!("wanted {wanted}")));
                }
                literal.value()
            }
        };
        if (least..=most).contains(&value) {
            Ok(value)
        } else {
            Err(self.error(given.span(), format!("wanted {least} to {most}")))
        }
    }
}
