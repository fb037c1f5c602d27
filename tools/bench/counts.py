"""What requests took while a program worked, by when they were answered: counted inside the program, by counts.c."""

import operator
import os
import pathlib
import re
import subprocess
import time

HERE = pathlib.Path(__file__).parent
# How the numbers lie in the file.
DEFINED = dict(re.findall(r"^#define COUNTS_(\w+) (\d+)$", (HERE / "counts.h").read_text(), re.MULTILINE))
BIN_S = int(DEFINED["BIN_NS"]) / 1e9
SUB_BITS = int(DEFINED["SUB_BITS"])
BUCKETS = (int(DEFINED["OCTAVES"]) + 1) << SUB_BITS


def compiled(scratch):
    """The library that counts, to be preloaded."""
    library = scratch / "counts.so"
    cc = os.environ.get("CC", "cc")
    subprocess.run([cc, "-O2", "-Wall", "-fPIC", "-shared", "-o", library, HERE / "counts.c"], check=True)
    return library


class Counts:
    """A file of counts for the next `seconds`. It is in memory, as writing it back would be a load by itself, and goes with this process."""

    def __init__(self, seconds):
        self.start_s = time.monotonic()
        self.fd = os.memfd_create("counts")
        os.truncate(self.fd, int(seconds / BIN_S) * BUCKETS * 4)

    def environment(self, library, program, whole):
        """For the program that is to be counted in, of that name, and whoever starts it."""
        path = f"/proc/{os.getpid()}/fd/{self.fd}"
        more = {"COUNTS": f"{int(1e9 * self.start_s)}:{path}", "COUNTS_OF": program, "LD_PRELOAD": str(library)}
        return os.environ | more | ({"COUNTS_WHOLE": "1"} if whole else {})

    def bin_of(self, monotonic_s):
        return int((monotonic_s - self.start_s) / BIN_S)

    def between(self, first, end):
        """The histogram of the bins from `first` up to before `end`."""
        cells = memoryview(os.pread(self.fd, (end - first) * BUCKETS * 4, first * BUCKETS * 4)).cast("I")
        total = [0] * BUCKETS
        for at in range(0, len(cells), BUCKETS):
            total = list(map(operator.add, total, cells[at : at + BUCKETS]))
        return total

    def close(self):
        os.close(self.fd)


def lower_edge_ns(bucket):
    octave, sub = bucket >> SUB_BITS, bucket & ((1 << SUB_BITS) - 1)
    return sub if octave == 0 else ((1 << SUB_BITS) + sub) << (octave - 1)


def percentile_us(histogram, share):
    """Straight between the edges of the bucket in which it lies."""
    wanted, seen = share * sum(histogram), 0
    for bucket, count in enumerate(histogram):
        if count and seen + count >= wanted:
            low, high = lower_edge_ns(bucket), lower_edge_ns(bucket + 1)
            return (low + (high - low) * (wanted - seen) / count) / 1e3
        seen += count
    raise ValueError("nothing was counted")
