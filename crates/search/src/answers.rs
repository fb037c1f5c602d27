//! Questions that take more than one search: what changed, what differs, which hosts are outliers,
//! what ill hosts share.

pub mod association;
pub mod changes;
pub mod outliers;

use similar::TextDiff;

/// Context lines around each difference.
const CONTEXT: usize = 3;

/// The differing lines in the form of `diff -u`. Empty if the texts are equal.
#[must_use]
pub fn diff(before: &str, after: &str, from: &str, to: &str) -> String {
    if before == after {
        return String::new();
    }
    TextDiff::from_lines(before, after).unified_diff().context_radius(CONTEXT).header(from, to).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_unified() {
        let text = diff("a\nb\nc\n", "a\nB\nc\n", "web1:/etc/x 1", "web1:/etc/x 2");
        assert_eq!(text, "--- web1:/etc/x 1\n+++ web1:/etc/x 2\n@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n");
        assert_eq!(diff("a", "a", "1", "2"), "");
    }
}
