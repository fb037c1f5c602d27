//! What was withheld and why, as counts, without a trace of the values.

use crate::document::Withheld;

/// Maximum number of keys named per document. Further ones are only counted.
const KEYS_MAX: usize = 64;

/// The kind of a value, as in its replacement: `<withheld:password>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// A password, a passphrase, the shared key of a wireless network.
    Password,
    /// A value that is called a secret.
    Secret,
    /// A token of a service.
    Token,
    /// A key that encrypts, signs or opens a service.
    Key,
    /// The private half of a key pair.
    PrivateKey,
    /// A password hash, against which guesses can be tested.
    Hash,
    /// An SNMP community.
    Community,
    /// Credentials in an HTTP header.
    Authorization,
    /// Random text on a line with a hint.
    Random,
}

impl Reason {
    /// All reasons with their replacements.
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

    /// The name in replacements and queries.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.replacement().trim_start_matches("<withheld:").trim_end_matches('>')
    }

    /// The reason with this name.
    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().map(|(reason, _)| reason).find(|reason| reason.name() == name)
    }

    /// The replacement of the value.
    #[must_use]
    pub fn replacement(self) -> &'static str {
        Self::ALL
            .into_iter()
            .find(|(reason, _)| *reason == self)
            .map_or("<withheld:secret>", |(_, text)| text)
    }
}

/// The beginning of every replacement. A value that begins with it is not withheld again.
pub(super) const MARK: &[u8] = b"<withheld:";

/// A value to withhold, as a byte range of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) reason: Reason,
    /// The position of the key on the line; empty if there is none.
    pub(super) key: (usize, usize),
}

/// Counts one withheld value.
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
        let mut withheld = Withheld::default();
        for (reason, key) in [(Reason::Token, "b"), (Reason::Password, "a"), (Reason::Password, "")] {
            note(&mut withheld, reason.name(), key);
        }
        assert_eq!(withheld.count, 3);
        assert_eq!(withheld.reasons, ["password", "token"]);
        assert_eq!(withheld.keys, ["a", "b"]);
    }

    #[test]
    fn keys_are_bounded() {
        let mut withheld = Withheld::default();
        (0..1000).for_each(|i| note(&mut withheld, "key", &format!("key{i:04}")));
        assert_eq!((withheld.count, withheld.keys.len()), (1000, KEYS_MAX));
    }

    #[test]
    fn replacements_bear_their_mark() {
        for reason in [Reason::Password, Reason::PrivateKey, Reason::Random] {
            assert_eq!(reason.replacement(), format!("<withheld:{}>", reason.name()));
            assert!(reason.replacement().as_bytes().starts_with(MARK));
        }
    }
}
