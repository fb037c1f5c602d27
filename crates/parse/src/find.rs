//! Searches for words that are known when the program is built, for lines that are asked about many of them.

/// Where some fixed bytes are in a line. What a search for them needs is made once: that costs more than the search.
macro_rules! find {
    ($line:expr, $what:expr) => {{
        static FINDER: std::sync::LazyLock<memchr::memmem::Finder<'static>> =
            std::sync::LazyLock::new(|| memchr::memmem::Finder::new($what));
        FINDER.find($line)
    }};
}

pub(crate) use find;

/// Which of up to 64 pieces of four bytes are in a text, in one pass over it: those that begin a longer word to look
/// for make most of the searches needless.
pub(crate) struct Pieces {
    tables: [[u64; 256]; 4],
}

impl Pieces {
    /// The pieces; `*` as the last byte stands for any.
    pub(crate) const fn new(pieces: &[[u8; 4]]) -> Pieces {
        let mut tables = [[0; 256]; 4];
        let mut i = 0;
        while i < pieces.len() {
            let mut at = 0;
            while at < 4 {
                let byte = pieces[i][at];
                let mut any = 0;
                while any < 256 {
                    if any == byte as usize || (at == 3 && byte == b'*') {
                        tables[at][any] |= 1 << i;
                    }
                    any += 1;
                }
                at += 1;
            }
            i += 1;
        }
        Pieces { tables }
    }

    /// Whether any of them is in the text, or may be at its end.
    pub(crate) fn may_be_in(&self, text: &[u8]) -> bool {
        let [first, second, third, fourth] = &self.tables;
        let (mut a, mut b, mut c, mut found) = (0_u64, 0_u64, 0_u64, 0_u64);
        for byte in text {
            let byte = usize::from(*byte);
            found |= c & fourth[byte];
            c = b & third[byte];
            b = a & second[byte];
            a = first[byte];
        }
        found | c != 0
    }
}

#[cfg(test)]
mod tests {
    use super::Pieces;

    #[test]
    fn pieces_are_found_anywhere() {
        static PIECES: Pieces = Pieces::new(&[*b"segf", *b"-fs*"]);
        for text in ["x: segfault at 8", "segf", "EXT4-fs (sda1)", "EXT4-fs", "-fs"] {
            assert!(PIECES.may_be_in(text.as_bytes()), "{text}");
        }
        for text in ["", "se", "se gf", "s-f s", "seg fault"] {
            assert!(!PIECES.may_be_in(text.as_bytes()), "{text}");
        }
    }
}
