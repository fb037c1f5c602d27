//! What is recorded of JVMs, against what `jcmd` says of the same ones.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use mitra_collect::{Config, Sampler};
use mitra_model::{Entity, Frame, Key, NA, column};

/// Makes garbage, a part of which lives for a while.
const PROGRAM: &str = "
public class Garbage {
    public static void main(String[] arguments) throws Exception {
        byte[][] lives = new byte[400][];
        for (int i = 0; ; i++) {
            lives[i % lives.length] = new byte[64 << 10];
            if (i % 50 == 0) Thread.sleep(1);
        }
    }
}
";

/// Ends with the test, whatever happens.
struct Jvm(Child);

impl Drop for Jvm {
    fn drop(&mut self) {
        // SIGTERM: a JVM that is killed leaves its file in /tmp.
        let _ended = rustix::process::kill_process(
            rustix::process::Pid::from_child(&self.0),
            rustix::process::Signal::TERM,
        );
        let _gone = self.0.wait();
    }
}

fn jcmd(pid: u32, name: &str) -> Option<i64> {
    let out = Command::new("jcmd").args([&pid.to_string(), "PerfCounter.print"]).output().ok()?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('=')?.trim_matches('\"').parse().ok())
}

#[test]
#[ignore = "needs root and a JDK: make test-kernel"]
fn collections_and_what_is_left_are_what_the_jvm_counts() {
    if !rustix::process::geteuid().is_root() {
        return println!("skipped: needs root");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("Garbage.java");
    std::fs::write(&file, PROGRAM).expect("a file");
    let is_compiled = Command::new("javac").arg(&file).status().is_ok_and(|status| status.success());
    if !is_compiled {
        return println!("skipped: no JDK");
    }
    for collector in ["Serial", "Parallel", "G1"] {
        let mut java = Command::new("java");
        java.args(["-Xmx96m", &format!("-XX:+Use{collector}GC"), "-cp"]).arg(folder.path()).arg("Garbage");
        let jvm = Jvm(java.stdout(Stdio::null()).spawn().expect("java"));
        let pid = jvm.0.id();
        std::thread::sleep(Duration::from_secs(2));
        let config = Config { slow_every: Duration::from_millis(500), ..Config::default() };
        let mut sampler = Sampler::open(config).expect("a sampler");
        let mut frame = Frame::new();
        let mut sample = |metric: &str| {
            sampler.sample(&mut frame).expect("a sample");
            let table = frame.table(Entity::Jvm);
            let name = pid.to_string();
            let is_it = |key: &Key| {
                u32::try_from(key.id).ok().and_then(|id| sampler.strings().get(id)) == Some(name.as_str())
            };
            let at = table.keys().iter().position(is_it)?;
            Some(table.row(at)[column(metric).expect("a metric")]).filter(|value| *value != NA)
        };
        let began = Instant::now();
        while sample("jvm.collections").is_none() {
            assert!(began.elapsed() < Duration::from_secs(10), "{collector}: nothing was read");
            std::thread::sleep(Duration::from_millis(50));
        }
        let sum = |what: &str| {
            (0..4).filter_map(|i| jcmd(pid, &format!("sun.gc.collector.{i}.{what}"))).sum::<i64>()
        };
        for (metric, what) in [("jvm.collections", "invocations"), ("jvm.gc_time", "time")] {
            let before = sum(what);
            // What is read is asked for at a sample and is in one after it.
            let mut seen = None;
            for _ in 0..3 {
                std::thread::sleep(Duration::from_millis(50));
                seen = sample(metric);
            }
            let (seen, after) = (seen.expect(metric), sum(what));
            println!("{collector}: {metric} {before} <= {seen} <= {after}");
            assert!(before > 0 && (before..=after).contains(&seen), "{before} {seen} {after}");
        }
        assert_eq!(sample("jvm.old_max"), jcmd(pid, "sun.gc.generation.1.maxCapacity"));
        let used = sample("jvm.old_used").expect("a size");
        assert!((1 << 20..=96 << 20).contains(&used), "{used}");
        assert!(sample("jvm.safepoint_time") >= sample("jvm.gc_time"), "a collection is at a safepoint");
    }
}
