//! The recording loop: tick, sample, append, until it is told to stop.

use std::io::Write;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use mitra_archive::{Options, Writer};
use mitra_collect::{ArchiveState, Budget, Clock, Config, LogSource, Pattern, Sampler, Ticker};
use mitra_model::{Event, EventKind, Frame};
use mitra_rules::Rule;
use mitra_rules::ast::LogPattern;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, UCred, connect, socket_with};
use rustix::process::geteuid;

use crate::cli::SamplingArgs;
use crate::errors::usage;
use crate::escalation::{Escalation, settings};
use crate::log::log;
use crate::render::style::clean;
use crate::render::units;

/// The same trouble is logged at most this often.
const COMPLAINT_EVERY: Duration = Duration::from_secs(60);

/// Samples whose missing sources are printed. Later ones are only recorded: the reader of standard
/// output may hang with the machine, and the recorder must not wait for it.
const NAMING_SAMPLES: u8 = 10;

/// Frames in memory while the disk takes nothing: an hour at 2 KB a second.
const BEHIND_BYTES: usize = 8 << 20;

/// Further messages about the recording are only logged.
const NEWS_MAX: usize = 16;

/// Where the logs of rules go on, in the archive's directory.
const LOGS_STATE: &str = "logs.state";

/// Abstract socket by which recorders see each other.
const NAME: &str = "mitra-recorder";

pub struct Recorder {
    dir: PathBuf,
    interval: Duration,
    sampler: Sampler,
    writer: Writer,
    frame: Frame,
    clock: Clock,
    /// Holds [`NAME`].
    _alone: Option<UnixListener>,
    /// The message about another recorder.
    other: Option<String>,
    /// Messages for the next frame.
    news: Vec<String>,
    trouble: Trouble,
    /// The disk is behind.
    waiting: Trouble,
    /// Samples since the start that are not in the archive.
    lost: u64,
    escalation: Escalation,
    /// Whether servers that it starts may ask for probes.
    is_asked: bool,
    /// Samples left whose missing sources are printed.
    naming: u8,
}

/// The state after a sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// The archive has the sample.
    Well,
    /// The sample waits in memory, or was refused, because the disk takes nothing.
    DiskBehind(String),
    /// No sample was taken. Another recorder may do better.
    Broken(String),
}

/// Lost samples, and when they were last logged.
#[derive(Default)]
struct Trouble {
    lost: u64,
    /// Disk errors after which the state of the disk is unknown.
    doubts: u64,
    told: Option<Instant>,
}

impl Recorder {
    /// Opens the sources and the archive, which stays locked.
    pub fn open(dir: &Path, args: &SamplingArgs) -> Result<Self> {
        mitra_collect::check_interval(args.interval).map_err(|e| usage(e.to_string()))?;
        let rules = settings::load_or_complain(args.config.as_ref())?;
        let clock = Clock::Real;
        let sampler = Sampler::open(Config {
            interval: args.interval,
            use_bpf: !args.no_bpf,
            ask_databases: rules.ask_databases,
            read_answers: rules.read_answers,
            budget: Budget { cpu_share: args.cpu_budget, memory_bytes: args.memory_budget },
            clock: clock.clone(),
            patterns: patterns(&rules.rules)?,
            logs_state: Some(dir.join(LOGS_STATE)),
            ..Config::default()
        })
        .context("cannot sample this machine")?;
        let options = Options {
            max_bytes: args.max_bytes,
            max_age: args.max_age,
            behind_bytes: BEHIND_BYTES,
            ..Options::default()
        };
        let writer = Writer::open(dir, sampler.host(), options)?;
        let mut news = Vec::new();
        for lost in writer.repaired() {
            news.push(format!("{} at byte {}: {}", lost.file.display(), lost.offset, lost.why));
        }
        news.iter().for_each(|line| log(line));
        let (alone, other) = another();
        news.extend(other.clone());
        news.truncate(NEWS_MAX);
        let is_asked = rules.ask_captures;
        let mut escalation = Escalation::new(rules, sampler.host(), dir, !args.no_arm, !args.no_bpf);
        escalation.remember(clock.now());
        Ok(Recorder {
            escalation,
            is_asked,
            dir: dir.to_path_buf(),
            interval: args.interval,
            sampler,
            writer,
            frame: Frame::new(),
            clock,
            _alone: alone,
            other,
            news,
            trouble: Trouble::default(),
            waiting: Trouble::default(),
            lost: 0,
            naming: NAMING_SAMPLES,
        })
    }

