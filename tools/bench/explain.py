"""How long an answer about a whole day takes.

The day is simulated: the archive of 24 hours at one second with plausible noise in every column. The time is that
of the whole command, from start to exit. Warm is the median of some runs after a first one; before the cold run the
kernel is told to forget the archive's files.
"""

import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

DAY_S = 86400
TASKS = 1000
BUSY = 50
WARM_RUNS = 5
GOAL_S = 1.0


def timed(argv):
    """Seconds, peak resident bytes and standard output of a command."""
    with tempfile.TemporaryFile() as output:
        start_s = time.monotonic()
        process = subprocess.Popen(argv, stdout=output, stdin=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.monotonic() - start_s
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            raise RuntimeError(f"{' '.join(map(str, argv))} ended with {process.returncode}")
        output.seek(0)
        return seconds, usage.ru_maxrss * 1024, output.read()


def forget(directory):
    """Drops the files from the page cache."""
    for path in directory.rglob("*"):
        if path.is_file():
            fd = os.open(path, os.O_RDONLY)
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)


def measure(mitra, simulator, seconds=DAY_S):
    with tempfile.TemporaryDirectory(prefix="mitra-bench-", dir=os.environ.get("TMPDIR")) as scratch:
        day = pathlib.Path(scratch) / "day"
        made_s, _, _ = timed([simulator, day, str(seconds), str(TASKS), str(BUSY)])
        size = sum(path.stat().st_size for path in day.rglob("*") if path.is_file())
        argv = [mitra, "explain", "--archive", day, "--since", "@0", "--json"]
        forget(day)
        cold_s, _, _ = timed(argv)
        runs = [timed(argv) for _ in range(WARM_RUNS)]
    report = json.loads(runs[-1][2])
    warm_s = statistics.median(run[0] for run in runs)
    peak_mb = max(run[1] for run in runs) / 1e6
    print(
        f"\nmitra explain over {seconds / 3600:.0f} h of {TASKS:,} processes, {BUSY} busy"
        f" (simulated in {made_s:.0f} s, {size / 1e6:.1f} MB):\n"
        f"  warm {warm_s:.2f} s (from {min(run[0] for run in runs):.2f} to {max(run[0] for run in runs):.2f}),"
        f" cold {cold_s:.2f} s, peak {peak_mb:.0f} MB, {len(report['incidents'])} incidents;"
        f" goal {GOAL_S:.0f} s: {'kept' if warm_s <= GOAL_S else 'MISSED'}"
    )
    return {"seconds": seconds, "archive_bytes": size, "warm_s": warm_s, "cold_s": cold_s, "peak_mb": peak_mb,
            "incidents": len(report["incidents"]), "window": report["window"]}
