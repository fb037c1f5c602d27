//! Reading, also beside a writer.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use mitra_model::series::Gap;
use mitra_model::{Entity, Event, Frame, HostInfo, Metric, SeriesSet, Span, Strings};

use crate::block::{Kind, NO_ENTITY};
use crate::captures;
use crate::clock::{Moment, Placed, Timeline, place};
use crate::dir::{self, Role};
use crate::elsewhere::Elsewhere;
use crate::error::{Error, Skipped};
use crate::lock;
use crate::replay;
use crate::seal::{read_log, replay};
use crate::segment::encode;
use crate::segment::file::{Opened, SchemaCache, Segment};
use crate::segment::index::parse_times;
use crate::series;
use crate::status::{self, Status};

/// Files that vanish while a directory is being read (sealed, or too old) are looked for again so often.
const LISTINGS_MAX: u32 = 8;

/// Which rows to read, by entity and name.
pub type RowFilter = Arc<dyn Fn(Entity, &str) -> bool + Send + Sync>;

/// What to read.
#[derive(Clone)]
pub struct Query {
    /// From when until when, on the axis of the result.
    pub span: Span,
    /// Which metrics; `None` is all of them.
    pub metrics: Option<Vec<&'static Metric>>,
    /// Which rows; `None` is all of them.
    pub rows: Option<RowFilter>,
    /// Counters as they were stored instead of their rates, and gauges without scaling.
    pub raw: bool,
    /// Leaves out counters of tasks and interrupts that did not move in the range: over a day nearly all of them.
    pub moving_only: bool,
}

impl Default for Query {
    fn default() -> Self {
        Query { span: Span::ALL, metrics: None, rows: None, raw: false, moving_only: false }
    }
}

impl Query {
    /// These metrics in this span.
    #[must_use]
    pub fn new(span: Span, metrics: Vec<&'static Metric>) -> Self {
        Query { span, metrics: Some(metrics), ..Query::default() }
    }
}

/// A file of a recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentFile {
    /// Its name in the folder: `0000000001.seg`, or `.log` of one that still grows.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// From its first frame to just after its last one.
    pub span: Span,
    /// Whether it never changes again.
    pub is_sealed: bool,
}

/// An archive as it was when it was opened, or refreshed.
pub struct Reader {
    dir: PathBuf,
    /// Files that were written before that are left out.
    since: Option<SystemTime>,
    elsewhere: Option<Arc<dyn Elsewhere>>,
    segments: Vec<Arc<Segment>>,
    placed: Vec<Placed>,
    host: HostInfo,
    schemas: Arc<SchemaCache>,
    skipped: Mutex<Vec<Skipped>>,
    /// Events of captures that stand in no frame, by the names of their files.
    captures: Mutex<Vec<(String, Event)>>,
}

impl Reader {
    /// Opens an archive. A writer may be active.
    pub fn open(dir: &Path) -> Result<Reader, Error> {
        Reader::open_files(dir, None, None)
    }

    /// Opens an archive of which blocks may lie elsewhere, and are brought where they are wanted. The indexes are here.
    pub fn open_with(dir: &Path, elsewhere: Arc<dyn Elsewhere>) -> Result<Reader, Error> {
        Reader::open_files(dir, None, Some(elsewhere))
    }

    /// Opens the files that were written since a moment, for whoever wants the end of a recording and not the memory that all
    /// of it takes. The first of them may begin long before.
    pub fn open_since(dir: &Path, since: SystemTime) -> Result<Reader, Error> {
        Reader::open_files(dir, Some(since), None)
    }

    fn open_files(
        dir: &Path,
        since: Option<SystemTime>,
        elsewhere: Option<Arc<dyn Elsewhere>>,
    ) -> Result<Reader, Error> {
        let mut reader = Reader {
            dir: dir.to_path_buf(),
            since,
            elsewhere,
            segments: Vec::new(),
            placed: Vec::new(),
            host: HostInfo::default(),
            schemas: Arc::default(),
            skipped: Mutex::default(),
            captures: Mutex::default(),
        };
        reader.refresh()?;
        Ok(reader)
    }

    /// The archive as it is now, for whoever still reads it as it was. Both share what has not changed.
    pub fn reopened(&self) -> Result<Reader, Error> {
        let captures = self.captures.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut reader = Reader {
            dir: self.dir.clone(),
            since: self.since,
            elsewhere: self.elsewhere.clone(),
            segments: self.segments.clone(),
            placed: Vec::new(),
            host: HostInfo::default(),
            schemas: Arc::clone(&self.schemas),
            skipped: Mutex::default(),
            captures: Mutex::new(captures),
        };
        reader.refresh()?;
        Ok(reader)
    }

