//! Experiments with made-up workloads below a root of their own, and one with a real setting.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use serde_json::Value;

use crate::harness::{Output, Running, command, finish, is_root, wait_until};

/// A root with one setting, and a file of an experiment.
struct Bench {
    dir: tempfile::TempDir,
}

impl Bench {
    fn new(toml: &str) -> Bench {
        let bench = Bench { dir: tempfile::tempdir().unwrap() };
        fs::create_dir_all(bench.root().join("proc/sys/vm")).unwrap();
        fs::write(bench.setting(), "60\n").unwrap();
        fs::write(bench.file(), toml.replace("SETTING", bench.setting().to_str().unwrap())).unwrap();
        bench
    }

    fn root(&self) -> PathBuf {
        self.dir.path().join("root")
    }

    fn setting(&self) -> PathBuf {
        self.root().join("proc/sys/vm/swappiness")
    }

    fn value(&self) -> String {
        fs::read_to_string(self.setting()).unwrap()
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("run.toml")
    }

    fn out(&self) -> PathBuf {
        self.dir.path().join("out")
    }

    fn command(&self, args: &[&str]) -> std::process::Command {
        let mut command = command(&["experiment", "--root"]);
        command.arg(self.root()).args(args);
        // Of users other than root the state lies there.
        command.env("XDG_STATE_HOME", "/state");
        command
    }

    fn begin(&self, args: &[&str]) -> std::process::Command {
        let mut command = self.command(&["--no-record"]);
        command.arg(self.file()).arg("--dir").arg(self.out()).args(args);
        command
    }

    fn again(&self, args: &[&str]) -> Output {
        finish(self.command(&["--report"]).arg(self.out()).args(args))
    }
}

fn json(output: &Output) -> Value {
    assert_eq!(output.code, 0, "{}", output.err);
    serde_json::from_str(&output.out).unwrap()
}

/// What the setting says is the mean of what the workload measures. It is 2 less and 2 more by turns, in both runs of a
/// round the same: without chance, whatever the order is.
const MEASURE: &str = r#"title = "setting"
question = "which one?"
repetitions = 6
[workload]
command = ["python3", "-c", """
f = open('SETTING.n', 'a+')
f.seek(0)
n = len(f.read())
f.write('x')
print('rate:', float(open('SETTING').read()) + (2 if n // 2 % 2 else -2))
"""]
[reset]
settle = "0s"
[[metric]]
name = "rate"
regex = 'rate: ([0-9.]+)'
unit = "1/s"
better = "higher"
[[variant]]
name = "sixty"
[[variant]]
name = "ninety"
sysctl = { "vm.swappiness" = 90 }
"#;

#[test]
fn a_better_variant_is_named_and_everything_is_as_it_was() {
    let bench = Bench::new(MEASURE);
    let made = json(&finish(&mut bench.begin(&["--json", "--seed", "5"])));
    assert_eq!(made["schema"], "mitra.experiment/1");
    let verdict = made["verdicts"][0].as_str().unwrap();
    assert!(verdict.starts_with("ninety is better than sixty: rate is higher by "), "{verdict}");
    let against = &made["cells"][1]["measured"][0]["against_first"];
    let range = &against["range"];
    assert!(range["low"].as_f64().unwrap() < 50.0 && range["high"].as_f64().unwrap() > 50.0, "{against}");
    assert_eq!((&made["seed"], made["cells"][0]["runs"].as_u64()), (&Value::from(5), Some(6)));
    assert_eq!(bench.value(), "60\n");
    // The same again, from what was kept.
    assert_eq!(json(&bench.again(&["--json"])), made);
    let page = bench.again(&["--format", "html"]).out;
    assert!(page.contains("<svg") && page.contains("ninety is better"), "{page}");
    // One warm-up of each, then rounds in which each variant comes once.
    let about: Value =
        serde_json::from_str(&fs::read_to_string(bench.out().join("experiment.json")).unwrap()).unwrap();
    let order: Vec<(u64, u64)> = about["order"]
        .as_array()
        .unwrap()
        .iter()
        .map(|slot| (slot["round"].as_u64().unwrap(), slot["variant"].as_u64().unwrap()))
        .collect();
    assert_eq!(order.len(), 14);
    for (n, round) in order.chunks(2).enumerate() {
        assert!(round.iter().all(|slot| slot.0 == n as u64) && round[0].1 != round[1].1, "{order:?}");
    }
    assert!(order.chunks(2).any(|r| r[0].1 == 0) && order.chunks(2).any(|r| r[0].1 == 1), "{order:?}");
}

