#!/usr/bin/env -S python3 -B
"""What a process feels of being looked into: its latency and its heartbeat during looks and without, in turns.

`notice.c` is a service with a heap of small strings that answers requests at a steady rate and beats every millisecond. In turns,
`mitra inspect heap PID` runs again and again beside it, on the other CPU; something else does that reads as much memory, of its own;
and nothing does. A block has each of these twice, the second time in reverse order, and gives ratios of the 99th percentile of a
second, the median of its seconds; printed are the median over the blocks, the middle 95 % of the medians of resampled blocks, and the longest gap between two beats of
each side: whoever stopped the process would show there. A turn from which a hypervisor took CPU time is done again. Needs only the
standard library, a C compiler, and to be root.
"""

import argparse
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import observer

GOAL = 1.05


class Service:
    def __init__(self, program, megabytes, rate):
        self.process = subprocess.Popen(
            [program, str(megabytes), str(rate)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            preexec_fn=observer.on_cpu(observer.SERVER_CPU),
        )
        assert self.process.stdout.readline().strip() == "ready"

    def turn(self):
        """Ends a turn: p99 of the requests, p99 and longest of the beats, in microseconds."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        said = [float(word) for word in self.process.stdout.readline().split()]
        return {"p50": said[1], "p99": said[2], "beat_p99": said[5], "beat_max": said[6]}


ALONE, LOOKED_AT, BESIDE = "without", "with looks", "beside other work"


def seconds_of(service, seconds):
    """What the service says of each second."""
    service.turn()
    said = []
    for _ in range(seconds):
        time.sleep(1)
        said.append(service.turn())
    return said


def looked_at(service, seconds, argv):
    """One turn, in which looks run one after the other; and how many."""
    ended, looks = threading.Event(), []

    def look():
        while not ended.is_set():
            looks.append(subprocess.run(argv, stdout=subprocess.DEVNULL, preexec_fn=observer.on_cpu(observer.CLIENT_CPU)).returncode)

    looking = threading.Thread(target=look)
    looking.start()
    try:
        said = seconds_of(service, seconds)
    finally:
        ended.set()
        looking.join()
    assert not any(looks), "a look failed"
    return said, len(looks)


def beside(service, seconds, argv):
    """One turn beside work that has nothing to do with it, or none."""
    process = None
    if argv:
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, preexec_fn=observer.on_cpu(observer.CLIENT_CPU))
        assert process.stdout.readline().strip() == "ready"
    try:
        return seconds_of(service, seconds), 0
    finally:
        if process:
            process.kill()
            process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mitra", required=True)
    parser.add_argument("--megabytes", type=int, default=1000, help="of the heap")
    parser.add_argument("--rate", type=int, default=5000, help="requests a second")
    parser.add_argument("--seconds", type=int, default=4, help="of one turn")
    parser.add_argument("--blocks", type=int, default=10, help="of six turns each")
    args = parser.parse_args()
    if os.geteuid() != 0 or observer.SERVER_CPU == observer.CLIENT_CPU:
        sys.exit("look: needs root and two CPUs")
    dice = random.Random(1)
    with tempfile.TemporaryDirectory(prefix="mitra-look-") as scratch:
        program = pathlib.Path(scratch) / "notice"
        source = pathlib.Path(__file__).with_name("notice.c")
        subprocess.run([os.environ.get("CC", "cc"), "-O2", "-pthread", "-o", program, source], check=True)
        service = Service(program, args.megabytes, args.rate)
        look = [args.mitra, "inspect", "heap", str(service.process.pid)]
        other = [program, "beside", str(args.megabytes)]
        sides = {
            ALONE: lambda seconds: beside(service, seconds, None),
            LOOKED_AT: lambda seconds: looked_at(service, seconds, look),
            BESIDE: lambda seconds: beside(service, seconds, other),
        }
        blocks, left_out, looks = [], 0, 0
        try:
            for _ in range(args.blocks):
                block = {side: [] for side in sides}
                try:
                    for side in [*sides, *reversed(sides)]:
                        said, count = observer.undisturbed(sides[side], args.seconds)
                        block[side] += said
                        looks += count
                    blocks.append(block)
                except observer.Disturbed:
                    left_out += 1
        finally:
            service.process.kill()
    if not blocks:
        sys.exit("look: every block was disturbed")
    every = {side: [second for block in blocks for second in block[side]] for side in sides}
    print(f"{args.megabytes} MB of heap, {args.rate} requests/s, {len(blocks)} blocks ({left_out} disturbed), {looks} looks")
    print(f"{'':<22} {'p50':>8} {'p99':>8} {'beat p99':>9} {'longest':>9}  us, medians of the seconds; the longest of all")
    for side, of in every.items():
        p50, p99, beat = (statistics.median(second[what] for second in of) for what in ("p50", "p99", "beat_p99"))
        print(f"{side:<22} {p50:8.1f} {p99:8.1f} {beat:9.1f} {max(second['beat_max'] for second in of):9.1f}")
    usual = lambda block, side, what: statistics.median(second[what] for second in block[side])
    for what, name in (("p99", "requests"), ("beat_p99", "heartbeat")):
        for side, other in ((LOOKED_AT, ALONE), (BESIDE, ALONE), (LOOKED_AT, BESIDE)):
            ratios = [usual(block, side, what) / usual(block, other, what) for block in blocks]
            median, low, high = observer.with_range(ratios, dice)
            verdict = "kept" if high <= GOAL else "kept, not sure" if median <= GOAL else "MISSED"
            verdict = verdict if (side, other) == (LOOKED_AT, ALONE) else ""
            print(f"p99 of the {name:<9}, {side} / {other}: {median:.4f} [{low:.4f} {high:.4f}] {verdict}")


if __name__ == "__main__":
    main()
