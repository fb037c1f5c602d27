//! Published evidence of real incidents leads to its verdict, by `mitra explain` on the files alone.
//!
//! The cases are in `tests/cases`, as they were published. Nothing may hang on how the files are called, on the names of
//! devices and processes, on the exact values or on the time of day: `disguised` changes all of them.

#[path = "evidence/disguise.rs"]
mod disguise;
#[path = "evidence/report.rs"]
mod report;

use std::path::{Path, PathBuf};

use disguise::{Disguise, Form};
use report::explain;

fn case(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases").join(name)
}

/// Each case with the conditions that may be named as its root, and those a weaker answer may name.
const CASES: &[(&str, &str, &[&str])] = &[
    ("page-cache-flood", "streaming-read-flood", &[]),
    ("upload-100g", "page-cache-thrash", &[]),
    ("lb-session-drop", "slab-dentry-bloat", &[]),
    ("out-of-socket-memory", "tcp-orphan-pressure", &[]),
    ("segfault-libc", "process-crash", &[]),
    ("content-page-faults", "allocator-carrier-misfit", &["minor-fault-storm"]),
    ("python-native-leak", "memory-leak-native", &[]),
];

#[test]
fn a_flood_of_reads_is_named_by_its_device() {
    let r = explain(&case("page-cache-flood"));
    assert_eq!(r.root(), Some("streaming-read-flood"));
    assert_eq!(r.culprit("device"), Some("vgca0"));
    for link in [
        "page-cache-eviction",
        "kswapd-scanning",
        "active-file-eviction",
        "major-faults",
        "disk-saturated",
        "iowait-high",
    ] {
        assert!(r.chain().contains(&link), "{link} is missing in {:?}", r.chain());
    }
    let read = r.evidence("streaming-read-flood", "disk.read_bytes", "vgca0");
    assert!((read.before / 512.0 - 1_612.8).abs() < 1.0);
    assert!((1.3e6..1.5e6).contains(&(read.during / 512.0)));
    r.quotes("streaming-read-flood", "vm.pgscan_kswapd", "sar-B.txt", 5, 375_196.37);
    r.quotes("streaming-read-flood", "vm.pgmajfault", "sar-B.txt", 5, 633.88);
    r.quotes("active-file-eviction", "mem.active_file", "meminfo-history.txt", 10, 4_190_408.0 * 1024.0);
    r.quotes("active-file-eviction", "mem.active_file", "meminfo-history.txt", 53, 4_964.0 * 1024.0);
    r.quotes("iowait-high", "sys.cpu_iowait", "sar-u.txt", 7, 0.5877);
    r.quotes("disk-saturated", "disk.io_time", "sar-d-night.txt", 9, 1.0034);
    let anon = r.evidence("streaming-read-flood", "mem.anon", "");
    assert!((anon.during / anon.before - 1.0).abs() < 0.0005, "{anon:?}");
    for text in [
        "saturation is not latency",
        "sda is a victim",
        "sdb is a victim",
        "watermark",
        "vm.swappiness = 1",
        "stops with them",
    ] {
        assert!(r.says(text), "nothing says {text:?}");
    }
    assert!(r.ruled_out("anonymous-growth").contains("0.01 %"));
}

#[test]
fn a_working_set_that_does_not_fit_is_no_faulty_device() {
    let r = explain(&case("upload-100g"));
    assert_eq!(r.root(), Some("page-cache-thrash"));
    assert_eq!(r.culprit("device"), Some("xvdb"));
    for link in ["disk-saturated", "iowait-high"] {
        assert!(r.chain().contains(&link), "{link} is missing in {:?}", r.chain());
    }
    r.quotes("page-cache-thrash", "cache.hit_ratio", "cachestat.txt", 4, 0.741);
    r.quotes("page-cache-thrash", "cache.hit_ratio", "cachestat.txt", 6, 0.065);
    let hits = r.evidence("page-cache-thrash", "cache.hit_ratio", "");
    assert!((hits.before - 1.0).abs() < 1e-9 && hits.during < 0.3, "{hits:?}");
    let cached = r.evidence("page-cache-thrash", "mem.cached", "");
    assert!((cached.during / 1024.0 / 1024.0 - 48_020.0).abs() < 30.0, "{cached:?}");
    assert!(r.says("its latency is its queue"));
    assert!(r.says("in parts") && r.says("more memory"));
}

