//! References in words.

use super::heap::Heap;
use super::types::Kind;
use super::{Edge, Objects, Root, TypeId};
use crate::memory::Memory;

/// Characters of a key that are shown.
const KEY_CHARS_MAX: usize = 64;

impl<M: Memory + ?Sized> Heap<'_, M> {
    /// The name of a variable of a code object: variables, then those in cells, then those of the functions around.
    fn variable(&self, code: u64, index: u32) -> Option<String> {
        let layout = &self.layout;
        let mut index = u64::from(index);
        for offset in
            [Some(layout.code_varnames), layout.code_cellvars, layout.code_freevars].into_iter().flatten()
        {
            let names = self.word(code, offset);
            let length = self.word(names, 16);
            if index < length {
                return self.string(self.word(names, layout.tuple_items + 8 * index), KEY_CHARS_MAX);
            }
            index -= length;
        }
        None
    }

    /// A reference in words, as far as it can be said without what it comes from.
    pub(super) fn words_for(&self, from: u64, edge: Edge) -> String {
        match edge {
            Edge::Key => "key".to_owned(),
            Edge::Value { key } => match self.value_of(key, KEY_CHARS_MAX) {
                Some(key_text) if self.object_type(key).is_some_and(|kind| kind.kind == Kind::Str) => {
                    format!("[{key_text:?}]")
                }
                Some(key) => format!("[{key}]"),
                None => match self.object_type(key) {
                    Some(kind) => format!("[{}]", kind.name),
                    None => "[…]".to_owned(),
                },
            },
            Edge::Attribute { name } => match self.string(name, KEY_CHARS_MAX) {
                Some(name) => format!(".{name}"),
                None => ".…".to_owned(),
            },
            Edge::Dict => ".__dict__".to_owned(),
            Edge::Item { index } => format!("[{index}]"),
            Edge::Member => "member".to_owned(),
            Edge::Local { code, index } => match self.variable(code, index) {
                Some(name) => format!("local '{name}'"),
                None => format!("local {index}"),
            },
            Edge::Temporary => "what is evaluated".to_owned(),
            Edge::Type => ".__class__".to_owned(),
            Edge::Field { offset } => {
                let name = self.object_type(from).and_then(|kind| {
                    kind.members.iter().find(|(known, _)| *known == offset).map(|(_, name)| name.clone())
                });
                name.map_or_else(|| format!("field at {offset}"), |name| format!(".{name}"))
            }
        }
    }
}

impl<M: Memory + ?Sized> Objects for Heap<'_, M> {
    fn for_each(&self, take: &mut dyn FnMut(u64, TypeId)) {
        self.renew_budget();
        self.marks.for_each(&mut |address| {
            if self.memory.goes_on(1)
                && let Some(kind) = self.object_type(address)
            {
                take(address, kind.id);
            }
        });
    }

    fn types(&self) -> usize {
        self.types.borrow().len()
    }

    fn type_name(&self, id: TypeId) -> String {
        self.types.borrow().get(id).map_or_else(|| "?".to_owned(), |kind| kind.name.clone())
    }

    fn type_address(&self, id: TypeId) -> u64 {
        self.types.borrow().get(id).map_or(0, |kind| kind.address)
    }

    fn type_of(&self, address: u64) -> Option<TypeId> {
        self.object_type(address).map(|kind| kind.id)
    }

    fn size(&self, address: u64) -> Option<u64> {
        let kind = self.object_type(address)?;
        Some(self.shallow(address, &kind))
    }

    fn references(&self, address: u64, take: &mut dyn FnMut(u64, Edge)) {
        let Some(kind) = self.object_type(address) else { return };
        self.refer(address, &kind, &mut |target, edge, _| {
            // What was reached is an object; asking again is for what came since.
            if target != 0 && (self.marks.has(target) || self.object_type(target).is_some()) {
                take(target, edge);
            }
        });
        if kind.is_heap() {
            take(kind.address, Edge::Type);
        }
    }

    fn describe(&self, from: u64, edge: Edge) -> String {
        self.words_for(from, edge)
    }

    fn roots(&self, take: &mut dyn FnMut(Root)) {
        self.renew_budget();
        self.all_roots(take);
    }

    fn value(&self, address: u64, chars_max: usize) -> Option<String> {
        self.value_of(address, chars_max)
    }
}
