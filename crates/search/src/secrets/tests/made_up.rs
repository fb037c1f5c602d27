//! Generates values from a seed: none was ever a secret, and no two are alike. `tests/withheld.rs`
//! includes this file and the table in `planted.rs`.

/// A file with one secret.
pub(super) struct Planted {
    pub(super) name: &'static str,
    pub(super) path: &'static str,
    /// `§` and a letter stand for a generated value. Together the generated values are the secret.
    pub(super) text: &'static str,
}

/// A file with its generated values.
pub(super) struct Grown {
    pub(super) text: String,
    pub(super) values: Vec<String>,
}

pub(super) fn grow(row: &Planted, seed: u64) -> Grown {
    let mut made_up = MadeUp::new(seed);
    let mut parts = row.text.split('§');
    let mut text = parts.next().unwrap_or_default().to_owned();
    let mut values = Vec::new();
    for part in parts {
        let mut letters = part.chars();
        let value = made_up.value(letters.next().unwrap());
        text.push_str(&value);
        text.push_str(letters.as_str());
        values.push(value);
    }
    Grown { text, values }
}

/// A random number generator (xorshift).
struct MadeUp {
    state: u64,
}

const SMALL: &[u8] = b"abcdefghijklmnopqrstuvwxyz";
const LARGE: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ";
const DIGITS: &[u8] = b"0123456789";
const BASE64: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

impl MadeUp {
    fn new(seed: u64) -> Self {
        Self { state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1 }
    }

    fn below(&mut self, n: usize) -> usize {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 11) as usize % n
    }

    fn of(&mut self, letters: &[u8], count: usize) -> String {
        (0..count).map(|_| char::from(letters[self.below(letters.len())])).collect()
    }

    /// The value for a letter in a table.
    fn value(&mut self, letter: char) -> String {
        match letter {
            // A password of letters and digits.
            'P' => {
                let all: Vec<u8> = [SMALL, LARGE, DIGITS, DIGITS].concat();
                let middle = self.of(&all, 11);
                format!("{}{}{middle}", self.of(SMALL, 2), self.of(DIGITS, 1))
            }
            // A word as people choose it.
            'W' => self.of(SMALL, 10),
            // A word and signs.
            'X' => format!("{}!{}%{}", self.of(SMALL, 4), self.of(DIGITS, 3), self.of(LARGE, 4)),
            // Two words.
            'T' => format!("{} {}", self.of(SMALL, 6), self.of(SMALL, 7)),
            'D' => self.of(b"123456789", 8),
            'H' => self.of(b"0123456789abcdef", 32),
            'B' => format!("{}=", self.of(BASE64, 43)),
            'A' => self.of(&[LARGE, b"234567"].concat(), 16),
            'K' => format!("{}NRAL", self.of(b"0123456789abcdef", 36)),
            'S' => self.of(&[SMALL, DIGITS].concat(), 16),
            'C' => self.of(&[SMALL, LARGE, DIGITS, b"./"].concat(), 43),
            // A line of a private key.
            'L' => self.of(BASE64, 64),
            // `user:password` in base64.
            'U' => {
                base64(format!("{}:{}", self.of(SMALL, 4), self.of(&[SMALL, DIGITS].concat(), 10)).as_bytes())
            }
            'G' => format!(
                "{}-{}-{}-{}-{}",
                self.of(b"0123456789abcdef", 8),
                self.of(b"0123456789abcdef", 4),
                self.of(b"0123456789abcdef", 4),
                self.of(b"0123456789abcdef", 4),
                self.of(b"0123456789abcdef", 12)
            ),
            other => panic!("no value is made for {other}"),
        }
    }
}

fn base64(bytes: &[u8]) -> String {
    let mut out = String::new();
    for chunk in bytes.chunks(3) {
        let bits = chunk.iter().fold(0_u32, |bits, b| bits << 8 | u32::from(*b)) << (8 * (3 - chunk.len()));
        for i in 0..4 {
            let letter = BASE64[(bits >> (18 - 6 * i) & 63) as usize];
            out.push(if i <= chunk.len() { char::from(letter) } else { '=' });
        }
    }
    out
}
