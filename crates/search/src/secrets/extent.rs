//! Where a value begins and ends, by its notation: quoted, in a URL or an option list, or to the
//! end of the line.

use super::line::Line;

/// A value on a line, without its quotes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) start: usize,
    pub(super) end: usize,
    /// The quote that is still open at the end of the line, and how many of them close it.
    pub(super) open: Option<(u8, usize)>,
    pub(super) quoted: bool,
}

impl Extent {
    fn plain(start: usize, end: usize) -> Self {
        Self { start, end: end.max(start), open: None, quoted: false }
    }
}

/// The value at `from`, whose key begins at `key`. `whole` means that the key is the first word of
/// the line, so that the value may contain blanks.
pub(super) fn of(line: &Line, key: usize, from: usize, whole: bool) -> Extent {
    if let Some(found) = quoted(line, from) {
        return found;
    }
    if line.rest(from).starts_with(b"<![CDATA[") {
        let start = from + 9;
        return Extent::plain(start, line.until(start, |b| b == b']'));
    }
    match line.before(key) {
        b'"' | b'\'' if line.is_open(line.before(key), key) && !closes_key(line, key, from) => {
            // `Environment="PASS=a b"`: the surrounding quote ends the value.
            let quote = line.before(key);
            Extent::plain(from, line.until(from, |b| b == quote))
        }
        b'?' | b'&' => {
            let end = line.until(from, |b| {
                b <= b' ' || matches!(b, b'&' | b'"' | b'\'' | b'<' | b'>' | b'`' | b')' | b'#' | b',')
            });
            Extent::plain(from, end)
        }
        _ if whole => to_the_end(line, key, from),
        before => inline(line, key, from, before),
    }
}

/// Whether a quote lies between key and value, which means that the key was quoted.
fn closes_key(line: &Line, key: usize, from: usize) -> bool {
    let quote = line.before(key);
    line.get(key, from).contains(&quote)
}

/// A value in `"…"`, `'…'`, `` `…` ``, `"""…"""` or `\"…\"`, optionally with a prefix: `r"…"`,
/// `$'…'`.
pub(super) fn quoted(line: &Line, from: usize) -> Option<Extent> {
    let mut at = from;
    if matches!(line.at(at), b'r' | b'b' | b'u' | b'f' | b'L' | b'$' | b'@' | b'N')
        && matches!(line.at(at + 1), b'"' | b'\'')
    {
        at += 1;
    }
    let escaped = line.at(at) == b'\\' && matches!(line.at(at + 1), b'"' | b'\'');
    if escaped {
        at += 1;
    }
    let quote = line.at(at);
    if !matches!(quote, b'"' | b'\'' | b'`') {
        return None;
    }
    let run = line.rest(at).iter().take_while(|b| **b == quote).count();
    if !escaped && run == 1 && line.is_open(quote, at) && closes_here(line, at) {
        // This quote ends the surrounding text, so the value is empty.
        return Some(Extent { start: at, end: at, open: None, quoted: true });
    }
    let count = if run >= 3 { 3 } else { 1 };
    if run == 2 && !escaped {
        return Some(Extent { start: at + 1, end: at + 1, open: None, quoted: true });
    }
    let start = at + count;
    let mut i = start;
    while i < line.bytes.len() {
        let byte = line.at(i);
        if escaped && byte == b'\\' && line.at(i + 1) == quote {
            return Some(Extent { start, end: i, open: None, quoted: true });
        }
        // Only some languages allow escaping a single quote, and in those another one follows
        // later.
        let later = count == 1 && line.at(i + 1) == b'\'' && line.rest(i + 2).contains(&b'\'');
        if byte == b'\\' && (quote != b'\'' || later) {
            i += 2;
        } else if byte == quote
            && !escaped
            && line.rest(i).iter().take_while(|b| **b == quote).count() >= count
        {
            if quote == b'\'' && count == 1 && line.at(i + 1) == b'\'' && i > start {
                i += 2;
                continue;
            }
            return Some(Extent { start, end: i, open: None, quoted: true });
        } else {
            i += 1;
        }
    }
    let open = if escaped { None } else { Some((quote, count)) };
    Some(Extent { start, end: line.trimmed_end().max(start), open, quoted: true })
}

/// Whether the quote is followed by a character that may follow a closing quote.
fn closes_here(line: &Line, at: usize) -> bool {
    matches!(line.at(at + 1), 0 | b' ' | b'\t' | b',' | b';' | b')' | b']' | b'}' | b'>' | b':' | b'/')
}

