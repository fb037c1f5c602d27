//! Services that take no more connections while their processes sleep: all their places are taken.
//!
//! What is not taken stays in the accept queue, so the requests that are open are those in the queue and a number that stays the
//! same: that of the places. Workers have one each. A program that waits for the events of many connections with a few threads
//! has as many as it was told to have.

use mitra_model::Span;

use crate::services::{Servers, Walk, name, walk};
use crate::stats;
use crate::view::View;

/// Connections that nobody takes: who has a place free takes each within a millisecond.
pub const QUEUED: f64 = 3.0;
/// Seconds.
pub const QUEUED_S: f64 = 3.0;
/// As many samples have to tell how many are taken.
const SAMPLES: f64 = 3.0;
/// Of a CPU, for each that could work: they wait, and do not compute.
pub const ASLEEP: f64 = 0.1;
/// The number of requests outside of the queue that stays the same: within one, or a quarter, in nearly all samples. The
/// queue and the requests are read one after the other.
const SAME: f64 = 0.25;
const NEARLY_ALL: f64 = 0.75;
/// Threads of a runtime beside the workers are fewer than those: more than twice as many places as threads are no workers.
const PER_THREAD: f64 = 2.0;

/// A service whose places are all taken.
pub struct Places<'v, 'a> {
    /// Its processes.
    pub servers: Servers<'v, 'a>,
    /// How many connections it has taken.
    pub taken: f64,
    /// Whether its threads wait for the events of many connections each.
    pub are_of_events: bool,
    /// What it waits for.
    pub walk: Walk<'a>,
}

impl<'v, 'a> Places<'v, 'a> {
    /// Those of the service of a listening socket, while connections queue there; an error says why they are not all taken.
    pub fn full(view: &'v View<'a>, row: &'a str, span: Span) -> Result<Places<'v, 'a>, String> {
        let servers = Servers::of(view, row);
        let name = name(&servers, row);
        let (Some(open), Some(queue)) = (view.of("service.open", row), view.of("listener.queue", row)) else {
            return Err(format!("{name} has a queue, and the requests that are open are not known"));
        };
        let busy = queue.within(span).zip(&open.within(span), |queue, open| open - queue);
        // Whoever gives up leaves the requests that are open, and stays in the queue until the service comes to it: then it has
        // between so many and so many more. Whoever gives up in the queue of a Unix socket leaves no word, and the rest tells nothing.
        let abandoned = view.of("service.abandoned", row).unwrap_or_default();
        let mut given_up = 0.0;
        let mut bounds = Vec::with_capacity(busy.t.len());
        for (t, least) in busy.t.iter().zip(&busy.v) {
            given_up += abandoned.t.binary_search(t).map_or(0.0, |at| abandoned.v[at] * abandoned.dt[at]);
            bounds.push((*least, least + given_up));
        }
        // A queue stands only before places that are taken. Until somebody gives up their number is certain: who has taken none
        // by then does not come to its queue, and what clients who gave up leave behind is no place.
        let certain = || bounds.iter().filter(|(least, most)| least == most).map(|(_, most)| *most);
        let none = certain().filter(|taken| taken.abs() < 1.0).count();
        let some = certain().filter(|taken| *taken >= 1.0).count();
        let takes_none = none as f64 >= SAMPLES && none > some;
        bounds.retain(|(_, most)| *most >= 1.0);
        let many = bounds.len() as f64;
        if many < SAMPLES || takes_none {
            return Err(format!("{name} has taken none of the requests that wait"));
        }
        let mut sure: Vec<f64> = bounds.iter().filter(|(least, most)| least == most).map(|b| b.1).collect();
        if (sure.len() as f64) < SAMPLES {
            sure = bounds.iter().map(|(_, most)| *most).collect();
        }
        let taken = stats::median(&mut sure).unwrap_or(0.0);
        let off = (SAME * taken).max(1.0);
        let is_same = |(least, most): &&(f64, f64)| least - off <= taken && taken <= most + off;
        if (bounds.iter().filter(is_same).count() as f64) < NEARLY_ALL * many {
            return Err(format!("the number of requests that {name} works on at a time changes"));
        }
        if servers.are_often_stopped(view.set, span) {
            return Err(format!("the processes of {name} were stopped"));
        }
        let threads: usize = servers.processes.iter().map(|process| process.rows.len()).sum();
        let are_of_events = threads > 0 && taken > PER_THREAD * threads as f64;
        let able = if are_of_events { threads as f64 } else { taken };
        let used = servers.used(view, span);
        let Some(used) = used else { return Err(format!("what the workers of {name} do is not known")) };
        if used >= ASLEEP * able {
            return Err(format!("the workers of {name} take {} of a CPU", crate::words::percent(used)));
        }
        let beyond = view.set.get("service.wait_time", row).and_then(|s| s.mean(span)).unwrap_or(taken);
        let walk = walk(view, row, span, beyond);
        let is_late =
            |row: &&&str| view.service(row).is_none_or(|inner| !inner.answers_as_some_did(view, span));
        if let Some(inner) = walk.services.get(1).filter(is_late) {
            let inner = crate::services::name(&Servers::of(view, inner), inner);
            return Err(format!("the workers of {name} wait for {inner}, which is late itself"));
        }
        Ok(Places { servers, taken, are_of_events, walk })
    }
}
