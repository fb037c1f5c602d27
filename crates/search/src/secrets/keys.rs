//! Whether the name of a setting says that its value is secret: `db.password`, `apiKey`, `AWS_SECRET_ACCESS_KEY`.
//!
//! The name is split into words (`_`, `-`, `.`, changes of case) and the last ones decide: `token_ttl` is a time,
//! `password_file` a path, `secretName` a name.

use super::report::Reason;

/// How sure the name is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Key {
    /// The value is secret whatever it looks like, unless it says that there is none.
    Sure(Reason),
    /// The value is secret if it looks like it: `key`, `auth`, `cookie`.
    Maybe(Reason),
}

impl Key {
    pub(super) fn reason(self) -> Reason {
        match self {
            Self::Sure(reason) | Self::Maybe(reason) => reason,
        }
    }
}

/// Letters of a word that are looked at, from its end.
const WORD_MAX: usize = 24;

/// Words that may follow without changing what the value is: `password_old`, `token_value`.
#[rustfmt::skip]
const AFTER: &[&[u8]] = &[
    b"value", b"val", b"old", b"new", b"prev", b"previous", b"current", b"next", b"prod", b"production",
    b"dev", b"test", b"staging", b"stage", b"default", b"main", b"primary", b"secondary", b"master",
    b"slave", b"replica", b"root", b"backup", b"base", b"b", b"hash", b"hashed", b"encrypted", b"enc",
    b"raw", b"plain", b"plaintext", b"clear", b"cleartext", b"text", b"string", b"str", b"data", b"admin",
    b"again", b"confirm", b"confirmation", b"v", b"hex", b"rw", b"ro", b"sha", b"md",
];

/// Names of passwords.
#[rustfmt::skip]
const PASSWORDS: &[&[u8]] = &[
    b"password", b"passwd", b"passwort", b"passphrase", b"passcode", b"pwd", b"pw", b"pass", b"passwords",
    b"passphrases", b"passwds", b"psk", b"authtok", b"bindpw", b"rootpw", b"userpw", b"dbpw", b"adminpw",
    b"ldappw", b"rootpwd", b"sapwd", b"userpassword", b"passwordsalt", b"motdepasse", b"contrasena", b"senha", b"kennwort",
    b"wachtwoord", b"pswd", b"psswd", b"passwrd", b"pword", b"keypass", b"storepass", b"dbpass", b"mypass",
    b"rootpass", b"smtppass", b"imappass", b"sshpass", b"ldappass", b"userpass", b"adminpass", b"authpass",
    b"bindpass", b"webpass", b"mailpass", b"wifipass", b"requirepass", b"masterauth", b"spass",
    b"mongopass", b"redispass", b"pgpass", b"pin", b"puk", b"wpapsk", b"upwd",
];

/// Endings of words that are run together.
const PASSWORD_ENDS: &[&[u8]] = &[b"password", b"passwd", b"passphrase", b"passwort", b"bindpw", b"rootpw"];
const SECRET_ENDS: &[&[u8]] = &[b"secret", b"secretkey"];
const TOKEN_ENDS: &[&[u8]] =
    &[b"authtoken", b"accesstoken", b"apitoken", b"bottoken", b"refreshtoken", b"token"];
#[rustfmt::skip]
const KEY_ENDS: &[&[u8]] = &[
    b"apikey", b"accesskey", b"authkey", b"sharedkey", b"privatekey", b"licensekey", b"routingkey",
    b"encryptionkey", b"masterkey", b"accountkey", b"presharedkey", b"appkey", b"sessionkey", b"licencekey",
    b"hmackey",
];

/// Words before `key` with which it is secret.
#[rustfmt::skip]
const KEY_OWNERS: &[&[u8]] = &[
    b"access", b"secret", b"private", b"auth", b"authentication", b"shared", b"preshared", b"api", b"app",
    b"application", b"account", b"master", b"encryption", b"encrypt", b"decryption", b"crypt", b"crypto",
    b"cipher", b"signing", b"sign", b"signature", b"license", b"licence", b"routing", b"integration",
    b"service", b"storage", b"session", b"deploy", b"ingest", b"ingestion", b"write", b"admin", b"hmac",
    b"consumer", b"subscription", b"bot", b"webhook", b"cookie", b"jwt", b"instrumentation", b"validation",
    b"aes", b"wep", b"fastopen", b"security", b"stats", b"csrf", b"hash", b"salt", b"client", b"management",
    b"product", b"activation", b"serial", b"recovery", b"unseal", b"unlock", b"luks", b"stream", b"join",
    b"enrollment", b"registration", b"logging", b"erase", b"tsig", b"ddns", b"cluster", b"gossip",
    b"replication", b"mac", b"wg", b"wireguard", b"sas", b"pre", b"psk", b"priv", b"oauth", b"token",
    b"wallet", b"stripe", b"sendgrid", b"mailgun", b"openai", b"datadog", b"maps", b"smtp", b"ssh", b"gpg",
    b"pgp", b"rsa", b"dsa", b"ec", b"tls", b"ssl",
];

