//! What is kept from a process that has given up what it does not need, and from what it starts.
//!
//! None of it can be taken back, so each check is a process of its own: this program, started
//! again.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

use mitra_confine::{Child, Groups, Limits, Needs, Privileges, Resource, give_up, prepare};

type Check = fn(&[&str]);

/// The checks by name; those that only another check starts have a dot in front.
const CHECKS: &[(&str, Check)] = &[
    ("nothing_is_left", nothing_is_left),
    ("only_what_is_named_is_read", only_what_is_named_is_read),
    ("only_what_is_named_is_written", only_what_is_named_is_written),
    ("who_answers_does_not_ask", who_answers_does_not_ask),
    ("threads_would_keep_it", threads_would_keep_it),
    ("what_runs_already_is_ended", what_runs_already_is_ended),
    ("a_panic_ends_it_as_ever", a_panic_ends_it_as_ever),
    ("landlock_takes_other_processes_too", landlock_takes_other_processes_too),
    ("the_machine_stays_as_it_is", the_machine_stays_as_it_is),
    ("a_child_has_less", a_child_has_less),
    ("a_child_ends_with_its_parent", a_child_ends_with_its_parent),
    ("a_child_has_a_limit_of_its_own", a_child_has_a_limit_of_its_own),
    ("a_greedy_child_is_ended_alone", a_greedy_child_is_ended_alone),
    (".panics", |_| panics()),
    (".reads", |_| reads_of_its_parent()),
    (".starts_and_dies", |_| starts_and_dies()),
    (".eats", eats),
    (".starts_greedy", |_| starts_greedy()),
];

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if let ["check", name, rest @ ..] = words.as_slice() {
        let (_, check) = CHECKS.iter().find(|(known, _)| known == name).unwrap();
        return check(rest);
    }
    // What cargo and tools/test.py say to a test program: a name, and flags. None of the checks is
    // ignored.
    if words.contains(&"--list") || words.contains(&"--ignored") {
        return;
    }
    let wanted = |name: &str| words.iter().all(|word| word.starts_with('-') || name.contains(word));
    let (mut passed, mut failed) = (0, 0);
    for (name, _) in CHECKS.iter().filter(|(name, _)| !name.starts_with('.') && wanted(name)) {
        let status = again(name, &[]).status().unwrap();
        println!("test {name} ... {}", if status.success() { "ok".to_owned() } else { status.to_string() });
        *(if status.success() { &mut passed } else { &mut failed }) += 1;
    }
    println!(
        "\ntest result: {}. {passed} passed; {failed} failed; 0 ignored",
        if failed == 0 { "ok" } else { "FAILED" }
    );
    std::process::exit(failed);
}

/// This program with one check.
fn again(name: &str, rest: &[&str]) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg("check").arg(name).args(rest);
    command
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A folder with a file in it, which stays: nobody here may remove it later.
fn folder(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("mitra-kept-{name}"));
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join("there"), "text").unwrap();
    dir
}

