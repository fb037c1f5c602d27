//! Stacks that probes captured during an incident, as flame graphs that need no script.

use std::collections::{HashMap, HashSet};
use std::fmt::Write;

use mitra_model::Span;
use mitra_model::capture::{FoldedCapture, KERNEL_MARK, StackTree};
use mitra_model::report::{Incident, Report};
use mitra_model::time::SECOND;

use super::chain::cut;
use super::sections::list;
use super::{escape, svg};
use crate::render::capture::{headline, percent, weight};
use crate::render::repeats;
use crate::render::style::Style;

/// Of the drawing, in its own units.
const WIDTH: f64 = 1000.0;
const ROW: f64 = 17.0;
/// The width of a letter of its font.
const LETTER: f64 = 6.7;
/// Room beside the letters of a box.
const PADDING: f64 = 3.0;
/// Fewer letters say nothing.
const LETTERS_MIN: usize = 3;
/// Narrower frames are merged.
const SHARE_MIN: f64 = 0.002;
/// Frames of a graph, the heaviest ones.
const FRAMES_MAX: usize = 1500;
/// Letters of a name in a title. A template of C++ has thousands.
const NAME_MAX: usize = 240;
/// Rows of the table of functions.
const FUNCTIONS: usize = 8;
/// Functions of the same kind differ by as many shades.
const SHADES: u32 = 4;
/// A capture is armed on a suspicion, so it may begin a little after the trouble.
const AFTER_NS: i64 = 60 * SECOND;

const WHICH: &str = "The first capture of each probe; mitra status lists all.";

/// The times in which captures belong to the incidents that are told.
pub fn spans(report: &Report) -> Vec<Span> {
    repeats::told(report).iter().map(|told| span(told.incident, report)).collect()
}

fn span(incident: &Incident, report: &Report) -> Span {
    let end = incident.end.unwrap_or(report.window.until).0;
    Span { since: incident.onset.0, until: end.saturating_add(AFTER_NS) }
}

/// The captures that were chosen for an incident.
pub fn section(
    report: &Report,
    incident: &Incident,
    captured: &[(usize, FoldedCapture)],
    style: &Style,
) -> String {
    let own = repeats::told(report).iter().position(|told| std::ptr::eq(told.incident, incident));
    let own = captured.iter().filter(|(number, _)| Some(*number) == own);
    let graphs: String = own.map(|(_, one)| graph(one, style)).collect();
    if graphs.is_empty() { graphs } else { format!("<p class=\"faint\">{WHICH}</p>\n{graphs}") }
}

fn graph(captured: &FoldedCapture, style: &Style) -> String {
    let (head, tree) = (&captured.head, &captured.tree);
    let Some(root) = tree.nodes.first().filter(|root| root.weight > 0.0) else { return String::new() };
    let drawing = Drawing::of(tree, FRAMES_MAX);
    let what = if tree.weight.is_empty() { "weight" } else { &tree.weight };
    let mut caption = format!(
        "From {}. The width of a box is its {what}, {} in all. Below a function is what it called; the pointer on a box shows \
         its whole name and its number.",
        style.moment(head.since_real),
        weight(root.weight, &tree.unit),
    );
    if drawing.merged > 0 {
        let plural = if drawing.merged == 1 { "frame is" } else { "frames are" };
        _ = write!(
            caption,
            " {} {plural} too narrow to be drawn, below {} or beyond the {FRAMES_MAX} widest; “other” stands for several that \
             are wider together.",
            drawing.merged,
            percent(SHARE_MIN),
        );
    }
    if tree.left_out > 0 {
        _ = write!(
            caption,
            " {} lightest stacks are left out, {} together.",
            tree.left_out,
            weight(tree.left_out_weight, &tree.unit)
        );
    }
    let label = format!("Flame graph of {}", head.kind);
    format!(
        "<h3>{}</h3>\n<figure class=\"flame\"><figcaption>{}</figcaption>\n<div class=\"scroll\" tabindex=\"0\">{}{}</svg></div></figure>\n{}{}",
        escape(&headline(head)),
        escape(&caption),
        svg::open(WIDTH, drawing.rows as f64 * ROW, &label),
        drawing.boxes,
        functions(tree),
        list("remarks", &head.notes),
    )
}

