//! A table of processes by its header, as ps and top print it.
//!
//! Every cell is one word but the command, which takes what the columns before and behind it leave, and the start of a
//! process, which may be a whole date.

use crate::text::prelude::*;

use super::common::{PAGE, duration};
use super::task_names::english;

/// Whose table it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// `%CPU` is an average since the process began; commands come with their arguments.
    Ps,
    /// `%CPU` is of the last interval; commands are names.
    Top,
}

/// How a cell is read.
#[derive(Clone, Copy)]
enum Cell {
    /// One word that is of no use here.
    Skip,
    Pid,
    Tid,
    Tgid,
    State,
    Wait,
    /// The name of the task alone.
    Name,
    /// The command line, or the name.
    Command,
    /// A date of one to five words.
    Start,
    /// An environment: any number of words.
    Free,
    /// The share of one CPU.
    Cpu,
    /// A number of the group, by its column; of [`VALUES`].
    Value(usize, &'static Value),
}

/// A column that holds a number.
struct Value {
    names: &'static [&'static [u8]],
    metric: &'static str,
    form: Form,
    factor: f64,
    read: fn(&[u8]) -> Option<f64>,
    /// Whether it is of the whole process, not of its further threads.
    of_leader: bool,
}

const fn value(
    names: &'static [&'static [u8]],
    metric: &'static str,
    form: Form,
    factor: f64,
    read: fn(&[u8]) -> Option<f64>,
    of_leader: bool,
) -> Value {
    Value { names, metric, form, factor, read, of_leader }
}

const SPACE: &str = "task.vsize";
#[rustfmt::skip]
const VALUES: &[Value] = &[
    value(list!("PPID"), "task.ppid", Form::Level, 1.0, number, false),
    value(list!("NI"), "task.nice", Form::Level, 1.0, number, false),
    value(list!("PSR P"), "task.cpu", Form::Level, 1.0, number, false),
    value(list!("CLS"), "task.policy", Form::Level, 1.0, policy, false),
    value(list!("NLWP THCNT nTH"), "task.threads", Form::Level, 1.0, number, true),
    value(list!("RSS RSZ RES"), "task.rss", Form::Level, 1024.0, size_kib, true),
    value(list!("VSZ VIRT"), SPACE, Form::Level, 1024.0, size_kib, true),
    value(list!("SWAP"), "task.swap", Form::Level, 1024.0 / PAGE, size_kib, true),
    value(list!("RSan"), "task.rss_anon", Form::Level, 1024.0 / PAGE, size_kib, true),
    value(list!("RSfd"), "task.rss_file", Form::Level, 1024.0 / PAGE, size_kib, true),
    value(list!("RSsh"), "task.rss_shmem", Form::Level, 1024.0 / PAGE, size_kib, true),
    value(list!("MAJFL MAJFLT nMaj"), "task.majflt", Form::Total, 1.0, count, false),
    value(list!("MINFL MINFLT nMin"), "task.minflt", Form::Total, 1.0, count, false),
    value(list!("TIME TIME+"), "task.cpu_time", Form::Total, 1.0, duration, false),
];

/// A policy of the scheduler, by its number.
fn policy(word: &[u8]) -> Option<f64> {
    let names: &[&[u8]] = list!("TS FF RR B ISO IDL DLN");
    names.iter().position(|name| *name == word).map(|policy| policy as f64)
}

/// The header, understood.
pub struct Table {
    cells: Vec<Cell>,
    group: GroupId,
    width: usize,
    kthread: usize,
    state: usize,
    command_at: Option<usize>,
    names_only: bool,
    style: Style,
    /// Rows are threads whose process is not known.
    threads: bool,
}

/// The longest name that the kernel keeps.
const COMM_MAX: usize = 15;

/// What a row says beyond its numbers.
pub struct TaskRow {
    /// Its row in the groups of tasks.
    pub row: String,
    /// Its process id.
    pub pid: u32,
    /// The letter of its state.
    pub state: Option<u8>,
    /// Percent of one CPU.
    pub cpu: f64,
}

