//! The tasks that were seen, so that a line about one of them costs a comparison.

use std::collections::HashMap;

use crate::text::prelude::*;

/// Tasks that are remembered; a file with more is read more slowly.
const TASKS_MAX: usize = 1 << 18;
/// The kernel's names have at most 15 bytes; what is longer is a command line, or a name that the kernel adds to.
const COMM_MAX: usize = 15;

struct Task {
    pid: u32,
    tgid: Option<u32>,
    command: Box<[u8]>,
    row: Box<[u8]>,
}

/// See the module.
#[derive(Default)]
pub(super) struct Tasks {
    known: Vec<Task>,
    by_pid: HashMap<u32, usize>,
    /// Samples name the tasks in the same order: the place of the one that came last.
    last: usize,
}

impl Tasks {
    /// The name of the row of a task. `tgid` is its process, if known.
    #[inline]
    pub fn row(&mut self, import: &mut Import, pid: u32, tgid: Option<u32>, command: &[u8]) -> &[u8] {
        let next = self.last + 1;
        let guess = if self.known.get(next).is_some_and(|t| t.pid == pid) {
            Some(next)
        } else {
            self.by_pid.get(&pid).copied()
        };
        let same = |t: &Task| t.tgid == tgid && *t.command == *command;
        let i = match guess.filter(|i| self.known.get(*i).is_some_and(same)) {
            Some(i) => i,
            None => self.add(import, pid, tgid, command),
        };
        self.last = i;
        self.known.get(i).map_or(&[], |t| &t.row)
    }

    #[cold]
    fn add(&mut self, import: &mut Import, pid: u32, tgid: Option<u32>, command: &[u8]) -> usize {
        let row = import.task(pid, &text(comm(command)));
        if tgid != Some(pid) {
            // A thread. Where the lines above do not say of which process, it is not known.
            let process = tgid.map_or(f64::NAN, f64::from);
            import.value("task.tgid", &row, Form::Level, When::Fact, 0, process);
        }
        let task = Task { pid, tgid, command: command.into(), row: row.into_bytes().into() };
        if let Some(i) = self.by_pid.get(&pid).copied()
            && let Some(known) = self.known.get_mut(i)
        {
            *known = task;
            return i;
        }
        if self.known.len() >= TASKS_MAX {
            self.known.clear();
            self.by_pid.clear();
        }
        self.known.push(task);
        self.by_pid.insert(pid, self.known.len() - 1);
        self.known.len() - 1
    }
}

/// The name of a task in what stands in the column Command: threads have a mark before it, and with `-l` it is the
/// whole command line, of which the name of the program is kept.
fn comm(command: &[u8]) -> &[u8] {
    // Old versions print the name of the process before it: `(java)__GC Thread#0`.
    let named = || {
        let end = memchr::memmem::find(command, b")__").filter(|_| command.starts_with(b"("))?;
        command.get(end + 3..)
    };
    let name = command.strip_prefix(b"|__").or_else(named).unwrap_or(command);
    let first = words(name).next().unwrap_or(name);
    if name.starts_with(b"/") {
        return first.rsplit(|b| *b == b'/').next().filter(|n| !n.is_empty()).unwrap_or(first);
    }
    let is_line = first.len() < name.len() && (name.len() > COMM_MAX || has(name, b" -"));
    if !is_line {
        return name;
    }
    first.strip_suffix(b":").unwrap_or(first)
}

#[cfg(test)]
mod tests {
    use super::comm;

    #[test]
    fn names_of_command_lines() {
        for (command, name) in [
            ("java", "java"),
            ("|__C2 CompilerThre", "C2 CompilerThre"),
            ("|__GC Thread#0", "GC Thread#0"),
            ("(java)__GC Thread#0", "GC Thread#0"),
            ("/usr/lib/jvm/bin/java -Xmx1g -jar x.jar", "java"),
            ("/usr/sbin/cron", "cron"),
            ("python3 -m http.server", "python3"),
            ("postgres: walwriter", "postgres"),
            ("kworker/u8:3-events_unbound", "kworker/u8:3-events_unbound"),
            ("tmux: server", "tmux: server"),
        ] {
            assert_eq!(comm(command.as_bytes()), name.as_bytes(), "{command}");
        }
    }
}
