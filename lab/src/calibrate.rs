//! `mitra-lab calibrate`: how often a verdict of a given strength is right.
//!
//! The laboratory has few wrong verdicts, and hardly any of little strength. So each run is also
//! explained with evidence taken out, see [`crate::weaken`]; what happened stays the same. A weakened
//! recording is not a weak incident: it tells how verdicts fare where less can be seen.
//!
//! The strengths are put in order, and neighbours are pooled until the share of right ones never
//! falls (isotonic regression). Each pool has one verdict that is right and one that is wrong added to it
//! (Laplace), so that no strength is certain. The check is out of sample: without recordings for a test, what is said of an incident comes from
//! a fit on other incidents, all seeds, forms and weakened recordings of it left out.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::Context;
use serde::{Deserialize, Serialize};

use crate::draw::Draw;
use crate::machine;
use crate::recorder::Mitra;
use crate::score::{Bin, binned, told};
use crate::stored::{Stored, with_each};
use crate::weaken::{Withheld, weaken};

/// One verdict of one report.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sample {
    /// The run.
    pub key: String,
    /// What was taken out of its recording.
    pub withheld: String,
    /// The root that was told.
    pub root: String,
    /// How strong it is said to be.
    pub strength: f64,
    /// Whether it is right.
    pub right: bool,
    /// The report says that the cause was not found: how sure it is of the symptom is a number of its own, and not fitted.
    pub unexplained: bool,
}

/// What is said of each run, whole and with evidence taken out.
pub fn samples(stored: &[Stored], mitra: &Mitra) -> anyhow::Result<Vec<Sample>> {
    let work: Vec<(&Stored, Withheld)> =
        stored.iter().flat_map(|s| Withheld::ALL.map(|withheld| (s, withheld))).collect();
    let base = machine::base_dir().join(format!("mitra-lab-calibrate-{}", std::process::id()));
    let done = with_each(&work, |(stored, withheld)| {
        let dir = base.join(format!("{}-{withheld:?}", stored.record.key));
        let said = one(stored, *withheld, mitra, &dir);
        _ = fs::remove_dir_all(&dir);
        said.with_context(|| format!("{} {withheld:?}", stored.record.key))
    });
    _ = fs::remove_dir_all(&base);
    Ok(done.into_iter().collect::<anyhow::Result<Vec<_>>>()?.concat())
}

fn one(stored: &Stored, withheld: Withheld, mitra: &Mitra, dir: &Path) -> anyhow::Result<Vec<Sample>> {
    let record = &stored.record;
    fs::create_dir_all(dir)?;
    let archive = dir.join("archive");
    weaken(record, &stored.archive, &archive, withheld)?;
    let (since_s, until_s) = withheld.window(record);
    let at = |s: f64| UNIX_EPOCH + Duration::from_secs_f64(s.max(0.0));
    let report = mitra.report(&archive, dir, at(since_s), at(until_s)).map_err(|e| anyhow::anyhow!("{e}"))?;
    let sample = |one: crate::score::Told| Sample {
        key: record.key.clone(),
        withheld: format!("{withheld:?}"),
        root: one.root,
        strength: one.strength,
        right: one.right,
        unexplained: one.unexplained,
    };
    Ok(told(record, &report).into_iter().map(sample).collect())
}

/// Pools have at least so many verdicts: a step of the table is seen to be one.
const POOL_MIN: usize = 25;
/// Incidents are left out in so many groups.
const FOLDS: u64 = 10;
/// Where a logarithm would be infinite.
const NEVER: f64 = 1e-6;

/// Of verdicts of this strength so many are right.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Knot {
    /// The mean strength of the pool.
    pub strength: f64,
    /// The share of right ones, 0 to 1, both excluded.
    pub right: f64,
}

#[derive(Clone, Copy)]
struct Pool {
    strengths: f64,
    right: f64,
    verdicts: f64,
}

impl Pool {
    fn share(self) -> f64 {
        (self.right + 1.0) / (self.verdicts + 2.0)
    }

