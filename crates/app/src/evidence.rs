//! Files and folders of other tools' output: found, told apart, read.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, anyhow};
use mitra_model::SeriesSet;
use mitra_model::report::FileRead;
use mitra_parse::text::{self, Import};

use crate::errors::usage;

/// Files below one call's paths; a folder with more is not evidence of one case.
const FILES_MAX: usize = 20_000;
/// How deep folders are walked.
const DEPTH_MAX: usize = 16;
/// What is read of a file before it is decided what it is.
const HEAD_BYTES: usize = 4096;

/// What was read.
pub struct Loaded {
    /// The evidence.
    pub set: SeriesSet,
    /// The good side, where there is one.
    pub good: Option<SeriesSet>,
    /// Every file and what was made of it.
    pub files: Vec<FileRead>,
    /// Where the files are that reports name.
    paths: HashMap<String, PathBuf>,
}

impl Loaded {
    /// Opens a file by the name that reports call it; `None` where its lines are not in a file of text.
    pub fn open(&self, name: &str) -> Option<Box<dyn Read>> {
        let path = self.paths.get(name)?;
        match kind(path).ok()? {
            Kind::Text => Some(Box::new(BufReader::new(File::open(path).ok()?))),
            Kind::Gzip => Some(Box::new(flate2::read::MultiGzDecoder::new(File::open(path).ok()?))),
            Kind::Sysstat | Kind::Binary | Kind::Empty => None,
        }
    }
}

/// One file to be read.
struct Found {
    name: String,
    path: PathBuf,
    good: bool,
}

/// What was found, of which nothing was read yet.
pub struct Opened {
    found: Vec<Found>,
    any_good: bool,
}

/// Finds files and folders. Those below `good`, and in folders whose name says so, are the good side; with none of the
/// others there is only one side.
pub fn open(paths: &[PathBuf], good: Option<&Path>) -> Result<Opened> {
    let mut found: Vec<Found> = Vec::new();
    for path in paths {
        collect(path, path, false, 0, &mut found)?;
    }
    if let Some(good) = good {
        // The good side may lie inside the folder that is explained.
        let inside = fs::canonicalize(good).with_context(|| format!("cannot read {}", good.display()))?;
        found.retain(|f| fs::canonicalize(&f.path).map_or(true, |p| !p.starts_with(&inside)));
        let first = found.len();
        collect(good, good, true, 0, &mut found)?;
        found[first..].iter_mut().for_each(|f| f.good = true);
    }
    if found.is_empty() {
        let names: Vec<String> = paths.iter().map(|p| p.display().to_string()).collect();
        return Err(anyhow!("{}: no files there", names.join(", ")));
    }
    if found.iter().all(|f| f.good) && good.is_none() {
        found.iter_mut().for_each(|f| f.good = false);
    }
    make_unique(&mut found);
    let any_good = found.iter().any(|f| f.good);
    Ok(Opened { found, any_good })
}

impl Opened {
    /// Programs that run already, to read what only they can.
    pub fn children(&self) -> Vec<u32> {
        Vec::new()
    }

    /// Whether programs are still to be started.
    pub fn starts_programs(&self) -> bool {
        self.found.iter().any(|one| matches!(kind(&one.path), Ok(Kind::Sysstat)))
    }

