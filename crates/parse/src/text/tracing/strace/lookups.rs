//! Names that were looked up and did not exist, by directory.

use crate::text::prelude::*;

use crate::text::tracing::tally::{Clock, NAMES_MAX, Tally, hash};

/// Different names of one directory that are counted exactly. Beyond, a half, a quarter… of all is kept, chosen by
/// hash, which is right to half a percent.
const EXACT_MAX: usize = 65_536;
/// Hashes of names that are kept, of all directories together: 16 MB.
const HASHES_MAX: usize = 2 * 1024 * 1024;
/// Different patterns of one directory that are counted.
const PATTERNS_MAX: usize = 16;
/// The first names of a directory are all looked at for their pattern, then one of so many.
const EVERY: u64 = 64;
/// A longer path than the kernel takes is none.
const PATH_MAX: usize = 4096;

/// The names that were missing, by directory.
pub(in crate::text::tracing) struct Lookups {
    tally: Tally,
    dirs: Vec<Dir>,
    hashes: usize,
    last: usize,
    joined: Vec<u8>,
}

#[derive(Default)]
struct Dir {
    names: Names,
    seen: u64,
    patterns: Vec<(Box<[u8]>, u64)>,
    program: Option<String>,
}

impl Lookups {
    pub(in crate::text::tracing) fn new() -> Self {
        Lookups {
            tally: Tally::new(&["lookup.failed"]),
            dirs: Vec::new(),
            hashes: 0,
            last: 0,
            joined: Vec::new(),
        }
    }

    /// See [`Tally::tick`].
    #[inline]
    pub(in crate::text::tracing) fn tick(&mut self, clock: Clock, t: i64, line: u32, import: &mut Import) {
        self.tally.tick(clock, t, line, import);
    }

    /// A path was looked up in vain. `base` is what it is relative to, where that is known.
    pub(in crate::text::tracing) fn failed(&mut self, base: &[u8], path: &[u8], program: &[u8], line: u32) {
        if path.is_empty() || path.len() > PATH_MAX {
            return;
        }
        if path.first() != Some(&b'/') && !base.is_empty() {
            let mut joined = std::mem::take(&mut self.joined);
            joined.clear();
            joined.extend_from_slice(base);
            joined.push(b'/');
            joined.extend_from_slice(path);
            self.put(&joined, program, line);
            self.joined = joined;
        } else {
            self.put(path, program, line);
        }
    }

    fn put(&mut self, path: &[u8], program: &[u8], line: u32) {
        let path = path.strip_suffix(b"/").unwrap_or(path);
        let (dir, name): (&[u8], &[u8]) = match memchr::memrchr(b'/', path) {
            Some(0) => (b"/", path.get(1..).unwrap_or_default()),
            Some(at) => {
                path.split_at_checked(at).map_or((b"", path), |(d, n)| (d, n.get(1..).unwrap_or_default()))
            }
            None => (b".", path),
        };
        let at = if self.tally.name(self.last) == dir { self.last } else { self.tally.find(dir) };
        let at = at.min(NAMES_MAX - 1);
        self.last = at;
        self.tally.count(at, line).n += 1;
        if self.dirs.len() <= at {
            self.dirs.resize_with(at + 1, Dir::default);
        }
        let Some(dir) = self.dirs.get_mut(at) else { return };
        dir.seen += 1;
        let before = dir.names.kept;
        dir.names.add(hash(name), self.hashes < HASHES_MAX);
        self.hashes = (self.hashes + dir.names.kept).saturating_sub(before);
        if dir.seen <= EVERY || dir.seen.is_multiple_of(EVERY) {
            dir.pattern(name);
        }
        if dir.program.is_none() && !program.is_empty() {
            dir.program = Some(text(program));
        }
    }

    /// Writes everything down.
    pub(in crate::text::tracing) fn finish(mut self, import: &mut Import) {
        let totals = self.tally.finish(import);
        let Some(unique) = Column::new("lookup.unique", Form::Level, 1.0) else { return };
        let group = import.group(vec![unique]);
        for ((name, _, line), dir) in totals.into_iter().zip(self.dirs) {
            if let Some(slot) = import.row(group, &name, When::Fact, line).first_mut() {
                *slot = slot.max(dir.names.estimate());
            }
            let row = text(&name);
            if let Some((pattern, _)) = dir.patterns.iter().max_by_key(|p| p.1) {
                import.text("lookup.pattern", &row, When::Fact, &text(pattern));
            }
            if let Some(program) = &dir.program {
                import.text("lookup.program", &row, When::Fact, program);
            }
        }
    }
}

