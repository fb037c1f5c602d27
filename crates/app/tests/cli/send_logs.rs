//! `mitra send` and stores of logs: what they get of an incident is what `mitra notify` says of it, once.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use mitra_archive::{Options, Reader, Writer};
use mitra_model::Span;
use mitra_model::time::SECOND;
use serde_json::Value;

use crate::harness::{good, python, run};
use crate::send::{Place, http};
use crate::serve::recording;

/// Prints the records of a request with OpenTelemetry's own messages.
const DECODED: &str = "
import json, sys
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
request = ExportLogsServiceRequest.FromString(sys.stdin.buffer.read())
plain = lambda value: getattr(value, value.WhichOneof('value'))
records = []
for resource in request.resource_logs:
    about = {a.key: plain(a.value) for a in resource.resource.attributes}
    for scope in resource.scope_logs:
        for record in scope.log_records:
            records.append({
                'resource': about,
                'event': record.event_name,
                'severity': [record.severity_number, record.severity_text],
                'body': plain(record.body),
                'seconds': record.time_unix_nano // 10**9,
                'attributes': {a.key: plain(a.value) for a in record.attributes},
            })
print(json.dumps(records))
";

const PYTHON: &str = "opentelemetry.proto.collector.logs.v1.logs_service_pb2";

fn decoded(python: &Path, body: &[u8]) -> Vec<Value> {
    let mut decoding = Command::new(python)
        .args(["-c", DECODED])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    decoding.stdin.take().unwrap().write_all(body).unwrap();
    let output = decoding.wait_with_output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

fn table(url: &str) -> String {
    format!("[[output]]\nto = \"otlp-logs\"\nurl = \"{url}\"\nlabels = {{ site = \"berlin\" }}\n")
}

/// A recording of the laboratory, which ends in the middle of an incident.
pub fn recorded(place: Place) -> Place {
    std::fs::create_dir(place.path("archive")).unwrap();
    for file in std::fs::read_dir(recording()).unwrap().map(Result::unwrap) {
        std::fs::copy(file.path(), place.path("archive").join(file.file_name())).unwrap();
    }
    place
}

/// The same, after which nothing happens for so many seconds.
fn recorded_with_peace(place: Place, seconds: i64) -> Place {
    let reader = Reader::open(&PathBuf::from(recording())).unwrap();
    let options = Options { segment_frames: 300, ..Options::default() };
    let mut writer = Writer::open(&place.path("archive"), reader.host(), options).unwrap();
    let (mut all, mut number) = (0, 0);
    reader.frames(Span::ALL, &mut |_, _| all += 1).unwrap();
    reader
        .frames(Span::ALL, &mut |frame, strings| {
            number += 1;
            writer.append(frame, strings).unwrap();
            if number < all {
                return;
            }
            let mut frame = frame.clone();
            frame.events.clear();
            for _ in 0..seconds {
                frame.time.real += SECOND;
                frame.time.mono += SECOND;
                frame.time.boot += SECOND;
                writer.append(&frame, strings).unwrap();
            }
        })
        .unwrap();
    writer.finish().unwrap();
    place
}

/// What `mitra notify` says of incidents and findings of the recording.
pub fn messages(place: &Place) -> Vec<Value> {
    let config = place.path("notify.toml");
    std::fs::write(&config, "[[notify]]\nto = \"webhook\"\nurl = \"http://127.0.0.1:1/\"\n").unwrap();
    let archive = path(place, "archive");
    let told = good(&["notify", "--dry-run", "--archive", &archive, "--config", config.to_str().unwrap()]);
    let messages = told.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let messages: Vec<Value> =
        messages.filter(|m| ["begun", "ended", "finding"].iter().any(|event| m["event"] == *event)).collect();
    assert!(messages.iter().any(|message| message["condition"] == "disk-hog"), "{told}");
    messages
}

fn path(place: &Place, name: &str) -> String {
    place.path(name).to_str().unwrap().to_owned()
}

#[test]
fn a_record_says_what_a_message_says() {
    let Some(python) = python(PYTHON) else { return println!("skipped: Python has no opentelemetry-proto") };
    let (url, got) = http(&[200]);
    let place = recorded(Place::new(&table(&url)));
    let said = place.send(&["--once"]);
    assert_eq!(said.code, 0, "{}", said.err);
    let records: Vec<Value> = got.lock().unwrap().iter().flat_map(|body| decoded(&python, body)).collect();
    let by_id: BTreeMap<&str, &Value> = records
        .iter()
        .map(|record| {
            let id = |name: &str| record["attributes"][name].as_str();
            (id("mitra.incident.id").or(id("mitra.finding.id")).unwrap(), record)
        })
        .collect();

    let messages = messages(&place);
    assert_eq!(records.len(), messages.len(), "{records:?} {messages:?}");
    for message in &messages {
        let record = by_id[message["id"].as_str().unwrap()];
        let of = |name: &str| &record["attributes"][name];
        let host = message["host"].as_str().unwrap();
        assert_eq!(record["resource"], serde_json::json!({ "service.name": "mitra", "host.name": host }));
        assert_eq!((of("host"), of("site")), (&Value::from(host), &Value::from("berlin")));
        assert_eq!(record["body"], message["headline"]);
        assert!(record["seconds"].as_u64().unwrap() > 1_700_000_000, "{record}");
        assert_eq!((of("mitra.root"), of("mitra.culprit")), (&message["condition"], &message["culprit"]));
        assert_eq!(of("mitra.culprit_name"), &message["facts"]["culprit_name"]);
        if message["event"] == "finding" {
            assert_eq!(record["event"], "mitra.finding");
            assert_eq!(record["severity"], serde_json::json!([9, "INFO"]));
            assert!(of("mitra.onset").is_null() && of("mitra.confidence").is_null(), "{record}");
            continue;
        }
        assert_eq!(record["event"], "mitra.incident");
        assert_eq!(record["severity"], serde_json::json!([13, "WARN"]));
        assert_eq!((of("mitra.onset"), of("mitra.end")), (&message["since"], &message["until"]));
        assert_eq!(of("mitra.unexplained"), &message["unexplained"]);
        for (number, wanted) in [
            (of("mitra.confidence"), &message["confidence"]),
            (of("mitra.strength"), &message["facts"]["strength"]),
            (of("mitra.cost_seconds"), &message["facts"]["cost_seconds"]),
        ] {
            let (number, wanted) = (number.as_f64().unwrap(), wanted.as_f64().unwrap());
            assert!((number - wanted).abs() < 1e-6, "{number} {wanted}");
        }
    }
    // What was sent is not sent again.
    let requests = got.lock().unwrap().len();
    assert_eq!(place.send(&["--once"]).code, 0);
    assert_eq!(got.lock().unwrap().len(), requests);
}

#[test]
fn an_incident_that_several_looks_see_is_sent_once() {
    let Some(python) = python(PYTHON) else { return println!("skipped: Python has no opentelemetry-proto") };
    let (url, got) = http(&[200]);
    // Two looks, of which each sees all of it.
    let place = recorded_with_peace(Place::new(&(table(&url) + "findings = false\n")), 560);
    let said = place.send(&["--once"]);
    assert_eq!(said.code, 0, "{}", said.err);
    let records: Vec<Value> = got.lock().unwrap().iter().flat_map(|body| decoded(&python, body)).collect();
    let archive = path(&place, "archive");
    let report: Value = serde_json::from_str(&good(&["explain", "--archive", &archive, "--json"])).unwrap();
    let incidents = report["incidents"].as_array().unwrap();
    let incident = incidents.iter().find(|one| one["root_cause"]["condition"] == "disk-hog").unwrap();
    let is_it = |record: &&Value| record["attributes"]["mitra.root"] == "disk-hog";
    let found: Vec<&Value> = records.iter().filter(is_it).collect();
    assert_eq!(found.len(), 1, "{records:?}");
    assert_eq!(found[0]["attributes"]["mitra.end"].is_string(), incident["end"].is_string(), "{incident}");
    assert!(records.iter().all(|record| record["event"] == "mitra.incident"), "{records:?}");
    assert_eq!(place.tally("otlp-logs", "sent"), records.len() as u64);
}

#[test]
fn what_is_not_taken_is_tried_again_and_what_is_refused_is_counted() {
    let ((busy, taken), (strict, refused)) = (http(&[503, 200]), http(&[400]));
    let named = |name: &str, url: &str| table(url) + &format!("name = \"{name}\"\n");
    let place = recorded(Place::new(&(named("busy", &busy) + &named("strict", &strict))));
    let said = place.send(&["--once"]);
    assert_eq!(said.code, 0, "{}", said.err);
    assert!(said.err.contains("output busy: HTTP 503; tried again in"), "{}", said.err);
    assert!(said.err.contains("output strict: records are refused and not sent again, "), "{}", said.err);
    let count = place.tally("busy", "sent");
    assert!(count > 0 && place.tally("busy", "failed") == 1, "{count}");
    assert_eq!((place.tally("strict", "refused"), place.tally("strict", "sent")), (count, 0));
    let bodies = taken.lock().unwrap().clone();
    assert!(bodies.len() == 2 && bodies[0] == bodies[1] && !bodies[0].is_empty(), "another request");
    // Several are refused together, and then one by one.
    assert_eq!(refused.lock().unwrap().len() as u64, if count > 1 { count + 1 } else { 1 });
    // What was taken or refused is not sent again, even from the position of before.
    let requests = || [taken.lock().unwrap().len(), refused.lock().unwrap().len()];
    let before = requests();
    for name in ["busy", "strict"] {
        std::fs::remove_file(place.path(&format!("state/{name}.json"))).unwrap();
    }
    let again = place.send(&["--once"]);
    assert_eq!((again.code, requests()), (0, before), "{}", again.err);
}

#[test]
fn records_are_printed_tried_and_checked() {
    let (url, got) = http(&[200]);
    let place = recorded(Place::new(&table(&url)));
    let said = place.send(&["--dry-run"]);
    assert!(said.code == 0 && !place.path("state").exists(), "{}", said.err);
    assert!(
        said.out.starts_with("# otlp-logs: ") && said.out.contains("\nWARN mitra.incident "),
        "{}",
        said.out
    );
    assert!(said.out.contains(" mitra.root=\"disk-hog\""), "{}", said.out);
    assert!(got.lock().unwrap().is_empty());
    assert!(place.send(&["--test"]).out.contains("otlp-logs  taken: HTTP 200"));
    let bodies = got.lock().unwrap().clone();
    assert!(bodies.len() == 1 && bodies[0].windows(6).any(|part| part == b"berlin"), "labels are of it, too");
    let config = path(&place, "mitra.toml");
    let checked = run(&["rules", "check", &config]);
    assert!(
        checked.code == 0 && checked.out.contains("; 1 output of incidents\n"),
        "{}{}",
        checked.out,
        checked.err
    );
    place.configure(&(table(&url) + "metrics = [\"mem.*\"]\n"));
    let checked = run(&["rules", "check", &config]);
    assert!(
        checked.code == 2 && checked.err.contains("otlp-logs has incidents, and no metrics"),
        "{}",
        checked.err
    );
}
