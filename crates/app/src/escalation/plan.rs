//! What a rule starts when it holds, for the recorder and for `mitra rules test`.

use mitra_rules::{Rule, Wish};

pub struct Plan {
    /// The available probes, with their options.
    pub probes: Vec<String>,
    /// Run time of the probes; 0 without any.
    pub seconds: f64,
    /// Whether its command runs.
    pub has_command: bool,
}

impl Plan {
    /// What is left of a rule with these kinds of probes; nothing unless `can_act`.
    pub fn of(rule: &Rule, kinds: &[&str], can_act: bool) -> Plan {
        let known = rule.arm.iter().filter(|probe| can_act && kinds.contains(&probe.kind.as_str()));
        let probes: Vec<String> = known.map(ToString::to_string).collect();
        let seconds = if probes.is_empty() { 0.0 } else { rule.seconds };
        Plan { probes, seconds, has_command: can_act && !rule.command.is_empty() }
    }

    /// For the policy.
    pub fn wish(&self) -> Wish {
        Wish { seconds: self.seconds, has_command: self.has_command }
    }
}
