//! Usual service stacks: gunicorn, PHP-FPM, memcached, TLS.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::FAINT;
use super::site::{App, Asks, Crowd, Proxy, Size, family, free_address, wait_for_server};
use super::waits::{asked_through, stopped_now_and_then};
use crate::incident::{Stop, Truth, WithPath};
use crate::machine;
use crate::stage::{Isolation, ProcessHandle, Stage};

const PATIENCE_MS: u64 = 5_000;

/// Each worker serves one request at a time, and one kind of request waits for something remote.
/// Loud: more of those than there are workers. Faint: about as many.
pub fn all_workers_wait(stage: &mut Stage, process: &str, server: &Workers) -> Result<Truth, Stop> {
    let here = Isolation::default();
    let asks = Asks { every_ms: 25, patience_ms: PATIENCE_MS, path: "/", keeps: false };
    let victim = asks.start(stage, &here, &server.address)?;
    Crowd::start(stage, &here, &server.address, 10.0, PATIENCE_MS, "/")?;
    let share = stage.real((1.5, 3.0), (0.9, 1.1));
    let per_s = share * server.workers as f64 / server.takes_s;
    stage.healthy()?;

    stage.trouble_starts();
    Crowd::start(stage, &here, &server.address, per_s, 20_000, server.path)?;
    stage.trouble()?;
    let pids = family(server.handle.pid());
    stage.suffered(&victim, stage.loud(20.0, 3.0))?;
    Ok(Truth { process: Some(process.into()), pids, ..Truth::default() })
}

/// A server with workers, and its slow request.
pub struct Workers {
    /// Its first process.
    pub handle: ProcessHandle,
    /// Where it is asked.
    pub address: String,
    /// Requests that it serves at a time.
    pub workers: u64,
    /// The path of the slow request.
    pub path: &'static str,
    /// Duration of the slow request, seconds.
    pub takes_s: f64,
}

pub fn gunicorn(stage: &mut Stage) -> Result<Truth, Stop> {
    let here = Isolation::default();
    let (workers, takes_s) = (stage.draw().uniform(2, 6), stage.draw().real(0.8, 2.0));
    let app = "import time\n\ndef app(environ, start):\n    slow = environ['PATH_INFO'] == '/report'\n    \
               time.sleep(SLOW if slow else 0.001)\n    start('200 OK', [('Content-Length', '500')])\n    return [b'.' * 500]\n";
    let file = stage.dir().join("shop.py");
    fs::write(&file, app.replace("SLOW", &takes_s.to_string())).at(&file)?;
    let address = free_address()?;
    let mut command = Command::new("gunicorn");
    command.args(["-w", &workers.to_string(), "-b", &address, "--chdir"]).arg(stage.dir());
    let handle = stage.spawn(command.args(["--log-level", "error", "--timeout", "60", "shop:app"]))?;
    wait_for_server(stage, handle, &address, &here)?;
    let server = Workers { handle, address, workers, path: "/report", takes_s };
    all_workers_wait(stage, "gunicorn", &server)
}

/// The PHP-FPM binary has its version in its name.
fn php_fpm() -> Result<PathBuf, Stop> {
    let versions = (0..=9).rev().flat_map(|minor| [8, 7].map(|major| format!("php-fpm{major}.{minor}")));
    let program = versions.chain(["php-fpm".to_owned()]).find_map(|name| machine::which(&name));
    program.ok_or_else(|| Stop::Skipped("php-fpm is not installed".into()))
}

pub fn php(stage: &mut Stage) -> Result<Truth, Stop> {
    let here = Isolation::default();
    let (workers, takes_s) = (stage.draw().uniform(3, 8), stage.draw().real(0.8, 2.0));
    let dir = stage.dir().display().to_string();
    let (script, socket) = (stage.dir().join("shop.php"), stage.dir().join("fpm.sock"));
    let text =
        "<?php usleep($_SERVER['REQUEST_URI'] === '/report' ? SLOW : 1000); echo str_repeat('.', 500);";
    fs::write(&script, text.replace("SLOW", &((takes_s * 1e6) as u64).to_string())).at(&script)?;
    let config = stage.dir().join("fpm.conf");
    let text = format!(
        "[global]\nerror_log = {dir}/fpm.log\ndaemonize = no\n[www]\nuser = root\ngroup = root\nlisten = {}\nlisten.backlog = 511\n\
         pm = static\npm.max_children = {workers}\n",
        socket.display()
    );
    fs::write(&config, text).at(&config)?;
    let program = php_fpm()?;
    let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let handle = stage.spawn(Command::new(&program).args(["-R", "-n", "-y"]).arg(&config))?;
    wait_for_server(stage, handle, &socket.display().to_string(), &here)?;
    let location = format!(
        "fastcgi_pass unix:{}; fastcgi_param SCRIPT_FILENAME {}; fastcgi_param REQUEST_URI $uri; \
         fastcgi_param REQUEST_METHOD $request_method; fastcgi_read_timeout 30s;",
        socket.display(),
        script.display()
    );
    let proxy = Proxy::start_with(stage, &here, free_address()?, 1_024, "", &location)?;
    let server = Workers { handle, address: proxy.address, workers, path: "/report", takes_s };
    all_workers_wait(stage, &name, &server)
}

