//! The built-in suspicions on recordings of real incidents: silent on controls and before a
//! trouble, and raised if the suspected condition is there.
//!
//! Frames are evaluated in order, as a recorder and `mitra rules test` do. No root is needed: only
//! archives are read.

#[expect(dead_code, reason = "each test program uses its own part of the support")]
mod support;

use std::path::Path;
use std::sync::LazyLock;

use mitra_archive::Reader;
use mitra_diagnose::suspicions;
use mitra_lab::record::Kind;
use mitra_lab::score;
use mitra_lab::ship::Shipped;
use mitra_model::time::SECOND;
use mitra_model::{Span, Suspicion};
use mitra_rules::{News, Rule, Watcher, in_words};

use support::{folders, shipped, with_each};

/// Healthy machines on which a suspicion is rightly raised: recording, rule, reason. This list may
/// only get shorter.
const KNOWN: &[(&str, &str, &str)] = &[
    (
        "copy-once.25s.101",
        "system-time-of-a-process",
        "cp fills a CPU inside the kernel, and only a profile says that it copies",
    ),
    (
        "network-test.25s.101",
        "system-time-of-a-process",
        "a sender fills most of a CPU inside the kernel, and only a profile says that it sends",
    ),
];

/// Suspicions that no recording confirms.
const UNSEEN: &[(&str, Unseen)] = &[
    ("process-grows", Unseen::Silent("in none of them does a process grow in each of twenty seconds")),
    (
        "switches-without-work",
        Unseen::Silent("the threads there fall asleep 5,000 times in a second at most"),
    ),
    ("system-time-of-a-process", Unseen::Silent("the hogs there compute, outside of the kernel")),
    ("major-fault-rate", Unseen::Silent("the files there are read and not mapped, so that nothing faults")),
    ("memory-stall", Unseen::NotShipped),
    ("busy-in-the-kernel", Unseen::NotShipped),
    (
        "retransmissions",
        Unseen::Silent(
            "the links there are between namespaces, which it does not look at, and lose four segments in a second",
        ),
    ),
];

/// Why no recording confirms a suspicion.
enum Unseen {
    /// No recording has the suspected condition.
    NotShipped,
    /// It stays silent on those that have it, for this reason.
    Silent(&'static str),
}

/// A suspicion that was raised.
struct Raised {
    rule: &'static str,
    /// When it was first raised, seconds since the epoch.
    at_s: f64,
    /// The numbers that raised it.
    numbers: String,
}

/// The results of the rules on a recording.
struct Heard {
    shipped: Shipped,
    raised: Vec<Raised>,
    /// Rules that cannot be evaluated, and the missing metrics.
    cannot_tell: Vec<(&'static str, Vec<&'static str>)>,
}

impl Heard {
    fn key(&self) -> &str {
        &self.shipped.run.key
    }

    fn of(&self, suspicion: &Suspicion) -> Option<&Raised> {
        self.raised.iter().find(|raised| raised.rule == suspicion.name)
    }

    /// Whether the suspected condition was there, as the root or as a link of its chain.
    fn has(&self, suspicion: &Suspicion) -> bool {
        let id = suspicion.suspects;
        let mut acts = self.shipped.run.acts.iter();
        acts.any(|act| score::is_true(act, id) || score::declared_chain(act).contains(&id))
    }

    /// Whether nothing was wrong yet: always on a control, else until the trouble was started.
    fn is_healthy(&self, at_s: f64) -> bool {
        let run = &self.shipped.run;
        run.kind == Kind::Control || run.acts.iter().all(|act| at_s < act.started_s)
    }

