//! Parts of services: a proxy, workers behind it, a database, and their clients.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;

use crate::incident::{Stop, WithPath};
use crate::machine;
use crate::stage::{Isolation, ProcessHandle, Stage, Victim};

const WORKER: &str = include_str!("worker.py");
/// A server that does not listen after this time never will.
const START_S: u64 = 20;
/// The user `nobody`. Databases refuse to run as root.
pub const NOBODY: u32 = 65_534;

/// An address of this host that was free a moment ago.
pub fn free_address() -> Result<String, Stop> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string())
}

/// Waits until something listens, at an address or at a Unix socket.
pub fn wait_for_server(
    stage: &mut Stage,
    server: ProcessHandle,
    address: &str,
    place: &Isolation<'_>,
) -> Result<(), Stop> {
    let to = address.parse::<SocketAddr>();
    let try_it = || match &to {
        Ok(to) => TcpStream::connect_timeout(to, Duration::from_millis(300)).is_ok(),
        Err(_) => UnixStream::connect(address).is_ok(),
    };
    stage.wait_for(address, START_S, |stage| {
        let answers = place.netns.map_or_else(|| Ok(try_it()), |netns| netns.inside(try_it));
        answers.unwrap_or(false) || stage.ended(server).is_some()
    })?;
    stage.must_run(server, address)
}

/// A Python server: some processes with some threads each.
#[derive(Clone, Debug)]
pub struct App {
    /// The first process.
    pub handle: ProcessHandle,
    /// The name of all its processes.
    pub name: String,
    /// Where it listens.
    pub address: String,
    manners: PathBuf,
}

/// How many processes and threads a server in Python has.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Processes that accept on one socket.
    pub processes: u64,
    /// Threads of each.
    pub threads: u64,
}

impl App {
    /// Starts it under a drawn name, and waits until it listens. `manners` has a line for each step
    /// of a request; see `worker.py`.
    pub fn start(
        stage: &mut Stage,
        place: &Isolation<'_>,
        address: String,
        size: Size,
        manners: &str,
    ) -> Result<Self, Stop> {
        let name = stage.draw().name();
        Self::start_as(stage, place, address, size, manners, name)
    }

    /// The same under the given name.
    pub fn start_as(
        stage: &mut Stage,
        place: &Isolation<'_>,
        address: String,
        size: Size,
        manners: &str,
        name: String,
    ) -> Result<Self, Stop> {
        // A script started through its shebang line keeps its own name. A shim in front of Python
        // would replace it.
        let python = ["/usr/bin/python3", "/usr/local/bin/python3"].map(PathBuf::from);
        let python = python.into_iter().find(|p| p.exists()).or_else(|| machine::which("python3"));
        let python = python.ok_or_else(|| Stop::Skipped("python3 is not installed".into()))?;
        let script = stage.dir().join(&name);
        if !script.exists() {
            fs::write(&script, format!("#!{}\n{WORKER}", python.display())).at(&script)?;
            fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).at(&script)?;
        }
        let file = stage
            .dir()
            .join(format!("{name}-{}.conf", address.rsplit([':', '/']).next().unwrap_or_default()));
        fs::write(&file, manners).at(&file)?;
        let mut command = Command::new(&script);
        command.args([&address, &size.processes.to_string(), &size.threads.to_string()]).arg(&file);
        let handle = stage.spawn_in(&mut command, place)?;
        wait_for_server(stage, handle, &address, place)?;
        Ok(Self { handle, name, address, manners: file })
    }

    /// Changes its behaviour from the next request on.
    pub fn behave(&self, manners: &str) -> Result<(), Stop> {
        let fresh = self.manners.with_extension("new");
        fs::write(&fresh, manners).at(&fresh)?;
        fs::rename(&fresh, &self.manners).at(&self.manners)
    }

    /// Pids of its processes.
    pub fn pids(&self) -> Vec<u32> {
        family(self.handle.pid())
    }
}

