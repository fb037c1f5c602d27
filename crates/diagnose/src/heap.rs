//! The heap of one process, from its mappings and from what its runtime knows of it.

use mitra_model::report::Evidence;
use mitra_model::{SeriesSet, Span};

use crate::view::View;

/// The largest anonymous mapping.
pub struct Region {
    /// Its row: addresses and name.
    pub row: String,
    /// Resident bytes.
    pub rss: f64,
    /// The numbers that say so.
    pub evidence: Vec<Evidence>,
}

/// What the runtime counts as its own.
pub struct Managed {
    /// Bytes.
    pub bytes: f64,
    /// What counted: guppy, jmap.
    pub tool: String,
    /// The numbers that say so.
    pub evidence: Vec<Evidence>,
}

/// A kind of object that has become more.
pub struct Grown {
    /// Its name.
    pub name: String,
    /// Objects before; `None` where there is nothing to compare with.
    pub before: Option<f64>,
    /// Objects now.
    pub now: f64,
    /// Whether it was counted by searching memory, not by the runtime.
    pub is_string: bool,
    /// The numbers that say so.
    pub evidence: Option<Evidence>,
}

/// What is read here of a process.
pub const NEEDS: &[&str] = &["mapping.rss", "census.bytes", "census.count", "census.tool"];

/// The row that a census has for its sum.
const ALL: &str = "(all)";

/// The name of a mapping without its addresses.
fn name_of<'a>(view: &'a View<'_>, row: &'a str) -> &'a str {
    let text = view.set.text("mapping.name", row).and_then(|t| t.last());
    text.unwrap_or_else(|| row.split_once(' ').map_or("", |(_, name)| name))
}

/// Whether a mapping can hold a heap: the break, or anonymous memory.
fn is_heap(name: &str) -> bool {
    name.is_empty() || name == "[heap]" || name.starts_with("[anon")
}

/// The mappings that can hold a heap, the largest first.
pub fn regions(view: &View<'_>) -> Vec<Region> {
    let mut list: Vec<Region> = view
        .each("mapping.rss")
        .filter(|(row, _)| is_heap(name_of(view, row)))
        .filter_map(|(row, series)| {
            let rss = series.last(Span::ALL)?;
            let evidence = ["mapping.rss", "mapping.private_dirty", "mapping.anonymous"]
                .iter()
                .filter_map(|m| view.reading_evidence(m, row))
                .collect();
            Some(Region { row: row.to_owned(), rss, evidence })
        })
        .collect();
    list.sort_by(|a, b| b.rss.total_cmp(&a.rss));
    list
}

/// Resident bytes of all mappings of a set that can hold a heap.
pub fn resident(set: &SeriesSet) -> f64 {
    let view = View::of_case(set, None);
    regions(&view).iter().map(|r| r.rss).sum()
}

fn tool(view: &View<'_>, row: &str) -> String {
    view.set.text("census.tool", row).and_then(|t| t.last()).unwrap_or_default().to_owned()
}

/// What the runtime knows of.
pub fn managed(view: &View<'_>) -> Option<Managed> {
    let bytes = view.reading("census.bytes", ALL)?;
    let evidence =
        ["census.bytes", "census.count"].iter().filter_map(|m| view.reading_evidence(m, ALL)).collect();
    Some(Managed { bytes, tool: tool(view, ALL), evidence })
}

/// The kinds of objects by how many more there are than before, or by how many there are.
pub fn census(view: &View<'_>) -> Vec<Grown> {
    let mut list: Vec<Grown> = view
        .each("census.count")
        .filter(|(row, _)| *row != ALL)
        .filter_map(|(row, series)| {
            let tool = tool(view, row);
            Some(Grown {
                name: row.to_owned(),
                before: view.good_reading("census.count", row),
                now: series.last(Span::ALL)?,
                is_string: tool == "strings" || tool.is_empty(),
                evidence: view.reading_evidence("census.count", row),
            })
        })
        .collect();
    list.sort_by(|a, b| (b.now - b.before.unwrap_or(0.0)).total_cmp(&(a.now - a.before.unwrap_or(0.0))));
    list
}
