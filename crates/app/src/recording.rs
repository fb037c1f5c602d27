//! Where the archive is, and which part of it is meant.

pub mod status;

use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, anyhow};
use mitra_archive::{Query, Reader};
use mitra_diagnose::compare::{Input, reads};
use mitra_model::compare::Side;
use mitra_model::report::{Moment, Window};
use mitra_model::{Entity, Metric, Span, TextSeries, columns};

use crate::cli::{ArchiveArgs, RangeArgs};
use crate::errors::usage;
use crate::progress::Progress;
use crate::remote;
use crate::render::sources;
use crate::render::style::Style;
use crate::values::time::LocalClock;

/// The archive of the system service.
const SYSTEM_ARCHIVE: &str = "/var/lib/mitra";

/// Stands in for `--archive`. Clap does not read it: for clap a value from the environment is one that
/// was given, and would not go with a PATH or with `--no-archive`.
const ARCHIVE_VARIABLE: &str = "MITRA_ARCHIVE";

/// The archive of the command line or the environment.
pub fn named_archive(flag: Option<&Path>) -> Option<PathBuf> {
    let variable = || std::env::var_os(ARCHIVE_VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from);
    flag.map(Path::to_path_buf).or_else(variable)
}

/// The archive to write to, as an absolute path: processes that the recorder starts run in another
/// directory.
pub fn archive_dir(args: &ArchiveArgs) -> Result<PathBuf> {
    if let Some(dir) = named_archive(args.archive.as_deref()) {
        if remote::is_remote(&dir) {
            let why = "this wants a folder; explain, replay, compare, services, dump, export and rules test read what lies elsewhere";
            return Err(usage(format!("{}: {why}", dir.display())));
        }
        return std::path::absolute(&dir).with_context(|| format!("cannot tell where {} is", dir.display()));
    }
    usual_dir()
}

/// Where archives are that nobody has named.
pub fn usual_dir() -> Result<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Ok(SYSTEM_ARCHIVE.into());
    }
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    absolute("XDG_STATE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/state")))
        .map(|state| state.join("mitra"))
        .ok_or_else(|| usage("neither XDG_STATE_HOME nor HOME says where the archive is; use --archive DIR"))
}

/// The archive to read where none is named: users read their own, or the system's if they have none.
pub fn usual_readable_dir() -> Result<PathBuf> {
    let dir = usual_dir()?;
    let is_of_system = !dir.exists() && Path::new(SYSTEM_ARCHIVE).is_dir();
    Ok(if is_of_system { SYSTEM_ARCHIVE.into() } else { dir })
}

/// The archive to read.
pub fn readable_dir(args: &ArchiveArgs) -> Result<PathBuf> {
    let is_named = named_archive(args.archive.as_deref()).is_some();
    let dir = if is_named { archive_dir(args)? } else { usual_readable_dir()? };
    // Captures are kept where no recorder runs, too.
    let has_captures = dir.join("captures").is_dir();
    Ok(if has_captures { dir } else { recorded_in(&dir).unwrap_or(dir) })
}

/// The recording that a folder means: its own, or the one in its folder `archive`.
pub fn recorded_in(dir: &Path) -> Option<PathBuf> {
    [dir.to_path_buf(), dir.join("archive")].into_iter().find(|dir| holds_recording(dir))
}

/// Whether a folder holds the files of a recorder.
fn holds_recording(dir: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(dir) else { return false };
    entries.flatten().any(|entry| is_part(&entry.file_name()))
}

/// Whether a file is called as those of a recorder, `0000000001.seg` or `0000000002.log`.
pub fn is_part(name: &OsStr) -> bool {
    let name = name.to_str().and_then(|name| name.strip_suffix(".seg").or(name.strip_suffix(".log")));
    name.is_some_and(|number| number.len() == 10 && number.bytes().all(|b| b.is_ascii_digit()))
}

/// Opens an archive, which may be empty.
pub fn open(args: &ArchiveArgs) -> Result<(PathBuf, Reader)> {
    open_by(args, Reader::open)
}

