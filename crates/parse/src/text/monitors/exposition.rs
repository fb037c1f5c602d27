//! What exporters of Prometheus answer, the text format and OpenMetrics: node_exporter, and cAdvisor.
//!
//! ```text
//! # HELP node_load1 1m load average.
//! # TYPE node_load1 gauge
//! node_load1 0.21
//! node_cpu_seconds_total{cpu="0",mode="user"} 1204.5
//! ```

use super::node_names;
use crate::text::prelude::*;
use crate::text::snapshots::sink::Sink;

/// See the module.
pub const FORMAT: Format = Format::new(
    "Prometheus exporter",
    "the machine as node_exporter shows it, and cgroups as cAdvisor does; other exporters have no metrics here",
    starts,
    read,
);

/// Labels of one sample.
const LABELS_MAX: usize = 64;

/// A line of the format.
struct Sample<'a> {
    name: &'a [u8],
    labels: &'a [u8],
    value: f64,
    /// Seconds since 1970, or milliseconds.
    time: Option<f64>,
}

fn sample(line: &[u8]) -> Option<Sample<'_>> {
    let is_name = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b':');
    let end = line.iter().position(|b| !is_name(b))?;
    let (name, rest) = line.split_at_checked(end)?;
    // `Mem: 16384` is a line of `free`.
    if !name.first()?.is_ascii_alphabetic() || name.ends_with(b":") {
        return None;
    }
    let (labels, rest) = match rest.strip_prefix(b"{") {
        Some(inside) => {
            let end = labels_end(inside)?;
            (inside.get(..end)?, inside.get(end + 1..)?)
        }
        None => (&b""[..], rest),
    };
    let mut list = words(rest.strip_prefix(b" ")?);
    let word = list.next()?;
    let value = match word {
        b"NaN" | b"+Inf" | b"-Inf" => f64::NAN,
        _ => number(word)?,
    };
    let time = match list.next() {
        None | Some(b"#") => None,
        Some(word) => Some(number(word)?),
    };
    Some(Sample { name, labels, value, time })
}

/// Where the closing brace stands behind labels, whose values are quoted.
fn labels_end(inside: &[u8]) -> Option<usize> {
    let (mut quoted, mut at) = (false, 0);
    loop {
        match inside.get(at)? {
            b'\\' if quoted => at += 1,
            b'"' => quoted = !quoted,
            b'}' if !quoted => return Some(at),
            _ => {}
        }
        at += 1;
    }
}

/// The value of a label, with its escapes undone.
fn label(labels: &[u8], wanted: &[u8]) -> Option<Vec<u8>> {
    let mut rest = labels;
    for _ in 0..LABELS_MAX {
        let mark = memchr::memmem::find(rest, b"=\"")?;
        let (key, behind) = rest.split_at_checked(mark)?;
        let mut value = Vec::new();
        let mut at = 2;
        loop {
            match behind.get(at)? {
                b'"' => break,
                b'\\' => {
                    at += 1;
                    value.push(if behind.get(at)? == &b'n' { b'\n' } else { *behind.get(at)? });
                }
                byte => value.push(*byte),
            }
            at += 1;
        }
        if key.trim_ascii() == wanted {
            return Some(value);
        }
        rest = behind.get(at + 1..)?.trim_ascii_start();
        rest = rest.strip_prefix(b",").unwrap_or(rest).trim_ascii_start();
    }
    None
}

/// `# TYPE name counter`, `# HELP name …`, or a sample of an exporter that is known.
fn starts(lines: &mut Lines<'_>, _: &Context) -> bool {
    let is_type = |line: &[u8]| {
        let mut list = words(line);
        list.next() == Some(b"#") && matches!(list.next(), Some(b"TYPE" | b"HELP")) && list.count() >= 2
    };
    let is_known = |line: &[u8]| {
        begins(line, &[b"node_", b"container_"])
            && sample(line).is_some_and(|s| node_names::cell(s.name, |key| label(s.labels, key)).is_some())
    };
    lines.at(|line| (line.starts_with(b"# ") && is_type(line)) || is_known(line))
}

fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let mut sink = Sink::default();
    lines.each(import, |lines, at, import| {
        let line = lines.line();
        if line.starts_with(b"#") || line.is_empty() {
            return Took::Yes;
        }
        let Some(found) = sample(line) else {
            return Took::unread_if(
                lines.soon(2, |line| line.starts_with(b"# TYPE") || sample(line).is_some()),
            );
        };
        let Some(cell) = node_names::cell(found.name, |key| label(found.labels, key)) else {
            return Took::Yes;
        };
        let seconds =
            found.time.map(|t| if t > 1e12 { t / 1e3 } else { t }).filter(|t| (1e9..4e9).contains(t));
        let when = seconds.map_or(import.now(), |t| When::At((t * SECOND as f64) as i64));
        if found.value.is_nan() {
            return Took::Yes;
        }
        if cell.metric.name == "cpu.idle" {
            let cpu = std::str::from_utf8(&cell.row).ok().and_then(|cpu| cpu.parse::<u32>().ok());
            let cpus = cpu.filter(|cpu| *cpu < 65_536).map_or(0, |cpu| cpu + 1);
            import.host.cpus = import.host.cpus.max(cpus);
            import.has_all_cpus = true;
        }
        if cell.metric.name == "fs.total_bytes" {
            let point = text(&cell.row);
            for (metric, key) in [("fs.device", &b"device"[..]), ("fs.type", b"fstype")] {
                if let Some(shown) = label(found.labels, key) {
                    import.text(metric, &point, when, &text(&shown));
                }
            }
        }
        // A limit of zero is none.
        if cell.metric.name != "cgroup.memory_max" || found.value > 0.0 {
            cell.put(found.value, when, at, &mut sink, import);
        }
        Took::Yes
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_and_their_labels() {
        let found = sample(b"a_b{x=\"1,2}\",y=\"a\\\"b\\n\"} 1.5e3 1795821001000").unwrap();
        assert_eq!((found.name, found.value, found.time), (&b"a_b"[..], 1500.0, Some(1_795_821_001_000.0)));
        assert_eq!(label(found.labels, b"x").unwrap(), b"1,2}");
        assert_eq!(label(found.labels, b"y").unwrap(), b"a\"b\n");
        assert_eq!(label(found.labels, b"z"), None);
        for no in ["a", "a x", "1a 2", "a{b 1", "a{b=\"c} 1", "a 1 x"] {
            assert!(sample(no.as_bytes()).is_none(), "{no}");
        }
    }
}
