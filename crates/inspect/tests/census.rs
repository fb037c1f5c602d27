//! The strings of a real process: a Python program that plants a known number of them in the C
//! heap, each in its own chunk. Skipped without Python.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use mitra_inspect::census::{self, Census, Options};
use mitra_inspect::{Memory, Target};

const PROGRAM: &str = r#"
import ctypes, sys
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]
kept = []
def plant(text, copies):
    for i in range(copies):
        at = libc.malloc(len(text) + 2)
        ctypes.memmove(at, text, len(text))
        # The chunk may hold what was there before.
        ctypes.memset(at + len(text), 0, 2)
        kept.append(at)
# Written in parts, so that the program's own text is not another copy.
plant(b"native-" + b"client: host", 200000)
plant(b"native-" + b"client: user", 200000)
plant("native-" .encode("utf-16-le") + "wide".encode("utf-16-le"), 50000)
plant(b"native-" + "größe".encode(), 30000)
# Python's own objects: compact strings of each width, and bytes. Each is made anew.
strings = ["object-" + "of-%s" % "python" for i in range(40000)]
latin = ["object-" + "f\xfcr-%s" % "python" for i in range(20000)]
wide = ["object-" + "\u0434\u043b\u044f-%s" % "\u043f" for i in range(10000)]
raw = [b"object-" + b"raw-%d" % 1 for i in range(40000)]
print("ready", flush=True)
sys.stdin.read()
"#;

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

fn start(python: &str) -> Option<Running> {
    let child = Command::new(python)
        .args(["-X", "utf8", "-c", PROGRAM])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let mut child = match child {
        Ok(child) => Running(child),
        Err(error) => {
            println!("skipped: {python}: {error}");
            return None;
        }
    };
    let mut line = String::new();
    BufReader::new(child.0.stdout.take()?).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    Some(child)
}

#[test]
fn planted_strings_are_counted_exactly() {
    let Some(child) = start("python3") else { return };
    let target = match Target::open(child.0.id()) {
        Ok(target) => target,
        Err(error) => return println!("skipped: {error}"),
    };
    let census =
        census::take(&target, &Census::default_regions(&target), &Options::default(), &mut |_, _| true);
    if census.bytes_resident == 0 {
        return println!("skipped: /proc/PID/pagemap cannot be read");
    }
    let count = |text: &str| {
        let found = census.entries.iter().find(|entry| entry.text == text);
        found.map(|entry| (entry.count, entry.error)).unwrap_or_default()
    };
    // Python may keep a copy from creating the text, and freed memory may still have one or two of
    // its own strings.
    for (text, planted) in [
        ("native-client: host", 200_000),
        ("native-client: user", 200_000),
        ("native-wide", 50_000),
        ("native-größe", 30_000),
        ("object-of-python", 40_000),
        ("object-für-python", 20_000),
        ("object-для-п", 10_000),
        ("object-raw-1", 40_000),
    ] {
        let (found, error) = count(text);
        assert_eq!(error, 0, "{text}");
        assert!((planted..planted + 10).contains(&found), "{text}: {found}");
    }
    let group = census.groups.iter().find(|group| group.count / 10 == 20_000).unwrap();
    assert_eq!(group.strings, 2, "{group:?}");
    let entry = census.entries.iter().find(|entry| entry.text == "native-client: host").unwrap();
    for address in &entry.addresses {
        assert_eq!(target.text(*address, 64).unwrap(), "native-client: host");
    }
    assert!(!census.has_ended && !census.is_stopped);
}
