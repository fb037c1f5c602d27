//! iostat and mpstat: what real and published outputs say, and what must not be taken for them.

use mitra_model::Era;
use proptest::prelude::*;

use crate::support::{
    RECORDED, bytes, case, check, damaged, date, hms, import, is_clean, lines, output, rows, seconds_in,
    seconds_of, series, survive, tries, whole,
};

#[test]
fn the_incident_with_the_saturated_disk() {
    let imported = whole(case("upload-100g/incident/iostat.txt"));
    let (set, file) = (&imported.set, &imported.files[0]);
    check(set, "disk.reads", "xvdb", &[745.0, 739.0, 734.0, 750.0]);
    let kb = [91_656.0, 92_152.0, 91_704.0, 92_104.0].map(|kb: f64| kb * 1024.0);
    check(set, "disk.read_bytes", "xvdb", &kb);
    check(set, "disk.weighted_time", "xvdb", &[25.32, 24.75, 24.93, 25.14]);
    check(set, "disk.io_time", "xvdb", &[1.004, 1.0, 1.0, 1.0]);
    let wait = [745.0 * 33.84, 739.0 * 33.49, 734.0 * 34.04, 750.0 * 33.37].map(|ms: f64| ms / 1000.0);
    check(set, "disk.read_time", "xvdb", &wait);
    check(set, "sys.cpu_iowait", "", &[29.94, 24.76, 28.75, 29.40].map(|p: f64| p * 0.16));
    assert_eq!(seconds_in(Era::Sequence, series(set, "disk.reads", "xvdb")), [1, 2, 3, 4]);
    assert_eq!(series(set, "disk.reads", "xvdb").axis.dt, [1.0; 4]);
    assert_eq!(lines(series(set, "disk.reads", "xvdb")), [15, 21, 27, 33]);
    // The average since boot says nothing of the incident, and -z leaves xvda out of the rest.
    assert!(set.get("disk.reads", "xvda").is_none());
    assert!(file.notes.iter().any(|n| n.contains("since boot")), "{:?}", file.notes);
    assert_eq!(imported.set.host.cpus, 16);
}

#[test]
fn the_good_side_has_a_disk_that_is_idle() {
    let imported = import("file", bytes(case("upload-100g/baseline-32g/iostat.txt")));
    let set = &imported.set;
    // One report of three has the disk: the others are intervals all the same.
    let writes = series(set, "disk.writes", "xvdb");
    assert_eq!(
        (&writes.values.to_vec()[..], &writes.axis.dt[..], seconds_in(Era::Sequence, writes)),
        (&[2.0][..], &[1.0][..], vec![2])
    );
    check(set, "disk.write_bytes", "xvdb", &[19.5 * 1024.0]);
    check(set, "sys.cpu_user", "", &[57.43 * 0.16, 53.5 * 0.16, 39.02 * 0.16]);
    assert_eq!(seconds_in(Era::Sequence, series(set, "sys.cpu_user", "")), [1, 2, 3]);
}

#[test]
fn extended_output_of_version_12() {
    let imported = whole(output("iostat/xz.txt"));
    let set = &imported.set;
    check(set, "disk.writes", "vda", &[747.0, 16.0]);
    check(set, "disk.write_merges", "vda", &[916.0, 0.0]);
    check(set, "disk.write_bytes", "vda", &[72_124.0 * 1024.0, 65_536.0 * 1024.0]);
    check(set, "disk.write_time", "vda", &[2.49 * 0.747, 16.75 * 0.016]);
    check(set, "disk.discard_time", "vda", &[5.33 * 0.003, 3.5 * 0.002]);
    check(set, "disk.discard_bytes", "vda", &[131_076.0 * 1024.0, 65_540.0 * 1024.0]);
    check(set, "disk.flushes", "vda", &[0.0, 0.0]);
    check(set, "disk.io_time", "vda", &[0.048, 0.028]);
    check(set, "sys.cpu_system", "", &[0.3869 * 2.0, 0.3383 * 2.0]);
    assert!(set.get("disk.writes", "loop0").is_none());
}

