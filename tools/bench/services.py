#!/usr/bin/env -S python3 -B
"""Requests and response times as recorded, beside what the load generators counted, in one run.

Redis (redis-benchmark) and PostgreSQL (pgbench -S), both over TCP and over a Unix socket, nginx (wrk) and a gRPC server
(h2load), each at its limit with many connections, at a hundred requests a second, and at as many that take 5 ms in the server each, on
loopback. Recorded is what `mitra services --json` says of the service, and of the generator's own calls, over the time of the load. The
service is seen from outside: what the generator adds, its own queue and the way to it, is in its number only; at the limit, where it has
no CPU of its own, that is most of it. So the calls of the generator are shown too.

Needs root and the programs; one that is missing is left out and named.
"""

import argparse
import contextlib
import csv
import datetime
import io
import json
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

REDIS, NGINX, POSTGRES, GRPC, BEHIND = 7481, 7482, 7483, 7484, 7485
FORMS = {"limit": "limit", "rate": "100/s", "slow": "100/s, 5 ms"}
# The recorder learns in its first frames which ports are listened on.
SETTLE_S = 6
# Beyond the load on both sides, so that its first and last frames are whole.
MARGIN_S = 2.2

NGINX_CONF = """daemon off; worker_processes 1; pid nginx.pid; error_log error.log;
events { worker_connections 512; }
http { access_log off; keepalive_requests 1000000; server { listen 127.0.0.1:%d; location / { return 200 "hello world\\n"; }
location /slow { proxy_pass http://127.0.0.1:%d; } } }
""" % (NGINX, BEHIND)

# What nginx waits for.
SLOW_SERVER = """import http.server, sys, time

class Slow(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        time.sleep(0.005)
        self.wfile.write(b"HTTP/1.0 200 OK\\r\\nContent-Length: 1\\r\\n\\r\\n.")

http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Slow).serve_forever()
"""


def ran(argv, **options):
    return subprocess.run([str(a) for a in argv], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options).stdout


def seconds(text):
    value, unit = re.fullmatch(r"([\d.]+)(us|ms|s)", text).groups()
    return float(value) * {"us": 1e-6, "ms": 1e-3, "s": 1.0}[unit]


# One request after the other, of which each waits for a hundredth of a second on the client's side.
PACED = """import socket, sys, time
where, request, count = sys.argv[1], sys.argv[2].encode().decode("unicode_escape").encode(), int(sys.argv[3])
s = socket.socket(socket.AF_UNIX if where.startswith("/") else socket.AF_INET)
s.connect(where if where.startswith("/") else ("127.0.0.1", int(where)))
t = []
for _ in range(count):
    began = time.perf_counter()
    s.sendall(request)
    s.recv(4096)
    t.append(time.perf_counter() - began)
    time.sleep(0.01)
t.sort()
print(len(t), t[len(t) // 2], t[len(t) * 99 // 100])
"""


def paced(where, request, seconds_long):
    count, p50, p99 = ran([sys.executable, "-c", PACED, where, request, 100 * seconds_long]).split()
    return int(count), float(p50), float(p99)


class Redis:
    name, program, port = "redis", "redis-benchmark", REDIS

    def start(self, folder):
        self.at, self.where = ["-p", REDIS], REDIS
        return self.server(["--port", str(REDIS)], folder)

    def server(self, at, folder):
        argv = ["redis-server", *at, "--save", "", "--dir", folder, "--enable-debug-command", "local"]
        return [subprocess.Popen(argv, stdout=subprocess.DEVNULL)]

    def limit(self, seconds_long):
        number = 150_000 * seconds_long
        out = ran(["redis-benchmark", *self.at, "-t", "get", "-n", number, "-c", 50, "--csv"])
        row = list(csv.DictReader(io.StringIO(out[out.index('"test"'):])))[0]
        # It asks for the configuration first, twice.
        return number + 2, float(row["p50_latency_ms"]) / 1e3, float(row["p99_latency_ms"]) / 1e3

    def rate(self, seconds_long):
        return paced(self.where, "PING\\r\\n", seconds_long)

    def slow(self, seconds_long):
        return paced(self.where, "DEBUG SLEEP 0.005\\r\\n", seconds_long)


class UnixRedis(Redis):
    name = "redis, Unix socket"

    def start(self, folder):
        self.port = self.where = f"{folder}/redis.sock"
        self.at = ["-s", self.where]
        return self.server(["--port", "0", "--unixsocket", self.where], folder)


