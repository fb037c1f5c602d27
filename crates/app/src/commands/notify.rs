//! `mitra notify`: explains the end of an archive again and again, and tells the receivers of the configuration what is new.

use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use mitra_collect::Clock;
use mitra_inspect::is_trusted_program;
use mitra_model::report::Report;
use mitra_model::{SeriesSet, lookup};
use mitra_notify::{Channel, Config, Event, Failure, Kind, Message, Queue, Receiver, SCHEMA, Told, replace};
use mitra_rules::ConfigError;

use crate::cli::NotifyArgs;
use crate::commands::fleet::send;
use crate::commands::print;
use crate::errors::usage;
use crate::escalation::settings;
use crate::live::{self, Shared};
use crate::log::log;
use crate::messages::{METRICS, Watch, step};
use crate::recording;
use crate::render::style::{clean, rfc3339};
use crate::signals::{self, Hangup, STOP};

/// Who takes silence for an end hears of what goes on as often: Alertmanager's `resolve_timeout` is five minutes.
const REMIND_EVERY: Duration = Duration::from_secs(60);
/// How long the end of the program waits for what is being sent.
const ONCE_WITHIN: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(200);

pub fn run(args: &NotifyArgs) -> Result<()> {
    signals::catch_stop(Hangup::Stop).context("cannot set signal handlers")?;
    let receivers = receivers(args.config.as_deref())?;
    let config = args.config.as_deref();
    if args.test {
        return test(receivers, config);
    }
    let dir = recording::readable_dir(&args.archive.chosen())?;
    if args.dry_run {
        let state = state();
        live::explained_once(&dir, &state)?;
        let mut told = Told::since(i64::MIN);
        let seen = seen(&state, &mut told).context("nothing was recorded")?;
        for message in step(&mut told, &seen.0, &seen.1, true) {
            print(&format!("{}\n", clean(&serde_json::to_string(&message)?)))?;
        }
        return Ok(());
    }
    let folder = state_dir(args.state.as_deref(), "notify")?;
    let opened: Vec<(Arc<Line>, Channel)> =
        receivers.into_iter().map(|receiver| Line::open(receiver, &folder, config)).collect::<Result<_>>()?;
    let lines: Vec<Arc<Line>> = opened.iter().map(|(line, _)| Arc::clone(line)).collect();
    let workers: Vec<_> = opened.into_iter().map(|(line, way)| line.work(way)).collect::<Result<_>>()?;
    let names: Vec<&str> = lines.iter().map(|line| line.receiver.name.as_str()).collect();
    print(&format!("telling {} of incidents in {}\n", names.join(", "), dir.display()))?;
    let done = if args.once { once(&dir, &folder, &lines) } else { follow(&dir, &folder, &lines) };
    STOP.store(true, Ordering::Relaxed);
    lines.iter().for_each(|line| line.wake.notify_all());
    workers.into_iter().for_each(|worker| _ = worker.join());
    done
}

fn receivers(named: Option<&Path>) -> Result<Vec<Receiver>> {
    let path = named.unwrap_or(Path::new(settings::FILE));
    let receivers = read(path)?;
    if receivers.is_empty() {
        return Err(usage(format!("{}: no table [[notify]] says who is told", path.display())));
    }
    match untrusted(path, &receivers)? {
        Some(why) => Err(usage(why)),
        None => Ok(receivers),
    }
}

/// The tables `[[notify]]` of a file.
pub fn read(path: &Path) -> Result<Vec<Receiver>> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let config = Config::read(&text).map_err(|mistake| {
        let file = path.display().to_string();
        usage(ConfigError::at(&file, &text, mistake.at, mistake.message).to_string())
    })?;
    Ok(config.receivers)
}

/// The way to a receiver. To a cluster it leads through the index, which the same file may name.
fn channel(receiver: Receiver, config: Option<&Path>) -> Result<Channel, String> {
    if receiver.kind != Kind::Opensearch {
        return Channel::open(receiver, is_trusted_program);
    }
    let deliver = send::deliver(config, &receiver.tags)
        .map_err(|error| format!("notify {}: {error:#}", receiver.name))?;
    Ok(Channel::by(receiver, deliver))
}

/// Why the commands of a file would not be run.
fn untrusted(path: &Path, receivers: &[Receiver]) -> Result<Option<String>> {
    if receivers.iter().all(|receiver| receiver.command.is_empty()) {
        return Ok(None);
    }
    let why = settings::untrusted_file(path)?;
    Ok(why.map(|why| format!("{}: {why}, and its commands would run as this user", path.display())))
}

