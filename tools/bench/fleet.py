#!/usr/bin/env -S python3 -B
"""The day of a fleet against a real OpenSearch of two nodes, and what follows for a large one.

    tools/bench/fleet.py --load BIN [--hosts 10000] [--minutes 30] [--readme docs/fleet.md]

The agents of all hosts run in a few processes, each with the real indexer, schedule, spool and connections; their day is
faster than a real one. In its first half both nodes are restarted, one after the other; near its end the whole cluster.
When all is delivered, every document of both days and every change is asked for and compared with what was accepted.

Measured are: operations in each second at each node, its queue and what it refused; CPU time of the nodes while hosts
fill the index of the second day, when nothing is restarted; bytes on loopback, from which what the nodes tell each other
is taken; bytes of the indices after a flush. From these follows the
sizing of a fleet of 40,000 hosts with 2,500 documents each. --readme writes both between the marks of a file.
Needs only the standard library, and Java and Maven for OpenSearch.
"""

import argparse
import contextlib
import datetime
import json
import math
import os
import pathlib
import platform
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

BEGIN, END = "<!-- fleet: begin -->", "<!-- fleet: end -->"
# A process has a folder, a lock and up to two connections of each host open; many systems allow 20,000.
HOSTS_PER_PROCESS = 2_500
FREQUENCY_S = 3_600
PREFIX = "fleet_"
# Shares of the day.
ROLLING, WHOLE = 0.15, 0.8
AWAY_S = 5
# The fleet that is sized.
HOSTS, DOCUMENTS, KEEP_DAYS = 40_000, 2_500, 90
CORES, DISK_TB, HEAP_GB = 16, 8, 31
# Of each node here; a smaller heap is filled by garbage until the node refuses to read all documents at the end.
HEAP_HERE = "1g"
# Half of a node is for queries, merges, and for a node that is away.
BUSY = 0.5
# What OpenSearch advises: a shard of 10 to 50 GB, at most 25 of them for each GB of heap; its low watermark of disks.
SHARD_GB, SHARDS_PER_GB, WATERMARK = 30, 25, 0.85
SPREADS = {"1h": 3_600, "6h": 21_600, "23h": 82_800}


