//! A pass sends documents that changed since the last pass to the sink, and the names of those that
//! are gone.
//!
//! A document that the sink has not stored counts as unread: after a failure it is read and written
//! again. A sink may request all documents, as in the first pass of a day if each day has its own
//! index. Unchanged documents keep their time then.

use std::collections::{BTreeMap, BTreeSet};

use super::files::{How, Listing};
use super::known::{Origin, TakenDocument};
use super::open::Stamp;
use super::visit::VisitOutcome;
use super::{Indexer, text};
use crate::backend::Batch;
use crate::collectors::Collector;
use crate::day::Day;
use crate::document::Document;
use crate::error::Error;

/// Maximum number of documents per batch.
const BATCH_DOCUMENTS_MAX: usize = 1_000;
/// A batch is sent when its contents reach this size in bytes.
const BATCH_BYTES: usize = 4 << 20;
/// Maximum number of changed documents that a report names.
const NAMES_MAX: usize = 20;
/// A larger jump back is accepted as the new time. After a smaller one, passes count on from the
/// last time until the clock catches up.
const STEP_NS_MAX: i64 = 3_600_000_000_000;
/// Collectors whose settings can change without an inotify event.
const QUICK: &[&str] = &["sysctl", "cgroups"];
/// The prefix of documents that no pass collects.
const ADDED: &str = "@incident/";

/// The result of a pass.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PassReport {
    /// Files that were checked.
    pub files: u64,
    /// Files that were read.
    pub read: u64,
    /// Documents from collectors.
    pub collected: u64,
    /// Documents that are new or changed.
    pub changed: u64,
    /// The names of the first changed documents.
    pub names: Vec<String>,
    /// Documents that are gone.
    pub gone: u64,
    /// The names of documents with withheld parts, by reason.
    pub withheld: BTreeMap<String, Vec<String>>,
    /// Files and directories that could not be read or were skipped, each with the reason.
    pub errors: BTreeMap<String, String>,
    /// Collectors that failed, each with the reason.
    pub refused: BTreeMap<String, String>,
}

/// Returns `@mount` for `@mount/data`.
fn family(name: &str) -> &str {
    name.split('/').next().unwrap_or(name)
}

/// What a pass covers.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PassScope {
    /// Everything.
    All,
    /// All files.
    Files,
    /// Settings that change without an event.
    Quick,
    /// Some files.
    Names(Vec<String>),
}

/// A pass in progress.
struct Pass {
    number: u64,
    at_ns: i64,
    /// Whether to write every document, changed or not.
    says_all: bool,
    report: PassReport,
    documents: Vec<Document>,
    bytes: usize,
    /// State to keep once the sink has stored the documents.
    pending: Vec<(String, TakenDocument)>,
    /// Files that could not be read. They do not count as gone.
    failed: BTreeSet<String>,
    /// Names that do not exist.
    missing: Vec<String>,
    /// Collectors that succeeded.
    answered: BTreeSet<&'static str>,
    listing: Option<Listing>,
}

impl Indexer {
    /// Runs a full pass.
    pub fn pass(&mut self) -> Result<PassReport, Error> {
        self.look(&PassScope::All)
    }

    /// Runs a pass, and logs the sink's warnings.
    pub(super) fn look(&mut self, what: &PassScope) -> Result<PassReport, Error> {
        let done = self.say(what);
        for line in self.sink.messages() {
            self.log.warning(&line);
        }
        done
    }

