//! Somebody writes to `vm.drop_caches`, and files that were in memory are read from the device again.
//!
//! A script that tidies up, an old piece of advice in a cron job, a benchmark. The kernel frees these pages by itself whenever memory
//! is needed. What is dropped was not evicted: no reclaim runs, no refault is counted, and memory is plenty. Reads, major faults
//! and look-ups of names grow for as long as it takes to fill the caches again. The kernel counts each time in `/proc/vmstat`, and
//! says in its log who it was, unless that was silenced (4).

use std::collections::{BTreeMap, BTreeSet};

use crate::device::{is_partition, is_stacked};
use crate::prelude::*;

pub const CONDITION: Condition = Condition {
    id: "caches-dropped",
    title: "the caches of the kernel are dropped by hand",
    area: "page cache",
    needs: &[PAGES, SLAB, READS, "mem.cached"],
    triggers: &[above(&[PAGES, SLAB], EACH_SECOND).lasting(3.0)],
    observe,
    causes: &[
        explains("major-faults", "pages of programs and of mapped files are gone"),
        explains("disk-hog", "files are read again that were in memory").here(),
        explains("disk-saturated", "files are read again that were in memory").here(),
        explains("query-regression", "each request reads from the device what was in memory"),
        explains("service-slow", "requests read from the device what was in memory"),
        effect("tasks-in-d-state", "files are read again that were in memory"),
        effect("iowait-high", "files are read again that were in memory"),
        effect("pressure-io", "files are read again that were in memory"),
    ],
    remedies: &[Advice {
        action: "stop {process:whoever does it} from dropping caches: the kernel frees them by itself when memory is needed",
        command: "grep -rs drop_caches /etc/cron* /var/spool/cron /etc/systemd /usr/local; dmesg | grep drop_caches",
        verify: "grep drop_ /proc/vmstat: the numbers stay",
        risk: "",
    }],
    source: include_str!("caches_dropped.rs"),
    ..Condition::ROOT
};

const PAGES: &str = "vm.drop_pagecache";
const SLAB: &str = "vm.drop_slab";
const READS: &str = "disk.read_bytes";
/// Times as often as before.
const MORE: f64 = 3.0;
/// Two hundred and fifty pages a second: at a tenth of a millisecond each, what a fast SSD takes, a fortieth of a task's time.
const AGAIN: f64 = 1_048_576.0;
/// In each second, or nearly so.
const EACH_SECOND: f64 = 0.5;
/// What was dropped is read again within this time, or was not in use.
const COLD_NS: i64 = 10 * SECOND;

fn observe(view: &View<'_>) -> Observation {
    let Some(dropped) = view.system_sum(&[PAGES, SLAB]) else {
        return Observation::needs_as("how often caches were dropped: grep drop_ /proc/vmstat", &[PAGES]);
    };
    let times: Vec<i64> =
        dropped.t.iter().zip(&dropped.v).filter(|(_, v)| **v > 0.0).map(|(t, _)| *t).collect();
    let is_cold = |t: &i64| {
        let last = times.partition_point(|dropped| dropped <= t).checked_sub(1).and_then(|i| times.get(i));
        last.is_some_and(|last| t.saturating_sub(*last) < COLD_NS)
    };
    let cold = Signal { v: dropped.t.iter().map(|t| step(is_cold(t))).collect(), ..dropped.clone() };
    let Some(run) = cold.run(1.0, 1.0) else { return Observation::inactive("nobody dropped the caches") };
    let span = run.span();
    let during = |metric: &str| view.system(metric).map(|signal| signal.within(span).mean().unwrap_or(0.0));
    let often: f64 = [PAGES, SLAB].iter().filter_map(|metric| during(metric)).sum();
    if often < MORE * view.before_sum(&[PAGES, SLAB]).unwrap_or(0.0) {
        return Observation::inactive("the caches were dropped as often before");
    }
    let Some(again) = read_again(view, span) else {
        return Observation::inactive("the caches were dropped, and hardly anything was read again");
    };
    let count = [PAGES, SLAB].iter().filter_map(|metric| view.system(metric)).map(|s| s.within(span).total());
    let count = count.fold(0.0, f64::max).round();
    let mut finding = view.finding(&run);
    let who = who(view, span);
    if let Some((comm, pid)) = who {
        finding.culprit.process = Some(comm.to_owned());
        finding.culprit.pid = pid;
    }
    finding.culprit.device = Some(again.device.to_owned());
    finding.statement = format!(
        "{} dropped the caches of the kernel{}, and {}/s were read from {} ({}/s before)",
        match who {
            Some((comm, Some(pid))) => format!("{comm} ({pid})"),
            Some((comm, None)) => comm.to_owned(),
            None => "somebody".to_owned(),
        },
        if count > 1.0 { format!(" {} times", words::count(count)) } else { String::new() },
        words::bytes(again.now),
        again.device,
        words::bytes(again.before)
    );
    finding.prove_nonzero(view, &[PAGES, SLAB, "mem.cached"], "", span);
    finding.prove(view, &[READS], again.device, span);
    finding.confidence = if count > 1.0 { 0.9 } else { 0.7 };
    finding.active()
}

