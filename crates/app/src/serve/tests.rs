//! Bytes of any kind as what a client sends: a connection in memory, in front of the server and a small recording. Nothing uses this
//! crate, so that the target is here and not among those of `mitra-fuzz`, whose inputs and damage it takes.

use std::io::Read;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use flate2::read::GzDecoder;
use mitra_archive::simulate::Machine;
use mitra_archive::{Options as Written, Writer};
use mitra_fuzz::{Target, short};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio::runtime::Builder;
use tokio::sync::watch;
use tokio::time::timeout;

use super::api::{OPENAPI, Server};
use super::counter::Counter;
use super::{Commands, Options, TOOLS, listen, pool};
use crate::commands::services;

/// What a connection holds on its way: more than any input, so that writing never waits.
const ON_ITS_WAY: usize = 1 << 20;
/// No single answer about so small a recording is larger: 32 series of 4,096 columns are 2.6 MB.
const ANSWER_MAX: usize = 4 << 20;
/// Of all answers on one connection; the rest is not looked at.
const ANSWERS_MAX: u64 = 32 << 20;
/// Longer than each time limit of a connection. The clock jumps whenever nothing is left to do but wait.
const ENDS_WITHIN: Duration = Duration::from_secs(90);
const FRAMES: usize = 30;
const VERSION: &str = "2026-07-28";

static SERVER: OnceLock<Arc<Server>> = OnceLock::new();

fn server(dir: &std::path::Path) -> Arc<Server> {
    let mut machine = Machine::new(20, 5, 1);
    let mut writer = Writer::open(dir, &Machine::host(), Written::default()).unwrap();
    for _ in 0..FRAMES {
        machine.tick();
        writer.append(machine.frame(), machine.strings()).unwrap();
    }
    writer.finish().unwrap();
    let commands = Commands { services: services::document, restrict: services::one::restrict };
    Server::open(
        Options { dir: dir.to_owned(), token: None, tls: None, commands, may_ask: Vec::new() },
        None,
        None,
    )
    .unwrap()
}

/// Sends the bytes and looks at what comes back: no failure of the server, whole answers, and JSON where that is said.
fn run(bytes: &[u8]) {
    let server = Arc::clone(SERVER.get().expect("the test has made it"));
    let threads = pool::AT_ONCE + 1;
    let runtime = Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .max_blocking_threads(threads)
        .build()
        .unwrap();
    let answers = runtime.block_on(async {
        let (mut near, far) = duplex(ON_ITS_WAY);
        let (stop, stopped) = watch::channel(false);
        let place = Counter::new(1, 1).take(None).expect("it is the only one");
        let served = tokio::spawn(listen::connection(far, None, server, stopped, place));
        // What is not wanted to its end is refused before.
        _ = near.write_all(bytes).await;
        let mut answers = Vec::new();
        // Events have no end.
        _ = timeout(ENDS_WITHIN, (&mut near).take(ANSWERS_MAX).read_to_end(&mut answers)).await;
        drop(near);
        _ = stop.send(true);
        served.await.expect("a connection ends without a panic");
        answers
    });
    let is_all = (answers.len() as u64) < ANSWERS_MAX;
    let mut rest = answers.as_slice();
    while let Some((answer, then)) = first(rest) {
        answer.check();
        rest = then;
    }
    assert!(rest.is_empty() || !is_all, "no answer: {}", String::from_utf8_lossy(rest));
}

struct Answer<'a> {
    status: u16,
    head: &'a str,
    body: &'a [u8],
}

/// The first answer and what follows it; `None` if the head is not all there.
fn first(bytes: &[u8]) -> Option<(Answer<'_>, &[u8])> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&bytes[..end]).expect("a head is ASCII");
    let status = head.strip_prefix("HTTP/1.")?.split(' ').nth(1)?.parse().ok()?;
    let rest = &bytes[end + 4..];
    let mut answer = Answer { status, head, body: &[] };
    let length = match answer.header("content-length") {
        Some(length) => length.parse().expect("a length"),
        // Events, up to the end of the connection.
        None if answer.header("content-type") == Some("text/event-stream") => rest.len(),
        None => 0,
    };
    // An answer to HEAD says how long the other would be.
    let is_of_head = rest.is_empty() || rest.starts_with(b"HTTP/1.");
    let (body, then) = if is_of_head { (&[][..], rest) } else { rest.split_at_checked(length)? };
    answer.body = body;
    Some((answer, then))
}

impl Answer<'_> {
    fn header(&self, name: &str) -> Option<&str> {
        let mut pairs = self.head.lines().filter_map(|line| line.split_once(':'));
        pairs.find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }

    fn check(&self) {
        let mut unpacked = Vec::new();
        let body = match self.header("content-encoding") {
            Some("gzip") if !self.body.is_empty() => {
                GzDecoder::new(self.body).read_to_end(&mut unpacked).expect("gzip");
                unpacked.as_slice()
            }
            _ => self.body,
        };
        let text = String::from_utf8_lossy(body);
        assert!(self.status < 500 && !text.contains("a bug:"), "{}\n{text}", self.head);
        assert!(body.len() <= ANSWER_MAX, "{}", self.head);
        if self.header("content-type") == Some("application/json") && !body.is_empty() {
            let parsed = serde_json::from_slice::<Value>(body);
            assert!(parsed.is_ok(), "{parsed:?}: {text}");
            assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text:?}");
        }
    }
}

