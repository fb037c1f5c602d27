//! What was changed on the machine before it went wrong: settings of the kernel and limits of cgroups as the recording
//! has them, and whatever else is known from elsewhere.
//!
//! A change is listed beside an incident because somebody will ask for it, not because it must be the cause: what it did is
//! told by `config-drift` and by the remarks of the root.

use std::collections::BTreeMap;

use mitra_model::report::Moment;
use mitra_model::time::SECOND;
use mitra_model::{
    Change, ChangeKind, Entity, Metric, ScheduledJob, Series, SeriesSet, Span, TextSeries, lookup,
};

use crate::condition::Condition;
use crate::settings::Setting;
use crate::words;

/// How far back a change may lie to be listed with an incident: people ask what was done today.
pub const BACK_NS: i64 = 86_400 * SECOND;
/// More is not read.
pub const LISTED_MAX: usize = 20;
/// Of one setting the last so many.
const PER_SETTING_MAX: usize = 8;
/// Two that notice the same change see it so far apart at most: the recorder reads settings every few seconds, the index
/// once a minute.
const SAME_WITHIN_NS: i64 = 120 * SECOND;

/// Limits of cgroups, and the files that hold them.
const LIMITS: [(&str, &str); 9] = [
    ("cgroup.memory_max", "memory.max"),
    ("cgroup.memory_high", "memory.high"),
    ("cgroup.swap_max", "memory.swap.max"),
    ("cgroup.cpu_quota", "cpu.max"),
    ("cgroup.pids_max", "pids.max"),
    ("cgroup.io_limit_rbps", "io.max rbps"),
    ("cgroup.io_limit_wbps", "io.max wbps"),
    ("cgroup.io_limit_riops", "io.max riops"),
    ("cgroup.io_limit_wiops", "io.max wiops"),
];
/// What a group gets of the CPUs beside others, and the files that hold it: each group has it from the beginning. A group that is made
/// idle gets the least weight too, so that comes first.
pub(crate) const WEIGHTS: [(&str, &str); 3] = [
    ("cgroup.cpu_idle", "cpu.idle"),
    ("cgroup.cpu_weight", "cpu.weight"),
    ("cgroup.cpu_shares", "cpu.shares"),
];
/// By this a group is known to be there while it has no limit.
const PRESENCE: &str = "cgroup.cpu_usage";
/// How a file system is mounted.
pub(crate) const MOUNT_OPTIONS: &str = "fs.options";
/// Counts what is there; nobody sets it.
const NO_SETTINGS: &[&str] = &["sysctl.net.netfilter.nf_conntrack_count"];

/// The settings of the kernel that are looked at.
#[must_use]
pub fn settings() -> Vec<&'static Metric> {
    let system = mitra_model::columns(Entity::System).iter().copied();
    system.filter(|m| m.name.starts_with("sysctl.") && !NO_SETTINGS.contains(&m.name)).collect()
}

/// The limits and weights of cgroups that are looked at, and the options of mounts.
#[must_use]
pub fn limits() -> Vec<&'static Metric> {
    let of_groups = LIMITS.iter().chain(&WEIGHTS).map(|(name, _)| *name);
    of_groups.chain([PRESENCE, MOUNT_OPTIONS]).filter_map(lookup).collect()
}

/// What is known of a machine beside its numbers: what was changed in a window and in the day before it, and what was due.
#[derive(Debug, Clone, Copy, Default)]
pub struct History<'a> {
    /// The changes, ordered by time.
    pub changes: &'a [Change],
    /// From when on no change of a setting went unnoticed; `None` where that is not known.
    pub since: Option<i64>,
    /// What was due by crontabs and timers.
    pub scheduled_jobs: &'a [ScheduledJob],
}

/// One step of a series that stands still most of the time, in base units.
struct Step {
    at: i64,
    not_before: i64,
    from: Option<f64>,
    to: Option<f64>,
}

