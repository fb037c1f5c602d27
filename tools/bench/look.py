#!/usr/bin/env -S python3 -B
"""What a process feels of being looked into: its latency and its heartbeat during looks and without, in turns.

Of two services. `web` is the one of the tests in Python, which keeps texts of a library in C, below a steady load of wrk that waits a
millisecond before it asks again. `notice` (notice.c) feels more than services do: it answers requests at a steady rate, each of which
reads 200 random places of a heap of small strings, and takes as long as memory takes to answer. Both have a thread that wants to run
every millisecond. In turns, `mitra inspect heap PID` runs again and again beside it, on the other CPU; the same runs, but looks into
another process with such a heap, which sleeps: what any neighbour costs that works as hard; and nothing runs. A block has each of these
twice, the second time in reverse order, and gives ratios of the 99th percentile of a second, the median of its seconds; printed are the
median over the blocks, the middle 95 % of the medians of resampled blocks, and the longest gap between two beats of each side: whoever
stopped the process would show there. A turn from which a hypervisor took CPU time is done again. Needs only the standard library, a C
compiler, wrk, and to be root.
"""

import argparse
import json
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

import turns
import workloads

GOAL = 1.05
# Few enough that the service is idle half of the time, as services are.
CONNECTIONS = 2


class Notice:
    name = "notice"

    def __init__(self, program, scratch, args):
        self.process = subprocess.Popen(
            [program, str(args.megabytes), str(args.rate)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            preexec_fn=workloads.on_cpu(workloads.SERVER_CPU),
        )
        assert self.process.stdout.readline().strip() == "ready"
        self.what = f"{args.megabytes} MB of heap, {args.rate} requests/s"

    def begin(self):
        self.said()

    def said(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return [float(word) for word in self.process.stdout.readline().split()]

    def second(self):
        """Of requests and of beats, in microseconds."""
        time.sleep(1)
        said = self.said()
        return {"p50": said[1], "p99": said[2], "beat": said[5], "beat_max": said[6]}


class Web:
    """Asks and answers on one CPU, so that the looks take none of either."""

    name = "web"
    # Two strings and a structure each, with what malloc takes for itself.
    UNITS_PER_MEGABYTE = 5_600

    def __init__(self, _program, scratch, args):
        source = pathlib.Path(__file__).parents[2] / "crates/inspect/tests/services/service.py"
        self.process = subprocess.Popen(
            [sys.executable, source, "--work", "native-client", "--heartbeat"], stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True, preexec_fn=workloads.on_cpu(workloads.SERVER_CPU),
        )
        port = self.process.stdout.readline().split()[1]
        self.url = f"http://127.0.0.1:{port}"
        self.get(f"work/{args.megabytes * self.UNITS_PER_MEGABYTE}")
        self.pace = workloads.pace(scratch)
        rate = self.load()["rate"]
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        resident = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
        self.what = f"{resident >> 10} MB resident, {rate:.0f} requests/s"

    def get(self, path):
        with urllib.request.urlopen(f"{self.url}/{path}") as answer:
            return answer.read()

    def load(self):
        return wrk(f"{self.url}/work", 1, CONNECTIONS, self.pace, workloads.SERVER_CPU)

    def begin(self):
        self.get("heartbeat")

    def second(self):
        """Of requests; and of beats only the longest, in microseconds."""
        said = self.load()
        longest = 1e3 * json.loads(self.get("heartbeat"))["gap_ms_max"]
        return {"p50": said["50%"], "p99": said["99%"], "beat": longest, "beat_max": longest}


def wrk(page, seconds, connections, options, cpu):
    """Requests per second, and percentiles of what they took in microseconds."""
    argv = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency", *options, page]
    text = subprocess.run(argv, check=True, capture_output=True, text=True, preexec_fn=workloads.on_cpu(cpu)).stdout
    words = [line.split() for line in text.splitlines()]
    said = {w[0]: microseconds(w[1]) for w in words if len(w) == 2 and w[0] in ("50%", "99%")}
    assert not any("errors" in line or "Non-2xx" in line for line in text.splitlines()), text
    return said | {"rate": next(float(w[1]) for w in words if w[:1] == ["Requests/sec:"])}


def microseconds(text):
    """`1.23ms`, `456.00us`, `1.02s`."""
    for unit, factor in (("us", 1.0), ("ms", 1e3), ("s", 1e6)):
        if text.endswith(unit):
            return float(text[: -len(unit)]) * factor
    raise ValueError(text)


ALONE, LOOKED_AT, BESIDE = "without", "with looks", "looks at another"


def seconds_of(service, seconds):
    """What the service says of each second."""
    service.begin()
    return [service.second() for _ in range(seconds)]


def looked_at(service, seconds, argv):
    """One turn, in which looks run one after the other; and how many."""
    ended, looks = threading.Event(), []

    def look():
        while not ended.is_set():
            looks.append(subprocess.run(argv, stdout=subprocess.DEVNULL, preexec_fn=workloads.on_cpu(workloads.CLIENT_CPU)).returncode)

    looking = threading.Thread(target=look)
    looking.start()
    try:
        said = seconds_of(service, seconds)
    finally:
        ended.set()
        looking.join()
    assert not any(looks), "a look failed"
    return said, len(looks)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mitra", required=True)
    parser.add_argument("--megabytes", type=int, default=1000, help="of the heaps")
    parser.add_argument("--rate", type=int, default=5000, help="requests a second, of notice")
    parser.add_argument("--only", action="append", default=[], help="web or notice")
    parser.add_argument("--seconds", type=int, default=4, help="of one turn")
    parser.add_argument("--blocks", type=int, default=10, help="of six turns each")
    args = parser.parse_args()
    if os.geteuid() != 0 or workloads.SERVER_CPU == workloads.CLIENT_CPU:
        sys.exit("look: needs root and two CPUs")
    with tempfile.TemporaryDirectory(prefix="mitra-look-") as scratch:
        scratch = pathlib.Path(scratch)
        program = scratch / "notice"
        source = pathlib.Path(__file__).with_name("notice.c")
        subprocess.run([os.environ.get("CC", "cc"), "-O2", "-pthread", "-o", program, source], check=True)
        for kind in (Web, Notice):
            if not args.only or kind.name in args.only:
                measure(kind(program, scratch, args), kind(program, scratch, args), args)


def measure(service, another, args):
    another.process.send_signal(signal.SIGSTOP)
    look = lambda of: [args.mitra, "inspect", "heap", str(of.process.pid)]
    sides = {
        ALONE: lambda seconds: (seconds_of(service, seconds), 0),
        LOOKED_AT: lambda seconds: looked_at(service, seconds, look(service)),
        BESIDE: lambda seconds: looked_at(service, seconds, look(another)),
    }
    blocks, left_out, looks = [], 0, 0
    try:
        for _ in range(args.blocks):
            block = {side: [] for side in sides}
            try:
                for side in [*sides, *reversed(sides)]:
                    said, count = turns.undisturbed(sides[side], args.seconds)
                    block[side] += said
                    looks += count
                blocks.append(block)
            except turns.Disturbed:
                left_out += 1
    finally:
        for process in (service.process, another.process):
            process.kill()
            process.wait()
    if blocks:
        tell(service, blocks, f"{len(blocks)} blocks ({left_out} disturbed), {looks} looks")
    else:
        print(f"{service.name}: every block was disturbed")


def tell(service, blocks, how):
    dice = random.Random(1)
    sides = (ALONE, LOOKED_AT, BESIDE)
    every = {side: [second for block in blocks for second in block[side]] for side in sides}
    print(f"{service.name}: {service.what}; {how}")
    print(f"{'':<22} {'p50':>8} {'p99':>8} {'beat':>9} {'longest':>9}  us, medians of the seconds; the longest of all")
    for side, of in every.items():
        p50, p99, beat = (statistics.median(second[what] for second in of) for what in ("p50", "p99", "beat"))
        print(f"{side:<22} {p50:8.1f} {p99:8.1f} {beat:9.1f} {max(second['beat_max'] for second in of):9.1f}")
    usual = lambda block, side, what: statistics.median(second[what] for second in block[side])
    for what, name in (("p99", "p99 of the requests"), ("beat", "heartbeat")):
        for side, other in ((LOOKED_AT, ALONE), (BESIDE, ALONE), (LOOKED_AT, BESIDE)):
            ratios = [usual(block, side, what) / usual(block, other, what) for block in blocks]
            median, low, high = turns.with_range(ratios, dice)
            verdict = "kept" if high <= GOAL else "kept, not sure" if median <= GOAL else "MISSED"
            verdict = verdict if (what, side, other) == ("p99", LOOKED_AT, ALONE) else ""
            print(f"{name:<20}, {side} / {other}: {median:.4f} [{low:.4f} {high:.4f}] {verdict}", flush=True)


if __name__ == "__main__":
    main()
