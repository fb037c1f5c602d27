//! What `sadf -j` prints: JSON, as it comes or laid out anew by another tool. It is read as a stream of tokens, so that
//! its size does not matter and every number has the line that it stands on.
//!
//! ```text
//! {"sysstat": {
//!   "hosts": [
//!     {
//!       "nodename": "vm", "release": "6.18.44", "number-of-cpus": 2,
//!       "statistics": [
//!         {
//!           "timestamp": {"date": "2026-11-21", "time": "13:30:15", "utc": 1, "interval": 1},
//!           "cpu-load": [
//!             {"cpu": "all", "usr": 49.50, "nice": 0.00, "sys": 50.00, "iowait": 0.00, "idle": 0.00}
//! ```
//!
//! Names lack what sar puts around them: `pgpgin` is `pgpgin/s`, `usr` is `%usr`, `memfree` is `kbmemfree`. A JSON
//! document on one line is read up to the length that lines may have.

use mitra_model::time::SECOND;

use super::super::clock::{date, time_of_day};
use super::super::import::{DAY, Import, When};
use super::super::number::{number, text};
use super::super::{Context, Format, Lines};
use super::plan::{COLUMNS_MAX, Cells, Plan, Plans};
use super::sar_columns::Kind;

/// See the module.
pub const FORMAT: Format = Format { name: "sadf -j", what: "data files of sadc as JSON", starts, read };

/// Objects and arrays within each other.
const DEPTH_MAX: usize = 24;
/// Bytes of a string.
const STRING_MAX: usize = 1024;

fn starts(lines: &mut Lines<'_>, _: &Context) -> bool {
    let Some(rest) = lines.peek().and_then(|l| l.trim_ascii().strip_prefix(b"{")) else { return false };
    let rest = rest.trim_ascii();
    if rest.is_empty() {
        return lines.ahead(1).is_some_and(|l| l.trim_ascii().starts_with(b"\"sysstat\""));
    }
    rest.starts_with(b"\"sysstat\"")
}

fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let mut reader = Reader {
        levels: Vec::new(),
        key: Vec::new(),
        plans: Plans::default(),
        cells: [f64::NAN; COLUMNS_MAX],
        moment: None,
        ended: false,
    };
    while !reader.ended {
        let at = lines.number();
        let Some(line) = lines.peek() else { break };
        if !reader.line(line, at, import) {
            import.unread(at, line);
            import.note(
                "the JSON of sadf breaks off or is damaged: what stands behind the damage was not read",
            );
            lines.advance();
            break;
        }
        lines.advance();
    }
    reader.plans.note(import);
}

/// One object or array that is open.
struct Level {
    /// The key that it has, or that the array around it has.
    section: Vec<u8>,
    is_array: bool,
    /// The name of the thing that the object is about.
    name: Vec<u8>,
    /// Keys of numbers, each with a blank behind it, and the numbers.
    keys: Vec<u8>,
    numbers: Vec<f64>,
    /// The line of the first number.
    line: u32,
    /// `date` and `time` of a time stamp.
    day: Option<i64>,
    clock: Option<i64>,
}

struct Reader {
    levels: Vec<Level>,
    /// The key whose value comes next.
    key: Vec<u8>,
    plans: Plans,
    cells: Cells,
    /// When the numbers that come were, and when their interval began.
    moment: Option<(i64, i64)>,
    ended: bool,
}

