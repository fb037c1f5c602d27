//! Values that are secret by their form, whatever stands before them: tokens of well-known services, hashes of passwords.
//!
//! A form is a beginning, the bytes that may follow, and how many. What is here is documented by the services themselves so that
//! scanners find it; a form that ordinary text has too is none.

use super::random;
use super::report::{Reason, Span, Stage};
use super::values;

/// One form.
pub(super) struct Shape {
    /// In lower case, as the automaton wants it.
    pub(super) hint: &'static str,
    /// As it is written.
    begins: &'static [u8],
    follows: Follows,
    min: usize,
    reason: Reason,
}

/// What may follow the beginning.
#[derive(Clone, Copy)]
enum Follows {
    /// Letters, digits, `-`, `_`.
    Word,
    /// Also `.`
    Dotted,
    /// Also `+`, `/`, `=`.
    Base64,
    Hex,
    /// Also `$`, `/`, `.`, `=`, `,`, `+`, `*`: hashes of passwords.
    Crypt,
    /// Whatever ends at a blank or a quote; of a URL.
    Path,
}

impl Follows {
    fn has(self, byte: u8) -> bool {
        let word = byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        match self {
            Self::Word => word,
            Self::Dotted => word || byte == b'.',
            Self::Base64 => word || matches!(byte, b'+' | b'/' | b'=' | b'.' | b'%'),
            Self::Hex => byte.is_ascii_hexdigit(),
            Self::Crypt => word || matches!(byte, b'$' | b'/' | b'.' | b'=' | b',' | b'+' | b'*' | b':'),
            Self::Path => {
                byte > b' '
                    && !matches!(
                        byte,
                        b'"' | b'\'' | b'<' | b'>' | b'`' | b')' | b']' | b'}' | b',' | b';' | b'\\'
                    )
            }
        }
    }
}

const fn shape(
    hint: &'static str,
    begins: &'static str,
    follows: Follows,
    min: usize,
    reason: Reason,
) -> Shape {
    Shape { hint, begins: begins.as_bytes(), follows, min, reason }
}

use Follows::{Base64, Crypt, Dotted, Hex, Path, Word};
use Reason::{Hash, Key, PrivateKey, Token};

