//! The page for a browser, in the binary where it was there when that was built.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::LazyLock;

use flate2::Compression;
use hyper::Response;
use hyper::header::{CACHE_CONTROL, CONTENT_ENCODING, ETAG, HeaderMap, HeaderValue, IF_NONE_MATCH, VARY};

use super::response::{Body, HTML, gzip, of, takes_gzip};

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

/// The file of that path, compressed for who takes that. A browser that has it gets nothing but a word that it is the same.
pub fn asset(path: &str, headers: &HeaderMap) -> Option<Response<Body>> {
    let number = ASSETS.iter().position(|(known, ..)| *known == path)?;
    let (_, kind, bytes) = ASSETS[number];
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    // Weak: it is the same file, compressed or not.
    let tag = format!("W/\"{:016x}\"", hasher.finish());
    let is_known = headers.get_all(IF_NONE_MATCH).iter().any(|known| names(known, &tag));
    let packed = PACKED.get(number).filter(|_| takes_gzip(headers));
    let body: &'static [u8] = if is_known { &[] } else { packed.map_or(bytes, Vec::as_slice) };
    let mut response = of(kind, body);
    let own = response.headers_mut();
    if packed.is_some() {
        own.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    own.insert(VARY, HeaderValue::from_static("accept-encoding"));
    own.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        own.insert(ETAG, tag);
    }
    if is_known {
        *response.status_mut() = hyper::StatusCode::NOT_MODIFIED;
    }
    Some(response)
}

/// Whether a list of tags has this one. What makes a tag a weak one does not count.
fn names(list: &HeaderValue, tag: &str) -> bool {
    let opaque = |tag: &str| tag.trim().trim_start_matches("W/").to_owned();
    list.to_str().is_ok_and(|list| list.split(',').map(opaque).any(|one| one == "*" || one == opaque(tag)))
}

/// Each file compressed, in order.
static PACKED: LazyLock<Vec<Vec<u8>>> =
    LazyLock::new(|| ASSETS.iter().map(|(.., bytes)| gzip(bytes, Compression::best())).collect());

#[cfg(test)]
mod tests {
    use std::io::Read;

    use hyper::header::ACCEPT_ENCODING;

    use super::*;

    #[test]
    fn a_file_is_compressed_for_who_takes_that() {
        assert!(PACKED.iter().zip(ASSETS).all(|(packed, (.., bytes))| {
            let mut back = Vec::new();
            flate2::read::GzDecoder::new(packed.as_slice()).read_to_end(&mut back).unwrap();
            back == *bytes
        }));
        let mut headers = HeaderMap::new();
        let tag = asset("/", &headers).unwrap().headers()[ETAG].clone();
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
        assert_eq!(asset("/", &headers).unwrap().headers()[CONTENT_ENCODING], "gzip");
        assert!(asset("/none", &headers).is_none());
        let strong = tag.to_str().unwrap().trim_start_matches("W/").to_owned();
        for (known, status) in [
            (strong.clone(), 304_u16),
            (format!("\"x\", W/{strong}"), 304),
            ("*".into(), 304),
            ("\"x\"".into(), 200),
        ] {
            headers.insert(IF_NONE_MATCH, HeaderValue::from_str(&known).unwrap());
            assert_eq!(asset("/", &headers).unwrap().status(), status, "{known}");
        }
    }
}
