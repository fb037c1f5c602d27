//! Secrets stand in files that nobody else reads.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::Error;

/// Maximum size of a file with a password, key or address, in bytes.
const SECRET_MAX: u64 = 4_096;
/// The permission bits of everyone except the owner.
const OTHERS: u32 = 0o077;

/// The single line of a file that only its owner may access.
///
/// # Errors
/// If the file cannot be read, others may read it, or it has more than a line.
pub fn secret(path: &Path) -> Result<String, Error> {
    let file = File::open(path).map_err(Error::io(path))?;
    let about = file.metadata().map_err(Error::io(path))?;
    if !about.is_file() {
        return Err(Error::broken(path, "not a file"));
    }
    if about.mode() & OTHERS != 0 {
        let mode = about.mode() & 0o7777;
        let what = format!("others than its owner may read it (mode {mode:04o}); wanted 0600");
        return Err(Error::broken(path, what));
    }
    let mut text = String::new();
    file.take(SECRET_MAX + 1).read_to_string(&mut text).map_err(Error::io(path))?;
    if text.len() as u64 > SECRET_MAX {
        return Err(Error::broken(path, format!("longer than {SECRET_MAX} bytes; wanted one line")));
    }
    let line = text.trim_end_matches(['\n', '\r']);
    if line.is_empty() || line.chars().any(char::is_control) {
        return Err(Error::broken(path, "wanted one line and nothing else"));
    }
    Ok(line.to_owned())
}
