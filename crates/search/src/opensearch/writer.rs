//! Writes the indexer's batches to a cluster: directly while it answers, through the spool
//! otherwise.
//!
//! Nothing is duplicated, because ids and versions depend only on what was seen, so that a repeated
//! document replaces itself. Nothing is lost, because a batch is accepted only after the cluster
//! confirmed every document or the batch is on disk. Batches of one host are delivered in the order
//! in which they were accepted.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{DirBuilder, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ring::rand::{SecureRandom, SystemRandom};
use rustix::fs::OFlags;
use serde_json::json;

use crate::backend::{Batch, Deleted, Sink};
use crate::day::Day;
use crate::document::Flag;
use crate::error::{At, Error};
use crate::spool::Spool;
use crate::spread;

use super::bulk::{Pace, Report};
use super::known::HostState;
use super::names::IndexKind;
use super::taken::{TakenHost, is_new};
use super::work::{Work, pack, unpack};
use super::{Cluster, deliver, request, retention, retry, template, wire};

/// How long a batch waits for a busy cluster before it goes to the spool.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a batch may spend on draining the spool before it goes to the spool itself.
const DRAIN_PER_BATCH: Duration = Duration::from_secs(20);
/// Maximum size of the documents in one spool frame in bytes. A single document may be larger.
const FRAME_BYTES: usize = 8 << 20;
/// Maximum size of the file with refused documents in bytes. It is for manual inspection.
const REFUSED_MAX: u64 = 16 << 20;
/// Maximum number of log lines waiting to be fetched.
const MESSAGES_MAX: usize = 1_000;
/// The longest pause of [`Writer::flush`] between two attempts.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Writes documents into a cluster.
pub struct Writer {
    cluster: Cluster,
    spool: Spool,
    refused: PathBuf,
    run: String,
    seq: u64,
    pace: Pace,
    /// The state of each host in the cluster.
    known: HashMap<String, HostState>,
    /// The state of each host as accepted, including the spool.
    taken: HashMap<String, TakenHost>,
    /// The template is installed, and earlier writes are visible.
    ready: bool,
    away: bool,
    messages: Vec<String>,
}

impl Writer {
    /// Opens a writer with its spool in `dir`. Sends nothing yet.
    pub fn open(cluster: Cluster, dir: &Path) -> Result<Self, Error> {
        let mut run = [0; 8];
        let no_chance = |_| Error::Cannot("the system gives no random numbers".to_owned());
        SystemRandom::new().fill(&mut run).map_err(no_chance)?;
        Ok(Self {
            spool: Spool::open(dir, cluster.spool_max)?,
            refused: dir.join("refused"),
            cluster,
            run: format!("{:016x}", u64::from_le_bytes(run)),
            seq: 0,
            pace: Pace::default(),
            known: HashMap::new(),
            taken: HashMap::new(),
            ready: false,
            away: false,
            messages: Vec::new(),
        })
    }

