//! Files of lines that begin with a key. The order of the keys is learned once; later passes only compare.

/// Upper bound for keys. Further ones are not learned and count as unknown.
const KEYS_MAX: usize = 4096;

/// The keys of a file in the order in which they came, and what each of them means.
///
/// In the steady state each line costs one comparison with the key that followed last time. A key that is missing,
/// new or elsewhere costs a walk along the list; only a key that was never seen costs an allocation.
#[derive(Debug)]
pub(crate) struct Keyed<S> {
    entries: Vec<Entry<S>>,
    /// The entry that is expected next.
    next: usize,
    /// Counts the passes; an entry remembers the one in which it was last seen.
    pass: u32,
}

#[derive(Debug)]
struct Entry<S> {
    /// With the delimiter at its end, so that no key is the beginning of another.
    key: Box<[u8]>,
    slot: S,
    seen: u32,
}

/// A line that begins with a known key.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct KeyedLine<'a, S> {
    /// Its meaning.
    pub(crate) slot: S,
    /// Whether it is a duplicate in this pass.
    pub(crate) again: bool,
    /// The rest of the input, after key and delimiter.
    pub(crate) rest: &'a [u8],
}

impl<S> Default for Keyed<S> {
    fn default() -> Self {
        Keyed { entries: Vec::new(), next: 0, pass: 0 }
    }
}

impl<S: Copy> Keyed<S> {
    /// Begins the file, or a part of it in which each key may come again.
    pub(crate) fn begin_pass(&mut self) {
        self.pass = self.pass.wrapping_add(1);
    }

    /// Begins the file.
    pub(crate) fn begin(&mut self) {
        self.begin_pass();
        self.next = 0;
    }

    /// Finds the key at the start of the input. `None` if there is none, or there are too many keys.
    ///
    /// `key_length` measures a new key, and `classify` says what it means. The measure must end with the first
    /// delimiter, so that a damaged key is never a prefix of a good one.
    pub(crate) fn find<'a>(
        &mut self,
        input: &'a [u8],
        key_length: impl FnOnce(&[u8]) -> Option<usize>,
        classify: impl FnOnce(&[u8]) -> S,
    ) -> Option<KeyedLine<'a, S>> {
        let pass = self.pass;
        if let Some(entry) = self.entries.get_mut(self.next)
            && let Some(rest) = input.strip_prefix(&*entry.key)
        {
            self.next += 1;
            let again = std::mem::replace(&mut entry.seen, pass) == pass;
            return Some(KeyedLine { slot: entry.slot, again, rest });
        }
        let at = self.elsewhere(input).or_else(|| self.learn(input, key_length, classify))?;
        self.next = at + 1;
        let entry = self.entries.get_mut(at)?;
        let again = std::mem::replace(&mut entry.seen, pass) == pass;
        Some(KeyedLine { slot: entry.slot, again, rest: input.strip_prefix(&*entry.key)? })
    }

    /// Looks ahead first, for lines that are left out, then back, for parts that are repeated.
    fn elsewhere(&self, input: &[u8]) -> Option<usize> {
        let (before, after) = self.entries.split_at_checked(self.next)?;
        let is_it = |entry: &Entry<S>| input.starts_with(&entry.key);
        after.iter().position(is_it).map(|at| at + self.next).or_else(|| before.iter().rposition(is_it))
    }

    fn learn(
        &mut self,
        input: &[u8],
        key_length: impl FnOnce(&[u8]) -> Option<usize>,
        classify: impl FnOnce(&[u8]) -> S,
    ) -> Option<usize> {
        let key = input.get(..key_length(input)?)?;
        if key.is_empty() || self.entries.len() >= KEYS_MAX {
            return None;
        }
        let at = self.next.min(self.entries.len());
        let slot = classify(key);
        self.entries.insert(at, Entry { key: key.into(), slot, seen: self.pass.wrapping_sub(1) });
        Some(at)
    }
}

/// Measures a key that ends with the given byte, which belongs to it, on the first line of the input.
pub(crate) fn until(delimiter: u8) -> impl Fn(&[u8]) -> Option<usize> {
    move |input| {
        let at = input.iter().position(|b| *b == delimiter || *b == b'\n')?;
        (at > 0 && input.get(at) == Some(&delimiter)).then_some(at + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(keyed: &mut Keyed<u8>, input: &'static [u8]) -> Option<(u8, bool)> {
        let found = keyed.find(input, until(b' '), |key| key[0])?;
        assert_eq!(found.rest, b"1");
        Some((found.slot, found.again))
    }

    #[test]
    fn keys_may_come_and_go_and_come_twice() {
        let mut keyed = Keyed::default();
        for _ in 0..2 {
            keyed.begin();
            assert_eq!(find(&mut keyed, b"a 1"), Some((b'a', false)));
            assert_eq!(find(&mut keyed, b"b 1"), Some((b'b', false)));
            assert_eq!(find(&mut keyed, b"c 1"), Some((b'c', false)));
        }
        keyed.begin();
        assert_eq!(find(&mut keyed, b"a 1"), Some((b'a', false)));
        assert_eq!(find(&mut keyed, b"x 1"), Some((b'x', false)));
        assert_eq!(find(&mut keyed, b"c 1"), Some((b'c', false)));
        assert_eq!(find(&mut keyed, b"a 1"), Some((b'a', true)));
        assert_eq!(keyed.entries.len(), 4);
    }

    #[test]
    fn a_key_ends_on_its_own_line() {
        let mut keyed: Keyed<u8> = Keyed::default();
        keyed.begin();
        assert!(keyed.find(b"ab\ncd 1", until(b' '), |_| 0).is_none());
        assert!(keyed.find(b" 1", until(b' '), |_| 0).is_none());
        assert!(keyed.find(b"", until(b' '), |_| 0).is_none());
    }

    #[test]
    fn the_number_of_keys_is_bounded() {
        let mut keyed: Keyed<u32> = Keyed::default();
        keyed.begin();
        for i in 0..2 * KEYS_MAX {
            let line = format!("key{i} 1");
            assert_eq!(keyed.find(line.as_bytes(), until(b' '), |_| 0).is_some(), i < KEYS_MAX);
        }
    }
}
