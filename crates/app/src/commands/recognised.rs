//! Whether anything was recognised in the files that a command was given.

use std::path::{Path, PathBuf};

use anyhow::Result;
use mitra_model::report::FileRead;

use crate::errors::usage;
use crate::recording;

/// Files that are named in an error; the others are counted.
const NAMED_MAX: usize = 3;

/// The paths of a command line.
pub struct GivenPaths {
    all: Vec<PathBuf>,
    /// Those that are no folders: whoever names a file means it.
    files: Vec<PathBuf>,
}

impl GivenPaths {
    /// Looks at the paths, which is possible only before privileges are given up.
    pub fn new<'a>(paths: impl IntoIterator<Item = &'a Path>) -> Self {
        let all: Vec<PathBuf> = paths.into_iter().map(Path::to_path_buf).collect();
        let files = all.iter().filter(|path| !path.is_dir()).cloned().collect();
        GivenPaths { all, files }
    }

    /// An error if nothing was recognised in any file.
    pub fn check_any<'a>(&self, read: impl IntoIterator<Item = &'a FileRead>) -> Result<()> {
        let read: Vec<&FileRead> = read.into_iter().collect();
        if read.iter().any(|file| !file.formats.is_empty()) {
            return Ok(());
        }
        Err(usage(self.nothing_in(&read, self.recording_among(&read).as_deref())))
    }

    /// An error if nothing was recognised in one of the files that were named one by one. Of a
    /// folder one recognised file is enough.
    pub fn check_each<'a>(&self, read: impl IntoIterator<Item = &'a FileRead>) -> Result<()> {
        let is_named = |file: &FileRead| self.files.iter().any(|path| is_called(path, &file.file));
        let read: Vec<&FileRead> =
            read.into_iter().filter(|file| file.formats.is_empty() && is_named(file)).collect();
        if read.is_empty() { Ok(()) } else { Err(usage(self.nothing_in(&read, None))) }
    }

    /// The folder of a recording whose files were taken for files of other tools.
    fn recording_among(&self, read: &[&FileRead]) -> Option<PathBuf> {
        let below = |root: &Path, name: &str| {
            let file = if is_called(root, name) { root.to_path_buf() } else { root.join(name) };
            recording::is_part(file.file_name()?).then(|| file.parent().map(Path::to_path_buf)).flatten()
        };
        let mut folders = read.iter().flat_map(|file| self.all.iter().map(|root| below(root, &file.file)));
        folders.find_map(|folder| folder)
    }

    /// The message. Whoever typed a path finds it there as it was typed.
    fn nothing_in(&self, read: &[&FileRead], recording: Option<&Path>) -> String {
        let typed = |file: &FileRead| self.files.iter().find(|path| is_called(path, &file.file));
        let one = |file: &&FileRead| {
            let name = typed(file).map_or_else(|| file.file.clone(), |path| path.display().to_string());
            match file.notes.first() {
                Some(why) => format!("{name} ({why})"),
                None => name,
            }
        };
        let mut names: Vec<String> = read.iter().take(NAMED_MAX).map(one).collect();
        if read.len() > NAMED_MAX {
            names.push(format!("{} more", read.len() - NAMED_MAX));
        }
        let hint = match recording {
            Some(folder) => format!("{} is a recording: mitra explain {0}", folder.display()),
            None => "what is read: docs/formats.md".to_owned(),
        };
        format!("nothing was recognised in {}; {hint}", names.join(", "))
    }
}

/// Files have their names in reports, or whole paths where several have the same name.
fn is_called(path: &Path, name: &str) -> bool {
    path.to_string_lossy() == name || path.file_name().is_some_and(|own| own.to_string_lossy() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(file: &str, formats: &[&str], notes: &[&str]) -> FileRead {
        let own = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
        FileRead {
            file: file.to_owned(),
            formats: own(formats),
            lines: 1,
            unread: 0,
            first_unread: None,
            notes: own(notes),
        }
    }

    fn given(paths: &[&str]) -> GivenPaths {
        GivenPaths::new(paths.iter().map(Path::new))
    }

    #[test]
    fn a_named_file_has_to_be_recognised_and_one_in_a_folder_need_not_be() {
        let (sar, notes) = (read("sar.txt", &["sar -u"], &[]), read("notes", &[], &["binary: not read"]));
        let both = [&sar, &notes];
        let folder = tempfile::tempdir().unwrap();
        let folder = given(&[folder.path().to_str().unwrap()]);
        assert!(folder.check_any(both).is_ok() && folder.check_each(both).is_ok());
        assert!(folder.check_any([&notes]).is_err());
        let named = given(&["/x/sar.txt", "/x/notes"]);
        assert!(named.check_any(both).is_ok());
        assert_eq!(
            named.check_each(both).unwrap_err().to_string(),
            "nothing was recognised in /x/notes (binary: not read); what is read: docs/formats.md"
        );
        let twice = [&read("/x/notes", &[], &[]), &read("/y/notes", &["dmesg"], &[])];
        assert!(given(&["/x/notes", "/y/notes"]).check_each(twice).is_err());
    }

    #[test]
    fn a_recording_among_the_files_is_named() {
        let segment = read("node1/archive/0000000001.seg", &[], &["binary: not read"]);
        let said = given(&["/x"]).check_any([&segment]).unwrap_err().to_string();
        assert!(said.ends_with("/x/node1/archive is a recording: mitra explain /x/node1/archive"), "{said}");
        let segment = read("0000000001.seg", &[], &["binary: not read"]);
        let said = given(&["/x/archive/0000000001.seg"]).check_any([&segment]).unwrap_err().to_string();
        assert!(said.ends_with("/x/archive is a recording: mitra explain /x/archive"), "{said}");
    }

    #[test]
    fn many_files_are_counted() {
        let files: Vec<FileRead> = (0..9).map(|i| read(&format!("f{i}"), &[], &[])).collect();
        let said = given(&["/x"]).check_any(&files).unwrap_err().to_string();
        assert!(said.contains("f0, f1, f2, 6 more"), "{said}");
    }
}
