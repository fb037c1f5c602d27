//! The threads of a trace, and when one of them stood still.
//!
//! Between two calls a thread computes, which takes microseconds in most programs. A gap that is far longer than the
//! thread's usual one is a time in which the kernel did not let it run, or in which it computed for long. The trace
//! shows the beginning of each call and with `-T` its length. Without `-T` a gap may have been spent in the call
//! before it, so that what a call does decides: after one that waits for others a gap is nothing special.

use std::collections::HashMap;

use crate::text::prelude::*;
use mitra_model::EventKind;

use super::names::Wait;
use crate::text::tracing::tally::Clock;

/// Threads that are kept apart. Those beyond have no pauses.
const THREADS_MAX: usize = 16_384;
/// A pause is at least so long: what a person or a protocol notices.
pub(super) const PAUSE_MIN: i64 = SECOND / 10;
/// And so many times the thread's usual gap.
const TIMES_USUAL: i64 = 100;
/// Pauses that are reported of a file, the longest.
const PAUSES_MAX: usize = 100;
/// Gaps that are kept until the usual gaps are known.
const CANDIDATES_MAX: usize = 4096;
/// Threads take turns; so many are found without a search.
const NEAR: usize = 256;
/// Gaps are counted by their logarithm, four steps to an octave.
const STEPS: usize = 4 * 48;

/// What a thread did last.
#[derive(Debug, Clone, Copy)]
pub(super) struct Last {
    /// The call.
    pub call: usize,
    /// What it may do to its caller.
    pub wait: Wait,
    /// When it ended, or when it began if its end is not known.
    pub t: i64,
    /// Whether that is its end.
    pub ended: bool,
    /// The line of it.
    pub line: u32,
}

/// A call whose end is still to come.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pending {
    /// The call.
    pub call: usize,
    /// When it began.
    pub t: Option<i64>,
    /// Its line.
    pub line: u32,
}

/// One thread.
pub(super) struct Thread {
    pid: u32,
    /// The program that it runs, where the trace says.
    pub comm: String,
    /// What it did last.
    pub last: Option<Last>,
    /// Whether it ended: its id may be used again.
    pub gone: bool,
    /// What it is in.
    pub pending: Option<Pending>,
    /// The path that the call looks up.
    pub path: Vec<u8>,
    gaps: Box<[u32; STEPS]>,
}

#[derive(Clone, Copy)]
struct Candidate {
    thread: usize,
    t: i64,
    ns: i64,
    line: u32,
    call: usize,
    inside: bool,
}

/// See the module.
pub(super) struct Threads {
    list: Vec<Thread>,
    index: HashMap<u32, usize>,
    /// Where threads were found before, by the low bits of their ids.
    near: Box<[u32; NEAR]>,
    at: usize,
    candidates: Vec<Candidate>,
    shortest: i64,
    /// What the stamps leave open: a second where they have no fraction.
    pub blur: i64,
}

impl Threads {
    pub(super) fn new() -> Self {
        let (list, index, candidates) = (Vec::new(), HashMap::new(), Vec::new());
        let near = Box::new([u32::MAX; NEAR]);
        Threads { list, index, near, at: 0, candidates, shortest: PAUSE_MIN, blur: 0 }
    }

    /// The thread of a line.
    #[inline]
    pub(super) fn of(&mut self, pid: u32) -> Option<&mut Thread> {
        if self.list.get(self.at).is_none_or(|t| t.pid != pid) {
            self.change(pid)?;
        }
        self.list.get_mut(self.at)
    }

    /// The thread that [`Threads::of`] found last.
    pub(super) fn current(&mut self) -> Option<&mut Thread> {
        self.list.get_mut(self.at)
    }

    /// A thread is new and runs the program of the one that made it.
    pub(super) fn born(&mut self, pid: u32, comm: String) {
        let at = self.at;
        // Its first lines may stand before the one that says so.
        if let Some(thread) = self.of(pid).filter(|t| t.gone || t.comm.is_empty()) {
            (thread.comm, thread.gone) = (comm, false);
        }
        self.at = at;
    }

    fn change(&mut self, pid: u32) -> Option<()> {
        // A line without an id is of the only thread that is left: which that is may have changed.
        if pid == 0
            && let Some(thread) = self.index.get(&0).and_then(|at| self.list.get_mut(*at))
        {
            thread.last = None;
        }
        let near = self.near.get_mut(pid as usize % NEAR)?;
        if pid > 0 && self.list.get(*near as usize).is_some_and(|t| t.pid == pid) {
            self.at = *near as usize;
            return Some(());
        }
        if let Some(at) = self.index.get(&pid) {
            (self.at, *near) = (*at, *at as u32);
            return Some(());
        }
        if self.list.len() >= THREADS_MAX {
            return None;
        }
        // As long as there was one thread its lines had no id; all others descend from it.
        let first = self.index.get(&0).and_then(|at| self.list.get(*at));
        let comm = first.map(|t| t.comm.clone()).unwrap_or_default();
        self.at = self.list.len();
        self.index.insert(pid, self.at);
        self.list.push(Thread {
            pid,
            comm,
            gone: false,
            last: None,
            pending: None,
            path: Vec::new(),
            gaps: Box::new([0; STEPS]),
        });
        Some(())
    }

