//! What waits for one receiver: on the disk, bounded, tried again.

use std::collections::VecDeque;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::message::{Event, Message};

/// A weekend of a machine that has an incident each quarter of an hour. The oldest go first.
const WAITING_MAX: usize = 300;
/// Between two tries: as much longer each time, up to the longest.
const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_LONGEST: Duration = Duration::from_secs(300);
const HOUR_NS: i64 = 3_600_000_000_000;

/// What became of all messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Taken by the receiver.
    pub delivered: u64,
    /// Tries that failed.
    pub failed: u64,
    /// Withheld, because a receiver gets only so many in an hour.
    pub withheld: u64,
    /// Given up: too many waited, or the receiver refused it.
    pub dropped: u64,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Kept {
    waiting: VecDeque<Message>,
    /// When messages were taken in within the last hour, in nanoseconds.
    recent: VecDeque<i64>,
    /// Of which the receiver shall hear no end either.
    unheard: VecDeque<String>,
    /// Since the last that was delivered.
    missed: u64,
    tally: Tally,
}

/// The queue of one receiver.
#[derive(Debug)]
pub struct Queue {
    path: PathBuf,
    per_hour: u32,
    kept: Kept,
    tries: u32,
}

impl Queue {
    /// Opens the queue of this name in a folder. A file that cannot be read is begun anew, which is told.
    pub fn open(dir: &Path, name: &str, per_hour: u32) -> (Queue, Option<String>) {
        let path = dir.join(format!("{name}.json"));
        let read = match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| error.to_string()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Kept::default()),
            Err(error) => Err(error.to_string()),
        };
        let (kept, trouble) = match read {
            Ok(kept) => (kept, None),
            Err(error) => (
                Kept::default(),
                Some(format!("{}: begun anew, what waited in it is lost: {error}", path.display())),
            ),
        };
        (Queue { path, per_hour, kept, tries: 0 }, trouble)
    }

    /// Takes a message in.
    pub fn push(&mut self, mut message: Message, now_ns: i64) {
        let kept = &mut self.kept;
        if let Some(waiting) = kept.waiting.iter_mut().find(|waiting| waiting.id == message.id) {
            // Who has not heard of the beginning hears of the latest state only.
            if waiting.event == Event::Begun && message.event == Event::Revised {
                message.event = Event::Begun;
            }
            *waiting = message;
            return;
        }
        let is_unheard = kept.unheard.contains(&message.id);
        if is_unheard && message.event.is_end() {
            kept.unheard.retain(|id| *id != message.id);
            return;
        }
        kept.recent.retain(|at| (0..HOUR_NS).contains(&(now_ns - at)));
        // The end of what was told belongs to it.
        let is_free = message.event.is_end() || message.event == Event::Test;
        if !is_free && kept.recent.len() >= self.per_hour as usize {
            kept.tally.withheld += 1;
            kept.missed += 1;
            // Who has heard of the beginning hears of the end, too.
            if !is_unheard && message.event != Event::Revised {
                kept.unheard.push_back(message.id);
                bound(&mut kept.unheard);
            }
            return;
        }
        if is_unheard {
            // This is the first that is heard of it.
            kept.unheard.retain(|id| *id != message.id);
            if message.event == Event::Revised {
                message.event = Event::Begun;
            }
        }
        if !is_free {
            kept.recent.push_back(now_ns);
        }
        kept.waiting.push_back(message);
        let surplus = bound(&mut kept.waiting);
        kept.tally.dropped += surplus;
        kept.missed += surplus;
    }

    /// Tells again what goes on, unless something of it waits or there is no room. Nobody reads it, so it does not count.
    pub fn remind(&mut self, message: Message) {
        let kept = &mut self.kept;
        let is_waiting = kept.waiting.iter().any(|waiting| waiting.id == message.id);
        let has_room = kept.waiting.len() < WAITING_MAX;
        if has_room && !is_waiting && !kept.unheard.contains(&message.id) {
            kept.waiting.push_back(message);
        }
    }

    /// The message that is next.
    #[must_use]
    pub fn next(&self) -> Option<Message> {
        let mut next = self.kept.waiting.front().cloned()?;
        next.withheld = self.kept.missed;
        Some(next)
    }

    /// This message was taken, unless another one has taken its place meanwhile.
    pub fn delivered(&mut self, message: &Message) {
        self.tries = 0;
        self.kept.tally.delivered += 1;
        self.kept.missed = 0;
        self.remove(message);
        // What has taken its place meanwhile tells of the beginning no more.
        if matches!(message.event, Event::Begun | Event::Revised)
            && let Some(later) = self.kept.waiting.iter_mut().find(|waiting| waiting.id == message.id)
            && later.event == Event::Begun
        {
            later.event = Event::Revised;
        }
    }

    /// The receiver will not take this message, however often it is tried.
    pub fn refused(&mut self, message: &Message) {
        self.tries = 0;
        self.kept.tally.dropped += 1;
        self.kept.missed += 1;
        self.remove(message);
    }

    /// The receiver could not be reached. When to try again.
    pub fn failed(&mut self) -> Duration {
        self.kept.tally.failed += 1;
        let pause = RETRY_FIRST.saturating_mul(2_u32.saturating_pow(self.tries)).min(RETRY_LONGEST);
        self.tries = self.tries.saturating_add(1).min(16);
        pause
    }

    fn remove(&mut self, message: &Message) {
        // As they are written, so that a number that is none equals itself. `next` has set how many were withheld.
        let text = |one: &Message| serde_json::to_string(&Message { withheld: 0, ..one.clone() }).ok();
        let is_it = |waiting: &Message| waiting.id == message.id && text(waiting) == text(message);
        if let Some(i) = self.kept.waiting.iter().position(is_it) {
            self.kept.waiting.remove(i);
        }
    }

    /// What became of all.
    #[must_use]
    pub fn tally(&self) -> Tally {
        self.kept.tally
    }

    /// How many wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.kept.waiting.len()
    }

    /// Writes it to the disk.
    ///
    /// # Errors
    /// Where that fails; what was there before is still there.
    pub fn save(&self) -> io::Result<()> {
        let bytes = serde_json::to_vec(&self.kept)?;
        replace(&self.path, &bytes)
    }
}