    /// The cluster, for queries.
    #[must_use]
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// The size of the spool in bytes.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        self.spool.bytes()
    }

    /// Delivers the spool, retrying until it is empty or `patience` is over.
    pub fn flush(&mut self, patience: Duration) -> Result<(), Error> {
        let until = Instant::now() + patience;
        for attempt in 0.. {
            match self.drain(until) {
                Ok(true) => break,
                Ok(false) => return Err(Error::Away(self.left("there was no time for more"))),
                Err(Error::Away(why)) => {
                    let rest = self.cluster.nodes.all_rest().unwrap_or_default();
                    let wait = rest.max(retry::doubled(Duration::from_millis(200), attempt, PAUSE_MAX));
                    if Instant::now() + wait > until {
                        return Err(Error::Away(self.left(&why)));
                    }
                    std::thread::sleep(wait);
                }
                Err(other) => return Err(other),
            }
        }
        Ok(())
    }

    fn left(&self, why: &str) -> String {
        format!("{} bytes wait in the spool: {why}", self.spool.bytes())
    }

    fn say(&mut self, line: String) {
        if self.messages.len() < MESSAGES_MAX {
            self.messages.push(line);
        }
    }

    /// Delivers the spool until it is empty or the time is over. Returns whether it is empty.
    fn drain(&mut self, until: Instant) -> Result<bool, Error> {
        let skipped = self.spool.skipped();
        let mut count = 0_u64;
        let mut done = true;
        while let Some(frame) = self.spool.front()? {
            if count > 0 && Instant::now() >= until {
                done = false;
                break;
            }
            match unpack(&frame) {
                Ok(work) => self.deliver(&work, PATIENCE)?,
                Err(what) => self.say(format!("a batch of the spool cannot be read and is left out: {what}")),
            }
            self.spool.pop()?;
            count += 1;
        }
        let lost = self.spool.skipped() - skipped;
        if lost > 0 {
            self.say(format!("{lost} pieces of the spool were damaged and are left out"));
        }
        if count > 0 {
            self.say(format!("{count} batches of the spool were delivered"));
        }
        Ok(done)
    }

    /// Delivers one batch. After a failure the host's state is loaded again before the next
    /// delivery.
    fn deliver(&mut self, work: &Work, patience: Duration) -> Result<(), Error> {
        let result = self.try_deliver(work, patience);
        match &result {
            Ok(()) if self.away => {
                self.away = false;
                self.say("the cluster answers again".to_owned());
            }
            Ok(()) => {}
            Err(_) => {
                self.known.remove(&work.host);
                self.ready = false;
            }
        }
        result
    }

    fn try_deliver(&mut self, work: &Work, patience: Duration) -> Result<(), Error> {
        self.prepare()?;
        let mut known = match self.known.remove(&work.host) {
            Some(known) => known,
            None => deliver::load(&self.cluster, &work.host)?,
        };
        if !known.has(work) {
            let mut report = Report::default();
            let done = deliver::batch(&self.cluster, &mut self.pace, &mut known, work, patience, &mut report);
            self.report(report);
            done?;
        }
        self.known.insert(work.host.clone(), known);
        Ok(())
    }

    fn prepare(&mut self) -> Result<(), Error> {
        if !self.ready {
            template::install(&self.cluster)?;
            self.cluster.refresh()?;
            self.ready = true;
        }
        Ok(())
    }

    /// Logs what the cluster refused, and stores it for manual inspection.
    fn report(&mut self, report: Report) {
        for line in report.thinned {
            self.say(format!(
                "{line}; it is kept, and its sysctl.*, package.* and the like cannot be asked for"
            ));
        }
        for refused in report.refused {
            let line = format!(
                "{} is refused by {}: {}",
                super::bulk::name(&refused.source),
                refused.index,
                refused.why
            );
            let all = json!({"index": refused.index, "id": refused.id, "why": refused.why, "document": refused.source});
            if let Err(error) = self.set_aside(&all.to_string()) {
                self.say(format!("what was refused cannot be kept: {error}"));
            }
            self.say(line);
        }
    }

    fn set_aside(&self, line: &str) -> Result<(), Error> {
        DirBuilder::new().recursive(true).mode(0o750).create(&self.refused).at(&self.refused)?;
        let path = self.refused.join("documents.ndjson");
        let mut file = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o640)
            .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
            .open(&path)
            .at(&path)?;
        if file.metadata().at(&path)?.len().saturating_add(line.len() as u64) > REFUSED_MAX {
            return Err(Error::Broken { path, what: format!("holds {REFUSED_MAX} bytes already") });
        }
        file.write_all(format!("{line}\n").as_bytes()).at(&path)
    }

    /// Delivers a batch, or writes it to the spool.
    fn take(&mut self, batch: &Batch<'_>, part: bool) -> Result<(), Error> {
        if batch.host.is_empty()
            || batch.documents.iter().any(|d| d.host != batch.host || d.filename.is_empty())
        {
            return Err(Error::Cannot(
                "a batch has documents of one host, which has a name, and so have they".to_owned(),
            ));
        }
        let mut work = work_of(batch, part);
        if let Some(taken) = self.taken.get(batch.host) {
            // Keeps the times ascending, even if the clock was set back.
            work.at_ns = taken.last_ns.map_or(work.at_ns, |last| work.at_ns.max(last));
            work.seen_ns = taken.before(work.at_ns);
        }
        if self.holds(batch.host, work.at_ns) {
            self.hold(&mut work);
            if work.documents.is_empty() && work.gone.is_empty() {
                self.accepted(&work);
                return Ok(());
            }
        }
        let mut why = None;
        if !self.spool.is_empty() {
            match self.drain(Instant::now() + DRAIN_PER_BATCH) {
                Ok(_) => {}
                Err(Error::Away(away)) => why = Some(away),
                Err(other) => return Err(other),
            }
        }
        if self.spool.is_empty() {
            match self.deliver(&work, PATIENCE) {
                Ok(()) => {
                    self.accepted(&work);
                    return Ok(());
                }
                Err(Error::Away(away)) => why = Some(away),
                Err(other) => return Err(other),
            }
        }
        self.keep(&work)?;
        self.accepted(&work);
        if let Some(why) = why
            && !self.away
        {
            self.away = true;
            self.say(format!("the cluster is away; what is read goes into the spool: {why}"));
        }
        Ok(())
    }

    /// Notes a batch that the index of its day has, or gets from the spool.
    fn accepted(&mut self, work: &Work) {
        let taken = self.taken.entry(work.host.clone()).or_default();
        taken.note(work);
        if !work.part {
            taken.full = Some(Day::of(work.at_ns));
        }
    }

    /// Whether the host's moment to fill the index of the day is still to come. Until then only
    /// changes are written, so that a fleet does not write all of its documents at midnight. A host
    /// that has missed a day does not wait.
    fn holds(&self, host: &str, at_ns: i64) -> bool {
        let day = Day::of(at_ns);
        let spread_ns = i64::try_from(self.cluster.spread.as_nanos()).unwrap_or(i64::MAX);
        let has_yesterday =
            self.taken.get(host).and_then(|t| t.full).is_some_and(|full| full == day.before());
        has_yesterday && at_ns < day.start_ns().saturating_add(spread::offset_ns(host, spread_ns))
    }

    /// Leaves the changes of a batch, as a part of the full pass that follows. That one brings
    /// volatile documents, which have one state per day.
    fn hold(&self, work: &mut Work) {
        let known = self.taken.get(&work.host);
        let (documents, digests) = work
            .documents
            .drain(..)
            .zip(work.digests.drain(..))
            .filter(|(document, digest)| !document.is(Flag::Volatile) && is_new(known, document, digest))
            .unzip();
        (work.documents, work.digests) = (documents, digests);
        work.part = true;
    }

    /// Writes a batch to the spool, without documents that are there already. The first batch of a
    /// day is written in any case, as it brings all documents to that day.
    fn keep(&mut self, work: &Work) -> Result<(), Error> {
        let known = self.taken.get(&work.host);
        let is_later = |full: Day| full < Day::of(work.at_ns);
        let is_new_day = !work.part && known.and_then(|t| t.full).is_none_or(is_later);
        let all = work.documents.iter().zip(&work.digests);
        let news: Vec<_> = all.filter(|(document, digest)| is_new(known, document, digest)).collect();
        if news.is_empty() && work.gone.is_empty() && !is_new_day {
            return Ok(());
        }
        let mut piece = Work {
            host: work.host.clone(),
            at_ns: work.at_ns,
            seen_ns: work.seen_ns,
            part: true,
            run: self.run.clone(),
            seq: 0,
            documents: Vec::new(),
            digests: Vec::new(),
            gone: Vec::new(),
        };
        let (mut frames, mut bytes, mut seq) = (Vec::new(), 0, self.seq);
        let mut close = |piece: &mut Work| {
            seq += 1;
            piece.seq = seq;
            let frame = pack(piece).map_err(Error::Cannot);
            piece.documents.clear();
            piece.digests.clear();
            frame
        };
        for (document, digest) in news {
            let len = document.content.as_ref().map_or(0, String::len) + document.filename.len();
            if bytes + len > FRAME_BYTES && !piece.documents.is_empty() {
                frames.push(close(&mut piece)?);
                bytes = 0;
            }
            bytes += len;
            piece.documents.push(document.clone());
            piece.digests.push(digest.clone());
        }
        piece.gone.clone_from(&work.gone);
        piece.part = work.part;
        frames.push(close(&mut piece)?);
        self.spool.push(&frames)?;
        self.seq = seq;
        Ok(())
    }
}

