//! The words at which a line is worth a look. Lines without one, most of all lines, are passed over at the speed of memory.

use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, Input};

use super::shapes::{SHAPES, Shape};

/// What to do where a word ends.
#[derive(Clone, Copy)]
pub(super) enum Hint {
    /// The word is part of the name of a setting.
    Key,
    /// As [`Hint::Key`], where the line itself says nothing of secrets: `url`, `cookie`.
    Quiet,
    /// A URL: credentials may follow.
    Url,
    /// `user:password@tcp(host)`.
    Dsn,
    /// The beginning of a form.
    Shape(&'static Shape),
    /// The line is a statement or a command whose arguments have a meaning by their place.
    Statement,
    /// The beginning of a PEM block that is private.
    Pem,
    /// The beginning of a text that was encrypted with a password.
    Vault,
    /// The entries of a manifest, which may be one of secrets.
    Entries,
}

/// Parts of names of settings.
const KEYS: &[&str] = &[
    "pass",
    "pwd",
    "passwort",
    "kennwort",
    "senha",
    "contrasena",
    "wachtwoord",
    "motdepasse",
    "secret",
    "token",
    "psk",
    "credential",
    "creds",
    "authtok",
    "bindpw",
    "rootpw",
    "dbpw",
    "userpw",
    "adminpw",
    "ldappw",
    "_pw",
    "-pw",
    ".pw",
    "pw=",
    "pw:",
    "pw =",
    "pw\"",
    "pw'",
    "pswd",
    "pword",
    "phrase",
    "key",
    "auth",
    "community",
    "passcode",
    "masterauth",
    "licen",
    "bearer",
    "salt",
    "pepper",
    "signature",
    "upwd",
    "sapwd",
    "jwt",
    "pin=",
    "pin:",
    "pin\"",
    "pin ",
    "puk",
    "seed",
];

const QUIET: &[&str] =
    &["cookie", "webhook", "otp", "clear-text", "login=", "userpwd", "encrypt\"", "encrypt ="];

/// Statements of programs and commands, see `statements.rs`.
pub(super) const STATEMENTS: &[&str] = &[
    "community",
    "com2sec",
    "trapsink",
    "trap2sink",
    "informsink",
    "createuser",
    "usmuser",
    "stats auth",
    "rename-command",
    "sqlconnectinfo",
    "tacacs-server",
    "radius-server",
    "cryptsetup",
    "monitor ",
    "allow ",
    "user ",
    "login ",
    "enable ",
    "mysql",
    "mariadb",
    "redis-cli",
    "ldap",
    "smbclient",
    "curl",
    "wget",
    "snmp",
    "mosquitto_",
    "sqlcmd",
    "lftp",
    "docker",
    "podman",
    "rabbitmqctl",
    "ipmitool",
    "sshpass",
    "htpasswd",
    "chpasswd",
    "passin",
    "passout",
    "openssl",
    "identified",
    "htdigest",
    "mount.cifs",
    "svn ",
    "kinit",
    "wpa_passphrase",
    "isql",
    "cqlsh",
    "mongo",
    "influx",
    "impala",
    "rclone",
    "zip ",
    "7z ",
    "gpg ",
    "net ads",
    "realm join",
    "$user",
    "useradd",
    "usermod",
    "nmcli",
    "keytool",
    "rdesktop",
    "xfreerdp",
    "vncpasswd",
    "basic ",
];

const PEM: &[&str] = &["private key-----", "private key block-----", "openvpn static key v1-----"];

struct Hints {
    words: Option<AhoCorasick>,
    meanings: Vec<Hint>,
}

static HINTS: LazyLock<Hints> = LazyLock::new(|| {
    let mut words: Vec<&str> = Vec::new();
    let mut meanings = Vec::new();
    let mut add = |list: &[&'static str], hint: Hint| {
        words.extend(list);
        meanings.resize(words.len(), hint);
    };
    add(KEYS, Hint::Key);
    add(QUIET, Hint::Quiet);
    add(&["://"], Hint::Url);
    add(&["@tcp(", "@unix("], Hint::Dsn);
    add(STATEMENTS, Hint::Statement);
    add(PEM, Hint::Pem);
    add(&["$ansible_vault;"], Hint::Vault);
    add(&["data:", "data\":"], Hint::Entries);
    SHAPES.iter().for_each(|shape| add(&[shape.hint], Hint::Shape(shape)));
    // Only more words than a machine has memory for cannot be looked for; a test looks for each.
    Hints { words: AhoCorasick::builder().ascii_case_insensitive(true).build(&words).ok(), meanings }
});

/// Where the first word that ends after `from` ends.
pub(super) fn first(text: &[u8], from: usize) -> Option<usize> {
    HINTS.words.as_ref()?.find(Input::new(text).span(from.min(text.len())..text.len())).map(|word| word.end())
}

/// All words on a line with the places after their ends, in order.
pub(super) fn each(line: &[u8], mut found: impl FnMut(Hint, usize)) {
    let hints = &*HINTS;
    for word in hints.words.iter().flat_map(|words| words.find_overlapping_iter(line)) {
        if let Some(hint) = hints.meanings.get(word.pattern().as_usize()) {
            found(*hint, word.end());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_in_lower_case() {
        for word in KEYS.iter().chain(QUIET).chain(STATEMENTS).chain(PEM) {
            assert_eq!(*word, word.to_ascii_lowercase());
        }
        SHAPES.iter().for_each(|shape| assert_eq!(shape.hint, shape.hint.to_ascii_lowercase()));
    }

    #[test]
    fn each_word_is_found_in_either_case() {
        let shapes = SHAPES.iter().map(|shape| shape.hint);
        for word in KEYS.iter().chain(QUIET).chain(STATEMENTS).chain(PEM).copied().chain(shapes) {
            let line = format!("x {}", word.to_ascii_uppercase());
            assert!(first(line.as_bytes(), 0).is_some(), "{word}");
            let mut ends = Vec::new();
            each(line.as_bytes(), |_, end| ends.push(end));
            assert!(ends.contains(&line.len()) && ends.is_sorted(), "{word} {ends:?}");
        }
    }

    #[test]
    fn lines_without_a_word_are_passed_over() {
        assert_eq!(first(b"vm.swappiness = 1\nkernel.sysrq = 0\n", 0), None);
        assert_eq!(first(b"a = b\npassword = c", 0), Some(10));
    }
}
