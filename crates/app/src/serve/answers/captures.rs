//! What probes captured: a list, and the stacks and tables of one.

use hyper::header::{CONTENT_TYPE, HeaderMap};
use hyper::{Response, StatusCode};
use mitra_archive::{CaptureFile, captures, read_capture, read_capture_head};
use mitra_model::Captured;
use mitra_model::capture::{CaptureTable, Profile};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::render::capture::{cost, merged};
use crate::render::style::rfc3339;
use crate::serve::api::Server;
use crate::serve::archive::View;
use crate::serve::asks::NO_RECORDER;
use crate::serve::counter::Client;
use crate::serve::pool::Cancel;
use crate::serve::query::Query;
use crate::serve::response::{Body, Failure, of_json, packed_json};

/// The path of one; see [`id`].
pub const ONE: &str = "/api/v1/captures/{id}";
const LIMIT: usize = 100;
const LIMIT_MAX: usize = 1000;
/// Stacks are told up to this many bytes, the heaviest first: more is no picture that a browser draws at once.
const STACKS_BYTES_MAX: usize = 2 << 20;
const ROWS_MAX: usize = 100;

/// The id in a path.
pub fn asked(path: &str) -> Option<&str> {
    let id = path.strip_prefix(ONE.split_once('{')?.0)?;
    (!id.is_empty() && !id.contains('/')).then_some(id)
}

/// The name of its file without the ending, which `mitra capture --show` takes.
fn id(file: &CaptureFile) -> &str {
    file.name.strip_suffix(".json.zst").unwrap_or(&file.name)
}

fn all(view: &View) -> Result<Vec<CaptureFile>, Failure> {
    Ok(captures(view.reader.dir()).map_err(anyhow::Error::from)?)
}

/// The captures that began in a range, the newest first.
pub async fn list(server: &Server, query: &Query, client: Client) -> Result<Value, Failure> {
    let view = server.archive.fresh().await;
    let since = query.time("since")?.unwrap_or(i64::MIN);
    let until = query.time("until")?.unwrap_or(i64::MAX);
    if since >= until {
        return Err(Failure::bad("bad_range", "the range ends before it begins"));
    }
    let limit = query.number("limit", 1..=LIMIT_MAX)?.unwrap_or(LIMIT);
    let kind = query.get("kind").map(str::to_owned);
    let ticket = server.pool.ticket(client)?;
    let work = move |cancel: &Cancel| {
        let mut files = all(&view)?;
        files.retain(|file| {
            (since..until).contains(&file.since_real) && kind.as_ref().is_none_or(|kind| *kind == file.kind)
        });
        let mut told = Vec::new();
        for file in files.iter().rev().take(limit) {
            if cancel.is_set() {
                return Err(Failure::new(StatusCode::SERVICE_UNAVAILABLE, "gone", "nobody waits for it"));
            }
            told.push(match read_capture_head(&file.path) {
                Ok(head) => head_of(file, &head),
                Err(error) => json!({
                    "id": id(file), "kind": file.kind, "since": rfc3339(file.since_real),
                    "error": format!("cannot be read: {error}"),
                }),
            });
        }
        Ok(json!({ "captures": told, "left_out": files.len() - told.len() }))
    };
    let mut list = server.pool.run(ticket, work).await?;
    if let Some(asks) = &server.asks {
        list["may_be_armed"] = asks.kinds.as_slice().into();
    }
    Ok(list)
}

/// What is armed.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    kind: String,
    pid: Option<u32>,
    seconds: f64,
}

/// Has the recorder arm a probe.
pub async fn arm(
    server: &Server,
    headers: &HeaderMap,
    body: &[u8],
    client: Client,
) -> Result<Response<Body>, Failure> {
    // A form of another page cannot say so.
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if kind.split(';').next().map(str::trim) != Some("application/json") {
        let why = "want Content-Type: application/json";
        return Err(Failure::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "bad_type", why));
    }
    let wanted: Wanted = serde_json::from_slice(body)
        .map_err(|error| Failure::bad("bad_body", format!("want kind, seconds and perhaps pid: {error}")))?;
    let Some(asks) = &server.asks else {
        return Err(Failure::new(StatusCode::CONFLICT, "no_recorder", NO_RECORDER));
    };
    let who = client.map_or_else(|| "a Unix socket".to_owned(), |address| address.to_string());
    let interval_ns = server.archive.fresh().await.reader.interval_ns();
    asks.arm(&wanted.kind, wanted.pid, wanted.seconds, who, interval_ns).await?;
    let told = json!({ "kind": wanted.kind, "pid": wanted.pid, "seconds": wanted.seconds });
    let mut response = of_json(&told);
    *response.status_mut() = StatusCode::ACCEPTED;
    Ok(response)
}

