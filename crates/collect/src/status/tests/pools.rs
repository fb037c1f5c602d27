//! The real HAProxy and PHP-FPM.

use std::fs;
use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::super::Program;
use super::super::fpm;
use super::super::server::Server;
use super::super::wire::Failure;
use super::real::{Killed, NOBODY, SECRET, folder, found, look, quiet, rows, stands_still, until};

fn port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn children(pid: u32) -> Vec<u32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    children.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
}

/// A master that ends its workers when it is told to.
struct Master(Killed);

impl Drop for Master {
    fn drop(&mut self) {
        let own = rustix::process::Pid::from_child(&self.0.0);
        _ = rustix::process::kill_process(own, rustix::process::Signal::TERM);
        _ = self.0.0.wait();
    }
}

fn haproxy(dir: &Path, stats: &str, port: u16, behind: u16) -> Option<(Master, Server)> {
    let program = found("haproxy")?;
    let own = dir.display();
    fs::create_dir_all(dir.join("empty")).unwrap();
    let configuration = format!(
        "global\n  {stats}\n  maxconn 50\n  chroot {own}/empty\n  uid {NOBODY}\n  gid {NOBODY}\n  description {SECRET}\n\
         defaults\n  mode http\n  timeout connect 5s\n  timeout client 60s\n  timeout server 60s\n  timeout queue 60s\n\
         frontend web\n  bind unix@{own}/web.sock\n  bind 127.0.0.1:{port}\n  default_backend app\n\
         backend app\n  server one 127.0.0.1:{behind} maxconn 2\n"
    );
    fs::write(dir.join("haproxy.cfg"), configuration).unwrap();
    let mut command = Command::new(program);
    command.arg("-W").arg("-f").arg(dir.join("haproxy.cfg"));
    let master = Master(Killed(quiet(&mut command).spawn().unwrap()));
    let pid = until("haproxy", || {
        TcpStream::connect(("127.0.0.1", port)).ok()?;
        children(master.0.0.id()).first().copied()
    });
    Some((master, Server { pid, program: Program::HaProxy }))
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn haproxy_says_who_waits_for_a_server_at_its_maxconn() {
    let dir = folder(0);
    let behind = TcpListener::bind("127.0.0.1:0").unwrap();
    let (own, behind_port) = (port(), behind.local_addr().unwrap().port());
    let stats = format!("stats socket {}/admin.sock mode 600 level user", dir.path().display());
    let Some((master, server)) = haproxy(dir.path(), &stats, own, behind_port) else { return };
    // Who is behind takes what comes, and answers nothing.
    let clients: Vec<TcpStream> = (0..5)
        .map(|_| {
            let mut client = TcpStream::connect(("127.0.0.1", own)).unwrap();
            client.write_all(format!("GET /{SECRET} HTTP/1.0\r\n\r\n").as_bytes()).unwrap();
            client
        })
        .collect();
    let all = until("a queue", || {
        let rows = rows(&look(server, &[]));
        rows.iter().any(|row| row.contains(" pool.queue=3 ")).then_some(rows)
    });
    let row =
        |name: &str| all.iter().find(|row| row.starts_with(&format!("{}:{name} ", server.pid))).unwrap();
    assert!(row("app/one").contains(" pool.used=2 pool.max=2 pool.queue=0 "), "{all:?}");
    assert!(row("app/BACKEND").contains(" pool.used=5 pool.queue=3 "), "{all:?}");
    // Nothing was sent to its frontend, which is a socket as well.
    assert!(row("web/FRONTEND").contains(" pool.used=5 "), "{all:?}");
    assert!(row("process").contains(" pool.max=50 "), "{all:?}");
    assert!(row("process").contains(" pool.server=haproxy "), "{all:?}");
    drop(clients);
    stands_still(server, Duration::from_millis(500));
    drop(master);
    // Without a stats socket nothing is asked.
    let Some((_master, server)) = haproxy(dir.path(), "log 127.0.0.1:1 local0", port(), behind_port) else {
        return;
    };
    let refused = look(server, &[]).said.map(drop);
    let why = "its configuration names no stats socket on a path";
    assert_eq!(refused, Err(Failure::Lasting(why.to_owned())));
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn php_fpm_says_how_many_wait_for_a_worker() {
    let versions = fs::read_dir("/usr/sbin").into_iter().flatten().flatten();
    let mut names = versions.filter_map(|entry| entry.file_name().into_string().ok());
    let Some(name) = names.find(|name| name.starts_with("php-fpm")) else {
        return println!("skipped: php-fpm is not installed");
    };
    let Some(program) = found(&name) else { return };
    let dir = folder(NOBODY);
    let (own, port) = (dir.path().display(), port());
    fs::create_dir(dir.path().join("pool.d")).unwrap();
    fs::write(dir.path().join("sleep.php"), "<?php sleep(60);").unwrap();
    let pool = |name: &str, rest: String| {
        let text = format!(
            "[{name}]\nuser = {NOBODY}\ngroup = {NOBODY}\npm = static\npm.status_path = /status\nenv[KEY] = {SECRET}\n{rest}\n"
        );
        fs::write(dir.path().join(format!("pool.d/{name}.conf")), text).unwrap();
    };
    pool("www", format!("listen = 127.0.0.1:{port}\npm.status_listen = {own}/s.sock\npm.max_children = 2"));
    pool("idle", format!("listen = {own}/$pool.sock\npm.max_children = 1"));
    pool("taken", format!("listen = {own}/$pool.sock ; busy\npm.max_children = 1"));
    let main = format!("[global]\nerror_log = {own}/log\ndaemonize = no\ninclude = {own}/pool.d/*.conf\n");
    fs::write(dir.path().join("fpm.conf"), main).unwrap();
    let mut command = Command::new(program);
    command.args(["--allow-to-run-as-root", "--fpm-config"]).arg(dir.path().join("fpm.conf"));
    let master = Master(Killed(quiet(&mut command).spawn().unwrap()));
    let server = Server { pid: master.0.0.id(), program: Program::PhpFpm };
    until("php-fpm", || UnixStream::connect(dir.path().join("idle.sock")).ok());
    let question = fpm::tests::question_of(&dir.path().join("sleep.php").display().to_string());
    let clients: Vec<TcpStream> = (0..5)
        .map(|_| {
            let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
            client.write_all(&question).unwrap();
            client
        })
        .collect();
    let mut taken = UnixStream::connect(dir.path().join("taken.sock")).unwrap();
    taken.write_all(&question).unwrap();
    let all = until("a queue", || {
        let rows = rows(&look(server, &[]));
        rows.iter().any(|row| row.contains(" pool.queue=3 ")).then_some(rows)
    });
    let row = |name: &str| all.iter().find(|row| row.starts_with(&format!("{}:{name} ", server.pid)));
    assert!(row("www").unwrap().contains(" pool.used=2 pool.max=2 pool.queue=3 "), "{all:?}");
    // It cannot tell what waits at a Unix socket, and the worker that answers is not one that is taken.
    let idle = row("idle").unwrap();
    assert!(idle.contains(" pool.used=0 pool.max=1 pool.reached=0 "), "{all:?}");
    assert_eq!(row("taken"), None, "nobody is left who could answer");
    drop((clients, taken));
}