/// Opens the files of an archive that were written within the last hour.
pub fn open_end(args: &ArchiveArgs) -> Result<(PathBuf, Reader)> {
    let since = SystemTime::now().checked_sub(Duration::from_secs(3_600)).unwrap_or(SystemTime::UNIX_EPOCH);
    open_by(args, |dir| Reader::open_since(dir, since))
}

fn open_by(
    args: &ArchiveArgs,
    open: impl Fn(&Path) -> Result<Reader, mitra_archive::Error>,
) -> Result<(PathBuf, Reader)> {
    let dir = readable_dir(args)?;
    if dir.is_file() {
        let why = "a file is no archive; if another tool has written it:";
        return Err(usage(format!("{}: {why} mitra explain {0}", dir.display())));
    }
    if !dir.is_dir() {
        anyhow::bail!("{}: no archive here; record one with: mitra record --archive {0}", dir.display());
    }
    let reader = open(&dir).with_context(|| format!("cannot open the archive {}", dir.display()))?;
    Ok((dir, reader))
}

/// An archive that has samples.
pub struct Recording {
    pub dir: PathBuf,
    pub reader: Reader,
    /// From the first to the last sample.
    pub span: Span,
    /// The folder of what was fetched from elsewhere.
    _view: Option<remote::View>,
}

/// What of a recording a command reads.
pub struct Wanted<'a> {
    pub range: &'a RangeArgs,
    /// Without `--since`.
    pub usual_ns: i64,
    /// What the range is compared with, before it.
    pub before_ns: i64,
    /// Another stretch.
    pub beside: Option<Span>,
}

impl<'a> Wanted<'a> {
    pub fn new(range: &'a RangeArgs, usual_ns: i64) -> Self {
        Wanted { range, usual_ns, before_ns: 0, beside: None }
    }

    fn spans(&self, known: Span) -> Result<Vec<Span>> {
        let range = resolve(self.range, known, self.usual_ns, &LocalClock::system())?;
        let range = Span { since: range.since.saturating_sub(self.before_ns), ..range };
        Ok([Some(range), self.beside].into_iter().flatten().collect())
    }
}

impl Recording {
    /// One in a folder.
    pub fn open(args: &ArchiveArgs) -> Result<Self> {
        let (dir, reader) = open(args)?;
        Self::of(dir, reader, None)
    }

    /// Of one that lies elsewhere, what is wanted is fetched.
    pub fn open_for(args: &ArchiveArgs, wanted: &Wanted<'_>) -> Result<Self> {
        Self::open_with(args, &|known| wanted.spans(known))
    }

    /// The same for stretches that the recording itself has a say in.
    pub fn open_with(args: &ArchiveArgs, wanted: remote::Wanted<'_>) -> Result<Self> {
        match named_archive(args.archive.as_deref()).filter(|archive| remote::is_remote(archive)) {
            Some(url) => {
                let _progress = Progress::new("fetching");
                let view = remote::fetch(&url.to_string_lossy(), wanted)?;
                let dir = view.path().to_owned();
                let reader =
                    view.reader().with_context(|| format!("cannot open the archive {}", dir.display()))?;
                Self::of(dir, reader, Some(view))
            }
            None => Self::open(args),
        }
    }

    fn of(dir: PathBuf, reader: Reader, view: Option<remote::View>) -> Result<Self> {
        let span = reader.span().ok_or_else(|| unreadable(&dir, &reader))?;
        Ok(Recording { dir, reader, span, _view: view })
    }

    /// The range that is asked for: without `--since` the last `usual_ns` before its end.
    pub fn range(&self, args: &RangeArgs, usual_ns: i64) -> Result<Span> {
        resolve(args, self.span, usual_ns, &LocalClock::system())
    }

    /// The recorded part of that range.
    pub fn recorded(&self, args: &RangeArgs, usual_ns: i64) -> Result<Span> {
        let none = || anyhow!("{}: nothing was recorded in that time", self.dir.display());
        self.range(args, usual_ns)?.intersect(self.span).ok_or_else(none)
    }
}

