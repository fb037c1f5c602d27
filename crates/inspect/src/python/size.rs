//! Shallow sizes, as `sys.getsizeof` reports them.
//!
//! ```text
//! default      tp_basicsize + items * tp_itemsize
//! dict         + values, + keys unless a class shares them     list       + 8 * allocated
//! set          + 16 * (mask + 1) unless in the structure       deque      + 528 per block
//! str          by form, + its UTF-8 and wide copies            generator  + 8 per variable and
//!                                                                         stack entry
//! before       + the collector's header, + 16 if dictionary or weak references are before the
//!              object (3.11)
//! ```

use super::heap::Heap;
use super::layout::HEAP_TYPE;
use super::types::{Kind, Type};
use crate::memory::Memory;

/// Bytes of a block of a deque: 64 items and two links.
const DEQUE_BLOCK_BYTES: u64 = 528;
/// Bytes of a node of an ordered dictionary: key, hash and two links.
const NODE_BYTES: u64 = 32;

impl<M: Memory + ?Sized> Heap<'_, M> {
    /// The shallow size of an object, in bytes. A size beyond all mappings is a torn read, and
    /// counts as 0.
    pub(super) fn shallow(&self, address: u64, kind: &Type) -> u64 {
        let size = self.size_itself(address, kind).saturating_add(self.size_before(address, kind));
        if size <= self.mapped { size } else { 0 }
    }

    /// Bytes before the object.
    fn size_before(&self, address: u64, kind: &Type) -> u64 {
        let layout = &self.layout;
        let mut size = 0;
        if kind.is_gc() {
            // Only types that were created at run time are collected.
            let is_static = kind.kind == Kind::Type && self.word(address, layout.type_flags) & HEAP_TYPE == 0;
            // 3.11 and 3.12 count the header for all types.
            let is_said = !is_static || matches!(layout.minor, 11 | 12);
            size += if is_said { layout.gc_head } else { 0 };
        }
        let has_more = kind.has_managed_dict() || layout.minor >= 12 && kind.has_managed_weakref();
        if layout.minor >= 11 && has_more {
            size += 16;
        }
        size
    }

    fn size_itself(&self, address: u64, kind: &Type) -> u64 {
        let layout = &self.layout;
        let length = || (self.word(address, 16) as i64).unsigned_abs();
        match kind.kind {
            Kind::Dict => self.size_of_dict(address, kind),
            Kind::OrderedDict => {
                let table = self.word(address, layout.dict_size + 24).saturating_mul(8);
                let nodes = self.word(address, layout.dict_used).saturating_mul(NODE_BYTES);
                self.size_of_dict(address, kind).saturating_add(table).saturating_add(nodes)
            }
            Kind::List => {
                kind.basicsize.saturating_add(self.word(address, layout.list_allocated).saturating_mul(8))
            }
            Kind::Set => {
                let is_small =
                    self.word(address, layout.set_table) == address.wrapping_add(layout.set_smalltable);
                let table = self.word(address, layout.set_mask).saturating_add(1).saturating_mul(16);
                kind.basicsize.saturating_add(if is_small { 0 } else { table })
            }
            Kind::Str => self.size_of_string(address),
            Kind::ByteArray => kind.basicsize.saturating_add(self.word(address, layout.bytearray_alloc)),
            Kind::Int => {
                let digits = self.int_digits(address).map_or(0, |(digits, _)| digits);
                let digits = if layout.minor >= 11 { digits.max(1) } else { digits };
                layout.long_digits.saturating_add(digits.saturating_mul(4))
            }
            Kind::Type => {
                if self.word(address, layout.type_flags) & HEAP_TYPE == 0 {
                    return layout.type_size;
                }
                let keys = layout.keys(&self.memory, self.word(address, layout.heap_type_cached_keys));
                layout.heap_type_size.saturating_add(keys.map_or(0, |keys| keys.bytes))
            }
            Kind::Generator if layout.minor >= 11 => {
                let code = self.word(address, layout.gen_frame + layout.frame_code);
                let slots = self.frame_slots(self.untag(code));
                kind.basicsize.saturating_add(slots.saturating_mul(8))
            }
            Kind::Frame => {
                let code = match layout.frameobj_frame {
                    Some(at) => self.word(self.word(address, at), layout.frame_code) & !3,
                    None => self.word(address, layout.frame_code),
                };
                let slots = self.frame_slots(code);
                // Before 3.11 one slot is part of the structure.
                kind.basicsize
                    .saturating_add(slots.saturating_sub(u64::from(layout.minor < 11)).saturating_mul(8))
            }
            Kind::Deque => {
                let items = self.word(address, 40).saturating_add(length());
                kind.basicsize.saturating_add(items.div_ceil(64).saturating_mul(DEQUE_BLOCK_BYTES))
            }
            Kind::Array => {
                // ob_item, allocated and the description, whose second 32-bit word is the item
                // size.
                let item = u64::from(self.memory.u32(self.word(address, 40).wrapping_add(4)).unwrap_or(0));
                kind.basicsize.saturating_add(self.word(address, 32).saturating_mul(item))
            }
            Kind::Code if kind.itemsize != 0 => {
                let size = kind.basicsize.saturating_add(length().saturating_mul(kind.itemsize));
                size.checked_next_multiple_of(8).unwrap_or(size)
            }
            _ if kind.itemsize != 0 => kind.basicsize.saturating_add(length().saturating_mul(kind.itemsize)),
            _ => kind.basicsize,
        }
    }

    fn frame_slots(&self, code: u64) -> u64 {
        let layout = &self.layout;
        let length =
            |offset: Option<u64>| offset.map_or(0, |offset| self.word(self.word(code, offset), 16) & 0xffff);
        let names =
            length(Some(layout.code_varnames)) + length(layout.code_cellvars) + length(layout.code_freevars);
        names + u64::from(self.memory.u32(code.wrapping_add(layout.code_stacksize)).unwrap_or(0))
    }

    fn size_of_dict(&self, address: u64, kind: &Type) -> u64 {
        let Some(keys) = self.layout.keys(&self.memory, self.word(address, self.layout.dict_keys)) else {
            return kind.basicsize;
        };
        let mut size = kind.basicsize;
        if self.word(address, self.layout.dict_values) != 0 {
            let room = if self.layout.minor < 11 { keys.usable } else { keys.shared_usable };
            size = size.saturating_add(8 * room);
        }
        // Keys that a class shares count for the class.
        if keys.refcount == 1 {
            size = size.saturating_add(keys.bytes);
        }
        size
    }

    fn size_of_string(&self, address: u64) -> u64 {
        let layout = &self.layout;
        let Some(head) = self.text_head(address) else { return layout.str_ascii_size };
        let data = (head.length + 1).saturating_mul(head.kind);
        let mut size;
        let data_at;
        match (head.is_compact, head.is_ascii) {
            (true, true) => {
                size = layout.str_ascii_size + data;
                data_at = address.wrapping_add(layout.str_ascii_size);
            }
            (true, false) => {
                size = layout.str_compact_size + data;
                data_at = address.wrapping_add(layout.str_compact_size);
            }
            (false, _) => {
                data_at = self.word(address, layout.str_data);
                size = layout.str_size + if data_at == 0 { 0 } else { data };
            }
        }
        let is_short = head.is_compact && head.is_ascii;
        if let Some(offset) = layout.str_wstr {
            let wide = self.word(address, offset);
            if wide != 0 && (head.kind == 0 || wide != data_at) {
                let length = match layout.str_wstr_length {
                    Some(offset) if !is_short => self.word(address, offset),
                    _ => head.length,
                };
                size = size.saturating_add(length.saturating_add(1).saturating_mul(4));
            }
        }
        if !is_short {
            let utf8 = self.word(address, layout.str_utf8);
            if utf8 != 0 && utf8 != data_at {
                size = size.saturating_add(self.word(address, layout.str_utf8_length).saturating_add(1));
            }
        }
        size
    }

    /// Bytes of an instance's attribute values that its size leaves out, in 3.11 and 3.12.
    pub(super) fn beside(&self, address: u64, kind: &Type) -> u64 {
        if !kind.has_managed_dict() {
            return 0;
        }
        let word = self.word(address, 0_u64.wrapping_sub(24));
        let has_values = match self.layout.minor {
            11 => word == 0 && self.word(address, 0_u64.wrapping_sub(32)) != 0,
            12 => word & 1 != 0,
            _ => false,
        };
        let keys = if has_values { self.layout.keys(&self.memory, kind.cached_keys) } else { None };
        // Before the values is the insertion order, one byte each and two more, rounded up
        // (Objects/dictobject.c, new_values).
        keys.map_or(0, |keys| (keys.shared_usable + 2).next_multiple_of(8) + 8 * keys.shared_usable)
    }
}
