//! Whether verdicts are as often right as they say that they are sure.

use serde_json::Value;

use super::{EARLY_S, Judged, is_true, started_s};
use crate::record::{Kind, Record};
use crate::report::{incidents, root, time_of};

/// The lower ends of the bins of confidence.
const BINS: [f64; 5] = [0.0, 0.5, 0.7, 0.85, 0.95];

/// An incident of a report.
#[derive(Clone, Debug, PartialEq)]
pub struct Told {
    /// Its root in first place.
    pub root: String,
    /// How sure the report says that it is.
    pub confidence: f64,
    /// What that is computed from, before it is calibrated.
    pub strength: f64,
    /// Whether that is true of something that was made. Nothing is true of a healthy machine, or
    /// before the trouble.
    pub right: bool,
    /// The report says that the cause was not found.
    pub unexplained: bool,
}

/// All incidents of a report, in their order.
pub fn told(record: &Record, report: &Value) -> Vec<Told> {
    let since_s = started_s(record) - EARLY_S;
    let of = |incident: &Value| {
        let (cause, root) = (&incident["root_cause"], root(incident)?);
        let confidence = cause["confidence"].as_f64()?;
        let is_late = time_of(incident, "onset").is_some_and(|onset_s| onset_s >= since_s);
        let mut acts = record.acts.iter().filter(|a| !a.noise);
        let right = record.kind != Kind::Control && is_late && acts.any(|a| is_true(a, &root));
        let strength = cause["strength"].as_f64().unwrap_or(confidence);
        let unexplained = cause["unexplained"] == true;
        Some(Told { right, confidence, strength, unexplained, root })
    };
    incidents(report).iter().filter_map(of).collect()
}

/// Verdicts that say that they are about equally sure.
#[derive(Clone, Debug, PartialEq)]
pub struct Bin {
    /// The least that they say.
    pub from: f64,
    /// How many.
    pub verdicts: usize,
    /// What they say, in the mean.
    pub said: f64,
    /// The share of them whose root is right.
    pub right: f64,
}

/// The bins that have verdicts. Every incident of every report counts, of all kinds of runs.
pub fn bins(runs: &[Judged]) -> Vec<Bin> {
    let told = runs.iter().flat_map(|run| &run.told);
    binned(&told.map(|t| (t.confidence, t.right)).collect::<Vec<_>>())
}

/// The bins of verdicts, each with how sure it says that it is.
pub fn binned(said: &[(f64, bool)]) -> Vec<Bin> {
    let ends = BINS.iter().skip(1).copied().chain([f64::INFINITY]);
    let bins = BINS.iter().copied().zip(ends).filter_map(|(from, to)| {
        let inside: Vec<(f64, bool)> = said.iter().copied().filter(|(c, _)| (from..to).contains(c)).collect();
        let n = inside.len() as f64;
        (!inside.is_empty()).then(|| Bin {
            from,
            verdicts: inside.len(),
            said: inside.iter().map(|(confidence, _)| confidence).sum::<f64>() / n,
            right: inside.iter().filter(|(_, right)| *right).count() as f64 / n,
        })
    });
    bins.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_are_counted_by_how_sure_they_are() {
        let of = |from, verdicts, said, right| Bin { from, verdicts, said, right };
        assert_eq!(
            binned(&[(0.8, true), (0.7, false), (1.0, true)]),
            [of(0.7, 2, 0.75, 0.5), of(0.95, 1, 1.0, 1.0)]
        );
    }
}
