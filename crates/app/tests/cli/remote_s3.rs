//! An object store: moto, which checks signatures as Amazon's own library makes them.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use mitra_archive::simulate::Machine;
use mitra_archive::{Options, Reader, Writer};

use crate::harness::{self, Running};
use crate::remote::{User, at, simulated, text};

/// A store, and a user who has its key.
struct Store {
    _running: Running,
    url: String,
    user: User,
    key: String,
}

impl Store {
    fn start(args: &[&str]) -> Option<Store> {
        let Some(python) = harness::python("moto.server, boto3") else {
            println!("skipped: moto is not installed");
            return None;
        };
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/remote_s3.py");
        let mut running =
            Running::start(Command::new(python).arg("-u").arg(script).args(args).stdin(Stdio::piped()));
        let line = running.line();
        let words: Vec<&str> = line.split_whitespace().collect();
        let [url, id, secret] = words[..] else { panic!("the store does not start: {line}") };
        let (user, key) = (User::new(""), format!("{id}:{secret}"));
        user.secret("s3-key", &key);
        let store = Store { _running: running, url: url.to_owned(), user, key };
        store.table("");
        Some(store)
    }

    fn table(&self, more: &str) {
        let key = self.user.path("s3-key");
        self.user.configure(&format!(
            "[[remote]]\nurl = \"s3://recordings/mitra\"\nendpoint = \"{}\"\nkey-file = \"{}\"\n{more}",
            self.url,
            text(&key)
        ));
    }

    fn upload(&self, dir: &Path) -> String {
        self.user.good(&["upload", "--once", "--to", "s3://recordings/mitra", text(dir)])
    }
}

const ARCHIVE: &str = "s3://recordings/mitra/simulated";

#[test]
fn segments_are_stored_once_and_read_back() {
    let Some(store) = Store::start(&[]) else { return };
    let dir = simulated(45);
    let user = &store.user;
    assert!(store.upload(dir.path()).ends_with("4 segments stored, 0 were there\n"));
    assert!(store.upload(dir.path()).ends_with("0 segments stored, 4 were there\n"));
    let named = user.run(&["upload", "--once", text(dir.path())]);
    assert!(named.code == 2 && named.err.contains("upload = true"), "{}", named.err);
    store.table("upload = true\n");
    let named = user.good(&["upload", "--once", text(dir.path())]);
    assert!(named.ends_with("0 segments stored, 4 were there\n"), "{named}");
    let (since, until) = (at(12), at(18));
    user.good(&["dump", "--archive", ARCHIVE, "--since", &since, "--until", &until]);
    assert!((1..=2).contains(&user.kept().len()), "of six minutes: {:?}", user.kept());
    let (since, until) = (at(12), at(35));
    let range = ["--since", &since, "--until", &until];
    for args in [&["explain", "--json"][..], &["dump", "--format", "csv", "--metric", "mem.*"]] {
        let of = |archive: &str| user.good(&[args, &range[..], &["--archive", archive]].concat());
        assert_eq!(of(ARCHIVE), of(text(dir.path())), "{args:?}");
    }
    assert_eq!(user.kept().len(), 4);
    // The key from the environment, as other tools have it; and one that is wrong.
    user.configure(&format!("[[remote]]\nurl = \"s3://recordings\"\nendpoint = \"{}\"\n", store.url));
    let (id, secret) = store.key.split_once(':').unwrap();
    let with = |secret: &str| {
        let mut dump = user.command(&["dump", "--archive", ARCHIVE, "--since", &since, "--until", &until]);
        harness::finish(dump.env("AWS_ACCESS_KEY_ID", id).env("AWS_SECRET_ACCESS_KEY", secret))
    };
    assert_eq!(with(secret).code, 0, "{}", with(secret).err);
    let wrong = with(&secret.to_lowercase());
    assert!(
        wrong.code == 2 && wrong.err.contains("403") && wrong.err.contains("SignatureDoesNotMatch"),
        "{}",
        wrong.err
    );
    store.table("");
    let none = user.run(&["dump", "--archive", "s3://recordings/mitra/web17"]);
    assert!(none.code == 2 && none.err.contains("nothing is recorded there"), "{}", none.err);
    user.secret("s3-key", "no-colon");
    let none = user.run(&["dump", "--archive", ARCHIVE]);
    assert!(none.code == 2 && none.err.contains("want ID:SECRET on one line"), "{}", none.err);
}

