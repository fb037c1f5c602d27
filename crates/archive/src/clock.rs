//! The time axis: when each frame was, on one clock.
//!
//! Frames of one boot are placed by boot time, which neither jumps nor stops, plus the offset of the wall clock to it
//! at the *last* frame of that boot. So a step of the wall clock neither reorders frames nor tears a hole, and
//! earlier frames appear on the clock as it was after the last step.

use mitra_model::series::Gap;
use mitra_model::{Axis, Span};

use crate::log::decode::ns;
use crate::open::{LOST_BEFORE, Times};
use crate::segment::index::Index;

/// Two boots whose clocks overlap are moved apart by this.
const APART_US: i64 = 1_000_000;
/// A suspend is told from clock noise by this.
const SUSPEND_US: i64 = 1_000_000;

/// What the axis needs to know of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Placed {
    /// Segments with the same number share a clock.
    pub(crate) era: u32,
    /// Wall clock minus boot time.
    pub(crate) offset_us: i64,
}

/// Places segments, which are in the order of recording.
pub(crate) fn place<'a>(segments: impl Iterator<Item = &'a Index>) -> Vec<Placed> {
    struct Era {
        first_us: i64,
        last: Times,
        offset_us: i64,
    }
    let mut eras: Vec<Era> = Vec::new();
    let mut numbers = Vec::new();
    let mut boot = "";
    for index in segments {
        match eras.last_mut() {
            Some(era) if boot == index.meta.host.boot_id && index.first.follows(era.last) => {
                era.last = index.last;
            }
            _ => eras.push(Era { first_us: index.first.boot_us, last: index.last, offset_us: 0 }),
        }
        boot = &index.meta.host.boot_id;
        numbers.push(eras.len() - 1);
    }
    let mut next_first_us = i64::MAX;
    for era in eras.iter_mut().rev() {
        era.offset_us = era.last.real_off_us;
        let end = era.last.boot_us.saturating_add(era.offset_us);
        if end >= next_first_us {
            era.offset_us -= end - next_first_us + APART_US;
        }
        next_first_us = era.first_us.saturating_add(era.offset_us);
    }
    numbers
        .into_iter()
        .map(|number| Placed { era: number as u32, offset_us: eras[number].offset_us })
        .collect()
}

impl Placed {
    /// The moment of a frame on the axis, in nanoseconds since 1970.
    pub(crate) fn at(self, times: Times) -> i64 {
        ns(times.boot_us.saturating_add(self.offset_us))
    }
}

/// A frame on the axis.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    pub(crate) t: i64,
    pub(crate) times: Times,
    pub(crate) era: u32,
    pub(crate) session: u64,
}

impl Moment {
    /// Seconds since the frame before, by the monotonic clock; `NaN` across a reboot.
    pub(crate) fn since(&self, before: &Moment) -> f64 {
        if self.era != before.era {
            return f64::NAN;
        }
        (self.times.mono_us() - before.times.mono_us()) as f64 * 1e-6
    }

    /// The gap between the frame before and this one, if there is one.
    pub(crate) fn gap(&self, before: &Moment) -> Option<Gap> {
        let span = Span { since: before.t, until: self.t };
        let gap = |why: &str| Some(Gap { span, why: why.to_owned() });
        if self.era != before.era {
            return gap("reboot");
        }
        let slept_us = before.times.mono_off_us - self.times.mono_off_us;
        if slept_us >= SUSPEND_US {
            return gap("suspend");
        }
        let interval_us = before.times.interval_us;
        let step_us = self.times.mono_us() - before.times.mono_us();
        if step_us <= interval_us.saturating_add(interval_us / 2)
            || step_us <= interval_us.saturating_add(1_000_000)
        {
            return None;
        }
        if self.times.flags & LOST_BEFORE != 0 {
            gap("damaged")
        } else if self.session != before.session {
            gap("recorder stopped")
        } else {
            gap("missed")
        }
    }
}

/// The frames of a read: position 0 is the one before the range, if there is one.
#[derive(Default)]
pub(crate) struct Timeline {
    pub(crate) lead: Option<Moment>,
    pub(crate) moments: Vec<Moment>,
    pub(crate) gaps: Vec<Gap>,
    dt: Vec<f64>,
    /// One over the seconds that the sample at the position covers; `NaN` where that is not known.
    per_second: Vec<f64>,
}

impl Timeline {
    /// Adds a frame before the range.
    pub(crate) fn set_lead(&mut self, moment: Moment) {
        self.lead = Some(moment);
    }

    /// Forgets all frames but the last one, which is then the one before, for whoever wants no positions. Returns the gaps.
    pub(crate) fn start_over(&mut self) -> Vec<Gap> {
        let lead = self.moments.pop().or(self.lead);
        std::mem::replace(self, Timeline { lead, ..Timeline::default() }).gaps
    }

    pub(crate) fn push(&mut self, moment: Moment) {
        let before = self.moments.last().or(self.lead.as_ref());
        let dt = before.map_or(f64::NAN, |before| moment.since(before));
        self.gaps.extend(before.and_then(|before| moment.gap(before)));
        if self.per_second.is_empty() {
            self.per_second.push(f64::NAN);
        }
        self.per_second.push(1.0 / dt);
        self.dt.push(dt);
        self.moments.push(moment);
    }

    /// How many positions there are, the one before the range included.
    pub(crate) fn positions(&self) -> usize {
        self.moments.len() + 1
    }

    pub(crate) fn per_second(&self, position: usize) -> f64 {
        self.per_second.get(position).copied().unwrap_or(f64::NAN)
    }

    /// The same for a range of positions, none of which is 0.
    pub(crate) fn per_seconds(&self, positions: std::ops::Range<usize>) -> &[f64] {
        self.per_second.get(positions).unwrap_or_default()
    }

    /// The frame before the one at this position.
    pub(crate) fn before(&self, position: usize) -> Option<&Moment> {
        match position {
            0 => None,
            1 => self.lead.as_ref(),
            _ => self.moments.get(position - 2),
        }
    }

    pub(crate) fn axis(&self) -> Axis {
        Axis {
            t: self.moments.iter().map(|moment| moment.t).collect(),
            dt: self.dt.clone(),
            places: Vec::new(),
        }
    }
}
