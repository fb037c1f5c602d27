//! Rates, levels, texts, gaps and the time axis.

use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::common::{files, scratch};
use mitra_archive::simulate::Machine;
use mitra_archive::{Error, Options, Query, Reader, Writer};
use mitra_model::time::SECOND;
use mitra_model::{
    Entity, Event, EventKind, Frame, HostInfo, Key, Metric, SeriesSet, Span, Stamp, Strings, column, lookup,
};

const T0: i64 = 1_700_000_000 * SECOND;

/// A machine whose clocks and counters the test sets.
struct Bench {
    writer: Option<Writer>,
    dir: tempfile::TempDir,
    host: HostInfo,
    options: Options,
    frame: Frame,
    strings: Strings,
    now: Stamp,
}

impl Bench {
    fn new(segment_frames: u32) -> Bench {
        let options = Options { segment_frames, ..Options::default() };
        let mut bench = Bench {
            writer: None,
            dir: scratch(),
            host: Machine::host(),
            options,
            frame: Frame::new(),
            strings: Strings::new(),
            now: Stamp { real: T0, mono: 100 * SECOND, boot: 100 * SECOND },
        };
        bench.start();
        bench
    }

    fn start(&mut self) {
        self.writer = Some(Writer::open(self.dir.path(), &self.host, self.options.clone()).unwrap());
    }

    fn stop(&mut self) {
        self.writer.take().unwrap().finish().unwrap();
    }

    fn pass(&mut self, ns: i64) -> &mut Self {
        self.now.real += ns;
        self.now.mono += ns;
        self.now.boot += ns;
        self
    }

    fn set(&mut self, metric: &str, value: i64) -> &mut Self {
        self.frame.system_mut()[column(metric).unwrap()] = value;
        self
    }

    fn row(&mut self, key: Key, metric: &str, value: i64) -> &mut Self {
        let entity = lookup(metric).unwrap().entity;
        self.frame.table_mut(entity).push(key)[column(metric).unwrap()] = value;
        self
    }

    fn take(&mut self) -> &mut Self {
        self.frame.time = self.now;
        self.writer.as_mut().unwrap().append(&self.frame, &self.strings).unwrap();
        self.frame.clear();
        self
    }

    fn read(&self, span: Span, metrics: &[&str]) -> SeriesSet {
        let metrics: Vec<&'static Metric> = metrics.iter().map(|name| lookup(name).unwrap()).collect();
        let reader = Reader::open(self.dir.path()).unwrap();
        let set = reader.read(&Query::new(span, metrics)).unwrap();
        assert_eq!(reader.skipped(), []);
        set
    }
}

/// All values from the start of the axis on.
fn values(set: &SeriesSet, metric: &str, row: &str) -> Vec<f64> {
    let series = set.get(metric, row).unwrap_or_else(|| panic!("{metric} of {row:?}"));
    (0..series.axis.len()).map(|position| series.at(position)).collect()
}

/// Compares with `NaN` equal to itself.
fn assert_values(got: &[f64], wanted: &[f64]) {
    let equal = got.len() == wanted.len()
        && got.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 1e-4 || a.is_nan() && b.is_nan());
    assert!(equal, "{got:?} instead of {wanted:?}");
}

const N: f64 = f64::NAN;

#[test]
fn counters_become_rates_and_gauges_levels_across_segments() {
    for segment_frames in [1, 2, 3, 600] {
        let mut bench = Bench::new(segment_frames);
        for (counter, gauge) in [(100, 4), (103, 5), (103, 6), (90, 7), (i64::MIN, 8), (95, 9), (97, 10)] {
            bench.pass(2 * SECOND).set("sys.cpu_user", counter).set("mem.free", gauge).take();
        }
        let set = bench.read(Span::ALL, &["sys.cpu_user", "mem.free"]);
        // Ticks are hundredths of a second.
        assert_values(&values(&set, "sys.cpu_user", ""), &[N, 0.015, 0.0, N, N, N, 0.01]);
        let kib = [4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0].map(|level| level * 1024.0);
        assert_values(&values(&set, "mem.free", ""), &kib);
        assert_eq!(set.system("mem.free").unwrap().axis.step_s(), 2.0);
    }
}

