//! `perf stat`: for people, with `-x,` or `-j`, of the whole time or of intervals (`-I`).
//!
//! ```text
//!  Performance counter stats for 'system wide':
//!
//!            2010.98 msec cpu-clock                        #    2.000 CPUs utilized
//!                178      context-switches                 #   88.514 /sec
//!
//!        1.005572633 seconds time elapsed
//! ```
//! ```text
//!      0.500579023,84,,context-switches,1006250702,100.00,83.478,/sec
//! ```
//! ```text
//! {"interval" : 0.500595952, "counter-value" : "103.000000", "unit" : "", "event" : "context-switches", "event-runtime" : 1001540003}
//! ```
//!
//! What the whole machine did has metrics. Of a command, and of hardware counters, there are notes. With `-I`, `-x` and
//! `-j` the output does not say what it is of: without events that were chosen, `cpu-clock` is of the machine and
//! `task-clock` of a command.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::text::prelude::*;

/// See the module.
pub const FORMAT: Format = Format::new(
    "perf stat",
    "switches and faults of the machine; of a command and of hardware counters notes; also `-I`, `-x`, `-j`",
    |lines, _| lines.at(is_head) || lines.at(is_row),
    read,
);

const TITLE: &[u8] = b"Performance counter stats for ";
const STARTED: &[u8] = b"# started on ";
/// Events that are looked for to know the format.
const EVENTS: &[&[u8]] = list!(
    "cpu-clock task-clock context-switches cs cpu-migrations migrations page-faults faults minor-faults major-faults
     cycles cpu-cycles instructions branches branch-misses cache-references cache-misses ref-cycles"
);
/// What of the machine has a metric.
const METRICS: Pairs = pairs!(
    "context-switches sys.ctxt  cs sys.ctxt  page-faults vm.pgfault  faults vm.pgfault  major-faults vm.pgmajfault"
);
/// Different events of one output.
const EVENTS_MAX: usize = 1024;

fn is_head(line: &[u8]) -> bool {
    let line = line.trim_ascii_start();
    line.starts_with(TITLE) || line.starts_with(STARTED) || is_interval_header(line)
}

/// `#           time             counts unit events`, with `CPU` behind the time with `-A`.
fn is_interval_header(line: &[u8]) -> bool {
    line.starts_with(b"#")
        && words(line).skip(1).filter(|w| *w != b"CPU").eq([&b"time"[..], b"counts", b"unit", b"events"])
}

/// A count of one event.
#[derive(Debug, PartialEq)]
struct Row<'a> {
    /// Seconds since the beginning, of `-I`.
    time: Option<f64>,
    event: &'a [u8],
    /// `None` where the counter is not there or was not scheduled.
    value: Option<f64>,
    /// How many CPUs were used, of `cpu-clock` and `task-clock`, where the row says it.
    cpus: Option<f64>,
}

impl Row<'_> {
    /// Whether the event is one that perf has everywhere: other formats have rows of the same shape.
    fn is_known(&self) -> bool {
        EVENTS.contains(&name(self.event))
    }
}

/// An event without its modifiers and its unit of performance counters: `cycles:u`, `cpu_core/cycles/`.
fn name(event: &[u8]) -> &[u8] {
    let event = event.split(|b| *b == b':').next().unwrap_or(event);
    let mut parts = event.split(|b| *b == b'/');
    match (parts.next(), parts.next()) {
        (Some(_), Some(inside)) => inside,
        _ => event,
    }
}

fn row(line: &[u8]) -> Option<Row<'_>> {
    let start = line.trim_ascii_start();
    match start.first()? {
        b'{' => None,
        b'0'..=b'9' | b'<' | b'C' | b'S' | b'-' => separated(line).or_else(|| aligned(line)),
        _ => None,
    }
}

/// `<not supported>` and `<not counted>` are no counts.
fn is_missing(word: &[u8]) -> bool {
    word.starts_with(b"<not ") && word.ends_with(b">")
}