/// Every change in a set, ordered by time.
#[must_use]
pub fn of(set: &SeriesSet) -> Vec<Change> {
    let mut all = Vec::new();
    for metric in settings() {
        let name = metric.name.trim_start_matches("sysctl.");
        let change = |at: i64, not_before: i64, from: Option<String>, to: Option<String>| Change {
            at: Moment(at),
            not_before: Some(Moment(not_before)),
            kind: ChangeKind::Sysctl,
            name: name.to_owned(),
            cgroup: None,
            cgroup_name: None,
            from,
            to,
            diff: None,
            source: "recording",
        };
        if let Some(series) = set.get(metric.name, "") {
            let written = |v: Option<f64>| v.map(|v| written(metric, v));
            all.extend(
                steps(series).into_iter().map(|s| change(s.at, s.not_before, written(s.from), written(s.to))),
            );
        }
        let Some(text) = set.text(metric.name, "") else { continue };
        let moved =
            |(at, from, to): TextStep<'_>| change(at, from.0, Some(one_line(from.1)), Some(one_line(to)));
        all.extend(text_steps(text).into_iter().map(moved));
    }
    all.extend(of_mounts(set));
    for (metric, file) in LIMITS.into_iter().chain(WEIGHTS) {
        let Some(row) = lookup(metric) else { continue };
        let is_weight = WEIGHTS.contains(&(metric, file));
        for (group, series) in set.each(metric) {
            let mut list = steps(series);
            if is_weight {
                list.retain(|step| !is_being_made(set, series, step));
            } else {
                list.extend(first_limit(set, group, series));
            }
            let written = |v: Option<f64>| v.map(|v| written(row, v));
            all.extend(list.into_iter().map(|s| Change {
                at: Moment(s.at),
                not_before: Some(Moment(s.not_before)),
                kind: ChangeKind::Cgroup,
                name: file.to_owned(),
                cgroup: Some(group.to_owned()),
                cgroup_name: None,
                from: written(s.from),
                to: written(s.to),
                diff: None,
                source: "recording",
            }));
        }
    }
    all.sort_by_key(|c| c.at);
    all
}

/// When a text changed, since when it had been the old one and what that was, and the new one.
type TextStep<'a> = (i64, (i64, &'a str), &'a str);

/// The last steps of a text that stands still most of the time, the last one first.
fn text_steps(text: &TextSeries) -> Vec<TextStep<'_>> {
    let known: Vec<(i64, &str)> =
        text.changes.iter().filter_map(|(t, v)| Some((*t, v.as_deref()?))).collect();
    let pairs = known.windows(2).rev().filter(|w| w[0].1 != w[1].1).take(PER_SETTING_MAX);
    pairs.map(|w| (w[1].0, w[0], w[1].1)).collect()
}

/// The changes of options of mounts.
pub(crate) fn of_mounts(set: &SeriesSet) -> Vec<Change> {
    let steps = set.each_text(MOUNT_OPTIONS).flat_map(|(mount, text)| {
        text_steps(text).into_iter().filter_map(move |step| remounted(mount, step))
    });
    steps.collect()
}

/// A mount that got other options: those that went and those that came. What was put in place of it is not that mount.
fn remounted(mount: &str, (at, (since, from), to): TextStep<'_>) -> Option<Change> {
    let without = |these: &str, others: &str| -> Vec<String> {
        let has = |option: &&str| !others.split(',').any(|other| other == *option);
        these.split(',').filter(has).map(str::to_owned).collect()
    };
    let (gone, new) = (without(from, to), without(to, from));
    let list = |options: Vec<String>| if options.is_empty() { "-".to_owned() } else { options.join(",") };
    (!gone.is_empty() || !new.is_empty()).then(|| Change {
        at: Moment(at),
        not_before: Some(Moment(since)),
        kind: ChangeKind::Mount,
        name: format!("{OPTIONS_OF}{mount}"),
        cgroup: None,
        cgroup_name: None,
        from: Some(list(gone)),
        to: Some(list(new)),
        diff: None,
        source: "recording",
    })
}

