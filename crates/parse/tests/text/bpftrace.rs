//! `bpftrace -f json`.

use mitra_model::time::SECOND;
use mitra_parse::text::Imported;
use proptest::prelude::*;

use crate::support::{
    check, clocks, damaged, import, import_file, is_empty, near, one, output, outputs_of, series, survive,
    tries, whole,
};

#[track_caller]
fn notes(read: &Imported) -> String {
    assert_eq!(read.files[0].formats, ["bpftrace JSON"]);
    read.files[0].notes.join("\n")
}

#[test]
fn maps_of_a_program() {
    let read = whole(output("bpftrace/maps.json"));
    assert_eq!(one(&read.set, "runq.waits", ""), (5.0, 13));
    assert!(near(series(&read.set, "runq.latency_p50", "").values[0], 128e-6));
    assert!(near(series(&read.set, "runq.latency_p99", "").values[0], 16_384e-6));
    let notes = notes(&read);
    for wanted in [
        "bpftrace: @n: 5",
        "@k: vda,3 7",
        "@byk[vda]: 1 values, half of them below 4096",
        "@byk[sdb]: 1 values, half of them below 0",
        "@l: 3 values, half of them below 60",
        "bash 1",
        "@s: a total 8, a average 4, a count 2",
    ] {
        assert!(notes.contains(wanted), "{wanted}: {notes}");
    }
    assert!(!notes.contains("passed over"), "{notes}");
}

#[test]
fn histograms_over_time() {
    let read = whole(output("bpftrace/biolatency.json"));
    // A hundred in two seconds, each time.
    check(&read.set, "block.requests", "", &[50.0, 50.0]);
    check(&read.set, "block.latency_p50", "", &[128e-6, 256e-6]);
    check(&read.set, "block.latency_p99", "", &[256e-6, 512e-6]);
    let requests = series(&read.set, "block.requests", "");
    assert_eq!(clocks(requests), [43_201, 43_203]);
    assert_eq!(requests.axis.places.iter().map(|place| place.line).collect::<Vec<_>>(), [4, 6]);
    assert_eq!(requests.axis.t[1] - requests.axis.t[0], 2 * SECOND);
    let notes = notes(&read);
    assert!(notes.contains("lost 12 events") && notes.contains("1 lines that the program"), "{notes}");
}

#[test]
fn sizes_by_program() {
    let read = whole(output("bpftrace/bitesize.json"));
    assert_eq!(one(&read.set, "block.requests", ""), (3.0, 6));
    assert_eq!(series(&read.set, "block.size_p50", "").values[0], 8192.0);
    assert_eq!(notes(&read), "");
}

#[test]
fn a_line_that_is_cut_costs_itself() {
    let text = "{\"type\": \"attached_probes\", \"data\": {\"probes\": 2}}\n\
        {\"type\": \"map\", \"data\": {\"@a\": {\"bash\": 12, \"ss\n\
        {\"type\": \"map\", \"data\": {\"@b\": 3}}\n";
    let read = import("x", text);
    assert_eq!(
        (read.files[0].unread, read.files[0].first_unread.as_ref().map(|first| first.0)),
        (1, Some(2))
    );
    assert_eq!(read.files[0].notes, ["bpftrace: @b: 3"]);
}

#[test]
fn the_meaning_of_a_name_is_not_guessed() {
    // Nobody says what was traced.
    let text = "{\"type\":\"hist\",\"data\":{\"@usecs\":[{\"min\":64,\"max\":127,\"count\":12}]}}\n";
    let read = import("x", text);
    assert!(is_empty(&read));
    assert_eq!(read.files[0].notes, ["bpftrace: @usecs: 12 values, half of them below 128"]);
    let named = format!("# ./runqlat.bt -f json\n{text}");
    assert_eq!(one(&import("x", named).set, "runq.waits", "").0, 12.0);
    // Only lines of a program's own.
    let read = import_file(output("bpftrace/maps.json"));
    assert!(read.set.get("block.requests", "").is_none());
    let printed = "{\"type\": \"attached_probes\", \"data\": {\"probes\": 2}}\n{\"type\": \"printf\", \"data\": \"x\\n\"}\n";
    let read = import("x", printed);
    assert!(is_empty(&read) && read.files[0].unread == 2, "{:?}", read.files[0]);
}

#[test]
fn near_misses() {
    for text in [
        "{\"type\": \"map\", \"data\": {\"a\": 3}}\n",
        "{\"type\": \"value\", \"data\": 3}\n",
        "{\"type\": \"printf\", \"data\": \"x\"}\n",
        "{\"type\": \"mapping\", \"data\": {\"@a\": 3}}\n",
        "{\"type\": map, \"data\": {\"@a\": 3}}\n",
    ] {
        let read = import("x", text);
        assert!(read.files[0].formats.iter().all(|format| format == "log"), "{text}: {:?}", read.files[0]);
        assert!(read.files[0].notes.is_empty(), "{text}");
    }
}

proptest! {
    #![proptest_config(tries(200))]

    #[test]
    fn changed_outputs_are_survived(content in damaged(outputs_of(&["bpftrace"]))) {
        survive("x", content);
    }
}
