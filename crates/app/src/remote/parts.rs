//! The parts of sealed files that a reader wants. What came is kept; what is missing in a file is a hole, which no checksum fits.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, bail};
use mitra_archive::{Elsewhere, Stretch, is_indexed};

use super::{FETCH_BYTES_MAX, RemoteFile, each};
use crate::errors::usage;

/// The ends of a file that are asked for until its index is there: of ordinary files the first has it.
const TAILS: [u64; 3] = [16 << 10, 512 << 10, u64::MAX];

/// Reads a stretch of a file. `None` if there is none of that name any more.
pub type ReadPart = Box<dyn Fn(&str, Range<u64>) -> Result<Option<Vec<u8>>> + Send + Sync>;

/// The sealed files of a view, by their names there.
pub struct Parts {
    pub url: String,
    pub dir: PathBuf,
    pub files: HashMap<String, RemoteFile>,
    pub read: ReadPart,
    /// Bytes, of one question.
    pub fetched: AtomicU64,
}

impl Parts {
    /// Sees to it that the index of a file is there. False if it is damaged where it comes from: all of it came.
    pub fn index(&self, name: &str) -> Result<bool> {
        let (path, file) = (self.dir.join(name), self.file(name)?);
        for tail in TAILS {
            if is_indexed(&path)? {
                return Ok(true);
            }
            self.fetch(name, file.bytes.saturating_sub(tail)..file.bytes)?;
            if tail >= file.bytes {
                break;
            }
        }
        Ok(is_indexed(&path)?)
    }

    fn file(&self, name: &str) -> Result<&RemoteFile> {
        self.files.get(name).with_context(|| format!("{}: no sealed file is called {name}", self.url))
    }

    fn fetch(&self, name: &str, bytes: Range<u64>) -> Result<()> {
        let (url, path, file) = (&self.url, self.dir.join(name), self.file(name)?);
        let wanted = bytes.end.saturating_sub(bytes.start);
        if self.fetched.fetch_add(wanted, Ordering::Relaxed).saturating_add(wanted) > FETCH_BYTES_MAX {
            let most = FETCH_BYTES_MAX >> 20;
            return Err(usage(format!(
                "{url}: that needs more than the {most} MiB that are fetched at once; take a shorter time"
            )));
        }
        let Some(part) = (self.read)(&file.name, bytes.clone())? else {
            bail!("{url}: {} was removed since it was listed; ask again", file.name);
        };
        if part.len() as u64 != wanted {
            bail!("{url}: {} did not come whole: {} of {wanted} bytes", file.name, part.len());
        }
        let written = open(&path).and_then(|out| out.write_all_at(&part, bytes.start));
        written.with_context(|| format!("cannot write to {}", path.display()))
    }
}

fn open(path: &Path) -> io::Result<File> {
    let no_link = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
    OpenOptions::new().write(true).custom_flags(no_link).open(path)
}

