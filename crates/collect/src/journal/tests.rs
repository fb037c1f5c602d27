//! The real journald, in a namespace of its own beside that of the machine.

use std::fs;
use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::*;
use crate::log_tail::Said;

const START: Duration = Duration::from_secs(30);
const LINE: &str = "2026/11/24 15:02:11 [alert] 8#8: 64 worker_connections are not enough";

/// A process that does not outlive the test.
pub struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// journald, and what it leaves behind.
pub struct Journald {
    name: String,
    running: Option<Killed>,
}

impl Journald {
    pub fn start(test: &str) -> Option<Journald> {
        let programs = ["/usr/lib/systemd/systemd-journald", "/lib/systemd/systemd-journald"];
        let Some(program) = programs.into_iter().find(|path| Path::new(path).exists()) else {
            println!("skipped: systemd-journald is not installed");
            return None;
        };
        if !rustix::process::geteuid().is_root() {
            println!("skipped: needs root");
            return None;
        }
        let name = format!("mitra-{test}-{}", std::process::id());
        let mut command = Command::new(program);
        command.arg(&name).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut journald = Journald { name, running: None };
        journald.running = Some(Killed(command.spawn().unwrap()));
        until("journald", || UnixStream::connect(journald.socket("stdout")).ok());
        Some(journald)
    }

    fn socket(&self, name: &str) -> PathBuf {
        format!("/run/systemd/journal.{}/{name}", self.name).into()
    }

    fn stdout(&self) -> Stdio {
        self.stdout_of("")
    }

    /// What a unit has as its standard output. Of root journald believes which one that is.
    pub fn stdout_of(&self, unit: &str) -> Stdio {
        let mut stream = UnixStream::connect(self.socket("stdout")).unwrap();
        stream.write_all(format!("test\n{unit}\n6\n0\n0\n0\n0\n").as_bytes()).unwrap();
        OwnedFd::from(stream).into()
    }

    /// The names of its files.
    pub fn files(&self) -> Vec<String> {
        let machine = fs::read_to_string("/etc/machine-id").unwrap_or_default();
        let folder = |folder: &&str| format!("/{folder}/{}.{}", machine.trim(), self.name);
        let folders = FOLDERS.iter().map(folder).filter_map(|folder| fs::read_dir(folder).ok());
        folders.flatten().flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }

    /// Has it finish its files and begin others.
    pub fn rotate(&self) {
        let pid =
            self.running.as_ref().and_then(|running| rustix::process::Pid::from_raw(running.0.id() as i32));
        rustix::process::kill_process(pid.unwrap(), rustix::process::Signal::USR2).unwrap();
    }

    /// How many messages of a process have this in them, by its own program.
    pub fn has(&self, field: &str, text: &str) -> u64 {
        let mut command = Command::new("journalctl");
        command.args(["--namespace", &self.name, "-o", "cat", "--no-pager", field]);
        let said = command.stderr(Stdio::null()).output().unwrap().stdout;
        String::from_utf8_lossy(&said).lines().filter(|line| line.contains(text)).count() as u64
    }
}

impl Drop for Journald {
    fn drop(&mut self) {
        self.running = None;
        let machine = fs::read_to_string("/etc/machine-id").unwrap_or_default();
        for folder in FOLDERS {
            _ = fs::remove_dir_all(format!("/{folder}/{}.{}", machine.trim(), self.name));
        }
        _ = fs::remove_dir_all(format!("/run/systemd/journal.{}", self.name));
    }
}

