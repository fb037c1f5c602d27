//! A working set of files that is read again and again does not fit into the memory that it may have.
//!
//! Each page that comes back pushes out another one that will be wanted soon, so nearly every page that is evicted
//! comes back. The memory may be the machine's or a cgroup's: in a group the machine has free memory and
//! neither kswapd nor direct reclaim move, only the group's own counters do. See `streaming-read-flood` for the
//! look-alike. Refaults without any steal are somebody else's doing (DAMON, drop_caches).

use crate::captured;
use crate::growth;
use crate::page_cache;
use crate::page_cache::returns::{EVICTION_PAGES_S, Return, busiest_reader_device};
use crate::prelude::*;

pub const CONDITION: Condition = Condition {
    id: "page-cache-thrash",
    title: "a working set does not fit the page cache",
    area: "page cache",
    needs: &[
        "vm.workingset_refault_file",
        "vm.workingset_refault",
        "vm.workingset_activate_file",
        "vm.pgsteal_file",
        "vm.pgsteal_anon",
        "vm.pgsteal_kswapd",
        "vm.pgsteal_direct",
        "cgroup.refault_file",
        "cgroup.memory_current",
        "cgroup.memory_max",
        "cgroup.memory_failcnt",
        "cgroup.file",
        "task.read_bytes",
        "task.rss_anon",
        "disk.read_bytes",
        "disk.reads",
        "tasks.d_io",
        "mem.cached",
        "mem.buff_cache",
        "mem.free",
        "mem.total",
        "cache.hits",
        "cache.misses",
        "cache.hit_ratio",
    ],
    observe,
    causes: &[
        effect("free-memory-low", "a working set that does not fit leaves nothing free"),
        effect("kswapd-scanning", "each page that comes back needs another one to go"),
        effect("page-cache-eviction", "each page that comes back pushes another one out"),
        effect("direct-reclaim", "pages are wanted faster than kswapd frees them"),
        explains("refaults", "the pages that were pushed out are read again"),
        explains("disk-hog", "the reads that fill the device are the same pages again").here(),
        explains("disk-saturated", "the same pages are read again and again").here(),
        explains("cgroup-memory-limit", "the working set is what does not fit under the limit"),
        explains("cgroup-memory-high", "the working set is what does not fit below the level"),
    ],
    settings: Settings {
        any_order: true,
        ..Settings::new("what fitted before the change does not fit any more", settings::KEPT_FREE)
    },
    cgroup_limit: Some("memory."),
    remedies_of: remedies,
    next: &[measure("how large the files are that it reads", "ls -lL /proc/{pid}/fd")],
    suspicions: &[
        Suspicion {
            rank: 110,
            name: "page-cache-churn",
            when: "(vm.pgscan_file > 10000/s or vm.pgscan_kswapd > 10000/s or vm.pgscan_direct > 10000/s) \
               and (vm.workingset_refault_file > 1000/s or vm.workingset_refault > 1000/s or vm.pgmajfault > 200/s \
               or psi.memory_some > 5%) for 2s",
            arm: &["cache"],
            why: "Reclaim scans 40 MB each second, and what it evicts is missed: pages come back, faults read from \
                  disk, or tasks wait for memory. Refaults without reclaim do not count.",
            ..Suspicion::NONE
        },
        Suspicion {
            rank: 120,
            name: "major-fault-rate",
            when: "vm.pgmajfault > 200/s for 3s",
            arm: &["cache", "faults"],
            why: "Each is a task that waits for a read: 200 of a tenth of a millisecond to ten milliseconds are 2 to 200 % of a \
              task's time. Healthy loads stay near 50.",
            ..Suspicion::NONE
        },
    ],
    source: include_str!("page_cache_thrash.rs"),
    ..Condition::ROOT
};

/// As many as have to be evicted for it: four megabytes a second.
const REFAULT_PAGES_S: f64 = EVICTION_PAGES_S;
/// One program fetches half of what comes back.
const SHARE: f64 = 0.5;
/// Samples without any eviction. Who thrashes by as much as that empties what kswapd frees at once, some megabytes, in a second or two.
const QUIET_SAMPLES: usize = 3;

