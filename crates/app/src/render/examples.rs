//! Made-up reports for tests of what people see.

use mitra_model::report::{
    CauseShare, Culprit, Evidence, GapEntry, How, Incident, Ledger, Link, Moment, Next, ProcessShare,
    RecorderState, Remedy, Report, Root, RuledOut, SCHEMA, UnavailableSource, Unknown, Window,
};
use mitra_model::time::SECOND;
use mitra_model::{Change, ChangeKind};

mod files;

pub use files::{files, runs};

/// 2026-11-21T03:42:07Z.
const ONSET: i64 = 1_795_232_527 * SECOND;

fn evidence(metric: &str, entity: &str, before: Option<f64>, during: f64, unit: &str) -> Evidence {
    Evidence {
        metric: metric.into(),
        entity: entity.into(),
        before,
        during,
        unit: unit.into(),
        ..Evidence::default()
    }
}

fn link(condition: &str, lag_s: i64, evidence: Vec<Evidence>) -> Link {
    Link {
        condition: condition.into(),
        onset: Moment(ONSET + lag_s * SECOND),
        lag_s: lag_s as f64,
        evidence,
        ..Link::default()
    }
}

/// Each link brought about by the one before it.
fn in_a_row(mut chain: Vec<Link>) -> Vec<Link> {
    let causes: Vec<String> = chain.iter().map(|link| link.condition.clone()).collect();
    for (link, cause) in chain.iter_mut().skip(1).zip(causes) {
        link.causes = vec![cause];
    }
    chain
}

/// A reader of a large file evicts what a database needs.
pub fn flood() -> Report {
    Report {
        schema: SCHEMA,
        host: "web-17".into(),
        source: "archive".into(),
        window: Window { since: Moment(ONSET - 127 * SECOND), until: Moment(ONSET + 473 * SECOND) },
        baseline: Some(Window { since: Moment(ONSET - 67 * SECOND), until: Moment(ONSET - 7 * SECOND) }),
        ledger: Ledger {
            lost_task_seconds: Some(3140.2),
            by_cause: vec![
                CauseShare { cause: "refault".into(), seconds: 2230.1 },
                CauseShare { cause: "block-io".into(), seconds: 640.0 },
                CauseShare { cause: "run-queue".into(), seconds: 4.25 },
            ],
            by_process: vec![
                ProcessShare { name: "java".into(), pid: 4242, seconds: 1890.0 },
                ProcessShare { name: "nginx".into(), pid: 991, seconds: 210.5 },
            ],
        },
        incidents: vec![flood_incident()],
        healthy: ["swap", "network", "cpu-steal"].map(str::to_owned).to_vec(),
        recorder: RecorderState {
            gaps: Vec::new(),
            unavailable: vec![UnavailableSource {
                source: "probe.page_cache".into(),
                why: "needs CAP_BPF and CAP_PERFMON".into(),
            }],
        },
        ..Report::default()
    }
}

fn changed(
    kind: ChangeKind,
    name: &str,
    seconds_before: i64,
    (from, to): (Option<&str>, Option<&str>),
    diff: Option<&str>,
) -> Change {
    Change {
        at: Moment(ONSET - seconds_before * SECOND),
        not_before: None,
        kind,
        name: name.into(),
        cgroup: (kind == ChangeKind::Cgroup).then(|| "/backup".into()),
        cgroup_name: None,
        from: from.map(Into::into),
        to: to.map(Into::into),
        diff: diff.map(Into::into),
        source: "index",
    }
}

