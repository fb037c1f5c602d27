//! Heaps and run times: published evidence and real outputs, and the numbers that must be found in them.

use mitra_model::time::SECOND;
use mitra_model::{Era, EventKind, SeriesSet};
use proptest::prelude::*;

use crate::support::{
    bytes, case, check_row, damaged, import, lines, near, output, outputs_of, parts, series, string_of,
    survive, text_of, tries, whole,
};

fn rows_of(set: &SeriesSet, metric: &str) -> Vec<String> {
    set.each(metric).map(|(row, _)| row.to_owned()).collect()
}

#[test]
fn smaps_as_it_was_published() {
    let (set, file) = parts(whole(case("python-native-leak/grown/smaps.txt")));
    assert_eq!(file.formats, ["smaps"]);
    let kib = 1024.0;
    check_row(
        &set,
        "00717000-016c7000 [heap]",
        &[("mapping.rss", 15_300.0 * kib, 3), ("mapping.swap", 764.0 * kib, 12)],
    );
    check_row(
        &set,
        "016c7000-e488f000 [heap]",
        &[
            ("mapping.size", 3_720_992.0 * kib, 19),
            ("mapping.rss", 3_720_864.0 * kib, 20),
            ("mapping.pss", 3_720_864.0 * kib, 21),
            ("mapping.private_dirty", 3_720_864.0 * kib, 25),
            ("mapping.referenced", 3_657_128.0 * kib, 26),
            ("mapping.anonymous", 3_720_864.0 * kib, 27),
        ],
    );
    assert_eq!(text_of(&set, "mapping.name", "016c7000-e488f000 [heap]"), Some("[heap]"));
}

#[test]
fn smaps_of_several_processes() {
    let (set, _) = parts(whole(output("smaps/smaps-two.txt")));
    let rows = rows_of(&set, "mapping.rss");
    assert!(rows.iter().any(|r| r.starts_with("31007:55dd412d0000-55dd412d2000 /usr/bin/sleep")), "{rows:?}");
    assert!(rows.iter().any(|r| r.starts_with("#2:")), "{rows:?}");
    // The same without the lines of tail: the addresses begin anew.
    let one = string_of(case("python-native-leak/grown/smaps.txt"));
    let (set, file) = parts(import("smaps", format!("{one}{one}")));
    assert_eq!(file.unread, 0);
    assert_eq!(set.each("mapping.rss").count(), 4);
    let (set, _) = parts(import("evidence/proc/77/smaps", &one));
    assert!(set.get("mapping.rss", "77:016c7000-e488f000 [heap]").is_some());
    let (set, _) = parts(import("x", format!("$ cat /proc/78/smaps\n{one}")));
    assert!(set.get("mapping.rss", "78:016c7000-e488f000 [heap]").is_some());
    let (set, _) = parts(whole(output("smaps/smaps_rollup.txt")));
    check_row(&set, "55dd412d0000-7fff1be71000 [rollup]", &[("mapping.rss", 1944.0 * 1024.0, 2)]);
    // Taken in a loop, each behind its time.
    let one = string_of(output("smaps/smaps_rollup.txt"));
    let two = one.replace("1944 kB", "2944 kB");
    let (set, file) =
        parts(import("x", format!("Fri Nov 27 23:10:00 UTC 2026\n{one}Fri Nov 27 23:11:00 UTC 2026\n{two}")));
    let rss = series(&set, "mapping.rss", "55dd412d0000-7fff1be71000 [rollup]");
    assert_eq!(rss.values, [1944.0 * 1024.0, 2944.0 * 1024.0]);
    assert_eq!((rss.axis.t[1] - rss.axis.t[0], file.unread), (60 * SECOND, 0));
}

