//! The word lists in `words.txt`.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

const TEXT: &str = include_str!("words.txt");

/// The words of each list.
static LISTS: LazyLock<HashMap<&str, HashSet<&'static [u8]>>> = LazyLock::new(|| {
    let mut lists: HashMap<_, HashSet<_>> = HashMap::new();
    each(|list, word| {
        lists.entry(list).or_default().insert(word.as_bytes());
    });
    lists
});

fn each(mut take: impl FnMut(&'static str, &'static str)) {
    let mut list = "";
    for line in TEXT.lines().filter(|line| !line.starts_with('#')) {
        match line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            Some(name) => list = name,
            None => line.split('|').filter(|word| !word.is_empty()).for_each(|word| take(list, word)),
        }
    }
}

/// The words of a list, in the order of the file.
pub(super) fn list(name: &str) -> Vec<&'static str> {
    let mut words = Vec::new();
    each(|list, word| words.extend((list == name).then_some(word)));
    words
}

/// Whether a list contains a word.
pub(super) fn has(list: &str, word: &[u8]) -> bool {
    LISTS.get(list).is_some_and(|words| words.contains(word))
}

/// Whether a test succeeds for any word of a list.
pub(super) fn any(list: &str, test: impl Fn(&[u8]) -> bool) -> bool {
    LISTS.get(list).is_some_and(|words| words.iter().any(|word| test(word)))
}

/// Whether a text begins with any word of a list.
pub(super) fn begins(list: &str, text: &[u8]) -> bool {
    any(list, |word| text.starts_with(word))
}

/// Whether a text ends with any word of a list.
pub(super) fn ends(list: &str, text: &[u8]) -> bool {
    any(list, |word| text.ends_with(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_ends_with_a_blank_that_an_editor_would_take() {
        for (i, line) in TEXT.lines().enumerate() {
            assert_eq!(line, line.trim_end(), "words.txt:{}", i + 1);
        }
    }

    #[test]
    fn lists_have_words() {
        assert!(LISTS.len() > 20 && LISTS.iter().all(|(name, words)| !name.is_empty() && !words.is_empty()));
        assert!(has("value", b"not set") && !has("value", b"not"));
        assert!(ends("key end", b"myapikey") && begins("reference", b"env(X)"));
        assert!(list("statement").contains(&"user "));
    }
}
