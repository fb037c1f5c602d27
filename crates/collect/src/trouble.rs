//! Services that may be in trouble: about those more is asked than is recorded all the time.

use mitra_model::{Entity, Frame, Key, Strings};

/// A client that waits for an answer for nearly all of the time.
const WAITS: f64 = 0.8;
/// So long after the last sign of trouble a service is still suspect.
const AFTER_NS: i64 = 10_000_000_000;

/// What was known of each service by the frame before.
#[derive(Debug)]
pub struct Past<T> {
    before: Vec<(Key, T)>,
    now: Vec<(Key, T)>,
    generation: u32,
    last_ns: Option<i64>,
}

/// The time since the frame before.
#[derive(Debug, Clone, Copy)]
pub struct Since {
    /// On the monotonic clock.
    pub now_ns: i64,
    elapsed_ns: i64,
}

impl Since {
    /// Whether a client has waited for nearly all of it.
    pub fn is_filled_by(self, waited_ns: i64) -> bool {
        self.elapsed_ns > 0 && waited_ns as f64 >= WAITS * self.elapsed_ns as f64
    }

    /// Whether a sign of trouble is still young.
    pub fn is_soon_after(self, seen_ns: i64) -> bool {
        self.now_ns.saturating_sub(seen_ns) < AFTER_NS
    }
}

impl<T: Copy> Past<T> {
    /// Nothing is known of any service.
    pub fn new() -> Self {
        Past { before: Vec::new(), now: Vec::new(), generation: 0, last_ns: None }
    }

    /// Hands over the row of each service of the frame with what was known of it before, and keeps what is known now.
    pub fn each(
        &mut self,
        frame: &Frame,
        strings: &Strings,
        mut service: impl FnMut(&[i64], Option<T>, Since) -> Option<T>,
    ) {
        let now_ns = frame.time.mono;
        let last_ns = self.last_ns.replace(now_ns).unwrap_or(now_ns);
        let since = Since { now_ns, elapsed_ns: now_ns.saturating_sub(last_ns) };
        std::mem::swap(&mut self.before, &mut self.now);
        self.now.clear();
        // Keys are numbers of texts.
        if std::mem::replace(&mut self.generation, strings.generation()) != strings.generation() {
            self.before.clear();
        }
        // Services keep their order from one frame to the next, but for those that come and go.
        let mut next = 0;
        for (key, row) in frame.table(Entity::Service).rows() {
            let (earlier, later) = self.before.split_at(next);
            let at = later.iter().position(|(other, _)| *other == key).map(|at| next + at);
            let at = at.or_else(|| earlier.iter().position(|(other, _)| *other == key));
            next = at.map_or(next, |at| at + 1);
            let before = at.and_then(|at| self.before.get(at)).map(|(_, before)| *before);
            if let Some(known) = service(row, before, since) {
                self.now.push((key, known));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_known_is_found_however_services_come_and_go() {
        let mut past = Past::new();
        let mut strings = Strings::default();
        let ids: Vec<_> = (0..5).map(|port| strings.intern(&format!("127.0.0.1:{port}"))).collect();
        let mut known = |order: &[usize], strings: &Strings| {
            let mut frame = Frame::new();
            order.iter().for_each(|at| {
                frame.table_mut(Entity::Service).push(Key::named(ids[*at]));
            });
            let mut known = Vec::new();
            let mut nth = 0;
            past.each(&frame, strings, |_, before, _| {
                known.push(before);
                nth += 1;
                Some(order[nth - 1])
            });
            known
        };
        assert_eq!(known(&[0, 1, 2, 3], &strings), [None; 4]);
        assert_eq!(known(&[0, 2, 4, 3, 1], &strings), [Some(0), Some(2), None, Some(3), Some(1)]);
        assert_eq!(known(&[1, 0, 2], &strings), [Some(1), Some(0), Some(2)]);
        strings.clear();
        assert_eq!(known(&[1, 0, 2], &strings), [None; 3], "the numbers mean other texts now");
    }
}
