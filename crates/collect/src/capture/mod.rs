//! Armed probes: they cost too much to run always, so they run on a trigger or by hand, for a bounded time.
//!
//! [`Capture::arm`] loads the programs of one kind into the kernel. [`Armed::poll`] takes what they have so far and
//! ends the capture once its time, its events or its cost are used up. [`Armed::finish`] detaches them and returns
//! what they saw. Dropping an [`Armed`] detaches as well.
//!
//! A new kind is one file in `bpf/`, one in `kinds/`, and its lines in `kinds/mod.rs`; CONTRIBUTING.md has
//! the steps.

mod armed;
mod calls;
mod chains;
mod check;
mod cost;
mod functions;
mod kinds;
mod loader;
mod memory;
mod stacks;

use mitra_parse::task::task_stat;
use std::collections::BTreeMap;
use std::error::Error;
use std::time::Duration;

use mitra_model::capture::{Captured, InterpreterLayout, Raw, RawStack, StackCopy, UnwoundStack};

pub use armed::{Armed, Capture};
pub use check::{Checked, check, cost_unavailable};
use cost::own_cpu_ns;
use loader::{Config, Loader};

type AnyError = Box<dyn Error + Send + Sync>;

/// For how long at most a capture is armed.
pub const SECONDS_MAX: f64 = 3600.0;
/// Share of one CPU that a capture may take when nobody says otherwise.
pub const COST_BUDGET: f64 = 0.02;
/// Events after which a capture ends when nobody says otherwise.
pub const EVENTS_MAX: u64 = 50_000_000;

/// A kind of capture.
pub struct Kind {
    /// Its name: `offcpu`.
    pub name: &'static str,
    /// What it shows, in one line.
    pub help: &'static str,
    /// What it costs: for each event, and on which kind of load that is much.
    pub cost: &'static str,
    /// The kernel that it needs, and what it sees only with a later one.
    pub since: &'static str,
    /// What it attaches to.
    pub attaches: &'static [&'static str],
    /// The columns of its main table: name, unit, meaning.
    pub columns: &'static [(&'static str, &'static str, &'static str)],
    /// Options of its own: name, meaning.
    pub options: &'static [(&'static str, &'static str)],
    /// What it can be narrowed to, by options that kinds have in common: `pid`, `comm`, `cgroup`, `min`, `d-only`. Others
    /// are refused: a capture must not say that it was of what nobody looked at. Empty: it is of the whole machine.
    pub filters: &'static [&'static str],
    /// Whether it records one process only, so that `pid` is required.
    pub one_process: bool,
    /// The source file, whose leading comment is the manual page.
    source: &'static str,
    /// The compiled programs.
    object: &'static [u8],
    /// Turns what was asked for into [`Config`], beyond what all kinds have in common. An error is the user's.
    configure: fn(&Request, &mut Config) -> Result<(), String>,
    /// Loads and attaches the programs.
    arm: Arm,
}

impl Kind {
    /// Whether programs run in the kernel for it.
    #[must_use]
    pub fn has_programs(&self) -> bool {
        !self.object.is_empty()
    }

    /// Why what is asked for can be armed on no machine, if it cannot. An error is the user's.
    pub fn check(&self, request: &Request) -> Result<(), String> {
        self.configured(request, &mut Config::default())
    }

    fn configured(&self, request: &Request, config: &mut Config) -> Result<(), String> {
        if self.one_process && request.pid.is_none() {
            return Err(format!("{} is of one process: say which by --pid", self.name));
        }
        (self.configure)(request, config)
    }

    /// The manual page: what it answers, and what it does not see.
    #[must_use]
    pub fn manual(&self) -> String {
        mitra_model::manual(self.source)
    }
}

/// Whose events count: what all programs ask first (`wanted` of bpf/capture.h).
const BY_TASK: &[&str] = &["pid", "comm", "cgroup"];
/// Of kinds that measure how long things take, and leave out what was shorter than `min`.
const BY_TASK_AND_TIME: &[&str] = &["pid", "comm", "cgroup", "min"];

/// For kinds to which nothing can be said beyond what all have in common.
fn as_all(_: &Request, _: &mut Config) -> Result<(), String> {
    Ok(())
}

