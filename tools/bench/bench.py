#!/usr/bin/env -S python3 -B
"""What recording costs: Mitra beside the recorders that people run already, on this machine, in one go.

Three scenarios. In each, every recorder runs twice, a short and a long time, **one at a time**: a recorder is a
process too, and an expensive one running at the same moment would be part of what the others have to record.
The turns are interleaved and the second goes backwards, so that a slow drift of the machine hits all alike.

What the columns mean:

- CPU: time of the recorder and everything it started, from the counter of a control group of its own, while
  it records, plus what it needs to finish when it is told to stop (Mitra compresses then), spread over the run.
  Start-up is left out. What BPF programs spend in the context of other tasks is shown below the table.
- disk, steady: size of the files after a long run, minus the size after a short one, by the difference in time.
  Headers and first samples, written once, cancel out. All files are complete: the recorder has ended.
- disk, all: size after the long run by its time.
- written: bytes that the kernel counted as written while it ran; more than the size where files are rewritten.
- RSS: resident at the end of the long run, and at its peak.

Needs only the standard library. Run it as root: otherwise some recorders see less, or nothing.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import platform
import signal
import subprocess
import sys
import tempfile
import time

import explain
import machine
import recorders

# A recorder that has written so much has taken its first sample.
START_BYTES = 1000
START_S_MAX = 60.0
# From the first sample to the first number that is taken.
SETTLE_S = 2.0
# The share of the CPUs that the rest of the machine may take beyond the load that is made.
NOISE_MAX = 0.1
# What a busy process of load.c takes of a CPU, at most.
BUSY_CPU = 0.02
# A segment of Mitra's archive holds this many samples.
SEGMENT_S = 600


@dataclasses.dataclass(frozen=True)
class Scenario:
    name: str
    title: str
    idle: int
    busy: int
    # What Mitra is meant to stay below, in the units of the table.
    goals: dict


SCENARIOS = [
    Scenario("idle-1k", "1,000 idle processes", 1000, 0, {"cpu_ms": 2.5, "disk": 150, "rss_mb": 16}),
    Scenario("idle-10k", "10,000 idle processes", 10000, 0, {"cpu_ms": 13.0, "rss_mb": 40}),
    Scenario("busy-50", "1,000 processes, 50 of them busy", 950, 50, {"disk": 2500, "rss_mb": 16}),
]


@dataclasses.dataclass
class Turn:
    """One run of one recorder."""

    seconds: float
    cpu_ms: float
    finish_ms: float
    file_bytes: int
    written_bytes: int
    rss_bytes: int
    peak_bytes: int
    kernel_side_ms: float | None
    other_cpu: float


def wait_for_first_sample(program, directory):
    """Loading and starting up takes its time on a machine that is full."""
    deadline_s = time.monotonic() + START_S_MAX
    while machine.file_bytes(directory) < START_BYTES:
        program.check_alive()
        if time.monotonic() > deadline_s:
            raise RuntimeError(f"{program.process.args[0]} has written nothing within {START_S_MAX:.0f} s")
        time.sleep(0.1)


def run(recorder, seconds, scratch):
    """Lets a recorder record for that long and says what it cost."""
    directory = scratch / "files"
    directory.mkdir()
    output = open(directory / "stdout.txt", "wb") if recorder.text else subprocess.DEVNULL
    program = machine.Program(recorder.argv(directory), output)
    try:
        with machine.KernelSide() as kernel_side:
            wait_for_first_sample(program, directory)
            time.sleep(SETTLE_S)
            program.check_alive()
            start_s, cpu_start_s, busy_start_s = time.monotonic(), program.cpu_s(), machine.machine_busy_s()
            kernel_start_s = kernel_side.run_s(program.pids()) if recorder.name == "mitra" else None
            time.sleep(seconds)
            program.check_alive()
            end_s, cpu_end_s, busy_end_s = time.monotonic(), program.cpu_s(), machine.machine_busy_s()
            kernel_end_s = kernel_side.run_s(program.pids()) if recorder.name == "mitra" else None
        rss_bytes, peak_bytes = program.memory_bytes()
        written_bytes = program.written_bytes()
        code = program.stop()
        if recorder.name == "mitra" and code != 0:
            raise RuntimeError(f"mitra ended with {code}")
        # Without a control group the last number is the one before the end.
        finish_s = program.cpu_s() - cpu_end_s if program.group else 0.0
    finally:
        program.remove()
    window_s = end_s - start_s
    whole_s = end_s - program.started_s
    own_s = cpu_end_s - cpu_start_s
    return Turn(
        seconds=whole_s,
        cpu_ms=1e3 * (own_s / window_s + finish_s / whole_s),
        finish_ms=1e3 * finish_s,
        file_bytes=machine.file_bytes(directory),
        written_bytes=written_bytes,
        rss_bytes=rss_bytes,
        peak_bytes=peak_bytes,
        kernel_side_ms=None if kernel_end_s is None else 1e3 * (kernel_end_s - (kernel_start_s or 0)) / window_s,
        other_cpu=(busy_end_s - busy_start_s - own_s) / window_s / os.cpu_count(),
    )


def measure(scenario, everyone, seconds):
    """Every recorder's short and long turn."""
    turns = {recorder.name: [] for recorder in everyone}
    with machine.load(scenario.idle, scenario.busy):
        for part, order in ((seconds / 3, everyone), (seconds * 2 / 3, everyone[::-1])):
            for recorder in order:
                print(f"  {recorder.name}, {part:.0f} s …", file=sys.stderr)
                with tempfile.TemporaryDirectory(prefix="mitra-bench-", dir=os.environ.get("TMPDIR")) as scratch:
                    turns[recorder.name].append(run(recorder, part, pathlib.Path(scratch)))
    return {name: result(*both) for name, both in turns.items()}


