//! What a condition is and what observing it can give.

use mitra_model::report::{Culprit, Evidence, Next, Remedy};

use mitra_model::Span;

use crate::view::View;

/// What part a condition can play.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// It can be the first cause.
    Root,
    /// It passes on what something else caused.
    Mechanism,
    /// It is what somebody notices.
    Symptom,
}

impl Role {
    /// One letter, as the documents have it.
    #[must_use]
    pub fn letter(self) -> char {
        match self {
            Role::Root => 'R',
            Role::Mechanism => 'M',
            Role::Symptom => 'S',
        }
    }
}

/// A named state that a machine can be in.
pub struct Condition {
    /// The public id.
    pub id: &'static str,
    /// A few plain words: what a report calls it.
    pub title: &'static str,
    /// What part it can play.
    pub role: Role,
    /// What part of the machine it concerns, for lists.
    pub area: &'static str,
    /// Every metric that it looks at: of a recording it is given no other. The first is the one that it is told by: what
    /// does not have that one says nothing about it.
    pub needs: &'static [&'static str],
    /// Looks.
    pub observe: fn(&View<'_>) -> Observation,
    /// What to do about it.
    pub remedies: fn(&Finding) -> Vec<Remedy>,
    /// What to measure to be surer.
    pub next: fn(&Finding) -> Vec<Next>,
    /// The source file, whose leading comment is the manual page.
    pub source: &'static str,
}

impl Condition {
    /// The manual page: the comment at the top of the condition's file.
    #[must_use]
    pub fn manual(&self) -> String {
        mitra_model::manual(self.source)
    }
}

/// For conditions about which nothing is to be done by themselves: mechanisms and symptoms.
#[must_use]
pub fn no_remedies(_: &Finding) -> Vec<Remedy> {
    Vec::new()
}

/// For conditions that leave nothing to measure.
#[must_use]
pub fn no_next(_: &Finding) -> Vec<Next> {
    Vec::new()
}

/// What observing a condition gave.
#[derive(Debug, Clone)]
pub enum Observation {
    /// The machine is in that state.
    Active(Box<Finding>),
    /// It is not; the numbers that say so.
    Inactive(String),
    /// It cannot be told; what would be needed.
    CannotTell(String),
    /// It cannot be told either, and something points to it; what would be needed.
    Suspected(String),
}

/// An active condition.
#[derive(Debug, Clone, Default)]
pub struct Finding {
    /// When it began, in nanoseconds since 1970.
    pub onset: i64,
    /// When it ended; `None` while it lasts.
    pub end: Option<i64>,
    /// The distance of the samples that the onset was read from, in seconds: it is known no better.
    pub step_s: f64,
    /// The samples that the onset was read from; `None` where there is no time line at all.
    pub seen: Option<Span>,
    /// From 0 to 1: how much of the evidence that was asked for was there and agreed.
    pub confidence: f64,
    /// Task-seconds that were lost to it, where that can be told.
    pub loss_s: Option<f64>,
    /// Whether it is no incident but something to do better.
    pub is_advice: bool,
    /// The states that it can bring about, where this one reaches less far than the edges of its condition: a limit
    /// of dirty pages delays writers and no connection.
    pub governs: Option<&'static [&'static str]>,
    /// Causes that may be there and without which it would be there just as well.
    pub despite: &'static [&'static str],
    /// The network namespace that it was seen in, where that is known; empty is the recorder's own.
    pub netns: Option<String>,
    /// Whose doing it is.
    pub culprit: Culprit,
    /// One sentence with the numbers.
    pub statement: String,
    /// What must be known beside it: victims that look like causes, numbers that do not mean what they seem to.
    pub remarks: Vec<String>,
    /// The numbers that prove it.
    pub evidence: Vec<Evidence>,
}
