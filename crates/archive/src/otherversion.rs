//! Files of other versions, whose metric table is another one.

use std::path::Path;

use mitra_model::{Entity, Frame, HostInfo, Key, Span, Stamp, Strings, Unit, column, columns};

use crate::compress::Compressor;
use crate::log::encode::LogEncoder;
use crate::log::record::{self, put_record};
use crate::open::{Meta, OpenSegment, Times};
use crate::segment::encode;
use crate::varint::put_bytes;
use crate::writer::VERSION;
use crate::{Options, Reader, Skipped, Writer, block, schema};

const FRAMES: i64 = 5;
const ENTITY_OF_LATER: &str = "tachyon";

/// The table of a version in which two counters stand in each other's place, one has another name, one metric of
/// ours is a text, the unit of one is another, and there is one more entity.
fn schema_of_later() -> Vec<u8> {
    let mut entities: Vec<(&str, Vec<(&str, Unit)>)> = Entity::ALL
        .map(|entity| {
            let columns = columns(entity).iter().map(|metric| match metric.name {
                "sys.ctxt" => ("sys.forks", Unit::Count),
                "sys.forks" => ("sys.ctxt", Unit::Count),
                "tasks.total" => ("tasks.of_later", Unit::Count),
                "tasks.running" => ("tasks.running", Unit::Text),
                "task.cpu_time" => ("task.cpu_time", Unit::Millis),
                name => (name, metric.unit),
            });
            (entity.name(), columns.collect())
        })
        .to_vec();
    entities.push((ENTITY_OF_LATER, vec![("tachyon.spin", Unit::Count)]));
    schema::write(&entities)
}

fn fill(frame: &mut Frame, strings: &mut Strings, number: i64) {
    frame.clear();
    let now = number * 1_000_000_000;
    frame.time = Stamp { real: now + 7_000_000_000, mono: now + 1_000, boot: now + 1_000 };
    let mut system = |metric: &str, value: i64| frame.system_mut()[column(metric).unwrap()] = value;
    system("sys.ctxt", 10 * number);
    system("sys.forks", 3 * number);
    system("tasks.total", 55);
    system("tasks.running", 1);
    let row = frame.table_mut(Entity::Task).push(Key::task(4, 9));
    row[column("task.cpu_time").unwrap()] = 20 * number;
    row[column("task.comm").unwrap()] = i64::from(strings.intern("sh"));
}

/// A log and a sealed segment with that table.
fn write(dir: &Path) {
    let meta = Meta { host: HostInfo::default(), ..Meta::default() };
    let mut segment = OpenSegment::new(meta.clone());
    let mut encoder = LogEncoder::new().unwrap();
    let mut compressor = Compressor::new(1).unwrap();
    let mut header = Vec::new();
    put_bytes(&mut header, &serde_json::to_vec(&meta).unwrap());
    header.extend_from_slice(&schema_of_later());
    let mut log = record::file_header(record::FILE_MAGIC, VERSION).to_vec();
    put_record(&mut log, record::HEADER, &header, &mut compressor);
    let (mut frame, mut strings) = (Frame::new(), Strings::new());
    for number in 0..2 * FRAMES {
        fill(&mut frame, &mut strings, number);
        if number == FRAMES {
            seal(dir, &segment);
            segment.clear();
        }
        let times = Times::of(&frame, segment.times.last().copied());
        segment.observe(&frame, &strings);
        if number >= FRAMES {
            log.extend_from_slice(encoder.encode(&segment, &frame, times));
        }
        segment.commit(&frame, times);
        if number >= FRAMES {
            let is_base = encoder.is_base();
            encoder.written(&segment, times);
            if is_base {
                let last = segment.frames() - 1;
                segment.tables.iter_mut().for_each(|table| table.rebase(last));
            }
        }
    }
    std::fs::write(dir.join("0000000002.log"), log).unwrap();
}

