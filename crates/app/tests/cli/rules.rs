//! Rules: the file, what they would have done in a recording, and a recorder that acts.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use mitra_archive::{Options, Writer};
use mitra_model::{Entity, Frame, HostInfo, Key, Stamp, Strings, column};
use rustix::process::Signal;
use serde_json::Value;

use crate::harness::{Running, archive, command, frames, good, is_root, run, wait_for_frames, wait_until};

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&good(args)).unwrap()
}

fn write(dir: &Path, text: &str) -> String {
    let file = dir.join("mitra.toml");
    std::fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}

#[test]
fn the_example_of_the_package_is_right_as_it_is_and_with_its_rules() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/mitra.toml");
    good(&["rules", "check", example.to_str().unwrap()]);
    // The rules at its end are comments; lines of prose begin with two signs there.
    let text = std::fs::read_to_string(&example).unwrap();
    let at = text.find("# [[rule]]").unwrap();
    let rules: String =
        text[at..].lines().map(|line| format!("{}\n", line.trim_start_matches("# "))).collect();
    let rules: String = rules
        .lines()
        .filter(|l| l.starts_with("[[") || l.contains(" = "))
        .map(|l| format!("{l}\n"))
        .collect();
    let dir = tempfile::tempdir().unwrap();
    // The other way to say whose process is meant is shown beside the first.
    let rules = rules.replacen("pid-of = \"sum(task.system_time) by pid\"\n", "", 1);
    let file = write(dir.path(), &format!("{}{rules}", &text[..at]));
    let said = good(&["rules", "check", &file]);
    assert!(said.contains("3 rules of its own"), "{said}");
}

#[test]
fn a_mistake_has_a_line_and_a_caret() {
    let dir = tempfile::tempdir().unwrap();
    let file = write(dir.path(), "[[rule]]\nname = \"a\"\nwhen = 'sys.fork > 500/s'\n");
    for args in [
        vec!["rules", "check", &file],
        vec!["rules", "list", "--config", &file],
        vec!["rules", "test", "--archive", archive(), "--config", &file],
        vec!["record", "--no-bpf", "--archive", "/nonexistent/x", "--config", &file],
    ] {
        let said = run(&args);
        assert_eq!(said.code, 2, "{args:?} {}", said.err);
        assert!(said.err.contains("mitra.toml:3:9: no metric is called sys.fork"), "{}", said.err);
        assert!(said.err.contains("\n          ^^^^^^^^\n"), "{}", said.err);
    }
    let said = run(&["rules", "test", "--archive", archive(), "--when", "mem.free > "]);
    assert_eq!(said.code, 2);
    assert!(said.err.contains("ends here"), "{}", said.err);
    assert_eq!(run(&["rules", "list", "no-such-rule"]).code, 2);
}

#[test]
fn the_list_has_the_built_in_rules() {
    let list = json(&["rules", "list", "--json"]);
    let fork = list.as_array().unwrap().iter().find(|rule| rule["name"] == "fork-rate").unwrap();
    assert_eq!((fork["builtin"].as_bool(), &fork["suspects"]), (Some(true), &Value::from("fork-storm")));
    assert!(good(&["rules", "list"]).contains("sys.forks > 300/s for 3s"));
    assert!(good(&["rules", "list", "fork-rate"]).contains("because"));
}

