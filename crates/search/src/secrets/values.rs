//! What a value looks like: nothing, a word of a configuration language, a path, a reference, something random.

use super::random::{credentials_in_base64, is_mixed, is_random};
use super::report::MARK;
use super::words;

/// Numbers with fewer digits are counts and sizes, no secrets.
const DIGITS_MIN: usize = 5;
/// What is shorter may be random and may be a word.
pub(super) const RANDOM_MIN: usize = 16;
/// Words are compared up to this length.
const WORD_MAX: usize = 32;

/// Whether the value of a key that is sure to be secret may stay: because it is none.
pub(super) fn is_none(value: &[u8]) -> bool {
    let value = value.trim_ascii();
    value.is_empty()
        || value.starts_with(MARK)
        || is_number(value)
        || is_word_of_configuration(value)
        || is_reference(value)
        || is_path(value)
        || value.iter().all(|b| b"*.-_\"'{}[]()|>\\,;?".contains(b))
        || value.len() >= 3 && value.iter().all(|b| matches!(b, b'x' | b'X'))
}

fn is_number(value: &[u8]) -> bool {
    let digits = value.strip_prefix(b"-").unwrap_or(value);
    // `464/tcp` is a port.
    let digits = digits.strip_suffix(b"/tcp").or_else(|| digits.strip_suffix(b"/udp")).unwrap_or(digits);
    digits.len() < DIGITS_MIN && digits.iter().all(u8::is_ascii_digit)
}

/// Words that say how, whether or where from, and not what.
fn is_word_of_configuration(value: &[u8]) -> bool {
    let mut buffer = [0; WORD_MAX];
    let Some(word) = lower(value, &mut buffer) else { return false };
    let first = word.split(|b| b.is_ascii_whitespace()).next().unwrap_or_default();
    words::has("first of value", first) || words::has("value", word)
}

fn lower<'a>(value: &[u8], buffer: &'a mut [u8; WORD_MAX]) -> Option<&'a [u8]> {
    let out = buffer.get_mut(..value.len())?;
    for (to, from) in out.iter_mut().zip(value) {
        *to = from.to_ascii_lowercase();
    }
    Some(out)
}

/// Something that stands for the secret and is not it: `${DB_PASS}`, `{{ vault_pass }}`, `%(pw)s`, `vault:…`, `<your password>`.
pub(super) fn is_reference(value: &[u8]) -> bool {
    if let Some(rest) = value.strip_prefix(b"$") {
        return variable(rest);
    }
    if value.starts_with(b"{{") {
        return value.ends_with(b"}}") && !contains(value, b"default(");
    }
    let wrapped: &[(&[u8], &[u8])] = &[
        (b"%(", b")s"),
        (b"%{", b"}"),
        (b"#{", b"}"),
        (b"<%", b"%>"),
        (b"@{", b"}"),
        (b"[[", b"]]"),
        (b"((", b"))"),
    ];
    if wrapped.iter().any(|(open, close)| value.starts_with(open) && value.ends_with(close)) {
        return true;
    }
    if let Some(inner) = value.strip_prefix(b"<").and_then(|v| v.strip_suffix(b">")) {
        return inner.iter().all(|b| b.is_ascii_alphabetic() || matches!(b, b' ' | b'-' | b'_' | b'.'));
    }
    for mark in [b"@", b"%"] {
        if let Some(inner) = value.strip_prefix(mark).and_then(|v| v.strip_suffix(mark)) {
            return !inner.is_empty() && inner.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'_');
        }
    }
    words::begins("reference", value) || tag(value)
}

/// `!secret db_password`, `!Ref Password`: a tag of YAML that fetches it.
fn tag(value: &[u8]) -> bool {
    let Some(rest) = value.strip_prefix(b"!") else { return false };
    let name = rest.iter().take_while(|b| b.is_ascii_alphabetic()).count();
    name >= 2 && (name == rest.len() && name < 8 || rest.get(name) == Some(&b' '))
}

/// What follows a `$`.
fn variable(rest: &[u8]) -> bool {
    match rest.first() {
        Some(b'(') => true,
        // A reference with a default is none: the default is looked at by itself.
        Some(b'{') => {
            let Some(close) = rest.iter().position(|b| *b == b'}') else { return false };
            let inner = rest.get(1..close).unwrap_or_default();
            let tail = rest.get(close + 1..).unwrap_or_default();
            let inner = inner.strip_prefix(b"{").unwrap_or(inner).trim_ascii();
            let name = inner.iter().all(|b| {
                b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b' ' | b'-' | b':' | b'/' | b'@')
            });
            name && !has_default(inner)
                && (tail.is_empty()
                    || tail == b"}"
                    || matches!(tail.first(), Some(b'$' | b'/'))
                    || tail.len() < 3)
        }
        // `$dir/private/key.pem`
        Some(_) if rest.iter().find(|b| !(b.is_ascii_alphanumeric() || **b == b'_')) == Some(&b'/') => true,
        Some(_) => {
            let name = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b':' | b'.');
            let upper = rest.iter().any(u8::is_ascii_uppercase);
            let lower = rest.iter().any(u8::is_ascii_lowercase);
            let digit = rest.iter().any(u8::is_ascii_digit);
            rest.iter().all(name)
                && !(upper && lower)
                && (!digit || upper && rest.contains(&b'_') || rest.len() == 1)
                || rest.starts_with(b"env:")
        }
        None => true,
    }
}

fn has_default(inner: &[u8]) -> bool {
    inner
        .iter()
        .position(|b| matches!(b, b':' | b'-'))
        .is_some_and(|at| at + 1 < inner.len() && !inner.starts_with(b"env:"))
}

