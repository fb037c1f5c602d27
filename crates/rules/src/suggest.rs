//! What somebody may have meant.

use mitra_model::{Entity, columns};

/// Names that are offered at most.
const OFFERED_MAX: usize = 3;

/// `; did you mean …?` with the metrics whose names are most like this one; empty where none is.
#[must_use]
pub fn metric(name: &str) -> String {
    let mut found: Vec<(usize, &str)> = Entity::ALL
        .into_iter()
        .flat_map(|entity| columns(entity).iter())
        .map(|m| (distance(name, m.name), m.name))
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

/// How many characters have to be put in, taken out or replaced (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("sys.fork", "sys.forks"), 1);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert!(metric("sys.fork").contains("sys.forks"));
        assert!(metric("zzzzzzzz").contains("mitra metrics"));
    }
}