#[test]
fn lookups_in_vain_stop_a_load_balancer() {
    let r = explain(&case("lb-session-drop"));
    assert_eq!(r.root(), Some("slab-dentry-bloat"));
    assert_eq!(r.culprit("process"), Some("curl"));
    assert_eq!(r.culprit("slab"), Some("dentry"));
    assert_eq!(r.culprit("path"), Some("/home/me/.pki/nssdb"));
    for link in ["mass-reclaim", "scheduling-stall", "session-drop"] {
        assert!(r.chain().contains(&link), "{link} is missing in {:?}", r.chain());
    }
    r.quotes("slab-dentry-bloat", "slab.bytes", "slabtop.txt", 9, 78_967_272.0 * 1024.0);
    r.quotes("slab-dentry-bloat", "call.errors", "strace-c-access.txt", 3, 6_643.0);
    r.quotes("scheduling-stall", "sys.cpu_system", "sar-P-ALL.txt", 27, 0.8418 * 12.0);
    r.quotes_line("scheduling-stall", "event.pause", "strace.txt", 4);
    let freed = r.evidence("mass-reclaim", "mem.free_change", "");
    assert!((77_000.0..169_000.0).contains(&freed.during), "{freed:?}");
    for text in [
        "12:41:21.913199 to 12:41:22.413476",
        "30 of 32 calls",
        "not swap",
        "%iowait",
        "%steal",
        "not load",
        "is a symptom",
        "vm.vfs_cache_pressure = 100",
        "NSS_SDB_USE_CACHE=YES",
        "independent links",
    ] {
        assert!(r.says(text), "nothing says {text:?}");
    }
}

#[test]
fn orphans_are_not_memory() {
    let r = explain(&case("out-of-socket-memory"));
    assert_eq!(r.root(), Some("tcp-orphan-pressure"));
    assert!(r.ruled_out("tcp-memory-pressure").contains("1894 pages used of 6187968 allowed"));
    for text in
        ["33 %", "65.8 %", "131.6 %", "four times", "net.ipv4.tcp_max_orphans=131072", "wrong about it"]
    {
        assert!(r.says(text), "nothing says {text:?}");
    }
    r.quotes("tcp-orphan-pressure", "sock.tcp_orphan", "sockstat", 2, 21_564.0);
    r.quotes("tcp-orphan-pressure", "sysctl.net.ipv4.tcp_max_orphans", "tcp_max_orphans", 1, 65_536.0);
    r.quotes_line("tcp-orphan-pressure", "sysctl.net.ipv4.tcp_mem", "tcp_mem", 1);
}

#[test]
fn two_crashes_at_one_place() {
    let r = explain(&case("segfault-libc"));
    assert_eq!(r.root(), Some("process-crash"));
    assert_eq!(r.culprit("library"), Some("libc-2.9.so"));
    for text in
        ["0x7008b", "user mode", "not present", "field at offset 8 of a null pointer", "rules out random"]
    {
        assert!(r.says(text), "nothing says {text:?}");
    }
    r.quotes_line("process-crash", "event.crash", "kern.log", 1);
    r.quotes_line("process-crash", "event.crash", "kern.log", 2);
}

#[test]
fn faults_come_from_an_allocator_that_does_not_fit() {
    let r = explain(&case("content-page-faults"));
    assert_eq!(r.root(), Some("allocator-carrier-misfit"));
    assert_eq!(r.culprit("allocator"), Some("eheap_alloc 0"));
    for link in ["minor-fault-storm", "mmap-lock-contention"] {
        assert!(r.chain().contains(&link), "{link} is missing in {:?}", r.chain());
    }
    let faults = r.evidence("minor-fault-storm", "vm.pgfault", "");
    assert!((220_000.0..357_000.0).contains(&faults.during));
    assert!(r.evidence("minor-fault-storm", "vm.pgmajfault", "").during == 0.0);
    r.quotes(
        "allocator-carrier-misfit",
        "allocator.sbcs_to_mbcs",
        "recon_alloc.txt",
        3,
        1.786_516_853_932_584_2,
    );
    for text in ["3864608", "524288", "0.642", "0.899", "4096 KB", "2048 KB", "40960 KB", "not for a disk"] {
        assert!(r.says(text), "nothing says {text:?}");
    }
}

