//! Finds runs of set bits of a minimum length in consecutive masks.

use super::classify::BLOCK;

/// Steps that find runs of any length in a block.
const STEPS: usize = 6;

/// Finds runs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Runs {
    /// How many bits make a run.
    min: usize,
    /// Shifts: a bit that survives all of them starts a run of `min` bits.
    steps: [u32; STEPS],
    /// Start of the run at the end of the last mask; the end itself if there is none.
    open: usize,
}

impl Runs {
    pub(super) fn new(min: usize) -> Self {
        let mut steps = [0; STEPS];
        let mut have = 1;
        for step in &mut steps {
            // Longer runs touch an end of the mask.
            *step = have.min(min.clamp(1, BLOCK) - have);
            have += *step;
        }
        Self { min, steps: steps.map(|step| step as u32), open: 0 }
    }

    /// How many bits make a run.
    #[inline(always)]
    pub(super) fn min(&self) -> usize {
        self.min
    }

    /// Restarts at an offset.
    pub(super) fn start(&mut self, place: usize) {
        self.open = place;
    }

    /// Start of the unfinished run.
    pub(super) fn open(&self) -> usize {
        self.open
    }

    /// Drops the part of the unfinished run before an offset.
    pub(super) fn cut(&mut self, place: usize) {
        self.open = self.open.max(place);
    }

    /// Starts of runs within a mask or over its end.
    #[inline(always)]
    pub(super) fn starts(&self, mask: u64) -> u64 {
        self.steps.iter().fold(mask, |starts, step| starts & starts >> step)
    }

    /// Adds the mask of the block at `base`, and reports the runs that end in it.
    #[inline(always)]
    pub(super) fn block(&mut self, mask: u64, base: usize, mut run: impl FnMut(usize, usize)) {
        if mask == u64::MAX {
            return;
        }
        if mask == 0 && self.open == base {
            self.open = base + BLOCK;
            return;
        }
        let end = base + mask.trailing_ones() as usize;
        if end - self.open >= self.min {
            run(self.open, end);
        }
        let tail = mask.leading_ones();
        self.open = base + BLOCK - tail as usize;
        // Without the runs at both ends.
        let inner = mask & mask.wrapping_add(1) & (u64::MAX >> tail);
        let mut starts = self.starts(inner);
        while starts != 0 {
            let start = starts.trailing_zeros();
            let end = start + (inner >> start).trailing_ones();
            run(base + start as usize, base + end as usize);
            // The run does not touch the end, so that the shift is below 64.
            starts &= u64::MAX << end;
        }
    }

    /// Reports the unfinished run at the end.
    pub(super) fn finish(&mut self, place: usize, run: impl FnOnce(usize, usize)) {
        if place - self.open >= self.min {
            run(self.open, place);
        }
        self.open = place;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn plainly(bits: &[bool], min: usize) -> Vec<(usize, usize)> {
        let mut found = Vec::new();
        let mut start = 0;
        for place in 0..=bits.len() {
            if bits.get(place) != Some(&true) {
                if place - start >= min {
                    found.push((start, place));
                }
                start = place + 1;
            }
        }
        found
    }

    proptest! {
        #[test]
        fn runs_are_those_of_a_plain_loop(
            stretches in prop::collection::vec((any::<bool>(), 1_usize..90), 1..60),
            min in 1_usize..150,
        ) {
            let mut bits: Vec<bool> =
                stretches.iter().flat_map(|(bit, count)| std::iter::repeat_n(*bit, *count)).collect();
            bits.resize(bits.len().next_multiple_of(BLOCK), false);
            let mut runs = Runs::new(min);
            let mut found = Vec::new();
            for (i, block) in bits.chunks(BLOCK).enumerate() {
                let mask = block.iter().enumerate().map(|(i, bit)| u64::from(*bit) << i).sum();
                runs.block(mask, i * BLOCK, |start, end| found.push((start, end)));
            }
            runs.finish(bits.len(), |start, end| found.push((start, end)));
            prop_assert_eq!(found, plainly(&bits, min));
        }
    }
}