/// A row of `-x`, with a comma, a semicolon or a tab between the fields.
fn separated(line: &[u8]) -> Option<Row<'_>> {
    let separator = *[b',', b';', b'\t'].iter().find(|s| line.iter().filter(|b| b == s).count() >= 4)?;
    let fields: Vec<&[u8]> = line.split(|b| *b == separator).take(12).map(<[u8]>::trim_ascii).collect();
    // A time, a CPU with `-A` and how many of them may come before the count.
    let at = (0..4).find(|at| {
        let (count, event) = (fields.get(*at), fields.get(at + 2));
        let timed = fields.get(at + 3).is_some_and(|f| integer(f).is_some());
        let counts = count.is_some_and(|f| number(f).is_some() || is_missing(f));
        let named = event.is_some_and(|f| f.first().is_some_and(u8::is_ascii_alphabetic));
        counts && named && timed && fields.get(at + 4).is_some_and(|f| number(f).is_some())
    })?;
    let cpus = fields.get(at + 6).filter(|unit| **unit == b"CPUs utilized");
    Some(Row {
        time: if at > 0 { fields.first().and_then(|f| number(f)) } else { None },
        event: fields.get(at + 2)?,
        value: number(fields.get(at)?),
        cpus: cpus.and_then(|_| number(fields.get(at + 5)?)),
    })
}

/// A row for people. The digits of a count are in groups, between which stands what the locale has.
fn aligned(line: &[u8]) -> Option<Row<'_>> {
    let before = line.split(|b| *b == b'#').next().unwrap_or(line);
    // `CPU0`; old versions have an event `CPU-migrations`.
    let is_numbered = |word: &[u8], of: &[u8]| {
        word.strip_prefix(of).and_then(<[u8]>::first).is_some_and(u8::is_ascii_digit)
    };
    // `S0`, `S0-D0-C0`, `N0`: how many CPUs the socket, core or node has stands before the count.
    let is_group = |word: &[u8]| is_numbered(word, b"S") || is_numbered(word, b"N");
    let has_cpus = words(before).any(is_group);
    let mut list = words(before).filter(|word| !is_numbered(word, b"CPU") && !is_group(word)).peekable();
    let is_count = |word: &[u8]| word.starts_with(b"<not") || word.first().is_some_and(u8::is_ascii_digit);
    let mut numbers = vec![list.next()?];
    while numbers.len() < 2 + usize::from(has_cpus)
        && let Some(word) = list.next_if(|next| is_count(next))
    {
        numbers.push(word);
    }
    let (time, mut value) = match (numbers.as_slice(), has_cpus) {
        ([value], false) | ([_, value], true) => (None, *value),
        ([time, value], false) | ([time, _, value], true) => (Some(number(time)?), *value),
        _ => return None,
    };
    let missing = value == b"<not";
    if missing {
        value = list.next()?;
    }
    let mut event = list.next()?;
    let mut unit = None;
    if matches!(event, b"msec" | b"ns" | b"Joules" | b"MiB" | b"Bytes" | b"C") {
        unit = Some(event);
        event = list.next()?;
    }
    let value = match (missing, unit) {
        (true, _) => None,
        (false, Some(_)) => Some(decimal(value)?),
        // Old versions have the unit of clocks behind the name.
        (false, None) if matches!(name(event), b"task-clock" | b"cpu-clock") => Some(decimal(value)?),
        (false, None) => Some(grouped(value)?),
    };
    let noise = |rest: Option<&[u8]>| rest.is_none_or(|word| word.starts_with(b"("));
    (event.first().is_some_and(u8::is_ascii_alphabetic) && noise(list.next())).then_some(Row {
        time,
        event,
        value,
        cpus: None,
    })
}

/// `1,234,567`, `1.234.567`, and with what other locales put between groups of three digits.
fn grouped(word: &[u8]) -> Option<f64> {
    let mut groups = word.split(|b| !b.is_ascii_digit()).filter(|group| !group.is_empty());
    let first = groups.next().filter(|_| word.first().is_some_and(u8::is_ascii_digit))?;
    let between = |b: &u8| b.is_ascii_digit() || matches!(b, b',' | b'.' | b'\'') || !b.is_ascii();
    if !word.iter().all(between) || !groups.clone().all(|group| group.len() == 3) {
        return None;
    }
    let digits = groups.fold(first.to_vec(), |digits, group| [&digits[..], group].concat());
    integer(&digits).map(|n| n as f64)
}

