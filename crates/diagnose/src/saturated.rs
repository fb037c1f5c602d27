//! Block devices that are busy for most of the time, and whose requests queue.

use crate::condition::Finding;
use crate::device::{is_partition, is_stacked};
use crate::signal::step;
use crate::view::{High, View};
use crate::{words, xfs};

/// Busy for nine tenths of the time: what arrives nearly always finds a request before it.
pub const BUSY: f64 = 0.9;
/// On average at least two requests: with one, a single task waits for nothing but its own request.
const QUEUE: f64 = 2.0;
/// Whoever writes in turns with its own work leaves the device idle between. Busy for half of the time, with so many requests on average,
/// what arrives finds as many before it.
const HALF: f64 = 0.5;
const LONG_QUEUE: f64 = 8.0;
/// How far Little's law may be off: the columns are rounded and averaged apart.
const LITTLE: f64 = 0.25;

/// One saturated device.
#[derive(Debug, Clone)]
pub struct Saturated {
    /// Its name.
    pub device: String,
    /// When, and its utilisation.
    pub busy: High,
    /// Its mean queue.
    pub queue: f64,
    /// Seconds a request took, before and during.
    pub await_before_s: Option<f64>,
    /// The same in the run.
    pub await_s: f64,
    /// Requests per second, both ways.
    pub requests_s: f64,
    /// Bytes per second, both ways.
    pub bytes_per_s: f64,
    /// Of these, those that were read, where that is known.
    pub read_bytes_per_s: Option<f64>,
}

/// The saturated devices, the one that explains the others first: a stacked one before the one below it.
pub fn all(view: &View<'_>) -> Vec<Saturated> {
    let mut all: Vec<Saturated> = view
        .each("disk.io_time")
        .filter(|(device, _)| !is_partition(view, device))
        .filter_map(|(device, _)| one(view, device))
        .collect();
    all.sort_by(|a, b| {
        (is_stacked(&b.device), b.queue)
            .partial_cmp(&(is_stacked(&a.device), a.queue))
            .unwrap_or(std::cmp::Ordering::Equal)
    });
    all
}

fn one(view: &View<'_>, device: &str) -> Option<Saturated> {
    let busy = view.of("disk.io_time", device)?;
    let queue = view.of("disk.weighted_time", device)?;
    let full = busy.zip(&queue, |busy, queue| {
        step(busy >= BUSY && queue >= QUEUE || busy >= HALF && queue >= LONG_QUEUE)
    });
    let mut high = view.high_signal(&full, 1.0, 3.0, view.before("disk.io_time", device))?;
    let span = high.run.span();
    (high.during, high.peak) = (busy.within(span).mean()?, busy.within(span).max()?);
    let mean = |metric: &str| view.of(metric, device).and_then(|s| s.within(span).mean());
    let before = |metric: &str| view.before_span(metric, device, span);
    let both = |get: &dyn Fn(&str) -> Option<f64>| -> Option<(f64, f64)> {
        let sum = |a: &str, b: &str| match (get(a), get(b)) {
            (None, None) => None,
            (a, b) => Some(a.unwrap_or(0.0) + b.unwrap_or(0.0)),
        };
        let requests = sum("disk.reads", "disk.writes").or_else(|| get("disk.transfers"))?;
        let time = sum("disk.read_time", "disk.write_time").or_else(|| get("disk.transfer_time"))?;
        Some((requests, time))
    };
    let (requests_s, time) = both(&mean)?;
    let await_s = ratio(time, requests_s)?;
    let await_before_s = both(&before).and_then(|(requests, time)| ratio(time, requests));
    Some(Saturated {
        device: device.to_owned(),
        queue: queue.within(span).mean()?,
        await_before_s,
        await_s,
        requests_s,
        bytes_per_s: mean("disk.read_bytes").unwrap_or(0.0) + mean("disk.write_bytes").unwrap_or(0.0),
        read_bytes_per_s: mean("disk.read_bytes"),
        busy: high,
    })
}

fn ratio(a: f64, b: f64) -> Option<f64> {
    (b > 0.0).then(|| a / b)
}

/// The finding of a saturated device, which `disk-hog` builds upon.
pub fn finding(view: &View<'_>, disk: &Saturated) -> Finding {
    let mut finding = view.finding(&disk.busy.run);
    let span = disk.busy.run.span();
    finding.culprit.device = Some(disk.device.clone());
    let waited = match disk.await_before_s {
        Some(before) => {
            format!("requests took {} after {} before", words::seconds(disk.await_s), words::seconds(before))
        }
        None => format!("requests took {}", words::seconds(disk.await_s)),
    };
    finding.statement = format!(
        "{} was busy {} with {:.0} requests at a time; {waited}",
        disk.device,
        words::percent(disk.busy.during),
        disk.queue
    );
    let all = ["disk.io_time", "disk.weighted_time", "disk.reads", "disk.read_bytes", "disk.write_bytes"];
    for metric in all {
        finding.evidence.extend(view.evidence(metric, &disk.device, span));
    }
    // Little's law: what a request takes is the queue before it divided by the rate at which the device works it off.
    if let Some(by_queue) = ratio(disk.queue, disk.requests_s)
        && (by_queue / disk.await_s - 1.0).abs() < LITTLE
        && disk.requests_s > 0.0
    {
        finding.remarks.push(format!(
            "{} is not faulty by these numbers: {:.0} requests waiting and {}/s worked off make {} for each, which is \
             what they took; its latency is its queue, a single one takes about {}",
            disk.device,
            disk.queue,
            words::count(disk.requests_s),
            words::seconds(by_queue),
            words::seconds(disk.busy.during.min(1.0) / disk.requests_s)
        ));
    }
    finding.remarks.extend(xfs::remarks(view.set, &disk.device));
    finding
}
