//! The files of a PCP archive of version 2, which every PCP in use reads. The manual page LOGARCHIVE(5) describes them.
//!
//! `BASE.0`, `BASE.1`, … are volumes of records with values, `BASE.meta` describes metrics and instances, `BASE.index` says
//! where in a volume a time is. All numbers are big-endian.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};

use crate::errors::usage;

/// `PM_LOG_MAGIC | PM_LOG_VERS02`.
const MAGIC: u32 = 0x5005_2602;
/// What labels of files that are no volumes have in place of the number of the volume.
const OF_META: u32 = u32::MAX;
const OF_INDEX: u32 = u32::MAX - 1;
/// Kinds of records in `BASE.meta`.
const TYPE_DESC: u32 = 1;
const TYPE_INDOM: u32 = 2;
const TYPE_TEXT: u32 = 4;
/// `PM_TEXT_ONELINE | PM_TEXT_PMID`.
const TEXT_OF_METRIC: u32 = 1 | 4;
/// `PM_VAL_DPTR`: the list of values has offsets of blocks behind all lists.
const IN_BLOCKS: u32 = 1;
/// Offsets of blocks are in words, and count from the header of a message that the file does not have.
const OFFSET_WORDS: usize = 2;
/// In place of instances (`PM_INDOM_NULL`), and of the number of an instance (`PM_IN_NULL`).
pub const NONE: u32 = u32::MAX;
/// The format allows 2 GiB.
const VOLUME_BYTES_MAX: u64 = 1 << 30;
/// The index has an entry for so many bytes, as that of `pmlogger` has.
const INDEX_EVERY_BYTES: u64 = 100_000;
/// How long after the last record a mark stands, as `pmlogextract` has it.
const MARK_AFTER_US: i64 = 1_000;
/// The length of a block of a value has 24 bits.
const BLOCK_BYTES_MAX: usize = (1 << 24) - 1;

/// The type of a value, by its number in PCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Type {
    Signed = 2,
    Unsigned = 3,
    Double = 5,
    Text = 6,
}

/// How the values of a metric are meant, by its number in PCP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Semantics {
    Counter = 1,
    Instant = 3,
    Discrete = 4,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Cell<'a> {
    Signed(i64),
    Unsigned(u64),
    Double(f64),
    /// Without NUL.
    Text(Cow<'a, str>),
}

/// The values of one metric in a record, by the number of the instance.
pub struct Values<'a> {
    pub metric: u32,
    pub cells: Vec<(u32, Cell<'a>)>,
}

/// What the archive says of a metric.
pub struct Description<'a> {
    pub metric: u32,
    pub kind: Type,
    pub semantics: Semantics,
    /// `pmUnits`.
    pub unit: u32,
    /// The number of the set of its instances, or [`NONE`].
    pub instances: u32,
    pub name: &'a str,
    pub help: &'a str,
}

/// An archive that is being written.
pub struct Archive {
    folder: PathBuf,
    name: OsString,
    host: String,
    since_us: i64,
    volume: u32,
    out: BufWriter<File>,
    /// The length of the volume.
    bytes: u64,
    volume_bytes_max: u64,
    /// Where the last entry of the index points to, if one points into this volume.
    indexed: Option<u64>,
    /// Time, volume and offset.
    index: Vec<(i64, u32, u64)>,
    meta: Vec<u8>,
    last_us: i64,
    /// Whether there is a record since the last mark.
    goes_on: bool,
}