#[test]
fn pmap_in_every_form_and_language() {
    let row = "31007:55dd71624000-55dd71645000 [ anon ]";
    for file in ["pmap-x", "pmap-x-de"] {
        let (set, read) = parts(whole(output(format!("pmap/{file}.txt"))));
        assert_eq!(read.formats, ["pmap"]);
        check_row(&set, row, &[("mapping.size", 132.0 * 1024.0, 8), ("mapping.rss", 16.0 * 1024.0, 8)]);
    }
    let (set, _) = parts(whole(output("pmap/pmap.txt")));
    check_row(&set, row, &[("mapping.size", 132.0 * 1024.0, 7)]);
    assert!(set.get("mapping.rss", row).is_none());
    let (set, _) = parts(whole(output("pmap/pmap-X.txt")));
    let sleep = "31007:55dd412d0000-55dd412d2000 sleep";
    check_row(
        &set,
        sleep,
        &[("mapping.size", 8192.0, 3), ("mapping.rss", 8192.0, 3), ("mapping.referenced", 8192.0, 3)],
    );
    check_row(&set, sleep, &[("mapping.anonymous", 0.0, 3)]);
}

#[test]
fn status_of_a_process() {
    let (set, _) = parts(whole(output("status/status.txt")));
    assert_eq!(text_of(&set, "task.comm", "31007@0"), Some("sleep"));
    check_row(
        &set,
        "31007@0",
        &[
            ("task.rss", 1944.0 * 1024.0, 23),
            ("task.rss_anon", 27.0, 24),
            ("task.rss_file", 459.0, 25),
            ("task.threads", 1.0, 37),
            ("task.nvcsw", 1.0, 58),
        ],
    );
}

#[test]
fn strings_and_partitions_as_they_were_published() {
    for (file, context, unknown) in [("at-start", 49_791.0, 49_788.0), ("grown", 2_082_193.0, 2_082_202.0)] {
        let (set, read) = parts(whole(case(format!("python-native-leak/{file}/strings-count.txt"))));
        assert_eq!(read.formats, ["counts of strings"]);
        let line = if file == "grown" { 2 } else { 1 };
        check_row(&set, "couchbase.context_info", &[("census.count", context, line)]);
        check_row(&set, "Unknown:Unknown", &[("census.count", unknown, 3 - line)]);
        assert_eq!(text_of(&set, "census.tool", "Unknown:Unknown"), Some("strings"));
    }
    let (set, read) = parts(whole(case("python-native-leak/grown/guppy-heap.txt")));
    assert_eq!(read.formats, ["guppy"]);
    check_row(&set, "(all)", &[("census.count", 533_203.0, 1), ("census.bytes", 59_814_702.0, 1)]);
    check_row(&set, "types.CodeType", &[("census.count", 132_180.0, 3), ("census.bytes", 9_964_875.0, 3)]);
    check_row(&set, "dict (no owner)", &[("census.count", 33_545.0, 9), ("census.bytes", 2_288_877.0, 9)]);
    assert_eq!(text_of(&set, "census.tool", "(all)"), Some("guppy"));

    let (set, _) = parts(import("heap.txt", bytes(output("guppy/heap.txt"))));
    check_row(&set, "(all)", &[("census.bytes", 3_265_516.0, 2)]);
    check_row(&set, "str", &[("census.count", 25_773.0, 4)]);
    let (set, _) = parts(import("t", bytes(output("tracemalloc/tracemalloc.txt"))));
    check_row(&set, "<stdin>:7", &[("census.bytes", 607.0 * 1024.0, 3), ("census.count", 9001.0, 3)]);
    let (set, _) =
        parts(import("t", b"#1: /a/b c.py:88: size=4855 KiB, count=39328, average=126 B\n    x = 1\n"));
    check_row(&set, "/a/b c.py:88", &[("census.bytes", 4855.0 * 1024.0, 1)]);
    let (set, _) = parts(whole(output("strings/uniq.txt")));
    check_row(&set, "strrchr", &[("census.count", 1.0, 15)]);
}

