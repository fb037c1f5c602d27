//! A right report is accepted, and each kind of wrong one is refused; the sums add up.

use serde_json::{Value, json};

use super::goals::taken_s;
use super::{Goal, Judged, Summary, Verdict, html, judge, median, page};
use crate::baselines::Answers;
use crate::incident::{Form, Truth};
use crate::record::{ActRecord, Kind, LiveRecord, Record, State};
use crate::report;

/// 2026-11-21T03:42:00Z: the trouble of the sample report starts.
const TROUBLE_S: f64 = 1_795_232_520.0;

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
                "culprit": {"process": "dd", "pid": 8123, "cgroup": "/a/backup", "device": "vda", "nic": "v1a@orders"},
                "statement": "dd (8123) read 12.1 GB once from vda"
            },
            "other_roots": [{"condition": "swap-thrash"}],
            "chain": [{"condition": "streaming-read-flood", "onset": "2026-11-21T03:42:02Z", "lag_s": 0,
                "evidence": [{"metric": "disk.read_bytes", "entity": "vda", "before": 1.2e6,
                              "during": 7.1e8, "unit": "bytes/s"}]}],
            "ruled_out": [{"condition": "anonymous-growth", "because": "mem.anon moved 0.01 %"}],
            "unknown": [{"condition": "resolver-slow", "needs": "dns latency"}],
            "remedies": [{"do": "read past the cache", "command": "", "verify": "refaults stop", "risk": ""}],
            "next": [{"measure": "page cache", "command": ""}]
        }],
        "healthy": ["swap"],
        "recorder": {"gaps": [], "unavailable": [{"source": "probe.page_cache", "why": "no BTF"}]}
    })
}

fn act(condition: &str) -> ActRecord {
    ActRecord {
        // Not the name of a current incident, whose declarations may change.
        name: "flood-of-old".into(),
        form: Some(Form::Loud),
        noise: false,
        condition: condition.into(),
        also: vec![],
        chain: vec!["streaming-read-flood".into()],
        area: "page-cache".into(),
        truth: Some(Truth {
            process: Some("dd".into()),
            pids: vec![8123],
            cgroup: Some("backup".into()),
            devices: vec!["vda".into()],
            nic: Some("v1a".into()),
            ..Truth::default()
        }),
        started_s: TROUBLE_S,
        onset_s: TROUBLE_S + 1.0,
        victims: vec![],
    }
}

fn run(kind: Kind, acts: Vec<ActRecord>) -> Record {
    Record {
        key: "flood-once.loud.7".into(),
        kind,
        seed: 7,
        state: State::Made,
        why: None,
        acts,
        since_s: TROUBLE_S - 12.0,
        until_s: TROUBLE_S + 12.0,
        mitra: "mitra 0".into(),
        machine: "Linux".into(),
        live: vec![
            LiveRecord { at_s: TROUBLE_S + 3.0, ..LiveRecord::default() },
            LiveRecord {
                at_s: TROUBLE_S + 5.5,
                roots: vec!["streaming-read-flood".into()],
                ..LiveRecord::default()
            },
        ],
    }
}

fn judged(report: &Value) -> Judged {
    let record = run(Kind::Incident, vec![act("streaming-read-flood")]);
    judge(&record, report, Vec::new(), Answers::default())
}

fn verdict(report: &Value) -> Verdict {
    judged(report).verdicts.remove(0)
}

/// The score whose name begins with these words.
fn goal(runs: &[Judged], words: &str) -> Goal {
    let goals = Summary::of(runs).goals;
    goals.into_iter().find(|g| g.what.starts_with(words)).unwrap_or_else(|| panic!("no number {words}"))
}

/// Runs of one incident, of which the last `not_made` were not made.
fn runs(count: u64, not_made: u64, seed: u64) -> Vec<Judged> {
    let one = |i: u64| {
        let mut record = run(Kind::Incident, vec![act("streaming-read-flood")]);
        record.seed = seed;
        if i + not_made >= count {
            (record.state, record.why) = (State::NotMade, Some("not made: nobody was hurt".into()));
        }
        judge(&record, &sample(), Vec::new(), Answers::default())
    };
    (0..count).map(one).collect()
}

