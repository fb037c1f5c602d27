//! What conditions are written with.

pub(crate) use mitra_model::report::{Evidence, Next, Remedy};
pub(crate) use mitra_model::time::SECOND;
pub(crate) use mitra_model::{Event, EventKind, Series, SeriesSet, Span, Suspicion, WaitKind};

pub(crate) use crate::advice::{Advice, measure, to_measure};
pub(crate) use crate::condition::{
    Condition, Finding, Observation, Others, Role, asked, effect, explains, within,
};
pub(crate) use crate::process::{self, Process, Top};
pub(crate) use crate::settings::{self, Acts, Settings, lowered, raised};
pub(crate) use crate::signal::{Run, Signal, step};
pub(crate) use crate::trigger::{Climb, Signals, Trigger, above, climbs, each_above, signals};
pub(crate) use crate::view::{High, View, observe_level};
pub(crate) use crate::words;