    /// The thread that [`Threads::of`] found last begins a call.
    #[inline]
    pub(super) fn begins(&mut self, t: i64) {
        let Some(thread) = self.list.get_mut(self.at) else { return };
        let Some(last) = thread.last else { return };
        let gap = t - last.t;
        if gap < 0 || (!last.ended && last.wait == Wait::Asks) {
            return;
        }
        if let Some(n) = thread.gaps.get_mut(step(gap)) {
            *n = n.saturating_add(1);
        }
        if gap - self.blur >= self.shortest {
            let inside = !last.ended && last.wait == Wait::Works;
            self.keep(Candidate {
                thread: self.at,
                t: last.t,
                ns: gap - self.blur,
                line: last.line,
                call: last.call,
                inside,
            });
        }
    }

    /// A call of that thread took so long.
    #[inline]
    pub(super) fn took(&mut self, call: usize, wait: Wait, t: i64, ns: i64, line: u32) {
        if wait != Wait::Asks && ns - self.blur >= self.shortest {
            let ns = ns - self.blur;
            self.keep(Candidate { thread: self.at, t, ns, line, call, inside: true });
        }
    }

    #[cold]
    fn keep(&mut self, candidate: Candidate) {
        self.candidates.push(candidate);
        if self.candidates.len() >= CANDIDATES_MAX {
            self.candidates.sort_by_key(|c| std::cmp::Reverse(c.ns));
            self.candidates.truncate(CANDIDATES_MAX / 2);
            self.shortest = self.candidates.last().map_or(PAUSE_MIN, |c| c.ns);
        }
    }

    /// Reports the pauses. `name` says what a call is called.
    pub(super) fn finish<'a>(self, clock: Clock, import: &mut Import, name: impl Fn(usize) -> &'a [u8]) {
        let mut usual: HashMap<usize, i64> = HashMap::new();
        let mut pauses = self.candidates;
        pauses.retain(|c| {
            let median = *usual
                .entry(c.thread)
                .or_insert_with(|| self.list.get(c.thread).map_or(i64::MAX, |t| median(&t.gaps[..])));
            c.ns / TIMES_USUAL >= median
        });
        pauses.sort_by_key(|c| std::cmp::Reverse(c.ns));
        if pauses.len() > PAUSES_MAX {
            let more = pauses.len() - PAUSES_MAX;
            import.note(format!("{more} pauses more, shorter than those that are reported"));
        }
        pauses.truncate(PAUSES_MAX);
        pauses.sort_by_key(|c| c.t);
        for pause in pauses {
            let Some(thread) = self.list.get(pause.thread) else { continue };
            let kind = EventKind::Pause {
                pid: thread.pid,
                comm: thread.comm.clone(),
                seconds: pause.ns as f64 / SECOND as f64,
                call: text(name(pause.call)),
                inside: pause.inside,
            };
            let when = clock.exactly(pause.t, import);
            import.event(when, pause.line, kind);
        }
    }
}

#[inline]
fn step(ns: i64) -> usize {
    let n = ns.max(1) as u64;
    let octave = n.ilog2() as usize;
    // The two bits below the highest.
    let quarter = if octave >= 2 { (n >> (octave - 2)) as usize & 3 } else { 0 };
    (4 * octave + quarter).min(STEPS - 1)
}

/// The upper end of the step that the median gap is in; the lower one of two.
fn median(gaps: &[u32]) -> i64 {
    let all: u64 = gaps.iter().map(|n| u64::from(*n)).sum();
    let mut seen = 0;
    for (i, n) in gaps.iter().enumerate() {
        seen += u64::from(*n);
        if 2 * seen >= all && seen > 0 {
            let (octave, quarter) = (i / 4, i % 4);
            return ((1_u64 << octave) + ((quarter as u64 + 1) << octave) / 4) as i64;
        }
    }
    i64::MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_gap() {
        let mut gaps = vec![0; STEPS];
        assert_eq!(median(&gaps), i64::MAX);
        for ns in [16_000, 31_000, 28_000, 500_277_000, 36_000] {
            gaps[step(ns)] += 1;
        }
        let usual = median(&gaps);
        assert!((31_000..=40_000).contains(&usual), "{usual}");
        assert_eq!(step(i64::MAX), STEPS - 1);
        assert_eq!(step(0), 0);
    }
}
