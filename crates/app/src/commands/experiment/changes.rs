//! What a variant changes on the machine, and how it is put back.
//!
//! Before the first change, the old values are on the disk, in `undo.json` of the folder of the state. They are put back
//! when the run ends, and where Mitra was killed when the next experiment starts. A lock beside that file keeps two
//! experiments from changing the machine at the same time.

mod files;

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use mitra_collect::Clock;
use mitra_model::time::SECOND;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::process::{self, Failure, Program};
use crate::recording;
pub use files::Change;
use files::OldFile;

/// Beside the usual archive and not in it: that one belongs to the user of the recorder.
const DIR: &str = "mitra-experiment";
const UNDO: &str = "undo.json";
const LOCK: &str = "lock";
const DIR_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;
const UNDO_MAX: u64 = 256 << 20;

/// A command that undoes what a set-up command did.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Teardown {
    pub argv: Vec<String>,
    pub environment: BTreeMap<String, String>,
    pub directory: PathBuf,
    /// What it prints goes there, and its errors into `.err` beside it.
    pub output: PathBuf,
    pub timeout: Duration,
}

/// What has to be done to have the machine as it was.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Undo {
    title: String,
    teardown: Option<Teardown>,
    files: Vec<OldFile>,
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
        let usual = recording::usual_dir()?.with_file_name(DIR);
        let dir = root.join(usual.strip_prefix("/").unwrap_or(&usual));
        let made = DirBuilder::new().recursive(true).mode(DIR_MODE).create(&dir);
        made.with_context(|| format!("cannot create {}", dir.display()))?;
        let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
        let opened = OpenOptions::new().read(true).custom_flags(flags).open(&dir);
        let meta = opened.and_then(|dir| dir.metadata());
        if !is_ours(&meta.with_context(|| format!("cannot open {}", dir.display()))?) {
            bail!("{}: others can write it; look at what it holds and remove it", dir.display());
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
        let meta = file.metadata().with_context(|| format!("cannot read {}", path.display()))?;
        if !is_ours(&meta) {
            bail!(
                "{}: others can write it, so nothing of it is put back; look at it and remove it",
                path.display()
            );
        }
        let mut text = String::new();
        file.take(UNDO_MAX)
            .read_to_string(&mut text)
            .with_context(|| format!("cannot read {}", path.display()))?;
        let mut undo: Undo = serde_json::from_str(&text).with_context(|| {
            format!("{}: damaged; look at it, put back by hand what it names, and remove it", path.display())
        })?;
        let (since, files): (Vec<OldFile>, Vec<OldFile>) =
            undo.files.into_iter().partition(OldFile::was_changed_since);
        undo.files = files;
        let mut said = undo.in_words();
        if !since.is_empty() {
            let left = Undo { title: undo.title.clone(), files: since.clone(), ..Undo::default() };
            let name = format!("left-{}.json", Clock::Real.now().real / SECOND);
            match self.store_as(&left, &name) {
                Ok(()) => said.push_str(&format!(
                    "; {} has the whole of what is not put back",
                    self.dir.join(name).display()
                )),
                // What can be put back is: settings that stay changed are worse.
                Err(error) => said.push_str(&format!("; what is not put back could not be kept: {error:#}")),
            }
        }
        for file in &since {
            let path = file.path.display();
            said.push_str(&format!(
                "; {path} was changed since and is left as it is; it held {}",
                file.held()
            ));
        }
        self.put_back(undo).with_context(|| said.clone())?;
        Ok(Some(said))
    }

    /// Changes the files. The old values are on the disk before.
    pub fn apply(&self, title: &str, changes: &[Change], teardown: Option<Teardown>) -> Result<Applied<'_>> {
        if changes.is_empty() && teardown.is_none() {
            return Ok(Applied { state: self, undo: None });
        }
        let undo = Undo { title: title.to_owned(), teardown, files: files::before(changes)? };
        self.store(&undo).context("nothing is changed")?;
        let applied = Applied { state: self, undo: Some(undo) };
        changes.iter().try_for_each(Change::make)?;
        // After all of them, because one setting can change another one.
        changes.iter().try_for_each(Change::check)?;
        Ok(applied)
    }

    fn store(&self, undo: &Undo) -> Result<()> {
        self.store_as(undo, UNDO)
    }

    fn store_as(&self, undo: &Undo, name: &str) -> Result<()> {
        let (path, new) = (self.dir.join(name), self.dir.join("undo.new"));
        let text = serde_json::to_vec_pretty(undo)?;
        let stored = || -> std::io::Result<()> {
            match fs::remove_file(&new) {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let mut file = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(&new)?;
            file.write_all(&text)?;
            file.sync_all()?;
            fs::rename(&new, &path)?;
            File::open(&self.dir)?.sync_all()
        };
        stored().with_context(|| format!("cannot write {}", path.display()))
    }

    /// Does everything that can be done. What cannot stays in the file, and is an error.
    fn put_back(&self, undo: Undo) -> Result<()> {
        let mut wrong = Vec::new();
        let mut left = Undo { title: undo.title, ..Undo::default() };
        if let Some(teardown) = undo.teardown
            && let Err(why) = teardown.run()
        {
            wrong.push(format!("the tear-down failed: {why}"));
            left.teardown = Some(teardown);
        }
        let mut done = Vec::new();
        for file in undo.files.into_iter().rev() {
            match file.put_back() {
                Ok(()) => done.push(file),
                Err(why) => {
                    wrong.push(format!("{why:#}"));
                    left.files.insert(0, file);
                }
            }
        }
        for difference in done.iter().filter_map(OldFile::difference) {
            _ = writeln!(std::io::stderr(), "mitra: {difference}");
        }
        let path = self.dir.join(UNDO);
        if left.teardown.is_none() && left.files.is_empty() {
            fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        } else {
            self.store(&left)?;
            let shown = path.display();
            wrong.push(format!(
                "what is left is in {shown}, and the next experiment tries it again; remove it if you did it by hand"
            ));
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
        let errors = self.output.with_extension("teardown.err");
        let has_folder = self.output.parent().is_some_and(Path::is_dir);
        let null = Path::new("/dev/null");
        let program = Program {
            argv: &self.argv,
            environment: &self.environment,
            // The folder of a killed run may have been removed by hand.
            directory: if self.directory.is_dir() { &self.directory } else { Path::new("/") },
            stdout: if has_folder { &self.output } else { null },
            stderr: if has_folder { &errors } else { null },
        };
        match process::run_to_end(&program, self.timeout) {
            Ok(()) => Ok(()),
            Err(Failure::Failed(why)) => Err(why),
            Err(Failure::Interrupted) => Err("interrupted".to_owned()),
        }
    }
}

/// Whether only we can write it: commands of the journal are run.
fn is_ours(meta: &Metadata) -> bool {
    meta.uid() == rustix::process::geteuid().as_raw() && meta.mode() & 0o022 == 0
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
        let applied = state.apply("t", &[change(&old, "20"), change(&new, "x")], None).unwrap();
        assert_eq!(fs::read_to_string(&old).unwrap(), "20");
        assert!(state.dir.join(UNDO).exists() && new.exists());
        applied.undo().unwrap();
        assert_eq!(fs::read_to_string(&old).unwrap(), "60\n");
        assert!(!new.exists() && !state.dir.join(UNDO).exists());
        assert!(state.recover().unwrap().is_none());
        let twice = state.apply("t", &[change(&old, "10"), change(&old, "20")], None).err().unwrap();
        assert!(twice.to_string().contains("a variant changes it twice"), "{twice:#}");
    }

    #[test]
    fn what_somebody_changed_since_is_left() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("value");
        fs::write(&path, "old").unwrap();
        let state = state(root.path());
        let change = Change { path: path.clone(), content: "new".into() };
        std::mem::forget(state.apply("killed", &[change], None).unwrap());
        fs::write(&path, "by hand").unwrap();
        let said = state.recover().unwrap().unwrap();
        assert!(said.contains("/value was changed since and is left as it is; it held \"old\""), "{said}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "by hand");
        assert!(state.recover().unwrap().is_none());
    }

    #[test]
    fn of_a_pair_the_one_that_was_set_is_put_back() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("proc/sys/vm");
        fs::create_dir_all(&dir).unwrap();
        let (bytes, ratio) = (dir.join("dirty_bytes"), dir.join("dirty_ratio"));
        fs::write(&bytes, "0\n").unwrap();
        fs::write(&ratio, "20\n").unwrap();
        let state = state(root.path());
        let applied =
            state.apply("t", &[Change { path: bytes.clone(), content: "8192".into() }], None).unwrap();
        // As the kernel does.
        fs::write(&ratio, "0\n").unwrap();
        applied.undo().unwrap();
        // It would refuse 0.
        assert_eq!(fs::read_to_string(&bytes).unwrap(), "8192");
        assert_eq!(fs::read_to_string(&ratio).unwrap(), "20\n");
    }

    #[test]
    fn a_failed_tear_down_keeps_its_journal() {
        let root = tempfile::tempdir().unwrap();
        let state = state(root.path());
        let flag = root.path().join("flag");
        let teardown = Teardown {
            argv: ["test", "-e", flag.to_str().unwrap()].map(str::to_owned).to_vec(),
            environment: BTreeMap::new(),
            directory: root.path().to_owned(),
            output: root.path().join("0001.teardown"),
            timeout: Duration::from_secs(60),
        };
        let applied = state.apply("t", &[], Some(teardown)).unwrap();
        let error = applied.undo().unwrap_err().to_string();
        assert!(error.contains("the tear-down failed: test: ended with exit code 1"), "{error}");
        assert!(root.path().join("0001.teardown.err").exists());
        assert!(state.recover().is_err() && state.dir.join(UNDO).exists());
        fs::write(&flag, "").unwrap();
        assert!(state.recover().unwrap().unwrap().contains("ran test -e"));
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
}
