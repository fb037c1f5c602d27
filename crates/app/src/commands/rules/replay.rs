//! What a recorder would have done: the same rules, limits and budget, over a recording.
//!
//! The run time of commands is not known: each is assumed to end at once, so that none waits for
//! another.

use mitra_model::time::SECOND;
use mitra_model::{Frame, SeriesSet, Span, Stamp, Strings};
use mitra_rules::{Busy, Config, Details, News, Policy, Rule, Verdict, Watcher};

use crate::escalation::{Plan, probes};

/// Rules that hold more often are cut off.
const STRETCHES_MAX: usize = 100_000;

/// A stretch in which a rule held, and when it would have acted.
pub struct Stretch {
    /// Index of the rule.
    pub rule: usize,
    /// When it had held for long enough.
    pub fired: i64,
    /// The last moment at which it held.
    pub until: i64,
    /// The row, and the numbers when it fired.
    pub details: Details,
    pub acts: Vec<Act>,
    /// The command that would have been run, or why none.
    pub command: Option<Result<Vec<String>, String>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Act {
    pub at: i64,
    /// Whether it runs its probes.
    pub arms: bool,
    /// Whether it runs its command.
    pub runs: bool,
}

#[derive(Default)]
pub struct Tested {
    /// What each rule would have started.
    pub plans: Vec<Plan>,
    /// Ordered by time.
    pub stretches: Vec<Stretch>,
    /// Rules that cannot be evaluated, with the missing metrics.
    pub cannot_tell: Vec<(usize, Vec<&'static str>)>,
    /// Stretches beyond [`STRETCHES_MAX`].
    pub left_out: usize,
}

/// The limits of a recorder with this configuration.
struct Limits {
    policy: Policy,
    armed_until_s: f64,
}

impl Limits {
    fn new(config: &Config) -> Limits {
        let of_rules = config.rules.iter().map(|rule| (rule.cool_down_s, rule.per_hour));
        Limits { policy: Policy::new(of_rules, config.budget_s), armed_until_s: f64::NEG_INFINITY }
    }

    /// What a rule that holds does now. A rule that starts nothing is only recorded.
    fn act(&mut self, rule: usize, plan: &Plan, at: i64, now_s: f64) -> Option<Act> {
        if !self.policy.wants(rule, now_s) {
            return None;
        }
        let busy = Busy { probes: now_s < self.armed_until_s, command: false };
        let decision = self.policy.decide(rule, now_s, plan.wish(), busy);
        let [arms, goes] = [decision.probes, decision.command].map(|part| part == Some(Verdict::Go));
        if arms {
            self.armed_until_s = now_s + plan.seconds;
        }
        (arms || goes).then_some(Act { at, arms, runs: goes && plan.has_command })
    }
}

fn plans(config: &Config) -> Vec<Plan> {
    let probes = probes::all();
    let kinds: Vec<&str> = probes.iter().map(|(kind, _)| *kind).collect();
    config.rules.iter().map(|rule| Plan::of(rule, &kinds, config.arm)).collect()
}

/// Seconds that never go back, whatever is done to the wall clock.
#[derive(Default)]
struct Steady {
    last: Option<Stamp>,
    now_s: f64,
}

impl Steady {
    fn at(&mut self, time: Stamp) -> f64 {
        if let Some(last) = self.last.replace(time) {
            let of_one_boot = time.mono.saturating_sub(last.mono);
            // Between two boots only the wall clock goes on.
            let ns = if of_one_boot > 0 { of_one_boot } else { time.real.saturating_sub(last.real) };
            self.now_s += ns.max(0) as f64 * 1e-9;
        }
        self.now_s
    }
}

/// A recorder's evaluation, frame by frame.
pub struct Replay<'a> {
    rules: &'a [Rule],
    watcher: Watcher,
    limits: Limits,
    clock: Steady,
    /// For each rule the stretch that still holds.
    going_on: Vec<Option<usize>>,
    tested: Tested,
}

impl<'a> Replay<'a> {
    pub fn new(config: &'a Config, page_bytes: f64) -> Self {
        let programs = config
            .rules
            .iter()
            .map(|rule| (rule.program.clone(), rule.choice.as_ref().map(|(_, program)| program.clone())));
        Replay {
            rules: &config.rules,
            watcher: Watcher::new(programs.collect(), page_bytes),
            limits: Limits::new(config),
            clock: Steady::default(),
            going_on: vec![None; config.rules.len()],
            tested: Tested { plans: plans(config), ..Tested::default() },
        }
    }

