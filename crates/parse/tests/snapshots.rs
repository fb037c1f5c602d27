//! Saved files of `/proc` and settings: alone, glued together, and as histories.

use mitra_model::time::SECOND;
use mitra_model::{Era, EventKind, Series, Span};
use mitra_parse::text::{Import, Imported, read};
use proptest::prelude::{ProptestConfig, any, prop_assert, proptest};

macro_rules! case {
    ($name:literal) => {
        include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../app/tests/cases/", $name))
    };
}

macro_rules! fixture {
    ($name:literal) => {
        include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/", $name))
    };
}

macro_rules! output {
    ($name:literal) => {
        include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/outputs/snapshots/", $name))
    };
}

fn parsed(name: &str, input: &[u8]) -> Imported {
    let mut import = Import::new(None);
    let mut input = input;
    read(&mut input, name, &mut import).unwrap();
    import.finish()
}

fn level<'a>(read: &'a Imported, metric: &str, row: &str) -> &'a Series {
    read.set.get(metric, row).unwrap_or_else(|| panic!("no {metric} of {row:?}"))
}

/// The only value of a metric, and its line.
fn one(read: &Imported, metric: &str, row: &str) -> (f64, u32) {
    let series = read.set.total(metric, row).or_else(|| read.set.get(metric, row));
    let series = series.unwrap_or_else(|| panic!("no {metric} of {row:?}"));
    assert_eq!(series.values.len(), 1, "{metric}");
    (series.values[0], series.axis.places[0].line)
}

fn setting<'a>(read: &'a Imported, name: &str) -> &'a str {
    let texts = read.set.text(name, "").unwrap_or_else(|| panic!("no {name}"));
    texts.changes.last().unwrap().1.as_deref().unwrap()
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

/// Whether it says nothing at all.
fn is_empty(read: &Imported) -> bool {
    let totals = mitra_model::metrics::all().any(|m| read.set.each_total(m.name).next().is_some());
    let texts = read.set.text_metrics().next().is_some();
    !totals && !texts && read.set.metrics().next().is_none() && read.set.events.is_empty()
}

fn is_clean(read: &Imported) {
    for file in &read.files {
        assert_eq!((file.unread, &file.first_unread), (0, &None), "{}", file.file);
    }
}

#[test]
fn the_history_of_meminfo() {
    let read = parsed("meminfo-history.txt", case!("page-cache-flood/meminfo-history.txt"));
    is_clean(&read);
    let active = level(&read, "mem.active_file", "");
    assert_eq!(active.values.first(), Some(&(4_190_408.0 * 1024.0)));
    assert_eq!(active.values[2], 4_964.0 * 1024.0);
    assert_eq!(active.values.len(), 4);
    assert_eq!(active.axis.places.iter().map(|p| p.line).collect::<Vec<_>>(), [10, 96, 53, 139]);
    // 2016-09-10 10:53:32.92709.
    assert_eq!(active.axis.t[0], 1_473_504_812 * SECOND + 927_090_000);
    assert_eq!(active.values.len(), active.axis.t.len());
    let anon = level(&read, "mem.anon", "");
    assert_eq!(anon.values[0], 43_725_308.0 * 1024.0);
    assert_eq!(anon.axis.t, active.axis.t);
}

#[test]
fn a_part_of_zoneinfo() {
    let read = parsed("x", case!("page-cache-flood/zoneinfo-grep.txt"));
    is_clean(&read);
    for (zone, free, min, low, high, line) in [
        ("0/DMA", 3_933.0, 5.0, 6.0, 7.0, 2),
        ("0/DMA32", 204_673.0, 644.0, 805.0, 966.0, 8),
        ("0/Normal", 2_436_172.0, 10_586.0, 13_232.0, 15_879.0, 14),
        ("1/Normal", 2_732_324.0, 11_291.0, 14_113.0, 16_936.0, 20),
    ] {
        assert_eq!(one(&read, "zone.free", zone), (free, line));
        assert_eq!(one(&read, "zone.min", zone), (min, line + 1));
        assert_eq!(one(&read, "zone.low", zone), (low, line + 2));
        assert_eq!(one(&read, "zone.high", zone), (high, line + 3));
    }
    let t = level(&read, "zone.free", "0/DMA").axis.t[0];
    assert_eq!(Era::of(t), Era::Fact);
}

