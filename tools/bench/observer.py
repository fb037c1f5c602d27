#!/usr/bin/env -S python3 -B
"""What being recorded costs the work of the machine, by the second and by the request.

Real programs work (workloads.py), one after the other, and what each request took is counted inside of them (counts.c). The recorder
goes on and is stopped in turns meanwhile, by signals. It works once in each second, for a few milliseconds, and what a machine that is
shared with others does from one second to the next is ten times as much. So a second is compared with itself: with all of its
requests, and without those that were answered in the tenth of a second that begins with the sample. How much less is done, and how much
higher the 99th percentile is, with that tenth: that is what the sample has cost this second. The seconds in which the recorder is stopped
have such a tenth too, where the sample would be; what they show is chance and is divided out. Throughput is the mean of the seconds, as a
loss adds up; the 99th percentile is the median of what the seconds have. In brackets is the middle 95 % of what resampled seconds have.
A turn in which a hypervisor took CPU time away says nothing of the recorder: it is done again, whichever side it is of.

The recorder's programs in the kernel stay attached all the time, so no second shows them. The kernel counts what they take, and they are
added: a share of one CPU, of which work on one CPU loses as much, and a request lasts that much longer. What other threads of the kernel
write to the disk for the recorder some seconds later is in neither.

Measured is what is always on: the recorder arms no probes by itself meanwhile, which it would do for some seconds at the sight of a
server that is busy in the kernel. With `--capture KIND` the other side is the recorder with that probe armed, which says what
arming it costs: a probe works all the time, so turns are compared with turns then, as blocks of four, without, with, with, without.
Its budget is lifted, or it would end itself where it is dear.

With `--peers` whole programs are started and ended in turns on a machine without a recorder: the recorder, and bpftrace that counts
response times of services by services.bt. What they take in the kernel is in the turns then.

Needs only the standard library, root, a C compiler, and the programs that work; one that is missing is left out and named.
"""

import argparse
import contextlib
import dataclasses
import datetime
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import counts
import machine
import turns
import workloads

# From when the recorder or a probe is ready, or goes on, until what is measured begins: it has taken the sample that it missed.
SETTLE_S = 1.0
# A probe that is armed by hand is ready so long after its start; the recorder says when it is.
ARM_S = 3.0
READY_S_MAX = 20.0
INTERVAL_S = 1.0
# Five whole seconds with a sample in their middle, wherever in the interval it begins.
TURN_S = 6.0
# What begins with a sample: the sample takes some milliseconds, and whoever waited for it is served within the same.
SAMPLE_S = 0.1
# Work that takes longer than a bin is counted evenly from its beginning on: what a sample costs a file that was being compiled lies
# in part before the sample. As long as two files take.
FILE_S = 0.06
# Samples are known by the wall clock, which may be set slowly meanwhile.
CLOCKS_S = 0.02
# Of the work beside which the programs in the kernel are measured.
KERNEL_SIDE_S = 4
# What is to be kept: at most this much less throughput, and this much more at the 99th percentile.
GOALS = {"throughput": 0.99, "p99": 1.02}
PERCENTILE = 0.99


@dataclasses.dataclass(frozen=True)
class Turn:
    with_it: bool
    start_s: float
    end_s: float


