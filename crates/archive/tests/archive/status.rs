//! What an archive says of itself.

use mitra_archive::simulate::Machine;
use mitra_archive::{Options, Reader, Writer};
use mitra_model::{Event, EventKind};

use crate::common::{files, scratch};

#[test]
fn every_byte_of_the_segments_is_accounted_for() {
    let dir = scratch();
    let mut machine = Machine::new(60, 20, 1);
    let options = Options { segment_frames: 50, ..Options::default() };
    let mut writer = Writer::open(dir.path(), &Machine::host(), options).unwrap();
    for second in 0..130 {
        machine.tick();
        let mut frame = machine.frame().clone();
        if second == 70 || second == 90 {
            let level = if second == 70 { "threads" } else { "none" };
            let kind = EventKind::Shed { level: level.into(), why: "memory".into() };
            frame.events.push(Event { place: None, real: frame.time.real, mono: None, kind });
        }
        writer.append(&frame, machine.strings()).unwrap();
    }
    let reader = Reader::open(dir.path()).unwrap();
    let status = reader.status().unwrap();
    let size = |ending| files(dir.path(), ending).iter().map(|f| f.metadata().unwrap().len()).sum::<u64>();
    assert_eq!((status.frames, status.segments, status.sheds), (130, 2, 1));
    assert_eq!((status.sealed_bytes, status.log_bytes), (size("seg"), size("log")));
    assert_eq!(writer.disk_bytes(), size("seg") + size("log"));
    assert_eq!(status.span, reader.span());
    assert!((status.span.unwrap().seconds() - 129.0).abs() < 0.01);
    let per_second = status.bytes_per_second.unwrap();
    assert!((per_second - size("seg") as f64 / 100.0).abs() < 0.01 * per_second, "{per_second}");
    assert_eq!(status.sealed_bytes, status.parts.iter().map(|part| part.bytes).sum::<u64>());
    for name in ["system/vm", "task/time", "task/rows", "schema", "events"] {
        assert!(status.parts.iter().any(|part| part.name == name && part.bytes > 0), "{name}");
    }
    assert!(status.parts.windows(2).all(|pair| pair[0].bytes >= pair[1].bytes));
    assert_eq!((status.gaps.len(), status.skipped.len()), (0, 0));
}
