//! A file system was mounted anew with options that make each write wait, and since then they do.

use std::collections::BTreeSet;

use mitra_model::{Change, ChangeKind};

use super::{READ_EVERY_MAX_NS, SOON_S};
use crate::changes::{self, MOUNT_OPTIONS, OPTIONS_OF};
use crate::prelude::*;

/// What follows where writes wait.
const EFFECTS: &[&str] = &["disk-hog", "disk-saturated", "pressure-io", "service-slow", "tasks-in-d-state"];

/// What is read to find the stretch.
pub const METRICS: &[&str] =
    &[MOUNT_OPTIONS, "fs.device", "disk.write_time", "disk.flush_time", "disk.discard_time"];

/// Options with which a write waits for the device, or a file that is deleted for its blocks to be discarded: mount(8), ext4(5), xfs(5).
const COSTLY: &[&str] = &["sync", "dirsync", "wsync", "data=journal", "barrier", "barrier=1", "discard"];
/// Options without which it does.
const SAVING: &[&str] = &["async", "nobarrier", "barrier=0", "nodiscard"];
/// Seconds between two commits of the journal: with less of them more writes wait for one.
const COMMIT: &str = "commit=";
/// A twentieth of the time: people notice it.
const WAITING: f64 = 0.05;
/// And three times as much as before.
const RATIO: f64 = 3.0;
/// What is usual takes as many seconds.
const USUAL_S: f64 = 5.0;

/// The stretches in which writes wait on a file system that got such options.
pub fn stretches(set: &SeriesSet, window: Span) -> Vec<Span> {
    let remounts = changes::of_mounts(set);
    let waits = remounts.iter().filter_map(|change| Waiting::of(set, change, window));
    waits.map(|waiting| Span { since: waiting.run.onset, until: waiting.run.end }).collect()
}

/// Writes that wait since a file system got other options.
struct Waiting<'a> {
    mount: &'a str,
    device: &'a str,
    options: Vec<String>,
    run: Run,
    usual: f64,
    during: f64,
}

impl<'a> Waiting<'a> {
    fn of(set: &'a SeriesSet, change: &'a Change, window: Span) -> Option<Waiting<'a>> {
        let mount = change.name.strip_prefix(OPTIONS_OF).filter(|_| change.kind == ChangeKind::Mount)?;
        let options = costlier(change.from.as_deref()?, change.to.as_deref()?);
        if options.is_empty() {
            return None;
        }
        let device = set.text("fs.device", mount)?.last()?.strip_prefix("/dev/")?;
        let times = ["disk.write_time", "disk.flush_time", "disk.discard_time"];
        let waiting = Signal::sum(times.iter().filter_map(|metric| set.get(metric, device)), Span::ALL)?;
        let at = change.at.0;
        let earliest = change.not_before.map_or(at, |t| t.0).max(at.saturating_sub(READ_EVERY_MAX_NS));
        let before = waiting.within(Span { since: i64::MIN, until: earliest.saturating_add(1) });
        if before.dt.iter().sum::<f64>() < USUAL_S {
            return None;
        }
        let usual = before.mean()?;
        let after = waiting.within(Span { since: earliest.saturating_add(1), until: window.until });
        let run = after.run((usual + WAITING).max(RATIO * usual), 3.0)?;
        let during = after.within(run.span()).mean()?;
        let is_soon = words::between(at, run.onset) <= SOON_S && run.end >= window.since;
        is_soon.then_some(Waiting { mount, device, options, run, usual, during })
    }
}

/// The options by which writes wait more than with others: those that came, and `no` those that went.
fn costlier(gone: &str, new: &str) -> Vec<String> {
    let (gone, new): (BTreeSet<&str>, BTreeSet<&str>) = (gone.split(',').collect(), new.split(',').collect());
    let seconds = |options: &BTreeSet<&str>| -> Option<f64> {
        options.iter().find_map(|option| option.strip_prefix(COMMIT))?.parse().ok()
    };
    let is_sooner = seconds(&new).is_some_and(|now| seconds(&gone).is_none_or(|then| now < then));
    let is_costly = |option: &&&str| COSTLY.contains(*option) || is_sooner && option.starts_with(COMMIT);
    let came = new.iter().filter(is_costly).map(|option| format!("with {option}"));
    let went = gone.iter().filter(|option| SAVING.contains(*option)).map(|o| format!("without {o}"));
    came.chain(went).collect()
}

/// The seconds from the change to the waiting, and what is to be said of it.
pub fn drifted(view: &View<'_>, change: &Change) -> Option<(f64, Finding)> {
    let waiting = Waiting::of(view.set, change, view.window).filter(|_| !view.is_case)?;
    let (device, span) = (waiting.device, waiting.run.span());
    let lag = words::between(change.at.0, waiting.run.onset).max(0.0);
    let mut finding = view.finding(&waiting.run);
    finding.governs = Some(EFFECTS);
    finding.culprit.path = Some(waiting.mount.to_owned());
    finding.culprit.device = Some(device.to_owned());
    finding.infer_culprit();
    finding.statement = format!(
        "{} was mounted anew {} by {}; {} writes and flushes at a time wait for {device} ({} before)",
        waiting.mount,
        waiting.options.join(" and "),
        change.at,
        words::at_a_time(waiting.during),
        words::at_a_time(waiting.usual)
    );
    for metric in ["disk.flushes", "disk.flush_time", "disk.writes", "disk.write_time", "disk.discard_time"] {
        let before = view.before(metric, device).or_else(|| {
            let known = view.set.get(metric, device)?;
            known.mean(Span { since: i64::MIN, until: waiting.run.onset.saturating_add(1) })
        });
        finding.evidence.extend(view.evidence_against(metric, device, before, span));
    }
    finding.evidence.retain(|e| e.during != 0.0);
    finding.loss_s = Some((waiting.during - waiting.usual) * waiting.run.high_s);
    finding.confidence = if lag <= 10.0 { 0.85 } else { 0.6 };
    Some((lag, finding))
}

/// What to do about it, if a finding is of this kind.
pub fn remedy(finding: &Finding) -> Option<Remedy> {
    let mount = words::shell(finding.culprit.path.as_deref()?);
    Some(Remedy {
        action: format!("mount {mount} with the old options again, and find what changed them"),
        command: format!(
            "findmnt {mount}; grep -rn {mount} /etc/fstab /etc/systemd/system; mount -o remount,OPTIONS {mount}"
        ),
        verify: "iostat -x 1: f/s and w_await of its device fall".to_owned(),
        risk: "the change may have been deliberate: what is not yet on the disk is lost when power fails"
            .to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_options_that_make_writes_wait_count() {
        assert_eq!(costlier("-", "sync"), ["with sync"]);
        assert_eq!(costlier("nobarrier,noatime", "-"), ["without nobarrier"]);
        assert_eq!(costlier("commit=60", "commit=1"), ["with commit=1"]);
        assert!(costlier("commit=5", "commit=60").is_empty());
        assert!(costlier("sync", "noatime").is_empty());
        assert!(costlier("relatime", "noatime,size=5g").is_empty());
    }
}
