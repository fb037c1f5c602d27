//! Recorders and consoles of whole nodes: below, turbostat, smartctl, Kubernetes, PostgreSQL's locks; NFS and iftop.

use mitra_model::EventKind;
use mitra_model::time::SECOND;
use proptest::prelude::*;

use crate::support::{
    bytes, check, check_row, damaged, events, import, import_file, is_empty, one, output, outputs_of, series,
    survive, text_of, tries, whole,
};

/// 2026-11-27 23:10:00 UTC.
const T0: i64 = 1_795_821_000;
const GIB: f64 = 1024.0 * 1024.0 * 1024.0;

#[test]
fn dumps_of_below() {
    let read = whole(output("below/system.csv"));
    let set = &read.set;
    assert_eq!(series(set, "mem.free", "").axis.t, [T0 * SECOND, (T0 + 5) * SECOND]);
    check(set, "mem.free", "", &[1.2 * GIB, 1.1 * GIB]);
    check(set, "cpu.user", "0", &[0.15, 0.25]);
    check(set, "vm.pgscan_direct", "", &[120.0, 0.0]);
    let last = |set: &mitra_model::SeriesSet, metric: &str, row: &str| {
        series(set, metric, row).values.iter().next_back().copied()
    };
    assert_eq!(last(set, "sys.ctxt", ""), Some(4000.0));
    check(set, "sys.procs_blocked", "", &[1.0, 0.0]);
    assert!(set.get("sys.cpu_irq", "").is_none(), "below prints iowait there");
    let read = whole(output("below/process.json"));
    let set = &read.set;
    check(set, "task.cpu_time", "4242@0", &[1.5, 0.5]);
    check(set, "task.read_bytes", "4242@0", &[1024.0 * 1024.0, 0.0]);
    check(set, "task.majflt", "4242@0", &[2.5, 0.0]);
    assert_eq!(text_of(set, "task.comm", "17@0"), Some("kswapd0"));
    assert_eq!(one(set, "task.rss", "17@0"), (0.0, 1));
    let read = whole(output("below/disk-raw.csv"));
    assert_eq!(last(&read.set, "disk.reads", "sda"), Some(10.0));
    check(&read.set, "disk.write_bytes", "sda", &[0.0, 4096.0]);
    assert_eq!(last(&read.set, "disk.read_time", "sda"), Some(0.05));
    let read = whole(output("below/cgroup.json"));
    check(&read.set, "cgroup.cpu_usage", "system.slice", &[0.4]);
    check(&read.set, "cgroup.throttled_time", "system.slice", &[0.25]);
    check(&read.set, "cgroup.io_read_bytes", "<root>", &[0.0]);
    check(&read.set, "cgroup.psi_cpu_some", "system.slice", &[0.12]);
}

#[test]
fn clocks_of_turbostat() {
    let read = whole(output("turbostat/cores.txt"));
    assert!(is_empty(&read));
    let notes = read.files[0].notes.join("\n");
    for wanted in ["2036 MHz", "1200 to 2873", "2900 MHz", "99 °C", "2 system management"] {
        assert!(notes.contains(wanted), "{wanted}: {notes}");
    }
    // With `--show` some columns are left out, and with `--Summary` the CPUs.
    let read = import("x", "Busy%\tBzy_MHz\tIRQ\tPkgTmp\n0.11\t800\t844\t39\n98.67\t4530\t18091\t69\n");
    assert_eq!(read.files[0].formats, ["turbostat"]);
    let note = &read.files[0].notes[0];
    assert!(note.contains("2665 MHz") && note.contains("69 °C") && !note.contains("TSC"), "{note}");
    let read = whole(output("turbostat/times.txt"));
    check(&read.set, "sys.intr", "", &[500.0]);
    assert_eq!(series(&read.set, "sys.intr", "").axis.t, [T0 * SECOND + 5 * SECOND + SECOND / 2]);
}

#[test]
fn what_disks_say_of_themselves() {
    let read = whole(output("smartctl/a-sata.txt"));
    assert_eq!(one(&read.set, "disk.rotational", "sdb"), (1.0, 10));
    let notes = read.files[0].notes.join("\n");
    assert!(notes.contains("sdb (ST4000NM0035-1V4107) says of itself that it fails"), "{notes}");
    assert!(
        notes.contains("3984 sectors were replaced") && notes.contains("16 sectors cannot be read"),
        "{notes}"
    );
    assert!(!notes.contains("cable"), "{notes}");
    let read = whole(output("smartctl/a-nvme.txt"));
    let notes = read.files[0].notes.join("\n");
    assert!(notes.contains("97 percent of its life") && notes.contains("2 errors of its medium"), "{notes}");
    assert!(!notes.contains("fails"), "{notes}");
    let read = whole(output("smartctl/sda.json"));
    assert_eq!(one(&read.set, "disk.rotational", "sda").0, 0.0);
    assert!(read.files[0].notes.iter().any(|note| note.contains("7 sectors were replaced")));
    assert!(!read.files[0].notes.iter().any(|note| note.contains("fails")));
    let failing = String::from_utf8(bytes(output("smartctl/sda.json")))
        .unwrap()
        .replace("\"passed\": true", "\"passed\": false");
    assert!(import("x", failing).files[0].notes.iter().any(|note| note.contains("fails")));
    // A device that could not be opened says nothing.
    let none = "smartctl 7.3 2022-02-28 r5338 [x86_64-linux-6.1.0] (local build)\n\nSmartctl open device: /dev/sdz failed: No such device\n";
    assert!(import("x", none).files[0].unread > 0);
}