#[test]
fn times_and_numbers_of_locales() {
    for (name, times, writes, user) in
        [("xt-de_DE", hms(13, 48, 1), 47.0, 80.69), ("xt-en_US", hms(13, 48, 11), 3.96, 89.11)]
    {
        let imported = whole(output(format!("iostat/{name}.txt")));
        let disk = series(&imported.set, "disk.writes", "vda");
        assert_eq!(seconds_of(RECORDED, disk), [times], "{name}");
        // The first report is no sample, but it says when the interval began.
        assert_eq!(disk.axis.dt, [1.0], "{name}");
        check(&imported.set, "disk.writes", "vda", &[writes]);
        check(&imported.set, "sys.cpu_user", "", &[user / 50.0]);
    }
    let imported = whole(output("iostat/iso.txt"));
    assert_eq!(seconds_of(RECORDED, series(&imported.set, "disk.writes", "vda")), [hms(13, 35, 15)]);
    check(&imported.set, "disk.writes", "vda", &[100.0]);
}

/// OSWatcher runs `iostat` anew behind each of its marks: the first report below each is of the time since boot.
#[test]
fn each_run_of_oswatcher_has_a_report_since_boot() {
    let report = |user: u32, reads: u32| {
        format!(
            "avg-cpu:  %user   %nice %system %iowait  %steal   %idle\n          {user}.00    0.00    0.00    0.00    0.00   50.00\n\n\
             Device:            tps    kB_read/s    kB_wrtn/s    kB_read    kB_wrtn\nsda               {reads}.00        40.00        50.00         40         50\n\n"
        )
    };
    let run = |minute: u32, user: u32| {
        format!("zzz ***Tue Mar 5 10:0{minute}:00 UTC 2019\n{}{}", report(5, 2), report(user, 30))
    };
    let read = import("osw_iostat.dat", format!("{}{}", run(0, 15), run(1, 25)));
    is_clean(&read);
    check(&read.set, "sys.cpu_user", "", &[0.15, 0.25]);
    check(&read.set, "disk.transfers", "sda", &[30.0, 30.0]);
}

const LOCALES: [(&str, i64, i64); 14] = [
    ("cs_CZ", hms(14, 3, 25), hms(14, 3, 25)),
    ("en_GB", hms(14, 3, 6), hms(14, 3, 6)),
    ("es_ES", hms(14, 3, 16), hms(14, 3, 16)),
    ("fi_FI", hms(14, 3, 3), hms(14, 3, 3)),
    ("hu_HU", hms(14, 3, 30), hms(14, 3, 30)),
    ("it_IT", hms(14, 3, 18), hms(14, 3, 18)),
    ("ja_JP", hms(14, 3, 0), hms(14, 3, 0)),
    ("ko_KR", hms(14, 3, 22), hms(14, 3, 22)),
    ("nl_NL", hms(14, 3, 27), hms(14, 3, 27)),
    ("pl_PL", hms(14, 3, 8), hms(14, 3, 9)),
    ("pt_BR", hms(14, 3, 14), hms(14, 3, 14)),
    ("ru_RU", hms(14, 3, 11), hms(14, 3, 11)),
    ("sv_SE", hms(14, 3, 20), hms(14, 3, 20)),
    ("zh_CN", hms(14, 2, 58), hms(14, 2, 58)),
];

#[test]
fn locales_of_the_world() {
    for (name, end, task_end) in LOCALES {
        let imported = whole(output(format!("iostat/locales/{name}.txt")));
        let disk = series(&imported.set, "disk.writes", "vda");
        assert_eq!((seconds_of(RECORDED, disk), &disk.axis.dt[..]), (vec![end], &[1.0][..]), "iostat {name}");
        assert_eq!(imported.set.host.cpus, 2, "{name}");
        let imported = whole(output(format!("mpstat/locales/{name}.txt")));
        let user = series(&imported.set, "sys.cpu_user", "");
        assert_eq!((seconds_of(RECORDED, user), user.values.len()), (vec![end], 1), "mpstat {name}");
        let imported = whole(output(format!("pidstat/locales/{name}.txt")));
        let (row, user) = imported.set.each("task.user_time").next().unwrap();
        assert_eq!(
            (seconds_of(RECORDED, user), user.values.len()),
            (vec![task_end], 1),
            "pidstat {name} {row}"
        );
    }
}

