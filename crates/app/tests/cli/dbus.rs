//! `mitra dbus` on a bus of its own, asked by busctl and heard by dbus-monitor.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::harness::{Running, command, run, wait_until};
use crate::serve::recording;

/// A bus, which ends when dropped.
struct Bus {
    daemon: Child,
    address: String,
}

impl Drop for Bus {
    fn drop(&mut self) {
        _ = self.daemon.kill();
        _ = self.daemon.wait();
    }
}

impl Bus {
    /// `None` without the programs.
    fn start() -> Option<Bus> {
        for tool in ["dbus-daemon", "dbus-monitor", "busctl"] {
            if Command::new(tool).arg("--version").output().is_err() {
                println!("skipped: {tool} is not installed");
                return None;
            }
        }
        let mut daemon = Command::new("dbus-daemon")
            .args(["--session", "--nofork", "--nopidfile", "--print-address=1"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut address = String::new();
        BufReader::new(daemon.stdout.take().unwrap()).read_line(&mut address).unwrap();
        Some(Bus { daemon, address: address.trim().to_owned() })
    }

    /// `mitra dbus` of a recording, as soon as it has its name.
    fn mitra(&self, archive: &str) -> Running {
        let mut command = command(&["dbus", "--archive", archive]);
        let mut running = Running::start(command.env("DBUS_SYSTEM_BUS_ADDRESS", &self.address));
        assert_eq!(running.line().trim(), "org.mitra.Mitra1");
        running
    }

    fn busctl(&self, words: &[&str]) -> (bool, String) {
        let address = format!("--address={}", self.address);
        let output = Command::new("busctl").args([&address, "--json=short"]).args(words).output().unwrap();
        let text = if output.status.success() { output.stdout } else { output.stderr };
        (output.status.success(), String::from_utf8(text).unwrap())
    }

    fn call(&self, method: &[&str]) -> Value {
        let (is_good, said) = self.busctl(&[&["call", NAME, PATH, NAME], method].concat());
        assert!(is_good, "{method:?}: {said}");
        let answer: Value = serde_json::from_str(&said).unwrap();
        serde_json::from_str(answer["data"][0].as_str().unwrap()).unwrap()
    }
}

const NAME: &str = "org.mitra.Mitra1";
const PATH: &str = "/org/mitra/Mitra1";

#[test]
fn busctl_gets_what_the_commands_say() {
    let Some(bus) = Bus::start() else { return };
    let recording = recording();
    let mitra = bus.mitra(&recording);
    let own = std::fs::read_to_string(format!("/proc/{}/status", mitra.pid())).unwrap();
    let gone = ["CapEff:\t0000000000000000\n", "NoNewPrivs:\t1\n", "Seccomp:\t2\n"];
    assert!(gone.iter().all(|line| own.contains(line)), "{own}");
    let status = bus.call(&["Status"]);
    assert_eq!(status["schema"], "mitra.recording/1");
    let told: Value =
        serde_json::from_str(&run(&["explain", "--archive", &recording, "--json"]).out).unwrap();
    let report = bus.call(&["Explain", "ss", "", ""]);
    assert_eq!(report["incidents"], told["incidents"]);
    let list = bus.call(&["Incidents", "ss", status["since"].as_str().unwrap(), ""]);
    assert_eq!(list["incidents"][0]["root"]["id"], told["incidents"][0]["root_cause"]["condition"]);
    let (is_good, said) = bus.busctl(&["call", NAME, PATH, NAME, "Incidents", "ss", "teatime", ""]);
    assert!(!is_good && said.contains("since: want RFC 3339"), "{said}");
    let (_, version) = bus.busctl(&["get-property", NAME, PATH, NAME, "Version"]);
    assert!(version.contains(env!("CARGO_PKG_VERSION")), "{version}");
    let second = run_second(&bus, &recording);
    assert!(second.contains("cannot be called org.mitra.Mitra1"), "{second}");
}

fn run_second(bus: &Bus, archive: &str) -> String {
    let mut command = command(&["dbus", "--archive", archive]);
    let output = command.env("DBUS_SYSTEM_BUS_ADDRESS", &bus.address).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn the_interface_is_the_one_that_is_shipped() {
    let Some(bus) = Bus::start() else { return };
    let _mitra = bus.mitra(&recording());
    let members = |lines: &str, at: usize| {
        let of = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        lines
            .lines()
            .map(of)
            .filter(|words| words.len() > at)
            .map(|words| words[..=at].join(" "))
            .collect::<Vec<_>>()
    };
    let address = format!("--address={}", bus.address);
    let output = Command::new("busctl").args([&address, "introspect", NAME, PATH, NAME]).output().unwrap();
    let mut real = members(&String::from_utf8(output.stdout).unwrap(), 2);
    real.retain(|line| line.starts_with('.'));
    real.sort();
    assert_eq!(
        real,
        [
            ".Arm method sud",
            ".Explain method ss",
            ".Incident signal ssss",
            ".Incidents method ss",
            ".Status method -",
            ".Version property s"
        ]
    );
    let shipped = include_str!("../../../../packaging/dbus/org.mitra.Mitra1.xml");
    for name in ["Arm", "Explain", "Incidents", "Status", "Incident", "Version"] {
        assert!(shipped.contains(&format!("name=\"{name}\"")), "{name}");
    }
}

#[test]
fn an_incident_that_goes_on_is_signalled() {
    let Some(bus) = Bus::start() else { return };
    let mut monitor = Command::new("dbus-monitor")
        .args(["--address", &bus.address, &format!("type='signal',interface='{NAME}'")])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut heard = BufReader::new(monitor.stdout.take().unwrap());
    let mut line = String::new();
    // It says that it listens by the signal of its own name.
    heard.read_line(&mut line).unwrap();
    let going_on = going_on();
    let _mitra = bus.mitra(&going_on);
    let mut all = String::new();
    wait_until("a signal", || {
        let mut line = String::new();
        heard.read_line(&mut line).unwrap();
        all.push_str(&line);
        // The bus has signals, too.
        let ours = all.split_once("member=Incident");
        ours.is_some_and(|(_, strings)| strings.matches("string \"").count() >= 4)
    });
    _ = monitor.kill();
    _ = monitor.wait();
    assert!(all.contains("string \"begun\"") && all.contains("string \"cpu-quota-throttled\""), "{all}");
}

/// A recording that ends while its incident goes on.
fn going_on() -> String {
    recording().replace(crate::serve::RECORDING, "cpu-quota.loud.101")
}

/// Its own configuration: users other than this one are let in.
const SYSTEM_LIKE: &str = "<busconfig><type>system</type><listen>unix:path=PATH</listen><policy context='default'><allow user='*'/><allow own='*'/>\
     <allow send_destination='*' eavesdrop='true'/><allow eavesdrop='true'/></policy></busconfig>";

#[test]
#[ignore = "needs root: make test-kernel"]
fn another_user_gets_what_polkit_lets() {
    let there = [
        "/usr/bin/dbus-daemon",
        "/usr/bin/busctl",
        "/usr/bin/setpriv",
        "/usr/lib/python3/dist-packages/dbusmock",
    ];
    if let Some(missing) = there.into_iter().find(|path| !std::path::Path::new(path).exists()) {
        println!("skipped: {missing} is not installed");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let (socket, config) = (dir.path().join("bus"), dir.path().join("bus.conf"));
    std::fs::write(&config, SYSTEM_LIKE.replace("PATH", socket.to_str().unwrap())).unwrap();
    let daemon = Command::new("dbus-daemon")
        .arg(format!("--config-file={}", config.display()))
        .args(["--nofork", "--nopidfile"])
        .spawn()
        .unwrap();
    let bus = Bus { daemon, address: format!("unix:path={}", socket.display()) };
    wait_until("the bus", || socket.exists());
    let mut polkit = Command::new("/usr/bin/python3")
        .args(["-m", "dbusmock", "--system", "--template", "polkitd"])
        .env("DBUS_SYSTEM_BUS_ADDRESS", &bus.address)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    // A folder that others cannot enter.
    let archive = dir.path().join("archive");
    std::fs::create_dir(&archive).unwrap();
    for file in std::fs::read_dir(recording()).unwrap().flatten() {
        std::fs::copy(file.path(), archive.join(file.file_name())).unwrap();
    }
    std::fs::set_permissions(&archive, std::fs::Permissions::from_mode(0o700)).unwrap();
    let _mitra = bus.mitra(archive.to_str().unwrap());
    let as_nobody = |words: &[&str]| {
        let output = Command::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups", "busctl"])
            .arg(format!("--address={}", bus.address))
            .args(words)
            .output()
            .unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let ask = ["call", NAME, PATH, NAME, "Status"];
    let authority = "/org/freedesktop/PolicyKit1/Authority";
    let mock =
        ["call", "org.freedesktop.PolicyKit1", authority, "org.freedesktop.DBus.Mock", "AllowUnknown", "b"];
    // busctl has its own words for this error.
    let denied = (false, "Call failed: Access denied\n".to_owned());
    assert_eq!(as_nobody(&ask), denied, "polkit is not there");
    wait_until("polkit answers", || bus.busctl(&[&mock[..], &["false"]].concat()).0);
    assert_eq!(as_nobody(&ask), denied);
    assert_eq!(bus.call(&["Status"])["schema"], "mitra.recording/1", "root");
    assert!(bus.busctl(&[&mock[..], &["true"]].concat()).0);
    assert_eq!(as_nobody(&ask), (true, String::new()));
    // Who may read may not have probes armed.
    assert!(bus.busctl(&[&mock[..], &["false"]].concat()).0);
    let mut lets = mock;
    lets[4] = "SetAllowed";
    lets[5] = "as";
    assert!(bus.busctl(&[&lets[..], &["1", "org.mitra.Mitra1.read"]].concat()).0);
    assert_eq!(as_nobody(&ask), (true, String::new()));
    let arm = ["call", NAME, PATH, NAME, "Arm", "sud", "oncpu", "0", "2"];
    assert_eq!(as_nobody(&arm), denied);
    let (is_good, said) = bus.busctl(&arm);
    assert!(!is_good && said.contains("asks no recorder for probes"), "root: {said}");
    _ = polkit.kill();
    _ = polkit.wait();
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn a_recorder_on_the_bus_arms_a_probe() {
    let Some(bus) = Bus::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let (archive, config) = (dir.path().join("archive"), dir.path().join("mitra.toml"));
    std::fs::write(&config, "[escalation]\nbuiltin = false\n[captures]\nask = true\n").unwrap();
    let mut command = command(&["record", "--dbus", "--archive"]);
    command.arg(&archive).arg("--config").arg(&config).env("DBUS_SYSTEM_BUS_ADDRESS", &bus.address);
    let mut recorder = Running::start(&mut command);
    while recorder.line().trim() != NAME {}
    let arm = |words: &[&str]| bus.busctl(&[&["call", NAME, PATH, NAME, "Arm", "sud"], words].concat());
    let (is_good, said) = arm(&["heap", "1", "2"]);
    if said.ends_with("asked for: \n") {
        println!("skipped: this kernel has no probes");
        return;
    }
    assert!(!is_good && said.contains("no such probe can be asked for"), "{said}");
    let own = std::process::id().to_string();
    let (is_good, said) = arm(&["oncpu", &own, "31"]);
    assert!(!is_good && said.contains("want 1 to 30 seconds"), "{said}");
    let (is_good, said) = arm(&["oncpu", &own, "2"]);
    assert!(is_good, "{said}");
    let captures = archive.join("captures");
    wait_until("the capture is there", || {
        std::fs::read_dir(&captures).is_ok_and(|mut files| files.next().is_some())
    });
    recorder.end(rustix::process::Signal::TERM);
    let reader = mitra_archive::Reader::open(&archive).unwrap();
    let events = reader.events(mitra_model::Span::ALL).unwrap();
    let who = format!("asked for by user {}: armed", rustix::process::getuid().as_raw());
    assert!(events.iter().any(|event| format!("{:?}", event.kind).contains(&who)), "{events:?}");
}