    fn say(&mut self, what: &PassScope) -> Result<PassReport, Error> {
        let at_ns = self.moment();
        let is_all = *what == PassScope::All;
        if is_all && self.stored.is_none() {
            self.ask_names()?;
        }
        // If a full write is due, it stays due until a whole pass succeeded.
        self.owes_all |= is_all && self.sink.needs_all(&self.host, at_ns);
        self.number += 1;
        let mut pass = Pass {
            number: self.number,
            at_ns,
            says_all: is_all && self.owes_all,
            report: PassReport::default(),
            documents: Vec::new(),
            bytes: 0,
            pending: Vec::new(),
            failed: BTreeSet::new(),
            missing: Vec::new(),
            answered: BTreeSet::new(),
            listing: None,
        };
        self.owners.refresh(&self.root);
        match what {
            PassScope::All | PassScope::Files => self.all_files(&mut pass)?,
            PassScope::Names(names) => self.some_files(&mut pass, names)?,
            PassScope::Quick => {}
        }
        if matches!(what, PassScope::All | PassScope::Quick) {
            self.collect(&mut pass, *what == PassScope::Quick)?;
        }
        let gone = self.gone(&mut pass, is_all);
        pass.report.gone = gone.len() as u64;
        // A full pass sends even an empty batch, which records that the host was read.
        if is_all || !pass.documents.is_empty() || !gone.is_empty() {
            self.put(&mut pass, Some(&gone))?;
        }
        if is_all {
            self.owes_all = false;
            self.retain(Day::of(at_ns));
        }
        self.tell(&pass.report, is_all);
        Ok(pass.report)
    }