    /// Takes in what was appended or removed since.
    pub fn refresh(&mut self) -> Result<(), Error> {
        let mut skipped = Vec::new();
        let mut listing = 1;
        self.segments = loop {
            skipped.clear();
            match load(self, &mut skipped) {
                Err(error) if error.is_missing() && self.dir.is_dir() && listing < LISTINGS_MAX => {
                    listing += 1
                }
                other => break other?,
            }
        };
        self.placed = place(self.segments.iter().map(|segment| &segment.index));
        if let Some(last) = self.segments.last() {
            self.host = last.index.meta.host.clone();
        }
        self.skipped = Mutex::new(skipped);
        Ok(())
    }

    /// From the first frame to just after the last one.
    #[must_use]
    pub fn span(&self) -> Option<Span> {
        let (first, last) = (self.segments.first()?, self.segments.last()?);
        let (first_placed, last_placed) = (self.placed.first()?, self.placed.last()?);
        let until = last_placed.at(last.index.last).saturating_add(1);
        Some(Span { since: first_placed.at(first.index.first), until })
    }

    /// The files of the recording that hold frames, in the order of recording.
    #[must_use]
    pub fn segment_files(&self) -> Vec<SegmentFile> {
        let one = |(segment, placed): (&Arc<Segment>, &Placed)| {
            let (first, last) = (placed.at(segment.index.first), placed.at(segment.index.last));
            let is_sealed = !segment.is_log();
            // A log has grown, or retention took the file.
            let now = || fs::metadata(self.dir.join(&segment.name)).ok().map(|meta| meta.len());
            Some(SegmentFile {
                name: segment.name.clone(),
                bytes: if is_sealed { segment.bytes } else { now()? },
                span: Span { since: first, until: last.saturating_add(1) },
                is_sealed,
            })
        };
        self.segments.iter().zip(&self.placed).filter_map(one).collect()
    }

    /// Nanoseconds that times on the axis are ahead of boot time, in the last part of a boot; `None` if no part of that boot is
    /// there. They move with the wall clock.
    #[must_use]
    pub fn offset_of(&self, boot_id: &str) -> Option<i64> {
        let mut parts = self.segments.iter().zip(&self.placed).rev();
        let (_, placed) = parts.find(|(segment, _)| segment.index.meta.host.boot_id == boot_id)?;
        Some(crate::log::decode::ns(placed.offset_us))
    }

    /// The boot that was recorded just before a moment, and its offset as [`Reader::offset_of`] has it.
    #[must_use]
    pub fn clock_at(&self, t: i64) -> Option<(&str, i64)> {
        let mut parts = self.segments.iter().zip(&self.placed).rev();
        let (segment, _) = parts.find(|(segment, placed)| placed.at(segment.index.first) < t)?;
        let boot = segment.index.meta.host.boot_id.as_str();
        Some((boot, self.offset_of(boot)?))
    }

    /// The time that its last frame stands for, in nanoseconds.
    #[must_use]
    pub fn interval_ns(&self) -> Option<i64> {
        Some(crate::log::decode::ns(self.segments.last()?.index.last.interval_us))
    }

    /// The folder that it reads.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The machine, as the latest part describes it.
    #[must_use]
    pub fn host(&self) -> &HostInfo {
        &self.host
    }

    /// Whether a recorder writes the archive.
    #[must_use]
    pub fn is_live(&self) -> bool {
        lock::is_held(&self.dir)
    }