    /// The first line of output.
    pub fn describe(&self) -> String {
        let host = self.sampler.host();
        let missing = self.sampler.unavailable();
        let missing = match missing.len() {
            0 => String::new(),
            1 => "; 1 source is not available (mitra explain names it)".to_owned(),
            n => format!("; {n} sources are not available (mitra explain names them)"),
        };
        format!(
            "recording {} every {} to {}{missing}{}",
            host.hostname,
            every(self.interval),
            self.dir.display(),
            self.other.as_ref().map_or_else(String::new, |other| format!("; {other}"))
        )
    }

    /// The probes that a server beside this may ask for; none unless the configuration lets it.
    pub fn may_be_asked(&self) -> Vec<&'static str> {
        if self.is_asked { self.escalation.may_be_asked() } else { Vec::new() }
    }

    /// Answers what is asked over this socket, see [`crate::asked`].
    pub fn listen(&mut self, socket: UnixStream) -> std::io::Result<()> {
        self.escalation.listen(socket)
    }

    /// Records until `stop` is set, then closes the archive. `each` gets the state after each
    /// sample. A writer that has died is an error: another process can still record.
    pub fn run(mut self, stop: &AtomicBool, mut each: impl FnMut(Health)) -> Result<()> {
        let mut ticker = Ticker::new(self.interval, self.clock.clone());
        while !stop.load(Ordering::Relaxed) {
            each(self.sample()?);
            let tick = ticker.wait(stop);
            self.sampler.note_tick(tick);
        }
        self.escalation.finish();
        self.writer.finish().with_context(|| format!("cannot close the archive {}", self.dir.display()))
    }

    fn sample(&mut self) -> Result<Health> {
        self.sampler.note_archive(ArchiveState {
            written_bytes: self.writer.written_bytes(),
            waiting_bytes: self.writer.waiting_bytes() as u64,
            lost_samples: self.lost,
            disk_errors: self.writer.disk_errors(),
        });
        if let Err(error) = self.sampler.sample(&mut self.frame) {
            let what = format!("no sample was taken: {error}");
            self.lost += 1;
            self.trouble.happened(&what);
            return Ok(Health::Broken(what));
        }
        if self.naming > 0 {
            self.naming -= 1;
            self.name_missing();
        }
        self.escalation.look(&mut self.frame, self.sampler.strings());
        self.add_news();
        match self.writer.append(&self.frame, self.sampler.strings()) {
            Ok(()) => {
                self.trouble.over();
                self.news.clear();
                match self.writer.trouble() {
                    Some(error) => {
                        self.waiting
                            .tell(&format!("{error}; what was recorded since is kept and tried again"));
                        Ok(Health::DiskBehind(error))
                    }
                    None => {
                        if self.waiting.told.is_some() {
                            log(self.waiting.caught_up());
                            self.waiting = Trouble::default();
                        }
                        Ok(Health::Well)
                    }
                }
            }
            Err(error @ mitra_archive::Error::Died) => {
                Err(error).with_context(|| format!("cannot record to {}", self.dir.display()))
            }
            Err(error) => {
                self.lost += 1;
                self.trouble.happened(&format!("{error}; the recorder goes on trying"));
                self.waiting.lost += u64::from(self.waiting.told.is_some());
                Ok(Health::DiskBehind(error.to_string()))
            }
        }
    }

    /// Adds messages about the recording to the frame, so that the archive explains its own gaps.
    fn add_news(&mut self) {
        for line in self.writer.take_news() {
            log(&line);
            self.waiting.doubts += 1;
            if self.news.len() < NEWS_MAX {
                self.news.push(line);
            }
        }
        let lost = (self.trouble.lost > 0)
            .then(|| format!("{} samples before this one could not be written", self.trouble.lost));
        let time = self.frame.time;
        self.frame.events.extend(self.news.iter().cloned().chain(lost).map(|text| Event {
            real: time.real,
            mono: Some(time.mono),
            place: None,
            kind: EventKind::Recorder { text },
        }));
    }

    /// Prints the missing sources: the service has other privileges than `mitra doctor` run by
    /// hand.
    fn name_missing(&self) {
        for event in &self.frame.events {
            if let EventKind::Unavailable { source, why } = &event.kind {
                // A closed standard output does not stop the recording.
                _ = writeln!(std::io::stdout(), "not available: {}", clean(&format!("{source}: {why}")));
            }
        }
    }
}

