//! Secrets are withheld before anything is stored, sent, compared, hashed or logged.
//!
//! There are three checks: of the path (`deny`, a list), of the whole content (`refuse`: a private
//! key), and of each line (`lines`). The line checks cover values under telling `keys`, secret
//! arguments of `statements` and commands, `shapes` of well-known services' secrets, and `entropy`
//! as a last resort. The key of a withheld value remains: `password=<withheld:password>`, so that
//! line numbers stay and two states can be compared. A changed secret under the same key is
//! deliberately not visible.

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

/// The reason for withholding a file that the configuration names.
const CONFIGURED: &str = "configured";
/// Shorter values are not searched for in facts, because they would match almost anywhere.
const SCRUB_MIN: usize = 4;

/// The rules for withholding. The default withholds everything that is recognized.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    deny: Globs,
    allow: Globs,
    allowed: Vec<String>,
}

impl Policy {
    /// The default rules with the paths of a configuration. `deny` adds files to withhold. `allow`
    /// permits files that the list of paths denies. Their content is still checked, for private
    /// keys as well as for values. Patterns support `*`, `**`, `?`, `[abc]` and `{a,b}`.
    pub fn with(deny: &[String], allow: &[String]) -> Result<Self, Error> {
        let globs = |patterns: &[String]| {
            Globs::new(patterns.iter().map(String::as_str))
                .map_err(|e| Error::Cannot(format!("secrets: {e}")))
        };
        Ok(Self { deny: globs(deny)?, allow: globs(allow)?, allowed: allow.to_vec() })
    }

    /// The paths that the configuration allows, for the log, so that no exception is silent.
    #[must_use]
    pub fn allowed(&self) -> &[String] {
        &self.allowed
    }

    /// The reason why a file must not be read; `None` if it may. Callers check the given path and
    /// the target that it leads to.
    #[must_use]
    pub fn denies(&self, path: &str) -> Option<&'static str> {
        let path = deny::plain(path);
        if self.deny.matches(&path) {
            return Some(CONFIGURED);
        }
        deny::why(&path).filter(|_| !self.allow.matches(&path))
    }

    /// Withholds the secrets of a document: in its content, facts and link.
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
            report::merge(&mut document.withheld, &found.withheld);
        }
        clean_facts(&mut document.facts, depth, &mut document.withheld);
        if let Some(found) = document.link.as_deref().and_then(|link| lines::clean(link, Depth::Forms)) {
            document.link = Some(found.text);
            report::merge(&mut document.withheld, &found.withheld);
        }
        if document.withheld.count > 0 && !document.is(Flag::Refused) {
            document.flag(Flag::Redacted);
        }
    }

    /// A text (a log line, a command) with its secrets withheld, and what was withheld.
    #[must_use]
    pub fn clean_text(&self, text: &str) -> (String, Withheld) {
        match lines::clean(text, Depth::Full) {
            Some(found) => (found.text, found.withheld),
            None => (text.to_owned(), Withheld::default()),
        }
    }
}

/// In lists of names, a package `passwd` is followed by its version, not by a password.
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

/// Replaces values withheld from the content in the facts as well, even if there is no key next to
/// them.
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

/// Withholds secrets of facts by the fact's name and by the value, because facts are extracted
/// before the content is cleaned.
fn clean_facts(facts: &mut Facts, depth: Depth, withheld: &mut Withheld) {
    for (name, list) in facts.iter_mut() {
        let key = if depth == Depth::Full { keys::classify(name.as_bytes()) } else { None };
        // A number cannot be replaced by a word, so it is removed.
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
                report::merge(withheld, &found.withheld);
            }
        }
    }
    facts.retain(|_, list| !list.is_empty());
}
