//! The common holders of the objects of a type.
//!
//! The shortest paths to all objects form a tree. Each node gets the number of objects below it.
//! From the root, the search follows the child with the most objects as long as it has at least
//! half of them. The node where they part holds them: the dict, the list, the set. Then it searches
//! the next one, without those objects.

use super::graph::Graph;
use super::reach::{NONE, Reach};

/// A node at which the paths to many objects part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BranchPoint {
    pub node: u32,
    /// Objects below it.
    pub objects: u64,
    /// Of these, the ones it refers to directly.
    pub direct: u64,
}

/// The largest branch points, at most `most`, none with fewer than `objects_min` objects.
pub(super) fn branch_points(
    graph: &(impl Graph + ?Sized),
    reach: &Reach,
    is_wanted: &[bool],
    most: usize,
    objects_min: u64,
) -> Vec<BranchPoint> {
    let wanted = |index: u32| {
        let kind = reach.kinds[index as usize];
        is_wanted.get(kind as usize).copied().unwrap_or(false)
    };
    let mut found: Vec<BranchPoint> = Vec::new();
    let nodes = reach.addresses.len();
    let (mut behind, mut heaviest) = (vec![0_u32; nodes], vec![NONE; nodes]);
    while found.len() < most {
        behind.fill(0);
        heaviest.fill(NONE);
        for index in reach.order.iter().rev().copied() {
            if !graph.should_continue(1) {
                return found;
            }
            if found.iter().any(|branch| branch.node == index) {
                continue;
            }
            let count = behind[index as usize] + u32::from(wanted(index));
            behind[index as usize] = count;
            if let Some(parent) = reach.parent(index).map(|parent| parent as usize) {
                behind[parent] += count;
                let best = heaviest[parent];
                if count > 0 && (best == NONE || count > behind[best as usize]) {
                    heaviest[parent] = index;
                }
            }
        }
        let is_new = |index: &u32| found.iter().all(|branch| branch.node != *index);
        let roots = reach.roots.iter().map(|(index, _)| *index).filter(is_new);
        let Some((root, total)) = roots.map(|root| (root, behind[root as usize])).max_by_key(|(_, n)| *n)
        else {
            break;
        };
        if total == 0 || u64::from(total) < objects_min {
            break;
        }
        let mut node = root;
        while let Some(next) = Some(heaviest[node as usize]).filter(|next| *next != NONE) {
            let count = behind[next as usize];
            // An object is not its own holder.
            let is_itself = count == 1 && wanted(next);
            if is_itself || 2 * u64::from(count) < u64::from(total) {
                break;
            }
            node = next;
        }
        let objects = u64::from(behind[node as usize]);
        found.push(BranchPoint { node, objects, direct: 0 });
    }
    for index in reach.order.iter().copied().filter(|index| wanted(*index)) {
        if let Some(branch) = found.iter_mut().find(|branch| reach.parent(index) == Some(branch.node)) {
            branch.direct += 1;
        }
    }
    found
}

/// The number of the objects below a node.
pub(super) fn behind(graph: &(impl Graph + ?Sized), reach: &Reach, is_wanted: &[bool], node: u32) -> u64 {
    let mut count = 0;
    each_behind(graph, reach, is_wanted, node, |_| {
        count += 1;
        true
    });
    count
}

/// One of the objects below a node, of those nearest to it.
pub(super) fn sample(
    graph: &(impl Graph + ?Sized),
    reach: &Reach,
    is_wanted: &[bool],
    node: u32,
) -> Option<u32> {
    let mut found = None;
    each_behind(graph, reach, is_wanted, node, |index| {
        found = Some(index);
        index == node
    });
    found
}

fn each_behind(
    graph: &(impl Graph + ?Sized),
    reach: &Reach,
    is_wanted: &[bool],
    node: u32,
    mut take: impl FnMut(u32) -> bool,
) {
    let mut is_behind = vec![false; reach.addresses.len()];
    for index in reach.order.iter().copied().take_while(|_| graph.should_continue(1)) {
        let here = index == node || reach.parent(index).is_some_and(|parent| is_behind[parent as usize]);
        is_behind[index as usize] = here;
        let kind = reach.kinds[index as usize];
        if here && is_wanted.get(kind as usize).copied().unwrap_or(false) && !take(index) {
            return;
        }
    }
}
