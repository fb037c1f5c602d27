//! Parses files that any user may have written: names of functions, callers, addresses of symbols.
//!
//! A parser of hostile files is a likely point of attack, and a program that reads the memory of
//! other processes is a worthwhile target. So `mitra` registers how to start a helper process
//! ([`use_helper`]), which drops all privileges before it gets the first file. Files go to it as
//! descriptors over a socket, requests and responses are short, and responses are checked like any
//! foreign input. A helper that ends or does not answer in time is killed and restarted a few
//! times; [`errors`] reports it. Without a helper, as in tests, files are parsed in this process.
//!
//! Files that only root can change are not parsed here: a user who can write them is root already.

pub(crate) mod frames;
mod helper;
pub(crate) mod protocol;
mod server;
pub(crate) mod store;

use std::cell::RefCell;
use std::fs::File;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use mitra_model::capture::UnwindRule;
use serde::{Deserialize, Serialize};

pub use server::serve;

use helper::Helper;
use protocol::{Request, Response};
use store::FileStore;

pub(crate) use frames::Frames;

/// The kind of data that is read from a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Kind {
    /// Names of functions, by offset in the file.
    Names,
    /// Names of a JIT compiler, by address.
    PerfMap,
    /// Callers by unwind tables, by offset in the file.
    Frames,
    /// Addresses of sections and symbols.
    Sections,
}

/// A file that was parsed.
#[derive(Debug)]
pub(crate) struct RemoteFile {
    id: u32,
    /// Helpers are numbered: a restarted one does not know the files of those before.
    helper: u32,
}

#[derive(Debug)]
pub(crate) enum TakeResult {
    Taken(RemoteFile),
    /// The file has nothing of the kind.
    Nothing,
    /// The limit of the store is reached.
    NoRoom,
}

static APART: Mutex<Option<Helper>> = Mutex::new(None);

thread_local! {
    static HERE: RefCell<FileStore> = RefCell::new(FileStore::default());
}

/// Registers how to start the helper. It calls [`serve`] on its standard input after dropping its
/// privileges, and is started for the first file.
pub fn use_helper(command: fn() -> Command) {
    *helper() = Some(Helper::new(command));
}

/// Failures of the helper, as sentences.
#[must_use]
pub fn errors() -> Vec<String> {
    helper().as_ref().map(Helper::errors).unwrap_or_default()
}

fn helper() -> MutexGuard<'static, Option<Helper>> {
    APART.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Parses a file.
pub(crate) fn take(kind: Kind, file: &File) -> TakeResult {
    let mut helper = helper();
    let response = match &mut *helper {
        Some(helper) => helper.take(kind, file),
        None => HERE.with_borrow_mut(|store| store.take(kind, file)),
    };
    match response {
        Response::Taken(id) => {
            TakeResult::Taken(RemoteFile { id, helper: helper.as_ref().map_or(0, Helper::number) })
        }
        Response::NoRoom => TakeResult::NoRoom,
        _ => TakeResult::Nothing,
    }
}

impl RemoteFile {
    /// The name at an offset in the file, or at an address of a perf map.
    pub(crate) fn name(&self, at: u64) -> Option<String> {
        match self.ask(|id| Request::Name { id, at }) {
            Response::Name(name) => Some(name),
            _ => None,
        }
    }

    pub(crate) fn caller(&self, at: u64) -> Option<UnwindRule> {
        match self.ask(|id| Request::UnwindRule { id, at }) {
            Response::UnwindRule(caller) => Some(caller),
            _ => None,
        }
    }

    /// The address of a section.
    pub(crate) fn section(&self, name: &'static str) -> Option<u64> {
        self.address(|id| Request::Section { id, name: name.to_owned() })
    }

    /// The address of a symbol.
    pub(crate) fn symbol(&self, name: &str) -> Option<u64> {
        self.address(|id| Request::Symbol { id, name: name.to_owned() })
    }

    fn address(&self, request: impl FnOnce(u32) -> Request) -> Option<u64> {
        match self.ask(request) {
            Response::Address(address) => Some(address),
            _ => None,
        }
    }

    fn ask(&self, request: impl FnOnce(u32) -> Request) -> Response {
        let request = request(self.id);
        match &mut *helper() {
            Some(helper) if helper.number() == self.helper => helper.ask(&request),
            Some(_) => Response::Nothing,
            // The thread's store may be destroyed already when the thread ends.
            None => HERE.try_with(|store| store.borrow_mut().answer(&request)).unwrap_or(Response::Nothing),
        }
    }
}

impl Drop for RemoteFile {
    fn drop(&mut self) {
        self.ask(|id| Request::Forget { id });
    }
}
