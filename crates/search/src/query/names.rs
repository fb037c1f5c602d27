//! Resolves field names of a query to fields, and suggests names for unknown ones.

use strsim::levenshtein;

use crate::fields::{self, ALIASES, FIELDS, Type};

/// Maximum number of suggested names.
const OFFERED_MAX: usize = 3;
/// Longer names get no suggestions.
const LENGTH_MAX: usize = 64;

/// A field to test, and the type of its values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The name. With a `*` it means all facts with matching names in the families that only the
    /// documents define.
    pub name: String,
    /// Its type.
    pub kind: Type,
}

/// The fields that a name denotes: one or none, or all that match a `*`.
#[must_use]
pub fn targets(name: &str) -> Vec<Target> {
    if !name.contains('*') {
        let found =
            fields::field(name).map(|f| Target { name: fields::resolve(name).to_owned(), kind: f.kind });
        return found.into_iter().collect();
    }
    let is_asked =
        |field: &str| fits(name, field) || ALIASES.iter().any(|(old, new)| *new == field && fits(name, old));
    let mut found: Vec<Target> = Vec::new();
    let (mut words, mut numbers) = (false, false);
    for field in FIELDS {
        match field.name.strip_suffix('*') {
            None if is_asked(field.name) => {
                found.push(Target { name: field.name.to_owned(), kind: field.kind })
            }
            // The names in a family are unknown here, only whether they could match.
            Some(head) if may_fit(name, head) => {
                words = true;
                numbers |= field.kind == Type::Double;
            }
            _ => {}
        }
    }
    let family = |kind| Target { name: name.to_owned(), kind };
    found.extend(words.then(|| family(Type::Keyword)));
    found.extend(numbers.then(|| family(Type::Double)));
    found
}

/// The fields below a name that is not a field itself, such as `kernel`. Families keep their `*`.
#[must_use]
pub fn below(name: &str) -> Vec<&'static str> {
    let inside = |field: &str| field.strip_prefix(name).is_some_and(|rest| rest.starts_with('.'));
    FIELDS.iter().map(|f| f.name).filter(|f| inside(f)).collect()
}

/// Whether a name matches a pattern, in which each `*` stands for any characters.
#[must_use]
pub fn fits(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = name.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = rest.get(at + part.len()..).unwrap_or_default();
    }
    rest.ends_with(last)
}

/// Whether a name that begins with `head` could match a pattern.
fn may_fit(pattern: &str, head: &str) -> bool {
    let start = pattern.split('*').next().unwrap_or_default();
    start.starts_with(head) || head.starts_with(start)
}

/// A sentence with the most similar field names; `None` if there are none.
#[must_use]
pub fn suggestion(name: &str) -> Option<String> {
    let inside = below(name);
    let near: Vec<&str> = if inside.is_empty() { like(name) } else { inside };
    match near.get(..OFFERED_MAX.min(near.len())) {
        None | Some([]) => None,
        Some(offered) => Some(format!("There is {}.", offered.join(", "))),
    }
}

fn like(name: &str) -> Vec<&'static str> {
    // With more than a third of the letters different it is another word. The last part of a
    // field's name counts as well.
    let limit = (name.chars().count() / 3).max(1);
    if name.len() > LENGTH_MAX {
        return Vec::new();
    }
    let names = FIELDS.iter().map(|f| f.name).chain(ALIASES.iter().map(|(old, _)| *old));
    let mut found: Vec<(usize, &str)> = Vec::new();
    for field in names.filter(|f| !f.ends_with('*')) {
        let end = field.rsplit('.').next().unwrap_or(field);
        let steps = levenshtein(name, field).min(levenshtein(name, end));
        if steps <= limit {
            found.push((steps, field));
        }
    }
    found.sort_unstable();
    found.into_iter().map(|(_, field)| field).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(name: &str) -> String {
        targets(name).iter().map(|t| format!("{} {:?}", t.name, t.kind)).collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn names_stand_for_fields() {
        for (name, wanted) in [
            ("host", "host Keyword"),
            ("hostname", "host Keyword"),
            ("sysctl.vm.swappiness", "sysctl.vm.swappiness Double"),
            ("package.zsh", "package.zsh Keyword"),
            ("kernel", ""),
            ("nothing", ""),
            ("", ""),
            ("host*", "host Keyword"),
            ("hostn*", "host Keyword"),
            ("kernel.*ed", "kernel.tainted Long"),
            (
                "*size",
                "size Long, fs.block_size Long, fs.size Long, disk.size Long, disk.logical_block_size Long, disk.physical_block_size Long, *size Keyword, *size Double",
            ),
            ("sysctl.vm.*", "sysctl.vm.* Keyword, sysctl.vm.* Double"),
            ("package.*", "package.* Keyword"),
            ("pack*", "pack* Keyword"),
            ("uid*", "uid Long"),
        ] {
            assert_eq!(names(name), wanted, "{name}");
        }
        assert!(targets("*").len() > 50);
    }

    #[test]
    fn stars_stand_for_any_characters() {
        for (pattern, name, wanted) in [
            ("*", "", true),
            ("a*", "a", true),
            ("a*b*c", "abc", true),
            ("a*b*c", "axbxbxc", true),
            ("a*b*c", "axc", false),
            ("a*a", "a", false),
            ("*a*", "bab", true),
            ("a", "ab", false),
            ("a**b", "ab", true),
        ] {
            assert_eq!(fits(pattern, name), wanted, "{pattern} {name}");
        }
    }

    #[test]
    fn what_may_have_been_meant_is_offered() {
        for (name, wanted) in [
            ("kernel", "There is kernel.release, kernel.version, kernel.machine."),
            ("filname", "There is filename."),
            ("swapiness", "-"),
            ("release", "There is kernel.release."),
            ("cpu.mitigation", "There is cpu.mitigation.*."),
            ("zzzzzz", "-"),
        ] {
            assert_eq!(suggestion(name).as_deref().unwrap_or("-"), wanted, "{name}");
        }
    }
}
