//! Incidents of a recording in a real OpenSearch: sent by `mitra notify`, asked for by `mitra fleet`.

#[path = "../../search/tests/simulate/deployed.rs"]
mod deployed;
#[path = "../../search/tests/engine/mod.rs"]
mod engine;
#[path = "cli/harness.rs"]
#[expect(dead_code, reason = "a part of it is used here")]
mod harness;
#[path = "../../search/tests/simulate/noise.rs"]
mod noise;

use std::path::Path;

use deployed::{BAD, DAY, DEPLOYED, HOSTS, HOUR, ILL, MINUTE, live, name};
use engine::Engine;
use harness::{Output, good, run};
use mitra_archive::{Options, Reader, Writer};
use mitra_model::report::Moment;
use mitra_model::{HostInfo, Span};
use noise::Noise;
use serde_json::{Value, json};

/// Recordings of the laboratory with the same root.
const ILLNESS: [&str; 2] = ["disk-hog-writes.loud.101", "disk-hog-reads.loud.101"];
/// One with another root, and one in which nobody loses time.
const OTHERS: [&str; 2] = ["fork-storm.loud.101", "compile.25s.101"];

struct Place<'a> {
    engine: &'a Engine,
    recording: String,
    config: String,
    state: String,
}

impl Place<'_> {
    fn notify(&self, more: &[&str]) -> Output {
        let args = ["notify", "--archive", &self.recording, "--config", &self.config, "--state", &self.state];
        let said = run(&[&args[..], more].concat());
        self.engine.cluster("told_").refresh().expect("refreshed");
        said
    }

    fn fleet(&self, args: &[&str]) -> Output {
        run(&[&["fleet"], args, &["--config", &self.config]].concat())
    }

    fn incidents(&self) -> Value {
        let said = self.fleet(&["incidents", "--since", "2020-01-01", "--json"]);
        assert_eq!(said.code, 0, "{}", said.err);
        serde_json::from_str(&said.out).expect("JSON")
    }
}

fn config(dir: &Path, engine: &Engine) -> String {
    let settings = engine.settings("told_");
    let path = dir.join("mitra.toml");
    let text = format!(
        "[index]\nfiles = [\"/etc/hostname\"]\nprefix = \"{}\"\n[index.opensearch]\nnodes = [\"{}\"]\n\
         [[notify]]\nto = \"opensearch\"\ntags = [\"role=db\"]\n",
        settings.prefix, settings.nodes[0]
    );
    std::fs::write(&path, text).expect("written");
    path.to_str().expect("UTF-8").to_owned()
}