    /// Whether it was raised for the suspected condition, and not before that was there.
    fn is_right(&self, suspicion: &Suspicion) -> bool {
        self.has(suspicion) && self.of(suspicion).is_some_and(|raised| !self.is_healthy(raised.at_s))
    }
}

static HEARD: LazyLock<Vec<Heard>> = LazyLock::new(|| {
    let mut all = with_each(&folders(), heard);
    all.sort_by(|a, b| a.key().cmp(b.key()));
    all
});

fn heard(folder: &Path) -> Heard {
    let mut heard = Heard { shipped: shipped(folder), raised: Vec::new(), cannot_tell: Vec::new() };
    let reader = Reader::open(&folder.join("archive")).unwrap();
    let programs: Vec<_> = suspicions().iter().map(|s| (Rule::builtin(s).unwrap().program, None)).collect();
    let mut watcher = Watcher::new(programs, reader.host().page_bytes as f64);
    let mut look = |at_s: f64, number: usize, news: News| {
        let rule = suspicions()[number].name;
        match news {
            News::Holds(details) if heard.raised.iter().all(|before| before.rule != rule) => {
                heard.raised.push(Raised { rule, at_s, numbers: in_words(&details) });
            }
            News::Holds(_) => {}
            News::CannotTell { missing } => heard.cannot_tell.push((rule, missing)),
        }
    };
    let walked = reader.frames(Span::ALL, &mut |frame, strings| {
        let at_s = frame.time.real as f64 / SECOND as f64;
        watcher.observe(frame, strings, &mut |_| true, &mut |number, news| look(at_s, number, news));
    });
    walked.unwrap();
    heard
}

#[test]
fn no_suspicion_is_raised_on_a_healthy_machine() {
    assert!(HEARD.iter().any(|h| h.shipped.run.kind == Kind::Control), "no recordings of controls");
    let raised = |h: &'static Heard| h.raised.iter().filter(move |raised| h.is_healthy(raised.at_s));
    let all = || HEARD.iter().flat_map(|h| raised(h).map(move |raised| (h.key(), raised)));
    let is_known = |key: &str, rule: &str| KNOWN.iter().any(|known| (known.0, known.1) == (key, rule));
    let mut wrong: Vec<String> = all()
        .filter(|(key, raised)| !is_known(key, raised.rule))
        .map(|(key, raised)| format!("{key}: {}: {}", raised.rule, raised.numbers))
        .collect();
    for (key, rule, reason) in KNOWN {
        if !all().any(|(k, raised)| (k, raised.rule) == (*key, *rule)) {
            wrong.push(format!("{key}: {rule} is silent now; strike it from KNOWN. It was: {reason}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The number of recordings with the suspected condition, and of those on which it is raised.
fn counts(suspicion: &Suspicion) -> (usize, usize) {
    let shipped = HEARD.iter().filter(|h| h.has(suspicion)).count();
    (shipped, HEARD.iter().filter(|h| h.is_right(suspicion)).count())
}

/// The error of a suspicion, given its entry in [`UNSEEN`].
fn wrong(suspicion: &Suspicion, unseen: Option<&Unseen>) -> Option<String> {
    let Suspicion { name, suspects, .. } = suspicion;
    let (shipped, right) = counts(suspicion);
    match unseen {
        None if shipped == 0 => {
            Some(format!("{name}: no recording of {suspects} is shipped; say so in UNSEEN"))
        }
        None if right == 0 => {
            Some(format!("{name}: not raised on any of the {shipped} recordings of {suspects}"))
        }
        Some(Unseen::NotShipped) if shipped > 0 => {
            Some(format!("{name}: {shipped} recordings of {suspects} are shipped now; strike it from UNSEEN"))
        }
        Some(Unseen::Silent(reason)) if right > 0 || shipped == 0 => {
            Some(format!("{name}: right on {right} of {shipped}; strike it from UNSEEN. It was: {reason}"))
        }
        _ => None,
    }
}

#[test]
fn each_suspicion_is_raised_where_it_is_right() {
    for suspicion in suspicions() {
        let of: Vec<&str> = HEARD.iter().filter(|h| h.of(suspicion).is_some()).map(Heard::key).collect();
        let (shipped, right) = counts(suspicion);
        println!(
            "{}: raised on {} of {} recordings, {right} of the {shipped} of {}: {}",
            suspicion.name,
            of.len(),
            HEARD.len(),
            suspicion.suspects,
            of.join(" ")
        );
    }
    for h in HEARD.iter() {
        for (rule, missing) in &h.cannot_tell {
            println!("{}: {rule} cannot be told: {} is not there", h.key(), missing.join(", "));
        }
    }
    let unseen = |name: &str| UNSEEN.iter().find(|(rule, _)| *rule == name).map(|(_, why)| why);
    let mut found: Vec<String> = suspicions().iter().filter_map(|s| wrong(s, unseen(s.name))).collect();
    let unknown = UNSEEN.iter().filter(|(rule, _)| suspicions().iter().all(|s| s.name != *rule));
    found.extend(unknown.map(|(rule, _)| format!("{rule}: no such rule; strike it from UNSEEN")));
    assert!(found.is_empty(), "{}", found.join("\n"));
}