#[test]
fn settings_of_the_cases() {
    let read = parsed("x", case!("page-cache-flood/sysctl.txt"));
    is_clean(&read);
    assert_eq!(one(&read, "sysctl.vm.swappiness", ""), (1.0, 1));
    let read = parsed("y", case!("lb-session-drop/sysctl.txt"));
    is_clean(&read);
    assert_eq!(one(&read, "sysctl.vm.vfs_cache_pressure", ""), (100.0, 1));
    assert_eq!(one(&read, "sysctl.vm.dirty_ratio", ""), (10.0, 3));
}

#[test]
fn socket_memory_with_and_without_names() {
    let sockstat = case!("out-of-socket-memory/sockstat");
    for name in ["sockstat", "a"] {
        let read = parsed(name, sockstat);
        is_clean(&read);
        assert_eq!(one(&read, "sock.tcp_mem", ""), (1_894.0, 2));
        assert_eq!(one(&read, "sock.tcp_orphan", ""), (21_564.0, 2));
        assert_eq!(one(&read, "sock.used", ""), (14_565.0, 1));
        assert_eq!(one(&read, "sock.frag_memory", ""), (0.0, 6));
    }
    let orphans = case!("out-of-socket-memory/tcp_max_orphans");
    let read = parsed("case/tcp_max_orphans", orphans);
    is_clean(&read);
    assert_eq!(one(&read, "sysctl.net.ipv4.tcp_max_orphans", ""), (65_536.0, 1));
    assert_eq!(numbers(&read).len(), 0);
    let read = parsed("b", orphans);
    is_clean(&read);
    assert_eq!(numbers(&read), [&[65_536.0]]);
    assert_eq!(read.set.events[0].place.unwrap().line, 1);
    for name in ["tcp_mem", "c"] {
        let read = parsed(name, case!("out-of-socket-memory/tcp_mem"));
        is_clean(&read);
        assert_eq!(setting(&read, "sysctl.net.ipv4.tcp_mem"), "3093984 4125312 6187968");
        assert_eq!(numbers(&read).len(), 0);
        assert_eq!(read.files[0].notes.len(), usize::from(name == "c"));
    }
    // Three numbers of other proportions are not it.
    let read = parsed("c", b"4096\t131072\t6291456\n");
    assert_eq!(numbers(&read), [&[4096.0, 131_072.0, 6_291_456.0]]);
}

#[test]
fn bare_numbers_among_other_lines_mean_nothing() {
    let read = parsed("notes", b"something\n65536\nmore\n3093984 4125312 6187968\n");
    assert_eq!(read.files[0].unread, 4);
    assert!(read.set.events.is_empty());
}

#[test]
fn whole_files_of_old_and_new_kernels() {
    let read = parsed("m", fixture!("6.18/proc/meminfo"));
    is_clean(&read);
    assert_eq!(one(&read, "mem.total", "").0, 24_684_084.0 * 1024.0);
    assert_eq!(read.set.host.memory_bytes, 24_684_084 * 1024);
    let read = parsed("m", fixture!("3.10/proc/meminfo"));
    is_clean(&read);
    assert_eq!(one(&read, "mem.available", "").0, 2_264_388.0 * 1024.0);
    let read = parsed("v", fixture!("3.10/proc/vmstat"));
    is_clean(&read);
    assert_eq!(one(&read, "vm.pgscan_kswapd_normal", "").0, 8_812_004.0);
    let read = parsed("v", fixture!("6.18/proc/vmstat"));
    is_clean(&read);
    assert_eq!(one(&read, "vm.pgpgin", "").0, 14_470_481.0 * 1024.0);
    let read = parsed("z", fixture!("3.10/proc/zoneinfo"));
    is_clean(&read);
    assert_eq!(one(&read, "zone.nr_inactive_file", "0/Normal").0, 120_331.0);
    assert_eq!(one(&read, "zone.node_unreclaimable", "0/DMA").0, 1.0);
    let read = parsed("z", fixture!("4.18/proc/zoneinfo"));
    is_clean(&read);
    assert_eq!(one(&read, "node.nr_active_file", "1").0, 377_119.0);
    assert_eq!(one(&read, "zone.managed", "1/Normal").0, 2_045_112.0);
    let read = parsed("z", fixture!("6.18/proc/zoneinfo"));
    is_clean(&read);
    assert_eq!(one(&read, "zone.promo", "0/Normal").0, 10_977.0);
    assert_eq!(one(&read, "zone.nr_zone_active_file", "0/Normal").0, 73_990.0);
    assert_eq!(one(&read, "node.nr_active_file", "0").0, 79_693.0);
}

