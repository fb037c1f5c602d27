//! The path from a root to an object, in Python's notation: `app.STORE.items`,
//! `app.HANDLERS[…].__closure__[…].cell_contents`.
//!
//! Names of variables and attributes are part of the program and are included if they look like
//! names (`names.rs`). The keys of other dicts are contents of memory and are withheld.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::graph::{Edge, EdgeKind, Graph, Root};
use super::names;
use super::reach::Reach;

/// Steps that are kept from the beginning of a path, and from its end.
const STEPS_BEGIN: usize = 24;
const STEPS_END: usize = 8;
/// The longest path that is followed.
const STEPS_MAX: usize = 64 << 20;
/// Replaces withheld names.
const WITHHELD: &str = "[…]";
/// Limit of the steps that are printed once if they repeat: a node, its dict, a wrapper.
const PERIOD_MAX: usize = 3;

/// A path.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Path {
    /// Its root.
    pub root: Root,
    /// The path as one expression.
    pub text: String,
    /// Its steps, without those in the middle of a long path.
    pub steps: Vec<Step>,
    /// Number of omitted steps.
    pub steps_left_out: u64,
}

/// A step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// The kind of the reference; `None` if it was gone when read again.
    pub edge: Option<EdgeKind>,
    /// The variable or attribute, if it has a name.
    pub name: Option<String>,
    /// The type of the object that it leads to.
    pub type_name: String,
}

/// The path to an object.
pub(super) fn path(graph: &(impl Graph + ?Sized), reach: &Reach, node: u32) -> Path {
    // From the object to the root: the end of the path first.
    let mut end = vec![node];
    let mut begin = VecDeque::new();
    let mut left_out = 0;
    let mut top = node;
    for _ in 0..STEPS_MAX {
        let Some(parent) = reach.parent(top) else { break };
        top = parent;
        if end.len() <= STEPS_END {
            end.push(parent);
        } else {
            begin.push_front(parent);
            if begin.len() > STEPS_BEGIN {
                begin.pop_back();
                left_out += 1;
            }
        }
    }
    let root = reach.roots.iter().find(|(index, _)| *index == top).map(|(_, root)| root.clone());
    let root = match root.unwrap_or(Root::Itself) {
        Root::Module(name) if !names::is_module(&name) => Root::Module(WITHHELD.to_owned()),
        root => root,
    };
    let mut text = Text::of(&root);
    let mut steps = Vec::new();
    let begin: Vec<u32> = begin.into();
    end.reverse();
    if left_out == 0 {
        end = [begin, end].concat();
        walk(graph, reach, &end, &mut text, &mut steps);
    } else {
        walk(graph, reach, &begin, &mut text, &mut steps);
        text.skip(format!(" … {left_out} steps … "));
        walk(graph, reach, &end, &mut text, &mut steps);
    }
    Path { root, text: text.join(), steps, steps_left_out: left_out }
}

fn walk(graph: &(impl Graph + ?Sized), reach: &Reach, nodes: &[u32], text: &mut Text, steps: &mut Vec<Step>) {
    for pair in nodes.windows(2) {
        let (from, to) = (pair[0] as usize, pair[1] as usize);
        let type_name = reach.names.name(reach.kinds[to]).to_owned();
        if reach.addresses[from] == 0 {
            // From a placeholder: the reference is unknown.
            text.skip(format!("a {type_name}"));
            steps.push(Step { edge: None, name: None, type_name });
            continue;
        }
        let mut found = None;
        graph.references(reach.addresses[from], &mut |target, edge| {
            if target == reach.addresses[to] && found.is_none() {
                found = Some(edge);
            }
        });
        let name = found.and_then(|edge| name_of(graph, reach.addresses[from], edge, text));
        text.step(found, name.as_deref());
        steps.push(Step { edge: found.map(EdgeKind::from), name, type_name });
    }
}

fn name_of(graph: &(impl Graph + ?Sized), from: u64, edge: Edge, text: &Text) -> Option<String> {
    let has_name = match edge {
        Edge::Attribute { .. } | Edge::Local { .. } | Edge::Field { .. } => true,
        // The keys of a dict are names if it is a namespace.
        Edge::Value { .. } => text.is_namespace,
        _ => false,
    };
    let is_said = |name: &String| match edge {
        Edge::Attribute { .. } | Edge::Value { .. } => names::is_name(name),
        // These names are in the program's code.
        _ => !name.is_empty() && !name.chars().any(char::is_control),
    };
    let mut name = graph.name(from, edge).filter(|name| has_name && is_said(name))?;
    if let Some((at, _)) = name.char_indices().nth(names::NAME_MAX) {
        name.truncate(at);
    }
    Some(name)
}

