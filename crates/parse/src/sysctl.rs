//! Settings: `/proc/sys`, and the files of `/sys` that are like it.
//!
//! ```text
//! 60
//! 8192 98304 6291456
//! always [madvise] never
//! ```
//!
//! See `Documentation/admin-guide/sysctl/`. The rows of the metric table say which are read, and where each is.

use mitra_model::{Frame, Kind, Metric, NA, Strings, metrics};

use crate::Outcome;
use crate::column::Column;
use crate::scan::{signed, skip_blanks, split_line, trim_end};

/// A setting and its parser.
#[derive(Debug)]
pub struct Setting {
    /// The path below the root, without a slash at its start.
    pub path: &'static str,
    column: Column,
    is_text: bool,
    /// The text that was seen last, and its id.
    text: Vec<u8>,
    id: i64,
    generation: u32,
}

/// All settings. They are many and rarely change: worth a look every few seconds.
#[must_use]
pub fn settings() -> Vec<Setting> {
    metrics::table("sysctl").iter().filter_map(Setting::new).collect()
}

impl Setting {
    /// Of a row of the metric table whose source is one file.
    fn new(metric: &'static Metric) -> Option<Self> {
        let path = metric.source.strip_prefix('/').filter(|path| !path.contains(';'))?;
        Some(Setting {
            path,
            column: Column::of(metric.name),
            is_text: metric.kind == Kind::Text,
            text: Vec::new(),
            id: NA,
            generation: 0,
        })
    }

    /// Fills the system row.
    pub fn parse(&mut self, input: &[u8], strings: &mut Strings, frame: &mut Frame) -> Outcome {
        let value = if self.is_text { self.text(input, strings) } else { number(input) };
        match value {
            Some(value) => {
                self.column.set(frame.system_mut(), value);
                if value == NA { Outcome::bad_file() } else { Outcome::default() }
            }
            None => Outcome::bad_file(),
        }
    }

    fn text(&mut self, input: &[u8], strings: &mut Strings) -> Option<i64> {
        if *self.text == *input && self.generation == strings.generation() && self.id != NA {
            return Some(self.id);
        }
        let line = only_line(input)?;
        let text = std::str::from_utf8(line).ok()?;
        if text.is_empty() || text.contains(|c: char| c.is_control() && c != '\t') {
            return None;
        }
        let text = selected(line).map_or(text, |word| std::str::from_utf8(word).unwrap_or(text));
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        self.id = i64::from(strings.intern(&words.join(" ")));
        self.generation = strings.generation();
        self.text.clear();
        self.text.extend_from_slice(input);
        Some(self.id)
    }
}

/// The one number of a file, which may be negative. [`NA`] for one that does not fit.
#[must_use]
pub fn number(input: &[u8]) -> Option<i64> {
    match signed(skip_blanks(only_line(input)?))? {
        (value, rest) if skip_blanks(rest).is_empty() => Some(value),
        _ => None,
    }
}

/// The word in brackets of a list such as `[none] mq-deadline`: the choice that is in force.
#[must_use]
pub fn selected(line: &[u8]) -> Option<&[u8]> {
    let start = line.iter().position(|b| *b == b'[')? + 1;
    let rest = line.get(start..)?;
    let word = rest.get(..rest.iter().position(|b| *b == b']')?)?;
    (!word.is_empty()).then_some(word)
}

/// The only line of a file, without blanks around it.
fn only_line(input: &[u8]) -> Option<&[u8]> {
    match split_line(input)? {
        (line, []) => Some(trim_end(skip_blanks(line))),
        _ => None,
    }
}

/// What `sys.delayacct` is: whether the delays of tasks born now are counted.
///
/// `switch` is the content of `/proc/sys/kernel/task_delayacct`, which came with 5.14. Before, delays were counted
/// unless the kernel was started with `nodelayacct`.
#[must_use]
pub fn delay_accounting(switch: Option<&[u8]>, command_line: &[u8]) -> i64 {
    match switch {
        Some(switch) => number(switch).unwrap_or(NA),
        None => {
            let mut words = command_line.split(|b| b.is_ascii_whitespace());
            i64::from(!words.any(|word| word == b"nodelayacct"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Sample, parsed};

    #[test]
    fn each_kernel() {
        parsed("3.10", "proc/sys/vm/swappiness").is("sysctl.vm.swappiness", 30);
        parsed("4.18", "proc/sys/kernel/sched_rt_runtime_us").is("sysctl.kernel.sched_rt_runtime_us", -1);
        parsed("5.15", "proc/sys/net/ipv4/tcp_mem")
            .text_is("sysctl.net.ipv4.tcp_mem", "188319 251092 376638");
        parsed("6.1", "proc/sys/net/core/default_qdisc").text_is("sysctl.net.core.default_qdisc", "fq_codel");
        let s = parsed("6.18", "sys/kernel/mm/transparent_hugepage/enabled");
        s.text_is("sys.thp_enabled", "madvise");
        parsed("6.18", "proc/sys/vm/page-cluster").is("sysctl.vm.page-cluster", 3);
    }

    #[test]
    fn damage() {
        for bad in [
            &b""[..],
            b"60",
            b"\n",
            b"60\r\n",
            b"6 0\n",
            b"--1\n",
            b"sixty\n",
            b"60\n60\n",
            b"99999999999999999999\n",
        ] {
            let s = Sample::of("proc/sys/vm/swappiness", bad);
            s.count(0);
            assert_eq!(s.outcome.bad_lines, 1);
        }
        for bad in [&b""[..], b"cubic", b"\n", b" \n", b"\xff\n", b"a\nb\n", b"cubic\r\n", b"a\0b\n"] {
            let s = Sample::of("proc/sys/net/ipv4/tcp_congestion_control", bad);
            s.count(0);
            assert_eq!(s.outcome.bad_lines, 1);
        }
        let mut s = Sample::of("proc/sys/net/ipv4/tcp_congestion_control", b"cubic\n");
        s.again(b"bbr\n");
        s.text_is("sysctl.net.ipv4.tcp_congestion_control", "bbr");
    }

    #[test]
    fn choices_and_delays() {
        assert_eq!(selected(b"[none] mq-deadline"), Some(&b"none"[..]));
        assert_eq!(selected(b"none ["), None);
        assert_eq!(selected(b"[]"), None);
        assert_eq!(delay_accounting(Some(b"0\n"), b""), 0);
        assert_eq!(delay_accounting(Some(b"x\n"), b""), NA);
        assert_eq!(delay_accounting(None, b"quiet\n"), 1);
        assert_eq!(delay_accounting(None, b"quiet nodelayacct\n"), 0);
    }

    #[test]
    fn every_path_is_known_once() {
        let paths: Vec<_> = settings().iter().map(|s| s.path).collect();
        let mut once = paths.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), paths.len());
        assert!(paths.contains(&"proc/sys/vm/dirty_ratio"));
        assert!(paths.contains(&"proc/sys/net/netfilter/nf_conntrack_max"));
    }
}
