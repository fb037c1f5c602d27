//! Services as JSON, schema `mitra.services/1`.

use serde::Serialize;

use super::Shown;
use crate::render::style::rfc3339;
use crate::services::{Caller, Dependency, Edge, Service, Services, Traffic};

#[derive(Serialize)]
pub struct Document<'a> {
    schema: &'static str,
    host: &'a str,
    since: String,
    until: String,
    /// That were recorded.
    seconds: f64,
    /// Services and dependencies that had no room in the recorder's table.
    #[serde(skip_serializing_if = "Option::is_none")]
    lost: Option<f64>,
    services: Vec<ServiceJson<'a>>,
    dependencies: Vec<DependencyJson<'a>>,
    map: Vec<EdgeJson<'a>>,
}

/// Rates per second and times in seconds; what was not measured is left out.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
struct TrafficJson {
    #[serde(skip_serializing_if = "Option::is_none")]
    requests: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    latency_mean: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    latency_p50: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    latency_p99: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    latency_max: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    waiting: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    open: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unanswered: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    abandoned: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resets: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sent_bytes: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    received_bytes: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    watched: Option<f64>,
    #[serde(flatten)]
    answers: Option<AnswersJson>,
}

/// How answers went.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
struct AnswersJson {
    status_ok: f64,
    client_errors: f64,
    server_errors: f64,
    status_unknown: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    protocol: Option<String>,
}

/// One service. Also `mitra explain --service --json` has it.
#[derive(Serialize)]
pub struct ServiceJson<'a> {
    address: &'a str,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    pids: Vec<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cgroup: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cgroup_name: Option<&'a str>,
    #[serde(flatten)]
    traffic: TrafficJson,
    #[serde(skip_serializing_if = "Option::is_none")]
    connections: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    slower: Option<SlowerJson>,
    calls: Vec<&'a str>,
}

#[derive(Serialize)]
struct SlowerJson {
    since: String,
    /// The medians before and since then.
    before: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    now: Option<f64>,
}

#[derive(Serialize)]
struct DependencyJson<'a> {
    key: &'a str,
    /// Young processes share a row and have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    cgroup: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cgroup_name: Option<&'a str>,
    address: &'a str,
    /// The service that it calls, if that is of this machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    service: Option<&'a str>,
    of: Vec<&'a str>,
    #[serde(flatten)]
    traffic: TrafficJson,
    #[serde(skip_serializing_if = "Option::is_none")]
    connects: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    connect_time: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    connect_failed: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    connecting: Option<f64>,
}

#[derive(Serialize)]
struct EdgeJson<'a> {
    from: FromJson<'a>,
    to: ToJson<'a>,
    pids: Vec<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    requests: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    latency_p50: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    latency_p99: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    waiting: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    connect_failed: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    connecting: Option<f64>,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum FromJson<'a> {
    Service(&'a str),
    Process(&'a str),
    Elsewhere(bool),
}

#[derive(Serialize)]
struct ToJson<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    service: Option<&'a str>,
    address: &'a str,
}

pub fn document<'a>(shown: &'a Shown<'_>, host: &'a str) -> Document<'a> {
    let services = shown.services;
    let dependencies = shown.dependencies().into_iter().take(shown.limit);
    Document {
        schema: "mitra.services/1",
        host,
        since: rfc3339(shown.span.since),
        until: rfc3339(shown.span.until),
        seconds: services.seconds,
        lost: services.lost,
        services: shown.chosen.iter().map(|i| service(&services.services[*i], services)).collect(),
        dependencies: dependencies.map(|i| dependency(&services.dependencies[i], services)).collect(),
        map: shown.map.edges.iter().map(|one| edge(one, services)).collect(),
    }
}

fn traffic(traffic: &Traffic) -> TrafficJson {
    TrafficJson {
        requests: traffic.requests,
        latency_mean: traffic.mean,
        latency_p50: traffic.latency.quantile(0.5),
        latency_p99: traffic.latency.quantile(0.99),
        latency_max: traffic.latency.max(),
        waiting: traffic.waiting,
        open: traffic.open,
        unanswered: traffic.unanswered,
        abandoned: traffic.abandoned,
        resets: traffic.resets,
        sent_bytes: traffic.sent_bytes,
        received_bytes: traffic.received_bytes,
        watched: traffic.watched,
        answers: traffic.answers.as_ref().map(|answers| AnswersJson {
            status_ok: answers.ok,
            client_errors: answers.client_errors,
            server_errors: answers.server_errors,
            status_unknown: answers.unknown,
            protocol: answers.protocol.clone(),
        }),
    }
}

