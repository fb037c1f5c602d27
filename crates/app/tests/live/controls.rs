//! Healthy machines, idle and busy. Mitra must have nothing to say about them.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::cpu::redis_server;
use crate::guard::{Child, spawn};
use crate::harness::{Case, Lab, Stop};
use crate::victim::Victim;

/// The cases of this file.
pub const CASES: &[Case] = &[
    Case { name: "control-idle", tools: &[], run: idle },
    Case { name: "control-make", tools: &["make", "gcc"], run: make },
    Case { name: "control-apt", tools: &["apt-get"], run: apt },
    Case { name: "control-redis", tools: &["redis-server", "redis-benchmark"], run: redis },
];

fn idle(lab: &mut Lab) -> Result<(), Stop> {
    lab.healthy_phase()?;
    lab.trouble_starts();
    lab.incident_phase(|_| Ok(()))?;
    lab.expect_nothing()
}

/// A C project of sixty files, built with as many jobs as the target machine has CPUs.
fn make(lab: &mut Lab) -> Result<(), Stop> {
    let dir = lab.dir.path().to_owned();
    write_project(&dir)?;
    let _bystander = Victim::start("tick", "live-ticker", "", None, &dir)?;
    lab.healthy_phase()?;
    lab.trouble_starts();
    let mut build =
        spawn(Command::new("make").args(["-j2", "-s"]).current_dir(&dir), None, &dir.join("make.log"))?;
    lab.incident_phase(|_| match build.ended() {
        Some(false) => Err(Stop::Failed("make failed".into())),
        _ => Ok(()),
    })?;
    println!("  make {}", if build.ended().is_some() { "is done" } else { "still works" });
    lab.expect_nothing()
}

fn write_project(dir: &Path) -> Result<(), Stop> {
    let mut makefile = String::from("CFLAGS = -O2\nall: main\n");
    let mut objects = String::new();
    for file in 0..60 {
        let mut code = String::new();
        for f in 0..120 {
            _ = writeln!(
                code,
                "int f{file}_{f}(int *a, int n) {{ int s = {f}; for (int i = 0; i < n; i++) {{ \
                 if (a[i] % {} == 0) s += a[i] * {f}; else s ^= a[i] >> {}; a[i] = s; }} return s; }}",
                f + 2,
                f % 7
            );
        }
        fs::write(dir.join(format!("part{file}.c")), code)?;
        _ = write!(objects, " part{file}.o");
    }
    fs::write(dir.join("main.c"), "int main(void) { return 0; }\n")?;
    _ = writeln!(makefile, "main: main.o{objects}");
    fs::write(dir.join("Makefile"), makefile)?;
    Ok(())
}

/// Fetches and digests the package lists, into a directory of its own.
fn apt(lab: &mut Lab) -> Result<(), Stop> {
    let dir = lab.dir.path().to_owned();
    for sub in ["lists/partial", "cache/archives/partial"] {
        fs::create_dir_all(dir.join(sub))?;
    }
    lab.healthy_phase()?;
    lab.trouble_starts();
    let update = RefCell::new(spawn(
        Command::new("apt-get")
            .args(["update", "-q", "--error-on=any", "-o", "APT::Sandbox::User=root"])
            .arg("-o")
            .arg(format!("Dir::State::lists={}/lists", dir.display()))
            .arg("-o")
            .arg(format!("Dir::Cache={}/cache", dir.display())),
        None,
        &dir.join("apt.log"),
    )?);
    let worked = RefCell::new(None);
    lab.incident_phase(|_| {
        if worked.borrow().is_none() {
            *worked.borrow_mut() = update.borrow_mut().ended();
        }
        Ok(())
    })?;
    if worked.into_inner() == Some(false) {
        return Err(Stop::Skipped("apt-get update does not work here (no network?)".into()));
    }
    lab.expect_nothing()
}

/// A redis server that answers some two thousand requests once a second.
fn redis(lab: &mut Lab) -> Result<(), Stop> {
    let dir = lab.dir.path().to_owned();
    let (_server, port) = redis_server(lab)?;
    let _client = Victim::start("redis-ping", "live-client", &port, None, &dir)?;
    lab.healthy_phase()?;
    lab.trouble_starts();
    let mut burst: Option<Child> = None;
    let mut bursts = 0.0;
    lab.incident_phase(|elapsed_s| {
        if elapsed_s >= bursts {
            bursts += 1.0;
            let command = &mut Command::new("redis-benchmark");
            command.args(["-p", &port, "-c", "5", "-n", "1000", "-q", "-t", "set,get"]);
            burst = Some(spawn(command, None, &dir.join("benchmark.log"))?);
        }
        Ok(())
    })?;
    drop(burst);
    lab.expect_nothing()
}
