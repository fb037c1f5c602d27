//! What was due by crontabs and timers of this machine, for the diagnosis of a recording of this machine.

use std::path::Path;

use mitra_model::{ScheduledJob, Span};
use mitra_search::collectors::schedule::{Schedule, schedules};
use mitra_search::collectors::{Cache, Source};
use mitra_search::secrets::Policy;

use crate::when::Here;

/// What starts more often in a window is a loop.
const DUE_MAX: usize = 2_000;
/// A time that is drawn from an hour is no time.
const DELAY_MAX_S: u64 = 60;
/// Jobs of a rhythm began before the window.
const BACK_NS: i64 = 3_600_000_000_000;

/// What is due in a window, by the files as they are now. Of another machine nothing is known.
pub fn of_this_machine(hostname: &str, window: Span) -> Vec<ScheduledJob> {
    let uname = rustix::system::uname();
    if uname.nodename().to_string_lossy() != hostname {
        return Vec::new();
    }
    let here = Here::system();
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
    let mut list = Vec::new();
    let mut at = window.since.saturating_sub(BACK_NS);
    while list.len() < DUE_MAX {
        match schedule.next_after(at, offset_s) {
            Some(next) if next > at && next <= window.until => {
                list.push(next);
                at = next;
            }
            _ => return list,
        }
    }
    Vec::new()
}
