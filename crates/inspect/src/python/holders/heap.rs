//! The heap of a process as a graph.

use super::graph::{Edge, Graph, Root};
use crate::memory::Memory;
use crate::python::TypeId;
use crate::python::heap::Heap;
use crate::python::types::{Kind, Type};

/// Characters of a name: one more than are displayed, so that a longer one is recognised.
const NAME_CHARS_MAX: usize = super::names::NAME_MAX + 1;
/// `tp_finalize` of a type, which `__del__` sets: the same from 3.6 to 3.14
/// (Include/cpython/object.h).
const TYPE_FINALIZE: u64 = 392;

impl<M: Memory + ?Sized> Heap<'_, M> {
    /// The name of a variable of a code object: variables, then cell variables, then free
    /// variables.
    fn variable(&self, code: u64, index: u32) -> Option<String> {
        let layout = &self.layout;
        let mut index = u64::from(index);
        for offset in
            [Some(layout.code_varnames), layout.code_cellvars, layout.code_freevars].into_iter().flatten()
        {
            let names = self.word(code, offset);
            let length = self.word(names, 16);
            if index < length {
                return self.string(self.word(names, layout.tuple_items + 8 * index), NAME_CHARS_MAX);
            }
            index -= length;
        }
        None
    }

    /// The name of a field, from the type's member table.
    fn field(&self, from: u64, offset: u32) -> Option<String> {
        let kind = self.object_type(from)?;
        kind.members.iter().find(|(known, _)| *known == offset).map(|(_, name)| name.clone())
    }

    /// The beginning of a string object; `None` if the object is not a string.
    #[must_use]
    pub fn text(&self, address: u64, chars_max: usize) -> Option<String> {
        let is_text = self.object_type(address).is_some_and(|kind| kind.kind == Kind::Str);
        self.string(address, chars_max).filter(|_| is_text)
    }

    /// A reference in Python's notation: `["key"]`, `[3]`, `.name`, `local 'x'`.
    #[must_use]
    pub fn describe(&self, from: u64, edge: Edge) -> String {
        let name = self.name(from, edge);
        match edge {
            Edge::Key => "key".to_owned(),
            Edge::Value { .. } => name.map_or_else(|| "[…]".to_owned(), |key| format!("[{key:?}]")),
            Edge::Attribute { .. } => format!(".{}", name.as_deref().unwrap_or("…")),
            Edge::Dict => ".__dict__".to_owned(),
            Edge::Item { index } => format!("[{index}]"),
            Edge::Member => "member".to_owned(),
            Edge::Local { index, .. } => {
                name.map_or_else(|| format!("local {index}"), |name| format!("local '{name}'"))
            }
            Edge::Temporary => "what is evaluated".to_owned(),
            Edge::Type => ".__class__".to_owned(),
            Edge::Field { offset } => {
                name.map_or_else(|| format!("field at {offset}"), |name| format!(".{name}"))
            }
        }
    }

    fn type_numbered<T>(&self, kind: u64, of: impl FnOnce(&Type) -> T) -> Option<T> {
        self.types.borrow().get(TypeId(u32::try_from(kind).ok()?)).map(|kind| of(&kind))
    }
}

impl<M: Memory + ?Sized> Graph for Heap<'_, M> {
    fn each(&self, take: &mut dyn FnMut(u64)) {
        self.renew_budget();
        self.visited.for_each(&mut |address| {
            if self.memory.should_continue(1) && self.object_type(address).is_some() {
                take(address);
            }
        });
    }

    fn roots(&self, take: &mut dyn FnMut(Root, u64)) {
        self.renew_budget();
        self.all_roots(take);
    }

    fn kind(&self, address: u64) -> Option<u64> {
        self.object_type(address).map(|kind| u64::from(kind.id.0))
    }

    fn kind_name(&self, kind: u64) -> String {
        self.type_numbered(kind, |kind| kind.name.clone()).unwrap_or_else(|| "?".to_owned())
    }

    fn references(&self, address: u64, take: &mut dyn FnMut(u64, Edge)) {
        let Some(kind) = self.object_type(address) else { return };
        self.refer(address, &kind, &mut |target, edge, _| {
            // Visited addresses are objects. Further objects may have been created since.
            if target != 0 && (self.visited.has(target) || self.object_type(target).is_some()) {
                take(target, edge);
            }
        });
        if kind.is_heap() {
            take(kind.address, Edge::Type);
        }
    }

    fn reference_count(&self, address: u64) -> Option<u64> {
        // Since 3.12 the upper half is used otherwise, and before it no count is that large.
        self.memory.u32(address).map(u64::from)
    }

    fn bytes(&self, address: u64) -> u64 {
        self.object_type(address).map_or(0, |kind| self.shallow(address, &kind))
    }

    fn name(&self, from: u64, edge: Edge) -> Option<String> {
        match edge {
            Edge::Value { key: name } | Edge::Attribute { name } => self.text(name, NAME_CHARS_MAX),
            Edge::Field { offset } => self.field(from, offset),
            Edge::Local { code, index } => self.variable(code, index),
            _ => None,
        }
    }

    fn has_finalizer(&self, kind: u64) -> bool {
        let address = self.type_numbered(kind, |kind| kind.address);
        let finalizer = address.and_then(|address| self.memory.u64(address.checked_add(TYPE_FINALIZE)?));
        finalizer.is_some_and(|at| at != 0)
    }

    fn again(&self) {
        self.renew_budget();
    }

    fn should_continue(&self, steps: u64) -> bool {
        self.memory.should_continue(steps)
    }
}
