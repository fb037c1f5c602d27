//! Saved files of `/proc` and settings: alone, glued together, and as histories.

use mitra_model::time::SECOND;
use mitra_model::{Era, EventKind, Span};
use mitra_parse::text::Imported;
use proptest::prelude::*;

use crate::support::{
    bytes, case, damaged, fixture, import, is_clean, is_empty, one, output, series, survive, text_of, tries,
};

fn setting<'a>(read: &'a Imported, name: &str) -> &'a str {
    text_of(&read.set, name, "").unwrap_or_else(|| panic!("no {name}"))
}

fn numbers(read: &Imported) -> Vec<&[f64]> {
    let mut found = Vec::new();
    for event in &read.set.events {
        if let EventKind::Numbers { values } = &event.kind {
            found.push(values.as_slice());
        }
    }
    found
}

#[test]
fn the_history_of_meminfo() {
    let read = import("meminfo-history.txt", bytes(case("page-cache-flood/meminfo-history.txt")));
    is_clean(&read);
    let active = series(&read.set, "mem.active_file", "");
    assert_eq!(active.values.get(0), Some(&(4_190_408.0 * 1024.0)));
    assert_eq!(active.values[2], 4_964.0 * 1024.0);
    assert_eq!(active.values.len(), 4);
    assert_eq!(active.axis.places.iter().map(|p| p.line).collect::<Vec<_>>(), [10, 96, 53, 139]);
    // 2016-09-10 10:53:32.92709.
    assert_eq!(active.axis.t[0], 1_473_504_812 * SECOND + 927_090_000);
    assert_eq!(active.values.len(), active.axis.t.len());
    let anon = series(&read.set, "mem.anon", "");
    assert_eq!(anon.values[0], 43_725_308.0 * 1024.0);
    assert_eq!(anon.axis.t, active.axis.t);
}

#[test]
fn a_part_of_zoneinfo() {
    let read = import("x", bytes(case("page-cache-flood/zoneinfo-grep.txt")));
    is_clean(&read);
    for (zone, free, min, low, high, line) in [
        ("0/DMA", 3_933.0, 5.0, 6.0, 7.0, 2),
        ("0/DMA32", 204_673.0, 644.0, 805.0, 966.0, 8),
        ("0/Normal", 2_436_172.0, 10_586.0, 13_232.0, 15_879.0, 14),
        ("1/Normal", 2_732_324.0, 11_291.0, 14_113.0, 16_936.0, 20),
    ] {
        assert_eq!(one(&read.set, "zone.free", zone), (free, line));
        assert_eq!(one(&read.set, "zone.min", zone), (min, line + 1));
        assert_eq!(one(&read.set, "zone.low", zone), (low, line + 2));
        assert_eq!(one(&read.set, "zone.high", zone), (high, line + 3));
    }
    let t = series(&read.set, "zone.free", "0/DMA").axis.t[0];
    assert_eq!(Era::of(t), Era::Fact);
}

#[test]
fn settings_of_the_cases() {
    let read = import("x", bytes(case("page-cache-flood/sysctl.txt")));
    is_clean(&read);
    assert_eq!(one(&read.set, "sysctl.vm.swappiness", ""), (1.0, 1));
    let read = import("y", bytes(case("lb-session-drop/sysctl.txt")));
    is_clean(&read);
    assert_eq!(one(&read.set, "sysctl.vm.vfs_cache_pressure", ""), (100.0, 1));
    assert_eq!(one(&read.set, "sysctl.vm.dirty_ratio", ""), (10.0, 3));
}

#[test]
fn socket_memory_with_and_without_names() {
    let sockstat = bytes(case("out-of-socket-memory/sockstat"));
    for name in ["sockstat", "a"] {
        let read = import(name, &sockstat);
        is_clean(&read);
        assert_eq!(one(&read.set, "sock.tcp_mem", ""), (1_894.0, 2));
        assert_eq!(one(&read.set, "sock.tcp_orphan", ""), (21_564.0, 2));
        assert_eq!(one(&read.set, "sock.used", ""), (14_565.0, 1));
        assert_eq!(one(&read.set, "sock.frag_memory", ""), (0.0, 6));
    }
    let orphans = bytes(case("out-of-socket-memory/tcp_max_orphans"));
    let read = import("case/tcp_max_orphans", &orphans);
    is_clean(&read);
    assert_eq!(one(&read.set, "sysctl.net.ipv4.tcp_max_orphans", ""), (65_536.0, 1));
    assert_eq!(numbers(&read).len(), 0);
    let read = import("b", orphans);
    is_clean(&read);
    assert_eq!(numbers(&read), [&[65_536.0]]);
    assert_eq!(read.set.events[0].place.unwrap().line, 1);
    for name in ["tcp_mem", "c"] {
        let read = import(name, bytes(case("out-of-socket-memory/tcp_mem")));
        is_clean(&read);
        assert_eq!(setting(&read, "sysctl.net.ipv4.tcp_mem"), "3093984 4125312 6187968");
        assert_eq!(numbers(&read).len(), 0);
        assert_eq!(read.files[0].notes.len(), usize::from(name == "c"));
    }
    // Three numbers of other proportions are not it.
    let read = import("c", b"4096\t131072\t6291456\n");
    assert_eq!(numbers(&read), [&[4096.0, 131_072.0, 6_291_456.0]]);
}