#[test]
fn raw_values_are_as_stored() {
    let mut bench = Bench::new(2);
    for value in [7, 9, i64::MIN] {
        bench.pass(SECOND).set("sys.cpu_user", value).take();
    }
    let reader = Reader::open(bench.dir.path()).unwrap();
    let query = Query { raw: true, ..Query::default() };
    assert_values(&values(&reader.read(&query).unwrap(), "sys.cpu_user", ""), &[7.0, 9.0, N]);
}

#[test]
fn a_missed_interval_gives_the_mean_over_the_time_that_passed() {
    let mut bench = Bench::new(600);
    for (after, value) in [(1, 0), (1, 10), (5, 60), (1, 70)] {
        bench.pass(after * SECOND).set("sys.ctxt", value).take();
    }
    let set = bench.read(Span::ALL, &["sys.ctxt"]);
    assert_values(&values(&set, "sys.ctxt", ""), &[N, 10.0, 10.0, 10.0]);
    assert_eq!(set.gaps.len(), 1);
    assert_eq!(set.gaps[0].span, Span { since: T0 + 2 * SECOND, until: T0 + 7 * SECOND });
    assert_eq!(set.gaps[0].why, "missed");
    assert_eq!(set.system("sys.ctxt").unwrap().total(Span::ALL), Some(70.0));
}

#[test]
fn the_first_rate_of_a_range_is_known_and_the_range_is_kept() {
    for segment_frames in [2, 3, 600] {
        let mut bench = Bench::new(segment_frames);
        for second in 0..9 {
            bench.pass(SECOND).set("sys.ctxt", second * second).take();
        }
        for from in 2..9 {
            let span = Span { since: T0 + from * SECOND, until: T0 + 8 * SECOND };
            let set = bench.read(span, &["sys.ctxt"]);
            if from == 8 {
                assert!(set.system("sys.ctxt").is_none());
                continue;
            }
            let wanted: Vec<f64> = (from..8).map(|t| (2 * (t - 1) - 1) as f64).collect();
            assert_values(&values(&set, "sys.ctxt", ""), &wanted);
            assert_eq!(set.system("sys.ctxt").unwrap().axis.t[0], span.since);
        }
    }
}

#[test]
fn a_step_of_the_wall_clock_invents_nothing() {
    for step in [3600, -3600, -30] {
        let mut bench = Bench::new(4);
        for second in 0..12 {
            if second == 5 {
                bench.now.real += step * SECOND;
            }
            bench.pass(SECOND).set("sys.ctxt", second * 5).take();
        }
        let set = bench.read(Span::ALL, &["sys.ctxt"]);
        assert_values(&values(&set, "sys.ctxt", "")[1..], &[5.0; 11]);
        let axis = &set.system("sys.ctxt").unwrap().axis;
        assert!(axis.t.windows(2).all(|pair| pair[1] - pair[0] == SECOND), "{step}: {:?}", axis.t);
        assert_eq!(*axis.t.last().unwrap(), bench.now.real, "shown on the clock after the last step");
        assert_eq!(set.gaps, []);
        // A range is meant on the same clock.
        let span = Span { since: bench.now.real - 10 * SECOND, until: bench.now.real - 7 * SECOND };
        assert_values(&values(&bench.read(span, &["sys.ctxt"]), "sys.ctxt", ""), &[5.0; 3]);
    }
}

#[test]
fn events_move_with_the_frames_when_the_clock_steps() {
    let mut bench = Bench::new(3);
    for second in 0..8 {
        if second == 5 {
            bench.now.real += 3600 * SECOND;
        }
        bench.pass(SECOND);
        let kind = EventKind::Recorder { text: second.to_string() };
        let mono = (second % 2 == 0).then_some(bench.now.mono);
        bench.frame.events.push(Event { place: None, real: bench.now.real, mono, kind });
        bench.take();
    }
    let set = bench.read(Span::ALL, &[]);
    let times: Vec<i64> = set.events.iter().map(|event| (event.real - bench.now.real) / SECOND).collect();
    assert_eq!(times, [-7, -6, -5, -4, -3, -2, -1, 0]);
    let span = Span { since: bench.now.real - 6 * SECOND, until: bench.now.real - 4 * SECOND };
    assert_eq!(bench.read(span, &[]).events.len(), 2);
}

