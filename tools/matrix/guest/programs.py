"""The BPF programs that the kernel holds, as it tells about them itself."""

import ctypes
import os
import platform
import struct

NUMBER = {"x86_64": 321, "aarch64": 280}.get(platform.machine())
PROG_GET_NEXT_ID, PROG_GET_FD_BY_ID, OBJ_GET_INFO_BY_FD = 11, 13, 15
# struct bpf_prog_info of include/uapi/linux/bpf.h; the last since 5.16.
TYPE, XLATED_BYTES, NAME, VERIFIED_INSNS = 0, 20, 64, 216
INFO_BYTES = 256
INSN_BYTES = 8
TYPES = {5: "tracepoint", 7: "perf_event", 9: "cgroup_sock", 18: "cgroup_sock_addr", 26: "tracing"}

libc = ctypes.CDLL(None, use_errno=True)


def _bpf(command, attributes):
    return libc.syscall(NUMBER, command, attributes, len(attributes))


def ids():
    """Of all programs."""
    if NUMBER is None:
        return
    last = 0
    while True:
        attributes = ctypes.create_string_buffer(struct.pack("=III", last, 0, 0))
        if _bpf(PROG_GET_NEXT_ID, attributes) != 0:
            return
        (last,) = struct.unpack_from("=I", attributes, 4)
        yield last


def info(number):
    """Name, type, instructions after the rewriting, and how many the verifier went through; None if it is gone."""
    fd = _bpf(PROG_GET_FD_BY_ID, ctypes.create_string_buffer(struct.pack("=III", number, 0, 0)))
    if fd < 0:
        return None
    try:
        out = ctypes.create_string_buffer(INFO_BYTES)
        attributes = ctypes.create_string_buffer(struct.pack("=IIQ", fd, INFO_BYTES, ctypes.addressof(out)))
        if _bpf(OBJ_GET_INFO_BY_FD, attributes) != 0:
            return None
        (length,) = struct.unpack_from("=I", attributes, 4)
        word = lambda at: struct.unpack_from("=I", out, at)[0]
        return {"name": out.raw[NAME:NAME + 16].split(b"\0")[0].decode(), "type": TYPES.get(word(TYPE), str(word(TYPE))),
                "insns": word(XLATED_BYTES) // INSN_BYTES,
                "verified": word(VERIFIED_INSNS) if length >= VERIFIED_INSNS + 4 and word(VERIFIED_INSNS) else None}
    finally:
        os.close(fd)
