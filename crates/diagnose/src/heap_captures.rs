//! What looks into the memory of a growing process found: captures of kind `heap`.
//!
//! A look says what the memory is made of at one moment. That it grows is told by the recording; what grows, by two looks, or, with
//! one, by what most of the memory is. Memory that the allocator holds without use is no leak: it was freed.

use mitra_model::capture::heap::{HeapRow, KIND};
use mitra_model::{Event, EventKind, Span};

use crate::condition::{Finding, Observation};
use crate::growth::{self, Growth};
use crate::process::Process;
use crate::signal::Signal;
use crate::view::View;
use crate::words;

/// One look.
pub struct HeapCapture<'a> {
    event: &'a Event,
    pid: u32,
    comm: &'a str,
    /// Anonymous bytes.
    pub resident: f64,
    /// Bytes that the C heap has given out.
    pub in_use: Option<f64>,
    /// Bytes that it holds without use.
    pub free: Option<f64>,
    /// What the runtime knows of: its name, bytes.
    pub managed: Option<(&'a str, f64)>,
    /// Types by bytes, with count and holder.
    pub types: Vec<HeapKind<'a>>,
    /// Strings by bytes.
    pub strings: Vec<HeapKind<'a>>,
    /// Chunks of the C heap by bytes.
    pub chunks: Vec<HeapKind<'a>>,
}

/// Things that are there often.
pub struct HeapKind<'a> {
    /// The type, or the text.
    pub name: &'a str,
    /// How many.
    pub count: f64,
    /// Their bytes.
    pub bytes: f64,
    /// Who holds them.
    pub holder: Option<&'a str>,
    /// The library whose they seem to be.
    pub library: Option<&'a str>,
}

/// A process that grows and was looked into.
pub struct GrownProcess<'v, 'a> {
    process: &'v Process<'a>,
    growth: Growth,
    /// The first look, where there are two.
    before: Option<HeapCapture<'a>>,
    /// The last.
    pub now: HeapCapture<'a>,
}

/// A hundred megabytes: less is what programs take and give back.
const LARGE: f64 = 1e8;
/// More than half of what grew is what makes it grow.
const MOST: f64 = 0.5;
/// A look may come long after the growth began, and an hour after the one before.
const LOOK_BEFORE_NS: i64 = 2 * 3_600_000_000_000;
/// A look is armed on a suspicion, and reads for some seconds.
const LOOK_AFTER_NS: i64 = 60_000_000_000;

fn look<'a>(event: &'a Event) -> Option<HeapCapture<'a>> {
    let EventKind::Capture { capture, tops, .. } = &event.kind else { return None };
    let first = tops.first().filter(|_| capture == KIND)?;
    let mut look = HeapCapture {
        event,
        pid: first.pid?,
        comm: &first.comm,
        resident: 0.0,
        in_use: None,
        free: None,
        managed: None,
        types: Vec::new(),
        strings: Vec::new(),
        chunks: Vec::new(),
    };
    for row in tops {
        let kind = |name| HeapKind { name, count: row.count, bytes: row.amount, holder: None, library: None };
        match HeapRow::parse(&row.what) {
            Some(HeapRow::Resident) => look.resident = row.amount,
            Some(HeapRow::InUse) => look.in_use = Some(row.amount),
            Some(HeapRow::Free) => look.free = Some(row.amount),
            Some(HeapRow::Managed(name)) => look.managed = Some((name, row.amount)),
            Some(HeapRow::Type(name)) => look.types.push(kind(name)),
            Some(HeapRow::Holder(name)) => {
                if let Some(last) = look.types.last_mut() {
                    last.holder = Some(name);
                }
            }
            Some(HeapRow::Text(text)) => look.strings.push(kind(text)),
            Some(HeapRow::Library(path)) => {
                if let Some(last) = look.strings.last_mut() {
                    last.library = Some(path);
                }
            }
            Some(HeapRow::Chunk(size)) => look.chunks.push(kind(size)),
            None => {}
        }
    }
    (look.resident > 0.0).then_some(look)
}

/// The process that was looked into and grows for good, with the looks; else why there is none: nobody looked (`None`), or what it
/// is instead of a leak.
pub fn of<'v, 'a>(view: &'v View<'a>) -> Option<Result<GrownProcess<'v, 'a>, Observation>> {
    let span = Span {
        since: view.window.since.saturating_sub(LOOK_BEFORE_NS),
        until: view.window.until.saturating_add(LOOK_AFTER_NS),
    };
    let all: Vec<HeapCapture<'a>> =
        view.set.events.iter().filter(|event| span.contains(event.real)).filter_map(look).collect();
    let pid = all.last()?.pid;
    let mut of_process: Vec<HeapCapture<'a>> = all.into_iter().filter(|look| look.pid == pid).collect();
    let now = of_process.pop()?;
    let before = (!of_process.is_empty()).then(|| of_process.swap_remove(0));
    let process = view.processes().iter().find(|process| process.pid == pid && process.comm == now.comm)?;
    Some(grows(view, process).and_then(|growth| {
        let looked = GrownProcess { process, growth, before, now };
        match looked.freed() {
            Some(text) => Err(Observation::Inactive(text)),
            None => Ok(looked),
        }
    }))
}

