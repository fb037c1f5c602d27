#!/usr/bin/env python3
"""memory-mix.py DIR SECONDS: in the cgroup that DIR/group names (swap.py), touches random pages of 160 MiB of memory and
reads random pages of a file of 160 MiB, and prints how many rounds of both it went through in a second. The file is written
inside of the cgroup too: the one whose task brings a page into memory is charged for it."""

import json
import mmap
import os
import random
import sys
import time

BYTES = 160 << 20
PAGE = 4096
# Of each kind, in a round.
PAGES = 64


def main():
    folder, seconds = sys.argv[1], float(sys.argv[2])
    path = f"{folder}/file"
    with open(f"{folder}/group") as file:
        group = file.read()
    with open(f"{group}/cgroup.procs", "w") as procs:
        procs.write("0")
    with open(path, "wb") as file:
        for _ in range(BYTES >> 20):
            file.write(os.urandom(1 << 20))
        os.fsync(file.fileno())
    work(path, seconds)


def work(path, seconds):
    memory = mmap.mmap(-1, BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
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
