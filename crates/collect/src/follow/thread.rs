//! The thread that follows logs. The recorder asks it after each sample and never waits for it.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::time::{ClockId, clock_gettime};

use super::{Counts, Follower, Pattern, READ_BYTES_PER_S};
use crate::file::Root;

/// Messages that wait for the recorder. The next look says again what found no room.
const NOTES_MAX: usize = 256;
/// After a look that nobody has asked for: names in a directory may change all the time. A shorter pause after one that was asked for
/// is left out.
const PAUSE: Duration = Duration::from_millis(50);
/// A look that takes long beside reading lines is followed by a pause that is as many times longer, up to the longest.
const PAUSE_FACTOR: u32 = 20;
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// A look without a question, should the recorder stand still.
const WAIT: Timespec = Timespec { tv_sec: 5, tv_nsec: 0 };

/// What the thread has to say beside its counts.
#[derive(Debug)]
pub enum Note {
    /// A source can be read, or why it cannot.
    Source(String, Result<(), String>),
    /// Lines that nobody counts.
    Lost(String),
}

/// The counts of a pattern as the recorder sees them.
#[derive(Debug, Default)]
struct Shown {
    is_known: AtomicBool,
    matches: AtomicU64,
    lines: AtomicU64,
    skipped: AtomicU64,
    behind: AtomicU64,
}

#[derive(Debug)]
struct Shared {
    rows: Vec<Shown>,
    /// How often new counts were shown.
    answers: AtomicU64,
    /// As the follower has it.
    looked_at: Arc<AtomicUsize>,
    is_over: AtomicBool,
}

/// The running thread. It ends when this is dropped.
#[derive(Debug)]
pub struct Thread {
    bell: Arc<OwnedFd>,
    shared: Arc<Shared>,
    notes: Receiver<Note>,
    handle: JoinHandle<()>,
}

impl Thread {
    pub fn start(root: PathBuf, patterns: &[Pattern], state: Option<&Path>) -> io::Result<Thread> {
        let bell = Arc::new(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?);
        let rows = patterns.iter().map(|_| Shown::default()).collect();
        let shared = Arc::new(Shared {
            rows,
            answers: AtomicU64::new(0),
            looked_at: Arc::default(),
            is_over: AtomicBool::new(false),
        });
        let (sender, notes) = sync_channel(NOTES_MAX);
        let (own_bell, own_shared) = (Arc::clone(&bell), Arc::clone(&shared));
        let (patterns, state) = (patterns.to_vec(), state.map(Path::to_owned));
        let work = move || {
            let Ok(root) = Root::open(&root) else { return };
            let (mut follower, why) = Follower::open(root, &patterns, state.as_deref());
            follower.looked_at = Arc::clone(&shared.looked_at);
            if let Some(why) = why {
                _ = sender.try_send(Note::Lost(why));
            }
            run(follower, &bell, &shared, &sender);
        };
        let builder = std::thread::Builder::new().name("mitra-follow".to_owned()).stack_size(512 * 1024);
        let thread = Thread { bell: own_bell, shared: own_shared, notes, handle: builder.spawn(work)? };
        thread.ask();
        Ok(thread)
    }

    /// Asks for new counts.
    pub fn ask(&self) {
        // It is full only if the thread has not looked for ages.
        _ = rustix::io::write(&*self.bell, &1_u64.to_ne_bytes());
    }

    /// Whether nobody follows logs any more, which is a mistake in the thread.
    pub fn has_ended(&self) -> bool {
        self.handle.is_finished()
    }

    /// How often it has shown new counts.
    pub fn answers(&self) -> u64 {
        self.shared.answers.load(Ordering::Relaxed)
    }

    /// The first pattern of the log that it looks at now.
    pub fn looks_at(&self) -> Option<usize> {
        self.shared.looked_at.load(Ordering::Relaxed).checked_sub(1)
    }

    /// What was said since this was called before.
    pub fn notes(&self) -> impl Iterator<Item = Note> {
        self.notes.try_iter()
    }

    /// The counts of a pattern; none as long as its log cannot be read.
    pub fn counts(&self, at: usize) -> Option<Counts> {
        let row = self.shared.rows.get(at)?;
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        row.is_known.load(Ordering::Acquire).then(|| Counts {
            matches: get(&row.matches),
            lines: get(&row.lines),
            skipped: get(&row.skipped),
            behind: get(&row.behind),
            is_known: true,
        })
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        self.ask();
    }
}

fn run(mut follower: Follower, bell: &OwnedFd, shared: &Shared, notes: &SyncSender<Note>) {
    let began = Instant::now();
    let mut troubles: Vec<(String, Option<String>)> = Vec::new();
    while !shared.is_over.load(Ordering::Relaxed) {
        let is_asked = wait(&follower, bell);
        let now_ns = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let before = cpu_time();
        follower.look(now_ns, &mut |note| tell(note, &mut troubles, notes));
        let took = cpu_time().saturating_sub(before);
        if is_asked {
            // Only now: the rate of a sample is of the time between two questions.
            for (at, counts) in follower.counts() {
                shared.rows.get(at).iter().for_each(|row| row.show(&counts));
            }
            shared.answers.fetch_add(1, Ordering::Relaxed);
        }
        std::thread::sleep(pause(took, follower.line_bytes, is_asked));
    }
}

