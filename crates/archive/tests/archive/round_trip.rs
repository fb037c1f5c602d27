//! What goes in comes out, from the log and from sealed segments.

use crate::common::{Plain, plain, read_all};
use mitra_archive::simulate::Machine;
use mitra_archive::{Options, Writer};
use mitra_model::{Entity, Event, EventKind, Frame, Key, NA, Stamp, Strings, columns};
use proptest::prelude::*;

#[test]
fn a_simulated_hour_comes_back_exactly() {
    let dir = tempfile::tempdir().unwrap();
    let mut machine = Machine::new(40, 5, 1);
    let options = Options { segment_frames: 50, ..Options::default() };
    let mut writer = Writer::open(dir.path(), &Machine::host(), options).unwrap();
    let mut wanted = Vec::new();
    for _ in 0..130 {
        machine.tick();
        writer.append(machine.frame(), machine.strings()).unwrap();
        wanted.push(plain(machine.frame(), machine.strings()));
    }
    // Two sealed segments and a log.
    compare(&read_all(dir.path()), &wanted);
    writer.finish().unwrap();
    compare(&read_all(dir.path()), &wanted);
}

fn compare(got: &[Plain], wanted: &[Plain]) {
    assert_eq!(got.len(), wanted.len());
    for (number, (got, wanted)) in got.iter().zip(wanted).enumerate() {
        assert_eq!(got.events, wanted.events, "events of frame {number}");
        for (row, wanted) in &wanted.rows {
            assert_eq!(got.rows.get(row), Some(wanted), "row {row:?} of frame {number}");
        }
        assert_eq!(got.rows.len(), wanted.rows.len(), "rows of frame {number}");
        assert_eq!((got.boot_us, got.interval_us), (wanted.boot_us, wanted.interval_us), "frame {number}");
        assert!((got.mono_us - wanted.mono_us).abs() <= 2, "monotonic clock of frame {number}");
        assert!((got.real_us - wanted.real_us).abs() <= 2, "wall clock of frame {number}");
    }
}

/// A step of a random machine.
#[derive(Debug, Clone)]
enum Step {
    /// Adds or replaces a row of an entity with cells made from the seed.
    Row {
        entity: usize,
        name: u8,
        seed: u64,
    },
    /// Changes one cell of a row.
    Cell {
        entity: usize,
        row: usize,
        column: usize,
        value: i64,
    },
    Remove {
        entity: usize,
        row: usize,
    },
    Swap {
        entity: usize,
        a: usize,
        b: usize,
    },
    /// The collector's string table starts over.
    Forget,
    WallClock {
        by_ns: i64,
    },
    Suspend {
        ns: i64,
    },
    Event {
        text: String,
    },
    /// The frame is appended.
    Take {
        after_ns: i64,
    },
}

