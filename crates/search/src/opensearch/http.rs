//! Sends one request to one node over HTTP or HTTPS.

use std::io::{ErrorKind, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use mitra_http::ureq::http::Request as HttpRequest;
use mitra_http::{Agent, ureq};
use serde_json::Value;

use crate::error::Error;

use super::Settings;
use super::auth::Credentials;

/// Maximum size of an answer in bytes.
pub(super) const ANSWER_MAX: u64 = 64 << 20;
/// Bodies from this size on are compressed. Below it the gain is too small.
const COMPRESS_FROM: usize = 4_096;
/// Maximum number of characters quoted from an answer that is not JSON.
const QUOTE_MAX: usize = 200;

/// A request.
#[derive(Debug, Clone, Copy)]
pub(super) struct Request<'a> {
    pub method: &'static str,
    /// The path, with a leading slash.
    pub path: &'a str,
    pub body: Body<'a>,
}

/// The body of a request.
#[derive(Debug, Clone, Copy)]
pub(super) enum Body<'a> {
    None,
    Json(&'a [u8]),
    /// NDJSON: one JSON value per line.
    Lines(&'a [u8]),
}

/// An answer with any status.
#[derive(Debug)]
pub(super) struct Reply {
    pub status: u16,
    pub body: Value,
}

/// Why there is no answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The other side closed the connection, possibly because it was idle for too long. One retry
    /// is worthwhile.
    Stale(String),
    /// The node is unreachable.
    Away(String),
    /// The answer is larger than [`ANSWER_MAX`].
    TooLarge,
    /// No node could receive this request.
    Never(String),
}

/// An HTTP client.
pub(super) struct Client {
    agent: Agent,
    credentials: Credentials,
}

impl Client {
    pub fn new(settings: &Settings) -> Result<Self, Error> {
        let secure = settings.nodes.iter().any(|n| n.starts_with("https:"));
        let agent = mitra_http::client(
            secure,
            settings.ca_file.as_deref(),
            settings.connect_timeout,
            settings.timeout,
        )?;
        Ok(Self { agent, credentials: Credentials::read(settings)? })
    }

    /// Whether requests carry a password or key.
    pub fn has_credentials(&self) -> bool {
        !self.credentials.is_none()
    }

    /// Sends a request to the node at `base` and reads the answer.
    pub fn send(&self, base: &str, request: Request<'_>) -> Result<Reply, Failure> {
        let mut http = HttpRequest::builder().method(request.method).uri(format!("{base}{}", request.path));
        if let Some(header) = self.credentials.header() {
            http = http.header("authorization", header);
        }
        let answer = match request.body {
            Body::None => self.agent.run(http.body(()).map_err(|e| Failure::Never(e.to_string()))?),
            Body::Json(bytes) | Body::Lines(bytes) => {
                let lines = matches!(request.body, Body::Lines(_));
                http = http
                    .header("content-type", if lines { "application/x-ndjson" } else { "application/json" });
                let packed = if bytes.len() >= COMPRESS_FROM { compress(bytes) } else { None };
                if packed.is_some() {
                    http = http.header("content-encoding", "gzip");
                }
                let body = packed.as_deref().unwrap_or(bytes);
                self.agent.run(http.body(body).map_err(|e| Failure::Never(e.to_string()))?)
            }
        };
        let mut answer = answer.map_err(failure)?;
        let status = answer.status().as_u16();
        let bytes = answer.body_mut().with_config().limit(ANSWER_MAX).read_to_vec().map_err(failure)?;
        Ok(Reply { status, body: parse(&bytes) })
    }
}

impl Reply {
    /// Whether the status is a success.
    pub fn is_ok(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The type of the error: `index_not_found_exception`.
    pub fn error_type(&self) -> &str {
        self.body.pointer("/error/type").and_then(Value::as_str).unwrap_or("")
    }

    /// The reason of the error, in one line.
    pub fn reason(&self) -> String {
        // For authentication errors the answer's text is not used, because it may repeat the
        // credentials.
        let text = match self.status {
            401 => "it wants a user with a password, or an API key, and got none that it knows".to_owned(),
            403 if self.error_type() != "cluster_block_exception" => {
                "the user or the key may not do that".to_owned()
            }
            _ => reason(&self.body),
        };
        format!("{} (HTTP {})", text, self.status)
    }
}

/// The innermost reason of an error.
pub(super) fn reason(body: &Value) -> String {
    let error = body.get("error").unwrap_or(body);
    let of = |at: &str| error.pointer(at).and_then(Value::as_str);
    let found = of("/failed_shards/0/reason/caused_by/reason")
        .or_else(|| of("/failed_shards/0/reason/reason"))
        .or_else(|| of("/caused_by/reason"))
        .or_else(|| of("/root_cause/0/reason"))
        .or_else(|| of("/reason"))
        .or_else(|| error.as_str());
    let line = found.unwrap_or("no reason given").lines().next().unwrap_or_default();
    line.chars().take(QUOTE_MAX).collect()
}

fn parse(bytes: &[u8]) -> Value {
    if bytes.is_empty() {
        return Value::Null;
    }
    // An answer that is not JSON, such as a proxy's error page, becomes a quoted text.
    serde_json::from_slice(bytes).unwrap_or_else(|_| {
        Value::String(
            String::from_utf8_lossy(bytes).chars().filter(|c| !c.is_control()).take(QUOTE_MAX).collect(),
        )
    })
}

fn compress(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut packed = GzEncoder::new(Vec::with_capacity(bytes.len() / 4), Compression::fast());
    packed.write_all(bytes).ok()?;
    packed.finish().ok()
}

fn failure(error: ureq::Error) -> Failure {
    match error {
        ureq::Error::BodyExceedsLimit(_) => Failure::TooLarge,
        ureq::Error::Http(e) => Failure::Never(e.to_string()),
        ureq::Error::BadUri(e) => Failure::Never(e),
        ureq::Error::Io(e) => match e.kind() {
            ErrorKind::UnexpectedEof
            | ErrorKind::ConnectionReset
            | ErrorKind::BrokenPipe
            | ErrorKind::ConnectionAborted => Failure::Stale(e.to_string()),
            _ => Failure::Away(e.to_string()),
        },
        other => Failure::Away(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_innermost_reason_is_told() {
        let nested = json!({"error": {"type": "search_phase_execution_exception", "reason": "all shards failed", "root_cause": [],
            "failed_shards": [{"reason": {"type": "query_shard_exception", "reason": "Failed to parse query [a:]",
            "caused_by": {"reason": "Cannot parse 'a:'\nmore"}}}]}});
        assert_eq!(reason(&nested), "Cannot parse 'a:'");
        assert_eq!(reason(&json!({"error": "no handler found"})), "no handler found");
        assert_eq!(reason(&json!("<html>")), "<html>");
        assert_eq!(reason(&Value::Null), "no reason given");
    }

    #[test]
    fn who_may_not_come_in_is_told_without_what_was_sent() {
        let body = json!({"error": {"reason": "unable to authenticate with sesame"}});
        let reply = Reply { status: 401, body };
        assert!(!reply.reason().contains("sesame") && reply.reason().contains("401"));
    }
}