fn bound<T>(list: &mut VecDeque<T>) -> u64 {
    let surplus = list.len().saturating_sub(WAITING_MAX);
    list.drain(..surplus);
    surplus as u64
}

/// Writes a file that is there whole or as it was. Only its owner reads it.
///
/// # Errors
/// Where that fails.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let new = path.with_extension("new");
    // What a program that was killed has left; a link there would be followed.
    _ = fs::remove_file(&new);
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&new, path)
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// A message of an incident.
    pub fn message(id: &str, event: Event) -> Message {
        let text = format!(
            r#"{{"schema":"mitra.notify/1","event":"begun","id":"{id}","host":"h","since":"s","headline":"","condition":"c","title":"t",
            "unexplained":false,"confidence":0.5,"actions":[],"text":""}}"#
        );
        Message { event, ..serde_json::from_str(&text).unwrap() }
    }

    fn waiting(queue: &Queue) -> Vec<(Event, String)> {
        queue.kept.waiting.iter().map(|message| (message.event, message.id.clone())).collect()
    }

    #[test]
    fn what_waits_is_there_again_and_later_messages_take_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let (mut queue, _) = Queue::open(dir.path(), "chat", 30);
        queue.push(message("a", Event::Begun), 1);
        queue.push(message("b", Event::Begun), 2);
        queue.push(message("a", Event::Revised), 3);
        queue.push(message("b", Event::Ended), 4);
        queue.save().unwrap();
        let (mut queue, trouble) = Queue::open(dir.path(), "chat", 30);
        assert_eq!(trouble, None);
        assert_eq!(waiting(&queue), [(Event::Begun, "a".to_owned()), (Event::Ended, "b".to_owned())]);
        let first = queue.next().unwrap();
        // It changed while it was on its way: the new one is to be told.
        queue.push(message("a", Event::Ended), 5);
        queue.delivered(&first);
        assert_eq!(waiting(&queue), [(Event::Ended, "a".to_owned()), (Event::Ended, "b".to_owned())]);
    }

    #[test]
    fn a_receiver_gets_only_so_many_in_an_hour_and_hears_how_many_it_missed() {
        let dir = tempfile::tempdir().unwrap();
        let (mut queue, _) = Queue::open(dir.path(), "chat", 2);
        for id in ["a", "b", "c", "d"] {
            queue.push(message(id, Event::Begun), 1);
        }
        queue.push(message("c", Event::Ended), 2);
        queue.push(message("a", Event::Ended), 2);
        assert_eq!(waiting(&queue), [(Event::Ended, "a".to_owned()), (Event::Begun, "b".to_owned())]);
        assert_eq!(queue.next().unwrap().withheld, 2);
        queue.delivered(&queue.next().unwrap());
        assert_eq!(queue.next().unwrap().withheld, 0);
        queue.push(message("e", Event::Begun), HOUR_NS + 2);
        assert_eq!((queue.waiting(), queue.tally().withheld), (2, 2));
    }

    #[test]
    fn a_beginning_that_was_withheld_is_told_later_and_then_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let (mut queue, _) = Queue::open(dir.path(), "chat", 1);
        queue.push(message("a", Event::Begun), 1);
        for event in [Event::Begun, Event::Revised] {
            queue.push(message("b", event), 2);
            queue.push(message("c", event), 2);
        }
        queue.push(message("c", Event::Ended), 3);
        assert_eq!(waiting(&queue), [(Event::Begun, "a".to_owned())]);
        queue.delivered(&queue.next().unwrap());
        for (id, events) in [("b", [Event::Revised, Event::Ended]), ("c", [Event::Begun, Event::Ended])] {
            let now_ns = if id == "b" { HOUR_NS + 4 } else { 2 * HOUR_NS + 5 };
            for (event, told) in events.into_iter().zip([Event::Begun, Event::Ended]) {
                queue.push(message(id, event), now_ns);
                assert_eq!(waiting(&queue), [(told, id.to_owned())]);
                queue.delivered(&queue.next().unwrap());
            }
        }
        assert_eq!((queue.waiting(), queue.tally().withheld), (0, 4));
    }

    #[test]
    fn where_only_a_revision_was_withheld_the_end_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let (mut queue, _) = Queue::open(dir.path(), "chat", 1);
        queue.push(message("a", Event::Begun), 1);
        queue.delivered(&queue.next().unwrap());
        queue.push(message("a", Event::Revised), 2);
        queue.push(message("a", Event::Ended), 3);
        assert_eq!(waiting(&queue), [(Event::Ended, "a".to_owned())]);
    }

    #[test]
    fn a_revision_is_told_that_comes_while_its_beginning_is_on_its_way() {
        let dir = tempfile::tempdir().unwrap();
        for (is_taken, event) in [(true, Event::Revised), (false, Event::Begun)] {
            let (mut queue, _) = Queue::open(dir.path(), "chat", 30);
            queue.push(message("a", Event::Begun), 1);
            let first = queue.next().unwrap();
            queue.push(Message { title: "another cause".to_owned(), ..message("a", Event::Revised) }, 2);
            if is_taken {
                queue.delivered(&first);
            } else {
                queue.refused(&first);
            }
            let next = queue.next().unwrap();
            assert_eq!((next.event, next.title.as_str(), queue.waiting()), (event, "another cause", 1));
            queue.delivered(&next);
            assert_eq!(queue.waiting(), 0);
        }
    }

    #[test]
    fn a_link_in_place_of_the_new_file_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let other = dir.path().join("other");
        fs::write(&other, "precious").unwrap();
        std::os::unix::fs::symlink(&other, dir.path().join("chat.new")).unwrap();
        Queue::open(dir.path(), "chat", 30).0.save().unwrap();
        assert_eq!(fs::read_to_string(&other).unwrap(), "precious");
        assert!(fs::symlink_metadata(dir.path().join("chat.json")).unwrap().is_file());
    }

    #[test]
    fn reminders_do_not_count_and_say_nothing_of_what_was_withheld() {
        let dir = tempfile::tempdir().unwrap();
        let (mut queue, _) = Queue::open(dir.path(), "alertmanager", 1);
        queue.push(message("a", Event::Begun), 1);
        queue.push(message("b", Event::Begun), 1);
        for _ in 0..60 {
            queue.delivered(&queue.next().unwrap());
            queue.remind(message("a", Event::Begun));
            queue.remind(message("a", Event::Begun));
            queue.remind(message("b", Event::Begun));
            assert_eq!(waiting(&queue), [(Event::Begun, "a".to_owned())]);
        }
        queue.push(message("a", Event::Ended), 2);
        assert_eq!(waiting(&queue), [(Event::Ended, "a".to_owned())]);
    }

    #[test]
    fn tries_are_further_and_further_apart_and_what_waits_is_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let (mut queue, _) = Queue::open(dir.path(), "chat", 3600);
        let pauses: Vec<u64> = (0..11).map(|_| queue.failed().as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
        for i in 0..WAITING_MAX + 5 {
            queue.push(message(&i.to_string(), Event::Begun), 1);
        }
        assert_eq!(
            (queue.waiting(), queue.tally().dropped, queue.next().unwrap().id.as_str()),
            (WAITING_MAX, 5, "5")
        );
        queue.remind(message("a", Event::Begun));
        assert_eq!(queue.next().unwrap().id, "5", "a reminder pushes out nothing");
    }

    #[test]
    fn a_torn_file_is_begun_anew_and_told() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("chat.json"), b"{\"waiting\":[").unwrap();
        let (queue, trouble) = Queue::open(dir.path(), "chat", 2);
        assert!(queue.waiting() == 0 && trouble.unwrap().contains("begun anew"));
    }
}
