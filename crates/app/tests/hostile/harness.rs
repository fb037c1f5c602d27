//! Starts a hostile program, runs `mitra` beside it under limits, and says what of that must not be.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

const MITRA: &str = env!("CARGO_BIN_EXE_mitra");
const PROGRAMS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/hostile/programs");
/// Who owns nothing.
pub const NOBODY: u32 = 65_534;
/// A program is as bad as it gets within so long, also on a machine that compiles meanwhile.
const READY_WITHIN: Duration = Duration::from_secs(30);
/// What uses no CPU for so long waits for something that does not come; a busy machine gives everybody some in that time.
const STILL_MAX: Duration = Duration::from_secs(15);
/// What uses so much of it does not end. Nothing here takes more than some seconds, in a build for tests.
const CPU_MAX: Duration = Duration::from_secs(40);
/// Nothing goes on for longer.
const TIME_MAX: Duration = Duration::from_secs(150);
/// Less of the CPU than that within a look is none: that of whoever waits and looks.
const LITTLE: Duration = Duration::from_millis(5);
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// What is killed is gone within so long.
const GONE_WITHIN: Duration = Duration::from_secs(15);
/// `mitra` takes less, whatever a process says of itself: what processes say of their mappings and functions has 384 MB.
const MEMORY_MAX: u64 = 768 << 20;
/// What hostile names try to make.
const PWNED: &str = "/tmp/mitra-hostile-pwned";
/// What stands in files that only root may read, in a form that passes for a list of functions and for the words of an allocator.
const SECRET: &str = "0 ffffffffffffffff only-for-root\nGNU C Library only-for-root version 9.99\n";
/// What no output may have: of files that only root may read, and of what a process says of another one.
const UNSAID: [&str; 2] = ["only-for-root", "not_to_be_believed"];

/// As whom a hostile program runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum As {
    /// A user without any right.
    Nobody,
    /// Root, for what it takes a right to make.
    Root,
}

/// A hostile program.
#[derive(Clone, Copy)]
pub struct Hostile {
    /// Its source in `programs/`, without the ending.
    pub program: &'static str,
    /// Its argument.
    pub variant: &'static str,
    /// As whom.
    pub user: As,
}

/// Whether this can be done here. Says why not.
pub fn can_run() -> bool {
    let lacks = if !rustix::process::geteuid().is_root() {
        "root"
    } else if cgroups().is_none() {
        "cgroup2"
    } else {
        return true;
    };
    println!("skipped: needs {lacks}");
    false
}

/// Where cgroup2 is mounted.
fn cgroups() -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let line = mounts.lines().find(|line| line.contains(" - cgroup2 "))?;
    Some(line.split(' ').nth(4)?.into())
}

/// A control group, in which everything ends when it is dropped.
struct Group(PathBuf);

/// Groups with something in them that waits for what another group has to end.
static LEFT: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

impl Group {
    fn new() -> Self {
        static GROUPS: AtomicU32 = AtomicU32::new(0);
        LEFT.lock().expect("no test panics here").retain(|path| fs::remove_dir(path).is_err());
        let number = GROUPS.fetch_add(1, Ordering::Relaxed);
        // Its name is as hostile as what is in it.
        let name = format!("hostile-{}-{number}-\x1b]0;x\x07</script>\u{202e}", std::process::id());
        let path = cgroups().expect("cgroup2 is mounted").join(name.replace('/', "|"));
        fs::create_dir(&path).expect("a group can be made");
        Self(path)
    }

