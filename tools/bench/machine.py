"""What the kernel counts about a program that is being measured, and processes for it to look at."""

import contextlib
import ctypes
import itertools
import json
import os
import pathlib
import platform
import shutil
import signal
import struct
import subprocess
import tempfile
import time

STOP_TIMEOUT_S = 60
# From linux/prctl.h.
PR_SET_PDEATHSIG = 1
# From linux/bpf.h, since kernel 5.8.
BPF_ENABLE_STATS = 32
BPF_STATS_RUN_TIME = 0

libc = ctypes.CDLL(None, use_errno=True)
# Of the control groups of this process: several programs may be measured at the same time.
numbers = itertools.count()


def mounts(fstype):
    """Mount points of a type, with their options."""
    for line in pathlib.Path("/proc/mounts").read_text().splitlines():
        _, where, kind, options, *_ = line.split()
        if kind == fstype:
            yield pathlib.Path(where), options.split(",")


def cpu_cgroup():
    """Makes a control group of our own: the kernel adds up in it the CPU time of all that runs in it, to the
    nanosecond and with what has ended. None where that is not allowed.

    Neither form changes how the scheduler divides CPU time: the version 2 group has no controller enabled and
    `cpuacct` only counts.
    """
    name = f"mitra-bench-{os.getpid()}-{next(numbers)}"
    candidates = [where for where, _ in mounts("cgroup2")]
    candidates += [where for where, options in mounts("cgroup") if "cpuacct" in options and "cpu" not in options]
    for where in candidates:
        for left in where.glob("mitra-bench-*"):
            # Of a run that was killed. One that is in use refuses.
            with contextlib.suppress(OSError):
                left.rmdir()
        with contextlib.suppress(OSError):
            (where / name).mkdir()
            return where / name
    return None


