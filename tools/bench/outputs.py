#!/usr/bin/env -S python3 -B
"""What it costs to send samples to stores: `mitra record` and `mitra send`, beside node_exporter with Prometheus as its agent, and
beside collectd, on this machine, in one go.

    tools/bench/outputs.py --mitra BIN [--seconds 60] [--readme docs/outputs.md]

Remote write goes to a real Prometheus, everything else to servers of this script that take whatever comes; these are not measured.
All send CPUs, load, memory, paging, disks, interfaces and filesystems, as far as each has them, every ten seconds, and up to 5,000
samples in a request of remote write. Every candidate runs twice, **one at a time**, and the second turn goes backwards, so that a
slow drift of the machine hits all alike.

What the columns mean:

- CPU: time of the programs from the counters of control groups of their own, over whole intervals. Start-up is left out.
- RSS: resident at the end, all programs of a candidate together.
- samples: what the store of remote write appended, what `mitra send` counts as taken, and of collectd the lines that came.
- CPU for 1,000 samples: the former by the latter.

What is not installed is left out, with the reason. Needs only the standard library, and root: otherwise some see less, or nothing.
"""

import argparse
import asyncio
import contextlib
import dataclasses
import datetime
import json
import os
import pathlib
import platform
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from typing import Callable

import bench
import machine

BEGIN, END = "<!-- outputs: begin -->", "<!-- outputs: end -->"
EVERY_S = 10
# Samples of a request.
BATCH = 5_000
# An interval, another one for who began within it, and a batch that waits.
FIRST_S_MAX = 90.0
READY_S_MAX = 60.0
# What is counted a moment after the first of an interval has come is all of the interval.
SETTLE_S = 2.0
IDLE = 1000
METRICS = [
    "cpu.*", "sys.load*", "sys.ctxt", "sys.intr", "sys.forks", "sys.procs_*", "mem.*", "vm.pgpg*", "vm.pswp*", "vm.pg*fault",
    "vm.oom_kill", "disk.*", "nic.*", "fs.*",
]
COLLECTORS = ["cpu", "loadavg", "stat", "meminfo", "vmstat", "diskstats", "netdev", "filesystem"]
PLUGINS = ["cpu", "load", "contextswitch", "memory", "vmem", "disk", "interface", "df"]
EXPORTER = "prometheus-node-exporter"


@dataclasses.dataclass(frozen=True)
class Part:
    """A program of a candidate."""

    name: str
    argv: list
    # Whether the next one may begin.
    is_ready: Callable[[], bool] = lambda: True


@dataclasses.dataclass(frozen=True)
class Candidate:
    name: str
    parts: list
    # How many samples it has sent so far.
    count: Callable[[], int]


@dataclasses.dataclass
class Turn:
    """One run of one candidate. CPU and memory are by the names of its parts."""

    seconds: float
    samples: int
    cpu_s: dict
    rss_bytes: dict
    other_cpu: float
    kernel_side_ms: float | None


class Sinks:
    """Takes what comes over HTTP and over TCP, and counts lines of the latter."""

    def __init__(self):
        self.lines = 0

    async def http(self, reader, writer):
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
                length = re.search(r"content-length: *(\d+)", head)
                await reader.readexactly(int(length[1]) if length else 0)
                body = str(self.lines).encode() if head.startswith("get") else b""
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
                await writer.drain()
        writer.close()

    async def tcp(self, reader, writer):
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                self.lines += data.count(b"\n")
        writer.close()

    async def serve(self):
        servers = [await asyncio.start_server(take, "127.0.0.1", 0) for take in (self.http, self.tcp)]
        print(*(server.sockets[0].getsockname()[1] for server in servers), flush=True)
        await asyncio.gather(*(server.serve_forever() for server in servers))


@dataclasses.dataclass(frozen=True)
class Stores:
    """Where samples go to: the port of a Prometheus, if there is one, and those of the sinks."""

    prometheus: int | None
    http: int
    tcp: int

    def write_url(self):
        return f"http://127.0.0.1:{self.prometheus}/api/v1/write"

    def appended(self):
        """Samples that the Prometheus has taken, which scrapes nothing itself."""
        text = get(self.prometheus, "/metrics").decode()
        found = re.findall(r"^prometheus_tsdb_head_samples_appended_total(?:\{.*\})? (\S+)$", text, re.M)
        return int(sum(map(float, found)))

    def lines(self):
        return int(get(self.http, "/"))


