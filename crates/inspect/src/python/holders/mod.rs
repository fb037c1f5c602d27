//! The holders of the objects of a type: which types refer to them, through which variable of which
//! module they are reachable, or why they are not.
//!
//! The whole heap is traversed once ([`reach`]); then each type is looked up. A growing dict in a
//! module, a cache, a list of closures and a set of tasks all look alike here: a node at which the
//! paths to thousands of objects part. The node is named by its path from a module, or from a
//! running function. Two answers have no path: objects that only refer to each other, which the
//! collector has not freed, and objects that count more references than the heap has, so that
//! something outside of it holds them.

mod graph;
mod heap;
mod names;
mod path;
mod reach;
#[cfg(test)]
mod tests;
mod tree;

use serde::{Deserialize, Serialize};

pub use graph::{Edge, EdgeKind, Graph, Root};
pub use path::{Path, Step};
use reach::Reach;

/// Referring types per type that are listed.
const REFERRERS: usize = 8;
/// Holders per type that are listed.
const HOLDERS: usize = 4;
/// A holder of less than a twentieth does not explain the number of objects.
const SHARE_MIN: u64 = 20;
/// Limit of the objects in which the cycle back to an object is searched.
const CYCLE_OBJECTS_MAX: usize = 2000;
/// Default limit of the objects. Each costs some 60 bytes in all tables (measured): half a
/// gigabyte, for a heap of at least a few.
pub const OBJECTS_MAX: usize = 8 << 20;

/// The types whose holders are searched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// Those of the given names.
    Types(Vec<String>),
    /// This many, those with the most bytes of their own.
    Largest(usize),
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HoldersReport {
    /// By type, in the requested order, or the largest first. Each entry is complete.
    pub types: Vec<TypeHolders>,
    /// The search ended early, and types are missing.
    #[serde(default)]
    pub is_stopped: bool,
    /// Objects that were visited.
    pub objects: u64,
    /// Encounters of objects that were not visited, because there are too many.
    pub objects_left_out: u64,
    /// References to addresses that held no object when they were read.
    pub vanished: u64,
    /// References between types that were not counted, because there are too many pairs.
    pub references_not_counted: u64,
}

/// The holders of the objects of a type.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TypeHolders {
    /// Its name.
    pub type_name: String,
    /// Its objects.
    pub objects: u64,
    /// What refers to them, the most frequent first.
    pub referrers: Vec<Referrer>,
    /// The nodes where the paths to them part, the largest first.
    pub holders: Vec<Holder>,
    /// Objects that are held outside of the interpreter, or in unsearched parts of it.
    pub objects_held_natively: u64,
    /// Objects that only hold each other.
    pub objects_held_by_themselves: u64,
    /// Whether they have a `__del__`.
    pub has_finalizer: bool,
}

/// A type that refers to a type.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Referrer {
    /// Its name.
    pub type_name: String,
    /// The kind of the reference.
    pub edge: EdgeKind,
    /// Number of references.
    pub references: u64,
}

/// An object through which many objects of a type are reached.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Holder {
    /// Its type; `None` if it is outside of the interpreter.
    pub type_name: Option<String>,
    /// The path to it.
    pub path: Path,
    /// Objects of the type that are reached through it.
    pub objects: u64,
    /// Of these, the ones it refers to directly.
    pub objects_direct: u64,
    /// The path from it to one of these objects; for objects that hold themselves, the cycle.
    pub sample: Option<Path>,
}

/// Finds the holders of the objects of types.
pub fn holders(graph: &(impl Graph + ?Sized), wanted: &Wanted, objects_max: usize) -> HoldersReport {
    let reach = Reach::new(graph, objects_max);
    let types = match wanted {
        Wanted::Types(names) => names.clone(),
        Wanted::Largest(count) => largest(graph, &reach, *count),
    };
    let mut found = Vec::new();
    for name in types {
        // A partial search proves nothing about the whole.
        let held = if graph.should_continue(0) { of_type(graph, &reach, name) } else { break };
        if graph.should_continue(0) {
            found.push(held);
        }
    }
    HoldersReport {
        types: found,
        is_stopped: !graph.should_continue(0),
        // Without the two placeholders.
        objects: reach.addresses.len() as u64 - 2,
        objects_left_out: reach.left_out,
        vanished: reach.vanished,
        references_not_counted: reach.pairs_lost,
    }
}

