//! Damage costs what it hits, is reported, and never makes a wrong value.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::common::{files, scratch};
use mitra_archive::simulate::{Machine, Noise};
use mitra_archive::{Options, Reader, Writer};
use mitra_model::frame::row_name;
use mitra_model::{Entity, Event, EventKind, Frame, Kind, NA, Span, Strings, columns};

struct Recorded {
    frames: Vec<Frame>,
    strings: Strings,
}

/// Three files: two sealed segments and a log.
fn record(dir: &Path, frames: u32) -> Recorded {
    let mut machine = Machine::new(12, 4, 3);
    let options = Options { segment_frames: frames, ..Options::default() };
    let mut writer = Writer::open(dir, &Machine::host(), options).unwrap();
    let mut recorded = Recorded { frames: Vec::new(), strings: Strings::new() };
    for number in 0..3 * frames {
        machine.tick();
        let mut frame = machine.frame().clone();
        let kind = EventKind::Recorder { text: format!("frame {number}") };
        frame.events.push(Event { place: None, real: frame.time.real, mono: None, kind });
        writer.append(&frame, machine.strings()).unwrap();
        recorded.frames.push(frame);
    }
    recorded.strings = machine.strings().clone();
    recorded
}

/// What of a frame is missing in the one that was read.
#[derive(Default, Debug)]
struct Missing {
    frames: usize,
    entities: BTreeSet<Entity>,
    events: usize,
}

impl Missing {
    fn nothing(&self) -> bool {
        self.frames == 0 && self.entities.is_empty() && self.events == 0
    }

    /// Fails if anything that was read is not what was recorded.
    fn compare(&mut self, got: &Frame, got_strings: &Strings, wanted: &Frame, wanted_strings: &Strings) {
        for entity in Entity::ALL {
            let rows: std::collections::HashMap<_, _> = wanted
                .table(entity)
                .rows()
                .map(|(key, row)| (row_name(entity, key, wanted_strings), row))
                .collect();
            if got.table(entity).len() != rows.len() {
                self.entities.insert(entity);
            }
            for (key, row) in got.table(entity).rows() {
                let name = row_name(entity, key, got_strings);
                let wanted = rows.get(&name).unwrap_or_else(|| panic!("{entity} {name} was never recorded"));
                for ((metric, got), wanted) in columns(entity).iter().zip(row).zip(*wanted) {
                    let equal = match metric.kind {
                        Kind::Text => got_strings.cell(*got) == wanted_strings.cell(*wanted),
                        _ => got == wanted,
                    };
                    if !equal {
                        assert_eq!(*got, NA, "{} of {name}", metric.name);
                        self.entities.insert(entity);
                    }
                }
            }
        }
        for event in &got.events {
            assert!(wanted.events.contains(event), "{event:?} was never recorded");
        }
        self.events += wanted.events.len() - got.events.len();
    }
}

/// Reads everything that can be read and compares it.
fn read(dir: &Path, recorded: &Recorded, expected: std::ops::Range<usize>) -> (Missing, Reader) {
    let reader = Reader::open(dir).unwrap();
    let mut missing = Missing::default();
    let mut seen = 0;
    reader
        .frames(Span::ALL, &mut |frame, strings| {
            let number = recorded.frames.iter().position(|w| w.time.boot / 1000 == frame.time.boot / 1000);
            let number = number.expect("a frame that was recorded");
            assert!(expected.contains(&number));
            missing.compare(frame, strings, &recorded.frames[number], &recorded.strings);
            seen += 1;
        })
        .unwrap();
    missing.frames = expected.len() - seen;
    (missing, reader)
}

#[test]
fn a_flipped_bit_costs_one_block_or_one_frame_and_is_told() {
    const FRAMES: usize = 12;
    let dir = scratch();
    let recorded = record(dir.path(), FRAMES as u32);
    let sealed = files(dir.path(), "seg");
    let logs = files(dir.path(), "log");
    assert_eq!((sealed.len(), logs.len()), (2, 1));
    let mut noise = Noise::new(11);
    let mut told = 0;
    for round in 0..1000 {
        let (file, expected) = match round % 2 {
            0 => (&sealed[0], 0..FRAMES),
            _ => (&logs[0], 2 * FRAMES..3 * FRAMES),
        };
        let mut bytes = fs::read(file).unwrap();
        let bit = noise.below(bytes.len() as u64 * 8) as usize;
        bytes[bit / 8] ^= 1 << (bit % 8);
        let copy = scratch();
        fs::write(copy.path().join(file.file_name().unwrap()), &bytes).unwrap();
        let (missing, reader) = read(copy.path(), &recorded, expected);
        let place = format!("bit {} of byte {} of {}: {missing:?}", bit % 8, bit / 8, file.display());
        let skipped = reader.skipped();
        if file == &sealed[0] {
            assert_eq!(missing.frames, 0, "{place}");
            assert!(missing.entities.len() + usize::from(missing.events > 0) <= 1, "{place}");
        } else {
            assert!(missing.frames <= 1 && missing.entities.is_empty() && missing.events == 0, "{place}");
        }
        assert!(missing.nothing() || !skipped.is_empty(), "nothing was said: {place}");
        told += usize::from(!skipped.is_empty());
    }
    // What is there twice and was not needed is not looked at.
    assert!(told > 600, "{told} of 1000");
}