impl Table {
    /// Understands a header. `threads`: its rows are threads.
    pub fn new(header: &[u8], style: Style, threads: bool, import: &mut Import) -> Table {
        let names: Vec<&[u8]> = words(header).map(english).collect();
        let has_thread = names.iter().any(|n| matches!(*n, b"LWP" | b"SPID" | b"TID"));
        let mut columns = Vec::new();
        let mut add = |metric: &str, form: Form, factor: f64| {
            columns.extend(Column::new(metric, form, factor));
            columns.len() - 1
        };
        let kthread = add("task.kthread", Form::Level, 1.0);
        let state = add("task.state", Form::Level, 1.0);
        let mut cells: Vec<Cell> = names
            .iter()
            .map(|name| match *name {
                b"PID" if has_thread => Cell::Tgid,
                b"PID" => Cell::Pid,
                b"TGID" => Cell::Tgid,
                b"LWP" | b"SPID" | b"TID" => Cell::Tid,
                b"S" | b"STAT" | b"STATE" => Cell::State,
                b"WCHAN" | b"NWCHAN" => Cell::Wait,
                b"COMM" | b"UCMD" | b"UCOMM" => Cell::Name,
                b"CMD" | b"COMMAND" | b"ARGS" => Cell::Command,
                b"START" | b"STARTED" | b"STIME" => Cell::Start,
                b"ENVIRON" => Cell::Free,
                b"%CPU" if style == Style::Top => Cell::Cpu,
                name => {
                    let value = VALUES.iter().find(|value| value.names.contains(&name));
                    value.map_or(Cell::Skip, |value| {
                        Cell::Value(add(value.metric, value.form, value.factor), value)
                    })
                }
            })
            .collect();
        let width = columns.len();
        let flexible = |c: &Cell| matches!(c, Cell::Command | Cell::Name);
        let command_at = cells.iter().rposition(flexible);
        // Of two commands the first is the name alone.
        for (i, cell) in cells.iter_mut().enumerate() {
            if flexible(cell) && Some(i) != command_at {
                *cell = Cell::Name;
            }
        }
        let group = import.group(columns);
        let names_only = only_names(&import.context.command, style);
        let threads = threads && !names.contains(&&b"TGID"[..]);
        Table { cells, group, width, kthread, state, command_at, names_only, threads, style }
    }

    /// Reads a row into the group; `None` when it is none, and nothing is kept.
    pub fn row(&self, line: &[u8], at: When, number: u32, import: &mut Import) -> Option<TaskRow> {
        let mut parsed = Parsed { values: vec![f64::NAN; self.width], ..Parsed::default() };
        let before = self.command_at.unwrap_or(self.cells.len());
        let mut list = words(line);
        for cell in self.cells.get(..before)? {
            if matches!(cell, Cell::Free) {
                return None;
            }
            let word = list.next()?;
            if matches!(cell, Cell::Start) {
                let more = match word.first() {
                    Some(b) if b.is_ascii_alphabetic() && word.len() == 3 => {
                        // `Nov 21`, or `Sat Nov 21 09:52:31 2026`.
                        if list.clone().next()?.first()?.is_ascii_digit() { 1 } else { 4 }
                    }
                    _ => 0,
                };
                for _ in 0..more {
                    list.next()?;
                }
                continue;
            }
            parsed.cell(*cell, word)?;
        }
        let mut command = list.rest().trim_ascii_end();
        if let Some(at) = self.command_at {
            let behind = self.cells.get(at + 1..)?;
            // Where an environment stands, no column behind the command can be told from it.
            let is_open = self.cells.iter().any(|cell| matches!(cell, Cell::Free));
            let behind = if is_open { &[] } else { behind };
            if is_open {
                command = words(command).next()?;
            }
            for cell in behind.iter().rev() {
                let word = last_word(&mut command)?;
                if matches!(cell, Cell::Start) {
                    // A whole date, or a month and a day.
                    let more = match word.len() {
                        4 if word.iter().all(u8::is_ascii_digit) => 4,
                        1 | 2 => 1,
                        _ => 0,
                    };
                    for _ in 0..more {
                        last_word(&mut command)?;
                    }
                    continue;
                }
                parsed.cell(*cell, word)?;
            }
            parsed.command = command;
        }
        self.put(parsed, at, number, import)
    }