/// What nobody may do who has given up everything.
fn assert_is_confined() {
    let refused = |what: &str, result: io::Result<()>| {
        let kind = result.expect_err(what).kind();
        assert_eq!(kind, ErrorKind::PermissionDenied, "{what}");
    };
    refused("a secret", File::open("/etc/shadow").map(drop));
    refused("a public file", File::open("/etc/passwd").map(drop));
    refused("a program", Command::new("/bin/true").status().map(drop));
    refused("a socket", TcpListener::bind("127.0.0.1:0").map(drop));
    refused("a datagram", std::net::UdpSocket::bind("127.0.0.1:0").map(drop));
    refused("a local socket", std::os::unix::net::UnixDatagram::unbound().map(drop));
    refused("a new file", fs::write(std::env::temp_dir().join("mitra-kept-new"), "x"));
    refused("a file is removed", fs::remove_file(std::env::temp_dir().join("mitra-kept-none")));
    let call = |number: libc::c_long, arguments: [libc::c_long; 4]| {
        let [a, b, c, d] = arguments;
        // SAFETY: calls that are refused before they look at their arguments, which are numbers.
        match unsafe { libc::syscall(number, a, b, c, d) } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    };
    let parent = i64::from(std::os::unix::process::parent_id());
    refused("a trace", call(libc::SYS_ptrace, [libc::PTRACE_SEIZE.into(), parent, 0, 0]));
    refused("a signal", call(libc::SYS_kill, [parent, 0, 0, 0]));
    refused("a process", call(libc::SYS_clone, [libc::SIGCHLD.into(), 0, 0, 0]));
    refused("a BPF program", call(libc::SYS_bpf, [0, 0, 0, 0]));
    let anonymous = libc::c_long::from(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    let executable = libc::c_long::from(libc::PROT_READ | libc::PROT_EXEC);
    refused("new code", call(libc::SYS_mmap, [0, 4096, executable, anonymous]));
}

fn nothing_is_left(_: &[&str]) {
    let dir = folder("nothing");
    let mut there = File::open(dir.join("there")).unwrap();
    let mut status = File::open("/proc/self/status").unwrap();
    if is_root() {
        File::open("/etc/shadow").unwrap();
    }
    let unknown = give_up(Needs::default()).unwrap();
    println!("unknown to this kernel: {unknown:?}");
    let mut text = String::new();
    there.read_to_string(&mut text).unwrap();
    assert_eq!(text, "text");
    assert_is_confined();
    // And in a thread that is started later, with memory that it asks for.
    std::thread::spawn(assert_is_confined).join().unwrap();
    let threads: Vec<_> = (0..4).map(|n| std::thread::spawn(move || vec![n; 1 << 20].len())).collect();
    assert_eq!(threads.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>(), 4 << 20);
    std::thread::sleep(std::time::Duration::from_millis(1));
    let mut text = String::new();
    status.read_to_string(&mut text).unwrap();
    for line in ["CapInh", "CapPrm", "CapEff", "CapAmb"].map(|set| format!("{set}:\t0000000000000000")) {
        assert!(text.contains(&line), "{line}: {text}");
    }
    assert!(!is_root() || text.contains("CapBnd:\t0000000000000000"), "{text}");
    assert!(text.contains("NoNewPrivs:\t1") && text.contains("Seccomp:\t2"), "{text}");
}

/// That Landlock keeps what the filter of system calls cannot tell apart.
fn only_what_is_named_is_read(_: &[&str]) {
    let (dir, other) = (folder("read"), folder("other"));
    let file = other.join("there");
    let unknown = give_up(Needs { read: &[&dir], ..Needs::default() }).unwrap();
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
    assert_eq!(fs::read_to_string(dir.join("there")).unwrap(), "text");
    assert!(fs::write(dir.join("there"), "other").is_err() && fs::write(dir.join("new"), "x").is_err());
    if unknown.is_empty() {
        for path in
            [&file, Path::new("/etc/shadow"), Path::new("/proc/1/environ"), &dir.join("../../etc/shadow")]
        {
            assert_eq!(
                File::open(path).unwrap_err().kind(),
                ErrorKind::PermissionDenied,
                "{}",
                path.display()
            );
        }
        assert!(fs::read_dir(&other).is_err());
    } else {
        println!("skipped: {unknown:?}");
    }
    assert!(Command::new("/bin/true").status().is_err());
}

fn only_what_is_named_is_written(_: &[&str]) {
    let (dir, other) = (folder("write"), folder("unwritten"));
    if is_root() {
        // Of somebody else: root writes there as before.
        std::os::unix::fs::chown(&dir, Some(65_534), Some(65_534)).unwrap();
    }
    let unknown = give_up(Needs { write: &[&dir], ..Needs::default() }).unwrap();
    fs::create_dir_all(dir.join("a/b")).unwrap();
    fs::write(dir.join("a/b/new"), "x").unwrap();
    fs::rename(dir.join("a/b/new"), dir.join("a/moved")).unwrap();
    File::open(dir.join("a/moved")).unwrap().sync_all().unwrap();
    fs::remove_dir_all(dir.join("a")).unwrap();
    if unknown.is_empty() {
        for path in [other.join("new"), other.join("there"), "/etc/mitra-kept".into()] {
            assert_eq!(fs::write(&path, "x").unwrap_err().kind(), ErrorKind::PermissionDenied);
        }
        assert!(fs::rename(dir.join("there"), other.join("moved")).is_err());
    } else {
        println!("skipped: {unknown:?}");
    }
}

fn who_answers_does_not_ask(_: &[&str]) {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let mut client = TcpStream::connect(address).unwrap();
    give_up(Needs { accepts: true, ..Needs::default() }).unwrap();
    let (mut accepted, _) = socket.accept().unwrap();
    accepted.set_nodelay(true).unwrap();
    accepted.write_all(b"x").unwrap();
    client.read_exact(&mut [0]).unwrap();
    accepted.shutdown(std::net::Shutdown::Both).unwrap();
    assert_eq!(TcpStream::connect(address).unwrap_err().kind(), ErrorKind::PermissionDenied);
    assert_eq!(TcpListener::bind("127.0.0.1:0").unwrap_err().kind(), ErrorKind::PermissionDenied);
    assert!(File::open("/etc/passwd").is_err());
}

fn threads_would_keep_it(_: &[&str]) {
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || stopped.recv());
    assert_eq!(give_up(Needs::default()).unwrap_err().to_string(), "there are 2 threads already");
    drop(stop);
    assert!(thread.join().unwrap().is_err());
    File::open("/etc/passwd").unwrap();
}

