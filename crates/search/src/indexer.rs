//! Reads the configured files and collectors periodically and on change, and writes changes to a
//! sink.
//!
//! [`config`] is the configuration, and [`files`] resolves its patterns. [`open`] opens files
//! without following links, and [`text`] reads them. [`pass`] is one pass over everything.
//! [`watch`] uses inotify for changes in between, and [`schedule`] sets the times. Secrets are
//! withheld before anything is compared, stored or logged.

pub mod clock;
pub mod config;
pub mod files;
pub mod glob;
mod known;
pub mod log;
pub mod open;
pub mod owners;
pub mod pass;
mod retention;
pub mod schedule;
#[cfg(test)]
mod tests;
pub mod text;
pub(crate) mod toml;
mod visit;
pub mod watch;
pub mod yaml;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::backend::{Batch, Sink};
use crate::collectors::{COLLECTORS, Cache, Collector, Source};
use crate::document::Document;
use crate::error::{At, Error};
use crate::secrets::Policy;

pub use clock::{Clock, FakeClock};
pub use config::Config;
pub use pass::PassReport;

use clock::SECOND_NS;
use pass::PassScope;
use schedule::{SETTLE_NS, Schedule, SettledNames, Settling};

/// Period of passes over settings that have no change events, if the configured one is longer.
const QUICK_NS: i64 = 60 * SECOND_NS;
/// Longest time to the next pass after a failed one.
const RETRY_NS: i64 = 30 * SECOND_NS;
/// After a pass triggered by a change, the next one waits this multiple of the pass's CPU time. So
/// changes cost at most a thousandth of a core, however large and busy the files are.
const REST_TIMES: i64 = 1_000;
/// Longest sleep between two checks of the stop flag.
const SLEEP_NS_MAX: i64 = SECOND_NS;

/// Reads the configured files and collectors and writes what changed to a sink.
pub struct Indexer {
    config: Config,
    host: String,
    root_path: PathBuf,
    root: open::Root,
    sink: Box<dyn Sink>,
    clock: Clock,
    policy: Policy,
    /// Files with Mitra's own passwords, tokens and keys.
    own_secrets: Vec<String>,
    log: log::Log,
    asked: files::Selection,
    collectors: Vec<&'static Collector>,
    cache: Cache,
    reader: text::Reader,
    owners: owners::Owners,
    devices: known::Devices,
    watcher: Option<watch::Watcher>,
    settling: Settling,
    settle_ns: i64,
    rest_times: i64,
    /// Documents that the sink has stored, by name.
    known: BTreeMap<String, known::TakenDocument>,
    /// Names that the sink has stored before this process started. `None` until the sink was asked.
    stored: Option<BTreeSet<String>>,
    /// Symbolic links, by their target.
    aliases: BTreeMap<String, String>,
    number: u64,
    last_ns: i64,
    /// The next full pass writes every document.
    owes_all: bool,
    retention: retention::Retention,
    /// Runs as a service, long enough to notice that the clock is set.
    is_service: bool,
    is_full: bool,
    more: Option<ExtraDocuments>,
    told: BTreeMap<String, String>,
    told_withheld: BTreeSet<(String, String)>,
}

/// Returns additional documents for a time, such as incidents.
pub type ExtraDocuments = Box<dyn FnMut(i64) -> Result<Vec<Document>, String> + Send>;

/// A service in progress.
pub struct Service {
    schedule: Schedule,
    due: Deadlines,
}

/// The times of the next steps.
struct Deadlines {
    look_ns: i64,
    quick_ns: i64,
    drain_ns: i64,
    /// No pass triggered by a change before this time.
    rest_ns: i64,
}

impl Indexer {
    /// An indexer of this machine.
    pub fn new(config: Config, sink: Box<dyn Sink>, clock: Clock) -> Result<Self, Error> {
        Self::below(Path::new("/"), config, sink, clock)
    }