    fn put(&self, parsed: Parsed<'_>, at: When, number: u32, import: &mut Import) -> Option<TaskRow> {
        let tid = parsed.tid.or(parsed.pid).or(parsed.tgid)?;
        let pid = parsed.tgid.or(parsed.pid).unwrap_or(tid);
        let shown = parsed.name.unwrap_or(parsed.command);
        // What top prints is a name unless it is longer than names are.
        let is_name =
            self.names_only || parsed.name.is_some() || self.style == Style::Top && shown.len() <= COMM_MAX;
        let comm = comm(shown, is_name);
        let row = import.task(tid, &comm);
        if tid != pid {
            // In place of what is assumed of a task that nothing more is known of.
            import.value("task.tgid", &row, Form::Level, When::Fact, 0, f64::from(pid));
        }
        let out = import.row(self.group, row.as_bytes(), at, number);
        let mut set = |i: usize, value: f64| {
            if let Some(slot) = out.get_mut(i) {
                *slot = value;
            }
        };
        for (i, value) in parsed.values.iter().enumerate() {
            set(i, *value);
        }
        for i in parsed.of_leader.iter().filter(|_| tid != pid || self.threads) {
            set(*i, f64::NAN);
        }
        if let Some(state) = parsed.state {
            set(self.state, f64::from(state));
        }
        // Kernel threads have no memory of their own; those that ended have none left.
        if let (Some(size), Some(state)) = (parsed.vsize, parsed.state)
            && state != b'Z'
            && state != b'X'
        {
            set(self.kthread, if size == 0.0 { 1.0 } else { 0.0 });
        }
        if parsed.state == Some(b'D')
            && let Some(wait) = parsed.wait
        {
            import.text("task.kstack", &row, at, &text(wait));
        }
        Some(TaskRow { row, pid, state: parsed.state, cpu: parsed.cpu })
    }
}

/// Takes the last word from a line; `None` where it would be the only one.
fn last_word<'a>(line: &mut &'a [u8]) -> Option<&'a [u8]> {
    let start = line.iter().rposition(|b| matches!(b, b' ' | b'\t'))?;
    let (rest, word) = line.split_at_checked(start)?;
    *line = rest.trim_ascii_end();
    word.get(1..)
}

/// A row while it is read.
#[derive(Default)]
struct Parsed<'a> {
    values: Vec<f64>,
    of_leader: Vec<usize>,
    pid: Option<u32>,
    tid: Option<u32>,
    tgid: Option<u32>,
    state: Option<u8>,
    wait: Option<&'a [u8]>,
    name: Option<&'a [u8]>,
    command: &'a [u8],
    vsize: Option<f64>,
    cpu: f64,
}

