//! The page for a browser, in the binary where it was there when that was built.

use std::hash::{DefaultHasher, Hash, Hasher};

use hyper::Response;
use hyper::header::{CACHE_CONTROL, ETAG, HeaderValue};

use super::response::{Body, HTML, of};

/// The path, the kind, and the file.
type Asset = (&'static str, &'static str, &'static [u8]);

#[cfg(has_page)]
const ASSETS: &[Asset] = &[
    ("/", HTML, include_bytes!("../../../../web/dist/index.html")),
    ("/app.js", "text/javascript; charset=utf-8", include_bytes!("../../../../web/dist/app.js")),
    ("/app.css", "text/css; charset=utf-8", include_bytes!("../../../../web/dist/app.css")),
];
#[cfg(not(has_page))]
const ASSETS: &[Asset] = &[("/", HTML, NO_PAGE)];

#[cfg(not(has_page))]
const NO_PAGE: &[u8] = b"<!doctype html>\n<html lang=\"en\">\n<title>mitra serve</title>\n\
    <p>This build of mitra has no page: <code>make web</code> builds it, before mitra is built.</p>\n\
    <p>What can be asked without it: <a href=\"/api/v1/openapi.json\">/api/v1/openapi.json</a></p>\n</html>\n";

/// The paths that are served.
#[cfg(test)]
pub fn paths() -> impl Iterator<Item = &'static str> {
    ASSETS.iter().map(|(path, ..)| *path)
}

/// The file of that path. A browser that has it gets nothing but a word that it is the same.
pub fn asset(path: &str, known: Option<&str>) -> Option<Response<Body>> {
    let (_, kind, bytes) = ASSETS.iter().find(|(known, ..)| *known == path)?;
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    let tag = format!("\"{:016x}\"", hasher.finish());
    let is_known =
        known.is_some_and(|list| list.split(',').any(|one| one.trim().trim_start_matches("W/") == tag));
    let mut response = of(kind, if is_known { &[][..] } else { *bytes });
    if is_known {
        *response.status_mut() = hyper::StatusCode::NOT_MODIFIED;
    }
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        response.headers_mut().insert(ETAG, tag);
    }
    Some(response)
}
