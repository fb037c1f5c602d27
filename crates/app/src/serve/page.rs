//! The page for a browser, in the binary where it was there when that was built.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::sync::LazyLock;

use flate2::Compression;
use flate2::write::GzEncoder;
use hyper::Response;
use hyper::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, ETAG, HeaderMap, HeaderValue, IF_NONE_MATCH, VARY,
};

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

/// The file of that path, compressed for who takes that. A browser that has it gets nothing but a word that it is the same.
pub fn asset(path: &str, headers: &HeaderMap) -> Option<Response<Body>> {
    let number = ASSETS.iter().position(|(known, ..)| *known == path)?;
    let (_, kind, bytes) = ASSETS[number];
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    // Weak: it is the same file, compressed or not.
    let tag = format!("W/\"{:016x}\"", hasher.finish());
    let is_known = text(IF_NONE_MATCH).split(',').any(|one| one.trim() == tag);
    let packed = PACKED.get(number).filter(|_| takes_gzip(text(ACCEPT_ENCODING)));
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

/// Each file compressed, in order.
static PACKED: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let pack = |(_, _, bytes): &Asset| {
        let mut packed = GzEncoder::new(Vec::new(), Compression::best());
        packed.write_all(bytes).and_then(|()| packed.finish()).unwrap_or_default()
    };
    ASSETS.iter().map(pack).collect()
});

/// Of `gzip;q=0.8, br` and the like.
fn takes_gzip(accepted: &str) -> bool {
    let mut codings = accepted.split(',').map(|one| one.trim().split_once(';').unwrap_or((one.trim(), "")));
    codings.any(|(name, weight)| {
        let weight = weight.trim().strip_prefix("q=").map_or(Ok(1.0), str::parse::<f32>);
        name.eq_ignore_ascii_case("gzip") && weight.is_ok_and(|weight| weight > 0.0)
    })
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn a_file_is_compressed_for_who_takes_that() {
        for (accepted, takes) in [
            ("gzip, deflate, br, zstd", true),
            ("br;q=1.0, gzip;q=0.8, *;q=0.1", true),
            ("GZIP", true),
            ("", false),
            ("identity", false),
            ("gzip;q=0", false),
            ("gzip;q=0.000, br", false),
            ("x-gzip-like", false),
        ] {
            assert_eq!(takes_gzip(accepted), takes, "{accepted}");
        }
        assert!(PACKED.iter().zip(ASSETS).all(|(packed, (.., bytes))| {
            let mut back = Vec::new();
            flate2::read::GzDecoder::new(packed.as_slice()).read_to_end(&mut back).unwrap();
            back == *bytes
        }));
        let mut headers = HeaderMap::new();
        let tag = asset("/", &headers).unwrap().headers()[ETAG].clone();
        headers.insert(IF_NONE_MATCH, tag);
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
        assert_eq!(asset("/", &headers).unwrap().status(), 304);
        assert!(asset("/none", &headers).is_none());
    }
}