/// A process and its children.
pub fn family(pid: u32) -> Vec<u32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let children = children.split_whitespace().filter_map(|word| word.parse().ok());
    [pid].into_iter().chain(children).collect()
}

/// An nginx in front of some servers.
#[derive(Clone, Debug)]
pub struct Proxy {
    /// The master process.
    pub handle: ProcessHandle,
    /// Where it listens.
    pub address: String,
    /// Its error log.
    pub error_log: PathBuf,
}

impl Proxy {
    /// Starts it with `connections` connections for its one worker.
    pub fn start(
        stage: &mut Stage,
        place: &Isolation<'_>,
        address: String,
        connections: u64,
        behind: &[&App],
    ) -> Result<Self, Stop> {
        let servers: Vec<String> =
            behind.iter().map(|app| format!("server {} max_fails=0;", app.address)).collect();
        let location = "proxy_pass http://behind; proxy_connect_timeout 2s;";
        let upstream = format!("upstream behind {{ {} }}", servers.join(" "));
        Self::start_as(stage, place, address, connections, (&upstream, "", location))
    }

    /// The same with extra configuration for the upstream, the server and the location.
    pub fn start_with(
        stage: &mut Stage,
        place: &Isolation<'_>,
        address: String,
        connections: u64,
        server: &str,
        location: &str,
    ) -> Result<Self, Stop> {
        Self::start_as(stage, place, address, connections, ("", server, location))
    }

    fn start_as(
        stage: &mut Stage,
        place: &Isolation<'_>,
        address: String,
        connections: u64,
        words: (&str, &str, &str),
    ) -> Result<Self, Stop> {
        let dir = stage.dir().join(format!("proxy-{}", address.rsplit(':').next().unwrap_or_default()));
        fs::create_dir_all(&dir).at(&dir)?;
        let (file, error_log) = (dir.join("nginx.conf"), dir.join("error.log"));
        fs::write(&file, proxy_config(&dir, &address, connections, words)).at(&file)?;
        let nginx = machine::which("nginx").ok_or_else(|| Stop::Skipped("nginx is not installed".into()))?;
        let mut command = Command::new(nginx);
        command.arg("-p").arg(&dir).arg("-e").arg(&error_log).arg("-c").arg(&file);
        let handle = stage.spawn_in(&mut command, place)?;
        wait_for_server(stage, handle, &address, place)?;
        Ok(Self { handle, address, error_log })
    }

    /// Pids of its processes.
    pub fn pids(&self) -> Vec<u32> {
        family(self.handle.pid())
    }
}

/// All files of nginx stay in the directory of the stage. nginx skips a server that does not answer
/// for this request only, because it may be back at the next.
fn proxy_config(dir: &Path, address: &str, connections: u64, words: (&str, &str, &str)) -> String {
    let (dir, (upstream, server, location)) = (dir.display(), words);
    let temp = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let temp: String = temp.iter().map(|kind| format!("    {kind}_temp_path {dir}/{kind};\n")).collect();
    format!(
        "daemon off;\nuser root;\npid {dir}/pid;\nworker_processes 1;\nevents {{ worker_connections {connections}; }}\n\
         http {{\n{temp}    access_log {dir}/access.log;\n    {upstream}\n    server {{\n        listen {address} backlog=511;\n        \
         {server}\n        location / {{ {location} }}\n    }}\n}}\n"
    )
}

/// A client that repeats a request.
pub struct Asks<'a> {
    /// Milliseconds between an answer and the next request.
    pub every_ms: u64,
    /// Milliseconds after which a request counts as failed.
    pub patience_ms: u64,
    /// The requested path.
    pub path: &'a str,
    /// Whether it keeps one connection.
    pub keeps: bool,
}

impl Asks<'_> {
    /// Starts the client.
    pub fn start(&self, stage: &mut Stage, place: &Isolation<'_>, address: &str) -> Result<Victim, Stop> {
        let Self { every_ms, patience_ms, path, keeps } = self;
        let keeps = if *keeps { "keep" } else { "close" };
        let name = stage.draw().name();
        stage.role(&name, "http-ask", format!("{address} {every_ms} {patience_ms} {path} {keeps}"), place)
    }
}

