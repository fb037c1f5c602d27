//! Which incidents were told, so that each is told once, also by a process that was started anew.

use mitra_model::incident_id::free_id;
use mitra_model::wall_clock::{REMEMBERED_NS, WallClock, is_remembered};
use serde::{Deserialize, Serialize};

use crate::message::{Event, Message, incident_id};

const SECOND: i64 = 1_000_000_000;
/// Onsets of one incident in two explanations differ by less.
const SAME_ONSET_NS: i64 = 5 * SECOND;
/// A verdict that changes with each look is not told with each.
const REVISED_AFTER_NS: i64 = 30 * SECOND;
/// A device that is said to be in the same state again within this time is no news: a driver has several lines for it.
const SAME_STATE_NS: i64 = 3600 * SECOND;
/// So many are remembered, of which the oldest go first.
const KEPT_MAX: usize = 500;

/// An incident as it is explained now.
pub struct Now<'a> {
    /// Nanoseconds.
    pub onset: i64,
    /// None while it goes on.
    pub end: Option<i64>,
    /// The root cause and the culprit, by which another verdict is known.
    pub verdict: (&'a str, Option<String>),
    /// What is to be said of it, made when it is said; `id` and `event` are set here.
    pub message: Box<dyn Fn() -> Message + 'a>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Known {
    onset: i64,
    end: Option<i64>,
    told: i64,
    message: Message,
}

/// What was told.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Told {
    incidents: Vec<Known>,
    /// By id, when.
    findings: Vec<(String, i64)>,
    /// By name, the state of which was told or would have been, and when it was seen last.
    #[serde(default)]
    devices: Vec<(String, String, i64)>,
    /// Since when nothing is recorded, and the message.
    #[serde(default)]
    stopped: Option<(i64, Message)>,
    /// What devices did before is told.
    #[serde(default)]
    devices_until: Option<i64>,
    /// What ended before is no news to anybody.
    since: Option<i64>,
    /// By which clock all times are.
    #[serde(flatten)]
    clock: WallClock,
}

impl Told {
    /// As if somebody had asked since this time.
    #[must_use]
    pub fn since(ns: i64) -> Told {
        Told { since: Some(ns), ..Told::default() }
    }

    /// From now on times are of this boot, to whose boot time so much is added. If that was another number before, all times move.
    pub fn on_clock(&mut self, boot_id: &str, offset_ns: i64) {
        let moved = self.clock.set(boot_id, offset_ns);
        let incidents = self.incidents.iter_mut().flat_map(|known| [&mut known.onset, &mut known.told]);
        let findings = self.findings.iter_mut().map(|(_, told)| told);
        let devices = self.devices.iter_mut().map(|(.., seen)| seen);
        let stopped = self.stopped.iter_mut().map(|(at, _)| at);
        let all = incidents.chain(findings).chain(devices).chain(stopped);
        for time in all.chain(&mut self.devices_until).chain(&mut self.since) {
            *time = time.saturating_add(moved);
        }
        for end in self.incidents.iter_mut().filter_map(|known| known.end.as_mut()) {
            *end = end.saturating_add(moved);
        }
    }

