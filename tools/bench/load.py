#!/usr/bin/env -S python3 -B
"""`mitra load` beside other load generators, as far as they are installed: wrk, hey, ab, vegeta.

    tools/bench/load.py --mitra BIN [--seconds 10] [--rates 100,1000,…]

Three tables in Markdown:

- nginx at constant rates: how much of the rate each generator kept, and what it says of the answers;
- a server that answers after delays that are known: what is told beside what is true;
- a server that stalls for a second in each ten: what a closed loop does not see.
"""

import argparse
import asyncio
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time

RATES = [100, 1000, 2000, 5000, 10_000, 15_000, 20_000]
# A generator counts as keeping a rate up to this error.
KEPT = 0.005
CONNECTIONS = 20
# Of the servers whose delays are known.
RATE = 100
KNOWN_S = 20
DELAY_MS = (10, 110)
STALL_EVERY_S, STALL_S, STALL_DELAY_MS = 10, 1, 5
STALLED_S = 30
QUANTILES = (50, 90, 95, 99)


class Known:
    """A server whose n-th request is answered after a delay that is known: even between two times, or small but for stalls."""

    def __init__(self, stalls):
        self.stalls, self.n, self.first = stalls, 0, None

    def delay_s(self, now):
        self.first = self.first or now
        if self.stalls:
            # The stall is the last second of each ten.
            into = (now - self.first) % STALL_EVERY_S - (STALL_EVERY_S - STALL_S)
            return max(STALL_DELAY_MS / 1000, STALL_S - into) if into >= 0 else STALL_DELAY_MS / 1000
        # 37 and 100 have no common factor: each hundred requests have each of a hundred delays once.
        low, high = DELAY_MS
        share = (self.n * 37 % 100 + 0.5) / 100
        self.n += 1
        return (low + (high - low) * share) / 1000

    async def serve(self, reader, writer):
        loop = asyncio.get_running_loop()
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                now = loop.time()
                await asyncio.sleep(self.delay_s(now))
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\nok")
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def run(self):
        server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        print(server.sockets[0].getsockname()[1], flush=True)
        await server.serve_forever()


def truth_ms(stalls, quantile):
    """What a quantile of latency is, from when requests are due."""
    q = quantile / 100
    if not stalls:
        low, high = DELAY_MS
        return low + (high - low) * q
    # A tenth of the requests waits for nought to a second, evenly.
    beyond = 1 - STALL_S / STALL_EVERY_S
    return STALL_DELAY_MS if q <= beyond else max(STALL_DELAY_MS, 1000 * STALL_S * (q - beyond) / (1 - beyond))


def known_server(stalls):
    argv = [sys.executable, "-B", __file__, "--serve", "stalls" if stalls else "delays"]
    process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    return process, f"http://127.0.0.1:{int(process.stdout.readline())}/"


def nginx(scratch):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    config = scratch / "nginx.conf"
    config.write_text(
        f"daemon off; pid {scratch}/pid; error_log {scratch}/error.log; worker_processes 1;\n"
        "events { worker_connections 1024; }\n"
        f"http {{ access_log off; keepalive_requests 100000000; server {{ listen 127.0.0.1:{port};\n"
        '  location / { return 200 "ok"; } } }\n'
    )
    binary = shutil.which("nginx") or "/usr/sbin/nginx"
    process = subprocess.Popen([binary, "-c", config, "-p", scratch], stderr=subprocess.DEVNULL)
    for _ in range(100):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return process, f"http://127.0.0.1:{port}/"
        time.sleep(0.05)
    raise RuntimeError("nginx did not start")


def output(argv):
    return subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False).stdout


def ms(text):
    value, unit = re.fullmatch(r"([\d.]+) *(us|ms|s|m)", text.strip()).groups()
    return float(value) * {"us": 1e-3, "ms": 1.0, "s": 1e3, "m": 6e4}[unit]


# Each returns requests a second, and quantiles of what it calls latency in milliseconds.


def with_mitra(mitra, url, rate, seconds, connections=CONNECTIONS):
    argv = [mitra, "load", url, "--rate", f"{rate}/s", "--duration", f"{seconds}s", "--json", "--no-mark"]
    said = json.loads(output([*argv, "--connections", str(connections)]))
    quantiles = {q: said["latency"].get(f"p{q}", float("nan")) * 1e3 for q in QUANTILES}
    return said.get("achieved_rate") or 0.0, quantiles, said


def with_wrk(url, _, seconds, connections=CONNECTIONS):
    out = output(["wrk", "-t1", f"-c{connections}", f"-d{seconds}", "--timeout", "30s", "--latency", url])
    found = dict(re.findall(r"^ +(\d+)% +(\S+)", out, re.M))
    return float(re.search(r"Requests/sec: +(\S+)", out)[1]), {int(q): ms(v) for q, v in found.items()}, None


def with_hey(url, rate, seconds, connections=CONNECTIONS):
    # Its rate is one of each connection.
    argv = ["hey", "-z", f"{seconds}s", "-c", str(connections), "-q", f"{rate / connections:.6f}", "-t", "30", url]
    out = output(argv)
    found = re.findall(r"^ +(\d+)%+ in ([\d.]+) secs", out, re.M)
    return float(re.search(r"Requests/sec:\s+(\S+)", out)[1]), {int(q): float(v) * 1e3 for q, v in found}, None


