//! What a variant changes on the machine, and how it is put back.
//!
//! Before the first change, the old values are on the disk, in `undo.json` of the folder of the state. They are put back
//! when the run ends, and where Mitra was killed when the next experiment starts. A lock beside that file keeps two
//! experiments from changing the machine at the same time.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::process::{self, Failure, Program};
use crate::errors::usage;
use crate::recording;

const UNDO: &str = "undo.json";
const LOCK: &str = "lock";
/// As the recorder makes it.
const PARENT_MODE: u32 = 0o750;
const DIR_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
/// Larger files are no settings.
const CONTENT_MAX: u64 = 4 << 20;
const UNDO_MAX: u64 = 256 << 20;
/// Tear-down commands take seconds.
const TEARDOWN_TIMEOUT: Duration = Duration::from_secs(120);

/// A file that gets another content.
#[derive(Debug, Clone)]
pub struct Change {
    pub path: PathBuf,
    pub content: String,
}

/// A command that undoes what a set-up command did.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Teardown {
    pub argv: Vec<String>,
    pub environment: BTreeMap<String, String>,
    pub directory: PathBuf,
    /// What it prints goes there.
    pub output: PathBuf,
}

/// What has to be done to have the machine as it was.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Undo {
    title: String,
    teardown: Option<Teardown>,
    files: Vec<OldFile>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct OldFile {
    path: PathBuf,
    /// `None` if there was no such file.
    content: Option<String>,
}

/// The folder of the state, locked.
pub struct State {
    dir: PathBuf,
    _lock: File,
}

/// Changes that were made. They are put back when this is dropped.
pub struct Applied<'a> {
    state: &'a State,
    undo: Option<Undo>,
}

impl State {
    /// Locks the folder of the state, below the root.
    pub fn lock(root: &Path) -> Result<State> {
        let usual = recording::usual_dir()?;
        let parent = root.join(usual.strip_prefix("/").unwrap_or(&usual));
        let dir = parent.join("experiment");
        for (dir, mode) in [(&parent, PARENT_MODE), (&dir, DIR_MODE)] {
            let made = DirBuilder::new().recursive(true).mode(mode).create(dir);
            made.with_context(|| format!("cannot create {}", dir.display()))?;
        }
        let path = dir.join(LOCK);
        let lock = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(FILE_MODE)
            .custom_flags(libc::O_NOFOLLOW)
            .open(&path)
            .with_context(|| format!("cannot open {}", path.display()))?;
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(State { dir, _lock: lock }),
            Err(rustix::io::Errno::WOULDBLOCK) => {
                bail!("another experiment runs on this machine: {} is locked", path.display())
            }
            Err(error) => Err(error).with_context(|| format!("cannot lock {}", path.display())),
        }
    }

    /// Puts back what a killed experiment has left changed. Returns what was done, in words.
    pub fn recover(&self) -> Result<Option<String>> {
        let path = self.dir.join(UNDO);
        let file = match OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
        };
        // Commands of it are run.
        let meta = file.metadata().with_context(|| format!("cannot read {}", path.display()))?;
        if meta.uid() != rustix::process::geteuid().as_raw() || meta.mode() & 0o022 != 0 {
            bail!(
                "{}: others can write it, so nothing of it is put back; look at it and remove it",
                path.display()
            );
        }
        let mut text = String::new();
        file.take(UNDO_MAX)
            .read_to_string(&mut text)
            .with_context(|| format!("cannot read {}", path.display()))?;
        let undo: Undo = serde_json::from_str(&text).with_context(|| {
            format!("{}: damaged; look at it, put back by hand what it names, and remove it", path.display())
        })?;
        let said = undo.in_words();
        self.put_back(undo)?;
        Ok(Some(said))
    }

    /// Changes the files. The old values are on the disk before.
    pub fn apply(&self, title: &str, changes: &[Change], teardown: Option<Teardown>) -> Result<Applied<'_>> {
        if changes.is_empty() && teardown.is_none() {
            return Ok(Applied { state: self, undo: None });
        }
        let files = changes.iter().map(|change| old(&change.path)).collect::<Result<_>>()?;
        let undo = Undo { title: title.to_owned(), teardown, files };
        self.store(&undo)?;
        let applied = Applied { state: self, undo: Some(undo) };
        for change in changes {
            write(&change.path, &change.content)?;
        }
        Ok(applied)
    }

    fn store(&self, undo: &Undo) -> Result<()> {
        let (path, new) = (self.dir.join(UNDO), self.dir.join("undo.new"));
        let text = serde_json::to_vec_pretty(undo)?;
        let stored = || -> std::io::Result<()> {
            let mut file = OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(FILE_MODE)
                .custom_flags(libc::O_NOFOLLOW)
                .open(&new)?;
            file.write_all(&text)?;
            file.sync_all()?;
            fs::rename(&new, &path)?;
            File::open(&self.dir)?.sync_all()
        };
        stored().with_context(|| format!("cannot write {}, so nothing is changed", path.display()))
    }

    /// Does everything that can be done. What cannot stays in the file, and is an error.
    fn put_back(&self, undo: Undo) -> Result<()> {
        let mut wrong = Vec::new();
        let mut left = Undo { title: undo.title, ..Undo::default() };
        if let Some(teardown) = undo.teardown
            && let Err(why) = teardown.run()
        {
            wrong.push(format!("the tear-down failed: {why}"));
        }
        // In reverse: a file may have been changed twice.
        for file in undo.files.into_iter().rev() {
            if let Err(why) = file.put_back() {
                wrong.push(format!("{why:#}"));
                left.files.insert(0, file);
            }
        }
        let path = self.dir.join(UNDO);
        if left.files.is_empty() {
            fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        } else {
            self.store(&left)?;
            wrong.push(format!("the old values are in {}", path.display()));
        }
        if wrong.is_empty() {
            Ok(())
        } else {
            Err(anyhow!("not everything was put back: {}", wrong.join("; ")))
        }
    }
}

