#!/usr/bin/env python3
"""loop-fs.py mount ext4|xfs|btrfs DIR: makes a file system of 512 MiB in DIR/image, mounts it at DIR/mount through a loop
device, and writes sysbench's files there. loop-fs.py unmount DIR undoes it, as far as it was done."""

import os
import subprocess
import sys

SIZE = 512 << 20


def run(*argv, **options):
    subprocess.run(argv, check=True, **options)


def main():
    folder = sys.argv[-1]
    image, place = f"{folder}/image", f"{folder}/mount"
    if sys.argv[1] == "mount":
        kind = sys.argv[2]
        with open(image, "xb") as file:
            # Allocated, so that the outer file system has nothing to allocate while it is measured.
            os.posix_fallocate(file.fileno(), 0, SIZE)
        run(f"mkfs.{kind}", "-q", image)
        os.mkdir(place)
        run("mount", "-o", "loop", "-t", kind, image, place)
        run("sysbench", "fileio", "--file-total-size=64M", "--file-num=8", "prepare", cwd=place)
        return
    if os.path.ismount(place):
        run("umount", place)
    if os.path.exists(image):
        os.remove(image)


if __name__ == "__main__":
    main()