class Nginx:
    name, program, port = "nginx", "wrk", NGINX

    def start(self, folder):
        pathlib.Path(folder, "nginx.conf").write_text(NGINX_CONF)
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        return [subprocess.Popen([sys.executable, "-c", SLOW_SERVER, str(BEHIND)], **quiet),
                subprocess.Popen(["nginx", "-p", folder, "-c", "nginx.conf"], **quiet)]

    def limit(self, seconds_long):
        out = ran(["wrk", "-t1", "-c20", f"-d{seconds_long}", "--latency", f"http://127.0.0.1:{NGINX}/"])
        of = lambda percent: seconds(re.search(rf"^ +{percent}% +(\S+)", out, re.M)[1])
        return int(re.search(r"(\d+) requests in", out)[1]), of(50), of(99)

    def rate(self, seconds_long):
        return paced(NGINX, "GET / HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n", seconds_long)

    def slow(self, seconds_long):
        return paced(NGINX, "GET /slow HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n", seconds_long)


GRPC_SERVER = """import sys, time
from concurrent import futures
import grpc

def answer(request, context):
    time.sleep(float(request))
    return b"." * 500

server = grpc.server(futures.ThreadPoolExecutor(max_workers=8))
get = grpc.unary_unary_rpc_method_handler(answer)
server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bench.Shop", {"Get": get}),))
server.add_insecure_port(f"127.0.0.1:{sys.argv[1]}")
server.start()
server.wait_for_termination()
"""


