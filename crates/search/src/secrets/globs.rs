//! Path patterns, case-insensitive: `*` within one name, `**` across names, `?`, `[abc]`, `{a,b}`.

use globset::{Candidate, Error, GlobBuilder, GlobSet, GlobSetBuilder};

/// A set of patterns that are matched together.
#[derive(Debug, Clone)]
pub(super) struct Globs(GlobSet);

impl Default for Globs {
    fn default() -> Self {
        Self(GlobSet::empty())
    }
}

impl Globs {
    pub(super) fn new<'a>(patterns: impl IntoIterator<Item = &'a str>) -> Result<Self, Error> {
        let mut set = GlobSetBuilder::new();
        for pattern in patterns {
            let mut glob = GlobBuilder::new(pattern);
            glob.case_insensitive(true).literal_separator(true).empty_alternates(true);
            set.add(glob.build()?);
        }
        set.build().map(Self)
    }

    /// Whether any pattern matches.
    pub(super) fn matches(&self, path: &str) -> bool {
        self.0.is_match(path)
    }

    /// The index of the first matching pattern.
    pub(super) fn first(&self, path: &str) -> Option<usize> {
        self.0.matches_candidate(&Candidate::new(path)).first().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is(pattern: &str, path: &str) -> bool {
        Globs::new([pattern]).unwrap().matches(path)
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
        assert!(is("/etc/{shadow,gshadow}*", "/etc/GShadow-"));
        assert!(is("/etc/{shadow,gshadow}{,-}", "/etc/shadow"));
        assert!(is("{a,b{c,d}}x", "bdx") && is("{a,b{c,d}}x", "ax") && !is("{a,b{c,d}}x", "bx"));
        assert!(is("[ab]?", "bz") && !is("[!ab]?", "bz") && is("[a-c]", "b") && !is("?", "/"));
        assert!(Globs::new(["a{b"]).is_err() && Globs::new(["[x"]).is_err());
    }

    #[test]
    fn the_first_in_the_list_is_named() {
        let globs = Globs::new(["/x", "**/*.key", "/etc/**"]).unwrap();
        assert_eq!(globs.first("/etc/a.key"), Some(1));
        assert_eq!(globs.first("/etc/b"), Some(2));
        assert_eq!(globs.first("/a"), None);
    }
}