#[test]
fn where_nothing_differs_the_largest_difference_is_told() {
    let bench = Bench::new(&MEASURE.replace("= 90", "= 60"));
    let output = finish(&mut bench.begin(&[]));
    assert!(output.out.contains("no difference of rate larger than "), "{}{}", output.out, output.err);
    let bench = Bench::new(&MEASURE.replace("= 90", "= 60").replace("(2 if n // 2 % 2 else -2)", "0"));
    let output = finish(&mut bench.begin(&[]));
    assert!(output.out.contains("rate did not vary and is the same"), "{}{}", output.out, output.err);
    assert!(output.err.contains("14 runs into"), "{}", output.err);
}

/// The workload waits until the test has seen it.
const WAITING: &str = r#"title = "waits"
repetitions = 1
warm-up = 0
[workload]
command = ["sh", "-c", "while test ! -e SETTING.go; do sleep 0.05; done; echo 1"]
[[metric]]
name = "m"
json = ""
better = "lower"
[[variant]]
name = "a"
sysctl = { "vm.swappiness" = 10 }
setup = ["touch", "SETTING.set-up"]
teardown = ["rm", "-f", "SETTING.set-up"]
file = [{ path = "/etc/new.conf", content = "x" }]
[[variant]]
name = "b"
sysctl = { "vm.swappiness" = 10 }
"#;

fn exists(bench: &Bench, ending: &str) -> bool {
    Path::new(&format!("{}.{ending}", bench.setting().display())).exists()
}

#[test]
fn what_a_killed_one_changed_is_put_back_by_the_next() {
    let bench = Bench::new(WAITING);
    fs::create_dir(bench.root().join("etc")).unwrap();
    let new = bench.root().join("etc/new.conf");
    // By this seed or the other one `a` comes first.
    let seed = (0..).map(|seed: u32| seed.to_string()).find(|seed| {
        let other = tempfile::tempdir().unwrap();
        let mut one = bench.command(&["--no-record", "--seed", seed, "--dir"]);
        let mut running = Running::start(one.arg(other.path()).arg(bench.file()));
        wait_until("a change", || bench.value() == "10");
        wait_until("the run begins", || other.path().join("runs/0000.out").exists());
        let is_a = exists(&bench, "set-up");
        running.signal(Signal::INT);
        _ = running.line();
        assert_eq!(running.wait().0.code(), Some(130));
        is_a
    });
    assert_eq!((bench.value().as_str(), exists(&bench, "set-up"), new.exists()), ("60\n", false, false));
    let running = Running::start(&mut bench.begin(&["--seed", &seed.unwrap()]));
    wait_until("a change", || bench.value() == "10" && exists(&bench, "set-up") && new.exists());
    let second = finish(&mut bench.begin(&[]));
    assert!(second.code == 2 && second.err.contains("another experiment runs"), "{}", second.err);
    let (status, _) = running.end(Signal::KILL);
    assert!(!status.success());
    assert_eq!((bench.value().as_str(), exists(&bench, "set-up"), new.exists()), ("10", true, true));
    fs::write(format!("{}.go", bench.setting().display()), "").unwrap();
    let resumed = finish(bench.command(&["--resume"]).arg(bench.out()));
    assert_eq!(resumed.code, 0, "{}", resumed.err);
    assert!(resumed.err.contains("an experiment was killed (waits, run 1); put back: "), "{}", resumed.err);
    assert!(resumed.err.contains("run 1 of 2") && resumed.err.contains("run 2 of 2"), "{}", resumed.err);
    assert_eq!((bench.value().as_str(), exists(&bench, "set-up"), new.exists()), ("60\n", false, false));
}

