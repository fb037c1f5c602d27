//! The HTTP API of Prometheus over the archive: what Grafana and others ask.

mod source;

use std::collections::{BTreeMap, BTreeSet};

use hyper::body::Bytes;
use hyper::{Response, StatusCode, Uri};
use mitra_ask::promql::{self, Answer, Error, Labels, Matcher, NAME, Steps};
use mitra_model::Entity;
use percent_encoding::percent_decode_str;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

use self::source::{Samples, families};
use super::api::Server;
use super::archive::View;
use super::counter::Client;
use super::guard::Asks;
use super::pool::Cancel;
use super::query::{self, Query};
use super::response::{Body, Failure, of_json, of_json_text};

/// Where the values of a label are.
pub const LABEL_VALUES: &str = "/prometheus/api/v1/label/{name}/values";
/// Those of Prometheus whose answer would be the same here.
const IGNORED: [&str; 4] = ["timeout", "stats", "lookback_delta", "dedup"];
/// Names and labels are those of the last samples of a range.
const LAST_SAMPLES: f64 = 10.0;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    Query,
    QueryRange,
    Labels,
    LabelValues,
    Series,
    Metadata,
    BuildInfo,
}

impl Asked {
    pub fn asks(self) -> Asks {
        match self {
            Asked::Query | Asked::QueryRange | Asked::Labels | Asked::Series => Asks::Either,
            Asked::LabelValues | Asked::Metadata | Asked::BuildInfo => Asks::Get,
        }
    }
}

/// The name of the label in a path.
pub fn label(path: &str) -> Option<&str> {
    let (before, after) = LABEL_VALUES.split_once("{name}")?;
    path.strip_prefix(before)?.strip_suffix(after).filter(|name| !name.is_empty() && !name.contains('/'))
}

