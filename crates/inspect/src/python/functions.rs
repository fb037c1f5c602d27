//! The functions that the threads of a running CPython are in, for a watcher that follows them:
//! native stacks show only the interpreter.

use mitra_model::capture::InterpreterLayout;

use super::Heap;
use crate::memory::Memory;
use crate::target::Target;

/// Up to 3.13 the address of a frame's code is a plain address. Since 3.14 its low bits tell how it
/// is counted.
const TAGGED_FROM: u32 = 14;
const TAG: u64 = 3;
/// Functions of CPython's interpreter loop. Since 3.14 each instruction may be a function, which
/// tail-calls the next one.
const INTERPRETS: [&str; 2] = ["_PyEval_EvalFrame", "_TAIL_CALL_"];

/// A process, and whether CPython is in it.
pub struct Functions {
    target: Target,
}

impl Functions {
    /// `None` if there is no CPython, or access is denied.
    #[must_use]
    pub fn of(pid: u32) -> Option<Self> {
        let target = Target::open(pid).ok()?;
        super::is_likely(target.mappings()).then_some(Self { target })
    }

    /// The interpreter's layout for reading the functions of its current threads.
    pub fn kept(&mut self) -> Option<InterpreterLayout> {
        self.target.refresh().ok()?;
        super::open(&self.target).ok()?.kept()
    }

    /// The name of each function by its code, as in the names that CPython writes for perf:
    /// `py::handle:/srv/app.py`. The interpreter's own entries get an empty name.
    pub fn names(&mut self, codes: &[u64]) -> Option<Vec<String>> {
        self.target.refresh().ok()?;
        let heap = super::open(&self.target).ok()?;
        let name = |code: &u64| {
            let frame = heap.describe_code(*code).filter(|frame| !frame.file.starts_with("<interpreter"));
            frame.map_or(String::new(), |frame| format!("py::{}:{}", frame.function, frame.file))
        };
        Some(codes.iter().map(name).collect())
    }
}

impl<M: Memory + ?Sized> Heap<'_, M> {
    fn kept(&self) -> Option<InterpreterLayout> {
        let offset = |offset: u64| u32::try_from(offset).ok();
        let layout = &self.layout;
        let threads = self.interpreters.iter().flat_map(|interpreter| self.thread_states(*interpreter));
        Some(InterpreterLayout {
            innermost: offset(layout.tstate_frame)?,
            between: match layout.cframe_frame {
                Some(between) => Some(offset(between)?),
                None => None,
            },
            code: offset(layout.frame_code)?,
            caller: offset(layout.frame_previous)?,
            tag: if layout.minor >= TAGGED_FROM { TAG } else { 0 },
            threads: threads.map(|state| (self.word(state, layout.tstate_thread_id), state)).collect(),
        })
    }
}

/// Whether a frame of a stack belongs to CPython's interpreter loop.
pub(crate) fn interprets(name: &str) -> bool {
    INTERPRETS.iter().any(|start| name.starts_with(start))
}

/// A frame in the interpreter's file without a symbol.
fn is_interpreters(name: &str) -> bool {
    name.starts_with("[python") || name.starts_with("[libpython")
}

/// Replaces the frames of the interpreter loop by the functions that it runs. `functions` has the
/// innermost first; the frames go from the root to the leaf. Frames called from the innermost
/// function stay.
pub(crate) fn merge(frames: Vec<String>, functions: &[String]) -> Vec<String> {
    let is_known = |name: &String| name.starts_with("py::");
    let functions: Vec<String> = functions.iter().rev().filter(|name| !name.is_empty()).cloned().collect();
    if functions.is_empty() || frames.iter().any(is_known) {
        return frames;
    }
    let innermost = frames.iter().rposition(|name| interprets(name));
    let innermost = innermost.or_else(|| frames.iter().rposition(|name| is_interpreters(name)));
    let from = innermost.map_or(0, |at| at + 1);
    let cut_off = |name: &String| !name.starts_with("[cut off");
    functions.into_iter().chain(frames.into_iter().skip(from).filter(cut_off)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn functions_stand_where_the_interpreter_was() {
        let frames = list(&["_start", "Py_RunMain", "_PyEval_EvalFrameDefault", "PyList_Append", "realloc"]);
        let functions = list(&["py::leak:/a.py", "", "py::<module>:/a.py"]);
        let merged = ["py::<module>:/a.py", "py::leak:/a.py", "PyList_Append", "realloc"];
        assert_eq!(merge(frames.clone(), &functions), merged);
        assert_eq!(merge(frames.clone(), &[]), frames);
        // The interpreter itself provides the names.
        let perf = list(&["_start", "_PyEval_EvalFrameDefault", "py::leak:/a.py", "realloc"]);
        assert_eq!(merge(perf.clone(), &functions), perf);
        // Without symbols, and with a stack that does not reach back to the interpreter.
        let stripped = list(&["_start", "[python3.9+0x1234]", "malloc"]);
        assert_eq!(merge(stripped, &functions), ["py::<module>:/a.py", "py::leak:/a.py", "malloc"]);
        let cut = list(&["[cut off]", "malloc"]);
        assert_eq!(merge(cut, &functions), ["py::<module>:/a.py", "py::leak:/a.py", "malloc"]);
    }
}
