//! Lookups of names that do not exist fill the kernel's dentry cache.
//!
//! The kernel remembers failed lookups too, as negative dentries. A program that looks up ever new names, each once,
//! makes one after the other, and nothing but memory pressure removes them. Then they go by the million under locks that
//! every lookup needs, and the machine stands still. Dentries of existing files after a backup or a `find` are another
//! thing: the inode cache grows with them, they level off, and they shrink without harm.

use crate::captured;
use crate::growth;
use crate::lookups::{self, Failing, Lookups};
use crate::prelude::*;
use crate::slabs::{self, Cache};

pub const CONDITION: Condition = Condition {
    id: "slab-dentry-bloat",
    title: "negative dentries fill memory",
    area: "growth",
    needs: &[
        "slab.num_objs",
        "slab.active_objs",
        "slab.objsize",
        "slab.bytes",
        "mem.sreclaimable",
        "mem.slab",
        "mem.cached",
        "mem.total",
        "mem.available",
        "mem.free",
        "dentry.nr",
        "dentry.negative",
        "inode.nr",
        "lookup.failed",
        "lookup.unique",
        "lookup.pattern",
        "lookup.program",
        "call.calls",
        "call.errors",
        "sysctl.vm.vfs_cache_pressure",
        "task.system_time",
        "task.cpu_time",
    ],
    triggers: &[
        // Each is two hundred bytes that nobody asked for: twenty megabytes.
        climbs(&["dentry.negative"], |from, to| to - from >= 100_000.0 && to >= 2.0 * from),
    ],
    observe,
    causes: &[
        effect("free-memory-low", "cached names that are never looked up again take the memory"),
        effect("mass-reclaim", "when memory runs out, millions of entries are freed at once"),
        effect("kswapd-scanning", "a cache that grows without end pushes other pages out"),
        effect("direct-reclaim", "entries are made faster than kswapd frees them"),
        effect("page-cache-eviction", "file pages go to make room for names"),
        explains("cpu-hog", "the time goes into lookups of names that do not exist"),
        explains("single-thread-bottleneck", "the thread is busy with failed lookups"),
        effect("page-cache-thrash", "the working set fitted before; names take its place"),
    ],
    settings: Settings::new(
        "reclaim spares dentries",
        &[lowered("sysctl.vm.vfs_cache_pressure", Acts::WhenScarce)],
    ),
    remedies_of: remedies,
    next_of: next,
    suspicions: &[Suspicion {
        rank: 10,
        name: "failing-lookups",
        when: "rate(dentry.negative) > 2000/s for 3s",
        arm: &["lookups"],
        seconds: 5.0,
        why: "Each negative dentry takes 192 bytes and goes only under memory pressure: 2,000 more each second are 1.4 GB \
              in an hour. A build that searches paths makes hundreds, and the same ones again.",
        ..Suspicion::NONE
    }],
    source: include_str!("slab_dentry_bloat.rs"),
    ..Condition::ROOT
};

/// A quarter of memory: a cache of names never needs that much beside the files that they name.
const BLOAT_SHARE: f64 = 0.25;
/// A file in use has a dentry and an inode of about three to five times its size. Fewer inodes than that and most of
/// the dentries name nothing.
const INODE_PER_DENTRY: f64 = 0.5;
/// Negative dentries that are made each second: a build with a long search path stays below.
const NEGATIVE_S: f64 = 20_000.0;

/// Failing lookups of one program in one directory each second that make it the one who fills the cache: a search path fails
/// a few times for each program that starts.
const CAPTURED_S: f64 = 1_000.0;

/// A slower stream that goes on and doubles what there was: a hundred thousand names are as many as a large system has files.
const STEADY_S: f64 = 4_000.0;
const STEADY_NEED_S: f64 = 8.0;
const STEADY_GROWN: f64 = 50_000.0;

/// Twice as many as the machine makes all the time.
const MORE: f64 = 2.0;

/// Bytes of the kernel's object for a name (`struct dentry`, 64-bit).
const DENTRY_BYTES: f64 = 192.0;
/// A hundredth of memory: below, nobody misses what the names take.
const GROWN_SHARE: f64 = 0.01;
/// The same of what was to be had, where most of memory is taken already; and as much comes and goes with any program.
const ROOM_SHARE: f64 = 0.1;
const LEAST_BYTES: f64 = 1e8;

