//! The words at which a line is worth a look. Lines without one, most of all lines, are passed over at the speed of memory.

use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, Input};

use super::{shapes, words};

/// What to do where a word ends.
#[derive(Clone, Copy)]
pub(super) enum Hint {
    /// The word is part of the name of a setting.
    Key,
    /// As [`Hint::Key`], where the line itself says nothing of secrets: `url`, `cookie`.
    Quiet,
    /// A URL: credentials may follow.
    Url,
    /// `user:password@tcp(host)`.
    Dsn,
    /// The beginning of a kind that is known by its form: which, and the bytes of the beginning.
    Shape(usize, usize),
    /// The line is a statement or a command whose arguments have a meaning by their place.
    Statement,
    /// The beginning of a PEM block that is private.
    Pem,
    /// The beginning of a text that was encrypted with a password.
    Vault,
    /// The entries of a manifest, which may be one of secrets.
    Entries,
}

const PEM: &[&str] = &["private key-----", "private key block-----", "openvpn static key v1-----"];

struct Hints {
    words: Option<AhoCorasick>,
    meanings: Vec<Hint>,
}

static HINTS: LazyLock<Hints> = LazyLock::new(|| {
    let mut words: Vec<&str> = Vec::new();
    let mut meanings = Vec::new();
    let mut add = |list: &[&'static str], hint: Hint| {
        words.extend(list);
        meanings.resize(words.len(), hint);
    };
    add(&words::list("name"), Hint::Key);
    add(&words::list("quiet name"), Hint::Quiet);
    add(&["://"], Hint::Url);
    add(&["@tcp(", "@unix("], Hint::Dsn);
    add(&words::list("statement"), Hint::Statement);
    add(PEM, Hint::Pem);
    add(&["$ansible_vault;"], Hint::Vault);
    add(&["data:", "data\":"], Hint::Entries);
    shapes::beginnings()
        .iter()
        .for_each(|(word, which)| add(&[word.as_str()], Hint::Shape(*which, word.len())));
    // Only more words than a machine has memory for cannot be looked for; a test looks for each.
    Hints { words: AhoCorasick::builder().ascii_case_insensitive(true).build(&words).ok(), meanings }
});

/// Where the first word that ends after `from` ends.
pub(super) fn first(text: &[u8], from: usize) -> Option<usize> {
    HINTS.words.as_ref()?.find(Input::new(text).span(from.min(text.len())..text.len())).map(|word| word.end())
}

/// All words on a line with the places after their ends, in order.
pub(super) fn each(line: &[u8], mut found: impl FnMut(Hint, usize)) {
    let hints = &*HINTS;
    for word in hints.words.iter().flat_map(|words| words.find_overlapping_iter(line)) {
        if let Some(hint) = hints.meanings.get(word.pattern().as_usize()) {
            found(*hint, word.end());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_is_found_in_either_case() {
        let mut words = ["name", "quiet name", "statement"].map(words::list).concat();
        words.extend(PEM);
        words.extend(shapes::beginnings().iter().map(|(word, _)| word.as_str()));
        for word in words {
            assert_eq!(word, word.to_ascii_lowercase());
            let line = format!("x {}", word.to_ascii_uppercase());
            assert!(first(line.as_bytes(), 0).is_some(), "{word}");
            let mut ends = Vec::new();
            each(line.as_bytes(), |_, end| ends.push(end));
            assert!(ends.contains(&line.len()) && ends.is_sorted(), "{word} {ends:?}");
        }
    }

    #[test]
    fn lines_without_a_word_are_passed_over() {
        assert_eq!(first(b"vm.swappiness = 1\nkernel.sysrq = 0\n", 0), None);
        assert_eq!(first(b"a = b\npassword = c", 0), Some(10));
    }
}