    /// What is started begins in it.
    fn take(&self, command: &mut Command) {
        let procs = File::options().write(true).open(self.0.join("cgroup.procs")).expect("it has processes");
        // SAFETY: between fork and exec only system calls are made, which allocate nothing.
        unsafe {
            command.pre_exec(move || {
                if libc::write(procs.as_raw_fd(), c"0".as_ptr().cast(), 1) != 1 {
                    return Err(std::io::Error::last_os_error());
                }
                // What whoever runs the tests has open is none of theirs.
                libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC);
                // A test that is killed takes along what it started.
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
                libc::setrlimit(libc::RLIMIT_CORE, &raw const none);
                Ok(())
            });
        }
    }

    /// The CPU time of all that ran in it.
    fn cpu(&self) -> Duration {
        let stat = fs::read_to_string(self.0.join("cpu.stat")).unwrap_or_default();
        let used = stat.lines().find_map(|line| line.strip_prefix("usage_usec ")?.parse().ok());
        Duration::from_micros(used.unwrap_or(0))
    }

    /// For how long some of it wanted a CPU or waited for the disk: what is held up goes on later.
    fn held_up(&self) -> Duration {
        let of = |file: &str| {
            let text = fs::read_to_string(self.0.join(file)).unwrap_or_default();
            let total = text.lines().next().and_then(|some| some.rsplit_once("total=")?.1.parse().ok());
            Duration::from_micros(total.unwrap_or(0))
        };
        of("cpu.pressure") + of("io.pressure")
    }

    /// Whether a thread waits for a grace period of RCU. It ends, however late: tasks that were preempted where they read hold
    /// it up, and a fork storm preempts many.
    fn waits_for_grace_period(&self) -> bool {
        where_it_waits(self).contains("synchronize_rcu")
    }

    fn kill(&self) {
        fs::write(self.0.join("cgroup.kill"), "1").expect("a group can be killed");
        // The kernel kills first threads, and of a process whose first thread has ended none (`__cgroup_kill`, Linux 6.18).
        let left = fs::read_to_string(self.0.join("cgroup.procs")).unwrap_or_default();
        for pid in left.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?)) {
            _ = kill_process(pid, Signal::KILL);
        }
    }

    /// Whether all is gone within a while after it was killed.
    fn is_gone(&self) -> bool {
        let began = Instant::now();
        while began.elapsed() < GONE_WITHIN {
            let events = fs::read_to_string(self.0.join("cgroup.events")).unwrap_or_default();
            if !events.contains("populated 1") {
                return true;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        false
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
        if !self.is_gone() || fs::remove_dir(&self.0).is_err() {
            LEFT.lock().expect("no test panics here").push(self.0.clone());
        }
    }
}

/// A hostile program that runs until it is dropped.
pub struct Running {
    pub of: Hostile,
    /// The process to be looked at.
    pub pid: String,
    dir: TempDir,
    group: Group,
    child: Child,
    traps: OwnedFd,
    /// What is watched, by the number of the watch.
    watched: Vec<(i32, String)>,
    to_remove: Vec<PathBuf>,
}

impl Running {
    /// `None` where it cannot be done here, which is said. Of many at once each takes less of the machine.
    pub fn start(of: Hostile, is_one_of_many: bool) -> Option<Self> {
        let dir = tempfile::Builder::new().prefix("mitra-hostile-").tempdir().expect("a folder can be made");
        set_mode(dir.path(), 0o755);
        let home = dir.path().join("home");
        fs::create_dir_all(home.join("jdk/bin")).expect("folders can be made");
        fs::create_dir_all(home.join("jdk/lib/server")).expect("folders can be made");
        fs::create_dir_all(home.join("erts-13/bin")).expect("folders can be made");
        let secret = dir.path().join("secret");
        fs::write(&secret, SECRET).expect("a file can be written");
        set_mode(&secret, 0o600);
        let program = home.join(of.program);
        compile(of.program, &program);
        match of.program {
            "jvm" => {
                compile("jcmd", &home.join("jdk/bin/jcmd"));
                fs::copy(&program, home.join("privileged")).expect("a program can be copied");
            }
            "runtime" => {
                compile("jcmd", &home.join("erts-13/bin/erl_call"));
                fs::copy(&program, home.join("erts-13/bin/beam.smp")).expect("a program can be copied");
            }
            _ => {}
        }
        if of.user == As::Nobody {
            give(&home);
        }
        let privileged = home.join("privileged");
        if privileged.exists() {
            chown(&privileged, Some(0), Some(0)).expect("root owns what it wants");
            set_mode(&privileged, 0o4755);
        }
        let group = Group::new();
        let mut command = Command::new(&program);
        command.arg(of.variant).current_dir(&home).env_clear().env("MITRA_HOSTILE_SECRET", &secret);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit()).process_group(0);
        if is_one_of_many {
            command.env("MITRA_HOSTILE_MANY", "1");
        }
        if of.user == As::Nobody {
            command.uid(NOBODY).gid(NOBODY);
        }
        group.take(&mut command);
        let mut child = command.spawn().expect("a hostile program can be started");
        let out = child.stdout.take().expect("it has an output");
        let (tell, told) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(out).split(b'\n').map_while(Result::ok) {
                _ = tell.send(String::from_utf8_lossy(&line).into_owned());
            }
        });
        let traps = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).expect("inotify is there");
        let pid = child.id().to_string();
        let mut running =
            Self { of, pid, dir, group, child, traps, watched: Vec::new(), to_remove: Vec::new() };
        running.hear(&told).then_some(running)
    }

    /// Hears what it says until it is ready.
    fn hear(&mut self, told: &Receiver<String>) -> bool {
        let mut traps = Vec::new();
        loop {
            let line = told.recv_timeout(READY_WITHIN);
            let line =
                line.unwrap_or_else(|_| panic!("{} {}: never ready", self.of.program, self.of.variant));
            match line.split_once(' ').unwrap_or((&line, "")) {
                ("pid", pid) => self.pid = pid.to_owned(),
                ("trap", path) => traps.push(format!("/proc/{}/root{path}", self.pid)),
                ("remove", path) => self.to_remove.push(path.into()),
                ("skip", why) => {
                    println!("skipped: {} {}: {why}", self.of.program, self.of.variant);
                    return false;
                }
                _ => break,
            }
        }
        for path in traps {
            let added = inotify::add_watch(&self.traps, path.as_str(), WatchFlags::OPEN | WatchFlags::ACCESS);
            let number = added.unwrap_or_else(|error| panic!("{path}: {error}"));
            self.watched.push((number, path));
        }
        true
    }

    /// What happened meanwhile that must not.
    pub fn betrayed(&self) -> Vec<String> {
        let mut wrong = BTreeSet::new();
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut notes = inotify::Reader::new(&self.traps, &mut buffer);
        while let Ok(note) = notes.next() {
            let path =
                self.watched.iter().find(|(number, _)| *number == note.wd()).map(|(_, path)| path.as_str());
            wrong.insert(format!("a file was opened that is a trap: {}", path.unwrap_or_default()));
        }
        let mut wrong: Vec<String> = wrong.into_iter().collect();
        let ran = fs::read_to_string(self.dir.path().join("home/ran")).unwrap_or_default();
        _ = fs::remove_file(self.dir.path().join("home/ran"));
        wrong.extend(wrong_about_tool(self.of.user, &ran));
        wrong
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.group.kill();
        if self.group.is_gone() {
            _ = self.child.wait();
        }
        LEFT.lock().expect("no test panics here").retain(|path| fs::remove_dir(path).is_err());
        for path in &self.to_remove {
            _ = fs::remove_dir_all(path);
            _ = fs::remove_file(path);
        }
    }
}

