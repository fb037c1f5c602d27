//! The words of the index and the contents that have each, read from the pages of FTS5.
//!
//! FTS5 itself takes ten times as long: it goes through SQL for each word and for each content. What a page looks like is a part of
//! the format of the file (`fts5_index.c` describes it); with `detail = none` it is simple:
//!
//! ```text
//! page      0, 0, where `places` begins (2 bytes); rows of the last word of the page before; words; places
//! word      bytes that it shares with the word before (not the first of a page), bytes of the rest, the rest; rows
//! rows      each as the difference to the one before, the first of a page whole
//! places    where each word begins, as the difference to the one before
//! ```
//!
//! Rows that are deleted are in it until pages are merged: no state has such a content.

use std::ops::RangeInclusive;

use rusqlite::{Connection, Error, Result, ffi};

/// What every word begins with: other indexes of FTS5 have other letters.
const MAIN: u8 = b'0';

/// The segment behind another one.
const SEGMENT: &str = "SELECT min(segid) FROM word_idx WHERE segid > ?";
/// The pages of a segment that may have words from `?2` to `?3`. `word_idx` has what pages begin with: words from `?2` on are from
/// the last page on that does not begin behind it. The rows of the last word may end in the page that does begin behind `?3`. Pages that
/// were merged away are still listed, those that only have rows are not. Above 36 bits of the number of a page is that of its segment.
const PAGES: &str = "SELECT block FROM word_data WHERE id BETWEEN (?1 << 37) + \
       (SELECT pgno >> 1 FROM word_idx WHERE segid = ?1 AND term <= ?2 ORDER BY term DESC LIMIT 1) \
     AND (?1 << 37) + ifnull( \
       (SELECT pgno >> 1 FROM word_idx WHERE segid = ?1 AND term > ?3 ORDER BY term LIMIT 1), (1 << 36) - 1) \
     ORDER BY id";

/// Calls `take` with every content that has a word of a range that passes a test, in order for each word and segment.
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

/// Reads a page. `passed` says whether the last word before passed.
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
        // A zero says something of the row before that does not happen here.
        if more > 0 {
            row = row.checked_add(more)?;
            take(row.cast_signed());
        }
    }
    Some(())
}

/// A number as SQLite writes it: seven bits in a byte, the first ones first. One of nine bytes is larger than any here.
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
        // As many as have the word `common` on several pages.
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
