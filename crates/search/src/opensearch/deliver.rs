//! Delivers a batch to the indices. The order is: replaced states, their replacements, and last the
//! time of the pass. If it is interrupted, delivery starts again from what the cluster has.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::day::Day;
use crate::document::{Document, Flag, Kind, document_id, sha256};
use crate::error::Error;
use crate::query::Query;

use super::Cluster;
use super::bulk::{self, Op, Pace, Report};
use super::http::{Body, Request};
use super::known::{HostState, LastVisit, Plan, State};
use super::nodes::{Outcome, error};
use super::request::{self, SearchTarget};
use super::search::{Walk, escape, flags};
use super::wire::{self, About};
use super::work::Work;

/// Documents fetched per request; fewer if they are large.
const FETCH_MAX: usize = 100;
/// Documents prepared per bulk request.
const OPS_MAX: usize = 500;
/// States per request.
const STATES_MAX: usize = 1_000;

/// Loads what the cluster has of a host.
pub(super) fn load(cluster: &Cluster, host: &str) -> Result<HostState, Error> {
    let mut known = HostState::default();
    let path = format!("/{}/_doc/{}", escape(&cluster.names.hosts()), sha256(host.as_bytes()));
    let source = match cluster.nodes.ask(Request { method: "GET", path: &path, body: Body::None })? {
        Outcome::Reply(reply) if reply.is_ok() => reply.body.get("_source").cloned().unwrap_or_default(),
        Outcome::Reply(reply) if reply.status == 404 => return Ok(known),
        Outcome::Reply(reply) => return Err(error(&reply)),
        Outcome::TooLarge => Value::Null,
    };
    let ns = source.pointer("/mitra/since").and_then(Value::as_i64);
    let day = source.get("day").and_then(Value::as_str).and_then(|d| d.parse::<Day>().ok());
    let (Some(ns), Some(day)) = (ns, day) else {
        return Err(Error::Refused(format!("{}: an entry that Mitra did not write", cluster.names.hosts())));
    };
    let before_ns = source.pointer("/mitra/before").and_then(Value::as_i64);
    known.last = Some(LastVisit { ns, before_ns, day });
    let run = source.pointer("/mitra/run").and_then(Value::as_str).unwrap_or_default().to_owned();
    known.spooled = (run, source.pointer("/mitra/seq").and_then(Value::as_u64).unwrap_or(0));
    // An interrupted first pass of a later day may have left newer documents in that day's index.
    // Events are in the index of their day.
    let which = json!({"bool": {"minimum_should_match": 1, "should": [
        {"range": {"day": {"gte": day.to_string()}}},
        {"term": {"kind": Kind::Incident.name()}},
    ]}});
    let days = request::kept(cluster)?.into_iter();
    let place = SearchTarget {
        indices: days.map(|d| cluster.names.day(d)).collect(),
        filter: vec![json!({"term": {"host": host}}), which],
    };
    let shown = json!(["filename", "day", "kind", "flags", "mitra.since", "mitra.state"]);
    let mut walk = Walk::new(cluster, &place, &Query::all(), shown, STATES_MAX);
    while let Some(hits) = walk.next()? {
        for hit in &hits {
            let Some((filename, state)) = read_state(hit) else { continue };
            if known.states.get(&filename).is_none_or(|have| have.at <= state.at) {
                known.states.insert(filename, state);
            }
        }
    }
    Ok(known)
}

fn read_state(hit: &Value) -> Option<(String, State)> {
    let source = hit.get("_source")?;
    let flags = flags(source);
    let state = State {
        digest: source.pointer("/mitra/state")?.as_str()?.to_owned(),
        since_ns: source.pointer("/mitra/since")?.as_i64()?,
        gone: flags.contains(&Flag::Gone.name()),
        volatile: flags.contains(&Flag::Volatile.name()),
        event: source.get("kind")?.as_str()? == Kind::Incident.name(),
        at: source.get("day")?.as_str()?.parse().ok()?,
    };
    Some((source.get("filename")?.as_str()?.to_owned(), state))
}