    pub fn look(&mut self, frame: &Frame, strings: &Strings) {
        let (t, now_s) = (frame.time.real, self.clock.at(frame.time));
        let mut held = vec![false; self.rules.len()];
        let mut news = Vec::new();
        let (policy, going_on) = (&mut self.limits.policy, &self.going_on);
        let mut wants = |rule: usize| {
            if let Some(held) = held.get_mut(rule) {
                *held = true;
            }
            policy.wants(rule, now_s) | going_on.get(rule).is_some_and(Option::is_none)
        };
        self.watcher.observe(frame, strings, &mut wants, &mut |rule, one| news.push((rule, one)));
        for (number, one) in news {
            match one {
                News::CannotTell { missing } => self.tested.cannot_tell.push((number, missing)),
                News::Holds(details) => self.hold(number, details, t, now_s),
            }
        }
        for (stretch, held) in self.going_on.iter_mut().zip(held) {
            *stretch = stretch.filter(|_| held);
            if let Some(stretch) = stretch.and_then(|i| self.tested.stretches.get_mut(i)) {
                stretch.until = t;
            }
        }
    }

    fn hold(&mut self, number: usize, details: Details, t: i64, now_s: f64) {
        let tested = &mut self.tested;
        let parts = (self.rules.get(number), tested.plans.get(number), self.going_on.get_mut(number));
        let (Some(rule), Some(plan), Some(going_on)) = parts else { return };
        let act = self.limits.act(number, plan, t, now_s);
        if going_on.is_none() {
            if tested.stretches.len() >= STRETCHES_MAX {
                tested.left_out += 1;
                return;
            }
            *going_on = Some(tested.stretches.len());
            let command = plan.has_command.then(|| rule.argv(&details, t / SECOND));
            let stretch = Stretch { rule: number, fired: t, until: t, details, acts: Vec::new(), command };
            tested.stretches.push(stretch);
        }
        if let Some(stretch) = going_on.and_then(|i| tested.stretches.get_mut(i)) {
            stretch.acts.extend(act);
        }
    }

    pub fn finish(self) -> Tested {
        self.tested
    }
}

/// The same over other tools' output, which tells only when a stretch begins.
pub fn on_series(config: &Config, set: &SeriesSet) -> Tested {
    let mut tested = Tested { plans: plans(config), ..Tested::default() };
    for (number, rule) in config.rules.iter().enumerate() {
        let found = mitra_rules::series::replay(&rule.program, set, Span::ALL);
        // Missing metrics matter only if nothing was found without them.
        if found.stretches.is_empty() && !found.missing.is_empty() {
            tested.cannot_tell.push((number, found.missing));
        }
        tested.left_out += found.stretches.len().saturating_sub(STRETCHES_MAX);
        let has_command = tested.plans.get(number).is_some_and(|plan| plan.has_command);
        for found in found.stretches.into_iter().take(STRETCHES_MAX) {
            let command = has_command.then(|| rule.argv(&found.details, found.fired / SECOND));
            let mitra_rules::series::Stretch { fired, until, details } = found;
            tested.stretches.push(Stretch { rule: number, fired, until, details, acts: Vec::new(), command });
        }
    }
    tested.stretches.sort_by_key(|stretch| stretch.fired);
    let mut limits = Limits::new(config);
    for stretch in &mut tested.stretches {
        let Some(plan) = tested.plans.get(stretch.rule) else { continue };
        stretch.acts.extend(limits.act(stretch.rule, plan, stretch.fired, stretch.fired as f64 * 1e-9));
    }
    tested
}

#[cfg(test)]
mod tests {
    use mitra_model::column;

    use super::*;

