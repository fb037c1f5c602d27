//! pidstat: what real and published outputs say, and what must not be taken for them.

use std::path::Path;

use mitra_model::Era;
use mitra_model::time::SECOND;
use mitra_parse::text::Imported;
use proptest::prelude::*;

use crate::support::{
    RECORDED, bytes, case, check, damaged, hms, import, lines, output, rows, seconds_of, series, survive,
    text_of, tries, whole,
};

/// A file that is read to its last line, and as nothing else.
#[track_caller]
fn pidstat(path: impl AsRef<Path>) -> Imported {
    let imported = whole(path);
    assert_eq!(imported.files[0].formats, ["pidstat"]);
    imported
}

#[test]
fn the_incident_of_the_load_balancer() {
    for (file, second, faults, rss) in
        [("pidstat-r-21.txt", 21, 102.0, 121_164.0), ("pidstat-r-22.txt", 22, 284.0, 121_660.0)]
    {
        let imported = pidstat(case(format!("lb-session-drop/{file}")));
        let set = &imported.set;
        check(set, "task.minflt", "28892@0", &[faults]);
        check(set, "task.rss", "28892@0", &[rss * 1024.0]);
        check(set, "task.vsize", "5206@0", &[46_340.0 * 1024.0]);
        let minflt = series(set, "task.minflt", "28892@0");
        assert_eq!(Era::of(minflt.axis.t[0]), Era::Day);
        assert_eq!((minflt.axis.t[0] - Era::Day.zero()) / SECOND, hms(12, 41, second));
        assert_eq!((minflt.axis.dt[0], lines(minflt)), (1.0, vec![4]));
        assert_eq!(text_of(set, "task.comm", "5206@0"), Some("hapee-lb-system"));
        assert_eq!(set.each("task.minflt").count(), 12);
    }
    let set = pidstat(case("lb-session-drop/pidstat-d.txt")).set;
    check(&set, "task.write_bytes", "28892@0", &[5964.0 * 1024.0]);
    check(&set, "task.write_bytes", "28899@0", &[20.0 * 1024.0]);
    check(&set, "task.read_bytes", "28892@0", &[0.0]);
    check(&set, "task.tgid", "28892@0", &[28_892.0]);
    assert_eq!(set.each("task.write_bytes").count(), 11);
}

#[test]
fn all_on_one_line() {
    let imported = pidstat(output("pidstat/h-urdw.txt"));
    let set = &imported.set;
    let row = "30208@0";
    check(set, "task.user_time", row, &[0.2475, 0.23]);
    check(set, "task.system_time", row, &[0.1584, 0.22]);
    check(set, "task.run_delay", row, &[0.4455, 0.43]);
    check(set, "task.cpu_time", row, &[0.4059, 0.45]);
    check(set, "task.cpu", row, &[1.0, 1.0]);
    check(set, "task.rss", row, &[2556.0 * 1024.0; 2]);
    check(set, "task.write_bytes", row, &[370_186.14 * 1024.0, 356_736.0 * 1024.0]);
    check(set, "task.nvcsw", row, &[13.86, 10.0]);
    check(set, "task.nivcsw", row, &[189.11, 104.0]);
    // Delay accounting was off: zero everywhere is not zero.
    assert!(set.get("task.blkio_delay", row).is_none());
    let cpu = series(set, "task.cpu_time", row);
    assert_eq!(
        (seconds_of(RECORDED, cpu), lines(cpu)),
        (vec![hms(13, 34, 53), hms(13, 34, 54)], vec![19, 36])
    );
    assert_eq!(text_of(set, "task.comm", row), Some("stress-ng-hdd"));
}

