//! How often what holds may act: probes cost, and a disease that lasts needs no probe every second.
//!
//! Probes and the command of a rule are decided each by itself: a command that takes minutes keeps nobody from arming, and
//! a budget of probes that is used up keeps no command from running.

use std::collections::VecDeque;

/// A rule that goes on holding acts again after its cool-down, then after twice that, and so on up to this, or to the
/// cool-down itself where that is longer.
const COOL_DOWN_MAX_S: f64 = 600.0;
/// A rule that has not held for so long begins anew.
const QUIET_S: f64 = 600.0;
/// Seconds of armed probes in an hour, of all rules together: a twentieth of the time.
pub const BUDGET_S: f64 = 180.0;
const HOUR_S: f64 = 3600.0;
/// What could not be started because another was running is asked for again after this.
const AGAIN_S: f64 = 5.0;
/// Entries of the budget: more sets than this cannot be armed in an hour.
const SPENT_MAX: usize = 4096;
/// Of an hour's time so much may be taken by what somebody asks for: whoever asks all the time does not blind the rules.
const ASKED_SHARE: f64 = 0.5;

/// What may be done about a rule that holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Act.
    Go,
    /// Something else of the kind is going on.
    Busy,
    /// All probes together have been armed for long enough in this hour.
    OverBudget,
    /// It has acted often enough in this hour.
    TooOften,
}

impl Verdict {
    /// Why no probe is armed.
    #[must_use]
    pub fn why_no_probes(self) -> &'static str {
        match self {
            Verdict::Go => "",
            Verdict::Busy => "other probes are running",
            Verdict::OverBudget => "probes have used up their time in this hour",
            Verdict::TooOften => "the rule has run probes often enough in this hour",
        }
    }

    /// Why no command is run.
    #[must_use]
    pub fn why_no_command(self) -> &'static str {
        match self {
            Verdict::Busy => "another command is running",
            Verdict::TooOften => "it has been run often enough in this hour",
            // Commands have no budget.
            Verdict::Go | Verdict::OverBudget => "",
        }
    }
}

/// What a rule would start.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Wish {
    /// Seconds of armed probes; 0 where it arms none.
    pub seconds: f64,
    /// Whether it runs a command.
    pub has_command: bool,
}

/// What is going on already.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Busy {
    /// Probes are armed.
    pub probes: bool,
    /// A command is running.
    pub command: bool,
}

/// What becomes of a wish. None of a part that is not wished for, that rests, or that was refused before and is again: a
/// refusal is told once, until the part acts or the rule is quiet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Decision {
    /// Of the probes.
    pub probes: Option<Verdict>,
    /// Of the command, or of the word of a rule that starts nothing.
    pub command: Option<Verdict>,
}

/// The probes of a rule, or its command.
#[derive(Debug, Clone)]
struct Part {
    is_wished: bool,
    /// The next rest.
    rest_s: f64,
    /// Not before.
    next_s: f64,
    acted: VecDeque<f64>,
    /// Whether it was said that it could not be started.
    was_told: bool,
}

impl Part {
    fn new(cool_down_s: f64) -> Part {
        Part {
            is_wished: true,
            rest_s: cool_down_s,
            next_s: f64::NEG_INFINITY,
            acted: VecDeque::new(),
            was_told: false,
        }
    }

    fn remember(&mut self, at_s: f64, per_hour: u32) {
        if self.acted.len() < per_hour as usize {
            self.acted.push_back(at_s);
        }
    }

    fn decide(&mut self, now_s: f64, limits: Limits, is_busy: bool, has_budget: bool) -> Option<Verdict> {
        if !self.is_wished || now_s < self.next_s {
            return None;
        }
        while self.acted.front().is_some_and(|at| now_s - at >= HOUR_S) {
            self.acted.pop_front();
        }
        let verdict = match () {
            () if is_busy => Verdict::Busy,
            () if self.acted.len() >= limits.per_hour as usize => Verdict::TooOften,
            () if !has_budget => Verdict::OverBudget,
            () => {
                self.acted.push_back(now_s);
                self.was_told = false;
                return Some(Verdict::Go);
            }
        };
        self.next_s = now_s + if verdict == Verdict::Busy { AGAIN_S } else { limits.cool_down_s };
        (!std::mem::replace(&mut self.was_told, true)).then_some(verdict)
    }

