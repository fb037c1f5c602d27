//! Whatever numbers come in, a report comes out: no panic, shares and confidences inside their range.

use std::sync::Arc;

use mitra_diagnose::{History, Request, detail_metrics, explain, scan_metrics};
use mitra_model::time::SECOND;
use mitra_model::{Axis, Entity, Kind, Series, SeriesSet, Span, TextSeries};
use proptest::prelude::*;

/// Values of every size that a counter or a level can have, and holes.
fn value() -> impl Strategy<Value = f64> {
    prop_oneof![Just(f64::NAN), Just(0.0), Just(1.0), 0.0..2.0, 0.0..1e6, 0.0..1e18]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_numbers_make_a_report(
        steps in prop::collection::vec(1_i64..700, 0..40),
        pool in prop::collection::vec(value(), 1..400),
        seed in any::<u32>(),
        cut in any::<u8>(),
    ) {
        let mut t = 1_795_000_000 * SECOND;
        let mut axis = Axis::default();
        for step in &steps {
            t += step * SECOND;
            axis.t.push(t);
            axis.dt.push(*step as f64);
        }
        let axis = Arc::new(axis);
        let mut set = SeriesSet::default();
        set.host.cpus = seed % 5;
        let mut i = seed as usize;
        for metric in detail_metrics().into_iter().chain(scan_metrics()) {
            i += 1;
            if i % 256 < cut as usize / 3 {
                continue;
            }
            let rows: &[&str] = match metric.entity {
                Entity::System => &[""],
                Entity::Task => &["1@5", "2@7", "3@9", "oddly named"],
                Entity::Exited => &["1:true", "nonsense"],
                Entity::Cpu => &["0", "1", "x"],
                _ => &["vda", "/", "/a", "/a/b", "loop0"],
            };
            for row in rows {
                i += 1;
                if metric.kind == Kind::Text {
                    let text = TextSeries { changes: vec![(0, Some("text".into()))], place: None };
                    set.insert_text(metric, (*row).into(), text);
                } else {
                    let values = (0..axis.len()).map(|k| pool[(i * 31 + k * 7) % pool.len()]).collect();
                    set.insert(metric, (*row).into(), Series { axis: Arc::clone(&axis), start: 0, values });
                }
            }
        }
        let request = Request { window: Span { since: 0, until: t + SECOND }, baseline: None, history: History::default() };
        let report = explain(&request, &set, &|_| Ok(set.clone()));
        for incident in &report.incidents {
            for root in std::iter::once(&incident.root_cause).chain(&incident.other_roots) {
                prop_assert!((0.0..=1.0).contains(&root.confidence));
                prop_assert!(root.share.is_none_or(|s| (0.0..=1.0).contains(&s)));
            }
            prop_assert!(incident.end.is_none_or(|end| end >= incident.onset));
        }
        serde_json::to_string(&report).unwrap();
    }
}
