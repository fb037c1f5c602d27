//! The real programs, each with a data directory of its own.

use std::fs;
use std::io::Write as _;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::super::asker::{Asker, Look, Question, Said};
use super::super::server::Server;
use super::super::wire::Failure;
use super::super::{Program, Status};
use crate::file::Root;
use crate::io::Io;
use mitra_model::{Entity, Frame, Kind, NA, columns};

/// Planted in statements, keys, names and passwords.
pub const SECRET: &str = "hunter2hunter2";
pub const NOBODY: u32 = 65_534;
const START: Duration = Duration::from_secs(30);

/// A process that does not outlive the test.
pub struct Killed(pub Child);

impl Drop for Killed {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// The program, or the reason why there is no test.
pub fn found(name: &str) -> Option<PathBuf> {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: needs root");
        return None;
    }
    let dirs = std::env::var("PATH").unwrap_or_default();
    let mut dirs: Vec<PathBuf> = std::env::split_paths(&dirs).chain(["/usr/sbin".into()]).collect();
    for versions in fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten() {
        dirs.push(versions.path().join("bin"));
    }
    let found = dirs.iter().map(|dir| dir.join(name)).find(|path| path.exists());
    if found.is_none() {
        println!("skipped: {name} is not installed");
    }
    found
}

/// A directory that a server of another user can use.
pub fn folder(user: u32) -> tempfile::TempDir {
    let dir = tempfile::tempdir_in("/var/tmp").unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    chown(dir.path(), Some(user), Some(user)).unwrap();
    dir
}

pub fn quiet(command: &mut Command) -> &mut Command {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null())
}

