//! What archives hold: tar and zip, packed by gzip, xz or zstd, inside each other. Nothing is written to the disk, and
//! a name in an archive is no more than a name.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::{self, Cursor, Read};

use super::read::{HEAD_BYTES, Kind, Packed, bounded, kind_of, unpacked};

/// Packers and archives inside each other.
const DEPTH_MAX: usize = 6;
/// Members of one archive, with those of archives in it.
const MEMBERS_MAX: usize = 20_000;
/// Bytes of the name of a member.
const NAME_BYTES_MAX: usize = 4096;
/// Bytes of an extended header of tar.
const HEADER_BYTES_MAX: u64 = 64 << 10;
/// Bytes of a zip, which is read as a whole: its list of members stands at its end.
const ZIP_MAX: u64 = 256 << 20;
/// Of one inside another archive: several may be in memory at once.
const INNER_ZIP_MAX: u64 = 32 << 20;

/// What is told of each member: its text, or why it is not read. `false` ends the walk.
pub type Take<'a> = &'a mut dyn FnMut(&str, Result<&mut dyn Read, String>) -> bool;

/// Gives each file of an archive to `take`, under the name of the archive and its own. A file that is only packed has
/// the name of the file that it is in.
pub fn each(name: &str, kind: Kind, input: Box<dyn Read + '_>, take: Take<'_>) -> io::Result<()> {
    Walk { members: 0, seen: HashMap::new(), take }.go(name, kind, input, 0).map(drop)
}

struct Walk<'a> {
    members: usize,
    seen: HashMap<String, u32>,
    take: Take<'a>,
}