def ready(scratch, argv):
    """Starts a program that says to its service manager when it is ready, and waits for that."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as hears:
        os.environ["NOTIFY_SOCKET"] = f"{scratch}/notify"
        hears.bind(os.environ["NOTIFY_SOCKET"])
        hears.settimeout(READY_S_MAX)
        program = machine.Program(argv, subprocess.DEVNULL)
        del os.environ["NOTIFY_SOCKET"]
        try:
            while b"READY=1" not in hears.recv(4096):
                pass
        except TimeoutError:
            program.check_alive()
            program.stop()
            raise RuntimeError(f"{argv[0]} was not ready within {READY_S_MAX:g} s") from None
        return program


class Recorder:
    """The recorder, ready, in a scratch directory."""

    def __init__(self, mitra, scratch):
        self.mitra = mitra
        self.archive = pathlib.Path(scratch) / "archive"
        self.program = ready(scratch, [mitra, "record", "--no-arm", "--archive", self.archive])

    def goes_on(self, does):
        self.program.process.send_signal(signal.SIGCONT if does else signal.SIGSTOP)
        time.sleep(SETTLE_S)
        self.program.check_alive()

    def samples_s(self):
        """When samples were taken, on the monotonic clock."""
        argv = [self.mitra, "dump", "--archive", self.archive, "--since", "-1d", "--metric", "sys.load1", "--json"]
        said = subprocess.run([str(word) for word in argv], check=True, capture_output=True, text=True).stdout
        ahead_s = time.time() - time.monotonic()
        return [epoch_s(json.loads(line)["time"]) - ahead_s for line in said.splitlines()]

    def in_kernel(self):
        """What its programs in the kernel take of one CPU now; None where nobody can tell."""
        with machine.KernelSide() as kernel:
            before, start_s = kernel.run_s(self.program.pids()), time.monotonic()
            time.sleep(KERNEL_SIDE_S)
            after = kernel.run_s(self.program.pids())
        return None if before is None or after is None else (after - before) / (time.monotonic() - start_s)

    def close(self):
        self.program.process.send_signal(signal.SIGCONT)
        self.program.stop()
        self.program.remove()


def epoch_s(text):
    """`2026-11-21T14:03:00.123Z`."""
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def capture(mitra, kind, archive):
    """What arms a probe beside the recorder."""
    longest = int(2 * turns.TRIES * (TURN_S + SETTLE_S) + ARM_S + 30)
    return [mitra, "capture", kind, "--seconds", str(longest), "--budget", "100%", "--archive", archive]


def peers(mitra, scratch):
    """Whole programs that look at services, by name."""
    script = pathlib.Path(__file__).with_name("services.bt")
    # It wants tracefs, which need not be mounted: a namespace of its own leaves the machine as it is.
    shell = "test -d /sys/kernel/tracing/events || mount -t tracefs nodev /sys/kernel/tracing; ulimit -l unlimited; exec \"$@\""
    return {
        "mitra record": [mitra, "record", "--no-arm", "--archive", f"{scratch}/archive"],
        "bpftrace services.bt": ["unshare", "-m", "sh", "-c", shell, "sh", "bpftrace", "-q", script],
    }


class Armed:
    """A program that looks at others runs, or not."""

    def __init__(self, argv):
        self.argv = argv
        self.program = None

    def turn_to(self, with_it):
        if with_it and not self.program:
            self.program = machine.Program(self.argv, subprocess.DEVNULL)
            time.sleep(ARM_S)
        elif self.program and not with_it:
            self.program.check_alive()
            self.program.stop()
            self.close()
        time.sleep(SETTLE_S)

    def close(self):
        if self.program:
            self.program.remove()
            self.program = None


def take_turns(turn_to, blocks):
    """Blocks of four turns, and how many were left out because each try of a turn was disturbed."""
    taken, left_out = [], 0

    def turn(with_it):
        turn_to(with_it)
        start_s = time.monotonic()
        time.sleep(TURN_S)
        return Turn(with_it, start_s, time.monotonic())

    for _ in range(blocks):
        try:
            taken.append([turns.undisturbed(lambda _: turn(with_it), TURN_S) for with_it in (False, True, True, False)])
        except turns.Disturbed:
            left_out += 1
    return taken, left_out


def cost_of_sample(counted, at_s, before_s):
    """Throughput and 99th percentile of the second around a sample, as a share of the same second without what is near the sample."""
    bins, sample = round(INTERVAL_S / counts.BIN_S), counted.bin_of(at_s)
    first, near, end = sample - bins // 2, sample - round(before_s / counts.BIN_S), sample + round(SAMPLE_S / counts.BIN_S)
    whole, gone = counted.between(first, first + bins), counted.between(near, end)
    rest = [a - b for a, b in zip(whole, gone)]
    if not sum(rest):
        raise RuntimeError("nothing was done in a second")
    throughput = sum(whole) / sum(rest) * (bins - (end - near)) / bins
    return throughput, counts.percentile_us(whole, PERCENTILE) / counts.percentile_us(rest, PERCENTILE)


def costs_by_second(counted, taken, samples_s, before_s):
    """For each side what its seconds show. A stopped recorder would have gone on with its even steps."""
    sides = {False: [], True: []}
    for turn in (turn for block in taken for turn in block):
        first_s, last_s = turn.start_s + INTERVAL_S / 2, turn.end_s - INTERVAL_S / 2
        known = samples_s
        if not turn.with_it:
            known = [samples_s[0] + INTERVAL_S * n for n in range(int((last_s - samples_s[0]) / INTERVAL_S) + 1)]
        sides[turn.with_it] += [cost_of_sample(counted, at_s, before_s) for at_s in known if first_s <= at_s < last_s]
    return sides


def costs_by_block(counted, taken):
    """For each block, with the probe as a share of without: throughput and the usual 99th percentile of a second."""

    def usual(turn):
        step = round(INTERVAL_S / counts.BIN_S)
        first, end = counted.bin_of(turn.start_s) + 1, counted.bin_of(turn.end_s)
        seconds = [counted.between(at, at + step) for at in range(first, end - step + 1, step)]
        return [statistics.median(of(s) for s in seconds) for of in (sum, lambda s: counts.percentile_us(s, PERCENTILE))]

    for block in taken:
        ratio = [1.0, 1.0]
        for turn in block:
            power = 0.5 if turn.with_it else -0.5
            ratio = [r * value**power for r, value in zip(ratio, usual(turn))]
        yield ratio


def found_by_block(counted, taken, dice):
    ratios = list(costs_by_block(counted, taken))
    return ratios, [turns.with_range([r[which] for r in ratios], dice) for which in (0, 1)]


def usual_ratio(sides, which, of, dice):
    """Of all seconds with the recorder and all without, resampled together."""
    values = {side: [second[which] for second in seconds] for side, seconds in sides.items()}

    def resampled():
        drawn = {side: of(dice.choices(v, k=len(v))) for side, v in values.items()}
        return drawn[True] / drawn[False]

    return of(values[True]) / of(values[False]), *turns.middle(resampled)


def cell(found, more, goal):
    """`more` is what is known beside, and belongs to it. Without a goal there is no verdict."""
    median, low, high = (value + more for value in found)
    if goal is None:
        return f"{median:.4f} [{low:.4f} {high:.4f}]"
    kept, sure = (median >= goal, low >= goal) if goal < 1 else (median <= goal, high <= goal)
    missed = high < goal if goal < 1 else low > goal
    verdict = "kept" if sure else "kept, not sure" if kept else "MISSED" if missed else "missed, not sure"
    return f"{median:.4f} [{low:.4f} {high:.4f}] {verdict}"


def measure(workload, args, library, dice):
    """A row of the result."""
    with contextlib.ExitStack() as stack:
        scratch = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mitra-observer-", dir="/var/tmp")))
        work = stack.enter_context(workload.prepare(scratch))
        recorder = stack.enter_context(contextlib.closing(Recorder(args.mitra, scratch)))
        argv = capture(args.mitra, args.capture, recorder.archive) if args.capture else None
        armed = stack.enter_context(contextlib.closing(Armed(argv))) if argv else None
        turn_s = TURN_S + SETTLE_S + (ARM_S + SETTLE_S if armed else 0)
        longest_s = SETTLE_S + 4 * args.blocks * turns.TRIES * turn_s
        counted = stack.enter_context(workloads.at_work(work, library, longest_s))
        time.sleep(SETTLE_S)
        taken, left_out = take_turns(armed.turn_to if armed else recorder.goes_on, args.blocks)
        if armed:
            armed.close()
        recorder.goes_on(True)
        row = {"workload": workload.name, "left_out": left_out, "in_kernel": recorder.in_kernel()}
        if not taken:
            return row
        if armed:
            row["blocks"], found = found_by_block(counted, taken, dice)
        else:
            sides = costs_by_second(counted, taken, recorder.samples_s(), FILE_S if work.whole else CLOCKS_S)
            found = [usual_ratio(sides, 0, statistics.mean, dice), usual_ratio(sides, 1, statistics.median, dice)]
            row["seconds"] = {"with": sides[True], "without": sides[False]}
        # Processes that take as long as each other have no slowest hundredth.
        return row | {"throughput": found[0]} | ({} if work.whole else {"p99": found[1]})


def measure_peers(workload, args, library, dice):
    """A row for each peer: the work beside it as a share of the work alone."""
    with contextlib.ExitStack() as stack:
        scratch = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mitra-observer-", dir="/var/tmp")))
        work = stack.enter_context(workload.prepare(scratch))
        programs = {name: argv for name, argv in peers(args.mitra, scratch).items() if shutil.which(name.split()[0]) or argv[0] == args.mitra}
        turn_s = TURN_S + SETTLE_S + ARM_S + SETTLE_S
        longest_s = SETTLE_S + len(programs) * 4 * args.blocks * turns.TRIES * turn_s
        counted = stack.enter_context(workloads.at_work(work, library, longest_s))
        time.sleep(SETTLE_S)
        for name, argv in programs.items():
            peer = stack.enter_context(contextlib.closing(Armed(argv)))
            taken, left_out = take_turns(peer.turn_to, args.blocks)
            peer.close()
            row = {"workload": f"{workload.name}, {name}", "left_out": left_out, "in_kernel": None}
            if taken:
                row["blocks"], found = found_by_block(counted, taken, dice)
                row |= {"throughput": found[0]} | ({} if work.whole else {"p99": found[1]})
            yield row


def tell(row, beside):
    if "throughput" not in row:
        return f"{row['workload']:<28} every block was disturbed"
    # Arming a probe changes nothing of what the recorder's own programs take, and is allowed more; and nothing is kept of which a
    # part is not known.
    kernel = 0.0 if beside else row["in_kernel"] or 0.0
    goals = dict.fromkeys(GOALS) if beside or row["in_kernel"] is None else GOALS
    said = f"{row['workload']:<28} throughput {cell(row['throughput'], -kernel, goals['throughput']):<42}"
    said += f" p99 {cell(row['p99'], kernel, goals['p99']):<42}" if "p99" in row else f" {'':<46}"
    if not beside:
        said += f" of it in the kernel {row['in_kernel']:.4f}" if row["in_kernel"] is not None else " without what is taken in the kernel: not known"
    return said + (f"  ({row['left_out']} blocks disturbed)" if row["left_out"] else "")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mitra", required=True)
    parser.add_argument("--blocks", type=int, default=6, help="of four turns each")
    parser.add_argument("--only", action="append", default=[], help="workloads whose name has this in it")
    parser.add_argument("--capture", help="arm this probe too, and compare with the recorder alone")
    parser.add_argument("--peers", action="store_true", help="start and end the recorder and its peers in turns instead")
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("observer: needs root: without it there is no probe whose cost could be measured")
    # Whatever is at work is ended on the way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    dice, rows = random.Random(1), []
    name = f"capture {args.capture} beside the recorder" if args.capture else "a peer" if args.peers else "the recorder"
    print(f"With {name}, as a share of without; [the middle 95 %]; {args.blocks} blocks of four turns of {TURN_S:g} s", flush=True)
    with tempfile.TemporaryDirectory(prefix="mitra-observer-") as scratch:
        library = counts.compiled(pathlib.Path(scratch))
        for workload in workloads.WORKLOADS:
            if args.only and not any(word in workload.name for word in args.only):
                continue
            if missing := [program for program in workload.needs if not shutil.which(program)]:
                print(f"{workload.name:<28} left out: {', '.join(missing)} not installed")
                continue
            measured = measure_peers(workload, args, library, dice) if args.peers else [measure(workload, args, library, dice)]
            for row in measured:
                rows.append(row)
                print(tell(row, args.capture or args.peers), flush=True)
    if args.json:
        args.json.write_text(json.dumps({"side": name, "goals": GOALS, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
