//! The sampler on trees that look like a machine, and on a clock that does as it is told.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mitra_collect::{Clock, Config, FakeClock, Sampler, Tick};
use mitra_model::{Entity, EventKind, Frame, Key, NA, Stamp, Strings, column};

const SECOND: i64 = 1_000_000_000;

fn system(frame: &mut Frame, metric: &str) -> i64 {
    frame.system_mut()[column(metric).unwrap_or_else(|| panic!("no metric {metric}"))]
}

/// A cell of the row of that name.
fn named(frame: &Frame, strings: &Strings, entity: Entity, name: &str, metric: &str) -> Option<i64> {
    let is_it = |key: &Key| u32::try_from(key.id).ok().and_then(|id| strings.get(id)) == Some(name);
    let table = frame.table(entity);
    let at = table.keys().iter().position(is_it)?;
    Some(table.row(at)[column(metric).expect("a metric")])
}

/// A tree with a few files of `/proc`, and a clock of its own.
struct Tree {
    dir: tempfile::TempDir,
    clock: FakeClock,
}

impl Tree {
    fn new() -> Self {
        let start = Stamp { real: 1_700_000_000 * SECOND, mono: 50 * SECOND, boot: 60 * SECOND };
        let tree = Tree { dir: tempfile::tempdir().expect("a directory"), clock: FakeClock::new(start) };
        tree.put("proc/loadavg", "0.50 0.25 0.10 1/100 4242\n");
        tree.put("proc/sys/vm/swappiness", "60\n");
        tree.put("proc/sys/kernel/hostname", "tree\n");
        tree
    }

    fn put(&self, below: &str, text: &str) {
        let path = self.dir.path().join(below);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        std::fs::write(path, text).expect("a file");
    }

    fn sampler(&self) -> Sampler {
        let config = Config {
            root: self.dir.path().to_owned(),
            clock: Clock::Fake(self.clock.clone()),
            ..Config::default()
        };
        Sampler::open(config).expect("a sampler")
    }
}

fn kinds(frame: &Frame) -> Vec<EventKind> {
    let of_clock = |kind: &EventKind| {
        matches!(kind, EventKind::ClockStep { .. } | EventKind::Suspend { .. } | EventKind::Missed { .. })
    };
    frame.events.iter().map(|event| event.kind.clone()).filter(of_clock).collect()
}

#[test]
fn steps_suspends_and_misses_are_events_and_nothing_else_is() {
    let tree = Tree::new();
    let mut sampler = tree.sampler();
    let mut frame = Frame::new();
    sampler.sample(&mut frame).expect("a sample");
    assert_eq!(kinds(&frame), []);
    for by_ns in [3_600 * SECOND, -3_600 * SECOND] {
        tree.clock.advance(SECOND);
        tree.clock.step(by_ns);
        sampler.sample(&mut frame).expect("a sample");
        assert_eq!(kinds(&frame), [EventKind::ClockStep { by_ns }]);
        assert_eq!(frame.time, tree.clock.now());
    }
    tree.clock.advance(SECOND);
    tree.clock.suspend(1_800 * SECOND);
    sampler.sample(&mut frame).expect("a sample");
    assert_eq!(kinds(&frame), [EventKind::Suspend { ns: 1_800 * SECOND }]);
    tree.clock.advance(4 * SECOND);
    sampler.note_tick(Tick { late: Duration::from_millis(2), missed: 3 });
    sampler.sample(&mut frame).expect("a sample");
    assert_eq!(kinds(&frame), [EventKind::Missed { ticks: 3 }]);
    assert_eq!(system(&mut frame, "mitra.missed_ticks"), 3);
    assert_eq!(system(&mut frame, "mitra.tick_late"), 2_000);
    tree.clock.advance(SECOND);
    sampler.sample(&mut frame).expect("a sample");
    assert_eq!(kinds(&frame), []);
    assert_eq!(system(&mut frame, "mitra.tick_late"), NA, "nobody said which tick this was");
}

#[test]
fn a_clock_that_stands_still_is_an_error() {
    let tree = Tree::new();
    let mut sampler = tree.sampler();
    let mut frame = Frame::new();
    sampler.sample(&mut frame).expect("a sample");
    assert!(sampler.sample(&mut frame).expect_err("no time passed").to_string().contains("monotonic clock"));
    tree.clock.advance(1);
    sampler.sample(&mut frame).expect("a sample");
}

