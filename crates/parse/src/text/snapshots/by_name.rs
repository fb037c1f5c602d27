//! Files of a process, of a control group and of the machine whose lines say little by themselves: their path tells, or
//! their heading.
//!
//! ```text
//! ==> /sys/fs/cgroup/system.slice/app.service/memory.stat <==
//! anon 1048576
//! file 4096
//! ```
//! ```text
//!            CPU0       CPU1
//!  36:          0      86790 PCI-MSIX-0000:00:02.0   1-edge      virtio1-req.0
//! ```
//!
//! The parsers are those of the recorder. Where lines do not depend on each other each is read alone, so that its
//! numbers have its line; sums over all lines have the first.

use mitra_model::{Entity, Frame, Key, NA, Strings};

use super::by_name_process::{self as process, TaskFile};
use super::by_name_sockets as sockets;
use super::names;
use super::sink::Sink;
use super::stamp;
use crate::cgroup::{Cgroup, FILES, File, Hierarchy};
use crate::text::prelude::*;
use crate::{SOURCES, sources::Parse};

/// See the module.
pub const FORMAT: Format = Format::new(
    "files by path or heading",
    "files of a process (`stat`, `statm`, `io`, `schedstat`, `cgroup`, `limits`) and of a cgroup, version 1 and 2, under \
     their own path; `interrupts`, `softirqs`, `locks`, `swaps`, `cpuinfo`, `net/tcp` and `net/stat/nf_conntrack`",
    starts,
    read,
);

/// Lines of one file; `/proc/net/tcp` of a busy machine has most.
const LINES_MAX: usize = 500_000;
/// Its lines are as those of `memory.events`, which counts them with those of the groups in it.
const LOCAL_EVENTS: &str = "memory.events.local";
/// Bytes of one file.
const BYTES_MAX: usize = 64 << 20;

/// What a block of lines is.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum What {
    /// The file of that name of a group.
    Cgroup(String, String),
    Task(u32, TaskFile),
    /// A file of the machine whose first line is a heading, read by the parser of its path.
    Table(&'static str),
    Locks,
    Swaps,
    Cpus,
    Tcp,
    /// It looks like something else and has no metrics: `/proc/schedstat`, `/proc/net/stat/arp_cache`, and the events of a
    /// group that is not told, or without those of the groups in it, whose kills are none of the whole machine.
    Foreign,
}

/// The path that stands before a line or that was said of the lines.
fn path_of<'a>(line: &'a [u8], context: &'a Context) -> (&'a str, &'a [u8]) {
    match names::grep_path(line) {
        Some((path, rest)) => (path, rest),
        None => (names::hint(context), line),
    }
}

/// What the lines at the cursor are.
pub(super) fn what(lines: &mut Lines<'_>, context: &Context) -> Option<What> {
    let line = lines.peek()?;
    let first = *line.trim_ascii_start().first()?;
    if names::banner(line).is_some() {
        return None;
    }
    let (path, rest) = path_of(line, context);
    if has_leaf(path)
        && let Some(found) =
            by_path(path, rest).or_else(|| by_path(path, stamp::prefix(rest).map_or(rest, |(_, rest)| rest)))
    {
        return Some(found);
    }
    // Asked for every line.
    if !matches!(first, b'0'..=b'9' | b'C' | b'e' | b'v' | b's' | b'p' | b'F' | b'l') {
        return None;
    }
    let line = line.trim_ascii();
    if first.is_ascii_digit() {
        if let Some(pid) = process::stat_of(line) {
            return Some(What::Task(pid, TaskFile::Stat));
        }
        return is_lock(line).then_some(What::Locks);
    }
    let mut list = words(line);
    let word = list.next()?;
    match word {
        b"Filename" if list.clone().eq([&b"Type"[..], b"Size", b"Used", b"Priority"]) => Some(What::Swaps),
        b"sl" if sockets::is_heading(line) => Some(What::Tcp),
        b"processor" => (list.next() == Some(b":") && lines.soon(1, is_cpu_line)).then_some(What::Cpus),
        b"low" if list.next().and_then(integer).is_some() && list.next().is_none() => {
            lines.soon(4, |l| l.starts_with(b"oom_kill ")).then_some(What::Foreign)
        }
        b"version" if list.next().and_then(integer).is_some() && list.next().is_none() => {
            lines.soon(1, |l| l.starts_with(b"timestamp ")).then_some(What::Foreign)
        }
        b"entries" if list.clone().count() >= 8 && list.all(|w| integer(w).is_none()) => {
            let is_conntrack = has(line, b"insert_failed") && has(line, b"early_drop");
            Some(if is_conntrack { What::Table("proc/net/stat/nf_conntrack") } else { What::Foreign })
        }
        _ if word.starts_with(b"CPU") => interrupts(lines),
        _ => None,
    }
}

