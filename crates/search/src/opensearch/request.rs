//! Search requests: the query text with all defaults of `query_string` fixed, in the indices of a
//! scope.

use std::time::Duration;

use serde_json::{Value, json};

use crate::day::Day;
use crate::document::{Flag, Kind};
use crate::error::Error;
use crate::fields;
use crate::query::Query;
use crate::scope::Scope;

use super::http::{Body, Reply, Request};
use super::names::{IndexKind, Names};
use super::nodes::{self, Outcome};
use super::{Cluster, aggregate, retry};

/// If a scope has more days, the cluster is asked which of them exist.
const DAYS_NAMED_MAX: i32 = 62;
/// Maximum number of indices per request.
const INDICES_MAX: usize = 4_096;
/// Maximum number of hosts in one request. A cluster accepts 65,536.
const HOSTS_MAX: usize = 60_000;
/// Maximum number of terms that a fuzzy word expands to. The default of 50 would silently drop
/// documents.
const FUZZY_MAX: u32 = 1_000;
/// The default of Lucene.
const DETERMINIZED_MAX: u32 = 10_000;
/// How often a search is sent again to a cluster that has no memory or no place in its queue for it, and the first
/// wait; waits double. Somebody may be looking at the screen, so in all it is a few seconds.
const AGAIN_MAX: u32 = 3;
const AGAIN_FIRST: Duration = Duration::from_millis(500);

/// The indices of a scope, and a filter on their documents.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct SearchTarget {
    pub indices: Vec<String>,
    pub filter: Vec<Value>,
}

/// The indices and the filter of a scope.
pub(super) fn place(cluster: &Cluster, scope: Scope) -> Result<SearchTarget, Error> {
    let names = &cluster.names;
    match scope {
        Scope::Days { first, last } => {
            let indices = days(cluster, first, last)?.into_iter().map(|day| names.day(day)).collect();
            Ok(SearchTarget { indices, filter: Vec::new() })
        }
        Scope::At { ns } => at(cluster, ns),
        Scope::Changed { since_ns, until_ns } => {
            let (first, last) = scope.days();
            let indices = days(cluster, first, last)?.into_iter().flat_map(|day| both(names, day)).collect();
            // Of several states on one day only the last one counts.
            let last_of_day = json!({"bool": {"must_not": [{"range": {"mitra.until": {"lt": until_ns}}}]}});
            Ok(SearchTarget { indices, filter: vec![changed(since_ns, until_ns), last_of_day] })
        }
    }
}

/// The index of a day and its history.
pub(super) fn both(names: &Names, day: Day) -> Vec<String> {
    vec![names.day(day), names.history(day)]
}

/// The states at a moment. For a host without a pass on that day, the states of the day before.
fn at(cluster: &Cluster, ns: i64) -> Result<SearchTarget, Error> {
    let names = &cluster.names;
    let day = Day::of(ns);
    let of_day = |day: Day| json!({"term": {"day": day.to_string()}});
    let gone = json!({"term": {"flags": Flag::Gone.name()}});
    let mut indices = both(names, day);
    let mut held = vec![json!({"bool": {
        "filter": [of_day(day), {"range": {"mitra.since": {"lte": ns}}}],
        "must_not": [{"range": {"mitra.until": {"lte": ns}}}, gone],
    }})];
    let looked_at = aggregate::hosts_in(cluster, &names.day(day))?;
    let mut others = aggregate::hosts_in(cluster, &names.day(day.before()))?;
    others.retain(|host| !looked_at.contains(host));
    if others.len() > HOSTS_MAX {
        return Err(Error::Cannot(format!(
            "{} hosts were not looked at on {day}: ask for another moment",
            others.len()
        )));
    }
    if !others.is_empty() {
        indices.push(names.day(day.before()));
        held.push(json!({"bool": {
            "filter": [of_day(day.before()), {"terms": {"host": others}}],
            "must_not": [gone, {"term": {"kind": Kind::Incident.name()}}],
        }}));
    }
    Ok(SearchTarget { indices, filter: vec![json!({"bool": {"should": held, "minimum_should_match": 1}})] })
}

/// Matches states that began within a time span and are changes.
pub(super) fn changed(since_ns: i64, until_ns: i64) -> Value {
    json!({"bool": {"filter": [
        {"range": {"mitra.since": {"gte": since_ns, "lt": until_ns}}},
        {"exists": {"field": "mitra.before"}},
    ]}})
}