#[test]
fn what_would_have_been_is_told_and_nothing_is_done() {
    let dir = tempfile::tempdir().unwrap();
    let mark = dir.path().join("mark");
    let config = format!(
        "[[rule]]\nname = \"always\"\nwhen = 'mem.free > 0 for 1s'\narm = [\"oncpu\"]\n\
         command = [\"/bin/touch\", \"{}\"]\n\n\
         [[rule]]\nname = \"never\"\nwhen = 'mem.free > 1000TiB'\n\n\
         [[rule]]\nname = \"who\"\nwhen = 'task.threads > 0'\npid-of = \"culprit\"\ncommand = [\"/bin/echo\", \"{{pid}}\"]\n\n\
         [[rule]]\nname = \"unknown\"\nwhen = 'disk.io_time{{nodisk}} > 0'\n",
        mark.display()
    );
    let file = write(dir.path(), &config);
    let test = json(&["rules", "test", "--archive", archive(), "--config", &file, "--json"]);
    let fired = test["fired"].as_array().unwrap();
    let of = |rule: &str| fired.iter().filter(|f| f["rule"] == rule).collect::<Vec<_>>();
    let always = of("always");
    assert_eq!(always.len(), 1, "{test}");
    assert!(always[0]["held_s"].as_f64().unwrap() >= 1.0);
    assert!(always[0]["values"]["mem.free"].as_f64().unwrap() > 1e6);
    assert_eq!(always[0]["acts"].as_array().unwrap().len(), 1, "it rests after it has acted");
    assert_eq!(always[0]["arm"][0], "oncpu");
    assert!(of("never").is_empty());
    let who = of("who")[0];
    assert_eq!(who["command"][1], who["pid"].to_string());
    assert!(test["cannot_tell"].to_string().contains("disk.io_time"), "{test}");
    assert!(!mark.exists(), "a test runs nothing");
    let one =
        json(&["rules", "test", "--archive", archive(), "--config", &file, "--rule", "never", "--json"]);
    assert_eq!(one["rules"].as_array().unwrap().len(), 1);
    let text = good(&["rules", "test", "--archive", archive(), "--config", &file]);
    assert!(text.contains("would have armed oncpu for 3 s, and run /bin/touch"), "{text}");
    let none = good(&["rules", "test", "--archive", archive(), "--when", "sys.load1 > 1e6"]);
    assert!(none.contains("the rule never held"), "{none}");
}

#[test]
fn what_the_file_forbids_would_not_have_been_done() {
    let dir = tempfile::tempdir().unwrap();
    let rules = "[[rule]]\nname = \"always\"\nwhen = 'mem.free > 0'\narm = [\"oncpu\"]\nseconds = 3\n\
                 command = [\"/bin/true\"]\n";
    let test = |escalation: &str| {
        let file = write(dir.path(), &format!("[escalation]\n{escalation}\n{rules}"));
        let args = ["rules", "test", "--archive", archive(), "--config", &file, "--rule", "always"];
        (json(&[&args[..], &["--json"]].concat())["fired"][0].clone(), good(&args))
    };
    let (fired, text) = test("arm = false");
    assert_eq!((&fired["arm"], &fired["command"]), (&serde_json::json!([]), &Value::Null), "{fired}");
    assert!(text.contains("nothing started") && !text.contains("/bin/true"), "{text}");
    // Probes and commands each have limits of their own.
    let (fired, text) = test("seconds-per-hour = 0");
    assert_eq!(
        (&fired["arms"], fired["runs"].as_array().unwrap().len()),
        (&serde_json::json!([]), 1),
        "{fired}"
    );
    assert!(text.contains("would have run /bin/true"), "{text}");
    let file = write(dir.path(), &format!("[escalation]\nseconds-per-hour = 2\n{rules}"));
    let said = run(&["rules", "check", &file]);
    assert_eq!(said.code, 2);
    assert!(said.err.contains("mitra.toml:7:11: its probes are armed for 3 s"), "{}", said.err);
}

#[test]
fn receivers_of_messages_are_checked_too() {
    let dir = tempfile::tempdir().unwrap();
    let file = write(dir.path(), "[escalation]\narm = true\n[[notify]]\nto = \"journal\"\nper-hour = 0\n");
    let said = run(&["rules", "check", &file]);
    assert_eq!(said.code, 2, "{}", said.err);
    assert!(
        said.err.contains("mitra.toml:5:12: wanted 1 to 3600\n  per-hour = 0\n             ^"),
        "{}",
        said.err
    );
    let file = write(dir.path(), "[[notify]]\nto = \"journal\"\nperhour = 3\n");
    let said = run(&["rules", "check", &file]);
    assert!(
        said.code == 2 && said.err.contains("mitra.toml:3:1: unknown field `perhour`, expected one of"),
        "{}",
        said.err
    );
    // What does not work here may work where the file is for.
    let text =
        "[[notify]]\nto = \"journal\"\n[[notify]]\nto = \"command\"\ncommand = [\"/nonexistent/page\"]\n";
    let said = run(&["rules", "check", &write(dir.path(), text)]);
    assert!(said.code == 0 && said.out.ends_with("; 2 receivers of messages\n"), "{}{}", said.out, said.err);
    assert!(said.err.contains("notify command: /nonexistent/page is not there"), "{}", said.err);
}