#[test]
fn a_reboot_starts_counters_over() {
    // The second time the clock of the machine that came up is behind.
    for back in [0, 7200] {
        let mut bench = Bench::new(600);
        for value in [1000, 1010, 1020] {
            bench.pass(SECOND).set("sys.ctxt", value).take();
        }
        bench.stop();
        bench.host.boot_id = "another".into();
        bench.now = Stamp { real: bench.now.real + (60 - back) * SECOND, mono: SECOND, boot: SECOND };
        bench.start();
        for value in [2000, 2007] {
            bench.pass(SECOND).set("sys.ctxt", value).take();
        }
        let set = bench.read(Span::ALL, &["sys.ctxt"]);
        assert_values(&values(&set, "sys.ctxt", ""), &[N, 10.0, 10.0, N, 7.0]);
        assert_eq!(set.gaps.len(), 1);
        assert_eq!(set.gaps[0].why, "reboot");
        let axis = &set.system("sys.ctxt").unwrap().axis;
        assert!(axis.t.windows(2).all(|pair| pair[0] < pair[1]), "{:?}", axis.t);
        assert_eq!(set.host.boot_id, "another");
    }
}

#[test]
fn a_recorder_that_stopped_leaves_a_gap_and_a_mean() {
    let mut bench = Bench::new(600);
    bench.pass(SECOND).set("sys.ctxt", 0).take();
    bench.pass(SECOND).set("sys.ctxt", 1).take();
    bench.stop();
    bench.pass(100 * SECOND);
    bench.start();
    bench.set("sys.ctxt", 201).take();
    let set = bench.read(Span::ALL, &["sys.ctxt"]);
    assert_values(&values(&set, "sys.ctxt", ""), &[N, 1.0, 2.0]);
    assert_eq!(set.gaps[0].why, "recorder stopped");
    let reader = Reader::open(bench.dir.path()).unwrap();
    assert_eq!(reader.gaps().unwrap(), set.gaps);
    assert_eq!(reader.status().unwrap().gaps, set.gaps);
}

#[test]
fn a_suspend_is_a_gap_in_which_nothing_was_counted() {
    let mut bench = Bench::new(600);
    bench.pass(SECOND).set("sys.ctxt", 0).take();
    bench.pass(SECOND).set("sys.ctxt", 10).take();
    bench.now.boot += 3600 * SECOND;
    bench.now.real += 3600 * SECOND;
    bench.pass(SECOND).set("sys.ctxt", 20).take();
    let set = bench.read(Span::ALL, &["sys.ctxt"]);
    assert_values(&values(&set, "sys.ctxt", ""), &[N, 10.0, 10.0]);
    assert_eq!(set.gaps.len(), 1);
    assert_eq!(set.gaps[0].why, "suspend");
    assert_eq!(set.system("sys.ctxt").unwrap().axis.t, [1, 2, 3603].map(|s| T0 + s * SECOND));
}

#[test]
fn a_task_that_was_born_in_between_counts_from_zero_and_an_old_one_does_not() {
    for segment_frames in [2, 600] {
        let mut bench = Bench::new(segment_frames);
        let old = Key::task(7, 1);
        bench.pass(SECOND).take();
        bench.pass(SECOND).take();
        // Born half a second before its first frame; the same id is used again later.
        let first = Key::task(8, (bench.now.boot + SECOND / 2) as u64);
        bench.pass(SECOND).row(first, "task.cpu_time", 400_000).row(old, "task.cpu_time", 9_000_000).take();
        bench.pass(SECOND).row(first, "task.cpu_time", 900_000).row(old, "task.cpu_time", 9_100_000).take();
        let second = Key::task(8, (bench.now.boot + SECOND / 4) as u64);
        bench.pass(SECOND).row(second, "task.cpu_time", 100_000).row(old, "task.cpu_time", 9_200_000).take();
        bench.pass(SECOND).row(second, "task.cpu_time", 300_000).take();
        let set = bench.read(Span::ALL, &["task.cpu_time"]);
        let name = |key: Key| format!("{}@{}", key.id, key.born);
        assert_values(&values(&set, "task.cpu_time", &name(first)), &[N, N, 0.4, 0.5, N, N]);
        assert_values(&values(&set, "task.cpu_time", &name(second)), &[N, N, N, N, 0.1, 0.2]);
        assert_values(&values(&set, "task.cpu_time", &name(old)), &[N, N, N, 0.1, 0.1, N]);
        // A task that lived for two samples takes the room of two.
        let series = set.get("task.cpu_time", &name(first)).unwrap();
        assert_eq!((series.start, series.values.len()), (2, 2));
    }
}