# This machine is asked directly, whatever proxy the environment names.
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def get(port, path):
    with DIRECT.open(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
        return answer.read()


def answers(port, path="/-/ready"):
    with contextlib.suppress(OSError):
        get(port, path)
        return True
    return False


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until(what, is_so, within_s, check=lambda: None):
    deadline_s = time.monotonic() + within_s
    while not is_so():
        check()
        if time.monotonic() > deadline_s:
            raise RuntimeError(f"waited {within_s:.0f} s in vain: {what}")
        time.sleep(0.2)


@contextlib.contextmanager
def stores(scratch):
    """The sinks, and a Prometheus where it is installed."""
    with contextlib.ExitStack() as ending:

        def start(argv, **options):
            # Should this script be killed, the kernel ends them.
            die = lambda: machine.libc.prctl(machine.PR_SET_PDEATHSIG, signal.SIGKILL)
            process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=die, **options)
            ending.callback(process.wait)
            ending.callback(process.terminate)
            return process

        sinks = start([sys.executable, "-B", __file__, "--serve"], stdout=subprocess.PIPE, text=True)
        http, tcp = map(int, sinks.stdout.readline().split())
        port = None
        if shutil.which("prometheus"):
            port, config = free_port(), scratch / "store.yml"
            config.write_text("global: {}\n")
            start(
                ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={scratch / 'store'}",
                 f"--web.listen-address=127.0.0.1:{port}", "--web.enable-remote-write-receiver"],
                stdout=subprocess.DEVNULL,
            )
            wait_until("prometheus is ready", lambda: answers(port), READY_S_MAX)
        yield Stores(port, http, tcp)


def mitra_tables(to):
    """The outputs by name: the protocol and the address."""
    tables = {"otlp": f"http://127.0.0.1:{to.http}/v1/metrics", "influx": f"http://127.0.0.1:{to.http}/write",
              "opentsdb": f"http://127.0.0.1:{to.http}/api/put", "graphite": f"tcp://127.0.0.1:{to.tcp}"}
    return ({"prometheus": to.write_url()} if to.prometheus else {}) | tables


def mitra(binary, name, tables, scratch):
    archive, state, config = scratch / "archive", scratch / "state", scratch / "mitra.toml"
    archive.mkdir()
    names = ", ".join(f'"{name}"' for name in METRICS)
    config.write_text("".join(
        f'[[output]]\nto = "{to}"\nurl = "{url}"\nevery = "{EVERY_S}s"\nmetrics = [{names}]\n' for to, url in tables.items()
    ))

    def count():
        sent = 0
        for file in state.glob("*.json"):
            position = json.loads(file.read_text())
            if position.get("last_error"):
                raise RuntimeError(f"mitra send: {file.stem}: {position['last_error']}")
            sent += position["tally"]["sent"]
        return sent

    record = Part("mitra record", [binary, "record", "--archive", archive],
                  lambda: machine.file_bytes(archive) >= bench.START_BYTES)
    send = Part("mitra send", [binary, "send", "--archive", archive, "--config", config, "--state", state])
    return Candidate(name, [record, send], count)


def agent_flag():
    """What makes an agent of the Prometheus that is installed."""
    major = re.search(r" v?(\d+)\.", version("prometheus", "prometheus", "--version"))
    return "--agent" if major and int(major[1]) >= 3 else "--enable-feature=agent"


def exporter(to, scratch):
    port, agent, config = free_port(), free_port(), scratch / "agent.yml"
    config.write_text(
        f"global: {{scrape_interval: {EVERY_S}s}}\n"
        f"scrape_configs:\n- job_name: node\n  static_configs: [{{targets: ['127.0.0.1:{port}']}}]\n"
        # All of an interval in one request, as mitra send does it; otherwise the rest of it comes five seconds later.
        f"remote_write:\n- url: {to.write_url()}\n  queue_config: {{capacity: {BATCH}, max_samples_per_send: {BATCH}}}\n"
    )
    first = Part(EXPORTER, [EXPORTER, f"--web.listen-address=127.0.0.1:{port}", "--web.disable-exporter-metrics",
                            "--collector.disable-defaults", *(f"--collector.{name}" for name in COLLECTORS)],
                 lambda: answers(port, "/"))
    second = Part("prometheus, agent", ["prometheus", agent_flag(), f"--config.file={config}",
                                        f"--storage.agent.path={scratch / 'agent'}", f"--web.listen-address=127.0.0.1:{agent}"],
                  lambda: answers(agent))
    return Candidate("node_exporter and Prometheus as its agent", [first, second], to.appended)


def collectd_path():
    return shutil.which("collectd") or next(iter(map(str, pathlib.Path("/usr/sbin").glob("collectd"))), None)


