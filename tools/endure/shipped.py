#!/usr/bin/env python3
"""The recorder as it is shipped, while calls of its archive fail.

    shipped.py --mitra BINARY

`mitra record` runs under the library of `crates/archive/tests/faults/shim.c`. It may not panic, it has to end in order, its
archive has to open, and where a sample is missing that has to stand in the archive or have been said.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

SHIM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../crates/archive/tests/faults/shim.c")
SECONDS = 4.0
FAULTS = [
    f"{op}:{first}:{error}:{times}"
    for op, error, first in [
        ("write", "EIO", 5),
        ("write", "ENOSPC", 5),
        ("short", "0", 5),
        ("fsync", "EIO", 1),
        ("fsync", "EIO", 3),
        ("open", "EMFILE", 4),
        ("rename", "EIO", 1),
        ("truncate", "EIO", 1),
    ]
    for times in (1, 3, 1000000)
]


def one(mitra, shim, fault):
    work = tempfile.mkdtemp(prefix="mitra-shipped-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
    archive = os.path.join(work, "archive")
    # The tests' environment has no configuration that anybody made.
    environment = dict(os.environ, LD_PRELOAD=shim, MITRA_FAULT_DIR=archive, MITRA_FAULT=fault)
    command = [mitra, "record", "--no-bpf", "--no-arm", "--interval", "100ms", "--archive", archive]
    try:
        recorder = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        time.sleep(SECONDS)
        alive = recorder.poll() is None
        if alive:
            recorder.send_signal(signal.SIGTERM)
        _, said = recorder.communicate(timeout=60)
        if "panicked" in said:
            raise AssertionError(f"{fault}: {said}")
        told = "mitra: " in said or recorder.returncode != 0
        if not os.path.exists(os.path.join(archive, "lock")):
            if not told:
                raise AssertionError(f"{fault}: no archive, and nothing said")
            return 0, True
        shown = subprocess.run([mitra, "status", "--json", "--archive", archive], capture_output=True, text=True, check=False)
        if shown.returncode:
            raise AssertionError(f"{fault}: status: {shown.stderr}")
        status = json.loads(shown.stdout)
        wanted = int(SECONDS * 10 * 0.5)
        if status["frames"] < wanted and not (told or status["gaps"]):
            raise AssertionError(f"{fault}: {status['frames']} samples, and nothing said")
        return status["frames"], told
    finally:
        shutil.rmtree(work, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mitra", required=True)
    arguments = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as work:
        shim = os.path.join(work, "shim.so")
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", shim, SHIM, "-ldl"], check=True)
        frames, said = one(arguments.mitra, shim, "none:1:EIO:1")
        if said or frames < SECONDS * 5:
            sys.exit(f"shipped: without a fault: {frames} samples")
        results = [one(arguments.mitra, shim, fault) for fault in FAULTS]
    told = sum(said for _, said in results)
    print(
        f"@table `mitra record` while its calls fail | {len(results)} faults | {sum(f for f, _ in results)} samples kept, "
        f"{told} faults told | 0 | {time.monotonic() - began:.0f} s"
    )


if __name__ == "__main__":
    main()
