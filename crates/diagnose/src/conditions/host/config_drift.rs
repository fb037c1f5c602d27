//! A setting of the kernel was changed, and what it governs went wrong after it.
//!
//! Most changes do no harm, and most harm has other causes; so a change counts only when it went in the direction that brings
//! about a state that is now there, and came before it. Each condition says which settings feed it. A limit that is
//! reached because the load grew, with the setting as it always was, is that limit's own condition.
//!
//! How long before depends on the setting. Most act at once. What says how memory is to be reclaimed acts when memory gets
//! scarce, which may be half an hour later. A limit that was lowered acts when it is reached: there the proof is not the time
//! but that what is held against it lies at the new limit and below the old one, which would have held.
//!
//! Limits of dirty pages make somebody wait only where so many pages are dirty. A group that waits for its own pages to be
//! written, inside of reclaim, waits for its own limit and not for them.
//!
//! Of a setting that was changed several times the value counts that was in force when the state began.
//!
//! Limits of cgroups are no settings of the kernel: what happens at them has conditions of its own, which say when the
//! limit was changed. Weights of cgroups are no limits, and nobody is seen to be at one: a weight of CPU that was changed counts where
//! those that get less by it wait for a CPU. Options of a mount count where they make writes wait, and writes do wait since.

use mitra_model::report::Moment;
use mitra_model::{Change, ChangeKind, lookup};

use crate::drifts::{READ_EVERY_MAX_NS, SOON_S, change_in_words, mounts, old_value, weights};
use crate::prelude::*;
use crate::settings::{Direction, Feed, PORT_RANGE, Setting};
use crate::{changes, network};

pub const CONDITION: Condition = Condition {
    id: "config-drift",
    title: "recent configuration change",
    area: "host",
    needs: &[
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
        "mem.dirty",
        "mem.writeback",
        "vm.nr_dirty_threshold",
        "vm.nr_dirty_background_threshold",
        "task.kstack",
        "files.nr",
        "conntrack.count",
        "sock.tcp_orphan",
        "listener.backlog",
        "listener.queue",
        "cgroup.throttled_time",
        "disk.flushes",
        "disk.writes",
    ],
    needs_of: &[crate::weights::NEEDS, mounts::METRICS],
    triggers: &[Trigger::Stretches { metrics: mounts::METRICS, find: mounts::stretches }],
    observe_after: Some(observe),
    causes: &[
        explains("cpu-hog", "it gets what others got before the weight was changed"),
        explains("runqueue-saturation", "the tasks that queue got more before the weight was changed"),
        effect("runqueue-wait", "who gets less of the CPUs waits for one"),
        effect("service-slow", "its tasks get less of the CPUs, or their writes wait for the device"),
        explains("disk-hog", "each write goes to the device by itself").here(),
        effect("disk-saturated", "each write goes to the device by itself").here(),
    ],
    remedies_of: remedies,
    next: &[measure(
        "who changed it",
        "ausearch -k sysctl; journalctl --since -1h | grep -i sysctl; last configuration runs (ansible, puppet, tuned)",
    )],
    source: include_str!("config_drift.rs"),
    ..Condition::ROOT
};

/// A change of how memory is reclaimed may need so long: a choice; who asks for longer finds it among the changes.
const SCARCE_WITHIN_S: f64 = 1800.0;
/// A limit that is reached is not exceeded by much, and is counted a moment before or after: a tenth.
const AT_LIMIT: f64 = 0.9;
/// A queue is read once a second and drains in between. That one was full is counted by the kernel; whose it was is told by how
/// much of it is seen: half, as for `listen-overflow`.
const SEEN_QUEUE: f64 = 0.5;

/// What a socket was given when it began to listen stays with it.
const KEPT_BY_LISTENERS: &str = "net.core.somaxconn";

/// A setting that changed.
struct Drift {
    at: i64,
    /// When it still had the old value: it was changed somewhere between.
    not_before: i64,
    from: String,
    to: String,
    up: Option<bool>,
}

