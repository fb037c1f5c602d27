//! Archives that lie elsewhere: behind `mitra serve` of another host, or in an object store. Such an archive is a folder that is
//! filled on demand: of the files, which are listed with their times, the indexes of those of the wanted range are fetched, and
//! the blocks that a reader wants when it wants them.

mod bucket;
mod cache;
mod host;
mod parts;
mod settings;

use std::io::{Read, Write};
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Result, anyhow, bail};
use mitra_http::ureq::Body;
use mitra_http::ureq::http::{Response, StatusCode};
use mitra_model::Span;

use crate::errors::usage;
use crate::render::style::rfc3339;

pub use bucket::{Bucket, Listed};
pub use cache::View;
use parts::Parts;
pub use settings::{url_of_host, url_of_uploads};

/// Files that are fetched at a time: what takes long is the way there and back.
const AT_ONCE: usize = 4;
/// Of one question. A month of a busy machine has 1.3 GB.
const FETCH_BYTES_MAX: u64 = 2 << 30;
const FILES_MAX: usize = 10_000;
/// Of a listing.
const LIST_BYTES_MAX: u64 = 64 << 20;
/// Of an answer that is quoted.
const QUOTE_CHARS_MAX: usize = 300;

/// A file of a recording elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteFile {
    /// As it is asked for.
    pub name: String,
    pub bytes: u64,
    pub span: Span,
    pub is_sealed: bool,
}

/// Which stretches are wanted, given what there is.
pub type Wanted<'a> = &'a dyn Fn(Span) -> Result<Vec<Span>>;

enum Source {
    Host(host::Host),
    Bucket(Bucket),
}

impl Source {
    fn open(url: &str) -> Result<Source> {
        let access = settings::of(url)?;
        Ok(if url.starts_with("s3://") {
            Source::Bucket(Bucket::open(url, access)?)
        } else {
            Source::Host(host::Host::open(url, access)?)
        })
    }

    fn known(&mut self) -> Result<Option<Span>> {
        match self {
            Source::Host(host) => Ok(around(&host.files)),
            Source::Bucket(bucket) => bucket.known(),
        }
    }

    /// At least all files of these stretches, in the order of recording.
    fn files(&mut self, spans: &[Span]) -> Result<Vec<RemoteFile>> {
        match self {
            Source::Host(host) => Ok(host.files.clone()),
            Source::Bucket(bucket) => bucket.files(spans),
        }
    }

    /// `None` if there is no file of that name any more.
    fn read_part(&self, name: &str, bytes: Range<u64>) -> Result<Option<Vec<u8>>> {
        match self {
            Source::Host(host) => host.read_part(name, bytes),
            Source::Bucket(bucket) => bucket.read_part(name, bytes),
        }
    }

    /// Writes a file. False if there is none of that name any more.
    fn read(&self, name: &str, bytes_max: u64, out: &mut dyn Write) -> Result<bool> {
        match self {
            Source::Host(host) => host.read(name, bytes_max, out),
            Source::Bucket(bucket) => bucket.read(name, bytes_max, out),
        }
    }
}

/// Whether an archive of that name lies elsewhere.
pub fn is_remote(archive: &Path) -> bool {
    archive.to_str().is_some_and(|text| ["http://", "https://", "s3://"].iter().any(|s| text.starts_with(s)))
}

