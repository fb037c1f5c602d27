//! What an archive holds, for programs.

use std::path::Path;

use anyhow::Result;
use mitra_archive::{Query, Reader, Status};
use mitra_model::series::seconds_between;
use mitra_model::time::SECOND;
use mitra_model::{Event, EventKind, Span};
use mitra_send::Position;
use serde_json::{Value, json};

use crate::render::style::rfc3339;

/// The folder of the usual archive in which `mitra send` keeps its positions.
pub const SEND_FOLDER: &str = "send";
/// How far back triggers and captures are listed.
const LATELY_NS: i64 = 86_400 * SECOND;

/// How far `mitra send` has come with an output.
pub struct Output {
    pub name: String,
    pub position: Position,
    /// How much of the recording waits; `None` before the first samples.
    pub behind_s: Option<f64>,
}

/// The outputs of this recording, which is their queue. Those of other archives have their positions in the same folder.
///
/// Who may not read the folder sees none.
pub fn outputs(reader: &Reader, status: &Status) -> Vec<Output> {
    let dir = reader.dir();
    let all = Position::all(&dir.join(SEND_FOLDER)).into_iter();
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let is_own = |archive: &str| archive.is_empty() || real(Path::new(archive)) == real(dir);
    let own = all.filter(|(_, position)| is_own(&position.archive));
    own.map(|(name, position)| {
        let at = position.at(|boot| reader.offset_of(boot));
        let behind_s = at.zip(status.span).map(|(at, span)| seconds_between(at, span.until).max(0.0));
        Output { name, position, behind_s }
    })
    .collect()
}

/// Suspicions and captures in the last day of the recording.
pub fn lately(reader: &Reader, status: &Status) -> Result<Vec<Event>> {
    let Some(span) = status.span else { return Ok(Vec::new()) };
    let since = span.until.saturating_sub(LATELY_NS).max(span.since);
    let set = reader.read(&Query::new(Span { since, until: i64::MAX }, Vec::new()))?;
    let is_meant =
        |event: &Event| matches!(event.kind, EventKind::Suspicion { .. } | EventKind::Capture { .. });
    Ok(set.events.into_iter().filter(is_meant).collect())
}

/// The document of `mitra status --json`. `outputs` is only there where there are any.
pub fn document(reader: &Reader, status: &Status, lately: &[Event], outputs: &[Output]) -> Value {
    let host = reader.host();
    let mut document = json!({
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
    });
    if !outputs.is_empty() {
        document["outputs"] = outputs.iter().map(of_output).collect();
    }
    document
}

fn of_output(Output { name, position, behind_s }: &Output) -> Value {
    let counts = if position.is_of_records { "records" } else { "samples" };
    json!({
        "name": name, "counts": counts, "sent": position.tally.sent, "refused": position.tally.refused,
        "dropped_seconds": position.tally.dropped_s, "failed": position.tally.failed,
        "behind_seconds": behind_s, "last_error": position.last_error,
    })
}