def collectd(to, scratch):
    config = scratch / "collectd.conf"
    config.write_text(
        f'Hostname "bench"\nFQDNLookup false\nInterval {EVERY_S}\nBaseDir "{scratch}"\nPIDFile "{scratch}/collectd.pid"\n'
        + "".join(f"LoadPlugin {name}\n" for name in [*PLUGINS, "write_graphite"])
        + "<Plugin cpu>\n  ValuesPercentage false\n</Plugin>\n"
        f'<Plugin write_graphite>\n  <Node "sink">\n    Host "127.0.0.1"\n    Port "{to.tcp}"\n    Protocol "tcp"\n'
        "    StoreRates false\n  </Node>\n</Plugin>\n"
    )
    return Candidate("collectd, write_graphite", [Part("collectd", [collectd_path(), "-f", "-C", config])], to.lines)


def run(candidate, seconds):
    """Lets a candidate send for at least that long, in whole intervals, and says what it cost."""
    with contextlib.ExitStack() as ending:
        programs = {}

        def check():
            for program in programs.values():
                program.check_alive()

        def wait_for_interval():
            """Waits until more has been sent, and all of it."""
            before = candidate.count()
            wait_until(f"{candidate.name} sends", lambda: candidate.count() > before, FIRST_S_MAX, check)
            time.sleep(SETTLE_S)

        for part in candidate.parts:
            programs[part.name] = machine.Program(part.argv, subprocess.DEVNULL)
            ending.callback(programs[part.name].remove)
            wait_until(f"{part.name} is ready", part.is_ready, READY_S_MAX, check)
        kernel_side = ending.enter_context(machine.KernelSide())
        recorder = programs.get("mitra record")
        kernel_s = lambda: kernel_side.run_s(recorder.pids()) if recorder else None
        # The first may be several intervals at once.
        wait_for_interval()
        wait_for_interval()
        cpu_s = lambda: {name: program.cpu_s() for name, program in programs.items()}
        begun_s, cpu, busy_s, sent, kernel = time.monotonic(), cpu_s(), machine.machine_busy_s(), candidate.count(), kernel_s()
        time.sleep(seconds)
        wait_for_interval()
        ended_s, cpu_end, busy_end_s, sent_end, kernel_end = (
            time.monotonic(), cpu_s(), machine.machine_busy_s(), candidate.count(), kernel_s())
        check()
        rss_bytes = {name: program.memory_bytes()[0] for name, program in programs.items()}
        for program in reversed(programs.values()):
            program.stop()
    window_s = ended_s - begun_s
    own = {name: cpu_end[name] - cpu[name] for name in programs}
    return Turn(
        seconds=window_s,
        samples=sent_end - sent,
        cpu_s=own,
        rss_bytes=rss_bytes,
        other_cpu=(busy_end_s - busy_s - sum(own.values())) / window_s / os.cpu_count(),
        kernel_side_ms=None if kernel_end is None else 1e3 * (kernel_end - (kernel or 0)) / window_s,
    )


def candidates(binary, to):
    """Functions that make each in an empty folder, and why others are left out."""
    all_tables, found, missing = mitra_tables(to), [], []
    if to.prometheus:
        one = {"prometheus": all_tables["prometheus"]}
        found.append(lambda scratch: mitra(binary, "mitra record and mitra send, remote write", one, scratch))
    else:
        missing.append("remote write, and node_exporter with it: prometheus is not installed")
    found.append(lambda scratch: mitra(
        binary, f"mitra record and mitra send, {len(all_tables)} outputs: {', '.join(all_tables)}", all_tables, scratch))
    if not shutil.which(EXPORTER):
        missing.append(f"node_exporter: {EXPORTER} is not installed")
    elif to.prometheus:
        found.append(lambda scratch: exporter(to, scratch))
    if collectd_path():
        found.append(lambda scratch: collectd(to, scratch))
    else:
        missing.append("collectd: it is not installed")
    return found, missing


def measure(everyone, seconds, scratch):
    """The turns of each candidate, by its name and in the order of the table."""
    turns, number = {}, 0
    for order in (everyone, everyone[::-1]):
        for make in order:
            number += 1
            folder = scratch / f"turn{number}"
            folder.mkdir()
            candidate = make(folder)
            print(f"  {candidate.name} …", file=sys.stderr)
            turns.setdefault(candidate.name, []).append(run(candidate, seconds))
    return turns