/// Why an archive has no samples.
fn unreadable(dir: &Path, reader: &Reader) -> anyhow::Error {
    let shown = dir.display();
    match reader.skipped().first() {
        Some(damage) => anyhow!(
            "{shown}: nothing of the recording can be read: {} at byte {}: {}",
            damage.file.display(),
            damage.offset,
            damage.why
        ),
        None if holds_recording(dir) => anyhow!("{shown}: the archive is empty: nothing is recorded yet"),
        None if std::fs::read_dir(dir).is_ok_and(|mut files| files.next().is_some()) => {
            anyhow!(
                "{shown}: no recording is there; if its files are other tools' output: mitra explain {shown}"
            )
        }
        None => anyhow!("{shown}: the archive is empty; record into it with: mitra record --archive {shown}"),
    }
}

/// What to say if nothing of `wanted` was recorded.
pub fn not_recorded(wanted: Span, known: Span, style: &Style) -> String {
    format!("nothing was recorded between {}", against(wanted, known, style))
}

fn against(wanted: Span, known: Span, style: &Style) -> String {
    let [since, until, first, last] =
        [wanted.since, wanted.until, known.since, known.until].map(|t| style.date_clock(t));
    format!("{since} and {until}; the recording holds {first} to {last}")
}

fn resolve(args: &RangeArgs, known: Span, usual_ns: i64, here: &LocalClock) -> Result<Span> {
    let since = args.since.as_ref().map(|time| time.resolve(here));
    let until = match (&args.until, since) {
        (Some(time), Some(since)) => time.resolve_after(since, here),
        (Some(time), None) => time.resolve(here),
        (None, _) => known.until,
    };
    let since = since.unwrap_or_else(|| until.saturating_sub(usual_ns).max(known.since));
    if since >= until {
        let style = Style { zone: here.zone.clone(), ..Style::plain(80) };
        let [from, to] = [since, until].map(|t| style.date_clock(t));
        let [first, last] = [known.since, known.until].map(|t| style.date_clock(t));
        let zone = style.zone_name(known.until);
        return Err(usage(if args.since.is_some() && args.until.is_some() {
            format!(
                "--until ({to}) has to be later than --since ({from}); the recording holds {first} to {last} {zone}"
            )
        } else {
            format!("nothing lies between {from} and {to}; the recording holds {first} to {last} {zone}")
        }));
    }
    Ok(Span { since, until })
}

/// A span in pieces that are read one at a time, so that memory does not grow with its length.
pub fn chunks(span: Span, chunk_ns: i64) -> impl Iterator<Item = Span> {
    let part = move |since: i64| Span { since, until: since.saturating_add(chunk_ns).min(span.until) };
    std::iter::successors(Some(part(span.since)), move |last| Some(part(last.until)))
        .take_while(move |part| part.since < span.until)
}

