//! What cannot be observed, and why: a list, and an event for each change of it.

use mitra_model::EventKind;

/// No more sources are listed; there are not so many.
const SOURCES_MAX: usize = 1_024;

/// The list.
#[derive(Debug, Default)]
pub struct Missing {
    list: Vec<(String, String)>,
    news: Vec<EventKind>,
}

impl Missing {
    /// A source could not be read. Says so once, and again when the reason changes.
    pub fn add(&mut self, source: &str, why: &str) {
        match self.list.iter().position(|(name, _)| name == source) {
            Some(at) => match self.list.get_mut(at) {
                Some((_, old)) if old != why => why.clone_into(old),
                _ => return,
            },
            None if self.list.len() >= SOURCES_MAX => return,
            None => self.list.push((source.to_owned(), why.to_owned())),
        }
        self.news.push(EventKind::Unavailable { source: source.to_owned(), why: why.to_owned() });
    }

    /// A source can be read. Says so if it could not before.
    pub fn remove(&mut self, source: &str) {
        if let Some(at) = self.list.iter().position(|(name, _)| name == source) {
            self.list.remove(at);
            self.news.push(EventKind::Recorder { text: format!("{source} is available again") });
        }
    }

    /// Everything that is missing now.
    #[must_use]
    pub fn list(&self) -> &[(String, String)] {
        &self.list
    }

    /// What changed since the last call.
    pub fn news(&mut self) -> impl Iterator<Item = EventKind> {
        self.news.drain(..)
    }
}

/// The reason in words that a reader understands without the source.
#[must_use]
pub fn reason(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "this kernel does not have it".to_owned(),
        std::io::ErrorKind::PermissionDenied if rustix::process::geteuid().is_root() => {
            "permission denied, also to root".to_owned()
        }
        std::io::ErrorKind::PermissionDenied => "permission denied: needs root".to_owned(),
        _ if error.raw_os_error() == Some(libc::EOPNOTSUPP) => "turned off in this kernel".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_is_said_once() {
        let mut missing = Missing::default();
        missing.add("/proc/slabinfo", "no");
        missing.add("/proc/slabinfo", "no");
        assert_eq!(missing.news().count(), 1);
        missing.add("/proc/slabinfo", "still no");
        missing.remove("/proc/slabinfo");
        missing.remove("/proc/slabinfo");
        assert_eq!(missing.news().count(), 2);
        assert!(missing.list().is_empty());
    }
}
