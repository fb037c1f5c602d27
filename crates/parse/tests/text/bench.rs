//! Benchmarks of real runs, and the numbers that must be found in them.

use mitra_model::EventKind;
use proptest::prelude::*;

use crate::support::{
    bytes, case, check_row, damaged, import, near, one, output, outputs_of, parts, string_of, survive,
    text_of, tries, whole,
};

#[test]
fn wrk_as_it_was_published() {
    let (set, file) = parts(whole(case("web-framework-bench/wrk-flask.txt")));
    assert_eq!(file.formats, ["wrk"]);
    check_row(
        &set,
        "wrk-flask",
        &[
            ("run.threads", 2.0, 2),
            ("run.connections", 200.0, 2),
            ("run.latency_mean", 0.103_07, 4),
            ("run.latency_stdev", 0.052_76, 4),
            ("run.latency_max", 1.76, 4),
            ("run.latency_p50", 0.096_45, 7),
            ("run.latency_p75", 0.098_76, 8),
            ("run.latency_p90", 0.103_4, 9),
            ("run.latency_p99", 0.289_35, 10),
            ("run.requests", 41_559.0, 11),
            ("run.duration", 120.0, 11),
            ("run.errors", 56.0, 12),
            ("run.timeouts", 1197.0, 12),
            ("run.requests_per_s", 346.15, 13),
            ("run.bytes_per_s", 56.79 * 1024.0, 14),
        ],
    );
    assert_eq!(text_of(&set, "run.tool", "wrk-flask"), Some("wrk"));
    assert_eq!(text_of(&set, "run.target", "wrk-flask"), Some("http://192.168.56.10:8888"));
    for (name, rate, p99) in
        [("wrk-sanic", 4907.53, 0.072_22), ("wrk-tornado", 1743.52, 0.1281), ("wrk-klein", 1635.87, 0.155_28)]
    {
        let (set, _) = parts(whole(case(format!("web-framework-bench/{name}.txt"))));
        check_row(&set, name, &[("run.requests_per_s", rate, 12), ("run.latency_p99", p99, 10)]);
        assert!(set.get("run.timeouts", name).is_none(), "what was not printed is not zero");
    }
}

#[test]
fn wrk_of_this_machine() {
    let (set, _) = parts(whole(output("wrk/wrk-404.txt")));
    check_row(&set, "wrk-404", &[("run.non_2xx", 816.0, 7), ("run.requests_per_s", 739.02, 8)]);
    assert!(set.get("run.latency_p99", "wrk-404").is_none());
    let (set, _) = parts(whole(output("wrk/wrk-latency.txt")));
    check_row(&set, "wrk-latency", &[("run.latency_p99", 0.145_85, 10), ("run.duration", 2.02, 11)]);
}

#[test]
fn a_second_run_in_a_file_has_a_name_of_its_own() {
    let first = string_of(case("web-framework-bench/wrk-sanic.txt"));
    let second = string_of(case("web-framework-bench/wrk-klein.txt"));
    let (set, file) = parts(import("runs.txt", format!("{first}{second}\n$ wrk -c 4 http://x\n{first}")));
    assert_eq!(file.unread, 0);
    for (row, rate) in [("runs", 4907.53), ("runs#2", 1635.87), ("runs#3", 4907.53)] {
        assert_eq!(one(&set, "run.requests_per_s", row).0, rate);
    }
}

#[test]
fn damage_inside_a_run_is_counted() {
    let text = string_of(case("web-framework-bench/wrk-sanic.txt"));
    let text = text.replace("50% 38.91ms", "50% 38.9#ms").replace("2 threads and", "~~~~");
    let (set, file) = parts(import("x.txt", text));
    assert_eq!((file.unread, file.first_unread.unwrap().0), (1, 2));
    assert!(set.get("run.latency_p50", "x").is_none());
    check_row(&set, "x", &[("run.latency_p75", 0.046_42, 8)]);
}

