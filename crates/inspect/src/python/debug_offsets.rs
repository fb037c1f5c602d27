//! An interpreter's description of its own layout: `_Py_DebugOffsets`, at the start of `_PyRuntime`
//! since 3.13.
//!
//! ```text
//! cookie "xdebugpy", version (PY_VERSION_HEX), free_threaded, then 64-bit numbers in a fixed order
//! ```
//!
//! The order is Include/internal/pycore_runtime.h (3.13) and pycore_debug_offsets.h (3.14).

use std::collections::HashMap;

use super::layout::Layout;
use crate::error::Error;
use crate::memory::Memory;

/// The first bytes of the structure.
pub(super) const COOKIE: &[u8; 8] = b"xdebugpy";
/// Limit of the offsets: the runtime structure of 3.13 has 300 KB.
const OFFSET_MAX: u64 = 8 << 20;

/// Structures and their fields, in the order of the numbers.
const V13: &[(&str, &str)] = &[
    ("runtime", "size finalizing interpreters"),
    (
        "interp",
        "size id next threads gc modules sysdict builtins ceval_gil gil gil_enabled gil_locked \
         gil_holder",
    ),
    ("tstate", "size prev next interp frame thread_id native_id datastack status"),
    ("frame", "size previous executable instr_ptr localsplus owner"),
    (
        "code",
        "size filename name qualname linetable firstlineno argcount localsplusnames \
         localspluskinds code_adaptive",
    ),
    ("object", "size type"),
    ("type", "size name repr flags"),
    ("tuple", "size items length"),
    ("list", "size items length"),
    ("dict", "size keys values"),
    ("float", "size value"),
    ("long", "size tag digits"),
    ("bytes", "size length items"),
    ("str", "size state length ascii_size"),
    ("gc", "size collecting"),
];

const V14: &[(&str, &str)] = &[
    ("runtime", "size finalizing interpreters"),
    (
        "interp",
        "size id next threads threads_main gc modules sysdict builtins ceval_gil gil gil_enabled \
         gil_locked gil_holder code_generation tlbc_generation",
    ),
    ("tstate", "size prev next interp frame thread_id native_id datastack status"),
    ("frame", "size previous executable instr_ptr localsplus owner stackpointer tlbc_index"),
    (
        "code",
        "size filename name qualname linetable firstlineno argcount localsplusnames \
         localspluskinds code_adaptive tlbc",
    ),
    ("object", "size type"),
    ("type", "size name repr flags"),
    ("tuple", "size items length"),
    ("list", "size items length"),
    ("set", "size used table mask"),
    ("dict", "size keys values"),
    ("float", "size value"),
    ("long", "size tag digits"),
    ("bytes", "size length items"),
    ("str", "size state length ascii_size"),
    ("gc", "size collecting"),
    ("gen", "size name iframe frame_state"),
];

/// `interp.next`, ….
fn names(minor: u32) -> impl Iterator<Item = (&'static str, &'static str)> {
    let table = if minor == 13 { V13 } else { V14 };
    table
        .iter()
        .flat_map(|(structure, fields)| fields.split_whitespace().map(move |field| (*structure, field)))
}

/// The version and whether it is free-threaded, of a structure that has the cookie.
pub(super) fn version<M: Memory + ?Sized>(memory: &M, runtime: u64) -> Option<(u64, bool)> {
    let mut head = [0; 24];
    memory.exact(runtime, &mut head)?;
    if head.first_chunk::<8>() != Some(COOKIE) {
        return None;
    }
    let word = |at: usize| head[at..].first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    Some((word(8), word(16) != 0))
}

