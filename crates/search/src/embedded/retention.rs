//! Deletes old days, all but the last state per day of volatile documents, and contents that
//! no state refers to.

use std::collections::BTreeSet;

use rusqlite::{Connection, OptionalExtension, params};

use super::content::About;
use crate::backend::Deleted;
use crate::day::Day;

/// Before anything is deleted, this many of the last 2 × this many days must be stored; fewer if
/// fewer days are kept.
const DAYS_WANTED: usize = 3;

/// A planned deletion.
pub(super) struct Plan {
    /// The first day that is kept; `None` if nothing is deleted.
    pub from: Option<Day>,
    /// The reported outcome.
    pub said: Deleted,
}

/// The days on which any host was read.
pub(super) fn days(db: &Connection) -> rusqlite::Result<BTreeSet<Day>> {
    let mut statement = db.prepare("SELECT DISTINCT day FROM day")?;
    statement.query_map([], |row| row.get(0).map(Day))?.collect()
}

/// Which of the days before `day` may be deleted, at most the `most` oldest.
pub(super) fn plan(days: &BTreeSet<Day>, day: Day, today: Day, most: usize) -> Plan {
    let old = days.range(..day).count();
    let keep = usize::try_from(today.0.saturating_sub(day.0)).unwrap_or(0);
    let doubt = doubt(days, keep, today);
    // More days than are to be kept are deleted regardless of the clock, so that disk usage is
    // bounded.
    let surplus = days.len().saturating_sub(keep.saturating_add(1));
    let may = if doubt.is_some() { surplus } else { usize::MAX }.min(most).min(old);
    let from = (may > 0).then(|| days.iter().nth(may).map_or(day, |first| day.min(*first)));
    let said = match doubt {
        _ if may == old => Deleted::All,
        Some(why) if may < most => Deleted::Doubted(why),
        _ => Deleted::Some,
    };
    Plan { from, said }
}

/// The reason to doubt the clock: too few of the days before `today` are stored.
fn doubt(days: &BTreeSet<Day>, keep: usize, today: Day) -> Option<String> {
    let wanted = keep.clamp(1, DAYS_WANTED);
    let since = Day(today.0.saturating_sub(2 * wanted as i32 + 1));
    let there = days.range(since..today).count();
    (there < wanted).then(|| {
        let last = days.range(..today).next_back();
        let last = last.map_or_else(|| "none".to_owned(), |day| format!("the last is {day}"));
        format!("of the days from {since} to {today} there are {there}, {last}")
    })
}

/// Deletes what only days before `from` need, and hosts that were not read since.
pub(super) fn delete_before(db: &Connection, from: Day) -> rusqlite::Result<()> {
    db.execute("DELETE FROM day WHERE day < ?", [from.0])?;
    db.execute("DELETE FROM host WHERE id NOT IN (SELECT host FROM day)", [])?;
    let contents = deleted(
        db,
        "DELETE FROM state WHERE until_ns <= ?1 OR ((gone OR event) AND first_day < ?2) OR host NOT IN (SELECT id FROM host) \
         RETURNING content",
        params![from.start_ns(), from.0],
    )?;
    db.execute("DELETE FROM file WHERE id NOT IN (SELECT file FROM state)", [])?;
    forget(db, contents)
}

/// Deletes all but the last state per day of volatile documents, on days before `before`.
pub(super) fn tidy(db: &Connection, before: Day) -> rusqlite::Result<()> {
    let contents = deleted(
        db,
        "DELETE FROM state WHERE volatile AND last_day < first_day AND first_day < ? RETURNING content",
        [before.0],
    )?;
    forget(db, contents)
}

/// Merges the token index and returns free pages to the file system.
pub(super) fn compact(db: &Connection) -> rusqlite::Result<()> {
    db.execute("INSERT INTO word (word) VALUES ('optimize')", [])?;
    // Each row stands for a page that was freed. `execute_batch` would read the first one only.
    let mut vacuum = db.prepare("PRAGMA incremental_vacuum")?;
    let mut pages = vacuum.query([])?;
    while pages.next()?.is_some() {}
    // A long-running reader prevents the truncation. The checkpoint of the next day makes up for
    // it.
    db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
}

