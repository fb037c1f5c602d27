//! What an archive holds, for programs.

use anyhow::Result;
use mitra_archive::{Query, Reader, Status};
use mitra_model::time::SECOND;
use mitra_model::{Event, EventKind, Span};
use serde_json::{Value, json};

use crate::render::style::rfc3339;

/// How far back triggers and captures are listed.
const LATELY_NS: i64 = 86_400 * SECOND;

/// Suspicions and captures in the last day of the recording.
pub fn lately(reader: &Reader, status: &Status) -> Result<Vec<Event>> {
    let Some(span) = status.span else { return Ok(Vec::new()) };
    let since = span.until.saturating_sub(LATELY_NS).max(span.since);
    let set = reader.read(&Query::new(Span { since, until: i64::MAX }, Vec::new()))?;
    let is_meant =
        |event: &Event| matches!(event.kind, EventKind::Suspicion { .. } | EventKind::Capture { .. });
    Ok(set.events.into_iter().filter(is_meant).collect())
}

/// The document of `mitra status --json`.
pub fn document(reader: &Reader, status: &Status, lately: &[Event]) -> Value {
    let host = reader.host();
    json!({
        "archive": reader.dir().display().to_string(),
        "host": host.hostname,
        "kernel": host.kernel,
        "span": status.span.map(|s| json!({ "since": rfc3339(s.since), "until": rfc3339(s.until) })),
        "frames": status.frames,
        "disk_bytes": status.disk_bytes,
        "sealed_bytes": status.sealed_bytes,
        "log_bytes": status.log_bytes,
        "captures": status.captures,
        "capture_bytes": status.capture_bytes,
        "segments": status.segments,
        "bytes_per_second": status.bytes_per_second,
        "parts": status.parts.iter().map(|p| json!({ "name": p.name, "bytes": p.bytes })).collect::<Vec<_>>(),
        "gaps": status.gaps.iter().map(|g| json!({
            "since": rfc3339(g.span.since), "until": rfc3339(g.span.until), "why": g.why,
        })).collect::<Vec<_>>(),
        "skipped": status.skipped.iter().map(|s| json!({
            "file": s.file.display().to_string(), "offset": s.offset, "why": s.why,
        })).collect::<Vec<_>>(),
        "sheds": status.sheds,
        "recorder": status.recording.as_ref().map(|r| json!({ "pid": r.pid, "trouble": r.trouble })),
        "escalation": lately.iter().map(|event| json!({
            "time": rfc3339(event.real), "event": event.kind,
        })).collect::<Vec<_>>(),
    })
}