#[test]
fn ab_hey_and_vegeta() {
    let (set, file) = parts(whole(output("ab/ab.txt")));
    assert_eq!(file.formats, ["ab"]);
    check_row(
        &set,
        "ab",
        &[
            ("run.connections", 4.0, 19),
            ("run.duration", 0.637, 20),
            ("run.requests", 300.0, 21),
            ("run.errors", 0.0, 22),
            ("run.requests_per_s", 471.22, 25),
            ("run.bytes_per_s", 221.34 * 1024.0, 28),
            ("run.latency_min", 0.0, 35),
            ("run.latency_mean", 0.008, 35),
            ("run.latency_stdev", 0.0305, 35),
            ("run.latency_max", 0.269, 35),
            ("run.latency_p50", 0.002, 38),
            ("run.latency_p95", 0.033, 43),
            ("run.latency_p99", 0.229, 45),
        ],
    );
    assert_eq!(text_of(&set, "run.target", "ab"), Some("127.0.0.1:18911/"));

    let (set, _) = parts(whole(output("hey/hey.txt")));
    check_row(
        &set,
        "hey",
        &[
            ("run.duration", 2.0013, 3),
            ("run.latency_max", 0.1021, 4),
            ("run.requests_per_s", 23_456.78, 7),
            ("run.latency_p50", 0.0018, 21),
            ("run.latency_p99", 0.0106, 25),
            ("run.requests", 46_944.0, 35),
            ("run.non_2xx", 44.0, 36),
            ("run.errors", 7.0, 39),
        ],
    );

    let (set, _) = parts(import("v.txt", bytes(output("vegeta/report.txt"))));
    check_row(
        &set,
        "v",
        &[
            ("run.requests", 500.0, 1),
            ("run.requests_per_s", 98.93, 1),
            ("run.duration", 5.003, 2),
            ("run.latency_min", 512.411e-6, 3),
            ("run.latency_p50", 1.101e-3, 3),
            ("run.latency_p99", 5.634e-3, 3),
            ("run.latency_max", 1.2, 3),
            ("run.errors", 2.0, 7),
            ("run.non_2xx", 3.0, 7),
        ],
    );
}

#[test]
fn sysbench_of_every_kind() {
    let (set, _) = parts(whole(output("sysbench/sysbench-cpu.txt")));
    check_row(
        &set,
        "sysbench-cpu",
        &[
            ("run.threads", 2.0, 4),
            ("run.events_per_s", 4828.36, 15),
            ("run.duration", 2.0016, 18),
            ("run.requests", 9667.0, 19),
            ("run.latency_min", 0.22e-3, 22),
            ("run.latency_mean", 0.41e-3, 23),
            ("run.latency_max", 26.35e-3, 24),
            ("run.latency_p95", 0.26e-3, 25),
        ],
    );
    assert_eq!(text_of(&set, "run.tool", "sysbench-cpu"), Some("sysbench cpu"));

    let (set, _) = parts(whole(output("sysbench/sysbench-memory.txt")));
    let row = "sysbench-memory";
    check_row(
        &set,
        row,
        &[("run.events_per_s", 7_130_701.92, 18), ("run.bytes_per_s", 6963.58 * 1_048_576.0, 20)],
    );
    assert_eq!(text_of(&set, "run.tool", row), Some("sysbench memory"));

    let (set, _) = parts(whole(output("sysbench/sysbench-fileio.txt")));
    check_row(
        &set,
        "sysbench-fileio",
        &[
            ("run.read_iops", 61_846.84, 24),
            ("run.write_iops", 41_231.23, 25),
            ("run.read_bytes_per_s", 966.36 * 1_048_576.0, 29),
            ("run.write_bytes_per_s", 644.24 * 1_048_576.0, 30),
            ("run.latency_max", 4.04e-3, 39),
        ],
    );

    let (set, _) = parts(whole(output("sysbench/sysbench-threads.txt")));
    check_row(&set, "sysbench-threads", &[("run.events_per_s", 3937.0 / 2.0004, 15)]);

    let (set, _) = parts(whole(output("sysbench/oltp-0.4.txt")));
    check_row(
        &set,
        "oltp-0.4",
        &[
            ("run.threads", 8.0, 4),
            ("run.transactions_per_s", 194.11, 22),
            ("run.requests_per_s", 3688.13, 24),
            ("run.latency_p95", 0.074_54, 35),
        ],
    );
    assert_eq!(text_of(&set, "run.tool", "oltp-0.4"), Some("sysbench oltp"));
}