/// `CPU0 CPU1` above rows of interrupts, or of soft interrupts.
fn interrupts(lines: &mut Lines<'_>) -> Option<What> {
    let is_cpu = |w: &[u8]| w.strip_prefix(b"CPU").and_then(integer).is_some();
    if !words(lines.peek()?).all(is_cpu) {
        return None;
    }
    let mut row = words(lines.ahead(1)?);
    let name = row.next()?.strip_suffix(b":")?;
    row.next().and_then(integer)?;
    Some(What::Table(if name == b"HI" { "proc/softirqs" } else { "proc/interrupts" }))
}

fn is_cpu_line(line: &[u8]) -> bool {
    begins(line, &[b"vendor_id", b"BogoMIPS", b"model name", b"cpu ", b"hart", b"vendor_id"])
}

/// `1: POSIX  ADVISORY  WRITE 708 fe:00:12345 0 EOF`.
fn is_lock(line: &[u8]) -> bool {
    let mut list = words(line);
    list.next().and_then(|w| w.strip_suffix(b":")).and_then(integer).is_some()
        && list
            .map(|w| w.strip_prefix(b"->").unwrap_or(w))
            .find(|w| !w.is_empty())
            .is_some_and(|w| matches!(w, b"POSIX" | b"FLOCK" | b"OFDLCK" | b"LEASE" | b"DELEG" | b"ACCESS"))
}

/// Whether a path ends with a name that is told by it.
fn has_leaf(path: &str) -> bool {
    let leaf = path.rsplit('/').next().unwrap_or_default();
    let is_of_group = leaf == LOCAL_EVENTS || FILES.iter().any(|file| file.name == leaf);
    leaf.len() < path.len() && (process::is_leaf(leaf) || is_of_group)
}

/// What a file of that path is. The first line must fit it, so that a file that only has such a name is not taken.
fn by_path(path: &str, line: &[u8]) -> Option<What> {
    let (folder, leaf) = path.trim_end_matches('/').rsplit_once('/')?;
    if let Some(found) = process::file(folder, leaf, line) {
        return Some(found);
    }
    if leaf == LOCAL_EVENTS {
        let mut list = words(line);
        let is_one = list.nth(1).and_then(integer).is_some() && list.next().is_none();
        return is_one.then_some(What::Foreign);
    }
    if !FILES.iter().any(|file| file.name == leaf) {
        return None;
    }
    let group = group_of(folder)?;
    let mut list = words(line);
    let first = list.next()?;
    let (second, rest) = (list.next(), list.next());
    let is_amount = |w: &[u8]| w == b"max" || w == b"-1" || integer(w).is_some();
    let fits = match leaf {
        _ if leaf.ends_with(".pressure") => second.is_some_and(|w| w.starts_with(b"avg10=")),
        "io.stat" | "io.max" => first.contains(&b':') && second.is_none_or(|w| w.contains(&b'=')),
        "cpu.max" => is_amount(first) && second.is_some_and(is_amount),
        _ if leaf.starts_with("blkio.") => first.contains(&b':') || first == b"Total",
        _ if second.is_none() => is_amount(first),
        _ => second.is_some_and(|w| integer(w).is_some()) && rest.is_none(),
    };
    fits.then(|| What::Cgroup(group, leaf.to_owned()))
}

