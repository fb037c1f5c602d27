//! A capture from its beginning to its end.

use mitra_parse::fields::Fields;
use mitra_parse::task::task_stat;
use std::path::Path;
use std::time::{Duration, Instant};

use mitra_model::capture::{Captured, Ended, Image, InterpreterLayout, Raw, SCHEMA, StackCopy, UnwoundStack};
use rustix::time::{ClockId, clock_gettime};

use super::cost::{Cost, own_cpu_ns};
use super::loader::{Config, Counts, Loaded, Loader, in_first_pid_namespace};
use super::stacks::Images;
use super::{AnyError, CaptureReader, Kind, Refused, Request, SECONDS_MAX, kind, kinds};
use crate::bpf::chain;
use crate::file::Root;
use crate::host::host_info;

/// Where cost cannot be measured it is taken for what was the most where it was (docs/captures.md): of a run that finds
/// nothing to do 190 ns at a call, of an event 3 µs for a process that `fork` sees, of the two stacks that a sample of
/// `oncpu` has nearly all of its 9 µs.
const RUN_NS: u64 = 200;
const EVENT_NS: u64 = 3_000;
const STACK_NS: u64 = 4_500;

/// Bits of the effective capabilities (`linux/capability.h`).
const CAP_SYS_ADMIN: u32 = 21;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;

/// Where captures begin.
pub struct Capture;

/// A capture that goes on. Dropping it detaches everything.
pub struct Armed {
    header: Captured,
    reader: Box<dyn CaptureReader>,
    loaded: Option<Loaded>,
    images: Images,
    cost: Cost,
    began: Instant,
    lasted: Duration,
    time: Duration,
    cost_max_ns: u64,
    events: Bound,
    /// Its programs stop by themselves then.
    goes_on_for: Duration,
    process: Option<Process>,
    /// Processes have other numbers here than in the kernel.
    is_elsewhere: bool,
    ended: Option<Ended>,
    seen: Vec<Image>,
    counts: Counts,
    cost_kernel_ns: Option<u64>,
    missed: Option<u64>,
}

/// Events after which a capture ends, and what is said then.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Bound {
    events_max: u64,
    ended: Ended,
}

impl Bound {
    /// As many as were asked for. Where their cost is not measured, at most as many as may be paid for.
    fn of(asked: u64, payable: Option<u64>) -> Self {
        match payable {
            Some(payable) if payable < asked => Self { events_max: payable, ended: Ended::Cost },
            _ => Self { events_max: asked, ended: Ended::Events },
        }
    }
}

/// A process as it is meant: numbers are given again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Process {
    pid: u32,
    began: u64,
}

impl Process {
    /// Who has the number now.
    fn of(pid: u32) -> Option<Self> {
        let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
        Some(Self { pid, began: task_stat(&stat)?.start })
    }

    /// The one that a request means.
    fn meant(pid: u32, began: Option<u64>) -> Result<Self, Refused> {
        let process = Self::of(pid);
        let process = process.ok_or_else(|| Refused::NotThere(format!("there is no process {pid}")))?;
        // `/proc` has them too, and programs would look for a process of that number in vain.
        if let Some(whole) = process_of(pid).filter(|whole| *whole != pid) {
            return Err(Refused::BadRequest(format!(
                "{pid} is a thread of process {whole}: ask for the process, and for the name of the thread if need be"
            )));
        }
        if began.is_some_and(|began| began != process.began) {
            return Err(Refused::NotThere(format!(
                "process {pid} has ended, and another one has its number"
            )));
        }
        Ok(process)
    }

    fn has_gone(&self) -> bool {
        Self::of(self.pid) != Some(*self)
    }
}

/// The process that a thread belongs to; its first thread has the same number.
fn process_of(tid: u32) -> Option<u32> {
    let status = std::fs::read(format!("/proc/{tid}/status")).ok()?;
    Fields::new(&String::from_utf8_lossy(&status)).number("Tgid")?.try_into().ok()
}

impl Capture {
    /// Loads and attaches the programs of a kind.
    ///
    /// This parses the kernel's type information: about a tenth of a second of CPU, and memory that is given back.
    pub fn arm(request: &Request) -> Result<Armed, Refused> {
        let Some(kind) = kind(&request.kind) else {
            let names: Vec<&str> = kinds().iter().map(|kind| kind.name).collect();
            return Err(Refused::NoSuchKind(request.kind.clone(), names.join(", ")));
        };
        let process = check(kind, request)?;
        let mut config = Config::of(request).map_err(Refused::NotThere)?;
        kind.configured(request, &mut config).map_err(Refused::BadRequest)?;
        if !kind.object.is_empty() {
            privileged()?;
        }
        let armed = crate::bpf::with_bounded_heap(|| arm(kind, request, config, process));
        armed.map_err(|error| Refused::Kernel { kind: kind.name, why: chain(&*error) })
    }
}