/// What speaks for it.
#[derive(Default)]
struct Signs {
    cache: Option<Cache>,
    reclaimable: Option<(f64, Evidence)>,
    failing: Option<Failing>,
    directories: Vec<Lookups>,
}

fn observe(view: &View<'_>) -> Observation {
    let caches = slabs::caches(view);
    let inodes: f64 = caches.iter().filter(|c| c.name.contains("inode")).map(|c| c.bytes).sum();
    let memory = view.memory_bytes();
    let mut signs = Signs {
        reclaimable: slabs::reclaimable(view),
        failing: lookups::failing_call(view),
        directories: lookups::directories(view),
        cache: caches.into_iter().find(|c| c.name == "dentry"),
    };
    if let Some(finding) = growing(view, &signs) {
        return finding.active();
    }
    let cached = view.set.get("mem.cached", "").and_then(|s| s.last(view.window));
    let is_bloat = |bytes: f64| match memory {
        Some(memory) => bytes >= BLOAT_SHARE * memory,
        // Without the size of memory: more than all cached files.
        None => cached.is_some_and(|cached| bytes > cached),
    };
    let by_size = signs.cache.as_ref().is_some_and(|c| is_bloat(c.bytes));
    let by_sum =
        signs.cache.is_none() && signs.reclaimable.as_ref().is_some_and(|(bytes, _)| is_bloat(*bytes));
    let fails = signs.failing.is_some();
    match (&signs.cache, by_size, by_sum) {
        (Some(cache), true, _) if inodes < INODE_PER_DENTRY * cache.bytes => {}
        (Some(cache), true, _) => {
            return Observation::Inactive(format!(
                "the dentry cache holds {}, with {} of inodes: names of files that exist",
                words::bytes(cache.bytes),
                words::bytes(inodes)
            ));
        }
        (None, _, true) if fails => {}
        (Some(cache), false, _) => {
            return Observation::Inactive(format!("the dentry cache holds {}", words::bytes(cache.bytes)));
        }
        (None, _, true) => {
            return Observation::cannot_tell("which slab cache is large: slabtop -o -s c");
        }
        (None, _, false) if fails => {
            return Observation::cannot_tell("how large the dentry cache is: slabtop -o -s c");
        }
        (None, _, false) => {
            return Observation::needs_as("the sizes of the slab caches (slab.num_objs)", &["slab.num_objs"]);
        }
    }
    if !fails {
        signs.failing = None;
    }
    bloated(view, &signs).active()
}

/// A cache that is far too large already.
fn bloated(view: &View<'_>, signs: &Signs) -> Finding {
    let at = view.set.get("slab.num_objs", "dentry").and_then(|s| s.axis.t.first().copied());
    let fact = mitra_model::Era::Fact.zero();
    let mut finding = view.finding_at(at.unwrap_or(if view.is_case { fact } else { view.window.since }));
    finding.culprit.slab = Some("dentry".to_owned());
    let memory = view.memory_bytes().map(|m| format!(" of {}", words::bytes(m))).unwrap_or_default();
    finding.statement = match &signs.cache {
        Some(cache) => {
            let used = cache
                .objects
                .map(|(all, active)| format!(", {} of its objects in use", words::percent(active / all)))
                .unwrap_or_default();
            finding.evidence.extend(cache.evidence(view));
            format!("the dentry cache holds {}{memory}{used}", words::bytes(cache.bytes))
        }
        None => format!(
            "reclaimable kernel caches hold {}{memory}",
            words::bytes(signs.reclaimable.as_ref().map_or(0.0, |(b, _)| *b))
        ),
    };
    finding.confidence = if signs.cache.is_some() { 0.75 } else { 0.55 };
    if let Some((bytes, evidence)) = &signs.reclaimable {
        let cached =
            view.reading("mem.cached", "").map(|c| format!(", beside {} of page cache", words::bytes(c)));
        finding.remarks.push(format!(
            "reclaimable slab: {}{}",
            words::bytes(*bytes),
            cached.unwrap_or_default()
        ));
        finding.evidence.push(evidence.clone());
    }
    name_the_culprit(view, &mut finding, signs);
    finding
}

