//! Functions that an interpreter runs, which no stack shows: bpf/functions.h. How it keeps them is said by whoever knows the
//! interpreter ([`super::Armed::follow_functions`]).

use mitra_model::capture::InterpreterLayout;

use super::AnyError;
use super::loader::Loader;
use crate::bpf::sys::{MapReader, Plain};

/// `FUNCTION_DEPTH` and `NOTHING_BETWEEN` of bpf/functions.h.
const DEPTH: usize = 32;
const NOTHING_BETWEEN: u32 = u32::MAX;

#[repr(C)]
#[derive(Clone, Copy)]
struct How {
    innermost: u32,
    between: u32,
    code: u32,
    caller: u32,
    tag: u64,
    is_on: u64,
}
const _: () = assert!(size_of::<How>() == 32, "twin: struct interpreted in bpf/functions.h");
// SAFETY: repr(C), integers without a hole.
unsafe impl Plain for How {}

#[repr(C)]
#[derive(Clone, Copy)]
struct Codes([u64; DEPTH]);
const _: () = assert!(size_of::<Codes>() == 256, "twin: struct functions in bpf/functions.h");
// SAFETY: only u64.
unsafe impl Plain for Codes {}

/// The functions of a capture, by the numbers of their stacks.
pub(super) struct Functions {
    how: MapReader<u32, How>,
    threads: MapReader<u64, u64>,
    stacks: MapReader<u64, Codes>,
}

impl Functions {
    pub(super) fn new(loader: &Loader<'_>) -> Result<Self, AnyError> {
        Ok(Self {
            how: loader.map("interpreters")?,
            threads: loader.map("interpreted_threads")?,
            stacks: loader.map("function_stacks")?,
        })
    }

    /// From now on they are followed so. A thread for which there is no room has none.
    pub(super) fn follow(&self, how: &InterpreterLayout) {
        for (own, state) in &how.threads {
            _ = self.threads.store(own, state);
        }
        let how = How {
            innermost: how.innermost,
            between: how.between.unwrap_or(NOTHING_BETWEEN),
            code: how.code,
            caller: how.caller,
            tag: how.tag,
            is_on: 1,
        };
        _ = self.how.store(&0, &how);
    }

    /// The code of each, the innermost first.
    pub(super) fn get(&mut self, id: u64) -> Result<Vec<u64>, AnyError> {
        if id == 0 {
            return Ok(Vec::new());
        }
        let stack = self.stacks.lookup(&id)?;
        let codes = stack.into_iter().flatten().flat_map(|stack| stack.0);
        Ok(codes.take_while(|code| *code != 0).collect())
    }
}
