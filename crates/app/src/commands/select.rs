//! Which metrics of which things: names with `*` and `?`.

use anyhow::Result;
use mitra_model::{Entity, Metric, columns};

use crate::cli::SelectArgs;
use crate::errors::usage;

/// Whether a name fits a pattern, in which `*` stands for any text and `?` for one character.
#[must_use]
pub fn glob(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut p, mut n) = (0, 0);
    // Where to go on when it does not fit: the last star, and how much of the name it has taken.
    let mut retry: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some('*') => {
                retry = Some((p, n));
                p += 1;
            }
            Some(c) if *c == '?' || *c == name[n] => {
                p += 1;
                n += 1;
            }
            _ => {
                let Some((star, taken)) = retry else { return false };
                retry = Some((star, taken + 1));
                p = star + 1;
                n = taken + 1;
            }
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

/// The metrics that were named; all of them when none was.
pub fn metrics(args: &SelectArgs) -> Result<Vec<&'static Metric>> {
    let mut entities = Vec::new();
    for name in &args.entity {
        let known = || Entity::ALL.map(Entity::name).join(", ");
        let entity = Entity::from_name(name)
            .ok_or_else(|| usage(format!("'{name}' is no kind of thing; there are {}", known())))?;
        entities.push(entity);
    }
    for name in &args.metric {
        if !all().any(|m| glob(name, m.name)) {
            return Err(usage(format!("no metric is called '{name}'; see: mitra metrics")));
        }
    }
    let wanted = |m: &&'static Metric| {
        (args.metric.is_empty() || args.metric.iter().any(|name| glob(name, m.name)))
            && (entities.is_empty() || entities.contains(&m.entity))
    };
    let list: Vec<&'static Metric> = all().filter(wanted).collect();
    if list.is_empty() {
        return Err(usage(format!(
            "no metric of {} is called {}",
            args.entity.join(" or "),
            args.metric.join(" or ")
        )));
    }
    Ok(list)
}

fn all() -> impl Iterator<Item = &'static Metric> {
    Entity::ALL.into_iter().flat_map(|entity| columns(entity).iter().copied())
}

/// Whether a thing was asked for. A task, `4242@81230000000`, goes by its thread id too.
#[must_use]
pub fn row(args: &SelectArgs, name: &str) -> bool {
    let short = name.split_once('@').map_or(name, |(id, _)| id);
    args.row.is_empty() || args.row.iter().any(|pattern| glob(pattern, name) || glob(pattern, short))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (pattern, name) in
            [("*", ""), ("mem.*", "mem.free"), ("*.p?scan*", "vm.pgscan_kswapd"), ("a*b*c", "aXbYbc")]
        {
            assert!(glob(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [("", "a"), ("mem.?", "mem.free"), ("a*b", "abc"), ("mem", "mem.free")] {
            assert!(!glob(pattern, name), "{pattern} {name}");
        }
    }

    #[test]
    fn a_pattern_of_stars_does_not_take_for_ever() {
        assert!(!glob(&"*a".repeat(40), &"a".repeat(30)));
    }

    fn args(metric: &[&str], entity: &[&str], rows: &[&str]) -> SelectArgs {
        let own = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect();
        SelectArgs { metric: own(metric), entity: own(entity), row: own(rows) }
    }

    #[test]
    fn what_is_selected() {
        let names: Vec<_> =
            metrics(&args(&["*cpu_time"], &["task"], &[])).unwrap().iter().map(|m| m.name).collect();
        assert_eq!(names, ["task.cpu_time"]);
        assert!(metrics(&args(&["mem.fre"], &[], &[])).is_err());
        assert!(metrics(&args(&[], &["planet"], &[])).is_err());
        assert!(metrics(&args(&["mem.*"], &["disk"], &[])).is_err());
        assert!(row(&args(&[], &[], &["42"]), "42@7") && !row(&args(&[], &[], &["4"]), "42@7"));
        assert!(row(&args(&[], &[], &[]), "") && row(&args(&[], &[], &["/sys*"]), "/system.slice"));
    }
}