    /// An indexer that reads below a directory instead of `/`.
    pub fn below(root_path: &Path, config: Config, sink: Box<dyn Sink>, clock: Clock) -> Result<Self, Error> {
        let root = open::Root::open(root_path).at(root_path)?;
        let mut asked = files::Selection::new(&config.files, &config.exclude).map_err(Error::Cannot)?;
        // The indexer's own files change with every pass, so they are left out.
        for own in config.store.iter().chain(&config.log.file).filter_map(|path| path.to_str()) {
            asked.leave_out(own);
            asked.leave_out(&format!("{own}.[0-9]*"));
        }
        let policy = Policy::with(&config.secrets.deny, &config.secrets.allow)?;
        let is_chosen = |c: &&Collector| {
            config.collectors.as_ref().is_none_or(|names| names.iter().any(|name| name == c.name))
        };
        let mut log = log::Log::new(config.log.clone(), clock.clone(), policy.clone());
        // Exceptions from withholding are always logged.
        for path in policy.allowed() {
            log.warning(&format!("secrets.allow: read although it would be withheld: {path}"));
        }
        Ok(Self {
            host: config.host_name(),
            root_path: root_path.to_owned(),
            root,
            sink,
            log,
            policy,
            own_secrets: own_secrets(&config),
            asked,
            collectors: COLLECTORS.iter().filter(is_chosen).collect(),
            cache: Cache::default(),
            reader: text::Reader::new(config.max_bytes),
            owners: owners::Owners::default(),
            devices: known::Devices::default(),
            watcher: None,
            settling: Settling::new(SETTLE_NS),
            settle_ns: SETTLE_NS,
            rest_times: REST_TIMES,
            known: BTreeMap::new(),
            stored: None,
            aliases: BTreeMap::new(),
            number: 0,
            last_ns: 0,
            owes_all: false,
            retention: retention::Retention::default(),
            is_service: false,
            is_full: false,
            more: None,
            told: BTreeMap::new(),
            told_withheld: BTreeSet::new(),
            clock,
            config,
        })
    }

    /// The name of the host in the index.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The log, so that the caller can write to it as well.
    pub fn log(&mut self) -> &mut log::Log {
        &mut self.log
    }

    /// Stores documents that no pass finds (`@incident/…`), with their secrets withheld.
    pub fn add(&mut self, mut documents: Vec<Document>) -> Result<(), Error> {
        for document in &mut documents {
            document.host.clone_from(&self.host);
            self.policy.clean(document);
            text::bound(document);
        }
        let at_ns = self.clock.now_ns().max(self.last_ns);
        self.sink.put(&Batch { host: &self.host, at_ns, documents: &documents, gone: &[] })
    }

    /// Sets a source of additional documents, which is called after each full pass.
    pub fn ask_too(&mut self, more: ExtraDocuments) {
        self.more = Some(more);
    }

    /// Writes additional documents. A failure is logged.
    fn add_more(&mut self) -> Result<(), Error> {
        let now = self.clock.now_ns();
        let Some(more) = &mut self.more else { return Ok(()) };
        match more(now) {
            Ok(documents) if documents.is_empty() => Ok(()),
            Ok(documents) => self.add(documents),
            Err(why) => {
                self.log.warning(&why);
                Ok(())
            }
        }
    }

    /// Runs passes periodically and on change, until the flag is set.
    pub fn run(&mut self, stop: &AtomicBool) {
        self.is_service = true;
        match watch::Watcher::new() {
            Ok(watcher) => self.watcher = Some(watcher),
            Err(error) => self.log.warning(&format!("inotify: {error}; changes are seen at the frequency")),
        }
        let mut service = self.begin();
        while !stop.load(Ordering::Relaxed) {
            let wait_ns = self.step(&mut service).min(SLEEP_NS_MAX);
            if wait_ns > 0 && !stop.load(Ordering::Relaxed) {
                self.wait(&service.due, wait_ns);
            }
        }
        self.log.info("ends");
    }

    /// Begins a service whose caller waits between the steps.
    pub fn begin(&mut self) -> Service {
        let spread_s = self.config.opensearch.as_ref().map_or(0, |cluster| cluster.spread_s);
        let schedule = Schedule::new(&self.host, self.config.frequency_s, spread_s);
        let (now, every_s) = (self.clock.now_ns(), self.config.frequency_s);
        let start_s = schedule.start_ns() / SECOND_NS;
        self.log.info(&format!("{} begins in {start_s} s, every {every_s} s", self.host));
        let look_ns = now.saturating_add(schedule.start_ns());
        Service { schedule, due: Deadlines { look_ns, quick_ns: i64::MAX, drain_ns: now, rest_ns: now } }
    }

    /// Does one step that is due. Returns the time until the next one.
    pub fn step(&mut self, service: &mut Service) -> i64 {
        self.turn(&service.schedule, &mut service.due)
    }

