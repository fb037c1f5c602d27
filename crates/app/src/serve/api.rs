//! From a question to its answer.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use http_body_util::{BodyExt, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::{Method, Request, Response, StatusCode};
use jiff::tz::TimeZone;
use mitra_model::report::Report;
use mitra_model::time::SECOND;
use mitra_model::{Entity, Kind, Metric, Span};
use serde_json::{Value, json};
use tokio::sync::{broadcast, watch};

use super::answers::{captures, changes, compare, segments, status};
use super::archive::{Archive, Version, View};
use super::cache::Cache;
use super::counter::Client;
use super::guard::{Asks, Guard, too_large};
use super::pool::Pool;
use super::prometheus::{self, Asked};
use super::query::{self, Query};
use super::response::{Body, Failure, HTML, JSON, REPORT_MAY, of, of_json};
use super::series::Columns;
use super::{
    Commands, Options, cgroups, incidents, mcp, openmetrics, page, processes, response, rows, series, state,
    stream,
};
use crate::diagnosis;
use crate::recording::all_metrics;
use crate::render::html;
use crate::render::style::{Style, WIDTH_PIPED, rfc3339};
use crate::values::time::LocalClock;

/// What may be asked in words.
pub const OPENAPI: &str = include_str!("openapi.json");
/// Longer ranges are explained in pieces: memory grows with their length.
const EXPLAINED_MAX_NS: i64 = 24 * 3600 * SECOND;
/// Rows of tasks are read minute by minute.
pub const ROWS_MAX_NS: i64 = 24 * 3600 * SECOND;
const SERVICES_MAX_NS: i64 = 24 * 3600 * SECOND;
/// Of what is kept: reports as the bytes of their JSON, and columns.
const REPORTS_BYTES_MAX: usize = 16 << 20;
const COLUMNS_BYTES_MAX: usize = 32 << 20;
/// What `/metrics` and the stream say of incidents is of the last minutes.
const RECENT_NS: i64 = 600 * SECOND;
/// Whoever scrapes more often gets the same incidents.
const RECENT_FOR: Duration = Duration::from_secs(60);

/// Of a question that has a body.
const BODY_BYTES_MAX: usize = 256 << 10;
const BODY_WITHIN: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Route {
    Recording,
    Metrics,
    Rows,
    Series,
    Incidents,
    Report,
    ReportHtml,
    Processes,
    Cgroups,
    Services,
    Captures,
    Arm,
    Capture,
    Changes,
    Compare,
    Segments,
    Segment,
    Search,
    Document,
    Status,
    Stream,
    OpenMetrics,
    OpenApi,
    Mcp,
    Prometheus(Asked),
}

impl Route {
    fn asks(self) -> Asks {
        match self {
            Route::Mcp | Route::Arm => Asks::Post,
            Route::Prometheus(asked) => asked.asks(),
            _ => Asks::Get,
        }
    }
}

const ROUTES: &[(&str, Route)] = &[
    ("/api/v1/recording", Route::Recording),
    ("/api/v1/metrics", Route::Metrics),
    ("/api/v1/rows", Route::Rows),
    ("/api/v1/series", Route::Series),
    ("/api/v1/incidents", Route::Incidents),
    ("/api/v1/report", Route::Report),
    ("/api/v1/report.html", Route::ReportHtml),
    ("/api/v1/processes", Route::Processes),
    ("/api/v1/cgroups", Route::Cgroups),
    ("/api/v1/services", Route::Services),
    ("/api/v1/captures", Route::Captures),
    (captures::ONE, Route::Capture),
    ("/api/v1/changes", Route::Changes),
    ("/api/v1/compare", Route::Compare),
    ("/api/v1/segments", Route::Segments),
    (segments::ONE, Route::Segment),
    ("/api/v1/search", Route::Search),
    ("/api/v1/document", Route::Document),
    ("/api/v1/status", Route::Status),
    ("/api/v1/stream", Route::Stream),
    ("/metrics", Route::OpenMetrics),
    ("/api/v1/openapi.json", Route::OpenApi),
    ("/mcp", Route::Mcp),
    ("/prometheus/api/v1/query", Route::Prometheus(Asked::Query)),
    ("/prometheus/api/v1/query_range", Route::Prometheus(Asked::QueryRange)),
    ("/prometheus/api/v1/labels", Route::Prometheus(Asked::Labels)),
    (prometheus::LABEL_VALUES, Route::Prometheus(Asked::LabelValues)),
    ("/prometheus/api/v1/series", Route::Prometheus(Asked::Series)),
    ("/prometheus/api/v1/metadata", Route::Prometheus(Asked::Metadata)),
    ("/prometheus/api/v1/status/buildinfo", Route::Prometheus(Asked::BuildInfo)),
];

