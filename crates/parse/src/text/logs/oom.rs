//! One event for each kill for lack of memory, out of the lines of its report.
//!
//! ```text
//! Task in /app killed as a result of limit of /app                                         before 4.19
//! Memory cgroup out of memory: Kill process 812 (hog) score 990 or sacrifice child         before 5.2
//! oom-kill:constraint=CONSTRAINT_MEMCG,…,task_memcg=/app,task=hog,pid=812,uid=0            since 4.19
//! Memory cgroup out of memory: Killed process 812 (hog) total-vm:…kB, anon-rss:…kB, …
//! ```

use mitra_model::EventKind;
use mitra_model::time::SECOND;

use crate::text::import::{Import, When};

/// Lines of one report are not farther apart than this.
const REPORT_NS: i64 = 10 * SECOND;

/// A line of a report.
struct Kill {
    when: When,
    at: i64,
    line: u32,
    pid: u32,
    comm: String,
    cgroup: Option<String>,
    /// Whether the line is one of old kernels, which may go on to kill a child of the process that they name.
    is_old: bool,
}

/// What was read of the report so far.
#[derive(Default)]
pub struct Reports {
    announced: Option<Kill>,
    cgroup: Option<String>,
}

/// A row of the table of tasks, `[  812]     0   812     8843     8338 …  0 hog`, or its header.
pub fn is_task_table(text: &str) -> bool {
    let Some((pid, rest)) = text.strip_prefix('[').and_then(|t| t.split_once(']')) else { return false };
    let mut words = rest.split_ascii_whitespace();
    let numbers = words.by_ref().take(5).filter(|w| w.parse::<i64>().is_ok()).count();
    let is_row = numbers == 5 && pid.trim().parse::<u32>().is_ok();
    is_row || (pid.trim() == "pid" && rest.contains("total_vm"))
}

impl Reports {
    /// A line of the kernel that is not about a kill by itself. Whether it is part of a report.
    pub fn part(&mut self, text: &str) -> bool {
        if let Some(rest) = text.strip_prefix("Task in ")
            && let Some((group, _)) = rest.split_once(" killed as a result of limit of ")
        {
            self.cgroup = Some(group.to_owned());
            return true;
        }
        is_task_table(text)
    }

    /// A line that names the victim.
    pub fn kill(&mut self, import: &mut Import, when: When, line: u32, kind: EventKind, is_done: bool) {
        let EventKind::OomKill { pid, comm, mut cgroup, anon_bytes } = kind else { return };
        let at = import.moment(when);
        let is_old = cgroup.is_none();
        let announced = self.announced.take();
        let mut first = when;
        if let Some(known) = announced {
            let is_same = known.pid == pid && (at - known.at).abs() <= REPORT_NS;
            // Old kernels announce a process and kill a child of it.
            let is_child = is_done && known.is_old && (at - known.at).abs() <= SECOND;
            if is_same || is_child {
                cgroup = cgroup.or(known.cgroup);
                first = known.when;
            } else {
                emit(import, known, None);
            }
        }
        cgroup = cgroup.or_else(|| self.cgroup.take());
        let kill = Kill { when: first, at, line, pid, comm, cgroup, is_old };
        if is_done {
            self.cgroup = None;
            emit(import, kill, anon_bytes);
        } else {
            self.announced = Some(kill);
        }
    }

    /// At the end of the log: a report whose last line is not there.
    pub fn finish(&mut self, import: &mut Import) {
        if let Some(known) = self.announced.take() {
            emit(import, known, None);
        }
    }
}

fn emit(import: &mut Import, kill: Kill, anon_bytes: Option<u64>) {
    let Kill { when, line, pid, comm, cgroup, .. } = kill;
    import.event(when, line, EventKind::OomKill { pid, comm, cgroup, anon_bytes });
}