/// The batch in the form for delivery.
fn work_of(batch: &Batch<'_>, part: bool) -> Work {
    Work {
        host: batch.host.to_owned(),
        at_ns: batch.at_ns,
        seen_ns: None,
        part,
        run: String::new(),
        seq: 0,
        documents: batch.documents.to_vec(),
        digests: batch.documents.iter().map(wire::state).collect(),
        gone: batch.gone.to_vec(),
    }
}

impl Sink for Writer {
    fn put(&mut self, batch: &Batch<'_>) -> Result<(), Error> {
        self.take(batch, false)
    }

    fn put_part(&mut self, batch: &Batch<'_>) -> Result<(), Error> {
        self.take(batch, true)
    }

    fn needs_all(&mut self, host: &str, at_ns: i64) -> bool {
        let full = self.taken.get(host).and_then(|t| t.full);
        full.is_none_or(|full| full < Day::of(at_ns)) && !self.holds(host, at_ns)
    }

    fn messages(&mut self) -> Vec<String> {
        std::mem::take(&mut self.messages)
    }

    fn names(&mut self, host: &str) -> Result<BTreeSet<String>, Error> {
        if !self.spool.is_empty() {
            self.drain(Instant::now() + DRAIN_PER_BATCH)?;
        }
        if !self.spool.is_empty() {
            return Err(Error::Away(self.left("what a host had is not known before they are delivered")));
        }
        self.prepare()?;
        if !self.known.contains_key(host) {
            let known = deliver::load(&self.cluster, host)?;
            self.known.insert(host.to_owned(), known);
        }
        let known = self.known.get(host);
        if let Some(known) = known.filter(|known| known.last.is_some()) {
            self.taken.entry(host.to_owned()).or_default().begin(known);
        }
        let there = known.into_iter().flat_map(|known| &known.states);
        let there = there.filter(|(_, state)| !state.gone && !state.event);
        Ok(there.map(|(name, _)| name.clone()).collect())
    }