#[test]
fn recon_alloc_as_it_was_published() {
    let (set, file) = parts(whole(case("content-page-faults/recon_alloc.txt")));
    assert_eq!(file.formats, ["Erlang allocators"]);
    check_row(&set, "eheap_alloc 0", &[("allocator.sbcs_to_mbcs", 1.786_516_853_932_584_2, 3)]);
    check_row(&set, "eheap_alloc 11", &[("allocator.sbcs_to_mbcs", 0.045_783_132_530_120_48, 4)]);
    check_row(&set, "eheap_alloc 2", &[("allocator.sbcs_to_mbcs", 0.026_066_350_710_900_472, 8)]);
    check_row(
        &set,
        "instance 0",
        &[
            ("allocator.hit_rate", 0.641_977_848_091_393_6, 14),
            ("allocator.cache_hits", 28_810_063.0, 14),
            ("allocator.cache_calls", 44_877_036.0, 14),
        ],
    );
    check_row(&set, "instance 16", &[("allocator.hit_rate", 0.899_465_140_851_114_5, 16)]);
    check_row(&set, "instance 3", &[("allocator.hit_rate", 0.898_956_666_424_753_1, 18)]);
    assert_eq!(set.each("allocator.sbcs_to_mbcs").count(), 6);

    let path = case("content-page-faults/recon_allocators.txt");
    let (set, file) = parts(import("recon_allocators.txt", bytes(path)));
    // The remarks below the output are not part of it.
    assert_eq!(file.unread, 4);
    check_row(
        &set,
        "eheap_alloc 0",
        &[
            ("allocator.mbcs_blocks", 89.0, 7),
            ("allocator.mbcs_blocks_bytes", 704_544.0, 8),
            ("allocator.mbcs_carriers", 3.0, 9),
            ("allocator.mbcs_carriers_bytes", 1_441_792.0, 12),
            ("allocator.sbcs_blocks", 93.0, 17),
            ("allocator.sbcs_blocks_bytes", 359_408_608.0, 18),
            ("allocator.sbcs_carriers", 93.0, 19),
            ("allocator.sbcs_carriers_bytes", 369_188_864.0, 22),
        ],
    );
    assert!(set.get("allocator.sbct_bytes", "eheap_alloc 0").is_none(), "it is not in the file");
}

#[test]
fn allocators_of_a_real_vm() {
    for (file, line, total) in [
        ("erlang/system_info.txt", 27, ("allocator.used_bytes", 15_674_888.0, 183)),
        ("erlang/shell.txt", 29, ("allocator.used_bytes", 13_953_752.0, 184)),
    ] {
        let (set, read) = parts(import("erl.txt", bytes(output(file))));
        assert_eq!(read.formats, ["Erlang allocators"], "{file}");
        let rows = rows_of(&set, "allocator.mbcs_carriers_bytes");
        assert!(rows.len() >= 2 && rows.iter().all(|r| r.starts_with("eheap_alloc ")), "{rows:?}");
        check_row(
            &set,
            "eheap_alloc 0",
            &[("allocator.mbcs_blocks", 17.0, line), ("allocator.mbcs_blocks_bytes", 209_328.0, line)],
        );
        check_row(&set, "erlang total", &[total]);
    }
    let (set, _) = parts(whole(output("erlang/recon.txt")));
    assert!(set.get("allocator.sbcs_to_mbcs", "eheap_alloc 1").is_none(), "infinity is no number");
    check_row(&set, "eheap_alloc 2", &[("allocator.sbcs_to_mbcs", 0.25, 3)]);
    check_row(&set, "instance 1", &[("allocator.hit_rate", 0.9912, 6)]);
    check_row(&set, "instance 2", &[("allocator.cache_calls", 20.0, 8)]);
    check_row(
        &set,
        "eheap_alloc 1",
        &[
            ("allocator.sbct_bytes", 4_194_304.0, 12),
            ("allocator.mbcs_blocks", 1.0, 13),
            ("allocator.mbcs_carriers_bytes", 400.0, 16),
            ("allocator.sbcs_blocks", 0.0, 18),
        ],
    );
    check_row(&set, "erlang eheap_alloc", &[("allocator.used_bytes", 3_211_520.0, 24)]);
}

#[test]
fn histograms_and_spaces_of_the_jvm() {
    let (set, file) = parts(import("h.txt", bytes(output("jvm/jcmd-histo.txt"))));
    assert_eq!(file.formats, ["jmap -histo"]);
    check_row(&set, "(all)", &[("census.count", 10_609.0, 32), ("census.bytes", 27_657_840.0, 32)]);
    check_row(&set, "[B", &[("census.count", 3024.0, 4), ("census.bytes", 27_278_528.0, 4)]);
    assert_eq!(text_of(&set, "census.tool", "[B"), Some("jmap"));
    let (set, _) = parts(import("g.txt", bytes(output("jvm/jcmd-heap_info.txt"))));
    check_row(
        &set,
        "java garbage-first heap",
        &[
            ("allocator.used_bytes", 83_447.0 * 1024.0, 2),
            ("allocator.capacity_bytes", 262_144.0 * 1024.0, 2),
        ],
    );
    check_row(&set, "java Metaspace", &[("allocator.used_bytes", 77.0 * 1024.0, 4)]);
}

