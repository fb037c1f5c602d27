//! Services that reach a limit of their own: connections, a pool, the capacity of one worker.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::site::{App, Asks, Crowd, Proxy, Size, family, free_address};
use crate::incident::{Stop, Truth};
use crate::incidents::common::trouble_from_full;
use crate::stage::{Isolation, Stage, Victim};

const PATIENCE_MS: u64 = 5_000;
/// A long poll is answered by then.
pub const LONGEST_POLL: Duration = Duration::from_millis(3_500);
/// nginx' log message when connections run out.
const NOT_ENOUGH: &str = "worker_connections are not enough";

/// Long polling clients take two connections each, and more clients come than there are
/// connections. Loud: about three times as many. Faint: somewhat more.
pub fn connections(stage: &mut Stage) -> Result<Truth, Stop> {
    let limit = stage.draw().between(48, 160);
    let (proxy, victim) = filled(stage, (limit, 8), limit, NOT_ENOUGH, |_, _| Ok(()))?;
    stage.failed(&victim, stage.loud(5.0, 0.5))?;
    Ok(Truth { process: Some("nginx".into()), pids: proxy.pids(), ..Truth::default() })
}

/// The same for an nginx whose descriptor limit is below its configured connections.
pub fn descriptors(stage: &mut Stage) -> Result<Truth, Stop> {
    let limit = stage.draw().between(64, 160);
    let (proxy, victim) = filled(stage, (limit, 16), 4_096, "Too many open files", |stage, proxy| {
        let worker = family(proxy.handle.pid()).last().copied().unwrap_or_else(|| proxy.handle.pid());
        let words = ["--pid", &worker.to_string(), &format!("--nofile={limit}:{limit}")];
        stage.run(Command::new("prlimit").args(words)).map(drop)
    })?;
    stage.hurt_or_failed(&victim, stage.loud(5.0, 2.0))?;
    Ok(Truth { process: Some("nginx".into()), pids: proxy.pids(), ..Truth::default() })
}

/// Fills an nginx with `places` connections, of which `others` serve other clients, until its log
/// reports the shortage.
fn filled(
    stage: &mut Stage,
    (places, others): (u64, u64),
    connections: u64,
    says: &str,
    prepare: impl FnOnce(&mut Stage, &Proxy) -> Result<(), Stop>,
) -> Result<(Proxy, Victim), Stop> {
    let here = Isolation::default();
    // Each client takes two connections for three seconds on average.
    let full_per_s = places.saturating_sub(others) as f64 / 2.0 / 3.0;
    let size = Size { processes: 1, threads: places };
    let app = App::start(stage, &here, free_address()?, size, "/poll wait 2500 3500\n/ compute 0.5\n")?;
    let proxy = Proxy::start(stage, &here, free_address()?, connections, &[&app])?;
    prepare(stage, &proxy)?;
    let asks = Asks { every_ms: 20, patience_ms: PATIENCE_MS, path: "/", keeps: false };
    let victim = asks.start(stage, &here, &proxy.address)?;
    let polls = Crowd::start(stage, &here, &proxy.address, full_per_s * 0.4, 10_000, "/poll")?;
    let times = stage.real((2.5, 4.0), (1.15, 1.3));
    stage.warm_up(LONGEST_POLL)?;
    stage.healthy()?;

    stage.trouble_starts();
    polls.come(full_per_s * times)?;
    trouble_from_full(stage, "what nginx has", || {
        Ok(fs::read_to_string(&proxy.error_log).is_ok_and(|text| text.contains(says)))
    })?;
    Ok((proxy, victim))
}

/// Some connections taken from the pool are not returned. Loud: three in ten. Faint: a few in a
/// hundred.
pub fn pool(stage: &mut Stage) -> Result<Truth, Stop> {
    let here = Isolation::default();
    let places = stage.draw().uniform(6, 14);
    let per_s = stage.draw().between(20, 40);
    let empty = stage.file("empty");
    // All clients together use the pool up in a second, or in two or three.
    let all_per_s = per_s as f64 + 30.0;
    let seconds = stage.real((0.7, 1.2), (2.0, 3.0));
    let leak = (places as f64 / seconds / all_per_s * 1e3).clamp(5.0, 1e3) as u64;
    let manners = |leak: u64| format!("* compute 1\n* pool {places} {leak} 2 {empty}\n");
    let size = Size { processes: 1, threads: places + stage.draw().uniform(4, 10) };
    let app = App::start(stage, &here, free_address()?, size, &manners(0))?;
    let asks = Asks { every_ms: 25, patience_ms: PATIENCE_MS, path: "/", keeps: false };
    let victim = asks.start(stage, &here, &app.address)?;
    Crowd::start(stage, &here, &app.address, per_s as f64, PATIENCE_MS, "/")?;
    stage.healthy()?;

    stage.trouble_starts();
    app.behave(&manners(leak))?;
    trouble_from_full(stage, "the pool", || Ok(Path::new(&empty).exists()))?;
    stage.suffered(&victim, stage.loud(20.0, 5.0))?;
    Ok(Truth { process: Some(app.name.clone()), pids: app.pids(), ..Truth::default() })
}

/// Both are true: the clients ask for more, and the server cannot answer more.
pub fn load(stage: &mut Stage) -> Result<Truth, Stop> {
    let here = Isolation::default();
    let cost_ms = stage.draw().uniform(6, 18);
    let full_per_s = 1_000.0 / (cost_ms as f64 + 0.5);
    let size = Size { processes: 1, threads: 1 };
    let app = App::start(stage, &here, free_address()?, size, &format!("* compute {cost_ms}\n"))?;
    let asks = Asks { every_ms: 100, patience_ms: PATIENCE_MS, path: "/", keeps: false };
    let victim = asks.start(stage, &here, &app.address)?;
    let crowd = Crowd::start(stage, &here, &app.address, full_per_s * 0.25, PATIENCE_MS, "/")?;
    let share = stage.real((1.3, 2.0), (0.98, 1.08));
    stage.healthy()?;

    stage.trouble_starts();
    crowd.come(full_per_s * share)?;
    stage.trouble()?;
    stage.suffered(&victim, stage.loud(10.0, 1.5))?;
    Ok(Truth { pids: vec![app.handle.pid(), crowd.client.pid()], ..Truth::default() })
}