/// A process may call itself anything.
#[test]
fn names_of_processes_do_not_reach_a_terminal_raw() {
    let dir = tempfile::tempdir().unwrap();
    let (mut frame, mut strings) = (Frame::new(), Strings::new());
    let mut writer = Writer::open(dir.path(), &HostInfo::default(), Options::default()).unwrap();
    let name = "\u{1b}]0;evil\u{7}";
    for second in 1..4 {
        frame.clear();
        let ns = second * 1_000_000_000;
        frame.time = Stamp { real: 1_790_000_000_000_000_000 + ns, mono: ns, boot: ns };
        let row = frame.table_mut(Entity::Task).push(Key::task(7, 5));
        row[column("task.threads").unwrap()] = 9;
        row[column("task.tgid").unwrap()] = 7;
        row[column("task.comm").unwrap()] = i64::from(strings.intern(name));
        writer.append(&frame, &strings).unwrap();
    }
    writer.finish().unwrap();
    let path = dir.path().to_str().unwrap();
    for args in [
        &["rules", "test", "--when", "task.threads > 5"][..],
        &["dump", "--metric", "task.comm"],
        &["dump", "--metric", "task.comm", "--list"],
        &["status"],
    ] {
        let said = good(&[args, &["--archive", path]].concat());
        assert!(!said.contains(['\u{1b}', '\u{7}']), "{args:?}: {said:?}");
        assert!(said.contains("?]0;evil?") || args == ["status"], "{args:?}: {said}");
    }
    // What is meant for programs is what was recorded.
    let csv = good(&["dump", "--metric", "task.comm", "--format", "csv", "--archive", path]);
    assert!(csv.contains(name), "{csv:?}");
}

#[test]
fn other_tools_output_is_a_recording_too() {
    let dir = tempfile::tempdir().unwrap();
    let vmstat = "procs -----------memory---------- ---swap-- -----io---- -system-- ------cpu-----\n \
                  r  b   swpd   free   buff  cache   si   so    bi    bo   in   cs us sy id wa st\n";
    let row = |cs: u32| {
        format!(" 1  0      0 100000   5000  20000    0    0     0     0  100 {cs}  1  1 98  0  0\n")
    };
    let text = format!("{vmstat}{}{}{}{}", row(10), row(90_000), row(91_000), row(10));
    let file = dir.path().join("vmstat.txt");
    std::fs::write(&file, text).unwrap();
    let file = file.to_str().unwrap();
    let test = json(&["rules", "test", "--when", "sys.ctxt > 50000/s", "--json", file]);
    let fired = test["fired"].as_array().unwrap();
    assert_eq!(fired.len(), 1, "{test}");
    assert_eq!(fired[0]["values"]["sys.ctxt"], 90_000.0);
    let test = json(&["rules", "test", "--when", "psi.io_some > 50%", "--json", file]);
    assert_eq!(test["cannot_tell"][0]["missing"][0], "psi.io_some");
}

/// Escalation of a recorder: the command runs once, its output is in the archive, and the suspicion says why.
#[test]
fn a_recorder_runs_the_command_of_a_rule() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("archive");
    let path = path.to_str().unwrap();
    let file = write(
        dir.path(),
        "[escalation]\nbuiltin = false\n\n[[rule]]\nname = \"always\"\nwhen = 'sum(task.threads) by pid > 0 for 300ms'\n\
         suspects = \"thread-explosion\"\npid-of = \"culprit\"\n\
         command = [\"/bin/sh\", \"-c\", \"echo pid $1; echo wrong >&2; exit 3\", \"sh\", \"{pid}\"]\n",
    );
    for flags in [&[][..], &["--no-arm"]] {
        let mut recorder = Running::start(
            command(&["record", "--no-bpf", "--interval", "100ms", "--archive", path, "--config", &file])
                .args(flags),
        );
        recorder.line();
        let count = |kind: &str| {
            let status = json(&["status", "--json", "--archive", path]);
            let events = status["escalation"].as_array().map_or(&[][..], Vec::as_slice);
            events.iter().filter(|event| event["event"]["event"] == kind).count()
        };
        wait_until("the command and the suspicions", || {
            frames(path) > 0 && count("capture") == 1 && count("suspicion") > usize::from(!flags.is_empty())
        });
        // As long again, in which it rests.
        wait_for_frames(path, frames(path) + 10);
        let (end, err) = recorder.end(Signal::TERM);
        assert!(end.success(), "{end}: {err}");
        let status = json(&["status", "--json", "--archive", path]);
        let events = status["escalation"].as_array().unwrap();
        let is = |event: &&Value, kind: &str| event["event"]["event"] == kind;
        let suspicions: Vec<&Value> = events.iter().filter(|e| is(e, "suspicion")).collect();
        let captures: Vec<&Value> = events.iter().filter(|e| is(e, "capture")).collect();
        // The first recorder acted once; the second may do nothing.
        assert_eq!(captures.len(), 1, "{status}");
        let event = &suspicions[0]["event"];
        assert_eq!((&event["rule"], &event["condition"]), (&"always".into(), &"thread-explosion".into()));
        assert!(event["armed"][0].as_str().unwrap().starts_with("/bin/sh"), "{event}");
        if flags.is_empty() {
            assert_eq!(suspicions.len(), 1, "it rests after it has acted: {status}");
        } else {
            assert_eq!(suspicions[1]["event"]["armed"].as_array().unwrap().len(), 0, "{status}");
        }
        let capture = &captures[0]["event"];
        assert_eq!(capture["capture"], "command");
        assert!(capture["ended"].as_str().unwrap().contains("exit code 3"), "{capture}");
        assert!(Path::new(path).join("captures").join(capture["file"].as_str().unwrap()).exists());
    }
    assert!(good(&["status", "--archive", path]).contains("Suspected"));
}