#[test]
#[ignore = "starts an OpenSearch: make test-search"]
fn opensearch_has_the_incidents_of_a_recording_once() {
    let Some(engine) = Engine::start(1) else { return };
    let dir = tempfile::tempdir().expect("a folder");
    let path = |name: &str| dir.path().join(name).to_str().expect("UTF-8").to_owned();
    good(&["demo", "disk-hog", "--keep", &path("recording")]);
    let (recording, config, state) = (path("recording"), config(dir.path(), &engine), path("state"));
    let place = Place { engine: &engine, recording, config, state };
    let said = place.notify(&["--test"]);
    assert_eq!((said.code, said.out.as_str()), (0, "opensearch  taken\n"), "{}", said.err);
    assert_eq!(place.incidents()["total"], 0);
    let said = place.notify(&["--once"]);
    assert_eq!(said.code, 0, "{}{}", said.out, said.err);
    let first = place.incidents();
    let total = first["total"].as_u64().expect("a number");
    assert!(total >= 1 && first["schema"] == "mitra.fleet.incidents/1", "{first}");
    let one = &first["incidents"][0];
    assert_eq!((&one["schema"], &one["kind"]), (&"mitra.fleet/1".into(), &"incident".into()));
    assert_eq!((&one["root"], &one["tags"][0]), (&"disk-hog".into(), &"role=db".into()), "{one}");
    // A process that knows nothing of what it has sent sends it again: nothing is there twice.
    std::fs::remove_dir_all(&place.state).expect("removed");
    assert_eq!(place.notify(&["--once"]).code, 0);
    assert_eq!(place.incidents()["incidents"], first["incidents"]);

    let said = place.fleet(&["incidents", "--since", "2020-01-01"]);
    assert!(said.code == 0 && said.out.contains("disk-hog"), "{}{}", said.out, said.err);
    let said = place.fleet(&["roots", "--since", "2020-01-01"]);
    assert!(said.code == 0 && said.out.contains("disk-hog"), "{}{}", said.out, said.err);
    assert_eq!(place.fleet(&["findings", "--since", "2020-01-01"]).code, 0);
    let said = place.fleet(&["incidents", "--since", "2020-01-01", "--by", "kernel"]);
    let has = |text: &str| said.out.contains(text);
    assert!(said.code == 0 && has("KERNEL") && has("disk-hog"), "{}{}", said.out, said.err);
    let said = place.fleet(&["roots", "--since", "2020-01-01", "--by", "change"]);
    assert!(said.code == 0 && said.out.is_empty(), "{}", said.out);
    assert!(
        said.err.contains("nothing changed within a day before the first incident on 1 host"),
        "{}",
        said.err
    );
    let said = place.fleet(&["why", "disk-hog", "--since", "2020-01-01"]);
    assert!(said.code == 2 && said.err.contains("it takes 3"), "{}{}", said.out, said.err);
    // The distribution for tests has no plugins.
    let said = place.fleet(&["setup"]);
    assert!(said.code == 2 && said.out.contains("is there"), "{}{}", said.out, said.err);
    assert!(said.err.contains("no Index State Management"), "{}", said.err);
}

/// A recording of the laboratory as if it were of another host, from a moment on.
fn renamed(recording: &str, to: &Path, host: &str, at_ns: i64) {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/recordings").join(recording);
    let reader = Reader::open(&from.join("archive")).expect("a recording");
    let host = HostInfo { hostname: host.to_owned(), ..reader.host().clone() };
    let mut writer = Writer::open(to, &host, Options::default()).expect("an archive");
    let shift_ns = at_ns - reader.span().expect("samples").since;
    let mut append = |frame: &mitra_model::Frame, strings: &mitra_model::Strings| {
        let mut frame = frame.clone();
        frame.time.real += shift_ns;
        frame.kept_from.iter_mut().for_each(|kept| kept.real += shift_ns);
        frame.events.iter_mut().for_each(|event| event.real += shift_ns);
        writer.append(&frame, strings).expect("written");
    };
    reader.frames(Span::ALL, &mut append).expect("read");
    writer.finish().expect("finished");
}

/// What is said of a question about the days around the deployment.
fn ask(config: &str, args: &[&str]) -> Value {
    let days = ["--since", "2026-11-20", "--until", "2026-11-23", "--json", "--config", config];
    let said = run(&[&["fleet"], args, &days].concat());
    assert_eq!(said.code, 0, "{args:?}: {}", said.err);
    serde_json::from_str(&said.out).expect("JSON")
}

