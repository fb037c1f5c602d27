//! What strings have in common that carry a number each: `request-000123 user=7f3a` and its kin are `request-# user=#`.

/// In place of a number.
const NUMBER: u8 = b'#';
/// Letters only, but of the sixteen digits: so many make a part of a UUID, and few words.
const HEX_LETTERS_MIN: usize = 4;

/// Writes a text with each number replaced, and says whether there was any. Numbers are runs of digits, and whole words of
/// hexadecimal digits that have one of 0 to 9 among them, follow `0x`, or follow a number and a hyphen as the parts of a UUID do.
pub(super) fn of(text: &[u8], into: &mut Vec<u8>) -> bool {
    into.clear();
    let mut has_number = false;
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        if !is_in_word(*byte) {
            into.push(*byte);
            at += 1;
            continue;
        }
        let length = text[at..].iter().position(|byte| !is_in_word(*byte)).unwrap_or(text.len() - at);
        has_number |= word(&text[at..at + length], into);
        at += length;
    }
    has_number
}

fn is_in_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte >= 0x80
}

fn word(word: &[u8], into: &mut Vec<u8>) -> bool {
    let is_hex = |word: &[u8]| word.iter().all(u8::is_ascii_hexdigit);
    let has_digit = word.iter().any(u8::is_ascii_digit);
    if is_hex(word) && (has_digit || word.len() >= HEX_LETTERS_MIN && into.ends_with(b"#-")) {
        into.push(NUMBER);
        return true;
    }
    if let Some(digits) = word.strip_prefix(b"0x").or_else(|| word.strip_prefix(b"0X"))
        && is_hex(digits)
        && !digits.is_empty()
    {
        into.extend([&word[..2], &[NUMBER]].concat());
        return true;
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
    has_digit
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
        ] {
            assert_eq!(pattern(text), (expected.to_owned(), true));
        }
    }

    #[test]
    fn words_stay() {
        for text in ["", "a dead face", "decade-added", "feed", "x--y__z"] {
            assert_eq!(pattern(text), (text.to_owned(), false));
        }
    }
}
