//! Evaluation on frames as they come and on series: rates, holes, rows, what cannot be told.

use std::sync::Arc;

use mitra_model::series::Axis;
use mitra_model::{Entity, Frame, Key, Series, SeriesSet, Span, Stamp, Strings, column, lookup};
use mitra_rules::{Details, News, Rule, Watcher};

const SECOND: i64 = 1_000_000_000;

/// A machine whose cells a test sets.
struct Machine {
    frame: Frame,
    strings: Strings,
}

impl Machine {
    fn new() -> Machine {
        let mut machine = Machine { frame: Frame::new(), strings: Strings::new() };
        machine.frame.time = Stamp { real: 1_000 * SECOND, mono: 100 * SECOND, boot: 100 * SECOND };
        machine
    }

    fn pass(&mut self, seconds: i64) {
        let time = &mut self.frame.time;
        for clock in [&mut time.real, &mut time.mono, &mut time.boot] {
            *clock += seconds * SECOND;
        }
    }

    fn system(&mut self, metric: &str, cell: i64) {
        let column = column(metric).unwrap();
        self.frame.system_mut()[column] = cell;
    }

    fn row(&mut self, metric: &str, key: Key, cell: i64) {
        let entity = lookup(metric).unwrap().entity;
        let table = self.frame.table_mut(entity);
        let row = table.keys().iter().position(|k| *k == key).unwrap_or_else(|| {
            table.push(key);
            table.len() - 1
        });
        table.row_mut(row)[column(metric).unwrap()] = cell;
    }

    fn disk(&mut self, name: &str, metric: &str, cell: i64) {
        let key = Key::named(self.strings.intern(name));
        self.row(metric, key, cell);
    }

    fn task(&mut self, tid: u32, tgid: i64, comm: &str, metric: &str, cell: i64) {
        let key = Key::task(tid, u64::from(tid) * 100);
        let comm = i64::from(self.strings.intern(comm));
        self.row("task.comm", key, comm);
        self.row("task.tgid", key, tgid);
        self.row(metric, key, cell);
    }

    fn observe(&self, watcher: &mut Watcher) -> Vec<(usize, News)> {
        let mut news = Vec::new();
        watcher.observe(&self.frame, &self.strings, &mut |_| true, &mut |rule, one| news.push((rule, one)));
        news
    }
}

fn watcher(rules: &[&str]) -> Watcher {
    let programs = rules.iter().map(|when| {
        let rule = Rule::new("x", when).unwrap_or_else(|m| panic!("{m}\n{}", m.caret(when)));
        (rule.program, None)
    });
    Watcher::new(programs.collect(), 4096.0)
}

fn holds(news: &[(usize, News)]) -> Option<&Details> {
    news.iter().find_map(|(_, news)| match news {
        News::Holds(details) => Some(details),
        News::CannotTell { .. } => None,
    })
}

/// Feeds one system cell a second and returns the seconds in which the rule held.
fn seconds(rule: &str, metric: &str, cells: &[i64]) -> Vec<usize> {
    let mut machine = Machine::new();
    let mut watcher = watcher(&[rule]);
    let mut held = Vec::new();
    for (i, cell) in cells.iter().enumerate() {
        machine.pass(1);
        machine.system(metric, *cell);
        held.extend(holds(&machine.observe(&mut watcher)).map(|_| i));
    }
    held
}

const NA: i64 = mitra_model::NA;

