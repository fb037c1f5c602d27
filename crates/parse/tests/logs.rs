//! Logs, read as people save them.
#![expect(clippy::disallowed_methods, reason = "tests read real outputs")]

use mitra_model::time::SECOND;
use mitra_model::{Era, Event, EventKind};
use mitra_parse::text::{self, Import, Imported};
use proptest::prelude::*;

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
fn a_kernel_log_for_people() {
    // `dmesg -H` prints the minute, without a year, and steps from it.
    let got = read_as("x", &output("dmesg/dmesg-H.txt"), None);
    assert_eq!(got.files[0].unread, 0);
    let all = of(&got, |k| matches!(k, EventKind::Crash { .. }));
    assert_eq!((all.len(), line(all[0])), (6, 2));
    assert_eq!(all[0].real, Era::Day.zero() + at(13, 30, 12) + 321_217_000);
    assert!(got.files[0].notes.iter().any(|n| n.contains("up to a minute early")));
    // Steps from nowhere have no time.
    let got = read("[  +0.000016] Out of memory: Killed process 7 (a) total-vm:3kB, anon-rss:1kB\n");
    assert_eq!(Era::of(got.set.events[0].real), Era::Fact);
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
fn words_that_are_no_change_of_a_session() {
    let got = read(
        "Nov 21 13:08:00 lb-1 bird: device1: Scanning interfaces\n\
         Nov 21 13:08:00 lb-1 bird: BGP1: Down\n\
         Nov 21 13:08:00 lb-1 bird: a b: State changed to up\n\
         Nov 21 13:08:00 lb-1 app[7]: BGP1: State changed to up\n\
         Nov 21 13:08:00 lb-1 haproxy[7]: Server web is DOWN\n\
         Nov 21 13:08:00 lb-1 haproxy[7]: Server web/a is slow\n\
         Nov 21 13:08:00 lb-1 Keepalived_vrrp[7]: (VI_1) Receive advertisement timeout\n\
         Nov 21 13:08:00 lb-1 bgpd[7]: %ADJCHANGE: neighbor 10.0.0.1 Sideways\n\
         Nov 21 13:08:00 lb-1 kernel: BGP1: State changed to up\n",
    );
    assert_eq!(sessions(&got), []);
    assert_eq!(got.files[0].unread, 0);
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
        kill(7, "cut", None, None),
    ];
    assert_eq!(kills, expected.iter().collect::<Vec<_>>());
    assert_eq!(got.set.events.len(), 4);
}

/// Lines of a log with a time of the given layout, one for each second that is given.
fn lines_at(seconds: impl IntoIterator<Item = i64>) -> String {
    let line =
        |s: i64| format!("2026-11-21 {:02}:{:02}:{:02} INFO request served\n", s / 3600, s / 60 % 60, s % 60);
    seconds.into_iter().map(line).collect()
}

#[test]
fn times_of_every_common_layout() {
    let second = DATE * DAY + at(13, 8, 0);
    let ms = second + 123_000_000;
    for (line, expected) in [
        ("2026-11-21T13:08:00Z started up", second),
        ("2026-11-21T14:08:00.123+01:00 started up", ms),
        ("2026-11-21 13:08:00,123 - root - INFO - started up", ms),
        ("[2026-11-21T13:08:00,123][INFO ][o.e.n.Node] started up", ms),
        ("2026-11-21 13:08:00.123 UTC [4242] LOG:  started up", ms),
        ("2026/11/21 13:08:00 [error] 12#12: *1 started up", second),
        ("INFO 2026-11-21 13:08:00,123 started up", ms),
        ("level=info ts=2026-11-21T13:08:00.123Z msg=started", ms),
        ("10.0.0.7 - bob [21/Nov/2026:14:08:00 +0100] \"GET / HTTP/1.1\" 200 17", second),
        ("[Sat Nov 21 13:08:00.123456 2026] [core:error] [pid 7] started up", second + 123_456_000),
        ("[Sat Nov 21 13:08:00 2026] [error] [client 10.0.0.7] started up", second),
        ("Nov 21, 2026 1:08:00 PM org.example.Main start", second),
        ("4242:M 21 Nov 2026 13:08:00.123 * Ready to accept connections", ms),
        ("1795266480.123 45 10.0.0.7 TCP_MISS/200 1017 GET http://example.org/", ms),
        ("[1795266480] SERVICE ALERT: web;load;OK", second),
        ("{\"level\":\"info\",\"ts\":1795266480.123,\"msg\":\"started\"}", ms),
        ("{\"@timestamp\":\"2026-11-21T13:08:00.123Z\",\"a\":{\"time\":1},\"message\":\"x\"}", ms),
        ("I1121 13:08:00.123456 77 server.cc:7] started up", second + 123_456_000),
        ("<30>Nov 21 13:08:00 web-17 app[7]: started up", second),
        ("<30>1 2026-11-21T13:08:00.123Z web-17 app 7 - - started up", ms),
        ("13:08:00,123 INFO started up", ms),
        ("21-11-2026 13:08:00 <INFO> Started up", second),
        ("21.11.2026 13:08:00 started up", second),
        ("Sat 2026-11-21 13:08:00 AEDT web-17 app[7]: started up", second),
    ] {
        // Ten seconds later comes the second line of each, so that there is a rate with a time.
        let later = line.replace("08:00", "08:10").replace("1795266480", "1795266490");
        let got = read_as("app.log", format!("{line}\n{later}\n").as_bytes(), Some(DATE));
        let program = if line.contains("web-17 app") {
            "app"
        } else if line.contains("<INFO>") {
            "bird"
        } else {
            "app.log"
        };
        let format = if program == "bird" { "BIRD log" } else { "log" };
        assert_eq!(
            (got.files[0].formats.as_slice(), got.files[0].unread),
            (&[format.to_owned()][..], 0),
            "{line}"
        );
        let rates = got.set.get("log.lines", program).unwrap_or_else(|| panic!("{line}"));
        assert_eq!(rates.axis.t[0], expected - expected.rem_euclid(SECOND) + SECOND, "{line}");
        assert_eq!(rates.values, [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0], "{line}");
        assert_eq!(rates.axis.places[10].line, 2);
    }
}

