//! Files of a process, known by their path: `/proc/4242/io`. `/proc/4242/stat` is known without it.

use mitra_model::{Entity, Frame, Key, Strings, lookup};

use super::by_name::{Block, What};
use super::sink::Sink;
use crate::task::task_stat;
use crate::task_status::{TaskFiles, cgroup_path};
use crate::text::prelude::*;

/// Bytes of a page: that of x86, and of most others.
const PAGE: u64 = 4096;

/// A file of a process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum TaskFile {
    Stat,
    Statm,
    Io,
    SchedStat,
    Cgroup,
    Limits,
}

/// Whether a file of a process has that name.
pub(super) fn is_leaf(leaf: &str) -> bool {
    matches!(leaf, "statm" | "io" | "schedstat" | "cgroup" | "limits")
}

/// What `folder/leaf` is, if it is of a process and the line fits.
pub(super) fn file(folder: &str, leaf: &str, line: &[u8]) -> Option<What> {
    let numbers = |n: usize| words(line).count() == n && words(line).all(|w| integer(w).is_some());
    let (file, fits) = match leaf {
        "statm" => (TaskFile::Statm, numbers(7)),
        "io" => (TaskFile::Io, line.starts_with(b"rchar: ")),
        "schedstat" => (TaskFile::SchedStat, numbers(3)),
        "cgroup" => (TaskFile::Cgroup, line.first().is_some_and(u8::is_ascii_digit) && has(line, b":/")),
        "limits" => (TaskFile::Limits, line.starts_with(b"Limit ") && has(line, b"Soft Limit")),
        _ => return None,
    };
    // `/proc/4242`, `proc/4242/task/4243`, and the same with `_` where paths became names.
    let pid = folder.rsplit('/').next()?.parse::<u32>().ok()?;
    (fits && pid > 0 && folder.contains("proc")).then_some(What::Task(pid, file))
}

/// The process of a line of `/proc/PID/stat`.
pub(super) fn stat_of(line: &[u8]) -> Option<u32> {
    memchr::memchr(b'(', line.get(..line.len().min(12))?)?;
    let text = [line, b"\n"].concat();
    task_stat(&text).map(|stat| stat.tid)
}

pub(super) fn read(pid: u32, file: TaskFile, block: &Block, sink: &mut Sink, import: &mut Import) {
    let files = TaskFiles::new(PAGE);
    let row = format!("{pid}@0");
    let mut task = Task { pid, frame: Frame::default(), strings: Strings::default(), sink };
    match file {
        TaskFile::Stat => {
            import.format("/proc/PID/stat");
            let Some(stat) = task_stat(&block.text) else { return };
            import.task(pid, &text(stat.comm));
            // Without delay accounting the kernel leaves the delay at zero.
            let strings = &mut Strings::default();
            let cells = task.begin();
            files.columns().stat(&stat, true, stat.blkio > 0, strings, cells);
            task.put(block.when, block.first, import);
            if let Some(metric) = lookup("task.rss") {
                let bytes = stat.rss.max(0) as f64 * PAGE as f64;
                task.sink.put_as(
                    import,
                    metric,
                    Form::Level,
                    1.0,
                    row.as_bytes(),
                    block.when,
                    block.first,
                    bytes,
                );
            }
        }
        TaskFile::Statm => {
            import.format("/proc/PID/statm");
            let pages: Vec<u64> = words(block.text.trim_ascii()).filter_map(integer).collect();
            for (name, pages) in ["task.vsize", "task.rss"].into_iter().zip(pages) {
                let Some(metric) = lookup(name) else { continue };
                let bytes = pages as f64 * PAGE as f64;
                task.sink.put_as(
                    import,
                    metric,
                    Form::Level,
                    1.0,
                    row.as_bytes(),
                    block.when,
                    block.first,
                    bytes,
                );
            }
        }
        TaskFile::Io => {
            import.format("/proc/PID/io");
            let mut files = files;
            for (at, line) in block.lines() {
                let text = [line, b"\n"].concat();
                if !files.io(&text, task.begin()).is_clean() {
                    import.unread(at, line);
                }
                task.put(block.when, at, import);
            }
        }
        TaskFile::SchedStat => {
            import.format("/proc/PID/schedstat");
            if !files.schedstat(&block.text, task.begin()).is_clean() {
                import.unread(block.first, &block.text);
            }
            task.put(block.when, block.first, import);
        }
        TaskFile::Cgroup => {
            import.format("/proc/PID/cgroup");
            if let Some(path) = cgroup_path(&block.text).0 {
                import.text_at("task.cgroup", &row, block.when, block.first, &text(path));
            }
        }
        TaskFile::Limits => {
            import.format("/proc/PID/limits");
            for (at, line) in block.lines() {
                // The soft limit counts.
                let soft = line.strip_prefix(b"Max open files").and_then(|rest| words(rest).next());
                if let Some(soft) = soft.and_then(integer) {
                    import.value("task.fd_limit", &row, Form::Level, block.when, at, soft as f64);
                }
            }
        }
    }
}

/// The row of one process.
struct Task<'a> {
    pid: u32,
    frame: Frame,
    strings: Strings,
    sink: &'a mut Sink,
}

impl Task<'_> {
    fn begin(&mut self) -> &mut [i64] {
        self.frame.clear();
        self.frame.table_mut(Entity::Task).push(Key::task(self.pid, 0))
    }

    fn put(&mut self, when: When, line: u32, import: &mut Import) {
        self.sink.frame(import, &self.frame, &self.strings, when, line);
    }
}
