//! Names of functions of a program that is compiled here: unchanged, stripped, with a separate
//! debug file, replaced while it runs. Skipped without a C compiler.

use std::io::{BufRead, BufReader, ErrorKind};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use mitra_inspect::Symbols;
use mitra_model::capture::{Image, RawStack};

/// Prints the addresses of two of its functions, and waits. `outer` is exported, `inner` is not.
const SOURCE: &str = r#"
#include <stdio.h>
#include <unistd.h>
__attribute__((noinline)) void outer(void) { __asm__ volatile("nop\n\tnop\n\tnop"); }
__attribute__((noinline)) static void inner(void) { __asm__ volatile("nop\n\tnop\n\tnop"); }
int main(void)
{
	printf("%p %p\n", (void *)outer, (void *)inner);
	fflush(stdout);
	outer();
	inner();
	pause();
}
"#;

struct Running {
    child: Child,
    outer: u64,
    inner: u64,
}

impl Drop for Running {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

fn do_it(dir: &Path, program: &str, args: &[&str]) -> bool {
    let done = Command::new(program).current_dir(dir).args(args).status();
    match done {
        Ok(status) => status.success(),
        Err(error) => {
            println!("skipped: {program}: {error}");
            false
        }
    }
}

/// Compiles the program, runs `more` on it, and starts it.
fn start(dir: &Path, more: &[(&str, &[&str])]) -> Option<Running> {
    start_changed(dir, more, |_| ())
}

/// The same, and changes the file before the start.
fn start_changed(dir: &Path, more: &[(&str, &[&str])], change: impl Fn(&Path)) -> Option<Running> {
    start_source(dir, SOURCE, more, change)
}

/// Starts a program that was just written. A child that another test forked meanwhile holds the
/// file open for writing until it executes its own program, and the kernel refuses to start it for
/// that time (ETXTBSY).
fn spawned(program: &Path) -> Child {
    loop {
        match Command::new(program).stdout(Stdio::piped()).spawn() {
            Err(error) if error.kind() == ErrorKind::ExecutableFileBusy => std::thread::yield_now(),
            child => return child.unwrap(),
        }
    }
}

fn start_source(
    dir: &Path,
    source: &str,
    more: &[(&str, &[&str])],
    change: impl Fn(&Path),
) -> Option<Running> {
    std::fs::write(dir.join("it.c"), source).unwrap();
    let compiled = do_it(dir, "cc", &["-g", "-O1", "-rdynamic", "-fno-inline", "-o", "it", "it.c"]);
    if !compiled || !more.iter().all(|(program, args)| do_it(dir, program, args)) {
        return None;
    }
    change(&dir.join("it"));
    let mut child = spawned(&dir.join("it"));
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let mut words = line.split_whitespace().map(|word| u64::from_str_radix(&word[2..], 16).unwrap());
    let (outer, inner) = (words.next().unwrap(), words.next().unwrap());
    Some(Running { child, outer, inner })
}

fn names(symbols: &mut Symbols, running: &Running) -> [String; 2] {
    [running.outer, running.inner].map(|address| {
        let pid = running.child.id();
        let stack = RawStack { pid, image: 1, user: vec![address + 1], ..RawStack::default() };
        symbols.names(&stack).remove(0)
    })
}

#[test]
fn a_program_with_its_symbols_has_names() {
    let dir = tempfile::tempdir().unwrap();
    let Some(running) = start(dir.path(), &[]) else { return };
    assert_eq!(names(&mut Symbols::new(), &running), ["outer", "inner"]);
}

/// The process id leads to no memory any more; its threads do.
#[test]
fn a_program_whose_first_thread_has_ended_has_names() {
    let dir = tempfile::tempdir().unwrap();
    let source = SOURCE
        .replace("int main(void)", "static void *waits(void *none) { pause(); return none; }\nint main(void)")
        .replace("pause();\n}", "pthread_t it;\npthread_create(&it, 0, waits, 0);\npthread_exit(0);\n}")
        .replace("#include <stdio.h>", "#include <pthread.h>\n#include <stdio.h>");
    let Some(running) = start_source(dir.path(), &source, &[], |_| ()) else { return };
    let pid = running.child.id();
    for _ in 0..500 {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        if stat.contains(") Z ") {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert_eq!(names(&mut Symbols::new(), &running), ["outer", "inner"]);
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let other = threads.flatten().map(|thread| thread.file_name().into_string().unwrap());
    let other = other.filter(|thread| *thread != pid.to_string()).max().unwrap();
    let error = mitra_inspect::Target::open(pid).err().unwrap().to_string();
    assert!(error.ends_with(&format!("ask for one of those, as {other}")), "{error}");
    assert!(mitra_inspect::Target::open(other.parse().unwrap()).is_ok());
}

#[test]
fn a_stripped_program_has_the_names_that_it_exports_and_no_others() {
    let dir = tempfile::tempdir().unwrap();
    let Some(running) = start(dir.path(), &[("strip", &["it"])]) else { return };
    let [outer, inner] = names(&mut Symbols::new(), &running);
    assert_eq!(outer, "outer");
    assert!(inner.starts_with("[it+0x"), "{inner}");
}

#[test]
fn a_debug_file_gives_a_stripped_program_its_names_back() {
    let dir = tempfile::tempdir().unwrap();
    let more: [(&str, &[&str]); 3] = [
        ("objcopy", &["--only-keep-debug", "it", "it.debug"]),
        ("strip", &["it"]),
        ("objcopy", &["--add-gnu-debuglink=it.debug", "it"]),
    ];
    let Some(running) = start(dir.path(), &more) else { return };
    assert_eq!(names(&mut Symbols::new(), &running), ["outer", "inner"]);
}

#[test]
fn a_program_that_was_replaced_is_not_given_the_names_of_the_new_one() {
    let dir = tempfile::tempdir().unwrap();
    let Some(running) = start(dir.path(), &[]) else { return };
    std::fs::rename(dir.path().join("it"), dir.path().join("old")).unwrap();
    std::fs::copy("/bin/true", dir.path().join("it")).unwrap();
    std::fs::remove_file(dir.path().join("old")).unwrap();
    let [outer, _] = names(&mut Symbols::new(), &running);
    // The kernel still shows the mapped file to a privileged reader.
    assert!(outer == "outer" || outer.starts_with("[it+0x"), "{outer}");
}

#[test]
fn a_program_keeps_its_names_when_it_has_ended() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mut running) = start(dir.path(), &[]) else { return };
    let mut symbols = Symbols::new();
    symbols.remember(&[Image { id: 1, pid: running.child.id(), comm: "it".into() }]);
    running.child.kill().unwrap();
    running.child.wait().unwrap();
    assert_eq!(names(&mut symbols, &running), ["outer", "inner"]);
}

#[test]
fn what_a_jit_writes_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let Some(running) = start(dir.path(), &[("strip", &["it"])]) else { return };
    let map = format!("/tmp/perf-{}.map", running.child.id());
    std::fs::write(&map, format!("{:x} 10 py::inner:/srv/app.py\n", running.inner)).unwrap();
    let [_, inner] = names(&mut Symbols::new(), &running);
    std::fs::remove_file(&map).unwrap();
    assert_eq!(inner, "py::inner:/srv/app.py");
}

