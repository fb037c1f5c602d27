//! Files and folders of other tools' output: found, told apart, read.
//!
//! First everything is found and opened (`find`), and what only another program can read is handed to it (`sadf`); then all of
//! it is read (`read`), which needs no more than what is open by then.

mod find;
mod read;
mod sadf;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use mitra_model::SeriesSet;
use mitra_model::report::FileRead;
use mitra_parse::text::{self, Import};

use find::{Found, Handle, What};
use read::{Counted, Kind, Left};
use sadf::Sadf;

use crate::withheld;

/// What was read.
pub struct Loaded {
    /// The evidence.
    pub set: SeriesSet,
    /// The good side, where there is one.
    pub good: Option<SeriesSet>,
    /// Every file and what was made of it.
    pub files: Vec<FileRead>,
    /// What reports name, as it was opened.
    opened: HashMap<String, (Kind, Handle)>,
}

impl Loaded {
    /// Reads a file once more, by the name that reports call it; `None` where its lines are not in a file of text.
    pub fn open(&self, name: &str) -> Option<Box<dyn Read>> {
        let (kind, handle) = self.opened.get(name)?;
        read::text(*kind, handle).ok()?
    }
}

/// One name with what it takes to read it.
struct Source {
    name: String,
    good: bool,
    from: From,
}

enum From {
    File(Kind, Handle),
    Sadf(Sadf),
    /// Nothing, and why.
    Not(String),
}

/// What was found and opened, of which nothing was read yet.
pub struct Opened(Vec<Source>);

/// Finds and opens files and folders. Those below `good`, and in folders whose name says so, are the good side; with none of
/// the others there is only one side.
pub fn open(paths: &[PathBuf], good: Option<&Path>) -> Result<Opened> {
    look(paths, good, find::find(paths, good)?)
}

/// Looks what was found, and hands to sadf what is sadf's.
fn look(paths: &[PathBuf], good: Option<&Path>, mut found: Vec<Found>) -> Result<Opened> {
    if found.is_empty() {
        let names: Vec<String> = paths.iter().map(|p| p.display().to_string()).collect();
        return Err(anyhow!("{}: no files there", names.join(", ")));
    }
    if found.iter().all(|f| f.good) && good.is_none() {
        found.iter_mut().for_each(|f| f.good = false);
    }
    let mut room = sadf::Room::default();
    let sources = found.into_iter().map(|one| {
        let from = match one.what {
            What::Not(why) => From::Not(why),
            What::File(handle) => match read::kind(&handle) {
                Ok(Kind::Sysstat) => match Sadf::start(&handle, &one.name, &mut room) {
                    Ok(sadf) => From::Sadf(sadf),
                    Err(why) => From::Not(why),
                },
                Ok(kind) => From::File(kind, handle),
                Err(error) => From::Not(format!("could not be read: {error}")),
            },
        };
        Source { name: one.name, good: one.good, from }
    });
    Ok(Opened(sources.collect()))
}

impl Opened {
    /// Programs that run already, to read what only they can.
    pub fn children(&self) -> impl Iterator<Item = u32> {
        self.0.iter().filter_map(|source| match &source.from {
            From::Sadf(sadf) => Some(sadf.pid()),
            From::File(..) | From::Not(_) => None,
        })
    }

    /// Reads all of it, each file by the descriptor that it was opened with. `date` (days since 1970) is the date of files
    /// that have none.
    pub fn read(self, date: Option<i64>) -> Loaded {
        let mut bad_side = Import::new(date);
        let mut good_side = Import::new(date);
        let mut left = Left::all();
        let mut opened = HashMap::new();
        let any_good = self.0.iter().any(|source| source.good);
        for Source { name, good, from } in self.0 {
            let import = if good { &mut good_side } else { &mut bad_side };
            match from {
                From::Not(why) => {
                    import.begin_file(&name);
                    import.note(why);
                }
                From::Sadf(sadf) => sadf.read(&name, import, &mut left),
                From::File(kind, handle) => {
                    read_one(&name, kind, &handle, import, &mut left);
                    opened.insert(name, (kind, handle));
                }
            }
        }
        let mut bad_side = bad_side.finish();
        let mut good_side = good_side.finish();
        withheld::in_events(&mut bad_side.set.events);
        withheld::in_events(&mut good_side.set.events);
        let mut files = bad_side.files;
        files.extend(good_side.files.into_iter().map(|mut file| {
            file.notes.insert(0, "read as the good side".to_owned());
            file
        }));
        for (_, text) in files.iter_mut().filter_map(|file| file.first_unread.as_mut()) {
            *text = withheld::text(text);
        }
        Loaded { set: bad_side.set, good: any_good.then_some(good_side.set), files, opened }
    }
}

/// Reads one file. What cannot be read is noted with the file and costs the others nothing.
fn read_one(name: &str, kind: Kind, handle: &Handle, import: &mut Import, left: &mut Left) {
    match read::text(kind, handle) {
        Ok(Some(mut input)) => {
            let mut input = Counted { inner: &mut *input, left };
            if let Err(error) = text::read(&mut input, name, import) {
                import.note(format!("could not be read to its end: {error}"));
            }
        }
        Ok(None) => {
            import.begin_file(name);
            import.note(kind.why_not());
        }
        Err(error) => {
            import.begin_file(name);
            import.note(format!("could not be read: {error}"));
        }
    }
}

/// First words of folders whose files were made when all was well.
const GOOD_WORDS: &[&str] = &["baseline", "good", "healthy", "normal", "before", "reference", "fixed"];
/// How names of such folders begin otherwise.
const GOOD_STARTS: &[&str] = &["at-start", "at_start", "after-fix", "after_fix"];

/// Whether the name of a folder says that all was well when its files were made.
fn is_good_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let first = name.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
    GOOD_WORDS.contains(&first) || GOOD_STARTS.iter().any(|start| name.starts_with(start))
}