#[test]
fn jstat() {
    let (set, _) = parts(whole(output("jvm/jstat-gcutil.txt")));
    let old = series(&set, "allocator.used_share", "java old");
    assert!(near(old.values[0], 0.0422) && lines(old)[0] == 2, "{old:?}");
    let collections = set.total("allocator.collections", "java young").unwrap();
    assert_eq!(collections.values, [33.0, 38.0, 43.0, 48.0]);
    assert!(set.total("allocator.collections", "java concurrent").is_none());
    let (set, _) = parts(whole(output("jvm/jstat-gc.txt")));
    let eden = series(&set, "allocator.used_bytes", "java eden");
    assert!(near(eden.values[0], 4229.4 * 1024.0) && lines(eden)[0] == 2, "{eden:?}");
    let axis = &set.get("allocator.used_bytes", "java old").unwrap().axis;
    assert!(axis.t.iter().all(|t| Era::of(*t) == Era::Sequence));
    assert_eq!((axis.t[1] - axis.t[0]) / (SECOND / 1000), 300);
}

fn pauses(set: &SeriesSet) -> Vec<(f64, String, u32)> {
    let of = |e: &mitra_model::Event| match &e.kind {
        EventKind::Pause { seconds, call, comm, inside: true, .. } if comm == "java" => {
            Some((*seconds, call.clone(), e.place.unwrap().line))
        }
        _ => None,
    };
    set.events.iter().filter_map(of).collect()
}

#[test]
fn pauses_of_collectors() {
    let (set, file) = parts(whole(output("jvm/gc-unified.log")));
    assert_eq!(file.formats, ["JVM garbage collection log"]);
    let all = pauses(&set);
    assert_eq!(all[0], (0.109_152, "GC Pause Young (Normal) (G1 Evacuation Pause)".to_owned(), 4));
    // 2026-11-21T13:35:35.235 UTC.
    assert_eq!(set.events[0].real, 1_795_268_135 * SECOND + 235 * (SECOND / 1000));
    // The safepoint of the same pause says the same again.
    assert!(all.iter().all(|(_, call, _)| call.starts_with("GC Pause")), "{all:?}");
    let (set, _) = parts(whole(output("jvm/gc-serial.log")));
    assert!(set.events.is_empty(), "no pause was long");

    let (set, _) = parts(whole(output("jvm/gc-jdk8.log")));
    let all = pauses(&set);
    assert_eq!(all.len(), 4, "{all:?}");
    assert_eq!(all[0], (0.234_567_8, "GC (GCLocker Initiated GC)".to_owned(), 5));
    assert_eq!(all[1], (1.730_002_1, "Full GC (Ergonomics)".to_owned(), 7));
    assert!((all[2].0 - 0.399_997_9).abs() < 1e-9 && all[2].2 == 8, "{:?}", all[2]);
    assert_eq!(all[3], (0.150_000_1, "GC pause (G1 Evacuation Pause) (young)".to_owned(), 9));
    // The zone counts: 10:53:33.123 at +02:00.
    assert_eq!(set.events[0].real, 1_474_361_613 * SECOND + 123 * (SECOND / 1000));
}

