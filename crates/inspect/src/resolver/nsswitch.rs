//! The `hosts` line of `/etc/nsswitch.conf` as glibc and Go read it.
//!
//! ```text
//! hosts: files mdns4_minimal [NOTFOUND=return] dns
//! ```
//!
//! From glibc 2.36 (`nss/nss_database.c`, `nss/nss_action_parse.c`) and Go 1.19 to 1.26
//! (`src/net/nss.go`).

use serde::Serialize;

use super::trace::Status;

/// What glibc does after a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    /// The lookup ends.
    Return,
    /// The next source is asked.
    Continue,
}

/// A source with what follows each of its statuses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Source {
    /// `files`, `dns`, ….
    pub name: String,
    success: Action,
    notfound: Action,
    unavail: Action,
    tryagain: Action,
    /// Whether the actions are those that nobody needs to write.
    #[serde(skip)]
    is_standard: bool,
}

impl Source {
    fn new(name: &str) -> Self {
        Source {
            name: name.to_owned(),
            success: Action::Return,
            notfound: Action::Continue,
            unavail: Action::Continue,
            tryagain: Action::Continue,
            is_standard: true,
        }
    }

    /// What follows a status.
    #[must_use]
    pub fn action(&self, status: Status) -> Action {
        match status {
            Status::Success => self.success,
            Status::NotFound => self.notfound,
            Status::Unavail => self.unavail,
            Status::TryAgain => self.tryagain,
        }
    }

    /// Go's word for actions that it follows without glibc.
    #[must_use]
    pub fn has_standard_actions(&self) -> bool {
        self.is_standard
    }

    fn set(&mut self, status: Status, action: Action) {
        let field = match status {
            Status::Success => &mut self.success,
            Status::NotFound => &mut self.notfound,
            Status::Unavail => &mut self.unavail,
            Status::TryAgain => &mut self.tryagain,
        };
        *field = action;
    }
}

/// Sources of a line that are followed.
const SOURCES_MAX: usize = 64;

const STATUSES: [(Status, &str); 4] = [
    (Status::Success, "success"),
    (Status::NotFound, "notfound"),
    (Status::Unavail, "unavail"),
    (Status::TryAgain, "tryagain"),
];

/// The sources that glibc asks. `None` if it cannot read the line: then every lookup fails.
///
/// The last line of the file counts only if it ends with a newline. Without a `hosts` line it is
/// `files dns`.
#[must_use]
pub fn glibc(file: Option<&[u8]>) -> Option<Vec<Source>> {
    let text = String::from_utf8_lossy(file.unwrap_or_default());
    let mut sources = None;
    for line in text.split_inclusive('\n') {
        let Some(line) = line.strip_suffix('\n') else { continue };
        let line = line.split('\0').next().unwrap_or_default().trim_start();
        let end = line.find(|c: char| c.is_ascii_whitespace() || c == ':').unwrap_or(line.len());
        if line.get(..end) != Some("hosts") {
            continue;
        }
        let rest = line.get(end..).unwrap_or_default();
        sources = Some(actions(rest.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == ':'))?);
    }
    Some(sources.unwrap_or_else(|| vec![Source::new("files"), Source::new("dns")]))
}

/// Sources of a line. `None` for what glibc refuses.
fn actions(line: &str) -> Option<Vec<Source>> {
    let mut sources = Vec::new();
    let mut rest = line.trim_start();
    while !rest.is_empty() {
        let end = rest.find(|c: char| c.is_ascii_whitespace() || c == '[').unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        // A bracket without a source ends the list. There are no comments behind it.
        if name.is_empty() {
            break;
        }
        let mut source = Source::new(name);
        rest = after.trim_start();
        if let Some(criteria) = rest.strip_prefix('[') {
            let (criteria, after) = criteria.split_once(']')?;
            let mut left = criteria.trim_start();
            if left.is_empty() {
                return None;
            }
            while !left.is_empty() {
                left = criterion(&mut source, left)?;
            }
            rest = after.trim_start();
        }
        if sources.len() < SOURCES_MAX {
            sources.push(source);
        }
    }
    Some(sources)
}

