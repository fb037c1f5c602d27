//! How stacks are followed that frame pointers do not connect: a program in the kernel follows rules, and asks for those
//! that it does not know by sending a copy of the stack.

/// How to get from a place in a program to where it was called, on x86-64.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Caller {
    /// Nobody says: by the frame pointer.
    #[default]
    FramePointer,
    /// The frame of the caller ends `offset` behind what a register holds; below its end is where the call returns to.
    At {
        /// The register: the frame pointer, or else the stack pointer.
        is_from_frame_pointer: bool,
        /// In bytes.
        offset: i32,
        /// Where, from the end of the frame, the caller's frame pointer is kept; 0: it is where it was.
        frame_pointer_at: i16,
    },
    /// Nobody called it: the thread begins here.
    Nobody,
}

/// A place in a program: where it executes, or where a call returns to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Place {
    /// The address.
    pub address: u64,
    /// Whether it executes there. Where a call returns to another function may begin.
    pub is_leaf: bool,
}

/// A copy of the innermost part of a thread's stack, taken when not all of its places were known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StackCopy {
    /// The process.
    pub pid: u32,
    /// The name of what was found without what is wanted.
    pub chain: u64,
    /// Where it executed.
    pub address: u64,
    /// The stack pointer, where the copy begins.
    pub stack_pointer: u64,
    /// The frame pointer.
    pub frame_pointer: u64,
    /// The copy.
    pub bytes: Vec<u8>,
}

/// Where an interpreter keeps which functions its threads are in: from the state of each thread leads a list of frames, the
/// innermost first. Offsets are in bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Interpreted {
    /// Where in a thread's state the innermost frame is.
    pub innermost: u32,
    /// Where it is in a structure that lies between the two.
    pub between: Option<u32>,
    /// Where in a frame its code is.
    pub code: u32,
    /// Where in a frame the one that called it is.
    pub caller: u32,
    /// Bits in the address of the code that say something else.
    pub tag: u64,
    /// The states, by where each thread has its own memory, as `pthread_self` says.
    pub threads: Vec<(u64, u64)>,
}

/// What was made of a copy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Followed {
    /// The addresses, the leaf first.
    pub addresses: Vec<u64>,
    /// How to get on from each of them.
    pub callers: Vec<(Place, Caller)>,
}