/// Names whose value may be secret.
#[rustfmt::skip]
const MAYBE: &[&[u8]] = &[
    b"key", b"keys", b"auth", b"authorization", b"cookie", b"cookies", b"license", b"licence", b"otp",
    b"salt", b"seed", b"signature", b"sig", b"creds", b"cred", b"session", b"sessionid", b"jwt", b"bearer",
    b"hash", b"digest", b"nonce", b"tokens", b"credentials", b"serial", b"pepper", b"entropy", b"code",
    b"webhook", b"hook", b"url", b"uri", b"endpoint", b"login", b"userpwd", b"sid", b"encrypt",
];

/// What the name of a setting says of its value.
pub(super) fn classify(name: &[u8]) -> Option<Key> {
    let mut words = Words { rest: name };
    let mut last = words.next_back_word()?;
    let mut stripped = 0;
    while stripped < 4 && (last.is_empty() || AFTER.contains(&last.as_slice())) {
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
    if last == b"key" || last == b"keys" {
        return match before {
            b"private" | b"priv" => Some(Reason::PrivateKey),
            b"rsa" | b"dsa" | b"ec" | b"tls" | b"ssl" | b"ssh" | b"gpg" | b"pgp" | b"mac" | b"hash"
            | b"client" | b"wallet" | b"stream" | b"maps" | b"product" | b"serial" | b"cluster"
            | b"security" | b"service" | b"session" | b"routing" | b"stats" | b"sign" | b"signature"
            | b"write" | b"storage" | b"account" | b"management" => None,
            before if KEY_OWNERS.contains(&before) => Some(Reason::Key),
            _ => None,
        };
    }
    // `LoadCredential=db:/etc/app/db` says where it is, `update_password: on_create` when it is set.
    let elsewhere: &[&[u8]] = &[
        b"load",
        b"import",
        b"condition",
        b"assert",
        b"update",
        b"forgot",
        b"reset",
        b"change",
        b"require",
        b"enforce",
        b"show",
        b"expire",
        b"check",
        b"prompt",
        b"ask",
        b"use",
        b"allow",
    ];
    if elsewhere.contains(&before) {
        return None;
    }
    if last == b"pass"
        && matches!(before, b"proxy" | b"fastcgi" | b"uwsgi" | b"scgi" | b"grpc" | b"memcached" | b"by")
    {
        return None;
    }
    if before == b"pass" && (last == b"phrase" || last == b"word") {
        return Some(Reason::Password);
    }
    if PASSWORDS.contains(&last) || PASSWORD_ENDS.iter().any(|end| last.ends_with(end)) {
        return Some(Reason::Password);
    }
    if last == b"community" {
        return Some(Reason::Community);
    }
    if matches!(last, b"secrets" | b"credential") || SECRET_ENDS.iter().any(|end| last.ends_with(end)) {
        return Some(Reason::Secret);
    }
    if last == b"credentials" && before.is_empty() {
        return Some(Reason::Secret);
    }
    if TOKEN_ENDS.iter().any(|end| last.ends_with(end)) {
        return Some(Reason::Token);
    }
    KEY_ENDS.iter().any(|end| last.ends_with(end)).then_some(Reason::Key)
}

fn maybe(last: &[u8], before: &[u8], stripped: usize) -> Option<Reason> {
    if !MAYBE.contains(&last) {
        return None;
    }
    match last {
        b"key" | b"keys" => match before {
            b"public" | b"pub" | b"host" | b"known" | b"primary" | b"foreign" | b"partition" | b"sort"
            | b"gpg" | b"dns" => None,
            _ => Some(Reason::Key),
        },
        b"hash" | b"digest" | b"salt" | b"nonce" | b"code" | b"entropy" => {
            // `git_hash`, `layout_hash` are none of our business.
            matches!(
                before,
                b"password"
                    | b"passwd"
                    | b"pass"
                    | b"auth"
                    | b"secret"
                    | b"token"
                    | b"key"
                    | b"admin"
                    | b"cookie"
            )
            .then_some(Reason::Hash)
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

/// One word in lower case, its end if it is long, without digits at its end.
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

/// The words of a name from its end.
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

/// `dbPassword` has a bound before `P`, and so has `DBPassword`.
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