impl Reader {
    /// Takes one line. Whether it is JSON.
    fn line(&mut self, line: &[u8], at: u32, import: &mut Import) -> bool {
        let mut rest = line;
        loop {
            rest = rest.trim_ascii_start();
            let Some((byte, tail)) = rest.split_first() else { return true };
            rest = tail;
            match byte {
                b'{' | b'[' => {
                    if self.levels.len() >= DEPTH_MAX {
                        return false;
                    }
                    self.open(*byte == b'[');
                }
                b'}' | b']' => {
                    if !self.close(*byte == b']', import) {
                        return false;
                    }
                    if self.levels.is_empty() {
                        self.ended = true;
                        return true;
                    }
                }
                b',' | b':' => {}
                b'"' => {
                    let Some((string, after)) = string(tail) else { return false };
                    rest = after;
                    let is_key = after.trim_ascii_start().first() == Some(&b':');
                    let in_object = self.levels.last().is_some_and(|l| !l.is_array);
                    if is_key && in_object {
                        self.key.clear();
                        self.key.extend_from_slice(string);
                    } else {
                        self.string(string, import);
                    }
                }
                _ => {
                    let end = tail
                        .iter()
                        .position(|b| matches!(b, b',' | b'}' | b']') || b.is_ascii_whitespace())
                        .unwrap_or(tail.len());
                    let word = line.len() - tail.len() - 1;
                    let Some(word) = line.get(word..word + 1 + end) else { return false };
                    rest = tail.get(end..).unwrap_or_default();
                    if !self.number(word, at) {
                        return false;
                    }
                }
            }
        }
    }

    fn open(&mut self, is_array: bool) {
        // The things of an array are of the section that the array is.
        let section = match self.levels.last() {
            Some(outer) if outer.is_array => outer.section.clone(),
            _ => std::mem::take(&mut self.key),
        };
        self.levels.push(Level {
            section,
            is_array,
            name: Vec::new(),
            keys: Vec::new(),
            numbers: Vec::new(),
            line: 0,
            day: None,
            clock: None,
        });
    }

    fn close(&mut self, is_array: bool, import: &mut Import) -> bool {
        let Some(level) = self.levels.pop().filter(|l| l.is_array == is_array) else { return false };
        if level.section == b"timestamp" {
            self.timestamp(&level);
        } else if !level.numbers.is_empty() {
            if let Some((t, since)) = self.moment {
                self.put(&level, t, since, import);
            } else {
                host(&level, import);
            }
        } else if level.section == b"statistics" && is_array {
            self.moment = None;
        }
        true
    }

    fn timestamp(&mut self, level: &Level) {
        let interval = value(level, b"interval").unwrap_or(0.0).clamp(0.0, 1e9);
        self.moment = level.day.zip(level.clock).map(|(day, clock)| {
            let t = day * DAY + clock;
            (t, t - (interval * SECOND as f64) as i64)
        });
    }

    fn string(&mut self, string: &[u8], import: &mut Import) {
        let Some(level) = self.levels.last_mut().filter(|l| !l.is_array) else { return };
        match self.key.as_slice() {
            b"date" => level.day = date(string),
            b"time" => level.clock = time_of_day(string),
            b"nodename" if import.host.hostname.is_empty() => import.host.hostname = text(string),
            b"release" if import.host.kernel.is_empty() => import.host.kernel = text(string),
            // The only text of a thing is its name.
            _ if level.name.is_empty() => level.name = string.to_vec(),
            _ => {}
        }
        if self.key == b"number-of-cpus" {
            cpus(number(string), import);
        }
    }

    fn number(&mut self, word: &[u8], at: u32) -> bool {
        let value = number(word).or_else(|| matches!(word, b"null" | b"true" | b"false").then_some(f64::NAN));
        let (Some(value), Some(level)) = (value, self.levels.last_mut()) else { return false };
        if !level.is_array
            && level.numbers.len() < COLUMNS_MAX
            && !self.key.is_empty()
            && !self.key.contains(&b' ')
        {
            if level.numbers.is_empty() {
                level.line = at;
            }
            level.keys.extend_from_slice(&self.key);
            level.keys.push(b' ');
            level.numbers.push(value);
        }
        true
    }

