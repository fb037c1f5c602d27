//! `mitra dbus` on a bus of its own, asked by busctl and heard by dbus-monitor.

use std::io::{BufRead, BufReader};
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
    let _mitra = bus.mitra(&recording);
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
            ".Explain method ss",
            ".Incident signal ssss",
            ".Incidents method ss",
            ".Status method -",
            ".Version property s"
        ]
    );
    let shipped = include_str!("../../../../packaging/dbus/org.mitra.Mitra1.xml");
    for name in ["Explain", "Incidents", "Status", "Incident", "Version"] {
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