/// The name of the group whose folder that is, as the recorder names it: `/system.slice/app.service`.
fn group_of(folder: &str) -> Option<String> {
    const CONTROLLERS: &[&str] =
        &["memory", "cpu", "cpuacct", "cpu,cpuacct", "blkio", "pids", "unified", "systemd", "cpuset"];
    let inside = match folder.split_once("sys/fs/cgroup") {
        Some((_, inside)) => {
            let inside = inside.trim_matches('/');
            let (first, rest) = inside.split_once('/').unwrap_or((inside, ""));
            if CONTROLLERS.contains(&first) { rest } else { inside }
        }
        None => {
            let is_group = |part: &str| {
                [".slice", ".service", ".scope"].iter().any(|end| part.ends_with(end))
                    || part == "docker"
                    || part == "kubepods"
            };
            let mut at = 0;
            let from = folder.split('/').find_map(|part| {
                let here = at;
                at += part.len() + 1;
                is_group(part).then_some(here)
            });
            let from = from.unwrap_or_else(|| folder.rfind('/').map_or(0, |slash| slash + 1));
            folder.get(from..).filter(|name| !matches!(*name, "" | "." | ".." | "cgroup"))?
        }
    };
    Some(format!("/{inside}"))
}

fn starts(lines: &mut Lines<'_>, context: &Context) -> bool {
    what(lines, context).is_some()
}

/// Lines of one file.
pub(super) struct Block {
    pub when: When,
    pub first: u32,
    /// Each with its newline.
    pub text: Vec<u8>,
}

impl Block {
    /// Its lines, without their newlines, with their numbers.
    pub fn lines(&self) -> impl Iterator<Item = (u32, &[u8])> {
        let list = self.text.strip_suffix(b"\n").unwrap_or(&self.text).split(|b| *b == b'\n');
        (self.first..).zip(list)
    }
}

/// Takes the lines of one file: up to a blank one, a title, another path or another time.
fn block(lines: &mut Lines<'_>, import: &mut Import, what: &What) -> Block {
    let mut block = Block { when: import.now(), first: lines.number(), text: Vec::new() };
    let mut of: Option<(Vec<u8>, Option<When>)> = None;
    for _ in 0..LINES_MAX {
        let Some(line) = lines.peek() else { break };
        let (path, rest) = names::grep_path(line).map_or((&b""[..], line), |(p, rest)| (p.as_bytes(), rest));
        // `/proc/PID/stat` and locks begin with a number, which is no time.
        let stamp = stamp::prefix(rest).filter(|_| !matches!(what, What::Task(..) | What::Locks));
        let (stamp, rest) = stamp.map_or((None, rest), |(when, rest)| (Some(when), rest));
        let is_other = of.as_ref().is_some_and(|(p, s)| p != path || *s != stamp);
        let is_blank = rest.trim_ascii().is_empty();
        if is_other || names::banner(line).is_some() || (is_blank && *what != What::Cpus) {
            break;
        }
        if (is_prompt(rest) || !belongs(what, rest, block.text.is_empty())) && !is_blank {
            break;
        }
        if of.is_none() {
            block.when = stamp.unwrap_or(block.when);
            of = Some((path.to_vec(), stamp));
        }
        if block.text.len() + rest.len() > BYTES_MAX {
            break;
        }
        block.text.extend_from_slice(rest);
        block.text.push(b'\n');
        lines.advance();
    }
    if block.text.is_empty() {
        lines.advance();
    }
    block
}

fn is_prompt(line: &[u8]) -> bool {
    begins(line, &[b"# ", b"$ ", b"zzz"])
}

/// Whether a line can be of the file.
fn belongs(what: &What, line: &[u8], is_first: bool) -> bool {
    let first = words(line).next().unwrap_or_default();
    match what {
        What::Cgroup(..) => clock::whole_line(line, None).is_none(),
        What::Task(_, TaskFile::Stat | TaskFile::Statm | TaskFile::SchedStat) => is_first,
        What::Task(..) => true,
        What::Table(_) => is_first || first.ends_with(b":") || hexadecimal(first).is_some(),
        What::Locks => is_lock(line),
        What::Swaps => is_first || first.starts_with(b"/"),
        What::Cpus => line.contains(&b':'),
        What::Tcp => is_first || first.ends_with(b":"),
        What::Foreign => {
            const OWN: &[&[u8]] = list!("cpu domain timestamp high max oom");
            is_first || begins(first, OWN) || hexadecimal(first).is_some()
        }
    }
}

