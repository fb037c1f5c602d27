//! Text to words, as Lucene's standard tokenizer and its lowercase filter make them, so that both back ends have the same words.
//!
//! ```text
//! text    vm.swappiness = 60    # 10.0.0.1:9200, /etc/hosts, foo_bar, it's, 1,000
//! words   vm.swappiness  60  10.0.0.1  9200  etc  hosts  foo_bar  it's  1,000
//! ```
//!
//! The rules are those of UAX #29 with the classes of Unicode 12.1, which Lucene 9 has: see [`grammar`] for all of them and
//! [`scan`] for the short cut through ASCII, where nearly all configuration lies.

pub mod block;
pub mod class;
pub mod grammar;
pub mod scan;
pub mod tantivy;

pub use self::tantivy::Words;

/// Characters (UTF-16 units) of a word; a longer one is cut into several, as Lucene does.
pub const WORD_MAX: usize = 255;

/// Calls `each(position, word)` for every word of a text, lowercased. Positions count from 0 and leave no gap.
pub fn words(text: &str, mut each: impl FnMut(u32, &str)) {
    let text = text.to_ascii_lowercase();
    let mut wide = String::new();
    let mut position = 0u32;
    for found in scan::Scanner::new(&text) {
        if found.ascii {
            each(position, found.word);
        } else {
            wide.clear();
            push_lower(&mut wide, found.word);
            each(position, &wide);
        }
        position = position.saturating_add(1);
    }
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