#[test]
fn a_burst_and_its_end() {
    // Three lines a second for ten minutes; in the seconds 300 and 301 there are 90 and 60.
    let count = |s: i64| match s {
        300 => 90,
        301 => 60,
        _ => 3,
    };
    let content = lines_at((0..600).flat_map(|s| std::iter::repeat_n(s, count(s))));
    let got = read_as("app.log", content.as_bytes(), None);
    let [burst] = got.set.events.as_slice() else { panic!("{:?}", got.set.events) };
    let program = "app.log".to_owned();
    assert_eq!(burst.kind, EventKind::LogBurst { program, lines: 150, seconds: 2.0, usual_per_s: 3.0 });
    assert_eq!((burst.real, line(burst)), (DATE * DAY + 300 * SECOND, 901));
    let rates = got.set.get("log.lines", "app.log").unwrap();
    assert_eq!(
        (rates.values[299], rates.values[300], rates.values[301], rates.values[302]),
        (3.0, 90.0, 60.0, 3.0)
    );
}

#[test]
fn what_is_usual_is_no_burst() {
    // Nine times as many are not ten times as many.
    let nine = lines_at((0..600).flat_map(|s| std::iter::repeat_n(s, if s == 300 { 27 } else { 3 })));
    // A job that writes twenty lines every minute.
    let job = lines_at((0..60).flat_map(|m| std::iter::repeat_n(m * 60, 20)));
    // Forty-nine lines are too few to know.
    let few = lines_at((0..29).map(|s| s * 3).chain(std::iter::repeat_n(100, 20)));
    for content in [nine, job, few] {
        assert_eq!(read(&content).set.events, []);
    }
}

#[test]
fn a_silence() {
    let content = lines_at((0..200).chain(260..400));
    let got = read_as("app.log", content.as_bytes(), None);
    let [gap] = got.set.events.as_slice() else { panic!("{:?}", got.set.events) };
    let EventKind::LogGap { program, seconds, usual_s } = &gap.kind else { panic!("{gap:?}") };
    assert_eq!((program.as_str(), *seconds), ("app.log", 61.0));
    assert!((1.0..1.1).contains(usual_s), "{usual_s}");
    assert_eq!((gap.real, line(gap)), (DATE * DAY + 199 * SECOND, 200));
    // The newest line first: the same silence.
    let mut lines: Vec<&str> = content.lines().collect();
    lines.reverse();
    let got = read_as("app.log", lines.join("\n").as_bytes(), None);
    assert_eq!((got.set.events[0].real, got.set.events.len()), (DATE * DAY + 199 * SECOND, 1));
    assert_eq!(line(&got.set.events[0]), 141);
    // Five seconds of silence are not ten times one second; fewer than fifty lines tell nothing.
    assert_eq!(read(&lines_at((0..200).chain(205..400))).set.events, []);
    assert_eq!(read(&lines_at((0..20).chain(260..280))).set.events, []);
}

