//! Bulk requests. The request size adapts to the cluster: it halves after each rejection and grows
//! while all goes well.
//!
//! Every document has a version that only grows: the start time of its state. So a document that
//! arrives twice or late changes nothing: the cluster answers 409 if it has a newer one, and that
//! counts as done.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use crate::error::Error;

use super::http::{Body, Reply, Request, reason};
use super::nodes::{Nodes, Outcome, error};
use super::{retry, wire};

/// Maximum size of a request before compression, in bytes. A single document may be larger.
const BYTES_MAX: usize = 5 << 20;
/// Maximum documents per request.
const COUNT_MAX: usize = 1_000;
/// Minimum for the adaptive request size in bytes.
const BYTES_MIN: usize = 64 << 10;
/// The first wait after a rejection.
const WAIT_FIRST: Duration = Duration::from_millis(500);
/// The longest wait after a rejection.
const WAIT_MAX: Duration = Duration::from_secs(30);
/// The server's timeout for a shard is shorter than our timeout for the server.
const PATH: &str =
    "/_bulk?timeout=10s&filter_path=errors,items.*.status,items.*.error.type,items.*.error.reason";

/// One document to send.
#[derive(Debug, Clone)]
pub(super) struct Op {
    pub index: String,
    pub id: String,
    pub version: i64,
    pub source: Map<String, Value>,
}

/// A document that the cluster refused for good.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Refused {
    pub index: String,
    pub id: String,
    pub why: String,
    pub source: Map<String, Value>,
}

/// Documents that could not be stored as intended.
#[derive(Debug, Default)]
pub(super) struct Report {
    /// Documents that were not stored.
    pub refused: Vec<Refused>,
    /// Documents stored without searchable field families, by name.
    pub thinned: Vec<String>,
}

/// The adaptive request size, which is kept between calls.
#[derive(Debug)]
pub(super) struct Pace {
    bytes: usize,
}

impl Default for Pace {
    fn default() -> Self {
        Self { bytes: BYTES_MAX }
    }
}

impl Pace {
    fn less(&mut self) {
        self.bytes = (self.bytes / 2).max(BYTES_MIN);
    }

    fn more(&mut self) {
        self.bytes = (self.bytes + self.bytes / 10).min(BYTES_MAX);
    }
}

/// Sends documents until each is stored or refused. Returns [`Error::Away`] if the cluster cannot
/// take them within `patience`.
pub(super) fn send(
    nodes: &Nodes,
    pace: &mut Pace,
    ops: Vec<Op>,
    patience: Duration,
) -> Result<Report, Error> {
    let mut run = Run {
        queue: ops.into_iter().map(Line::new).collect(),
        report: Report::default(),
        failures: 0,
        why: String::new(),
    };
    let began = Instant::now();
    while !run.queue.is_empty() {
        if run.failures > 0 {
            let wait = retry::full_jitter(retry::doubled(WAIT_FIRST, run.failures - 1, WAIT_MAX));
            if began.elapsed() + wait > patience {
                return Err(Error::Away(format!("the cluster takes no more now: {}", run.why)));
            }
            std::thread::sleep(wait);
        }
        run.turn(nodes, pace)?;
    }
    Ok(run.report)
}

/// A document and its two lines of the request.
struct Line {
    op: Op,
    bytes: Vec<u8>,
    thinned: bool,
}

impl Line {
    fn new(op: Op) -> Self {
        let action = json!({"index": {"_index": op.index, "_id": op.id, "version": op.version.max(0),
                                      "version_type": "external_gte"}});
        // Serialization cannot fail: the map holds JSON values only.
        let source = serde_json::to_string(&op.source).unwrap_or_default();
        Self { bytes: format!("{action}\n{source}\n").into_bytes(), op, thinned: false }
    }
}

struct Run {
    queue: VecDeque<Line>,
    report: Report,
    /// The number of requests in a row after which documents had to be sent again.
    failures: u32,
    why: String,
}