#[test]
fn slow_sources_are_repeated_in_between() {
    let tree = Tree::new();
    let mut sampler = tree.sampler();
    let mut frame = Frame::new();
    tree.put("proc/sys/kernel/task_delayacct", "0\n");
    let mut cells = |at: i64| {
        if at > 0 {
            tree.clock.advance(SECOND);
        }
        sampler.sample(&mut frame).expect("a sample");
        ["sys.delayacct", "sys.load1", "sysctl.vm.swappiness"].map(|name| system(&mut frame, name))
    };
    assert_eq!(cells(0), [0, 50, 60]);
    tree.put("proc/sys/kernel/task_delayacct", "1\n");
    tree.put("proc/loadavg", "2.00 0.25 0.10 1/100 4242\n");
    tree.put("proc/sys/vm/swappiness", "10\n");
    for at in 1..10 {
        assert_eq!(cells(at), [0, 200, 10]);
    }
    assert_eq!(cells(10), [1, 200, 10]);
}

#[test]
fn a_tree_gives_what_it_has_and_says_what_is_missing() {
    let tree = Tree::new();
    let mut sampler = tree.sampler();
    assert_eq!(sampler.host().hostname, "tree");
    let mut frame = Frame::new();
    sampler.sample(&mut frame).expect("a sample");
    let missing: HashMap<_, _> = sampler.unavailable().into_iter().collect();
    assert!(missing["bpf"].contains("not this machine"), "{missing:?}");
    assert!(missing.contains_key("/proc/vmstat") && missing.contains_key("/dev/kmsg"), "{missing:?}");
    assert!(!missing.contains_key("/proc/loadavg"));
    let said = frame.events.iter().filter(|e| matches!(e.kind, EventKind::Unavailable { .. })).count();
    assert_eq!(said, missing.len(), "one event for each");
    assert_eq!(system(&mut frame, "mem.total"), NA);
    tree.clock.advance(SECOND);
    sampler.sample(&mut frame).expect("a sample");
    assert_eq!(frame.events, [], "and no second time");
}

#[test]
fn version_1_and_2_groups_of_one_path_share_a_row() {
    let tree = Tree::new();
    tree.put(
        "proc/self/mounts",
        "cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\ncgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\n",
    );
    tree.put("sys/fs/cgroup/unified/cpu.stat", "usage_usec 1\n");
    tree.put("sys/fs/cgroup/unified/web/cpu.stat", "usage_usec 42\nuser_usec 40\nsystem_usec 2\n");
    tree.put(
        "sys/fs/cgroup/unified/web/io.pressure",
        "some avg10=0.00 avg60=0.00 avg300=0.00 total=7\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=5\n",
    );
    tree.put("sys/fs/cgroup/memory/web/memory.usage_in_bytes", "4096\n");
    tree.put("sys/fs/cgroup/memory/web/memory.limit_in_bytes", "8192\n");
    tree.put("sys/fs/cgroup/memory/batch/memory.usage_in_bytes", "1\n");
    let mut sampler = tree.sampler();
    let mut frame = Frame::new();
    sampler.sample(&mut frame).expect("a sample");
    let cell = |frame: &Frame, sampler: &Sampler, name: &str, metric: &str| {
        named(frame, sampler.strings(), Entity::Cgroup, name, metric)
    };
    assert_eq!(frame.table(Entity::Cgroup).len(), 3);
    assert_eq!(cell(&frame, &sampler, "/web", "cgroup.cpu_usage"), Some(42));
    assert_eq!(cell(&frame, &sampler, "/web", "cgroup.psi_io_full"), Some(5));
    assert_eq!(cell(&frame, &sampler, "/web", "cgroup.memory_current"), Some(4_096));
    assert_eq!(cell(&frame, &sampler, "/web", "cgroup.memory_max"), Some(8_192));
    assert_eq!(cell(&frame, &sampler, "/batch", "cgroup.cpu_usage"), Some(NA));
    assert_eq!(cell(&frame, &sampler, "/", "cgroup.cpu_usage"), Some(1));

    // Nothing happens: what is there is not even looked at. Then the CPU time moves.
    tree.put(
        "sys/fs/cgroup/unified/web/io.pressure",
        "some avg10=0.00 avg60=0.00 avg300=0.00 total=9\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=6\n",
    );
    for _ in 0..2 {
        tree.clock.advance(SECOND);
        sampler.sample(&mut frame).expect("a sample");
    }
    tree.put(
        "sys/fs/cgroup/unified/web/io.pressure",
        "some avg10=0.00 avg60=0.00 avg300=0.00 total=90\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=60\n",
    );
    tree.put("sys/fs/cgroup/unified/web/cpu.stat", "usage_usec 43\nuser_usec 40\nsystem_usec 3\n");
    tree.clock.advance(SECOND);
    sampler.sample(&mut frame).expect("a sample");
    assert_eq!(cell(&frame, &sampler, "/web", "cgroup.psi_io_full"), Some(60));

    // A group goes, another comes.
    std::fs::remove_dir_all(tree.dir.path().join("sys/fs/cgroup/memory/batch")).expect("a removal");
    tree.put("sys/fs/cgroup/memory/new/memory.usage_in_bytes", "5\n");
    tree.clock.advance(6 * SECOND);
    sampler.sample(&mut frame).expect("a sample");
    assert_eq!(cell(&frame, &sampler, "/batch", "cgroup.cpu_usage"), None);
    assert_eq!(cell(&frame, &sampler, "/new", "cgroup.memory_current"), Some(5));
}