impl Dir {
    fn pattern(&mut self, name: &[u8]) {
        let pattern = pattern(name);
        if let Some(known) = self.patterns.iter_mut().find(|p| *p.0 == *pattern) {
            known.1 += 1;
        } else if self.patterns.len() < PATTERNS_MAX {
            self.patterns.push((pattern.into(), 1));
        }
    }
}

/// A name with each run of digits as `N`; letters of hex digits count when there are digits among them and the run is
/// long enough to be no word.
fn pattern(name: &[u8]) -> Vec<u8> {
    const HEX_MIN: usize = 6;
    let mut out = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some(byte) = rest.first() {
        let hex = rest.iter().take_while(|b| b.is_ascii_hexdigit()).count();
        let decimal = rest.iter().take_while(|b| b.is_ascii_digit()).count();
        let mixed = rest.get(..hex).is_some_and(|run| run.iter().any(u8::is_ascii_digit));
        let whole = !out.last().is_some_and(u8::is_ascii_alphanumeric)
            && !rest.get(hex).is_some_and(u8::is_ascii_alphanumeric);
        let taken = if hex >= HEX_MIN && mixed && whole { hex } else { decimal };
        if taken > 0 {
            out.push(b'N');
        } else {
            out.push(*byte);
        }
        rest = rest.get(taken.max(1)..).unwrap_or_default();
    }
    out
}

/// How many different hashes there were. An open table whose size is a power of two; 0 is a free place.
#[derive(Default)]
struct Names {
    table: Vec<u64>,
    kept: usize,
    /// Only hashes with so many zeros at the end are kept.
    level: u32,
}

impl Names {
    fn add(&mut self, hash: u64, may_grow: bool) {
        let hash = hash.max(1);
        if hash.trailing_zeros() < self.level {
            return;
        }
        if self.kept >= EXACT_MAX {
            self.thin();
            return self.add(hash, may_grow);
        }
        if (self.kept + 1) * 2 > self.table.len() {
            if may_grow || self.kept < 8 {
                self.rebuild((self.table.len() * 2).max(16));
            } else {
                self.thin();
                return self.add(hash, may_grow);
            }
        }
        if insert(&mut self.table, hash) {
            self.kept += 1;
        }
    }

    /// Keeps about half.
    fn thin(&mut self) {
        self.level += 1;
        let level = self.level;
        self.table.iter_mut().filter(|h| h.trailing_zeros() < level).for_each(|h| *h = 0);
        self.rebuild(self.table.len());
    }

    fn rebuild(&mut self, size: usize) {
        let old = std::mem::replace(&mut self.table, vec![0; size]);
        self.kept = old.into_iter().filter(|h| *h != 0 && insert(&mut self.table, *h)).count();
    }

    fn estimate(&self) -> f64 {
        self.kept as f64 * 2_f64.powi(self.level as i32)
    }
}

/// Whether it was not there yet.
fn insert(table: &mut [u64], hash: u64) -> bool {
    let mask = table.len().wrapping_sub(1);
    let mut at = (hash >> 20) as usize & mask;
    while let Some(place) = table.get_mut(at) {
        if *place == 0 {
            *place = hash;
            return true;
        }
        if *place == hash {
            return false;
        }
        at = (at + 1) & mask;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_names_are_counted_exactly_and_then_closely() {
        let mut names = Names::default();
        for round in 0..2 {
            for i in 0..60_000_u64 {
                names.add(hash(format!(".{i}_dOeSnotExist_.db").as_bytes()), true);
            }
            assert_eq!(names.estimate(), 60_000.0, "{round}");
        }
        for i in 0..1_000_000_u64 {
            names.add(hash(format!(".{i}_dOeSnotExist_.db").as_bytes()), true);
        }
        assert!((names.estimate() / 1e6 - 1.0).abs() < 0.02, "{}", names.estimate());
        assert!(names.kept <= EXACT_MAX && names.table.len() <= 2 * EXACT_MAX);
    }

    #[test]
    fn a_full_store_thins_out() {
        let mut names = Names::default();
        for i in 0..10_000_u64 {
            names.add(hash(&i.to_le_bytes()), i < 100);
        }
        assert!(names.table.len() <= 256, "{}", names.table.len());
        assert!((names.estimate() / 1e4 - 1.0).abs() < 0.5);
    }

    #[test]
    fn patterns() {
        for (name, expected) in [
            (".3219811409_dOeSnotExist_.db", ".N_dOeSnotExist_.db"),
            ("libfoo.so.6", "libfoo.so.N"),
            ("deadbeef", "deadbeef"),
            ("a3f09c1e22.tmp", "N.tmp"),
            ("face", "face"),
            ("x86_64", "xN_N"),
            ("", ""),
        ] {
            assert_eq!(text(&pattern(name.as_bytes())), expected, "{name}");
        }
    }
}
