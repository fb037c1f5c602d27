//! Decides what a value looks like: nothing, a word of a configuration language, a path, a
//! reference, random text.

use super::random::{credentials_in_base64, is_mixed, is_random};
use super::report::MARK;
use super::words;

/// Numbers with fewer digits are counts and sizes, not secrets.
const DIGITS_MIN: usize = 5;
/// Shorter values may be random or words.
pub(super) const RANDOM_MIN: usize = 16;
/// Longer words are not compared.
const WORD_MAX: usize = 32;

/// Whether the value of a sure key need not be withheld, because it is not a secret.
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

/// Whether the value is a word that says how, whether or from where, but not what.
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

/// Whether the value is a reference to a secret: `${DB_PASS}`, `{{ vault_pass }}`, `%(pw)s`,
/// `vault:…`, `<your password>`.
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

/// Whether the value is a YAML tag that fetches the secret: `!secret db_password`, `!Ref Password`.
fn tag(value: &[u8]) -> bool {
    let Some(rest) = value.strip_prefix(b"!") else { return false };
    let name = rest.iter().take_while(|b| b.is_ascii_alphabetic()).count();
    name >= 2 && (name == rest.len() && name < 8 || rest.get(name) == Some(&b' '))
}

/// Whether the text behind a `$` is the name of a variable or a command.
fn variable(rest: &[u8]) -> bool {
    match rest.first() {
        Some(b'(') => true,
        // With a default it is not just a reference. The default is checked separately.
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

/// Whether the value is a path: `/etc/ssl/private/x.pem`, `./key`, `~/x`, `</etc/dovecot/key.pem`,
/// `C:\keys\x`. Base64 may begin with `/` as well, so a path must contain no `+` or `=`, and no
/// name that looks random.
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

/// Whether the value of an unsure key looks like a secret.
pub(super) fn looks_secret(value: &[u8]) -> bool {
    let colons = value.iter().filter(|b| **b == b':').count();
    if is_none(value) || is_public(value) || value.contains(&b' ') || colons > 1 {
        return false;
    }
    credentials_in_base64(value) || value.len() >= RANDOM_MIN && is_random(value)
}

/// Whether the value has a known form that is long and random but not secret: UUIDs, checksums with
/// their algorithm, addresses, versions, times.
pub(super) fn is_public(value: &[u8]) -> bool {
    words::begins("public", value) || is_uuid(value) || is_address(value)
}

/// Whether the value is a UUID: `01234567-89ab-cdef-0123-456789abcdef`
fn is_uuid(value: &[u8]) -> bool {
    let value = value.strip_prefix(b"{").and_then(|v| v.strip_suffix(b"}")).unwrap_or(value);
    value.len() == 36
        && value
            .iter()
            .enumerate()
            .all(|(i, b)| if matches!(i, 8 | 13 | 18 | 23) { *b == b'-' } else { b.is_ascii_hexdigit() })
}

/// Whether the value is an address: `00:11:22:33:44:55`, `fe80::1/64`, `10.0.0.0/8`
fn is_address(value: &[u8]) -> bool {
    let separators = value.iter().filter(|b| matches!(b, b':' | b'.')).count();
    separators >= 2 && value.iter().all(|b| b.is_ascii_hexdigit() || matches!(b, b':' | b'.' | b'/' | b'%'))
}

pub(super) fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    haystack.windows(needle.len().max(1)).any(|w| w == needle)
}

/// Whether `needle` (in lower case) occurs, ignoring case.
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
