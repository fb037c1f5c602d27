//! A telling name on a line, and the value that belongs to it, in any notation:
//!
//! ```text
//! password = x        password: x        "password": "x"      <password>x</password>
//! --password x        A=1;Password=x;    ?token=x&a=1         <a key="password" value="x"/>
//! define('PW', 'x')   export TOKEN=x     - name: DB_PASSWORD  X-Api-Key: x
//! requirepass x       ${TOKEN:-x}          value: x
//! ```
//!
//! The search starts with the name, not with the notation, and continues from there.

use super::blocks::{Kind, Pending};
use super::extent::{self, Extent};
use super::keys::{self, Key};
use super::line::Line;
use super::named;
use super::report::{Reason, Span};
use super::values;
use super::words;

/// Maximum length of a name in bytes.
const NAME_MAX: usize = 80;
/// With more words than this behind its first word, a line is a sentence.
const SENTENCE_WORDS: usize = 3;

/// Collects the findings.
pub(super) struct Findings<'a> {
    pub(super) spans: &'a mut Vec<Span>,
    pub(super) pending: &'a mut Option<Pending>,
}

/// A telling name on a line.
#[derive(Clone, Copy)]
struct KeyName {
    start: usize,
    end: usize,
    key: Key,
}

/// Checks the name in which a hint ends. Returns the end of the name, so that it is checked only
/// once.
pub(super) fn look(line: &Line, hint_end: usize, found: &mut Findings) -> usize {
    let Some((start, end)) = word(line, hint_end) else { return hint_end };
    let Some(key) = classify(line, start, end) else { return end };
    let name = KeyName { start, end, key };
    if let Some(end) = reference(line, name, found) {
        return end;
    }
    if key.reason() == Reason::Authorization && authorization(line, name, found) {
        return end;
    }
    match separator(line, name) {
        Separator::Hard(from) => hard(line, name, from, found),
        Separator::Tag(from) => element(line, name, from, found),
        Separator::Argument(from) => argument(line, name, from, found),
        Separator::Blank(from) => super::prose::blank(line, (name.start, name.end), name.key, from, found),
        Separator::None => named::look(line, (name.start, name.end), name.key, found),
    }
    end
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.')
}

/// The word that contains the byte before a hint's end.
fn word(line: &Line, hint_end: usize) -> Option<(usize, usize)> {
    let mut at = hint_end.checked_sub(1)?;
    while !is_name_byte(line.at(at)) {
        at = at.checked_sub(1)?;
    }
    let mut start = at;
    while start > 0 && at - start < NAME_MAX && is_name_byte(line.before(start)) {
        start -= 1;
    }
    let mut end = at + 1;
    while end - at < NAME_MAX && is_name_byte(line.at(end)) {
        end += 1;
    }
    // `\npassword` in a text with escape sequences.
    if line.before(start) == b'\\' && matches!(line.at(start), b'n' | b't' | b'r') && start < at {
        start += 1;
    }
    while start < end && matches!(line.at(start), b'-' | b'.') {
        start += 1;
    }
    while end > start && matches!(line.before(end), b'-' | b'.') {
        end -= 1;
    }
    (start < end).then_some((start, end))
}

/// Classifies the word alone, or together with the word before it: `Access Key`, `pass phrase`.
fn classify(line: &Line, start: usize, end: usize) -> Option<Key> {
    let key = keys::classify(line.get(start, end));
    if matches!(key, Some(Key::Sure(_)))
        || line.before(start) != b' '
        || line.get(start, end).iter().any(|b| !b.is_ascii_alphabetic())
    {
        return key;
    }
    let mut before = start - 1;
    while before > 0 && start - before < 24 && line.before(before).is_ascii_alphanumeric() {
        before -= 1;
    }
    match keys::classify(line.get(before, end)) {
        Some(sure @ Key::Sure(_)) if before < start - 1 => Some(sure),
        _ => key,
    }
}

