#!/usr/bin/env -S python3 -B
"""What a process feels of being looked into: its latency and its heartbeat during looks and without, in turns.

`notice.c` is a service with a heap of small strings that answers requests at a steady rate and beats every millisecond. In turns,
without, with, with, without, `mitra inspect heap PID` runs again and again beside it, on the other CPU. A block of four turns gives a
ratio of the 99th percentile; printed are the median over the blocks, the middle 95 % of the medians of resampled blocks, and
the longest gap between two beats of each side: whoever stopped the process would show there. A turn from which a hypervisor took CPU
time is done again. Needs only the standard library, a C compiler, and to be root.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
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
        return {"p99": said[2], "beat_p99": said[5], "beat_max": said[6]}


def watched(service, seconds, argv):
    """One turn, in which looks run one after the other, or none."""
    service.turn()
    until, looks = time.monotonic() + seconds, 0
    while (left := until - time.monotonic()) > 0:
        if argv is None:
            time.sleep(left)
        else:
            subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, preexec_fn=observer.on_cpu(observer.CLIENT_CPU))
            looks += 1
    return service.turn() | {"looks": looks}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mitra", required=True)
    parser.add_argument("--megabytes", type=int, default=1000, help="of the heap")
    parser.add_argument("--rate", type=int, default=5000, help="requests a second")
    parser.add_argument("--seconds", type=float, default=4, help="of one turn at least")
    parser.add_argument("--blocks", type=int, default=10, help="of four turns each")
    args = parser.parse_args()
    if os.geteuid() != 0 or observer.SERVER_CPU == observer.CLIENT_CPU:
        sys.exit("look: needs root and two CPUs")
    dice = __import__("random").Random(1)
    with tempfile.TemporaryDirectory(prefix="mitra-look-") as scratch:
        program = pathlib.Path(scratch) / "notice"
        source = pathlib.Path(__file__).with_name("notice.c")
        subprocess.run([os.environ.get("CC", "cc"), "-O2", "-pthread", "-o", program, source], check=True)
        service = Service(program, args.megabytes, args.rate)
        look = [args.mitra, "inspect", "heap", str(service.process.pid)]
        ratios, beats, longest, left_out, looks = [], [], {True: 0.0, False: 0.0}, 0, 0
        try:
            for _ in range(args.blocks):
                sides = {True: [], False: []}
                try:
                    for side in (False, True, True, False):
                        run = lambda seconds, side=side: watched(service, seconds, look if side else None)
                        sides[side].append(observer.undisturbed(run, args.seconds))
                except observer.Disturbed:
                    left_out += 1
                    continue
                mean = lambda side, what: statistics.mean(turn[what] for turn in sides[side])
                ratios.append(mean(True, "p99") / mean(False, "p99"))
                beats.append(mean(True, "beat_p99") / mean(False, "beat_p99"))
                looks += sum(turn["looks"] for turn in sides[True])
                for side in sides:
                    longest[side] = max([longest[side], *(turn["beat_max"] for turn in sides[side])])
        finally:
            service.process.kill()
    if not ratios:
        sys.exit("look: every block was disturbed")
    print(f"{args.megabytes} MB of heap, {args.rate} requests/s, {len(ratios)} blocks ({left_out} disturbed), {looks} looks")
    for name, values in (("p99 of the requests", ratios), ("p99 of the heartbeat", beats)):
        median, low, high = observer.with_range(values, dice)
        verdict = "kept" if high <= GOAL else "kept, not sure" if median <= GOAL else "MISSED"
        print(f"{name:<22} {median:.4f} [{low:.4f} {high:.4f}] {verdict}")
    print(f"longest beat late by   {longest[True] / 1e3:.2f} ms with looks, {longest[False] / 1e3:.2f} ms without")


if __name__ == "__main__":
    main()
