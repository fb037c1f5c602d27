//! Which kinds this kernel and these privileges allow.

use super::armed::privileged;
use super::cost::Cost;
use super::loader::{Config, Loader};
use super::{AnyError, Kind, Refused, Request, kinds};
use crate::bpf::chain;

/// What came of trying one kind.
pub struct Checked {
    /// Which.
    pub kind: &'static Kind,
    /// What it would not see here, or why it cannot be armed.
    pub result: Result<Vec<String>, Refused>,
}

/// Loads every kind, watching only this process, and takes it away again. An answer from the kernel itself: what a
/// version number promises may have been left out when it was built, or be forbidden.
#[must_use]
pub fn check() -> Vec<Checked> {
    // The kernel's type information is large: once is enough for all of them.
    let mut btf = None;
    let mut one = |kind: &'static Kind| {
        if !kind.object.is_empty() {
            privileged()?;
        }
        let mut request = Request::new(kind.name, 1.0, "doctor");
        request.pid = Some(std::process::id());
        let mut config = Config::of(&request).map_err(Refused::NotThere)?;
        (kind.configure)(&request, &mut config).map_err(Refused::BadRequest)?;
        let mut attempt = || -> Result<Vec<String>, AnyError> {
            let loader = match (kind.object, &mut btf) {
                ([], _) => Loader::without_programs(),
                (object, Some(btf)) => Loader::load(object, &config, btf)?,
                (object, none) => Loader::load(object, &config, none.insert(aya::Btf::from_sys_fs()?))?,
            };
            let mut loader = loader.for_trial();
            (kind.arm)(&request, &mut loader)?;
            Ok(loader.take_notes())
        };
        attempt().map_err(|error| Refused::Kernel { kind: kind.name, why: chain(&*error) })
    };
    crate::bpf::with_bounded_heap(|| kinds().iter().map(|kind| Checked { kind, result: one(kind) }).collect())
}

/// Why the kernel does not measure what captures cost, if it does not.
#[must_use]
pub fn cost_unavailable() -> Option<String> {
    Cost::begin().unavailable().map(str::to_owned)
}