/// Handles the name of a variable whose value is elsewhere. A default may follow: `${TOKEN:-x}`.
fn reference(line: &Line, name: KeyName, found: &mut Findings) -> Option<usize> {
    let (before, further) = (line.before(name.start), line.before(name.start.saturating_sub(1)));
    match before {
        b'{' if further == b'$' => {
            let close = line.until(name.end, |b| b == b'}');
            let mut from = name.end;
            while from < close && matches!(line.at(from), b':' | b'-' | b'=') {
                from += 1;
            }
            if from > name.end && from < close {
                let (start, end) = unquoted(line, from, close);
                push(line, name, start, end, found);
            }
            Some(close)
        }
        b'$' => {
            let at = line.skip_blanks(name.end);
            let assigned = line.at(at) == b'=' && !matches!(line.at(at + 1), b'=' | b'~');
            // `set $api_token "x";`
            let set = name.start == line.head + 1 && line.head > line.indent && at > name.end;
            (!assigned && !set).then_some(name.end)
        }
        b'%' if line.at(name.end) == b'%' => Some(name.end),
        b'(' if matches!(further, b'%' | b'$') => Some(name.end),
        b'/' if further == b'<' => Some(name.end),
        _ => None,
    }
}

/// Strips one pair of quotes.
fn unquoted(line: &Line, start: usize, end: usize) -> (usize, usize) {
    let quote = line.at(start);
    if matches!(quote, b'"' | b'\'') && end > start + 1 && line.before(end) == quote {
        (start + 1, end - 1)
    } else {
        (start, end)
    }
}

/// Handles `Authorization: Basic …` and `proxy_set_header Authorization "Bearer …";`
fn authorization(line: &Line, name: KeyName, found: &mut Findings) -> bool {
    let mut from = name.end;
    while from < name.end + 12
        && matches!(
            line.at(from),
            b' ' | b'\t' | b':' | b'=' | b'"' | b'\'' | b',' | b'>' | b'\\' | b'|' | b'('
        )
    {
        from += 1;
    }
    let end = line.until(from, |b| !(b.is_ascii_alphabetic() || b == b'-'));
    let bearer = line.get(name.start, name.end).eq_ignore_ascii_case(b"bearer");
    let is_scheme = words::has("scheme", &line.get(from, end).to_ascii_lowercase());
    let from = if is_scheme && line.at(end) == b' ' {
        line.skip_blanks(end)
    } else if bearer && line.at(name.end) == b' ' {
        line.skip_blanks(name.end)
    } else {
        return false;
    };
    let end = line.until(from, |b| {
        b <= b' ' || matches!(b, b'"' | b'\'' | b'\\' | b';' | b',' | b'<' | b')' | b'`' | b'|')
    });
    let value = line.get(from, end);
    if value.len() < 6
        || values::is_none(value)
        || line.comment && is_wordy(value)
        || bearer && !values::looks_secret(value)
    {
        return false;
    }
    push_sure(name, from, end, found);
    true
}

enum Separator {
    /// `=`, `:` and similar. The value begins here.
    Hard(usize),
    /// The end of a tag. The text of the element begins here.
    Tag(usize),
    /// The next argument of a call, or the next item of a list.
    Argument(usize),
    /// Only blanks.
    Blank(usize),
    None,
}

fn separator(line: &Line, name: KeyName) -> Separator {
    let mut at = name.end;
    while at < name.end + 4 && matches!(line.at(at), b'"' | b'\'' | b']' | b'\\' | b'`' | b'*' | b'}') {
        at += 1;
    }
    let quoted = at > name.end;
    let blank = line.skip_blanks(at);
    let next = line.at(blank + 1);
    match line.at(blank) {
        b'=' if next == b'~' => Separator::None,
        b'=' => Separator::Hard(line.skip_blanks(blank + 1 + usize::from(matches!(next, b'>' | b'=')))),
        b':' if next == b'/' && line.at(blank + 2) == b'/' => Separator::None,
        b':' if line.before(name.start) == b'/' && !quoted => Separator::None,
        b':' => Separator::Hard(line.skip_blanks(blank + 1 + usize::from(matches!(next, b'=' | b':')))),
        b'?' | b'+' | b'|' if next == b'=' => Separator::Hard(line.skip_blanks(blank + 2)),
        b'-' if next == b'>' => Separator::Hard(line.skip_blanks(blank + 2)),
        b'>' if in_tag(line, name.start) => Separator::Tag(blank + 1),
        b',' if quoted || line.before(name.start) == b'{' => Separator::Argument(line.skip_blanks(blank + 1)),
        b'|' if quoted || line.at(line.indent) == b'|' => Separator::Hard(line.skip_blanks(blank + 1)),
        0 | b')' | b'{' | b'}' | b',' | b';' | b'>' | b'<' | b'.' | b'?' | b'!' | b'|' | b'&' => {
            Separator::None
        }
        _ if in_tag(line, name.start) => element_begins(line, name),
        _ if blank > at => Separator::Blank(blank),
        _ => Separator::None,
    }
}

