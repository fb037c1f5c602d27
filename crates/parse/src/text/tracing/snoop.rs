//! The snoop tools of bcc, bpftrace and perf-tools, with a line for each event.
//!
//! ```text
//! PID    COMM               FD ERR PATH
//! 4242   curl               -1   2 /home/me/.pki/nssdb/.3219811409_dOeSnotExist_.db
//!
//! TIME(s) PCOMM            PID     PPID    RET ARGS
//! 0.031   ls               4243    4242      0 /bin/ls -l
//!
//! TIME     PID    IP LADDR:LPORT          T> RADDR:RPORT          STATE
//! 10:53:32 0      4  10.0.0.1:443         R> 10.0.0.2:50122       ESTABLISHED
//!
//! TIME(s)     COMM           PID    DISK    T SECTOR     BYTES   LAT(ms)
//! 0.000004    supervise      1950   xvda1   W 13092560   4096       0.74
//! ```

use crate::text::prelude::*;

use super::strace::lookups::Lookups;
use super::tally::{Clock, Tally};

/// See the module.
pub(super) const FORMATS: [Format; 4] = [
    Format::new("opensnoop", "names that are looked up and do not exist", |l, _| is(l, Tool::Open), read),
    Format::new("execsnoop", "programs that are started", |l, _| is(l, Tool::Exec), read),
    Format::new("tcpretrans", "segments that TCP sent again", |l, _| is(l, Tool::Retransmit), read),
    Format::new("biosnoop", "each request to a disk, with its time", |l, _| is(l, Tool::Block), read),
];

/// Latencies of one device that are kept to find their quantiles: 8 MB.
const LATENCIES_MAX: usize = 1_000_000;
/// Devices in one output.
const DISKS_MAX: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tool {
    Open,
    Exec,
    Retransmit,
    Block,
}

/// The tool by the words of its heading, and whether the first word of a line is a time.
fn heading(line: &[u8]) -> Option<Tool> {
    if line.len() > 300 {
        return None;
    }
    let has = |wanted: &[u8]| words(line).any(|w| w == wanted);
    if has(b"PID") && has(b"COMM") && has(b"ERR") && has(b"PATH") {
        return Some(Tool::Open);
    }
    // perf-tools say neither the error nor, of most files, why.
    if has(b"COMM") && has(b"PID") && has(b"FD") && line.trim_ascii_end().ends_with(b"FILE") {
        return Some(Tool::Open);
    }
    let is_exec = has(b"PPID") || has(b"RET") || words(line).next().is_some_and(|w| w.starts_with(b"TIME"));
    if has(b"PID") && is_exec && line.trim_ascii_end().ends_with(b"ARGS") {
        return Some(Tool::Exec);
    }
    if has(b"TIME") && has(b"LADDR:LPORT") && has(b"RADDR:RPORT") && has(b"STATE") {
        return Some(Tool::Retransmit);
    }
    let is_block = has(b"BYTES") || words(line).next() == Some(b"TIME(ms)");
    (has(b"COMM") && has(b"DISK") && is_block && words(line).any(|w| matches!(w, b"LAT(ms)" | b"LATms")))
        .then_some(Tool::Block)
}

fn has_comm(line: &[u8]) -> bool {
    line.len() <= 300 && find!(line, b"COMM").is_some()
}

fn is(lines: &mut Lines<'_>, tool: Tool) -> bool {
    let may_be = lines.at(|line| match tool {
        Tool::Exec => line.trim_ascii_end().ends_with(b"ARGS"),
        Tool::Retransmit => line.len() <= 300 && find!(line, b"LADDR:LPORT").is_some(),
        Tool::Open | Tool::Block => has_comm(line),
    });
    may_be && lines.peek().and_then(heading) == Some(tool)
}

fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let Some(line) = lines.peek() else { return };
    let Some(tool) = heading(line) else { return };
    let timed = words(line).next().is_some_and(|w| w.starts_with(b"TIME"));
    let columns: Vec<Box<[u8]>> = words(line).map(Box::from).collect();
    lines.advance();
    let interval = import.context.interval_s;
    let mut reader = Reader {
        tool,
        timed,
        columns,
        calls: Tally::new(if tool == Tool::Retransmit {
            &["tcp.RetransSegs"]
        } else {
            &["call.calls", "call.errors"]
        }),
        lookups: Lookups::new(),
        disks: Disks::default(),
        clock: Clock::Begin,
    };
    lines.each(import, |lines, number, import| {
        let line = lines.line();
        if !reader.line(line, number, import) && heading(line) != Some(tool) && !super::is_pause(lines) {
            let again = lines.soon(1, |l| reader.is_row(l));
            let Some(line) = lines.peek().filter(|l| again && !l.is_empty()) else { return Took::No };
            import.unread(number, line);
        }
        Took::Yes
    });
    reader.finish(import);
    import.context.interval_s = interval;
}