type Arm = fn(&Request, &mut Loader<'_>) -> Result<Box<dyn CaptureReader>, AnyError>;

/// The half of a kind that runs in user space.
trait CaptureReader: Send {
    /// Takes what waits in rings. The work of one call is bounded.
    fn poll(&mut self) -> Result<(), AnyError> {
        Ok(())
    }

    /// What the programs count as `other` (bpf/capture.h), in words.
    fn other(&self) -> Option<&'static str> {
        None
    }

    /// See [`Armed::take_copies`].
    fn take_copies(&mut self) -> Vec<StackCopy> {
        Vec::new()
    }

    /// See [`Armed::teach`].
    fn teach(&mut self, _chain: u64, _followed: UnwoundStack) {}

    /// See [`Armed::interprets`].
    fn interprets(&self) -> Option<u32> {
        None
    }

    /// See [`Armed::follow_functions`].
    fn follow_functions(&mut self, _how: &InterpreterLayout) {}

    /// Whether it has all that was asked for, so that there is nothing left to wait for.
    fn is_complete(&self) -> bool {
        false
    }

    /// Puts what the kernel counted into tables, histograms and stacks. Nothing is attached any more.
    fn finish(self: Box<Self>, raw: &mut Raw) -> Result<(), AnyError>;
}

/// What is wanted.
#[derive(Debug, Clone)]
pub struct Request {
    /// The name of the kind.
    pub kind: String,
    /// Only this process, with all its threads.
    pub pid: Option<u32>,
    /// When that process began, in ticks since the machine did (field 22 of `/proc/PID/stat`): its number may have been
    /// given to another one since it was looked up. None: whoever has the number now.
    pub pid_began: Option<u64>,
    /// Only threads of this name. Of a longer one the first 15 bytes count, as in the kernel.
    pub comm: Option<String>,
    /// Only this group of cgroup2 with those below it, as its path below the mount: `/system.slice/nginx.service`.
    pub cgroup: Option<String>,
    /// For how long.
    pub seconds: f64,
    /// Events after which it ends.
    pub max_events: u64,
    /// Share of one CPU that it may take, on average over `seconds`.
    pub cost_budget: f64,
    /// Only what lasted at least so long.
    pub min: Duration,
    /// Of `offcpu`: only what nothing can interrupt (state D).
    pub d_only: bool,
    /// Options of the kind.
    pub options: BTreeMap<String, String>,
    /// Who or what wants it; it is kept with the capture.
    pub why: String,
}

impl Request {
    /// A capture of a kind, with the usual bounds.
    #[must_use]
    pub fn new(kind: &str, seconds: f64, why: &str) -> Self {
        Request {
            kind: kind.to_owned(),
            pid: None,
            pid_began: None,
            comm: None,
            cgroup: None,
            seconds,
            max_events: EVENTS_MAX,
            cost_budget: COST_BUDGET,
            min: Duration::ZERO,
            d_only: false,
            options: BTreeMap::new(),
            why: why.to_owned(),
        }
    }

    /// An option of the kind.
    #[must_use]
    pub fn option(&self, name: &str) -> Option<&str> {
        self.options.get(name).map(String::as_str)
    }

    /// The name of threads as the kernel keeps it (`TASK_COMM_LEN` of include/linux/sched.h, with its zero).
    fn comm(&self) -> Option<&[u8]> {
        const BYTES_MAX: usize = 15;
        let name = self.comm.as_deref()?.as_bytes();
        Some(name.get(..BYTES_MAX).unwrap_or(name))
    }

    /// As [`Request::comm`]; what the cut leaves of a letter is replaced.
    fn comm_text(&self) -> Option<String> {
        self.comm().map(|name| String::from_utf8_lossy(name).into_owned())
    }

    /// What it is to be narrowed to, by the names of [`Kind::filters`].
    fn asked(&self) -> impl Iterator<Item = &'static str> {
        let all = [
            ("pid", self.pid.is_some()),
            ("comm", self.comm.is_some()),
            ("cgroup", self.cgroup.is_some()),
            ("min", !self.min.is_zero()),
            ("d-only", self.d_only),
        ];
        all.into_iter().filter_map(|(name, is_asked)| is_asked.then_some(name))
    }

    /// What was asked for, in words, as the capture keeps it.
    fn filter(&self) -> BTreeMap<String, String> {
        let mut filter = self.options.clone();
        let mut add = |name: &str, value: Option<String>| {
            if let Some(value) = value {
                filter.insert(name.to_owned(), value);
            }
        };
        add("pid", self.pid.map(|pid| pid.to_string()));
        add("comm", self.comm_text());
        add("cgroup", self.cgroup.clone());
        add("d-only", self.d_only.then(|| "yes".to_owned()));
        add("min-s", (!self.min.is_zero()).then(|| self.min.as_secs_f64().to_string()));
        filter
    }
}

/// Why a capture cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// There is no such kind.
    #[error("there is no capture of kind {0:?}; there are {1}")]
    NoSuchKind(String, String),
    /// What was asked for makes no sense.
    #[error("{0}")]
    BadRequest(String),
    /// The process is not allowed to.
    #[error("a capture needs root, or CAP_BPF and CAP_PERFMON: {0} is missing")]
    Privilege(&'static str),
    /// The process, or the group, to be watched is not there.
    #[error("{0}")]
    NotThere(String),
    /// This kernel cannot do it.
    #[error("this kernel refuses {kind}: {why}")]
    Kernel {
        /// The kind.
        kind: &'static str,
        /// What it said.
        why: String,
    },
}

