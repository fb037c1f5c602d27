//! Archives that lie elsewhere: behind `mitra serve` of another host, or in an object store. Such an archive is a folder that is
//! filled on demand: of the files, which are listed with their times, those of the wanted range are fetched.

mod bucket;
mod cache;
mod host;
mod settings;

use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use anyhow::{Result, anyhow, bail};
use mitra_model::Span;

use crate::errors::usage;
use crate::render::style::rfc3339;

pub use bucket::{Bucket, Listed};
pub use cache::View;
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
    let grows = |file: &RemoteFile| if file.is_sealed { 0 } else { cache::GROWS_BYTES };
    let sizes = files.iter().map(|file| file.bytes.saturating_add(grows(file)));
    let bytes = sizes.chain(captures.iter().map(|one| one.bytes)).fold(0, u64::saturating_add);
    if bytes > FETCH_BYTES_MAX || files.len() + captures.len() > FILES_MAX {
        let (many, most) = (bytes >> 20, FETCH_BYTES_MAX >> 20);
        return Err(usage(format!(
            "{url}: that time has {} files and {many} MiB, and at most {FILES_MAX} and {most} MiB are fetched at once; take a shorter one",
            files.len()
        )));
    }
    let view = View::make(url)?;
    let jobs: Vec<_> = files.iter().enumerate().collect();
    each(&jobs, |(number, file)| {
        view.fetch(number + 1, file, &|name, most, out| source.read(name, most, out))
    })?;
    each(&captures, |capture| view.fetch_capture(capture, &|name, most, out| source.read(name, most, out)))?;
    view.trim();
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

/// What a server said, on one short line.
fn quoted(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let line: String =
        text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(QUOTE_CHARS_MAX).collect();
    line.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

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
