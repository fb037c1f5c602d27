//! `top -b`, any number of screens, of procps 3.2 to 4.
//!
//! ```text
//! top - 13:30:10 up  3:37,  1 user,  load average: 0.17, 0.11, 0.27
//! Tasks:  90 total,   3 running,  87 sleeping,   0 stopped,   0 zombie
//! %Cpu(s):  0.0 us,100.0 sy,  0.0 ni,  0.0 id,  0.0 wa,  0.0 hi,  0.0 si,  0.0 st
//! MiB Mem :  24105.6 total,  21602.2 free,    597.7 used,   2304.3 buff/cache
//! MiB Swap:      0.0 total,      0.0 free,      0.0 used.  23507.9 avail Mem
//!
//!   PID USER      PR  NI    VIRT    RES    SHR S  %CPU  %MEM     TIME+ COMMAND
//! 21943 root      20   0   27856  23552   1976 R  20.0   0.1   0:00.03 localedef
//! ```
//!
//! and in old versions:
//!
//! ```text
//! Cpu(s):  0.3%us,  0.1%sy,  0.0%ni, 99.6%id,  0.0%wa,  0.0%hi,  0.0%si,  0.0%st
//! Mem:  16333384k total, 16000000k used,   333384k free,   200000k buffers
//! Swap:  2097148k total,        0k used,  2097148k free,  9000000k cached
//! ```
//!
//! and of busybox, whose shares of tasks are of all CPUs and not read:
//!
//! ```text
//! Mem: 1234560K used, 567800K free, 0K shrd, 1200K buff, 34500K cached
//! CPU:   5% usr   2% sys   0% nic  92% idle   1% io   0% irq   0% sirq
//! Load average: 0.26 0.47 0.52 1/725 12311
//! ```

use crate::text::prelude::*;

use super::common::loads;
use super::task_names::is_header;
use super::tasks::{Style, Table, TaskRow};
use super::uptime::put_loads;

/// See the module.
pub const FORMAT: Format = Format::new("top", "screens of `top -b` of procps 3.2 to 4", starts, read);

/// The shares of the first screen that are kept until it is known whether there is a second.
const FIRST_SCREEN_MAX: usize = 65_536;

fn starts(lines: &mut Lines<'_>, _: &Context) -> bool {
    lines.at(is_head)
}

/// Whether a line belongs to the upper part of a screen.
fn is_head(line: &[u8]) -> bool {
    let first = line.first().copied().unwrap_or_default();
    first_line(line).is_some()
        || busybox_memory(line).is_some()
        || busybox_loads(line).is_some()
        || tasks_line(line).is_some()
        || ((matches!(first, b'%' | b'C' | b'c') || find!(line, b"%Cpu").is_some())
            && cpu_parts(line).next().is_some())
        || ((matches!(first, b'K' | b'M' | b'G' | b'T' | b'P' | b'S') || first.is_ascii_whitespace())
            && is_memory(line))
}

/// `top - 13:30:10 up …`: time of day and load averages.
fn first_line(line: &[u8]) -> Option<(i64, [f64; 3])> {
    let rest = line.strip_prefix(b"top - ")?;
    let mut list = words(rest);
    let mut at = clock::time_of_day(list.next()?)?;
    if let Some(half) = list.next().and_then(|w| clock::with_half(at, w)) {
        at = half;
    }
    Some((at, loads(rest)?))
}

/// `Tasks:  90 total,   3 running, …`: whether threads are counted, all, and those that run.
fn tasks_line(line: &[u8]) -> Option<(bool, f64, f64)> {
    let threads = line.starts_with(b"Threads:");
    let names: [&[u8]; 2] = [b"Tasks:", "Tâches:".as_bytes()];
    if !threads && !names.iter().any(|name| line.starts_with(name)) {
        return None;
    }
    let mut numbers = words(line).filter_map(number);
    Some((threads, numbers.next()?, numbers.next()?))
}

/// `Mem: 1234560K used, 567800K free, 0K shrd, 1200K buff, 34500K cached`.
fn busybox_memory(line: &[u8]) -> Option<[(&'static str, f64); 5]> {
    let mut list = words(line.strip_prefix(b"Mem: ")?);
    let mut size = |label: &[u8]| {
        let kib = number(list.next()?.strip_suffix(b"K")?)?;
        let word = list.next()?;
        (word.strip_suffix(b",").unwrap_or(word) == label).then_some(kib * 1024.0)
    };
    let (used, free) = (size(b"used")?, size(b"free")?);
    Some([
        ("mem.total", used + free),
        ("mem.free", free),
        ("mem.shmem", size(b"shrd")?),
        ("mem.buffers", size(b"buff")?),
        ("mem.cached", size(b"cached")?),
    ])
}

/// `Load average: 0.26 0.47 0.52 1/725 12311`.
fn busybox_loads(line: &[u8]) -> Option<[f64; 3]> {
    let mut list = words(line.strip_prefix(b"Load average: ")?);
    let mut next = || list.next().and_then(number);
    let loads = [next()?, next()?, next()?];
    list.next().filter(|tasks| tasks.contains(&b'/'))?;
    Some(loads)
}

/// A number and the word behind it: `0.3%us`, ` 100.0 sy`, `24105.6 total`, `333384k free`.
struct Pair<'a> {
    value: f64,
    suffix: Option<u8>,
    label: &'a [u8],
}

