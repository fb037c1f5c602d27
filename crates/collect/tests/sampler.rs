//! The sampler on this machine's kernel.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use mitra_collect::{Budget, Clock, Config, FakeClock, Sampler};
use mitra_model::{Entity, EventKind, Frame, Key, Kind, NA, Stamp, Strings, column, columns};

const SECOND: i64 = 1_000_000_000;

fn host(use_bpf: bool) -> Config {
    Config { use_bpf, ..Config::default() }
}

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

fn task_row(frame: &Frame, tid: u32) -> Option<&[i64]> {
    let table = frame.table(Entity::Task);
    table.keys().iter().position(|key| key.id == u64::from(tid)).map(|at| table.row(at))
}

fn task_cell(frame: &Frame, tid: u32, metric: &str) -> i64 {
    task_row(frame, tid).unwrap_or_else(|| panic!("no row of task {tid}"))[column(metric).expect("a metric")]
}

fn vmstat() -> HashMap<String, i64> {
    let text = std::fs::read_to_string("/proc/vmstat").expect("/proc/vmstat");
    let pair =
        |line: &str| line.split_once(' ').map(|(name, n)| (format!("vm.{name}"), n.parse().unwrap_or(NA)));
    text.lines().filter_map(pair).collect()
}

/// Ends with the test, whatever happens.
struct Spawned(Child);

impl Spawned {
    fn new(program: &str, args: &[&str]) -> Self {
        let mut command = Command::new(program);
        Spawned(command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect(program))
    }

    fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Spawned {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ended = self.0.kill();
        let _reaped = self.0.wait();
    }
}

