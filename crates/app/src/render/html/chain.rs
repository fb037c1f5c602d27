//! The causal chain of an incident as SVG: boxes from the root cause down to the symptoms, each with its number. It is drawn
//! twice, for wide windows and for narrow ones; the style sheet shows one of them.

use mitra_diagnose::{Role, conditions};
use mitra_model::report::{Incident, Link};

use super::{escape, svg};
use crate::render::proof;
use crate::render::style::{Style, UNKNOWN};
use crate::render::text::Title;

/// A drawing for windows of some width, in the units of the SVG.
struct Layout {
    class: &'static str,
    width: usize,
    /// Boxes side by side.
    across: usize,
    box_width: usize,
    /// Of a box that has its row for itself.
    alone_width: usize,
    /// Left of the boxes, for arrows that go past some.
    gutter: usize,
}

const WIDE: Layout =
    Layout { class: "for-wide", width: 900, across: 3, box_width: 284, alone_width: 560, gutter: 0 };
const NARROW: Layout =
    Layout { class: "for-narrow", width: 360, across: 1, box_width: 322, alone_width: 322, gutter: 36 };
const PADDING: usize = 10;
const LINE: usize = 16;
/// Between rows, for the arrows.
const GAP: usize = 26;
/// Of the widest usual system font (DejaVu Sans) in the size of the drawing, on average.
const LETTER: usize = 7;
/// Lines of what happened.
const LINES_MAX: usize = 5;
const HEAD: usize = 7;

struct Node<'a> {
    id: &'a str,
    /// The ids of those that brought it about.
    causes: &'a [String],
    /// Empty if there is nothing to say.
    when: String,
    /// Whether its time cannot be compared with the others.
    is_apart: bool,
    /// What happened, with its number.
    text: String,
    lines: Vec<String>,
    depth: usize,
    x: usize,
    y: usize,
    width: usize,
    height: usize,
}

/// Empty if there is nothing to connect.
pub fn chain(incident: &Incident, style: &Style, title: Title<'_>) -> String {
    let mut nodes = nodes(incident, style, title);
    if nodes.len() < 2 {
        return String::new();
    }
    let unsorted = arrows(&nodes);
    layer(&mut nodes, &unsorted);
    nodes.sort_by_key(|n| n.depth);
    let arrows = arrows(&nodes);
    let drawings = [WIDE, NARROW].map(|layout| drawing(&mut nodes, &arrows, incident, &layout));
    let apart = if nodes.iter().any(|n| n.is_apart) {
        " Dashed: its time cannot be compared with the others."
    } else {
        ""
    };
    format!(
        "<figure class=\"chain\"><figcaption>Red: the root cause; amber: what was noticed; times count from the onset of \
         the root cause.{apart}</figcaption>\n{}</figure>\n",
        drawings.concat()
    )
}