#[test]
fn many_flipped_bits_never_make_a_wrong_value() {
    let dir = scratch();
    let recorded = record(dir.path(), 10);
    let whole: Vec<_> = ["seg", "log"].iter().flat_map(|e| files(dir.path(), e)).collect();
    let mut noise = Noise::new(5);
    for flips in 2..60 {
        let copy = scratch();
        for file in &whole {
            let mut bytes = fs::read(file).unwrap();
            for _ in 0..flips {
                let bit = noise.below(bytes.len() as u64 * 8) as usize;
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
            fs::write(copy.path().join(file.file_name().unwrap()), &bytes).unwrap();
        }
        let (missing, reader) = read(copy.path(), &recorded, 0..30);
        assert!(missing.nothing() || !reader.skipped().is_empty(), "{flips} flips: {missing:?}");
        reader.status().unwrap();
        reader.read(&mitra_archive::Query::default()).unwrap();
    }
}

#[test]
fn a_log_that_is_cut_anywhere_keeps_all_whole_frames_and_can_be_continued() {
    const FRAMES: usize = 8;
    let dir = scratch();
    let recorded = record(dir.path(), FRAMES as u32);
    let log = files(dir.path(), "log").remove(0);
    let name = log.file_name().unwrap();
    let bytes = fs::read(&log).unwrap();
    let starts: Vec<usize> = (16..bytes.len()).filter(|at| bytes[*at..].starts_with(b"MLR")).collect();
    // Two headers, the first frame and its second copy, and the others.
    assert_eq!(starts.len(), 2 + FRAMES + 1);
    let last = starts[starts.len() - 3];
    for cut in last..bytes.len() {
        let copy = scratch();
        fs::write(copy.path().join(name), &bytes[..cut]).unwrap();
        let whole = FRAMES - starts.iter().filter(|start| **start >= last).count()
            + starts.iter().filter(|start| **start > last && **start <= cut).count();
        let (missing, reader) = read(copy.path(), &recorded, 2 * FRAMES..3 * FRAMES);
        assert_eq!(missing.frames, FRAMES - whole, "cut at {cut}");
        assert_eq!(
            reader.skipped().is_empty(),
            starts.contains(&cut),
            "cut at {cut}: {:?}",
            reader.skipped()
        );
        if cut % 5 == 0 {
            let mut writer = Writer::open(copy.path(), &Machine::host(), Options::default()).unwrap();
            assert_eq!(writer.repaired().is_empty(), starts.contains(&cut));
            let mut next = recorded.frames[3 * FRAMES - 1].clone();
            next.time.boot += 1_000_000_000;
            next.time.mono += 1_000_000_000;
            writer.append(&next, &recorded.strings).unwrap();
            writer.finish().unwrap();
            let reader = Reader::open(copy.path()).unwrap();
            assert_eq!(reader.status().unwrap().frames as usize, whole + 1);
            assert_eq!(reader.skipped(), []);
        }
    }
}

#[test]
fn a_segment_without_its_end_is_searched_for_blocks() {
    let dir = scratch();
    let recorded = record(dir.path(), 10);
    let sealed = files(dir.path(), "seg").remove(0);
    let bytes = fs::read(&sealed).unwrap();
    for keep in [bytes.len() - 1, bytes.len() - 24, bytes.len() * 3 / 4, bytes.len() / 2] {
        let copy = scratch();
        fs::write(copy.path().join(sealed.file_name().unwrap()), &bytes[..keep]).unwrap();
        let (missing, reader) = read(copy.path(), &recorded, 0..10);
        assert_eq!(missing.frames, 0, "the times are at the front, too");
        assert!(!reader.skipped().is_empty());
        if keep >= bytes.len() - 24 {
            assert!(missing.nothing());
        }
    }
}

#[test]
fn files_that_are_something_else_are_told_and_passed_over() {
    let dir = scratch();
    let recorded = record(dir.path(), 5);
    fs::write(dir.path().join("0000000000.seg"), b"something else").unwrap();
    fs::write(dir.path().join("0000000009.log"), vec![7; 5000]).unwrap();
    fs::write(dir.path().join("notes.txt"), b"mine").unwrap();
    fs::create_dir(dir.path().join("0000000008.seg")).unwrap();
    let (missing, reader) = read(dir.path(), &recorded, 0..15);
    assert!(missing.nothing());
    assert_eq!(reader.skipped().len(), 4, "{:?}", reader.skipped());
}