fn observe(view: &View<'_>) -> Observation {
    let Some(refault) = view.refault_file() else { return page_cache::thrash::observe(view) };
    let Some(steal) = view.steal() else { return Observation::needs(&["vm.pgsteal_file"]) };
    // Refaults count only as far as reclaim evicts at all.
    let joint = refault.zip(&steal, |refault, steal| refault.min(2.0 * steal));
    let before = view.before("vm.workingset_refault_file", "");
    let threshold = view.threshold(REFAULT_PAGES_S, &view.base_values("vm.workingset_refault_file", ""));
    let threshold = threshold.max(of_earlier_evictions(view, &steal));
    let Some(high) = view.high_signal(&joint, threshold, 4.0, before) else {
        return Observation::Inactive(format!(
            "at most {} pages/s came back that reclaim had evicted",
            words::count(joint.max().unwrap_or(0.0))
        ));
    };
    let span = high.run.span();
    let tops = process::ranking(view.processes(), span, |p| p.total(view.set, "task.read_bytes", span));
    let reader = tops.first().filter(|t| t.share >= SHARE);
    let Some(pages) = Return::of(view, span, reader) else {
        return Observation::needs(&["vm.workingset_refault_file"]);
    };
    if !pages.is_thrash() {
        return Observation::Inactive(format!(
            "{:.2} of the evicted pages came back, by requests of {}, {} of them to processes other than the top \
             reader: it does not re-read its own pages",
            pages.per_steal,
            words::bytes(pages.request_bytes.unwrap_or(0.0)),
            words::percent(pages.by_others.min(1.0))
        ));
    }
    let group = thrashing_group(view, span, high.during);
    let mut finding = view.finding(&high.run);
    if let Some(reader) = reader {
        finding.blame_pid(reader.comm, reader.pid());
        finding.evidence.push(view.task_evidence("task.read_bytes", &reader.lead, None, reader.rate, span));
    }
    finding.culprit.device = busiest_reader_device(view, span);
    finding.culprit.cgroup.clone_from(&group.as_ref().map(|(name, _)| name.clone()));
    let who = reader.map_or_else(|| "no single program".to_owned(), Top::words);
    let place = match &group {
        Some((name, Some(limit))) => {
            format!("under the {} that {} may have", words::bytes(*limit), view.group(name))
        }
        Some((name, None)) => format!("in {}", view.group(name)),
        None => "in memory".to_owned(),
    };
    finding.statement = format!(
        "{who} reads a working set that does not fit {place}: {} pages/s came back after eviction ({} before), {:.2} for each evicted",
        words::count(high.during),
        words::count(before.unwrap_or(0.0)),
        pages.per_steal
    );
    finding.prove(
        view,
        &["vm.workingset_refault_file", "vm.pgsteal_file", "vm.workingset_activate_file"],
        "",
        span,
    );
    if let Some((name, _)) = &group {
        finding.prove(
            view,
            &["cgroup.refault_file", "cgroup.memory_current", "cgroup.memory_failcnt"],
            name,
            span,
        );
    }
    let in_group = group.as_ref().map(|(name, _)| name.as_str());
    if let Some(came) = who_came(view, reader.map(|reader| reader.comm), in_group, span) {
        let took = words::bytes(came.total);
        finding.statement.push_str(&format!("; {} took {took} since shortly before", came.words()));
        finding.blame_pid(came.comm, came.pid());
        finding.evidence.push(view.task_evidence(
            "task.rss_anon",
            &came.lead,
            None,
            came.total / view.page_bytes(),
            span,
        ));
    }
    finding.loss_s = view.excess(&["tasks.d_io"], span);
    finding.confidence = 0.5 * pages.per_steal.min(1.0) + 0.5 * reader.map_or(0.3, |r| r.share);
    captured::name_file(view, &mut finding);
    finding.active()
}

/// The program for whose memory the page cache had to go, of a group or of the machine, where it is not the one that reads.
fn who_came<'a>(view: &View<'a>, reads: Option<&str>, group: Option<&str>, span: Span) -> Option<Top<'a>> {
    let span = growth::with_shortly_before(span);
    let is_of = |p: &&Process<'_>| group.is_none_or(|group| p.cgroup == Some(group));
    let all: Vec<Process<'a>> = view.processes().iter().filter(is_of).cloned().collect();
    let cached = match group {
        Some(group) => view.set.get("cgroup.file", group)?,
        None => view.set.get("mem.cached", "")?,
    };
    let cached = Signal::of(cached, span);
    // The cache may have been filled first.
    let (peak, most) = cached.v.iter().copied().enumerate().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let least = cached.v.iter().skip(peak).copied().fold(most, f64::min);
    growth::who_came(view, &all, reads, span, most - least)
}

