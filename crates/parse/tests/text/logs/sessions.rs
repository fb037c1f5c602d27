//! Sessions of network protocols that came and went.

use mitra_model::time::SECOND;
use mitra_model::{Era, EventKind};

use crate::support::{DAY, RECORDED, bytes, case, hms, import, import_on, output};

use super::{session, sessions};

#[test]
fn the_case_of_dropped_sessions() {
    let got = import("bird.log", bytes(case("lb-session-drop/bird.log")));
    assert_eq!((got.files[0].formats.as_slice(), got.files[0].unread), (&["BIRD log".to_owned()][..], 0));
    let t = |us: i64| Era::Day.zero() + hms(8, 35, 42) * SECOND + us * 1_000;
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
fn two_real_routers() {
    let got = import("bird.log", bytes(output("bird/bird2-own-log.txt")));
    assert_eq!((got.files[0].formats.as_slice(), got.files[0].unread), (&["BIRD log".to_owned()][..], 0));
    let all = sessions(&got);
    let t = |s: i64, ms: i64| RECORDED * DAY + hms(13, 31, s) * SECOND + ms * 1_000_000;
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

    let got = import_on(Some(RECORDED), "b.log", bytes(output("bird/bird2-clock-us.txt")));
    assert_eq!(got.files[0].unread, 0);
    let up = RECORDED * DAY + hms(13, 31, 33) * SECOND + 271_714_000;
    assert!(sessions(&got).contains(&session(up, "BGP1", "established")));
}

#[test]
fn daemons_of_other_makers() {
    let got = import(
        "some.log",
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
    let got = import(
        "some.log",
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
