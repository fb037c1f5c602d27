//! Which stretches of the episodes are looked at closely, what they are compared with, and how what goes on from one to the
//! next becomes one incident.

use mitra_model::report::{Culprit, Incident, LeftOut, Repeat};
use mitra_model::time::SECOND;
use mitra_model::{SeriesSet, Span};

use crate::engine::episodes::Episodes;
use crate::engine::{clients, ledger};
use crate::signal::Signal;

/// How long a part is at most: single tasks are read for it.
pub(crate) const FOCUS_NS: i64 = 600 * SECOND;
/// Quiet time that is compared with.
pub(crate) const BASELINE_NS: i64 = 60 * SECOND;
/// What is read with a part besides: the quiet time, and the seconds around both.
const BESIDE_NS: i64 = BASELINE_NS + 10 * SECOND;
/// Tasks are read for a third of the window at most, and for four hours of a short one: about a second of work a day.
const READ_SHARE: i64 = 3;
const READ_NS_MIN: i64 = 4 * 3600 * SECOND;
/// What is found at the end of one part and within so much of it at the beginning of the next one goes on.
const JOIN_NS: i64 = 10 * SECOND;

/// So near to an incident it is the incident's own build-up, or what it left behind; and what is shorter holds no other one.
const BESIDES_NS: i64 = 2 * JOIN_NS;
/// Seconds of tasks or of clients.
const FELT_S: f64 = 1.0;

/// A stretch that is looked at closely: an episode, or a part of a long one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    /// The stretch.
    pub(crate) span: Span,
    /// The episode that it belongs to.
    pub(crate) episode: Span,
    /// Whether the episode is how the machine is most of the time.
    pub(crate) is_steady: bool,
}

impl Part {
    /// An episode that is looked at as a whole.
    pub(crate) fn whole(episode: Span) -> Part {
        Part { span: episode, episode, is_steady: false }
    }

    /// How much is read to look at it.
    fn read_ns(&self) -> i64 {
        self.span.nanos().max(0).saturating_add(BESIDE_NS)
    }

    /// Whether it is the last one of several.
    fn is_last(&self) -> bool {
        self.span.until == self.episode.until && self.span.since > self.episode.since
    }

    /// Whether another one begins where this one ends.
    pub(crate) fn goes_on_in(&self, next: &Part) -> bool {
        self.episode == next.episode && self.is_steady == next.is_steady && self.span.until == next.span.since
    }
}

/// The parts of all episodes: consecutive ones, of equal length, where an episode is long.
pub(crate) fn cut(found: &Episodes) -> Vec<Part> {
    let of = |episode: &Span, is_steady: bool| {
        let (episode, length) = (*episode, episode.nanos().max(0));
        let n = (length.saturating_add(FOCUS_NS - 1) / FOCUS_NS).max(1);
        let step = length / n;
        (0..n).map(move |i| {
            let since = episode.since + i * step;
            let until = if i + 1 == n { episode.until } else { since + step };
            Part { span: Span { since, until }, episode, is_steady }
        })
    };
    let new = found.new.iter().flat_map(|episode| of(episode, false));
    new.chain(found.steady.iter().flat_map(|episode| of(episode, true))).collect()
}