/// Clients that arrive at a fixed rate, whether or not earlier ones are answered.
pub struct Crowd {
    /// The process that plays all of them.
    pub client: Victim,
    rate: PathBuf,
}

impl Crowd {
    /// Starts them at `per_s` requests a second.
    pub fn start(
        stage: &mut Stage,
        place: &Isolation<'_>,
        address: &str,
        per_s: f64,
        patience_ms: u64,
        path: &str,
    ) -> Result<Self, Stop> {
        let name = stage.draw().name();
        let rate = stage.dir().join(format!("{name}.rate"));
        fs::write(&rate, per_s.to_string()).at(&rate)?;
        let argument = format!("{address} {} {patience_ms} {path}", rate.display());
        let client = stage.role(&name, "http-crowd", argument, place)?;
        Ok(Self { client, rate })
    }

    /// Changes the rate of requests.
    pub fn come(&self, per_s: f64) -> Result<(), Stop> {
        let fresh = self.rate.with_extension("new");
        fs::write(&fresh, per_s.to_string()).at(&fresh)?;
        fs::rename(&fresh, &self.rate).at(&self.rate)
    }
}

/// A PostgreSQL with a data directory of its own.
pub struct Postgres {
    /// The postmaster.
    pub handle: ProcessHandle,
    /// Its address as a client's argument: a Unix socket, or host and port.
    pub at: String,
    dir: PathBuf,
    port: String,
}

impl Postgres {
    /// Creates and starts it with some settings, `NAME=VALUE`, and fills the tables of pgbench.
    /// Listens on TCP, or else only on a Unix socket.
    pub fn start(stage: &mut Stage, scale: u64, over_tcp: bool, settings: &[&str]) -> Result<Self, Stop> {
        let dir = stage.dir().to_owned();
        Self::start_at(stage, &dir, scale, over_tcp, settings)
    }

    /// The same with its data on a separate file system.
    pub fn start_at(
        stage: &mut Stage,
        at: &Path,
        scale: u64,
        over_tcp: bool,
        settings: &[&str],
    ) -> Result<Self, Stop> {
        let data = at.join("data");
        fs::create_dir_all(&data).at(&data)?;
        for path in [stage.dir(), &data] {
            chown(path, Some(NOBODY), Some(NOBODY)).at(path)?;
        }
        let dir = stage.dir().to_owned();
        let address = free_address()?;
        let port = address.rsplit(':').next().unwrap_or("5432").to_owned();
        let mut init = Self::tool("initdb", &dir, &port)?;
        init.args(["-U", "lab", "-A", "trust", "--no-sync", "-D"]).arg(&data);
        stage.run(&mut init).map_err(|e| Stop::Skipped(format!("initdb: {e}")))?;
        let listens = if over_tcp { "listen_addresses=127.0.0.1" } else { "listen_addresses=" };
        let mut server = Self::tool("postgres", &dir, &port)?;
        // Its shared memory is in its directory and is always removed with it.
        server.arg("-D").arg(&data).args(["-c", listens, "-c", "dynamic_shared_memory_type=mmap"]);
        server.args(["-p", &port, "-k"]).arg(&dir).args(settings.iter().flat_map(|setting| ["-c", setting]));
        let handle = stage.spawn(&mut server)?;
        let socket = dir.join(format!(".s.PGSQL.{port}"));
        let at = if over_tcp { address } else { socket.display().to_string() };
        let database = Self { handle, at, dir, port };
        stage.wait_for("postgres", START_S, |stage| {
            let mut ready = database.command("pg_isready").ok();
            ready.as_mut().is_some_and(|c| machine::run(c).is_ok()) || stage.ended(handle).is_some()
        })?;
        stage.must_run(handle, "postgres")?;
        // As in distributions: the server's user is its superuser too.
        stage.run(database.command("psql")?.args([
            "-qc",
            "CREATE ROLE nobody SUPERUSER LOGIN",
            "postgres",
        ]))?;
        let mut fill = database.command("pgbench")?;
        stage.run(fill.args(["-i", "-q", "-s", &scale.to_string(), "postgres"]))?;
        Ok(database)
    }

