#!/usr/bin/env python3
"""swap.py on|off DIR: uses a swap file of 256 MiB, DIR/swap, and makes a cgroup of 192 MiB, whose path goes into DIR/group;
or undoes both, as far as they were done."""

import os
import subprocess
import sys

SIZE = 256 << 20
LIMIT = 192 << 20


def main():
    what, folder = sys.argv[1:]
    if what == "on":
        swap_on(f"{folder}/swap")
        make_group(folder)
    else:
        remove_group(folder)
        swap_off(f"{folder}/swap")


def swap_on(path):
    # Written out: a swap file may have no holes.
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        for _ in range(SIZE >> 20):
            file.write(bytes(1 << 20))
    subprocess.run(["mkswap", path], check=True)
    subprocess.run(["swapon", path], check=True)


def swap_off(path):
    if not os.path.exists(path):
        return
    with open("/proc/swaps") as swaps:
        if any(line.split()[0] == os.path.realpath(path) for line in swaps):
            subprocess.run(["swapoff", path], check=True)
    os.remove(path)


def make_group(folder):
    """A cgroup with the limit, of either version."""
    with open("/proc/self/mounts") as mounts:
        mounts = [line.split()[1:4] for line in mounts]
    old = [place for place, kind, options in mounts if kind == "cgroup" and "memory" in options.split(",")]
    if old:
        place, limit = old[0], "memory.limit_in_bytes"
    else:
        place, limit = next(place for place, kind, _ in mounts if kind == "cgroup2"), "memory.max"
        control = f"{place}/cgroup.subtree_control"
        if "memory" not in read(control).split():
            write(f"{folder}/subtree_control", control)
            write(control, "+memory")
    group = f"{place}/mitra-experiment"
    write(f"{folder}/group", group)
    os.makedirs(group, exist_ok=True)
    write(f"{group}/{limit}", str(LIMIT))


def remove_group(folder):
    group, control = f"{folder}/group", f"{folder}/subtree_control"
    if os.path.exists(group) and os.path.exists(read(group)):
        os.rmdir(read(group))
    if os.path.exists(control):
        write(read(control), "-memory")
        os.remove(control)


def read(path):
    with open(path) as file:
        return file.read()


def write(path, text):
    with open(path, "w") as file:
        file.write(text)


if __name__ == "__main__":
    main()