/// How the name of a change of mount options begins.
pub(crate) const OPTIONS_OF: &str = "mount options of ";

/// A group is made before it gets its limits, by the same program: that is no change.
const MAKING_NS: i64 = 10 * SECOND;

/// Whether a group got its weight when it was made. One that was there when the recording began had been made before.
fn is_being_made(set: &SeriesSet, series: &Series, step: &Step) -> bool {
    let Some((since, ..)) = series.samples(Span::ALL).next() else { return false };
    let is_new = set.span().is_some_and(|known| since > known.since + MAKING_NS);
    is_new && step.at - since <= MAKING_NS
}

/// The last steps of a series that stands still most of the time.
fn steps(series: &Series) -> Vec<Step> {
    let mut found: Vec<Step> = Vec::new();
    let mut last: Option<(i64, f64)> = None;
    for (t, _, value) in series.samples(Span::ALL) {
        if let Some((before, was)) = last.filter(|(_, was)| *was != value) {
            if found.len() == PER_SETTING_MAX {
                found.remove(0);
            }
            found.push(Step { at: t, not_before: before, from: Some(was), to: Some(value) });
        }
        last = Some((t, value));
    }
    found
}

/// A limit that a group did not have while it was there already.
fn first_limit(set: &SeriesSet, group: &str, series: &Series) -> Option<Step> {
    let (at, _, to) = series.samples(Span::ALL).next()?;
    let there = set.get(PRESENCE, group)?;
    let (since, ..) = there.samples(Span::ALL).next()?;
    let not_before = there.samples(Span { since, until: at }).last()?.0;
    (at - since > MAKING_NS).then_some(Step { at, not_before, from: None, to: Some(to) })
}

/// A setting as its file has it: the kernel's own unit.
fn written(metric: &Metric, value: f64) -> String {
    let raw = value / metric.unit.scale();
    let whole = raw.round();
    // Scaling and back is not exact.
    let is_whole = (raw - whole).abs() <= 1e-6 * whole.abs().max(1.0);
    format!("{}", if is_whole { whole } else { raw })
}

/// A setting of several numbers as one would write it.
fn one_line(text: &str) -> String {
    text.split_ascii_whitespace().collect::<Vec<_>>().join(" ")
}

/// Leaves the last changes of each setting and limit, of changes in order: one that something tunes all day says no more by
/// being there a thousand times.
pub fn keep_last(changes: &mut Vec<Change>) {
    let mut later: BTreeMap<(ChangeKind, &str, Option<&str>), usize> = BTreeMap::new();
    let mut kept: Vec<bool> = Vec::with_capacity(changes.len());
    for c in changes.iter().rev() {
        let count = later.entry((c.kind, c.name.as_str(), c.cgroup.as_deref())).or_default();
        *count += 1;
        kept.push(*count <= PER_SETTING_MAX);
    }
    changes.retain(|_| kept.pop().unwrap_or(true));
}

/// Whether a change is one of a setting that can bring about a condition.
pub(crate) fn is_fed_by(condition: &Condition, change: &Change) -> bool {
    let is_it =
        |setting: &Setting| setting.metric.strip_prefix("sysctl.").is_some_and(|name| name == change.name);
    change.kind == ChangeKind::Sysctl && condition.settings.list.iter().any(is_it)
}

/// Whether a change is one of a limit that a condition says was reached: of the cgroup, or of one above it.
pub(crate) fn is_reached(change: &Change, condition: &Condition, group: Option<&str>) -> bool {
    let (Some(of), Some(group)) = (change.cgroup.as_deref(), group) else { return false };
    let is_above =
        group.strip_prefix(of).is_some_and(|rest| rest.is_empty() || rest.starts_with('/') || of == "/");
    is_above && condition.cgroup_limit.is_some_and(|files| change.name.starts_with(files))
}