/// Writes an archive that begins at a time. Its files are there whole or not at all, because a partial archive must not look complete.
pub fn write(
    base: &Path,
    host: &str,
    since_us: i64,
    fill: impl FnOnce(&mut Archive) -> Result<u64>,
) -> Result<u64> {
    let shown = base.display();
    let Some(name) = base.file_name() else {
        return Err(usage(format!("{shown}: want a name, as a PCP archive is several files")));
    };
    if base.extension().is_some_and(is_reserved) {
        return Err(usage(format!("{shown}: PCP takes the end of that name for a part of an archive")));
    }
    let folder = base.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if is_taken(folder, name) {
        // A volume of an older archive would count as one of this one.
        return Err(usage(format!("{shown}: a PCP archive of that name is there")));
    }
    let mut unfinished = OsString::from(base);
    unfinished.push(format!(".tmp{}", std::process::id()));
    let unfinished = PathBuf::from(unfinished);
    fs::create_dir(&unfinished).with_context(|| format!("{}: cannot create", unfinished.display()))?;
    let written = Archive::create(&unfinished, name, host, since_us).and_then(|mut archive| {
        let count = fill(&mut archive)?;
        for file in archive.finish()? {
            fs::rename(unfinished.join(&file), folder.join(&file))
                .with_context(|| format!("{}: cannot write", folder.join(&file).display()))?;
        }
        Ok(count)
    });
    _ = fs::remove_dir_all(&unfinished);
    written
}

/// Whether the end of a name says what file of an archive it is.
fn is_reserved(end: &OsStr) -> bool {
    let bytes = end.as_encoded_bytes();
    bytes == b"meta" || bytes == b"index" || !bytes.is_empty() && bytes.iter().all(u8::is_ascii_digit)
}

/// Whether there is a file of an archive of that name. Those that PCP has packed have one more ending.
fn is_taken(folder: &Path, name: &OsStr) -> bool {
    let is_part = |file: &OsStr| {
        let rest = file.as_encoded_bytes().strip_prefix(name.as_encoded_bytes());
        let rest =
            rest.and_then(|rest| rest.strip_prefix(b".")).and_then(|rest| std::str::from_utf8(rest).ok());
        rest.and_then(|rest| rest.split('.').next()).is_some_and(|end| is_reserved(OsStr::new(end)))
    };
    fs::read_dir(folder).is_ok_and(|files| files.flatten().any(|file| is_part(&file.file_name())))
}

impl Archive {
    fn create(folder: &Path, name: &OsStr, host: &str, since_us: i64) -> Result<Self> {
        let (folder, name) = (folder.to_path_buf(), name.to_owned());
        let out = created(&folder, &name, "0")?;
        let mut archive = Archive {
            folder,
            name,
            host: host.to_owned(),
            since_us,
            volume: 0,
            out,
            bytes: 0,
            volume_bytes_max: VOLUME_BYTES_MAX,
            indexed: None,
            index: Vec::new(),
            meta: Vec::new(),
            last_us: since_us,
            goes_on: false,
        };
        archive.meta = archive.label(OF_META)?;
        archive.begin_volume()?;
        Ok(archive)
    }

    /// The first record of each file.
    fn label(&self, volume: u32) -> Result<Vec<u8>> {
        let mut label = Vec::new();
        words(&mut label, &[MAGIC, std::process::id()]);
        words(&mut label, &stamp(self.since_us)?);
        words(&mut label, &[volume]);
        for (text, bytes) in [(self.host.as_str(), 64), ("UTC", 40)] {
            let end = label.len() + bytes;
            // The last byte is a NUL.
            label.extend(text.bytes().take(bytes - 1));
            label.resize(end, 0);
        }
        framed(&label)
    }

    fn begin_volume(&mut self) -> Result<()> {
        let label = self.label(self.volume)?;
        self.out.write_all(&label)?;
        (self.bytes, self.indexed) = (label.len() as u64, None);
        Ok(())
    }

