//! The log of the kernel, as dmesg, syslog and the journal have it.

use mitra_model::time::SECOND;
use mitra_model::{Era, EventKind};

use crate::support::{DAY, RECORDED, bytes, case, events, hms, import, import_on, output};

use super::{crashes, line, session, sessions};

#[test]
fn the_case_of_two_segfaults() {
    let got = import("kern.log", bytes(case("segfault-libc/kern.log")));
    assert_eq!(got.files[0].formats, ["kernel log"]);
    assert_eq!(got.files[0].unread, 0);
    let [first, second] = got.set.events.as_slice() else { panic!("{:?}", got.set.events) };
    assert_eq!(first.real, Era::Boot.zero() + 6_972_247_491_417_000);
    assert_eq!((line(first), line(second)), (1, 2));
    let ip_less_base: Vec<u64> = [first, second]
        .iter()
        .map(|e| match &e.kind {
            EventKind::Crash { ip, base: Some(base), address: 8, error: 4, object: Some(object), .. } => {
                assert_eq!(object, "libc-2.9.so");
                ip - base
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(ip_less_base, [0x7008b, 0x7008b]);
}

#[test]
fn the_same_without_its_times() {
    let content = String::from_utf8(bytes(case("segfault-libc/kern.log"))).unwrap();
    let bare: String = content.lines().map(|l| format!("{}\n", l.split_once("] ").unwrap().1)).collect();
    let got = import("some.log", &bare);
    assert_eq!(crashes(&got), [(1, 8, 4, None), (2, 8, 4, None)]);
    assert!(got.set.events.iter().all(|e| Era::of(e.real) == Era::Fact));
    let got = import("some.log", "Out of socket memory\n");
    assert_eq!(got.files[0].formats, ["kernel log"]);
    assert!(matches!(&got.set.events[0].kind, EventKind::TcpPressure { what, .. } if what == "unnamed"));
}

#[test]
fn the_case_of_socket_memory() {
    let got = import("kern.log", bytes(case("out-of-socket-memory/kern.log")));
    let [event] = got.set.events.as_slice() else { panic!("{:?}", got.set.events) };
    let text = "Out of socket memory".to_owned();
    assert_eq!(event.kind, EventKind::TcpPressure { what: "unnamed".to_owned(), text });
    assert_eq!((event.real, line(event)), (Era::Day.zero() + hms(8, 23, 42) * SECOND, 1));
    // With a date, its year is the line's.
    let got = import_on(Some(RECORDED), "kern.log", bytes(case("out-of-socket-memory/kern.log")));
    assert_eq!(got.set.events[0].real, (RECORDED - 269) * DAY + hms(8, 23, 42) * SECOND);
}

#[test]
fn a_kernel_log_in_every_form_of_dmesg() {
    let boot = Era::Boot.zero() + 13_069_832_645_000;
    let dated = RECORDED * DAY + hms(13, 30, 21) * SECOND;
    for (file, first) in [
        ("dmesg-plain.txt", boot),
        ("dmesg-x.txt", boot),
        ("dmesg-r.txt", boot),
        ("dmesg-T.txt", dated),
        ("dmesg-iso.txt", dated + 832_645_000),
    ] {
        let got = import(file, bytes(output(format!("dmesg/{file}"))));
        assert_eq!(
            (got.files[0].formats.as_slice(), got.files[0].unread),
            (&["kernel log".to_owned()][..], 0)
        );
        assert_eq!(got.set.events[0].real, first, "{file}");
        let expected = [
            (1, 8, 4, Some(0x11a0)),
            (3, 0x10, 6, Some(0x11aa)),
            (5, 0x1000, 0x14, None),
            (7, 0x560d_6ff2_c1ca, 0, Some(0x11ca)),
            (8, 0x5647_2f61_01d5, 0, Some(0x11d5)),
            (9, 8, 4, Some(0x16_7ad8)),
        ];
        assert_eq!(crashes(&got), expected, "{file}");
        let kills = events(&got, |k| matches!(k, EventKind::OomKill { .. }));
        let [kill] = kills.as_slice() else { panic!("{file}: {kills:?}") };
        let (comm, cgroup) = ("eater".to_owned(), Some("/mlgtest".to_owned()));
        let expected = EventKind::OomKill { pid: 23_059, comm, cgroup, anon_bytes: Some(32_384 * 1024) };
        assert_eq!((&kill.kind, line(kill)), (&expected, 90), "{file}");
        let priorities: Vec<u8> = events(
            &got,
            |k| matches!(k, EventKind::KernelLog { text, .. } if text.contains("invoked oom-killer")),
        )
        .iter()
        .filter_map(
            |e| if let EventKind::KernelLog { priority, .. } = e.kind { Some(priority) } else { None },
        )
        .collect();
        let printed = matches!(file, "dmesg-x.txt" | "dmesg-r.txt");
        assert_eq!(priorities, [if printed { 4 } else { 6 }], "{file}");
        // The table of tasks is part of the report.
        assert!(!got.set.events.iter().any(|e| matches!(&e.kind, EventKind::KernelLog { text, .. } if text.contains("timeout") || text.contains("total_vm"))));
    }
}

#[test]
fn disks_that_fail_by_what_smartd_says() {
    let log = "Nov 21 13:00:00 web smartd[812]: Device: /dev/sda [SAT], 8 Currently unreadable (pending) sectors (changed +8)\n\
        Nov 21 13:00:00 web smartd[812]: Device: /dev/sda [SAT], SMART Usage Attribute: 194 Temperature_Celsius changed from 64 to 63\n\
        Nov 21 13:00:01 web smartd[812]: Device: /dev/nvme0, Critical Warning (0x04): Reliability\n\
        Nov 21 13:00:02 web app[7]: Device: /dev/sdb, FAILED SMART self-check. BACK UP DATA NOW!\n\
        Nov 21 13:00:03 web smartd[812]: Device: /dev/nvme1, Critical Warning (0x02): Temperature\n\
        Nov 21 13:00:04 web smartd[812]: Device: /dev/sdc [SAT], ATA error count increased from 0 to 1\n\
        Nov 21 13:00:05 web smartd[812]: Device: /dev/nvme2, Critical Warning (0x06): Temperature Reliability\n\
        Nov 21 13:00:06 web smartd[812]: Device: /dev/bus/0 [megaraid_disk_05] [SAT], FAILED SMART self-check. BACK UP DATA NOW!\n";
    let got = import("syslog", log);
    let failing = events(&got, |k| matches!(k, EventKind::DeviceError { .. }));
    let named: Vec<(&str, u32)> = failing
        .iter()
        .map(|e| match &e.kind {
            EventKind::DeviceError { what, device, .. } if what == "disk-failing" => {
                (device.as_str(), line(e))
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(named, [("sda", 1), ("nvme0", 3), ("nvme2", 7), ("bus/0 [megaraid_disk_05]", 8)]);
}

#[test]
fn a_kernel_log_for_people() {
    // `dmesg -H` prints the minute, without a year, and steps from it.
    let got = import("x", bytes(output("dmesg/dmesg-H.txt")));
    assert_eq!(got.files[0].unread, 0);
    let all = events(&got, |k| matches!(k, EventKind::Crash { .. }));
    assert_eq!((all.len(), line(all[0])), (6, 2));
    assert_eq!(all[0].real, Era::Day.zero() + hms(13, 30, 12) * SECOND + 321_217_000);
    assert!(got.files[0].notes.iter().any(|n| n.contains("up to a minute early")));
    // Steps from nowhere have no time.
    let got =
        import("some.log", "[  +0.000016] Out of memory: Killed process 7 (a) total-vm:3kB, anon-rss:1kB\n");
    assert_eq!(Era::of(got.set.events[0].real), Era::Fact);
}

#[test]
fn a_journal_in_every_form() {
    let dated = RECORDED * DAY;
    for (file, zero, us) in [
        ("short", Era::Day.zero(), false),
        ("short-precise", Era::Day.zero(), true),
        ("short-iso", dated, false),
        ("short-iso-precise", dated, true),
        ("short-full", dated, false),
        ("short-unix", dated, true),
        ("json", dated, true),
    ] {
        let got = import(file, bytes(output(format!("journal/journal-{file}.txt"))));
        assert_eq!(got.files[0].unread, 0, "{file}");
        let first = zero + hms(13, 30, 21) * SECOND + if us { 832_645_000 } else { 0 };
        let all = events(&got, |k| matches!(k, EventKind::Crash { .. }));
        assert_eq!((all.len(), all[0].real, line(all[0])), (6, first, 2), "{file}");
        let kills = events(&got, |k| {
            matches!(k, EventKind::OomKill { anon_bytes: Some(33_161_216), cgroup: Some(_), .. })
        });
        assert_eq!((kills.len(), line(kills[0])), (1, 20), "{file}");
        let stop = zero + hms(13, 30, 21) * SECOND + if us { 900_000_000 } else { 0 };
        let removed = stop + if us { 400_000 } else { 0 };
        assert_eq!(
            sessions(&got),
            [session(stop, "BGP1", "stop"), session(removed, "10.99.0.2", "removed")],
            "{file}"
        );
        // The span is 49 s; the daemon wrote in the 22nd of them.
        let rates = got.set.get("log.lines", "bird").unwrap();
        assert_eq!((rates.values.len(), rates.values[21], rates.values.iter().sum::<f64>()), (50, 2.0, 2.0));
        assert_eq!(rates.axis.t[21], zero + hms(13, 30, 22) * SECOND, "{file}");
        assert!(rates.axis.dt.iter().all(|dt| *dt == 1.0));
    }
    let got = import("mono", bytes(output("journal/journal-short-monotonic.txt")));
    assert_eq!(crashes(&got).len(), 6);
    assert_eq!(sessions(&got).len(), 2);
    assert_eq!(
        events(&got, |k| matches!(k, EventKind::KernelLog { text, .. } if text.contains("sshd"))).len(),
        0
    );
}

#[test]
fn reports_of_old_kernels_are_one_kill() {
    let got = import(
        "some.log",
        "Nov 21 13:08:00 web kernel: [100.1] hog invoked oom-killer: gfp_mask=0xd0, order=0, oom_score_adj=0\n\
         Nov 21 13:08:00 web kernel: [100.100000] Task in /a/b killed as a result of limit of /a\n\
         Nov 21 13:08:00 web kernel: [100.100000] [ pid ]   uid  tgid total_vm      rss nr_ptes swapents oom_score_adj name\n\
         Nov 21 13:08:00 web kernel: [100.100000] [  811]     0   811     1127      244       7        0             0 bash\n\
         Nov 21 13:08:00 web kernel: [100.100000] Memory cgroup out of memory: Kill process 812 (hog) score 990 or sacrifice child\n\
         Nov 21 13:08:00 web kernel: [100.100000] Killed process 812 (hog) total-vm:300kB, anon-rss:256kB, file-rss:4kB\n\
         Nov 21 13:09:00 web kernel: [160.000000] Out of memory: Kill process 900 (java) score 901 or sacrifice child\n\
         Nov 21 13:09:00 web kernel: [160.000000] Killed process 901 (child) total-vm:300kB, anon-rss:12kB, file-rss:0kB\n\
         Nov 21 13:10:00 web kernel: [220.000000] oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),task_memcg=/x,task=cut,pid=7,uid=0\n",
    );
    let kills: Vec<&EventKind> =
        got.set.events.iter().map(|e| &e.kind).filter(|k| matches!(k, EventKind::OomKill { .. })).collect();
    let kill = |pid, comm: &str, cgroup: Option<&str>, anon_bytes| EventKind::OomKill {
        pid,
        comm: comm.to_owned(),
        cgroup: cgroup.map(str::to_owned),
        anon_bytes,
    };
    let expected = [
        kill(812, "hog", Some("/a/b"), Some(262_144)),
        kill(901, "child", None, Some(12_288)),
        kill(7, "cut", None, None),
    ];
    assert_eq!(kills, expected.iter().collect::<Vec<_>>());
    assert_eq!(got.set.events.len(), 4);
}
