//! Services whose threads wait: for another server, a lock, a file system, each other.

use std::fs;
use std::process::Command;

use rustix::process::Signal;

use super::site::{App, Asks, Crowd, Proxy, Size, free_address};
use crate::incident::{Form, Stop, Truth, WithPath};
use crate::incidents::network::{Cable, cable};
use crate::stage::{Isolation, ProcessHandle, Speed, Stage, Victim};

/// Longer than any trouble.
const FOR_EVER_MS: u64 = 3_600_000;
/// A request without an answer by then counts as failed.
const PATIENCE_MS: u64 = 5_000;

/// A proxy, the workers behind it, and the client whose times count.
struct Front {
    app: App,
    victim: Victim,
}

/// An nginx in front of some workers, clients that arrive at a fixed rate, and one client that
/// measures.
fn front(
    stage: &mut Stage,
    here: &Isolation<'_>,
    processes: u64,
    manners: &str,
    per_s: u64,
) -> Result<Front, Stop> {
    // Loopback addresses of the respective network namespace.
    let (behind, address) = (free_address()?, free_address()?);
    let app = App::start(stage, here, behind, Size { processes, threads: 1 }, manners)?;
    let proxy = Proxy::start(stage, here, address, 1_024, &[&app])?;
    let asks = Asks { every_ms: 25, patience_ms: PATIENCE_MS, path: "/", keeps: true };
    let victim = asks.start(stage, here, &proxy.address)?;
    Crowd::start(stage, here, &proxy.address, per_s as f64, PATIENCE_MS, "/")?;
    Ok(Front { app, victim })
}

fn left(cable: &Cable) -> Isolation<'_> {
    Isolation { netns: Some(&cable.left), cgroup: None }
}

fn right(cable: &Cable) -> Isolation<'_> {
    Isolation { netns: Some(&cable.right), cgroup: None }
}

/// Sends segments for `address` to the right end, whether or not it has the address. Without it,
/// they are dropped there.
fn never_ask_who_has(stage: &mut Stage, cable: &Cable, address: &str) -> Result<(), Stop> {
    let said = stage.run(
        Command::new("ip")
            .args(["-n", cable.right.name(), "-o", "link", "show"])
            .args(["dev", &cable.right_device]),
    )?;
    let mac = said.split_whitespace().skip_while(|word| *word != "link/ether").nth(1);
    let mac = mac.ok_or_else(|| Stop::Failed(format!("no hardware address in: {said}")))?.to_owned();
    let words = ["neigh", "replace", address, "lladdr", &mac, "dev", &cable.left_device, "nud", "permanent"];
    stage.run(Command::new("ip").args(["-n", cable.left.name()]).args(words))?;
    // A router would send an ICMP error to the sender.
    stage.sysctl_in(&cable.right, "net.ipv4.ip_forward", "0")
}

/// The host that the workers call disappears, or they start to call one that never existed. Loud:
/// each request fails after the worker's timeout, and there are fewer workers than requests. Faint:
/// the worker answers without it, a little later.
pub fn unreachable(stage: &mut Stage) -> Result<Truth, Stop> {
    let cable = cable(stage)?;
    let (here, there) = (left(&cable), right(&cable));
    let backend = cable.address(stage);
    App::start(stage, &there, backend.clone(), Size { processes: 1, threads: 8 }, "* wait 0.5 1\n")?;
    let patience_ms = stage.between((1_500, 4_000), (150, 300));
    let otherwise = stage.loud("fail", "without");
    let manners = |address: &str| format!("* compute 1\n* call {address} {patience_ms} {otherwise}\n");
    let (processes, per_s) = (stage.draw().uniform(3, 6), stage.between((15, 40), (2, 5)));
    let front = front(stage, &here, processes, &manners(&backend), per_s)?;
    let goes_away = stage.draw().uniform(0, 1) == 0;
    let (host, port) = backend.rsplit_once(':').unwrap_or((&backend, "0"));
    let subnet = host.rsplit_once('.').map_or(host, |(subnet, _)| subnet);
    let nobody = format!("{subnet}.{}", stage.draw().uniform(10, 250));
    let silent = if goes_away { host.to_owned() } else { nobody };
    never_ask_who_has(stage, &cable, &silent)?;
    stage.healthy()?;

    stage.trouble_starts();
    if goes_away {
        let words = ["addr", "del", &format!("{host}/24"), "dev", &cable.right_device];
        stage.run(Command::new("ip").args(["-n", cable.right.name()]).args(words))?;
    } else {
        front.app.behave(&manners(&format!("{silent}:{port}")))?;
    }
    stage.trouble()?;
    stage.suffered(&front.victim, stage.loud(20.0, 5.0))?;
    Ok(Truth { address: Some(silent), ..Truth::default() })
}

