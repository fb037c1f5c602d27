//! Replaces numbers in strings by `#`: `request-000123 user=7f3a` becomes `request-# user=#`.

const NUMBER: u8 = b'#';
/// Minimum length of a word of hexadecimal letters without a digit that counts as a part of a UUID.
/// Few ordinary words are as long.
const HEX_LETTERS_MIN: usize = 4;
/// Words of this length with digits and letters are tokens: service keys have twenty and more
/// characters, session ids sixteen and more, and few names with a number are as long. Without its
/// digits a key would not be recognised as a secret any more.
const TOKEN_MIN: usize = 16;

/// Classes of bytes as bits.
const DIGIT: u8 = 1;
const HEX_LETTER: u8 = 2;
const LETTER: u8 = 4;

/// Zero separates words.
const CLASSES: [u8; 256] = {
    let mut classes = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        classes[byte] = match byte as u8 {
            b'0'..=b'9' => DIGIT,
            b'a'..=b'f' | b'A'..=b'F' => HEX_LETTER,
            b'g'..=b'z' | b'G'..=b'Z' | 0x80.. => LETTER,
            _ => 0,
        };
        byte += 1;
    }
    classes
};

fn class(byte: u8) -> u8 {
    CLASSES[usize::from(byte)]
}

/// Writes a text with each number replaced. Returns `false`, and writes nothing, without any.
/// Numbers are runs of digits; words of hexadecimal digits that contain a decimal one, follow `0x`,
/// or follow a number and a hyphen as in a UUID; and long words with a digit.
pub(super) fn of(text: &[u8], into: &mut Vec<u8>) -> bool {
    into.clear();
    if !text.iter().any(u8::is_ascii_digit) {
        return false;
    }
    let mut rest = text;
    while !rest.is_empty() {
        let length = rest.iter().position(|byte| class(*byte) == 0).unwrap_or(rest.len());
        let (word, after) = rest.split_at(length);
        let classes = word.iter().fold(0, |classes, byte| classes | class(*byte));
        put_word(word, classes, into);
        let length = after.iter().position(|byte| class(*byte) != 0).unwrap_or(after.len());
        let (between, after) = after.split_at(length);
        into.extend_from_slice(between);
        rest = after;
    }
    true
}

fn put_word(word: &[u8], classes: u8, into: &mut Vec<u8>) {
    if classes & LETTER == 0
        && (classes & DIGIT != 0 || word.len() >= HEX_LETTERS_MIN && into.ends_with(b"#-"))
    {
        into.push(NUMBER);
        return;
    }
    if classes & DIGIT == 0 {
        into.extend_from_slice(word);
        return;
    }
    if let [b'0', x @ (b'x' | b'X'), digits @ ..] = word
        && digits.iter().all(u8::is_ascii_hexdigit)
        && !digits.is_empty()
    {
        into.extend([b'0', *x, NUMBER]);
        return;
    }
    if word.len() >= TOKEN_MIN {
        into.push(NUMBER);
        return;
    }
    let mut is_number = false;
    for byte in word {
        if !byte.is_ascii_digit() {
            into.push(*byte);
        } else if !is_number {
            into.push(NUMBER);
        }
        is_number = byte.is_ascii_digit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> (String, bool) {
        let mut into = Vec::new();
        let has_number = of(text.as_bytes(), &mut into);
        (String::from_utf8(into).unwrap(), has_number)
    }

    #[test]
    fn numbers_are_taken_out() {
        for (text, expected) in [
            ("request-000123 user=7f3a", "request-# user=#"),
            ("0d9a7c3e-beef-4dad-9f00-aabbccddeeff", "#-#-#-#-#"),
            ("GET /v2/users/42?page=3 HTTP/1.1", "GET /v#/users/#?page=# HTTP/#.#"),
            ("2026-11-22T11:19:04Z", "#-#-#T#:#:#Z"),
            ("at 0x7ffd20c0 and 0xbeef", "at 0x# and 0x#"),
            ("größe9größe", "größe#größe"),
            ("12", "#"),
            ("1 dead face, decade-added, feed", "# dead face, decade-added, feed"),
            ("1 x--y__z 0x", "# x--y__z #x"),
        ] {
            assert_eq!(pattern(text), (expected.to_owned(), true));
        }
    }

    #[test]
    fn of_a_token_nothing_remains() {
        for (text, expected) in [
            ("key AKIAIOSFODNN7EXAMPLE used", "key # used"),
            ("ghp_a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8", "ghp_#"),
            ("MIIEpAIBAAKCAQEA0Z3VS5JJcds3xfn/ygWyF8PbnGy0AHB7MhgHcTz6", "#/#"),
            ("session=Zk3vQ9xL2mWp7RtY;", "session=#;"),
            ("eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0In0", "#.#"),
            ("connection12pool", "#"),
            // One byte less is a name with a number.
            ("connection2pool", "connection#pool"),
            ("GET /v1/orders/12 HTTP/1.1", "GET /v#/orders/# HTTP/#.#"),
            ("0x00007f1234567890ab", "0x#"),
        ] {
            assert_eq!(pattern(text), (expected.to_owned(), true));
        }
    }

    #[test]
    fn words_stay() {
        for text in ["", "a dead face", "decade-added", "feed", "x--y__z"] {
            assert_eq!(pattern(text), (String::new(), false));
        }
    }
}
