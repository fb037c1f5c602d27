//! Decides by a setting's name whether its value is secret: `db.password`, `apiKey`,
//! `AWS_SECRET_ACCESS_KEY`.
//!
//! The name is split into words (at `_`, `-`, `.`, changes of case), and the last ones decide:
//! `token_ttl` is a duration, `password_file` a path, `secretName` a name.

use super::report::Reason;
use super::words;

/// How certain the name is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    /// The value is secret in any form, unless it says that there is none.
    Sure(Reason),
    /// The value is secret if it looks secret: `key`, `auth`, `cookie`.
    Maybe(Reason),
}

impl Key {
    pub(super) fn reason(self) -> Reason {
        match self {
            Self::Sure(reason) | Self::Maybe(reason) => reason,
        }
    }
}

/// Only this many letters of a word are compared, from its end.
const WORD_MAX: usize = 24;

/// Classifies a setting by its name.
pub(super) fn classify(name: &[u8]) -> Option<Key> {
    let mut words = Words { rest: name };
    let mut last = words.next_back_word()?;
    let mut stripped = 0;
    while stripped < 4 && (last.is_empty() || words::has("after", last.as_slice())) {
        match words.next_back_word() {
            Some(word) => last = word,
            None => break,
        }
        stripped += 1;
    }
    let before = words.next_back_word();
    let before = before.as_ref().map_or(&b""[..], Word::as_slice);
    if name.eq_ignore_ascii_case(b"clear-text") {
        return Some(Key::Sure(Reason::Password));
    }
    sure(last.as_slice(), before)
        .map(Key::Sure)
        .or_else(|| maybe(last.as_slice(), before, stripped).map(Key::Maybe))
}

fn sure(last: &[u8], before: &[u8]) -> Option<Reason> {
    match last {
        b"key" | b"keys" if matches!(before, b"private" | b"priv") => return Some(Reason::PrivateKey),
        b"key" | b"keys" => return words::has("key owner", before).then_some(Reason::Key),
        _ if words::has("elsewhere", before) => return None,
        b"pass" if words::has("proxy", before) => return None,
        b"phrase" | b"word" if before == b"pass" => return Some(Reason::Password),
        b"community" => return Some(Reason::Community),
        b"secrets" | b"credential" => return Some(Reason::Secret),
        b"credentials" if before.is_empty() => return Some(Reason::Secret),
        _ if words::has("password", last) => return Some(Reason::Password),
        _ => {}
    }
    let ends = [
        ("password end", Reason::Password),
        ("secret end", Reason::Secret),
        ("token end", Reason::Token),
        ("key end", Reason::Key),
    ];
    ends.into_iter().find(|(list, _)| words::ends(list, last)).map(|(_, reason)| reason)
}

fn maybe(last: &[u8], before: &[u8], stripped: usize) -> Option<Reason> {
    if !words::has("maybe", last) {
        return None;
    }
    match last {
        b"key" | b"keys" => (!words::has("public key", before)).then_some(Reason::Key),
        b"hash" | b"digest" | b"salt" | b"nonce" | b"code" | b"entropy" => {
            words::has("hashed", before).then_some(Reason::Hash)
        }
        b"url" | b"uri" | b"endpoint" => {
            (stripped == 0 && matches!(before, b"webhook" | b"hook")).then_some(Reason::Token)
        }
        b"login" | b"userpwd" => Some(Reason::Password),
        b"serial" | b"sid" | b"session" => None,
        b"auth" | b"authorization" | b"bearer" => Some(Reason::Authorization),
        b"tokens" | b"jwt" | b"webhook" | b"hook" => Some(Reason::Token),
        b"seed" | b"license" | b"licence" | b"encrypt" => Some(Reason::Key),
        _ => Some(Reason::Secret),
    }
}

/// The end of a word, in lower case, without trailing digits.
struct Word {
    letters: [u8; WORD_MAX],
    len: usize,
}