/// The backend listens on the same loopback, in another network namespace of this host, or on a
/// Unix socket.
pub fn slow_backend(stage: &mut Stage) -> Result<Truth, Stop> {
    let way = stage.draw().pick(&["loopback", "cable", "socket"]);
    let cable = if way == "cable" { Some(cable(stage)?) } else { None };
    let (here, there) = cable.as_ref().map_or_else(Default::default, |cable| (left(cable), right(cable)));
    let address = match &cable {
        Some(cable) => cable.address(stage),
        None if way == "socket" => stage.file("backend.sock"),
        None => free_address()?,
    };
    let backend =
        App::start(stage, &there, address.clone(), Size { processes: 1, threads: 32 }, "* wait 1 4\n")?;
    let manners = format!("* compute 1\n* call {address} 10000\n");
    let (processes, per_s) = (stage.draw().uniform(3, 6), stage.between((10, 25), (4, 8)));
    let front = front(stage, &here, processes, &manners, per_s)?;
    let least_ms = stage.between((300, 900), (40, 70));
    let most_ms = least_ms * stage.draw().uniform(15, 22) / 10;
    stage.healthy()?;

    stage.trouble_starts();
    backend.behave(&format!("* wait {least_ms} {most_ms}\n"))?;
    stage.trouble()?;
    stage.suffered(&front.victim, stage.loud(20.0, 4.0))?;
    Ok(Truth { process: Some(backend.name.clone()), pids: backend.pids(), ..Truth::default() })
}

/// A request costs the backend several times as much as before. Faint: it has the capacity for all
/// of them, but two queued requests exceed the timeout of its callers. They retry while it still
/// works on abandoned requests.
pub fn retries(stage: &mut Stage) -> Result<Truth, Stop> {
    let here = Isolation::default();
    let usual_ms = stage.draw().uniform(5, 9);
    let one = Size { processes: 1, threads: 1 };
    let address = free_address()?;
    let backend = App::start(stage, &here, address.clone(), one, &format!("* compute {usual_ms}\n"))?;
    let patience_ms = usual_ms * stage.draw().uniform(12, 16);
    let tries = stage.uniform((4, 6), (2, 3));
    let front = free_address()?;
    let many = Size { processes: 1, threads: 48 };
    let manners = format!("* call {address} {patience_ms} fail {tries}\n");
    App::start(stage, &here, front.clone(), many, &manners)?;
    let asks = Asks { every_ms: 50, patience_ms: PATIENCE_MS, path: "/", keeps: false };
    let victim = asks.start(stage, &here, &front)?;
    // Together with the measuring client, about a third of the backend's capacity.
    let per_s = 150.0 / usual_ms as f64;
    Crowd::start(stage, &here, &front, per_s, PATIENCE_MS, "/")?;
    let slower = stage.real((7.0, 9.0), (5.0, 6.0));
    stage.healthy()?;

    stage.trouble_starts();
    backend.behave(&format!("* compute {:.1}\n", usual_ms as f64 * slower))?;
    stage.trouble()?;
    stage.suffered(&victim, stage.loud(10.0, 3.0))?;
    Ok(Truth { process: Some(backend.name.clone()), pids: backend.pids(), ..Truth::default() })
}

/// How long a lock is held, and how often, in milliseconds. Loud: for good. Faint: for a part of
/// each second.
pub fn holds(stage: &mut Stage) -> (u64, u64) {
    match stage.form() {
        Form::Loud => (FOR_EVER_MS, FOR_EVER_MS),
        Form::Faint => (stage.draw().between(250, 450), 1_000),
    }
}

pub fn file_lock(stage: &mut Stage) -> Result<Truth, Stop> {
    let here = Isolation::default();
    let (path, go) = (stage.file("state"), stage.file("go"));
    let (ours, theirs) = stage.draw().pick(&[("flock", "flock"), ("lockf", "fcntl")]);
    let size = Size { processes: stage.draw().uniform(4, 8), threads: 1 };
    let manners = format!("* compute 1\n* hold {ours} {path} 1\n");
    let app = App::start(stage, &here, free_address()?, size, &manners)?;
    let victim = asked_through(stage, &here, &app.address)?;
    let (hold_ms, every_ms) = holds(stage);
    let holder = stage.start("hold-lock", format!("{theirs} {path} {go} {hold_ms} {every_ms}"))?;
    stage.healthy()?;

    stage.trouble_starts();
    fs::write(&go, "").at(&go)?;
    stage.trouble()?;
    stage.suffered(&victim, stage.loud(20.0, 3.0))?;
    Ok(Truth::of(&holder))
}

