//! What looks at the whole machine, while all hostile programs run on it at once.

use std::ffi::OsStr;
use std::path::Path;

use crate::commands::Wrong;
use crate::harness::{Running, can_run, mitra, run, write_kernel_log};
use crate::targets::ALL;

/// Kinds of captures that look at all processes.
const KINDS: [&str; 10] =
    ["oncpu", "offcpu", "faults", "lookups", "locks", "syscalls", "errors", "fork", "sockets", "cache"];
/// As drivers of hostile devices write it, and what looks like lines of the kernel that a diagnosis reads.
const KERNEL_LINES: [&str; 4] = [
    "<3>usb 1-1: Product: \x1b]0;owned\x07\x1b[2J</script><img src=x onerror=alert(1)>$(touch /tmp/mitra-hostile-pwned)",
    "<3>usb 1-1: Manufacturer: \u{202e}\u{2066}\"},{\"injected\":1}\n{\"injected\":1}",
    "<3>Out of memory: Killed process 99999999999 (\x1b[2J<img src=x onerror=alert(1)>) total-vm:-1kB, anon-rss:99999999999999999999kB",
    "<3>blk_update_request: I/O error, dev \u{202e}vda</script><b>, sector 18446744073709551616 op 0x0:(READ) flags 0x0",
];

#[test]
#[ignore = "takes minutes on a machine that does other work too: run it alone, cargo test --test hostile together -- --ignored"]
fn by_hand_the_machine_is_looked_at_while_all_of_them_run() {
    if !can_run() {
        return;
    }
    // Whoever traces waits for those who are left behind in the kernel: servers that are silent are asked alone.
    let others = ALL.iter().filter(|of| of.program != "fuse");
    let all: Vec<Running> = others.filter_map(|of| Running::start(*of, true)).collect();
    let homes: Vec<&Path> = all.iter().map(Running::home).collect();
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let archive = file("archive");
    let mut wrong = Wrong::default();
    let betrayed = || all.iter().flat_map(Running::betrayed).collect::<Vec<_>>();

    KERNEL_LINES.iter().for_each(|line| write_kernel_log(line));
    // Ended by a signal, in order.
    let record = ["record", "--interval", "200ms", "--archive", &archive];
    let done = for_a_while(&["timeout", "--preserve-status", "-s", "TERM", "5"], &record, &homes);
    wrong.add(&done, betrayed());
    // On a terminal, of which a screen makes sequences of its own.
    let live =
        format!("timeout -s INT 4 {} live --archive {} || true", env!("CARGO_BIN_EXE_mitra"), file("live"));
    let done = run(
        &["script", "-qec", &live, "/dev/null"].map(OsStr::new),
        &homes,
        "live, on a terminal".to_owned(),
    );
    let screen = String::from_utf8_lossy(&done.out).into_owned();
    for hostile in ["\x1b]", "\u{202e}", "\u{2066}", "\u{9b}", "<img src=x\x1b"] {
        assert!(!screen.contains(hostile), "the screen shows {hostile:?}: {screen:?}");
    }
    // A table has no room for so many rows.
    for form in ["csv", "json"] {
        let dump =
            ["dump", "--archive", &archive, "--entity", "task,cgroup", "--metric", "*.comm,task.*,cgroup.*"];
        wrong.add(&mitra(&[&dump[..], &["--format", form]].concat(), &homes), betrayed());
    }
    let (page, parquet) = (file("page.html"), file("all.parquet"));
    for args in [
        &["explain", "--archive", &archive, "--html", &page][..],
        &["explain", "--archive", &archive, "--json"],
        &["dump", "--archive", &archive, "--entity", "task", "--metric", "task.user_time", "--format", "csv"],
        &["dump", "--archive", &archive, "--entity", "cgroup", "--json"],
        &["status", "--archive", &archive],
        &["export", "--archive", &archive, "--parquet", &parquet],
        &["doctor"],
        &["doctor", "--json"],
    ] {
        wrong.add(&mitra(args, &homes), betrayed());
    }
    wrong.add_file(Path::new(&page));
    for kind in KINDS {
        // What hangs once does so again.
        if wrong.has_hung {
            break;
        }
        let of_all = ["capture", kind, "--seconds", "0.6", "--budget", "100%", "--archive", &archive];
        wrong.add(&mitra(&of_all, &homes), betrayed());
    }
    state(&mut wrong, dir.path(), &homes);
    wrong.end("all together");
}

/// Runs it behind a program that ends it.
fn for_a_while(program: &[&str], args: &[&str], homes: &[&Path]) -> crate::harness::Done {
    let words = [program, &[env!("CARGO_BIN_EXE_mitra")], args].concat();
    run(&words.iter().map(OsStr::new).collect::<Vec<_>>(), homes, args.join(" "))
}

/// The index, of all that the machine says of itself and of a folder full of what hostile programs put there.
fn state(wrong: &mut Wrong, dir: &Path, homes: &[&Path]) {
    let (config, store) = (dir.join("index.yaml"), dir.join("store"));
    let (config_name, store) = (config.to_str().unwrap(), store.to_str().unwrap());
    let files: Vec<String> =
        homes.iter().map(|home| format!("  - {}\n", home.join("home").display())).collect();
    std::fs::write(&config, format!("files:\n{}host: here\n", files.concat())).unwrap();
    let at = ["--config", config_name, "--store", store];
    for args in [
        &["index", "--dry-run"][..],
        &["index"],
        &["search", "--limit", "1000"],
        &["search", "--json", "filename:*hostile*"],
        &["search", "--values", "socket.process"],
        &["show", "here", "@sockets/ephemeral", "--facts"],
        &["show", "here", "@cgroups/transient"],
        &["outliers"],
    ] {
        wrong.add(&mitra(&[args, &at].concat(), homes), Vec::new());
    }
}
