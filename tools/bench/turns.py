"""Sides that are measured in turns, and what can be said of their ratios."""

import os
import pathlib
import statistics
import time

# All the time that the slowest hundredth of requests has is a hundredth of one CPU's: a run from which as much was stolen has
# another 99th percentile for that alone.
STOLEN_MAX = 0.01
TRIES = 6
RESAMPLES = 2000


class Disturbed(Exception):
    """Something else took this machine's CPUs away for too much of each try."""


def stolen_s():
    """CPU seconds that the hypervisor gave to others while somebody here wanted them."""
    return int(pathlib.Path("/proc/stat").read_text().split(maxsplit=9)[8]) / os.sysconf("SC_CLK_TCK")


def undisturbed(run, seconds):
    for _ in range(TRIES):
        stolen, start_s = stolen_s(), time.monotonic()
        result = run(seconds)
        if stolen_s() - stolen <= STOLEN_MAX * (time.monotonic() - start_s):
            return result
    raise Disturbed


def middle(draw):
    """Between what the middle 95 % of the values that are drawn lie."""
    drawn = sorted(draw() for _ in range(RESAMPLES))
    return drawn[RESAMPLES // 40], drawn[-RESAMPLES // 40 - 1]


def with_range(sample, dice):
    """The median of a sample, and the middle 95 % of the medians of resampled ones."""
    return statistics.median(sample), *middle(lambda: statistics.median(dice.choices(sample, k=len(sample))))
