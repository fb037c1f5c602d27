//! One metric of the network in all namespaces: the machine's own, and the rows of the others.

use mitra_model::{Series, TextSeries, column, lookup};

use crate::view::View;

/// The row of `netns.*` that has in other namespaces what a metric of the machine has in the recorder's own:
/// `netns.tcpext_ListenOverflows` of `tcpext.ListenOverflows`. `None` for what is not followed there.
#[must_use]
pub fn other(system_metric: &str) -> Option<&'static str> {
    let name = format!("netns.{}", system_metric.replace('.', "_"));
    column(&name).and(lookup(&name)).map(|metric| metric.name)
}

/// The series of a metric of the machine, with no name, and those of the other network namespaces with theirs.
#[must_use]
pub fn each_net<'a>(view: &View<'a>, system_metric: &str) -> Vec<(Option<&'a str>, &'a Series)> {
    let mut all: Vec<_> = view.set.system(system_metric).map(|series| (None, series)).into_iter().collect();
    if let Some(metric) = other(system_metric) {
        all.extend(view.each(metric).map(|(name, series)| (Some(name), series)));
    }
    all
}

/// A process in a namespace: its name and id, as far as they were recorded.
#[must_use]
pub fn process_in<'a>(view: &View<'a>, netns: &str) -> Option<(&'a str, u32)> {
    let pid = view.set.get("netns.pid", netns)?.last(view.window)?;
    let comm = view.set.text("netns.comm", netns).and_then(|text| last_text(text))?;
    (pid >= 1.0).then_some((comm, pid as u32))
}

fn last_text(text: &TextSeries) -> Option<&str> {
    text.changes.iter().rev().find_map(|(_, text)| text.as_deref())
}

/// What follows the last `@` of a row's name: the namespace that a device, a listening socket or a name server is in;
/// `None` for the recorder's own.
#[must_use]
pub fn netns_of(row: &str) -> Option<&str> {
    row.rsplit_once('@').map(|(_, netns)| netns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use mitra_model::{Axis, SeriesSet, Span};

    #[test]
    fn own_and_others() {
        let axis =
            Arc::new(Axis { t: vec![1_000_000_000, 2_000_000_000], dt: vec![1.0, 1.0], ..Axis::default() });
        let series = |value: f64| Series { axis: Arc::clone(&axis), start: 0, values: vec![value; 2] };
        let mut set = SeriesSet::default();
        set.insert(lookup("tcpext.ListenOverflows").unwrap(), "".into(), series(1.0));
        set.insert(lookup("netns.tcpext_ListenOverflows").unwrap(), "blue".into(), series(2.0));
        set.insert(lookup("netns.pid").unwrap(), "blue".into(), series(7.0));
        let view = View::new(&set, Span::ALL, &set, None);
        let all = each_net(&view, "tcpext.ListenOverflows");
        let found: Vec<_> = all.iter().map(|(name, series)| (*name, series.values[0])).collect();
        assert_eq!(found, [(None, 1.0), (Some("blue"), 2.0)]);
        assert!(each_net(&view, "mem.total").is_empty());
        assert_eq!(other("sys.ctxt"), None);
        assert_eq!(process_in(&view, "blue"), None, "no name of it is known");
        assert_eq!(netns_of("eth0@blue"), Some("blue"));
        assert_eq!(netns_of("eth0"), None);
    }
}