#[test]
fn bare_numbers_among_other_lines_mean_nothing() {
    let read = import("notes", b"something\n65536\nmore\n3093984 4125312 6187968\n");
    assert_eq!(read.files[0].unread, 4);
    assert!(read.set.events.is_empty());
}

#[test]
fn whole_files_of_old_and_new_kernels() {
    let read = import("m", bytes(fixture("6.18/proc/meminfo")));
    is_clean(&read);
    assert_eq!(one(&read.set, "mem.total", "").0, 24_684_084.0 * 1024.0);
    assert_eq!(read.set.host.memory_bytes, 24_684_084 * 1024);
    let read = import("m", bytes(fixture("3.10/proc/meminfo")));
    is_clean(&read);
    assert_eq!(one(&read.set, "mem.available", "").0, 2_264_388.0 * 1024.0);
    let read = import("v", bytes(fixture("3.10/proc/vmstat")));
    is_clean(&read);
    assert_eq!(one(&read.set, "vm.pgscan_kswapd_normal", "").0, 8_812_004.0);
    let read = import("v", bytes(fixture("6.18/proc/vmstat")));
    is_clean(&read);
    assert_eq!(one(&read.set, "vm.pgpgin", "").0, 14_470_481.0 * 1024.0);
    let read = import("z", bytes(fixture("3.10/proc/zoneinfo")));
    is_clean(&read);
    assert_eq!(one(&read.set, "zone.nr_inactive_file", "0/Normal").0, 120_331.0);
    assert_eq!(one(&read.set, "zone.node_unreclaimable", "0/DMA").0, 1.0);
    let read = import("z", bytes(fixture("4.18/proc/zoneinfo")));
    is_clean(&read);
    assert_eq!(one(&read.set, "node.nr_active_file", "1").0, 377_119.0);
    assert_eq!(one(&read.set, "zone.managed", "1/Normal").0, 2_045_112.0);
    let read = import("z", bytes(fixture("6.18/proc/zoneinfo")));
    is_clean(&read);
    assert_eq!(one(&read.set, "zone.promo", "0/Normal").0, 10_977.0);
    assert_eq!(one(&read.set, "zone.nr_zone_active_file", "0/Normal").0, 73_990.0);
    assert_eq!(one(&read.set, "node.nr_active_file", "0").0, 79_693.0);
}

#[test]
fn tables_of_old_and_new_kernels() {
    let read = import("d", bytes(fixture("3.10/proc/diskstats")));
    is_clean(&read);
    assert_eq!(read.files[0].formats, ["/proc files", "/proc/diskstats"]);
    let read = import("d", bytes(fixture("6.18/proc/diskstats")));
    is_clean(&read);
    let read =
        import("d", b" 254 0 vda 66249 16985 28940962 223671 59098 31860 126456776 210896 3 23196 435197\n");
    is_clean(&read);
    assert_eq!(one(&read.set, "disk.read_bytes", "vda"), (28_940_962.0 * 512.0, 1));
    assert_eq!(one(&read.set, "disk.read_time", "vda").0, 223_671.0 * 1e-3);
    assert_eq!(one(&read.set, "disk.in_flight", "vda").0, 3.0);
    assert!(read.set.get("disk.in_flight", "vda").is_some() && read.set.get("disk.reads", "vda").is_none());
    let read = import("s", bytes(fixture("6.18/proc/slabinfo")));
    is_clean(&read);
    assert_eq!(one(&read.set, "slab.objsize", "dentry").0, 192.0);
    let read = import("n", bytes(fixture("6.18/proc/net/dev")));
    is_clean(&read);
    assert!(read.set.total("nic.rx_bytes", "lo").is_some());
    let read = import("n", bytes(fixture("3.10/proc/net/snmp")));
    is_clean(&read);
    let read = import("n", bytes(fixture("6.18/proc/net/netstat")));
    is_clean(&read);
    assert!(read.set.total("tcpext.ListenOverflows", "").is_some());
    let read = import("n", b"Udp: InDatagrams NoPorts InErrors\nUdp: 53 2 1\n");
    is_clean(&read);
    assert_eq!(one(&read.set, "udp.NoPorts", ""), (2.0, 2));
    for softnet in
        [bytes(fixture("3.10/proc/net/softnet_stat")), bytes(fixture("6.18/proc/net/softnet_stat"))]
    {
        let read = import("n", softnet);
        is_clean(&read);
        assert!(read.set.total("softnet.processed", "1").is_some());
    }
    let read = import("b", bytes(fixture("6.18/proc/buddyinfo")));
    is_clean(&read);
    assert!(read.set.get("zone.buddy_10", "0/Normal").is_some());
    let read = import("s", bytes(fixture("6.18/proc/stat")));
    is_clean(&read);
    assert_eq!(read.set.host.cpus, 2);
    assert!(read.set.total("sys.cpu_iowait", "").is_some());
    let read = import("l", b"0.60 0.20 0.07 2/108 8148");
    is_clean(&read);
    assert_eq!(one(&read.set, "sys.load1", ""), (0.6, 1));
}

