//! Memory that a program's native code allocated and does not free, invisible to its runtime.
//!
//! The process is large, the heap that its runtime manages is small: the rest belongs to libraries in C. The
//! mapping that grows is named, because a process has several; and the objects in it are known by the strings that they
//! hold, when those become more with the work done. A warm-up levels off, a leak does not.
//!
//! In a recording the recorder itself looks into a process that grows (a capture of kind `heap`, at most once an hour). What the
//! allocator holds without use was freed: that is fragmentation, and no leak.

use crate::growth;
use crate::heap::{self, Grown, Managed, Region};
use crate::heap_captures::{self, GrownProcess};
use crate::prelude::*;

pub const CONDITION: Condition = Condition {
    id: "memory-leak-native",
    title: "native code leaks memory",
    area: "growth",
    needs: &[
        "mapping.rss",
        "mapping.private_dirty",
        "mapping.name",
        "task.rss_anon",
        "task.swap",
        "cgroup.memory_current",
        "cgroup.memory_max",
    ],
    needs_of: &[growth::NEEDS, heap::NEEDS],
    observe,
    causes: &[
        effect("free-memory-low", "leaked memory fills the machine"),
        effect("oom-kill", "leaked memory fills the machine until the OOM killer kills"),
        effect("cgroup-memory-limit", "leaked memory fills the cgroup"),
        effect("cgroup-memory-high", "leaked memory fills the cgroup"),
        explains("anonymous-growth", "the leak is what grows"),
    ],
    remedies: &[
        Advice {
            action: "update {library:the library that owns the objects}, or report the leak with the strings and the counts",
            command: "",
            verify: "grep -A1 heap /proc/PID/smaps: Rss levels off; the counts of the strings stay",
            risk: "",
        },
        Advice {
            action: "until then, restart each worker after a number of requests",
            command: "uwsgi --max-requests 10000, gunicorn --max-requests 10000",
            verify: "ps -o rss -p PID",
            risk: "a stopgap: what a worker has cached is lost with it",
        },
    ],
    next_of: next,
    suspicions: &[Suspicion {
        rank: 190,
        name: "process-grows",
        when: "bytes(task.rss_anon) > 100MiB and bytes(rate(task.rss_anon)) > 256KiB/s for 20s",
        arm: &["heap"],
        is_of_culprit: true,
        seconds: 5.0,
        cool_down_s: 3600.0,
        why: "A quarter of a megabyte more in each of twenty seconds is a gigabyte in an hour. A program that starts takes its \
              memory faster and is done; one that takes some at each request grows in bursts. A snapshot \
              of its heap shows what it is and costs some CPU seconds: so at most one an hour.",
        ..Suspicion::NONE
    }],
    source: include_str!("memory_leak_native.rs"),
    ..Condition::ROOT
};

/// A hundred megabytes: less is what libraries keep at hand.
const LARGE: f64 = 1e8;
/// Of what the process holds the runtime knows a tenth at most: overhead and fragmentation make a factor of two or
/// three, not ten.
const MANAGED_SHARE: f64 = 0.1;
/// Twice as many objects as at the start are growth.
const GROWN: f64 = 2.0;

/// A heap that a leak has made large is half as large again at least; less is the noise of any work.
const LEAST_GROWTH: f64 = 1.5;
/// Strings that are told of.
const STRINGS_TOLD: usize = 3;
/// A program's own text and tables hold a string some hundred times at most.
const REPEATED: f64 = 1e5;

