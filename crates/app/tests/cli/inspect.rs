//! Looks into a running process.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use rustix::process::Signal;

use crate::harness::{Running, command, finish, good, run};

/// A Python program that holds strings of C and of its own, and adds more for each line that it is sent.
struct Program(Child, BufReader<std::process::ChildStdout>);

const SCRIPT: &str = "
import ctypes, sys
strdup = ctypes.CDLL(None).strdup
cache = {}
def leak(n):
    for i in range(n):
        strdup(b'context_of_a_request')
        cache[len(cache)] = 'value-%d' % i
    strdup(b'password=hunter2-hunter2-hunter2')
keep = [b'password=hunter2-hunter2-hunter2' + bytes(i % 3) for i in range(20000)]
leak(50000)
print('ready', flush=True)
for line in sys.stdin:
    leak(int(line))
    print('done', flush=True)
";

impl Program {
    fn start() -> Option<Self> {
        let spawned = Command::new("/usr/bin/python3")
            .args(["-c", SCRIPT])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let Ok(mut child) = spawned else {
            println!("skipped: there is no /usr/bin/python3");
            return None;
        };
        let out = BufReader::new(child.stdout.take()?);
        let mut program = Program(child, out);
        program.hears("ready");
        Some(program)
    }

    fn hears(&mut self, wanted: &str) {
        let mut line = String::new();
        self.1.read_line(&mut line).unwrap();
        assert_eq!(line.trim(), wanted);
    }