#[test]
fn fio_reports_for_people() {
    let (set, file) = parts(whole(output("fio/fio-randrw.txt")));
    assert_eq!(file.formats, ["fio"]);
    let row = "fio-randrw:randrw";
    check_row(
        &set,
        row,
        &[
            ("run.connections", 1.0, 6),
            ("run.read_iops", 15_300.0, 7),
            ("run.read_bytes_per_s", 59.8 * 1_048_576.0, 7),
            ("run.duration", 2.001, 7),
            ("run.latency_min", 39e-6, 9),
            ("run.latency_mean", 54.65e-6, 9),
            ("run.latency_p50", 53e-6, 12),
            ("run.latency_p99", 87e-6, 14),
            ("run.latency_p999", 139e-6, 14),
            ("run.write_iops", 15_300.0, 18),
            ("run.requests", 61_356.0, 36),
        ],
    );
    // The percentiles of the writes are in another unit.
    check_row(&set, "fio-randrw:randrw:write", &[("run.latency_p99", 6880e-9, 25)]);
    assert_eq!(text_of(&set, "run.tool", row), Some("fio randrw"));

    let (set, _) = parts(whole(output("fio/fio-two.txt")));
    check_row(&set, "fio-two:seqread", &[("run.read_bytes_per_s", 2001.0 * 1_048_576.0, 9)]);
    check_row(
        &set,
        "fio-two:second",
        &[("run.write_iops", 213_000.0, 30), ("run.write_bytes_per_s", 13.0 * 1024_f64.powi(3), 30)],
    );
    assert!(set.get("run.read_iops", "fio-two:second").is_none());

    let (set, _) = parts(whole(output("fio/version-2.txt")));
    check_row(
        &set,
        "version-2:randread",
        &[
            ("run.read_iops", 15_378.0, 6),
            ("run.read_bytes_per_s", 61_514.0 * 1024.0, 6),
            ("run.duration", 68.184, 6),
            ("run.latency_mean", 1038.73e-6, 9),
            ("run.latency_p99", 2480e-6, 14),
            ("run.requests", 1_048_576.0, 23),
        ],
    );
}

#[test]
fn fio_json() {
    let expected = [
        ("run.read_iops", 26_763.236_763),
        ("run.read_bytes_per_s", 109_622_217.0),
        ("run.requests", 26_790.0),
        ("run.duration", 1.001),
        ("run.latency_mean", 73_604.323_143e-9),
        ("run.latency_p50", 67_072e-9),
        ("run.latency_p99", 127_488e-9),
        ("run.latency_p999", 626_688e-9),
        ("run.connections", 2.0),
    ];
    let path = output("fio/randread.json");
    let (set, file) = parts(whole(&path));
    assert_eq!(file.formats, ["fio JSON"]);
    for (metric, value) in expected {
        let (got, _) = one(&set, metric, "randread:rr");
        assert!(near(got, value), "{metric} {got}");
    }
    assert_eq!(one(&set, "run.read_iops", "randread:rr").1, 27);
    assert!(set.get("run.write_iops", "randread:rr").is_none(), "it wrote nothing");
    assert_eq!(text_of(&set, "run.tool", "randread:rr"), Some("fio randread"));
    // The same on one line.
    let squeezed: String = string_of(path).split_whitespace().collect();
    let squeezed = squeezed.replace("fioversion", "fio version").replace("joboptions", "job options");
    let (set, _) = parts(import("one.json", squeezed));
    for (metric, value) in expected {
        check_row(&set, "one:rr", &[(metric, value, 1)]);
    }
}

#[test]
fn redis_and_postgres() {
    let (set, _) = parts(whole(output("redis-benchmark/redis-q.txt")));
    check_row(&set, "redis-q:SET", &[("run.requests_per_s", 64_102.56, 1), ("run.latency_p50", 0.399e-3, 1)]);
    check_row(&set, "redis-q:LPUSH", &[("run.requests_per_s", 72_463.77, 3)]);
    let (set, _) = parts(whole(output("redis-benchmark/redis-long.txt")));
    check_row(
        &set,
        "redis-long:SET",
        &[
            ("run.requests", 5000.0, 2),
            ("run.connections", 50.0, 3),
            ("run.requests_per_s", 89_285.71, 38),
            ("run.latency_mean", 0.292e-3, 41),
            ("run.latency_max", 0.831e-3, 41),
        ],
    );
    check_row(&set, "redis-long:GET", &[("run.latency_p99", 0.407e-3, 80)]);
    let (set, _) = parts(whole(output("redis-benchmark/redis-csv.txt")));
    check_row(
        &set,
        "redis-csv:GET",
        &[("run.requests_per_s", 95_238.09, 3), ("run.latency_p99", 0.639e-3, 3)],
    );

    let (set, _) = parts(import("p.txt", bytes(output("pgbench/pgbench.txt"))));
    check_row(
        &set,
        "p",
        &[
            ("run.connections", 2.0, 5),
            ("run.duration", 2.0, 8),
            ("run.requests", 3371.0, 9),
            ("run.errors", 0.0, 10),
            ("run.latency_mean", 1.186e-3, 11),
            ("run.transactions_per_s", 1_685.993_153, 13),
        ],
    );
}