fn deleted(db: &Connection, sql: &str, params: impl rusqlite::Params) -> rusqlite::Result<Vec<i64>> {
    let mut statement = db.prepare(sql)?;
    statement.query_map(params, |row| row.get(0))?.collect()
}

/// Deletes contents that no state refers to and that are not the base of another text.
fn forget(db: &Connection, mut contents: Vec<i64>) -> rusqlite::Result<()> {
    const NEEDED: &str = "SELECT EXISTS (SELECT 1 FROM state WHERE content = ?1) \
                          OR EXISTS (SELECT 1 FROM content WHERE base = ?1)";
    // A base is deleted with the last text that uses it.
    while let Some(content) = contents.pop() {
        if db.prepare_cached(NEEDED)?.query_row([content], |row| row.get(0))? {
            continue;
        }
        let read = |row: &rusqlite::Row<'_>| {
            // The facts of unreadable contents stay, without a content to point to.
            Ok((About::read(row.get_ref(0)?).unwrap_or_default(), row.get::<_, Option<i64>>(1)?))
        };
        let known = db
            .prepare_cached("DELETE FROM content WHERE id = ? RETURNING about, base")?
            .query_row([content], read)
            .optional()?;
        let Some((about, base)) = known else { continue };
        db.prepare_cached("DELETE FROM word WHERE rowid = ?")?.execute([content])?;
        about.each_fact(|fact| forget_fact(db, &fact, content))?;
        contents.extend(base);
    }
    Ok(())
}

fn forget_fact(db: &Connection, fact: &super::content::Fact<'_>, content: i64) -> rusqlite::Result<()> {
    let id: Option<i64> = db
        .prepare_cached(
            "SELECT id FROM fact WHERE field = (SELECT id FROM field WHERE name = ?) AND value = ?",
        )?
        .query_row(params![fact.name, fact.value], |row| row.get(0))
        .optional()?;
    let Some(id) = id else { return Ok(()) };
    db.prepare_cached("DELETE FROM has WHERE fact = ? AND content = ?")?.execute([id, content])?;
    db.prepare_cached("DELETE FROM fact WHERE id = ?1 AND NOT EXISTS (SELECT 1 FROM has WHERE fact = ?1)")?
        .execute([id])
        .map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn days(list: &[i32]) -> BTreeSet<Day> {
        list.iter().copied().map(Day).collect()
    }

    #[test]
    fn a_clock_that_nothing_agrees_with_deletes_only_the_surplus() {
        let all = days(&[1, 2, 3, 4, 5]);
        let planned = |day, today, most| {
            let plan = plan(&all, Day(day), Day(today), most);
            (plan.from.map(|d| d.0), plan.said)
        };
        assert_eq!(planned(3, 6, 9), (Some(3), Deleted::All));
        assert_eq!(planned(3, 6, 1), (Some(2), Deleted::Some));
        assert_eq!(planned(1, 6, 9), (None, Deleted::All));
        // The clock is a year ahead. Three days and today are to be kept, so one of the five days
        // is surplus.
        let (from, said) = planned(397, 400, 9);
        assert_eq!(from, Some(2));
        assert!(matches!(said, Deleted::Doubted(_)), "{said:?}");
    }

    #[test]
    fn all_pages_that_a_deletion_frees_are_given_back() {
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch("PRAGMA auto_vacuum = INCREMENTAL; CREATE VIRTUAL TABLE word USING fts5 (token)")
            .unwrap();
        db.execute_batch("CREATE TABLE text (bytes); INSERT INTO text VALUES (randomblob(1000000))").unwrap();
        db.execute("DELETE FROM text", []).unwrap();
        let free = || db.query_row("PRAGMA freelist_count", [], |row| row.get::<_, i64>(0)).unwrap();
        assert!(free() > 100);
        compact(&db).unwrap();
        assert_eq!(free(), 0);
    }
}