/// The pairs behind the colon of a line; nothing where it is drawn as a bar.
fn pairs(line: &[u8]) -> Vec<Pair<'_>> {
    const PAIRS_MAX: usize = 12;
    let mut out = Vec::new();
    let Some(colon) = memchr::memchr(b':', line) else { return out };
    let mut rest = line.get(colon + 1..).unwrap_or(&[]);
    while let Some(at) = rest.iter().position(u8::is_ascii_digit) {
        let Some((value, after)) = rest.get(at..).and_then(leading) else { break };
        if matches!(after.first(), Some(b'/' | b'[')) || out.len() == PAIRS_MAX {
            return Vec::new();
        }
        let glued =
            after.first().map(u8::to_ascii_lowercase).filter(|b| matches!(b, b'k' | b'm' | b'g' | b't'));
        let suffix = glued.filter(|_| after.get(1).is_none_or(|b| matches!(b, b' ' | b',')));
        let start = after.iter().position(|b| b.is_ascii_alphabetic() || *b >= 0x80).unwrap_or(after.len());
        let start = if suffix.is_some() {
            let behind = after.get(1..).unwrap_or(&[]);
            1 + behind.iter().position(|b| b.is_ascii_alphabetic() || *b >= 0x80).unwrap_or(behind.len())
        } else {
            start
        };
        let label = after.get(start..).unwrap_or(&[]);
        let end = label
            .iter()
            .position(|b| matches!(b, b',' | b'.' | b' ' | b'\t') || b.is_ascii_digit())
            .unwrap_or(label.len());
        let (label, tail) = label.split_at_checked(end).unwrap_or((label, &[]));
        out.push(Pair { value, suffix, label });
        rest = tail;
    }
    out
}

/// The parts of a line of CPU shares, each from its `%Cpu`; wide screens have two on a line. Labels are translated, but
/// their order is the same and the shares of a part add up to all.
fn cpu_parts(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let second = memchr::memmem::find(line.get(1..).unwrap_or(&[]), b"%Cpu").map(|at| at + 1);
    let (a, b) = second.and_then(|at| line.split_at_checked(at)).unwrap_or((line, &[]));
    [a, b].into_iter().filter(|part| is_cpu(part))
}

fn is_cpu(part: &[u8]) -> bool {
    let rest = part.strip_prefix(b"%").unwrap_or(part);
    let named = rest.get(..3).is_some_and(|c| c.eq_ignore_ascii_case(b"cpu"))
        && rest.get(3).is_some_and(|b| matches!(b, b'(' | b':' | b'/' | b' ') || b.is_ascii_digit());
    if !named {
        return false;
    }
    let list = pairs(part);
    let sum: f64 = list.iter().map(|p| p.value).sum();
    matches!(list.len(), 7 | 8)
        && list.iter().all(|p| !p.label.is_empty())
        && ((95.0..=105.0).contains(&sum) || sum == 0.0 && part.starts_with(b"%"))
}

/// The number of the CPU of a part; nothing for all.
fn cpu_number(part: &[u8]) -> Option<&[u8]> {
    let rest = part.strip_prefix(b"%").unwrap_or(part).get(3..)?;
    let end = rest.iter().position(|b| !b.is_ascii_digit()).unwrap_or(rest.len());
    rest.get(..end).filter(|n| !n.is_empty())
}

/// What one is worth in bytes on a line of memory.
fn memory_unit(line: &[u8]) -> Option<f64> {
    let word = words(line).next()?;
    let power = match word {
        b"KiB" | b"Mem:" | b"Swap:" => 1,
        b"MiB" => 2,
        b"GiB" => 3,
        b"TiB" => 4,
        b"PiB" => 5,
        _ => return None,
    };
    Some(1024_f64.powi(power))
}

/// A wide screen has the memory and the swap on one line.
fn memory_parts(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let second = line.get(..4).and_then(|unit| memchr::memmem::find(line.get(4..)?, unit)).map(|at| at + 4);
    let (a, b) = second.and_then(|at| line.split_at_checked(at)).unwrap_or((line, &[]));
    [a, b].into_iter().filter(|part| is_memory_part(part))
}

