//! The checker checked: a right report passes, and each kind of wrong one is refused.

use std::time::{Duration, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::harness::{Case, Lab, Stop};
use crate::report::{self, Truth};

/// The case of this file.
pub const CASES: &[Case] = &[Case { name: "checker", tools: &[], run: checker }];

/// 2026-11-21T03:42:00Z: the trouble of the sample report starts.
const TROUBLE_EPOCH_S: u64 = 1_795_232_520;

/// A way to spoil the sample report.
type Spoil = (&'static str, fn(&mut Value));

const SPOILS: &[Spoil] = &[
    ("another schema", |r| r["schema"] = json!("mitra.report/2")),
    ("no ledger", |r| r["ledger"] = Value::Null),
    ("an empty chain", |r| r["incidents"][0]["chain"] = json!([])),
    ("an unknown key of the culprit", |r| r["incidents"][0]["root_cause"]["culprit"]["who"] = json!("me")),
    ("more than certain", |r| r["incidents"][0]["root_cause"]["confidence"] = json!(1.2)),
    ("no time", |r| r["incidents"][0]["onset"] = json!("yesterday")),
    ("no incident", |r| r["incidents"] = json!([])),
    ("another cause", |r| r["incidents"][0]["root_cause"]["condition"] = json!("slow-device")),
    ("another culprit", |r| r["incidents"][0]["root_cause"]["culprit"]["process"] = json!("java")),
    ("another pid", |r| r["incidents"][0]["root_cause"]["culprit"]["pid"] = json!(1)),
    ("another cgroup", |r| r["incidents"][0]["root_cause"]["culprit"]["cgroup"] = json!("/backup/x")),
    ("no device", |r| r["incidents"][0]["root_cause"]["culprit"]["device"] = Value::Null),
    ("too late", |r| r["incidents"][0]["onset"] = json!("2026-11-21T03:42:09+00:00")),
    ("over before the trouble", |r| r["incidents"][0]["end"] = json!("2026-11-21T03:41:59Z")),
    ("an incident in the healthy phase", |r| {
        let mut early = r["incidents"][0].clone();
        early["onset"] = json!("2026-11-21T05:41:50.5+02:00");
        if let Some(incidents) = r["incidents"].as_array_mut() {
            incidents.push(early);
        }
    }),
];

fn checker(_: &mut Lab) -> Result<(), Stop> {
    let judge = |r: &Value| {
        let trouble = UNIX_EPOCH + Duration::from_secs(TROUBLE_EPOCH_S);
        let (since, until) = (trouble - Duration::from_secs(12), trouble + Duration::from_secs(12));
        let truth = Truth {
            conditions: &["streaming-read-flood"],
            process: Some("dd"),
            pids: vec![8123],
            cgroup: Some("backup".into()),
            devices: vec!["vda".into()],
            onset_late_s: 6.0,
            ..Truth::default()
        };
        report::check_contract(r).and_then(|()| report::check_incident(r, &truth, since, trouble, until))
    };
    judge(&sample()).map_err(|e| Stop::Failed(format!("a right report is refused: {e}")))?;
    for (what, spoil) in SPOILS {
        let mut report = sample();
        spoil(&mut report);
        match judge(&report) {
            Ok(_) => return Err(Stop::Failed(format!("a report is accepted with {what}"))),
            Err(why) => println!("  {what}: {why}"),
        }
    }
    if report::check_quiet(&sample()).is_ok() {
        return Err(Stop::Failed("an incident passes for quiet".into()));
    }
    for (epoch_s, text) in [(951_782_400, "2000-02-29T00:00:00Z"), (TROUBLE_EPOCH_S, "2026-11-21T03:42:00Z")]
    {
        let written = report::rfc3339(UNIX_EPOCH + Duration::from_secs(epoch_s));
        if written != text {
            return Err(Stop::Failed(format!("{epoch_s} is written {written}")));
        }
    }
    Ok(())
}

fn sample() -> Value {
    json!({
        "schema": "mitra.report/1", "host": "web-17", "source": "archive",
        "window": {"since": "2026-11-21T03:40:00Z", "until": "2026-11-21T03:50:00Z"},
        "baseline": {"since": "2026-11-21T03:30:00Z", "until": "2026-11-21T03:40:00Z"},
        "ledger": {
            "lost_task_seconds": 3140.2,
            "by_cause": [{"cause": "refault", "seconds": 2230.1}],
            "by_process": [{"name": "java", "pid": 4242, "seconds": 1890.0}]
        },
        "incidents": [{
            "onset": "2026-11-21T03:42:02Z", "end": null, "lost_task_seconds": 3010.0,
            "symptoms": ["load-high"],
            "root_cause": {
                "condition": "streaming-read-flood", "confidence": 0.94, "share": 0.81,
                "culprit": {"process": "dd", "pid": 8123, "cgroup": "/backup", "device": "vda"},
                "statement": "dd (8123) read 12.1 GB once from vda"
            },
            "other_roots": [],
            "chain": [{
                "condition": "streaming-read-flood", "onset": "2026-11-21T03:42:02Z", "lag_s": 0,
                "evidence": [{"metric": "disk.read_bytes", "entity": "vda", "before": 1.2e6,
                              "during": 7.1e8, "unit": "bytes/s"}]
            }],
            "ruled_out": [{"condition": "anonymous-growth", "because": "mem.anon moved 0.01 %"}],
            "unknown": [{"condition": "resolver-slow", "needs": "dns latency"}],
            "remedies": [{"do": "read past the cache", "command": "", "verify": "refaults stop", "risk": ""}],
            "next": [{"measure": "page cache", "command": ""}]
        }],
        "healthy": ["swap"],
        "recorder": {"gaps": [], "unavailable": [{"source": "probe.page_cache", "why": "no BTF"}]}
    })
}