/// Without a quiet time to compare with: how many pages a second came back before the first one of the view was evicted. They are
/// those of an earlier eviction (a cache that fills again), and come back beside what is evicted later, which is no part of that.
fn of_earlier_evictions(view: &View<'_>, steal: &Signal) -> f64 {
    if view.baseline.is_some() || view.is_case {
        return 0.0;
    }
    let first = steal.t.iter().zip(&steal.v).find(|(_, pages)| **pages > 0.0).map(|(t, _)| *t);
    let until = first.unwrap_or(view.window.since);
    let early = view.refault_file().map(|pages| pages.within(Span { since: i64::MIN, until }));
    // In one or two samples between two runs of kswapd it may be what is evicted now.
    early.filter(|pages| pages.v.len() >= QUIET_SAMPLES).and_then(|pages| pages.max()).unwrap_or(0.0)
}

/// The smallest cgroup that has most of the refaults, with its limit, if it is at that limit.
fn thrashing_group(view: &View<'_>, span: Span, refaults: f64) -> Option<(String, Option<f64>)> {
    view.each("cgroup.refault_file")
        .filter(|(name, series)| *name != "/" && series.mean(span).is_some_and(|rate| rate >= 0.5 * refaults))
        .filter_map(|(name, _)| {
            let limit = view.set.get("cgroup.memory_max", name).and_then(|s| s.last(span));
            let used = view.set.get("cgroup.memory_current", name).and_then(|s| s.mean(span));
            // Reclaim in the group starts when a charge would pass the limit, so it hovers just below.
            limit.zip(used).is_some_and(|(limit, used)| used >= 0.9 * limit).then(|| (name.to_owned(), limit))
        })
        .max_by_key(|(name, _)| name.len())
}

fn remedies(finding: &Finding) -> Vec<Remedy> {
    let mut list = Vec::new();
    if let Some(group) = &finding.culprit.cgroup {
        list.push(Remedy {
            action: format!("raise the memory limit of {group} to its working set"),
            command: format!(
                "echo BYTES > {}   (version 1: memory/…/memory.limit_in_bytes)",
                words::shell(&format!("/sys/fs/cgroup{group}/memory.max"))
            ),
            verify: "its workingset_refault_file stops growing".to_owned(),
            risk: "the memory is taken from others".to_owned(),
        });
    }
    list.push(Remedy {
        action:
            "give the working set more memory, or process it in parts that fit instead of in several passes"
                .to_owned(),
        command: String::new(),
        verify: "grep workingset_refault_file /proc/vmstat: stops growing".to_owned(),
        risk: String::new(),
    });
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::locks::tests::series;

    #[test]
    fn what_comes_back_before_anything_is_evicted_is_of_earlier_evictions() {
        let of = |steal: [f64; 8], baseline: Option<Span>| {
            let (mut set, none) = (SeriesSet::default(), SeriesSet::default());
            let back = [2_100.0, 1_800.0, 1_600.0, 1_700.0, 4_500.0, 5_000.0, 6_000.0, 7_000.0];
            series(&mut set, "vm.workingset_refault_file", "", back.to_vec());
            series(&mut set, "vm.pgsteal_file", "", steal.to_vec());
            let view = View::new(&set, Span::ALL, &none, baseline);
            of_earlier_evictions(&view, &view.steal().unwrap())
        };
        let later = [0.0, 0.0, 0.0, 3_000.0, 9_000.0, 0.0, 9_000.0, 9_000.0];
        assert_eq!(of(later, None), 2_100.0);
        assert_eq!(of(later, Some(Span::ALL)), 0.0, "the quiet time says what is usual");
        let at_once = [0.0, 3_000.0, 0.0, 3_000.0, 9_000.0, 0.0, 9_000.0, 9_000.0];
        assert_eq!(of(at_once, None), 0.0);
    }
}
