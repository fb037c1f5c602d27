"""A small HTTP server: ADDRESS PROCESSES THREADS MANNERS. An address is HOST:PORT, or the path of a Unix socket.

Some processes accept on one socket, each with some threads, which take one connection after the other. MANNERS is a file
whose lines say what a request does, one step after the other: a path or *, the step, its words. It is read again when
it has changed.
"""

import ctypes
import fcntl
import hashlib
import os
import random
import socket
import sys
import threading
import time

BACKLOG = 511
PATIENCE_S = 30
LIBC = ctypes.CDLL(None)
OWN = threading.local()


class Failed(Exception):
    """The request is answered with this status."""


class Manners:
    def __init__(self, path):
        self.path, self.known, self.lines = path, None, []

    def now(self):
        known = os.stat(self.path)
        known = (known.st_mtime_ns, known.st_ino)
        if known != self.known:
            with open(self.path) as file:
                self.lines = [line.split() for line in file if line.strip()]
            self.known = known
        return self.lines


def turns_of_a_ms():
    # A CPU that was idle needs some tens of milliseconds until it is as fast as it gets.
    fastest = 1.0
    for _ in range(400):
        start = time.perf_counter()
        turn(200)
        fastest = min(fastest, time.perf_counter() - start)
    return 0.2 / fastest


def turn(count):
    data = b"." * 64
    for _ in range(int(count)):
        data = hashlib.sha256(data).digest()


def compute(ms):
    turn(float(ms) * TURNS_OF_A_MS)


def wait(least_ms, most_ms):
    time.sleep(random.uniform(float(least_ms), float(most_ms)) / 1000)


def connect(address, patience_s):
    if address.startswith("/"):
        stream = socket.socket(socket.AF_UNIX)
        stream.settimeout(patience_s)
        stream.connect(address)
        return stream
    host, port = address.rsplit(":", 1)
    return socket.create_connection((host, int(port)), patience_s)


def listen(address):
    if address.startswith("/"):
        if os.path.exists(address):
            os.unlink(address)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(address)
        listener.listen(BACKLOG)
        return listener
    host, port = address.rsplit(":", 1)
    return socket.create_server((host, int(port)), backlog=BACKLOG)


def fetch(address, patience_s):
    with connect(address, patience_s) as stream:
        stream.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        answer = b""
        while piece := stream.recv(65536):
            answer += piece
    if b" 200 " not in answer[:20]:
        raise OSError("no good answer")


def call(address, patience_ms, otherwise="fail", tries=1):
    """Asks another server, some times; then the request fails, or is answered without it."""
    for _ in range(int(tries)):
        try:
            return fetch(address, float(patience_ms) / 1000)
        except OSError:
            pass
    if otherwise == "fail":
        raise Failed(504)


def hold(kind, path, ms):
    lock = fcntl.flock if kind == "flock" else fcntl.lockf
    with open(path, "a") as file:
        lock(file, fcntl.LOCK_EX)
        time.sleep(float(ms) / 1000)
        lock(file, fcntl.LOCK_UN)


class Mutex:
    """One of the C library, as programs in C and C++ take."""

    def __init__(self):
        self.bytes = ctypes.create_string_buffer(64)

    def __enter__(self):
        LIBC.pthread_mutex_lock(self.bytes)

    def __exit__(self, *_):
        LIBC.pthread_mutex_unlock(self.bytes)


LOCKS = [Mutex(), Mutex()]


def both(kind, order, ms, *paths):
    """Takes two locks: always in the same order, or crosswise."""
    turned = order == "cross" and random.random() < 0.5
    if kind == "mutex":
        first, second = LOCKS[::-1] if turned else LOCKS
        with first:
            time.sleep(float(ms) / 1000)
            with second:
                pass
        return
    with open(paths[turned], "a") as first, open(paths[1 - turned], "a") as second:
        fcntl.flock(first, fcntl.LOCK_EX)
        time.sleep(float(ms) / 1000)
        fcntl.flock(second, fcntl.LOCK_EX)


