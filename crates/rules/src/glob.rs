//! Names with `*` and `?`.

/// Whether a name fits a pattern, in which `*` stands for any text and `?` for one character. Allocates nothing.
#[must_use]
pub fn matches(pattern: &str, name: &str) -> bool {
    let (mut pattern, mut name) = (pattern.chars(), name.chars());
    // Where to go on when it does not fit: behind the last star, and what the star has not taken yet.
    let mut retry: Option<(std::str::Chars<'_>, std::str::Chars<'_>)> = None;
    loop {
        let before = (pattern.clone(), name.clone());
        match (pattern.next(), name.next()) {
            (Some('*'), _) => {
                name = before.1.clone();
                retry = Some((pattern.clone(), before.1));
            }
            (None, None) => return true,
            (Some(p), Some(n)) if p == '?' || p == n => {}
            _ => {
                let Some((star, mut left)) = retry else { return false };
                if left.next().is_none() {
                    return false;
                }
                (pattern, name) = (star.clone(), left.clone());
                retry = Some((star, left));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns() {
        for (pattern, name) in [
            ("*", ""),
            ("", ""),
            ("mem.*", "mem.free"),
            ("*.p?scan*", "vm.pgscan_kswapd"),
            ("a*b*c", "aXbYbc"),
            ("a?c", "aüc"),
            ("**x", "x"),
        ] {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in
            [("", "a"), ("mem.?", "mem.free"), ("a*b", "abc"), ("mem", "mem.free"), ("a*", "b")]
        {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
        assert!(!matches(&"*a".repeat(40), &"a".repeat(30)));
    }
}
