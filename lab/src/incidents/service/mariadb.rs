//! MariaDB incidents that no resource of the machine shows.

use std::fs;
use std::os::unix::fs::chown;
use std::process::Command;

use rustix::process::Signal;

use super::site::{NOBODY, free_address, wait_for_server};
use super::waits::holds;
use crate::incident::{Stop, Truth, WithPath};
use crate::machine;
use crate::stage::{Isolation, ProcessHandle, Stage};

/// A MariaDB with a data directory of its own, and a table of accounts.
struct MariaDb {
    handle: ProcessHandle,
    /// Its address as a client's argument: a Unix socket, or host and port.
    at: String,
    socket: String,
}

impl MariaDb {
    /// Creates and starts it, with `accounts` rows. Listens on TCP, or else only on a Unix socket.
    fn start(stage: &mut Stage, accounts: u64, over_tcp: bool) -> Result<Self, Stop> {
        let data = stage.dir().join("data");
        fs::create_dir_all(&data).at(&data)?;
        for path in [stage.dir(), &data] {
            chown(path, Some(NOBODY), Some(NOBODY)).at(path)?;
        }
        let data = format!("--datadir={}", data.display());
        let tool = |name: &str| {
            machine::which(name).ok_or_else(|| Stop::Skipped(format!("{name} is not installed")))
        };
        let mut install = Command::new(tool("mariadb-install-db")?);
        // A fresh server has one login: root, authenticated by the socket.
        install.args([
            "--no-defaults",
            "--user=nobody",
            "--auth-root-authentication-method=socket",
            "--skip-test-db",
        ]);
        stage.run(install.arg(&data)).map_err(|e| Stop::Skipped(format!("mariadb-install-db: {e}")))?;
        let address = free_address()?;
        let port = address.rsplit(':').next().unwrap_or("3306");
        let socket = stage.file("mariadb.sock");
        let mut server = Command::new(tool("mariadbd")?);
        server
            .args(["--no-defaults", "--user=nobody", "--skip-name-resolve", &data])
            .arg(format!("--socket={socket}"));
        server.args(if over_tcp {
            vec!["--bind-address=127.0.0.1".to_owned(), format!("--port={port}")]
        } else {
            vec!["--skip-networking".to_owned()]
        });
        let handle = stage.spawn(&mut server)?;
        wait_for_server(stage, handle, &socket, &Isolation::default())?;
        let at = if over_tcp { address } else { socket.clone() };
        let database = Self { handle, at, socket };
        database.run(
            stage,
            &format!(
                "CREATE DATABASE bank; USE bank; CREATE TABLE bank.accounts (id INT PRIMARY KEY, code INT, balance INT, filler CHAR(84), \
                 KEY code (code)) ENGINE = InnoDB; INSERT INTO bank.accounts SELECT seq, seq * 3, 0, 'x' FROM \
                 seq_1_to_{accounts}; CREATE USER lab@localhost; CREATE USER lab@127.0.0.1; GRANT ALL ON bank.* TO \
                 lab@localhost; GRANT ALL ON bank.* TO lab@127.0.0.1"
            ),
        )?;
        Ok(database)
    }

    /// Runs statements as root.
    fn run(&self, stage: &mut Stage, sql: &str) -> Result<(), Stop> {
        let mut client = Command::new("mariadb");
        client.args(["--no-defaults", "-u", "root", "-S", &self.socket, "-e", sql]);
        stage.run(&mut client).map(drop)
    }

    fn truth(&self) -> Truth {
        Truth { process: Some("mariadbd".into()), pids: vec![self.handle.pid()], ..Truth::default() }
    }
}

/// Makes an incident of it, and always shuts it down in order.
fn with_mariadb(
    stage: &mut Stage,
    accounts: u64,
    make: fn(&mut Stage, &MariaDb) -> Result<Truth, Stop>,
) -> Result<Truth, Stop> {
    let over_tcp = stage.draw().uniform(0, 1) == 0;
    let database = MariaDb::start(stage, accounts, over_tcp)?;
    let outcome = make(stage, &database);
    stage.end(database.handle, Signal::TERM, 20)?;
    outcome
}

pub fn row_lock(stage: &mut Stage) -> Result<Truth, Stop> {
    with_mariadb(stage, 1_000, row_lock_in)
}

fn row_lock_in(stage: &mut Stage, database: &MariaDb) -> Result<Truth, Stop> {
    let id = stage.draw().between(1, 900);
    let update = format!("UPDATE bank.accounts SET balance = balance + 1 WHERE id = {id}");
    let lock = format!("SELECT * FROM bank.accounts WHERE id = {id} FOR UPDATE");
    let (clients, every_ms) = (stage.draw().between(3, 10), stage.draw().between(100, 300));
    for _ in 0..clients {
        stage.start("my-ask", format!("{} {every_ms} {update}", database.at))?;
    }
    let victim = stage.start("my-ask", format!("{} 20 {update}", database.at))?;
    let (go, session) = (stage.file("go"), stage.file("session"));
    let (hold_ms, every_ms) = holds(stage);
    let statement = stage.draw().pick(&[update.as_str(), lock.as_str()]).to_owned();
    let holder =
        stage.start("my-hold", format!("{} {go} {hold_ms} {every_ms} {session} {statement}", database.at))?;
    stage.wait_for("a session", 10, |_| fs::read_to_string(&session).is_ok_and(|text| !text.is_empty()))?;
    stage.healthy()?;

    stage.trouble_starts();
    fs::write(&go, "").at(&go)?;
    stage.trouble()?;
    stage.suffered(&victim, stage.loud(20.0, 3.0))?;
    // Whose connection it is can be seen of TCP.
    Ok(if database.at.starts_with('/') { database.truth() } else { Truth::of(&holder) })
}

/// The index that all clients use is gone, and each query reads the whole table.
pub fn no_index(stage: &mut Stage) -> Result<Truth, Stop> {
    let accounts = stage.between((200_000, 500_000), (100_000, 150_000));
    with_mariadb(stage, accounts, no_index_in)
}

fn no_index_in(stage: &mut Stage, database: &MariaDb) -> Result<Truth, Stop> {
    let (clients, per_s) = (stage.draw().between(4, 12), stage.between((60, 200), (15, 30)));
    let code = 3 * stage.draw().between(1, 30_000);
    let select = format!("SELECT balance FROM bank.accounts WHERE code = {code}");
    let every_ms = 1_000 * clients / per_s;
    for _ in 0..clients {
        stage.start("my-ask", format!("{} {every_ms} {select}", database.at))?;
    }
    let victim = stage.start("my-ask", format!("{} 20 {select}", database.at))?;
    stage.healthy()?;

    stage.trouble_starts();
    database.run(stage, "ALTER TABLE bank.accounts DROP INDEX code")?;
    stage.trouble()?;
    stage.suffered(&victim, stage.loud(20.0, 5.0))?;
    Ok(database.truth())
}
