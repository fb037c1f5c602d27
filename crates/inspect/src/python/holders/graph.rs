//! The interface between the search for holders and a heap.

use serde::{Deserialize, Serialize};

pub use crate::python::Edge;

/// Objects and their references. Addresses identify objects; torn or freed objects are absent.
pub trait Graph {
    /// Visits the objects that are known by themselves, at least all that the collector tracks.
    /// Further objects are found through their references.
    fn each(&self, take: &mut dyn FnMut(u64));

    /// Visits the roots of the interpreter: modules, frames, its own tables.
    fn roots(&self, take: &mut dyn FnMut(Root, u64));

    /// The type of an object, as a unique number; `None` if there is no object.
    fn kind(&self, address: u64) -> Option<u64>;

    /// The name of a type, with its module if it has one.
    fn kind_name(&self, kind: u64) -> String;

    /// Visits the references of an object, without weak references.
    fn references(&self, address: u64, take: &mut dyn FnMut(u64, Edge));

    /// The object's own reference count.
    fn reference_count(&self, address: u64) -> Option<u64>;

    /// Its shallow size in bytes.
    fn bytes(&self, address: u64) -> u64;

    /// The name of the variable, attribute or member that refers to an object; for a dict's value,
    /// its key.
    fn name(&self, from: u64, edge: Edge) -> Option<String>;

    /// Begins a new pass over the heap, with a renewed budget.
    fn again(&self) {}

    /// Charges steps to the budget, and returns whether to continue, as
    /// [`crate::Memory::should_continue`] does.
    fn should_continue(&self, steps: u64) -> bool {
        let _ = steps;
        true
    }

    /// Whether objects of a type have a `__del__`.
    fn has_finalizer(&self, kind: u64) -> bool {
        let _ = kind;
        false
    }
}

/// Where paths begin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Root {
    /// A module, by its name.
    Module(String),
    /// A variable of a running function, in words.
    Frame(String),
    /// Something of the interpreter's own.
    Interpreter(String),
    /// Something outside of the interpreter, or in unsearched parts of it: the object counts more
    /// references than were found.
    Native,
    /// None: the objects only refer to each other. The collector has not freed them yet, or is off.
    Itself,
}

/// The kind of a reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EdgeKind {
    /// As a key of a dict.
    Key,
    /// As a value of a dict.
    Value,
    /// As an attribute.
    Attribute,
    /// As the dict with the attributes or the variables.
    Dict,
    /// As an item of a list, a tuple or a deque.
    Item,
    /// As a member of a set.
    Member,
    /// As a variable of a frame, a generator or a coroutine.
    Local,
    /// As a temporary of an evaluation.
    Temporary,
    /// By a field of a structure.
    Field,
    /// As the type.
    Type,
}

impl From<Edge> for EdgeKind {
    fn from(edge: Edge) -> Self {
        match edge {
            Edge::Key => EdgeKind::Key,
            Edge::Value { .. } => EdgeKind::Value,
            Edge::Attribute { .. } => EdgeKind::Attribute,
            Edge::Dict => EdgeKind::Dict,
            Edge::Item { .. } => EdgeKind::Item,
            Edge::Member => EdgeKind::Member,
            Edge::Local { .. } => EdgeKind::Local,
            Edge::Temporary => EdgeKind::Temporary,
            Edge::Field { .. } => EdgeKind::Field,
            Edge::Type => EdgeKind::Type,
        }
    }
}