#[derive(Default)]
struct Reader {
    cgroup: Cgroup,
    parsers: Vec<(&'static str, Parse)>,
    frame: Frame,
    strings: Strings,
    sink: Sink,
    text: Vec<u8>,
}

fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let mut reader = Reader::default();
    while let Some(found) = what(lines, &import.context) {
        let block = block(lines, import, &found);
        match &found {
            What::Cgroup(group, leaf) => reader.cgroup(group, leaf, &block, import),
            What::Task(pid, file) => process::read(*pid, *file, &block, &mut reader.sink, import),
            What::Table(path) => reader.table(path, &block, import),
            What::Locks => reader.locks(&block, import),
            What::Swaps => swaps(&block, &mut reader.sink, import),
            What::Cpus => cpus(&block, import),
            What::Tcp => sockets::read(&block, &mut reader.sink, import),
            What::Foreign => block.lines().for_each(|(at, line)| import.unread(at, line)),
        }
        while lines.at(|line| line.trim_ascii().is_empty()) {
            lines.advance();
        }
    }
}

/// The cells of the row of a group, which is the only one of the frame.
fn begin<'a>(frame: &'a mut Frame, strings: &mut Strings, group: &str) -> &'a mut [i64] {
    frame.clear();
    frame.table_mut(Entity::Cgroup).push(Key::named(strings.intern(group)))
}

impl Reader {
    /// The first file of that name that says something, which version 1 and 2 may both have.
    fn cgroup(&mut self, group: &str, leaf: &str, block: &Block, import: &mut Import) {
        let files: Vec<&File> = FILES.iter().filter(|file| file.name == leaf).collect();
        let count = |file: &File, reader: &mut Reader| {
            let row = begin(&mut reader.frame, &mut reader.strings, group);
            (file.parse)(&mut reader.cgroup, &block.text, row);
            row.iter().filter(|cell| **cell != NA).count()
        };
        let Some(best) = files.into_iter().rev().max_by_key(|file| count(file, self)) else { return };
        let is_sum = best.hierarchy == Hierarchy::V1("blkio") || leaf.starts_with("io.");
        import.format(if matches!(best.hierarchy, Hierarchy::V2) { "cgroup v2" } else { "cgroup v1" });
        let parts: Vec<(u32, &[u8])> =
            if is_sum { vec![(block.first, &block.text[..])] } else { block.lines().collect() };
        for (at, part) in parts {
            self.text.clear();
            self.text.extend_from_slice(part);
            if !is_sum {
                self.text.push(b'\n');
            }
            let row = begin(&mut self.frame, &mut self.strings, group);
            let outcome = (best.parse)(&mut self.cgroup, &self.text, row);
            // `max` says that there is no limit, which has no number.
            if !outcome.is_clean() && part.trim_ascii() != b"max" {
                import.unread(at, part);
            }
            self.sink.frame(import, &self.frame, &self.strings, block.when, at);
            self.average(leaf, group, part, block.when, at, import);
        }
    }

    /// A single reading of the total of `memory.pressure` says nothing; the average over ten seconds does.
    fn average(&mut self, leaf: &str, group: &str, line: &[u8], when: When, at: u32, import: &mut Import) {
        let Some(resource) = leaf.strip_suffix(".pressure") else { return };
        let half = if line.starts_with(b"some") { "some" } else { "full" };
        let average = words(line).nth(1).and_then(|w| number(w.strip_prefix(b"avg10=")?));
        let metric = mitra_model::lookup(&format!("cgroup.psi_{resource}_{half}"));
        if let (Some(metric), Some(average)) = (metric, average) {
            self.sink.put_as(import, metric, Form::Rate, 0.01, group.as_bytes(), when, at, average);
        }
    }