#[test]
fn a_silence_of_one_program_among_others() {
    let line = |s: i64, ms: i64, program: &str| {
        format!("2026-11-21T13:{:02}:{:02}.{ms:03}000+00:00 web {program}[7]: did it\n", s / 60, s % 60)
    };
    let content: String = (0..3000)
        .map(|i| {
            let (s, ms) = (i / 10, i % 10 * 100);
            let quiet = (100..104).contains(&s);
            line(s, ms, if i % 2 == 0 && !quiet { "haproxy" } else { "nginx" })
        })
        .collect();
    let got = read(&content);
    let [gap] = got.set.events.as_slice() else { panic!("{:?}", got.set.events) };
    let EventKind::LogGap { program, seconds, .. } = &gap.kind else { panic!("{gap:?}") };
    assert_eq!((program.as_str(), (seconds * 10.0).round()), ("haproxy", 42.0));
    assert_eq!(gap.real, DATE * DAY + at(13, 1, 39) + 800_000_000);
}

#[test]
fn a_stack_trace_belongs_to_its_line() {
    let trace = "java.lang.IllegalStateException: no room\n\tat org.example.Main.run(Main.java:7)\nCaused by: x\n\n\t... 3 more\n";
    let got =
        read(&format!("2026-11-21 13:08:00,123 ERROR failed\n{trace}2026-11-21 13:08:04,123 INFO well\n"));
    assert_eq!(got.files[0].unread, 0);
    let values = &got.set.get("log.lines", "some.log").unwrap().values;
    assert_eq!(values, &[1.0, 0.0, 0.0, 0.0, 1.0]);
}

#[test]
fn a_long_log_has_wider_buckets() {
    // A line every ten seconds for a day: buckets of 64 s, between a thousand and two thousand of them.
    let got = read(&lines_at((0..8_640).map(|i| i * 10)));
    let rates = got.set.get("log.lines", "some.log").unwrap();
    assert_eq!((rates.axis.dt[5], rates.values.len()), (64.0, 1350));
    let lines: f64 = rates.values.iter().map(|v| v * 64.0).sum();
    assert_eq!(lines, 8_640.0);
    assert_eq!(got.set.events, []);
}

#[test]
fn lines_of_other_tools_are_not_a_log() {
    for text in [
        "12:41:21 PM all 3.1 0.0 84.0 0.1 0.0 12.8\n",
        "12:41:21 0 3.1 0.0 84.0\n",
        "1795266480 12 13 14\n",
        "-rw-r--r-- 1 root root 123 2026-11-21 13:08:00.000000000 +0000 notes\n",
        "Modify: 2026-11-21 13:08:00.000000000 +0000\n",
        "the meeting of Nov 21 13:08:00 was long\n",
        "[12.5] not a time of the kernel\n",
        "Nov 41 13:08:00 web app[7]: no such day\n",
        "2026-11-21 25:08:00 no such hour\n",
        "orderd[4242]: segfault at somewhere\n",
        "{\"time\":\"never\",\"msg\":\"x\"}\n",
        "{\"time\":\"2026-11-21T13:08:00Z\n",
    ] {
        let got = read(text);
        let formats = &got.files[0].formats;
        assert!(!formats.iter().any(|f| f.ends_with("log")), "{text}: {formats:?}");
        assert!(got.set.get("log.lines", "some.log").is_none(), "{text}");
        let is_log = |k: &EventKind| matches!(k, EventKind::KernelLog { .. } | EventKind::Crash { .. });
        assert!(!got.set.events.iter().any(|e| is_log(&e.kind)), "{text}");
    }
}

/// Every fixture of this area, and where it may be cut.
fn fixtures() -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = ["dmesg/dmesg-x.txt", "dmesg/dmesg-iso.txt", "bird/bird2-own-log.txt"]
        .iter()
        .chain(&["journal/journal-json.txt", "journal/journal-short.txt", "journal/journal-short-full.txt"])
        .map(|path| output(path))
        .collect();
    all.push(case("segfault-libc/kern.log"));
    all.push(case("lb-session-drop/bird.log"));
    all.push(lines_at(0..100).into_bytes());
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_bytes_are_too_strange(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = read_as("x", &bytes, None);
    }

    #[test]
    fn no_damage_is_too_strange(
        which in 0_usize..9,
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..60),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = fixtures().swap_remove(which);
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        bytes.truncate(cut.index(bytes.len()));
        let got = read_as("x", &bytes, Some(DATE));
        prop_assert!(got.set.events.iter().all(|e| e.place.is_some()));
    }
}
