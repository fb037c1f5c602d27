//! The kernel log, from `/dev/kmsg`: the lines that matter, as events.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use mitra_model::EventKind;
use mitra_parse::kernel_message::{is_only_in_the_log, kept, meaning};
use mitra_parse::kmsg::{Record, record};
use rustix::fs::{Mode, OFlags, SeekFrom};
use rustix::io::Errno;

use crate::file::{Buffer, Root};
use crate::mounts::machines_tree;

/// Records that are read in one tick at most; the rest waits in the kernel's ring.
const RECORDS_PER_TICK_MAX: usize = 2_048;
/// Events of one tick at most; the rest is counted.
const EVENTS_PER_TICK_MAX: usize = 64;
/// The kernel fails a read whose buffer is too small for the record (`CONSOLE_EXT_LOG_MAX`).
const RECORD_BYTES_MAX: usize = 8_192;
/// Warnings and worse are kept whatever they say.
const PRIORITY_MAX: u8 = 4;

/// What is worth keeping although the kernel prints it as a notice or as information.
const IMPORTANT: &[&str] = &[
    "segfault at",
    "traps: ",
    "general protection",
    "oom-kill:",
    "Out of memory",
    "out of memory",
    "oom_reaper",
    "invoked oom-killer",
    "blocked for more than",
    "hung_task",
    "soft lockup",
    "rcu_sched",
    "rcu_preempt",
    "page allocation failure",
    "allocation failure",
    "too many orphaned sockets",
    "SYN flooding",
    "table full",
    "neighbour table overflow",
    "neighbor table overflow",
    "Link is Down",
    "Link is Up",
    "link is not ready",
    "link becomes ready",
    "NIC Link",
    "carrier",
    "I/O error",
    "Buffer I/O",
    "critical medium error",
    "EXT4-fs",
    "XFS (",
    "BTRFS",
    "Remounting filesystem",
    "remount",
    "md/raid",
    "md: ",
    "nvme",
    "resetting link",
    "USB disconnect",
    "offline",
    "Hardware Error",
    "EDAC",
    "mce: ",
    "Machine check",
    "temperature above threshold",
    "clocksource",
    "Clock: inserting leap second",
    "PM: suspend",
    "PM: hibernation",
    "audit: backlog limit exceeded",
    ": drop_caches: ",
    "callbacks suppressed",
    mitra_model::report::LOAD_MARK,
];

fn is_worth_keeping(record: &Record<'_>) -> bool {
    record.priority <= PRIORITY_MAX
        || IMPORTANT.iter().any(|word| record.text.contains(word))
        || meaning(&record.text).is_some()
}

/// The line, and what it means where nothing else tells of it.
fn kinds(record: &Record<'_>) -> (EventKind, Option<EventKind>) {
    let text = kept(&record.text);
    let meant = meaning(&text).filter(is_only_in_the_log);
    (EventKind::KernelLog { priority: record.priority, text }, meant)
}

/// The open log.
#[derive(Debug)]
pub struct KernelLog {
    fd: OwnedFd,
    next_sequence: Option<u64>,
}

