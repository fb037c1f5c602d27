//! Files that are withheld completely because of their content, wherever they are: private keys,
//! vaults, password hashes.

use super::values;

/// How far behind the beginning of a PEM block its base64 must begin.
const PEM_HEADERS_MAX: usize = 512;
/// This much base64 in a row makes it a PEM block, and not a mention of one.
const PEM_MIN: usize = 32;

/// The reason for withholding a text completely; `None` if there is none.
pub(super) fn why(text: &str) -> Option<&'static str> {
    let bytes = text.as_bytes();
    if bytes.starts_with(b"PuTTY-User-Key-File-") {
        return Some("private-key");
    }
    if bytes.starts_with(b"$ANSIBLE_VAULT;")
        || bytes.starts_with(b"Salted__")
        || bytes.starts_with(b"U2FsdGVkX1")
    {
        return Some("vault");
    }
    if is_hashes(bytes) {
        return Some("password-hashes");
    }
    has_private_key(text).then_some("private-key")
}

/// Whether the text has `-----BEGIN … PRIVATE KEY-----` with a key behind it, not just a mention,
/// or a private part in another format.
fn has_private_key(text: &str) -> bool {
    // One search for the common beginning, which most texts do not contain.
    let mut rest = text;
    while let Some(at) = rest.find("-----BEGIN ") {
        rest = rest.get(at + 11..).unwrap_or_default();
        let Some(end) = rest.find("-----") else { return false };
        let label = rest.get(..end).unwrap_or_default();
        let private = label.contains("PRIVATE KEY") || label.contains("OpenVPN Static key");
        rest = rest.get(end + 5..).unwrap_or_default();
        if label.len() < 64 && private && base64_follows(rest.as_bytes()) {
            return true;
        }
    }
    text.contains("client-key-data:") && text.contains("LS0tLS1CRUdJTi")
}

fn base64_follows(rest: &[u8]) -> bool {
    let near = rest.get(..rest.len().min(PEM_HEADERS_MAX)).unwrap_or_default();
    let mut run = 0;
    for byte in near {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=') {
            run += 1;
            if run >= PEM_MIN {
                return true;
            }
        } else {
            run = 0;
        }
    }
    false
}

/// Whether the text has lines like `/etc/shadow`: a name, a hash and at least three more fields.
fn is_hashes(bytes: &[u8]) -> bool {
    if !values::contains(bytes.get(..bytes.len().min(4096)).unwrap_or_default(), b":$") {
        return false;
    }
    bytes.split(|b| *b == b'\n').take(64).any(|line| {
        let mut fields = line.split(|b| *b == b':');
        let name = fields.next().unwrap_or_default();
        let hash = fields.next().unwrap_or_default().trim_ascii();
        let hash = hash.strip_prefix(b"!").unwrap_or(hash);
        !name.is_empty()
            && name.len() <= 32
            && name.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.'))
            && hash.len() >= 12
            && hash.first() == Some(&b'$')
            && hash.get(1..).unwrap_or_default().contains(&b'$')
            && fields.count() >= 3
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_hashes_are_refused() {
        let body = "c29tZXRoaW5nIHRoYXQgaXMgbm8ga2V5".repeat(2);
        for label in [
            "RSA PRIVATE KEY",
            "OPENSSH PRIVATE KEY",
            "PRIVATE KEY",
            "ENCRYPTED PRIVATE KEY",
            "PGP PRIVATE KEY BLOCK",
        ] {
            assert_eq!(
                why(&format!("a: 1\n-----BEGIN {label}-----\n{body}\n")),
                Some("private-key"),
                "{label}"
            );
            assert_eq!(
                why(&format!("{{\"k\": \"-----BEGIN {label}-----\\n{body}\\n\"}}")),
                Some("private-key"),
                "{label}"
            );
        }
        assert_eq!(
            why(&format!("me:${}${}:19000:0:99999:7:::\n", 6, "x".repeat(40))),
            Some("password-hashes")
        );
        assert_eq!(why("$ANSIBLE_VAULT;1.1;AES256\n3030\n"), Some("vault"));
    }

    #[test]
    fn texts_about_them_and_certificates_are_not() {
        let body = "c29tZXRoaW5nIHRoYXQgaXMgbm8ga2V5".repeat(2);
        for text in [
            "# put the -----BEGIN PRIVATE KEY----- here\n".to_owned(),
            format!("-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n"),
            "root:x:0:0:root:/root:/bin/bash\n".to_owned(),
            "PATH=$HOME/bin:$PATH\n".to_owned(),
            String::new(),
        ] {
            assert_eq!(why(&text), None, "{text}");
        }
    }
}
