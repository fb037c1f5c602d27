//! Path patterns.
//!
//! ```text
//! /etc/hosts            this file; a directory includes everything below it
//! /etc/*.conf           * and ? do not match a /
//! /etc/[a-m]*/**        ** matches any number of directories
//! /etc/{a,b}.conf       both files, in the configuration only
//! *.bak                 without a leading / at any depth, in `exclude` only
//! ```
//!
//! A pattern is a sequence of names. While a path is walked, a bit mask holds the set of positions
//! reached. So directories that cannot match are never opened, and no pattern takes exponential
//! time.

use globset::{ErrorKind, GlobBuilder, GlobMatcher};

/// Maximum number of names per pattern, so that all positions fit into the mask.
const NAMES_MAX: usize = 60;

/// A path pattern.
#[derive(Debug, Clone)]
pub struct Pattern {
    names: Vec<Name>,
}

#[derive(Debug, Clone)]
enum Name {
    /// `**`.
    Any,
    Literal(String),
    Wild(GlobMatcher),
}

/// The set of positions in a pattern that a path has reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reached(u64);

impl Reached {
    /// Whether no path below can match.
    #[must_use]
    pub fn is_dead(self) -> bool {
        self.0 == 0
    }
}

impl Pattern {
    /// Parses a pattern. A pattern without a leading `/` matches at any depth.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (absolute, rest) = match text.strip_prefix('/') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let mut names = Vec::new();
        if !absolute {
            names.push(Name::Any);
        }
        for part in rest.split('/').filter(|part| !part.is_empty()) {
            names.push(name(part)?);
        }
        names.dedup_by(|a, b| matches!((a, b), (Name::Any, Name::Any)));
        if names.len() > NAMES_MAX {
            return Err(format!("more than {NAMES_MAX} directories"));
        }
        Ok(Self { names })
    }

    /// A pattern for everything below a directory.
    #[must_use]
    pub fn below(dir: &str) -> Self {
        let mut names: Vec<Name> = parts(dir).map(|part| Name::Literal(part.to_owned())).collect();
        names.truncate(NAMES_MAX);
        names.push(Name::Any);
        Self { names }
    }

    /// The path, if the pattern has no wildcards.
    #[must_use]
    pub fn literal(&self) -> Option<String> {
        let all = self.literal_names();
        (all.len() == self.names.len()).then(|| format!("/{}", all.join("/")))
    }

    /// The directory above the first wildcard.
    #[must_use]
    pub fn prefix(&self) -> String {
        format!("/{}", self.literal_names().join("/"))
    }

    fn literal_names(&self) -> Vec<&str> {
        let mut all = Vec::new();
        for name in &self.names {
            match name {
                Name::Literal(text) => all.push(text.as_str()),
                _ => break,
            }
        }
        all
    }

    /// The positions at the root.
    #[must_use]
    pub fn begin(&self) -> Reached {
        self.close(1)
    }

    /// The positions after one more name.
    #[must_use]
    pub fn step(&self, from: Reached, name: &str) -> Reached {
        let mut next = 0;
        for (i, wanted) in self.names.iter().enumerate() {
            if from.0 & (1 << i) == 0 {
                continue;
            }
            match wanted {
                Name::Any => next |= 1 << i,
                Name::Literal(text) if text == name => next |= 1 << (i + 1),
                Name::Wild(glob) if glob.is_match(name) => next |= 1 << (i + 1),
                _ => {}
            }
        }
        self.close(next)
    }

    /// Whether the path matches.
    #[must_use]
    pub fn accepts(&self, reached: Reached) -> bool {
        reached.0 & (1 << self.names.len()) != 0
    }

    /// Whether a path below may match.
    #[must_use]
    pub fn goes_on(&self, reached: Reached) -> bool {
        reached.0 & !(1 << self.names.len()) != 0
    }

    /// `**` also matches zero directories.
    fn close(&self, mut mask: u64) -> Reached {
        for (i, name) in self.names.iter().enumerate() {
            if matches!(name, Name::Any) && mask & (1 << i) != 0 {
                mask |= 1 << (i + 1);
            }
        }
        Reached(mask)
    }

    /// The positions after a path.
    #[must_use]
    pub fn walk(&self, path: &str) -> Reached {
        let mut reached = self.begin();
        for part in parts(path) {
            reached = self.step(reached, part);
            if reached.is_dead() {
                break;
            }
        }
        reached
    }

    /// Whether a path matches.
    #[must_use]
    pub fn matches(&self, path: &str) -> bool {
        self.accepts(self.walk(path))
    }

    /// Whether a path or one of its parents matches.
    #[must_use]
    pub fn covers(&self, path: &str) -> bool {
        let mut reached = self.begin();
        for part in parts(path) {
            reached = self.step(reached, part);
            if self.accepts(reached) {
                return true;
            }
            if reached.is_dead() {
                return false;
            }
        }
        self.accepts(reached)
    }
}