class Program:
    """A program under measurement, with everything that it starts."""

    def __init__(self, argv, stdout):
        self.group = cpu_cgroup()
        self.said = tempfile.TemporaryFile()
        self.started_s = time.monotonic()

        def enter():
            # Should this script be killed, the kernel ends what it measures.
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if self.group:
                (self.group / "cgroup.procs").write_text("0")

        self.process = subprocess.Popen(
            argv, stdin=subprocess.DEVNULL, stdout=stdout, stderr=self.said, preexec_fn=enter
        )

    def pids(self):
        if self.group:
            return [int(pid) for pid in (self.group / "cgroup.procs").read_text().split()]
        return [self.process.pid]

    def cpu_s(self):
        """CPU seconds of it and all that it started."""
        if self.group and (self.group / "cpuacct.usage").exists():
            return int((self.group / "cpuacct.usage").read_text()) / 1e9
        if self.group:
            return int(fields(self.group / "cpu.stat", " ")["usage_usec"]) / 1e6
        tasks = pathlib.Path(f"/proc/{self.process.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9

    def memory_bytes(self):
        """Resident now, and at its largest."""
        rss = peak = 0
        for pid in self.pids():
            status = fields(pathlib.Path(f"/proc/{pid}/status"), ":")
            rss += int(status["VmRSS"].split()[0]) * 1024
            peak += int(status["VmHWM"].split()[0]) * 1024
        return rss, peak

    def written_bytes(self):
        """What it has caused to be written to storage so far; a file written twice counts twice."""
        return sum(int(fields(pathlib.Path(f"/proc/{pid}/io"), ":")["write_bytes"]) for pid in self.pids())

    def check_alive(self):
        if self.process.poll() is not None:
            self.said.seek(0)
            said = self.said.read().decode(errors="replace").strip()
            raise RuntimeError(f"{self.process.args[0]} ended by itself ({self.process.returncode}): {said[-500:]}")

    def stop(self):
        """Asks it to end, as a service manager does, and waits until it has. Returns its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=STOP_TIMEOUT_S)

    def remove(self):
        """Leaves nothing behind, whatever happened before."""
        for pid in [self.process.pid] if self.process.poll() is None else []:
            os.kill(pid, signal.SIGKILL)
        self.process.wait()
        self.said.close()
        if self.group:
            for pid in self.pids():
                os.kill(pid, signal.SIGKILL)
            for _ in range(100):
                with contextlib.suppress(OSError):
                    self.group.rmdir()
                    return
                time.sleep(0.05)


def fields(path, separator):
    """A file of `name<separator>value` lines."""
    pairs = (line.partition(separator) for line in path.read_text().splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}


def machine_busy_s():
    """CPU seconds that all CPUs together spent on anything."""
    first = pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    user, nice, system, _idle, _iowait, irq, softirq, steal, *_ = map(int, first)
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def file_bytes(where):
    """Size of a file, or of all files below a directory."""
    if where.is_file():
        return where.stat().st_size
    total = 0
    for path in where.rglob("*"):
        # What is written anew may be gone by now.
        with contextlib.suppress(FileNotFoundError):
            total += path.stat().st_size if path.is_file() else 0
    return total


@contextlib.contextmanager
def load(idle, busy, churn=0):
    """Keeps that many processes alive inside the `with`; `churn` more begin in each second and end within one."""
    source = pathlib.Path(__file__).with_name("load.c")
    with tempfile.TemporaryDirectory(prefix="mitra-bench-") as scratch:
        program = f"{scratch}/load"
        subprocess.run([os.environ.get("CC", "cc"), "-O2", "-o", program, source], check=True)
        spawner = subprocess.Popen(
            [program, scratch, str(idle), str(busy), str(churn)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        try:
            if spawner.stdout.readline() != b"ready\n":
                raise RuntimeError(f"could not start {idle + busy} processes")
            yield
        finally:
            # The end of its input ends it and its children; should this script be killed, the kernel sees to it.
            spawner.stdin.close()
            spawner.wait(timeout=STOP_TIMEOUT_S)
            spawner.stdout.close()


class KernelSide:
    """CPU time of BPF programs that run in the context of other tasks, and so in nobody's account but theirs.

    The kernel counts it only while somebody asks for it, which by itself makes each run of a program a little
    dearer. Iterators run in the context of the program that reads them and are left out.
    """

    def __enter__(self):
        self.switch = bpf_stats_on() if shutil.which("bpftool") else None
        return self

    def __exit__(self, *_):
        if self.switch is not None:
            os.close(self.switch)

    def run_s(self, pids):
        """Seconds so far in the programs that these processes hold, or None where that cannot be told."""
        if self.switch is None:
            return None
        ids = set().union(*(attached_programs(pid) for pid in pids))
        if not ids:
            return None
        return sum(p.get("run_time_ns", 0) for p in bpftool("prog", "show") if p["id"] in ids) / 1e9


def attached_programs(pid):
    """Ids of the BPF programs that a process has attached to something other than an iterator, or keeps to attach now and then."""
    ids, iterators = set(), set()
    for fd in pathlib.Path(f"/proc/{pid}/fdinfo").iterdir():
        with contextlib.suppress(OSError):
            of = fields(fd, ":")
            if "prog_id" in of:
                (iterators if of.get("link_type") == "iter" else ids).add(int(of["prog_id"]))
    return ids - iterators


def bpf_stats_on():
    """Has the kernel count the run time of BPF programs until the returned descriptor is closed; None if it won't."""
    number = {"x86_64": 321, "aarch64": 280}.get(platform.machine())
    if number is None:
        return None
    attributes = struct.pack("I", BPF_STATS_RUN_TIME)
    fd = libc.syscall(number, BPF_ENABLE_STATS, attributes, len(attributes))
    return fd if fd >= 0 else None


def bpftool(*what):
    output = subprocess.run(["bpftool", "-j", *what], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return json.loads(output.stdout or "[]") if output.returncode == 0 else []