#[test]
fn a_task_of_the_first_frame_of_a_range_is_unknown_unless_the_frame_before_is_there() {
    let mut bench = Bench::new(600);
    bench.pass(SECOND).take();
    let key = Key::task(8, (bench.now.boot + 5) as u64);
    bench.pass(SECOND).row(key, "task.cpu_time", 400_000).take();
    bench.pass(SECOND).row(key, "task.cpu_time", 500_000).take();
    let name = format!("8@{}", key.born);
    let from = |second: i64| Span { since: T0 + second * SECOND, until: i64::MAX };
    assert_values(&values(&bench.read(from(2), &["task.cpu_time"]), "task.cpu_time", &name), &[0.4, 0.1]);
    assert_values(&values(&bench.read(from(3), &["task.cpu_time"]), "task.cpu_time", &name), &[0.1]);
}

#[test]
fn new_groups_of_ended_tasks_count_from_zero_and_new_disks_do_not() {
    let mut bench = Bench::new(2);
    let make = bench.strings.intern("make");
    let disk = bench.strings.intern("vdb");
    bench.pass(SECOND).row(Key::exited(5, make), "exited.count", 4).take();
    let other = Key::exited(6, make);
    for count in [3, 5] {
        bench.pass(SECOND);
        bench.row(other, "exited.count", count).row(Key::named(disk), "disk.reads", 1000 * count).take();
    }
    bench.pass(SECOND).take();
    // It was away and goes on; then the recorder had forgotten it.
    bench.pass(SECOND).row(other, "exited.count", 7).take();
    bench.pass(SECOND).take();
    bench.pass(SECOND).row(other, "exited.count", 1).take();
    let set = bench.read(Span::ALL, &["exited.count", "disk.reads"]);
    assert_values(&values(&set, "exited.count", "6:make"), &[N, 3.0, 2.0, N, 2.0, N, 1.0]);
    assert_values(&values(&set, "disk.reads", "vdb"), &[N, N, 2000.0, N, N, N, N]);
    assert!(set.get("exited.count", "5:make").is_none(), "one reading makes no rate");
}

#[test]
fn texts_are_their_changes_whatever_ids_they_had() {
    let mut bench = Bench::new(3);
    let key = Key::task(1, 5);
    for (second, text) in ["sh", "sh", "sh", "make", "make", "", "make"].into_iter().enumerate() {
        if second == 4 {
            bench.strings.clear();
            bench.strings.intern("something else first");
        }
        let cell = if text.is_empty() { mitra_model::NA } else { i64::from(bench.strings.intern(text)) };
        bench.pass(SECOND).row(key, "task.comm", cell).take();
    }
    let set = bench.read(Span::ALL, &["task.comm"]);
    let changes: Vec<_> = set
        .text("task.comm", "1@5")
        .unwrap()
        .changes
        .iter()
        .map(|(t, text)| ((t - T0) / SECOND, text.as_deref()))
        .collect();
    assert_eq!(changes, [(1, Some("sh")), (4, Some("make")), (6, None), (7, Some("make"))]);
}

#[test]
fn rows_can_be_chosen_and_still_ones_left_out() {
    let mut bench = Bench::new(4);
    for second in 0..10 {
        bench.pass(SECOND);
        for tid in 0..3 {
            // Task 1 moves in the last second only, task 2 never.
            let value = [second * 1000, second / 9 * 500, 77][tid];
            bench.row(Key::task(tid as u32, 1), "task.cpu_time", value);
        }
        bench.take();
    }
    let reader = Reader::open(bench.dir.path()).unwrap();
    let metrics = vec![lookup("task.cpu_time").unwrap()];
    let all = reader.read(&Query::new(Span::ALL, metrics.clone())).unwrap();
    let moving = Query { moving_only: true, ..Query::new(Span::ALL, metrics.clone()) };
    let moving = reader.read(&moving).unwrap();
    for row in ["0@1", "1@1"] {
        assert_values(&values(&moving, "task.cpu_time", row), &values(&all, "task.cpu_time", row));
    }
    assert_values(&values(&all, "task.cpu_time", "2@1")[1..], &[0.0; 9]);
    assert!(moving.get("task.cpu_time", "2@1").is_none());
    let rows: mitra_archive::RowFilter = std::sync::Arc::new(|_, name| name.starts_with('2'));
    let chosen = reader.read(&Query { rows: Some(rows), ..Query::new(Span::ALL, metrics) }).unwrap();
    assert_eq!(chosen.each("task.cpu_time").map(|(row, _)| row).collect::<Vec<_>>(), ["2@1"]);
}