impl Undo {
    fn in_words(&self) -> String {
        let mut done: Vec<String> = self.files.iter().map(|file| file.path.display().to_string()).collect();
        if let Some(teardown) = &self.teardown {
            done.push(format!("ran {}", teardown.argv.join(" ")));
        }
        format!("an experiment was killed ({}); put back: {}", self.title, done.join(", "))
    }
}

impl Applied<'_> {
    /// Puts everything back, and says what could not be.
    pub fn undo(mut self) -> Result<()> {
        self.undo.take().map_or(Ok(()), |undo| self.state.put_back(undo))
    }
}

impl Drop for Applied<'_> {
    fn drop(&mut self) {
        if let Some(undo) = self.undo.take()
            && let Err(error) = self.state.put_back(undo)
        {
            _ = writeln!(std::io::stderr(), "mitra: {error:#}");
        }
    }
}

impl Teardown {
    fn run(&self) -> Result<(), String> {
        let program = Program {
            argv: &self.argv,
            environment: &self.environment,
            // The folder of a killed run may have been removed by hand.
            directory: if self.directory.is_dir() { &self.directory } else { Path::new("/") },
            stdout: if self.output.parent().is_some_and(Path::is_dir) {
                &self.output
            } else {
                Path::new("/dev/null")
            },
            stderr: Path::new("/dev/null"),
        };
        match process::run_to_end(&program, TEARDOWN_TIMEOUT) {
            Ok(()) => Ok(()),
            Err(Failure::Failed(why)) => Err(why),
            Err(Failure::Interrupted) => Err("interrupted".to_owned()),
        }
    }
}

impl OldFile {
    fn put_back(&self) -> Result<()> {
        match &self.content {
            Some(content) => write(&self.path, content),
            None => match fs::remove_file(&self.path) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    Err(error).with_context(|| format!("cannot remove {}", self.path.display()))
                }
                _ => Ok(()),
            },
        }
    }
}