impl KernelLog {
    /// Opens the log at its end: what was logged before is not of this recording.
    pub fn open(root: &Root) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let open = |path: &str| rustix::fs::openat(root.fd(), path, flags, Mode::empty());
        let fd = match (open("dev/kmsg"), machines_tree(root)) {
            // Of the devices a service may see only the harmless ones.
            (Err(Errno::NOENT), Some(tree)) => open(&format!("{tree}/dev/kmsg"))?,
            (fd, _) => fd?,
        };
        rustix::fs::seek(&fd, SeekFrom::End(0))?;
        Ok(KernelLog { fd, next_sequence: None })
    }

    /// Reads what came since the last call and passes on what is worth it, with the moment of the kernel's own
    /// stamp in nanoseconds since boot.
    pub fn read(&mut self, buffer: &mut Buffer, mut f: impl FnMut(Option<i64>, EventKind)) -> io::Result<()> {
        let mut passed = 0;
        let mut left_out = 0_u64;
        for _ in 0..RECORDS_PER_TICK_MAX {
            let bytes = match buffer.fill_once(self.fd.as_fd(), RECORD_BYTES_MAX) {
                Ok([]) => break,
                Ok(bytes) => bytes,
                // Overrun: the next read gives the oldest record there is, and its number tells how many are lost.
                Err(error) if error.raw_os_error() == Some(Errno::PIPE.raw_os_error()) => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            };
            let Some(record) = record(bytes) else { continue };
            let lost = self.next_sequence.map_or(0, |next| record.sequence.saturating_sub(next));
            self.next_sequence = Some(record.sequence + 1);
            if lost > 0 {
                f(
                    None,
                    EventKind::Recorder {
                        text: format!("kernel log: {lost} records were overwritten unread"),
                    },
                );
            }
            if !is_worth_keeping(&record) {
                continue;
            }
            if passed >= EVENTS_PER_TICK_MAX {
                left_out += 1;
                continue;
            }
            passed += 1;
            let time_ns = i64::try_from(record.usec).ok().and_then(|us| us.checked_mul(1_000));
            let (logged, meant) = kinds(&record);
            f(time_ns, logged);
            if let Some(kind) = meant {
                f(time_ns, kind);
            }
        }
        if left_out > 0 {
            f(
                None,
                EventKind::Recorder { text: format!("kernel log: {left_out} more records in one interval") },
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_and_what_is_important_are_kept() {
        let is_kept = |line: &[u8]| is_worth_keeping(&record(line).unwrap());
        assert!(is_kept(b"6,1234,424069000,-;orderd[77]: segfault at 10 ip 0\n SUBSYSTEM=x\n"));
        assert!(is_kept(b"4,5,1,-;anything\n"));
        assert!(is_kept(b"6,5,1,-;sh (13018): drop_caches: 3\n"));
        assert!(is_kept(b"14,5,1,-;mitra load: offers 5/s for 1 s to a:80 from @1.000\n"));
        assert!(!is_kept(b"30,5,1,c,caller=T1;systemd[1]: Started; done\n"));
    }

    #[test]
    fn what_a_line_means_comes_behind_it() {
        let line = b"6,1,2,-;orderd[77]: segfault at 8 ip 12 sp 7f error 4 in x[10+5]\n";
        let (logged, meant) = kinds(&record(line).unwrap());
        assert!(
            matches!(logged, EventKind::KernelLog { text, priority: 6 } if text.starts_with("orderd[77]: segf"))
        );
        assert!(matches!(meant, Some(EventKind::Crash { pid: 77, address: 8, .. })));
        // Kills for lack of memory come from their probe.
        let line = b"3,1,2,-;Out of memory: Killed process 7 (x) total-vm:3kB, anon-rss:1kB\n";
        assert!(matches!(kinds(&record(line).unwrap()), (EventKind::KernelLog { .. }, None)));
        assert!(matches!(kinds(&record(b"4,1,2,-;anything\n").unwrap()), (_, None)));
    }

    #[test]
    fn a_line_written_to_the_log_arrives_and_older_ones_do_not() {
        let root = Root::open(std::path::Path::new("/")).unwrap();
        let mut log = match KernelLog::open(&root) {
            Ok(log) => log,
            Err(error) => return println!("skipped: /dev/kmsg: {error}"),
        };
        let mark = format!("mitra test {}", std::process::id());
        if let Err(error) = std::fs::write("/dev/kmsg", format!("<4>{mark}\n")) {
            return println!("skipped: /dev/kmsg cannot be written: {error}");
        }
        let mut texts = Vec::new();
        log.read(&mut Buffer::default(), |_, kind| texts.push(kind)).unwrap();
        let ours =
            |kind: &&EventKind| matches!(kind, EventKind::KernelLog { text, priority: 4 } if *text == mark);
        assert_eq!(texts.iter().filter(ours).count(), 1, "{texts:?}");
        assert!(texts.len() < EVENTS_PER_TICK_MAX, "the whole log came");
    }
}