/// Bytes a second that are read from a device, and that were read from it before.
struct Again<'a> {
    device: &'a str,
    now: f64,
    before: f64,
}

/// The device that is read more than before, by the most: what stands on it is read through it.
fn read_again<'a>(view: &View<'a>, span: Span) -> Option<Again<'a>> {
    let of = |(device, series): (&'a str, &'a Series)| {
        let now = series.mean(span)?;
        Some(Again { device, now, before: view.before(READS, device).unwrap_or(0.0) })
    };
    let disks = view.each(READS).filter(|(device, _)| !is_partition(view, device)).filter_map(of);
    let more = |again: &Again<'_>| again.now - again.before;
    let (stacked, below): (Vec<_>, Vec<_>) = disks.partition(|again| is_stacked(again.device));
    let most = |list: Vec<Again<'a>>| list.into_iter().max_by(|a, b| more(a).total_cmp(&more(b)));
    let (stacked, below) = (most(stacked), most(below));
    // What it stands on is read alike, but for some bytes, where that was recorded.
    let is_alone = |top: &Again<'_>| below.as_ref().is_none_or(|below| more(top) > 2.0 * more(below));
    stacked.filter(is_alone).or(below).filter(|again| more(again) >= AGAIN)
}

/// Who did it most often, by the word of the kernel: `sh (4711): drop_caches: 3` (`fs/drop_caches.c`); without an id where each time
/// it was another process of that name.
fn who<'v>(view: &'v View<'_>, span: Span) -> Option<(&'v str, Option<u32>)> {
    let mut all: BTreeMap<&str, (u32, BTreeSet<u32>)> = BTreeMap::new();
    for event in view.set.events.iter().filter(|event| span.contains(event.real)) {
        let EventKind::KernelLog { text, .. } = &event.kind else { continue };
        let Some((comm, pid)) = dropped_by(text) else { continue };
        let (times, pids) = all.entry(comm).or_default();
        *times += 1;
        pids.insert(pid);
    }
    let (comm, (_, pids)) = all.into_iter().max_by_key(|(_, (times, _))| *times)?;
    Some((comm, pids.first().copied().filter(|_| pids.len() == 1)))
}

fn dropped_by(text: &str) -> Option<(&str, u32)> {
    let (who, _) = text.rsplit_once("): drop_caches: ")?;
    let (comm, pid) = who.rsplit_once(" (")?;
    Some((comm, pid.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_says_who_it_was() {
        assert_eq!(dropped_by("sh (13018): drop_caches: 3"), Some(("sh", 13018)));
        assert_eq!(dropped_by("a (1) (77): drop_caches: 1"), Some(("a (1)", 77)));
        assert_eq!(dropped_by("drop_caches"), None);
    }
}
