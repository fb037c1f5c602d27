//! What somebody may have meant by a name that there is not.

use strsim::osa_distance;

/// Names that are offered.
const OFFERED_MAX: usize = 8;
/// Longer names get no suggestions: comparing takes the product of both lengths.
const LENGTH_MAX: usize = 64;

/// The end of an error message: the known names that contain this one, or else those that are most
/// like it; `; see: …` if there are none.
pub fn hint<'a>(name: &str, known: impl IntoIterator<Item = &'a str>, see: &str) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    // Stars and question marks match anything, and are not what was mistyped.
    let name = name.to_lowercase().replace(['*', '?'], "");
    let name = name.trim();
    let mut found: Vec<&str> = Vec::new();
    if !name.is_empty() && name.len() <= LENGTH_MAX {
        found.extend(known.iter().filter(|one| one.to_lowercase().contains(name)));
        if found.is_empty() {
            found = nearest(name, &known);
        }
    }
    if found.is_empty() {
        return format!("; see: {see}");
    }
    let more = found.len().saturating_sub(OFFERED_MAX);
    found.truncate(OFFERED_MAX);
    let more = if more > 0 { format!(", or one of {more} more") } else { String::new() };
    format!("; did you mean {}{more}?", in_words(&found))
}

/// With more than a third of the letters different it is another word. The last part of a dotted
/// name counts as well.
fn nearest<'a>(name: &str, known: &[&'a str]) -> Vec<&'a str> {
    let limit = (name.chars().count() / 3).max(1);
    let steps = |one: &str| {
        let end = one.rsplit('.').next().unwrap_or(one);
        osa_distance(name, one).min(osa_distance(name, end))
    };
    let mut near: Vec<(usize, &str)> = known.iter().map(|one| (steps(one), *one)).collect();
    near.retain(|(steps, _)| *steps <= limit);
    near.sort_unstable();
    let best = near.first().map_or(0, |(steps, _)| *steps);
    near.into_iter().take_while(|(steps, _)| *steps <= best + 1).take(3).map(|(_, one)| one).collect()
}

fn in_words(names: &[&str]) -> String {
    match names {
        [rest @ .., last] if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => names.concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &[&str] = &["swap-full", "swap-storm", "cpu-hog", "disk-hog", "mem.free", "mem.swap_total"];

    #[test]
    fn names_that_contain_it_come_before_names_that_are_like_it() {
        for (name, wanted) in [
            ("swap", "; did you mean swap-full, swap-storm or mem.swap_total?"),
            ("CPU", "; did you mean cpu-hog?"),
            ("cpu-hgo", "; did you mean cpu-hog?"),
            ("mem.fere", "; did you mean mem.free?"),
            ("fre", "; did you mean mem.free?"),
            ("frree*", "; did you mean mem.free?"),
            ("zzzzzz", "; see: mitra conditions"),
            ("", "; see: mitra conditions"),
            ("*", "; see: mitra conditions"),
        ] {
            assert_eq!(hint(name, KNOWN.iter().copied(), "mitra conditions"), wanted, "{name}");
        }
        assert!(hint(&"a".repeat(1 << 20), KNOWN.iter().copied(), "x").starts_with("; see"));
    }

    #[test]
    fn many_are_counted() {
        let names: Vec<String> = (0..20).map(|i| format!("disk-{i}")).collect();
        let said = hint("disk", names.iter().map(String::as_str), "x");
        assert!(said.ends_with("disk-6 or disk-7, or one of 12 more?"), "{said}");
    }
}