def result(short, long):
    """The figures of the table from the two turns, which are kept beside them."""
    steady = (long.file_bytes - short.file_bytes) / (long.seconds - short.seconds)
    together_s = short.seconds + long.seconds
    return {
        "cpu_ms": (short.cpu_ms * short.seconds + long.cpu_ms * long.seconds) / together_s,
        "disk": steady,
        "disk_all": long.file_bytes / long.seconds,
        "disk_once": long.file_bytes - steady * long.seconds,
        "written": long.written_bytes / long.seconds,
        "rss_mb": long.rss_bytes / 1e6,
        "peak_mb": max(short.peak_bytes, long.peak_bytes) / 1e6,
        "kernel_side_ms": long.kernel_side_ms,
        "other_cpu": max(short.other_cpu, long.other_cpu),
        "turns": [dataclasses.asdict(short), dataclasses.asdict(long)],
    }


COLUMNS = [
    ("cpu_ms", "CPU ms/s", "{:.2f}"),
    ("disk", "disk B/s steady", "{:,.0f}"),
    ("disk_all", "all", "{:,.0f}"),
    ("written", "written B/s", "{:,.0f}"),
    ("rss_mb", "RSS MB", "{:.1f}"),
    ("peak_mb", "peak MB", "{:.1f}"),
]
WITH_RATIO = {"cpu_ms", "disk", "rss_mb"}


def verdict(figure, goal, noise):
    """Whether a goal was kept. A disturbed run proves neither."""
    if noise > NOISE_MAX or figure <= 0:
        return "disturbed"
    return "kept" if figure <= goal else "MISSED"


