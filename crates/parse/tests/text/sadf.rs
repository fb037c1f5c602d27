//! One recording in every form of sar and sadf, in every language.

use mitra_model::SeriesSet;

use crate::support::{bytes, close, hms, import, lines, moment, output, series, whole};

/// Every form and every language of one recording says the same.
#[test]
fn one_recording_in_every_form() {
    let all = whole(output("sar/sar-A-C.txt")).set;
    let first = moment(2026, 11, 21, hms(13, 30, 15));
    let user = series(&all, "sys.cpu_user", "");
    assert_eq!((user.axis.t[0], user.axis.dt[0], user.values.len()), (first, 1.0, 14));
    close(&user.values.to_vec()[..2], &[0.495 * 2.0, 0.5882 * 2.0]);
    close(&series(&all, "vm.pgpgout", "").values.to_vec()[..1], &[131_072.0 * 1024.0]);
    close(&series(&all, "disk.write_bytes", "vda").values.to_vec()[..1], &[131_072.0 * 1024.0]);
    close(&series(&all, "disk.transfer_time", "vda").values.to_vec()[..1], &[36.0 * 13.36 / 1000.0]);
    close(&series(&all, "fs.free_bytes", "/dev/vda").values.to_vec()[..1], &[236_476.0 * 1_048_576.0]);
    close(
        &series(&all, "fs.total_bytes", "/dev/vda").values.to_vec()[..1],
        &[(236_476.0 + 21_544.0) * 1_048_576.0],
    );
    close(&series(&all, "psi.cpu_some", "").values.to_vec()[..1], &[0.9497]);
    close(&series(&all, "irq.count", "LOC").values.to_vec()[..1], &[542.0]);
    close(&series(&all, "sys.intr", "").values.to_vec()[..1], &[594.0]);
    close(&series(&all, "mem.available", "").values.to_vec()[..1], &[23_921_216.0 * 1024.0]);
    close(&series(&all, "sys.procs_running", "").values.to_vec()[..2], &[8.0, 9.0]);
    close(&series(&all, "sock.tcp_tw", "").values.to_vec()[..1], &[4.0]);
    close(&series(&all, "softnet.processed", "0").values.to_vec()[..1], &[0.0]);
    // Page cache and slab are not in what this version calls used.
    let total = (21_733_340.0 + 314_460.0 + 65_700.0 + 2_351_060.0 + 219_524.0) * 1024.0;
    close(&series(&all, "mem.total", "").values.to_vec()[..1], &[total]);

    for (name, wanted) in FORMS {
        let imported = whole(output(format!("sar/{name}")));
        assert_eq!(compare(&all, &imported.set, name), *wanted, "{name}");
    }
}

/// The files, and how many series each has.
const FORMS: &[(&str, usize)] = &[
    ("sar-some-en_US.txt", 117),
    ("sar-some-de_DE.txt", 117),
    ("sar-some-fr_FR.txt", 117),
    ("sar-some-zh_CN.txt", 13),
    ("sadf-d.txt", 263),
    ("sadf-d-T.txt", 37),
    ("sadf-d-U.txt", 37),
    ("sadf-d-de_DE.txt", 37),
    ("sadf-dh.txt", 263),
    ("sadf-p.txt", 197),
    ("sadf-j.json", 263),
];

/// All that `part` has is in `all`, at the same times.
fn compare(all: &SeriesSet, part: &SeriesSet, name: &str) -> usize {
    let mut count = 0;
    for (metric, rows) in part.metrics() {
        // Without `-u ALL` the time of interrupts is in %system.
        if metric == "sys.cpu_system" || metric == "cpu.system" {
            continue;
        }
        for (row, got) in rows {
            let wanted = series(all, metric, row);
            // The output of `sadf -p` is of the first five seconds.
            let t = if name == "sadf-p.txt" { &wanted.axis.t[..5] } else { &wanted.axis.t };
            assert_eq!(got.axis.t, t, "{name} {metric} {row}");
            for (g, w) in got.values.iter().zip(&wanted.values) {
                // JSON has sectors where the others have kB, each rounded to two digits.
                let rounding = if metric.starts_with("disk.") { 10.24 } else { 1e-9 };
                let same = (g.is_nan() && w.is_nan()) || (g - w).abs() <= rounding + 1e-9 * w.abs();
                assert!(same, "{name} {metric} {row}: {g} {w}");
            }
            count += 1;
        }
    }
    count
}

#[test]
fn every_form_has_the_line_of_each_number() {
    for (name, metric, row, line) in [
        ("sadf-d.txt", "vm.pgpgout", "", "131072.00;221473.00"),
        ("sadf-dh.txt", "disk.io_time", "vda", "vda;36.00"),
        ("sadf-p.txt", "disk.io_time", "vda", "\tvda\ttps\t36.00"),
        ("sadf-j.json", "disk.io_time", "vda", "\"disk-device\": \"vda\", \"tps\": 36.00"),
    ] {
        let input = bytes(output(format!("sar/{name}")));
        let set = whole(output(format!("sar/{name}"))).set;
        let at = lines(series(&set, metric, row))[0] as usize;
        let text = String::from_utf8(input).unwrap();
        assert!(text.lines().nth(at - 1).unwrap().contains(line), "{name} {at}");
    }
}

#[test]
fn sadf_of_an_old_version_with_a_restart() {
    let set = whole(output("sar/sadf-10.txt")).set;
    let user = series(&set, "sys.cpu_user", "");
    close(&user.values.to_vec(), &[0.125, 0.135, 0.145]);
    assert_eq!(user.axis.t[2], moment(2012, 5, 4, hms(22, 30, 0)));
    assert_eq!(user.axis.dt[0], 600.0);
    assert_eq!(set.host.hostname, "oldbox");
    close(&series(&set, "disk.read_bytes", "dev8-0").values.to_vec(), &[160.0 * 512.0, 176.0 * 512.0]);
}

#[test]
fn json_that_another_tool_laid_out() {
    let compact = b"{\"sysstat\":{\"hosts\":[{\"nodename\":\"a\",\"number-of-cpus\":4,\"statistics\":[{\"timestamp\":{\"date\":\"2026-11-21\",\"time\":\"13:30:15\",\"utc\":1,\"interval\":10},\"paging\":{\"pgpgin\":1.5,\"fault\":7},\"cpu-load\":[{\"cpu\":\"all\",\"user\":50.0}]}]}]}}\n";
    let spread = br#"{
  "sysstat": {
    "hosts": [
      {
        "nodename": "a",
        "number-of-cpus": 4,
        "statistics": [
          {
            "timestamp": {
              "date": "2026-11-21",
              "time": "13:30:15",
              "utc": 1,
              "interval": 10
            },
            "paging": {
              "pgpgin": 1.5,
              "fault": 7
            },
            "cpu-load": [
              {
                "cpu": "all",
                "user": 50.0
              }
            ]
          }
        ]
      }
    ]
  }
}
"#;
    for (input, line) in [(&compact[..], 1), (spread, 16)] {
        let imported = import("file", input);
        assert_eq!(imported.files[0].unread, 0);
        let set = imported.set;
        let pages = series(&set, "vm.pgpgin", "");
        close(&pages.values.to_vec(), &[1536.0]);
        assert_eq!((pages.axis.t[0], pages.axis.dt[0]), (moment(2026, 11, 21, hms(13, 30, 15)), 10.0));
        assert_eq!(lines(pages), [line]);
        close(&series(&set, "sys.cpu_user", "").values.to_vec(), &[2.0]);
        assert_eq!(set.host.hostname, "a");
    }
}