    fn leaks(&mut self, count: u32) {
        use std::io::Write;
        writeln!(self.0.stdin.as_mut().unwrap(), "{count}").unwrap();
        self.hears("done");
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended already.
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

#[test]
fn memory_is_told_by_kind() {
    let Some(program) = Program::start() else { return };
    let text = good(&["inspect", "memory", &program.pid(), "--archive", "/nonexistent/archive"]);
    for wanted in
        ["in memory", "heap", "code", "MAPPING", "smaps (--smaps) takes about", "growing is not known"]
    {
        assert!(text.contains(wanted), "{wanted:?} is not in\n{text}");
    }
    let json: Value = serde_json::from_str(&good(&["inspect", "memory", &program.pid(), "--json"])).unwrap();
    assert_eq!(json["schema"], "mitra.memory/1");
    let rss = json["composition"]["totals"]["rss_bytes"].as_u64().unwrap();
    assert!(rss > 5 << 20);
    let smaps = run(&["inspect", "memory", &program.pid(), "--smaps", "--json"]);
    assert_eq!(smaps.code, 0, "{}", smaps.err);
    assert!(smaps.err.contains("takes about"), "the time is said first: {}", smaps.err);
    let json: Value = serde_json::from_str(&smaps.out).unwrap();
    assert_eq!(json["composition"]["how"], "smaps");
}

#[test]
fn what_strings_say_is_only_told_when_asked_for_and_never_secrets() {
    let Some(program) = Program::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let (hidden, shown) = (dir.path().join("hidden.json"), dir.path().join("shown.json"));
    let heap = |more: &[&str]| good(&[&["inspect", "heap", &program.pid(), "--rows", "50"], more].concat());
    let text = heap(&["--save", hidden.to_str().unwrap()]);
    assert!(!text.contains("context_of_a_request") && text.contains("--strings shows it"), "{text}");
    let saved = std::fs::read_to_string(&hidden).unwrap();
    assert!(!saved.contains("context_of_a_request") && !saved.contains("hunter2"));
    assert_eq!(std::fs::metadata(&hidden).unwrap().permissions().mode() & 0o777, 0o600);
    let text = heap(&["--strings", "--samples", "--save", shown.to_str().unwrap()]);
    assert!(text.contains("context_of_a_request"), "{text}");
    let saved = std::fs::read_to_string(&shown).unwrap();
    for said in [text, saved] {
        assert!(!said.contains("hunter2"), "a secret is shown: {said}");
    }
    let again = run(&["inspect", "heap", &program.pid(), "--save", hidden.to_str().unwrap()]);
    assert!(again.code == 2 && again.err.contains("--force"), "{}: {}", again.code, again.err);
}

#[test]
fn two_looks_say_what_grew() {
    let Some(mut program) = Program::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let paths: Vec<String> =
        (0..3).map(|i| dir.path().join(format!("{i}.json")).display().to_string()).collect();
    let look = |program: &Program, path: &str| {
        good(&["inspect", "heap", &program.pid(), "--strings", "--save", path]);
    };
    look(&program, &paths[0]);
    program.leaks(200_000);
    look(&program, &paths[1]);
    let text = good(&["inspect", "diff", &paths[0], &paths[1]]);
    assert!(text.contains("context_of_a_request") && text.contains("GREW ALIKE"), "{text}");
    program.leaks(200_000);
    look(&program, &paths[2]);
    let json = good(&["inspect", "diff", &paths[0], &paths[1], &paths[2], "--json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    let rows = json["diff"]["rows"].as_array().unwrap();
    let string = rows.iter().find(|row| row["name"] == "context_of_a_request").unwrap();
    let grown = string["growth_count"].as_i64().unwrap();
    assert!((grown - 400_000).abs() < 4_000, "{string}");
    assert_eq!(json["diff"]["is_same_process"], true);
    assert!(json["verdict"]["kind"].is_string());
}

/// Waits until the one that looks hears Ctrl-C, which it gets from the one that was started.
fn hears_signals(mitra: &Running) {
    let children = format!("/proc/{0}/task/{0}/children", mitra.pid());
    for _ in 0..10_000 {
        let child = std::fs::read_to_string(&children).unwrap();
        let text = std::fs::read_to_string(format!("/proc/{}/status", child.trim())).unwrap_or_default();
        let caught = text.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or("0");
        // SIGINT is the second.
        if u64::from_str_radix(caught.trim(), 16).unwrap() & 2 != 0 {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    panic!("it does not hear signals");
}

#[test]
#[ignore = "needs a quiet machine: make test-kernel"]
fn a_look_that_is_interrupted_ends_soon_and_says_so() {
    let Some(mut program) = Program::start() else { return };
    program.leaks(1_000_000);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("look.json");
    let pid = program.pid();
    let args = ["inspect", "heap", &pid, "--holders", "dict", "--save", path.to_str().unwrap()];
    let mut mitra = Running::start(&mut command(&args));
    hears_signals(&mitra);
    mitra.signal(Signal::INT);
    let began = std::time::Instant::now();
    let head = mitra.line();
    assert!(head.contains(&pid), "what was found until then is shown: {head}");
    let (status, err) = mitra.wait();
    assert_eq!((status.code(), err.as_str()), (Some(130), "mitra: interrupted\n"));
    assert!(began.elapsed().as_secs() < 5 && !path.exists(), "{:?}", began.elapsed());
    // It watches until somebody ends it, unless it was said how often.
    for (more, code) in [(&[][..], 0), (&["--count", "2"], 130)] {
        let args =
            [&["inspect", "heap", &pid, "--skip", "strings", "--skip", "python", "--watch", "1h"], more]
                .concat();
        let mitra = Running::start(&mut command(&args));
        hears_signals(&mitra);
        let (status, err) = mitra.end(Signal::INT);
        assert_eq!(status.code(), Some(code), "{more:?}: {err}");
    }
}

#[test]
fn what_is_wrong_is_told() {
    let none = run(&["inspect", "memory", "4194304"]);
    assert!(none.code == 2 && none.err.contains("4194304"), "{}: {}", none.code, none.err);
    let wrong: &[&[&str]] = &[
        &["inspect"],
        &["inspect", "memory"],
        &["inspect", "memory", "0"],
        &["inspect", "heap", "x"],
        &["inspect", "heap", "1", "--watch", "soon"],
        &["inspect", "diff", "one.json"],
        &["inspect", "diff", "/nonexistent/a.json", "/nonexistent/b.json"],
        &["inspect", "resolver"],
        &["inspect", "resolver", "10.0.0.1"],
        &["inspect", "resolver", "two words"],
        &["inspect", "resolver", "a..example"],
        &["inspect", "resolver", "a.example", "--root", "/nonexistent", "--no-queries"],
    ];
    for args in wrong {
        let output = run(args);
        assert_eq!(output.code, 2, "{args:?}: {}{}", output.out, output.err);
    }
    let dir = tempfile::tempdir().unwrap();
    let junk = dir.path().join("junk");
    std::fs::write(&junk, b"\x7fELF\0\0").unwrap();
    let junk = junk.to_str().unwrap();
    let output = run(&["inspect", "diff", junk, junk]);
    assert!(output.code == 2 && output.err.contains("no saved snapshot"), "{}: {}", output.code, output.err);
}

#[test]
fn resolvers_are_followed_without_a_query() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().to_str().unwrap();
    std::fs::create_dir(dir.path().join("etc")).unwrap();
    let lines = "nameserver 192.0.2.1\nnameserver 192.0.2.2\nsearch one.example two.example\noptions ndots:5 timeout:3\n";
    std::fs::write(dir.path().join("etc/resolv.conf"), lines).unwrap();
    std::fs::write(dir.path().join("etc/nsswitch.conf"), "hosts: files mdns4_minimal dns\n").unwrap();
    let args = ["inspect", "resolver", "db.internal", "--root", root, "--no-queries"];
    let mut plain = command(&args);
    for variable in ["LOCALDOMAIN", "RES_OPTIONS", "HOSTALIASES", "GODEBUG"] {
        plain.env_remove(variable);
    }
    let text = finish(&mut plain);
    assert_eq!(text.code, 0, "{}", text.err);
    for wanted in [
        "nothing was asked",
        "db.internal.two.example",
        "getent ahosts: the same as getaddrinfo",
        "Go with cgo: the same as Go (uses Go's own resolver)",
        "names mdns4_minimal, whose library is not installed",
        "end the name with a dot, or set ndots:1",
        "if the first name server does not answer, getaddrinfo takes 9.0 s: with options timeout:1 it takes 3.0 s",
    ] {
        let words = |text: &str| text.split_ascii_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words(&text.out).contains(wanted), "{wanted}: {}", text.out);
    }
    plain.arg("--json").env("LOCALDOMAIN", "here");
    let json: Value = serde_json::from_str(&finish(&mut plain).out).unwrap();
    assert_eq!(json["schema"], "mitra.resolver/1");
    let lookups = json["report"]["lookups"].as_array().unwrap();
    let names = |lookup: &Value| {
        let steps = lookup["steps"].as_array().unwrap().iter().filter(|step| step["step"] == "query");
        steps
            .map(|step| format!("{} {}", step["name"], step["kind"]))
            .collect::<Vec<_>>()
            .join(", ")
            .replace('"', "")
    };
    // The variables of this process are not those of another root.
    let domains = ["db.internal.one.example", "db.internal.two.example", "db.internal"];
    let plain = domains.map(|name| format!("{name} A, {name} AAAA")).join(", ");
    assert_eq!((lookups[0]["caller"].as_str(), names(&lookups[0])), (Some("getaddrinfo"), plain));
    assert_eq!(json["report"]["asked"].as_array().map(Vec::len), Some(0));
}
