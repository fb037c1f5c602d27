//! Of ten thousand tasks nearly all sleep all the time: reading only those that did something.

use std::collections::HashSet;
use std::sync::Arc;

use mitra_model::{Entity, Metric, SeriesSet, Span, lookup};

use crate::error::Error;
use crate::reader::{Query, Reader, RowFilter};

/// By what a task is known to have done something: names of metrics.
#[derive(Debug, Clone, Copy)]
pub struct ActiveTasks<'a> {
    /// Counters that move and texts that are there only then.
    pub signs: &'a [&'a str],
    /// The id of the task that leads its process, which has the name and the memory of all its threads.
    pub leader: &'a str,
}

impl Reader {
    /// Reads metrics; of tasks only those that were awake in the span, and their leaders.
    pub fn read_active_tasks(
        &self,
        span: Span,
        metrics: Vec<&'static Metric>,
        awake: ActiveTasks<'_>,
    ) -> Result<SeriesSet, Error> {
        let rows = Arc::new(self.awake(span, awake.signs)?);
        let leaders = self.leaders(span, awake.leader, &rows)?;
        let wanted: RowFilter = Arc::new(move |entity, row| {
            entity != Entity::Task
                || rows.contains(row)
                || thread_id(row).is_some_and(|id| leaders.contains(&id))
        });
        self.read(&Query { rows: Some(wanted), moving_only: true, ..Query::new(span, metrics) })
    }

    fn awake(&self, span: Span, signs: &[&str]) -> Result<HashSet<Arc<str>>, Error> {
        let metrics = signs.iter().filter_map(|name| lookup(name)).collect();
        let seen = self.read(&Query { moving_only: true, ..Query::new(span, metrics) })?;
        let mut awake: HashSet<Arc<str>> = HashSet::new();
        for (_, rows) in seen.metrics() {
            awake.extend(rows.keys().cloned());
        }
        for name in signs {
            let said = seen.each_text(name).filter(|(_, text)| text.last().is_some());
            awake.extend(said.map(|(row, _)| Arc::from(row)));
        }
        Ok(awake)
    }

    fn leaders(
        &self,
        span: Span,
        leader: &str,
        threads: &Arc<HashSet<Arc<str>>>,
    ) -> Result<HashSet<u32>, Error> {
        let threads = Arc::clone(threads);
        let rows: RowFilter = Arc::new(move |entity, row| entity != Entity::Task || threads.contains(row));
        let set =
            self.read(&Query { rows: Some(rows), ..Query::new(span, lookup(leader).into_iter().collect()) })?;
        Ok(set.each(leader).filter_map(|(_, s)| s.last(Span::ALL)).map(|id| id as u32).collect())
    }
}

/// The id of the thread that a row is of.
fn thread_id(row: &str) -> Option<u32> {
    row.split_once('@')?.0.parse().ok()
}
