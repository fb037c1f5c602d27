"""A block device that remembers what was written to it, and when it was told to make that last.

The device is a loop device on a file of a FUSE file system, which is this process: the file system above it writes
and flushes as to any disk, and each write and each flush is one entry of a list. So nothing is needed that a kernel may
not have (dm-log-writes), and what a power failure would have left is any image made of the list's beginning.
"""

import ctypes
import os
import struct
import subprocess
import threading

INIT, GETATTR, SETATTR, STATFS = 26, 3, 4, 17
OPEN, READ, WRITE, RELEASE, FSYNC, FLUSH, DESTROY = 14, 15, 16, 18, 20, 25, 38
FORGET, BATCH_FORGET, INTERRUPT, ENOSYS = 2, 42, 36, 38
FOPEN_DIRECT_IO = 1
WRITE_MAX = 1 << 20


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(map(str, command))}: {done.stderr.strip()}")
    return done.stdout.strip()


class Device:
    """The device; `log` has ("write", offset, bytes), ("flush",) and what `mark` adds."""

    def __init__(self, image, place):
        self.log = []
        self.lock = threading.Lock()
        self.image = os.open(image, os.O_RDWR)
        self.size = os.fstat(self.image).st_size
        self.place = place
        with open(place, "w", encoding="ascii"):
            pass
        self.fuse = os.open("/dev/fuse", os.O_RDWR)
        libc = ctypes.CDLL(None, use_errno=True)
        options = f"fd={self.fuse},rootmode=100000,user_id=0,group_id=0"
        if libc.mount(b"mitra-blocklog", place.encode(), b"fuse", 0, options.encode()):
            raise OSError(ctypes.get_errno(), "cannot mount a FUSE file system")
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()
        self.loop = run("losetup", "--find", "--show", place)

    def mark(self, what):
        with self.lock:
            self.log.append(what)

    def close(self):
        run("losetup", "--detach", self.loop)
        run("umount", "--lazy", self.place)
        os.close(self.image)

    def serve(self):
        while True:
            try:
                request = os.read(self.fuse, WRITE_MAX + 4096)
            except OSError:
                return
            length, opcode, unique, _node = struct.unpack_from("<IIQQ", request)
            body = request[40:length]
            if opcode in (FORGET, BATCH_FORGET, INTERRUPT):
                continue
            error, reply = self.answer(opcode, body)
            try:
                os.write(self.fuse, struct.pack("<IiQ", 16 + len(reply), -error, unique) + reply)
            except OSError:
                return
            if opcode == DESTROY:
                return

    def answer(self, opcode, body):
        if opcode == INIT:
            # Version 7.31, no flags but writes of more than a page (BIG_WRITES and MAX_PAGES).
            return 0, struct.pack("<IIIIHHIIHHI28x", 7, 31, 65536, (1 << 5) | (1 << 22), 16, 12, WRITE_MAX, 1,
                                  WRITE_MAX // 4096, 0, 0)
        if opcode in (GETATTR, SETATTR):
            attributes = struct.pack("<QQQQQQIIIIIIIIII", 1, self.size, self.size // 512, 0, 0, 0, 0, 0, 0,
                                     0o100600, 1, 0, 0, 0, 4096, 0)
            return 0, struct.pack("<QII", 3600, 0, 0) + attributes
        if opcode == OPEN:
            return 0, struct.pack("<QII", 0, FOPEN_DIRECT_IO, 0)
        if opcode == READ:
            _handle, offset, size = struct.unpack_from("<QQI", body)
            return 0, os.pread(self.image, size, offset)
        if opcode == WRITE:
            _handle, offset, size = struct.unpack_from("<QQI", body)
            data = body[40:40 + size]
            with self.lock:
                os.pwrite(self.image, data, offset)
                self.log.append(("write", offset, data))
            return 0, struct.pack("<II", size, 0)
        if opcode == FSYNC:
            self.mark(("flush",))
            return 0, b""
        if opcode == STATFS:
            return 0, struct.pack("<QQQQQIII28x", self.size // 512, 0, 0, 1, 0, 512, 255, 512)
        if opcode in (FLUSH, RELEASE, DESTROY):
            return 0, b""
        return ENOSYS, b""