impl Walk<'_> {
    /// Whether the walk goes on.
    fn go(
        &mut self,
        name: &str,
        kind: Kind,
        mut input: Box<dyn Read + '_>,
        depth: usize,
    ) -> io::Result<bool> {
        let is_nested = matches!(kind, Kind::Gzip | Kind::Xz | Kind::Zstd | Kind::Tar | Kind::Zip);
        if is_nested && depth >= DEPTH_MAX {
            return Ok(self.skip(name, format!("an archive inside {DEPTH_MAX} others: not read")));
        }
        match kind {
            Kind::Text => Ok((self.take)(name, Ok(&mut *input))),
            Kind::Gzip | Kind::Xz | Kind::Zstd => {
                let (kind, inner) = peek(unpacked(kind, input)?)?;
                self.go(name, kind, inner, depth + 1)
            }
            Kind::Tar => self.tar(name, input, depth),
            Kind::Zip => self.zip(name, input, depth),
            Kind::Sysstat => {
                Ok(self.skip(name, "written by sadc and inside an archive: not read; unpack it".to_owned()))
            }
            Kind::Packed(_) | Kind::Binary | Kind::Empty => Ok(self.skip(name, kind.why_not())),
        }
    }

    fn skip(&mut self, name: &str, why: String) -> bool {
        (self.take)(name, Err(why))
    }

    /// Long names are read here: the library would read them at any length.
    fn tar(&mut self, name: &str, input: Box<dyn Read + '_>, depth: usize) -> io::Result<bool> {
        let mut archive = tar::Archive::new(input);
        let mut long_name: Option<Vec<u8>> = None;
        for entry in archive.entries()?.raw(true) {
            let mut entry = entry?;
            let kind = entry.header().entry_type();
            if kind.is_gnu_longname() || kind.is_pax_local_extensions() {
                let mut bytes = Vec::new();
                entry.by_ref().take(HEADER_BYTES_MAX).read_to_end(&mut bytes)?;
                let found = if kind.is_gnu_longname() {
                    bytes.split(|b| *b == 0).next().map(<[u8]>::to_vec)
                } else {
                    pax_path(&bytes)
                };
                long_name = found.or(long_name);
                continue;
            }
            let path = long_name.take().unwrap_or_else(|| entry.path_bytes().into_owned());
            // Links are named by sosreports in great numbers, and their targets are in the archive.
            if kind.is_dir() || kind.is_symlink() || kind.is_hard_link() || kind.is_pax_global_extensions() {
                continue;
            }
            let Some(member) = self.member(name, &path) else { return Ok(self.too_many(name)) };
            let goes_on = if kind.is_file() || kind.is_contiguous() {
                let walked =
                    peek(Box::new(entry)).and_then(|(kind, inner)| self.go(&member, kind, inner, depth + 1));
                walked.unwrap_or_else(|error| self.skip(&member, broken_off(&error)))
            } else {
                self.skip(&member, "not a regular file: not read".to_owned())
            };
            if !goes_on {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn zip(&mut self, name: &str, input: Box<dyn Read + '_>, depth: usize) -> io::Result<bool> {
        let mut bytes = Vec::new();
        let most = if depth == 0 { ZIP_MAX } else { INNER_ZIP_MAX };
        input.take(most + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > most {
            let why = format!("a zip of more than {} MiB: not read; unpack it", most >> 20);
            return Ok(self.skip(name, why));
        }
        let packed = bytes.len() as u64;
        let mut archive = zip::ZipArchive::new(Packed::new(Cursor::new(bytes))).map_err(io::Error::other)?;
        for at in 0..archive.len() {
            let file = match archive.by_index(at) {
                Ok(file) if file.is_file() => file,
                Ok(_) => continue,
                Err(error) => {
                    let Some(member) = self.member(name, format!("#{at}").as_bytes()) else {
                        return Ok(self.too_many(name));
                    };
                    if !self.skip(&member, format!("could not be read: {error}")) {
                        return Ok(false);
                    }
                    continue;
                }
            };
            let path = file.name().map_or_else(|_| format!("#{at}"), Cow::into_owned);
            let Some(member) = self.member(name, path.as_bytes()) else { return Ok(self.too_many(name)) };
            let walked = peek(bounded(Box::new(file), packed))
                .and_then(|(kind, inner)| self.go(&member, kind, inner, depth + 1));
            if !walked.unwrap_or_else(|error| self.skip(&member, broken_off(&error))) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The name of a member in reports; `None` if there are too many.
    fn member(&mut self, archive: &str, path: &[u8]) -> Option<String> {
        self.members += 1;
        if self.members > MEMBERS_MAX {
            return None;
        }
        let path = String::from_utf8_lossy(path.get(..NAME_BYTES_MAX).unwrap_or(path));
        let path = path.trim_start_matches("./").trim_start_matches('/');
        let name = format!("{archive}/{path}");
        let times = self.seen.entry(name.clone()).or_default();
        *times += 1;
        Some(if *times > 1 { format!("{name} ({times})") } else { name })
    }

    fn too_many(&mut self, name: &str) -> bool {
        self.skip(name, format!("more than {MEMBERS_MAX} files inside: the others were not read"));
        false
    }
}

/// A damaged member does not end the reading of the others.
fn broken_off(error: &io::Error) -> String {
    format!("could not be read to its end: {error}")
}

/// What a stream is by its first bytes, and the whole stream.
fn peek<'a>(mut input: Box<dyn Read + 'a>) -> io::Result<(Kind, Box<dyn Read + 'a>)> {
    let mut head = Vec::with_capacity(HEAD_BYTES);
    input.by_ref().take(HEAD_BYTES as u64).read_to_end(&mut head)?;
    Ok((kind_of(&head), Box::new(Cursor::new(head).chain(input))))
}

/// The path in an extended header: records such as `30 path=name\n`.
fn pax_path(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut rest = bytes;
    loop {
        let blank = rest.iter().position(|b| *b == b' ')?;
        let length: usize = std::str::from_utf8(rest.get(..blank)?).ok()?.parse().ok()?;
        let (record, tail) = rest.split_at_checked(length)?;
        if let Some(path) = record.get(blank + 1..)?.strip_prefix(b"path=") {
            return Some(path.strip_suffix(b"\n").unwrap_or(path).to_vec());
        }
        rest = if length == 0 { &[] } else { tail };
    }
}