    fn rest(&mut self, from_s: f64, limits: Limits) {
        self.next_s = from_s + self.rest_s;
        self.rest_s = (self.rest_s * 2.0).min(COOL_DOWN_MAX_S.max(limits.cool_down_s));
    }
}

#[derive(Debug, Clone, Copy)]
struct Limits {
    cool_down_s: f64,
    per_hour: u32,
}

/// One rule.
#[derive(Debug, Clone)]
struct State {
    limits: Limits,
    probes: Part,
    command: Part,
    last_held_s: f64,
}

/// Probes that were armed.
#[derive(Debug)]
struct Spent {
    at_s: f64,
    seconds: f64,
    /// Somebody asked for them, and no rule.
    is_asked: bool,
}

/// Cool-downs, limits and the budget. Time is seconds of any clock that does not go back.
#[derive(Debug)]
pub struct Policy {
    states: Vec<State>,
    budget_s: f64,
    spent: VecDeque<Spent>,
}

impl Policy {
    /// For rules with these cool-downs and limits per hour.
    #[must_use]
    pub fn new(rules: impl Iterator<Item = (f64, u32)>, budget_s: f64) -> Policy {
        let state = |(cool_down_s, per_hour)| State {
            limits: Limits { cool_down_s, per_hour },
            probes: Part::new(cool_down_s),
            command: Part::new(cool_down_s),
            last_held_s: f64::NEG_INFINITY,
        };
        Policy { states: rules.map(state).collect(), budget_s, spent: VecDeque::new() }
    }

    /// Counts what a recorder before this one started within the hour before `now_s`, so that one that ends and begins again
    /// and again keeps to the limits as well. To be told in the order of time.
    pub fn remember(&mut self, rule: usize, at_s: f64, now_s: f64, started: Wish) {
        let is_of_the_hour = (0.0..HOUR_S).contains(&(now_s - at_s));
        let Some(state) = self.states.get_mut(rule).filter(|_| is_of_the_hour) else { return };
        if started.has_command {
            state.command.remember(at_s, state.limits.per_hour);
        }
        if started.seconds > 0.0 {
            state.probes.remember(at_s, state.limits.per_hour);
            if self.spent.len() < SPENT_MAX {
                self.spent.push_back(Spent { at_s, seconds: started.seconds, is_asked: false });
            }
        }
    }

    /// Whether a rule that holds now is to be looked at. Told in every sample.
    pub fn wants(&mut self, rule: usize, now_s: f64) -> bool {
        let Some(state) = self.states.get_mut(rule) else { return false };
        let is_new = now_s - state.last_held_s > QUIET_S;
        state.last_held_s = now_s;
        let mut wants = false;
        for part in [&mut state.probes, &mut state.command] {
            if is_new {
                part.rest_s = state.limits.cool_down_s;
                part.was_told = false;
            }
            wants |= part.is_wished && now_s >= part.next_s;
        }
        wants
    }

    /// Whether there is time left in this hour.
    fn has_budget(&mut self, now_s: f64, seconds: f64) -> bool {
        while self.spent.front().is_some_and(|spent| now_s - spent.at_s >= HOUR_S) {
            self.spent.pop_front();
        }
        let spent: f64 = self.spent.iter().map(|spent| spent.seconds).sum();
        spent + seconds <= self.budget_s && self.spent.len() < SPENT_MAX
    }

    /// Whether probes may be armed that somebody asks for: half of the time of an hour is the rules' alone. The answer is remembered.
    pub fn ask(&mut self, now_s: f64, seconds: f64, is_busy: bool) -> Verdict {
        if is_busy {
            return Verdict::Busy;
        }
        let has_budget = self.has_budget(now_s, seconds);
        let asked: f64 = self.spent.iter().filter(|spent| spent.is_asked).map(|spent| spent.seconds).sum();
        if !has_budget || asked + seconds > ASKED_SHARE * self.budget_s {
            return Verdict::OverBudget;
        }
        self.spent.push_back(Spent { at_s: now_s, seconds, is_asked: true });
        Verdict::Go
    }