/// What is known of a setting that is named as the culprit, or of the limit that a cgroup was held at: since when it is
/// what it is.
pub(crate) fn remark(
    history: History<'_>,
    condition: &Condition,
    culprit: &mitra_model::report::Culprit,
    onset: i64,
) -> Option<String> {
    let is_meant = |c: &&Change| match culprit.sysctl.as_deref() {
        Some(name) => c.kind == ChangeKind::Sysctl && c.name == name,
        None => is_reached(c, condition, culprit.cgroup.as_deref()),
    };
    let last = history.changes.iter().filter(|c| c.at.0 <= onset.saturating_add(SECOND)).rfind(is_meant);
    if let Some(last) = last {
        let ago = words::seconds(words::between(last.at.0, onset).max(0.0));
        return Some(format!("{} at {}, {ago} before", last.words(), last.at));
    }
    let name = culprit.sysctl.as_deref()?;
    let known = words::between(history.since.filter(|since| *since < onset)?, onset);
    Some(format!("{name} was not changed in the {} before", words::seconds(known)))
}

/// What two witnesses saw, each change once. The one that says more exactly when wins; a recording does.
#[must_use]
pub fn together(mut recorded: Vec<Change>, others: Vec<Change>) -> Vec<Change> {
    let is_known = |recorded: &[Change], c: &Change| {
        recorded.iter().any(|r| {
            let apart = r.at.0.saturating_sub(c.at.0).saturating_abs();
            r.kind == c.kind && r.name == c.name && r.cgroup == c.cgroup && apart <= SAME_WITHIN_NS
        })
    };
    let more: Vec<Change> = others.into_iter().filter(|c| !is_known(&recorded, c)).collect();
    recorded.extend(more);
    recorded.sort_by_key(|c| c.at);
    recorded
}

