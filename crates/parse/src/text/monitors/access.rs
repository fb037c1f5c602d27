//! Access logs with the time of each request: of HAProxy, and of nginx with `$request_time` at the end or named.
//!
//! ```text
//! Nov 27 23:10:01 lb haproxy[812]: 10.0.0.7:50122 [27/Nov/2026:23:10:01.123] web shop/app1 0/0/1/25/26 200 1234 - - ---- 1/1/0/0/0 0/0 "GET / HTTP/1.1"
//! 10.0.0.7 - - [27/Nov/2026:23:10:01 +0000] "GET / HTTP/1.1" 200 1234 "-" "curl/8" rt=0.026
//! ```
//!
//! The requests of each ten seconds are one row: how many ended, how long they took in all, and quantiles. HAProxy logs
//! a request when it ends, with the time at which it was accepted; nginx with the time at which it ended.

use std::collections::BTreeMap;

use crate::text::prelude::*;

/// See the module.
pub const FORMAT: Format = Format::new(
    "access log with times",
    "requests and response times of each ten seconds, of HAProxy and of nginx with `$request_time`",
    starts,
    read,
);

/// The length of a row.
const BUCKET: i64 = 10 * SECOND;
/// Frontends of one log.
const SERVICES_MAX: usize = 256;
/// Rows that are held until they are complete: HAProxy's come in the order in which requests ended.
const OPEN_MAX: usize = 64;
/// Response times that are kept of one row, to find its quantiles.
const TIMES_MAX: usize = 1_000_000;

/// A request as a log has it, whether or not the line says how long it took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoggedRequest<'a> {
    /// When, in nanoseconds since 1970 UTC.
    pub real: i64,
    /// Whether the line has fractions of a second. The common and the combined format have none.
    pub has_fraction: bool,
    /// `GET`.
    pub method: &'a [u8],
    /// `/path?query`, as it was asked for.
    pub target: &'a [u8],
}

/// Reads a line of an access log in the common or the combined format, or of HAProxy.
#[must_use]
pub fn logged_request(line: &[u8]) -> Option<LoggedRequest<'_>> {
    let (real, rest) = stamp(line)?;
    let before = line.get(..line.len().checked_sub(rest.len())?)?;
    let inside = before.get(memchr::memrchr(b'[', before)?..)?;
    let quoted = rest.get(memchr::memchr(b'"', rest)? + 1..)?;
    let mut list = words(quoted.get(..memchr::memchr(b'"', quoted)?)?);
    let (method, target) = (list.next()?, list.next()?);
    list.next().filter(|version| version.starts_with(b"HTTP/"))?;
    Some(LoggedRequest { real, has_fraction: inside.contains(&b'.'), method, target })
}

/// A request that ended.
struct Request<'a> {
    service: &'a [u8],
    end: i64,
    seconds: f64,
}

/// `[27/Nov/2026:23:10:01.123]` or `[27/Nov/2026:23:10:01 +0100]`, and what follows the bracket.
fn stamp(line: &[u8]) -> Option<(i64, &[u8])> {
    let open = memchr::memchr(b'[', line.get(..line.len().min(400))?)?;
    // `haproxy[812]:` stands before it.
    let open = match line.get(open + 3) {
        Some(b'/') => open,
        _ => open + 1 + memchr::memchr(b'[', line.get(open + 1..line.len().min(400))?)?,
    };
    let inside = line.get(open + 1..)?;
    let close = memchr::memchr(b']', inside.get(..inside.len().min(40))?)?;
    let (stamp, rest) = inside.split_at_checked(close)?;
    let small = |range: std::ops::Range<usize>| u32::try_from(integer(stamp.get(range)?)?).ok();
    let (day, month) = (small(0..2)?, clock::month(stamp.get(3..6)?)?);
    let days = clock::days(i64::from(small(7..11)?), month, day)?;
    let mut list = words(stamp.get(12..)?);
    let mut t = days * DAY + clock::time_of_day(list.next()?)?;
    if let Some(zone) = list.next() {
        t -= clock::zone_offset(zone)?;
    }
    Some((t, rest.get(1..)?))
}

fn request(line: &[u8]) -> Option<Request<'_>> {
    let (t, rest) = stamp(line)?;
    if rest.trim_ascii_start().starts_with(b"\"") {
        return nginx(t, rest);
    }
    // Frontend, backend and server, times, status.
    let mut list = words(rest);
    let frontend = list.next()?;
    list.next().filter(|server| server.contains(&b'/'))?;
    let times: Vec<&[u8]> = list.next()?.split(|b| *b == b'/').collect();
    let total = *times.get(4)?;
    let ms = number(total.strip_prefix(b"+").unwrap_or(total)).filter(|ms| *ms >= 0.0)?;
    list.next().filter(|status| number(status).is_some())?;
    let service = frontend.strip_suffix(b"~").unwrap_or(frontend);
    let is_one =
        times.len() == 5 && times.iter().all(|w| number(w.strip_prefix(b"+").unwrap_or(w)).is_some());
    is_one.then_some(Request { service, end: t.saturating_add((ms * 1e6) as i64), seconds: ms / 1e3 })
}

