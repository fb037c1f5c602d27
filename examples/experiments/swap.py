#!/usr/bin/env python3
"""swap.py on|off PATH: makes a swap file of 256 MiB and uses it, or stops using it and removes it."""

import os
import subprocess
import sys

SIZE = 256 << 20


def main():
    what, path = sys.argv[1:]
    if what == "on":
        # Written out: a swap file may have no holes.
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            for _ in range(SIZE >> 20):
                file.write(bytes(1 << 20))
        subprocess.run(["mkswap", path], check=True)
        subprocess.run(["swapon", path], check=True)
    elif os.path.exists(path):
        with open("/proc/swaps") as swaps:
            if any(line.split()[0] == os.path.realpath(path) for line in swaps):
                subprocess.run(["swapoff", path], check=True)
        os.remove(path)


if __name__ == "__main__":
    main()
