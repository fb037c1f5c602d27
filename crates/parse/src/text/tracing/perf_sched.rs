//! `perf sched latency` and `perf sched timehist`: how long tasks waited for a CPU.
//!
//! ```text
//!   Task                  |   Runtime ms  | Switches | Avg delay ms    | Max delay ms    | Max delay start
//!   lto cgu.2.rcgu.:20112 |    449.705 ms |       34 | avg:   0.578 ms | max:   4.019 ms | max start:   740.209095 s
//!   sleep:(4)             |      4.137 ms |        4 | avg:   0.868 ms | max:   3.472 ms | max start:   740.277632 s
//! ```
//! ```text
//!            time    cpu  task name                       wait time  sch delay   run time
//!                         [tid/pid]                          (msec)     (msec)     (msec)
//! --------------- ------  ------------------------------  ---------  ---------  ---------
//!      739.467990 [0000]  lto cgu.3.rcgu.[20082/19064]        0.000      0.000      0.236
//! ```
//!
//! A line of `timehist` is the end of a stay on a CPU. What it ran and waited is spread over the seconds that it covers.
//! Its times are those of the kernel's scheduler clock, which counts from boot.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::text::prelude::*;

/// `perf sched latency`.
pub const LATENCY: Format = Format::new(
    "perf sched latency",
    "how long each task ran and waited for a CPU",
    |lines, _| lines.at(is_latency_header) || (lines.at(is_rule) && lines.soon(1, is_latency_header)),
    latency,
);
/// `perf sched timehist`.
pub const TIMEHIST: Format = Format::new(
    "perf sched timehist",
    "how long each task ran and waited for a CPU, second by second",
    |lines, _| lines.at(is_timehist_header) || (lines.at(is_callchains) && lines.soon(1, is_timehist_header)),
    timehist,
);

/// Seconds of tasks that are kept apart; a hundred bytes each.
const CELLS_MAX: usize = 1_000_000;
/// A longer stay on a CPU, or a longer wait for one, is cut: each of its seconds takes time to read.
const STAY_MAX_S: f64 = 60.0;
/// No machine is up for so long: three hundred years.
const CLOCK_MAX_S: f64 = 1e10;

fn is_rule(line: &[u8]) -> bool {
    let line = line.trim_ascii();
    line.len() > 20 && line.iter().all(|b| *b == b'-')
}

fn is_latency_header(line: &[u8]) -> bool {
    line.trim_ascii_start().starts_with(b"Task ")
        && has(line, b"|   Runtime ms  |")
        && (has(line, b"Avg delay ms") || has(line, b"Average delay ms"))
}

/// Tasks with the same name are one row, without `-p`: then the id is missing.
struct Latency<'a> {
    name: &'a [u8],
    pid: Option<u32>,
    run_s: f64,
    switches: f64,
    delay_s: f64,
    delay_max_s: f64,
}

fn latency_row(line: &[u8]) -> Option<Latency<'_>> {
    let mut cells = line.split(|b| *b == b'|').map(<[u8]>::trim_ascii);
    let task = cells.next()?;
    let colon = task.iter().rposition(|b| *b == b':')?;
    let (name, id) = (task.get(..colon)?, task.get(colon + 1..)?);
    let millis = |cell: &[u8], before: &[u8]| first(cell.strip_prefix(before)?.strip_suffix(b" ms")?);
    let run_s = millis(cells.next()?, b"")? / 1e3;
    let switches = first(cells.next()?)?;
    let each = millis(cells.next()?, b"avg:")? / 1e3;
    let delay_max_s = millis(cells.next()?, b"max:")? / 1e3;
    let pid = integer(id).and_then(|pid| u32::try_from(pid).ok());
    (pid.is_some() || id.starts_with(b"(")).then_some(Latency {
        name,
        pid,
        run_s,
        switches,
        delay_s: each * switches,
        delay_max_s,
    })
}

fn latency(lines: &mut Lines<'_>, import: &mut Import) {
    let sums = import.columns(&["task.cpu_time", "task.run_delay"], Form::Total);
    // Sums of this run, and no readings of the kernel's counters, which other files may have.
    let when = When::Fact;
    let (mut together, mut longest) = (0_u64, None::<(f64, String)>);
    lines.each(import, |lines, at, import| {
        let line = lines.line();
        let trimmed = line.trim_ascii();
        if let Some(row) = latency_row(line) {
            let name = text(row.name.get(..15).unwrap_or(row.name));
            if row.delay_max_s > longest.as_ref().map_or(0.0, |(most, _)| *most) {
                longest = Some((row.delay_max_s, name.clone()));
            }
            match row.pid {
                // The delay is printed as a mean, which is of no switch where there was none.
                Some(pid) => {
                    let task = import.task(pid, &name);
                    let delay = if row.switches > 0.0 { row.delay_s } else { f64::NAN };
                    import.put(sums, task.as_bytes(), when, at, &[row.run_s, delay]);
                }
                None => together += 1,
            }
            return Took::Yes;
        }
        let is_own = trimmed.is_empty()
            || is_rule(trimmed)
            || is_latency_header(line)
            || begins(trimmed, &[b"TOTAL:", b"INFO:"]);
        if is_own { Took::Yes } else { Took::unread_if(lines.soon(1, |next| latency_row(next).is_some())) }
    });
    if let Some((seconds, name)) = longest {
        import.note(format!(
            "perf sched latency: the longest wait for a CPU took {:.1} ms, of {name}",
            seconds * 1e3
        ));
    }
    if together > 0 {
        import.note(format!(
            "perf sched latency: {together} rows are of several tasks of one name and were left out; -p tells them apart"
        ));
    }
}