/// Says which process is meant, if one is.
fn check(kind: &Kind, request: &Request) -> Result<Option<Process>, Refused> {
    let bad = |text: String| Err(Refused::BadRequest(text));
    if !(0.001..=SECONDS_MAX).contains(&request.seconds) {
        return bad(format!("a capture lasts up to {SECONDS_MAX} s, not {} s", request.seconds));
    }
    if request.cost_budget.is_nan() || request.cost_budget <= 0.0 {
        return bad("a capture without a budget sees nothing".to_owned());
    }
    if let Some(name) = request.options.keys().find(|name| !kind.options.iter().any(|(n, _)| n == name)) {
        let names: Vec<&str> = kind.options.iter().map(|(name, _)| *name).collect();
        let has = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        return bad(format!("{} has no option {name:?}; it has {has}", kind.name));
    }
    if let Some(name) = request.asked().find(|name| !kind.filters.contains(name)) {
        let knows = kinds().iter().filter(|kind| kind.filters.contains(&name)).map(|kind| kind.name);
        let knows: Vec<&str> = knows.collect();
        return bad(format!("{} has no use for --{name}; these have: {}", kind.name, knows.join(", ")));
    }
    let Some(pid) = request.pid else { return Ok(None) };
    if kind.has_programs() && !in_first_pid_namespace() {
        return bad(format!(
            "this runs in a PID namespace of its own, where process {pid} has another number than in the kernel: run it \
             in the first one (containers: --pid=host), or ask without --pid"
        ));
    }
    Process::meant(pid, request.pid_began).map(Some)
}

/// What is missing, if anything.
pub(super) fn privileged() -> Result<(), Refused> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let Some(effective) = Fields::new(&status).mask("CapEff") else {
        // Nobody says: the kernel will.
        return Ok(());
    };
    let has = |bit: u32| effective >> bit & 1 == 1;
    for (bit, name) in [(CAP_BPF, "CAP_BPF"), (CAP_PERFMON, "CAP_PERFMON")] {
        if !has(bit) && !has(CAP_SYS_ADMIN) {
            return Err(Refused::Privilege(name));
        }
    }
    Ok(())
}

fn arm(
    kind: &'static Kind,
    request: &Request,
    mut config: Config,
    process: Option<Process>,
) -> Result<Armed, AnyError> {
    let before = own_cpu_ns();
    // A kind without programs needs no type information either, which costs more than all it does.
    let btf = if kind.object.is_empty() { None } else { Some(aya::Btf::from_sys_fs()?) };
    // Counting begins before anything runs, so that nothing runs uncounted.
    let cost = Cost::begin();
    let cost_max_ns = (request.cost_budget * request.seconds * 1e9) as u64;
    let events = Bound::of(config.max_events, cost.unavailable().map(|_| cost_max_ns / EVENT_NS));
    // The programs keep to it by themselves.
    config.max_events = events.events_max;
    let mut loader = match &btf {
        Some(btf) => Loader::load(kind.object, &config, btf)?,
        None => Loader::without_programs(),
    };
    let reader = (kind.arm)(request, &mut loader)?;
    let images = Images::new(&mut loader)?;
    let loaded = loader.into_loaded()?;
    let host = Root::open(Path::new("/")).map(|root| host_info(&root)).unwrap_or_default();
    let mut header = Captured {
        schema: SCHEMA.to_owned(),
        kind: kind.name.to_owned(),
        why: request.why.clone(),
        host: host.hostname,
        kernel: host.kernel,
        since_real: now_ns(ClockId::Realtime),
        since_mono: now_ns(ClockId::Monotonic),
        filter: request.filter(),
        cost_setup_ns: Some(own_cpu_ns().saturating_sub(before)),
        ..Captured::default()
    };
    header.notes.extend(loaded.notes.iter().cloned());
    if let Some(why) = cost.unavailable().filter(|_| kind.has_programs()) {
        header.notes.push(format!(
            "its cost is not measured ({why}; it needs CAP_SYS_ADMIN); it ends when {RUN_NS} ns for each run of a program, \
             {EVENT_NS} ns for each event and {STACK_NS} ns for each stack are more than it may take"
        ));
    }
    let is_elsewhere = kind.has_programs() && !in_first_pid_namespace();
    if is_elsewhere {
        header.notes.push(
            "this runs in a PID namespace of its own: processes have the numbers that they have in the first one, and their \
             functions no names"
                .to_owned(),
        );
    }
    loaded.begin()?;
    let goes_on_ns = config.until_ns.saturating_sub(u64::try_from(header.since_mono).unwrap_or(0));
    Ok(Armed {
        header,
        reader,
        loaded: Some(loaded),
        images,
        cost,
        began: Instant::now(),
        lasted: Duration::ZERO,
        time: Duration::from_secs_f64(request.seconds),
        cost_max_ns,
        events,
        goes_on_for: if kind.has_programs() { Duration::from_nanos(goes_on_ns) } else { Duration::MAX },
        process,
        is_elsewhere,
        ended: None,
        seen: Vec::new(),
        counts: Counts::default(),
        cost_kernel_ns: None,
        missed: None,
    })
}