/// The parts that touch the window and are looked at, in order of time, what is steady after all others; and what is left
/// out where they are too many. Kept are the ends of long episodes and those in which something happened that is trouble by
/// itself, for half of the time that may be read, and those with most lost time.
pub(crate) fn worst(
    parts: Vec<Part>,
    is_trouble: impl Fn(Span) -> bool,
    cost: &Cost,
    window: Span,
) -> (Vec<Part>, Option<LeftOut>) {
    let mut list: Vec<Part> = parts.into_iter().filter(|p| p.span.intersect(window).is_some()).collect();
    let most = (window.nanos() / READ_SHARE).max(READ_NS_MIN);
    let mut left_out = None;
    if list.iter().map(Part::read_ns).sum::<i64>() > most {
        let (mut first, mut rest): (Vec<Part>, Vec<Part>) =
            list.into_iter().partition(|p| p.is_last() || is_trouble(p.span));
        first.sort_by_key(|p| (p.is_steady, -p.span.until));
        let (mut kept, others) = within(first, most / 2);
        rest.extend(others);
        let weight = |p: &Part| cost.weight(p.span);
        rest.sort_by(|a, b| a.is_steady.cmp(&b.is_steady).then_with(|| weight(b).total_cmp(&weight(a))));
        let read: i64 = kept.iter().map(Part::read_ns).sum();
        let (also, others) = within(rest, most - read);
        kept.extend(also);
        list = kept;
        left_out = Some(LeftOut {
            stretches: others.len(),
            seconds: others.iter().map(|p| p.span.seconds()).sum(),
            lost_task_seconds: others.iter().map(|p| cost.lost(p.span)).sum(),
        });
    }
    list.sort_by_key(|p| (p.is_steady, p.span.since));
    (list, left_out)
}

/// What was lost in a stretch, by tasks and by clients.
pub(crate) struct Cost {
    lost: Option<Signal>,
    waits: Option<Signal>,
}

impl Cost {
    pub(crate) fn of(scan: &SeriesSet, window: Span) -> Cost {
        Cost { lost: ledger::lost(scan, window), waits: clients::waits(scan, window) }
    }

    fn inside(signal: Option<&Signal>, span: Span) -> Option<f64> {
        signal.map(|signal| signal.within(span).total())
    }

    /// Task-seconds.
    fn lost(&self, span: Span) -> Option<f64> {
        Self::inside(self.lost.as_ref(), span)
    }

    /// Whether more was lost than in as much usual time, by a second of tasks or of clients: what takes less is no incident.
    pub(crate) fn is_felt(&self, span: Span, usual: Option<&Cost>) -> bool {
        let more = |signal: &Option<Signal>, usual: Option<&Option<Signal>>| {
            let before = usual.and_then(|usual| usual.as_ref()?.mean()).unwrap_or(0.0);
            let inside = Self::inside(signal.as_ref(), span);
            inside.is_some_and(|inside| inside - before * span.seconds() >= FELT_S)
        };
        more(&self.lost, usual.map(|u| &u.lost)) || more(&self.waits, usual.map(|u| &u.waits))
    }

    /// Task-seconds or client-seconds, whichever is more; where neither is known, how long it is.
    fn weight(&self, span: Span) -> f64 {
        let waited = Self::inside(self.waits.as_ref(), span).unwrap_or(0.0);
        self.lost(span).unwrap_or_else(|| span.seconds()).max(waited)
    }
}

/// The stretches of a part before, between and after what was found in it, where something is worth a look of its own. Each is shorter than
/// the part: what lies elsewhere takes nothing from it.
pub(crate) fn besides(part: &Part, found: &[Span], is_worth: impl Fn(Span) -> bool) -> Vec<Part> {
    let wide = |span: &Span| Span {
        since: span.since.saturating_sub(BESIDES_NS),
        until: span.until.saturating_add(BESIDES_NS),
    };
    let mut taken: Vec<Span> = found.iter().map(wide).filter(|s| s.intersect(part.span).is_some()).collect();
    if taken.is_empty() {
        return Vec::new();
    }
    taken.sort_unstable_by_key(|span| span.since);
    taken.push(Span { since: part.span.until, until: part.span.until });
    let mut since = part.span.since;
    let free = taken.into_iter().filter_map(|span| {
        let free = Span { since, until: span.since.min(part.span.until) };
        since = since.max(span.until);
        (free.nanos() >= BESIDES_NS && is_worth(free)).then_some(Part { span: free, ..*part })
    });
    free.collect()
}

/// Those that may be read in such a time, in their order, and the others.
fn within(parts: Vec<Part>, mut most: i64) -> (Vec<Part>, Vec<Part>) {
    parts.into_iter().partition(|part| {
        let fits = part.read_ns() <= most;
        most -= if fits { part.read_ns() } else { 0 };
        fits
    })
}