#[test]
fn tables_of_old_and_new_kernels() {
    let read = parsed("d", fixture!("3.10/proc/diskstats"));
    is_clean(&read);
    assert_eq!(read.files[0].formats, ["/proc files", "/proc/diskstats"]);
    let read = parsed("d", fixture!("6.18/proc/diskstats"));
    is_clean(&read);
    let read =
        parsed("d", b" 254 0 vda 66249 16985 28940962 223671 59098 31860 126456776 210896 3 23196 435197\n");
    is_clean(&read);
    assert_eq!(one(&read, "disk.read_bytes", "vda"), (28_940_962.0 * 512.0, 1));
    assert_eq!(one(&read, "disk.read_time", "vda").0, 223_671.0 * 1e-3);
    assert_eq!(one(&read, "disk.in_flight", "vda").0, 3.0);
    assert!(read.set.get("disk.in_flight", "vda").is_some() && read.set.get("disk.reads", "vda").is_none());
    let read = parsed("s", fixture!("6.18/proc/slabinfo"));
    is_clean(&read);
    assert_eq!(one(&read, "slab.objsize", "dentry").0, 192.0);
    let read = parsed("n", fixture!("6.18/proc/net/dev"));
    is_clean(&read);
    assert!(read.set.total("nic.rx_bytes", "lo").is_some());
    let read = parsed("n", fixture!("3.10/proc/net/snmp"));
    is_clean(&read);
    let read = parsed("n", fixture!("6.18/proc/net/netstat"));
    is_clean(&read);
    assert!(read.set.total("tcpext.ListenOverflows", "").is_some());
    let read = parsed("n", b"Udp: InDatagrams NoPorts InErrors\nUdp: 53 2 1\n");
    is_clean(&read);
    assert_eq!(one(&read, "udp.NoPorts", ""), (2.0, 2));
    for softnet in [&fixture!("3.10/proc/net/softnet_stat")[..], fixture!("6.18/proc/net/softnet_stat")] {
        let read = parsed("n", softnet);
        is_clean(&read);
        assert!(read.set.total("softnet.processed", "1").is_some());
    }
    let read = parsed("b", fixture!("6.18/proc/buddyinfo"));
    is_clean(&read);
    assert!(read.set.get("zone.buddy_10", "0/Normal").is_some());
    let read = parsed("s", fixture!("6.18/proc/stat"));
    is_clean(&read);
    assert_eq!(read.set.host.cpus, 2);
    assert!(read.set.total("sys.cpu_iowait", "").is_some());
    let read = parsed("l", b"0.60 0.20 0.07 2/108 8148");
    is_clean(&read);
    assert_eq!(one(&read, "sys.load1", ""), (0.6, 1));
}

#[test]
fn pressure_needs_a_name() {
    let read = parsed("proc/pressure/io", b"some avg10=18.61 avg60=13.96 avg300=3.89 total=19001035\n");
    is_clean(&read);
    assert_eq!(one(&read, "psi.io_some", ""), (19_001_035.0 * 1e-6, 1));
    let share = level(&read, "psi.io_some", "");
    assert!((share.values[0] - 0.1861).abs() < 1e-12);
    let read = parsed("p", b"some avg10=18.61 avg60=13.96 avg300=3.89 total=19001035\n");
    assert_eq!((is_empty(&read), read.files[0].notes.len()), (true, 1));
    let glued = b"/proc/pressure/cpu:some avg10=1.00 avg60=0.00 avg300=0.00 total=10\n\
                  /proc/pressure/memory:full avg10=0.50 avg60=0.00 avg300=0.00 total=20\n";
    let read = parsed("p", glued);
    is_clean(&read);
    assert_eq!(one(&read, "psi.cpu_some", ""), (10.0 * 1e-6, 1));
    assert_eq!(one(&read, "psi.memory_full", ""), (20.0 * 1e-6, 2));
}

