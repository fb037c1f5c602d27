//! sar: what real and published outputs say, and what must not be taken for them.

use mitra_model::time::SECOND;
use proptest::prelude::*;

use crate::support::{
    bytes, case, clocks, close, damaged, hms, import, lines, moment, output, series, survive, tries, whole,
};

#[test]
fn flood_paging_with_squeezed_columns_and_a_header_far_before_the_rows() {
    let set = whole(case("page-cache-flood/sar-B.txt")).set;
    let scan = series(&set, "vm.pgscan_kswapd", "");
    close(&scan.values.to_vec(), &[0.0, 0.0, 0.0, 375_196.37, 217_153.6, 213_713.31, 209_061.44, 209_428.12]);
    let times =
        [(2, 30, 1), (2, 40, 1), (2, 50, 2), (3, 0, 7), (3, 10, 7), (3, 20, 6), (3, 30, 4), (3, 40, 2)];
    assert_eq!(clocks(scan), times.map(|(h, m, s)| hms(h, m, s)));
    assert_eq!(lines(scan), [2, 3, 4, 5, 6, 7, 8, 9]);
    // The header's 12:00:01 AM is not when the first interval began.
    assert!((scan.axis.dt[0] - 600.0).abs() < 10.0, "{}", scan.axis.dt[0]);
    close(&series(&set, "vm.pgpgin", "").values.to_vec()[3..4], &[694_031.81 * 1024.0]);
    close(&series(&set, "vm.pgmajfault", "").values.to_vec()[..4], &[0.3, 0.18, 0.17, 633.88]);
    close(&series(&set, "vm.pgsteal", "").values.to_vec()[3..4], &[179_629.27]);
    assert!(set.get("vm.pgscan_direct", "").is_some());
}

#[test]
fn flood_disks_of_the_night_and_the_evening() {
    let set = whole(case("page-cache-flood/sar-d-night.txt")).set;
    let reads = series(&set, "disk.read_bytes", "vgca0");
    close(&reads.values.to_vec()[..3], &[1612.8 * 512.0, 1_363_553.94 * 512.0, 1_430_843.15 * 512.0]);
    assert_eq!(reads.values.len(), 6);
    assert_eq!(lines(reads), [4, 7, 10, 13, 16, 19]);
    // The last moment lacks vgca0; the mirror's disks have it.
    let busy = series(&set, "disk.io_time", "sda");
    close(&busy.values.to_vec(), &[0.2056, 0.867, 1.0034, 1.0083, 1.007, 1.0083, 0.9738]);
    assert_eq!(clocks(busy)[6], hms(3, 50, 1));
    close(&series(&set, "disk.weighted_time", "vgca0").values.to_vec()[1..2], &[27.61]);
    close(&series(&set, "disk.transfer_time", "sda").values.to_vec()[1..2], &[299.14 * 62.78 / 1000.0]);

    let set = whole(case("page-cache-flood/sar-d-evening.txt")).set;
    let reads = series(&set, "disk.read_bytes", "vgca0");
    close(
        &reads.values.to_vec()[..5],
        &[972_442.71, 1_013_505.28, 992_804.0, 929_067.86, 1538.2].map(|v| v * 512.0),
    );
    assert_eq!(clocks(reads)[..2], [hms(20, 50, 6), hms(21, 0, 4)]);
    assert_eq!(lines(reads)[..2], [8, 15]);
    assert_eq!(set.each("disk.transfers").count(), 7);
}

#[test]
fn flood_memory_and_cpu() {
    let set = whole(case("page-cache-flood/sar-r.txt")).set;
    let free = series(&set, "mem.free", "");
    close(&free.values.to_vec()[1..3], &[1_315_452.0 * 1024.0, 21_518_484.0 * 1024.0]);
    assert_eq!(clocks(free)[0], hms(20, 10, 1));
    assert_eq!(lines(free), [2, 3, 4, 5, 6, 7]);
    close(&series(&set, "mem.cached", "").values.to_vec()[2..3], &[53_060.0 * 1024.0]);
    // All that is not free counts as used here, and the printed percentage says so.
    close(&series(&set, "mem.total", "").values.to_vec(), &[65_837_824.0 * 1024.0; 6]);
    assert_eq!(set.host.memory_bytes, 65_837_824 * 1024);

    let set = whole(case("page-cache-flood/sar-u.txt")).set;
    let iowait = series(&set, "sys.cpu_iowait", "");
    assert_eq!(iowait.values.len(), 32);
    // No header says how many CPUs there are: shares stay shares of one.
    close(&iowait.values.to_vec()[..6], &[0.0044, 0.0035, 0.003, 0.0031, 0.3158, 0.5877]);
    let times = clocks(iowait);
    assert_eq!(times[..3], [hms(11, 40, 1), hms(11, 50, 1), hms(12, 0, 1)]);
    assert_eq!(times[8], hms(13, 0, 8));
    // The header is repeated on line 25.
    assert_eq!(lines(iowait)[21..25], [23, 24, 26, 27]);
}

