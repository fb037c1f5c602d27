//! What HAProxy and PHP-FPM say of their own sessions and workers.

use mitra_model::Span;

use super::Servers;
use crate::view::View;
use crate::words;

/// What this module reads.
pub const POOLS: &[&str] = &["pool.used", "pool.max", "pool.queue", "pool.pid"];
/// As many are named.
const NAMED_MAX: usize = 3;

/// Those of a service that were at their limit or kept somebody waiting, in words: first where most wait.
#[must_use]
pub fn full(view: &View<'_>, servers: &Servers<'_, '_>, span: Span) -> Vec<String> {
    let most = |metric: &str, row: &str| view.set.get(metric, row).and_then(|series| series.max(span));
    let last = |metric: &str, row: &str| view.set.get(metric, row).and_then(|series| series.last(span));
    let is_own = |row: &str| {
        let pid = view.set.get("pool.pid", row).and_then(|pid| pid.last(span)).map(|pid| pid as u32);
        let has = |of: Option<u32>| of.is_some() && of == pid;
        has(servers.pid) || servers.processes.iter().any(|p| has(Some(p.pid)) || has(p.ppid))
    };
    let mut full: Vec<(f64, String)> = Vec::new();
    for (row, _) in view.each("pool.used").filter(|(row, _)| is_own(row)) {
        let (Some(used), name) = (most("pool.used", row), row.split_once(':').map_or(row, |(_, name)| name))
        else {
            continue;
        };
        // It may have been lowered in that moment.
        let (max, queue) = (last("pool.max", row), most("pool.queue", row).unwrap_or(0.0));
        if queue < 1.0 && max.is_none_or(|max| used < max) {
            continue;
        }
        // PHP-FPM has pools, HAProxy all else.
        let is_pool = !name.contains('/') && name != "process";
        let (what, setting) =
            if is_pool { ("workers busy", "pm.max_children") } else { ("sessions", "maxconn") };
        let used = words::count(max.map_or(used, |max| used.min(max)));
        let first = view.set.get("pool.max", row).and_then(|series| series.first(Span::ALL));
        let was = first.filter(|first| max.is_some_and(|max| max != *first));
        let was = was.map(|was| format!(", {} before", words::count(was))).unwrap_or_default();
        let has = match max {
            Some(max) => format!("{used} of its {} {what} ({setting}{was})", words::count(max)),
            None => format!("{used} {what}"),
        };
        let waits =
            if queue >= 1.0 { format!(", and {} wait for it", words::count(queue)) } else { String::new() };
        full.push((queue, format!("by its own count {name} has {has}{waits}")));
    }
    full.sort_by(|(a, _), (b, _)| b.total_cmp(a));
    full.into_iter().map(|(_, text)| text).take(NAMED_MAX).collect()
}
