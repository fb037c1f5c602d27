#!/usr/bin/env -S python3 -B
"""The embedded index beside a real OpenSearch, on the same documents, in one go.

- indexing: distinct documents of 2 KB as configuration looks, per second of CPU time. OpenSearch: user and system time of
  its process from the first request until the last segment is on disk and no merge runs, after it has warmed up on others;
  requests of a thousand documents with their ids, in an index of Mitra's template, and nothing else that Mitra's own client
  would send. Embedded: CPU time of the process that writes, until all is acknowledged, on disk and in the index of words.
- queries: the same queries in turns, in process and through the cluster's HTTP on a connection that stays open, ten hits
  listed and all counted; the median of 20 rounds after 10 unmeasured ones. Compared is the median over all queries. Both
  sides have to find the same. `mitra search` is measured from its start to its end.
- disk: two weeks of hosts of which each day a fiftieth of the documents changes by a line. OpenSearch: the primaries of the
  days' indices after a flush, without those in which Mitra keeps what was replaced. Embedded: blocks of everything below
  the folder, sealed, what was replaced included.
- idle: indexers of 500 files each, and of what this machine says of itself, at a frequency of 300 s; for as long, in real
  time, one look at everything and what lies between two.

Needs only the standard library, and Java for OpenSearch. As root it uses a folder that another user may reach.
"""

import argparse
import contextlib
import http.client
import json
import os
import pathlib
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import machine

SKIPPED = 77
WARM_UP = 5_000
DOCUMENTS = 20_000
# Lines of documents of one bulk request, each with its action.
BULK_LINES = 2_000
IDLE_HOSTS = 6
IDLE_FILES = 500
IDLE_S = 300
CLI_TURNS = 3
DAY = "2026-11-01"
GOALS = {"indexing": 5.0, "queries": 5.0, "disk": 20.0, "idle": 0.001}


class Cluster:
    """One node, and what the kernel says of its process."""

    def __init__(self, script, folder, port):
        self.script, self.folder, self.port = script, folder, port
        self.url = f"http://127.0.0.1:{port}"
        done = subprocess.run([script, "start", folder, str(port)], stdout=subprocess.PIPE, text=True)
        if done.returncode:
            sys.exit(done.returncode)
        self.pid = int(done.stdout.split()[-1])
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)

    def stop(self):
        subprocess.run([self.script, "stop", self.folder], check=True)

    def ask(self, method, path, body=None):
        kind = "application/x-ndjson" if path.startswith("/_bulk") else "application/json"
        self.connection.request(method, path, body, {"Content-Type": kind} if body else {})
        answer = self.connection.getresponse()
        said = json.loads(answer.read())
        if answer.status >= 300 or said.get("errors"):
            raise RuntimeError(f"{method} {path}: {answer.status} {str(said)[:500]}")
        return said

    def cpu_s(self):
        stat = pathlib.Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")

    def settle(self, pattern):
        """Until all is searchable and on disk, and no merge runs."""
        self.ask("POST", f"/{pattern}/_refresh")
        self.ask("POST", f"/{pattern}/_flush")
        while self.ask("GET", f"/{pattern}/_stats/merge")["_all"]["total"]["merges"]["current"]:
            time.sleep(0.2)

    def bulk(self, path):
        with path.open("rb") as lines:
            while body := b"".join(line for _, line in zip(range(BULK_LINES), lines)):
                self.ask("POST", "/_bulk?filter_path=errors,items.*.error", body)


def free_ports():
    """A port that is free together with the one for nodes among themselves."""
    for port in range(19_700, 19_900):
        with contextlib.suppress(OSError):
            for one in (port, port + 100):
                with socket.socket() as s:
                    s.bind(("127.0.0.1", one))
            return port
    sys.exit("search: no port is free")


def load(args, *argv, to=None):
    """Runs the load side, and gives what it says."""
    done = subprocess.run([args.load, *map(str, argv)], stdout=to or subprocess.PIPE, check=True, text=True)
    return None if to else json.loads(done.stdout)


def with_parent():
    machine.libc.prctl(machine.PR_SET_PDEATHSIG, signal.SIGKILL)


def disk_bytes(folder):
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())