fn observe(view: &View<'_>, others: &Others<'_>) -> Observation {
    let mut is_known = false;
    let mut because = "no setting that matters here was changed".to_owned();
    let mut best: Option<(f64, Finding)> = None;
    let changes = changes::together(changes::of(view.set), view.history.changes.to_vec());
    for feed in others.feeds {
        let setting = &feed.setting;
        is_known |= view.set.get(setting.metric, "").is_some() || view.set.text(setting.metric, "").is_some();
        let drifts = drifts(&changes, view.window.until, setting.metric);
        let Some(last) = drifts.last() else { continue };
        let Some((effect, found, change)) = effect_of(view, others, feed, &drifts) else {
            let name = setting.metric.trim_start_matches("sysctl.");
            because =
                format!("{}, and what it controls is healthy", change_in_words(name, &last.from, &last.to));
            continue;
        };
        let lag = words::between(change.at, found.onset).max(0.0);
        if best.as_ref().is_some_and(|(b, _)| *b <= lag) {
            continue;
        }
        best = Some((lag, finding(view, feed, change, effect, found)));
    }
    for change in changes.iter().filter(|change| change.at.0 < view.window.until) {
        let found = weights::drifted(view, others, change).or_else(|| mounts::drifted(view, change));
        if let Some((lag, finding)) = found.filter(|(lag, _)| best.as_ref().is_none_or(|(b, _)| lag < b)) {
            best = Some((lag, finding));
        }
    }
    match best {
        Some((_, finding)) => finding.active(),
        None if is_known => Observation::Inactive(because),
        None => Observation::cannot_tell("the settings and when they changed: sysctl -a, then and now"),
    }
}