/// Fetches what is wanted of an archive into a folder, which is there as long as the view is.
pub fn fetch(url: &str, wanted: Wanted<'_>) -> Result<View> {
    let url = url.trim_end_matches('/');
    let mut source = Source::open(url)?;
    let known = source.known()?.ok_or_else(|| anyhow!("{url}: nothing is recorded there"))?;
    let spans = wanted(known)?;
    let files = chosen(&source.files(&spans)?, &spans);
    if files.is_empty() {
        let [since, until] = [known.since, known.until].map(rfc3339);
        bail!("{url}: nothing was recorded in that time; it holds {since} to {until}");
    }
    let captures: Vec<_> = match &source {
        Source::Host(host) => {
            host.captures(&spans).filter(|one| one.bytes <= cache::CAPTURE_BYTES_MAX).collect()
        }
        Source::Bucket(_) => Vec::new(),
    };
    // The server says how long they are, and a log grows meanwhile.
    let logs = files.iter().filter(|file| !file.is_sealed);
    let sizes = logs.map(|file| file.bytes.saturating_add(cache::GROWS_BYTES));
    let bytes = sizes.chain(captures.iter().map(|one| one.bytes)).fold(0, u64::saturating_add);
    if bytes > FETCH_BYTES_MAX || files.len() + captures.len() > FILES_MAX {
        let (many, most) = (bytes >> 20, FETCH_BYTES_MAX >> 20);
        return Err(usage(format!(
            "{url}: that time has {} files and {many} MiB, and at most {FILES_MAX} and {most} MiB are fetched at once; take a shorter one",
            files.len()
        )));
    }
    let mut view = View::make(url)?;
    let mut sealed = Vec::new();
    for (number, file) in files.iter().enumerate() {
        if file.is_sealed {
            sealed.push((file, view.place(number + 1, file)?, AtomicBool::new(false)));
        } else {
            view.fetch_log(number + 1, file, &|name, most, out| source.read(name, most, out))?;
        }
    }
    each(&captures, |capture| view.fetch_capture(capture, &|name, most, out| source.read(name, most, out)))?;
    drop(captures);
    let parts = Parts {
        url: url.to_owned(),
        dir: view.path().to_owned(),
        files: sealed.iter().map(|(file, placed, _)| (placed.name.clone(), (*file).clone())).collect(),
        read: Box::new(move |name, bytes| source.read_part(name, bytes)),
        fetched: AtomicU64::new(bytes),
    };
    each(&sealed, |(_, placed, is_whole)| {
        is_whole.store(parts.index(&placed.name)?, Ordering::Relaxed);
        Ok(())
    })?;
    for (file, placed, is_whole) in sealed {
        let is_whole = is_whole.into_inner();
        if !is_whole {
            // A reader passes over what is damaged, here as there.
            eprintln!("mitra: {url}: {} is damaged there; what is whole of it is read", file.name);
        }
        view.keep(file, placed, is_whole);
    }
    view.parts = Some(Arc::new(parts));
    Ok(view)
}

/// Works on some at a time, until one fails.
fn each<T: Sync>(jobs: &[T], work: impl Fn(&T) -> Result<()> + Sync) -> Result<()> {
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(None));
    let run = || {
        while let Some(job) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let Err(error) = work(job) {
                next.store(jobs.len(), Ordering::Relaxed);
                failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
            }
        }
    };
    std::thread::scope(|scope| (0..AT_ONCE.min(jobs.len())).for_each(|_| drop(scope.spawn(run))));
    failed.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}

/// From the first to the last moment of files.
fn around(files: &[RemoteFile]) -> Option<Span> {
    let since = files.iter().map(|file| file.span.since).min()?;
    let until = files.iter().map(|file| file.span.until).max()?;
    Some(Span { since, until })
}

/// The files of some stretches, and where one begins between two files, the file with the sample before it.
fn chosen(files: &[RemoteFile], spans: &[Span]) -> Vec<RemoteFile> {
    let mut is_wanted = vec![false; files.len()];
    for span in spans {
        let mut is_first = true;
        for (i, file) in files.iter().enumerate() {
            if file.span.until <= span.since || file.span.since >= span.until {
                continue;
            }
            is_wanted[i] = true;
            if std::mem::take(&mut is_first) && file.span.since >= span.since && i > 0 {
                is_wanted[i - 1] = true;
            }
        }
    }
    let wanted = files.iter().zip(is_wanted).filter(|(_, is_wanted)| *is_wanted);
    wanted.map(|(file, _)| file.clone()).collect()
}

/// The header that asks for a stretch.
fn range_header(bytes: &Range<u64>) -> String {
    format!("bytes={}-{}", bytes.start, bytes.end.saturating_sub(1))
}

