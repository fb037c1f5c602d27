//! Files that an experiment changes: what they held, and whether they hold what was written.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::errors::usage;

/// Larger files are no settings.
const CONTENT_MAX: u64 = 4 << 20;
/// Of a content that a message quotes.
const QUOTED_MAX: usize = 60;
/// Below `proc/sys/vm`. The kernel sets one of a pair to 0 when the other one is written.
const PAIRS: &[(&str, &str)] = &[
    ("dirty_bytes", "dirty_ratio"),
    ("dirty_background_bytes", "dirty_background_ratio"),
    ("overcommit_kbytes", "overcommit_ratio"),
];

/// A file that gets another content.
#[derive(Debug, Clone)]
pub struct Change {
    pub path: PathBuf,
    pub content: String,
}

/// A changed file, in the journal.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OldFile {
    pub path: PathBuf,
    /// `None` if there was no such file.
    content: Option<String>,
    /// What the experiment writes, or the kernel in consequence.
    wrote: String,
    /// It holds 0 because another one is set: writing that one puts it back, and writing 0 may be refused.
    #[serde(default)]
    set_by_other: bool,
}

/// What the files hold now, and the settings that the kernel changes with them.
pub fn before(changes: &[Change]) -> Result<Vec<OldFile>> {
    let mut files = Vec::new();
    for change in changes {
        if changes.iter().filter(|other| other.path == change.path).count() > 1 {
            return Err(usage(format!("{}: a variant changes it twice", change.path.display())));
        }
        files.push(OldFile::now(&change.path, &change.content)?);
        let is_new = |path: &PathBuf| path.exists() && changes.iter().all(|other| other.path != *path);
        if let Some(other) = other_of_pair(&change.path).filter(is_new) {
            files.push(OldFile::now(&other, "0")?);
        }
    }
    let is_zero = |file: &OldFile| file.content.as_deref().is_some_and(|content| content.trim() == "0");
    let set: Vec<PathBuf> =
        files.iter().filter(|file| !is_zero(file)).filter_map(|file| other_of_pair(&file.path)).collect();
    for file in &mut files {
        // A ratio of 0 can be written, and sets the other one to 0 too.
        let is_ratio = file.path.to_string_lossy().ends_with("_ratio");
        let is_of_pair = other_of_pair(&file.path).is_some();
        file.set_by_other = is_zero(file) && is_of_pair && (!is_ratio || set.contains(&file.path));
    }
    Ok(files)
}

fn other_of_pair(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?.to_str()?;
    let other = PAIRS.iter().find_map(|(a, b)| (name == *a).then_some(b).or((name == *b).then_some(a)))?;
    path.parent()?.ends_with("proc/sys/vm").then(|| path.with_file_name(other))
}

impl Change {
    /// Writes the content.
    pub fn make(&self) -> Result<()> {
        write(&self.path, &self.content)
    }

    /// An error unless the file holds what was written.
    pub fn check(&self) -> Result<()> {
        let found = content(&self.path)?;
        if is_same(found.as_deref(), Some(&self.content)) {
            return Ok(());
        }
        bail!(
            "{} holds {} after {} was written",
            self.path.display(),
            quoted(found.as_deref()),
            quoted(Some(&self.content))
        )
    }
}

impl OldFile {
    fn now(path: &Path, wrote: &str) -> Result<OldFile> {
        let content = content(path)?;
        Ok(OldFile { path: path.to_owned(), content, wrote: wrote.to_owned(), set_by_other: false })
    }

    /// Whether somebody else has changed it since: it holds neither what the experiment wrote nor what it held before.
    pub fn was_changed_since(&self) -> bool {
        // Writing it back tells what is wrong.
        let Ok(found) = content(&self.path) else { return false };
        // Mitra may have been killed while it wrote. The kernel takes a setting in one piece.
        let is_torn = |whole: &str| {
            !self.path.starts_with("/proc")
                && !self.path.starts_with("/sys")
                && found.as_deref().is_some_and(|found| whole.starts_with(found))
        };
        let is_known = |text: &str| is_same(found.as_deref(), Some(text)) || is_torn(text);
        match &self.content {
            Some(content) => !is_known(content) && !is_known(&self.wrote),
            None => found.is_some() && !is_known(&self.wrote),
        }
    }

    /// What it held, in words.
    pub fn held(&self) -> String {
        quoted(self.content.as_deref())
    }

    /// Puts it back.
    pub fn put_back(&self) -> Result<()> {
        match &self.content {
            Some(_) if self.set_by_other => Ok(()),
            Some(content) => write(&self.path, content),
            None => match fs::remove_file(&self.path) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    Err(error).with_context(|| format!("cannot remove {}", self.path.display()))
                }
                _ => Ok(()),
            },
        }
    }

    /// How it differs from what it held, in words.
    pub fn difference(&self) -> Option<String> {
        let path = self.path.display();
        match content(&self.path) {
            Ok(found) if is_same(found.as_deref(), self.content.as_deref()) => None,
            Ok(found) => {
                let found = quoted(found.as_deref());
                Some(format!("{path} was put back to {}, and holds {found}", self.held()))
            }
            Err(why) => Some(format!("{path} was put back, and cannot be looked at: {why:#}")),
        }
    }
}

