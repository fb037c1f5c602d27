//! Archives of other hosts: the real binary asks a real `mitra serve`, and servers that lie, break off or are none.

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};

use mitra_archive::simulate::Machine;
use mitra_archive::{Options, Reader, Writer};
use serde_json::Value;

use crate::harness::{Output, Running, command, finish};
use crate::serve::recording;
use crate::tls::Keys;

const TOKEN: &str = "0123456789abcdef0123";
/// The clock of the simulated machine when it begins.
const BEGIN_S: i64 = 1_790_000_000;

/// A user with a configuration and a cache.
pub struct User(tempfile::TempDir);

impl User {
    pub fn new(tables: &str) -> User {
        let user = User(tempfile::tempdir().unwrap());
        fs::create_dir_all(user.path(".config/mitra")).unwrap();
        fs::write(user.path(".config/mitra/mitra.toml"), tables).unwrap();
        user.secret("token", TOKEN);
        user
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn secret(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
        fs::set_permissions(self.path(name), Permissions::from_mode(0o600)).unwrap();
    }

    pub fn configure(&self, tables: &str) {
        fs::write(self.path(".config/mitra/mitra.toml"), tables).unwrap();
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = command(args);
        for name in [
            "XDG_CONFIG_HOME",
            "XDG_CACHE_HOME",
            "AWS_ACCESS_KEY_ID",
            "AWS_SECRET_ACCESS_KEY",
            "AWS_SESSION_TOKEN",
        ] {
            command.env_remove(name);
        }
        command.env("HOME", self.0.path());
        command
    }

    pub fn run(&self, args: &[&str]) -> Output {
        finish(&mut self.command(args))
    }

    pub fn good(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert_eq!(output.code, 0, "{args:?}: {}", output.err);
        output.out
    }

    pub fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.good(args)).unwrap()
    }

    fn fails(&self, args: &[&str], wanted: &str) {
        let output = self.run(args);
        assert!(
            output.code == 2 && output.err.contains(wanted),
            "{args:?}: {wanted}: {} {}",
            output.code,
            output.err
        );
        assert_eq!(output.err.lines().count(), 1, "{}", output.err);
    }

    /// The files that are kept, and folders of questions that were left.
    /// The report of a stretch, without for how long a setting was not changed: of what is here more is known.
    pub fn report(&self, archive: &str, since: &str, until: &str) -> Value {
        let range = ["--since", since, "--until", until, "--archive", archive];
        let mut report = self.json(&[&["explain", "--json"][..], &range].concat());
        for incident in report["incidents"].as_array_mut().unwrap() {
            let others = incident["other_roots"].as_array_mut().unwrap().iter_mut();
            others.for_each(|root| root["remarks"] = Value::Null);
            incident["root_cause"]["remarks"] = Value::Null;
        }
        report
    }

    pub fn kept(&self) -> Vec<PathBuf> {
        let below =
            |dir: PathBuf| fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
        let mut kept: Vec<PathBuf> = below(self.path(".cache/mitra/archives")).flat_map(below).collect();
        kept.sort();
        kept
    }
}

/// A recording of so many minutes in segments of ten, of which the last one still grows.
pub fn simulated(minutes: u32) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let mut machine = Machine::new(4, 1, 7);
    let mut writer = Writer::open(dir.path(), &Machine::host(), Options::default()).unwrap();
    for _ in 0..minutes * 60 {
        machine.tick();
        writer.append(machine.frame(), machine.strings()).unwrap();
    }
    writer.sync().unwrap();
    dir
}

pub fn text(dir: &Path) -> &str {
    dir.to_str().unwrap()
}

/// Minutes from the beginning of the simulated recording.
pub fn at(minutes: i64) -> String {
    format!("@{}", BEGIN_S + 60 * minutes)
}

/// A real server of a folder, with the token, and its address.
fn serve(user: &User, dir: &str) -> (Running, String) {
    let token = user.path("token");
    let args = ["serve", "--listen", "127.0.0.1:0", "--archive", dir, "--token-file", text(&token)];
    let mut running = Running::start(&mut command(&args));
    let line = running.line();
    let address = line.trim().trim_end_matches('/').to_owned();
    assert!(address.starts_with("http://127.0.0.1:"), "{line}");
    user.configure(&format!("[[remote]]\nurl = \"{address}\"\ntoken-file = \"{}\"\n", text(&token)));
    (running, address)
}