/// Something right for a parameter of that name, as it stands in an address. The recording begins in 1790000001.
fn value(name: &str) -> &'static str {
    match name {
        "since" | "a_since" | "start" => "1790000005",
        "until" | "a_until" | "end" => "1790000015.5",
        "b_since" => "2026-09-21T14%3A13%3A36Z",
        "b_until" | "at" | "time" => "1790000029",
        "metric" | "metrics" => "tasks.run_delay",
        "entity" => "disk",
        "row" => "disk0",
        "match[]" => "%7B__name__%3D~%22mitra_mem_.*%22%7D",
        "query" => "sum(rate(mitra_sys_ctxt_total%5B5s%5D))+by+(disk)",
        "step" => "5s",
        "kind" => "%2A",
        "filename" => "%2Fetc%2Fhosts",
        "host" => "simulated",
        "changed" | "process" => "true",
        "service" => "%3A80",
        "name" => "comm",
        "id" => "2026-11-21T140307Z-block-waits-1",
        _ => "7",
    }
}

fn get(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n")
}

fn post(path: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!("POST {path} HTTP/1.1\r\nHost: localhost\r\n{headers}Content-Length: {length}\r\n\r\n{body}")
}

/// Each question that the document knows, with all of its parameters and with none.
fn of_document() -> Vec<String> {
    let document: Value = serde_json::from_str(OPENAPI).unwrap();
    let mut all = Vec::new();
    for (path, operations) in document["paths"].as_object().unwrap() {
        let path = ["name", "id"]
            .iter()
            .fold(path.clone(), |path, name| path.replace(&format!("{{{name}}}"), value(name)));
        let parameters = operations["get"]["parameters"].as_array().cloned().unwrap_or_default();
        let names = parameters.iter().filter_map(|one| {
            let referred = one["$ref"].as_str().and_then(|to| to.rsplit('/').next());
            referred.or(one["name"].as_str()).filter(|_| one["in"] != "path")
        });
        let query: Vec<String> = names.map(|name| format!("{name}={}", value(name))).collect();
        all.push(get(&path));
        all.push(get(&format!("{path}?{}", query.join("&"))));
        if operations.get("post").is_some() {
            all.push(post(&path, "Content-Type: application/x-www-form-urlencoded\r\n", &query.join("&")));
        }
    }
    all
}

/// Each tool of an assistant with all of its arguments.
fn of_tools() -> Vec<String> {
    let tools: Vec<Value> = serde_json::from_str(TOOLS).unwrap();
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": VERSION,
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let call = |tool: &Value| {
        let name = tool["name"].as_str().unwrap();
        let of_kind = |(name, schema): (&String, &Value)| {
            let value = match schema["type"].as_str() {
                Some("integer" | "number") => json!(3),
                Some("boolean") => json!(true),
                Some("array") => json!([value(name)]),
                _ => json!(value(name)),
            };
            (name.clone(), value)
        };
        let arguments: Value =
            tool["inputSchema"]["properties"].as_object().into_iter().flatten().map(of_kind).collect();
        let params = json!({ "name": name, "arguments": arguments, "_meta": meta });
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
        let headers = format!(
            "Content-Type: application/json\r\nMCP-Protocol-Version: {VERSION}\r\nMcp-Method: tools/call\r\nMcp-Name: {name}\r\n"
        );
        post("/mcp", &headers, &body.to_string())
    };
    tools.iter().map(call).collect()
}

fn seeds() -> Vec<Vec<u8>> {
    let by_hand = [
        get("/"),
        get("/?token=0123456789abcdef"),
        get("/app.js").replace("\r\n\r\n", "\r\nIf-None-Match: \"0\", W/\"1\"\r\n\r\n"),
        get("/api/v1/series?metric=sys.ctxt&metric=disk.reads&row=disk0&metric=cpu.user&row=cpu1&columns=40"),
        get("/api/v1/processes?span=5").replace("\r\n\r\n", "\r\nAccept-Encoding: gzip, br\r\n\r\n"),
        get("/api/v1/rows?metric=task.cpu_time&since=2026-09-21T14:13:26Z&limit=1000"),
        get("/prometheus/api/v1/query_range?query=topk(2,%7B__name__=~%22mitra_.*%22%7D)&start=1790000002&end=1790000020&step=9"),
        get("/prometheus/api/v1/query?query=label_replace(mitra_mem_free_bytes,%22a%22,%22$1%22,%22b%22,%22(.*)%22)+offset+3s"),
        get("/api/v1/recording").replace("GET", "HEAD"),
        get("/api/v1/recording").replace("localhost", "[::1]:6174").replace("\r\n\r\n", "\r\nOrigin: http://[::1]:6174\r\n\r\n"),
        // Several in a row, and a body in pieces.
        get("/api/v1/recording").repeat(3),
        format!(
            "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n{}",
            "2\r\n{}\r\n0\r\n\r\n"
        ),
        "GET http://127.0.0.1/metrics HTTP/1.0\r\nHost: 127.0.0.1\r\nCookie: mitra_serve_0=x\r\nSec-Fetch-Site: none\r\n\r\n".to_owned(),
        post("/mcp", "Content-Type: application/json\r\nExpect: 100-continue\r\n",
            r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}}}"#),
    ];
    by_hand.into_iter().chain(of_document()).chain(of_tools()).map(String::into_bytes).collect()
}

#[test]
fn serve_http() {
    let dir = tempfile::tempdir().unwrap();
    assert!(SERVER.set(server(dir.path())).is_ok());
    short::run(&Target { name: "serve_http", run }, &seeds());
}