    /// Adds what was measured at a moment. Times must not go back.
    pub fn record(&mut self, t_us: i64, metrics: &[Values<'_>]) -> Result<()> {
        if metrics.is_empty() {
            // That would be a mark.
            return Ok(());
        }
        let count: usize = metrics.iter().map(|values| values.cells.len()).sum();
        // The length and the time of the record, the number of lists, and these.
        let before_blocks = 16 + 12 * metrics.len() + 8 * count;
        let (mut lists, mut blocks) = (Vec::new(), Vec::new());
        words(&mut lists, &[word(metrics.len())?]);
        for values in metrics {
            words(&mut lists, &[values.metric, word(values.cells.len())?, IN_BLOCKS]);
            for (instance, cell) in &values.cells {
                let offset = (before_blocks + blocks.len()) / 4 + OFFSET_WORDS;
                words(&mut lists, &[*instance, word(offset)?]);
                cell.block(&mut blocks)?;
            }
        }
        lists.extend(blocks);
        self.append(t_us, &lists)?;
        self.goes_on = true;
        Ok(())
    }

    /// Says that the recording was interrupted after the last record: PCP computes nothing over a mark.
    pub fn mark(&mut self) -> Result<()> {
        if !std::mem::take(&mut self.goes_on) {
            return Ok(());
        }
        self.append(self.last_us.saturating_add(MARK_AFTER_US), &[0; 4])
    }

    fn append(&mut self, t_us: i64, payload: &[u8]) -> Result<()> {
        let mut record = Vec::with_capacity(payload.len() + 8);
        words(&mut record, &stamp(t_us)?);
        record.extend_from_slice(payload);
        let record = framed(&record)?;
        let length = record.len() as u64;
        if self.bytes + length > self.volume_bytes_max && self.indexed.is_some() {
            self.volume += 1;
            let next = created(&self.folder, &self.name, &self.volume.to_string())?;
            std::mem::replace(&mut self.out, next).flush()?;
            self.begin_volume()?;
        }
        if self.indexed.is_none_or(|at| self.bytes - at >= INDEX_EVERY_BYTES) {
            self.index.push((t_us, self.volume, self.bytes));
            self.indexed = Some(self.bytes);
        }
        self.out.write_all(&record)?;
        self.bytes += length;
        self.last_us = t_us;
        Ok(())
    }

    /// Adds what is said of a metric that has values.
    pub fn describe(&mut self, of: &Description<'_>) -> Result<()> {
        let mut record = Vec::new();
        let (kind, semantics) = (of.kind as u32, of.semantics as u32);
        words(&mut record, &[TYPE_DESC, of.metric, kind, of.instances, semantics, of.unit]);
        words(&mut record, &[1, word(of.name.len())?]);
        record.extend_from_slice(of.name.as_bytes());
        self.meta.extend(framed(&record)?);
        record.clear();
        words(&mut record, &[TYPE_TEXT, TEXT_OF_METRIC, of.metric]);
        record.extend_from_slice(of.help.as_bytes());
        record.push(0);
        self.meta.extend(framed(&record)?);
        Ok(())
    }

    /// Adds a set of instances by their names; the number of an instance is its position. They are those of the whole archive: an
    /// instance that is not there has no values.
    pub fn instances(&mut self, set: u32, names: &[Arc<str>]) -> Result<()> {
        let (mut offsets, mut table) = (Vec::new(), Vec::new());
        for name in names {
            words(&mut offsets, &[word(table.len())?]);
            table.extend(name.bytes().filter(|byte| *byte != 0));
            table.push(0);
        }
        let count = word(names.len())?;
        let mut record = Vec::new();
        words(&mut record, &[TYPE_INDOM]);
        words(&mut record, &stamp(self.since_us)?);
        words(&mut record, &[set, count]);
        (0..count).for_each(|number| words(&mut record, &[number]));
        record.extend(offsets);
        record.extend(table);
        self.meta.extend(framed(&record)?);
        Ok(())
    }

    /// Writes the rest. Returns the names of the files.
    fn finish(mut self) -> Result<Vec<OsString>> {
        self.out.flush()?;
        self.index.push((self.last_us, self.volume, self.bytes));
        let mut index = self.label(OF_INDEX)?;
        let meta_bytes = word(self.meta.len())?;
        for (t_us, volume, offset) in &self.index {
            words(&mut index, &stamp(*t_us)?);
            words(&mut index, &[*volume, meta_bytes, word(usize::try_from(*offset)?)?]);
        }
        for (end, bytes) in [("index", &index), ("meta", &self.meta)] {
            let mut file = created(&self.folder, &self.name, end)?;
            file.write_all(bytes)?;
            file.flush()?;
        }
        let volumes = (0..=self.volume).map(|number| number.to_string());
        let ends = volumes.chain(["index", "meta"].map(str::to_owned));
        Ok(ends.map(|end| file_name(&self.name, &end)).collect())
    }
}

impl Cell<'_> {
    /// Adds its block, which begins and ends on a multiple of four bytes.
    fn block(&self, out: &mut Vec<u8>) -> Result<()> {
        let (kind, bytes) = match self {
            Cell::Signed(_) => (Type::Signed, 8),
            Cell::Unsigned(_) => (Type::Unsigned, 8),
            Cell::Double(_) => (Type::Double, 8),
            Cell::Text(text) => (Type::Text, text.len() + 1),
        };
        if bytes + 4 > BLOCK_BYTES_MAX {
            bail!("a text of {bytes} bytes is too long for a PCP archive");
        }
        words(out, &[((kind as u32) << 24) | word(bytes + 4)?]);
        match self {
            Cell::Signed(number) => out.extend(number.to_be_bytes()),
            Cell::Unsigned(number) => out.extend(number.to_be_bytes()),
            Cell::Double(number) => out.extend(number.to_be_bytes()),
            Cell::Text(text) => {
                out.extend_from_slice(text.as_bytes());
                out.push(0);
            }
        }
        out.resize(out.len().next_multiple_of(4), 0);
        Ok(())
    }
}

