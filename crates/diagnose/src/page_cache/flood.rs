//! A flood told by devices: what is left when nobody recorded which process read.
//!
//! One device is read by itself more than the cache can hold, in large requests, while pages are evicted; and others have
//! to fetch again what they had: mapped pages by major faults, files from other devices. A reader that re-reads its own
//! pages hurts itself: then no other device and no other process is worse off.

use mitra_model::report::Evidence;

use super::{Eviction, Fall, Reader, ends_apart_s, flooding_device, victims};
use crate::condition::{Finding, Observation};
use crate::page_cache::returns::{HARM_PAGES_S, SEQUENTIAL_BYTES};
use crate::view::View;
use crate::{process, words};

/// Looks.
pub fn observe(view: &View<'_>) -> Observation {
    let eviction = Eviction::of(view);
    let Some(flood) = flooding_device(view) else {
        return match view.each("disk.read_bytes").next() {
            Some(_) => Observation::inactive("no device was read much more than all others"),
            None if eviction.is_some() => Observation::cannot_tell(
                "reads of each process or device while pages were evicted: pidstat -d 1, iostat -x 1, sar -d",
            ),
            None => Observation::needs_as("reads of each process (task.read_bytes)", &["task.read_bytes"]),
        };
    };
    let Some(eviction) = eviction else {
        return Observation::cannot_tell(
            "whether pages were evicted: sar -B 1 (pgscank/s, pgsteal/s), /proc/vmstat",
        );
    };
    if flood.request_bytes.is_some_and(|bytes| bytes < SEQUENTIAL_BYTES) {
        return Observation::Inactive(format!(
            "{} was read by requests of {}: not one after the other",
            flood.device,
            words::bytes(flood.request_bytes.unwrap_or(0.0))
        ));
    }
    let holds = view.reading("mem.cached", "").map(|c| c.max(view.memory_bytes().unwrap_or(0.0) / 2.0));
    if holds.or_else(|| view.memory_bytes()).is_some_and(|cache| flood.total < cache) {
        return Observation::Inactive(format!(
            "{} was read for {}, which the cache can hold",
            flood.device,
            words::bytes(flood.total)
        ));
    }
    let again = victims(view, &flood);
    let faults = view.high("vm.pgmajfault", "", HARM_PAGES_S, 3.0);
    if again.is_empty() && faults.is_none() {
        return match view.system("vm.pgmajfault") {
            Some(_) => {
                Observation::Inactive(format!("{} was read and no other process was affected", flood.device))
            }
            None => Observation::cannot_tell("whether others had to fetch pages again: sar -B 1, sar -d 1"),
        };
    }
    let tops = top_readers(view, &flood);
    if again.is_empty() && faults_are_of(view, tops.first(), &flood) {
        return Observation::Inactive(format!(
            "{} was read by {}, and the pages that are fetched again are its own",
            flood.device,
            tops.first().map_or_else(|| "one program".to_owned(), process::Top::words)
        ));
    }
    let mut finding = finding(view, &flood, &eviction, &again);
    if let Some(top) = tops.first() {
        // It opens with who did it, where that was recorded.
        if let Some(rest) = finding.statement.strip_prefix(SOMEBODY) {
            finding.statement = format!("{}{rest}", top.words());
        }
        finding.blame_top(top);
        finding.evidence.push(view.task_evidence(
            "task.read_bytes",
            &top.lead,
            None,
            top.rate,
            flood.run.span(),
        ));
        finding.confidence += 0.1;
    }
    finding.active()
}

/// Who reads, as the statement has it where nobody knows.
const SOMEBODY: &str = "somebody";

/// The program that did most of the reading while the device was read, where that was recorded.
fn top_readers<'a>(view: &View<'a>, flood: &Reader) -> Vec<process::Top<'a>> {
    let span = flood.run.span();
    let read = |p: &process::Process<'_>| p.total(view.set, "task.read_bytes", span);
    let mut tops = process::ranking(view.processes(), span, read);
    // As much as the device delivered, or it read something else at another time.
    tops.retain(|top| top.share >= SHARE && top.rate >= SHARE * flood.during);
    tops
}

/// Whether the major faults are those of the reader itself: then it wants its own pages again.
fn faults_are_of(view: &View<'_>, top: Option<&process::Top<'_>>, flood: &Reader) -> bool {
    let span = flood.run.span();
    let faults = process::ranking(view.processes(), span, |p| p.total(view.set, "task.majflt", span));
    top.zip(faults.first())
        .is_some_and(|(reader, faults)| faults.comm == reader.comm && faults.share >= SHARE)
}

/// More than all others together.
const SHARE: f64 = 0.5;

