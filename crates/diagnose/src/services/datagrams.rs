//! Datagrams that a service works on beside its requests.
//!
//! The kernel counts datagrams for each network namespace and not for each socket. They are taken for a service's where they
//! begin to come when it gets late, its CPU rises with them and no other program's does as much, and each costs no more than a
//! request did.

use mitra_model::time::SECOND;
use mitra_model::{SeriesSet, Span};

use crate::network;
use crate::process::Process;
use crate::services::{NEED_S, Servers, Slow, Usual};
use crate::view::View;
use crate::words;

const IN: &str = "udp.InDatagrams";
const OUT: &str = "udp.OutDatagrams";
const CPU: &str = "task.cpu_time";
/// What the functions of this module read.
pub const DATAGRAMS: &[&str] = &[IN, OUT, "netns.udp_InDatagrams", "netns.udp_OutDatagrams", CPU];

/// A program takes ten microseconds for one at least: fewer a second are no hundredth of a CPU.
const LEAST_S: f64 = 1_000.0;
/// Times as many as before, and times the cost.
const MORE: f64 = 3.0;
/// A tenth of a CPU more than before: less delays nobody.
const CPU_MORE: f64 = 0.1;
/// Both onsets are known to a sample or two.
const NEAR_NS: i64 = 3 * SECOND;
/// Who sends one takes a microsecond for it at least.
const SEND_S: f64 = 1e-6;
/// Half of them.
const MOST: f64 = 0.5;

/// Datagrams that a service works on, per second.
#[derive(Debug, Clone)]
pub struct Datagrams {
    /// How many came.
    pub now: f64,
    /// How many had come before.
    pub before: f64,
    /// CPU-seconds per second of the service, now and before.
    pub used: (f64, f64),
    /// Who sends them, in words, where a program of this machine was started for it.
    pub sender: Option<String>,
}

impl Datagrams {
    /// Those of a service that is late, where there are far more than before.
    #[must_use]
    pub fn of(
        view: &View<'_>,
        servers: &Servers<'_, '_>,
        row: &str,
        slow: &Slow,
        usual: &Usual,
    ) -> Option<Datagrams> {
        let net = network::device(row).1;
        let baseline = view.baseline?;
        let span = slow.run.span();
        let high = net.high(view, &[IN], LEAST_S, NEED_S)?;
        let (now, before) = (high.during, high.before?);
        let is_near = (high.run.onset - slow.run.onset).abs() <= NEAR_NS;
        if now < MORE * before || !is_near {
            return None;
        }
        let used = (servers.rate(view.set, CPU, span)?, servers.rate(view.base_set, CPU, baseline)?);
        let each = (used.0 / (slow.rate + now), used.1 / (usual.rate + before).max(1.0));
        let rise = used.0 - used.1;
        if rise < CPU_MORE || each.0 >= MORE * each.1 {
            return None;
        }
        let mean = |process: &Process<'_>, set: &SeriesSet, span: Span| {
            process.total(set, CPU, span) / span.seconds().max(1e-9)
        };
        let is_own = |pid: u32| servers.processes.iter().any(|process| process.pid == pid);
        let mut others = view.processes().iter().filter(|process| !process.kthread && !is_own(process.pid));
        if others.any(|other| mean(other, view.set, span) - mean(other, view.base_set, baseline) >= rise) {
            return None;
        }
        let sent = net.sum(view.set, &[OUT], span).and_then(|sent| sent.mean()).unwrap_or(0.0);
        let begins = view.set.span().map_or(i64::MAX, |span| span.since);
        let onset = high.run.onset;
        let came = |process: &&Process<'_>| {
            let first = process.first_seen(view.set);
            let is_new = first.is_some_and(|first| (first - onset).abs() <= NEAR_NS);
            is_new && begins < onset - NEAR_NS && mean(process, view.set, span) >= SEND_S * now
        };
        let sender =
            view.processes().iter().filter(|process| !process.kthread).filter(came).max_by(|a, b| {
                let used = |process: &Process<'_>| mean(process, view.set, span);
                used(a).total_cmp(&used(b))
            });
        let sender = sender.filter(|_| sent >= MOST * now);
        let sender = sender.map(|process| format!("{} ({})", process.comm, process.pid));
        Some(Datagrams { now, before, used, sender })
    }

    /// `works on 8,600 datagrams a second instead of 40`.
    #[must_use]
    pub fn words(&self) -> String {
        format!(
            "works on {} datagrams a second instead of {}",
            words::count(self.now),
            words::count(self.before)
        )
    }
}
