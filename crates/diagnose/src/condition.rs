//! What a condition is and what observing it can give.

use std::borrow::Cow;
use std::collections::BTreeMap;

use mitra_model::report::{Culprit, Evidence, How, Next, Remedy};
use mitra_model::{Span, Suspicion};

use crate::advice::{Advice, Measure};
use crate::process::{Process, Top};
use crate::settings::{Feed, Settings};
use crate::trigger::Trigger;
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
    /// Nobody suffers from it: it could be better.
    Finding,
}

impl Role {
    /// One letter, as the documents have it.
    #[must_use]
    pub fn letter(self) -> char {
        match self {
            Role::Root => 'R',
            Role::Mechanism => 'M',
            Role::Symptom => 'S',
            Role::Finding => 'F',
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
    /// Whether it is an incident also where no cause is known: somebody waits who is no task of this machine.
    pub stands_alone: bool,
    /// Whether it may harm nobody by itself ([`Finding::is_harmless`]).
    pub may_be_harmless: bool,
    /// What part of the machine it concerns, for lists.
    pub area: &'static str,
    /// The metrics that `observe` reads itself: a recording gives it no other than those that it says it needs. Without the
    /// first one nobody had it in mind.
    pub needs: &'static [&'static str],
    /// What the modules read that it asks.
    pub needs_of: &'static [&'static [&'static str]],
    /// What makes a stretch of time worth a look. A root without any is found by a trigger of what it causes.
    pub triggers: &'static [Trigger],
    /// Looks.
    pub observe: fn(&View<'_>) -> Observation,
    /// Looks in place of `observe`, and after all others have.
    pub observe_after: Option<fn(&View<'_>, &Others<'_>) -> Observation>,
    /// What it can bring about.
    pub causes: &'static [Effect],
    /// Settings of the kernel whose change can bring it about.
    pub settings: Settings,
    /// How the files begin that hold the limit of a cgroup that it says was reached: `memory.`.
    pub cgroup_limit: Option<&'static str>,
    /// What to do about it.
    pub remedies: &'static [Advice],
    /// What to do about it where that depends on the finding.
    pub remedies_of: fn(&Finding) -> Vec<Remedy>,
    /// What to measure to be surer.
    pub next: &'static [Measure],
    /// What to measure where that depends on the finding.
    pub next_of: fn(&Finding) -> Vec<Next>,
    /// What the recorder suspects it by, and the probes that would tell.
    pub suspicions: &'static [Suspicion],
    /// The source file, whose leading comment is the manual page.
    pub source: &'static str,
}

impl Condition {
    /// A root cause that says nothing yet.
    pub const ROOT: Condition = Condition {
        id: "",
        title: "",
        role: Role::Root,
        stands_alone: false,
        may_be_harmless: false,
        area: "",
        needs: &[],
        needs_of: &[],
        triggers: &[],
        observe: |_| Observation::cannot_tell(""),
        observe_after: None,
        causes: &[],
        settings: Settings::NONE,
        cgroup_limit: None,
        remedies: &[],
        remedies_of: |_| Vec::new(),
        next: &[],
        next_of: |_| Vec::new(),
        suspicions: &[],
        source: "",
    };
    /// A mechanism that says nothing yet.
    pub const MECHANISM: Condition = Condition { role: Role::Mechanism, ..Condition::ROOT };
    /// A symptom that says nothing yet.
    pub const SYMPTOM: Condition = Condition { role: Role::Symptom, ..Condition::ROOT };

    /// Every metric that it needs, once.
    #[must_use]
    pub fn needs(&self) -> Vec<&'static str> {
        let mut all: Vec<&'static str> = Vec::new();
        for metric in self.needs.iter().chain(self.needs_of.iter().copied().flatten()) {
            if !all.contains(metric) {
                all.push(metric);
            }
        }
        all
    }

    /// The manual page: the comment at the top of the condition's file.
    #[must_use]
    pub fn manual(&self) -> String {
        mitra_model::manual(self.source)
    }

    /// What to do about a finding.
    #[must_use]
    pub fn remedies(&self, finding: &Finding) -> Vec<Remedy> {
        let fixed = self.remedies.iter().map(|advice| advice.of(&finding.culprit));
        fixed.chain((self.remedies_of)(finding)).collect()
    }

    /// What to measure to be surer of a finding.
    #[must_use]
    pub fn next(&self, finding: &Finding) -> Vec<Next> {
        let fixed = self.next.iter().map(|measure| measure.of(&finding.culprit));
        fixed.chain((self.next_of)(finding)).collect()
    }
}

/// A state that a condition can bring about.
#[derive(Debug, Clone, Copy)]
pub struct Effect {
    /// The id of the state.
    pub id: &'static str,
    /// Why.
    pub because: &'static str,
    /// Whether the effect can be seen before the cause: true where both are two sides of one state, so that
    /// timing says nothing.
    pub any_order: bool,
    /// Whether it holds only within one process: a busy thread keeps its own server from accepting and no other.
    pub same_process: bool,
    /// With `same_process`: or whose process waits for answers of that one.
    pub or_who_asks: bool,
    /// Whether it holds only in one place: the queue of one disk, or of one network namespace, is not that of another.
    pub same_place: bool,
}

/// A state that follows.
#[must_use]
pub const fn effect(id: &'static str, because: &'static str) -> Effect {
    Effect { id, because, any_order: false, same_process: false, or_who_asks: false, same_place: false }
}

/// A coarser name of the same state; where both are active the cause is the better word.
#[must_use]
pub const fn explains(id: &'static str, because: &'static str) -> Effect {
    Effect { any_order: true, ..effect(id, because) }
}

/// A state that follows only where both are the doing of one process.
#[must_use]
pub const fn within(id: &'static str, because: &'static str) -> Effect {
    Effect { same_process: true, ..explains(id, because) }
}

/// A state of the same process, or of one that waits for its answers.
#[must_use]
pub const fn asked(id: &'static str, because: &'static str) -> Effect {
    Effect { or_who_asks: true, ..within(id, because) }
}

impl Effect {
    /// It follows only where both are in one place, or it is not known where they are.
    #[must_use]
    pub const fn here(self) -> Effect {
        Effect { same_place: true, ..self }
    }
}

/// What the other conditions are and say, for one that follows from them.
pub struct Others<'a> {
    /// Every setting with the states that its change can bring about.
    pub feeds: &'static [Feed],
    /// Those that are active, by id.
    pub active: &'a BTreeMap<&'static str, &'a Finding>,
    /// Those of them that would be an incident by themselves: causes that harm somebody, and symptoms that stand alone.
    pub incidents: &'a [&'a Finding],
}