/// A tool that lies where a user can change it may run as that user, without anything of root's.
fn wrong_about_tool(user: As, ran: &str) -> Vec<String> {
    let mut wrong = BTreeSet::new();
    for line in ran.lines().filter(|_| user == As::Nobody) {
        let is_good = match line.split_whitespace().next().unwrap_or_default() {
            "uid" => line == format!("uid {NOBODY} {NOBODY} {NOBODY} groups 0 leads 1"),
            "NoNewPrivs:" => line.ends_with('1'),
            "CapPrm:" => line.ends_with("\t0000000000000000"),
            // Without a way to new rights, what could be had does not matter.
            "CapBnd:" => true,
            _ => false,
        };
        if !is_good {
            wrong.insert(format!("the tool of the process was run in a wrong way: {line}"));
        }
    }
    wrong.into_iter().collect()
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("root sets what it wants");
}

/// Gives a folder and all in it away.
fn give(path: &Path) {
    chown(path, Some(NOBODY), Some(NOBODY)).expect("root gives what it has");
    for entry in
        path.is_dir().then(|| fs::read_dir(path).expect("a folder can be read")).into_iter().flatten()
    {
        give(&entry.expect("a folder can be read").path());
    }
}

/// Makes a program. Each is compiled once.
fn compile(source: &'static str, to: &Path) {
    static COMPILED: Mutex<BTreeMap<&str, Vec<u8>>> = Mutex::new(BTreeMap::new());
    let mut compiled = COMPILED.lock().expect("no test panics here");
    let program = compiled.entry(source).or_insert_with(|| {
        let mut cc = Command::new("cc");
        cc.args(["-O1", "-pthread", "-w", "-o"]).arg(to).arg(format!("{PROGRAMS}/{source}.c"));
        assert!(cc.status().is_ok_and(|status| status.success()), "{source}.c does not compile: {cc:?}");
        fs::read(to).expect("what was compiled can be read")
    });
    fs::write(to, program).expect("a program can be written");
    set_mode(to, 0o755);
}

/// What a command did.
pub struct Done {
    /// As it was typed, and for reports.
    pub words: String,
    /// Its exit code; `None` where a signal ended it.
    pub code: Option<i32>,
    /// Standard output and standard error.
    pub out: Vec<u8>,
    /// Standard error.
    pub err: Vec<u8>,
    /// Whether it had to be ended.
    pub hung: bool,
    /// What must not be.
    pub wrong: Vec<String>,
}