class Node:
    def __init__(self, port, pid):
        self.port, self.pid, self.cpu_before = port, pid, 0.0

    def cpu_s(self):
        """With what the node took before it was restarted."""
        with contextlib.suppress(OSError):
            stat = pathlib.Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
            self.last = (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")
        return self.cpu_before + self.last


class Cluster:
    """Two nodes by tools/opensearch.sh."""

    def __init__(self, folder):
        self.script, self.folder = pathlib.Path(__file__).resolve().parents[1] / "opensearch.sh", folder
        self.nodes = {}
        self.start(*free_ports(2))

    def start(self, *ports):
        done = subprocess.run([self.script, "start", self.folder, *map(str, ports)], stdout=subprocess.PIPE, text=True,
                              env=os.environ | {"MITRA_OPENSEARCH_HEAP": HEAP_HERE})
        if done.returncode:
            sys.exit(done.returncode)
        for line in done.stdout.splitlines():
            _, port, pid = line.split()
            node = self.nodes.setdefault(int(port), Node(int(port), int(pid)))
            node.pid, node.last = int(pid), 0.0

    def stop(self, *ports):
        for port in ports:
            node = self.nodes[port]
            node.cpu_before, node.last = node.cpu_s(), 0.0
            subprocess.run([self.script, "stop", self.folder, str(port)], check=True)

    def ask(self, path, port=None, method="GET", timeout=120):
        port = port or next(iter(self.nodes))
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", method=method)
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return json.load(answer)

    def green(self):
        # It says 408 if that takes longer: then the restarts go on without a replica.
        with contextlib.suppress(urllib.error.HTTPError):
            self.ask("/_cluster/health?wait_for_status=green&timeout=60s")

    def cpu_s(self):
        return sum(node.cpu_s() for node in self.nodes.values())


def free_ports(count):
    ports = []
    for port in range(19_900, 20_300, 3):
        with contextlib.suppress(OSError):
            for one in (port, port + 100):
                with socket.socket() as s:
                    s.bind(("127.0.0.1", one))
            ports.append(port)
        if len(ports) == count:
            return ports
    sys.exit("fleet: no ports are free")


def loopback_bytes():
    line = next(l for l in pathlib.Path("/proc/net/dev").read_text().splitlines() if l.strip().startswith("lo:"))
    return int(line.split(":")[1].split()[0])


class Watch(threading.Thread):
    """Asks each node once a second what it did."""

    def __init__(self, cluster):
        super().__init__(daemon=True)
        self.cluster, self.ended = cluster, threading.Event()
        self.operations, self.queue_max, self.rejected, self.transport = [], 0, 0, 0
        # When, and the CPU time of the nodes so far.
        self.cpu = []
        self.last = {}

    def run(self):
        while not self.ended.wait(1.0):
            self.operations.append(sum(self.look(port) for port in list(self.cluster.nodes)))
            self.cpu.append((time.monotonic(), self.cluster.cpu_s()))

    def look(self, port):
        path = "/_nodes/_local/stats/indices,thread_pool,transport"
        try:
            (node,) = self.cluster.ask(path, port, timeout=5)["nodes"].values()
        except (OSError, ValueError):
            return 0
        write = node["thread_pool"]["write"]
        now = {"operations": node["indices"]["indexing"]["index_total"], "rejected": write["rejected"],
               "transport": node["transport"]["tx_size_in_bytes"]}
        before = self.last.get(port, now)
        # Counters begin anew with the node.
        if now["transport"] < before["transport"]:
            before = dict.fromkeys(now, 0)
        self.last[port] = now
        self.queue_max = max(self.queue_max, write["queue"])
        self.rejected += now["rejected"] - before["rejected"]
        self.transport += now["transport"] - before["transport"]
        return max(0, now["operations"] - before["operations"])


def restarts(cluster, began, seconds, told):
    """One node after the other, and later both."""
    ports = list(cluster.nodes)
    time.sleep(max(0.0, began + seconds * ROLLING - time.monotonic()))
    for port in reversed(ports):
        cluster.stop(port)
        cluster.start(port)
        cluster.green()
    told["rolling_s"] = time.monotonic() - began - seconds * ROLLING
    time.sleep(max(0.0, began + seconds * WHOLE - time.monotonic()))
    away = time.monotonic()
    cluster.stop(*reversed(ports))
    time.sleep(AWAY_S)
    cluster.start(*ports)
    told["away_s"] = time.monotonic() - away


def agents(args, cluster, scratch):
    nodes = ",".join(f"http://127.0.0.1:{port}" for port in cluster.nodes)
    processes, left = [], args.hosts
    while left > 0:
        group = f"group{len(processes)}"
        folder = scratch / group
        folder.mkdir()
        argv = [args.load, group, min(left, HOSTS_PER_PROCESS), args.files, int(args.minutes * 60), FREQUENCY_S,
                args.spread, args.shards, folder, nodes, PREFIX]
        processes.append(subprocess.Popen(list(map(str, argv)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        left -= HOSTS_PER_PROCESS
    return processes


def step(processes, wanted):
    """Waits until each process says so, and lets all of them go on."""
    for process in processes:
        if (said := process.stdout.readline().strip()) != wanted:
            raise RuntimeError(f"fleet_load said {said!r}, not {wanted!r}")


def go_on(processes):
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()


def day(args, cluster, scratch):
    processes = agents(args, cluster, scratch)
    step(processes, "ready")
    watch, told = Watch(cluster), {}
    watch.start()
    cpu, lo, began = cluster.cpu_s(), loopback_bytes(), time.monotonic()
    go_on(processes)
    restarts(cluster, began, args.minutes * 60, told)
    step(processes, "lived")
    watch.ended.set()
    watch.join()
    pattern = f"/{PREFIX}*"
    cluster.ask(f"{pattern}/_flush", method="POST")
    at = [began + args.minutes * 60 * share for share in (0.5, 0.5 + args.spread / 86_400)]
    filling = [cpu for when, cpu in watch.cpu if at[0] <= when <= at[1]]
    told |= {"fill_cpu_s": filling[-1] - filling[0], "clock_s": time.monotonic() - began, "cpu_s": cluster.cpu_s() - cpu, "lo_bytes": loopback_bytes() - lo,
             "operations": sum(watch.operations), "per_second": watch.operations, "queue_max": watch.queue_max,
             "rejected": watch.rejected, "transport_bytes": watch.transport}
    stats = cluster.ask(f"{pattern}/_stats/docs,store")["indices"]
    days = [one["primaries"] for name, one in stats.items() if name.removeprefix(PREFIX)[0].isdigit()]
    told |= {"documents": sum(one["docs"]["count"] for one in days), "bytes": sum(one["store"]["size_in_bytes"] for one in days)}
    # One after the other: each asks for all of its documents.
    told["agents"] = []
    for process in processes:
        go_on([process])
        told["agents"].append(json.loads(process.stdout.readline()))
    return told


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, math.ceil(share * len(values)) - 1)] if values else 0


def busiest(times_ns, bins_s):
    counts = {}
    for ns in times_ns:
        counts[ns // (bins_s * 10**9)] = counts.get(ns // (bins_s * 10**9), 0) + 1
    return max(counts.values(), default=0)


def figures(args, told):
    """Rows of the table of what was measured."""
    total = lambda key: sum(agent[key] for agent in told["agents"])
    every = lambda key: [ns for agent in told["agents"] for ns in agent[key]]
    busy = [n for n in told["per_second"] if n > 0]
    yield "documents of both days", f"{total('documents'):,}: {total('lost')} lost, {total('doubled')} doubled, {total('stale')} in an older state"
    yield "changes", f"{total('changes'):,}: {total('changes_lost')} lost, {total('changes_doubled')} doubled"
    yield "restarts", (f"one node after the other in {told['rolling_s']:.0f} s, both at once for {told['away_s']:.0f} s; "
                       f"at most {max(a['waited_bytes'] for a in told['agents']) / 1e3:,.0f} kB of a host waited on its disk, "
                       f"all was delivered {max(a['flushed_s'] for a in told['agents']):.0f} s after the day")
    starts, fills = every("starts_ns"), every("fills_ns")
    minutes = args.spread // 60
    yield "hosts that began in a minute", f"{busiest(starts, 60):,} at most; evenly it is {len(starts) * 60 / min(FREQUENCY_S, args.spread):,.0f}"
    yield "hosts that filled the day in a minute", f"{busiest(fills, 60):,} at most; evenly it is {len(fills) / minutes:,.0f}"
    yield "operations of both nodes in a real second", (
        f"median {percentile(busy, 0.5):,}, 99th percentile {percentile(busy, 0.99):,}, most {max(busy, default=0):,}; "
        f"a queue of {told['queue_max']:,} requests at most, {told['rejected']:,} refused and sent again")
    yield "bytes on disk of a document and day, without its replica", f"{told['bytes'] / told['documents']:,.0f}"
    filled = total("documents") // 2
    yield "while the second day was filled", (
        f"{told['fill_cpu_s']:,.1f} s of CPU of both nodes for {filled:,} documents and their replicas: {filled / told['fill_cpu_s']:,.0f} for each second")
    yield "CPU of both nodes in all, with their starts", f"{told['cpu_s']:,.0f} s in {told['clock_s']:,.0f} s"
    yield "bytes on the network for a document", (
        f"{(told['lo_bytes'] - told['transport_bytes']) / told['documents']:,.0f} between hosts and nodes, "
        f"{told['transport_bytes'] / told['documents']:,.0f} between nodes")
    yield "the load itself", f"{total('cpu_s'):,.0f} s of CPU; a step began {max(a['late_s'] for a in told['agents']):.1f} s late at most"


def sizing(told):
    """Rows for the fleet that is sized, for each spread."""
    documents = HOSTS * DOCUMENTS
    per_doc = told["bytes"] / told["documents"]
    cpu_s = documents * told["fill_cpu_s"] / (told["documents"] / 2)
    day_gb = documents * per_doc / 1e9
    shards = math.ceil(day_gb / SHARD_GB)
    disk_tb = day_gb * 2 * KEEP_DAYS / 1e3 / WATERMARK
    by_disk = math.ceil(disk_tb / DISK_TB)
    # The day and its history, each with a replica.
    by_heap = math.ceil(shards * 2 * 2 * KEEP_DAYS / (SHARDS_PER_GB * HEAP_GB))
    network = (told["lo_bytes"] - told["transport_bytes"]) / told["documents"] * documents
    between = told["transport_bytes"] / told["documents"] * documents
    for spread, seconds in SPREADS.items():
        by_cpu = math.ceil(cpu_s / (seconds * CORES * BUSY))
        nodes = max(by_cpu, by_disk, by_heap, 3)
        yield [f'`spread = "{spread}"`', f"{documents / seconds:,.0f}", f"{by_cpu}", f"{by_disk}", f"{by_heap}", f"**{nodes}**",
               f"{network * 8 / seconds / 1e9:.2f} + {between * 8 / seconds / 1e9:.2f}", f"{nodes * 24:,}"]
    yield [f"{day_gb:,.0f}", f"{shards}", f"{disk_tb:,.0f}", f"{cpu_s / 3600:,.0f}"]


def report(args, told):
    when, kernel = datetime.date.today().isoformat(), platform.release().split("-")[0]
    command = f"tools/bench/fleet.py --hosts {args.hosts} --minutes {args.minutes:g} --files {args.files} --spread {args.spread}"
    yield f"`{command}` of {when}: {args.hosts:,} hosts of {told['documents'] / args.hosts / 2:.0f} documents, whose day passed in"
    yield f"{args.minutes:g} minutes, on two nodes of OpenSearch with {HEAP_HERE} of heap that share {os.cpu_count()} CPUs of Linux {kernel} with each other and with the hosts:"
    yield ""
    yield "| | |\n|---|---|"
    for name, value in figures(args, told):
        yield f"| {name} | {value} |"
    *rows, (day_gb, shards, disk_tb, cpu_h) = sizing(told)
    yield ""
    yield f"Computed from it, for {HOSTS:,} hosts of {DOCUMENTS:,} documents: {HOSTS * DOCUMENTS / 1e6:.0f} million documents a day, {day_gb} GB and {cpu_h} hours of"
    yield f"one CPU. `shards = {shards}`: {SHARD_GB} GB for each, of the 10 to 50 that OpenSearch advises. For {KEEP_DAYS} days with one replica {disk_tb} TB of disks, filled"
    yield f"to {WATERMARK:.0%}, where OpenSearch stops to place shards. A node has {CORES} CPUs of this kind, {DISK_TB} TB and {HEAP_GB} GB of heap with at most {SHARDS_PER_GB} shards for each;"
    yield "half of its CPUs are for queries, merges and a node that is away. Three is the least at which one may be away."
    yield ""
    yield "| | documents/s | nodes by CPU | by disk | by shards | nodes | Gbit/s from hosts + between nodes | node-hours a day |"
    yield "|---|---|---|---|---|---|---|---|"
    for row in rows:
        yield f"| {' | '.join(row)} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--load", required=True, help="the example fleet_load")
    parser.add_argument("--hosts", type=int, default=10_000)
    parser.add_argument("--files", type=int, default=28, help="files of a host; two lists come with them")
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--spread", type=int, default=21_600, help="seconds")
    parser.add_argument("--shards", type=int, default=2)
    parser.add_argument("--readme", type=pathlib.Path)
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mitra-fleet-", dir="/var/tmp") as scratch:
        scratch = pathlib.Path(scratch)
        # The server runs as somebody else.
        scratch.chmod(0o755)
        cluster = Cluster(scratch / "opensearch")
        try:
            told = day(args, cluster, scratch)
        finally:
            subprocess.run([cluster.script, "stop", cluster.folder], check=False)
    text = "\n".join(report(args, told))
    print(text)
    if args.json:
        args.json.write_text(json.dumps(told))
    wrong = [(agent[key], agent["examples"]) for agent in told["agents"]
             for key in ("lost", "doubled", "stale", "changes_lost", "changes_doubled") if agent[key]]
    if wrong:
        sys.exit(f"fleet: not every document is there once: {wrong}")
    if args.readme:
        head, rest = args.readme.read_text().split(BEGIN, 1)
        args.readme.write_text(f"{head}{BEGIN}\n{text}\n{END}{rest.split(END, 1)[1]}")


if __name__ == "__main__":
    main()
