//! Finds any of a list of words in one pass over bytes, letters of either case alike.
//!
//! A trie of the words with links to the longest suffix that is also a prefix (Aho and Corasick, 1975), all links followed when
//! it is made, so that a byte costs two loads: its class and the next state.

/// A state is the number of its row times the width of a row.
type State = u32;

const ROOT: State = 0;

/// The words, ready for searching.
pub(super) struct Automaton {
    /// Of a byte: the column of its row. 0 is every byte that no word has.
    class: [u8; 256],
    width: usize,
    next: Vec<State>,
    /// States from this one on end a word.
    first_end: State,
    /// Of a state that ends words: where their numbers are in `words`.
    ends: Vec<(u32, u32)>,
    words: Vec<u16>,
}

impl Automaton {
    /// `words` are given in lower case. Their number is their place in the list.
    pub(super) fn new(words: &[&str]) -> Self {
        let (class, width) = classes(words);
        let mut trie = Trie::new(width);
        for (number, word) in words.iter().enumerate() {
            trie.insert(word.bytes().map(|b| usize::from(class[usize::from(b)])), number);
        }
        trie.link();
        trie.numbered(class)
    }

    /// Where the first word that ends after `from` ends.
    pub(super) fn find(&self, bytes: &[u8], from: usize) -> Option<usize> {
        let mut state = ROOT;
        for (i, byte) in bytes.get(from..)?.iter().enumerate() {
            state = self.step(state, *byte);
            if state >= self.first_end {
                return Some(from + i + 1);
            }
        }
        None
    }

    /// Calls back with the number of each word and the place after its end, in order.
    pub(super) fn each(&self, bytes: &[u8], mut found: impl FnMut(usize, usize)) {
        let mut state = ROOT;
        for (i, byte) in bytes.iter().enumerate() {
            state = self.step(state, *byte);
            if state >= self.first_end {
                let (from, to) = self.ends[((state - self.first_end) as usize) / self.width];
                for word in &self.words[from as usize..to as usize] {
                    found(usize::from(*word), i + 1);
                }
            }
        }
    }

    fn step(&self, state: State, byte: u8) -> State {
        self.next[state as usize + usize::from(self.class[usize::from(byte)])]
    }
}

/// A column for each byte that occurs in a word; both cases of a letter share theirs.
fn classes(words: &[&str]) -> ([u8; 256], usize) {
    let mut class = [0_u8; 256];
    let mut width = 1_u8;
    for byte in words.iter().flat_map(|w| w.bytes()) {
        if class[usize::from(byte)] == 0 {
            class[usize::from(byte)] = width;
            class[usize::from(byte.to_ascii_uppercase())] = width;
            width += 1;
        }
    }
    (class, usize::from(width))
}

/// The automaton while it is made: rows are nodes in the order in which they were added.
struct Trie {
    width: usize,
    next: Vec<Option<usize>>,
    ends: Vec<Vec<u16>>,
}

impl Trie {
    fn new(width: usize) -> Self {
        Self { width, next: vec![None; width], ends: vec![Vec::new()] }
    }

    fn insert(&mut self, word: impl Iterator<Item = usize>, number: usize) {
        let mut node = 0;
        for class in word {
            let at = node * self.width + class;
            node = match self.next[at] {
                Some(node) => node,
                None => {
                    let new = self.ends.len();
                    self.next[at] = Some(new);
                    self.next.resize(self.next.len() + self.width, None);
                    self.ends.push(Vec::new());
                    new
                }
            };
        }
        self.ends[node].push(u16::try_from(number).unwrap_or(u16::MAX));
    }

    /// Follows the suffix links level by level: a missing step of a node is the step of its suffix.
    fn link(&mut self) {
        let mut suffix = vec![0; self.ends.len()];
        let mut queue = std::collections::VecDeque::new();
        for class in 0..self.width {
            match self.next[class] {
                Some(node) => queue.push_back(node),
                None => self.next[class] = Some(0),
            }
        }
        while let Some(node) = queue.pop_front() {
            let inherited = self.ends[suffix[node]].clone();
            self.ends[node].extend(inherited);
            for class in 0..self.width {
                let fallback = self.next[suffix[node] * self.width + class].unwrap_or(0);
                let step = &mut self.next[node * self.width + class];
                match *step {
                    Some(child) => {
                        suffix[child] = fallback;
                        queue.push_back(child);
                    }
                    None => *step = Some(fallback),
                }
            }
        }
    }

    /// Puts the nodes that end a word behind the others, so that one comparison tells them.
    fn numbered(self, class: [u8; 256]) -> Automaton {
        let width = self.width;
        let mut order: Vec<usize> = (0..self.ends.len()).collect();
        order.sort_by_key(|node| !self.ends[*node].is_empty());
        let mut state = vec![0; order.len()];
        for (row, node) in order.iter().enumerate() {
            state[*node] = State::try_from(row * width).unwrap_or(State::MAX);
        }
        let plain = order.iter().filter(|node| self.ends[**node].is_empty()).count();
        let mut words = Vec::new();
        let mut ends = Vec::new();
        let mut next = Vec::with_capacity(self.next.len());
        for node in order {
            let row = &self.next[node * width..(node + 1) * width];
            next.extend(row.iter().map(|step| state[step.unwrap_or(0)]));
            if !self.ends[node].is_empty() {
                let from = words.len() as u32;
                words.extend(&self.ends[node]);
                ends.push((from, words.len() as u32));
            }
        }
        Automaton { class, width, next, first_end: (plain * width) as State, ends, words }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(words: &[&str], text: &str) -> Vec<(usize, usize)> {
        let mut found = Vec::new();
        Automaton::new(words).each(text.as_bytes(), |word, end| found.push((word, end)));
        found.sort_unstable();
        found
    }

    /// The slow way.
    fn naive(words: &[&str], text: &str) -> Vec<(usize, usize)> {
        let text = text.to_ascii_lowercase();
        let mut found = Vec::new();
        for (number, word) in words.iter().enumerate() {
            let ends = word.len()..=text.len();
            found.extend(ends.filter(|end| text[..*end].ends_with(word)).map(|end| (number, end)));
        }
        found
    }

    #[test]
    fn words_inside_of_words_and_across_are_found() {
        let words = ["pass", "password", "word", "swor", "://", "a"];
        for text in ["PassWord", "passwpassword://", "", "swordpass", "aaa", "xyz"] {
            assert_eq!(all(&words, text), naive(&words, text), "{text}");
        }
    }

    #[test]
    fn the_first_end_is_found_from_anywhere() {
        let automaton = Automaton::new(&["key", "token"]);
        let text = b"a key and a token";
        assert_eq!(automaton.find(text, 0), Some(5));
        assert_eq!(automaton.find(text, 5), Some(17));
        assert_eq!(automaton.find(text, 17), None);
        assert_eq!(automaton.find(text, 99), None);
    }

    proptest::proptest! {
        #[test]
        fn it_finds_what_the_slow_way_finds(words in proptest::collection::vec("[ab]{1,4}", 1..8), text in "[abAc]{0,40}") {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            proptest::prop_assert_eq!(all(&words, &text), naive(&words, &text));
        }
    }
}