def indexing(args, cluster, scratch):
    template = load(args, "template", "plain_*")
    cluster.ask("PUT", "/_index_template/plain", json.dumps(template))
    lines = scratch / "lines"
    for index, first, count in (("plain_warm", DOCUMENTS, WARM_UP), (f"plain_{DAY}", 0, DOCUMENTS)):
        with lines.open("w") as to:
            load(args, "bulk", index, first, count, to=to)
        cpu, clock = cluster.cpu_s(), time.monotonic()
        cluster.bulk(lines)
        cluster.settle(index)
        cpu, clock = cluster.cpu_s() - cpu, time.monotonic() - clock
    lines.unlink()
    stats = cluster.ask("GET", f"/plain_{DAY}/_stats/docs,store")["_all"]["primaries"]
    assert stats["docs"]["count"] == DOCUMENTS, stats
    embedded = load(args, "index", scratch / "distinct", 0, DOCUMENTS)
    return {
        "opensearch": {"cpu_s": cpu, "clock_s": clock, "per_cpu_s": DOCUMENTS / cpu,
                       "bytes": stats["store"]["size_in_bytes"] / DOCUMENTS},
        "embedded": {**embedded, "per_cpu_s": DOCUMENTS / embedded["cpu_s"],
                     "bytes": disk_bytes(scratch / "distinct") / DOCUMENTS},
    }


def queries(args, cluster, what, folder, prefix):
    said = load(args, "ask", what, folder, cluster.url, prefix)
    rows = said["queries"]
    middle = lambda side: statistics.median(row[side] for row in rows)
    return {"embedded_us": middle("embedded_us"), "cluster_us": middle("cluster_us"),
            "opening_us": said["opening_us"], "differ": [row["query"] for row in rows if not row["same"]], "rows": rows}


def command(args, folder, scope):
    """Milliseconds from the start of `mitra search` to its end, for each query the middle one of some turns."""
    asked = subprocess.run([args.load, "queries"], stdout=subprocess.PIPE, check=True, text=True).stdout.splitlines()
    times = []
    for query in asked:
        turns = []
        for _ in range(CLI_TURNS):
            argv = [args.mitra, "search", "--store", folder, "--limit", "10", *scope, "--", query]
            start = time.monotonic()
            done = subprocess.run(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            turns.append(1e3 * (time.monotonic() - start))
            # 1 says that nothing was found.
            if done.returncode not in (0, 1):
                raise RuntimeError(f"{query}: {done.stderr}")
        times.append(statistics.median(turns))
    return statistics.median(times)


def disk(args, cluster, scratch, kind):
    prefix = f"{kind}_"
    before = cluster.cpu_s()
    said = load(args, "fill", kind, scratch / "spool" / kind, cluster.url, prefix)
    days = f"{prefix}2026*"
    cluster.settle(days)
    cpu = cluster.cpu_s() - before
    stats = cluster.ask("GET", f"/{days}/_stats/docs,store")["_all"]["primaries"]
    count = stats["docs"]["count"]
    assert count == said["documents_days"], (count, said)
    embedded = load(args, "fill", kind, scratch / kind)
    return {
        "documents_days": count,
        "opensearch": {"bytes": stats["store"]["size_in_bytes"] / count, "cpu_s": cpu},
        "embedded": {"bytes": disk_bytes(scratch / kind) / count, "cpu_s": embedded["cpu_s"]},
    }


def start_idle(args, scratch):
    """Indexers that find nothing new; they run beside everything else."""
    running = []
    files = scratch / "files"
    files.mkdir()
    for number in range(IDLE_FILES):
        (files / f"app{number}.conf").write_text(f"number = {number}\n" * 100)
    for number in range(IDLE_HOSTS):
        argv = [args.load, "idle", scratch / f"idle{number}", files, f"idle{number}", str(args.idle_seconds)]
        running.append(subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, preexec_fn=with_parent))
    return running


def idle(running):
    said = [json.loads(process.communicate()[0]) for process in running]
    cpu, seconds = sum(one["cpu_s"] for one in said), sum(one["seconds"] for one in said)
    return {"passes": sum(one["passes"] for one in said), "cpu_ms_per_period": 1e3 * cpu / len(said),
            "share": cpu / seconds, "hosts": said}


