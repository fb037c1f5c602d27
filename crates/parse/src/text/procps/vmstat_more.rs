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

use crate::find::find;
use crate::text::import::{Column, Form, Import};
use crate::text::number::{number, words};
use crate::text::{Context, Format, Lines};

use super::common::{is_header, when};

/// `vmstat -s`.
pub const SUMS: Format =
    Format { name: "vmstat -s", what: "counters and memory since boot", starts: is_sum, read: sums };
/// `vmstat -d`.
pub const DISKS: Format =
    Format { name: "vmstat -d", what: "counters of block devices", starts: is_disks, read: disks };
/// `vmstat -p`.
pub const PARTITION: Format =
    Format { name: "vmstat -p", what: "counters of one partition", starts: is_partition, read: partition };
/// `vmstat -m`.
pub const SLABS: Format = Format { name: "vmstat -m", what: "slab caches", starts: is_slabs, read: slabs };
/// `vmstat -D`.
pub const ALL_DISKS: Format = Format {
    name: "vmstat -D",
    what: "recognised; sums over all disks have no metric",
    starts: is_all_disks,
    read: all_disks,
};

/// The number and the words of a line of `-s`.
fn sum(line: &[u8]) -> Option<(f64, &[u8])> {
    let mut list = words(line);
    let value = number(list.next()?).filter(|v| *v >= 0.0)?;
    Some((value, list.rest().trim_ascii_end()))
}

fn is_sum(lines: &mut Lines<'_>, _: &Context) -> bool {
    let is = |line: Option<&[u8]>, what: &[u8]| {
        line.and_then(sum).is_some_and(|(_, rest)| rest == what || rest.get(2..) == Some(what))
    };
    is(lines.peek(), b"total memory") && is(lines.ahead(1), b"used memory")
}

fn sums(lines: &mut Lines<'_>, import: &mut Import) {
    let at = import.now();
    loop {
        let number = lines.number();
        let Some(line) = lines.peek() else { break };
        let Some((value, rest)) = sum(line) else { break };
        let (unit, name) = match rest {
            [b'K', b' ', name @ ..] => (1024.0, name),
            [b'k', b' ', name @ ..] => (1000.0, name),
            [b'M', b' ', name @ ..] => (1_048_576.0, name),
            [b'm', b' ', name @ ..] => (1e6, name),
            name => (1024.0, name),
        };
        match sum_metric(name, unit) {
            Some((metric, form, factor)) => {
                import.value(metric, "", form, at, number, value * factor);
            }
            None if sum_is_known(name) => {}
            None => import.unread(number, line),
        }
        lines.advance();
    }
}

/// What has no metric: what is used follows from the rest, and when the machine booted is no measurement.
fn sum_is_known(name: &[u8]) -> bool {
    matches!(
        name,
        b"used memory" | b"used swap" | b"boot time" | b"non-nice guest cpu ticks" | b"nice guest cpu ticks"
    )
}

/// Ticks are hundredths of a second on every architecture that matters.
fn sum_metric(name: &[u8], unit: f64) -> Option<(&'static str, Form, f64)> {
    use Form::{Level, Total};
    Some(match name {
        b"total memory" => ("mem.total", Level, unit),
        b"active memory" => ("mem.active", Level, unit),
        b"inactive memory" => ("mem.inactive", Level, unit),
        b"free memory" => ("mem.free", Level, unit),
        b"buffer memory" => ("mem.buffers", Level, unit),
        // The page cache, not SwapCached, in spite of the name.
        b"swap cache" => ("mem.cached", Level, unit),
        b"total swap" => ("mem.swap_total", Level, unit),
        b"free swap" => ("mem.swap_free", Level, unit),
        b"non-nice user cpu ticks" => ("sys.cpu_user", Total, 0.01),
        b"nice user cpu ticks" => ("sys.cpu_nice", Total, 0.01),
        b"system cpu ticks" => ("sys.cpu_system", Total, 0.01),
        b"idle cpu ticks" => ("sys.cpu_idle", Total, 0.01),
        b"IO-wait cpu ticks" => ("sys.cpu_iowait", Total, 0.01),
        b"IRQ cpu ticks" => ("sys.cpu_irq", Total, 0.01),
        b"softirq cpu ticks" => ("sys.cpu_softirq", Total, 0.01),
        b"stolen cpu ticks" => ("sys.cpu_steal", Total, 0.01),
        // Old versions call them pages; they are KiB all the same.
        b"paged in" | b"pages paged in" => ("vm.pgpgin", Total, 1024.0),
        b"paged out" | b"pages paged out" => ("vm.pgpgout", Total, 1024.0),
        b"pages swapped in" => ("vm.pswpin", Total, 1.0),
        b"pages swapped out" => ("vm.pswpout", Total, 1.0),
        b"interrupts" => ("sys.intr", Total, 1.0),
        b"CPU context switches" => ("sys.ctxt", Total, 1.0),
        b"forks" => ("sys.forks", Total, 1.0),
        _ => return None,
    })
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
    let banner = lines.peek().is_some_and(|l| find!(l, b"---").is_some() && is_header(l));
    banner
        && lines.ahead(1).is_some_and(|l| is_header(l) && words(l).count() >= 10)
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
    loop {
        let number = lines.number();
        let Some(line) = lines.peek() else { break };
        if let Some((name, values)) = disk(line) {
            // The first device again: the next report.
            if first.as_deref().is_some_and(|f| f == name) {
                n += 1;
            }
            first.get_or_insert_with(|| name.into());
            let at = if several || n > 0 { when(import, base, n) } else { import.now() };
            import.row(group, name, at, number).copy_from_slice(&values);
            lines.advance();
        } else if is_disks(lines, &import.context) {
            lines.advance();
            lines.advance();
        } else {
            break;
        }
    }
    import.context.step = base.saturating_add(n + 1);
}