    fn parse(&mut self, path: &'static str, text: &[u8]) -> bool {
        self.frame.clear();
        let at = self.parsers.iter().position(|(known, _)| *known == path).or_else(|| {
            let source = SOURCES.iter().find(|source| source.path == path)?;
            self.parsers.push((path, (source.parser)()));
            Some(self.parsers.len() - 1)
        });
        let parser = at.and_then(|at| self.parsers.get_mut(at));
        parser.is_some_and(|(_, parser)| parser(text, &mut self.strings, &mut self.frame).is_clean())
    }

    /// A table below a heading: each row with the heading, or all where rows are added up.
    fn table(&mut self, path: &'static str, block: &Block, import: &mut Import) {
        import.format(&format!("/{path}"));
        if path.starts_with("proc/net/stat") {
            if !self.parse(path, &block.text) {
                import.unread(block.first, block.lines().next().unwrap_or_default().1);
            }
            self.sink.frame(import, &self.frame, &self.strings, block.when, block.first + 1);
            return;
        }
        let Some((_, heading)) = block.lines().next() else { return };
        for (at, row) in block.lines().skip(1) {
            let text = [heading, b"\n", row, b"\n"].concat();
            if self.parse(path, &text) {
                self.sink.frame(import, &self.frame, &self.strings, block.when, at);
            } else {
                import.unread(at, row);
            }
        }
    }

    fn locks(&mut self, block: &Block, import: &mut Import) {
        import.format("/proc/locks");
        if !self.parse("proc/locks", &block.text) {
            import.unread(block.first, block.lines().next().unwrap_or_default().1);
        }
        let waiting = block.lines().find(|(_, line)| has(line, b"->"));
        match waiting {
            Some((at, _)) => self.sink.frame(import, &self.frame, &self.strings, block.when, at),
            None => {
                import.note("/proc/locks: nobody waits for a lock");
                import.has_read();
            }
        }
    }
}

/// `/dev/vda2 partition 2097148 0 -2` in KiB, of all swap together.
fn swaps(block: &Block, sink: &mut Sink, import: &mut Import) {
    import.format("/proc/swaps");
    let (mut size, mut used) = (0.0, 0.0);
    for (at, line) in block.lines().skip(1) {
        let list: Vec<&[u8]> = words(line).collect();
        let cell = |behind: usize| list.len().checked_sub(behind).and_then(|i| list.get(i)).copied();
        match (cell(3).and_then(integer), cell(2).and_then(integer)) {
            (Some(all), Some(taken)) if taken <= all => {
                (size, used) = (size + all as f64, used + taken as f64)
            }
            _ => return import.unread(at, line),
        }
    }
    for (name, value) in [("mem.swap_total", size), ("mem.swap_free", size - used)] {
        if let Some(metric) = mitra_model::lookup(name) {
            sink.put(import, metric, b"", block.when, block.first, value);
        }
    }
}

/// How many CPUs `/proc/cpuinfo` has.
fn cpus(block: &Block, import: &mut Import) {
    const CPUS_MAX: u32 = 65_536;
    import.format("/proc/cpuinfo");
    let is_one = |line: &[u8]| {
        line.strip_prefix(b"processor").is_some_and(|rest| rest.trim_ascii_start().starts_with(b":"))
    };
    let count = u32::try_from(block.lines().filter(|(_, line)| is_one(line)).count()).unwrap_or(0);
    import.host.cpus = import.host.cpus.max(count.min(CPUS_MAX));
    import.has_read();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_by_their_folder() {
        for (folder, group) in [
            ("/sys/fs/cgroup/system.slice/a.service", Some("/system.slice/a.service")),
            ("sys/fs/cgroup/memory/docker/0123", Some("/docker/0123")),
            ("case/sys/fs/cgroup/cpu,cpuacct/a", Some("/a")),
            ("/sys/fs/cgroup", Some("/")),
            ("host-7/system.slice/a.service", Some("/system.slice/a.service")),
            ("case/app", Some("/app")),
            ("app", Some("/app")),
            ("", None),
        ] {
            assert_eq!(group_of(folder).as_deref(), group, "{folder}");
        }
    }
}
