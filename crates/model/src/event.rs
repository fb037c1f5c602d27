//! What happened at a moment: told by a kernel log, another tool or the recorder itself.

use serde::{Deserialize, Serialize};

use crate::capture::CaptureRow;

/// Something that happened at a moment, as opposed to a level or a rate.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// When, in nanoseconds since 1970 UTC.
    pub real: i64,
    /// When, on the monotonic clock, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mono: Option<i64>,
    /// The line of a file that says so, where it comes from a file of another tool. Not stored.
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

/// A line of a file of another tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SourceLine {
    /// The position of the file in [`crate::SeriesSet::files`].
    pub file: u32,
    /// The number of the line, from 1.
    pub line: u32,
}

/// What happened. The archive stores these as JSON, so a field that is added needs a default.
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
        /// The control group whose limit it was, or else the victim's, where known; none where the machine itself had
        /// no memory left.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cgroup: Option<String>,
        /// Its anonymous resident memory, where known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        anon_bytes: Option<u64>,
    },
    /// A signal that kills was sent.
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
    /// A process accessed memory that it may not, as the kernel logs it.
    Crash {
        /// Its process id.
        pid: u32,
        /// Its name.
        comm: String,
        /// The address that was accessed. Of a trap, for which the kernel names none, the instruction's own.
        address: u64,
        /// The address of the instruction; 0 where the kernel prints it on another line, as arm64 does.
        ip: u64,
        /// The kernel's error code: bit 0 the page was present (a protection fault), bit 1 it was a write, bit 2 it was
        /// user mode, bit 4 an instruction fetch.
        error: u32,
        /// The file that the instruction lies in, where the kernel names it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        object: Option<String>,
        /// Where the mapping of that file begins.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        base: Option<u64>,
        /// The place of the instruction in the file, which kernels since 6.6 or so print.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        file_offset: Option<u64>,
    },
    /// A task stood still for longer than the kernel's watchdogs allow.
    Stuck {
        /// `hung-task` (in D state), `soft-lockup` (a CPU did not schedule), `rcu-stall`.
        what: String,
        /// Its process id, where known.
        pid: u32,
        /// Its name, where known.
        comm: String,
        /// For how long, as the kernel says; 0 where it counts in jiffies, whose length it does not say.
        seconds: f64,
    },
    /// A piece of hardware or a file system reported an error, a loss or an end of service.
    DeviceError {
        /// `io-error`, `link-down`, `machine-check`, `corrected-error`, `filesystem-error`, `device-lost`.
        what: String,
        /// The device, interface or CPU, where named.
        device: String,
        /// The line.
        text: String,
    },
    /// The kernel's TCP gave up something for lack of room.
    TcpPressure {
        /// `orphans` (too many sockets without a process), `memory` (`tcp_mem` exceeded), `unnamed` (old kernels say
        /// "Out of socket memory" for both).
        what: String,
        /// The line.
        text: String,
    },
    /// The kernel could not find free pages that adjoin.
    AllocationFailure {
        /// The power of two of pages that was asked for.
        order: u32,
        /// Who asked.
        comm: String,
    },
    /// A session of a network protocol changed its state.
    Session {
        /// The program that says so.
        program: String,
        /// The session: a protocol's name or a neighbour's address.
        session: String,
        /// `down`, `up` or what the program calls it.
        state: String,
        /// What the program gives as the reason, or its words.
        text: String,
    },
    /// A program's log had far more lines than usual.
    LogBurst {
        /// The program or the file.
        program: String,
        /// Lines.
        lines: u64,
        /// In how many seconds.
        seconds: f64,
        /// What is usual, per second.
        usual_per_s: f64,
    },
    /// A program's log was silent far longer than usual.
    LogGap {
        /// The program or the file.
        program: String,
        /// For how long.
        seconds: f64,
        /// The usual longest silence.
        usual_s: f64,
    },
    /// A traced process did nothing between two system calls, or one call took that long.
    Pause {
        /// Its process id; 0 where the trace does not say.
        pid: u32,
        /// The name of the process, where the trace says.
        comm: String,
        /// For how long.
        seconds: f64,
        /// The call after which, or in which, it stood still.
        call: String,
        /// Whether the time was spent inside the call; between two calls nobody asked to wait.
        inside: bool,
    },
    /// A file that holds numbers without a name: a setting that was saved with `cat`.
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
        /// Blocks of a stripe unit; 0 where none is set.
        stripe_unit_blocks: u64,
        /// Blocks of a full stripe; 0 where none is set.
        stripe_width_blocks: u64,
        /// Bytes of a sector of the device.
        sector_bytes: u64,
        /// Blocks of the data section.
        data_blocks: u64,
    },
    /// A process that a frame had seen ended.
    Exit {
        /// Its process id.
        pid: u32,
        /// Its name.
        comm: String,
        /// Who had started it.
        parent_pid: u32,
        /// The parent's name.
        parent_comm: String,
        /// The raw wait status: exit code in bits 8 to 15, signal in bits 0 to 6.
        status: i32,
    },
    /// The wall clock jumped.
    ClockStep {
        /// By how much, in nanoseconds; negative is backwards.
        by_ns: i64,
    },
    /// The machine slept.
    Suspend {
        /// For how long.
        ns: i64,
    },
    /// The recorder dropped detail to stay inside its budget, or took it up again.
    Shed {
        /// What it does without, `none` when it is back to full detail.
        level: String,
        /// Which budget, and by how much it was exceeded.
        why: String,
    },
    /// Something could not be observed from this moment on.
    Unavailable {
        /// What: `probe.block`, `psi`, ….
        source: String,
        /// Why, and what would change it.
        why: String,
    },
    /// Some ticks were missed.
    Missed {
        /// How many.
        ticks: u64,
    },
    /// An armed probe ended; the event's time is its end.
    Capture {
        /// The kind of the probe: `offcpu`, `faults`, ….
        capture: String,
        /// Who or what wanted it.
        why: String,
        /// For how long it was armed.
        seconds: f64,
        /// What it counted.
        events: u64,
        /// What it had no room for.
        lost: u64,
        /// `time`, `events`, `cost`, `stopped`, `gone` or `failed: …`.
        ended: String,
        /// CPU time that it took, where the kernel measures it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cost_ns: Option<u64>,
        /// The name of the file in the archive's `captures` folder that has all of it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        file: Option<String>,
        /// The rows that matter most.
        #[serde(default)]
        tops: Vec<CaptureRow>,
    },
    /// A rule held: something may be wrong. What it armed follows as a [`EventKind::Capture`].
    Suspicion {
        /// The rule's name.
        rule: String,
        /// The id of the condition that is suspected, where the rule names one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        condition: Option<String>,
        /// By which numbers, of which row, and why nothing was armed where that is so.
        text: String,
        /// The probes and commands that were started.
        #[serde(default)]
        armed: Vec<String>,
    },
    /// A note of the recorder itself: start, stop, version.
    Recorder {
        /// What it has to say.
        text: String,
    },
    /// An event that this version does not know.
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