#[test]
fn an_interrupted_one_goes_on_where_it_was() {
    let bench = Bench::new(WAITING);
    fs::create_dir(bench.root().join("etc")).unwrap();
    let go = format!("{}.go", bench.setting().display());
    fs::write(&go, "").unwrap();
    let running = Running::start(&mut bench.begin(&["--repetitions", "40"]));
    wait_until("some runs", || {
        fs::read_to_string(bench.out().join("runs.jsonl")).is_ok_and(|runs| runs.lines().count() >= 3)
    });
    let (status, err) = running.end(Signal::TERM);
    assert_eq!(status.code(), Some(130), "{err}");
    assert!(err.contains("go on with: mitra experiment --resume"), "{err}");
    assert_eq!(bench.value(), "60\n");
    let part = bench.again(&[]);
    assert!(part.out.contains("runs are not made yet"), "{}{}", part.out, part.err);
    let made = json(&finish(bench.command(&["--json", "--resume"]).arg(bench.out())));
    assert_eq!(made["cells"][0]["runs"].as_u64(), Some(40));
    let numbers: Vec<u64> = fs::read_to_string(bench.out().join("runs.jsonl"))
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["number"].as_u64().unwrap())
        .collect();
    assert_eq!(numbers, (0..80).collect::<Vec<u64>>());
}

#[test]
fn failures_are_counted_and_named() {
    let toml = MEASURE
        .replace("f = open(", "import sys; sys.exit(3) if open('SETTING').read() == '90' else 0; f = open(");
    let bench = Bench::new(&toml);
    let output = finish(&mut bench.begin(&["--repetitions", "5", "--seed", "1"]));
    assert!(output.out.contains("no run of ninety succeeded"), "{}{}", output.out, output.err);
    assert!(output.out.contains("python3: ended with exit code 3 (5 runs)"), "{}", output.out);
    assert_eq!(bench.value(), "60\n");
    let bench = Bench::new(&MEASURE.replace("rate: (", "speed: ("));
    let output = finish(&mut bench.begin(&[]));
    assert_eq!(output.code, 2);
    assert!(
        output.err.contains("3 runs in a row failed") && output.err.contains("no line of the output matches")
    );
    let bench = Bench::new(&MEASURE.replace("vm.swappiness", "vm.nothing"));
    let output = finish(&mut bench.begin(&[]));
    assert!(output.err.contains("vm.nothing: this kernel has no such setting"), "{}", output.err);
}

/// A load generator whose server refuses everything in one variant, and one request of two hundred in the other.
const REFUSED: &str = r#"title = "answers"
repetitions = 5
warm-up = 0
[workload]
command = ["python3", "-c", """
print('Running 1s test @ http://127.0.0.1:18911/')
print('  1 threads and 5 connections')
print('  816 requests in 1.10s, 414.38KB read')
print('  Non-2xx or 3xx responses:', 816 if open('SETTING').read().strip() == '90' else 4)
print('Requests/sec:    739.02')
print('Transfer/sec:    375.28KB')
"""]
[reset]
settle = "0s"
[[metric]]
name = "rate"
regex = 'Requests/sec: +([0-9.]+)'
unit = "1/s"
better = "higher"
[[variant]]
name = "sixty"
[[variant]]
name = "ninety"
sysctl = { "vm.swappiness" = 90 }
"#;

#[test]
fn a_server_that_refuses_is_not_the_faster_one() {
    let bench = Bench::new(REFUSED);
    let output = finish(&mut bench.begin(&[]));
    for wanted in ["no run of ninety succeeded", "816 answers had another status than 2xx or 3xx (5 runs)"] {
        let words = output.out.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains(wanted), "{}{}", output.out, output.err);
    }
    assert!(!output.out.contains("no run of sixty"), "{}", output.out);
}

#[test]
fn a_file_with_a_mistake_is_refused_with_its_line_and_makes_nothing() {
    let bench = Bench::new(&MEASURE.replace("better = \"higher\"", "better = \"more\""));
    let output = finish(&mut bench.begin(&[]));
    assert_eq!(output.code, 2);
    assert!(output.err.contains("run.toml:18:10: unknown variant `more`"), "{}", output.err);
    assert!(!bench.out().exists() && output.out.is_empty());
    let bench = Bench::new(MEASURE);
    fs::create_dir(bench.out()).unwrap();
    fs::write(bench.out().join("mine"), "").unwrap();
    let output = finish(&mut bench.begin(&[]));
    assert!(output.code == 2 && output.err.contains("is not empty"), "{}", output.err);
}