/// The days of a range. If there are many, only those that the cluster has.
pub(super) fn days(cluster: &Cluster, first: Day, last: Day) -> Result<Vec<Day>, Error> {
    if last < first {
        return Ok(Vec::new());
    }
    let all: Vec<Day> = if last.0.saturating_sub(first.0) < DAYS_NAMED_MAX {
        first.through(last).collect()
    } else {
        kept(cluster)?.into_iter().filter(|d| (first..=last).contains(d)).collect()
    };
    if all.len() > INDICES_MAX / 2 {
        return Err(Error::Cannot(format!("{} days at once; wanted at most {}", all.len(), INDICES_MAX / 2)));
    }
    Ok(all)
}

/// The days that the cluster has, ascending.
pub(super) fn kept(cluster: &Cluster) -> Result<Vec<Day>, Error> {
    let mut days = Vec::new();
    for index in indices(cluster)? {
        if let Some(IndexKind::Day(day)) = cluster.names.read(&index) {
            days.push(day);
        }
    }
    days.sort_unstable();
    Ok(days)
}

/// All indices with the prefix, including those of others.
pub(super) fn indices(cluster: &Cluster) -> Result<Vec<String>, Error> {
    let path = format!("/{}/_alias?ignore_unavailable=true&allow_no_indices=true", cluster.names.pattern());
    let body = cluster.nodes.get(&path)?;
    Ok(body.as_object().map(|o| o.keys().cloned().collect()).unwrap_or_default())
}

/// Combines a query with other filters.
pub(super) fn filter(query: &Query, with: &[Value]) -> Value {
    let mut all = vec![query_string(query)];
    all.extend_from_slice(with);
    json!({"bool": {"filter": all}})
}

/// The query clause for the cluster.
fn query_string(query: &Query) -> Value {
    if query.text.trim().is_empty() {
        return json!({"match_all": {}});
    }
    json!({"query_string": {
        "query": query.text,
        "default_field": fields::DEFAULT,
        "default_operator": if query.all_words { "and" } else { "or" },
        "lenient": true,
        "analyze_wildcard": false,
        "allow_leading_wildcard": true,
        "fuzziness": "AUTO",
        "fuzzy_prefix_length": 0,
        "fuzzy_max_expansions": FUZZY_MAX,
        "fuzzy_transpositions": true,
        "phrase_slop": 0,
        "max_determinized_states": DETERMINIZED_MAX,
        "time_zone": "UTC",
    }})
}

/// An answer, unless it exceeds the limit.
pub(super) enum SearchReply {
    Answer(Value),
    TooLarge,
}

/// Searches some indices. Missing ones count as empty. The index names are in the body, because the
/// length of a URL is limited.
pub(super) fn search(cluster: &Cluster, indices: &[String], body: &Value) -> Result<SearchReply, Error> {
    if indices.is_empty() {
        return Ok(SearchReply::Answer(json!({})));
    }
    let head = json!({"index": indices, "ignore_unavailable": true, "allow_no_indices": true});
    let lines = format!("{head}\n{body}\n");
    let request = Request { method: "POST", path: "/_msearch", body: Body::Lines(lines.as_bytes()) };
    let mut refusals = 0;
    let reply = loop {
        let reply = match cluster.nodes.ask(request)? {
            Outcome::TooLarge => return Ok(SearchReply::TooLarge),
            Outcome::Reply(reply) if reply.is_ok() => alone(&reply),
            Outcome::Reply(reply) => reply,
        };
        if !is_overloaded(&reply) || refusals == AGAIN_MAX {
            break reply;
        }
        std::thread::sleep(retry::half_jitter(retry::doubled(AGAIN_FIRST, refusals, Duration::MAX)));
        refusals += 1;
    };
    if !reply.is_ok() {
        return Err(nodes::error(&reply));
    }
    // A result from only some of the shards would be wrong.
    if reply.body.pointer("/_shards/failed").and_then(Value::as_u64) != Some(0) {
        let why = reply.body.pointer("/_shards/failures/0/reason/reason").and_then(Value::as_str);
        return Err(Error::Away(format!(
            "a part of the index does not answer: {}",
            why.unwrap_or("no reason given")
        )));
    }
    if reply.body.get("timed_out") == Some(&Value::Bool(true)) {
        return Err(Error::Away("the cluster gave up searching for lack of time".to_owned()));
    }
    Ok(SearchReply::Answer(reply.body))
}

