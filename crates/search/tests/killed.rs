//! A writer is killed at random moments, with and without a cluster, and a spool runs on a full
//! disk. All accepted batches must be there.
//!
//! Twelve kills, or `MITRA_KILLS`.

mod engine;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use engine::{Engine, wait_until};
use mitra_search::backend::{Batch, Sink};
use mitra_search::opensearch::{Cluster, Settings, Writer};
use mitra_search::spool::Spool;
use mitra_search::{Day, Document, Error, Kind, Query};

const CHILD: &str = "MITRA_TEST_KILLED";
const FILES: u64 = 7;
const SECOND: i64 = 1_000_000_000;
const FIRST: Day = Day(20_700);

fn at(look: u64) -> i64 {
    FIRST.start_ns() + look as i64 * SECOND
}

fn document(look: u64) -> Document {
    Document {
        content: Some(format!("look {look} {}", "text ".repeat((look % 50) as usize * 20))),
        ..Document::new("web1", format!("/etc/{}", look % FILES), Kind::File)
    }
}

/// Not a test, but the child process. It writes until it is killed, and prints which batches were
/// accepted.
#[test]
fn child() {
    let Ok(wanted) = std::env::var(CHILD) else { return };
    let words: Vec<&str> = wanted.split(' ').collect();
    let [node, prefix, dir, from] = words[..] else { panic!("four words") };
    let settings = Settings { nodes: vec![node.into()], prefix: prefix.into(), ..Settings::default() };
    let mut writer =
        Writer::open(Cluster::connect(settings).expect("a client"), Path::new(dir)).expect("a writer");
    for look in from.parse::<u64>().expect("a number").. {
        let documents = [document(look)];
        writer
            .put(&Batch { host: "web1", at_ns: at(look), documents: &documents, gone: &[] })
            .expect("taken");
        println!("taken {look}");
    }
}

/// Runs the child for a while. Returns the last batch that it reported as accepted.
fn run_and_kill(wanted: &str, after: Duration) -> Option<u64> {
    let mut child = Command::new(std::env::current_exe().expect("this test"))
        .args(["child", "--exact", "--nocapture"])
        .env(CHILD, wanted)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("a child");
    std::thread::sleep(after);
    child.kill().expect("killed");
    child.wait().expect("ended");
    let lines = BufReader::new(child.stdout.take().expect("its output")).lines().map_while(Result::ok);
    lines.filter_map(|l| l.split_once("taken ")?.1.trim().parse().ok()).last()
}

#[test]
#[ignore = "starts an OpenSearch: make test-search"]
fn whatever_was_taken_arrives_in_opensearch_once() {
    let Some(engine) = Engine::start(1) else { return };
    let settings = engine.settings("killed_");
    let dir = engine.dir().join("spool");
    let kills: u64 = std::env::var("MITRA_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(12);
    let mut next = 1;
    let mut chance = 12_345_u64;
    for kill in 0..kills {
        // Half of the children have a cluster, and deliver the spool of the others first.
        let node = if kill % 2 == 0 { "http://127.0.0.1:9" } else { settings.nodes[0].as_str() };
        chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let after = Duration::from_millis(if kill % 2 == 0 { 30 } else { 150 } + (chance >> 33) % 300);
        let wanted = format!("{node} {} {} {next}", settings.prefix, dir.display());
        if let Some(last) = run_and_kill(&wanted, after) {
            next = last + 1;
        }
    }
    let mut writer = Writer::open(Cluster::connect(settings).expect("a client"), &dir).expect("a writer");
    wait_until("all is delivered", Duration::from_secs(120), || {
        writer.flush(Duration::from_secs(30)).is_ok()
    });
    writer.cluster().refresh().expect("refreshed");
    // One batch more than the last reported one may have been accepted.
    let changes = writer.cluster().changes(None, &Query::all(), at(0), at(next + 1)).expect("changes");
    let told: Vec<(i64, Option<String>)> =
        changes.iter().map(|c| (c.at_ns, c.after.as_ref().and_then(|d| d.content.clone()))).collect();
    let first = told.first().expect("changes").0;
    let from = (first - FIRST.start_ns()) / SECOND;
    let to = from as u64 + told.len() as u64;
    let wanted: Vec<_> = (from as u64..to).map(|look| (at(look), document(look).content)).collect();
    assert_eq!(told, wanted, "every state, once, in order");
    // The first state of the host is not a change.
    assert!(from <= 2 && to >= next, "from {from} to {to}, {next} were taken");
    eprintln!("{kills} kills, {} batches", next - 1);
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn a_full_disk_passes() {
    let dir = tempfile::tempdir().expect("a folder");
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=1m", "none"])
        .arg(dir.path())
        .stderr(Stdio::null())
        .status();
    if !mounted.is_ok_and(|status| status.success()) {
        eprintln!("skipped: a small file system cannot be mounted here (not root?)");
        return;
    }
    let result = std::panic::catch_unwind(|| fill(dir.path()));
    let _ = Command::new("umount").arg("-l").arg(dir.path()).status();
    if let Err(panic) = result {
        std::panic::resume_unwind(panic);
    }
}

fn fill(dir: &Path) {
    let mut spool = Spool::open(dir, 1 << 30).expect("a spool");
    let frame = |n: u32| n.to_le_bytes().repeat(2_500);
    let mut kept = 0;
    loop {
        match spool.push(&[frame(kept)]) {
            Ok(()) => kept += 1,
            Err(Error::Io { source, .. }) => {
                break assert_eq!(source.kind(), std::io::ErrorKind::StorageFull);
            }
            Err(other) => panic!("{other}"),
        }
        assert!(kept < 1_000);
    }
    assert!(spool.push(&[frame(kept)]).is_err());
    drop(spool);
    let mut spool = Spool::open(dir, 1 << 30).expect("a spool");
    for n in 0..kept {
        assert_eq!(spool.front().expect("read"), Some(frame(n)));
        spool.pop().expect("gone");
    }
    assert!(spool.front().expect("read").is_none());
    spool.push(&[frame(7)]).expect("there is space again");
    assert_eq!(spool.front().expect("read"), Some(frame(7)));
}