    /// What there is to tell, where these are all incidents of the stretch of time that ends `until`, in nanoseconds. `rfc3339` writes
    /// a time.
    ///
    /// `devices` are what became of devices in that time, in order: when, and a message with the device as culprit and its state as
    /// condition.
    pub fn step(
        &mut self,
        current: Vec<Now<'_>>,
        findings: Vec<Message>,
        devices: Vec<(i64, Message)>,
        until: i64,
        rfc3339: impl Fn(i64) -> String,
    ) -> Vec<Message> {
        let since = *self.since.get_or_insert(until);
        self.forget(until);
        let mut said = Vec::new();
        let mut seen = vec![false; self.incidents.len()];
        let known = self.known(&current, until);
        for (now, known) in current.into_iter().zip(known) {
            match known {
                Some(i) => {
                    if let Some(mark) = seen.get_mut(i) {
                        *mark = true;
                    }
                    said.extend(self.incidents[i].look(now, until));
                }
                None if now.end.is_some_and(|end| end < since) => {}
                None => {
                    let mut message = (now.message)();
                    message.event = if now.end.is_some() { Event::Ended } else { Event::Begun };
                    message.id = self.new_id(&message.host, &rfc3339(now.onset));
                    said.push(message.clone());
                    self.incidents.push(Known { onset: now.onset, end: now.end, told: until, message });
                    seen.push(true);
                }
            }
        }
        for (known, _) in
            self.incidents.iter_mut().zip(seen).filter(|(known, seen)| !seen && known.end.is_none())
        {
            let end = until.max(known.onset);
            known.end = Some(end);
            known.message.until = Some(rfc3339(end));
            known.message.event = Event::Ended;
            said.push(known.message.clone());
        }
        for mut finding in findings {
            finding.event = Event::Finding;
            if !self.findings.iter().any(|(id, _)| *id == finding.id) {
                self.findings.push((finding.id.clone(), until));
                said.push(finding);
            }
        }
        // A clock that was set back tells the same times anew.
        let told = self.devices_until.replace(until).unwrap_or(since).min(until);
        said.extend(devices.into_iter().filter(|(at, _)| *at >= told).filter_map(|(at, message)| {
            let is_news = self.is_news_of_device(at, &message);
            is_news.then_some(Message { event: Event::Device, ..message })
        }));
        self.forget(until);
        said
    }

    /// Which of those that were told each of these is: one with its verdict, else one for which another verdict was found. None is two of
    /// them, and of several it is the one whose onset is nearest.
    fn known(&self, current: &[Now<'_>], until: i64) -> Vec<Option<usize>> {
        let told = |now: &Now<'_>, is_it: &dyn Fn(usize, &Known) -> bool| {
            let told = self.incidents.iter().enumerate();
            let same = told.filter(|(i, known)| is_same(known, now, until) && is_it(*i, known));
            same.min_by_key(|(_, known)| known.onset.abs_diff(now.onset)).map(|(i, _)| i)
        };
        let mut all: Vec<Option<usize>> = Vec::with_capacity(current.len());
        for now in current {
            let same = told(now, &|i, known| !known.is_told_otherwise(now) && !all.contains(&Some(i)));
            all.push(same);
        }
        for (i, now) in current.iter().enumerate() {
            if all.get(i).is_some_and(Option::is_none) {
                let revised = told(now, &|i, _| !all.contains(&Some(i)));
                all[i] = revised;
            }
        }
        all
    }

    /// The id of an incident that was not told: two that begin with the same sample are told apart.
    fn new_id(&self, host: &str, onset: &str) -> String {
        let is_taken = |id: &str| self.incidents.iter().any(|known| known.message.id == id);
        free_id(&incident_id(host, onset), is_taken)
    }

    fn is_news_of_device(&mut self, at: i64, message: &Message) -> bool {
        let name = message.culprit.as_deref().unwrap_or_default();
        let known = self.devices.iter().position(|(known, ..)| known == name);
        let (_, state, seen) = known.map(|i| self.devices.remove(i)).unwrap_or_default();
        self.devices.push((name.to_owned(), message.condition.clone(), at));
        known.is_none() || state != message.condition || at - seen > SAME_STATE_NS
    }

    /// What goes on, for receivers that forget what they do not hear of again.
    #[must_use]
    pub fn going_on(&self) -> Vec<Message> {
        let incidents = self.incidents.iter().filter(|known| known.end.is_none()).map(|known| &known.message);
        incidents.chain(self.stopped.as_ref().map(|(_, message)| message)).cloned().collect()
    }

    /// Since when nothing is recorded, if that was told.
    #[must_use]
    pub fn stopped_at(&self) -> Option<i64> {
        self.stopped.as_ref().map(|(at, _)| *at)
    }

    /// Nothing is recorded any more.
    pub fn stopped(&mut self, at: i64, message: Message) -> Message {
        let message = Message { event: Event::RecorderStopped, ..message };
        self.stopped = Some((at, message.clone()));
        message
    }

    /// It is recorded again: this message is of the same thing as the one that it had stopped.
    pub fn recorded_again(&mut self, message: Message) -> Message {
        let stopped = self.stopped.take().map(|(_, message)| (message.id, message.since));
        let (id, since) = stopped.unwrap_or_else(|| (message.id.clone(), message.since.clone()));
        Message { event: Event::RecorderBack, id, since, ..message }
    }