/// What the programs took where that is not measured; more rather than less.
fn taken_for_ns(counts: &Counts) -> u64 {
    let of = |count: u64, ns: u64| count.saturating_mul(ns);
    of(counts.runs, RUN_NS)
        .saturating_add(of(counts.events, EVENT_NS))
        .saturating_add(of(counts.stacks, STACK_NS))
}

fn now_ns(clock: ClockId) -> i64 {
    let time = clock_gettime(clock);
    time.tv_sec.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec)
}

impl Armed {
    /// Takes what there is so far, in bounded time, and ends the capture when one of its bounds is reached. Says how it
    /// ended, once it has. To be called every second at least: a budget can be exceeded by as much as that.
    pub fn poll(&mut self) -> Option<&Ended> {
        if self.ended.is_none() {
            let before = own_cpu_ns();
            let result = self.look();
            self.cost.user_ns += own_cpu_ns().saturating_sub(before);
            match result {
                Ok(None) => {}
                Ok(Some(ended)) => self.end(ended),
                Err(error) => self.end(Ended::Failed(chain(&*error))),
            }
        }
        self.ended.as_ref()
    }

    fn look(&mut self) -> Result<Option<Ended>, AnyError> {
        self.images.take(&mut self.seen);
        self.reader.poll()?;
        self.measure()?;
        if self.began.elapsed() >= self.time {
            return Ok(Some(Ended::Time));
        }
        if self.reader.is_complete() {
            return Ok(Some(Ended::Events));
        }
        if self.counts.events >= self.events.events_max {
            return Ok(Some(self.events.ended.clone()));
        }
        let kernel_ns = self.cost_kernel_ns.unwrap_or_else(|| taken_for_ns(&self.counts));
        if kernel_ns.saturating_add(self.cost.user_ns) > self.cost_max_ns {
            return Ok(Some(Ended::Cost));
        }
        let gone = self.process.is_some_and(|process| process.has_gone());
        Ok(gone.then_some(Ended::Gone))
    }

    fn measure(&mut self) -> Result<(), AnyError> {
        let Some(loaded) = &mut self.loaded else { return Ok(()) };
        self.counts = loaded.counts()?;
        let ran = self.cost.of(&loaded.programs);
        self.cost_kernel_ns = ran.measured.map(|(ns, _)| ns);
        self.header.runs = Some(ran.measured.map_or(self.counts.runs, |(_, count)| count));
        self.missed = ran.missed;
        Ok(())
    }

    /// Detaches; the maps stay until the capture is finished.
    fn end(&mut self, ended: Ended) {
        if self.ended.is_some() {
            return;
        }
        self.lasted = self.began.elapsed();
        if self.lasted > self.goes_on_for {
            self.lasted = self.goes_on_for;
            self.header.notes.push(
                "nobody looked after it when its time was over: its programs ended by themselves".to_owned(),
            );
        }
        if let Some(loaded) = &mut self.loaded {
            loaded.end();
        }
        // What ran between the last look and now counts as well.
        _ = self.measure();
        self.images.take(&mut self.seen);
        self.ended = Some(ended);
    }

    /// Programs of processes that were seen since the last call. Their mappings should be read at once: a process may
    /// end, and its addresses mean nothing then.
    pub fn take_images(&mut self) -> Vec<Image> {
        if self.is_elsewhere {
            self.seen.clear();
        }
        std::mem::take(&mut self.seen)
    }

    /// Copies of stacks that could not be followed for certain. Whoever can read the tables of the programs' files follows
    /// them (`mitra_inspect::Unwinder`), and tells by [`Armed::teach`].
    pub fn take_copies(&mut self) -> Vec<StackCopy> {
        let copies = self.reader.take_copies();
        if self.is_elsewhere { Vec::new() } else { copies }
    }

    /// What was made of a copy: from now on stacks are followed so at these places.
    pub fn teach(&mut self, chain: u64, followed: UnwoundStack) {
        self.reader.teach(chain, followed);
    }

