//! Files that anybody may have written, and what they say of addresses: names of functions, callers, where things lie.
//!
//! Parsers of such files are where programs are taken over, and whoever looks at other people's processes has what is worth
//! taking. So the program registers once how a reader is started ([`apart`]): a process of its own that has given up everything
//! before it gets the first file. Files go to it as descriptors, over a socket; questions and answers are a few bytes each, and
//! an answer is looked at as anybody's. One that ends, or does not answer in time, is ended and started anew some times, and what
//! is missing for that is told ([`troubles`]). Where nobody registered one, as in tests, files are read here.
//!
//! Files that only root can change do not come here: whoever could write them needs no mistake of ours.

mod child;
pub(crate) mod frames;
mod served;
pub(crate) mod shelf;
pub(crate) mod wire;

use std::cell::RefCell;
use std::fs::File;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use mitra_model::capture::UnwindRule;

pub use served::serve;

use child::Reader;
use shelf::Shelf;
use wire::{Answer, Question};

pub(crate) use frames::Frames;

/// What a file is read as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A program or library, for the names of its functions, by offsets in the file.
    Names,
    /// What a compiler says of code that it made while a program ran, for their names, by address.
    PerfMap,
    /// A program or library, for callers, by offsets in the file.
    Frames,
    /// A program or library, for where its sections and symbols lie.
    Sections,
}

/// A file that was taken in.
#[derive(Debug)]
pub(crate) struct Taken {
    id: u32,
    /// Readers are counted: what one knew went with it.
    reader: u32,
}

/// What became of a file.
#[derive(Debug)]
pub(crate) enum Opening {
    /// It can be asked.
    Taken(Taken),
    /// Nothing of the kind is in it.
    Nothing,
    /// There is no room for it beside the others.
    NoRoom,
}

static APART: Mutex<Option<Reader>> = Mutex::new(None);

thread_local! {
    static HERE: RefCell<Shelf> = RefCell::new(Shelf::default());
}

/// Has files of strangers read by a program that is started when the first one comes, and that does no more than to call
/// [`serve`] once it has given up its privileges. It gets the socket as its standard input.
pub fn apart(command: fn() -> Command) {
    *reader() = Some(Reader::new(command));
}

/// What went wrong with the reading of files, in words.
#[must_use]
pub fn troubles() -> Vec<String> {
    reader().as_ref().map(Reader::troubles).unwrap_or_default()
}

fn reader() -> MutexGuard<'static, Option<Reader>> {
    APART.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes a file in.
pub(crate) fn take(kind: Kind, file: &File) -> Opening {
    let mut reader = reader();
    let answer = match &mut *reader {
        Some(reader) => reader.take(kind, file),
        None => HERE.with_borrow_mut(|shelf| shelf.take(kind, file)),
    };
    match answer {
        Answer::Taken(id) => Opening::Taken(Taken { id, reader: reader.as_ref().map_or(0, Reader::number) }),
        Answer::NoRoom => Opening::NoRoom,
        _ => Opening::Nothing,
    }
}

impl Taken {
    /// The name at an offset in the file, or at an address where it is a perf map.
    pub(crate) fn name(&self, at: u64) -> Option<String> {
        match self.ask(|id| Question::Name { id, at }) {
            Answer::Name(name) => Some(name),
            _ => None,
        }
    }

    /// The caller of what lies at an offset in the file.
    pub(crate) fn caller(&self, at: u64) -> Option<UnwindRule> {
        match self.ask(|id| Question::UnwindRule { id, at }) {
            Answer::UnwindRule(caller) => Some(caller),
            _ => None,
        }
    }

    /// The address of a section.
    pub(crate) fn section(&self, name: &'static str) -> Option<u64> {
        self.address(|id| Question::Section { id, name: name.to_owned() })
    }

    /// The address of a symbol.
    pub(crate) fn symbol(&self, name: &str) -> Option<u64> {
        self.address(|id| Question::Symbol { id, name: name.to_owned() })
    }

    fn address(&self, question: impl FnOnce(u32) -> Question) -> Option<u64> {
        match self.ask(question) {
            Answer::Address(address) => Some(address),
            _ => None,
        }
    }

    fn ask(&self, question: impl FnOnce(u32) -> Question) -> Answer {
        let question = question(self.id);
        match &mut *reader() {
            Some(reader) if reader.number() == self.reader => reader.ask(&question),
            Some(_) => Answer::Nothing,
            // At the end of a thread its shelf may have gone already.
            None => HERE.try_with(|shelf| shelf.borrow_mut().answer(&question)).unwrap_or(Answer::Nothing),
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.ask(|id| Question::Forget { id });
    }
}
