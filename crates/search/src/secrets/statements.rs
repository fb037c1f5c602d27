//! Statements of configuration languages, and commands, in which secrets have a position instead of
//! a name:
//!
//! ```text
//! rocommunity x   com2sec n default x   createUser u MD5 "x" DES "x"   user alice on >x ~*
//! stats auth u:x  $USER3$=x             mysql -px                      curl -u u:x https://…
//! ```

use super::line::Line;
use super::random;
use super::report::{Reason, Span};
use super::values;

/// Only this many words of a line are checked.
const WORDS_MAX: usize = 96;

/// A word of a line without surrounding quotes.
#[derive(Clone, Copy)]
struct Word<'a> {
    start: usize,
    text: &'a [u8],
}

impl Word<'_> {
    fn is(&self, word: &[u8]) -> bool {
        self.text.eq_ignore_ascii_case(word)
    }
}

/// How a command receives a secret.
enum Takes {
    /// `-a x` and `-ax`
    Either(&'static [u8]),
    /// `-a x`
    Next(&'static [u8]),
    /// `-ax`
    Attached(&'static [u8]),
    /// `-a user:x`, with the separator.
    Pair(&'static [u8], u8),
    /// The last word.
    Last,
    /// This many words behind the given one.
    Behind(&'static [u8], usize),
}

use Takes::{Attached, Behind, Either, Last, Next, Pair};

/// The beginnings of command names, and how these commands receive secrets.
const COMMANDS: &[(&[u8], &[Takes])] = &[
    (b"mysql", &[Attached(b"-p")]),
    (b"mariadb", &[Attached(b"-p")]),
    (b"curl", &[Pair(b"-u", b':'), Pair(b"--user", b':'), Pair(b"-U", b':'), Pair(b"--proxy-user", b':')]),
    (b"wget", &[]),
    (b"http", &[Pair(b"-a", b':'), Pair(b"--auth", b':')]),
    (b"sshpass", &[Either(b"-p")]),
    (b"redis-cli", &[Next(b"-a")]),
    (b"ldap", &[Next(b"-w")]),
    (b"smbclient", &[Pair(b"-U", b'%'), Pair(b"--user", b'%')]),
    (b"net", &[Pair(b"-U", b'%'), Pair(b"--user", b'%')]),
    (b"rpcclient", &[Pair(b"-U", b'%')]),
    (b"htpasswd", &[Last]),
    (
        b"openssl",
        &[Pair(b"-passin", b':'), Pair(b"-passout", b':'), Pair(b"-pass", b':'), Next(b"-k"), Next(b"-K")],
    ),
    (b"ipmitool", &[Next(b"-P")]),
    (b"mosquitto_", &[Next(b"-P")]),
    (b"sqlcmd", &[Either(b"-P")]),
    (b"isql", &[Either(b"-P")]),
    (b"lftp", &[Pair(b"-u", b',')]),
    (b"snmp", &[Next(b"-c"), Next(b"-A"), Next(b"-X")]),
    (
        b"rabbitmqctl",
        &[Behind(b"add_user", 2), Behind(b"change_password", 2), Behind(b"authenticate_user", 2)],
    ),
    (b"zip", &[Next(b"-P")]),
    (b"7z", &[Attached(b"-p")]),
    (b"mongo", &[Next(b"-p")]),
    (b"cqlsh", &[Next(b"-p")]),
    (b"useradd", &[Next(b"-p")]),
    (b"usermod", &[Next(b"-p")]),
    (b"wpa_passphrase", &[Last]),
    (b"rdesktop", &[Next(b"-p")]),
    (b"xfreerdp", &[Attached(b"/p:")]),
    (b"influx", &[Next(b"-t")]),
];

/// Checks a line that contains a word of the list `statement`.
pub(super) fn look(line: &Line, spans: &mut Vec<Span>) {
    let mut buffer = [Word { start: 0, text: b"" }; WORDS_MAX];
    let count = split(line, &mut buffer);
    let words = buffer.get(..count).unwrap_or_default();
    statement(line, words, spans);
    commands(line, words, spans);
    basic(words, spans);
}

fn split<'a>(line: &Line<'a>, words: &mut [Word<'a>; WORDS_MAX]) -> usize {
    let mut at = line.head;
    let mut count = 0;
    for word in words.iter_mut() {
        at = line.skip_blanks(at);
        if at >= line.bytes.len() {
            break;
        }
        let quote = line.at(at);
        let (start, end) = if matches!(quote, b'"' | b'\'') {
            (at + 1, line.until(at + 1, |b| b == quote))
        } else {
            (at, line.until(at, |b| b <= b' '))
        };
        at = (end + usize::from(matches!(quote, b'"' | b'\''))).max(at + 1);
        let text = line.get(start, end);
        let tail = text.iter().rev().take_while(|b| matches!(b, b'"' | b'\'' | b'`' | b';' | b')')).count();
        *word = Word { start, text: text.get(..text.len() - tail).unwrap_or_default() };
        count += 1;
    }
    count
}

fn statement(line: &Line, words: &[Word], spans: &mut Vec<Span>) {
    let Some(first) = words.first() else { return };
    let is = |name: &[u8]| {
        first.is(name) || first.text.strip_suffix(b"6").is_some_and(|t| t.eq_ignore_ascii_case(name))
    };
    let mut take = |at: usize, reason: Reason| {
        if let Some(word) = words.get(at) {
            push(word.start, word.text, reason, (first.start, first.start + first.text.len()), spans);
        }
    };
    if is(b"rocommunity") || is(b"rwcommunity") || is(b"trapcommunity") || is(b"authcommunity") {
        // In `authcommunity log,execute x` the types come first.
        take(if is(b"authcommunity") { 2 } else { 1 }, Reason::Community);
    } else if is(b"com2sec") || is(b"com2secunix") {
        take(if words.get(1).is_some_and(|w| w.is(b"-Cn")) { 5 } else { 3 }, Reason::Community);
    } else if is(b"trapsink")
        || is(b"trap2sink")
        || is(b"informsink")
        || first.is(b"snmp-server") && words.get(1).is_some_and(|w| w.is(b"community"))
    {
        take(2, Reason::Community);
    } else if is(b"createUser") || is(b"usmUser") {
        // createUser [-e engine] name auth "…" [priv] ["…"]
        let name = if words.get(1).is_some_and(|w| w.is(b"-e")) { 3 } else { 1 };
        take(name + 2, Reason::Password);
        let last = words.get(name + 4).is_some();
        take(if last { name + 4 } else { name + 3 }, Reason::Password);
    } else if first.is(b"stats") && words.get(1).is_some_and(|w| w.is(b"auth")) {
        pair(words.get(2), b':', first, spans);
    } else if first.is(b"user") && !line.comment {
        redis_user(words, first, spans);
    } else if first.is(b"rename-command") && !line.comment {
        // Only those who know the new name can give the command, so the name serves as a password
        // in redis.
        take(2, Reason::Secret);
    } else if first.is(b"enable") && words.get(1).is_some_and(|w| w.is(b"secret") || w.is(b"password")) {
        take(words.len() - 1, Reason::Password);
    } else if first.is(b"tacacs-server") || first.is(b"radius-server") {
        if let Some(at) = words.iter().position(|w| w.is(b"key")) {
            // `key 7 0822455D0A16`: the encoding comes first.
            let coded = words.get(at + 1).is_some_and(|w| w.text.len() == 1) && words.len() > at + 2;
            take(at + 1 + usize::from(coded), Reason::Key);
        }
    } else if is(b"SQLConnectInfo") {
        take(3, Reason::Password);
    } else if first.is(b"MONITOR") {
        take(4, Reason::Password);
    } else if first.is(b"allow") && words.len() == 2 && !line.comment {
        // Withholds `allow admin:x` of monit, but not `allow 10.0.0.0/8` or an address with a port.
        let secret =
            words.get(1).map_or(&b""[..], |w| w.text.split(|b| *b == b':').nth(1).unwrap_or_default());
        if !secret.iter().all(|b| b.is_ascii_digit() || matches!(b, b'/' | b'.')) && secret.len() >= 4 {
            pair(words.get(1), b':', first, spans);
        }
    }
    identified(line, words, spans);
    nagios(line, first, spans);
}

/// Handles `CREATE USER … IDENTIFIED [WITH plugin] BY 'x'`.
fn identified(line: &Line, words: &[Word], spans: &mut Vec<Span>) {
    let Some(at) = words.iter().position(|w| w.is(b"identified")) else { return };
    let behind = words.get(at..).unwrap_or_default();
    let Some(by) = behind.iter().take(4).position(|w| w.is(b"by")) else { return };
    let skip = usize::from(behind.get(by + 1).is_some_and(|w| w.is(b"password")));
    let quoted = |word: &&Word| matches!(line.before(word.start), b'"' | b'\'');
    if let Some(word) = behind.get(by + 1 + skip).filter(quoted) {
        let key = behind.first().map_or((0, 0), |w| (w.start, w.start + w.text.len()));
        push(word.start, word.text, Reason::Password, key, spans);
    }
}

/// Handles `user alice on >password #hash ~* +@all`.
fn redis_user(words: &[Word], first: &Word, spans: &mut Vec<Span>) {
    let acl = words
        .iter()
        .skip(2)
        .any(|w| w.is(b"on") || w.is(b"off") || w.text.starts_with(b"~") || w.text.starts_with(b"+@"));
    for word in words.iter().skip(2).filter(|_| acl) {
        let key = (first.start, first.start + first.text.len());
        match word.text {
            [b'>' | b'<', value @ ..] => push(word.start + 1, value, Reason::Password, key, spans),
            [b'#' | b'!', value @ ..] if random::is_hex(value) => {
                push(word.start + 1, value, Reason::Hash, key, spans)
            }
            _ => {}
        }
    }
}

/// Handles `$USER3$=x` in Nagios' resource file. `$USER1$` is a path.
fn nagios(line: &Line, first: &Word, spans: &mut Vec<Span>) {
    let Some(rest) = first.text.strip_prefix(b"$USER") else { return };
    let Some(equals) = rest.iter().position(|b| *b == b'=') else { return };
    if rest.get(equals.saturating_sub(1)) == Some(&b'$') {
        let from = first.start + 5 + 1 + equals;
        push(from, line.get(from, line.trimmed_end()), Reason::Password, (first.start, from - 1), spans);
    }
}

fn commands(line: &Line, words: &[Word], spans: &mut Vec<Span>) {
    for (at, word) in words.iter().enumerate() {
        let name = word
            .text
            .rsplit(|b| matches!(b, b'/' | b'=' | b'(' | b'`' | b'@' | b'"' | b'\''))
            .next()
            .unwrap_or_default();
        for (command, takes) in COMMANDS.iter().filter(|(command, _)| name.starts_with(command)) {
            // Another command begins where this one ends.
            let behind = words.get(at + 1..).unwrap_or_default();
            let end = behind
                .iter()
                .position(|w| matches!(w.text, b"|" | b"||" | b"&&" | b"&" | b""))
                .unwrap_or(behind.len());
            let behind = behind.get(..end).unwrap_or_default();
            takes.iter().for_each(|takes| argument(line, command, word, behind, takes, spans));
        }
        if name == b"login"
            && words.iter().take(at).any(|w| w.text.ends_with(b"docker") || w.text.ends_with(b"podman"))
        {
            argument(line, b"login", word, words.get(at + 1..).unwrap_or_default(), &Next(b"-p"), spans);
        }
        if matches!(name, b"chpasswd" | b"kinit" | b"cryptsetup")
            || name == b"passwd" && words.get(at + 1).is_some_and(|w| w.is(b"--stdin"))
        {
            piped(words.get(..at).unwrap_or_default(), word, spans);
        }
    }
}

fn argument(line: &Line, command: &[u8], name: &Word, words: &[Word], takes: &Takes, spans: &mut Vec<Span>) {
    let key = (name.start, name.start + name.text.len());
    // Comments explain how a command is used.
    let mut take = |start: usize, text: &[u8]| {
        if !(line.comment && super::pairs::is_wordy(text)) {
            push(start, text, Reason::Password, key, spans);
        }
    };
    let flag = |flag: &[u8]| words.iter().position(|w| w.text == flag);
    match takes {
        Next(option) | Either(option) | Attached(option) => {
            if !matches!(takes, Attached(_))
                && let Some(word) =
                    flag(option).and_then(|at| words.get(at + 1)).filter(|w| !w.text.starts_with(b"-"))
            {
                take(word.start, word.text);
            }
            if !matches!(takes, Next(_)) {
                for word in words.iter().filter(|w| w.text.len() > option.len() && w.text.starts_with(option))
                {
                    let text = word.text.get(option.len()..).unwrap_or_default();
                    // `-p'x y'`
                    let quote = text.first().copied().filter(|b| matches!(b, b'\'' | b'"'));
                    let skip = usize::from(quote.is_some());
                    let start = word.start + option.len() + skip;
                    let end =
                        quote.map_or(word.start + word.text.len(), |quote| line.until(start, |b| b == quote));
                    take(start, line.get(start, end));
                }
            }
        }
        Pair(option, between) => {
            for (at, word) in words.iter().enumerate() {
                let inside = word.text.strip_prefix(*option).map(|t| (word.start + option.len(), t));
                let value = match inside {
                    Some((_, b"")) => words.get(at + 1).map(|w| (w.start, w.text)),
                    Some((start, [b'=', text @ ..])) => Some((start + 1, text)),
                    Some((start, text)) if option.len() == 2 => Some((start, text)),
                    _ => None,
                };
                let Some((start, text)) = value else { continue };
                let Some(i) = text.iter().position(|b| b == between) else { continue };
                let secret = text.get(i + 1..).unwrap_or_default();
                // For `-passin` only `pass:` is followed by the secret. `file:` and `env:` name its
                // location.
                if *command != *b"openssl" || text.starts_with(b"pass:") {
                    take(start + i + 1, secret);
                }
            }
        }
        Last => {
            let positional = words.iter().filter(|w| !w.text.starts_with(b"-")).count();
            let inline = command == b"wpa_passphrase"
                || words.iter().any(|w| w.text.starts_with(b"-") && w.text.contains(&b'b'));
            if let Some(word) = words.last().filter(|_| inline && positional >= 2) {
                take(word.start, word.text);
            }
        }
        Behind(verb, by) => {
            if let Some(word) = flag(verb).and_then(|at| words.get(at + by)) {
                take(word.start, word.text);
            }
        }
    }
}

/// Handles `echo user:x | chpasswd` and `echo x | kinit`.
fn piped(before: &[Word], name: &Word, spans: &mut Vec<Span>) {
    let key = (name.start, name.start + name.text.len());
    let Some(pipe) = before.iter().rposition(|w| w.text == b"|") else { return };
    let words = before.get(..pipe).unwrap_or_default();
    let Some(echo) =
        words.iter().rposition(|w| w.is(b"echo") || w.is(b"printf") || w.text.ends_with(b"/echo"))
    else {
        return;
    };
    let Some(word) = words
        .get(echo + 1..)
        .and_then(|w| w.iter().rfind(|w| !w.text.starts_with(b"-") && !w.text.starts_with(b"%")))
    else {
        return;
    };
    let from = if name.text.ends_with(b"chpasswd") {
        word.text.iter().position(|b| *b == b':').map_or(0, |i| i + 1)
    } else {
        0
    };
    push(word.start + from, word.text.get(from..).unwrap_or_default(), Reason::Password, key, spans);
}

/// Handles `Basic dXNlcjp4` anywhere on the line.
fn basic(words: &[Word], spans: &mut Vec<Span>) {
    for pair in words.windows(2) {
        if let [scheme, value] = pair
            && scheme.text.len() >= 5
            && scheme.text.get(scheme.text.len() - 5..).is_some_and(|t| t.eq_ignore_ascii_case(b"basic"))
            && random::credentials_in_base64(value.text)
        {
            push(value.start, value.text, Reason::Authorization, (0, 0), spans);
        }
    }
}

fn pair(word: Option<&Word>, between: u8, first: &Word, spans: &mut Vec<Span>) {
    let Some(word) = word else { return };
    let Some(i) = word.text.iter().position(|b| *b == between) else { return };
    let key = (first.start, first.start + first.text.len());
    push(word.start + i + 1, word.text.get(i + 1..).unwrap_or_default(), Reason::Password, key, spans);
}

fn push(start: usize, text: &[u8], reason: Reason, key: (usize, usize), spans: &mut Vec<Span>) {
    if !values::is_none(text) {
        spans.push(Span { start, end: start + text.len(), reason, key });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<&str> {
        let mut spans = Vec::new();
        look(&Line::new(text.as_bytes()), &mut spans);
        spans.iter().map(|s| &text[s.start..s.end]).collect()
    }

    #[test]
    fn places_of_statements() {
        for (line, want) in [
            ("rocommunity geheim 10.0.0.0/8", vec!["geheim"]),
            ("com2sec local default geheim", vec!["geheim"]),
            ("com2sec -Cn x local default geheim", vec!["geheim"]),
            ("trap2sink host geheim 162", vec!["geheim"]),
            ("createUser me SHA \"geheim1\" AES \"geheim2\"", vec!["geheim1", "geheim2"]),
            ("createUser me SHA geheim1", vec!["geheim1"]),
            ("    stats auth me:geheim", vec!["geheim"]),
            ("user me on >geheim ~* +@all", vec!["geheim"]),
            ("$USER3$=geheim", vec!["geheim"]),
            ("$USER1$=/usr/lib/nagios/plugins", vec![]),
            ("user = www-data", vec![]),
        ] {
            assert_eq!(found(line), want, "{line}");
        }
    }

    #[test]
    fn options_of_commands() {
        for (line, want) in [
            ("mysqldump -u root -pgeheim db", vec!["geheim"]),
            ("mysqldump -u root -p'ge heim' db", vec!["ge heim"]),
            ("mysql -p db", vec![]),
            ("0 3 * * * curl -s -u me:geheim https://x/", vec!["geheim"]),
            ("curl -ume:geheim x", vec!["geheim"]),
            ("curl --user=me:geheim x", vec!["geheim"]),
            ("docker run -u 1000:1000 -p 8080:80 x", vec![]),
            ("docker login -u me -p geheim r", vec!["geheim"]),
            ("sshpass -p geheim ssh h", vec!["geheim"]),
            ("ldapsearch -x -w geheim -b dc=x", vec!["geheim"]),
            ("smbclient //h/s -U me%geheim", vec!["geheim"]),
            ("openssl rsa -passin pass:geheim -in k", vec!["geheim"]),
            ("openssl rsa -passin file:/etc/pw -in k", vec![]),
            ("htpasswd -bc /etc/f me geheim", vec!["geheim"]),
            ("htpasswd -c /etc/f me", vec![]),
            ("echo 'root:geheim' | chpasswd", vec!["geheim"]),
            ("rabbitmqctl add_user me geheim", vec!["geheim"]),
            ("snmpwalk -v2c -c geheim host", vec!["geheim"]),
            ("x: Basic bWU6Z2VoZWlt", vec!["bWU6Z2VoZWlt"]),
        ] {
            assert_eq!(found(line), want, "{line}");
        }
    }

    proptest::proptest! {
        #[test]
        fn nothing_panics(line in "(mysql|curl|user|echo|-p|-u|\\||chpasswd|:|'|\"| |x|createUser|com2sec|stats auth|\\$USER3\\$=){0,12}") {
            let _ = found(&line);
        }
    }
}