fn observe(view: &View<'_>) -> Observation {
    match heap_captures::of(view) {
        Some(Ok(looked)) if !looked.is_managed() => {
            return seen(view, &looked).active();
        }
        Some(Ok(looked)) => {
            let share = words::percent(looked.managed_share().unwrap_or_default());
            return Observation::Inactive(format!("the runtime accounts for {share} of the growth"));
        }
        Some(Err(otherwise)) => return otherwise,
        None => {}
    }
    let regions = heap::regions(view);
    let managed = heap::managed(view);
    let census = heap::census(view);
    let grown: Vec<&Grown> =
        census.iter().filter(|g| g.before.is_some_and(|b| g.now >= GROWN * b.max(1.0))).collect();
    let Some(region) = regions.first() else {
        return Observation::cannot_tell(match managed {
            Some(_) => "which mapping of the process is large: /proc/PID/smaps",
            None => "the mappings and the heap of a process: /proc/PID/smaps, a heap census",
        });
    };
    if region.rss < LARGE {
        return Observation::Inactive(format!("the largest heap holds {}", words::bytes(region.rss)));
    }
    if let Some((before, now)) =
        heaps_of_both_sides(view, &regions).filter(|(before, now)| now < &(LEAST_GROWTH * before))
    {
        return Observation::Inactive(format!(
            "the heaps hold {} after {} before: they do not grow",
            words::bytes(now),
            words::bytes(before)
        ));
    }
    match &managed {
        Some(m) if m.bytes > MANAGED_SHARE * region.rss => {
            return Observation::Inactive(format!(
                "the runtime accounts for {} of the {} in the heap",
                words::bytes(m.bytes),
                words::bytes(region.rss)
            ));
        }
        // Memory that the runtime does not know of may be what the program is for: arrays, buffers, a cache.
        Some(_)
            if grown.is_empty() && !is_repeated(&census) && heaps_of_both_sides(view, &regions).is_none() =>
        {
            return Observation::cannot_tell(
                "whether the heap grows, or what fills it: /proc/PID/smaps at another time, strings of the heap counted",
            );
        }
        Some(_) => {}
        None if grown.iter().any(|g| g.is_string) => {}
        None => {
            return Observation::cannot_tell(
                "what the runtime knows of the heap (guppy, tracemalloc, jcmd GC.class_histogram), or what grows in it",
            );
        }
    }
    finding(view, &regions, managed.as_ref(), &grown, &census).active()
}

/// What a look into the growing process found.
fn seen(view: &View<'_>, looked: &GrownProcess<'_, '_>) -> Finding {
    let mut finding = looked.finding(view);
    let now = &looked.now;
    if let Some((name, share)) = now.managed.map(|(name, _)| name).zip(looked.managed_share()) {
        finding.remarks.push(format!(
            "only {} of it is known to {name}, so its garbage collector cannot be the cause",
            words::percent(share)
        ));
        finding.confidence = 0.9;
    }
    if let Some(in_use) = now.in_use {
        finding.remarks.push(format!("the C heap has given out {}", words::bytes(in_use)));
    }
    let strings = looked.most(|look| &look.strings);
    finding
        .remarks
        .extend(strings.iter().skip(1).take(STRINGS_TOLD).map(|(_, text)| format!("in its memory: {text}")));
    let chunks = looked.most(|look| &look.chunks);
    if let Some((_, text)) = chunks.first() {
        finding.remarks.push(format!("most of all in chunks of {text}"));
    }
    if let Some((name, text)) = strings.first() {
        finding.statement.push_str(&format!("; most of all {text}"));
        finding.culprit.object = Some(format!("string {name}"));
    } else if let Some((name, _)) = chunks.first() {
        finding.culprit.object = Some(format!("chunks of {name}"));
    }
    finding.culprit.library =
        now.strings.iter().find_map(|kind| kind.library.map(str::to_owned).or_else(|| library(kind.name)));
    finding
}

/// Resident bytes of all heap mappings, in the baseline and now; `None` where only one side is known.
fn heaps_of_both_sides(view: &View<'_>, regions: &[Region]) -> Option<(f64, f64)> {
    view.baseline?;
    let before = heap::resident(view.base_set);
    (before > 0.0).then(|| (before, regions.iter().map(|r| r.rss).sum()))
}

/// Whether two kinds of strings are in the heap equally often and very often: objects that pile up, one like the other.
fn is_repeated(census: &[Grown]) -> bool {
    let strings: Vec<&Grown> = census.iter().filter(|g| g.is_string && g.now >= REPEATED).take(2).collect();
    equal_counts(&strings).is_some()
}