/// An expression under construction.
struct Text {
    parts: Vec<String>,
    /// The last step led to the dict of a module, a type or an object.
    is_namespace: bool,
}

impl Text {
    fn of(root: &Root) -> Self {
        let first = match root {
            Root::Module(name) => name.clone(),
            Root::Frame(what) => format!("({what})"),
            Root::Interpreter(what) => format!("({what})"),
            Root::Native => "(outside of the interpreter) ".to_owned(),
            Root::Itself => "(nothing but itself) ".to_owned(),
        };
        Self { parts: vec![first], is_namespace: false }
    }

    /// Continues elsewhere, where it is unknown whether an object is a namespace.
    fn skip(&mut self, part: String) {
        self.parts.push(part);
        self.is_namespace = false;
    }

    fn step(&mut self, edge: Option<Edge>, name: Option<&str>) {
        let part = match (edge, name) {
            (Some(Edge::Dict), _) => String::new(),
            (Some(Edge::Local { .. }), Some(name)) => format!("(local {name})"),
            (Some(Edge::Attribute { .. } | Edge::Value { .. } | Edge::Field { .. }), Some(name)) => {
                format!(".{name}")
            }
            (Some(Edge::Attribute { .. } | Edge::Value { .. } | Edge::Item { .. } | Edge::Member), _) => {
                WITHHELD.to_owned()
            }
            (Some(Edge::Key), _) => "[…key]".to_owned(),
            (Some(Edge::Type), _) => ".__class__".to_owned(),
            (Some(Edge::Field { offset }), _) => format!(".<field at {offset}>"),
            (Some(Edge::Temporary), _) => "(a temporary)".to_owned(),
            _ => ".?".to_owned(),
        };
        self.is_namespace = edge == Some(Edge::Dict);
        if !part.is_empty() {
            self.parts.push(part);
        }
    }

    /// The whole text, with repeated parts printed once.
    fn join(&self) -> String {
        let mut text = String::new();
        let mut at = 0;
        while at < self.parts.len() {
            let rest = &self.parts[at..];
            let mut best = (1, 1);
            for period in 1..=PERIOD_MAX.min(rest.len()) {
                let times = rest.chunks_exact(period).take_while(|chunk| *chunk == &rest[..period]).count();
                if times > 2 && times * period > best.0 * best.1 {
                    best = (period, times);
                }
            }
            let (period, times) = best;
            let part = rest[..period].concat();
            if times > 1 {
                text.push_str(&format!("({part})×{times}"));
            } else {
                text.push_str(&part);
            }
            at += period * times;
        }
        text
    }
}

/// The cycle from an object that only its own kind holds, back to it.
pub(super) fn around(graph: &(impl Graph + ?Sized), reach: &Reach, object: u32, objects_max: usize) -> Path {
    // Each object with its predecessor and the reference.
    let mut seen: Vec<(u32, usize, Option<Edge>)> = vec![(object, 0, None)];
    let mut known: std::collections::HashSet<u32> = [object].into();
    let mut back = None;
    let mut at = 0;
    while at < seen.len() && back.is_none() {
        graph.references(reach.addresses[seen[at].0 as usize], &mut |target, edge| match reach
            .find(target)
            .filter(|_| edge != Edge::Type)
        {
            Some(found) if found == object => back = Some((at, edge)),
            Some(found) if seen.len() < objects_max && !reach.is_rooted(found) && known.insert(found) => {
                seen.push((found, at, Some(edge)));
            }
            _ => {}
        });
        at += 1;
    }
    let type_name = |index: u32| reach.names.name(reach.kinds[index as usize]).to_owned();
    let mut text = Text { parts: vec![format!("a {}", type_name(object))], is_namespace: false };
    let mut steps = Vec::new();
    let Some((last, edge)) = back else {
        text.parts.push(" that others of its kind hold".to_owned());
        return Path { root: Root::Itself, text: text.join(), steps, steps_left_out: 0 };
    };
    // From, to, and the reference.
    let mut edges = vec![(seen[last].0, object, edge)];
    let mut place = last;
    while let (index, before, Some(edge)) = seen[place] {
        edges.push((seen[before].0, index, edge));
        place = before;
    }
    for (from, to, edge) in edges.into_iter().rev() {
        let name = name_of(graph, reach.addresses[from as usize], edge, &text);
        text.step(Some(edge), name.as_deref());
        steps.push(Step { edge: Some(edge.into()), name, type_name: type_name(to) });
    }
    text.parts.push(" is itself".to_owned());
    Path { root: Root::Itself, text: text.join(), steps, steps_left_out: 0 }
}
