//! Answers that take several times as long as usual and come fast all the same.

use super::{
    AS_MANY, CROWD, LASTED_S, LATE_S, Late, OF_A_PAGE, STALLED, Slow, TENFOLD, TOGETHER, Traffic, Usual,
};
use crate::signal::Signal;

impl Traffic {
    /// Half of the answers take ten times as long as usual and a page of them is late, of as many requests as ever.
    fn is_dearer(&self, i: usize, usual: &Usual) -> bool {
        let late = (TENFOLD * usual.p50).max(usual.p50 + LATE_S / OF_A_PAGE);
        let as_many = STALLED * usual.rate..AS_MANY * usual.rate;
        self.p50[i] >= late && as_many.contains(&self.requests[i])
    }

    /// One in the samples in which that is so.
    #[must_use]
    pub fn is_dearer_at(&self, usual: &Usual) -> Signal {
        self.signal(|i| self.is_dearer(i, usual))
    }

    /// The stretch in which each answer took so much longer, however few waited for it at a time.
    #[must_use]
    pub fn dearer(&self, usual: &Usual) -> Option<Slow> {
        self.stretch(&self.is_dearer_at(usual), usual)
    }

    /// The longest stretch in which something was so of half of the answers.
    fn stretch(&self, is_so: &Signal, usual: &Usual) -> Option<Slow> {
        let run = is_so.run(1.0, LASTED_S)?;
        let span = self.samples(&run);
        let samples: Vec<usize> = span.clone().filter(|i| is_so.v[*i] >= 1.0).collect();
        let (during_s, usual_s) = (self.weighted(&self.p50, &samples), usual.p50);
        Some(self.slow_in(run, span, usual, (Late::Half, during_s, usual_s)))
    }

    /// Half of the answers to no more requests than ever take several times as long as usual, though each is still fast: several
    /// clients get less for it, or one does where it is ten times as long.
    fn is_slower(&self, i: usize, usual: &Usual) -> bool {
        let needed = if self.is_dearer(i, usual) { TOGETHER } else { CROWD };
        self.p50[i] >= usual.slower_p50
            && self.requests[i] < AS_MANY * usual.rate
            && self.beyond(i, usual) >= needed
    }

    /// One in the samples in which that is so.
    #[must_use]
    pub fn is_slower_at(&self, usual: &Usual) -> Signal {
        self.signal(|i| self.is_slower(i, usual))
    }

    /// The stretch in which answers took several times as long, late or not.
    #[must_use]
    pub fn slower(&self, usual: &Usual) -> Option<Slow> {
        self.stretch(&self.is_slower_at(usual), usual)
    }
}
