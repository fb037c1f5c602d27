//! Times in the cluster's form: `2026-11-21T03:42:07.123456789Z`. The cluster compares
//! milliseconds, and returns the text unchanged to the nanosecond.

use jiff::Timestamp;

/// Formats a time. Every i64 of nanoseconds lies between 1677 and 2262, so this always succeeds.
pub(super) fn write(ns: i64) -> String {
    Timestamp::from_nanosecond(i128::from(ns))
        .map_or_else(|_| "1970-01-01T00:00:00Z".to_owned(), |t| t.to_string())
}

/// Parses a time.
pub(super) fn read(text: &str) -> Option<i64> {
    let at: Timestamp = text.parse().ok()?;
    i64::try_from(at.as_nanosecond()).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_moment_has_its_nanoseconds() {
        assert_eq!(write(0), "1970-01-01T00:00:00Z");
        assert_eq!(write(1_500_000_000), "1970-01-01T00:00:01.5Z");
        assert_eq!(read("2026-11-21"), None);
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(ns: i64) {
            prop_assert_eq!(read(&write(ns)), Some(ns));
        }
    }
}
