//! Devices of the machine, and who waits for them.

use std::sync::Arc;

use mitra_model::time::SECOND;
use mitra_model::{TextSeries, lookup};

use crate::support::{AFTER, HEALTHY, INCIDENT, Machine, START, is_on, row};

pub const N: usize = HEALTHY + INCIDENT + AFTER;

/// A text that does not change.
pub fn text(m: &mut Machine, metric: &str, row: &str, text: &str) {
    m.text(metric, row, 1, text);
}

/// A task that is found in D while the trouble lasts.
pub fn stuck(m: &mut Machine, tid: u32, comm: &str, stack: &str) {
    m.task(tid, comm, 0);
    let states = (0..N).map(|i| f64::from(if is_on(i) { b'D' } else { b'S' })).collect();
    m.values("task.state", &row(tid), 0, states);
    let at = |i: usize| START + (i as i64 + 1) * SECOND;
    let changes = vec![(at(HEALTHY), Some(Arc::from(stack))), (at(HEALTHY + INCIDENT), None)];
    m.set.insert_text(
        lookup("task.kstack").unwrap(),
        row(tid).as_str().into(),
        TextSeries { changes, place: None },
    );
}

/// Requests of a device: how many a second, how many bytes and seconds each, before and during.
pub fn device(m: &mut Machine, name: &str, before: (f64, f64, f64), during: (f64, f64, f64), kind: &str) {
    let both = |f: fn((f64, f64, f64)) -> f64| (f(before), f(during));
    let (n0, n1) = both(|(n, ..)| n);
    let (bytes0, bytes1) = both(|(n, bytes, _)| n * bytes);
    let (time0, time1) = both(|(n, _, s)| n * s);
    let other = if kind == "read" { "write" } else { "read" };
    m.row(&format!("disk.{kind}s"), name, n0, n1).row(&format!("disk.{kind}_bytes"), name, bytes0, bytes1);
    m.row(&format!("disk.{kind}_time"), name, time0, time1);
    for metric in [format!("disk.{other}s"), format!("disk.{other}_bytes"), format!("disk.{other}_time")] {
        m.row(&metric, name, 0.0, 0.0);
    }
    m.row("disk.weighted_time", name, time0, time1).row("disk.io_time", name, time0.min(1.0), time1.min(1.0));
}

/// Who waits for I/O: the part of the time, and tasks.
pub fn waits(m: &mut Machine, psi: f64, tasks: f64) {
    m.sys("psi.io_some", 0.01, psi).sys("tasks.d_io", 0.0, tasks).sys("sys.cpu_iowait", 0.0, psi.min(0.9));
}
