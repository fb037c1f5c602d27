//! Patterns of paths: `*` within one name, `**` across names, `?`, `[abc]`, `{a,b}`. Letters of either case are alike.

/// Alternatives of one pattern with braces; further ones are not made.
const ALTERNATIVES_MAX: usize = 256;

/// One pattern, its braces spelled out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Glob {
    alternatives: Vec<String>,
}

impl Glob {
    pub(super) fn new(pattern: &str) -> Self {
        let mut alternatives = Vec::new();
        spell_out(&pattern.to_ascii_lowercase(), &mut alternatives);
        Self { alternatives }
    }

    /// `path` in lower case.
    pub(super) fn matches(&self, path: &str) -> bool {
        self.alternatives.iter().any(|a| matches(a.as_bytes(), path.as_bytes()))
    }
}

/// `a{b,c}d` is `abd` and `acd`; braces may stand in braces. Without a closing one the brace is a letter.
fn spell_out(pattern: &str, out: &mut Vec<String>) {
    if out.len() >= ALTERNATIVES_MAX {
        return;
    }
    let Some((open, close)) = braces(pattern) else {
        out.push(pattern.to_owned());
        return;
    };
    let (before, inner, after) = (&pattern[..open], &pattern[open + 1..close], &pattern[close + 1..]);
    let mut depth = 0_u32;
    let mut from = 0;
    for (i, byte) in inner.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => {
                spell_out(&format!("{before}{}{after}", &inner[from..i]), out);
                from = i + 1;
            }
            _ => {}
        }
    }
    spell_out(&format!("{before}{}{after}", &inner[from..]), out);
}

/// The first brace and the one that closes it.
fn braces(pattern: &str) -> Option<(usize, usize)> {
    let open = pattern.find('{')?;
    let mut depth = 0_u32;
    for (i, byte) in pattern.bytes().enumerate().skip(open) {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some((open, i));
        }
    }
    None
}

/// Two places to come back to, one for the last `*` and one for the last `**`, so that the time is bounded by a product.
fn matches(pattern: &[u8], path: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    let mut deep: Option<(usize, usize)> = None;
    loop {
        let rest = pattern.get(p..).unwrap_or_default();
        if rest.starts_with(b"**") {
            // `**/` also stands for nothing at all.
            p += if rest.get(2) == Some(&b'/') { 3 } else { 2 };
            deep = Some((p, t));
            star = None;
            continue;
        }
        if rest.first() == Some(&b'*') {
            p += 1;
            star = Some((p, t));
            continue;
        }
        if let Some(byte) = path.get(t) {
            if let Some(width) = one(rest, *byte) {
                p += width;
                t += 1;
                continue;
            }
        } else if rest.is_empty() {
            return true;
        }
        match (star, deep) {
            (Some((back, at)), _) if path.get(at).is_some_and(|b| *b != b'/') => {
                (p, t) = (back, at + 1);
                star = Some((back, at + 1));
            }
            (_, Some((back, at))) if at < path.len() => {
                let slash = back > 0 && pattern.get(back - 1) == Some(&b'/');
                let from = path.get(at..).unwrap_or_default();
                // After `**/` a name begins: it goes on behind the next slash.
                let step = if slash { from.iter().position(|b| *b == b'/').map(|i| i + 1) } else { Some(1) };
                let Some(step) = step else { return false };
                (p, t) = (back, at + step);
                deep = Some((back, at + step));
                star = None;
            }
            _ => return false,
        }
    }
}

/// How many bytes of the pattern match this byte of the path.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match *pattern.first()? {
        b'?' => (byte != b'/').then_some(1),
        b'[' => match pattern.iter().skip(2).position(|b| *b == b']').map(|i| i + 2) {
            Some(close) => class(pattern.get(1..close)?, byte).then_some(close + 1),
            None => (byte == b'[').then_some(1),
        },
        same => (same == byte).then_some(1),
    }
}

fn class(inner: &[u8], byte: u8) -> bool {
    let (negated, inner) = match inner.split_first() {
        Some((b'!' | b'^', rest)) => (true, rest),
        _ => (false, inner),
    };
    let mut rest = inner;
    let mut inside = false;
    loop {
        match rest {
            [from, b'-', to, tail @ ..] => {
                inside |= (*from..=*to).contains(&byte);
                rest = tail;
            }
            [single, tail @ ..] => {
                inside |= *single == byte;
                rest = tail;
            }
            [] => return inside != negated && byte != b'/',
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is(pattern: &str, path: &str) -> bool {
        Glob::new(pattern).matches(path)
    }

    #[test]
    fn stars_stay_within_a_name_and_double_stars_do_not() {
        assert!(is("/etc/*.key", "/etc/a.key"));
        assert!(!is("/etc/*.key", "/etc/a/b.key"));
        assert!(is("**/*.key", "/etc/a/b.key"));
        assert!(is("**/*.key", "a.key"));
        assert!(is("/etc/ssl/private/**", "/etc/ssl/private/a/b"));
        assert!(!is("/etc/ssl/private/**", "/etc/ssl/privateer"));
        assert!(is("**/.ssh/id_*", "/root/.ssh/id_rsa"));
        assert!(!is("**/.ssh/id_*", "/root/x.ssh/id_rsa"));
        assert!(is("/a/**/b/*/c", "/a/x/b/y/b/z/c"));
        assert!(!is("/a/**/b/*/c", "/a/x/b/y/z/c"));
        assert!(is("/a/**/c", "/a/c"));
    }

    #[test]
    fn braces_classes_and_question_marks() {
        assert!(is("/etc/{shadow,gshadow}*", "/etc/gshadow-"));
        assert!(is("{a,b{c,d}}x", "bdx") && is("{a,b{c,d}}x", "ax") && !is("{a,b{c,d}}x", "bx"));
        assert!(is("a{b", "a{b") && is("[ab]?", "bz") && !is("[!ab]?", "bz") && is("[a-c]", "b"));
        assert!(is("[x", "[x") && !is("?", "/"));
    }

    #[test]
    fn many_stars_take_no_time() {
        assert!(!is(&"*a".repeat(40), &"a".repeat(39)));
        assert!(!is(&"**/a".repeat(20), &"/a".repeat(2000).replace("/a", "/ab")));
    }

    proptest::proptest! {
        #[test]
        fn nothing_panics(pattern in "[a/*?{},\\[\\]!-]{0,24}", path in "[a/b]{0,24}") {
            let _ = is(&pattern, &path);
        }
    }
}
