//! What an archive says of itself.

use std::os::unix::fs::PermissionsExt;

use mitra_archive::simulate::Machine;
use mitra_archive::{Options, Query, Reader, Writer, captures, store_capture};
use mitra_model::{Captured, Event, EventKind};

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

#[test]
fn captures_are_counted_and_become_events() {
    let dir = scratch();
    let mut machine = Machine::new(60, 20, 1);
    let options = Options { segment_frames: 50, ..Options::default() };
    let mut writer = Writer::open(dir.path(), &Machine::host(), options).unwrap();
    let mut tick = |writer: &mut Writer| {
        machine.tick();
        writer.append(machine.frame(), machine.strings()).unwrap();
        machine.frame().time.real
    };
    let now = tick(&mut writer);
    let capture =
        |since_real| Captured { kind: "offcpu".into(), seconds: 2.0, since_real, ..Captured::default() };
    let young = store_capture(dir.path(), &capture(now + 1_000_000_000)).unwrap();
    store_capture(dir.path(), &capture(now - 4_000_000_000_000)).unwrap();
    (0..20).for_each(|_| _ = tick(&mut writer));
    let reader = Reader::open(dir.path()).unwrap();
    let status = reader.status().unwrap();
    assert_eq!(status.captures, 2);
    assert_eq!(status.disk_bytes, status.log_bytes + status.sealed_bytes + status.capture_bytes);
    let events = |reader: &Reader| {
        let set = reader.read(&Query::new(reader.span().unwrap(), Vec::new())).unwrap();
        let names = set.events.into_iter().filter_map(|event| match event.kind {
            EventKind::Capture { file, .. } => file,
            _ => None,
        });
        names.collect::<Vec<_>>()
    };
    // The old one is outside of what was recorded.
    assert_eq!(events(&reader), std::slice::from_ref(&young));
    (0..60).for_each(|_| _ = tick(&mut writer));
    assert_eq!(captures(dir.path()).unwrap().len(), 2, "no clock says for sure that one is old");
    assert!(writer.disk_bytes() > 0);
}

/// Names of everybody's programs are in it, lines of the kernel's log, and in captures paths.
#[test]
fn only_the_owner_and_a_group_may_read_a_recording() {
    let dir = scratch();
    let dir = dir.path().join("archive");
    let options = Options { segment_frames: 3, ..Options::default() };
    let mut writer = Writer::open(&dir, &Machine::host(), options).unwrap();
    let mut machine = Machine::new(5, 2, 1);
    for _ in 0..5 {
        machine.tick();
        writer.append(machine.frame(), machine.strings()).unwrap();
    }
    store_capture(&dir, &Captured { kind: "offcpu".into(), ..Captured::default() }).unwrap();
    let mut found = vec![dir.clone()];
    for folder in [dir.clone(), dir.join("captures")] {
        found.extend(std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()));
    }
    assert!(found.len() >= 6, "the directories, the lock, a segment, a log and a capture: {found:?}");
    for path in found {
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o027, 0, "{}: {mode:o}", path.display());
    }
}
