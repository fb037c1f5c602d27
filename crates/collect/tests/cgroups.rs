//! Control groups that this test makes, on the hierarchies that this machine has.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use mitra_collect::{Config, Sampler};
use mitra_model::{Entity, Frame, Key, NA, Strings, column};

/// A group of its own, and a process in it; both leave with the test.
struct Group {
    dir: PathBuf,
    child: Option<Child>,
}

impl Group {
    fn new(mount: &Path, name: &str) -> std::io::Result<Self> {
        let dir = mount.join(name);
        std::fs::create_dir(&dir)?;
        Ok(Group { dir, child: None })
    }

    fn run(&mut self, program: &str, args: &[&str]) -> u32 {
        let procs = self.dir.join("cgroup.procs");
        let mut command = Command::new(program);
        let child = command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect(program);
        std::fs::write(procs, child.id().to_string()).expect("a move into the group");
        let id = child.id();
        self.child = Some(child);
        id
    }

    fn end(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended by itself.
            let _ended = child.kill();
            let _reaped = child.wait();
        }
        // The kernel may need a moment until the group counts as empty.
        for _ in 0..50 {
            if std::fs::remove_dir(&self.dir).is_ok() || !self.dir.exists() {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.end();
    }
}

fn cell(frame: &Frame, strings: &Strings, name: &str, metric: &str) -> Option<i64> {
    let is_it = |key: &Key| u32::try_from(key.id).ok().and_then(|id| strings.get(id)) == Some(name);
    let table = frame.table(Entity::Cgroup);
    let at = table.keys().iter().position(is_it)?;
    Some(table.row(at)[column(metric).expect("a metric")])
}

fn task_text<'a>(frame: &Frame, strings: &'a Strings, tid: u32, metric: &str) -> Option<&'a str> {
    let table = frame.table(Entity::Task);
    let at = table.keys().iter().position(|key| key.id == u64::from(tid))?;
    strings.cell(table.row(at)[column(metric).expect("a metric")])
}

fn mount(kind: &str, option: &str) -> Option<PathBuf> {
    let text = std::fs::read_to_string("/proc/self/mounts").ok()?;
    let mut mounts = text.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let is_it = |m: &Vec<&str>| m[2] == kind && (option.is_empty() || m[3].split(',').any(|o| o == option));
    mounts.find(is_it).map(|m| PathBuf::from(m[1]))
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn a_group_is_found_named_and_forgotten() {
    let name = format!("mitra-test-{}", std::process::id());
    let path = format!("/{name}");
    let Some(unified) = mount("cgroup2", "") else { return println!("skipped: no cgroup2 is mounted") };
    for use_bpf in [true, false] {
        let mut sampler = Sampler::open(Config { use_bpf, ..Config::default() }).expect("a sampler");
        let mut frame = Frame::new();
        sampler.sample(&mut frame).expect("a sample");
        assert_eq!(cell(&frame, sampler.strings(), &path, "cgroup.cpu_usage"), None);
        let mut group = match Group::new(&unified, &name) {
            Ok(group) => group,
            Err(error) => return println!("skipped: {}: {error}", unified.display()),
        };
        let tid = group.run("sh", &["-c", "while :; do :; done"]);
        // New groups are looked for once a second at most.
        std::thread::sleep(Duration::from_millis(1_100));
        sampler.sample(&mut frame).expect("a sample");
        let first = cell(&frame, sampler.strings(), &path, "cgroup.cpu_usage").expect("a row");
        assert_eq!(
            task_text(&frame, sampler.strings(), tid, "task.cgroup"),
            Some(path.as_str()),
            "BPF: {use_bpf}"
        );
        let psi = cell(&frame, sampler.strings(), &path, "cgroup.psi_cpu_some").expect("a row");
        assert_eq!(
            psi != NA,
            group.dir.join("cpu.pressure").exists() && Path::new("/proc/pressure/cpu").exists()
        );
        std::thread::sleep(Duration::from_millis(200));
        sampler.sample(&mut frame).expect("a sample");
        let usage = |frame: &Frame| cell(frame, sampler.strings(), &path, "cgroup.cpu_usage").expect("a row");
        assert!(first == NA || usage(&frame) - first > 20_000, "{first} {}", usage(&frame));
        group.end();
        std::thread::sleep(Duration::from_millis(1_100));
        sampler.sample(&mut frame).expect("a sample");
        assert_eq!(cell(&frame, sampler.strings(), &path, "cgroup.cpu_usage"), None);
    }
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn a_memory_limit_of_version_1_or_2_is_seen_with_what_it_holds() {
    let v1 = mount("cgroup", "memory");
    let (mount, limit_file) = match (&v1, mount("cgroup2", "")) {
        (Some(v1), _) => (v1.clone(), "memory.limit_in_bytes"),
        (None, Some(v2)) => (v2, "memory.max"),
        (None, None) => return println!("skipped: no memory controller is mounted"),
    };
    let name = format!("mitra-test-memory-{}", std::process::id());
    let mut group = match Group::new(&mount, &name) {
        Ok(group) => group,
        Err(error) => return println!("skipped: {}: {error}", mount.display()),
    };
    if let Err(error) = std::fs::write(group.dir.join(limit_file), (64 << 20).to_string()) {
        return println!("skipped: {limit_file}: {error}");
    }
    group.run("sleep", &["30"]);
    let mut sampler = Sampler::open(Config::default()).expect("a sampler");
    let mut frame = Frame::new();
    sampler.sample(&mut frame).expect("a sample");
    let get = |metric: &str| cell(&frame, sampler.strings(), &format!("/{name}"), metric).expect("a row");
    assert_eq!(get("cgroup.memory_max"), 64 << 20);
    assert!((0..64 << 20).contains(&get("cgroup.memory_current")));
    assert!(get("cgroup.pgfault") >= 0);
    assert_eq!(get("cgroup.memory_failcnt"), 0);
}
