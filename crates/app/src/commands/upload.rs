//! `mitra upload`: follows an archive and stores each sealed segment once. What was stored is what the bucket lists.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use mitra_archive::{Reader, SegmentFile};

use crate::cli::UploadArgs;
use crate::commands::print;
use crate::errors::{Interrupted, Usage, in_words, usage};
use crate::log::log;
use crate::recording;
use crate::remote::{Bucket, Listed, url_of_uploads};
use crate::signals::{self, Hangup, STOP};

const LOOK_EVERY: Duration = Duration::from_secs(10);
/// After a failure, longer each time.
const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(300);
/// With `--once`.
const TRIES: u32 = 4;
const NAP: Duration = Duration::from_millis(200);

pub fn run(args: &UploadArgs) -> Result<()> {
    signals::catch_stop(Hangup::Stop).context("cannot set signal handlers")?;
    let to = args.to.clone().map_or_else(url_of_uploads, Ok)?;
    if !to.starts_with("s3://") {
        return Err(usage(format!("{to}: want s3://BUCKET/PREFIX")));
    }
    let Some((dir, reader)) = opened(args)? else { return Ok(()) };
    let to = to.trim_end_matches('/');
    let mut upload = Upload { reader, to, there: None, stored: 0, skipped: 0 };
    // What is wrong in the configuration is said at once. A service may start before the first frame is written.
    if args.once || !upload.reader.host().hostname.is_empty() {
        Bucket::of(&upload.url()?)?;
    }
    print(&format!("storing the segments of {} in {to}\n", dir.display()))?;
    let mut failures = 0;
    while !STOP.load(Ordering::Relaxed) {
        let pause = match upload.pass() {
            Ok(()) if args.once => {
                let Upload { stored, skipped, .. } = upload;
                return print(&format!("{stored} segments stored, {skipped} were there\n"));
            }
            Ok(()) => {
                failures = 0;
                LOOK_EVERY
            }
            Err(error) => {
                failures += 1;
                if args.once && failures == TRIES {
                    return Err(error);
                }
                let pause = RETRY_MAX.min(RETRY_FIRST * 2_u32.saturating_pow(failures - 1));
                log(&format!("{error:#}; tried again in {} s", pause.as_secs()));
                pause
            }
        };
        sleep(pause);
    }
    if args.once { Err(Interrupted.into()) } else { Ok(()) }
}

/// Opens the archive. A service waits for one that is not there yet; `None` if it is stopped meanwhile.
fn opened(args: &UploadArgs) -> Result<Option<(PathBuf, Reader)>> {
    let archive = args.archive.chosen();
    let mut trouble = String::new();
    while !STOP.load(Ordering::Relaxed) {
        match recording::open(&archive) {
            Err(error) if !args.once && !error.is::<Usage>() => {
                let why = in_words(&error);
                if why != trouble {
                    log(&format!("{why}; waiting for it"));
                    trouble = why;
                }
                sleep(RETRY_FIRST);
            }
            opened => return opened.map(Some),
        }
    }
    Ok(None)
}

fn sleep(pause: Duration) {
    let start = Instant::now();
    while start.elapsed() < pause && !STOP.load(Ordering::Relaxed) {
        std::thread::sleep(NAP.min(pause));
    }
}

struct Upload<'a> {
    reader: Reader,
    to: &'a str,
    /// The bucket, and what it lists.
    there: Option<(Bucket, BTreeSet<Listed>)>,
    stored: u32,
    skipped: u32,
}

impl Upload<'_> {
    /// Where this host's segments go.
    fn url(&self) -> Result<String> {
        let name = &self.reader.host().hostname;
        if name.is_empty() {
            bail!("{}: nothing is recorded yet", self.reader.dir().display());
        }
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        let name: String = name.chars().map(|c| if is_plain(c) { c } else { '_' }).collect();
        Ok(format!("{}/{name}", self.to))
    }

    /// Stores what is sealed and not there yet.
    fn pass(&mut self) -> Result<()> {
        self.reader.refresh().with_context(|| format!("cannot read {}", self.reader.dir().display()))?;
        let sealed: Vec<SegmentFile> =
            self.reader.segment_files().into_iter().filter(|file| file.is_sealed).collect();
        let Some(first) = sealed.iter().map(|file| file.span.since).min() else { return Ok(()) };
        if self.there.is_none() {
            let mut bucket = Bucket::of(&self.url()?)?;
            let listed: BTreeSet<Listed> = bucket.since(first)?.into_iter().collect();
            let is_there = |file: &&SegmentFile| listed_as(file).is_some_and(|one| listed.contains(&one));
            self.skipped = sealed.iter().filter(is_there).count() as u32;
            self.there = Some((bucket, listed));
        }
        let Some((bucket, listed)) = &mut self.there else { return Ok(()) };
        for file in &sealed {
            let Some(one) = listed_as(file).filter(|one| !listed.contains(one)) else { continue };
            if STOP.load(Ordering::Relaxed) {
                return Err(Interrupted.into());
            }
            let path = self.reader.dir().join(&file.name);
            let bytes = match std::fs::read(&path) {
                // Retention took it.
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                read => read.with_context(|| format!("cannot read {}", path.display()))?,
            };
            bucket.put(file, &bytes)?;
            listed.insert(one);
            self.stored += 1;
        }
        Ok(())
    }
}

/// Number and size: the clock may have been set since it was stored, and then its times are others.
fn listed_as(file: &SegmentFile) -> Option<Listed> {
    let number = file.name.strip_suffix(".seg")?.parse().ok()?;
    Some(Listed { number, bytes: file.bytes })
}
