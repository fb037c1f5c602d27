//! Files and folders of other tools' output: found, classified, read.
//!
//! `find` opens everything first, and binary files of sysstat are handed to sadf (`sadf`). `read`
//! then needs no more than what is open.

mod archive;
mod find;
pub mod quotes;
mod read;
mod sadf;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Result, anyhow};
use mitra_model::SeriesSet;
use mitra_model::report::FileRead;
use mitra_parse::text::{self, Import};

use find::{Content, EvidenceEntry, FileHandle};
use read::{Counted, Kind, ReadBudget};
use sadf::Sadf;

use crate::redact;

pub struct Loaded {
    pub set: SeriesSet,
    /// The good side, where there is one.
    pub good: Option<SeriesSet>,
    /// Every file, and what was read of it.
    pub files: Vec<FileRead>,
    /// By the name in reports.
    opened: HashMap<String, Stored>,
}

/// Where a file is that was read.
#[derive(Clone)]
struct Stored {
    kind: Kind,
    handle: Arc<FileHandle>,
    /// The name of the archive that it is in.
    archive: Option<Arc<str>>,
}

/// Bytes of a file in an archive that are read again, to quote lines of it.
const QUOTED_BYTES_MAX: u64 = 64 << 20;

impl Loaded {
    /// Reads a file again, by its name in reports; `None` if it has no lines of text.
    pub fn open(&self, name: &str) -> Option<Box<dyn Read>> {
        let Stored { kind, handle, archive } = self.opened.get(name)?;
        let Some(archive) = archive else { return read::text(*kind, handle).ok()? };
        let mut found = None;
        // What is damaged behind it was noted when it was read.
        _ = archive::each(archive, *kind, read::bytes(handle).ok()?, &mut |member, input| {
            if member != name {
                return true;
            }
            let mut bytes = Vec::new();
            found = input.ok().and_then(|input| {
                input.take(QUOTED_BYTES_MAX).read_to_end(&mut bytes).ok()?;
                Some(bytes)
            });
            false
        });
        found.map(|bytes| Box::new(Cursor::new(bytes)) as Box<dyn Read>)
    }
}

/// One entry, ready to be read.
struct Source {
    name: String,
    good: bool,
    input: Input,
}

enum Input {
    File(Kind, FileHandle),
    Sadf(Sadf),
    /// Why it is not read.
    Skipped(String),
}

/// Opened evidence, nothing of which was read yet.
pub struct Opened(Vec<Source>);

/// Opens files and folders. Those below `good`, and in folders whose name says so, are the good
/// side, unless all are.
pub fn open(paths: &[PathBuf], good: Option<&Path>) -> Result<Opened> {
    prepare(paths, good, find::find(paths, good)?)
}

/// Classifies the entries, and starts sadf for its files.
fn prepare(paths: &[PathBuf], good: Option<&Path>, mut found: Vec<EvidenceEntry>) -> Result<Opened> {
    if found.is_empty() {
        let names: Vec<String> = paths.iter().map(|p| p.display().to_string()).collect();
        return Err(anyhow!("{}: no files there", names.join(", ")));
    }
    if found.iter().all(|f| f.good) && good.is_none() {
        found.iter_mut().for_each(|f| f.good = false);
    }
    let mut budget = sadf::Budget::default();
    let sources = found.into_iter().map(|one| {
        let input = match one.content {
            Content::Skipped(why) => Input::Skipped(why),
            Content::File(handle) => match read::kind(&handle) {
                Ok(Kind::Sysstat) => match Sadf::start(&handle, &one.name, &mut budget) {
                    Ok(sadf) => Input::Sadf(sadf),
                    Err(why) => Input::Skipped(why),
                },
                Ok(kind) => Input::File(kind, handle),
                Err(error) => Input::Skipped(format!("could not be read: {error}")),
            },
        };
        Source { name: one.name, good: one.good, input }
    });
    Ok(Opened(sources.collect()))
}

impl Opened {
    /// Processes of sadf that are running already.
    pub fn children(&self) -> impl Iterator<Item = u32> {
        self.0.iter().filter_map(|source| match &source.input {
            Input::Sadf(sadf) => Some(sadf.pid()),
            Input::File(..) | Input::Skipped(_) => None,
        })
    }

    /// Reads each file by the descriptor that it was opened with. `date` (days since 1970) is the
    /// date of files without one.
    pub fn read(self, date: Option<i64>) -> Loaded {
        let mut bad_side = Import::new(date);
        let mut good_side = Import::new(date);
        let mut budget = ReadBudget::start();
        let mut opened = HashMap::new();
        let any_good = self.0.iter().any(|source| source.good);
        for Source { name, good, input } in self.0 {
            let import = if good { &mut good_side } else { &mut bad_side };
            match input {
                Input::Skipped(why) => {
                    import.begin_file(&name);
                    import.note(why);
                }
                Input::Sadf(sadf) => sadf.read(&name, import, &mut budget),
                Input::File(kind, handle) => {
                    let stored = Stored { kind, handle: Arc::new(handle), archive: None };
                    read_one(&name, &stored, import, &mut budget, &mut opened);
                }
            }
        }
        let mut bad_side = bad_side.finish();
        let mut good_side = good_side.finish();
        redact::events(&mut bad_side.set.events);
        redact::events(&mut good_side.set.events);
        let mut files = bad_side.files;
        files.extend(good_side.files.into_iter().map(|mut file| {
            file.notes.insert(0, "read as the baseline".to_owned());
            file
        }));
        for (_, text) in files.iter_mut().filter_map(|file| file.first_unread.as_mut()) {
            *text = redact::text(text);
        }
        Loaded { set: bad_side.set, good: any_good.then_some(good_side.set), files, opened }
    }
}

/// Reads one file, or each file of an archive. An error is noted with the file and does not affect the others.
fn read_one(
    name: &str,
    stored: &Stored,
    import: &mut Import,
    budget: &mut ReadBudget,
    opened: &mut HashMap<String, Stored>,
) {
    let archive: Arc<str> = name.into();
    let mut any = false;
    let walked = read::bytes(&stored.handle).and_then(|input| {
        archive::each(name, stored.kind, input, &mut |member, input| {
            any = true;
            match input {
                Ok(input) => {
                    let mut input = Counted { inner: input, budget: &mut *budget };
                    if let Err(error) = text::read(&mut input, member, import) {
                        import.note(format!("could not be read to its end: {error}"));
                    }
                }
                Err(why) => {
                    import.begin_file(member);
                    import.note(why);
                }
            }
            let archive = (member != name).then(|| Arc::clone(&archive));
            opened.insert(member.to_owned(), Stored { archive, ..stored.clone() });
            true
        })
    });
    if let Err(error) = walked {
        import.begin_file(name);
        import.note(format!("could not be read to its end: {error}"));
    } else if !any {
        import.begin_file(name);
        import.note("an archive without files".to_owned());
    }
}

/// First words of the names of good folders.
const GOOD_WORDS: &[&str] = &["baseline", "good", "healthy", "normal", "before", "reference", "fixed"];
/// Other beginnings of their names.
const GOOD_STARTS: &[&str] = &["at-start", "at_start", "after-fix", "after_fix"];

/// Whether a folder's name says that its files were made in good times.
fn is_good_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let first = name.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
    GOOD_WORDS.contains(&first) || GOOD_STARTS.iter().any(|start| name.starts_with(start))
}