/// All sections of a report are passed over, up to the counts in the last of them.
#[test]
fn disks_whose_report_is_long() {
    let notes = |name: &str| {
        let mut read = whole(output(format!("smartctl/{name}")));
        assert!(read.files[0].formats[0].starts_with("smartctl"), "{name}: {:?}", read.files[0].formats);
        read.files.remove(0).notes
    };
    assert_eq!(
        notes("x-sata.txt"),
        ["smartctl: of WDC WD40EFRX-68N32N0, in its life: 12 sectors were replaced by spare ones, \
             4 sectors cannot be read and wait to be replaced"]
    );
    assert_eq!(
        notes("A-sata.txt"),
        ["smartctl: of sdc, in its life: 61 sectors cannot be read and wait to be replaced"]
    );
    assert_eq!(
        notes("a-sas.txt"),
        ["smartctl: of ST600MM0006, in its life: 24 sectors were replaced by spare ones, \
             4 errors could not be corrected"]
    );
    assert_eq!(
        notes("sas.json"),
        [
            "smartctl: of sdd, in its life: 7 sectors were replaced by spare ones, 2 errors could not be corrected"
        ]
    );
    // Some disks keep another count in the upper half.
    let packed = String::from_utf8(bytes(output("smartctl/sda.json")))
        .unwrap()
        .replace("{\"value\": 7, \"string\": \"7\"}", "{\"value\": 131072007, \"string\": \"7 (2000 0)\"}");
    // Whatever comes first.
    let sorted = packed.replace(
        "\"value\": 131072007, \"string\": \"7 (2000 0)\"",
        "\"string\": \"7 (2000 0)\", \"value\": 131072007",
    );
    assert!(packed != sorted);
    for text in [packed, sorted] {
        assert!(
            import("x", text).files[0].notes.iter().any(|note| note.contains(": 7 sectors were replaced"))
        );
    }
    // What follows is somebody else's, behind a prompt or not.
    let links = "2: eth0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc mq state UP mode DEFAULT group default qlen 1000\n    link/ether 52:54:00:00:00:01 brd ff:ff:ff:ff:ff:ff\n    RX:  bytes packets errors dropped  missed   mcast\n        1000      10      0       7       0       0\n    TX:  bytes packets errors dropped carrier collsns\n        2000      20      0       0       0       0\n";
    let read = import("x", [&bytes(output("smartctl/A-sata.txt"))[..], links.as_bytes()].concat());
    assert_eq!(read.files[0].formats, ["smartctl", "ip -s link"]);
    let after = "root@web17:~# cat /proc/meminfo\nMemTotal:       16384 kB\nMemFree:         8192 kB\n";
    let read = import("x", [&bytes(output("smartctl/A-sata.txt"))[..], after.as_bytes()].concat());
    assert!(read.set.get("mem.total", "").is_some(), "{:?}", read.files[0]);
}

#[test]
fn containers_of_crictl() {
    let read = whole(output("crictl/stats.txt"));
    check(&read.set, "cgroup.cpu_usage", "db", &[1.5025]);
    check_row(&read.set, "web", &[("cgroup.memory_current", 120_500_000.0, 2)]);
    let read = whole(output("crictl/stats-old.txt"));
    check(&read.set, "cgroup.cpu_usage", "4ee8a1f0c2d3a", &[0.0039]);
}

