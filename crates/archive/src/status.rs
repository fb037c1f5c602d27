//! What an archive holds and what it takes.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use mitra_model::Span;
use mitra_model::series::Gap;

use crate::block::{Kind, NO_ENTITY};
use crate::captures::captures;
use crate::dir::{self, Role};
use crate::error::{Error, Skipped};
use crate::lock;
use crate::schema::{Schema, group};
use crate::segment::file::{SchemaCache, Segment};

pub use crate::lock::Recording;

/// How much one kind of data takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// `system/vm`, `task/time`, `texts`, …: entity and group of columns, or what else it is.
    pub name: String,
    /// Bytes on disk in sealed segments.
    pub bytes: u64,
}

/// The state of an archive.
#[derive(Debug, Clone, Default)]
pub struct Status {
    /// From the first frame to just after the last.
    pub span: Option<Span>,
    /// How many frames there are.
    pub frames: u64,
    /// Stretches without frames.
    pub gaps: Vec<Gap>,
    /// Bytes of all files.
    pub disk_bytes: u64,
    /// Bytes of sealed segments.
    pub sealed_bytes: u64,
    /// Bytes of logs: of the open segment, and of those that could not be sealed yet.
    pub log_bytes: u64,
    /// Bytes of captures.
    pub capture_bytes: u64,
    /// Captures.
    pub captures: u32,
    /// Sealed segments.
    pub segments: u32,
    /// Bytes on disk for each second recorded, over the sealed segments; `None` while there is none.
    pub bytes_per_second: Option<f64>,
    /// What takes the space, largest first.
    pub parts: Vec<Part>,
    /// What could not be read.
    pub skipped: Vec<Skipped>,
    /// The recorder that writes, if there is one, and what it says.
    pub recording: Option<Recording>,
    /// How often the recorder dropped detail to stay inside its budget.
    pub sheds: u64,
}

pub(crate) fn of(dir: &Path, segments: &[Arc<Segment>], schemas: &SchemaCache) -> Result<Status, Error> {
    let mut status = Status { recording: lock::recording(dir), ..Status::default() };
    for (_, role, path) in dir::list(dir)? {
        let bytes = fs::metadata(&path).map_or(0, |meta| meta.len());
        match role {
            Role::Sealed => {
                status.sealed_bytes += bytes;
                status.segments += 1;
            }
            Role::Log | Role::Unfinished => status.log_bytes += bytes,
        }
        status.disk_bytes += bytes;
    }
    for capture in captures(dir)? {
        status.captures += 1;
        status.capture_bytes += capture.bytes;
        status.disk_bytes += capture.bytes;
    }
    let mut parts: BTreeMap<String, u64> = BTreeMap::new();
    let mut seconds = 0.0;
    let mut bytes = 0;
    for segment in segments {
        let index = &segment.index;
        status.frames += u64::from(index.frames);
        status.sheds += index.meta.sheds;
        if segment.is_log() {
            continue;
        }
        // The last frame stands for one interval as well.
        seconds += (index.last.boot_us - index.first.boot_us + index.last.interval_us) as f64 * 1e-6;
        bytes += segment.bytes;
        let Ok(mut opened) = segment.reading() else { continue };
        let schema = opened.schema(schemas);
        let blocks: u64 = index.blocks.iter().map(|block| block.bytes).sum();
        *parts.entry("index".to_owned()).or_default() += segment.bytes.saturating_sub(blocks);
        for block in &index.blocks {
            let name = part(block.kind, block.entity, block.columns.first().copied(), schema.as_deref());
            *parts.entry(name).or_default() += block.bytes;
        }
    }
    status.bytes_per_second = (seconds > 0.0).then(|| bytes as f64 / seconds);
    status.parts = parts.into_iter().map(|(name, bytes)| Part { name, bytes }).collect();
    status.parts.sort_by_key(|part| std::cmp::Reverse(part.bytes));
    Ok(status)
}

fn part(kind: Kind, number: u8, column: Option<u32>, schema: Option<&Schema>) -> String {
    if number == NO_ENTITY {
        return kind.name().to_owned();
    }
    let stored = schema.and_then(|schema| schema.entities.get(usize::from(number)));
    let Some(entity) = stored.and_then(|stored| stored.entity) else { return "unknown".to_owned() };
    let column = column.and_then(|column| stored?.columns.get(column as usize));
    match (kind, column) {
        (Kind::Columns, Some(column)) => format!("{entity}/{}", group(entity, &column.name)),
        _ => format!("{entity}/{}", kind.name()),
    }
}