/// `/etc/ssl/private/x.pem`, `./key`, `~/x`, `</etc/dovecot/key.pem`, `C:\keys\x`. A `/` also begins base64: a path has no `+`
/// and no `=`, and none of its names looks random.
pub(super) fn is_path(value: &[u8]) -> bool {
    let value = value.strip_prefix(b"<").or_else(|| value.strip_prefix(b"@")).unwrap_or(value);
    let rooted = value.starts_with(b"/")
        || value.starts_with(b"./")
        || value.starts_with(b"../")
        || value.starts_with(b"~/");
    let drive = matches!(value, [letter, b':', b'\\' | b'/', ..] if letter.is_ascii_alphabetic());
    let named = !value.contains(&b' ') && words::ends("ending", value) && value.len() < 80;
    if !(rooted || drive || named) || value.contains(&b'=') || value.contains(&b'+') {
        return false;
    }
    let first = value.split(|b| b.is_ascii_whitespace()).next().unwrap_or_default();
    !first
        .split(|b| matches!(b, b'/' | b'\\' | b'.' | b'-' | b'_'))
        .any(|name| name.len() >= RANDOM_MIN && is_mixed(name))
}

/// Whether the value of a key that may be secret looks like one.
pub(super) fn looks_secret(value: &[u8]) -> bool {
    let colons = value.iter().filter(|b| **b == b':').count();
    if is_none(value) || is_public(value) || value.contains(&b' ') || colons > 1 {
        return false;
    }
    credentials_in_base64(value) || value.len() >= RANDOM_MIN && is_random(value)
}

/// Known forms that are long and random and no secrets: UUIDs, checksums with their algorithm, addresses, versions, times.
pub(super) fn is_public(value: &[u8]) -> bool {
    words::begins("public", value) || is_uuid(value) || is_address(value)
}

/// `01234567-89ab-cdef-0123-456789abcdef`
fn is_uuid(value: &[u8]) -> bool {
    let value = value.strip_prefix(b"{").and_then(|v| v.strip_suffix(b"}")).unwrap_or(value);
    value.len() == 36
        && value
            .iter()
            .enumerate()
            .all(|(i, b)| if matches!(i, 8 | 13 | 18 | 23) { *b == b'-' } else { b.is_ascii_hexdigit() })
}

/// `00:11:22:33:44:55`, `fe80::1/64`, `10.0.0.0/8`
fn is_address(value: &[u8]) -> bool {
    let separators = value.iter().filter(|b| matches!(b, b':' | b'.')).count();
    separators >= 2 && value.iter().all(|b| b.is_ascii_hexdigit() || matches!(b, b':' | b'.' | b'/' | b'%'))
}

pub(super) fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    haystack.windows(needle.len().max(1)).any(|w| w == needle)
}

/// Whether `needle` (in lower case) occurs, letters of either case alike.
pub(super) fn contains_word(haystack: &[u8], needle: &[u8]) -> bool {
    haystack.windows(needle.len().max(1)).any(|w| w.eq_ignore_ascii_case(needle))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_secret_stays() {
        for value in [
            "",
            "yes",
            "No",
            "none",
            "8",
            "1024",
            "required pam_unix.so",
            "files systemd",
            "scram-sha-256",
            "/etc/ssl/private/a.pem",
            "</etc/dovecot/dh.pem",
            "~/.ssh/id_rsa",
            "${DB_PASS}",
            "$DB_PASS",
            "$http_token",
            "$(pass show db)",
            "{{ vault_db }}",
            "${{ secrets.TOKEN }}",
            "%(pw)s",
            "vault:secret/data/db#pw",
            "ENC[PKCS7,abc]",
            "<your-password>",
            "<withheld:password>",
            "@DB_PASS@",
            "%PASSWORD%",
            "env:PGPASS",
            "process.env.PW",
            "var.db_password",
            "********",
            "xxxxx",
            "{",
            "[",
            "|",
            "!secret db",
            "server.key",
        ] {
            assert!(is_none(value.as_bytes()), "{value}");
        }
    }

    #[test]
    fn what_may_be_one_does_not() {
        for value in [
            "changeme",
            "secret",
            "hunter2",
            "12345",
            "/aB3dE5fG7hI9jK1lM3nO5pQ7rS9tU1vW3xY5zA7bC=",
            "pa$$word",
            "${DB_PASS:-letmein}",
            "${db.pass:letmein}",
            "$6$salt$hash",
            "p@ss",
            "correct horse battery",
            "a-b",
        ] {
            assert!(!is_none(value.as_bytes()), "{value}");
        }
    }

    #[test]
    fn public_things_do_not_look_secret() {
        for value in [
            "2f1c9b1e-5a0f-4e0e-9a53-0d6f6a1b2c3d",
            "sha256:9f86d081884c7d659a2feaa0c55ad015",
            "00:11:22:33:44:55",
            "fe80::1:2:3/64",
            "hmac-sha256",
            "org.freedesktop.login1.manage",
            "some_long_setting_name_v2",
            "aes256-gcm@openssh.com",
            "192.168.100.100/24",
            "ThisIsCamelCaseWithWords",
            "/usr/lib/x86_64-linux-gnu/libfoo.so.1.2.3",
        ] {
            assert!(!looks_secret(value.as_bytes()), "{value}");
        }
    }

    #[test]
    fn random_things_do() {
        for value in [
            "9f86d081884c7d659a2feaa0c55ad015",
            "aGVsbG86d29ybGQhIQ==",
            "Zk3vQ9xL2mWp7RtY8sBn",
            "AQDf9k2ZlQXvFhAA8w7cJm3nLq1bY2kR9t==",
        ] {
            assert!(looks_secret(value.as_bytes()), "{value}");
        }
    }
}