/// All forms.
pub(super) const SHAPES: &[Shape] = &[
    shape("akia", "AKIA", Word, 16, Key),
    shape("asia", "ASIA", Word, 16, Key),
    shape("ghp_", "ghp_", Word, 30, Token),
    shape("gho_", "gho_", Word, 30, Token),
    shape("ghu_", "ghu_", Word, 30, Token),
    shape("ghs_", "ghs_", Word, 30, Token),
    shape("ghr_", "ghr_", Word, 30, Token),
    shape("github_pat_", "github_pat_", Word, 22, Token),
    shape("glpat-", "glpat-", Dotted, 16, Token),
    shape("gldt-", "gldt-", Word, 16, Token),
    shape("glrt-", "glrt-", Dotted, 16, Token),
    shape("glptt-", "glptt-", Word, 16, Token),
    shape("glsa_", "glsa_", Word, 20, Token),
    shape("glc_", "glc_", Base64, 24, Token),
    shape("xoxa-", "xoxa-", Word, 10, Token),
    shape("xoxb-", "xoxb-", Word, 10, Token),
    shape("xoxp-", "xoxp-", Word, 10, Token),
    shape("xoxr-", "xoxr-", Word, 10, Token),
    shape("xoxs-", "xoxs-", Word, 10, Token),
    shape("xapp-", "xapp-", Word, 20, Token),
    shape("hooks.slack.com/", "hooks.slack.com/", Path, 16, Token),
    shape("discord.com/api/webhooks/", "discord.com/api/webhooks/", Path, 16, Token),
    shape("discordapp.com/api/webhooks/", "discordapp.com/api/webhooks/", Path, 16, Token),
    shape("webhook.office.com/", "webhook.office.com/", Path, 16, Token),
    shape("outlook.office.com/webhook/", "outlook.office.com/webhook/", Path, 16, Token),
    shape("chat.googleapis.com/v1/spaces/", "chat.googleapis.com/v1/spaces/", Path, 16, Token),
    shape("hooks.zapier.com/hooks/", "hooks.zapier.com/hooks/", Path, 8, Token),
    shape("api.telegram.org/bot", "api.telegram.org/bot", Path, 16, Token),
    shape("hc-ping.com/", "hc-ping.com/", Path, 16, Token),
    shape("sk_live_", "sk_live_", Word, 16, Key),
    shape("sk_test_", "sk_test_", Word, 16, Key),
    shape("rk_live_", "rk_live_", Word, 16, Key),
    shape("rk_test_", "rk_test_", Word, 16, Key),
    shape("whsec_", "whsec_", Base64, 16, Key),
    shape("sk-", "sk-", Word, 32, Key),
    shape("aiza", "AIza", Word, 30, Key),
    shape("ya29.", "ya29.", Word, 20, Token),
    shape("gocspx-", "GOCSPX-", Word, 16, Key),
    shape("sg.", "SG.", Dotted, 40, Key),
    shape("key-", "key-", Hex, 32, Key),
    shape("npm_", "npm_", Word, 30, Token),
    shape("pypi-", "pypi-", Word, 40, Token),
    shape("rubygems_", "rubygems_", Hex, 32, Token),
    shape("dop_v1_", "dop_v1_", Hex, 32, Token),
    shape("doo_v1_", "doo_v1_", Hex, 32, Token),
    shape("hvs.", "hvs.", Word, 20, Token),
    shape("hvb.", "hvb.", Word, 20, Token),
    shape("dckr_pat_", "dckr_pat_", Word, 16, Token),
    shape("hf_", "hf_", Word, 30, Token),
    shape("shpat_", "shpat_", Hex, 32, Token),
    shape("shpss_", "shpss_", Hex, 32, Token),
    shape("sqoatp-", "sqOatp-", Word, 20, Token),
    shape("lin_api_", "lin_api_", Word, 32, Token),
    shape("pul-", "pul-", Hex, 32, Token),
    shape("tskey-", "tskey-", Word, 16, Key),
    shape("nrak-", "NRAK-", Word, 20, Key),
    shape("eyj", "eyJ", Dotted, 30, Token),
    shape("age-secret-key-", "AGE-SECRET-KEY-", Word, 20, PrivateKey),
    shape("ls0tls1crudjti", "LS0tLS1CRUdJTi", Base64, 40, PrivateKey),
    shape("accountkey=", "AccountKey=", Base64, 40, Key),
    shape("sharedaccesskey=", "SharedAccessKey=", Base64, 20, Key),
    shape("sharedaccesssignature=", "SharedAccessSignature=", Path, 20, Key),
    shape("sig=", "sig=", Base64, 24, Key),
    shape("x-amz-signature=", "X-Amz-Signature=", Hex, 32, Key),
    shape("$1$", "$1$", Crypt, 12, Hash),
    shape("$2a$", "$2a$", Crypt, 40, Hash),
    shape("$2b$", "$2b$", Crypt, 40, Hash),
    shape("$2y$", "$2y$", Crypt, 40, Hash),
    shape("$5$", "$5$", Crypt, 20, Hash),
    shape("$6$", "$6$", Crypt, 20, Hash),
    shape("$7$", "$7$", Crypt, 20, Hash),
    shape("$y$", "$y$", Crypt, 20, Hash),
    shape("$gy$", "$gy$", Crypt, 20, Hash),
    shape("$8$", "$8$", Crypt, 20, Hash),
    shape("$9$", "$9$", Crypt, 20, Hash),
    shape("$apr1$", "$apr1$", Crypt, 16, Hash),
    shape("$argon2", "$argon2", Crypt, 24, Hash),
    shape("$scrypt$", "$scrypt$", Crypt, 20, Hash),
    shape("$pbkdf2", "$pbkdf2", Crypt, 24, Hash),
    shape("-pbkdf2-", "-pbkdf2-", Crypt, 32, Hash),
    shape("pbkdf2_sha256$", "pbkdf2_sha256$", Crypt, 20, Hash),
    shape("pbkdf2:sha", "pbkdf2:sha", Crypt, 20, Hash),
    shape("scrypt:32768", "scrypt:32768", Crypt, 20, Hash),
    shape("grub.pbkdf2.", "grub.pbkdf2.", Dotted, 32, Hash),
    shape("scram-sha-256$", "SCRAM-SHA-256$", Crypt, 20, Hash),
    shape("{ssha}", "{SSHA}", Base64, 16, Hash),
    shape("{ssha256}", "{SSHA256}", Base64, 16, Hash),
    shape("{ssha512}", "{SSHA512}", Base64, 16, Hash),
    shape("{sha}", "{SHA}", Base64, 16, Hash),
    shape("{sha256}", "{SHA256}", Base64, 16, Hash),
    shape("{sha512}", "{SHA512}", Base64, 16, Hash),
    shape("{md5}", "{MD5}", Base64, 16, Hash),
    shape("{smd5}", "{SMD5}", Base64, 16, Hash),
    shape("{crypt}", "{CRYPT}", Crypt, 8, Hash),
    shape("{pbkdf2", "{PBKDF2", Crypt, 16, Hash),
    shape("{argon2}", "{ARGON2}", Crypt, 16, Hash),
    shape("{blf-crypt}", "{BLF-CRYPT}", Crypt, 16, Hash),
    shape("{sha512-crypt}", "{SHA512-CRYPT}", Crypt, 16, Hash),
    shape("{plain}", "{PLAIN}", Path, 3, Hash),
    shape("\"md5", "\"md5", Hex, 32, Hash),
    shape("'md5", "'md5", Hex, 32, Hash),
];