/// `2,010.98`, `2.010,98`: the last separator is the decimal one.
fn decimal(word: &[u8]) -> Option<f64> {
    let last = word.iter().rposition(|b| matches!(b, b'.' | b','));
    let Some((whole, part)) = last.and_then(|at| Some((word.get(..at)?, word.get(at + 1..)?))) else {
        return number(word);
    };
    let decimals = i32::try_from(part.len()).ok()?;
    Some(grouped(whole)? + integer(part)? as f64 / 10_f64.powi(decimals))
}

/// A row of `-j`.
#[derive(Deserialize)]
struct Json {
    #[serde(rename = "counter-value")]
    value: String,
    event: String,
    interval: Option<f64>,
    #[serde(rename = "metric-value")]
    metric: Option<serde_json::Value>,
    #[serde(rename = "metric-unit")]
    unit: Option<String>,
}

/// `perf stat -j`.
pub const JSON: Format = Format::new(
    "perf stat -j",
    "the same as JSON",
    |lines, _| {
        lines.at(|line| line.starts_with(b"{") && has(line, b"\"counter-value\"") && has(line, b"\"event\""))
    },
    read,
);

/// The sums of one interval, or of all of it.
#[derive(Default)]
struct Counts {
    /// The sum over the CPUs with `-A`, and the line of the first.
    events: BTreeMap<Vec<u8>, (f64, u32)>,
    cpus: Option<f64>,
}

impl Counts {
    fn add(&mut self, row: &Row<'_>, at: u32) {
        let event = name(row.event);
        // With `-A` each CPU has a row of its own.
        if let Some(cpus) = row.cpus {
            self.cpus = Some(self.cpus.unwrap_or(0.0) + cpus);
        }
        let Some(value) = row.value else { return };
        if self.events.len() < EVENTS_MAX || self.events.contains_key(event) {
            self.events.entry(event.to_vec()).or_insert((0.0, at)).0 += value;
        }
    }

    fn of(&self, event: &[u8]) -> Option<f64> {
        self.events.get(event).map(|(value, _)| *value)
    }
}

#[derive(Default)]
struct Reader {
    counts: Counts,
    /// Everything, for the notes.
    all: Counts,
    /// What the title says it is of.
    of: Option<Vec<u8>>,
    /// When the tool began, of `-o`.
    began: Option<i64>,
    elapsed: Option<f64>,
    /// The end of the interval that is read, and of the one before.
    time: Option<f64>,
    before: f64,
}

fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let mut reader = Reader::default();
    let interval = import.context.interval_s;
    let (mut titled, mut rows) = (false, false);
    lines.each(import, |lines, at, import| {
        let line = lines.line();
        let trimmed = line.trim_ascii();
        if let Some(title) = trimmed.strip_prefix(TITLE) {
            if rows {
                return Took::No;
            }
            titled = true;
            reader.of = Some(title.strip_suffix(b":").unwrap_or(title).to_vec());
        } else if let Some(time) = trimmed.strip_prefix(STARTED) {
            if rows {
                return Took::No;
            }
            reader.began = clock::whole_line(time, None).and_then(|when| match when {
                When::At(t) => Some(t),
                _ => None,
            });
        } else if let Some(json) = Some(trimmed).filter(|line| line.starts_with(b"{")) {
            let Ok(json) = serde_json::from_slice::<Json>(json) else {
                return Took::unread_if(lines.soon(1, |next| has(next, b"\"counter-value\"")));
            };
            let is_share = json.unit.as_deref() == Some("CPUs utilized");
            let cpus = json
                .metric
                .filter(|_| is_share)
                .and_then(|v| v.as_f64().or_else(|| v.as_str()?.parse().ok()));
            let value = number(json.value.as_bytes());
            reader.row(&Row { time: json.interval, event: json.event.as_bytes(), value, cpus }, at, import);
            rows = true;
        } else if let Some(row) = row(line) {
            reader.row(&row, at, import);
            rows = true;
        } else if let Some(elapsed) = trimmed.strip_suffix(b" seconds time elapsed") {
            reader.elapsed = number(elapsed);
        } else {
            let is_own = trimmed.is_empty() && titled
                || is_interval_header(trimmed)
                || begins(trimmed, &[b"#", b"(", b"Some events weren't counted"])
                || trimmed.ends_with(b" seconds user")
                || trimmed.ends_with(b" seconds sys")
                || has(trimmed, b" seconds time elapsed");
            return if is_own { Took::Yes } else { Took::unread_if(lines.soon(1, is_row)) };
        }
        Took::Yes
    });
    reader.finish(import);
    import.context.interval_s = interval;
}

