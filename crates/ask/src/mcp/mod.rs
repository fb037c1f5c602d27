//! The Model Context Protocol: what one message asks for, and what its answer looks like.
//!
//! Revision 2026-07-28: each request says which revision it speaks and is answered by itself. Clients of the two revisions
//! before it greet with `initialize`; they get the same tools. There is nothing to subscribe to, and nothing is ever asked back.

pub mod bounds;
pub mod schema;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

/// The revision that is spoken.
pub const VERSION: &str = "2026-07-28";
/// Those before it, the newest first, whose clients are answered too.
const LEGACY: &[&str] = &["2025-11-25", "2025-06-18"];
/// The list of tools changes only when an index is made; a client may keep it so long.
const TTL_MS: u64 = 300_000;

const META_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const META_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
const META_SERVER: &str = "io.modelcontextprotocol/serverInfo";

const PARSE_ERROR: i64 = -32700;
const INVALID_REQUEST: i64 = -32600;
const METHOD_NOT_FOUND: i64 = -32601;
const INVALID_PARAMS: i64 = -32602;
const INTERNAL_ERROR: i64 = -32603;
const HEADER_MISMATCH: i64 = -32020;
const UNSUPPORTED_VERSION: i64 = -32022;

/// How a message came.
#[derive(Debug, Clone, Copy)]
pub enum Via<'a> {
    /// As a line.
    Line {
        /// Whether this client has greeted, as those of older revisions do.
        greeted: bool,
    },
    /// As the body of a POST, with these headers.
    Post {
        /// `MCP-Protocol-Version`.
        version: Option<&'a str>,
        /// `Mcp-Method`.
        method: Option<&'a str>,
        /// `Mcp-Name`.
        name: Option<&'a str>,
    },
}

/// A message.
#[derive(Debug)]
pub enum Message {
    /// It wants an answer.
    Request(Request),
    /// The request of this id need not be answered any more.
    Cancelled(Value),
    /// A notification that means nothing here.
    Ignored,
    /// It is answered with an error.
    Refused(Refusal),
}

/// A message that wants an answer.
#[derive(Debug)]
pub struct Request {
    /// A text or a whole number.
    pub id: Value,
    /// What is asked for.
    pub asked: Asked,
    is_legacy: bool,
}

/// What a request asks for.
#[derive(Debug)]
pub enum Asked {
    /// The greeting of older revisions, and the revision that the client wants.
    Initialize(String),
    /// Whether anybody is there, in older revisions.
    Ping,
    /// What there is.
    Discover,
    /// The tools.
    ListTools,
    /// The result of a tool.
    CallTool {
        /// Which one.
        name: String,
        /// Its arguments.
        arguments: Map<String, Value>,
    },
}

/// Why a message is not answered.
#[derive(Debug)]
pub struct Refusal {
    id: Option<Value>,
    code: i64,
    message: String,
    data: Option<Value>,
    is_legacy: bool,
}

impl Refusal {
    /// Of a message that cannot be read at all.
    #[must_use]
    pub fn unreadable(message: impl Into<String>) -> Self {
        Refusal { id: None, code: PARSE_ERROR, message: message.into(), data: None, is_legacy: false }
    }

    /// The status of HTTP that goes with it. Older clients take another one for the end of the connection.
    #[must_use]
    pub fn status(&self) -> u16 {
        match self.code {
            _ if self.is_legacy => 200,
            METHOD_NOT_FOUND => 404,
            INTERNAL_ERROR => 500,
            _ => 400,
        }
    }

    /// The answer.
    #[must_use]
    pub fn answer(&self) -> Value {
        let mut error = json!({ "code": self.code, "message": self.message });
        if let Some(data) = &self.data {
            error["data"] = data.clone();
        }
        let mut answer = json!({ "jsonrpc": "2.0", "error": error });
        if let Some(id) = &self.id {
            answer["id"] = id.clone();
        }
        answer
    }
}

/// What a server says of itself.
#[derive(Debug, Clone, Copy)]
pub struct Info<'a> {
    /// Its name for programs.
    pub name: &'a str,
    /// Its name for people.
    pub title: &'a str,
    /// Its version.
    pub version: &'a str,
    /// How an assistant uses its tools.
    pub instructions: &'a str,
}

impl Info<'_> {
    fn json(&self) -> Value {
        json!({ "name": self.name, "title": self.title, "version": self.version })
    }
}