/// Quiet time to compare with: right before, or else the nearest free stretch before, or else the window's own first
/// seconds, or else after. Of samples that are `step_s` apart it takes three at least, and ten are wanted.
pub(crate) fn quiet(episodes: &[Span], window: Span, known: Span, step_s: f64) -> Option<Span> {
    let steps = |n: f64| (n * step_s * SECOND as f64) as i64;
    let (least_ns, baseline_ns) = (steps(3.0).max(3 * SECOND), steps(10.0).max(BASELINE_NS));
    let edge_ns = steps(1.0).max(2 * SECOND);
    let is_free = |since: i64, until: i64| episodes.iter().all(|e| e.until <= since || e.since >= until);
    let mut until = window.since;
    for episode in episodes.iter().rev().filter(|e| e.since < window.since) {
        // The triggers' own edges are no quiet time.
        let free_from = episode.until + edge_ns;
        if until - free_from >= least_ns {
            return Some(Span { since: free_from.max(until - baseline_ns), until });
        }
        until = until.min(episode.since - edge_ns);
        if window.since - until > baseline_ns {
            break;
        }
    }
    // A recording may have begun only seconds before the trouble: then the window's own first seconds serve too, up to the
    // edge of the first trigger. The first sample of all has no rates yet, so that three of these take a second more.
    let trigger = episodes.iter().map(|e| e.since).find(|since| *since >= window.since);
    let untils = [Some(until), trigger.map(|t| t - edge_ns)];
    for (least_ns, until) in
        [least_ns + steps(1.0), least_ns].into_iter().flat_map(|l| untils.map(|u| (l, u)))
    {
        let Some(until) = until else { continue };
        let since = known.since.max(until - baseline_ns);
        if until - since >= least_ns && is_free(since, until) {
            return Some(Span { since, until });
        }
    }
    let since = window.until + edge_ns;
    let next = episodes.iter().map(|e| e.since).find(|s| *s > window.until).unwrap_or(known.until);
    let until = known.until.min(next).min(since + baseline_ns);
    (until - since >= least_ns && is_free(since, until)).then_some(Span { since, until })
}

/// Onsets come at intervals if each is this near to a whole number of them, as a share of one.
const PERIOD_TOLERANCE: f64 = 0.1;
/// Three onsets may be equally far apart by chance.
const PERIOD_ONSETS_MIN: usize = 4;

/// Which incidents are alike: the same root cause with the same culprit, in whichever process of that name. Most costly
/// first.
#[must_use]
pub fn repeats(incidents: &[Incident]) -> Vec<Repeat> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (i, incident) in incidents.iter().enumerate() {
        match groups.iter_mut().find(|group| is_alike(&incidents[group[0]], incident)) {
            Some(group) => group.push(i),
            None => groups.push(vec![i]),
        }
    }
    let sum = |group: &[usize], cost: fn(&Incident) -> Option<f64>| {
        group.iter().map(|i| cost(&incidents[*i])).sum()
    };
    let repeats = groups.into_iter().filter(|group| group.len() > 1).map(|group| Repeat {
        condition: incidents[group[0]].root_cause.condition.clone(),
        period_seconds: period(group.iter().map(|i| incidents[*i].onset.0)),
        lost_task_seconds: sum(&group, |incident| incident.lost_task_seconds),
        client_wait_seconds: sum(&group, |incident| incident.client_wait_seconds),
        incidents: group,
    });
    let mut repeats: Vec<Repeat> = repeats.collect();
    let weight = |r: &Repeat| r.lost_task_seconds.unwrap_or(0.0).max(r.client_wait_seconds.unwrap_or(0.0));
    repeats.sort_by(|a, b| weight(b).total_cmp(&weight(a)));
    repeats
}