#[test]
fn session_drop_cpus() {
    let set = whole(case("lb-session-drop/sar-P-ALL.txt")).set;
    assert_eq!(set.host.cpus, 12);
    let all = series(&set, "sys.cpu_system", "");
    close(&all.values.to_vec(), &[0.4188 * 12.0, 0.8418 * 12.0, 0.7575 * 12.0, 0.7014 * 12.0]);
    assert_eq!(clocks(all), [1, 2, 3, 4].map(|s| hms(12, 41, 20 + s)));
    assert_eq!(lines(all), [14, 27, 40, 53]);
    let five = series(&set, "cpu.system", "5");
    close(&five.values.to_vec(), &[0.0309, 0.4646, 0.97, 0.75, 0.798]);
    let nine = series(&set, "cpu.system", "9");
    assert_eq!(clocks(nine)[5], hms(12, 41, 26));
    close(&nine.values.to_vec()[5..], &[0.7822]);
    assert_eq!(lines(nine)[5], 66);
}

#[test]
fn session_drop_memory_swap_and_tcp() {
    let set = whole(case("lb-session-drop/sar-R.txt")).set;
    let change = series(&set, "mem.free_change", "");
    close(&change.values.to_vec()[4..7], &[16_308.0, 77_274.0, 154_106.0]);
    assert_eq!((clocks(change)[5], lines(change)[5]), (hms(12, 41, 21), 7));
    close(&series(&set, "mem.cached_change", "").values.to_vec()[5..6], &[-71_772.0]);

    let set = whole(case("lb-session-drop/sar-W.txt")).set;
    let out = series(&set, "vm.pswpout", "");
    close(&out.values.to_vec(), &[0.0, 78.22, 75.0, 0.0, 9.0, 43.0, 84.0, 70.0, 53.0, 74.0]);
    // The elision is no interval of its own.
    assert_eq!(lines(out)[3..5], [5, 7]);
    assert_eq!(out.axis.dt[4], 1.0);

    let set = whole(case("lb-session-drop/sar-n-TCP.txt")).set;
    close(&series(&set, "tcp.PassiveOpens", "").values.to_vec()[..2], &[836.0, 819.0]);
    close(&series(&set, "tcp.InSegs", "").values.to_vec()[8..9], &[13_207.92]);

    let set = whole(case("lb-session-drop/sar-r.txt")).set;
    let dirty = series(&set, "mem.dirty", "");
    assert_eq!(dirty.values.len(), 21);
    close(&dirty.values.to_vec()[20..], &[217_184.0 * 1024.0]);
    close(&series(&set, "mem.inactive", "").values.to_vec()[..1], &[28_501_704.0 * 1024.0]);
    assert_eq!(set.host.memory_bytes, 98_873_608 * 1024);
}

#[test]
fn page_faults_with_a_header_of_the_host() {
    let imported = whole(case("content-page-faults/sar-B.txt"));
    let set = &imported.set;
    assert_eq!((set.host.hostname.as_str(), set.host.cpus), ("content-03", 16));
    let faults = series(set, "vm.pgfault", "");
    assert_eq!(faults.values.len(), 18);
    close(&[faults.values[9], faults.values[10]], &[220_455.0, 356_954.0]);
    assert_eq!(faults.axis.t[0], moment(2019, 8, 11, hms(15, 7, 32)));
    assert_eq!(faults.axis.dt[0], 1.0);
    assert_eq!(lines(faults)[0], 4);
    assert_eq!(imported.files[0].formats, ["sar", "sar -B"]);
}