fn is_partition(lines: &mut Lines<'_>, _: &Context) -> bool {
    lines.peek().is_some_and(|line| {
        let mut list = words(line);
        list.next().is_some_and(|name| name.last().is_some_and(u8::is_ascii_digit))
            && list.next() == Some(b"reads")
            && list.next() == Some(b"read")
            && list.next() == Some(b"sectors")
            && list.next() == Some(b"writes")
    })
}

/// The last column is called `requested writes`; versions do not agree on what it counts.
fn partition(lines: &mut Lines<'_>, import: &mut Import) {
    const COLUMNS: [(&str, f64); 3] = [("disk.reads", 1.0), ("disk.read_bytes", 512.0), ("disk.writes", 1.0)];
    let Some(name) = lines.peek().and_then(|l| words(l).next().map(<[u8]>::to_vec)) else { return };
    lines.advance();
    let group = import.group(COLUMNS.iter().filter_map(|(m, f)| Column::new(m, Form::Total, *f)).collect());
    let base = import.context.step;
    let mut n = 0;
    loop {
        let number = lines.number();
        let Some(line) = lines.peek() else { break };
        let mut values = [0.0; 4];
        let mut list = words(line);
        let complete = values.iter_mut().all(|slot| {
            list.next().and_then(crate::text::number::number).is_some_and(|v| {
                *slot = v;
                true
            })
        });
        if !complete || list.next().is_some() {
            break;
        }
        lines.advance();
        let at =
            if import.context.interval_s.is_some() || n > 0 { when(import, base, n) } else { import.now() };
        for (slot, value) in import.row(group, &name, at, number).iter_mut().zip(values) {
            *slot = value;
        }
        n += 1;
    }
    import.context.step = base.saturating_add(n);
}

fn is_slabs(lines: &mut Lines<'_>, _: &Context) -> bool {
    lines.peek().is_some_and(|line| words(line).eq([&b"Cache"[..], b"Num", b"Total", b"Size", b"Pages"]))
}

/// `Pages` holds the objects of a slab in some versions and its pages in others.
fn slabs(lines: &mut Lines<'_>, import: &mut Import) {
    const COLUMNS: [&str; 3] = ["slab.active_objs", "slab.num_objs", "slab.objsize"];
    let group = import.group(COLUMNS.iter().filter_map(|m| Column::new(m, Form::Level, 1.0)).collect());
    let at = import.now();
    lines.advance();
    loop {
        let number = lines.number();
        let Some(line) = lines.peek() else { break };
        let mut list = words(line);
        let Some(name) = list.next() else { break };
        let mut values = [f64::NAN; 4];
        for (slot, word) in values.iter_mut().zip(list.clone()) {
            *slot = crate::text::number::number(word).unwrap_or(f64::NAN);
        }
        if list.count() == 4 && values.iter().all(|v| *v >= 0.0) {
            for (slot, value) in import.row(group, name, at, number).iter_mut().zip(values) {
                *slot = value;
            }
        } else if !is_slabs(lines, &import.context) {
            break;
        }
        lines.advance();
    }
}

fn is_all_disks(lines: &mut Lines<'_>, _: &Context) -> bool {
    let is = |line: Option<&[u8]>, what: &[u8]| line.and_then(sum).is_some_and(|(_, rest)| rest == what);
    is(lines.peek(), b"disks") && is(lines.ahead(1), b"partitions")
}

fn all_disks(lines: &mut Lines<'_>, import: &mut Import) {
    import.note("vmstat -D: sums over all disks, left out");
    while lines.peek().and_then(sum).is_some() {
        lines.advance();
    }
}