/// How long this thread has had a CPU. Who waits for a disk costs nothing.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// How long nothing is done after a look: somebody may rename files in a huge directory for ever. What may be read in a second may take
/// a second, so that a log with many lines does not fall behind.
fn pause(took: Duration, line_bytes: u64, is_asked: bool) -> Duration {
    let reading = Duration::from_nanos(line_bytes.saturating_mul(1_000_000_000) / READ_BYTES_PER_S);
    let pause = took.saturating_sub(reading).saturating_mul(PAUSE_FACTOR).min(PAUSE_MAX);
    if is_asked && pause < PAUSE { Duration::ZERO } else { pause.max(PAUSE) }
}

impl Shown {
    fn show(&self, counts: &Counts) {
        let set = |count: &AtomicU64, value| count.store(value, Ordering::Relaxed);
        set(&self.matches, counts.matches);
        set(&self.lines, counts.lines);
        set(&self.skipped, counts.skipped);
        set(&self.behind, counts.behind);
        self.is_known.store(counts.is_known, Ordering::Release);
    }
}

/// Passes on what is new of a source.
fn tell(note: Note, troubles: &mut Vec<(String, Option<String>)>, notes: &SyncSender<Note>) {
    let Note::Source(name, result) = note else {
        _ = notes.try_send(note);
        return;
    };
    let why = result.as_ref().err().cloned();
    let known = troubles.iter().position(|(of, _)| *of == name);
    if known.and_then(|at| troubles.get(at)).map_or(why.is_none(), |(_, before)| *before == why) {
        return;
    }
    if notes.try_send(Note::Source(name.clone(), result)).is_ok() {
        match known.and_then(|at| troubles.get_mut(at)) {
            Some((_, before)) => *before = why,
            None => troubles.push((name, why)),
        }
    }
}

/// Waits for a question, or for a name that changes. Whether it was a question.
fn wait(follower: &Follower, bell: &OwnedFd) -> bool {
    let mut fds = vec![PollFd::new(bell, PollFlags::IN)];
    if let Some(inotify) = follower.inotify() {
        fds.push(PollFd::from_borrowed_fd(inotify.as_fd(), PollFlags::IN));
    }
    if poll(&mut fds, Some(&WAIT)).is_err() {
        std::thread::sleep(PAUSE);
    }
    let mut count = [0; 8];
    rustix::io::read(bell, &mut count).is_ok()
}

#[cfg(test)]
mod tests {
    use mitra_model::{Entity, Frame, Stamp};
    use regex::bytes::Regex;

    use super::*;
    use crate::follow::{Followed, LogSource};
    use crate::io::Io;

    fn pattern(path: &Path) -> Pattern {
        let log = LogSource::File(path.to_owned());
        Pattern { name: "a".to_owned(), log, regex: Regex::new("timeout").unwrap() }
    }

    #[test]
    fn questions_are_answered() {
        let dir = tempfile::tempdir().unwrap();
        let thread = Thread::start("/".into(), &[pattern(&dir.path().join("app.log"))], None).unwrap();
        for answers in 1..4 {
            let began = Instant::now();
            while thread.answers() < answers {
                assert!(began.elapsed() < Duration::from_secs(30), "{answers}");
                std::thread::sleep(Duration::from_millis(1));
            }
            thread.ask();
        }
        assert!(thread.counts(0).is_some());
    }

    /// A thread that hangs in its only log.
    fn hung() -> Thread {
        let row = Shown::default();
        row.show(&Counts { is_known: true, ..Counts::default() });
        let shared = Arc::new(Shared {
            rows: vec![row],
            answers: AtomicU64::new(1),
            looked_at: Arc::new(AtomicUsize::new(1)),
            is_over: AtomicBool::new(false),
        });
        let own = Arc::clone(&shared);
        let handle = std::thread::spawn(move || {
            while !own.is_over.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let bell = Arc::new(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).unwrap());
        Thread { bell, shared, notes: sync_channel(1).1, handle }
    }

    #[test]
    fn of_a_log_that_hangs_nothing_is_known() {
        let mut followed = Followed::new(vec![pattern("/gone/app.log".as_ref())], None);
        let thread = hung();
        let shared = Arc::clone(&thread.shared);
        followed.thread = Some(thread);
        let mut io = Io::new(Root::open("/".as_ref()).unwrap());
        let mut at = |second: i64| {
            let mut frame = Frame::new();
            frame.time = Stamp { mono: second * 1_000_000_000, ..Stamp::default() };
            followed.fill(&mut io, &mut frame);
            let why = io.missing.list().first().map(|(_, why)| why.clone());
            (frame.table(Entity::Pattern).len(), why)
        };
        assert_eq!(at(100), (1, None));
        assert_eq!(at(109), (1, None), "it may stand still for so long");
        assert_eq!(at(110), (0, Some("log file=/gone/app.log does not answer".to_owned())));
        shared.looked_at.store(0, Ordering::Relaxed);
        assert_eq!(at(111).1.unwrap(), "the thread that follows them does not answer");
        shared.answers.store(2, Ordering::Relaxed);
        assert_eq!(at(112), (1, None));
    }

    #[test]
    fn what_a_look_does_beside_reading_lines_is_followed_by_a_pause() {
        let ms = Duration::from_millis;
        assert_eq!(pause(ms(2), 0, true), Duration::ZERO, "many logs");
        assert_eq!(pause(ms(2), 0, false), PAUSE);
        assert_eq!(pause(ms(100), 0, true), ms(2_000), "a huge directory");
        assert_eq!(pause(ms(900), 0, true), PAUSE_MAX);
        assert_eq!(pause(ms(900), READ_BYTES_PER_S, true), Duration::ZERO, "many lines");
    }
}
