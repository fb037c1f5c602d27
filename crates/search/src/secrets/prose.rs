//! A telling name followed by blanks only: a statement (`requirepass x`, `bindpw x`, `--token x`),
//! or a sentence about passwords.

use super::blocks::{Kind, Pending};
use super::extent;
use super::keys::{self, Key};
use super::line::Line;
use super::pairs::{self, Findings, is_wordy};
use super::random;
use super::words;

/// Handles a name followed by blanks. Its value may begin at `from`.
pub(super) fn blank(line: &Line, name: (usize, usize), key: Key, from: usize, found: &mut Findings) {
    if matches!(line.at(from), b'[' | b'{' | b'=' | b'(' | b'|' | b'&' | b'<' | b'>') {
        return;
    }
    if line.before(name.0) == b'-' {
        flag(line, name, key, from, found);
    } else if name.0 == line.head || name.0 == line.head + 1 && line.at(line.head) == b'$' {
        statement(line, name, key, from, found);
    } else {
        middle(line, name, key, from, found);
    }
}

/// Handles `--password x`.
fn flag(line: &Line, name: (usize, usize), key: Key, from: usize, found: &mut Findings) {
    if line.rest(from) == b"\\" {
        *found.pending = Some(Pending::new(Kind::Next { all: false }, key.reason()));
        return;
    }
    // A line of PAM may begin with `-password optional pam_x.so`. The option of a command does not
    // begin a line.
    let value = extent::of(line, name.0, from, false);
    let text = line.get(value.start, value.end);
    let upper =
        text.iter().all(|b| b.is_ascii_uppercase() || matches!(b, b'_' | b'-' | b'.' | b'[' | b']' | b'|'));
    let usage = text.starts_with(b"-") || upper && (keys::classify(text).is_some() || text.len() < 4);
    if usage || line.comment && !value.quoted && is_wordy(text) {
        return;
    }
    pairs::push_if(name, key, line, value.start, value.end, found);
}

/// Handles a name that begins the line: `auth_pass x`.
fn statement(line: &Line, name: (usize, usize), key: Key, from: usize, found: &mut Findings) {
    // `passwd chat = …`: the name has more words.
    let on = line.until(from, |b| !(b.is_ascii_alphabetic() || b == b' '));
    if on > from
        && (line.at(on) == b'=' && line.before(on) == b' ' || line.at(on) == b':' && line.at(on + 1) == b' ')
    {
        return;
    }
    let value = extent::of(line, name.0, from, true);
    let text = line.get(value.start, value.end);
    let words = text.split(|b| b.is_ascii_whitespace()).filter(|w| !w.is_empty()).count();
    let compound = line.get(name.0, name.1).iter().any(|b| matches!(b, b'_' | b'-' | b'.'))
        || words::has("statement name", &line.get(name.0, name.1).to_ascii_lowercase());
    if line.comment {
        let more = line.rest(value.end).trim_ascii();
        let alone = words == 1 && (more.is_empty() || matches!(more, b"\"" | b"'" | b";" | b"\";" | b"';"));
        if !alone
            || !compound && !value.quoted && is_wordy(text)
            || text.ends_with(b":")
            || text.ends_with(b".")
        {
            return;
        }
    } else if !value.quoted
        && (pairs::is_sentence(line, from)
            || words > 1 && !compound && text.split(|b| *b == b' ').all(is_wordy))
    {
        return;
    }
    pairs::push_if(name, key, line, value.start, value.end, found);
}

/// Handles a name between other words. The value counts only if it is quoted, follows an account,
/// or is not a word.
fn middle(line: &Line, name: (usize, usize), key: Key, from: usize, found: &mut Findings) {
    let value = extent::of(line, name.0, from, false);
    let text = line.get(value.start, value.end);
    if text.is_empty() || text.contains(&b' ') {
        return;
    }
    let back = line.get(name.0.saturating_sub(super::line::BACK_MAX), name.0);
    let before = || back.rsplit(|b| b.is_ascii_whitespace()).filter(|w| !w.is_empty());
    let is_account = |word: &[u8]| words::has("account", &word.to_ascii_lowercase());
    let account = !line.comment && before().any(is_account);
    let directly = account && before().nth(1).is_some_and(is_account);
    let last = value.end >= line.trimmed_end().saturating_sub(1);
    let word = is_wordy(text);
    let secret = match key {
        Key::Sure(_) => {
            value.quoted && !line.comment && text.len() > 2
                || account && (last || !word || directly)
                || !word && text.len() >= 8 && random::is_mixed(text)
        }
        Key::Maybe(_) => !line.comment && value.quoted,
    };
    if secret {
        // `neighbor x password 7 0822455D0A16`: the number is the encoding of the password.
        let next = line.skip_blanks(value.end);
        if account && text.len() == 1 && next < line.bytes.len() {
            pairs::push_if(name, key, line, next, line.trimmed_end(), found);
        } else {
            pairs::push_if(name, key, line, value.start, value.end, found);
        }
    }
}
