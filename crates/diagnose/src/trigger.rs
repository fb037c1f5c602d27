//! What makes a stretch of time worth a look.
//!
//! Triggers are generous. They decide only where the conditions look, and whether a machine that is merely busy has an
//! incident is for the conditions to say.

use mitra_model::{EventKind, SeriesSet, Span};

use crate::signal::Signal;

/// What makes a stretch of time worth a look.
#[derive(Clone, Copy)]
pub enum Trigger {
    /// Rates above a floor.
    Level(Level),
    /// A level that goes far within minutes.
    Climb(Climb),
    /// Signals that are one where it is worth a look.
    Signals(Signals),
    /// Stretches that are found in another way.
    Stretches {
        /// The metrics that it reads.
        metrics: &'static [&'static str],
        /// Finds them.
        find: fn(&SeriesSet, Span) -> Vec<Span>,
    },
    /// What the kernel's log tells of that hurts somebody, however short it is.
    Event(fn(&EventKind) -> bool),
}

/// Rates above a floor.
#[derive(Clone, Copy)]
pub struct Level {
    /// Metrics that are added up.
    pub metrics: &'static [&'static str],
    /// From where on.
    pub floor: f64,
    /// Whether each thing that has the metric counts for itself.
    pub is_of_each: bool,
    /// For how many CPUs the floor is meant; with more of them it is that much higher, with fewer no lower.
    pub scale: Scale,
    /// For how many seconds at least; one sample of a coarser history is long enough.
    pub need_s: f64,
    /// Whether it is asked only of other tools' output, which has it instead of pressure and of the states of tasks.
    pub is_of_files: bool,
    /// Whether a machine on which all is well is often so while it works. What happened meanwhile is a baseline, where there is
    /// none without it.
    pub is_of_work: bool,
}

/// How a floor grows with the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// One program, one device or one task that waits is trouble on any machine.
    Fixed,
    /// It is a share of each CPU.
    PerCpu,
    /// It is meant for two CPUs: what is spread over many makes as much on each of them.
    PerPair,
}

impl Scale {
    /// For so many CPUs.
    pub fn factor(self, cpus: f64) -> f64 {
        match self {
            Scale::Fixed => 1.0,
            Scale::PerCpu => cpus,
            Scale::PerPair => (cpus / 2.0).max(1.0),
        }
    }
}

/// A level that goes far within minutes.
#[derive(Clone, Copy)]
pub struct Climb {
    /// The level, of the whole machine; one metric.
    pub metrics: &'static [&'static str; 1],
    /// From the lowest level of the last minutes to the present one: whether that is far.
    pub is_far: fn(from: f64, to: f64) -> bool,
    /// Whether it is the fall that matters.
    pub falls: bool,
}

/// Signals that are one where it is worth a look.
#[derive(Clone, Copy)]
pub struct Signals {
    /// The metrics that it reads of a long recording.
    pub metrics: &'static [&'static str],
    /// Makes them.
    pub find: fn(&SeriesSet, Span) -> Vec<Signal>,
    /// For how many seconds at least.
    pub need_s: f64,
    /// Whether a machine that is so most of the time is as it is meant to be.
    pub can_be_steady: bool,
}

/// A single sample of a second is chance.
const NEED_S: f64 = 2.0;

/// A sum of metrics of the whole machine from a floor on, for two samples at least.
pub const fn above(metrics: &'static [&'static str], floor: f64) -> Trigger {
    Trigger::Level(Level {
        metrics,
        floor,
        is_of_each: false,
        scale: Scale::Fixed,
        need_s: NEED_S,
        is_of_files: false,
        is_of_work: false,
    })
}

/// Metrics from a floor on, each for itself, of each thing that has it; those of the network in every namespace.
pub const fn each_above(metrics: &'static [&'static str], floor: f64) -> Trigger {
    match above(metrics, floor) {
        Trigger::Level(level) => Trigger::Level(Level { is_of_each: true, ..level }),
        other => other,
    }
}

/// A level of the whole machine that rises far within minutes.
pub const fn climbs(metrics: &'static [&'static str; 1], is_far: fn(f64, f64) -> bool) -> Trigger {
    Trigger::Climb(Climb { metrics, is_far, falls: false })
}

/// A signal that is one where something is near its limit, or lost in a share that hurts; what that limit is another
/// number says.
pub const fn signals(metrics: &'static [&'static str], find: fn(&SeriesSet, Span) -> Vec<Signal>) -> Trigger {
    Trigger::Signals(Signals { metrics, find, need_s: 3.0, can_be_steady: false })
}

impl Trigger {
    /// The floor is a share of each CPU.
    pub const fn per_cpu(self) -> Trigger {
        self.scaled(Scale::PerCpu)
    }

    /// The floor is meant for two CPUs.
    pub const fn per_pair(self) -> Trigger {
        self.scaled(Scale::PerPair)
    }

    /// A machine on which all is well is often so.
    pub const fn of_work(self) -> Trigger {
        match self {
            Trigger::Level(level) => Trigger::Level(Level { is_of_work: true, ..level }),
            other => other,
        }
    }

    const fn scaled(self, scale: Scale) -> Trigger {
        match self {
            Trigger::Level(level) => Trigger::Level(Level { scale, ..level }),
            other => other,
        }
    }

    /// For so many seconds at least.
    pub const fn lasting(self, need_s: f64) -> Trigger {
        match self {
            Trigger::Level(level) => Trigger::Level(Level { need_s, ..level }),
            other => other,
        }
    }

    /// Only of other tools' output.
    pub const fn of_files(self) -> Trigger {
        match self {
            Trigger::Level(level) => Trigger::Level(Level { is_of_files: true, ..level }),
            other => other,
        }
    }

    /// The metrics that it reads.
    pub fn metrics(&self) -> &'static [&'static str] {
        match self {
            Trigger::Level(level) => level.metrics,
            Trigger::Climb(climb) => climb.metrics,
            Trigger::Signals(signals) => signals.metrics,
            Trigger::Stretches { metrics, .. } => metrics,
            Trigger::Event(_) => &[],
        }
    }
}
