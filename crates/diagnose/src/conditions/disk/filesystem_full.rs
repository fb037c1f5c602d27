//! A filesystem has no space left: writes to it fail with ENOSPC.
//!
//! No counter of the kernel says so; only asking for the free space does. What is left for programs without privileges is
//! counted: ext4 keeps a twentieth for root, and a service fails while `df` as root still shows room. A filesystem that was
//! full all the time is as it was meant to be (an image, a partition of logs that rotates at its limit); this is about one
//! that filled up. Where files cannot be made although there is space see `inode-exhaustion`.
//!
//! The process that wrote most while it filled is named where that is most of what filled it.

use crate::filesystems::{self, Full, Room};
use crate::prelude::*;

pub const CONDITION: Condition = Condition {
    id: "filesystem-full",
    title: "a filesystem has no space left",
    area: "disk",
    needs: &[
        "fs.avail_bytes",
        "fs.total_bytes",
        "fs.free_bytes",
        "fs.type",
        "fs.device",
        "task.write_bytes",
        "task.cancelled_write_bytes",
        "task.wchar",
    ],
    triggers: &[Trigger::Stretches {
        metrics: Room::Bytes.metrics(),
        find: |set, window| filesystems::stretches(set, window, Room::Bytes),
    }],
    observe,
    causes: &[
        effect("process-crash", "a program that cannot write ends"),
        effect("failing-fast", "a service that cannot write answers with an error at once"),
        effect("service-failing", "a service that cannot write fails"),
        effect("service-slow", "a service that cannot write tries again"),
        effect("crash-loop", "a program that cannot write ends, each time it is started"),
    ],
    remedies_of: remedies,
    next: &[
        measure("which calls fail with ENOSPC", "mitra capture errors --seconds 10"),
        measure("what grew", "find {path:/} -xdev -newermt '-1 hour' -size +10M -ls"),
    ],
    suspicions: &[Suspicion {
        rank: 40,
        name: "filesystem-nearly-full",
        when: "fs.avail_bytes{type!=squashfs, type!=erofs, type!=iso9660, type!=cramfs, type!=udf} / fs.total_bytes < 0.1%",
        arm: &["errors"],
        seconds: 5.0,
        cool_down_s: 1800.0,
        why: "A thousandth is less than what a write, a log file or a journal asks for at once. Then writes fail with \
              ENOSPC, and no counter shows it. Read-only images, which are always full, are left out.",
        ..Suspicion::NONE
    }],
    source: include_str!("filesystem_full.rs"),
    ..Condition::ROOT
};

/// Half of what filled it.
const SHARE: f64 = 0.5;

fn observe(view: &View<'_>) -> Observation {
    if !view.has("fs.avail_bytes") {
        return Observation::cannot_tell("free space of the filesystems: df -B1");
    }
    let filled = filesystems::filled(view.around, view.window, Room::Bytes);
    let Some(full) = filled.iter().min_by_key(|full| full.run.onset) else {
        return Observation::inactive("no filesystem ran out of space");
    };
    finding(view, full).active()
}

fn finding(view: &View<'_>, full: &Full<'_>) -> Finding {
    let span = full.run.span();
    let mut finding = view.finding(&full.run);
    finding.culprit.path = Some(full.mount.to_owned());
    finding.culprit.device = filesystems::device(view, full.mount);
    let took_s = words::between(full.had_at, full.run.onset).max(full.run.step_s);
    finding.statement = format!(
        "{} has no space left of {}: the last {} went within {}",
        full.mount,
        words::bytes(full.total),
        words::bytes(full.had),
        words::seconds(took_s),
    );
    finding.confidence = 0.8;
    if let Some(top) = filesystems::filler(view, full, SHARE) {
        finding.blame_top(&top);
        // Bytes are counted for each process, and not for each filesystem.
        finding.infer_culprit();
        finding.statement =
            format!("{}; {} wrote {} meanwhile", finding.statement, top.words(), words::bytes(top.total));
        finding.evidence.push(view.task_evidence("task.write_bytes", &top.lead, None, top.rate, span));
        finding.confidence = 0.95;
    }
    finding.evidence.extend(view.evidence_against("fs.avail_bytes", full.mount, Some(full.had), span));
    finding.prove(view, &["fs.free_bytes", "fs.total_bytes"], full.mount, span);
    if finding.evidence.iter().any(|e| e.metric == "fs.free_bytes" && e.during > 0.01 * full.total) {
        finding.remarks.push("root can still write: the rest is reserved for it".to_owned());
    }
    finding
}

fn remedies(finding: &Finding) -> Vec<Remedy> {
    let path = finding.culprit.path.as_deref().unwrap_or("/");
    let shell = words::shell(path);
    let mut list = vec![Remedy {
        action: format!(
            "free space on {path}: delete what grew last first; deleting a file that a program holds open frees nothing"
        ),
        command: format!("du -xh {shell} | sort -h | tail -20; lsof +L1 {shell}"),
        verify: format!("df -h {shell} shows free space, and the programs that failed write again"),
        risk:
            "make sure that nothing needs what is deleted; truncate a log that is open instead of deleting it"
                .to_owned(),
    }];
    if let (Some(process), Some(pid)) = (&finding.culprit.process, finding.culprit.pid) {
        list.push(Remedy {
            action: format!(
                "keep {process} from filling it again: rotate or limit what it writes, or give it its own \
                             filesystem or quota"
            ),
            command: format!("ls -l /proc/{pid}/fd"),
            verify: format!("df {path} does not grow over a day"),
            risk: "what is not written is missing later".to_owned(),
        });
    }
    list
}