def table(found):
    yield f"{'':<50}{'OpenSearch':>12}{'embedded':>12}{'ratio':>10}   goal"

    def row(name, theirs, ours, ratio, goal=None, form="{:,.0f}"):
        verdict = "" if goal is None else f"≥ {goal:g} {'kept' if ratio >= goal else 'MISSED'}"
        return f"{name:<50}{form.format(theirs):>12}{form.format(ours):>12}{ratio:>10.1f}   {verdict}"

    if part := found.get("indexing"):
        theirs, ours = part["opensearch"], part["embedded"]
        ratio = ours["per_cpu_s"] / theirs["per_cpu_s"]
        yield row("documents indexed per CPU-second", theirs["per_cpu_s"], ours["per_cpu_s"], ratio, GOALS["indexing"])
        yield row("  bytes on disk of each", theirs["bytes"], ours["bytes"], theirs["bytes"] / ours["bytes"])
    for what, part in found.get("queries", {}).items():
        name = f"µs of a query, {what}"
        ratio = part["cluster_us"] / part["embedded_us"]
        yield row(name, part["cluster_us"], part["embedded_us"], ratio, GOALS["queries"])
        ahead = sum(row["cluster_us"] / row["embedded_us"] >= GOALS["queries"] for row in part["rows"])
        yield f"  {ahead} of {len(part['rows'])} queries are that much faster; the index opens in {part['opening_us']:,.0f} µs"
        if part.get("command_ms"):
            ms = part["command_ms"]
            yield row("  `mitra search`, start to end", part["cluster_us"], 1e3 * ms, part["cluster_us"] / 1e3 / ms)
    for what, part in found.get("disk", {}).items():
        theirs, ours = part["opensearch"]["bytes"], part["embedded"]["bytes"]
        yield row(f"bytes of a document and day, {what}", theirs, ours, theirs / ours, GOALS["disk"], "{:,.1f}")
    if part := found.get("idle"):
        share, goal = part["share"], GOALS["idle"]
        verdict = "kept" if share < goal else "MISSED"
        yield (f"{'share of a core where nothing changes':<50}{'':>12}{100 * share:>11.3f}%{'':>10}   < {100 * goal:g} % {verdict}"
               f"  ({part['cpu_ms_per_period']:.0f} ms in 300 s, {part['passes']} looks at everything)")


def remarks(found):
    """What stands below the table."""
    for what, part in found.get("queries", {}).items():
        for query in part["differ"]:
            yield f"both sides differ, {what}: {query}"
        slow = sorted(part["rows"], key=lambda row: row["cluster_us"] / row["embedded_us"])[:5]
        yield f"least ahead, {what}: " + "; ".join(
            f"{row['query']} ({row['embedded_us']:.0f} µs, {row['cluster_us'] / row['embedded_us']:.1f})" for row in slow
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--load", required=True, help="the example search_load")
    parser.add_argument("--mitra", help="measures `mitra search` too")
    parser.add_argument("--only", action="append", choices=["indexing", "queries", "disk", "idle"], default=[])
    parser.add_argument("--idle-seconds", type=int, default=IDLE_S, help="a part of it says little")
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()
    wanted = set(args.only) or {"indexing", "queries", "disk", "idle"}
    script = pathlib.Path(__file__).resolve().parents[1] / "opensearch.sh"
    found = {"goals": GOALS}
    with tempfile.TemporaryDirectory(prefix="mitra-search-", dir="/var/tmp") as scratch:
        scratch = pathlib.Path(scratch)
        # The server runs as somebody else.
        scratch.chmod(0o755)
        running = start_idle(args, scratch) if "idle" in wanted else []
        if wanted != {"idle"}:
            cluster = Cluster(script, scratch / "opensearch", free_ports())
            try:
                measure(args, wanted, cluster, scratch, found)
            finally:
                cluster.stop()
        if running:
            found["idle"] = idle(running)
    print("\n".join(table(found)))
    print("\n".join(remarks(found)))
    if args.json:
        args.json.write_text(json.dumps(found, indent=1))


def measure(args, wanted, cluster, scratch, found):
    (scratch / "spool").mkdir()
    days = {"hosts that share nothing": "own", "like hosts": "like"}
    if wanted & {"indexing", "queries"}:
        found["indexing"] = indexing(args, cluster, scratch)
    if wanted & {"disk", "queries"}:
        found["disk"] = {name: disk(args, cluster, scratch, kind) for name, kind in days.items()}
    if "queries" in wanted:
        asked = {
            f"{DOCUMENTS:,} distinct documents": ("distinct", "distinct", "plain_", ["--on", DAY]),
            "14 days of hosts that share nothing": ("hosts", "own", "own_", ["--since", DAY, "--until", "2026-11-14"]),
        }
        found["queries"] = {}
        for name, (what, folder, prefix, scope) in asked.items():
            found["queries"][name] = queries(args, cluster, what, scratch / folder, prefix)
            if args.mitra:
                found["queries"][name]["command_ms"] = command(args, scratch / folder, scope)


if __name__ == "__main__":
    main()
