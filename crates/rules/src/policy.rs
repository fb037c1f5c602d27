//! How often what holds may act: probes cost, and a disease that lasts needs no probe every second.

use std::collections::VecDeque;

/// A rule that goes on holding acts again after its cool-down, then after twice that, and so on up to this, or to the
/// cool-down itself where that is longer.
const COOL_DOWN_MAX_S: f64 = 600.0;
/// A rule that has not held for so long begins anew.
const QUIET_S: f64 = 600.0;
/// Seconds of armed probes in an hour, of all rules together: a twentieth of the time.
pub const BUDGET_S: f64 = 180.0;
const HOUR_S: f64 = 3600.0;
/// What could not be armed is asked for again after this.
const AGAIN_S: f64 = 5.0;
/// Entries of the budget: more sets than this cannot be armed in an hour.
const SPENT_MAX: usize = 4096;

/// What may be done about a rule that holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Act.
    Go,
    /// Something else is armed.
    Busy,
    /// All probes together have been armed for long enough in this hour.
    OverBudget,
    /// It has acted often enough in this hour.
    TooOften,
}

impl Verdict {
    /// Why nothing is armed.
    #[must_use]
    pub fn why(self) -> &'static str {
        match self {
            Verdict::Go => "",
            Verdict::Busy => "other probes are armed",
            Verdict::OverBudget => "probes have been armed for long enough in this hour",
            Verdict::TooOften => "it has acted often enough in this hour",
        }
    }
}

/// One rule.
#[derive(Debug, Clone)]
struct State {
    cool_down_s: f64,
    per_hour: u32,
    /// The next rest.
    rest_s: f64,
    /// Not before.
    next_s: f64,
    last_held_s: f64,
    acted: VecDeque<f64>,
    /// Whether it was said that nothing could be armed.
    was_told: bool,
}

/// Cool-downs, limits and the budget. Time is seconds of any clock that does not go back.
#[derive(Debug)]
pub struct Policy {
    states: Vec<State>,
    budget_s: f64,
    spent: VecDeque<(f64, f64)>,
}

impl Policy {
    /// For rules with these cool-downs and limits per hour.
    #[must_use]
    pub fn new(rules: impl Iterator<Item = (f64, u32)>, budget_s: f64) -> Policy {
        let state = |(cool_down_s, per_hour)| State {
            cool_down_s,
            per_hour,
            rest_s: cool_down_s,
            next_s: f64::NEG_INFINITY,
            last_held_s: f64::NEG_INFINITY,
            acted: VecDeque::new(),
            was_told: false,
        };
        Policy { states: rules.map(state).collect(), budget_s, spent: VecDeque::new() }
    }

    /// Counts what a recorder before this one did within the hour before `now_s`, so that one that ends and begins again and
    /// again keeps to the limits as well. To be told in the order of time.
    pub fn remember(&mut self, rule: usize, at_s: f64, now_s: f64, seconds: f64) {
        let is_of_the_hour = (0.0..HOUR_S).contains(&(now_s - at_s));
        let Some(state) = self.states.get_mut(rule).filter(|_| is_of_the_hour) else { return };
        if state.acted.len() < state.per_hour as usize {
            state.acted.push_back(at_s);
        }
        if seconds > 0.0 && self.spent.len() < SPENT_MAX {
            self.spent.push_back((at_s, seconds));
        }
    }

    /// Whether a rule that holds now is to be looked at. Told in every sample.
    pub fn wants(&mut self, rule: usize, now_s: f64) -> bool {
        let Some(state) = self.states.get_mut(rule) else { return false };
        if now_s - state.last_held_s > QUIET_S {
            state.rest_s = state.cool_down_s;
            state.was_told = false;
        }
        state.last_held_s = now_s;
        now_s >= state.next_s
    }

