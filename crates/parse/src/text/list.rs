//! Lists and tables of words that are written as one text and split when the program is built: they cost nothing at
//! run time.

/// The words of a text, `list!("CPU cpu MEM")`, or its parts between separators, `list!("Done.|Using ", b'|')`.
macro_rules! list {
    ($text:expr) => {{
        const TEXT: &[u8] = $text.as_bytes();
        const WORDS: [&[u8]; $crate::text::list::count_words(TEXT)] = $crate::text::list::split_words(TEXT);
        &WORDS
    }};
    ($text:expr, $separator:expr) => {{
        const TEXT: &[u8] = $text.as_bytes();
        const PARTS: [&[u8]; $crate::text::list::count(TEXT, $separator)] =
            $crate::text::list::split(TEXT, $separator);
        &PARTS
    }};
}

/// Pairs of words: what a tool prints, and what it is. `pairs!("proc/s sys.forks  cswch/s sys.ctxt")`.
macro_rules! pairs {
    ($text:expr) => {{
        const TEXT: &[u8] = $text.as_bytes();
        const PAIRS: [(&[u8], &str); $crate::text::list::count_words(TEXT) / 2] =
            $crate::text::list::split_pairs($crate::text::list::split_words::<
                { $crate::text::list::count_words(TEXT) },
            >(TEXT));
        &PAIRS
    }};
}

pub(crate) use {list, pairs};

/// What a tool prints, and what it is.
pub type Pairs = &'static [(&'static [u8], &'static str)];

/// The other word of the pair with this one.
pub fn find(pairs: Pairs, word: &[u8]) -> Option<&'static str> {
    pairs.iter().find(|(printed, _)| *printed == word).map(|(_, what)| *what)
}

/// How many parts a text has.
pub const fn count(text: &[u8], separator: u8) -> usize {
    let (mut parts, mut at) = (1, 0);
    while at < text.len() {
        if text[at] == separator {
            parts += 1;
        }
        at += 1;
    }
    parts
}

/// The parts of a text, as many as [`count`] says.
pub const fn split<const N: usize>(text: &'static [u8], separator: u8) -> [&'static [u8]; N] {
    let mut parts: [&[u8]; N] = [&[]; N];
    let (mut part, mut rest, mut at) = (0, text, 0);
    while at < rest.len() {
        if rest[at] == separator {
            let (before, behind) = rest.split_at(at);
            parts[part] = before;
            (part, rest, at) = (part + 1, behind.split_at(1).1, 0);
        } else {
            at += 1;
        }
    }
    parts[part] = rest;
    parts
}

/// How many words a text has.
pub const fn count_words(text: &[u8]) -> usize {
    let (mut words, mut at) = (0, 0);
    while at < text.len() {
        if !text[at].is_ascii_whitespace() && (at == 0 || text[at - 1].is_ascii_whitespace()) {
            words += 1;
        }
        at += 1;
    }
    words
}

/// The words of a text, as many as [`count_words`] says.
pub const fn split_words<const N: usize>(text: &'static [u8]) -> [&'static [u8]; N] {
    let mut words: [&[u8]; N] = [&[]; N];
    let (mut word, mut rest) = (0, text.trim_ascii());
    while !rest.is_empty() {
        let mut end = 0;
        while end < rest.len() && !rest[end].is_ascii_whitespace() {
            end += 1;
        }
        let (first, behind) = rest.split_at(end);
        words[word] = first;
        (word, rest) = (word + 1, behind.trim_ascii_start());
    }
    words
}

/// Every two of the words.
pub const fn split_pairs<const N: usize, const M: usize>(
    words: [&'static [u8]; M],
) -> [(&'static [u8], &'static str); N] {
    let mut pairs: [(&[u8], &str); N] = [(&[], ""); N];
    let mut at = 0;
    while at < N {
        let Ok(what) = std::str::from_utf8(words[2 * at + 1]) else { panic!("the text is UTF-8") };
        pairs[at] = (words[2 * at], what);
        at += 1;
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_split() {
        let words: &[&[u8]] = list!(" a bc\n  d ");
        assert_eq!(words, [&b"a"[..], b"bc", b"d"]);
        let parts: &[&[u8]] = list!("a b|c|", b'|');
        assert_eq!(parts, [&b"a b"[..], b"c", b""]);
        assert_eq!(find(pairs!("a 1  b 2"), b"b"), Some("2"));
    }
}
