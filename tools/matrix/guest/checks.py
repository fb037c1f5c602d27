"""What is checked in a guest. Runs as root, started by process 1; writes what came of it to the disk of results."""

import json
import os
import pathlib
import platform
import re
import subprocess
import sys
import threading
import time
import traceback

import programs
import services

MITRA = "/matrix/bin/mitra"
LAB = "/matrix/bin/mitra-lab"
OUT = pathlib.Path("/work/results")
# One of each group that an emulated machine can make: CPU, memory, disk, network.
INCIDENTS = {"cpu": "cpu-quota", "memory": "oom-in-cgroup", "disk": "disk-hog-reads", "network": "no-accept"}
TRIES = 3
INCIDENT_S = 400
CAPTURE_S = 3
# A capture that has what it was to take ends early, which loads as much.
OPTIONS = {"trace": ["--option", "calls=10"]}


def words():
    """What the host says on the kernel's command line."""
    line = pathlib.Path("/proc/cmdline").read_text()
    return dict(re.findall(r"matrix\.(\w+)=(\S*)", line))


def run(*command, seconds=60, **options):
    """Output and errors together, and the exit code; a program that takes too long has 124."""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              errors="replace", timeout=seconds, check=False, **options)
        return done.returncode, done.stdout
    except subprocess.TimeoutExpired as late:
        return 124, (late.stdout or b"").decode(errors="replace") + f"\nnot done after {seconds} s"


class Results:
    def __init__(self):
        OUT.mkdir(parents=True, exist_ok=True)
        self.path = OUT / "results.json"
        self.all = json.loads(self.path.read_text()) if self.path.exists() else {"facts": {}, "checks": [], "programs": {}}

    def check(self, name, function, *arguments):
        """A check returns (state, text): `ok`, `no`, or `-` for what this machine cannot do."""
        print(f"matrix: {name}", flush=True)
        start = time.monotonic()
        try:
            state, text = function(self, *arguments)
        except Exception:
            state, text = "no", traceback.format_exc()
        took = round(time.monotonic() - start)
        print(f"matrix: {name}: {state} after {took} s: {text}", flush=True)
        self.all["checks"].append({"name": name, "state": state, "text": text, "seconds": took})
        self.save()

    def save(self):
        """A power that fails later takes nothing of it."""
        self.path.write_text(json.dumps(self.all, indent=1))
        disk = "/dev/ubdc" if words().get("disks") == "ubd" else "/dev/vdc"
        run("tar", "-C", str(OUT), "-cf", disk, ".")
        os.sync()


def facts(results):
    release = platform.release()
    comm = pathlib.Path("/proc/1/comm").read_text().strip()
    btf = pathlib.Path("/sys/kernel/btf/vmlinux").exists()
    results.all["facts"] = {"release": release, "arch": platform.machine(), "process1": comm, "btf": btf,
                            "version": run(MITRA, "--version")[1].strip()}
    want = words()
    if (want["process1"] == "systemd") != (comm == "systemd"):
        return "no", f"process 1 is {comm}"
    return ("ok" if btf == (want["btf"] == "1") else "no"), f"{release} {'with' if btf else 'without'} BTF, process 1 is {comm}"


def doctor(results):
    code, text = run(MITRA, "doctor", "--json", seconds=300)
    (OUT / "doctor.json").write_text(text)
    if code != 0:
        return "no", text[-500:]
    abilities = json.loads(text)
    results.all["doctor"] = abilities
    probes = [a for a in abilities if a["name"].startswith("probe ")]
    there = [a for a in probes if a["state"] == "yes"]
    armed = next((a for a in abilities if a["name"].startswith("on-demand probes")), {"why": "", "state": "no"})
    kinds = len(armed["why"].split(",")) if armed["state"] != "no" else 0
    return "ok" if there or words()["btf"] == "0" else "no", f"{len(there)} of {len(probes)} probes, {kinds} kinds of captures"


class Recorder:
    """`mitra record` for as long as the block lasts."""

    def __init__(self, archive, *flags):
        self.archive, self.flags, self.log = archive, flags, OUT / f"{pathlib.Path(archive).name}.log"

    def __enter__(self):
        with self.log.open("w") as log:
            self.child = subprocess.Popen([MITRA, "record", "--archive", self.archive, *self.flags], stdin=subprocess.DEVNULL,
                                          stdout=log, stderr=log)
        return self

    def __exit__(self, *_):
        self.child.terminate()
        try:
            self.child.wait(30)
        except subprocess.TimeoutExpired:
            self.child.kill()


def frames(archive):
    """How many frames an archive has, as `mitra status` counts them."""
    code, text = run(MITRA, "status", "--archive", archive, "--json")
    return json.loads(text).get("frames", 0) if code == 0 else 0