def figures(turns):
    """Sums of both turns as what one second costs: of all programs, and of each by name."""
    seconds, samples = sum(turn.seconds for turn in turns), sum(turn.samples for turn in turns)

    def of(names):
        cpu_s = sum(turn.cpu_s[name] for turn in turns for name in names)
        rss = sum(turn.rss_bytes[name] for turn in turns for name in names) / len(turns)
        return {"cpu_ms": 1e3 * cpu_s / seconds, "rss_mb": rss / 1e6, "samples": samples / seconds,
                "for_1000": 1e6 * cpu_s / samples}

    names = list(turns[0].cpu_s)
    return of(names), {name: of([name]) for name in names} if len(names) > 1 else {}


COLUMNS = [("cpu_ms", "CPU ms/s", "{:.2f}"), ("rss_mb", "RSS MB", "{:.1f}"), ("samples", "samples/s", "{:,.1f}"),
           ("for_1000", "CPU ms for 1,000 samples", "{:.2f}")]


def table(results):
    """Markdown; each figure is compared with the first candidate."""
    yield f"| | {' | '.join(title if key == 'samples' else f'{title} | ×' for key, title, _ in COLUMNS)} |"
    yield f"|---|{'---|' * (2 * len(COLUMNS) - 1)}"
    base = None
    for name, turns in results.items():
        whole, parts = figures(turns)
        base = base or whole
        for label, got in [(f"**{name}**", whole), *((f"of it {part}", got) for part, got in parts.items())]:
            cells = []
            for key, _, form in COLUMNS:
                is_shared = label.startswith("of it") and key == "samples"
                cells.append("" if is_shared else form.format(got[key]))
                if key != "samples":
                    cells.append(f"{got[key] / base[key]:.1f}")
            yield f"| {label} | {' | '.join(cells)} |"


def version(name, *argv):
    said = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False).stdout
    found = re.search(rf"(?:version|{name}) v?(\d+\.\d[\w.+~-]*)", said)
    return f"{name} {found[1] if found else 'of an unknown version'}"


def versions(binary, to):
    yield version("mitra", binary, "--version")
    if to.prometheus:
        yield version("prometheus", "prometheus", "--version")
    if shutil.which(EXPORTER):
        yield version("node_exporter", EXPORTER, "--version")
    if collectd_path():
        yield version("collectd", collectd_path(), "-h")


def report(results, missing, names, seconds):
    when, kernel = datetime.date.today().isoformat(), platform.release().split("-")[0]
    yield (f"`tools/bench/outputs.py --seconds {seconds:g}` of {when}: {', '.join(names)} on Linux {kernel}, {os.cpu_count()} CPUs, "
           f"{IDLE:,} idle processes.")
    yield f"CPUs, load, memory, paging, disks, interfaces and filesystems every {EVERY_S} s, as far as each has them. `mitra record` takes a sample"
    yield "of these, and of all else that it records, each second:"
    yield ""
    yield from table(results)
    yield ""
    yield "What stands behind × is how many times as much it is as in the first line."
    turns = [turn for all_turns in results.values() for turn in all_turns]
    kernel_ms = [turn.kernel_side_ms for turn in turns if turn.kernel_side_ms is not None]
    if kernel_ms:
        yield f"The recorder's BPF programs take up to {max(kernel_ms):.2f} ms/s more in the context of other tasks."
    noise = max(turn.other_cpu for turn in turns)
    if noise > bench.NOISE_MAX:
        yield f"Something else took up to {noise:.0%} of the CPUs: no figure is good."
    for why in missing:
        yield f"Left out is {why}."


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mitra", help="the binary")
    parser.add_argument("--seconds", type=float, default=60, help="measured seconds of each turn, at least")
    parser.add_argument("--readme", type=pathlib.Path, help="a file with marks, between which the table is written")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        return asyncio.run(Sinks().serve())
    if not args.mitra:
        parser.error("--mitra is wanted")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if os.geteuid() != 0:
        print("note: not root; CPU time of ended children is lost, and some see less than they would", file=sys.stderr)
    with contextlib.ExitStack() as ending:
        scratch = pathlib.Path(ending.enter_context(
            tempfile.TemporaryDirectory(prefix="mitra-bench-", dir=os.environ.get("TMPDIR"))))
        to = ending.enter_context(stores(scratch))
        everyone, missing = candidates(args.mitra, to)
        for why in missing:
            print(f"left out: {why}", file=sys.stderr)
        ending.enter_context(machine.load(IDLE, 0))
        results = measure(everyone, args.seconds, scratch)
        text = "\n".join(report(results, missing, versions(args.mitra, to), args.seconds))
    print(text)
    if args.readme:
        head, rest = args.readme.read_text().split(BEGIN, 1)
        args.readme.write_text(f"{head}{BEGIN}\n{text}\n{END}{rest.split(END, 1)[1]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
