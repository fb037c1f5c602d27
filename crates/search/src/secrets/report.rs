//! What was withheld and why, counted, without a trace of what it was.

use crate::document::Withheld;

/// Keys that are named of one document; further ones are only counted.
const KEYS_MAX: usize = 64;

/// What a value is, as it stands in its replacement: `<withheld:password>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// A password, a passphrase, the shared key of a wireless network.
    Password,
    /// Whatever is called a secret.
    Secret,
    /// A token of a service.
    Token,
    /// A key that encrypts, signs or opens a service.
    Key,
    /// The private half of a key pair.
    PrivateKey,
    /// The hash of a password: it can be guessed against.
    Hash,
    /// A community of SNMP.
    Community,
    /// Credentials in a header of HTTP.
    Authorization,
    /// Something random on a line that speaks of secrets.
    Random,
}

impl Reason {
    /// All of them with what stands in place of the value.
    const ALL: [(Self, &'static str); 9] = [
        (Self::Password, "<withheld:password>"),
        (Self::Secret, "<withheld:secret>"),
        (Self::Token, "<withheld:token>"),
        (Self::Key, "<withheld:key>"),
        (Self::PrivateKey, "<withheld:private-key>"),
        (Self::Hash, "<withheld:hash>"),
        (Self::Community, "<withheld:community>"),
        (Self::Authorization, "<withheld:authorization>"),
        (Self::Random, "<withheld:random>"),
    ];

    /// Its name in replacements and queries.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.replacement().trim_start_matches("<withheld:").trim_end_matches('>')
    }

    /// The one with a name.
    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().map(|(reason, _)| reason).find(|reason| reason.name() == name)
    }

    /// What stands in place of the value.
    #[must_use]
    pub fn replacement(self) -> &'static str {
        Self::ALL
            .into_iter()
            .find(|(reason, _)| *reason == self)
            .map_or("<withheld:secret>", |(_, text)| text)
    }
}

/// How every replacement begins. A value that begins like this is not withheld again.
pub(super) const MARK: &[u8] = b"<withheld:";

/// Which look found a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// A key that says so on the same line.
    Key,
    /// A key that says so on an earlier line.
    Block,
    /// A statement of a known program: `rocommunity`, `createUser`.
    Directive,
    /// An option of a known command: `mysql -p…`.
    Command,
    /// Credentials in a URL.
    Url,
    /// The form of the value.
    Shape,
    /// It looks random, and the line speaks of secrets.
    Entropy,
}

impl Stage {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Key, Self::Block, Self::Directive, Self::Command, Self::Url, Self::Shape, Self::Entropy];
}

/// A value to withhold: bytes of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) reason: Reason,
    pub(super) stage: Stage,
    /// Where its key stands on the line; empty without one.
    pub(super) key: (usize, usize),
}

/// What was withheld of one text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// For the document.
    pub withheld: Withheld,
    stages: [u32; Stage::ALL.len()],
}

impl Report {
    /// How many values a stage found.
    #[must_use]
    pub fn of(&self, stage: Stage) -> u32 {
        self.stages.get(stage as usize).copied().unwrap_or(0)
    }

    pub(super) fn add(&mut self, stage: Stage, reason: Reason, key: &str) {
        if let Some(count) = self.stages.get_mut(stage as usize) {
            *count += 1;
        }
        note(&mut self.withheld, reason.name(), key);
    }
}

/// Counts one value.
pub(super) fn note(withheld: &mut Withheld, reason: &str, key: &str) {
    withheld.count = withheld.count.saturating_add(1);
    once(&mut withheld.reasons, reason);
    once(&mut withheld.keys, key);
}

/// Adds what was withheld elsewhere in the same document.
pub(super) fn merge(into: &mut Withheld, more: &Withheld) {
    into.count = into.count.saturating_add(more.count);
    more.reasons.iter().for_each(|r| once(&mut into.reasons, r));
    more.keys.iter().for_each(|k| once(&mut into.keys, k));
}

fn once(list: &mut Vec<String>, text: &str) {
    if text.is_empty() || list.len() >= KEYS_MAX {
        return;
    }
    if let Err(at) = list.binary_search_by(|have| have.as_str().cmp(text)) {
        list.insert(at, text.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_and_keys_are_named_once_in_order() {
        let mut report = Report::default();
        report.add(Stage::Key, Reason::Token, "b");
        report.add(Stage::Key, Reason::Password, "a");
        report.add(Stage::Shape, Reason::Password, "");
        assert_eq!(report.withheld.count, 3);
        assert_eq!(report.withheld.reasons, ["password", "token"]);
        assert_eq!(report.withheld.keys, ["a", "b"]);
        assert_eq!((report.of(Stage::Key), report.of(Stage::Shape), report.of(Stage::Url)), (2, 1, 0));
    }

    #[test]
    fn keys_are_bounded() {
        let mut report = Report::default();
        (0..1000).for_each(|i| report.add(Stage::Key, Reason::Key, &format!("key{i:04}")));
        assert_eq!((report.withheld.count, report.withheld.keys.len()), (1000, KEYS_MAX));
    }

    #[test]
    fn replacements_bear_their_mark() {
        for reason in [Reason::Password, Reason::PrivateKey, Reason::Random] {
            assert_eq!(reason.replacement(), format!("<withheld:{}>", reason.name()));
            assert!(reason.replacement().as_bytes().starts_with(MARK));
        }
    }
}
