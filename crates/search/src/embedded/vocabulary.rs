//! The tokens of the index and their posting lists, read from the pages of FTS5.
//!
//! Through its tables FTS5 takes ten times as long, because it runs SQL for each token and each
//! content. The page layout is part of the file format (described in `fts5_index.c`). With
//! `detail = none` it is simple:
//!
//! ```text
//! page      0, 0, offset of `places` (2 bytes); rows of the last word of the page before;
//!           words; places
//! word      bytes shared with the word before (not in a page's first), bytes of the rest,
//!           the rest; rows
//! rows      row ids, each as the difference to the one before; the first of a page in full
//! places    the offset of each word, as the difference to the one before
//! ```
//!
//! Pages keep deleted rows until they are merged. No state refers to such a content.

use std::ops::RangeInclusive;

use rusqlite::{Connection, Error, Result, ffi};

/// The prefix of every token in the main index. Other indexes of FTS5 have other prefixes.
const MAIN: u8 = b'0';

/// The next segment.
const SEGMENT: &str = "SELECT min(segid) FROM word_idx WHERE segid > ?";
/// The pages of a segment that may have tokens from `?2` to `?3`. `word_idx` has the first token of
/// each page. Tokens from `?2` on begin in the last page whose first token is not greater. The rows
/// of the last token may end in the first page whose first token is greater than `?3`. `word_idx`
/// also lists pages that were merged away, and omits pages with rows only. In the id of a page, the
/// bits from 37 on are the segment.
const PAGES: &str = "SELECT block FROM word_data WHERE id BETWEEN (?1 << 37) + \
       (SELECT pgno >> 1 FROM word_idx WHERE segid = ?1 AND term <= ?2 ORDER BY term DESC LIMIT 1) \
     AND (?1 << 37) + ifnull( \
       (SELECT pgno >> 1 FROM word_idx WHERE segid = ?1 AND term > ?3 ORDER BY term LIMIT 1), (1 << 36) - 1) \
     ORDER BY id";

/// Calls `take` with every content of each token in `range` that passes a test. The order is
/// ascending for each token and segment.
pub(super) fn having(
    db: &Connection,
    range: RangeInclusive<&str>,
    mut passes: impl FnMut(&str) -> bool,
    mut take: impl FnMut(i64),
) -> Result<()> {
    let key = |word: &str| [&[MAIN], word.as_bytes()].concat();
    let (low, high) = (key(range.start()), key(range.end()));
    let mut passes = |key: &[u8]| match key.split_first() {
        Some((&MAIN, word)) => {
            std::str::from_utf8(word).is_ok_and(|word| range.contains(&word) && passes(word))
        }
        _ => false,
    };
    let (mut segments, mut pages) = (db.prepare_cached(SEGMENT)?, db.prepare_cached(PAGES)?);
    let (mut key, mut segment) = (Vec::new(), 0);
    while let Some(next) = segments.query_row([segment], |row| row.get::<_, Option<i64>>(0))? {
        segment = next;
        let mut passed = false;
        let mut pages = pages.query((segment, &low, &high))?;
        while let Some(page) = pages.next()? {
            read(page.get_ref(0)?.as_blob()?, &mut key, &mut passed, &mut passes, &mut take)
                .ok_or_else(damaged)?;
        }
    }
    Ok(())
}

fn damaged() -> Error {
    let what = "a page of words is damaged".to_owned();
    Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_CORRUPT), Some(what))
}