fn drawing(
    nodes: &mut [Node<'_>],
    arrows: &[(usize, usize)],
    incident: &Incident,
    layout: &Layout,
) -> String {
    let height = place(nodes, arrows, layout);
    let names: Vec<&str> = nodes.iter().map(|n| n.id).collect();
    let label =
        escape(&format!("The chain from the root cause to the symptoms: {}", names.join(", "))).into_owned();
    let (class, width) = (layout.class, layout.width);
    let mut svg = format!(
        "<svg class=\"{class}\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{label}\">\n"
    );
    for (from, to) in arrows {
        if let (Some(a), Some(b)) = (nodes.get(*from), nodes.get(*to)) {
            svg.push_str(&if layout.across == 1 && *to > from + 1 {
                past(a, b, to - from)
            } else {
                down(a, b)
            });
        }
    }
    for node in nodes.iter() {
        svg.push_str(&boxed(node, class_of(node.id, incident)));
    }
    svg.push_str("</svg>\n");
    svg
}

/// The links in their order, then the symptoms that are no links.
fn nodes<'a>(incident: &'a Incident, style: &Style, title: Title<'_>) -> Vec<Node<'a>> {
    let node = |id: &'a str, causes: &'a [String], (when, is_apart): (String, bool), text: String| Node {
        id,
        causes,
        when,
        is_apart,
        text,
        lines: Vec::new(),
        depth: 0,
        x: 0,
        y: 0,
        width: 0,
        height: 0,
    };
    let mut nodes: Vec<Node<'a>> = Vec::new();
    for (link, clock) in incident.chain.iter().zip(proof::clocks(&incident.chain, style)) {
        if !nodes.iter().any(|n| n.id == link.condition) {
            // The statement of the root stands above the drawing.
            let text = proof::brief(link, &incident.root_cause.statement, title);
            nodes.push(node(&link.condition, &link.causes, when(link, clock), text));
        }
    }
    for id in &incident.symptoms {
        if !nodes.iter().any(|n| n.id == id) {
            nodes.push(node(id, &[], Default::default(), title(id).unwrap_or_default().to_owned()));
        }
    }
    nodes
}

/// The onset after the root's one, and whether it cannot be compared with it.
fn when(link: &Link, clock: String) -> (String, bool) {
    if clock == UNKNOWN {
        (clock, true)
    } else if !link.lag_s.is_finite() {
        (format!("{clock}, another clock"), true)
    } else if link.lag_s.abs() < 0.5 {
        (clock, false)
    } else {
        (format!("{:+.0} s", link.lag_s), false)
    }
}

/// From each node to those that it brought about.
fn arrows(nodes: &[Node<'_>]) -> Vec<(usize, usize)> {
    let at = |id: &str| nodes.iter().position(|node| node.id == id);
    let to = |(to, node): (usize, &Node<'_>)| -> Vec<(usize, usize)> {
        node.causes.iter().filter_map(|cause| Some((at(cause)?, to))).collect()
    };
    nodes.iter().enumerate().flat_map(to).collect()
}

/// Depth: one more than the deepest cause. There are no cycles.
fn layer(nodes: &mut [Node<'_>], arrows: &[(usize, usize)]) {
    for _ in 0..nodes.len() {
        let mut moved = false;
        for (from, to) in arrows {
            let wanted = nodes.get(*from).map_or(0, |n| n.depth + 1);
            if let Some(node) = nodes.get_mut(*to).filter(|n| n.depth < wanted) {
                node.depth = wanted;
                moved = true;
            }
        }
        if !moved {
            break;
        }
    }
    // Unconnected nodes other than the root stand beside the last links.
    let last = nodes.iter().map(|n| n.depth).max().unwrap_or(0).max(1);
    for (i, node) in nodes.iter_mut().enumerate() {
        let linked = arrows.iter().any(|(from, to)| *from == i || *to == i);
        if i > 0 && !linked {
            node.depth = last;
        }
    }
}

/// Sets the positions and returns the total height. Boxes of a row stand in the order of their causes.
fn place(nodes: &mut [Node<'_>], arrows: &[(usize, usize)], layout: &Layout) -> usize {
    let deepest = nodes.iter().map(|n| n.depth).max().unwrap_or(0);
    let mut y = 2;
    for depth in 0..=deepest {
        let mut row: Vec<usize> =
            (0..nodes.len()).filter(|i| nodes.get(*i).is_some_and(|n| n.depth == depth)).collect();
        row.sort_by_key(|to| {
            let causes = arrows.iter().filter(|(_, effect)| effect == to);
            let places: Vec<usize> = causes.filter_map(|(from, _)| nodes.get(*from)).map(|n| n.x).collect();
            places.iter().sum::<usize>() / places.len().max(1)
        });
        for part in row.chunks(layout.across) {
            let width = if part.len() == 1 { layout.alone_width } else { layout.box_width };
            let room = layout.width - layout.gutter;
            let gap = room.saturating_sub(part.len() * width) / (part.len() + 1);
            let mut tallest = 0;
            for (i, at) in part.iter().enumerate() {
                if let Some(node) = nodes.get_mut(*at) {
                    node.x = layout.gutter + gap + i * (width + gap);
                    node.y = y;
                    node.width = width;
                    node.lines = lines(&node.text, letters(width));
                    let last = usize::from(!node.when.is_empty() && !has_time_beside(node));
                    node.height = 2 * PADDING + LINE * (1 + node.lines.len() + last) - 4;
                    tallest = tallest.max(node.height);
                }
            }
            y += tallest + GAP;
        }
    }
    y + 2 - GAP
}

/// How many stand in a line of a box.
fn letters(width: usize) -> usize {
    (width - 2 * PADDING) / LETTER
}

/// Whether the time fits beside the id, whose letters are bold and take an eighth more.
fn has_time_beside(node: &Node<'_>) -> bool {
    let id = node.id.len() + node.id.len() / 8;
    id + node.when.chars().count() + 2 <= letters(node.width)
}

/// What happened, in the lines of a box.
fn lines(text: &str, letters: usize) -> Vec<String> {
    let mut lines = crate::render::style::wrap(text, letters);
    let is_cut = lines.len() > LINES_MAX;
    lines.truncate(LINES_MAX);
    let last = lines.len();
    let cut = |(i, line): (usize, String)| match is_cut && i + 1 == last {
        true => format!("{} …", cut(&line, letters - 2)),
        false => cut(&line, letters),
    };
    lines.into_iter().enumerate().map(cut).collect()
}

/// From the lower edge to the upper edge of a box that stands deeper.
fn down(from: &Node<'_>, to: &Node<'_>) -> String {
    let (x1, y1) = (from.x + from.width / 2, from.y + from.height);
    let (x2, y2) = (to.x + to.width / 2, to.y);
    let bend = y2.saturating_sub(y1) / 2;
    format!(
        "<path class=\"arrow\" d=\"M{x1} {y1}C{x1} {} {x2} {} {x2} {}\"/><path class=\"head\" d=\"M{x2} {y2}l-4 -{HEAD}h8z\"/>\n",
        y1 + bend,
        y2.saturating_sub(bend),
        y2.saturating_sub(HEAD),
    )
}

/// Through the gutter, past the boxes between.
fn past(from: &Node<'_>, to: &Node<'_>, steps: usize) -> String {
    let (x, y1, y2) = (from.x, from.y + from.height / 2, to.y + to.height / 2);
    // A curve goes three quarters of the way to its control points.
    let reach = (12 + 6 * steps).min(NARROW.gutter * 4 / 3 - 2);
    let out = x as isize - reach as isize;
    format!(
        "<path class=\"arrow\" d=\"M{x} {y1}C{out} {y1} {out} {y2} {} {y2}\"/><path class=\"head\" d=\"M{x} {y2}l-{HEAD} -4v8z\"/>\n",
        x.saturating_sub(HEAD),
    )
}

fn class_of(id: &str, incident: &Incident) -> &'static str {
    let is_symptom = || conditions().iter().any(|c| c.id == id && c.role == Role::Symptom);
    if id == incident.root_cause.condition || incident.other_roots.iter().any(|r| r.condition == id) {
        " root"
    } else if incident.symptoms.iter().any(|s| s == id) || is_symptom() {
        " symptom"
    } else {
        ""
    }
}

fn boxed(node: &Node<'_>, class: &str) -> String {
    let (x, y, width, height) = (node.x, node.y, node.width, node.height);
    let at = |line: usize| ((x + PADDING) as f64, (y + PADDING + 10 + line * LINE) as f64);
    let apart = if node.is_apart { " apart" } else { "" };
    let mut out = format!(
        "<g><title>{}</title><rect class=\"box{class}{apart}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" \
         rx=\"5\"/>",
        escape(&node.text)
    );
    out.push_str(&svg::text("strong", "start", at(0), node.id));
    for (i, line) in node.lines.iter().enumerate() {
        out.push_str(&svg::text("", "start", at(1 + i), line));
    }
    if !node.when.is_empty() && has_time_beside(node) {
        let right = (x + width - PADDING) as f64;
        out.push_str(&svg::text("faint", "end", (right, at(0).1), &node.when));
    } else if !node.when.is_empty() {
        out.push_str(&svg::text("faint", "start", at(1 + node.lines.len()), &node.when));
    }
    out.push_str("</g>\n");
    out
}

/// A text of so many letters at most, the last of which tells that there were more.
pub fn cut(text: &str, letters: usize) -> String {
    match text.char_indices().nth(letters) {
        Some(_) => text.chars().take(letters.saturating_sub(1)).chain(['…']).collect(),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::examples;

    #[test]
    fn each_box_has_its_number_and_says_when_its_time_does_not_compare() {
        let mut incident = examples::flood().incidents.remove(0);
        let html = chain(&incident, &Style::plain(80), &|_| Some("words </text><b>"));
        assert!(!html.contains("cannot be compared") && !html.contains(" apart"), "{html}");
        let boxes = html.matches("<rect class=\"box").count();
        assert!(boxes >= 4 && boxes.is_multiple_of(2), "{boxes}");
        assert_eq!(html.matches("<rect class=\"box root").count(), 2);
        // In each drawing.
        assert_eq!(html.matches("<path class=\"arrow\"").count(), 2 * (incident.chain.len() - 1));
        assert!(html.contains("words &lt;/text&gt;&lt;b&gt;: ") && !html.contains("<b>"), "{html}");
        incident.chain[1].lag_s = f64::NAN;
        incident.chain[1].statement = "<script>it</script> happened 7 times".into();
        let html = chain(&incident, &Style::plain(80), &|_| None);
        assert_eq!(html.matches(" apart\"").count(), 2, "one in each drawing");
        assert!(html.contains("another clock") && html.contains("cannot be compared"));
        assert!(html.contains("happened 7 times") && !html.contains("<script"));
    }

    #[test]
    fn a_text_stays_in_its_box() {
        let text = format!("{} {}", "x".repeat(90), "words ".repeat(90));
        let lines = lines(&text, 37);
        assert_eq!(lines.len(), LINES_MAX);
        assert!(lines.iter().all(|line| line.chars().count() <= 37), "{lines:?}");
        assert!(lines.last().is_some_and(|line| line.ends_with('…')));
    }
}
