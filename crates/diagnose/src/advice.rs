//! What to do and what to measure: texts in which `{pid}`, `{device}` and `{path:/}` stand for those of the culprit, the last
//! one with what is said where it is not known.

use std::borrow::Cow;

use mitra_model::report::{Culprit, Next, Remedy};

use crate::words;

/// Something to do about it.
#[derive(Debug, Clone, Copy)]
pub struct Advice {
    /// What.
    pub action: &'static str,
    /// By which command.
    pub command: &'static str,
    /// How to see that it helped.
    pub verify: &'static str,
    /// What may go wrong.
    pub risk: &'static str,
}

/// Something to measure.
#[derive(Debug, Clone, Copy)]
pub struct Measure {
    /// What.
    pub what: &'static str,
    /// By which command.
    pub command: &'static str,
}

/// Something to measure, and the command.
#[must_use]
pub const fn measure(what: &'static str, command: &'static str) -> Measure {
    Measure { what, command }
}

/// A command with the names of the culprit in it, each of them a word of the shell.
fn fill_command(text: &str, culprit: &Culprit) -> String {
    // Commands want the path.
    let mut quoted = Culprit { cgroup_name: None, ..culprit.clone() };
    let names = [
        &mut quoted.address,
        &mut quoted.cgroup,
        &mut quoted.device,
        &mut quoted.library,
        &mut quoted.nic,
        &mut quoted.path,
        &mut quoted.process,
        &mut quoted.slab,
    ];
    for name in names.into_iter().flatten() {
        *name = words::shell(name).into_owned();
    }
    // The root's files are in the folder itself.
    fill(text, &quoted).replace("/sys/fs/cgroup//", "/sys/fs/cgroup/")
}

/// A text with the names of the culprit in it.
fn fill(text: &str, culprit: &Culprit) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        out.push_str(before);
        let name = after.split_once('}').and_then(|(name, rest)| Some((named(name, culprit)?, rest)));
        if let Some((name, after)) = name {
            out.push_str(&name);
            rest = after;
        } else {
            out.push('{');
            rest = after;
        }
    }
    out + rest
}

/// What stands in a text for a name and what else is said where it is not known; `None` of what is no such name.
fn named<'a>(name: &'a str, culprit: &'a Culprit) -> Option<Cow<'a, str>> {
    let (field, otherwise) = match name {
        "pid" => return Some(culprit.pid.map_or("PID".into(), |pid| pid.to_string().into())),
        "device" => ("device", "DEVICE"),
        _ => name.split_once(':')?,
    };
    let known = match field {
        "address" => &culprit.address,
        "cgroup" if culprit.cgroup_name.is_some() => &culprit.cgroup_name,
        "cgroup" => &culprit.cgroup,
        "device" => &culprit.device,
        "library" => &culprit.library,
        "nic" => &culprit.nic,
        "path" => &culprit.path,
        "process" => &culprit.process,
        "slab" => &culprit.slab,
        _ => return None,
    };
    Some(known.as_deref().unwrap_or(otherwise).into())
}

impl Advice {
    /// For a culprit.
    #[must_use]
    pub fn of(&self, culprit: &Culprit) -> Remedy {
        Remedy {
            action: fill(self.action, culprit),
            command: fill_command(self.command, culprit),
            verify: fill_command(self.verify, culprit),
            risk: fill(self.risk, culprit),
        }
    }
}

impl Measure {
    /// For a culprit.
    #[must_use]
    pub fn of(&self, culprit: &Culprit) -> Next {
        to_measure(fill(self.what, culprit), fill_command(self.command, culprit))
    }
}

/// Something to measure that depends on the finding.
#[must_use]
pub fn to_measure(measure: impl Into<String>, command: impl Into<String>) -> Next {
    Next { measure: measure.into(), command: command.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_culprit_are_filled_in_and_nothing_else() {
        let text = "{pid} of {process:the program} on {device}: awk '{print $2}' {path:/}{";
        let culprit = Culprit { pid: Some(7), process: Some("dd {pid}".to_owned()), ..Culprit::default() };
        assert_eq!(fill(text, &culprit), "7 of dd {pid} on DEVICE: awk '{print $2}' /{");
        assert_eq!(fill(text, &Culprit::default()), "PID of the program on DEVICE: awk '{print $2}' /{");
    }
}