/// Whether it is a row of an event that perf has everywhere.
fn is_row(line: &[u8]) -> bool {
    row(line).is_some_and(|row| row.is_known())
}

/// Whether `perf stat` was told to count on all CPUs. The options of a command that it ran are not its own.
fn asks_for_machine(command: &[String]) -> bool {
    let mut list = command.iter().map(String::as_str).skip_while(|word| *word != "stat").skip(1);
    while let Some(word) = list.next() {
        match word {
            "-a" | "--all-cpus" => return true,
            "-e" | "-I" | "-x" | "-o" | "-r" | "-C" => _ = list.next(),
            _ if word.starts_with('-') && word != "--" => {}
            _ => return false,
        }
    }
    false
}

impl Reader {
    fn row(&mut self, row: &Row<'_>, at: u32, import: &mut Import) {
        if row.time != self.time {
            self.flush(import);
            self.time = row.time;
        }
        self.counts.add(row, at);
        self.all.add(row, at);
    }

    /// Whether the numbers are of the whole machine.
    fn is_of_machine(&self, import: &Import) -> bool {
        match self.of.as_deref() {
            Some(of) => of == b"'system wide'",
            None => {
                let asked = asks_for_machine(&import.context.command);
                let some = ["-C", "--cpu"];
                let is_of_some =
                    import.context.command.iter().any(|word| some.iter().any(|o| word.starts_with(o)));
                let by_default = !is_of_some
                    && self.all.of(b"cpu-clock").is_some()
                    && self.all.of(b"cpu-migrations").is_some();
                (asked || by_default) && self.all.of(b"task-clock").is_none()
            }
        }
    }

    /// Puts an interval that is over.
    fn flush(&mut self, import: &mut Import) {
        let counts = std::mem::take(&mut self.counts);
        let Some(end) = self.time else {
            self.counts = counts;
            return;
        };
        let length = end - std::mem::replace(&mut self.before, end);
        self.put(&counts, (end - length, end), import);
    }

    /// Puts the counts between two times in seconds since the beginning.
    fn put(&self, counts: &Counts, (since, until): (f64, f64), import: &mut Import) {
        if until <= since || !self.is_of_machine(import) {
            return;
        }
        let at = |seconds: f64, import: &mut Import| match self.began {
            Some(t) => When::At(t.saturating_add((seconds * SECOND as f64) as i64)),
            None => {
                import.context.interval_s = Some(1e-3);
                When::Step((seconds * 1e3) as u32)
            }
        };
        for (event, metric) in METRICS {
            let (Some((count, line)), Some(column)) =
                (counts.events.get(*event), Column::new(metric, Form::Rate, 1.0))
            else {
                continue;
            };
            let group = import.group(vec![column]);
            let (begin, end) = (at(since, import), at(until, import));
            import.since(group, begin);
            import.put(group, b"", end, *line, &[count / (until - since)]);
        }
    }

    fn finish(mut self, import: &mut Import) {
        self.flush(import);
        let counts = std::mem::take(&mut self.counts);
        // `-x` and `-j` do not say how long it took; the clock of the CPUs and how many there were do.
        let clock = counts.of(b"cpu-clock").zip(counts.cpus).filter(|(_, cpus)| *cpus > 0.0);
        let elapsed = self.elapsed.or(clock.map(|(ms, cpus)| ms / 1e3 / cpus));
        if let (None, Some(elapsed)) = (self.time, elapsed) {
            self.put(&counts, (0.0, elapsed), import);
        }
        self.notes(import);
    }

