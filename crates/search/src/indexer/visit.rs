//! Turns one file into a document, or into the reason for skipping it.

use rustix::io::Errno;

use super::Indexer;
use super::files::{How, reason};
use super::known::is_settled;
use super::open::{Kind, Stamp, parent};
use super::text::Refusal;
use crate::document::{self, Document, Flag, Stat, Withheld};

/// The outcome of reading a file.
#[derive(Debug)]
pub enum VisitOutcome {
    /// Unchanged, so it was not read.
    Same,
    /// It does not exist.
    Missing,
    /// It exists, but is not indexed, with the reason.
    Skipped(String),
    /// It could not be read, with the reason. Its last state remains.
    Failed(String),
    /// It was read.
    Taken(Box<Visit>),
}

/// A file that was read.
#[derive(Debug)]
pub struct Visit {
    /// The document, with its secrets not withheld yet.
    pub document: Document,
    /// The status of the file.
    pub stamp: Stamp,
    /// While the stamp is the same, so is the content.
    pub is_settled: bool,
}

impl Indexer {
    /// Reads a file if it may have changed, or in any case if `again` is set.
    pub(super) fn see(&mut self, name: &str, how: How, again: bool) -> VisitOutcome {
        let stamp = match self.root.look(name) {
            Ok(stamp) => stamp,
            Err(Errno::NOENT | Errno::NOTDIR) => return VisitOutcome::Missing,
            Err(error) => return VisitOutcome::Failed(reason(error)),
        };
        // The cheapest check comes first. For a link the status of its target counts.
        if stamp.kind() != Kind::Link && self.is_unchanged(name, &stamp, again) {
            return VisitOutcome::Same;
        }
        if let Some(why) = self.denies(name) {
            return self.denied(name, stamp, why, again);
        }
        match stamp.kind() {
            Kind::File => self.file(name, name, how, stamp, None, again),
            Kind::Link => self.link(name, how, stamp, again),
            Kind::Other if how == How::Named => {
                VisitOutcome::Skipped("a FIFO, a socket or a device; wanted a file".to_owned())
            }
            _ => VisitOutcome::Missing,
        }
    }

    /// Why a file must not be read; `None` if it may. Files with Mitra's own secrets are always
    /// denied, because the secret filter cannot recognize a password without a key.
    fn denies(&self, path: &str) -> Option<&'static str> {
        if self.own_secrets.iter().any(|own| own == path) { Some("path") } else { self.policy.denies(path) }
    }

    fn is_unchanged(&self, name: &str, stamp: &Stamp, again: bool) -> bool {
        !again && self.known.get(name).is_some_and(|known| known.is_unchanged(stamp))
    }

    /// The document of a denied file: its status only.
    fn denied(&mut self, name: &str, stamp: Stamp, why: &str, again: bool) -> VisitOutcome {
        if self.is_unchanged(name, &stamp, again) {
            return VisitOutcome::Same;
        }
        let mut document = Document::new(&self.host, name, document::Kind::File);
        document.withheld = Withheld { count: 1, reasons: vec![why.to_owned()], keys: Vec::new() };
        document.flag(Flag::Refused);
        self.taken(document, stamp)
    }

    fn link(&mut self, name: &str, how: How, stamp: Stamp, again: bool) -> VisitOutcome {
        let text = self.root.read_link(name).ok();
        let target = self.root.resolve(name).ok();
        if let (How::Named, Some(target)) = (how, &target) {
            if let Some(why) = self.denies(target) {
                return self.denied(name, stamp, why, again);
            }
            if target == name {
                return VisitOutcome::Failed("a link that changes all the time".to_owned());
            }
            if self.asked.may_follow(name, target)
                && let Ok(there) = self.root.look(target)
                && there.kind() == Kind::File
            {
                self.follow(name, target);
                return self.file(name, target, how, there, text, again);
            }
        }
        if self.is_unchanged(name, &stamp, again) {
            return VisitOutcome::Same;
        }
        let mut document = Document::new(&self.host, name, document::Kind::File);
        document.link = text.or(target);
        document.flag(Flag::Link);
        self.taken(document, stamp)
    }

    /// Watches the target of a link, and reports its changes under the link's name.
    fn follow(&mut self, name: &str, target: &str) {
        self.aliases.insert(target.to_owned(), name.to_owned());
        let above = parent(target);
        if let Some(watcher) = &mut self.watcher
            && let Ok(dir) = self.root.dir(above)
        {
            watcher.watch(above, &dir);
        }
    }

    fn file(
        &mut self,
        name: &str,
        path: &str,
        how: How,
        stamp: Stamp,
        link: Option<String>,
        again: bool,
    ) -> VisitOutcome {
        if self.is_unchanged(name, &stamp, again) {
            return VisitOutcome::Same;
        }
        let fd = match self.root.file(path) {
            Ok(fd) => fd,
            Err(Errno::NOENT | Errno::NOTDIR) => return VisitOutcome::Missing,
            // A parent directory is a link.
            Err(Errno::LOOP) if path == name => return self.link(name, how, stamp, again),
            Err(error) => return VisitOutcome::Failed(reason(error)),
        };
        // It may have been replaced since its status was read.
        match Stamp::of_open(&fd) {
            Ok(opened) if opened.kind() == Kind::File => {}
            Ok(_) => return VisitOutcome::Missing,
            Err(error) => return VisitOutcome::Failed(reason(error)),
        }
        let is_made_up = self.devices.is_made_up(stamp.dev, &fd);
        let taken = match self.reader.read(&fd, is_made_up) {
            Ok(taken) => taken,
            Err(Refusal::TooLarge(bytes)) => {
                return VisitOutcome::Skipped(format!("{bytes} bytes or more, larger than maxsize"));
            }
            // A file in `/proc` disappears with its process.
            Err(Refusal::System(Errno::SRCH | Errno::NOENT)) => return VisitOutcome::Missing,
            Err(Refusal::System(error)) => return VisitOutcome::Failed(reason(error)),
        };
        let mut document = Document::new(&self.host, name, document::Kind::File);
        let is_moving = taken.flags.contains(&Flag::Moving);
        document.content = taken.text;
        document.link = link;
        taken.flags.into_iter().for_each(|flag| document.flag(flag));
        let mut seen = self.taken(document, taken.stamp);
        if let VisitOutcome::Taken(visit) = &mut seen {
            visit.is_settled &= !is_moving;
        }
        seen
    }

    fn taken(&mut self, mut document: Document, stamp: Stamp) -> VisitOutcome {
        if self.asked.is_volatile(&document.filename) {
            document.flag(Flag::Volatile);
        }
        let is_made_up = self.devices.known(stamp.dev).unwrap_or_else(|| {
            let dir = self.root.dir(parent(&document.filename));
            dir.is_ok_and(|dir| self.devices.is_made_up(stamp.dev, &dir))
        });
        // Times, size and inode of generated files mean nothing, so they are left out.
        document.stat = (!is_made_up).then(|| Stat {
            size: stamp.size,
            mode: stamp.mode & 0o7777,
            uid: stamp.uid,
            gid: stamp.gid,
            user: self.owners.user(stamp.uid),
            group: self.owners.group(stamp.gid),
            inode: stamp.ino,
            mtime_ns: stamp.mtime_ns,
            ctime_ns: stamp.ctime_ns,
        });
        let is_settled = !is_made_up && is_settled(&stamp, self.clock.now_ns());
        VisitOutcome::Taken(Box::new(Visit { document, stamp, is_settled }))
    }
}