impl Elsewhere for Parts {
    fn bring(&self, stretches: &[Stretch]) -> io::Result<()> {
        let fetch = |stretch: &Stretch| self.fetch(&stretch.name, stretch.bytes.clone());
        each(stretches, fetch).map_err(|error| io::Error::other(format!("{error:#}")))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::{Arc, Mutex};

    use mitra_archive::{Query, Reader};
    use mitra_model::{SeriesSet, Span, lookup};

    use super::super::tests::sealed;
    use super::*;

    const NAME: &str = "0000000001.seg";

    fn shown(set: &SeriesSet) -> String {
        format!("{set:?}")
    }

    /// A file of which a copy lies in a folder, as much of it as was asked for.
    struct Both {
        dir: tempfile::TempDir,
        there: Arc<Mutex<Vec<u8>>>,
        file: RemoteFile,
    }

    impl Both {
        fn new() -> Both {
            let (bytes, file) = sealed(200);
            let dir = tempfile::tempdir().unwrap();
            File::create(dir.path().join(NAME)).unwrap().set_len(file.bytes).unwrap();
            Both { dir, there: Arc::new(Mutex::new(bytes)), file }
        }

        fn parts(&self) -> Arc<Parts> {
            let there = Arc::clone(&self.there);
            Arc::new(Parts {
                url: "https://web17".to_owned(),
                dir: self.dir.path().to_owned(),
                files: HashMap::from([(NAME.to_owned(), self.file.clone())]),
                read: Box::new(move |_, bytes| {
                    let there = there.lock().unwrap();
                    if there.is_empty() {
                        return Ok(None);
                    }
                    let end = there.len().min(bytes.end as usize);
                    Ok(Some(there[end.min(bytes.start as usize)..end].to_vec()))
                }),
                fetched: AtomicU64::new(0),
            })
        }

        /// The series of one metric, or all, and how many bytes came for it.
        fn read(&self, metric: Option<&str>) -> (Result<String, String>, u64) {
            let parts = self.parts();
            let read = || {
                parts.index(NAME).map_err(|error| error.to_string())?;
                let reader = Reader::open_with(self.dir.path(), Arc::clone(&parts) as _).unwrap();
                let metrics = metric.map(|name| vec![lookup(name).unwrap()]);
                let set = reader.read(&Query { span: Span::ALL, metrics, ..Query::default() });
                assert_eq!(reader.skipped(), []);
                set.map(|set| shown(&set)).map_err(|error| error.to_string())
            };
            (read(), parts.fetched.load(Ordering::Relaxed))
        }

        fn as_there(&self, metric: Option<&str>) -> String {
            let dir = tempfile::tempdir().unwrap();
            fs::write(dir.path().join(NAME), &*self.there.lock().unwrap()).unwrap();
            let metrics = metric.map(|name| vec![lookup(name).unwrap()]);
            shown(&Reader::open(dir.path()).unwrap().read(&Query { metrics, ..Query::default() }).unwrap())
        }
    }

    #[test]
    fn what_a_reader_wants_comes_once() {
        let both = Both::new();
        let (set, bytes) = both.read(Some("sys.ctxt"));
        assert_eq!(set.unwrap(), both.as_there(Some("sys.ctxt")));
        assert!(bytes < both.file.bytes / 2, "{bytes} of {}", both.file.bytes);
        assert_eq!(both.read(Some("sys.ctxt")).1, 0, "it was kept");
        let (set, more) = both.read(None);
        assert!(set.unwrap() == both.as_there(None));
        assert!(more > 0 && bytes + more <= both.file.bytes + both.file.bytes / 10, "{bytes}, {more}");
        assert_eq!(both.read(None).1, 0);
    }

    #[test]
    fn what_is_kept_is_not_believed_blindly() {
        let both = Both::new();
        let all = both.read(None).0.unwrap();
        let path = both.dir.path().join(NAME);
        let good = fs::read(&path).unwrap();
        for at in (20..good.len()).step_by(good.len() / 8).chain([good.len() - 3]) {
            let mut damaged = good.clone();
            damaged[at] ^= 1;
            fs::write(&path, damaged).unwrap();
            assert!(both.read(None).0.unwrap() == all, "byte {at}");
        }
    }

    #[test]
    fn what_cannot_be_had_is_an_error_and_no_gap() {
        let both = Both::new();
        both.read(Some("sys.ctxt")).0.unwrap();
        let whole = std::mem::take(&mut *both.there.lock().unwrap());
        let error = both.read(None).0.unwrap_err();
        assert!(error.contains("was removed since it was listed"), "{error}");
        *both.there.lock().unwrap() = whole[..100].to_vec();
        let error = both.read(None).0.unwrap_err();
        assert!(error.contains("did not come whole"), "{error}");
        let far = Stretch { name: NAME.to_owned(), bytes: 0..FETCH_BYTES_MAX + 1 };
        assert!(both.parts().bring(&[far]).unwrap_err().to_string().contains("take a shorter time"));
        let unknown = Stretch { name: "../x".to_owned(), bytes: 0..1 };
        assert!(both.parts().bring(&[unknown]).unwrap_err().to_string().contains("no sealed file"));
    }

    #[test]
    fn what_is_damaged_there_is_read_as_far_as_it_is_whole() {
        let both = Both::new();
        let end = both.file.bytes as usize - 3;
        both.there.lock().unwrap()[end] ^= 1;
        let parts = both.parts();
        assert!(!parts.index(NAME).unwrap());
        let reader = Reader::open_with(both.dir.path(), parts).unwrap();
        assert!(
            shown(&reader.read(&Query::default()).unwrap()) == both.as_there(None)
                && !reader.skipped().is_empty()
        );
    }
}
