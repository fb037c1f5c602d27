#!/usr/bin/env python3
"""memory-mix.py FILE SECONDS: in a cgroup of 192 MiB, touches random pages of 160 MiB of memory and reads random pages of
a file of 160 MiB, and prints how many rounds of both it went through in a second."""

import json
import mmap
import os
import random
import sys
import time

LIMIT = 192 << 20
BYTES = 160 << 20
PAGE = 4096
# Of each kind, in a round.
PAGES = 64


def main():
    path, seconds = sys.argv[1], float(sys.argv[2])
    with open(path, "wb") as file:
        for _ in range(BYTES >> 20):
            file.write(os.urandom(1 << 20))
        os.fsync(file.fileno())
    group = make_group()
    child = os.fork()
    if child == 0:
        with open(f"{group}/cgroup.procs", "w") as procs:
            procs.write("0")
        work(path, seconds)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    os.rmdir(group)
    sys.exit(os.waitstatus_to_exitcode(status))


def make_group():
    """A cgroup with the limit, of either version."""
    with open("/proc/self/mounts") as mounts:
        mounts = [line.split()[1:4] for line in mounts]
    old = [place for place, kind, options in mounts if kind == "cgroup" and "memory" in options.split(",")]
    if old:
        group, limit = f"{old[0]}/mitra-experiment", "memory.limit_in_bytes"
    else:
        place = next(place for place, kind, _ in mounts if kind == "cgroup2")
        with open(f"{place}/cgroup.subtree_control", "w") as control:
            control.write("+memory")
        group, limit = f"{place}/mitra-experiment", "memory.max"
    os.makedirs(group, exist_ok=True)
    with open(f"{group}/{limit}", "w") as file:
        file.write(str(LIMIT))
    return group


def work(path, seconds):
    memory = mmap.mmap(-1, BYTES)
    for at in range(0, BYTES, PAGE):
        memory[at] = 1
    file = os.open(path, os.O_RDONLY)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)
    rng = random.Random(1)
    rounds, longest, began = 0, 0.0, time.monotonic()
    before = began
    while before - began < seconds:
        for _ in range(PAGES):
            memory[rng.randrange(0, BYTES, PAGE)] = 2
            os.pread(file, 1, rng.randrange(0, BYTES, PAGE))
        now = time.monotonic()
        longest = max(longest, now - before)
        before = now
        rounds += 1
    print(json.dumps({"rounds_per_s": rounds / (before - began), "longest_s": longest}), flush=True)


if __name__ == "__main__":
    main()