#[test]
fn pressure_needs_a_name() {
    let read = import("proc/pressure/io", b"some avg10=18.61 avg60=13.96 avg300=3.89 total=19001035\n");
    is_clean(&read);
    assert_eq!(one(&read.set, "psi.io_some", ""), (19_001_035.0 * 1e-6, 1));
    let share = series(&read.set, "psi.io_some", "");
    assert!((share.values[0] - 0.1861).abs() < 1e-12);
    let read = import("p", b"some avg10=18.61 avg60=13.96 avg300=3.89 total=19001035\n");
    assert_eq!((is_empty(&read), read.files[0].notes.len()), (true, 1));
    let glued = b"/proc/pressure/cpu:some avg10=1.00 avg60=0.00 avg300=0.00 total=10\n\
                  /proc/pressure/memory:full avg10=0.50 avg60=0.00 avg300=0.00 total=20\n";
    let read = import("p", glued);
    is_clean(&read);
    assert_eq!(one(&read.set, "psi.cpu_some", ""), (10.0 * 1e-6, 1));
    assert_eq!(one(&read.set, "psi.memory_full", ""), (20.0 * 1e-6, 2));
}

#[test]
fn files_one_after_the_other() {
    let text = b"==> /proc/loadavg <==\n0.60 0.20 0.07 2/108 8148\n\n==> /proc/sys/net/ipv4/tcp_max_orphans <==\n65536\n\n\
        ==> /proc/sys/vm/swappiness <==\n60\n\n==> /proc/sys/vm/new_setting <==\n7\n\n==> /proc/sys/fs/file-nr <==\n696\t0\t2466170\n\n\
        ==> /sys/kernel/mm/transparent_hugepage/enabled <==\nalways [madvise] never\n\n==> /proc/meminfo <==\nMemTotal: 5 kB\nNovel: 6 kB\nMemFree: 4 kB\n";
    let read = import("all.txt", text);
    is_clean(&read);
    assert_eq!(one(&read.set, "sys.load5", ""), (0.2, 2));
    assert_eq!(one(&read.set, "sysctl.net.ipv4.tcp_max_orphans", ""), (65_536.0, 5));
    assert_eq!(one(&read.set, "sysctl.vm.swappiness", ""), (60.0, 8));
    assert_eq!(one(&read.set, "files.max", ""), (2_466_170.0, 14));
    assert_eq!(setting(&read, "sys.thp_enabled"), "madvise");
    assert_eq!(one(&read.set, "mem.free", ""), (4.0 * 1024.0, 22));
    assert_eq!(numbers(&read).len(), 0);
    let prompts =
        b"$ cat /proc/sys/net/ipv4/tcp_mem\n188319\t251092\t376638\n$ sysctl -n vm.swappiness\n10\n";
    let read = import("session", prompts);
    is_clean(&read);
    assert_eq!(setting(&read, "sysctl.net.ipv4.tcp_mem"), "188319 251092 376638");
    assert_eq!(one(&read.set, "sysctl.vm.swappiness", ""), (10.0, 4));
    let grep = b"/proc/sys/vm/swappiness:60\n/proc/sys/vm/other:x y\n/proc/sys/net/ipv4/tcp_congestion_control:bbr\n/proc/vmstat:nr_free_pages 8\n";
    let read = import("grep", grep);
    is_clean(&read);
    assert_eq!(one(&read.set, "sysctl.vm.swappiness", ""), (60.0, 1));
    assert_eq!(setting(&read, "sysctl.net.ipv4.tcp_congestion_control"), "bbr");
    assert_eq!(one(&read.set, "vm.nr_free_pages", ""), (8.0, 4));
    // Without any title: each line tells.
    let mut glued = Vec::new();
    for name in ["zoneinfo", "vmstat", "meminfo", "diskstats", "net/sockstat"] {
        glued.extend(bytes(fixture(format!("6.18/proc/{name}"))));
    }
    let read = import("glued", glued);
    is_clean(&read);
    assert_eq!(one(&read.set, "vm.nr_free_pages_blocks", "").0, 905_728.0);
    assert_eq!(one(&read.set, "sock.tcp_inuse", "").0, 44.0);
}

