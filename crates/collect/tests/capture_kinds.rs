//! The captures of calls, files, locks and interrupts against loads whose counts are known. Needs root; without it the
//! tests say so and pass.

mod armed;
#[path = "capture_kinds/cache.rs"]
mod cache;
#[path = "capture_kinds/calls.rs"]
mod calls;
#[path = "capture_kinds/cost.rs"]
mod cost;
#[path = "capture_kinds/groups.rs"]
mod groups;
#[path = "capture_kinds/growth.rs"]
mod growth;
#[path = "capture_kinds/interrupts.rs"]
mod interrupts;
#[path = "capture_kinds/sockets.rs"]
mod sockets;
#[path = "capture_kinds/waits.rs"]
mod waits;

use std::thread::sleep;
use std::time::{Duration, Instant};

use mitra_collect::capture::Request;
use mitra_model::capture::{CaptureTable, Cell, Raw};

use armed::judge::has;
use armed::{arm, thread};

/// A capture of threads of this process that bear a name.
fn own(kind: &str, comm: &str) -> Request {
    Request {
        pid: Some(std::process::id()),
        comm: Some(comm.to_owned()),
        cost_budget: 1.0,
        ..Request::new(kind, 20.0, "test")
    }
}

/// Captures what a thread of this name does. Nothing may be lost.
fn watch(request: &Request, work: impl FnOnce() + Send + 'static) -> Option<Raw> {
    let raw = watch_with_losses(request, work)?;
    assert_eq!(raw.captured.lost, 0, "{:?}", raw.captured.notes);
    Some(raw)
}

fn watch_with_losses(request: &Request, work: impl FnOnce() + Send + 'static) -> Option<Raw> {
    let mut armed = arm(request)?;
    thread(request.comm.as_deref().unwrap_or("mitra-load"), work).join().unwrap();
    assert!(armed.poll().is_none(), "it has ended before");
    Some(armed.finish())
}

fn table<'a>(raw: &'a Raw, name: &str) -> &'a CaptureTable {
    let table = raw.captured.tables.iter().find(|table| table.name == name);
    let table = table.unwrap_or_else(|| panic!("no table {name}"));
    assert!(table.rows.iter().all(|row| row.len() == table.columns.len()), "{name} is ragged");
    table
}

fn column(table: &CaptureTable, name: &str) -> usize {
    table.columns.iter().position(|c| c.name == name).unwrap_or_else(|| panic!("no column {name}"))
}

fn number(table: &CaptureTable, row: &[Cell], name: &str) -> f64 {
    match &row[column(table, name)] {
        Cell::Number(value) => *value,
        other => panic!("{name} is {other:?}"),
    }
}

fn text<'a>(table: &CaptureTable, row: &'a [Cell], name: &str) -> &'a str {
    match &row[column(table, name)] {
        Cell::Text(text) => text,
        other => panic!("{name} is {other:?}"),
    }
}

/// The rows in which columns have these texts.
fn rows<'a>(table: &'a CaptureTable, wanted: &[(&str, &str)]) -> Vec<&'a Vec<Cell>> {
    let matches = |row: &&Vec<Cell>| wanted.iter().all(|(name, value)| text(table, row, name) == *value);
    table.rows.iter().filter(matches).collect()
}

/// The one row in which columns have these texts.
fn one_row<'a>(table: &'a CaptureTable, wanted: &[(&str, &str)]) -> &'a Vec<Cell> {
    let found = rows(table, wanted);
    assert_eq!(found.len(), 1, "{wanted:?} in {:#?}", table.rows);
    found[0]
}

/// Waits until something is so, at most ten seconds.
fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !is_so() {
        assert!(Instant::now() < end, "{what} did not come about");
        sleep(Duration::from_millis(10));
    }
}
