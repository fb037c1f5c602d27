//! A filesystem has no space left: writes to it fail with ENOSPC.
//!
//! No counter of the kernel says so; only asking for the free space does. What is left for programs without privileges is
//! counted: ext4 keeps a twentieth for root, and a service fails while `df` as root still shows room. A filesystem that was
//! full all the time is as it was meant to be (an image, a partition of logs that rotates at its limit); this is about one
//! that filled up. Where files cannot be made although there is space see `inode-exhaustion`.
//!
//! Who wrote most while it filled is named where that is most of what filled it.

use mitra_model::report::{Next, Remedy};

use crate::condition::{Condition, Finding, Observation, Role};
use crate::space::{self, Full, Room};
use crate::view::View;
use crate::words;

/// The condition.
pub const CONDITION: Condition = Condition {
    id: "filesystem-full",
    title: "a filesystem has no space left",
    role: Role::Root,
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
    observe,
    remedies,
    next,
    source: include_str!("filesystem_full.rs"),
};

/// Half of what filled it.
const SHARE: f64 = 0.5;

fn observe(view: &View<'_>) -> Observation {
    if view.each("fs.avail_bytes").next().is_none() {
        return Observation::CannotTell("free space of the filesystems: df -B1".to_owned());
    }
    let filled = space::filled(view.around, view.window, Room::Bytes);
    let Some(full) = filled.iter().min_by_key(|full| full.run.onset) else {
        return Observation::Inactive("no filesystem ran out of space".to_owned());
    };
    Observation::Active(Box::new(finding(view, full)))
}

fn finding(view: &View<'_>, full: &Full<'_>) -> Finding {
    let span = full.run.span();
    let mut finding = view.finding(&full.run);
    finding.culprit.path = Some(full.mount.to_owned());
    finding.culprit.device = device(view, full.mount);
    let took_s = words::between(full.had_at, full.run.onset).max(full.run.step_s);
    finding.statement = format!(
        "{} has no space left of {}: the last {} went within {}",
        full.mount,
        words::bytes(full.total),
        words::bytes(full.had),
        words::seconds(took_s),
    );
    finding.confidence = 0.8;
    if let Some(top) = space::filler(view, full, SHARE) {
        finding.culprit.process = Some(top.comm.to_owned());
        finding.culprit.pid = Some(top.pid());
        finding.culprit.cgroup = top.lead.cgroup.filter(|c| *c != "/").map(str::to_owned);
        finding.statement =
            format!("{}; {} wrote {} meanwhile", finding.statement, top.words(), words::bytes(top.total));
        finding.evidence.push(view.task_evidence("task.write_bytes", &top.lead, None, top.rate, span));
        finding.confidence = 0.95;
    }
    let mut left = view.evidence("fs.avail_bytes", full.mount, span);
    if let Some(left) = &mut left {
        left.before = Some(full.had);
    }
    finding.evidence.extend(left);
    finding.evidence.extend(view.evidence("fs.free_bytes", full.mount, span));
    finding.evidence.extend(view.evidence("fs.total_bytes", full.mount, span));
    if finding.evidence.iter().any(|e| e.metric == "fs.free_bytes" && e.during > 0.01 * full.total) {
        finding.remarks.push("root can still write: what is left is kept for it".to_owned());
    }
    finding
}

/// The device that is mounted there, by the name that its own numbers have.
pub(super) fn device(view: &View<'_>, mount: &str) -> Option<String> {
    let device = view.set.text("fs.device", mount)?.last()?;
    device.strip_prefix("/dev/").map(str::to_owned)
}

fn remedies(finding: &Finding) -> Vec<Remedy> {
    let path = finding.culprit.path.as_deref().unwrap_or("/");
    let mut list = vec![Remedy {
        action: format!(
            "make room on {path}: what grew last goes first; a file that is deleted while a program holds it stays"
        ),
        command: format!("du -xh {path} | sort -h | tail -20; lsof +L1 {path}"),
        verify: format!("df -h {path} shows free space, and the programs that failed write again"),
        risk:
            "make sure that nobody needs what is deleted; truncate a log that is open instead of deleting it"
                .to_owned(),
    }];
    if let (Some(process), Some(pid)) = (&finding.culprit.process, finding.culprit.pid) {
        list.push(Remedy {
            action: format!("keep {process} from filling it again: rotate or bound what it writes, or give it a filesystem or a quota of its own"),
            command: format!("ls -l /proc/{pid}/fd"),
            verify: format!("df {path} stays where it is over a day"),
            risk: "what is not written is not there when it is needed".to_owned(),
        });
    }
    list
}

fn next(finding: &Finding) -> Vec<Next> {
    let path = finding.culprit.path.as_deref().unwrap_or("/");
    vec![
        Next {
            measure: "whose calls fail with ENOSPC".to_owned(),
            command: "mitra capture errors --seconds 10".to_owned(),
        },
        Next {
            measure: "what grew".to_owned(),
            command: format!("find {path} -xdev -newermt '-1 hour' -size +10M -ls"),
        },
    ]
}