pub fn service<'a>(service: &'a Service, services: &'a Services) -> ServiceJson<'a> {
    let calls = service.calls.iter().filter_map(|i| services.dependencies.get(*i));
    ServiceJson {
        address: &service.key,
        name: &service.name,
        pid: service.pid,
        pids: service.pids.iter().copied().collect(),
        cgroup: service.cgroup.as_deref(),
        cgroup_name: service.cgroup_name.as_deref(),
        traffic: traffic(&service.traffic),
        connections: service.connections,
        slower: service.slower.map(|slower| SlowerJson {
            since: rfc3339(slower.since),
            before: slower.before,
            now: slower.now,
        }),
        calls: calls.map(|dependency| dependency.key.as_str()).collect(),
    }
}

fn key(services: &Services, i: usize) -> Option<&str> {
    services.services.get(i).map(|service| service.key.as_str())
}

fn dependency<'a>(dependency: &'a Dependency, services: &'a Services) -> DependencyJson<'a> {
    DependencyJson {
        key: &dependency.key,
        pid: dependency.pid,
        name: &dependency.name,
        cgroup: dependency.cgroup.as_deref(),
        cgroup_name: dependency.cgroup_name.as_deref(),
        address: &dependency.called,
        service: dependency.to.and_then(|to| key(services, to)),
        of: dependency.of.iter().filter_map(|of| key(services, *of)).collect(),
        traffic: traffic(&dependency.traffic),
        connects: dependency.connects,
        connect_time: dependency.connect_time,
        connect_failed: dependency.connect_failed,
        connecting: dependency.connecting,
    }
}

fn edge<'a>(edge: &'a Edge, services: &'a Services) -> EdgeJson<'a> {
    EdgeJson {
        from: match &edge.from {
            Caller::Service(i) => FromJson::Service(key(services, *i).unwrap_or_default()),
            Caller::Processes(name, _) => FromJson::Process(name),
            Caller::Elsewhere => FromJson::Elsewhere(true),
        },
        to: ToJson { service: edge.to.and_then(|to| key(services, to)), address: &edge.called },
        pids: edge.pids.iter().copied().collect(),
        requests: edge.requests,
        latency_p50: edge.latency.quantile(0.5),
        latency_p99: edge.latency.quantile(0.99),
        waiting: edge.waiting,
        connect_failed: edge.connect_failed,
        connecting: edge.connecting,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::tests::with_example;
    use super::*;

    fn example(filter: Option<&str>) -> Value {
        with_example(filter, |shown| serde_json::to_value(document(shown, "web-17")).unwrap())
    }

    #[test]
    fn the_document_keeps_its_contract() {
        let all = example(None);
        assert_eq!((&all["schema"], &all["host"]), (&json!("mitra.services/1"), &json!("web-17")));
        assert_eq!(all["since"], "2026-11-21T03:43:01.000Z");
        assert_eq!((&all["seconds"], &all["lost"]), (&json!(60.0), &json!(0.0)));
        let orders =
            all["services"].as_array().unwrap().iter().find(|s| s["address"] == "127.0.0.1:8080").unwrap();
        assert_eq!((&orders["name"], &orders["pids"]), (&json!("gunicorn"), &json!([801, 802])));
        let slower = &orders["slower"];
        assert_eq!(
            (&slower["since"], &slower["before"]),
            (&json!("2026-11-21T03:43:00.000Z"), &json!(0.0025))
        );
        assert!((slower["now"].as_f64().unwrap() - 6.8).abs() < 1e-9, "{slower}");
        assert!((orders["latency_p50"].as_f64().unwrap() / 6.8 - 1.0).abs() < 0.02, "{orders}");
        assert!(
            (orders["requests"].as_f64().unwrap() - 6.0).abs() < 1e-9,
            "a flattened value is a number: {orders}"
        );
        assert_eq!(orders["calls"][4], "803>10.0.0.9:9200");
        assert!(orders.get("sent_bytes").is_none(), "what was not recorded is left out: {orders}");
        assert!(orders.get("server_errors").is_none(), "it was not read how answers begin: {orders}");
        let search = all["dependencies"].as_array().unwrap().iter().find(|d| d["pid"] == 803).unwrap();
        assert_eq!((&search["of"], &search["connecting"]), (&json!(["127.0.0.1:8080"]), &json!(3.0)));
        assert_eq!((search.get("service"), search.get("latency_p50")), (None, None));
        let clients = all["map"].as_array().unwrap().iter().find(|e| e["from"]["process"] == "ab").unwrap();
        assert_eq!(clients["to"], json!({ "service": "0.0.0.0:80", "address": "127.0.0.1:80" }));
        assert_eq!(clients["pids"], json!([500, 501]));
    }

    #[test]
    fn a_filter_leaves_what_concerns_the_service() {
        let cache = example(Some("cached"));
        assert_eq!(cache["services"].as_array().unwrap().len(), 1);
        let keys: Vec<&str> =
            cache["dependencies"].as_array().unwrap().iter().map(|d| d["key"].as_str().unwrap()).collect();
        assert_eq!(keys, ["801>unix:/run/cache.sock", "900>127.0.0.1:80"]);
    }
}
