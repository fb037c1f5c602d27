//! Lost time: the ledger of the whole window in words.

use mitra_model::report::{CauseShare, Ledger, Window};

use crate::render::page::Page;
use crate::render::style::Ink;
use crate::render::text::{short_seconds, window_length};
use crate::render::units;

/// Causes and processes that text names.
const NAMED_MAX: usize = 5;
/// The only cause whose time is not that of tasks.
const CLIENT_WAIT: &str = "client-wait";
/// Less is told as 0.0 s.
pub const TOLD_S: f64 = 0.05;

pub fn text(page: &mut Page<'_>, ledger: &Ledger, window: Window) {
    let causes = ledger.by_cause.iter().map(|c| (c.cause.clone(), c.seconds));
    let processes = ledger.by_process.iter().map(|p| (format!("{} ({})", p.name, p.pid), p.seconds));
    let lists = [("by cause", named(causes)), ("by process", named(processes))];
    if lists.iter().all(|(_, list)| list.is_empty()) {
        return;
    }
    page.heading(&heading(ledger, window));
    for (label, list) in lists.iter().filter(|(_, list)| !list.is_empty()) {
        page.labelled(2, label, 10, Some(Ink::Faint), list);
    }
    for remark in remarks(ledger) {
        page.labelled(2, "", 10, Some(Ink::Faint), remark);
    }
}

fn named(all: impl Iterator<Item = (String, f64)>) -> String {
    let told = all.filter(|(_, s)| *s >= TOLD_S).take(NAMED_MAX);
    told.map(|(name, s)| format!("{name} {}", short_seconds(s))).collect::<Vec<_>>().join(", ")
}

pub fn heading(ledger: &Ledger, window: Window) -> String {
    let all = ledger.lost_task_seconds.map_or_else(String::new, |lost| {
        format!(": {} in {}", units::task_seconds(lost), window_length(window))
    });
    format!("Time lost in the whole window{all}")
}

/// Why the causes do not add up to the total.
pub fn remarks(ledger: &Ledger) -> Vec<&'static str> {
    let of_tasks = ledger.by_cause.iter().filter(|cause| cause.cause != CLIENT_WAIT);
    let sum: f64 = of_tasks.map(|cause| cause.seconds).sum();
    let mut remarks = Vec::new();
    if ledger.lost_task_seconds.is_some_and(|total| sum > total + TOLD_S) {
        remarks.push(
            "The total is time spent waiting for a CPU or in D state. Causes overlap, and reclaim, compaction, copies and \
             interrupts have their time on a CPU in them, so a cause can be longer than the total.",
        );
    }
    if ledger.by_cause.iter().any(|cause| cause.cause == CLIENT_WAIT && cause.seconds >= TOLD_S) {
        remarks.push("client-wait is the time of clients of services, and no part of the total.");
    }
    remarks
}

/// Lost time as the end of a sentence. Files hardly ever have it, so its absence is not mentioned.
pub fn sentence(ledger: &Ledger, files: bool) -> String {
    let Some(lost) = ledger.lost_task_seconds else {
        return if files { String::new() } else { "; lost time could not be measured".to_owned() };
    };
    let mut text = format!("; tasks lost {} altogether", units::task_seconds(lost));
    // What includes time on a CPU may be longer than all of it.
    let is_part =
        |cause: &&CauseShare| cause.cause != CLIENT_WAIT && (TOLD_S..=lost).contains(&cause.seconds);
    if let Some(most) = ledger.by_cause.iter().find(is_part) {
        text.push_str(&format!(", most of it to {} ({})", most.cause, short_seconds(most.seconds)));
        if let Some(who) = ledger.by_process.first() {
            text.push_str(&format!(", {} ({}) most of all", who.name, who.pid));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_that_do_not_add_up_are_explained() {
        let of = |causes: &[(&str, f64)]| {
            let by_cause = causes
                .iter()
                .map(|(cause, seconds)| CauseShare { cause: (*cause).into(), seconds: *seconds });
            Ledger { lost_task_seconds: Some(1.5), by_cause: by_cause.collect(), by_process: Vec::new() }
        };
        assert_eq!(remarks(&of(&[("run-queue", 1.0), ("lock", 0.5)])).len(), 0);
        let both = remarks(&of(&[("reclaim", 8.1), (CLIENT_WAIT, 0.1)]));
        assert!(both.len() == 2 && both[0].contains("overlap") && both[1].contains("clients"), "{both:?}");
        assert_eq!(
            remarks(&of(&[("run-queue", 1.0), (CLIENT_WAIT, 9.0)])).len(),
            1,
            "that is no part of the total"
        );
    }
}
