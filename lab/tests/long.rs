//! Hours put together from recordings: each incident is told where it was, what repeats as that, and what is over not at all.
//!
//! `mitra-lab long` makes more of them, and longer ones.

#[expect(dead_code, reason = "each test program uses its own part of the support")]
mod support;

use std::path::Path;

use mitra_lab::Draw;
use mitra_lab::long::{Form, judge, make};
use mitra_lab::stored;

use support::explain;

/// Long enough that a window has several parts, and short enough for a debug build.
const HOURS: f64 = 0.5;

#[test]
fn what_happens_now_and_then_is_told_where_it_was() {
    let recordings = stored::open(&Path::new(env!("CARGO_MANIFEST_DIR")).join("recordings")).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let mut wrong = Vec::new();
    for (i, form) in Form::ALL.into_iter().cycle().take(8).enumerate() {
        let archive = dir.path().join(i.to_string());
        let long = make(form, HOURS, &mut Draw::new(7, &format!("long {i}")), &recordings, &archive).unwrap();
        let report = explain(&archive, long.window);
        wrong.extend(judge(&long, &report).into_iter().map(|why| format!("{long}: {why}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
