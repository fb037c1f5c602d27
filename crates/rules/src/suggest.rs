//! What somebody may have meant.

use mitra_model::{Entity, columns};
use strsim::levenshtein;

/// Names that are offered at most.
const OFFERED_MAX: usize = 3;

/// `; did you mean …?` with the metrics whose names are most like this one; empty where none is.
#[must_use]
pub fn metric(name: &str) -> String {
    let mut found: Vec<(usize, &str)> = Entity::ALL
        .into_iter()
        .flat_map(|entity| columns(entity).iter())
        .map(|m| (levenshtein(name, m.name), m.name))
        .collect();
    found.sort_unstable();
    // A third of the letters wrong is another word.
    let limit = (name.chars().count() / 3).max(1);
    let near: Vec<&str> =
        found.iter().take_while(|(d, _)| *d <= limit).map(|(_, n)| *n).take(OFFERED_MAX).collect();
    if near.is_empty() {
        "; all of them: mitra metrics".to_owned()
    } else {
        format!("; did you mean {}?", near.join(" or "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_offered() {
        assert!(metric("sys.fork").contains("sys.forks"));
        assert!(metric("zzzzzzzz").contains("mitra metrics"));
    }
}