/// What observing a condition gave.
#[derive(Debug, Clone)]
pub enum Observation {
    /// The machine is in that state.
    Active(Box<Finding>),
    /// It is not; the numbers that say so.
    Inactive(String),
    /// It cannot be told.
    CannotTell(Missing),
    /// It cannot be told either, and something points to it.
    Suspected(Missing),
}

impl Observation {
    /// It is not in that state.
    #[must_use]
    pub fn inactive(because: impl Into<String>) -> Observation {
        Observation::Inactive(because.into())
    }

    /// It cannot be told without what some words name, with the command or the file that has it.
    #[must_use]
    pub fn cannot_tell(words: impl Into<Cow<'static, str>>) -> Observation {
        Observation::CannotTell(Missing::new(words))
    }

    /// It cannot be told without these metrics.
    #[must_use]
    pub fn needs(metrics: &'static [&'static str]) -> Observation {
        Observation::CannotTell(Missing { words: metrics.join(", ").into(), metrics })
    }

    /// It cannot be told without these metrics, in words of its own.
    #[must_use]
    pub fn needs_as(words: impl Into<Cow<'static, str>>, metrics: &'static [&'static str]) -> Observation {
        Observation::CannotTell(Missing { words: words.into(), metrics })
    }

    /// Something points to it, and it takes this to be told.
    #[must_use]
    pub fn suspected(words: impl Into<Cow<'static, str>>) -> Observation {
        Observation::Suspected(Missing::new(words))
    }

    /// With the name of the culprit's cgroup.
    #[must_use]
    pub fn named(mut self, view: &View<'_>) -> Observation {
        if let Observation::Active(finding) = &mut self {
            finding.culprit = view.named(std::mem::take(&mut finding.culprit));
        }
        self
    }
}

/// What it would take to tell.
#[derive(Debug, Clone)]
pub struct Missing {
    /// In words.
    pub words: Cow<'static, str>,
    /// The metrics that were not recorded, where the words name no command that shows them.
    pub metrics: &'static [&'static str],
}

