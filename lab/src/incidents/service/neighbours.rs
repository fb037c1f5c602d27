//! Services that are slow because of a neighbour, of what they depend on, or of what was allotted
//! to them.

use std::process::Command;

use super::FAINT;
use super::site::{App, Asks, Crowd, Postgres, Size, free_address, wait_for_server};
use super::waits::{asked_through, holds};
use crate::incident::{Stop, Truth};
use crate::incidents::cpu::redis_server;
use crate::machine;
use crate::stage::{Fs, Isolation, Speed, Stage, Victim};

const PATIENCE_MS: u64 = 5_000;

/// A Python server that computes for each request, and the client that measures it.
fn computing(stage: &mut Stage, place: &Isolation<'_>, share: f64) -> Result<(App, Victim), Stop> {
    let here = Isolation::default();
    let cost_ms = stage.draw().uniform(3, 8);
    let size = Size { processes: stage.draw().uniform(2, 4), threads: 1 };
    let app = App::start(stage, place, free_address()?, size, &format!("* compute {cost_ms}\n"))?;
    let asks = Asks { every_ms: 25, patience_ms: PATIENCE_MS, path: "/", keeps: false };
    let victim = asks.start(stage, &here, &app.address)?;
    Crowd::start(stage, &here, &app.address, share * 1_000.0 / cost_ms as f64, PATIENCE_MS, "/")?;
    Ok((app, victim))
}

/// A CPU quota below what the service needs, at the same load.
pub fn quota(stage: &mut Stage) -> Result<Truth, Stop> {
    let cgroup = stage.cgroup(&["cpu"])?;
    let place = Isolation { cgroup: Some(&cgroup), netns: None };
    let (app, victim) = computing(stage, &place, 0.3)?;
    let percent = stage.between((12, 20), (34, 40));
    stage.healthy()?;

    stage.trouble_starts();
    cgroup.limit_cpu(percent)?;
    stage.trouble()?;
    stage.suffered(&victim, stage.loud(10.0, 1.5))?;
    Ok(Truth {
        process: Some(app.name.clone()),
        pids: app.pids(),
        cgroup: Some(cgroup.name().to_owned()),
        ..Truth::default()
    })
}

/// A program that computes with all its threads beside a service.
pub fn cpu_neighbour(stage: &mut Stage) -> Result<Truth, Stop> {
    let (_, victim) = computing(stage, &Isolation::default(), 0.3)?;
    let threads = stage.uniform((2, 3), (1, 1)) * machine::cpus() as u64;
    let name = stage.draw().name();
    stage.healthy()?;

    stage.trouble_starts();
    let hog = stage.role(&name, "spin-threads", threads.to_string(), &Isolation::default())?;
    stage.trouble()?;
    stage.suffered(&victim, stage.loud(2.0, 1.3))?;
    Ok(Truth::of(&hog))
}

/// A thread of the service works under the mutex that all requests take. Loud: until the end.
/// Faint: for a part of each second.
pub fn mutex(stage: &mut Stage) -> Result<Truth, Stop> {
    let here = Isolation::default();
    let size = Size { processes: 1, threads: stage.draw().uniform(6, 16) };
    let (hold_ms, every_ms) = holds(stage);
    let manners = format!("/rebuild mutex {hold_ms}\n/ compute 0.5\n/ mutex 0.2\n");
    let app = App::start(stage, &here, free_address()?, size, &manners)?;
    let victim = asked_through(stage, &here, &app.address)?;
    stage.healthy()?;

    stage.trouble_starts();
    let pause_ms = every_ms.saturating_sub(hold_ms).max(1);
    Asks { every_ms: pause_ms, patience_ms: 2 * hold_ms, path: "/rebuild", keeps: false }.start(
        stage,
        &here,
        &app.address,
    )?;
    stage.trouble()?;
    stage.suffered(&victim, stage.loud(20.0, 3.0))?;
    Ok(Truth { process: Some(app.name.clone()), pids: app.pids(), ..Truth::default() })
}