class Grpc:
    # Debian's packages python3-grpcio, and nghttp2-client for what asks.
    name, program, port = "grpc", "h2load", GRPC

    def start(self, folder):
        self.folder = pathlib.Path(folder)
        argv = ["/usr/bin/python3", "-c", GRPC_SERVER, str(GRPC)]
        server = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(1)
        return [server]

    def ask(self, seconds_long, takes, *argv):
        """One request at a time on each connection: of those that overlap on one only the first is seen."""
        log, body = self.folder / "grpc.log", self.folder / "grpc.body"
        log.unlink(missing_ok=True)
        body.write_bytes(b"\0" + len(takes).to_bytes(4, "big") + takes)
        ran(["h2load", "-m", 1, *argv, "-D", seconds_long, "-d", body, f"--log-file={log}", "-H", "content-type: application/grpc",
             "-H", "te: trailers", f"http://127.0.0.1:{GRPC}/bench.Shop/Get"])
        rows = [line.split("\t") for line in log.read_text().splitlines()]
        times = sorted(int(us) / 1e6 for _, status, us in rows if status == "200")
        return len(times), times[len(times) // 2], times[len(times) * 99 // 100]

    def limit(self, seconds_long):
        return self.ask(seconds_long, b"0", "-c", 4)

    def rate(self, seconds_long):
        return self.ask(seconds_long, b"0", "-c", 1, "--rps", 100)

    def slow(self, seconds_long):
        return self.ask(seconds_long, b"0.005", "-c", 1, "--rps", 100)


class Postgres:
    name, program, port = "postgres", "pgbench", POSTGRES

    def start(self, folder):
        self.host = "127.0.0.1"
        binaries = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin"))[-1]
        self.folder = folder
        shutil.chown(folder, "postgres")
        as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--"]
        ran([*as_user, binaries / "initdb", "-D", f"{folder}/data", "-A", "trust"])
        server = subprocess.Popen([*as_user, str(binaries / "postgres"), "-D", f"{folder}/data", "-p", str(POSTGRES), "-k", folder,
                                   "-c", "listen_addresses=127.0.0.1"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(100):
            if subprocess.run(["pg_isready", "-q", "-h", "127.0.0.1", "-p", str(POSTGRES)]).returncode == 0:
                break
            time.sleep(0.1)
        self.ask("-i", "-s", "2")
        return [server]

    def ask(self, *argv):
        return ran(["runuser", "-u", "postgres", "--", "pgbench", "-h", self.host, "-p", POSTGRES, *argv, "postgres"], cwd=self.folder)

    def load(self, clients, asks_first, *argv):
        for old in pathlib.Path(self.folder).glob("pgbench_log.*"):
            old.unlink()
        self.ask("-n", "-l", "-c", clients, *argv)
        lines = [line for log in pathlib.Path(self.folder).glob("pgbench_log.*") for line in log.read_text().splitlines()]
        # What waits for its turn because of the rate has not been asked yet: the lag is the last number.
        late = lambda words: int(words[6]) if len(words) > 6 else 0
        times = sorted((int(words[2]) - late(words)) / 1e6 for words in map(str.split, lines))
        # Each connection logs in, and before them one that asks for the size and the partitions of what a built-in script reads.
        return len(times) + clients + 1 + asks_first, times[len(times) // 2], times[len(times) * 99 // 100]

    def limit(self, seconds_long):
        return self.load(8, 2, "-S", "-T", seconds_long)

    def rate(self, seconds_long):
        return self.load(4, 2, "-S", "-R", "100", "-T", seconds_long)

    def slow(self, seconds_long):
        script = pathlib.Path(self.folder, "slow.sql")
        script.write_text("SELECT pg_sleep(0.005);\n")
        return self.load(4, 0, "-f", script, "-R", "100", "-T", seconds_long)


class UnixPostgres(Postgres):
    name = "postgres, Unix socket"

    def start(self, folder):
        running = super().start(folder)
        self.host, self.port = folder, f"{folder}/.s.PGSQL.{POSTGRES}"
        return running


def recorded(mitra, archive, port, since_s, until_s):
    when = lambda t: datetime.datetime.fromtimestamp(t, datetime.timezone.utc).isoformat().replace("+00:00", "Z")
    argv = [mitra, "services", "--archive", archive, "--since", when(since_s), "--until", when(until_s), "--json", str(port)]
    said = json.loads(subprocess.run(argv, stdout=subprocess.PIPE, check=True, text=True).stdout)
    service = next(s for s in said["services"] if s["address"].endswith(f":{port}"))
    calls = [d for d in said["dependencies"] if d["key"].endswith(f":{port}")]
    return said["seconds"], service, max(calls, key=lambda d: d["requests"], default=None)


def measure(args, server, scratch):
    folder = tempfile.mkdtemp(dir=scratch)
    pathlib.Path(folder).chmod(0o755)
    archive = f"{folder}-archive"
    running = server.start(folder)
    recorder = subprocess.Popen([args.mitra, "record", "--archive", archive], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(SETTLE_S)
        for form in ("limit", "rate", "slow"):
            load = getattr(server, form)
            since_s = time.time()
            count, p50, p99 = load(args.seconds)
            time.sleep(MARGIN_S)
            # A frame ends up to a second after what it counts.
            span_s, service, calls = recorded(args.mitra, archive, server.port, since_s - 1, time.time())
            row(f"{server.name}, {FORMS[form]}", count, p50, p99, span_s, service, calls)
    finally:
        for process in [recorder, *running]:
            with contextlib.suppress(OSError):
                process.send_signal(signal.SIGINT)
        for process in [recorder, *running]:
            process.wait(timeout=30)


def row(name, count, p50, p99, span_s, service, calls):
    seen = service["requests"] * span_s
    of = lambda one, key: f"{1e3 * one[key]:>9.3f}" if one and key in one else f"{'-':>9}"
    print(f"{name:<32}{count:>9,}{seen:>11,.0f}{100 * (seen / count - 1):>+7.2f} %{1e2 * service['watched']:>6.0f} %"
          f"{1e3 * p50:>9.3f}{of(service, 'latency_p50')}{of(calls, 'latency_p50')}"
          f"{1e3 * p99:>9.3f}{of(service, 'latency_p99')}{of(calls, 'latency_p99')}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mitra", required=True)
    parser.add_argument("--seconds", type=int, default=10, help="of each load")
    parser.add_argument("--only", metavar="NAME", help="of this server only")
    args = parser.parse_args()
    print(f"{'':<32}{'requests':>9}{'recorded':>11}{'':>9}{'watched':>8}{'p50 ms':>9}{'service':>9}{'calls':>9}{'p99 ms':>9}"
          f"{'service':>9}{'calls':>9}")
    with tempfile.TemporaryDirectory(prefix="mitra-services-", dir="/var/tmp") as scratch:
        pathlib.Path(scratch).chmod(0o755)
        servers = (Redis(), UnixRedis(), Nginx(), Postgres(), UnixPostgres(), Grpc())
        for server in (server for server in servers if args.only in (None, server.name)):
            if shutil.which(server.program):
                measure(args, server, scratch)
            else:
                print(f"skipped: {server.name}: there is no {server.program}")


if __name__ == "__main__":
    main()
