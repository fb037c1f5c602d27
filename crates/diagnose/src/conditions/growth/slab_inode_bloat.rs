//! The kernel's cache of inodes, and of the dentries that name them, holds most of memory.
//!
//! A walk over millions of files (backup, find, updatedb, a virus scanner) fills it once, and reclaim empties it without harm.
//! It is a disease when it holds a quarter of memory or more and memory is short: freeing inodes takes locks and time.
//! Dentries without inodes are `slab-dentry-bloat`.

use crate::growth;
use crate::prelude::*;
use crate::slabs;

pub const CONDITION: Condition = Condition {
    id: "slab-inode-bloat",
    title: "inodes fill memory",
    area: "growth",
    needs: &[
        "slab.num_objs",
        "slab.objsize",
        "slab.bytes",
        "mem.sreclaimable",
        "inode.nr",
        "task.system_time",
        "task.cpu_time",
    ],
    needs_of: &[growth::NEEDS],
    triggers: &[
        // Each is a kilobyte: a hundred megabytes.
        climbs(&["inode.nr"], |from, to| to - from >= 100_000.0 && to >= 2.0 * from),
    ],
    observe,
    causes: &[
        effect("page-cache-thrash", "the working set fitted before; inodes take its place"),
        effect("free-memory-low", "inodes leave nothing free"),
        effect("direct-reclaim", "tasks that need memory have to free inodes"),
        effect("kswapd-scanning", "a cache that grows pushes other pages out"),
        effect("page-cache-eviction", "file pages go to make room for inodes"),
    ],
    settings: Settings::new(
        "reclaim spares inodes",
        &[lowered("sysctl.vm.vfs_cache_pressure", Acts::WhenScarce)],
    ),
    remedies: &[Advice {
        action: "let reclaim take inodes and dentries sooner, and run full file walks off-peak",
        command: "sysctl -w vm.vfs_cache_pressure=500",
        verify: "slabtop -o -s c",
        risk: "directory walks have to read from disk more often",
    }],
    next: &[measure("which program walks over the files", "pidstat -d 1; opensnoop -d 10")],
    source: include_str!("slab_inode_bloat.rs"),
    ..Condition::ROOT
};

/// A quarter of memory.
const BLOAT_SHARE: f64 = 0.25;

/// The smallest inode of a file system on disk takes six hundred bytes, with its directory entry eight hundred.
const INODE_BYTES: f64 = 600.0;

/// A cache that grows before one's eyes until memory runs short.
fn growing(view: &View<'_>) -> Option<Finding> {
    let grown = growth::of(view, "mem.sreclaimable", "").filter(|g| growth::matters(view, g, BLOAT_SHARE))?;
    let size = grown.to - grown.from;
    let inodes = growth::of(view, "inode.nr", "").filter(|g| (g.to - g.from) * INODE_BYTES >= 0.4 * size)?;
    let scans = view.system("vm.pgscan_kswapd").and_then(|s| s.max()).is_some_and(|n| n >= SCANS_S);
    if growth::memory_short(view) != Some(true) && !scans {
        return None;
    }
    let mut finding = view.finding(&grown.run);
    let span = grown.run.span();
    finding.statement = format!(
        "{} more inodes than before are kept, and reclaimable kernel caches grew from {} to {}",
        words::count(inodes.to - inodes.from),
        words::bytes(grown.from),
        words::bytes(grown.to)
    );
    finding.prove(view, &["mem.sreclaimable", "inode.nr"], "", span);
    let by = |c: &slabs::Cache| c.bytes - c.before_bytes.unwrap_or(c.bytes);
    let caches = slabs::caches(view);
    let most = caches.iter().filter(|c| c.name.contains("inode")).max_by(|a, b| by(a).total_cmp(&by(b)));
    if let Some(cache) = most {
        finding.culprit.slab = Some(cache.name.clone());
        finding.evidence.extend(cache.evidence(view));
    }
    let tops = process::ranking(view.processes(), span, |p| process::in_kernel_s(p, view.set, span));
    if let Some(top) = tops.first().filter(|t| t.share >= 0.5) {
        finding.blame_pid(top.comm, top.pid());
        finding.infer_culprit();
        finding.remarks.push(format!(
            "{} used {} of the kernel's time meanwhile; that it walks over the files is inferred from that",
            top.words(),
            words::percent(top.share)
        ));
    }
    finding.confidence = 0.75;
    Some(finding)
}

/// Four megabytes a second of scanning.
const SCANS_S: f64 = 1000.0;

fn observe(view: &View<'_>) -> Observation {
    if !view.is_case
        && let Some(finding) = growing(view)
    {
        return finding.active();
    }
    let caches = slabs::caches(view);
    if caches.is_empty() {
        return Observation::needs_as("the sizes of the slab caches (slab.num_objs)", &["slab.num_objs"]);
    }
    let Some(memory) = view.memory_bytes() else { return Observation::needs(&["mem.total"]) };
    let inodes: Vec<_> = caches.iter().filter(|c| c.name.contains("inode")).collect();
    let bytes: f64 = inodes.iter().map(|c| c.bytes).sum();
    let Some(first) = inodes.first().filter(|_| bytes >= BLOAT_SHARE * memory) else {
        return Observation::Inactive(format!("inodes hold {}", words::bytes(bytes)));
    };
    if growth::memory_short(view) == Some(false) {
        return Observation::Inactive(format!("inodes hold {}; there is still room", words::bytes(bytes)));
    }
    let at = view.set.get("slab.num_objs", &first.name).and_then(|s| s.axis.t.first().copied());
    let mut finding = view.finding_at(at.unwrap_or(mitra_model::Era::Fact.zero()).max(view.window.since));
    finding.culprit.slab = Some(first.name.clone());
    finding.statement = format!(
        "inodes hold {} of {}, most of them {}",
        words::bytes(bytes),
        words::bytes(memory),
        first.name
    );
    finding.evidence = first.evidence(view);
    finding.confidence = 0.7;
    finding.active()
}