#[test]
fn an_upload_waits_for_an_archive_that_is_not_there_yet() {
    let user = User::new("[[remote]]\nurl = \"s3://recordings\"\nendpoint = \"http://127.0.0.1:1\"\n");
    let dir = tempfile::tempdir().unwrap();
    let archive = dir.path().join("archive");
    let arguments = ["upload", "--to", "s3://recordings/mitra", text(&archive)];
    let with_key = |arguments: &[&str]| {
        let mut command = user.command(arguments);
        command.env("AWS_ACCESS_KEY_ID", "x").env("AWS_SECRET_ACCESS_KEY", "x");
        command
    };
    let once = harness::finish(&mut with_key(&[&arguments[..], &["--once"]].concat()));
    assert!(once.code == 2 && once.err.contains("no archive here"), "{}", once.err);
    let mut upload = Running::start(&mut with_key(&arguments));
    let said = upload.err_line();
    assert!(said.contains("no archive here") && said.contains("waiting for it"), "{said}");
    let mut machine = Machine::new(3, 1, 3);
    let mut writer = Writer::open(&archive, &Machine::host(), Options::default()).unwrap();
    machine.tick();
    writer.append(machine.frame(), machine.strings()).unwrap();
    writer.finish().unwrap();
    let line = upload.line();
    assert!(line.starts_with("storing the segments of "), "{line}");
}

#[test]
fn an_upload_follows_the_recorder_and_outlives_the_store() {
    let Some(store) = Store::start(&[]) else { return };
    let user = &store.user;
    let dir = tempfile::tempdir().unwrap();
    let mut machine = Machine::new(3, 1, 3);
    let record = |machine: &mut Machine, frames: u32| {
        let mut writer = Writer::open(dir.path(), &Machine::host(), Options::default()).unwrap();
        for _ in 0..frames {
            machine.tick();
            writer.append(machine.frame(), machine.strings()).unwrap();
        }
        writer.finish().unwrap();
    };
    record(&mut machine, 30);
    // Who is asked first hangs up.
    let away = TcpListener::bind("127.0.0.1:0").unwrap();
    away.set_nonblocking(true).unwrap();
    let endpoint = format!("endpoint = \"http://{}\"\n", away.local_addr().unwrap());
    store.user.configure(&format!("[[remote]]\nurl = \"s3://recordings/mitra\"\n{endpoint}"));
    let mut upload = Running::start(
        user.command(&["upload", "--to", "s3://recordings/mitra", text(dir.path())])
            .env("AWS_ACCESS_KEY_ID", store.key.split_once(':').unwrap().0)
            .env("AWS_SECRET_ACCESS_KEY", store.key.split_once(':').unwrap().1),
    );
    assert!(upload.line().starts_with("storing the segments of "));
    harness::wait_until("a request to the store that is away", || away.accept().is_ok());
    drop(away);
    store.table("");
    let frames = || {
        let output = user.run(&[
            "dump",
            "--format",
            "csv",
            "--metric",
            "sys.ctxt",
            "--raw",
            "--since",
            "@0",
            "--archive",
            ARCHIVE,
        ]);
        output.out.lines().filter(|line| line.contains("sys.ctxt")).count()
    };
    harness::wait_until("the first segment", || frames() == 30);
    record(&mut machine, 20);
    harness::wait_until("the second segment", || frames() == 50);
    let (status, err) = upload.end(rustix::process::Signal::TERM);
    assert!(status.success() && err.contains("tried again in"), "{err}");
}

/// An hour out of a month: `cargo test -p mitra-app --test cli by_hand_an_hour -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn by_hand_an_hour_out_of_a_month_in_an_object_store() {
    const HOURS: u32 = 4;
    let dir = tempfile::tempdir().unwrap();
    let mut machine = Machine::new(1000, 50, 1);
    let mut writer = Writer::open(dir.path(), &Machine::host(), Options::default()).unwrap();
    for _ in 0..HOURS * 3600 {
        machine.tick();
        writer.append(machine.frame(), machine.strings()).unwrap();
    }
    writer.finish().unwrap();
    let files = Reader::open(dir.path()).unwrap().segment_files();
    let begin = files[0].span.since / 1_000_000_000;
    let Some(store) = Store::start(&[&begin.to_string(), "30", &files[0].bytes.to_string()]) else { return };
    print!("{}", store.upload(dir.path()));
    let (since, until) = (at(60 * 3), at(60 * 4));
    let explain = |archive: &str| {
        let start = Instant::now();
        let report = store.user.report(archive, &since, &until);
        (report, start.elapsed().as_secs_f64())
    };
    let (here, here_s) = explain(text(dir.path()));
    let (there, first_s) = explain(ARCHIVE);
    let (_, again_s) = explain(ARCHIVE);
    let bytes: u64 = store.user.kept().iter().map(|path| fs::metadata(path).unwrap().blocks() * 512).sum();
    println!(
        "{} segments of 10 minutes, parts of {} fetched, {:.2} MB; {first_s:.2} s, again {again_s:.2} s, from a folder {here_s:.2} s; same report: {}",
        files.len() + 30 * 144,
        store.user.kept().len(),
        bytes as f64 / 1e6,
        here == there
    );
    assert!(here == there, "another report");
    assert!(bytes < 5_000_000 && first_s < 2.0, "{bytes} bytes, {first_s} s");
}