/// Whether a root cause came again. A process that begins anew has another id, and perhaps a group of its own.
fn is_alike(a: &Incident, b: &Incident) -> bool {
    let who = |culprit: &Culprit| {
        let cgroup = culprit.cgroup.clone().filter(|_| culprit.process.is_none());
        Culprit { pid: None, cgroup, cgroup_name: None, ..culprit.clone() }
    };
    let (a, b) = (&a.root_cause, &b.root_cause);
    a.condition == b.condition && who(&a.culprit) == who(&b.culprit)
}

/// Seconds from one to the next, if all are equally far apart, or a multiple of it: what came between may have been harmless.
fn period(onsets: impl Iterator<Item = i64>) -> Option<f64> {
    let onsets: Vec<i64> = onsets.collect();
    let mut apart: Vec<f64> =
        onsets.windows(2).map(|pair| (pair[1] - pair[0]) as f64 / SECOND as f64).collect();
    apart.sort_by(f64::total_cmp);
    // Most are one period apart, or it is none.
    let typical = *apart.get(apart.len() / 2)?;
    let is_multiple = |apart: &f64| {
        let times = (apart / typical).round();
        times >= 1.0 && (apart - times * typical).abs() <= PERIOD_TOLERANCE * typical
    };
    (onsets.len() >= PERIOD_ONSETS_MIN && typical > 0.0 && apart.iter().all(is_multiple))
        .then_some(typical.round())
}

/// One incident of what was found again in several parts. The parts come in the order of [`worst`].
pub(crate) fn join(found: Vec<(Part, Incident)>) -> Vec<Incident> {
    let mut all: Vec<(Part, Incident)> = Vec::new();
    for (part, incident) in found {
        let known = all.iter_mut().rev().find(|(before, first)| {
            if before.is_steady != part.is_steady {
                return is_same_cause(first, &incident) && overlap(first, &incident);
            }
            before.episode == part.episode
                && before.span.until <= part.span.since
                && goes_on(first, &incident, part.span)
        });
        match known {
            Some((before, first)) if before.is_steady == part.is_steady => extend(first, &incident),
            Some(_) => {}
            None => all.push((part, incident)),
        }
    }
    all.into_iter().map(|(_, incident)| incident).collect()
}

/// Whether an incident of an earlier part is still going on as one of the next: the same cause, or what followed from it,
/// where that was there when the part began.
fn goes_on(first: &Incident, later: &Incident, part: Span) -> bool {
    let follows = later.onset.0 <= part.since
        && first.chain.iter().any(|link| link.condition == later.root_cause.condition);
    first.end.is_none_or(|end| end.0 + JOIN_NS >= later.onset.0) && (follows || is_same_cause(first, later))
}

fn overlap(a: &Incident, b: &Incident) -> bool {
    a.end.is_none_or(|end| end >= b.onset) && b.end.is_none_or(|end| end >= a.onset)
}

fn is_same_cause(a: &Incident, b: &Incident) -> bool {
    let place = |c: &Culprit| (c.process.clone(), c.device.clone(), c.nic.clone(), c.path.clone());
    let (a, b) = (&a.root_cause, &b.root_cause);
    a.condition == b.condition && place(&a.culprit) == place(&b.culprit)
}

fn extend(first: &mut Incident, later: &Incident) {
    first.end = first.end.zip(later.end).map(|(a, b)| a.max(b));
    let sum = |a: Option<f64>, b: Option<f64>| match (a, b) {
        (Some(a), Some(b)) => Some(((a + b) * 1000.0).round() / 1000.0),
        (a, b) => a.or(b),
    };
    first.lost_task_seconds = sum(first.lost_task_seconds, later.lost_task_seconds);
    first.client_wait_seconds = sum(first.client_wait_seconds, later.client_wait_seconds);
}

#[cfg(test)]
mod tests {
    use mitra_model::report::{Moment, Root};

    use super::*;

    fn none() -> Cost {
        Cost { lost: None, waits: None }
    }

    fn span(since: i64, until: i64) -> Span {
        Span { since: since * SECOND, until: until * SECOND }
    }

