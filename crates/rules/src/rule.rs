//! A rule: a condition in the language, and what to do when it holds.

use mitra_model::Suspicion;

use crate::ast::Expression;
use crate::compile::{self, Domain, Program};
use crate::error::Mistake;
use crate::parser::parse;
use crate::watch::Details;

/// For how long probes are armed where the rule does not say.
pub const SECONDS: f64 = 3.0;
/// A command is killed after this where the rule does not say otherwise.
pub const TIMEOUT_S: f64 = 10.0;
/// As much of a command's output is kept where the rule does not say otherwise.
pub const OUTPUT_BYTES: u64 = 64 * 1024;
/// How often a rule acts at most in an hour where it does not say otherwise.
pub const PER_HOUR: u32 = 12;
/// For how long a rule rests after it has acted, the first time, where it does not say otherwise.
pub const COOL_DOWN_S: f64 = 60.0;

/// What a placeholder of a command stands for.
pub const PLACEHOLDERS: &[(&str, &str)] = &[
    ("{pid}", "the process that is meant; of processes that ended, their parent"),
    ("{comm}", "its name"),
    ("{cgroup}", "its cgroup"),
    ("{row}", "the row for which the rule holds: a disk, a mount point, …"),
    ("{rule}", "the rule's name"),
    ("{time}", "when it fired, in seconds since 1970"),
];
/// Longest text that is handed to a command in place of a placeholder.
const VALUE_MAX: usize = 256;

/// A rule.
#[derive(Debug, Clone)]
pub struct Rule {
    /// Its name.
    pub name: String,
    /// The condition.
    pub expression: Expression,
    /// The condition, ready to be evaluated.
    pub program: Program,
    /// The process that is meant, where it is not the row's own: of a number of each task or process, the one with most.
    pub choice: Option<(Expression, Program)>,
    /// Whether probes watch only the process that is meant.
    pub is_of_pid: bool,
    /// The condition of the diagnosis that is suspected.
    pub suspects: Option<String>,
    /// Why that is suspicious.
    pub why: String,
    /// The probes that would confirm or refute it.
    pub arm: Vec<Probe>,
    /// For how long they are armed.
    pub seconds: f64,
    /// A program and its arguments, in which placeholders are whole arguments.
    pub command: Vec<String>,
    /// Whether the command has the privileges of the recorder; it has none otherwise.
    pub is_privileged: bool,
    /// When the command is killed.
    pub timeout_s: f64,
    /// How much of its output is kept.
    pub output_bytes: u64,
    /// How often the rule acts at most in an hour.
    pub per_hour: u32,
    /// For how long the rule rests after it has acted; longer each time, while it goes on.
    pub cool_down_s: f64,
    /// Whether it comes with Mitra.
    pub is_builtin: bool,
}

/// A probe to be armed, with what it is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// The kind: `offcpu`.
    pub kind: String,
    /// `d-only`, or `min` with a value.
    pub options: Vec<(String, Option<String>)>,
}

impl Probe {
    /// Reads `offcpu`, `offcpu d-only` or `offcpu min=1ms`; dashes before an option are passed over.
    #[must_use]
    pub fn parse(text: &str) -> Option<Probe> {
        let mut words = text.split_whitespace();
        let kind = words.next()?.to_owned();
        let option = |word: &str| {
            let word = word.trim_start_matches('-');
            match word.split_once('=') {
                Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
                None => (word.to_owned(), None),
            }
        };
        Some(Probe { kind, options: words.map(option).collect() })
    }
}

impl std::fmt::Display for Probe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.kind)?;
        for (name, value) in &self.options {
            write!(f, " {name}")?;
            value.as_ref().map_or(Ok(()), |value| write!(f, "={value}"))?;
        }
        Ok(())
    }
}

impl Rule {
    /// A rule that only says that it holds.
    pub fn new(name: &str, when: &str) -> Result<Rule, Mistake> {
        let expression = parse(when)?;
        let program = compile::condition(&expression)?;
        Ok(Rule {
            name: name.to_owned(),
            expression,
            program,
            choice: None,
            is_of_pid: false,
            suspects: None,
            why: String::new(),
            arm: Vec::new(),
            seconds: SECONDS,
            command: Vec::new(),
            is_privileged: false,
            timeout_s: TIMEOUT_S,
            output_bytes: OUTPUT_BYTES,
            per_hour: PER_HOUR,
            cool_down_s: COOL_DOWN_S,
            is_builtin: false,
        })
    }

    /// What is evaluated of it: the condition, and what chooses the process that is meant.
    pub fn programs(&self) -> impl Iterator<Item = &Program> {
        std::iter::once(&self.program).chain(self.choice.iter().map(|(_, program)| program))
    }

    /// The rule of a suspicion that comes with Mitra.
    pub fn builtin(suspicion: &Suspicion) -> Result<Rule, Mistake> {
        let mut rule = Rule::new(suspicion.name, suspicion.when)?;
        if suspicion.is_of_culprit {
            rule.set_pid_of("culprit")?;
        }
        rule.suspects = Some(suspicion.suspects.to_owned());
        rule.why = suspicion.why.to_owned();
        rule.arm = suspicion.arm.iter().filter_map(|text| Probe::parse(text)).collect();
        rule.seconds = suspicion.seconds;
        rule.cool_down_s = suspicion.cool_down_s;
        rule.is_builtin = true;
        Ok(rule)
    }

