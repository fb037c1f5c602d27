//! The other tables of vmstat: `-s`, `-d`, `-p`, `-m`, and `-D`, whose sums over all disks have no metric.
//!
//! ```text
//!      24684084 K total memory
//!        786541 non-nice user cpu ticks
//!
//! disk- ------------reads------------ ------------writes----------- -----IO------
//!        total merged sectors      ms  total merged sectors      ms    cur    sec
//! vda   6467175 212885 670354226 7007039 1557966 429895 1072778360 7253754      0    572
//!
//! vda1          reads   read sectors  writes    requested writes
//!              123456       123456    1234       5678
//!
//! Cache                       Num  Total   Size  Pages
//! dentry                   109494 109536    192     21
//! ```

use crate::text::prelude::*;

use super::common::{is_header, when};

/// `vmstat -s`.
pub const SUMS: Format = Format::new("vmstat -s", "counters and memory since boot", is_sum, sums);
/// `vmstat -d`.
pub const DISKS: Format = Format::new("vmstat -d", "counters of block devices", is_disks, disks);
/// `vmstat -p`.
pub const PARTITION: Format = Format::new("vmstat -p", "counters of one partition", is_partition, partition);
/// `vmstat -m`.
pub const SLABS: Format = Format::new("vmstat -m", "slab caches", |lines, _| lines.at(is_slabs), slabs);
/// `vmstat -D`.
pub const ALL_DISKS: Format =
    Format::new("vmstat -D", "recognised; sums over all disks have no metric", is_all_disks, all_disks);

/// The number and the words of a line of `-s`.
fn sum(line: &[u8]) -> Option<(f64, &[u8])> {
    let mut list = words(line);
    let value = number(list.next()?).filter(|v| *v >= 0.0)?;
    Some((value, list.rest().trim_ascii_end()))
}

fn is_sum(lines: &mut Lines<'_>, _: &Context) -> bool {
    let is = |line: &[u8], what: &[u8]| {
        sum(line).is_some_and(|(_, rest)| rest == what || rest.get(2..) == Some(what))
    };
    lines.at(|line| is(line, b"total memory")) && lines.soon(1, |line| is(line, b"used memory"))
}

/// What is used follows from the rest, and when the machine booted is no measurement.
const SUMS_WITHOUT_METRIC: &[&[u8]] =
    list!("used memory|used swap|boot time|non-nice guest cpu ticks|nice guest cpu ticks", b'|');
/// Sizes. `swap cache` is the page cache, not SwapCached, in spite of the name.
const SIZES: &[(&str, &str)] = &[
    ("total memory", "mem.total"),
    ("active memory", "mem.active"),
    ("inactive memory", "mem.inactive"),
    ("free memory", "mem.free"),
    ("buffer memory", "mem.buffers"),
    ("swap cache", "mem.cached"),
    ("total swap", "mem.swap_total"),
    ("free swap", "mem.swap_free"),
];
/// Counters. Ticks are hundredths of a second on every architecture that matters; what old versions call pages is KiB
/// all the same.
const COUNTERS: &[(&str, &str, f64)] = &[
    ("non-nice user cpu ticks", "sys.cpu_user", 0.01),
    ("nice user cpu ticks", "sys.cpu_nice", 0.01),
    ("system cpu ticks", "sys.cpu_system", 0.01),
    ("idle cpu ticks", "sys.cpu_idle", 0.01),
    ("IO-wait cpu ticks", "sys.cpu_iowait", 0.01),
    ("IRQ cpu ticks", "sys.cpu_irq", 0.01),
    ("softirq cpu ticks", "sys.cpu_softirq", 0.01),
    ("stolen cpu ticks", "sys.cpu_steal", 0.01),
    ("paged in", "vm.pgpgin", 1024.0),
    ("pages paged in", "vm.pgpgin", 1024.0),
    ("paged out", "vm.pgpgout", 1024.0),
    ("pages paged out", "vm.pgpgout", 1024.0),
    ("pages swapped in", "vm.pswpin", 1.0),
    ("pages swapped out", "vm.pswpout", 1.0),
    ("interrupts", "sys.intr", 1.0),
    ("CPU context switches", "sys.ctxt", 1.0),
    ("forks", "sys.forks", 1.0),
];

fn sums(lines: &mut Lines<'_>, import: &mut Import) {
    let at = import.now();
    lines.each(import, |lines, number, import| {
        let Some((value, rest)) = sum(lines.line()) else { return Took::No };
        let (unit, name) = match rest {
            [b'K', b' ', name @ ..] => (1024.0, name),
            [b'k', b' ', name @ ..] => (1000.0, name),
            [b'M', b' ', name @ ..] => (1_048_576.0, name),
            [b'm', b' ', name @ ..] => (1e6, name),
            name => (1024.0, name),
        };
        if let Some((_, metric)) = SIZES.iter().find(|(size, _)| size.as_bytes() == name) {
            import.value(metric, "", Form::Level, at, number, value * unit);
        } else if let Some((_, metric, factor)) = COUNTERS.iter().find(|(of, ..)| of.as_bytes() == name) {
            import.value(metric, "", Form::Total, at, number, value * factor);
        } else if !SUMS_WITHOUT_METRIC.contains(&name) {
            return Took::Unread;
        }
        Took::Yes
    });
}