#[test]
fn files_one_after_the_other() {
    let text = b"==> /proc/loadavg <==\n0.60 0.20 0.07 2/108 8148\n\n==> /proc/sys/net/ipv4/tcp_max_orphans <==\n65536\n\n\
        ==> /proc/sys/vm/swappiness <==\n60\n\n==> /proc/sys/vm/new_setting <==\n7\n\n==> /proc/sys/fs/file-nr <==\n696\t0\t2466170\n\n\
        ==> /sys/kernel/mm/transparent_hugepage/enabled <==\nalways [madvise] never\n\n==> /proc/meminfo <==\nMemTotal: 5 kB\nNovel: 6 kB\nMemFree: 4 kB\n";
    let read = parsed("all.txt", text);
    is_clean(&read);
    assert_eq!(one(&read, "sys.load5", ""), (0.2, 2));
    assert_eq!(one(&read, "sysctl.net.ipv4.tcp_max_orphans", ""), (65_536.0, 5));
    assert_eq!(one(&read, "sysctl.vm.swappiness", ""), (60.0, 8));
    assert_eq!(one(&read, "files.max", ""), (2_466_170.0, 14));
    assert_eq!(setting(&read, "sys.thp_enabled"), "madvise");
    assert_eq!(one(&read, "mem.free", ""), (4.0 * 1024.0, 22));
    assert_eq!(numbers(&read).len(), 0);
    let prompts =
        b"$ cat /proc/sys/net/ipv4/tcp_mem\n188319\t251092\t376638\n$ sysctl -n vm.swappiness\n10\n";
    let read = parsed("session", prompts);
    is_clean(&read);
    assert_eq!(setting(&read, "sysctl.net.ipv4.tcp_mem"), "188319 251092 376638");
    assert_eq!(one(&read, "sysctl.vm.swappiness", ""), (10.0, 4));
    let grep = b"/proc/sys/vm/swappiness:60\n/proc/sys/vm/other:x y\n/proc/sys/net/ipv4/tcp_congestion_control:bbr\n/proc/vmstat:nr_free_pages 8\n";
    let read = parsed("grep", grep);
    is_clean(&read);
    assert_eq!(one(&read, "sysctl.vm.swappiness", ""), (60.0, 1));
    assert_eq!(setting(&read, "sysctl.net.ipv4.tcp_congestion_control"), "bbr");
    assert_eq!(one(&read, "vm.nr_free_pages", ""), (8.0, 4));
    // Without any title: each line tells.
    let mut glued = fixture!("6.18/proc/zoneinfo").to_vec();
    for part in [
        &fixture!("6.18/proc/vmstat")[..],
        fixture!("6.18/proc/meminfo"),
        fixture!("6.18/proc/diskstats"),
        fixture!("6.18/proc/net/sockstat"),
    ] {
        glued.extend_from_slice(part);
    }
    let read = parsed("glued", &glued);
    is_clean(&read);
    assert_eq!(one(&read, "vm.nr_free_pages_blocks", "").0, 905_728.0);
    assert_eq!(one(&read, "sock.tcp_inuse", "").0, 44.0);
}

#[test]
fn nodes() {
    let read = parsed(
        "sys/devices/system/node/node1/numastat",
        fixture!("4.18/sys/devices/system/node/node1/numastat"),
    );
    is_clean(&read);
    assert_eq!(one(&read, "node.numa_foreign", "1"), (20_113.0, 3));
    assert!(read.set.total("vm.numa_foreign", "").is_none());
    let read = parsed("m", fixture!("4.18/sys/devices/system/node/node1/meminfo"));
    is_clean(&read);
    assert_eq!(one(&read, "node.mem_free", "1").0, 1_204_776.0 * 1024.0);
    assert!(read.set.get("mem.free", "").is_none());
}

#[test]
fn histories_of_blocks_and_of_lines() {
    let blocks = "zzz ***Sat Sep 10 10:53:32 CEST 2016\nctxt 100\npgpgin 10\nnr_dirty 7\n 8 0 sda 1 0 8 4 0 0 0 0 0 0 0\n\n\
        zzz ***Sat Sep 10 10:53:42 CEST 2016\nctxt 300\nnr_dirty 9\npgpgin 30\n 8 0 sda 11 0 88 4 0 0 0 0 0 0 0\n";
    let lines = "[1473504812] ctxt 100\n[1473504812] pgpgin 10\n[1473504812] nr_dirty 7\n[1473504812] 8 0 sda 1 0 8 4 0 0 0 0 0 0 0\n\n\
        1473504822 ctxt 300\n1473504822 nr_dirty 9\n1473504822 pgpgin 30\n1473504822 8 0 sda 11 0 88 4 0 0 0 0 0 0 0\n";
    for (text, first) in [(blocks, 2), (lines, 1)] {
        let read = parsed("h", text.as_bytes());
        is_clean(&read);
        let t0 = 1_473_504_812 * SECOND;
        let switches = level(&read, "sys.ctxt", "");
        assert_eq!(switches.axis.t, [t0, t0 + 10 * SECOND]);
        assert_eq!(switches.values[1], 20.0);
        assert_eq!(level(&read, "vm.pgpgin", "").values[1], 2.0 * 1024.0);
        assert_eq!(level(&read, "vm.nr_dirty", "").values, [7.0, 9.0]);
        assert_eq!(level(&read, "vm.nr_dirty", "").axis.places[0].line, first + 2);
        assert_eq!(level(&read, "disk.reads", "sda").last(Span::ALL), Some(1.0));
        assert_eq!(level(&read, "disk.read_bytes", "sda").values[1], 8.0 * 512.0);
    }
}