/// What of receivers would not work here and now: files that they name, and programs.
pub fn doubts(path: &Path, receivers: &[Receiver]) -> Result<Vec<String>> {
    let opened = receivers.iter().filter_map(|receiver| channel(receiver.clone(), Some(path)).err());
    let programs = receivers.iter().filter_map(|receiver| {
        let program = receiver.command.first()?;
        let why = if !Path::new(program).exists() {
            "is not there"
        } else if !is_trusted_program(Path::new(program)) {
            "is not run: others than root can change it"
        } else {
            return None;
        };
        Some(format!("notify {}: {program} {why}", receiver.name))
    });
    Ok(untrusted(path, receivers)?.into_iter().chain(opened).chain(programs).collect())
}

/// The folder of what must survive this process: named, of the service, or of this name beside the usual archive.
pub fn state_dir(named: Option<&Path>, usual: &str) -> Result<PathBuf> {
    let dir = match (named, std::env::var_os("STATE_DIRECTORY")) {
        (Some(dir), _) => dir.to_path_buf(),
        (None, Some(dir)) => dir.into(),
        (None, None) => recording::usual_dir()?.join(usual),
    };
    let mut make = fs::DirBuilder::new();
    make.recursive(true)
        .mode(0o700)
        .create(&dir)
        .with_context(|| format!("cannot make {}", dir.display()))?;
    Ok(dir)
}

/// Says of each receiver whether it took a message.
fn test(receivers: Vec<Receiver>, config: Option<&Path>) -> Result<()> {
    let now = Clock::Real.now().real;
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let message = Message {
        schema: SCHEMA.to_owned(),
        event: Event::Test,
        id: format!("{host}-test-{}", rfc3339(now)),
        since: rfc3339(now),
        until: None,
        headline: "Mitra can reach you; nothing is wrong".to_owned(),
        condition: "test".to_owned(),
        title: "a test".to_owned(),
        unexplained: false,
        confidence: 1.0,
        culprit: None,
        cost: None,
        actions: Vec::new(),
        meanings: Vec::new(),
        text: "This is what mitra notify --test sends.".to_owned(),
        facts: None,
        withheld: 0,
        host,
    };
    let mut failed = 0;
    for receiver in receivers {
        let name = receiver.name.clone();
        let sent = match channel(receiver, config) {
            Ok(mut channel) => channel.send(&message),
            Err(why) => Err(Failure::Never(why)),
        };
        failed += usize::from(sent.is_err());
        let said = match sent {
            Ok(()) => "taken".to_owned(),
            Err(Failure::Later(why)) => format!("not reached, would be tried again: {why}"),
            Err(Failure::Never(why)) => format!("refused: {why}"),
        };
        print(&format!("{name}  {}\n", clean(&said)))?;
    }
    if failed > 0 {
        bail!("{failed} of them did not take it");
    }
    Ok(())
}

/// A report, and what messages tell beside it.
type Seen = (Arc<Report>, Arc<SeriesSet>);

fn state() -> Shared {
    let state = Shared::default();
    live::lock(&state).metrics = Some(METRICS.iter().filter_map(|name| lookup(name)).collect());
    state
}

/// What was explained last. What was told is on its clock then.
fn seen(state: &Shared, told: &mut Told) -> Option<Seen> {
    let state = live::lock(state);
    let report = state.report.clone()?;
    if let Some((boot, offset)) = &state.clock {
        told.on_clock(boot, *offset);
    }
    Some((report, Arc::clone(&state.recorded)))
}