    fn tool(name: &str, dir: &Path, port: &str) -> Result<Command, Stop> {
        let path = machine::which(name).ok_or_else(|| Stop::Skipped(format!("{name} is not installed")))?;
        let mut command = Command::new(path);
        command.uid(NOBODY).gid(NOBODY).env("LC_ALL", "C").env("PGUSER", "lab");
        command.env("PGHOST", dir).env("PGPORT", port).current_dir(dir);
        Ok(command)
    }

    /// A client program with its connection arguments.
    pub fn command(&self, name: &str) -> Result<Command, Stop> {
        Self::tool(name, &self.dir, &self.port)
    }

    /// Shuts it down in order. If killed, it leaves a System V shared memory segment behind.
    pub fn end(&self, stage: &mut Stage) -> Result<(), Stop> {
        stage.end(self.handle, Signal::INT, 10)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::path::Path;
    use std::process::{Child, Command};
    use std::time::{Duration, Instant};

    use super::{WORKER, free_address, proxy_config};

    #[test]
    fn a_proxy_writes_nowhere_but_into_its_directory() {
        let words = ("upstream behind { server 127.0.0.1:81; }", "", "proxy_pass http://behind;");
        let text = proxy_config(Path::new("/d"), "127.0.0.1:80", 64, words);
        assert_eq!(text.matches('{').count(), text.matches('}').count());
        assert_eq!(text.matches("_temp_path /d/").count(), 5);
        assert!(text.contains("server 127.0.0.1:81;") && text.contains("worker_connections 64;"));
    }

    struct Killed(Child);

    impl Drop for Killed {
        fn drop(&mut self) {
            _ = self.0.kill();
            _ = self.0.wait();
        }
    }

    /// The status line of an answer and its length. Retries until the server answers.
    fn ask(address: &str, path: &str) -> (String, usize) {
        let start = Instant::now();
        let mut stream = loop {
            match TcpStream::connect(address) {
                Ok(stream) => break stream,
                Err(e) => assert!(start.elapsed() < Duration::from_secs(30), "{e}"),
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        write!(stream, "GET {path} HTTP/1.1\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().to_owned(), body.len())
    }

    #[test]
    fn a_worker_does_what_its_manners_say() {
        let dir = tempfile::tempdir().unwrap();
        let (script, manners) = (dir.path().join("worker"), dir.path().join("manners"));
        let (address, nobody, locked) =
            (free_address().unwrap(), free_address().unwrap(), dir.path().join("lock"));
        std::fs::write(&script, WORKER).unwrap();
        let lines = format!(
            "/large bytes 70000\n* compute 0.1\n* both mutex cross 1 a b\n/down call {nobody} 500\n\
             /without call {nobody} 500 without 2\n/lock hold lockf {} 1\n/pool pool 2 0 1 {}\n",
            locked.display(),
            dir.path().join("empty").display()
        );
        std::fs::write(&manners, lines).unwrap();
        let mut command = Command::new("python3");
        command.arg(&script).args([&address, "1", "2"]).arg(&manners);
        let Ok(child) = command.spawn() else {
            println!("skipped: python3 is not installed");
            return;
        };
        let _worker = Killed(child);
        assert_eq!(ask(&address, "/"), ("200".to_owned(), 500));
        assert_eq!(ask(&address, "/large").1, 70_000);
        assert_eq!(ask(&address, "/down").0, "504");
        assert_eq!(ask(&address, "/without").0, "200");
        assert!(ask(&address, "/lock").0 == "200" && locked.exists());
        assert_eq!(ask(&address, "/pool").0, "200");
        std::fs::write(manners.with_extension("new"), "/ bytes 7\n").unwrap();
        std::fs::rename(manners.with_extension("new"), &manners).unwrap();
        assert_eq!(ask(&address, "/").1, 7);
    }
}
