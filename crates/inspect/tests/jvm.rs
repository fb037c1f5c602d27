//! A real JVM with a known number of objects: the histogram shows them, and its counters agree with
//! the histogram.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use mitra_inspect::Target;
use mitra_inspect::runtimes::{self, JvmHeap, Options, Runtime};

const OBJECTS: u64 = 1_000_000;

const PROGRAM: &str = "
import java.util.ArrayList;
public class Leak {
    static class Held { long a, b, c, d; }
    static final ArrayList<Held> all = new ArrayList<>();
    public static void main(String[] args) throws Exception {
        for (int i = 0; i < 1_000_000; i++) all.add(new Held());
        System.gc();
        System.out.println(\"ready\");
        System.in.read();
        System.out.println(all.size());
    }
}
";

struct Jvm(Child);

impl Drop for Jvm {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// Each Java on this machine, the usual one first.
fn javas() -> Vec<PathBuf> {
    let mut all = vec![PathBuf::from("java")];
    let usual = std::fs::canonicalize("/usr/bin/java").ok();
    for dir in std::fs::read_dir("/usr/lib/jvm").into_iter().flatten().flatten() {
        let java = std::fs::canonicalize(dir.path().join("bin/java")).ok();
        all.extend(java.filter(|java| usual.as_ref() != Some(java) && !all.contains(java)));
    }
    all
}

fn start(flags: &[&str]) -> Option<Jvm> {
    start_of(Path::new("java"), flags)
}

fn start_of(java: &Path, flags: &[&str]) -> Option<Jvm> {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("Leak.java");
    std::fs::write(&source, PROGRAM).unwrap();
    let mut command = Command::new(java);
    command.args(flags).arg(&source).stdin(Stdio::piped()).stdout(Stdio::piped());
    let Ok(child) = command.spawn() else {
        println!("skipped: java is not on this machine");
        return None;
    };
    let mut jvm = Jvm(child);
    let mut line = String::new();
    BufReader::new(jvm.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    if line.trim() != "ready" {
        println!("skipped: java cannot run a source file: {line}");
        return None;
    }
    Some(jvm)
}

fn read_heap(jvm: &Jvm, options: &Options) -> JvmHeap {
    look_at(jvm.0.id(), options)
}

fn look_at(pid: u32, options: &Options) -> JvmHeap {
    match runtimes::read_heap(&Target::open(pid).unwrap(), options).unwrap() {
        Some(Runtime::Jvm(heap)) => heap,
        other => panic!("{other:?}"),
    }
}

fn agrees(java: &Path, flags: &[&str]) {
    let Some(jvm) = start_of(java, flags) else { return };
    let quiet = read_heap(&jvm, &Options::default());
    assert_eq!(quiet.asked, None, "nobody asked for that");
    let counters = quiet.counters.as_ref().unwrap_or_else(|| panic!("{:?}", quiet.notes));
    println!("{flags:?}: {:?} {:?}, {} classes", quiet.name, quiet.version, counters.classes_loaded.unwrap());
    for space in &counters.spaces {
        println!(
            "  {} {}: {} of {} bytes",
            space.generation, space.name, space.used_bytes, space.capacity_bytes
        );
    }
    for collector in &counters.collectors {
        println!("  {}: {} runs, {:?} s", collector.name, collector.runs, collector.seconds);
    }
    assert_eq!(counters.unread, 0);
    assert!(quiet.version.is_some() && quiet.java_home.is_some());
    assert!(counters.collectors.iter().any(|collector| collector.runs > 0));
    assert!(counters.classes_loaded.unwrap() > 500 && counters.metaspace_used_bytes.unwrap() > 1 << 20);

    let heap = read_heap(&jvm, &Options { ask_runtime: true, classes_max: 50, ..Options::default() });
    let Some(asked) = heap.asked else {
        println!("skipped: {:?}", heap.notes);
        return;
    };
    let held =
        asked.classes.iter().find(|class| class.name == "Leak$Held").expect("the class of the objects");
    println!(
        "  {} objects of {} bytes in {:.2} s; {:?}",
        asked.instances, asked.bytes, asked.histogram_seconds, asked.classes[0]
    );
    println!("  {:?} {:?} {:?}", asked.heap, asked.native.first(), asked.notes);
    // A header of eight, twelve or sixteen bytes and four longs.
    assert_eq!(held.instances, OBJECTS);
    assert!([48 * OBJECTS, 40 * OBJECTS].contains(&held.bytes), "{held:?}");
    assert_eq!(asked.classes[0].name, "Leak$Held");
    assert_eq!((asked.classes.len(), asked.classes_left_out > 0), (50, true));
    assert!(asked.bytes >= held.bytes && !asked.heap.is_empty());
    let tracked = flags.iter().any(|flag| flag.contains("NativeMemoryTracking"));
    assert_eq!(!asked.native.is_empty(), tracked);
    // Answering creates objects; the counters were read before.
    let used = read_heap(&jvm, &Options::default()).counters.unwrap().used_bytes as f64;
    let off = (used - asked.bytes as f64).abs() / asked.bytes as f64;
    println!("  counters {used:.0} bytes, histogram {} bytes: {:.1} % apart", asked.bytes, 100.0 * off);
    assert!(off < 0.1);
}

#[test]
fn the_histogram_of_a_jvm_agrees_with_its_counters() {
    agrees(Path::new("java"), &["-XX:+UseSerialGC", "-Xmx512m", "-XX:NativeMemoryTracking=summary"]);
}

#[test]
fn so_it_does_with_the_collector_of_most() {
    for java in javas() {
        agrees(&java, &["-XX:+UseG1GC", "-Xmx512m"]);
    }
}

#[test]
fn a_jvm_that_hides_is_said_to() {
    let Some(jvm) = start(&["-XX:-UsePerfData", "-Xmx256m"]) else { return };
    let heap = read_heap(&jvm, &Options::default());
    assert_eq!(heap.counters, None);
    assert!(heap.notes.iter().any(|note| note.contains("UsePerfData")), "{:?}", heap.notes);
    // The version from the file `release`.
    println!("{:?} in {:?}", heap.version, heap.java_home);
    drop(jvm);
    // Its counters have no file name then.
    let Some(jvm) = start(&["-XX:+PerfDisableSharedMem", "-Xmx256m"]) else { return };
    let heap = read_heap(&jvm, &Options::default());
    assert!(heap.counters.is_some_and(|counters| counters.used_bytes > 40 * OBJECTS), "{:?}", heap.notes);
    drop(jvm);
    // -Xrs removes the signal handler, so asking would kill the JVM.
    let Some(jvm) = start(&["-Xrs", "-Xmx256m"]) else { return };
    let heap = read_heap(&jvm, &Options { ask_runtime: true, ..Options::default() });
    assert_eq!(heap.asked, None);
    assert!(heap.notes.iter().any(|note| note.contains("SIGQUIT")), "{:?}", heap.notes);
    let own = Target::open(std::process::id()).unwrap();
    assert_eq!(runtimes::read_heap(&own, &Options::default()).unwrap(), None);
}

/// With its own PID namespace, its own `/tmp` and another user: none of its files has the name that
/// we would expect.
#[test]
fn a_jvm_in_a_container_is_read_and_asked_too() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let source = dir.path().join("Leak.java");
    std::fs::write(&source, PROGRAM).unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let script = format!(
        "mount -t tmpfs tmpfs /tmp && exec setpriv --reuid 65534 --regid 65534 --clear-groups java -XX:+UseSerialGC -Xmx512m {}",
        source.display()
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c", &script]);
    let Ok(child) = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()
    else {
        println!("skipped: unshare is not on this machine");
        return;
    };
    let mut container = Jvm(child);
    let mut line = String::new();
    BufReader::new(container.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let pid = container.0.id();
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let (true, Ok(inside)) = (line.trim() == "ready", children.trim().parse()) else {
        println!("skipped: no container can be made here, or there is no java");
        return;
    };
    let heap = look_at(inside, &Options { ask_runtime: true, ..Options::default() });
    println!("{:?} {:?}", heap.java_home, heap.notes);
    assert!(heap.counters.unwrap().used_bytes > 40 * OBJECTS);
    match heap.asked {
        Some(asked) => {
            let held = asked.classes.iter().find(|class| class.name == "Leak$Held").unwrap();
            assert_eq!(held.instances, OBJECTS);
        }
        None => assert!(heap.notes.iter().any(|note| note.contains("jcmd")), "{:?}", heap.notes),
    }
}
