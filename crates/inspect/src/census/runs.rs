//! Runs of bits that are long enough, out of masks that come one after the other.

use super::classify::BLOCK;

/// Halvings of a block: so many steps find runs of any length in it.
const STEPS: usize = 6;

/// Looks for runs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Runs {
    /// How many bits make a run.
    min: usize,
    /// A bit stays if the bits so far behind it stayed too; taken in this order, what stays begins a run of `min`.
    steps: [u32; STEPS],
    /// Where the run that touches the end of the last mask began; the end itself if none does.
    open: usize,
}

impl Runs {
    pub(super) fn new(min: usize) -> Self {
        let mut steps = [0; STEPS];
        let mut have = 1;
        for step in &mut steps {
            // Within one mask nothing longer counts: what is as long touches an end.
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

    /// Begins anew at a place.
    pub(super) fn start(&mut self, place: usize) {
        self.open = place;
    }

    /// Where the run that is not over yet began.
    pub(super) fn open(&self) -> usize {
        self.open
    }

    /// What of a run that is not over yet is done with.
    pub(super) fn cut(&mut self, place: usize) {
        self.open = self.open.max(place);
    }

    /// Where runs begin that lie within a mask, or go on over its end.
    #[inline(always)]
    pub(super) fn starts(&self, mask: u64) -> u64 {
        self.steps.iter().fold(mask, |starts, step| starts & starts >> step)
    }

    /// Takes the mask of the block that begins at `base`, and gives the runs that end in it.
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
        // Without the run at the front, and the one at the end.
        let inner = mask & mask.wrapping_add(1) & (u64::MAX >> tail);
        let mut starts = self.starts(inner);
        while starts != 0 {
            let start = starts.trailing_zeros();
            let end = start + (inner >> start).trailing_ones();
            run(base + start as usize, base + end as usize);
            // The run does not touch the end of the mask, so that fewer than 64 bits are shifted out.
            starts &= u64::MAX << end;
        }
    }

    /// Says what is open at the end, at `place`.
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
