//! Stacks as a tree, for flame graphs.

use std::collections::HashMap;

use super::{Captured, Profile, Stack};

/// More than the kernel records.
const DEPTH_MAX: usize = 300;
/// Nodes of a tree. The lightest stacks of a larger one are left out.
const NODES_MAX: usize = 100_000;

/// Stacks as a tree: the root is all of them, below it are the threads by name, below these the frames.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StackTree {
    /// The name of the weight: `time off CPU`.
    pub weight: String,
    /// Its unit, as in [`Profile::unit`].
    pub unit: String,
    /// The names of frames, then those of threads.
    pub names: Vec<String>,
    /// The nodes, the root first.
    pub nodes: Vec<StackNode>,
    /// Stacks that had no room.
    pub left_out: usize,
    /// Their weight. It is part of the root's.
    pub left_out_weight: f64,
}

/// A frame with all that it called.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StackNode {
    /// An index into [`StackTree::names`]. The root has none.
    pub name: u32,
    /// The weight of the frame and of those below it.
    pub weight: f64,
    /// The weight of the frame alone.
    pub own: f64,
    /// Indices into [`StackTree::nodes`], in the order of names, so that two graphs of a program look alike.
    pub children: Vec<usize>,
}

impl StackTree {
    /// The tree of a profile. Where the first weight of all stacks is 0 the second one counts: all that was allocated may
    /// have been freed again.
    #[must_use]
    pub fn of(profile: &Profile) -> Self {
        Self::within(profile, NODES_MAX)
    }

    fn within(profile: &Profile, nodes_max: usize) -> Self {
        let is_second = !profile.beside.is_empty() && profile.stacks.iter().all(|stack| stack.weight <= 0.0);
        let weigh = |stack: &Stack| if is_second { stack.beside } else { stack.weight };
        let mut stacks: Vec<&Stack> = profile.stacks.iter().filter(|stack| weigh(stack) > 0.0).collect();
        stacks.sort_by(|a, b| weigh(b).total_cmp(&weigh(a)));
        let mut tree = StackTree {
            weight: if is_second { &profile.beside } else { &profile.weight }.clone(),
            unit: profile.unit.clone(),
            names: profile.names.clone(),
            nodes: vec![StackNode::default()],
            ..StackTree::default()
        };
        let mut threads: HashMap<&str, u32> = HashMap::new();
        let mut known: HashMap<(usize, u32), usize> = HashMap::new();
        for stack in stacks {
            let weight = weigh(stack);
            tree.nodes[0].weight += weight;
            // As if all of its frames were new.
            if tree.nodes.len() + stack.frames.len().min(DEPTH_MAX) >= nodes_max {
                tree.left_out += 1;
                tree.left_out_weight += weight;
                continue;
            }
            let thread = *threads.entry(&stack.comm).or_insert_with(|| {
                tree.names.push(stack.comm.clone());
                u32::try_from(tree.names.len() - 1).unwrap_or(u32::MAX)
            });
            let mut at = 0;
            for name in std::iter::once(thread).chain(stack.frames.iter().copied()).take(DEPTH_MAX) {
                let new = tree.nodes.len();
                let below = *known.entry((at, name)).or_insert(new);
                if below == new {
                    tree.nodes.push(StackNode { name, ..StackNode::default() });
                    tree.nodes[at].children.push(below);
                }
                at = below;
                tree.nodes[at].weight += weight;
            }
            tree.nodes[at].own += weight;
        }
        tree.sort();
        tree
    }

    fn sort(&mut self) {
        let names: Vec<u32> = self.nodes.iter().map(|node| node.name).collect();
        let name = |at: &usize| names.get(*at).and_then(|name| self.names.get(*name as usize));
        for node in &mut self.nodes {
            node.children.sort_by(|a, b| name(a).cmp(&name(b)));
        }
    }

    /// The name of a node; `all` is the root.
    #[must_use]
    pub fn name(&self, at: usize) -> &str {
        let named = self.nodes.get(at).and_then(|node| self.names.get(node.name as usize));
        if at == 0 { "all" } else { named.map_or("?", String::as_str) }
    }
}

