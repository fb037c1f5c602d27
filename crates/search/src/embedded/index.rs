//! An index that is asked: the store, the index of words, and rows in the order of answers.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::OnceLock;

use super::exec::{self, Asked};
use super::fresh::Fresh;
use super::leaves::{self, Contents, Read};
use super::order::Order;
use super::store::{Content, Store};
use super::table::Row;
use super::text::{self, Text};
use super::{values, words};
use crate::backend::{Changed, Held, Hit, Page};
use crate::day::Day;
use crate::document::Document;
use crate::error::Error;
use crate::query::{Query, Set};
use crate::scope::Scope;

/// Changes of one question. They are whole documents, twice.
const CHANGES_MAX: usize = 100_000;

/// An index that is asked. It may be open while a [`super::Writer`] writes; [`Index::refresh`] sees what it wrote since.
pub struct Index {
    store: Box<Store>,
    text: Box<Text>,
    order: Box<Order>,
    /// What the index of words does not have yet; read when it is first asked for.
    fresh: OnceLock<Fresh>,
}

impl Index {
    /// Opens an index for questions. A folder without one is an error.
    pub fn open(dir: &Path) -> Result<Self, Error> {
        // Words before the store: what is committed is then in the store as well.
        let text = Text::open(&dir.join(text::FOLDER))?;
        let store = Store::open(dir)?;
        let order = Order::new(store.table());
        let mut index = Self {
            store: Box::new(store),
            text: Box::new(text),
            order: Box::new(order),
            fresh: OnceLock::new(),
        };
        index.check();
        Ok(index)
    }

    /// Sees what was written since it was opened.
    pub fn refresh(&mut self) -> Result<(), Error> {
        let committed = self.text.committed();
        self.text.refresh()?;
        if self.store.refresh()? {
            *self.order = Order::new(self.store.table());
            self.fresh = OnceLock::new();
        } else if self.text.committed() != committed {
            self.fresh = OnceLock::new();
        }
        self.check();
        Ok(())
    }

    /// Words of contents that the store does not have are those of others: it lost some. The writer makes them again.
    fn check(&mut self) {
        if self.text.committed() > self.store.contents() {
            self.text.clear();
            self.fresh = OnceLock::new();
        }
    }

    /// See [`crate::Backend::days`].
    pub fn days(&self) -> Result<Option<(Day, Day)>, Error> {
        Ok(self.store.table().days())
    }

    /// See [`crate::Backend::search`].
    pub fn search(&self, query: &Query, scope: Scope, limit: usize) -> Result<Page, Error> {
        let asked = self.asked(&query.set, None)?;
        let mut page = Page::default();
        asked.found(&query.set, scope, |_, row, days| {
            page.total += days.len() as u64;
            let room = limit.saturating_sub(page.hits.len());
            page.hits.extend(days.iter().take(room).map(|day| self.hit(row, *day)));
            Ok(())
        })?;
        Ok(page)
    }

    /// See [`crate::Backend::hosts`].
    pub fn hosts(&self, query: &Query, scope: Scope) -> Result<BTreeSet<String>, Error> {
        let asked = self.asked(&query.set, None)?;
        let mut hosts = BTreeSet::new();
        let mut last = None;
        asked.found(&query.set, scope, |_, row, _| {
            if last != Some(row.host) {
                last = Some(row.host);
                hosts.insert(self.store.table().hosts.name(row.host).to_owned());
            }
            Ok(())
        })?;
        Ok(hosts)
    }

    /// See [`crate::Backend::values`].
    pub fn values(&self, field: &str, query: &Query, scope: Scope) -> Result<Vec<Held>, Error> {
        let asked = self.asked(&query.set, Some(field))?;
        values::values(&asked, field, &query.set, scope)
    }

    /// See [`crate::Backend::get`].
    pub fn get(&self, host: &str, filename: &str, scope: Scope) -> Result<Option<Document>, Error> {
        let table = self.store.table();
        let (Some(host), Some(file)) = (table.hosts.ordinal(host), table.files.ordinal(filename)) else {
            return Ok(None);
        };
        let mut next = table.latest(host, file);
        // From the newest to the oldest; a row comes once.
        for _ in 0..table.rows.len() {
            let Some((at, row)) = next.and_then(|at| Some((at, table.rows.get(at as usize)?))) else { break };
            let shown = match scope {
                Scope::Days { first, last } => !exec::days_of(table, row, first, last).is_empty(),
                Scope::At { ns } => exec::day_at(table, row, ns).is_some(),
                Scope::Changed { since_ns, until_ns } => {
                    (since_ns..until_ns).contains(&row.since_ns) && exec::is_change(row)
                }
            };
            if shown {
                return self.store.document(at).map(Some);
            }
            next = row.previous;
        }
        Ok(None)
    }