    /// Reads all of it. `date` (days since 1970) is the date of files that have none.
    pub fn read(self, date: Option<i64>) -> Loaded {
        let mut bad_side = Import::new(date);
        let mut good_side = Import::new(date);
        for one in &self.found {
            read_one(one, if one.good { &mut good_side } else { &mut bad_side });
        }
        let bad_side = bad_side.finish();
        let good_side = good_side.finish();
        let mut files = bad_side.files;
        files.extend(good_side.files.into_iter().map(|mut file| {
            file.notes.insert(0, "read as the good side".to_owned());
            file
        }));
        Loaded {
            set: bad_side.set,
            good: self.any_good.then_some(good_side.set),
            files,
            paths: self.found.into_iter().map(|f| (f.name, f.path)).collect(),
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

/// Finds the files below a path, in order of their names.
fn collect(root: &Path, path: &Path, good: bool, depth: usize, found: &mut Vec<Found>) -> Result<()> {
    let is_named_good = path.file_name().is_some_and(|n| is_good_name(&n.to_string_lossy()));
    let meta = fs::metadata(path).map_err(|e| {
        let text = format!("cannot read {}: {e}", path.display());
        if depth == 0 { usage(text) } else { anyhow!(text) }
    })?;
    if meta.is_dir() {
        if depth >= DEPTH_MAX {
            return Ok(());
        }
        let good = good || is_named_good;
        let list = fs::read_dir(path).with_context(|| format!("cannot list {}", path.display()))?;
        let mut names: Vec<PathBuf> = list.filter_map(|e| Some(e.ok()?.path())).collect();
        names.sort();
        for name in names {
            // A link to a folder may lead round in a circle; what it points to was not put here.
            let is_link = fs::symlink_metadata(&name).is_ok_and(|m| m.is_symlink());
            if !(is_link && name.is_dir()) {
                collect(root, &name, good, depth + 1, found)?;
            }
        }
        return Ok(());
    }
    if !meta.is_file() && depth > 0 {
        return Ok(());
    }
    if found.len() >= FILES_MAX {
        return Err(usage(format!("{}: more than {FILES_MAX} files", root.display())));
    }
    let short = match path.strip_prefix(root) {
        Ok(rest) if rest.as_os_str().is_empty() => path.file_name().map(PathBuf::from),
        Ok(rest) => Some(rest.to_owned()),
        Err(_) => None,
    };
    let name = short.unwrap_or_else(|| path.to_owned()).to_string_lossy().into_owned();
    found.push(Found { name, path: path.to_owned(), good });
    Ok(())
}

/// Files of the same name below several paths are called by their whole paths.
fn make_unique(found: &mut [Found]) {
    let mut count: HashMap<String, usize> = HashMap::new();
    for one in found.iter() {
        *count.entry(one.name.clone()).or_default() += 1;
    }
    for one in found.iter_mut().filter(|f| count[&f.name] > 1) {
        one.name = one.path.to_string_lossy().into_owned();
    }
}

/// What a file is by its first bytes.
enum Kind {
    Text,
    Gzip,
    Sysstat,
    Binary,
    Empty,
}

fn kind(path: &Path) -> io::Result<Kind> {
    let mut head = Vec::with_capacity(HEAD_BYTES);
    File::open(path)?.take(HEAD_BYTES as u64).read_to_end(&mut head)?;
    Ok(if head.is_empty() {
        Kind::Empty
    } else if head.starts_with(&[0x1f, 0x8b]) {
        Kind::Gzip
    } else if text::sysstat::is_binary_sa(&head).is_some() {
        Kind::Sysstat
    } else if head.contains(&0) {
        Kind::Binary
    } else {
        Kind::Text
    })
}

/// Reads one file. What cannot be read is noted with the file and costs the others nothing.
fn read_one(one: &Found, import: &mut Import) {
    let failed = |import: &mut Import, error: &dyn std::fmt::Display| {
        import.note(format!("could not be read to its end: {error}"));
    };
    let kind = match kind(&one.path) {
        Ok(kind) => kind,
        Err(error) => {
            import.begin_file(&one.name);
            return failed(import, &error);
        }
    };
    let mut input: Box<dyn Read> = match kind {
        Kind::Text | Kind::Gzip => match File::open(&one.path) {
            Ok(file) if matches!(kind, Kind::Text) => Box::new(file),
            Ok(file) => Box::new(flate2::read::MultiGzDecoder::new(file)),
            Err(error) => {
                import.begin_file(&one.name);
                return failed(import, &error);
            }
        },
        Kind::Sysstat => return sysstat(one, import),
        Kind::Empty | Kind::Binary => {
            import.begin_file(&one.name);
            let what = if matches!(kind, Kind::Empty) { "empty" } else { "binary: not read" };
            return import.note(what);
        }
    };
    if let Err(error) = text::read(&mut *input, &one.name, import) {
        failed(import, &error);
    }
}

/// A binary file of sadc, by way of the sadf that is installed: only that knows its own versions.
fn sysstat(one: &Found, import: &mut Import) {
    let child = Command::new("sadf")
        .args(["-d", "-U"])
        .arg(&one.path)
        .args(["--", "-A"])
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) => {
            import.begin_file(&one.name);
            let why = if error.kind() == io::ErrorKind::NotFound {
                "a binary file of sysstat, and there is no sadf here to read it; install it (apt-get install sysstat), \
                 or run on the host that wrote it: sadf -d -U FILE -- -A > FILE.txt"
                    .to_owned()
            } else {
                format!("a binary file of sysstat; sadf cannot be run: {error}")
            };
            return import.note(why);
        }
    };
    let mut said = child.stderr.take();
    let complaints = std::thread::spawn(move || {
        let mut text = String::new();
        if let Some(said) = &mut said {
            // What it complains of is short; the rest is read so that it does not block.
            let _ = said.take(4096).read_to_string(&mut text);
            let _ = io::copy(said, &mut io::sink());
        }
        text
    });
    let read = match &mut child.stdout {
        Some(output) => text::read(output, &one.name, import),
        None => Ok(()),
    };
    import.format("sysstat binary, read by sadf");
    let complaints = complaints.join().unwrap_or_default();
    match child.wait() {
        Ok(status) if status.success() && read.is_ok() => {}
        _ => import.note(format!(
            "sadf could not read it: {}; run the sadf of the host that wrote it: sadf -d -U FILE -- -A > FILE.txt",
            complaints.lines().next().unwrap_or("no reason given")
        )),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn folders_that_say_that_all_was_well() {
        for name in
            ["baseline-32g", "at-start", "after-fix", "good", "Baseline", "before_upgrade", "healthy.2"]
        {
            assert!(is_good_name(name), "{name}");
        }
        for name in ["incident", "grown", "goods", "beforehand", "afternoon", "web", ""] {
            assert!(!is_good_name(name), "{name}");
        }
    }

    #[test]
    fn the_help_names_them() {
        let mitra = crate::cli::Cli::command();
        let explain = mitra.find_subcommand("explain").unwrap();
        let baseline = explain.get_arguments().find(|argument| argument.get_id() == "baseline").unwrap();
        let help = baseline.get_help().unwrap().to_string();
        for word in GOOD_WORDS.iter().chain(GOOD_STARTS).filter(|word| !word.contains('_')) {
            assert!(help.contains(word), "{word} is not in {help}");
        }
    }
}