/// Behind the request: status and bytes, texts, and how long it took.
fn nginx(t: i64, rest: &[u8]) -> Option<Request<'_>> {
    let quoted = rest.trim_ascii_start().get(1..)?;
    let mut list = words(quoted.get(memchr::memchr(b'"', quoted)? + 1..)?);
    integer(list.next()?).filter(|status| (100..600).contains(status))?;
    integer(list.next().filter(|bytes| *bytes != b"-").unwrap_or(b"0"))?;
    let tail = list.rest();
    let seconds = named(tail).or_else(|| of_ingress(tail)).or_else(|| last(tail))?;
    (0.0..1e6).contains(&seconds).then_some(Request { service: b"", end: t, seconds })
}

/// `rt=0.026`. `urt=` is another time.
fn named(tail: &[u8]) -> Option<f64> {
    [&b"rt="[..], b"request_time=", b"request_time:"].iter().find_map(|name| {
        memchr::memmem::find_iter(tail, *name).find_map(|at| {
            let before = at.checked_sub(1).and_then(|at| tail.get(at));
            if before.is_some_and(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-')) {
                return None;
            }
            let value = tail.get(at + name.len()..)?.trim_ascii_start();
            first(value.strip_prefix(b"\"").unwrap_or(value))
        })
    })
}

/// `345 0.026 [shop-web-80]`: bytes of the request, its time and the service, as the ingress controller of Kubernetes logs them.
fn of_ingress(tail: &[u8]) -> Option<f64> {
    memchr::memmem::find_iter(tail, b" [").find_map(|at| {
        let mut before = tail.get(..at)?.rsplit(|b| *b == b' ');
        let seconds = before.next().and_then(thousandths)?;
        integer(before.next()?).map(|_| seconds)
    })
}

/// The longest of the times at the end: a server behind this one takes no longer; `-` if none was asked.
fn last(tail: &[u8]) -> Option<f64> {
    let mut longest: Option<f64> = None;
    for word in tail.rsplit(|b| *b == b' ').filter(|word| !word.is_empty()) {
        let word = word.strip_prefix(b"\"").and_then(|w| w.strip_suffix(b"\"")).unwrap_or(word);
        match thousandths(word) {
            Some(seconds) => longest = Some(longest.map_or(seconds, |longest| longest.max(seconds))),
            None if word == b"-" => {}
            None => break,
        }
    }
    longest
}

/// `0.026`: seconds with three decimals.
fn thousandths(word: &[u8]) -> Option<f64> {
    let dot = word.len().checked_sub(4)?;
    number(word).filter(|seconds| word.get(dot) == Some(&b'.') && (0.0..1e6).contains(seconds))
}

fn starts(lines: &mut Lines<'_>, _: &Context) -> bool {
    if !lines.at(|line| has(line, b"[") && request(line).is_some()) {
        return false;
    }
    // In a log of several programs each line is of another one: that is left to the reader of logs.
    (1..=3).all(|n| lines.ahead(n).is_none_or(|line| line.trim_ascii().is_empty() || request(line).is_some()))
}

#[derive(Default)]
struct Bucket {
    first: u32,
    n: u64,
    sum: f64,
    times: Vec<f64>,
}

fn read(lines: &mut Lines<'_>, import: &mut Import) {
    let mut open: BTreeMap<(i64, Vec<u8>), Bucket> = BTreeMap::new();
    let mut services: Vec<Vec<u8>> = Vec::new();
    let (mut left_out, mut written) = (0_u64, i64::MIN);
    let file = import.context.file_name.rsplit('/').next().unwrap_or_default().to_owned();
    lines.each(import, |lines, at, import| {
        let line = lines.line();
        if line.trim_ascii().is_empty() {
            return Took::Yes;
        }
        let Some(found) = request(line) else {
            return Took::unread_if(lines.soon(4, |line| request(line).is_some()));
        };
        // nginx says of no line which server it is: the file does.
        let service = if found.service.is_empty() { file.as_bytes() } else { found.service };
        if !services.iter().any(|known| known == service) {
            if services.len() >= SERVICES_MAX {
                left_out += 1;
                return Took::Yes;
            }
            services.push(service.to_vec());
        }
        let start = found.end.div_euclid(BUCKET);
        let key = (start, service.to_vec());
        if start <= written && !open.contains_key(&key) {
            left_out += 1;
            return Took::Yes;
        }
        let bucket = open.entry(key).or_default();
        if bucket.n == 0 {
            bucket.first = at;
        }
        bucket.n += 1;
        bucket.sum += found.seconds;
        if bucket.times.len() < TIMES_MAX {
            bucket.times.push(found.seconds);
        }
        while open.len() > OPEN_MAX.max(4 * services.len())
            && let Some(((start, service), bucket)) = open.pop_first()
        {
            written = written.max(start);
            put(start, &service, bucket, import);
        }
        Took::Yes
    });
    for ((start, service), bucket) in open {
        put(start, &service, bucket, import);
    }
    if left_out > 0 {
        import.note(format!(
            "{left_out} requests are left out: out of order by minutes, or of too many frontends"
        ));
    }
}

