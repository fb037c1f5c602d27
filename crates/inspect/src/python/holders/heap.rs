//! The heap of a process as a graph.

use super::graph::{Edge, Graph, Root};
use crate::memory::Memory;
use crate::python::heap::Heap;
use crate::python::{Objects, RootKind, TypeId};

/// Characters of a name: one more than is said, so that a longer one is known as such.
const NAME_CHARS_MAX: usize = super::names::NAME_MAX + 1;
/// `tp_finalize` of a type, which `__del__` fills: the same from 3.6 to 3.14 (Include/cpython/object.h).
const TYPE_FINALIZE: u64 = 392;

impl<M: Memory + ?Sized> Graph for Heap<'_, M> {
    fn each(&self, take: &mut dyn FnMut(u64)) {
        self.for_each(&mut |address, _| take(address));
    }

    fn roots(&self, take: &mut dyn FnMut(Root, u64)) {
        Objects::roots(self, &mut |root| {
            let name = match root.kind {
                RootKind::Module => {
                    Root::Module(root.name.strip_prefix("module ").unwrap_or(&root.name).to_owned())
                }
                RootKind::Frame => Root::Frame(root.name),
                RootKind::Interpreter => Root::Interpreter(root.name),
            };
            take(name, root.address);
        });
    }

    fn kind(&self, address: u64) -> Option<u64> {
        self.type_of(address).map(|id| u64::from(id.0))
    }

    fn kind_name(&self, kind: u64) -> String {
        self.type_name(TypeId(kind as u32))
    }

    fn references(&self, address: u64, take: &mut dyn FnMut(u64, Edge)) {
        Objects::references(self, address, take);
    }

    fn reference_count(&self, address: u64) -> Option<u64> {
        // Since 3.12 the upper half is something else, and before it no count is that large.
        self.memory.u32(address).map(u64::from)
    }

    fn bytes(&self, address: u64) -> u64 {
        self.size(address).unwrap_or(0)
    }

    fn name(&self, from: u64, edge: Edge) -> Option<String> {
        match edge {
            Edge::Value { key: name } | Edge::Attribute { name } => {
                let is_text = self.type_of(name).is_some_and(|id| self.type_name(id) == "str");
                self.string(name, NAME_CHARS_MAX).filter(|_| is_text)
            }
            Edge::Field { .. } => Some(self.describe(from, edge).strip_prefix('.')?.to_owned()),
            Edge::Local { .. } => {
                Some(self.describe(from, edge).strip_prefix("local '")?.strip_suffix('\'')?.to_owned())
            }
            _ => None,
        }
    }

    fn has_finalizer(&self, kind: u64) -> bool {
        let address = self.type_address(TypeId(kind as u32));
        address.checked_add(TYPE_FINALIZE).and_then(|at| self.memory.u64(at)).is_some_and(|at| at != 0)
    }

    fn again(&self) {
        self.renew_budget();
    }

    fn goes_on(&self, steps: u64) -> bool {
        self.memory.goes_on(steps)
    }
}