/// The changes of a setting before the end of the window, in order.
fn drifts(changes: &[Change], until: i64, setting: &str) -> Vec<Drift> {
    let is_it = |c: &&Change| {
        let name = setting.strip_prefix("sysctl.");
        c.kind == ChangeKind::Sysctl && Some(c.name.as_str()) == name && c.at.0 < until
    };
    let drift = |change: &Change| {
        let (from, to) = (change.from.clone()?, change.to.clone()?);
        let up = is_more(setting, &from, &to);
        Some(Drift { at: change.at.0, not_before: change.not_before.unwrap_or(change.at).0, from, to, up })
    };
    changes.iter().filter(is_it).filter_map(drift).collect()
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

/// How large a setting is. Of a range of ports how many there are, of several limits the last one, which holds.
fn size(setting: &str, text: &str) -> Option<f64> {
    let mut numbers = text.split_ascii_whitespace().map(|v| v.parse::<f64>().ok());
    if setting == PORT_RANGE {
        let (low, high) = (numbers.next()??, numbers.next()??);
        return Some((high - low + 1.0).max(0.0));
    }
    numbers.next_back()?
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

/// The first state that the setting feeds and that the value brought about which was in force when it began.
fn effect_of<'a, 'd>(
    view: &View<'_>,
    others: &Others<'a>,
    feed: &Feed,
    drifts: &'d [Drift],
) -> Option<(&'static str, &'a Finding, &'d Drift)> {
    let setting = &feed.setting;
    let mut first: Option<(&'static str, &Finding, &Drift)> = None;
    for id in &feed.effects {
        let Some(found) = others.active.get(id).copied() else { continue };
        let step = (found.step_s.max(1.0) * 2.0 * SECOND as f64) as i64;
        let is_before = |change: &&Drift| {
            let earliest = change.not_before.max(change.at - READ_EVERY_MAX_NS);
            found.onset >= earliest - step
        };
        let Some(change) = drifts.iter().rfind(is_before) else { continue };
        let fits = match setting.direction {
            Direction::Up => change.up == Some(true),
            Direction::Down => change.up == Some(false),
            Direction::Either => true,
        };
        let follows = fits
            && !(change.to == "0" && is_set_by_sibling(view, setting.metric))
            && words::between(change.at, found.onset) <= within_s(view, setting, change)
            && (setting.acts != Acts::AtDirtyLimit || holds_writers(view, setting, change, found));
        if follows && first.as_ref().is_none_or(|(_, f, _)| found.onset < f.onset) {
            first = Some((id, found, change));
        }
    }
    first
}

/// Whether so many pages were dirty as make writers wait by the new limit, or as the old one would not have let pile up; or
/// a writer was seen to wait at the limit, also at that of its own group. True where neither is known.
fn holds_writers(view: &View<'_>, setting: &Setting, change: &Drift, found: &Finding) -> bool {
    let since = change.at.min(found.onset);
    let span = Span { since, until: view.window.until };
    let is_held = |stack: &str| stack.contains("balance_dirty_pages");
    let stacks = view.set.each_text("task.kstack").flat_map(|(_, text)| &text.changes);
    if stacks.filter(|(t, _)| span.contains(*t)).filter_map(|(_, stack)| stack.as_deref()).any(is_held) {
        return true;
    }
    let Some(dirty) = view.system_sum(&["mem.dirty", "mem.writeback"]).and_then(|s| s.within(span).max())
    else {
        return true;
    };
    // The setting may have been put back since; and the limits follow what memory there is.
    let limit = |metric: &str| {
        let pages = view.set.system(metric)?;
        let pages = if change.up == Some(true) { pages.max(span) } else { pages.min(span) };
        pages.map(|pages| pages * view.page_bytes())
    };
    let (wait, begin) = (limit("vm.nr_dirty_threshold"), limit("vm.nr_dirty_background_threshold"));
    let old = size(setting.metric, &change.from).zip(size(setting.metric, &change.to));
    let level = match (change.up, old) {
        // As a share of what may be dirty now the old limit was so much.
        (Some(true), Some((from, to))) => {
            let now = if setting.metric.contains("background") { begin } else { wait };
            now.map(|now| now * from / to)
        }
        // Below the middle of both limits nobody is made to wait (`dirty_freerun_ceiling` of mm/page-writeback.c).
        _ => wait.zip(begin).map(|(wait, begin)| (wait + begin) / 2.0),
    };
    level.is_none_or(|level| dirty >= AT_LIMIT * level)
}

/// How long after a change its effect may begin.
fn within_s(view: &View<'_>, setting: &Setting, change: &Drift) -> f64 {
    match setting.acts {
        Acts::Now | Acts::AtDirtyLimit => SOON_S,
        Acts::WhenScarce => SCARCE_WITHIN_S,
        Acts::AtLevel(_) | Acts::ForListeners if is_between(view, setting, change) => {
            changes::BACK_NS as f64 / SECOND as f64
        }
        Acts::AtLevel(_) | Acts::ForListeners => SOON_S,
    }
}

/// Whether what is held against a limit lies at the new one, and the old one would have held it.
fn is_between(view: &View<'_>, setting: &Setting, change: &Drift) -> bool {
    let (Some(from), Some(to)) = (size(setting.metric, &change.from), size(setting.metric, &change.to))
    else {
        return false;
    };
    match setting.acts {
        Acts::AtLevel(metric) => {
            let peak = view.set.system(metric).and_then(|s| s.max(view.window));
            peak.is_some_and(|peak| peak >= AT_LIMIT * to && peak < AT_LIMIT * from)
        }
        // Who listened before has kept the old limit, and who asked for less never felt it.
        // A network namespace has a setting of its own, which is not known.
        Acts::ForListeners => view.each("listener.backlog").any(|(socket, backlog)| {
            if network::device(socket).1.name.is_some() {
                return false;
            }
            let queue = view.set.get("listener.queue", socket).and_then(|s| s.max(view.window));
            backlog.max(view.window) == Some(to)
                && to < from
                && queue.is_some_and(|queue| queue >= SEEN_QUEUE * to)
        }),
        Acts::Now | Acts::AtDirtyLimit | Acts::WhenScarce => false,
    }
}

fn finding(view: &View<'_>, feed: &'static Feed, change: &Drift, effect: &str, found: &Finding) -> Finding {
    let setting = feed.setting.metric;
    let name = setting.trim_start_matches("sysctl.");
    let lag = words::between(change.at, found.onset).max(0.0);
    // What shows much later began when it showed.
    let onset = if lag <= SOON_S { change.at.min(found.onset) } else { found.onset };
    let mut finding = view.finding_at(onset);
    finding.end = found.end;
    finding.governs = Some(&feed.effects);
    finding.seen = found.seen.or(Some(view.window));
    finding.culprit.sysctl = Some(name.to_owned());
    finding.infer_culprit();
    let at = Moment(change.at);
    finding.statement = format!(
        "{} at {at}, and {} after it {effect} began",
        change_in_words(name, &change.from, &change.to),
        words::seconds(lag)
    );
    let scale = lookup(setting).map_or(1.0, |m| m.unit.scale());
    let number = |text: &str| size(setting, text).map(|n| n * scale);
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
    // That one came right after the other is no proof, only the best sign there is; that the old limit would have held is.
    finding.confidence = match lag {
        _ if is_between(view, &feed.setting, change) => 0.9,
        lag if lag <= 10.0 => 0.85,
        _ => 0.6,
    };
    finding.remarks.push(format!("{effect}: {}", found.statement));
    finding
}

fn remedies(finding: &Finding) -> Vec<Remedy> {
    if finding.culprit.sysctl.is_none() {
        return weights::remedy(finding).or_else(|| mounts::remedy(finding)).into_iter().collect();
    }
    let name = finding.culprit.sysctl.as_deref().unwrap_or("SETTING");
    let old = old_value(name, &finding.statement).unwrap_or("OLD");
    let then = if name == KEPT_BY_LISTENERS {
        ", restart the servers, since a listening socket keeps its old limit"
    } else {
        ""
    };
    vec![Remedy {
        action: format!("restore the old value of {name}{then}, and find what sets it"),
        command: format!(
            "sysctl -w {name}='{old}'; grep -rn '{name}' /etc/sysctl.conf /etc/sysctl.d /usr/lib/sysctl.d /run/sysctl.d"
        ),
        verify: "the problem that followed it ends".to_owned(),
        risk: "the change may have been deliberate".to_owned(),
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
}
