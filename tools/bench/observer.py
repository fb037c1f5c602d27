#!/usr/bin/env -S python3 -B
"""What being recorded costs the work of the machine: the same work with and without the recorder, in turns.

Workloads that feel what an observer takes: small reads from the page cache, a key-value store, a web server at its limit
and far below it, a build, and two processes that do nothing but wake each other. Servers and their clients have a CPU of their own,
so that where the scheduler happens to put them is no part of the result. Each workload runs for a second at a time, as the recorder
works once in each second: in blocks of four, without, with, with, without, so that a drift of the machine hits both sides alike. What
a machine does to such a run changes within seconds, so the sides have to follow each other closely: the recorder is not ended and
started, but stopped by a signal, and goes on. Its programs in the kernel stay attached; what they take is measured then, of the same
work, and printed beside: a share of one CPU, of which a workload on one CPU loses as much and one on all of them less. A block gives two
ratios, of the throughput and of the 99th percentile; printed are their medians over all blocks, and how far the median itself may be
off: the middle 95 % of the medians of resampled blocks. A run in which a hypervisor took CPU time away from this machine says nothing of
the recorder: it is done again, whichever side it is of, and after some tries its block is left out and counted.

Measured is what is always on: the recorder arms no probes by itself meanwhile, which it would do for some seconds at the
sight of a server that is busy in the kernel. With `--capture KIND` the other side is the recorder with that probe armed,
which says what arming it costs: it is armed anew for each turn, which then has five runs, of which the median counts.

Needs only the standard library, root, and the programs that it runs; one that is missing is left out and named.
"""

import argparse
import contextlib
import dataclasses
import json
import math
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
from typing import Callable

import machine

# From when the recorder or a probe is ready until the work begins: it has taken its first samples by then.
SETTLE_S = 1.0
# A probe that is armed by hand is ready so long after its start; the recorder says when it is.
ARM_S = 3.0
READY_S_MAX = 20.0
# All the time that the slowest hundredth of requests has is a hundredth of one CPU's: a run from which as much was stolen has
# another 99th percentile for that alone.
STOLEN_MAX = 0.01
TRIES = 6
# Runs of a turn that a probe is armed for, which takes seconds.
RUNS_ARMED = 5
# Within it the recorder has taken the sample that it missed, once it goes on.
GOES_ON_S = 0.1
# Of the work beside which the programs in the kernel are measured.
KERNEL_SIDE_S = 4
RESAMPLES = 2000
# What is to be kept: at most this much less throughput, and this much more at the 99th percentile.
GOALS = {"throughput": 0.99, "p99": 1.02}
CACHED_BYTES = 512 << 20
BUILD_FILES = 24
BUILD_FUNCTIONS = 60


@dataclasses.dataclass(frozen=True)
class Result:
    """Of one run: work done per second, and the 99th percentile in microseconds where the work has one."""

    throughput: float
    p99_us: float | None = None


@dataclasses.dataclass(frozen=True)
class Workload:
    name: str
    needs: tuple
    # Prepares the work in a directory and gives what runs it for so many seconds.
    prepare: Callable


# Who serves, or works alone, and who asks.
SERVER_CPU, CLIENT_CPU = min(os.sched_getaffinity(0)), max(os.sched_getaffinity(0))


def on_cpu(cpu):
    return lambda: os.sched_setaffinity(0, {cpu})


def output(*argv, cpu=None, **more):
    pin = on_cpu(cpu) if cpu is not None else None
    done = subprocess.run([str(a) for a in argv], check=True, capture_output=True, text=True, preexec_fn=pin, **more)
    return done.stdout