    /// Deletes the indices of days before `day`, each by its full name. A cluster is shared by many
    /// hosts, so the clock of a single host does not decide.
    fn delete_before(&mut self, day: Day, today: Day, most: usize) -> Result<Deleted, Error> {
        let mut old: BTreeMap<Day, Vec<String>> = BTreeMap::new();
        let mut is_written = false;
        for index in request::indices(&self.cluster)? {
            let (of, is_day) = match self.cluster.names.read(&index) {
                Some(IndexKind::Day(of)) => (of, true),
                Some(IndexKind::History(of)) => (of, false),
                None => continue,
            };
            if of < day {
                old.entry(of).or_default().push(index);
            } else {
                is_written |= is_day && of <= today;
            }
        }
        if old.is_empty() {
            return Ok(Deleted::All);
        }
        if !is_written {
            return Ok(Deleted::Doubted("it has nothing of the days that are to be kept".to_owned()));
        }
        if let Some(why) = retention::doubt(&self.cluster, self.taken.keys(), today)? {
            return Ok(Deleted::Doubted(why));
        }
        let is_all = old.len() <= most;
        for index in old.into_values().take(most).flatten() {
            deliver::delete(&self.cluster, &index)?;
            self.say(format!("{index} is older than is kept and was deleted"));
        }
        Ok(if is_all { Deleted::All } else { Deleted::Some })
    }
}