    /// Sets whose process is meant: `culprit` is the row's own, anything else a number of each task or process, of which
    /// the largest counts.
    pub fn set_pid_of(&mut self, text: &str) -> Result<(), Mistake> {
        if text == "culprit" {
            let has_own = matches!(
                self.program.domain,
                Domain::Rows(mitra_model::Entity::Task | mitra_model::Entity::Exited)
                    | Domain::Groups(crate::ast::GroupBy::Pid)
            );
            if !has_own {
                return Err(Mistake::new(
                    0..text.len(),
                    "the rule is not about tasks or processes, so none of them is its culprit; wanted a number of each task",
                ));
            }
        } else {
            let expression = parse(text)?;
            if expression.hold.is_some() {
                return Err(Mistake::new(0..text.len(), "`for` belongs to the condition"));
            }
            let program = compile::choice(&expression)?;
            self.choice = Some((expression, program));
        }
        self.is_of_pid = true;
        Ok(())
    }

    /// The command with its placeholders filled in. Each is one whole argument, whatever it contains, and no shell sees
    /// it. What comes from the machine and could be taken for a flag, or holds anything but text, is refused.
    pub fn argv(&self, details: &Details, time_s: i64) -> Result<Vec<String>, String> {
        self.command.iter().map(|word| self.fill(word, details, time_s)).collect()
    }

    fn fill(&self, word: &str, details: &Details, time_s: i64) -> Result<String, String> {
        let missing = || format!("{word} is not known here");
        let value = match word {
            "{pid}" => details.pid.filter(|pid| *pid > 0).ok_or_else(missing)?.to_string(),
            "{time}" => time_s.to_string(),
            "{rule}" => self.name.clone(),
            "{comm}" => details.comm.clone().ok_or_else(missing)?,
            "{cgroup}" => details.cgroup.clone().ok_or_else(missing)?,
            "{row}" => details.row.clone().ok_or_else(missing)?,
            _ => return Ok(word.to_owned()),
        };
        let is_safe = !value.is_empty()
            && value.len() <= VALUE_MAX
            && !value.starts_with('-')
            && !value.chars().any(char::is_control);
        if is_safe { Ok(value) } else { Err(format!("{word} is {value:?}, which is handed to no program")) }
    }

    /// What it would start, in words.
    #[must_use]
    pub fn actions(&self) -> Vec<String> {
        let probes = self.arm.iter().map(ToString::to_string);
        let command = (!self.command.is_empty()).then(|| self.command.join(" "));
        probes.chain(command).collect()
    }
}

/// By which numbers a rule holds, in one line: `sys.forks 2,268/s`.
#[must_use]
pub fn in_words(details: &Details) -> String {
    let mut text = String::new();
    if let Some(row) = &details.row {
        text.push_str(row);
        text.push_str(": ");
    }
    let values: Vec<String> = details
        .values
        .iter()
        .map(|(what, value, unit)| match unit.as_str() {
            "" => format!("{what} = {}", number(*value)),
            unit if unit.starts_with("1/") => format!("{what} = {}{}", number(*value), &unit[1..]),
            unit => format!("{what} = {} {unit}", number(*value)),
        })
        .collect();
    text.push_str(&values.join(", "));
    if details.rows > 1 {
        let at_least = if details.has_more { "at least " } else { "" };
        text.push_str(&format!(", and {at_least}{} more like it", details.rows - 1));
    }
    if details.seconds > 0.0 {
        text.push_str(&format!(", for {} s", number(details.seconds)));
    }
    text
}

/// Three digits that count.
fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 1.0 => format!("{}", (value * 100.0).round() / 100.0),
        size => {
            let digits = (2 - size.log10().floor() as i32).clamp(0, 12) as usize;
            format!("{value:.digits$}").trim_end_matches('0').trim_end_matches('.').to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn details() -> Details {
        Details {
            pid: Some(42),
            comm: Some("app; rm".to_owned()),
            row: Some("-rf".to_owned()),
            ..Details::default()
        }
    }

    #[test]
    fn placeholders_are_whole_arguments_and_what_looks_like_a_flag_is_refused() {
        let mut rule = Rule::new("x", "sys.forks > 1").unwrap();
        let command = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>();
        rule.command = command(&["/bin/echo", "{pid}", "{comm}", "--p={pid}", "{time}"]);
        assert_eq!(
            rule.argv(&details(), 7).unwrap(),
            command(&["/bin/echo", "42", "app; rm", "--p={pid}", "7"])
        );
        let nobody = Details { pid: Some(0), ..details() };
        assert!(rule.argv(&nobody, 7).unwrap_err().contains("{pid} is not known"));
        rule.command = command(&["/bin/echo", "{row}"]);
        assert!(rule.argv(&details(), 7).unwrap_err().contains("-rf"));
        rule.command = command(&["/bin/echo", "{cgroup}"]);
        assert!(rule.argv(&details(), 7).unwrap_err().contains("not known"));
        let odd = Details { comm: Some("a\nb".to_owned()), ..Details::default() };
        rule.command = command(&["/bin/echo", "{comm}"]);
        assert!(rule.argv(&odd, 7).is_err());
    }

    #[test]
    fn probes_have_options() {
        let probe = Probe::parse("offcpu --d-only min=1ms").unwrap();
        assert_eq!(probe.kind, "offcpu");
        assert_eq!(probe.options, [("d-only".into(), None), ("min".into(), Some("1ms".into()))]);
        assert_eq!(probe.to_string(), "offcpu d-only min=1ms");
        assert_eq!(Probe::parse("  "), None);
    }

    #[test]
    fn numbers_have_three_digits() {
        for (value, text) in [
            (0.0, "0"),
            (2268.4, "2268"),
            (1.234_5, "1.23"),
            (0.012_34, "0.0123"),
            (-0.5, "-0.5"),
            (0.999_6, "1"),
        ] {
            assert_eq!(number(value), text);
        }
    }
}