#[test]
fn layouts_of_xfs() {
    for (file, ag_blocks, data_blocks) in
        [("mkfs-agcount16", 182_845_440, 2_925_527_040), ("mkfs-agsize", 182_845_376, 2_925_526_016)]
    {
        let (set, read) = parts(whole(case(format!("xfs-raid10/{file}.txt"))));
        assert_eq!(read.formats, ["mkfs.xfs"]);
        let [event] = set.events.as_slice() else { panic!("one event") };
        assert_eq!(event.place.unwrap().line, 1);
        assert_eq!(
            event.kind,
            EventKind::Geometry {
                device: "/dev/sdb".to_owned(),
                ag_count: 16,
                ag_blocks,
                block_bytes: 4096,
                stripe_unit_blocks: 64,
                stripe_width_blocks: 384,
                sector_bytes: 512,
                data_blocks,
            }
        );
    }
    let (set, file) = parts(whole(output("mkfs/raid10-warning.txt")));
    assert!(matches!(set.events[0].kind, EventKind::Geometry { ag_blocks: 182_845_440, .. }));
    assert!(file.notes[0].contains("multiple of the stripe width"));
}

#[test]
fn an_array_is_noted() {
    let text = "/dev/md0:\n           Version : 1.2\n        Raid Level : raid10\n        Array Size : 11701999616 (10.90 TiB 11.98 TB)\n      \
                Raid Devices : 12\n            Layout : near=2\n        Chunk Size : 256K\n\n    Number   Major   Minor   RaidDevice State\n       \
                0       8        0        0      active sync set-A   /dev/sda\n";
    let (set, file) = parts(import("md.txt", text));
    assert_eq!((file.unread, set.metrics().count(), set.events.len()), (0, 0, 0));
    let command = "mitra xfs-geometry --level raid10 --disks 12 --stripe-unit 256k";
    assert_eq!(file.notes, [format!("/dev/md0 is raid10 of 12 disks, chunk 256K: see {command}")]);
}

#[test]
fn a_disk_of_an_array_that_failed_is_told() {
    let (set, file) = parts(whole(output("mdadm/degraded.txt")));
    assert_eq!(file.notes[0], "/dev/md127 is active, degraded");
    let EventKind::DeviceError { what, device, text } = &set.events[0].kind else {
        panic!("{:?}", set.events)
    };
    assert_eq!((what.as_str(), device.as_str(), set.events.len()), ("device-lost", "sdb1", 1));
    assert!(text.contains("faulty"), "{text}");
    assert_eq!(set.events[0].place.unwrap().line, 26);
    // What another array says is not this one's.
    let two = [&bytes(output("mdadm/well.txt"))[..], &bytes(output("mdadm/degraded.txt"))[..]].concat();
    let (_, file) = parts(import("x", two));
    assert_eq!((file.unread, file.notes.len()), (0, 3));
    assert!(file.notes[1].starts_with("/dev/md127 is active, degraded"), "{:?}", file.notes);
    let (set, file) = parts(whole(output("mdadm/well.txt")));
    assert!(set.events.is_empty() && file.notes.len() == 1, "{:?}", file.notes);
}

#[test]
fn a_job_that_ran_twice_has_two_rows() {
    let text = string_of(output("fio/version-2.txt"));
    let (set, _) = parts(import("twice.txt", format!("{text}\n{}", text.replace("15378", "9999"))));
    assert_eq!(one(&set, "run.read_iops", "twice:randread").0, 15_378.0);
    assert_eq!(one(&set, "run.read_iops", "twice:randread#2").0, 9999.0);
}

#[test]
fn what_only_looks_like_a_benchmark_is_not_read() {
    for text in [
        "Running tests @ home\n",
        "Running 2 test @ http://x\n",
        "sysbench is a tool\n",
        "Summary:\n  Total: 3 errors\n",
        "Requests [pending]\n",
        "{\n  \"version\": 3\n}\n",
        "served: 12 requests per second on average\n",
        "transaction type: none\n",
        "meta-data=/dev/sdb\n",
        "====== notes ======\nhello\n",
        "a: (g=0) and more\n",
    ] {
        let (set, file) = parts(import("x.txt", text));
        assert_eq!(file.unread, file.lines, "{text:?} was read");
        assert!(set.events.is_empty());
        assert_eq!(set.metrics().count(), 0, "{text:?}");
    }
}

/// The folders of this family.
const FOLDERS: &[&str] =
    &["wrk", "ab", "hey", "vegeta", "sysbench", "fio", "redis-benchmark", "pgbench", "mkfs", "mdadm"];

proptest! {
    #![proptest_config(tries(300))]

    #[test]
    fn mutated_outputs_do_not_panic(content in damaged(outputs_of(FOLDERS))) {
        survive("fuzz.txt", content);
    }
}
