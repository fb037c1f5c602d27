//! Rows that grew by the same count: parts of the same object.
//!
//! A library that leaks an object per request leaks its structure, its name and its buffer with it.
//! Two counts that grew alike over hundreds of thousands of requests are no coincidence.

use serde::{Deserialize, Serialize};

use super::{DiffRow, RowKind};

/// One row of a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// The kind of the row.
    pub what: RowKind,
    /// Its id.
    pub key: String,
    /// Its name.
    pub name: String,
}

/// Rows that grew alike.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// The median growth in pieces.
    pub growth_count: i64,
    /// Bytes of the rows of its outermost layer: the chunks, or else the objects, or else the
    /// strings.
    pub growth_bytes: Option<i64>,
    /// Bytes per hour.
    pub bytes_per_hour: Option<f64>,
    /// The rows, the most bytes first.
    pub members: Vec<Member>,
}

/// Smaller growths are often equal by chance among some hundred counts.
const LEAST_COUNT: i64 = 100;
/// A snapshot reads its counts one after the other while the process works, so they differ by at
/// least this share.
const SAME: f64 = 0.005;
/// Limit of the share for long snapshots: counts that differ by more are not equal.
const SAME_MAX: f64 = 0.05;
/// Pieces that come and go between two reads of a small count.
const SAME_COUNT: u64 = 2;
const ROWS_MAX: usize = 2000;
const GROUPS_MAX: usize = 50;
const MEMBERS_MAX: usize = 20;

/// The groups of at least two rows. `reading` is the duration of the longer snapshot as a share of
/// the time between them: steady growth advances by this share during a snapshot.
pub(super) fn of(rows: &[DiffRow], reading: f64) -> Vec<Group> {
    let same = reading.clamp(SAME, SAME_MAX);
    let mut grown: Vec<(i64, &DiffRow)> = rows
        .iter()
        .filter(|row| row.what.is_piece() && !row.is_bound)
        .filter_map(|row| Some((row.growth_count?, row)))
        // A less certain estimate matches nothing.
        .filter(|(growth, row)| *growth >= LEAST_COUNT && row.error_count as f64 <= SAME * *growth as f64)
        .collect();
    grown.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| (a.1.what, &a.1.key).cmp(&(b.1.what, &b.1.key))));
    grown.truncate(ROWS_MAX);
    let mut groups: Vec<Group> = Vec::new();
    let mut rest = grown.as_slice();
    while let [(most, first), ..] = rest {
        let is_alike = |(growth, row): &&(i64, &DiffRow)| {
            let error = first.error_count.saturating_add(row.error_count);
            most.abs_diff(*growth) <= SAME_COUNT + error + (same * *most as f64) as u64
        };
        let alike = rest.iter().take_while(is_alike).count().max(1);
        let (members, others) = rest.split_at(alike);
        if alike > 1 {
            groups.push(group(members));
        }
        rest = others;
    }
    groups.sort_by_key(|group: &Group| std::cmp::Reverse(group.growth_bytes.unwrap_or(0)));
    groups.truncate(GROUPS_MAX);
    groups
}

fn group(rows: &[(i64, &DiffRow)]) -> Group {
    // Strings are in objects and objects in chunks: only one layer is added up.
    let layer = [RowKind::Chunk, RowKind::Class, RowKind::Type, RowKind::String, RowKind::Pattern]
        .into_iter()
        .find(|what| rows.iter().any(|(_, row)| row.what == *what));
    let of_layer = || rows.iter().filter(|(_, row)| Some(row.what) == layer).map(|(_, row)| row);
    let bytes: Vec<i64> = of_layer().filter_map(|row| row.growth_bytes).collect();
    let per_hour: Vec<f64> = of_layer().filter_map(|row| row.bytes_per_hour).collect();
    let mut members: Vec<&DiffRow> = rows.iter().map(|(_, row)| *row).collect();
    members.sort_by(|a, b| super::order(a, b));
    Group {
        growth_count: rows[rows.len() / 2].0,
        growth_bytes: (!bytes.is_empty()).then(|| bytes.iter().fold(0, |sum: i64, b| sum.saturating_add(*b))),
        bytes_per_hour: (!per_hour.is_empty()).then(|| per_hour.iter().sum()),
        members: members
            .into_iter()
            .take(MEMBERS_MAX)
            .map(|row| Member { what: row.what, key: row.key.clone(), name: row.name.clone() })
            .collect(),
    }
}
