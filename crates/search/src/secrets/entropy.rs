//! The last resort: long random text on a line with a hint, if no other rule found the secret.

use super::line::Line;
use super::random;
use super::report::{Reason, Span};
use super::values;
use super::words;

/// Shorter texts are not distinguishable from ordinary ones.
const BASE64_MIN: usize = 24;
const HEX_MIN: usize = 32;
/// Minimum entropy in bits per byte. For short base64 texts it is lower than 6.
const BITS_MIN: f64 = 3.8;
/// Longer texts are data: certificates, images.
const LENGTH_MAX: usize = 512;

/// Checks a line with hints. `first` and `last` are the ends of the first and the last hint. A hint
/// inside the random text itself is coincidence.
pub(super) fn look(line: &Line, (first, last): (usize, usize), spans: &mut Vec<Span>) {
    let mut at = line.head;
    while at < line.bytes.len() {
        let start = line.until(at, is_part);
        let mut end = line.until(start, |b| !is_part(b));
        while end > start && matches!(line.before(end), b'.' | b':') {
            end -= 1;
        }
        at = end.max(start) + 1;
        // In `name=value` only the value counts.
        let text = line.get(start, end);
        let skip = text
            .iter()
            .position(|b| *b == b'=')
            .filter(|i| i + 2 < text.len() && text.get(i + 1) != Some(&b'='))
            .map_or(0, |i| i + 1);
        let (start, text) = (start + skip, text.get(skip..).unwrap_or_default());
        if (first <= start || last > end) && is_secret(line, start, text) {
            if words::any("public line", |word| values::contains_word(line.bytes, word)) {
                return;
            }
            spans.push(Span { start, end, reason: Reason::Random, key: (0, 0) });
        }
    }
}

fn is_part(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=' | b'-' | b'_' | b'.' | b':')
}

fn is_secret(line: &Line, start: usize, text: &[u8]) -> bool {
    if text.len() < BASE64_MIN || text.len() > LENGTH_MAX || values::is_none(text) || values::is_public(text)
    {
        return false;
    }
    // Parts of a path, a variable or an e-mail address.
    if matches!(line.before(start), b'$' | b'{' | b'@' | b'%' | b'~' | b'*') || values::contains(text, b"://")
    {
        return false;
    }
    if random::is_hex(text) {
        return text.len() >= HEX_MIN;
    }
    let kinds = [u8::is_ascii_lowercase as fn(&u8) -> bool, u8::is_ascii_uppercase, u8::is_ascii_digit];
    kinds.iter().all(|kind| text.iter().any(kind))
        && random::is_mixed(text)
        && random::entropy_of(text) >= BITS_MIN
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<&str> {
        let mut spans = Vec::new();
        look(&Line::new(text.as_bytes()), (0, text.len()), &mut spans);
        spans.iter().map(|s| &text[s.start..s.end]).collect()
    }

    #[test]
    fn random_text_is_told_from_names_and_public_things() {
        assert_eq!(found("auth with Zk3vQ9xL2mWp7RtY8sBnCc4D now"), ["Zk3vQ9xL2mWp7RtY8sBnCc4D"]);
        assert_eq!(
            found("key 0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e"),
            ["0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e"]
        );
        for line in [
            "key sha256 0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e",
            "token 2f1c9b1e-5a0f-4e0e-9a53-0d6f6a1b2c3d",
            "Ciphers chacha20-poly1305@openssh.com,aes256-gcm@openssh.com",
            "auth /usr/lib/x86_64-linux-gnu/security/pam_unix.so",
            "key SomeVeryLongCamelCaseIdentifier2",
        ] {
            assert_eq!(found(line), Vec::<&str>::new(), "{line}");
        }
    }
}
