//! A block device is busy all the time and its requests queue.
//!
//! `%util` of a device that works in parallel is not saturation by itself, so a queue is asked for too, and that
//! requests take longer than before or more of them wait than one task at a time would make. A device that is full
//! with short service times is loaded by someone; one with long times and a short queue is slow. Where an XFS on it is not
//! laid out as its array is, that is told beside it.

use crate::device;
use crate::prelude::*;
use crate::saturated;
use crate::xfs;

pub const CONDITION: Condition = Condition {
    id: "disk-saturated",
    title: "a device is saturated and its requests queue",
    area: "disk",
    needs: &["disk.io_time", "disk.transfers", "disk.transfer_time"],
    needs_of: &[device::NEEDS, xfs::NEEDS],
    triggers: &[each_above(&["disk.io_time"], saturated::BUSY)],
    observe,
    causes: &[
        effect("pressure-io", "requests wait in the queue"),
        effect("tasks-in-d-state", "tasks wait for their requests"),
        effect("service-slow", "a server that waits for the device answers late"),
        effect("lock-queue", "the lock holder waits for the device"),
        effect("iowait-high", "a CPU idles while a task of it waits for the device"),
    ],
    suspicions: &[Suspicion {
        rank: 150,
        name: "io-stall",
        when: "psi.io_full > 40% for 5s",
        arm: &["offcpu d-only"],
        cool_down_s: 120.0,
        why: "For two fifths of the time all tasks that could run wait for I/O (PSI full). The stacks show for which \
              file system and call.",
        ..Suspicion::NONE
    }],
    source: include_str!("disk_saturated.rs"),
    ..Condition::MECHANISM
};

/// Further saturated devices that are named.
const OTHERS: usize = 3;

fn observe(view: &View<'_>) -> Observation {
    if !view.has("disk.io_time") {
        return Observation::needs(&["disk.io_time"]);
    }
    let disks = saturated::all(view);
    match disks.first() {
        Some(disk) => {
            let mut finding = saturated::finding(view, disk);
            for other in disks.iter().skip(1).take(OTHERS) {
                let also = saturated::finding(view, other);
                finding.statement = format!("{}; {}", finding.statement, also.statement);
                finding.evidence.extend(also.evidence);
                finding.remarks.extend(also.remarks);
            }
            finding.active()
        }
        None => {
            let most = view
                .each("disk.io_time")
                .map(|(device, series)| (device, Signal::of(series, view.window).max().unwrap_or(0.0)))
                .max_by(|a, b| a.1.total_cmp(&b.1));
            Observation::Inactive(match most {
                Some((device, busy)) => {
                    format!(
                        "the busiest device, {device}, was busy for {} at most without a lasting queue",
                        words::percent(busy.min(1.0))
                    )
                }
                None => "no device did anything".to_owned(),
            })
        }
    }
}