    /// A configuration with one rule that always holds and runs something, and what a recorder does
    /// with it in so many seconds.
    fn acts(seconds: i64, change: impl FnOnce(&mut Config), clock: impl Fn(i64, &mut Stamp)) -> Vec<i64> {
        let mut rule = Rule::new("always", "mem.free > 0").unwrap();
        rule.command = vec!["/bin/true".to_owned()];
        (rule.cool_down_s, rule.per_hour) = (5.0, 3);
        let mut config = Config { rules: vec![rule], ..Config::default() };
        change(&mut config);
        let mut replay = Replay::new(&config, 4096.0);
        let (mut frame, strings) = (Frame::new(), Strings::new());
        frame.system_mut()[column("mem.free").unwrap()] = 1;
        for second in 0..seconds {
            let ns = second * SECOND;
            frame.time = Stamp { real: 1_790_000_000 * SECOND + ns, mono: ns, boot: ns };
            clock(second, &mut frame.time);
            replay.look(&frame, &strings);
        }
        let tested = replay.finish();
        let acts = tested.stretches.iter().flat_map(|stretch| &stretch.acts);
        acts.map(|act| act.at / SECOND - 1_790_000_000).collect()
    }

    #[test]
    fn it_rests_by_a_clock_that_does_not_go_back() {
        assert_eq!(acts(30, |_| {}, |_, _| {}), [0, 5, 15]);
        // Somebody sets the clock back by an hour: the rest is no longer for that.
        let set_back =
            |second: i64, time: &mut Stamp| time.real -= if second > 2 { 3600 * SECOND } else { 0 };
        assert_eq!(acts(30, |_| {}, set_back), [0, 5 - 3600, 15 - 3600]);
        // Another boot, three minutes later.
        let boots = |second: i64, time: &mut Stamp| {
            if second > 2 {
                (time.real, time.mono) = (time.real + 180 * SECOND, time.mono - 2 * SECOND);
            }
        };
        assert_eq!(acts(8, |_| {}, boots), [0, 183]);
    }

    #[test]
    fn what_starts_nothing_is_not_busy_and_what_is_forbidden_is_not_started() {
        let mut arms = Rule::new("arms", "mem.free > 0").unwrap();
        arms.arm.extend(mitra_rules::Probe::parse("offcpu"));
        (arms.seconds, arms.cool_down_s) = (20.0, 5.0);
        let rules = vec![arms, Rule::new("notes", "mem.free > 0").unwrap()];
        for (arm, seconds) in [(true, 20.0), (false, 0.0)] {
            let config = Config { rules: rules.clone(), arm, ..Config::default() };
            let plans = plans(&config);
            assert_eq!(plans[0].seconds, seconds);
            let mut limits = Limits::new(&config);
            for rule in [0, 1] {
                let act = limits.act(rule, &plans[rule], 7, rule as f64).unwrap();
                let arms = arm && rule == 0;
                assert_eq!(act, Act { at: 7, arms, runs: false }, "{rule}");
            }
        }
        // The budget is the file's, and is none of commands.
        let mut limits = Limits::new(&Config { rules, budget_s: 10.0, ..Config::default() });
        let plan = |has_command| Plan { probes: vec!["offcpu".to_owned()], seconds: 20.0, has_command };
        assert_eq!(limits.act(0, &plan(false), 0, 0.0), None);
        assert_eq!(limits.act(1, &plan(true), 0, 0.0), Some(Act { at: 0, arms: false, runs: true }));
    }

    #[test]
    fn a_command_waits_for_no_probes() {
        let rules: Vec<Rule> = ["a", "b"].map(|name| Rule::new(name, "mem.free > 0").unwrap()).into();
        let mut limits = Limits::new(&Config { rules, ..Config::default() });
        let plan = |seconds: f64| {
            let probes = if seconds > 0.0 { vec!["offcpu".to_owned()] } else { Vec::new() };
            Plan { probes, seconds, has_command: true }
        };
        let act = |arms| Some(Act { at: 0, arms, runs: true });
        assert_eq!(limits.act(0, &plan(20.0), 0, 0.0), act(true));
        assert_eq!(limits.act(1, &plan(20.0), 0, 1.0), act(false));
        let mut limits = Limits::new(&crate::escalation::settings::builtin());
        assert_eq!(limits.act(0, &plan(20.0), 0, 0.0), act(true));
        assert_eq!(limits.act(1, &plan(0.0), 0, 1.0), act(false));
    }
}