/// Whether two contents mean the same. The kernel prints other blanks than were written.
fn is_same(a: Option<&str>, b: Option<&str>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => a.split_whitespace().eq(b.split_whitespace()),
        (None, None) => true,
        _ => false,
    }
}

/// The beginning of a content.
fn quoted(content: Option<&str>) -> String {
    match content {
        Some(text) => {
            let line = text.lines().next().unwrap_or_default();
            format!("{:?}", line.chars().take(QUOTED_MAX).collect::<String>())
        }
        None => "nothing (no such file)".to_owned(),
    }
}

/// The text of a file in the form in which it can be written back; `None` if there is no such file.
fn content(path: &Path) -> Result<Option<String>> {
    let shown = path.display();
    let refused = |why: &str| Err(usage(format!("{shown}: {why}, so it is not changed")));
    let file = match OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) if error.raw_os_error() == Some(libc::ELOOP) => {
            return refused("it is a link; name the file that it leads to");
        }
        Err(error) => return refused(&format!("cannot be read: {error}")),
    };
    if !file.metadata().with_context(|| format!("cannot read {shown}"))?.is_file() {
        return refused("not a file");
    }
    let mut text = String::new();
    match file.take(CONTENT_MAX + 1).read_to_string(&mut text) {
        Ok(bytes) if bytes as u64 > CONTENT_MAX => refused("larger than 4 MiB"),
        Ok(_) if path.starts_with("/sys") && text.trim().is_empty() => {
            refused("it reads as nothing, which cannot be written back")
        }
        Ok(_) => Ok(Some(restorable(path, text))),
        Err(error) => refused(&format!("cannot be kept as text: {error}")),
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
        file.write_all(content.as_bytes())?;
        sync(&file)
    };
    written().with_context(|| format!("cannot write {} to {}", quoted(Some(content)), path.display()))
}

/// Files of the kernel refuse it: they are on no disk.
fn sync(file: &File) -> std::io::Result<()> {
    match file.sync_all() {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(()),
        synced => synced,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chosen_word_of_sysfs_is_kept() {
        let path = Path::new("/sys/kernel/mm/transparent_hugepage/enabled");
        assert_eq!(restorable(path, "always [madvise] never\n".into()), "madvise");
        assert_eq!(restorable(Path::new("/etc/x.ini"), "[main]\n".into()), "[main]\n");
    }

    #[test]
    fn only_settings_of_a_pair_have_another_one() {
        let other = |path: &str| other_of_pair(Path::new(path));
        assert_eq!(other("/r/proc/sys/vm/dirty_bytes"), Some("/r/proc/sys/vm/dirty_ratio".into()));
        assert_eq!(other("/proc/sys/vm/overcommit_ratio"), Some("/proc/sys/vm/overcommit_kbytes".into()));
        assert_eq!((other("/proc/sys/vm/swappiness"), other("/etc/dirty_ratio")), (None, None));
    }

    #[test]
    fn blanks_make_no_difference_and_half_of_a_file_is_our_own() {
        assert!(is_same(Some("4096\t87380\n"), Some("4096 87380")));
        assert!(!is_same(Some("10"), Some("1 0")) && !is_same(None, Some("")));
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let file = OldFile {
            path: path.clone(),
            content: Some("old text".into()),
            wrote: "new".into(),
            set_by_other: false,
        };
        for (text, is_of_others) in
            [("old text", false), ("new\n", false), ("", false), ("ne", false), ("x", true)]
        {
            fs::write(&path, text).unwrap();
            assert_eq!(file.was_changed_since(), is_of_others, "{text}");
        }
        fs::remove_file(&path).unwrap();
        assert!(file.was_changed_since());
        assert!(!OldFile { content: None, ..file }.was_changed_since());
    }

    #[test]
    fn a_pair_is_put_back_by_the_one_that_was_set_or_by_its_ratio() {
        let root = tempfile::tempdir().unwrap();
        let vm = root.path().join("proc/sys/vm");
        fs::create_dir_all(&vm).unwrap();
        for (bytes, ratio, put_back) in [("0", "20", "99 20"), ("4096", "0", "4096 99"), ("0", "0", "99 0")] {
            let (bytes_file, ratio_file) =
                (vm.join("dirty_background_bytes"), vm.join("dirty_background_ratio"));
            fs::write(&bytes_file, bytes).unwrap();
            fs::write(&ratio_file, ratio).unwrap();
            let change = Change { path: ratio_file.clone(), content: "10".into() };
            let old = before(&[change]).unwrap();
            // What is not written keeps this.
            fs::write(&bytes_file, "99").unwrap();
            fs::write(&ratio_file, "99").unwrap();
            old.iter().for_each(|file| file.put_back().unwrap());
            let held = [bytes_file, ratio_file].map(|path| fs::read_to_string(path).unwrap());
            assert_eq!(held.join(" "), put_back);
        }
    }
}
