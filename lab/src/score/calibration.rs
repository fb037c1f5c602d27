//! Whether verdicts are as often right as they say that they are sure.

use super::{Judged, Verdict};
use crate::record::Kind;

/// The lower ends of the bins of confidence.
const BINS: [f64; 5] = [0.0, 0.5, 0.7, 0.85, 0.95];

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

/// The bins that have verdicts. What a report says first counts; who said nothing was not
/// sure of anything.
pub fn bins(runs: &[Judged]) -> Vec<Bin> {
    let single = runs.iter().filter(|run| run.record.kind == Kind::Incident).flat_map(|run| &run.verdicts);
    let said: Vec<(f64, bool)> = single.filter_map(|v: &Verdict| Some((v.confidence?, v.root))).collect();
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
    use crate::record::{Record, State};

    #[test]
    fn verdicts_are_counted_by_how_sure_they_are() {
        let verdict = |confidence, root| Verdict { confidence: Some(confidence), root, ..Verdict::default() };
        let record = Record {
            key: "a".into(),
            kind: Kind::Incident,
            seed: 1,
            state: State::Made,
            why: None,
            acts: Vec::new(),
            since_s: 0.0,
            until_s: 1.0,
            mitra: String::new(),
            machine: String::new(),
            live: Vec::new(),
        };
        let verdicts = vec![
            verdict(0.8, true),
            verdict(0.7, false),
            verdict(1.0, true),
            Verdict { confidence: None, ..Verdict::default() },
        ];
        let run = Judged {
            record,
            verdicts,
            found_on_control: Vec::new(),
            early: Vec::new(),
            besides: Vec::new(),
            gaps_s: Vec::new(),
        };
        let of = |from, verdicts, said, right| Bin { from, verdicts, said, right };
        assert_eq!(bins(&[run]), [of(0.7, 2, 0.75, 0.5), of(0.95, 1, 1.0, 1.0)]);
    }
}