impl Run {
    /// Sends one request.
    fn turn(&mut self, nodes: &Nodes, pace: &mut Pace) -> Result<(), Error> {
        let mut sent = Vec::new();
        let mut body = Vec::new();
        while let Some(line) = self.queue.pop_front() {
            if !sent.is_empty() && (body.len() + line.bytes.len() > pace.bytes || sent.len() >= COUNT_MAX) {
                self.queue.push_front(line);
                break;
            }
            body.extend_from_slice(&line.bytes);
            sent.push(line);
        }
        match nodes.ask(Request { method: "POST", path: PATH, body: Body::Lines(&body) })? {
            Outcome::Reply(reply) if reply.is_ok() => self.sort(sent, &reply, pace),
            Outcome::Reply(reply) if reply.status == 429 => {
                self.again(reply.reason(), sent);
                pace.less();
                Ok(())
            }
            Outcome::Reply(reply) if reply.status == 413 => self.too_large(sent, &reply, pace),
            Outcome::Reply(reply) => Err(error(&reply)),
            Outcome::TooLarge => Err(Error::Cannot("the answer to a bulk request is too large".to_owned())),
        }
    }

    /// Puts documents back to the front of the queue, to be sent again after a wait.
    fn again(&mut self, why: String, lines: Vec<Line>) {
        self.why = why;
        self.failures = self.failures.saturating_add(1);
        for line in lines.into_iter().rev() {
            self.queue.push_front(line);
        }
    }

    fn too_large(&mut self, mut sent: Vec<Line>, reply: &Reply, pace: &mut Pace) -> Result<(), Error> {
        if sent.len() == 1
            && let Some(line) = sent.pop()
        {
            self.refuse(line, reply.reason());
            return Ok(());
        }
        // Halves the request actually sent. That terminates even if single documents exceed the
        // request size.
        pace.less();
        self.failures = self.failures.saturating_add(1);
        self.why = reply.reason();
        let rest = sent.split_off(sent.len() / 2);
        for line in rest.into_iter().rev() {
            self.queue.push_front(line);
        }
        pace.bytes = pace.bytes.min(sent.iter().map(|l| l.bytes.len()).sum::<usize>().max(BYTES_MIN));
        for line in sent.into_iter().rev() {
            self.queue.push_front(line);
        }
        Ok(())
    }

    /// Handles the result of each document.
    fn sort(&mut self, sent: Vec<Line>, reply: &Reply, pace: &mut Pace) -> Result<(), Error> {
        if reply.body.get("errors") == Some(&Value::Bool(false)) {
            self.failures = 0;
            pace.more();
            return Ok(());
        }
        let items = reply.body.get("items").and_then(Value::as_array);
        let Some(items) = items.filter(|items| items.len() == sent.len()) else {
            return Err(Error::Refused(
                "the answer to a bulk request does not say what became of each document".to_owned(),
            ));
        };
        let (mut again, mut why) = (Vec::new(), String::new());
        for (line, item) in sent.into_iter().zip(items) {
            let item = item.get("index").unwrap_or(item);
            let status = item.get("status").and_then(Value::as_u64).unwrap_or(500);
            match fate(status, item.pointer("/error/type").and_then(Value::as_str).unwrap_or_default()) {
                Fate::Done => {}
                Fate::Again => {
                    why = reason(item);
                    again.push(line);
                }
                Fate::Never => self.thin_or_refuse(line, reason(item)),
            }
        }
        if again.is_empty() {
            self.failures = 0;
            pace.more();
        } else {
            pace.less();
            self.again(why, again);
        }
        Ok(())
    }

    /// If the index has reached its field limit, the document may still fit without its field
    /// families.
    fn thin_or_refuse(&mut self, line: Line, why: String) {
        let thin = if line.thinned { None } else { wire::without_families(&line.op.source) };
        match thin {
            Some(source) => {
                self.report.thinned.push(format!("{}: {why}", name(&source)));
                self.queue.push_back(Line { thinned: true, ..Line::new(Op { source, ..line.op }) });
            }
            None => self.refuse(line, why),
        }
    }

    fn refuse(&mut self, line: Line, why: String) {
        let Op { index, id, source, .. } = line.op;
        self.report.refused.push(Refused { index, id, why, source });
    }
}