fn value() -> impl Strategy<Value = i64> {
    prop_oneof![
        3 => 0_i64..1000,
        1 => Just(NA),
        1 => any::<i64>(),
        1 => prop_oneof![Just(i64::MAX), Just(i64::MIN + 1), Just(-1)],
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let entity = 0..Entity::COUNT;
    prop_oneof![
        3 => (entity.clone(), 0_u8..6, any::<u64>()).prop_map(|(entity, name, seed)| Step::Row { entity, name, seed }),
        6 => (entity.clone(), 0_usize..6, any::<usize>(), value())
            .prop_map(|(entity, row, column, value)| Step::Cell { entity, row, column, value }),
        1 => (entity.clone(), 0_usize..6).prop_map(|(entity, row)| Step::Remove { entity, row }),
        1 => (entity, 0_usize..6, 0_usize..6).prop_map(|(entity, a, b)| Step::Swap { entity, a, b }),
        1 => Just(Step::Forget),
        1 => (-4_000_000_000_000_i64..4_000_000_000_000).prop_map(|by_ns| Step::WallClock { by_ns }),
        1 => (0_i64..100_000_000_000_000).prop_map(|ns| Step::Suspend { ns }),
        1 => "[a-z\"\\\\é]{0,8}".prop_map(|text| Step::Event { text }),
        8 => (1_000_i64..3_000_000_000).prop_map(|after_ns| Step::Take { after_ns }),
    ]
}

/// The rows with names instead of ids, so that the string table may be forgotten.
#[derive(Clone)]
struct NamedRow {
    name: u8,
    cells: Vec<i64>,
}

fn build(tables: &[Vec<NamedRow>], strings: &mut Strings, frame: &mut Frame) {
    frame.clear();
    for (entity, rows) in Entity::ALL.into_iter().zip(tables) {
        for row in rows {
            let name = strings.intern(&format!("{entity}-{}", row.name));
            let key = match entity {
                Entity::System => Key::SYSTEM,
                Entity::Task => Key::task(u32::from(row.name) / 2, u64::from(row.name) * 1_000_000_007),
                Entity::Exited => Key::exited(u32::from(row.name) % 2, name),
                _ => Key::named(name),
            };
            let cells = frame.table_mut(entity).push(key);
            for ((to, from), metric) in cells.iter_mut().zip(&row.cells).zip(columns(entity)) {
                *to = match metric.kind {
                    mitra_model::Kind::Text if *from != NA => {
                        i64::from(strings.intern(&format!("text {}", from.rem_euclid(9))))
                    }
                    _ => *from,
                };
            }
        }
    }
}

fn run(steps: Vec<Step>, segment_frames: u32) -> Result<(), TestCaseError> {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { segment_frames, ..Options::default() };
    let mut writer = Writer::open(dir.path(), &Machine::host(), options).unwrap();
    let mut strings = Strings::new();
    let mut frame = Frame::new();
    let mut tables: Vec<Vec<NamedRow>> = vec![Vec::new(); Entity::COUNT];
    let mut events = Vec::new();
    let mut now = Stamp { real: 1_700_000_000_000_000_000, mono: 5_000_000, boot: 5_000_000 };
    let mut wanted = Vec::new();
    for step in steps {
        match step {
            Step::Row { entity, name, seed } => {
                let mut noise = mitra_archive::simulate::Noise::new(seed);
                let cells = columns(Entity::ALL[entity]).iter().map(|_| match noise.below(4) {
                    0 => NA,
                    1 => noise.any() as i64,
                    _ => noise.below(500) as i64,
                });
                let row = NamedRow { name, cells: cells.collect() };
                let is_system = Entity::ALL[entity] == Entity::System;
                let rows = &mut tables[entity];
                match rows.iter_mut().find(|row| row.name == name || is_system) {
                    Some(old) => *old = row,
                    None => rows.push(row),
                }
            }
            Step::Cell { entity, row, column, value } => {
                if let Some(row) = tables[entity].get_mut(row) {
                    let column = column % row.cells.len().max(1);
                    if let Some(cell) = row.cells.get_mut(column) {
                        *cell = value;
                    }
                }
            }
            Step::Remove { entity, row } => {
                if row < tables[entity].len() {
                    tables[entity].remove(row);
                }
            }
            Step::Swap { entity, a, b } => {
                let rows = tables[entity].len();
                if a < rows && b < rows {
                    tables[entity].swap(a, b);
                }
            }
            Step::Forget => strings.clear(),
            Step::WallClock { by_ns } => now.real += by_ns,
            Step::Suspend { ns } => {
                now.boot += ns;
                now.real += ns;
            }
            Step::Event { text } => {
                events.push(Event {
                    place: None,
                    real: now.real,
                    mono: None,
                    kind: EventKind::Recorder { text },
                });
            }
            Step::Take { after_ns } => {
                now =
                    Stamp { real: now.real + after_ns, mono: now.mono + after_ns, boot: now.boot + after_ns };
                build(&tables, &mut strings, &mut frame);
                frame.time = now;
                frame.events = std::mem::take(&mut events);
                writer.append(&frame, &strings).unwrap();
                wanted.push(plain(&frame, &strings));
            }
        }
    }
    let beside = read_all(dir.path());
    prop_assert_eq!(beside.len(), wanted.len());
    compare(&beside, &wanted);
    writer.finish().unwrap();
    compare(&read_all(dir.path()), &wanted);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_frames_come_back_exactly(steps in proptest::collection::vec(step(), 1..120), frames in 1_u32..30) {
        run(steps, frames)?;
    }
}