struct Drawing {
    boxes: String,
    rows: usize,
    /// Frames without a box of their own.
    merged: usize,
}

impl Drawing {
    fn of(tree: &StackTree, frames_max: usize) -> Self {
        let whole = tree.nodes.first().map_or(0.0, |root| root.weight);
        let is_drawn = widest(tree, whole * SHARE_MIN, frames_max);
        let drawn = is_drawn.iter().filter(|is_drawn| **is_drawn).count();
        let mut drawing = Drawing { boxes: String::new(), rows: 0, merged: tree.nodes.len() - drawn };
        // The node, its depth, and the weight on its left.
        let mut waiting = vec![(0_usize, 0_usize, 0.0)];
        while let Some((at, depth, left)) = waiting.pop() {
            let node = &tree.nodes[at];
            drawing.frame(tree, tree.name(at), class(tree, at, depth), (depth, left, node.weight));
            let (mut right, mut other, mut others) = (left, 0.0, 0);
            if at == 0 {
                (other, others) = (tree.left_out_weight, tree.left_out);
            }
            for child in &node.children {
                let weight = tree.nodes[*child].weight;
                if is_drawn[*child] {
                    waiting.push((*child, depth + 1, right));
                    right += weight;
                } else {
                    (other, others) = (other + weight, others + 1);
                }
            }
            if others > 0 && other >= whole * SHARE_MIN {
                let name = format!("other ({others})");
                drawing.frame(tree, &name, "other".to_owned(), (depth + 1, right, other));
            }
        }
        drawing
    }

    /// A box. Depth, the weight on its left, and its own say where.
    fn frame(&mut self, tree: &StackTree, name: &str, class: String, (depth, left, own): (usize, f64, f64)) {
        let whole = tree.nodes.first().map_or(f64::NAN, |root| root.weight);
        let (x, y) = (left / whole * WIDTH, depth as f64 * ROW);
        let width = own / whole * WIDTH;
        let title =
            format!("{}: {}, {} of all", cut(name, NAME_MAX), weight(own, &tree.unit), percent(own / whole));
        _ = write!(
            self.boxes,
            "<g class=\"{class}\"><title>{}</title><rect class=\"box\" x=\"{x:.1}\" y=\"{y:.0}\" width=\"{width:.1}\" height=\"{ROW}\"/>",
            escape(&title)
        );
        // A letter of another script may be as wide as two.
        let letter = if name.is_ascii() { LETTER } else { 2.0 * LETTER };
        let letters = ((width - 2.0 * PADDING) / letter).max(0.0) as usize;
        if letters >= LETTERS_MIN {
            let at = (x + PADDING, y + ROW - 5.0);
            self.boxes.push_str(svg::text("", "start", at, &cut(name, letters)).trim_end());
        }
        self.boxes.push_str("</g>\n");
        self.rows = self.rows.max(depth + 1);
    }
}

/// Which nodes are drawn: those of at least some weight, the heaviest ones if these are too many. Whatever is above one of
/// them is as heavy and comes first.
fn widest(tree: &StackTree, weight_min: f64, frames_max: usize) -> Vec<bool> {
    let mut is_drawn = vec![false; tree.nodes.len()];
    let mut wide = Vec::new();
    let mut waiting = vec![(0_usize, 0_usize)];
    while let Some((at, depth)) = waiting.pop() {
        let node = &tree.nodes[at];
        if node.weight >= weight_min {
            wide.push((at, depth, node.weight));
            waiting.extend(node.children.iter().map(|child| (*child, depth + 1)));
        }
    }
    wide.sort_by(|a, b| b.2.total_cmp(&a.2).then_with(|| (a.1, a.0).cmp(&(b.1, b.0))));
    for (at, ..) in wide.into_iter().take(frames_max) {
        is_drawn[at] = true;
    }
    is_drawn
}