impl<'a> Parsed<'a> {
    /// Takes one cell; `None` where it cannot be what the header says, so that the line is no row.
    fn cell(&mut self, cell: Cell, word: &'a [u8]) -> Option<()> {
        let id =
            || number(word).filter(|n| n.fract() == 0.0 && (0.0..=4_194_304.0).contains(n)).map(|n| n as u32);
        match cell {
            Cell::Skip | Cell::Start | Cell::Command | Cell::Free => {}
            // ps prints `-` on the lines of threads, and of the process of threads.
            Cell::Pid => self.pid = Some(id()?),
            Cell::Tid if word == b"-" => {}
            Cell::Tid => self.tid = Some(id()?),
            Cell::Tgid if word == b"-" => {}
            Cell::Tgid => self.tgid = Some(id()?),
            Cell::State => {
                self.state = Some(*word.first().filter(|b| b.is_ascii_alphabetic() || **b == b'-')?)
                    .filter(u8::is_ascii_alphabetic);
            }
            Cell::Wait => self.wait = (!matches!(word, b"-" | b"0" | b"?" | b"*" | b"1")).then_some(word),
            Cell::Name => self.name = Some(word),
            Cell::Value(i, value) => {
                let number = (value.read)(word);
                if let Some(slot) = self.values.get_mut(i) {
                    *slot = number.unwrap_or(f64::NAN);
                }
                if value.of_leader {
                    self.of_leader.push(i);
                }
                if value.metric == SPACE {
                    self.vsize = number;
                }
            }
            Cell::Cpu => self.cpu = number(word).filter(|v| *v >= 0.0).unwrap_or(f64::NAN),
        }
        Some(())
    }
}

/// KiB, or with a suffix what it says.
fn size_kib(word: &[u8]) -> Option<f64> {
    match word.last() {
        Some(b'0'..=b'9') => number(word),
        _ => with_suffix(word).map(|bytes| bytes / 1024.0),
    }
    .filter(|v| *v >= 0.0)
}

/// A count that top may have shortened: `12k`, `3.4m`, in thousands.
fn count(word: &[u8]) -> Option<f64> {
    let (value, rest) = leading(word)?;
    let power = match rest {
        [] => 0,
        b"k" => 1,
        b"m" => 2,
        b"g" => 3,
        _ => return None,
    };
    Some(value * 1000_f64.powi(power)).filter(|v| *v >= 0.0)
}

/// Whether the command of a row is a name that may hold blanks: always in top without `-c`, and in ps where the command
/// says so.
fn only_names(command: &[String], style: Style) -> bool {
    match (command.first().map(String::as_str), style) {
        (Some("ps"), _) => {
            let asks = |what: &str| command.iter().any(|w| w.split([',', ':', '=']).any(|part| part == what));
            (asks("comm") || asks("ucmd") || asks("ucomm"))
                && !asks("args")
                && !asks("cmd")
                && !asks("command")
        }
        (Some("top"), _) => {
            !command.iter().any(|w| w.starts_with('-') && !w.starts_with("--") && w.contains('c'))
        }
        _ => false,
    }
}

/// The name of a task from what stands in the column of the command: at most 15 bytes, as the kernel keeps it, of the
/// program without its folder and arguments. Names of kernel workers are longer; they are cut as well, so that all
/// tools agree.
fn comm(shown: &[u8], is_name: bool) -> String {
    // top and ps mark the depth in a forest.
    let shown = shown.strip_suffix(b" <defunct>").unwrap_or(shown);
    let start = shown.iter().position(|b| !matches!(b, b' ' | b'|' | b'\\' | b'`')).unwrap_or(0);
    let shown = shown.get(start..).unwrap_or(shown);
    let shown = shown.strip_prefix(b"_ ").or_else(|| shown.strip_prefix(b"- ")).unwrap_or(shown);
    let name = if let Some(inner) = shown.strip_prefix(b"[") {
        inner.split(|b| *b == b']').next().unwrap_or(inner)
    } else if is_name {
        shown
    } else {
        let first = words(shown).next().unwrap_or(shown);
        let first = first.strip_suffix(b":").unwrap_or(first);
        let first = first.strip_prefix(b"-").filter(|f| !f.is_empty()).unwrap_or(first);
        // A kernel worker's name has slashes and is no path.
        if first.starts_with(b"/") || first.starts_with(b".") {
            first.rsplit(|b| *b == b'/').next().unwrap_or(first)
        } else {
            first
        }
    };
    text(name.get(..COMM_MAX).unwrap_or(name))
}