/// Delivers a batch, and updates `known`.
pub(super) fn batch(
    cluster: &Cluster,
    pace: &mut Pace,
    known: &mut HostState,
    work: &Work,
    patience: Duration,
    report: &mut Report,
) -> Result<(), Error> {
    let plan = known.plan(work);
    let mut run = Run { cluster, pace, work, plan: &plan, patience, report };
    run.replace()?;
    let gone = run.gone()?;
    run.write()?;
    run.carry()?;
    // A pass of the same day without changes writes nothing. The next one with changes records the
    // time.
    let found = !plan.written.is_empty() || !plan.gone.is_empty();
    if plan.first || found || work.seq > 0 {
        run.looked_at(known)?;
    }
    known.done(work, &plan, gone);
    Ok(())
}

/// A batch during delivery.
struct Run<'a> {
    cluster: &'a Cluster,
    pace: &'a mut Pace,
    work: &'a Work,
    plan: &'a Plan,
    patience: Duration,
    report: &'a mut Report,
}

impl Run<'_> {
    /// Copies replaced states to the history.
    fn replace(&mut self) -> Result<(), Error> {
        for some in self.plan.replaced.chunks(FETCH_MAX) {
            let wanted: Vec<(Day, &str)> = some.iter().map(|r| (r.from, r.filename.as_str())).collect();
            let mut old = self.fetch(&wanted)?;
            let mut ops = Vec::with_capacity(some.len());
            for replaced in some {
                let Some((document, about)) = old.remove(&replaced.filename) else { continue };
                let began_then = Day::of(document.since_ns) == self.plan.day;
                let about = About {
                    day: self.plan.day,
                    until_ns: Some(replaced.until_ns),
                    before_ns: about.before_ns.filter(|_| began_then),
                    ..about
                };
                let mut op = self.op(&document, &about);
                op.index = self.cluster.names.history(self.plan.day);
                op.id = format!("{}-{}", op.id, replaced.until_ns);
                ops.push(op);
            }
            self.send(ops)?;
        }
        Ok(())
    }

    /// Writes tombstones, and returns their digests.
    fn gone(&mut self) -> Result<Vec<(String, String)>, Error> {
        let mut digests = Vec::new();
        for some in self.plan.gone.chunks(FETCH_MAX) {
            let wanted: Vec<(Day, &str)> = some.iter().map(|g| (g.from, g.filename.as_str())).collect();
            let mut old = self.fetch(&wanted)?;
            let mut ops = Vec::with_capacity(some.len());
            for gone in some {
                let Some((mut document, _)) = old.remove(&gone.filename) else {
                    digests.push((gone.filename.clone(), String::new()));
                    continue;
                };
                document.flag(Flag::Gone);
                document.since_ns = gone.since_ns;
                let state = wire::state(&document);
                digests.push((gone.filename.clone(), state.clone()));
                let about =
                    About { day: self.plan.day, until_ns: None, before_ns: self.plan.before_ns, state };
                ops.push(self.op(&document, &about));
            }
            self.send(ops)?;
        }
        Ok(digests)
    }

    /// Writes the batch's documents.
    fn write(&mut self) -> Result<(), Error> {
        let mut ops = Vec::new();
        for written in &self.plan.written {
            let (Some(document), Some(state)) =
                (self.work.documents.get(written.place), self.work.digests.get(written.place))
            else {
                continue;
            };
            // For a state that began on an earlier day, that day's index records the change.
            let before_ns = self.plan.before_ns.filter(|_| written.change);
            let about = About { day: self.plan.day, until_ns: None, before_ns, state: state.clone() };
            let mut op = self.op(document, &about);
            op.version = written.since_ns;
            wire::set_since(&mut op.source, written.since_ns);
            ops.push(op);
            if ops.len() >= OPS_MAX {
                self.send(std::mem::take(&mut ops))?;
            }
        }
        self.send(ops)
    }

    /// Copies the documents that the batch does not mention to the index of a new day.
    fn carry(&mut self) -> Result<(), Error> {
        for some in self.plan.carried.chunks(FETCH_MAX) {
            let wanted: Vec<(Day, &str)> = some.iter().map(|c| (c.from, c.filename.as_str())).collect();
            let mut ops = Vec::with_capacity(some.len());
            for (document, about) in self.fetch(&wanted)?.into_values() {
                let about = About { day: self.plan.day, before_ns: None, until_ns: None, ..about };
                ops.push(self.op(&document, &about));
            }
            self.send(ops)?;
        }
        Ok(())
    }

    /// Records the pass over the host, after all of its documents are in the indices.
    fn looked_at(&mut self, known: &HostState) -> Result<(), Error> {
        let spooled = (self.work.run.clone(), self.work.seq);
        let (run, seq) = if self.work.seq > 0 { &spooled } else { &known.spooled };
        let day = known.full_day(self.work, self.plan);
        let mut source = Map::new();
        source.insert("host".to_owned(), json!(self.work.host));
        source.insert("day".to_owned(), json!(day.to_string()));
        let own = json!({"since": self.plan.at_ns, "before": self.plan.before_ns, "run": run, "seq": seq});
        source.insert("mitra".to_owned(), own);
        let id = sha256(self.work.host.as_bytes());
        self.send(vec![Op { index: self.cluster.names.hosts(), id, version: self.plan.at_ns, source }])
    }

    fn op(&self, document: &Document, about: &About) -> Op {
        Op {
            index: self.cluster.names.day(about.day),
            id: document_id(&document.host, &document.filename),
            version: document.since_ns,
            source: wire::write(document, about),
        }
    }

    fn send(&mut self, ops: Vec<Op>) -> Result<(), Error> {
        let mut report = bulk::send(&self.cluster.nodes, self.pace, ops, self.patience)?;
        self.report.refused.append(&mut report.refused);
        self.report.thinned.append(&mut report.thinned);
        Ok(())
    }

    /// Fetches documents from the indices of some days, by file name. Missing ones are left out.
    fn fetch(&self, wanted: &[(Day, &str)]) -> Result<HashMap<String, (Document, About)>, Error> {
        let mut found = HashMap::with_capacity(wanted.len());
        let mut pieces = vec![wanted];
        while let Some(piece) = pieces.pop() {
            if piece.is_empty() {
                continue;
            }
            let docs: Vec<Value> = piece
                .iter()
                .map(|(day, name)| {
                    json!({"_index": self.cluster.names.day(*day), "_id": document_id(&self.work.host, name)})
                })
                .collect();
            let body = json!({"docs": docs}).to_string();
            let request = Request { method: "POST", path: "/_mget", body: Body::Json(body.as_bytes()) };
            let answer = match self.cluster.nodes.ask(request)? {
                Outcome::Reply(reply) if reply.is_ok() => reply.body,
                Outcome::Reply(reply) => return Err(error(&reply)),
                Outcome::TooLarge if piece.len() > 1 => {
                    let (a, b) = piece.split_at(piece.len() / 2);
                    pieces.extend([a, b]);
                    continue;
                }
                Outcome::TooLarge => {
                    return Err(Error::Cannot("a document is larger than is read".to_owned()));
                }
            };
            for doc in answer.get("docs").and_then(Value::as_array).into_iter().flatten() {
                if let Some(error) = doc.get("error") {
                    let kind = error.get("type").and_then(Value::as_str).unwrap_or_default();
                    if kind != "index_not_found_exception" {
                        return Err(Error::Away(super::http::reason(doc)));
                    }
                }
                if doc.get("found") == Some(&Value::Bool(true)) {
                    let source = doc.get("_source").unwrap_or(&Value::Null);
                    let (document, about) = wire::read(source).map_err(Error::Refused)?;
                    found.insert(document.filename.clone(), (document, about));
                }
            }
        }
        Ok(found)
    }
}

/// Deletes one index by its full name.
pub(super) fn delete(cluster: &Cluster, index: &str) -> Result<(), Error> {
    let path = format!("/{}?ignore_unavailable=true", escape(index));
    match cluster.nodes.ask(Request { method: "DELETE", path: &path, body: Body::None })? {
        Outcome::Reply(reply) if reply.is_ok() || reply.status == 404 => Ok(()),
        Outcome::Reply(reply) => Err(error(&reply)),
        Outcome::TooLarge => Ok(()),
    }
}