#[expect(clippy::zombie_processes, reason = "the one that may not be killed ends with this process")]
fn what_runs_already_is_ended(_: &[&str]) {
    let sleep = || Command::new("/bin/sleep").arg("600").stdin(std::process::Stdio::null()).spawn().unwrap();
    let mut bound = Command::new("/bin/sleep");
    let mut other = child(bound.arg("600"), Privileges::None).spawn().unwrap();
    let mut one = sleep();
    give_up(Needs { children: &[one.id()], ..Needs::default() }).unwrap();
    one.kill().unwrap();
    assert_eq!(one.wait().unwrap().signal(), Some(9));
    assert_eq!(other.kill().unwrap_err().kind(), ErrorKind::PermissionDenied);
}

fn a_panic_ends_it_as_ever(_: &[&str]) {
    let output = again(".panics", &[]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(101) && said.contains("a bug"), "{} {said}", output.status);
}

fn panics() {
    give_up(Needs::default()).unwrap();
    panic!("a bug");
}

/// Why a recorder has no Landlock: the numbers and the memory of other processes are kept from
/// whoever has it.
fn landlock_takes_other_processes_too(_: &[&str]) {
    assert!(again(".reads", &[]).status().unwrap().success());
}

fn reads_of_its_parent() {
    // Before it gives up its capabilities it may, and it may read other files of the same process
    // afterwards.
    let parent = std::os::unix::process::parent_id();
    let of_parent = |file: &str| fs::read(format!("/proc/{parent}/{file}"));
    of_parent("io").unwrap();
    let unknown = give_up(Needs { read: &[Path::new("/proc")], ..Needs::default() }).unwrap();
    of_parent("stat").unwrap();
    if unknown.is_empty() {
        assert_eq!(of_parent("io").unwrap_err().kind(), ErrorKind::PermissionDenied);
    }
}

fn the_machine_stays_as_it_is(_: &[&str]) {
    // Of a thread that was there before too.
    let (go, gone) = std::sync::mpsc::channel::<()>();
    let host = || rustix::system::sethostname(rustix::system::uname().nodename().to_bytes());
    let thread = std::thread::spawn(move || {
        _ = gone.recv();
        host().is_err()
    });
    if is_root() {
        host().unwrap();
    }
    mitra_confine::refuse_to_change_the_machine().unwrap();
    assert_eq!(host(), Err(rustix::io::Errno::PERM));
    drop(go);
    assert!(thread.join().unwrap());
    // All that it needs goes on.
    assert!(File::open("/etc/passwd").is_ok() && Command::new("/bin/true").status().unwrap().success());
    assert!(mitra_confine::has_seccomp());
}

const BOUND: u64 = 64 << 20;

fn child(command: &mut Command, privileges: Privileges) -> &mut Command {
    prepare(command, &Child { privileges, bounds: &[(Resource::Data, BOUND)], group: None }).unwrap();
    command
}

