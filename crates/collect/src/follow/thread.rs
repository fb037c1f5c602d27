//! The thread that follows logs. The recorder asks it after each sample and never waits for it.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::{Counts, Follower, Pattern};
use crate::file::Root;

/// Messages that wait for the recorder. The next look says again what found no room.
const NOTES_MAX: usize = 256;
/// Between two looks that nobody has asked for: names in a directory may change all the time.
const PAUSE: Duration = Duration::from_millis(50);
/// A look that takes long is followed by a pause that is as many times longer, up to the longest.
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
        let shared = Arc::new(Shared { rows, is_over: AtomicBool::new(false) });
        let (sender, notes) = sync_channel(NOTES_MAX);
        let (own_bell, own_shared) = (Arc::clone(&bell), Arc::clone(&shared));
        let (patterns, state) = (patterns.to_vec(), state.map(Path::to_owned));
        let work = move || {
            let Ok(root) = Root::open(&root) else { return };
            let (follower, why) = Follower::open(root, &patterns, state.as_deref());
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
        let looked = Instant::now();
        follower.look(now_ns, &mut |note| tell(note, &mut troubles, notes));
        let took = looked.elapsed();
        if is_asked {
            // Only now: the rate of a sample is of the time between two questions.
            for (at, counts) in follower.counts() {
                shared.rows.get(at).iter().for_each(|row| row.show(&counts));
            }
        } else {
            // Somebody may rename files in a huge directory for ever.
            std::thread::sleep(PAUSE.max(took.saturating_mul(PAUSE_FACTOR)).min(PAUSE_MAX));
        }
    }
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
