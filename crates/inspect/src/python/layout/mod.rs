//! Offsets of the fields of CPython's structures, per version.
//!
//! `tables.rs` is written by `tools/python-offsets.py` from the headers of installed versions with
//! a C compiler, and a test compares the two. What the headers do not have stands here, with its
//! source. From 3.13 on the process says part of it itself ([`super::debug_offsets`]), which goes
//! before the table.
//!
//! ```text
//! object          ob_refcnt 0 (since 3.12 the low 32 bits; all ones or high bits: immortal), ob_type 8, ob_size 16 where it varies
//! collector's     before the object: next, prev (16 bytes; before 3.8: next, prev, refs, 32 bytes). Low bits of both are flags
//! before that     3.11: dict -24, values -32;  3.12: dict, or values less one, at -24, weak references -32;  3.13: dict at -24
//! dict keys       to 3.10: refcnt 0, size 8, lookup 16, usable 24, entries 32, indices 40 (Objects/dict-common.h)
//!                 3.11 on: refcnt 0, log2 of size 8, log2 of index bytes 9, kind 10, version 12, usable 16, entries 24, indices 32
//! dict entry      hash, key, value; 3.11 on without the hash where all keys are strings (kind is not 0)
//! values          array of pointers; 3.13 on after four bytes (capacity, size, embedded, valid) and four of padding
//! set entry       key, hash
//! deque           size 16, left block 24, right block 32, left index 40; block: left link, 64 items, right link (_collectionsmodule.c)
//! member          name 0, type 8, offset 16, flags 24, doc 32 (PyMemberDef); type 6 and 16 are objects
//! ```

mod tables;

use serde::Serialize;

use crate::memory::Memory;

/// Type flags, of Include/object.h.
pub(super) const HEAP_TYPE: u64 = 1 << 9;
pub(super) const HAVE_GC: u64 = 1 << 14;
/// 3.13: the values of attributes lie behind the object.
pub(super) const INLINE_VALUES: u64 = 1 << 2;
/// 3.12: weak references are kept before the object.
pub(super) const MANAGED_WEAKREF: u64 = 1 << 3;
/// 3.11: the dictionary is kept before the object.
pub(super) const MANAGED_DICT: u64 = 1 << 4;
/// Instances are types.
pub(super) const TYPE_SUBCLASS: u64 = 1 << 31;

/// The offsets of one minor version, in bytes. `None` where the version has no such field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[expect(
    missing_docs,
    reason = "each is the field of CPython that it is named after; see tools/python-offsets.py for which"
)]
pub struct Layout {
    pub minor: u32,
    /// Whether it was compared with a process of that version.
    pub tested: bool,
    pub gc_head: u64,
    pub runtime_interpreters: Option<u64>,
    pub runtime_gc: Option<u64>,
    pub interp_gc: Option<u64>,
    pub interp_next: u64,
    pub interp_id: Option<u64>,
    pub interp_threads: u64,
    pub interp_modules: u64,
    pub interp_size: u64,
    pub tstate_next: u64,
    pub tstate_interp: u64,
    pub tstate_frame: u64,
    pub tstate_thread_id: u64,
    pub tstate_native_id: Option<u64>,
    pub cframe_frame: Option<u64>,
    pub frame_previous: u64,
    pub frame_code: u64,
    pub frame_globals: Option<u64>,
    pub frame_localsplus: u64,
    pub frame_stacktop: u64,
    pub frame_owner: Option<u64>,
    pub frame_object: Option<u64>,
    pub frameobj_frame: Option<u64>,
    pub code_name: u64,
    pub code_qualname: Option<u64>,
    pub code_filename: u64,
    pub code_firstlineno: u64,
    pub code_varnames: u64,
    pub code_cellvars: Option<u64>,
    pub code_freevars: Option<u64>,
    pub code_stacksize: u64,
    pub type_name: u64,
    pub type_basicsize: u64,
    pub type_itemsize: u64,
    pub type_flags: u64,
    pub type_members: u64,
    pub type_weaklistoffset: u64,
    pub type_dictoffset: u64,
    pub type_base: u64,
    pub type_dict: u64,
    pub type_size: u64,
    pub heap_type_name: u64,
    pub heap_type_qualname: u64,
    pub heap_type_cached_keys: u64,
    pub heap_type_size: u64,
    pub dict_used: u64,
    pub dict_keys: u64,
    pub dict_values: u64,
    pub dict_size: u64,
    pub list_items: u64,
    pub list_allocated: u64,
    pub list_size: u64,
    pub tuple_items: u64,
    pub set_mask: u64,
    pub set_table: u64,
    pub set_smalltable: u64,
    pub set_size: u64,
    pub str_length: u64,
    pub str_state: u64,
    pub str_ascii_size: u64,
    pub str_compact_size: u64,
    pub str_size: u64,
    pub str_data: u64,
    pub str_utf8_length: u64,
    pub str_utf8: u64,
    pub str_wstr: Option<u64>,
    pub str_wstr_length: Option<u64>,
    pub bytes_items: u64,
    pub bytearray_alloc: u64,
    pub long_size: u64,
    pub long_digits: u64,
    pub gen_frame: u64,
    pub gen_frame_state: Option<u64>,
    pub weakref_object: u64,
    pub weakref_callback: u64,
    pub cell_value: u64,
    pub method_function: u64,
    pub method_self: u64,
    pub module_dict: u64,
    pub builtin_self: u64,
    pub builtin_module: u64,
    pub function_code: u64,
    pub function_globals: u64,
    pub function_name: u64,
    pub function_qualname: u64,
    pub function_defaults: u64,
    pub function_kwdefaults: u64,
    pub function_closure: u64,
    pub function_doc: u64,
    pub function_dict: u64,
    pub function_module: u64,
    pub function_annotations: u64,
    pub function_builtins: Option<u64>,
    /// By how many bits the state of a string is shifted: some builds of 3.14 have sixteen bits for
    /// what was two.
    pub str_state_shift: u32,
}

