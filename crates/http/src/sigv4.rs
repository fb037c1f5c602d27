//! AWS Signature Version 4, which every S3-compatible object store checks.
//! https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html

use std::fmt;

use ring::{digest, hmac};

/// An access key of an object store.
#[derive(Clone)]
pub struct AccessKey {
    /// Its public part.
    pub id: String,
    /// Its secret part.
    pub secret: String,
    /// Of temporary keys only.
    pub session_token: Option<String>,
}

impl fmt::Debug for AccessKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessKey").field("id", &self.id).finish_non_exhaustive()
    }
}

/// What is signed of a request.
#[derive(Debug, Clone, Copy)]
pub struct SignedRequest<'a> {
    /// GET, PUT, …
    pub method: &'a str,
    /// As in the header `Host`.
    pub host: &'a str,
    /// From the first slash on, not encoded.
    pub path: &'a str,
    /// Names and values, not encoded.
    pub query: &'a [(&'a str, &'a str)],
    /// SHA-256 of the body, in hexadecimal digits.
    pub body_sha256: &'a str,
    /// Now in UTC, as `20130524T000000Z`.
    pub time: &'a str,
}

impl SignedRequest<'_> {
    /// Path and query as they have to stand in the request.
    #[must_use]
    pub fn target(&self) -> String {
        let (path, query) = (encoded(self.path, true), self.canonical_query());
        if query.is_empty() { path } else { format!("{path}?{query}") }
    }

    fn canonical_query(&self) -> String {
        let mut pairs: Vec<String> = self
            .query
            .iter()
            .map(|(name, value)| format!("{}={}", encoded(name, false), encoded(value, false)))
            .collect();
        pairs.sort_unstable();
        pairs.join("&")
    }

    /// The headers that the request has to have beside `Host`.
    #[must_use]
    pub fn headers(&self, key: &AccessKey, region: &str) -> Vec<(&'static str, String)> {
        let mut headers =
            vec![("x-amz-content-sha256", self.body_sha256.to_owned()), ("x-amz-date", self.time.to_owned())];
        headers.extend(key.session_token.iter().map(|token| ("x-amz-security-token", token.clone())));
        let signed: String = headers.iter().map(|(name, _)| format!(";{name}")).collect();
        let lines: String = headers.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
        let canonical = format!(
            "{}\n{}\n{}\nhost:{}\n{lines}\nhost{signed}\n{}",
            self.method,
            encoded(self.path, true),
            self.canonical_query(),
            self.host,
            self.body_sha256
        );
        let day = self.time.get(..8).unwrap_or_default();
        let scope = format!("{day}/{region}/s3/aws4_request");
        let to_sign =
            format!("AWS4-HMAC-SHA256\n{}\n{scope}\n{}", self.time, sha256_hex(canonical.as_bytes()));
        let mut signing = format!("AWS4{}", key.secret).into_bytes();
        for part in [day, region, "s3", "aws4_request", &to_sign] {
            signing = hmac_sha256(&signing, part.as_bytes());
        }
        let signature = hex(&signing);
        let id = &key.id;
        headers.push((
            "authorization",
            format!(
                "AWS4-HMAC-SHA256 Credential={id}/{scope},SignedHeaders=host{signed},Signature={signature}"
            ),
        ));
        headers
    }
}

/// SHA-256 in hexadecimal digits.
#[must_use]
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex(digest::digest(&digest::SHA256, bytes).as_ref())
}

fn hmac_sha256(key: &[u8], text: &[u8]) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text).as_ref().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Percent-encodes everything but the unreserved characters of RFC 3986.
fn encoded(text: &str, keeps_slash: bool) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(byte.into()),
            b'/' if keeps_slash => out.push('/'),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example "GET Bucket (List Objects)" of the documentation.
    #[test]
    fn the_documented_example_gets_the_documented_signature() {
        let key = AccessKey {
            id: "AKIAIOSFODNN7EXAMPLE".to_owned(),
            secret: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".to_owned(),
            session_token: None,
        };
        let empty = sha256_hex(b"");
        assert_eq!(empty, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        let request = SignedRequest {
            method: "GET",
            host: "examplebucket.s3.amazonaws.com",
            path: "/",
            query: &[("prefix", "J"), ("max-keys", "2")],
            body_sha256: &empty,
            time: "20130524T000000Z",
        };
        assert_eq!(request.target(), "/?max-keys=2&prefix=J");
        let headers = request.headers(&key, "us-east-1");
        assert_eq!(
            headers.last().unwrap().1,
            "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,\
             SignedHeaders=host;x-amz-content-sha256;x-amz-date,\
             Signature=34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"
        );
        assert!(!format!("{key:?}").contains("wJalr"), "a secret is not printed");
    }

    #[test]
    fn what_is_reserved_is_encoded() {
        let request = SignedRequest {
            method: "GET",
            host: "h",
            path: "/b/a b+ü/x",
            query: &[("prefix", "a/b")],
            body_sha256: "",
            time: "",
        };
        assert_eq!(request.target(), "/b/a%20b%2B%C3%BC/x?prefix=a%2Fb");
    }
}