/// One capture: its stacks as flame graphs want them, and its tables.
pub async fn one(
    server: &Server,
    wanted: &str,
    takes_gzip: bool,
    client: Client,
) -> Result<Response<Body>, Failure> {
    let view = server.archive.fresh().await;
    let (wanted, ticket) = (wanted.to_owned(), server.pool.ticket(client)?);
    let work = move |_: &Cancel| {
        let file = all(&view)?.into_iter().find(|file| id(file) == wanted);
        let none = || {
            Failure::not_found(
                "no_capture",
                format!("no capture is called {wanted}, or it was removed since"),
            )
        };
        let file = file.ok_or_else(none)?;
        let captured = read_capture(&file.path).map_err(anyhow::Error::from)?;
        let mut told = head_of(&file, &captured);
        told["host"] = captured.host.as_str().into();
        told["cost"] = cost(&captured).into();
        told["notes"] = captured.notes.as_slice().into();
        told["tables"] = captured.tables.iter().map(table).collect();
        told["histograms"] = json!(captured.histograms);
        if let Some(profile) = &captured.profile {
            told["profile"] = stacks(profile, STACKS_BYTES_MAX);
        }
        Ok(packed_json(&told, takes_gzip))
    };
    server.pool.run(ticket, work).await
}

fn head_of(file: &CaptureFile, head: &Captured) -> Value {
    json!({
        "id": id(file),
        "kind": head.kind,
        "since": rfc3339(head.since_real),
        "until": rfc3339(head.until_real()),
        "seconds": head.seconds,
        "why": head.why,
        "filter": head.filter,
        "events": head.events,
        "lost": head.lost,
        "ended": head.ended.words(),
        "weight": head.profile.as_ref().map(|profile| profile.weight.as_str()),
    })
}

fn table(table: &CaptureTable) -> Value {
    let rows = &table.rows[..table.rows.len().min(ROWS_MAX)];
    let left_out = table.left_out + (table.rows.len() - rows.len()) as u64;
    json!({ "name": table.name, "columns": table.columns, "rows": rows, "left_out": left_out })
}

/// Equal stacks are one, the heaviest first. What no picture shows is only counted.
fn stacks(profile: &Profile, bytes_max: usize) -> Value {
    let size = |[weight, beside]: [f64; 2]| weight.max(beside);
    let mut all: Vec<(String, [f64; 2])> =
        merged(profile).into_iter().filter(|(_, weights)| size(*weights) > 0.0).collect();
    all.sort_by(|(_, a), (_, b)| size(*b).total_cmp(&size(*a)));
    let mut bytes = 0;
    let told = all.iter().take_while(|(line, _)| {
        bytes += line.len();
        bytes <= bytes_max
    });
    let told = told.count();
    let sum = |of: &[(String, [f64; 2])]| -> f64 { of.iter().map(|(_, [weight, _])| weight).sum() };
    let has_second = !profile.beside.is_empty();
    let one = |(line, [weight, beside]): &(String, [f64; 2])| {
        if has_second { json!([line, weight, beside]) } else { json!([line, weight]) }
    };
    json!({
        "weight": profile.weight,
        "beside": profile.beside,
        "unit": profile.unit,
        "total": sum(&all),
        "stacks": all[..told].iter().map(one).collect::<Value>(),
        "cut": { "stacks": all.len() - told, "weight": sum(&all[told..]) },
    })
}

#[cfg(test)]
mod tests {
    use mitra_model::capture::Stack;

    use super::*;

    #[test]
    fn the_heaviest_stacks_are_told_and_the_others_counted() {
        let stack = |frames: &[u32], weight| Stack {
            comm: "a;\u{1b}b".into(),
            frames: frames.to_vec(),
            weight,
            ..Stack::default()
        };
        let profile = Profile {
            weight: "time off CPU".into(),
            unit: "s".into(),
            names: vec!["main".into(), "read".into()],
            stacks: vec![stack(&[0], 1.0), stack(&[0, 1], 2.0), stack(&[0, 1], 0.5), stack(&[1], 0.0)],
            ..Profile::default()
        };
        let told = stacks(&profile, 1000);
        assert_eq!(told["stacks"], json!([["a::b;main;read", 2.5], ["a::b;main", 1.0]]));
        assert_eq!((&told["total"], &told["cut"]), (&json!(3.5), &json!({ "stacks": 0, "weight": 0.0 })));
        let few = stacks(&profile, 15);
        assert_eq!(few["stacks"], json!([["a::b;main;read", 2.5]]));
        assert_eq!((&few["total"], &few["cut"]), (&json!(3.5), &json!({ "stacks": 1, "weight": 1.0 })));
    }

    #[test]
    fn an_id_is_one_part_of_a_path() {
        assert_eq!(
            asked("/api/v1/captures/20261121T163200.123Z-offcpu"),
            Some("20261121T163200.123Z-offcpu")
        );
        for path in ["/api/v1/captures", "/api/v1/captures/", "/api/v1/captures/a/b", "/api/v1/capture/a"] {
            assert_eq!(asked(path), None, "{path}");
        }
    }
}
