//! An object store that speaks S3. A segment is the object
//! `PREFIX/HOST/2026-11-21/0000000042-20261121T163000Z-20261121T164000Z.seg`: its day, its number, and its first and last second, so that
//! a listing tells what to fetch.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::ops::Range;

use anyhow::{Context, Result, anyhow, bail};
use jiff::Timestamp;
use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use mitra_archive::SegmentFile;
use mitra_http::ureq::Body;
use mitra_http::ureq::http::Response;
use mitra_http::{AccessKey, Agent, SignedRequest, sha256_hex};
use mitra_model::Span;
use mitra_model::time::SECOND;

use super::settings::{self, Access, parsed};
use super::{LIST_BYTES_MAX, RemoteFile, around, part_of, quoted, range_header};
use crate::errors::usage;

const TIME: &str = "%Y%m%dT%H%M%SZ";
const DAY: &str = "%Y-%m-%d";
/// A segment is listed with the day that it begins on, and is shorter than a day.
const DAY_NS: i64 = 86_400 * SECOND;
/// Of a thousand objects each: more than days and segments of a day can be.
const PAGES_MAX: usize = 100;
/// Of a page of a listing.
const PAGE_BYTES_MAX: u64 = LIST_BYTES_MAX / 16;

/// The recording of one host in a bucket.
pub struct Bucket {
    agent: Agent,
    /// Scheme and authority.
    origin: String,
    host: String,
    bucket: String,
    /// With the host, without a slash at its end.
    prefix: String,
    key: AccessKey,
    region: String,
    /// The days that were listed.
    listed: BTreeMap<Date, Vec<RemoteFile>>,
    days: Vec<Date>,
}

/// A segment that is there.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Listed {
    pub number: u64,
    pub bytes: u64,
}