/// All kinds, in the order in which they are shown.
#[must_use]
pub fn kinds() -> &'static [&'static Kind] {
    kinds::ALL
}

/// The kind of a name.
#[must_use]
pub fn kind(name: &str) -> Option<&'static Kind> {
    kinds::ALL.iter().copied().find(|kind| kind.name == name)
}

/// When a capture ended, on the clock of its programs. What it saw was read later.
fn end_mono_ns(captured: &Captured) -> u64 {
    let lasted = (captured.seconds * 1e9) as i64;
    u64::try_from(captured.since_mono.saturating_add(lasted)).unwrap_or(0)
}

/// The state of a thread now, as the letter that `/proc/PID/stat` has for it; none where it has ended.
fn state_now(pid: u32, tid: u32) -> Option<char> {
    let stat = std::fs::read(format!("/proc/{pid}/task/{tid}/stat")).ok()?;
    Some(char::from(task_stat(&stat)?.state))
}

/// Gives the frames of its stacks names ([`Raw::resolve`]), and says what that took.
#[must_use]
pub fn resolve(raw: Raw, name: &mut dyn FnMut(&RawStack) -> Vec<String>) -> Captured {
    let before = own_cpu_ns();
    let has_stacks = raw.weight.is_some();
    let mut captured = raw.resolve(name);
    captured.cost_naming_ns = has_stacks.then(|| own_cpu_ns().saturating_sub(before));
    captured
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_described_and_named_once() {
        let mut names = std::collections::HashSet::new();
        for kind in kinds() {
            assert!(names.insert(kind.name), "{} twice", kind.name);
            assert!(
                !kind.help.is_empty() && !kind.cost.is_empty() && !kind.attaches.is_empty(),
                "{}",
                kind.name
            );
            assert!(kind.since.starts_with(|c: char| c.is_ascii_digit()), "{}", kind.name);
            let manual = kind.manual();
            assert!(manual.starts_with(&format!("`{}`: ", kind.name)), "{manual}");
            assert!(manual.contains("\n\nWhat it answers: "), "{manual}");
            assert!(kind.name.bytes().all(|b| b.is_ascii_lowercase() || b == b'-'), "{}", kind.name);
            let filters = kind.filters;
            assert!(filters.is_empty() || filters.starts_with(&["pid", "comm"]), "{}", kind.name);
        }
    }

    #[test]
    fn what_can_be_asked_for_is_a_filter_of_some_kind() {
        let mut request = Request::new("offcpu", 1.0, "test");
        assert_eq!(request.asked().count(), 0);
        request.pid = Some(7);
        request.comm = Some("x".to_owned());
        request.cgroup = Some("/".to_owned());
        request.min = Duration::from_nanos(1);
        request.d_only = true;
        assert_eq!(request.asked().collect::<Vec<_>>(), kind("offcpu").unwrap().filters);
        for kind in kinds() {
            let known = kind.filters.iter().filter(|name| request.asked().any(|asked| asked == **name));
            assert_eq!(known.count(), kind.filters.len(), "{}: {:?}", kind.name, kind.filters);
        }
    }

    #[test]
    fn a_name_is_as_long_as_the_kernel_keeps_it() {
        let of = |name: &str| Request { comm: Some(name.to_owned()), ..Request::new("sockets", 1.0, "test") };
        assert_eq!(of("fifteen-letters").comm_text().as_deref(), Some("fifteen-letters"));
        assert_eq!(of("kworker-of-a-long-name").filter()["comm"], "kworker-of-a-lo");
        // The kernel cuts letters apart, too.
        assert_eq!(of("fourteen-bytesäb").comm(), Some(&b"fourteen-bytes\xc3"[..]));
        assert_eq!(Request::new("sockets", 1.0, "test").comm(), None);
    }

    #[test]
    fn the_state_of_a_thread_is_that_of_now() {
        let own = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
        assert_eq!(state_now(std::process::id(), own), Some('R'));
        assert_eq!(state_now(std::process::id(), u32::MAX), None);
    }

    #[test]
    fn the_filter_says_what_was_asked_for() {
        let mut request = Request::new("offcpu", 1.0, "test");
        assert!(request.filter().is_empty());
        request.pid = Some(7);
        request.d_only = true;
        assert_eq!(request.filter()["pid"], "7");
        assert_eq!(request.filter()["d-only"], "yes");
    }
}