fn is_memory(line: &[u8]) -> bool {
    memory_parts(line).next().is_some()
}

fn is_memory_part(line: &[u8]) -> bool {
    memory_unit(line).is_some() && memchr::memchr(b':', line).is_some_and(|c| c < 20) && {
        let list = pairs(line);
        list.len() >= 3 && list.iter().take(3).all(|p| !p.label.is_empty())
    }
}

/// Shares of the first screen, which count only if it stays the only one.
#[derive(Default)]
struct FirstScreen {
    cpus: Vec<(Vec<u8>, u32)>,
    tasks: Vec<(String, u32, f64)>,
    at: Option<When>,
}

struct Screen {
    at: When,
    n: u32,
    memory_lines: u32,
    rows: u32,
    waiting: u32,
    total: Option<(f64, u32)>,
    table: Option<Table>,
    has_state: bool,
    threads: bool,
}

fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let mut screen = Screen {
        at: import.now(),
        n: 0,
        memory_lines: 0,
        rows: 0,
        waiting: 0,
        total: None,
        table: None,
        has_state: false,
        threads: false,
    };
    let mut first_screen = FirstScreen::default();
    lines.each(import, |lines, number, import| {
        let line = lines.line();
        if line.trim_ascii().is_empty() {
            let goes_on =
                (1..=4).filter_map(|n| lines.ahead(n).map(|l| is_head(l) || is_header(l))).any(|own| own)
                    || screen.table.is_none() && lines.soon(1, is_header);
            if !goes_on {
                return Took::No;
            }
            return Took::Yes;
        }
        if !head(line, number, &mut screen, &mut first_screen, import) {
            if is_header(line) {
                screen.has_state = super::task_names::has_state(line);
                screen.table = Some(Table::new(line, Style::Top, screen.threads, import));
            } else if !task(line, number, &mut screen, &mut first_screen, import) {
                if screen.table.is_none() {
                    return Took::No;
                }
                if !words(line).next().is_some_and(|w| w.iter().all(u8::is_ascii_digit)) {
                    return Took::No;
                }
                import.unread(number, line);
            }
        }
        Took::Yes
    });
    finish(&mut screen, import);
    release(first_screen, import);
}

/// Takes a line of the upper part.
fn head(
    line: &[u8],
    number: u32,
    screen: &mut Screen,
    first_screen: &mut FirstScreen,
    import: &mut Import,
) -> bool {
    if let Some((clock, values)) = first_line(line) {
        finish(screen, import);
        screen.n += 1;
        if screen.n == 2 {
            drop_first(first_screen, import);
        }
        screen.memory_lines = 0;
        screen.table = None;
        // A stamp above the screen knows the date, too, but only that of the first one.
        screen.at = import.context.stamp.filter(|_| screen.n == 1).unwrap_or(When::Clock(clock));
        if let Some(When::At(t)) = import.context.stamp.filter(|_| screen.n > 1) {
            let day = t.div_euclid(DAY) * DAY;
            let later = day + clock;
            screen.at = When::At(if later + 3600 * SECOND < t { later + DAY } else { later });
        }
        put_loads(import, screen.at, number, values);
    } else if let Some(values) = busybox_memory(line) {
        for (metric, value) in values {
            import.value(metric, "", Form::Level, screen.at, number, value);
        }
    } else if let Some(values) = busybox_loads(line) {
        put_loads(import, screen.at, number, values);
    } else if let Some((threads, all, running)) = tasks_line(line) {
        screen.total = Some((all, number));
        screen.threads = threads;
        if threads {
            import.value("tasks.total", "", Form::Level, screen.at, number, all);
            import.value("tasks.running", "", Form::Level, screen.at, number, running);
        }
    } else if cpu_parts(line).next().is_some() {
        if screen.n > 1 {
            cpu(line, screen.at, number, import);
        } else if first_screen.cpus.len() < FIRST_SCREEN_MAX {
            first_screen.at = Some(screen.at);
            first_screen.cpus.push((line.to_vec(), number));
        }
    } else if is_memory(line) {
        for part in memory_parts(line) {
            screen.memory_lines += 1;
            memory(part, screen, number, import);
        }
    } else {
        return false;
    }
    true
}

fn task(
    line: &[u8],
    number: u32,
    screen: &mut Screen,
    first_screen: &mut FirstScreen,
    import: &mut Import,
) -> bool {
    let Some(row) = screen.table.as_ref().and_then(|t| t.row(line, screen.at, number, import)) else {
        return false;
    };
    screen.rows += 1;
    screen.waiting += u32::from(row.state == Some(b'D'));
    let TaskRow { row, cpu, .. } = row;
    if screen.n > 1 {
        task_cpu(&row, screen.at, number, cpu, import);
    } else if first_screen.tasks.len() < FIRST_SCREEN_MAX {
        first_screen.at = Some(screen.at);
        first_screen.tasks.push((row, number, cpu));
    }
    true
}