    /// Counts probes that were asked for within the hour before `now_s`, see [`Policy::remember`].
    pub fn remember_asked(&mut self, at_s: f64, now_s: f64, seconds: f64) {
        if (0.0..HOUR_S).contains(&(now_s - at_s)) && self.spent.len() < SPENT_MAX {
            self.spent.push_back(Spent { at_s, seconds, is_asked: true });
        }
    }

    /// Whether the parts of a rule may act. The answer is remembered.
    pub fn decide(&mut self, rule: usize, now_s: f64, wish: Wish, busy: Busy) -> Decision {
        let has_budget = self.has_budget(now_s, wish.seconds);
        let Some(State { limits, probes, command, .. }) = self.states.get_mut(rule) else {
            return Decision::default();
        };
        let limits = *limits;
        probes.is_wished = wish.seconds > 0.0;
        // A rule that starts nothing is told as often as a command would be run, and is in nobody's way.
        command.is_wished = wish.has_command || !probes.is_wished;
        let decision = Decision {
            probes: probes.decide(now_s, limits, busy.probes, has_budget),
            command: command.decide(now_s, limits, busy.command && wish.has_command, true),
        };
        let goes = |verdict: Option<Verdict>| verdict == Some(Verdict::Go);
        let armed_s = if goes(decision.probes) { wish.seconds } else { 0.0 };
        // What was started together is started together again.
        if goes(decision.probes) {
            probes.rest(now_s + armed_s, limits);
            self.spent.push_back(Spent { at_s: now_s, seconds: armed_s, is_asked: false });
        }
        if goes(decision.command) {
            command.rest(now_s + armed_s, limits);
        }
        decision
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FREE: Busy = Busy { probes: false, command: false };

    fn probes(seconds: f64) -> Wish {
        Wish { seconds, has_command: false }
    }

    #[test]
    fn who_asks_shares_the_time_of_the_rules() {
        let mut policy = Policy::new(std::iter::once((60.0, 6)), 20.0);
        assert_eq!(policy.decide(0, 0.0, probes(5.0), FREE).probes, Some(Verdict::Go));
        assert_eq!(policy.ask(1.0, 10.0, true), Verdict::Busy);
        assert_eq!(policy.ask(2.0, 10.0, false), Verdict::Go);
        assert_eq!(policy.ask(3.0, 10.0, false), Verdict::OverBudget);
        assert_eq!(policy.ask(4.0, 1.0, false), Verdict::OverBudget, "the other half is that of the rules");
        assert_eq!(policy.decide(0, 100.0, probes(5.0), FREE).probes, Some(Verdict::Go));
        assert_eq!(policy.decide(0, 2000.0, probes(5.0), FREE).probes, Some(Verdict::OverBudget));
        assert_eq!(policy.ask(3603.0, 5.0, false), Verdict::Go, "the first ones are an hour ago");
        let mut anew = Policy::new(std::iter::once((60.0, 6)), 20.0);
        anew.remember_asked(10.0, 20.0, 8.0);
        anew.remember_asked(-4000.0, 20.0, 18.0);
        assert_eq!(
            (anew.ask(21.0, 5.0, false), anew.ask(21.0, 2.0, false)),
            (Verdict::OverBudget, Verdict::Go)
        );
    }

    fn acts(policy: &mut Policy, rule: usize, from: u32, until: u32, seconds: f64) -> Vec<u32> {
        (from..until)
            .filter(|t| {
                let now = f64::from(*t);
                let wants = policy.wants(rule, now);
                wants && policy.decide(rule, now, probes(seconds), FREE).probes == Some(Verdict::Go)
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
        let mut policy = Policy::new([(1.0, 3), (1.0, 1000), (1.0, 1000)].into_iter(), 30.0);
        assert_eq!(acts(&mut policy, 0, 0, 600, 1.0).len(), 3);
        // The rest of the budget, and no more until the hour is over.
        assert_eq!(acts(&mut policy, 1, 600, 3600, 3.0).len(), 9);
        // What costs no probe has no budget.
        let both = Wish { seconds: 3.0, has_command: true };
        let decision = policy.decide(2, 3599.0, both, FREE);
        assert_eq!((decision.probes, decision.command), (Some(Verdict::OverBudget), Some(Verdict::Go)));
        assert!(!acts(&mut policy, 1, 4300, 4400, 3.0).is_empty());
    }

    #[test]
    fn limits_of_the_hour_outlive_a_recorder() {
        let mut policy = Policy::new([(1.0, 3), (1.0, 1000)].into_iter(), 30.0);
        for (rule, at_s) in [(0, -4000.0), (0, -1800.0), (0, -900.0), (1, -60.0), (1, 1.0)] {
            policy.remember(rule, at_s, 0.0, probes(9.0));
        }
        // Once more of three times, and three seconds of thirty: three times nine are spent.
        assert_eq!(policy.decide(0, 10.0, probes(5.0), FREE).probes, Some(Verdict::OverBudget));
        assert_eq!(policy.decide(0, 20.0, probes(3.0), FREE).probes, Some(Verdict::Go));
        assert_eq!(policy.decide(0, 30.0, probes(3.0), FREE).probes, Some(Verdict::TooOften));
        // What was half an hour ago is not of this hour any more.
        assert_eq!(policy.decide(0, 1801.0, probes(3.0), FREE).probes, Some(Verdict::Go));
        // Commands are counted by themselves.
        let command = Wish { seconds: 0.0, has_command: true };
        (0..3).for_each(|_| policy.remember(0, 1790.0, 1801.0, command));
        assert_eq!(policy.decide(0, 1900.0, command, FREE).command, Some(Verdict::TooOften));
    }

    #[test]
    fn what_could_not_be_armed_is_told_once_and_asked_for_again() {
        let mut policy = Policy::new([(60.0, 10)].into_iter(), 100.0);
        let busy = Busy { probes: true, command: false };
        assert!(policy.wants(0, 0.0));
        assert_eq!(policy.decide(0, 0.0, probes(3.0), busy).probes, Some(Verdict::Busy));
        assert!(!policy.wants(0, 4.0) && policy.wants(0, 5.0));
        assert_eq!(policy.decide(0, 5.0, probes(3.0), busy), Decision::default());
        assert_eq!(policy.decide(0, 10.0, probes(3.0), FREE).probes, Some(Verdict::Go));
        assert!(policy.wants(0, 73.0));
        assert_eq!(policy.decide(0, 73.0, probes(3.0), busy).probes, Some(Verdict::Busy));
    }

    #[test]
    fn a_command_and_probes_are_in_nobodys_way_but_their_own() {
        let mut policy = Policy::new([(60.0, 10), (60.0, 10), (60.0, 10)].into_iter(), 100.0);
        let both = Wish { seconds: 3.0, has_command: true };
        let running = Busy { probes: false, command: true };
        let decision = policy.decide(0, 0.0, both, running);
        assert_eq!((decision.probes, decision.command), (Some(Verdict::Go), Some(Verdict::Busy)));
        assert_eq!(policy.decide(1, 0.0, probes(3.0), running).probes, Some(Verdict::Go));
        // The command follows as soon as it may, and the probes rest.
        assert!(policy.wants(0, 5.0));
        let decision = policy.decide(0, 5.0, both, FREE);
        assert_eq!((decision.probes, decision.command), (None, Some(Verdict::Go)));
        // What starts nothing is never busy.
        let all = Busy { probes: true, command: true };
        assert_eq!(policy.decide(2, 0.0, Wish::default(), all).command, Some(Verdict::Go));
        assert!(!policy.wants(2, 59.0) && policy.wants(2, 60.0));
    }

    #[test]
    fn what_starts_together_goes_on_together() {
        let mut policy = Policy::new([(60.0, 100)].into_iter(), 1e9);
        let both = Wish { seconds: 3.0, has_command: true };
        let mut went = Vec::new();
        for now in 0..500 {
            let now = f64::from(now);
            let decision = if policy.wants(0, now) { policy.decide(0, now, both, FREE) } else { continue };
            assert_eq!(decision.probes, decision.command);
            went.push(now);
        }
        assert_eq!(went, [0.0, 63.0, 186.0, 429.0]);
    }
}