#[test]
fn locales_and_clocks() {
    for (file, pid, start, user, written) in [
        ("urdw-de_DE.txt", 23_132, hms(13, 48, 4), 0.2621, 349.51),
        ("urdw-fr_FR.txt", 23_132, hms(13, 48, 9), 0.3069, 451.49),
        ("urdw-en_US.txt", 23_137, hms(13, 48, 14), 0.598, 721.57),
    ] {
        let imported = pidstat(output(format!("pidstat/{file}")));
        let row = format!("{pid}@0");
        let user_time = series(&imported.set, "task.user_time", &row);
        assert_eq!((user_time.values[0], seconds_of(RECORDED, user_time)[0]), (user, start), "{file}");
        assert_eq!(user_time.axis.dt[0], 1.0, "{file}");
        let bytes = series(&imported.set, "task.write_bytes", &row);
        assert!((bytes.values[0] - written * 1024.0).abs() < 1e-6, "{file}");
        // Two samples; the averages after them are none.
        assert!(user_time.values.len() <= 2, "{file}");
    }
    let set = pidstat(output("pidstat/h-en.txt")).set;
    assert_eq!(
        seconds_of(RECORDED, series(&set, "task.cpu_time", "30207@0")),
        [hms(13, 34, 55), hms(13, 34, 56)]
    );
    let set = pidstat(output("pidstat/H.txt")).set;
    assert_eq!(
        seconds_of(RECORDED, series(&set, "task.cpu_time", "30207@0")),
        [hms(13, 34, 57), hms(13, 34, 58)]
    );
    check(&set, "task.cpu_time", "30207@0", &[0.4455, 0.5842]);
}

#[test]
fn threads_count_once() {
    let set = pidstat(output("pidstat/t.txt")).set;
    check(&set, "task.cpu_time", "30208@0", &[0.466, 0.44]);
    assert_eq!(lines(series(&set, "task.cpu_time", "30208@0")), [7, 31]);
    assert_eq!(text_of(&set, "task.comm", "30208@0"), Some("stress-ng-hdd"));
    let text = "10:00:00      UID      TGID       TID  minflt/s  majflt/s     VSZ     RSS   %MEM  Command\n\
                10:00:01     1000       500         -      9.00      1.00    4000    2000   0.10  java\n\
                10:00:01     1000         -       500      4.00      0.00    4000    2000   0.10  |__java\n\
                10:00:01     1000         -       507      5.00      1.00    4000    2000   0.10  |__C2 CompilerThre\n";
    let set = import("file", text).set;
    let faults: f64 = set.each("task.minflt").map(|(_, s)| s.values[0]).sum();
    assert_eq!(faults, 9.0);
    check(&set, "task.tgid", "507@0", &[500.0]);
    assert_eq!(text_of(&set, "task.comm", "507@0"), Some("C2 CompilerThre"));
    // The memory is that of the process.
    assert_eq!(set.each("task.rss").map(|(row, _)| row).collect::<Vec<_>>(), ["500@0"]);
}

#[test]
fn units_of_their_own_and_users() {
    let set = pidstat(output("pidstat/h-human-t.txt")).set;
    check(&set, "task.read_bytes", "30208@0", &[7.5 * 1024.0]);
    check(&set, "task.write_bytes", "30208@0", &[278.6 * 1_048_576.0]);
    check(&set, "task.rss", "30208@0", &[2.5 * 1_048_576.0]);
    check(&set, "task.user_time", "30208@0", &[0.159]);
    let set = pidstat(output("pidstat/l-U.txt")).set;
    check(&set, "task.system_time", "22599@0", &[0.0396, 0.06]);
    assert_eq!(text_of(&set, "task.comm", "22599@0"), Some("stress-ng-hdd"));
}