#[test]
fn tables_in_pieces_with_units_of_their_own() {
    let imported = whole(output("iostat/xh.txt"));
    let set = &imported.set;
    check(set, "disk.read_bytes", "vda", &[9.3 * 1024.0 * 1024.0]);
    check(set, "disk.read_time", "vda", &[1220.0 * 0.01332]);
    check(set, "disk.write_bytes", "vda", &[128.0 * 1024.0 * 1024.0]);
    check(set, "disk.io_time", "vda", &[0.16]);
    check(set, "disk.weighted_time", "vda", &[16.88]);
    // Four tables are one report.
    for metric in ["disk.reads", "disk.writes", "disk.discards", "disk.io_time"] {
        assert_eq!(seconds_in(Era::Sequence, series(set, metric, "vda")), [1], "{metric}");
    }
    let short = whole(output("iostat/xs.txt")).set;
    check(&short, "disk.transfers", "vda", &[27.72]);
    check(&short, "disk.transfer_time", "vda", &[27.72 * 0.01125]);
    assert!(short.get("disk.reads", "vda").is_none());
    let short = whole(output("iostat/hs.txt")).set;
    check(&short, "disk.transfers", "vda", &[112.0]);
}

#[test]
fn the_plain_form_and_megabytes() {
    let set = whole(output("iostat/plain.txt")).set;
    check(&set, "disk.transfers", "vda", &[50.0]);
    check(&set, "disk.write_bytes", "vda", &[131_232.0 * 1024.0]);
    check(&set, "disk.discard_bytes", "vda", &[131_256.0 * 1024.0]);
    let set = whole(output("iostat/m-p.txt")).set;
    check(&set, "disk.write_bytes", "vda", &[62.84 * 1048576.0]);
    check(&set, "disk.transfers", "zram0", &[0.0]);
    let set = whole(output("iostat/dec0.txt")).set;
    check(&set, "disk.write_bytes", "vda", &[432.0 * 1048576.0]);
}

#[test]
fn without_the_first_report_all_are_samples() {
    let imported = whole(output("iostat/x-y-t.txt"));
    assert_eq!(imported.files[0].notes, [""; 0]);
    check(&imported.set, "disk.writes", "vda", &[32.0, 16.0]);
    let disk = series(&imported.set, "disk.writes", "vda");
    assert_eq!(seconds_of(RECORDED, disk), [hms(13, 30, 18), hms(13, 30, 19)]);
    assert_eq!(lines(disk), [10, 19]);
    // -d has no CPU table; each header is a report.
    let imported = whole(output("iostat/y.txt"));
    check(&imported.set, "disk.writes", "vda", &[47.52, 51.0]);
    assert_eq!(seconds_in(Era::Sequence, series(&imported.set, "disk.writes", "vda")), [1, 2]);
    // -c has nothing else.
    let imported = whole(output("iostat/c.txt"));
    check(&imported.set, "sys.cpu_user", "", &[0.6985 * 2.0, 0.5743 * 2.0]);
    // A prompt says so too.
    let text = b"$ iostat -dxy 5 2\nDevice r/s w/s %util\nsda 1.00 2.00 3.00\n\nDevice r/s w/s %util\nsda 4.00 5.00 6.00\n";
    let set = import("file", text).set;
    check(&set, "disk.reads", "sda", &[1.0, 4.0]);
    assert_eq!(series(&set, "disk.reads", "sda").axis.dt, [5.0, 5.0]);
}

#[test]
fn a_single_report_is_a_fact() {
    let text = "Linux 5.10.0 (h)  03/04/24  _x86_64_ (4 CPU)\n\navg-cpu: %user %nice %system %iowait %steal %idle\n\
                10.00 0.00 5.00 1.00 0.00 84.00\n\nDevice tps kB_read/s kB_wrtn/s kB_read kB_wrtn\nsda 7.50 100.00 8.00 1000 80\n";
    let imported = import("file", text);
    assert_eq!(imported.files[0].unread, 0);
    assert!(imported.files[0].notes[0].contains("average since boot"));
    let disk = series(&imported.set, "disk.read_bytes", "sda");
    assert_eq!(Era::of(disk.axis.t[0]), Era::Fact);
    assert_eq!((disk.values[0], lines(disk)), (102_400.0, vec![7]));
    check(&imported.set, "sys.cpu_user", "", &[0.4]);
}

