#!/usr/bin/env python3
"""How fast other tools' output is explained, beside awk that only counts the lines of the same file.

Each file is made in a folder of its own in $TMPDIR from real lines of the fixtures, with times that advance, measured,
and deleted before the next is made. One run of each: seconds, megabytes a second, lines, and the largest resident set.
"""

import argparse
import os
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FIXTURES = Path(__file__).resolve().parents[2] / "crates/parse/tests/outputs"
DAY = 86_400


def clock(seconds):
    return f"{seconds // 3600 % 24:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"


def calls():
    """Calls of real programs, without their times and process ids."""
    found = []
    front = re.compile(r"^(?:\d+ +)?(?:\[pid +\d+\] )?\d\d:\d\d:\d\d\.\d+ (\w+\(.*\) += .*)$")
    for file in sorted((FIXTURES / "tracing/strace").rglob("*")):
        if file.is_file():
            text = file.read_text(errors="replace")
            found += [m[1] for m in map(front.match, text.splitlines()) if m and len(m[1]) < 200]
    return found or sys.exit("no fixture of strace -tt was found")


def strace(out, lines, pids):
    """One hour of calls; one in a hundred is long. With -f each line begins with a process id."""
    dice = random.Random(1)
    real = calls()
    mix = ['read(932, "..", 5) = 5', 'write(932, "..", 5) = 5', "epoll_wait(4, [], 64, 0) = 0"]
    mix += [c if dice.random() < 0.1 else c.replace("  ", " ") for c in dice.sample(real, min(60, len(real)))]
    us = 12 * 3600 * 1_000_000
    step = 3600 * 1_000_000 // lines
    block = []
    for i in range(lines):
        us += step
        second, rest = divmod(us, 1_000_000)
        call = mix[i % 3] if i % 8 else mix[i // 8 % len(mix)]
        front = f"{4000 + i % pids:<5} " if pids else ""
        block.append(f"{front}{clock(second)}.{rest:06} {call}\n")
        if len(block) == 100_000:
            out.write("".join(block))
            block.clear()
    out.write("".join(block))


def sar(out, size):
    """A real `sar -A` of 14 seconds, again and again."""
    body = (FIXTURES / "sysstat/sar/sar-A-C.txt").read_text().splitlines(keepends=True)[2:]
    body = [re.split(r"^13:30:(\d\d)", line) for line in body]
    second = 0
    while out.tell() < size:
        if second % DAY == 0:
            out.write(f"Linux 6.1.0 (vm) \t2026-01-{1 + second // DAY % 31:02} \t_x86_64_\t(2 CPU)\n\n")
        for parts in body:
            if len(parts) == 3:
                out.write(clock((second + int(parts[1]) - 14) % DAY) + parts[2])
            else:
                out.write(parts[0])
        second += 14
        if DAY - second % DAY < 14:
            second = (second // DAY + 1) * DAY


def pidstat(out, size):
    """`pidstat -u 1` of 300 processes."""
    dice = random.Random(2)
    out.write("Linux 6.1.0 (vm) \t2026-01-01 \t_x86_64_\t(2 CPU)\n\n")
    names = [dice.choice(["java", "postgres", "nginx", "kworker/0:1", "python3"]) for _ in range(300)]
    second = 0
    while out.tell() < size:
        second += 1
        # A header has the time at which the interval began.
        out.write(f"\n{clock(second - 1)}      UID       PID    %usr %system  %guest   %wait    %CPU   CPU  Command\n")
        for i, name in enumerate(names):
            user, system, wait = dice.random() * 9, dice.random() * 3, dice.random()
            out.write(
                f"{clock(second)}     1000 {1000 + i:9} {user:7.2f} {system:7.2f}    0.00 {wait:7.2f} "
                f"{user + system:7.2f} {i % 2:5}  {name}\n"
            )


def unknown(out, size):
    """A log of an application, in a layout that nothing knows."""
    dice = random.Random(3)
    i = 0
    while out.tell() < size:
        a, b, i = dice.randrange(100_000), dice.randrange(1000), i + 1
        out.write(f"level=info component=store msg=\"compacted {a} keys\" shard={b} duration={b}ms\n")
        out.write(f"WARN com.example.orders.Queue$Worker - retry {b} of order {a}, customer {i}\n")
        out.write(f"\tat com.example.orders.Handler.call(Handler.java:{b}) ~[orders-1.{b}.jar:?]\n")
        out.write(f"#{i} T{b} E: connection to 10.0.{b % 256}.{a % 256}:{a} refused (attempt {b})\n")


def peak(pid):
    """MiB of the largest resident set of a process so far; nothing once it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    found = re.search(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)
    return int(found[1]) / 1024 if found else 0


def measured(command):
    """Seconds of the clock, of CPU, and MiB of the largest resident set.

    The kernel counts for a child what its parent had when it began, so the size is asked for while it runs.
    """
    before = time.monotonic()
    memory = 0
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    while True:
        memory = max(memory, peak(child.pid))
        pid, status, usage = os.wait4(child.pid, os.WNOHANG)
        if pid:
            break
        time.sleep(0.005)
    child.returncode = os.waitstatus_to_exitcode(status)
    # Code 1 of mitra says that it found something.
    if child.returncode not in (0, 1):
        sys.exit(f"{command[0]} ended with {child.returncode}")
    return time.monotonic() - before, usage.ru_utime + usage.ru_stime, memory


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--mitra", required=True)
    options.add_argument("--scale", type=float, default=1.0, help="a part of the usual sizes")
    options.add_argument("--only", default="", help="files whose name has this in it")
    args = options.parse_args()
    lines, size = int(10_000_000 * args.scale), int(200_000_000 * args.scale)
    files = {
        "strace -tt": lambda out: strace(out, lines, 0),
        "strace -f -tt": lambda out: strace(out, lines, 5),
        "sar -A": lambda out: sar(out, size),
        "pidstat": lambda out: pidstat(out, size),
        "unknown log": lambda out: unknown(out, size),
    }
    counters = [[awk, "{n++} END {print n}"] for awk in ("mawk", "gawk") if shutil.which(awk)]
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    print(f"{'file':<15}{'MB':>6} {'program':<9}{'s':>7}{'CPU s':>7}{'MB/s':>7}{'MiB':>7}{'of mitra':>10}")
    with tempfile.TemporaryDirectory(prefix="mitra-files-") as folder:
        for name, make in files.items():
            if args.only not in name:
                continue
            path = Path(folder) / "output.txt"
            with path.open("w", buffering=1 << 20) as out:
                make(out)
            megabytes = path.stat().st_size / 1e6
            first = None
            for command in [[args.mitra, "explain", "--json"], *counters]:
                seconds, cpu, memory = measured([*command, str(path)])
                first = first or seconds
                print(
                    f"{name:<15}{megabytes:>6.0f} {Path(command[0]).name:<9}{seconds:>7.2f}{cpu:>7.2f}"
                    f"{megabytes / seconds:>7.0f}{memory:>7.0f}{seconds / first:>10.2f}",
                    flush=True,
                )
            path.unlink()


if __name__ == "__main__":
    main()