fn flood_incident() -> Incident {
    Incident {
        onset: Moment(ONSET),
        end: None,
        lost_task_seconds: Some(3010.0),
        client_wait_seconds: None,
        symptoms: ["load-high", "iowait-high"].map(str::to_owned).to_vec(),
        root_cause: Root {
            condition: "streaming-read-flood".into(),
            confidence: 0.94,
            strength: 0.94,
            unexplained: false,
            share: Some(0.81),
            culprit: Culprit {
                how: Some(How::Measured),
                process: Some("dd".into()),
                pid: Some(8123),
                cgroup: Some("/backup".into()),
                device: Some("vda".into()),
                path: Some("/data/big\x1b[2J".into()),
                ..Culprit::default()
            },
            remarks: Vec::new(),
            statement: "dd (8123) read 12.1 GB once from vda and evicted 4.0 GB of pages that java was using"
                .into(),
        },
        other_roots: Vec::new(),
        chain: in_a_row(vec![
            link(
                "streaming-read-flood",
                0,
                vec![
                    evidence("disk.read_bytes", "vda", Some(1.2e6), 7.1e8, "bytes/s"),
                    evidence("task.read_bytes", "dd", None, 7.0e8, "bytes/s"),
                ],
            ),
            link(
                "kswapd-scanning",
                8,
                vec![evidence("vm.pgscan_kswapd", "", Some(0.0), 400_526.0, "pages/s")],
            ),
            link(
                "page-cache-eviction",
                8,
                vec![evidence("mem.active_file", "", Some(4.1e9), 9.5e7, "bytes")],
            ),
            link("major-faults", 9, vec![evidence("vm.pgmajfault", "", Some(0.4), 6768.0, "1/s")]),
            link("tasks-in-d-state", 9, vec![evidence("tasks.d_io", "", Some(0.0), 14.5, "")]),
        ]),
        ruled_out: vec![
            RuledOut {
                condition: "anonymous-growth".into(),
                because: "mem.anon moved 0.01 % while mem.active_file fell 97.7 %".into(),
            },
            RuledOut {
                condition: "page-cache-thrash".into(),
                because: "dd hardly ever read a page again".into(),
            },
        ],
        unknown: vec![Unknown {
            condition: "resolver-slow".into(),
            needs: "dns latency".into(),
            command: None,
        }],
        changes: vec![
            changed(ChangeKind::Cgroup, "memory.max", 300, (None, Some("4000000000")), None),
            changed(
                ChangeKind::File,
                "/etc/cron.d/backup",
                7200,
                (None, None),
                Some("@@ -1 +1 @@\n-0 3 * * * root dd iflag=direct\n+0 3 * * * root dd"),
            ),
        ],
        remedies: vec![Remedy {
            action: "Keep what dd reads out of the page cache, or limit the memory of its group.".into(),
            command: "dd if=/data/big iflag=direct bs=4M of=/backup/big".into(),
            verify: "vm.pgscan_kswapd falls to 0 and mem.active_file stays".into(),
            risk: "reads that others would have shared go to the device again".into(),
        }],
        next: vec![Next { measure: "which file is read".into(), command: "ls -l /proc/8123/fd".into() }],
    }
}

/// Two incidents, one of them over, and a recording with a hole.
pub fn two() -> Report {
    let mut report = flood();
    let mut second = flood_incident();
    second.onset = Moment(ONSET + 120 * SECOND);
    second.end = Some(Moment(ONSET + 167 * SECOND));
    second.lost_task_seconds = None;
    second.root_cause = Root {
        condition: "cpu-quota-throttled".into(),
        confidence: 0.8,
        strength: 0.8,
        share: None,
        culprit: Culprit { how: Some(How::Inferred), cgroup: Some("/web".into()), ..Culprit::default() },
        ..Root::default()
    };
    second.chain = vec![link(
        "cpu-quota-throttled",
        120,
        vec![evidence("cgroup.throttled_time", "/web", None, 0.746, "s/s")],
    )];
    second.chain[0].lag_s = 0.0;
    (second.ruled_out, second.unknown, second.next) = (Vec::new(), Vec::new(), Vec::new());
    second.remedies.clear();
    report.incidents.push(second);
    report.recorder.gaps = vec![GapEntry {
        since: Moment(ONSET + 300 * SECOND),
        until: Moment(ONSET + 342 * SECOND),
        why: "recorder stopped".into(),
    }];
    report
}

/// Nothing went wrong.
pub fn quiet() -> Report {
    Report {
        incidents: Vec::new(),
        ledger: Ledger {
            lost_task_seconds: Some(15.2),
            by_cause: vec![CauseShare { cause: "run-queue".into(), seconds: 12.3 }],
            by_process: vec![ProcessShare { name: "make".into(), pid: 77, seconds: 9.0 }],
        },
        ..flood()
    }
}
