//! Splits text into tokens exactly as Lucene's standard tokenizer and lowercase filter do, so that
//! both back ends index the same terms.
//!
//! ```text
//! text    vm.swappiness = 60    # 10.0.0.1:9200, /etc/hosts, foo_bar, it's, 1,000
//! words   vm.swappiness  60  10.0.0.1  9200  etc  hosts  foo_bar  it's  1,000
//! ```
//!
//! The rules are UAX #29 with the character classes of Unicode 12.1, as in Lucene 9. See
//! [`grammar`].

pub mod class;
pub mod grammar;

/// Maximum token length in UTF-16 units. As in Lucene, a longer token is split.
pub const WORD_MAX: usize = 255;

/// Calls `each(position, word)` for every token, lowercased. Positions count from 0 without gaps.
pub fn words(text: &str, each: impl FnMut(u32, &str)) {
    words_of_lower(&text.to_ascii_lowercase(), each);
}

/// Like [`words`], for a text whose ASCII letters are already lower case.
pub fn words_of_lower(text: &str, mut each: impl FnMut(u32, &str)) {
    words_until(text, |position, word| {
        each(position, word);
        false
    });
}

/// Like [`words_of_lower`], but stops as soon as `found` returns true. Returns whether it did.
pub fn words_until(text: &str, mut found: impl FnMut(u32, &str) -> bool) -> bool {
    let mut wide = String::new();
    let mut position = 0u32;
    let mut rest = text;
    while !rest.is_empty() {
        let Some((length, is_ascii)) = grammar::word(rest) else {
            rest = rest.get(grammar::skip(rest)..).unwrap_or_default();
            continue;
        };
        let (word, behind) = rest.split_at(length);
        rest = behind;
        let word = if is_ascii {
            word
        } else {
            wide.clear();
            push_lower(&mut wide, word);
            &wide
        };
        if found(position, word) {
            return true;
        }
        position = position.saturating_add(1);
    }
    false
}

/// Lowercases character by character, as Java does: every character stays one character.
#[must_use]
pub fn lower(text: &str) -> String {
    let mut lower = String::with_capacity(text.len());
    push_lower(&mut lower, text);
    lower
}

fn push_lower(to: &mut String, text: &str) {
    for c in text.chars() {
        to.push(c.to_lowercase().next().unwrap_or(c));
    }
}

#[cfg(test)]
mod tests;