/// A cgroup, which is gone once its processes have ended.
struct Removed(PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        let start = Instant::now();
        while fs::remove_dir(&self.0).is_err() && start.elapsed() < START {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

pub fn until<T>(what: &str, mut of: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = of() {
            return found;
        }
        assert!(start.elapsed() < START, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Looks again and again for the same processes.
struct Looks {
    root: Root,
    journals: Journals,
    pids: Vec<u64>,
    now_s: u64,
}

impl Looks {
    fn of(pids: &[u64]) -> Looks {
        let root = Root::open("/".as_ref()).unwrap();
        let mut looks = Looks { root, journals: Journals::default(), pids: pids.to_vec(), now_s: 100 };
        looks.next();
        looks
    }

    fn next(&mut self) -> Look {
        let mut look = Look::default();
        self.now_s += 1;
        self.journals.look(&self.root, &self.pids, self.now_s, &mut look);
        assert!(look.denied.is_none(), "{look:?}");
        look
    }

    fn lines(&mut self) -> u64 {
        self.next().said.iter().map(|said| said.lines).sum()
    }
}

/// A shell under the name of a program that writes a line for each one that it is told.
pub fn program(dir: &Path, name: &str, script: &str, output: Stdio) -> (Killed, u64) {
    if !dir.join(name).exists() {
        fs::copy("/bin/sh", dir.join(name)).unwrap();
    }
    let mut command = Command::new(dir.join(name));
    command.args(["-c", script]).stdin(Stdio::piped()).stdout(output);
    // A process that another test starts may still have the copy open for writing.
    let child = Killed(until("the copy", || command.spawn().ok()));
    let pid = u64::from(child.0.id());
    until("its name", || {
        (fs::read_to_string(format!("/proc/{pid}/comm")).unwrap().trim() == name).then_some(())
    });
    (child, pid)
}

pub fn tell(child: &mut Killed, line: &str) {
    writeln!(child.0.stdin.as_mut().unwrap(), "{line}").unwrap();
}

const ECHO: &str = "while read -r line; do echo \"$line\"; done";

#[test]
#[ignore = "needs root: make test-kernel"]
fn nginx_says_to_journald_that_its_connections_are_not_enough() {
    let Some(journald) = Journald::start("nginx") else { return };
    if !Path::new("/usr/sbin/nginx").exists() {
        return println!("skipped: nginx is not installed");
    }
    let syslog = format!("syslog:server=unix:{}", journald.socket("dev-log").display());
    for (error_log, has_host) in
        [("stderr".to_owned(), false), (format!("{syslog},nohostname"), false), (syslog, true)]
    {
        let dir = tempfile::tempdir_in("/var/tmp").unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let configuration = format!(
            "daemon off; pid {0}/pid; error_log {error_log} info; events {{ worker_connections 8; }} http {{ access_log \
             off; client_body_temp_path {0}/b; proxy_temp_path {0}/p; fastcgi_temp_path {0}/f; uwsgi_temp_path \
             {0}/u; scgi_temp_path {0}/s; server {{ listen 127.0.0.1:{port}; }} }}",
            dir.path().display()
        );
        fs::write(dir.path().join("nginx.conf"), configuration).unwrap();
        let mut command = Command::new("/usr/sbin/nginx");
        command.arg("-c").arg(dir.path().join("nginx.conf")).arg("-p").arg(dir.path());
        let nginx = Killed(
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(journald.stdout()).spawn().unwrap(),
        );
        until("nginx", || TcpStream::connect(("127.0.0.1", port)).ok());
        let master = nginx.0.id();
        let workers = fs::read_to_string(format!("/proc/{master}/task/{master}/children")).unwrap();
        let mut pids = vec![u64::from(master)];
        pids.extend(workers.split_whitespace().map(|pid| pid.parse::<u64>().unwrap()));
        let mut looks = Looks::of(&pids);
        // Half a request keeps a connection from being used for another client, once it is read.
        let clients: Vec<_> = (0..30)
            .filter_map(|_| {
                let mut client = TcpStream::connect(("127.0.0.1", port)).ok()?;
                client.write_all(b"GET / HTTP/1.1\r\n").ok()?;
                std::thread::sleep(Duration::from_millis(30));
                Some(client)
            })
            .collect();
        let worker = format!("_PID={}", pids[1]);
        let mut lines = 0;
        until("lines", || {
            let look = looks.next();
            for said in look.said {
                assert_eq!((&*said.comm, said.kind), ("nginx", "worker_connections"));
                assert!(pids.contains(&said.pid));
                lines += said.lines;
            }
            let said = journald.has(&worker, "8 worker_connections are not enough");
            (look.logs == 1 && lines >= 5 && lines == said).then_some(())
        });
        assert_eq!(journald.has(&worker, " nginx: 20") > 0, has_host);
        assert_eq!(looks.lines(), 0);
        drop((clients, nginx));
        // The master ends them, and has no time for it.
        for pid in pids.iter().skip(1).filter_map(|pid| rustix::process::Pid::from_raw(*pid as i32)) {
            _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn who_claims_to_be_another_process_or_sends_junk_is_not_heard() {
    let Some(journald) = Journald::start("hostile") else { return };
    let dir = tempfile::tempdir().unwrap();
    let (mut nginx, pid) = program(dir.path(), "nginx", ECHO, journald.stdout());
    let mut looks = Looks::of(&[pid]);
    let expect = |looks: &mut Looks, nginx: &mut Killed, what: &str| {
        tell(nginx, LINE);
        let mut lines = 0;
        until(what, || {
            lines += looks.lines();
            (lines > 0).then_some(())
        });
        // What comes behind the line has been written by then, or comes before the next one.
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(lines + looks.lines(), 1, "{what}");
    };
    expect(&mut looks, &mut nginx, "the line itself");
    let native = UnixDatagram::unbound().unwrap();
    native.connect(journald.socket("socket")).unwrap();
    native
        .send(
            format!(
                "_PID={pid}\n_COMM=nginx\nOBJECT_PID={pid}\nSYSLOG_PID={pid}\nPRIORITY=1\nMESSAGE={LINE}\n"
            )
            .as_bytes(),
        )
        .unwrap();
    let mut binary = b"MESSAGE\n".to_vec();
    let text = format!("{LINE}\n_PID={pid}\n\0\x1b[2J");
    binary.extend((text.len() as u64).to_le_bytes());
    binary.extend(text.as_bytes());
    binary.push(b'\n');
    native.send(&binary).unwrap();
    let syslog = UnixDatagram::unbound().unwrap();
    syslog.connect(journald.socket("dev-log")).unwrap();
    syslog.send(format!("<1>Nov 24 15:02:11 nginx[{pid}]: {LINE}").as_bytes()).unwrap();
    // A program of the same name that is not asked for.
    let (mut other, _) = program(dir.path(), "nginx", ECHO, journald.stdout());
    tell(&mut other, LINE);
    expect(&mut looks, &mut nginx, "claims");
    let many = (0..1000).map(|nth| format!("F{nth}={nth}\n")).collect::<String>();
    native.send(format!("{many}MESSAGE={LINE}\n").as_bytes()).unwrap();
    native.send(&[format!("MESSAGE={LINE} ").into_bytes(), vec![b'x'; 100_000]].concat()).unwrap();
    let mut random = 1_u32;
    for _ in 0..200 {
        random = random.wrapping_mul(747_796_405).wrapping_add(2_891_336_453);
        let junk: Vec<u8> = (0..300_u32).map(|at| (random.wrapping_mul(at | 1) >> 13) as u8).collect();
        native.send(&junk).unwrap();
    }
    expect(&mut looks, &mut nginx, "junk");
    // Its own lines without sense: one without end, and binary ones.
    let input = nginx.0.stdin.as_mut().unwrap();
    input.write_all(&[b"x".repeat(200_000), b"\n\x1b[31m\xff\xfe\n".to_vec()].concat()).unwrap();
    expect(&mut looks, &mut nginx, "lines without sense");
    assert_eq!(journald.has(&format!("_PID={pid}"), "not enough"), 4);
    assert!(journald.has("_TRANSPORT=journal", "not enough") >= 2, "the others have come");
    // More than is read in a look.
    let many = format!("{LINE}\n").repeat(3_000);
    nginx.0.stdin.as_mut().unwrap().write_all(many.as_bytes()).unwrap();
    until("all lines", || (journald.has(&format!("_PID={pid}"), "not enough") >= 3_000).then_some(()));
    let look = looks.next();
    assert_eq!(look.said.iter().map(|said| said.lines).sum::<u64>(), u64::from(ENTRIES_MAX));
    // Nothing of a message is kept.
    assert!(!format!("{look:?} {:?}", looks.journals.files).contains("not enough"));
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn a_session_that_has_gone_is_heard_by_its_unit() {
    let Some(journald) = Journald::start("unit") else { return };
    let hierarchies = ["/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified", "/sys/fs/cgroup"];
    let Some(top) = hierarchies.into_iter().find(|dir| Path::new(dir).join("cgroup.procs").exists()) else {
        return println!("skipped: no hierarchy that systemd uses");
    };
    let name = format!("mitra-test-{}.service", std::process::id());
    let unit = Path::new(top).join(&name);
    if let Err(error) = fs::create_dir(&unit) {
        return println!("skipped: {}: {error}", unit.display());
    }
    let _removed = Removed(unit.clone());
    let dir = tempfile::tempdir().unwrap();
    // A child says it, and ends.
    let script = "while read -r line; do (echo \"$line\"; exit 0); done";
    let (mut server, pid) = program(dir.path(), "postgres", script, journald.stdout_of(&name));
    let (mut other, _) = program(dir.path(), "postgres", script, journald.stdout_of("other.service"));
    fs::write(unit.join("cgroup.procs"), pid.to_string()).unwrap();
    let mut looks = Looks::of(&[pid]);
    let line = "2026-11-24 15:02:11.401 UTC [812] FATAL:  sorry, too many clients already";
    tell(&mut other, line);
    until("the other", || (journald.has("_SYSTEMD_UNIT=other.service", "too many") == 1).then_some(()));
    assert_eq!(looks.lines(), 0, "of another unit");
    tell(&mut server, line);
    let said = until("its line", || looks.next().said.pop());
    assert_eq!(said, Said { comm: "postgres".to_owned(), kind: "max_connections", pid, lines: 1 });
    assert_eq!(journald.has(&format!("_PID={pid}"), "too many"), 0, "it was a child");
}

#[test]
fn more_files_than_are_read_are_told_of() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("var/log/journal/abc");
    fs::create_dir_all(&folder).unwrap();
    fs::create_dir(dir.path().join("etc")).unwrap();
    fs::write(dir.path().join("etc/machine-id"), "abc\n").unwrap();
    let root = Root::open(dir.path()).unwrap();
    let found = |names: usize| {
        (1..names).for_each(|uid| fs::write(folder.join(format!("user-{uid}.journal")), "").unwrap());
        fs::write(folder.join("system.journal"), "").unwrap();
        let (files, is_cut) = files(&root);
        (files.len(), is_cut)
    };
    assert_eq!(found(FILES_MAX), (FILES_MAX, false));
    assert_eq!(found(FILES_MAX + 1), (FILES_MAX, true));
    assert!(more_files().to_string().contains("more than 16 files"));
}

#[test]
fn the_unit_is_the_one_that_systemd_made() {
    let of = |text: &str| service_of(text);
    let nginx = Some("nginx.service".to_owned());
    assert_eq!(of("0::/system.slice/nginx.service/workers\n"), nginx);
    assert_eq!(of("4:memory:/docker/x.service\n1:name=systemd:/system.slice/nginx.service\n"), nginx);
    assert_eq!(of("0::/user.slice/user-1000.slice/session-4.scope\n"), None);
    assert_eq!(of("0::/user.slice/user-1000.slice/user@1000.service/app.slice/a.service\n"), None);
    assert_eq!(of("0::/\n"), None);
}

#[test]
fn the_name_of_the_host_is_no_part_of_a_message() {
    let behind = |text: &'static str| std::str::from_utf8(behind_the_host(text.as_bytes(), "nginx")).unwrap();
    assert_eq!(behind("db1 nginx: 2026/11/24"), "2026/11/24");
    for text in
        ["db1 nginxd: 2026", "10.0.0.7 - nginx: 2026", "2026/11/24 15:02:11 [alert]", "nginx: 2026", ""]
    {
        assert_eq!(behind(text), text);
    }
}
