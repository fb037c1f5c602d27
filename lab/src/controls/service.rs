//! Services under load: databases, caches, runtimes with garbage collection, many starts at once.

use std::process::Command;

use super::{BUSY_FACTOR, busy, bystander};
use crate::incident::{Control, Need, Stop};
use crate::incidents::redis_server;
use crate::incidents::site::Postgres;
use crate::machine;
use crate::stage::{Isolation, ProcessHandle, Stage};

/// The controls of this file.
pub const CONTROLS: &[Control] = &[
    Control {
        name: "database",
        what: "PostgreSQL at a moderate, steady rate of transactions",
        needs: &[
            Need::Tool("pgbench"),
            Need::Tool("initdb"),
            Need::Tool("postgres"),
            Need::Tool("pg_isready"),
            Need::DiskBytes(1 << 30),
        ],
        make: database,
    },
    Control {
        name: "cache-warm-up",
        what: "a key-value store starts empty and is filled until it levels off, under steady requests",
        needs: &[Need::Tool("redis-server"), Need::Tool("redis-benchmark")],
        make: cache_warm_up,
    },
    Control {
        name: "garbage-collected",
        what: "a service in Erlang, else Python, makes and drops objects at a steady rate",
        needs: &[],
        make: garbage_collected,
    },
    Control {
        name: "just-booted",
        what: "many services start within seconds, then all are idle",
        needs: &[Need::Tool("redis-server"), Need::Tool("python3")],
        make: just_booted,
    },
    Control {
        name: "network-test",
        what: "a fast transfer between two network namespaces",
        needs: &[Need::Tool("ip")],
        make: network_test,
    },
];

fn database(stage: &mut Stage) -> Result<(), Stop> {
    let database = Postgres::start(stage, 10, false, &[])?;
    let outcome = transactions(stage, &database);
    database.end(stage)?;
    outcome
}

/// A steady load on a freshly started server.
fn transactions(stage: &mut Stage, database: &Postgres) -> Result<(), Stop> {
    let rate = stage.draw().between(100, 300).to_string();
    let seconds = (stage.length().as_secs() + 60).to_string();
    let mut load = None;
    busy(stage, |stage, _| {
        stage.must_run(database.handle, "postgres")?;
        if load.is_none() {
            let mut bench = database.command("pgbench")?;
            bench.args(["-c", "4", "-j", "1", "-R", &rate, "-T", &seconds, "postgres"]);
            load = Some(stage.spawn(&mut bench)?);
        }
        load.map_or(Ok(()), |load| stage.must_run(load, "pgbench"))
    })
}

fn cache_warm_up(stage: &mut Stage) -> Result<(), Stop> {
    let (_, port) = redis_server(stage)?;
    let mb = stage.draw().between(64, 200);
    let port_arg = port.clone();
    // Bounds the memory, as for any cache that has been sized.
    let limit = format!(
        "printf 'CONFIG SET maxmemory {mb}mb\\r\\nCONFIG SET maxmemory-policy allkeys-lru\\r\\nQUIT\\r\\n' | timeout 5 bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port}; cat >&3; cat <&3'"
    );
    stage.run(Command::new("bash").args(["-c", &limit]))?;
    let client = stage.start("redis-ping", port)?;
    let mut next_s = 0.0;
    let mut burst: Option<ProcessHandle> = None;
    busy(stage, |stage, elapsed_s| {
        if elapsed_s >= next_s && burst.is_none_or(|b| stage.ended(b).is_some()) {
            next_s = elapsed_s + 1.0;
            let args = ["-c", "5", "-n", "3000", "-d", "2000", "-r", "1000000", "-q", "-t", "set,get"];
            burst = Some(stage.spawn(Command::new("redis-benchmark").args(["-p", &port_arg]).args(args))?);
        }
        Ok(())
    })?;
    stage.unharmed(&client, BUSY_FACTOR)
}

const ERLANG: &str = "F = fun G(N) -> L = [{I rem 977, integer_to_list(I), I * 1.5} || I <- lists:seq(1, 20000)], \
    _ = lists:sort(L), timer:sleep(20), G(N + 1) end, F(0).";

const PYTHON: &str = "import time, gc, random\nkeep = []\nwhile True:\n    batch = [{'id': i, 'next': [i] * 8} for i in range(4000)]\n    for b in batch: b['self'] = b\n    keep.append(batch[0])\n    keep[:] = keep[-50:]\n    del batch\n    time.sleep(0.03)\n";

fn garbage_collected(stage: &mut Stage) -> Result<(), Stop> {
    let mut service = None;
    let erlang = machine::have("erl");
    if !erlang && !machine::have("python3") {
        return Err(Stop::Skipped("neither erl nor python3 is installed".into()));
    }
    busy(stage, |stage, _| {
        if service.is_none() {
            let mut command = Command::new(if erlang { "erl" } else { "python3" });
            if erlang {
                command.args(["-noshell", "-eval", ERLANG]).env("HOME", stage.dir());
            } else {
                command.args(["-c", PYTHON]);
            }
            service = Some(stage.spawn(&mut command)?);
        }
        service.map_or(Ok(()), |s| stage.must_run(s, "the service"))
    })
}

fn just_booted(stage: &mut Stage) -> Result<(), Stop> {
    let services = stage.draw().between(12, 24);
    let dir = stage.dir().to_owned();
    let mut started = 0;
    let every_s = stage.draw().real(0.2, 0.4);
    busy(stage, |stage, elapsed_s| {
        if started >= services || elapsed_s < started as f64 * every_s {
            return Ok(());
        }
        started += 1;
        let socket = dir.join(format!("s{started}.sock"));
        match started % 3 {
            0 => stage.spawn(
                Command::new("redis-server").args(["--port", "0", "--save", "", "--unixsocket"]).arg(&socket).current_dir(&dir),
            ),
            1 => stage.spawn(Command::new("python3").args([
                "-c",
                "import json, http.server, ssl, sqlite3, asyncio, email, xml.dom.minidom, time\ntime.sleep(3600)",
            ])),
            _ => stage.spawn(Command::new("sh").args([
                "-c",
                "for f in /etc/*.conf /usr/share/zoneinfo/*; do [ -f \"$f\" ] && head -c 100 \"$f\" >/dev/null; done; exec sleep 3600",
            ])),
        }?;
        Ok(())
    })
}

fn network_test(stage: &mut Stage) -> Result<(), Stop> {
    let (a, b) = (stage.netns()?, stage.netns()?);
    let (_, _, _, address) = stage.veth(&a, &b)?;
    let bystander = bystander(stage)?;
    let (server, client) = (stage.draw().name(), stage.draw().name());
    let address = format!("{address}:{}", stage.draw().between(5_000, 9_000));
    stage.healthy()?;
    stage.trouble_starts();
    stage.role(&server, "tcp-drain", address.clone(), &Isolation { cgroup: None, netns: Some(&b) })?;
    stage.wait(std::time::Duration::from_millis(300))?;
    let sender = stage.role(&client, "tcp-stream", address, &Isolation { cgroup: None, netns: Some(&a) })?;
    stage.trouble_on(|stage, _| stage.must_run(sender.handle(), "the sender"))?;
    stage.unharmed(&bystander, BUSY_FACTOR)
}
