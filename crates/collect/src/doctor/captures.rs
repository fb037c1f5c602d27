//! Which armed probes this kernel and these privileges allow.

use super::{Ability, State};
use crate::capture::{Refused, check, cost_unavailable};
use crate::file::Root;

const NAME: &str = "on-demand probes (mitra capture)";

pub fn kinds(root: &Root, out: &mut Vec<Ability>) {
    if !root.is_host() {
        return;
    }
    let mut works = Vec::new();
    let mut parts = Vec::new();
    // Kinds that are refused for the same reason make one line.
    let mut refused: Vec<(String, bool, Vec<&str>)> = Vec::new();
    for checked in check() {
        let name = checked.kind.name;
        match checked.result {
            Ok(notes) => {
                works.push(name);
                parts.extend(notes.into_iter().map(|note| (name, note)));
            }
            Err(error) => {
                let is_privilege = matches!(error, Refused::Privilege(_));
                let why = match error {
                    Refused::Kernel { why, .. } if checked.kind.has_programs() => {
                        format!("{why}; it needs Linux {}", checked.kind.since)
                    }
                    other => other.to_string(),
                };
                match refused.iter_mut().find(|(known, ..)| *known == why) {
                    Some((_, _, names)) => names.push(name),
                    None => refused.push((why, is_privilege, vec![name])),
                }
            }
        }
    }
    let state = match (works.is_empty(), refused.is_empty()) {
        (true, _) => State::No,
        (false, true) => State::Yes,
        (false, false) => State::Degraded,
    };
    let why = if works.is_empty() { "none".to_owned() } else { works.join(", ") };
    out.push(Ability { state, ..Ability::yes(NAME, why) });
    for (number, (why, is_privilege, names)) in refused.into_iter().enumerate() {
        // Names of abilities are unique, and short enough for one line.
        let title = format!("on-demand probes, refused ({})", number + 1);
        let ability = Ability::no(&title, format!("{}: {why}", names.join(", ")));
        out.push(if is_privilege { ability.with_advice("run as root, or see privileges") } else { ability });
    }
    for (number, (name, note)) in parts.into_iter().enumerate() {
        let title = format!("on-demand {name}, part {}", number + 1);
        out.push(Ability { state: State::Degraded, ..Ability::no(&title, note) });
    }
    if let Some(why) = cost_unavailable() {
        let why = format!(
            "not measured ({why}; it needs cap_sys_admin): they end after as many events as keep to the budget"
        );
        out.push(Ability { state: State::Degraded, ..Ability::no("cost of on-demand probes", why) });
    }
}