#[test]
fn a_host_is_explained_as_on_the_host() {
    let user = User::new("");
    let recording = recording();
    let (_server, url) = serve(&user, &recording);
    let here = user.json(&["explain", "--json", "--archive", &recording]);
    assert!(!here["incidents"].as_array().unwrap().is_empty());
    assert_eq!(user.json(&["explain", "--json", "--archive", &url]), here);
    assert_eq!(user.json(&["explain", "--json", &format!("{url}/")]), here, "in place of a path");
    let mut by_variable = user.command(&["explain", "--json"]);
    assert_eq!(
        finish(by_variable.env("MITRA_ARCHIVE", &url)).out,
        user.good(&["explain", "--json", "--archive", &recording])
    );
    for args in [
        &["dump", "--format", "csv", "--metric", "mem.*", "--since", "@0"][..],
        &["compare", "--json", "2020-01-01..2030-01-01", "2020-01-01..2030-01-01"],
        &["rules", "test", "--json", "--when", "mem.free > 0"],
    ] {
        let of = |archive: &str| user.good(&[args, &["--archive", archive]].concat());
        assert_eq!(of(&url), of(&recording), "{args:?}");
    }
    let table = user.path(".config/mitra/mitra.toml");
    let by_name = fs::read_to_string(&table).unwrap().replace("127.0.0.1", "{host}");
    user.configure(&by_name);
    assert_eq!(user.json(&["explain", "--json", "--host", "127.0.0.1"]), here);
    let views = user.path(".cache/mitra/archives");
    let left = fs::read_dir(views)
        .unwrap()
        .flatten()
        .filter(|e| e.file_name().to_string_lossy().starts_with("view."));
    assert_eq!(left.count(), 0, "folders of questions are removed");
}

#[test]
fn only_what_is_wanted_of_a_long_recording_is_fetched_and_once() {
    let user = User::new("");
    let dir = simulated(165);
    let files = Reader::open(dir.path()).unwrap().segment_files();
    assert_eq!((files.len(), files.iter().filter(|file| !file.is_sealed).count()), (17, 1));
    let (_server, url) = serve(&user, text(dir.path()));
    let (since, until) = (at(52), at(53));
    let minute = ["dump", "--format", "csv", "--metric", "mem.free", "--since", &since, "--until", &until];
    let of = |archive: &str| user.good(&[&minute[..], &["--archive", archive]].concat());
    let here = of(text(dir.path()));
    assert!(here.lines().count() > 50, "{here}");
    assert_eq!(of(&url), here);
    assert_eq!(user.kept().len(), 1, "one segment of 17: {:?}", user.kept());
    // What is kept is not believed blindly.
    let kept = user.kept().remove(0);
    let whole = fs::read(&kept).unwrap();
    let damaged = [&vec![7; whole.len() / 2][..], &whole[whole.len() / 2..]].concat();
    fs::write(&kept, &damaged).unwrap();
    assert_eq!(of(&url), here);
    assert_ne!(fs::read(&kept).unwrap(), damaged, "it was fetched again");
    // Two hours before the range, for what it is compared with, and the segment that grows.
    let (since, until) = (at(150), at(155));
    let of = |archive: &str| user.report(archive, &since, &until);
    assert_eq!(of(&url), of(text(dir.path())));
    assert_eq!(user.kept().len(), 14, "{:?}", user.kept());
    // To the end, which still grows and is not kept.
    let last = ["dump", "--format", "csv", "--metric", "mem.free"];
    let of = |archive: &str| user.good(&[&last[..], &["--archive", archive]].concat());
    assert_eq!(of(&url), of(text(dir.path())));
    assert!(user.kept().iter().all(|path| path.extension().is_some_and(|ending| ending == "seg")));
    user.fails(
        &["dump", "--archive", &url, "--since", "@100", "--until", "@200"],
        "nothing was recorded in that time",
    );
}

