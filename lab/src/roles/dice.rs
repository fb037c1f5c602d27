//! Randomness that needs no seed: where in a file to read.

/// Numbers without pattern; xorshift, seeded with the pid.
pub struct Dice(u64);

impl Default for Dice {
    fn default() -> Self {
        Self::new()
    }
}

impl Dice {
    /// A stream of its own for each process.
    pub fn new() -> Self {
        Self(0x9e37_79b9_7f4a_7c15 ^ u64::from(std::process::id()))
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % (bound.max(1) as u64)) as usize
    }
}