/// How the process grew, if it did so for good and somebody pays or will.
fn grows(view: &View<'_>, process: &Process<'_>) -> Result<Growth, Observation> {
    let page = view.page_bytes();
    let held = |set: &mitra_model::SeriesSet, span: Span| {
        let series = ["task.rss_anon", "task.swap"].iter().flat_map(|metric| process.series(set, metric));
        Some(Signal::sum(series, span)?.map(|pages| pages * page))
    };
    let who = format!("{} ({})", process.comm, process.pid);
    let Some(growth) = growth::climb(view, held).filter(|growth| growth.to - growth.from >= LARGE) else {
        return Err(Observation::Inactive(format!("{who} grew by less than {}", words::bytes(LARGE))));
    };
    let grew = format!("{who} grew from {} to {}", words::bytes(growth.from), words::bytes(growth.to));
    let limit = limit_reached(view, process);
    // At the limit nothing grows any more: the kernel does not allow it.
    let fills = limit.is_some_and(|limit| growth.to >= FILLED * limit);
    if growth::settled(view, &growth) && !fills {
        return Err(Observation::Inactive(format!("{grew} and levelled off: a warm-up, no leak")));
    }
    if growth::memory_short(view) != Some(true) && !growth::runs_out(view, &growth) && limit.is_none() {
        return Err(Observation::cannot_tell(format!("whether it goes on: {grew}, and there is still room")));
    }
    Ok(growth)
}

/// All but a twentieth: the kernel charges groups in batches, and reclaims before the last page is gone.
const REACHED: f64 = 0.95;
/// What a process holds itself where it alone fills a group; the rest are file pages and the kernel's own.
const FILLED: f64 = 0.9;

/// The memory limit of a cgroup that the process is in and that reached it inside of the view.
fn limit_reached(view: &View<'_>, process: &Process<'_>) -> Option<f64> {
    let own = process.cgroup?;
    let is_around = |group: &str| {
        own.strip_prefix(group).is_some_and(|rest| group != "/" && (rest.is_empty() || rest.starts_with('/')))
    };
    let limits =
        view.each("cgroup.memory_max").filter(|(group, _)| is_around(group)).filter_map(|(group, limit)| {
            let limit = limit.last(Span::ALL).filter(|limit| limit.is_finite() && *limit > 0.0)?;
            let current = Signal::of(view.set.get("cgroup.memory_current", group)?, view.window).max()?;
            (current >= REACHED * limit).then_some(limit)
        });
    limits.min_by(f64::total_cmp)
}

impl<'a> GrownProcess<'_, 'a> {
    /// Bytes by which the process grew: between the looks, or as it was recorded.
    fn grew(&self) -> f64 {
        match &self.before {
            Some(before) if self.now.resident > before.resident => self.now.resident - before.resident,
            _ => self.growth.to - self.growth.from,
        }
    }

    /// How much of the growth is something of which the looks say so many bytes. With one look all of it may have come since the
    /// process was small: its share of what is resident counts.
    fn share(&self, bytes: impl Fn(&HeapCapture<'a>) -> Option<f64>) -> Option<f64> {
        let now = bytes(&self.now)?;
        match &self.before {
            Some(before) if self.now.resident > before.resident => Some((now - bytes(before)?) / self.grew()),
            _ => Some(now / self.now.resident),
        }
    }

    /// Most of it was freed and is held by the allocator: no leak.
    fn freed(&self) -> Option<String> {
        let share = self.share(|look| look.free).filter(|share| *share > MOST)?;
        Some(format!(
            "{} of what {} ({}) grew by is free inside of its C heap: fragmentation, no leak",
            words::percent(share),
            self.process.comm,
            self.process.pid
        ))
    }

    /// The share of the growth that the runtime knows of; `None` without a runtime that was looked into.
    pub fn managed_share(&self) -> Option<f64> {
        self.share(|look| look.managed.map(|(_, bytes)| bytes))
    }

    /// Whether the runtime's objects are most of what grew.
    pub fn is_managed(&self) -> bool {
        self.managed_share().is_some_and(|share| share > MOST)
    }

    /// What is told of it in any case.
    pub fn finding(&self, view: &View<'_>) -> Finding {
        let mut finding = view.finding(&self.growth.run);
        let (from, to) = (self.growth.from, self.growth.to);
        finding.statement = format!("{} ({}) {}", self.process.comm, self.process.pid, self.growth.words());
        finding.blame(self.process);
        let span = self.growth.run.span();
        let pages = (to - from) / view.page_bytes();
        finding.evidence.push(view.task_evidence("task.rss_anon", self.process, None, pages, span));
        let who = format!("{} ({})", self.process.comm, self.process.pid);
        finding.evidence.push(view.event_evidence(
            "event.capture",
            &who,
            self.now.resident,
            "bytes",
            self.now.event,
        ));
        finding.confidence = 0.8;
        finding
    }

    /// The kinds by how many more bytes of them there are than at the look before, the most first: name, and in words.
    pub fn most(
        &self,
        of: impl for<'l> Fn(&'l HeapCapture<'a>) -> &'l [HeapKind<'a>],
    ) -> Vec<(&'a str, String)> {
        let before = |name: &str| {
            let kinds = self.before.as_ref().map(&of)?;
            kinds.iter().find(|kind| kind.name == name).map(|kind| (kind.count, kind.bytes))
        };
        let mut list: Vec<(f64, &'a str, String)> = of(&self.now)
            .iter()
            .map(|kind| {
                let (was, less) =
                    before(kind.name).map_or((None, 0.0), |(count, bytes)| (Some(count), bytes));
                let was = was.map_or(String::new(), |was| format!(" after {}", words::count(was)));
                let of =
                    |what: Option<&str>, word| what.map_or(String::new(), |name| format!(", {word} {name}"));
                let holder = of(kind.holder, "held by") + &of(kind.library, "as in the name of");
                let text = format!(
                    "{} {} times{was}, {}{holder}",
                    kind.name,
                    words::count(kind.count),
                    words::bytes(kind.bytes)
                );
                (kind.bytes - less, kind.name, text)
            })
            .collect();
        list.sort_by(|a, b| b.0.total_cmp(&a.0));
        list.into_iter().map(|(_, name, text)| (name, text)).collect()
    }
}