pub async fn answer(
    server: &Server,
    asked: Asked,
    uri: &Uri,
    form: &Bytes,
    client: Client,
) -> Response<Body> {
    match found(server, asked, uri, form, client).await {
        Ok(data) => of_json_text(format!(r#"{{"status":"success","data":{data}}}"#)),
        Err(failure) => {
            let kind = match failure.status {
                StatusCode::UNPROCESSABLE_ENTITY => "execution",
                StatusCode::BAD_REQUEST => "bad_data",
                StatusCode::NOT_FOUND => "not_found",
                StatusCode::INTERNAL_SERVER_ERROR => "internal",
                _ => "unavailable",
            };
            let body = json!({ "status": "error", "errorType": kind, "error": failure.message });
            let mut response = failure.response();
            *response.body_mut() = of_json(&body).into_body();
            response
        }
    }
}

/// The answer as JSON.
async fn found(
    server: &Server,
    asked: Asked,
    uri: &Uri,
    form: &Bytes,
    client: Client,
) -> Result<String, Failure> {
    let form =
        std::str::from_utf8(form).map_err(|_| Failure::bad("bad_parameter", "the form is not UTF-8"))?;
    let text = format!("{}&{form}", uri.query().unwrap_or_default());
    let known: &[&str] = match asked {
        Asked::Query => &["query", "time", "limit"],
        Asked::QueryRange => &["query", "start", "end", "step", "limit"],
        Asked::Labels | Asked::LabelValues | Asked::Series => &["start", "end", "limit"],
        Asked::Metadata => &["metric", "limit", "limit_per_metric"],
        Asked::BuildInfo => &[],
    };
    let known: Vec<&str> = known.iter().chain(&IGNORED).copied().collect();
    let query = Query::parse(Some(&text), &known, &["match[]"])?;
    let view = server.archive.fresh().await;
    match asked {
        Asked::BuildInfo => return Ok(build_info().to_string()),
        Asked::Metadata => return Ok(metadata(&view, &query)?.to_string()),
        _ => {}
    }
    view.check()?;
    let label = label(uri.path()).map(|name| percent_decode_str(name).decode_utf8_lossy().into_owned());
    let ticket = server.pool.ticket(client)?;
    let work = move |cancel: &Cancel| {
        let mut samples = Samples::new(&view, cancel);
        match asked {
            Asked::Query => instant(&mut samples, &view, &query),
            Asked::QueryRange => range(&mut samples, &query),
            _ => {
                let series = last_series(&mut samples, &view, &query)?;
                let limit =
                    query.number("limit", 0..=usize::MAX)?.filter(|limit| *limit > 0).unwrap_or(usize::MAX);
                let names: BTreeSet<&String> = match (asked, &label) {
                    (Asked::Series, _) => {
                        return written(&series.iter().take(limit).collect::<Vec<_>>());
                    }
                    (_, Some(label)) => series.iter().filter_map(|labels| labels.get(label)).collect(),
                    _ => series.iter().flat_map(Labels::keys).collect(),
                };
                written(&names.into_iter().take(limit).collect::<Vec<_>>())
            }
        }
    };
    server.pool.run(ticket, work).await
}

fn failure(error: Error) -> Failure {
    let status = match error {
        Error::Wrong(_) => StatusCode::BAD_REQUEST,
        Error::Execution(_) => StatusCode::UNPROCESSABLE_ENTITY,
        Error::Unreadable(_) => StatusCode::INTERNAL_SERVER_ERROR,
        Error::Gone => StatusCode::SERVICE_UNAVAILABLE,
    };
    Failure::new(status, "promql", error.to_string())
}

/// A parameter as milliseconds since 1970.
fn moment(query: &Query, name: &str) -> Result<Option<i64>, Failure> {
    let Some(text) = query.get(name) else { return Ok(None) };
    let wanted = || format!("{name}: want seconds since 1970, or RFC 3339");
    let ns = query::moment(text).ok_or_else(|| Failure::bad("bad_time", wanted()))?;
    Ok(Some(ns.div_euclid(1_000_000)))
}

fn wanted(query: &Query, name: &str) -> Result<i64, Failure> {
    moment(query, name)?.ok_or_else(|| Failure::bad("bad_time", format!("{name}: it is missing")))
}

fn parsed(query: &Query) -> Result<promql::Query, Failure> {
    let text = query.get("query").ok_or_else(|| Failure::bad("bad_parameter", "query: it is missing"))?;
    promql::Query::parse(text).map_err(failure)
}

fn instant(samples: &mut Samples<'_>, view: &View, query: &Query) -> Result<String, Failure> {
    let promql = parsed(query)?;
    // The end of a recording is its present.
    let at = moment(query, "time")?.unwrap_or_else(|| view.span.until.div_euclid(1_000_000));
    told(&promql.instant(samples, at).map_err(failure)?, at)
}

fn range(samples: &mut Samples<'_>, query: &Query) -> Result<String, Failure> {
    let promql = parsed(query)?;
    let step = query.get("step").and_then(promql::duration_ms);
    let step_ms =
        step.ok_or_else(|| Failure::bad("bad_number", "step: want seconds, or a duration as 15s"))?;
    let steps = Steps { start_ms: wanted(query, "start")?, end_ms: wanted(query, "end")?, step_ms };
    let answer = promql.range(samples, steps).map_err(failure)?;
    told(&answer, steps.start_ms)
}

fn written(value: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string(value).map_err(|error| Failure::unreadable(&error.into()))
}

/// A moment and a value.
type Point = (f64, String);

fn point(t_ms: i64, value: f64) -> Point {
    (t_ms as f64 / 1000.0, number(value))
}

/// Values over time, each of which is written when its turn comes: there may be millions.
struct Points<'a>(&'a [(i64, f64)]);

impl Serialize for Points<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|(t, value)| point(*t, *value)))
    }
}

#[derive(Serialize)]
struct At<'a> {
    metric: &'a Labels,
    value: Point,
}

#[derive(Serialize)]
struct Over<'a> {
    metric: &'a Labels,
    values: Points<'a>,
}