pub fn until<T>(what: &str, mut of: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = of() {
            return found;
        }
        assert!(start.elapsed() < START, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A client program that is told statements one after the other.
fn client(command: &mut Command) -> Killed {
    Killed(command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
}

fn tell(client: &mut Killed, statement: &str) {
    let input = client.0.stdin.as_mut().unwrap();
    writeln!(input, "{statement}").unwrap();
    input.flush().unwrap();
}

/// What a server says to a thread that has not asked it before.
pub fn look(server: Server, clients: &[u32]) -> Look {
    let root = Root::open("/".as_ref()).unwrap();
    let question = Question { servers: vec![(server, true)], clients: clients.to_vec() };
    Asker::default().look(&root, &question).pop().unwrap()
}

/// The rows that a frame gets of it, as text. Nothing planted is in them, nor in the thread's answer.
pub fn rows(look: &Look) -> Vec<String> {
    assert!(!format!("{look:?}").contains(SECRET), "{look:?}");
    let status = Status::new(true);
    let (mut io, mut frame) = (Io::new(Root::open("/".as_ref()).unwrap()), Frame::new());
    match look.said.as_ref().unwrap() {
        Said::Sessions(said) => {
            said.iter().for_each(|one| status.fill_session(look, one, &mut io, &mut frame))
        }
        Said::Commands(said) => {
            said.iter().for_each(|one| status.fill_command(look, one, &mut io, &mut frame))
        }
        Said::Pools(said) => said.iter().for_each(|one| status.fill_pool(look, one, &mut io, &mut frame)),
    }
    let mut rows = Vec::new();
    for entity in [Entity::Session, Entity::Command, Entity::Pool] {
        for (key, row) in frame.table(entity).rows() {
            let cells = columns(entity).iter().zip(row).filter(|(_, cell)| **cell != NA);
            let cells = cells.map(|(metric, cell)| match metric.kind {
                Kind::Text => format!(" {}={}", metric.name, io.strings.cell(*cell).unwrap()),
                _ => format!(" {}={cell}", metric.name),
            });
            let name = mitra_model::frame::row_name(entity, key, &io.strings);
            rows.push(format!("{name}{} ", cells.collect::<String>()));
        }
    }
    assert!(!rows.join("\n").contains(SECRET), "{rows:?}");
    rows
}

/// The row of a session that waits for another one: its text, and the row of that one.
fn blocked(rows: &[String], prefix: &str) -> Option<(String, String)> {
    let waits = rows.iter().find(|row| row.contains(" session.blocked_by="))?;
    let blocker = waits.split(" session.blocked_by=").nth(1)?.split([' ', ',']).next()?;
    let name = format!("{prefix}{blocker} ");
    Some((waits.clone(), rows.iter().find(|row| row.starts_with(&name))?.clone()))
}

/// Users and capabilities of this thread, and whether others may look into it.
fn privileges() -> (Vec<String>, i32) {
    let status = fs::read_to_string("/proc/thread-self/status").unwrap();
    let lines =
        status.lines().filter(|line| ["Uid:", "Gid:", "Cap"].iter().any(|word| line.starts_with(word)));
    // SAFETY: takes and returns numbers.
    (lines.map(str::to_owned).collect(), unsafe { libc::prctl(libc::PR_GET_DUMPABLE) })
}

/// A server that stands still is given up within a time limit, and goes on afterwards.
pub fn stands_still(server: Server, limit: Duration) {
    let pid = rustix::process::Pid::from_raw(server.pid.cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::STOP).unwrap();
    let start = Instant::now();
    let said = look(server, &[]).said.map(drop);
    let took = start.elapsed();
    rustix::process::kill_process(pid, rustix::process::Signal::CONT).unwrap();
    assert_eq!(said, Err(Failure::Passing("no answer within the time limit".to_owned())));
    // The machine may be busy.
    assert!(took >= limit && took < limit + Duration::from_secs(10), "{took:?}");
}

fn mariadb(dir: &Path, port: u16) -> Option<(Killed, Server)> {
    let (server, install) = (found("mariadbd")?, found("mariadb-install-db")?);
    let data = dir.join("data");
    let mut command = Command::new(install);
    command.args([
        "--no-defaults",
        "--user=nobody",
        "--auth-root-authentication-method=socket",
        "--skip-test-db",
    ]);
    assert!(quiet(command.arg(format!("--datadir={}", data.display()))).status().unwrap().success());
    let mut command = Command::new(server);
    command.args(["--no-defaults", "--user=nobody", "--bind-address=127.0.0.1", "--skip-name-resolve"]);
    command.arg(format!("--datadir={}", data.display())).arg(format!("--port={port}"));
    command.arg(format!("--socket={}", dir.join("s.sock").display()));
    let server = Killed(quiet(&mut command).spawn().unwrap());
    let pid = server.0.id();
    let socket = dir.join("s.sock");
    until("mariadbd", || std::os::unix::net::UnixStream::connect(&socket).ok());
    Some((server, Server { pid, program: Program::MariaDb }))
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn mariadb_names_who_holds_a_row_and_nothing_of_a_statement() {
    let dir = folder(NOBODY);
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let Some((_server, server)) = mariadb(dir.path(), port) else { return };
    let socket = format!("--socket={}", dir.path().join("s.sock").display());
    let root = || {
        let mut command = Command::new("mariadb");
        command.args(["--no-defaults", "--unbuffered", "-u", "root"]).arg(&socket);
        command
    };
    let run = |sql: &str| assert!(quiet(root().args(["-e", sql])).status().unwrap().success(), "{sql}");
    run(&format!(
        "CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v TEXT) ENGINE = InnoDB; INSERT INTO d.t VALUES \
         (1, 'a'); CREATE USER '{SECRET}'@'127.0.0.1' IDENTIFIED BY '{SECRET}'; GRANT ALL ON d.* TO '{SECRET}'@'127.0.0.1'"
    ));
    let mut over_tcp = Command::new("mariadb");
    over_tcp.args(["--no-defaults", "--unbuffered", "-h", "127.0.0.1", "-u", SECRET]);
    let mut holder = client(over_tcp.arg(format!("-p{SECRET}")).arg(format!("-P{port}")));
    tell(&mut holder, &format!("BEGIN; UPDATE d.t SET v = '{SECRET}' WHERE id = 1;"));
    let mut waiter = client(&mut root());
    let found = until("a session that waits", || {
        tell(&mut waiter, &format!("UPDATE d.t SET v = '{SECRET}' WHERE id = 1;"));
        std::thread::sleep(Duration::from_millis(300));
        let look = look(server, &[holder.0.id()]);
        blocked(&rows(&look), &format!("{}:", server.pid))
    });
    let (waits, holds) = found;
    assert!(waits.contains(" session.activity=UPDATE waiting session.pid="), "{waits}");
    assert!(waits.contains(" session.waits_for=row lock "), "{waits}");
    assert!(holds.contains(" session.activity=idle in transaction "), "{holds}");
    assert!(holds.contains(&format!(" session.client_pid={} ", holder.0.id())), "{holds}");
    // A table that somebody changes waits for the same session, by the state of the connection.
    drop(waiter);
    let mut waiter = client(&mut root());
    tell(&mut waiter, "ALTER TABLE d.t ADD COLUMN w INT;");
    until("a session that waits for a table", || {
        rows(&look(server, &[])).into_iter().find(|row| {
            row.contains(" session.activity=ALTER waiting ") && row.contains("=table metadata lock ")
        })
    });
    drop((waiter, holder));
    stands_still(server, Duration::from_millis(500));
    // An account with a password is not tried.
    run(&format!("ALTER USER root@localhost IDENTIFIED BY '{SECRET}'"));
    let refused = look(server, &[]).said.map(drop);
    assert_eq!(refused, Err(Failure::Lasting("it does not let this user in (1045)".to_owned())));
}

/// A server of PostgreSQL that lets in whom `auth` says, and how its sessions begin.
fn postgres(dir: &Path, auth: &str, host: &str, port: u16) -> Option<(Killed, Server, impl Fn() -> Command)> {
    let (initdb, postgres, psql) = (found("initdb")?, found("postgres")?, found("psql")?);
    let (dir, host) = (dir.to_owned(), host.to_owned());
    let data = dir.join("data");
    let as_nobody = move |program: &Path| {
        let mut command = Command::new(program);
        command.uid(NOBODY).gid(NOBODY).current_dir(&dir).env("PGHOST", &host);
        command.env("PGPORT", port.to_string()).env("LC_ALL", "C");
        command
    };
    let mut init = as_nobody(&initdb);
    let made = quiet(init.args(["-U", "nobody", "-A", auth, "--no-sync", "-D"]).arg(&data)).status();
    assert!(made.unwrap().success());
    let mut command = as_nobody(&postgres);
    command.arg("-D").arg(&data).args(["-c", "dynamic_shared_memory_type=mmap"]);
    let (socket, listens) = if auth == "peer" { (data.parent()?.to_str()?, "") } else { ("", "127.0.0.1") };
    command.args(["-k", socket, "-c", &format!("listen_addresses={listens}")]);
    let running = Killed(quiet(&mut command).spawn().unwrap());
    let server = Server { pid: running.0.id(), program: Program::Postgres };
    let session = move || {
        let mut command = as_nobody(&psql);
        command.args(["-X", "-d", "postgres"]);
        command
    };
    until("postgres", || quiet(session().args(["-c", "SELECT 1"])).status().unwrap().success().then_some(()));
    Some((running, server, session))
}

/// Killed it would leave a segment of shared memory behind.
fn end(mut server: Killed) {
    let pid = rustix::process::Pid::from_child(&server.0);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    server.0.wait().unwrap();
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn postgresql_without_a_unix_socket_names_who_keeps_an_old_snapshot() {
    let dir = folder(NOBODY);
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let Some((running, server, session)) = postgres(dir.path(), "trust", "127.0.0.1", port) else { return };
    let run = |sql: &str| assert!(quiet(session().args(["-c", sql])).status().unwrap().success(), "{sql}");
    run("CREATE TABLE t (id int)");
    let mut holder = client(&mut session());
    tell(&mut holder, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT * FROM t;");
    let own = format!(" session.client_pid={} ", holder.0.id());
    let age = || {
        let rows = rows(&look(server, &[holder.0.id()]));
        let row = rows.iter().find(|row| row.contains(&own) && row.contains("idle in transaction"))?;
        row.split(" session.snapshot_age=").nth(1)?.split(' ').next()?.parse::<u64>().ok()
    };
    let before = until("a session with a snapshot", age);
    // Each is a transaction.
    for id in 0..12 {
        run(&format!("INSERT INTO t VALUES ({id})"));
    }
    assert_eq!(until("another age", age), before + 12);
    drop(holder);
    end(running);
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn postgresql_names_who_blocks_whom_and_nothing_of_a_statement() {
    let dir = folder(NOBODY);
    let data = dir.path().join("data");
    let place = dir.path().to_str().unwrap();
    let Some((running, server, session)) = postgres(dir.path(), "peer", place, 5432) else { return };
    let run = |sql: &str| assert!(quiet(session().args(["-c", sql])).status().unwrap().success(), "{sql}");
    run(&format!("CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, '{SECRET}')"));
    let before = privileges();
    let mut holder = client(&mut session());
    tell(&mut holder, &format!("BEGIN; UPDATE t SET v = '{SECRET}' WHERE id = 1;"));
    let mut waiter = client(&mut session());
    let (waits, holds) = until("a session that waits", || {
        tell(&mut waiter, &format!("UPDATE t SET v = '{SECRET}' WHERE id = 1;"));
        std::thread::sleep(Duration::from_millis(300));
        blocked(&rows(&look(server, &[])), "")
    });
    assert!(waits.contains(" session.activity=UPDATE waiting "), "{waits}");
    assert!(waits.contains(" session.waits_for=transactionid "), "{waits}");
    assert!(holds.contains(" session.activity=idle in transaction "), "{holds}");
    assert!(holds.contains(&format!(" session.server_pid={} ", server.pid)), "{holds}");
    // This thread is as it was.
    assert_eq!(privileges(), before);
    drop((waiter, holder));
    // A way in that wants a password is not tried.
    fs::write(data.join("pg_hba.conf"), "local all all scram-sha-256\n").unwrap();
    let pid = rustix::process::Pid::from_child(&running.0);
    rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
    until("the new way in", || {
        (!quiet(session().arg("-w").args(["-c", "SELECT 1"])).status().unwrap().success()).then_some(())
    });
    let refused = look(server, &[]).said.map(drop);
    assert_eq!(refused, Err(Failure::Lasting("it asks for more than who connects".to_owned())));
    stands_still(server, Duration::from_millis(500));
    end(running);
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn redis_names_the_command_that_takes_its_time_and_who_asks() {
    let (Some(redis), Some(cli)) = (found("redis-server"), found("redis-cli")) else { return };
    let dir = folder(0);
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let socket = dir.path().join("s.sock");
    let mut command = Command::new(&redis);
    command.args(["--port", &port, "--bind", "127.0.0.1", "--save", "", "--slowlog-log-slower-than", "1000"]);
    let running =
        Killed(quiet(command.arg("--unixsocket").arg(&socket)).current_dir(dir.path()).spawn().unwrap());
    let server = Server { pid: running.0.id(), program: Program::Redis };
    until("redis-server", || std::os::unix::net::UnixStream::connect(&socket).ok());
    let run = |words: &[&str]| {
        let mut command = Command::new(&cli);
        assert!(quiet(command.args(["-p", &port]).args(words)).status().unwrap().success());
    };
    run(&["eval", &format!("for i = 1, 200000 do redis.call('set', '{SECRET}' .. i, 'x') end"), "0"]);
    let mut asks = client(Command::new(&cli).args(["-p", &port]));
    let root = Root::open("/".as_ref()).unwrap();
    let mut asker = Asker::default();
    let found = until("a slow command", || {
        let question = Question { servers: vec![(server, true)], clients: vec![asks.0.id()] };
        let look = asker.look(&root, &question).pop();
        tell(&mut asks, &format!("KEYS *{SECRET}*9*"));
        std::thread::sleep(Duration::from_millis(950));
        let rows = rows(&look?);
        rows.into_iter().find(|row| row.contains(" command.longest="))
    });
    assert!(found.starts_with(&format!("{}:keys ", server.pid)), "{found}");
    assert!(found.contains(&format!(" command.client_pid={} ", asks.0.id())), "{found}");
    assert!(found.contains(" command.client=127.0.0.1:"), "{found}");
    stands_still(server, Duration::from_secs(3));
    // One without a Unix socket is asked over TCP.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let mut command = Command::new(&redis);
    command.args(["--port", &port, "--bind", "127.0.0.1", "--save", ""]);
    let plain = Killed(quiet(&mut command).current_dir(dir.path()).spawn().unwrap());
    let plain = Server { pid: plain.0.id(), program: Program::Redis };
    until("an answer over TCP", || look(plain, &[]).said.ok());
    run(&["config", "set", "requirepass", SECRET]);
    let refused = look(server, &[]).said.map(drop);
    assert_eq!(refused, Err(Failure::Lasting("it asks for a password (NOAUTH)".to_owned())));
}