/// A redis in a cgroup with some room, and a new job in the same cgroup that takes more than that.
pub fn newcomer(stage: &mut Stage) -> Result<Truth, Stop> {
    stage.zram_swap(1 << 30)?;
    let cgroup = stage.cgroup(&["memory"])?;
    let place = Isolation { cgroup: Some(&cgroup), netns: None };
    let address = free_address()?;
    let port = address.rsplit(':').next().unwrap_or_default().to_owned();
    let mut command = Command::new("redis-server");
    command.args(["--port", &port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
    let server = stage.spawn_in(&mut command, &place)?;
    wait_for_server(stage, server, &address, &Isolation::default())?;
    let keys = stage.draw().between(200_000, 400_000);
    let fill = format!(
        "local v = string.rep('x', 512) for i = 0, {keys} do redis.call('set', string.format('key:%012d', i), v) end"
    );
    stage.run(Command::new("redis-cli").args(["-p", &port, "eval", &fill, "0"]))?;
    let held_mb = (keys * 700) >> 20;
    cgroup.limit_memory_but_swap((held_mb * 13 / 10) << 20)?;
    let ask = stage.draw().name();
    let victim = stage.role(&ask, "redis-write", format!("{port} {keys}"), &Isolation::default())?;
    let set_mb = (held_mb as f64 * stage.real((1.0, 1.4), (0.6, 0.8))) as u64;
    let job = stage.draw().name();
    stage.healthy()?;

    stage.trouble_starts();
    let job = stage.role(&job, "touch-memory", set_mb.to_string(), &place)?;
    stage.trouble()?;
    if stage.ended(job.handle()).is_some() || stage.ended(server).is_some() {
        return Err(Stop::NotMade("the kernel killed for lack of memory".to_owned()));
    }
    stage.must_move("vm.pswpin", 20.0)?;
    stage.suffered(&victim, stage.loud(2.0, FAINT))?;
    Ok(Truth { cgroup: Some(cgroup.name().to_owned()), ..Truth::of(&job) })
}

/// A replica that restarts again and again: each time the server forks to write its whole data set.
pub fn replica(stage: &mut Stage) -> Result<Truth, Stop> {
    let (server, port) = redis_server(stage)?;
    let (replica, second) = redis_server(stage)?;
    let keys = stage.between((700_000, 1_000_000), (500_000, 700_000));
    let fill = format!(
        "local v = string.rep('x', 300) for i = 0, {keys} do redis.call('set', string.format('key:%012d', i), v) end"
    );
    let cli = |port: &str, words: &[&str]| {
        let mut command = Command::new("redis-cli");
        command.args(["-p", port]).args(words);
        command
    };
    stage.run(&mut cli(&port, &["eval", &fill, "0"]))?;
    for (of, name, value) in [
        (&port, "repl-diskless-sync-delay", "0"),
        (&port, "repl-backlog-size", "16kb"),
        (&second, "repl-diskless-load", "swapdb"),
    ] {
        stage.run(&mut cli(of, &["config", "set", name, value]))?;
    }
    let victim = stage.start("redis-ping", port.clone())?;
    let load = format!(
        "while :; do redis-benchmark -p {port} -q -c 4 -n 10000 -r {keys} setrange key:__rand_int__ 0 x >/dev/null; sleep 0.2; done"
    );
    stage.spawn(Command::new("sh").args(["-c", &load]))?;
    let every_s = stage.real((0.7, 1.2), (1.2, 1.8));
    stage.healthy()?;

    stage.trouble_starts();
    let mut next = 0.0;
    stage.trouble_on(|_, seconds| {
        if seconds >= next {
            next = seconds + every_s;
            _ = machine::run(&mut cli(&second, &["replicaof", "no", "one"]));
            _ = machine::run(&mut cli(&second, &["replicaof", "127.0.0.1", &port]));
        }
        Ok(())
    })?;
    stage.suffered(&victim, stage.loud(3.0, FAINT))?;
    let pids = vec![server.pid(), replica.pid()];
    Ok(Truth { process: Some("redis-server".into()), pids, ..Truth::default() })
}

const COMMIT: &str = "UPDATE pgbench_tellers SET tbalance = tbalance + 1 WHERE tid = 1";

/// A database whose commits wait for a slow disk.
pub fn slow_disk(stage: &mut Stage) -> Result<Truth, Stop> {
    let base = Speed { micros: stage.draw().between(50, 300), bytes_per_s: 0 };
    let (disk, upper) = stage.slow_fs(1 << 30, Fs::Ext4, base)?;
    stage.watch_device(upper.device());
    let over_tcp = stage.draw().uniform(0, 1) == 0;
    let database = Postgres::start_at(stage, upper.mount(), 1, over_tcp, &[])?;
    let mut bench = database.command("pgbench")?;
    bench.args(["-n", "-c", "4", "-j", "1", "-R", "20", "-T", "120", "postgres"]);
    stage.spawn(&mut bench)?;
    let victim = stage.start("pg-ask", format!("{} 20 {COMMIT}", database.at))?;
    let slow = Speed { micros: stage.between((40_000, 120_000), (8_000, 18_000)), bytes_per_s: 0 };
    stage.healthy()?;

    stage.trouble_starts();
    disk.set(slow)?;
    let outcome = stage.trouble();
    disk.set(base)?;
    let hurt = outcome.and_then(|()| stage.suffered(&victim, stage.loud(10.0, 2.0)));
    database.end(stage)?;
    hurt?;
    Ok(Truth { devices: vec![upper.device().to_owned()], ..Truth::default() })
}