/// Runs `mitra` with a limit of time, and looks at how it ended and at all that it started.
pub fn mitra(args: &[&str], homes: &[&Path]) -> Done {
    let words: Vec<&OsStr> = std::iter::once(MITRA).chain(args.iter().copied()).map(OsStr::new).collect();
    run(&words, homes, args.join(" "))
}

/// The same where somebody may be left behind in the kernel: who traces waits for all.
pub fn mitra_untraced(args: &[&str]) -> Done {
    let words: Vec<&OsStr> = std::iter::once(MITRA).chain(args.iter().copied()).map(OsStr::new).collect();
    run_and_look(&words, None, args.join(" "))
}

/// The same of `mitra` behind another program.
pub fn run(words: &[&OsStr], homes: &[&Path], name: String) -> Done {
    run_and_look(words, is_traced().then_some(homes), name)
}

fn run_and_look(words: &[&OsStr], traced: Option<&[&Path]>, name: String) -> Done {
    let dir = tempfile::tempdir().expect("a folder can be made");
    let file = |name: &str| dir.path().join(name);
    let create = |name: &str| File::create(file(name)).expect("a file can be made");
    let group = Group::new();
    let mut command = if traced.is_some() {
        let mut strace = Command::new("strace");
        strace.args([
            "-f",
            "-qq",
            "--seccomp-bpf",
            "-s",
            "4096",
            "-e",
            "trace=execve,execveat",
            "-e",
            "signal=none",
            "-o",
        ]);
        strace.arg(file("execs")).arg("--").args(words);
        strace
    } else {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]);
        command
    };
    command.stdin(Stdio::null()).stdout(create("out")).stderr(create("err")).process_group(0);
    command.env_remove("NO_COLOR").env_remove("NOTIFY_SOCKET").env("TZ", "UTC").env("TERM", "xterm");
    group.take(&mut command);
    #[expect(clippy::zombie_processes, reason = "wait4 below waits for it and says what it used")]
    let child = command.spawn().expect("mitra can be started");
    let mut wrong = Vec::new();
    let mut patience = Patience {
        began: Instant::now(),
        looked: Instant::now(),
        moved: Instant::now(),
        cpu: Duration::ZERO,
        held_up: Duration::ZERO,
    };
    let (mut status, mut usage) = (0, MaybeUninit::<libc::rusage>::zeroed());
    let pid = libc::pid_t::try_from(child.id()).expect("a process has a small number");
    loop {
        // SAFETY: the kernel writes the status and the usage, which are as large as it thinks.
        if unsafe { libc::wait4(pid, &raw mut status, libc::WNOHANG, usage.as_mut_ptr()) } != 0 {
            break;
        }
        if let Some(why) = patience.is_over(&group) {
            wrong.push(format!("{why}: {}", where_it_waits(&group)));
            group.kill();
            if !group.is_gone() {
                wrong.push("it cannot even be killed".to_owned());
            }
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let hung = !wrong.is_empty();
    let code = (!hung && libc::WIFEXITED(status)).then(|| libc::WEXITSTATUS(status));
    if code.is_none() && !hung {
        wrong.push(format!("signal {} ended it", libc::WTERMSIG(status)));
    }
    // SAFETY: it was zeros, which it may be, or the kernel has written it.
    let rss_max = unsafe { usage.assume_init() }.ru_maxrss as u64 * 1024;
    if rss_max > MEMORY_MAX {
        wrong.push(format!("it took {} MB", rss_max >> 20));
    }
    let (out, err) = (fs::read(file("out")).unwrap_or_default(), fs::read(file("err")).unwrap_or_default());
    let said = String::from_utf8_lossy(&err);
    if ["panicked at", "RUST_BACKTRACE", "a bug:"].iter().any(|word| said.contains(word)) {
        wrong.push(format!("it panicked: {}", said.lines().take(2).collect::<Vec<_>>().join(" ")));
    }
    if !matches!(code, None | Some(0 | 2)) {
        wrong.push(format!("exit code {code:?}: {}", said.lines().next().unwrap_or_default()));
    }
    if let Some(homes) = traced {
        wrong.extend(wrong_about_execs(&fs::read_to_string(file("execs")).unwrap_or_default(), homes));
    }
    if Path::new(PWNED).exists() {
        _ = fs::remove_file(PWNED);
        wrong.push("what a name says was executed".to_owned());
    }
    Done { words: name, code, out, err, hung, wrong }
}

/// For how long something is waited for, whatever else the machine does.
struct Patience {
    began: Instant,
    looked: Instant,
    moved: Instant,
    cpu: Duration,
    held_up: Duration,
}

impl Patience {
    /// Why it is.
    fn is_over(&mut self, group: &Group) -> Option<String> {
        if self.looked.elapsed() < LOOK_EVERY {
            return None;
        }
        let look = self.looked.elapsed();
        self.looked = Instant::now();
        let cpu = group.cpu();
        let held_up = group.held_up();
        let is_held_up = held_up > self.held_up + look / 4 || group.waits_for_grace_period();
        if cpu > self.cpu + LITTLE || is_held_up {
            self.moved = Instant::now();
        }
        (self.cpu, self.held_up) = (cpu, held_up);
        let is_over = self.moved.elapsed() > STILL_MAX || cpu > CPU_MAX || self.began.elapsed() > TIME_MAX;
        is_over.then(|| format!("it hangs, {cpu:.1?} of CPU in {:.1?}", self.began.elapsed()))
    }
}

/// Whether programs that are started are seen. Where they are not, canaries alone tell.
fn is_traced() -> bool {
    let version = Command::new("strace").arg("--version").stdout(Stdio::null()).status();
    version.is_ok_and(|status| status.success())
}

/// What the kernel says of the threads of a group that is stuck.
fn where_it_waits(group: &Group) -> String {
    let mut places = BTreeSet::new();
    let threads = fs::read_to_string(group.0.join("cgroup.threads")).unwrap_or_default();
    for thread in threads.lines() {
        let of = |what: &str| fs::read_to_string(format!("/proc/{thread}/{what}")).unwrap_or_default();
        let stack: Vec<String> = of("stack")
            .lines()
            .take(4)
            .filter_map(|line| Some(line.split_once("] ")?.1.to_owned()))
            .collect();
        let status = of("status");
        let state = status.lines().find_map(|line| line.strip_prefix("State:\t")).unwrap_or_default();
        places.insert(format!("{} ({state}) in {}", of("comm").trim(), stack.join(" < ")));
    }
    places.into_iter().collect::<Vec<_>>().join("; ")
}

/// Programs that were started, in what strace says: those of root are well, and those in the home of a hostile program are judged by
/// what they noted themselves.
fn wrong_about_execs(log: &str, homes: &[&Path]) -> Vec<String> {
    let mut wrong = Vec::new();
    for line in log.lines().filter(|line| line.ends_with(" = 0")) {
        let Some(program) = line.split('"').nth(1).map(Path::new) else { continue };
        let is_its_own = homes.iter().any(|home| program.starts_with(home));
        let is_roots = fs::metadata(program).is_ok_and(|meta| meta.uid() == 0 && meta.mode() & 0o022 == 0);
        // A tool is executed by the very handle that was looked at. Whose it was is noted by the tool, were it a hostile one.
        let is_handle = program.starts_with("/proc/self/fd");
        if !is_its_own && !is_roots && !is_handle && program != Path::new(MITRA) {
            wrong.push(format!("it ran {}", program.display()));
        }
    }
    wrong
}

impl Running {
    /// The folder of the hostile program.
    pub fn home(&self) -> &Path {
        self.dir.path()
    }
}

/// What is wrong with an output that people look at: control characters, writing that runs backwards, lines and marks of HTML that
/// a name made, contents that nobody should have.
pub fn wrong_with_text(text: &str, is_page: bool) -> Vec<String> {
    let mut wrong: Vec<String> =
        UNSAID.iter().filter(|what| text.contains(**what)).map(|what| format!("it says {what:?}")).collect();
    let is_bad = |c: char| {
        let is_bidirectional = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        c.is_control() && !matches!(c, '\n' | '\t') || is_bidirectional
    };
    if let Some((at, c)) = text.char_indices().find(|(_, c)| is_bad(*c)) {
        let from = text[..at].char_indices().rev().nth(40).map_or(0, |(i, _)| i);
        let until = text[at..].char_indices().nth(40).map_or(text.len(), |(i, _)| at + i);
        wrong.push(format!("there is {c:?} in {:?}", &text[from..until]));
    }
    if text.lines().any(|line| line.starts_with("{\"injected\"")) {
        wrong.push("a name has made a line".to_owned());
    }
    if is_page && ["<img src=x", "</script><"].iter().any(|mark| text.contains(mark)) {
        wrong.push("a name has made HTML".to_owned());
    }
    wrong
}

/// Writes to the log of the kernel what a driver of a hostile device might.
pub fn write_kernel_log(text: &str) {
    if let Ok(mut log) = File::options().write(true).open("/dev/kmsg") {
        _ = log.write_all(text.as_bytes());
    }
}