/// Those that are worth listing with an incident: of the day before it and up to a moment after its onset, those that `feed` it
/// first, and the last one first.
pub(crate) fn before(
    all: &[Change],
    onset: i64,
    step_s: f64,
    feeds: impl Fn(&Change) -> bool,
) -> Vec<Change> {
    let late = onset.saturating_add((step_s.max(1.0) * SECOND as f64) as i64);
    let early = onset.saturating_sub(BACK_NS);
    let mut list: Vec<&Change> = all.iter().filter(|c| c.at.0 > early && c.at.0 <= late).collect();
    list.sort_by_cached_key(|c| (!feeds(c), std::cmp::Reverse(c.at)));
    list.into_iter().take(LISTED_MAX).cloned().collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mitra_model::Axis;

    use super::*;

    fn set(values: &[(&str, &str, &[f64])]) -> SeriesSet {
        let n = values.iter().map(|(.., v)| v.len()).max().unwrap_or(0);
        let axis = Arc::new(Axis {
            t: (1..=n as i64).map(|i| i * SECOND).collect(),
            dt: vec![1.0; n],
            places: Vec::new(),
        });
        let mut set = SeriesSet::default();
        for (metric, row, values) in values {
            let series = Series { axis: Arc::clone(&axis), start: 0, values: (*values).into() };
            set.insert(lookup(metric).unwrap(), (*row).into(), series);
        }
        set
    }

    #[test]
    fn settings_and_limits_that_move_are_changes() {
        let none = f64::NAN;
        let mut long = vec![none; 20];
        long.extend([1e6; 3]);
        let mut set = set(&[
            ("sysctl.vm.swappiness", "", &[60.0, 60.0, none, 100.0, 100.0]),
            ("sysctl.vm.min_free_kbytes", "", &[67_584.0 * 1024.0, 67_584.0 * 1024.0, 1024.0 * 1024.0]),
            ("sysctl.vm.dirty_ratio", "", &[20.0, 20.0]),
            ("cgroup.memory_max", "/a", &[1e9, 1e9, 5e8]),
            ("cgroup.memory_max", "/b", &long),
            ("cgroup.cpu_usage", "/b", &[0.1; 23]),
            ("cgroup.memory_max", "/c", &[none, none, 1e6]),
            ("cgroup.cpu_usage", "/c", &[0.1; 3]),
        ]);
        let text = |t: i64, v: &str| (t * SECOND, Some(Arc::from(v)));
        set.insert_text(
            lookup("sysctl.net.ipv4.tcp_mem").unwrap(),
            "".into(),
            TextSeries { changes: vec![text(1, "1\t2\t3"), text(4, "1\t2\t2")], place: None },
        );
        let words: Vec<String> =
            of(&set).iter().map(|c| format!("{} {}", c.at.0 / SECOND, c.words())).collect();
        assert_eq!(
            words,
            [
                "3 vm.min_free_kbytes 67584 → 1024",
                "3 memory.max of /a 1000000000 → 500000000",
                "4 vm.swappiness 60 → 100",
                "4 net.ipv4.tcp_mem 1 2 3 → 1 2 2",
                "21 memory.max of /b no limit → 1000000",
            ]
        );
    }

    #[test]
    fn weights_and_mount_options_that_move_are_changes() {
        let none = f64::NAN;
        let mut made = vec![none; 20];
        made.extend([1024.0, 1024.0, 8192.0, 8192.0]);
        let mut set = set(&[
            ("cgroup.cpu_usage", "/", &[0.1; 24]),
            ("cgroup.cpu_weight", "/a", &[100.0, 100.0, 1.0]),
            ("cgroup.cpu_idle", "/b", &[0.0, 0.0, 1.0]),
            ("cgroup.cpu_shares", "/made", &made),
        ]);
        let text = |t: i64, v: &str| (t * SECOND, Some(Arc::from(v)));
        let options = vec![text(1, "rw,relatime"), text(4, "rw,sync,relatime"), text(9, "rw,sync,relatime")];
        set.insert_text(
            lookup(MOUNT_OPTIONS).unwrap(),
            "/srv".into(),
            TextSeries { changes: options, place: None },
        );
        let words: Vec<String> =
            of(&set).iter().map(|c| format!("{} {}", c.at.0 / SECOND, c.words())).collect();
        assert_eq!(
            words,
            ["3 cpu.idle of /b 0 → 1", "3 cpu.weight of /a 100 → 1", "4 mount options of /srv - → sync"]
        );
    }

    fn change(at_s: i64, name: &str) -> Change {
        Change {
            at: Moment(at_s * SECOND),
            not_before: None,
            kind: ChangeKind::Sysctl,
            name: name.to_owned(),
            cgroup: None,
            cgroup_name: None,
            from: None,
            to: None,
            diff: None,
            source: "index",
        }
    }

    #[test]
    fn a_change_that_two_noticed_is_one() {
        let recorded = vec![change(100, "vm.swappiness")];
        let indexed =
            vec![change(130, "vm.swappiness"), change(130, "kernel.pid_max"), change(400, "vm.swappiness")];
        let all = together(recorded, indexed);
        assert_eq!(all.iter().map(|c| c.at.0 / SECOND).collect::<Vec<_>>(), [100, 130, 400]);
    }

    #[test]
    fn of_what_is_tuned_all_day_the_last_changes_are_kept() {
        let mut all: Vec<Change> = (0..100).map(|i| change(i, "vm.min_free_kbytes")).collect();
        all.insert(3, change(3, "vm.swappiness"));
        keep_last(&mut all);
        let at: Vec<i64> = all.iter().map(|c| c.at.0 / SECOND).collect();
        assert_eq!(at, [3, 92, 93, 94, 95, 96, 97, 98, 99]);
        assert_eq!(all[0].name, "vm.swappiness");
    }

    #[test]
    fn those_that_feed_it_and_the_last_come_first() {
        let day = BACK_NS / SECOND;
        let all = [change(10, "a"), change(day, "b"), change(day + 5, "c"), change(day + 60, "d")];
        let names = |onset_s: i64| -> Vec<String> {
            before(&all, onset_s * SECOND, 1.0, |c| c.name == "b").into_iter().map(|c| c.name).collect()
        };
        assert_eq!(names(day + 6), ["b", "c", "a"]);
        assert_eq!(names(day + 12), ["b", "c"]);
    }
}