/// Writes the segment with the other schema, and without an index, which would not fit it.
fn seal(dir: &Path, segment: &OpenSegment) {
    let mut image = Vec::new();
    encode::write(segment, None, &mut |bytes| {
        image.extend_from_slice(bytes);
        Ok(())
    })
    .unwrap();
    let mut out = image[..record::FILE_HEADER_BYTES].to_vec();
    let mut at = 0;
    while let Some(offset) = block::find(&image, at) {
        let (header, payload) = block::unpack(&image[offset..]).unwrap();
        let payload = match header.kind {
            block::Kind::Schema => schema_of_later(),
            block::Kind::Index => break,
            block::Kind::Meta => serde_json::to_vec(&segment.meta).unwrap(),
            _ => payload,
        };
        block::put(&mut out, header.kind, header.entity, &payload, None);
        at = offset + header.total_bytes() as usize;
    }
    std::fs::write(dir.join("0000000001.seg"), out).unwrap();
}

fn check(dir: &Path) -> Vec<Skipped> {
    let reader = Reader::open(dir).unwrap();
    let mut number = 0;
    reader
        .frames(Span::ALL, &mut |frame, strings| {
            let system = frame.table(Entity::System).row(0);
            let at = |metric: &str| system[column(metric).unwrap()];
            assert_eq!((at("sys.forks"), at("sys.ctxt")), (10 * number, 3 * number), "columns go by name");
            assert_eq!(at("tasks.total"), mitra_model::NA, "what the file does not have is unavailable");
            assert_eq!(at("tasks.running"), mitra_model::NA, "a text is no number");
            let comm = frame.table(Entity::Task).row(0)[column("task.comm").unwrap()];
            assert_eq!(strings.cell(comm), Some("sh"));
            let cpu = frame.table(Entity::Task).row(0)[column("task.cpu_time").unwrap()];
            assert_eq!(cpu, 20_000 * number, "milliseconds in the file, microseconds here");
            number += 1;
        })
        .unwrap();
    assert_eq!(number, 2 * FRAMES);
    reader.skipped()
}

#[test]
fn a_file_with_another_table_is_read_by_name() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path());
    let skipped = check(dir.path());
    assert_eq!(skipped.len(), 1, "only the index is missing: {skipped:?}");
    let reader = Reader::open(dir.path()).unwrap();
    let set = reader.read(&crate::Query::default()).unwrap();
    let cpu = set.get("task.cpu_time", "4@9").unwrap();
    for position in 1..2 * FRAMES as usize {
        assert!((cpu.at(position) - 0.020).abs() < 1e-12, "{} at {position}", cpu.at(position));
    }
    assert_eq!(set.system("sys.forks").unwrap().at(2), 10.0);

    // A writer of this version seals the log and goes on.
    let mut writer = Writer::open(dir.path(), &HostInfo::default(), Options::default()).unwrap();
    assert!(writer.trouble().is_none() && writer.repaired().is_empty());
    assert!(!dir.path().join("0000000002.log").exists());
    check(dir.path());
    let (mut frame, mut strings) = (Frame::new(), Strings::new());
    fill(&mut frame, &mut strings, 100);
    writer.append(&frame, &strings).unwrap();
}

#[test]
fn a_file_of_a_later_format_is_told_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    write(dir.path());
    for (name, magic) in
        [("0000000003.seg", crate::writer::SEGMENT_MAGIC), ("0000000004.log", record::FILE_MAGIC)]
    {
        let mut bytes = record::file_header(magic, VERSION + 1).to_vec();
        bytes.extend_from_slice(b"whatever later versions write");
        std::fs::write(dir.path().join(name), bytes).unwrap();
    }
    let told = |skipped: &[Skipped]| skipped.iter().filter(|s| s.why.contains("format version 2")).count();
    assert_eq!(told(&check(dir.path())), 2);
    let writer = Writer::open(dir.path(), &HostInfo::default(), Options::default()).unwrap();
    let trouble = writer.trouble();
    assert!(trouble.is_some_and(|why| why.contains("format version 2")));
    assert!(dir.path().join("0000000004.log").exists(), "a log that is not understood is not thrown away");
}