/// A value up to the end of the line, without a trailing comment and closing punctuation.
fn to_the_end(line: &Line, key: usize, from: usize) -> Extent {
    let mut end = line.trimmed_end();
    let value = line.get(from, end);
    for (i, pair) in value.windows(2).enumerate() {
        let (Some(first), Some(second)) = (pair.first(), pair.get(1)) else { continue };
        let comment = first.is_ascii_whitespace() && (*second == b'#' || *second == b';');
        let more = matches!(first, b' ' | b'\t' | b',' | b';' | b'&') && begins_pair(line, from + i + 1);
        if comment || more {
            end = from + i;
            break;
        }
    }
    while end > from && matches!(line.before(end), b';' | b',' | b' ' | b'\t') {
        end -= 1;
    }
    let enclosed = [(b'{', b'}'), (b'(', b')'), (b'[', b']')];
    for (open, close) in enclosed {
        if end > from && line.before(end) == close && line.depth(open, close, key) > 0 {
            end -= 1;
        }
    }
    Extent::plain(from, end)
}

/// Whether `name=` begins here, which is the next setting on the line. Base64 padding does not
/// count.
fn begins_pair(line: &Line, at: usize) -> bool {
    let at = line.skip_blanks(at);
    let end = line.until(at, |b| !(b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.')));
    end > at + 1
        && line.at(at).is_ascii_alphabetic()
        && line.at(end) == b'='
        && !matches!(line.at(end + 1), 0 | b'=')
}

/// A value among others on a line, up to a blank, the surrounding quote, or a separator.
fn inline(line: &Line, key: usize, from: usize, before: u8) -> Extent {
    let double = line.is_open(b'"', key);
    let single = line.is_open(b'\'', key);
    let flow = line.depth(b'{', b'}', key) > 0;
    let comma = before == b',' || flow || line.depth(b'(', b')', key) > 0 && before != b'-';
    let semicolon = before == b';' || line.get(key.saturating_sub(2), key) == b"; ";
    let end = line.until(from, |b| {
        b <= b' '
            || b == b'"' && double
            || b == b'\'' && single
            || b == b',' && comma
            || b == b';' && semicolon
            || b == b'}' && flow
            || b == b'`'
    });
    let mut end = end;
    for i in from..end {
        if matches!(line.at(i), b',' | b';' | b'&') && begins_pair(line, i + 1) {
            end = i;
            break;
        }
    }
    let mut trimmed = end;
    while trimmed > from && matches!(line.before(trimmed), b',' | b';') {
        trimmed -= 1;
    }
    if trimmed > from && line.before(trimmed) == b')' && line.depth(b'(', b')', key) > 0 {
        trimmed -= 1;
    }
    Extent::plain(from, trimmed)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value of the first `pw` on a line.
    fn value(text: &str) -> &str {
        let line = Line::new(text.as_bytes());
        let key = text.find("pw").unwrap();
        let mut from = key + 2;
        while matches!(line.at(from), b'"' | b':' | b'=' | b' ') && !(line.at(from) == b'"' && from > key + 2)
        {
            from += 1;
        }
        let found = of(&line, key, from, key == line.head);
        &text[found.start..found.end]
    }

    #[test]
    fn values_end_where_their_notation_ends() {
        for (text, want) in [
            ("pw = a b c", "a b c"),
            ("pw = a b # c", "a b"),
            ("pw = \"a # b\" # c", "a # b"),
            ("pw: 'it''s' # c", "it''s"),
            ("pw=a host=b", "a"),
            ("host=b pw=a x=c", "a"),
            ("a;pw=x y;b=c", "x"),
            ("rw,pw=a,uid=0 0 0", "a"),
            ("{user: x, pw: a, b: c}", "a"),
            ("{user: x, pw: a}", "a"),
            ("http://x/?pw=a&b=c", "a"),
            ("-H \"X pw: a\"", "a"),
            ("Environment=\"pw=a b\" \"c=d\"", "a b"),
            ("{\"pw\": \"a\\\"b\", \"c\": 1}", "a\\\"b"),
            ("{\"pw\": 12345, \"c\": 1}", "12345"),
            ("x(pw=a)", "a"),
            ("pw = a;", "a"),
            ("pw =", ""),
            ("pw = ''", ""),
            ("pw = AbC=", "AbC="),
            ("x pw=AbC==", "AbC=="),
            ("pw = \"\"\"a", "a"),
        ] {
            assert_eq!(value(text), want, "{text}");
        }
    }

    #[test]
    fn an_open_quote_is_told() {
        let line = Line::new(b"pw: \"a b");
        assert_eq!(of(&line, 0, 4, true), Extent { start: 5, end: 8, open: Some((b'"', 1)), quoted: true });
    }

    proptest::proptest! {
        #[test]
        fn extents_lie_on_the_line(text in "[a ='\"\\\\,;{}()\\[\\]<>:`-]{0,40}", key in 0_usize..40, from in 0_usize..40) {
            let line = Line::new(text.as_bytes());
            let from = from.min(line.bytes.len());
            let found = of(&line, key.min(from), from, key % 2 == 0);
            proptest::prop_assert!(found.start <= found.end && found.start >= from);
        }
    }
}