def with_ab(url, _, seconds, connections=CONNECTIONS):
    out = output(["ab", "-q", "-k", "-t", str(seconds), "-n", "100000000", "-c", str(connections), url])
    found = re.findall(r"^ +(\d+)% +(\d+)", out, re.M)
    return float(re.search(r"Requests per second: +(\S+)", out)[1]), {int(q): float(v) for q, v in found}, None


def with_vegeta(url, rate, seconds, connections=CONNECTIONS):
    attack = ["vegeta", "attack", f"-rate={rate}/s", f"-duration={seconds}s", f"-max-workers={connections}"]
    results = subprocess.run(attack, input=f"GET {url}\n".encode(), stdout=subprocess.PIPE, check=True).stdout
    report = subprocess.run(["vegeta", "report", "-type=json"], input=results, stdout=subprocess.PIPE, check=True)
    said = json.loads(report.stdout)
    return said["throughput"], {q: said["latencies"][f"{q}th"] / 1e6 for q in (50, 90, 95, 99)}, None


OTHERS = {"wrk": with_wrk, "hey": with_hey, "ab": with_ab, "vegeta": with_vegeta}
# wrk and ab have no rate: they send when an answer has come.
WITHOUT_RATE = {"wrk", "ab"}


def number(value):
    return "-" if value is None or value != value else f"{value:,.2f}" if value < 100 else f"{value:,.0f}"


def row(*cells):
    print(f"| {' | '.join(str(cell) for cell in cells)} |", flush=True)


def head(*cells):
    row(*cells)
    row(*("---" for _ in cells))


def rates(mitra, others, wanted, seconds):
    print(f"\n## nginx at constant rates, {seconds} s each, {CONNECTIONS} connections, {os.cpu_count()} CPUs for both\n")
    head("generator", "offered 1/s", "answered 1/s", "error", "kept", "p50 ms", "p99 ms", "late p99 ms", "trusted")
    with tempfile.TemporaryDirectory(prefix="mitra-bench-") as scratch:
        server, url = nginx(pathlib.Path(scratch))
        try:
            for rate in wanted:
                told, quantiles, said = with_mitra(mitra, url, rate, seconds)
                late = said["lateness"].get("p99", float("nan")) * 1e3
                rate_row("mitra load", rate, told, quantiles, number(late), "yes" if said["is_trusted"] else "no")
                for name in (name for name in others if name not in WITHOUT_RATE):
                    told, quantiles, _ = OTHERS[name](url, rate, seconds)
                    rate_row(name, rate, told, quantiles, "-", "-")
            for name in (name for name in others if name in WITHOUT_RATE):
                told, quantiles, _ = OTHERS[name](url, None, seconds)
                row(name, "as fast as it can", number(told), "-", "-", number(quantiles.get(50)), number(quantiles.get(99)), "-", "-")
        finally:
            server.terminate()
            server.wait()


def rate_row(name, rate, told, quantiles, late, trusted):
    error = told / rate - 1
    kept = "yes" if abs(error) <= KEPT else "no"
    p50, p99 = number(quantiles.get(50)), number(quantiles.get(99))
    row(name, f"{rate:,}", number(told), f"{error:+.2%}", kept, p50, p99, late, trusted)


def known(mitra, others, stalls):
    seconds, connections = (STALLED_S, 4) if stalls else (KNOWN_S, CONNECTIONS)
    what = f"stalls for {STALL_S} s in each {STALL_EVERY_S}" if stalls else f"answers after {DELAY_MS[0]} to {DELAY_MS[1]} ms, evenly"
    print(f"\n## A server that {what}: {RATE}/s for {seconds} s, {connections} connections\n")
    head("generator", "answered 1/s", *(f"p{q} ms" for q in QUANTILES))
    row("what is so", RATE, *(number(truth_ms(stalls, q)) for q in QUANTILES))

    def one(name, ask):
        server, url = known_server(stalls)
        try:
            told, quantiles, _ = ask(url)
            row(name, number(told), *(number(quantiles.get(q)) for q in QUANTILES))
        finally:
            server.terminate()
            server.wait()

    one("mitra load", lambda url: with_mitra(mitra, url, RATE, seconds, connections))
    for name in others:
        label = f"{name} (as fast as it can)" if name in WITHOUT_RATE else name
        one(label, lambda url, ask=OTHERS[name]: ask(url, RATE, seconds, connections))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mitra", help="the binary")
    parser.add_argument("--seconds", type=int, default=10, help="of each rate on nginx")
    parser.add_argument("--rates", default=",".join(map(str, RATES)))
    parser.add_argument("--serve", choices=["delays", "stalls"], help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        return asyncio.run(Known(args.serve == "stalls").run())
    if not args.mitra:
        parser.error("--mitra is wanted")
    others = [name for name in OTHERS if shutil.which(name)]
    for name in OTHERS.keys() - set(others):
        print(f"left out: {name} is not installed", file=sys.stderr)
    rates(args.mitra, others, [int(rate) for rate in args.rates.split(",")], args.seconds)
    known(args.mitra, others, stalls=False)
    known(args.mitra, others, stalls=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