    #[test]
    fn a_long_episode_is_cut_and_none_of_it_is_left_out() {
        let found = Episodes { new: vec![span(0, 30), span(100, 1650)], ..Episodes::default() };
        let parts = cut(&found);
        let spans: Vec<Span> = parts.iter().map(|p| p.span).collect();
        assert_eq!(spans.len(), 4, "{spans:?}");
        assert_eq!((spans[0], spans[1].since, spans[3].until), (span(0, 30), 100 * SECOND, 1650 * SECOND));
        assert!(parts[1].goes_on_in(&parts[2]) && parts[2].goes_on_in(&parts[3]) && parts[3].is_last());
        assert!(spans.iter().all(|s| s.nanos() <= FOCUS_NS));
    }

    #[test]
    fn of_a_day_the_end_and_what_is_trouble_are_looked_at() {
        let day = Episodes { new: vec![span(0, 86_400)], ..Episodes::default() };
        let trouble = 40_000 * SECOND;
        let set = SeriesSet::default();
        let all = cut(&day);
        let (chosen, left_out) =
            worst(all.clone(), |s| s.contains(trouble), &Cost::of(&set, span(0, 90_000)), span(0, 90_000));
        assert!(chosen.iter().any(|p| p.span.contains(trouble)));
        assert!(chosen.last().is_some_and(Part::is_last));
        let left_out = left_out.unwrap();
        assert_eq!(chosen.len() + left_out.stretches, all.len());
        assert_eq!(left_out.lost_task_seconds, None, "nothing was measured");
        let seconds: f64 = all.iter().chain(&chosen).map(|p| p.span.seconds()).sum();
        let read: f64 = chosen.iter().map(|p| p.span.seconds()).sum();
        assert!((seconds - 2.0 * read - left_out.seconds).abs() < 1.0);
        assert!((20_000.0..=30_000.0).contains(&read), "{read}");
    }

    #[test]
    fn of_many_short_episodes_none_is_left_out() {
        let jobs =
            Episodes { new: (0..192).map(|i| span(450 * i, 450 * i + 8)).collect(), ..Episodes::default() };
        let (chosen, left_out) = worst(cut(&jobs), |_| false, &none(), span(0, 86_400));
        assert_eq!((chosen.len(), left_out), (192, None));
        let half_hour =
            Episodes { new: (0..60).map(|i| span(30 * i, 30 * i + 8)).collect(), ..Episodes::default() };
        let (chosen, left_out) = worst(cut(&half_hour), |_| false, &none(), span(0, 1800));
        assert_eq!((chosen.len(), left_out), (60, None));
    }

    #[test]
    fn what_is_left_of_a_part_is_smaller_and_comes_to_an_end() {
        let part = Part::whole(span(0, 600));
        let worth = |_: Span| true;
        let besides_s = BESIDES_NS / SECOND;
        let left: Vec<Span> =
            besides(&part, &[span(200, 220), span(300, 310)], worth).iter().map(|p| p.span).collect();
        let gap = span(220 + besides_s, 300 - besides_s);
        let (first, last) = (span(0, 200 - besides_s), span(310 + besides_s, 600));
        let wanted: Vec<Span> = [first, gap, last].into_iter().filter(|s| s.nanos() >= BESIDES_NS).collect();
        assert_eq!(left, wanted);
        assert_eq!(besides(&part, &[span(200, 220)], |_| false), Vec::new(), "nothing worth a look");
        assert_eq!(besides(&part, &[], worth), Vec::new(), "nothing was found");
        assert_eq!(besides(&part, &[span(700, 900)], worth), Vec::new(), "what was found lies elsewhere");
        // Whatever is found in what is left, each look has less before it.
        let (mut queue, mut looks) = (vec![part], 0_i64);
        while let Some(part) = queue.pop() {
            looks += 1;
            let found = Span { since: part.span.since, until: part.span.since + 1 };
            for rest in besides(&part, &[found], worth) {
                let length = |span: Span| span.nanos();
                assert!(length(rest.span) <= length(part.span) - BESIDES_NS);
                queue.push(rest);
            }
        }
        assert!(looks <= 600 / besides_s, "{looks}");
    }