impl Request {
    /// The answer to everything but the call of a tool, for which there is none.
    #[must_use]
    pub fn answered(&self, info: &Info<'_>, tools: &[Value]) -> Option<Value> {
        let capabilities = json!({ "tools": { "listChanged": false } });
        let result = match &self.asked {
            Asked::CallTool { .. } => return None,
            Asked::Ping => json!({}),
            Asked::Initialize(wanted) => {
                let version = LEGACY.iter().find(|known| *known == wanted).unwrap_or(&LEGACY[0]);
                json!({
                    "protocolVersion": version,
                    "capabilities": capabilities,
                    "serverInfo": info.json(),
                    "instructions": info.instructions,
                })
            }
            Asked::Discover => json!({
                "supportedVersions": versions(),
                "capabilities": capabilities,
                "instructions": info.instructions,
                "ttlMs": TTL_MS,
                "cacheScope": "public",
            }),
            Asked::ListTools if self.is_legacy => json!({ "tools": tools }),
            Asked::ListTools => json!({ "tools": tools, "ttlMs": TTL_MS, "cacheScope": "public" }),
        };
        Some(self.result(info, result))
    }

    /// The result of a tool: for programs, and as text.
    #[must_use]
    pub fn called(&self, info: &Info<'_>, structured: Value, text: &str) -> Value {
        let content = json!([{ "type": "text", "text": text }]);
        self.result(info, json!({ "content": content, "structuredContent": structured, "isError": false }))
    }

    /// What was wrong with the arguments of a tool, so that the assistant asks again.
    #[must_use]
    pub fn failed(&self, info: &Info<'_>, why: &str) -> Value {
        let content = json!([{ "type": "text", "text": why }]);
        self.result(info, json!({ "content": content, "isError": true }))
    }

    /// There is no such tool.
    #[must_use]
    pub fn no_tool(&self, name: &str) -> Refusal {
        self.refused(INVALID_PARAMS, format!("no tool is called {name}"))
    }

    /// A bug.
    #[must_use]
    pub fn broken(&self, why: impl Into<String>) -> Refusal {
        self.refused(INTERNAL_ERROR, why)
    }

    fn refused(&self, code: i64, message: impl Into<String>) -> Refusal {
        Refusal {
            id: Some(self.id.clone()),
            code,
            message: message.into(),
            data: None,
            is_legacy: self.is_legacy,
        }
    }

    fn result(&self, info: &Info<'_>, mut result: Value) -> Value {
        if !self.is_legacy {
            result["resultType"] = "complete".into();
            result["_meta"] = json!({ META_SERVER: info.json() });
        }
        json!({ "jsonrpc": "2.0", "id": self.id, "result": result })
    }
}

fn versions() -> Vec<&'static str> {
    [VERSION].iter().chain(LEGACY).copied().collect()
}

/// Reads one message.
#[must_use]
pub fn read(bytes: &[u8], via: Via<'_>) -> Message {
    match serde_json::from_slice(bytes) {
        Ok(Value::Object(message)) => read_object(&message, via).unwrap_or_else(Message::Refused),
        Ok(_) => Message::Refused(Refusal {
            code: INVALID_REQUEST,
            ..Refusal::unreadable("want one object; there are no batches")
        }),
        Err(error) => Message::Refused(Refusal::unreadable(format!("not JSON: {error}"))),
    }
}

fn read_object(message: &Map<String, Value>, via: Via<'_>) -> Result<Message, Refusal> {
    let id = message.get("id").filter(|id| id.is_string() || id.is_i64() || id.is_u64());
    let refused = |code, why: &str| Refusal { id: id.cloned(), code, ..Refusal::unreadable(why) };
    let invalid = |why: &str| refused(INVALID_REQUEST, why);
    if message.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
        return Err(invalid("want \"jsonrpc\": \"2.0\""));
    }
    if message.contains_key("id") && id.is_none() {
        return Err(invalid("id: want a text or a whole number"));
    }
    let Some(method) = message.get("method").and_then(Value::as_str) else {
        return Err(invalid("method: want a text; answers are not asked for"));
    };
    let empty = Map::new();
    let params = match message.get("params") {
        None => &empty,
        Some(Value::Object(params)) => params,
        Some(_) => return Err(refused(INVALID_PARAMS, "params: want an object")),
    };
    let Some(id) = id else {
        let cancelled = (method == "notifications/cancelled").then(|| params.get("requestId")).flatten();
        return Ok(cancelled.map_or(Message::Ignored, |id| Message::Cancelled(id.clone())));
    };
    let is_legacy =
        is_legacy(method, params, via).map_err(|refusal| Refusal { id: Some(id.clone()), ..refusal })?;
    let refused = |code, why: String| Refusal { is_legacy, ..refused(code, &why) };
    let text = |name: &str| params.get(name).and_then(Value::as_str);
    let asked = match (method, is_legacy) {
        ("initialize", true) => Asked::Initialize(text("protocolVersion").unwrap_or_default().to_owned()),
        ("ping", true) => Asked::Ping,
        ("server/discover", false) => Asked::Discover,
        ("tools/list", _) if params.contains_key("cursor") => {
            return Err(refused(INVALID_PARAMS, "cursor: the list has one page".to_owned()));
        }
        ("tools/list", _) => Asked::ListTools,
        ("tools/call", _) => {
            let name = text("name").ok_or_else(|| refused(INVALID_PARAMS, "name: want a text".to_owned()))?;
            let arguments = match params.get("arguments") {
                None => Map::new(),
                Some(Value::Object(arguments)) => arguments.clone(),
                Some(_) => return Err(refused(INVALID_PARAMS, "arguments: want an object".to_owned())),
            };
            Asked::CallTool { name: name.to_owned(), arguments }
        }
        _ => {
            let why = format!("no method is called {method}; MCP is spoken in {}", versions().join(", "));
            return Err(refused(METHOD_NOT_FOUND, why));
        }
    };
    Ok(Message::Request(Request { id: id.clone(), asked, is_legacy }))
}