#[test]
fn what_grows_is_read_while_it_grows() {
    let user = User::new("");
    let dir = tempfile::tempdir().unwrap();
    let mut recorder =
        Running::start(command(&["record", "--no-bpf", "--interval", "100ms", "--archive"]).arg(dir.path()));
    assert!(recorder.line().starts_with("recording "));
    crate::harness::wait_for_frames(text(dir.path()), 5);
    let (_server, url) = serve(&user, text(dir.path()));
    let lines =
        || user.good(&["dump", "--format", "csv", "--metric", "mem.free", "--archive", &url]).lines().count();
    let before = lines();
    crate::harness::wait_until("more samples", || lines() > before);
}

#[test]
fn what_cannot_be_asked_is_told_on_one_line() {
    let user = User::new("");
    let (_server, url) = serve(&user, &recording());
    let explain = |url: &str, wanted: &str| user.fails(&["explain", "--archive", url], wanted);
    user.secret("token", "another-token-0123");
    explain(&url, "it has another token than the token-file");
    fs::set_permissions(user.path("token"), Permissions::from_mode(0o644)).unwrap();
    explain(&url, "others than its owner may read it");
    user.configure("");
    explain(&url, "it wants a token: token-file in a table [[remote]]");
    explain("http://127.0.0.1:1", "no answer");
    explain("http://web17.example:6174", "others can read along");
    explain("https://ann:secret@web17", "without a user");
    explain("s3://bucket/prefix/web17", "no key for the object store");
    explain("s3://bucket", "want s3://BUCKET/PREFIX/HOST");
    user.fails(&["explain", "--host", "web17"], "no table [[remote]]");
    user.fails(&["explain", "--host", "../x"], "not the name of a host");
    user.configure("[[remote]]\nurl = \"https://web17\"\ntokenfile = \"x\"\n");
    let output = user.run(&["explain", "--archive", "https://web17"]);
    assert!(output.code == 2 && output.err.contains("mitra.toml:3:1: unknown field"), "{}", output.err);
    user.configure("[[remote]]\nurl = \"https://web17\"\n");
    fs::set_permissions(user.path(".config/mitra/mitra.toml"), Permissions::from_mode(0o666)).unwrap();
    explain("https://web17", "others can change where tokens go");
    for args in [&["status"][..], &["serve"], &["record"], &["capture", "--show", "x"]] {
        user.fails(&[args, &["--archive", &url]].concat(), "this wants a folder");
    }
}

const BUSY: &[u8] = br#"{"error":{"message":"too many\u001b[31m"}}"#;

/// A server that answers as it is told, and what it was asked.
fn fake(answer: impl Fn(&str) -> Vec<u8> + Send + 'static) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address: SocketAddr = listener.local_addr().unwrap();
    let asked = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&asked);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream: TcpStream = stream.unwrap();
            let mut head = Vec::new();
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) == 1 {
                head.push(byte[0]);
            }
            let head = String::from_utf8_lossy(&head).into_owned();
            let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
            told.lock().unwrap().push(path.clone());
            _ = stream.write_all(&answer(&path));
        }
    });
    (format!("http://{address}"), asked)
}

fn answer(status: &str, bytes: &[u8], length: usize) -> Vec<u8> {
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    [head.as_bytes(), bytes].concat()
}

fn fine(bytes: &[u8]) -> Vec<u8> {
    answer("200 OK", bytes, bytes.len())
}

fn list(name: &str, bytes: usize) -> Vec<u8> {
    let (since, until) = ("2026-09-21T14:13:20Z", "2026-09-21T14:14:20Z");
    let one = format!(
        r#"{{"name":"{name}","bytes":{bytes},"is_sealed":true,"since":"{since}","until":"{until}"}}"#
    );
    format!(
        r#"{{"segments":[{one}],"captures":[{{"name":"../../x.json.zst","bytes":1,"since":"{since}"}}]}}"#
    )
    .into_bytes()
}