@contextlib.contextmanager
def cached_reads(scratch):
    path = scratch / "cached"
    output("dd", "if=/dev/zero", f"of={path}", "bs=1M", f"count={CACHED_BYTES >> 20}")

    def run(seconds):
        # Pages that have left the cache meanwhile, or that fio throws out before it starts, would be read from the
        # disk: that is another workload.
        output("dd", f"if={path}", "of=/dev/null", "bs=1M")
        said = json.loads(output(
            "fio", "--name=cached", f"--filename={path}", f"--size={CACHED_BYTES}", "--rw=randread", "--bs=4k",
            "--ioengine=psync", "--time_based", f"--runtime={seconds}", "--allow_file_create=0", "--invalidate=0",
            "--norandommap", "--output-format=json", cpu=SERVER_CPU,
        ))["jobs"][0]["read"]
        return Result(said["iops"], said["clat_ns"]["percentile"]["99.000000"] / 1e3)

    yield run


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_for_port(port):
    for _ in range(100):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise RuntimeError(f"nobody listens on port {port}")


@contextlib.contextmanager
def server(argv, port):
    process = subprocess.Popen(
        argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=on_cpu(SERVER_CPU)
    )
    try:
        wait_for_port(port)
        yield
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def redis(scratch):
    port = free_port()
    with server(["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(scratch)], port):
        # As many requests as take about the time that is asked for.
        rate = float(benchmark_redis(port, 50_000)["rps"])

        def run(seconds):
            said = benchmark_redis(port, max(10_000, int(rate * seconds)))
            return Result(float(said["rps"]), 1e3 * float(said["p99_latency_ms"]))

        yield run


def benchmark_redis(port, requests):
    text = output("redis-benchmark", "-p", port, "-t", "get", "-c", 20, "-n", requests, "--csv", cpu=CLIENT_CPU)
    names, values = [[cell.strip('"') for cell in line.split(",")] for line in text.strip().splitlines()[-2:]]
    return dict(zip(names, values))


@contextlib.contextmanager
def web_server(scratch, options):
    port = free_port()
    root = scratch / "www"
    root.mkdir()
    (root / "page").write_bytes(b"x" * 1024)
    config = scratch / "nginx.conf"
    config.write_text(
        f"worker_processes 1; daemon off; pid {scratch}/nginx.pid; error_log /dev/null;\n"
        f"events {{}}\nhttp {{ access_log off; server {{ listen 127.0.0.1:{port}; root {root}; }} }}\n"
    )
    os.chmod(scratch, 0o755)
    with server(["nginx", "-c", str(config)], port):

        def run(seconds):
            page = f"http://127.0.0.1:{port}/page"
            said = wrk(page, seconds, 16, options, CLIENT_CPU)
            return Result(said["rate"], said["99%"])

        yield run


@contextlib.contextmanager
def nginx(scratch):
    with web_server(scratch, []) as run:
        yield run


@contextlib.contextmanager
def nginx_paced(scratch):
    """Each connection waits a millisecond before it asks again: the server is idle most of the time, as servers are, and
    what a request takes is not mostly its wait for those before it."""
    with web_server(scratch, pace(scratch)) as run:
        yield run


def pace(scratch):
    """Options for wrk."""
    script = scratch / "pace.lua"
    script.write_text("function delay() return 1 end\n")
    return ["-s", script]


def wrk(page, seconds, connections, options, cpu):
    """Requests per second, and percentiles of what they took in microseconds."""
    text = output("wrk", "-t1", f"-c{connections}", f"-d{int(seconds)}s", "--latency", *options, page, cpu=cpu)
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


@contextlib.contextmanager
def build(scratch):
    for i in range(BUILD_FILES):
        functions = "".join(
            f"int f{i}_{j}(int a, int b) {{ int s = {j}; for (int k = 0; k < a; k++) s += (s ^ b) * k; return s; }}\n"
            for j in range(BUILD_FUNCTIONS)
        )
        (scratch / f"part{i}.c").write_text(functions)
    objects = " ".join(f"part{i}.o" for i in range(BUILD_FILES))
    (scratch / "Makefile").write_text(f"all: {objects}\n%.o: %.c\n\tcc -O2 -c $< -o $@\n")

    def run(seconds):
        done, start_s = 0, time.monotonic()
        while time.monotonic() - start_s < seconds:
            for path in scratch.glob("*.o"):
                path.unlink()
            output("make", "-s", "-j2", cwd=scratch)
            done += 1
        return Result(done / (time.monotonic() - start_s))

    yield run


@contextlib.contextmanager
def pingpong(scratch):
    program = scratch / "pingpong"
    source = pathlib.Path(__file__).with_name("pingpong.c")
    subprocess.run([os.environ.get("CC", "cc"), "-O2", "-o", program, source], check=True)

    def run(seconds):
        rate, p99_ns = output(program, seconds, cpu=SERVER_CPU).split()
        return Result(float(rate), float(p99_ns) / 1e3)

    yield run


WORKLOADS = [
    Workload("fio 4k random reads, cached", ("fio",), cached_reads),
    Workload("redis-benchmark get", ("redis-server", "redis-benchmark"), redis),
    Workload("wrk against nginx", ("nginx", "wrk"), nginx),
    Workload("wrk against nginx, paced", ("nginx", "wrk"), nginx_paced),
    Workload("make -j2", ("make", "cc"), build),
    Workload("pipe ping-pong", ("cc",), pingpong),
]


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


@contextlib.contextmanager
def recording(mitra):
    """The recorder, ready, and where it records."""
    with tempfile.TemporaryDirectory(prefix="mitra-observer-") as scratch:
        archive = pathlib.Path(scratch) / "archive"
        program = ready(scratch, [mitra, "record", "--no-arm", "--archive", archive])
        try:
            time.sleep(SETTLE_S)
            yield program, archive
            program.check_alive()
            program.process.send_signal(signal.SIGCONT)
            program.stop()
        finally:
            program.remove()


class Goes:
    """The recorder goes on, or is stopped."""

    runs = 1

    def __init__(self, recorder):
        self.recorder = recorder

    def turn_to(self, with_it):
        self.recorder.process.send_signal(signal.SIGCONT if with_it else signal.SIGSTOP)
        time.sleep(GOES_ON_S)
        self.recorder.check_alive()

    def end(self):
        self.recorder.process.send_signal(signal.SIGCONT)


class Armed:
    """A probe is armed beside the recorder, or not."""

    runs = RUNS_ARMED

    def __init__(self, mitra, kind, archive, seconds):
        longest = int(2 * RUNS_ARMED * TRIES * seconds + ARM_S + 30)
        self.argv = [mitra, "capture", kind, "--seconds", str(longest), "--archive", archive]
        self.program = None

    def turn_to(self, with_it):
        if with_it and not self.program:
            self.program = machine.Program(self.argv, subprocess.DEVNULL)
            time.sleep(ARM_S)
        elif self.program and not with_it:
            self.program.check_alive()
            self.program.stop()
            self.end()
        time.sleep(GOES_ON_S)

    def end(self):
        if self.program:
            self.program.remove()
            self.program = None


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


def block(run, seconds, side):
    """Without, with, with, without; the ratios with/without."""
    sides = {False: [], True: []}
    for with_it in (False, True, True, False):
        side.turn_to(with_it)
        runs = [undisturbed(run, seconds) for _ in range(side.runs)]
        usual = lambda of: statistics.median(of(r) for r in runs)
        timed = runs[0].p99_us is not None
        sides[with_it].append(Result(usual(lambda r: r.throughput), usual(lambda r: r.p99_us) if timed else None))
    ratio = lambda of: math.prod(of(r) for r in sides[True]) ** 0.5 / math.prod(of(r) for r in sides[False]) ** 0.5
    return ratio(lambda r: r.throughput), ratio(lambda r: r.p99_us) if timed else None


def blocks(run, count, seconds, side):
    """Ratios with/without of each block: throughput and 99th percentile; and how many blocks were left out."""
    ratios, left_out = {"throughput": [], "p99": []}, 0
    for _ in range(count):
        try:
            throughput, p99 = block(run, seconds, side)
        except Disturbed:
            left_out += 1
            continue
        ratios["throughput"].append(throughput)
        if p99 is not None:
            ratios["p99"].append(p99)
    return ratios, left_out


def in_kernel(run, recorder):
    """What the recorder's programs in the kernel take of one CPU meanwhile; None where nobody can tell."""
    with machine.KernelSide() as kernel:
        before, start_s = kernel.run_s(recorder.pids()), time.monotonic()
        run(KERNEL_SIDE_S)
        after = kernel.run_s(recorder.pids())
    return None if before is None or after is None else (after - before) / (time.monotonic() - start_s)


def with_range(ratios, dice):
    """The median, and the middle 95 % of the medians of resampled blocks."""
    medians = sorted(statistics.median(dice.choices(ratios, k=len(ratios))) for _ in range(RESAMPLES))
    return statistics.median(ratios), medians[RESAMPLES // 40], medians[-RESAMPLES // 40 - 1]


def cell(ratios, goal, worse_is_less, dice):
    if not ratios:
        return None, "-"
    median, low, high = with_range(ratios, dice)
    kept = median >= goal if worse_is_less else median <= goal
    sure = low >= goal if worse_is_less else high <= goal
    verdict = "kept" if sure else "kept, not sure" if kept else "MISSED" if (high < goal if worse_is_less else low > goal) else "missed, not sure"
    return median, f"{median:.4f} [{low:.4f} {high:.4f}] {verdict}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mitra", required=True)
    parser.add_argument("--seconds", type=float, default=1, help="of one run")
    parser.add_argument("--blocks", type=int, help="of four turns each; 60, with --capture 12")
    parser.add_argument("--only", action="append", default=[], help="workloads whose name has this in it")
    parser.add_argument("--capture", help="arm this probe too, and compare with the recorder alone")
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("observer: needs root: without it there is no probe whose cost could be measured")
    args.blocks = args.blocks or (12 if args.capture else 60)
    dice, rows = random.Random(1), []
    side_name = f"capture {args.capture} beside the recorder" if args.capture else "the recorder"
    runs = f"{RUNS_ARMED} runs" if args.capture else "a run"
    print(f"With {side_name}, as a share of without; [the middle 95 %]; {args.blocks} blocks of four turns of {runs} of {args.seconds:g} s")
    for workload in WORKLOADS:
        if args.only and not any(word in workload.name for word in args.only):
            continue
        if missing := [program for program in workload.needs if not shutil.which(program)]:
            print(f"{workload.name:<30} left out: {', '.join(missing)} not installed")
            continue
        with tempfile.TemporaryDirectory(prefix="mitra-observer-", dir="/var/tmp") as scratch:
            with workload.prepare(pathlib.Path(scratch)) as run, recording(args.mitra) as (recorder, archive):
                run(1)
                side = Armed(args.mitra, args.capture, archive, args.seconds) if args.capture else Goes(recorder)
                try:
                    ratios, left_out = blocks(run, args.blocks, args.seconds, side)
                finally:
                    side.end()
                kernel = in_kernel(run, recorder)
        throughput, said = cell(ratios["throughput"], GOALS["throughput"], True, dice)
        p99, said_p99 = cell(ratios["p99"], GOALS["p99"], False, dice)
        note = f"  in the kernel {100 * kernel:.3f} % of a CPU" if kernel is not None else ""
        note += f"  ({left_out} blocks disturbed)" if left_out else ""
        print(f"{workload.name:<30} throughput {said:<42} p99 {said_p99}{note}", flush=True)
        row = {"workload": workload.name, "throughput": throughput, "p99": p99, "kernel": kernel, "blocks": ratios, "left_out": left_out}
        rows.append(row)
    if args.json:
        args.json.write_text(json.dumps({"side": side_name, "goals": GOALS, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