/// What is added up of a device in one second.
#[derive(Default, Clone, Copy)]
struct Traffic {
    n: f64,
    bytes: f64,
    seconds: f64,
}

struct Disk {
    name: Box<[u8]>,
    second: i64,
    line: u32,
    first: u32,
    reads: Traffic,
    writes: Traffic,
    latencies: Vec<f64>,
    all: u64,
}

struct Reader {
    tool: Tool,
    timed: bool,
    columns: Vec<Box<[u8]>>,
    calls: Tally,
    lookups: Lookups,
    disks: Disks,
    clock: Clock,
}

/// A time of day, or seconds since the tool began.
fn time(word: &[u8]) -> Option<(Clock, i64)> {
    if let Some(ns) = clock::time_of_day(word) {
        return Some((Clock::Day, ns));
    }
    let seconds = number(word).filter(|s| (0.0..1e9).contains(s) && memchr::memchr(b'.', word).is_some())?;
    Some((Clock::Begin, (seconds * SECOND as f64) as i64))
}

/// Milliseconds since the tool began, as bpftrace prints them.
fn milliseconds(word: &[u8]) -> Option<(Clock, i64)> {
    let ms = i64::try_from(integer(word)?).ok().filter(|ms| *ms < 1_000_000_000_000)?;
    Some((Clock::Begin, ms * (SECOND / 1000)))
}

impl Reader {
    fn is_row(&self, line: &[u8]) -> bool {
        let mut list = words(line);
        let is_time = |w: &[u8]| time(w).is_some() || milliseconds(w).is_some();
        (!self.timed || list.next().is_some_and(is_time)) && list.count() >= 2
    }

    fn line(&mut self, line: &[u8], number: u32, import: &mut Import) -> bool {
        let mut list = words(line);
        let mut t = None;
        if self.timed {
            let in_ms = self.columns.first().is_some_and(|c| **c == *b"TIME(ms)");
            let found = if in_ms { list.next().and_then(milliseconds) } else { list.next().and_then(time) };
            let Some(found) = found else { return false };
            t = Some(found);
        }
        let rest = list.rest();
        match self.tool {
            Tool::Open => self.open(rest, t, number, import).is_some(),
            Tool::Exec => self.exec(rest, t, number, import).is_some(),
            Tool::Retransmit => self.retransmit(rest, t, number, import).is_some(),
            Tool::Block => self.block(rest, t, number, import).is_some(),
        }
    }

    fn tick(&mut self, t: Option<(Clock, i64)>, line: u32, import: &mut Import) {
        if let Some((clock, ns)) = t {
            self.calls.tick(clock, ns, line, import);
            self.lookups.tick(clock, ns, line, import);
        }
    }

    /// `4242 curl -1 2 /path`, with a user before and flags behind the error in some versions.
    fn open(&mut self, rest: &[u8], t: Option<(Clock, i64)>, line: u32, import: &mut Import) -> Option<()> {
        if self.columns.last().is_some_and(|c| **c == *b"FILE") {
            return self.open_without_error(rest, line);
        }
        let mut list = words(rest);
        if self.columns.iter().any(|c| **c == *b"UID") {
            integer(list.next()?)?;
        }
        integer(list.next()?)?;
        let comm_on = list.rest();
        let signed = |w: &[u8]| number(w).filter(|n| n.fract() == 0.0);
        let mut comm_end = 0;
        let (fd, error) = loop {
            let word = list.next()?;
            let after = list.clone().next().and_then(signed);
            // The name of the program may hold blanks and numbers; of the file and the error one is nothing.
            if let (Some(fd), Some(error), true) = (signed(word), after, comm_end > 0)
                && error >= 0.0
                && (fd < 0.0) == (error > 0.0)
            {
                list.next();
                break (fd, error);
            }
            comm_end = comm_on.len() - list.rest().len();
        };
        if self.columns.iter().any(|c| **c == *b"FLAGS") {
            list.next()?;
        }
        let path = Some(list.rest()).filter(|p| !p.is_empty())?;
        self.tick(t, line, import);
        let at = self.calls.find(b"open");
        let sums = self.calls.count(at, line);
        sums.n += 1;
        sums.errors += u64::from(fd < 0.0);
        // ENOENT and ENOTDIR.
        if fd < 0.0 && matches!(error as i64, 2 | 20) {
            let comm = comm_on.get(..comm_end).unwrap_or_default().trim_ascii();
            self.lookups.failed(b"", path, comm, line);
        }
        Some(())
    }