/// Its lines look like fields of a process, averages of sar and rows of many, and nothing stands between.
#[test]
fn memory_behind_other_outputs() {
    for name in [
        "pidstat/u-1.txt",
        "sar/sar-A-C.txt",
        "smartctl/a-nvme.txt",
        "numactl/H.txt",
        "smaps/smaps_rollup.txt",
        "status/status.txt",
        "snapshots/lsblk-o.txt",
    ] {
        let after = b"MemTotal:       16384000 kB\nMemFree:         590045 kB\n";
        let read = import("x", [&bytes(output(name))[..], after].concat());
        let file = &read.files[0];
        assert_eq!(
            (file.unread, file.formats.last().map(String::as_str)),
            (0, Some("/proc/meminfo")),
            "{name}"
        );
    }
}

/// Kills in one group are not those of the machine, which `/proc/vmstat` counts under the same name.
#[test]
fn events_of_groups() {
    let events = "low 0\nhigh 3\nmax 7\noom 1\noom_kill 5\noom_group_kill 0\n";
    for name in ["x", "sys/fs/cgroup/system.slice/web.service/memory.events.local"] {
        let read = import(name, format!("{events}\nMemFree: 8 kB\n"));
        assert!(read.set.total("vm.oom_kill", "").is_none(), "{name}");
        // And the line between them.
        assert_eq!((read.files[0].unread, one(&read.set, "mem.free", "").0), (7, 8192.0), "{name}");
    }
    let read = import("sys/fs/cgroup/system.slice/web.service/memory.events", events);
    assert!(read.set.total("cgroup.oom_kill", "/system.slice/web.service").is_some());
    assert_eq!(one(&import("vmstat", "drop_slab 0\noom_kill 5\n").set, "vm.oom_kill", "").0, 5.0);
}

#[test]
fn nodes() {
    let read = import(
        "sys/devices/system/node/node1/numastat",
        bytes(fixture("4.18/sys/devices/system/node/node1/numastat")),
    );
    is_clean(&read);
    assert_eq!(one(&read.set, "node.numa_foreign", "1"), (20_113.0, 3));
    assert!(read.set.total("vm.numa_foreign", "").is_none());
    let read = import("m", bytes(fixture("4.18/sys/devices/system/node/node1/meminfo")));
    is_clean(&read);
    assert_eq!(one(&read.set, "node.mem_free", "1").0, 1_204_776.0 * 1024.0);
    assert!(read.set.get("mem.free", "").is_none());
}

#[test]
fn histories_of_blocks_and_of_lines() {
    let blocks = "zzz ***Sat Sep 10 10:53:32 CEST 2016\nctxt 100\npgpgin 10\nnr_dirty 7\n 8 0 sda 1 0 8 4 0 0 0 0 0 0 0\n\n\
        zzz ***Sat Sep 10 10:53:42 CEST 2016\nctxt 300\nnr_dirty 9\npgpgin 30\n 8 0 sda 11 0 88 4 0 0 0 0 0 0 0\n";
    let lines = "[1473504812] ctxt 100\n[1473504812] pgpgin 10\n[1473504812] nr_dirty 7\n[1473504812] 8 0 sda 1 0 8 4 0 0 0 0 0 0 0\n\n\
        1473504822 ctxt 300\n1473504822 nr_dirty 9\n1473504822 pgpgin 30\n1473504822 8 0 sda 11 0 88 4 0 0 0 0 0 0 0\n";
    for (text, first) in [(blocks, 2), (lines, 1)] {
        let read = import("h", text);
        is_clean(&read);
        let t0 = 1_473_504_812 * SECOND;
        let switches = series(&read.set, "sys.ctxt", "");
        assert_eq!(switches.axis.t, [t0, t0 + 10 * SECOND]);
        assert_eq!(switches.values[1], 20.0);
        assert_eq!(series(&read.set, "vm.pgpgin", "").values[1], 2.0 * 1024.0);
        assert_eq!(series(&read.set, "vm.nr_dirty", "").values, [7.0, 9.0]);
        assert_eq!(series(&read.set, "vm.nr_dirty", "").axis.places[0].line, first + 2);
        assert_eq!(series(&read.set, "disk.reads", "sda").last(Span::ALL), Some(1.0));
        assert_eq!(series(&read.set, "disk.read_bytes", "sda").values[1], 8.0 * 512.0);
    }
}