/// Tells what there is now, and waits until it is delivered.
fn once(dir: &Path, folder: &Path, lines: &[Arc<Line>]) -> Result<()> {
    let state = state();
    live::explained_once(dir, &state)?;
    let mut told = read_told(folder).unwrap_or_else(|| Told::since(i64::MIN));
    if let Some(seen) = seen(&state, &mut told) {
        tell(&mut told, &seen, folder, lines)?;
    }
    let end = Instant::now() + ONCE_WITHIN;
    while lines.iter().any(|line| line.lock().waiting() > 0) {
        if Instant::now() > end || STOP.load(Ordering::Relaxed) {
            let waiting: usize = lines.iter().map(|line| line.lock().waiting()).sum();
            bail!("{waiting} messages are not delivered; they wait in {}", folder.display());
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

/// Tells what is new until a signal comes.
fn follow(dir: &Path, folder: &Path, lines: &[Arc<Line>]) -> Result<()> {
    let state = state();
    let watcher = live::watch(dir, &state)?;
    let mut told = read_told(folder).unwrap_or_default();
    let (mut last, mut trouble, mut reminded) = (None, None, Instant::now());
    let mut watch = Watch::default();
    while !STOP.load(Ordering::Relaxed) {
        let (seen, why) = (seen(&state, &mut told), live::lock(&state).trouble.clone());
        if why != trouble {
            why.iter().for_each(|why| log(why));
            trouble = why;
        }
        if let Some(seen) = seen.as_ref().filter(|(report, _)| last != Some(report.window.until.0)) {
            last = Some(seen.0.window.until.0);
            // A full disk is no reason to tell nobody.
            if let Err(error) = tell(&mut told, seen, folder, lines) {
                log(&format!("{error:#}"));
            }
        }
        let recording = mitra_archive::recording(dir);
        if let Some(message) = watch.step(&mut told, Instant::now(), recording.as_ref(), seen.as_ref())
            && let Err(error) = deliver(&[message], &told, folder, lines)
        {
            log(&format!("{error:#}"));
        }
        if reminded.elapsed() >= REMIND_EVERY {
            reminded = Instant::now();
            for line in lines.iter().filter(|line| line.is_reminded) {
                told.going_on()
                    .into_iter()
                    .filter(|message| line.receiver.wants(message))
                    .for_each(|message| line.remind(message));
            }
        }
        std::thread::sleep(LOOK_EVERY);
    }
    _ = watcher.join();
    Ok(())
}

fn told_file(folder: &Path) -> PathBuf {
    // Queues have names without a dot.
    folder.join("told.incidents.json")
}

fn read_told(folder: &Path) -> Option<Told> {
    let file = told_file(folder);
    let bytes = fs::read(&file).ok()?;
    let told = serde_json::from_slice(&bytes);
    if let Err(error) = &told {
        log(&format!("{}: begun anew: {error}", file.display()));
    }
    told.ok()
}

fn tell(told: &mut Told, (report, recorded): &Seen, folder: &Path, lines: &[Arc<Line>]) -> Result<()> {
    let wants_findings = lines.iter().any(|line| line.receiver.findings);
    let messages = step(told, report, recorded, wants_findings);
    if messages.is_empty() { Ok(()) } else { deliver(&messages, told, folder, lines) }
}

/// First the queues, then what was told: whoever ends in between tells it twice, and not never.
fn deliver(messages: &[Message], told: &Told, folder: &Path, lines: &[Arc<Line>]) -> Result<()> {
    for line in lines {
        for message in messages {
            if line.receiver.wants(message) {
                line.push(message.clone());
            }
        }
    }
    let file = told_file(folder);
    replace(&file, &serde_json::to_vec(told)?).with_context(|| format!("cannot write {}", file.display()))
}

/// The way to one receiver: its queue, and the thread that empties it.
struct Line {
    receiver: Receiver,
    is_reminded: bool,
    queue: Mutex<Queue>,
    wake: Condvar,
}

impl Line {
    fn open(receiver: Receiver, folder: &Path, config: Option<&Path>) -> Result<(Arc<Line>, Channel)> {
        let channel = channel(receiver.clone(), config).map_err(usage)?;
        let (queue, trouble) = Queue::open(folder, &receiver.name, receiver.per_hour);
        trouble.iter().for_each(|why| log(why));
        let is_reminded = channel.wants_reminders();
        let line = Line { receiver, is_reminded, queue: Mutex::new(queue), wake: Condvar::new() };
        Ok((Arc::new(line), channel))
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, message: Message) {
        let mut queue = self.lock();
        queue.push(message, Clock::Real.now().real);
        self.save(&queue);
        self.wake.notify_all();
    }

    fn remind(&self, message: Message) {
        self.lock().remind(message);
        self.wake.notify_all();
    }

    fn save(&self, queue: &Queue) {
        if let Err(error) = queue.save() {
            log(&format!("notify {}: what waits cannot be written to the disk: {error}", self.receiver.name));
        }
    }

    fn work(self: Arc<Self>, mut channel: Channel) -> Result<std::thread::JoinHandle<()>> {
        std::thread::Builder::new()
            .name(format!("notify {}", self.receiver.name))
            .spawn(move || self.deliver(&mut channel))
            .context("cannot start a thread")
    }

    fn deliver(&self, channel: &mut Channel) {
        let name = &self.receiver.name;
        while let Some(message) = self.wait_for_next() {
            let sent = channel.send(&message);
            let mut queue = self.lock();
            let pause = match sent {
                Ok(()) => {
                    queue.delivered(&message);
                    None
                }
                Err(Failure::Never(why)) => {
                    log(&format!("notify {name}: a message was refused: {why}"));
                    queue.refused(&message);
                    None
                }
                Err(Failure::Later(why)) => {
                    let pause = queue.failed();
                    log(&format!("notify {name}: {why}; tried again in {} s", pause.as_secs()));
                    Some(pause)
                }
            };
            self.save(&queue);
            drop(queue);
            let end = pause.map(|pause| Instant::now() + pause);
            while end.is_some_and(|end| Instant::now() < end) && !STOP.load(Ordering::Relaxed) {
                std::thread::sleep(LOOK_EVERY);
            }
        }
    }

    /// None when the program ends.
    fn wait_for_next(&self) -> Option<Message> {
        let mut queue = self.lock();
        loop {
            if STOP.load(Ordering::Relaxed) {
                return None;
            }
            if let Some(next) = queue.next() {
                return Some(next);
            }
            let woken = self.wake.wait_timeout(queue, LOOK_EVERY);
            queue = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
