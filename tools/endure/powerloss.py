#!/usr/bin/env python3
"""Power failures: is what was said to be on the disk on the disk?

A recorder writes to a real file system on a device that remembers every write and every flush. Then the power fails, at
each flush and between any two: what had been written before the last flush is there, and of what came later any part, in any
order. Each time the file system is mounted, the archive opened, and every frame has to be there that the writer had been
told is on the disk.

    powerloss.py --test BINARY [--fs ext4,xfs] [--cuts N] [--seed N]

BINARY is the test program of crates/archive that has the writer and the checker. Needs root.
"""

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time

from blocklog import Device, run

# The least that each file system is content with. Images have holes.
KINDS = {
    "ext4": (48 << 20, ["mkfs.ext4", "-q", "-F"]),
    "xfs": (320 << 20, ["mkfs.xfs", "-q", "-f"]),
    "btrfs": (128 << 20, ["mkfs.btrfs", "-q", "-f"]),
}
MARK = "@ synced "


def child(binary, test, name, place):
    environment = dict(os.environ, **{name: place, "RUST_BACKTRACE": "0"})
    command = [binary, "--include-ignored", "--exact", f"powerloss::by_hand_{test}", "--nocapture", "--test-threads=1"]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def record(binary, image, work):
    """The list of writes, flushes and marks of a recording."""
    device = Device(image, os.path.join(work, "device"))
    mounted = os.path.join(work, "mounted")
    os.makedirs(mounted, exist_ok=True)
    try:
        run("mount", device.loop, mounted)
        try:
            said = []
            writer = child(binary, "writer", "MITRA_POWER_WRITE", os.path.join(mounted, "archive"))
            for line in writer.stdout:
                said.append(line)
                if line.startswith(MARK):
                    # Read after it was said, so what stands before the mark was done before.
                    device.mark(("synced", int(line[len(MARK):])))
            if writer.wait():
                raise OSError("the writer failed: " + "".join(said))
            log = list(device.log)
        finally:
            run("umount", mounted)
    finally:
        device.close()
    return log


def cuts(log, rng, wanted):
    """Where the power fails: how many entries are whole, which of the writes after the last flush are there, and when it is."""
    flushes = [i + 1 for i, entry in enumerate(log) if entry[0] == "flush"]
    places = [(whole, [], whole) for whole in [*flushes, len(log)]]
    while len(places) < 2 * wanted:
        at = rng.randint(1, len(log))
        whole = max((whole for whole in flushes if whole <= at), default=0)
        loose = [i for i in range(whole, at) if log[i][0] == "write"]
        rng.shuffle(loose)
        places.append((whole, loose[: rng.randint(0, len(loose))], at))
    # The image grows from one cut to the next.
    return sorted(rng.sample(places, min(wanted, len(places))), key=lambda place: place[0])


def check(binary, image, loose, log, work, rng):
    """The last frame that a machine finds after this power failure."""
    # A name of its own: a loop device may let go of its file later than the file system of the device.
    cut = os.path.join(work, f"cut-{rng.random()}")
    run("cp", "--sparse=always", image, cut)
    with open(cut, "r+b") as file:
        for number in loose:
            _, offset, data = log[number]
            # A sector of 4 KiB is written whole or not at all; a write of several may be torn.
            if rng.random() < 0.3:
                data = data[: 4096 * rng.randint(0, len(data) // 4096)] or data[:4096]
            file.seek(offset)
            file.write(data)
    mounted = os.path.join(work, "mounted")
    run("mount", "-o", "loop", cut, mounted)
    try:
        checker = child(binary, "checker", "MITRA_POWER_CHECK", os.path.join(mounted, "archive"))
        text, _ = checker.communicate()
        last = [int(line.split()[2]) for line in text.splitlines() if line.startswith("@ last ")]
        if checker.returncode or not last:
            raise AssertionError("the archive is not what it should be:\n" + text)
        return last[0]
    finally:
        run("umount", mounted)
        os.unlink(cut)


def power(binary, kind, wanted, seed):
    rng = random.Random(seed)
    size, make = KINDS[kind]
    began = time.monotonic()
    base = "/dev/shm" if os.path.isdir("/dev/shm") else None
    work = tempfile.mkdtemp(prefix="mitra-powerloss-", dir=base)
    try:
        image = os.path.join(work, "image")
        with open(image, "wb") as file:
            file.truncate(size)
        run(*make, image)
        first = os.path.join(work, "first")
        run("cp", "--sparse=always", image, first)
        log = record(binary, image, work)
        places, applied, frames = cuts(log, rng, wanted), 0, 0
        with open(first, "r+b", buffering=0) as file:
            for whole, loose, at in places:
                for entry in log[applied:whole]:
                    if entry[0] == "write":
                        os.pwrite(file.fileno(), entry[2], entry[1])
                applied = max(applied, whole)
                synced = max((e[1] for e in log[:at] if e[0] == "synced"), default=0)
                last = check(binary, first, loose, log, work, rng)
                if last < synced:
                    raise AssertionError(
                        f"{kind}, seed {seed}, after {whole} entries and {sorted(loose)} of those up to {at}: "
                        f"frame {synced} was said to be on the disk, and {last} is the last"
                    )
                frames += last
    finally:
        shutil.rmtree(work, ignore_errors=True)
    flushes = sum(entry[0] == "flush" for entry in log)
    writes = sum(entry[0] == "write" for entry in log)
    print(
        f"@table Power failures on {kind} | {len(places)} cuts among {writes} writes and {flushes} flushes | "
        f"{frames} frames read back | 0 lost | {time.monotonic() - began:.0f} s"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--test", required=True, help="the test program of crates/archive")
    parser.add_argument("--fs", default="ext4,xfs,btrfs")
    parser.add_argument("--cuts", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    if os.geteuid():
        sys.exit("powerloss: only root may mount a file system")
    for kind in arguments.fs.split(","):
        if not shutil.which(KINDS[kind][1][0], path=os.environ["PATH"] + ":/usr/sbin:/sbin"):
            print(f"@table Power failures on {kind} | skipped: no {KINDS[kind][1][0]} | | | 0 s")
            continue
        power(arguments.test, kind, arguments.cuts, arguments.seed)


if __name__ == "__main__":
    main()