/// The table of the version, corrected by the process' own offsets.
pub(super) fn apply<M: Memory + ?Sized>(memory: &M, runtime: u64, table: &Layout) -> Result<Layout, Error> {
    let mut offsets = HashMap::new();
    for (name, at) in names(table.minor).zip((24..).step_by(8)) {
        let offset = memory.u64(runtime.wrapping_add(at)).filter(|offset| *offset <= OFFSET_MAX);
        let offset = offset.ok_or_else(|| {
            Error::Unusable(
                "the interpreter's own account of its layout (_Py_DebugOffsets) makes no sense".to_owned(),
            )
        })?;
        offsets.insert(name, offset);
    }
    let of = |name: &str| offsets.get(&name.split_once('.')?).copied();
    let mut layout = table.clone();
    let set = |field: &mut u64, name: &str| *field = of(name).unwrap_or(*field);
    let set_some = |field: &mut Option<u64>, name: &str| *field = of(name).or(*field);
    set_some(&mut layout.runtime_interpreters, "runtime.interpreters");
    set(&mut layout.interp_size, "interp.size");
    set_some(&mut layout.interp_id, "interp.id");
    set(&mut layout.interp_next, "interp.next");
    set(&mut layout.interp_threads, "interp.threads");
    set_some(&mut layout.interp_gc, "interp.gc");
    set(&mut layout.interp_modules, "interp.modules");
    set(&mut layout.tstate_next, "tstate.next");
    set(&mut layout.tstate_interp, "tstate.interp");
    set(&mut layout.tstate_frame, "tstate.frame");
    set(&mut layout.tstate_thread_id, "tstate.thread_id");
    set_some(&mut layout.tstate_native_id, "tstate.native_id");
    set(&mut layout.frame_previous, "frame.previous");
    set(&mut layout.frame_code, "frame.executable");
    set(&mut layout.frame_localsplus, "frame.localsplus");
    set_some(&mut layout.frame_owner, "frame.owner");
    set(&mut layout.frame_stacktop, "frame.stackpointer");
    set(&mut layout.code_filename, "code.filename");
    set(&mut layout.code_name, "code.name");
    set_some(&mut layout.code_qualname, "code.qualname");
    set(&mut layout.code_firstlineno, "code.firstlineno");
    set(&mut layout.code_varnames, "code.localsplusnames");
    set(&mut layout.type_size, "type.size");
    set(&mut layout.type_name, "type.name");
    set(&mut layout.type_flags, "type.flags");
    set(&mut layout.tuple_items, "tuple.items");
    set(&mut layout.list_size, "list.size");
    set(&mut layout.list_items, "list.items");
    set(&mut layout.set_size, "set.size");
    set(&mut layout.set_table, "set.table");
    set(&mut layout.set_mask, "set.mask");
    set(&mut layout.dict_size, "dict.size");
    set(&mut layout.dict_keys, "dict.keys");
    set(&mut layout.dict_values, "dict.values");
    set(&mut layout.long_size, "long.tag");
    set(&mut layout.long_digits, "long.digits");
    set(&mut layout.bytes_items, "bytes.items");
    set(&mut layout.str_size, "str.size");
    set(&mut layout.str_state, "str.state");
    set(&mut layout.str_length, "str.length");
    set(&mut layout.str_ascii_size, "str.ascii_size");
    set(&mut layout.gen_frame, "gen.iframe");
    set_some(&mut layout.gen_frame_state, "gen.frame_state");
    Ok(layout)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Image, Word};

    #[test]
    fn what_the_process_says_goes_before_the_table() {
        let table = Layout::of(14).unwrap();
        let mut bytes = [0; 2000];
        bytes[..8].copy_from_slice(COOKIE);
        bytes[8..16].copy_from_slice(&0x030e_00f0_u64.to_le_bytes());
        let at = names(14).position(|name| name == ("frame", "localsplus")).unwrap();
        bytes[24 + 8 * at..][..8].copy_from_slice(&88_u64.to_le_bytes());
        let mut image = Image::new(Word::Eight);
        image.add(0x1000, &bytes, "");
        assert_eq!(version(&image, 0x1000), Some((0x030e_00f0, false)));
        assert_eq!(version(&image, 0x1008), None);
        let layout = apply(&image, 0x1000, table).unwrap();
        assert_eq!(layout.frame_localsplus, 88);
        image.write(0x1000 + 24, &[0xff; 8]);
        assert!(apply(&image, 0x1000, table).is_err());
    }
}
