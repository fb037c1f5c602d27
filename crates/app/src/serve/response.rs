//! Answers, and the headers that each of them has.

use std::borrow::Cow;

use http_body_util::channel::Channel;
use http_body_util::{Either, Full};
use hyper::body::Bytes;
use hyper::header::{
    self, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use hyper::{Response, StatusCode};
use serde::Serialize;
use serde_json::json;

use crate::render::style::clean_json;

/// Whole, or one event after the other.
pub type Body = Either<Full<Bytes>, Channel<Bytes>>;

pub const JSON: &str = "application/json";
pub const HTML: &str = "text/html; charset=utf-8";
/// The page loads its own two files and asks its own server, and nothing else.
const PAGE_MAY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
                        frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'";
/// A report brings its own style and needs nothing.
pub const REPORT_MAY: &str = "default-src 'none'; style-src 'unsafe-inline'; sandbox; frame-ancestors 'self'";

/// Why there is no answer.
#[derive(Debug)]
pub struct Failure {
    pub status: StatusCode,
    /// For programs.
    pub code: &'static str,
    /// For people.
    pub message: String,
}

impl Failure {
    pub fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Failure { status, code, message: message.into() }
    }

    /// What was asked is wrong.
    pub fn bad(code: &'static str, message: impl Into<String>) -> Self {
        Failure::new(StatusCode::BAD_REQUEST, code, message)
    }

    pub fn not_found(code: &'static str, message: impl Into<String>) -> Self {
        Failure::new(StatusCode::NOT_FOUND, code, message)
    }

    /// What was asked is right, and the archive cannot be read.
    pub fn unreadable(error: &anyhow::Error) -> Self {
        Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "unreadable", format!("{error:#}"))
    }

    pub fn response(&self) -> Response<Body> {
        let body = json!({ "error": { "code": self.code, "message": self.message } });
        let mut response = of_json(&body);
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        match self.status {
            StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            }
            StatusCode::METHOD_NOT_ALLOWED => {
                let allowed = if self.code == "want_post" { "POST" } else { "GET, HEAD" };
                headers.insert(header::ALLOW, HeaderValue::from_static(allowed));
            }
            StatusCode::UNAUTHORIZED => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            // Nobody reads what else comes on that connection.
            StatusCode::PAYLOAD_TOO_LARGE => {
                headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            _ => {}
        }
        response
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Failure::unreadable(&error)
    }
}

/// An answer of one piece, with the headers that all have.
pub fn of(kind: &'static str, body: impl Into<Bytes>) -> Response<Body> {
    with(kind, Either::Left(Full::new(body.into())))
}

pub fn with(kind: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let fixed: [(HeaderName, &'static str); 7] = [
        (CONTENT_TYPE, kind),
        (CACHE_CONTROL, "no-store"),
        (CONTENT_SECURITY_POLICY, PAGE_MAY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "SAMEORIGIN"),
        (REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ];
    for (name, value) in fixed {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Sends a browser to another path, with a cookie.
pub fn elsewhere(path: &'static str, cookie: &str) -> Result<Response<Body>, Failure> {
    let cookie = HeaderValue::from_str(cookie).map_err(|error| Failure::unreadable(&error.into()))?;
    let mut response = of(HTML, "");
    *response.status_mut() = StatusCode::SEE_OTHER;
    response.headers_mut().insert(header::LOCATION, HeaderValue::from_static(path));
    response.headers_mut().insert(header::SET_COOKIE, cookie);
    Ok(response)
}

/// JSON as the commands write it: a terminal executes nothing that stands in it.
pub fn of_json(value: &impl Serialize) -> Response<Body> {
    match serde_json::to_string(value) {
        Ok(text) => of_json_text(text),
        Err(error) => Failure::unreadable(&error.into()).response(),
    }
}

/// The same of JSON that is written already.
pub fn of_json_text(text: String) -> Response<Body> {
    let cleaned = match clean_json(&text) {
        Cow::Owned(cleaned) => Some(cleaned),
        Cow::Borrowed(_) => None,
    };
    let mut text = cleaned.unwrap_or(text);
    text.push('\n');
    of(JSON, text)
}
