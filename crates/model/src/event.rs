//! Events: from the kernel log, from other tools, and from the recorder itself.

use serde::{Deserialize, Serialize};

use crate::capture::CaptureRow;

/// Something that happened at one time, as opposed to a level or a rate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// When, in nanoseconds since 1970 UTC.
    pub real: i64,
    /// When, on the monotonic clock, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mono: Option<i64>,
    /// The line of another tool's output that it was read from. Not stored.
    #[serde(skip)]
    pub place: Option<SourceLine>,
    /// What happened.
    #[serde(flatten)]
    pub kind: EventKind,
}

impl Event {
    /// An event at a calendar time.
    #[must_use]
    pub fn at(real: i64, kind: EventKind) -> Self {
        Event { real, mono: None, place: None, kind }
    }
}

/// A line in the output of another tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SourceLine {
    /// The index of the file in [`crate::SeriesSet::files`].
    pub file: u32,
    /// The line number, from 1.
    pub line: u32,
}

/// What happened. The archive stores these as JSON, so a new field needs a default.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum EventKind {
    /// A line of the kernel log.
    KernelLog {
        /// 0 emergency … 7 debug.
        priority: u8,
        /// The line without its prefix.
        text: String,
    },
    /// The kernel killed a process for lack of memory.
    OomKill {
        /// The victim.
        pid: u32,
        /// Its name.
        comm: String,
        /// The control group whose limit was hit, or the victim's, if known; `None` if the whole machine was out of
        /// memory.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cgroup: Option<String>,
        /// Its anonymous resident memory, if known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        anon_bytes: Option<u64>,
    },
    /// A fatal signal was sent.
    FatalSignal {
        /// The receiver.
        pid: u32,
        /// Its name.
        comm: String,
        /// The number of the signal.
        signal: i32,
        /// Who sent it; 0 is the kernel.
        sender_pid: u32,
        /// The sender's name.
        sender_comm: String,
    },
    /// A segmentation fault or trap, as the kernel logs it.
    Crash {
        /// Its process id.
        pid: u32,
        /// Its name.
        comm: String,
        /// The address that was accessed. For a trap, which has none, the address of the instruction.
        address: u64,
        /// The instruction pointer; 0 if the kernel prints it on another line, as arm64 does.
        ip: u64,
        /// The kernel's error code: bit 0 the page was present (a protection fault), bit 1 it was a write, bit 2 it was
        /// user mode, bit 4 an instruction fetch.
        error: u32,
        /// The file that the instruction is in, if the kernel names it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        object: Option<String>,
        /// The first address of the mapping.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        base: Option<u64>,
        /// The file offset of the instruction, which kernels print since about 6.6.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        file_offset: Option<u64>,
    },
    /// A watchdog of the kernel found a task that made no progress.
    Stuck {
        /// `hung-task` (in D state), `soft-lockup` (a CPU did not schedule), `rcu-stall`.
        what: String,
        /// Its process id, if known.
        pid: u32,
        /// Its name, if known.
        comm: String,
        /// How long, as the kernel logs it; 0 if it logs jiffies, whose length is unknown.
        seconds: f64,
    },
    /// A device or a file system reported an error or its loss.
    DeviceError {
        /// `io-error`, `link-down`, `machine-check`, `corrected-error`, `filesystem-error`, `device-lost`, `disk-failing` (it says so
        /// itself), `path-failed` (of a multipath device), `pool-full` (of thin volumes).
        what: String,
        /// The device, interface or CPU, if named.
        device: String,
        /// The line.
        text: String,
    },
    /// A block device or a network interface appeared or went away, or its link changed.
    Device {
        /// `disk` or `interface`.
        what: String,
        /// Its name.
        device: String,
        /// `appeared`, `gone`, `up` (its link; that it went down is an error of a device).
        state: String,
    },
    /// TCP of the kernel hit a limit.
    TcpPressure {
        /// `orphans` (too many sockets without a process), `memory` (`tcp_mem` exceeded), `unnamed` (old kernels say
        /// "Out of socket memory" for both).
        what: String,
        /// The line.
        text: String,
    },
    /// A page allocation failed.
    AllocationFailure {
        /// The order: 2^order contiguous pages.
        order: u32,
        /// The task that asked.
        comm: String,
    },
    /// A session of a network protocol changed its state.
    Session {
        /// The program that logged it.
        program: String,
        /// The session: a protocol's name or a neighbour's address.
        session: String,
        /// `down`, `up` or what the program calls it.
        state: String,
        /// The reason, or the message.
        text: String,
    },
    /// A program's log had far more lines than usual.
    LogBurst {
        /// The program or the file.
        program: String,
        /// Lines.
        lines: u64,
        /// Their duration.
        seconds: f64,
        /// The usual rate.
        usual_per_s: f64,
    },
    /// A program's log was silent far longer than usual.
    LogGap {
        /// The program or the file.
        program: String,
        /// How long.
        seconds: f64,
        /// The usual longest silence.
        usual_s: f64,
    },
    /// A traced process made no system call for long, or one call took that long.
    Pause {
        /// Its process id; 0 if the trace has none.
        pid: u32,
        /// The name of the process, if the trace has it.
        comm: String,
        /// For how long.
        seconds: f64,
        /// The call before or during the pause.
        call: String,
        /// Whether the pause was inside the call, and not between two calls.
        inside: bool,
    },
    /// A file of bare numbers: a setting that was saved with `cat`.
    Numbers {
        /// The numbers.
        values: Vec<f64>,
    },
    /// The layout of a file system, as mkfs prints it.
    Geometry {
        /// The device.
        device: String,
        /// Allocation groups.
        ag_count: u64,
        /// Blocks of one group.
        ag_blocks: u64,
        /// Bytes of a block.
        block_bytes: u64,
        /// Blocks of a stripe unit; 0 if none is set.
        stripe_unit_blocks: u64,
        /// Blocks of a full stripe; 0 if none is set.
        stripe_width_blocks: u64,
        /// Bytes of a sector of the device.
        sector_bytes: u64,
        /// Blocks of the data section.
        data_blocks: u64,
    },
    /// A recorded process exited.
    Exit {
        /// Its process id.
        pid: u32,
        /// Its name.
        comm: String,
        /// The parent.
        parent_pid: u32,
        /// The parent's name.
        parent_comm: String,
        /// The raw wait status: exit code in bits 8 to 15, signal in bits 0 to 6.
        status: i32,
    },
    /// The wall clock jumped.
    ClockStep {
        /// Nanoseconds; negative is backwards.
        by_ns: i64,
    },
    /// The machine was suspended.
    Suspend {
        /// For how long.
        ns: i64,
    },
    /// The recorder shed detail to stay within its budget, or resumed it.
    Shed {
        /// The detail that is shed; `none` at full detail.
        level: String,
        /// The budget, and by how much it was exceeded.
        why: String,
    },
    /// A source is unavailable from this time on.
    Unavailable {
        /// The source: `probe.block`, `psi`, ….
        source: String,
        /// The reason, and the remedy.
        why: String,
    },
    /// Some ticks were missed.
    Missed {
        /// The number of ticks.
        ticks: u64,
    },
    /// A capture ended; the event's time is its end.
    Capture {
        /// Its kind: `offcpu`, `faults`, ….
        capture: String,
        /// Who or which rule asked for it.
        why: String,
        /// How long it was armed.
        seconds: f64,
        /// Events that it counted.
        events: u64,
        /// Events that were dropped for lack of space.
        lost: u64,
        /// `time`, `events`, `cost`, `stopped`, `gone` or `failed: …`.
        ended: String,
        /// Its CPU time, if the kernel measures it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cost_ns: Option<u64>,
        /// The file name of the whole capture, in the archive's `captures` folder.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        file: Option<String>,
        /// The top rows.
        #[serde(default)]
        tops: Vec<CaptureRow>,
    },
    /// A rule matched. What it armed follows as a [`EventKind::Capture`].
    Suspicion {
        /// The rule's name.
        rule: String,
        /// The id of the suspected condition, if the rule names one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        condition: Option<String>,
        /// The numbers and the row that matched, and the reason if nothing was armed.
        text: String,
        /// The probes and commands that were started.
        #[serde(default)]
        armed: Vec<String>,
    },
    /// A note of the recorder itself: start, stop, version.
    Recorder {
        /// The message.
        text: String,
    },
    /// An event of a later version.
    #[serde(other)]
    Unknown,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_later_versions_are_read_as_unknown() {
        let event: Event = serde_json::from_str(r#"{"real":1,"event":"tachyon","x":1}"#).unwrap();
        assert_eq!(event.kind, EventKind::Unknown);
        let event = Event::at(1, EventKind::ClockStep { by_ns: -5 });
        let back: Event = serde_json::from_str(&serde_json::to_string(&event).unwrap()).unwrap();
        assert_eq!(event, back);
    }
}