    fn forget(&mut self, until: i64) {
        // Nobody waits any longer for the end of one that is over so long.
        self.incidents.retain(|known| known.end.is_none_or(|end| end > until - REMEMBERED_NS));
        self.findings.retain(|(_, told)| is_remembered(*told, until));
        let surplus = self.incidents.len().saturating_sub(KEPT_MAX);
        self.incidents.drain(..surplus);
        let surplus = self.findings.len().saturating_sub(KEPT_MAX);
        self.findings.drain(..surplus);
        self.devices.retain(|(.., seen)| is_remembered(*seen, until));
        let surplus = self.devices.len().saturating_sub(KEPT_MAX);
        self.devices.drain(..surplus);
    }
}

impl Known {
    /// Whether another verdict was told.
    fn is_told_otherwise(&self, now: &Now<'_>) -> bool {
        (self.message.condition.as_str(), &self.message.culprit) != (now.verdict.0, &now.verdict.1)
    }

    /// What is new of an incident that is known.
    fn look(&mut self, now: Now<'_>, until: i64) -> Option<Message> {
        self.onset = self.onset.min(now.onset);
        let has_changed = self.is_told_otherwise(&now);
        let is_over = self.end.is_none() && now.end.is_some();
        let goes_on_again = self.end.is_some() && now.end.is_none();
        self.end = now.end;
        let event = if is_over {
            Event::Ended
        } else if goes_on_again {
            Event::Begun
        } else if has_changed && now.end.is_none() && until - self.told >= REVISED_AFTER_NS {
            Event::Revised
        } else {
            return None;
        };
        let (id, since) = (self.message.id.clone(), self.message.since.clone());
        self.message = Message { id, since, event, ..(now.message)() };
        self.told = until;
        Some(self.message.clone())
    }
}