/// Always the same shade for the same name.
fn class(tree: &StackTree, at: usize, depth: usize) -> String {
    let name = tree.name(at);
    let kind = match depth {
        0 => "all",
        1 => "thread",
        _ if name.ends_with(KERNEL_MARK) => "kernel",
        _ if name.starts_with('[') => "unknown",
        _ => "user",
    };
    let hash = name.bytes().fold(0u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(u32::from(byte)));
    format!("{kind} s{}", hash % SHADES)
}

/// The functions that weigh most by themselves, for whoever sees no colours and has no pointer.
fn functions(tree: &StackTree) -> String {
    let Some(root) = tree.nodes.first() else { return String::new() };
    // Threads are no functions.
    let threads: HashSet<usize> = root.children.iter().copied().collect();
    let mut own: HashMap<u32, f64> = HashMap::new();
    for (at, node) in tree.nodes.iter().enumerate().skip(1) {
        if node.own > 0.0 && !threads.contains(&at) {
            *own.entry(node.name).or_default() += node.own;
        }
    }
    let mut all: Vec<(&str, f64)> = own
        .into_iter()
        .map(|(name, own)| (tree.names.get(name as usize).map_or("?", String::as_str), own))
        .collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(b.0)));
    if all.is_empty() {
        return String::new();
    }
    let mut html = "<div class=\"scroll\" tabindex=\"0\"><table><tr><th>where the stacks end</th><th class=\"n\">itself</th>\
                    <th class=\"n\">of all</th></tr>\n"
        .to_owned();
    for (name, own) in all.into_iter().take(FUNCTIONS) {
        _ = writeln!(
            html,
            "<tr><td><code>{}</code></td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>",
            escape(&cut(name, NAME_MAX)),
            weight(own, &tree.unit),
            percent(own / root.weight)
        );
    }
    html.push_str("</table></div>\n");
    html
}

#[cfg(test)]
mod tests {
    use mitra_model::Captured;
    use mitra_model::capture::{Profile, Stack};

    use super::*;
    use crate::render::examples;
    use crate::render::html::{self, Drawn};

    fn captured(stacks: Vec<Stack>, names: &[&str]) -> Captured {
        Captured {
            kind: "offcpu".into(),
            host: "web-17".into(),
            seconds: 2.0,
            profile: Some(Profile {
                weight: "time off CPU".into(),
                unit: "s".into(),
                names: names.iter().map(|name| (*name).to_owned()).collect(),
                stacks,
                ..Profile::default()
            }),
            ..Captured::default()
        }
    }

    fn stack(comm: &str, frames: &[u32], weight: f64) -> Stack {
        Stack { comm: comm.into(), frames: frames.to_vec(), weight, ..Stack::default() }
    }

    fn drawn(captured: Captured) -> String {
        graph(&FoldedCapture::of(captured).unwrap(), &Style::plain(80))
    }