#[test]
fn system_counters_lie_between_two_reads_of_their_file() {
    let mut sampler = Sampler::open(host(false)).expect("a sampler");
    let mut frame = Frame::new();
    for _ in 0..3 {
        let before = vmstat();
        sampler.sample(&mut frame).expect("a sample");
        let after = vmstat();
        let mut compared = 0;
        for (at, metric) in columns(Entity::System).iter().enumerate() {
            let (Some(before), Some(after)) = (before.get(metric.name), after.get(metric.name)) else {
                continue;
            };
            let value = frame.system_mut()[at];
            if metric.kind == Kind::Counter {
                assert!((*before..=*after).contains(&value), "{}: {before} {value} {after}", metric.name);
                compared += 1;
            } else {
                assert_ne!(value, NA, "{}", metric.name);
            }
        }
        assert!(compared > 60, "only {compared} counters of vmstat are in the table");
    }
    assert!(system(&mut frame, "sys.ctxt") > 0);
    assert!(system(&mut frame, "mem.total") > 0);
    assert!(!frame.table(Entity::Cpu).is_empty() && !frame.table(Entity::Disk).is_empty());
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn a_frame_has_every_kind_of_thing_and_every_key_once() {
    let mut sampler = Sampler::open(host(true)).expect("a sampler");
    let mut frame = Frame::new();
    sampler.sample(&mut frame).expect("a sample");
    sampler.sample(&mut frame).expect("a sample");
    for entity in Entity::ALL {
        let mut keys = frame.table(entity).keys().to_vec();
        let all = keys.len();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), all, "{entity}");
        // What a machine at rest need not have.
        let is_rare = [
            Entity::Exited,
            Entity::Slab,
            Entity::Netns,
            Entity::Listener,
            Entity::Drop,
            Entity::Peer,
            Entity::Resolver,
            Entity::Service,
            Entity::Dependency,
            Entity::Lock,
            Entity::Wait,
            Entity::Session,
            Entity::Command,
            Entity::Pool,
            Entity::Fuse,
            Entity::Limit,
            Entity::Jvm,
            Entity::Pattern,
        ];
        if entity.is_recorded() && !is_rare.contains(&entity) {
            assert!(all > 0, "no {entity}");
        }
    }
    let strings = sampler.strings();
    assert!(named(&frame, strings, Entity::Filesystem, "/", "fs.total_bytes").is_some_and(|bytes| bytes > 0));
    assert!(system(&mut frame, "sysctl.vm.swappiness") >= 0);
    assert_eq!(system(&mut frame, "mitra.pid"), i64::from(std::process::id()));
    assert!(system(&mut frame, "mitra.rss") > 0 && system(&mut frame, "mitra.cpu_time") > 0);
    assert!(system(&mut frame, "mitra.sample_time") > 0, "of the sample before");
    assert_eq!(system(&mut frame, "mitra.shed_level"), 0);
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn tasks_from_the_iterator_and_from_proc_agree() {
    let idle = Spawned::new("sleep", &["60"]);
    std::thread::sleep(Duration::from_millis(200));
    let mut by_bpf = Sampler::open(host(true)).expect("a sampler");
    let mut by_proc = Sampler::open(host(false)).expect("a sampler");
    let (mut a, mut b) = (Frame::new(), Frame::new());
    by_bpf.sample(&mut a).expect("a sample");
    by_proc.sample(&mut b).expect("a sample");
    assert!(by_proc.unavailable().iter().any(|(source, _)| source == "bpf"));
    if let Some((_, why)) = by_bpf.unavailable().iter().find(|(source, _)| source == "bpf") {
        return println!("skipped: {why}");
    }
    let tid = idle.id();
    for (at, metric) in columns(Entity::Task).iter().enumerate() {
        let (x, y) = (task_row(&a, tid).expect("a row")[at], task_row(&b, tid).expect("a row")[at]);
        match metric.name {
            "task.comm" | "task.cgroup" | "task.kstack" => {
                assert_eq!(by_bpf.strings().cell(x), by_proc.strings().cell(y), "{}", metric.name);
            }
            // /proc shows ticks; the kernel's counters of pages lag by some pages for each CPU.
            "task.user_time" | "task.system_time" => {
                assert!((x - y).abs() <= 20_000, "{}: {x} {y}", metric.name)
            }
            "task.rss_anon" | "task.rss_file" => assert!((x - y).abs() <= 512, "{}: {x} {y}", metric.name),
            // Only a probe knows of it.
            "task.lock_wait" => assert_eq!(y, NA, "{}", metric.name),
            _ => assert_eq!(x, y, "{}", metric.name),
        }
    }
    let born = |frame: &Frame| {
        frame.table(Entity::Task).keys().iter().find(|k| k.id == u64::from(tid)).map(|k| k.born)
    };
    let (exact, ticks) = (born(&a).expect("a key"), born(&b).expect("a key"));
    assert_eq!(exact / 10_000_000 * 10_000_000, ticks, "/proc shows the birth in ticks");
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn a_process_is_followed_from_birth_to_end() {
    let mut sampler = Sampler::open(host(true)).expect("a sampler");
    if let Some((_, why)) = sampler.unavailable().iter().find(|(s, _)| s == "bpf" || s == "probe.exits") {
        return println!("skipped: {why}");
    }
    let mut frame = Frame::new();
    sampler.sample(&mut frame).expect("a sample");
    let before = system(&mut frame, "tasks.cpu_time");
    // A name that no other test uses. The loop takes some hundred milliseconds and ends by itself.
    let dir = tempfile::tempdir().expect("a directory");
    let shell = dir.path().join("mitra-follow");
    std::os::unix::fs::symlink("/bin/sh", &shell).expect("a link");
    let script = "i=0; while [ $i -lt 400000 ]; do i=$((i+1)); done; exit 3";
    let tid = Command::new(&shell).args(["-c", script]).spawn().expect("a shell").id();
    std::thread::sleep(Duration::from_millis(50));
    sampler.sample(&mut frame).expect("a sample");
    assert_eq!(sampler.strings().cell(task_cell(&frame, tid, "task.comm")), Some("mitra-follow"));
    assert_eq!(task_cell(&frame, tid, "task.ppid"), i64::from(std::process::id()));
    let seen = task_cell(&frame, tid, "task.cpu_time");
    let (status, used) = wait_for(tid);
    assert_eq!(status, 3 << 8);
    sampler.sample(&mut frame).expect("a sample");
    assert!(task_row(&frame, tid).is_none());

    let comm = sampler.strings().clone().intern("mitra-follow");
    let table = frame.table(Entity::Exited);
    let at = table.keys().iter().position(|k| *k == Key::exited(std::process::id(), comm)).expect("a group");
    let cell = |metric: &str| table.row(at)[column(metric).expect("a metric")];
    let counts = (cell("exited.count"), cell("exited.failed"), cell("exited.last_pid"));
    assert_eq!(counts, (1, 1, i64::from(tid)));
    // What wait4() tells is the whole life; the group has what came after the last frame.
    let remainder = used - seen;
    assert!((cell("exited.cpu_time") - remainder).abs() < 20_000, "{} {remainder}", cell("exited.cpu_time"));
    let is_it = |kind: &EventKind| matches!(kind, EventKind::Exit { pid, status, .. } if *pid == tid && *status == 3 << 8);
    assert!(frame.events.iter().any(|event| is_it(&event.kind)), "{:?}", frame.events);
    assert!(system(&mut frame, "tasks.cpu_time") - before >= used - 20_000);
}

/// The wait status of a child and the CPU time of its life in microseconds.
fn wait_for(pid: u32) -> (i32, i64) {
    let pid = libc::pid_t::try_from(pid).expect("a process id");
    let mut status = 0;
    // SAFETY: wait4 fills the status and the struct, of which all zeroes is a valid value.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::wait4(pid, &mut status, 0, &mut usage), pid);
        usage
    };
    let us = |t: libc::timeval| t.tv_sec * 1_000_000 + t.tv_usec;
    (status, us(usage.ru_utime) + us(usage.ru_stime))
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn the_accounts_of_tasks_and_of_cpus_agree_in_a_storm() {
    let mut sampler = Sampler::open(host(true)).expect("a sampler");
    if let Some((_, why)) = sampler.unavailable().iter().find(|(s, _)| s == "bpf" || s == "probe.exits") {
        return println!("skipped: {why}");
    }
    let mut frame = Frame::new();
    let storm = "while :; do /bin/true; (i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done); done";
    let _storm = Spawned::new("sh", &["-c", storm]);
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let threads = std::sync::Arc::clone(&stop);
    // A process that lives through it all, with threads of 30 ms.
    let maker = std::thread::spawn(move || {
        while !threads.load(std::sync::atomic::Ordering::Relaxed) {
            let busy = std::thread::spawn(|| {
                let began = Instant::now();
                while began.elapsed() < Duration::from_millis(30) {
                    std::hint::black_box(0);
                }
            });
            busy.join().expect("a thread");
        }
    });
    let mut used = |frame: &mut Frame| {
        std::thread::sleep(Duration::from_millis(300));
        sampler.sample(frame).expect("a sample");
        let ticks = ["sys.cpu_user", "sys.cpu_nice", "sys.cpu_system"].map(|metric| system(frame, metric));
        let lost = system(frame, "probe.lost_events");
        assert_eq!(lost, 0);
        (system(frame, "tasks.cpu_time"), ticks.iter().sum::<i64>() * 10_000)
    };
    used(&mut frame);
    let first = used(&mut frame);
    let mut last = first;
    for _ in 0..10 {
        last = used(&mut frame);
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    maker.join().expect("the maker");
    let (tasks, cpus) = (last.0 - first.0, last.1 - first.1);
    let ratio = tasks as f64 / cpus as f64;
    println!("tasks {tasks} us, CPUs {cpus} us, ratio {ratio:.3}");
    assert!((0.85..1.15).contains(&ratio), "tasks {tasks} us, CPUs {cpus} us");
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn the_recorder_does_not_see_itself_wait_for_the_kernel() {
    const SAMPLES: usize = 8;
    let (mut sampler, mut frame) = (Sampler::open(host(true)).expect("a sampler"), Frame::new());
    let own = i64::from(std::process::id());
    let [tgid, state] = ["task.tgid", "task.state"].map(|metric| column(metric).expect("a metric"));
    let mut waits = 0;
    for _ in 0..SAMPLES {
        std::thread::sleep(Duration::from_secs(1));
        sampler.sample(&mut frame).expect("a sample");
        let tasks = frame.table(Entity::Task);
        let mut rows = (0..tasks.len()).map(|i| tasks.row(i));
        waits += usize::from(rows.any(|row| row[tgid] == own && row[state] == i64::from(b'D')));
    }
    // Its thread opens /proc/locks once a second, and waits for a grace period of RCU in that: a sample may meet it by chance.
    assert!(waits <= SAMPLES / 2, "in {waits} of {SAMPLES} samples");
}

#[test]
fn processes_that_end_while_they_are_read_are_left_out() {
    let mut sampler = Sampler::open(host(false)).expect("a sampler");
    let mut frame = Frame::new();
    let storm = Spawned::new("sh", &["-c", "i=0; while [ $i -lt 3000 ]; do /bin/true; i=$((i+1)); done"]);
    let began = Instant::now();
    let mut most = 0;
    while began.elapsed() < Duration::from_millis(800) {
        sampler.sample(&mut frame).expect("a sample");
        most = most.max(frame.table(Entity::Task).len());
        for (key, row) in frame.table(Entity::Task).rows() {
            assert!(row[column("task.tgid").expect("a metric")] > 0, "{key:?}");
            assert_ne!(row[column("task.comm").expect("a metric")], NA, "{key:?}");
        }
    }
    drop(storm);
    assert!(most > 5);
    assert!(!sampler.unavailable().iter().any(|(source, _)| source == "/proc"));
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn a_fatal_signal_is_an_event_with_its_sender() {
    let mut sampler = Sampler::open(host(true)).expect("a sampler");
    if let Some((_, why)) =
        sampler.unavailable().iter().find(|(s, _)| s.starts_with("bpf") || s == "probe.signals")
    {
        return println!("skipped: {why}");
    }
    let mut frame = Frame::new();
    sampler.sample(&mut frame).expect("a sample");
    let mut victim = Spawned::new("sleep", &["60"]);
    let tid = victim.id();
    std::thread::sleep(Duration::from_millis(100));
    victim.0.kill().expect("a kill");
    victim.0.wait().expect("an end");
    sampler.sample(&mut frame).expect("a sample");
    let me = std::process::id();
    let is_kill = |kind: &EventKind| {
        matches!(kind, EventKind::FatalSignal { pid, signal: 9, sender_pid, comm, .. }
            if *pid == tid && *sender_pid == me && comm == "sleep")
    };
    let event = frame.events.iter().find(|event| is_kill(&event.kind)).expect("the signal");
    let ago = frame.time.real - event.real;
    assert!((0..2 * SECOND).contains(&ago), "{ago}");
}

#[test]
fn over_its_budget_the_sampler_drops_detail_and_says_so() {
    let budget = Budget { memory_bytes: 1, ..Budget::default() };
    let fake = FakeClock::new(Stamp { real: 0, mono: SECOND, boot: SECOND });
    let config = Config { budget, use_bpf: false, clock: Clock::Fake(fake.clone()), ..Config::default() };
    let mut sampler = Sampler::open(config).expect("a sampler");
    let mut frame = Frame::new();
    let mut levels = Vec::new();
    for _ in 0..60 {
        sampler.sample(&mut frame).expect("a sample");
        levels.extend(frame.events.iter().filter_map(|event| match &event.kind {
            EventKind::Shed { level, .. } => Some(level.clone()),
            _ => None,
        }));
        fake.advance(SECOND);
    }
    assert_eq!(levels, ["idle threads", "all threads", "idle processes"]);
    assert_eq!(system(&mut frame, "mitra.shed_level"), 3);
    let (total, recorded) = (system(&mut frame, "tasks.total"), system(&mut frame, "tasks.recorded"));
    assert!(recorded < total / 2, "{recorded} of {total}");
    assert_eq!(usize::try_from(recorded).ok(), Some(frame.table(Entity::Task).len()));
}

#[test]
fn a_configuration_that_cannot_be_kept_is_refused() {
    let bad = |config: Config| Sampler::open(config).err().expect("an error").to_string();
    assert!(bad(Config { interval: Duration::from_millis(5), ..Config::default() }).contains("100ms"));
    let budget = Budget { cpu_share: 7.0, ..Budget::default() };
    assert!(bad(Config { budget, ..Config::default() }).contains("CPU share"));
    assert!(bad(Config { root: PathBuf::from("/nowhere"), ..Config::default() }).contains("/nowhere"));
}

/// Runs one test of this program again as nobody; that test then sees [`AS_NOBODY`] and does its part.
const AS_NOBODY: &str = "MITRA_TEST_AS_NOBODY";

#[test]
fn without_privileges_it_works_and_says_what_is_missing() {
    use std::os::unix::process::CommandExt as _;
    if std::env::var_os(AS_NOBODY).is_some() {
        return unprivileged();
    }
    if !rustix_is_root() {
        return unprivileged();
    }
    // Nobody may not look into the directory that the test was built in.
    let dir = tempfile::tempdir().expect("a directory");
    let copy = dir.path().join("test");
    std::fs::copy(std::env::current_exe().expect("a path"), &copy).expect("a copy");
    for path in [dir.path(), copy.as_path()] {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("rights");
    }
    let output = Command::new(&copy)
        .args(["--exact", "without_privileges_it_works_and_says_what_is_missing", "--nocapture"])
        .env(AS_NOBODY, "1")
        .current_dir("/")
        .uid(65_534)
        .gid(65_534)
        .output()
        .expect("the test as nobody");
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

fn rustix_is_root() -> bool {
    // SAFETY: geteuid has no conditions.
    unsafe { libc::geteuid() == 0 }
}

fn unprivileged() {
    assert!(!rustix_is_root());
    let mut sampler = Sampler::open(host(true)).expect("a sampler");
    let mut frame = Frame::new();
    for _ in 0..2 {
        sampler.sample(&mut frame).expect("a sample");
        std::thread::sleep(Duration::from_millis(20));
    }
    let missing: HashMap<_, _> = sampler.unavailable().into_iter().collect();
    assert!(missing.contains_key("bpf"), "{missing:?}");
    assert!(missing["/proc/PID/io"].contains("permission denied"), "{missing:?}");
    assert!(system(&mut frame, "vm.pgfault") > 0);
    assert_eq!(system(&mut frame, "tasks.exited"), NA, "nobody reports ends");
    let me = std::process::id();
    assert!(task_cell(&frame, me, "task.cpu_time") > 0);
    assert_ne!(task_cell(&frame, me, "task.rchar"), NA, "its own I/O may be read");
    assert_eq!(task_cell(&frame, 1, "task.rchar"), NA, "that of others may not, and that is not zero");
    assert!(task_cell(&frame, 1, "task.minflt") > 0);
    let abilities = mitra_collect::doctor(Path::new("/"));
    let privileges = abilities.iter().find(|a| a.name == "privileges").expect("an answer");
    let fix = privileges.fix.as_ref().map(ToString::to_string);
    assert!(fix.is_some_and(|fix| fix.starts_with("setcap cap_bpf")), "{privileges:?}");
}

/// Unmounts with the test, whatever happens.
struct Mounted(std::ffi::CString);

impl Mounted {
    fn new(kind: &std::ffi::CStr, dir: &Path, options: &str) -> Self {
        let target = std::ffi::CString::new(dir.as_os_str().as_encoded_bytes()).expect("a path");
        let options = std::ffi::CString::new(options).expect("options");
        // SAFETY: four strings that live until the call returns.
        let mounted = unsafe {
            libc::mount(c"none".as_ptr(), target.as_ptr(), kind.as_ptr(), 0, options.as_ptr().cast())
        };
        assert_eq!(mounted, 0, "{}: {}", dir.display(), std::io::Error::last_os_error());
        Mounted(target)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // SAFETY: a string that lives until the call returns.
        unsafe { libc::umount2(self.0.as_ptr(), libc::MNT_DETACH) };
    }
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn a_fuse_daemon_that_does_not_answer_is_found() {
    use std::os::fd::AsRawFd;
    let Ok(device) = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse") else {
        return println!("skipped: no /dev/fuse");
    };
    let control = Path::new("/sys/fs/fuse/connections");
    let is_there = std::fs::read_to_string("/proc/self/mounts").expect("mounts").contains(" fusectl ");
    let _fusectl = (!is_there).then(|| Mounted::new(c"fusectl", control, ""));
    let dir = tempfile::tempdir().expect("a directory");
    let options = format!("fd={},rootmode=40000,user_id=0,group_id=0", device.as_raw_fd());
    // The kernel asks for the version of the protocol at once, and this process never answers.
    let fuse = Mounted::new(c"fuse", dir.path(), &options);
    let mut sampler = Sampler::open(host(false)).expect("a sampler");
    let mut frame = Frame::new();
    let mut row = || {
        sampler.sample(&mut frame).expect("a sample");
        let table = frame.table(Entity::Fuse);
        let cell = |row: &[i64], metric: &str| row[column(metric).expect("a metric")];
        let is_it = |row: &&[i64]| sampler.strings().cell(cell(row, "fuse.mount")) == dir.path().to_str();
        let row = table.rows().map(|(_, row)| row).find(is_it).map(<[i64]>::to_vec);
        row.map(|row| (cell(&row, "fuse.waiting"), cell(&row, "fuse.pid")))
    };
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        let (waiting, pid) = row().expect("a row of the connection");
        assert!(waiting >= 1);
        if pid != NA {
            assert_eq!(pid, i64::from(std::process::id()));
            break;
        }
        assert!(Instant::now() < until, "its daemon is not found");
        std::thread::sleep(Duration::from_millis(50));
    }
    drop(fuse);
    drop(device);
    let gone = Instant::now() + Duration::from_secs(60);
    while row().is_some() {
        assert!(Instant::now() < gone, "the connection stays");
        std::thread::sleep(Duration::from_millis(50));
    }
}
