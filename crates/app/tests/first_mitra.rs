//! The configuration file of the first Mitra, as it is, and the questions of its author, through the commands: into a real
//! OpenSearch and into the embedded index.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Unchanged but for the host name: it was `ubuntu02`.
const AUTHORS: &str = "log:
  file: /tmp/runner.log
  maxsize: 10
  level: info
indexer:
  prefix: mitra_
  es_host: localhost
  es_port: 9200
  maxsize: 10
  files:
    - /etc/hosts
    - /etc/fstab
    - /proc/meminfo
  frequency: 300
";
/// What `tools/opensearch.sh` says when it cannot.
const SKIPPED: i32 = 77;

struct Engine(PathBuf);

impl Engine {
    /// On the port that the configuration names.
    fn start(dir: &Path) -> Option<Self> {
        for port in [9200, 9300] {
            if let Err(error) = std::net::TcpListener::bind(("127.0.0.1", port)) {
                println!("skipped: port {port}: {error}");
                return None;
            }
        }
        let dir = dir.join("cluster");
        let status = script().arg("start").arg(&dir).arg("9200").stdout(Stdio::null()).status().unwrap();
        if status.code() == Some(SKIPPED) {
            println!("skipped: there is no OpenSearch here; the lines above say why");
            return None;
        }
        assert!(status.success(), "OpenSearch did not start");
        Some(Self(dir))
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let _ = script().arg("stop").arg(&self.0).status();
    }
}

fn script() -> Command {
    Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tools/opensearch.sh"))
}

/// What `mitra` says: found (0) or not (1), and the lines.
fn mitra(args: &[&str]) -> (i32, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_mitra")).args(args).stdin(Stdio::null()).output().unwrap();
    let code = output.status.code().unwrap_or(-1);
    assert!((0..2).contains(&code), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    (code, String::from_utf8(output.stdout).unwrap())
}

/// Its server runs as somebody else, who has to reach it.
fn folder() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("mitra-first-").tempdir_in("/var/tmp").unwrap()
}

#[test]
fn the_authors_file_and_questions_work_on_the_embedded_index() {
    the_authors_file_and_questions_work(&folder(), None);
}

#[test]
#[ignore = "starts an OpenSearch: make test-search"]
fn the_authors_file_and_questions_work_on_opensearch_too() {
    let tmp = folder();
    if let Some(engine) = Engine::start(tmp.path()) {
        the_authors_file_and_questions_work(&tmp, Some(engine));
    }
}

fn the_authors_file_and_questions_work(tmp: &tempfile::TempDir, engine: Option<Engine>) {
    let config = tmp.path().join("runner.yaml");
    std::fs::write(&config, AUTHORS).unwrap();
    let (config, store) = (config.to_str().unwrap(), tmp.path().join("index"));
    let store = store.to_str().unwrap();
    let had_log = Path::new("/tmp/runner.log").exists();

    let embedded = ["--config", config, "--store", store];
    let cluster = ["--config", config];
    let mut sides: Vec<&[&str]> = vec![&embedded];
    if engine.is_some() {
        sides.push(&cluster);
    }
    let with = |words: &[&str], side: &[&str]| {
        let args: Vec<&str> = words.iter().chain(side).copied().collect();
        mitra(&args)
    };
    let spool = tmp.path().join("spool");
    let spool = ["index", "--host", "xyz", "--spool", spool.to_str().unwrap()];
    for side in &sides {
        let words = if side.contains(&"--store") { &spool[..3] } else { &spool[..] };
        let (code, said) = with(words, side);
        assert!(code == 0 && said.contains("3 files"), "{side:?}: {said}");
    }
    if !had_log {
        std::fs::remove_file("/tmp/runner.log").expect("the log that the file asks for");
    }

    let long = std::fs::metadata("/etc/hosts").unwrap().len() > 4096;
    let asked: &[(&[&str], Option<&str>)] = &[
        // How many servers run a 4.4 kernel?
        (&["search", "--hosts", "--count", "kernel.release:4.4*"], None),
        // Which servers do not have zsh?
        (&["search", "--hosts-without", "package.zsh:*"], None),
        // Which hosts have /etc/hosts larger than 4k?
        (
            &["search", "--hosts", "filename:\"/etc/hosts\" AND size:>4k"],
            Some(if long { "xyz\n" } else { "" }),
        ),
        // What is vm.swappiness across the infrastructure?
        (&["search", "--values", "sysctl.vm.swappiness"], None),
        (&["search", "--json", "filename:\"/etc/fstab\" AND content:ext4"], None),
        // What did a file say?
        (&["show", "xyz", "/etc/hosts"], Some(&std::fs::read_to_string("/etc/hosts").unwrap())),
        // Without a search, by what its id is made of.
        (&["search", "--id", "xyz", "/etc/hosts"], None),
    ];
    for (words, right) in asked {
        let said: Vec<(i32, String)> = sides.iter().map(|side| with(words, side)).collect();
        if let Some(right) = right {
            assert_eq!(said[0].1, *right, "{words:?}");
        }
        // When each was indexed is not the same.
        let plain = |text: &str| {
            text.lines()
                .filter(|line| !line.contains("since") && !line.contains("\"time\""))
                .collect::<Vec<_>>()
                .join("\n")
        };
        for other in &said[1..] {
            assert_eq!((other.0, plain(&other.1)), (said[0].0, plain(&said[0].1)), "{words:?}");
        }
        println!("{words:?}\n{}", said[0].1.lines().take(8).collect::<Vec<_>>().join("\n"));
    }
    let swappiness = std::fs::read_to_string("/proc/sys/vm/swappiness").unwrap();
    let (_, values) = with(&["search", "--values", "sysctl.vm.swappiness", "--json"], &embedded);
    let values: serde_json::Value = serde_json::from_str(&values).unwrap();
    let value = values["values"][0]["value"].as_f64().unwrap();
    assert_eq!(value, swappiness.trim().parse::<f64>().unwrap());
}