#[test]
#[ignore = "starts an OpenSearch: make test-search"]
fn opensearch_names_the_package_that_hosts_with_the_same_recorded_incident_share() {
    let Some(engine) = Engine::start(1) else { return };
    let dir = tempfile::tempdir().expect("a folder");
    let mut noise = Noise::new(7);
    let mut writer = engine.writer("told_", "spool");
    let onsets = live(&mut writer, &mut noise);
    assert_eq!((writer.waiting(), onsets.len()), (0, ILL));
    let config = config(dir.path(), &engine);
    let tell = |recording: &str, host: &str, at_ns: i64| {
        let path = |what: &str| dir.path().join(format!("{host}-{what}"));
        renamed(recording, &path("recording"), host, at_ns);
        let [recording, state] =
            ["recording", "state"].map(|what| path(what).to_str().expect("UTF-8").to_owned());
        let place = Place { engine: &engine, recording, config: config.clone(), state };
        let said = place.notify(&["--once"]);
        assert_eq!(said.code, 0, "{host}: {}{}", said.out, said.err);
    };
    for (i, (host, at_ns)) in onsets.iter().enumerate() {
        tell(ILLNESS[i % ILLNESS.len()], host, *at_ns);
    }
    let well = (0..HOSTS).map(name).filter(|host| !onsets.contains_key(host));
    for (i, host) in well.take(8).enumerate() {
        tell(OTHERS[i % OTHERS.len()], &host, DAY.start_ns() + 14 * HOUR);
    }

    let found = ask(&config, &["why", "disk-hog"]);
    assert_eq!(
        (&found["ill"], &found["ill_known"], &found["well"]),
        (&json!(ILL), &json!(ILL), &json!(HOSTS - ILL))
    );
    let shared = found["shared"].as_array().expect("a list");
    assert_eq!(shared.len(), 1, "{found}");
    assert_eq!(shared[0]["changed"], "before", "{found}");
    let members = shared[0]["members"].as_array().expect("a list");
    let members: Vec<(String, &Value)> = members
        .iter()
        .map(|member| (member["item"].as_str().unwrap_or_default().to_owned(), &member["value"]))
        .collect();
    let bad = json!(BAD);
    assert_eq!(members, DEPLOYED.map(|package| (format!("package.{package}"), &bad)));

    let versions = ask(&config, &["incidents", "--root", "disk-hog", "--by", "package:libfoo"]);
    let groups = versions["groups"].as_array().expect("a list");
    assert_eq!((groups.len(), &versions["hosts"]), (1, &json!(ILL)), "{versions}");
    assert_eq!((&groups[0]["version"], &groups[0]["hosts"]), (&bad, &json!(ILL)), "{versions}");
    let changes = ask(&config, &["roots", "--root", "disk-hog", "--by", "change"]);
    let is_it =
        |group: &Value| group["item"] == "package.libfoo" && group["value"] == BAD && group["hosts"] == ILL;
    assert!(changes["groups"].as_array().expect("a list").iter().any(is_it), "{changes}");
    by_chance(&engine, &config, &mut noise);
}

/// The same documents at any hosts at any time of the day: nothing is named.
fn by_chance(engine: &Engine, config: &str, noise: &mut Noise) {
    let told = ask(config, &["incidents", "--root", "disk-hog", "--limit", "1000"]);
    let told = told["incidents"].as_array().expect("a list");
    let cluster = engine.cluster("told_");
    let index = cluster.incidents_pattern().replace('*', "2026-11");
    let mut named = Vec::new();
    for fleet in 0..20 {
        let root = format!("chance-{fleet}");
        let mut hosts: Vec<usize> = (0..HOSTS).collect();
        for i in (1..HOSTS).rev() {
            hosts.swap(i, noise.below(i as u64 + 1) as usize);
        }
        for host in hosts.iter().take(4 + noise.below(60) as usize) {
            let begin = DAY.start_ns() + 3 * HOUR + noise.below(20 * 60) as i64 * MINUTE;
            let mut one = told[host % told.len()].clone();
            one["host"] = json!(name(*host));
            one["root"] = json!(root);
            one["begin"] = json!(Moment(begin).to_string());
            one["end"] = json!(Moment(begin + MINUTE).to_string());
            let answer = engine.raw("PUT", &format!("/{index}/_doc/{root}-{host}"), &one.to_string());
            assert!(answer.contains("created"), "{answer}");
        }
        cluster.refresh().expect("refreshed");
        let found = ask(config, &["why", &root]);
        named.extend(found["shared"].as_array().expect("a list").clone());
    }
    assert!(named.is_empty(), "{named:#?}");
}
