//! `mitra services`, `mitra explain --service`.

use std::path::Path;

use mitra_archive::{Options, Writer};
use mitra_model::{Entity, Frame, HostInfo, Key, Stamp, Strings, column};
use serde_json::Value;

use crate::harness::{archive, good, run};

const HOSTILE: &str = "\u{1b}]0;evil\u{7}";
const SECONDS: i64 = 5;

/// A recording of one service whose process has a hostile name, and of one process that calls it.
fn record(dir: &Path, kernel: &str, with_services: bool) {
    let host = HostInfo { hostname: "elsewhere".into(), kernel: kernel.into(), ..HostInfo::default() };
    let mut writer = Writer::open(dir, &host, Options::default()).unwrap();
    let (mut frame, mut strings) = (Frame::new(), Strings::new());
    for second in 1..=SECONDS {
        frame.clear();
        let ns = second * 1_000_000_000;
        frame.time = Stamp { real: 1_790_000_000_000_000_000 + ns, mono: ns, boot: ns };
        frame.system_mut()[column("mem.total").unwrap()] = 1;
        if with_services {
            let comm = i64::from(strings.intern(HOSTILE));
            for (entity, name) in [(Entity::Service, "127.0.0.1:80"), (Entity::Dependency, "9>127.0.0.1:80")]
            {
                let key = Key::named(strings.intern(name));
                let row = frame.table_mut(entity).push(key);
                let mut set = |metric: &str, value: i64| {
                    row[column(&format!("{}.{metric}", entity.name())).unwrap()] = value;
                };
                set("requests", second * 10);
                set("wait_time", second * 20_000_000);
                set("pid", if entity == Entity::Service { 7 } else { 9 });
                set("comm", comm);
                for quantile in ["latency_p50", "latency_p90", "latency_p99", "latency_max"] {
                    set(quantile, 2_000_000);
                }
            }
        }
        writer.append(&frame, &strings).unwrap();
    }
    writer.finish().unwrap();
}

#[test]
fn services_are_shown_and_names_do_nothing_to_a_terminal() {
    let dir = tempfile::tempdir().unwrap();
    record(dir.path(), "6.18.44", true);
    let path = dir.path().to_str().unwrap();
    for args in
        [&["services"][..], &["services", "--map"], &["services", "80"], &["explain", "--service", "80"]]
    {
        let said = good(&[args, &["--archive", path]].concat());
        assert!(!said.contains(['\u{1b}', '\u{7}']), "{args:?}: {said:?}");
        assert!(said.contains("?]0;evil? 127.0.0.1:80") && said.contains("2.0 ms"), "{args:?}: {said}");
    }
    let json: Value = serde_json::from_str(&good(&["services", "--json", "--archive", path])).unwrap();
    assert_eq!((&json["schema"], &json["host"]), (&"mitra.services/1".into(), &"elsewhere".into()));
    let service = &json["services"][0];
    assert_eq!((&service["name"], &service["requests"]), (&HOSTILE.into(), &10.0.into()), "{service}");
    assert_eq!(json["dependencies"][0]["service"], "127.0.0.1:80");
    assert_eq!(json["map"][0]["to"]["service"], "127.0.0.1:80");
}

#[test]
fn a_name_that_no_service_has_is_wrong_usage() {
    let dir = tempfile::tempdir().unwrap();
    record(dir.path(), "6.18.44", true);
    let path = dir.path().to_str().unwrap();
    for args in [&["services", "mysql"][..], &["explain", "--service", "8080"]] {
        let said = run(&[args, &["--archive", path]].concat());
        assert_eq!(said.code, 2, "{args:?}: {}", said.err);
        assert!(said.err.contains("127.0.0.1:80") && !said.err.contains('\u{1b}'), "{args:?}: {}", said.err);
    }
}

#[test]
fn without_services_it_says_why() {
    let old = tempfile::tempdir().unwrap();
    record(old.path(), "5.10.0-33-amd64", false);
    let early = tempfile::tempdir().unwrap();
    record(early.path(), "6.18.44", false);
    for (path, why) in [
        (old.path().to_str().unwrap(), "that needs Linux 6.3, and the machine had 5.10.0-33-amd64"),
        (early.path().to_str().unwrap(), "the version of mitra that recorded it did not watch them"),
        (archive(), "turned off by the user"),
    ] {
        for args in [&["services"][..], &["services", "--json"], &["explain", "--service", "80"]] {
            let said = run(&[args, &["--archive", path]].concat());
            assert_eq!(said.code, 2, "{args:?}: {}{}", said.out, said.err);
            assert!(said.err.contains(path) && said.err.contains(why), "{args:?}: {}", said.err);
        }
    }
}