    /// What has no metric.
    fn notes(&self, import: &mut Import) {
        let of = |event: &[u8]| self.all.of(event);
        let whom = self
            .of
            .as_deref()
            .map_or_else(|| "perf stat".to_owned(), |of| format!("perf stat of {}", text(of)));
        let mut facts = Vec::new();
        if let Some((ms, elapsed)) = of(b"task-clock").zip(self.elapsed).filter(|(_, elapsed)| *elapsed > 0.0)
        {
            facts.push(format!("{:.2} CPUs used for {elapsed:.3} s", ms / 1e3 / elapsed));
        }
        if !self.is_of_machine(import) {
            for (event, what) in [
                (&b"context-switches"[..], "context switches"),
                (b"page-faults", "page faults"),
                (b"major-faults", "major faults"),
            ] {
                facts.extend(of(event).map(|n| format!("{n:.0} {what}")));
            }
        }
        let cycles = of(b"cycles").or_else(|| of(b"cpu-cycles"));
        for (part, whole, what) in [
            (of(b"instructions"), cycles, "instructions a cycle"),
            (of(b"cache-misses"), of(b"cache-references"), "of the references to the cache missed it"),
            (of(b"branch-misses"), of(b"branches"), "of the branches were predicted wrongly"),
        ] {
            if let Some((part, whole)) = part.zip(whole).filter(|(_, whole)| *whole > 0.0) {
                facts.push(format!("{:.2} {what}", part / whole));
            }
        }
        if !facts.is_empty() {
            import.has_read();
            import.note(format!("{whom}: {}", facts.join(", ")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_all_forms() {
        let of = |line: &'static str| row(line.as_bytes()).map(|r| (r.time, text(r.event), r.value));
        assert_eq!(
            of("  2010.98 msec cpu-clock   #  2.000 CPUs utilized"),
            Some((None, "cpu-clock".into(), Some(2010.98)))
        );
        assert_eq!(
            of(" 1,234,567      cycles:u   # 0.5 GHz  (83.1%)"),
            Some((None, "cycles:u".into(), Some(1_234_567.0)))
        );
        assert_eq!(of("   <not supported>      cycles"), Some((None, "cycles".into(), None)));
        assert_eq!(
            of("  0.500564083   92   context-switches  # x"),
            Some((Some(0.500_564_083), "context-switches".into(), Some(92.0)))
        );
        assert_eq!(
            of("       1234.567890      task-clock (msec)         #    0.678 CPUs utilized"),
            Some((None, "task-clock".into(), Some(1_234.567_89)))
        );
        assert_eq!(of("S0        4          1,234      cs"), Some((None, "cs".into(), Some(1234.0))));
        assert_eq!(
            of("  1.0001 S0-D0-C0    2    1,234      cs"),
            Some((Some(1.0001), "cs".into(), Some(1234.0)))
        );
        assert_eq!(
            of("    1 CPU-migrations   #    0.002 K/sec"),
            Some((None, "CPU-migrations".into(), Some(1.0)))
        );
        assert_eq!(
            of("CPU0    33      context-switches"),
            Some((None, "context-switches".into(), Some(33.0)))
        );
        assert_eq!(
            of("1003.60,msec,cpu-clock,1003602808,100.00,2.000,CPUs utilized"),
            Some((None, "cpu-clock".into(), Some(1003.6)))
        );
        assert_eq!(
            of("     0.500579023,<not supported>,,cycles,0,100.00,,"),
            Some((Some(0.500_579_023), "cycles".into(), None))
        );
        for no in ["12:00:01 1 2 3", "1.0 2.0", "a,b,c,1,2", "       1.005572633 seconds time elapsed"] {
            assert!(row(no.as_bytes()).is_none_or(|row| !row.is_known()), "{no}");
        }
        assert_eq!(decimal(b"2.010,98"), Some(2010.98));
        assert_eq!([&b"1.5"[..], b"12:30", b"7x", b""].map(grouped), [None; 4]);
        let command = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert!(asks_for_machine(&command("perf stat -e cs -x, -a sleep 1")));
        assert!(!asks_for_machine(&command("perf stat -x, ls -a")));
        assert_eq!(name(b"cpu_core/cycles/"), b"cycles");
    }
}
