//! Terms that lie near a text: by edits of characters, where swapping two neighbours is one edit, as Lucene counts it.
//!
//! What a walk has to know after some characters is a row of the well-known table of distances, of which only the cells
//! within the distance of the diagonal matter, and the row before it for swaps. That is a few bytes, so that no automaton
//! has to be made and a text may have any length.
//!
//! ```text
//!          l i n u x          after "li": no edits at "li", one at "l" and "lin", two at "" and "linu"
//!        0 1 2 . . .
//!      l 1 0 1 2 . .
//!      i 2 1 0 1 2 .
//! ```

/// Edits that can be asked for, as in Lucene.
pub const EDITS_MAX: u8 = 2;

/// Cells of a row that may matter.
const WIDTH: usize = 2 * EDITS_MAX as usize + 1;

/// What stands before the first character.
const NO_CHAR: u32 = u32::MAX;

/// A text, and how many edits away a term may be.
#[derive(Debug)]
pub struct Near {
    text: Vec<u32>,
    edits: u8,
}

/// The edits so far, for each place in the text near the place in the term. Cell `k` is the place `read + k - edits`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    read: usize,
    cells: [u8; WIDTH],
    before: [u8; WIDTH],
    last: u32,
}

impl Near {
    /// A text, and how many edits away a term may be. Near the empty text is, as in Lucene, only itself.
    pub fn new(text: &str, edits: u8) -> Result<Self, String> {
        if edits > EDITS_MAX {
            return Err(format!("{edits} edits: a fuzzy term has at most {EDITS_MAX}"));
        }
        let edits = if text.is_empty() { 0 } else { edits };
        Ok(Self { text: text.chars().map(u32::from).collect(), edits })
    }

    /// Before the first character.
    pub fn first(&self) -> Row {
        let far = self.edits + 1;
        let mut cells = [far; WIDTH];
        for (edits, place) in (0..=self.edits).zip(0..=self.text.len()) {
            cells[usize::from(self.edits) + place] = edits;
        }
        Row { read: 0, cells, before: [far; WIDTH], last: NO_CHAR }
    }

    /// After one more character; `None` when the term is too far already.
    pub fn step(&self, row: &Row, c: u32) -> Option<Row> {
        let edits = usize::from(self.edits);
        let far = self.edits + 1;
        let read = row.read + 1;
        let mut cells = [far; WIDTH];
        for k in 0..=2 * edits {
            let Some(place) = (read + k).checked_sub(edits).filter(|place| *place <= self.text.len()) else {
                continue;
            };
            let mut best = far;
            if k < 2 * edits {
                best = best.min(row.cells[k + 1] + 1);
            }
            if k > 0 {
                best = best.min(cells[k - 1] + 1);
            }
            let here = place.checked_sub(1).and_then(|at| self.text.get(at));
            let previous = place.checked_sub(2).and_then(|at| self.text.get(at));
            if let Some(here) = here {
                best = best.min(row.cells[k] + u8::from(*here != c));
                if previous == Some(&c) && *here == row.last {
                    best = best.min(row.before[k] + 1);
                }
            }
            cells[k] = best;
        }
        let near = cells.iter().any(|cell| *cell <= self.edits);
        near.then_some(Row { read, cells, before: row.cells, last: c })
    }

    /// Whether the term may end here.
    pub fn takes(&self, row: &Row) -> bool {
        let k = (self.text.len() + usize::from(self.edits)).checked_sub(row.read);
        k.and_then(|k| row.cells.get(k)).is_some_and(|cell| *cell <= self.edits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn takes(text: &str, edits: u8, term: &str) -> bool {
        let near = Near::new(text, edits).unwrap();
        let mut row = near.first();
        for c in term.chars() {
            match near.step(&row, u32::from(c)) {
                Some(next) => row = next,
                None => return false,
            }
        }
        near.takes(&row)
    }

    /// The whole table, as in textbooks.
    fn distance(a: &[char], b: &[char]) -> usize {
        let mut d = vec![vec![0; b.len() + 1]; a.len() + 1];
        for i in 0..=a.len() {
            for j in 0..=b.len() {
                d[i][j] = if i == 0 || j == 0 {
                    i + j
                } else {
                    let replaced = d[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                    replaced.min(d[i - 1][j] + 1).min(d[i][j - 1] + 1)
                };
                if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                    d[i][j] = d[i][j].min(d[i - 2][j - 2] + 1);
                }
            }
        }
        d[a.len()][b.len()]
    }

    #[test]
    fn edits_are_counted() {
        for (text, term, edits) in [
            ("swappiness", "swappiness", 0),
            ("swappiness", "swapiness", 1),
            ("swappiness", "wsappiness", 1),
            ("swappiness", "wsapipness", 2),
            ("linux", "lunix", 2),
            ("linux", "linuxes", 2),
            ("ab", "ba", 1),
            ("", "a", 3),
            ("", "", 0),
            ("ab", "", 2),
            ("größe", "grosse", 3),
            ("größe", "grösse", 2),
            ("ca", "abc", 3),
        ] {
            for allowed in 0..=EDITS_MAX {
                assert_eq!(
                    takes(text, allowed, term),
                    usize::from(allowed) >= edits,
                    "{text} {term} {allowed}"
                );
            }
        }
        assert!(Near::new("a", 3).is_err());
    }

    proptest! {
        #[test]
        fn the_band_knows_what_the_whole_table_knows(
            text in "[abcä]{1,9}", term in "[abcä]{0,9}", edits in 0..=EDITS_MAX,
        ) {
            let (a, b): (Vec<char>, Vec<char>) = (text.chars().collect(), term.chars().collect());
            prop_assert_eq!(takes(&text, edits, &term), distance(&a, &b) <= usize::from(edits));
        }
    }
}