#[test]
fn without_root_what_needs_it_is_named() {
    if is_root() {
        println!("skipped: this is root");
        return;
    }
    let bench = Bench::new(MEASURE);
    let output = finish(command(&["experiment"]).arg(bench.file()));
    assert!(
        output.code == 2 && output.err.contains("this needs root: the setting vm.swappiness"),
        "{}",
        output.err
    );
}

#[test]
fn root_starts_nothing_that_others_can_change() {
    if !is_root() {
        println!("skipped: only root refuses it");
        return;
    }
    let mode = |path: &Path, mode| {
        fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    };
    let bench = Bench::new(MEASURE);
    mode(&bench.file(), 0o666);
    let output = finish(&mut bench.begin(&[]));
    assert!(
        output.code == 2 && output.err.contains("run.toml can be changed by others than root"),
        "{}",
        output.err
    );
    mode(&bench.file(), 0o644);
    mode(bench.dir.path(), 0o777);
    let output = finish(&mut bench.begin(&[]));
    assert!(
        output.code == 2 && output.err.contains("root would start programs from there"),
        "{}",
        output.err
    );
    mode(bench.dir.path(), 0o700);
    let program = bench.dir.path().join("program");
    fs::write(&program, "#!/bin/sh\necho rate: 1\n").unwrap();
    mode(&program, 0o777);
    let toml = MEASURE.replace("\"python3\", \"-c\"", "\"{here}/program\"");
    fs::write(bench.file(), toml).unwrap();
    let output = finish(&mut bench.begin(&[]));
    assert!(output.code == 2 && output.err.contains("so root does not start it"), "{}", output.err);
    assert_eq!(bench.value(), "60\n");
}

#[test]
fn shipped_experiments_have_no_mistake() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/experiments");
    let mut count = 0;
    for entry in
        fs::read_dir(dir).unwrap().flatten().filter(|e| e.path().extension().is_some_and(|e| e == "toml"))
    {
        count += 1;
        let root = tempfile::tempdir().unwrap();
        // Who owns the sources does not matter here.
        let file = root.path().join("run.toml");
        fs::write(&file, fs::read(entry.path()).unwrap()).unwrap();
        // The folder cannot be made: the file is read, and nothing runs.
        let mut one = command(&["experiment", "--no-record", "--root"]);
        let output = finish(one.arg(root.path()).arg(file).arg("--dir").arg("/dev/null/nowhere"));
        assert_eq!(output.code, 2);
        assert!(
            output.err.contains("cannot create /dev/null/nowhere"),
            "{}: {}",
            entry.path().display(),
            output.err
        );
    }
    assert_eq!(count, 6);
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn a_real_setting_is_changed_recorded_and_put_back() {
    let setting = Path::new("/proc/sys/vm/swappiness");
    let before = fs::read_to_string(setting).unwrap();
    let toml = r#"title = "real"
repetitions = 5
warm-up = 0
[workload]
command = ["sh", "-c", "timeout 3 sh -c 'while :; do :; done'; cat /proc/sys/vm/swappiness"]
[reset]
drop-caches = true
[[metric]]
name = "swappiness"
json = ""
better = "higher"
[[variant]]
name = "low"
sysctl = { "vm.swappiness" = 11 }
[[variant]]
name = "high"
sysctl = { "vm.swappiness" = 99 }
"#;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("real.toml");
    fs::write(&file, toml).unwrap();
    let out = dir.path().join("out");
    let output = finish(command(&["experiment", "--json"]).arg(&file).arg("--dir").arg(&out));
    assert_eq!(fs::read_to_string(setting).unwrap(), before);
    let made = json(&output);
    let cells = made["cells"].as_array().unwrap();
    let means: Vec<f64> = cells.iter().map(|cell| cell["measured"][0]["mean"].as_f64().unwrap()).collect();
    assert_eq!(means, [11.0, 99.0]);
    for cell in cells {
        assert_eq!(cell["recorded"].as_u64(), Some(5), "{cell}");
    }
    let pair = &cells[1]["machine"];
    let compared = ["unsure", "small", "same"].map(|n| pair[n].as_u64().unwrap()).iter().sum::<u64>();
    assert!(compared >= 10, "{pair}");
}
