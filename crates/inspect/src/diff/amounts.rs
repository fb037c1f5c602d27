//! The counts of a snapshot as rows of one form.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::{Amount, Missing, RowKind, sources};
use crate::composition::{Composition, MappingGroup, PARTS_MAX};
use crate::snapshot::Snapshot;

/// One row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Measured {
    /// Its name; `None` if that is its key.
    pub(crate) name: Option<String>,
    pub(crate) amount: Amount,
    /// Error of the count.
    pub(crate) error_count: u64,
}

/// The rows of a kind.
#[derive(Debug)]
pub(crate) struct List {
    pub(crate) what: RowKind,
    pub(crate) rows: BTreeMap<String, Measured>,
    /// What a missing row means.
    pub(crate) missing: Missing,
}

impl List {
    pub(crate) fn new(what: RowKind) -> Self {
        Self { what, rows: BTreeMap::new(), missing: Missing::Zero }
    }

    /// Adds a row. Rows of one key are added up.
    pub(crate) fn add(&mut self, key: impl Into<String>, count: Option<u64>, bytes: Option<u64>) {
        self.put(key, Measured { name: None, amount: Amount { count, bytes }, error_count: 0 });
    }

    /// Adds a row with a name or an error.
    pub(crate) fn put(&mut self, key: impl Into<String>, listed: Measured) {
        let sum = |a: Option<u64>, b: Option<u64>| match (a, b) {
            (Some(a), Some(b)) => Some(a.saturating_add(b)),
            (one, other) => one.or(other),
        };
        match self.rows.entry(key.into()) {
            Entry::Vacant(entry) => _ = entry.insert(listed),
            Entry::Occupied(entry) => {
                let there = entry.into_mut();
                there.amount.count = sum(there.amount.count, listed.amount.count);
                there.amount.bytes = sum(there.amount.bytes, listed.amount.bytes);
                there.error_count = there.error_count.saturating_add(listed.error_count);
            }
        }
    }

    /// Marks the list as truncated: missing items have fewer bytes than its smallest row.
    pub(crate) fn cut_off(&mut self) {
        let bytes = self.rows.values().filter_map(|row| row.amount.bytes).min();
        self.missing = Missing::AtMost(Amount { count: None, bytes });
    }
}

/// All rows of a snapshot.
pub(crate) fn of(snapshot: &Snapshot) -> Vec<List> {
    let mut lists = Vec::new();
    if let Some(composition) = &snapshot.composition {
        lists.extend([totals(composition), memory(composition)]);
    }
    lists.extend(snapshot.c_heap.iter().flat_map(sources::c_heap));
    lists.extend(snapshot.strings.iter().flat_map(sources::strings));
    // A partial walk proves nothing about the whole.
    lists.extend(snapshot.python.iter().filter(|heap| !heap.is_stopped).map(sources::python));
    lists.extend(snapshot.pymalloc.iter().map(sources::pymalloc));
    lists.extend(snapshot.runtime.iter().flat_map(sources::runtime));
    lists
}

fn totals(composition: &Composition) -> List {
    let mut list = List::new(RowKind::Total);
    let totals = &composition.totals;
    let named = [
        ("resident", totals.rss_bytes),
        ("resident, anonymous", totals.rss_anon_bytes),
        ("resident, of files", totals.rss_file_bytes),
        ("resident, shared memory", totals.rss_shmem_bytes),
        ("in swap", totals.swap_bytes),
        ("page tables", totals.page_tables_bytes),
    ];
    for (name, bytes) in named {
        if bytes.is_some() {
            list.add(name, None, bytes);
        }
    }
    if totals.threads.is_some() {
        list.add("threads", totals.threads, None);
    }
    list
}

fn memory(composition: &Composition) -> List {
    let mut list = List::new(RowKind::Memory);
    for part in &composition.parts {
        let sizes = &part.sizes;
        let known = sizes.resident_bytes.filter(|_| part.uncounted == 0);
        let held = known.map(|bytes| bytes.saturating_add(sizes.swapped_bytes.unwrap_or(0)));
        list.add(part_name(part), Some(part.mappings), held);
    }
    if composition.parts.len() >= PARTS_MAX {
        list.cut_off();
    }
    list
}

/// `heap`, `code /usr/lib/libc.so.6`.
pub(crate) fn part_name(part: &MappingGroup) -> String {
    match &part.name {
        Some(name) => format!("{} {name}", part.kind),
        None => part.kind.to_string(),
    }
}
