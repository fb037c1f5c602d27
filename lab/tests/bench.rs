//! The benchmark, as somebody takes part in it who has no line of Mitra: recordings are exported, a
//! script in Python reads the Parquet and answers, and the answers are scored.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// A binary of the same build.
fn mitra() -> Option<PathBuf> {
    let lab = Path::new(env!("CARGO_BIN_EXE_mitra-lab"));
    Some(lab.with_file_name("mitra")).filter(|path| path.is_file())
}

/// Python with DuckDB, in the virtual environment that `tools/install-deps.sh test` makes, or on the
/// path.
fn python() -> Option<PathBuf> {
    let cache = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache/mitra-venv"));
    let venv = std::env::var_os("MITRA_VENV").map(PathBuf::from).or_else(cache);
    let candidates = venv.map(|v| v.join("bin/python")).into_iter().chain([PathBuf::from("python3")]);
    let works = |python: &PathBuf| {
        let output = Command::new(python).args(["-c", "import duckdb"]).output();
        output.is_ok_and(|output| output.status.success())
    };
    candidates.into_iter().find(works)
}

fn run(command: &mut Command) -> (bool, String, String) {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.success(), text(&output.stdout), text(&output.stderr))
}

fn lab(arguments: &[&str]) -> (bool, String, String) {
    run(Command::new(env!("CARGO_BIN_EXE_mitra-lab")).args(arguments))
}

fn good(arguments: &[&str]) -> String {
    let (is_good, out, err) = lab(arguments);
    assert!(is_good, "{arguments:?}: {err}");
    out
}

#[test]
fn a_tool_without_a_line_of_mitra_takes_part() {
    if mitra().is_none() {
        println!("skipped: no mitra beside mitra-lab; run: cargo build --bin mitra");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (out, keep) = (path("bench"), path("kept"));
    let recordings = Path::new(env!("CARGO_MANIFEST_DIR")).join("recordings");
    let export = ["bench", "export", recordings.to_str().unwrap(), "--out", &out, "--keep", &keep];
    good(&export);
    let index = std::fs::read_to_string(path("bench/bench.json")).unwrap();
    // Again with the same seed it is the same.
    good(&export);
    assert!(index == std::fs::read_to_string(path("bench/bench.json")).unwrap(), "another index");
    let index: Value = serde_json::from_str(&index).unwrap();
    let all = index["recordings"].as_array().unwrap();
    assert_eq!(all.len(), std::fs::read_dir(recordings).unwrap().count());

    sealed_truths_are_not_told(dir.path(), all);

    // Mitra and the simple methods.
    let score = |file: &str, keep: Option<&str>| -> Vec<Value> {
        let mut arguments = vec!["bench", "score", file, "--bench", &out, "--json"];
        arguments.extend(keep.into_iter().flat_map(|keep| ["--keep", keep]));
        serde_json::from_str(&good(&arguments)).unwrap()
    };
    let rate = |score: &Value, what: &str| {
        score[what]["right"].as_f64().unwrap() / score[what]["of"].as_f64().unwrap()
    };
    let own = score(&path("kept/answers/mitra.json"), Some(&keep));
    let parts: Vec<&Value> = own.iter().map(|s| &s["part"]).collect();
    assert_eq!(
        parts,
        ["public", "sealed", ""]
            .map(|p| if p.is_empty() { Value::Null } else { p.into() })
            .iter()
            .collect::<Vec<_>>()
    );
    assert!(rate(&own[2], "root") > 0.9 && rate(&own[2], "process") > 0.8, "{own:?}");
    assert_eq!(own[2]["false_alarms"]["right"], 0, "{own:?}");
    let any = score(&path("kept/answers/a-process-by-chance.json"), Some(&keep));
    assert!(rate(&any[2], "process") < 0.2, "{any:?}");
    assert_eq!(any[2]["root"]["of"], 0, "it never names a root");

    // A truth that is not the one of then is noticed.
    let sealed = all.iter().find(|r| r["part"] == "sealed").unwrap()["id"].as_str().unwrap();
    let truth = path(&format!("kept/truth/{sealed}.json"));
    let was = std::fs::read_to_string(&truth).unwrap();
    std::fs::write(&truth, was.replace("onset_s", "onset_t")).unwrap();
    let (is_good, _, err) =
        lab(&["bench", "score", &path("kept/answers/mitra.json"), "--bench", &out, "--keep", &keep]);
    assert!(!is_good && err.contains("SHA-256"), "{err}");

    let Some(python) = python() else {
        println!("skipped: no Python with duckdb; run: tools/install-deps.sh test");
        return;
    };
    let (is_good, answers, err) = run(Command::new(python).arg(path("bench/example.py")).arg(&out));
    assert!(is_good, "{err}");
    std::fs::write(path("answers.json"), answers).unwrap();
    let theirs = score(&path("answers.json"), None);
    assert_eq!(theirs.len(), 1, "only the public part");
    assert_eq!(theirs[0]["missing"], 0);
    // The same method, read from the archives.
    let ours = score(&path("kept/answers/process-with-the-most-cpu-time.json"), None);
    assert_eq!(theirs[0]["process"], ours[0]["process"]);
    assert!(theirs[0]["process"]["right"].as_u64().unwrap() > 0);
}

fn sealed_truths_are_not_told(dir: &Path, all: &[Value]) {
    let sealed: Vec<&Value> = all.iter().filter(|r| r["part"] == "sealed").collect();
    assert!(sealed.len() > all.len() / 5 && sealed.len() < all.len() / 2, "{} sealed", sealed.len());
    for recording in sealed {
        let id = recording["id"].as_str().unwrap();
        let folder = dir.join("bench/sealed").join(id);
        let mut names: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["events.jsonl", "metrics.parquet"]);
        let hash = run(Command::new("sha256sum").arg(dir.join(format!("kept/truth/{id}.json")))).1;
        assert!(hash.starts_with(recording["truth_sha256"].as_str().unwrap()));
    }
}

#[test]
fn mistakes_in_answers_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("answers.json");
    let index = r#"{"schema":"mitra-lab.bench/1","mitra":"","roots":[],"recordings":[]}"#;
    std::fs::write(dir.path().join("bench.json"), index).unwrap();
    for (answers, said) in [
        (r#"{"method":"x","answers":{"abc":{}}}"#, "no such recording"),
        (r#"{"method":"x","answers":{"abc":{"incident":[]}}}"#, "unknown field `incident`"),
        (r#"{"method":"x"}"#, "missing field `answers`"),
    ] {
        std::fs::write(&file, answers).unwrap();
        let (is_good, _, err) =
            lab(&["bench", "score", file.to_str().unwrap(), "--bench", dir.path().to_str().unwrap()]);
        assert!(!is_good && err.contains(said), "{err}");
    }
}