/// The stretch of a file that an answer has. A server that knows no ranges sends all of it.
fn part_of(answer: &mut Response<Body>, bytes: &Range<u64>) -> std::io::Result<Vec<u8>> {
    let is_part = answer.status() == StatusCode::PARTIAL_CONTENT;
    let told = answer.headers().get("Content-Range").and_then(|range| range.to_str().ok());
    if is_part && told.is_some_and(|told| !told.starts_with(&format!("bytes {}-", bytes.start))) {
        return Err(std::io::Error::other("another stretch came than was asked for"));
    }
    let before = if is_part { 0 } else { bytes.start };
    let wanted = bytes.end.saturating_sub(bytes.start);
    let limit = before.saturating_add(wanted).saturating_add(1);
    let mut body = answer.body_mut().with_config().limit(limit).reader();
    std::io::copy(&mut body.by_ref().take(before), &mut std::io::sink())?;
    let mut part = Vec::new();
    body.take(wanted).read_to_end(&mut part)?;
    Ok(part)
}

/// What a server said, on one short line.
fn quoted(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let line: String =
        text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(QUOTE_CHARS_MAX).collect();
    line.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use mitra_archive::simulate::Machine;
    use mitra_archive::{Options, Reader, Writer};

    use super::*;

    /// A sealed file of so many samples as another host has it.
    pub(super) fn sealed(samples: usize) -> (Vec<u8>, RemoteFile) {
        let dir = tempfile::tempdir().unwrap();
        let mut machine = Machine::new(100, 50, 1);
        let mut writer = Writer::open(dir.path(), &Machine::host(), Options::default()).unwrap();
        for _ in 0..samples {
            machine.tick();
            writer.append(machine.frame(), machine.strings()).unwrap();
        }
        writer.finish().unwrap();
        let file = Reader::open(dir.path()).unwrap().segment_files().remove(0);
        let bytes = std::fs::read(dir.path().join(&file.name)).unwrap();
        assert_eq!((file.bytes, file.is_sealed), (bytes.len() as u64, true));
        (bytes, RemoteFile { name: file.name, bytes: file.bytes, span: file.span, is_sealed: true })
    }

    fn file(since: i64, until: i64) -> RemoteFile {
        RemoteFile { name: format!("{since}"), bytes: 1, span: Span { since, until }, is_sealed: true }
    }

    #[test]
    fn the_files_of_a_stretch_are_chosen_with_the_sample_before_it() {
        let files = [file(0, 10), file(10, 20), file(20, 30), file(40, 50)];
        let names = |spans: &[(i64, i64)]| {
            let spans: Vec<Span> = spans.iter().map(|&(since, until)| Span { since, until }).collect();
            chosen(&files, &spans).into_iter().map(|file| file.name).collect::<Vec<_>>()
        };
        assert_eq!(names(&[(12, 18)]), ["10"]);
        assert_eq!(names(&[(10, 18)]), ["0", "10"], "it begins with a file");
        assert_eq!(names(&[(12, 21)]), ["10", "20"]);
        assert_eq!(names(&[(35, 60)]), ["20", "40"], "it begins where nothing was recorded");
        assert_eq!(names(&[(0, 5), (41, 42)]), ["0", "40"]);
        assert_eq!(names(&[(30, 40)]), [""; 0]);
        assert_eq!(names(&[]), [""; 0]);
    }

    #[test]
    fn what_is_no_folder_is_known_by_its_scheme() {
        for remote in ["http://127.0.0.1:1", "https://web17:6174", "s3://bucket/prefix/web17"] {
            assert!(is_remote(Path::new(remote)), "{remote}");
        }
        for local in ["/var/lib/mitra", "https", "./https://x", "s3:/x", "ftp://x"] {
            assert!(!is_remote(Path::new(local)), "{local}");
        }
    }

    #[test]
    fn the_first_failure_ends_the_work() {
        let jobs: Vec<usize> = (0..1000).collect();
        let done = AtomicUsize::new(0);
        let work = |job: &usize| {
            done.fetch_add(1, Ordering::Relaxed);
            if *job == 3 { bail!("job 3") } else { Ok(()) }
        };
        assert_eq!(each(&jobs, work).unwrap_err().to_string(), "job 3");
        assert!(each(&jobs, |_| Ok(())).is_ok() && each(&[0_u8; 0], |_| bail!("none")).is_ok());
    }

    #[test]
    fn a_quote_is_one_short_line() {
        assert_eq!(quoted(b" a\nb\x1b[31m "), "a b [31m");
        assert_eq!(quoted(&[b'x'; 1000]).len(), QUOTE_CHARS_MAX);
    }
}