/// The answer to the only search of a request for several.
fn alone(reply: &Reply) -> Reply {
    let body = reply.body.pointer("/responses/0").cloned().unwrap_or_default();
    let status =
        body.get("status").and_then(Value::as_u64).and_then(|s| u16::try_from(s).ok()).unwrap_or(500);
    Reply { status, body }
}

/// Whether the cluster, or the node of one shard, refused for lack of memory or of a place in its queue.
fn is_overloaded(reply: &Reply) -> bool {
    let passes = |kind: &Value| {
        matches!(kind.as_str(), Some("circuit_breaking_exception" | "rejected_execution_exception"))
    };
    let shards = reply.body.pointer("/_shards/failures").and_then(Value::as_array);
    reply.status == 429
        || shards.is_some_and(|all| all.iter().filter_map(|one| one.pointer("/reason/type")).any(passes))
}

#[cfg(test)]
mod tests {
    use super::super::{Settings, fake};
    use super::*;

    fn cluster() -> Cluster {
        let nodes = vec!["http://127.0.0.1:9".to_owned()];
        Cluster::connect(Settings { nodes, ..Settings::default() }).unwrap()
    }

    #[test]
    fn a_cluster_without_memory_for_a_search_is_asked_again() {
        let of = |status, body| Reply { status, body };
        let shard = |kind: &str| json!({"_shards": {"failed": 1, "failures": [{"reason": {"type": kind}}]}});
        let answers =
            json!({"responses": [{"status": 429, "error": {"type": "circuit_breaking_exception"}}]});
        assert!(is_overloaded(&alone(&of(200, answers))));
        assert!(is_overloaded(&of(200, shard("circuit_breaking_exception"))));
        assert!(is_overloaded(&of(200, shard("rejected_execution_exception"))));
        assert!(!is_overloaded(&of(200, shard("query_shard_exception"))));
        assert!(!is_overloaded(&of(200, json!({"_shards": {"failed": 0}}))));
        assert!(!is_overloaded(&alone(&of(200, json!({})))));
    }

    #[test]
    fn a_search_that_was_refused_is_sent_again_and_no_other() {
        let indices = ["mitra_2026-11-20".to_owned()];
        let refused = |kind: &str| json!({"responses": [{"status": if kind == "parsing_exception" { 400 } else { 429 }, "error": {"type": kind, "reason": "no"}}]});
        let found = json!({"responses": [{"status": 200, "_shards": {"failed": 0}, "hits": {"total": 7}}]});
        let (busy, asked) = fake::cluster(vec![(200, refused("circuit_breaking_exception")), (200, found)]);
        let SearchReply::Answer(answer) = search(&busy, &indices, &json!({})).unwrap() else {
            panic!("large")
        };
        assert_eq!((answer["hits"]["total"].as_u64(), asked.lock().unwrap().len()), (Some(7), 2));
        let (wrong, asked) = fake::cluster(vec![(200, refused("parsing_exception")), (200, json!({}))]);
        assert!(search(&wrong, &indices, &json!({})).is_err());
        assert_eq!(asked.lock().unwrap().len(), 1);
    }

    #[test]
    fn a_scope_has_its_indices() {
        let cluster = cluster();
        let (first, last) = ("2026-11-20".parse().unwrap(), "2026-11-21".parse().unwrap());
        let days = place(&cluster, Scope::Days { first, last }).unwrap();
        assert_eq!(days.indices, ["mitra_2026-11-20", "mitra_2026-11-21"]);
        assert!(days.filter.is_empty());
        let changed =
            place(&cluster, Scope::Changed { since_ns: last.start_ns(), until_ns: last.end_ns() }).unwrap();
        assert_eq!(changed.indices, ["mitra_2026-11-21", "mitra_history_2026-11-21"]);
        let none = place(&cluster, Scope::Days { first: last, last: first }).unwrap();
        assert!(none.indices.is_empty());
    }

    #[test]
    fn no_query_is_all_documents() {
        let mut query = Query::all();
        query.text = " ".to_owned();
        assert_eq!(query_string(&query), json!({"match_all": {}}));
        query.text = "a:b".to_owned();
        assert_eq!(query_string(&query)["query_string"]["query"], "a:b");
    }
}
