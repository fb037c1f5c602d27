//! The files of the recording themselves, for a reader on another machine: a list with their times, and the bytes of one.

use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use http_body_util::Either;
use http_body_util::channel::{Channel, Sender};
use hyper::body::Bytes;
use hyper::header::{ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, HeaderValue};
use hyper::{Response, StatusCode};
use mitra_archive::{capture_path, captures};
use rustix::fs::OFlags;
use serde_json::{Value, json};

use crate::render::style::rfc3339;
use crate::serve::api::Server;
use crate::serve::archive::View;
use crate::serve::counter::{Client, Place};
use crate::serve::pool::Cancel;
use crate::serve::response::{Body, Failure, with};

/// The path of one.
pub const ONE: &str = "/api/v1/segments/{name}";
/// Read and sent at a time.
const PIECE_BYTES: usize = 64 << 10;
/// Pieces of one answer that wait for the client.
const WAITING_MAX: usize = 2;

/// The name in a path.
pub fn asked(path: &str) -> Option<&str> {
    let name = path.strip_prefix(ONE.split_once('{')?.0)?;
    (!name.is_empty() && !name.contains('/')).then_some(name)
}

/// The files of the recording and its captures.
pub async fn list(server: &Server, client: Client) -> Result<Value, Failure> {
    let view = server.archive.fresh().await;
    let ticket = server.pool.ticket(client)?;
    let work = move |_: &Cancel| {
        let segments = view.reader.segment_files();
        let segment = |of: &mitra_archive::SegmentFile| {
            json!({
                "name": of.name, "bytes": of.bytes, "is_sealed": of.is_sealed,
                "since": rfc3339(of.span.since), "until": rfc3339(of.span.until),
            })
        };
        let captures = captures(view.reader.dir()).map_err(anyhow::Error::from)?;
        let capture = |of: &mitra_archive::CaptureFile| json!({ "name": of.name, "bytes": of.bytes, "since": rfc3339(of.since_real) });
        Ok(json!({
            "segments": segments.iter().map(segment).collect::<Value>(),
            "captures": captures.iter().map(capture).collect::<Value>(),
        }))
    };
    server.pool.run(ticket, work).await
}

/// The bytes of one file of the list, as many as it has now, or the stretch of them that is asked for.
pub async fn one(
    server: &Server,
    name: &str,
    range: Option<&HeaderValue>,
    client: Client,
) -> Result<Response<Body>, Failure> {
    let view = server.archive.fresh().await;
    let (name, ticket) = (name.to_owned(), server.pool.ticket(client)?);
    let (mut file, bytes) = server.pool.run(ticket, move |_: &Cancel| open(&view, &name)).await?;
    let part = range.and_then(|range| stretch(range.to_str().ok()?, bytes));
    let Range { start, end } = part.clone().unwrap_or(0..bytes);
    file.seek(SeekFrom::Start(start)).context("cannot read it")?;
    // Transfers take a place in the queue, so that one address has a few at a time.
    let ticket = server.pool.ticket(client)?;
    let (sender, body) = Channel::new(WAITING_MAX);
    tokio::spawn(send(file.take(end - start), sender, ticket));
    let mut response = with("application/octet-stream", Either::Right(body));
    // Where the file ends early the connection does too, and the client notices.
    response.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(end - start));
    response.headers_mut().insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    if part.is_some() {
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
        let of = format!("bytes {start}-{}/{bytes}", end - 1);
        response.headers_mut().insert(CONTENT_RANGE, of.parse().context("a header")?);
    }
    Ok(response)
}

/// The one stretch that a header asks for. Of several, of the last bytes, or of none that are there, all is sent (RFC 9110, 14.2).
fn stretch(range: &str, bytes: u64) -> Option<Range<u64>> {
    let (first, last) = range.strip_prefix("bytes=")?.split_once('-')?;
    let number =
        |text: &str| text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse::<u64>().ok()).flatten();
    let first = number(first)?;
    let end = if last.is_empty() { bytes } else { number(last)?.saturating_add(1).min(bytes) };
    (first < end).then_some(first..end)
}

fn open(view: &View, name: &str) -> Result<(File, u64), Failure> {
    let none = || Failure::not_found("no_segment", format!("no file of the recording is called {name}"));
    let path = place(view, name)?.ok_or_else(none)?;
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let file = match File::options().read(true).custom_flags(flags).open(&path) {
        // Sealed or removed since.
        Err(error) if error.kind() == ErrorKind::NotFound => return Err(none()),
        other => other.with_context(|| format!("cannot open {}", path.display()))?,
    };
    let meta = file.metadata().context("cannot look at it")?;
    if meta.is_file() { Ok((file, meta.len())) } else { Err(none()) }
}

/// Where a file of that name is. Only names of the list are.
fn place(view: &View, name: &str) -> Result<Option<PathBuf>, Failure> {
    let dir: &Path = view.reader.dir();
    if view.reader.segment_files().iter().any(|file| file.name == name) {
        return Ok(Some(dir.join(name)));
    }
    let captures = captures(dir).map_err(anyhow::Error::from)?;
    Ok(captures.iter().any(|file| file.name == name).then(|| capture_path(dir, name)))
}

async fn send(mut file: std::io::Take<File>, mut sender: Sender<Bytes>, _ticket: Place) {
    loop {
        let read = tokio::task::spawn_blocking(move || {
            let mut piece = Vec::with_capacity(PIECE_BYTES);
            let read = file.by_ref().take(PIECE_BYTES as u64).read_to_end(&mut piece);
            read.map(|_| (file, piece))
        });
        let Ok(Ok((rest, piece))) = read.await else { return };
        if piece.is_empty() || sender.send_data(piece.into()).await.is_err() {
            return;
        }
        file = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stretch_is_one_of_bytes_that_are_there() {
        assert_eq!(stretch("bytes=0-0", 10), Some(0..1));
        assert_eq!(stretch("bytes=3-6", 10), Some(3..7));
        assert_eq!(stretch("bytes=3-", 10), Some(3..10));
        assert_eq!(stretch("bytes=9-18446744073709551615", 10), Some(9..10));
        for all in [
            "bytes=10-11",
            "bytes=-5",
            "bytes=5-3",
            "bytes=0-1,3-4",
            "lines=0-1",
            "bytes=+1-2",
            "bytes=1",
            "",
            "bytes=-",
        ] {
            assert_eq!(stretch(all, 10), None, "{all}");
        }
        assert_eq!(stretch("bytes=0-", 0), None);
    }

    #[test]
    fn a_name_is_one_part_of_a_path() {
        assert_eq!(asked("/api/v1/segments/0000000001.seg"), Some("0000000001.seg"));
        for path in
            ["/api/v1/segments", "/api/v1/segments/", "/api/v1/segments/a/b", "/api/v1/segments/../state"]
        {
            assert_eq!(asked(path), None, "{path}");
        }
    }
}
