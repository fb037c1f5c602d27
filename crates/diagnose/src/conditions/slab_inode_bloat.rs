//! The kernel's cache of inodes, and of the dentries that name them, holds most of memory.
//!
//! A walk over millions of files (backup, find, updatedb, a virus scanner) fills it once, and reclaim empties it without harm.
//! It is a disease when it holds a quarter of memory or more and memory is short: freeing inodes takes locks and time.
//! Dentries without inodes are `slab-dentry-bloat`.

use mitra_model::report::{Next, Remedy};

use crate::condition::{Condition, Finding, Observation, Role};
use crate::growth;
use crate::slabs;
use crate::view::View;
use crate::words;

/// The condition.
pub const CONDITION: Condition = Condition {
    id: "slab-inode-bloat",
    title: "inodes fill memory",
    role: Role::Root,
    area: "growth",
    needs: &[
        "slab.num_objs",
        "slab.objsize",
        "slab.bytes",
        "mem.total",
        "mem.free",
        "mem.available",
        "psi.memory_some",
        "vm.pgscan_direct",
        "vm.pswpout",
        "vm.oom_kill",
    ],
    observe,
    remedies,
    next,
    source: include_str!("slab_inode_bloat.rs"),
};

/// A quarter of memory.
const BLOAT_SHARE: f64 = 0.25;

fn observe(view: &View<'_>) -> Observation {
    let caches = slabs::caches(view);
    if caches.is_empty() {
        return Observation::CannotTell("the sizes of the slab caches (slab.num_objs)".to_owned());
    }
    let Some(memory) = view.memory_bytes() else { return Observation::CannotTell("mem.total".to_owned()) };
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
    finding.evidence = first.evidence.clone();
    finding.confidence = 0.7;
    Observation::Active(Box::new(finding))
}

fn remedies(_: &Finding) -> Vec<Remedy> {
    vec![Remedy {
        action:
            "let reclaim take inodes and dentries sooner, and keep walks over all files away from busy hours"
                .to_owned(),
        command: "sysctl -w vm.vfs_cache_pressure=500".to_owned(),
        verify: "slabtop -o -s c".to_owned(),
        risk: "directory walks have to read from disk more often".to_owned(),
    }]
}

fn next(_: &Finding) -> Vec<Next> {
    vec![Next {
        measure: "who walks over the files".to_owned(),
        command: "pidstat -d 1; opensnoop -d 10".to_owned(),
    }]
}