#[test]
fn an_old_version_passes_midnight_and_a_restart() {
    let set = whole(output("sar/sar-9.0.txt")).set;
    let user = series(&set, "sys.cpu_user", "");
    close(&user.values.to_vec(), &[0.0312 * 4.0, 0.04 * 4.0]);
    assert_eq!(user.axis.t, [moment(2017, 3, 15, hms(0, 0, 1)), moment(2017, 3, 15, hms(0, 10, 1))]);
    assert_eq!(user.axis.dt, [600.0, 600.0]);
    close(&series(&set, "disk.read_bytes", "dev8-0").values.to_vec(), &[160.0 * 512.0, 176.0 * 512.0]);
    close(&series(&set, "disk.transfer_time", "dev253-0").values.to_vec(), &[0.2, 0.21]);
    close(&series(&set, "nic.rx_bytes", "eth0").values.to_vec(), &[10_240.0, 11_264.0]);
    let load = series(&set, "sys.load1", "");
    close(&load.values.to_vec(), &[0.1, 0.05, 1.1]);
    assert_eq!(load.axis.t[2], moment(2017, 3, 15, hms(0, 30, 1)));
    // Counting began again with the machine.
    assert_eq!(load.axis.dt[2], 600.0);
    assert_eq!(set.host.memory_bytes, 8_000_000 * 1024);
}

#[test]
fn two_days_in_one_file() {
    let set = whole(output("sar/sar-11.6-two-days.txt")).set;
    let user = series(&set, "sys.cpu_user", "");
    // Guests are in it, as in the kernel's number.
    close(&user.values.to_vec(), &[0.15 * 2.0, 0.16 * 2.0, 0.17 * 2.0, 0.18 * 2.0]);
    let night = moment(2018, 7, 19, 0);
    let times = [-599, 1, 601, 1201].map(|s| night + s * SECOND);
    assert_eq!(user.axis.t, times);
    close(&series(&set, "sys.cpu_nice", "").values.to_vec()[..1], &[0.04 * 2.0]);
    close(&series(&set, "cpu.guest", "1").values.to_vec(), &[0.1, 0.1, 0.1]);
    close(&series(&set, "sys.intr", "").values.to_vec(), &[150.0, 151.0]);
    close(&series(&set, "irq.count", "16").values.to_vec(), &[1.0, 2.0]);
}

#[test]
fn near_misses_give_no_numbers() {
    for input in [
        // mpstat and pidstat have the same shape.
        "13:30:15  CPU    %usr   %nice    %sys %iowait    %irq   %soft  %steal  %guest  %gnice   %idle\n",
        "13:30:15      UID       PID   kB_rd/s   kB_wr/s kB_ccwr/s iodelay  Command\n13:30:16  0  1  1.00  2.00  3.00  0  x\n",
        // A log, a table of something else, semicolons of something else.
        "13:30:15 systemd[1]: blocked for 120\n13:30:16 worker: 1 2 3\n",
        "13:30:15 red green blue\n13:30:16 1.0 2.0 3.0\n",
        "# hostname;interval;name;tps\nvm;1;x;36.00\n",
        "vm\t1\t2026-11-21 13:30:15 UTC\tall\tcolour\t1.0\n",
        "{\"hosts\": [{\"statistics\": [{\"paging\": {\"pgpgin\": 1.5}}]}]}\n",
    ] {
        let imported = import("file", input);
        let ours = ["vm.pgpgin", "disk.transfers", "sys.procs_blocked", "vm.pgfault"];
        for metric in ours {
            assert_eq!(imported.set.each(metric).count(), 0, "{input}");
        }
        assert!(!imported.files[0].formats.iter().any(|f| f.starts_with("sa")), "{input}");
    }
}

#[test]
fn damaged_rows_are_counted_and_give_no_numbers() {
    let input = b"\
13:30:14     pswpin/s pswpout/s
13:30:15         1.00      2.00
13:30:16         1.00
13:30:17         1.00      2.00      3.00
13:30:18         x1.0      4.00
console message in between
13:30:19         5.00      6.00
13:30:2";
    let imported = import("file", input);
    let file = &imported.files[0];
    assert_eq!(file.first_unread, Some((3, "13:30:16         1.00".to_owned())));
    assert_eq!(file.unread, 4);
    let set = imported.set;
    let out = series(&set, "vm.pswpout", "");
    close(&out.values.to_vec(), &[2.0, 4.0, 6.0]);
    assert_eq!(lines(out), [2, 5, 7]);
    let inward = series(&set, "vm.pswpin", "");
    assert!(inward.values[1].is_nan());
    close(&[inward.values[0], inward.values[2]], &[1.0, 5.0]);
}