/// The entries of a dictionary's keys.
#[derive(Debug, Clone, Copy)]
pub(super) struct Keys {
    /// Address of the first entry.
    pub entries: u64,
    /// Number of entries ever used.
    pub count: u64,
    /// Bytes of an entry, and where in it key and value lie.
    pub stride: u64,
    pub key: u64,
    pub value: u64,
    /// Bytes of the whole.
    pub bytes: u64,
    /// How many entries there is room for.
    pub usable: u64,
    /// Values there may be of whoever shares these keys.
    pub shared_usable: u64,
    pub refcount: u64,
}

impl Layout {
    /// The table of a minor version.
    #[must_use]
    pub fn of(minor: u32) -> Option<&'static Layout> {
        tables::TABLES.iter().find(|table| table.minor == minor)
    }

    /// The versions with tables.
    pub fn minors() -> impl Iterator<Item = u32> {
        tables::TABLES.iter().map(|table| table.minor)
    }

    /// Reads the head of a dictionary's keys; `None` where it makes no sense.
    pub(super) fn keys<M: Memory + ?Sized>(&self, memory: &M, at: u64) -> Option<Keys> {
        // 2 to the 40: more entries than memory has.
        const LOG2_MAX: u32 = 40;
        let mut head = [0; 40];
        if at == 0 {
            return None;
        }
        memory.exact(at, &mut head[..if self.minor < 11 { 40 } else { 32 }])?;
        let word = |i: usize| head[8 * i..].first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let (size, index_bytes, count, header, stride, is_plain, shared_usable);
        if self.minor < 11 {
            size = word(1);
            if !size.is_power_of_two() || size.ilog2() > LOG2_MAX {
                return None;
            }
            let width = match size {
                0..=0xff => 1,
                0x100..=0xffff => 2,
                0x1_0000..=0xffff_ffff => 4,
                _ => 8,
            };
            index_bytes = size * width;
            (count, header, stride, is_plain) = (word(4), 40, 24, false);
            shared_usable = (size << 1) / 3;
        } else {
            let (log2_size, log2_index) = (u32::from(head[8]), u32::from(head[9]));
            if log2_size > LOG2_MAX || log2_index > LOG2_MAX + 3 {
                return None;
            }
            size = 1 << log2_size;
            index_bytes = 1 << log2_index;
            is_plain = head[10] != 0;
            (count, header, stride) = (word(3), 32, if is_plain { 16 } else { 24 });
            shared_usable = word(2).checked_add(count)?;
        }
        // USABLE_FRACTION of Objects/dictobject.c.
        let usable = (size << 1) / 3;
        // Split keys of 3.11 on may be full beyond it by none; a table that says so is torn.
        if count > usable.max(shared_usable.min(64)) {
            return None;
        }
        Some(Keys {
            entries: at.checked_add(header + index_bytes)?,
            count,
            stride,
            key: if is_plain { 0 } else { 8 },
            value: if is_plain { 8 } else { 16 },
            bytes: header + index_bytes + usable * stride,
            usable,
            shared_usable: shared_usable.min(usable.max(64)),
            refcount: word(0),
        })
    }
}