/// Looks at a place where the beginning of a form ends.
pub(super) fn at(line: &[u8], shape: &Shape, end: usize, spans: &mut Vec<Span>) {
    let Some(start) = end.checked_sub(shape.begins.len()) else { return };
    if !line.get(start..end).is_some_and(|have| have.eq_ignore_ascii_case(shape.begins)) {
        return;
    }
    let exact = line.get(start..end) == Some(shape.begins);
    let letters = shape.begins.first().is_some_and(u8::is_ascii_alphanumeric);
    let before = start.checked_sub(1).and_then(|i| line.get(i)).copied();
    // The beginning of a form is the beginning of a word. Only hashes of LDAP are written in either case.
    if !exact && !shape.begins.starts_with(b"{")
        || letters && before.is_some_and(|b| b.is_ascii_alphanumeric())
    {
        return;
    }
    let rest = line.get(end..).unwrap_or_default();
    let len = rest.iter().take_while(|b| shape.follows.has(**b)).count();
    let body = rest.get(..len).unwrap_or_default();
    if len < shape.min || !plausible(shape, body) {
        return;
    }
    // Where the beginning is a place or a key and no part of the value, it stays.
    let keep = matches!(shape.follows, Path) || shape.begins.ends_with(b"=") || shape.begins.ends_with(b"}");
    let from = if keep {
        end
    } else if matches!(shape.begins.first(), Some(b'"' | b'\'')) {
        start + 1
    } else {
        start
    };
    spans.push(Span { start: from, end: end + len, reason: shape.reason, stage: Stage::Shape, key: (0, 0) });
}

/// What tells the value from a word that begins alike.
fn plausible(shape: &Shape, body: &[u8]) -> bool {
    match shape.begins {
        b"AKIA" | b"ASIA" => {
            body.iter().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit())
                && body.iter().any(u8::is_ascii_digit)
        }
        // A JWT has two dots; the second part begins as the first.
        b"eyJ" => body.iter().filter(|b| **b == b'.').count() >= 2 && values::contains(body, b".eyJ"),
        b"SG." => body.contains(&b'.'),
        b"sk-" | b"hf_" | b"glc_" | b"sig=" | b"npm_" => random::is_mixed(body) || random::is_hex(body),
        // The certificate of a pair is public.
        b"LS0tLS1CRUdJTi" => {
            !body.starts_with(b"BDRVJU") && !body.starts_with(b"BQVUJMSU") && !body.starts_with(b"BYNTA5")
        }
        b"{CRYPT}" | b"{PLAIN}" => !body.starts_with(b"$") || body.len() > 8,
        _ => true,
    }
}

/// Credentials in a URL, at the place after `://`: of `https://user:password@host/` the password, of
/// `https://0123456789abcdef0123@host/` the whole.
pub(super) fn url(line: &[u8], at: usize, comment: bool, spans: &mut Vec<Span>) {
    let rest = line.get(at..).unwrap_or_default();
    let end = |b: &u8| *b <= b' ' || matches!(b, b'"' | b'\'' | b'<' | b'>' | b'`' | b'\\');
    let all = rest.iter().position(end).unwrap_or(rest.len());
    let all = rest.get(..all).unwrap_or_default();
    let authority = all.iter().position(|b| matches!(b, b'/' | b'?' | b'#')).unwrap_or(all.len());
    // Who did not escape a slash in the password still means it: the last `@` counts when the first part has a colon.
    let inside = all.get(..authority).unwrap_or_default();
    let Some(sign) = inside.iter().rposition(|b| *b == b'@').or_else(|| unescaped(all, inside)) else {
        return;
    };
    let user = all.get(..sign).unwrap_or_default();
    let (from, value) = match user.iter().position(|b| *b == b':') {
        Some(colon) => (colon + 1, user.get(colon + 1..).unwrap_or_default()),
        None => (0, user),
    };
    let whole = from == 0;
    if values::is_none(value) || whole && !(value.len() >= 16 && random::is_random(value)) {
        return;
    }
    if comment
        && matches!(
            value,
            b"pass" | b"password" | b"passwd" | b"pwd" | b"PASSWORD" | b"PASS" | b"Password" | b"secret"
        )
    {
        return;
    }
    let reason = if whole { Token } else { Reason::Password };
    spans.push(Span {
        start: at + from,
        end: at + from + value.len(),
        reason,
        stage: Stage::Url,
        key: (0, 0),
    });
}

