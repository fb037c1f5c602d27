//! Times of every layout, rates, bursts and silences.

use mitra_model::EventKind;
use mitra_model::time::SECOND;

use crate::support::{DAY, RECORDED, hms, import, import_on};

use super::{line, lines_at};

#[test]
fn times_of_every_common_layout() {
    let second = RECORDED * DAY + hms(13, 8, 0) * SECOND;
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
        let got = import_on(Some(RECORDED), "app.log", format!("{line}\n{later}\n"));
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
    let got = import("app.log", &content);
    let [burst] = got.set.events.as_slice() else { panic!("{:?}", got.set.events) };
    let program = "app.log".to_owned();
    assert_eq!(burst.kind, EventKind::LogBurst { program, lines: 150, seconds: 2.0, usual_per_s: 3.0 });
    assert_eq!((burst.real, line(burst)), (RECORDED * DAY + 300 * SECOND, 901));
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
        assert_eq!(import("some.log", &content).set.events, []);
    }
}

#[test]
fn a_silence() {
    let content = lines_at((0..200).chain(260..400));
    let got = import("app.log", &content);
    let [gap] = got.set.events.as_slice() else { panic!("{:?}", got.set.events) };
    let EventKind::LogGap { program, seconds, usual_s } = &gap.kind else { panic!("{gap:?}") };
    assert_eq!((program.as_str(), *seconds), ("app.log", 61.0));
    assert!((1.0..1.1).contains(usual_s), "{usual_s}");
    assert_eq!((gap.real, line(gap)), (RECORDED * DAY + 199 * SECOND, 200));
    // The newest line first: the same silence.
    let mut lines: Vec<&str> = content.lines().collect();
    lines.reverse();
    let got = import("app.log", lines.join("\n"));
    assert_eq!((got.set.events[0].real, got.set.events.len()), (RECORDED * DAY + 199 * SECOND, 1));
    assert_eq!(line(&got.set.events[0]), 141);
    // Five seconds of silence are not ten times one second; fewer than fifty lines tell nothing.
    assert_eq!(import("some.log", lines_at((0..200).chain(205..400))).set.events, []);
    assert_eq!(import("some.log", lines_at((0..20).chain(260..280))).set.events, []);
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
    let got = import("some.log", &content);
    let [gap] = got.set.events.as_slice() else { panic!("{:?}", got.set.events) };
    let EventKind::LogGap { program, seconds, .. } = &gap.kind else { panic!("{gap:?}") };
    assert_eq!((program.as_str(), (seconds * 10.0).round()), ("haproxy", 42.0));
    assert_eq!(gap.real, RECORDED * DAY + hms(13, 1, 39) * SECOND + 800_000_000);
}

#[test]
fn a_stack_trace_belongs_to_its_line() {
    let trace = "java.lang.IllegalStateException: no room\n\tat org.example.Main.run(Main.java:7)\nCaused by: x\n\n\t... 3 more\n";
    let got = import(
        "some.log",
        format!("2026-11-21 13:08:00,123 ERROR failed\n{trace}2026-11-21 13:08:04,123 INFO well\n"),
    );
    assert_eq!(got.files[0].unread, 0);
    let values = &got.set.get("log.lines", "some.log").unwrap().values;
    assert_eq!(values, &[1.0, 0.0, 0.0, 0.0, 1.0]);
}

#[test]
fn a_long_log_has_wider_buckets() {
    // A line every ten seconds for a day: buckets of 64 s, between a thousand and two thousand of them.
    let got = import("some.log", lines_at((0..8_640).map(|i| i * 10)));
    let rates = got.set.get("log.lines", "some.log").unwrap();
    assert_eq!((rates.axis.dt[5], rates.values.len()), (64.0, 1350));
    let lines: f64 = rates.values.iter().map(|v| v * 64.0).sum();
    assert_eq!(lines, 8_640.0);
    assert_eq!(got.set.events, []);
}
