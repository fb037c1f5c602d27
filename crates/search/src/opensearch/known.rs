//! What a cluster has of one host, and how a pass over the host changes it.
//!
//! ```text
//! known       /etc/fstab since 11-01, /etc/motd since 11-20; last pass on 11-20
//! seen        11-21 03:37: /etc/fstab changed, /etc/hosts is new
//! replaced    the old /etc/fstab → history of 11-21, until 03:37
//! written     /etc/fstab, /etc/hosts → 11-21, since 03:37
//! carried     /etc/motd → 11-21, since 11-20
//! ```
//!
//! The plan depends only on what is known and what was seen. So a batch that is delivered again
//! after a crash produces the same documents with the same ids and versions.

use std::collections::{BTreeMap, BTreeSet};

use crate::day::Day;
use crate::document::{Document, Flag, Kind};

use super::work::Work;

/// The last state of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct State {
    /// The digest of the state, see [`super::wire::state`].
    pub digest: String,
    /// When the state began.
    pub since_ns: i64,
    /// A tombstone, which is kept until the end of its day.
    pub gone: bool,
    /// The document changes by itself.
    pub volatile: bool,
    /// The document is an event, which belongs to one day.
    pub event: bool,
    /// The day whose index has it.
    pub at: Day,
}

/// What a cluster has of a host.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct HostState {
    /// The last pass; `None` for a new host.
    pub last: Option<LastVisit>,
    /// The spool run of the last batch that came through the spool, and its number.
    pub spooled: (String, u64),
    /// Its documents by file name.
    pub states: BTreeMap<String, State>,
}

/// The last pass over a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LastVisit {
    pub ns: i64,
    /// The time of the pass before; `None` if there was none.
    pub before_ns: Option<i64>,
    /// The last day whose index has all documents.
    pub day: Day,
}

/// The steps for delivering one batch.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Plan {
    pub day: Day,
    pub at_ns: i64,
    /// The time of the pass before. `None` for a new host, whose documents are not changes.
    pub before_ns: Option<i64>,
    /// Whether this is the first pass of a day.
    pub first: bool,
    pub replaced: Vec<Replaced>,
    pub gone: Vec<Gone>,
    pub written: Vec<Written>,
    pub carried: Vec<Carried>,
}

/// A state that moves to the history.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Replaced {
    pub filename: String,
    /// The day whose index has it.
    pub from: Day,
    pub until_ns: i64,
}

/// A document that disappeared.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Gone {
    pub filename: String,
    pub from: Day,
    pub since_ns: i64,
}

/// A document of the batch to write.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Written {
    /// Its position in the batch.
    pub place: usize,
    pub since_ns: i64,
    /// Whether the document is new or changed.
    pub change: bool,
}

/// A document that the batch does not mention, to be copied to a new day.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Carried {
    pub filename: String,
    pub from: Day,
}

impl HostState {
    /// Whether this batch was already delivered.
    pub fn has(&self, work: &Work) -> bool {
        work.seq > 0 && self.spooled.0 == work.run && work.seq <= self.spooled.1
    }

    /// The time of the pass before that of a batch. All batches of one pass have the same time.
    fn before(&self, work: &Work, at_ns: i64) -> Option<i64> {
        let last = self.last.and_then(|last| if last.ns == at_ns { last.before_ns } else { Some(last.ns) });
        last.max(work.seen_ns)
    }