/// A range, and of which view its report is.
type ReportKey = (i64, i64, Version);

pub struct Server {
    pub archive: Arc<Archive>,
    pub events: broadcast::Sender<Bytes>,
    pub pool: Pool,
    pub columns: Arc<Columns>,
    /// The way to the recorder that started this, where it may be asked for probes.
    pub asks: Option<super::asks::Asks>,
    guard: Guard,
    reports: Arc<Cache<ReportKey, Report>>,
    recent: Mutex<Option<(Instant, Arc<Report>)>>,
    commands: Commands,
}

impl Server {
    pub fn open(options: Options, port: Option<u16>, asks: Option<super::asks::Asks>) -> Result<Arc<Self>> {
        Ok(Arc::new(Server {
            archive: Arc::new(Archive::open(options.dir)?),
            asks,
            events: broadcast::Sender::new(stream::LATE_MAX),
            guard: Guard::new(options.token, port, options.tls.is_some()),
            pool: Pool::new(),
            columns: Arc::new(Columns::new(COLUMNS_BYTES_MAX)),
            reports: Arc::new(Cache::new(REPORTS_BYTES_MAX)),
            recent: Mutex::default(),
            commands: options.commands,
        }))
    }

    pub async fn answer(
        &self,
        request: Request<Incoming>,
        client: Client,
        stopped: watch::Receiver<bool>,
    ) -> Response<Body> {
        let (head, body) = request.into_parts();
        let request = Request::from_parts(head, ());
        self.routed(&request, body, client, stopped).await.unwrap_or_else(|failure| failure.response())
    }

