//! Finds the words that make a line worth checking. Lines without one, which are most, are skipped
//! at memory speed.

use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, Input};

use super::{shapes, words};

/// The check to run where a word ends.
#[derive(Clone, Copy)]
pub(super) enum Hint {
    /// The word is part of a setting's name.
    Key,
    /// Like [`Hint::Key`], but the word alone does not make the line suspicious: `url`, `cookie`.
    Quiet,
    /// A URL, in which credentials may follow.
    Url,
    /// `user:password@tcp(host)`.
    Dsn,
    /// The beginning of a known shape: its index, and the length of the beginning in bytes.
    Shape(usize, usize),
    /// A statement or a command with positional arguments.
    Statement,
    /// The beginning of a private PEM block.
    Pem,
    /// The beginning of a text encrypted with a password.
    Vault,
    /// The entries of a manifest, which may be a Kubernetes `Secret`.
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
    // Building fails only for a list beyond any memory size. A test searches for each word.
    Hints { words: AhoCorasick::builder().ascii_case_insensitive(true).build(&words).ok(), meanings }
});

/// The end of the first word that ends after `from`.
pub(super) fn first(text: &[u8], from: usize) -> Option<usize> {
    HINTS.words.as_ref()?.find(Input::new(text).span(from.min(text.len())..text.len())).map(|word| word.end())
}

/// Calls `found` with each word on a line and its end, in order.
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
