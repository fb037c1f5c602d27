//! Rows in the order of answers: by host, file name and time. A place is the number of a row in that order.
//!
//! Sets of rows are sets of places, so that what was found needs no sorting and the rows of a host are one stretch.

use std::ops::Range;

use super::bits::Bits;
use super::table::{Names, Row, Table};

/// Rows by place.
#[derive(Debug, Default)]
pub(super) struct Order {
    rows: Vec<u32>,
    hosts: Vec<u32>,
    files: Vec<u32>,
    contents: Vec<u32>,
    /// The places of each host, by its ordinal.
    stretches: Vec<Range<u32>>,
}

impl Order {
    pub(super) fn new(table: &Table) -> Self {
        let (hosts, files) = (ranks(&table.hosts), ranks(&table.files));
        let rank =
            |ranks: &[u32], ordinal: u32| u64::from(ranks.get(ordinal as usize).copied().unwrap_or(u32::MAX));
        let mut keys: Vec<(u64, i64, u32)> = (0..)
            .zip(&table.rows)
            .map(|(at, row)| (rank(&hosts, row.host) << 32 | rank(&files, row.file), row.since_ns, at))
            .collect();
        keys.sort_unstable();
        let mut order = Self { stretches: vec![0..0; table.hosts.len()], ..Self::default() };
        for (place, (_, _, at)) in (0_u32..).zip(keys) {
            let Some(row) = table.rows.get(at as usize) else { continue };
            order.rows.push(at);
            order.hosts.push(row.host);
            order.files.push(row.file);
            order.contents.push(row.content);
            if let Some(stretch) = order.stretches.get_mut(row.host as usize) {
                let start = if stretch.start == stretch.end { place } else { stretch.start };
                *stretch = start..place + 1;
            }
        }
        order
    }

    /// How many places there are.
    pub(super) fn len(&self) -> u32 {
        // Rows are counted in 32 bits.
        self.rows.len() as u32
    }

    /// The number and the row of a place.
    pub(super) fn row<'t>(&self, table: &'t Table, place: u32) -> Option<(u32, &'t Row)> {
        let at = *self.rows.get(place as usize)?;
        Some((at, table.rows.get(at as usize)?))
    }

    /// The places of a host.
    pub(super) fn of_host(&self, host: u32) -> Range<u32> {
        self.stretches.get(host as usize).cloned().unwrap_or_default()
    }

    /// The places whose host passes a test.
    pub(super) fn by_host(&self, test: impl Fn(u32) -> bool) -> Bits {
        let mut bits = Bits::none(self.len());
        for (host, stretch) in (0..).zip(&self.stretches) {
            if stretch.start < stretch.end && test(host) {
                stretch.clone().for_each(|place| bits.set(place));
            }
        }
        bits
    }

    /// The places whose file name passes a test.
    pub(super) fn by_file(&self, test: impl Fn(u32) -> bool) -> Bits {
        by(&self.files, test)
    }

    /// The places whose content is in a set.
    pub(super) fn by_content(&self, contents: &Bits) -> Bits {
        by(&self.contents, |content| contents.has(content))
    }

    /// The contents, below `count`, of the places that are in a set.
    pub(super) fn contents_of(&self, places: &Bits, count: u32) -> Bits {
        let mut contents = Bits::none(count);
        for place in places.iter() {
            if let Some(content) = self.contents.get(place as usize) {
                contents.set(*content);
            }
        }
        contents
    }
}

fn by(column: &[u32], test: impl Fn(u32) -> bool) -> Bits {
    Bits::of(column.len() as u32, |place| column.get(place as usize).is_some_and(|value| test(*value)))
}

/// The rank of each name by its ordinal.
fn ranks(names: &Names) -> Vec<u32> {
    let mut order: Vec<(&str, u32)> = names.iter().zip(0..).collect();
    order.sort_unstable();
    let mut ranks = vec![0; order.len()];
    for ((_, ordinal), rank) in order.into_iter().zip(0..) {
        if let Some(of) = ranks.get_mut(ordinal as usize) {
            *of = rank;
        }
    }
    ranks
}