/// A memcached on an address of its own.
fn memcached(stage: &mut Stage) -> Result<(ProcessHandle, String), Stop> {
    let address = free_address()?;
    let port = address.rsplit(':').next().unwrap_or_default().to_owned();
    let threads = stage.draw().uniform(1, 4).to_string();
    let words = ["-u", "root", "-l", "127.0.0.1", "-p", &port, "-t", &threads, "-m", "64"];
    let handle = stage.spawn(Command::new("memcached").args(words))?;
    wait_for_server(stage, handle, &address, &Isolation::default())?;
    Ok((handle, address))
}

/// Every request of the service waits for a stopped cache.
pub fn cache_stopped(stage: &mut Stage) -> Result<Truth, Stop> {
    let here = Isolation::default();
    let (cache, address) = memcached(stage)?;
    let size = Size { processes: stage.draw().uniform(2, 4), threads: 4 };
    let manners = format!("* compute 1\n* cached {address} 200\n");
    let app = App::start(stage, &here, free_address()?, size, &manners)?;
    let victim = asked_through(stage, &here, &app.address)?;
    stopped_now_and_then(stage, cache, |_| ())?;
    stage.suffered(&victim, stage.loud(20.0, 3.0))?;
    Ok(Truth { process: Some("memcached".into()), pids: vec![cache.pid()], ..Truth::default() })
}

/// Requests that the cache answered go to the server behind it, which cannot serve them all. Loud:
/// nothing stays in the cache. Faint: about half is lost.
pub fn cache_lost(stage: &mut Stage) -> Result<Truth, Stop> {
    let here = Isolation::default();
    let (_, cache) = memcached(stage)?;
    let cost_ms = stage.draw().uniform(12, 25);
    let one = Size { processes: 1, threads: 1 };
    let behind = App::start(stage, &here, free_address()?, one, &format!("* compute {cost_ms}\n"))?;
    let many = Size { processes: 1, threads: 48 };
    let manners =
        |lost_percent: u64| format!("* cached {cache} 20 {} 10000 {lost_percent}\n", behind.address);
    let app = App::start(stage, &here, free_address()?, many, &manners(10))?;
    let asks = Asks { every_ms: 50, patience_ms: PATIENCE_MS, path: "/", keeps: false };
    let victim = asks.start(stage, &here, &app.address)?;
    // Without the cache the load is two to three times the capacity of the server behind.
    let per_s = stage.draw().real(2.0, 3.0) * 1_000.0 / cost_ms as f64;
    Crowd::start(stage, &here, &app.address, per_s, PATIENCE_MS, "/")?;
    let lost_percent = stage.uniform((95, 100), (40, 50));
    stage.healthy()?;

    stage.trouble_starts();
    app.behave(&manners(lost_percent))?;
    stage.trouble()?;
    stage.suffered(&victim, stage.loud(10.0, 2.0))?;
    // Both are true: the clients ask for more, and the server cannot answer more.
    let pids = [app.pids(), behind.pids()].concat();
    Ok(Truth { process: Some(behind.name.clone()), pids, ..Truth::default() })
}

/// Clients with a new TLS session each time: the server computes a signature for each.
pub fn handshakes(stage: &mut Stage) -> Result<Truth, Stop> {
    let here = Isolation::default();
    let (key, certificate) = (stage.file("key.pem"), stage.file("cert.pem"));
    let bits = stage.draw().pick(&["rsa:3072", "rsa:4096"]);
    let words = ["req", "-x509", "-nodes", "-newkey", bits, "-days", "2", "-subj", "/CN=localhost"];
    stage.run(Command::new("openssl").args(words).args(["-keyout", &key, "-out", &certificate]))?;
    let app =
        App::start(stage, &here, free_address()?, Size { processes: 1, threads: 8 }, "* compute 0.5\n")?;
    let secure = free_address()?;
    let server = format!(
        "listen {secure} ssl backlog=511; ssl_certificate {certificate}; ssl_certificate_key {key}; ssl_session_tickets off;"
    );
    let location = format!("proxy_pass http://{};", app.address);
    let proxy = Proxy::start_with(stage, &here, free_address()?, 1_024, &server, &location)?;
    let asks = Asks { every_ms: 25, patience_ms: PATIENCE_MS, path: "/", keeps: true };
    let victim = asks.start(stage, &here, &proxy.address)?;
    let clients = stage.uniform((8, 16), (3, 4));
    stage.healthy()?;

    stage.trouble_starts();
    for _ in 0..clients {
        let words = ["s_time", "-connect", &secure, "-new", "-time", "60", "-www", "/"];
        stage.spawn(Command::new("openssl").args(words))?;
    }
    stage.trouble()?;
    stage.suffered(&victim, stage.loud(3.0, FAINT))?;
    Ok(Truth { process: Some("nginx".into()), pids: proxy.pids(), ..Truth::default() })
}