    fn with(self, other: Self) -> Self {
        Self {
            strengths: self.strengths + other.strengths,
            right: self.right + other.right,
            verdicts: self.verdicts + other.verdicts,
        }
    }
}

/// The table: strengths rise, and shares never fall.
pub fn fit(said: &[(f64, bool)]) -> Vec<Knot> {
    let mut sorted = said.to_vec();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut pools: Vec<Pool> = Vec::new();
    let mut open: Option<(Pool, f64)> = None;
    for (strength, right) in sorted {
        let one = Pool { strengths: strength, right: f64::from(u8::from(right)), verdicts: 1.0 };
        // Verdicts of the same strength stay together.
        open = Some(match open {
            Some((pool, last)) if pool.verdicts >= POOL_MIN as f64 && strength > last => {
                pools.push(pool);
                (one, strength)
            }
            Some((pool, _)) => (pool.with(one), strength),
            None => (one, strength),
        });
    }
    pools.extend(open.map(|(pool, _)| pool));
    let mut rising: Vec<Pool> = Vec::new();
    for mut pool in pools {
        while let Some(last) = rising.last().copied().filter(|last| last.share() >= pool.share()) {
            pool = last.with(pool);
            _ = rising.pop();
        }
        rising.push(pool);
    }
    rising.iter().map(|p| Knot { strength: p.strengths / p.verdicts, right: p.share() }).collect()
}

/// Between two knots in proportion, beyond the ends as at the ends.
pub fn read(table: &[Knot], strength: f64) -> f64 {
    let above = table.iter().position(|k| k.strength >= strength);
    match above.map(|i| (i.checked_sub(1).and_then(|i| table.get(i)), table.get(i))) {
        Some((Some(low), Some(high))) => {
            let part = (strength - low.strength) / (high.strength - low.strength);
            low.right + part * (high.right - low.right)
        }
        Some((None, Some(first))) => first.right,
        _ => table.last().map_or(strength, |k| k.right),
    }
}

/// How far what was said is from what was so. Less is better.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Loss {
    /// The mean square of the differences.
    pub brier: f64,
    /// The mean negative logarithm of the probability of what was so.
    pub log: f64,
}

impl Loss {
    fn of(said: &[(f64, bool)]) -> Self {
        let n = said.len().max(1) as f64;
        let log =
            |(p, right): &(f64, bool)| if *right { -p.max(NEVER).ln() } else { -(1.0 - p).max(NEVER).ln() };
        Self {
            brier: said.iter().map(|(p, right)| (p - f64::from(u8::from(*right))).powi(2)).sum::<f64>() / n,
            log: said.iter().map(log).sum::<f64>() / n,
        }
    }
}

/// What each verdict says when the table is fitted without its incident.
fn out_of_sample(samples: &[Sample]) -> Vec<f64> {
    let fold = |s: &Sample| Draw::new(0, s.key.split('.').next().unwrap_or_default()).number() % FOLDS;
    let tables: Vec<Vec<Knot>> = (0..FOLDS)
        .map(|out| {
            let others = samples.iter().filter(|s| fold(s) != out);
            fit(&others.map(|s| (s.strength, s.right)).collect::<Vec<_>>())
        })
        .collect();
    samples.iter().map(|s| read(&tables[fold(s) as usize], s.strength)).collect()
}

