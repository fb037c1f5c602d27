//! Recordings of real incidents, explained again: what was named must stay named, and a known miss is asserted as one,
//! so that an improvement shows.
//!
//! `lab/recordings` is filled by `mitra-lab ship`. No root is needed: only archives are read.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use mitra_archive::{Awake, Query, Reader};
use mitra_diagnose::Request;
use mitra_lab::baselines::Answers;
use mitra_lab::disguise::{Renames, disguise};
use mitra_lab::score::{self, Judged, Summary};
use mitra_lab::ship::{Shipped, miss};
use mitra_model::time::SECOND;
use mitra_model::{SeriesSet, Span};

/// What `mitra explain` reads first and second; see `crates/app/src/commands/explain.rs`.
fn explain(archive: &Path, window: Span) -> serde_json::Value {
    let reader = Reader::open(archive).unwrap();
    let scan = reader.read(&Query::new(window, mitra_diagnose::scan_metrics())).unwrap();
    let report = mitra_diagnose::explain(&Request { window, baseline: None }, &scan, &mut |span| {
        detail(&reader, span)
    });
    serde_json::to_value(report).unwrap()
}

fn detail(reader: &Reader, span: Span) -> Result<SeriesSet, String> {
    let awake = Awake { signs: mitra_diagnose::AWAKE, leader: mitra_diagnose::LEADER };
    reader.read_awake(span, mitra_diagnose::detail_metrics(), awake).map_err(|e| e.to_string())
}

fn judged(folder: &Path) -> (Shipped, Judged) {
    let text = fs::read_to_string(folder.join("truth.json")).unwrap();
    let shipped: Shipped =
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let run = &shipped.run;
    // The command line takes whole seconds, and so does this.
    let window = Span {
        since: run.since_s.floor() as i64 * SECOND,
        until: (run.until_s + 0.999).floor() as i64 * SECOND,
    };
    let report = explain(&folder.join("archive"), window);
    let judged = score::judge(run, &report, Vec::new(), Answers::default());
    (shipped, judged)
}

fn folders() -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("recordings");
    let mut all: Vec<PathBuf> =
        fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).filter(|p| p.is_dir()).collect();
    all.sort();
    all
}

#[test]
fn recordings_are_explained_as_their_truth_says() {
    let folders = folders();
    assert!(!folders.is_empty(), "no recordings in lab/recordings");
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(folder) = folders.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let one = judged(folder);
                    done.lock().unwrap().push(one);
                }
            });
        }
    });
    let mut done = done.into_inner().unwrap();
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
}

#[test]
fn a_disguised_recording_is_explained_the_same() {
    let Some(folder) = folders().into_iter().next() else { return };
    let (shipped, before) = judged(&folder);
    let to = tempfile::tempdir().unwrap();
    let culprit = shipped.run.acts[0].truth.clone().unwrap_or_default().process.unwrap_or_default();
    let renames = Renames::parse(&[format!("{culprit}=zebra")]).unwrap();
    disguise(&folder.join("archive"), Span::ALL, &to.path().join("archive"), &renames).unwrap();
    fs::copy(folder.join("truth.json"), to.path().join("truth.json")).unwrap();
    let (_, after) = judged(to.path());
    assert_eq!(before.verdicts[0].answer, after.verdicts[0].answer);
    if !culprit.is_empty() && before.verdicts[0].culprit {
        assert!(after.verdicts[0].culprit_wrong[0].contains("zebra"), "{:?}", after.verdicts[0]);
    }
}