    async fn routed(
        &self,
        request: &Request<()>,
        body: Incoming,
        client: Client,
        stopped: watch::Receiver<bool>,
    ) -> Result<Response<Body>, Failure> {
        let path = request.uri().path();
        let is_asked = |known: &str| match known {
            prometheus::LABEL_VALUES => prometheus::label(path).is_some(),
            captures::ONE => captures::asked(path).is_some(),
            segments::ONE => segments::asked(path).is_some(),
            _ => known == path,
        };
        let route = ROUTES.iter().find(|(known, _)| is_asked(known)).map(|(_, route)| *route);
        let route = match route {
            Some(Route::Captures) if request.method() == Method::POST => Some(Route::Arm),
            other => other,
        };
        let asks = route.map_or(Asks::Get, Route::asks);
        self.guard.check(request, asks, route.is_some_and(|route| route != Route::OpenApi))?;
        let text = request.uri().query();
        let takes_gzip = response::takes_gzip(request.headers());
        let query = |known: &[&str], repeated: &[&str]| Query::parse(text, known, repeated);
        match route {
            // Everything else behind the question mark is the page's own.
            None if path == "/" && text.is_some_and(|text| text.starts_with("token=")) => {
                let query = query(&["token"], &[])?;
                Ok(response::elsewhere("/", &self.guard.cookie(query.get("token").unwrap_or_default())?)?)
            }
            None => {
                let all = "there is nothing of that name; see /api/v1/openapi.json";
                page::asset(path, request.headers()).ok_or_else(|| Failure::not_found("no_path", all))
            }
            Some(Route::OpenApi) => Ok(of(JSON, OPENAPI)),
            Some(Route::Recording) => {
                query(&[], &[])?;
                Ok(of_json(&recording(&*self.archive.fresh().await)))
            }
            Some(Route::Metrics) => metrics(&query(&["entity"], &[])?),
            Some(Route::Rows) => {
                self.rows(&query(&["metric", "since", "until", "limit"], &[])?, client).await
            }
            Some(Route::Series) => {
                let query = query(&["since", "until", "columns", "process"], &["metric", "row"])?;
                self.series(&query, takes_gzip, client).await
            }
            Some(Route::Incidents) => {
                let report = self.report(&query(&["since", "until", "service"], &[])?, client).await?;
                Ok(of_json(&incidents::list(&report)))
            }
            Some(Route::Report) => {
                let query = query(&["since", "until", "incident", "service"], &[])?;
                let number = query.number("incident", 1..=usize::MAX)?;
                let report = self.report(&query, client).await?;
                Ok(match number {
                    Some(number) => of_json(&incidents::only(&report, number)?),
                    None => of_json(&*report),
                })
            }
            Some(Route::ReportHtml) => {
                self.report_html(&query(&["since", "until", "incident", "service"], &[])?, client).await
            }
            Some(Route::Processes) => {
                let query = query(&["at", "span", "pid"], &[])?;
                self.processes(&query, client, move |told| response::packed_json(&told, takes_gzip)).await
            }
            Some(Route::Cgroups) => {
                let told = move |view: &View, at: i64, span_s: usize| {
                    cgroups::answer(view, at, span_s).map(|told| response::packed_json(&told, takes_gzip))
                };
                self.of_moment(&query(&["at", "span"], &[])?, client, told).await
            }
            Some(Route::Services) => self.services(&query(&["since", "until"], &[])?, client).await,
            Some(Route::Captures) => {
                let query = query(&["since", "until", "kind", "limit"], &[])?;
                Ok(of_json(&captures::list(self, &query, client).await?))
            }
            Some(Route::Arm) => {
                query(&[], &[])?;
                // Without a token everybody on this machine could ask.
                self.guard.has_token()?;
                captures::arm(self, request.headers(), &whole(body).await?, client).await
            }
            Some(Route::Capture) => {
                query(&[], &[])?;
                let id = captures::asked(path).unwrap_or_default();
                captures::one(self, id, takes_gzip, client).await
            }
            Some(Route::Changes) => {
                let query = query(&["since", "until"], &[])?;
                Ok(of_json(&changes::answer(self, &query, client).await?))
            }
            Some(Route::Compare) => {
                let query = query(&["a_since", "a_until", "b_since", "b_until"], &[])?;
                Ok(of_json(&compare::answer(self, &query, client).await?))
            }
            Some(Route::Segments) => {
                query(&[], &[])?;
                Ok(of_json(&segments::list(self, client).await?))
            }
            Some(Route::Segment) => {
                query(&[], &[])?;
                let range = request.headers().get(hyper::header::RANGE);
                segments::one(self, segments::asked(path).unwrap_or_default(), range, client).await
            }
            Some(Route::Search) => {
                let query = query(&["query", "at", "changed", "since", "until", "limit"], &[])?;
                Ok(of_json(&state::search(self, query, client).await?))
            }
            Some(Route::Document) => {
                let query = query(&["host", "filename", "at"], &[])?;
                Ok(of_json(&state::document(self, query, client).await?))
            }
            Some(Route::Status) => {
                query(&[], &[])?;
                Ok(of_json(&status::answer(self, client).await?))
            }
            Some(Route::Stream) => {
                query(&[], &[])?;
                let view = self.archive.fresh().await;
                Ok(stream::answer(&view, self.events.subscribe(), stopped))
            }
            Some(Route::OpenMetrics) => self.openmetrics(client).await,
            Some(Route::Prometheus(asked)) => {
                let form = if request.method() == Method::POST { whole(body).await? } else { Bytes::new() };
                Ok(prometheus::answer(self, asked, request.uri(), &form, client).await)
            }
            Some(Route::Mcp) => Ok(mcp::post(self, request.headers(), &whole(body).await?, client).await),
        }
    }

    async fn rows(&self, query: &Query, client: Client) -> Result<Response<Body>, Failure> {
        let view = self.archive.fresh().await;
        let name = query.get("metric").ok_or_else(|| Failure::bad("bad_parameter", "want metric=NAME"))?;
        let metric = query::number_metric(name)?;
        let span = query.recorded(&view, ROWS_MAX_NS)?;
        let limit = query.number("limit", 1..=rows::LIMIT_MAX)?.unwrap_or(rows::LIMIT);
        let ticket = self.pool.ticket(client)?;
        let work = move |cancel: &_| rows::answer(&view, metric, span, limit, cancel);
        Ok(of_json(&self.pool.run(ticket, work).await?))
    }