/// The hours of a 24-hour clock with a mark of the other, blanks lost, `...` for what was cut out, indented.
#[test]
fn evidence_as_people_paste_it() {
    let input = b"\
    $ sar -q 1
    12:41:19PM runq-sz plist-sz ldavg-1 ldavg-5 ldavg-15 blocked
    12:41:20PM 4 300 1.00 0.50 0.25 2

    ...
    13:41:21 PM 5 301 1.10 0.50 0.25 3
    13:41:22 PM runq-sz plist-sz ldavg-1 ldavg-5 ldavg-15 blocked
    13:41:23 PM 6 302 1.20 0.50 0.25 4
    ^C
    Average: 5 301 1.10 0.50 0.25 3
";
    let imported = import("file", input);
    assert_eq!(imported.files[0].unread, 0, "{:?}", imported.files[0].first_unread);
    let blocked = series(&imported.set, "sys.procs_blocked", "");
    close(&blocked.values.to_vec(), &[2.0, 3.0, 4.0]);
    assert_eq!(clocks(blocked), [hms(12, 41, 20), hms(13, 41, 21), hms(13, 41, 23)]);
    assert_eq!(lines(blocked), [3, 6, 8]);
}

#[test]
fn sections_without_a_place_are_named_once() {
    let imported = whole(output("sar/sar-A-C.txt"));
    let notes = &imported.files[0].notes;
    assert_eq!(notes.len(), 1, "{notes:?}");
    for option in ["sar -b", "sar -H", "sar -y", "sar -n NFS", "sar -m CPU", "sar -n IP6"] {
        assert!(notes[0].contains(option), "{notes:?} lacks {option}");
    }
    for option in ["sar -u", "sar -B", "sar -d", "sar -n DEV", "sar -q IO", "sar -F", "sar -I"] {
        assert!(imported.files[0].formats.iter().any(|f| f == option), "{option}");
    }
}

#[test]
fn sizes_with_suffixes_and_names_at_the_end() {
    let set = whole(output("sar/sar-h.txt")).set;
    let gib = 1024.0 * 1024.0 * 1024.0;
    close(&series(&set, "mem.free", "").values.to_vec()[..1], &[20.7 * gib]);
    close(&series(&set, "sys.cpu_user", "").values.to_vec()[..1], &[0.495 * 2.0]);
    assert!(set.get("disk.write_bytes", "vda").is_some_and(|s| s.values[0] > 1e8));
    assert!(set.get("nic.rx_bytes", "eth0").is_some_and(|s| s.values[0] >= 0.0));
    assert!(set.get("fs.free_bytes", "/dev/vda").is_some());
}

/// The files that are damaged, and how much of each: a run takes as long as its files.
const FUZZED: &[(&str, usize)] = &[
    ("sar-9.0.txt", usize::MAX),
    ("sar-11.6-two-days.txt", usize::MAX),
    ("sadf-10.txt", usize::MAX),
    ("sadf-d-U.txt", usize::MAX),
    ("sar-some-zh_CN.txt", usize::MAX),
    ("sadf-j.json", 20_000),
    ("sadf-dh.txt", 9_000),
    ("sadf-p.txt", 20_000),
];

fn beginnings() -> Vec<Vec<u8>> {
    let begin =
        |(name, n): &(&str, usize)| bytes(output(format!("sar/{name}"))).into_iter().take(*n).collect();
    FUZZED.iter().map(begin).collect()
}

proptest! {
    #![proptest_config(tries(60))]

    #[test]
    fn no_input_panics(content in damaged(beginnings())) {
        survive("file", content);
    }

    #[test]
    fn no_bytes_panic(input in proptest::collection::vec(any::<u8>(), 0..2000)) {
        survive("file", &input);
        survive("file", [b"13:30:14     pswpin/s pswpout/s\n".as_slice(), &input].concat());
    }
}