fn told(answer: &Answer, at_ms: i64) -> Result<String, Failure> {
    let (kind, result) = match answer {
        Answer::Scalar(value) => ("scalar", written(&point(at_ms, *value))?),
        Answer::Text(text) => ("string", written(&(at_ms as f64 / 1000.0, text))?),
        Answer::Vector(items) => {
            let items: Vec<At<'_>> =
                items.iter().map(|(metric, value)| At { metric, value: point(at_ms, *value) }).collect();
            ("vector", written(&items)?)
        }
        Answer::Matrix(rows) => {
            let rows: Vec<Over<'_>> =
                rows.iter().map(|(metric, row)| Over { metric, values: Points(row) }).collect();
            ("matrix", written(&rows)?)
        }
    };
    Ok(format!(r#"{{"resultType":"{kind}","result":{result}}}"#))
}

/// As Prometheus writes it.
fn number(value: f64) -> String {
    if value.is_infinite() {
        (if value > 0.0 { "+Inf" } else { "-Inf" }).to_owned()
    } else {
        value.to_string()
    }
}

/// The series that were there at the end of a range.
fn last_series(samples: &mut Samples<'_>, view: &View, query: &Query) -> Result<Vec<Labels>, Failure> {
    let end = moment(query, "end")?.unwrap_or(i64::MAX).min(view.span.until.div_euclid(1_000_000));
    let step_s = if view.interval_s.is_finite() { view.interval_s } else { 1.0 };
    let last = end.saturating_sub((LAST_SAMPLES * step_s * 1000.0) as i64);
    let start = moment(query, "start")?.unwrap_or(i64::MIN).max(last);
    let mut found: BTreeSet<Labels> = BTreeSet::new();
    let given: Vec<&str> =
        query.pairs().filter(|(name, _)| *name == "match[]").map(|(_, selector)| selector).collect();
    let mut take = |matchers: &[Matcher]| {
        let series =
            promql::Source::select(samples, matchers, start.saturating_sub(1), end).map_err(failure)?;
        found.extend(series.into_iter().map(|series| series.labels));
        Ok::<(), Failure>(())
    };
    if given.is_empty() {
        take(&[])?;
    }
    for selector in given {
        let query = promql::Query::parse(selector).map_err(failure)?;
        take(&query.matchers().map_err(failure)?)?;
    }
    Ok(found.into_iter().collect())
}

/// What each metric means.
fn metadata(view: &View, query: &Query) -> Result<Value, Failure> {
    let limit = query.number("limit", 0..=usize::MAX)?.filter(|limit| *limit > 0).unwrap_or(usize::MAX);
    let only = query.get("metric");
    let all: BTreeMap<String, Value> = families(view)
        .map(|(_, family, _)| {
            let about = json!([{ "type": family.kind, "help": family.help, "unit": family.unit }]);
            (family.of_samples(), about)
        })
        .filter(|(name, _)| only.is_none_or(|only| only == name))
        .take(limit)
        .collect();
    Ok(Value::Object(all.into_iter().collect::<Map<_, _>>()))
}

/// The version is that of Prometheus whose questions are understood: clients look at it.
fn build_info() -> Value {
    json!({
        "version": "2.45.0",
        "revision": concat!("mitra ", env!("CARGO_PKG_VERSION")),
        "branch": "",
        "buildUser": "",
        "buildDate": "",
        "goVersion": "",
    })
}

/// The label that says which row of an entity it is; those of the whole machine have none.
fn label_of(entity: Entity) -> Option<&'static str> {
    (entity != Entity::System).then(|| entity.name())
}

/// Whether all matchers match.
fn all_match(matchers: &[Matcher], labels: &Labels) -> bool {
    matchers.iter().all(|matcher| matcher.is_match(labels.get(&matcher.name).map_or("", String::as_str)))
}

/// The name of the metric among the labels.
fn named(name: &str) -> Labels {
    Labels::from([(NAME.to_owned(), name.to_owned())])
}
