//! A filesystem has no inode left: no file can be made on it, however much space is free.
//!
//! ext4 fixes the number of inodes when it is made; mail queues, caches and sessions with millions of small files use them
//! up, and `df -h` shows space. Programs get the same ENOSPC as on a full filesystem. XFS and btrfs make inodes as needed:
//! there only the space counts, and the number of free inodes that XFS shows is what would fit into it. So a filesystem
//! that has no space either is `filesystem-full`.

use crate::filesystems::{self, Full, Room};
use crate::prelude::*;

pub const CONDITION: Condition = Condition {
    id: "inode-exhaustion",
    title: "a filesystem has no inodes left",
    area: "disk",
    needs: &[
        "fs.inodes_free",
        "fs.inodes",
        "fs.avail_bytes",
        "fs.total_bytes",
        "fs.type",
        "fs.device",
        "task.syscw",
        "task.write_bytes",
        "task.system_time",
    ],
    triggers: &[Trigger::Stretches {
        metrics: Room::Inodes.metrics(),
        find: |set, window| filesystems::stretches(set, window, Room::Inodes),
    }],
    observe,
    causes: &[
        effect("process-crash", "a program that cannot make a file ends"),
        effect("failing-fast", "a service that cannot make a file answers with an error at once"),
        effect("service-failing", "a service that cannot make a file fails"),
        effect("service-slow", "a service that cannot make a file tries again"),
        effect("crash-loop", "a program that cannot make a file ends, each time it is started"),
    ],
    remedies: &[Advice {
        action: "delete the small files that are no longer needed on {path:/}; ext4 cannot add inodes, only a new \
                 filesystem has more",
        command: "du -x --inodes {path:/} | sort -n | tail -20",
        verify: "df -i {path:/} shows free inodes",
        risk: "make sure that nothing needs what is deleted",
    }],
    next: &[
        measure("which directory has the files", "du -x --inodes -d 3 {path:/} | sort -n | tail"),
        measure("which calls fail with ENOSPC", "mitra capture errors --seconds 10"),
    ],
    source: include_str!("inode_exhaustion.rs"),
    ..Condition::ROOT
};

/// Of the work in the kernel while the inodes went: making files is such work, and half of all is most.
const SHARE: f64 = 0.5;
/// To make a file takes an inode, an entry of a directory and their part in the journal, which no CPU does in less: who worked for a
/// shorter time than that for each cannot have made them.
const MAKE_S: f64 = 3e-6;

fn observe(view: &View<'_>) -> Observation {
    if !view.has("fs.inodes_free") {
        return Observation::cannot_tell("free inodes of the filesystems: df -i");
    }
    let without_space = filesystems::filled(view.around, view.window, Room::Bytes);
    let filled = filesystems::filled(view.around, view.window, Room::Inodes);
    let of_files = |full: &&Full<'_>| !without_space.iter().any(|other| other.mount == full.mount);
    match filled.iter().filter(of_files).min_by_key(|full| full.run.onset) {
        Some(full) => finding(view, full).active(),
        None => Observation::inactive("no filesystem ran out of inodes with space left"),
    }
}

fn finding(view: &View<'_>, full: &Full<'_>) -> Finding {
    let span = full.run.span();
    let mut finding = view.finding(&full.run);
    finding.culprit.path = Some(full.mount.to_owned());
    finding.culprit.device = filesystems::device(view, full.mount);
    let free = view.set.get("fs.avail_bytes", full.mount).and_then(|s| s.mean(span));
    let took_s = words::between(full.had_at, full.run.onset).max(full.run.step_s);
    finding.statement = format!(
        "{} has none of its {} inodes left{}: the last {} went within {}",
        full.mount,
        words::count(full.total),
        free.map(|b| format!(", with {} of space", words::bytes(b))).unwrap_or_default(),
        words::count(full.had),
        words::seconds(took_s),
    );
    finding.confidence = 0.85;
    let (since, left) = full.known(view);
    // The last of them went in the sample at whose end there was none left; samples are not all equally long.
    let sample_ns = (1.5 * full.run.step_s * SECOND as f64) as i64;
    let making = Span { since, until: full.run.onset.saturating_add(sample_ns) };
    let tops = process::ranking(view.processes(), making, |p| p.total(view.set, "task.system_time", making));
    if let Some(top) = tops.first().filter(|top| top.share >= SHARE && top.total >= MAKE_S * left) {
        finding.blame_top(top);
        // What it did in the kernel is not counted.
        finding.infer_culprit();
        finding.statement =
            format!("{}; {} did most of the work in the kernel meanwhile", finding.statement, top.words());
        finding.evidence.push(view.task_evidence("task.system_time", &top.lead, None, top.rate, span));
    }
    finding.evidence.extend(view.evidence_against("fs.inodes_free", full.mount, Some(full.had), span));
    finding.prove(view, &["fs.inodes", "fs.avail_bytes"], full.mount, span);
    finding
}