#[test]
fn all_settings() {
    let read = import("sysctl-a.txt", bytes(output("snapshots/sysctl-a.txt")));
    is_clean(&read);
    assert_eq!(one(&read.set, "sysctl.vm.swappiness", "").0, 60.0);
    assert!(setting(&read, "sysctl.net.ipv4.tcp_rmem").split(' ').count() == 3);
    let min_free = one(&read.set, "sysctl.vm.min_free_kbytes", "").0;
    assert!(min_free >= 1024.0 * 1024.0 && min_free % 1024.0 == 0.0);
    let conf = b"vm.swappiness=5\n# a comment of the file\n; another\nnet/core/somaxconn = 128\nvm.dirty_ratio = much\n";
    let read = import("99-local.conf", conf);
    assert_eq!(one(&read.set, "sysctl.vm.swappiness", ""), (5.0, 1));
    assert_eq!(one(&read.set, "sysctl.net.core.somaxconn", ""), (128.0, 4));
    assert!(read.set.get("sysctl.vm.dirty_ratio", "").is_none());
    assert_eq!(read.files[0].first_unread, Some((5, "vm.dirty_ratio = much".to_owned())));
}

#[test]
fn near_misses_give_no_numbers() {
    let nothing = [
        "MemTotal 5 kB",
        "MemTotal: 5 MB",
        "MemTotal: x kB",
        "MemTotal: 5 kB 6",
        "AnonHugePages: 0 kB",
        "nr_free_pages five",
        "nr_free_pages 5 6",
        "pages free 5",
        "min 5",
        "Node 0, zone DMA extra",
        "8 0 sda 1 2 3",
        "8 0 sda 1 0 8 4 0 x 0 0 0 0 0",
        "cpu0 1 2 3",
        "ctxt five",
        "sockets: 5",
        "eth0: 1 2 3",
        "NET_RX: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16",
        "0.60 0.20 0.07 2 108",
        "vm.swappiness",
        "swappiness = 3",
        "Udp: InDatagrams NoPorts",
        "anon 5\nfile 6\npgfault 7\npgscan 8",
    ];
    for text in nothing {
        let read = import("x", format!("a line\n{text}\n"));
        assert!(is_empty(&read), "{text}");
        assert!(read.files[0].unread >= 1, "{text}");
    }
    let damaged = b"MemTotal: 5 kB\nMemFree: \xff kB\nBuffers: 7 kB\nCached: -9 kB\nDirty: 2 kB\n";
    let read = import("x", damaged);
    assert_eq!(read.files[0].unread, 2);
    assert_eq!(one(&read.set, "mem.buffers", ""), (7.0 * 1024.0, 3));
    assert_eq!(one(&read.set, "mem.dirty", ""), (2.0 * 1024.0, 5));
    assert!(read.set.get("mem.free", "").is_none() && read.set.get("mem.cached", "").is_none());
}

fn files() -> Vec<Vec<u8>> {
    let cases =
        ["zoneinfo-grep.txt", "meminfo-history.txt"].map(|name| case(format!("page-cache-flood/{name}")));
    let proc = ["6.18/proc/stat", "6.18/proc/diskstats", "6.18/proc/net/snmp", "6.18/proc/net/softnet_stat"];
    let whole = proc.iter().chain(&["4.18/proc/zoneinfo"]).map(fixture);
    cases.into_iter().chain(whole).map(bytes).collect()
}

proptest! {
    #![proptest_config(tries(400))]

    #[test]
    fn anything_is_survived(content in proptest::collection::vec(any::<u8>(), 0..600), name in ".{0,40}") {
        survive(&name, content);
    }

    #[test]
    fn changed_files_are_survived(content in damaged(files())) {
        survive("proc/pressure/io", content);
    }
}