def watch(known, seen, over):
    """Notes each program that comes, and when it was first and last there, until `over`."""
    while not over.is_set():
        for number in programs.ids():
            if number in seen:
                seen[number]["last"] = time.monotonic()
            elif number not in known:
                found = programs.info(number)
                if found:
                    seen[number] = {**found, "first": time.monotonic(), "last": time.monotonic()}
        over.wait(0.05)


def loaded(command, stays_s=0):
    """The programs that a command brings into the kernel while it runs, for so long at least, and what it printed."""
    known, seen, over = set(programs.ids()), {}, threading.Event()
    watcher = threading.Thread(target=watch, args=(known, seen, over))
    watcher.start()
    code, text = run(*command, seconds=120)
    over.set()
    watcher.join()
    times = [(one, one.pop("last") - one.pop("first")) for one in seen.values()]
    return [one for one, stayed_s in times if stayed_s >= stays_s], code, text


def verifier(results):
    if words()["btf"] == "0":
        return "-", "no BTF"
    found = {}

    def add(seen, of):
        # Without a name it is none of Mitra's: what a library loads to see what the kernel can.
        for one in (one for one in seen if one["name"]):
            key = f"{of}/{one['name']}"
            if key not in found or (one["verified"] or 0) > (found[key]["verified"] or 0):
                found[key] = one

    # Of a group that is refused some are there for a moment.
    seen, _, _ = loaded(["timeout", "-s", "INT", "20", MITRA, "record", "--archive", "/work/verifier"], stays_s=5)
    add(seen, "record")
    refused = []
    for one in json.loads(run(MITRA, "capture", "--list", "--json")[1]):
        kind = one["kind"]
        narrowed = ["--pid", str(os.getpid())] if "pid" in one["filters"] else []
        seen, code, text = loaded([MITRA, "capture", kind, *narrowed, "--seconds", str(CAPTURE_S), "--no-archive",
                                   *OPTIONS.get(kind, [])])
        if code == 0:
            add(seen, kind)
        (OUT / f"capture-{kind}.txt").write_text(text)
        if code != 0:
            refused.append(f"{kind}: {text.strip().splitlines()[-1] if text.strip() else code}")
    results.all["programs"] = found
    return "ok" if found else "no", f"{len(found)} programs; " + ("; ".join(refused) or "no kind is refused")


def incident(results, group):
    """Made by the laboratory, which knows the truth, and judges what Mitra says of it."""
    name = INCIDENTS[group]
    if group == "disk" and words().get("disks") == "ubd":
        return "-", "the disk of user-mode Linux is a file in its host's page cache: who reads from it waits for the CPU"
    said = ""
    for seed in range(1, TRIES + 1):
        keep = f"/work/lab-{name}-{seed}"
        code, text = run(LAB, "--mitra", MITRA, "run", name, "--form", "loud", "--seed", str(seed), "--keep", keep,
                         seconds=INCIDENT_S, env={**os.environ, "TMPDIR": "/work"})
        (OUT / f"lab-{name}-{seed}.txt").write_text(text)
        said = " / ".join(line.strip() for line in text.splitlines()[-4:])
        if code == 0:
            return "ok", f"{name}, try {seed}"
        for kept in sorted(pathlib.Path(keep).rglob("*.txt"))[:3]:
            (OUT / f"lab-{name}-{seed}-{kept.name}").write_text(kept.read_text()[:20000])
    return ("-" if any(why in said for why in ["could not be made", "not made", "skipped"]) else "no"), f"{name}: {said[-400:]}"


def without_bpf(results):
    """A kernel without type information: what is recorded comes from /proc, and the recorder says so."""
    with Recorder("/work/without-bpf") as recorder:
        time.sleep(20)
    said = recorder.log.read_text()
    count = frames("/work/without-bpf")
    told = [line for line in said.splitlines() if re.search(r"BTF|BPF|task_iter|unavailable|not available", line)]
    return "ok" if count >= 10 and told else "no", f"{count} frames; it says: {told[0] if told else said[:300]}"


def main():
    results = Results()
    want = words()
    if want.get("boot") == "2":
        results.check("power-loss", services.after_the_loss)
        return
    wanted = [name for name in want.get("only", "").split(",") if name]

    def check(name, function, *arguments):
        if not wanted or name in wanted:
            results.check(name, function, *arguments)

    results.check("boot", facts)
    check("doctor", doctor)
    check("verifier", verifier)
    for group in INCIDENTS:
        check(group, incident, group)
    if want["btf"] == "0":
        check("without-bpf", without_bpf)
    if want["process1"] == "systemd":
        for name, function in services.CHECKS.items():
            check(name, function)
        if not wanted or "power-loss" in wanted:
            services.lose_power()
    results.save()


if __name__ == "__main__":
    sys.exit(main())