impl Missing {
    /// Words that say by themselves where it is to be had.
    #[must_use]
    pub fn new(words: impl Into<Cow<'static, str>>) -> Missing {
        Missing { words: words.into(), metrics: &[] }
    }
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
    /// Seconds that clients of a service waited longer than usual. They are no task-seconds: many clients wait for one task.
    pub client_wait_s: Option<f64>,
    /// What a service waits for, where it was followed to another one.
    pub waits_for: Option<String>,
    /// Whether a lock is on the way there.
    pub waits_for_lock: bool,
    /// Whether a symptom is an incident where nothing explains it: somebody suffers from it who does not make it.
    pub is_severe: bool,
    /// Whether it harms nobody by itself, as a job that takes one of several idle CPUs: where nothing follows from it, it is no
    /// incident and told as a finding.
    pub is_harmless: bool,
    /// The states that it can bring about, where this one reaches less far than the effects of its condition: a limit
    /// of dirty pages delays writers and no connection.
    pub governs: Option<&'static [&'static str]>,
    /// Causes that may be there and without which it would be there just as well.
    pub despite: Vec<&'static str>,
    /// States that brought it about here, although in general it may bring them about: a lock whose holder gets no CPU is waited for
    /// because of the queue for the CPUs, and work that is retried makes such a queue.
    pub owed_to: Vec<&'static str>,
    /// The network namespace that it was seen in, where that is known; empty is the recorder's own.
    pub netns: Option<String>,
    /// Whose doing it is.
    pub culprit: Culprit,
    /// Who does the work, where that is somebody else: its culprit makes them work.
    pub workers: Vec<Culprit>,
    /// One sentence with the numbers.
    pub statement: String,
    /// What must be known beside it: victims that look like causes, numbers that do not mean what they seem to.
    pub remarks: Vec<String>,
    /// The numbers that prove it.
    pub evidence: Vec<Evidence>,
}

impl Finding {
    /// The observation that the condition is active.
    #[must_use]
    pub fn active(mut self) -> Observation {
        self.culprit = self.culprit.known();
        Observation::Active(Box::new(self))
    }

    /// It is the doing of a process.
    pub fn blame(&mut self, process: &Process<'_>) {
        self.blame_pid(process.comm, process.pid);
        self.culprit.cgroup = process.cgroup.filter(|group| *group != "/").map(str::to_owned);
    }

    /// It is the doing of a process that makes another one work.
    pub fn blame_for_work(&mut self, process: &Process<'_>) {
        let worker = std::mem::take(&mut self.culprit);
        self.workers.push(worker);
        self.blame(process);
    }

    /// It is the doing of the processes of a name, most of all of their lead.
    pub fn blame_top(&mut self, top: &Top<'_>) {
        self.blame(&top.lead);
    }

    /// It is the doing of a process whose cgroup does not matter.
    pub fn blame_pid(&mut self, comm: &str, pid: u32) {
        self.culprit.process = Some(comm.to_owned());
        self.culprit.pid = Some(pid);
    }

    /// The culprit is inferred: its own part was not measured.
    pub fn infer_culprit(&mut self) {
        self.culprit.how = Some(How::Inferred);
    }

    /// Adds metrics of one thing, in the baseline and in a span, to the evidence; those that are not there add nothing.
    pub fn prove(&mut self, view: &View<'_>, metrics: &[&str], row: &str, span: Span) {
        self.evidence.extend(metrics.iter().filter_map(|metric| view.evidence(metric, row, span)));
    }

    /// The same, without those that were zero.
    pub fn prove_nonzero(&mut self, view: &View<'_>, metrics: &[&str], row: &str, span: Span) {
        let all = metrics.iter().filter_map(|metric| view.evidence(metric, row, span));
        self.evidence.extend(all.filter(|evidence| evidence.during > 0.0));
    }

    /// The id of the process that did it, or `PID`, for commands.
    #[must_use]
    pub fn pid(&self) -> String {
        self.culprit.pid.map_or_else(|| "PID".to_owned(), |pid| pid.to_string())
    }

    /// The device that it is about, or `DEVICE`, for commands.
    #[must_use]
    pub fn device(&self) -> &str {
        self.culprit.device.as_deref().unwrap_or("DEVICE")
    }
}