/// A cache that grows before one's eyes.
fn growing(view: &View<'_>, signs: &Signs) -> Option<Finding> {
    let negative = view.system("dentry.negative").or_else(|| view.system("dentry.nr"))?;
    let metric = if view.system("dentry.negative").is_some() { "dentry.negative" } else { "dentry.nr" };
    let slope = negative.slope()?;
    // Names that are made all the time are how the machine is.
    let base = view.baseline.zip(view.base_set.get(metric, ""));
    let base = base.and_then(|(span, series)| Signal::of(series, span).slope()).unwrap_or_default();
    let threshold = |floor: f64| view.threshold(floor, &base.v).max(MORE * base.mean().unwrap_or(0.0));
    let fast = slope.run(threshold(NEGATIVE_S), 5.0);
    let run = fast.or_else(|| slope.run(threshold(STEADY_S), STEADY_NEED_S))?;
    let grown = slope.within(run.span()).total();
    let before = view.before(metric, "").or_else(|| negative.v.first().copied()).unwrap_or(0.0);
    if fast.is_none() && grown < STEADY_GROWN.max(before) {
        return None;
    }
    // Names of files that exist bring their inodes.
    let inodes = view.system("inode.nr").map(|s| {
        let inside = s.within(run.span()).v;
        inside.last().copied().unwrap_or(0.0) - inside.first().copied().unwrap_or(0.0)
    });
    if inodes.is_some_and(|inodes| inodes > INODE_PER_DENTRY * grown) {
        return None;
    }
    if !is_felt(view, grown * DENTRY_BYTES) && looked_up(view).is_none() && signs.failing.is_none() {
        return None;
    }
    let mut finding = view.finding(&run);
    finding.culprit.slab = Some("dentry".to_owned());
    finding.statement = format!(
        "{} negative dentries were created in {}, {}/s",
        words::count(grown),
        words::seconds(run.seconds()),
        words::count(grown / run.seconds().max(1.0))
    );
    finding.evidence.extend(view.evidence(metric, "", run.span()));
    if let Some((_, evidence)) = &signs.reclaimable {
        finding.evidence.push(evidence.clone());
    }
    finding.confidence = 0.8;
    name_the_culprit(view, &mut finding, signs);
    if finding.culprit.process.is_none() {
        name_by_a_probe_or_time(view, &mut finding, run.span());
    }
    Some(finding)
}

/// Whether so many bytes of names are missed by somebody: a part of memory, of what was to be had of it, or of the page cache,
/// beside which the caches of the kernel have become as large.
fn is_felt(view: &View<'_>, bytes: f64) -> bool {
    if view.memory_bytes().is_some_and(|memory| bytes >= GROWN_SHARE * memory) {
        return true;
    }
    let last = |metric: &str| view.set.get(metric, "").and_then(|s| s.last(view.window));
    let rivals = last("mem.sreclaimable").zip(last("mem.cached")).is_some_and(|(slab, files)| slab >= files);
    bytes >= LEAST_BYTES
        && (rivals
            || view.memory_bytes().is_none()
            || growth::room(view).is_some_and(|room| bytes >= ROOM_SHARE * room))
}

/// The most failing lookups of one program in one directory that a capture saw, if they are many.
fn looked_up<'a>(view: &'a View<'_>) -> Option<captured::CapturedRow<'a>> {
    let looked = captured::rows(view, &["lookups"]);
    let many = looked.into_iter().filter(|r| r.row.count >= CAPTURED_S * r.seconds);
    many.max_by(|a, b| a.row.count.total_cmp(&b.row.count))
}

/// Who looks the names up: by a capture of lookups, or else who spent the kernel's time meanwhile.
fn name_by_a_probe_or_time(view: &View<'_>, finding: &mut Finding, span: Span) {
    if let Some(most) = looked_up(view) {
        finding.culprit.process = Some(most.row.comm.clone()).filter(|c| !c.is_empty());
        finding.culprit.pid = most.row.pid;
        finding.culprit.path = Some(most.row.what.clone()).filter(|w| w.starts_with('/'));
        finding.statement = format!(
            "{}; {} made {} failed lookups in {} within {}",
            finding.statement,
            most.row.comm,
            words::count(most.row.count),
            most.row.what,
            words::seconds(most.seconds)
        );
        finding.evidence.push(view.event_evidence(
            "event.capture",
            &most.row.comm,
            most.row.count,
            "",
            most.event,
        ));
        finding.confidence = 0.95;
        return;
    }
    let tops = process::ranking(view.processes(), span, |p| process::in_kernel_s(p, view.set, span));
    if let Some(top) = tops.first().filter(|t| t.share >= 0.5) {
        finding.blame_pid(top.comm, top.pid());
        finding.infer_culprit();
        finding.remarks.push(format!(
            "{} used {} of the kernel's time meanwhile; that it makes the lookups is inferred from that",
            top.words(),
            words::percent(top.share)
        ));
        finding.evidence.push(view.task_evidence("task.system_time", &top.lead, None, top.rate, span));
    }
}