/// Loud: the FUSE daemon stays stopped until the end. Faint: for some seconds.
pub fn fuse_hung(stage: &mut Stage) -> Result<Truth, Stop> {
    let here = Isolation::default();
    let disk = stage.slow_disk(2 << 20, Speed { micros: 200, bytes_per_s: 0 })?;
    let image = disk.image().display().to_string();
    let size = Size { processes: stage.draw().uniform(4, 8), threads: 1 };
    let manners = format!("* compute 1\n* read {image} 4096\n");
    let app = App::start(stage, &here, free_address()?, size, &manners)?;
    let asks = Asks { every_ms: 25, patience_ms: PATIENCE_MS, path: "/", keeps: false };
    let victim = asks.start(stage, &here, &app.address)?;
    let per_s = stage.draw().between(5, 30);
    Crowd::start(stage, &here, &app.address, per_s as f64, PATIENCE_MS, "/")?;
    let wakes_s = stage.real((f64::INFINITY, f64::INFINITY), (4.0, 6.0));
    let mut is_stopped = true;
    stage.healthy()?;

    stage.trouble_starts();
    stage.signal(disk.daemon(), Signal::STOP);
    stage.trouble_on(|stage, seconds| {
        if is_stopped && seconds > wakes_s {
            is_stopped = false;
            stage.signal(disk.daemon(), Signal::CONT);
        }
        Ok(())
    })?;
    stage.signal(disk.daemon(), Signal::CONT);
    stage.suffered(&victim, 20.0)?;
    let mount = disk.image().parent().map(|dir| dir.display().to_string());
    Ok(Truth { path: mount, ..Truth::default() })
}

/// Threads with two mutexes, or processes with two file locks. Loud: each request takes both.
/// Faint: one kind of request does, and blocks the threads one after the other.
pub fn deadlock(stage: &mut Stage) -> Result<Truth, Stop> {
    let here = Isolation::default();
    let kind = stage.draw().pick(&["mutex", "file"]);
    let many = stage.draw().uniform(5, 10);
    let size = if kind == "mutex" {
        Size { processes: 1, threads: many }
    } else {
        Size { processes: many, threads: 1 }
    };
    let (a, b) = (stage.file("accounts"), stage.file("entries"));
    let path = stage.loud("*", "/transfer");
    let manners = |order: &str, ms: u64| format!("* compute 1\n{path} both {kind} {order} {ms} {a} {b}\n");
    let app = App::start(stage, &here, free_address()?, size, &manners("same", 1))?;
    let asks = Asks { every_ms: 25, patience_ms: PATIENCE_MS, path: "/", keeps: false };
    let victim = asks.start(stage, &here, &app.address)?;
    let per_s = stage.between((15, 40), (4, 6));
    Crowd::start(stage, &here, &app.address, per_s as f64, PATIENCE_MS, "/transfer")?;
    let under_ms = stage.between((40, 80), (250, 400));
    stage.healthy()?;

    stage.trouble_starts();
    app.behave(&manners("cross", under_ms))?;
    stage.trouble()?;
    stage.suffered(&victim, stage.loud(20.0, 5.0))?;
    Ok(Truth { process: Some(app.name.clone()), pids: app.pids(), ..Truth::default() })
}

/// Loud: until the end. Faint: for a part of each second, as with a debugger that attaches again
/// and again.
pub fn stopped(stage: &mut Stage) -> Result<Truth, Stop> {
    let here = Isolation::default();
    let size = Size { processes: stage.draw().uniform(1, 4), threads: 4 };
    let app = App::start(stage, &here, free_address()?, size, "* compute 1\n")?;
    let victim = asked_through(stage, &here, &app.address)?;
    let pids = stopped_now_and_then(stage, app.handle, |_| app.pids())?;
    stage.suffered(&victim, stage.loud(20.0, 3.0))?;
    Ok(Truth { process: Some(app.name.clone()), pids, ..Truth::default() })
}

/// One measuring client and a crowd beside it, each request on a connection of its own.
pub fn asked_through(stage: &mut Stage, place: &Isolation<'_>, address: &str) -> Result<Victim, Stop> {
    let asks = Asks { every_ms: 25, patience_ms: PATIENCE_MS, path: "/", keeps: false };
    let victim = asks.start(stage, place, address)?;
    let per_s = stage.draw().between(10, 40);
    Crowd::start(stage, place, address, per_s as f64, PATIENCE_MS, "/")?;
    Ok(victim)
}

/// The healthy time, and then a trouble in which a process group is stopped by a signal. `asked`
/// runs while it is stopped.
pub fn stopped_now_and_then<T>(
    stage: &mut Stage,
    group: ProcessHandle,
    ask: impl FnOnce(&Stage) -> T,
) -> Result<T, Stop> {
    let (stopped_ms, every_ms) = holds(stage);
    let mut is_stopped = false;
    stage.healthy()?;

    stage.trouble_starts();
    stage.trouble_on(|stage, seconds| {
        let wanted = seconds % (every_ms as f64 / 1e3) < stopped_ms as f64 / 1e3;
        if wanted != is_stopped {
            is_stopped = wanted;
            stage.signal(group, if wanted { Signal::STOP } else { Signal::CONT });
        }
        Ok(())
    })?;
    let answer = ask(stage);
    stage.signal(group, Signal::CONT);
    Ok(answer)
}
