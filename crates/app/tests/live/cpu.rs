//! Troubles of the CPU: wrong placement, one thread too few, quota, forks, too many spinners.

use std::net::TcpListener;
use std::process::Command;

use crate::cgroup::Cgroup;
use crate::guard::{Child, spawn};
use crate::harness::{Case, Lab, Stop, nap};
use crate::report::Truth;
use crate::victim::Victim;
use crate::witness::Told;

/// The cases of this file.
pub const CASES: &[Case] = &[
    Case { name: "cpu-affinity-misplaced", tools: &["taskset", "gzip"], run: affinity },
    Case {
        name: "single-thread-bottleneck",
        tools: &["redis-server", "redis-benchmark"],
        run: single_thread_server,
    },
    Case { name: "single-thread-spinner", tools: &["gzip"], run: single_thread_spinner },
    Case { name: "cpu-quota-throttled", tools: &[], run: quota },
    Case { name: "fork-storm", tools: &["bash"], run: fork_storm },
    Case { name: "runqueue-saturation", tools: &["stress-ng"], run: runqueue },
];

fn compress_zeros() -> Command {
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", "exec \"$@\" </dev/zero >/dev/null", "sh"]);
    shell
}

/// Four compressors pinned to CPU 0, while the other CPUs are idle.
fn affinity(lab: &mut Lab) -> Result<(), Stop> {
    let dir = lab.dir.path().to_owned();
    if std::thread::available_parallelism()?.get() < 2 {
        return Err(Stop::Skipped("needs two CPUs".into()));
    }
    let _bystander = Victim::start("tick", "live-ticker", "", None, &dir)?;
    lab.healthy_phase()?;

    lab.trouble_starts();
    let mut workers = Vec::new();
    for i in 0..4 {
        let command = &mut compress_zeros();
        command.args(["taskset", "-c", "0", "gzip", "-9"]);
        workers.push(spawn(command, None, &dir.join(format!("gzip-{i}.log")))?);
    }
    lab.incident_phase(|_| Ok(()))?;
    let (_, idle) = lab.rates("stat.cpu.idle_%");
    if idle < 30.0 {
        return Err(Stop::Failed("the trouble was not made: no CPU is idle".into()));
    }
    lab.expect(&Truth {
        conditions: &["cpu-affinity-misplaced"],
        process: Some("gzip"),
        pids: workers.iter().map(Child::pid).collect(),
        onset_late_s: 4.0,
        ..Truth::default()
    })
}

