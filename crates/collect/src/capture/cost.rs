//! What a capture costs, measured by the kernel while it runs.

use std::os::fd::{AsFd as _, OwnedFd};

use rustix::time::{ClockId, clock_gettime};

use crate::bpf::sys::program_run;

/// The measurement. It goes on as long as this lives, for every BPF program of the machine, and costs each run two
/// readings of the clock, which are counted in.
pub(super) struct Cost {
    stats: Result<OwnedFd, String>,
    /// CPU time that polling took, and reading where programs are mapped.
    pub(super) user_ns: u64,
}

/// What the programs of a capture took so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ran {
    /// CPU time and runs; none where the kernel does not measure it.
    pub(super) measured: Option<(u64, u64)>,
    /// Runs that were left out; none where the kernel does not count them.
    pub(super) missed: Option<u64>,
}

impl Cost {
    pub(super) fn begin() -> Self {
        let stats = aya::sys::enable_stats(aya::sys::Stats::RunTime);
        Self { stats: stats.map_err(|error| error.to_string()), user_ns: 0 }
    }

    pub(super) fn unavailable(&self) -> Option<&str> {
        self.stats.as_ref().err().map(String::as_str)
    }

    /// What these programs took so far.
    pub(super) fn of(&self, programs: &[OwnedFd]) -> Ran {
        let (mut ns, mut count, mut missed) = (0, 0, Some(0_u64));
        for program in programs {
            let Ok(run) = program_run(program.as_fd()) else { return Ran::default() };
            ns += run.ns;
            count += run.count;
            missed = missed.zip(run.missed).map(|(sum, one)| sum + one);
        }
        Ran { measured: self.stats.is_ok().then_some((ns, count)), missed }
    }
}

/// CPU time of the running thread.
pub(super) fn own_cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    u64::try_from(time.tv_sec.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec)).unwrap_or(0)
}