#[test]
fn all_settings() {
    let read = parsed("sysctl-a.txt", output!("sysctl-a.txt"));
    is_clean(&read);
    assert_eq!(one(&read, "sysctl.vm.swappiness", "").0, 60.0);
    assert!(setting(&read, "sysctl.net.ipv4.tcp_rmem").split(' ').count() == 3);
    let min_free = one(&read, "sysctl.vm.min_free_kbytes", "").0;
    assert!(min_free >= 1024.0 * 1024.0 && min_free % 1024.0 == 0.0);
    let conf = b"vm.swappiness=5\n# a comment of the file\n; another\nnet/core/somaxconn = 128\nvm.dirty_ratio = much\n";
    let read = parsed("99-local.conf", conf);
    assert_eq!(one(&read, "sysctl.vm.swappiness", ""), (5.0, 1));
    assert_eq!(one(&read, "sysctl.net.core.somaxconn", ""), (128.0, 4));
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
        let read = parsed("x", format!("a line\n{text}\n").as_bytes());
        assert!(is_empty(&read), "{text}");
        assert!(read.files[0].unread >= 1, "{text}");
    }
    let damaged = b"MemTotal: 5 kB\nMemFree: \xff kB\nBuffers: 7 kB\nCached: -9 kB\nDirty: 2 kB\n";
    let read = parsed("x", damaged);
    assert_eq!(read.files[0].unread, 2);
    assert_eq!(one(&read, "mem.buffers", ""), (7.0 * 1024.0, 3));
    assert_eq!(one(&read, "mem.dirty", ""), (2.0 * 1024.0, 5));
    assert!(read.set.get("mem.free", "").is_none() && read.set.get("mem.cached", "").is_none());
}

const WHOLE: &[&[u8]] = &[
    case!("page-cache-flood/zoneinfo-grep.txt"),
    case!("page-cache-flood/meminfo-history.txt"),
    fixture!("6.18/proc/stat"),
    fixture!("6.18/proc/diskstats"),
    fixture!("6.18/proc/net/snmp"),
    fixture!("6.18/proc/net/softnet_stat"),
    fixture!("4.18/proc/zoneinfo"),
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn anything_is_survived(bytes in proptest::collection::vec(any::<u8>(), 0..600), name in ".{0,40}") {
        let read = parsed(&name, &bytes);
        prop_assert!(read.files.len() == 1);
    }

    #[test]
    fn changed_files_are_survived(
        which in 0..WHOLE.len(),
        at in any::<usize>(),
        with in proptest::collection::vec(any::<u8>(), 0..30),
        cut in any::<usize>(),
    ) {
        let mut bytes = WHOLE[which].to_vec();
        let at = at % bytes.len();
        let end = (at + cut % 200).min(bytes.len());
        bytes.splice(at..end, with);
        let read = parsed("proc/pressure/io", &bytes);
        prop_assert!(read.files[0].lines <= bytes.len() as u64 + 1);
    }
}

fn text_of<'a>(read: &'a Imported, metric: &str, row: &str) -> Option<&'a str> {
    read.set.text(metric, row).and_then(|t| t.last())
}

