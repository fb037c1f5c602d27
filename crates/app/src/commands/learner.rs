//! Unwinds user stacks that the BPF programs could not, and teaches them the rules, so that they
//! can from then on. The same for the functions of an interpreter.

use std::time::{Duration, Instant};

use mitra_collect::capture::Armed;
use mitra_inspect::Unwinder;
use mitra_inspect::python::Functions;

/// How often threads that began since are looked for: it takes some milliseconds.
const THREADS_EVERY: Duration = Duration::from_secs(2);
/// When an interpreter changed while it was read.
const AGAIN: Duration = Duration::from_millis(100);
/// Attempts before a build of an interpreter counts as unknown.
const TRIES: u32 = 10;

#[derive(Default)]
pub struct Learner {
    /// Of one process: kinds that use it watch just one.
    unwinder: Option<(u32, Unwinder)>,
    interpreter: Option<Interpreter>,
}

struct Interpreter {
    pid: u32,
    /// `None` if the process has no interpreter that is known.
    functions: Option<Functions>,
    next: Instant,
    tries: u32,
}

impl Learner {
    /// Does what the probes ask for, on the CPU account of the capture. Returns whether there was
    /// anything.
    pub fn poll(&mut self, armed: &mut Armed) -> bool {
        self.follow_functions(armed);
        let copies = armed.take_copies();
        let followed = armed.charge(|| {
            let mut followed = Vec::new();
            for copy in &copies {
                if self.unwinder.as_ref().is_none_or(|(pid, _)| *pid != copy.pid) {
                    self.unwinder = Some((copy.pid, Unwinder::new(copy.pid)));
                }
                let unwinder = self.unwinder.iter_mut();
                followed.extend(unwinder.map(|(_, unwinder)| (copy.chain, unwinder.follow(copy))));
            }
            followed
        });
        for (chain, followed) in followed {
            armed.teach(chain, followed);
        }
        !copies.is_empty()
    }

    /// Tells the probes which functions the interpreter's threads are in, from time to time.
    fn follow_functions(&mut self, armed: &mut Armed) {
        let Some(pid) = armed.interprets() else { return };
        let of_process = self.interpreter.as_ref().filter(|known| known.pid == pid);
        if of_process.is_some_and(|known| known.functions.is_none() || Instant::now() < known.next) {
            return;
        }
        let is_new = of_process.is_none();
        let how = armed.charge(|| {
            if is_new {
                let functions = Functions::of(pid);
                self.interpreter = Some(Interpreter { pid, functions, next: Instant::now(), tries: TRIES });
            }
            let known = self.interpreter.as_mut()?;
            let how = known.functions.as_mut()?.kept();
            if how.is_some() {
                (known.next, known.tries) = (Instant::now() + THREADS_EVERY, TRIES);
            } else {
                (known.next, known.tries) = (Instant::now() + AGAIN, known.tries.saturating_sub(1));
                if known.tries == 0 {
                    known.functions = None;
                }
            }
            how
        });
        if let Some(how) = how {
            armed.follow_functions(&how);
        }
    }
}
