#!/usr/bin/env -S python3 -B
"""Counts the instructions of a sample in user space. Counted, not timed: a busy machine gives the
same number.

callgrind runs `crates/collect/examples/sampling.rs` over a tree of fixtures. The difference between
two runs of different length leaves out the start, that between two numbers of tasks is the cost of
one task.

`tools/bench/instructions.tsv` has the allowed numbers. More than a twentieth above one of them
fails; `--write` stores what is measured now.
"""

import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
STORED = HERE / "instructions.tsv"
TREE = HERE.parents[1] / "crates/parse/fixtures/6.18"
# How much more is taken for noise: hash tables with random seeds, another libc.
RISE_MAX = 0.05
# Every tenth sample reads slow sources and everything of each task: both are multiples of ten.
SHORT, LONG = 10, 30
TASKS = 300


def instructions(program, tasks, samples):
    with tempfile.TemporaryDirectory(prefix="mitra-bench-") as scratch:
        argv = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={scratch}/out", program, TREE, tasks, samples]
        run = subprocess.run([str(arg) for arg in argv], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    collected = re.search(r"Collected : (\d+)", run.stderr)
    if run.returncode != 0 or not collected:
        raise RuntimeError(f"{program} under callgrind ended with {run.returncode}:\n{run.stderr}")
    return int(collected[1])


def per_sample(program, tasks):
    return (instructions(program, tasks, LONG) - instructions(program, tasks, SHORT)) / (LONG - SHORT)


def measure(program):
    machine = per_sample(program, 0)
    return {"machine": round(machine), "task": round((per_sample(program, TASKS) - machine) / TASKS)}


def stored():
    rows = (line.split("\t") for line in STORED.read_text().splitlines() if not line.startswith("#"))
    return {name: int(count) for name, count in rows}


def write(counts):
    lines = [
        "# Instructions of one sample in user space: of a machine without tasks, and of each idle task.",
        "# Written by `make bench-cost WRITE=1`.",
    ]
    lines += [f"{name}\t{count}" for name, count in counts.items()]
    STORED.write_text("\n".join(lines) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", help="the example `sampling` of mitra-collect, as it is released")
    parser.add_argument("--write", action="store_true", help="store what is so now")
    options = parser.parse_args()
    counts = measure(options.program)
    allowed = stored() if STORED.exists() else {}
    risen = False
    for name, count in counts.items():
        before = allowed.get(name)
        change = f", {count / before - 1:+.1%} of {before:,} stored" if before else ", none stored"
        print(f"{name:<8} {count:>10,} instructions{change}")
        risen |= before is None or count > before * (1 + RISE_MAX)
    if options.write:
        write(counts)
        print(f"written to {STORED}")
    elif risen:
        print("bench-cost: more instructions than stored; if that is meant: make bench-cost WRITE=1", file=sys.stderr)
        return 1
    elif any(count < allowed[name] * (1 - RISE_MAX) for name, count in counts.items()):
        print("fewer than stored: make bench-cost WRITE=1 keeps it so")
    return 0


if __name__ == "__main__":
    sys.exit(main())
