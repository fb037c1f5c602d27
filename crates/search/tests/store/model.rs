//! Whatever a writer does, readers see what a list of states in memory has.

use std::collections::{BTreeMap, BTreeSet};

use mitra_search::Document;
use mitra_search::backend::{Batch, Sink};
use mitra_search::embedded::Writer;
use mitra_search::embedded::store::Store;
use proptest::prelude::*;

use super::{HOUR, document};

/// One step of a writer's life.
#[derive(Debug, Clone)]
enum Step {
    Put { host: u8, hours: i64, documents: Vec<(u8, u8)>, gone: Vec<u8> },
    Seal,
    Reopen,
}

fn step() -> impl Strategy<Value = Step> {
    let put = (
        0u8..3,
        0i64..30,
        proptest::collection::vec((0u8..6, 0u8..4), 0..5),
        proptest::collection::vec(0u8..6, 0..2),
    );
    prop_oneof![
        6 => put.prop_map(|(host, hours, documents, gone)| Step::Put { host, hours, documents, gone }),
        1 => Just(Step::Seal),
        1 => Just(Step::Reopen),
    ]
}

type Model = BTreeMap<(String, String), Vec<(i64, Option<String>)>>;

fn apply(model: &mut Model, host: &str, at_ns: i64, documents: &[Document], gone: &[String]) {
    let mut seen = BTreeSet::new();
    let changes = documents.iter().rev().map(|d| (&d.filename, d.content.clone()));
    for (file, text) in changes.chain(gone.iter().map(|file| (file, None))) {
        if !seen.insert(file.clone()) {
            continue;
        }
        let states = model.entry((host.to_owned(), file.clone())).or_default();
        let last = states.last().cloned();
        if last.as_ref().map_or(text.is_none(), |(_, before)| *before == text) {
            continue;
        }
        states.push((last.map_or(at_ns, |(since, _)| at_ns.max(since + 1)), text));
    }
}

fn agrees(store: &Store, model: &Model) {
    let mut found = Model::new();
    for (at, row) in (0..).zip(&store.table().rows) {
        let document = store.document(at).unwrap();
        let text = if row.gone { None } else { document.content };
        found.entry((document.host, document.filename)).or_default().push((row.since_ns, text));
    }
    let wanted: Model =
        model.iter().filter(|(_, s)| !s.is_empty()).map(|(k, s)| (k.clone(), s.clone())).collect();
    assert_eq!(found, wanted);
    assert!(store.skipped().is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_done_readers_see_what_was_put(steps in proptest::collection::vec(step(), 1..25)) {
        let dir = tempfile::tempdir().unwrap();
        let mut model = Model::new();
        let mut now = 0;
        let mut writer = Some(Writer::open(dir.path()).unwrap());
        let mut reader = Store::open(dir.path()).unwrap();
        for step in steps {
            match step {
                Step::Put { host, hours, documents, gone } => {
                    now += hours * HOUR;
                    let host = format!("web{host}");
                    let documents: Vec<_> = documents.iter()
                        .map(|(file, text)| document(&format!("/etc/{file}"), &format!("text {text}"))).collect();
                    let gone: Vec<_> = gone.iter().map(|file| format!("/etc/{file}")).collect();
                    let batch = Batch { host: &host, at_ns: now, documents: &documents, gone: &gone };
                    writer.as_mut().unwrap().put(&batch).unwrap();
                    apply(&mut model, &host, now, &documents, &gone);
                }
                Step::Seal => writer.as_mut().unwrap().seal().unwrap(),
                Step::Reopen => {
                    writer = None;
                    writer.replace(Writer::open(dir.path()).unwrap());
                }
            }
            reader.refresh().unwrap();
            agrees(&reader, &model);
        }
        agrees(&Store::open(dir.path()).unwrap(), &model);
    }
}