#[test]
fn collections_of_a_flight_recording() {
    let (set, file) = parts(whole(output("jfr/print-21.txt")));
    assert_eq!(file.formats, ["jfr print"]);
    let all = pauses(&set);
    assert_eq!(
        all,
        [
            (0.252, "GC G1New (G1 Evacuation Pause)".to_owned(), 2),
            (1.21, "GC G1Full (Allocation Failure)".to_owned(), 27),
        ]
    );
    // 2026-11-27 23:10:04.125.
    assert_eq!(set.events[0].real, 1_795_821_004 * SECOND + 125 * (SECOND / 1000));
    // The last one went on beside the program.
    let said = "jfr print: 3 collections stopped the program for 1.471 s in all, 1.210 s at most";
    assert_eq!(file.notes, [said, "jfr print: 1 events of other kinds were passed over"]);
    let (set, file) = parts(whole(output("jfr/print-17.txt")));
    assert!(set.events.is_empty(), "no pause was long");
    assert!(file.notes[0].contains("4 collections") && file.notes[0].contains("0.008 s at most"), "{file:?}");
    let long =
        string_of(output("jfr/print-17.txt")).replace("longestPause = 7.96 ms", "longestPause = 796 ms");
    let (set, _) = parts(import("x", long));
    // Without a date it is a time of day.
    assert_eq!((set.events[0].real - Era::Day.zero()) / (SECOND / 1000), 85_957_157);
    let cut = "jdk.GarbageCollection {\n  startTime = 23:10:04.125\n  longestPause = 9 s\n";
    assert!(parts(import("x", cut)).0.events.is_empty(), "a collection without an end");
}

#[test]
fn summaries_of_a_flight_recording() {
    let (_, file) = parts(whole(output("jfr/summary-17.txt")));
    assert_eq!(file.formats, ["jfr summary"]);
    assert_eq!(
        file.notes,
        [
            "a recording of JFR of 1 s from 2026-11-28 23:52:36 (UTC): 36 jdk.GarbageCollection, 16 jdk.JavaErrorThrow, \
          5 jdk.ExecutionSample, 2 jdk.JavaMonitorWait"
        ]
    );
    let (_, file) = parts(whole(output("jfr/summary-11.txt")));
    assert_eq!(
        file.notes,
        ["a recording of JFR of 3600 s from 2026-11-27 22:10:00 (UTC): 120044 jdk.ThreadPark, \
          361 jdk.GarbageCollection, 12 jdk.JavaMonitorEnter, 2 jdk.DataLoss"]
    );
}

#[test]
fn what_only_looks_like_it_is_not_read() {
    for text in [
        "12 angry men\n",
        "2 threads and 200 connections\n",
        "3 errors found\n4 warnings found\nsome other line\n",
        "100 apples\n",
        "1 root 20 0 0 S init\n",
        "7 a.b\nand then text\n",
        "17 systemd\n42 kthreadd\n99 init\n",
        "Name: someone\nAddress: somewhere\n",
        "00717000-016c7000 rw-p 00000000 00:00 0 [heap]\nno fields here\n",
        "42: hello\nworld\n",
        "a partition of a set of things\n",
        "[INFO] {eheap_alloc, is nice}\n",
        "num instances bytes\n",
        "[12:00:01] [gc] message\n",
        "heap total used\n",
        "see recon_alloc: the manual\n",
        " Version: 2.1\n Released: yesterday\n",
        "a.b {\n  color = red\n}\n",
    ] {
        let (set, file) = parts(import("x.txt", text));
        assert_eq!(set.metrics().count(), 0, "{text:?}");
        assert!(set.events.is_empty(), "{text:?}");
        assert!(file.unread > 0, "{text:?}");
    }
}

#[test]
fn damage_is_counted_and_the_rest_is_read() {
    let text = string_of(case("python-native-leak/grown/smaps.txt"));
    let text =
        text.replacen("Pss: 13093 kB", "~~~ torn ~~~", 1).replacen("Rss: 15300 kB", "Rss: 15x00 kB", 1);
    let (set, file) = parts(import("smaps", text));
    assert_eq!((file.unread, file.first_unread.unwrap().0), (1, 4));
    assert!(set.get("mapping.rss", "00717000-016c7000 [heap]").is_none());
    assert!(set.get("mapping.rss", "016c7000-e488f000 [heap]").is_some());
}

/// The folders of this family.
const FOLDERS: &[&str] =
    &["smaps", "pmap", "status", "guppy", "tracemalloc", "erlang", "jvm", "jfr", "strings"];

fn files() -> Vec<Vec<u8>> {
    let cases = ["content-page-faults/recon_alloc.txt", "content-page-faults/recon_allocators.txt"];
    let mut all = outputs_of(FOLDERS);
    all.extend(cases.map(|path| bytes(case(path))));
    all
}

proptest! {
    #![proptest_config(tries(300))]

    #[test]
    fn mutated_outputs_do_not_panic(content in damaged(files())) {
        survive("fuzz.txt", content);
    }
}
