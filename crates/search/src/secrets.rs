//! Secrets are withheld before anything is stored, sent, compared, hashed or logged.
//!
//! Three looks: the path (`deny`, a list), the whole content (`refuse`: a private key), each line (`lines`: values under `keys`
//! that say so, `statements` and commands whose arguments are secret, `shapes` of the secrets of well-known services, and
//! `entropy` where nothing else told). Of a value its key stays: `password=<withheld:password>`, so that lines keep their numbers
//! and two states can be compared. A secret that changes behind the same key is not seen, and that is meant.

mod blocks;
mod deny;
mod entropy;
mod extent;
mod fragments;
mod globs;
mod hints;
mod keys;
mod line;
mod lines;
mod named;
mod pairs;
mod prose;
mod random;
mod refuse;
pub mod report;
mod shapes;
mod statements;
#[cfg(test)]
mod tests;
mod values;
mod words;

use std::ops::Range;

use crate::document::{Document, Facts, Flag, Kind, Value, Withheld};
use crate::error::Error;
use globs::Globs;
use lines::Depth;
use report::Report;

/// Why a file is withheld that the configuration names.
const CONFIGURED: &str = "configured";
/// Shorter values are not looked for in facts: they would be found in everything.
const SCRUB_MIN: usize = 4;

/// What to withhold. The default withholds everything that is known.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    deny: Globs,
    allow: Globs,
    allowed: Vec<String>,
}

impl Policy {
    /// The default, and the paths of a configuration: `deny` are withheld too, `allow` are read though the list of paths names
    /// them. What is allowed is still looked at: a private key in it is withheld, and so are values. Patterns know `*`, `**`,
    /// `?`, `[abc]` and `{a,b}`.
    pub fn with(deny: &[String], allow: &[String]) -> Result<Self, Error> {
        let globs = |patterns: &[String]| {
            Globs::new(patterns.iter().map(String::as_str))
                .map_err(|e| Error::Cannot(format!("secrets: {e}")))
        };
        Ok(Self { deny: globs(deny)?, allow: globs(allow)?, allowed: allow.to_vec() })
    }

    /// The paths that the configuration allows, for the log: nothing is allowed silently.
    #[must_use]
    pub fn allowed(&self) -> &[String] {
        &self.allowed
    }

    /// Whether a file may not be read at all, with the reason. Asked with the path as it was given and with the one that it
    /// leads to.
    #[must_use]
    pub fn denies(&self, path: &str) -> Option<&'static str> {
        let path = deny::plain(path);
        if self.deny.matches(&path) {
            return Some(CONFIGURED);
        }
        deny::why(&path).filter(|_| !self.allow.matches(&path))
    }

    /// Withholds what is secret in a document: its content, facts and link.
    pub fn clean(&self, document: &mut Document) {
        let file = !document.filename.starts_with('@');
        let leads = document.link.as_deref().and_then(|link| self.denies(link));
        let denied = if file { self.denies(&document.filename).or(leads) } else { None };
        let refused = denied.or_else(|| document.content.as_deref().and_then(refuse::why));
        let depth = depth(document.kind);
        if let Some(why) = refused {
            if document.content.take().is_some() || !document.facts.is_empty() {
                document.facts.clear();
                document.flag(Flag::Refused);
                report::note(&mut document.withheld, why, "");
            }
        } else if let Some(found) = document.content.as_deref().and_then(|text| lines::clean(text, depth)) {
            let before = document.content.replace(found.text).unwrap_or_default();
            scrub(&mut document.facts, &before, &found.values);
            report::merge(&mut document.withheld, &found.report.withheld);
        }
        clean_facts(&mut document.facts, depth, &mut document.withheld);
        if let Some(found) = document.link.as_deref().and_then(|link| lines::clean(link, Depth::Forms)) {
            document.link = Some(found.text);
            report::merge(&mut document.withheld, &found.report.withheld);
        }
        if document.withheld.count > 0 && !document.is(Flag::Refused) {
            document.flag(Flag::Redacted);
        }
    }

    /// A text (a line of a log, a command) without secrets, and what was withheld.
    #[must_use]
    pub fn clean_text(&self, text: &str) -> (String, Withheld) {
        let (text, report) = self.look(text);
        (text, report.withheld)
    }

    /// As [`Policy::clean_text`], with the look that found each value.
    #[must_use]
    pub fn look(&self, text: &str) -> (String, Report) {
        match lines::clean(text, Depth::Full) {
            Some(found) => (found.text, found.report),
            None => (text.to_owned(), Report::default()),
        }
    }
}

/// In lists of names a package called `passwd` has a version and no password.
fn depth(kind: Kind) -> Depth {
    match kind {
        Kind::Package
        | Kind::Kernel
        | Kind::Disk
        | Kind::Socket
        | Kind::User
        | Kind::Unit
        | Kind::Cgroup
        | Kind::Cpu
        | Kind::Numa
        | Kind::Nic => Depth::Forms,
        Kind::File
        | Kind::Cmdline
        | Kind::Sysctl
        | Kind::Mount
        | Kind::Timer
        | Kind::Cron
        | Kind::Incident => Depth::Full,
    }
}

/// What was withheld of the content is withheld of the facts that were taken from it, also where these have no key beside it.
fn scrub(facts: &mut Facts, content: &str, values: &[(Range<usize>, report::Reason)]) {
    for text in facts
        .values_mut()
        .flatten()
        .filter_map(|value| if let Value::Text(text) = value { Some(text) } else { None })
    {
        for (range, reason) in values {
            let secret = content.get(range.clone()).unwrap_or_default();
            if secret.len() >= SCRUB_MIN && text.contains(secret) {
                *text = text.replace(secret, reason.replacement());
            }
        }
    }
}

/// Facts are cleaned by their names and by themselves: they were taken from the content before that was cleaned.
fn clean_facts(facts: &mut Facts, depth: Depth, withheld: &mut Withheld) {
    for (name, list) in facts.iter_mut() {
        let key = if depth == Depth::Full { keys::classify(name.as_bytes()) } else { None };
        // A number cannot be replaced by a word; nothing is the word for it.
        let before = list.len();
        list.retain(|value| !matches!((key, value), (Some(keys::Key::Sure(_)), Value::Number(n)) if n.abs() >= 10_000.0));
        if list.len() < before {
            report::note(withheld, "secret", name);
        }
        for text in
            list.iter_mut().filter_map(|value| if let Value::Text(text) = value { Some(text) } else { None })
        {
            let whole = match key {
                Some(keys::Key::Sure(reason)) if !values::is_none(text.as_bytes()) => Some(reason),
                Some(keys::Key::Maybe(reason)) if values::looks_secret(text.as_bytes()) => Some(reason),
                _ => None,
            };
            if let Some(reason) = whole {
                *text = reason.replacement().to_owned();
                report::note(withheld, reason.name(), name);
            } else if let Some(found) = lines::clean(text, depth) {
                *text = found.text;
                report::merge(withheld, &found.report.withheld);
            }
        }
    }
    facts.retain(|_, list| !list.is_empty());
}