fn is_callchains(line: &[u8]) -> bool {
    line == b"Samples do not have callchains."
}

fn is_timehist_header(line: &[u8]) -> bool {
    let line = line.trim_ascii_start();
    line.starts_with(b"time ") && has(line, b" task name ") && has(line, b"wait time  sch delay   run time")
}

/// The end of a stay on a CPU.
struct Stay<'a> {
    end_s: f64,
    tid: u32,
    name: &'a [u8],
    delay_s: f64,
    run_s: f64,
}

/// A name may have blanks and brackets; its ids are the last thing before the numbers.
fn stay(line: &[u8]) -> Option<Stay<'_>> {
    let mut list = words(line);
    let end_s = number(list.next()?).filter(|s| (0.0..CLOCK_MAX_S).contains(s))?;
    list.next().filter(|cpu| cpu.starts_with(b"[") && cpu.ends_with(b"]"))?;
    let rest = list.rest();
    memchr::memchr_iter(b'[', rest).find_map(|open| {
        let inside = rest.get(open + 1..)?;
        let close = memchr::memchr(b']', inside)?;
        let tid = integer(inside.get(..close)?.split(|b| *b == b'/').next()?)?;
        let mut numbers = words(inside.get(close + 1..)?);
        let mut millis = || number(numbers.next()?).filter(|ms| *ms >= 0.0);
        let (_wait, delay, run) = (millis()?, millis()?, millis()?);
        Some(Stay {
            end_s,
            tid: u32::try_from(tid).ok()?,
            name: rest.get(..open)?,
            delay_s: delay / 1e3,
            run_s: run / 1e3,
        })
    })
}

/// Seconds of waiting and of running, with the line of the first, by second and task.
#[derive(Default)]
struct Timehist {
    cells: BTreeMap<(i64, u32), ([f64; 2], u32)>,
    names: HashMap<u32, String>,
    first_s: Option<f64>,
    last_s: f64,
    left_out: u64,
    cut: u64,
}

impl Timehist {
    fn add(&mut self, stay: &Stay<'_>, at: u32) {
        let first = *self.first_s.get_or_insert(stay.end_s);
        self.last_s = self.last_s.max(stay.end_s);
        let name = || text(stay.name.get(..15).unwrap_or(stay.name));
        if self.names.len() < CELLS_MAX {
            self.names.entry(stay.tid).or_insert_with(name);
        }
        self.cut += u64::from(stay.run_s > STAY_MAX_S || stay.delay_s > STAY_MAX_S);
        let begin = stay.end_s - stay.run_s.min(STAY_MAX_S);
        let runnable = begin - stay.delay_s.min(STAY_MAX_S);
        for (kind, since, until) in [(0, runnable, begin), (1, begin, stay.end_s)] {
            let mut t = since.max(first);
            while t < until {
                let end = (t.floor() + 1.0).min(until);
                let key = (t.floor() as i64, stay.tid);
                if self.cells.len() < CELLS_MAX || self.cells.contains_key(&key) {
                    self.cells.entry(key).or_insert(([0.0; 2], at)).0[kind] += end - t;
                } else {
                    self.left_out += 1;
                }
                t = end;
            }
        }
    }

    fn finish(self, import: &mut Import) {
        let Some(first) = self.first_s else { return };
        let group = import.columns(&["task.run_delay", "task.cpu_time"], Form::Rate);
        let ns = |seconds: f64| When::Boot((seconds * SECOND as f64) as i64);
        import.since(group, ns(first));
        let seconds: BTreeSet<i64> = self.cells.keys().map(|(second, _)| *second).collect();
        for second in seconds {
            let (since, until) = ((second as f64).max(first), (second as f64 + 1.0).min(self.last_s));
            // What is shorter than a sample of anything says nothing of a rate.
            if until - since < 0.05 {
                continue;
            }
            import.sampled(group, ns(until));
            for ((_, tid), (sums, at)) in self.cells.range((second, 0)..=(second, u32::MAX)) {
                let task = import.task(*tid, self.names.get(tid).map_or("", String::as_str));
                let rates = sums.map(|sum| sum / (until - since));
                import.put(group, task.as_bytes(), ns(until), *at, &rates);
            }
        }
        if self.left_out > 0 {
            import.note(format!("perf sched timehist: {} seconds of tasks found no room", self.left_out));
        }
        if self.cut > 0 {
            import.note(format!(
                "perf sched timehist: {} stays were longer than {STAY_MAX_S} s, of which the rest was left out",
                self.cut
            ));
        }
    }
}

fn timehist(lines: &mut Lines<'_>, import: &mut Import) {
    let mut all = Timehist::default();
    lines.each(import, |lines, at, _| {
        let line = lines.line();
        if let Some(stay) = stay(line) {
            all.add(&stay, at);
            return Took::Yes;
        }
        let mut list = words(line);
        // Wakeups, migrations and idle CPUs have lines, too.
        let is_event =
            list.next().and_then(number).is_some() && list.next().is_some_and(|cpu| cpu.starts_with(b"["));
        let is_own = is_event
            || is_callchains(line)
            || is_timehist_header(line)
            || words(line).next().is_some_and(|w| w == b"[tid/pid]" || w.iter().all(|b| *b == b'-'));
        if is_own { Took::Yes } else { Took::unread_if(lines.soon(1, is_stay)) }
    });
    all.finish(import);
}

fn is_stay(line: &[u8]) -> bool {
    stay(line).is_some()
}
