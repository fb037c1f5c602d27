//! PostgreSQL incidents that no resource of the machine shows.

use std::fs;
use std::path::Path;

use super::site::Postgres;
use super::waits::holds;
use crate::incident::{Stop, Truth, WithPath};
use crate::incidents::common::trouble_from_full;
use crate::stage::Stage;

const UPDATE: &str = "UPDATE pgbench_branches SET bbalance = bbalance + 1 WHERE bid = 1";
const SELECT: &str = "SELECT abalance FROM pgbench_accounts WHERE aid = 4711";

/// Makes an incident of a database, and always shuts the database down in order.
fn with_database(
    stage: &mut Stage,
    scale: u64,
    settings: &[&str],
    make: fn(&mut Stage, &Postgres) -> Result<Truth, Stop>,
) -> Result<Truth, Stop> {
    let over_tcp = stage.draw().uniform(0, 1) == 0;
    let database = Postgres::start(stage, scale, over_tcp, settings)?;
    let outcome = make(stage, &database);
    database.end(stage)?;
    outcome
}

/// Clients that arrive at a fixed rate, with pgbench's own transactions or read-only ones.
fn bench(stage: &mut Stage, database: &Postgres, clients: u64, per_s: u64, how: &[&str]) -> Result<(), Stop> {
    let mut bench = database.command("pgbench")?;
    bench.args(["-n", "-c", &clients.to_string(), "-j", "1", "-R", &per_s.to_string(), "-T", "120"]);
    stage.spawn(bench.args(how).arg("postgres")).map(drop)
}

pub fn row_lock(stage: &mut Stage) -> Result<Truth, Stop> {
    with_database(stage, 1, &[], |stage, database| {
        let (clients, per_s) = (stage.draw().between(4, 12), stage.draw().between(20, 60));
        bench(stage, database, clients, per_s, &[])?;
        let statement =
            stage.draw().pick(&[UPDATE, "SELECT * FROM pgbench_branches WHERE bid = 1 FOR UPDATE"]);
        locked(stage, database, UPDATE, statement)
    })
}

/// An idle session holds a lock on a whole table.
pub fn table_lock(stage: &mut Stage) -> Result<Truth, Stop> {
    with_database(stage, 1, &[], |stage, database| {
        let clients = stage.draw().between(4, 12);
        bench(stage, database, clients, 60, &["-S"])?;
        locked(stage, database, SELECT, "LOCK TABLE pgbench_accounts IN ACCESS EXCLUSIVE MODE")
    })
}

/// A client needs what an idle session keeps locked by `statement`. Loud: until the end. Faint: for
/// a part of each second.
fn locked(stage: &mut Stage, database: &Postgres, asked: &str, statement: &str) -> Result<Truth, Stop> {
    let victim = stage.start("pg-ask", format!("{} 20 {asked}", database.at))?;
    let (go, pid) = (stage.file("go"), stage.file("session"));
    let (hold_ms, every_ms) = holds(stage);
    let holder =
        stage.start("pg-hold", format!("{} {go} {hold_ms} {every_ms} {pid} {statement}", database.at))?;
    let session = || fs::read_to_string(&pid).ok().and_then(|text| text.trim().parse::<u32>().ok());
    stage.wait_for("a session", 10, |_| session().is_some())?;
    stage.healthy()?;

    stage.trouble_starts();
    fs::write(&go, "").at(&go)?;
    stage.trouble()?;
    stage.suffered(&victim, stage.loud(20.0, 3.0))?;
    // Whose connection it is can be seen of TCP.
    if !database.at.starts_with('/') {
        return Ok(Truth::of(&holder));
    }
    let pids = session().into_iter().collect();
    Ok(Truth { process: Some("postgres".into()), pids, ..Truth::default() })
}

/// The primary key of a table that all clients read is gone, and each query reads the whole table.
pub fn no_index(stage: &mut Stage) -> Result<Truth, Stop> {
    let scale = stage.between((4, 10), (1, 1));
    with_database(stage, scale, &["max_parallel_workers_per_gather=0"], no_index_in)
}

fn no_index_in(stage: &mut Stage, database: &Postgres) -> Result<Truth, Stop> {
    let (clients, per_s) = (stage.draw().between(4, 12), stage.between((60, 200), (15, 30)));
    bench(stage, database, clients, per_s, &["-S"])?;
    let victim = stage.start("pg-ask", format!("{} 20 {SELECT}", database.at))?;
    let mut drop = database.command("psql")?;
    drop.args(["-qc", "ALTER TABLE pgbench_accounts DROP CONSTRAINT pgbench_accounts_pkey", "postgres"]);
    stage.healthy()?;

    stage.trouble_starts();
    stage.run(&mut drop)?;
    stage.trouble()?;
    stage.suffered(&victim, stage.loud(20.0, 5.0))?;
    Ok(Truth { process: Some("postgres".into()), ..Truth::default() })
}

/// A program keeps opening sessions until no other client gets one. Loud: within a second. Faint:
/// within four.
pub fn too_many_clients(stage: &mut Stage) -> Result<Truth, Stop> {
    let most = stage.draw().between(20, 60);
    let setting = format!("max_connections={most}");
    with_database(stage, 1, &[&setting], too_many_clients_of)
}

fn too_many_clients_of(stage: &mut Stage, database: &Postgres) -> Result<Truth, Stop> {
    bench(stage, database, 4, 40, &["-S"])?;
    let victim = stage.start("pg-visit", format!("{} 50 {SELECT}", database.at))?;
    let (every_ms, full) = (stage.between((15, 40), (60, 100)), stage.file("full"));
    stage.healthy()?;

    stage.trouble_starts();
    let keeper = stage.start("pg-keep", format!("{} {every_ms} {full}", database.at))?;
    trouble_from_full(stage, "the sessions of PostgreSQL", || Ok(Path::new(&full).exists()))?;
    stage.failed(&victim, stage.loud(5.0, 2.0))?;
    // Either is true: the client that holds all sessions, or the server that has none left.
    Ok(Truth { pids: vec![keeper.pid(), database.handle.pid()], ..Truth::default() })
}