fn put(start: i64, service: &[u8], mut bucket: Bucket, import: &mut Import) {
    let when = When::At((start + 1).saturating_mul(BUCKET));
    let seconds = BUCKET as f64 / SECOND as f64;
    let rates = import.columns(&["service.requests", "service.response_time"], Form::Rate);
    import.since(rates, When::At(start.saturating_mul(BUCKET)));
    import.put(rates, service, when, bucket.first, &[bucket.n as f64 / seconds, bucket.sum / seconds]);
    bucket.times.sort_unstable_by(f64::total_cmp);
    let at = |share: f64| {
        let rank = (bucket.times.len() as f64 * share).ceil() as usize;
        bucket.times.get(rank.saturating_sub(1)).copied().unwrap_or(f64::NAN)
    };
    let names = ["service.latency_p50", "service.latency_p90", "service.latency_p99", "service.latency_max"];
    let levels = import.columns(&names, Form::Level);
    import.put(levels, service, when, bucket.first, &[at(0.5), at(0.9), at(0.99), at(1.0)]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_the_request_is_told_from_others() {
        let of = |tail: &str| {
            let line = format!(r#"10.0.0.7 - - [27/Nov/2026:23:10:01 +0000] "GET / HTTP/1.1" 200 12 {tail}"#);
            request(line.as_bytes()).map(|found| found.seconds)
        };
        assert_eq!(of(r#""-" "curl/8" urt="0.020" rt=0.026"#), Some(0.026));
        assert_eq!(of(r#""-" "curl/8" upstream_port=8080 request_time=0.026"#), Some(0.026));
        assert_eq!(of(r#""-" "curl/8" 0.026 0.020"#), Some(0.026));
        assert_eq!(of(r#""-" "curl/8" "0.026" "-""#), Some(0.026));
        assert_eq!(of(r#""-" "curl/8" 0.026 1795821001.123"#), None);
        let ingress = r#""-" "Mozilla/5.0 [en]" 345 0.026 [shop-web-80] [] 10.1.2.3:8080 512 0.020 200 5c1e"#;
        assert_eq!(of(ingress), Some(0.026));
        for none in [r#""-" "curl/8""#, r#""-" "-""#, r#""-" "a 8.100 [x]""#, r#""-" "curl/8" 1.50"#] {
            assert_eq!(of(none), None, "{none}");
        }
    }

    #[test]
    fn requests_of_logs_have_time_method_and_target() {
        let combined =
            br#"10.0.0.7 - - [27/Nov/2026:23:10:01 +0100] "GET /a?b=c HTTP/1.1" 200 12 "-" "curl/8""#;
        let found = logged_request(combined).unwrap();
        assert_eq!((found.method, found.target, found.has_fraction), (&b"GET"[..], &b"/a?b=c"[..], false));
        assert_eq!(found.real, 1_795_817_401 * SECOND);
        let haproxy = br#"Nov 27 23:10:01 lb haproxy[812]: 10.0.0.7:50122 [27/Nov/2026:23:10:01.123] web shop/app1 0/0/1/25/26 200 1234 - - ---- 1/1/0/0/0 0/0 "POST /x HTTP/1.1""#;
        let found = logged_request(haproxy).unwrap();
        assert_eq!((found.method, found.target, found.has_fraction), (&b"POST"[..], &b"/x"[..], true));
        for bad in [
            &br#"10.0.0.7 - - [27/Nov/2026:23:10:01 +0100] "-" 408 0"#[..],
            br#"10.0.0.7 - - [27/Nov/2026:23:10:01 +0100] "GET /a" 400 0"#,
            br#"10.0.0.7 - - [27/Nov/2026:23:10:01 +0100] "GET /a HTTP/1.1"#,
            br#"10.0.0.7 - - "GET /a HTTP/1.1" 200 1"#,
            b"[",
            b"",
        ] {
            assert_eq!(logged_request(bad), None, "{}", String::from_utf8_lossy(bad));
        }
    }
}