def table(scenario, results, everyone):
    """The results of a scenario as lines of text."""
    head = ["recorder"]
    for key, title, _ in COLUMNS:
        head += [title] + ([" × Mitra"] if key in WITH_RATIO else [])
    rows = [head]
    mitra = results.get("mitra")
    noise = max(got["other_cpu"] for got in results.values()) - scenario.busy * BUSY_CPU / os.cpu_count()
    for name, got in results.items():
        row = [name]
        for key, _, form in COLUMNS:
            row.append(form.format(got[key]))
            if key in WITH_RATIO:
                row.append(f"{got[key] / mitra[key]:.1f}" if mitra and mitra[key] > 0 else "")
        rows.append(row)
    if mitra:
        segment = mitra["disk"] + mitra["disk_once"] / SEGMENT_S
        goals = ["Mitra's goal"]
        for key, _, form in COLUMNS:
            goal = scenario.goals.get(key)
            goals.append("" if goal is None else form.format(goal))
            if key in WITH_RATIO:
                # The disk's goal holds for whole segments, with what is written once for each.
                figure = segment if key == "disk" else mitra[key]
                goals.append("" if goal is None else verdict(figure, goal, noise))
        rows.append(goals)
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    short, long = next(iter(results.values()))["turns"]
    lines = [f"{scenario.title} ({short['seconds']:.0f} s and {long['seconds']:.0f} s each)"]
    for row in rows:
        lines.append("  " + row[0].ljust(widths[0]) + "".join("  " + c.rjust(w) for c, w in zip(row[1:], widths[1:])))
    if mitra:
        if mitra["disk"] > 0:
            lines.append(
                f"  mitra: {mitra['disk_once']:,.0f} B once per segment; over a whole segment of {SEGMENT_S} s"
                f" that makes {segment:,.0f} B/s (computed)"
            )
        if mitra["kernel_side_ms"] is not None:
            lines.append(f"  mitra: {mitra['kernel_side_ms']:.3f} ms/s more in the context of other tasks (BPF)")
        else:
            lines.append("  mitra: what its BPF programs cost other tasks could not be told here")
    if noise > NOISE_MAX:
        lines.append(f"  note: something else took up to {noise:.0%} of the CPUs; take no figure for good")
    lines.append("  they record: " + "; ".join(f"{r.name}: {r.what}" for r in everyone))
    return lines


def whole_segment(mitra, seconds):
    """Records one whole segment of an idle machine: the size without any arithmetic."""
    with machine.load(SCENARIOS[0].idle, SCENARIOS[0].busy):
        with tempfile.TemporaryDirectory(prefix="mitra-bench-", dir=os.environ.get("TMPDIR")) as scratch:
            turn = run(mitra, seconds, pathlib.Path(scratch))
    print(
        f"\nmitra alone, 1,000 idle processes, {turn.seconds:.0f} s: {turn.file_bytes / turn.seconds:,.0f} B/s on disk,"
        f" {turn.cpu_ms:.2f} ms/s CPU, {turn.rss_bytes / 1e6:.1f} MB"
    )
    return dataclasses.asdict(turn)


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--mitra", default=None, help="the binary to measure; without it only the others are")
    parser.add_argument("--seconds", type=float, default=60, help="measured seconds per recorder and scenario")
    parser.add_argument("--scenario", action="append", choices=[s.name for s in SCENARIOS], help="only this one")
    parser.add_argument("--segment", type=float, default=0, help="also record this many seconds of one segment")
    parser.add_argument("--simulator", default=None, help="program that writes a day's archive to a directory")
    parser.add_argument("--json", type=pathlib.Path, default=None, help="where the figures go as JSON")
    args = parser.parse_args()
    if args.seconds < 9:
        parser.error("--seconds has to be at least 9")

    everyone, missing = recorders.installed(args.mitra)
    chosen = [s for s in SCENARIOS if not args.scenario or s.name in args.scenario]
    whole_s = len(chosen) * len(everyone) * (args.seconds + 2 * SETTLE_S)
    print(f"kernel {platform.release()}, {os.cpu_count()} CPUs; about {whole_s / 60 + 1:.0f} min", file=sys.stderr)
    if missing:
        print(f"not measured, because not there: {', '.join(missing)}")
    if os.geteuid() != 0:
        print("note: not root; recorders see less than they would, and CPU time of ended children is lost")
    figures = {"kernel": platform.release(), "cpus": os.cpu_count(), "seconds": args.seconds, "scenarios": {}}
    for scenario in chosen:
        print(f"{scenario.title} …", file=sys.stderr)
        results = measure(scenario, everyone, args.seconds)
        figures["scenarios"][scenario.name] = {"title": scenario.title, "goals": scenario.goals, "results": results}
        print("\n" + "\n".join(table(scenario, results, everyone)), flush=True)
    if args.mitra and args.segment:
        figures["segment"] = whole_segment(everyone[0], args.segment)
    if args.mitra and args.simulator:
        figures["explain"] = explain.measure(args.mitra, args.simulator)
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(figures, indent=2) + "\n")
        print(f"\nthe figures are in {args.json}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
