//! Decides whether a text is random, which means machine-made.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use super::values::RANDOM_MIN;

/// Accepts any trailing bits. The caller maps the URL-safe alphabet.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireCanonical),
);

/// Whether a value is `user:password` in base64, as in `Authorization: Basic …` and Docker's
/// `"auth"`.
pub(super) fn credentials_in_base64(value: &[u8]) -> bool {
    if !(8..=1024).contains(&value.len()) {
        return false;
    }
    let standard = |byte: &u8| match byte {
        b'-' => b'+',
        b'_' => b'/',
        byte => *byte,
    };
    let decoded = BASE64.decode(value.iter().map(standard).collect::<Vec<u8>>()).unwrap_or_default();
    decoded.iter().skip(1).any(|byte| *byte == b':') && decoded.iter().all(|byte| (0x20..0x7f).contains(byte))
}

/// Whether letters and digits are mixed as in no human text.
pub(super) fn is_random(value: &[u8]) -> bool {
    is_hex(value) || is_mixed(value) && entropy_of(value) >= 3.2
}

/// Whether a value is hexadecimal with at least [`RANDOM_MIN`] characters, letters and digits among
/// them.
pub(super) fn is_hex(value: &[u8]) -> bool {
    value.len() >= RANDOM_MIN
        && value.iter().all(u8::is_ascii_hexdigit)
        && value.iter().any(u8::is_ascii_digit)
        && value.iter().filter(|b| b.is_ascii_alphabetic()).count() >= 2
}

/// Whether letters and digits alternate more often than in human text, in most of the value:
/// `Zk3vQ9xL2m`, but neither `aes256-gcm@openssh.com` nor `ThisIsCamelCase`.
pub(super) fn is_mixed(value: &[u8]) -> bool {
    let allowed = |b: &u8| b.is_ascii_alphanumeric() || b"+/=-_.~!@#$%^&*:?".contains(b);
    if !value.iter().all(allowed) || value.iter().filter(|b| b.is_ascii_digit()).count() < 2 {
        return false;
    }
    let (mut mixed, mut all) = (0, 0);
    for part in value.split(|b| matches!(b, b'-' | b'_' | b'.' | b':' | b'/' | b'@')) {
        all += part.len();
        // A trailing number does not make a name random.
        let inner = part.iter().rposition(|b| !b.is_ascii_digit()).map_or(0, |i| i + 1);
        let inner = part.get(..inner).unwrap_or_default();
        if changes(part) >= (part.len() / 5).max(2) && inner.iter().any(|b| !b.is_ascii_alphabetic()) {
            mixed += part.len();
        }
    }
    mixed * 2 > all
}

/// Counts the changes between lower case, upper case, digits and signs. A capital before a
/// lower-case letter does not count, because words begin like that.
fn changes(part: &[u8]) -> usize {
    let kind = |b: &u8| match b {
        b'a'..=b'z' => 0,
        b'A'..=b'Z' => 1,
        b'0'..=b'9' => 2,
        _ => 3,
    };
    let changed = |a: &u8, b: &u8| kind(a) != kind(b) && !(a.is_ascii_uppercase() && b.is_ascii_lowercase());
    part.windows(2).filter(|w| matches!(w, [a, b] if changed(a, b))).count()
}

/// The entropy of the byte frequencies, in bits per byte.
pub(super) fn entropy_of(value: &[u8]) -> f64 {
    let mut counts = [0_u32; 128];
    let mut total = 0_u32;
    for byte in value {
        if let Some(count) = counts.get_mut(usize::from(*byte)) {
            *count += 1;
            total += 1;
        }
    }
    let total = f64::from(total.max(1));
    counts.iter().filter(|n| **n > 0).map(|n| f64::from(*n) / total).map(|p| -p * p.log2()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_and_password_in_base64() {
        assert!(credentials_in_base64(b"dXNlcjpwYXNzd29yZA=="));
        assert!(!credentials_in_base64(b"bm90aGluZw=="));
        assert!(!credentials_in_base64(b"directory"));
    }

    #[test]
    fn names_are_not_mixed() {
        for name in [
            "aes256-gcm@openssh.com",
            "sun.security.pkcs11.disableKeyExtraction",
            "ThisIsCamelCase2024",
            "x86_64-linux-gnu",
        ] {
            assert!(!is_mixed(name.as_bytes()), "{name}");
        }
        assert!(is_mixed(b"Zk3vQ9xL2mWp7RtY8sBn") && is_mixed(b"k3v9q7x2m8"));
    }
}
