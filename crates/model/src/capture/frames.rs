//! Unwinding of stacks without frame pointers. A BPF program applies unwind rules. For addresses without a rule it sends a
//! copy of the stack, and user space answers with the rules.

use serde::{Deserialize, Serialize};

/// How to find the caller of a function on x86-64, as `.eh_frame` says it for one code address.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum UnwindRule {
    /// Through the frame pointer: there is no entry for the address.
    #[default]
    FramePointer,
    /// The canonical frame address is a register plus `offset`; the return address is the word below it.
    At {
        /// The register is the frame pointer; the stack pointer otherwise.
        is_from_frame_pointer: bool,
        /// Bytes.
        offset: i32,
        /// Where the caller's frame pointer is saved, relative to the canonical frame address; 0 if it is still in its
        /// register.
        frame_pointer_at: i16,
    },
    /// There is no caller: the thread begins here.
    Nobody,
}

/// A code address of a stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CodeAddress {
    /// The address.
    pub address: u64,
    /// Whether the thread executes there. Otherwise it is a return address, which may be the first of the next function.
    pub is_leaf: bool,
}

/// A copy of the top of a thread's stack, taken when the rule of an address was missing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StackCopy {
    /// The process.
    pub pid: u32,
    /// The id of the incomplete stack.
    pub chain: u64,
    /// The instruction pointer.
    pub address: u64,
    /// The stack pointer, where the copy begins.
    pub stack_pointer: u64,
    /// The frame pointer.
    pub frame_pointer: u64,
    /// The copy.
    pub bytes: Vec<u8>,
}

/// Where an interpreter keeps its call stacks: the state of each thread leads to a list of frames, the innermost first.
/// Offsets are in bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InterpreterLayout {
    /// The offset of the innermost frame in the state of a thread.
    pub innermost: u32,
    /// Its offset in the structure between the two, where a version has one.
    pub between: Option<u32>,
    /// The offset of the code object in a frame.
    pub code: u32,
    /// The offset of the calling frame in a frame.
    pub caller: u32,
    /// Tag bits in the address of the code object, to be masked.
    pub tag: u64,
    /// The states of the threads by `pthread_self`.
    pub threads: Vec<(u64, u64)>,
}

/// The result for a [`StackCopy`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnwoundStack {
    /// The addresses, the leaf first.
    pub addresses: Vec<u64>,
    /// The rule for each of them.
    pub callers: Vec<(CodeAddress, UnwindRule)>,
}