/// `!UNAVAIL=return`: applies it, and returns what follows.
fn criterion<'a>(source: &mut Source, text: &'a str) -> Option<&'a str> {
    let (negated, text) = match text.strip_prefix('!') {
        Some(text) => (true, text),
        None => (false, text),
    };
    let (name, rest) = text.split_once('=')?;
    let rest = rest.trim_start();
    let end = rest.find(|c: char| c.is_ascii_whitespace() || c == '=').unwrap_or(rest.len());
    let (word, after) = rest.split_at(end);
    let (status, _) = STATUSES.iter().find(|(_, known)| known.eq_ignore_ascii_case(name.trim_end()))?;
    let action = match word.to_ascii_lowercase().as_str() {
        "return" => Action::Return,
        // glibc does not merge hosts: the lookup fails if another source follows.
        "continue" | "merge" => Action::Continue,
        _ => return None,
    };
    for (other, _) in &STATUSES {
        if (other == status) != negated {
            source.set(*other, action);
        }
    }
    Some(after.trim_start())
}

/// The `hosts` sources as Go reads them. `None` if there is any line that Go cannot read.
#[must_use]
pub fn go(file: &[u8]) -> Option<Vec<Source>> {
    let text = String::from_utf8_lossy(file);
    let mut sources = Vec::new();
    for line in text.split('\n') {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let (database, list) = line.split_once(':')?;
        let read = go_sources(list)?;
        if database.trim() == "hosts" {
            sources.extend(read);
            sources.truncate(SOURCES_MAX);
        }
    }
    Some(sources)
}

fn go_sources(list: &str) -> Option<Vec<Source>> {
    let mut sources = Vec::new();
    let mut rest = list.trim();
    while !rest.is_empty() {
        let (name, after) = rest.split_once(' ').unwrap_or((rest, ""));
        let mut source = Source::new(name);
        rest = after.trim_start();
        if let Some(criteria) = rest.strip_prefix('[') {
            let (criteria, after) = criteria.split_once(']')?;
            let words: Vec<&str> = criteria.split_ascii_whitespace().collect();
            for (i, word) in words.iter().enumerate() {
                let bare = word.strip_prefix('!').unwrap_or(word);
                if bare.len() < 3 || !bare.contains('=') {
                    return None;
                }
                let is_last = i + 1 == words.len();
                let (status, action) = bare.split_once('=').unwrap_or_default();
                let standard = match status.to_ascii_lowercase().as_str() {
                    "success" => "return",
                    "notfound" | "unavail" | "tryagain" => "continue",
                    _ => "",
                };
                let action = action.to_ascii_lowercase();
                source.is_standard &= bare.len() == word.len()
                    && !standard.is_empty()
                    && (action == standard || (is_last && action == "return"));
            }
            rest = after.trim_start();
        }
        if sources.len() < SOURCES_MAX {
            sources.push(source);
        }
    }
    Some(sources)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(sources: &[Source]) -> Vec<&str> {
        sources.iter().map(|source| source.name.as_str()).collect()
    }

    #[test]
    fn usual_lines() {
        let line = b"hosts:  files mdns4_minimal [NOTFOUND=return] resolve [!UNAVAIL=return] dns\n";
        let sources = glibc(Some(line)).unwrap();
        assert_eq!(names(&sources), ["files", "mdns4_minimal", "resolve", "dns"]);
        assert_eq!(sources[1].action(Status::NotFound), Action::Return);
        assert_eq!(sources[1].action(Status::Unavail), Action::Continue);
        assert_eq!(sources[2].action(Status::Unavail), Action::Continue);
        assert_eq!(sources[2].action(Status::TryAgain), Action::Return);
        assert_eq!(names(&go(line).unwrap()), ["files", "mdns4_minimal", "resolve", "dns"]);
    }

    #[test]
    fn what_does_not_count() {
        // Without a newline at its end the line is not read.
        assert_eq!(names(&glibc(Some(b"hosts: dns")).unwrap()), ["files", "dns"]);
        assert_eq!(names(&glibc(None).unwrap()), ["files", "dns"]);
        assert_eq!(names(&glibc(Some(b"hosts: dns # files\n")).unwrap()), ["dns", "#", "files"]);
        assert_eq!(glibc(Some(b"hosts: files [NOTFOUND=perhaps] dns\n")), None);
        assert_eq!(glibc(Some(b"hosts: files [NOTFOUND=return\n")), None);
        assert_eq!(go(b"hosts: files [x] dns\n"), None);
        assert_eq!(go(b"what is this\n"), None);
        assert_eq!(names(&go(b"hosts: dns # files").unwrap()), ["dns"]);
    }
}
