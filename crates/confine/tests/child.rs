//! What a program has that is started with bounds, as somebody else.

use std::process::Command;

use mitra_confine::{Child, Privileges, Resource, prepare};

const BOUNDS: &[(Resource, u64)] =
    &[(Resource::Cpu, 7), (Resource::As, 1 << 30), (Resource::Nofile, 64), (Resource::Fsize, 4096)];
const NOTHING: Privileges = Privileges::Of { user: None, capabilities: 0 };

fn limited(command: &mut Command, privileges: Privileges) {
    prepare(command, &Child { privileges, bounds: BOUNDS, group: None }).unwrap();
}

fn say(script: &str, privileges: Privileges) -> String {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", script]);
    limited(&mut command, privileges);
    let output = command.output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn line<'t>(text: &'t str, name: &str) -> &'t str {
    text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_else(|| panic!("{name}: {text}")).trim()
}

/// A session without a terminal cannot type into one.
#[test]
fn it_has_no_terminal_and_a_session_of_its_own() {
    let stat = say("cat /proc/$$/stat", NOTHING);
    let (head, rest) = stat.rsplit_once(") ").unwrap();
    let fields: Vec<&str> = rest.split(' ').collect();
    let pid = head.split(' ').next().unwrap();
    assert_eq!((fields[2], fields[3], fields[4]), (pid, pid, "0"), "group, session, terminal of {stat}");
}

#[test]
fn it_has_neither_capabilities_nor_a_way_to_them() {
    let status = say("cat /proc/self/status", NOTHING);
    assert_eq!(line(&status, "NoNewPrivs:"), "1");
    for set in ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"] {
        assert_eq!(line(&status, set), "0000000000000000", "{set}");
    }
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root gives capabilities up, and has any");
        return;
    }
    assert_eq!(line(&status, "CapBnd:"), "0000000000000000");
    // Root keeps those that it was left.
    let status = say("cat /proc/self/status", Privileges::Of { user: None, capabilities: 1 << 5 });
    for set in ["CapPrm:", "CapEff:", "CapBnd:"] {
        assert_eq!(line(&status, set), "0000000000000020", "{set}");
    }
}

#[test]
#[ignore = "needs root: make test-kernel"]
fn it_is_another_user_and_of_no_other_group() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root becomes somebody else");
        return;
    }
    let status =
        say("cat /proc/self/status", Privileges::Of { user: Some((65_534, 65_533)), capabilities: 0 });
    assert_eq!(line(&status, "Uid:"), "65534\t65534\t65534\t65534");
    assert_eq!(line(&status, "Gid:"), "65533\t65533\t65533\t65533");
    assert_eq!(line(&status, "Groups:"), "");
}

#[test]
fn it_takes_no_more_than_it_may() {
    let text = say("cat /proc/self/limits; cat /proc/self/oom_score_adj; umask", NOTHING);
    for (name, most) in [
        ("Max cpu time", "7"),
        ("Max file size", "4096"),
        ("Max core file size", "0"),
        ("Max open files", "64"),
        ("Max address space", "1073741824"),
    ] {
        let words: Vec<&str> = line(&text, name).split_whitespace().collect();
        assert_eq!(words[..2], [most, most], "{name}");
    }
    assert!(text.ends_with("500\n0077\n"), "{text}");
}

#[test]
fn it_ends_with_the_thread_that_started_it() {
    let begin = || {
        let mut command = Command::new("/bin/sleep");
        command.arg("600");
        limited(&mut command, NOTHING);
        command.spawn().unwrap()
    };
    let mut child = std::thread::spawn(begin).join().unwrap();
    assert!(!child.wait().unwrap().success());
}

#[test]
fn files_without_close_on_exec_stay_here() {
    let leaked = std::fs::File::open("/dev/null").unwrap();
    rustix::io::fcntl_setfd(&leaked, rustix::io::FdFlags::empty()).unwrap();
    let names = say("ls /proc/$$/fd", NOTHING);
    assert!(names.lines().all(|name| ["0", "1", "2"].contains(&name)), "{names}");
}