/// They overlap, or begin together.
fn is_same(old: &Known, new: &Now<'_>, until: i64) -> bool {
    let overlap = old.onset < new.end.unwrap_or(until.max(new.onset))
        && new.onset < old.end.unwrap_or(until.max(old.onset));
    overlap || (old.onset - new.onset).abs() <= SAME_ONSET_NS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::SCHEMA;

    fn message(condition: &str) -> Message {
        Message {
            schema: SCHEMA.to_owned(),
            event: Event::Test,
            id: String::new(),
            host: "web1".to_owned(),
            since: "s".to_owned(),
            until: None,
            headline: condition.to_owned(),
            condition: condition.to_owned(),
            title: condition.to_owned(),
            unexplained: false,
            confidence: 0.9,
            culprit: None,
            cost: None,
            actions: Vec::new(),
            meanings: Vec::new(),
            text: String::new(),
            facts: None,
            withheld: 0,
        }
    }

    fn step(told: &mut Told, incidents: &[(i64, Option<i64>, &str)], until: i64) -> Vec<(Event, String)> {
        let now = incidents.iter().map(|(onset, end, condition)| Now {
            onset: onset * SECOND,
            end: end.map(|end| end * SECOND),
            verdict: (condition, None),
            message: Box::new(|| message(condition)),
        });
        let said =
            told.step(now.collect(), Vec::new(), Vec::new(), until * SECOND, |ns| (ns / SECOND).to_string());
        said.into_iter().map(|message| (message.event, message.id)).collect()
    }

    #[test]
    fn an_incident_is_told_when_it_begins_and_when_it_ends() {
        let mut told = Told::default();
        assert_eq!(step(&mut told, &[(10, Some(50), "cpu-hog")], 90), [], "over before anybody asked");
        assert_eq!(step(&mut told, &[(100, None, "disk-hog")], 110), [(Event::Begun, "web1-100".to_owned())]);
        assert_eq!(step(&mut told, &[(101, None, "disk-hog")], 115), []);
        assert_eq!(told.going_on().len(), 1);
        let both = step(&mut told, &[(101, Some(118), "disk-hog"), (119, None, "cpu-hog")], 120);
        assert_eq!(both, [(Event::Ended, "web1-100".to_owned()), (Event::Begun, "web1-119".to_owned())]);
        // One that is no longer seen is over; a short one between two looks is told once, with its end.
        assert_eq!(step(&mut told, &[], 140), [(Event::Ended, "web1-119".to_owned())]);
        let short = [(150, Some(152), "oom-kill")];
        assert_eq!(step(&mut told, &short, 155), [(Event::Ended, "web1-150".to_owned())]);
        assert_eq!(step(&mut told, &short, 160), []);
    }

    #[test]
    fn two_at_once_are_two_of_which_each_has_its_id() {
        let mut told = Told::default();
        let begun = |id: &str| (Event::Begun, id.to_owned());
        let both = [(100, None, "cpu-hog"), (100, None, "disk-hog")];
        assert_eq!(step(&mut told, &both, 110), [begun("web1-100"), begun("web1-100-2")]);
        assert_eq!(step(&mut told, &both, 150), [], "none is a new verdict of the other");
        let revised = [(100, None, "cpu-hog"), (101, None, "dirty-throttle")];
        assert_eq!(step(&mut told, &revised, 200), [(Event::Revised, "web1-100-2".to_owned())]);
        assert_eq!(step(&mut told, &revised[1..], 210), [(Event::Ended, "web1-100".to_owned())]);
    }

    #[test]
    fn two_of_one_verdict_that_overlap_are_two() {
        let mut told = Told::default();
        let event = |event: Event, id: &str| (event, id.to_owned());
        assert_eq!(step(&mut told, &[(100, None, "disk-hog")], 110), [event(Event::Begun, "web1-100")]);
        let both = [(100, None, "disk-hog"), (120, None, "disk-hog")];
        assert_eq!(step(&mut told, &both, 130), [event(Event::Begun, "web1-120")]);
        let one = [(100, Some(150), "disk-hog"), (120, None, "disk-hog")];
        assert_eq!(step(&mut told, &one, 160), [event(Event::Ended, "web1-100")]);
        assert_eq!(step(&mut told, &one, 165), []);
        assert_eq!(step(&mut told, &one[1..], 170), [], "the first one is out of sight");
    }

    #[test]
    fn an_id_is_not_given_twice_when_the_first_was_forgotten() {
        let mut told = Told::default();
        let all = [(100, None, "cpu-hog"), (100, None, "disk-hog")];
        step(&mut told, &all, 110);
        step(&mut told, &all[1..], 120);
        let later = 120 + REMEMBERED_NS / SECOND;
        step(&mut told, &all[1..], later);
        let new = step(&mut told, &[(100, None, "oom-kill"), all[1]], later + 10);
        assert_eq!(new, [(Event::Begun, "web1-100".to_owned())]);
    }

    #[test]
    fn another_verdict_is_told_once_in_a_while() {
        let mut told = Told::default();
        step(&mut told, &[(100, None, "disk-hog")], 101);
        assert_eq!(step(&mut told, &[(100, None, "dirty-throttle")], 106), [], "too soon");
        let revised = step(&mut told, &[(98, None, "dirty-throttle")], 131);
        assert_eq!(revised, [(Event::Revised, "web1-100".to_owned())]);
        assert_eq!(step(&mut told, &[(98, None, "dirty-throttle")], 170), []);
        assert_eq!(
            step(&mut told, &[(98, Some(172), "disk-hog")], 175),
            [(Event::Ended, "web1-100".to_owned())]
        );
    }

    #[test]
    fn who_starts_anew_tells_nothing_twice() {
        let mut told = Told::default();
        step(&mut told, &[(100, None, "disk-hog")], 110);
        let kept = serde_json::to_string(&told).unwrap();
        let mut told: Told = serde_json::from_str(&kept).unwrap();
        assert_eq!(step(&mut told, &[(100, None, "disk-hog")], 300), []);
        assert_eq!(step(&mut told, &[], 400), [(Event::Ended, "web1-100".to_owned())]);
    }

    #[test]
    fn a_clock_that_is_set_back_is_no_news() {
        let all = |told: &mut Told, begun: i64, until: i64| {
            let incident = Now {
                onset: begun * SECOND,
                end: None,
                verdict: ("disk-hog", None),
                message: Box::new(|| message("disk-hog")),
            };
            let finding = Message { id: "a".to_owned(), ..message("fd-growth") };
            let device = Message { culprit: Some("sda".to_owned()), ..message("gone") };
            let devices = vec![((until - 1) * SECOND, device)];
            let said = told.step(vec![incident], vec![finding], devices, until * SECOND, |ns| ns.to_string());
            said.into_iter().map(|message| message.event).collect::<Vec<_>>()
        };
        let mut told = Told::since(0);
        told.on_clock("boot", 0);
        let first = [Event::Begun, Event::Finding, Event::Device];
        assert_eq!(all(&mut told, 100_000, 100_010), first);
        let kept = serde_json::to_string(&told).unwrap();
        let mut told: Told = serde_json::from_str(&kept).unwrap();
        told.on_clock("boot", -40_000 * SECOND);
        assert_eq!(all(&mut told, 60_000, 60_020), []);
        // The offset of another boot does not say where the times of this one lie.
        told.on_clock("next", 0);
        assert!(all(&mut told, 1_000, 1_010).contains(&Event::Finding));
    }

    #[test]
    fn a_finding_is_told_once_a_day_and_memory_is_bounded() {
        let mut told = Told::default();
        let finding = |id: &str| Message { id: id.to_owned(), ..message("fd-growth") };
        let step = |told: &mut Told, until: i64| {
            told.step(Vec::new(), vec![finding("a")], Vec::new(), until * SECOND, |_| String::new()).len()
        };
        assert_eq!((step(&mut told, 100), step(&mut told, 200), step(&mut told, 100 + 90_000)), (1, 0, 1));
        for i in 0..2000 {
            let until = (100_000 + i) * SECOND;
            told.step(Vec::new(), vec![finding(&i.to_string())], Vec::new(), until, |_| String::new());
        }
        assert_eq!(told.findings.len(), KEPT_MAX);
    }

    #[test]
    fn each_change_of_a_device_is_told_once_and_what_was_before_is_not() {
        let mut told = Told::default();
        let mut look = |until: i64, devices: &[(i64, &str, &str)]| {
            let devices = devices.iter().map(|(at, name, state)| {
                (at * SECOND, Message { culprit: Some((*name).to_owned()), ..message(state) })
            });
            let said =
                told.step(Vec::new(), Vec::new(), devices.collect(), until * SECOND, |_| String::new());
            // As a process that was started anew.
            told = serde_json::from_str(&serde_json::to_string(&told).unwrap()).unwrap();
            let said = said.into_iter().map(|m| (m.event, m.culprit.unwrap(), m.condition));
            said.map(|(event, name, state)| format!("{} {name} {state}", event.name())).collect::<Vec<_>>()
        };
        let none: [&str; 0] = [];
        assert_eq!(look(100, &[(90, "sda", "gone")]), none, "before anybody listened");
        let both = [(101, "sdb", "gone"), (103, "sdb", "appeared")];
        assert_eq!(look(105, &both), ["device sdb gone", "device sdb appeared"]);
        assert_eq!(look(110, &both), none, "told");
        // Two lines of one driver, and a device that says so each second.
        let again = [(111, "eth0", "down"), (112, "eth0", "down"), (112, "sdb", "gone")];
        assert_eq!(look(115, &again), ["device eth0 down", "device sdb gone"]);
        assert_eq!(look(4000, &[(3000, "eth0", "down")]), none);
        assert_eq!(look(9000, &[(8000, "eth0", "down")]), ["device eth0 down"]);
        // A clock that was set back.
        assert_eq!(look(500, &[]), none);
        assert_eq!(look(510, &[(505, "sdc", "gone")]), ["device sdc gone"]);
        look(520, &(0..2000).map(|_| (515, "x", "gone")).collect::<Vec<_>>());
        let names: Vec<String> = (0..2000).map(|i| format!("veth{i}")).collect();
        look(530, &names.iter().map(|name| (525, name.as_str(), "gone")).collect::<Vec<_>>());
        assert_eq!(told.devices.len(), KEPT_MAX);
    }
}
