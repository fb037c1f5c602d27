//! Reads services from a recording.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::Result;
use mitra_archive::{Query, Reader};
use mitra_model::time::SECOND;
use mitra_model::{Entity, Metric, Span, columns};

use super::{Processes, Services, Tally, local, metrics, past, tally};
use crate::recording::chunks;

/// Read at a time: the length of a segment.
const CHUNK_NS: i64 = 600 * SECOND;

/// What is read of services: all that there is.
fn wanted() -> Vec<&'static Metric> {
    [Entity::Service, Entity::Dependency]
        .into_iter()
        .flat_map(columns)
        .copied()
        .chain(metrics(tally::METRICS))
        .collect()
}

/// What services did in a span, and who calls whom.
pub fn read(reader: &Reader, span: Span) -> Result<Services> {
    let mut tally = Tally::default();
    for part in chunks(span, CHUNK_NS) {
        tally.add(&reader.read(&Query::new(part, wanted()))?, part);
    }
    let processes = Processes::read(reader, span, tally.pids())?;
    Ok(tally.finish(&processes, |services| {
        let places =
            services.iter().filter_map(|service| Some((service.address.netns.as_deref()?, service.pid?)));
        local::addresses(&reader.host().hostname, places)
    }))
}

/// Says since when these services are slower than in the hour before the end of a span.
pub fn add_past(services: &mut Services, chosen: &[usize], reader: &Reader, span: Span) -> Result<()> {
    let keys: BTreeSet<String> = chosen.iter().map(|i| services.services[*i].key.clone()).collect();
    if keys.is_empty() {
        return Ok(());
    }
    let since = span.until.saturating_sub(past::BACK_NS).min(span.since);
    let keys = Arc::new(keys);
    let mut history = past::History::default();
    for part in chunks(Span { since, until: span.until }, CHUNK_NS) {
        let keys = Arc::clone(&keys);
        let is_chosen = move |entity: Entity, row: &str| entity == Entity::Service && keys.contains(row);
        let query = Query { rows: Some(Arc::new(is_chosen)), ..Query::new(part, metrics(past::METRICS)) };
        history.add(&reader.read(&query)?, part);
    }
    for i in chosen {
        let service = &mut services.services[*i];
        service.slower = history.slower(&service.key);
    }
    Ok(())
}
