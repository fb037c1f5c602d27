#!/usr/bin/env python3
"""Where the fields of CPython's structures lie, from the headers of installed versions.

    tools/python-offsets.py                       rewrites crates/inspect/src/python/layout/tables.rs
    tools/python-offsets.py --json INCLUDE MINOR  prints the offsets of one version, for the test that compares

A C compiler does the sums. Headers are looked for under ~/.pyenv/versions. Of 3.14 there are none here: it is
written from 3.13 with the differences named below, marked as untested, and the process corrects most of it.
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
TABLES = ROOT / "crates/inspect/src/python/layout/tables.rs"


def offset(struct, field):
    return f"offsetof({struct}, {field})"


# The field, whether it may be absent, and by which expression it is had from which minor version on (None: absent).
FIELDS = [
    ("gc_head", False, {6: "sizeof(PyGC_Head)"}),
    ("runtime_interpreters", True, {6: None, 7: offset("_PyRuntimeState", "interpreters.head")}),
    ("runtime_gc", True, {6: None, 7: offset("_PyRuntimeState", "gc"), 9: None}),
    ("interp_gc", True, {6: None, 9: offset("PyInterpreterState", "gc")}),
    ("interp_next", False, {6: offset("PyInterpreterState", "next")}),
    ("interp_id", True, {6: None, 7: offset("PyInterpreterState", "id")}),
    ("interp_threads", False, {6: offset("PyInterpreterState", "tstate_head"), 11: offset("PyInterpreterState", "threads.head")}),
    ("interp_modules", False, {6: offset("PyInterpreterState", "modules"), 12: offset("PyInterpreterState", "imports.modules")}),
    ("interp_size", False, {6: "sizeof(PyInterpreterState)"}),
    ("tstate_next", False, {6: offset("PyThreadState", "next")}),
    ("tstate_interp", False, {6: offset("PyThreadState", "interp")}),
    ("tstate_frame", False, {6: offset("PyThreadState", "frame"), 11: offset("PyThreadState", "cframe"), 13: offset("PyThreadState", "current_frame")}),
    ("tstate_thread_id", False, {6: offset("PyThreadState", "thread_id")}),
    ("tstate_native_id", True, {6: None, 11: offset("PyThreadState", "native_thread_id")}),
    ("cframe_frame", True, {6: None, 11: offset("_PyCFrame", "current_frame"), 13: None}),
    ("frame_previous", False, {6: offset("PyFrameObject", "f_back"), 11: offset("_PyInterpreterFrame", "previous")}),
    ("frame_code", False, {6: offset("PyFrameObject", "f_code"), 11: offset("_PyInterpreterFrame", "f_code"), 13: offset("_PyInterpreterFrame", "f_executable")}),
    ("frame_globals", True, {6: offset("PyFrameObject", "f_globals"), 11: offset("_PyInterpreterFrame", "f_globals")}),
    ("frame_localsplus", False, {6: offset("PyFrameObject", "f_localsplus"), 11: offset("_PyInterpreterFrame", "localsplus")}),
    ("frame_stacktop", False, {6: offset("PyFrameObject", "f_stacktop"), 10: offset("PyFrameObject", "f_stackdepth"), 11: offset("_PyInterpreterFrame", "stacktop")}),
    ("frame_owner", True, {6: None, 11: offset("_PyInterpreterFrame", "owner")}),
    ("frame_object", True, {6: None, 11: offset("_PyInterpreterFrame", "frame_obj")}),
    ("frameobj_frame", True, {6: None, 11: offset("PyFrameObject", "f_frame")}),
    ("code_name", False, {6: offset("PyCodeObject", "co_name")}),
    ("code_qualname", True, {6: None, 11: offset("PyCodeObject", "co_qualname")}),
    ("code_filename", False, {6: offset("PyCodeObject", "co_filename")}),
    ("code_firstlineno", False, {6: offset("PyCodeObject", "co_firstlineno")}),
    ("code_varnames", False, {6: offset("PyCodeObject", "co_varnames"), 11: offset("PyCodeObject", "co_localsplusnames")}),
    ("code_cellvars", True, {6: offset("PyCodeObject", "co_cellvars"), 11: None}),
    ("code_freevars", True, {6: offset("PyCodeObject", "co_freevars"), 11: None}),
    ("code_stacksize", False, {6: offset("PyCodeObject", "co_stacksize")}),
    ("type_name", False, {6: offset("PyTypeObject", "tp_name")}),
    ("type_basicsize", False, {6: offset("PyTypeObject", "tp_basicsize")}),
    ("type_itemsize", False, {6: offset("PyTypeObject", "tp_itemsize")}),
    ("type_flags", False, {6: offset("PyTypeObject", "tp_flags")}),
    ("type_members", False, {6: offset("PyTypeObject", "tp_members")}),
    ("type_weaklistoffset", False, {6: offset("PyTypeObject", "tp_weaklistoffset")}),
    ("type_dictoffset", False, {6: offset("PyTypeObject", "tp_dictoffset")}),
    ("type_base", False, {6: offset("PyTypeObject", "tp_base")}),
    ("type_dict", False, {6: offset("PyTypeObject", "tp_dict")}),
    ("type_size", False, {6: "sizeof(PyTypeObject)"}),
    ("heap_type_name", False, {6: offset("PyHeapTypeObject", "ht_name")}),
    ("heap_type_qualname", False, {6: offset("PyHeapTypeObject", "ht_qualname")}),
    ("heap_type_cached_keys", False, {6: offset("PyHeapTypeObject", "ht_cached_keys")}),
    ("heap_type_size", False, {6: "sizeof(PyHeapTypeObject)"}),
    ("dict_used", False, {6: offset("PyDictObject", "ma_used")}),
    ("dict_keys", False, {6: offset("PyDictObject", "ma_keys")}),
    ("dict_values", False, {6: offset("PyDictObject", "ma_values")}),
    ("dict_size", False, {6: "sizeof(PyDictObject)"}),
    ("list_items", False, {6: offset("PyListObject", "ob_item")}),
    ("list_allocated", False, {6: offset("PyListObject", "allocated")}),
    ("list_size", False, {6: "sizeof(PyListObject)"}),
    ("tuple_items", False, {6: offset("PyTupleObject", "ob_item")}),
    ("set_mask", False, {6: offset("PySetObject", "mask")}),
    ("set_table", False, {6: offset("PySetObject", "table")}),
    ("set_smalltable", False, {6: offset("PySetObject", "smalltable")}),
    ("set_size", False, {6: "sizeof(PySetObject)"}),
    ("str_length", False, {6: offset("PyASCIIObject", "length")}),
    ("str_state", False, {6: offset("PyASCIIObject", "state")}),
    ("str_ascii_size", False, {6: "sizeof(PyASCIIObject)"}),
    ("str_compact_size", False, {6: "sizeof(PyCompactUnicodeObject)"}),
    ("str_size", False, {6: "sizeof(PyUnicodeObject)"}),
    ("str_data", False, {6: offset("PyUnicodeObject", "data")}),
    ("str_utf8_length", False, {6: offset("PyCompactUnicodeObject", "utf8_length")}),
    ("str_utf8", False, {6: offset("PyCompactUnicodeObject", "utf8")}),
    ("str_wstr", True, {6: offset("PyASCIIObject", "wstr"), 12: None}),
    ("str_wstr_length", True, {6: offset("PyCompactUnicodeObject", "wstr_length"), 12: None}),
    ("bytes_items", False, {6: offset("PyBytesObject", "ob_sval")}),
    ("bytearray_alloc", False, {6: offset("PyByteArrayObject", "ob_alloc")}),
    ("long_size", False, {6: offset("PyVarObject", "ob_size"), 12: offset("PyLongObject", "long_value.lv_tag")}),
    ("long_digits", False, {6: offset("PyLongObject", "ob_digit"), 12: offset("PyLongObject", "long_value.ob_digit")}),
    ("gen_frame", False, {6: offset("PyGenObject", "gi_frame"), 11: offset("PyGenObject", "gi_iframe")}),
    ("gen_frame_state", True, {6: None, 11: offset("PyGenObject", "gi_frame_state")}),
    ("weakref_object", False, {6: offset("PyWeakReference", "wr_object")}),
    ("weakref_callback", False, {6: offset("PyWeakReference", "wr_callback")}),
    ("cell_value", False, {6: offset("PyCellObject", "ob_ref")}),
    ("method_function", False, {6: offset("PyMethodObject", "im_func")}),
    ("method_self", False, {6: offset("PyMethodObject", "im_self")}),
    # The structure is private to Objects/moduleobject.c before 3.11; its first field is the dictionary in all of them.
    ("module_dict", False, {6: "sizeof(PyObject)", 11: offset("PyModuleObject", "md_dict")}),
    ("builtin_self", False, {6: offset("PyCFunctionObject", "m_self")}),
    ("builtin_module", False, {6: offset("PyCFunctionObject", "m_module")}),
    ("function_code", False, {6: offset("PyFunctionObject", "func_code")}),
    ("function_globals", False, {6: offset("PyFunctionObject", "func_globals")}),
    ("function_name", False, {6: offset("PyFunctionObject", "func_name")}),
    ("function_qualname", False, {6: offset("PyFunctionObject", "func_qualname")}),
    ("function_defaults", False, {6: offset("PyFunctionObject", "func_defaults")}),
    ("function_kwdefaults", False, {6: offset("PyFunctionObject", "func_kwdefaults")}),
    ("function_closure", False, {6: offset("PyFunctionObject", "func_closure")}),
    ("function_doc", False, {6: offset("PyFunctionObject", "func_doc")}),
    ("function_dict", False, {6: offset("PyFunctionObject", "func_dict")}),
    ("function_module", False, {6: offset("PyFunctionObject", "func_module")}),
    ("function_annotations", False, {6: offset("PyFunctionObject", "func_annotations")}),
    ("function_builtins", True, {6: None, 10: offset("PyFunctionObject", "func_builtins")}),
]

# Headers that are needed beyond Python.h; what a version does not have is passed over.
HEADERS = [
    "frameobject.h", "structmember.h", "longintrepr.h",
    "internal/mem.h", "internal/pystate.h",
    "internal/pycore_pystate.h", "internal/pycore_gc.h", "internal/pycore_interp.h", "internal/pycore_runtime.h",
    "internal/pycore_frame.h", "internal/pycore_moduleobject.h", "internal/pycore_long.h",
    "internal/pycore_unicodeobject.h", "internal/pycore_dict.h", "internal/pycore_code.h",
]  # fmt: skip

# 3.14 has no headers here. Against 3.13 (Include/internal/pycore_interpframe_structs.h, Include/cpython/tupleobject.h of 3.14):
# a frame has a stack pointer of eight bytes in place of an int, a tuple keeps its hash before the items. The process says the
# others itself.
DIFFERENCES_3_14 = {"frame_localsplus": 80, "tuple_items": 32}


def chosen(by_minor, minor):
    best = max(m for m in by_minor if m <= minor)
    return by_minor[best]


def offsets(include, minor):
    """The offsets of one version, by name."""
    include = pathlib.Path(include)
    lines = ["#define Py_BUILD_CORE 1", "#define NEEDS_PY_IDENTIFIER 1", "#include <Python.h>", "#include <stddef.h>", "#include <stdio.h>"]
    for header in HEADERS:
        if (include / header).exists():
            lines.append(f'#include "{header}"')
    lines.append("int main(void) {")
    wanted = {}
    for name, _, by_minor in FIELDS:
        expression = chosen(by_minor, minor)
        if expression is None:
            wanted[name] = None
        else:
            lines.append(f'printf("{name} %zu\\n", (size_t)({expression}));')
    lines.append("return 0; }")
    with tempfile.TemporaryDirectory() as directory:
        source = pathlib.Path(directory) / "offsets.c"
        program = pathlib.Path(directory) / "offsets"
        source.write_text("\n".join(lines))
        command = ["gcc", "-w", "-std=gnu11", "-I", str(include), "-I", str(include / "internal"), "-o", str(program), str(source)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"3.{minor}: {done.stderr}")
        printed = subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout
    for line in printed.splitlines():
        name, value = line.split()
        wanted[name] = int(value)
    return {name: wanted[name] for name, _, _ in FIELDS}


def installed():
    found = {}
    for include in pathlib.Path.home().glob(".pyenv/versions/3.*/include/python3.*"):
        minor = int(re.match(r"python3\.(\d+)", include.name)[1])
        if minor >= 6:
            found[minor] = include
    return dict(sorted(found.items()))


def rows(minor, values, tested):
    """The fields of a version, as Rust writes them."""
    yield "minor", str(minor)
    yield "tested", str(tested).lower()
    for name, optional, _ in FIELDS:
        value = values[name]
        yield name, "None" if value is None else f"Some({value})" if optional else str(value)
    yield "str_state_shift", "0"


def main():
    if sys.argv[1:2] == ["--json"]:
        print(json.dumps(offsets(sys.argv[2], int(sys.argv[3]))))
        return
    versions = {minor: (offsets(include, minor), True) for minor, include in installed().items()}
    last, _ = versions[max(versions)]
    versions.setdefault(14, ({**last, **DIFFERENCES_3_14}, False))
    lines = [
        "//! Written by `tools/python-offsets.py` from the headers of CPython; not edited by hand.",
        "//!",
        "//! Each version is the one before with what differs.",
        "",
        "use super::Layout;",
        "",
    ]
    before, known = None, {}
    for minor, (values, tested) in versions.items():
        fields = dict(rows(minor, values, tested))
        lines.append(f"const V3_{minor}: Layout = Layout {{")
        lines += [f"    {name}: {value}," for name, value in fields.items() if known.get(name) != value]
        lines += [f"    ..V3_{before}"] if before else []
        lines += ["};", ""]
        before, known = minor, fields
    lines.append(f"pub(super) const TABLES: &[Layout] = &[{', '.join(f'V3_{minor}' for minor in versions)}];")
    TABLES.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