    /// Whether it may act, for so many seconds of armed probes. The answer is remembered.
    pub fn decide(&mut self, rule: usize, now_s: f64, seconds: f64, is_busy: bool) -> Verdict {
        while self.spent.front().is_some_and(|(at, _)| now_s - at >= HOUR_S) {
            self.spent.pop_front();
        }
        let spent: f64 = self.spent.iter().map(|(_, seconds)| seconds).sum();
        let Some(state) = self.states.get_mut(rule) else { return Verdict::Busy };
        while state.acted.front().is_some_and(|at| now_s - at >= HOUR_S) {
            state.acted.pop_front();
        }
        let verdict = match () {
            () if is_busy => Verdict::Busy,
            () if state.acted.len() >= state.per_hour as usize => Verdict::TooOften,
            () if seconds > 0.0 && (spent + seconds > self.budget_s || self.spent.len() >= SPENT_MAX) => {
                Verdict::OverBudget
            }
            () => Verdict::Go,
        };
        if verdict != Verdict::Go {
            state.next_s = now_s + if verdict == Verdict::Busy { AGAIN_S } else { state.cool_down_s };
            return verdict;
        }
        state.next_s = now_s + seconds + state.rest_s;
        state.rest_s = (state.rest_s * 2.0).min(COOL_DOWN_MAX_S.max(state.cool_down_s));
        state.acted.push_back(now_s);
        state.was_told = false;
        if seconds > 0.0 {
            self.spent.push_back((now_s, seconds));
        }
        verdict
    }

    /// Whether it is still to be said that a rule holds and nothing could be armed. Once, until it acts or is quiet.
    pub fn tells(&mut self, rule: usize) -> bool {
        self.states.get_mut(rule).is_some_and(|state| !std::mem::replace(&mut state.was_told, true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acts(policy: &mut Policy, rule: usize, from: u32, until: u32, seconds: f64) -> Vec<u32> {
        (from..until)
            .filter(|t| {
                let now = f64::from(*t);
                policy.wants(rule, now) && policy.decide(rule, now, seconds, false) == Verdict::Go
            })
            .collect()
    }

    #[test]
    fn what_goes_on_holding_acts_less_and_less() {
        let mut policy = Policy::new([(60.0, 100)].into_iter(), 1e9);
        assert_eq!(acts(&mut policy, 0, 0, 3000, 3.0), [0, 63, 186, 429, 912, 1515, 2118, 2721]);
        // Quiet for ten minutes: from the beginning.
        assert_eq!(acts(&mut policy, 0, 4000, 4100, 3.0), [4000, 4063]);
    }

    #[test]
    fn limits_of_the_hour() {
        let mut policy = Policy::new([(1.0, 3), (1.0, 1000)].into_iter(), 30.0);
        assert_eq!(acts(&mut policy, 0, 0, 600, 1.0).len(), 3);
        // The rest of the budget, and no more until the hour is over.
        assert_eq!(acts(&mut policy, 1, 600, 3600, 3.0).len(), 9);
        assert_eq!(policy.decide(1, 3599.0, 3.0, false), Verdict::OverBudget);
        // What costs no probe has no budget.
        assert_eq!(policy.decide(1, 3599.0, 0.0, false), Verdict::Go);
        assert!(!acts(&mut policy, 1, 4300, 4400, 3.0).is_empty());
    }

    #[test]
    fn limits_of_the_hour_outlive_a_recorder() {
        let mut policy = Policy::new([(1.0, 3), (1.0, 1000)].into_iter(), 30.0);
        for (rule, at_s) in [(0, -4000.0), (0, -1800.0), (0, -900.0), (1, -60.0), (1, 1.0)] {
            policy.remember(rule, at_s, 0.0, 9.0);
        }
        // Once more of three times, and one second of thirty: three times nine are spent.
        assert_eq!(policy.decide(0, 10.0, 5.0, false), Verdict::OverBudget);
        assert_eq!(policy.decide(0, 20.0, 3.0, false), Verdict::Go);
        assert_eq!(policy.decide(0, 30.0, 0.0, false), Verdict::TooOften);
        // What was half an hour ago is not of this hour any more.
        assert_eq!(policy.decide(0, 1801.0, 3.0, false), Verdict::Go);
    }

    #[test]
    fn what_could_not_be_armed_is_told_once_and_asked_for_again() {
        let mut policy = Policy::new([(60.0, 10)].into_iter(), 100.0);
        assert!(policy.wants(0, 0.0));
        assert_eq!(policy.decide(0, 0.0, 3.0, true), Verdict::Busy);
        assert!(policy.tells(0) && !policy.tells(0));
        assert!(!policy.wants(0, 4.0) && policy.wants(0, 5.0));
        assert_eq!(policy.decide(0, 5.0, 3.0, false), Verdict::Go);
        assert!(policy.tells(0));
    }
}