    /// `curl 4242 0x3 /path` of perf-tools, `-1` where it failed.
    fn open_without_error(&mut self, rest: &[u8], line: u32) -> Option<()> {
        let all: Vec<&[u8]> = words(rest).take(20).collect();
        let is_fd = |w: &[u8]| w == b"-1" || w.strip_prefix(b"0x").is_some_and(|w| hexadecimal(w).is_some());
        let at = (1..all.len()).find(|i| {
            let cell = |at: usize| all.get(at).copied().unwrap_or_default();
            integer(cell(*i)).is_some() && is_fd(cell(*i + 1)) && !cell(*i + 2).is_empty()
        })?;
        let call = self.calls.find(b"open");
        let sums = self.calls.count(call, line);
        sums.n += 1;
        sums.errors += u64::from(all.get(at + 1).is_some_and(|fd| *fd == b"-1"));
        Some(())
    }

    /// `ls 4243 4242 0 /bin/ls -l`; perf-tools and bpftrace have neither the name nor the result.
    fn exec(&mut self, rest: &[u8], t: Option<(Clock, i64)>, line: u32, import: &mut Import) -> Option<()> {
        let named = self.columns.iter().any(|c| matches!(&**c, b"PCOMM" | b"COMM"));
        let result = self.columns.iter().any(|c| **c == *b"RET");
        let parent = self.columns.iter().any(|c| **c == *b"PPID");
        let numbers = 1 + usize::from(parent) + usize::from(result);
        let all: Vec<&[u8]> = words(rest).take(40).collect();
        let from = usize::from(named);
        let at = (from..all.len()).find(|i| {
            all.get(*i..*i + numbers)
                .is_some_and(|w| w.iter().all(|w| number(w).is_some_and(|n| n.fract() == 0.0)))
        })?;
        if !named && at > 0 {
            return None;
        }
        let returned = if result { number(all.get(at + numbers - 1)?)? } else { 0.0 };
        self.tick(t, line, import);
        let call = self.calls.find(b"execve");
        let sums = self.calls.count(call, line);
        sums.n += 1;
        sums.errors += u64::from(returned < 0.0);
        Some(())
    }

    /// `0 4 10.0.0.1:443 R> 10.0.0.2:50122 ESTABLISHED`. A probe of the tail, `L>`, is no retransmission.
    fn retransmit(
        &mut self,
        rest: &[u8],
        t: Option<(Clock, i64)>,
        line: u32,
        import: &mut Import,
    ) -> Option<()> {
        let mark = words(rest).find(|w| matches!(*w, b"R>" | b"L>" | b"--" | b"F>"))?;
        t?;
        if mark != b"L>" {
            self.tick(t, line, import);
            let at = self.calls.find(b"");
            self.calls.count(at, line).n += 1;
        }
        Some(())
    }

    /// `supervise 1950 xvda1 W 13092560 4096 0.74`: from the end, for the name of a task may hold anything.
    fn block(&mut self, rest: &[u8], t: Option<(Clock, i64)>, line: u32, import: &mut Import) -> Option<()> {
        let behind = |name: &[u8]| {
            self.columns.iter().rev().position(|c| **c == *name || (name == b"LAT" && c.starts_with(b"LAT")))
        };
        let all: Vec<&[u8]> = words(rest).collect();
        let cell = |name: &[u8]| all.len().checked_sub(1 + behind(name)?).and_then(|at| all.get(at).copied());
        let latency = number(cell(b"LAT")?).filter(|ms| *ms >= 0.0)? / 1e3;
        // bpftrace says neither how many nor in which direction.
        let sized = self.sized();
        let bytes = if sized { integer(cell(b"BYTES")?)? as f64 } else { 0.0 };
        let disk = if sized { cell(b"DISK")? } else { all.first().copied()? };
        let direction = if sized { cell(b"T")? } else { b"" };
        integer(cell(b"PID")?)?;
        self.clock = t.map_or(self.clock, |(clock, _)| clock);
        let request = Request { is_read: direction.starts_with(b"R"), bytes, seconds: latency, line };
        self.disks.request(disk, t.filter(|_| sized), &request, import);
        Some(())
    }

