//! What a rule starts when it holds: the same for a recorder and for who wants to know what one would have done.

use mitra_rules::{Rule, Wish};

/// What a rule starts.
pub struct Plan {
    /// The probes that can be armed, with their options.
    pub probes: Vec<String>,
    /// For how long; 0 without any.
    pub seconds: f64,
    /// Whether its command is run.
    pub has_command: bool,
}

impl Plan {
    /// What is left of a rule's wishes where there are only these kinds of probes, and nothing at all unless `can_act`.
    pub fn of(rule: &Rule, kinds: &[&str], can_act: bool) -> Plan {
        let known = rule.arm.iter().filter(|probe| can_act && kinds.contains(&probe.kind.as_str()));
        let probes: Vec<String> = known.map(ToString::to_string).collect();
        let seconds = if probes.is_empty() { 0.0 } else { rule.seconds };
        Plan { probes, seconds, has_command: can_act && !rule.command.is_empty() }
    }

    /// For whoever decides whether it may.
    pub fn wish(&self) -> Wish {
        Wish { seconds: self.seconds, has_command: self.has_command }
    }
}