fn name_the_culprit(view: &View<'_>, finding: &mut Finding, signs: &Signs) {
    if let Some(failing) = &signs.failing {
        finding.statement = format!(
            "{}; {} of {} {} calls of one run failed",
            finding.statement,
            failing.errors,
            failing.calls,
            failing.call.rsplit('/').next().unwrap_or(&failing.call)
        );
        finding.evidence.extend(failing.evidence.iter().cloned());
        finding.confidence += 0.1;
        let call = &failing.call;
        if let Some((calls, errors)) =
            view.good_reading("call.calls", call).zip(view.good_reading("call.errors", call))
        {
            finding.remarks.push(format!("in the baseline {errors} of {calls} calls fail"));
        }
    }
    if let Some(worst) = signs.directories.first() {
        finding.culprit.path = Some(worst.directory.clone());
        finding.culprit.process.clone_from(&worst.program);
        let names = worst.pattern.as_ref().map(|p| format!(", names like {p}")).unwrap_or_default();
        let unique =
            worst.unique.filter(|u| *u >= 0.9 * worst.failed).map(|_| ", each only once").unwrap_or_default();
        finding.statement =
            format!("{}; failed lookups in {}{names}{unique}", finding.statement, worst.directory);
        finding.evidence.extend(worst.evidence.iter().cloned());
        finding.confidence += 0.1;
        if let Some(known) = worst.pattern.as_deref().and_then(lookups::known) {
            finding.remarks.push(known.why.to_owned());
            if finding.culprit.process.is_none() {
                finding.culprit.process = Some(known.program.to_owned());
                finding.infer_culprit();
                finding.remarks.push(format!(
                    "the trace does not name its program; names like these are made by {}",
                    known.program
                ));
            }
        }
    }
    if let Some(pressure) = view.reading("sysctl.vm.vfs_cache_pressure", "") {
        finding.evidence.extend(view.reading_evidence("sysctl.vm.vfs_cache_pressure", ""));
        if pressure <= 100.0 {
            finding.remarks.push(format!(
                "vm.vfs_cache_pressure = {pressure} lets it grow: dentries are kept like file pages, however many"
            ));
        }
    }
}

fn remedies(finding: &Finding) -> Vec<Remedy> {
    let mut list = Vec::new();
    let by_pattern = lookups::known(&finding.statement);
    if let Some(known) = by_pattern {
        list.push(Remedy {
            action: known.remedy.to_owned(),
            command: known.command.to_owned(),
            verify: "strace -c -e trace=file COMMAND: a few dozen failing calls, not thousands".to_owned(),
            risk: "none known".to_owned(),
        });
    } else {
        list.push(Remedy {
            action: "stop the lookups of names that do not exist at their source".to_owned(),
            command: String::new(),
            verify: "cat /proc/sys/fs/dentry-state: the fifth number (negative) stops growing".to_owned(),
            risk: String::new(),
        });
    }
    list.push(Remedy {
        action: "let reclaim take dentries and inodes sooner than file pages".to_owned(),
        command: "sysctl -w vm.vfs_cache_pressure=1000".to_owned(),
        verify: "slabtop -o: the dentry cache stays small".to_owned(),
        risk: "directory walks have to read from disk more often".to_owned(),
    });
    list.push(Remedy {
        action: "drop the cache off-peak, before memory runs out".to_owned(),
        command: "echo 2 > /proc/sys/vm/drop_caches".to_owned(),
        verify: "grep SReclaimable /proc/meminfo".to_owned(),
        risk: "it causes the same stall, for as long as it takes to free them all; do it with no traffic"
            .to_owned(),
    });
    list
}

fn next(finding: &Finding) -> Vec<Next> {
    if finding.culprit.path.is_some() {
        return Vec::new();
    }
    vec![to_measure(
        "which program makes failed lookups, and of which names".to_owned(),
        "opensnoop -x -d 10   (or strace -f -e trace=file -p PID)".to_owned(),
    )]
}