/// A user who can write to `/tmp` could present a file that only its reader may read.
#[test]
fn another_file_in_place_of_what_a_jit_writes_is_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let Some(running) = start(dir.path(), &[("strip", &["it"])]) else { return };
    let map = format!("/tmp/perf-{}.map", running.child.id());
    let elsewhere = format!("/tmp/mitra-test-{}.map", running.child.id());
    std::fs::write(&elsewhere, format!("{:x} 10 of_another_file\n", running.inner)).unwrap();
    let mut found = Vec::new();
    std::os::unix::fs::symlink(&elsewhere, &map).unwrap();
    found.extend(names(&mut Symbols::new(), &running));
    std::fs::remove_file(&map).unwrap();
    std::fs::hard_link(&elsewhere, &map).unwrap();
    found.extend(names(&mut Symbols::new(), &running));
    std::fs::remove_file(&map).unwrap();
    std::fs::rename(&elsewhere, &map).unwrap();
    let [_, own] = names(&mut Symbols::new(), &running);
    std::fs::remove_file(&map).unwrap();
    assert_eq!(own, "of_another_file", "it is one that is read");
    assert!(!found.contains(&own), "{found:?}");
}

#[test]
fn what_somebody_else_writes_of_a_process_is_not_believed() {
    let dir = tempfile::tempdir().unwrap();
    let Some(running) = start(dir.path(), &[("strip", &["it"])]) else { return };
    let map = format!("/tmp/perf-{}.map", running.child.id());
    std::fs::write(&map, format!("{:x} 10 false_name\n", running.inner)).unwrap();
    let given_away = std::os::unix::fs::chown(&map, Some(65_534), None);
    let [_, inner] = names(&mut Symbols::new(), &running);
    std::fs::remove_file(&map).unwrap();
    match given_away {
        Ok(()) => assert!(inner.starts_with("[it+0x"), "{inner}"),
        Err(error) => println!("skipped: {error}"),
    }
}

/// Changes the owner of a file.
fn give_away(path: &Path) -> bool {
    let given = std::os::unix::fs::chown(path, Some(65_534), None);
    if let Err(error) = &given {
        println!("skipped: {error}");
    }
    given.is_ok()
}