#[test]
fn what_was_unavailable_is_said_for_any_later_range() {
    let mut bench = Bench::new(2);
    let kind = EventKind::Unavailable { source: "psi".into(), why: "CONFIG_PSI is not set".into() };
    bench.pass(SECOND);
    bench.frame.events.push(Event { place: None, real: bench.now.real, mono: None, kind });
    bench.take();
    for _ in 0..6 {
        bench.pass(SECOND).set("sys.ctxt", 1).take();
    }
    let set = bench.read(Span { since: T0 + 6 * SECOND, until: i64::MAX }, &["sys.ctxt"]);
    assert_eq!(set.unavailable, [("psi".to_owned(), "CONFIG_PSI is not set".to_owned())]);
    assert_eq!(set.events, []);
}

#[test]
fn one_writer_and_its_name() {
    let dir = scratch();
    let writer = Writer::open(dir.path(), &Machine::host(), Options::default()).unwrap();
    let Err(error) = Writer::open(dir.path(), &Machine::host(), Options::default()) else {
        panic!("two writers");
    };
    assert!(matches!(error, Error::Locked { .. }));
    assert!(error.to_string().contains(&format!("process {}", std::process::id())), "{error}");
    drop(writer);
    Writer::open(dir.path(), &Machine::host(), Options::default()).unwrap();
}

#[test]
fn old_segments_go_by_size_and_the_open_one_stays() {
    let size = |dir: &Path| -> u64 {
        std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum()
    };
    let mut machine = Machine::new(50, 20, 1);
    let dir = scratch();
    let options = Options { segment_frames: 20, max_bytes: 400_000, ..Options::default() };
    let mut writer = Writer::open(dir.path(), &Machine::host(), options).unwrap();
    for _ in 0..1000 {
        machine.tick();
        writer.append(machine.frame(), machine.strings()).unwrap();
        assert!(size(dir.path()) <= 401_000, "{}", size(dir.path()));
        let len = |name| std::fs::metadata(dir.path().join(name)).unwrap().len();
        assert_eq!(writer.disk_bytes(), size(dir.path()) - len("lock") - len("state"));
    }
    let kept = crate::common::read_all(dir.path());
    assert!(kept.len() < 1000);
    assert_eq!(kept.last().unwrap().boot_us, machine.frame().time.boot / 1000);
    assert!(
        kept.windows(2).all(|pair| pair[1].boot_us - pair[0].boot_us < 1_100_000),
        "the oldest went first"
    );
}

#[test]
fn a_reader_beside_a_writer_sees_whole_frames_without_end() {
    let dir = scratch();
    let place = dir.path().to_path_buf();
    let options = Options { segment_frames: 7, max_bytes: 200_000, ..Options::default() };
    let mut writer = Writer::open(&place, &Machine::host(), options).unwrap();
    let mut machine = Machine::new(10, 5, 1);
    machine.tick();
    writer.append(machine.frame(), machine.strings()).unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..1500 {
                machine.tick();
                writer.append(machine.frame(), machine.strings()).unwrap();
            }
            done.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        let (mut reads, mut last) = (0, 0);
        while !done.load(std::sync::atomic::Ordering::Relaxed) || reads == 0 {
            let reader = Reader::open(&place).unwrap();
            let set = reader.read(&Query::new(Span::ALL, vec![lookup("sys.ctxt").unwrap()])).unwrap();
            let newest = reader.span().unwrap().until;
            assert!(newest >= last, "time goes on");
            last = newest;
            assert_eq!(reader.skipped(), []);
            assert!(set.host == Machine::host());
            reads += 1;
        }
    });
    assert_eq!(files(&place, "tmp"), Vec::<std::path::PathBuf>::new());
}

#[test]
fn an_archive_that_is_not_there_is_an_error_and_an_empty_one_is_not() {
    let dir = scratch();
    assert!(Reader::open(dir.path()).unwrap().span().is_none());
    let error = Reader::open(&dir.path().join("nothing")).err().unwrap();
    assert!(error.to_string().contains("nothing"), "{error}");
    assert!(lookup("task.cpu_time").is_some_and(|metric| metric.entity == Entity::Task));
}

