//! Index names: `mitra_2026-11-21`, `mitra_history_2026-11-21`, `mitra_hosts`, `mitra_incidents_2026-11`.

use crate::day::Day;
use crate::error::Error;

/// Maximum length of a prefix in bytes. With a day appended, a name must stay below 255.
const PREFIX_MAX: usize = 200;
const HISTORY: &str = "history_";
const INCIDENTS: &str = "incidents_";

/// The index names with one prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Names {
    prefix: String,
}

/// The kind of an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IndexKind {
    /// The last states of one day.
    Day(Day),
    /// The states replaced on one day.
    History(Day),
}

impl Names {
    /// The names with this prefix. An error if no index name can begin with it.
    pub fn new(prefix: &str) -> Result<Self, Error> {
        let first = prefix.chars().next();
        let well =
            prefix.chars().all(|c| !c.is_control() && !c.is_uppercase() && !"\\/*?\"<>| ,#:".contains(c));
        if prefix.len() > PREFIX_MAX || !well || first.is_none_or(|c| "-_+.".contains(c)) {
            return Err(Error::Cannot(format!(
                "'{prefix}' cannot begin the name of an index: wanted lower case, without spaces and \\ / * ? \" < > | , # :, \
                 not beginning with - _ + ."
            )));
        }
        Ok(Self { prefix: prefix.to_owned() })
    }

    /// The index of a day.
    pub fn day(&self, day: Day) -> String {
        format!("{}{day}", self.prefix)
    }

    /// The history index of a day.
    pub fn history(&self, day: Day) -> String {
        format!("{}{HISTORY}{day}", self.prefix)
    }

    /// The index with one entry per host: the time of its last pass.
    pub fn hosts(&self) -> String {
        format!("{}hosts", self.prefix)
    }

    /// The index of the incidents that began in the month of a moment.
    pub fn incidents(&self, ns: i64) -> String {
        let day = Day::of(ns).to_string();
        format!("{}{INCIDENTS}{}", self.prefix, day.get(..7).unwrap_or(&day))
    }

    /// A pattern that matches the indices of incidents.
    pub fn incidents_pattern(&self) -> String {
        format!("{}{INCIDENTS}*", self.prefix)
    }

    /// A pattern that matches all of them, and possibly indices of others.
    pub fn pattern(&self) -> String {
        format!("{}*", self.prefix)
    }

    /// The name of the index template.
    pub fn template(&self) -> String {
        self.prefix.trim_end_matches(['_', '-', '.']).to_owned()
    }

    /// The kind of an index; `None` if it is not ours.
    pub fn read(&self, index: &str) -> Option<IndexKind> {
        let rest = index.strip_prefix(&self.prefix)?;
        match rest.strip_prefix(HISTORY) {
            Some(day) => day.parse().ok().map(IndexKind::History),
            None => rest.parse().ok().map(IndexKind::Day),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_made_and_read() {
        let names = Names::new("mitra_").unwrap();
        let day: Day = "2026-11-21".parse().unwrap();
        assert_eq!(names.day(day), "mitra_2026-11-21");
        assert_eq!(names.history(day), "mitra_history_2026-11-21");
        assert_eq!(names.incidents(day.start_ns()), "mitra_incidents_2026-11");
        assert_eq!(names.read("mitra_2026-11-21"), Some(IndexKind::Day(day)));
        assert_eq!(names.read("mitra_history_2026-11-21"), Some(IndexKind::History(day)));
        // Indices of others with the same prefix are never read or deleted.
        for other in [
            "mitra_",
            "mitra_hosts",
            "mitra_incidents_2026-11",
            "mitra_2026-11",
            "mitra_2026-11-21-x",
            "mitra_lab_2026-11-21",
            "other_2026-11-21",
            "mitra_2026-13-01",
        ] {
            assert_eq!(names.read(other), None, "{other}");
        }
        assert_eq!(names.template(), "mitra");
    }

    #[test]
    fn a_prefix_that_no_index_can_have_is_refused() {
        for wrong in ["", "_mitra", "-x", "Mitra_", "a b", "a*", "a/b", "a,b", "a#b", "a:b", &"x".repeat(201)]
        {
            assert!(Names::new(wrong).is_err(), "{wrong}");
        }
        assert!(Names::new("mitra-prod.").is_ok());
    }
}
