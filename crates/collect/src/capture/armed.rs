//! A capture from its beginning to its end.

use std::path::Path;
use std::time::{Duration, Instant};

use mitra_model::capture::{Captured, Ended, Image, Raw, SCHEMA};
use rustix::time::{ClockId, clock_gettime};

use super::cost::{Cost, own_cpu_ns};
use super::loader::{Config, Counts, Loaded, Loader};
use super::stacks::Images;
use super::{AnyError, Gather, Kind, Refused, Request, SECONDS_MAX, kind, kinds};
use crate::bpf::chain;
use crate::file::Root;
use crate::host::host_info;

/// Where cost cannot be measured: what an event took at most on the machines where it was, stacks and all.
const EVENT_COST_NS_MAX: u64 = 15_000;

/// Bits of the effective capabilities (`linux/capability.h`).
const CAP_SYS_ADMIN: u32 = 21;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;

/// Where captures begin.
pub struct Capture;

/// A capture that goes on. Dropping it detaches everything.
pub struct Armed {
    header: Captured,
    gather: Box<dyn Gather>,
    loaded: Option<Loaded>,
    images: Images,
    cost: Cost,
    began: Instant,
    lasted: Duration,
    time: Duration,
    cost_max_ns: u64,
    events_max: u64,
    pid: Option<u32>,
    ended: Option<Ended>,
    seen: Vec<Image>,
    counts: Counts,
    cost_kernel_ns: Option<u64>,
    missed: u64,
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
        check(kind, request)?;
        let mut config = Config::of(request).map_err(Refused::NotThere)?;
        (kind.configure)(request, &mut config).map_err(Refused::BadRequest)?;
        if !kind.object.is_empty() {
            privileged()?;
        }
        let armed = crate::bpf::with_bounded_heap(|| arm(kind, request, &config));
        armed.map_err(|error| Refused::Kernel { kind: kind.name, why: chain(&*error) })
    }
}

fn check(kind: &Kind, request: &Request) -> Result<(), Refused> {
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
    if let Some(pid) = request.pid
        && !Path::new(&format!("/proc/{pid}")).exists()
    {
        return Err(Refused::NotThere(format!("there is no process {pid}")));
    }
    Ok(())
}

/// What is missing, if anything.
pub(super) fn privileged() -> Result<(), Refused> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let Some(effective) = line.and_then(|text| u64::from_str_radix(text.trim(), 16).ok()) else {
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

fn arm(kind: &'static Kind, request: &Request, config: &Config) -> Result<Armed, AnyError> {
    let before = own_cpu_ns();
    // A kind without programs needs no type information either, which costs more than all it does.
    let btf = if kind.object.is_empty() { None } else { Some(aya::Btf::from_sys_fs()?) };
    // Counting begins before anything runs, so that nothing runs uncounted.
    let cost = Cost::begin();
    let mut loader = match &btf {
        Some(btf) => Loader::load(kind.object, config, btf)?,
        None => Loader::without_programs(),
    };
    let gather = (kind.arm)(request, &mut loader)?;
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
    let cost_max_ns = (request.cost_budget * request.seconds * 1e9) as u64;
    let mut events_max = request.max_events;
    if let Some(why) = cost.unavailable() {
        events_max = events_max.min(cost_max_ns / EVENT_COST_NS_MAX);
        header.notes.push(format!(
            "its cost is not measured ({why}; it needs CAP_SYS_ADMIN), so it ends after {events_max} events"
        ));
    }
    Ok(Armed {
        header,
        gather,
        loaded: Some(loaded),
        images,
        cost,
        began: Instant::now(),
        lasted: Duration::ZERO,
        time: Duration::from_secs_f64(request.seconds),
        cost_max_ns,
        events_max,
        pid: request.pid,
        ended: None,
        seen: Vec::new(),
        counts: Counts::default(),
        cost_kernel_ns: None,
        missed: 0,
    })
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
        self.gather.poll()?;
        self.measure()?;
        if self.began.elapsed() >= self.time {
            return Ok(Some(Ended::Time));
        }
        if self.counts.events >= self.events_max || self.gather.is_complete() {
            return Ok(Some(Ended::Events));
        }
        if self.cost_kernel_ns.unwrap_or(0).saturating_add(self.cost.user_ns) > self.cost_max_ns {
            return Ok(Some(Ended::Cost));
        }
        let gone = self.pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists());
        Ok(gone.then_some(Ended::Gone))
    }

    fn measure(&mut self) -> Result<(), AnyError> {
        let Some(loaded) = &mut self.loaded else { return Ok(()) };
        self.counts = loaded.counts()?;
        let run = self.cost.of(&loaded.programs);
        self.cost_kernel_ns = run.map(|run| run.ns);
        self.header.runs = run.map(|run| run.count);
        self.missed = run.map_or(0, |run| run.missed);
        Ok(())
    }

    /// Detaches; the maps stay until the capture is finished.
    fn end(&mut self, ended: Ended) {
        if self.ended.is_some() {
            return;
        }
        self.lasted = self.began.elapsed();
        if let Some(loaded) = &mut self.loaded {
            loaded.links.clear();
        }
        // What ran between the last look and now counts as well.
        _ = self.measure();
        self.images.take(&mut self.seen);
        self.ended = Some(ended);
    }

    /// Programs of processes that were seen since the last call. Their mappings should be read at once: a process may
    /// end, and its addresses mean nothing then.
    pub fn take_images(&mut self) -> Vec<Image> {
        std::mem::take(&mut self.seen)
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
        let Armed { mut header, gather, counts, ended, .. } = self;
        header.seconds = self.lasted.as_secs_f64();
        header.events = counts.events;
        header.lost = counts.lost.saturating_add(self.missed);
        header.ended = ended.unwrap_or_default();
        header.cost_kernel_ns = self.cost_kernel_ns;
        header.cost_ns = self.cost_kernel_ns.map(|ns| ns.saturating_add(self.cost.user_ns));
        if counts.stacks_lost > 0 {
            header
                .notes
                .push(format!("events that count, but whose stack had no room: {}", counts.stacks_lost));
        }
        if self.missed > 0 {
            header.notes.push(format!(
                "events that came while a program was busy, and were not seen: {}",
                self.missed
            ));
        }
        let mut raw = Raw { captured: header, ..Raw::default() };
        if let Err(error) = gather.finish(&mut raw) {
            raw.captured.ended = Ended::Failed(chain(&*error));
        }
        raw
    }
}