fn task_group(import: &mut Import) -> GroupId {
    import.group(Column::new("task.cpu_time", Form::Rate, 0.01).into_iter().collect())
}

fn task_cpu(row: &str, at: When, number: u32, percent: f64, import: &mut Import) {
    let group = task_group(import);
    import.put(group, row.as_bytes(), at, number, &[percent]);
}

/// The end of a screen: where it lists all tasks, those in D state are counted.
fn finish(screen: &mut Screen, import: &mut Import) {
    if let Some((total, number)) = screen.total.take()
        && screen.has_state
        && f64::from(screen.rows) == total
    {
        let waiting = f64::from(screen.waiting);
        import.value("tasks.uninterruptible", "", Form::Level, screen.at, number, waiting);
    }
    (screen.rows, screen.waiting) = (0, 0);
}

/// The first screen's shares are of another span than those of the others: since boot in old versions, of an instant
/// in new ones. All that is kept of them is when the next interval began.
fn drop_first(first_screen: &mut FirstScreen, import: &mut Import) {
    let FirstScreen { cpus, tasks, at } = std::mem::take(first_screen);
    let Some(at) = at else { return };
    import.note("top: the CPU shares of the first screen, of an unknown span, are left out");
    for part in cpus.iter().flat_map(|(line, _)| cpu_parts(line)) {
        let group = cpu_group(cpu_number(part).is_some(), import);
        import.sampled(group, at);
    }
    if !tasks.is_empty() {
        let group = task_group(import);
        import.sampled(group, at);
    }
}

/// The shares of the only screen.
fn release(first_screen: FirstScreen, import: &mut Import) {
    let Some(at) = first_screen.at else { return };
    import.note("top: one screen; its CPU shares are of an instant, or since boot with old versions");
    for (line, number) in &first_screen.cpus {
        cpu(line, at, *number, import);
    }
    for (row, number, percent) in &first_screen.tasks {
        task_cpu(row, at, *number, *percent, import);
    }
}

/// The group of the shares of all CPUs, or of single ones, in the order in which they are printed.
fn cpu_group(single: bool, import: &mut Import) -> GroupId {
    const NAMES: [&str; 8] = ["user", "system", "nice", "idle", "iowait", "irq", "softirq", "steal"];
    let columns = NAMES.iter().filter_map(|name| {
        if single {
            Column::new(&format!("cpu.{name}"), Form::Rate, 0.01)
        } else {
            Column::new(&format!("sys.cpu_{name}"), Form::Share, 0.01)
        }
    });
    import.group(columns.collect())
}

fn cpu(line: &[u8], at: When, number: u32, import: &mut Import) {
    for part in cpu_parts(line) {
        let one = cpu_number(part);
        let group = cpu_group(one.is_some(), import);
        let row = import.row(group, one.unwrap_or(b""), at, number);
        for (pair, slot) in pairs(part).iter().zip(row) {
            *slot = pair.value;
        }
    }
}

/// Labels are translated, but not their order: total, free, used and the caches in new versions, total, used, free and
/// the buffers in old ones, which speak English.
fn memory(line: &[u8], screen: &Screen, number: u32, import: &mut Import) {
    let Some(unit) = memory_unit(line) else { return };
    let named = |name: &[u8]| memchr::memmem::find(line.get(..12).unwrap_or(line), name).is_some();
    let swap = named(b"Swap") || !named(b"Mem") && screen.memory_lines == 2;
    for (i, pair) in pairs(line).iter().enumerate() {
        let metric = match (pair.label, swap) {
            (b"total", false) => "mem.total",
            (b"total", true) => "mem.swap_total",
            (b"free", false) => "mem.free",
            (b"free", true) => "mem.swap_free",
            (b"used", false) => "mem.used",
            (b"used", true) => continue,
            (b"buffers", _) => "mem.buffers",
            (b"cached", _) => "mem.cached",
            (b"avail", _) => "mem.available",
            _ => match (i, swap) {
                (0, false) => "mem.total",
                (0, true) => "mem.swap_total",
                (1, false) => "mem.free",
                (1, true) => "mem.swap_free",
                (2, false) => "mem.used",
                (3, false) => "mem.buff_cache",
                (3, true) => "mem.available",
                _ => continue,
            },
        };
        let unit = match pair.suffix {
            Some(b'k') => 1024.0,
            Some(b'm') => 1024_f64.powi(2),
            Some(b'g') => 1024_f64.powi(3),
            Some(b't') => 1024_f64.powi(4),
            _ => unit,
        };
        import.value(metric, "", Form::Level, screen.at, number, pair.value * unit);
    }
}
