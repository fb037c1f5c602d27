//! Rows of a table that are named by the file: disks, devices, caches, zones.

use mitra_model::{Key, Strings, Table};

/// Upper bound for names; beyond it all are learned again.
const ROWS_MAX: usize = 16_384;

/// The names of a file in the order in which they came, each with its key.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    entries: Vec<Entry>,
    generation: u32,
    /// The entry that is expected next.
    next: usize,
    /// Counts the passes; an entry remembers the one in which it was last seen.
    pass: u32,
    /// The table was empty when the pass began, so that a new name has no row yet.
    fresh: bool,
}

#[derive(Debug)]
struct Entry {
    raw: Box<[u8]>,
    key: Key,
    /// The index of its row in the last pass.
    row: usize,
    seen: u32,
    /// Another raw name has the same text; only the first has a row.
    alias: bool,
}

impl Rows {
    /// Begins a file.
    pub(crate) fn begin(&mut self, strings: &Strings, table: &Table) {
        if self.generation != strings.generation() {
            self.generation = strings.generation();
            self.entries.clear();
        }
        self.next = 0;
        self.pass = self.pass.wrapping_add(1);
        self.fresh = table.is_empty();
    }

    /// The row of the name, appended if the table has none. `None` for a name that came in this pass already.
    pub(crate) fn row<'t>(
        &mut self,
        raw: &[u8],
        text: impl FnOnce(&[u8]) -> String,
        strings: &mut Strings,
        table: &'t mut Table,
    ) -> Option<&'t mut [i64]> {
        let row = self.position(raw, text, strings, table, true)?;
        Some(table.row_mut(row))
    }

    /// The position of the row of the name; without `push` only of a row that exists, or when the table was empty.
    pub(crate) fn position(
        &mut self,
        raw: &[u8],
        text: impl FnOnce(&[u8]) -> String,
        strings: &mut Strings,
        table: &mut Table,
        push: bool,
    ) -> Option<usize> {
        let at = self.find(raw).unwrap_or_else(|| self.learn(raw, text, strings));
        self.next = at + 1;
        let (pass, fresh) = (self.pass, self.fresh);
        let entry = self.entries.get_mut(at)?;
        if entry.alias || std::mem::replace(&mut entry.seen, pass) == pass {
            return None;
        }
        if table.keys().get(entry.row) == Some(&entry.key) {
            return Some(entry.row);
        }
        let known = if fresh { None } else { table.keys().iter().position(|key| *key == entry.key) };
        entry.row = match known {
            Some(row) => row,
            None if push || fresh => {
                table.push(entry.key);
                table.len() - 1
            }
            None => return None,
        };
        Some(entry.row)
    }

    fn find(&self, raw: &[u8]) -> Option<usize> {
        let is_it = |entry: &Entry| *entry.raw == *raw;
        if self.entries.get(self.next).is_some_and(is_it) {
            return Some(self.next);
        }
        self.entries.iter().position(is_it)
    }

    fn learn(&mut self, raw: &[u8], text: impl FnOnce(&[u8]) -> String, strings: &mut Strings) -> usize {
        if self.entries.len() >= ROWS_MAX {
            self.entries.clear();
            self.next = 0;
            self.fresh = false;
        }
        let key = Key::named(strings.intern(&text(raw)));
        let alias = self.entries.iter().any(|entry| entry.key == key);
        let at = self.next.min(self.entries.len());
        let seen = self.pass.wrapping_sub(1);
        self.entries.insert(at, Entry { raw: raw.into(), key, row: usize::MAX, seen, alias });
        at
    }
}

/// The bytes as text; invalid UTF-8 is replaced.
pub(crate) fn lossy(raw: &[u8]) -> String {
    String::from_utf8_lossy(raw).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use mitra_model::Entity;

    #[test]
    fn names_keep_their_rows_and_come_once() {
        let mut strings = Strings::new();
        let mut rows = Rows::default();
        for round in 0..3 {
            let mut table = Table::new(Entity::Disk);
            if round == 2 {
                table.push(Key::named(strings.intern("b")));
            }
            rows.begin(&strings, &table);
            for name in [b"a", b"b", b"c"] {
                assert!(rows.row(name, lossy, &mut strings, &mut table).is_some());
            }
            assert!(rows.row(b"a", lossy, &mut strings, &mut table).is_none());
            assert_eq!(table.len(), 3);
        }
    }

    #[test]
    fn two_names_with_one_text_share_no_row() {
        let mut strings = Strings::new();
        let mut rows = Rows::default();
        for _ in 0..2 {
            let mut table = Table::new(Entity::Disk);
            rows.begin(&strings, &table);
            assert!(rows.row(b"\xff", lossy, &mut strings, &mut table).is_some());
            assert!(rows.row(b"\xfe", lossy, &mut strings, &mut table).is_none());
            assert_eq!(table.len(), 1);
        }
    }

    #[test]
    fn ids_are_learned_anew_with_the_strings() {
        let mut strings = Strings::new();
        strings.intern("other");
        let mut rows = Rows::default();
        for id in [1, 0] {
            let mut table = Table::new(Entity::Disk);
            rows.begin(&strings, &table);
            rows.row(b"a", lossy, &mut strings, &mut table);
            assert_eq!(table.keys(), [Key::named(id)]);
            strings.clear();
        }
    }
}