/// Skips the attributes of `<password type="x">`.
fn element_begins(line: &Line, name: KeyName) -> Separator {
    let end = line.until(name.end, |b| b == b'>');
    let element =
        matches!(line.before(name.start), b'<' | b':') && end < line.bytes.len() && line.before(end) != b'/';
    if element { Separator::Tag(end + 1) } else { Separator::None }
}

/// Whether a tag is open at a position: `<password type="x">`, `<add key="password" …>`.
fn in_tag(line: &Line, at: usize) -> bool {
    let back = line.get(at.saturating_sub(super::line::BACK_MAX), at);
    let open = back.iter().rposition(|b| *b == b'<');
    let close = back.iter().rposition(|b| *b == b'>');
    open.is_some_and(|open| {
        close.is_none_or(|close| close < open)
            && back.get(open + 1).is_none_or(|b| b.is_ascii_alphabetic() || *b == b'?')
    })
}

fn hard(line: &Line, name: KeyName, from: usize, found: &mut Findings) {
    let reason = name.key.reason();
    let sure = matches!(name.key, Key::Sure(_));
    let rest = line.rest(from);
    if rest.is_empty() || rest.starts_with(b"#") || rest.starts_with(b"!vault") && rest.contains(&b'|') {
        if sure && !line.comment {
            let vault = rest.starts_with(b"!vault");
            let kind = if vault {
                Kind::Block { indent: line.indent }
            } else {
                Kind::Deeper { indent: line.indent }
            };
            *found.pending = Some(Pending::new(kind, reason));
        }
        return;
    }
    let from = type_tag(line, from);
    let rest = line.rest(from);
    if sure && is_block_mark(rest) {
        *found.pending = Some(Pending::new(Kind::Block { indent: key_indent(line) }, reason));
        return;
    }
    if sure && rest == b"\\" {
        *found.pending = Some(Pending::new(Kind::Next { all: true }, reason));
        return;
    }
    if sure && rest.starts_with(b"[") && !line.comment {
        return list(line, name, from + 1, found);
    }
    let first = name.start == line.head
        || matches!(line.before(name.start), b'"' | b'\'' | b'$' | b'[') && name.start == line.head + 1;
    let value = extent::of(line, name.start, from, first && !is_sentence(line, from));
    if let Some((quote, count)) = value.open.filter(|_| sure && !line.comment) {
        *found.pending = Some(Pending::new(Kind::Quote { quote, count }, reason));
    }
    assigned(line, name, value, found);
}

/// Handles a value that is certainly assigned.
fn assigned(line: &Line, name: KeyName, value: Extent, found: &mut Findings) {
    let (mut start, mut end) = (value.start, value.end);
    let goes_on = !value.quoted && line.before(end) == b'\\' && end == line.trimmed_end();
    if goes_on {
        end -= 1;
    }
    let text = line.get(start, end);
    if line.comment && !value.quoted && text.contains(&b' ') && !looks_assigned(text) {
        return;
    }
    // `--set-credential= switch.`, `no password: it means`
    let alone = name.start == line.head && end >= line.trimmed_end().saturating_sub(1);
    if line.comment
        && !value.quoted
        && is_wordy(text)
        && (!alone || text.ends_with(b".") || line.before(name.start) == b'-')
    {
        return;
    }
    if line.comment && is_placeholder(line, name, text) {
        return;
    }
    if let Some((from, to)) = default_of(text) {
        (start, end) = (start + from, start + to);
    }
    // The value may contain further separators: `password=x@host` stays whole. `user=x password=y`
    // does not reach this point.
    push(line, name, start, end, found);
    if goes_on && matches!(name.key, Key::Sure(_)) && end > start {
        *found.pending = Some(Pending::new(Kind::Next { all: true }, name.key.reason()));
    }
}