    /// Plans the delivery of a batch.
    pub fn plan(&self, work: &Work) -> Plan {
        // Keeps the times ascending, even if the clock was set back.
        let at_ns = self.last.map_or(work.at_ns, |last| work.at_ns.max(last.ns));
        let day = Day::of(at_ns);
        let first = self.last.is_none_or(|last| last.day < day);
        let before_ns = self.before(work, at_ns);
        let mut plan = Plan { day, at_ns, before_ns, first, ..Plan::default() };
        // If a document occurs twice, the last one counts.
        let places: BTreeMap<&str, usize> =
            work.documents.iter().enumerate().map(|(place, d)| (d.filename.as_str(), place)).collect();
        for (filename, place) in &places {
            if let (Some(document), Some(digest)) = (work.documents.get(*place), work.digests.get(*place)) {
                self.seen(&mut plan, filename, *place, document, digest);
            }
        }
        let gone: BTreeSet<&str> =
            work.gone.iter().map(String::as_str).filter(|name| !places.contains_key(name)).collect();
        for filename in &gone {
            let Some(state) = self.states.get(*filename).filter(|s| !s.gone && !s.event) else { continue };
            let since_ns = at_ns.max(state.since_ns.saturating_add(1));
            self.replace(&mut plan, filename, since_ns);
            plan.gone.push(Gone { filename: (*filename).to_owned(), from: state.at, since_ns });
        }
        if first && !work.part {
            for (filename, state) in &self.states {
                let spoken_of = places.contains_key(filename.as_str()) || gone.contains(filename.as_str());
                if !spoken_of && !state.gone && !state.event && state.at < day {
                    plan.carried.push(Carried { filename: filename.clone(), from: state.at });
                }
            }
        }
        plan
    }

    fn seen(&self, plan: &mut Plan, filename: &str, place: usize, document: &Document, digest: &str) {
        let event = document.kind == Kind::Incident;
        let state = self.states.get(filename);
        if let Some(same) = state.filter(|s| s.digest == digest && !s.gone) {
            if plan.first && !event && same.at < plan.day {
                plan.written.push(Written { place, since_ns: same.since_ns, change: false });
            }
            return;
        }
        let since_ns = state.map_or(plan.at_ns, |s| plan.at_ns.max(s.since_ns.saturating_add(1)));
        self.replace(plan, filename, since_ns);
        plan.written.push(Written { place, since_ns, change: plan.before_ns.is_some() });
    }

    /// Moves the current state of a document to the day's history, if it belongs there.
    fn replace(&self, plan: &mut Plan, filename: &str, until_ns: i64) {
        let Some(state) = self.states.get(filename) else { return };
        let of_that_day = state.since_ns >= plan.day.start_ns();
        // A tombstone or an event ended with its own day. A volatile document has one state per
        // day.
        let ended = (state.gone || state.event) && state.at < plan.day;
        if ended || (state.volatile && of_that_day) {
            return;
        }
        plan.replaced.push(Replaced { filename: filename.to_owned(), from: state.at, until_ns });
    }

    /// The last day whose index has all documents, once a plan was carried out.
    pub fn full_day(&self, work: &Work, plan: &Plan) -> Day {
        let of_plan = if work.part { plan.day.before() } else { plan.day };
        self.last.map_or(of_plan, |last| last.day.max(of_plan))
    }