    /// Does one step that is due. Returns the time until the next one.
    fn turn(&mut self, schedule: &Schedule, due: &mut Deadlines) -> i64 {
        let now = self.clock.now_ns();
        // If the clock was set back, the pass would otherwise be delayed.
        if now >= due.look_ns || due.look_ns - now > schedule.every_ns() {
            let is_good = self.attempt(&PassScope::All);
            let now = self.clock.now_ns();
            let next = schedule.next(now);
            due.look_ns = if is_good { next } else { next.min(now + RETRY_NS) };
            due.quick_ns = now + QUICK_NS;
            return 0;
        }
        if now >= due.drain_ns || due.drain_ns - now > self.settle_ns {
            self.drain(now);
            due.drain_ns = now + self.settle_ns;
        }
        if due.rest_ns <= now || due.rest_ns - now > schedule.every_ns() {
            let what = match self.settling.ready(now) {
                Some(SettledNames::All) => Some(PassScope::Files),
                Some(SettledNames::Names(names)) => Some(PassScope::Names(names)),
                None => None,
            };
            if let Some(what) = what {
                let begin = cpu_ns();
                self.attempt_early(&what, due);
                let rest = (cpu_ns() - begin).saturating_mul(self.rest_times);
                due.rest_ns = self.clock.now_ns().saturating_add(rest.min(schedule.every_ns()));
                return 0;
            }
        }
        if now >= due.quick_ns {
            due.quick_ns = now + QUICK_NS;
            self.attempt_early(&PassScope::Quick, due);
            return 0;
        }
        let settled = self.settling.next_ns().map_or(i64::MAX, |ns| ns.max(due.rest_ns));
        let next = settled.min(due.look_ns).min(due.quick_ns);
        // At least a fraction of the settle time: a step that becomes due only with the next events
        // must not cause a busy loop.
        (next - now).max(self.settle_ns / 10)
    }

    /// Waits for the time or for an event. Reads events at most once per settle time.
    fn wait(&self, due: &Deadlines, ns: i64) {
        let until_drain = due.drain_ns - self.clock.now_ns();
        match &self.watcher {
            Some(_) if until_drain > 0 => self.clock.wait(ns.min(until_drain), None),
            Some(watcher) => self.clock.wait(ns, Some(watcher.fd())),
            None => self.clock.wait(ns, None),
        }
    }

    fn attempt_early(&mut self, what: &PassScope, due: &mut Deadlines) {
        if !self.attempt(what) {
            due.look_ns = due.look_ns.min(self.clock.now_ns() + RETRY_NS);
        }
    }

    fn attempt(&mut self, what: &PassScope) -> bool {
        match self.look(what) {
            Ok(_) if *what != PassScope::All => true,
            Ok(_) => self.add_more().map_err(|error| self.log.error(&error.to_string())).is_ok(),
            Err(error) => {
                self.log.error(&error.to_string());
                false
            }
        }
    }

    /// Reads the inotify events that concern configured files.
    fn drain(&mut self, now_ns: i64) {
        let Some(watcher) = &mut self.watcher else { return };
        let changes = watcher.drain();
        if changes.is_lost {
            self.log.warning("events were lost; everything is looked at");
            self.settling.everything(now_ns);
        }
        if changes.dirs.iter().any(|dir| self.asked.leads_to(dir)) {
            self.settling.everything(now_ns);
        }
        for name in &changes.names {
            let name = self.aliases.get(name).unwrap_or(name);
            // Volatile files are read at the configured frequency only.
            if self.asked.how(name).is_some() && !self.asked.is_volatile(name) {
                self.settling.name(name, now_ns);
            }
        }
    }

    fn ask(&self, collector: &Collector, now_ns: i64) -> Result<Vec<Document>, String> {
        (collector.collect)(&Source { root: &self.root_path, now_ns, cache: &self.cache })
    }
}

/// The CPU time of this thread.
fn cpu_ns() -> i64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    t.tv_sec.saturating_mul(SECOND_NS).saturating_add(t.tv_nsec)
}

fn own_secrets(config: &Config) -> Vec<String> {
    let files = config.opensearch.iter().flat_map(|cluster| [&cluster.password_file, &cluster.api_key_file]);
    let files = files.flatten().filter_map(|path| path.to_str()).map(str::to_owned);
    files.chain(config.own_secrets.iter().cloned()).collect()
}