    #[test]
    fn time_inside_an_episode_is_never_quiet() {
        // The look at a part of an episode that fills the recording.
        let all = [span(0, 1000)];
        assert_eq!(quiet(&all, span(0, 300), span(0, 1000), 1.0), None);
        assert_eq!(quiet(&all, span(300, 600), span(0, 1000), 1.0), None);
        let after = quiet(&[span(0, 300)], span(0, 305), span(0, 1000), 1.0).unwrap();
        assert!(after.since > 305 * SECOND && after.seconds() >= 50.0, "{after:?}");
    }

    #[test]
    fn of_a_short_recording_the_seconds_before_the_trigger_serve() {
        assert_eq!(quiet(&[span(9, 20)], span(4, 20), span(0, 20), 1.0), Some(span(0, 4)));
        assert_eq!(quiet(&[span(8, 20)], span(3, 20), span(0, 20), 1.0), Some(span(0, 6)));
        assert_eq!(quiet(&[span(7, 20)], span(2, 20), span(0, 20), 1.0), Some(span(0, 5)));
        assert_eq!(quiet(&[span(4, 20)], span(0, 20), span(0, 20), 1.0), None);
    }

    fn incident(onset_s: i64, pid: u32, name: &str, cost: Option<f64>) -> Incident {
        let culprit = Culprit { process: Some(name.to_owned()), pid: Some(pid), ..Culprit::default() };
        Incident {
            onset: Moment(onset_s * SECOND),
            root_cause: Root { condition: "cpu-hog".to_owned(), culprit, ..Root::default() },
            lost_task_seconds: cost,
            ..Incident::default()
        }
    }

    #[test]
    fn what_comes_every_five_minutes_is_one_thing() {
        // The fourth was harmless; another process of the same name does it each time, and a stranger comes between.
        let mut incidents: Vec<Incident> = [0, 301, 599, 1200, 1502]
            .iter()
            .map(|t| incident(*t, 100 + *t as u32, "backup", Some(2.0)))
            .collect();
        incidents.insert(2, incident(400, 7, "stranger", Some(90.0)));
        let found = repeats(&incidents);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].incidents, [0, 1, 3, 4, 5]);
        assert_eq!((found[0].lost_task_seconds, found[0].period_seconds), (Some(10.0), Some(302.0)));
    }

    #[test]
    fn what_befalls_two_groups_is_not_the_same_again() {
        let of = |culprit: Culprit| {
            let root_cause = Root { condition: "cgroup-memory-limit".to_owned(), culprit, ..Root::default() };
            Incident { root_cause, client_wait_seconds: Some(3.0), ..Incident::default() }
        };
        let group = |name: &str| of(Culprit { cgroup: Some(name.to_owned()), ..Culprit::default() });
        assert!(repeats(&[group("/a"), group("/b")]).is_empty());
        assert_eq!(repeats(&[group("/a"), group("/a")])[0].client_wait_seconds, Some(6.0));
        let slab = |name: &str| of(Culprit { slab: Some(name.to_owned()), ..Culprit::default() });
        assert!(repeats(&[slab("dentry"), slab("inode_cache")]).is_empty());
    }

    #[test]
    fn what_comes_at_any_time_has_no_period() {
        let at =
            |times: &[i64]| -> Vec<Incident> { times.iter().map(|t| incident(*t, 1, "job", None)).collect() };
        let of = |times: &[i64]| repeats(&at(times))[0].period_seconds;
        assert_eq!(of(&[0, 100, 250, 700, 760]), None);
        assert_eq!(of(&[0, 300, 600]), None, "three may be so by chance");
        assert_eq!(repeats(&at(&[0, 300, 600]))[0].lost_task_seconds, None);
        assert_eq!(of(&[0, 300, 600, 900]), Some(300.0));
        assert!(repeats(&at(&[0])).is_empty());
    }
}
