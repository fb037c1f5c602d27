"""Work that feels what an observer takes: small reads from the page cache, a key-value store, a web server at its limit and far below
it, a build, and two processes that do nothing but wake each other. Servers and their clients have a CPU of their own, so that where
the scheduler happens to put them is no part of the result."""

import contextlib
import dataclasses
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import time
from typing import Callable

import counts
import machine

CACHED_BYTES = 512 << 20
# So many that it matters little that one CPU is idle at the end of a build.
BUILD_FILES = 400
# Files are small, as the time of one has to be short beside the tenth of a second that a sample is looked for in.
BUILD_FUNCTIONS = 2
CONNECTIONS = 16
# Who serves, or works alone, and who asks.
SERVER_CPU, CLIENT_CPU = min(os.sched_getaffinity(0)), max(os.sched_getaffinity(0))
FOR_EVER_S = 24 * 3600


@dataclasses.dataclass(frozen=True)
class Work:
    """Goes on until it is killed. `program` is the name of the one that asks; with `whole`, each of its processes is a piece of work."""

    argv: list
    program: str
    cpu: int | None
    cwd: pathlib.Path | None = None
    whole: bool = False


@dataclasses.dataclass(frozen=True)
class Workload:
    name: str
    needs: tuple
    # Prepares the work in a directory and gives it, inside a `with`.
    prepare: Callable


def on_cpu(cpu):
    """For a new process: where it runs, None for anywhere; should this script be killed, the kernel ends it too."""

    def enter():
        machine.libc.prctl(machine.PR_SET_PDEATHSIG, signal.SIGKILL)
        if cpu is not None:
            os.sched_setaffinity(0, {cpu})

    return enter


@contextlib.contextmanager
def at_work(work, library, seconds):
    """The work goes on inside the `with`; gives the counts of what it does."""
    counted = counts.Counts(seconds)
    process = subprocess.Popen(
        [str(word) for word in work.argv],
        cwd=work.cwd,
        env=counted.environment(library, work.program, work.whole),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        preexec_fn=on_cpu(work.cpu),
        start_new_session=True,
    )
    try:
        yield counted
        if process.poll() is not None:
            raise RuntimeError(f"{work.argv[0]} ended by itself ({process.returncode})")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        counted.close()


@contextlib.contextmanager
def cached_reads(scratch):
    path = scratch / "cached"
    subprocess.run(["dd", "if=/dev/zero", f"of={path}", "bs=1M", f"count={CACHED_BYTES >> 20}"], check=True, capture_output=True)
    options = ["--rw=randread", "--bs=4k", "--ioengine=psync", "--invalidate=0", "--norandommap", "--allow_file_create=0", "--thread"]
    argv = ["fio", "--name=cached", f"--filename={path}", f"--size={CACHED_BYTES}", "--time_based", f"--runtime={FOR_EVER_S}"]
    yield Work(argv + options, "fio", SERVER_CPU)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_for_port(port):
    for _ in range(100):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise RuntimeError(f"nobody listens on port {port}")


@contextlib.contextmanager
def server(argv, port):
    process = subprocess.Popen(
        argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=on_cpu(SERVER_CPU)
    )
    try:
        wait_for_port(port)
        yield
    finally:
        process.terminate()
        process.wait()


@contextlib.contextmanager
def redis(scratch):
    port = free_port()
    with server(["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(scratch)], port):
        yield Work(["redis-benchmark", "-p", port, "-t", "get", "-n", 10**9, "--csv"], "redis-benchmark", CLIENT_CPU)


@contextlib.contextmanager
def web_server(scratch, options):
    port = free_port()
    root = scratch / "www"
    root.mkdir()
    (root / "page").write_bytes(b"x" * 1024)
    config = scratch / "nginx.conf"
    config.write_text(
        f"worker_processes 1; daemon off; pid {scratch}/nginx.pid; error_log /dev/null;\n"
        f"events {{}}\nhttp {{ access_log off; server {{ listen 127.0.0.1:{port}; root {root}; }} }}\n"
    )
    os.chmod(scratch, 0o755)
    with server(["nginx", "-c", str(config)], port):
        page = f"http://127.0.0.1:{port}/page"
        yield Work(["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{FOR_EVER_S}s", *options, page], "wrk", CLIENT_CPU)


@contextlib.contextmanager
def nginx(scratch):
    with web_server(scratch, []) as work:
        yield work


@contextlib.contextmanager
def nginx_paced(scratch):
    """Each connection waits a millisecond before it asks again: the server is idle most of the time, as servers are, and
    what a request takes is not mostly its wait for those before it."""
    with web_server(scratch, pace(scratch)) as work:
        yield work


def pace(scratch):
    """Options for wrk."""
    script = scratch / "pace.lua"
    script.write_text("function delay() return 1 end\n")
    return ["-s", script]


@contextlib.contextmanager
def postgres(scratch):
    """PostgreSQL refuses to work for root."""
    port = free_port()
    folder = scratch / "postgres"
    folder.mkdir()
    os.chmod(scratch, 0o755)
    shutil.chown(folder, "postgres")
    binaries = max(pathlib.Path("/usr/lib/postgresql").glob("*/bin"))
    as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--"]
    subprocess.run([*as_user, binaries / "initdb", "-D", folder / "data", "-A", "trust"], check=True, capture_output=True)
    argv = [binaries / "postgres", "-D", folder / "data", "-p", str(port), "-k", folder, "-c", "listen_addresses=127.0.0.1"]
    pgbench = [binaries / "pgbench", "-U", "postgres", "-h", "127.0.0.1", "-p", str(port)]
    with server([*as_user, *argv], port):
        for _ in range(100):
            if subprocess.run([*pgbench, "-i", "-s", "2", "-q", "postgres"], capture_output=True).returncode == 0:
                break
            time.sleep(0.1)
        argv = [*pgbench, "-n", "-S", "-c", CONNECTIONS, "-T", FOR_EVER_S, "postgres"]
        yield Work(argv, "pgbench", CLIENT_CPU)


@contextlib.contextmanager
def build(scratch):
    for i in range(BUILD_FILES):
        functions = "".join(
            f"int f{i}_{j}(int a, int b) {{ int s = {j}; for (int k = 0; k < a; k++) s += (s ^ b) * k; return s; }}\n"
            for j in range(BUILD_FUNCTIONS)
        )
        (scratch / f"part{i}.c").write_text(functions)
    objects = " ".join(f"part{i}.o" for i in range(BUILD_FILES))
    (scratch / "Makefile").write_text(f"all: {objects}\n%.o: %.c\n\tcc -O2 -c $< -o $@\n")
    yield Work(["sh", "-c", "while make -s -B -j2; do :; done"], "cc1", None, cwd=scratch, whole=True)


@contextlib.contextmanager
def pingpong(scratch):
    program = scratch / "pingpong"
    source = pathlib.Path(__file__).with_name("pingpong.c")
    subprocess.run([os.environ.get("CC", "cc"), "-O2", "-o", program, source], check=True)
    yield Work([program], "pingpong", SERVER_CPU)


WORKLOADS = [
    Workload("fio 4k random reads, cached", ("fio",), cached_reads),
    Workload("redis-benchmark get", ("redis-server", "redis-benchmark"), redis),
    Workload("wrk against nginx", ("nginx", "wrk"), nginx),
    Workload("wrk against nginx, paced", ("nginx", "wrk"), nginx_paced),
    Workload("pgbench -S", ("pgbench", "setpriv"), postgres),
    Workload("make -j2", ("make", "cc"), build),
    Workload("pipe ping-pong", ("cc",), pingpong),
]