/// The names of the types with the most bytes.
fn largest(graph: &(impl Graph + ?Sized), reach: &Reach, count: usize) -> Vec<String> {
    let mut bytes = vec![0_u64; reach.names.names.len()];
    for (address, number) in reach.addresses.iter().zip(&reach.kinds).take_while(|_| graph.should_continue(1))
    {
        if let Some(sum) = bytes.get_mut(*number as usize) {
            *sum = sum.saturating_add(graph.bytes(*address));
        }
    }
    let mut types: Vec<(u64, &String)> = bytes.into_iter().zip(&reach.names.names).collect();
    types.sort_by(|one, other| other.0.cmp(&one.0).then(one.1.cmp(other.1)));
    let mut names: Vec<String> = types.into_iter().map(|(_, name)| name.clone()).collect();
    let mut known = std::collections::HashSet::new();
    names.retain(|name| known.insert(name.clone()));
    names.truncate(count);
    names
}

fn of_type(graph: &(impl Graph + ?Sized), reach: &Reach, type_name: String) -> TypeHolders {
    // Several classes may have the same name.
    let is_wanted: Vec<bool> = reach.names.names.iter().map(|name| *name == type_name).collect();
    let is_of_type = |number: u32| is_wanted.get(number as usize).copied().unwrap_or(false);
    let objects = reach.kinds.iter().filter(|number| is_of_type(**number)).count() as u64;
    let found = tree::branch_points(graph, reach, &is_wanted, HOLDERS, objects / SHARE_MIN);
    let holders = found.into_iter().map(|branch| holder(graph, reach, &is_wanted, branch)).collect();
    let behind = |root: &Root| {
        let index =
            reach.roots.iter().find(|(_, other)| other == root).map_or(reach::NONE, |(index, _)| *index);
        tree::behind(graph, reach, &is_wanted, index)
    };
    let has_finalizer = |number: usize| is_wanted[number] && graph.has_finalizer(reach.names.kinds[number]);
    TypeHolders {
        objects,
        referrers: referrers(reach, &is_wanted),
        holders,
        objects_held_natively: behind(&Root::Native),
        objects_held_by_themselves: behind(&Root::Itself),
        has_finalizer: (0..is_wanted.len()).any(has_finalizer),
        type_name,
    }
}

fn referrers(reach: &Reach, is_wanted: &[bool]) -> Vec<Referrer> {
    let mut found: std::collections::BTreeMap<(&str, EdgeKind), u64> = std::collections::BTreeMap::new();
    for ((target, from, edge), references) in &reach.pairs {
        if is_wanted.get(*target as usize).copied().unwrap_or(false) {
            *found.entry((reach.names.name(*from), *edge)).or_default() += references;
        }
    }
    let mut found: Vec<Referrer> = found
        .into_iter()
        .map(|((name, edge), references)| Referrer { type_name: name.to_owned(), edge, references })
        .collect();
    found.sort_by_key(|referrer| std::cmp::Reverse(referrer.references));
    found.truncate(REFERRERS);
    found
}

fn holder(
    graph: &(impl Graph + ?Sized),
    reach: &Reach,
    is_wanted: &[bool],
    branch: tree::BranchPoint,
) -> Holder {
    let number = reach.kinds[branch.node as usize];
    let path = path::path(graph, reach, branch.node);
    let sample = tree::sample(graph, reach, is_wanted, branch.node);
    let sample = sample.map(|object| match path.root {
        Root::Itself => path::around(graph, reach, object, CYCLE_OBJECTS_MAX),
        _ => path::path(graph, reach, object),
    });
    Holder {
        type_name: reach.names.names.get(number as usize).cloned(),
        path,
        objects: branch.objects,
        objects_direct: branch.direct,
        sample,
    }
}