/// Tells texts once of which a recording is read in pieces: each piece begins with the texts that go on.
#[derive(Default)]
pub struct ToldTexts {
    before: HashMap<(&'static str, Arc<str>), Arc<str>>,
    now: HashMap<(&'static str, Arc<str>), Arc<str>>,
}

impl ToldTexts {
    /// How many changes at the beginning of a piece the piece before has told: one or none.
    pub fn known(&mut self, metric: &'static str, row: &str, text: &TextSeries) -> usize {
        let key: (&'static str, Arc<str>) = (metric, row.into());
        let first = text.changes.first().and_then(|(_, text)| text.as_ref());
        let is_known = first.is_some() && first == self.before.get(&key);
        if let Some((_, Some(last))) = text.changes.last() {
            self.now.insert(key, Arc::clone(last));
        }
        usize::from(is_known)
    }

    /// The next piece comes. Rows that were not in this one are forgotten.
    pub fn next_piece(&mut self) {
        self.before = std::mem::take(&mut self.now);
    }
}

/// Every metric of every entity.
pub fn all_metrics() -> impl Iterator<Item = &'static Metric> {
    Entity::ALL.into_iter().flat_map(|entity| columns(entity).iter().copied())
}

/// A range with all metrics that a comparison reads, as one side of it.
pub fn compared_side(reader: &Reader, span: Span, style: &Style) -> Result<Input> {
    let query = Query {
        moving_only: true,
        ..Query::new(span, all_metrics().filter(|metric| reads(metric)).collect())
    };
    let set = reader.read(&query).context("cannot read the archive")?;
    let window = Window { since: Moment(span.since), until: Moment(span.until) };
    let name = sources::range(window, style);
    Ok(Input { side: Side { name, source: "archive".into(), window: Some(window), ..Side::default() }, set })
}

#[cfg(test)]
mod tests {
    use jiff::tz::TimeZone;
    use mitra_model::time::SECOND;

    use super::*;
    use crate::values::time::TimeExpr;

    #[test]
    fn an_archive_is_where_it_is_wherever_one_goes() {
        let dir = archive_dir(&ArchiveArgs { archive: Some("some/where".into()) }).unwrap();
        assert!(dir.is_absolute() && dir.ends_with("some/where"), "{}", dir.display());
        let dir = archive_dir(&ArchiveArgs { archive: Some("/some/where".into()) }).unwrap();
        assert_eq!(dir, Path::new("/some/where"));
    }

    #[test]
    fn a_recording_is_found_in_a_folder_and_in_its_archive() {
        let dir = tempfile::tempdir().unwrap();
        let archive = dir.path().join("archive");
        std::fs::create_dir(&archive).unwrap();
        // A log of another program has another name.
        std::fs::write(archive.join("20261121.log"), "").unwrap();
        assert_eq!(recorded_in(dir.path()), None);
        std::fs::write(archive.join("0000000001.log"), "").unwrap();
        assert_eq!(recorded_in(dir.path()).as_ref(), Some(&archive));
        assert_eq!(recorded_in(&archive).as_ref(), Some(&archive));
        let asked = |dir: &Path| readable_dir(&ArchiveArgs { archive: Some(dir.into()) }).unwrap();
        assert_eq!(asked(dir.path()), archive);
        std::fs::create_dir(dir.path().join("captures")).unwrap();
        assert_eq!(asked(dir.path()), dir.path(), "captures are where they are kept");
        std::fs::write(dir.path().join("0000000007.seg"), "").unwrap();
        assert_eq!(recorded_in(dir.path()).as_deref(), Some(dir.path()));
        assert_eq!(recorded_in(Path::new("/nonexistent")), None);
    }

    #[test]
    fn chunks_cover_a_span_without_gaps() {
        let spans = |since, until| chunks(Span { since, until }, 10).map(|s| (s.since, s.until));
        assert_eq!(spans(0, 25).collect::<Vec<_>>(), [(0, 10), (10, 20), (20, 25)]);
        assert_eq!(spans(7, 7).count(), 0);
    }

    #[test]
    fn a_text_that_goes_on_is_told_once() {
        let texts = |list: &[Option<&str>]| TextSeries {
            changes: list.iter().map(|text| (0, text.map(Arc::from))).collect(),
            place: None,
        };
        let mut told = ToldTexts::default();
        assert_eq!(told.known("task.comm", "1@2", &texts(&[Some("a"), Some("b")])), 0);
        told.next_piece();
        assert_eq!(told.known("task.comm", "3@4", &texts(&[Some("b")])), 0);
        assert_eq!(told.known("task.comm", "1@2", &texts(&[Some("b"), None])), 1);
        told.next_piece();
        // What was away is told again.
        assert_eq!(told.known("task.comm", "1@2", &texts(&[Some("b")])), 0);
        assert_eq!(told.known("task.comm", "3@4", &texts(&[Some("c")])), 0);
    }

    #[test]
    fn times_are_told_as_they_are_typed() {
        let hour = 3600 * SECOND;
        let here = LocalClock { now: 500_000 * hour, zone: TimeZone::fixed(jiff::tz::offset(2)) };
        let range = RangeArgs {
            since: Some("@1800003600".parse().unwrap()),
            until: Some(TimeExpr::At(500_000 * hour)),
        };
        let known = Span { since: 499_999 * hour, until: 500_000 * hour };
        let said = resolve(&range, known, hour, &here).unwrap_err().to_string();
        assert_eq!(
            said,
            "--until (2027-01-15 10:00:00) has to be later than --since (2027-01-15 11:00:00); the recording holds \
             2027-01-15 09:00:00 to 2027-01-15 10:00:00 +02"
        );
    }
}