fn finding(view: &View<'_>, flood: &Reader, eviction: &Eviction, again: &[Reader]) -> Finding {
    let span = flood.run.span();
    let mut finding = view.finding(&flood.run);
    finding.culprit.device = Some(flood.device.clone());
    let before = flood.before.map(|b| format!(" after {}/s before", words::bytes(b))).unwrap_or_default();
    let evicted =
        eviction.bytes.map(|b| format!(", {} of pages went for it", words::bytes(b))).unwrap_or_default();
    let hurt: Vec<&str> = again.iter().map(|r| r.device.as_str()).collect();
    let faults = view.high("vm.pgmajfault", "", HARM_PAGES_S, 3.0);
    let mut harm: Vec<String> = Vec::new();
    if let Some(faults) = &faults {
        let before = faults.before.map(|b| format!(" ({} before)", words::count(b))).unwrap_or_default();
        harm.push(format!("{} major faults/s{before}", words::count(faults.during)));
    }
    if !hurt.is_empty() {
        harm.push(format!("reads of {} that were not there before", hurt.join(" and ")));
    }
    finding.statement = format!(
        "{SOMEBODY} read {} from {}, {}/s{before}{evicted}; others had to fetch their pages again: {}",
        words::bytes(flood.total),
        flood.device,
        words::bytes(flood.during),
        harm.join(", ")
    );
    finding.evidence.extend(view.evidence("disk.read_bytes", &flood.device, span));
    finding.evidence.extend(eviction.evidence.iter().cloned());
    finding.evidence.extend(view.evidence("vm.pgmajfault", "", faults.map_or(span, |f| f.run.span())));
    finding.evidence.extend(anonymous(view));
    finding.remarks = remarks(view, flood, again);
    // Which process reads is not known; the device is.
    finding.confidence = if flood.before.is_some() { 0.8 } else { 0.7 };
    finding
}

/// Anonymous memory beside the file pages: when it hardly moves, no process' own demand pushed them out.
fn anonymous(view: &View<'_>) -> Option<Evidence> {
    let files = Fall::of(view, "mem.active_file").or_else(|| Fall::of(view, "mem.cached"))?;
    view.evidence("mem.anon", "", files.run.span())
}

/// What is easily taken the wrong way.
fn remarks(view: &View<'_>, flood: &Reader, again: &[Reader]) -> Vec<String> {
    let mut list = Vec::new();
    // Said only of a device that does not get slower by the flood.
    let is_as_fast = |await_s: &f64| flood.await_before_s.is_none_or(|before| *await_s <= 2.0 * before);
    if let Some(await_s) = flood.await_s.filter(is_as_fast) {
        list.push(format!(
            "{} is the cause although its requests take only {}: saturation is not latency, and a device that is fast \
             enough to serve the flood is fast enough to empty the cache",
            flood.device,
            words::seconds(await_s)
        ));
    }
    for victim in again {
        let mut text = format!(
            "{} is a victim: its reads rose from {} to {} with the flood",
            victim.device,
            victim.before.map_or_else(|| "an unknown rate".to_owned(), |b| format!("{}/s", words::bytes(b))),
            format_args!("{}/s", words::bytes(victim.during))
        );
        let step = flood.run.step_s.max(victim.run.step_s);
        if ends_apart_s(&flood.run, &victim.run).is_some_and(|apart| apart <= 2.0 * step) {
            text.push_str(" and stopped with it");
        }
        list.push(text);
    }
    if let Some(text) = stops_together(view, flood, again) {
        list.push(text);
    }
    list.extend(watermarks(view));
    if let Some(swappiness) = view.reading("sysctl.vm.swappiness", "").filter(|s| *s <= 10.0) {
        list.push(format!(
            "vm.swappiness = {swappiness}: reclaim takes file pages and hardly any anonymous ones, so all of the \
             pressure falls on the page cache"
        ));
    }
    list
}

/// In a stretch of its own (another file, another hour) the flood and what it does to others end in the same sample.
fn stops_together(view: &View<'_>, flood: &Reader, again: &[Reader]) -> Option<String> {
    let signal = view.of("disk.read_bytes", &flood.device)?;
    let level = 0.1 * signal.max()?;
    let ends = signal.runs(level).into_iter().filter(|r| !r.lasts);
    for run in ends {
        let calm: Vec<&str> = again
            .iter()
            .filter(|victim| {
                let Some(busy) = view.of("disk.io_time", &victim.device) else { return false };
                let step = (run.step_s * 1e9) as i64;
                let mean = |from: i64, to: i64| {
                    busy.within(mitra_model::Span { since: from + 1, until: to + 1 }).mean()
                };
                // Three samples on each side of the end, the one right after it left out: it is half of each.
                let during = mean(run.end - 3 * step, run.end - step);
                let after = mean(run.end + step, run.end + 4 * step);
                during.zip(after).is_some_and(|(during, after)| during >= 0.8 && after <= 0.5 * during)
            })
            .map(|victim| victim.device.as_str())
            .collect();
        if !calm.is_empty() {
            return Some(format!(
                "when the reads of {} stop ({}), the saturation of {} stops with them",
                flood.device,
                mitra_model::report::Moment(run.end),
                calm.join(" and ")
            ));
        }
    }
    None
}

/// A sample of the zones with all of them far above their watermarks was taken after the eviction, or reclaim would run.
fn watermarks(view: &View<'_>) -> Option<String> {
    let mut zones = 0;
    for (zone, series) in view.each("zone.free") {
        let free = series.last(mitra_model::Span::ALL)?;
        let high = view.reading("zone.high", zone).or_else(|| view.reading("zone.low", zone))?;
        zones += 1;
        // Reclaim stops at the high watermark.
        if free < 2.0 * high {
            return None;
        }
    }
    (zones > 0).then(|| {
        format!(
            "no watermark was being hit when the zones were sampled: each of the {zones} has far more free pages than \
             its high watermark, so that sample was taken after the eviction"
        )
    })
}