/// Fresh memory again and again, until dropped: each page of it is a fault.
struct Faults(Arc<AtomicBool>, Option<JoinHandle<()>>);

impl Faults {
    fn start() -> Faults {
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            while !told.load(Ordering::Relaxed) {
                // So large that the allocator maps it, and gives it back.
                let mut memory = vec![0_u8; 32 << 20];
                memory.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
                std::hint::black_box(&memory);
            }
        });
        Faults(stop, Some(thread))
    }
}

impl Drop for Faults {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        _ = self.1.take().map(JoinHandle::join);
    }
}

/// A built-in suspicion on a real machine: real faults, the probe that is armed, what it saw of whom. Once more without
/// arming, which must leave no capture.
#[test]
#[ignore = "needs root: make test-kernel"]
fn a_real_suspicion_arms_a_probe_and_the_archive_has_what_it_saw() {
    if !is_root() {
        println!("skipped: probes need root");
        return;
    }
    for flags in [&[][..], &["--no-arm"]] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("archive");
        let path = path.to_str().unwrap();
        let config = write(dir.path(), "");
        let mut recorder =
            Running::start(command(&["record", "--archive", path, "--config", &config]).args(flags));
        recorder.line();
        let faults = Faults::start();
        // Three seconds until it is suspected, three of the probe, and what loading and writing take.
        std::thread::sleep(Duration::from_secs(11));
        drop(faults);
        let (end, err) = recorder.end(Signal::TERM);
        assert!(end.success(), "{end}: {err}");
        let status = json(&["status", "--json", "--archive", path]);
        let events = status["escalation"].as_array().unwrap();
        let of = |kind: &str, name: &str, is: &str| {
            let found = events.iter().map(|e| &e["event"]).find(|e| e["event"] == kind && e[name] == is);
            found.cloned()
        };
        let suspicion = of("suspicion", "rule", "minor-fault-rate").unwrap_or_else(|| panic!("{status}"));
        assert_eq!(suspicion["condition"], "minor-fault-storm");
        let capture = of("capture", "capture", "faults");
        if !flags.is_empty() {
            assert_eq!((capture, &suspicion["armed"]), (None, &Value::Array(Vec::new())), "{status}");
            continue;
        }
        let Some(capture) = capture.filter(|_| !err.contains("this kernel refuses")) else {
            assert!(err.contains("this kernel refuses"), "{status}\n{err}");
            println!("skipped: {err}");
            return;
        };
        assert_eq!(suspicion["armed"], serde_json::json!(["faults"]));
        assert_eq!(capture["why"], "rule minor-fault-rate");
        // So many faults may use up what the probe may cost before its three seconds are over.
        assert!(["time", "cost"].contains(&capture["ended"].as_str().unwrap()), "{capture}");
        assert!(
            capture["seconds"].as_f64().unwrap() > 0.2 && capture["events"].as_u64().unwrap() > 1000,
            "{capture}"
        );
        // The rule watches its culprit alone, which is this process.
        let tops = capture["tops"].as_array().unwrap();
        assert!(!tops.is_empty() && tops.iter().all(|row| row["pid"] == std::process::id()), "{capture}");
        assert!(Path::new(path).join("captures").join(capture["file"].as_str().unwrap()).exists());
        let status = good(&["status", "--archive", path]);
        assert!(status.contains("minor-fault-rate"), "{status}");
    }
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn commands_of_a_file_that_others_may_write_are_refused_to_root() {
    if !is_root() {
        println!("skipped: only root has something to lose");
        return;
    }
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let file =
        write(dir.path(), "[[rule]]\nname = \"a\"\nwhen = 'sys.forks > 1'\ncommand = [\"/bin/true\"]\n");
    good(&["rules", "check", &file]);
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o666)).unwrap();
    let said = run(&["rules", "check", &file]);
    assert_eq!(said.code, 2);
    assert!(said.err.contains("everybody may write it"), "{}", said.err);
    // Somebody else is told what root would say.
    use std::os::unix::process::CommandExt;
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let Ok(nobody) = command(&["rules", "check", &file]).uid(65_534).gid(65_534).output() else {
        println!("skipped: nobody cannot run this program");
        return;
    };
    let said = String::from_utf8_lossy(&nobody.stderr);
    if said.contains("cannot open") {
        println!("skipped: {said}");
        return;
    }
    assert!(nobody.status.success() && said.contains("everybody may write it, and"), "{said}");
    assert!(said.contains("a recorder of root refuses it"), "{said}");
}