#[test]
fn a_file_that_is_not_roots_has_the_names_of_its_tables() {
    let dir = tempfile::tempdir().unwrap();
    let Some(running) = start(dir.path(), &[]) else { return };
    if !give_away(&dir.path().join("it")) {
        return;
    }
    let mut symbols = Symbols::new();
    assert_eq!(names(&mut symbols, &running), ["outer", "inner"]);
    // Another file in memory gets a reused descriptor number; a cache by descriptor would mix them
    // up.
    let other = tempfile::tempdir().unwrap();
    let Some(second) = start(other.path(), &[("strip", &["it"])]) else { return };
    give_away(&other.path().join("it"));
    let [outer, inner] = names(&mut symbols, &second);
    assert_eq!(outer, "outer");
    assert!(inner.starts_with("[it+0x"), "{inner}");
}

/// The author of a program could refer to any file, or to a pipe that blocks for ever.
#[test]
fn what_a_file_refers_to_that_is_not_roots_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let more: [(&str, &[&str]); 3] = [
        ("objcopy", &["--only-keep-debug", "it", "it.debug"]),
        ("strip", &["it"]),
        ("objcopy", &["--add-gnu-debuglink=it.debug", "it"]),
    ];
    let Some(running) = start(dir.path(), &more) else { return };
    if !give_away(&dir.path().join("it")) {
        return;
    }
    let [outer, inner] = names(&mut Symbols::new(), &running);
    assert_eq!(outer, "outer");
    assert!(inner.starts_with("[it+0x"), "{inner}");
    std::fs::remove_file(dir.path().join("it.debug")).unwrap();
    assert!(do_it(dir.path(), "mkfifo", &["it.debug"]));
    assert_eq!(names(&mut Symbols::new(), &running), [outer, inner]);
}

/// Root's program in a directory of another user, who can put debug files beside it.
#[test]
fn what_lies_beside_a_file_of_roots_counts_only_where_root_puts_it() {
    let dir = tempfile::tempdir().unwrap();
    let more: [(&str, &[&str]); 3] = [
        ("objcopy", &["--only-keep-debug", "it", "it.debug"]),
        ("strip", &["it"]),
        ("objcopy", &["--add-gnu-debuglink=it.debug", "it"]),
    ];
    let Some(running) = start(dir.path(), &more) else { return };
    if !give_away(dir.path()) {
        return;
    }
    let [outer, inner] = names(&mut Symbols::new(), &running);
    assert_eq!(outer, "outer");
    assert!(inner.starts_with("[it+0x"), "{inner}");
}

/// Sets the size of all compressed sections to a terabyte.
fn inflate(path: &Path) {
    let mut bytes = std::fs::read(path).unwrap();
    let number = |bytes: &[u8], at: usize, size: usize| {
        bytes[at..at + size].iter().rev().fold(0_usize, |sum, byte| sum << 8 | usize::from(*byte))
    };
    let (table, count) = (number(&bytes, 40, 8), number(&bytes, 60, 2));
    let mut changed = 0;
    for at in (0..count).map(|i| table + 64 * i) {
        if number(&bytes, at + 8, 8) & 0x800 != 0 {
            let section = number(&bytes, at + 24, 8);
            bytes[section + 8..section + 16].copy_from_slice(&(1_u64 << 40).to_le_bytes());
            changed += 1;
        }
    }
    assert!(changed > 0, "no section is compressed");
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn no_section_becomes_a_terabyte_because_it_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let more: [(&str, &[&str]); 1] = [("objcopy", &["--compress-debug-sections=zlib", "it"])];
    let Some(running) = start_changed(dir.path(), &more, inflate) else { return };
    assert_eq!(names(&mut Symbols::new(), &running), ["outer", "inner"]);
    if give_away(&dir.path().join("it")) {
        assert_eq!(names(&mut Symbols::new(), &running), ["outer", "inner"]);
    }
}

/// A mapped file that is truncated by its owner cannot be read any more: reading would kill the
/// process with SIGBUS.
#[test]
fn a_file_that_becomes_shorter_while_it_is_known_ends_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let Some(mut running) = start(dir.path(), &[]) else { return };
    let it = dir.path().join("it");
    if !give_away(&it) {
        return;
    }
    let mut symbols = Symbols::new();
    let [outer, _] = names(&mut symbols, &running);
    assert_eq!(outer, "outer");
    running.child.kill().unwrap();
    running.child.wait().unwrap();
    std::fs::OpenOptions::new().write(true).open(&it).unwrap().set_len(100).unwrap();
    // Another address in the same function, which was not looked up before.
    let stack =
        RawStack { pid: running.child.id(), image: 1, user: vec![running.outer + 2], ..RawStack::default() };
    assert_eq!(symbols.names(&stack), ["outer"]);
}