#[test]
fn a_right_report_is_right() {
    report::check_contract(&sample()).unwrap();
    let v = verdict(&sample());
    assert!(v.root && v.culprit && v.named && v.declares_chain && v.chain_wrong.is_empty(), "{v:?}");
    assert_eq!((v.onset_error_s, v.live_s), (Some(1.0), Some(4.5)));
    let judged = judged(&sample());
    assert!(judged.early.is_empty());
    assert_eq!(judged.besides, ["swap-thrash"]);
}

#[test]
fn an_incident_before_the_trouble_is_told_of_every_run() {
    let mut report = sample();
    let mut early = report["incidents"][0].clone();
    early["onset"] = json!("2026-11-21T05:41:50.5+02:00");
    report["incidents"].as_array_mut().unwrap().push(early);
    for kind in [Kind::Incident, Kind::Pair, Kind::Noise] {
        let record = run(kind, vec![act("streaming-read-flood")]);
        let judged = judge(&record, &report, Vec::new(), Answers::default());
        assert!(judged.verdicts[0].root);
        assert_eq!(judged.early.len(), 1);
        let goals = Summary::of(&[judged]).goals;
        assert!(goals.iter().any(|g| g.what.contains("before the trouble") && g.reached == Some(false)));
    }
}

#[test]
fn a_live_answer_has_to_be_in_first_place_and_may_come_before_a_moved_onset() {
    let live = |kind, at_s: f64, roots: &[&str], first: Option<&str>| {
        let mut record = run(kind, vec![act("streaming-read-flood")]);
        record.live = vec![LiveRecord {
            at_s: TROUBLE_S + at_s,
            roots: roots.iter().map(|r| (*r).to_owned()).collect(),
            first: first.map(str::to_owned),
            failed: None,
        }];
        judge(&record, &sample(), Vec::new(), Answers::default()).verdicts[0].live_s
    };
    let (right, wrong) = ("streaming-read-flood", "disk-hog");
    assert_eq!(live(Kind::Incident, 3.0, &[right], Some(right)), Some(2.0));
    assert_eq!(live(Kind::Incident, 0.5, &[right], Some(right)), Some(0.0));
    assert_eq!(live(Kind::Incident, -0.5, &[right], Some(right)), None);
    assert_eq!(live(Kind::Incident, 3.0, &[wrong, right], Some(wrong)), None);
    assert_eq!(live(Kind::Incident, 3.0, &[wrong, right], Some(right)), Some(2.0));
    // As in results from before `first` existed.
    assert_eq!(live(Kind::Incident, 3.0, &[wrong, right], None), None);
    assert_eq!(live(Kind::Pair, 3.0, &[wrong, right], Some(wrong)), Some(2.0));
}

#[test]
fn what_mitra_breaks_over_is_a_miss() {
    let goal = |kind: Kind, words: &str| {
        let acts = if kind == Kind::Control { vec![] } else { vec![act("streaming-read-flood")] };
        let mut record = run(kind, acts);
        (record.state, record.why) = (State::Broke, Some("Mitra broke: ended by itself".into()));
        let judged = judge(&record, &sample(), Vec::new(), Answers::default());
        let summary = Summary::of(std::slice::from_ref(&judged));
        let text = page(&[judged], &summary);
        assert!(text.contains("Mitra broke"), "{text}");
        assert!(summary.untold.is_empty());
        summary.goals.into_iter().find(|g| g.what.contains(words)).and_then(|g| g.reached)
    };
    assert_eq!(goal(Kind::Incident, "root in first place"), Some(false));
    assert_eq!(goal(Kind::Pair, "pairs of which"), Some(false));
    assert_eq!(goal(Kind::Control, "healthy machines"), Some(false));
}

#[test]
fn what_is_equally_true_is_said_by_the_incident_of_now() {
    let with = |name: &str, condition: &str, also: &str, root: &str| {
        let mut act = act(condition);
        (act.name, act.also) = (name.into(), vec![also.into()]);
        let mut report = sample();
        report["incidents"][0]["root_cause"]["condition"] = json!(root);
        judge(&run(Kind::Incident, vec![act]), &report, Vec::new(), Answers::default()).verdicts[0].root
    };
    assert!(!with("runqueue", "runqueue-saturation", "cpu-hog", "cpu-hog"));
    assert!(with("growth", "anonymous-growth", "nothing", "memory-leak-native"));
    assert!(with("not-made-any-more", "a", "b", "b"));
}