/// The position of `x` in `${NAME:-x}`, `${name:x}` or `{{ name | default('x') }}`.
fn default_of(text: &[u8]) -> Option<(usize, usize)> {
    let find = |needle: &[u8], from: usize| {
        text.get(from..)?.windows(needle.len()).position(|w| w == needle).map(|i| i + from)
    };
    if text.starts_with(b"${") && text.ends_with(b"}") && text.iter().filter(|b| **b == b'$').count() == 1 {
        let colon = text.iter().position(|b| matches!(b, b':' | b'-'))?;
        let mut from = colon;
        while matches!(text.get(from), Some(b':' | b'-' | b'=')) {
            from += 1;
        }
        return Some((from, text.len() - 1));
    }
    if text.starts_with(b"{{") {
        let from = find(b"default(", 0)? + 8;
        let quote = *text.get(from)?;
        let end = find(&[quote], from + 1)?;
        return matches!(quote, b'"' | b'\'').then_some((from + 1, end));
    }
    None
}

/// Whether a value in a comment is a placeholder, as in default configuration files.
fn is_placeholder(line: &Line, name: KeyName, text: &[u8]) -> bool {
    let same = keys::classify(text).is_some_and(|key| matches!(key, Key::Sure(_))) && is_wordy(text);
    same || text.iter().all(|b| *b == b'.' || *b == b'x')
        || line.get(name.start, name.end).eq_ignore_ascii_case(text)
}

/// Skips a YAML type tag: `!!str x`, `!!binary |`
fn type_tag(line: &Line, from: usize) -> usize {
    if line.rest(from).starts_with(b"!!") { line.skip_blanks(line.until(from, |b| b <= b' ')) } else { from }
}

/// Whether a YAML block scalar begins here: `|`, `>-` or `|2` and nothing behind it.
fn is_block_mark(rest: &[u8]) -> bool {
    let mark =
        rest.iter().take_while(|b| matches!(b, b'|' | b'>' | b'+' | b'-') || b.is_ascii_digit()).count();
    let tail = rest.get(mark..).unwrap_or_default().trim_ascii_start();
    matches!(rest.first(), Some(b'|' | b'>')) && (tail.is_empty() || tail.starts_with(b"#"))
}

/// The indentation of the key; in `- b: |` that of `b`.
fn key_indent(line: &Line) -> usize {
    if line.rest(line.indent).starts_with(b"- ") { line.skip_blanks(line.indent + 2) } else { line.indent }
}

/// Handles `["a", "b"]`, or the beginning of such a list.
fn list(line: &Line, name: KeyName, from: usize, found: &mut Findings) {
    let close = line.until(from, |b| b == b']');
    let mut at = from;
    while at < close {
        at = line.until(at, |b| !matches!(b, b' ' | b'\t' | b','));
        if at >= close {
            break;
        }
        let value = match extent::quoted(line, at) {
            Some(value) if value.end > value.start => value,
            Some(_) => break,
            None => Extent {
                start: at,
                end: line.until(at, |b| matches!(b, b',' | b']' | b' ')),
                open: None,
                quoted: false,
            },
        };
        push(line, name, value.start, value.end, found);
        at = value.end.max(at) + 1;
    }
    if close >= line.bytes.len() {
        *found.pending = Some(Pending::new(Kind::List, name.key.reason()));
    }
}

/// Handles `<password>x</password>` and `<add key="password">x</add>`.
fn element(line: &Line, name: KeyName, from: usize, found: &mut Findings) {
    if line.rest(from).trim_ascii().is_empty() {
        if matches!(name.key, Key::Sure(_)) && !line.comment && line.at(line.indent) == b'<' {
            *found.pending = Some(Pending::new(Kind::Element, name.key.reason()));
        }
        return;
    }
    // `AUTH <password> as usual` is not an element.
    if line.at(line.head) != b'<' && !values::contains(line.rest(from), b"</") {
        return;
    }
    let value = if line.rest(from).starts_with(b"<![CDATA[") {
        extent::of(line, from, from, true)
    } else {
        Extent { start: from, end: line.until(from, |b| b == b'<'), open: None, quoted: false }
    };
    push(line, name, value.start, value.end, found);
    if value.end >= line.bytes.len() && matches!(name.key, Key::Sure(_)) && !line.comment {
        *found.pending = Some(Pending::new(Kind::Element, name.key.reason()));
    }
}

