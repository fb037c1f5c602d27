#!/usr/bin/env python3
"""What `mitra serve` takes while its page is used on a month of seconds of 1,000 processes.

    tools/bench/month.py --mitra BIN --simulator BIN [--days 30] [--keep FOLDER]

The month is one simulated day, over and over: its segments are linked under the numbers that follow, and Mitra places what
begins again behind what was before, as after a reboot. What is asked is what the page asks: it is opened, moved over the
month, brought closer to an hour, one incident is opened, and a whole day is explained. After each step stands what is resident,
and the most that ever was. Then a browser opens the page of another server, where there is one (web/test/month.mjs).
"""

import argparse
import http.client
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.parse

TASKS, BUSY = 1000, 50
DAY_S = 86400
# What the lanes of the page show of a machine, about.
LANES = ["tasks.run_delay", "tasks.d_io", "tasks.d_lock", "sys.cpu_user", "sys.cpu_system", "sys.cpu_iowait", "sys.cpu_steal",
         "mem.available", "mem.cached", "mem.anon", "mem.dirty", "vm.pgscan_direct", "vm.pgscan_kswapd", "vm.pswpin",
         "vm.pswpout", "psi.cpu_some", "psi.io_some", "psi.memory_some", "tcp.RetransSegs", "sys.ctxt"]
COLUMNS = 1200
GOAL_MB = 150
# In the browser.
GOAL_OPEN_S = 1
GOAL_FRAMES_PER_S = 30
WEB = pathlib.Path(__file__).resolve().parents[2] / "web"


def month(simulator, folder, days):
    """Links one day so often; hard links take no room."""
    day = folder / "day"
    if not day.is_dir():
        subprocess.run([simulator, day, str(DAY_S), str(TASKS), str(BUSY)], check=True, stdout=sys.stderr)
    segments = sorted(day.glob("*.seg"))
    whole = folder / "month"
    whole.mkdir(exist_ok=True)
    for number in range(days * len(segments)):
        path = whole / f"{number + 1:010}.seg"
        if not path.exists():
            os.link(segments[number % len(segments)], path)
    return whole


class Served:
    def __init__(self, mitra, archive):
        self.process = subprocess.Popen([mitra, "serve", archive, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True)
        self.url = self.process.stdout.readline().strip()
        told = urllib.parse.urlsplit(self.url)
        self.connection = http.client.HTTPConnection(told.hostname, told.port, timeout=600)
        token = urllib.parse.parse_qs(told.query).get("token", [None])[0]
        self.headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.rows = []

    def get(self, path, **query):
        text = urllib.parse.urlencode(query, doseq=True)
        self.connection.request("GET", f"/api/v1/{path}?{text}", headers=self.headers)
        answer = self.connection.getresponse()
        body = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{path}?{text}: {answer.status} {body[:200]!r}")
        return body

    def json(self, path, **query):
        return json.loads(self.get(path, **query))

    def lanes(self, since, until):
        self.get("series", metric=LANES, since=f"{since:.3f}", until=f"{until:.3f}", columns=COLUMNS)

    def resident_mb(self, what):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        line = next(line for line in status.splitlines() if line.startswith(what + ":"))
        return int(line.split()[1]) * 1024 / 1e6

    def step(self, name, ask):
        start = time.monotonic()
        ask()
        seconds = time.monotonic() - start
        self.rows.append((name, seconds, self.resident_mb("VmRSS"), self.resident_mb("VmHWM")))


def seconds(text):
    return time.mktime(time.strptime(text[:19], "%Y-%m-%dT%H:%M:%S"))


def look_around(served):
    recording = served.json("recording")
    since, until = seconds(recording["since"]), seconds(recording["until"])
    served.step("opened: the last hour", lambda: (served.lanes(until - 3600, until),
                                                  served.get("incidents", since=until - 7200, until=until)))
    served.step("all of the month", lambda: served.lanes(since, until))
    week = 7 * DAY_S
    served.step("moved by days, seven times",
                lambda: [served.lanes(since + n * DAY_S, since + n * DAY_S + week) for n in range(7)])
    middle = (since + until) / 2
    served.step("closer, seven times", lambda: [served.lanes(middle, middle + week / 4**n) for n in range(7)])
    found = served.json("incidents", since=middle, until=middle + 3 * 3600)["incidents"]
    served.step("the incidents of three hours, one opened", lambda: (
        served.get("report", since=middle, until=middle + 3 * 3600, incident=1) if found else None,
        served.lanes(middle, middle + 900),
        served.get("processes", at=middle + 60),
        served.get("rows", metric="task.cpu_time", since=middle, until=middle + 900)))
    served.step("the incidents of a day", lambda: served.get("incidents", since=middle, until=middle + DAY_S - 1))
    served.step("the incidents of three more days", lambda: [
        served.get("incidents", since=since + n * DAY_S, until=since + (n + 1) * DAY_S - 1) for n in range(3)])
    served.step("the state of the archive", lambda: served.get("status"))
    time.sleep(2)
    served.step("two seconds later", lambda: None)


def in_browser(mitra, archive):
    """What a browser sees, as web/test/month.mjs tells it; None where there is no browser."""
    if not (shutil.which("node") and (WEB / "node_modules/playwright-core").is_dir()):
        print("no browser: make web", file=sys.stderr)
        return None
    served = Served(mitra, archive)
    try:
        run = subprocess.run(["node", WEB / "test/month.mjs", served.url], stdout=subprocess.PIPE, check=True)
        return json.loads(run.stdout) | {"most_mb": served.resident_mb("VmHWM")}
    finally:
        served.process.terminate()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mitra", required=True)
    parser.add_argument("--simulator", required=True)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--keep", type=pathlib.Path, help="keeps the month there, or takes the one that is there")
    arguments = parser.parse_args()
    os.environ["TZ"] = "UTC"
    time.tzset()
    with tempfile.TemporaryDirectory(prefix="mitra-month-", dir=os.environ.get("TMPDIR")) as scratch:
        folder = arguments.keep or pathlib.Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        archive = month(arguments.simulator, folder, arguments.days)
        served = Served(arguments.mitra, archive)
        try:
            served.step("started", lambda: None)
            look_around(served)
        finally:
            served.process.terminate()
            served.process.wait()
        seen = in_browser(arguments.mitra, archive)
    print("| | seconds | resident | most so far |\n|---|---|---|---|")
    for name, took, now, most in served.rows:
        print(f"| {name} | {took:.1f} | {now:.0f} MB | {most:.0f} MB |")
    most = served.rows[-1][3]
    print(f"\n{arguments.days} days of {TASKS:,} processes: {most:.0f} MB at most; goal {GOAL_MB} MB:"
          f" {'kept' if most <= GOAL_MB else 'MISSED'}")
    if seen:
        is_kept = seen["open_s"] < GOAL_OPEN_S and seen["frames_per_s"] >= GOAL_FRAMES_PER_S
        print(f"in the browser: drawn after {seen['open_s']:.2f} s, all of it after {seen['all_s']:.2f} s more; moved at"
              f" {seen['frames_per_s']:.0f} frames a second, at most {seen['longest_ms']:.0f} ms between two; the server at most"
              f" {seen['most_mb']:.0f} MB; goals {GOAL_OPEN_S} s and {GOAL_FRAMES_PER_S}: {'kept' if is_kept else 'MISSED'}")


if __name__ == "__main__":
    main()
