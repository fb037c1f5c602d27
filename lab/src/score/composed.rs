//! Two incidents at once: which of them took more is found by taking each of them away.
//!
//! What comes back when one is taken away is all that was lost without what is lost to the other one alone. So the one that takes more
//! from its victims when it is alone is the larger one. It has to be run alone with the same seed, which makes the same trouble
//! (`mitra-lab pairs --alone`).

use super::Judged;
use crate::record::{ActRecord, Kind, Record};
use crate::stage::VictimLatency;

/// Neither is larger where they differ by less than so much of a victim's time: two runs of the same differ by as much.
const ALIKE: f64 = 0.1;

/// The share of a victim's time that the trouble took.
fn taken(victim: &VictimLatency) -> f64 {
    let (before, during) = (&victim.before, &victim.during);
    let done = if during.per_s > 0.0 { 1.0 - during.errors_per_s / during.per_s } else { 0.0 };
    let as_fast = if during.mean_us > 0.0 { (before.mean_us / during.mean_us).min(1.0) } else { 1.0 };
    1.0 - (done * as_fast).clamp(0.0, 1.0)
}

fn taken_by(act: &ActRecord) -> f64 {
    act.victims.iter().map(taken).sum()
}

/// The place of the larger incident of a pair among its acts. `None`: they are alike, or one was not made alone.
pub fn larger(pair: &Record, all: &[Judged]) -> Option<usize> {
    let alone = |act: &ActRecord| {
        let is_it = |r: &&Judged| {
            let Record { kind, seed, state, acts, .. } = &r.record;
            *kind == Kind::Incident
                && *seed == pair.seed
                && state.is_judged()
                && acts.iter().any(|one| one.name == act.name && one.form == act.form)
        };
        all.iter().find(is_it).map(|r| r.record.acts.iter().map(taken_by).sum::<f64>())
    };
    let [first, second] = pair.acts.as_slice() else { return None };
    let (first, second) = (alone(first)?, alone(second)?);
    ((first - second).abs() >= ALIKE).then(|| usize::from(second > first))
}

#[cfg(test)]
mod tests {
    use super::taken;
    use crate::roles::Latency;
    use crate::stage::VictimLatency;

    #[test]
    fn what_fails_and_what_is_late_is_taken() {
        let of = |mean_us, errors_per_s| Latency { mean_us, max_us: mean_us, per_s: 100.0, errors_per_s };
        let taken = |during| taken(&VictimLatency { victim: "v".into(), before: of(10.0, 0.0), during });
        assert_eq!([taken(of(10.0, 0.0)), taken(of(5.0, 0.0)), taken(of(10.0, 25.0))], [0.0, 0.0, 0.25]);
        assert!((taken(of(40.0, 50.0)) - 0.875).abs() < 1e-9);
    }
}
