//! The recording loop: tick, sample, append. It stops when it is told to and for nothing else.

use std::io::Write;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use mitra_archive::{Options, Writer};
use mitra_collect::{Budget, Clock, Config, Kept, Sampler, Ticker};
use mitra_model::{Event, EventKind, Frame};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, UCred, connect, socket_with};
use rustix::process::geteuid;

use crate::cli::SamplingArgs;
use crate::errors::usage;
use crate::escalation::{Escalation, settings};
use crate::render::style::{clean, clean_lines};
use crate::render::units;

/// The same trouble is not told more often than this.
const COMPLAINT_EVERY: Duration = Duration::from_secs(60);

/// What cannot be seen shows in the first samples. What goes missing later is recorded only: whoever reads what is said here
/// may be stuck with the machine, and the recorder must not wait for them.
const NAMING_SAMPLES: u8 = 10;

/// What is kept in memory while the disk takes nothing: an hour at 2 KB a second.
const BEHIND_BYTES: usize = 8 << 20;

/// More that happened than this is logged only.
const NEWS_MAX: usize = 16;

/// By this abstract name recorders see each other.
const NAME: &str = "mitra-recorder";

/// A sampler and the archive that it fills.
pub struct Recorder {
    dir: PathBuf,
    interval: Duration,
    sampler: Sampler,
    writer: Writer,
    frame: Frame,
    clock: Clock,
    /// Holds the name by which another recorder sees this one.
    _alone: Option<UnixListener>,
    /// What there is to say of another one.
    other: Option<String>,
    /// What goes into the next frame.
    news: Vec<String>,
    trouble: Trouble,
    /// What the disk has not taken yet.
    waiting: Trouble,
    /// Samples since the start that are not in the archive.
    lost: u64,
    escalation: Escalation,
    /// Samples in which what cannot be seen is still named.
    naming: u8,
}

/// How the recorder does after a sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// The archive has the sample.
    Well,
    /// It was taken, and waits, or finds no room any more, because the disk takes nothing.
    DiskBehind(String),
    /// None was taken. If that goes on, another recorder may do better.
    Broken(String),
}

/// Samples that could not be taken or written, and what was said about it.
#[derive(Default)]
struct Trouble {
    lost: u64,
    /// Errors after which it is not known by itself what the disk has.
    doubts: u64,
    told: Option<Instant>,
}

impl Recorder {
    /// Opens the sources and the archive, which is locked from then on.
    pub fn open(dir: &Path, args: &SamplingArgs) -> Result<Self> {
        mitra_collect::check_interval(args.interval).map_err(|e| usage(e.to_string()))?;
        let rules = settings::load_or_complain(args.config.as_ref())?;
        let clock = Clock::Real;
        let sampler = Sampler::open(Config {
            interval: args.interval,
            use_bpf: !args.no_bpf,
            budget: Budget { cpu_share: args.cpu_budget, memory_bytes: args.memory_budget },
            clock: clock.clone(),
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
        let mut escalation = Escalation::new(rules, sampler.host(), dir, !args.no_arm, !args.no_bpf);
        escalation.remember(clock.now());
        Ok(Recorder {
            escalation,
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

    /// One line: what it does.
    #[must_use]
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

    /// Records until `stop` is set, then closes the archive. `each` hears after each sample how it went. When nothing can
    /// be written any more, whatever happens, that is an error: another process can.
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
        self.sampler.note_kept(Kept {
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

    /// What happened to the recording stands in it, as soon as a frame can be written: a gap explains itself then.
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

    /// Says what cannot be seen, and why: a service has other privileges than whoever asks `mitra doctor`.
    fn name_missing(&self) {
        for event in &self.frame.events {
            if let EventKind::Unavailable { source, why } = &event.kind {
                // Whoever closed standard output still wants the recording.
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

    /// What is said when the disk has taken all that was kept for it.
    fn caught_up(&self) -> &'static str {
        match (self.lost, self.doubts) {
            (0, 0) => "the archive is written again; nothing was lost",
            (_, 0) => "all that was kept has been written",
            // What came of it has been told, file by file.
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

/// Takes the name by which recorders of this machine see each other. Two are legitimate, in a test say, and each costs what
/// one costs; somebody has to know.
///
/// A name in the kernel goes when its process does, whatever files or mounts a recorder sees. Anybody may take it: a
/// process that could not record for others is not believed.
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

/// Who has the name. Nobody is waited for, whoever it is.
fn holder() -> rustix::io::Result<UCred> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new_abstract_name(NAME.as_bytes())?)?;
    socket_peercred(&socket)
}

/// `1 s`, `200 ms`.
fn every(interval: Duration) -> String {
    if interval.subsec_nanos() == 0 {
        units::length(interval.as_secs_f64())
    } else {
        format!("{} ms", interval.as_millis())
    }
}

/// A line of log. Standard error may be closed; that stops no recorder.
pub fn log(line: &str) {
    _ = writeln!(std::io::stderr(), "mitra: {}", clean_lines(line));
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