    fn put(&mut self, level: &Level, t: i64, since: i64, import: &mut Import) {
        let key: Vec<u8> = [&level.section[..], b" ", &level.keys].concat();
        let known = self.plans.known(&key).or_else(|| {
            let (kind, names) = printed(level);
            let names: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
            let plan = Plan::of(kind, &names, import);
            if !plan.is_read() {
                self.plans.skip(&text(&level.section));
            }
            self.plans.add(&key, plan)
        });
        let Some(plan) = known.and_then(|i| self.plans.get(i)).filter(|p| p.is_read()) else { return };
        for (cell, number) in self.cells.iter_mut().zip(&level.numbers) {
            *cell = *number;
        }
        plan.since(import, When::At(since));
        plan.put(import, &level.name, When::At(t), level.line, &self.cells);
    }
}

/// What a level says of the machine.
fn host(level: &Level, import: &mut Import) {
    cpus(value(level, b"number-of-cpus"), import);
}

fn cpus(count: Option<f64>, import: &mut Import) {
    if let Some(count) = count.filter(|n| (1.0..=65_536.0).contains(n)) {
        import.host.cpus = import.host.cpus.max(count as u32);
    }
}

fn value(level: &Level, key: &[u8]) -> Option<f64> {
    let at = level.keys.split(|b| *b == b' ').position(|k| k == key)?;
    level.numbers.get(at).copied()
}

/// What a section is about, and the names that its columns have in sar.
fn printed(level: &Level) -> (Kind, Vec<Vec<u8>>) {
    let (kind, before, after) = match level.section.as_slice() {
        b"cpu-load" | b"cpu-load-all" => (Kind::Cpu, "%", ""),
        b"softnet" => (Kind::Cpu, "", "/s"),
        b"interrupts" => (Kind::Irq, "", ""),
        b"disk" => (Kind::Disk, "", ""),
        b"net-dev" | b"net-edev" => (Kind::Nic, "", "/s"),
        b"filesystems" => (Kind::Filesystem, "", ""),
        b"memory" => (Kind::System, "kb", ""),
        b"kernel" | b"queue" | b"net-sock" | b"psi-cpu" | b"psi-io" | b"psi-mem" => (Kind::System, "", ""),
        b"process-and-context-switch"
        | b"swap-pages"
        | b"paging"
        | b"net-ip"
        | b"net-eip"
        | b"net-icmp"
        | b"net-eicmp"
        | b"net-tcp"
        | b"net-etcp"
        | b"net-udp" => (Kind::System, "", "/s"),
        _ => (Kind::Other, "", ""),
    };
    let keys = level.keys.split(|b| *b == b' ').filter(|k| !k.is_empty());
    let name = |key: &[u8]| -> Vec<u8> {
        match (level.section.as_slice(), key) {
            (b"softnet", b"blg_len") => key.to_vec(),
            (b"interrupts", b"value") => b"intr/s".to_vec(),
            (b"psi-cpu", b"some_avg") => b"%scpu".to_vec(),
            (b"psi-io", b"some_avg") => b"%sio".to_vec(),
            (b"psi-io", b"full_avg") => b"%fio".to_vec(),
            (b"psi-mem", b"some_avg") => b"%smem".to_vec(),
            (b"psi-mem", b"full_avg") => b"%fmem".to_vec(),
            (b"memory", b"inactive") => b"kbinact".to_vec(),
            (b"memory", b"frmpg" | b"bufpg" | b"campg") => [key, b"/s"].concat(),
            (b"disk", b"rd_sec" | b"wr_sec" | b"dc_sec" | b"rkB" | b"wkB" | b"dkB") => [key, b"/s"].concat(),
            _ => match key.strip_suffix(b"-percent") {
                Some(share) => [b"%", share].concat(),
                None => [before.as_bytes(), key, after.as_bytes()].concat(),
            },
        }
    };
    (kind, keys.map(name).collect())
}

/// The string up to its closing quote, escapes as they are, and what follows.
fn string(rest: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut escaped = false;
    for (i, byte) in rest.iter().enumerate().take(STRING_MAX) {
        match byte {
            b'"' if !escaped => return Some((rest.get(..i)?, rest.get(i + 1..)?)),
            b'\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    None
}
