//! `mitra notify` and receivers: a server that writes down what it gets, Alertmanager, a desktop's daemon, a program.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;

use rustix::process::Signal;

use crate::harness::{MITRA, Output, Running, command, run, wait_until};
use crate::serve::recording;

/// What a receiver got: the headers in lower case, and the body.
type Got = Arc<Mutex<Vec<(String, Value)>>>;

/// Answers with these statuses, one after the other and the last for ever.
fn receiver(statuses: &'static [u16]) -> (String, Got) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let got = Got::default();
    let written = Arc::clone(&got);
    std::thread::spawn(move || {
        for (i, stream) in listener.incoming().enumerate() {
            let mut stream = BufReader::new(stream.unwrap());
            let mut head = String::new();
            while stream.read_line(&mut head).unwrap() > 2 {}
            let head = head.to_lowercase();
            let length =
                head.lines().find_map(|line| line.strip_prefix("content-length: ")?.trim().parse().ok());
            let mut body = vec![0; length.unwrap_or(0)];
            stream.read_exact(&mut body).unwrap();
            written.lock().unwrap().push((head, serde_json::from_slice(&body).unwrap()));
            let status = statuses[i.min(statuses.len() - 1)];
            let answer = format!("HTTP/1.1 {status} x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            stream.get_mut().write_all(answer.as_bytes()).unwrap();
        }
    });
    (format!("http://{address}"), got)
}

struct Place(tempfile::TempDir);

impl Place {
    fn new(config: &str) -> Place {
        let place = Place(tempfile::tempdir().unwrap());
        place.file("mitra.toml", config);
        place
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        path
    }

    fn notify(&self, more: &[&str]) -> Output {
        let (config, state) = (self.0.path().join("mitra.toml"), self.0.path().join("state"));
        let recording = recording();
        let args = [
            "notify",
            "--archive",
            &recording,
            "--config",
            config.to_str().unwrap(),
            "--state",
            state.to_str().unwrap(),
        ];
        run(&[&args[..], more].concat())
    }
}

#[test]
fn an_incident_is_told_once_to_each_in_its_form() {
    let (url, got) = receiver(&[200]);
    let place = Place::new("");
    let slack = place.file("slack", &format!("{url}/slack\n"));
    let key = place.file("key", "0123456789\n");
    let out = place.0.path().join("said.json");
    place.file(
        "mitra.toml",
        &format!(
            "[[notify]]\nto = \"slack\"\nurl-file = \"{}\"\n[[notify]]\nto = \"webhook\"\nurl = \"{url}/hook\"\nkey-file = \"{}\"\n\
             [[notify]]\nto = \"teams\"\nurl = \"{url}/teams\"\n[[notify]]\nto = \"command\"\ncommand = [\"/usr/bin/tee\", \"{}\"]\n",
            slack.display(),
            key.display(),
            out.display()
        ),
    );
    let said = place.notify(&["--once"]);
    assert_eq!(said.code, 0, "{}", said.err);
    let all = got.lock().unwrap().clone();
    let of = |path: &str| {
        all.iter()
            .find(|(head, _)| head.starts_with(&format!("post {path} ")))
            .unwrap_or_else(|| panic!("{path}"))
    };
    let report: Value =
        serde_json::from_str(&run(&["explain", "--archive", &recording(), "--json"]).out).unwrap();
    let root = &report["incidents"][0]["root_cause"];
    let (head, hook) = of("/hook");
    assert!(
        head.contains("authorization: bearer 0123456789") && head.contains("content-type: application/json"),
        "{head}"
    );
    assert_eq!((&hook["schema"], &hook["condition"]), (&Value::from("mitra.notify/1"), &root["condition"]));
    assert_eq!(hook["confidence"], root["confidence"]);
    assert!(
        hook["culprit"].as_str().unwrap().contains(root["culprit"]["process"].as_str().unwrap()),
        "{hook}"
    );
    assert!(hook["text"].as_str().unwrap().starts_with("ROOT CAUSE"), "{hook}");
    let by_command: Value = serde_json::from_slice(&std::fs::read(&out).unwrap()).unwrap();
    assert_eq!(&by_command, hook);
    assert!(
        of("/slack").1["text"]
            .as_str()
            .unwrap()
            .contains(hook["headline"].as_str().unwrap().split(';').next().unwrap())
    );
    assert_eq!(of("/teams").1["attachments"][0]["content"]["type"], "AdaptiveCard");
    assert_eq!(all.len(), 3);
    // What was told stands on the disk.
    assert_eq!(place.notify(&["--once"]).code, 0);
    assert_eq!(got.lock().unwrap().len(), 3, "told twice");
}

#[test]
fn what_is_not_taken_is_tried_again_and_what_is_refused_is_not() {
    let (busy, got) = receiver(&[503, 429, 200]);
    let place = Place::new(&format!("[[notify]]\nto = \"webhook\"\nurl = \"{busy}\"\n"));
    let said = place.notify(&["--once"]);
    assert!(
        said.code == 0 && said.err.contains("HTTP 503") && said.err.contains("tried again in 1 s"),
        "{}",
        said.err
    );
    let bodies: Vec<Value> = got.lock().unwrap().iter().map(|(_, body)| body.clone()).collect();
    assert!(bodies.len() == 3 && bodies[0] == bodies[2], "{bodies:?}");

    let (strict, got) = receiver(&[400]);
    let place = Place::new(&format!("[[notify]]\nto = \"webhook\"\nurl = \"{strict}\"\n"));
    let said = place.notify(&["--once"]);
    assert!(said.code == 0 && said.err.contains("was refused: HTTP 400"), "{}", said.err);
    assert_eq!(got.lock().unwrap().len(), 1);
}

#[test]
fn wrong_configurations_and_receivers_that_are_away_are_named() {
    let place = Place::new("");
    let said = place.notify(&["--test"]);
    assert!(said.code == 2 && said.err.contains("no table [[notify]]"), "{}", said.err);
    place.file("mitra.toml", "[[notify]]\nto = \"webhook\"\nurl = \"http://127.0.0.1:1/\"\n[[notify]]\nto = \"command\"\ncommand = [\"/usr/bin/true\"]\n");
    let said = place.notify(&["--test"]);
    assert_eq!(said.code, 2, "{}", said.err);
    assert!(said.out.contains("webhook  not reached") && said.out.contains("command  taken"), "{}", said.out);
    // A program that others can change is not run, whoever asks for it.
    let own = place.file("page.sh", "#!/bin/sh\n");
    std::fs::set_permissions(&own, std::fs::Permissions::from_mode(0o777)).unwrap();
    place.file("mitra.toml", &format!("[[notify]]\nto = \"command\"\ncommand = [\"{}\"]\n", own.display()));
    let said = place.notify(&["--test"]);
    assert!(
        said.code == 2 && said.out.contains("others than root can change it"),
        "{}{}",
        said.out,
        said.err
    );
    // An address that others could read is not used.
    let secret = place.file("url", "https://127.0.0.1:1/");
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o644)).unwrap();
    place.file("mitra.toml", &format!("[[notify]]\nto = \"slack\"\nurl-file = \"{}\"\n", secret.display()));
    let said = place.notify(&["--test"]);
    assert!(
        said.code == 2 && said.out.contains("others than its owner may read it"),
        "{}{}",
        said.out,
        said.err
    );
}