impl Word {
    fn new(text: &[u8]) -> Self {
        let digits = text.iter().rev().take_while(|b| b.is_ascii_digit()).count();
        let text = text.get(..text.len() - digits).unwrap_or_default();
        let text = text.get(text.len().saturating_sub(WORD_MAX)..).unwrap_or_default();
        let mut letters = [0; WORD_MAX];
        for (to, from) in letters.iter_mut().zip(text) {
            *to = from.to_ascii_lowercase();
        }
        Self { letters, len: text.len() }
    }

    fn as_slice(&self) -> &[u8] {
        self.letters.get(..self.len).unwrap_or_default()
    }

    fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// Iterates over the words of a name, last first.
struct Words<'a> {
    rest: &'a [u8],
}

impl Words<'_> {
    fn next_back_word(&mut self) -> Option<Word> {
        let is_word = |b: &u8| b.is_ascii_alphanumeric() || *b >= 0x80;
        let end = self.rest.iter().rposition(is_word)? + 1;
        let mut start = end - 1;
        while start > 0 {
            let (Some(here), Some(before)) = (self.rest.get(start), self.rest.get(start - 1)) else { break };
            if !is_word(before)
                || is_bound(*before, *here, self.rest.get(start + 1).filter(|_| start + 1 < end))
            {
                break;
            }
            start -= 1;
        }
        let word = Word::new(self.rest.get(start..end)?);
        self.rest = self.rest.get(..start)?;
        Some(word)
    }
}

/// Whether a word begins at `here`: before the `P` in `dbPassword` and in `DBPassword`.
fn is_bound(before: u8, here: u8, after: Option<&u8>) -> bool {
    here.is_ascii_uppercase()
        && (before.is_ascii_lowercase()
            || before.is_ascii_digit()
            || before.is_ascii_uppercase() && after.is_some_and(u8::is_ascii_lowercase))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_say_so() {
        for name in [
            "password",
            "PASSWORD",
            "db.password",
            "spring.datasource.password",
            "dbPassword",
            "DBPassword",
            "DB_PASS",
            "userPassword",
            "mysqlpassword",
            "ldap_default_authtok",
            "bindpw",
            "requirepass",
            "password1",
            "password_old",
            "passwordHash",
            "AWS_SECRET_ACCESS_KEY",
            "secretAccessKey",
            "client_secret",
            "clientSecret",
            "stable_secret",
            "authToken",
            "_authToken",
            "access_token",
            "apiKey",
            "API_KEY",
            "x-api-key",
            "PrivateKey",
            "PresharedKey",
            "private-key",
            "license_key",
            "wep-key0",
            "tcp_fastopen_key",
            "pass_phrase",
            "SECRET_KEY_BASE",
            "token_value",
        ] {
            assert!(matches!(classify(name.as_bytes()), Some(Key::Sure(_))), "{name}");
        }
    }

    #[test]
    fn names_that_speak_of_something_else() {
        for name in [
            "password_file",
            "passwordFile",
            "PASSWORD_MIN_LEN",
            "PasswordAuthentication",
            "password_encryption",
            "token_ttl",
            "tokenUrl",
            "secretName",
            "token_endpoint_type",
            "ssl_certificate",
            "proxy_pass",
            "fastcgi_pass",
            "ProxyPass",
            "bypass",
            "compass",
            "public_key",
            "PublicKey",
            "keyboard",
            "monkey",
            "tokenizer",
            "PASS_MAX_DAYS",
            "author",
            "secretary",
            "",
            "-",
            "123",
        ] {
            assert_eq!(classify(name.as_bytes()), None, "{name}");
        }
    }

    #[test]
    fn names_that_may() {
        for name in ["key", "auth", "host.auth", "cookie", "webhook_url", "session_key", "max_tokens"] {
            assert!(matches!(classify(name.as_bytes()), Some(Key::Maybe(_))), "{name}");
        }
    }

    proptest::proptest! {
        #[test]
        fn nothing_panics(name in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..80)) {
            let _ = classify(&name);
        }
    }
}