fn file_name(name: &OsStr, end: &str) -> OsString {
    let mut file = name.to_owned();
    file.push(".");
    file.push(end);
    file
}

fn created(folder: &Path, name: &OsStr, end: &str) -> Result<BufWriter<File>> {
    let path = folder.join(file_name(name, end));
    let file = File::create_new(&path).with_context(|| format!("{}: cannot create", path.display()))?;
    Ok(BufWriter::new(file))
}

fn words(out: &mut Vec<u8>, words: &[u32]) {
    words.iter().for_each(|word| out.extend(word.to_be_bytes()));
}

/// A length or an offset, which are signed numbers of 32 bits.
fn word(number: usize) -> Result<u32> {
    let number = i32::try_from(number)
        .context("that is too much for one PCP archive; narrow it with --metric or --every")?;
    Ok(number.unsigned_abs())
}

/// A time, in seconds and microseconds.
fn stamp(t_us: i64) -> Result<[u32; 2]> {
    let second =
        u32::try_from(t_us.div_euclid(1_000_000)).ok().filter(|second| i32::try_from(*second).is_ok());
    let Some(second) = second else { bail!("a PCP archive has no times before 1970 and after 2038") };
    Ok([second, t_us.rem_euclid(1_000_000) as u32])
}

/// A record between its length and its length.
fn framed(record: &[u8]) -> Result<Vec<u8>> {
    let length = word(record.len() + 8)?.to_be_bytes();
    Ok([&length[..], record, &length].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SINCE_US: i64 = 1_795_232_527_123_456;
    const METRIC: u32 = 245 << 22;

    fn number(number: u64) -> Values<'static> {
        Values { metric: METRIC, cells: vec![(NONE, Cell::Unsigned(number))] }
    }

    /// The payloads of the records of a file behind its label.
    fn records(bytes: &[u8]) -> Vec<&[u8]> {
        let (mut rest, mut records) = (bytes, Vec::new());
        while let Some((length, _)) = rest.split_first_chunk::<4>() {
            let length = u32::from_be_bytes(*length) as usize;
            let (record, then) = rest.split_at(length);
            assert_eq!(record[..4], record[length - 4..], "the length stands on both sides");
            records.push(&record[4..length - 4]);
            rest = then;
        }
        assert_eq!(records[0].len(), 124, "a label");
        records.split_off(1)
    }

    #[test]
    fn a_record_is_laid_out_as_the_manual_says() {
        let dir = tempfile::tempdir().unwrap();
        let text = Cell::Text("bfq".into());
        let sets = [number(7), Values { metric: METRIC + 1, cells: vec![(0, text), (2, Cell::Double(0.5))] }];
        write(&dir.path().join("a"), "web-1", SINCE_US, |archive| {
            archive.record(SINCE_US, &sets).map(|()| 1)
        })
        .unwrap();
        let bytes = fs::read(dir.path().join("a.0")).unwrap();
        let record = records(&bytes)[0];
        let mut wanted = Vec::new();
        words(&mut wanted, &[1_795_232_527, 123_456, 2]);
        // The offsets are 2 more than the words of the record before the block, with its length.
        words(&mut wanted, &[METRIC, 1, 1, NONE, 18, METRIC + 1, 2, 1, 0, 21, 2, 23]);
        words(&mut wanted, &[(3 << 24) | 12, 0, 7]);
        words(&mut wanted, &[(6 << 24) | 8]);
        wanted.extend(b"bfq\0");
        words(&mut wanted, &[(5 << 24) | 12, 0x3FE0_0000, 0]);
        assert_eq!(record, wanted);
    }

    #[test]
    fn volumes_and_the_index() {
        let dir = tempfile::tempdir().unwrap();
        let count = write(&dir.path().join("a"), "web-1", SINCE_US, |archive| {
            archive.volume_bytes_max = 300;
            for at in 0..10 {
                archive.record(SINCE_US + at * 1_000_000, &[number(1)])?;
            }
            Ok(10)
        });
        assert_eq!(count.unwrap(), 10);
        let read = |end: &str| fs::read(dir.path().join(format!("a.{end}"))).unwrap();
        // 132 bytes of label, and 52 of each record.
        for (volume, length) in [("0", 288), ("1", 288), ("2", 288), ("3", 184)] {
            assert_eq!(read(volume).len(), length, "{volume}");
        }
        let place = |entry: &[u8]| {
            let word = |at: usize| u32::from_be_bytes(entry[at..at + 4].try_into().unwrap());
            (word(0) - 1_795_232_527, word(8), word(16))
        };
        let places: Vec<_> = read("index")[132..].chunks_exact(20).map(place).collect();
        assert_eq!(places, [(0, 0, 132), (3, 1, 132), (6, 2, 132), (9, 3, 132), (9, 3, 184)]);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 6, "nothing half-written stays");
    }

    #[test]
    fn a_mark_stands_between_records_only() {
        let dir = tempfile::tempdir().unwrap();
        write(&dir.path().join("a"), "web-1", SINCE_US, |archive| {
            archive.mark()?;
            archive.record(SINCE_US, &[])?;
            archive.record(SINCE_US, &[number(1)])?;
            archive.mark()?;
            archive.mark()?;
            archive.record(SINCE_US + 60_000_000, &[number(2)])?;
            Ok(0)
        })
        .unwrap();
        let bytes = fs::read(dir.path().join("a.0")).unwrap();
        let lengths: Vec<usize> = records(&bytes).iter().map(|record| record.len()).collect();
        assert_eq!(lengths, [44, 12, 44]);
        assert_eq!(
            records(&bytes)[1][4..],
            [0, 1, 230, 40, 0, 0, 0, 0],
            "a millisecond later, with no metrics"
        );
    }

    #[test]
    fn what_is_there_is_not_mixed_with_what_is_new() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str, since_us: i64| {
            let one = |archive: &mut Archive| archive.record(since_us, &[number(1)]).map(|()| 1);
            write(&dir.path().join(name), "web-1", since_us, one)
        };
        for taken in ["a.7", "b.meta", "c.0.xz"] {
            fs::write(dir.path().join(taken), "").unwrap();
        }
        fs::write(dir.path().join("d.0x"), "").unwrap();
        for (name, is_good) in
            [("a", false), ("b", false), ("c", false), ("d", true), ("e.5", false), ("f.meta", false)]
        {
            assert_eq!(at(name, SINCE_US).is_ok(), is_good, "{name}");
        }
        for time in [-1, (1 << 31) * 1_000_000] {
            assert!(at("g", time).is_err(), "{time}");
        }
        assert!(write(&dir.path().join("h"), "", SINCE_US, |_| bail!("no")).is_err());
        let entries = fs::read_dir(dir.path()).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["a.7", "b.meta", "c.0.xz", "d.0", "d.0x", "d.index", "d.meta"]);
    }
}