/// The components of a path.
pub fn parts(path: &str) -> impl DoubleEndedIterator<Item = &str> {
    path.split('/').filter(|part| !part.is_empty())
}

fn name(part: &str) -> Result<Name, String> {
    if matches!(part, "." | "..") {
        return Err(format!("'{part}' in a path"));
    }
    if part == "**" {
        return Ok(Name::Any);
    }
    if !part.contains(['*', '?', '[', '\\']) {
        return Ok(Name::Literal(part.to_owned()));
    }
    match GlobBuilder::new(part).literal_separator(true).build() {
        Ok(glob) => Ok(Name::Wild(glob.compile_matcher())),
        Err(error) => Err(match error.kind() {
            ErrorKind::UnclosedClass => "a '[' without its ']'".to_owned(),
            ErrorKind::InvalidRange(from, to) => format!("'{from}-{to}' is no range"),
            ErrorKind::DanglingEscape => "a '\\' at the end of a name".to_owned(),
            kind => kind.to_string(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn matches(pattern: &str, path: &str) -> bool {
        Pattern::parse(pattern).unwrap().matches(path)
    }

    #[test]
    fn patterns_match_names_hidden_ones_too() {
        for (pattern, path) in [
            ("/etc/hosts", "/etc/hosts"),
            ("/etc/*.conf", "/etc/resolv.conf"),
            ("/etc/*", "/etc/.hidden"),
            ("/etc/**", "/etc/a/b/c"),
            ("/etc/**/*.conf", "/etc/a.conf"),
            ("/etc/**/*.conf", "/etc/x/y/a.conf"),
            ("/**/b/**/d", "/a/b/c/b/d"),
            ("*.bak", "/srv/x/y.bak"),
            ("ssl/*.key", "/etc/ssl/a.key"),
            ("/etc/rc[0-6].d/?20*", "/etc/rc3.d/S20ssh"),
            ("/etc/[!a]*", "/etc/bcd"),
            ("/a/[]x]", "/a/]"),
            ("/a/\\*", "/a/*"),
            ("/a/*b*c", "/a/xbybzc"),
            ("/etc//hosts/", "/etc/hosts"),
        ] {
            assert!(matches(pattern, path), "{pattern} {path}");
        }
        for (pattern, path) in [
            ("/etc/hosts", "/etc/hosts.allow"),
            ("/etc/*", "/etc/a/b"),
            ("/etc/*.conf", "/etc/conf"),
            ("/etc/**/x", "/etc/y"),
            ("/etc/[!a]*", "/etc/abc"),
            ("*.bak", "/srv/x/y.bakk"),
            ("/a/?", "/a/"),
            ("/a/*b", "/a/bc"),
        ] {
            assert!(!matches(pattern, path), "{pattern} {path}");
        }
    }

    #[test]
    fn what_is_above_counts_for_what_is_below() {
        let ssl = Pattern::parse("/etc/ssl").unwrap();
        assert!(ssl.covers("/etc/ssl") && ssl.covers("/etc/ssl/private/a"));
        assert!(!ssl.covers("/etc") && !ssl.covers("/etc/sslx"));
        assert!(Pattern::below("/etc").matches("/etc/a/b"));
        assert!(Pattern::parse(".git").unwrap().covers("/srv/x/.git/config"));
    }

    #[test]
    fn walks_stop_where_nothing_can_match() {
        let p = Pattern::parse("/etc/*/conf.d/*.conf").unwrap();
        assert_eq!(p.prefix(), "/etc");
        assert_eq!(p.literal(), None);
        let etc = p.walk("/etc");
        assert!(p.goes_on(etc) && !p.accepts(etc));
        assert!(p.step(p.walk("/etc/x"), "other").is_dead());
        assert_eq!(Pattern::parse("/etc/hosts").unwrap().literal().as_deref(), Some("/etc/hosts"));
        assert_eq!(Pattern::parse("/").unwrap().literal().as_deref(), Some("/"));
    }

    #[test]
    fn mistakes_are_said() {
        for wrong in ["/etc/[abc", "/etc/../shadow", "/a/[z-a]", "/a/x\\", &"/a".repeat(99)] {
            assert!(Pattern::parse(wrong).is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn nothing_panics_and_a_path_matches_itself(
            pattern in "/?[-a-c*?\\[\\]!/\\\\]{0,24}",
            path in "(/[a-c]{1,4}){1,6}",
        ) {
            if let Ok(p) = Pattern::parse(&pattern) {
                let is_match = p.matches(&path);
                prop_assert!(!is_match || p.covers(&path));
            }
            prop_assert!(matches(&path, &path));
            prop_assert!(matches("/**", &path));
        }
    }
}
