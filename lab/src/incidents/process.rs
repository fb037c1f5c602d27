//! Incidents of one process: descriptors, crashes, threads, a hang.

use std::net::TcpListener;
use std::process::Command;

use super::common::{by_cpus, trouble_from_full};
use crate::incident::{Incident, Need, Stop, Truth};
use crate::journal::Undo;
use crate::stage::{Fs, Isolation, Stage, Victim};

/// The incidents of this file.
pub const INCIDENTS: &[Incident] = &[
    Incident::new("fd-leak", "fd-exhaustion", "process", fd_leak)
        .what("a server leaves a descriptor open now and then, until it cannot accept any more"),
    Incident::new("crash", "process-crash", "process", crash)
        .what("a server writes through a null pointer; its clients are turned away"),
    Incident::new("crash-loop", "crash-loop", "process", crash_loop).what(
        "a server cannot use its configuration any more, dies, and its keeper starts it again and again",
    ),
    Incident::new("threads", "thread-explosion", "process", threads)
        .what("a program starts threads that never end and wake all the time")
        .chain(&["runqueue-wait"]),
    Incident::new("frozen-fs", "hung-task", "process", frozen)
        .what("a file system is frozen, as for a snapshot, and not thawed; a program that writes to it hangs")
        .needs(&[Need::Tool("fsfreeze"), Need::Tool("mkfs.ext4"), Need::DiskBytes(1 << 30)])
        .chain(&["tasks-in-d-state"]),
];

/// A port that was free a moment ago.
fn free_port() -> Result<u16, Stop> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// A client of the port. Waits until the server accepts.
fn client(stage: &mut Stage, port: u16, per_s: u64) -> Result<Victim, Stop> {
    stage.wait_for("the server", 10, |_| std::net::TcpStream::connect(("127.0.0.1", port)).is_ok())?;
    stage.start("ask", format!("{port} {per_s}"))
}

fn fd_leak(stage: &mut Stage) -> Result<Truth, Stop> {
    let port = free_port()?;
    let name = stage.draw().name();
    let limit = stage.draw().between(96, 512);
    // Loud: no descriptor is ever closed. Faint: at the limit a few are closed after a while, as by
    // a garbage collector.
    let while_ms = stage.draw().between(1_000, 1_400);
    let frees_after = stage.loud(0, while_ms);
    // Per mille: every request leaks, from the start on, because a bug is there from the start. The
    // healthy time is long enough only because it has few requests.
    let leaks = 1_000;
    let argument = format!("{port} {limit} {leaks} {frees_after}");
    let server = stage.role(&name, "serve", argument, &Isolation::default())?;
    let victim = client(stage, port, 4)?;
    stage.healthy()?;

    stage.trouble_starts();
    // The load rises, and the limit is reached within two or three seconds.
    stage.start("ask", format!("{port} {}", limit / 2))?;
    let fds = format!("/proc/{}/fd", server.pid());
    let is_full = || Ok(std::fs::read_dir(&fds).is_ok_and(|list| list.count() as u64 >= limit));
    trouble_from_full(stage, "descriptors", is_full)?;
    if stage.suffered(&victim, stage.loud(3.0, 1.5)).is_err() {
        stage.failed(&victim, 0.3)?;
    }
    Ok(Truth::of(&server))
}

fn crash(stage: &mut Stage) -> Result<Truth, Stop> {
    let port = free_port()?;
    let (name, trap) = (stage.draw().name(), stage.file("request"));
    let argument = format!("{port} 0 0 0 {trap} fault");
    let server = stage.role(&name, "serve", argument.clone(), &Isolation::default())?;
    let victim = client(stage, port, 50)?;
    stage.healthy()?;

    stage.trouble_starts();
    std::fs::write(&trap, "x")?;
    let mut pids = vec![server.pid()];
    // Loud: nothing restarts it. Faint: it is restarted once, after a second.
    let again = stage.loud(false, true);
    let after_s = stage.draw().real(0.8, 1.3);
    stage.trouble_on(|stage, seconds| {
        if again && pids.len() == 1 && seconds > after_s {
            _ = std::fs::remove_file(&trap);
            pids.push(stage.role(&name, "serve", argument.clone(), &Isolation::default())?.pid());
        }
        Ok(())
    })?;
    stage.failed(&victim, stage.loud(10.0, 1.0))?;
    Ok(Truth { process: Some(name), pids, ..Truth::default() })
}

fn crash_loop(stage: &mut Stage) -> Result<Truth, Stop> {
    let port = free_port()?;
    let (keeper, name, trap) = (stage.draw().name(), stage.draw().name(), stage.file("settings"));
    let end = stage.draw().pick(&["exit", "exit", "abort"]);
    // Loud: every second or so. Faint: every three seconds.
    let delay = stage.between((300, 1_000), (2_200, 2_800));
    let argument = format!("{delay} {name} {port} 0 0 0 {trap} {end}");
    stage.role(&keeper, "keep", argument, &Isolation::default())?;
    let victim = client(stage, port, 50)?;
    stage.healthy()?;

    stage.trouble_starts();
    std::fs::write(&trap, "x")?;
    stage.trouble()?;
    stage.failed(&victim, 10.0)?;
    Ok(Truth { process: Some(name), ..Truth::default() })
}

fn threads(stage: &mut Stage) -> Result<Truth, Stop> {
    let (bystander, name) = (stage.draw().name(), stage.draw().name());
    let victim = stage.role(&bystander, "work", "", &Isolation::default())?;
    let per_s = stage.between((120, 240), (60, 80));
    // At the end of the shortest trouble their work adds up to about half of the CPUs, so that the
    // bystander suffers.
    let turns = by_cpus(stage.loud(60_000, 90_000));
    let pause = stage.draw().between(55, 65);
    stage.healthy()?;

    stage.trouble_starts();
    let argument = format!("{per_s} 4000 {pause} {turns}");
    let culprit = stage.role(&name, "start-threads", argument, &Isolation::default())?;
    stage.trouble()?;
    stage.suffered(&victim, stage.loud(2.0, 1.2))?;
    Ok(Truth::of(&culprit))
}

fn frozen(stage: &mut Stage) -> Result<Truth, Stop> {
    let fs = stage.loop_fs(256 << 20, Fs::Ext4)?;
    let mount = fs.mount().display().to_string();
    let thaw = Undo::Thaw(fs.mount().to_owned());
    stage.on_cleanup(thaw.clone())?;
    // Faint: the file system is thawed before the end, but not within 8 s: a journal commit may be
    // five seconds late and could explain a shorter hang.
    let early = stage.draw().real(8.0, 9.8);
    let thaws = stage.loud(f64::INFINITY, early);
    let mut is_frozen = true;
    let name = stage.draw().name();
    let per_s = stage.draw().between(20, 200);
    let victim =
        stage.role(&name, "write-file", format!("4 {per_s} 64 {mount}/journal"), &Isolation::default())?;
    stage.healthy()?;

    stage.trouble_starts();
    stage.run(Command::new("fsfreeze").args(["--freeze", &mount]))?;
    stage.trouble_with(|seconds| {
        if is_frozen && seconds > thaws {
            is_frozen = false;
            thaw.perform()?;
        }
        Ok(())
    })?;
    thaw.perform()?;
    stage.suffered(&victim, 100.0)?;
    Ok(Truth { process: Some(name), pids: vec![victim.pid()], ..Truth::default() })
}
