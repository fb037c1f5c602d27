//! Numbers as people read them.

use std::borrow::Cow;

use mitra_model::time::SECOND;
pub use mitra_model::words::{bytes, count, grouped, percent};

/// `850 µs`, `3.2 ms`, `12 s`, `4 min`.
#[must_use]
pub fn seconds(value: f64) -> String {
    match value.abs() {
        v if v < 0.001 => format!("{:.0} µs", value * 1e6),
        v if v < 0.1 => format!("{:.1} ms", value * 1e3),
        v if v < 1.0 => format!("{:.0} ms", value * 1e3),
        v if v < 120.0 => format!("{value:.1} s"),
        v if v < 7200.0 => format!("{:.0} min", value / 60.0),
        _ => format!("{:.1} h", value / 3600.0),
    }
}

/// Tasks at a time, which are task-seconds in a second: `3.4`, `no`.
#[must_use]
pub fn at_a_time(tasks: f64) -> String {
    match tasks {
        few if few < 0.05 => "no".to_owned(),
        few if few < 10.0 => format!("{few:.1}"),
        many => grouped(many),
    }
}

/// Seconds between two moments.
#[must_use]
pub fn between(from: i64, to: i64) -> f64 {
    to.saturating_sub(from) as f64 / SECOND as f64
}

/// A name as one word of a shell: names come from processes, and whoever reads a command may paste it as root.
#[must_use]
pub fn shell(name: &str) -> Cow<'_, str> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_./:@%+=,-".contains(&byte);
    if !name.is_empty() && !name.starts_with('-') && name.bytes().all(is_plain) {
        return name.into();
    }
    format!("'{}'", name.replace('\'', r"'\''")).into()
}

/// The command that measures the first of some metrics for which there is one.
#[must_use]
pub fn command_for(metrics: &[&str]) -> Option<&'static str> {
    /// The longest prefix first.
    const COMMANDS: &[(&str, &str)] = &[
        ("vm.workingset", "grep workingset /proc/vmstat; sleep 10; grep workingset /proc/vmstat"),
        ("vm.oom_kill", "dmesg -T | grep -i -e oom -e 'killed process'"),
        ("vm.psw", "sar -W 1"),
        ("vm.", "sar -B 1"),
        ("mem.", "cat /proc/meminfo"),
        ("disk.", "iostat -x 1"),
        ("task.run_delay", "pidstat -u 1"),
        ("task.minflt", "pidstat -r 1"),
        ("task.kstack", "ps -eLo pid,stat,wchan:32,comm | grep ' D'"),
        ("task.", "pidstat -durw 1"),
        ("tasks.", "pidstat -u 1"),
        ("cgroup.throttled", "cat /sys/fs/cgroup/GROUP/cpu.stat"),
        ("fs.", "df; df -i"),
        ("cgroup.memory", "cat /sys/fs/cgroup/GROUP/memory.stat /sys/fs/cgroup/GROUP/memory.events"),
        ("cgroup.", "cat /sys/fs/cgroup/GROUP/*.stat"),
        ("slab.", "slabtop -o -s c"),
        ("psi.", "cat /proc/pressure/*"),
        ("sys.forks", "sar -w 1"),
        ("sys.load", "uptime"),
        ("sys.", "sar -u ALL 1"),
        ("zone.", "cat /proc/zoneinfo"),
    ];
    metrics.iter().find_map(|metric| {
        COMMANDS.iter().find(|(prefix, _)| metric.starts_with(prefix)).map(|(_, command)| *command)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_comes_with_its_command() {
        assert_eq!(command_for(&["vm.pswpin", "vm.pswpout"]), Some("sar -W 1"));
        assert_eq!(command_for(&["task.read_bytes"]), Some("pidstat -durw 1"));
        assert_eq!(command_for(&["census.bytes", "mem.total"]), Some("cat /proc/meminfo"));
        assert_eq!(command_for(&[]), None);
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!(bytes(1_234_567_890.0), "1.2 GB");
        assert_eq!(bytes(999.0), "999 B");
        assert_eq!(count(85_327.4), "85,327");
        assert_eq!(count(999_999.4), "999,999");
        assert_eq!(count(1_234_567.0), "1.2 M");
        assert_eq!((count(12.0), count(2.5), count(-4012.0)), ("12".into(), "2.5".into(), "-4,012".into()));
        assert_eq!(percent(0.004), "0.4 %");
        assert_eq!(percent(0.63), "63 %");
        assert_eq!(
            (percent(34.0), percent(0.0003), percent(1e-6)),
            ("3,400 %".into(), "0.03 %".into(), "<0.01 %".into())
        );
        assert_eq!(seconds(0.0032), "3.2 ms");
        assert_eq!((seconds(0.312), seconds(12.04)), ("312 ms".into(), "12.0 s".into()));
        assert_eq!(
            (at_a_time(0.01), at_a_time(3.41), at_a_time(34.2)),
            ("no".into(), "3.4".into(), "34".into())
        );
    }
}