#[test]
fn descriptors_and_policies() {
    let set = pidstat(output("pidstat/h-v-R.txt")).set;
    check(&set, "task.fds", "4241@0", &[6.0, 7.0]);
    check(&set, "task.threads", "4241@0", &[1.0, 2.0]);
    check(&set, "task.policy", "4241@0", &[0.0, 0.0]);
    check(&set, "task.policy", "17@0", &[1.0, 1.0]);
    // -1: the descriptors could not be read.
    assert!(set.get("task.fds", "17@0").is_none());
    let set = pidstat(output("pidstat/v-R-T-ALL.txt")).set;
    check(&set, "task.policy", "4158@0", &[0.0]);
    check(&set, "task.fds", "4113@0", &[6.0]);
    check(&set, "task.user_time", "4052@0", &[0.2]);
    // A policy that is not known is not the usual one.
    let text = "10:00:00      UID       PID prio policy  Command\n\
                10:00:01        0         7   99      ?  a\n\
                10:00:01        0         8   10     RR  b\n";
    let set = import("file", text).set;
    assert!(set.get("task.policy", "7@0").is_none());
    check(&set, "task.policy", "8@0", &[2.0]);
    let text = "10:00:00      UID      TGID       TID threads   fd-nr  Command\n\
                10:00:01     1000       500         -       2      90  java\n\
                10:00:01     1000         -       500       2      90  |__java\n\
                10:00:01     1000         -       507       2      90  |__C2 CompilerThre\n";
    let set = import("file", text).set;
    assert_eq!(set.each("task.fds").map(|(row, _)| row).collect::<Vec<_>>(), ["500@0"]);
}

#[test]
fn since_boot_and_one_process() {
    let imported = pidstat(output("pidstat/bare.txt"));
    let cpu = series(&imported.set, "task.cpu_time", "1@0");
    check(&imported.set, "task.cpu_time", "1@0", &[0.0056]);
    assert_eq!(Era::of(cpu.axis.t[0]), Era::Fact);
    assert!(imported.files[0].notes[0].contains("since boot"));
    // -p prints the header once, and its average without one.
    let set = pidstat(output("pidstat/p.txt")).set;
    let bytes = series(&set, "task.write_bytes", "22599@0");
    assert_eq!(seconds_of(RECORDED, bytes), [hms(13, 47, 26), hms(13, 47, 27), hms(13, 47, 28)]);
    assert_eq!(bytes.axis.dt, [1.0; 3]);
    let imported = pidstat(output("pidstat/T.txt"));
    check(&imported.set, "task.user_time", "30207@0", &[0.3235]);
    assert!(imported.files[0].notes[0].contains("children"));
    for file in ["u-1.txt", "human.txt"] {
        pidstat(output(format!("pidstat/{file}")));
    }
}

#[test]
fn delays_are_ticks_of_the_interval_and_minus_one_is_unknown() {
    let text = "12:49:30 AM   UID       PID   kB_rd/s   kB_wr/s kB_ccwr/s iodelay  Command\n\
                12:49:35 AM     0       368      0.00     16.00      0.00     250  jbd2/sda1-8\n\
                12:49:35 AM   100      9085     -1.00     -1.00     -1.00       0  redis-server\n\
                ^C\n\
                Average:        0       368      0.00     99.00      0.00     999  jbd2/sda1-8\n";
    let imported = import("file", text);
    assert_eq!(imported.files[0].unread, 0);
    // 250 ticks of 10 ms in 5 s.
    check(&imported.set, "task.blkio_delay", "368@0", &[0.5]);
    check(&imported.set, "task.blkio_delay", "9085@0", &[0.0]);
    assert!(imported.set.get("task.write_bytes", "9085@0").is_none());
    check(&imported.set, "task.write_bytes", "368@0", &[16_384.0]);
    assert_eq!(
        series(&imported.set, "task.write_bytes", "368@0").axis.t[0] - Era::Day.zero(),
        hms(0, 49, 35) * SECOND
    );
}

/// Versions before 10 have no user, before 9 other names.
#[test]
fn old_versions_and_midnight() {
    let text = "11:59:58 PM       PID   %user %system    %CPU   CPU  Command\n\
                11:59:59 PM      1234   10.00    5.00   15.00     3  httpd\n\n\
                11:59:59 PM       PID   %user %system    %CPU   CPU  Command\n\
                12:00:00 AM      1234   20.00    5.00   25.00     2  httpd\n";
    let set = import("file", text).set;
    check(&set, "task.user_time", "1234@0", &[0.1, 0.2]);
    check(&set, "task.cpu", "1234@0", &[3.0, 2.0]);
    let t = &series(&set, "task.user_time", "1234@0").axis.t;
    assert_eq!((t[1] - t[0]) / SECOND, 1);
    // -h of version 10: seconds since 1970 and a narrow mark.
    let text = "#      Time   UID       PID    %usr %system  %guest    %CPU   CPU  Command\n \
                1355412345     0         1    1.00    2.00    3.00    6.00     0  init\n";
    let set = import("file", text).set;
    check(&set, "task.user_time", "1@0", &[0.04]);
    assert_eq!(series(&set, "task.user_time", "1@0").axis.t, [1_355_412_345 * SECOND]);
}

