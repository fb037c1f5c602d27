//! Healthy services: varying load, clients that wait on purpose, restarts, releases.

use rustix::process::Signal;

use super::BUSY_FACTOR;
use crate::incident::{Control, Need, Stop};
use crate::incidents::site::{App, Asks, Crowd, Proxy, Size, free_address};
use crate::stage::{Isolation, Stage, Victim};

const NEEDS: &[Need] = &[Need::Tool("python3"), Need::Tool("nginx"), Need::Cpus(2)];

/// The controls of this file.
pub const CONTROLS: &[Control] = &[
    Control {
        name: "service-varying",
        what: "a service is asked a little, then much, then a little, and answers as fast as ever",
        needs: NEEDS,
        make: varying,
    },
    Control {
        name: "service-idle-clients",
        what: "hundreds of clients keep their connections and hardly ever ask",
        needs: NEEDS,
        make: idle_clients,
    },
    Control {
        name: "service-long-polling",
        what: "clients wait for news as long as there are none, and reports take a second as always",
        needs: NEEDS,
        make: long_polling,
    },
    Control {
        name: "service-rolling-restart",
        what: "the servers behind an nginx are restarted one after the other",
        needs: NEEDS,
        make: rolling_restart,
    },
    Control {
        name: "service-release",
        what: "a new release of a service has answers of another size",
        needs: NEEDS,
        make: release,
    },
];

/// A request without an answer by then counts as failed.
const PATIENCE_MS: u64 = 5_000;
const FOUR: Size = Size { processes: 1, threads: 4 };

/// An nginx in front of some servers, and the client that must notice nothing.
fn front(stage: &mut Stage, behind: &[&App]) -> Result<(Proxy, Victim), Stop> {
    let here = Isolation::default();
    let proxy = Proxy::start(stage, &here, free_address()?, 4_096, behind)?;
    let asks = Asks { every_ms: 20, patience_ms: PATIENCE_MS, path: "/", keeps: true };
    let victim = asks.start(stage, &here, &proxy.address)?;
    Ok((proxy, victim))
}

/// Healthy time, then calls `tick` ten times a second. The victim must not be hurt, and no request
/// may fail.
fn well(
    stage: &mut Stage,
    victim: &Victim,
    tick: impl FnMut(&mut Stage, f64) -> Result<(), Stop>,
) -> Result<(), Stop> {
    stage.healthy()?;
    stage.trouble_starts();
    stage.trouble_on(tick)?;
    stage.unharmed(victim, BUSY_FACTOR)
}

fn varying(stage: &mut Stage) -> Result<(), Stop> {
    let here = Isolation::default();
    let cost_ms = stage.draw().uniform(1, 4);
    let app = App::start(stage, &here, free_address()?, FOUR, &format!("* compute {cost_ms}\n"))?;
    let (proxy, victim) = front(stage, &[&app])?;
    // The capacity of one CPU: the threads share one lock (the GIL).
    let full_per_s = 1_000.0 / (cost_ms as f64 + 1.0);
    let crowd = Crowd::start(stage, &here, &proxy.address, full_per_s * 0.05, PATIENCE_MS, "/")?;
    let mut next_s = 0.0;
    well(stage, &victim, |stage, seconds| {
        if seconds >= next_s {
            next_s = seconds + stage.draw().real(1.5, 5.0);
            crowd.come(full_per_s * stage.draw().real(0.02, 0.3))?;
        }
        Ok(())
    })
}

fn idle_clients(stage: &mut Stage) -> Result<(), Stop> {
    let here = Isolation::default();
    let app = App::start(stage, &here, free_address()?, FOUR, "* compute 1\n")?;
    let (proxy, victim) = front(stage, &[&app])?;
    let (keep, say_nothing) = (stage.draw().between(100, 300), stage.draw().between(50, 150));
    let every_ms = stage.draw().between(20, 60);
    stage.start("http-idle", format!("{} {keep} {every_ms} /", proxy.address))?;
    stage.start("tcp-hold", format!("{} {say_nothing} 100", proxy.address))?;
    well(stage, &victim, |_, _| Ok(()))
}

fn long_polling(stage: &mut Stage) -> Result<(), Stop> {
    let here = Isolation::default();
    let clients = stage.draw().between(20, 60);
    let size = Size { processes: 1, threads: clients * 2 + 20 };
    let manners = "/ compute 1\n/news wait 15000 45000\n/report wait 800 1300\n";
    let app = App::start(stage, &here, free_address()?, size, manners)?;
    let (proxy, victim) = front(stage, &[&app])?;
    let reports_per_s = stage.draw().real(0.5, 3.0);
    Crowd::start(stage, &here, &proxy.address, reports_per_s, PATIENCE_MS, "/report")?;
    Crowd::start(stage, &here, &proxy.address, clients as f64 / 30.0, 60_000, "/news")?;
    well(stage, &victim, |_, _| Ok(()))
}

fn rolling_restart(stage: &mut Stage) -> Result<(), Stop> {
    let here = Isolation::default();
    let count = stage.draw().uniform(2, 4);
    let mut apps = Vec::new();
    for _ in 0..count {
        apps.push(App::start(stage, &here, free_address()?, FOUR, "* compute 1\n")?);
    }
    let (proxy, victim) = front(stage, &apps.iter().collect::<Vec<_>>())?;
    let per_s = stage.draw().real(10.0, 40.0);
    Crowd::start(stage, &here, &proxy.address, per_s, PATIENCE_MS, "/")?;
    let (mut next_s, mut turn) = (1.0, 0);
    well(stage, &victim, |stage, seconds| {
        if seconds >= next_s {
            next_s = seconds + 3.0;
            let at = turn % apps.len();
            turn += 1;
            apps[at] = restart(stage, &apps[at], "* compute 1\n")?;
        }
        Ok(())
    })
}

fn restart(stage: &mut Stage, app: &App, manners: &str) -> Result<App, Stop> {
    stage.end(app.handle, Signal::TERM, 5)?;
    App::start_as(stage, &Isolation::default(), app.address.clone(), FOUR, manners, app.name.clone())
}

fn release(stage: &mut Stage) -> Result<(), Stop> {
    let here = Isolation::default();
    let (before, after) = (stage.draw().between(300, 3_000), stage.draw().between(20_000, 90_000));
    let manners = |bytes: u64| format!("* compute 1\n* bytes {bytes}\n");
    let first = App::start(stage, &here, free_address()?, FOUR, &manners(before))?;
    let second = App::start(stage, &here, free_address()?, FOUR, &manners(before))?;
    let (proxy, victim) = front(stage, &[&first, &second])?;
    let per_s = stage.draw().real(10.0, 40.0);
    Crowd::start(stage, &here, &proxy.address, per_s, PATIENCE_MS, "/")?;
    let (mut left, mut next_s) = (vec![second, first], 2.0);
    well(stage, &victim, |stage, seconds| {
        if seconds >= next_s
            && let Some(app) = left.pop()
        {
            next_s = seconds + 3.0;
            restart(stage, &app, &manners(after))?;
        }
        Ok(())
    })
}
