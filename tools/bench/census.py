#!/usr/bin/env python3
"""How fast the strings in the memory of a process are counted, beside `strings | sort | uniq -c` on a dump of it.

A program fills a heap (heap.c): once a usual one, and once one that is dense with short strings. The whole of it is
counted, several times. Then one region of it is dumped through /proc/PID/mem; the peer counts the strings of the dump,
and ours those of the same region in place, in turn. Rates are bytes for each second of CPU, system time included; memory
is the largest resident set of one process.

At the end the counts of both are compared, string by string. `strings` ends a string at each byte above ASCII, and we go
on where it is a character, so the two may differ where a string touches such a byte. `strings -e S` goes on at all of
them: what it still finds touches none. Our count has to be the same as the peer's, or to lie between both of theirs.
"""

import argparse
import contextlib
import heapq
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from files import peak

MIN_CHARS = 6
# What a text of the census holds at most.
TEXT_MAX = 64
# Strings that are compared: fewer than the census lists, which has those of other encodings too.
COMPARED = 500


@contextlib.contextmanager
def heap(mib, mix, folder):
    """A process with such a heap, and the counts that it planted."""
    program = f"{folder}/heap"
    source = Path(__file__).with_name("heap.c")
    subprocess.run([os.environ.get("CC", "cc"), "-O2", "-o", program, source, "-lm"], check=True)
    child = subprocess.Popen([program, str(mib), mix], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        planted = {}
        for line in child.stdout:
            if line == "ready\n":
                break
            count, text = line.rstrip("\n").split("\t")
            planted[text] = int(count)
        else:
            sys.exit("the heap could not be made")
        yield child.pid, planted
    finally:
        child.stdin.close()
        child.wait(timeout=60)


def region(pid, size):
    """Addresses in the middle of the largest anonymous mapping, where the heap is mixed."""
    largest = (0, 0)
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        words = line.split()
        start, end = (int(word, 16) for word in words[0].split("-"))
        if words[1] == "rw-p" and words[4] == "0" and end - start > largest[1] - largest[0]:
            largest = (start, end)
    start, end = largest
    size = min(size, (end - start) // 2 & ~0xFFF)
    start = (start + (end - start - size) // 2) & ~0xFFF
    return start, start + size


def dump(pid, start, end, path):
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory, path.open("wb") as out:
        memory.seek(start)
        left = end - start
        while left:
            block = memory.read(min(left, 1 << 20))
            out.write(block)
            left -= len(block)


def measured(command, out):
    """Seconds of the clock, of CPU of it and all that it starts, and MiB of the largest resident set of one of them."""
    memory = 0
    environment = {**os.environ, "LC_ALL": "C"}
    with out.open("wb") as file:
        before = time.monotonic()
        child = subprocess.Popen(command, stdout=file, env=environment)
        while True:
            for pid in [child.pid, *children(child.pid)]:
                memory = max(memory, peak(pid))
            done, status, usage = os.wait4(child.pid, os.WNOHANG)
            if done:
                break
            time.sleep(0.01)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        sys.exit(f"{command[0]} ended with {child.returncode}")
    return time.monotonic() - before, usage.ru_utime + usage.ru_stime, memory


def children(pid):
    with contextlib.suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def report(name, size, result, first=None):
    seconds, cpu, memory = result
    ratio = f"{first[1] / first[0] * size / cpu:>9.3f}" if first else f"{1:>9}"
    print(
        f"{name:<28}{size / 1e6:>8.0f}{seconds:>8.2f}{cpu:>8.2f}{size / 1e9 / cpu:>9.3f}{memory:>7.0f}{ratio}",
        flush=True,
    )


def counted(counts):
    """Bytes, count and text of what the peer found more than once and we keep whole."""
    for line in counts.open(errors="replace"):
        count, text = line.lstrip(" ").rstrip("\n").split(" ", 1)
        count = int(count)
        if count > 1 and len(text) <= TEXT_MAX:
            yield count * len(text), count, text


def untouched(file, texts):
    """How often each of some texts occurs with no byte above ASCII beside it."""
    found = dict.fromkeys((text.encode() for text in texts), 0)
    command = ["strings", "-a", "-e", "S", "-n", str(MIN_CHARS), str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "LC_ALL": "C"}) as child:
        for line in child.stdout:
            text = line[:-1]
            if text in found:
                found[text] += 1
    return {text.decode(): count for text, count in found.items()}


def compare(census, counts, file):
    """The strings of the peer that hold most bytes against ours."""
    ours = {}
    for entry in census["entries"]:
        if not entry["is_cut"] and entry["encoding"] == "ascii":
            ours[entry["text"]] = (entry["count"], entry["error"])
    result = {"exact": 0, "within the error": 0, "between": 0, "off": 0}
    differ = {}
    for _, count, text in heapq.nlargest(COMPARED, counted(counts)):
        found, error = ours.get(text, (0, 0))
        if found == count and not error:
            result["exact"] += 1
        elif found - error <= count <= found:
            result["within the error"] += 1
        else:
            differ[text] = count
    least = untouched(file, differ)
    worst = []
    for text, count in differ.items():
        found, error = ours.get(text, (0, 0))
        is_between = least[text] <= found and found - error <= count
        result["between" if is_between else "off"] += 1
        if not is_between:
            worst.append((count, f"{text!r}: {least[text]} to {count}, and {found} with an error of {error}"))
    worst.sort(reverse=True)
    return result, [text for _, text in worst[:5]]


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--census", required=True, help="the example of the inspect crate")
    options.add_argument("--mib", type=int, default=4096, help="size of the heap")
    options.add_argument("--mix", action="append", choices=["usual", "dense"])
    options.add_argument("--peer-mib", type=int, default=512, help="size of the region that is dumped")
    options.add_argument("--repeat", type=int, default=3)
    args = options.parse_args()
    if not shutil.which("strings"):
        sys.exit("strings of binutils is not installed")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for mix in args.mix or ["usual", "dense"]:
        run(args, mix)


def run(args, mix):
    with tempfile.TemporaryDirectory(prefix="mitra-census-") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        pid, planted = stack.enter_context(heap(args.mib, mix, name))
        print(f"{mix + ' heap':<28}{'MB':>8}{'s':>8}{'CPU s':>8}{'GB/CPU s':>9}{'MiB':>7}{'of ours':>9}")
        whole = folder / "whole.json"
        best = None
        for _ in range(args.repeat):
            result = measured([args.census, str(pid)], whole)
            census = json.loads(whole.read_text())
            report("census of all", census["bytes_scanned"], result)
            best = min(best or result, result, key=lambda result: result[1])
        start, end = region(pid, args.peer_mib << 20)
        size = end - start
        file, counts, ours = folder / "dump", folder / "counts", folder / "ours.json"
        dump(pid, start, end, file)
        first = None
        pipe = f"strings -a -n {MIN_CHARS} '{file}' | sort -T '{folder}' | uniq -c | sort -T '{folder}' -rn"
        for _ in range(args.repeat):
            result = measured([args.census, str(pid), f"{start:x}-{end:x}"], ours)
            first = min(first or (size, *result[1:]), (size, *result[1:]), key=lambda r: r[1])
            report("census of a region", size, result)
        result = measured(["bash", "-o", "pipefail", "-c", pipe], counts)
        report("strings|sort|uniq -c|sort", size, result, first)
        equal, worst = compare(json.loads(ours.read_text()), counts, file)
        print(f"\ncounts of the {COMPARED} strings of the region that hold most bytes: {equal}")
        for line in worst:
            print(f"  {line}")
        listed = {entry["text"]: entry for entry in census["entries"]}
        for text, count in planted.items():
            entry = listed.get(text, {"count": 0, "error": 0})
            print(f"planted {count}, found {entry['count']} with an error of {entry['error']}: {text}")
        print(
            f"{census['strings']} strings, about {census['distinct_estimate']} different; bound of the error "
            f"{census['error_bound']}; {census['repeated']} repeated and certain, {census['uncertain']} uncertain"
        )
        share = size / result[1] / (first[0] / first[1])
        print(f"{census['strings'] / census['bytes_scanned'] * 1e6:.0f} strings in each megabyte")
        print(
            f"all at {census['bytes_scanned'] / 1e9 / best[1]:.2f} GB for a second of CPU in {best[2]:.0f} MiB; "
            f"{1 / share:.1f} times as fast as the peer on the same region\n"
        )


if __name__ == "__main__":
    main()