    async fn series(
        &self,
        query: &Query,
        takes_gzip: bool,
        client: Client,
    ) -> Result<Response<Body>, Failure> {
        let view = self.archive.fresh().await;
        let drawing = series::drawing(query, &view)?;
        let columns = Arc::clone(&self.columns);
        let ticket = self.pool.ticket(client)?;
        let work = move |cancel: &_| {
            let bytes = series::answer(&view, &drawing, &columns, cancel)?;
            Ok(response::packed("application/octet-stream", bytes, takes_gzip))
        };
        self.pool.run(ticket, work).await
    }

    /// The report of the range that is asked for, as `mitra explain` makes it.
    pub async fn report(&self, query: &Query, client: Client) -> Result<Arc<Report>, Failure> {
        let view = self.archive.fresh().await;
        let span = query.recorded(&view, EXPLAINED_MAX_NS)?;
        let report = self.explained(Arc::clone(&view), span, client).await?;
        let Some(name) = query.get("service").map(str::to_owned) else { return Ok(report) };
        let (restrict, ticket) = (self.commands.restrict, self.pool.ticket(client)?);
        let work = move |_: &_| {
            let mut report = Report::clone(&report);
            restrict(&view.reader, span, &name, &mut report)
                .map_err(|error| Failure::not_found("no_service", format!("{error:#}")))?;
            Ok(Arc::new(report))
        };
        self.pool.run(ticket, work).await
    }

    async fn explained(&self, view: Arc<View>, span: Span, client: Client) -> Result<Arc<Report>, Failure> {
        let key = (span.since, span.until, view.version(span));
        if let Some(known) = self.reports.get(&key) {
            return Ok(known);
        }
        let ticket = self.pool.ticket(client)?;
        let turn = self.pool.turn().await?;
        let reports = Arc::clone(&self.reports);
        let work = move |_: &_| {
            let _turn = turn;
            // Whoever came before may have asked the same.
            if let Some(known) = reports.get(&key) {
                return Ok(known);
            }
            let report = Arc::new(diagnosis::explain(&view.reader, span, None)?);
            let bytes = serde_json::to_vec(&*report).map_or(usize::MAX, |json| json.len());
            reports.put(key, Arc::clone(&report), bytes);
            Ok(report)
        };
        self.pool.run(ticket, work).await
    }

    /// The report of the last minutes, not older than that.
    pub async fn recent(&self, client: Client, max_age: Duration) -> Result<Arc<Report>, Failure> {
        let known = self.recent.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((_, report)) = known.filter(|(made, _)| made.elapsed() < max_age) {
            return Ok(report);
        }
        let view = self.archive.fresh().await;
        view.check()?;
        let span = Span { since: view.span.since.max(view.span.until - RECENT_NS), until: view.span.until };
        let report = self.explained(view, span, client).await?;
        let made = (Instant::now(), Arc::clone(&report));
        *self.recent.lock().unwrap_or_else(PoisonError::into_inner) = Some(made);
        Ok(report)
    }

    async fn report_html(&self, query: &Query, client: Client) -> Result<Response<Body>, Failure> {
        let number = query.number("incident", 1..=usize::MAX)?;
        let report = self.report(query, client).await?;
        let view = self.archive.fresh().await;
        let ticket = self.pool.ticket(client)?;
        let work = move |_: &_| {
            let one = number.map(|number| incidents::only(&report, number)).transpose()?;
            let report = one.as_ref().unwrap_or(&report);
            let series = diagnosis::drawn(&view.reader, report)?;
            let captured = diagnosis::captured(view.reader.dir(), &html::captured::spans(report));
            let style = Style { zone: TimeZone::system(), ..Style::plain(WIDTH_PIPED) };
            let drawn = html::Drawn { sets: &[&series], captured: &captured };
            Ok(html::report(report, drawn, &style, &diagnosis::title))
        };
        let mut response = of(HTML, self.pool.run(ticket, work).await?);
        let may = hyper::header::HeaderValue::from_static(REPORT_MAY);
        response.headers_mut().insert(hyper::header::CONTENT_SECURITY_POLICY, may);
        Ok(response)
    }