#[test]
fn groups_of_devices_are_no_devices() {
    let imported = whole(output("iostat/g.txt"));
    let rows: Vec<&str> = imported.set.each("disk.writes").map(|(row, _)| row).collect();
    assert_eq!(rows, ["loop0", "vda"]);
    check(&imported.set, "disk.writes", "vda", &[65.0]);
    assert!(imported.files[0].notes.iter().any(|n| n.contains("groups")));
}

/// The layout of versions 5 to 9: one await for both directions, sectors, a line `Time:`.
#[test]
fn old_versions() {
    let text = "\
Linux 2.6.18-8.el5 (db1) \t03/14/2008

Time: 10:23:45 AM
avg-cpu:  %user   %nice    %sys %iowait   %idle
           1.00    0.00    2.00    3.00   94.00

Device:    rrqm/s wrqm/s   r/s   w/s  rsec/s  wsec/s    rkB/s    wkB/s avgrq-sz avgqu-sz   await  svctm  %util
sda          0.10   2.00  0.50  1.20    8.00   27.20     4.00    13.60    22.67     0.03   21.67  10.00   1.20

Time: 10:23:55 AM
avg-cpu:  %user   %nice    %sys %iowait   %idle
          10.00    0.00   20.00   30.00   40.00

Device:    rrqm/s wrqm/s   r/s   w/s  rsec/s  wsec/s    rkB/s    wkB/s avgrq-sz avgqu-sz   await  svctm  %util
/dev/cciss/c0d0
             4.33   0.37 80.00 20.00  160.00    5.86    80.00     2.93   247.85     0.60    5.00   4.94  59.17
sdb          0.00   0.00  0.00  0.00    0.00    0.00     0.00     0.00     0.00     0.00    0.00   0.00   0.00

";
    let imported = import("file", text);
    assert_eq!(imported.files[0].first_unread, None);
    let set = &imported.set;
    check(set, "disk.reads", "cciss/c0d0", &[80.0]);
    check(set, "disk.transfers", "cciss/c0d0", &[100.0]);
    check(set, "disk.transfer_time", "cciss/c0d0", &[0.5]);
    check(set, "disk.read_bytes", "cciss/c0d0", &[160.0 * 512.0]);
    assert!(set.get("disk.read_time", "cciss/c0d0").is_none());
    check(set, "disk.io_time", "sdb", &[0.0]);
    check(set, "sys.cpu_iowait", "", &[0.3]);
    let disk = series(set, "disk.reads", "cciss/c0d0");
    assert_eq!(seconds_of(date(2008, 3, 14), disk), [hms(10, 23, 55)]);
    assert_eq!((disk.axis.dt[0], lines(disk)), (10.0, vec![16]));
}

/// Version 11.7 has the new names with the writes after the reads.
#[test]
fn columns_in_another_order() {
    let text = "Linux 4.18.0 (h)  01/02/2020  _x86_64_ (2 CPU)\n\n\n\
        Device            r/s     w/s     rMB/s     wMB/s   rrqm/s   wrqm/s  %rrqm  %wrqm r_await w_await aqu-sz rareq-sz wareq-sz  svctm  %util\n\
        nvme0n1         10.00   20.00      1.00      2.00     3.00     4.00  23.08  16.67    0.50    2.00   0.05   102.40   102.40   0.10   0.30\n";
    let set = import("file", text).set;
    check(&set, "disk.read_bytes", "nvme0n1", &[1_048_576.0]);
    check(&set, "disk.write_merges", "nvme0n1", &[4.0]);
    check(&set, "disk.write_time", "nvme0n1", &[0.04]);
    check(&set, "disk.weighted_time", "nvme0n1", &[0.05]);
}

