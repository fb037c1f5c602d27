//! The load side of `tools/bench/fleet.py`: the agents of many hosts against a cluster.
//!
//! ```text
//! fleet_load GROUP HOSTS FILES SECONDS FREQUENCY_S SPREAD_S SHARDS DIR URL,URL… PREFIX
//! ```
//!
//! It prints `ready` when the hosts are made, waits for a line, and prints one JSON object when their day is over and
//! the cluster was compared with what they sent.

#[path = "../../tests/agents/mod.rs"]
mod agents;

use std::io::BufRead;
use std::path::Path;

use mitra_search::Error;
use mitra_search::opensearch::Settings;
use serde_json::{Value, json};

fn number<T: std::str::FromStr>(text: &str) -> Result<T, Error> {
    text.parse().map_err(|_| Error::Cannot(format!("wanted a number, not '{text}'")))
}

fn cpu_s() -> f64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    t.tv_sec as f64 + t.tv_nsec as f64 / 1e9
}

fn run(args: &[&str]) -> Result<Value, Error> {
    let [group, hosts, files, seconds, frequency_s, spread_s, shards, dir, nodes, prefix] = args else {
        return Err(Error::Cannot("see the beginning of its source for what it takes".to_owned()));
    };
    let shape = agents::Shape {
        group: (*group).to_owned(),
        hosts: number(hosts)?,
        files: number(files)?,
        seconds: number(seconds)?,
        frequency_s: number(frequency_s)?,
        spread_s: number(spread_s)?,
    };
    let settings = Settings {
        nodes: nodes.split(',').map(str::to_owned).collect(),
        prefix: (*prefix).to_owned(),
        shards: number(shards)?,
        ..Settings::default()
    };
    let fleet = agents::Fleet::new(shape, settings, Path::new(dir))?;
    println!("ready");
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line).map_err(|e| Error::Cannot(e.to_string()))?;
    let cpu = cpu_s();
    let outcome = fleet.live();
    let cpu = cpu_s() - cpu;
    // The other processes of this fleet are done as well before the cluster is asked for everything.
    println!("lived");
    std::io::stdin().lock().read_line(&mut line).map_err(|e| Error::Cannot(e.to_string()))?;
    let checked = fleet.check()?;
    Ok(json!({
        "documents": checked.documents, "lost": checked.lost, "doubled": checked.doubled, "stale": checked.stale,
        "changes": checked.changes, "changes_lost": checked.changes_lost,
        "changes_doubled": checked.changes_doubled, "examples": checked.examples,
        "per_second": outcome.per_second, "starts_ns": outcome.starts_ns, "fills_ns": outcome.fills_ns,
        "late_s": outcome.late.as_secs_f64(), "waited_bytes": outcome.waited_bytes,
        "flushed_s": outcome.flushed.as_secs_f64(), "cpu_s": cpu,
    }))
}

fn main() -> std::process::ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match run(&args) {
        Ok(said) => {
            println!("{said}");
            std::process::ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("fleet_load: {error}");
            std::process::ExitCode::FAILURE
        }
    }
}
