//! `mitra replay` on a terminal, which tmux makes: keys are pressed and the screen is read.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::harness::{MITRA, archive, run, wait_until};

const TMUX: &str = "/usr/bin/tmux";
/// Nothing of the window is tmux's own, and a key is not waited for after Escape.
const CONFIG: &str = "set -g status off\nset -sg escape-time 0\n";
/// The window stays when the program has ended, and has its exit code.
const SHELL: &str = r#""$0" "$@"; echo "ended with $?"; exec cat"#;

/// A terminal with a server of its own, which ends with it.
struct Terminal {
    dir: tempfile::TempDir,
    name: String,
}

impl Terminal {
    /// `None` without tmux.
    fn open(width: u32, height: u32, args: &[&str], environment: &[(&str, &str)]) -> Option<Self> {
        if !Path::new(TMUX).exists() {
            println!("skipped: {TMUX} is not installed");
            return None;
        }
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("mitra-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let terminal = Terminal { dir: tempfile::tempdir().unwrap(), name };
        let config = terminal.dir.path().join("tmux.conf");
        std::fs::write(&config, CONFIG).unwrap();
        let size = [width.to_string(), height.to_string()];
        let mut command = terminal.command();
        command.arg("-f").arg(config).args(["-u", "new-session", "-d", "-x", &size[0], "-y", &size[1]]);
        command.args(["/bin/sh", "-c", SHELL, MITRA]);
        command.args(args).envs(environment.iter().copied());
        let said = command.output().unwrap();
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
        Some(terminal)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(TMUX);
        command.args(["-L", &self.name]).env("TMUX_TMPDIR", self.dir.path());
        for name in ["TMUX", "NO_COLOR", "COLORTERM", "MITRA_ARCHIVE"] {
            command.env_remove(name);
        }
        command.env("TZ", "UTC").env("LC_ALL", "C.UTF-8");
        // The server outlives the command: it must hold no file of whoever runs the tests.
        // SAFETY: between fork and exec only one system call is made, which allocates nothing.
        unsafe {
            command.pre_exec(|| {
                match libc::close_range(3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC as libc::c_int) {
                    0 => Ok(()),
                    _ => Err(std::io::Error::last_os_error()),
                }
            });
        }
        command
    }

    fn tmux(&self, args: &[&str]) -> Output {
        self.command().args(args).output().unwrap()
    }

    fn press(&self, keys: &[&str]) {
        assert!(self.tmux(&[&["send-keys"], keys].concat()).status.success(), "{keys:?}");
    }

    fn screen(&self) -> String {
        String::from_utf8(self.tmux(&["capture-pane", "-p"]).stdout).unwrap()
    }

    /// What the mouse sends for a button on a cell that has a text, some columns behind the text's first one.
    fn mouse(&self, button: u32, text: &str, behind: usize) {
        let screen = self.see(text);
        let cell = screen.lines().enumerate().find_map(|(y, line)| Some((line.find(text)?, y, line)));
        let (at, y, line) = cell.unwrap();
        let x = line[..at].chars().count() + behind;
        let bytes = format!("\x1b[<{button};{};{}M", x + 1, y + 1);
        let hex: Vec<String> = bytes.bytes().map(|byte| format!("{byte:02x}")).collect();
        let keys: Vec<&str> = hex.iter().map(String::as_str).collect();
        assert!(self.tmux(&[&["send-keys", "-H"], &keys[..]].concat()).status.success(), "{bytes:?}");
    }

    /// Whether the program wants presses of buttons, and numbers of any size.
    fn has_mouse(&self) -> bool {
        let flags = self.tmux(&["list-panes", "-F", "#{mouse_standard_flag} #{mouse_sgr_flag}"]).stdout;
        match String::from_utf8(flags).unwrap().trim() {
            "1 1" => true,
            "0 0" => false,
            other => panic!("{other}"),
        }
    }

    /// The screen as soon as it is like this, and stays so for a look: tmux also shows a picture that has come in part.
    fn when(&self, what: &str, is_so: impl Fn(&str) -> bool) -> String {
        let mut screen = String::new();
        let looked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            wait_until(what, || {
                let before = std::mem::replace(&mut screen, self.screen());
                is_so(&screen) && screen == before
            });
        }));
        assert!(looked.is_ok(), "{what} is never so:\n{screen}");
        screen
    }

    fn see(&self, text: &str) -> String {
        self.when(text, |screen| screen.contains(text))
    }

    /// Presses a key that ends the program in order, and gives the terminal back.
    fn quit(self, key: &str) {
        self.press(&[key]);
        let screen = self.see("ended with 0");
        assert!(!screen.contains("REPLAY") && !screen.contains("LIVE"), "{screen}");
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

fn lab(recording: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/recordings").join(recording);
    path.canonicalize().unwrap().to_str().unwrap().to_owned()
}

/// The chosen row of the table.
fn chosen(screen: &str) -> &str {
    screen.lines().find(|line| line.starts_with('>')).unwrap_or_default()
}

/// Two recordings of the laboratory as one, with minutes between them.
fn two() -> (tempfile::TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    for (i, recording) in ["swap-thrash.loud.101", "disk-hog-writes.loud.101"].iter().enumerate() {
        let from = PathBuf::from(lab(recording)).join("archive/0000000001.seg");
        std::fs::copy(from, dir.path().join(format!("000000000{}.seg", i + 1))).unwrap();
    }
    let path = dir.path().to_str().unwrap().to_owned();
    (dir, path)
}

#[test]
fn the_root_cause_is_one_key_away_at_each_size() {
    for (width, height) in [(80, 24), (120, 40), (200, 60)] {
        let flood = lab("flood-once.loud.7919");
        let Some(terminal) = Terminal::open(width, height, &["replay", &flood], &[]) else { return };
        let first =
            terminal.when("the first incident", |s| s.contains("INCIDENT") && s.contains("CPU of dd"));
        assert!(first.contains("page cache pollution by a streaming read"), "{first}");
        assert!(chosen(&first).contains(" dd "), "top has it first: {first}");
        insta::assert_snapshot!(format!("replay_{width}x{height}"), first);
        terminal.press(&["i"]);
        let cause = terminal.see("ROOT CAUSE");
        for part in ["streaming-read-flood", "dd (pid 28310, measured)", "DO ", "How it came about"] {
            assert!(cause.contains(part), "{part}: {cause}");
        }
        terminal.press(&["q"]);
        terminal.see("1 processes");
        terminal.quit("q");
    }
}

#[test]
fn rows_are_filtered_sorted_and_looked_into() {
    let flood = lab("flood-once.loud.7919");
    let Some(terminal) = Terminal::open(80, 24, &["replay", &flood], &[]) else { return };
    terminal.when("a table", |screen| screen.contains("INCIDENT") && chosen(screen).contains(" dd "));
    terminal.press(&["M"]);
    let by_memory = terminal.when("the largest", |screen| chosen(screen).contains("stockd"));
    assert!(by_memory.contains("▼MEM"), "{by_memory}");
    terminal.press(&["F5"]);
    terminal.see("└─");
    terminal.press(&["F5", "/", "s", "t", "o", "c", "k"]);
    terminal.see("only rows with: stock_");
    terminal.press(&["Enter"]);
    let filtered = terminal.when("the filter", |s| s.contains(" /stock") && !s.contains(" mitra-lab "));
    assert!(chosen(&filtered).contains("stockd"), "{filtered}");
    // What was chosen is looked into, and goes with the time.
    terminal.press(&["Enter"]);
    let zoom = terminal.see("child of");
    assert!(zoom.contains("stockd (28304)") && zoom.contains("MAJFLT"), "{zoom}");
    terminal.press(&["t"]);
    terminal.see("00:14:00 UTC");
    terminal.press(&["T"]);
    terminal.see("00:13:59 UTC");
    assert!(terminal.tmux(&["resize-window", "-x", "120", "-y", "40"]).status.success());
    terminal.press(&["Escape"]);
    let wide = terminal.see("RECORDER");
    assert!(wide.lines().count() >= 39 && wide.contains("CPUWAIT"), "{wide}");
    terminal.press(&["Escape"]);
    terminal.see(" mitra-lab ");
    for (panel, head) in [
        ("7", "▼GROWTH"),
        ("2", "CGROUP"),
        ("3", "R-TIME"),
        ("4", "RXPKTS"),
        ("5", "SERVICE"),
        ("6", "ROOT CAUSE, CULPRIT"),
    ] {
        terminal.press(&[panel]);
        terminal.see(head);
    }
    terminal.press(&["?"]);
    terminal.see("next, previous sample");
    terminal.press(&["x"]);
    terminal.see("ROOT CAUSE, CULPRIT");
    terminal.quit("C-c");
}

#[test]
fn time_is_travelled_and_gaps_are_told() {
    let (_dir, path) = two();
    let Some(terminal) = Terminal::open(80, 24, &["replay", "--archive", &path], &[]) else { return };
    terminal.see("INCIDENT 1 of 3");
    terminal.press(&["n"]);
    terminal.see("INCIDENT 2 of 3");
    terminal.press(&["n"]);
    let hog = terminal.see("INCIDENT 3 of 3");
    assert!(
        hog.contains("fio (11608): one program fills a disk's queue") && hog.contains("18:39:42"),
        "{hog}"
    );
    terminal.press(&["p"]);
    terminal.see("INCIDENT 2 of 3");
    // A time that was not recorded.
    terminal.press(&["b", "1", "8", ":", "3", "0", "Enter"]);
    let gap = terminal.see("no sample between 2026-11-21 18:27:1");
    assert!(gap.contains("18:30:00") && !gap.contains(" CPU ×"), "{gap}");
    terminal.press(&["t"]);
    let after = terminal.see("after a gap of 12 min");
    assert!(after.contains("CPU ×2"), "{after}");
    terminal.press(&["T"]);
    terminal.see("2026-11-21 18:27:1");
    terminal.press(&["b", "x", "Enter"]);
    terminal.see("not a time");
    terminal.press(&["Escape"]);
    terminal.see("q quit");
    terminal.press(&["g"]);
    terminal.see("0 s in,");
    terminal.press(&["."]);
    terminal.see("2026-11-21 18:27:0");
    terminal.press(&["End"]);
    terminal.see("0 s before the end");
    terminal.quit("F10");
}

#[test]
fn it_opens_where_it_is_told_and_without_colours() {
    let flood = lab("flood-once.loud.7919");
    let args = ["replay", &flood, "--at", "00:14:04", "--since", "2026-11-22 00:13:55"];
    let Some(terminal) = Terminal::open(80, 24, &args, &[("NO_COLOR", "1")]) else { return };
    terminal.see("2026-11-22 00:14:0");
    terminal.see("INCIDENT");
    let bytes = terminal.tmux(&["capture-pane", "-p", "-e"]).stdout;
    let coloured = String::from_utf8(bytes).unwrap();
    let codes = coloured.split("\x1b[").skip(1).filter_map(|rest| rest.split('m').next());
    let codes: Vec<&str> = codes.flat_map(|codes| codes.split(';')).collect();
    // 39 and 49 are the terminal's own colours.
    let is_colour = |code: &&str| {
        code.parse()
            .is_ok_and(|code: u32| [30..39, 40..49, 90..108].iter().any(|range| range.contains(&code)))
    };
    assert!(codes.contains(&"7"), "the chosen row is reversed: {codes:?}");
    assert!(!codes.iter().any(is_colour), "{codes:?}");
    terminal.quit("q");
}

#[test]
fn the_panel_of_memory_has_room_at_each_size() {
    for (width, height) in [(80, 24), (120, 40)] {
        let thrash = lab("swap-thrash.loud.101");
        let Some(terminal) = Terminal::open(width, height, &["replay", &thrash], &[]) else { return };
        terminal.when("a table", |screen| screen.contains("INCIDENT") && !chosen(screen).is_empty());
        terminal.press(&["7"]);
        let memory = terminal.when("the curve of the chosen row", |screen| {
            screen.contains("▼GROWTH") && screen.contains(" GROWTH of ") && screen.contains(", mean ")
        });
        for label in ["AVAILABLE", "ANONYMOUS", "PAGE-CACHE", "SLAB", "DIRTY", "SWAP", "RECLAIM", "PRESSURE"]
        {
            assert!(memory.contains(label), "{label}: {memory}");
        }
        insta::assert_snapshot!(format!("replay_memory_{width}x{height}"), memory);
        terminal.quit("q");
    }
}

#[test]
fn the_mouse_is_used_where_it_is_wanted() {
    const LEFT: u32 = 0;
    const WHEEL_DOWN: u32 = 65;
    let flood = lab("flood-once.loud.7919");
    let Some(terminal) = Terminal::open(120, 40, &["replay", &flood], &[]) else { return };
    terminal.when("a table", |screen| screen.contains("INCIDENT") && chosen(screen).contains(" dd "));
    assert!(!terminal.has_mouse(), "the terminal selects text as ever");
    terminal.press(&["m"]);
    wait_until("the mouse is reported", || terminal.has_mouse());
    terminal.mouse(LEFT, "  MEM", 2);
    terminal.when("the largest", |screen| screen.contains("▼MEM") && chosen(screen).contains("stockd"));
    terminal.mouse(LEFT, "▼MEM", 1);
    terminal.see("▲MEM");
    terminal.mouse(LEFT, "▲MEM", 1);
    terminal.see("▼MEM");
    terminal.mouse(WHEEL_DOWN, "PID S NAME", 0);
    terminal.when("another row", |screen| !chosen(screen).is_empty() && !chosen(screen).contains("stockd"));
    terminal.mouse(LEFT, "28310 ", 0);
    terminal.when("dd is chosen", |screen| chosen(screen).contains("28310"));
    terminal.mouse(LEFT, "28310 ", 0);
    terminal.see("child of");
    terminal.press(&["Escape"]);
    terminal.mouse(LEFT, " 3 disks", 1);
    terminal.see("R-TIME");
    // The first column of the time line.
    terminal.mouse(LEFT, "00:13:49 ", "00:13:49 ".len());
    terminal.see("0 s in,");
    terminal.press(&["m"]);
    wait_until("the terminal has its mouse again", || !terminal.has_mouse());
    terminal.press(&["m"]);
    wait_until("the mouse is reported", || terminal.has_mouse());
    terminal.press(&["q"]);
    terminal.see("ended with 0");
    assert!(!terminal.has_mouse(), "the next program has no use for it");
}

#[test]
fn a_terminal_of_millions_of_colours_gets_them() {
    let flood = lab("flood-once.loud.7919");
    let environment = [("COLORTERM", "truecolor")];
    let Some(terminal) = Terminal::open(80, 24, &["replay", &flood], &environment) else { return };
    terminal.see("INCIDENT");
    let screen = String::from_utf8(terminal.tmux(&["capture-pane", "-p", "-e"]).stdout).unwrap();
    assert!(screen.contains("38;2;"), "{screen:?}");
    terminal.quit("q");
}

/// `mitra live` has the same screen, at the end of what is recorded.
#[test]
fn live_follows_the_end_and_can_go_back() {
    let dir = tempfile::tempdir().unwrap();
    let args =
        ["live", "--no-bpf", "--no-arm", "--interval", "200ms", "--archive", dir.path().to_str().unwrap()];
    let Some(terminal) = Terminal::open(80, 24, &args, &[]) else { return };
    terminal.when("a table", |screen| screen.contains(" LIVE ") && !chosen(screen).is_empty());
    terminal.press(&["g"]);
    terminal.see(" REPLAY ");
    terminal.press(&["G"]);
    terminal.see(" LIVE ");
    terminal.quit("q");
}

#[test]
fn without_a_terminal_it_says_what_to_use() {
    let said = run(&["replay", "--archive", archive()]);
    assert_eq!((said.code, said.out.as_str()), (2, ""));
    assert!(
        said.err.contains("no terminal")
            && said.err.contains("mitra explain")
            && said.err.contains("mitra dump"),
        "{}",
        said.err
    );
}
