//! Text to words, as Lucene's standard tokenizer and its lowercase filter make them, so that both back ends have the same words.
//!
//! ```text
//! text    vm.swappiness = 60    # 10.0.0.1:9200, /etc/hosts, foo_bar, it's, 1,000
//! words   vm.swappiness  60  10.0.0.1  9200  etc  hosts  foo_bar  it's  1,000
//! ```
//!
//! The rules are those of UAX #29 with the classes of Unicode 12.1, which Lucene 9 has: see [`grammar`].

pub mod class;
pub mod grammar;

/// Characters (UTF-16 units) of a word; a longer one is cut into several, as Lucene does.
pub const WORD_MAX: usize = 255;

/// Calls `each(position, word)` for every word of a text, lowercased. Positions count from 0 and leave no gap.
pub fn words(text: &str, each: impl FnMut(u32, &str)) {
    words_of_lower(&text.to_ascii_lowercase(), each);
}

/// The same of a text whose ASCII is in lower case.
pub fn words_of_lower(text: &str, mut each: impl FnMut(u32, &str)) {
    words_until(text, |position, word| {
        each(position, word);
        false
    });
}

/// The same until `found` says so; whether it did.
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

/// A text in lower case, character by character as Java does it: each stays one character.
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
