//! Explains recordings of real incidents again. What was named must stay named. A known miss is
//! asserted as a miss, so that an improvement shows.
//!
//! `mitra-lab ship` fills `lab/recordings`. No root is needed: only archives are read.

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use mitra_lab::baselines::Answers;
use mitra_lab::disguise::{Renames, disguise};
use mitra_lab::record::Kind;
use mitra_lab::score::{self, Judged, Summary};
use mitra_lab::ship::{Shipped, miss};
use mitra_model::Span;
use mitra_model::time::SECOND;

use support::{explain, folders, shipped, with_each};

/// Limit of the median onset error of the right answers.
const ONSET_MEDIAN_MAX_S: f64 = 1.0;
/// Wrong roots during the troubles of all recordings, besides the one in first place. This number
/// may only go down.
const BESIDES_MAX: usize = 1;

/// Chains that lack a declared link, or have it too early, although the root is right. This number
/// may only go down.
const WRONG_CHAINS_MAX: usize = 4;

/// The diagnosis recognizes a runtime by its process name, so this condition does not survive a
/// renaming.
const BY_NAME: &str = "allocator-carrier-misfit";

fn judged(folder: &Path) -> (Shipped, Judged) {
    let shipped = shipped(folder);
    let run = &shipped.run;
    // Whole seconds, as on the command line.
    let window = Span {
        since: run.since_s.floor() as i64 * SECOND,
        until: (run.until_s + 0.999).floor() as i64 * SECOND,
    };
    let report = explain(&folder.join("archive"), window);
    let judged = score::judge(run, &report, Vec::new(), Answers::default());
    (shipped, judged)
}

#[test]
fn recordings_are_explained_as_their_truth_says() {
    let folders = folders();
    assert!(!folders.is_empty(), "no recordings in lab/recordings");
    let mut done = with_each(&folders, judged);
    assert_eq!(done.len(), folders.len());
    done.sort_by(|a, b| a.0.run.key.cmp(&b.0.run.key));
    let runs: Vec<Judged> = done.iter().map(|(_, judged)| judged.clone()).collect();
    println!("{}", score::page(&runs, &Summary::of(&runs)));
    let mut wrong = Vec::new();
    for (shipped, judged) in &done {
        match (&shipped.miss, miss(judged)) {
            (None, Some(why)) => wrong.push(format!("{}: was right, now: {why}", shipped.run.key)),
            (Some(why), None) => {
                wrong.push(format!("{}: is right now; set its miss to null. It was: {why}", shipped.run.key));
            }
            _ => {}
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let right = runs.iter().flat_map(|r| &r.verdicts).filter(|v| v.root);
    let mut errors: Vec<f64> = right.filter_map(|v| v.onset_error_s).map(f64::abs).collect();
    let median = score::median(&mut errors);
    assert!(median.is_some_and(|s| s <= ONSET_MEDIAN_MAX_S), "the median onset error is {median:?} s");
    let besides: Vec<String> = runs
        .iter()
        .flat_map(|r| r.besides.iter().map(move |root| format!("{}: {root}", r.record.key)))
        .collect();
    assert!(
        besides.len() <= BESIDES_MAX,
        "{} wrong roots, not {BESIDES_MAX}:\n{}",
        besides.len(),
        besides.join("\n")
    );
    let verdicts = runs.iter().flat_map(|r| r.verdicts.iter().map(move |v| (&r.record.key, v)));
    let chains: Vec<String> = verdicts
        .filter(|(_, v)| v.root && !v.chain_wrong.is_empty())
        .map(|(key, v)| format!("{key}: {}", v.chain_wrong.join("; ")))
        .collect();
    assert!(
        chains.len() <= WRONG_CHAINS_MAX,
        "{} wrong chains, not {WRONG_CHAINS_MAX}:\n{}",
        chains.len(),
        chains.join("\n")
    );
}

/// One recording of each area, if possible with a named culprit.
fn one_of_each_area() -> Vec<PathBuf> {
    let mut areas = BTreeMap::<String, (bool, PathBuf)>::new();
    for folder in folders() {
        let run = shipped(&folder).run;
        let Some(act) = run.acts.first().filter(|_| run.kind == Kind::Incident) else { continue };
        if act.condition == BY_NAME {
            continue;
        }
        let has_name = act.truth.as_ref().is_some_and(|t| t.process.is_some());
        if areas.get(&act.area).is_none_or(|(before, _)| has_name && !before) {
            areas.insert(act.area.clone(), (has_name, folder));
        }
    }
    areas.into_values().map(|(_, folder)| folder).collect()
}

fn disguised_is_the_same(folder: &Path) {
    let (shipped, before) = judged(folder);
    let to = tempfile::tempdir().unwrap();
    let culprit = shipped.run.acts[0].truth.clone().unwrap_or_default().process.unwrap_or_default();
    let rename = if culprit.is_empty() { Vec::new() } else { vec![format!("{culprit}=zebra")] };
    let renames = Renames::parse(&rename).unwrap();
    disguise(&folder.join("archive"), Span::ALL, &to.path().join("archive"), &renames).unwrap();
    fs::copy(folder.join("truth.json"), to.path().join("truth.json")).unwrap();
    let (_, after) = judged(to.path());
    let key = &shipped.run.key;
    assert_eq!(before.verdicts[0].answer, after.verdicts[0].answer, "{key}");
    if !culprit.is_empty() && before.verdicts[0].culprit {
        let wrong = &after.verdicts[0].culprit_wrong;
        assert!(wrong.iter().any(|w| w.contains("zebra")), "{key}: {wrong:?}");
    }
}

#[test]
fn a_disguised_recording_is_explained_the_same() {
    let folders = one_of_each_area();
    assert!(folders.len() > 1, "recordings of one area only");
    with_each(&folders, disguised_is_the_same);
}
