//! CPU incidents: wrong placement, one thread too few, a quota, forks, too many spinners.

use std::net::{TcpListener, TcpStream};
use std::process::Command;

use super::common::by_cpus;
use crate::incident::{Incident, Need, Stop, Truth};
use crate::machine;
use crate::stage::{Isolation, ProcessHandle, Stage};

/// The incidents of this file.
pub const INCIDENTS: &[Incident] = &[
    Incident::new("affinity", "cpu-affinity-misplaced", "cpu", affinity)
        .what("compressors are pinned to one CPU while the others are idle")
        .needs(&[Need::Tool("taskset"), Need::Tool("gzip"), Need::Cpus(2)])
        .chain(&["runqueue-wait"]),
    Incident::new("single-thread-server", "single-thread-bottleneck", "cpu", single_thread_server)
        .what("many clients send expensive scripts to a server that has one thread")
        .needs(&[Need::Tool("redis-server"), Need::Tool("redis-benchmark"), Need::Cpus(2)]),
    Incident::new("cpu-quota", "cpu-quota-throttled", "cpu", quota)
        .what("a worker gets a quota below what it needs, on an idle machine")
        .chain(&["runqueue-wait"]),
    Incident::new("fork-storm", "fork-storm", "cpu", fork_storm)
        .what("shell loops start programs that do nothing, thousands of times a second")
        .needs(&[Need::Tool("bash")])
        .chain(&["runqueue-wait"]),
    Incident::new("runqueue", "runqueue-saturation", "cpu", runqueue)
        .what("a crowd of spinners, of which none gets a third of a CPU")
        .needs(&[Need::Tool("stress-ng")])
        .chain(&["cpu-saturated", "runqueue-wait"]),
    Incident::new("busy-threads", "cpu-hog", "cpu", busy_threads)
        .what("a program computes with a few threads for each CPU, and others wait for one")
        .chain(&["cpu-saturated", "runqueue-wait"]),
];

fn compress_zeros(args: &[String]) -> Command {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", "exec \"$@\" </dev/zero >/dev/null", "sh"]).args(args);
    shell
}

fn affinity(stage: &mut Stage) -> Result<Truth, Stop> {
    let cpu = stage.draw().uniform(0, machine::cpus() as u64 - 1);
    let workers = stage.between((4, 8), (2, 2));
    let level = stage.draw().between(5, 9);
    let place = format!("{cpu}");
    // The same mistake pinned the victim there too.
    let victim = stage.start("work", "")?;
    stage.run(Command::new("taskset").args(["-pc", &place, &victim.pid().to_string()]))?;
    stage.healthy()?;

    stage.trouble_starts();
    let mut pids = vec![victim.pid()];
    for _ in 0..workers {
        let words = ["taskset", "-c", &place, "gzip", &format!("-{level}")].map(str::to_owned);
        pids.push(stage.spawn(&mut compress_zeros(&words))?.pid());
    }
    stage.trouble()?;
    let (_, idle) = stage.moved("stat.cpu.idle_%");
    if idle < 3.0 {
        return Err(Stop::NotMade("no CPU is idle".into()));
    }
    stage.suffered(&victim, stage.loud(2.0, 1.5))?;
    Ok(Truth { process: Some("gzip".into()), pids, ..Truth::default() })
}

/// A redis server on a port of its own, ready for commands.
pub fn redis_server(stage: &mut Stage) -> Result<(ProcessHandle, String), Stop> {
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port().to_string();
    let mut command = Command::new("redis-server");
    command.args(["--port", &port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
    command.args(["--unixsocket", &stage.file("redis.sock")]);
    let server = stage.spawn(&mut command)?;
    stage.wait_for("redis-server", 10, |_| TcpStream::connect(format!("127.0.0.1:{port}")).is_ok())?;
    Ok((server, port))
}

fn single_thread_server(stage: &mut Stage) -> Result<Truth, Stop> {
    let (server, port) = redis_server(stage)?;
    let victim = stage.start("redis-ping", port.clone())?;
    let clients = stage.between((12, 40), (2, 4)).to_string();
    let turns = stage.draw().between(20_000, 80_000);
    stage.healthy()?;

    stage.trouble_starts();
    let script = format!("local x = 0 for i = 1, {turns} do x = x + i end return x");
    let load = ["-p", &port, "-c", &clients, "-n", "100000000", "-q", "eval", &script, "0"];
    stage.spawn(Command::new("redis-benchmark").args(load))?;
    stage.trouble()?;
    stage.suffered(&victim, stage.loud(5.0, 1.5))?;
    Ok(Truth { process: Some("redis-server".into()), pids: vec![server.pid()], ..Truth::default() })
}

fn quota(stage: &mut Stage) -> Result<Truth, Stop> {
    let cgroup = stage.cgroup(&["cpu"])?;
    let place = Isolation { cgroup: Some(&cgroup), netns: None };
    let name = stage.draw().name();
    // The worker needs 40 % of a CPU.
    let worker = stage.role(&name, "work", "", &place)?;
    let percent = stage.between((5, 9), (24, 32));
    stage.healthy()?;

    stage.trouble_starts();
    cgroup.limit_cpu(percent)?;
    stage.trouble()?;
    stage.suffered(&worker, stage.loud(3.0, 1.3))?;
    Ok(Truth { cgroup: Some(cgroup.name().to_owned()), ..Truth::of(&worker) })
}

fn fork_storm(stage: &mut Stage) -> Result<Truth, Stop> {
    let victim = stage.start("work", "")?;
    let loops = by_cpus(stage.between((3, 5), (2, 2)));
    let program = stage.draw().pick(&["/bin/true", "/usr/bin/env true", "/bin/date >/dev/null"]);
    stage.healthy()?;

    stage.trouble_starts();
    let mut pids = Vec::new();
    for _ in 0..loops {
        let line = format!("while :; do {program}; done");
        pids.push(stage.spawn(Command::new("bash").args(["-c", &line]))?.pid());
    }
    stage.trouble()?;
    stage.must_move("stat.processes", 25.0)?;
    stage.suffered(&victim, stage.loud(1.3, 1.1))?;
    Ok(Truth { process: Some("bash".into()), pids, ..Truth::default() })
}

fn runqueue(stage: &mut Stage) -> Result<Truth, Stop> {
    let victim = stage.start("work", "")?;
    // Three spinners per CPU would still count as a few hogs.
    let spinners = stage.between((10, 24), (4, 5)) * machine::cpus() as u64;
    stage.healthy()?;

    stage.trouble_starts();
    let count = spinners.to_string();
    stage.spawn(Command::new("stress-ng").args(["--cpu", &count, "--timeout", "60"]))?;
    stage.trouble()?;
    stage.suffered(&victim, stage.loud(2.0, 1.3))?;
    Ok(Truth { process: Some("stress-ng".into()), ..Truth::default() })
}

fn busy_threads(stage: &mut Stage) -> Result<Truth, Stop> {
    let (bystander, name) = (stage.draw().name(), stage.draw().name());
    let victim = stage.role(&bystander, "work", "", &Isolation::default())?;
    let threads = stage.uniform((2, 3), (1, 1)) * machine::cpus() as u64;
    stage.healthy()?;

    stage.trouble_starts();
    let hog = stage.role(&name, "spin-threads", threads.to_string(), &Isolation::default())?;
    stage.trouble()?;
    stage.suffered(&victim, stage.loud(2.0, 1.3))?;
    Ok(Truth::of(&hog))
}
