//! A setting of the kernel was changed, and what it governs went wrong right after.
//!
//! Most changes do no harm, and most harm has other causes; so a change counts only when it went in the direction that brings
//! about a state that is now there, and came before it. The table below says which setting feeds which state. A limit that is
//! reached because the load grew, with the setting as it always was, is that limit's own condition.

use mitra_model::report::{Evidence, Moment, Next, Remedy};
use mitra_model::time::SECOND;
use mitra_model::{Span, lookup};

use crate::condition::{Condition, Finding, Observation, Role};
use crate::view::View;
use crate::words;

/// The condition.
pub const CONDITION: Condition = Condition {
    id: "config-drift",
    title: "a setting was changed right before",
    role: Role::Root,
    area: "host",
    needs: NEEDS,
    observe,
    remedies,
    next,
    source: include_str!("config_drift.rs"),
};

const NEEDS: &[&str] = &[
    "sysctl.vm.dirty_ratio",
    "sysctl.vm.dirty_background_ratio",
    "sysctl.vm.dirty_bytes",
    "sysctl.vm.dirty_background_bytes",
    "sysctl.vm.swappiness",
    "sysctl.vm.min_free_kbytes",
    "sysctl.vm.watermark_scale_factor",
    "sysctl.vm.vfs_cache_pressure",
    "sysctl.vm.nr_hugepages",
    "sysctl.vm.zone_reclaim_mode",
    "sysctl.vm.compaction_proactiveness",
    "sysctl.fs.file-max",
    "sysctl.net.ipv4.tcp_max_orphans",
    "sysctl.net.ipv4.tcp_mem",
    "sysctl.net.core.somaxconn",
    "sysctl.net.netfilter.nf_conntrack_max",
    PORT_RANGE,
];

/// Two ports. What counts is how many lie between them.
const PORT_RANGE: &str = "sysctl.net.ipv4.ip_local_port_range";

/// Which way a setting has to go to do its harm.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    Up,
    Down,
    /// To anything else.
    Either,
}

/// A setting and a state that it can bring about.
struct Feeds {
    setting: &'static str,
    way: Way,
    effects: &'static [&'static str],
}

