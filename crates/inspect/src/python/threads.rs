//! Threads of an interpreter, their frames, and the roots of references.

use super::heap::Heap;
use super::holders::Root;
use super::{Frame, Thread};
use crate::memory::Memory;

/// Limit of the threads of one interpreter: the kernel's own default limit for a process is 32,768.
const THREADS_MAX: usize = 1 << 16;
/// Limit of the frames of one thread: the default recursion limit is 1,000.
const FRAMES_MAX: usize = 4096;
/// Longest name of a function or file.
const NAME_CHARS_MAX: usize = 200;
/// Modules of one interpreter.
const MODULES_MAX: u64 = 1 << 17;

impl<M: Memory + ?Sized> Heap<'_, M> {
    /// The thread states of an interpreter.
    pub(super) fn thread_states(&self, interpreter: u64) -> Vec<u64> {
        let mut states = Vec::new();
        let mut at = self.word(interpreter, self.layout.interp_threads);
        while at != 0 && states.len() < THREADS_MAX && self.word(at, self.layout.tstate_interp) == interpreter
        {
            states.push(at);
            at = self.word(at, self.layout.tstate_next);
            if states.first() == Some(&at) {
                break;
            }
        }
        states
    }

    /// The frames of a thread, the innermost first: structures, or before 3.11 objects.
    fn frames(&self, state: u64) -> Vec<u64> {
        let mut at = self.word(state, self.layout.tstate_frame);
        if let Some(offset) = self.layout.cframe_frame {
            at = self.word(at, offset);
        }
        let mut frames = Vec::new();
        while at != 0 && frames.len() < FRAMES_MAX {
            frames.push(at);
            at = self.word(at, self.layout.frame_previous);
        }
        frames
    }

    fn frame_code(&self, frame: u64) -> u64 {
        self.untag(self.word(frame, self.layout.frame_code))
    }

    /// The frame of a code object; `None` if it is not one, as for the frames of calls from C
    /// (3.12).
    pub(super) fn describe_code(&self, code: u64) -> Option<Frame> {
        let kind = self.object_type(code)?;
        if kind.name != "code" {
            return None;
        }
        let text = |offset: u64| self.string(self.word(code, offset), NAME_CHARS_MAX);
        let function = text(self.layout.code_qualname.unwrap_or(self.layout.code_name))?;
        Some(Frame {
            function,
            file: text(self.layout.code_filename).unwrap_or_default(),
            first_line: self.memory.u32(code.wrapping_add(self.layout.code_firstlineno)).unwrap_or(0),
        })
    }

    pub(super) fn threads(&self, interpreter: u64) -> Vec<Thread> {
        let thread = |state: u64| Thread {
            ident: self.word(state, self.layout.tstate_thread_id),
            native_id: self
                .layout
                .tstate_native_id
                .map(|offset| self.word(state, offset))
                .filter(|id| *id != 0),
            frames: self
                .frames(state)
                .into_iter()
                .filter_map(|frame| self.describe_code(self.frame_code(frame)))
                .collect(),
        };
        self.thread_states(interpreter).into_iter().map(thread).collect()
    }

    /// Names and addresses of the modules.
    pub(super) fn modules(&self, interpreter: u64, take: &mut dyn FnMut(u64, u64)) {
        let mut left = MODULES_MAX;
        let modules = self.word(interpreter, self.layout.interp_modules);
        if self.object_type(modules).is_some() {
            self.entries(modules, &mut |name, module| {
                take(name, module);
                left -= 1;
                left > 0
            });
        }
    }

    /// Visits words of the interpreter's own state that are objects: `sys`, `builtins`, the codecs,
    /// functions registered with atexit.
    pub(super) fn held_by_interpreter(&self, interpreter: u64, take: &mut dyn FnMut(u64)) {
        // Since 3.12 the rest of the state has objects that are compiled in, which lead nowhere.
        const BYTES_MAX: u64 = 64 << 10;
        for offset in (0..self.layout.interp_size.min(BYTES_MAX)).step_by(8) {
            let word = self.word(interpreter, offset);
            if word > 4096 && word & 7 == 0 && self.object_type(word).is_some() {
                take(word);
            }
        }
    }

    /// Visits the local variables of all frames of all threads: the thread, the code, the edge, and
    /// the target.
    pub(super) fn held_by_frames(&self, interpreter: u64, take: &mut dyn FnMut(u64, u64, super::Edge, u64)) {
        for state in self.thread_states(interpreter) {
            for frame in self.frames(state) {
                let code = self.frame_code(frame);
                if self.layout.minor < 11 {
                    // The frame is a tracked object, so the frame itself is held.
                    take(state, code, super::Edge::Temporary, frame);
                    self.locals(frame, &mut |target, edge, _| take(state, code, edge, target));
                } else if self.object_type(code).is_some_and(|kind| kind.name == "code") {
                    self.frame(frame, frame, &mut |target, edge, _| take(state, code, edge, target));
                }
            }
        }
    }

    /// Visits all roots: modules, variables of running functions, the interpreter's own objects.
    pub(super) fn all_roots(&self, take: &mut dyn FnMut(Root, u64)) {
        for interpreter in &self.interpreters {
            self.modules(*interpreter, &mut |name, address| {
                let name = self.string(name, NAME_CHARS_MAX).unwrap_or_else(|| "?".to_owned());
                if self.object_type(address).is_some() {
                    take(Root::Module(name), address);
                }
            });
            self.held_by_frames(*interpreter, &mut |state, code, edge, address| {
                if self.object_type(address).is_none() {
                    return;
                }
                let of = self.describe_code(code).map_or_else(
                    || "?".to_owned(),
                    |frame| format!("{}() in {}", frame.function, frame.file),
                );
                let id = self.layout.tstate_native_id.unwrap_or(self.layout.tstate_thread_id);
                let (what, thread) = (self.describe(code, edge), self.word(state, id));
                take(Root::Frame(format!("{what} of {of}, thread {thread}")), address);
            });
            self.held_by_interpreter(*interpreter, &mut |address| {
                let name = self.object_type(address).map_or_else(String::new, |kind| kind.name.clone());
                take(Root::Interpreter(format!("the interpreter's own {name}")), address);
            });
        }
    }
}