/// The check as text: of the recordings as they are, and of all. Recordings for a test of their own have no part in the fit.
pub fn check(fitted: &[Sample], test: Option<&[Sample]>) -> String {
    let explained =
        |samples: &[Sample]| -> Vec<Sample> { samples.iter().filter(|s| !s.unexplained).cloned().collect() };
    let fitted_on = explained(fitted);
    let table = fit(&fitted_on.iter().map(|s| (s.strength, s.right)).collect::<Vec<_>>());
    let samples = &test.map_or_else(|| fitted_on.clone(), explained);
    let calibrated = match test {
        Some(_) => samples.iter().map(|s| read(&table, s.strength)).collect(),
        None => out_of_sample(samples),
    };
    let unexplained: Vec<&Sample> = test.unwrap_or(fitted).iter().filter(|s| s.unexplained).collect();
    let right = unexplained.iter().filter(|s| s.right).count();
    let mut text = format!("told without a cause: {} verdicts, {right} right\n", unexplained.len());
    let whole = format!("{:?}", Withheld::Nothing);
    for (what, is_whole) in [("as recorded", true), ("with evidence taken out", false)] {
        let of = |s: &Sample| (s.withheld == whole) == is_whole;
        let raw: Vec<(f64, bool)> = samples.iter().filter(|s| of(s)).map(|s| (s.strength, s.right)).collect();
        let both = samples.iter().zip(&calibrated).filter(|(s, _)| of(s));
        let new: Vec<(f64, bool)> = both.map(|(s, p)| (*p, s.right)).collect();
        let right = raw.iter().filter(|(_, right)| *right).count();
        _ = writeln!(text, "{what}: {} verdicts, {right} right", raw.len());
        for (name, said) in [("strength", raw), ("calibrated, out of sample", new)] {
            let Loss { brier, log } = Loss::of(&said);
            _ = writeln!(text, "  {name}: Brier {brier:.4}, log loss {log:.4}");
            for Bin { verdicts, said, right, .. } in binned(&said) {
                _ = writeln!(
                    text,
                    "    said {:>3.0} %   right {:>3.0} %   of {verdicts}",
                    100.0 * said,
                    100.0 * right
                );
            }
        }
    }
    _ = writeln!(text, "strength and share of right ones, fitted on {} verdicts", fitted_on.len());
    for Knot { strength, right } in table {
        _ = writeln!(text, "  {strength:.2}   {:.0} %", 100.0 * right);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{Knot, Loss, Sample, fit, out_of_sample, read};

    /// So many verdicts of a strength, of which so many are right.
    fn said(strength: f64, verdicts: usize, right: usize) -> Vec<(f64, bool)> {
        (0..verdicts).map(|i| (strength, i < right)).collect()
    }

    #[test]
    fn shares_never_fall_and_nothing_is_certain() {
        let table = fit(&[said(0.5, 98, 49), said(0.7, 48, 19), said(0.9, 98, 98)].concat());
        let pooled = (98.0 * 0.5 + 48.0 * 0.7) / 146.0;
        assert_eq!(table.len(), 2, "{table:?}");
        assert!((table[0].strength - pooled).abs() < 1e-9 && (table[0].right - 69.0 / 148.0).abs() < 1e-9);
        assert!((table[1].right - 0.99).abs() < 1e-9, "{table:?}");
    }

    #[test]
    fn between_the_knots_in_proportion() {
        let table = [Knot { strength: 0.4, right: 0.5 }, Knot { strength: 0.8, right: 0.9 }];
        let read = |strength| (read(&table, strength) * 1000.0).round() / 1000.0;
        assert_eq!([0.1, 0.4, 0.5, 0.8, 1.0].map(read), [0.5, 0.5, 0.6, 0.9, 0.9]);
    }

    #[test]
    fn an_incident_says_nothing_about_itself() {
        let sample = |key: &str, right| Sample {
            key: format!("{key}.loud.1"),
            withheld: String::new(),
            root: String::new(),
            strength: 0.8,
            right,
            unexplained: false,
        };
        let mut samples: Vec<Sample> = (0..200).map(|i| sample(&format!("a{i}"), true)).collect();
        samples.extend((0..200).map(|_| sample("wrong", false)));
        let of_wrong = out_of_sample(&samples)[399];
        assert!(of_wrong > 0.99, "{of_wrong}");
    }

    #[test]
    fn the_loss_of_a_coin() {
        let loss = Loss::of(&[(0.5, true), (0.5, false)]);
        assert!((loss.brier - 0.25).abs() < 1e-9 && (loss.log - 2.0_f64.ln()).abs() < 1e-9);
    }
}