#[test]
fn filesystems() {
    for text in [&output!("df.C.txt")[..], output!("df.de_DE.UTF-8.txt"), output!("df.fr_FR.UTF-8.txt")] {
        let read = parsed("x", text);
        is_clean(&read);
        assert_eq!(one(&read, "fs.total_bytes", "/"), (264_212_084.0 * 1024.0, 4));
        assert!(one(&read, "fs.avail_bytes", "/").0 > 72_909_000.0 * 1024.0);
        assert_eq!(text_of(&read, "fs.device", "/"), Some("/dev/vda"));
    }
    assert_eq!(
        one(&parsed("x", output!("df.C.txt")), "fs.free_bytes", "/").0,
        (264_212_084.0 - 22_592_216.0) * 1024.0
    );
    for text in [&output!("df-h.C.txt")[..], output!("df-h.de_DE.UTF-8.txt"), output!("df-h.fr_FR.UTF-8.txt")]
    {
        let read = parsed("x", text);
        is_clean(&read);
        assert_eq!(one(&read, "fs.avail_bytes", "/").0, 70.0 * 1024_f64.powi(3));
        assert!(read.set.get("fs.free_bytes", "/").is_none());
    }
    for text in [&output!("df-i.C.txt")[..], output!("df-i.de_DE.UTF-8.txt"), output!("df-i.fr_FR.UTF-8.txt")]
    {
        let read = parsed("x", text);
        is_clean(&read);
        assert_eq!(one(&read, "fs.inodes", "/").0, 16_777_216.0);
        assert!(read.set.get("fs.total_bytes", "/").is_none());
    }
    for text in [&output!("df-T.C.txt")[..], output!("df-T.de_DE.UTF-8.txt"), output!("df-T.fr_FR.UTF-8.txt")]
    {
        let read = parsed("x", text);
        is_clean(&read);
        assert_eq!(text_of(&read, "fs.type", "/"), Some("ext4"));
        assert_eq!(one(&read, "fs.total_bytes", "/").0, 264_212_084.0 * 1024.0);
    }
    let read = parsed("x", output!("df-B1M.txt"));
    is_clean(&read);
    assert_eq!(one(&read, "fs.total_bytes", "/").0, 258_020.0 * 1_048_576.0);
    let old = b"Filesystem           1K-blocks      Used Available Use% Mounted on\n/dev/mapper/a-very-long-name\n                       1000       900        50  95% /var/a b\n";
    let read = parsed("x", old);
    is_clean(&read);
    assert_eq!(one(&read, "fs.free_bytes", "/var/a b"), (100.0 * 1024.0, 3));
    assert_eq!(text_of(&read, "fs.device", "/var/a b"), Some("/dev/mapper/a-very-long-name"));
}

#[test]
fn mounts_and_disks() {
    let read = parsed("x", output!("mount.txt"));
    is_clean(&read);
    assert_eq!(text_of(&read, "fs.type", "/"), Some("ext4"));
    let read = parsed("x", fixture!("6.18/proc/self/mounts"));
    is_clean(&read);
    assert_eq!(text_of(&read, "fs.device", "/"), Some("/dev/vda"));
    let read = parsed("x", output!("lsblk-o.txt"));
    is_clean(&read);
    assert_eq!(one(&read, "disk.rotational", "vda"), (1.0, 3));
    assert_eq!(text_of(&read, "disk.queue_scheduler", "vda"), Some("mq-deadline"));
    assert_eq!(text_of(&read, "disk.queue_scheduler", "zram0"), None);
    is_clean(&parsed("x", output!("lsblk.txt")));
}

#[test]
fn tables_of_nodes() {
    let read = parsed("x", output!("numastat.txt"));
    is_clean(&read);
    assert_eq!(one(&read, "node.numa_hit", "0"), (273_607_755.0, 2));
    let two = b"                           node0           node1\nnuma_hit                1000000         2000000\nnuma_foreign                  7               8\n";
    let read = parsed("x", two);
    is_clean(&read);
    assert_eq!(one(&read, "node.numa_foreign", "1"), (8.0, 3));
    let read = parsed("x", output!("numastat-m.txt"));
    is_clean(&read);
    assert_eq!(one(&read, "node.mem_free", "0").0, 20_612.80 * 1_048_576.0);
    let read = parsed("x", output!("numastat-n.txt"));
    is_clean(&read);
    assert!(read.set.total("node.numa_hit", "0").is_none());
}

#[test]
fn near_misses_of_tables() {
    for text in [
        "Filesystem 1K-blocks Used Available Use% Mounted on\n/dev/vda x y z 24% /",
        "/dev/vda 264212084 22592216 72909048 24% /",
        "vda on / type ext4",
        "a b c d 0 0",
        "node0 node1\nnuma_hit",
        "NAME SIZE",
    ] {
        let read = parsed("x", format!("a line\n{text}\n").as_bytes());
        assert!(is_empty(&read), "{text}");
    }
}