#[test]
fn messages_are_printed_and_none_is_sent() {
    let place = Place::new("[[notify]]\nto = \"webhook\"\nurl = \"http://127.0.0.1:1/\"\n");
    let said = place.notify(&["--dry-run"]);
    assert_eq!(said.code, 0, "{}", said.err);
    let first: Value = serde_json::from_str(said.out.lines().next().unwrap()).unwrap();
    assert_eq!(first["schema"], "mitra.notify/1");
    assert!(!place.0.path().join("state").exists());
}

/// A program that is ended when dropped.
struct Helper(Child);

impl Drop for Helper {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

fn is_there(program: &str) -> bool {
    let there = Path::new(program).exists();
    if !there {
        println!("skipped: {program} is not installed");
    }
    there
}

#[test]
fn a_real_alertmanager_has_the_alert() {
    let program = "/usr/bin/prometheus-alertmanager";
    if !is_there(program) {
        return;
    }
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("http://127.0.0.1:{port}");
    let place = Place::new(&format!("[[notify]]\nto = \"alertmanager\"\nurl = \"{url}\"\n"));
    let config = place.file("alertmanager.yml", "route:\n  receiver: none\nreceivers:\n- name: none\n");
    let _manager = Helper(
        Command::new(program)
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.path={}", place.0.path().join("data").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .arg("--cluster.listen-address=")
            .stderr(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .unwrap(),
    );
    let ask = || {
        let output =
            Command::new("curl").args(["--silent", &format!("{url}/api/v2/alerts")]).output().ok()?;
        serde_json::from_slice::<Value>(&output.stdout).ok()
    };
    wait_until("alertmanager answers", || ask().is_some());
    let said = place.notify(&["--test"]);
    assert_eq!(said.code, 0, "{}{}", said.out, said.err);
    let mut alerts = Value::Null;
    wait_until("the alert is there", || {
        alerts = ask().unwrap_or_default();
        alerts.as_array().is_some_and(|list| list.len() == 1)
    });
    assert_eq!(alerts[0]["labels"]["alertname"], "MitraTest");
    assert!(
        alerts[0]["annotations"]["summary"].as_str().unwrap().contains("Mitra can reach you"),
        "{alerts}"
    );
    // An incident that is over is taken, and raises no alarm.
    let said = place.notify(&["--once"]);
    assert_eq!((said.code, said.err.as_str()), (0, ""));
}

#[test]
fn a_desktop_shows_a_notice() {
    if !is_there("/usr/bin/notify-send")
        || !is_there("/usr/lib/python3/dist-packages/dbusmock")
        || !is_there("/usr/bin/dbus-run-session")
    {
        return;
    }
    let place = Place::new("[[notify]]\nto = \"desktop\"\n");
    let config = place.0.path().join("mitra.toml");
    // A bus of its own, with a daemon that prints what it is asked to show.
    let script = "/usr/bin/python3 -m dbusmock --session --template notification_daemon > \"$2\" & \
                  for i in $(seq 100); do dbus-send --session --print-reply --dest=org.freedesktop.DBus / \
                  org.freedesktop.DBus.NameHasOwner string:org.freedesktop.Notifications | grep -q true && break; sleep 0.1; done; \
                  \"$0\" notify --test --config \"$1\"; code=$?; kill %1; exit $code";
    let log = place.0.path().join("daemon.log");
    let output = Command::new("dbus-run-session")
        .args(["--", "/bin/bash", "-c", script, MITRA])
        .arg(&config)
        .arg(&log)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let shown = std::fs::read_to_string(&log).unwrap();
    assert!(shown.contains("Notify \"Mitra\"") && shown.contains("Mitra can reach you"), "{shown}");
}

fn record(archive: &str) -> Running {
    let mut recorder =
        Running::start(&mut command(&["record", "--no-bpf", "--interval", "200ms", "--archive", archive]));
    recorder.line();
    recorder
}

/// A recorder of this machine, and `mitra notify` that follows it and tells also what was before.
fn follow(place: &Place) -> (Running, Running) {
    let path = |name: &str| place.0.path().join(name).to_str().unwrap().to_owned();
    let (archive, state, config) = (path("archive"), path("state"), path("mitra.toml"));
    let recorder = record(&archive);
    wait_until("frames are there", || run(&["status", "--archive", &archive]).code == 0);
    std::fs::create_dir(&state).unwrap();
    std::fs::write(
        Path::new(&state).join("told.incidents.json"),
        r#"{"incidents":[],"findings":[],"since":0}"#,
    )
    .unwrap();
    let args = ["notify", "--archive", &archive, "--config", &config, "--state", &state];
    let mut notify = Running::start(&mut command(&args));
    assert!(notify.line().starts_with("telling "));
    (recorder, notify)
}

fn told(got: &Got, condition: &str, device: &str) -> Vec<Value> {
    let got = got.lock().unwrap();
    let all = got.iter().map(|(_, message)| message);
    all.filter(|m| m["condition"] == condition && m["culprit"] == device).cloned().collect()
}

#[test]
fn a_recorder_that_is_killed_is_missed_once_and_welcomed_once() {
    let (url, got) = receiver(&[200]);
    let place = Place::new(&format!("[[notify]]\nto = \"webhook\"\nurl = \"{url}\"\nincidents = false\n"));
    let (recorder, notify) = follow(&place);
    // Whoever has not seen a recorder misses none.
    std::thread::sleep(Duration::from_secs(8));
    recorder.end(Signal::KILL);
    let events = || -> Vec<String> {
        let got = got.lock().unwrap();
        got.iter().map(|(_, message)| message["event"].as_str().unwrap().to_owned()).collect()
    };
    wait_until("it is missed", || !events().is_empty());
    let recorder = record(place.0.path().join("archive").to_str().unwrap());
    wait_until("it is welcomed", || events().len() > 1);
    // More looks say nothing more.
    std::thread::sleep(Duration::from_secs(6));
    assert_eq!(events(), ["recorder_stopped", "recorder_back"]);
    let all: Vec<Value> = got.lock().unwrap().iter().map(|(_, message)| message.clone()).collect();
    let headline = |i: usize| all[i]["headline"].as_str().unwrap();
    assert!(headline(0).starts_with("the recorder has stopped: nothing is recorded since 2"), "{all:?}");
    assert!(headline(1).starts_with("the recorder records again; nothing was recorded for "), "{all:?}");
    assert_eq!((&all[0]["id"], &all[0]["since"]), (&all[1]["id"], &all[1]["since"]));
    notify.end(Signal::TERM);
    recorder.end(Signal::TERM);
}

/// A command that has to succeed, and what it printed.
fn done(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().unwrap();
    assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn a_disk_and_an_interface_that_come_and_go_are_told() {
    let (losetup, ip) = ("/usr/sbin/losetup", "/usr/sbin/ip");
    if !is_there(losetup) || !is_there(ip) {
        return;
    }
    let (url, got) = receiver(&[200]);
    let place = Place::new(&format!(
        "[[notify]]\nto = \"webhook\"\nurl = \"{url}\"\nincidents = false\ndevices = true\nper-hour = 3600\n"
    ));
    let (recorder, notify) = follow(&place);
    let image = place.file("image", "");
    std::fs::File::options().write(true).open(&image).unwrap().set_len(1 << 20).unwrap();
    let disk = done(losetup, &["--find", "--show", image.to_str().unwrap()]);
    let (link, peer) = (format!("mt{}", std::process::id()), format!("mp{}", std::process::id()));
    done(ip, &["link", "add", &link, "type", "veth", "peer", "name", &peer]);
    let disk_name = disk.strip_prefix("/dev/").unwrap();
    let count = |condition: &str| [disk_name, &link, &peer].map(|device| told(&got, condition, device).len());
    wait_until("they are told", || count("device-appeared") == [1, 1, 1]);
    done(losetup, &["--detach", &disk]);
    done(ip, &["link", "del", &link]);
    wait_until("their end is told", || count("device-gone") == [1, 1, 1]);
    assert_eq!(count("device-appeared"), [1, 1, 1]);
    let message = told(&got, "device-gone", &link).remove(0);
    assert_eq!(message["event"], "device");
    assert_eq!(message["headline"], format!("the network interface {link} is gone"));
    notify.end(Signal::TERM);
    recorder.end(Signal::TERM);
    assert!(got.lock().unwrap().iter().all(|(_, message)| message["event"] == "device"));
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn a_real_journald_has_the_fields() {
    if !is_there("/lib/systemd/systemd-journald") || !is_there("/usr/bin/journalctl") {
        return;
    }
    let place = Place::new("[[notify]]\nto = \"journal\"\n");
    // A /run of its own, and namespaces that end with it.
    let script = "mount -t tmpfs tmpfs /run && mkdir -p /run/systemd /run/log/journal && \
                  { /lib/systemd/systemd-journald & } && for i in $(seq 100); do [ -S /run/systemd/journal/socket ] && break; sleep 0.1; done; \
                  \"$0\" notify --test --config \"$1\" >&2; \
                  for i in $(seq 50); do journalctl -D /run/log/journal MITRA_EVENT=test -o json --no-pager | grep . && break; sleep 0.1; done";
    let output = Command::new("unshare")
        .args(["--mount", "--pid", "--fork", "--kill-child", "/bin/bash", "-c", script, MITRA])
        .arg(place.0.path().join("mitra.toml"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let entry: Value = serde_json::from_str(said.lines().next().unwrap_or_default())
        .unwrap_or_else(|error| panic!("{error}: {said}{}", String::from_utf8_lossy(&output.stderr)));
    assert_eq!((&entry["MITRA_CONDITION"], &entry["SYSLOG_IDENTIFIER"]), (&"test".into(), &"mitra".into()));
    assert!(
        entry["MESSAGE"].as_str().unwrap().contains("Mitra can reach you; nothing is wrong\nsince 2"),
        "{entry}"
    );
}