/// What a request is for.
#[derive(Clone, Copy)]
enum Asked<'a> {
    Whole,
    Part(&'a Range<u64>),
    Put(&'a [u8]),
}

impl Bucket {
    /// For `s3://BUCKET/PREFIX/HOST`.
    pub fn of(url: &str) -> Result<Bucket> {
        Bucket::open(url, settings::of(url)?)
    }

    pub fn open(url: &str, access: Access) -> Result<Bucket> {
        let uri = parsed(url)?;
        let prefix = uri.path().trim_matches('/').to_owned();
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "/!-_.*'()=".contains(c);
        if uri.scheme_str() != Some("s3") || prefix.is_empty() || !prefix.chars().all(is_plain) {
            return Err(usage(format!("{url}: want s3://BUCKET/PREFIX/HOST, of letters, digits and -_.=")));
        }
        let endpoint = access.endpoint();
        let at = parsed(&endpoint)?;
        if !matches!(at.scheme_str(), Some("http" | "https")) || !matches!(at.path(), "" | "/") {
            return Err(usage(format!("endpoint {endpoint}: want https://HOST or https://HOST:PORT")));
        }
        let (scheme, host) = (at.scheme_str().unwrap_or_default(), uri_host(&at));
        Ok(Bucket {
            agent: access.agent(&endpoint, false)?,
            origin: format!("{scheme}://{host}"),
            host,
            bucket: uri.host().unwrap_or_default().to_owned(),
            prefix,
            key: access.access_key()?,
            region: access.region(),
            listed: BTreeMap::new(),
            days: Vec::new(),
        })
    }

    /// From the first to the last segment.
    pub fn known(&mut self) -> Result<Option<Span>> {
        let folders = self.list(&format!("{}/", self.prefix), true)?;
        self.days = folders.iter().filter_map(|(name, _)| last_part(name).parse().ok()).collect();
        self.days.sort_unstable();
        let ends: Vec<Date> = self.days.first().into_iter().chain(self.days.last()).copied().collect();
        ends.into_iter().try_for_each(|day| self.list_day(day))?;
        Ok(around(&self.listed.values().flatten().cloned().collect::<Vec<_>>()))
    }

    /// The segments of the days of these stretches, in order.
    pub fn files(&mut self, spans: &[Span]) -> Result<Vec<RemoteFile>> {
        let is_wanted = |day: &Date| {
            let since = start(*day);
            let ends = since.saturating_add(2 * DAY_NS);
            spans.iter().any(|span| since < span.until && ends > span.since)
        };
        let days: Vec<Date> = self.days.iter().copied().filter(is_wanted).collect();
        days.into_iter().try_for_each(|day| self.list_day(day))?;
        let mut files: Vec<RemoteFile> = self.listed.values().flatten().cloned().collect();
        files.sort_by_key(|file| (file.span.since, file.span.until));
        Ok(files)
    }

    /// What is there of the days from a moment on.
    pub fn since(&mut self, moment: i64) -> Result<Vec<Listed>> {
        self.known()?;
        let files = self.files(&[Span { since: moment.saturating_sub(DAY_NS), until: i64::MAX }])?;
        let one = |file: &RemoteFile| Some(Listed { number: parse(&file.name)?.0, bytes: file.bytes });
        Ok(files.iter().filter_map(one).collect())
    }

    pub fn read(&self, name: &str, bytes_max: u64, out: &mut dyn Write) -> Result<bool> {
        let mut answer = self.ask(&self.path(name), &[], Asked::Whole)?;
        match answer.status().as_u16() {
            200 => {}
            404 => return Ok(false),
            _ => return Err(self.refused(answer)),
        }
        let lost = || format!("{}: {name} did not come whole", self.shown());
        let body = answer.body_mut().with_config().limit(bytes_max.saturating_add(1)).reader();
        std::io::copy(&mut body.take(bytes_max), out).with_context(lost)?;
        Ok(true)
    }

    /// A stretch of an object.
    pub fn read_part(&self, name: &str, bytes: Range<u64>) -> Result<Option<Vec<u8>>> {
        let mut answer = self.ask(&self.path(name), &[], Asked::Part(&bytes))?;
        match answer.status().as_u16() {
            200 | 206 => {}
            404 => return Ok(None),
            _ => return Err(self.refused(answer)),
        }
        let lost = || format!("{}: {name} did not come whole", self.shown());
        part_of(&mut answer, &bytes).map(Some).with_context(lost)
    }

    /// Stores a sealed segment.
    pub fn put(&self, file: &SegmentFile, bytes: &[u8]) -> Result<()> {
        let name = object(file).with_context(|| format!("{}: not the name of a segment", file.name))?;
        let answer = self.ask(&self.path(&name), &[], Asked::Put(bytes))?;
        if answer.status().is_success() { Ok(()) } else { Err(self.refused(answer)) }
    }

    fn path(&self, name: &str) -> String {
        format!("/{}/{}/{name}", self.bucket, self.prefix)
    }

    fn shown(&self) -> String {
        format!("s3://{}/{}", self.bucket, self.prefix)
    }

    fn list_day(&mut self, day: Date) -> Result<()> {
        if self.listed.contains_key(&day) {
            return Ok(());
        }
        let objects = self.list(&format!("{}/{}/", self.prefix, day.strftime(DAY)), false)?;
        let file = |(key, bytes): &(String, u64)| {
            let name = format!("{}/{}", day.strftime(DAY), last_part(key));
            let (_, span) = parse(&name)?;
            Some(RemoteFile { name, bytes: *bytes, span, is_sealed: true })
        };
        let mut files: Vec<RemoteFile> = objects.iter().filter_map(file).collect();
        files.sort_by_key(|file| (file.span.since, file.span.until));
        self.listed.insert(day, files);
        Ok(())
    }

    /// The keys below a prefix with their sizes, or the folders.
    fn list(&self, prefix: &str, folders: bool) -> Result<Vec<(String, u64)>> {
        let mut all = Vec::new();
        let mut token = String::new();
        for _ in 0..PAGES_MAX {
            let mut query = vec![("list-type", "2"), ("prefix", prefix)];
            query.extend(folders.then_some(("delimiter", "/")));
            query.extend((!token.is_empty()).then_some(("continuation-token", token.as_str())));
            let mut answer = self.ask(&format!("/{}", self.bucket), &query, Asked::Whole)?;
            if answer.status() != 200 {
                return Err(self.refused(answer));
            }
            let page = answer.body_mut().with_config().limit(PAGE_BYTES_MAX).read_to_string();
            let page = page.with_context(|| format!("{}: the listing did not come", self.shown()))?;
            if folders {
                let prefixes = texts(&page, "CommonPrefixes").filter_map(|text| texts(text, "Prefix").next());
                all.extend(prefixes.map(|name| (name.to_owned(), 0)));
            } else {
                all.extend(texts(&page, "Contents").filter_map(object_of));
            }
            if texts(&page, "IsTruncated").next() != Some("true") {
                return Ok(all);
            }
            let next = texts(&page, "NextContinuationToken").next().map(unescaped).unwrap_or_default();
            if next.is_empty() || next == token {
                break;
            }
            token = next;
        }
        bail!("{}: the listing does not end", self.shown())
    }

    fn ask(&self, path: &str, query: &[(&str, &str)], asked: Asked<'_>) -> Result<Response<Body>> {
        let body = if let Asked::Put(body) = asked { Some(body) } else { None };
        let time = Timestamp::now().strftime(TIME).to_string();
        let request = SignedRequest {
            method: if body.is_some() { "PUT" } else { "GET" },
            host: &self.host,
            path,
            query,
            body_sha256: &sha256_hex(body.unwrap_or_default()),
            time: &time,
        };
        let url = format!("{}{}", self.origin, request.target());
        let headers = request.headers(&self.key, &self.region);
        let answer = match body {
            Some(body) => {
                let put = headers
                    .into_iter()
                    .fold(self.agent.put(url), |put, (name, value)| put.header(name, value));
                put.send(body)
            }
            None => {
                let get = headers
                    .into_iter()
                    .fold(self.agent.get(url), |get, (name, value)| get.header(name, value));
                // It need not be signed.
                let get = match asked {
                    Asked::Part(bytes) => get.header("Range", range_header(bytes)),
                    _ => get,
                };
                get.call()
            }
        };
        answer.with_context(|| format!("{}: no answer of {}", self.shown(), self.origin))
    }

    fn refused(&self, mut answer: Response<Body>) -> anyhow::Error {
        let status = answer.status();
        let body = answer.body_mut().with_config().limit(16 << 10).read_to_string().unwrap_or_default();
        let said = |tag: &str| texts(&body, tag).next().map(|text| quoted(text.as_bytes()));
        let told = [said("Code"), said("Message")].into_iter().flatten().collect::<Vec<_>>().join(": ");
        anyhow!("{}: {} answered {status}: {told}", self.shown(), self.origin)
    }
}

/// As it stands in the header `Host`: without the port that is usual.
fn uri_host(uri: &mitra_http::ureq::http::Uri) -> String {
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    let usual = if uri.scheme_str() == Some("https") { ":443" } else { ":80" };
    authority.strip_suffix(usual).unwrap_or(authority).to_owned()
}

fn start(day: Date) -> i64 {
    let midnight = day.at(0, 0, 0, 0).to_zoned(TimeZone::UTC);
    midnight.map_or(0, |time| i64::try_from(time.timestamp().as_nanosecond()).unwrap_or(0))
}

/// Day and name of the object of a segment.
fn object(file: &SegmentFile) -> Option<String> {
    let number = file.name.strip_suffix(".seg")?;
    let second = |ns: i64| Timestamp::from_second(ns.div_euclid(SECOND)).ok();
    // The span ends just after the last sample.
    let (since, until) = (second(file.span.since)?, second(file.span.until.saturating_add(SECOND - 1))?);
    Some(format!("{}/{number}-{}-{}.seg", since.strftime(DAY), since.strftime(TIME), until.strftime(TIME)))
}

/// Number and span of a segment whose object has this day and name.
fn parse(name: &str) -> Option<(u64, Span)> {
    let (_, name) = name.split_once('/')?;
    let mut parts = name.strip_suffix(".seg")?.split('-');
    let (number, since, until) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() || number.len() != 10 || !number.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let moment = |text: &str| {
        let time = DateTime::strptime(TIME, text).ok()?.to_zoned(TimeZone::UTC).ok()?;
        i64::try_from(time.timestamp().as_nanosecond()).ok()
    };
    let span = Span { since: moment(since)?, until: moment(until)? };
    (span.since < span.until).then_some((number.parse().ok()?, span))
}

fn last_part(key: &str) -> &str {
    key.trim_end_matches('/').rsplit('/').next().unwrap_or_default()
}

fn object_of(contents: &str) -> Option<(String, u64)> {
    let key = texts(contents, "Key").next()?;
    Some((key.to_owned(), texts(contents, "Size").next()?.parse().ok()?))
}

/// The texts of all elements of a name, which have no attributes. Names and dates of ours have nothing that is escaped.
fn texts<'a>(xml: &'a str, tag: &str) -> impl Iterator<Item = &'a str> + use<'a> {
    let (open, close) = (format!("<{tag}>"), format!("</{tag}>"));
    let mut rest = xml;
    std::iter::from_fn(move || {
        let (_, inner) = rest.split_once(open.as_str())?;
        let (text, after) = inner.split_once(close.as_str())?;
        rest = after;
        Some(text)
    })
}