const fn feeds(setting: &'static str, way: Way, effects: &'static [&'static str]) -> Feeds {
    Feeds { setting, way, effects }
}

/// Writers are made to wait at the limit of dirty pages; the smaller it is the sooner. A limit in bytes that was 0 did not hold.
const DIRTY: &[&str] = &["dirty-writeback-stall", "tasks-in-d-state", "pressure-io"];
/// Memory that the kernel keeps free is taken from the page cache.
const KEPT_FREE: &[&str] = &[
    "free-memory-low",
    "kswapd-scanning",
    "direct-reclaim",
    "page-cache-eviction",
    "mass-reclaim",
    "refaults",
    "page-cache-thrash",
];

static TABLE: &[Feeds] = &[
    feeds("sysctl.vm.dirty_ratio", Way::Down, DIRTY),
    feeds("sysctl.vm.dirty_background_ratio", Way::Either, DIRTY),
    feeds("sysctl.vm.dirty_bytes", Way::Either, DIRTY),
    feeds("sysctl.vm.dirty_background_bytes", Way::Either, DIRTY),
    feeds("sysctl.vm.swappiness", Way::Up, &["swap-thrash"]),
    feeds("sysctl.vm.min_free_kbytes", Way::Up, KEPT_FREE),
    feeds("sysctl.vm.watermark_scale_factor", Way::Up, KEPT_FREE),
    feeds("sysctl.vm.nr_hugepages", Way::Up, KEPT_FREE),
    feeds("sysctl.vm.zone_reclaim_mode", Way::Up, &["direct-reclaim", "page-cache-eviction", "refaults"]),
    feeds("sysctl.vm.compaction_proactiveness", Way::Up, &["compaction-stall"]),
    feeds("sysctl.vm.vfs_cache_pressure", Way::Down, &["slab-dentry-bloat", "slab-inode-bloat"]),
    feeds("sysctl.fs.file-max", Way::Down, &["fd-exhaustion"]),
    feeds("sysctl.net.ipv4.tcp_max_orphans", Way::Down, &["tcp-orphan-pressure"]),
    feeds("sysctl.net.ipv4.tcp_mem", Way::Down, &["tcp-memory-pressure"]),
    feeds("sysctl.net.core.somaxconn", Way::Down, &["listen-overflow"]),
    feeds("sysctl.net.netfilter.nf_conntrack_max", Way::Down, &["conntrack-full"]),
    feeds(PORT_RANGE, Way::Down, &["port-exhaustion"]),
];

/// A change may need so long until its effect is seen: a limit is reached, a cache is shrunk.
const EFFECT_WITHIN_S: f64 = 60.0;

/// Where a setting is read more seldom than this, its change cannot be put in order with what it may have done.
const READ_EVERY_MAX_NS: i64 = 10 * SECOND;

/// A setting that changed.
struct Change {
    at: i64,
    /// When it still had the old value: it was changed somewhere between.
    not_before: i64,
    from: String,
    to: String,
    up: Option<bool>,
}

fn observe(view: &View<'_>) -> Observation {
    let mut is_known = false;
    let mut because = "no setting that matters here was changed".to_owned();
    let mut best: Option<(f64, Finding)> = None;
    for row in TABLE {
        is_known |= view.set.get(row.setting, "").is_some() || view.set.text(row.setting, "").is_some();
        let Some(change) = last_change(view, row.setting) else { continue };
        if change.to == "0" && is_set_by_sibling(view, row.setting) {
            continue;
        }
        let fits = match row.way {
            Way::Up => change.up == Some(true),
            Way::Down => change.up == Some(false),
            Way::Either => true,
        };
        let name = row.setting.trim_start_matches("sysctl.");
        let Some((effect, found)) = fits.then(|| effect_of(view, row, &change)).flatten() else {
            because =
                format!("{}, and what it governs is well", change_in_words(name, &change.from, &change.to));
            continue;
        };
        let lag = words::between(change.at, found.onset).max(0.0);
        if best.as_ref().is_some_and(|(b, _)| *b <= lag) {
            continue;
        }
        best = Some((lag, finding(view, row, &change, effect, &found)));
    }
    match best {
        Some((_, finding)) => Observation::Active(Box::new(finding)),
        None if is_known => Observation::Inactive(because),
        None => Observation::CannotTell(
            "the settings and since when they have their values: sysctl -a, of then and now".to_owned(),
        ),
    }
}

/// The last change of a setting before the end of the window.
fn last_change(view: &View<'_>, setting: &str) -> Option<Change> {
    let known = Span { since: i64::MIN, until: view.window.until };
    if let Some(series) = view.set.get(setting, "") {
        let samples: Vec<(i64, f64)> = series.samples(known).map(|(t, _, v)| (t, v)).collect();
        let pair = samples.windows(2).rev().find(|w| w[0].1 != w[1].1)?;
        let (from, to) = (pair[0].1, pair[1].1);
        return Some(Change {
            at: pair[1].0,
            not_before: pair[0].0,
            from: exact(from),
            to: exact(to),
            up: Some(to > from),
        });
    }
    let text = view.set.text(setting, "")?;
    let list: Vec<(i64, &str)> = text.changes.iter().filter_map(|(t, v)| Some((*t, v.as_deref()?))).collect();
    let pair = list.windows(2).rev().find(|w| w[0].1 != w[1].1 && w[1].0 < view.window.until)?;
    let (from, to) = (words_of(pair[0].1), words_of(pair[1].1));
    let up = is_more(setting, &from, &to);
    Some(Change { at: pair[1].0, not_before: pair[1].0, from, to, up })
}

/// Whether a setting grew; `None` where it is as large as before. Of several limits the last one decides, or else all of them.
fn is_more(setting: &str, from: &str, to: &str) -> Option<bool> {
    let all = |text: &str| text.split_ascii_whitespace().map(|v| v.parse::<f64>().ok()).sum::<Option<f64>>();
    let by_size = size(setting, to)?.partial_cmp(&size(setting, from)?)?;
    let order = match by_size.is_eq() && setting != PORT_RANGE {
        true => all(to)?.partial_cmp(&all(from)?)?,
        false => by_size,
    };
    order.is_ne().then(|| order.is_gt())
}

/// A setting of several numbers as one would write it.
fn words_of(text: &str) -> String {
    text.split_ascii_whitespace().collect::<Vec<_>>().join(" ")
}

/// How large a setting is. Of a range of ports how many there are, of several limits the last one, which holds.
fn size(setting: &str, text: &str) -> Option<f64> {
    let mut numbers = text.split_ascii_whitespace().map(|v| v.parse::<f64>().ok());
    if setting == PORT_RANGE {
        let (low, high) = (numbers.next()??, numbers.next()??);
        return Some((high - low + 1.0).max(0.0));
    }
    numbers.next_back()?
}

/// What was changed, in words from which [`old_value`] has the old value again: a remedy sees nothing but the finding, and a
/// number of its evidence is not all of a setting.
fn change_in_words(name: &str, from: &str, to: &str) -> String {
    format!("{name} was changed from {from} to {to}")
}

/// The old value out of a statement that begins with the words of a change.
fn old_value<'a>(name: &str, statement: &'a str) -> Option<&'a str> {
    let rest = statement.strip_prefix(name)?.strip_prefix(" was changed from ")?;
    rest.split_once(" to ").map(|(from, _)| from)
}