    /// Records that a plan was carried out. `gone` has the digests of the tombstones, in the order
    /// of the plan.
    pub fn done(&mut self, work: &Work, plan: &Plan, gone: Vec<(String, String)>) {
        for written in &plan.written {
            let (Some(document), Some(digest)) =
                (work.documents.get(written.place), work.digests.get(written.place))
            else {
                continue;
            };
            let state = State {
                digest: digest.clone(),
                since_ns: written.since_ns,
                gone: false,
                volatile: document.is(Flag::Volatile),
                event: document.kind == Kind::Incident,
                at: plan.day,
            };
            self.states.insert(document.filename.clone(), state);
        }
        for carried in &plan.carried {
            if let Some(state) = self.states.get_mut(&carried.filename) {
                state.at = plan.day;
            }
        }
        for (filename, digest) in gone {
            let Some(since_ns) = plan.gone.iter().find(|g| g.filename == filename).map(|g| g.since_ns) else {
                continue;
            };
            if let Some(state) = self.states.get_mut(&filename) {
                *state = State { digest, since_ns, gone: true, at: plan.day, ..state.clone() };
            }
        }
        if plan.first && !work.part {
            // Events stay known, so that they are not written again.
            self.states.retain(|_, state| state.at >= plan.day || state.event);
        }
        let day = self.full_day(work, plan);
        self.last = Some(LastVisit { ns: plan.at_ns, before_ns: plan.before_ns, day });
        if work.seq > 0 {
            self.spooled = (work.run.clone(), work.seq);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::wire;
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    fn day(n: i32) -> Day {
        Day(20_000 + n)
    }

    fn at(n: i32, second: i64) -> i64 {
        day(n).start_ns() + second * SECOND
    }

    fn document(filename: &str, content: &str, since_ns: i64) -> Document {
        Document { content: Some(content.into()), since_ns, ..Document::new("web1", filename, Kind::File) }
    }

    fn work(at_ns: i64, documents: Vec<Document>, gone: &[&str]) -> Work {
        let digests = documents.iter().map(wire::state).collect();
        let gone = gone.iter().map(|g| (*g).to_owned()).collect();
        Work {
            host: "web1".into(),
            at_ns,
            seen_ns: None,
            part: false,
            run: String::new(),
            seq: 0,
            documents,
            digests,
            gone,
        }
    }

    /// Plans a batch, records it as delivered and returns the plan.
    fn step(known: &mut HostState, work: &Work) -> Plan {
        let plan = known.plan(work);
        let gone = plan.gone.iter().map(|g| (g.filename.clone(), "gone".to_owned())).collect();
        known.done(work, &plan, gone);
        plan
    }

    fn started() -> HostState {
        let mut known = HostState::default();
        let t = at(0, 100);
        let plan = step(&mut known, &work(t, vec![document("a", "1", t), document("b", "1", t)], &[]));
        assert!(plan.first && plan.replaced.is_empty() && plan.carried.is_empty());
        assert!(plan.written.iter().all(|w| !w.change) && plan.day == day(0));
        known
    }

    #[test]
    fn what_says_the_same_is_not_written_again_on_a_day() {
        let mut known = started();
        let t = at(0, 200);
        let plan = step(&mut known, &work(t, vec![document("a", "1", t)], &[]));
        assert_eq!((plan.first, plan.written.len(), plan.replaced.len()), (false, 0, 0));
        assert_eq!(known.last, Some(LastVisit { ns: t, before_ns: Some(at(0, 100)), day: day(0) }));
    }

    #[test]
    fn a_change_puts_the_old_state_into_the_history() {
        let mut known = started();
        let t = at(0, 200);
        let plan = step(&mut known, &work(t, vec![document("a", "2", t)], &[]));
        assert_eq!(plan.replaced, [Replaced { filename: "a".into(), from: day(0), until_ns: t }]);
        assert_eq!(plan.written, [Written { place: 0, since_ns: t, change: true }]);
    }

    #[test]
    fn a_new_day_has_every_document() {
        let mut known = started();
        let t = at(2, 50);
        let plan = step(&mut known, &work(t, vec![document("a", "1", t), document("c", "1", t)], &[]));
        assert!(plan.first);
        assert_eq!(plan.written[0], Written { place: 0, since_ns: at(0, 100), change: false });
        assert_eq!(plan.written[1], Written { place: 1, since_ns: t, change: true });
        assert_eq!(plan.carried, [Carried { filename: "b".into(), from: day(0) }]);
        let plan = step(&mut known, &work(at(3, 50), Vec::new(), &[]));
        assert_eq!(plan.carried.len(), 3);
    }

    #[test]
    fn what_is_gone_stays_until_the_end_of_its_day() {
        let mut known = started();
        let t = at(0, 200);
        let plan = step(&mut known, &work(t, Vec::new(), &["a", "never there"]));
        assert_eq!(plan.gone, [Gone { filename: "a".into(), from: day(0), since_ns: t }]);
        assert_eq!(plan.replaced.len(), 1);
        assert!(step(&mut known, &work(at(0, 300), Vec::new(), &["a"])).gone.is_empty(), "it goes once");
        let plan = step(&mut known, &work(at(1, 50), Vec::new(), &[]));
        assert_eq!(plan.carried, [Carried { filename: "b".into(), from: day(0) }]);
        // It returns on a later day, as a new document. The absence is not a state.
        let t = at(1, 60);
        let plan = step(&mut known, &work(t, vec![document("a", "1", t)], &[]));
        assert!(plan.replaced.is_empty() && plan.written[0].change);
    }

    #[test]
    fn what_comes_back_on_the_same_day_had_been_gone() {
        let mut known = started();
        step(&mut known, &work(at(0, 200), Vec::new(), &["a"]));
        let t = at(0, 300);
        let plan = step(&mut known, &work(t, vec![document("a", "1", t)], &[]));
        assert_eq!(plan.replaced, [Replaced { filename: "a".into(), from: day(0), until_ns: t }]);
    }

    #[test]
    fn of_what_changes_by_itself_a_day_keeps_the_last_state() {
        let mut known = started();
        let volatile = |content: &str, t: i64| {
            let mut d = document("/proc/meminfo", content, t);
            d.flag(Flag::Volatile);
            d
        };
        step(&mut known, &work(at(0, 150), vec![volatile("1", at(0, 150))], &[]));
        assert!(
            step(&mut known, &work(at(0, 200), vec![volatile("2", at(0, 200))], &[])).replaced.is_empty()
        );
        assert_eq!(step(&mut known, &work(at(1, 50), vec![volatile("3", at(1, 50))], &[])).replaced.len(), 1);
    }

    #[test]
    fn an_incident_belongs_to_its_day() {
        let mut known = started();
        let mut incident = document("@incident/1", "oom", at(0, 300));
        incident.kind = Kind::Incident;
        assert_eq!(step(&mut known, &work(at(1, 10), vec![incident.clone()], &[])).written.len(), 1);
        assert!(step(&mut known, &work(at(1, 20), vec![incident.clone()], &[])).written.is_empty());
        let plan = step(&mut known, &work(at(2, 10), Vec::new(), &["@incident/1"]));
        assert!(plan.carried.iter().all(|c| c.filename != "@incident/1") && plan.gone.is_empty());
        assert!(
            step(&mut known, &work(at(3, 10), vec![incident], &[])).written.is_empty(),
            "it is told once"
        );
    }

    #[test]
    fn batches_of_one_look_know_the_look_before() {
        let mut known = HostState::default();
        let t = at(0, 100);
        for name in ["a", "b"] {
            let plan = step(&mut known, &work(t, vec![document(name, "1", t)], &[]));
            assert_eq!(plan.before_ns, None, "the host is new");
        }
        for name in ["a", "b"] {
            let plan = step(&mut known, &work(at(0, 200), vec![document(name, "2", 0)], &[]));
            assert_eq!((plan.before_ns, plan.written[0].since_ns), (Some(t), at(0, 200)));
        }
    }

    #[test]
    fn a_pass_in_parts_carries_at_its_end() {
        let mut known = started();
        let t = at(1, 50);
        let part = Work { part: true, ..work(t, vec![document("a", "1", t)], &[]) };
        let plan = step(&mut known, &part);
        assert_eq!((plan.first, plan.written.len(), plan.carried.len()), (true, 1, 0));
        let before = known.states.len();
        let plan = step(&mut known, &work(t, vec![document("new", "1", t)], &[]));
        assert!(plan.first && plan.written.len() == 1 && plan.before_ns == Some(at(0, 100)));
        assert!(plan.carried.iter().all(|c| c.filename != "a" && c.filename != "new"));
        assert_eq!(plan.carried.len(), before - 1, "all but the one that was written");
        assert!(!step(&mut known, &work(at(1, 60), Vec::new(), &[])).first);
    }

    #[test]
    fn time_does_not_go_backwards() {
        let mut known = started();
        let plan = step(&mut known, &work(at(-1, 0), vec![document("a", "2", at(-1, 0))], &[]));
        assert_eq!((plan.day, plan.at_ns), (day(0), at(0, 100)));
        assert_eq!(plan.written[0].since_ns, at(0, 100) + 1);
    }

    #[test]
    fn a_batch_of_the_spool_is_delivered_once() {
        let mut known = started();
        let of = |run: &str, seq: u64| Work { run: run.into(), seq, ..work(at(0, 200), Vec::new(), &[]) };
        step(&mut known, &of("x", 2));
        assert!(known.has(&of("x", 1)) && known.has(&of("x", 2)));
        assert!(!known.has(&of("x", 3)) && !known.has(&of("y", 1)) && !known.has(&of("x", 0)));
    }
}