fn a_child_has_less(_: &[&str]) {
    // A file without close-on-exec, as a careless library makes one.
    let leaked = File::open("/dev/null").unwrap();
    rustix::io::fcntl_setfd(&leaked, rustix::io::FdFlags::empty()).unwrap();
    let script = "cat /proc/self/status /proc/self/limits /proc/self/oom_score_adj; ls -l /proc/$$/fd; ps -o sid= -p $$; echo pid $$";
    let said = |privileges| {
        let mut command = Command::new("/bin/sh");
        let output = child(command.args(["-c", script]), privileges).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let text = said(Privileges::None);
    for wanted in ["NoNewPrivs:\t1", "CapEff:\t0000000000000000", "CapPrm:\t0000000000000000", "\n500\n"] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    let limit = |name: &str| {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        line[name.len()..].split_whitespace().take(2).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(
        (limit("Max core file size"), limit("Max data size")),
        ("0 0".into(), format!("{BOUND} {BOUND}"))
    );
    assert_eq!(limit("Max open files").split(' ').next(), Some("1024"));
    assert!(!text.contains(&format!(" {} -> ", leaked.as_raw_fd())), "{text}");
    // A session of its own: no terminal is its own, and none of whoever started it gets its
    // signals.
    let pid = text.lines().find_map(|line| line.strip_prefix("pid ")).unwrap();
    assert!(text.lines().any(|line| line.trim() == pid), "{text}");
    let kept = said(Privileges::Kept);
    assert!(kept.contains("NoNewPrivs:\t1"), "{kept}");
    assert_eq!(kept.contains("CapEff:\t0000000000000000"), !is_root(), "{kept}");
}

fn a_child_ends_with_its_parent(_: &[&str]) {
    let output = again(".starts_and_dies", &[]).output().unwrap();
    let pid: i32 = String::from_utf8(output.stdout).unwrap().trim().parse().unwrap();
    let state = || fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // One that nobody waits for stays as a zombie where the first process does not care.
    while !matches!(
        state().rsplit(')').next().unwrap_or_default().trim().chars().next(),
        None | Some('Z' | 'X')
    ) {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

fn starts_and_dies() {
    let mut command = Command::new("/bin/sleep");
    let sleeper =
        child(command.arg("600"), Privileges::None).stdout(std::process::Stdio::null()).spawn().unwrap();
    println!("{}", sleeper.id());
    std::process::abort();
}

/// Takes memory until somebody ends it, up to a bound.
fn eats(rest: &[&str]) {
    let bytes: usize = rest[0].parse().unwrap();
    let mut all = Vec::new();
    for _ in 0..bytes >> 20 {
        all.push(vec![7_u8; 1 << 20]);
    }
    println!("ate {}", all.len());
}

/// Without a control group the limit of the process holds: it fails to get more, and others do not
/// lose any.
fn a_child_has_a_limit_of_its_own(_: &[&str]) {
    let eat = |bytes: u64| {
        let mut command = again(".eats", &[&bytes.to_string()]);
        child(&mut command, Privileges::None).output().unwrap()
    };
    assert!(eat(BOUND / 4).status.success());
    assert!(!eat(BOUND * 2).status.success());
}

/// Where version 2 of control groups counts memory.
fn unified() -> Option<PathBuf> {
    let mounts = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
    mounts.map(PathBuf::from).into_iter().find(|dir| {
        fs::read_to_string(dir.join("cgroup.subtree_control")).is_ok_and(|text| text.contains("memory"))
    })
}

/// A group is delegated as a service manager does it, to a process that starts one that is too
/// greedy.
fn a_greedy_child_is_ended_alone(_: &[&str]) {
    let Some(top) = unified().filter(|_| is_root()) else {
        return println!("skipped: needs root, and the memory controller in version 2 of control groups");
    };
    let dir = top.join(format!("mitra-kept-{}", std::process::id()));
    fs::create_dir(&dir).unwrap();
    rustix::fs::setxattr(&dir, "trusted.delegate", b"1", rustix::fs::XattrFlags::empty()).unwrap();
    let procs = File::options().write(true).open(dir.join("cgroup.procs")).unwrap();
    let mut command = again(".starts_greedy", &[]);
    // SAFETY: between fork and exec only a system call is made.
    unsafe { command.pre_exec(move || Ok(rustix::io::write(&procs, b"0").map(drop)?)) };
    let status = command.status().unwrap();
    let left = fs::read_dir(&dir).unwrap().flatten().filter(|entry| entry.path().is_dir()).count();
    _ = fs::remove_dir(dir.join("recorder"));
    _ = fs::remove_dir(&dir);
    assert!(status.success(), "{status}");
    assert_eq!(left, 1, "the group of the child is left");
}

fn starts_greedy() {
    let groups = Groups::find().unwrap();
    let own = fs::read_to_string("/proc/self/cgroup").unwrap();
    assert!(own.lines().any(|line| line.starts_with("0::") && line.ends_with("/recorder")), "{own}");
    let run = |bytes: u64| -> (ExitStatus, bool) {
        let group = groups.make(Limits { memory_bytes: BOUND, tasks: 16, cpu_weight: 20 }).unwrap();
        let mut command = again(".eats", &[&bytes.to_string()]);
        let child = Child { privileges: Privileges::None, bounds: &[], group: Some(&group) };
        prepare(&mut command, &child).unwrap();
        (command.status().unwrap(), group.ran_out_of_memory())
    };
    let (modest, ran_out) = run(BOUND / 4);
    assert!(modest.success() && !ran_out, "{modest}");
    let (greedy, ran_out) = run(BOUND * 2);
    assert!(greedy.signal() == Some(9) && ran_out, "{greedy} {ran_out}");
    // A second look finds the groups as this process left them: it is in one of its own already.
    assert!(Groups::find().is_ok());
    println!("ended alone: {greedy}");
}