#[test]
fn json() {
    let imported = whole(output("iostat/json.txt"));
    let set = &imported.set;
    check(set, "disk.writes", "vda", &[136.0]);
    check(set, "disk.write_time", "vda", &[136.0 * 0.0306]);
    check(set, "disk.io_time", "vda", &[0.196]);
    check(set, "sys.cpu_user", "", &[1.52]);
    assert_eq!(lines(series(set, "disk.writes", "vda")), [22]);
    assert_eq!((set.host.cpus, set.host.hostname.as_str()), (2, "vm"));
    let imported = whole(output("iostat/json-short.txt"));
    let disk = series(&imported.set, "disk.write_bytes", "vda");
    assert_eq!(seconds_of(RECORDED, disk), [hms(13, 30, 25)]);
    assert_eq!((disk.values[0], disk.axis.dt[0]), (1_163_924.75 * 1024.0, 1.0));
    whole(output("iostat/json-de.txt"));
    // Stopped by a signal: what was complete counts.
    let mut cut = bytes(output("iostat/json-short.txt"));
    cut.truncate(cut.len() - 16);
    assert_eq!(series(&import("file", &cut).set, "disk.write_bytes", "vda").values, [1_163_924.75 * 1024.0]);
    cut.truncate(cut.len() - 100);
    let broken = import("file", &cut);
    assert!(broken.files[0].unread > 0);
    assert_eq!(series(&broken.set, "disk.write_bytes", "vda").values, [41_157.28 * 1024.0]);
}

#[test]
fn mpstat_of_locales() {
    for (name, start, user, system) in [
        ("de_DE", hms(13, 48, 2), [0.87, 0.7426], [0.0909, 0.0784]),
        ("fr_FR", hms(13, 48, 7), [0.9505, 0.91], [0.0792, 0.04]),
        ("en_US", hms(13, 48, 12), [0.90, 0.9208], [0.12, 0.14]),
    ] {
        let imported = whole(output(format!("mpstat/all-{name}.txt")));
        check(&imported.set, "cpu.user", "0", &user);
        check(&imported.set, "cpu.system", "1", &system);
        let cpu = series(&imported.set, "cpu.user", "0");
        assert_eq!(seconds_of(RECORDED, cpu), [start, start + 1], "{name}");
        assert_eq!((&cpu.axis.dt[..], lines(cpu)), (&[1.0, 1.0][..], vec![5, 10]));
        assert_eq!(series(&imported.set, "sys.cpu_system", "").values.len(), 2);
    }
}

#[test]
fn mpstat_with_all_there_is() {
    let imported = whole(output("mpstat/A.txt"));
    let set = &imported.set;
    check(set, "sys.intr", "", &[1154.0, 1458.0]);
    check(set, "softirq.block", "1", &[481.0, 33.0]);
    check(set, "softirq.timer", "0", &[52.0, 48.0]);
    check(set, "cpu.softirq", "1", &[0.0099, 0.0]);
    check(set, "sys.cpu_user", "", &[0.7363 * 2.0, 0.66 * 2.0]);
    assert_eq!(imported.files[0].notes.len(), 2);
    assert_eq!(imported.files[0].formats, ["mpstat"]);
    let set = whole(output("mpstat/json.txt")).set;
    check(&set, "sys.intr", "", &[582.0, 588.0]);
    check(&set, "cpu.system", "1", &[0.3861, 0.2277]);
    check(&set, "softirq.timer", "1", &[7.0, 13.0]);
    assert_eq!(lines(series(&set, "cpu.system", "1")), [16, 135]);
    let set = whole(output("mpstat/bare.txt")).set;
    let user = series(&set, "sys.cpu_user", "");
    assert_eq!((user.values[0], Era::of(user.axis.t[0])), (0.6076, Era::Fact));
}

#[test]
fn guests_are_part_of_the_time_of_users() {
    let text = "12:00:01 AM  CPU  %usr %nice %sys %iowait %irq %soft %steal %guest %gnice %idle\n\
                12:00:02 AM  all  10.0  1.0  5.0  0.0  0.0  0.0  0.0  20.0  2.0  62.0\n\
                12:00:02 AM    0  10.0  1.0  5.0  0.0  0.0  0.0  0.0  20.0  2.0  62.0\n";
    let set = import("file", text).set;
    check(&set, "cpu.user", "0", &[0.3]);
    check(&set, "cpu.guest", "0", &[0.2]);
    check(&set, "sys.cpu_nice", "", &[0.03]);
    // A version without guests, and with the interrupts at the end.
    let text = "12:00:01 AM  CPU   %user   %nice    %sys %iowait    %irq   %soft  %steal   %idle    intr/s\n\
                12:00:02 AM  all    4.00    0.00    1.00    0.00    0.00    0.00    0.00   95.00   1013.00\n";
    let set = import("file", text).set;
    check(&set, "sys.cpu_user", "", &[0.04]);
    check(&set, "sys.intr", "", &[1013.0]);
}

