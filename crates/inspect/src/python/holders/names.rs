//! Tells names that are part of the program from data that is used as names.
//!
//! `setattr(store, "alice@example.com", session)` and `answer.__dict__ = json.loads(text)` create
//! attributes named by a client's input. That is contents of memory, and is withheld. A word that
//! is data, such as a first name, cannot be told from a name.

/// Characters of a name. The longest in the standard library of 3.12 has 59.
pub(super) const NAME_MAX: usize = 64;
/// Digits in a row: four for a year or `sha3_512`. Customer and telephone numbers have more.
const DIGITS_MAX: usize = 4;
/// Limit of the changes between letters, capitals and digits in a part of a name: `i18n` has two,
/// `DOMXPathNS3` has three. In random base64 every second pair changes, so that eight characters
/// have more than three.
const CHANGES_MAX: usize = 3;
/// Names of several words have at most one change in this many characters; random names have nearly
/// two.
const CHARS_PER_CHANGE: usize = 4;
/// Length from which a mix of hexadecimal letters and digits counts as random: 99 in 100 random
/// ones of this length have both, and no word does.
const HEX_MIN: usize = 8;

/// Whether a text is a Python identifier as people write them.
pub(super) fn is_name(text: &str) -> bool {
    let is_identifier = text.chars().next().is_some_and(|first| first.is_alphabetic() || first == '_')
        && text.chars().all(|char| char.is_alphanumeric() || char == '_');
    is_identifier && text.chars().count() <= NAME_MAX && !text.split('_').any(is_random)
}

/// Whether a text is a module name: names separated by dots.
pub(super) fn is_module(text: &str) -> bool {
    text.len() <= 4 * NAME_MAX && text.split('.').all(is_name)
}

/// Whether a part of a name looks like a number, a hash or a token.
fn is_random(part: &str) -> bool {
    let digits = |part: &str| part.bytes().filter(u8::is_ascii_digit).count();
    let is_long_number = part.split(|char: char| !char.is_numeric()).any(|run| run.len() > DIGITS_MAX);
    let is_hex = part.len() >= HEX_MIN
        && part.bytes().all(|byte| byte.is_ascii_hexdigit())
        && digits(part) > 0
        && digits(part) < part.len();
    let kind = |char: char| (char.is_numeric(), char.is_uppercase());
    // A capital before a small letter begins a word.
    let changes = part
        .chars()
        .zip(part.chars().skip(1))
        .filter(|(one, other)| kind(*one) != kind(*other) && !(one.is_uppercase() && other.is_lowercase()));
    let changes = changes.count();
    is_long_number || is_hex || changes > CHANGES_MAX && changes * CHARS_PER_CHANGE > part.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_programs_are_names() {
        for name in [
            "STORE",
            "_items",
            "__closure__",
            "cell_contents",
            "x86_64",
            "sha3_512",
            "utf8_to_utf16",
            "i18n",
            "b64encode",
            "getHTTPResponseCode",
            "test_2024",
            "größe",
            "AbstractSingletonProxyFactoryBean",
            "_Session__token",
            "EINPROGRESS",
            "HTTP2Connection",
            "DOMXPathNS3",
            "_abc_impl",
            "deadbeef",
            "LC_MEASUREMENT",
            "setUpClass",
            "SO_BINDTODEVICE",
            "md5",
            "k8s",
            "f",
            "_",
        ] {
            assert!(is_name(name), "{name}");
        }
        for module in ["__main__", "os.path", "concurrent.futures.thread", "_pytest.config"] {
            assert!(is_module(module), "{module}");
        }
    }

    #[test]
    fn data_are_none() {
        let long = "a".repeat(NAME_MAX + 1);
        for name in [
            "",
            "alice@example.com",
            "Alice Smith",
            "visitor-17",
            "1st",
            "a.b",
            "a\nb",
            "/home/alice",
            "192.168.0.1",
            "2f1c9b1e-5a0f-4e0e-9a53-0d6f6a1b2c3d",
            "f1c9b1e05a0f4e0e9a530d6f6a1b2c3d",
            "session_0f1e2d3c4b5a6978",
            "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9",
            "Zk3vQ9xL2mWp7RtY8sBn",
            "user_4711234",
            "phone_4915112345678",
            "ghp_a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8",
            "c0ffee1e",
            "tel٠١٢٣٤٥",
            &long,
        ] {
            assert!(!is_name(name), "{name}");
        }
        assert!(!is_module("alice@example.com") && !is_module("app..x") && !is_module(""));
    }
}
