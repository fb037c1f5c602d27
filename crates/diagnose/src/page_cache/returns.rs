//! How pages come back that were evicted, by which a flood and a thrash are told apart.

use mitra_model::Span;

use crate::device::is_partition;
use crate::process;
use crate::signal::Signal;
use crate::view::View;

/// Four megabytes a second of eviction: below, a machine trims its cache in passing.
pub const EVICTION_PAGES_S: f64 = 1000.0;
/// Pages a second that others fetch again. A page takes 0.1 ms from a fast SSD and 8 ms from a disk, so this is between
/// a hundredth and most of a task's time. Starting programs causes fewer.
pub const HARM_PAGES_S: f64 = 100.0;
/// The default readahead window is 128 KiB and a sequential reader fills it; random readers stay far below half.
pub const SEQUENTIAL_BYTES: f64 = 65_536.0;

/// Of the pages that a stream evicts a few in a hundred come back (other people's); of those that a working set which
/// does not fit evicts, most do, though fewer while it is read for the first time. A quarter lies between.
pub const THRASH_PER_STEAL: f64 = 0.25;

/// How pages come back, by which flood and thrash are told apart.
pub struct Return {
    /// Pages that come back for each page that is evicted, over all or in the last third, where there are more.
    pub per_steal: f64,
    /// Pages that are activated at once for each that comes back; `None` where the kernel does not count.
    pub activated: Option<f64>,
    /// Bytes of a mean read request of all devices; `None` where nothing was read.
    pub request_bytes: Option<f64>,
    /// Pages that others than who reads most read, for each that comes back.
    pub by_others: f64,
}

/// The pages that come back are others' if they read half as many.
const BY_OTHERS: f64 = 0.5;
/// Who reads so many times as much as all others is not one of several whose working sets are in each other's way.
const FAR_MORE: f64 = 2.0;

impl Return {
    /// Measures a span in which somebody reads most.
    pub fn of(view: &View<'_>, span: Span, reader: Option<&process::Top<'_>>) -> Option<Return> {
        let mean = |signal: Option<Signal>| signal.and_then(|s| s.within(span).mean());
        let refault = mean(view.refault_file())?;
        let steal = mean(view.steal())?;
        // What is read for the first time cannot come back: the more of a working set is known the more of it does.
        let last = Span { since: span.until - span.nanos() / 3, until: span.until };
        let late = |signal: Option<Signal>| signal.and_then(|s| s.within(last).mean());
        let late_per_steal = late(view.refault_file())
            .zip(late(view.steal()))
            .map_or(0.0, |(back, gone)| back / gone.max(1.0));
        let sum = |metric: &str| -> f64 { view.each(metric).filter_map(|(_, s)| s.mean(span)).sum() };
        let (bytes, reads) = (sum("disk.read_bytes"), sum("disk.reads"));
        Some(Return {
            per_steal: (refault / steal.max(1.0)).max(late_per_steal),
            activated: mean(view.system("vm.workingset_activate_file")).map(|a| a / refault.max(1.0)),
            request_bytes: (reads > 0.0).then(|| bytes / reads),
            by_others: reader.map_or(0.0, |reader| others_pages(view, reader, span) / refault.max(1.0)),
        })
    }

    /// Whether the pages that come back are wanted by who reads most: small reads of pages that are used again.
    pub fn is_thrash(&self) -> bool {
        let activated = self.activated.unwrap_or(1.0);
        let small = self.request_bytes.is_none_or(|bytes| bytes < SEQUENTIAL_BYTES);
        self.per_steal >= THRASH_PER_STEAL && (small || activated >= 0.5) && self.by_others < BY_OTHERS
    }
}

/// Pages a second that others read than one who reads far more than they do; none where nobody does.
fn others_pages(view: &View<'_>, reader: &process::Top<'_>, span: Span) -> f64 {
    let others = view.processes().iter().filter(|p| !p.kthread && !reader.members.contains(&p.pid));
    let bytes: f64 = others.map(|p| p.total(view.set, "task.read_bytes", span)).sum();
    if reader.total < FAR_MORE * bytes { 0.0 } else { bytes / view.page_bytes() / span.seconds().max(1e-9) }
}

/// The device that was read most; of equals the one on top.
pub fn busiest_reader_device(view: &View<'_>, span: Span) -> Option<String> {
    view.each("disk.read_bytes")
        .filter(|(device, _)| !is_partition(view, device))
        .filter_map(|(device, series)| Some((device, series.mean(span)?)))
        .filter(|(_, rate)| *rate > 0.0)
        .max_by(|a, b| a.1.total_cmp(&b.1))
        .map(|(device, _)| device.to_owned())
}