    fn sized(&self) -> bool {
        self.columns.iter().any(|c| **c == *b"BYTES")
    }

    fn finish(mut self, import: &mut Import) {
        if self.tool != Tool::Block {
            self.calls.finish(import);
            self.lookups.finish(import);
            return;
        }
        let timed = self.timed && self.sized();
        self.disks.finish(timed.then_some(self.clock), import);
    }
}

/// A request to a disk.
pub(super) struct Request {
    pub is_read: bool,
    pub bytes: f64,
    pub seconds: f64,
    pub line: u32,
}

/// What disks did in each second, and their latencies.
#[derive(Default)]
pub(super) struct Disks(Vec<Disk>);

impl Disks {
    /// Adds a request that was completed then, if that is known.
    pub fn request(&mut self, name: &[u8], t: Option<(Clock, i64)>, request: &Request, import: &mut Import) {
        let second = t.map_or(0, |(_, ns)| ns.div_euclid(SECOND));
        let line = request.line;
        let at = self.0.iter().position(|d| *d.name == *name);
        if at.is_none() && self.0.len() >= DISKS_MAX {
            return;
        }
        let at = at.unwrap_or_else(|| {
            self.0.push(Disk {
                name: name.into(),
                second,
                line,
                first: line,
                reads: Traffic::default(),
                writes: Traffic::default(),
                latencies: Vec::new(),
                all: 0,
            });
            self.0.len() - 1
        });
        let Some(disk) = self.0.get_mut(at) else { return };
        if second > disk.second
            && let Some((clock, _)) = t
        {
            disk.flush(clock, import);
            (disk.second, disk.line) = (second, line);
        }
        let traffic = if request.is_read { &mut disk.reads } else { &mut disk.writes };
        traffic.n += 1.0;
        traffic.bytes += request.bytes;
        traffic.seconds += request.seconds;
        disk.all += 1;
        if disk.latencies.len() < LATENCIES_MAX {
            disk.latencies.push(request.seconds);
        }
    }

    /// The last second of each, where times are known, and the quantiles.
    pub fn finish(&mut self, clock: Option<Clock>, import: &mut Import) {
        let mut every = Vec::new();
        let (mut all, mut first) = (0, u32::MAX);
        for mut disk in std::mem::take(&mut self.0) {
            if let Some(clock) = clock {
                disk.flush(clock, import);
            }
            let names = ["disk.traced_requests", "disk.traced_latency_p50", "disk.traced_latency_p99"];
            quantiles(import, names, &disk.name, disk.all, &mut disk.latencies, disk.first);
            every.extend_from_slice(
                disk.latencies.get(..LATENCIES_MAX / DISKS_MAX).unwrap_or(&disk.latencies),
            );
            (all, first) = (all + disk.all, first.min(disk.first));
        }
        let names = ["block.requests", "block.latency_p50", "block.latency_p99"];
        quantiles(import, names, b"", all, &mut every, first);
    }
}

impl Disk {
    fn flush(&mut self, clock: Clock, import: &mut Import) {
        let columns = [
            "disk.reads",
            "disk.read_bytes",
            "disk.read_time",
            "disk.writes",
            "disk.write_bytes",
            "disk.write_time",
        ];
        let columns = columns.iter().filter_map(|m| Column::new(m, Form::Rate, 1.0)).collect();
        let group = import.group(columns);
        let when = clock.when((self.second + 1) * SECOND, import);
        let (r, w) = (self.reads, self.writes);
        let values = [r.n, r.bytes, r.seconds, w.n, w.bytes, w.seconds];
        import.put(group, &self.name, when, self.line, &values);
        (self.reads, self.writes) = (Traffic::default(), Traffic::default());
    }
}

fn quantiles(import: &mut Import, names: [&str; 3], row: &[u8], all: u64, latencies: &mut [f64], line: u32) {
    if latencies.is_empty() {
        return;
    }
    latencies.sort_unstable_by(f64::total_cmp);
    let at = |share: f64| {
        let rank = (latencies.len() as f64 * share).ceil() as usize;
        latencies.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN)
    };
    let forms = [Form::Total, Form::Level, Form::Level];
    let columns = names.iter().zip(forms).filter_map(|(n, form)| Column::new(n, form, 1.0)).collect();
    let group = import.group(columns);
    let values = [all as f64, at(0.5), at(0.99)];
    import.put(group, row, When::Fact, line, &values);
}
