//! Services in which a runtime or the only thread blocks every request.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::FAINT;
use super::site::{Asks, free_address, wait_for_server};
use crate::incident::{Stop, Truth, WithPath};
use crate::incidents::cpu::redis_server;
use crate::journal::Undo;
use crate::stage::{Isolation, Stage};

const PATIENCE_MS: u64 = 5_000;

fn port_of(address: &str) -> &str {
    address.rsplit(':').next().unwrap_or_default()
}

pub fn event_loop(stage: &mut Stage) -> Result<Truth, Stop> {
    let here = Isolation::default();
    let address = free_address()?;
    let script = stage.file("server.js");
    fs::write(&script, include_str!("server.js")).at(&script)?;
    let blocks_ms = stage.between((300, 700), (50, 120));
    let mut command = Command::new("node");
    let server = stage.spawn(command.args([&script, port_of(&address), &blocks_ms.to_string()]))?;
    wait_for_server(stage, server, &address, &here)?;
    let asks = Asks { every_ms: 10, patience_ms: PATIENCE_MS, path: "/", keeps: true };
    let victim = asks.start(stage, &here, &address)?;
    let every_ms = stage.between((150, 500), (500, 900));
    stage.healthy()?;

    stage.trouble_starts();
    Asks { every_ms, path: "/report", ..asks }.start(stage, &here, &address)?;
    stage.trouble()?;
    stage.suffered(&victim, stage.loud(5.0, FAINT))?;
    Ok(Truth { process: Some("node".into()), pids: vec![server.pid()], ..Truth::default() })
}

/// A client lists keys with KEYS, which blocks redis' only thread.
pub fn redis_keys(stage: &mut Stage) -> Result<Truth, Stop> {
    let (server, port) = redis_server(stage)?;
    let keys = stage.between((1_000_000, 2_000_000), (150_000, 300_000));
    let fill = format!("for i = 1, {keys} do redis.call('set', 'session:' .. i, 'x') end");
    stage.run(Command::new("redis-cli").args(["-p", &port, "eval", &fill, "0"]))?;
    let victim = stage.start("redis-ping", port.clone())?;
    let every_ms = stage.between((600, 1_200), (600, 1_200));
    let pattern = stage.draw().pick(&["*", "session:*", "session:1*", "*7"]);
    stage.healthy()?;

    stage.trouble_starts();
    stage.start("redis-say", format!("{port} {every_ms} KEYS {pattern}"))?;
    stage.trouble()?;
    stage.suffered(&victim, stage.loud(5.0, FAINT))?;
    Ok(Truth { process: Some("redis-server".into()), pids: vec![server.pid()], ..Truth::default() })
}

/// Loud: next to nothing of the heap is left. Faint: a tenth or more.
pub fn heap_full(stage: &mut Stage) -> Result<Truth, Stop> {
    let here = Isolation::default();
    let (source, go) = (stage.file("Server.java"), stage.file("go"));
    fs::write(&source, include_str!("Server.java")).at(&source)?;
    stage.run(Command::new("javac").args(["-J-XX:TieredStopAtLevel=1", &source]))?;
    let address = free_address()?;
    let heap_mb = stage.draw().between(96, 256);
    let collector = stage.draw().pick(&["Serial", "Parallel", "G1"]);
    let (threads, garbage_kb) = (stage.draw().uniform(4, 12), stage.draw().between(200, 600));
    let percent = stage.uniform((93, 96), (91, 93));
    let mut command = Command::new("java");
    command.args([&format!("-Xmx{heap_mb}m"), &format!("-Xms{heap_mb}m"), &format!("-XX:+Use{collector}GC")]);
    // Without this, each answer waits for the TCP acknowledgement of its headers.
    command.args(["-Dsun.net.httpserver.nodelay=true"]);
    command.args(["-XX:-UseGCOverheadLimit", "-cp", &stage.dir().display().to_string(), "Server"]);
    command.args([
        port_of(&address),
        &threads.to_string(),
        &garbage_kb.to_string(),
        &go,
        &percent.to_string(),
    ]);
    let server = stage.spawn(&mut command)?;
    // A killed JVM leaves a file with its counters.
    stage.on_cleanup(Undo::Remove(PathBuf::from(format!("/tmp/hsperfdata_root/{}", server.pid()))))?;
    wait_for_server(stage, server, &address, &here)?;
    let asks = Asks { every_ms: 20, patience_ms: PATIENCE_MS, path: "/", keeps: true };
    let victim = asks.start(stage, &here, &address)?;
    for _ in 1..stage.draw().uniform(3, 5) {
        asks.start(stage, &here, &address)?;
    }
    stage.healthy()?;

    stage.trouble_starts();
    fs::write(&go, "").at(&go)?;
    stage.trouble()?;
    stage.suffered(&victim, stage.loud(5.0, FAINT))?;
    Ok(Truth { process: Some("java".into()), pids: vec![server.pid()], ..Truth::default() })
}