#[test]
fn the_end_of_a_recording_is_opened_by_itself() {
    let dir = scratch();
    let mut machine = Machine::new(5, 2, 1);
    let options = Options { segment_frames: 10, ..Options::default() };
    let mut writer = Writer::open(dir.path(), &Machine::host(), options).unwrap();
    for _ in 0..25 {
        machine.tick();
        writer.append(machine.frame(), machine.strings()).unwrap();
    }
    let now = SystemTime::now();
    let hour = Duration::from_secs(3600);
    let first = std::fs::File::open(dir.path().join("0000000001.seg")).unwrap();
    first.set_modified(now - hour * 2).unwrap();
    let frames = |reader: &Reader| {
        let mut frames = 0;
        reader.frames(Span::ALL, &mut |_, _| frames += 1).unwrap();
        frames
    };
    let mut reader = Reader::open_since(dir.path(), now - hour).unwrap();
    assert_eq!(frames(&reader), 15, "a segment and the log");
    reader.refresh().unwrap();
    assert_eq!(frames(&reader), 15);
    assert_eq!(frames(&Reader::open(dir.path()).unwrap()), 25);
}

#[test]
fn a_view_stays_as_it_was_while_a_later_one_takes_what_has_not_changed() {
    let dir = scratch();
    let mut machine = Machine::new(5, 2, 1);
    let options = Options { segment_frames: 10, ..Options::default() };
    let mut writer = Writer::open(dir.path(), &Machine::host(), options).unwrap();
    let mut record = |count: usize| {
        for _ in 0..count {
            machine.tick();
            writer.append(machine.frame(), machine.strings()).unwrap();
        }
    };
    let frames = |reader: &Reader| reader.status().unwrap().frames;
    record(25);
    let first = Reader::open(dir.path()).unwrap();
    // The log is sealed, and two more segments and a log come.
    record(30);
    let second = first.reopened().unwrap();
    assert_eq!((frames(&first), frames(&second)), (25, 55));
    assert_eq!(second.span(), Reader::open(dir.path()).unwrap().span());
    // Another file has the name of the second segment, and the first one was too old.
    std::fs::copy(dir.path().join("0000000004.seg"), dir.path().join("other")).unwrap();
    std::fs::rename(dir.path().join("other"), dir.path().join("0000000002.seg")).unwrap();
    std::fs::remove_file(dir.path().join("0000000001.seg")).unwrap();
    let third = second.reopened().unwrap();
    let fresh = Reader::open(dir.path()).unwrap();
    assert_eq!((frames(&third), third.span()), (45, fresh.span()));
    let all = |reader: &Reader| {
        let set = reader.read(&Query::new(Span::ALL, vec![lookup("sys.ctxt").unwrap()])).unwrap();
        (values(&set, "sys.ctxt", "").len(), set.gaps)
    };
    assert_eq!(all(&third), all(&fresh));
    assert_eq!(third.skipped(), []);
}

/// Each segment numbers its texts anew: whoever keeps numbers from one frame to the next has to see that they are others.
#[test]
fn texts_of_another_segment_are_of_another_generation() {
    let mut bench = Bench::new(2);
    for names in [["eth0", "eth1"], ["eth0", "eth1"], ["wg0", "eth0"], ["wg0", "eth0"]] {
        for (i, name) in names.into_iter().enumerate() {
            let key = Key::named(bench.strings.intern(name));
            let _ = bench.row(key, "nic.rx_packets", i as i64);
        }
        bench.pass(SECOND).take();
    }
    bench.stop();
    let reader = Reader::open(bench.dir.path()).unwrap();
    let copy = scratch();
    let mut writer = Writer::open(copy.path(), &bench.host, bench.options.clone()).unwrap();
    let mut generations = Vec::new();
    let each = &mut |frame: &Frame, strings: &Strings| {
        generations.push(strings.generation());
        writer.append(frame, strings).unwrap();
    };
    reader.frames(Span::ALL, each).unwrap();
    writer.finish().unwrap();
    assert!(generations[0] == generations[1] && generations[2] == generations[3], "{generations:?}");
    assert_ne!(generations[1], generations[2]);
    let packets = |dir: &Path| {
        let metrics = vec![lookup("nic.rx_packets").unwrap()];
        let query = Query { raw: true, ..Query::new(Span::ALL, metrics) };
        let set = Reader::open(dir).unwrap().read(&query).unwrap();
        ["eth0", "eth1", "wg0"].map(|row| format!("{:?}", values(&set, "nic.rx_packets", row)))
    };
    assert_eq!(packets(copy.path()), packets(bench.dir.path()));
}