#[test]
fn damaged_lines_are_counted_and_never_become_numbers() {
    let text = "Linux 5.4.0 (h)  01/02/2020  _x86_64_ (2 CPU)\n\n\nDevice r/s w/s rkB/s wkB/s %util\n\
                sda 1.00 2.00 3.00 4.00 5.00\nsdb 1.00 2.00 3.0\nsdc 1.00 x 3.00 4.00 5.00\nsdd 1.00 2.00 3.00 4.00 5.00\n(...)\n";
    let imported = import("file", text);
    let rows: Vec<&str> = imported.set.each("disk.reads").map(|(row, _)| row).collect();
    assert_eq!(rows, ["sda", "sdd"]);
    assert_eq!(imported.files[0].unread, 3);
    assert_eq!(imported.files[0].first_unread, Some((6, "sdb 1.00 2.00 3.0".to_owned())));
}

#[test]
fn what_is_near_is_not_taken() {
    for text in [
        "Device: the disk\nsda 1.00\n",
        "Device Boot Start End\n/dev/sda1 1 2 3\n",
        "avg-cpu: 12 13\n 1.0 2.0\n",
        "r/s w/s\n1.00 2.00\n",
        "NAME tps kB_read/s\nsda 1.00 2.00\n",
        "12:00:01 AM CPU %user\n12:00:02 AM all 2.00\n",
        "{\"sysstat\": {\"hosts\": []}}\n",
        "{\"avg-cpu\": {\"user\": 1.0}}\n",
        "1.00 2.00 3.00\n",
    ] {
        let imported = import("file", text);
        let ours = |f: &String| f.contains("iostat") || f.contains("mpstat");
        assert!(!imported.files[0].formats.iter().any(ours), "{text}");
        assert_eq!(imported.set.each("disk.reads").count(), 0, "{text}");
    }
}

#[test]
fn the_others_are_named_and_passed_over() {
    let text = "Linux 5.4.0 (h)  01/02/2020  _x86_64_ (2 CPU)\n\n\
        Filesystem                     rB/s         wB/s    rops/s    wops/s         fo/s         fc/s         fd/s\n\
        \\\\server\\share                 0.00         9.00      0.00      1.00         0.00         0.00         0.00\n\n\
        Tape:    r/s     w/s   kB_read/s   kB_wrtn/s %Rd %Wr %Oa    Rs/s    Ot/s\n\
        st0        0     370           0      185241   0 100 100       0       0\n";
    let imported = import("file", text);
    assert_eq!((imported.set.metrics().count(), imported.files[0].unread), (0, 5));
    assert_eq!(imported.files[0].notes.len(), 2);
}

const FIXTURES: &[&str] = &[
    "iostat/xh.txt",
    "iostat/xt-de_DE.txt",
    "iostat/json.txt",
    "iostat/g.txt",
    "iostat/plain.txt",
    "mpstat/A.txt",
    "mpstat/json.txt",
    "mpstat/all-fr_FR.txt",
];

proptest! {
    #![proptest_config(tries(256))]

    #[test]
    fn changed_outputs_never_panic(content in damaged(FIXTURES.iter().map(|path| bytes(output(path))).collect())) {
        survive("file", content);
    }

    #[test]
    fn arbitrary_rows_never_panic(rows in rows()) {
        for header in ["avg-cpu:  %user %idle", "Device r/s w/s await %util", "10:00:00 CPU %usr %iowait %irq", "{\"sysstat\": {\"hosts\": [{\"date\": \"1/1/20\", \"statistics\": [{\"avg-cpu\": {"] {
            survive("file", format!("{header}\n{}\n", rows.join("\n")));
        }
    }
}
