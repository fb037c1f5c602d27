//! Incidents of a recording in a real OpenSearch: sent by `mitra notify`, asked for by `mitra fleet`.

#[path = "../../search/tests/engine/mod.rs"]
mod engine;
#[path = "cli/harness.rs"]
#[expect(dead_code, reason = "a part of it is used here")]
mod harness;

use std::path::Path;

use engine::Engine;
use harness::{Output, good, run};
use serde_json::Value;

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
    let said = place.fleet(&["why", "disk-hog", "--since", "2020-01-01"]);
    assert!(said.code == 2 && said.err.contains("it takes 3"), "{}{}", said.out, said.err);
    // The distribution for tests has no plugins.
    let said = place.fleet(&["setup"]);
    assert!(said.code == 2 && said.out.contains("is there"), "{}{}", said.out, said.err);
    assert!(said.err.contains("no Index State Management"), "{}", said.err);
}
