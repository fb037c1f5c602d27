//! Parameters of a run, drawn by seed: the same seed makes the same incident.

/// Words for service names. A drawn name does not tell what the process does.
const WORDS: &[&str] = &[
    "order", "ledger", "invoice", "cart", "stock", "mail", "route", "price", "quote", "user", "token",
    "event", "audit", "index", "report", "batch", "media", "thumb", "geo", "feed", "queue", "sync", "vault",
    "relay", "metric", "pay", "ship", "tax", "fleet", "claim", "seat", "ticket", "crawl", "score", "parse",
    "merge", "trade", "risk", "chat", "video",
];

/// Suffixes that turn a word into a process name.
const ENDINGS: &[&str] = &["d", "-api", "-srv", "-worker", "er", "ctl", "-agent", "-svc", "2", "-main"];

/// The kernel truncates process names to this length.
const NAME_MAX: usize = 15;

/// A stream of numbers that depends only on the seed and on the name it was created for.
#[derive(Clone, Debug)]
pub struct Draw {
    state: u64,
    names: Vec<String>,
}

impl Draw {
    /// `what` separates the streams of different incidents, so that their order does not matter.
    pub fn new(seed: u64, what: &str) -> Self {
        // FNV-1a over the name. splitmix64 below scatters it.
        let hash = what
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325, |h: u64, b| (h ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3));
        Self { state: hash ^ seed.wrapping_mul(0x9e37_79b9_7f4a_7c15), names: Vec::new() }
    }

    /// The next number, all 64 bits.
    pub fn number(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number of `[0, 1)`.
    fn unit(&mut self) -> f64 {
        (self.number() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A whole number from `lo` to `hi`, both included, log-uniform: sizes and rates differ by
    /// factors.
    pub fn between(&mut self, lo: u64, hi: u64) -> u64 {
        if hi <= lo {
            return lo;
        }
        // From half a step below to half a step above: the ends come as often as their neighbours.
        let (from, to) = ((lo as f64 + 0.5).ln(), (hi as f64 + 1.5).ln());
        let value = (from + self.unit() * (to - from)).exp() - 0.5;
        (value as u64).clamp(lo, hi)
    }

    /// A whole number from `lo` to `hi`, both included, uniform: for choices such as CPUs.
    pub fn uniform(&mut self, lo: u64, hi: u64) -> u64 {
        lo + self.number() % (hi.saturating_sub(lo) + 1)
    }

    /// A real number from `lo` to `hi`, uniform.
    pub fn real(&mut self, lo: f64, hi: f64) -> f64 {
        lo + self.unit() * (hi - lo)
    }

    /// One of `choices`. Panics if there are none, which is a bug of the incident.
    pub fn pick<T: Clone>(&mut self, choices: &[T]) -> T {
        let at = (self.number() % choices.len().max(1) as u64) as usize;
        choices[at].clone()
    }

    /// A plausible process name of at most 15 characters, unique on a stage.
    pub fn name(&mut self) -> String {
        loop {
            let mut name = self.pick(WORDS).to_owned() + self.pick(ENDINGS);
            name.truncate(NAME_MAX);
            if !self.names.contains(&name) {
                self.names.push(name.clone());
                return name;
            }
        }
    }

    /// Shuffles `items`.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            let j = (self.number() % (i as u64 + 1)) as usize;
            items.swap(i, j);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Draw;

    #[test]
    fn same_seed_same_numbers_other_seed_or_name_others() {
        let numbers = |seed, what| {
            let mut d = Draw::new(seed, what);
            (0..8).map(|_| d.number()).collect::<Vec<_>>()
        };
        assert_eq!(numbers(7, "a"), numbers(7, "a"));
        assert_ne!(numbers(7, "a"), numbers(8, "a"));
        assert_ne!(numbers(7, "a"), numbers(7, "b"));
    }

    #[test]
    fn between_reaches_both_ends_and_nothing_else() {
        let mut d = Draw::new(1, "t");
        let drawn: Vec<u64> = (0..2_000).map(|_| d.between(2, 5)).collect();
        assert_eq!((drawn.iter().min(), drawn.iter().max()), (Some(&2), Some(&5)));
        assert_eq!(d.between(9, 9), 9);
        assert_eq!(d.between(9, 3), 9);
    }

    #[test]
    fn between_is_log_uniform() {
        let mut d = Draw::new(3, "t");
        let small = (0..10_000).filter(|_| d.between(1, 1 << 20) < 1 << 10).count();
        assert!((4_500..5_500).contains(&small), "{small} of 10000 below the geometric middle");
    }

    #[test]
    fn uniform_takes_each_as_often() {
        let mut d = Draw::new(2, "t");
        let zeros = (0..10_000).filter(|_| d.uniform(0, 1) == 0).count();
        assert!((4_700..5_300).contains(&zeros), "{zeros}");
        assert!((0..100).all(|_| (3..=5).contains(&d.uniform(3, 5))));
    }

    #[test]
    fn names_fit_and_never_repeat() {
        let mut d = Draw::new(4, "t");
        let mut names: Vec<String> = (0..100).map(|_| d.name()).collect();
        assert!(names.iter().all(|n| !n.is_empty() && n.len() <= 15));
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 100);
    }

    #[test]
    fn shuffle_keeps_everything() {
        let mut items: Vec<u32> = (0..50).collect();
        Draw::new(5, "t").shuffle(&mut items);
        assert_ne!(items, (0..50).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..50).collect::<Vec<_>>());
    }
}
