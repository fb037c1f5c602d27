"""The units as they are shipped, under a real systemd: do they work with their restrictions, and what does not kill them?"""

import json
import os
import pathlib
import re
import subprocess
import time

MITRA = "/usr/bin/mitra"
ARCHIVE = "/var/lib/mitra"
UNITS = ["mitra", "mitra-index"]
STATE = pathlib.Path("/work/results/state.json")
# As in mitra.service.
WATCHDOG_S = 30
# A memory eater as the command of a rule that holds on every machine.
RULE = """
[[rule]]
name = "matrix-eater"
when = 'mem.total > 0 for 2s'
command = ["/usr/bin/python3", "-c", "matrix_eater = [bytearray(1 << 24) for _ in range(1 << 20)]"]
timeout = "60s"
per-hour = 1
"""


def run(*command, seconds=60, **options):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace", timeout=seconds, check=False, **options)
    return done.returncode, done.stdout


def show(unit, name):
    return run("systemctl", "show", "-p", name, "--value", unit)[1].strip()


def journal(unit):
    return run("journalctl", "--no-pager", "-o", "cat", "-b", "-u", unit)[1]


def frames():
    code, text = run(MITRA, "status", "--archive", ARCHIVE, "--json")
    return json.loads(text).get("frames", 0) if code == 0 else 0


def until(seconds, holds):
    """Waits until something holds, and says whether it does."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if holds():
            return True
        time.sleep(1)
    return False


def install(_):
    code, text = run("bash", "/matrix/source/tools/install.sh", "/matrix/bin/mitra", "", "/usr", "/usr/lib/systemd/system",
                     seconds=180, env={**os.environ, "PATH": f"/matrix/strip:{os.environ['PATH']}"})
    return ("ok" if code == 0 else "no"), text.strip().splitlines()[-1] if text.strip() else ""


def start(_):
    pathlib.Path("/etc/mitra").mkdir(exist_ok=True)
    said = [run("systemctl", "start", unit, seconds=150)[1].strip() for unit in UNITS]
    until(30, lambda: all(show(unit, "ActiveState") == "active" for unit in UNITS))
    time.sleep(10)
    states = [f"{unit} {show(unit, 'ActiveState')}, restarts {show(unit, 'NRestarts')}" for unit in UNITS]
    fine = all(show(unit, "ActiveState") == "active" and show(unit, "NRestarts") == "0" for unit in UNITS)
    for unit in UNITS:
        pathlib.Path(f"/work/results/journal-{unit}.txt").write_text(journal(unit))
    user = run("ps", "-o", "user=", "-p", show("mitra", "MainPID"))[1].strip()
    return "ok" if fine else "no", f"{'; '.join(states)}; as {user}. {' '.join(said)}"[:600]


def grows(_):
    before = frames()
    time.sleep(15)
    after = frames()
    return "ok" if after - before >= 8 else "no", f"{after - before} frames in 15 s"


def indexed(_):
    """Everything that the configuration names has been looked at once."""
    found = lambda: [text for code, text in [run(MITRA, "search", 'filename:"/etc/hostname"')] if code == 0 and "matrix" in text]
    until(120, found)
    return ("ok", "/etc/hostname is found") if found() else ("no", run(MITRA, "search", 'filename:"/etc/hostname"')[1].strip()[:300])


def security(_):
    found = []
    for unit in UNITS:
        text = run("systemd-analyze", "security", "--no-pager", unit)[1]
        pathlib.Path(f"/work/results/security-{unit}.txt").write_text(text)
        figure = re.search(r"Overall exposure level for \S+: ([0-9.]+ \w+)", text)
        found.append(f"{unit} {figure.group(1) if figure else '?'}")
    return "ok", ", ".join(found)


def unavailable(text):
    """What a recorder says that it cannot see."""
    return {line.split("not available: ", 1)[1].strip() for line in text.splitlines() if "not available: " in line}


def compared(_):
    """What the service does not see and root does."""
    log = pathlib.Path("/work/results/root-record.log")
    with log.open("w") as out:
        subprocess.run(["timeout", "-s", "INT", "15", MITRA, "record", "--archive", "/work/as-root", "--no-arm"], stdout=out,
                       stderr=out, stdin=subprocess.DEVNULL, check=False)
    less = unavailable(journal("mitra")) - unavailable(log.read_text())
    return "ok", "; ".join(sorted(less)) or "the same as root"


def killed_child(_):
    """A command of a rule is killed for the memory that it takes. The recorder has to go on."""
    pathlib.Path("/etc/mitra/mitra.toml").write_text(RULE)
    run("systemctl", "restart", "mitra", seconds=150)
    # Where the service bounds what it starts, that bound is met first.
    run("systemctl", "set-property", "--runtime", "mitra", "MemoryMax=700M")
    pid = show("mitra", "MainPID")
    kills = lambda: int(re.search(r"^oom_kill (\d+)", pathlib.Path("/proc/vmstat").read_text(), re.MULTILINE).group(1))
    before = kills()
    killed = until(120, lambda: kills() > before)
    time.sleep(10)
    after = show("mitra", "MainPID")
    told = [line for line in run("dmesg")[1].splitlines() if "Killed process" in line or "oom-kill:" in line]
    pathlib.Path("/etc/mitra/mitra.toml").unlink()
    run("systemctl", "set-property", "--runtime", "mitra", "MemoryMax=infinity")
    text = f"killed: {killed}; main process {pid}, afterwards {after} {show('mitra', 'ActiveState')}; {told[-1] if told else ''}"
    pathlib.Path("/work/results/journal-mitra-oom.txt").write_text(journal("mitra"))
    run("systemctl", "restart", "mitra", seconds=150)
    return "ok" if killed and pid == after != "0" else "no", text[:500]


def watchdog(_):
    """A recorder that hangs is started again."""
    pid = show("mitra", "MainPID")
    os.kill(int(pid), 19)
    start = time.monotonic()
    again = until(WATCHDOG_S * 4, lambda: show("mitra", "MainPID") not in [pid, "0"] and show("mitra", "ActiveState") == "active")
    took = round(time.monotonic() - start)
    return "ok" if again else "no", f"stopped, and {'running again' if again else 'not restarted'} after {took} s"


CHECKS = {"install": install, "start": start, "frames": grows, "index": indexed, "security": security, "compared": compared,
          "child-oom": killed_child, "watchdog": watchdog}


def lose_power():
    """The host ends the machine at once when it reads this."""
    until(30, lambda: show("mitra", "ActiveState") == "active")
    time.sleep(20)
    STATE.write_text(json.dumps({"frames": frames()}))
    os.sync()
    time.sleep(5)
    print("matrix: pull the plug", flush=True)
    time.sleep(60)


def after_the_loss(_):
    before = json.loads(STATE.read_text())["frames"]
    code, text = run(MITRA, "status", "--archive", ARCHIVE)
    after = frames()
    run("systemctl", "start", "mitra", seconds=150)
    grown = until(60, lambda: frames() > after)
    explained = run(MITRA, "explain", "--archive", ARCHIVE, seconds=120)[0]
    fine = code == 0 and after >= before and grown and explained == 0
    return "ok" if fine else "no", f"{before} frames were synced, {after} are there, goes on: {grown}" + ("" if fine else f"; {text[-300:]}")
