//! Logs, read as people save them.
#![expect(clippy::disallowed_methods, reason = "tests read real outputs")]

use mitra_model::time::SECOND;
use mitra_model::{Era, Event, EventKind};
use mitra_parse::text::{self, Import, Imported};

const DAY: i64 = 86_400 * SECOND;
/// 2026-11-21, in days since 1970.
const DATE: i64 = 20_778;

fn read_as(name: &str, content: &[u8], date: Option<i64>) -> Imported {
    let mut import = Import::new(date);
    text::read(&mut &content[..], name, &mut import).unwrap();
    import.finish()
}

fn read(content: &str) -> Imported {
    read_as("some.log", content.as_bytes(), None)
}

fn output(path: &str) -> Vec<u8> {
    std::fs::read(format!("{}/tests/outputs/{path}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

fn case(path: &str) -> Vec<u8> {
    std::fs::read(format!("{}/../app/tests/cases/{path}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

fn at(h: i64, m: i64, s: i64) -> i64 {
    (h * 3600 + m * 60 + s) * SECOND
}

fn of(imported: &Imported, is: impl Fn(&EventKind) -> bool) -> Vec<&Event> {
    imported.set.events.iter().filter(|e| is(&e.kind)).collect()
}

fn line(event: &Event) -> u32 {
    event.place.unwrap().line
}

fn crashes(imported: &Imported) -> Vec<(u32, u64, u32, Option<u64>)> {
    of(imported, |k| matches!(k, EventKind::Crash { .. }))
        .iter()
        .map(|e| match &e.kind {
            EventKind::Crash { address, error, file_offset, .. } => (line(e), *address, *error, *file_offset),
            _ => unreachable!(),
        })
        .collect()
}

fn sessions(imported: &Imported) -> Vec<(i64, String, String)> {
    of(imported, |k| matches!(k, EventKind::Session { .. }))
        .iter()
        .map(|e| match &e.kind {
            EventKind::Session { session, state, .. } => (e.real, session.clone(), state.clone()),
            _ => unreachable!(),
        })
        .collect()
}

fn session<'a>(t: i64, name: &'a str, state: &'a str) -> (i64, String, String) {
    (t, name.to_owned(), state.to_owned())
}

#[test]
fn the_case_of_two_segfaults() {
    let got = read_as("kern.log", &case("segfault-libc/kern.log"), None);
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
    let content = String::from_utf8(case("segfault-libc/kern.log")).unwrap();
    let bare: String = content.lines().map(|l| format!("{}\n", l.split_once("] ").unwrap().1)).collect();
    let got = read(&bare);
    assert_eq!(crashes(&got), [(1, 8, 4, None), (2, 8, 4, None)]);
    assert!(got.set.events.iter().all(|e| Era::of(e.real) == Era::Fact));
    let got = read("Out of socket memory\n");
    assert_eq!(got.files[0].formats, ["kernel log"]);
    assert!(matches!(&got.set.events[0].kind, EventKind::TcpPressure { what, .. } if what == "unnamed"));
}

#[test]
fn the_case_of_socket_memory() {
    let got = read_as("kern.log", &case("out-of-socket-memory/kern.log"), None);
    let [event] = got.set.events.as_slice() else { panic!("{:?}", got.set.events) };
    let text = "Out of socket memory".to_owned();
    assert_eq!(event.kind, EventKind::TcpPressure { what: "unnamed".to_owned(), text });
    assert_eq!((event.real, line(event)), (Era::Day.zero() + at(8, 23, 42), 1));
    // With a date, its year is the line's.
    let got = read_as("kern.log", &case("out-of-socket-memory/kern.log"), Some(DATE));
    assert_eq!(got.set.events[0].real, (DATE - 269) * DAY + at(8, 23, 42));
}

#[test]
fn the_case_of_dropped_sessions() {
    let got = read_as("bird.log", &case("lb-session-drop/bird.log"), None);
    assert_eq!((got.files[0].formats.as_slice(), got.files[0].unread), (&["BIRD log".to_owned()][..], 0));
    let t = |us: i64| Era::Day.zero() + at(8, 35, 42) + us * 1_000;
    let expected = [
        session(t(981_081), "BGP1", "received"),
        session(t(981_362), "BGP1", "closed"),
        session(t(981_474), "BGP1", "stop"),
        session(t(991_775), "10.248.16.254", "removed"),
        session(t(991_883), "BGP1", "down"),
        session(t(992_090), "BGP1", "start"),
        session(t(992_191), "10.248.16.254", "added"),
        session(t(992_502), "BGP2", "received"),
    ];
    assert_eq!(sessions(&got), expected);
    let [first, ..] = got.set.events.as_slice() else { panic!() };
    assert!(matches!(&first.kind, EventKind::Session { program, text, .. }
        if program == "bird" && text == "BGP1: Received: Other configuration change"));
}

#[test]
fn a_kernel_log_in_every_form_of_dmesg() {
    let boot = Era::Boot.zero() + 13_069_832_645_000;
    let dated = DATE * DAY + at(13, 30, 21);
    for (file, first) in [
        ("dmesg-plain.txt", boot),
        ("dmesg-x.txt", boot),
        ("dmesg-r.txt", boot),
        ("dmesg-T.txt", dated),
        ("dmesg-iso.txt", dated + 832_645_000),
    ] {
        let got = read_as(file, &output(&format!("dmesg/{file}")), None);
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
        let kills = of(&got, |k| matches!(k, EventKind::OomKill { .. }));
        let [kill] = kills.as_slice() else { panic!("{file}: {kills:?}") };
        let (comm, cgroup) = ("eater".to_owned(), Some("/mlgtest".to_owned()));
        let expected = EventKind::OomKill { pid: 23_059, comm, cgroup, anon_bytes: Some(32_384 * 1024) };
        assert_eq!((&kill.kind, line(kill)), (&expected, 90), "{file}");
        let priorities: Vec<u8> = of(
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
fn a_journal_in_every_form() {
    let dated = DATE * DAY;
    for (file, zero, us) in [
        ("short", Era::Day.zero(), false),
        ("short-precise", Era::Day.zero(), true),
        ("short-iso", dated, false),
        ("short-iso-precise", dated, true),
        ("short-full", dated, false),
        ("short-unix", dated, true),
        ("json", dated, true),
    ] {
        let got = read_as(file, &output(&format!("journal/journal-{file}.txt")), None);
        assert_eq!(got.files[0].unread, 0, "{file}");
        let first = zero + at(13, 30, 21) + if us { 832_645_000 } else { 0 };
        let all = of(&got, |k| matches!(k, EventKind::Crash { .. }));
        assert_eq!((all.len(), all[0].real, line(all[0])), (6, first, 2), "{file}");
        let kills = of(&got, |k| {
            matches!(k, EventKind::OomKill { anon_bytes: Some(33_161_216), cgroup: Some(_), .. })
        });
        assert_eq!((kills.len(), line(kills[0])), (1, 20), "{file}");
        let stop = zero + at(13, 30, 21) + if us { 900_000_000 } else { 0 };
        let removed = stop + if us { 400_000 } else { 0 };
        assert_eq!(
            sessions(&got),
            [session(stop, "BGP1", "stop"), session(removed, "10.99.0.2", "removed")],
            "{file}"
        );
        // The span is 49 s; the daemon wrote in the 22nd of them.
        let rates = got.set.get("log.lines", "bird").unwrap();
        assert_eq!((rates.values.len(), rates.values[21], rates.values.iter().sum::<f64>()), (50, 2.0, 2.0));
        assert_eq!(rates.axis.t[21], zero + at(13, 30, 22), "{file}");
        assert!(rates.axis.dt.iter().all(|dt| *dt == 1.0));
    }
    let got = read_as("mono", &output("journal/journal-short-monotonic.txt"), None);
    assert_eq!(crashes(&got).len(), 6);
    assert_eq!(sessions(&got).len(), 2);
    assert_eq!(
        of(&got, |k| matches!(k, EventKind::KernelLog { text, .. } if text.contains("sshd"))).len(),
        0
    );
}

#[test]
fn two_real_routers() {
    let got = read_as("bird.log", &output("bird/bird2-own-log.txt"), None);
    assert_eq!((got.files[0].formats.as_slice(), got.files[0].unread), (&["BIRD log".to_owned()][..], 0));
    let all = sessions(&got);
    let t = |s: i64, ms: i64| DATE * DAY + at(13, 31, s) + ms * 1_000_000;
    // The other side was stopped for two seconds with a detection time of 300 ms.
    let lost: Vec<_> = all.iter().filter(|s| s.0 == t(48, 722)).cloned().collect();
    let expected = [
        session(t(48, 722), "10.99.0.2", "expired"),
        session(t(48, 722), "10.99.0.2", "down"),
        session(t(48, 722), "BGP1", "down"),
        session(t(48, 722), "BGP1", "stop"),
        session(t(48, 722), "BGP1", "closed"),
        session(t(48, 722), "10.99.0.2", "removed"),
        session(t(48, 722), "BGP1", "flush"),
        session(t(48, 722), "BGP1", "down"),
        session(t(48, 722), "BGP1", "start"),
        session(t(48, 722), "10.99.0.2", "added"),
    ];
    assert_eq!(lost, expected);
    assert_eq!(all.iter().filter(|s| s.2 == "established").count(), 2);

    let got = read_as("b.log", &output("bird/bird2-clock-us.txt"), Some(DATE));
    assert_eq!(got.files[0].unread, 0);
    let up = DATE * DAY + at(13, 31, 33) + 271_714_000;
    assert!(sessions(&got).contains(&session(up, "BGP1", "established")));
}

#[test]
fn daemons_of_other_makers() {
    let got = read(
        "Nov 21 13:08:00 lb-1 bgpd[812]: %ADJCHANGE: neighbor 10.0.0.1(lb-2) in vrf default Down BGP Notification received\n\
         2026/11/21 13:08:01 BGP: [M59KS-A3ZXZ] %ADJCHANGE: neighbor fe80::1 Up\n\
         Nov 21 13:08:02 lb-1 Keepalived_vrrp[9]: (VI_1) Entering FAULT STATE\n\
         Nov 21 13:08:03 lb-1 Keepalived_vrrp[9]: VRRP_Instance(VI_1) Transition to MASTER STATE\n\
         Nov 21 13:08:04 lb-1 Keepalived_healthcheckers[9]: Removing service [10.0.0.7]:tcp:80 from VS [192.0.2.1]:tcp:80\n\
         Nov 21 13:08:05 lb-1 haproxy[77]: Server web/web-3 is DOWN, reason: Layer4 timeout, check duration: 2001ms. 5 active\n\
         Nov 21 13:08:06 lb-1 haproxy[77]: backend web has no server available!\n\
         Nov 21 13:08:07 lb-1 haproxy[77]: 10.0.0.9:51234 [21/Nov/2026:13:08:07.100] www web/web-3 0/0/1/2/3 200 17 - - ---- GET\n\
         Nov 21 13:08:08 lb-1 ospfd[5]: AdjChg: Nbr 10.0.0.2(default) on eth0:10.0.0.1: Full -> Deleted (InactivityTimer)\n",
    );
    let names: Vec<(String, String)> = sessions(&got).into_iter().map(|(_, s, state)| (s, state)).collect();
    let expected = [
        ("10.0.0.1", "down"),
        ("VI_1", "fault"),
        ("VI_1", "master"),
        ("[10.0.0.7]:tcp:80", "removed"),
        ("web/web-3", "down"),
        ("web", "down"),
        ("10.0.0.2", "deleted"),
        ("fe80::1", "up"),
    ];
    let mut expected: Vec<_> = expected.map(|(a, b)| (a.to_owned(), b.to_owned())).to_vec();
    let mut names = names;
    names.sort();
    expected.sort();
    assert_eq!(names, expected);
}

#[test]
fn reports_of_old_kernels_are_one_kill() {
    let got = read(
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
        kill(7, "cut", Some("/x"), None),
    ];
    assert_eq!(kills, expected.iter().collect::<Vec<_>>());
    assert_eq!(got.set.events.len(), 4);
}
