//! What the search for holders asks of a heap.

use serde::{Deserialize, Serialize};

pub use crate::python::Edge;

/// Objects, and which of them refer to which. Addresses name them; whatever is torn or freed is simply not there.
pub trait Graph {
    /// The objects that are known for themselves, at least all that the collector tracks. Whatever they refer to is found through
    /// them.
    fn each(&self, take: &mut dyn FnMut(u64));

    /// Where the interpreter itself begins: modules, frames, its own tables.
    fn roots(&self, take: &mut dyn FnMut(Root, u64));

    /// The type of an object, as a number of its own; `None` where there is no object.
    fn kind(&self, address: u64) -> Option<u64>;

    /// The name of a type, with its module where it has one.
    fn kind_name(&self, kind: u64) -> String;

    /// What an object refers to, without weak references.
    fn references(&self, address: u64, take: &mut dyn FnMut(u64, Edge));

    /// How many references it counts itself.
    fn reference_count(&self, address: u64) -> Option<u64>;

    /// Its size without what it refers to, in bytes.
    fn bytes(&self, address: u64) -> u64;

    /// The name of a variable, an attribute, a member by which an object is referred to; of a dict's value its key.
    fn name(&self, from: u64, edge: Edge) -> Option<String>;

    /// A pass over the whole begins: what was spent on the one before no longer counts.
    fn again(&self) {}

    /// Says that so many steps were done, and hears whether to go on, as of [`crate::Memory::should_continue`].
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
    /// A variable of a function that runs now, in words.
    Frame(String),
    /// Something of the interpreter's own.
    Interpreter(String),
    /// Something outside of the interpreter, or in it where nobody looked: the object counts more references than were found.
    Native,
    /// Nothing: only each other. The collector has not freed them yet, or is off.
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