    #[test]
    fn each_frame_is_a_box_with_its_name_and_its_number() {
        let names = ["main", "do_read_[k]", "read_a_configuration"];
        let html = drawn(captured(vec![stack("web", &[0, 1], 1.5), stack("web", &[0, 2], 0.5)], &names));
        for part in [
            "<h3>offcpu on web-17: 0 events in 2 s; its time was over</h3>",
            "time off CPU, 2.0 s in all",
            "viewBox=\"0 0 1000 68\"",
            "<title>all: 2.0 s, 100.0 % of all</title><rect class=\"box\" x=\"0.0\" y=\"0\" width=\"1000.0\" height=\"17\"/>",
            "<title>web: 2.0 s, 100.0 % of all</title><rect class=\"box\" x=\"0.0\" y=\"17\"",
            "<title>do_read_[k]: 1.5 s, 75.0 % of all</title><rect class=\"box\" x=\"0.0\" y=\"51\" width=\"750.0\"",
            "<title>read_a_configuration: 500 ms, 25.0 % of all</title><rect class=\"box\" x=\"750.0\" y=\"51\" width=\"250.0\"",
            ">read_a_configuration</text></g>",
            "<td><code>do_read_[k]</code></td><td class=\"n\">1.5 s</td><td class=\"n\">75.0 %</td>",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        assert!(html.contains("<g class=\"kernel s") && html.contains("<g class=\"user s"), "{html}");
        assert!(!html.contains("other") && !html.contains("<script"), "{html}");
    }

    #[test]
    fn frames_that_are_too_narrow_are_merged_and_counted() {
        let names: Vec<String> = (0..100).map(|n| format!("small_{n}")).collect();
        let names: Vec<&str> = ["main"].into_iter().chain(names.iter().map(String::as_str)).collect();
        let small = (1..=100).map(|n| stack("web", &[0, n], 0.01));
        let all = std::iter::once(stack("web", &[0], 99.0)).chain(small).chain([stack("tiny", &[0], 0.001)]);
        let html = drawn(captured(all.collect(), &names));
        assert_eq!(html.matches("<rect").count(), 4, "the whole, its thread, main, and the others: {html}");
        assert!(html.contains("<title>other (100): 1.0 s, 1.00 % of all</title>"), "{html}");
        assert!(html.contains(" 102 frames are too narrow to be drawn, below 0.20 %"), "{html}");
    }

    /// As many stacks as a capture keeps, as deep as the kernel records them.
    #[test]
    fn a_graph_has_a_bound_whatever_was_captured() {
        let names: Vec<String> = (0..400).map(|n| format!("{n}{}", "<&\u{202e}x".repeat(2000))).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let deep =
            |n: u32| stack("web", &(0..127).map(|depth| (n * 7 + depth) % 400).collect::<Vec<_>>(), 1.0);
        let html = drawn(captured((0..400).map(deep).collect(), &names));
        let boxes = html.matches("<rect").count();
        assert!((FRAMES_MAX..=2 * FRAMES_MAX).contains(&boxes), "{boxes}");
        assert!(html.len() < 6 << 20, "{} bytes", html.len());
        assert!(html.contains(" frames are too narrow to be drawn"));
    }

    #[test]
    fn names_of_strangers_stay_text() {
        let evil = [
            "</title><script>alert(1)</script>",
            "\" onload=\"x",
            "</svg><b>",
            "\u{202e}\x1b[31mgnp",
            "名前の長い関数",
        ];
        let mut one =
            captured((0..5).map(|n| stack("</text><img src=x>", &[n], 1.0)).collect::<Vec<_>>(), &evil);
        one.notes = vec!["<i>note".into()];
        one.filter.insert("comm".into(), "<u>".into());
        let html = drawn(one);
        for part in ["<script", "<img", "<b>", "<i>", "<u>", "\u{202e}", "\x1b", "\" onload"] {
            assert!(!html.contains(part), "{part:?} is in {html}");
        }
        assert_eq!(html.matches("</svg>").count(), 1);
        assert!(
            html.contains("&lt;/text&gt;&lt;img src=x&gt;") && html.contains("名前の長い関数: 1.0 s"),
            "{html}"
        );
        for tag in ["g", "text", "title", "svg", "div", "figure", "table", "td", "ul", "li"] {
            let open = html.matches(&format!("<{tag}>")).count() + html.matches(&format!("<{tag} ")).count();
            assert_eq!(open, html.matches(&format!("</{tag}>")).count(), "{tag}");
        }
    }

    #[test]
    fn a_capture_stands_with_the_incident_that_it_was_chosen_for() {
        let report = examples::two();
        let title = |_: &str| -> Option<&'static str> { None };
        assert_eq!(spans(&report).len(), 2);
        let page = |captured: &[(usize, FoldedCapture)]| {
            html::report(&report, Drawn { captured, ..Drawn::default() }, &Style::plain(80), &title)
        };
        let article = |number: usize| {
            let captured = captured(vec![stack("web", &[0], 1.0)], &["main"]);
            let page = page(&[(number, FoldedCapture::of(captured).unwrap())]);
            let articles: Vec<&str> = page.split("<article").collect();
            articles.iter().position(|article| article.contains("<h3>offcpu on web-17"))
        };
        assert_eq!([0, 1, 2].map(article), [Some(1), Some(2), None]);
        assert!(!page(&[]).contains("captured meanwhile"));
    }
}
