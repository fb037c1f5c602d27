//! Answers, and the headers that each of them has.

use std::borrow::Cow;
use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use http_body_util::channel::Channel;
use http_body_util::{Either, Full};
use hyper::body::Bytes;
use hyper::header::{
    self, ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderMap,
    HeaderName, HeaderValue, REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
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
/// Shorter answers fit into a packet as they are.
const PACKED_FROM_BYTES: usize = 1024;
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
    of(JSON, cleaned(text))
}

fn cleaned(text: String) -> String {
    let cleaned = match clean_json(&text) {
        Cow::Owned(cleaned) => Some(cleaned),
        Cow::Borrowed(_) => None,
    };
    let mut text = cleaned.unwrap_or(text);
    text.push('\n');
    text
}

/// An answer that is packed where the client takes that. A megabyte takes some milliseconds, which the thread of the connections
/// does not have: it is made where questions are worked on.
pub fn packed(kind: &'static str, body: Vec<u8>, takes_gzip: bool) -> Response<Body> {
    let is_packed = takes_gzip && body.len() >= PACKED_FROM_BYTES;
    let smaller = is_packed.then(|| gzip(&body, Compression::fast())).filter(|gzip| gzip.len() < body.len());
    let coding = smaller.as_ref().map(|_| HeaderValue::from_static("gzip"));
    let mut response = of(kind, smaller.unwrap_or(body));
    if let Some(coding) = coding {
        response.headers_mut().insert(CONTENT_ENCODING, coding);
    }
    response.headers_mut().insert(VARY, HeaderValue::from_static("accept-encoding"));
    response
}

/// The same of JSON.
pub fn packed_json(value: &impl Serialize, takes_gzip: bool) -> Response<Body> {
    match serde_json::to_string(value) {
        Ok(text) => packed(JSON, cleaned(text).into_bytes(), takes_gzip),
        Err(error) => Failure::unreadable(&error.into()).response(),
    }
}

pub fn gzip(bytes: &[u8], level: Compression) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), level);
    // A vector takes everything.
    packed.write_all(bytes).and_then(|()| packed.finish()).unwrap_or_default()
}

/// Of `Accept-Encoding: gzip;q=0.8, br` and the like.
pub fn takes_gzip(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    accepted.flat_map(|list| list.split(',')).any(|coding| {
        let mut parts = coding.split(';').map(str::trim);
        let is_gzip = parts.next().is_some_and(|name| name.eq_ignore_ascii_case("gzip"));
        let weight = parts.find_map(|part| {
            let (name, weight) = part.split_once('=')?;
            name.trim().eq_ignore_ascii_case("q").then(|| weight.trim().parse::<f32>())
        });
        is_gzip && weight.unwrap_or(Ok(1.0)).is_ok_and(|weight| weight > 0.0)
    })
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::GzDecoder;
    use http_body_util::BodyExt;

    use super::*;

    #[test]
    fn gzip_is_for_who_takes_it() {
        for (accepted, takes) in [
            ("gzip, deflate, br, zstd", true),
            ("br;q=1.0, gzip;q=0.8, *;q=0.1", true),
            ("GZIP", true),
            ("", false),
            ("identity", false),
            ("gzip;q=0", false),
            ("gzip;q=0.000, br", false),
            ("gzip;Q=0", false),
            ("gzip ; x=1 ; q=0", false),
            ("gzip;x=1;q=0.5", true),
            ("x-gzip-like", false),
        ] {
            let headers = HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static(accepted))]);
            assert_eq!(takes_gzip(&headers), takes, "{accepted}");
        }
        assert!(!takes_gzip(&HeaderMap::new()));
        let two = ["br", "gzip"].map(|coding| (ACCEPT_ENCODING, HeaderValue::from_static(coding)));
        let mut headers = HeaderMap::new();
        two.into_iter().for_each(|(name, value)| _ = headers.append(name, value));
        assert!(takes_gzip(&headers), "two headers are one list");
    }

    #[test]
    fn what_is_long_is_packed_and_has_the_same_bytes() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let sent = |body: &[u8], takes_gzip: bool| {
            let response = packed(JSON, body.to_vec(), takes_gzip);
            let is_packed = response.headers().contains_key(CONTENT_ENCODING);
            let bytes = runtime.block_on(response.into_body().collect()).unwrap().to_bytes();
            (is_packed, bytes.to_vec())
        };
        let (long, short) = (vec![b'x'; PACKED_FROM_BYTES], vec![b'x'; PACKED_FROM_BYTES - 1]);
        assert_eq!(sent(&long, false), (false, long.clone()));
        assert_eq!(sent(&short, true), (false, short));
        let (is_packed, bytes) = sent(&long, true);
        let mut back = Vec::new();
        GzDecoder::new(bytes.as_slice()).read_to_end(&mut back).unwrap();
        assert!(is_packed && bytes.len() < long.len() && back == long);
        // Xorshift: gzip makes it longer.
        let mut x = 1_u32;
        let next = || {
            x ^= x << 13;
            x ^= x >> 17;
            x ^= x << 5;
            (x >> 13) as u8
        };
        let noise: Vec<u8> = std::iter::repeat_with(next).take(4096).collect();
        assert_eq!(sent(&noise, true), (false, noise.clone()), "what does not become shorter stays as it is");
    }
}