/// Handles `define('DB_PASSWORD', 'x')` and `["--password", "x"]`.
fn argument(line: &Line, name: KeyName, from: usize, found: &mut Findings) {
    let flag = line.before(name.start) == b'-';
    // `define('PASSWORD', 'x')`, `define( "PASSWORD", "x")`, `{password, "x"}`
    let opening = line.get(0, name.start.saturating_sub(1)).trim_ascii_end().last();
    let call = opening == Some(&b'(') || line.before(name.start) == b'{';
    if !flag && !call || !matches!(name.key, Key::Sure(_)) {
        return named::look(line, (name.start, name.end), name.key, found);
    }
    let from = from + if line.rest(from).starts_with(b"<<") { 2 } else { 0 };
    if line.rest(from).is_empty() && flag {
        *found.pending = Some(Pending::new(Kind::Item, name.key.reason()));
    }
    if let Some(value) = extent::quoted(line, from).filter(|v| !line.get(v.start, v.end).starts_with(b"-")) {
        push(line, name, value.start, value.end, found);
    }
}

/// Whether more than a few words follow that consist of letters only: prose.
pub(super) fn is_sentence(line: &Line, from: usize) -> bool {
    let rest = line.rest(from).trim_ascii();
    let mut words = rest.split(|b| b.is_ascii_whitespace()).filter(|w| !w.is_empty());
    !rest.starts_with(b"\"") && words.clone().count() > SENTENCE_WORDS && words.all(is_wordy)
}

/// In a comment `#password = two words` is prose, unless a word does not look like one.
fn looks_assigned(text: &[u8]) -> bool {
    text.split(|b| *b == b' ').any(|word| !is_wordy(word)) && text.iter().filter(|b| **b == b' ').count() < 3
}

/// Whether a word looks human: letters, possibly a number at the end, punctuation around it.
pub(super) fn is_wordy(word: &[u8]) -> bool {
    let word = word.trim_ascii();
    let inner =
        word.iter().position(u8::is_ascii_alphanumeric).zip(word.iter().rposition(u8::is_ascii_alphanumeric));
    let Some((from, to)) = inner else { return true };
    let word = word.get(from..=to).unwrap_or_default();
    let digit_first =
        word.windows(2).any(|w| matches!(w, [a, b] if a.is_ascii_digit() && b.is_ascii_alphabetic()));
    let signs = word
        .iter()
        .any(|b| matches!(b, b'!' | b'#' | b'$' | b'%' | b'^' | b'&' | b'*' | b'+' | b'=' | b'~' | b'@'));
    !digit_first && !signs && word.iter().filter(|b| b.is_ascii_digit()).count() <= 4
}

/// Withholds a value of a sure key unless it says that there is none, and a value of another key if
/// it looks secret.
pub(super) fn push_if(
    key: (usize, usize),
    kind: Key,
    line: &Line,
    start: usize,
    end: usize,
    found: &mut Findings,
) -> bool {
    let name = KeyName { start: key.0, end: key.1, key: kind };
    push(line, name, start, end, found)
}

fn push(line: &Line, name: KeyName, start: usize, end: usize, found: &mut Findings) -> bool {
    let value = line.get(start, end);
    let from = match name.key {
        Key::Sure(_) => (!values::is_none(value)).then_some(start),
        Key::Maybe(_) if values::looks_secret(value) => Some(start),
        // Handles `login=me:x` and `?auth=x`.
        Key::Maybe(_)
            if matches!(line.before(name.start), b'?' | b'&') && value.len() >= 8 && !is_wordy(value) =>
        {
            Some(start)
        }
        Key::Maybe(_) => behind_name(value).map(|at| start + at),
    };
    if let Some(from) = from {
        push_sure(name, from, end, found);
    }
    from.is_some()
}

/// The position of the password in `user:password`.
fn behind_name(value: &[u8]) -> Option<usize> {
    let colon = value.iter().position(|b| *b == b':')?;
    let (name, secret) = (value.get(..colon)?, value.get(colon + 1..)?);
    let named = !name.is_empty()
        && name.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-' | b'@'));
    let plain = secret.iter().all(|b| *b > b' ' && !matches!(b, b':' | b'/'));
    (named && plain && secret.len() >= 6 && !is_wordy(secret) && !values::is_none(secret))
        .then_some(colon + 1)
}

fn push_sure(name: KeyName, start: usize, end: usize, found: &mut Findings) {
    found.spans.push(Span { start, end, reason: name.key.reason(), key: (name.start, name.end) });
}