#[test]
fn with_i_the_share_of_all_cpus_is_not_taken_for_cpu_time() {
    let text = "$ pidstat -I 1\n10:00:00 UID PID %usr %system %guest %wait %CPU CPU Command\n\
                10:00:01 0 7 60.00 20.00 0.00 0.00 10.00 1 java\n";
    check(&import("file", text).set, "task.cpu_time", "7@0", &[0.8]);
}

#[test]
fn damaged_lines_are_counted_and_never_become_numbers() {
    let text = "10:00:00 UID PID minflt/s majflt/s VSZ RSS %MEM Command\n\
                10:00:01 0 7 1.00 0.00 10 20 0.00 a\n\
                10:00:01 0 8 2.00 0.00 10\n\
                10:00:01 0 x9 3.00 0.00 10 20 0.00 c\n\
                10:00:01 0 10 4,5x 0.00 10 20 0.00 d\n\
                10:00:01 all 1.00 2.00 3.00\n";
    let imported = import("file", text);
    let rows: Vec<&str> = imported.set.each("task.rss").map(|(row, _)| row).collect();
    assert_eq!(rows, ["10@0", "7@0"]);
    assert!(imported.set.get("task.minflt", "10@0").is_none());
    assert_eq!(imported.files[0].first_unread.as_ref().unwrap().0, 3);
    assert!(imported.files[0].unread >= 2);
}

#[test]
fn what_is_near_is_not_taken() {
    for text in [
        "  PID USER      PR  NI    VIRT    RES    SHR S  %CPU  %MEM     TIME+ COMMAND\n 1 root 20 0 1 2 3 S 0.0 0.1 0:01 init\n",
        "UID PID PPID C STIME TTY TIME CMD\nroot 1 0 0 10:00 ? 00:00:01 init\n",
        "UID PID %usr Command\n0 1 2.00 x\n",
        "10:00:00 UID PID %usr %system CMD\n10:00:01 0 1 2.00 3.00 x\n",
        "10:00:01 0 7 1.00 0.00 10 20 0.00 a\n",
        "Average: UID PID %usr %system %CPU CPU Command\nAverage: 0 7 1.00 1.00 2.00 - a\n",
    ] {
        let imported = import("file", text);
        let from_pidstat = imported.files[0].formats.iter().any(|f| f == "pidstat");
        let tasks = imported.set.each("task.user_time").count() + imported.set.each("task.minflt").count();
        assert!(!from_pidstat || tasks == 0, "{text}");
    }
}

const FIXTURES: &[&str] = &[
    "h-urdw.txt",
    "t.txt",
    "urdw-fr_FR.txt",
    "h-human-t.txt",
    "H.txt",
    "T.txt",
    "h-v-R.txt",
    "v-R-T-ALL.txt",
];

proptest! {
    #![proptest_config(tries(256))]

    #[test]
    fn changed_outputs_never_panic(content in damaged(FIXTURES.iter().map(|name| bytes(output(format!("pidstat/{name}")))).collect())) {
        survive("file", content);
    }

    #[test]
    fn arbitrary_rows_never_panic(rows in rows()) {
        for header in ["10:00:00 UID PID %usr %CPU Command", "# Time UID TGID TID RSS iodelay Command"] {
            survive("file", format!("{header}\n10:00:01 0 7 {}\n", rows.join("\n10:00:02 ")));
        }
    }
}