    /// The processes of a moment. `told` makes something of them in the same thread.
    pub async fn processes<T: Send + 'static>(
        &self,
        query: &Query,
        client: Client,
        told: impl FnOnce(Value) -> T + Send + 'static,
    ) -> Result<T, Failure> {
        let pid = query.number("pid", 1..=u32::MAX as usize)?.and_then(|pid| u32::try_from(pid).ok());
        let answer = move |view: &View, at, span_s| processes::answer(view, at, span_s, pid).map(told);
        self.of_moment(query, client, answer).await
    }

    /// What `answer` makes of a moment and the seconds before it.
    async fn of_moment<T: Send + 'static>(
        &self,
        query: &Query,
        client: Client,
        answer: impl FnOnce(&View, i64, usize) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T, Failure> {
        let view = self.archive.fresh().await;
        view.check()?;
        let at = query.time("at")?.unwrap_or(view.span.until - 1);
        let span_s = query.number("span", 1..=processes::SPAN_S_MAX)?.unwrap_or(processes::SPAN_S);
        let ticket = self.pool.ticket(client)?;
        let work = move |_: &_| answer(&view, at, span_s);
        self.pool.run(ticket, work).await
    }

    async fn services(&self, query: &Query, client: Client) -> Result<Response<Body>, Failure> {
        let view = self.archive.fresh().await;
        let span = query.recorded(&view, SERVICES_MAX_NS)?;
        let (services, ticket) = (self.commands.services, self.pool.ticket(client)?);
        let work = move |_: &_| {
            services(&view.reader, span)
                .map_err(|error| Failure::not_found("no_services", format!("{error:#}")))
        };
        Ok(of_json(&self.pool.run(ticket, work).await?))
    }

    async fn openmetrics(&self, client: Client) -> Result<Response<Body>, Failure> {
        // Numbers are worth having without incidents.
        let report = self.recent(client, RECENT_FOR).await.ok();
        let view = self.archive.fresh().await;
        let ticket = self.pool.ticket(client)?;
        let work = move |_: &_| Ok(openmetrics::text(&view, report.as_deref())?);
        Ok(of(openmetrics::KIND, self.pool.run(ticket, work).await?))
    }
}

/// A body of a few kilobytes, and no more.
async fn whole(body: Incoming) -> Result<Bytes, Failure> {
    let late = |_| Failure::new(StatusCode::REQUEST_TIMEOUT, "too_slow", "the body did not come");
    let read = tokio::time::timeout(BODY_WITHIN, Limited::new(body, BODY_BYTES_MAX).collect()).await;
    let read = read.map_err(late)?;
    // What is too long, and what ended early.
    let body = read.map_err(|error| too_large(format!("want at most {BODY_BYTES_MAX} bytes: {error}")))?;
    Ok(body.to_bytes())
}

pub fn recording(view: &View) -> Value {
    let host = view.reader.host();
    json!({
        "schema": "mitra.recording/1",
        "host": host.hostname,
        "kernel": host.kernel,
        "cpus": host.cpus,
        "memory_bytes": host.memory_bytes,
        "since": rfc3339(view.span.since),
        "until": rfc3339(view.span.until),
        // Ticks come a few microseconds early or late.
        "interval_s": (view.interval_s * 1e3).round() / 1e3,
        "now": rfc3339(LocalClock::system().now),
        "is_live": view.is_live(),
        "version": env!("CARGO_PKG_VERSION"),
    })
}

fn metrics(query: &Query) -> Result<Response<Body>, Failure> {
    let entity = query.get("entity").map(|name| {
        let known = || format!("entity: want one of {}", Entity::ALL.map(Entity::name).join(", "));
        Entity::from_name(name).ok_or_else(|| Failure::bad("bad_entity", known()))
    });
    let entity = entity.transpose()?;
    let is_wanted = |metric: &&Metric| entity.is_none_or(|entity| metric.entity == entity);
    let kind = |metric: &Metric| match metric.kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
        Kind::Bucket => "bucket",
        Kind::Text => "text",
    };
    let one = |m: &Metric| json!({ "name": m.name, "entity": m.entity.name(), "kind": kind(m), "unit": m.unit_label(), "help": m.help });
    Ok(of_json(&all_metrics().filter(is_wanted).map(one).collect::<Vec<_>>()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_has_what_is_served_and_nothing_else() {
        let document: Value = serde_json::from_str(OPENAPI).unwrap();
        assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));
        let mut told: Vec<&str> = document["paths"].as_object().unwrap().keys().map(String::as_str).collect();
        let mut served: Vec<&str> = ROUTES.iter().map(|(path, _)| *path).collect();
        // The files of the page are for browsers.
        assert!(page::paths().any(|path| path == "/"));
        told.sort_unstable();
        served.sort_unstable();
        assert_eq!(told, served);
    }
}