#[test]
fn a_counter_is_its_rate_and_has_to_hold() {
    let rule = "sys.forks > 500/s for 3s";
    assert_eq!(seconds(rule, "sys.forks", &[0, 0, 1000, 2000, 3000, 4000, 4001]), [4, 5]);
    // Below for one second: from the beginning.
    assert_eq!(seconds(rule, "sys.forks", &[0, 1000, 2000, 2001, 3000, 4000, 5000]), [6]);
    // One sample without a value neither counts nor ends it; it takes both its rates with it.
    assert_eq!(seconds(rule, "sys.forks", &[0, 1000, 2000, NA, 4000, 5000, 6000]), Vec::<usize>::new());
    // A counter that went back has no rate.
    assert_eq!(seconds("sys.forks > 0/s", "sys.forks", &[10, 5, 6]), [2]);
    // A gauge needs no sample before.
    assert_eq!(seconds("sys.procs_blocked >= 2", "sys.procs_blocked", &[2, 1, NA, 3]), [0, 3]);
    let gauge = "sys.procs_blocked >= 2 for 2s";
    assert_eq!(seconds(gauge, "sys.procs_blocked", &[2, 2, 2, NA, 2, NA, NA, 2]), [2, 4]);
}

#[test]
fn rates_of_levels_and_arithmetic() {
    assert_eq!(seconds("rate(mem.free) < -1MiB/s", "mem.free", &[9000, 9000, 7000, 7000]), [2]);
    assert_eq!(seconds("abs(rate(mem.free)) > 1MiB/s", "mem.free", &[9000, 9000, 7000, 9000]), [2, 3]);
    assert_eq!(seconds("mem.free / 2 + 1KiB == 5KiB", "mem.free", &[8, 7]), [0]);
    // Nothing by nothing is no number.
    assert_eq!(seconds("mem.free / mem.free >= 0", "mem.free", &[0, 1]), [1]);
}

#[test]
fn a_hole_a_suspend_and_a_reboot_make_no_rate() {
    for hole in [
        (|t: &mut Stamp| (t.mono, t.boot) = (t.mono + 90 * SECOND, t.boot + 90 * SECOND)) as fn(&mut Stamp),
        |t| t.boot += 5 * SECOND,
        |t| (t.mono, t.boot) = (SECOND, SECOND),
    ] {
        let mut machine = Machine::new();
        let mut watcher = watcher(&["sys.forks > 1/s"]);
        machine.system("sys.forks", 0);
        machine.observe(&mut watcher);
        machine.pass(1);
        hole(&mut machine.frame.time);
        machine.system("sys.forks", 1_000_000);
        assert_eq!(holds(&machine.observe(&mut watcher)), None);
        machine.pass(2);
        machine.system("sys.forks", 1_000_100);
        let news = machine.observe(&mut watcher);
        assert_eq!(holds(&news).unwrap().values, [("sys.forks".to_owned(), 50.0, "1/s".to_owned())]);
    }
}

#[test]
fn three_values_of_truth() {
    let machine = || {
        let mut machine = Machine::new();
        machine.system("mem.free", 1);
        machine
    };
    for (rule, expected) in [
        ("mem.free > 0 or mem.cached > 0", true),
        ("mem.cached > 0 or mem.free > 0", true),
        ("mem.free > 0 and mem.cached > 0", false),
        ("mem.cached > 0 or mem.free > 1GiB", false),
        ("not mem.cached > 0", false),
        ("not (mem.free > 1GiB and mem.cached > 0)", true),
        ("mem.cached != 0", false),
        ("disk.io_time{vda} < 1", false),
        ("count(disk.io_time > 1) == 0", false),
    ] {
        let held = holds(&machine().observe(&mut watcher(&[rule]))).is_some();
        assert_eq!(held, expected, "{rule}");
    }
}