impl Trouble {
    fn happened(&mut self, what: &str) {
        self.lost += 1;
        self.tell(&format!("{what} ({} samples lost)", units::grouped(self.lost as f64)));
    }

    fn tell(&mut self, what: &str) {
        if self.told.is_none_or(|told| told.elapsed() >= COMPLAINT_EVERY) {
            self.told = Some(Instant::now());
            log(what);
        }
    }

    /// The message when the disk has taken everything.
    fn caught_up(&self) -> &'static str {
        match (self.lost, self.doubts) {
            (0, 0) => "the archive is written again; nothing was lost",
            (_, 0) => "all that was kept has been written",
            // What was lost has been logged, file by file.
            _ => "the archive is written again",
        }
    }

    fn over(&mut self) {
        if self.lost > 0 {
            log(&format!(
                "the archive is written again; {} samples were lost",
                units::grouped(self.lost as f64)
            ));
            *self = Trouble::default();
        }
    }
}

/// Takes the name by which recorders of this machine see each other, or returns a message. A second
/// recorder is legitimate, in a test say, but doubles the cost.
///
/// The kernel frees an abstract name when its process ends, whatever files the process sees.
/// Anybody can take it, so only root's or the own user's process is believed.
fn another() -> (Option<UnixListener>, Option<String>) {
    let Ok(name) = SocketAddr::from_abstract_name(NAME) else { return (None, None) };
    match UnixListener::bind_addr(&name) {
        Ok(listener) => (Some(listener), None),
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
            let peer = holder().ok();
            let told = peer.filter(|peer| peer.uid.is_root() || peer.uid == geteuid()).map(|peer| {
                let pid = peer.pid.as_raw_nonzero();
                format!("another recorder, process {pid}, records this machine too: what they cost adds up")
            });
            (None, told)
        }
        Err(_) => (None, None),
    }
}

/// The process that has the name. Never blocks.
fn holder() -> rustix::io::Result<UCred> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new_abstract_name(NAME.as_bytes())?)?;
    socket_peercred(&socket)
}

/// What rules look for in logs.
fn patterns(rules: &[Rule]) -> Result<Vec<Pattern>> {
    let logs = mitra_rules::logs::of(rules.iter().flat_map(Rule::programs));
    let pattern = |log: &LogPattern| -> Result<Pattern> {
        let regex = mitra_rules::logs::regex(&log.pattern).map_err(anyhow::Error::msg)?;
        let source = match &log.log {
            mitra_rules::ast::LogSource::File(path) => LogSource::File(PathBuf::from(path)),
            mitra_rules::ast::LogSource::Unit(unit) => LogSource::Unit(unit.clone()),
        };
        Ok(Pattern { name: log.to_string(), log: source, regex })
    };
    logs.into_iter().map(pattern).collect()
}

/// `1 s`, `200 ms`.
fn every(interval: Duration) -> String {
    if interval.subsec_nanos() == 0 {
        units::length(interval.as_secs_f64())
    } else {
        format!("{} ms", interval.as_millis())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_was_lost_is_said_only_where_it_is_so() {
        assert!(Trouble::default().caught_up().contains("nothing was lost"));
        assert!(!Trouble { lost: 1, ..Trouble::default() }.caught_up().contains("lost"));
        assert!(!Trouble { doubts: 1, ..Trouble::default() }.caught_up().contains("lost"));
    }
}