/// A redis server on a port of its own, ready for commands.
pub fn redis_server(lab: &Lab) -> Result<(Child, String), Stop> {
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port().to_string();
    let server = spawn(
        Command::new("redis-server")
            .args(["--port", &port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
            .current_dir(lab.dir.path()),
        None,
        &lab.dir.path().join("redis.log"),
    )?;
    for _ in 0..50 {
        if std::net::TcpStream::connect(format!("127.0.0.1:{port}")).is_ok() {
            return Ok((server, port));
        }
        nap(std::time::Duration::from_millis(100))?;
    }
    Err(Stop::Failed("redis-server did not come up".into()))
}

/// Scripts of a millisecond each, from twenty clients, to a server with one thread.
fn single_thread_server(lab: &mut Lab) -> Result<(), Stop> {
    let dir = lab.dir.path().to_owned();
    let (server, port) = redis_server(lab)?;
    let victim = Victim::start("redis-ping", "live-client", &port, None, &dir)?;
    lab.healthy_phase()?;

    lab.trouble_starts();
    let script = "local x = 0 for i = 1, 50000 do x = x + i end return x";
    let _load = spawn(
        Command::new("redis-benchmark").args([
            "-p",
            &port,
            "-c",
            "20",
            "-n",
            "100000000",
            "-q",
            "eval",
            script,
            "0",
        ]),
        None,
        &dir.join("benchmark.log"),
    )?;
    lab.incident_phase(|_| Ok(()))?;
    lab.victim_suffered(&victim, 5.0)?;
    lab.expect(&Truth {
        conditions: &["single-thread-bottleneck"],
        process: Some("redis-server"),
        pids: vec![server.pid()],
        onset_late_s: 4.0,
        ..Truth::default()
    })
}

/// One process that could use more than the one CPU that it fills.
fn single_thread_spinner(lab: &mut Lab) -> Result<(), Stop> {
    let dir = lab.dir.path().to_owned();
    if std::thread::available_parallelism()?.get() < 2 {
        return Err(Stop::Skipped("needs two CPUs".into()));
    }
    let _bystander = Victim::start("tick", "live-ticker", "", None, &dir)?;
    lab.healthy_phase()?;

    lab.trouble_starts();
    let spinner = spawn(compress_zeros().args(["gzip", "-9"]), None, &dir.join("gzip.log"))?;
    lab.incident_phase(|_| Ok(()))?;
    lab.expect(&Truth {
        conditions: &["single-thread-bottleneck"],
        process: Some("gzip"),
        pids: vec![spinner.pid()],
        onset_late_s: 4.0,
        ..Truth::default()
    })
}

/// A worker that needs 40 % of a CPU gets a quota of 20 %.
fn quota(lab: &mut Lab) -> Result<(), Stop> {
    let dir = lab.dir.path().to_owned();
    let cgroup = Cgroup::create("quota", &["cpu"])?;
    lab.watch_cgroup(&cgroup);
    let worker = Victim::start("work", "live-worker", "", Some(&cgroup), &dir)?;
    lab.healthy_phase()?;

    lab.trouble_starts();
    cgroup.limit_cpu(20)?;
    lab.incident_phase(|_| Ok(()))?;
    lab.victim_suffered(&worker, 1.5)?;
    lab.expect(&Truth {
        conditions: &["cpu-quota-throttled"],
        // No tool prints the counters of a group's quota.
        told: Told::Less(&[]),
        process: Some("live-worker"),
        pids: vec![worker.pid()],
        cgroup: Some(cgroup.name().to_owned()),
        onset_late_s: 4.0,
        ..Truth::default()
    })
}

/// Shell loops that start a program of no length, thousands of times a second.
fn fork_storm(lab: &mut Lab) -> Result<(), Stop> {
    let dir = lab.dir.path().to_owned();
    let victim = Victim::start("work", "live-worker", "", None, &dir)?;
    lab.healthy_phase()?;

    lab.trouble_starts();
    let mut shells = Vec::new();
    for i in 0..3 {
        let command = &mut Command::new("bash");
        command.args(["-c", "while :; do /bin/true; done"]);
        shells.push(spawn(command, None, &dir.join(format!("bash-{i}.log")))?);
    }
    lab.incident_phase(|_| Ok(()))?;
    let (_, forks) = lab.rates("stat.processes");
    if forks < 300.0 {
        return Err(Stop::Failed(format!("the trouble was not made: {forks:.0} forks/s")));
    }
    lab.victim_suffered(&victim, 1.3)?;
    lab.expect(&Truth {
        conditions: &["fork-storm"],
        // A tool that looks once a second sees none of the processes, nor who started them.
        told: Told::Unnamed,
        process: Some("bash"),
        pids: shells.iter().map(Child::pid).collect(),
        onset_late_s: 4.0,
        ..Truth::default()
    })
}

/// Sixteen spinners for each CPU, all of one program.
fn runqueue(lab: &mut Lab) -> Result<(), Stop> {
    let dir = lab.dir.path().to_owned();
    let victim = Victim::start("work", "live-worker", "", None, &dir)?;
    lab.healthy_phase()?;

    lab.trouble_starts();
    let spinners = 16 * std::thread::available_parallelism()?.get();
    let _hog = spawn(
        Command::new("stress-ng").args(["--cpu", &spinners.to_string(), "--timeout", "60"]).current_dir(&dir),
        None,
        &dir.join("stress-ng.log"),
    )?;
    lab.incident_phase(|_| Ok(()))?;
    lab.victim_suffered(&victim, 2.0)?;
    lab.expect(&Truth {
        // One program hogs, and very many of its processes wait: both names are true.
        conditions: &["runqueue-saturation", "cpu-hog"],
        process: Some("stress-ng"),
        onset_late_s: 4.0,
        ..Truth::default()
    })
}
