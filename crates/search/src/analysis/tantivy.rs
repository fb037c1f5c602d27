//! The words of [`super::words`] for tantivy's index.

use tantivy::tokenizer::{Token, TokenStream, Tokenizer};

use super::push_lower;
use super::scan::Scanner;

/// The tokenizer, to be registered under [`Words::NAME`]. It keeps its buffers from text to text.
#[derive(Debug, Clone, Default)]
pub struct Words {
    text: String,
    token: Token,
}

impl Words {
    /// Its name in a schema.
    pub const NAME: &str = "mitra";
}

/// The words of one text.
#[derive(Debug)]
pub struct Stream<'a> {
    scanner: Scanner<'a>,
    token: &'a mut Token,
}

impl Tokenizer for Words {
    type TokenStream<'a> = Stream<'a>;

    fn token_stream<'a>(&'a mut self, text: &'a str) -> Stream<'a> {
        self.token.reset();
        self.text.clear();
        self.text.push_str(text);
        self.text.make_ascii_lowercase();
        Stream { scanner: Scanner::new(&self.text), token: &mut self.token }
    }
}

impl TokenStream for Stream<'_> {
    fn advance(&mut self) -> bool {
        let Some(found) = self.scanner.next() else { return false };
        self.token.text.clear();
        if found.ascii {
            self.token.text.push_str(found.word);
        } else {
            push_lower(&mut self.token.text, found.word);
        }
        self.token.position = self.token.position.wrapping_add(1);
        self.token.offset_from = found.at;
        self.token.offset_to = found.at + found.word.len();
        true
    }

    fn token(&self) -> &Token {
        self.token
    }

    fn token_mut(&mut self) -> &mut Token {
        self.token
    }
}
