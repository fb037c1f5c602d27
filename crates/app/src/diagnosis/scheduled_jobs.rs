//! When crontabs and systemd timers of this machine were due during a window.

use std::path::Path;

use mitra_model::{ScheduledJob, Span};
use mitra_search::collectors::schedule::{Schedule, schedules};
use mitra_search::collectors::{Cache, Source};
use mitra_search::secrets::Policy;

use crate::values::time::LocalClock;

/// More starts than this in a window are a loop, not a schedule.
const DUE_MAX: usize = 2_000;
/// A longer `RandomizedDelaySec=` says nothing about when a job ran.
const DELAY_MAX_S: u64 = 60;
/// How far before the window periodic jobs are looked for.
const BACK_NS: i64 = 3_600_000_000_000;

/// Jobs by the files as they are now; none if the recording is of another machine.
pub fn of_this_machine(hostname: &str, window: Span) -> Vec<ScheduledJob> {
    let uname = rustix::system::uname();
    if uname.nodename().to_string_lossy() != hostname {
        return Vec::new();
    }
    let here = LocalClock::system();
    let offset_s = here.offset_s(window.since);
    let cache = Cache::default();
    let source = Source { root: Path::new("/"), now_ns: here.now, cache: &cache };
    let policy = Policy::default();
    let is_exact = |schedule: &Schedule| schedule.delay_max_s <= DELAY_MAX_S;
    let all = schedules(&source).into_iter().filter(is_exact);
    all.map(|schedule| ScheduledJob {
        due: due(&schedule, window, offset_s),
        what: policy.clean_text(&schedule.unit_or_command).0,
        place: format!("{}:{}", schedule.file, schedule.line),
        delay_max_s: schedule.delay_max_s as f64,
        calendar: schedule.calendar,
    })
    .filter(|table| !table.due.is_empty())
    .collect()
}

fn due(schedule: &Schedule, window: Span, offset_s: i32) -> Vec<i64> {
    let next = |at: &i64| schedule.next_after(*at, offset_s).filter(|next| next > at);
    let first = next(&window.since.saturating_sub(BACK_NS));
    let due: Vec<i64> =
        std::iter::successors(first, next).take_while(|next| *next <= window.until).take(DUE_MAX).collect();
    if due.len() < DUE_MAX { due } else { Vec::new() }
}
