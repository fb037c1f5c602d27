//! Caches of the kernel's own objects: how large they are and how they grow.

use mitra_model::Span;
use mitra_model::report::Evidence;

use crate::view::View;

/// One slab cache.
pub struct Cache {
    /// Its name.
    pub name: String,
    /// Its size.
    pub bytes: f64,
    /// What it was before; `None` where that is not known.
    pub before_bytes: Option<f64>,
    /// Objects, and how many of them are in use.
    pub objects: Option<(f64, f64)>,
}

impl Cache {
    /// The numbers that say so.
    pub fn evidence(&self, view: &View<'_>) -> Vec<Evidence> {
        ["slab.bytes", "slab.num_objs", "slab.active_objs", "slab.objsize"]
            .iter()
            .filter_map(|metric| view.reading_evidence(metric, &self.name))
            .collect()
    }
}

/// The slab caches by size, the largest first.
pub fn caches(view: &View<'_>) -> Vec<Cache> {
    let mut names: Vec<&str> =
        view.each("slab.num_objs").chain(view.each("slab.bytes")).map(|(n, _)| n).collect();
    names.sort_unstable();
    names.dedup();
    let mut list: Vec<Cache> = names.into_iter().filter_map(|name| cache(view, name)).collect();
    list.sort_by(|a, b| b.bytes.total_cmp(&a.bytes));
    list
}

fn cache(view: &View<'_>, name: &str) -> Option<Cache> {
    let last = |metric: &str| view.set.get(metric, name).and_then(|s| s.last(view.window));
    let size = |objects: f64| Some(objects * last("slab.objsize")?);
    let objects = last("slab.num_objs");
    let bytes = last("slab.bytes").or_else(|| size(objects?))?;
    let first = |metric: &str| {
        view.set.get(metric, name).and_then(|s| s.first(Span { until: view.window.until, ..Span::ALL }))
    };
    let before_bytes = view
        .before("slab.bytes", name)
        .or_else(|| size(view.before("slab.num_objs", name)?))
        .or_else(|| first("slab.bytes").or_else(|| size(first("slab.num_objs")?)).filter(|b| *b != bytes));
    Some(Cache { name: name.to_owned(), bytes, before_bytes, objects: objects.zip(last("slab.active_objs")) })
}

/// Bytes of the kernel's caches that can be reclaimed, or of all of them where only that is known.
pub fn reclaimable(view: &View<'_>) -> Option<(f64, Evidence)> {
    ["mem.sreclaimable", "mem.slab"]
        .iter()
        .find_map(|m| Some((view.set.get(m, "")?.last(view.window)?, view.reading_evidence(m, "")?)))
}
