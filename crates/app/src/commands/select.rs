//! Selection of metrics and rows by names with `*` and `?`.

use std::sync::Arc;

use anyhow::Result;
use mitra_archive::RowFilter;
use mitra_model::{Entity, Metric};

use super::similar;
use crate::cli::SelectArgs;
use crate::errors::usage;
use crate::recording::all_metrics;

/// Whether a name matches a pattern of `*` (any text) and `?` (one character).
pub fn glob(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut p, mut n) = (0, 0);
    // Where to go on after a mismatch: the last star, and how much of the name it has taken.
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

/// An error for a name that no metric has.
pub fn check_names(names: &[String]) -> Result<()> {
    for name in names {
        if !all_metrics().any(|m| glob(name, m.name)) {
            let hint = similar::hint(name, all_metrics().map(|m| m.name), "mitra metrics");
            return Err(usage(format!("no metric is called '{name}'{hint}")));
        }
    }
    Ok(())
}

/// The selected metrics; without a selection all of them.
pub fn metrics(args: &SelectArgs) -> Result<Vec<&'static Metric>> {
    let mut entities = Vec::new();
    for name in &args.entity {
        let known = || Entity::ALL.map(Entity::name).join(", ");
        let entity = Entity::from_name(name)
            .ok_or_else(|| usage(format!("'{name}' is no kind of thing; there are {}", known())))?;
        entities.push(entity);
    }
    check_names(&args.metric)?;
    let wanted = |m: &&'static Metric| {
        (args.metric.is_empty() || args.metric.iter().any(|name| glob(name, m.name)))
            && (entities.is_empty() || entities.contains(&m.entity))
    };
    let list: Vec<&'static Metric> = all_metrics().filter(wanted).collect();
    if list.is_empty() {
        return Err(usage(format!(
            "no metric of {} is called {}",
            args.entity.join(" or "),
            args.metric.join(" or ")
        )));
    }
    Ok(list)
}

/// Reads the selected rows only; `None` if all are selected.
pub fn row_filter(args: &SelectArgs) -> Option<RowFilter> {
    let args = args.clone();
    (!args.row.is_empty()).then(|| -> RowFilter { Arc::new(move |_, name| row(&args, name)) })
}

/// Whether a row is selected. A task, `4242@81230000000`, is also selected by its thread id.
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