/// Of a limit as a share and the same in bytes one holds, and the kernel sets the other one to 0.
fn is_set_by_sibling(view: &View<'_>, setting: &str) -> bool {
    const PAIRS: &[(&str, &str)] = &[
        ("sysctl.vm.dirty_ratio", "sysctl.vm.dirty_bytes"),
        ("sysctl.vm.dirty_background_ratio", "sysctl.vm.dirty_background_bytes"),
    ];
    let sibling = PAIRS.iter().find_map(|(a, b)| match setting {
        s if s == *a => Some(*b),
        s if s == *b => Some(*a),
        _ => None,
    });
    sibling.and_then(|s| view.set.get(s, "")?.last(view.window)).is_some_and(|v| v > 0.0)
}

/// A setting as `sysctl` prints it.
fn exact(value: f64) -> String {
    format!("{value}")
}

/// The first state that the setting feeds and that came after the change.
fn effect_of(view: &View<'_>, row: &Feeds, change: &Change) -> Option<(&'static str, Finding)> {
    let mut first: Option<(&'static str, Finding)> = None;
    for id in row.effects {
        let Observation::Active(found) = (super::get(id)?.observe)(view) else { continue };
        let step = (found.step_s.max(1.0) * 2.0 * SECOND as f64) as i64;
        let lag = words::between(change.at, found.onset);
        let earliest = change.not_before.max(change.at - READ_EVERY_MAX_NS);
        let follows = found.onset >= earliest - step && lag <= EFFECT_WITHIN_S;
        if follows && first.as_ref().is_none_or(|(_, f)| found.onset < f.onset) {
            first = Some((id, *found));
        }
    }
    first
}

fn finding(view: &View<'_>, row: &Feeds, change: &Change, effect: &str, found: &Finding) -> Finding {
    let setting = row.setting;
    let name = setting.trim_start_matches("sysctl.");
    let mut finding = view.finding_at(change.at.min(found.onset));
    finding.end = found.end;
    finding.governs = Some(row.effects);
    finding.seen = found.seen.or(Some(view.window));
    finding.culprit.sysctl = Some(name.to_owned());
    let lag = words::between(change.at, found.onset).max(0.0);
    let at = Moment(change.at);
    finding.statement = format!(
        "{} at {at}, and {} after it {effect} began",
        change_in_words(name, &change.from, &change.to),
        words::seconds(lag)
    );
    let number = |text: &str| size(setting, text);
    finding.evidence.push(Evidence {
        metric: setting.to_owned(),
        before: number(&change.from),
        during: number(&change.to).unwrap_or(f64::NAN),
        unit: lookup(setting).map(|m| m.unit.label().to_owned()).unwrap_or_default(),
        ..Evidence::default()
    });
    finding.evidence.retain(|e| e.during.is_finite());
    finding.evidence.extend(found.evidence.iter().take(4).cloned());
    finding.loss_s = found.loss_s;
    // That one came right after the other is no proof, only the best sign there is.
    finding.confidence = if lag <= 10.0 { 0.85 } else { 0.6 };
    finding.remarks.push(format!("{effect}: {}", found.statement));
    finding
}

fn remedies(finding: &Finding) -> Vec<Remedy> {
    let name = finding.culprit.sysctl.as_deref().unwrap_or("SETTING");
    let old = old_value(name, &finding.statement).unwrap_or("OLD");
    vec![Remedy {
        action: format!("set {name} back to what it was, and find what sets it"),
        command: format!(
            "sysctl -w {name}='{old}'; grep -rn '{name}' /etc/sysctl.conf /etc/sysctl.d /usr/lib/sysctl.d /run/sysctl.d"
        ),
        verify: "the state that followed it ends".to_owned(),
        risk: "whoever set it may have had a reason".to_owned(),
    }]
}

fn next(_: &Finding) -> Vec<Next> {
    vec![Next {
        measure: "who changed it".to_owned(),
        command: "ausearch -k sysctl; journalctl --since -1h | grep -i sysctl; last configuration runs (ansible, puppet, tuned)".to_owned(),
    }]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_of_ports_is_as_large_as_it_is_wide() {
        let size = |text: &str| size(PORT_RANGE, text);
        assert_eq!(size("32768\t60999"), Some(28_232.0));
        assert!(size("1024 60000") > size("32768 60999"), "its end fell, and there are more");
        assert!(size("40000 65535") < size("1024 65535"));
        assert_eq!(size("60999"), None);
        assert_eq!(super::size("sysctl.net.ipv4.tcp_mem", "1 2 3"), Some(3.0));
        assert_eq!(is_more(PORT_RANGE, "32768 60999", "1024 60000"), Some(true));
        assert_eq!(is_more(PORT_RANGE, "32768 60999", "32767 60998"), None);
        assert_eq!(is_more("sysctl.net.ipv4.tcp_mem", "10 20 30", "5 9 30"), Some(false));
    }

    #[test]
    fn a_remedy_writes_back_all_of_what_was_there() {
        let statement = change_in_words("net.ipv4.tcp_mem", "380000 507000 760000", "1000 1500 2000");
        let finding = Finding {
            culprit: mitra_model::report::Culprit {
                sysctl: Some("net.ipv4.tcp_mem".to_owned()),
                ..Default::default()
            },
            statement: format!("{statement} at noon, and it hurt"),
            ..Finding::default()
        };
        let command = &remedies(&finding)[0].command;
        assert!(command.contains("net.ipv4.tcp_mem='380000 507000 760000'"), "{command}");
    }

    #[test]
    fn every_effect_is_a_condition_with_an_edge() {
        for row in TABLE {
            assert!(NEEDS.contains(&row.setting), "{} is not asked for", row.setting);
            for effect in row.effects {
                assert!(crate::conditions::get(effect).is_some(), "{effect} is no condition");
                let has_edge =
                    crate::graph::edges().iter().any(|e| e.cause == "config-drift" && e.effect == *effect);
                assert!(has_edge, "no edge to {effect}");
            }
        }
    }
}
