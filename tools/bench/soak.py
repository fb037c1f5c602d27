#!/usr/bin/env -S python3 -B
"""Hours of recording with thousands of tasks that come and go: does the recorder stay as it was?

Flat means: the recorder's memory and its open files, at their largest in the last quarter of the time, are no more than
at their largest in the second quarter, but for what one sample may need. (The first quarter is left out: tables grow to
the size of what they hold.) Lost means reported: each second between the first sample and the last is either in the
archive or in a gap of which `mitra status` tells, with the reason.

Needs only the standard library, and root for the recorder to see everything.
"""

import argparse
import datetime
import json
import pathlib
import subprocess
import sys
import tempfile
import time

import machine

# Between two looks at the recorder.
LOOK_S = 10.0
# A segment is sealed in memory that is given back; the allocator keeps some of it for a while. One open segment is 6 MiB by
# the recorder's own bound, so a difference of a quarter of that is one that a leak makes and a segment does not.
SLACK_BYTES = 3 << 19
# Descriptors that a look at another network namespace, a segment and its directory take for a moment.
SLACK_FILES = 8
# A sample may come late, and the first and the last are not whole intervals.
SLACK_SAMPLES = 3
STATUS_TIMEOUT_S = 600


def look(program):
    """Resident bytes, open files and threads of the recorder alone."""
    pid = program.process.pid
    status = machine.fields(pathlib.Path(f"/proc/{pid}/status"), ":")
    files = len(list(pathlib.Path(f"/proc/{pid}/fd").iterdir()))
    return {"rss": int(status["VmRSS"].split()[0]) * 1024, "files": files, "threads": int(status["Threads"])}


def quarters(looks, what):
    """The largest in each quarter."""
    n = len(looks)
    return [max(look[what] for look in looks[n * i // 4 : max(n * (i + 1) // 4, n * i // 4 + 1)]) for i in range(4)]


def seconds(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def missing(status, interval_s):
    """Samples that are in no gap and not there; nothing where all is accounted for."""
    since, until = seconds(status["span"]["since"]), seconds(status["span"]["until"])
    gaps_s = sum(seconds(gap["until"]) - seconds(gap["since"]) for gap in status["gaps"])
    unsaid = [gap for gap in status["gaps"] if not gap["why"]]
    wanted = (until - since - gaps_s) / interval_s
    return wanted - status["frames"], len(status["gaps"]), gaps_s, unsaid


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mitra", required=True, help="the binary")
    parser.add_argument("--hours", type=float, default=4.0)
    parser.add_argument("--interval-ms", type=int, default=1000)
    parser.add_argument("--tasks", type=int, default=10000)
    parser.add_argument("--churn", type=int, default=100, help="processes that begin and end in each second")
    parser.add_argument("--json", help="where to put what was seen")
    arguments = parser.parse_args()

    interval_s, looks = arguments.interval_ms / 1e3, []
    with tempfile.TemporaryDirectory(prefix="mitra-soak-") as scratch, machine.load(
        arguments.tasks, 10, arguments.churn
    ):
        archive = pathlib.Path(scratch) / "archive"
        command = [arguments.mitra, "record", "--archive", archive, "--interval", f"{arguments.interval_ms}ms"]
        program = machine.Program([str(word) for word in command], subprocess.DEVNULL)
        try:
            began_s = time.monotonic()
            while time.monotonic() - began_s < arguments.hours * 3600:
                time.sleep(LOOK_S)
                program.check_alive()
                looks.append(look(program))
                if len(looks) % 60 == 0:
                    last = looks[-1]
                    print(
                        f"  {(time.monotonic() - began_s) / 60:.0f} min: {last['rss'] / 1e6:.1f} MB, "
                        f"{last['files']} files, {last['threads']} threads",
                        file=sys.stderr,
                        flush=True,
                    )
            cpu_s = program.cpu_s()
            lasted_s = time.monotonic() - began_s
            code = program.stop()
        finally:
            program.remove()
        said = subprocess.run(
            [arguments.mitra, "status", "--json", "--archive", archive],
            stdout=subprocess.PIPE,
            check=True,
            timeout=STATUS_TIMEOUT_S,
        )
        status, disk_bytes = json.loads(said.stdout), machine.file_bytes(archive)

    lost, gaps, gaps_s, unsaid = missing(status, interval_s)
    rss, files = quarters(looks, "rss"), quarters(looks, "files")
    verdicts = {
        "memory is flat": rss[3] <= rss[1] + SLACK_BYTES,
        "descriptors are flat": files[3] <= files[1] + SLACK_FILES,
        "lost is reported": abs(lost) <= SLACK_SAMPLES + gaps and not unsaid and not status["skipped"],
        "it ended in order": code == 0,
    }
    print(
        f"{lasted_s / 3600:.2f} h, a sample each {interval_s:g} s, {arguments.tasks:,} tasks and {arguments.churn} more "
        f"each second that come and go"
    )
    print(f"  samples       {status['frames']:,}; {gaps} gaps of {gaps_s:.1f} s in all, each with its reason")
    print(f"  unaccounted   {lost:.1f} samples")
    print(f"  memory        {' '.join(f'{b / 1e6:.1f}' for b in rss)} MB, the largest of each quarter")
    print(f"  descriptors   {' '.join(str(n) for n in files)}")
    print(f"  CPU           {1e3 * cpu_s / lasted_s:.1f} ms/s; {disk_bytes / lasted_s:.0f} bytes/s on disk")
    for what, holds in verdicts.items():
        print(f"  {what:<22}{'yes' if holds else 'NO'}")
    if arguments.json:
        seen = {"seconds": lasted_s, "looks": looks, "status": status, "verdicts": verdicts}
        pathlib.Path(arguments.json).write_text(json.dumps(seen))
    return 0 if all(verdicts.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
