//! Services that keep requests waiting inside of them, because they may ask another one for a few at a time only.
//!
//! A pool of connections, a limit of a proxy: each place of it is always taken, whoever is asked answers as fast as ever and has little to
//! do, and the rest waits where nobody sees it. By Little's law the answers that are waited for at a moment are the places.

use super::{Address, Servers, Service, mean};
use crate::signal::{Run, Signal};
use crate::stats;
use crate::view::View;

/// A service that holds requests back.
pub struct HeldBack<'a> {
    /// When it is late.
    pub run: Run,
    /// Seconds that clients waited longer than usual.
    pub beyond_s: f64,
    /// Whom it asks.
    pub to: Address<'a>,
    /// So many at a time, now and before.
    pub places: (f64, f64),
    /// Seconds that an answer takes, now and before.
    pub each_s: (f64, f64),
    /// Requests that wait inside.
    pub inside: f64,
}

/// Half of the requests wait inside, and more than one.
const INSIDE: f64 = 0.5;
const CROWD: f64 = 2.0;
/// Answers that take as long as before.
const AS_QUICK: f64 = 1.5;
/// As much is asked as before: rates stray by less.
const AS_OFTEN: f64 = 1.2;
/// A program that computes for half of a CPU may be late by that.
const BUSY: f64 = 0.5;
/// The places are always taken but for the moment until the next one is: in nearly all samples.
const SAME: f64 = 0.1;
const NEARLY_ALL: f64 = 0.75;
const SAMPLES: usize = 3;

/// Whom a late service asks for no more than a few at a time.
pub fn held_back<'a>(view: &View<'a>, service: &Service<'a>) -> Option<HeldBack<'a>> {
    let (row, usual, baseline) = (service.row, service.usual?, view.baseline?);
    let slow = service.slow()?.ok().filter(|slow| slow.rate <= AS_OFTEN * usual.rate)?;
    let span = slow.run.span();
    let servers = Servers::of(view, row);
    if servers.used(view, span)? >= BUSY || servers.are_often_stopped(view.set, span) {
        return None;
    }
    let calls = super::calls_of(view, &servers, span);
    let outside: f64 = calls.iter().map(|calls| calls.waits.0).sum();
    let waiting = mean(view.set, "service.wait_time", row, span);
    let inside = waiting - outside;
    if inside < CROWD.max(INSIDE * waiting) {
        return None;
    }
    let main =
        calls.iter().max_by(|a, b| a.waits.0.total_cmp(&b.waits.0)).filter(|main| main.rate.1 > 0.0)?;
    let each_s = (main.waits.0 / main.rate.0, main.waits.1 / main.rate.1);
    if !each_s.0.is_finite() || each_s.0 > AS_QUICK * each_s.1 {
        return None;
    }
    // Workers that ask many times more for each request are always at it, too (`query-regression`).
    if main.rate.0 * usual.rate > AS_OFTEN * main.rate.1 * slow.rate {
        return None;
    }
    let own = || {
        let rows = super::called_by(view, view.set, &servers).into_iter();
        rows.filter(|caller| Address::called(caller) == main.address)
    };
    let taken = Signal::sum(own().filter_map(|row| view.set.get("dependency.wait_time", row)), span)?;
    let places = stats::median(&mut taken.v.clone()).unwrap_or(0.0);
    let is_same = |taken: &&f64| (**taken - places).abs() <= SAME * places;
    let same = taken.v.iter().filter(is_same).count();
    let is_whole = (places - places.round()).abs() <= SAME * places.round();
    if places.round() < 1.0
        || !is_whole
        || taken.v.len() < SAMPLES
        || (same as f64) < NEARLY_ALL * taken.v.len() as f64
    {
        return None;
    }
    let open = own().filter_map(|row| view.base_set.get("dependency.wait_time", row));
    let before = Signal::sum(open, baseline).and_then(|open| open.max()).unwrap_or(0.0);
    Some(HeldBack {
        run: slow.run,
        beyond_s: slow.beyond_s,
        to: main.address,
        places: (places.round(), before.round()),
        each_s,
        inside,
    })
}