    /// See [`crate::Backend::each`].
    pub fn each(
        &self,
        query: &Query,
        scope: Scope,
        take: &mut dyn FnMut(Day, Document) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let asked = self.asked(&query.set, None)?;
        asked.found(&query.set, scope, |at, _, days| {
            let Some((last, others)) = days.split_last() else { return Ok(()) };
            let document = self.store.document(at)?;
            for day in others {
                take(*day, document.clone())?;
            }
            take(*last, document)
        })
    }

    /// See [`crate::Backend::changes`].
    pub fn changes(
        &self,
        host: Option<&str>,
        query: &Query,
        since_ns: i64,
        until_ns: i64,
    ) -> Result<Vec<Changed>, Error> {
        let table = self.store.table();
        let host = match host.map(|host| table.hosts.ordinal(host)) {
            Some(None) => return Ok(Vec::new()),
            Some(ordinal) => ordinal,
            None => None,
        };
        let asked = self.asked(&query.set, None)?;
        let found = asked.changed(&query.set, host, since_ns, until_ns)?;
        if found.len() > CHANGES_MAX {
            return Err(Error::Cannot(format!(
                "{} changes are more than the {CHANGES_MAX} that are shown at once: ask for a shorter time or one host",
                found.len()
            )));
        }
        let shown = |at: u32| -> Result<Option<Document>, Error> {
            let gone = table.rows.get(at as usize).is_none_or(|row| row.gone);
            if gone { Ok(None) } else { self.store.document(at).map(Some) }
        };
        let mut changes = Vec::with_capacity(found.len());
        for (at, previous) in found {
            let Some(row) = table.rows.get(at as usize) else { continue };
            changes.push(Changed {
                at_ns: row.since_ns,
                not_before_ns: row.known_before_ns,
                before: previous.map(shown).transpose()?.flatten(),
                after: shown(at)?,
            });
        }
        Ok(changes)
    }

    /// What a query, and the values of a field, are asked of.
    fn asked<'a>(&'a self, set: &Set, field: Option<&str>) -> Result<Asked<'a>, Error> {
        static NOTHING: OnceLock<Fresh> = OnceLock::new();
        let contents = exec::asks_contents(set) || field.is_some_and(leaves::of_content);
        let fresh = if contents { self.fresh()? } else { NOTHING.get_or_init(Fresh::default) };
        Ok(Asked {
            table: self.store.table(),
            order: &self.order,
            contents: Contents { text: &self.text, fresh, count: self.store.contents(), store: self },
        })
    }

    fn fresh(&self) -> Result<&Fresh, Error> {
        if let Some(fresh) = self.fresh.get() {
            return Ok(fresh);
        }
        let mut fresh = Fresh::default();
        for ordinal in self.text.committed()..self.store.contents() {
            if let Some(content) = self.read(ordinal)? {
                fresh.add(ordinal, &content);
            }
        }
        Ok(self.fresh.get_or_init(|| fresh))
    }

    fn hit(&self, row: &Row, day: Day) -> Hit {
        let table = self.store.table();
        let stat = row.stat.and_then(|at| table.stats.get(at as usize));
        Hit {
            host: table.hosts.name(row.host).to_owned(),
            filename: table.files.name(row.file).to_owned(),
            day,
            since_ns: row.since_ns,
            size: stat.map(|stat| stat.size),
            mtime_ns: stat.map(|stat| stat.mtime_ns),
        }
    }
}

impl Read for Index {
    fn read(&self, ordinal: u32) -> Result<Option<Content>, Error> {
        words::whole(&self.store, ordinal)
    }

    fn text(&self, ordinal: u32, into: &mut String) -> Result<bool, Error> {
        into.clear();
        if !self.store.live(ordinal) {
            return Ok(false);
        }
        match self.store.contents.text(ordinal, into) {
            Err(Error::Broken { .. }) => Ok(false),
            other => other,
        }
    }

    fn sort(&self, ordinals: &mut [u32]) {
        self.store.contents.sort(ordinals);
    }
}
