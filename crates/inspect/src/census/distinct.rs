//! Estimates distinct strings in four kilobytes: HyperLogLog (Flajolet, Fusy, Gandouet, Meunier
//! 2007). The standard error is 1.04 / √4096, 1.6 %.

/// Bits of the hash that select a register.
const BITS: u32 = 12;
const REGISTERS: usize = 1 << BITS;

/// The registers.
pub(super) struct Distinct {
    longest: Box<[u8; REGISTERS]>,
}

impl Distinct {
    pub(super) fn new() -> Self {
        Self { longest: Box::new([0; REGISTERS]) }
    }

    #[inline(always)]
    pub(super) fn add(&mut self, hash: u64) {
        let register = (hash >> (u64::BITS - BITS)) as usize & (REGISTERS - 1);
        let zeros = (hash | 1 << (u64::BITS - BITS)).trailing_zeros() as u8 + 1;
        if self.longest[register] < zeros {
            self.longest[register] = zeros;
        }
    }

    pub(super) fn estimate(&self) -> u64 {
        let registers = REGISTERS as f64;
        let empty = self.longest.iter().filter(|zeros| **zeros == 0).count();
        let sum: f64 = self.longest.iter().map(|zeros| (-f64::from(*zeros)).exp2()).sum();
        let estimate = 0.7213 / (1.0 + 1.079 / registers) * registers * registers / sum;
        // Small cardinalities: linear counting by empty registers.
        if estimate <= 2.5 * registers && empty > 0 {
            return (registers * (registers / empty as f64).ln()).round() as u64;
        }
        estimate.round() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::super::hash::of_number;
    use super::*;

    #[test]
    fn different_ones_are_counted_once_each() {
        for count in [0_u64, 1, 100, 5_000, 100_000, 2_000_000] {
            let mut distinct = Distinct::new();
            for i in 0..count {
                distinct.add(of_number(i));
                distinct.add(of_number(i / 2));
            }
            let off = (distinct.estimate() as f64 - count as f64).abs();
            assert!(off <= 4.0 * 0.016 * count as f64, "{count}: {off}");
        }
    }
}
