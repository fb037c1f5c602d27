//! Long output on a terminal is shown by a pager.
//!
//! `mitra page` starts it, a process of its own: by the time there is something to print this one may have given up starting
//! programs. It holds the output back until there is more of it than the screen has lines, and prints it where there is not.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use mitra_inspect::is_trusted_program;

use crate::signals;

/// Names of programs are looked for here and not in PATH, which whoever called `sudo` may have set.
const PATH: [&str; 2] = ["/usr/bin", "/bin"];
/// Colours are passed on, the text stays on the screen, and what fits it is not paged.
const DEFAULT: &str = "less -FRX";
/// What a pager needs of the environment. Among the rest are programs that less would start.
const ENVIRONMENT: [&str; 8] =
    ["TERM", "COLORTERM", "LANG", "LC_ALL", "LC_CTYPE", "LESSCHARSET", "COLUMNS", "LINES"];

/// Programs that root starts: all that a shell or an editor would do with their arguments they do not.
const OF_ROOT: [&str; 3] = ["less", "more", "most"];

static PAGE: Mutex<Option<Child>> = Mutex::new(None);

fn running() -> MutexGuard<'static, Option<Child>> {
    PAGE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts `mitra page`, if standard output is a terminal and there is a pager. Before this process gives up its privileges.
pub fn start() {
    use std::io::IsTerminal;
    let can_scroll = std::env::var_os("TERM").is_some_and(|term| !term.is_empty() && term != "dumb");
    if !can_scroll || !io::stdout().is_terminal() || pager().is_none() {
        return;
    }
    let started = Command::new("/proc/self/exe").arg("page").stdin(Stdio::piped()).spawn();
    let Ok(child) = started else { return };
    signals::outlive_closed_pipe();
    *running() = Some(child);
}

/// The process that this one has to be able to wait for.
pub fn child() -> Option<u32> {
    running().as_ref().map(Child::id)
}

/// Standard output, or the pager in front of it.
pub struct Output;

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut running = running();
        let Some(pipe) = running.as_mut().and_then(|child| child.stdin.as_mut()) else {
            return io::stdout().write(bytes);
        };
        // From the first line on Ctrl-C is for the pager.
        signals::ignore_interrupt();
        pipe.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stdout().flush()
    }
}

/// Waits until everything was read or the reader has seen enough.
pub fn finish() {
    let child = running().take();
    if let Some(mut child) = child {
        drop(child.stdin.take());
        // Nobody is left to be told.
        _ = child.wait();
    }
}

/// Whether an error only says that the reader has left the pager.
pub fn is_left(error: &anyhow::Error) -> bool {
    error.chain().filter_map(|e| e.downcast_ref::<io::Error>()).any(|e| e.kind() == io::ErrorKind::BrokenPipe)
}

/// `mitra page`: shows standard input.
pub fn page() -> io::Result<()> {
    let screen = rustix::termios::tcgetwinsize(io::stdout()).map_or((24, 80), |s| (s.ws_row, s.ws_col));
    let mut input = io::stdin().lock();
    let mut held = Vec::new();
    let mut part = vec![0; 1 << 16];
    let mut is_all = false;
    while !is_all && fits(&held, screen) {
        let read = input.read(&mut part)?;
        held.extend_from_slice(&part[..read]);
        is_all = read == 0;
    }
    let pager = if fits(&held, screen) { None } else { pager() };
    let Some(mut child) = pager.and_then(|mut pager| pager.stdin(Stdio::piped()).spawn().ok()) else {
        let mut out = io::stdout().lock();
        out.write_all(&held)?;
        io::copy(&mut input, &mut out)?;
        return out.flush();
    };
    signals::ignore_interrupt();
    if let Some(mut pipe) = child.stdin.take() {
        // It may end before it has read everything.
        _ = pipe.write_all(&held).and_then(|()| io::copy(&mut input, &mut pipe).map(|_| ()));
    }
    child.wait().map(|_| ())
}

/// Whether a screen of so many lines and columns has room for it, and for the prompt below.
fn fits(text: &[u8], (rows, columns): (u16, u16)) -> bool {
    let columns = usize::from(columns.max(1));
    let lines = String::from_utf8_lossy(text);
    let high: usize = lines.lines().map(|line| visible(line).div_ceil(columns).max(1)).sum();
    high < usize::from(rows)
}

/// Columns of a line, without its colours.
fn visible(line: &str) -> usize {
    let mut is_code = false;
    let mut count = 0;
    for c in line.chars() {
        match (is_code, c) {
            (false, '\x1b') => is_code = true,
            (true, 'm') => is_code = false,
            (false, _) => count += 1,
            (true, _) => {}
        }
    }
    count
}

/// The pager of the environment, or `less`; `None` if output is not to be paged, or the program is not to be started.
fn pager() -> Option<Command> {
    let set = ["MITRA_PAGER", "PAGER"].iter().find_map(std::env::var_os);
    let line = set.map_or_else(|| Some(DEFAULT.to_owned()), |value| value.into_string().ok())?;
    let mut words = line.split_whitespace();
    let program = find(words.next()?)?;
    let name = program.file_name()?.to_str()?;
    if name == "cat" || rustix::process::geteuid().is_root() && !OF_ROOT.contains(&name) {
        return None;
    }
    let mut command = Command::new(program);
    command.args(words).env_clear();
    command.envs(ENVIRONMENT.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    // Starts no other program and writes no file.
    command.env("LESSSECURE", "1").env("LESSHISTFILE", "-").env("LESS", "FRX");
    Some(command)
}

/// The file of a program, by its whole path or its name, if only root and whoever runs this can change it.
fn find(program: &str) -> Option<PathBuf> {
    let places: Vec<PathBuf> = match program.starts_with('/') {
        true => vec![program.into()],
        // A relative path depends on the directory.
        false if program.contains('/') => Vec::new(),
        false => PATH.iter().map(|dir| Path::new(dir).join(program)).collect(),
    };
    let real = places.iter().find_map(|place| place.canonicalize().ok())?;
    is_trusted_program(&real).then_some(real)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_the_screen_is_known_by_its_lines_and_columns() {
        assert!(fits(b"", (24, 80)) && fits(b"one\ntwo\n", (3, 80)));
        assert!(!fits(b"one\ntwo\n", (2, 80)), "the prompt needs a line");
        assert!(!fits("x".repeat(161).as_bytes(), (3, 80)), "a line that is wrapped");
        let coloured = format!("\x1b[1;31m{}\x1b[0m", "x".repeat(80));
        assert!(fits(coloured.as_bytes(), (2, 80)));
    }

    #[test]
    fn only_programs_that_others_cannot_change_are_found() {
        assert!(find("sh").is_some_and(|path| path.is_absolute()));
        assert_eq!(find("/bin/sh"), find("sh"));
        for wrong in ["./sh", "bin/sh", "../bin/sh", "/nonexistent/less", "no-such-pager", ""] {
            assert_eq!(find(wrong), None, "{wrong}");
        }
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let file = dir.path().join("pager");
        std::fs::write(&file, "").unwrap();
        let with = |mode| {
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
            find(file.to_str().unwrap()).is_some()
        };
        let is_mine = with(0o755);
        assert!(!with(0o775) && !with(0o757), "others can write to it");
        if !is_mine {
            println!("skipped: others can change the directories of this checkout");
        }
    }
}
