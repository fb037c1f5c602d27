//! A made-up report on files of other tools: times of day without a date, something without any
//! time, runs.

use mitra_model::Era;
use mitra_model::report::{
    Comparison, Culprit, Evidence, FileRead, Finding, Incident, Link, Moment, Quote, Remedy, Report, Root,
    RunResult, SCHEMA, Unknown, Window,
};
use mitra_model::time::SECOND;

/// 12:41:21 of a day that the files do not name.
pub const CLOCK: i64 = Era::Day.zero() + 45_681 * SECOND;

fn quote(file: &str, line: u32, value: f64, text: &str) -> Quote {
    let at = Some(Moment(CLOCK + i64::from(line) * SECOND));
    Quote { file: file.into(), line, value: Some(value), at, text: Some(text.into()) }
}

fn incident() -> Incident {
    let scanning = Evidence {
        metric: "vm.pgscan_kswapd".into(),
        before: Some(0.0),
        during: 350_000.0,
        peak: Some(400_526.0),
        unit: "pages/s".into(),
        quotes: vec![
            quote(
                "sar-B.txt",
                4,
                0.0,
                "12:41:11      5420.00      8.00   1201.00      0.00  99201.00      0.00",
            ),
            quote(
                "sar-B.txt",
                5,
                400_526.0,
                "12:41:21    710342.13      1.02   2201.00   6768.00 120032.00 400526.00",
            ),
        ],
        ..Evidence::default()
    };
    let faults = Evidence {
        metric: "vm.pgmajfault".into(),
        before: Some(0.0),
        during: 6768.0,
        unit: "1/s".into(),
        quotes: vec![quote(
            "sar-B.txt",
            5,
            6768.0,
            "12:41:21    710342.13      1.02   2201.00   6768.00 120032.00 400526.00",
        )],
        ..Evidence::default()
    };
    let slab = Evidence {
        metric: "slab.active_bytes".into(),
        entity: "<b>dentry</b>".into(),
        during: 1.1e10,
        unit: "bytes".into(),
        quotes: vec![quote(
            "slabtop.txt",
            9,
            1.1e10,
            "12345678 12345600  99%\tevil\x1b[2J <script>alert(1)</script>",
        )],
        ..Evidence::default()
    };
    Incident {
        onset: Moment(CLOCK),
        end: Some(Moment(CLOCK + 90 * SECOND)),
        changes: Vec::new(),
        lost_task_seconds: None,
        client_wait_seconds: None,
        symptoms: vec!["load-high".into()],
        root_cause: Root {
            condition: "streaming-read-flood".into(),
            confidence: 0.7,
            strength: 0.7,
            culprit: Culprit { device: Some("sdb".into()), ..Culprit::default() },
            statement: "sdb was read at 710 MB/s, far more than the page cache holds".into(),
            remarks: vec!["kswapd is busy because of it and is not the cause".into()],
            ..Root::default()
        },
        other_roots: Vec::new(),
        chain: vec![
            Link {
                condition: "kswapd-scanning".into(),
                onset: Moment(CLOCK),
                lag_s: 0.0,
                evidence: vec![scanning],
                ..Link::default()
            },
            Link {
                condition: "major-faults".into(),
                onset: Moment(CLOCK + 9 * SECOND),
                lag_s: 9.0,
                evidence: vec![faults],
                ..Link::default()
            },
            Link {
                condition: "slab-dentry-bloat".into(),
                onset: Moment(Era::Fact.zero()),
                lag_s: 0.0,
                evidence: vec![slab],
                ..Link::default()
            },
        ],
        ruled_out: Vec::new(),
        unknown: vec![Unknown {
            condition: "cpu-quota-throttled".into(),
            needs: "cpu.stat of the groups".into(),
            command: Some("cat /sys/fs/cgroup/GROUP/cpu.stat".into()),
        }],
        remedies: vec![Remedy {
            action: "Read it around the page cache.".into(),
            command: "echo 1 > /proc/sys/vm/example\nsysctl -p".into(),
            verify: "vm.pgscan_kswapd falls to 0".into(),
            risk: String::new(),
        }],
        next: Vec::new(),
    }
}

/// An incident from three files.
pub fn files() -> Report {
    Report {
        schema: SCHEMA,
        source: "files".into(),
        window: Window { since: Moment(CLOCK - 600 * SECOND), until: Moment(CLOCK + 600 * SECOND) },
        incidents: vec![incident()],
        healthy: vec!["swap".into()],
        files: vec![
            FileRead {
                file: "sar-B.txt".into(),
                formats: vec!["sar -B".into()],
                lines: 1442,
                unread: 2,
                first_unread: Some((77, "12:5\x1b[31m garbage \t here".into())),
                notes: vec!["no date".into()],
            },
            FileRead {
                file: "slabtop.txt".into(),
                formats: vec!["slabtop".into()],
                lines: 30,
                ..FileRead::default()
            },
            FileRead {
                file: "notes.md".into(),
                lines: 12,
                unread: 12,
                first_unread: Some((1, "# what we did".into())),
                ..FileRead::default()
            },
        ],
        ..Report::default()
    }
}

/// Benchmark runs, findings, and nothing wrong.
pub fn runs() -> Report {
    let run = |name: &str, line: u32, rate: f64, p99: f64, timeouts: Option<f64>| RunResult {
        name: name.into(),
        values: [
            ("run.requests_per_s", Some(rate)),
            ("run.latency_p50", Some(p99 / 2.0)),
            ("run.latency_p99", Some(p99)),
            ("run.timeouts", timeouts),
        ]
        .into_iter()
        .filter_map(|(metric, value)| Some((metric.to_owned(), value?)))
        .collect(),
        quotes: vec![quote(&format!("{name}.txt"), line, rate, &format!("Requests/sec: {rate:.2}"))],
    };
    let mut report = files();
    report.incidents.clear();
    report.files.truncate(1);
    report.window = Window::default();
    report.unknown = vec![Unknown {
        condition: "throughput-drop".into(),
        needs: "times of the runs".into(),
        command: None,
    }];
    report.comparison = Some(Comparison {
        statement: "quick 4,907.53 > slow 346.15 requests/s: quick does 14 times as much".into(),
        remarks: vec!["slow had 1,197 time-outs".into()],
        runs: vec![run("quick", 13, 4907.53, 0.0722, None), run("slow", 14, 346.15, 0.289, Some(1197.0))],
    });
    report.findings = vec![Finding {
        condition: "stripe-misaligned".into(),
        culprit: Culprit::default(),
        statement: "16 allocation groups begin on the same member of the array".into(),
        remarks: vec!["one member does the work of four".into()],
        evidence: Vec::new(),
        remedies: Vec::new(),
        limit_in_seconds: None,
    }];
    report
}
