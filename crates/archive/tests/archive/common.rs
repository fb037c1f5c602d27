//! Frames in a form that can be compared: rows by name, texts as texts, times in whole microseconds.

use std::collections::BTreeMap;
use std::path::Path;

use mitra_archive::Reader;
use mitra_model::frame::row_name;
use mitra_model::{Entity, Event, Frame, Kind, NA, Span, Strings, columns};

/// A row: column name to cell; a text cell is its text.
pub type Row = BTreeMap<&'static str, String>;

/// A frame without anything that depends on ids or order.
#[derive(Debug, Clone, PartialEq)]
pub struct Plain {
    pub real_us: i64,
    pub mono_us: i64,
    pub boot_us: i64,
    pub interval_us: u64,
    pub rows: BTreeMap<(Entity, String), Row>,
    pub events: Vec<Event>,
}

pub fn plain(frame: &Frame, strings: &Strings) -> Plain {
    let mut rows = BTreeMap::new();
    for entity in Entity::ALL {
        for (key, cells) in frame.table(entity).rows() {
            let mut row = Row::new();
            for (metric, cell) in columns(entity).iter().zip(cells) {
                let text = match metric.kind {
                    _ if *cell == NA => continue,
                    Kind::Text => strings.cell(*cell).map(|text| format!("“{text}”")),
                    _ => Some(cell.to_string()),
                };
                row.extend(text.map(|text| (metric.name, text)));
            }
            rows.insert((entity, row_name(entity, key, strings)), row);
        }
    }
    let us = |ns: i64| ns.div_euclid(1000);
    Plain {
        real_us: us(frame.time.real),
        mono_us: us(frame.time.mono),
        boot_us: us(frame.time.boot),
        interval_us: frame.interval_ns / 1000,
        rows,
        events: frame.events.clone(),
    }
}

pub fn read_all(dir: &Path) -> Vec<Plain> {
    let reader = Reader::open(dir).expect("the archive opens");
    let mut frames = Vec::new();
    reader
        .frames(Span::ALL, &mut |frame, strings| frames.push(plain(frame, strings)))
        .expect("frames are read");
    assert_eq!(reader.skipped(), [], "nothing is damaged");
    frames
}

/// A directory in memory where there is one, because these tests sync a lot.
pub fn scratch() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir()
        && let Ok(dir) = tempfile::Builder::new().prefix("mitra-archive-").tempdir_in(memory)
    {
        return dir;
    }
    tempfile::tempdir().expect("a temporary directory")
}

/// The files of an archive that end so, in order.
pub fn files(dir: &Path, ending: &str) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(dir).expect("the directory is there");
    let mut files: Vec<_> = entries
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|e| e == ending))
        .collect();
    files.sort();
    files
}
