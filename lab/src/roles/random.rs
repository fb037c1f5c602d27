//! Random numbers of a role: which page to read, which query to drop.

use super::SEED;

/// Xorshift generator. The stage gives the seed, so that the same seed makes the same incident.
pub struct XorShift(u64);

impl Default for XorShift {
    fn default() -> Self {
        Self::new()
    }
}

impl XorShift {
    /// Seeded from the environment, or by the pid if the role is started by hand.
    pub fn new() -> Self {
        let seed = std::env::var(SEED).ok().and_then(|seed| seed.parse().ok());
        Self::of(seed.unwrap_or_else(|| u64::from(std::process::id())))
    }

    /// Seeded by a number. Xorshift never leaves zero.
    fn of(seed: u64) -> Self {
        Self((0x9e37_79b9_7f4a_7c15 ^ seed).max(1))
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % (bound.max(1) as u64)) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::XorShift;

    #[test]
    fn the_same_seed_falls_the_same_way() {
        let thrown = |seed| {
            let mut random = XorShift::of(seed);
            (0..20).map(|_| random.below(100)).collect::<Vec<_>>()
        };
        assert_eq!(thrown(7), thrown(7));
        assert_ne!(thrown(7), thrown(8));
        let stuck = thrown(0x9e37_79b9_7f4a_7c15);
        assert!(stuck.iter().any(|n| *n != stuck[0]), "{stuck:?}");
    }
}
