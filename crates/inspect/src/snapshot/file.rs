//! A snapshot on disk. It may hold secrets of the process, so its file is created for its owner
//! alone, and no link is followed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::{SCHEMA, Snapshot};
use crate::error::Error;

/// Limit of a file: a snapshot has some thousand rows.
const BYTES_MAX: u64 = 256 << 20;

/// Writes a snapshot to a new file of mode 0600. An existing file is replaced only with `replaces`,
/// atomically; a link is replaced itself.
///
/// # Errors
///
/// The file exists, or cannot be written.
pub fn save(snapshot: &Snapshot, path: &Path, replaces: bool) -> Result<(), Error> {
    let of = |path: &Path, source: io::Error| Error::Io { path: path.display().to_string(), source };
    if !replaces {
        return match create(path) {
            Ok(file) => {
                write(snapshot, file).inspect_err(|_| _ = fs::remove_file(path)).map_err(|e| of(path, e))
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(Error::Unusable(format!(
                "{} is there already and is left as it is; --force replaces it",
                path.display()
            ))),
            Err(error) => Err(of(path, error)),
        };
    }
    let new = beside(path);
    let written = create(&new).and_then(|file| write(snapshot, file)).and_then(|()| fs::rename(&new, path));
    written.map_err(|error| {
        if error.kind() != io::ErrorKind::AlreadyExists {
            _ = fs::remove_file(&new);
        }
        of(path, error)
    })
}

/// The temporary file that replaces another.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    path.with_file_name(name)
}

fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

fn write(snapshot: &Snapshot, file: File) -> io::Result<()> {
    let mut out = BufWriter::new(file);
    serde_json::to_writer(&mut out, snapshot)?;
    out.write_all(b"\n")?;
    out.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()
}

/// Reads a saved snapshot.
///
/// # Errors
///
/// The file cannot be read, is no snapshot, is cut off, or has an unknown version.
pub fn read(path: &Path) -> Result<Snapshot, Error> {
    let mut text = Vec::new();
    File::open(path)
        .and_then(|file| file.take(BYTES_MAX + 1).read_to_end(&mut text))
        .map_err(|source| Error::Io { path: path.display().to_string(), source })?;
    parse(&text).map_err(|why| Error::Unusable(format!("{}: {why}", path.display())))
}

#[derive(Deserialize)]
struct Head {
    schema: String,
}

pub(crate) fn parse(text: &[u8]) -> Result<Snapshot, String> {
    if text.len() as u64 > BYTES_MAX {
        return Err("is too large for a saved snapshot".to_owned());
    }
    let none = "is no saved snapshot; mitra inspect heap PID --save FILE makes one";
    let head = match serde_json::from_slice::<Head>(text) {
        Ok(head) => head,
        Err(error) if error.is_eof() && text.first() == Some(&b'{') => {
            return Err(format!("is cut off after {} bytes", text.len()));
        }
        Err(_) => return Err(none.to_owned()),
    };
    if head.schema != SCHEMA {
        return Err(match head.schema.strip_prefix("mitra.look/") {
            Some(_) => {
                format!("is of another version, {}; this one reads {SCHEMA}", head.schema.escape_debug())
            }
            None => none.to_owned(),
        });
    }
    serde_json::from_slice(text).map_err(|error| format!("is damaged: {error}"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::super::tests::empty;
    use super::*;

    #[test]
    fn a_look_is_for_its_owner_alone_and_comes_back_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("look.json");
        save(&empty(), &path, false).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(read(&path).unwrap(), empty());
        let error = save(&empty(), &path, false).unwrap_err().to_string();
        assert!(error.contains("--force"), "{error}");
        let other = Snapshot { pid: 7, ..empty() };
        save(&other, &path, true).unwrap();
        assert_eq!(read(&path).unwrap().pid, 7);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left beside it");
    }

    #[test]
    fn links_are_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (precious, link) = (dir.path().join("precious"), dir.path().join("link"));
        fs::write(&precious, "precious").unwrap();
        std::os::unix::fs::symlink(&precious, &link).unwrap();
        assert!(save(&empty(), &link, false).is_err());
        save(&empty(), &link, true).unwrap();
        assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
        assert!(!fs::symlink_metadata(&link).unwrap().is_symlink());
        let dangling = dir.path().join("dangling");
        std::os::unix::fs::symlink(dir.path().join("nowhere"), &dangling).unwrap();
        assert!(save(&empty(), &dangling, false).is_err());
        assert!(!dir.path().join("nowhere").exists());
        assert!(save(&empty(), &dir.path().join("no/such/folder"), true).is_err());
    }

    #[test]
    fn what_is_no_look_is_told_apart() {
        let whole = serde_json::to_vec(&empty()).unwrap();
        let said = |text: &[u8]| parse(text).unwrap_err();
        assert!(said(&whole[..whole.len() / 2]).contains("cut off"));
        assert!(said(b"{").contains("cut off"));
        for none in
            [&b""[..], b"\x7fELF\0\0", b"[1, 2]", b"{\"schema\": \"mitra.capture/1\"}", b"{}", b"\xff\xfe"]
        {
            assert!(said(none).contains("no saved snapshot"), "{}", said(none));
        }
        assert!(said(b"{\"schema\": \"mitra.look/2\", \"x\": 1}").contains("another version"));
        let damaged = String::from_utf8(whole).unwrap().replace("\"pid\":4242", "\"pid\":\"x\"");
        assert!(said(damaged.as_bytes()).contains("damaged"));
    }
}