#[test]
fn a_leak_that_the_interpreter_does_not_see() {
    let r = explain(&case("python-native-leak"));
    assert_eq!(r.root(), Some("memory-leak-native"));
    let known = r.evidence("memory-leak-native", "census.bytes", "(all)");
    assert!((known.during - 59_814_702.0).abs() < 0.5);
    r.quotes("memory-leak-native", "census.bytes", "guppy-heap.txt", 1, 59_814_702.0);
    let strings = r.evidence("memory-leak-native", "census.count", "couchbase.context_info");
    assert!((strings.before - 49_791.0).abs() < 0.5 && (strings.during - 2_082_193.0).abs() < 0.5);
    for text in ["x41.8", "equally often", "garbage collector cannot be the cause", "stopgap", "[heap]"] {
        assert!(r.says(text), "nothing says {text:?}");
    }
}

#[test]
fn benchmarks_are_compared_and_no_incident() {
    let r = explain(&case("web-framework-bench"));
    assert_eq!(r.root(), None);
    for text in ["4,907.53", "1,743.52", "1,635.87", "346.15", "1,197 timeouts", "56 errors"] {
        assert!(r.says(text), "nothing says {text:?}");
    }
}

#[test]
fn a_stripe_is_a_finding_and_no_incident() {
    let r = explain(&case("xfs-raid10"));
    assert_eq!(r.root(), None);
    for text in [
        "182845376",
        "182845440",
        "sunit=512",
        "swidth=3072",
        "256 KiB",
        "6 data disks",
        "agsize=748934660096",
    ] {
        assert!(r.says(text), "nothing says {text:?}");
    }
}

#[test]
fn every_number_of_a_chain_has_its_line() {
    for (name, ..) in CASES {
        for (condition, metric, lines) in explain(&case(name)).sources() {
            assert!(lines > 0, "{name}: {condition} quotes no line for {metric}");
        }
    }
}

#[test]
fn disguised_the_verdicts_stay() {
    for seed in 1..=4 {
        for (name, root, _) in CASES {
            let dir = Disguise::new(seed).of_case(&case(name));
            let r = explain(dir.path());
            assert_eq!(r.root(), Some(*root), "{name} in disguise {seed}: {}", r.text());
        }
    }
}

#[test]
fn in_other_forms_the_verdicts_stay() {
    for form in [Form::Windows, Form::Packed, Form::OneFile] {
        for (name, root, _) in CASES {
            let dir = Disguise::in_form(&case(name), form);
            let r = explain(dir.path());
            assert_eq!(r.root(), Some(*root), "{name} as {form:?}: {}", r.text());
        }
    }
}

#[test]
fn of_halves_and_pieces_no_answer_is_wrong() {
    for form in [Form::Cut, Form::Half(true), Form::Half(false)] {
        for (name, root, weaker) in CASES {
            let dir = Disguise::in_form(&case(name), form);
            let r = explain(dir.path());
            let said = r.root();
            assert!(
                said.is_none_or(|said| said == *root || weaker.contains(&said)),
                "{name} as {form:?}: {said:?}\n{}",
                r.text()
            );
        }
    }
}

#[test]
fn without_any_one_file_no_answer_is_wrong() {
    for (name, root, weaker) in CASES {
        let files = disguise::files(&case(name));
        // Without its only file a case is no case.
        for file in files.iter().filter(|_| files.len() > 1) {
            let dir = Disguise::plain().without(&case(name), file);
            let r = explain(dir.path());
            let said = r.root();
            assert!(
                said.is_none_or(|said| said == *root || weaker.contains(&said)),
                "{name} without {}: {said:?}\n{}",
                file.display(),
                r.text()
            );
        }
    }
}

#[test]
fn good_sides_alone_are_no_incident() {
    for (name, folder) in [
        ("upload-100g", "baseline-32g"),
        ("python-native-leak", "at-start"),
        ("lb-session-drop", "after-fix"),
    ] {
        let r = explain(&case(name).join(folder));
        assert_eq!(r.root(), None, "{name}/{folder}: {}", r.text());
    }
}