/// A document's host and file name, for messages.
pub(super) fn name(source: &Map<String, Value>) -> String {
    let text = |name: &str| source.get(name).and_then(Value::as_str).unwrap_or("?");
    format!("{} {}", text("host"), text("filename"))
}

#[derive(Debug, PartialEq, Eq)]
enum Fate {
    Done,
    Again,
    Never,
}

/// What to do with a document, given its status and error type.
fn fate(status: u64, error_type: &str) -> Fate {
    match (status, error_type) {
        // 409: the cluster already has a newer version.
        (200..300 | 409, _) => Fate::Done,
        (429 | 500..600, _) | (_, "cluster_block_exception") => Fate::Again,
        _ => Fate::Never,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn op(id: &str) -> Op {
        let mut source = Map::new();
        source.insert("host".into(), json!("web1"));
        source.insert("filename".into(), json!(id));
        Op { index: "mitra_2026-11-21".into(), id: id.into(), version: 7, source }
    }

    fn run(ids: &[&str]) -> (Run, Vec<Line>) {
        let run = Run { queue: VecDeque::new(), report: Report::default(), failures: 0, why: String::new() };
        (run, ids.iter().map(|id| Line::new(op(id))).collect())
    }

    fn reply(items: Value) -> Reply {
        Reply { status: 200, body: json!({"errors": true, "items": items}) }
    }

    #[test]
    fn a_document_has_two_lines() {
        let line = Line::new(op("a"));
        let text = String::from_utf8(line.bytes).unwrap();
        let lines: Vec<Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        assert_eq!(lines[0]["index"]["version_type"], "external_gte");
        assert_eq!(lines[0]["index"]["version"], 7);
        assert_eq!(lines[1]["filename"], "a");
    }

    #[test]
    fn each_document_has_its_own_fate() {
        let (mut run, sent) = run(&["a", "b", "c", "d"]);
        let mut pace = Pace::default();
        let items = json!([
            {"index": {"status": 201}},
            {"index": {"status": 409, "error": {"type": "version_conflict_engine_exception", "reason": "newer"}}},
            {"index": {"status": 429, "error": {"type": "rejected_execution_exception", "reason": "queue full"}}},
            {"index": {"status": 400, "error": {"type": "mapper_parsing_exception", "reason": "failed to parse"}}},
        ]);
        run.sort(sent, &reply(items), &mut pace).unwrap();
        assert_eq!(run.queue.iter().map(|l| l.op.id.as_str()).collect::<Vec<_>>(), ["c"]);
        assert_eq!(
            run.report.refused.iter().map(|r| (r.id.as_str(), r.why.as_str())).collect::<Vec<_>>(),
            [("d", "failed to parse")]
        );
        assert_eq!((run.failures, run.why.as_str()), (1, "queue full"));
        assert_eq!(pace.bytes, BYTES_MAX / 2);
    }

    #[test]
    fn an_answer_that_leaves_one_out_is_no_answer() {
        let (mut run, sent) = run(&["a", "b"]);
        assert!(run.sort(sent, &reply(json!([{"index": {"status": 201}}])), &mut Pace::default()).is_err());
    }

    #[test]
    fn too_large_ends_with_the_one_that_is() {
        let (mut run, sent) = run(&["a", "b"]);
        let mut pace = Pace::default();
        let no = Reply { status: 413, body: Value::Null };
        run.too_large(sent, &no, &mut pace).unwrap();
        assert_eq!(run.queue.iter().map(|l| l.op.id.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        let one = vec![run.queue.pop_front().unwrap()];
        run.too_large(one, &no, &mut pace).unwrap();
        assert_eq!(run.report.refused.len(), 1);
    }

    #[test]
    fn blocks_pass_and_mistakes_do_not() {
        assert_eq!(fate(403, "cluster_block_exception"), Fate::Again);
        assert_eq!(fate(503, "unavailable_shards_exception"), Fate::Again);
        assert_eq!(fate(400, "illegal_argument_exception"), Fate::Never);
        assert_eq!(fate(404, "index_not_found_exception"), Fate::Never);
    }
}