/// A capture with its stacks as a tree.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FoldedCapture {
    /// The capture without tables, histograms and profile.
    pub head: Captured,
    /// Its stacks.
    pub tree: StackTree,
}

impl FoldedCapture {
    /// `None` if no stack weighs anything.
    #[must_use]
    pub fn of(captured: Captured) -> Option<Self> {
        let tree = StackTree::of(captured.profile.as_ref()?);
        let head = Captured {
            profile: None,
            tops: Vec::new(),
            tables: Vec::new(),
            histograms: Vec::new(),
            ..captured
        };
        tree.nodes.first().is_some_and(|root| root.weight > 0.0).then_some(FoldedCapture { head, tree })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(stacks: &[(&str, &[u32], f64)]) -> Profile {
        let stack = |(comm, frames, weight): &(&str, &[u32], f64)| Stack {
            comm: (*comm).to_owned(),
            frames: frames.to_vec(),
            weight: *weight,
            ..Stack::default()
        };
        Profile {
            weight: "time off CPU".into(),
            unit: "s".into(),
            names: ["main", "write", "read"].map(str::to_owned).to_vec(),
            stacks: stacks.iter().map(stack).collect(),
            ..Profile::default()
        }
    }

    /// `name weight own`, from the root down.
    fn lines(tree: &StackTree) -> Vec<String> {
        let mut lines = Vec::new();
        let mut waiting = vec![(0_usize, 0_usize)];
        while let Some((at, depth)) = waiting.pop() {
            let node = &tree.nodes[at];
            lines.push(format!("{}{} {} {}", " ".repeat(depth), tree.name(at), node.weight, node.own));
            waiting.extend(node.children.iter().rev().map(|child| (*child, depth + 1)));
        }
        lines
    }

    #[test]
    fn equal_frames_are_one_node_and_stand_in_the_order_of_names() {
        let tree = StackTree::of(&profile(&[
            ("web", &[0, 1], 2.0),
            ("web", &[0, 2], 1.0),
            ("db", &[], 0.5),
            ("web", &[0], 0.25),
            ("web", &[7], 0.125),
            ("web", &[0, 1], 0.0),
        ]));
        assert_eq!(
            lines(&tree),
            [
                "all 3.875 0",
                " db 0.5 0.5",
                " web 3.375 0",
                // Damaged files have frames without a name.
                "  ? 0.125 0.125",
                "  main 3.25 0.25",
                "   read 1 1",
                "   write 2 2",
            ]
        );
        assert_eq!((tree.left_out, tree.weight.as_str()), (0, "time off CPU"));
    }

    #[test]
    fn the_lightest_stacks_of_too_many_are_counted() {
        let deep: Vec<u32> = vec![0; 1000];
        let tree =
            StackTree::within(&profile(&[("a", &deep, 1.0), ("b", &deep, 9.0), ("b", &[0], 0.5)]), 400);
        assert_eq!(tree.nodes.len(), 1 + DEPTH_MAX, "of the heaviest stack, as deep as may be");
        assert_eq!((tree.left_out, tree.left_out_weight, tree.nodes[0].weight), (1, 1.0, 10.5));
    }

    #[test]
    fn the_second_weight_counts_where_the_first_one_is_nothing() {
        let mut profile = profile(&[("a", &[0], 0.0), ("a", &[1], 0.0)]);
        assert_eq!(StackTree::of(&profile).nodes[0].weight, 0.0);
        let captured = |profile: &Profile| Captured { profile: Some(profile.clone()), ..Captured::default() };
        assert_eq!(FoldedCapture::of(captured(&profile)), None);
        profile.beside = "came".into();
        profile.stacks[1].beside = 8.0;
        let folded = FoldedCapture::of(captured(&profile)).unwrap();
        assert_eq!((folded.tree.nodes[0].weight, folded.tree.weight.as_str()), (8.0, "came"));
        assert_eq!(folded.head, Captured::default());
    }
}
