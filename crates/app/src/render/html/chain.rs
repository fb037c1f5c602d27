//! The causal chain of an incident as SVG: boxes from the root cause down to the symptoms.

use std::collections::HashMap;

use mitra_diagnose::{Role, conditions, graph};
use mitra_model::report::Incident;

use super::svg;
use crate::render::proof;
use crate::render::style::{Style, UNKNOWN};
use crate::render::text::Title;

/// Width of the SVG, in its own units.
pub const WIDTH: usize = 900;
const BOX_WIDTH: usize = 216;
const BOX_HEIGHT: usize = 72;
const ROW_HEIGHT: usize = 106;
/// Boxes side by side.
const ACROSS: usize = 4;
/// Characters in a line of a box.
const LETTERS: usize = 32;
/// Lines of the title in a box.
const LINES: usize = 2;

struct Node<'a> {
    id: &'a str,
    when: String,
    depth: usize,
    x: usize,
    y: usize,
}

/// Empty if there is nothing to connect.
pub fn chain(incident: &Incident, style: &Style, title: Title<'_>) -> String {
    let mut nodes = nodes(incident, style);
    if nodes.len() < 2 {
        return String::new();
    }
    let arrows = arrows(&nodes);
    layer(&mut nodes, &arrows);
    let height = place(&mut nodes);
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"The chain from the root cause to the symptoms\">\
         <defs><marker id=\"tip\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" \
         orient=\"auto\"><path class=\"head\" d=\"M0 0L8 4L0 8z\"/></marker></defs>\n"
    );
    for (from, to) in &arrows {
        if let (Some(a), Some(b)) = (nodes.get(*from), nodes.get(*to)) {
            svg.push_str(&arrow(a, b));
        }
    }
    for node in &nodes {
        svg.push_str(&boxed(node, class(node.id, incident), title));
    }
    svg.push_str("</svg>\n");
    svg
}

/// The links in their order, then the symptoms that are no links.
fn nodes<'a>(incident: &'a Incident, style: &Style) -> Vec<Node<'a>> {
    let node = |id: &'a str, when: String| Node { id, when, depth: 0, x: 0, y: 0 };
    let mut nodes: Vec<Node<'a>> = Vec::new();
    for (link, clock) in incident.chain.iter().zip(proof::clocks(&incident.chain, style)) {
        let when = if clock == UNKNOWN {
            String::new()
        } else if !link.lag_s.is_finite() || link.lag_s.abs() < 0.5 {
            clock
        } else {
            format!("{:+.0} s", link.lag_s)
        };
        if !nodes.iter().any(|n| n.id == link.condition) {
            nodes.push(node(&link.condition, when));
        }
    }
    for id in &incident.symptoms {
        if !nodes.iter().any(|n| n.id == id) {
            nodes.push(node(id, String::new()));
        }
    }
    nodes
}

/// The edges of the graph without shortcuts: no A → C where A → B → C.
fn arrows(nodes: &[Node<'_>]) -> Vec<(usize, usize)> {
    let at: HashMap<&str, usize> = nodes.iter().enumerate().map(|(i, n)| (n.id, i)).collect();
    let edge = |cause: &str, effect: &str| Some((*at.get(cause)?, *at.get(effect)?));
    let all: Vec<(usize, usize)> = graph().iter().filter_map(|e| edge(e.cause, e.effect)).collect();
    let leads = |from: usize, to: usize| {
        let mut open: Vec<usize> = all.iter().filter(|e| e.0 == from && e.1 != to).map(|e| e.1).collect();
        let mut seen = open.clone();
        while let Some(next) = open.pop() {
            for edge in all.iter().filter(|e| e.0 == next) {
                if edge.1 == to {
                    return true;
                }
                if !seen.contains(&edge.1) {
                    seen.push(edge.1);
                    open.push(edge.1);
                }
            }
        }
        false
    };
    all.iter().copied().filter(|(from, to)| !leads(*from, *to)).collect()
}

/// Depth: one more than the deepest cause. The graph has no cycles.
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

/// Sets the positions and returns the total height.
fn place(nodes: &mut [Node<'_>]) -> usize {
    let deepest = nodes.iter().map(|n| n.depth).max().unwrap_or(0);
    let mut y = 6;
    for depth in 0..=deepest {
        let mut row: Vec<&mut Node<'_>> = nodes.iter_mut().filter(|n| n.depth == depth).collect();
        for part in row.chunks_mut(ACROSS) {
            let count = part.len();
            let gap = WIDTH.saturating_sub(count * BOX_WIDTH) / (count + 1);
            for (i, node) in part.iter_mut().enumerate() {
                node.x = gap + i * (BOX_WIDTH + gap);
                node.y = y;
            }
            y += ROW_HEIGHT;
        }
    }
    y + BOX_HEIGHT + 6 - ROW_HEIGHT
}

fn arrow(from: &Node<'_>, to: &Node<'_>) -> String {
    let (x1, y1) = (from.x + BOX_WIDTH / 2, from.y + BOX_HEIGHT);
    let (x2, y2) = (to.x + BOX_WIDTH / 2, to.y);
    if y2 <= y1 {
        // In one row: from side to side.
        let right = to.x > from.x;
        let (x1, x2) = if right { (from.x + BOX_WIDTH, to.x) } else { (from.x, to.x + BOX_WIDTH) };
        let (y1, y2) = (from.y + BOX_HEIGHT / 2, to.y + BOX_HEIGHT / 2);
        return format!("<path class=\"arrow\" marker-end=\"url(#tip)\" d=\"M{x1} {y1}L{x2} {y2}\"/>\n");
    }
    let bend = (y2 - y1) / 2;
    format!(
        "<path class=\"arrow\" marker-end=\"url(#tip)\" d=\"M{x1} {y1}C{x1} {} {x2} {} {x2} {y2}\"/>\n",
        y1 + bend,
        y2 - bend
    )
}

fn class(id: &str, incident: &Incident) -> &'static str {
    let is_symptom = || conditions().iter().any(|c| c.id == id && c.role == Role::Symptom);
    if id == incident.root_cause.condition || incident.other_roots.iter().any(|r| r.condition == id) {
        " root"
    } else if incident.symptoms.iter().any(|s| s == id) || is_symptom() {
        " symptom"
    } else {
        ""
    }
}

fn boxed(node: &Node<'_>, class: &str, title: Title<'_>) -> String {
    let (x, y) = (node.x, node.y);
    let at = |dx: usize, dy: usize| ((x + dx) as f64, (y + dy) as f64);
    let mut out = format!(
        "<rect class=\"box{class}\" x=\"{x}\" y=\"{y}\" width=\"{BOX_WIDTH}\" height=\"{BOX_HEIGHT}\" rx=\"6\"/>"
    );
    out.push_str(&svg::text("strong", "start", at(9, 18), &cut(node.id, LETTERS - 3)));
    out.push_str(&svg::text("faint", "end", at(BOX_WIDTH - 8, BOX_HEIGHT - 8), &node.when));
    let lines = crate::render::style::wrap(title(node.id).unwrap_or_default(), LETTERS);
    for (i, line) in lines.iter().take(LINES).enumerate() {
        let more = i + 1 == LINES && lines.len() > LINES;
        let line = if more { format!("{} …", cut(line, LETTERS - 2)) } else { line.clone() };
        out.push_str(&svg::text("faint", "start", at(9, 34 + 15 * i), &line));
    }
    out
}

fn cut(text: &str, letters: usize) -> String {
    match text.char_indices().nth(letters) {
        Some(_) => text.chars().take(letters.saturating_sub(1)).chain(['…']).collect(),
        None => text.to_owned(),
    }
}