#[test]
fn hosts_that_lie_or_break_off_are_told() {
    let dir = simulated(10);
    let segment = {
        // Sealed, as by a recorder that ends in order.
        let writer = Writer::open(dir.path(), &Machine::host(), Options::default()).unwrap();
        writer.finish().unwrap();
        fs::read(dir.path().join("0000000001.seg")).unwrap()
    };
    let explain = |url: &str, wanted: &str| {
        let user = User::new("");
        user.fails(&["explain", "--archive", url], wanted);
        assert!(user.kept().is_empty(), "{:?}", user.kept());
    };
    for name in ["../../../../etc/passwd", "0000000001.seg/../../state", "state", "0000000001.log"] {
        let (url, asked) = fake(move |_| fine(&list(name, 10)));
        explain(&url, "its list has a file that no recording has");
        assert_eq!(*asked.lock().unwrap(), ["/api/v1/segments"], "nothing of that name is asked for");
    }
    let with = |answer: fn(&[u8]) -> Vec<u8>| {
        let segment = segment.clone();
        let answers = move |path: &str| match path {
            "/api/v1/segments" => fine(&list("0000000001.seg", segment.len())),
            _ => answer(&segment),
        };
        fake(answers).0
    };
    explain(
        &with(|bytes| answer("200 OK", &bytes[..1000], bytes.len())),
        "0000000001.seg did not come whole",
    );
    explain(&with(|bytes| fine(&bytes[..1000])), "did not come whole: ");
    explain(&with(|_| Vec::new()), "no answer");
    explain(&with(|_| answer("404 Not Found", b"", 0)), "was removed since it was listed; ask again");
    explain(&with(|_| answer("503 Busy", BUSY, BUSY.len())), "answered 503 Service Unavailable: too many");
    explain(&fake(|_| answer("404 Not Found", b"no", 2)).0, "no recording answers there");
    explain(&fake(|_| answer("302 Found\r\nLocation: http://127.0.0.1:1/", b"", 0)).0, "answered 302");
    explain(&fake(|_| fine(b"<html>")).0, "this is not the list of a recording");
    explain(&fake(|_| fine(br#"{"segments":[]}"#)).0, "nothing is recorded there");
    let spoiled: fn(&[u8]) -> Vec<u8> = |bytes| {
        let mut bytes = bytes.to_vec();
        *bytes.last_mut().unwrap() ^= 1;
        fine(&bytes)
    };
    // What is damaged on the host is read as there.
    let user = User::new("");
    let output = user.run(&["dump", "--archive", &with(spoiled), "--metric", "mem.free"]);
    assert!(output.code == 0 && output.err.contains("is damaged there"), "{}", output.err);
    assert!(user.kept().is_empty());
    let whole = with(fine);
    assert_eq!(
        user.run(&["dump", "--archive", &whole, "--metric", "mem.free"]).code,
        0,
        "the server is not the reason"
    );
}

#[test]
fn a_client_has_a_certificate_where_the_host_wants_one() {
    let Some(keys) = Keys::make() else { return };
    let ca = keys.text("ca.pem");
    let (_server, port) = keys.serve(&["--listen", "127.0.0.1:0", "--tls-client-ca", &ca]);
    let url = format!("https://127.0.0.1:{port}");
    let user = User::new("");
    let table = |ca: &str, more: &str| {
        let token = keys.text("token");
        user.configure(&format!(
            "[[remote]]\nurl = \"https://{{host}}:{port}\"\ntoken-file = \"{token}\"\nca-file = \"{}\"\n{more}",
            keys.text(ca)
        ));
    };
    let identity = |name: &str| {
        format!(
            "cert-file = \"{}\"\nkey-file = \"{}\"\n",
            keys.text(&format!("{name}.pem")),
            keys.text(&format!("{name}.key"))
        )
    };
    let here = user.json(&["explain", "--json", "--archive", &recording()]);
    table("ca.pem", &identity("client"));
    assert_eq!(user.json(&["explain", "--json", "--archive", &url]), here);
    assert_eq!(user.json(&["explain", "--json", "--host", "127.0.0.1"]), here);
    table("ca.pem", "");
    user.fails(&["explain", "--archive", &url], "no answer");
    table("ca.pem", &identity("other"));
    user.fails(&["explain", "--archive", &url], "no answer");
    table("other.pem", &identity("client"));
    user.fails(&["explain", "--archive", &url], "no answer");
    table("ca.pem", &format!("cert-file = \"{}\"\n", keys.text("client.pem")));
    user.fails(&["explain", "--archive", &url], "want both cert-file and key-file");
    fs::set_permissions(keys.text("client.key"), Permissions::from_mode(0o644)).unwrap();
    table("ca.pem", &identity("client"));
    user.fails(&["explain", "--archive", &url], "everybody may read it");
}
