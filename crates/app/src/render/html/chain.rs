//! How it came about, drawn: boxes from the root down to what somebody notices.

use std::collections::HashMap;

use mitra_diagnose::{Role, conditions, graph};
use mitra_model::report::Incident;

use super::escape;
use crate::render::proof;
use crate::render::style::{Style, UNKNOWN};
use crate::render::text::Title;

/// The width of the drawing, in its own units.
pub const WIDTH: usize = 900;
const BOX_WIDTH: usize = 216;
const BOX_HEIGHT: usize = 72;
const ROW_HEIGHT: usize = 106;
/// Boxes side by side.
const ACROSS: usize = 4;
/// Letters in a line of a box.
const LETTERS: usize = 32;
/// Lines of plain words in a box.
const LINES: usize = 2;

struct Node<'a> {
    id: &'a str,
    when: String,
    depth: usize,
    x: usize,
    y: usize,
}

/// The drawing; nothing where there is nothing to connect.
#[must_use]
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

/// The links of the chain in their order, then the symptoms that are no links.
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

/// Which brings about which, without the short cuts: where A leads to B and B to C, A to C goes without saying.
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

/// The depth of each: one more than that of its deepest cause. The graph has no cycles.
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
    // What nothing in the picture explains, and is not the root, stands beside the last links.
    let last = nodes.iter().map(|n| n.depth).max().unwrap_or(0).max(1);
    for (i, node) in nodes.iter_mut().enumerate() {
        let linked = arrows.iter().any(|(from, to)| *from == i || *to == i);
        if i > 0 && !linked {
            node.depth = last;
        }
    }
}

/// Gives each its place; returns the height of all.
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
    let Node { x, y, .. } = node;
    let mut svg = format!(
        "<rect class=\"box{class}\" x=\"{x}\" y=\"{y}\" width=\"{BOX_WIDTH}\" height=\"{BOX_HEIGHT}\" rx=\"6\"/>\
         <text class=\"strong\" x=\"{}\" y=\"{}\">{}</text>",
        x + 9,
        y + 18,
        escape(&cut(node.id, LETTERS - 3))
    );
    if !node.when.is_empty() {
        svg.push_str(&format!(
            "<text class=\"faint\" text-anchor=\"end\" x=\"{}\" y=\"{}\">{}</text>",
            x + BOX_WIDTH - 8,
            y + BOX_HEIGHT - 8,
            escape(&node.when)
        ));
    }
    let words = title(node.id).unwrap_or_default();
    let lines = crate::render::style::wrap(words, LETTERS);
    for (i, line) in lines.iter().take(LINES).enumerate() {
        let more = i + 1 == LINES && lines.len() > LINES;
        let line = if more { format!("{} …", cut(line, LETTERS - 2)) } else { line.clone() };
        let y = y + 34 + 15 * i;
        svg.push_str(&format!("<text class=\"faint\" x=\"{}\" y=\"{y}\">{}</text>", x + 9, escape(&line)));
    }
    svg.push('\n');
    svg
}

/// At most so many letters.
fn cut(text: &str, letters: usize) -> String {
    match text.char_indices().nth(letters) {
        Some(_) => text.chars().take(letters.saturating_sub(1)).chain(['…']).collect(),
        None => text.to_owned(),
    }
}