/// The content that a file has now.
fn old(path: &Path) -> Result<OldFile> {
    let shown = path.display();
    let file = match OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Ok(OldFile { path: path.to_owned(), content: None });
        }
        Err(error) => {
            let is_link = error.raw_os_error() == Some(libc::ELOOP);
            let why = if is_link {
                "it is a link; name the file that it leads to".to_owned()
            } else {
                error.to_string()
            };
            return Err(usage(format!("{shown}: cannot be read, so it is not changed: {why}")));
        }
    };
    if !file.metadata().with_context(|| format!("cannot read {shown}"))?.is_file() {
        return Err(usage(format!("{shown}: not a file, so it is not changed")));
    }
    let mut content = String::new();
    let read = file.take(CONTENT_MAX + 1).read_to_string(&mut content);
    match read {
        Ok(bytes) if bytes as u64 <= CONTENT_MAX => {
            Ok(OldFile { path: path.to_owned(), content: Some(restorable(path, content)) })
        }
        Ok(_) => Err(usage(format!("{shown}: larger than 4 MiB, so it is not changed"))),
        Err(error) => Err(usage(format!("{shown}: cannot be kept as text, so it is not changed: {error}"))),
    }
}

/// Files of sysfs that offer a choice mark it: `always [madvise] never` is put back by `madvise`.
fn restorable(path: &Path, content: String) -> String {
    let chosen = content.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(chosen, _)| chosen);
    match chosen {
        Some(chosen) if path.starts_with("/sys") && !chosen.contains(char::is_whitespace) => {
            chosen.to_owned()
        }
        _ => content,
    }
}

/// Writes the whole content in place, so that owner and mode stay. A new file is for its owner only to write.
fn write(path: &Path, content: &str) -> Result<()> {
    let written = || -> std::io::Result<()> {
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o644)
            .custom_flags(libc::O_NOFOLLOW)
            .open(path)?;
        file.write_all(content.as_bytes())
    };
    written().with_context(|| {
        format!("cannot write {:?} to {}", content.lines().next().unwrap_or_default(), path.display())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(root: &Path) -> State {
        State::lock(root).unwrap()
    }

    #[test]
    fn everything_is_put_back_and_new_files_are_gone() {
        let root = tempfile::tempdir().unwrap();
        let (old, new) = (root.path().join("old"), root.path().join("new"));
        fs::write(&old, "60\n").unwrap();
        let state = state(root.path());
        let change =
            |path: &Path, content: &str| Change { path: path.to_owned(), content: content.to_owned() };
        let applied =
            state.apply("t", &[change(&old, "10"), change(&old, "20"), change(&new, "x")], None).unwrap();
        assert_eq!(fs::read_to_string(&old).unwrap(), "20");
        assert!(state.dir.join(UNDO).exists() && new.exists());
        applied.undo().unwrap();
        assert_eq!(fs::read_to_string(&old).unwrap(), "60\n");
        assert!(!new.exists() && !state.dir.join(UNDO).exists());
        assert!(state.recover().unwrap().is_none());
    }

    #[test]
    fn what_a_killed_one_left_is_put_back_by_the_next() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("value");
        fs::write(&path, "old").unwrap();
        let state = state(root.path());
        let applied =
            state.apply("killed", &[Change { path: path.clone(), content: "new".into() }], None).unwrap();
        std::mem::forget(applied);
        let said = state.recover().unwrap().unwrap();
        assert!(said.contains("killed") && said.contains("/value"), "{said}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
    }

    #[test]
    fn links_and_what_others_can_write_are_refused() {
        let root = tempfile::tempdir().unwrap();
        let link = root.path().join("link");
        std::os::unix::fs::symlink("/etc/passwd", &link).unwrap();
        let state = state(root.path());
        let error = state.apply("t", &[Change { path: link, content: "x".into() }], None).err().unwrap();
        assert!(error.to_string().contains("it is a link"), "{error:#}");
        let undo = state.dir.join(UNDO);
        fs::write(&undo, "{\"title\":\"\",\"teardown\":null,\"files\":[]}").unwrap();
        fs::set_permissions(&undo, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
        assert!(state.recover().unwrap_err().to_string().contains("others can write it"));
    }

    #[test]
    fn only_one_experiment_changes_the_machine() {
        let root = tempfile::tempdir().unwrap();
        let _first = state(root.path());
        assert!(State::lock(root.path()).err().unwrap().to_string().contains("another experiment runs"));
    }

    #[test]
    fn the_chosen_word_of_sysfs_is_kept() {
        let path = Path::new("/sys/kernel/mm/transparent_hugepage/enabled");
        assert_eq!(restorable(path, "always [madvise] never\n".into()), "madvise");
        assert_eq!(restorable(Path::new("/etc/x.ini"), "[main]\n".into()), "[main]\n");
    }
}
