//! Which rows of a table are shown, in which order.

use std::collections::{HashMap, HashSet};

use super::screen::{Screen, Sort};
use crate::moment::{Row, Table};

/// A line of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Place among the rows.
    pub row: usize,
    /// Of a tree: what stands before the name.
    pub branch: String,
}

/// Deeper branches are drawn as deep as this.
const DEPTH_MAX: usize = 12;

pub fn arrange(table: &Table, screen: &Screen) -> Vec<Line> {
    let needle = screen.filter.to_lowercase();
    let mut order: Vec<usize> = (0..table.rows.len()).collect();
    order.sort_by(|a, b| compare(&table.rows[*a], &table.rows[*b], screen));
    let is_found = |row: &Row| {
        let has = |text: &str| text.to_lowercase().contains(&needle);
        has(&row.name)
            || row.pid.is_some_and(|pid| pid.to_string() == needle)
            || row.cgroup.as_deref().is_some_and(has)
    };
    let has_tree = screen.is_tree && table.rows.iter().any(|row| row.parent.is_some());
    if !has_tree {
        let found = order.into_iter().filter(|i| needle.is_empty() || is_found(&table.rows[*i]));
        return found.map(|row| Line { row, branch: String::new() }).collect();
    }
    tree(table, &order, |row| needle.is_empty() || is_found(row))
}

fn compare(a: &Row, b: &Row, screen: &Screen) -> std::cmp::Ordering {
    let names = || a.pid.cmp(&b.pid).then_with(|| a.name.cmp(&b.name));
    let order = match screen.sort() {
        Sort::Column(column) => {
            let value = |row: &Row| row.cells.get(column).copied().filter(|value| value.is_finite());
            // What was not measured comes last in either order.
            match (value(a), value(b)) {
                (Some(a), Some(b)) if screen.is_reversed => a.total_cmp(&b),
                (Some(a), Some(b)) => b.total_cmp(&a),
                (a, b) => b.is_some().cmp(&a.is_some()),
            }
        }
        Sort::Name if screen.is_reversed => names().reverse(),
        Sort::Name => names(),
    };
    order.then_with(names)
}

/// Rows below their parents, as far as one below or the row itself is wanted.
fn tree(table: &Table, order: &[usize], is_wanted: impl Fn(&Row) -> bool) -> Vec<Line> {
    let by_key: HashMap<&str, usize> =
        table.rows.iter().enumerate().map(|(i, row)| (row.key.as_str(), i)).collect();
    let parent = |i: usize| table.rows[i].parent.as_deref().and_then(|key| by_key.get(key)).copied();
    let mut kept: HashSet<usize> = HashSet::new();
    for &i in order.iter().filter(|i| is_wanted(&table.rows[**i])) {
        let mut at = Some(i);
        // A circle ends where it was before.
        while let Some(i) = at.filter(|i| kept.insert(*i)) {
            at = parent(i);
        }
    }
    let mut below: HashMap<Option<usize>, Vec<usize>> = HashMap::new();
    for &i in order.iter().filter(|i| kept.contains(i)) {
        below.entry(parent(i)).or_default().push(i);
    }
    let mut lines = Vec::new();
    let mut seen = HashSet::new();
    // What is in a circle is below nobody.
    let roots = below.get(&None).into_iter().flatten().chain(order.iter().filter(|i| kept.contains(i)));
    for &root in roots {
        let mut open = vec![(root, 0, true, String::new())];
        while let Some((i, depth, is_last, before)) = open.pop() {
            if !seen.insert(i) {
                continue;
            }
            let mark = if depth == 0 {
                ""
            } else if is_last {
                "└─"
            } else {
                "├─"
            };
            lines.push(Line { row: i, branch: format!("{before}{mark}") });
            let children = below.get(&Some(i)).map_or(&[][..], Vec::as_slice);
            let space = match (depth, is_last) {
                (0, _) | (DEPTH_MAX.., _) => "",
                (_, true) => "  ",
                (_, false) => "│ ",
            };
            let before = format!("{before}{space}");
            for (n, child) in children.iter().enumerate().rev() {
                open.push((*child, depth + 1, n + 1 == children.len(), before.clone()));
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use mitra_model::Span;

    use super::*;
    use crate::moment::{At, Panel};

    fn row(pid: u32, parent: Option<u32>, name: &str, cpu: f64, rss: f64) -> Row {
        Row {
            key: format!("{pid}@1"),
            parent: parent.map(|pid| format!("{pid}@1")),
            name: name.to_owned(),
            pid: Some(pid),
            cells: vec![cpu, f64::NAN, rss],
            ..Row::default()
        }
    }

    fn table() -> Table {
        let rows = vec![
            row(1, None, "systemd", 0.0, 9.0),
            row(20, Some(1), "nginx", 0.3, 5.0),
            row(21, Some(20), "nginx", 0.9, 4.0),
            row(30, Some(1), "sshd", f64::NAN, 7.0),
            row(2, None, "kthreadd", 0.1, f64::NAN),
        ];
        Table { panel: Panel::Processes, rows, why_empty: None }
    }

    fn shown(screen: &Screen) -> Vec<String> {
        let table = table();
        arrange(&table, screen)
            .into_iter()
            .map(|line| format!("{}{}", line.branch, table.rows[line.row].pid.unwrap()))
            .collect()
    }

    fn screen() -> Screen {
        Screen::new(At::End, Span::ALL, false)
    }

    #[test]
    fn rows_are_sorted_and_what_was_not_measured_comes_last() {
        assert_eq!(shown(&screen()), ["21", "20", "2", "1", "30"]);
        assert_eq!(shown(&Screen { is_reversed: true, ..screen() }), ["1", "2", "20", "21", "30"]);
        let by_memory = Screen { sorts: [Sort::Column(2); Panel::ALL.len()], ..screen() };
        assert_eq!(shown(&by_memory), ["1", "30", "20", "21", "2"]);
        let by_id = Screen { sorts: [Sort::Name; Panel::ALL.len()], ..screen() };
        assert_eq!(shown(&by_id), ["1", "2", "20", "21", "30"]);
    }

    #[test]
    fn a_filter_finds_names_and_ids() {
        assert_eq!(shown(&Screen { filter: "NGI".into(), ..screen() }), ["21", "20"]);
        assert_eq!(shown(&Screen { filter: "2".into(), ..screen() }), ["2"]);
        assert!(shown(&Screen { filter: "none".into(), ..screen() }).is_empty());
    }

    #[test]
    fn a_tree_keeps_parents_of_what_is_found() {
        let tree = Screen { is_tree: true, ..screen() };
        assert_eq!(shown(&tree), ["2", "1", "├─20", "│ └─21", "└─30"]);
        assert_eq!(shown(&Screen { filter: "21".into(), ..tree }), ["1", "└─20", "  └─21"]);
    }

    #[test]
    fn a_circle_of_parents_is_shown_once() {
        let mut table = table();
        table.rows[0].parent = Some("21@1".into());
        let lines = arrange(&table, &Screen { is_tree: true, ..screen() });
        assert_eq!(lines.len(), table.rows.len());
    }
}