    /// What could not be read so far. Parts that no read has touched are not known to be whole.
    #[must_use]
    pub fn skipped(&self) -> Vec<Skipped> {
        self.skipped.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Stretches without frames.
    pub fn gaps(&self) -> Result<Vec<Gap>, Error> {
        self.gaps_in(Span::ALL)
    }

    /// Stretches without frames that end in a span.
    pub fn gaps_in(&self, span: Span) -> Result<Vec<Gap>, Error> {
        let mut timeline = Timeline::default();
        let mut gaps = Vec::new();
        // The moments of a month would take hundreds of megabytes.
        self.walk(span, &mut timeline, &mut |_, _, timeline| gaps.append(&mut timeline.start_over()))?;
        Ok(gaps)
    }

    /// What the archive holds and what it takes.
    pub fn status(&self) -> Result<Status, Error> {
        let mut status = status::of(&self.dir, &self.segments, &self.schemas)?;
        status.span = self.span();
        status.gaps = self.gaps()?;
        status.skipped = self.skipped();
        Ok(status)
    }

    /// The events of the frames in a span. Unlike [`Reader::read`] it opens no captures.
    pub fn events(&self, span: Span) -> Result<Vec<Event>, Error> {
        Ok(self.read_frames(&Query::new(span, Vec::new()))?.events)
    }

    /// Reads series. Only blocks of the metrics asked for are read, and only of segments in the span.
    pub fn read(&self, query: &Query) -> Result<SeriesSet, Error> {
        let mut set = self.read_frames(query)?;
        let mut cache = self.captures.lock().unwrap_or_else(PoisonError::into_inner);
        let by_hand = captures::events(&self.dir, query.span, &set.events, &mut cache);
        if !by_hand.is_empty() {
            set.events.extend(by_hand);
            set.events.sort_by_key(|event| event.real);
        }
        Ok(set)
    }

    fn read_frames(&self, query: &Query) -> Result<SeriesSet, Error> {
        let mut timeline = Timeline::default();
        let mut builder = series::Builder::new(query);
        self.bring(query.span, Some(&builder))?;
        self.walk(query.span, &mut timeline, &mut |opened, part, timeline| {
            builder.segment(opened, &self.schemas, part, timeline);
        })?;
        Ok(builder.finish(timeline, &self.host))
    }

    /// Hands every frame in the span to `each`, with all cells as they were recorded: the columns are those of this
    /// version's tables, times are whole microseconds, and rows may stand in another order.
    pub fn frames(&self, span: Span, each: &mut dyn FnMut(&Frame, &Strings)) -> Result<(), Error> {
        let (mut timeline, mut segments) = (Timeline::default(), 0);
        self.bring(span, None)?;
        self.walk(span, &mut timeline, &mut |opened, part, timeline| {
            segments += 1;
            if part.from < part.until {
                replay::replay(opened, &self.schemas, part, segments, each);
            }
            timeline.start_over();
        })
    }

    /// The segments that have frames of a span, or the frame before it.
    fn in_span(&self, span: Span) -> std::ops::Range<usize> {
        let first = |i: usize| self.placed[i].at(self.segments[i].index.first);
        let last = |i: usize| self.placed[i].at(self.segments[i].index.last);
        let all = 0..self.segments.len();
        let end = all.clone().find(|i| first(*i) >= span.until).unwrap_or(all.end);
        let start = (0..end).find(|i| last(*i) >= span.since).unwrap_or(end);
        // The frame before the span is the last one of the segment before, unless the span begins inside one.
        let starts_inside = start < end && first(start) < span.since;
        if starts_inside { start..end } else { start.saturating_sub(1)..end }
    }

    /// Has all that is not here brought at once that a read of a span wants: of rows and columns what these series are made of.
    fn bring(&self, span: Span, series: Option<&series::Builder>) -> Result<(), Error> {
        let Some(elsewhere) = &self.elsewhere else { return Ok(()) };
        let mut missing = Vec::new();
        for segment in &self.segments[self.in_span(span)] {
            // What cannot be opened is noted when it is read.
            let Ok(mut opened) = segment.reading() else { continue };
            let schema = opened.schema(&self.schemas);
            if let Some(error) = opened.failed() {
                return Err(error);
            }
            let plan =
                series.map(|series| schema.map_or_else(series::Plan::new, |schema| series.plan(&schema)));
            missing.extend(opened.missing(|block| match block.kind {
                Kind::Times | Kind::Texts | Kind::Events => true,
                Kind::Rows | Kind::Columns => {
                    plan.as_ref().is_none_or(|plan| series::is_planned(plan, block))
                }
                Kind::Meta | Kind::Schema | Kind::Index => false,
            }));
        }
        if missing.is_empty() {
            Ok(())
        } else {
            elsewhere.bring(&missing).map_err(Error::io("fetch", &self.dir))
        }
    }

    /// Visits the segments of a span in order and builds the timeline.
    fn walk(
        &self,
        span: Span,
        timeline: &mut Timeline,
        visit: &mut dyn FnMut(&mut Opened<'_>, &Part, &mut Timeline),
    ) -> Result<(), Error> {
        for i in self.in_span(span) {
            let (segment, placed) = (&self.segments[i], self.placed[i]);
            let mut opened = match segment.reading() {
                Ok(opened) => opened,
                // Retention took it.
                Err(error) if error.is_missing() => continue,
                Err(Error::Io { what, path, source }) => {
                    let why = format!("cannot {what}: {source}");
                    self.note(vec![Skipped { file: path, offset: 0, why }]);
                    continue;
                }
                Err(error) => return Err(error),
            };
            let times = opened.either(Kind::Times, NO_ENTITY, |p| parse_times(&p));
            if let Some(times) = times {
                let at = |times: &crate::open::Times| placed.at(*times);
                let from = times.partition_point(|t| at(t) < span.since);
                let until = times.partition_point(|t| at(t) < span.until).max(from);
                let moment = |i: usize| Moment {
                    t: at(&times[i]),
                    times: times[i],
                    era: placed.era,
                    session: segment.index.meta.session,
                };
                let has_lead = from > 0 && timeline.moments.is_empty();
                if has_lead {
                    timeline.set_lead(moment(from - 1));
                }
                let position = timeline.positions();
                (from..until).for_each(|i| timeline.push(moment(i)));
                let part = Part { placed, frames: times.len() as u32, from, until, has_lead, position };
                visit(&mut opened, &part, timeline);
            }
            if let Some(error) = opened.failed() {
                return Err(error);
            }
            self.note(opened.skipped);
        }
        Ok(())
    }

    fn note(&self, found: Vec<Skipped>) {
        if found.is_empty() {
            return;
        }
        let mut skipped = self.skipped.lock().unwrap_or_else(PoisonError::into_inner);
        for one in found {
            if !skipped.contains(&one) {
                skipped.push(one);
            }
        }
    }
}

/// The part of a segment that is read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Part {
    pub(crate) placed: Placed,
    /// How many frames the segment has.
    pub(crate) frames: u32,
    /// The frames in the span.
    pub(crate) from: usize,
    pub(crate) until: usize,
    /// Whether the frame before `from` is the one before the range.
    pub(crate) has_lead: bool,
    /// The position of frame `from` on the timeline.
    pub(crate) position: usize,
}

/// The segments as they are now. Those that were there before stand in the order of their numbers.
fn load(before: &Reader, skipped: &mut Vec<Skipped>) -> Result<Vec<Arc<Segment>>, Error> {
    let (dir, since) = (before.dir.as_path(), before.since);
    let mut segments: Vec<Arc<Segment>> = Vec::new();
    let mut known = before.segments.iter().peekable();
    let mut sealed = None;
    for (number, role, path) in dir::list(dir)? {
        let meta = fs::metadata(&path);
        let written = || meta.as_ref().ok()?.modified().ok();
        if since.is_some_and(|since| written().is_some_and(|written| written < since)) {
            continue;
        }
        match role {
            Role::Unfinished => {}
            Role::Sealed => {
                sealed = Some(number);
                while known.next_if(|one| one.path().is_none_or(|known| known < path)).is_some() {}
                let same = known.peek().filter(|one| meta.as_ref().is_ok_and(|meta| one.is_of(&path, meta)));
                if let Some(same) = same {
                    segments.push(Arc::clone(same));
                    continue;
                }
                let opened = Segment::open(&path, before.elsewhere.clone(), skipped);
                let mut opened = passable(opened, &path, skipped)?.flatten();
                if let (Some(opened), Some(last)) = (&mut opened, segments.last()) {
                    opened.index.share(&last.index);
                }
                segments.extend(opened.map(Arc::new));
            }
            Role::Log if sealed == Some(number) => {}
            Role::Log => {
                let bytes = passable(read_log(&path), &path, skipped)?;
                if let Some(bytes) = bytes {
                    segments.extend(log_image(dir, &path, &bytes, skipped)?.map(Arc::new));
                }
            }
        }
    }
    segments.retain(|segment| segment.index.frames > 0);
    Ok(segments)
}

/// A file that cannot be read is passed over, unless it vanished: then the directory has to be listed again.
fn passable<T>(read: Result<T, Error>, path: &Path, skipped: &mut Vec<Skipped>) -> Result<Option<T>, Error> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(error) if error.is_missing() => Err(error),
        Err(error) => {
            skipped.push(Skipped { file: path.to_path_buf(), offset: 0, why: error.to_string() });
            Ok(None)
        }
    }
}

/// A log as a segment in memory, so that there is one way to read.
fn log_image(
    dir: &Path,
    path: &Path,
    bytes: &[u8],
    skipped: &mut Vec<Skipped>,
) -> Result<Option<Segment>, Error> {
    let replayed = match replay(bytes, path) {
        Ok(replayed) => replayed,
        Err(error) => {
            skipped.push(Skipped { file: path.to_path_buf(), offset: 0, why: error.to_string() });
            return Ok(None);
        }
    };
    skipped.extend(replayed.skipped);
    if replayed.cut && !lock::is_held(dir) {
        skipped.push(Skipped {
            file: path.to_path_buf(),
            offset: replayed.whole_bytes as u64,
            why: format!("{} bytes of a record whose end is missing", bytes.len() - replayed.whole_bytes),
        });
    }
    let Some(open) = replayed.segment else { return Ok(None) };
    let mut image = Vec::new();
    encode::write(&open, None, &mut |bytes| {
        image.extend_from_slice(bytes);
        Ok(())
    })
    .map_err(Error::io("read", path))?;
    Ok(Segment::from_memory(image, path).ok())
}