/// The last count of lines that match.
fn matches(archive: &str) -> Option<i64> {
    let reader = mitra_archive::Reader::open(Path::new(archive)).ok()?;
    let (of, mut last) = (column("pattern.matches")?, None);
    let mut each = |frame: &Frame, _: &Strings| {
        if let Some((_, row)) = frame.table(Entity::Pattern).rows().next() {
            last = row.get(of).copied();
        }
    };
    reader.frames(mitra_model::Span::ALL, &mut each).ok()?;
    last
}

#[test]
fn lines_of_a_log_are_counted_through_a_rotation_and_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (log, archive) = (path("app.log"), path("archive"));
    let when = format!("log{{file=\"{log}\"}} =~ \"timeout\" > 10/s");
    let config = write(dir.path(), &format!("[[rule]]\nname = \"app-timeouts\"\nwhen = '{when}'\n"));
    let append = |lines: usize| {
        let text = "a timeout\nsomething else\n".repeat(lines);
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(&log).unwrap();
        std::io::Write::write_all(&mut file, text.as_bytes()).unwrap();
    };
    append(5);
    let record = || {
        let args = ["record", "--no-bpf", "--interval", "100ms", "--config", &config, "--archive", &archive];
        Running::start(&mut command(&args))
    };
    let mut recorder = record();
    recorder.line();
    wait_until("the log is followed", || matches(&archive) == Some(0));
    append(300);
    wait_until("lines", || matches(&archive) == Some(300));
    recorder.end(Signal::KILL);
    append(20);
    std::fs::rename(&log, path("app.log.1")).unwrap();
    append(10);
    let mut recorder = record();
    recorder.line();
    wait_until("lines of meanwhile", || matches(&archive) == Some(330));
    let before = frames(&archive);
    wait_for_frames(&archive, before + 15);
    assert!(recorder.end(Signal::TERM).0.success());
    assert_eq!(matches(&archive), Some(330));
    let events =
        mitra_archive::Reader::open(Path::new(&archive)).unwrap().events(mitra_model::Span::ALL).unwrap();
    let is_told = events.iter().any(|event| {
        matches!(&event.kind, mitra_model::EventKind::Suspicion { rule, text, .. } if rule == "app-timeouts" && text.contains("/s"))
    });
    assert!(is_told, "{events:?}");
    let said = good(&["rules", "test", "--archive", &archive, "--config", &config, "--rule", "app-timeouts"]);
    assert!(said.contains("app-timeouts") && said.contains("would have been recorded"), "{said}");
    // Of a log that no rule named nothing is known.
    let said = good(&["rules", "test", "--archive", &archive, "--when", "log{file=/other} =~ \"x\" > 1"]);
    assert!(said.contains("no rule followed log{file=/other} =~ \"x\" then"), "{said}");
    let said = good(&["rules", "check", &config]);
    assert!(said.contains("1 rules of its own"), "{said}");
}