#[test]
fn each_kind_of_wrong_report_is_refused() {
    type Spoil = (&'static str, fn(&mut Value), fn(&Verdict) -> bool);
    let spoils: &[Spoil] = &[
        ("no incident", |r| r["incidents"] = json!([]), |v| !v.root && !v.culprit && !v.named),
        (
            "another cause",
            |r| r["incidents"][0]["root_cause"]["condition"] = json!("slow-device"),
            |v| !v.root && !v.culprit && v.culprit_wrong.is_empty(),
        ),
        (
            "another process",
            |r| r["incidents"][0]["root_cause"]["culprit"]["process"] = json!("java"),
            |v| !v.culprit,
        ),
        ("another pid", |r| r["incidents"][0]["root_cause"]["culprit"]["pid"] = json!(1), |v| !v.culprit),
        (
            "another group",
            |r| r["incidents"][0]["root_cause"]["culprit"]["cgroup"] = json!("/backup/x"),
            |v| !v.culprit,
        ),
        ("no device", |r| r["incidents"][0]["root_cause"]["culprit"]["device"] = Value::Null, |v| !v.culprit),
        ("another nic", |r| r["incidents"][0]["root_cause"]["culprit"]["nic"] = json!("v1b"), |v| !v.culprit),
        ("over before", |r| r["incidents"][0]["end"] = json!("2026-11-21T03:41:59Z"), |v| v.answer.is_none()),
        ("a link is missing", |r| r["incidents"][0]["chain"] = json!([]), |v| !v.chain_wrong.is_empty()),
    ];
    for (what, spoil, seen) in spoils {
        let mut report = sample();
        spoil(&mut report);
        let v = verdict(&report);
        assert!(seen(&v), "{what}: {v:?}");
    }
}

#[test]
fn broken_contracts_are_refused() {
    type Spoil = (&'static str, fn(&mut Value));
    let spoils: &[Spoil] = &[
        ("another schema", |r| r["schema"] = json!("mitra.report/2")),
        ("no ledger", |r| r["ledger"] = Value::Null),
        ("an empty chain", |r| r["incidents"][0]["chain"] = json!([])),
        ("an unknown key", |r| r["incidents"][0]["root_cause"]["culprit"]["who"] = json!("me")),
        ("more than certain", |r| r["incidents"][0]["root_cause"]["confidence"] = json!(1.2)),
        ("no time", |r| r["incidents"][0]["onset"] = json!("yesterday")),
        ("null in place of an amount", |r| r["ledger"]["lost_task_seconds"] = Value::Null),
        ("less than nothing", |r| r["incidents"][0]["lost_task_seconds"] = json!(-0.1)),
    ];
    for (what, spoil) in spoils {
        let mut report = sample();
        spoil(&mut report);
        assert!(report::check_contract(&report).is_err(), "{what}");
    }
    let mut unmeasured = sample();
    for of in ["/ledger", "/incidents/0"] {
        unmeasured.pointer_mut(of).unwrap().as_object_mut().unwrap().remove("lost_task_seconds");
    }
    report::check_contract(&unmeasured).unwrap();
}

#[test]
fn times_are_written_and_read() {
    let at = |s: f64| std::time::UNIX_EPOCH + std::time::Duration::from_secs_f64(s);
    assert_eq!(report::rfc3339(at(951_782_400.0)), "2000-02-29T00:00:00Z");
    assert_eq!(report::rfc3339(at(TROUBLE_S)), "2026-11-21T03:42:00Z");
    let value = json!({"t": "2026-11-21T04:12:00.25+00:30"});
    assert_eq!(report::time_of(&value, "t"), Some(TROUBLE_S + 0.25));
}

#[test]
fn a_pair_needs_both_roots_anywhere() {
    let pair = |other: &str| {
        let record = run(Kind::Pair, vec![act("streaming-read-flood"), act(other)]);
        judge(&record, &sample(), Vec::new(), Answers::default())
    };
    let both = |runs: &[Judged]| goal(runs, "pairs of which").reached;
    assert_eq!(both(&[pair("swap-thrash")]), Some(true));
    assert_eq!(both(&[pair("swap-thrash"), pair("disk-hog")]), Some(false));
    assert_eq!(both(&[]), None);
}

#[test]
fn what_was_not_made_is_neither_right_nor_wrong() {
    let mut record = run(Kind::Incident, vec![act("streaming-read-flood")]);
    record.state = State::NotMade;
    record.why = Some("not made: nobody was hurt".into());
    let judged = judge(&record, &sample(), Vec::new(), Answers::default());
    let summary = Summary::of(&[judged]);
    assert_eq!((summary.made, summary.untold.len()), (0, 1));
    assert!(summary.goals.iter().filter(|g| g.what.contains("root")).all(|g| g.reached.is_none()));
}

#[test]
fn a_control_counts_what_was_found_and_gaps_are_told() {
    let record = run(Kind::Control, vec![]);
    let judged = judge(&record, &sample(), vec![3.2], Answers::default());
    let summary = Summary::of(std::slice::from_ref(&judged));
    let missed: Vec<&str> =
        summary.goals.iter().filter(|g| g.reached == Some(false)).map(|g| g.what).collect();
    assert_eq!(missed, ["incidents on healthy machines", "runs with a gap of the recorder longer than 2 s"]);
    let text = page(&[judged], &summary);
    assert!(text.contains("FALSE") && text.contains("3.2 s"), "{text}");
}

#[test]
fn the_page_has_what_it_is_made_of() {
    let mut wrong = sample();
    wrong["incidents"][0]["root_cause"]["condition"] = json!("disk-hog");
    let record = run(Kind::Incident, vec![act("streaming-read-flood")]);
    let judged: Vec<Judged> =
        [sample(), wrong].iter().map(|r| judge(&record, r, Vec::new(), Answers::default())).collect();
    let summary = Summary::of(&judged);
    assert_eq!(summary.confusion[&("streaming-read-flood".to_owned(), "disk-hog".to_owned())], 1);
    let root = goal(&judged, "root in first place");
    assert_eq!((root.is.as_str(), root.reached), ("50 % (1 of 2)", Some(false)));
    let html = html(&judged, &summary);
    assert!(html.contains("class=e>1") && html.contains("class=d>1"));
    assert!(page(&judged, &summary).contains("said disk-hog"));
}

#[test]
fn the_median_of_few_and_none() {
    assert_eq!(median(&mut []), None);
    assert_eq!(median(&mut [3.0, 1.0, 2.0]), Some(2.0));
    assert_eq!(median(&mut [4.0, 1.0, 2.0, 3.0]), Some(2.5));
}

#[test]
fn what_was_not_made_is_told_and_counts_as_wrong_beside() {
    let of = |not_made: u64| {
        let runs = runs(4, not_made, 7);
        let texts = ["root in", "root, those not made", "culprit, those not made"].map(|w| goal(&runs, w).is);
        let made = goal(&runs, "incidents and controls");
        (texts, made.is, made.reached)
    };
    let (all, half) = ("100 % (4 of 4)", "50 % (2 of 4)");
    assert_eq!(of(0), ([all; 3].map(str::to_owned), all.into(), Some(true)));
    let ([root, ..], made, reached) = of(2);
    assert_eq!((root.as_str(), reached), ("100 % (2 of 2)", Some(false)));
    assert_eq!(made, format!("{half}, 2 not made"));
    assert_eq!(&of(2).0[1..], [half; 2]);
}

#[test]
fn rates_are_told_by_seed_where_there_are_several() {
    assert!(Summary::of(&runs(2, 0, 7)).seeds.is_empty());
    let both = [runs(2, 0, 7), runs(3, 1, 8)].concat();
    let summary = Summary::of(&both);
    let rate = || "100 % (2 of 2)".to_owned();
    assert_eq!(summary.seeds, [(7, rate(), rate()), (8, rate(), rate())]);
    assert!(page(&both, &summary).contains("seed 8"));
    assert!(html(&both, &summary).contains("seed 8"));
}

#[test]
fn a_round_takes_as_long_as_its_runs_and_what_lies_between() {
    assert!((taken_s(vec![(130.0, 150.0), (100.0, 120.0)]) - 50.0).abs() < 1e-9);
    // A skipped run, a round resumed a day later, and two runs that overlap.
    assert!((taken_s(vec![(0.0, 0.0), (100.0, 120.0)]) - 20.0).abs() < 1e-9);
    assert!((taken_s(vec![(100.0, 120.0), (86_500.0, 86_530.0)]) - 50.0).abs() < 1e-9);
    assert!((taken_s(vec![(100.0, 120.0), (110.0, 130.0)]) - 40.0).abs() < 1e-9);
    let time = |length_s: f64| {
        let mut runs = runs(2, 0, 7);
        runs[1].record.since_s = runs[0].record.until_s + 6.0;
        runs[1].record.until_s = runs[1].record.since_s + length_s;
        let goal = goal(&runs, "time of a round");
        (goal.is, goal.reached)
    };
    // Two runs are not a whole round, but can already exceed its limit.
    assert_eq!(time(30.0), ("1 min for 2 runs".into(), None));
    assert_eq!(time(7_170.0), ("120 min for 2 runs".into(), Some(false)));
}

#[test]
fn a_run_without_its_report_is_no_silence() {
    let control = judge(&run(Kind::Control, vec![]), &Value::Null, Vec::new(), Answers::default());
    assert!(control.found_on_control[0].contains("no report"));
    assert_eq!(goal(&[control], "incidents on healthy machines").reached, Some(false));
    let missing = judged(&Value::Null);
    assert_eq!(missing.record.state, State::Broke);
    assert!(missing.verdicts[0].broke.is_some() && !missing.verdicts[0].root);
}

#[test]
fn a_chain_has_its_links_in_the_declared_order() {
    let with = |declared: &[&str], links: &[(&str, u32)]| {
        let mut act = act("streaming-read-flood");
        act.chain = declared.iter().map(|c| (*c).to_owned()).collect();
        let mut report = sample();
        let link =
            |(id, s): &(&str, u32)| json!({"condition": id, "onset": format!("2026-11-21T03:42:{s:02}Z")});
        report["incidents"][0]["chain"] = links.iter().map(link).collect();
        judge(&run(Kind::Incident, vec![act]), &report, Vec::new(), Answers::default())
    };
    let wrong = |links: &[(&str, u32)]| with(&["a", "b"], links).verdicts.remove(0).chain_wrong;
    assert!(wrong(&[("a", 2), ("b", 3)]).is_empty());
    assert!(wrong(&[("x", 1), ("b", 2), ("a", 2)]).is_empty());
    // One of two links of the same name is late enough.
    assert!(wrong(&[("b", 0), ("a", 2), ("b", 5)]).is_empty());
    // The order within neighbouring samples is unknown.
    assert!(wrong(&[("a", 3), ("b", 2)]).is_empty());
    assert_eq!(wrong(&[("a", 4), ("b", 2)]), ["b comes too early in the chain"]);
    assert_eq!(wrong(&[("b", 2)]), ["chain lacks a"]);
    // Incidents without a declared chain do not count.
    let judged = [with(&[], &[]), with(&["a"], &[("a", 2)]), with(&["a", "b"], &[("a", 4), ("b", 2)])];
    assert_eq!(goal(&judged, "right root with the chain").is, "50 % (1 of 2)");
}

#[test]
fn a_pair_is_named_in_the_trouble_and_all_its_wrong_roots_count() {
    let pair = |end: Value, root: &str| {
        let mut report = sample();
        let mut other = report["incidents"][0].clone();
        other["root_cause"]["condition"] = json!("disk-hog");
        other["other_roots"] = json!([]);
        (other["onset"], other["end"]) = (json!("2026-11-21T03:41:58Z"), end);
        report["incidents"][0]["root_cause"]["condition"] = json!(root);
        report["incidents"].as_array_mut().unwrap().push(other);
        let record = run(Kind::Pair, vec![act("streaming-read-flood"), act("disk-hog")]);
        judge(&record, &report, Vec::new(), Answers::default())
    };
    let (over, on) = (json!("2026-11-21T03:41:59Z"), Value::Null);
    let reached = |judged: &Judged| goal(std::slice::from_ref(judged), "pairs of which").reached;
    let wrong = |judged: &Judged| goal(std::slice::from_ref(judged), "wrong roots named in pairs").is;
    let right = pair(on.clone(), "streaming-read-flood");
    assert_eq!((reached(&right), wrong(&right)), (Some(true), "1 in 1 of 1 pairs".into()));
    // Over before the trouble was started.
    assert_eq!(reached(&pair(over, "streaming-read-flood")), Some(false));
    let other = pair(on, "slow-device");
    assert_eq!(other.besides, ["slow-device", "swap-thrash"]);
    assert_eq!(goal(&[other], "wrong roots beside").is, "0 in 0 of 0 runs");
}

#[test]
fn live_explanations_that_fail_are_counted_and_all_loud_ones_are_asked_for() {
    let mut record = run(Kind::Incident, vec![act("streaming-read-flood")]);
    record.live[0].failed = Some("exit status: 101: panicked\nat".into());
    let failed = judge(&record, &sample(), Vec::new(), Answers::default());
    record.live.clear();
    let never = judge(&record, &sample(), Vec::new(), Answers::default());
    let text = page(std::slice::from_ref(&failed), &Summary::default());
    assert!(text.contains("failed: 1; the first: exit status: 101: panicked\n"), "{text}");
    let live = |runs: &[Judged]| goal(runs, "loud ones").reached;
    assert_eq!(live(std::slice::from_ref(&failed)), Some(true));
    assert_eq!(goal(std::slice::from_ref(&failed), "live explanations").is, "1 of 2");
    // Nine of ten are not all.
    let mut ten = vec![failed; 9];
    ten.push(never);
    assert_eq!(live(&ten), Some(false));
}

#[test]
fn the_page_says_when_builds_are_mixed() {
    let mut both = runs(2, 0, 7);
    assert_eq!(Summary::of(&both).mixed_builds(), None);
    both[1].record.mitra = "mitra 0, build 0123456789ab".into();
    let summary = Summary::of(&both);
    for text in [page(&both, &summary), html(&both, &summary)] {
        assert!(text.contains("1 by mitra 0, 1 by mitra 0, build 0123456789ab"), "{text}");
    }
}

#[test]
fn results_without_the_newer_fields_are_read() {
    let live: LiveRecord = serde_json::from_str(r#"{"at_s": 1.0, "roots": ["a"]}"#).unwrap();
    assert_eq!((live.first(), &live.failed), (Some("a"), &None));
    assert!(!serde_json::to_string(&live).unwrap().contains("failed"));
}

#[test]
fn a_change_is_asked_for_in_the_list_and_in_words() {
    let verdict = |edit: &dyn Fn(&mut Value), cgroup: &str| {
        let mut report = sample();
        let incident = &mut report["incidents"][0];
        incident["changes"] = json!([{"name": "memory.max", "cgroup": "/a/backup", "kind": "cgroup"}]);
        incident["root_cause"]["remarks"] = json!(["memory.max of /a/backup 2 → 1 at noon, 300 s before"]);
        edit(incident);
        let mut act = act("streaming-read-flood");
        act.truth = Some(Truth {
            cgroup: Some(cgroup.into()),
            change: Some("memory.max".into()),
            ..Truth::default()
        });
        judge(&run(Kind::Incident, vec![act]), &report, Vec::new(), Answers::default()).verdicts.remove(0)
    };
    assert!(verdict(&|_| {}, "backup").culprit);
    let lacks = |edit: &dyn Fn(&mut Value)| verdict(edit, "backup").culprit_wrong.join("; ");
    assert_eq!(lacks(&|i| i["changes"] = json!([])), "memory.max is not among the changes");
    let of_another = json!([{"name": "memory.max", "cgroup": "/a/other"}]);
    assert_eq!(lacks(&|i| i["changes"] = of_another.clone()), "memory.max is not among the changes");
    assert!(lacks(&|i| i["root_cause"]["remarks"] = json!([])).contains("does not name the change"));
}

#[test]
fn the_larger_one_of_a_pair_is_the_one_that_takes_more_alone() {
    use super::composed::larger;
    use crate::roles::Latency;
    use crate::stage::VictimLatency;

    let named = |name: &str, during_us: f64| {
        let of = |mean_us| Latency { mean_us, max_us: mean_us, per_s: 100.0, errors_per_s: 0.0 };
        let victim = VictimLatency { victim: name.into(), before: of(10.0), during: of(during_us) };
        ActRecord { name: name.into(), victims: vec![victim], ..act("streaming-read-flood") }
    };
    let alone =
        |act: ActRecord| judge(&run(Kind::Incident, vec![act]), &sample(), Vec::new(), Answers::default());
    // Beside the other one each of them looks as bad.
    let pair = run(Kind::Pair, vec![named("a", 100.0), named("b", 100.0)]);
    let of = |a_us, b_us| larger(&pair, &[alone(named("a", a_us)), alone(named("b", b_us))]);
    assert_eq!([of(40.0, 20.0), of(20.0, 40.0)], [Some(0), Some(1)]);
    assert_eq!(of(40.0, 38.0), None, "alike");
    assert_eq!(larger(&pair, &[alone(named("a", 40.0))]), None, "one was not made alone");
    let mut other_seed = alone(named("b", 20.0));
    other_seed.record.seed += 1;
    assert_eq!(larger(&pair, &[alone(named("a", 40.0)), other_seed]), None);
}