#[test]
fn what_cannot_be_told_is_said_once() {
    let mut machine = Machine::new();
    machine.system("mem.free", 1);
    let mut watcher =
        watcher(&["mem.cached > 0 and psi.io_some > 0", "mem.free > 1TiB", "disk.io_time{vdz} > 0"]);
    let mut told = Vec::new();
    for _ in 0..100 {
        machine.pass(1);
        told.extend(machine.observe(&mut watcher));
    }
    let missing = |names: &[&'static str]| News::CannotTell { missing: names.to_vec() };
    assert_eq!(told, [(0, missing(&["mem.cached", "psi.io_some"])), (2, missing(&["disk.io_time"]))]);
}

#[test]
fn rows_are_told_apart_and_the_worst_is_named() {
    let mut machine = Machine::new();
    let mut watcher = watcher(&[
        "disk.in_flight{vd*} > 4 for 2s",
        "disk.in_flight{vda} > 100",
        "max(disk.in_flight) > 30 and mem.free > 0",
        "count(disk.in_flight > 4) >= 2",
        "any(disk.in_flight > 39)",
        "all(disk.in_flight > 1)",
    ]);
    machine.system("mem.free", 1);
    for (name, cell) in [("vda", 5), ("vdb", 9), ("loop0", 40), ("vdc", 0)] {
        machine.disk(name, "disk.in_flight", cell);
    }
    machine.observe(&mut watcher);
    machine.pass(1);
    machine.observe(&mut watcher);
    machine.pass(1);
    let news = machine.observe(&mut watcher);
    let rules: Vec<usize> = news.iter().map(|(rule, _)| *rule).collect();
    assert_eq!(rules, [0, 2, 3, 4]);
    let details = holds(&news).unwrap();
    assert_eq!((details.row.as_deref(), details.rows), (Some("vdb"), 2));
    assert_eq!(details.values, [("disk.in_flight{vd*}".to_owned(), 9.0, String::new())]);
    assert_eq!(details.seconds, 2.0);
}

#[test]
fn tasks_by_name_process_and_group() {
    let mut machine = Machine::new();
    let mut watcher = watcher(&[
        "task.system_time{comm=hap*} > 30%",
        "sum(task.system_time) by pid > 100%",
        "task.system_time{pid=10, tid=11} > 30%",
        "sum(task.system_time) by comm > 110%",
        "count(task.system_time{haproxy} > 0) == 2",
        "count(task.system_time{nobody} > 0) == 0",
    ]);
    let step = |machine: &mut Machine, micros: [i64; 3]| {
        for (tid, tgid, comm, i) in [(10, 10, "haproxy", 0), (11, 10, "haproxy", 1), (12, 12, "sh", 2)] {
            machine.task(tid, tgid, comm, "task.system_time", micros[i as usize]);
        }
    };
    step(&mut machine, [0, 0, 0]);
    let news = machine.observe(&mut watcher);
    assert_eq!(news.iter().map(|(rule, _)| *rule).collect::<Vec<_>>(), [5]);
    machine.pass(1);
    step(&mut machine, [600_000, 700_000, 200_000]);
    let news = machine.observe(&mut watcher);
    let of = |rule: usize| {
        news.iter().find(|(r, _)| *r == rule).map(|(_, news)| match news {
            News::Holds(details) => details,
            News::CannotTell { .. } => panic!("cannot tell"),
        })
    };
    assert_eq!(of(0).unwrap().row.as_deref(), Some("haproxy (11)"));
    assert_eq!((of(0).unwrap().pid, of(0).unwrap().rows), (Some(10), 2));
    assert_eq!((of(1).unwrap().pid, of(1).unwrap().comm.as_deref()), (Some(10), Some("haproxy")));
    assert!((of(1).unwrap().values[0].1 - 1.3).abs() < 1e-9);
    assert_eq!(of(2).unwrap().pid, Some(10));
    // A thread's process began with its first thread.
    assert_eq!([0, 1, 2].map(|rule| of(rule).unwrap().pid_born), [Some(1000); 3]);
    assert_eq!(of(3).unwrap().comm.as_deref(), Some("haproxy"));
    assert!(of(4).is_some() && of(5).is_some());
}

#[test]
fn rows_that_come_go_and_change_places_keep_their_past() {
    let mut watcher = watcher(&["task.minflt > 99/s"]);
    let order = |machine: &mut Machine, tids: &[u32], add: i64| {
        machine.frame.table_mut(Entity::Task).clear();
        for tid in tids {
            machine.task(*tid, i64::from(*tid), "x", "task.minflt", i64::from(*tid) * 1000 + add);
        }
    };
    let mut machine = Machine::new();
    let all: Vec<u32> = (1..300).collect();
    order(&mut machine, &all, 0);
    assert_eq!(machine.observe(&mut watcher), []);
    machine.pass(1);
    // Half of them are gone, the rest stands the other way round, and one is new.
    let mut rest: Vec<u32> = all.iter().copied().filter(|tid| tid % 2 == 0).rev().collect();
    rest.push(500);
    order(&mut machine, &rest, 100);
    let news = machine.observe(&mut watcher);
    // As many as are watched at a time.
    assert_eq!(holds(&news).unwrap().rows, 64);
    machine.pass(1);
    order(&mut machine, &[500, 2], 150);
    assert_eq!(holds(&machine.observe(&mut watcher)), None);
    machine.pass(1);
    order(&mut machine, &[2, 500], 300);
    assert_eq!(holds(&machine.observe(&mut watcher)).unwrap().rows, 2);
}

#[test]
fn other_ids_of_texts_are_no_other_rows() {
    let mut machine = Machine::new();
    let mut watcher = watcher(&["disk.reads{vda} > 1000/s", "task.minflt{sh} > 5/s"]);
    machine.disk("vdb", "disk.reads", 0);
    machine.disk("vda", "disk.reads", 10);
    machine.task(5, 5, "sh", "task.minflt", 0);
    machine.observe(&mut watcher);
    machine.pass(1);
    // The names get other ids: what had the id of vda is vdb now.
    machine.strings.clear();
    machine.frame.clear();
    machine.strings.intern("other");
    machine.disk("vda", "disk.reads", 1_000_000);
    machine.task(5, 5, "sh", "task.minflt", 10);
    let news = machine.observe(&mut watcher);
    assert_eq!(news.iter().map(|(rule, _)| *rule).collect::<Vec<_>>(), [1]);
}

#[test]
fn a_stretch_is_of_a_name_and_not_of_its_id() {
    let mut machine = Machine::new();
    let mut watcher = watcher(&["disk.in_flight > 4 for 3s"]);
    machine.disk("vda", "disk.in_flight", 5);
    for _ in 0..2 {
        assert_eq!(holds(&machine.observe(&mut watcher)), None);
        machine.pass(1);
    }
    // The names get other ids: what had the id of vda is vdb now.
    machine.strings.clear();
    machine.frame.clear();
    machine.disk("vdb", "disk.in_flight", 9);
    machine.disk("vda", "disk.in_flight", 5);
    assert_eq!(holds(&machine.observe(&mut watcher)), None);
    machine.pass(1);
    let news = machine.observe(&mut watcher);
    let details = holds(&news).unwrap();
    assert_eq!((details.row.as_deref(), details.rows), (Some("vda"), 1));
    // A name that is nowhere any more holds for nobody.
    machine.strings.clear();
    machine.frame.clear();
    machine.pass(1);
    machine.disk("vdc", "disk.in_flight", 9);
    assert_eq!(holds(&machine.observe(&mut watcher)), None);
}

#[test]
fn groups_of_each_side_are_looked_at() {
    let mut machine = Machine::new();
    for (tid, comm, fds) in [(1, "a", 0), (2, "b", 50), (3, "c", 50)] {
        machine.task(tid, i64::from(tid), comm, "task.fds", fds);
    }
    let (a, b) = ("sum(task.fds{comm=a}) by pid", "sum(task.fds{comm=b}) by pid");
    for (rule, pid, rows) in [
        (format!("{a} > 1 or {b} > 1"), Some(2), 1),
        (format!("{a} > 1 and {b} > 1"), None, 0),
        // Of the second it is known that one side does not hold, whatever the other would be.
        (format!("not ({a} > 1 and {b} > 100)"), Some(2), 2),
        (format!("not ({a} > 1 or {b} > 100)"), None, 0),
    ] {
        let news = machine.observe(&mut watcher(&[rule.as_str()]));
        let found = holds(&news);
        assert_eq!(found.map_or(0, |details| details.rows), rows, "{rule}");
        assert!(pid.is_none() || rows > 1 || found.unwrap().pid == pid, "{rule}");
    }
}

/// There are places for 64 rows: whoever comes first in the table has no more right to one than whoever is worse.
#[test]
fn the_worst_of_many_rows_has_a_place() {
    for (rule, sign) in [("task.fds > 1 for 2s", 1), ("task.fds < 1000 for 2s", -1)] {
        let mut machine = Machine::new();
        let mut watcher = watcher(&[rule]);
        let mut last = None;
        for second in 0..5 {
            machine.pass(1);
            for tid in 1..=300 {
                machine.task(tid, i64::from(tid), "one", "task.fds", 500 + sign * i64::from(tid));
            }
            let news = machine.observe(&mut watcher);
            last = holds(&news).cloned();
            assert_eq!(last.is_some(), second >= 2, "{rule} {second}");
        }
        let details = last.unwrap();
        assert_eq!((details.pid, details.rows, details.has_more), (Some(300), 64, true), "{rule}");
        assert!(mitra_rules::in_words(&details).contains("and at least 63 more like it"));
        // One that comes when all places are taken, and is worse than any.
        for second in 0..3 {
            machine.pass(1);
            machine.task(999, 999, "late", "task.fds", 500 + sign * 400);
            let news = machine.observe(&mut watcher);
            let pid = if second < 1 { Some(300) } else { Some(999) };
            assert_eq!(holds(&news).unwrap().pid, pid, "{rule} {second}");
        }
    }
    // Where the rows fit, all of them are known.
    let mut machine = Machine::new();
    for tid in 1..=64 {
        machine.task(tid, i64::from(tid), "one", "task.fds", i64::from(tid));
    }
    let news = machine.observe(&mut watcher(&["task.fds > 0"]));
    let details = holds(&news).unwrap();
    assert_eq!((details.pid, details.rows, details.has_more), (Some(64), 64, false));
}

/// Others that are worse for a moment do not keep one from being told that goes on.
#[test]
fn a_row_that_goes_on_is_told_among_others_that_come_and_go() {
    let mut machine = Machine::new();
    let mut watcher = watcher(&["task.fds > 1 for 3s"]);
    let mut told = Vec::new();
    for second in 0..6_u32 {
        let mut time = machine.frame.time;
        for clock in [&mut time.real, &mut time.mono, &mut time.boot] {
            *clock += SECOND;
        }
        machine.frame.clear();
        machine.frame.time = time;
        machine.task(7, 7, "stays", "task.fds", 5);
        for i in 0..100 {
            let tid = 1000 * (second + 1) + i;
            machine.task(tid, i64::from(tid), "brief", "task.fds", 50 + i64::from(i));
        }
        told.extend(holds(&machine.observe(&mut watcher)).map(|details| (second, details.pid)));
    }
    assert_eq!(told, [(3, Some(7)), (4, Some(7)), (5, Some(7))]);
}

#[test]
fn ended_processes_have_a_parent_or_nobody() {
    for (parent, pid) in [(40, Some(40)), (0, None)] {
        let mut machine = Machine::new();
        machine.task(40, 40, "sh", "task.fds", 3);
        let comm = machine.strings.intern("cc1");
        let key = Key { id: parent, born: u64::from(comm) };
        machine.row("exited.count", key, 0);
        let mut watcher = watcher(&["exited.count >= 0"]);
        machine.observe(&mut watcher);
        machine.pass(1);
        machine.row("exited.count", key, 9);
        let news = machine.observe(&mut watcher);
        let details = holds(&news).unwrap_or_else(|| panic!("{news:?}"));
        assert_eq!((details.pid, details.pid_born), (pid, pid.map(|_| 4000)));
    }
}

/// A number selects as the kernel writes it, wherever it was read: a quota is microseconds.
#[test]
fn numbers_select_the_same_rows_in_frames_and_series() {
    let rule = "cgroup.memory_current{cpu_quota=100000} > 1";
    let mut machine = Machine::new();
    let mut set = SeriesSet::default();
    for (name, quota) in [("/a", 50_000), ("/b", 100_000)] {
        let key = Key::named(machine.strings.intern(name));
        machine.row("cgroup.cpu_quota", key, quota);
        machine.row("cgroup.memory_current", key, 4096);
        let metric = lookup("cgroup.cpu_quota").unwrap();
        set.insert(metric, name.into(), series(1, &[mitra_model::series::level(metric, quota); 3]));
        set.insert(lookup("cgroup.memory_current").unwrap(), name.into(), series(1, &[4096.0; 3]));
    }
    let news = machine.observe(&mut watcher(&[rule]));
    assert_eq!((holds(&news).unwrap().row.as_deref(), holds(&news).unwrap().rows), (Some("/b"), 1));
    let found = replay(rule, &set);
    assert_eq!(found.stretches.len(), 1);
    assert_eq!(found.stretches[0].details.row.as_deref(), Some("/b"));
}

#[test]
fn the_process_that_is_meant_is_chosen() {
    let mut rule = Rule::new("x", "sys.procs_running > 1").unwrap();
    rule.set_pid_of("sum(task.fds) by pid").unwrap();
    let choice = rule.choice.take().map(|(_, program)| program);
    let mut watcher = Watcher::new(vec![(rule.program, choice)], 4096.0);
    let mut machine = Machine::new();
    machine.system("sys.procs_running", 2);
    for (tid, fds) in [(1, 5), (2, 50), (3, 7)] {
        machine.task(tid, i64::from(tid), if tid == 2 { "leaky" } else { "x" }, "task.fds", fds);
    }
    let news = machine.observe(&mut watcher);
    assert_eq!((holds(&news).unwrap().pid, holds(&news).unwrap().comm.as_deref()), (Some(2), Some("leaky")));
    assert_eq!(holds(&news).unwrap().pid_born, Some(200));
}

fn series(step: i64, values: &[f64]) -> Series {
    let t: Vec<i64> = (0..values.len() as i64).map(|i| (1000 + i * step) * SECOND).collect();
    let mut dt = vec![step as f64; values.len()];
    dt[0] = f64::NAN;
    Series { axis: Arc::new(Axis { t, dt, places: Vec::new() }), start: 0, values: values.into() }
}

fn replay(rule: &str, set: &SeriesSet) -> mitra_rules::series::Replayed {
    let rule = Rule::new("x", rule).unwrap();
    mitra_rules::series::replay(&rule.program, set, Span::ALL)
}

#[test]
fn series_of_one_and_of_several_steps() {
    let mut set = SeriesSet::default();
    let nan = f64::NAN;
    set.insert(
        lookup("sys.forks").unwrap(),
        "".into(),
        series(1, &[nan, 9., 9., 9., 0., 9., nan, 9., 9., 9.]),
    );
    set.insert(lookup("psi.io_some").unwrap(), "".into(), series(5, &[nan, 0.5]));
    set.insert(lookup("disk.io_time").unwrap(), "vda".into(), series(1, &[0.9; 4]));
    set.insert(lookup("disk.io_time").unwrap(), "vdb".into(), series(1, &[0.1; 4]));
    let found = replay("sys.forks > 5 for 3s", &set);
    let fired: Vec<i64> = found.stretches.iter().map(|s| s.fired / SECOND).collect();
    assert_eq!(fired, [1003, 1009]);
    let found = replay("disk.io_time > 50% for 2s", &set);
    assert_eq!(found.stretches.len(), 1);
    assert_eq!(found.stretches[0].details.row.as_deref(), Some("vda"));
    assert_eq!((found.stretches[0].fired, found.stretches[0].until), (1002 * SECOND, 1003 * SECOND));
    // A value of another file holds for two of its steps.
    let found = replay("psi.io_some > 40% and sys.forks > 5", &set);
    assert_eq!(found.stretches.iter().map(|s| s.fired / SECOND).collect::<Vec<_>>(), [1005, 1007]);
    let found = replay("mem.free > 1 and sys.forks > 5", &set);
    assert_eq!((found.stretches.len(), found.missing), (0, vec!["mem.free"]));
}

#[test]
fn series_of_tasks() {
    let mut set = SeriesSet::default();
    for (row, tgid, system) in [("7@1", 7.0, 0.4), ("8@1", 7.0, 0.5), ("9@1", 9.0, 0.6)] {
        set.insert(lookup("task.tgid").unwrap(), row.into(), series(1, &[tgid; 4]));
        set.insert(lookup("task.system_time").unwrap(), row.into(), series(1, &[system; 4]));
        let text = if tgid == 7.0 { "srv" } else { "sh" };
        let changes = vec![(0, Some(text.into()))];
        set.insert_text(
            lookup("task.comm").unwrap(),
            row.into(),
            mitra_model::series::TextSeries { changes, place: None },
        );
    }
    let found = replay("sum(task.system_time) by pid > 80%", &set);
    assert_eq!(found.stretches.len(), 1);
    let details = &found.stretches[0].details;
    assert_eq!((details.pid, details.row.as_deref()), (Some(7), Some("srv (7)")));
    assert_eq!(
        replay("task.system_time{comm=srv} > 45%", &set).stretches[0].details.row.as_deref(),
        Some("srv (8)")
    );
    assert_eq!(replay("task.system_time{pid=7} > 45%", &set).stretches.len(), 1);
    assert_eq!(
        replay("max(task.system_time) by comm > 55%", &set).stretches[0].details.comm.as_deref(),
        Some("sh")
    );
}

#[test]
fn lines_of_a_log_are_a_rate_of_their_own_row() {
    let when = r#"log{file=/var/log/app.log} =~ "time.*t" > 5/s for 2s"#;
    let mut machine = Machine::new();
    let mut watcher = watcher(&[when]);
    let (mut all, mut lines) = (Vec::new(), 1_000);
    for second in 0..6 {
        machine.disk(r#"log{file=/var/log/app.log} =~ "time.*t""#, "pattern.matches", lines);
        // The pattern is no pattern for names of rows.
        machine.disk(r#"log{file=/var/log/app.log} =~ "timeout""#, "pattern.matches", 0);
        all.push(holds(&machine.observe(&mut watcher)).cloned());
        machine.pass(1);
        lines += if second < 4 { 6 } else { 5 };
    }
    assert_eq!(all.iter().map(Option::is_some).collect::<Vec<_>>(), [false, false, true, true, true, false]);
    let details = all[2].as_ref().unwrap();
    assert_eq!(
        details.values,
        [(r#"log{file=/var/log/app.log} =~ "time.*t""#.to_owned(), 6.0, "1/s".to_owned())]
    );
}

#[test]
fn a_log_that_nobody_followed_cannot_be_told() {
    let mut machine = Machine::new();
    let mut watcher = watcher(&[r#"log{unit=x.service} =~ "a" > 5/s"#]);
    machine.disk(r#"log{unit=y.service} =~ "a""#, "pattern.matches", 7);
    let mut news = Vec::new();
    for _ in 0..20 {
        news.extend(machine.observe(&mut watcher));
        machine.pass(1);
    }
    assert_eq!(news, [(0, News::CannotTell { missing: vec!["pattern.matches"] })]);
}