/// Whether a request is of an older revision; a newer one has to say what it has to say.
fn is_legacy(method: &str, params: &Map<String, Value>, via: Via<'_>) -> Result<bool, Refusal> {
    let refused = |code, why: String| Refusal { code, ..Refusal::unreadable(why) };
    let meta = params.get("_meta").and_then(Value::as_object);
    let told = meta.and_then(|meta| meta.get(META_VERSION));
    match via {
        Via::Line { greeted } if told.is_none() && (greeted || method == "initialize") => return Ok(true),
        Via::Post { version: Some(version), .. } if told.is_none() && LEGACY.contains(&version) => {
            return Ok(true);
        }
        Via::Post { version: None, .. } if told.is_none() && method == "initialize" => return Ok(true),
        _ => {}
    }
    if let Via::Post { version, method: named, .. } = via {
        let header = |name: &str, header: Option<&str>, wanted: Option<&str>| match header {
            Some(header) if wanted.is_none_or(|wanted| wanted == header) => Ok(()),
            Some(_) => Err(refused(HEADER_MISMATCH, format!("the header {name} is not as the message"))),
            None => Err(refused(HEADER_MISMATCH, format!("want the header {name}"))),
        };
        header("MCP-Protocol-Version", version, told.and_then(Value::as_str))?;
        header("Mcp-Method", named, Some(method))?;
    }
    let Some(version) = told.and_then(Value::as_str) else {
        return Err(refused(INVALID_PARAMS, format!("_meta: want {META_VERSION}, a text")));
    };
    if version != VERSION {
        let why = "Unsupported protocol version".to_owned();
        let data = json!({ "supported": versions(), "requested": version });
        return Err(Refusal { data: Some(data), ..refused(UNSUPPORTED_VERSION, why) });
    }
    if !meta.and_then(|meta| meta.get(META_CAPABILITIES)).is_some_and(Value::is_object) {
        return Err(refused(INVALID_PARAMS, format!("_meta: want {META_CAPABILITIES}, an object")));
    }
    if let (Via::Post { name, .. }, "tools/call") = (via, method) {
        let named = name.and_then(decoded);
        if named.as_deref() != params.get("name").and_then(Value::as_str) {
            return Err(refused(
                HEADER_MISMATCH,
                "the header Mcp-Name is not the name of the tool".to_owned(),
            ));
        }
    }
    Ok(false)
}