/// `amqp://user:pa/ss@host`: the `@` behind the slash, if what stands before the slash has a colon and no number behind it.
fn unescaped(all: &[u8], inside: &[u8]) -> Option<usize> {
    let colon = inside.iter().position(|b| *b == b':')?;
    let port = inside.get(colon + 1..)?;
    if inside.first() == Some(&b'[') || port.iter().all(u8::is_ascii_digit) {
        return None;
    }
    all.iter().position(|b| *b == b'@')
}

/// `user:password@tcp(host:3306)/db`, at the place after `@tcp(`.
pub(super) fn dsn(line: &[u8], end: usize, spans: &mut Vec<Span>) {
    let before = line.get(..end).unwrap_or_default();
    let Some(sign) = before.iter().rposition(|b| *b == b'@') else { return };
    let start = before
        .get(..sign)
        .unwrap_or_default()
        .iter()
        .rposition(|b| *b <= b' ' || matches!(b, b'"' | b'\'' | b'=' | b'`'));
    let start = start.map_or(0, |i| i + 1);
    let Some(colon) = before.get(start..sign).unwrap_or_default().iter().position(|b| *b == b':') else {
        return;
    };
    let from = start + colon + 1;
    if !values::is_none(before.get(from..sign).unwrap_or_default()) {
        spans.push(Span { start: from, end: sign, reason: Reason::Password, stage: Stage::Url, key: (0, 0) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(line: &str) -> Vec<&str> {
        let mut spans = Vec::new();
        let lower = line.to_ascii_lowercase();
        for shape in SHAPES {
            for (i, _) in lower.match_indices(shape.hint) {
                at(line.as_bytes(), shape, i + shape.begins.len(), &mut spans);
            }
        }
        for (i, _) in line.match_indices("://") {
            url(line.as_bytes(), i + 3, false, &mut spans);
        }
        if let Some(i) = line.find("@tcp(") {
            dsn(line.as_bytes(), i + 5, &mut spans);
        }
        spans.iter().map(|s| &line[s.start..s.end]).collect()
    }

    #[test]
    fn hints_are_the_beginnings() {
        for shape in SHAPES {
            assert_eq!(shape.begins.to_ascii_lowercase(), shape.hint.as_bytes());
        }
    }

    #[test]
    fn hashes_and_urls_are_found() {
        let hash = format!("$6${}${}", "a1B2c3D4", "x9Y8z7".repeat(14));
        assert_eq!(found(&format!("root:{hash}")), [format!("root:{hash}").strip_prefix("root:").unwrap()]);
        assert_eq!(found("a http://me:geheim1@host:80/x b"), ["geheim1"]);
        assert_eq!(found("redis://:geheim@h/0"), ["geheim"]);
        assert_eq!(found("amqp://me:ge/heim@h/0"), ["ge/heim"]);
        assert_eq!(
            found("https://d41d8cd98f00b204e9800998ecf8427e@o1.example.org/5"),
            ["d41d8cd98f00b204e9800998ecf8427e"]
        );
        assert_eq!(found("dsn = me:geheim@tcp(db:3306)/x"), ["geheim"]);
    }

    #[test]
    fn ordinary_text_is_not() {
        for line in [
            "http://host:8080/a@b",
            "https://example.org/@user/post:1",
            "git+ssh://git@github.com/a/b",
            "http://me:${PW}@host",
            "http://[::1]:80/x@y",
            "task-force-sk-learn",
            "sig=ed25519",
            "ASIAN FOOD",
            "$1 $2 $5",
            "usermod -p '$6$'",
            "msg.format",
        ] {
            assert_eq!(found(line), Vec::<&str>::new(), "{line}");
        }
    }
}