/// Reads one page. `passed` says whether the last token of the page before passed.
fn read(
    page: &[u8],
    key: &mut Vec<u8>,
    passed: &mut bool,
    passes: &mut impl FnMut(&[u8]) -> bool,
    take: &mut impl FnMut(i64),
) -> Option<()> {
    let end = usize::from(u16::from_be_bytes(*page.get(2..)?.first_chunk()?));
    let (page, mut places) = page.split_at_checked(end)?;
    let (mut at, mut place) = (4, 0);
    key.clear();
    loop {
        let is_last = places.is_empty();
        place = if is_last { end } else { place + usize::try_from(varint(&mut places)?).ok()? };
        if *passed {
            rows(page.get(at..place)?, take)?;
        }
        if is_last {
            return Some(());
        }
        let mut word = page.get(place..)?;
        let shared = if key.is_empty() { 0 } else { varint(&mut word)? };
        let own = usize::try_from(varint(&mut word)?).ok()?;
        key.truncate(usize::try_from(shared).ok()?);
        let (own, behind) = word.split_at_checked(own)?;
        key.extend_from_slice(own);
        at = end - behind.len();
        *passed = passes(key);
    }
}

fn rows(mut from: &[u8], take: &mut impl FnMut(i64)) -> Option<()> {
    let mut row = 0_u64;
    while !from.is_empty() {
        let more = varint(&mut from)?;
        // A zero marks the row before as deleted, which does not occur here.
        if more > 0 {
            row = row.checked_add(more)?;
            take(row.cast_signed());
        }
    }
    Some(())
}

/// Decodes a SQLite varint: seven bits per byte, most significant first. Rejects nine bytes,
/// because no number here is that large.
fn varint(from: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for _ in 0..8 {
        let (byte, rest) = from.split_first()?;
        *from = rest;
        number = number << 7 | u64::from(byte & 0x7f);
        if *byte < 0x80 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::embedded::database;

    #[test]
    fn it_reads_what_fts5_reads() {
        let dir = tempfile::tempdir().unwrap();
        let db = database::open_to_write(dir.path(), &mut Vec::new()).unwrap();
        db.execute("CREATE VIRTUAL TABLE temp.word_in USING fts5vocab(main, word, instance)", []).unwrap();
        let check = |deleted: i64| {
            for (low, high, odd) in [
                ("", "\u{10ffff}", false),
                ("", "\u{10ffff}", true),
                ("word2", "word29", false),
                ("a", "word1", false),
                ("common", "common", false),
                ("word777", "x", true),
                ("é", "東", false),
                ("x", "y", false),
            ] {
                let passes = |word: &str| !odd || word.ends_with('7');
                let mut all =
                    db.prepare_cached("SELECT term, doc FROM word_in WHERE term >= ? AND term <= ?").unwrap();
                let mut rows = all.query([low, high]).unwrap();
                let mut wanted = BTreeSet::new();
                while let Some(row) = rows.next().unwrap() {
                    if passes(row.get_ref(0).unwrap().as_str().unwrap()) {
                        wanted.insert(row.get::<_, i64>(1).unwrap());
                    }
                }
                let mut found = BTreeSet::new();
                having(&db, low..=high, passes, |content| {
                    found.insert(content);
                })
                .unwrap();
                found.retain(|content| *content > deleted);
                assert!(found == wanted, "{low} {high}: {} {}", found.len(), wanted.len());
            }
        };
        // Enough that the rows of the token `common` take several pages.
        db.execute_batch("BEGIN").unwrap();
        for content in 1..6_000_i64 {
            let text: Vec<String> = (0..if content < 300 { 60 } else { 2 })
                .map(|n| format!("word{}", (content * 60 + n) * 7919 % 30_000))
                .collect();
            let text = format!("{} common é東 {}", text.join(" "), "long".repeat(content as usize % 90));
            db.execute("INSERT INTO word (rowid, text) VALUES (?, ?)", (content, text)).unwrap();
            if content % 50 == 49 && content < 300 {
                db.execute_batch("COMMIT; BEGIN").unwrap();
                check(0);
                db.execute("INSERT INTO word (word, rank) VALUES ('merge', 3)", []).unwrap();
                check(0);
            }
        }
        db.execute_batch("COMMIT").unwrap();
        check(0);
        db.execute("DELETE FROM word WHERE rowid < 3", []).unwrap();
        check(2);
        db.execute("INSERT INTO word (word) VALUES ('optimize')", []).unwrap();
        check(2);
    }
}