/// The device and the ten numbers of a row of `-d`.
fn disk(line: &[u8]) -> Option<(&[u8], [f64; 10])> {
    let mut list = words(line);
    let name = list.next().filter(|n| n.first().is_some_and(u8::is_ascii_alphabetic))?;
    let mut values = [0.0; 10];
    for slot in &mut values {
        *slot = list.next().and_then(number).filter(|v| *v >= 0.0)?;
    }
    // With -t a date and a time follow.
    matches!(list.count(), 0 | 2 | 3).then_some((name, values))
}

fn is_disks(lines: &mut Lines<'_>, _: &Context) -> bool {
    let banner = lines.at(|l| find!(l, b"---").is_some() && is_header(l));
    banner
        && lines.soon(1, |l| is_header(l) && words(l).count() >= 10)
        && lines.ahead(2).is_some_and(|l| disk(l).is_some())
}

fn disks(lines: &mut Lines<'_>, import: &mut Import) {
    const COLUMNS: [(&str, Form, f64); 10] = [
        ("disk.reads", Form::Total, 1.0),
        ("disk.read_merges", Form::Total, 1.0),
        ("disk.read_bytes", Form::Total, 512.0),
        ("disk.read_time", Form::Total, 0.001),
        ("disk.writes", Form::Total, 1.0),
        ("disk.write_merges", Form::Total, 1.0),
        ("disk.write_bytes", Form::Total, 512.0),
        ("disk.write_time", Form::Total, 0.001),
        ("disk.in_flight", Form::Level, 1.0),
        ("disk.io_time", Form::Total, 1.0),
    ];
    let group = import.group(COLUMNS.iter().filter_map(|(m, f, x)| Column::new(m, *f, *x)).collect());
    let base = import.context.step;
    let (mut n, mut first) = (0, None::<Box<[u8]>>);
    let several = import.context.interval_s.is_some();
    lines.each(import, |lines, number, import| {
        let Some((name, values)) = disk(lines.line()) else {
            // The banner again: its second line is a header, too.
            let banner = is_disks(lines, &import.context);
            if banner {
                lines.advance();
            }
            return if banner { Took::Yes } else { Took::No };
        };
        // The first device again: the next report.
        n += u32::from(first.as_deref() == Some(name));
        first.get_or_insert_with(|| name.into());
        let at = if several || n > 0 { when(import, base, n) } else { import.now() };
        import.put(group, name, at, number, &values);
        Took::Yes
    });
    import.context.step = base.saturating_add(n + 1);
}

fn is_partition(lines: &mut Lines<'_>, _: &Context) -> bool {
    lines.at(|line| {
        let mut list = words(line);
        list.next().is_some_and(|name| name.last().is_some_and(u8::is_ascii_digit))
            && list.take(4).eq([&b"reads"[..], b"read", b"sectors", b"writes"])
    })
}

/// The only so many numbers of a row.
fn numbers<const N: usize>(mut list: crate::text::number::Words<'_>) -> Option<[f64; N]> {
    let mut values = [0.0; N];
    for value in &mut values {
        *value = number(list.next()?)?;
    }
    list.next().is_none().then_some(values)
}

/// The last column is called `requested writes`; versions do not agree on what it counts.
fn partition(lines: &mut Lines<'_>, import: &mut Import) {
    const COLUMNS: [(&str, f64); 3] = [("disk.reads", 1.0), ("disk.read_bytes", 512.0), ("disk.writes", 1.0)];
    let Some(name) = lines.peek().and_then(|l| words(l).next().map(<[u8]>::to_vec)) else { return };
    lines.advance();
    let group = import.group(COLUMNS.iter().filter_map(|(m, f)| Column::new(m, Form::Total, *f)).collect());
    let base = import.context.step;
    let mut n = 0;
    lines.each(import, |lines, line, import| {
        let Some(values) = numbers::<4>(words(lines.line())) else { return Took::No };
        let several = import.context.interval_s.is_some() || n > 0;
        let at = if several { when(import, base, n) } else { import.now() };
        import.put(group, &name, at, line, &values);
        n += 1;
        Took::Yes
    });
    import.context.step = base.saturating_add(n);
}

fn is_slabs(line: &[u8]) -> bool {
    words(line).eq([&b"Cache"[..], b"Num", b"Total", b"Size", b"Pages"])
}

/// `Pages` holds the objects of a slab in some versions and its pages in others.
fn slabs(lines: &mut Lines<'_>, import: &mut Import) {
    let group = import.columns(&["slab.active_objs", "slab.num_objs", "slab.objsize"], Form::Level);
    let at = import.now();
    lines.each(import, |lines, line, import| {
        if lines.at(is_slabs) {
            return Took::Yes;
        }
        let mut list = words(lines.line());
        let Some(name) = list.next() else { return Took::No };
        let Some(values) = numbers::<4>(list).filter(|v| v.iter().all(|v| *v >= 0.0)) else {
            return Took::No;
        };
        import.put(group, name, at, line, &values);
        Took::Yes
    });
}

fn is_all_disks(lines: &mut Lines<'_>, _: &Context) -> bool {
    let is = |line: &[u8], what: &[u8]| sum(line).is_some_and(|(_, rest)| rest == what);
    lines.at(|line| is(line, b"disks")) && lines.soon(1, |line| is(line, b"partitions"))
}

fn all_disks(lines: &mut Lines<'_>, import: &mut Import) {
    import.note("vmstat -D: sums over all disks, left out");
    while lines.at(|line| sum(line).is_some()) {
        lines.advance();
    }
}