#[test]
fn containers_have_names_and_get_others() {
    const ID: &str = "4f0c1e7d9b2a5c8e3f6a1b4d7e0c9f2a5b8d1e4c7f0a3b6d9e2c5f8a1b4d7e0c";
    let tree = Tree::new();
    tree.put("proc/self/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n");
    tree.put("sys/fs/cgroup/cpu.stat", "usage_usec 1\n");
    tree.put(&format!("sys/fs/cgroup/docker/{ID}/cpu.stat"), "usage_usec 42\n");
    let group = format!("/docker/{ID}");
    let state = format!("var/lib/docker/containers/{ID}/config.v2.json");
    let mut sampler = tree.sampler();
    let mut frame = Frame::new();
    // A thread reads; it has its answer in some of the samples that follow.
    let mut wait_for = |wanted: [Option<&str>; 2]| {
        for _ in 0..1_000 {
            tree.clock.advance(SECOND);
            sampler.sample(&mut frame).expect("a sample");
            let names = ["cgroup.container", "cgroup.image"].map(|metric| {
                let cell = named(&frame, sampler.strings(), Entity::Cgroup, &group, metric).expect("a row");
                sampler.strings().cell(cell).map(str::to_owned)
            });
            if names.each_ref().map(Option::as_deref) == wanted {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("not {wanted:?}");
    };
    wait_for([None, None]);
    tree.put(&state, r#"{"Name":"/web","Config":{"Image":"nginx:1.25"}}"#);
    wait_for([Some("web"), Some("nginx:1.25")]);
    tree.put(&state, r#"{"Name":"/shop","Config":{"Image":"nginx:1.25"}}"#);
    wait_for([Some("shop"), Some("nginx:1.25")]);
}

#[test]
fn every_kernel_of_the_fixtures_is_sampled() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../parse/fixtures");
    let mut roots: Vec<PathBuf> = std::fs::read_dir(&fixtures)
        .map(|dir| {
            dir.flatten().map(|entry| entry.path()).filter(|path| path.join("proc").is_dir()).collect()
        })
        .unwrap_or_default();
    roots.sort();
    assert!(roots.len() >= 3, "no trees in {}", fixtures.display());
    for root in roots {
        let config = Config { root: root.clone(), ..Config::default() };
        let mut sampler = Sampler::open(config).expect("a sampler");
        let mut frame = Frame::new();
        sampler.sample(&mut frame).expect("a sample");
        let known = frame.system_mut().iter().filter(|cell| **cell != NA).count();
        assert!(known > 100, "{}: {known} numbers", root.display());
        assert!(system(&mut frame, "mem.total") > 0, "{}", root.display());
        assert_eq!(system(&mut frame, "mitra.parse_errors"), 0, "{}", root.display());
        let is_old = root.ends_with("3.10");
        let missing: Vec<_> = sampler.unavailable().into_iter().map(|(source, _)| source).collect();
        assert_eq!(
            missing.iter().any(|s| s == "/proc/pressure/cpu"),
            is_old || root.ends_with("4.18"),
            "{missing:?}"
        );
    }
}