#[test]
fn nodes_of_kubernetes() {
    let read = whole(output("kubectl/describe-node.txt"));
    let kills =
        events(&read, |kind| matches!(kind, EventKind::OomKill { pid: 4242, comm, .. } if comm == "java"));
    assert_eq!((kills.len(), kills[0].place.unwrap().line), (1, 46));
    let notes = read.files[0].notes.join("\n");
    for wanted in
        ["MemoryPressure is True", "200 % of its cpu", "156 % of its memory", "EvictionThresholdMet"]
    {
        assert!(notes.contains(wanted), "{wanted}: {notes}");
    }
    assert!(!notes.contains("DiskPressure"), "{notes}");
    // A kill was its age ago, and what follows is somebody else's.
    let after = "              total        used        free      shared  buff/cache   available\n\
                 Mem:    8148532000  4000000000  1000000000           0  3148532000  4148532000\n";
    let stamp = &b"Fri Nov 27 23:10:00 UTC 2026\n"[..];
    let read = import("x", [stamp, &bytes(output("kubectl/describe-node.txt")), after.as_bytes()].concat());
    assert_eq!(read.set.events[0].real, (T0 - 8 * 60 - 12) * SECOND);
    assert_eq!(one(&read.set, "mem.total", "").0, 8_148_532_000.0 * 1024.0);
    let read = whole(output("kubectl/describe-node-well.txt"));
    assert!(read.files[0].notes.is_empty() && read.set.events.is_empty(), "{:?}", read.files[0].notes);
}

#[test]
fn locks_of_postgres() {
    let set = whole(output("postgres/locks.txt")).set;
    assert_eq!(text_of(&set, "session.waits_for", "4243"), Some("transactionid"));
    assert_eq!(text_of(&set, "session.blocked_by", "4243"), Some("4242"));
    assert_eq!(text_of(&set, "session.activity", "4243"), Some("lock waiting"));
    // Both writers of the table hold modes that exclude a share lock on it.
    assert_eq!(text_of(&set, "session.blocked_by", "4244"), Some("4242,4243"));
    assert_eq!(text_of(&set, "session.activity", "4242"), Some("in transaction"));
    assert_eq!(one(&set, "session.pid", "4243"), (4243.0, 7));
    let set = whole(output("postgres/locks-short.txt")).set;
    assert_eq!(text_of(&set, "session.blocked_by", "5001"), Some("5000"));
}

#[test]
fn what_activity_says_of_a_session_stays_beside_its_locks() {
    let both = ["activity.txt", "locks.txt"].map(|name| bytes(output(format!("postgres/{name}"))));
    let read = import("x", both.concat());
    let said = text_of(&read.set, "session.activity", "4242");
    assert_eq!(said, Some("idle in transaction"), "{:?}", read.files[0]);
    assert_eq!(text_of(&read.set, "session.blocked_by", "4243"), Some("4242"));
}

#[test]
fn rates_of_iftop() {
    let read = whole(output("net/iftop-t.txt"));
    check(&read.set, "nic.tx_bytes", "eth0", &[120.0]);
    check(&read.set, "nic.rx_bytes", "eth0", &[0.0]);
    let read = import_file(output("net/iftop-t-no-name.txt"));
    assert!(is_empty(&read) && read.files[0].unread > 0);
}

#[test]
fn servers_of_nfs() {
    let read = whole(output("net/mountstats.txt"));
    let notes = read.files[0].notes.join("\n");
    assert!(notes.contains("NFS 10.0.0.5:/srv/data on /data"), "{notes}");
    assert!(notes.contains("200 WRITE of 201.0 ms each (server 200.0 ms, queue 0.5 ms)"), "{notes}");
    assert!(notes.contains("3 requests were sent again, 2 timed out"), "{notes}");
    let read = whole(output("net/nfsstat-c.txt"));
    assert_eq!(read.files[0].notes, ["NFS since boot: 12345 calls, 67 of them sent again"]);
}

#[test]
fn near_misses() {
    for text in [
        "Timestamp,Name,\n1795821000,x,\n",
        "{\"Timestamp\": \"1795821000\", \"Usage of it\": \"1\"}\n",
        "Busy% of the day\n12\n",
        "turbostat --show Busy%,Bzy_MHz\nBusy% Bzy_MHz of the package\nhello\n",
        "smartctl is not installed\n",
        "CONTAINER           IMAGE               CREATED             STATE\n4ee8a1f0c2d3a       web                 2 hours ago         Running\n",
        "Name:               node-3\nSomething:          else\n",
        " locktype | relation\n----------+----------\n relation | 1\n",
        "device is mounted\nTotal send rate: fast\n",
        "Client rpc stats:\nnone\n",
    ] {
        let read = import("x", text);
        let only_log = read.files[0].formats.iter().all(|format| format == "log");
        assert!(is_empty(&read) && only_log, "{text}: {:?}", read.files[0]);
    }
}

proptest! {
    #![proptest_config(tries(300))]

    #[test]
    fn changed_outputs_are_survived(
        content in damaged(
            outputs_of(&["below", "turbostat", "smartctl", "crictl", "kubectl", "postgres"])
                .into_iter()
                .chain(["iftop-t.txt", "mountstats.txt", "nfsstat-c.txt"].map(|name| bytes(output(format!("net/{name}")))))
                .collect(),
        ),
    ) {
        survive("x", content);
    }
}
