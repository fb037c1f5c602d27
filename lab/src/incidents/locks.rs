//! Threads that wait for each other, and memory that is constantly mapped and unmapped.

use std::process::Command;

use super::common::by_cpus;
use super::cpu::redis_server;
use crate::incident::{Form, Incident, Need, Stop, Truth};
use crate::machine;
use crate::stage::{Isolation, Stage};

/// The incidents of this file.
pub const INCIDENTS: &[Incident] = &[
    Incident::new("mutex", "user-lock-contention", "locks", mutex)
        .what("many threads of a program race for one lock of it")
        .needs(&[Need::Cpus(2)]),
    Incident::new("mmap-storm", "minor-fault-storm", "locks", mmap_storm)
        .what("threads of a program map memory, touch it and give it back")
        .needs(&[Need::Cpus(2)])
        .chain(&["mmap-lock-contention"]),
    Incident::new("erlang-carriers", "allocator-carrier-misfit", "locks", erlang)
        .what("Erlang's allocators map and unmap a carrier for each heap above half a megabyte")
        .needs(&[Need::Tool("erl")])
        .chain(&["minor-fault-storm"]),
    Incident::new("fork-snapshot", "fork-stall", "locks", fork_snapshot)
        .what("redis with a large data set forks for snapshots while it is written to")
        .needs(&[
            Need::Tool("redis-server"),
            Need::Tool("redis-cli"),
            Need::Tool("redis-benchmark"),
            Need::DiskBytes(4 << 30),
        ]),
];

/// Page faults a second that prove that memory is mapped and unmapped at all.
const FAULTS: f64 = 1_000.0;
/// A heap of a megabyte is 256 pages, and a CPU makes hundreds of them in a second. With fewer faults the carriers stay in the
/// allocator's cache, and the program only computes.
const FAULTS_OF_CARRIERS: f64 = 30_000.0;

fn mutex(stage: &mut Stage) -> Result<Truth, Stop> {
    let (name, go) = (stage.draw().name(), stage.file("go"));
    let threads = stage.between((12, 32), (4, 6));
    // About 6 to 18 µs under the lock. The faint form spends more time outside of it.
    let inside = stage.draw().between(6_000, 18_000);
    let outside = stage.between((500, 2_000), (3_000, 6_000));
    let argument = format!("{threads} {inside} {outside} {go}");
    let victim = stage.role(&name, "share-lock", argument, &Isolation::default())?;
    stage.healthy()?;

    stage.trouble_starts();
    std::fs::write(&go, "")?;
    stage.trouble()?;
    stage.suffered(&victim, stage.loud(3.0, 1.5))?;
    Ok(Truth::of(&victim))
}

fn mmap_storm(stage: &mut Stage) -> Result<Truth, Stop> {
    let (name, go) = (stage.draw().name(), stage.file("go"));
    let threads = stage.between((8, 24), (4, 6));
    let pages = stage.draw().between(256, 1_024);
    let victim =
        stage.role(&name, "map-and-unmap", format!("{threads} {pages} {go}"), &Isolation::default())?;
    stage.healthy()?;

    stage.trouble_starts();
    std::fs::write(&go, "")?;
    stage.trouble()?;
    stage.must_move("vm.pgfault", FAULTS)?;
    stage.suffered(&victim, stage.loud(3.0, 1.5))?;
    Ok(Truth::of(&victim))
}

/// Processes that build a list of `words` elements, drop it and collect.
fn erlang_program(processes: u64, words: u64, go: &str) -> String {
    format!(
        "W = fun W() -> L = lists:seq(1, {words}), _ = lists:sum(L), erlang:garbage_collect(), timer:sleep(0), W() end, \
         P = fun P() -> case filelib:is_file(\"{go}\") of true -> [spawn(W) || _ <- lists:seq(1, {processes})], \
         timer:sleep(infinity); false -> timer:sleep(50), P() end end, P()."
    )
}

fn erlang(stage: &mut Stage) -> Result<Truth, Stop> {
    let (bystander, go) = (stage.draw().name(), stage.file("go"));
    let victim = stage.role(&bystander, "work", "", &Isolation::default())?;
    // With fewer processes, or with pauses, the free carriers fit into the allocator's segment
    // cache.
    let processes = by_cpus(stage.between((28, 40), (12, 16)));
    // Two words an element: one to eight megabytes.
    let words = stage.draw().between(80_000, 400_000);
    let program = erlang_program(processes, words, &go);
    let beam = stage.spawn(Command::new("erl").args(["-noshell", "-eval", &program]))?;
    stage.wait_for("erl", 10, |_| {
        std::fs::read_to_string(format!("/proc/{}/comm", beam.pid())).is_ok_and(|c| c.starts_with("beam"))
    })?;
    stage.healthy()?;

    stage.trouble_starts();
    std::fs::write(&go, "")?;
    stage.trouble()?;
    stage.must_move("vm.pgfault", FAULTS_OF_CARRIERS)?;
    stage.suffered(&victim, stage.loud(1.3, 1.1))?;
    Ok(Truth { process: Some("beam".into()), pids: vec![beam.pid()], ..Truth::default() })
}

fn fork_snapshot(stage: &mut Stage) -> Result<Truth, Stop> {
    let (server, port) = redis_server(stage)?;
    let cli = |words: &[&str]| -> Command {
        let mut command = Command::new("redis-cli");
        command.args(["-p", &port]).args(words);
        command
    };
    let keys = stage.between((1_200_000, 1_600_000), (850_000, 1_000_000));
    let name = stage.draw().name();
    // With the key names that redis-benchmark writes to.
    let fill = format!(
        "local v = string.rep('x', 512) for i = 0, {keys} do redis.call('set', string.format('key:%012d', i), v) end"
    );
    stage.run(&mut cli(&["eval", &fill, "0"]))?;
    let held = stage.run(&mut cli(&["dbsize"]))?;
    if held.trim().parse::<u64>().unwrap_or(0) < keys {
        return Err(Stop::Failed(format!("redis holds {} keys, not {keys}", held.trim())));
    }
    // Loud: even a client that only reads is hurt. Faint: the victim writes, and the server copies
    // each page that it writes to.
    let victim = match stage.form() {
        Form::Loud => stage.role(&name, "redis-ping", port.clone(), &Isolation::default())?,
        Form::Faint => stage.role(&name, "redis-write", format!("{port} {keys}"), &Isolation::default())?,
    };
    // A load that writes all over the data set, at a rate that one CPU can serve.
    let writer = format!(
        "while :; do redis-benchmark -p {port} -q -c 4 -n 20000 -r {keys} setrange key:__rand_int__ 0 x >/dev/null; sleep 0.2; done"
    );
    stage.spawn(Command::new("sh").args(["-c", &writer]))?;
    stage.healthy()?;

    stage.trouble_starts();
    let mut next = 0.0;
    let every = stage.real((2.3, 2.7), (2.8, 3.2));
    stage.trouble_on(|_, seconds| {
        if seconds >= next {
            next = seconds + every;
            _ = machine::run(&mut cli(&["bgsave"]));
        }
        Ok(())
    })?;
    stage.suffered(&victim, stage.loud(1.3, 1.15))?;
    Ok(Truth { process: Some("redis-server".into()), pids: vec![server.pid()], ..Truth::default() })
}
