//! `mitra serve` of another host.

use std::io::{Read, Write};
use std::ops::Range;

use anyhow::{Context, Result, anyhow, bail};
use jiff::Timestamp;
use mitra_http::Agent;
use mitra_http::ureq::Body;
use mitra_http::ureq::http::Response;
use mitra_model::Span;
use serde::Deserialize;
use serde_json::Value;

use super::settings::Access;
use super::{LIST_BYTES_MAX, RemoteFile, part_of, quoted, range_header};

const LIST: &str = "/api/v1/segments";

pub struct Host {
    agent: Agent,
    url: String,
    token: Option<String>,
    pub files: Vec<RemoteFile>,
    captures: Vec<RemoteCapture>,
}

/// A capture of another host, which may have been made by hand and then stands in no segment.
pub struct RemoteCapture {
    pub name: String,
    pub bytes: u64,
    since: i64,
}

#[derive(Deserialize)]
struct List {
    segments: Vec<Told>,
    #[serde(default)]
    captures: Vec<Told>,
}

#[derive(Deserialize)]
struct Told {
    name: String,
    bytes: u64,
    since: Timestamp,
    until: Option<Timestamp>,
    #[serde(default)]
    is_sealed: bool,
}

impl Host {
    pub fn open(url: &str, access: Access) -> Result<Host> {
        let (agent, token) = (access.agent(url, true)?, access.token()?);
        let (files, captures) = (Vec::new(), Vec::new());
        let mut host = Host { agent, url: url.to_owned(), token, files, captures };
        let mut answer = host.get(LIST)?;
        if answer.status() != 200 {
            return Err(host.refused(answer));
        }
        let body = answer.body_mut().with_config().limit(LIST_BYTES_MAX).read_to_vec();
        let body = body.with_context(|| format!("{url}: the list of its files did not come"))?;
        let list: List = serde_json::from_slice(&body).map_err(|error| {
            anyhow!("{url}: this is not the list of a recording: {error}: {}", quoted(&body))
        })?;
        host.files = list.segments.into_iter().map(|told| file(url, told)).collect::<Result<_>>()?;
        let named = list.captures.into_iter().filter(|told| is_capture(&told.name));
        let capture =
            |told: Told| RemoteCapture { name: told.name, bytes: told.bytes, since: nanoseconds(told.since) };
        host.captures = named.map(capture).collect();
        Ok(host)
    }

    /// The captures that began in one of these stretches.
    pub fn captures(&self, spans: &[Span]) -> impl Iterator<Item = &RemoteCapture> {
        self.captures.iter().filter(move |capture| spans.iter().any(|span| span.contains(capture.since)))
    }

    pub fn read(&self, name: &str, bytes_max: u64, out: &mut dyn Write) -> Result<bool> {
        let mut answer = self.get(&format!("{LIST}/{name}"))?;
        match answer.status().as_u16() {
            200 => {}
            404 => return Ok(false),
            _ => return Err(self.refused(answer)),
        }
        let lost = || format!("{}: {name} did not come whole", self.url);
        let mut body = answer.body_mut().with_config().limit(bytes_max.saturating_add(1)).reader();
        let read = std::io::copy(&mut body.by_ref().take(bytes_max), out).with_context(lost)?;
        // Where the size is told, a connection that is lost is an error; otherwise the end has to be asked for.
        if read == bytes_max && body.read(&mut [0]).with_context(lost)? != 0 {
            bail!("{}: {name} is larger than it said", self.url);
        }
        Ok(true)
    }

    /// A stretch of a sealed file.
    pub fn read_part(&self, name: &str, bytes: Range<u64>) -> Result<Option<Vec<u8>>> {
        let mut answer = self.ask(&format!("{LIST}/{name}"), Some(&bytes))?;
        match answer.status().as_u16() {
            200 | 206 => {}
            404 => return Ok(None),
            _ => return Err(self.refused(answer)),
        }
        part_of(&mut answer, &bytes)
            .map(Some)
            .with_context(|| format!("{}: {name} did not come whole", self.url))
    }

    fn get(&self, path: &str) -> Result<Response<Body>> {
        self.ask(path, None)
    }

    fn ask(&self, path: &str, part: Option<&Range<u64>>) -> Result<Response<Body>> {
        let mut request = self.agent.get(format!("{}{path}", self.url));
        if let Some(part) = part {
            request = request.header("Range", range_header(part));
        }
        if let Some(token) = &self.token {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        request.call().with_context(|| format!("{}: no answer", self.url))
    }

    fn refused(&self, mut answer: Response<Body>) -> anyhow::Error {
        let (url, status) = (&self.url, answer.status());
        let body = answer.body_mut().with_config().limit(4096).read_to_vec().unwrap_or_default();
        let told: Option<Value> = serde_json::from_slice(&body).ok();
        let message = told.as_ref().and_then(|told| told["error"]["message"].as_str());
        let said = message.map_or_else(|| quoted(&body), |message| quoted(message.as_bytes()));
        match status.as_u16() {
            401 if self.token.is_none() => {
                anyhow!(
                    "{url}: it wants a token: token-file in a table [[remote]] whose url it is, in mitra.toml"
                )
            }
            401 => anyhow!("{url}: it has another token than the token-file of [[remote]]"),
            404 => anyhow!("{url}: no recording answers there, or an older mitra serve ({said})"),
            _ => anyhow!("{url}: answered {status}: {said}"),
        }
    }
}

fn file(url: &str, told: Told) -> Result<RemoteFile> {
    let is_named = |ending: &str| {
        let number = told.name.strip_suffix(ending);
        number.is_some_and(|number| number.len() == 10 && number.bytes().all(|b| b.is_ascii_digit()))
    };
    if !is_named(if told.is_sealed { ".seg" } else { ".log" }) {
        bail!("{url}: its list has a file that no recording has: {}", quoted(told.name.as_bytes()));
    }
    let since = nanoseconds(told.since);
    let until = told.until.map_or(since, nanoseconds).max(since);
    Ok(RemoteFile {
        name: told.name,
        bytes: told.bytes,
        span: Span { since, until },
        is_sealed: told.is_sealed,
    })
}

/// Whether a capture may be called so: it becomes the name of a file.
fn is_capture(name: &str) -> bool {
    name.ends_with(".json.zst")
        && name.len() < 200
        && !name.starts_with('.')
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_'))
}

fn nanoseconds(time: Timestamp) -> i64 {
    i64::try_from(time.as_nanosecond()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        let told = |name: &str, is_sealed| Told {
            name: name.to_owned(),
            bytes: 1,
            since: Timestamp::UNIX_EPOCH,
            until: None,
            is_sealed,
        };
        assert_eq!(file("u", told("0000000001.seg", true)).unwrap().name, "0000000001.seg");
        assert!(file("u", told("0000000001.log", false)).is_ok());
        for bad in
            ["../0000000001.seg", "/etc/passwd", "0000000001.log", "000000001.seg", "", "00000000/1.seg"]
        {
            let said = file("u", told(bad, true)).unwrap_err().to_string();
            assert!(said.contains("a file that no recording has"), "{said}");
        }
        assert!(is_capture("20261121T163200.123Z-offcpu.json.zst"));
        for bad in ["../x.json.zst", ".x.json.zst", "x.json", "a/b.json.zst", "a\n.json.zst"] {
            assert!(!is_capture(bad), "{bad}");
        }
    }
}