fn unescaped(text: &str) -> String {
    let pairs = [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", "\""),
        ("&apos;", "'"),
        ("&#34;", "\""),
        ("&#39;", "'"),
        ("&amp;", "&"),
    ];
    pairs.into_iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_named_by_its_times() {
        let moment = |text: &str| i64::try_from(text.parse::<Timestamp>().unwrap().as_nanosecond()).unwrap();
        let span = Span { since: moment("2026-11-21T16:30:00.4Z"), until: moment("2026-11-21T16:40:00.3Z") };
        let file = SegmentFile { name: "0000000042.seg".to_owned(), bytes: 7, span, is_sealed: true };
        let name = object(&file).unwrap();
        assert_eq!(name, "2026-11-21/0000000042-20261121T163000Z-20261121T164001Z.seg");
        let (number, told) = parse(&name).unwrap();
        assert!(number == 42 && told.since <= span.since && told.until >= span.until);
        assert_eq!(
            told,
            Span { since: moment("2026-11-21T16:30:00Z"), until: moment("2026-11-21T16:40:01Z") }
        );
        for bad in [
            "",
            "0000000042-20261121T163000Z-20261121T164001Z.seg",
            "d/42-20261121T163000Z-20261121T164001Z.seg",
            "d/0000000042-20261121T163000Z.seg",
            "d/0000000042-20261121T163000Z-20261121T164001Z-x.seg",
            "d/0000000042-20261121T164001Z-20261121T163000Z.seg",
            "d/0000000042-20261141T163000Z-20261121T164001Z.seg",
            "d/0000000042-20261121T163000Z-20261121T164001Z.log",
        ] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_listing_is_read() {
        let page = "<?xml version=\"1.0\"?><ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><IsTruncated>true</IsTruncated>\
                    <NextContinuationToken>a+b/c=&amp;</NextContinuationToken><Contents><Key>p/a.seg</Key><ETag>&quot;x&quot;</ETag>\
                    <Size>12</Size></Contents><Contents><Key>p/b.seg</Key><Size>-1</Size></Contents><CommonPrefixes><Prefix>p/2026-11-21/\
                    </Prefix></CommonPrefixes><Contents><Key>torn";
        let objects: Vec<_> = texts(page, "Contents").filter_map(object_of).collect();
        assert_eq!(objects, [("p/a.seg".to_owned(), 12)]);
        assert_eq!(texts(page, "NextContinuationToken").map(unescaped).collect::<Vec<_>>(), ["a+b/c=&"]);
        let folder = texts(page, "CommonPrefixes").filter_map(|text| texts(text, "Prefix").next()).next();
        assert_eq!(folder.map(last_part), Some("2026-11-21"));
        assert_eq!(texts("<a></a><a>", "a").collect::<Vec<_>>(), [""]);
    }
}