def mutex(ms):
    """Takes a mutex, and keeps it for so long."""
    with LOCKS[0]:
        time.sleep(float(ms) / 1000)


def cached(cache, keys, behind="", patience_ms=0, lost_percent=0):
    """Asks a memcached for one of so many keys; what is not in it another server has."""
    key = random.randrange(int(keys))
    host, port = cache.rsplit(":", 1)
    with socket.create_connection((host, int(port)), PATIENCE_S) as stream:
        stream.sendall(b"get key%d\r\n" % key)
        answer = stream.recv(4096)
        if answer.startswith(b"VALUE") and random.randrange(100) >= int(lost_percent):
            return
        if behind:
            call(behind, patience_ms)
        stream.sendall(b"set key%d 0 0 5\r\nvalue\r\n" % key)
        stream.recv(4096)


CHANNELS = {}


def grpc(address, seconds):
    """Calls a gRPC server, on the one connection that this process has to it."""
    import grpc as library

    channel = CHANNELS.get(address)
    if channel is None:
        channel = CHANNELS.setdefault(address, library.insecure_channel(address))
    try:
        channel.unary_unary("/lab.Shop/Get")(seconds.encode(), timeout=PATIENCE_S)
    except library.RpcError:
        raise Failed(504)


def publish(address):
    """Gives a message to a RabbitMQ, and waits until it has it. Each thread has a connection."""
    import pika

    if not hasattr(OWN, "channel"):
        host, port = address.rsplit(":", 1)
        connection = pika.BlockingConnection(pika.ConnectionParameters(host, int(port), heartbeat=0))
        OWN.channel = connection.channel()
        OWN.channel.queue_declare("lab", arguments={"x-max-length": 100})
        OWN.channel.confirm_delivery()
    OWN.channel.basic_publish("", "lab", b"." * 500)


def read(path, size):
    with open(path, "rb", buffering=0) as file:
        file.seek(random.randrange(256) * 4096)
        file.read(int(size))


class Pool:
    """So many connections to something; a few of those that are taken never come back."""

    def __init__(self):
        self.lock, self.free = threading.Lock(), None

    def take(self, size, leak_per_mille, ms, empty):
        with self.lock:
            if self.free is None:
                self.free = threading.Semaphore(int(size))
        if not self.free.acquire(blocking=False):
            open(empty, "a").close()
            self.free.acquire()
        time.sleep(float(ms) / 1000)
        if random.randrange(1000) >= int(leak_per_mille):
            self.free.release()


STEPS = {
    step.__name__: step for step in (compute, wait, call, hold, both, mutex, cached, grpc, publish, read)
} | {"pool": Pool().take}


def serve(stream, manners):
    stream.settimeout(PATIENCE_S)
    request = b""
    while b"\r\n\r\n" not in request:
        piece = stream.recv(4096)
        if not piece:
            return
        request += piece
    path = request.split(b" ", 2)[1].decode()
    status, size = 200, 500
    try:
        for where, step, *words in manners.now():
            if where not in ("*", path):
                continue
            if step == "bytes":
                size = int(words[0])
            else:
                STEPS[step](*words)
    except Failed as failed:
        status = failed.args[0]
    head = "HTTP/1.1 %d %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
    stream.sendall((head % (status, "OK" if status == 200 else "Failed", size)).encode() + b"." * size)


def work(listener, manners):
    while True:
        stream, _ = listener.accept()
        try:
            with stream:
                serve(stream, manners)
        except OSError:
            pass


def main():
    global TURNS_OF_A_MS
    address, processes, threads, manners = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    TURNS_OF_A_MS = turns_of_a_ms()
    listener = listen(address)
    for _ in range(processes if processes > 1 else 0):
        if os.fork() == 0:
            break
    else:
        if processes > 1:
            listener.close()
            while True:
                os.wait()
    manners = Manners(manners)
    for _ in range(threads - 1):
        threading.Thread(target=work, args=(listener, manners), daemon=True).start()
    work(listener, manners)


main()