    /// Fetches the names that the sink stored before this process started. If the cluster is
    /// unreachable, the next pass tries again.
    fn ask_names(&mut self) -> Result<(), Error> {
        match self.sink.names(&self.host) {
            Ok(names) => self.stored = Some(names),
            Err(Error::Away(reason)) => self.log.warning(&format!("what is gone is not known yet: {reason}")),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// The time of a pass. It is unique and, except after large clock jumps, ascending.
    fn moment(&mut self) -> i64 {
        let now = self.clock.now_ns();
        let after = self.last_ns.saturating_add(1_000);
        self.last_ns = if now < after && after - now < STEP_NS_MAX { after } else { now };
        self.last_ns
    }

    fn all_files(&mut self, pass: &mut Pass) -> Result<(), Error> {
        if let Some(watcher) = &mut self.watcher {
            // The pass reads everything anyway, so the events are discarded.
            watcher.drain();
            watcher.begin();
        }
        self.settling.clear();
        self.aliases.clear();
        let watcher = &mut self.watcher;
        let mut listing = self.asked.list(&self.root, &mut |path, dir| {
            if let Some(watcher) = watcher.as_mut() {
                watcher.watch(path, dir);
            }
        });
        for (dir, reason) in &listing.unlisted {
            pass.report.errors.insert(dir.clone(), reason.clone());
        }
        for name in &listing.unreadable {
            pass.report.errors.insert(name.clone(), "its name is no UTF-8".to_owned());
        }
        if listing.was_cut {
            pass.report
                .errors
                .insert("files".to_owned(), "more than can be looked at; the rest is left out".to_owned());
        }
        for (name, how) in std::mem::take(&mut listing.names) {
            self.visit(pass, &name, how)?;
        }
        pass.listing = Some(listing);
        if let Some(watcher) = &mut self.watcher {
            watcher.end();
            if watcher.is_full() != self.is_full {
                self.is_full = !self.is_full;
                let more = if self.is_full { "not all can be" } else { "all can be again" };
                self.log.warning(&format!("{} directories are watched, {more}", watcher.watched()));
            }
        }
        Ok(())
    }

    fn some_files(&mut self, pass: &mut Pass, names: &[String]) -> Result<(), Error> {
        for name in names {
            if let Some(how) = self.asked.how(name) {
                self.visit(pass, name, how)?;
            }
        }
        Ok(())
    }

    fn visit(&mut self, pass: &mut Pass, name: &str, how: How) -> Result<(), Error> {
        pass.report.files += 1;
        match self.see(name, how, pass.says_all) {
            VisitOutcome::Same => {
                if let Some(known) = self.known.get_mut(name) {
                    known.pass = pass.number;
                    for reason in &known.reasons {
                        pass.report.withheld.entry(reason.clone()).or_default().push(name.to_owned());
                    }
                }
            }
            VisitOutcome::Missing => pass.missing.push(name.to_owned()),
            VisitOutcome::Skipped(reason) => {
                pass.report.errors.insert(name.to_owned(), reason);
                pass.missing.push(name.to_owned());
            }
            VisitOutcome::Failed(reason) => {
                pass.report.errors.insert(name.to_owned(), reason);
                pass.failed.insert(name.to_owned());
                self.touch(name, pass.number);
            }
            VisitOutcome::Taken(visit) => {
                pass.report.read += 1;
                self.take(pass, visit.document, Origin::File, Some((visit.stamp, visit.is_settled)))?;
            }
        }
        Ok(())
    }

    fn touch(&mut self, name: &str, pass: u64) {
        if let Some(known) = self.known.get_mut(name) {
            known.pass = pass;
        }
    }

    fn collect(&mut self, pass: &mut Pass, is_quick: bool) -> Result<(), Error> {
        let chosen: Vec<&'static Collector> =
            self.collectors.iter().copied().filter(|c| !is_quick || QUICK.contains(&c.name)).collect();
        for collector in chosen {
            match self.ask(collector, pass.at_ns) {
                Ok(documents) => {
                    pass.answered.insert(collector.name);
                    for document in documents {
                        pass.report.collected += 1;
                        self.collected(pass, collector, document)?;
                    }
                }
                Err(reason) => {
                    pass.report.refused.insert(collector.name.to_owned(), reason);
                }
            }
        }
        Ok(())
    }

    fn collected(&mut self, pass: &mut Pass, collector: &Collector, document: Document) -> Result<(), Error> {
        let name = &document.filename;
        let is_twice = self.known.get(name).is_some_and(|k| k.pass == pass.number)
            || pass.pending.iter().any(|(pending, _)| pending == name);
        if is_twice || !name.starts_with('@') {
            let reason = if is_twice { "said twice" } else { "does not begin with '@'" };
            pass.report.errors.insert(name.clone(), format!("{reason} by the collector {}", collector.name));
            return Ok(());
        }
        self.take(pass, document, Origin::Collector(collector.name), None)
    }

    /// Withholds secrets, and adds the document to the batch if it changed.
    fn take(
        &mut self,
        pass: &mut Pass,
        mut document: Document,
        origin: Origin,
        stamp: Option<(Stamp, bool)>,
    ) -> Result<(), Error> {
        document.host.clone_from(&self.host);
        self.policy.clean(&mut document);
        text::bound(&mut document);
        let name = document.filename.clone();
        for reason in &document.withheld.reasons {
            pass.report.withheld.entry(reason.clone()).or_default().push(name.clone());
        }
        let print = document.state_digest();
        let old = self.known.get_mut(&name);
        let since_ns = old.as_ref().filter(|old| old.print == print).map(|old| old.since_ns);
        document.since_ns = since_ns.unwrap_or(pass.at_ns);
        let known = TakenDocument {
            origin,
            stamp: stamp.map(|(stamp, _)| stamp),
            is_settled: stamp.is_some_and(|(_, is_settled)| is_settled),
            print,
            since_ns: document.since_ns,
            pass: pass.number,
            reasons: document.withheld.reasons.clone(),
        };
        if since_ns.is_some() && !pass.says_all {
            self.known.insert(name, known);
            return Ok(());
        }
        if let Some(old) = old {
            old.pass = pass.number;
        }
        if since_ns.is_none() {
            pass.report.changed += 1;
            if pass.report.names.len() < NAMES_MAX {
                pass.report.names.push(name.clone());
            }
        }
        pass.bytes += document.content.as_ref().map_or(0, String::len) + 256;
        pass.documents.push(document);
        pass.pending.push((name, known));
        if pass.documents.len() >= BATCH_DOCUMENTS_MAX || pass.bytes >= BATCH_BYTES {
            self.put(pass, None)?;
        }
        Ok(())
    }

    /// Writes the documents so far. The last batch of a pass brings the names of those that are gone.
    fn put(&mut self, pass: &mut Pass, last: Option<&[String]>) -> Result<(), Error> {
        let gone = last.unwrap_or_default();
        let batch = Batch { host: &self.host, at_ns: pass.at_ns, documents: &pass.documents, gone };
        if last.is_some() {
            self.sink.put(&batch)?;
        } else {
            self.sink.put_part(&batch)?;
        }
        // If the sink had failed, none of these documents would count as stored.
        for (name, known) in pass.pending.drain(..) {
            self.known.insert(name, known);
        }
        for name in gone {
            self.known.remove(name);
            if let Some(stored) = &mut self.stored {
                stored.remove(name);
            }
        }
        pass.documents.clear();
        pass.bytes = 0;
        Ok(())
    }

    /// The names of documents that disappeared. A document that could not be read is not gone.
    fn gone(&mut self, pass: &mut Pass, is_all: bool) -> Vec<String> {
        let mut gone = BTreeSet::new();
        let is_listed = |name: &str| match &pass.listing {
            Some(listing) => {
                let is_below = |dir: &str| {
                    name.strip_prefix(dir).is_some_and(|rest| rest.starts_with('/') || dir == "/")
                };
                !listing.was_cut && !listing.unlisted.iter().any(|(dir, _)| is_below(dir))
            }
            None => false,
        };
        for (name, known) in self.known.iter().filter(|(_, known)| known.pass != pass.number) {
            let is_gone = match known.origin {
                Origin::File => is_listed(name),
                Origin::Collector(collector) => pass.answered.contains(collector),
            };
            if is_gone {
                gone.insert(name.clone());
            }
        }
        for name in std::mem::take(&mut pass.missing) {
            let is_stored = self.stored.as_ref().is_some_and(|stored| stored.contains(&name));
            if is_stored || self.known.contains_key(&name) {
                gone.insert(name);
            }
        }
        if let Some(stored) = &mut self.stored {
            // Keeps only the names that this process has not seen.
            stored.retain(|name| !self.known.contains_key(name) && !name.starts_with(ADDED));
            for (name, _) in &pass.pending {
                stored.remove(name);
            }
            // A failed collector's documents are not gone. Names stored earlier are tied to a
            // collector by their family only.
            let told: BTreeSet<&str> = self
                .known
                .iter()
                .filter(|(_, known)| known.origin != Origin::File && known.pass == pass.number)
                .map(|(name, _)| family(name))
                .chain(pass.pending.iter().map(|(name, _)| family(name)))
                .collect();
            let is_gone = |name: &&String| match name.starts_with('@') {
                true => pass.report.refused.is_empty() || told.contains(family(name)),
                false => is_listed(name) && !pass.failed.contains(*name),
            };
            if is_all {
                gone.extend(stored.iter().filter(is_gone).cloned());
            }
        }
        gone.into_iter().collect()
    }

    /// Logs new errors, newly withheld files, and what changed.
    fn tell(&mut self, report: &PassReport, is_all: bool) {
        let refused =
            report.refused.iter().map(|(name, reason)| (format!("collector {name}"), reason.clone()));
        let errors: BTreeMap<String, String> =
            report.errors.iter().map(|(n, r)| (n.clone(), r.clone())).chain(refused).collect();
        for (name, reason) in &errors {
            if self.told.get(name) != Some(reason) {
                // The name comes last. Otherwise the secret filter would take the text behind a
                // name that ends in `password` for a password.
                self.log.error(&format!("{reason}: {name}"));
            }
        }
        if is_all {
            self.told = errors;
        } else {
            self.told.extend(errors);
        }
        for (reason, names) in &report.withheld {
            for name in names {
                if self.told_withheld.insert((reason.clone(), name.clone())) {
                    self.log.info(&format!("withheld ({reason}): {name}"));
                }
            }
        }
        let withheld: usize = report.withheld.values().map(Vec::len).sum();
        let line = format!(
            "{} files, {} read, {} changed, {} gone, {withheld} withheld, {} errors",
            report.files,
            report.read,
            report.changed,
            report.gone,
            report.errors.len() + report.refused.len()
        );
        if report.changed + report.gone == 0 {
            return self.log.debug(&line);
        }
        self.log.info(&line);
        if report.changed <= NAMES_MAX as u64 && !report.names.is_empty() {
            self.log.info(&format!("changed: {}", report.names.join(" ")));
        }
    }
}
