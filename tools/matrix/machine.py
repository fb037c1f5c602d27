"""A virtual machine, or a kernel that runs as a process: started, watched and ended in time."""

import io
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tarfile
import time

import roots

MEMORY_MB = 1536
CPUS = 2
WORK_BYTES = 6 << 30
RESULTS_BYTES = 64 << 20
# What a disk of the cloud gives: enough for what is written first, and little enough to be kept busy by one program.
DISK_BYTES_PER_S = 80 << 20
DISK_REQUESTS_PER_S = 1500
BOOT_S = 300
# Printed by the guest when its power is to fail.
PULL_THE_PLUG = "matrix: pull the plug"


class Machine:
    def __init__(self, kernel, image, root, payload, folder):
        self.kernel, self.image, self.folder = kernel, image, folder
        self.console = folder / "console.log"
        self.disks = [folder / "root.img", payload, folder / "results.img", folder / "work.img"]
        subprocess.run(["cp", "--sparse=always", root, self.disks[0]], check=True)
        with self.disks[2].open("wb") as out:
            out.truncate(RESULTS_BYTES)
        roots.image_of(None, self.disks[3], WORK_BYTES, "-N", "65536")
        self.console.write_text("")

    def _command(self, words):
        if self.kernel.package == "user-mode-linux":
            disks = [f"ubd{letter}{'r' if n == 1 else ''}={path}" for n, (letter, path) in enumerate(zip("0123", self.disks))]
            return [self.image.program, f"mem={MEMORY_MB}M", f"initrd={self.image.initramfs}", *disks, "con=null",
                    "con0=null,fd:1", "ssl=null", "matrix.disks=ubd", *words]
        kind = {"amd64": ["qemu-system-x86_64", "-machine", "q35"], "arm64": ["qemu-system-aarch64", "-machine", "virt"]}
        console = {"amd64": "ttyS0", "arm64": "ttyAMA0"}[self.kernel.arch]
        line = ["rdinit=/init", f"console={console}", "panic=-1", "quiet", "loglevel=4", "matrix.disks=vd", *words]
        command = [*kind[self.kernel.arch], "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", str(CPUS), "-m", str(MEMORY_MB),
                   "-nodefaults", "-no-reboot", "-nographic", "-nic", "none", "-serial", "stdio", "-device", "virtio-rng-pci",
                   "-kernel", self.image.program, "-initrd", self.image.initramfs, "-append", " ".join(line)]
        for n, path in enumerate(self.disks):
            drive = f"file={path},format=raw,if=none,id=disk{n},readonly={'on' if n == 1 else 'off'}"
            if n == 3:
                # What is written as zeros is read back at the same pace, and takes no room here.
                drive += f",discard=unmap,detect-zeroes=unmap,throttling.bps-total={DISK_BYTES_PER_S}"
                drive += f",throttling.iops-total={DISK_REQUESTS_PER_S}"
            command += ["-drive", drive, "-device", f"virtio-blk-pci,drive=disk{n}"]
        return command

    def run(self, seconds, *words):
        """Starts it with words on the kernel's command line, and waits until it ends by itself, has asked for its power to be
        cut, or its time is over: `ended`, `cut` or `late`."""
        # A kernel in a process of ours keeps its memory in a file, and is more than one process.
        env = {**os.environ, "TMPDIR": str(self.folder)}
        with self.console.open("ab") as console:
            child = subprocess.Popen(["nice", "-n", "5", *self._command(words)], stdin=subprocess.DEVNULL, stdout=console,
                                     stderr=subprocess.STDOUT, cwd=self.folder, env=env, start_new_session=True)
        try:
            end = time.monotonic() + seconds
            seen = self.console.stat().st_size
            while child.poll() is None:
                with self.console.open("rb") as console:
                    console.seek(seen)
                    if PULL_THE_PLUG.encode() in console.read():
                        return "cut"
                if time.monotonic() > end:
                    return "late"
                time.sleep(0.5)
            return "ended"
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()

    def results(self, to):
        """Unpacks what the guest has left on the disk of results, and returns its `results.json`."""
        shutil.rmtree(to, ignore_errors=True)
        to.mkdir(parents=True)
        try:
            with tarfile.open(fileobj=io.BytesIO(self.disks[2].read_bytes())) as tar:
                for member in tar:
                    name = pathlib.PurePosixPath(member.name)
                    if member.isfile() and not name.is_absolute() and ".." not in name.parts:
                        tar.extract(member, to, filter="data")
        except tarfile.TarError:
            return None
        found = to / "results.json"
        return json.loads(found.read_text()) if found.exists() else None

    def remove(self):
        for path in self.disks:
            path.unlink(missing_ok=True)