fn finding(
    view: &View<'_>,
    regions: &[Region],
    managed: Option<&Managed>,
    grown: &[&Grown],
    census: &[Grown],
) -> Finding {
    let region = &regions[0];
    let at = view.set.get("mapping.rss", &region.row).and_then(|s| s.axis.t.last().copied());
    let mut finding = view.finding_at(at.unwrap_or(mitra_model::Era::Fact.zero()));
    finding.culprit.address = Some(region.row.split(' ').next().unwrap_or(&region.row).to_owned());
    finding.confidence = 0.55;
    let mut parts = vec![format!("the mapping {} holds {}", region.row, words::bytes(region.rss))];
    if let Some((before, now)) = heaps_of_both_sides(view, regions) {
        parts.push(format!("all heaps grew from {} to {}", words::bytes(before), words::bytes(now)));
        finding.confidence += 0.1;
    }
    finding.evidence.extend(region.evidence.iter().cloned());
    if let Some(m) = managed {
        let share = m.bytes / region.rss;
        parts.push(format!(
            "{} knows {}, {} of it",
            if m.tool.is_empty() { "the runtime" } else { &m.tool },
            words::bytes(m.bytes),
            words::percent(share)
        ));
        finding.evidence.extend(m.evidence.iter().cloned());
        finding.remarks.push(format!(
            "only {} of the region is known to the interpreter, so its garbage collector cannot be the cause",
            words::percent(share)
        ));
        finding.confidence += 0.2;
    }
    for other in regions.iter().skip(1).take(2).filter(|r| r.row.contains("[heap]")) {
        parts.push(format!("the other heap mapping {} stays at {}", other.row, words::bytes(other.rss)));
        finding.evidence.extend(other.evidence.iter().filter(|e| e.metric == "mapping.rss").cloned());
    }
    let objects: Vec<&Grown> = if grown.is_empty() {
        census.iter().filter(|g| g.is_string).take(2).collect()
    } else {
        grown.iter().filter(|g| g.is_string).copied().take(4).collect()
    };
    parts.extend(objects.iter().map(|g| in_words(g)));
    finding.evidence.extend(objects.iter().filter_map(|g| g.evidence.clone()));
    if let Some(text) = equal_counts(&objects) {
        finding.remarks.push(text);
        finding.confidence += 0.05;
    }
    if !grown.is_empty() {
        finding.confidence += 0.15;
    }
    finding.culprit.library = objects.iter().find_map(|g| library(&g.name));
    finding.remarks.push("restarting the workers regularly is a stopgap, not a fix".to_owned());
    finding.statement = parts.join("; ");
    finding
}

/// The part of a string before its first dot or colon, which is how libraries name their objects; not a placeholder.
fn library(name: &str) -> Option<String> {
    const PLACEHOLDERS: &[&str] = &["unknown", "none", "null", "object", "default"];
    let (head, _) = name.split_once(['.', ':', '/'])?;
    let is_name = head.len() > 2 && !PLACEHOLDERS.contains(&head.to_ascii_lowercase().as_str());
    is_name.then(|| head.to_owned())
}

fn in_words(g: &Grown) -> String {
    match g.before {
        Some(before) => {
            format!("\"{}\" {before:.0} to {:.0} (x{:.1})", g.name, g.now, g.now / before.max(1.0))
        }
        None => format!("\"{}\" {:.0} times", g.name, g.now),
    }
}

/// Two strings that are there equally often belong to one object.
fn equal_counts(objects: &[&Grown]) -> Option<String> {
    let (first, second) = (objects.first()?, objects.get(1)?);
    // A count taken while the process runs misses a few.
    ((first.now - second.now).abs() <= 0.001 * first.now).then(|| {
        format!(
            "\"{}\" and \"{}\" are there equally often, so each leaked object holds one of each",
            first.name, second.name
        )
    })
}

fn next(finding: &Finding) -> Vec<Next> {
    let known: &[Evidence] = &finding.evidence;
    if known.iter().any(|e| e.metric == "census.count" && e.before.is_some()) {
        return Vec::new();
    }
    vec![Next {
        measure: "which objects accumulate: count the strings in the region now and later".to_owned(),
        command:
            "mitra inspect heap PID --strings --save before.json, and later again with --diff before.json"
                .to_owned(),
    }]
}
