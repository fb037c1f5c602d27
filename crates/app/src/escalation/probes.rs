//! Probes as rules name them: the kinds, their options, and the request for each.

use std::time::Duration;

use mitra_collect::capture::{Request, kind, kinds};
use mitra_model::capture::heap;
use mitra_rules::Probe;

use crate::values::time::duration;

/// Only uninterruptible waits. An option without a value.
const D_ONLY: &str = "d-only";
/// Only what lasts at least this long.
const MIN: &str = "min";

/// The kinds of probes with the options that a rule may set. `pid-of` selects the process.
pub fn all() -> Vec<(&'static str, Vec<&'static str>)> {
    let options = |kind: &mitra_collect::capture::Kind| {
        let filters = [D_ONLY, MIN].into_iter().filter(|name| kind.filters.contains(name));
        filters.chain(kind.options.iter().map(|(name, _)| *name)).collect()
    };
    let own = [(heap::KIND, Vec::new())];
    kinds().iter().map(|kind| (kind.name, options(kind))).chain(own).collect()
}

/// Why no machine can run this probe. `is_of_pid` tells whether the rule selects a process.
pub fn check(probe: &Probe, is_of_pid: bool) -> Result<(), String> {
    usual(probe)?;
    if is_of_one_process(&probe.kind) && !is_of_pid {
        return Err(format!("{} is of one process: say which by pid-of", probe.kind));
    }
    by_kind(probe, is_of_pid)
}

fn is_of_one_process(name: &str) -> bool {
    name == heap::KIND || kind(name).is_some_and(|kind| kind.one_process)
}

/// The options of all kinds, and the form of the others.
fn usual(probe: &Probe) -> Result<(Duration, bool), String> {
    let (mut min, mut d_only) = (Duration::ZERO, false);
    for (name, value) in &probe.options {
        match (name.as_str(), value) {
            (D_ONLY, None) => d_only = true,
            (D_ONLY, Some(_)) => return Err(format!("{D_ONLY} has no value")),
            (MIN, Some(value)) => min = duration(value).map_err(|why| format!("{MIN}={value}: {why}"))?,
            (MIN, None) => return Err(format!("{MIN} wants a value: {MIN}=1ms")),
            (_, Some(_)) => {}
            (name, None) => return Err(format!("{name} wants a value: {name}=…")),
        }
    }
    Ok((min, d_only))
}

/// Asks the kind whether its options are valid. The process is known only when the probe runs.
fn by_kind(probe: &Probe, is_of_pid: bool) -> Result<(), String> {
    let mut request = request(probe, 1.0, "")?;
    request.pid = Some(std::process::id());
    let Some(kind) = kind(&probe.kind) else { return Ok(()) };
    if is_of_pid && !kind.filters.contains(&"pid") {
        return Err(format!("{} is of the whole machine and of no process: leave out pid-of", probe.kind));
    }
    kind.check(&request)
}

/// The request for a probe, of all processes.
pub fn request(probe: &Probe, seconds: f64, why: &str) -> Result<Request, String> {
    let mut request = Request::new(&probe.kind, seconds, why);
    (request.min, request.d_only) = usual(probe)?;
    let own = probe.options.iter().filter(|(name, _)| ![D_ONLY, MIN].contains(&name.as_str()));
    request.options.extend(own.map(|(name, value)| (name.clone(), value.clone().unwrap_or_default())));
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str, is_of_pid: bool) -> String {
        check(&Probe::parse(text).unwrap(), is_of_pid).err().unwrap_or_default()
    }

    #[test]
    fn what_no_machine_can_arm_is_told() {
        for (text, says) in [
            ("offcpu min=5sec", "min=5sec: not a length of time"),
            ("offcpu min=", "not a length of time"),
            ("offcpu min", "min wants a value"),
            ("offcpu d-only=yes", "d-only has no value"),
            ("faults every", "every wants a value"),
            ("trace calls=5", "trace is of one process: say which by pid-of"),
            ("heap", "heap is of one process: say which by pid-of"),
        ] {
            assert!(said(text, false).contains(says), "{text}: {}", said(text, false));
        }
        for text in ["offcpu", "offcpu --d-only min=1ms", "oncpu min=1m30s", "faults every=7"] {
            assert_eq!(said(text, false), "", "{text}");
        }
        assert_eq!(said("trace calls=5", true), "");
        assert!(
            said("interrupts", true).contains("leave out pid-of") && said("interrupts", false).is_empty()
        );
    }

    #[test]
    fn kinds_look_at_their_own_options() {
        for text in ["faults every=0", "faults every=x", "trace calls=0", "trace calls=1e9"] {
            assert!(said(text, true).contains("a number from 1 to"), "{text}: {}", said(text, true));
        }
        let probe = Probe::parse("faults d-only min=2ms every=7").unwrap();
        let request = request(&probe, 3.0, "a test").unwrap();
        assert_eq!((request.min, request.d_only, request.seconds), (Duration::from_millis(2), true, 3.0));
        assert_eq!(request.options.into_iter().collect::<Vec<_>>(), [("every".to_owned(), "7".to_owned())]);
    }
}
