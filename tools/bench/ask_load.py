#!/usr/bin/env -S python3 -B
"""The server at its limit beside its recorder: requests a second, their 99th percentile, its CPU, and what the recorder notices.

    tools/bench/ask_load.py --mitra BIN [--seconds 20]

`mitra record --serve` records this machine, alone for a while and then while wrk asks one question after the other in each of eight
connections. How late its samples are is what the recorder says of itself (mitra.tick_late); as root it has its priority.
"""

import argparse
import json
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.parse

CONNECTIONS = 8
# Until the recorder has loaded its programs and the server knows enough to be asked.
SETTLE_S = 15
# Around a load, which does not begin with a sample.
MARGIN_S = 1
QUESTIONS = {
    "/api/v1/recording": "what is recorded",
    "/api/v1/processes": "the processes of the last second",
    "/api/v1/series?columns=600&metric=tasks.run_delay&metric=sys.cpu_user&metric=mem.available": "three series",
    "/api/v1/incidents": "the incidents of the last hour",
}


def milliseconds(text):
    value, unit = re.fullmatch(r"([\d.]+)(us|ms|s|m)", text).groups()
    return float(value) * {"us": 1e-3, "ms": 1.0, "s": 1e3, "m": 6e4}[unit]


def wrk(url, token, seconds):
    """Requests a second, the 99th percentile in milliseconds, and answers that were none."""
    header = ["-H", f"Authorization: Bearer {token}"] if token else []
    argv = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds}", "--timeout", "30s", "--latency", *header, url]
    out = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True).stdout
    tail = re.search(r"^ +99% +(\S+)", out, re.M)[1]
    failed = re.search(r"Non-2xx or 3xx responses: (\d+)", out)
    return float(re.search(r"Requests/sec: +(\S+)", out)[1]), milliseconds(tail), int(failed[1]) if failed else 0


def cpu_s(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100


def resident_mb(pid):
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) * 1024 / 1e6


def recorded(mitra, archive, metric, since, until):
    argv = [mitra, "dump", "--archive", archive, "--metric", metric, "--json", "--since", f"@{since:.3f}", "--until", f"@{until:.3f}"]
    lines = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
    return [json.loads(line)["value"] for line in lines]


class Turn:
    """A stretch of time, and what the recorder says of it."""

    def __init__(self, name, work):
        self.name, self.since = name, time.time()
        self.result = work()
        self.until = time.time()

    def noticed(self, mitra, archive):
        since, until = self.since + MARGIN_S, self.until - MARGIN_S
        late = [value * 1e3 for value in recorded(mitra, archive, "mitra.tick_late", since, until)]
        took = recorded(mitra, archive, "mitra.sample_time", since, until)
        # One sample more or less lies in a stretch by where it begins.
        missing = max(0, int(until - since) - len(late))
        return (f"{len(late)} samples, {missing} missing, {statistics.median(late):.2f} ms late, at most {max(late):.2f} ms; one took"
                f" {statistics.median(took) * 1e3:.1f} ms")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mitra", required=True)
    parser.add_argument("--seconds", type=int, default=20)
    arguments = parser.parse_args()
    if not shutil.which("wrk"):
        sys.exit("wrk is not installed: tools/install-deps.sh bench")
    archive = tempfile.mkdtemp(prefix="mitra-load-")
    recorder = subprocess.Popen([arguments.mitra, "record", "--archive", archive, "--no-arm", "--serve=127.0.0.1:0"],
                                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        told = next(line for line in recorder.stdout if line.startswith("http")).strip()
        base, _, token = told.partition("?token=")
        children = pathlib.Path(f"/proc/{recorder.pid}/task/{recorder.pid}/children").read_text().split()
        server = next(pid for pid in children if b"\0serve\0" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes())
        time.sleep(SETTLE_S)
        turns = [Turn("nobody asks", lambda: time.sleep(arguments.seconds))]
        rows = []
        for path, what in QUESTIONS.items():
            before = cpu_s(server)
            url = urllib.parse.urljoin(base, path)
            turn = Turn(what, lambda url=url: wrk(url, token, arguments.seconds))
            used = (cpu_s(server) - before) / (turn.until - turn.since)
            turns.append(turn)
            rate, tail, failed = turn.result
            rows.append(f"| {what} | {rate:,.0f} | {tail:.1f} ms | {used:.2f} | {failed} |")
        most = resident_mb(server)
        # What is read here must not be read from a log that is being written to the end.
        time.sleep(2)
        print(f"{CONNECTIONS} connections, {arguments.seconds} s each; the server was resident with {most:.0f} MB at most\n")
        print("| asked for | requests a second | 99th percentile | CPUs of the server | refused |\n|---|---|---|---|---|")
        print("\n".join(rows))
        print("\n| meanwhile | the recorder |\n|---|---|")
        for turn in turns:
            print(f"| {turn.name} | {turn.noticed(arguments.mitra, archive)} |")
    finally:
        recorder.terminate()
        recorder.wait()
        shutil.rmtree(archive)


if __name__ == "__main__":
    main()