/// A value of a header, which may stand there as base64 of UTF-8.
fn decoded(value: &str) -> Option<String> {
    match value.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?=")) {
        Some(coded) => String::from_utf8(STANDARD.decode(coded).ok()?).ok(),
        None => Some(value.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INFO: Info<'static> = Info { name: "test", title: "Test", version: "1", instructions: "Ask." };

    fn modern(method: &str, params: Value) -> Value {
        let mut params = params;
        params["_meta"] = json!({ META_VERSION: VERSION, META_CAPABILITIES: {} });
        json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params })
    }

    fn line(message: &Value) -> Message {
        read(message.to_string().as_bytes(), Via::Line { greeted: false })
    }

    /// The code of the error, its status, and whether its answer names the request.
    fn refusal(message: Message) -> (i64, u16, bool) {
        match message {
            Message::Refused(refusal) => {
                let answer = refusal.answer();
                (answer["error"]["code"].as_i64().unwrap(), refusal.status(), answer.get("id").is_some())
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_no_message_is_refused() {
        let raw = |text: &str| refusal(read(text.as_bytes(), Via::Line { greeted: true }));
        assert_eq!(raw("{"), (-32700, 400, false));
        assert_eq!(raw("\u{fffd}"), (-32700, 400, false));
        assert_eq!(raw(&"[".repeat(100_000)), (-32700, 400, false));
        assert_eq!(raw("[]"), (-32600, 400, false));
        assert_eq!(raw("null"), (-32600, 400, false));
        assert_eq!(raw(r#"{"id":1,"method":"ping"}"#), (-32600, 400, true));
        assert_eq!(raw(r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#), (-32600, 400, false));
        assert_eq!(raw(r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#), (-32600, 400, false));
        assert_eq!(raw(r#"{"jsonrpc":"2.0","id":1,"method":7}"#), (-32600, 400, true));
        assert_eq!(raw(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#), (-32600, 400, true));
        assert_eq!(raw(r#"{"jsonrpc":"2.0","id":"a","method":"ping","params":[]}"#), (-32602, 400, true));
        assert_eq!(raw(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":1}}"#).0, -32602);
        assert_eq!(
            raw(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x","arguments":3}}"#).0,
            -32602
        );
        // Its status would end the connection of an older client.
        assert_eq!(raw(r#"{"jsonrpc":"2.0","id":1,"method":"nothing"}"#), (-32601, 200, true));
        assert_eq!(refusal(line(&modern("ping", json!({})))), (-32601, 404, true));
        assert_eq!(refusal(line(&modern("tools/list", json!({ "cursor": "x" })))).0, -32602);
    }

    #[test]
    fn each_request_says_what_it_speaks() {
        let mut message = modern("tools/list", json!({}));
        assert!(matches!(line(&message), Message::Request(Request { asked: Asked::ListTools, .. })));
        message["params"]["_meta"][META_VERSION] = "1900-01-01".into();
        let Message::Refused(refused) = line(&message) else { panic!("it is refused") };
        assert_eq!(refused.answer()["error"]["code"], -32022);
        assert_eq!(refused.answer()["error"]["data"]["supported"][0], VERSION);
        message["params"]["_meta"] = json!({ META_VERSION: VERSION });
        assert_eq!(refusal(line(&message)), (-32602, 400, true));
        message["params"] = json!({});
        assert_eq!(refusal(line(&message)), (-32602, 400, true));
        // One that has greeted need not.
        let greeted = read(message.to_string().as_bytes(), Via::Line { greeted: true });
        let Message::Request(request) = greeted else { panic!("it is answered") };
        let answer = request.answered(&INFO, &[]).unwrap();
        assert!(answer["result"].get("resultType").is_none(), "{answer}");
    }

    #[test]
    fn headers_say_the_same_as_the_body() {
        let message = modern("tools/call", json!({ "name": "größe" })).to_string();
        let post = |version, method, name| read(message.as_bytes(), Via::Post { version, method, name });
        let (version, method) = (Some(VERSION), Some("tools/call"));
        let name = format!("=?base64?{}?=", STANDARD.encode("größe"));
        assert!(matches!(post(version, method, Some(&name)), Message::Request(_)));
        for (version, method, name) in [
            (None, method, Some("größe")),
            (Some("2025-11-25"), method, Some("größe")),
            (version, None, Some("größe")),
            (version, Some("tools/list"), Some("größe")),
            (version, method, None),
            (version, method, Some("other")),
            (version, method, Some("=?base64?*?=")),
        ] {
            assert_eq!(
                refusal(post(version, method, name)),
                (-32020, 400, true),
                "{version:?} {method:?} {name:?}"
            );
        }
        let old = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" }).to_string();
        let old = |version| read(old.as_bytes(), Via::Post { version, method: None, name: None });
        assert!(matches!(old(Some("2025-06-18")), Message::Request(_)));
        assert_eq!(refusal(old(None)).0, -32020);
    }

    #[test]
    fn notifications_are_not_answered() {
        let cancelled =
            json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 7 } });
        assert!(matches!(line(&cancelled), Message::Cancelled(id) if id == 7));
        let other = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        assert!(matches!(line(&other), Message::Ignored));
    }

    #[test]
    fn an_older_client_gets_the_revision_that_it_wants() {
        let hello = |version: &str| {
            let message = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": { "protocolVersion": version } });
            let Message::Request(request) = line(&message) else { panic!("it is answered") };
            request.answered(&INFO, &[]).unwrap()["result"]["protocolVersion"].clone()
        };
        assert_eq!(hello("2025-06-18"), "2025-06-18");
        assert_eq!(hello("2024-11-05"), "2025-11-25");
    }
}