    /// The process whose functions it wants to know, where an interpreter runs them: whoever knows such interpreters
    /// (`mitra_inspect::python::Functions`) tells by [`Armed::follow_functions`], and again for threads that are new.
    #[must_use]
    pub fn interprets(&self) -> Option<u32> {
        self.reader.interprets().filter(|_| !self.is_elsewhere)
    }

    /// How the interpreter keeps which functions its threads are in.
    pub fn follow_functions(&mut self, how: &InterpreterLayout) {
        self.reader.follow_functions(how);
    }

    /// Does something on the account of this capture that the work of [`Armed::poll`] does not include: reading what
    /// [`Armed::take_images`] wants read.
    pub fn charge<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let before = own_cpu_ns();
        let result = work();
        self.cost.user_ns += own_cpu_ns().saturating_sub(before);
        result
    }

    /// Events so far, and for how long it has been armed.
    #[must_use]
    pub fn progress(&self) -> (u64, Duration) {
        let lasted = if self.ended.is_some() { self.lasted } else { self.began.elapsed() };
        (self.counts.events, lasted)
    }

    /// Ends it, if nothing else did, and returns what it saw.
    #[must_use]
    pub fn finish(mut self) -> Raw {
        self.end(Ended::Stopped);
        let Armed { mut header, reader, counts, ended, .. } = self;
        header.seconds = self.lasted.as_secs_f64();
        header.events = counts.events;
        header.lost = counts.lost.saturating_add(self.missed.unwrap_or(0));
        header.ended = ended.unwrap_or_default();
        header.cost_kernel_ns = self.cost_kernel_ns;
        if counts.stacks_lost > 0 {
            header
                .notes
                .push(format!("events that count, but whose stack had no room: {}", counts.stacks_lost));
        }
        match self.missed {
            Some(0) => {}
            Some(missed) => header
                .notes
                .push(format!("events that came while a program was busy, and were not seen: {missed}")),
            None => header.notes.push(
                "events that came while a program was busy are not counted here (5.12 does)".to_owned(),
            ),
        }
        if let Some(what) = reader.other().filter(|_| counts.other > 0) {
            header.notes.push(format!("{what}: {}", counts.other));
        }
        let mut raw = Raw { captured: header, ..Raw::default() };
        let before = own_cpu_ns();
        if let Err(error) = reader.finish(&mut raw) {
            raw.captured.ended = Ended::Failed(chain(&*error));
        }
        let user_ns = self.cost.user_ns + own_cpu_ns().saturating_sub(before);
        raw.captured.cost_ns = self.cost_kernel_ns.map(|ns| ns.saturating_add(user_ns));
        if self.is_elsewhere {
            // They would be read of whoever has these numbers here.
            raw.stacks.iter_mut().for_each(|stack| stack.user.clear());
        }
        raw
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_that_find_nothing_to_do_cost_as_well() {
        let counts = |runs, events, stacks| Counts { runs, events, stacks, ..Counts::default() };
        assert_eq!(taken_for_ns(&counts(0, 0, 0)), 0);
        // 100,000 calls a second of others are 2 % of a CPU.
        assert_eq!(taken_for_ns(&counts(100_000, 0, 0)), 20_000_000);
        assert!(taken_for_ns(&counts(1, 1, 2)) > 9_000, "a sample with two stacks took 9 µs");
        assert_eq!(taken_for_ns(&counts(u64::MAX, 1, 1)), u64::MAX);
    }

    #[test]
    fn a_process_is_not_another_one_of_its_number() {
        let own = Process::of(std::process::id()).unwrap();
        assert!(own.began > 0 && !own.has_gone());
        assert!(Process { began: own.began + 1, ..own }.has_gone());
        assert_eq!(Process::meant(own.pid, Some(own.began)).unwrap(), own);
        let refused = Process::meant(own.pid, Some(own.began + 1)).unwrap_err();
        assert!(refused.to_string().contains("another one has its number"), "{refused}");
        assert!(Process::meant(u32::MAX, None).is_err());
    }

    #[test]
    fn a_thread_is_not_taken_for_a_process() {
        let thread = || rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
        let own = std::process::id();
        let refuse = move || Process::meant(thread(), None).unwrap_err().to_string();
        // A test may run in the first thread.
        let refused = std::thread::spawn(refuse).join().unwrap();
        assert!(refused.contains(&format!("is a thread of process {own}:")), "{refused}");
    }

    #[test]
    fn what_may_be_paid_for_is_no_number_of_events_that_somebody_wanted() {
        let bound = |asked, payable| {
            let bound = Bound::of(asked, payable);
            (bound.events_max, bound.ended)
        };
        assert_eq!(bound(100, None), (100, Ended::Events));
        assert_eq!(bound(100, Some(101)), (100, Ended::Events));
        assert_eq!(bound(100, Some(99)), (99, Ended::Cost));
    }
}
